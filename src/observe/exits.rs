//! The last abnormal exits of a runtime, in a bounded list.
//!
//! The host fills the list when a process exits abnormally. This module stores and prints the records. A record
//! contains no value of user code. Therefore a stored record keeps no value of user code alive, and the drop of a
//! record runs no user code.

use std::backtrace::Backtrace;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::observe::inspection::last_messages::LastMessage;
use crate::platform::clock::Instant;
use crate::platform::sync::{Arc, TallyLock};
use crate::process::catch::catch;
use crate::process::error::InitError;
use crate::process::exit::Exit;
use crate::process::pid::Pid;

/// Default number of records.
const DEFAULT: usize = 64;

/// Maximum number of records with a backtrace. A backtrace needs much more memory than the rest of the record.
const MAX_BACKTRACES: usize = 8;

/// Record of an abnormal exit: see [`Host::last_exits`](crate::Host::last_exits).
///
/// `Display` prints the record as one line. If a panic message has several lines, `Display` prints its other lines
/// below the first line, with an indentation:
///
/// ```text
/// <0.0.1> "cache" app::Cache panicked at src/cache.rs:41:9: boom (12.5s after the start, mailbox 3, parent <0.0.7>)
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExitRecord {
    /// Pid of the process.
    pub pid: Pid,
    /// Registered name of the process at its exit. If the process had several names, this field is the name that the
    /// process registered first.
    pub name: Option<Cow<'static, str>>,
    /// Type name of the process's code: the [`Process`](crate::Process) type, or the type of an async body's function
    /// or closure.
    pub type_name: &'static str,
    /// Parent: the process that spawned this process. `None` if code outside the processes of the runtime spawned this
    /// process.
    pub parent: Option<Pid>,
    /// The exit. An error in this exit is replaced by its text, so that the record does not keep the error alive.
    /// Therefore [`Exit::error`] cannot find the original error.
    pub exit: Exit,
    /// Number of accepted messages that the process never read. These messages became dead letters.
    pub mailbox_len: usize,
    /// Time of the exit on the clock of the runtime.
    pub at: Instant,
    /// The last messages and other events that the process accepted, oldest first. The list is empty if
    /// [`Builder::inspect`](crate::Builder::inspect) was not called, or if the [number of
    /// records](crate::observe::InspectOptions::last_messages) is 0. `Display` does not print this list.
    pub last_messages: Vec<LastMessage>,
}

impl ExitRecord {
    /// Returns the place in the source where the process panicked, as `file:line:column`. If a chain of links made the
    /// process exit, the result is the place where the first process of the chain panicked. Returns `None` if no
    /// process panicked, or if the place is unknown.
    pub fn location(&self) -> Option<&str> {
        self.exit.panic_location()
    }

    /// Returns the backtrace of the panic, if the runtime has [captured](Exit::panic_backtrace) a backtrace. By
    /// default, the runtime captures no backtrace. The runtime keeps the backtraces of at most 8 records. If a ninth
    /// record with a backtrace is added, the runtime drops the oldest backtrace, but keeps the rest of the record that
    /// contained this backtrace.
    pub fn backtrace(&self) -> Option<&Backtrace> {
        self.exit.panic_backtrace()
    }
}

impl fmt::Display for ExitRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.pid)?;
        if let Some(name) = &self.name {
            write!(f, "{name:?} ")?;
        }
        let exit = self.exit.to_string().replace('\n', "\n  ");
        let at = Duration::from_nanos(self.at.ns());
        write!(f, "{} {exit} ({at:?} after the start, mailbox {}", self.type_name, self.mailbox_len)?;
        match self.parent {
            Some(parent) => write!(f, ", parent {parent})"),
            None => f.write_str(")"),
        }
    }
}

/// The last abnormal exits, oldest first.
#[derive(Debug)]
pub(crate) struct ExitHistory {
    /// No protocol depends on this lock: the code takes the lock only to add a record or to read the records.
    records: TallyLock<Records>,
    capacity: usize,
}

#[derive(Debug, Default)]
struct Records {
    list: VecDeque<ExitRecord>,
    /// Number of records that were dropped from the front of the list.
    dropped: u64,
    /// The numbers of those records that have a backtrace, oldest record first. The first record of the runtime has the
    /// number 0. The numbers at the front may belong to records that were dropped.
    with_backtrace: VecDeque<u64>,
}

impl Default for ExitHistory {
    fn default() -> Self {
        Self::new(DEFAULT)
    }
}

impl ExitHistory {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { records: TallyLock::new(Records::default()), capacity }
    }

    /// Returns true if the list never stores a record.
    pub(crate) fn is_off(&self) -> bool {
        self.capacity == 0
    }

    /// Adds a record. If the list is full, the oldest record is dropped. The caller has replaced the error of the exit
    /// by the text of the error: see [`without_errors`]. The `Display` of the error is user code, and must not run
    /// under the lock.
    pub(crate) fn add(&self, record: ExitRecord) {
        let dropped = self.records.with(|records| records.add(record, self.capacity));
        drop(dropped);
    }

    pub(crate) fn list(&self) -> Vec<ExitRecord> {
        self.records.with(|records| records.list.iter().cloned().collect())
    }
}

impl Records {
    /// Adds a record. Returns the data that this function has removed from the list. The caller drops this data after
    /// the release of the lock.
    fn add(&mut self, record: ExitRecord, capacity: usize) -> (Option<ExitRecord>, Option<Exit>) {
        let oldest = if self.list.len() >= capacity { self.list.pop_front() } else { None };
        self.dropped += u64::from(oldest.is_some());
        if record.backtrace().is_some() {
            self.with_backtrace.push_back(self.dropped + self.list.len() as u64);
        }
        self.list.push_back(record);
        (oldest, self.drop_backtrace())
    }

    /// If too many records have a backtrace, removes the oldest backtrace. Returns the exit with this backtrace.
    fn drop_backtrace(&mut self) -> Option<Exit> {
        if self.with_backtrace.len() <= MAX_BACKTRACES {
            return None;
        }
        let index = self.with_backtrace.pop_front()?.checked_sub(self.dropped)?;
        let record = self.list.get_mut(usize::try_from(index).ok()?)?;
        let exit = record.exit.without_backtrace();
        Some(std::mem::replace(&mut record.exit, exit))
    }
}

/// Returns the text of an exit. If the `Display` of the error panics, the text contains the panic message.
pub(super) fn text_of_exit(exit: &Exit) -> String {
    without_errors(exit).to_string()
}

/// Returns a copy of the exit, in which the text of the error replaces the error.
pub(crate) fn without_errors(exit: &Exit) -> Exit {
    match exit {
        Exit::Failed(error) => Exit::Failed(Arc::new(Text::of(&**error))),
        Exit::InitFailed(error) => match &**error {
            InitError::Failed(error) => Exit::InitFailed(Arc::new(InitError::Failed(Box::new(Text::of(&**error))))),
            _ => exit.clone(),
        },
        Exit::Linked { origin, reason } if matches!(&**reason, Exit::Failed(_) | Exit::InitFailed(_)) => {
            Exit::Linked { origin: *origin, reason: Arc::new(without_errors(reason)) }
        }
        _ => exit.clone(),
    }
}

/// The text of an error.
#[derive(Debug)]
struct Text(String);

impl Text {
    /// Returns the text of `error`. If the `Display` of the error panics, the text contains the panic message.
    fn of(error: &dyn Error) -> Self {
        let text = catch(|| error.to_string());
        Self(text.unwrap_or_else(|panic| format!("the text of the error panicked: {panic}")))
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Error for Text {}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::process::exit::Reason;

    fn record(index: u32, exit: Exit) -> ExitRecord {
        let pid = Pid::new(1, 0, index, 1);
        let at = Instant::from_ns(2_500_000);
        ExitRecord {
            pid,
            name: None,
            type_name: "app::Cache",
            parent: None,
            exit: without_errors(&exit),
            mailbox_len: 0,
            at,
            last_messages: Vec::new(),
        }
    }

    #[test]
    fn the_oldest_record_is_dropped_first() {
        let history = ExitHistory::new(2);
        (1..=3).for_each(|index| history.add(record(index, Exit::Killed)));
        assert_eq!(history.list(), [record(2, Exit::Killed), record(3, Exit::Killed)]);
    }

    #[test]
    fn only_the_last_8_backtraces_are_kept() {
        let history = ExitHistory::new(10);
        let panics = |traced: bool| {
            let backtrace = traced.then(Backtrace::force_capture);
            Exit::Panicked(Reason::panic("boom", "src/cache.rs:41:9".into(), backtrace))
        };
        let linked = |traced| Exit::Linked { origin: Pid::new(1, 0, 9, 1), reason: Arc::new(panics(traced)) };
        let traced = || history.list().iter().map(|record| record.backtrace().is_some()).collect::<Vec<_>>();
        history.add(record(0, linked(true)));
        (1..8).for_each(|index| history.add(record(index, panics(true))));
        history.add(record(8, panics(false)));
        assert_eq!(traced(), [[true; 8].as_slice(), &[false]].concat());
        history.add(record(9, panics(true)));
        assert_eq!(traced(), [[false].as_slice(), &[true; 7], &[false, true]].concat());
        // The exit is the same, apart from the backtrace.
        assert_eq!(history.list()[0], record(0, linked(false)));
        assert_eq!(history.list()[0].location(), Some("src/cache.rs:41:9"));
        // The record 0 is dropped from the list, and then the backtrace of the record 1 is dropped.
        history.add(record(10, panics(true)));
        assert_eq!(traced(), [[false].as_slice(), &[true; 6], &[false, true, true]].concat());
        (11..100).for_each(|index| history.add(record(index, panics(true))));
        assert_eq!(traced(), [[false; 2].as_slice(), &[true; 8]].concat());
    }

    #[test]
    fn a_record_is_printed_as_one_line() {
        let exit = Exit::Panicked(Reason::panic("two\nlines", "src/cache.rs:41:9".into(), None));
        let parent = Some(Pid::new(1, 0, 7, 1));
        let full = ExitRecord { name: Some("cache".into()), parent, mailbox_len: 3, ..record(4, exit) };
        let [pid, parent] = [full.pid, full.parent.expect("set above")].map(|pid| pid.to_string());
        let text = format!(
            "{pid} \"cache\" app::Cache panicked at src/cache.rs:41:9: two\n  lines (2.5ms after the start, mailbox 3, \
             parent {parent})"
        );
        assert_eq!(full.to_string(), text);
        assert_eq!(full.location(), Some("src/cache.rs:41:9"));
        let short = format!("{pid} app::Cache killed (2.5ms after the start, mailbox 0)");
        assert_eq!(record(4, Exit::Killed).to_string(), short);
    }

    /// An error whose `Display` panics.
    #[derive(Debug)]
    struct NoText;

    impl fmt::Display for NoText {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("no text")
        }
    }

    impl Error for NoText {}

    #[test]
    fn the_text_of_an_error_replaces_the_error() {
        let history = ExitHistory::default();
        let error = || std::io::Error::other("disk");
        let linked = Exit::Linked { origin: Pid::new(1, 0, 9, 1), reason: Arc::new(Exit::failed(error())) };
        let init = Exit::InitFailed(Arc::new(InitError::failed(error())));
        let all = [Exit::failed(error()), linked, init];
        all.iter().for_each(|exit| history.add(record(1, exit.clone())));
        for (record, exit) in history.list().iter().zip(&all) {
            assert_eq!(record.exit.to_string(), exit.to_string());
            assert!(exit.error::<std::io::Error>().is_some() && record.exit.error::<std::io::Error>().is_none());
        }
        history.add(record(1, Exit::failed(NoText)));
        assert_eq!(
            history.list().last().expect("added above").exit.to_string(),
            "failed: the text of the error panicked: no text"
        );
    }
}

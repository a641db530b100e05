//! Records the abnormal exits of processes, and returns the last records.

use crate::host::control::Head;
use crate::host::{Host, Phase};
use crate::observe::crash::AbnormalState;
use crate::observe::exits::{ExitRecord, without_errors};
use crate::process::exit::Exit;

impl Host {
    /// Returns the last abnormal exits of the processes of this runtime, oldest first. The records include the
    /// processes of all hosts of the runtime.
    ///
    /// An exit is abnormal if it is not [`Exit::Normal`]: a panic, an error, a failed initialization, a kill, a
    /// cancellation, or an exit that a link has propagated. During a shutdown of the runtime, exits by a cancellation
    /// or a kill are not recorded, because such exits would displace all earlier records. The exit of a process whose
    /// spawn was refused is not recorded. By default, the runtime keeps the last 64 records: see
    /// [`Builder::exit_history`](crate::Builder::exit_history). A [`Simulation`](crate::Simulation) also keeps 64
    /// records.
    ///
    /// The runtime stores the record of an exit before links, monitors and the join handle receive this exit. The call
    /// can be made on any thread, and never stops a worker.
    ///
    /// ```
    /// # use procession::{Context, Runtime};
    /// let rt = Runtime::builder().workers(0).build()?;
    /// let process = rt.process().name("cache").spawn(async |_: Context| Err::<(), _>("no disk"))?;
    /// let pid = process.pid();
    /// assert!(rt.block_on(process).is_err());
    /// let last = &rt.last_exits()[0];
    /// assert_eq!((last.pid, last.name.as_deref()), (pid, Some("cache")));
    /// assert_eq!(last.exit.to_string(), "failed: no disk");
    /// println!("{last}");
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn last_exits(&self) -> Vec<ExitRecord> {
        self.shared().exits.list()
    }

    /// Records the abnormal exit of a process.
    pub(in crate::host) fn record_exit(&self, head: &Head, exit: &Exit, state: &AbnormalState) {
        let exits = &self.shared().exits;
        if exits.is_off() || !exit.is_failure() && self.phase() != Phase::Open {
            return;
        }
        exits.add(ExitRecord {
            pid: head.pid(),
            name: state.last.name.clone(),
            type_name: state.last.type_name,
            parent: head.parent(),
            mailbox_len: state.last.unread,
            last_messages: state.last_messages.clone(),
            at: self.now(),
            // The `Display` of the error is user code and may be slow, so the time of the exit is read first.
            exit: without_errors(exit),
        });
    }
}

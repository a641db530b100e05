//! The trace of a simulation: a text with the events of the simulation in order. The events are state changes of
//! processes, panics of processes, and polls of futures.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;
use std::{fmt, mem};

use crate::observe::{Observer, ProcessState, Transition};
use crate::platform::clock::Instant;
use crate::platform::sync::Mutex;
use crate::process::pid::Pid;

/// Maximum number of lines that the trace stores. Earlier lines are only counted and hashed.
const KEPT: usize = 1 << 20;

/// Observer that stores the events of a simulation.
#[derive(Debug, Default)]
pub(super) struct Trace(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    last: VecDeque<Line>,
    forgotten: u64,
    /// Hash of the lines that the trace no longer stores.
    digest: u64,
    closed: bool,
    /// The processes that exited after the trace was closed.
    late: BTreeSet<Pid>,
}

#[derive(Debug, Hash)]
struct Line {
    at: Instant,
    what: What,
}

/// Event that a line of the trace describes.
#[derive(Debug, Hash)]
pub(super) enum What {
    /// A process changed from the first state to the second state. If the first state is `None`, the process was
    /// spawned.
    State(Pid, Option<ProcessState>, ProcessState),
    Panicked(Pid, Box<str>),
    /// A future without a pid was polled, for example the future of a handler.
    Future,
    /// The future that the simulation runs was polled.
    Own,
}

impl Trace {
    pub(super) fn note(&self, at: Instant, what: What) {
        let lines = &mut *self.0.lock();
        if lines.closed {
            if let What::State(pid, _, ProcessState::Complete) = what {
                lines.late.insert(pid);
            }
            return;
        }
        if lines.last.len() == KEPT
            && let Some(line) = lines.last.pop_front()
        {
            let mut hasher = DefaultHasher::new();
            (lines.digest, line).hash(&mut hasher);
            lines.digest = hasher.finish();
            lines.forgotten += 1;
        }
        lines.last.push_back(Line { at, what });
    }

    /// Closes the trace. A closed trace stores no further lines.
    pub(super) fn close(&self) {
        self.0.lock().closed = true;
    }

    /// Returns and removes the processes that have exited since the trace was closed.
    pub(super) fn take_late(&self) -> BTreeSet<Pid> {
        mem::take(&mut self.0.lock().late)
    }

    /// Compares two traces. If the traces differ, returns a text: the number of the first different line, and this line
    /// of each trace. If the traces no longer store the first different line, the text only says how many lines are no
    /// longer stored.
    pub(super) fn difference(&self, other: &Self) -> Option<String> {
        let (one, other) = (self.0.lock(), other.0.lock());
        if one.forgotten == other.forgotten && one.digest != other.digest {
            return Some(format!("one of the first {} steps, which are not kept", one.forgotten));
        }
        let first = one.forgotten.max(other.forgotten);
        for step in first..one.end().max(other.end()) {
            let (one, other) = (one.line(step), other.line(step));
            if one != other {
                let number = step + 1;
                return Some(format!("step {number}\n  first run:  {one}\n  second run: {other}"));
            }
        }
        None
    }

    /// Returns the text of the last lines. The number of lines is at most `most`.
    pub(super) fn last(&self, most: usize) -> String {
        let lines = self.0.lock();
        let left_out = lines.last.len().saturating_sub(most);
        let mut text = String::new();
        let forgotten = lines.forgotten + left_out as u64;
        if forgotten != 0 {
            let _ = writeln!(text, "… {forgotten} lines before these");
        }
        for line in lines.last.iter().skip(left_out) {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    /// Returns the text of all stored lines.
    pub(super) fn text(&self) -> String {
        self.last(usize::MAX)
    }
}

impl Lines {
    /// Returns the number of all lines, including the lines that are no longer stored.
    fn end(&self) -> u64 {
        self.forgotten + self.last.len() as u64
    }

    /// Returns the text of a stored line.
    fn line(&self, number: u64) -> String {
        let line = number.checked_sub(self.forgotten).and_then(|index| self.last.get(usize::try_from(index).ok()?));
        line.map_or("the run is over".into(), Line::to_string)
    }
}

impl Observer for Trace {
    fn transition(&self, t: &Transition) {
        self.note(t.at, What::State(t.pid, t.from, t.to));
    }

    fn panicked(&self, pid: Pid, message: &str) {
        // The process was running when it panicked. The trace has a line for the start of the turn in which the process
        // panicked, so the last line of the trace has the current time.
        let now = self.0.lock().last.back().map_or(Instant::FAR, |line| line.at);
        self.note(now, What::Panicked(pid, message.into()));
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = Duration::from_nanos(self.at.ns());
        match &self.what {
            What::State(pid, None, _) => write!(f, "{at:?} {pid} spawned"),
            What::State(pid, _, to) => {
                let to = match to {
                    ProcessState::Ready => "ready",
                    ProcessState::Running => "running",
                    ProcessState::Blocked => "blocked",
                    ProcessState::Idle => "idle",
                    ProcessState::Complete => "complete",
                    ProcessState::Suspended => "suspended",
                };
                write!(f, "{at:?} {pid} {to}")
            }
            What::Panicked(pid, text) => write!(f, "{at:?} {pid} panicked: {text}"),
            What::Future => write!(f, "{at:?} a future runs"),
            What::Own => write!(f, "{at:?} the scenario runs"),
        }
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;

    fn trace(pids: impl IntoIterator<Item = u32>, simulation: u32) -> Trace {
        let trace = Trace::default();
        for index in pids {
            let what = What::State(Pid::new(0, simulation, index, 1), Some(ProcessState::Idle), ProcessState::Ready);
            trace.note(Instant::from_ns(7), what);
        }
        trace
    }

    #[test]
    fn the_first_different_step_is_reported() {
        let one = trace([1, 2, 3], 2);
        assert_eq!(one.difference(&trace([1, 2, 3], 4)), None);
        let swapped = one.difference(&trace([1, 3, 2], 4)).expect("it differs");
        assert_eq!(swapped, "step 2\n  first run:  7ns <0.2.1> ready\n  second run: 7ns <0.3.1> ready");
        let shorter = one.difference(&trace([1, 2], 4)).expect("it differs");
        assert_eq!(shorter, "step 3\n  first run:  7ns <0.3.1> ready\n  second run: the run is over");
        let longer = trace([1, 2], 4).difference(&one).expect("it differs");
        assert!(longer.ends_with("second run: 7ns <0.3.1> ready"), "{longer}");
    }

    #[test]
    fn a_difference_in_lines_that_are_not_stored_is_found() {
        let long = |first| trace([first].into_iter().chain(std::iter::repeat_n(5, KEPT)), 2);
        let one = long(1);
        assert_eq!(one.difference(&long(1)), None);
        assert!(one.difference(&long(2)).expect("it differs").contains("the first 1 steps"));
    }

    #[test]
    fn a_closed_trace_stores_no_lines() {
        let one = trace([1], 2);
        one.close();
        one.note(Instant::FAR, What::Own);
        assert_eq!(one.text(), "7ns <0.1.1> ready\n");
    }
}

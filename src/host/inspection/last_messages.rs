//! Records the last messages of each process, if the options of the runtime request these records. If the runtime
//! records the messages of a process, the process has the flag `OBSERVED`. Therefore these functions are called only on
//! code paths that a trace also uses.
//!
//! The caller may hold the lock of the mailbox, or of the table of commands. A thread that holds the lock of a log
//! takes no other lock. Therefore no deadlock is possible.

use crate::host::Host;
use crate::host::control::Head;
use crate::observe::inspection::last_messages::{LastMessage, MessageKind};
use crate::platform::clock::Instant;
use crate::platform::sync::atomic::Ordering;
use crate::process::event::{Signal, Tag};
use crate::process::pid::Pid;

impl Host {
    /// Returns whether the runtime records the last messages of each process.
    #[inline]
    pub(crate) fn logs_messages(&self) -> bool {
        self.shared().last_messages.load(Ordering::Relaxed) != 0
    }

    /// Records that the mailbox of an observed process has accepted a message. The function adds the record to the log
    /// of the process and to the traces. `by_sender` is true if this thread runs the sender.
    #[cold]
    pub(in crate::host) fn observe_send(&self, head: &Head, type_name: &'static str, by_sender: bool) {
        // Both calls are tail calls. Therefore this function pushes no registers to the stack on the path to
        // `trace_send`.
        if self.logs_messages() { self.log_and_trace_send(head, type_name, by_sender) } else { self.trace_send(head) }
    }

    #[inline(never)]
    fn log_and_trace_send(&self, head: &Head, type_name: &'static str, by_sender: bool) {
        self.log_message(head, type_name, by_sender);
        self.trace_send(head);
    }

    /// Records the answer to a command of an observed process. The function adds the record to the log of the process
    /// and to the traces.
    #[cold]
    pub(in crate::host) fn observe_answer(&self, head: &Head, tag: Tag, command: &dyn Fn() -> &'static str) {
        if self.logs_messages() {
            self.log_answer(head, command());
        }
        self.trace_answer(head, tag);
    }

    /// Adds a message to the log of its receiver. `by_sender` is true if this thread runs the sender.
    #[cold]
    pub(in crate::host) fn log_message(&self, head: &Head, type_name: &'static str, by_sender: bool) {
        let from = if by_sender { self.stepped() } else { None };
        self.log(head, MessageKind::Message { type_name }, from);
    }

    /// Adds the answer to a command of this type to the log of the process.
    #[cold]
    pub(crate) fn log_answer(&self, head: &Head, command: &'static str) {
        self.log(head, MessageKind::Answer { command }, None);
    }

    /// Adds a signal to the log of its receiver. The caller calls this function before the mailbox accepts the signal.
    /// Otherwise, the process could receive the signal and fail before the log contains the signal.
    #[cold]
    pub(in crate::host) fn log_signal(&self, head: &Head, signal: &Signal) {
        if let Some((kind, from)) = MessageKind::of(signal) {
            self.log(head, kind, from);
        }
    }

    /// Adds the `Down` event of a monitor to the log of its receiver, as [`log_signal`](Self::log_signal) does.
    #[cold]
    pub(in crate::host) fn log_down(&self, head: &Head, pid: Pid) {
        self.log(head, MessageKind::Down, Some(pid));
    }

    fn log(&self, head: &Head, kind: MessageKind, from: Option<Pid>) {
        let capacity = self.shared().last_messages.load(Ordering::Relaxed);
        if capacity != 0 && !head.is_outside() {
            head.message_log(capacity).add(LastMessage { kind, from, at: self.time_of_record() });
        }
    }

    /// Returns the time of a record. On a worker and in a simulation, this function reads no clock, because the last
    /// clock reading is recent. On any other thread, this function reads the clock, because the last clock reading may
    /// be old: no thread reads the clock while all workers are parked.
    fn time_of_record(&self) -> Instant {
        let shared = self.shared();
        if shared.clock.is_virtual() || shared.metrics.worker().is_some() { shared.timers.recent() } else { self.now() }
    }
}

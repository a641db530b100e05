//! Stores and publishes the exit of a process in its head. The head also records whether a link, a monitor or a join
//! handle has received the exit.

use crate::host::control::head::{Abnormal, Head, flag};
use crate::observe::crash::{AbnormalState, CrashReport, LastState, MAX_LINKS};
use crate::observe::inspection::last_messages::MessageLog;
use crate::platform::sync::atomic::{AtomicBool, Ordering};
use crate::process::catch::Held;
use crate::process::exit::Exit;

impl Head {
    /// Returns the exit, if the process has exited.
    #[inline]
    pub(crate) fn exit(&self) -> Option<Exit> {
        let exit = || self.abnormal().map_or(Exit::Normal, |abnormal| abnormal.exit.get().clone());
        self.has_ended().then(exit)
    }

    fn abnormal(&self) -> Option<&Abnormal> {
        self.rare.get()?.exit.get()
    }

    /// Records that a link, a monitor or a join handle has received the exit.
    #[cold]
    pub(crate) fn received_exit(&self) {
        if let Some(abnormal) = self.abnormal() {
            abnormal.received.store(true, Ordering::SeqCst);
        }
    }

    /// Returns the crash report of the process, if the exit is a failure and was not received. The call marks the exit
    /// as received. Therefore only one caller gets the report. While an `Exited` future of the process is pending, this
    /// function returns `None`, because the future may receive the exit. If the future is dropped without the exit,
    /// [`end_await`](Self::end_await) requests another call of this function.
    pub(crate) fn take_unreceived(&self) -> Option<CrashReport> {
        let Abnormal { exit, received, is_report_requested, crash } = self.abnormal()?;
        // This function first stores the request, and then loads the number of pending `Exited` futures. `end_await`
        // first decrements this number, and then loads the request. Therefore, either this function sees that no future
        // is pending, or the call of `end_await` for the last future sees the request.
        is_report_requested.store(true, Ordering::SeqCst);
        let is_awaited = self.rarest_if_any().is_some_and(|rarer| rarer.awaited.load(Ordering::SeqCst) != 0);
        if is_awaited || received.swap(true, Ordering::SeqCst) {
            return None;
        }
        Some(self.crash_report(crash.as_ref()?, exit.get()))
    }

    /// Creates the crash report of the process.
    pub(crate) fn crash_report(&self, state: &AbnormalState, exit: &Exit) -> CrashReport {
        let AbnormalState { last, links, last_messages } = state;
        CrashReport {
            pid: self.pid(),
            name: last.name.clone(),
            type_name: last.type_name,
            parent: self.parent(),
            exit: exit.clone(),
            mailbox_len: last.unread,
            links: links.iter().take(MAX_LINKS).copied().collect(),
            last_messages: last_messages.clone(),
            has_more_links: links.len() > MAX_LINKS,
        }
    }

    /// Collects the data about an abnormal exit. The links are not dissolved yet. Only the crash report shows the
    /// links, and only a failure has a crash report.
    pub(crate) fn abnormal_state(&self, last: LastState, is_failure: bool) -> AbnormalState {
        let links = self.links_if_any().filter(|_| is_failure);
        AbnormalState {
            last,
            links: links.map_or(Vec::new(), |links| links.linked(MAX_LINKS + 1)),
            last_messages: self.message_log_if_any().map_or(Vec::new(), MessageLog::last),
        }
    }

    /// Adds one to the number of pending `Exited` futures.
    pub(crate) fn begin_await(&self) {
        self.rare().rarer().awaited.fetch_add(1, Ordering::SeqCst);
    }

    /// Subtracts one from the number of pending `Exited` futures. Returns true if the caller must try to report the
    /// exit as unobserved. This is the case if no other future is pending and a report was requested earlier.
    pub(crate) fn end_await(&self) -> bool {
        let is_last = self.rare().rarer().awaited.fetch_sub(1, Ordering::SeqCst) == 1;
        is_last && self.abnormal().is_some_and(|abnormal| abnormal.is_report_requested.load(Ordering::SeqCst))
    }

    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.has(flag::ENDED)
    }

    /// Stores an exit that is not normal. The caller then [publishes](Self::publish_exit) the exit. `state` is the data
    /// for the crash report, if the exit is a failure of a process.
    #[cold]
    pub(crate) fn store_exit(&self, exit: &Exit, state: Option<AbnormalState>) {
        let _ = self.rare().exit.set(Box::new(Abnormal {
            exit: Held::new(exit.clone()),
            received: AtomicBool::new(false),
            is_report_requested: AtomicBool::new(false),
            crash: state,
        }));
    }

    /// Publishes the stored exit, and notifies waiting tasks, linked processes and monitoring processes. If no exit is
    /// stored, the exit is normal.
    #[inline]
    pub(crate) fn publish_exit(&self) {
        let former = self.announce(flag::ENDED);
        if former & flag::TIED != 0
            && let Some(links) = self.links_if_any()
        {
            // If two threads try to set an exit, only the first exit is stored. Therefore this function publishes the
            // stored exit.
            let exit = self.abnormal().map_or(&Exit::Normal, |abnormal| abnormal.exit.get());
            if links.dissolve(self.pid(), exit) {
                self.received_exit();
            }
        }
    }

    /// Stores and publishes the exit of a control block that belongs to no process.
    pub(crate) fn publish_exit_of_no_process(&self, exit: &Exit) {
        if !exit.is_normal() {
            self.store_exit(exit, None);
        }
        self.publish_exit();
    }
}

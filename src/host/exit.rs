//! The end of a process, in the order in which it happens.

use std::any::TypeId;

use crate::host::control::{AnyControl, Control, Head, flag};
use crate::host::{Host, Package, Phase};
use crate::observe::{Counter, State, Unobserved};
use crate::platform::sync::atomic::{Ordering, fence};
use crate::process::catch::catch;
use crate::process::exit::Exit;
use crate::process::payload::Payload;
use crate::process::state::Ref;
use crate::process::state::current::Current;

/// Drops a message of a mailbox that has no receiver any more. A message may own a mailbox with messages, so the drops are
/// deferred when they nest. Panics of its destructor are caught.
fn drop_message<M: Send + 'static>(message: M) {
    if std::mem::needs_drop::<M>() {
        Current::with(|current| current.deferred.call(|| drop(message)));
    }
}

impl Host {
    // ---- The end of a process, in the order in which it happens

    /// Its names are free. Its mailbox has been closed: whoever registers it marks it before it looks at that, see
    /// `relay::names`.
    #[inline]
    pub(crate) fn release(&self, head: &Head) {
        if head.has(flag::KNOWN) {
            self.realm().names().release(head.names());
        }
    }

    /// The pid names nothing from now on, and is in no group. What it held has been let go, so that whoever finds nothing
    /// there, or hears that it left, finds nothing left of it, and nothing of it comes after that. Returns what the table had.
    #[inline]
    pub(crate) fn forget(&self, head: &Head) -> Option<Ref<dyn AnyControl>> {
        // Whoever finds its pid gone, or sees it ended, finds it counted. A mailbox outside any process never was.
        if !head.has(flag::OUTSIDE) {
            self.shared().metrics.add_exited();
        }
        let pid = head.pid();
        let entry = self.displace(pid);
        if head.has(flag::KNOWN) {
            self.leave_groups(head);
        }
        entry
    }

    #[cold]
    fn leave_groups(&self, head: &Head) {
        self.realm().groups().release(head.pid(), head.groups());
    }

    /// The last of it: its yields are given up, and those who want to hear of its end do.
    #[inline]
    pub(crate) fn bury(&self, head: &Head, exit: &Exit) {
        if let Some(yields) = head.yields_if_any() {
            yields.close();
        }
        if let Some(pending) = head.pending_if_any() {
            pending.close(self);
        }
        // A mailbox outside any process has no states, and takes up no place.
        if !head.has(flag::OUTSIDE) {
            head.enter(head.flags(), State::Complete);
            head.host().realm().leave();
        }
        head.set_exit(exit);
        if head.has(flag::ROOT) {
            self.root_ended();
        }
        if self.phase() != Phase::Open {
            // Two that end at the same time each count themselves first: whoever looks last sees both, and they ended.
            fence(Ordering::SeqCst);
            if self.all_ended() {
                self.shared().emptied.notify(usize::MAX);
            }
        }
    }

    /// The process has ended, and no join handle will return how. Reports a failure that nothing else received, once.
    #[cold]
    pub(crate) fn report_unobserved(&self, head: &Head) {
        let Some(exit) = head.take_unreceived().filter(Exit::is_failure) else { return };
        self.shared().metrics.add(Counter::Unobserved, 1);
        if let Some(tell) = &self.shared().on_unobserved {
            let _ = catch(|| tell(Unobserved { pid: head.pid(), exit }));
        }
    }

    /// Mail that was accepted and that nobody will read.
    pub(crate) fn dead_letters_of<M: Send + 'static>(&self, head: &Head, mail: impl ExactSizeIterator<Item = M>) {
        if mail.len() == 0 {
            return;
        }
        let to = head.pid();
        self.shared().metrics.add(Counter::DeadLetters, mail.len() as u64);
        let own_kind = TypeId::of::<M>() == TypeId::of::<Package>();
        for message in mail {
            let mourner = if own_kind { None } else { self.mourner() };
            // A message that no mailbox of dead letters takes is dropped, which runs the user's code.
            match mourner {
                Some(mourner) => {
                    let package = Package { from: None, to, payload: Payload::new(message) };
                    if let Err((_, package)) = mourner.push(package) {
                        drop_message(package);
                    }
                }
                None => drop_message(message),
            }
        }
    }

    /// Adds a mailbox of dead letters, the newest.
    pub(crate) fn add_mourner(&self, mourner: &Ref<Control<Package>>) {
        let mut mourners = self.shared().mourners.lock();
        // `mourner` removes those that have ended only when there is a dead letter. Without one they are removed here, each
        // time before the list would grow: that costs a constant time for each addition in the long run.
        if mourners.len() == mourners.capacity() {
            mourners.retain(|one| one.upgrade().is_some_and(|one| !one.head.has_ended()));
        }
        mourners.push(Ref::downgrade(mourner));
    }

    fn mourner(&self) -> Option<Ref<Control<Package>>> {
        let mut mourners = self.shared().mourners.lock();
        while let Some(last) = mourners.last() {
            // Its owner has it, and with it the host.
            if let Some(mourner) = last.upgrade().filter(|mourner| !mourner.head.has_ended()) {
                return Some(mourner);
            }
            mourners.pop();
        }
        None
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use crate::Runtime;

    #[test]
    fn mailboxes_of_dead_letters_that_are_dropped_leave_nothing() {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let first = rt.dead_letters();
        for _ in 0..1_000 {
            drop(rt.dead_letters());
        }
        let kept = rt.shared().mourners.lock().len();
        assert!(kept < 10, "{kept} are kept");
        drop(first);
    }
}

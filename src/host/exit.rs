//! The exit of a process, in the order of its steps. The functions run on the thread that ends the process.
//!
//! The task (`task.rs`) calls them in this order: release the names, drop the state of the process, remove the pid,
//! publish the exit. The module also delivers dead letters: unread messages of mailboxes that were closed.

use std::any::TypeId;

use crate::host::control::{AnyControl, Control, Head, flag};
use crate::host::{Envelope, Host, Phase};
use crate::observe::{Counter, ProcessState, Unobserved};
use crate::platform::sync::atomic::{Ordering, fence};
use crate::process::catch::catch;
use crate::process::exit::Exit;
use crate::process::payload::Payload;
use crate::process::state::Ref;
use crate::process::state::current::Current;

/// Drops a message of a mailbox that has no receiver any more. A message may own another mailbox with messages, so
/// nested drops are deferred: recursion would overflow the stack. Panics of the destructor are caught.
fn drop_message<M: Send + 'static>(message: M) {
    if std::mem::needs_drop::<M>() {
        Current::with(|current| current.deferred.call(|| drop(message)));
    }
}

impl Host {
    // ---- The exit of a process, in the order of its steps

    /// Releases the names of the process. The caller has closed its mailbox before. A registration sets `KNOWN` before
    /// it checks whether the mailbox is closed. Therefore this sees the flag, or the registration sees the closed
    /// mailbox: see `registry::names`.
    #[inline]
    pub(crate) fn release(&self, head: &Head) {
        if head.has(flag::KNOWN) {
            self.namespace().names().release(head.names());
        }
    }

    /// Removes the pid from the pid table, and the process from its groups. The caller has dropped the state of the
    /// process before. Therefore a thread that no longer finds the pid, or receives the leave notice, cannot meet a
    /// resource or a later message of the process. Returns the reference of the pid table.
    #[inline]
    pub(crate) fn forget(&self, head: &Head) -> Option<Ref<dyn AnyControl>> {
        // Counted before the pid is removed: a thread that no longer finds the pid, or sees the exit, finds the exit
        // counted. A mailbox outside any process was not counted as spawned.
        if !head.has(flag::OUTSIDE) {
            self.shared().metrics.add_exited();
        }
        let pid = head.pid();
        let entry = self.remove_pid(pid);
        if head.has(flag::KNOWN) {
            self.leave_groups(head);
        }
        entry
    }

    #[cold]
    fn leave_groups(&self, head: &Head) {
        self.namespace().groups().release(head.pid(), head.groups());
    }

    /// Finishes the exit: closes the yields and the timers, publishes the exit reason, and notifies links, monitors and
    /// waiters.
    #[inline]
    pub(crate) fn finish_exit(&self, head: &Head, exit: &Exit) {
        if let Some(yields) = head.yields_if_any() {
            yields.close();
        }
        if let Some(pending) = head.pending_if_any() {
            pending.close(self);
        }
        // A mailbox outside any process has no states, and does not count against the limit of the host.
        if !head.has(flag::OUTSIDE) {
            head.enter(head.flags(), ProcessState::Complete);
            head.host().namespace().leave();
        }
        head.set_exit(exit);
        if head.has(flag::ROOT) {
            self.unregister_root();
        }
        if self.phase() != Phase::Open {
            // Two processes may exit at the same time. Each counts its exit before this fence. Therefore the later one
            // in the order of the fences sees both counts, and notifies. Without the fence both threads could miss the
            // other's count.
            fence(Ordering::SeqCst);
            if self.all_ended() {
                self.shared().emptied.notify(usize::MAX);
            }
        }
    }

    /// Reports the failure of a process if no link, monitor or join handle has received it. It is reported once. The
    /// caller knows that no join handle will return it.
    #[cold]
    pub(crate) fn report_unobserved(&self, head: &Head) {
        let Some(exit) = head.take_unreceived().filter(Exit::is_failure) else { return };
        self.shared().metrics.add(Counter::Unobserved, 1);
        if let Some(tell) = &self.shared().on_unobserved {
            let _ = catch(|| tell(Unobserved { pid: head.pid(), exit }));
        }
    }

    /// Sends messages that were accepted and will never be read to the newest mailbox of dead letters.
    pub(crate) fn dead_letters_of<M: Send + 'static>(&self, head: &Head, mail: impl ExactSizeIterator<Item = M>) {
        if mail.len() == 0 {
            return;
        }
        let to = head.pid();
        self.shared().metrics.add(Counter::DeadLetters, mail.len() as u64);
        let is_dead_letter = TypeId::of::<M>() == TypeId::of::<Envelope>();
        for message in mail {
            let dead_letter_mailbox = if is_dead_letter { None } else { self.dead_letter_mailbox() };
            // User code runs here: the destructor of a message that no mailbox of dead letters accepts.
            match dead_letter_mailbox {
                Some(dead_letter_mailbox) => {
                    let package = Envelope { from: None, to, payload: Payload::new(message) };
                    if let Err((_, package)) = dead_letter_mailbox.push(package) {
                        drop_message(package);
                    }
                }
                None => drop_message(message),
            }
        }
    }

    /// Adds a mailbox of dead letters. It is the newest one, and receives the dead letters from now on.
    pub(crate) fn add_dead_letter_mailbox(&self, dead_letter_mailbox: &Ref<Control<Envelope>>) {
        let mut dead_letter_mailboxes = self.shared().dead_letter_mailboxes.lock();
        // The look-up removes closed mailboxes only when there is a dead letter. Therefore this removes them too, each
        // time before the list would grow. The amortized cost of an addition is constant.
        if dead_letter_mailboxes.len() == dead_letter_mailboxes.capacity() {
            dead_letter_mailboxes.retain(|one| one.upgrade().is_some_and(|one| !one.head.has_ended()));
        }
        dead_letter_mailboxes.push(Ref::downgrade(dead_letter_mailbox));
    }

    fn dead_letter_mailbox(&self) -> Option<Ref<Control<Envelope>>> {
        let mut dead_letter_mailboxes = self.shared().dead_letter_mailboxes.lock();
        while let Some(last) = dead_letter_mailboxes.last() {
            // The owner of the mailbox holds a strong reference to it, and so a reference to the host. This list holds
            // weak references.
            if let Some(dead_letter_mailbox) =
                last.upgrade().filter(|dead_letter_mailbox| !dead_letter_mailbox.head.has_ended())
            {
                return Some(dead_letter_mailbox);
            }
            dead_letter_mailboxes.pop();
        }
        None
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use crate::Runtime;

    #[test]
    fn dropped_mailboxes_of_dead_letters_are_removed() {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let first = rt.dead_letters();
        for _ in 0..1_000 {
            drop(rt.dead_letters());
        }
        let kept = rt.shared().dead_letter_mailboxes.lock().len();
        assert!(kept < 10, "{kept} are kept");
        drop(first);
    }
}

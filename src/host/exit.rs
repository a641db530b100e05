//! The exit of a process: all of its steps. [`Control::run_exit`] runs these steps in order. The module also delivers
//! dead letters: the unread messages of mailboxes that were closed.
//!
//! The exit of a process runs on the thread that has the right to run the process. The exit of a mailbox outside any
//! process runs on the thread that closes the mailbox. Steps that need the state of the process belong to the
//! [`ExitOwner`], which `task.rs` implements. The list gives the reason for the position of each step, and the race
//! that another position would allow.
//!
//! 1. **Call the user's `close`.** A panic of `close` replaces the exit. So this step precedes each step that passes
//!    the exit on: otherwise two processes could receive different exits of one process.
//! 2. **Close the mailbox.** Senders and this step use the lock of the mailbox. So either a message is refused, or step
//!    5 finds it. Steps 3, 6 and 8 rely on the closed mailbox: code that adds a name, a group or the first timer first
//!    announces the addition, and then checks the mailbox. If the mailbox is still open at this check, the later step
//!    finds the addition. If these steps came before this step, a name, a membership or a timer could stay after the
//!    exit.
//! 3. **Release the names.** This step comes before step 4, because destructors may run for a long time. During that
//!    time a look-up by name would find a process that takes no message, and the successor of the process could not get
//!    the name.
//! 4. **Drop the state.** Messages that the process took out of the mailbox and did not read become dead letters here:
//!    they are older than the messages of step 5. A panic of a destructor replaces the exit. So if the state drops
//!    replies, they are kept for step 7.
//! 5. **Deliver the unread messages** of the closed mailbox: either to the kept mailbox of a supervised child, or as
//!    dead letters. This step comes before step 10: when the supervisor receives the exit, it finds the messages for
//!    the successor.
//! 6. **Count the exit, remove the pid, leave the groups.** If a thread no longer finds the pid, or receives the leave
//!    notice, it cannot encounter a resource or a later message of the process. The count comes before the removal: a
//!    thread that no longer finds the pid finds the exit counted. This includes a shutdown that waits for the last
//!    exit.
//! 7. **Notify the callers** whose replies the state has dropped. The exit is final since step 4. When a caller
//!    receives the exit, it does not find the pid any more, because of step 6.
//! 8. **Close the yields and the timers.** In step 4 the futures of the state have cancelled their own yields and
//!    timers. This step cancels the rest. It comes before step 10: after the exit is published, no further timer of the
//!    process fires, and its handlers see that no process wants their answers.
//! 9. **Enter the state `Complete`, and give back the place in the limit of the host.** This step comes before step 10:
//!    if a process receives the exit and spawns a successor, the limit does not refuse the successor.
//! 10. **Publish the exit**: to the observer, to futures that wait for it, to links, to monitors. This step comes after all steps that
//!     free a resource, because the receiver of an exit may start a successor. Code that adds a link sets `TIED` and
//!     then reads `ENDED`. This step sets `ENDED` and then reads `TIED`. Both flags are in one word. So either the exit
//!     reaches the link, or the code sees the exit.
//! 11. **Notify a shutdown** that waits for the exit of the last top-level supervisor, or of the last process. If this
//!     step came before the count in step 6, the shutdown that it wakes could find the process alive and wait for ever.
//!     This step comes after step 10: the shutdown cancels further processes after the supervisors, and these processes
//!     receive the exits of the supervisors before they are cancelled.
//! 12. **Notify the monitor that the parent set at the spawn.** The owner carries this monitor. This step records that
//!     the exit was received; for this record it needs the exit that step 10 has stored.
//! 13. **Wake the tasks that wait on the mailbox**: a receiver that was split off, and senders that wait for room. If
//!     these tasks were woken before step 10, they would find neither a message nor the exit, and wait again for ever.
//! 14. **Hand the outcome to the join handle** (`Cell::finish` in `task/cell.rs`). This step comes last: a task that
//!     awaits the join handle sees the effects of all other steps. A failure counts as unobserved if no link, no
//!     monitor and no join handle has received it. Only at this point all of them have had the chance to receive it.

use std::any::TypeId;
use std::borrow::Cow;
use std::collections::VecDeque;

use crate::host::control::{AnyControl, Control, Head, flag};
use crate::host::{Envelope, Host, Phase};
use crate::observe::crash::LastState;
use crate::observe::{Counter, ProcessState};
use crate::platform::sync::atomic::{Ordering, fence};
use crate::platform::sync::planted;
use crate::process::catch as panic;
use crate::process::catch::catch;
use crate::process::exit::Exit;
use crate::process::payload::Payload;
use crate::process::state::Ref;
use crate::process::state::current::Current;

/// The part of an exit that depends on the state of the process. The documentation of each method names its step; the
/// steps are listed at the head of this file.
pub(crate) trait ExitOwner {
    /// Step 1: calls the user's `close`. A panic replaces `exit`.
    fn close(&mut self, exit: &mut Exit);
    /// Step 4: drops the state, and keeps the replies that the state drops. A panic replaces `exit`.
    fn drop_state(&mut self, exit: &mut Exit);
    /// Step 6: takes the reference of the pid table.
    fn take_entry(&mut self, entry: Option<Ref<dyn AnyControl>>);
    /// Step 7: notifies the callers of the replies that were kept.
    fn notify_callers(&mut self, exit: &Exit);
    /// Step 10: returns what a crash report says about the process. `name` is the oldest of the names that it had.
    /// `None` if there is no process.
    fn last_state(&self, name: Option<Cow<'static, str>>) -> Option<LastState>;
    /// Step 12: notifies the monitor that the parent set at the spawn.
    fn notify_monitor(&mut self, exit: &Exit);
    /// Step 13: whether a task may wait on the mailbox. Returns false only if no other reference to the process exists.
    fn may_be_awaited(&self) -> bool;
}

/// Owner of a mailbox outside any process. It has no state, no pending replies and no parent.
struct NoProcess;

impl ExitOwner for NoProcess {
    fn close(&mut self, _: &mut Exit) {}

    fn drop_state(&mut self, _: &mut Exit) {}

    fn take_entry(&mut self, entry: Option<Ref<dyn AnyControl>>) {
        drop(entry);
    }

    fn notify_callers(&mut self, _: &Exit) {}

    fn last_state(&self, _: Option<Cow<'static, str>>) -> Option<LastState> {
        None
    }

    fn notify_monitor(&mut self, _: &Exit) {}

    fn may_be_awaited(&self) -> bool {
        true
    }
}

impl<M: Send + 'static> Control<M> {
    /// Runs the exit of a process up to step 13. Returns the final exit: a panic of user code replaces `exit`. The step
    /// numbers are the numbers in the list at the head of this file.
    #[inline]
    pub(crate) fn run_exit(&self, owner: &mut impl ExitOwner, mut exit: Exit) -> Exit {
        let (head, host) = (&self.head, self.head.host());
        // 1. Call the user's `close`.
        owner.close(&mut exit);
        // 2. Close the mailbox.
        let remains = self.inbox.close();
        let trusts = planted!("end_trusts_a_bare_mailbox") && remains.is_none();
        // 3. Release the names.
        let name = host.release_names(head);
        // 4. Drop the state.
        owner.drop_state(&mut exit);
        // 5. Deliver the unread messages.
        if let Some(remains) = remains {
            host.dead_letters_of(head, remains.settle().into_iter());
        }
        // 6. Count the exit, remove the pid, leave the groups.
        owner.take_entry(host.remove_exited(head));
        // 7. Notify the callers.
        owner.notify_callers(&exit);
        // 8. Close the yields and the timers.
        if let Some(yields) = head.yields_if_any() {
            yields.close();
        }
        if let Some(pending) = head.pending_if_any() {
            pending.close(&host.shared().timers);
        }
        // 9. Enter `Complete`, give back the place in the limit. A mailbox outside any process has neither this state
        //    nor a place in the limit.
        if !head.has(flag::OUTSIDE) {
            head.enter(head.flags(), ProcessState::Complete);
            host.namespace().leave();
        }
        // 10. Publish the exit, first to the observer.
        let last = owner.last_state(name);
        if let (Some(last), Some(observer)) = (&last, &host.shared().observer) {
            let _ = catch(|| observer.ended(head.pid(), last.name.as_deref(), last.type_name, &exit));
        }
        head.set_exit(&exit, last);
        // 11. Notify a shutdown.
        host.notify_shutdown(head);
        // 12. Notify the monitor that the parent set at the spawn.
        owner.notify_monitor(&exit);
        // 13. Wake the tasks that wait on the mailbox.
        if owner.may_be_awaited() && !trusts {
            let (reader, senders) = self.inbox.disperse();
            reader.into_iter().chain(senders).for_each(panic::wake);
        }
        exit
    }

    /// Ends a mailbox outside any process. If its exit is already published, this does nothing.
    pub(super) fn end_outside(&self, exit: &Exit) {
        if !self.head.has_ended() {
            let _ = self.run_exit(&mut NoProcess, exit.clone());
        }
    }

    /// Turns messages that were taken out of the mailbox and not read into dead letters.
    pub(crate) fn drop_unread(&self, unread: VecDeque<M>) {
        if !unread.is_empty() {
            self.head.host().dead_letters_of(&self.head, unread.into_iter());
        }
    }
}

impl Host {
    /// Step 3. A registration sets `KNOWN` before it checks whether the mailbox is closed. Therefore either this
    /// function sees the flag, or the registration sees the closed mailbox: see `registry::names`.
    #[inline]
    fn release_names(&self, head: &Head) -> Option<Cow<'static, str>> {
        if head.has(flag::KNOWN) { self.namespace().names().release(head.names()) } else { None }
    }

    /// Step 6. Returns the reference of the pid table.
    #[inline]
    fn remove_exited(&self, head: &Head) -> Option<Ref<dyn AnyControl>> {
        // A mailbox outside any process was not counted as spawned.
        if !head.has(flag::OUTSIDE) {
            self.shared().metrics.add_exited();
        }
        let entry = self.remove_pid(head.pid());
        if head.has(flag::KNOWN) {
            self.leave_groups(head);
        }
        entry
    }

    #[cold]
    fn leave_groups(&self, head: &Head) {
        self.namespace().groups().release(head.pid(), head.groups());
    }

    /// Step 11.
    #[inline]
    fn notify_shutdown(&self, head: &Head) {
        if head.has(flag::ROOT) {
            self.unregister_root();
        }
        if self.phase() != Phase::Open {
            // Two processes may exit at the same time. Each thread counts its exit before this fence. Therefore the
            // thread whose fence is later in the order of the fences sees both counts, and notifies. Without the fence
            // each thread could miss the count of the other thread.
            fence(Ordering::SeqCst);
            if self.all_ended() {
                self.shared().emptied.notify(usize::MAX);
            }
        }
    }

    /// Ends a receiver that is attached under a pid: steps 6 and 10. The receiver has no mailbox, no names and no
    /// state, and no shutdown waits for it.
    pub(super) fn end_attached(&self, head: &Head, exit: &Exit) {
        drop(self.remove_exited(head));
        head.set_exit(exit, None);
    }

    /// Reports the failure of a process if no link, monitor or join handle has received it. A failure is reported only
    /// once. The caller knows that no join handle will return the failure.
    #[cold]
    pub(crate) fn report_unobserved(&self, head: &Head) {
        let Some(report) = head.take_unreceived() else { return };
        self.shared().metrics.add(Counter::Unobserved, 1);
        let _ = catch(|| (self.shared().on_crash)(&report));
    }

    /// Sends messages to the newest mailbox of dead letters. These messages were accepted and will never be read.
    pub(crate) fn dead_letters_of<M: Send + 'static>(&self, head: &Head, mail: impl ExactSizeIterator<Item = M>) {
        if mail.len() == 0 {
            return;
        }
        let to = head.pid();
        self.shared().metrics.add(Counter::DeadLetters, mail.len() as u64);
        Current::with(|current| current.count_unread(head.address(), mail.len()));
        let is_dead_letter = TypeId::of::<M>() == TypeId::of::<Envelope>();
        for message in mail {
            let dead_letter_mailbox = if is_dead_letter { None } else { self.dead_letter_mailbox() };
            // User code runs here: if no mailbox of dead letters accepts the message, the destructor of the message
            // runs.
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

    /// Adds a mailbox of dead letters. It becomes the newest one, and receives the dead letters from now on.
    pub(crate) fn add_dead_letter_mailbox(&self, dead_letter_mailbox: &Ref<Control<Envelope>>) {
        let mut dead_letter_mailboxes = self.shared().dead_letter_mailboxes.lock();
        // The look-up removes closed mailboxes only when there is a dead letter. Therefore this function removes closed
        // mailboxes too, whenever the list would grow. The amortized cost of an addition is constant.
        if dead_letter_mailboxes.len() == dead_letter_mailboxes.capacity() {
            dead_letter_mailboxes.retain(|one| one.upgrade().is_some_and(|one| !one.head.has_ended()));
        }
        dead_letter_mailboxes.push(Ref::downgrade(dead_letter_mailbox));
    }

    fn dead_letter_mailbox(&self) -> Option<Ref<Control<Envelope>>> {
        let mut dead_letter_mailboxes = self.shared().dead_letter_mailboxes.lock();
        while let Some(last) = dead_letter_mailboxes.last() {
            // The owner of the mailbox holds a strong reference to the mailbox, and the mailbox refers to the host. The
            // list of the host holds only weak references, so there is no cycle.
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

/// Drops a message of a mailbox that has no receiver any more. A message may own another mailbox with messages, so
/// nested drops are deferred; recursion would overflow the stack. If a destructor panics, the panic is caught.
fn drop_message<M: Send + 'static>(message: M) {
    if std::mem::needs_drop::<M>() {
        Current::with(|current| current.deferred.call(|| drop(message)));
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

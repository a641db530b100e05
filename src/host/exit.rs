//! Exit of a process. [`Control::run_exit`] runs the steps of an exit in order. The module also delivers dead letters,
//! namely the unread messages of closed mailboxes.
//!
//! The exit of a process runs on the thread that has the right to run the process. The exit of a mailbox outside any
//! process runs on the thread that closes the mailbox. Steps that need the state of the process belong to the
//! [`ExitOwner`], which `task.rs` implements. The following list gives the reason for the position of each step, and
//! the race that another position would allow.
//!
//! 1. **Call the user's `close`.** A panic of `close` replaces the exit. Therefore step 1 comes before each step that
//!    passes the exit to another process. Otherwise two processes could receive different exits of the same process.
//! 2. **Close the mailbox.** Senders and step 2 use the lock of the mailbox. Therefore each message is either refused
//!    or found by step 5. Steps 3, 6 and 8 must come after step 2. Code that adds a name, a group or the first timer
//!    first announces the addition, and then checks the mailbox. If this check finds the mailbox open, step 3, 6 or 8
//!    finds the addition. If steps 3, 6 and 8 came before step 2, a name, a membership or a timer could stay after the
//!    exit.
//! 3. **Release the names.** Step 3 comes before step 4, because destructors may run for a long time. While destructors
//!    run, a look-up by name would find a process that accepts no message, and the successor of the process could not
//!    get the name.
//! 4. **Drop the state.** Messages that the process took out of the mailbox and did not read become dead letters in
//!    step 4, because these messages are older than the messages of step 5. A panic of a destructor replaces the exit.
//!    Therefore replies that the state drops are stored for step 7.
//! 5. **Deliver the unread messages** of the closed mailbox. If a supervisor keeps the mailbox for the successor, the
//!    messages go to this mailbox. Otherwise the messages become dead letters. Step 5 comes before step 10. Therefore,
//!    when the supervisor receives the exit, the supervisor finds the messages for the successor.
//! 6. **Count the exit, remove the pid, leave the groups.** After a thread has failed to find the pid, or has received
//!    the leave notice, this thread finds no resource and no later message of the process. Step 6 counts the exit
//!    before it removes the pid. Therefore a thread that no longer finds the pid sees a count that includes the exit.
//!    For example, a shutdown uses this count to wait for the last exit.
//! 7. **Notify the callers** whose replies the state has dropped. The exit is final after step 4. Because step 6 comes
//!    before step 7, a caller that receives the exit does not find the pid any more.
//! 8. **Close the yields and the timers.** In step 4 the futures of the state have cancelled their own yields and
//!    timers. Step 8 cancels all other yields and timers. Step 8 comes before step 10. Therefore no timer of the
//!    process fires after the exit is published, and the handlers see that no process wants their answers.
//! 9. **Enter the state `Complete`, and subtract the process from the process count of the host.** Step 9 comes before
//!    step 10. Therefore, if a process receives the exit and spawns a successor, the limit of the host does not refuse
//!    the successor.
//! 10. **Publish the exit**: to the observer, to futures that wait for it, to links, to monitors. Step 10 comes after
//!     all steps that free a resource, because the receiver of an exit may start a successor. Code that adds a link
//!     sets `TIED` and then reads `ENDED`. Step 10 sets `ENDED` and then reads `TIED`. Both flags are in one word.
//!     Therefore either step 10 finds the link, or the code that adds the link sees the exit.
//! 11. **Notify a shutdown** that waits for the exit of the last top-level supervisor, or of the last process. If step
//!     11 came before step 6, the woken shutdown could still count the process as alive and wait forever. Step 11 also
//!     comes after step 10. A shutdown cancels the supervisors before the other processes, and the other processes must
//!     receive the exits of the supervisors before their own cancellation.
//! 12. **Notify the monitor that the parent set at the spawn.** The [`ExitOwner`] stores this monitor. Step 12 comes
//!     after step 10, because step 12 marks the stored exit as received.
//! 13. **Wake the tasks that wait on the mailbox**: a receiver that was split off, and senders that wait for free
//!     space. If these tasks were woken before step 10, they would find neither a message nor the exit, and wait again
//!     forever.
//! 14. **Hand the outcome to the join handle** (`Cell::finish` in `task/cell.rs`). Step 14 comes last, so that a task
//!     that awaits the join handle sees the effects of all other steps. The failure of a process counts as unobserved
//!     if no link, no monitor and no join handle has received the exit. Step 14 decides last whether the failure is
//!     unobserved, because all links, all monitors and the join handle must have had the chance to receive the exit.

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

/// The part of an exit that depends on the state of the process. The documentation of each method names a step of the
/// list at the head of this file.
pub(crate) trait ExitOwner {
    /// Step 1: calls the user's `close`. A panic replaces `exit`.
    fn close(&mut self, exit: &mut Exit);
    /// Step 4: drops the state of the process. Replies that the state drops are stored for step 7. A panic replaces
    /// `exit`.
    fn drop_state(&mut self, exit: &mut Exit);
    /// Step 6: receives the reference that the pid table owned until the pid was removed.
    fn take_entry(&mut self, entry: Option<Ref<dyn AnyControl>>);
    /// Step 7: notifies the callers whose replies step 4 has stored.
    fn notify_callers(&mut self, exit: &Exit);
    /// Step 10: returns the details for the crash report. `name` is the oldest name of the process. Returns `None` if
    /// there is no process.
    fn last_state(&self, name: Option<Cow<'static, str>>) -> Option<LastState>;
    /// Step 12: passes the exit to the monitor that the parent set when it spawned the process.
    fn notify_monitor(&mut self, exit: &Exit);
    /// Step 13: whether a task may wait on the mailbox. Returns false only if no other reference to the process exists.
    fn may_be_awaited(&self) -> bool;
}

/// Owner of a mailbox outside any process. This owner has no state, no pending replies and no parent.
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
    /// Runs the exit of a process up to step 13. Returns the final exit. A panic of user code replaces `exit`. The step
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
        // 9. Enter `Complete`, and subtract the process from the process count. A mailbox outside any process never
        //    enters this state and is not counted.
        if !head.is_outside() {
            head.enter(head.flags(), ProcessState::Complete);
            host.namespace().leave();
        }
        // 10. Publish the exit, first to the observer.
        let last = owner.last_state(name);
        if let (Some(last), Some(observer)) = (&last, &host.shared().observer) {
            let _ = catch(|| observer.ended(head.pid(), last.name.as_deref(), last.type_name, &exit));
        }
        if let Some(last) = &last
            && head.has(flag::OBSERVED)
        {
            host.trace_end(head, last);
        }
        head.publish_exit(&exit, last);
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

    /// Closes a mailbox outside any process, unless the exit of the mailbox is already published.
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
        if !head.is_outside() {
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
            // Two processes may exit at the same time. The thread of each exit counts the exit before this fence.
            // Therefore the thread whose fence is later in the order of the fences sees both counts, and notifies.
            // Without the fence each thread could miss the count of the other thread.
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
        head.publish_exit(exit, None);
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
            // If no mailbox of dead letters accepts the message, the destructor of the message runs. This destructor is
            // user code.
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

    /// Adds a mailbox of dead letters. The added mailbox is the newest mailbox, and receives all later dead letters.
    pub(crate) fn add_dead_letter_mailbox(&self, dead_letter_mailbox: &Ref<Control<Envelope>>) {
        let mut dead_letter_mailboxes = self.shared().dead_letter_mailboxes.lock();
        // The look-up removes closed mailboxes only when there is a dead letter. Therefore this function also removes
        // closed mailboxes, whenever the list would grow. The amortized cost of an addition is constant.
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

/// Drops a message of a mailbox that has no receiver any more. A message may own another mailbox with messages. Nested
/// drops are deferred, because recursion could overflow the stack. If a destructor panics, the panic is caught.
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

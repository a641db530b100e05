//! Exit of a process. `AnyControl::run_exit` runs the steps of an exit in order. This module also delivers dead
//! letters. A dead letter is a message that a mailbox accepted and that no receiver will read.
//!
//! The exit of a process runs on the thread that has the right to run the process. A mailbox can also exist without a
//! process. The thread that closes a mailbox without a process also runs the exit of the mailbox. An [`ExitOwner`]
//! performs the steps that need the state of the process. `task.rs` implements this trait for processes. The following
//! list explains the order of the steps. The list also names the races that another order would allow.
//!
//! 1. **Call the user's `close`.** If `close` panics, the panic replaces the exit. Therefore step 1 comes before each
//!    step that passes the exit to another process. If step 1 came later, two processes could receive different exits
//!    of the same process.
//! 2. **Close the mailbox.** Step 2 and each sender change the mailbox under the lock of the mailbox. Therefore, for
//!    each message, either the mailbox refuses the message, or step 5 finds the message. Steps 3, 6 and 8 must come
//!    after step 2. Another thread may add a name, a group or the first timer during the exit. The other thread first
//!    announces the addition, and then checks whether the mailbox is open. If the mailbox is still open, step 3, 6 or 8
//!    finds the announced addition. If steps 3, 6 and 8 came before step 2, a name, a membership or a timer could
//!    remain after the exit. After step 2, the failure of a linked process no longer changes the exit. Therefore, after
//!    step 2, the process does not count as a receiver of the failure of a linked process.
//! 3. **Release the names.** Step 3 comes before step 4, because destructors in step 4 may run for a long time. During
//!    this time, a look-up by name must not find the process, because the process accepts no message any more. The
//!    successor of the process must be able to get the name during this time.
//! 4. **Drop the state.** The state may own messages that the process took out of the mailbox and did not read. Step 4
//!    makes dead letters of these messages. If the mailbox has a router for its unread messages, step 4 returns these
//!    messages to the closed mailbox instead. Step 4 comes before step 5, because the messages of step 4 are older than
//!    the messages of step 5. If a destructor panics, the panic replaces the exit. Therefore step 4 only stores the
//!    replies that the state drops, and step 7 notifies the callers.
//! 5. **Deliver the unread messages** of the closed mailbox. If a supervisor keeps a mailbox for the successor of the
//!    process, or the process is a member of a pool, a router takes the messages. Otherwise the messages become dead
//!    letters. Step 5 comes before step 10. Therefore a supervisor that receives the exit already finds the messages
//!    for the successor.
//! 6. **Count the exit, leave the groups, remove the pid.** After step 6, other threads can see that the process is
//!    gone. A look-up of the pid fails, and each group monitor gets the notice that the process left the group. Before
//!    the look-up fails and before the notice is sent, the process has already sent its last message. After the removal
//!    of the pid, an attempt to monitor or link the pid immediately reports that the process does not exist. Therefore
//!    step 6 removes the pid only after the count and after the process has left the groups. At the time of the
//!    removal, the following statements are true:
//!    - The exit is already counted. For example, a shutdown uses this count to wait for the last exit.
//!    - The process count of the host no longer includes the process. Therefore the process limit of the host does not
//!      refuse a successor.
//!    - The process is in no group. The notices to the group monitors precede all other events about the exit.
//! 7. **Notify the callers** whose `Reply` values were dropped without an answer. An unanswered `Reply` was dropped
//!    with the state of the process, with an unread message, in the last step, or because of a panic in `close`. Step 7
//!    comes after step 4, because no panic replaces the exit after step 4. Step 7 also comes after step 6, so a caller
//!    that receives the exit does not find the pid any more.
//! 8. **Close the yields and the timers.** The futures that step 4 drops cancel their own yields and timers. Step 8
//!    cancels all other yields and timers. Step 8 comes before step 10. Therefore no timer of the process fires after
//!    step 10 has published the exit. Before step 10, the command handlers can also see that their answers are no
//!    longer needed. A timer may own a message that contains a `Reply`. Step 8 drops the timer, and notifies the caller
//!    that waits for the reply.
//! 9. **Enter the state `Complete`.** Step 9 comes before step 10. Therefore a process that receives the exit finds the
//!    exited process in the state `Complete`.
//! 10. **Publish the exit** to the list of the last exits, to the observer, to the futures that wait for the exit, to
//!     links and to monitors (`Head::publish_exit`, which calls `Links::dissolve`). Step 10 comes after all steps that
//!     free a resource, because the receiver of an exit may start a successor. Another thread may add a link during the
//!     exit. Code that adds a link sets `TIED` and then reads `ENDED`. Step 10 sets `ENDED` and then reads `TIED`. Both
//!     flags are bits of one atomic word. Therefore either step 10 finds the link, or the code that adds the link sees
//!     the exit.
//! 11. **Notify a shutdown** that waits for the exit of the last top-level supervisor, or of the last process. If step
//!     11 came before step 6, the woken shutdown could still count the process as alive, and would wait forever. Step
//!     11 also comes after step 10. A shutdown first waits until the last top-level supervisor has exited, and then
//!     cancels the other processes. Before this cancellation, the other processes must have received the exit of the
//!     supervisor.
//! 12. **Notify the monitor that the parent set at the spawn.** The function `spawn_monitor` has set this monitor, and
//!     the [`ExitOwner`] stores the monitor. Step 10 stores the exit, and step 12 marks the stored exit as received.
//!     Therefore step 12 comes after step 10.
//! 13. **Wake the tasks that wait on the mailbox.** A task that waits on the mailbox is a receiver that was split off
//!     from its process, or a sender that waits for free space. If step 13 came before step 10, a woken task could find
//!     neither a message nor the exit. The woken task would then wait again, forever.
//! 14. **Hand the outcome to the join handle** (`CellBase::finish` in `task/cell.rs`). Step 14 comes last. Therefore a
//!     task that awaits the join handle sees the effects of all other steps. Step 14 also decides whether the failure
//!     of the process is unobserved. A failure is unobserved if no link, no monitor and no join handle has received the
//!     exit. This decision must come last, after all links, all monitors and the join handle had the chance to receive
//!     the exit.

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
use crate::process::catch::{catch, drop_caught, notify};
use crate::process::exit::Exit;
use crate::process::mailbox::read_ahead::ReadAhead;
use crate::process::payload::Payload;
use crate::process::state::Ref;
use crate::process::state::current::{Current, InTurn};

/// Performs the parts of an exit that depend on the state of the process. Each method belongs to one step of the list
/// at the top of this file. The documentation of each method gives the number of the step to which the method belongs.
pub(crate) trait ExitOwner {
    /// Step 2: returns the proof that this thread has the right to run the process. Returns `None` if the mailbox
    /// belongs to no process.
    fn in_turn(&self) -> Option<InTurn>;
    /// Step 1: calls the user's `close`. If `close` panics, the panic replaces `exit`.
    fn close(&mut self, exit: &mut Exit);
    /// Step 4: drops the state of the process, and stores the replies that the state drops. Step 7 needs these
    /// replies. If a destructor panics, the panic replaces `exit`. Afterwards, this method dispatches the commands
    /// that the process has yielded in steps 1 and 4. Step 8 would drop these commands.
    fn drop_state(&mut self, exit: &mut Exit);
    /// Step 6: takes over the reference that the pid table owned before the removal of the pid.
    fn take_entry(&mut self, entry: Option<Ref<dyn AnyControl>>);
    /// Step 7: notifies the callers whose replies this thread has stored in the last turn and in steps 4 and 5.
    fn notify_callers(&mut self, exit: &Exit);
    /// Step 8: calls `close`, which drops the timers. If a timer owned a reply, this method then notifies the caller
    /// that waits for this reply.
    fn close_timers(&mut self, exit: &Exit, close: &dyn Fn());
    /// Step 10: returns data about the process, for the observer and the crash report. `name` is the oldest name of the
    /// process. Returns `None` if the mailbox belongs to no process.
    fn last_state(&self, name: Option<Cow<'static, str>>) -> Option<LastState>;
    /// Step 12: passes the exit to the monitor that the parent set at the spawn of the process.
    fn notify_monitor(&mut self, exit: &Exit);
    /// Step 13: returns whether a task may be waiting on the mailbox. The result is false only if no other reference to
    /// the process exists.
    fn may_be_awaited(&self) -> bool;
}

/// The [`ExitOwner`] of a mailbox that belongs to no process. A mailbox that belongs to no process has no state, no
/// pending replies and no parent.
struct NoProcess;

impl ExitOwner for NoProcess {
    fn in_turn(&self) -> Option<InTurn> {
        None
    }

    fn close(&mut self, _: &mut Exit) {}

    fn drop_state(&mut self, _: &mut Exit) {}

    fn take_entry(&mut self, entry: Option<Ref<dyn AnyControl>>) {
        drop(entry);
    }

    fn notify_callers(&mut self, _: &Exit) {}

    fn close_timers(&mut self, _: &Exit, close: &dyn Fn()) {
        close();
    }

    fn last_state(&self, _: Option<Cow<'static, str>>) -> Option<LastState> {
        None
    }

    fn notify_monitor(&mut self, _: &Exit) {}

    fn may_be_awaited(&self) -> bool {
        true
    }
}

impl dyn AnyControl {
    /// Runs steps 1 to 13 of an exit, and returns the final exit. If user code panics, the panic replaces `exit`. The
    /// list at the top of this file explains each step. In a build with debug assertions, the compiler compiles this
    /// function once for all processes. In other builds, the type of `owner` contains the type of the machine. `head` is the head of this control block. The caller passes `head`, because a call of `AnyControl::head` is an
    /// indirect call.
    #[inline]
    pub(crate) fn run_exit(&self, head: &Head, owner: &mut impl ExitOwner, mut exit: Exit) -> Exit {
        let host = head.host();
        // 1. Call the user's `close`.
        owner.close(&mut exit);
        // 2. Close the mailbox.
        let unread = self.close_mailbox(owner.in_turn());
        let trusts = planted!("end_skips_links_of_empty_mailbox") && unread.is_none();
        // 3. Release the names.
        let name = host.release_names(head);
        // 4. Drop the state.
        owner.drop_state(&mut exit);
        // 5. Deliver the unread messages.
        if let Some(deliver) = unread {
            deliver();
        }
        // 6. Count the exit, leave the groups, remove the pid.
        owner.take_entry(host.remove_exited(head));
        // 7. Notify the callers.
        owner.notify_callers(&exit);
        // 8. Close the yields and the timers.
        if let Some(yields) = head.yields_if_any() {
            yields.close();
        }
        if let Some(pending) = head.pending_if_any() {
            owner.close_timers(&exit, &|| pending.close(&host.shared().timers));
        }
        // 9. Enter `Complete`. A mailbox that belongs to no process never enters `Complete`.
        if !head.is_outside() {
            head.enter(head.flags(), ProcessState::Complete);
        }
        // 10. Publish the exit, first to the observer. The data about the process is collected only for an abnormal
        //     exit and for an observed process.
        if !exit.is_normal() {
            host.store_abnormal_exit(head, &exit, owner.last_state(name));
        } else if head.has(flag::OBSERVED)
            && let Some(last) = owner.last_state(name)
        {
            host.observe_exit(head, &exit, &last);
        }
        head.publish_exit();
        // 11. Notify a shutdown.
        host.notify_shutdown(head);
        // 12. Notify the monitor that the parent set at the spawn.
        owner.notify_monitor(&exit);
        // 13. Wake the tasks that wait on the mailbox.
        if owner.may_be_awaited() && !trusts {
            let (reader, senders) = self.take_mailbox_wakers();
            panic::wake_each(reader.into_iter().chain(senders));
        }
        exit
    }
}

impl<M: Send + 'static> Control<M> {
    /// Closes a mailbox that belongs to no process. Does nothing if the exit of the mailbox has begun. The thread that
    /// sets `KILLED` runs the exit. Therefore only one thread runs the exit, even if a kill and the drop of the mailbox
    /// happen at the same time.
    pub(crate) fn end_outside(&self, exit: &Exit) {
        if self.head.set(flag::KILLED) {
            self.run_outside_exit(exit);
        }
    }

    /// Runs the exit of a mailbox that belongs to no process. The caller must be the first thread that has set
    /// `KILLED`.
    pub(super) fn run_outside_exit(&self, exit: &Exit) {
        let control: &dyn AnyControl = self;
        let _ = control.run_exit(&self.head, &mut NoProcess, exit.clone());
    }

    /// The destructor of the receiving half of the mailbox calls this function. This function puts the messages in
    /// `front` back into the mailbox. If the mailbox belongs to no process, this function then closes the mailbox.
    #[inline(never)]
    pub(crate) fn leave(&self, front: &mut ReadAhead<M>) {
        self.put_back(front);
        if self.head.is_outside() {
            self.end_outside(&Exit::Normal);
        }
    }

    /// Makes dead letters of messages that the receiver took out of the mailbox and did not read. If the mailbox
    /// has a router for its unread messages, step 5 of the exit passes the messages to the router instead.
    pub(crate) fn drop_unread(&self, unread: VecDeque<M>) {
        if unread.is_empty() {
            return;
        }
        if let Err(unread) = self.inbox.return_unread(unread) {
            self.head.host().dead_letters_of(&self.head, unread.into_iter());
        }
    }
}

impl Host {
    /// Step 3: releases the names of the process. To register a name, a thread first sets `KNOWN`, and then checks
    /// whether the mailbox is closed. Step 2 closes the mailbox before this function reads `KNOWN`. Therefore either
    /// this function sees `KNOWN`, or the registering thread sees the closed mailbox. See `registry::names`.
    #[inline]
    fn release_names(&self, head: &Head) -> Option<Cow<'static, str>> {
        if head.has(flag::KNOWN) { self.namespace().names().release(head.names()) } else { None }
    }

    /// Step 6: counts the exit, leaves the groups and removes the pid. The pid table owned a reference to the control
    /// block. Returns this reference.
    #[inline]
    fn remove_exited(&self, head: &Head) -> Option<Ref<dyn AnyControl>> {
        // A mailbox that belongs to no process was not counted as a spawned process.
        if !head.is_outside() {
            self.shared().metrics.add_exited();
            self.namespace().leave();
        }
        if head.has(flag::KNOWN) {
            self.leave_groups(head);
        }
        let entry = self.remove_pid(head.pid());
        // `suspend` adds a pid to the set of suspended processes, and then looks the pid up. This function has already
        // removed the pid from the pid table. Therefore either this call or `suspend` removes the pid from the set.
        self.shared().suspended.remove(|| head.pid());
        entry
    }

    #[cold]
    fn leave_groups(&self, head: &Head) {
        self.namespace().groups().release(head.pid(), head.groups());
    }

    /// Step 11: notifies a shutdown that waits for this exit.
    #[inline]
    fn notify_shutdown(&self, head: &Head) {
        if head.has(flag::TOP_LEVEL) {
            self.unregister_top_level_supervisor();
        }
        if self.phase() != Phase::Open {
            // Two processes may exit at the same time. The thread of each exit counts the exit before this fence. All
            // sequentially consistent fences have one total order. Therefore the thread with the later fence sees both
            // counted exits, and notifies the shutdown. Without the fences, each thread could miss the exit that the
            // other thread counts.
            fence(Ordering::SeqCst);
            if self.all_ended() {
                notify(&self.shared().emptied);
            }
        }
    }

    /// First part of step 10 for an abnormal exit: records the exit, reports the exit to the observer, and stores the
    /// exit in the head.
    #[cold]
    fn store_abnormal_exit(&self, head: &Head, exit: &Exit, last: Option<LastState>) {
        let state = last.map(|last| head.abnormal_state(last, exit.is_failure()));
        if let Some(state) = &state {
            if exit.is_failure() {
                head.count(Counter::Failures);
            }
            self.record_exit(head, exit, state);
            if let Some(observer) = &self.shared().observer
                && exit.is_failure()
            {
                let report = head.crash_report(state, exit);
                let _ = catch(|| observer.crashed(&report));
                // The destructor of the error in the exit is user code.
                let _ = drop_caught(report);
            }
            if head.has(flag::OBSERVED) {
                self.observe_exit(head, exit, &state.last);
            }
        }
        head.store_exit(exit, state.filter(|_| exit.is_failure()));
    }

    /// Reports the exit of an observed process to the observer and to the traces. If the runtime has an observer, each
    /// process is observed.
    #[cold]
    fn observe_exit(&self, head: &Head, exit: &Exit, last: &LastState) {
        if let Some(observer) = &self.shared().observer {
            let _ = catch(|| observer.ended(head.pid(), last.name.as_deref(), last.type_name, exit));
        }
        self.trace_end(head, last);
    }

    /// Performs steps 6, 8 and 10 for an attached receiver. An attached receiver has a pid, but no mailbox, no names
    /// and no state. A cancellation may have set a timer that holds a reference to the receiver. Therefore this
    /// function closes the timers. A shutdown does not wait for an attached receiver.
    pub(super) fn end_attached(&self, head: &Head, exit: &Exit) {
        drop(self.remove_exited(head));
        if let Some(pending) = head.pending_if_any() {
            pending.close(&self.shared().timers);
        }
        head.publish_exit_of_no_process(exit);
    }

    /// Reports the failure of a process if no link, no monitor and no join handle has received the failure. The failure
    /// of a process is reported at most one time. The caller must ensure that no join handle will return the failure
    /// later.
    #[cold]
    pub(crate) fn report_unobserved(&self, head: &Head) {
        let Some(report) = head.take_unreceived() else { return };
        self.shared().metrics.add(Counter::Unobserved, 1);
        let _ = catch(|| (self.shared().on_crash)(&report));
    }

    /// Sends these `messages` to the newest mailbox of dead letters. The process of `head` has accepted these
    /// messages, and no receiver will read them.
    pub(crate) fn dead_letters_of<M: Send + 'static>(&self, head: &Head, messages: impl ExactSizeIterator<Item = M>) {
        if messages.len() == 0 {
            return;
        }
        let to = head.pid();
        Current::with(|current| current.count_unread(head.address(), messages.len()));
        // An unread message in a mailbox of dead letters was already counted when the message became a dead letter.
        let is_dead_letter = TypeId::of::<M>() == TypeId::of::<Envelope>();
        if !is_dead_letter {
            self.shared().metrics.add(Counter::DeadLetters, messages.len() as u64);
        }
        for message in messages {
            let dead_letter_mailbox = if is_dead_letter { None } else { self.dead_letter_mailbox() };
            // If no mailbox of dead letters accepts the message, `drop_message` runs the destructor of the message.
            // This destructor is user code.
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

    /// Adds a mailbox of dead letters. The newest mailbox of dead letters receives all later dead letters.
    pub(crate) fn add_dead_letter_mailbox(&self, dead_letter_mailbox: &Ref<Control<Envelope>>) {
        // An upgraded reference may become the last reference to the mailbox, and the drop of a mailbox runs user code.
        // Therefore the upgraded references must be dropped after the unlock, and `upgraded` is declared before the
        // lock.
        let mut upgraded = Vec::new();
        let mut dead_letter_mailboxes = self.shared().dead_letter_mailboxes.lock();
        // The function `dead_letter_mailbox` removes closed mailboxes only when a dead letter exists. Therefore this
        // function removes closed mailboxes too, before the list grows. The amortized cost of an addition is constant.
        if dead_letter_mailboxes.len() == dead_letter_mailboxes.capacity() {
            dead_letter_mailboxes.retain(|one| match one.upgrade() {
                Some(mailbox) => {
                    let is_open = !mailbox.head.has_ended();
                    upgraded.push(mailbox);
                    is_open
                }
                None => false,
            });
        }
        dead_letter_mailboxes.push(Ref::downgrade(dead_letter_mailbox));
    }

    fn dead_letter_mailbox(&self) -> Option<Ref<Control<Envelope>>> {
        // As in `add_dead_letter_mailbox`, the rejected references are dropped after the unlock.
        let mut rejected = Vec::new();
        let mut dead_letter_mailboxes = self.shared().dead_letter_mailboxes.lock();
        while let Some(last) = dead_letter_mailboxes.last() {
            // A mailbox refers to the host, and the owner of the mailbox holds a strong reference to the mailbox. The
            // list of the host holds only weak references to mailboxes. Therefore no reference cycle exists.
            match last.upgrade() {
                Some(open) if !open.head.has_ended() => return Some(open),
                closed => rejected.extend(closed),
            }
            dead_letter_mailboxes.pop();
        }
        None
    }
}

/// Drops a message that no receiver will read. A panic of the message's destructor is caught. A message may own another
/// mailbox, and this mailbox may contain more messages. Deeply nested drops are deferred, because a recursive drop
/// could overflow the stack.
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

//! The control block of one process: its pid, its mailbox, its yields, and what became of it.
//!
//! Everybody who knows the process shares this: its task, its addresses, the pid table, the completions of its yields.
//! The typed part is the mailbox; `AnyControl` is the view of whoever knows only the pid.

pub(crate) mod head;

use std::any::{Any, type_name};
use std::collections::VecDeque;
use std::fmt;
use std::task::Waker;

pub(crate) use crate::host::control::head::{Change, Head, Listening, SpawnSettings, flag, poll_news};
use crate::host::link::{Linkable, Links};
use crate::host::registry::PidEntry;
use crate::observe::Counter;
use crate::platform::clock::Instant;
use crate::process::catch as panic;
use crate::process::catch::drop_caught;
use crate::process::error::Refusal;
use crate::process::event::{Answer, Signal, Tag};
use crate::process::exit::{Exit, Reason};
use crate::process::mailbox::{
    Glance, Inbox, Own, ReadAhead, ReceiverTurn, RoomWaiter, Router, Taken, Trial, Unrouted, Unsent, Wakes,
};
use crate::process::payload::Payload;
use crate::process::pid::Pid;
use crate::process::state::current::Current;
use crate::process::state::current::InTurn;
use crate::process::state::{Header, HeaderFirst, Ref, RunnableProcess};
use crate::process::yields::{Answered, Late};

/// The control block. What a turn needs lies together, before the mailbox: most turns that read no mail touch one cache line
/// of this.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Control<M> {
    pub(crate) life: Header,
    pub(crate) head: Head,
    pub(crate) inbox: Inbox<M>,
}

impl<M: Send + 'static> Control<M> {
    /// Its identity while it lives.
    #[inline]
    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// Puts a message into the mailbox and wakes whoever waits for it.
    ///
    /// # Errors
    /// The message, when the process has ended or its mailbox is full.
    #[inline]
    pub(crate) fn push(&self, message: M) -> Result<(), (Refusal, M)> {
        match self.inbox.push(self, message, || self.accepted()) {
            Ok(wakes) => {
                self.tell(wakes);
                Ok(())
            }
            Err(unsent) => self.settle(unsent),
        }
    }

    /// Wakes who has news here.
    #[inline]
    fn tell(&self, wakes: Wakes) {
        wakes.wake_in(&self.head.host().shared().place);
    }

    /// Puts something in that `put` may wake the process for: not for what comes from inside its own turn.
    #[inline]
    fn put_by<E>(&self, put: impl FnOnce(bool) -> Result<Wakes, E>) -> Result<Wakes, E> {
        let is_own_turn = Current::with(|current| current.is_in_turn_of(self.address()));
        let wakes = put(!is_own_turn)?;
        if is_own_turn {
            Current::with(Current::note_answered);
        }
        Ok(wakes)
    }

    #[inline]
    fn accepted(&self) {
        self.head.count(Counter::Messages);
    }

    /// What a push owes that was not plain: if a message was dropped for it, it was taken all the same.
    #[cold]
    fn settle(&self, unsent: Unsent<M>) -> Result<(), (Refusal, M)> {
        match unsent {
            Unsent::Closed(message) => Err((self.head.host().gone(), message)),
            Unsent::Full(message) => Err((Refusal::Full, message)),
            Unsent::Dropped(message, wakes) => {
                self.tell(wakes);
                self.drop_by_policy(message);
                Ok(())
            }
            Unsent::Routed(message, router) => self.route(message, &*router, &mut None).map(|_| ()),
        }
    }

    /// Hands a message on, or keeps it where that can be done later; with a waker it waits for room, as
    /// [`push_or_wait`](Self::push_or_wait).
    fn route(
        &self,
        message: M,
        router: &dyn Router<M>,
        waker: &mut Option<Waker>,
    ) -> Result<Option<u64>, (Refusal, M)> {
        let message = match router.route(message, &|| self.accepted()) {
            Ok(()) => return Ok(None),
            Err(Unrouted::Full(message)) if waker.is_none() => return Err((Refusal::Full, message)),
            Err(Unrouted::Full(message) | Unrouted::Later(message)) => message,
        };
        match self.inbox.keep(self, message, waker, || self.accepted()) {
            Ok((None, wakes)) => {
                self.tell(wakes);
                Ok(None)
            }
            Ok((number, _)) => Ok(number),
            Err(unsent) => self.settle(unsent).map(|()| None),
        }
    }

    /// Why a message would be refused now.
    pub(crate) fn refuses(&self) -> Option<Refusal> {
        self.inbox.refuses().map(|full| if full { Refusal::Full } else { self.head.host().gone() })
    }

    pub(crate) fn drop_by_policy(&self, message: M) {
        let host = self.head.host();
        host.shared().metrics.add(Counter::DroppedByPolicy, 1);
        host.dead_letters_of(&self.head, std::iter::once(message));
    }

    /// As [`push`](Self::push), but where there is no room the message waits for it, with the waker: then a number comes
    /// back to ask by. Without a waker it is refused. A policy that drops does not apply.
    ///
    /// # Errors
    /// The message, when the process has ended or takes none.
    pub(crate) fn push_or_wait(&self, message: M, mut waker: Option<Waker>) -> Result<Option<u64>, (Refusal, M)> {
        match self.inbox.push_or_wait(self, message, &mut waker, || self.accepted()) {
            Ok((None, wakes)) => {
                self.tell(wakes);
                Ok(None)
            }
            Ok((number, _)) => Ok(number),
            Err(Unsent::Routed(message, router)) => self.route(message, &*router, &mut waker),
            Err(unsent) => self.settle(unsent).map(|()| None),
        }
    }

    /// Tells who is to know of room that was made.
    pub(crate) fn relieve(&self, relieved: RoomWaiter) {
        match relieved {
            RoomWaiter::Sender(sender) => self.admit(sender),
            RoomWaiter::Watcher(watcher) => panic::wake(watcher),
        }
    }

    /// Wakes a sender whose message was let in.
    fn admit(&self, sender: Waker) {
        self.accepted();
        panic::wake(sender);
    }

    /// The next message, if there is one.
    pub(crate) fn pop(&self, front: &mut ReadAhead<M>) -> Option<M> {
        let (message, relieved) = self.inbox.pop(front);
        if let Some(relieved) = relieved {
            self.relieve(relieved);
        }
        message
    }

    /// As [`Inbox::drain`], in its turn.
    pub(crate) fn drain(&self, seat: ReceiverTurn, taken: &mut Option<Box<Taken<M>>>) {
        let (admitted, lent) = self.inbox.drain(self, seat, taken);
        Current::with(|current| current.note_waits_for_message(lent));
        if let Some(admitted) = admitted {
            self.admit_all(*admitted);
        }
    }

    /// As [`Inbox::drain_or_pop`], in its turn.
    #[inline]
    pub(crate) fn drain_or_pop(&self, seat: ReceiverTurn, taken: &mut Option<Box<Taken<M>>>) -> Option<M> {
        if taken.as_deref().is_none_or(|taken| taken.len() == 0) {
            match self.inbox.glance() {
                Glance::Unknown => {}
                known => {
                    Current::with(|current| current.note_waits_for_message(true));
                    return if known == Glance::Empty { None } else { self.inbox.take_delivered(seat) };
                }
            }
        }
        let (message, admitted, lent) = self.inbox.drain_or_pop(self, seat, taken);
        Current::with(|current| current.note_waits_for_message(lent));
        if let Some(admitted) = admitted {
            self.admit_all(*admitted);
        }
        message
    }

    #[cold]
    fn admit_all(&self, (senders, wakes): (Vec<Waker>, Wakes)) {
        senders.into_iter().for_each(|sender| self.admit(sender));
        self.tell(wakes);
    }

    /// Before the turn of a process that was open when its mailbox was read elsewhere.
    #[cold]
    pub(crate) fn recalled(&self, ready: &RunnableProcess) {
        if let Some(reader) = self.inbox.recalled(ready.in_turn()) {
            panic::wake(reader);
        }
    }

    /// As [`Inbox::begin_trial`].
    pub(crate) fn begin_trial(&self, turn: InTurn, present: &mut ReadAhead<M>) -> Option<(ReadAhead<M>, Trial)> {
        Current::with(Current::looks_into_mailbox);
        let (next, trial, waiting) = self.inbox.begin_trial(turn, present)?;
        waiting.into_iter().for_each(panic::wake);
        Some((next, trial))
    }

    /// As [`Inbox::end_trial`].
    pub(crate) fn end_trial(&self, trial: &Trial, former: &mut ReadAhead<M>) {
        self.inbox.end_trial(trial, former).into_iter().for_each(panic::wake);
    }

    /// As [`Inbox::hand_over`].
    pub(crate) fn hand_over(&self, turn: InTurn, taken: &mut Taken<M>) -> ReadAhead<M> {
        Current::with(Current::looks_into_mailbox);
        let (next, waiting) = self.inbox.hand_over(turn, taken);
        waiting.into_iter().for_each(panic::wake);
        next
    }

    /// As [`Inbox::reclaim`].
    pub(crate) fn reclaim(&self, turn: InTurn, taken: &Taken<M>) {
        Current::with(Current::looks_into_mailbox);
        self.inbox.reclaim(turn, taken).into_iter().for_each(panic::wake);
    }

    /// Wakes whoever waits on the mailbox, or for room in it, when the end is known.
    pub(crate) fn disperse(&self) {
        let (reader, senders) = self.inbox.disperse();
        reader.into_iter().chain(senders).for_each(panic::wake);
    }
}

impl<M: Send + 'static> Control<M> {
    /// A receiver gives back the messages that it took out and has not read. They go back to the inbox, and are dead letters
    /// if that is closed or has a bound.
    pub(crate) fn put_back(&self, front: &mut ReadAhead<M>) {
        match self.inbox.put_back(self, front) {
            Ok(wakes) => self.tell(wakes),
            Err(unread) => self.finish_exit(unread),
        }
    }

    /// The receiving half is dropped.
    pub(crate) fn leave(&self, front: &mut ReadAhead<M>) {
        self.put_back(front);
        if self.head.has(flag::OUTSIDE) {
            self.end_outside(&Exit::Normal);
        }
    }

    /// Messages that were taken out and not read become dead letters.
    pub(crate) fn finish_exit(&self, unread: VecDeque<M>) {
        if !unread.is_empty() {
            self.head.host().dead_letters_of(&self.head, unread.into_iter());
        }
    }

    fn end_outside(&self, exit: &Exit) {
        if self.head.has_ended() {
            return;
        }
        let remains = self.inbox.close();
        self.head.host().release(&self.head);
        if let Some(remains) = remains {
            self.head.host().dead_letters_of(&self.head, remains.settle().into_iter());
        }
        drop(self.head.host().forget(&self.head));
        self.head.host().finish_exit(&self.head, exit);
        self.disperse();
    }
}

/// What the pid table holds: a process whose type is not known.
pub(crate) trait AnyControl: HeaderFirst + Send + Sync + 'static {
    fn as_any(&self) -> &dyn Any;
    fn head(&self) -> &Head;
    /// Delivers a message of any type.
    fn deliver(&self, payload: Payload) -> Result<(), (Refusal, Payload)>;
    /// The same from where it is; it stays there if it is refused. Then there is a box, so that there is a word to look at.
    fn deliver_from(&self, payload: &mut Option<Payload>) -> Result<(), Box<Refusal>> {
        let Some(message) = payload.take() else { return Ok(()) };
        self.deliver(message).map_err(|(refusal, message)| {
            *payload = Some(message);
            Box::new(refusal)
        })
    }

    /// The most messages that waited in its mailbox.
    fn high_water(&self) -> usize;
    /// Puts a signal into the mailbox.
    ///
    /// # Errors
    /// The signal, when the mailbox is closed.
    fn put(&self, signal: Signal) -> Result<Wakes, Signal>;
    /// Puts an answer into the mailbox, from where it is.
    ///
    /// # Errors
    /// It stays there, when the mailbox is closed.
    fn put_answer(&self, tag: Tag, answer: &mut Option<Answer>) -> Result<Wakes, ()>;
    /// Puts a down into the mailbox. Nothing if that is closed.
    fn put_down(&self, number: u64, pid: Pid, reason: &Exit) -> Option<Wakes>;
    /// Wakes the process, and whoever waits on its mailbox.
    fn rouse(&self);
    /// Wakes the process alone.
    fn wake(&self);
    /// Whether its mailbox is closed, which is the first thing that the end of a process does.
    fn is_closed(&self) -> bool;
    /// Ends a mailbox outside any process.
    fn close_outside(&self, exit: &Exit);
}

impl<M: Send + 'static> AnyControl for Control<M> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn head(&self) -> &Head {
        &self.head
    }

    fn deliver(&self, payload: Payload) -> Result<(), (Refusal, Payload)> {
        match payload.downcast::<M>() {
            Ok(message) => self.push(message).map_err(|(refusal, message)| (refusal, Payload::new(message))),
            Err(payload) => Err((Refusal::WrongType { expected: type_name::<M>() }, payload)),
        }
    }

    fn deliver_from(&self, payload: &mut Option<Payload>) -> Result<(), Box<Refusal>> {
        match Payload::take(payload) {
            Some(message) => self.push(message).map_err(|(refusal, message)| {
                *payload = Some(Payload::new(message));
                Box::new(refusal)
            }),
            None => Err(Box::new(Refusal::WrongType { expected: type_name::<M>() })),
        }
    }

    fn high_water(&self) -> usize {
        self.inbox.high()
    }

    fn put(&self, signal: Signal) -> Result<Wakes, Signal> {
        self.put_by(|wake_own| self.inbox.signal(self, signal, wake_own))
    }

    fn put_answer(&self, tag: Tag, answer: &mut Option<Answer>) -> Result<Wakes, ()> {
        self.put_by(|wake_own| self.inbox.answer(self, tag, answer, wake_own))
    }

    fn put_down(&self, number: u64, pid: Pid, reason: &Exit) -> Option<Wakes> {
        self.put_by(|wake_own| self.inbox.down(self, number, pid, reason, wake_own).ok_or(())).ok()
    }

    fn rouse(&self) {
        self.tell(self.inbox.rouse(self));
    }

    fn wake(&self) {
        if let Some(owed) = Own::wake(self) {
            owed.queue(&self.head.host().shared().place);
        }
    }

    fn is_closed(&self) -> bool {
        self.inbox.is_closed()
    }

    fn close_outside(&self, exit: &Exit) {
        self.end_outside(exit);
    }
}

impl PidEntry for dyn AnyControl {
    fn generation(&self) -> u32 {
        self.head().place().generation
    }
}

impl Linkable for dyn AnyControl {
    fn pid(&self) -> Pid {
        self.head().pid()
    }

    fn links(&self) -> &Links<Self> {
        self.head().links()
    }

    fn exit(&self) -> Option<Exit> {
        self.head().exit()
    }

    fn has_ended(&self) -> bool {
        self.head().has_ended()
    }

    fn put(&self, signal: Signal) -> Result<Wakes, Signal> {
        AnyControl::put(self, signal)
    }

    fn put_down(&self, number: u64, pid: Pid, reason: &Exit) -> Option<Wakes> {
        AnyControl::put_down(self, number, pid, reason)
    }

    fn condemn(&self) -> bool {
        self.head().set(flag::KILLED)
    }

    fn fall(this: &Ref<Self>, fate: &Exit) {
        if !this.head().has(flag::OUTSIDE) {
            return this.rouse();
        }
        // Closing this mailbox may end another one, through its links: chains of them may be long.
        let (outside, fate) = (this.clone(), fate.clone());
        Current::with(|current| current.deferred.call(move || outside.close_outside(&fate)));
    }
}

impl dyn AnyControl {
    /// Puts a signal into the mailbox and wakes the process. A process that has ended hears nothing.
    pub(crate) fn signal(&self, signal: Signal) {
        match AnyControl::put(self, signal) {
            Ok(wakes) => wakes.wake_in(&self.head().host().shared().place),
            Err(refused) => drop(drop_caught(refused)),
        }
    }

    /// Answers a yield of this process, whoever it is that answers. The answer is taken from where it is.
    ///
    /// # Errors
    /// Why it came too late, or is of the wrong type: it stays there.
    pub(crate) fn complete(&self, tag: Tag, answer: &mut Option<Answer>, check: bool) -> Result<(), Late> {
        let head = self.head();
        let taken = || head.count(Counter::Completions);
        if tag.is_plain() {
            head.yields().complete_plain(tag, answer, check, taken)?;
            self.answer(tag, answer);
            return Ok(());
        }
        match head.yields().complete(tag, answer, check, taken)? {
            Answered::Event => self.answer(tag, answer),
            Answered::Notices(count) => self.notice(tag, count),
            Answered::Own => self.wake_or_note(),
            Answered::Other(waker) => self.wake_other(waker),
            Answered::Discard => drop(drop_caught(answer.take())),
        }
        Ok(())
    }

    /// Puts an answer into the mailbox and wakes the process. One that has ended hears nothing.
    fn answer(&self, tag: Tag, answer: &mut Option<Answer>) {
        match self.put_answer(tag, answer) {
            Ok(wakes) => wakes.wake_in(&self.head().host().shared().place),
            Err(()) => drop(drop_caught(answer.take())),
        }
    }

    /// Puts notices of a stream into the mailbox.
    pub(crate) fn notice(&self, tag: Tag, count: usize) {
        for _ in 0..count {
            self.signal(Signal::Notice(tag));
        }
    }

    /// Wakes the task; in its own turn it is stepped again anyway.
    pub(crate) fn wake_or_note(&self) {
        if !self.note_answered_in_turn() {
            self.wake();
        }
    }

    /// Wakes a combinator of the process.
    pub(crate) fn wake_other(&self, waker: Waker) {
        self.note_answered_in_turn();
        panic::wake(waker);
    }

    /// In a turn of this process, notes that the process was answered. Whether this thread is in such a turn.
    fn note_answered_in_turn(&self) -> bool {
        Current::with(|current| {
            let is_own_turn = current.is_in_turn_of(std::ptr::from_ref(self).cast::<()>() as usize);
            if is_own_turn {
                current.note_answered();
            }
            is_own_turn
        })
    }

    /// Tells the process to end, once. False if it was told before. Whoever asks kills it at the deadline.
    pub(crate) fn cancel(&self, reason: Reason, deadline: Instant) -> bool {
        let head = self.head();
        if !head.set_cancel(reason.clone(), deadline) {
            return false;
        }
        self.signal(Signal::Cancel { reason, deadline });
        true
    }

    /// Ends the process at its next scheduling point.
    pub(crate) fn kill(&self) {
        if !self.head().set(flag::KILLED) {
            return;
        }
        if self.head().has(flag::OUTSIDE) {
            self.close_outside(&Exit::Killed);
        } else {
            self.rouse();
        }
    }
}

impl fmt::Debug for dyn AnyControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Control").field(&self.head().pid()).finish()
    }
}

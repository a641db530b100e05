//! The contract of a process: events in, output out, one step at a time.
//!
//! What can reach a process is in `process/event.rs`, what it may want in `process/command.rs`, how it ends in
//! `process/exit.rs`. The states that it goes through stand above [`State`](crate::State).

use std::any::{Any, TypeId};
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::task::Waker;
use std::time::Duration;

use crate::context::call::{Reply, ask_as_yield};
use crate::context::me::Me;
use crate::context::time::deadline::answer_at;
use crate::host::Target;
use crate::host::cancel::inherited::Inherited;
use crate::host::control::Control;
use crate::observe::Counter;
use crate::process::catch::Held;
use crate::process::command::{Asked, Command, StreamCommand, Streamed};
use crate::process::error::{InitError, YieldError};
use crate::process::event::{Completed, Event, Item, Signal, Tag};
use crate::process::exit::Exit;
use crate::process::failure::Failure;
use crate::process::mailbox::{ReadAhead, ReceiverTurn, Taken};
use crate::process::payload::Payload;
use crate::process::pid::Pid;
#[allow(unused_imports)]
use crate::process::state::current::Current;
use crate::process::state::current::InTurn;
use crate::process::yields::buffer::Buffer;
use crate::process::yields::{AnswerTarget, Yields};

/// How a process is started.
#[derive(Debug)]
#[non_exhaustive]
pub struct Start<'a> {
    /// The entry method; empty if none was named.
    pub method: &'a str,
    /// What it was given; `()` if nothing was.
    pub input: Payload,
    /// Who it is.
    pub pid: Pid,
    /// What it inherits from whoever spawned it.
    pub context: &'a Inherited,
}

/// The raw face of a process: a state machine.
///
/// An async body is driven by the same task and has the same powers; this face allocates nothing and shows everything.
///
/// ```
/// use procession::{Event, Events, Exit, Next, Process, Reply, Runtime, StepOutput};
///
/// enum Msg { Add(u64), Get(Reply<u64>) }
/// #[derive(Default)]
/// struct Counter { count: u64 }
///
/// impl Process for Counter {
///     type Message = Msg;
///     type Output = u64;
///
///     fn step(&mut self, events: Events<'_, Msg>, _: &mut StepOutput<'_, Msg>) -> Result<Next<u64>, Exit> {
///         for event in events {
///             match event {
///                 Event::Message(Msg::Add(n)) => self.count += n,
///                 Event::Message(Msg::Get(reply)) => reply.send(self.count),
///                 Event::Cancel { .. } => return Ok(Next::Done(self.count)),
///                 _ => {}
///             }
///         }
///         Ok(Next::Wait)
///     }
/// }
/// let rt = Runtime::new()?;
/// let counter = rt.spawn_process(Counter::default());
/// counter.send(Msg::Add(2))?;
/// assert_eq!(rt.block_on(counter.call(Msg::Get))?, 2);
/// rt.cancel(counter.pid(), "enough", std::time::Duration::from_secs(1))?;
/// assert_eq!(rt.block_on(counter)?, 2);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub trait Process: 'static {
    /// What its [`Address`](crate::Address) takes; [`Payload`] takes anything.
    type Message: Send + 'static;
    /// What joining it gives.
    type Output: Send + 'static;

    /// Prepares for the first step, on a worker. What is sent before it waits in the mailbox.
    ///
    /// # Errors
    /// The process ends with [`Exit::InitFailed`], and no step ever runs.
    fn init(&mut self, start: Start<'_>) -> Result<(), InitError> {
        let _ = start;
        Ok(())
    }

    /// Takes the events that arrived since the last step, and says what it wants next.
    ///
    /// The first step comes right after `init`, with what is there, which may be nothing. Events that are left unread
    /// come first in the next step.
    ///
    /// # Errors
    /// The process ends with this exit.
    fn step(
        &mut self,
        events: Events<'_, Self::Message>,
        out: &mut StepOutput<'_, Self::Message>,
    ) -> Result<Next<Self::Output>, Exit>;

    /// Runs exactly once for every process whose `init` succeeded, after the last step, whatever ended it.
    fn close(&mut self) {}
}

/// A process of which only these types are known.
pub(crate) type AnyProcess<M, T> = Box<dyn Process<Message = M, Output = T> + Send>;

/// What a step wants next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Next<T> {
    /// An event.
    Wait,
    /// Another step, behind the others.
    Again,
    /// Nothing more. What was yielded in this step is still dispatched; its answers are discarded.
    Done(T),
}

/// The mail of a hand-written process as its task keeps it between steps.
#[derive(Debug)]
pub(crate) struct Mail<M> {
    /// Made when more than one message comes at once, or a signal: an idle process pays a pointer for it.
    taken: Option<Box<Taken<M>>>,
    look: Look,
}

/// Whether the step that runs has looked into the inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    NotYet,
    Taken,
    /// It has passed its events on, unread.
    Left,
    /// A [`Mailbox`](crate::Mailbox) is the receiver, in this step and until the process reads its events itself.
    SpawnSettings,
}

impl<M: Send + 'static> Mail<M> {
    pub(crate) fn new() -> Self {
        Self { taken: None, look: Look::NotYet }
    }

    /// The events for a step that begins.
    #[inline]
    pub(crate) fn events<'a>(&'a mut self, control: &'a Control<M>) -> Events<'a, M> {
        if self.look != Look::SpawnSettings {
            self.look = Look::NotYet;
        }
        Events { mail: self, control, here: PhantomData, yields: None }
    }

    /// Settles a step that has returned. True if it did not look at its events and there are new ones: it has to be
    /// stepped for them, as for any event.
    pub(crate) fn missed(&mut self, control: &Control<M>, turn: InTurn) -> bool {
        if self.look != Look::NotYet {
            return false;
        }
        let unread = |mail: &Self| mail.taken.as_deref().map_or(0, Taken::len);
        let before = unread(self);
        control.drain(ReceiverTurn::of_events(turn), &mut self.taken);
        unread(self) > before
    }

    /// What was taken and not read: the messages, and the signals, which die with their process.
    pub(crate) fn take(&mut self) -> (VecDeque<M>, Held<Option<Box<Taken<M>>>>) {
        let mut taken = self.taken.take();
        let messages = taken.as_deref_mut().map(|taken| std::mem::take(&mut taken.messages)).unwrap_or_default();
        (messages, Held::new(taken))
    }
}

/// How many yields whose answers were read are taken off their table at once.
const COLLECT_AT: usize = 32;

/// The events since the last step, in the order they came. They are taken over when the first one is asked for.
///
/// They stay on the thread that steps the process. While that thread executes a step of another process, nested in this one
/// by [`block_on`](crate::Runtime::block_on), no events can be taken over: `next` returns `None`, and the events come later.
/// If the mailbox has another receiver by then, because an earlier step was
/// delegated to [`Methods`](crate::Methods), reading the first event makes the process the receiver again: see
/// [`Mailbox`](crate::Mailbox).
pub struct Events<'a, M> {
    mail: &'a mut Mail<M>,
    control: &'a Control<M>,
    /// Not `Send`: another thread would read the mailbox at the same time as the process.
    here: PhantomData<*const ()>,
    /// Looked up once: those who answer on other cores write beside where that is said.
    yields: Option<&'a Yields>,
}

impl<M: Send + 'static> Events<'_, M> {
    /// Leaves the inbox alone, for a process that reads it by a [`Mailbox`](crate::Mailbox).
    pub(crate) fn leave(self) {
        if self.mail.look != Look::SpawnSettings {
            self.mail.look = Look::Left;
        }
    }

    /// What makes a [`Mailbox`](crate::Mailbox) the receiver in place of these events. None outside the turn of the process.
    pub(crate) fn hand_over(self) -> Option<ReadAhead<M>> {
        let turn = self.turn()?;
        self.mail.look = Look::SpawnSettings;
        Some(self.control.hand_over(turn, self.mail.taken.get_or_insert_default()))
    }

    /// The turn of the process, which is looked up again at each use: another turn may be nested in the step, and what is
    /// noted of a mailbox is noted for the innermost turn.
    #[inline]
    fn turn(&self) -> Option<InTurn> {
        Current::with(|current| current.in_step(self.control.address()))
    }

    /// Whether they are those of the process with this control block.
    pub(crate) fn are_of(&self, control: &Control<M>) -> bool {
        std::ptr::eq(self.control, control)
    }

    /// Makes the process the receiver in place of its `Mailbox`, and takes over what is there.
    #[cold]
    fn reclaim(&mut self, turn: InTurn) {
        self.mail.look = Look::Taken;
        self.control.reclaim(turn, self.mail.taken.get_or_insert_default());
        self.control.drain(ReceiverTurn::of_events(turn), &mut self.mail.taken);
    }
}

impl<M: Send + 'static> Iterator for Events<'_, M> {
    type Item = Event<M>;

    /// A single message is handed over in the caller's own code: so it is not moved on the way, and waited for.
    #[inline(always)]
    fn next(&mut self) -> Option<Event<M>> {
        if self.mail.look != Look::Taken {
            let turn = self.turn()?;
            if self.mail.look == Look::SpawnSettings {
                self.reclaim(turn);
            } else {
                self.mail.look = Look::Taken;
                if let Some(only) = self.control.drain_or_pop(ReceiverTurn::of_events(turn), &mut self.mail.taken) {
                    return Some(Event::Message(only));
                }
            }
        }
        self.next_taken()
    }
}

impl<M: Send + 'static> Events<'_, M> {
    /// The next of those that were taken over.
    #[inline(never)]
    fn next_taken(&mut self) -> Option<Event<M>> {
        let taken = self.mail.taken.as_deref_mut()?;
        while let Some(signal) = taken.pop_signal() {
            let yields = *self.yields.get_or_insert_with(|| self.control.head.yields());
            match signal {
                // Cancelled while it waited here.
                Signal::Completed(Completed { tag, .. }) if !yields.is_to_be_read(tag) => {}
                Signal::Completed(completed) => {
                    taken.read.push(completed.tag);
                    // A number that the process chose may be another yield's at once.
                    if completed.tag.is_chosen() || taken.read.len() == COLLECT_AT {
                        yields.collect(taken.read.drain(..));
                    }
                    return Some(Event::Completed(completed));
                }
                Signal::Notice(tag) => match yields.collect_notice(tag) {
                    Some(Ok(item)) => return Some(Event::Item(Item { tag, item })),
                    Some(Err(answer)) => return Some(Event::Completed(Completed { tag, answer })),
                    None => {}
                },
                signal if self.control.head.heeds(&signal) => return Some(signal.into_event(self.control.head.pid())),
                _ => {}
            }
        }
        taken.pop().map(Event::Message)
    }
}

impl<M> Drop for Events<'_, M> {
    #[inline]
    fn drop(&mut self) {
        if let Some(taken) = self.mail.taken.as_deref_mut()
            && !taken.read.is_empty()
        {
            let yields = self.yields.unwrap_or_else(|| self.control.head.yields());
            yields.collect(taken.read.drain(..));
        }
    }
}

impl<M> fmt::Debug for Events<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.mail.taken.as_deref().map_or(0, Taken::len);
        f.debug_struct("Events").field("left", &left).finish_non_exhaustive()
    }
}

/// A step that yields more commands than this begins [plain](crate::process::yields::lock_free) yields: they need more
/// memory at first and no lock for their answers.
const FEW: u8 = 2;

/// The way out of a step.
///
/// Everything that [`Me`] can too (sends and spawns take effect at once and return their result); what would be a
/// future there is a tag here, and its answer comes as [`Event::Completed`].
#[derive(Debug)]
pub struct StepOutput<'a, M: Send + 'static> {
    me: &'a Me<M>,
    waker: &'a Waker,
    /// What the process ends with.
    output: fn() -> (TypeId, &'static str),
    /// What is to be in the place of the process when the step has returned.
    successor: Option<Box<dyn Any + Send>>,
    /// How many commands the step has yielded, up to [`FEW`].
    yielded: u8,
}

impl<M: Send + 'static> Deref for StepOutput<'_, M> {
    type Target = Me<M>;

    fn deref(&self) -> &Me<M> {
        self.me
    }
}

impl<'a, M: Send + 'static> StepOutput<'a, M> {
    /// For a process that ends with a `T`.
    #[inline]
    pub(crate) fn new<T: 'static>(me: &'a Me<M>, waker: &'a Waker) -> Self {
        Self { me, waker, output: || (TypeId::of::<T>(), std::any::type_name::<T>()), successor: None, yielded: 0 }
    }

    /// The type that the process ends with, and its name.
    pub(crate) fn output(&self) -> (TypeId, &'static str) {
        (self.output)()
    }

    pub(crate) fn succeed_by(&mut self, next: Box<dyn Any + Send>) {
        self.successor = Some(next);
    }

    #[inline]
    pub(crate) fn take_successor(&mut self) -> Option<Box<dyn Any + Send>> {
        self.successor.take()
    }

    /// The waker of the task, for a process that polls futures.
    pub(crate) fn waker(&self) -> &'a Waker {
        self.waker
    }

    fn start<C: Command>(&mut self, command: Option<Payload>, buffer: Option<Buffer>) -> Tag<C> {
        self.count();
        let started = self.yields().start(AnswerTarget::Event, None, command, buffer);
        started.unwrap_or_else(|_| unreachable!("no tag was chosen"))
    }

    fn count(&self) {
        self.me.host().shared().metrics.add(Counter::Yields, 1);
    }

    fn yields(&self) -> &'a Yields {
        self.me.control().head.yields()
    }

    /// Yields a command; it is dispatched when the step returns, in the order of the yields.
    pub fn perform<C: Command>(&mut self, command: C) -> Tag<C> {
        if self.yielded < FEW {
            self.yielded += 1;
        } else {
            self.yields().expect_many();
        }
        self.start(Some(Payload::new(command)), None)
    }

    /// As [`perform`](Self::perform), with a deadline: see [`limit`](Self::limit).
    pub fn perform_within<C: Command>(&mut self, time: Duration, command: C) -> Tag<C> {
        let tag = self.perform(command);
        self.limit(tag, time);
        tag
    }

    /// As [`perform`](Self::perform), under a tag of the process's own choosing.
    ///
    /// # Errors
    /// The command, when that tag is still in flight.
    pub fn perform_as<C: Command>(&mut self, tag: Tag<C>, command: C) -> Result<(), YieldError<C>> {
        if !tag.is_chosen() {
            return Err(YieldError::new(command));
        }
        let yields = self.yields();
        match yields.start(AnswerTarget::Event, Some(tag), Some(Payload::new(command)), None) {
            Ok(_) => {
                self.count();
                Ok(())
            }
            Err(command) => Err(YieldError::new(
                command.and_then(|command| command.downcast().ok()).expect("it comes back as it was given"),
            )),
        }
    }

    /// Yields a command that is answered many times. Its handler may be [`StreamCommand::BUFFER`] items ahead; an item
    /// comes, as [`Event::Item`], for each [`pull`](Self::pull). The answer comes as [`Event::Completed`] after the
    /// last item, once all items were pulled.
    ///
    /// ```
    /// # use procession::*;
    /// struct Count(u64);
    /// impl Command for Count { type Reply = (); }
    /// impl StreamCommand for Count { type Item = u64; }
    ///
    /// #[derive(Default)]
    /// struct Sum { numbers: Option<Tag<Count>>, sum: u64 }
    /// impl Process for Sum {
    ///     type Message = ();
    ///     type Output = u64;
    ///     fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<u64>, Exit> {
    ///         let numbers = *self.numbers.get_or_insert_with(|| {
    ///             let tag = out.stream(Count(4));
    ///             out.pull(tag);
    ///             tag
    ///         });
    ///         for event in events {
    ///             match event {
    ///                 Event::Item(item) => {
    ///                     self.sum += item.take(numbers).expect("there is one stream");
    ///                     out.pull(numbers);
    ///                 }
    ///                 Event::Completed(_) => return Ok(Next::Done(self.sum)),
    ///                 _ => {}
    ///             }
    ///         }
    ///         Ok(Next::Wait)
    ///     }
    /// }
    /// let rt = Runtime::builder()
    ///     .handle_stream(|c: Count, mut replies: Replier<Count>| async move {
    ///         for n in 0..c.0 {
    ///             replies.send(n).await?;
    ///         }
    ///         replies.complete(());
    ///         Ok::<_, Failure>(())
    ///     })
    ///     .build()?;
    /// assert_eq!(rt.block_on(rt.spawn_process(Sum::default()))?, 6);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn stream<C: StreamCommand>(&mut self, command: C) -> Tag<C> {
        self.start(Some(Payload::new(Streamed(command))), Some(Buffer::new(C::BUFFER)))
    }

    /// Asks for one item more of a stream; asked several times, for as many. False if it was answered and that was
    /// read, or given up: then nothing comes.
    pub fn pull<C: StreamCommand>(&mut self, tag: Tag<C>) -> bool {
        let control = self.me.any();
        let due = control.head().yields().want(tag.erase());
        if let Some(count) = due {
            control.notice(tag.erase(), count);
        }
        due.is_some()
    }

    /// Gives a yield this long from now to be answered: then it fails with [`Failure::TimedOut`](crate::Failure), and
    /// its handler sees the cancellation. A stream has to end in this time. Of several limits the nearest holds; zero
    /// is over at once, and one that ends beyond the clock's 584 years is none.
    pub fn limit<C>(&mut self, tag: Tag<C>, time: Duration) {
        let host = self.me.host();
        answer_at(&self.me.any(), tag.erase(), host.now() + time, Err(Failure::TimedOut));
    }

    /// Asks another process; the reply answers the tag.
    ///
    /// The failure of a call that could not be answered is a [`CallError`](crate::CallError) inside
    /// [`Failure::Error`](crate::Failure::Error).
    pub fn call<N: Send + 'static, T: Send + 'static>(
        &mut self,
        to: impl Target<N>,
        request: impl FnOnce(Reply<T>) -> N,
    ) -> Tag<Asked<T>> {
        let tag = self.start::<Asked<T>>(None, None);
        ask_as_yield(&self.me.any(), tag.erase(), &to.way(), request);
        tag
    }

    /// Asks to be told when this time has passed, counted from now.
    pub fn sleep(&mut self, time: Duration) -> Tag<Asked<()>> {
        let tag = self.start::<Asked<()>>(None, None);
        // SpawnSettings up, or its process ended: the timer goes with it.
        answer_at(&self.me.any(), tag.erase(), self.me.host().now() + time, Ok(Payload::new(())));
        tag
    }

    /// Gives up a yield, a call, a sleep or a stream, and its handler sees that: one that was not dispatched yet never
    /// reaches it. No event of it comes any more, also if it was answered and that was not read yet. True if it was
    /// still in flight; false if it was answered or given up before.
    pub fn cancel_yield<C>(&mut self, tag: Tag<C>) -> bool {
        self.yields().cancel(tag.erase())
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::{Context, Runtime};

    /// The notes of a turn are those of its process alone. A sender relies on them to write to the slot without the lock.
    #[test]
    fn events_are_taken_over_only_in_the_turn_of_their_process() {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let [one, other] = [0, 1].map(|_| rt.spawn(async |mut ctx: Context<u64>| ctx.receive().await));
        one.send(7).unwrap();
        let (own, foreign) = (one.address(), other.address());
        let (control, waker) = (own.control(), Waker::noop());
        let mut mail = Mail::new();
        assert!(mail.events(control).next().is_none());
        Current::with(|current| {
            let _outer = current.enter(control.address(), own.pid(), || "one", waker);
            let mut events = mail.events(control);
            {
                let _nested = current.enter(foreign.control().address(), foreign.pid(), || "other", waker);
                current.note_waits_for_message(true);
                assert!(events.next().is_none());
                assert!(current.waits_for_message(), "the note of the nested turn is kept");
                assert!(Mail::new().events(control).hand_over().is_none());
            }
            assert!(!current.waits_for_message());
        });
        assert!(matches!(rt.block_on(one), Ok(7)));
        rt.kill(foreign.pid()).unwrap();
    }
}

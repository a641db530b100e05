//! The interface of hand-written processes: the trait [`Process`], and the types [`Events`] and [`StepOutput`] that a
//! step gets. Events are defined in `process::event`, commands in `process::command`, exits in `process::exit`. The
//! states of a process are described at [`ProcessState`](crate::observe::ProcessState).

use std::any::{Any, TypeId};
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::task::Waker;
use std::time::Duration;

use crate::context::call::{Reply, call_as_yield};
use crate::context::me::SelfHandle;
use crate::context::time::deadline::answer_at;
use crate::host::cancel::inherited::InheritedContext;
use crate::host::control::{Control, flag};
use crate::host::registry::target::Target;
use crate::observe::Counter;
use crate::process::catch::Held;
use crate::process::command::{BuiltinCommand, Command, StreamCommand, Streamed};
use crate::process::error::{Addressee, InitError, SendError, SendErrorKind};
use crate::process::event::{Completed, Event, Signal, StreamItem, Tag};
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

/// Arguments of [`Process::init`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Start<'a> {
    /// Name of the entry point. The name is empty if no entry point was set.
    pub method: &'a str,
    /// Input of the entry point. The input is `()` if no input was set.
    pub input: Payload,
    /// Pid of the new process.
    pub pid: Pid,
    /// Values that the process inherits from the process that spawned it.
    pub context: &'a InheritedContext,
}

/// A hand-written process: a state machine that the runtime calls step by step.
///
/// A hand-written process runs in the same kind of task as an async body, and has the same operations. A hand-written
/// process needs no allocated future, and receives every event.
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
    /// Type of the messages that the [`Address`](crate::Address) of the process accepts. With the type [`Payload`], the
    /// process accepts messages of any type.
    type Message: Send + 'static;
    /// Type of the result that the join handle of the process returns.
    type Output: Send + 'static;

    /// Prepares the process for its first step. This method runs on a worker. Before the first step, messages wait in
    /// the mailbox.
    ///
    /// # Errors
    /// If this method returns an error, the process exits with [`Exit::InitFailed`], without any step.
    fn init(&mut self, start: Start<'_>) -> Result<(), InitError> {
        let _ = start;
        Ok(())
    }

    /// Handles the events that arrived since the last step, and returns what the process does next.
    ///
    /// The first step follows `init` directly, and may have no events. If a step does not read all of its events, the
    /// next step reads the remaining events first.
    ///
    /// # Errors
    /// If this method returns an [`Exit`] as an error, the process exits with this [`Exit`].
    fn step(
        &mut self,
        events: Events<'_, Self::Message>,
        out: &mut StepOutput<'_, Self::Message>,
    ) -> Result<Next<Self::Output>, Exit>;

    /// Cleans up after the last step. The runtime calls this method for every kind of exit, and exactly once for each
    /// process whose `init` succeeded.
    fn close(&mut self) {}
}

/// A process as a trait object. Only its message type and its output type are known.
pub(crate) type AnyProcess<M, T> = Box<dyn Process<Message = M, Output = T> + Send>;

/// Next action of the process after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Next<T> {
    /// Waits for an event.
    Wait,
    /// The process is stepped again. The tasks that are queued before this process run first.
    Again,
    /// Exits with this result. The commands of this step are still dispatched; their answers are discarded.
    Done(T),
}

/// The messages and signals that a hand-written process has taken from its inbox but has not read yet. Between steps,
/// the task of the process stores these messages and signals.
#[derive(Debug)]
pub(crate) struct Mail<M> {
    /// The box is allocated when the process takes a signal, or takes more than one message at a time. Before the
    /// allocation, this field needs only the space of a pointer.
    taken: Option<Box<Taken<M>>>,
    look: Look,
    /// Number of unread urgent messages when the task last checked for missed events.
    urgent: u32,
}

/// Whether the current step has taken its events from the inbox, or has passed the inbox to another receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    NotYet,
    Taken,
    /// The step has not taken its events from the inbox.
    Left,
    /// A [`Mailbox`](crate::Mailbox) is the receiver. When the process reads its events itself, the process becomes the
    /// receiver again.
    HandedOver,
}

impl<M: Send + 'static> Mail<M> {
    pub(crate) fn new() -> Self {
        Self { taken: None, look: Look::NotYet, urgent: 0 }
    }

    /// Returns the events for a step that begins.
    #[inline]
    pub(crate) fn events<'a>(&'a mut self, control: &'a Control<M>) -> Events<'a, M> {
        if self.look != Look::HandedOver {
            self.look = Look::NotYet;
        }
        Events { mail: self, control, here: PhantomData, yields: None }
    }

    /// The task calls this function after a step has returned. The result is true if new events have arrived and the
    /// step has read no events. If the result is true, the process must be stepped again.
    pub(crate) fn missed(&mut self, control: &Control<M>, turn: InTurn) -> bool {
        if self.look != Look::NotYet {
            return false;
        }
        let unread = |mail: &Self| mail.taken.as_deref().map_or(0, Taken::len);
        let before = unread(self);
        control.drain(ReceiverTurn::of_events(turn), &mut self.taken);
        // Urgent messages stay in the inbox until the process reads them.
        let urgent = if control.head.has_urgent() { control.inbox.urgent_len() } else { 0 };
        let urgent = u32::try_from(urgent).unwrap_or(u32::MAX);
        unread(self) > before || urgent > std::mem::replace(&mut self.urgent, urgent)
    }

    /// Takes the unread messages and signals. The signals are dropped with the process.
    pub(crate) fn take(&mut self) -> (VecDeque<M>, Held<Option<Box<Taken<M>>>>) {
        let mut taken = self.taken.take();
        let messages = taken.as_deref_mut().map(|taken| std::mem::take(&mut taken.messages)).unwrap_or_default();
        (messages, Held::new(taken))
    }
}

/// Maximum number of answered yields that are removed from the table of yields under one lock.
const COLLECT_AT: usize = 32;

/// The events since the last step, in the order in which they arrived. When the first event is requested, the events
/// are taken from the inbox.
///
/// `Events` stays on the thread that steps the process. If the step calls [`block_on`](crate::Runtime::block_on), the
/// thread may run nested steps of other processes. During a nested step, `next` takes no events from the inbox and
/// returns `None`. After the nested step, the events can be read. If an earlier step was delegated to
/// [`EntryPoints`](crate::EntryPoints), another receiver reads the mailbox. When the process then reads its first event
/// itself, the process becomes the receiver again: see [`Mailbox`](crate::Mailbox).
pub struct Events<'a, M> {
    mail: &'a mut Mail<M>,
    control: &'a Control<M>,
    /// This field makes the type not `Send`, because another thread must not read the mailbox at the same time as the
    /// process.
    here: PhantomData<*const ()>,
    /// The table of yields. The table is looked up only once per step, because each lookup reads a cache line that
    /// other cores write when they answer yields.
    yields: Option<&'a Yields>,
}

impl<M: Send + 'static> Events<'_, M> {
    /// Leaves the events in the inbox. A process that reads the inbox through a [`Mailbox`](crate::Mailbox) calls this
    /// method.
    pub(crate) fn leave(self) {
        if self.mail.look != Look::HandedOver {
            self.mail.look = Look::Left;
        }
    }

    /// Makes a new [`Mailbox`](crate::Mailbox) the receiver, so that the process itself is no longer the receiver.
    /// Returns the read-ahead buffer of the new `Mailbox`. Returns `None` outside the turn of the process.
    pub(crate) fn hand_over(self) -> Option<ReadAhead<M>> {
        let turn = self.turn()?;
        self.mail.look = Look::HandedOver;
        Some(self.control.hand_over(turn, self.mail.taken.get_or_insert_default()))
    }

    /// Returns the turn of the process, or `None` outside the turn of the process. The turn is looked up at each use,
    /// because the turn of another process may be nested in the step. Records about a mailbox belong to the innermost
    /// turn.
    #[inline]
    fn turn(&self) -> Option<InTurn> {
        Current::with(|current| current.in_step(self.control.address()))
    }

    /// Returns whether these events belong to the process with this control block.
    pub(crate) fn are_of(&self, control: &Control<M>) -> bool {
        std::ptr::eq(self.control, control)
    }

    /// Makes the process itself the receiver again, so that its `Mailbox` is no longer the receiver. Takes the events
    /// that are in the inbox.
    #[cold]
    fn reclaim(&mut self, turn: InTurn) {
        self.mail.look = Look::Taken;
        self.control.reclaim(turn, self.mail.taken.get_or_insert_default());
        self.control.drain(ReceiverTurn::of_events(turn), &mut self.mail.taken);
    }
}

impl<M: Send + 'static> Iterator for Events<'_, M> {
    type Item = Event<M>;

    /// This method is inlined into the caller, so that a single message is moved directly to its final address. The
    /// loads of a second move could be wider than the stores of the first move. The processor cannot forward stored
    /// bytes to a wider load, so the second move would be slow.
    #[inline(always)]
    fn next(&mut self) -> Option<Event<M>> {
        if self.mail.look != Look::Taken {
            let turn = self.turn()?;
            if self.mail.look == Look::HandedOver {
                self.reclaim(turn);
            } else {
                self.mail.look = Look::Taken;
                if let Some(only) = self.control.drain_or_pop(ReceiverTurn::of_events(turn), &mut self.mail.taken) {
                    self.trace_receive();
                    return Some(Event::Message(only));
                }
            }
        }
        self.next_taken()
    }
}

impl<M: Send + 'static> Events<'_, M> {
    /// Takes the next urgent message out of the inbox.
    #[cold]
    fn take_urgent(&mut self) -> Option<M> {
        self.turn()?;
        self.mail.urgent = 0;
        self.control.inbox.pop_urgent_event(|| self.control.head.unset(flag::URGENT))
    }

    /// Returns the next urgent message, or the next event that was taken from the inbox.
    #[inline(never)]
    fn next_taken(&mut self) -> Option<Event<M>> {
        if self.control.head.has_urgent()
            && let Some(message) = self.take_urgent()
        {
            self.trace_receive();
            return Some(Event::Message(message));
        }
        let taken = self.mail.taken.as_deref_mut()?;
        while let Some(signal) = taken.pop_signal() {
            let yields = *self.yields.get_or_insert_with(|| self.control.head.yields());
            match signal {
                // The yield was cancelled while its answer was in this buffer.
                Signal::Completed(Completed { tag, .. }) if !yields.wants_answer(tag) => {}
                Signal::Completed(completed) => {
                    taken.read.push(completed.tag);
                    // The process may reuse a chosen tag immediately. Therefore the yield of a chosen tag is removed
                    // from the table now.
                    if completed.tag.is_chosen() || taken.read.len() == COLLECT_AT {
                        yields.collect(taken.read.drain(..));
                    }
                    return Some(Event::Completed(completed));
                }
                Signal::Notice(tag) => match yields.collect_notice(tag) {
                    Some(Ok(item)) => return Some(Event::Item(StreamItem { tag, item })),
                    Some(Err(answer)) => return Some(Event::Completed(Completed { tag, answer })),
                    None => {}
                },
                signal if self.control.head.heeds(&signal) => return Some(signal.into_event(self.control.head.pid())),
                _ => {}
            }
        }
        let message = taken.pop();
        if message.is_some() {
            self.trace_receive();
        }
        message.map(Event::Message)
    }

    /// Records the receipt of a message, if this turn is traced.
    #[inline]
    fn trace_receive(&self) {
        if Current::with(Current::is_traced) {
            self.control.head.host().trace_receive(&self.control.head);
        }
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

/// Operations of a step.
///
/// A `StepOutput` dereferences to [`SelfHandle`]. Sends and spawns take effect immediately and return their results.
/// Some operations of [`SelfHandle`] return a future, for example `perform`. The methods of `StepOutput` with the same
/// names return a [`Tag`] instead. The answer arrives as [`Event::Completed`] with this tag.
#[derive(Debug)]
pub struct StepOutput<'a, M: Send + 'static> {
    me: &'a SelfHandle<M>,
    waker: &'a Waker,
    /// Returns the type of the process's result, and the name of that type.
    output: fn() -> (TypeId, &'static str),
    /// The process that replaces the present process when the step has returned.
    successor: Option<Box<dyn Any + Send>>,
}

impl<M: Send + 'static> Deref for StepOutput<'_, M> {
    type Target = SelfHandle<M>;

    fn deref(&self) -> &SelfHandle<M> {
        self.me
    }
}

impl<'a, M: Send + 'static> StepOutput<'a, M> {
    /// Makes the output for a process whose result type is `T`.
    #[inline]
    pub(crate) fn new<T: 'static>(me: &'a SelfHandle<M>, waker: &'a Waker) -> Self {
        Self { me, waker, output: || (TypeId::of::<T>(), std::any::type_name::<T>()), successor: None }
    }

    /// Returns the type of the process's result, and the name of that type.
    pub(crate) fn output(&self) -> (TypeId, &'static str) {
        (self.output)()
    }

    pub(crate) fn replace_with(&mut self, next: Box<dyn Any + Send>) {
        self.successor = Some(next);
    }

    #[inline]
    pub(crate) fn take_successor(&mut self) -> Option<Box<dyn Any + Send>> {
        self.successor.take()
    }

    /// Returns the waker of the task. A process uses this waker to poll futures.
    pub(crate) fn waker(&self) -> &'a Waker {
        self.waker
    }

    fn start<C: Command>(&mut self, command: Option<Payload>, buffer: Option<Buffer>) -> Tag<C> {
        // A call or a sleep has no command, and its time is not the time of a command.
        let is_command = command.is_some();
        let started = self.yields().start(AnswerTarget::Event, None, command, buffer);
        let tag: Tag<C> = started.unwrap_or_else(|_| unreachable!("no tag was chosen"));
        self.count(tag.erase());
        if is_command {
            self.me.control().head.measure_yield(tag.erase());
        }
        tag
    }

    /// Counts a yield.
    fn count(&self, tag: Tag) {
        self.me.host().shared().metrics.add(Counter::Yields, 1);
        if Current::with(Current::is_traced) {
            self.me.host().trace_yield(&self.me.control().head, tag);
        }
    }

    fn yields(&self) -> &'a Yields {
        self.me.control().head.yields()
    }

    /// Yields a command. When the step returns, the handlers get the commands of the step in the order of the yields.
    /// The answer arrives as [`Event::Completed`] with the returned tag.
    pub fn perform<C: Command>(&mut self, command: C) -> Tag<C> {
        self.start(Some(Payload::new(command)), None)
    }

    /// Same as [`perform`](Self::perform), with a time limit: see [`set_timeout`](Self::set_timeout).
    pub fn perform_within<C: Command>(&mut self, time: Duration, command: C) -> Tag<C> {
        let tag = self.perform(command);
        self.set_timeout(tag, time);
        tag
    }

    /// Same as [`perform`](Self::perform), with a tag that the process has chosen.
    ///
    /// # Errors
    /// If a yield with this tag is still in flight, returns the command with [`SendErrorKind::TagInUse`]. The error is
    /// the same if the tag was not made by [`Tag::chosen`](crate::Tag::chosen).
    pub fn perform_as<C: Command>(&mut self, tag: Tag<C>, command: C) -> Result<(), SendError<C>> {
        let refuse = |command| SendError::new(SendErrorKind::TagInUse, command).to(Addressee::Handler(self.me.pid()));
        if !tag.is_chosen() {
            return Err(refuse(command));
        }
        let yields = self.yields();
        match yields.start(AnswerTarget::Event, Some(tag), Some(Payload::new(command)), None) {
            Ok(_) => {
                self.count(tag.erase());
                self.me.control().head.measure_yield(tag.erase());
                Ok(())
            }
            Err(command) => {
                Err(refuse(command.and_then(|command| command.downcast().ok()).expect("a refused command is returned")))
            }
        }
    }

    /// Yields a stream command. The handler can be at most [`StreamCommand::BUFFER`] items ahead of the process. Each
    /// call of [`pull`](Self::pull) requests one item, and the item arrives as [`Event::Item`]. When all items have
    /// been pulled, the answer arrives as [`Event::Completed`].
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
    ///     .handle_stream(|c: Count, mut replies: StreamCompletion<Count>| async move {
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

    /// Requests one more item of a stream. Several requests can be outstanding. Returns false if the stream was
    /// cancelled or its answer was read. In this case, no further item arrives.
    pub fn pull<C: StreamCommand>(&mut self, tag: Tag<C>) -> bool {
        let control = self.me.any();
        let due = control.head().yields().want(tag.erase());
        if let Some(count) = due {
            control.notice(tag.erase(), count);
        }
        due.is_some()
    }

    /// Sets a time limit for a yield. The time begins when this method is called. When the time has passed, the yield
    /// fails with [`Failure::TimedOut`](crate::Failure), and the handler sees the cancellation. The limit of a stream
    /// applies to the whole stream. If a yield has several limits, the earliest limit applies. A limit of zero passes
    /// immediately. A limit that ends after the clock's range of 584 years has no effect.
    pub fn set_timeout<C>(&mut self, tag: Tag<C>, time: Duration) {
        let host = self.me.host();
        answer_at(&self.me.any(), tag.erase(), host.now() + time, Err(Failure::TimedOut));
    }

    /// Sends a request to another process. The message is sent immediately. The reply arrives as [`Event::Completed`]
    /// with the returned tag.
    ///
    /// If the call fails, the answer is a [`Failure::Error`] that contains a [`CallError`](crate::CallError).
    pub fn call<N: Send + 'static, T: Send + 'static>(
        &mut self,
        to: impl Target<N>,
        request: impl FnOnce(Reply<T>) -> N,
    ) -> Tag<BuiltinCommand<T>> {
        let tag = self.start::<BuiltinCommand<T>>(None, None);
        call_as_yield(&self.me.any(), tag.erase(), &to.way(), request);
        tag
    }

    /// Starts a sleep. When this time has passed, [`Event::Completed`] arrives with the returned tag. The time begins
    /// when this method is called.
    pub fn sleep(&mut self, time: Duration) -> Tag<BuiltinCommand<()>> {
        let tag = self.start::<BuiltinCommand<()>>(None, None);
        // If the yield is cancelled or the process exits, the timer is also cancelled.
        answer_at(&self.me.any(), tag.erase(), self.me.host().now() + time, Ok(Payload::new(())));
        tag
    }

    /// Cancels a yield. The yield can be a command, a call, a sleep or a stream. If a handler has received the command,
    /// the handler sees the cancellation. If the command was not dispatched yet, no handler receives the command. No
    /// further event of the yield arrives, even if the answer is already in the mailbox. Returns true if the yield was
    /// in flight. Returns false if the yield was already answered or cancelled.
    pub fn cancel_yield<C>(&mut self, tag: Tag<C>) -> bool {
        self.yields().cancel(tag.erase())
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::{Context, Runtime};

    /// A turn contains records only about the mailbox of its own process. A sender that writes the mailbox slot without
    /// the lock relies on these records.
    #[test]
    fn events_are_taken_only_in_the_turn_of_their_process() {
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

//! Interface of hand-written processes. The trait [`Process`] has the method `step`, whose arguments are [`Events`] and
//! [`StepOutput`]. The module `process::event` defines events, `process::command` defines commands, and `process::exit`
//! defines exits. The states of a process are described at [`ProcessState`](crate::observe::ProcessState).

use std::any::{Any, TypeId};
use std::cell::OnceCell;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::panic::Location;
use std::task::Waker;
use std::time::Duration;

use crate::context::call::{Reply, call_as_yield};
use crate::context::me::SelfHandle;
use crate::context::time::deadline::answer_at;
use crate::host::cancel::inherited::InheritedContext;
use crate::host::control::{Control, flag};
use crate::host::registry::target::Target;
use crate::observe::{Counter, Metrics};
use crate::platform::clock::Instant;
use crate::process::catch::Held;
use crate::process::command::{BuiltinCommand, Command, StreamCommand, Streamed};
use crate::process::error::{Addressee, InitError, SendError, SendErrorKind};
use crate::process::event::{Completed, Event, Signal, Tag, notice_event};
use crate::process::exit::Exit;
use crate::process::failure::Failure;
use crate::process::mailbox::{ReadAhead, ReceiverTurn, Taken};
use crate::process::payload::Payload;
use crate::process::pid::Pid;
use crate::process::state::current::{BUDGET, Current, InTurn};
use crate::process::yields::buffer::Buffer;
use crate::process::yields::{AnswerTarget, CallInfo, YieldInfo, Yields};

/// Arguments of [`Process::init`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Start<'a> {
    /// Name of the entry point. The name is empty if no entry point was set.
    pub entry: &'a str,
    /// Input of the entry point. The input is `()` if no input was set.
    pub input: Payload,
    /// Pid of the new process.
    pub pid: Pid,
    /// Values that the new process inherits from its parent.
    pub inherited: &'a InheritedContext,
}

/// A hand-written process. A hand-written process is a state machine. The runtime calls the method
/// [`step`](Self::step), which handles the events of the process.
///
/// A hand-written process runs in the same kind of task as an async body, and has the same operations. Unlike an async
/// body, a hand-written process receives every kind of event, for example the answers to its commands.
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
    /// Type of the messages that the process accepts. If this type is [`Payload`], the process accepts messages of any
    /// type.
    type Message: Send + 'static;
    /// Type of the result that the join handle of the process returns.
    type Output: Send + 'static;

    /// Prepares the process for its first step. A worker calls this method. Messages that arrive before the first step
    /// wait in the mailbox.
    ///
    /// # Errors
    /// If this method returns an error, the process exits with [`Exit::InitFailed`], and `step` is never called.
    fn init(&mut self, start: Start<'_>) -> Result<(), InitError> {
        let _ = start;
        Ok(())
    }

    /// Handles the events that have arrived since the last step. The result is the next action of the process.
    ///
    /// The first step follows immediately after `init`, and may have no events. If a step does not read all its events,
    /// the next step first gets the unread events.
    ///
    /// # Errors
    /// If this method returns an error, the process exits with this [`Exit`].
    fn step(
        &mut self,
        events: Events<'_, Self::Message>,
        out: &mut StepOutput<'_, Self::Message>,
    ) -> Result<Next<Self::Output>, Exit>;

    /// Cleans up after the last step. If `init` has succeeded, the runtime calls this method exactly once, for every
    /// kind of exit.
    fn close(&mut self) {}
}

/// Trait object of a process with the message type `M` and the output type `T`.
pub(crate) type AnyProcess<M, T> = Box<dyn Process<Message = M, Output = T> + Send>;

/// Next action of the process after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Next<T> {
    /// The process waits for an event.
    Wait,
    /// The runtime runs another step of the process. The tasks that are already in the queue run before this next step.
    Again,
    /// The process exits with this result. The runtime still dispatches the commands of this step, but discards the
    /// answers. The exit then cancels the commands that have no answer yet.
    Done(T),
}

/// The messages and signals that a hand-written process has taken from its inbox and has not read yet. The task of the
/// process stores a `Mail` between the steps.
#[derive(Debug)]
pub(crate) struct Mail<M> {
    /// The box is allocated when the process takes a signal, or takes several messages at the same time. Before the
    /// allocation, this field needs only the space of a pointer.
    taken: Option<Box<Taken<M>>>,
    look: Look,
    /// Number of unread urgent messages when the task last checked for missed events.
    urgent: u32,
}

/// The way in which the current step has handled the events in the inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    NotYet,
    Taken,
    /// The step has read [`URGENT_PER_STEP`] urgent messages, and further urgent messages are unread. The task must run
    /// another step of the process.
    Cut,
    /// The step leaves its events in the inbox.
    Left,
    /// A [`Mailbox`](crate::Mailbox) is the receiver of the process. The process becomes the receiver again when the
    /// process itself reads an event. If the mailbox was dropped, the process becomes the receiver again at the end of
    /// a step.
    HandedOver,
}

impl<M: Send + 'static> Mail<M> {
    pub(crate) fn new() -> Self {
        Self { taken: None, look: Look::NotYet, urgent: 0 }
    }

    /// Returns the events for the next step.
    #[inline]
    pub(crate) fn events<'a>(&'a mut self, control: &'a Control<M>) -> Events<'a, M> {
        if self.look != Look::HandedOver {
            self.look = Look::NotYet;
        }
        Events { mail: self, control, here: PhantomData, yields: None, urgent_read: 0 }
    }

    /// Returns true if new events have arrived and the step has not checked the inbox. In this case, the task must run
    /// one more step of the process. The task of the process calls this function after each step.
    pub(crate) fn missed(&mut self, control: &Control<M>, turn: InTurn) -> bool {
        if self.look == Look::Cut {
            return true;
        }
        if self.look == Look::HandedOver
            && let Some(taken) = self.taken.as_deref().filter(|taken| taken.is_only_receiver())
        {
            // The mailbox of the body was dropped, usually because the body has ended. Therefore this mailbox no longer
            // wakes the process.
            control.reclaim(turn, taken);
            self.look = Look::NotYet;
        }
        if self.look != Look::NotYet {
            return false;
        }
        let unread = |mail: &Self| mail.taken.as_deref().map_or(0, Taken::len);
        let before = unread(self);
        self.drain(control, turn);
        // An urgent message stays in the inbox until the process reads the message.
        let urgent = if control.head.has_urgent() { control.inbox.urgent_len() } else { 0 };
        let urgent = u32::try_from(urgent).unwrap_or(u32::MAX);
        unread(self) > before || urgent > std::mem::replace(&mut self.urgent, urgent)
    }

    /// Returns the [`ReceiverTurn`] that allows the process to take messages. Returns `None` if another receiver has
    /// replaced the process.
    #[inline]
    fn receiver_turn(&self, turn: InTurn) -> Option<ReceiverTurn> {
        Taken::receiver_turn(self.taken.as_deref(), turn)
    }

    /// Takes all events out of the inbox.
    fn drain(&mut self, control: &Control<M>, turn: InTurn) {
        if let Some(receiver_turn) = self.receiver_turn(turn) {
            control.drain(receiver_turn, &mut self.taken);
        }
    }

    /// Takes the unread messages and the unread signals. The caller drops the signals together with the process.
    pub(crate) fn take(&mut self) -> (VecDeque<M>, Held<Option<Box<Taken<M>>>>) {
        let mut taken = self.taken.take();
        let messages = taken.as_deref_mut().map(|taken| std::mem::take(&mut taken.messages)).unwrap_or_default();
        (messages, Held::new(taken))
    }
}

/// Maximum number of urgent messages that one step reads. Without this limit, a step would never end if urgent messages
/// arrive as fast as the step reads them. The process could then not be killed.
const URGENT_PER_STEP: u32 = BUDGET;

/// Maximum number of answered yields that one lock operation removes from the table of yields.
const COLLECT_AT: usize = 32;

/// Iterator over the events that have arrived since the last step. The [urgent messages](crate::Address::send_urgent)
/// come first. The other events come in the order of their arrival. The first call of `next` takes the events from the
/// inbox. An urgent message that arrives during the step is read in this step. If further urgent messages are unread
/// after 128 urgent messages, `next` returns `None`. The runtime then runs another step, even if this step returns
/// [`Next::Wait`].
///
/// `Events` cannot leave the thread that runs the step. If the step calls [`block_on`](crate::Runtime::block_on), this
/// thread may run nested steps of other processes. During a nested step, `next` takes no events from the inbox and
/// returns `None`. After the nested step, the process can read the events.
///
/// If the process has delegated an earlier step to [`EntryPoints`](crate::EntryPoints), a [`Mailbox`](crate::Mailbox)
/// is the receiver of the process. The process becomes the receiver again when the process itself reads an event. If
/// the mailbox was dropped, the process becomes the receiver again at the end of a step.
pub struct Events<'a, M> {
    mail: &'a mut Mail<M>,
    control: &'a Control<M>,
    /// Because of this field, `Events` is not `Send`. While the process reads the mailbox, no other thread may read the
    /// mailbox.
    here: PhantomData<*const ()>,
    /// The table of yields. In each step, the process looks up the table at most once. A lookup is slow, because the
    /// lookup reads a cache line that other cores write when they answer yields.
    yields: Option<&'a Yields>,
    /// Number of urgent messages that this step has read.
    urgent_read: u32,
}

impl<M: Send + 'static> Events<'_, M> {
    /// Leaves the events in the inbox. The caller is a process that reads its inbox through a
    /// [`Mailbox`](crate::Mailbox).
    pub(crate) fn leave(self) {
        if !matches!(self.mail.look, Look::HandedOver | Look::Cut) {
            self.mail.look = Look::Left;
        }
    }

    /// Replaces the receiver of the process: the process itself is no longer the receiver. Returns the read-ahead
    /// buffer of the new receiver. The caller puts this buffer into a new [`Mailbox`](crate::Mailbox). If this thread
    /// is not in a turn of the process, returns `None`.
    pub(crate) fn hand_over(self) -> Option<ReadAhead<M>> {
        let turn = self.turn()?;
        self.mail.look = Look::HandedOver;
        Some(self.control.hand_over(turn, self.mail.taken.get_or_insert_default()))
    }

    /// Returns the turn of the process. If this thread is not in a turn of the process, returns `None`. Each operation
    /// must look up the turn again, because the turn of another process may be nested in the step. The thread has only
    /// one record about a mailbox, and this record belongs to the innermost turn.
    #[inline]
    fn turn(&self) -> Option<InTurn> {
        Current::with(|current| current.in_step(self.control.address()))
    }

    /// Returns whether these events belong to the process with this control block.
    pub(crate) fn are_of(&self, control: &Control<M>) -> bool {
        std::ptr::eq(self.control, control)
    }

    /// Replaces the receiver of the process: the process itself is the receiver again. Takes the events from the inbox.
    /// The `Mailbox` of the process is then no longer the receiver.
    #[cold]
    fn reclaim(&mut self, turn: InTurn) {
        self.mail.look = Look::Taken;
        self.control.reclaim(turn, self.mail.taken.get_or_insert_default());
        self.mail.drain(self.control, turn);
    }
}

impl<M: Send + 'static> Iterator for Events<'_, M> {
    type Item = Event<M>;

    /// This method is inlined into its caller. As a result, a single message is moved directly to its final address.
    /// Without the inlining, the caller would move the message a second time. The loads of the second move could be
    /// wider than the stores of the first move. The processor cannot forward stored bytes to a wider load, so the
    /// second move would be slow.
    #[inline(always)]
    fn next(&mut self) -> Option<Event<M>> {
        if self.mail.look != Look::Taken {
            let turn = self.turn()?;
            if self.mail.look == Look::Cut {
                return None;
            }
            if self.mail.look == Look::HandedOver {
                self.reclaim(turn);
            } else {
                self.mail.look = Look::Taken;
                if let Some(receiver_turn) = self.mail.receiver_turn(turn)
                    && let Some(only) = self.control.drain_or_pop(receiver_turn, &mut self.mail.taken)
                {
                    self.trace_receive();
                    return Some(Event::Message(only));
                }
            }
        }
        self.next_taken()
    }
}

impl<M: Send + 'static> Events<'_, M> {
    /// Takes the next urgent message from the inbox.
    #[cold]
    fn take_urgent(&mut self) -> Option<M> {
        self.turn()?;
        self.urgent_read += 1;
        self.mail.urgent = 0;
        self.control.inbox.pop_urgent_event(|| self.control.head.unset(flag::URGENT))
    }

    /// Returns the next urgent message. If there is no urgent message, returns the next event that was taken from the
    /// inbox.
    #[inline(never)]
    fn next_taken(&mut self) -> Option<Event<M>> {
        if self.control.head.has_urgent() {
            if self.urgent_read == URGENT_PER_STEP {
                self.mail.look = Look::Cut;
                return None;
            }
            if let Some(message) = self.take_urgent() {
                self.trace_receive();
                return Some(Event::Message(message));
            }
        }
        let taken = self.mail.taken.as_deref_mut()?;
        while let Some(signal) = taken.pop_signal() {
            let yields = *self.yields.get_or_insert_with(|| self.control.head.yields());
            match signal {
                // The yield was cancelled before the process read the answer. The answer is discarded.
                Signal::Completed(Completed { tag, .. }) if !yields.wants_answer(tag) => {}
                Signal::Completed(completed) => {
                    taken.read.push(completed.tag);
                    // After the process has read the answer, the process may immediately reuse a chosen tag. Therefore,
                    // if the process has chosen the tag, the yield is removed from the table now.
                    if completed.tag.is_chosen() || taken.read.len() == COLLECT_AT {
                        yields.collect(taken.read.drain(..));
                    }
                    return Some(Event::Completed(completed));
                }
                Signal::Notice(tag) => {
                    if let Some(next) = yields.collect_notice(tag) {
                        return Some(notice_event(tag, next));
                    }
                }
                signal if self.control.head.wants(&signal) => return Some(signal.into_event(self.control.head.pid())),
                _ => {}
            }
        }
        let message = taken.pop();
        if message.is_some() {
            self.trace_receive();
        }
        message.map(Event::Message)
    }

    /// If this turn is traced, records that the process has received a message.
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

/// Operations that a step of a hand-written process can use.
///
/// A `StepOutput` dereferences to [`SelfHandle`]. The methods that send a message or spawn a process take effect
/// immediately and return their results. Some methods of [`SelfHandle`], such as `perform`, return a future. The method
/// of `StepOutput` with the same name returns a [`Tag`] instead. The answer arrives as [`Event::Completed`] with this
/// tag.
#[derive(Debug)]
pub struct StepOutput<'a, M: Send + 'static> {
    me: &'a SelfHandle<M>,
    waker: &'a Waker,
    /// Returns the output type of the process, and the name of this type.
    output: fn() -> (TypeId, &'static str),
    /// The process that replaces the current process after the step.
    successor: Option<Box<dyn Any + Send>>,
    /// The table of yields and the counters. The control block contains the pointers to the table and to the counters.
    /// These pointers and the reference count of the control block are in the same cache line. Threads that answer
    /// commands change this count. Therefore a step reads the two pointers only once.
    for_commands: OnceCell<(&'a Yields, &'a Metrics)>,
}

impl<M: Send + 'static> Deref for StepOutput<'_, M> {
    type Target = SelfHandle<M>;

    fn deref(&self) -> &SelfHandle<M> {
        self.me
    }
}

impl<'a, M: Send + 'static> StepOutput<'a, M> {
    /// Creates the `StepOutput` for a step of a process with the output type `T`.
    #[inline]
    pub(crate) fn new<T: 'static>(me: &'a SelfHandle<M>, waker: &'a Waker) -> Self {
        let output = || (TypeId::of::<T>(), std::any::type_name::<T>());
        Self { me, waker, output, successor: None, for_commands: OnceCell::new() }
    }

    /// Returns the output type of the process, and the name of this type.
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

    /// Returns the waker of the task of the process. The process uses this waker to poll futures.
    pub(crate) fn waker(&self) -> &'a Waker {
        self.waker
    }

    #[track_caller]
    fn start<C: Command>(&mut self, command: Option<Payload>, buffer: Option<Buffer>) -> Tag<C> {
        self.start_with(command, buffer, YieldInfo::at(Some(Location::caller())))
    }

    fn start_with<C: Command>(&mut self, command: Option<Payload>, buffer: Option<Buffer>, info: YieldInfo) -> Tag<C> {
        // The duration of a call or a sleep is not measured, because a call or a sleep has no command.
        let is_command = command.is_some();
        let started = self.yields().start(AnswerTarget::Event, None, command, buffer, info);
        let tag: Tag<C> = started.unwrap_or_else(|_| unreachable!("no tag was chosen"));
        self.count(tag.erase());
        if is_command {
            self.me.control().head.measure_yield(tag.erase());
        }
        tag
    }

    /// Counts a yield.
    fn count(&self, tag: Tag) {
        self.for_commands().1.add(Counter::Yields, 1);
        if Current::with(Current::is_traced) {
            self.me.host().trace_yield(&self.me.control().head, tag);
        }
    }

    fn yields(&self) -> &'a Yields {
        self.for_commands().0
    }

    fn for_commands(&self) -> (&'a Yields, &'a Metrics) {
        *self.for_commands.get_or_init(|| {
            let head = &self.me.control().head;
            (head.yields(), &head.host().shared().metrics)
        })
    }

    /// Yields a command. The handlers get the commands when the step returns, in the order in which the step yielded
    /// the commands. The answer arrives as [`Event::Completed`] with the returned tag.
    #[track_caller]
    pub fn perform<C: Command>(&mut self, command: C) -> Tag<C> {
        self.start(Some(Payload::new(command)), None)
    }

    /// Yields a command like [`perform`](Self::perform), but with a tag that the process has chosen.
    ///
    /// # Errors
    /// Returns the command with [`SendErrorKind::TagInUse`] if a yield with this tag is still in flight. Returns the
    /// same error if [`Tag::chosen`](crate::Tag::chosen) did not create the tag.
    #[track_caller]
    pub fn perform_as<C: Command>(&mut self, tag: Tag<C>, command: C) -> Result<(), SendError<C>> {
        let refuse = |command| SendError::new(SendErrorKind::TagInUse, command).to(Addressee::Handler(self.me.pid()));
        if !tag.is_chosen() {
            return Err(refuse(command));
        }
        let (yields, line) = (self.yields(), Some(Location::caller()));
        match yields.start(AnswerTarget::Event, Some(tag), Some(Payload::new(command)), None, YieldInfo::at(line)) {
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

    /// Yields a stream command. Each call of [`pull`](Self::pull) requests one item. Each requested item arrives as
    /// [`Event::Item`]. When all items have been pulled, the answer arrives as [`Event::Completed`]. The handler can
    /// send at most [`StreamCommand::BUFFER`] items that the process has not pulled yet.
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
    #[track_caller]
    pub fn stream<C: StreamCommand>(&mut self, command: C) -> Tag<C> {
        self.start(Some(Payload::new(Streamed(command))), Some(Buffer::new(C::BUFFER)))
    }

    /// Requests one more item of a stream. A process can request several items before the first item arrives. Returns
    /// false if the stream was cancelled, or if its answer was read. In this case, no further item arrives.
    pub fn pull<C: StreamCommand>(&mut self, tag: Tag<C>) -> bool {
        let control = self.me.any();
        let due = control.head().yields().want(tag.erase());
        if let Some(count) = due {
            control.notice(tag.erase(), count);
        }
        due.is_some()
    }

    /// Sets a time limit for a yield. The time limit starts when this method is called. At the time limit, the yield
    /// fails with [`Failure::TimedOut`](crate::Failure), and the handler sees the cancellation. The time limit of a
    /// stream applies to the whole stream. If a yield has several time limits, the earliest time limit applies.
    ///
    /// A time limit of zero passes immediately. A time limit beyond the clock's range of 584 years has no effect.
    pub fn set_timeout<C>(&mut self, tag: Tag<C>, time: Duration) {
        // A process can reuse a tag that it has chosen. The timer must not end a later command with the same tag.
        let Some(tag) = self.yields().with_current_generation(tag.erase().strip_generation()) else { return };
        let at = self.me.host().now() + time;
        if at != Instant::FAR {
            self.yields().note_limit(tag);
        }
        answer_at(&self.me.any(), tag, at, Err(Failure::TimedOut));
    }

    /// Sends a request to another process immediately. The reply arrives as [`Event::Completed`] with the returned tag.
    ///
    /// If the call fails, the answer is a [`Failure::Error`] that contains a [`CallError`](crate::CallError).
    #[track_caller]
    pub fn call<N: Send + 'static, T: Send + 'static>(
        &mut self,
        to: impl Target<N>,
        request: impl FnOnce(Reply<T>) -> N,
    ) -> Tag<BuiltinCommand<T>> {
        let to = to.destination();
        let call = CallInfo { callee: self.me.host().word_of(&to), is_limited: false };
        let info = YieldInfo { line: Some(Location::caller()), call: Some(call) };
        let tag = self.start_with::<BuiltinCommand<T>>(None, None, info);
        call_as_yield(&self.me.any(), tag.erase(), &to, request);
        tag
    }

    /// Starts a sleep of the duration `time`. The sleep starts when this method is called. At the end of the sleep,
    /// [`Event::Completed`] arrives with the returned tag.
    #[track_caller]
    pub fn sleep(&mut self, time: Duration) -> Tag<BuiltinCommand<()>> {
        let tag = self.start::<BuiltinCommand<()>>(None, None);
        // If the yield is cancelled or the process exits, the timer of the sleep is also cancelled.
        answer_at(&self.me.any(), tag.erase(), self.me.host().now() + time, Ok(Payload::new(())));
        tag
    }

    /// Cancels a yield, which can be a command, a call, a sleep or a stream. If a handler has already received the
    /// command, the handler sees the cancellation. If the command was not dispatched yet, no handler receives the
    /// command. After this call, no event of the yield arrives. If the answer is already in the mailbox, the answer is
    /// discarded.
    ///
    /// Returns true if the yield was in flight. Returns false if the yield was already answered or cancelled.
    pub fn cancel_yield<C>(&mut self, tag: Tag<C>) -> bool {
        self.yields().cancel(tag.erase().strip_generation())
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::{Context, Runtime};

    /// A turn must not contain a record about the mailbox of another process. If a sender writes the mailbox slot
    /// without the lock, the sender relies on these records.
    #[test]
    fn events_are_taken_only_in_the_turn_of_their_process() {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let [one, other] = [0, 1].map(|_| rt.spawn(async |mut ctx: Context<u64>| ctx.receive().await));
        one.send(7).unwrap();
        let (own, foreign) = (one.address(), other.address());
        let control = own.control();
        let mut mail = Mail::new();
        assert!(mail.events(control).next().is_none());
        Current::with(|current| {
            let _outer = current.enter(InTurn::in_test(), control.address(), own.pid(), || "one");
            let mut events = mail.events(control);
            {
                let _nested = current.enter(InTurn::in_test(), foreign.control().address(), foreign.pid(), || "other");
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

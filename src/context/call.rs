//! Calls: a process sends a request and waits for the answer. The request contains a [`Reply`], which the callee uses
//! to answer. The caller awaits a [`Call`], which is the future of the answer.
//!
//! The caller and the callee share a cell, which contains the slot for the reply. The module `answer` defines the
//! caller's half and the callee's half of this cell. This file adds the request, the time limit, and the records of the
//! calls for which a process waits.

pub(crate) mod answer;
pub(crate) mod wait;

use std::any::type_name;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use std::{fmt, mem};

use futures::future::FusedFuture;

use crate::context::address::Address;
use crate::context::call::answer::{ReplyReceiver, ReplySender};
use crate::context::time::Sleep;
use crate::host::Host;
use crate::host::control::AnyControl;
use crate::host::control::forwarded::{CallId, Forward};
use crate::host::control::waits::{Place, Wait};
use crate::host::dispatch::completion::UntypedCompletion;
use crate::host::refs::ProcessRef;
use crate::host::registry::target::{DestinationRef, Route, Target};
use crate::observe::{Counter, is_sampled_turn};
use crate::process::error::SendError;
use crate::process::event::Tag;
use crate::process::exit::Exit;
use crate::process::failure::{CallError, Failure};
use crate::process::payload::Payload;
use crate::process::pid::Pid;
use crate::process::state::Ref;
use crate::process::state::budget::BudgetPause;
use crate::process::state::current::Current;
use crate::process::watchers::WatchKey;
use crate::process::yields::Answerer;

/// The part of the cell that belongs to the caller.
struct CallRecord {
    stage: RequestStage,
    /// Source line at which the call was created. Inspections show this line. On a 64-bit system, the reference and
    /// `callee` each have 8 bytes.
    line: &'static Location<'static>,
    /// The callee's pid as one word (`Pid::word`). Inspections show this pid. The value is 0 if the callee is not
    /// known.
    callee: u64,
    /// Identifies the record of this call. The record is one of the wait records of the calling process.
    place: Place,
}

impl CallRecord {
    /// Creates the record of a call in the stage `Sent`. In this stage, the call does not contain the request. Other
    /// code has sent or will send the request. If the call itself must send the request, `call_as` then replaces the
    /// stage by `Unsent`.
    #[inline]
    fn sent(since: u64, callee: u64, line: &'static Location<'static>) -> Self {
        Self { stage: RequestStage::Sent { counted: Counted::No, since }, line, callee, place: Place::default() }
    }

    /// Returns the wait record of the call. Inspections show this record.
    #[inline]
    fn wait(&self, is_limited: bool) -> Wait {
        Wait::call(self.callee, is_limited, Some(self.line))
    }
}

/// State of the request. Only the caller accesses this state.
enum RequestStage {
    Unsent(Request),
    Sent {
        counted: Counted,
        /// Time of the request in ns. The value is 0 if the call is not measured.
        since: u64,
    },
    /// Before the call returns this result, the call takes one unit from the budget of the turn. If the budget is
    /// spent, the call first lets other processes run. Without the budget, a body that repeats a refused call would
    /// never release its worker.
    Refused(CallError, BudgetPause),
}

/// Whether the calling process counts and records a call. A counted call is an operation for which the process waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    No,
    Unlimited,
    /// The record says that the call has a time limit.
    Limited,
}

impl Counted {
    #[inline]
    fn new(counted: bool, is_limited: bool) -> Self {
        match (counted, is_limited) {
            (false, _) => Self::No,
            (true, false) => Self::Unlimited,
            (true, true) => Self::Limited,
        }
    }
}

/// The error is boxed, so that an `Answer` is small. Most answers are small values, not errors.
type Answer<T> = Result<T, Box<CallError>>;

/// The callee's half of the shared cell.
type Replier<T> = ReplySender<Caller, CallRecord, Answer<T>>;

/// The caller's half of the shared cell.
type PendingReply<T> = ReplyReceiver<Caller, CallRecord, Answer<T>>;

/// The process, host or yield to which a call belongs. Each variant gives access to a host. The caller and the callee
/// of a call share one value of this type.
enum Caller {
    /// The calling process. As soon as the request is sent, the process counts the call as an operation that the
    /// process waits for.
    Process(ProcessRef),
    /// The calling process. The call was made in a turn of this process, through an address or through a host. A
    /// handler may own the future of the call, or the future may move to a process other than the calling process.
    /// Therefore, the process counts the call only if the last poll of the future was in a step of the process.
    Within(ProcessRef),
    /// The callee. This variant is used if the call was made through an address, and not in a turn of a process.
    Callee(Ref<dyn AnyControl>),
    Host(Host),
    /// The yield that the reply answers. A hand-written process has made this call. Therefore, there is no `Call`
    /// future, and only the `Reply` refers to the cell. The completion is boxed, so that the other variants stay small.
    Yield(Box<UntypedCompletion>),
}

/// The caller, the lock and a small answer must fit into the first cache line of the cell.
const _: () = assert!(size_of::<Caller>() <= 24 && size_of::<Answer<u64>>() <= 16);

impl Caller {
    /// Returns the process that may wait for the answer, if the caller is a process.
    #[inline]
    fn calling_process(&self) -> Option<&ProcessRef> {
        match self {
            Self::Process(process) | Self::Within(process) => Some(process),
            Self::Callee(_) | Self::Host(_) | Self::Yield(_) => None,
        }
    }

    #[inline]
    fn begin_wait(&self, record: &mut CallRecord, is_limited: bool) {
        if let Some(process) = self.calling_process() {
            record.place = process.begin_wait(&record.wait(is_limited));
        }
    }

    #[inline]
    fn end_wait(&self, record: &CallRecord, is_limited: bool) {
        if let Some(process) = self.calling_process() {
            process.end_wait(record.place, || record.wait(is_limited));
        }
    }

    /// Returns whether this thread runs a step of the calling process.
    #[inline]
    fn is_stepped_here(&self) -> bool {
        self.calling_process().is_some_and(ProcessRef::is_here)
    }

    /// Returns two values. The first value is true if this thread runs a step of the calling process. The second value
    /// is true if this thread runs a step of the calling process, and `waker` is the waker of the process's task.
    #[inline]
    fn polled_by(&self, waker: &Waker) -> (bool, bool) {
        let Some(process) = self.calling_process() else { return (false, false) };
        Current::with(|current| {
            let is_here = current.steps(process.address());
            (is_here, is_here && current.is_own_waker(waker))
        })
    }

    /// Returns whether the calling process counts a sent call. `is_polled_here` says whether a step of the process
    /// polls the call now.
    #[inline]
    fn counts(&self, is_polled_here: bool) -> bool {
        is_polled_here || matches!(self, Self::Process(_))
    }

    fn host(&self) -> &Host {
        match self {
            Self::Process(control) | Self::Within(control) => control.head().host(),
            Self::Callee(control) => control.head().host(),
            Self::Host(host) => host,
            Self::Yield(untyped) => untyped.host(),
        }
    }
}

impl answer::CallParty for Caller {
    #[inline]
    fn wake(&self) {
        self.calling_process().expect("its task waits").wake_or_note();
    }
}

/// Returns the yield that the reply answers.
fn into_yield<T>(mut to: Replier<T>) -> UntypedCompletion {
    match to.party_if_alone() {
        Some(Caller::Yield(untyped)) => untyped.take(),
        _ => unreachable!("the reply of a yield has one owner"),
    }
}

/// Answers the yield to which the reply belongs.
#[cold]
fn finish<T: Send + 'static>(to: Replier<T>, value: T) -> Result<(), T> {
    let untyped = into_yield(to);
    if !untyped.is_wanted() {
        untyped.late();
        return Err(value);
    }
    untyped.finish(Ok(Payload::new(value)));
    Ok(())
}

/// Handle with which the callee answers a call. The request message contains the `Reply`. The callee can
/// [`forward`](Self::forward) the `Reply` to another process. The size of a `Reply` is one word.
///
/// If an unanswered `Reply` is dropped, the caller gets [`CallError::Dropped`]. If the process that holds the `Reply`
/// exits, the caller gets [`CallError::Died`] with the exit of this process instead. The caller also gets
/// [`CallError::Died`] if a process exits and an unread message in the mailbox of this process contains the `Reply`.
/// The caller gets [`CallError::Died`] as soon as the exit is known.
///
/// If a step drops the `Reply`, the caller gets the error at the end of the step. The reason is that only the end of
/// the step shows whether the process exits. However, if the step then calls
/// [`block_in_place`](crate::block_in_place()) or [`Runtime::block_on`](crate::Runtime::block_on), the caller gets
/// [`CallError::Dropped`] at this call. If the step waits for the caller and blocks its thread without one of these two
/// functions, the step waits forever. Such a step must block inside `block_in_place`.
pub struct Reply<T: Send + 'static> {
    to: Option<Replier<T>>,
}

/// A message that consists of a `Reply` and one more word must fit into a [`Payload`] without an allocation. Therefore
/// a `Reply` must have the size of one word.
const _: () = assert!(size_of::<Reply<u64>>() == size_of::<usize>());

impl<T: Send + 'static> Reply<T> {
    pub(crate) fn to_yield(untyped: UntypedCompletion) -> Self {
        Self {
            to: Some(ReplySender::alone(Caller::Yield(Box::new(untyped)), || {
                CallRecord::sent(0, 0, Location::caller())
            })),
        }
    }

    /// Answers the call. If the caller no longer waits for the answer, the value is dropped and counted as a late
    /// reply.
    pub fn send(self, value: T) {
        let _late = self.try_send(value);
    }

    /// Answers the call.
    ///
    /// # Errors
    /// Returns the value if the caller no longer waits for the answer. In this case, the runtime counts a late reply.
    pub fn try_send(self, value: T) -> Result<(), T> {
        let Some(to) = ManuallyDrop::new(self).to.take() else { unreachable!("a reply is used once, by value") };
        if let Caller::Yield(_) = *to {
            return finish(to, value);
        }
        to.answer(Ok(value)).map_err(|(to, refused)| {
            to.host().shared().metrics.add(Counter::LateReplies, 1);
            refused.unwrap_or_else(|_| unreachable!("a value was sent"))
        })
    }

    /// Passes this `Reply` to another process, which must then answer the call. This method calls `message` to make a
    /// message from the `Reply`. The method then sends the message like [`Address::send`]. The corresponding functions
    /// of kameo and Akka have the same name.
    ///
    /// A plain [`Address::send`] of a message that contains the `Reply` also works. However, the runtime then does not
    /// know which process must answer. After `forward`, the receiver is the
    /// [callee](crate::observe::WaitsFor::Call::callee) of the call in inspections, for example in
    /// [`Host::wait_for_graph`]. The receiver may forward the `Reply` again.
    ///
    /// The first `forward` of a `Reply` must run in a step of the process that received the request. On a thread that
    /// runs no process, the first `forward` only sends the message. If a [`Pool`](crate::Pool) is called, the pool
    /// counts as the receiver of the request. In this case, a `forward` in a member of the pool does not change the
    /// callee of the call. If the caller and `to` belong to different runtimes, inspections no longer know the callee
    /// of the call.
    ///
    /// In addition to the cost of a plain send, `forward` costs about three short critical sections and three small
    /// allocations.
    ///
    /// ```
    /// # use procession::{Address, Context, Exit, Reply, Runtime};
    /// type Question = (u64, Reply<u64>);
    ///
    /// async fn squares(mut ctx: Context<Question>) -> Result<(), Exit> {
    ///     loop {
    ///         let (number, reply) = ctx.receive().await?;
    ///         reply.send(number * number);
    ///     }
    /// }
    /// let rt = Runtime::new()?;
    /// let squares: Address<Question> = rt.spawn(squares).address();
    /// let front = rt.spawn(async move |mut ctx: Context<Question>| -> Result<(), Exit> {
    ///     loop {
    ///         let (number, reply) = ctx.receive().await?;
    ///         _ = reply.forward(&squares, |reply| (number, reply));
    ///     }
    /// });
    /// assert_eq!(rt.block_on(front.call(|reply| (12, reply)))?, 144);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    /// Returns the message if the send is refused: see [`Address::send`]. The message contains the `Reply`, so the
    /// process that called `forward` must still answer the call.
    pub fn forward<M: Send + 'static>(
        self,
        to: &Address<M>,
        message: impl FnOnce(Self) -> M,
    ) -> Result<(), SendError<M>> {
        let forward = self.begin_forward(to);
        to.send(message(self))?;
        forward.into_iter().for_each(Forward::end);
        Ok(())
    }

    /// Begins a forward. Returns `None` if no inspection shows the call. Inspections do not show the call if the caller
    /// is not a process, if this thread runs no step of a process, or if the call is over.
    fn begin_forward<M: Send + 'static>(&self, to: &Address<M>) -> Option<Forward> {
        let reply = self.to.as_ref()?;
        let (caller, id) = match &**reply {
            Caller::Yield(untyped) => (untyped.process().head(), CallId::Yield(untyped.number())),
            caller => (caller.calling_process()?.head(), CallId::Cell(reply.address())),
        };
        let shared = caller.host().shared();
        let word = |pid: Pid| if shared.pid_table.is_here(pid) { pid.word() } else { 0 };
        let from = Current::with(Current::pid).map(word);
        let key = (caller.pid().word(), id);
        let holder = caller.host().word_of(&to.destination());
        shared.forwarded.begin(key, from, holder, |waker| self.watch_end(&mut WatchKey::default(), waker))
    }

    /// Returns true if the call is over. Otherwise, the end of the call wakes `waker`.
    fn watch_end(&self, key: &mut WatchKey, waker: &Waker) -> bool {
        self.to.as_ref().is_none_or(|to| match &**to {
            Caller::Yield(untyped) => !untyped.watch(key, waker),
            _ => to.watch(key, waker),
        })
    }

    /// Returns whether the caller no longer waits for the answer.
    pub fn is_closed(&self) -> bool {
        self.to.as_ref().is_none_or(|to| match &**to {
            Caller::Yield(untyped) => !untyped.is_wanted(),
            _ => to.is_closed(),
        })
    }

    /// Completes as soon as the caller no longer waits for the answer.
    ///
    /// # Cancel safety
    /// This method is cancel safe. If the future is dropped, the call continues. After the drop, the end of the call no
    /// longer wakes the task that has polled the future.
    pub async fn closed(&self) {
        Closed { reply: self, key: WatchKey::default() }.await;
    }
}

/// The future of [`Reply::closed`]. The drop of this future removes its waker.
struct Closed<'a, T: Send + 'static> {
    reply: &'a Reply<T>,
    key: WatchKey,
}

impl<T: Send + 'static> Future for Closed<'_, T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { reply, key } = &mut *self;
        if reply.watch_end(key, cx.waker()) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<T: Send + 'static> Drop for Closed<'_, T> {
    fn drop(&mut self) {
        let Some(to) = &self.reply.to else { return };
        match &**to {
            Caller::Yield(untyped) => untyped.unwatch(&mut self.key),
            _ => to.unwatch(&mut self.key),
        }
    }
}

impl<T: Send + 'static> Drop for Reply<T> {
    fn drop(&mut self) {
        let Some(to) = self.to.take() else { return };
        let tell = |to: Replier<T>, exit: Option<&Exit>| {
            let error = exit.map_or(CallError::Dropped, |exit| CallError::Died(exit.clone()));
            match *to {
                Caller::Yield(_) => into_yield(to).finish(Err(Failure::new(error))),
                _ => drop(to.answer(Err(Box::new(error)))),
            }
        };
        if let Err(to) = Current::with(|current| current.keep_dropped_reply(to, tell)) {
            tell(to, None);
        }
    }
}

impl<T: Send + 'static> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply<{}>", type_name::<T>())
    }
}

/// The request of a call. The send takes the message out of the request, and leaves `None`.
enum Request {
    /// A request to a control block. The message in the payload has the message type of the target.
    Here(Ref<dyn AnyControl>, Option<Payload>),
    /// A request to a pid or a name. The closure sends the request once. If the request is refused, the message stays
    /// in the closure.
    There(Box<dyn FnMut() -> Result<(), CallError> + Send>),
}

impl Request {
    #[inline]
    fn send(&mut self) -> Result<(), Box<CallError>> {
        match self {
            Self::Here(to, message) => to.deliver_from(message).map_err(|refusal| {
                to.head().count(Counter::Refused);
                Box::new(CallError::Send(*refusal))
            }),
            Self::There(send) => send().map_err(Box::new),
        }
    }
}

/// Future of a call, which resolves to the reply. If the future is dropped, the call is cancelled. A reply that the
/// callee sends after the cancellation is dropped and counted as late.
///
/// # Errors
/// - [`CallError::Send`] if the request is refused;
/// - [`CallError::Dropped`] if the callee drops the [`Reply`];
/// - [`CallError::Died`] if the callee exits while it holds the [`Reply`];
/// - [`CallError::TimedOut`] if the time limit of [`timeout`](Self::timeout) has passed.
///
/// # Cancel safety
/// This future is not cancel safe: if the future is dropped, the reply is lost. A request that was already sent stays
/// in the mailbox of the callee.
#[must_use = "futures do nothing unless polled"]
pub struct Call<T> {
    // The future is moved before its first poll, so the future should be small. Therefore the request is stored in the
    // shared cell, and the future has only two words.
    /// The caller's half of the cell. The field is `None` after the call has ended.
    pending: Option<PendingReply<T>>,
    limit: Option<Box<Sleep>>,
}

impl<T> fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Call<{}>", type_name::<T>())
    }
}

/// Sends the request of an unsent call.
fn send<T>(pending: &mut PendingReply<T>, is_limited: bool) {
    let (party, record) = pending.parts();
    let RequestStage::Unsent(request) = &mut record.stage else { unreachable!("only an unsent call is sent") };
    match request.send() {
        Ok(()) => {
            let counted = Counted::new(party.counts(false), is_limited);
            // The host is looked up only in a sampled turn, because most calls are not measured.
            let since = if is_sampled_turn() { party.host().sampled_now() } else { 0 };
            record.stage = RequestStage::Sent { counted, since };
            if counted != Counted::No {
                party.begin_wait(record, is_limited);
            }
        }
        Err(error) => {
            // The refused request may still contain the message, and the message may contain the callee's half of this
            // cell. The drop of the callee's half must not wake the caller. Therefore the slot is closed first.
            let refused = mem::replace(&mut record.stage, RequestStage::Refused(*error, BudgetPause::default()));
            pending.close();
            drop(refused);
        }
    }
}

/// Checks whether the calling process must count and record a sent call, and updates the count. `is_polled_here` says
/// whether a step of the process polls the call now. Returns whether the count has changed.
fn update_count<T>(pending: &mut PendingReply<T>, is_polled_here: bool, is_limited: bool) -> bool {
    let (party, record) = pending.parts();
    let RequestStage::Sent { counted, .. } = &mut record.stage else { return false };
    let counts = party.counts(is_polled_here);
    if (*counted != Counted::No) == counts {
        return false;
    }
    let former = mem::replace(counted, Counted::new(counts, is_limited));
    if counts {
        party.begin_wait(record, is_limited)
    } else {
        party.end_wait(record, former == Counted::Limited)
    }
    true
}

impl<T> Call<T> {
    /// Sends the request immediately. Without `start`, the first poll of the future sends the request.
    pub fn start(mut self) -> Self {
        if let Some(pending) = &mut self.pending
            && let RequestStage::Unsent(_) = pending.parts().1.stage
        {
            // Until the first poll, the task does not wait for the answer. Therefore an answer that arrives before the
            // first poll must not wake the task.
            pending.listen_later();
            send(pending, self.limit.is_some());
        }
        self
    }

    /// Ends the call. `answered` is true if the answer was already taken. In this case, this function does not close
    /// the slot of the cell.
    fn end(&mut self, answered: bool) {
        // Most calls have no time limit. Without this check, the assignment would call the destructor of the field even
        // if the field is `None`.
        if self.limit.is_some() {
            self.limit = None;
        }
        let Some(mut pending) = self.pending.take() else { return };
        let (party, record) = pending.parts();
        match record.stage {
            RequestStage::Sent { counted, since } => {
                if counted != Counted::No {
                    party.end_wait(record, counted == Counted::Limited);
                }
                if !answered {
                    pending.close();
                } else if since != 0 {
                    party.host().sample_call(since);
                }
            }
            // The unsent request contains the callee's half of the cell, and the cell contains the request. Without
            // this drop, this cycle of references would never be freed. The slot is closed first, because the drop of
            // the callee's half must not wake the caller.
            RequestStage::Unsent(_) => {
                let request = mem::replace(&mut record.stage, RequestStage::Sent { counted: Counted::No, since: 0 });
                pending.close();
                drop(request);
            }
            RequestStage::Refused(..) => {}
        }
    }

    /// Takes the answer if the request was sent and the answer is in the cell. The function that made the request may
    /// have kept the `Reply`, and may answer before the request is sent. An answer that is given before the request is
    /// sent stays in the cell until the request is sent.
    #[inline(always)]
    fn take(&mut self) -> Option<Result<T, CallError>> {
        let pending = self.pending.as_mut()?;
        let RequestStage::Sent { .. } = pending.parts().1.stage else { return None };
        let answer = pending.take()?;
        self.end(true);
        Some(answer.map_err(|error| *error))
    }

    /// Sets a time limit. The time limit starts when this method is called. If the reply does not arrive in time, the
    /// future fails with [`CallError::TimedOut`]. A second time limit replaces the first time limit.
    pub fn timeout(mut self, time: Duration) -> Self {
        if let Some(pending) = &mut self.pending {
            let limit = Box::new(pending.party().host().limit(time));
            self.limit = Some(limit);
            self.record_limit();
        }
        self
    }
}

impl<T> Call<T> {
    /// Polls the time limit. If the call has no time limit, the result is `Poll::Pending`.
    fn poll_limit(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.limit.as_deref_mut().map_or(Poll::Pending, |limit| Pin::new(limit).poll(cx))
    }
}

impl<T> Future for Call<T> {
    type Output = Result<T, CallError>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // When a future is polled for the second time, the answer has usually arrived. This path is inlined into the
        // code that awaits the future. Without the inlining, the return from this function would move the answer once
        // more.
        match self.take() {
            Some(answer) => Poll::Ready(answer),
            None => self.poll_slowly(cx),
        }
    }
}

impl<T> Call<T> {
    #[inline(never)]
    fn poll_slowly(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, CallError>> {
        let this = self;
        let Some(pending) = &mut this.pending else { return Poll::Pending };
        let (is_here, is_task) = pending.parts().0.polled_by(cx.waker());
        // The request is sent first. `listen` may clone the waker, and a panic in this clone must not prevent the send.
        if let RequestStage::Unsent(_) = pending.parts().1.stage {
            send(pending, this.limit.is_some());
        }
        // The waker must be registered before `take` is called. If `take` finds no answer, a later answer wakes the
        // registered waker.
        pending.listen(is_task, cx.waker());
        if let Some(answer) = this.take() {
            return Poll::Ready(answer);
        }
        let Some(pending) = &mut this.pending else { unreachable!("only an answered call is over") };
        let (party, record) = pending.parts();
        let answer = match &mut record.stage {
            RequestStage::Sent { counted, .. } => {
                if (*counted != Counted::No) != party.counts(is_here) {
                    update_count(pending, is_here, this.limit.is_some());
                }
                let limit = this.limit.as_deref_mut().map(|limit| Pin::new(limit).poll(cx));
                match limit {
                    Some(Poll::Ready(())) => Err(CallError::TimedOut),
                    _ => return Poll::Pending,
                }
            }
            RequestStage::Refused(error, pause) => {
                ready!(pause.spend(cx));
                Err(error.clone())
            }
            RequestStage::Unsent(_) => unreachable!("sent above"),
        };
        this.end(false);
        Poll::Ready(answer)
    }
}

impl<T> FusedFuture for Call<T> {
    fn is_terminated(&self) -> bool {
        self.pending.is_none()
    }
}

impl<T> Drop for Call<T> {
    #[inline]
    fn drop(&mut self) {
        // Most calls have ended before the future is dropped. This check avoids the call of `end`, which is not inlined
        // and saves many registers at its start.
        if self.pending.is_some() {
            self.end(false);
        }
    }
}

/// Sends a request. If the request is refused, this function counts the refusal in the metrics of the caller's host.
fn send_request<N: Send + 'static>(host: &Host, to: &DestinationRef<'_, N>, request: N) -> Result<(), SendError<N>> {
    match to {
        DestinationRef::Here(control) => control.push(request).map_err(|(refusal, request)| {
            host.shared().metrics.add(Counter::Refused, 1);
            SendError::new(refusal, request)
        }),
        destination => host.send_by(destination, request),
    }
}

/// Creates a call and its request, but does not send the request. The caller of this function must send the returned
/// request. If `calling_process` is `None`, the call belongs to the process whose step this thread runs. If this thread
/// runs no step of a process, the call belongs to the host. `callee` is the callee's pid as one word (`Pid::word`), or
/// 0 if the callee is not known. `line` is the source line that makes the call.
pub(crate) fn sent_elsewhere<N, T: Send + 'static>(
    host: &Host,
    calling_process: Option<ProcessRef>,
    (callee, line): (u64, &'static Location<'static>),
    request: impl FnOnce(Reply<T>) -> N,
) -> (Call<T>, N) {
    let of_turn = || ProcessRef::of_turn(host).map_or_else(|| Caller::Host(host.clone()), Caller::Within);
    let party = || calling_process.map_or_else(of_turn, Caller::Process);
    let since = host.sampled_now();
    let (pending, other) = ReplyReceiver::new(false, party, || CallRecord::sent(since, callee, line));
    (Call { pending: Some(pending), limit: None }, request(Reply { to: Some(other) }))
}

impl<T> Call<T> {
    /// Begins to measure the call, because its request was sent just now.
    pub(crate) fn begin_measurement(&mut self) {
        let Some(pending) = &mut self.pending else { return };
        let (party, record) = pending.parts();
        if let RequestStage::Sent { since, .. } = &mut record.stage {
            *since = party.host().sampled_now();
        }
    }

    /// Checks whether the calling process must count and record a sent call, and updates the count. `is_polled` says
    /// whether the future is polled now. Returns whether the count has changed.
    pub(crate) fn update_count(&mut self, is_polled: bool, is_limited: bool) -> bool {
        let Some(pending) = &mut self.pending else { return false };
        let is_here = is_polled && pending.party().is_stepped_here();
        update_count(pending, is_here, is_limited)
    }

    /// Records that the call has a time limit, if the calling process has a record of the call.
    pub(crate) fn record_limit(&mut self) {
        let Some(pending) = &mut self.pending else { return };
        let (party, record) = pending.parts();
        if let RequestStage::Sent { counted: counted @ Counted::Unlimited, .. } = &mut record.stage {
            *counted = Counted::Limited;
            party.end_wait(record, false);
            party.begin_wait(record, true);
        }
    }

    /// Sets the callee of a call that the calling process does not count yet.
    pub(crate) fn set_callee(&mut self, callee: Pid) {
        if let Some(pending) = &mut self.pending {
            pending.parts().1.callee = callee.word();
        }
    }
}

impl Host {
    /// Returns a future that sends a request and resolves to the reply: see [`Address::call`](crate::Address::call). If
    /// `to` is a name or a pid, the runtime looks up the process when the request is sent.
    #[track_caller]
    pub fn call<N: Send + 'static, T: Send + 'static>(
        &self,
        to: impl Target<N>,
        request: impl FnOnce(Reply<T>) -> N,
    ) -> Call<T> {
        self.call_as(ProcessRef::of_turn(self), Caller::Within, to, request)
    }

    #[track_caller]
    pub(crate) fn call_from<N: Send + 'static, T: Send + 'static>(
        &self,
        calling_process: ProcessRef,
        to: impl Target<N>,
        request: impl FnOnce(Reply<T>) -> N,
    ) -> Call<T> {
        self.call_as(Some(calling_process), Caller::Process, to, request)
    }

    #[inline(always)]
    #[track_caller]
    fn call_as<N: Send + 'static, T: Send + 'static>(
        &self,
        calling_process: Option<ProcessRef>,
        as_caller: impl FnOnce(ProcessRef) -> Caller,
        to: impl Target<N>,
        request: impl FnOnce(Reply<T>) -> N,
    ) -> Call<T> {
        let (destination, is_in_turn, line) = (to.destination(), calling_process.is_some(), Location::caller());
        let callee = self.word_of(&destination);
        let party = || match (calling_process, &destination) {
            (Some(calling_process), _) => as_caller(calling_process),
            (None, DestinationRef::Here(control)) => Caller::Callee(control.any()),
            (None, DestinationRef::Pid(_) | DestinationRef::Name(_)) => Caller::Host(self.clone()),
        };
        let record = || CallRecord::sent(0, callee, line);
        let (mut pending, other) = ReplyReceiver::new(is_in_turn, party, record);
        let message = request(Reply { to: Some(other) });
        let request = match destination {
            DestinationRef::Here(control) => Request::Here(control.any(), Some(Payload::new(message))),
            destination => {
                let (host, to, mut message) = (self.clone(), destination.keep(), Some(message));
                Request::There(Box::new(move || {
                    let sent = send_request(&host, &to.destination(), message.take().expect("it is sent once"));
                    sent.map_err(|refused| {
                        let kind = refused.kind();
                        message = Some(refused.into_message());
                        CallError::Send(kind)
                    })
                }))
            }
        };
        // The previous stage is `Sent`, which owns nothing. Therefore this stage does not have to be dropped. An
        // assignment would call the destructor of `RequestStage`, which is a function call.
        let former = mem::replace(&mut pending.parts().1.stage, RequestStage::Unsent(request));
        debug_assert!(matches!(former, RequestStage::Sent { .. }), "the record of a new call has the stage `Sent`");
        mem::forget(former);
        Call { pending: Some(pending), limit: None }
    }
}

/// Sends a request on behalf of a hand-written process. The reply answers the yield with this tag.
pub(crate) fn call_as_yield<N: Send + 'static, T: Send + 'static>(
    control: &Ref<dyn AnyControl>,
    tag: Tag,
    to: &DestinationRef<'_, N>,
    request: impl FnOnce(Reply<T>) -> N,
) {
    let message = request(Reply::to_yield(UntypedCompletion::new(control.clone(), tag)));
    if let Err(refused) = send_request(control.head().host(), to, message) {
        let error = CallError::Send(refused.kind());
        // The drop of the refused message also drops its `Reply`, and this drop answers the yield with `Dropped`. Only
        // the first answer to a yield takes effect. Therefore the refusal must answer the yield before the message is
        // dropped.
        let _ = control.complete(tag, &mut Some(Err(Failure::new(error))), Answerer::Runtime);
        drop(refused);
    }
}

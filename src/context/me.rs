//! Defines [`SelfHandle`]. A process uses its `SelfHandle` to send messages, call other processes, yield commands and
//! set timers. The other modules of this folder define the futures that the methods of `SelfHandle` return.

use std::fmt;
use std::panic::Location;
use std::task::Poll;
use std::time::Duration;

use crate::context::address::Address;
use crate::context::address::send_wait::SendWait;
use crate::context::call::wait::CallWait;
use crate::context::call::{Call, Reply};
use crate::context::multi_call::{Callees, MultiCall};
use crate::context::perform::Perform;
use crate::context::stream::ItemStream;
use crate::context::time::interval::Interval;
use crate::context::time::send_after::TimerRef;
use crate::context::time::{Sleep, Sleeper, Timeout, send_after as later};
use crate::host::Host;
use crate::host::cancel::{CancelToken, Cancelled, UntilCancelled};
use crate::host::control::{AnyControl, Control};
use crate::host::refs::{ProcessRef, SleeperRef};
use crate::host::registry::target::Target;
use crate::platform::clock::Instant;
use crate::platform::sync::Arc;
use crate::process::command::{Command, StreamCommand};
use crate::process::error::SendError;
use crate::process::exit::Exit;
use crate::process::failure::Failure;
use crate::process::payload::Payload;
use crate::process::pid::Pid;
use crate::process::state::Ref;
use crate::process::state::current::Current;

/// Handle of a process to itself. A `SelfHandle` has all operations of a [`Context`](crate::Context), but cannot
/// receive messages or events.
///
/// A `SelfHandle` is cheap to clone. The futures of [`yield_now`](Self::yield_now) and [`scope`](Self::scope) borrow
/// the `SelfHandle`. The futures of all other methods do not borrow the `SelfHandle`. Most futures start their
/// operation at the first poll. The duration of a [`sleep`](Self::sleep) or a [`timeout`](Self::timeout) starts when
/// the method is called. If a future is dropped, its operation is cancelled. However, if a call has already sent its
/// request, the request stays in the mailbox of the callee. Only the process itself can poll the futures of
/// [`perform`](Self::perform) and [`stream`](Self::stream).
pub struct SelfHandle<M = Payload> {
    control: Ref<Control<M>>,
}

impl<M> Clone for SelfHandle<M> {
    fn clone(&self) -> Self {
        Self { control: self.control.clone() }
    }
}

impl<M> fmt::Debug for SelfHandle<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SelfHandle").field(&self.control.head.pid()).finish()
    }
}

impl<M: Send + 'static> SelfHandle<M> {
    pub(crate) fn new(control: Ref<Control<M>>) -> Self {
        Self { control }
    }

    pub(crate) fn control(&self) -> &Ref<Control<M>> {
        &self.control
    }

    pub(crate) fn any(&self) -> Ref<dyn AnyControl> {
        self.control.any()
    }

    /// Returns a new reference to this process for a future that waits for an answer.
    #[inline]
    fn waiter(&self) -> ProcessRef {
        ProcessRef::new(self.any())
    }

    /// Returns a [`Sleeper`] that refers to this process, for a new sleep.
    #[inline]
    fn sleeper(&self) -> Sleeper {
        Sleeper::Process(SleeperRef::of(self.control.address(), || self.any()))
    }

    /// Returns the pid of this process.
    pub fn pid(&self) -> Pid {
        self.control.head.pid()
    }

    /// Returns the typed address of this process.
    pub fn address(&self) -> Address<M> {
        Address::new(self.control.clone())
    }

    /// Returns the host of this process.
    pub fn host(&self) -> &Host {
        self.control.head.host()
    }

    // ---- Commands and messages

    /// Returns a future that yields a command at its first poll, and resolves to the answer. With `join!`, `select!` or
    /// `FuturesUnordered`, several commands can be in flight at the same time.
    ///
    /// ```
    /// # use procession::{Command, Context, Failure, Runtime};
    /// struct Double(u64);
    /// impl Command for Double { type Reply = u64; }
    ///
    /// async fn body(ctx: Context) -> Result<u64, Failure> {
    ///     let (a, b) = futures::join!(ctx.perform(Double(1)), ctx.perform(Double(2)));
    ///     Ok(a? + b?)
    /// }
    /// let rt = Runtime::builder().handle(|c: Double| c.0 * 2).build()?;
    /// assert_eq!(rt.block_on(rt.spawn(body))?, 6);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    /// - [`Failure::Error`], [`Failure::Panicked`] or [`Failure::Abandoned`] if the handler fails;
    /// - [`Failure::NoHandler`] if no handler is registered for the command;
    /// - [`Failure::Overloaded`] if the queue of the blocking pool or of a handler layer is full;
    /// - [`Failure::TimedOut`] if the time limit of [`Perform::timeout`] has passed;
    /// - [`Failure::Cancelled`] if the yield was cancelled;
    /// - [`Failure::Outside`] if the future is polled outside this process.
    ///
    /// # Cancel safety
    /// If the future is dropped, the command is cancelled. The handler sees the cancellation, and a late answer is
    /// discarded. After a call of [`Perform::detach`], the command continues, and its answer is discarded.
    #[track_caller]
    pub fn perform<C: Command>(&self, command: C) -> Perform<C> {
        Perform::new(self.waiter(), command, Location::caller())
    }

    /// Returns a `Stream` of the items of a stream command. The first poll of the stream yields the command. After the
    /// last item, [`last`](ItemStream::last) returns the reply. The handler can send at most [`StreamCommand::BUFFER`]
    /// items that the process has not pulled yet.
    ///
    /// # Cancel safety
    /// If the future of `next()` is dropped, no item is lost. If the stream itself is dropped, the command is
    /// cancelled, and the handler sees the cancellation.
    #[track_caller]
    pub fn stream<C: StreamCommand>(&self, command: C) -> ItemStream<C> {
        ItemStream::new(self.waiter(), command, Location::caller())
    }

    /// Sends a message. This method never waits. The method calls [`Host::send`].
    ///
    /// # Errors
    /// If the message is refused, the error contains the message and the reason.
    pub fn send<N: Send + 'static>(&self, to: impl Target<N>, message: N) -> Result<(), SendError<N>> {
        self.host().send(to, message)
    }

    /// Sends an urgent message. This method calls [`Host::send_urgent`].
    ///
    /// # Errors
    /// If the message is refused, the error contains the message and the reason.
    pub fn send_urgent<N: Send + 'static>(&self, to: impl Target<N>, message: N) -> Result<(), SendError<N>> {
        self.host().send_urgent(to, message)
    }

    /// Returns a future that sends a message. If the mailbox is full, the future waits for free space. This method
    /// calls [`Host::send_wait`].
    ///
    /// # Errors
    /// If the message is refused, the error contains the message and the reason: see [`SendWait`].
    ///
    /// # Cancel safety
    /// If the future is dropped while its message waits for free space, the message is not sent. If the message has
    /// entered the mailbox before the drop, the message stays there.
    #[track_caller]
    pub fn send_wait<N: Send + 'static>(&self, to: impl Target<N>, message: N) -> SendWait<N> {
        self.host().send_wait(to, message)
    }

    /// Returns a future that sends a request and resolves to the reply: see [`Address::call`].
    #[track_caller]
    pub fn call<N: Send + 'static, T: Send + 'static>(
        &self,
        to: impl Target<N>,
        request: impl FnOnce(Reply<T>) -> N,
    ) -> Call<T> {
        self.host().call_from(self.waiter(), to, request)
    }

    /// Returns a future that sends a request and resolves to the reply. If the mailbox is full, the future waits for
    /// free space: see [`Address::call_wait`].
    #[track_caller]
    pub fn call_wait<N: Send + 'static, T: Send + 'static>(
        &self,
        to: impl Target<N>,
        request: impl FnOnce(Reply<T>) -> N,
    ) -> CallWait<N, T> {
        CallWait::new(self.host(), Some(self.waiter()), to.destination().keep(), request)
    }

    /// Calls several processes at the same time: see [`Host::multi_call`].
    #[track_caller]
    pub fn multi_call<N: Send + 'static, T: Send + 'static>(
        &self,
        to: impl Callees<N>,
        request: impl FnMut(Reply<T>) -> N,
    ) -> MultiCall<N, T> {
        MultiCall::new(self.host(), Some(&self.waiter()), to, request)
    }

    // ---- Time and random numbers

    /// Returns the current time of the runtime's clock.
    pub fn now(&self) -> Instant {
        self.host().now()
    }

    /// Returns a random number. In a simulation, the seed determines this number.
    pub fn random(&self) -> u64 {
        self.host().random()
    }

    /// Returns a future that resolves when the duration `time` has passed. The duration starts when `sleep` is called.
    #[inline(always)]
    #[track_caller]
    pub fn sleep(&self, time: Duration) -> Sleep {
        Sleep::for_time(self.sleeper(), self.seen_now(), time, Some(Location::caller()))
    }

    /// Reads the clock. If this thread runs a step of this process, the method also reports the read time to the
    /// current turn. The turn records only the first time that is reported in the turn. A sleep needs this record to
    /// reuse the timer of an earlier sleep.
    #[inline(never)]
    fn seen_now(&self) -> Instant {
        let now = self.now();
        Current::with(|current| {
            if current.steps(self.control.address()) {
                current.saw(now);
            }
        });
        now
    }

    /// Returns a future that resolves at the time `at`. If this time has already passed, the future resolves at its
    /// first poll, or after other processes have run: see [`Sleep`].
    #[track_caller]
    pub fn sleep_until(&self, at: Instant) -> Sleep {
        Sleep::new(self.sleeper(), at, Some(Location::caller()))
    }

    /// Returns an interval that ticks once per period. The first tick is due one period after this call.
    ///
    /// # Panics
    /// Panics if the period is zero.
    #[track_caller]
    pub fn interval(&self, every: Duration) -> Interval {
        self.interval_at(self.now() + every, every)
    }

    /// Returns an interval that ticks once per period. The first tick is due at the time `first`. If this time has
    /// already passed, the first tick is due immediately.
    ///
    /// # Panics
    /// Panics if the period is zero.
    #[track_caller]
    pub fn interval_at(&self, first: Instant, every: Duration) -> Interval {
        self.check_period(every);
        Interval::new(self.sleep_until(first), every)
    }

    /// Runs `future` with a time limit. The returned future resolves to the output of `future`. If `future` is not
    /// ready before the time limit, the returned future fails with [`Failure::TimedOut`]. The time limit starts when
    /// `timeout` is called. If `future` and the timer are ready in the same poll, the returned future resolves to the
    /// output.
    ///
    /// # Errors
    /// [`Failure::TimedOut`] if the time limit passes before `future` is ready.
    ///
    /// # Cancel safety
    /// The returned future is as cancel safe as `future`. After the time limit, `future` is dropped together with the
    /// returned future.
    #[track_caller]
    pub fn timeout<F: Future>(
        &self,
        time: Duration,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Failure>> + use<F, M> {
        Timeout::new(future, self.sleep(time))
    }

    /// Sends a message after the duration `time`. If this process exits before the duration has passed, the message is
    /// not sent. If the receiver refuses the message, the runtime drops the message and counts a refused message. A
    /// message of any type can be sent to a pid. If this type is not the message type of the receiver, the receiver
    /// refuses the message. With an [`Address`](crate::Address) as receiver, the compiler checks the type.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use procession::{Context, Exit, Runtime};
    /// let rt = Runtime::new()?;
    /// let reminded = rt.spawn(async |mut ctx: Context<&'static str>| -> Result<_, Exit> {
    ///     let late = ctx.send_after(Duration::from_secs(60), &ctx.address(), "never");
    ///     ctx.send_after(Duration::from_millis(1), &ctx.address(), "now");
    ///     let message = ctx.receive().await?;
    ///     assert!(ctx.cancel_timer(late).is_some());
    ///     Ok(message)
    /// });
    /// assert_eq!(rt.block_on(reminded)?, "now");
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn send_after<N: Send + 'static>(&self, time: Duration, to: impl Target<N>, message: N) -> TimerRef {
        later::send_at(&self.any(), self.now() + time, to, message)
    }

    /// Sends a clone of a message once per period. The first clone is sent one period after this call. If the timer
    /// fires late, the timer skips the periods that have passed. Therefore a delay causes no burst of messages.
    ///
    /// The timer ends when the timer is cancelled, when this process exits, or when `clone` panics. The timer also ends
    /// when a message is refused. However, the timer continues in two cases: the mailbox is full, or `to` is a name
    /// that no process currently has.
    ///
    /// # Panics
    /// Panics if the period is zero.
    #[track_caller]
    pub fn send_interval<N: Clone + Send + 'static>(
        &self,
        every: Duration,
        to: impl Target<N>,
        message: N,
    ) -> TimerRef {
        self.check_period(every);
        later::send_every(self.any(), every, to, message)
    }

    #[track_caller]
    fn check_period(&self, every: Duration) {
        assert!(!every.is_zero(), "process {} made an interval of zero; pass a period longer than zero", self.pid());
    }

    /// Cancels a timer of this process. If the timer was active, returns the remaining time until the timer would have
    /// fired. In this case, the message will not be sent. Returns `None` if the message was already sent, the timer was
    /// already cancelled, or the timer belongs to another process.
    ///
    /// A timer of [`send_interval`](Self::send_interval) stays active after each message. If another thread sends a
    /// message of this timer at the moment of the cancellation, this message may still arrive.
    pub fn cancel_timer(&self, timer: TimerRef) -> Option<Duration> {
        later::cancel(&self.control.head, timer)
    }

    // ---- Scheduling and life cycle

    /// Lets other processes run. The tasks that are already in the queue run before this process runs again. The future
    /// resolves in the next step of this process.
    pub async fn yield_now(&self) {
        let mut yielded = false;
        std::future::poll_fn(|cx| {
            if yielded {
                return Poll::Ready(());
            }
            yielded = true;
            Current::with(|current| {
                if current.steps(self.control.address()) {
                    current.note_again();
                }
            });
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Returns a future that waits until this process is asked to exit. The future resolves to the reason of the
    /// request. If the process was already asked to exit, the future resolves in its first poll. There is one
    /// exception: if the budget of the turn is spent, this poll may be pending (see
    /// [`should_yield`](crate::should_yield)). Use this method in a body that does not wait for its mailbox.
    pub fn cancelled(&self) -> Cancelled {
        Cancelled::new(self.any())
    }

    /// Runs a future until the future completes or this process is asked to exit. When the process is asked to exit,
    /// `future` is dropped. If `future` is ready in the poll that notices the request, the output of `future` is
    /// returned. If the process was asked to exit before the first poll, `future` is never polled.
    ///
    /// ```
    /// # use procession::{Context, Exit, Reason, Runtime};
    /// async fn client(ctx: Context) -> Result<(), Exit> {
    ///     // A future that does not use the runtime, for example a read of a socket.
    ///     ctx.run_until_cancelled(futures::future::pending::<()>()).await
    /// }
    /// let rt = Runtime::new()?;
    /// let client = rt.spawn(client);
    /// rt.cancel(client.pid(), "logged out", std::time::Duration::from_secs(1))?;
    /// assert_eq!(rt.block_on(client).unwrap_err().to_string(), "cancelled: logged out");
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    /// [`Exit::Cancelled`] with the reason of the request. With the `?` operator, the body returns this error, and the
    /// process exits.
    ///
    /// # Cancel safety
    /// The returned future is as cancel safe as `future`.
    pub fn run_until_cancelled<F: Future>(
        &self,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Exit>> + use<F, M> {
        UntilCancelled::new(future, self.cancelled())
    }

    /// Returns whether this process was asked to exit.
    pub fn is_cancelled(&self) -> bool {
        self.control.head.is_cancelled()
    }

    /// Reports that this process has started. Only a process that was spawned with
    /// [`ProcessBuilder::manual_start`](crate::ProcessBuilder::manual_start) needs this call.
    pub fn mark_started(&self) {
        self.control.head.started();
    }

    /// Returns the cancel token of this process. The token cancels this process and all processes that this process
    /// spawns. Returns `None` if the process has neither its own token nor an inherited token.
    pub fn cancel_token(&self) -> Option<CancelToken> {
        self.control.head.inherited().cancel_token().cloned()
    }

    /// Returns the deadline of this process. At the deadline, the runtime asks the process to exit. If the process has
    /// its own deadline and an inherited deadline, returns the earlier deadline. Returns `None` if the process has no
    /// deadline.
    pub fn deadline(&self) -> Option<Instant> {
        self.control.head.inherited().deadline()
    }

    /// Returns the inherited value of the type `T`, if there is one. The parent of this process has either set this
    /// value or inherited this value.
    pub fn value<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.control.head.inherited().value()
    }
}

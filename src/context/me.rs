//! The acting half of a context: what a body is given to do something to the world.

use std::fmt;
use std::task::Poll;
use std::time::Duration;

use crate::context::address::Address;
use crate::context::address::send_wait::SendWait;
use crate::context::call::{Call, Reply};
use crate::context::perform::Perform;
use crate::context::stream::Replies;
use crate::context::time::interval::Interval;
use crate::context::time::send_after::TimerRef;
use crate::context::time::{Sleep, Sleeper, Timeout, send_after as later};
use crate::host::cancel::{CancelToken, Cancelled};
use crate::host::control::{AnyControl, Control};
use crate::host::refs::Home;
use crate::host::{Host, Target};
use crate::platform::clock::Instant;
use crate::platform::sync::Arc;
use crate::process::command::{Command, StreamCommand};
use crate::process::error::SendError;
use crate::process::failure::Failure;
use crate::process::payload::Payload;
use crate::process::pid::Pid;
use crate::process::state::Ref;
use crate::process::state::current::Current;

/// The acting half of a [`Context`](crate::Context): everything that a process does to the world.
///
/// Cheap to clone. Its futures borrow nothing, start when they are first polled, and are cancelled when they are
/// dropped; those of [`perform`](Self::perform) work inside their own process only.
pub struct Me<M = Payload> {
    control: Ref<Control<M>>,
}

impl<M> Clone for Me<M> {
    fn clone(&self) -> Self {
        Self { control: self.control.clone() }
    }
}

impl<M> fmt::Debug for Me<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Me").field(&self.control.head.pid()).finish()
    }
}

impl<M: Send + 'static> Me<M> {
    pub(crate) fn new(control: Ref<Control<M>>) -> Self {
        Self { control }
    }

    pub(crate) fn control(&self) -> &Ref<Control<M>> {
        &self.control
    }

    pub(crate) fn any(&self) -> Ref<dyn AnyControl> {
        self.control.any()
    }

    /// For a future that works for this process.
    #[inline]
    pub(crate) fn home(&self) -> Home {
        Home::new(self.any())
    }

    /// The pid of this process.
    pub fn pid(&self) -> Pid {
        self.control.head.pid()
    }

    /// The typed address of this process.
    pub fn address(&self) -> Address<M> {
        Address::new(self.control.clone())
    }

    /// The host that this process lives in.
    pub fn host(&self) -> &Host {
        self.control.head.host()
    }

    // ---- What it wants

    /// Yields a command at the first poll and resolves to its answer. Several may be in flight, under `join!`,
    /// `select!` or `FuturesUnordered`.
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
    /// What the handler failed with; [`Failure::NoHandler`] when there is none; [`Failure::Outside`] when it is polled
    /// outside this process.
    ///
    /// # Cancel safety
    /// Dropped, the command is cancelled: its handler sees that, and a late answer is discarded.
    /// [`Perform::detach`] lets it run on.
    pub fn perform<C: Command>(&self, command: C) -> Perform<C> {
        Perform::new(self.home(), command)
    }

    /// Yields a command that is answered many times, at the first poll: a `Stream` of its items, then
    /// [`last`](Replies::last) for its reply. The handler is at most [`StreamCommand::BUFFER`] items ahead.
    ///
    /// # Cancel safety
    /// A dropped `next()` has taken nothing. Dropped itself, the stream is given up: its handler sees that.
    pub fn stream<C: StreamCommand>(&self, command: C) -> Replies<C> {
        Replies::new(self.home(), command)
    }

    /// Sends a message; never waits. As [`Host::send`].
    ///
    /// # Errors
    /// The message and why it was refused.
    pub fn send<N: Send + 'static>(&self, to: impl Target<N>, message: N) -> Result<(), SendError<N>> {
        self.host().send(to, message)
    }

    /// Sends a message, and waits for room where the mailbox is full. As [`Host::send_wait`].
    ///
    /// # Errors
    /// The message and why it was refused: see [`SendWait`].
    ///
    /// # Cancel safety
    /// Dropped, the message was not sent, unless there was room by then.
    pub fn send_wait<N: Send + 'static>(&self, to: impl Target<N>, message: N) -> SendWait<N> {
        self.host().send_wait(to, message)
    }

    /// Asks, and resolves to the reply. As [`Address::call`].
    pub fn call<N: Send + 'static, T: Send + 'static>(
        &self,
        to: impl Target<N>,
        request: impl FnOnce(Reply<T>) -> N,
    ) -> Call<T> {
        self.host().call_from(self.home(), to, request)
    }

    // ---- Time and chance

    /// What time it is, on the runtime's clock.
    pub fn now(&self) -> Instant {
        self.host().now()
    }

    /// A random number; from the seed, in a simulation.
    pub fn random(&self) -> u64 {
        self.host().random()
    }

    /// Resolves after this time, counted from now.
    #[inline(always)]
    pub fn sleep(&self, time: Duration) -> Sleep {
        Sleep::for_time(Sleeper::Process(self.home()), self.seen_now(), time)
    }

    /// The time, which its turn has seen then.
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

    /// Resolves at this moment; at once if it has passed.
    pub fn sleep_until(&self, at: Instant) -> Sleep {
        Sleep::new(Sleeper::Process(self.home()), at)
    }

    /// Ticks again and again; the first tick comes one period from now.
    ///
    /// # Panics
    /// With a period of zero.
    pub fn interval(&self, every: Duration) -> Interval {
        self.interval_at(self.now() + every, every)
    }

    /// The same with the first tick at this moment; at once if it has passed.
    ///
    /// # Panics
    /// With a period of zero.
    pub fn interval_at(&self, first: Instant, every: Duration) -> Interval {
        Interval::new(self.sleep_until(first), every)
    }

    /// Resolves as `future` does, or fails with [`Failure::TimedOut`] after this time, counted from now. The future
    /// is polled first, so what is there in time is not lost.
    pub fn timeout<F: Future>(
        &self,
        time: Duration,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Failure>> + use<F, M> {
        Timeout::new(future, self.sleep(time))
    }

    /// Sends a message after this time, counted from now, unless this process has ended by then. What is refused then is
    /// dropped, and counted as any message that was refused.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use procession::{Context, Exit, Runtime};
    /// let rt = Runtime::new()?;
    /// let reminded = rt.spawn(async |mut ctx: Context<&'static str>| -> Result<_, Exit> {
    ///     let late = ctx.send_after(Duration::from_secs(60), ctx.pid(), "never");
    ///     ctx.send_after(Duration::from_millis(1), ctx.pid(), "now");
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

    /// Sends clones of a message again and again, each after this period, until it is cancelled, this process has ended,
    /// or the receiver has. What comes late does not come in bursts: periods that passed meanwhile are skipped.
    ///
    /// # Panics
    /// With a period of zero.
    pub fn send_interval<N: Clone + Send + 'static>(
        &self,
        every: Duration,
        to: impl Target<N>,
        message: N,
    ) -> TimerRef {
        later::send_every(self.any(), every, to, message)
    }

    /// Takes back a timer of this process, and says how long it would still have taken: then the message is not sent.
    /// `None` if it is over: the message was sent, or taken back before.
    pub fn cancel_timer(&self, timer: TimerRef) -> Option<Duration> {
        later::cancel(&self.control.head, timer)
    }

    // ---- Living together

    /// Lets others run: resolves when this process is stepped again, behind them.
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

    /// Resolves when this process is asked to end, with the reason; at once if it was asked before. For bodies that
    /// wait for something else than their mailbox.
    pub fn cancelled(&self) -> Cancelled {
        Cancelled::new(self.any())
    }

    /// Whether this process was asked to end.
    pub fn is_cancelled(&self) -> bool {
        self.control.head.is_cancelled()
    }

    /// Says that it has started, where [`ProcessBuilder::ready_by_hand`](crate::ProcessBuilder::ready_by_hand) was
    /// asked for.
    pub fn ready(&self) {
        self.control.head.started();
    }

    /// The token that cancels this process and what it spawns, if it was given one or inherited it.
    pub fn cancel_token(&self) -> Option<CancelToken> {
        self.control.head.inherited().cancel_token().cloned()
    }

    /// When this process has to end, if it was given a deadline or inherited one: the nearest.
    pub fn deadline(&self) -> Option<Instant> {
        self.control.head.inherited().deadline()
    }

    /// The value of this type that whoever spawned this process gave it, or was given itself.
    pub fn value<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.control.head.inherited().value()
    }
}

//! The async face of a process: what a body is given to act ([`Me`]) and to listen ([`Mailbox`]), both in one as a
//! [`Context`].

use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context as Cx, Poll, Waker};
use std::time::Duration;

use futures::Stream;
use futures::future::FusedFuture;
use futures::stream::FusedStream;

use crate::address::Address;
use crate::call::{Call, Reply};
use crate::cancel::{CancelToken, Cancelled};
use crate::clock::Instant;
use crate::control::{AnyControl, Control, flag};
use crate::home::Home;
use crate::host::{Host, Target};
use crate::mailbox::{Bound, Front, Gathered, Inbox, Spare};
use crate::perform::Perform;
use crate::process::command::{Command, StreamCommand};
use crate::process::event::{Event, Signal};
use crate::process::exit::Exit;
use crate::process::failure::Failure;
use crate::process::payload::Payload;
use crate::process::pid::Pid;
use crate::process::refusal::SendError;
use crate::process::turn;
use crate::send_wait::SendWait;
use crate::stream::Replies;
use crate::sync::Arc;
use crate::time::interval::Interval;
use crate::time::later::{self, TimerRef};
use crate::time::{Sleep, Sleeper, Timeout};

/// The acting half of a [`Context`]: everything that a process does to the world.
///
/// Cheap to clone. Its futures borrow nothing, start when they are first polled, and are cancelled when they are
/// dropped; those of [`perform`](Self::perform) work inside their own process only.
pub struct Me<M = Payload> {
    control: Arc<Control<M>>,
}

impl<M> Clone for Me<M> {
    fn clone(&self) -> Self {
        Self { control: Arc::clone(&self.control) }
    }
}

impl<M> fmt::Debug for Me<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Me").field(&self.control.head.pid()).finish()
    }
}

impl<M: Send + 'static> Me<M> {
    pub(crate) fn new(control: Arc<Control<M>>) -> Self {
        Self { control }
    }

    pub(crate) fn control(&self) -> &Arc<Control<M>> {
        &self.control
    }

    pub(crate) fn any(&self) -> Arc<dyn AnyControl> {
        self.control.clone()
    }

    /// For a future that works for this process.
    #[inline]
    pub(crate) fn home(&self) -> Home {
        Home::new(self.control.address(), || self.any())
    }

    /// The pid of this process.
    pub fn pid(&self) -> Pid {
        self.control.head.pid()
    }

    /// The typed address of this process.
    pub fn address(&self) -> Address<M> {
        Address::new(Arc::clone(&self.control))
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
        self.host().call_from(Some(self.home()), to, request)
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
    pub fn sleep(&self, time: Duration) -> Sleep {
        Sleep::for_time(Sleeper::Process(self.home()), self.now(), time)
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
            if turn::is_of(self.control.address()) {
                turn::again();
            }
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
        self.control.head.cancel().is_some()
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

/// Who polls a mailbox.
enum Poller {
    /// The process's own task, in its turn; set to wait [ahead](crate::mailbox), perhaps.
    Task { ahead: bool },
    /// A combinator, or somebody else.
    Other,
}

/// The receiving half of a [`Context`]: messages in the order they came.
///
/// As a `Stream` it ends when the process is asked to end. [`Host::mailbox`] makes one outside any process, for
/// threads and tasks of other executors; that one lives until it is dropped.
pub struct Mailbox<M: Send + 'static> {
    me: Me<M>,
    /// What was taken out of the inbox and is not read yet.
    front: Front<M>,
}

impl<M: Send + 'static> fmt::Debug for Mailbox<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mailbox").field(&self.me.control.head.pid()).finish()
    }
}

impl<M: Send + 'static> Mailbox<M> {
    pub(crate) fn new(control: Arc<Control<M>>) -> Self {
        Self { me: Me::new(control), front: Front::default() }
    }

    pub(crate) fn me(&self) -> &Me<M> {
        &self.me
    }

    pub(crate) fn control(&self) -> &Arc<Control<M>> {
        &self.me.control
    }

    /// How many events wait here, those that nobody heeds any more included.
    pub(crate) fn unread(&mut self) -> usize {
        self.front.len() + self.me.control.inbox.len()
    }

    /// The pid that leads here.
    pub fn pid(&self) -> Pid {
        self.me.control.head.pid()
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// [`Exit::Cancelled`] once the process was asked to end, now and ever after, even if messages are unread: what is
    /// queued then is for [`try_receive`](Self::try_receive). A mailbox outside any process, killed, says
    /// [`Exit::Killed`] after its last message.
    ///
    /// # Cancel safety
    /// Dropped, it has taken nothing.
    pub fn receive(&mut self) -> Receive<'_, M> {
        Receive { mailbox: Some(self) }
    }

    /// Waits for the first message that `pick` takes; the others keep their places.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    ///
    /// # Cancel safety
    /// Dropped, it has taken nothing: what was passed over stays in order.
    pub async fn receive_where<T>(&mut self, mut pick: impl FnMut(M) -> Result<T, M>) -> Result<T, Exit> {
        let mut looked_at = LookedAt::default();
        std::future::poll_fn(|cx| self.poll_where(cx, &mut pick, &mut looked_at)).await
    }

    fn poll_where<T>(
        &mut self,
        cx: &mut Cx<'_>,
        pick: &mut impl FnMut(M) -> Result<T, M>,
        looked_at: &mut LookedAt,
    ) -> Poll<Result<T, Exit>> {
        loop {
            if let Some((reason, _)) = self.me.control.head.cancel() {
                return Poll::Ready(Err(Exit::Cancelled(reason)));
            }
            if let Some(picked) = self.front.pick(&mut looked_at.ahead, pick) {
                if looked_at.ahead != 0 {
                    self.me.control.inbox.passed_over(looked_at.ahead, self.front.len());
                }
                return Poll::Ready(Ok(picked));
            }
            let number = &mut looked_at.number;
            match self.take(self.poller(cx), cx, true, |inbox, front, other| inbox.gather_or_wait(front, number, other))
            {
                Poll::Ready(Ok(Gathered::Ahead)) => {}
                Poll::Ready(Ok(Gathered::One(message))) => {
                    let place = Place { control: &self.me.control, number: *number };
                    match pick(message) {
                        Ok(picked) => return Poll::Ready(Ok(picked)),
                        Err(message) => place.put_back(message),
                    }
                    *number += 1;
                }
                Poll::Ready(Err(exit)) => return Poll::Ready(Err(exit)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Offers what waits in a queue with a bound, oldest first, to `take`, up to the first message that it does not take;
    /// or to the last, if `all` are to be offered. What it does not take keeps its place. Says whether some is left; if
    /// none is, it waits for more.
    pub(crate) fn offer(
        &mut self,
        cx: &mut Cx<'_>,
        all: bool,
        mut take: impl FnMut(M) -> Result<(), M>,
    ) -> Result<bool, Exit> {
        let (mut number, mut left) = (0, false);
        loop {
            match self
                .take(self.poller(cx), cx, true, |inbox, front, other| inbox.gather_or_wait(front, &mut number, other))
            {
                Poll::Ready(Ok(Gathered::One(message))) => {
                    let place = Place { control: &self.me.control, number };
                    match take(message) {
                        Ok(()) => {}
                        Err(message) if all => {
                            place.put_back(message);
                            left = true;
                            number += 1;
                        }
                        Err(message) => {
                            place.put_back(message);
                            return Ok(true);
                        }
                    }
                }
                Poll::Ready(Ok(Gathered::Ahead)) => unreachable!("its queue has a bound"),
                Poll::Ready(Err(exit)) => return Err(exit),
                Poll::Pending => return Ok(left),
            }
        }
    }

    /// The next message if one is there, also after a cancel: for draining.
    pub fn try_receive(&mut self) -> Option<M> {
        self.front.pop().or_else(|| self.me.control.pop(&mut self.front))
    }

    /// Puts a message aside, to be read again after [`unstash`](Self::unstash). It does not count against a
    /// [`Bound`]; if the process ends first it is a dead letter, as all that is unread.
    ///
    /// ```
    /// # use procession::{Context, Exit, Runtime};
    /// // Handles what is for later when it is open.
    /// async fn door(mut ctx: Context<&'static str>) -> Result<Vec<&'static str>, Exit> {
    ///     loop {
    ///         match ctx.receive().await? {
    ///             "open" => break,
    ///             early => ctx.stash(early),
    ///         }
    ///     }
    ///     ctx.unstash();
    ///     Ok(vec![ctx.receive().await?, ctx.receive().await?, ctx.receive().await?])
    /// }
    /// let rt = Runtime::builder().workers(0).build()?;
    /// let door = rt.spawn(door);
    /// for message in ["a", "b", "open", "c"] {
    ///     door.send(message)?;
    /// }
    /// assert_eq!(rt.block_on(door)?, ["a", "b", "c"]);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn stash(&mut self, message: M) {
        self.front.stash(message);
    }

    /// Makes what was [put aside](Self::stash) the next that is read, before all else, in the order in which it was put
    /// aside. How many messages that is.
    pub fn unstash(&mut self) -> usize {
        self.front.unstash()
    }

    /// Waits for whatever comes next: messages, a cancel, downs and other news, in the order they came.
    ///
    /// # Cancel safety
    /// Dropped, it has taken nothing.
    pub async fn event(&mut self) -> Event<M> {
        std::future::poll_fn(|cx| self.poll_event(cx)).await
    }

    fn poll_event(&mut self, cx: &mut Cx<'_>) -> Poll<Event<M>> {
        if self.is_spent(cx) {
            return Poll::Pending;
        }
        if let Some(message) = self.front.pop_clear() {
            return Poll::Ready(Event::Message(message));
        }
        let mut signal = None;
        self.take_event(&mut signal, cx).map(|message| match message {
            Some(message) => Event::Message(message),
            None => signal.expect("it is one or the other").into_event(self.me.pid()),
        })
    }

    /// The next message, if it was read ahead, comes before any signal, and is within the budget of this turn.
    #[inline]
    pub(crate) fn pop_ahead(&mut self) -> Option<M> {
        if !self.front.is_clear() || turn::is_of(self.me.control.address()) && !turn::spend() {
            return None;
        }
        self.front.pop_clear()
    }

    /// As [`event`](Self::event), whatever the budget: a message, or nothing and a `signal`.
    #[inline]
    pub(crate) fn next_event(&mut self, signal: &mut Option<Signal>, cx: &mut Cx<'_>) -> Poll<Option<M>> {
        match self.front.pop_clear() {
            Some(message) => Poll::Ready(Some(message)),
            None => self.take_event(signal, cx),
        }
    }

    #[inline(never)]
    fn take_event(&mut self, signal: &mut Option<Signal>, cx: &mut Cx<'_>) -> Poll<Option<M>> {
        let mut message = None;
        loop {
            let taken = self.take(self.poller(cx), cx, false, |inbox, front, other| {
                let (next, spare) = inbox.next_or_wait(front, signal, other);
                (next.map(|next| message = next), spare)
            });
            match taken {
                Poll::Ready(Ok(())) => match &signal {
                    None => return Poll::Ready(message),
                    Some(signal) if self.me.control.head.heeds(signal) => return Poll::Ready(None),
                    // Taken back while it waited here.
                    Some(_) => *signal = None,
                },
                Poll::Ready(Err(_)) | Poll::Pending => return Poll::Pending,
            }
        }
    }

    pub(crate) fn poll_receive(&mut self, cx: &mut Cx<'_>) -> Poll<Result<M, Exit>> {
        let poller = self.poller(cx);
        if let Poller::Task { ahead: true } = poller
            && self.me.control.inbox.is_still_empty()
        {
            return Poll::Pending;
        }
        if let Some((reason, _)) = self.me.control.head.cancel() {
            return Poll::Ready(Err(Exit::Cancelled(reason)));
        }
        if self.is_spent(cx) {
            return Poll::Pending;
        }
        if let Some(message) = self.front.pop() {
            return Poll::Ready(Ok(message));
        }
        // One whose steps are counted would be woken once too often.
        let is_own = !matches!(poller, Poller::Other);
        let mut ahead = is_own && turn::may_wait_ahead() && !self.me.control.head.has(flag::LIMITED);
        let taken = self.take(poller, cx, true, |inbox, front, other| inbox.pop_or_wait(front, other, &mut ahead));
        if ahead {
            turn::waits_ahead();
        }
        taken
    }

    /// By whom this is polled. Whatever comes of it, the mailbox is no longer as it was when the receiver was set to wait
    /// ahead.
    #[inline]
    fn poller(&self, cx: &Cx<'_>) -> Poller {
        if !turn::is_of(self.me.control.address()) {
            return Poller::Other;
        }
        let ahead = turn::take_ahead();
        if turn::is_own_waker(cx.waker()) { Poller::Task { ahead } } else { Poller::Other }
    }

    /// Whether the budget of this turn is spent: for a mailbox that is never empty, the others come first.
    #[inline]
    pub(crate) fn is_spent(&self, cx: &Cx<'_>) -> bool {
        if !turn::is_of(self.me.control.address()) || turn::spend() {
            return false;
        }
        self.me.control.head.host().count_budget_yield();
        turn::again();
        cx.waker().wake_by_ref();
        true
    }

    /// Takes from the inbox, past what was read ahead; or waits.
    #[inline]
    fn take<R>(
        &mut self,
        poller: Poller,
        cx: &mut Cx<'_>,
        heeds_cancel: bool,
        take_or_wait: impl FnOnce(&Inbox<M>, &mut Front<M>, Option<Waker>) -> (Option<R>, Spare),
    ) -> Poll<Result<R, Exit>> {
        // Cloned before the lock is taken: a waker is somebody's code.
        let other = if matches!(poller, Poller::Task { .. }) { None } else { Some(cx.waker().clone()) };
        let (taken, Spare { former, relieved }) = take_or_wait(&self.me.control.inbox, &mut self.front, other);
        drop(former);
        if let Some(relieved) = relieved {
            self.me.control.relieve(relieved);
        }
        if let Some(taken) = taken {
            return Poll::Ready(Ok(taken));
        }
        // Whoever cancels sets the flag before it looks who waits: asked again now, no cancel is missed.
        if heeds_cancel && let Some((reason, _)) = self.me.control.head.cancel() {
            return Poll::Ready(Err(Exit::Cancelled(reason)));
        }
        match self.me.control.head.exit() {
            Some(exit) => Poll::Ready(Err(exit)),
            None => Poll::Pending,
        }
    }
}

impl<M: Send + 'static> Stream for Mailbox<M> {
    type Item = M;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Option<M>> {
        self.poll_receive(cx).map(Result::ok)
    }
}

impl<M: Send + 'static> FusedStream for Mailbox<M> {
    fn is_terminated(&self) -> bool {
        self.me.control.head.cancel().is_some() || self.me.control.head.has_ended()
    }
}

impl<M: Send + 'static> Unpin for Mailbox<M> {}

impl<M: Send + 'static> Drop for Mailbox<M> {
    fn drop(&mut self) {
        let control = &self.me.control;
        // An outside mailbox is nobody's but its owner's: its pid dies with it.
        if control.head.has(flag::OUTSIDE) || !self.front.is_empty() {
            control.leave(self.front.take());
        }
    }
}

/// How far a selective receive has looked: never twice at one message.
#[derive(Debug, Default)]
struct LookedAt {
    /// At so many of those that were read ahead, …
    ahead: usize,
    /// … and at those with lower numbers in a queue with a bound.
    number: u64,
}

/// The place of a message that is looked at, in a queue with a bound: given up when the message is taken, or `pick`
/// panicked.
struct Place<'a, M: Send + 'static> {
    control: &'a Control<M>,
    number: u64,
}

impl<M: Send + 'static> Place<'_, M> {
    fn put_back(self, message: M) {
        let control = self.control;
        let refused = control.inbox.fill(self.number, message);
        std::mem::forget(self);
        match refused {
            Ok(()) => {}
            Err((message, true)) => control.drop_by_policy(message),
            Err((message, false)) => control.head.host().dead_letters_of(&control.head, std::iter::once(message)),
        }
    }
}

impl<M: Send + 'static> Drop for Place<'_, M> {
    fn drop(&mut self) {
        if let Some(relieved) = self.control.inbox.settle(self.number) {
            self.control.relieve(relieved);
        }
    }
}

/// Resolves to the next message: see [`Mailbox::receive`].
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct Receive<'a, M: Send + 'static> {
    mailbox: Option<&'a mut Mailbox<M>>,
}

impl<M: Send + 'static> Future for Receive<'_, M> {
    type Output = Result<M, Exit>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        let Some(mailbox) = self.mailbox.as_deref_mut() else { return Poll::Pending };
        let received = mailbox.poll_receive(cx);
        if received.is_ready() {
            self.mailbox = None;
        }
        received
    }
}

impl<M: Send + 'static> FusedFuture for Receive<'_, M> {
    fn is_terminated(&self) -> bool {
        self.mailbox.is_none()
    }
}

/// Given to a body by value: `Context` takes any payload, `Context<Msg>` takes `Msg`.
///
/// It is both halves in one: what [`Me`] can it can by `Deref`, what [`Mailbox`] can it can itself.
///
/// ```
/// # use procession::{Context, Exit, Runtime};
/// async fn count(mut ctx: Context<String>) -> Result<usize, Exit> {
///     let mut letters = 0;
///     for _ in 0..2 {
///         letters += ctx.receive().await?.len();
///     }
///     Ok(letters)
/// }
/// let rt = Runtime::new()?;
/// let count = rt.spawn(count);
/// count.send("one".into())?;
/// count.send("three".into())?;
/// assert_eq!(rt.block_on(count)?, 8);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub struct Context<M: Send + 'static = Payload> {
    mailbox: Mailbox<M>,
}

impl<M: Send + 'static> fmt::Debug for Context<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.mailbox.pid()).finish()
    }
}

impl<M: Send + 'static> Deref for Context<M> {
    type Target = Me<M>;

    fn deref(&self) -> &Me<M> {
        &self.mailbox.me
    }
}

impl<M: Send + 'static> Context<M> {
    pub(crate) fn new(control: Arc<Control<M>>) -> Self {
        Self { mailbox: Mailbox::new(control) }
    }

    /// As [`Mailbox::receive`].
    ///
    /// # Errors
    /// [`Exit::Cancelled`] once the process was asked to end: `?` carries it out of the body.
    ///
    /// # Cancel safety
    /// Dropped, it has taken nothing.
    pub fn receive(&mut self) -> Receive<'_, M> {
        self.mailbox.receive()
    }

    /// As [`Mailbox::receive_where`].
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub async fn receive_where<T>(&mut self, pick: impl FnMut(M) -> Result<T, M>) -> Result<T, Exit> {
        self.mailbox.receive_where(pick).await
    }

    /// As [`Mailbox::try_receive`].
    pub fn try_receive(&mut self) -> Option<M> {
        self.mailbox.try_receive()
    }

    /// As [`Mailbox::stash`].
    pub fn stash(&mut self, message: M) {
        self.mailbox.stash(message);
    }

    /// As [`Mailbox::unstash`].
    pub fn unstash(&mut self) -> usize {
        self.mailbox.unstash()
    }

    /// As [`Mailbox::event`].
    pub async fn event(&mut self) -> Event<M> {
        self.mailbox.event().await
    }

    /// The receiving half.
    pub fn mailbox(&mut self) -> &mut Mailbox<M> {
        &mut self.mailbox
    }

    /// Both halves, so that the mailbox can be handed to a combinator while calls are in flight.
    pub fn split(self) -> (Me<M>, Mailbox<M>) {
        (self.mailbox.me.clone(), self.mailbox)
    }
}

impl Host {
    /// A mailbox with a pid that is no process: an outside channel, for threads and tasks of any executor.
    ///
    /// It lives until the [`Mailbox`] is dropped, or its pid is killed.
    ///
    /// ```
    /// # use procession::{Context, Runtime};
    /// let rt = Runtime::new()?;
    /// let (results, mut mailbox) = rt.mailbox::<u64>();
    /// rt.spawn(async move |_: Context| results.send(42).is_ok_and(|()| true).then_some(()).ok_or("refused"));
    /// assert_eq!(rt.block_on(mailbox.receive())?, 42);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn mailbox<N: Send + 'static>(&self) -> (Address<N>, Mailbox<N>) {
        self.mailbox_with(Bound::Unbounded)
    }

    /// As [`mailbox`](Self::mailbox), for so many messages and no more.
    pub fn mailbox_with<N: Send + 'static>(&self, bound: Bound) -> (Address<N>, Mailbox<N>) {
        let control = self.outside_control(bound);
        (Address::new(Arc::clone(&control)), Mailbox::new(control))
    }

    /// A mailbox for mail that was accepted and that nobody will read, because its receiver died first. While several
    /// exist, the newest gets it; while none does, such mail is counted and dropped.
    ///
    /// A [`Reply`] inside such a letter answers only when the letter is dropped.
    pub fn dead_letters(&self) -> Mailbox<crate::host::Package> {
        let control = self.outside_control(Bound::Unbounded);
        self.shared().mourners.lock().push(Arc::downgrade(&control));
        Mailbox::new(control)
    }
}

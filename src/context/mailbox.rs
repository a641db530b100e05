//! The receiving half of a context, and a mailbox that belongs to no process: what comes, in the order in which it came, or
//! picked out.

use std::fmt;
use std::pin::Pin;
use std::task::{Context as Cx, Poll};

use futures::Stream;
use futures::future::FusedFuture;
use futures::stream::FusedStream;

use crate::context::address::Address;
use crate::context::me::Me;
use crate::host::Host;
use crate::host::control::{Control, flag};
use crate::process::event::{Event, Signal};
use crate::process::exit::Exit;
use crate::process::mailbox::{Bound, Gathered, Glance, ReadAhead, Reader, ReceiverTurn, Spare, Trial};
use crate::process::pid::Pid;
use crate::process::state::Ref;
use crate::process::state::current::{Current, InTurn};

/// Who polls a mailbox.
#[derive(Clone, Copy)]
enum Poller {
    /// The process's own task, in its turn.
    Task(InTurn),
    /// A combinator, another thread or another process.
    Other,
}

/// What is known of a mailbox without its lock, behind what was taken out.
#[derive(Clone, Copy)]
enum Known {
    /// Its receiver waits as before: nothing has come.
    Empty,
    /// As that, but for a message that was delivered.
    Delivered(ReceiverTurn),
    Unknown,
}

/// The receiving half of a [`Context`](crate::Context): messages in the order they came.
///
/// As a `Stream` it ends when the process is asked to end. [`Host::mailbox`] makes one outside any process, for
/// threads and tasks of other executors; that one lives until it is dropped.
///
/// A process has one receiver at a time. A mailbox that was [split](crate::Context::split) off can be sent to another thread
/// or process, and remains the receiver there. Another receiver takes its place
///
/// - when a new body, which got this mailbox for [an upgrade](crate::Context::upgrade), fails to start: the old body is the
///   receiver again;
/// - when a hand-written process that delegated a step to [`Methods`](crate::Methods) reads its [`Events`](crate::Events)
///   itself, or delegates a step to other `Methods`.
///
/// From then on this mailbox receives nothing. [`receive`](Self::receive) and [`receive_where`](Self::receive_where) fail
/// with [`Exit::Failed`], the `Stream` ends, [`try_receive`](Self::try_receive) returns `None`, and [`event`](Self::event)
/// never resolves. Messages that it had taken out of the mailbox and had not returned yet go to the new receiver as soon as
/// this mailbox is asked for a message or dropped.
pub struct Mailbox<M: Send + 'static> {
    me: Me<M>,
    /// What was taken out of the inbox and is not read yet.
    front: ReadAhead<M>,
}

impl<M: Send + 'static> fmt::Debug for Mailbox<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mailbox").field(&self.me.control().head.pid()).finish()
    }
}

impl<M: Send + 'static> Mailbox<M> {
    /// The first receiver of this control block. It is called once for each.
    pub(crate) fn new(control: Ref<Control<M>>) -> Self {
        Self::with(control, ReadAhead::default())
    }

    /// A receiver that takes the place of another one.
    pub(crate) fn with(control: Ref<Control<M>>, front: ReadAhead<M>) -> Self {
        Self { me: Me::new(control), front }
    }

    /// Makes a new receiver, on trial, in place of this one. It has what this one has read ahead or put aside.
    ///
    /// # Errors
    /// Another receiver has taken the place of this one.
    pub(crate) fn begin_trial(&mut self, turn: InTurn) -> Result<(Self, Trial), Exit> {
        let control = self.me.control().clone();
        match control.begin_trial(turn, &mut self.front) {
            Some((front, trial)) => Ok((Self::with(control, front), trial)),
            None => Err(self.refuse()),
        }
    }

    /// The trial has failed: this is the receiver again.
    pub(crate) fn end_trial(&mut self, trial: &Trial) {
        self.me.control().end_trial(trial, &mut self.front);
    }

    /// What a receiver is told whose place another one has taken. What it has not read is for that one.
    #[cold]
    fn refuse(&mut self) -> Exit {
        self.me.control().put_back(&mut self.front);
        Exit::failed(format!("the mailbox of {} has another receiver", self.me.pid()))
    }

    pub(crate) fn me(&self) -> &Me<M> {
        &self.me
    }

    pub(crate) fn control(&self) -> &Ref<Control<M>> {
        self.me.control()
    }

    /// How many events wait here, those that nobody heeds any more included.
    pub(crate) fn unread(&mut self) -> usize {
        self.front.len() + self.me.control().inbox.len()
    }

    /// The pid that leads here.
    pub fn pid(&self) -> Pid {
        self.me.control().head.pid()
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// [`Exit::Cancelled`] once the process was asked to end, now and ever after, even if messages are unread: what is
    /// queued then is for [`try_receive`](Self::try_receive). A mailbox outside any process, killed, says
    /// [`Exit::Killed`] after its last message. [`Exit::Failed`] once [another receiver](Mailbox) has taken the place of
    /// this one.
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
            if let Some((reason, _)) = self.me.control().head.cancel() {
                return Poll::Ready(Err(Exit::Cancelled(reason)));
            }
            if self.front.is_replaced() {
                return Poll::Ready(Err(self.refuse()));
            }
            if let Some(picked) = self.front.pick(&mut looked_at.ahead, pick) {
                if looked_at.ahead != 0 {
                    self.me.control().inbox.passed_over(looked_at.ahead, self.front.len());
                }
                return Poll::Ready(Ok(picked));
            }
            let number = &mut looked_at.number;
            let gather = |control: &Control<M>, front: &mut ReadAhead<M>, reader| {
                control.inbox.gather_or_wait(control, front, number, reader)
            };
            let poller = self.poller(cx);
            match self.take(poller, cx, true, gather) {
                Poll::Ready(Ok(Gathered::Ahead)) => {}
                Poll::Ready(Ok(Gathered::One(message))) => {
                    let place = ReservedPlace { control: self.me.control(), number: *number };
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
            let gather = |control: &Control<M>, front: &mut ReadAhead<M>, reader| {
                control.inbox.gather_or_wait(control, front, &mut number, reader)
            };
            let poller = self.poller(cx);
            match self.take(poller, cx, true, gather) {
                Poll::Ready(Ok(Gathered::One(message))) => {
                    let place = ReservedPlace { control: self.me.control(), number };
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
        if self.front.is_replaced() {
            self.refuse();
            return None;
        }
        self.front.pop().or_else(|| self.me.control().pop(&mut self.front))
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

    /// Waits for whatever comes next: messages, a cancel, downs and other news, in the order they came. It never resolves
    /// once the process has ended, or [another receiver](Mailbox) has taken the place of this one.
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
        if !self.front.is_clear() || !self.spend() {
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
        let poller = self.poller(cx);
        match self.glance(poller) {
            Known::Unknown => {}
            Known::Delivered(seat) => return Poll::Ready(self.take_delivered(seat)),
            Known::Empty => {
                Current::with(|current| current.note_waits_for_message(true));
                return Poll::Pending;
            }
        }
        let mut message = None;
        loop {
            let taken = self.take(poller, cx, false, |control, front, reader| {
                let (next, spare) = control.inbox.next_or_wait(control, front, signal, reader);
                (next.map(|next| message = next), spare)
            });
            match taken {
                Poll::Ready(Ok(())) => match &signal {
                    None => return Poll::Ready(message),
                    Some(signal) if self.me.control().head.heeds(signal) => return Poll::Ready(None),
                    // Taken back while it waited here.
                    Some(_) => *signal = None,
                },
                Poll::Ready(Err(_)) | Poll::Pending => return Poll::Pending,
            }
        }
    }

    #[inline(always)]
    pub(crate) fn poll_receive(&mut self, cx: &mut Cx<'_>) -> Poll<Result<M, Exit>> {
        let poller = self.poller(cx);
        let known = self.glance(poller);
        // A delivered message is moved here, in the receiver's own code, into its last place: another move would wait for it.
        if let Known::Delivered(seat) = known
            && !self.me.control().head.is_cancelled()
            && Current::with(Current::spend)
        {
            Current::with(Current::note_delivered);
            let mut received = Poll::Pending;
            self.me.control().inbox.take_delivered_with(seat, |message| received = Poll::Ready(Ok(message)));
            return received;
        }
        // By itself, for what is returned is read in wider pieces than it was written in, and waited for.
        let mut message = None;
        match self.poll_further(poller, known, cx, &mut message) {
            Poll::Ready(Ok(())) => message.map_or(Poll::Pending, |message| Poll::Ready(Ok(message))),
            Poll::Ready(Err(exit)) => Poll::Ready(Err(exit)),
            Poll::Pending => Poll::Pending,
        }
    }

    #[inline(never)]
    fn poll_further(
        &mut self,
        poller: Poller,
        known: Known,
        cx: &mut Cx<'_>,
        message: &mut Option<M>,
    ) -> Poll<Result<(), Exit>> {
        if let Known::Empty = known {
            Current::with(|current| current.note_waits_for_message(true));
            return Poll::Pending;
        }
        if let Some((reason, _)) = self.me.control().head.cancel() {
            return Poll::Ready(Err(Exit::Cancelled(reason)));
        }
        if self.is_spent(cx) {
            return Poll::Pending;
        }
        if let Some(next) = self.front.pop_of_first() {
            *message = Some(next);
            return Poll::Ready(Ok(()));
        }
        self.poll_inbox(poller, cx, message)
    }

    /// A function of its own: the messages of a burst are mostly in the front, and reading them there needs few registers.
    #[inline(never)]
    fn poll_inbox(&mut self, poller: Poller, cx: &mut Cx<'_>, message: &mut Option<M>) -> Poll<Result<(), Exit>> {
        if let Some(next) = self.front.pop() {
            *message = Some(next);
            return Poll::Ready(Ok(()));
        }
        self.take(poller, cx, true, |control, front, reader| {
            let (taken, spare) = control.inbox.pop_or_wait(control, front, reader);
            (taken.map(|taken| *message = Some(taken)), spare)
        })
    }

    /// What polls this. What is noted of the mailbox in this turn holds no longer.
    #[inline]
    fn poller(&self, cx: &Cx<'_>) -> Poller {
        Current::with(|current| {
            let Some(turn) = current.in_step(self.me.control().address()) else { return Poller::Other };
            current.looks_into_mailbox();
            if current.is_own_waker(cx.waker()) { Poller::Task(turn) } else { Poller::Other }
        })
    }

    /// What is known of the mailbox without its lock, behind what was taken out.
    #[inline]
    fn glance(&mut self, poller: Poller) -> Known {
        let Poller::Task(turn) = poller else { return Known::Unknown };
        let Some(seat) = self.front.seat_if_read(turn) else { return Known::Unknown };
        match self.me.control().inbox.glance() {
            Glance::Empty => Known::Empty,
            Glance::Delivered => Known::Delivered(seat),
            Glance::Unknown => Known::Unknown,
        }
    }

    /// What is there at a glance; the task waits on.
    #[inline]
    fn take_delivered(&mut self, seat: ReceiverTurn) -> Option<M> {
        Current::with(Current::note_delivered);
        self.me.control().inbox.take_delivered(seat)
    }

    /// Takes one from the budget, if this thread steps the process. False if the budget was spent.
    #[inline]
    fn spend(&self) -> bool {
        Current::with(|current| !current.steps(self.me.control().address()) || current.spend())
    }

    /// Whether the budget of this turn is spent: for a mailbox that is never empty, the others come first.
    #[inline]
    pub(crate) fn is_spent(&self, cx: &Cx<'_>) -> bool {
        if self.spend() {
            return false;
        }
        self.me.control().head.host().count_budget_yield();
        Current::with(Current::note_again);
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
        take_or_wait: impl FnOnce(&Control<M>, &mut ReadAhead<M>, Reader) -> (Option<R>, Spare),
    ) -> Poll<Result<R, Exit>> {
        let seat = match poller {
            Poller::Task(turn) => self.front.seat(turn),
            Poller::Other => None,
        };
        let reader = match seat {
            // A process whose steps are counted does not lend its slot: it might be woken once too often.
            Some(seat) => {
                let lends = !self.me.control().head.has(flag::LIMITED);
                Reader::Task { seat, lends }
            }
            // Also a receiver that is on trial or was replaced. The waker is cloned before the lock is taken: a clone runs the
            // user's code.
            None => Reader::Other(cx.waker().clone()),
        };
        let (taken, spare) = take_or_wait(self.me.control(), &mut self.front, reader);
        let Spare { former, relieved, lent, replaced } = spare;
        drop(former);
        if replaced {
            return Poll::Ready(Err(self.refuse()));
        }
        if lent {
            Current::with(|current| current.note_waits_for_message(true));
        }
        if let Some(relieved) = relieved {
            self.me.control().relieve(relieved);
        }
        if let Some(taken) = taken {
            return Poll::Ready(Ok(taken));
        }
        let exit = self.me.control().head.exit();
        if exit.is_some() {
            // The waker may have been set after the end of the process took it, and then nothing else would drop it.
            drop(self.me.control().inbox.forget_reader());
        }
        // A cancel sets its flag before it looks for a receiver that waits. So it is seen here, or it wakes this receiver.
        if heeds_cancel && let Some((reason, _)) = self.me.control().head.cancel() {
            return Poll::Ready(Err(Exit::Cancelled(reason)));
        }
        exit.map_or(Poll::Pending, |exit| Poll::Ready(Err(exit)))
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
        let head = &self.me.control().head;
        head.is_cancelled() || head.has_ended() || self.front.was_replaced()
    }
}

impl<M: Send + 'static> Unpin for Mailbox<M> {}

impl<M: Send + 'static> Drop for Mailbox<M> {
    fn drop(&mut self) {
        let control = &self.me.control();
        // An outside mailbox is nobody's but its owner's: its pid dies with it.
        if control.head.has(flag::OUTSIDE) || !self.front.is_empty() {
            control.leave(&mut self.front);
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
struct ReservedPlace<'a, M: Send + 'static> {
    control: &'a Control<M>,
    number: u64,
}

impl<M: Send + 'static> ReservedPlace<'_, M> {
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

impl<M: Send + 'static> Drop for ReservedPlace<'_, M> {
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

    #[inline(always)]
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
        (Address::new(control.clone()), Mailbox::new(control))
    }

    /// A mailbox for mail that was accepted and that nobody will read, because its receiver died first. While several
    /// exist, the newest gets it; while none does, such mail is counted and dropped.
    ///
    /// A [`Reply`](crate::Reply) inside such a letter answers only when the letter is dropped.
    pub fn dead_letters(&self) -> Mailbox<crate::host::Package> {
        let control = self.outside_control(Bound::Unbounded);
        self.add_dead_letter_mailbox(&control);
        Mailbox::new(control)
    }
}

//! Defines [`Mailbox`], the part of a context that receives messages and events. A mailbox usually belongs to a
//! process. [`Host::mailbox`] creates a mailbox that belongs to no process. The owner of a mailbox receives messages in
//! the order of their arrival, or selects messages with `receive_where`. The senders put their messages into the
//! *inbox*, a queue that is defined in `process::mailbox`.

mod receive;
pub(crate) mod selective;
mod urgent;

use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context as Cx, Poll};
use std::time::Duration;

use futures::future::FusedFuture;
use futures::stream::FusedStream;
use futures::{FutureExt, Stream};

use crate::context::address::Address;
use crate::context::mailbox::receive::Operation;
pub use crate::context::mailbox::receive::Receive;
use crate::context::me::SelfHandle;
use crate::context::time::Sleep;
use crate::host::Host;
use crate::host::control::{Control, Head, flag};
use crate::platform::static_ref::Line;
use crate::process::event::{Event, Signal, notice_event};
use crate::process::exit::Exit;
use crate::process::mailbox::{Glance, MailboxCapacity, ReadAhead, Reader, ReceiverDuties, ReceiverTurn, Trial};
use crate::process::pid::Pid;
use crate::process::state::Ref;
use crate::process::state::current::{Current, InTurn};

/// The caller that polls the mailbox.
#[derive(Clone, Copy)]
enum Poller {
    /// The task of the process polls the mailbox in a turn of the process.
    Task(InTurn),
    /// A caller other than the task of the process polls the mailbox, for example a combinator, another thread or
    /// another process.
    Other,
}

/// The state of the inbox. The receiver can determine this state without the lock of the inbox. The messages in the
/// read-ahead buffer are not part of this state.
#[derive(Clone, Copy)]
enum Known {
    /// The receiver is registered as waiting, and no message has arrived.
    Empty,
    /// The receiver is registered as waiting, and a sender has written one message into the mailbox slot, without the
    /// lock.
    Delivered(ReceiverTurn),
    Unknown,
}

/// The part of a [`Context`](crate::Context) that receives messages and events. A mailbox returns messages in the order
/// of their arrival.
///
/// A mailbox is also a `Stream` of messages. The `Stream` ends when the process is asked to exit. [`Host::mailbox`]
/// creates a mailbox that belongs to no process, for threads and for tasks of other executors. A mailbox that belongs
/// to no process exists until it is dropped or killed.
///
/// A process has only one receiver at a time. A mailbox can be [split](crate::Context::split) from its context and sent
/// to another thread or process. After this move, the mailbox is still the receiver of the process whose context was
/// split. Another receiver replaces a mailbox in two cases:
///
/// - An [upgrade](crate::Context::upgrade) gave this mailbox to a new body, and the new body failed to start. The
///   process then receives through the mailbox of the old body again.
/// - A hand-written process delegated a step to [`EntryPoints`](crate::EntryPoints), which read the events through this
///   mailbox. Later, the process reads its [`Events`](crate::Events) itself, or delegates a step to other
///   `EntryPoints`.
///
/// A replaced mailbox receives no further messages:
/// - [`receive`](Self::receive) and [`receive_where`](Self::receive_where) fail with [`Exit::Failed`].
/// - [`try_receive`](Self::try_receive) returns `None`.
/// - [`event`](Self::event) never resolves.
/// - The `Stream` ends.
///
/// A mailbox takes messages out of its queue in batches, and keeps the unread messages in a read-ahead buffer. A
/// replaced mailbox may still have messages in this buffer. The new receiver gets these messages at the next receive
/// operation on the replaced mailbox, or when the replaced mailbox is dropped. However, if the mailbox is bounded,
/// these messages and the stashed messages become dead letters.
pub struct Mailbox<M: Send + 'static> {
    me: SelfHandle<M>,
    /// The read-ahead buffer. The buffer contains the messages that were taken out of the inbox and are still unread.
    front: ReadAhead<M>,
}

impl<M: Send + 'static> fmt::Debug for Mailbox<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mailbox").field(&self.me.control().head.pid()).finish()
    }
}

/// Converts a signal, which is any event except a message, into an [`Event`]. An async receiver has read the signal
/// from the inbox. Returns `None` if the process no longer wants the signal.
///
/// An async body awaits its commands as futures, so the answers to these commands do not arrive as events. However, a
/// hand-written process may yield commands, and may then delegate its steps to an entry point. The answers to these
/// commands arrive as events.
pub(crate) fn event_of<M>(head: &Head, signal: Signal) -> Option<Event<M>> {
    match signal {
        Signal::Completed(completed) => {
            let yields = head.yields();
            if !yields.wants_answer(completed.tag) {
                return None;
            }
            yields.collect([completed.tag]);
            Some(Event::Completed(completed))
        }
        Signal::Notice(tag) => head.yields().collect_notice(tag).map(|next| notice_event(tag, next)),
        signal => Some(signal.into_event(head.pid())),
    }
}

impl<M: Send + 'static> Mailbox<M> {
    /// Creates the first receiver of a process. The caller must call this function at most once for each control block.
    pub(crate) fn new(control: Ref<Control<M>>) -> Self {
        Self::with(control, ReadAhead::default())
    }

    /// Creates a receiver that replaces another receiver.
    pub(crate) fn with(control: Ref<Control<M>>, front: ReadAhead<M>) -> Self {
        Self { me: SelfHandle::new(control), front }
    }

    /// Creates a new receiver for the new body of an upgrade, and begins the trial of this new receiver. The trial
    /// lasts until the new body has started or failed. During the trial, the new receiver replaces this receiver. The
    /// new receiver gets the messages that this receiver has read ahead or stashed.
    ///
    /// # Errors
    /// Fails if another receiver has already replaced this receiver.
    pub(crate) fn begin_trial(&mut self, turn: InTurn) -> Result<(Self, Trial), Exit> {
        let control = self.me.control().clone();
        match control.begin_trial(turn, &mut self.front) {
            Some((front, trial)) => Ok((Self::with(control, front), trial)),
            None => Err(self.refuse()),
        }
    }

    /// Ends a trial. If the trial was not confirmed, this mailbox is the receiver again.
    pub(crate) fn end_trial(&mut self, trial: &Trial) {
        self.me.control().end_trial(trial, &mut self.front);
    }

    /// Returns the error of a replaced receiver, and passes the unread messages of this mailbox to the new receiver.
    #[cold]
    fn refuse(&mut self) -> Exit {
        self.me.control().put_back(&mut self.front);
        Exit::failed(format!("the mailbox of {} has another receiver", self.me.pid()))
    }

    pub(crate) fn me(&self) -> &SelfHandle<M> {
        &self.me
    }

    pub(crate) fn control(&self) -> &Ref<Control<M>> {
        self.me.control()
    }

    /// Returns the number of unread events. The number includes events that the process will never see, for example the
    /// events of a removed monitor.
    pub(crate) fn unread(&mut self) -> usize {
        self.front.len() + self.me.control().inbox.len()
    }

    /// Returns the pid of the mailbox.
    pub fn pid(&self) -> Pid {
        self.me.control().head.pid()
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// - [`Exit::Cancelled`] after the process was asked to exit. After the request, `receive` fails even if the
    ///   mailbox contains unread messages. [`try_receive`](Self::try_receive) still returns the unread messages.
    /// - [`Exit::Failed`] after another receiver has replaced this receiver: see [`Mailbox`].
    /// - The exit of the process, if the process has exited. If a mailbox that belongs to no process was killed,
    ///   `receive` first returns the messages in the read-ahead buffer. After these messages, `receive` fails with
    ///   [`Exit::Killed`].
    /// - [`Exit::Refused`], if [`Host::mailbox`] has returned a closed mailbox.
    ///
    /// # Cancel safety
    /// This method is cancel safe. If the pending future is dropped, no message is lost.
    #[track_caller]
    pub fn receive(&mut self) -> Receive<'_, M> {
        self.note_line(Some(Location::caller()));
        Receive { mailbox: Some(self) }
    }

    /// Waits for the next message, but not longer than `time`. The time limit starts when this method is called.
    /// Returns `Ok(None)` if no message arrives before the time limit. If `time` is zero, the method returns a message
    /// only if the mailbox already contains a message.
    ///
    /// ```
    /// # use procession::{Context, Exit, Runtime};
    /// # use std::time::Duration;
    /// // Returns the messages that arrive before the first pause of 10 ms.
    /// async fn collect(mut ctx: Context<u8>) -> Result<Vec<u8>, Exit> {
    ///     let mut all = Vec::new();
    ///     while let Some(one) = ctx.receive_timeout(Duration::from_millis(10)).await? {
    ///         all.push(one);
    ///     }
    ///     Ok(all)
    /// }
    /// let rt = Runtime::builder().workers(0).build()?;
    /// let collect = rt.spawn(collect);
    /// collect.send(1)?;
    /// collect.send(2)?;
    /// assert_eq!(rt.block_on(collect)?, [1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    /// This method returns the same errors as [`receive`](Self::receive).
    ///
    /// # Cancel safety
    /// This method is cancel safe. If the pending future is dropped, no message is lost.
    #[track_caller]
    pub fn receive_timeout(
        &mut self,
        time: Duration,
    ) -> impl Future<Output = Result<Option<M>, Exit>> + Send + use<'_, M> {
        let is_outside = self.control().head.is_outside();
        let mut sleep = if is_outside { self.me.host().sleep(time) } else { self.me.sleep(time) };
        self.note_line(Some(Location::caller()));
        let mut operation = Operation::new(self);
        std::future::poll_fn(move |cx| operation.poll(|mailbox| mailbox.poll_receive_until(cx, &mut sleep)))
    }

    fn poll_receive_until(&mut self, cx: &mut Cx<'_>, sleep: &mut Sleep) -> Poll<Result<Option<M>, Exit>> {
        self.front.begin_poll();
        if let Poll::Ready(received) = self.poll_receive(cx) {
            return Poll::Ready(received.map(Some));
        }
        if !sleep.is_terminated() && sleep.poll_unpin(cx).is_pending() {
            return Poll::Pending;
        }
        // If the mailbox has just paused, this poll has not checked the mailbox. In this case, the next poll checks the
        // mailbox, although the time limit has passed. The pause has already called the waker.
        if self.front.has_paused_in_poll() {
            return Poll::Pending;
        }
        self.note_left();
        Poll::Ready(Ok(None))
    }

    /// Returns the next message, or `None` if the mailbox is empty. After the process was asked to exit, this method
    /// still returns messages. Therefore the process can read all messages before it exits.
    pub fn try_receive(&mut self) -> Option<M> {
        if self.front.is_replaced() {
            self.refuse();
            return None;
        }
        let urgent = if self.me.control().head.has_urgent() { self.take_urgent() } else { None };
        let message = urgent.or_else(|| self.front.pop()).or_else(|| self.me.control().pop(&mut self.front));
        if message.is_some() {
            self.trace_receive();
        }
        message
    }

    /// Stores a message until [`unstash`](Self::unstash) is called. After `unstash`, the mailbox returns the message
    /// again. A stashed message uses no space of the [`MailboxCapacity`]. If the process exits before it calls
    /// `unstash`, the stashed message becomes a dead letter. In a child with
    /// [`keep_mailbox`](crate::Child::keep_mailbox), the next instance gets the message.
    ///
    /// ```
    /// # use procession::{Context, Exit, Runtime};
    /// // Stashes the messages that arrive before "open", and handles them later.
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

    /// Moves all [stashed](Self::stash) messages to the front of the mailbox. The moved messages keep the order in
    /// which they were stashed. Returns the number of moved messages.
    pub fn unstash(&mut self) -> usize {
        self.trace_reorder();
        self.front.unstash()
    }

    /// Records that messages are not received in the order in which they were sent, if this turn is traced.
    fn trace_reorder(&self) {
        if Current::with(Current::is_traced) {
            let head = &self.me.control().head;
            head.host().trace_reorder(head);
        }
    }

    /// Waits for the next event. An event is a message, a cancel request, a `Down` or any other [`Event`]. The method
    /// returns events in the order of their arrival. If the process has exited, the future never resolves. The future
    /// also never resolves after another receiver has replaced this receiver: see [`Mailbox`]. For a mailbox of
    /// [`Host::mailbox`], the future never resolves after the end of the runtime. Outside a process, use
    /// [`receive`](Self::receive), which returns an error in this case.
    ///
    /// # Cancel safety
    /// This method is cancel safe. If the pending future is dropped, no event is lost.
    #[track_caller]
    pub fn event(&mut self) -> impl Future<Output = Event<M>> {
        self.note_line(Some(Location::caller()));
        let mut operation = Operation::new(self);
        std::future::poll_fn(move |cx| operation.poll(|mailbox| mailbox.poll_event(cx)))
    }

    /// Records the source line of a new receive operation, for inspections.
    #[inline]
    fn note_line(&self, line: Line) {
        self.me.control().receive_line.store(line);
    }

    fn poll_event(&mut self, cx: &mut Cx<'_>) -> Poll<Event<M>> {
        if self.is_spent(cx) {
            return Poll::Pending;
        }
        loop {
            let mut signal = None;
            if let Some(message) = std::task::ready!(self.next_event(&mut signal, cx)) {
                return Poll::Ready(Event::Message(message));
            }
            let signal = signal.expect("the next event is a message or a signal");
            if let Some(event) = event_of(&self.me.control().head, signal) {
                return Poll::Ready(event);
            }
        }
    }

    /// Returns the next message from the read-ahead buffer. Returns `None` if the buffer is empty, or if the budget of
    /// this turn is spent. Also returns `None` if a signal may come before the next message.
    #[inline]
    pub(crate) fn pop_ahead(&mut self) -> Option<M> {
        if !self.front.is_clear() || !self.spend() {
            return None;
        }
        let message = self.front.pop_clear();
        if message.is_some() {
            self.trace_receive();
        }
        message
    }

    /// Polls for the next event, and uses no budget. If the event is a message, the poll returns the message. If the
    /// event is a signal, the poll stores the signal in `signal`, and returns `None`.
    #[inline]
    pub(crate) fn next_event(&mut self, signal: &mut Option<Signal>, cx: &mut Cx<'_>) -> Poll<Option<M>> {
        let next = if self.me.control().head.has_urgent()
            && let Some(message) = self.take_urgent()
        {
            Poll::Ready(Some(message))
        } else {
            self.next_in_order(signal, cx)
        };
        if let Poll::Ready(Some(_)) = next {
            self.trace_receive();
        }
        next
    }

    /// Polls for the next event that is not an urgent message. An urgent message that arrives during the poll is still
    /// returned.
    #[inline]
    fn next_in_order(&mut self, signal: &mut Option<Signal>, cx: &mut Cx<'_>) -> Poll<Option<M>> {
        match self.front.pop_clear() {
            Some(message) => Poll::Ready(Some(message)),
            None => self.take_event(signal, cx),
        }
    }

    /// If this turn is traced, records that the process has received a message.
    #[inline]
    fn trace_receive(&self) {
        if Current::with(Current::is_traced) {
            let head = &self.me.control().head;
            head.host().trace_receive(head);
        }
    }

    #[inline(never)]
    fn take_event(&mut self, signal: &mut Option<Signal>, cx: &mut Cx<'_>) -> Poll<Option<M>> {
        let poller = self.poller(cx);
        match self.glance(poller) {
            Known::Unknown => {}
            Known::Delivered(receiver_turn) => return Poll::Ready(self.take_delivered(receiver_turn)),
            Known::Empty => {
                Current::with(|current| current.note_waits_for_message(true));
                return Poll::Pending;
            }
        }
        let mut message = None;
        loop {
            let taken = self.take(poller, cx, false, |control, front, reader| {
                let (next, duties) = control.inbox.next_or_wait(control, front, signal, reader);
                (next.map(|next| message = next), duties)
            });
            match taken {
                Poll::Ready(Ok(None)) => {
                    if let Some(message) = self.take_urgent() {
                        return Poll::Ready(Some(message));
                    }
                }
                Poll::Ready(Ok(Some(()))) => match &signal {
                    None => return Poll::Ready(message),
                    Some(signal) if self.me.control().head.wants(signal) => return Poll::Ready(None),
                    // The signal is no longer wanted. For example, the signal belongs to a monitor that the process has
                    // removed. Therefore the signal is discarded.
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
        // This function itself moves a delivered message directly into the result. A second move would immediately read
        // the message that the first move has written. The first move writes the message with several stores. A load of
        // the second move could read more bytes than one of these stores has written. The processor cannot forward
        // stored bytes to a load that is wider than the store, so the second move would be slow.
        if let Known::Delivered(receiver_turn) = known
            && !self.me.control().head.is_cancelled()
            && Current::with(Current::spend_for_mailbox)
        {
            Current::with(Current::note_delivered);
            self.trace_receive();
            let mut received = Poll::Pending;
            self.me.control().inbox.take_delivered_with(receiver_turn, |message| received = Poll::Ready(Ok(message)));
            return received;
        }
        // `poll_further` stores the message in `message`, and not in its result. A result that contains the message
        // would be copied with loads that are wider than the stores of the message. The processor cannot forward stored
        // bytes to a wider load, so the copy would be slow.
        let mut message = None;
        match self.poll_further(poller, known, cx, &mut message) {
            Poll::Ready(Ok(())) => match message {
                Some(message) => {
                    self.trace_receive();
                    Poll::Ready(Ok(message))
                }
                None => Poll::Pending,
            },
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
        // A body may ignore the error of its cancellation, and may receive in a loop. Therefore the budget is checked
        // before the cancellation. In the task of the process, `spend` would return the same result as
        // `spend_for_mailbox`, but would compare more values.
        let has_unit = match poller {
            Poller::Task(_) => Current::with(Current::spend_for_mailbox),
            Poller::Other => self.spend(),
        };
        if !has_unit && self.pause(cx) {
            return Poll::Pending;
        }
        if self.me.control().head.is_disturbed()
            && let Some(poll) = self.poll_disturbed(message)
        {
            return poll;
        }
        if let Some(next) = self.front.pop_of_first() {
            *message = Some(next);
            return Poll::Ready(Ok(()));
        }
        self.poll_inbox(poller, cx, message)
    }

    /// Takes the next message from the read-ahead buffer or from the inbox. This code is not a part of `poll_further`.
    /// As a result, the code of `poll_further` that reads the read-ahead buffer needs few registers. During a burst,
    /// most messages are in the read-ahead buffer.
    #[inline(never)]
    fn poll_inbox(&mut self, poller: Poller, cx: &mut Cx<'_>, message: &mut Option<M>) -> Poll<Result<(), Exit>> {
        if let Some(next) = self.front.pop() {
            *message = Some(next);
            return Poll::Ready(Ok(()));
        }
        loop {
            let taken = self.take(poller, cx, true, |control, front, reader| {
                let duties = control.inbox.pop_or_wait(control, front, reader, message);
                (message.is_some().then_some(()), duties)
            });
            match taken {
                Poll::Ready(Ok(Some(()))) => return Poll::Ready(Ok(())),
                Poll::Ready(Err(exit)) => return Poll::Ready(Err(exit)),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(None)) => *message = self.take_urgent(),
            }
            if message.is_some() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Returns the kind of caller that polls the mailbox. In a step of the process, this function also clears the
    /// record about the mailbox in [`Current`]. The record describes the mailbox before this poll, so the record is no
    /// longer valid.
    #[inline]
    fn poller(&self, cx: &Cx<'_>) -> Poller {
        Current::with(|current| {
            let Some(turn) = current.in_step(self.me.control().address()) else { return Poller::Other };
            current.looks_into_mailbox();
            if current.is_own_waker(cx.waker()) { Poller::Task(turn) } else { Poller::Other }
        })
    }

    /// Returns the state of the inbox, and does not take the lock of the inbox. The state is known only if the task of
    /// the process polls the mailbox and the read-ahead buffer is empty.
    #[inline]
    fn glance(&mut self, poller: Poller) -> Known {
        let Poller::Task(turn) = poller else { return Known::Unknown };
        let Some(receiver_turn) = self.front.receiver_turn_if_read(turn) else { return Known::Unknown };
        match self.me.control().inbox.glance() {
            Glance::Empty => Known::Empty,
            Glance::Delivered => Known::Delivered(receiver_turn),
            Glance::Unknown => Known::Unknown,
        }
    }

    /// Takes the delivered message. The task remains registered as waiting for the next message.
    #[inline]
    fn take_delivered(&mut self, receiver_turn: ReceiverTurn) -> Option<M> {
        Current::with(Current::note_delivered);
        self.me.control().inbox.take_delivered(receiver_turn)
    }

    /// If this thread runs a step of the process, records that a pending receive operation was dropped.
    #[inline(never)]
    fn note_left(&mut self) {
        // If another receiver has replaced this receiver, the registration in the inbox may belong to the other
        // receiver.
        if self.front.is_replaced() {
            return;
        }
        let address = self.me.control().address();
        let _ = Current::try_with(|current| {
            if current.steps(address) {
                current.note_left();
            }
        });
    }

    /// Records, for inspections, that the mailbox is polled outside its process. This function has no effect if the
    /// mailbox belongs to no process, or if this thread runs a step of the process to which the mailbox belongs.
    #[cold]
    fn note_elsewhere(&self) {
        let control = self.me.control();
        if !control.head.is_outside() && !Current::with(|current| current.steps(control.address())) {
            control.inbox.note_elsewhere();
        }
    }

    /// Takes one unit from the budget of the turn. Returns false if the budget was already spent. If an executor
    /// outside the runtime polls the mailbox, there is no budget. In this case, this function returns true and takes no
    /// unit.
    #[inline]
    fn spend(&self) -> bool {
        Current::with(|current| match current.steps(self.me.control().address()) {
            true => current.spend_for_mailbox(),
            false => !current.has_budget() || current.spend(),
        })
    }

    /// Takes one unit from the budget of the turn, and returns whether the budget was already spent. If the budget was
    /// spent, this function also wakes the task. The worker then runs the task again after other tasks. The budget
    /// limits the length of a turn. Without a budget, a process with a mailbox that is never empty would never release
    /// the worker.
    #[inline]
    pub(crate) fn is_spent(&mut self, cx: &Cx<'_>) -> bool {
        !self.spend() && self.pause(cx)
    }

    /// Pauses because the budget is spent. Returns false if the mailbox must not pause.
    ///
    /// A body may poll the mailbox together with other futures, and these futures may spend the whole budget of each
    /// turn. Therefore, after a pause, the mailbox takes one message even if the budget is spent again. However, the
    /// mailbox pauses again in one case: the task of the process polls the mailbox, and the mailbox has already taken a
    /// unit of the budget in this turn. Otherwise the process could take one message more in this turn than the budget
    /// allows.
    ///
    /// A combinator, or a `block_on` function of another crate, polls the mailbox with a waker that is not the waker of
    /// the task. A `block_on` function of another crate never ends the turn, so the budget stays spent. Therefore, if
    /// the mailbox is polled with a waker that is not the waker of the task, the mailbox takes one message after each
    /// pause.
    #[cold]
    fn pause(&mut self, cx: &Cx<'_>) -> bool {
        let address = self.me.control().address();
        let (is_own, pauses_again) = Current::with(|current| {
            let is_own = current.steps(address);
            (is_own, is_own && current.has_received() && current.is_own_waker(cx.waker()))
        });
        let pauses = pauses_again || !self.front.has_paused();
        self.front.set_paused(pauses);
        if !pauses {
            return false;
        }
        if is_own {
            self.me.control().head.host().count_budget_yield();
        }
        Current::with(Current::note_pause);
        cx.waker().wake_by_ref();
        true
    }

    /// Calls `take_or_wait`, which takes a message from the read-ahead buffer or from the inbox. If there is no
    /// message, `take_or_wait` registers the receiver as waiting. If an urgent message has arrived since the last
    /// check, the receiver does not wait, and the result is `Ok(None)`.
    #[inline]
    fn take<R>(
        &mut self,
        poller: Poller,
        cx: &mut Cx<'_>,
        checks_cancel: bool,
        take_or_wait: impl FnOnce(&Control<M>, &mut ReadAhead<M>, Reader) -> (Option<R>, ReceiverDuties),
    ) -> Poll<Result<Option<R>, Exit>> {
        let receiver_turn = match poller {
            Poller::Task(turn) => self.front.receiver_turn(turn),
            Poller::Other => None,
        };
        let is_other = receiver_turn.is_none();
        let reader = match receiver_turn {
            // A sender can write a message into an open mailbox slot without the lock. A message that is written
            // without the lock may cause an unnecessary step. Therefore, if the steps of a process are limited, the
            // process does not open its mailbox slot. A cancelled process does not open its mailbox slot either. While
            // the mailbox slot is open, a receive operation waits and does not check whether the process is cancelled.
            Some(receiver_turn) => {
                let may_open_slot = !self.me.control().head.has(flag::LIMITED | flag::CANCELLED);
                Reader::Task { receiver_turn, may_open_slot }
            }
            // This branch also applies to two kinds of receivers: replaced receivers, and receivers whose trial has not
            // ended. The waker is cloned before the lock is taken, because `clone` runs user code.
            None => Reader::Other(cx.waker().clone()),
        };
        let (taken, duties) = take_or_wait(self.me.control(), &mut self.front, reader);
        let ReceiverDuties { former, room_waiter, slot_is_open, replaced, urgent } = duties;
        drop(former);
        if replaced {
            return Poll::Ready(Err(self.refuse()));
        }
        if is_other {
            self.note_elsewhere();
        }
        if slot_is_open {
            Current::with(|current| current.note_waits_for_message(true));
        }
        if let Some(room_waiter) = room_waiter {
            self.me.control().wake_room_waiter(room_waiter);
        }
        if taken.is_some() || urgent {
            return Poll::Ready(Ok(taken));
        }
        let head = &self.me.control().head;
        let has_ended = head.has_ended();
        if has_ended {
            // The exit of the process collects the stored wakers only once. The exit may have collected the wakers
            // before this waker was stored. In this case, only this line drops this waker.
            drop(self.me.control().inbox.take_receiver_waker());
        }
        // A cancel request first sets its flag, and then looks for a waiting receiver. This code first registers the
        // receiver, and then reads the flag. Therefore, either this code sees the flag, or the cancel request wakes
        // this receiver.
        if checks_cancel && let Some((reason, _)) = head.cancel() {
            return Poll::Ready(Err(Exit::Cancelled(reason)));
        }
        let exit = if has_ended { head.exit() } else { None };
        exit.map_or(Poll::Pending, |exit| Poll::Ready(Err(exit)))
    }
}

impl<M: Send + 'static> Stream for Mailbox<M> {
    type Item = M;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Option<M>> {
        // The future that polls the stream belongs to another crate, so the source line of this future is not known.
        self.note_line(None);
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
    #[inline]
    fn drop(&mut self) {
        let control = &self.me.control();
        // If the mailbox belongs to no process, no exit of a process releases the pid of the mailbox. Therefore this
        // drop must release the pid.
        if control.head.is_outside() || !self.front.is_empty() {
            control.leave(&mut self.front);
        }
    }
}

impl Host {
    /// Creates a mailbox that has a pid but belongs to no process. Threads and tasks of any executor can use this
    /// mailbox as a channel.
    ///
    /// The mailbox exists until the [`Mailbox`] is dropped or its pid is killed. If all pids are in use or the runtime
    /// has shut down, this method returns a closed mailbox. A closed mailbox refuses all messages, and
    /// [`receive`](Mailbox::receive) fails with [`Exit::Refused`].
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
        self.mailbox_with(MailboxCapacity::Unbounded)
    }

    /// Creates a mailbox like [`mailbox`](Self::mailbox), with the capacity `bound`.
    pub fn mailbox_with<N: Send + 'static>(&self, bound: MailboxCapacity) -> (Address<N>, Mailbox<N>) {
        let control = self.outside_control(bound);
        (Address::new(control.clone()), Mailbox::new(control))
    }

    /// Creates a mailbox that receives the dead letters of the runtime. A dead letter is a message that a mailbox
    /// accepted but no process will read. For example, the receiver has exited, or the full mailbox has dropped the
    /// message. If several mailboxes for dead letters exist, only the newest of these mailboxes gets the dead letters.
    /// If there is no mailbox for dead letters, the runtime counts and drops each dead letter.
    ///
    /// A dead letter may be a request that contains a [`Reply`](crate::Reply). The caller of this request waits until
    /// the dead letter is dropped. The caller then gets [`CallError::Dropped`](crate::CallError::Dropped), even if the
    /// receiver of the request has exited. The mailbox has no capacity. Therefore the program must receive the dead
    /// letters continuously, or drop the mailbox.
    pub fn dead_letters(&self) -> Mailbox<crate::host::Envelope> {
        let control = self.outside_control(MailboxCapacity::Unbounded);
        self.add_dead_letter_mailbox(&control);
        Mailbox::new(control)
    }
}

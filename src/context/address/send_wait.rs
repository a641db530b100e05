//! Defines the future [`SendWait`] and the sink [`AddressSink`], which send a message to a bounded mailbox. If the
//! mailbox is full, a `SendWait` or an `AddressSink` waits for free space. The queue of waiting senders is part of the
//! mailbox (`process::mailbox::bounded`).

use std::any::type_name;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::{fmt, mem};

use futures::Sink;
use futures::future::FusedFuture;

use crate::context::address::Address;
use crate::context::time::Sleep;
use crate::host::Host;
use crate::host::control::Control;
use crate::host::control::waits::{Wait, WaitKind};
use crate::host::refs::RecordedWait;
use crate::host::registry::target::{Destination, Target};
use crate::observe::Counter;
use crate::platform::sync::Mutex;
use crate::process::error::{Addressee, SendError, SendErrorKind};
use crate::process::payload::Payload;
use crate::process::state::Ref;
use crate::process::state::budget::{BudgetPause, refund_if_pending};

/// A message that waits for free space in a full mailbox.
struct WaitingSend<M: Send + 'static> {
    control: Ref<Control<M>>,
    number: u64,
    is_limited: bool,
    line: &'static Location<'static>,
    recorded: RecordedWait,
}

impl<M: Send + 'static> WaitingSend<M> {
    /// Records that the polling process waits for free space. Inspections show this record.
    fn record(&mut self) {
        self.recorded.begin(self.control.head.host(), &self.wait());
    }

    fn wait(&self) -> Wait {
        let kind = if self.is_limited { WaitKind::LimitedRoom } else { WaitKind::Room };
        Wait::on(kind, self.control.head.pid(), Some(self.line))
    }

    /// Ends the record of the wait.
    fn end_record(&mut self) {
        let wait = self.wait();
        self.recorded.end(self.control.head.host(), || wait);
    }

    /// Records that the wait has a time limit. The next poll replaces the record of the wait.
    fn set_limited(&mut self) {
        self.end_record();
        self.is_limited = true;
    }

    fn poll(&mut self, cx: &Context<'_>) -> Poll<Result<(), (SendErrorKind, M)>> {
        // `clone` and `drop` of a waker run user code. Therefore this function clones and drops wakers only while the
        // mailbox is not locked.
        let mut waker = Some(cx.waker().clone());
        let admitted = self.control.inbox.poll_admitted(self.number, &mut waker);
        drop(waker);
        if admitted.is_pending() {
            self.record();
        }
        admitted.map_err(|(message, waker)| {
            drop(waker);
            (self.control.head.host().gone(), message)
        })
    }

    /// Stops waiting, and takes the message back. Returns `None` if the message has already entered the mailbox.
    fn take_back(&self) -> Option<M> {
        let (message, waker) = self.control.inbox.give_up(self.number)?;
        drop(waker);
        Some(message)
    }
}

impl<M: Send + 'static> Drop for WaitingSend<M> {
    fn drop(&mut self) {
        self.end_record();
        drop(self.take_back());
    }
}

enum State<M: Send + 'static> {
    /// The message is not sent yet. No code locks the mutex of the message. The mutex makes the future `Sync`, even if
    /// the message type is not `Sync`.
    Unsent {
        host: Host,
        to: Destination<M>,
        message: Mutex<M>,
    },
    Waiting(WaitingSend<M>),
    /// The message waits as a `Payload`, because the receiver accepts messages of any type.
    Untyped(WaitingSend<Payload>),
    Over,
}

/// Future that sends a message. If the mailbox is full, the future waits for free space. The future resolves when the
/// message is in the mailbox.
///
/// The first poll of the future sends the message. If the mailbox is full, the first poll adds the message to the queue
/// of waiting senders. A sent message takes one unit from the [budget](crate::should_yield) of the turn. If the budget
/// is spent, the first poll lets other processes run, and the second poll sends the message. When the mailbox has free
/// space again, the first message of this queue enters the mailbox. Thus, waiting messages enter the mailbox in the
/// order in which they were added to this queue. If the same sender later sends a second message with `send`, the
/// second message may overtake the waiting message. The future waits for free space even if the
/// [`MailboxCapacity`](crate::MailboxCapacity) says that a full mailbox drops messages.
///
/// The receiver can also be a process of a remote node, or an attached [`Deliver`](crate::Deliver). A process of a
/// remote node, or an attached `Deliver`, accepts or refuses the message immediately, and the future never waits.
///
/// # Errors
/// Returns the message:
/// - if the receiver has exited, or exits while the message waits;
/// - if no process has the name or the pid;
/// - if an attached `Deliver` refuses the message, for any reason;
/// - if the receiver takes messages of another type;
/// - if the receiver's mailbox takes [no messages at all](crate::Limits::mailbox_capacity);
/// - if the mailbox has no free space within the time limit of [`timeout`](Self::timeout);
/// - if the runtime has shut down.
///
/// # Cancel safety
/// If the future is dropped while its message waits for free space, the message is not sent. If the message has entered
/// the mailbox before the drop, the message stays there.
#[must_use = "futures do nothing unless polled"]
pub struct SendWait<M: Send + 'static> {
    state: State<M>,
    limit: Option<Box<Sleep>>,
    /// Whether the wait has a time limit. The time limit is in the field `limit`, or in the future that owns this
    /// future.
    is_limited: bool,
    pause: BudgetPause,
    /// Source line at which the future was created. Inspections show this line.
    line: &'static Location<'static>,
}

impl<M: Send + 'static> fmt::Debug for SendWait<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Unsent { .. } => "unsent",
            State::Waiting(_) | State::Untyped(_) => "waiting",
            State::Over => "over",
        };
        write!(f, "SendWait<{}>({state})", type_name::<M>())
    }
}

/// Puts a message into a mailbox. If the mailbox is full and `cx` is `Some`, puts the message into the queue of waiting
/// senders. In this case, the closure `wait` creates the new state of the future. `is_limited` says whether the send
/// has a time limit, and `line` is the source line of the send.
fn enter<N: Send + 'static, M: Send + 'static>(
    control: Ref<Control<M>>,
    message: M,
    cx: Option<&Context<'_>>,
    (is_limited, line): (bool, &'static Location<'static>),
    wait: impl FnOnce(WaitingSend<M>) -> State<N>,
) -> Result<State<N>, (SendErrorKind, M)> {
    let number = control.push_or_wait(message, cx.map(|cx| cx.waker().clone()))?;
    Ok(number.map_or(State::Over, |number| {
        let mut waiting = WaitingSend { control, number, is_limited, line, recorded: RecordedWait::default() };
        waiting.record();
        wait(waiting)
    }))
}

fn typed<N: Send + 'static>(payload: Payload) -> N {
    payload.downcast().unwrap_or_else(|_| unreachable!("a refused message has the type that it was sent with"))
}

/// Sends the message. If the mailbox is full, adds the message to the queue of waiting senders. If `cx` is `None`, the
/// message cannot wait. In this case, a full mailbox refuses the message with [`SendErrorKind::Full`].
fn begin<N: Send + 'static>(
    host: &Host,
    to: &Destination<N>,
    message: N,
    cx: Option<&Context<'_>>,
    limit_and_line: (bool, &'static Location<'static>),
) -> Result<State<N>, (SendErrorKind, N)> {
    let control = match to {
        Destination::Here(control) => return enter(control.clone(), message, cx, limit_and_line, State::Waiting),
        Destination::Pid(pid) => host.shared().pid_table.get(*pid),
        Destination::Name(name) => host.namespace().names().get(name),
    };
    let Some(control) = control else {
        return host.try_send_by(&to.destination(), message).map(|()| State::Over);
    };
    if let Some(control) = control.clone().downcast::<N>() {
        enter(control, message, cx, limit_and_line, State::Waiting)
    } else if let Some(control) = control.clone().downcast::<Payload>() {
        enter(control, Payload::new(message), cx, limit_and_line, State::Untyped)
            .map_err(|(refusal, payload)| (refusal, typed(payload)))
    } else {
        control.deliver_typed(message).map(|()| State::Over)
    }
}

impl<M: Send + 'static> SendWait<M> {
    #[track_caller]
    pub(crate) fn new(host: Host, to: Destination<M>, message: M) -> Self {
        let state = State::Unsent { host, to, message: Mutex::new(message) };
        Self { state, limit: None, is_limited: false, pause: BudgetPause::default(), line: Location::caller() }
    }

    /// Sets a time limit. The time limit starts when this method is called. If the message has not entered the mailbox
    /// in time, the future fails with [`SendErrorKind::TimedOut`] and returns the message. A second time limit replaces
    /// the first time limit. Even with a time limit of zero, the future tries once to send the message.
    ///
    /// ```
    /// # use procession::{MailboxCapacity, Runtime, SendErrorKind};
    /// # use std::time::Duration;
    /// let rt = Runtime::builder().workers(0).build()?;
    /// let (address, _mailbox) = rt.mailbox_with(MailboxCapacity::Reject(1));
    /// address.send(1)?;
    /// let refused = rt.block_on(address.send_wait(2).timeout(Duration::from_millis(1))).unwrap_err();
    /// assert_eq!((refused.kind(), refused.into_message()), (SendErrorKind::TimedOut, 2));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn timeout(mut self, time: Duration) -> Self {
        let host = match &self.state {
            State::Unsent { host, .. } => host,
            State::Waiting(waiting) => waiting.control.head.host(),
            State::Untyped(waiting) => waiting.control.head.host(),
            State::Over => return self,
        };
        self.limit = Some(Box::new(host.limit(time)));
        self.set_limited();
        self
    }

    /// Records that the wait has a time limit. Inspections show this fact.
    pub(crate) fn set_limited(&mut self) {
        self.is_limited = true;
        match &mut self.state {
            State::Waiting(waiting) => waiting.set_limited(),
            State::Untyped(waiting) => waiting.set_limited(),
            State::Unsent { .. } | State::Over => {}
        }
    }

    /// Polls a message that waits for free space. If the time limit has passed, takes the message back.
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), (SendErrorKind, M)>> {
        let sent = match &mut self.state {
            State::Waiting(waiting) => waiting.poll(cx),
            State::Untyped(waiting) => waiting.poll(cx).map_err(|(refusal, payload)| (refusal, typed(payload))),
            State::Unsent { .. } | State::Over => Poll::Pending,
        };
        let Some(limit) = self.limit.as_deref_mut().filter(|_| sent.is_pending()) else { return sent };
        ready!(Pin::new(limit).poll(cx));
        let message = match &self.state {
            State::Waiting(waiting) => waiting.take_back(),
            State::Untyped(waiting) => waiting.take_back().map(typed),
            State::Unsent { .. } | State::Over => None,
        };
        Poll::Ready(message.map_or(Ok(()), |message| Err((SendErrorKind::TimedOut, message))))
    }

    fn refuse(host: &Host, to: Addressee, (kind, message): (SendErrorKind, M)) -> SendError<M> {
        host.shared().metrics.add(Counter::Refused, 1);
        SendError::new(kind, message).to(to)
    }
}

impl<M: Send + 'static> Unpin for SendWait<M> {}

impl<M: Send + 'static> Future for SendWait<M> {
    type Output = Result<(), SendError<M>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Over = self.state {
            return Poll::Pending;
        }
        if let State::Unsent { .. } = self.state {
            // Without the budget, a body that only sends to an unbounded mailbox would never release its worker.
            let is_taken = ready!(self.pause.spend(cx));
            let State::Unsent { host, to, message } = mem::replace(&mut self.state, State::Over) else {
                unreachable!("just seen")
            };
            let polled = match begin(&host, &to, message.into_inner(), Some(cx), (self.is_limited, self.line)) {
                Ok(State::Over) => Poll::Ready(Ok(())),
                Ok(waiting) => {
                    self.state = waiting;
                    Poll::Pending
                }
                Err(refused) => Poll::Ready(Err(Self::refuse(&host, to.destination().receiver(), refused))),
            };
            refund_if_pending(is_taken, &polled);
            if polled.is_ready() {
                self.limit = None;
                return polled;
            }
            // The message waits. If the send has no time limit, this poll is complete. If the send has a time limit,
            // the code below also sets the timer.
            if self.limit.is_none() {
                return Poll::Pending;
            }
        }
        let sent = ready!(self.poll_waiting(cx));
        self.limit = None;
        let state = mem::replace(&mut self.state, State::Over);
        let head = match &state {
            State::Waiting(waiting) => &waiting.control.head,
            State::Untyped(waiting) => &waiting.control.head,
            State::Unsent { .. } | State::Over => unreachable!("only a waiting message is ready"),
        };
        Poll::Ready(sent.map_err(|refused| Self::refuse(head.host(), Addressee::Process(head.pid()), refused)))
    }
}

impl<M: Send + 'static> FusedFuture for SendWait<M> {
    fn is_terminated(&self) -> bool {
        matches!(self.state, State::Over)
    }
}

impl Host {
    /// Returns a future that sends a message. If the mailbox is full, the future waits for free space. Messages that
    /// wait enter the mailbox in the order that [`SendWait`] describes.
    ///
    /// # Errors
    /// If the message is refused, the error contains the message and the reason: see [`SendWait`].
    ///
    /// # Cancel safety
    /// If the future is dropped while its message waits for free space, the message is not sent. If the message has
    /// entered the mailbox before the drop, the message stays there.
    #[track_caller]
    pub fn send_wait<N: Send + 'static>(&self, to: impl Target<N>, message: N) -> SendWait<N> {
        SendWait::new(self.clone(), to.destination().keep(), message)
    }
}

impl<M: Send + 'static> Address<M> {
    /// Returns a future that sends a message. If the mailbox is full, the future waits for free space. This method does
    /// the same as [`Host::send_wait`]. For a request with a reply, use [`call_wait`](Self::call_wait).
    ///
    /// # Errors
    /// If the message is refused, the error contains the message and the reason: see [`SendWait`].
    ///
    /// # Cancel safety
    /// The future of this method is as cancel safe as the future of [`Host::send_wait`].
    #[track_caller]
    pub fn send_wait(&self, message: M) -> SendWait<M> {
        let control = self.control();
        SendWait::new(control.head.host().clone(), Destination::Here(control.clone()), message)
    }

    /// Returns a `Sink` that sends to this address. For example, a program can forward a stream to this sink. Like
    /// [`send_wait`](Self::send_wait), the sink waits for free space in the mailbox.
    pub fn sink(&self) -> AddressSink<M> {
        AddressSink { address: self.clone(), waiting: None, pause: BudgetPause::default() }
    }
}

/// A `futures::Sink` that sends each message to an [`Address`]. If a message is refused, the error contains the
/// message.
///
/// If the mailbox has free space, `start_send` immediately sends the message. If the mailbox is full, `start_send`
/// stores the message in the sink. The next call of `poll_ready`, `poll_flush` or `poll_close` adds the stored message
/// to the queue of waiting senders. The sink is not ready until the stored message is in the mailbox. If the sink is
/// dropped before the stored message is in the mailbox, the stored message is discarded. If no message is stored, a
/// call of `poll_ready` takes one unit from the [budget](crate::should_yield) of the turn. If the budget is spent,
/// `poll_ready` lets other processes run.
///
/// ```
/// use futures::{StreamExt, stream};
/// use procession::{MailboxCapacity, Context, Exit, Runtime, SendError};
///
/// async fn sum(mut ctx: Context<u64>) -> Result<u64, Exit> {
///     Ok(ctx.receive().await? + ctx.receive().await?)
/// }
/// let rt = Runtime::new()?;
/// let sum = rt.process().mailbox_capacity(MailboxCapacity::Reject(1)).spawn(sum)?;
/// rt.block_on(stream::iter([1, 2]).map(Ok::<_, SendError<u64>>).forward(sum.sink()))?;
/// assert_eq!(rt.block_on(sum)?, 3);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub struct AddressSink<M: Send + 'static> {
    address: Address<M>,
    waiting: Option<SendWait<M>>,
    pause: BudgetPause,
}

/// Creates another sink for the same address. The new sink has no stored message.
impl<M: Send + 'static> Clone for AddressSink<M> {
    fn clone(&self) -> Self {
        self.address.sink()
    }
}

impl<M: Send + 'static> fmt::Debug for AddressSink<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressSink").field("address", &self.address).field("waiting", &self.waiting).finish()
    }
}

impl<M: Send + 'static> Sink<M> for AddressSink<M> {
    type Error = SendError<M>;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError<M>>> {
        if self.waiting.is_none() {
            return self.pause.spend(cx).map(|_| Ok(()));
        }
        self.poll_flush(cx)
    }

    /// Sends the message. If the mailbox is full, stores the message until the mailbox has free space.
    ///
    /// # Errors
    /// Returns the message if the process has exited or the runtime has shut down.
    ///
    /// # Panics
    /// Panics if the sink is not ready. The sink is not ready while the previous message waits for free space.
    #[track_caller]
    fn start_send(mut self: Pin<&mut Self>, message: M) -> Result<(), SendError<M>> {
        let is_ready = self.waiting.is_none();
        assert!(is_ready, "the sink of {:?} still waits for room; call `poll_ready` before `start_send`", self.address);
        let control = self.address.control();
        match control.push_or_wait(message, None) {
            Ok(_) => Ok(()),
            Err((SendErrorKind::Full, message)) => {
                self.waiting = Some(self.address.send_wait(message));
                Ok(())
            }
            Err((refusal, message)) => {
                control.head.count(Counter::Refused);
                Err(SendError::new(refusal, message).to(Addressee::Process(control.head.pid())))
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError<M>>> {
        let Some(waiting) = &mut self.waiting else { return Poll::Ready(Ok(())) };
        let sent = ready!(Pin::new(waiting).poll(cx));
        self.waiting = None;
        Poll::Ready(sent)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError<M>>> {
        self.poll_flush(cx)
    }
}

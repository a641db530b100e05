//! Sends that wait for room where a mailbox has a bound: as a future, and as a `Sink`.

use std::any::type_name;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::{fmt, mem};

use futures::Sink;
use futures::future::FusedFuture;

use crate::context::address::Address;
use crate::host::control::Control;
use crate::host::{Destination, Host, Target};
use crate::observe::Counter;
use crate::platform::sync::Mutex;
use crate::process::error::{Refusal, SendError};
use crate::process::payload::Payload;
use crate::process::state::Ref;

/// A message in the line before a full mailbox.
struct Waiting<M: Send + 'static> {
    control: Ref<Control<M>>,
    number: u64,
}

impl<M: Send + 'static> Waiting<M> {
    fn poll(&self, cx: &Context<'_>) -> Poll<Result<(), (Refusal, M)>> {
        // Cloned and dropped outside the lock: a waker is somebody's code.
        let mut waker = Some(cx.waker().clone());
        let admitted = self.control.inbox.poll_admitted(self.number, &mut waker);
        drop(waker);
        admitted.map_err(|(message, waker)| {
            drop(waker);
            (self.control.head.host().gone(), message)
        })
    }
}

impl<M: Send + 'static> Drop for Waiting<M> {
    fn drop(&mut self) {
        drop(self.control.inbox.give_up(self.number));
    }
}

enum State<M: Send + 'static> {
    /// The lock is never taken; it makes this `Sync` for messages that are only `Send`.
    Unsent {
        host: Host,
        to: Destination<M>,
        message: Mutex<M>,
    },
    Waiting(Waiting<M>),
    /// The receiver takes messages of any type.
    Untyped(Waiting<Payload>),
    Over,
}

/// A message on its way into a mailbox, which may have to wait for room; resolves when it is there.
///
/// Those that wait come in in the order in which they were first polled, each as soon as there is room. A policy that
/// drops messages does not apply. A process that can't be waited for, as it lives in another node or is a
/// [`Receiver`](crate::Receiver), takes the message or refuses it at once.
///
/// # Errors
/// The message, when the receiver has ended, also while this waits; when it takes another type; or when its mailbox takes
/// [no messages at all](crate::Limits::mail).
///
/// # Cancel safety
/// Dropped before it resolved, its message was not sent, unless there was room for it by then.
#[must_use = "futures do nothing unless polled"]
pub struct SendWait<M: Send + 'static> {
    state: State<M>,
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

/// Puts a message into a mailbox, or into the line before it; `wait` says which state that is.
fn enter<N: Send + 'static, M: Send + 'static>(
    control: Ref<Control<M>>,
    message: M,
    cx: Option<&Context<'_>>,
    wait: impl FnOnce(Waiting<M>) -> State<N>,
) -> Result<State<N>, (Refusal, M)> {
    let number = control.push_or_wait(message, cx.map(|cx| cx.waker().clone()))?;
    Ok(number.map_or(State::Over, |number| wait(Waiting { control, number })))
}

fn typed<N: Send + 'static>(payload: Payload) -> N {
    payload.downcast().unwrap_or_else(|_| unreachable!("a refused message comes back as what it was sent as"))
}

/// Sends, or begins to wait; without a context it does not wait, and the message comes back as [`Refusal::Full`].
fn begin<N: Send + 'static>(
    host: &Host,
    to: &Destination<N>,
    message: N,
    cx: Option<&Context<'_>>,
) -> Result<State<N>, (Refusal, N)> {
    let control = match to {
        Destination::Here(control) => return enter(control.clone(), message, cx, State::Waiting),
        Destination::Pid(pid) => host.shared().pid_table.get(*pid),
        Destination::Name(name) => host.namespace().names().get(name),
    };
    let Some(control) = control else {
        return host.try_send_by(&to.way(), message).map(|()| State::Over);
    };
    if let Some(control) = control.clone().downcast::<N>() {
        enter(control, message, cx, State::Waiting)
    } else if let Some(control) = control.clone().downcast::<Payload>() {
        enter(control, Payload::new(message), cx, State::Untyped)
            .map_err(|(refusal, payload)| (refusal, typed(payload)))
    } else {
        control.take(message).map(|()| State::Over)
    }
}

impl<M: Send + 'static> SendWait<M> {
    pub(crate) fn new(host: Host, to: Destination<M>, message: M) -> Self {
        Self { state: State::Unsent { host, to, message: Mutex::new(message) } }
    }

    fn refuse(&self, host: &Host, refused: (Refusal, M)) -> SendError<M> {
        host.shared().metrics.add(Counter::Refused, 1);
        SendError::new(refused.0, refused.1)
    }
}

impl<M: Send + 'static> Unpin for SendWait<M> {}

impl<M: Send + 'static> Future for SendWait<M> {
    type Output = Result<(), SendError<M>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Unsent { .. } = self.state {
            let State::Unsent { host, to, message } = mem::replace(&mut self.state, State::Over) else {
                unreachable!("just seen")
            };
            return match begin(&host, &to, message.into_inner(), Some(cx)) {
                Ok(State::Over) => Poll::Ready(Ok(())),
                Ok(waiting) => {
                    self.state = waiting;
                    Poll::Pending
                }
                Err(refused) => Poll::Ready(Err(self.refuse(&host, refused))),
            };
        }
        let (sent, host) = match &self.state {
            State::Waiting(waiting) => (ready!(waiting.poll(cx)), waiting.control.head.host().clone()),
            State::Untyped(waiting) => {
                let sent = ready!(waiting.poll(cx)).map_err(|(refusal, payload)| (refusal, typed(payload)));
                (sent, waiting.control.head.host().clone())
            }
            State::Unsent { .. } | State::Over => return Poll::Pending,
        };
        self.state = State::Over;
        Poll::Ready(sent.map_err(|refused| self.refuse(&host, refused)))
    }
}

impl<M: Send + 'static> FusedFuture for SendWait<M> {
    fn is_terminated(&self) -> bool {
        matches!(self.state, State::Over)
    }
}

impl Host {
    /// Sends a message, and waits for room where the mailbox is full. The message goes at the first poll.
    ///
    /// # Errors
    /// The message and why it was refused: see [`SendWait`].
    ///
    /// # Cancel safety
    /// Dropped, the message was not sent, unless there was room by then.
    pub fn send_wait<N: Send + 'static>(&self, to: impl Target<N>, message: N) -> SendWait<N> {
        SendWait::new(self.clone(), to.way().keep(), message)
    }
}

impl<M: Send + 'static> Address<M> {
    /// Sends a message, and waits for room where the mailbox is full. As [`Host::send_wait`].
    ///
    /// # Errors
    /// The message and why it was refused: see [`SendWait`].
    pub fn send_wait(&self, message: M) -> SendWait<M> {
        let control = self.control();
        SendWait::new(control.head.host().clone(), Destination::Here(control.clone()), message)
    }

    /// The address as a `Sink`, for whatever forwards a stream: it waits for room, as [`send_wait`](Self::send_wait).
    pub fn sink(&self) -> AddressSink<M> {
        AddressSink { address: self.clone(), waiting: None }
    }
}

/// An [`Address`] as a `futures::Sink`: its error hands the message back, as that of [`Address::send`].
///
/// A message that there is room for is sent at once. Another one waits in the line of the mailbox from the next flush on,
/// or when the sink is to take one more; until it is in, the sink is not ready. Dropped, it takes that one back.
///
/// ```
/// use futures::{StreamExt, stream};
/// use procession::{Bound, Context, Exit, Runtime, SendError};
///
/// async fn sum(mut ctx: Context<u64>) -> Result<u64, Exit> {
///     Ok(ctx.receive().await? + ctx.receive().await?)
/// }
/// let rt = Runtime::new()?;
/// let sum = rt.process().mailbox(Bound::Reject(1)).spawn(sum)?;
/// rt.block_on(stream::iter([1, 2]).map(Ok::<_, SendError<u64>>).forward(sum.sink()))?;
/// assert_eq!(rt.block_on(sum)?, 3);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub struct AddressSink<M: Send + 'static> {
    address: Address<M>,
    waiting: Option<SendWait<M>>,
}

/// Another sink to the same address; what this one waits with it keeps.
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
        let Some(waiting) = &mut self.waiting else { return Poll::Ready(Ok(())) };
        let sent = ready!(Pin::new(waiting).poll(cx));
        self.waiting = None;
        Poll::Ready(sent)
    }

    /// # Panics
    /// If the sink was not ready: the message before waits still.
    fn start_send(mut self: Pin<&mut Self>, message: M) -> Result<(), SendError<M>> {
        assert!(self.waiting.is_none(), "`start_send` before `poll_ready` said that there is room");
        let control = self.address.control();
        match control.push_or_wait(message, None) {
            Ok(_) => Ok(()),
            Err((Refusal::Full, message)) => {
                self.waiting = Some(self.address.send_wait(message));
                Ok(())
            }
            Err((refusal, message)) => {
                control.head.count(Counter::Refused);
                Err(SendError::new(refusal, message))
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError<M>>> {
        self.poll_ready(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError<M>>> {
        self.poll_ready(cx)
    }
}

//! Calls: a request that carries the right to answer it, and the future of the answer.

pub(crate) mod answer;
pub(crate) mod shared_cell;

use std::any::type_name;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use std::{fmt, mem};

use futures::future::FusedFuture;

use crate::context::call::answer::{ReplyReceiver, ReplySender};
use crate::context::time::Sleep;
use crate::host::control::{AnyControl, Change};
use crate::host::dispatch::completion::UntypedCompletion;
use crate::host::refs::ProcessRef;
use crate::host::{Host, Target, Way};
use crate::observe::Counter;
use crate::process::error::{Refusal, SendError};
use crate::process::event::Tag;
use crate::process::exit::Exit;
use crate::process::failure::{CallError, Failure};
use crate::process::payload::Payload;
use crate::process::state::Ref;
use crate::process::state::current::Current;

/// What becomes of the request: for the asker alone.
enum RequestStage {
    Unsent(Request),
    Sent {
        /// The asker is counted as waiting.
        counted: bool,
    },
    Refused(CallError),
}

type Answer<T> = Result<T, CallError>;

/// The end of the one that answers.
type Replier<T> = ReplySender<Caller, RequestStage, Answer<T>>;

/// The end of the one that asks.
type PendingReply<T> = ReplyReceiver<Caller, RequestStage, Answer<T>>;

/// Whoever a call is known through: it leads to the host. One reference for both ends.
enum Caller {
    /// The process that asks, which is counted as waiting.
    ReplyReceiver(ProcessRef),
    /// The process in whose turn the question was made, by an address: it is counted as waiting once it waits itself. It may
    /// be a handler's question, or be carried elsewhere.
    Within(ProcessRef),
    /// If none does, the one that is asked.
    Asked(Ref<dyn AnyControl>),
    Host(Host),
    /// The yield of a hand-written process, which is what is answered: the reply alone knows of it.
    Yield(UntypedCompletion),
}

impl Caller {
    /// The process that waits, or may.
    #[inline]
    fn asker(&self) -> Option<&ProcessRef> {
        match self {
            Self::ReplyReceiver(asker) | Self::Within(asker) => Some(asker),
            Self::Asked(_) | Self::Host(_) | Self::Yield(_) => None,
        }
    }

    #[inline]
    fn wait_for(&self, change: Change) {
        if let Some(asker) = self.asker() {
            asker.wait_for(change);
        }
    }

    /// Whether it is the asker's task that polls, with this waker.
    #[inline]
    fn polls_itself(&self, waker: &Waker) -> bool {
        self.asker()
            .is_some_and(|asker| Current::with(|current| current.steps(asker.address()) && current.is_own_waker(waker)))
    }

    fn host(&self) -> &Host {
        match self {
            Self::ReplyReceiver(control) | Self::Within(control) => control.head().host(),
            Self::Asked(control) => control.head().host(),
            Self::Host(host) => host,
            Self::Yield(slip) => slip.host(),
        }
    }
}

impl answer::CallParty for Caller {
    #[inline]
    fn wake(&self) {
        self.asker().expect("its task waits").wake_or_note();
    }
}

/// The yield that is what is answered.
fn into_yield<T>(to: Replier<T>) -> UntypedCompletion {
    let slip = to.finish(|party| match party {
        Caller::Yield(slip) => Some(slip.take()),
        _ => None,
    });
    slip.ok().flatten().expect("it is a yield's, which nobody else has")
}

/// Answers a yield.
#[cold]
fn finish<T: Send + 'static>(to: Replier<T>, value: T) -> Result<(), T> {
    let slip = into_yield(to);
    if !slip.is_wanted() {
        slip.late();
        return Err(value);
    }
    slip.finish(Ok(Payload::new(value)));
    Ok(())
}

/// The right to answer one call; it travels inside the message, or anywhere. It is one word.
///
/// Dropped unanswered, the caller gets [`CallError::Dropped`]; if it was dropped because the process that held it, or
/// had it unread in its mailbox, died: [`CallError::Died`] with the reason, at once.
pub struct Reply<T: Send + 'static> {
    to: Option<Replier<T>>,
}

/// A message that has one and a word beside fits a [`Payload`].
const _: () = assert!(size_of::<Reply<u64>>() == size_of::<usize>());

impl<T: Send + 'static> Reply<T> {
    pub(crate) fn to_yield(slip: UntypedCompletion) -> Self {
        Self { to: Some(ReplySender::alone(Caller::Yield(slip), || RequestStage::Sent { counted: false })) }
    }

    /// Answers. If nobody waits for it any more it goes nowhere and is counted as a late reply.
    pub fn send(self, value: T) {
        let _late = self.try_send(value);
    }

    /// Answers.
    ///
    /// # Errors
    /// The value, when nobody waits for it any more.
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

    /// Whether nobody waits for the answer any more.
    pub fn is_closed(&self) -> bool {
        self.to.as_ref().is_none_or(|to| match &**to {
            Caller::Yield(slip) => !slip.is_wanted(),
            _ => to.is_closed(),
        })
    }

    /// Resolves when nobody waits for the answer any more; cancel safe.
    pub async fn closed(&self) {
        std::future::poll_fn(|cx| {
            let closed = self.to.as_ref().is_none_or(|to| match &**to {
                Caller::Yield(slip) => !slip.watch(cx.waker()),
                _ => to.watch(cx.waker()),
            });
            if closed { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl<T: Send + 'static> Drop for Reply<T> {
    fn drop(&mut self) {
        let Some(to) = self.to.take() else { return };
        let tell = |to: Replier<T>, exit: Option<&Exit>| {
            let error = exit.map_or(CallError::Dropped, |exit| CallError::Died(exit.clone()));
            match *to {
                Caller::Yield(_) => into_yield(to).finish(Err(Failure::new(error))),
                _ => drop(to.answer(Err(error))),
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

/// A request on its way; what it holds is gone when it is sent.
enum Request {
    /// To a mailbox that takes messages of this type.
    Here(Ref<dyn AnyControl>, Option<Payload>),
    There(Option<Box<dyn FnOnce() -> Result<(), CallError> + Send>>),
}

impl Request {
    #[inline]
    fn send(&mut self) -> Result<(), Box<CallError>> {
        match self {
            Self::Here(to, message) => to.deliver_from(message).map_err(|refusal| {
                to.head().count(Counter::Refused);
                Box::new(refused(*refusal))
            }),
            Self::There(send) => send.take().expect("it is sent once")().map_err(Box::new),
        }
    }
}

/// A question on its way; resolves to the reply. Dropped, it is cancelled: a reply that comes later goes nowhere.
#[must_use = "futures do nothing unless polled"]
pub struct Call<T> {
    // Two words, for it is moved before it is polled; the request lies with what both ends share.
    /// Until it is over.
    asking: Option<PendingReply<T>>,
    limit: Option<Box<Sleep>>,
}

impl<T> fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Call<{}>", type_name::<T>())
    }
}

/// Sends the request, which was not sent.
fn send<T>(asking: &mut PendingReply<T>) {
    let (party, stage) = asking.parts();
    let RequestStage::Unsent(request) = stage else { unreachable!("only an unsent call is sent") };
    // The request goes, and what was refused with it: it may hold the other end.
    match request.send() {
        Ok(()) => {
            let counted = matches!(party, Caller::ReplyReceiver(_));
            *stage = RequestStage::Sent { counted };
            if counted {
                party.wait_for(Change::More);
            }
        }
        Err(error) => *stage = RequestStage::Refused(*error),
    }
}

impl<T> Call<T> {
    /// Sends the request now, not at the first poll.
    pub fn start(mut self) -> Self {
        self.asking.as_mut().into_iter().for_each(send);
        self
    }

    /// Leaves; `answered` says that the answer was taken, so that there is nothing to refuse.
    #[inline]
    fn end(&mut self, answered: bool) {
        self.limit = None;
        let Some(mut asking) = self.asking.take() else { return };
        let (party, stage) = asking.parts();
        match stage {
            RequestStage::Sent { counted } => {
                if *counted {
                    party.wait_for(Change::Less);
                }
                if !answered {
                    asking.close();
                }
            }
            // It holds the other end, which lies in what both share.
            RequestStage::Unsent(_) => drop(mem::replace(stage, RequestStage::Sent { counted: false })),
            RequestStage::Refused(_) => {}
        }
    }

    /// The answer, if it has come. What was refused is answered too, by the drop of the request; that is not looked at.
    #[inline(always)]
    fn take(&mut self) -> Option<Answer<T>> {
        let asking = self.asking.as_mut()?;
        let RequestStage::Sent { .. } = asking.parts().1 else { return None };
        let answer = asking.take()?;
        self.end(true);
        Some(answer)
    }

    /// Fails with [`CallError::TimedOut`] unless the reply comes in this time, counted from now.
    pub fn timeout(mut self, time: Duration) -> Self {
        if let Some(asking) = &self.asking {
            self.limit = Some(Box::new(asking.party().host().sleep(time)));
        }
        self
    }
}

impl<T> Future for Call<T> {
    type Output = Result<T, CallError>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Most that are polled again have been answered. This is to be a part of the asker's code: what it returns is not
        // moved then.
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
        let Some(asking) = &mut this.asking else { return Poll::Pending };
        let is_task = asking.parts().0.polls_itself(cx.waker());
        if let RequestStage::Unsent(_) = asking.parts().1 {
            if is_task {
                asking.task_waits();
            }
            send(asking);
        }
        let answered = asking.seems_answered();
        let answer = match asking.parts() {
            (party, RequestStage::Sent { counted }) => {
                if is_task && !*counted && !answered {
                    *counted = true;
                    party.wait_for(Change::More);
                }
                if let Poll::Ready(answer) = asking.poll(is_task, cx.waker()) {
                    this.end(true);
                    return Poll::Ready(answer);
                }
                let limit = this.limit.as_deref_mut().map(|limit| Pin::new(limit).poll(cx));
                match limit {
                    Some(Poll::Ready(())) => Err(CallError::TimedOut),
                    _ => return Poll::Pending,
                }
            }
            (_, RequestStage::Refused(error)) => Err(error.clone()),
            (_, RequestStage::Unsent(_)) => unreachable!("sent above"),
        };
        this.end(false);
        Poll::Ready(answer)
    }
}

impl<T> FusedFuture for Call<T> {
    fn is_terminated(&self) -> bool {
        self.asking.is_none()
    }
}

impl<T> Drop for Call<T> {
    fn drop(&mut self) {
        self.end(false);
    }
}

/// Sends a request; a refusal as the caller of it knows it, with the request.
fn ask<N: Send + 'static>(host: &Host, to: &Way<'_, N>, request: N) -> Result<(), (CallError, SendError<N>)> {
    let sent = match to {
        Way::Here(control) => control.push(request).map_err(|(refusal, request)| {
            host.shared().metrics.add(Counter::Refused, 1);
            SendError::new(refusal, request)
        }),
        way => host.send_by(way, request),
    };
    sent.map_err(|error| (refused(error.refusal()), error))
}

/// A refusal as the caller knows it.
fn refused(refusal: Refusal) -> CallError {
    match refusal {
        Refusal::WrongType { expected } => CallError::WrongType { expected },
        Refusal::Full => CallError::Full,
        Refusal::ShutDown => CallError::ShutDown,
        _ => CallError::NoProcess,
    }
}

impl Host {
    /// Asks, and resolves to the reply: see [`Address::call`](crate::Address::call).
    pub fn call<N: Send + 'static, T: Send + 'static>(
        &self,
        to: impl Target<N>,
        request: impl FnOnce(Reply<T>) -> N,
    ) -> Call<T> {
        self.call_as(ProcessRef::of_turn(self), Caller::Within, to, request)
    }

    pub(crate) fn call_from<N: Send + 'static, T: Send + 'static>(
        &self,
        asker: ProcessRef,
        to: impl Target<N>,
        request: impl FnOnce(Reply<T>) -> N,
    ) -> Call<T> {
        self.call_as(Some(asker), Caller::ReplyReceiver, to, request)
    }

    #[inline(always)]
    fn call_as<N: Send + 'static, T: Send + 'static>(
        &self,
        asker: Option<ProcessRef>,
        asks: impl FnOnce(ProcessRef) -> Caller,
        to: impl Target<N>,
        request: impl FnOnce(Reply<T>) -> N,
    ) -> Call<T> {
        let way = to.way();
        let party = || match (asker, &way) {
            (Some(asker), _) => asks(asker),
            (None, Way::Here(control)) => Caller::Asked(control.any()),
            (None, Way::Pid(_) | Way::Name(_)) => Caller::Host(self.clone()),
        };
        let (mut asking, other) = ReplyReceiver::new(party, || RequestStage::Sent { counted: false });
        let message = request(Reply { to: Some(other) });
        let request = match way {
            Way::Here(control) => Request::Here(control.any(), Some(Payload::new(message))),
            way => {
                let (host, to) = (self.clone(), way.keep());
                Request::There(Some(Box::new(move || ask(&host, &to.way(), message).map_err(|(error, _)| error))))
            }
        };
        *asking.parts().1 = RequestStage::Unsent(request);
        Call { asking: Some(asking), limit: None }
    }
}

/// Asks on behalf of a hand-written process: the reply answers its yield.
pub(crate) fn ask_as_yield<N: Send + 'static, T: Send + 'static>(
    control: &Ref<dyn AnyControl>,
    tag: Tag,
    to: &Way<'_, N>,
    request: impl FnOnce(Reply<T>) -> N,
) {
    let message = request(Reply::to_yield(UntypedCompletion::new(control.clone(), tag)));
    if let Err((error, refused)) = ask(control.head().host(), to, message) {
        // Before the request is dropped, for the reply in it would answer `Dropped`.
        let _ = control.complete(tag, &mut Some(Err(Failure::new(error))), false);
        drop(refused);
    }
}

//! The futures by which a body waits for the world: a command's answer, and its own cancel.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::FusedFuture;

use crate::control::{AnyControl, Listening};
use crate::observe::Counter;
use crate::process::command::Command;
use crate::process::event::{Tag, typed};
use crate::process::exit::Reason;
use crate::process::failure::Failure;
use crate::process::payload::Payload;
use crate::process::turn;
use crate::sync::Arc;
use crate::time::Sleep;
use crate::yields::Ear;

enum State<C> {
    /// Not polled yet.
    Fresh(Payload),
    Flying(Tag<C>),
    Over,
}

/// A command on its way; resolves to its answer: see [`Me::perform`](crate::Me::perform).
#[must_use = "futures do nothing unless polled"]
pub struct Perform<C: Command> {
    control: Arc<dyn AnyControl>,
    state: State<C>,
    limit: Option<Box<Sleep>>,
}

impl<C: Command> fmt::Debug for Perform<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Perform<{}>", std::any::type_name::<C>())
    }
}

impl<C: Command> Perform<C> {
    pub(crate) fn new(control: Arc<dyn AnyControl>, command: C) -> Self {
        Self { control, state: State::Fresh(Payload::new(command)), limit: None }
    }

    /// Fails with [`Failure::TimedOut`], and cancels the command, unless the answer comes in this time, counted from
    /// now.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.limit = Some(Box::new(self.control.head().host().sleep(time)));
        self
    }

    /// Yields the command now, not at the first poll. Outside its process it does nothing: the poll says so.
    pub fn start(mut self) -> Self {
        if let State::Fresh(_) = self.state {
            let _ = self.launch(Ear::Own);
        }
        self
    }

    /// Lets the command run on without its answer. A command that was not yielded yet is, if this is its process.
    pub fn detach(mut self) {
        if let State::Fresh(_) = self.state {
            let _ = self.launch(Ear::Nobody);
        }
        if let State::Flying(tag) = std::mem::replace(&mut self.state, State::Over) {
            self.control.head().yields().detach(tag.erase());
        }
    }

    fn is_at_home(&self) -> bool {
        turn::pid() == Some(self.control.head().pid())
    }

    fn launch(&mut self, ear: Ear) -> Result<(), Failure> {
        if !self.is_at_home() {
            return Err(Failure::Outside);
        }
        let State::Fresh(command) = std::mem::replace(&mut self.state, State::Over) else { return Ok(()) };
        let head = self.control.head();
        let tag = head.yields().start::<C>(ear, None).unwrap_or_else(|_| unreachable!("no tag was chosen"));
        head.yields().defer(tag.erase(), command);
        head.host().shared().metrics.add(Counter::Yields, 1);
        self.state = State::Flying(tag);
        Ok(())
    }

    fn end(&mut self) {
        self.limit = None;
        if let State::Flying(tag) = std::mem::replace(&mut self.state, State::Over) {
            self.control.head().yields().cancel(tag.erase());
        }
    }
}

impl<C: Command> Future for Perform<C> {
    type Output = Result<C::Reply, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if matches!(this.state, State::Over) {
            return Poll::Pending;
        }
        let ear = || if turn::is_own_waker(cx.waker()) { Ear::Own } else { Ear::Other(cx.waker().clone()) };
        let answer = if !this.is_at_home() {
            Err(Failure::Outside)
        } else {
            match &this.state {
                State::Fresh(_) => match this.launch(ear()) {
                    Ok(()) => return this.poll_limit(cx),
                    Err(failure) => Err(failure),
                },
                State::Flying(tag) => match this.control.head().yields().poll(tag.erase(), ear()) {
                    Some(Ok(answer)) => {
                        this.state = State::Over;
                        typed(answer)
                    }
                    Some(Err(())) => return this.poll_limit(cx),
                    None => Err(Failure::Cancelled),
                },
                State::Over => unreachable!("asked above"),
            }
        };
        this.end();
        Poll::Ready(answer)
    }
}

impl<C: Command> Perform<C> {
    fn poll_limit(&mut self, cx: &mut Context<'_>) -> Poll<Result<C::Reply, Failure>> {
        match self.limit.as_deref_mut().map(|limit| Pin::new(limit).poll(cx)) {
            Some(Poll::Ready(())) => {
                self.end();
                Poll::Ready(Err(Failure::TimedOut))
            }
            _ => Poll::Pending,
        }
    }
}

impl<C: Command> FusedFuture for Perform<C> {
    fn is_terminated(&self) -> bool {
        matches!(self.state, State::Over)
    }
}

impl<C: Command> Drop for Perform<C> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Resolves when a process is asked to end, with the reason: see [`Me::cancelled`](crate::Me::cancelled).
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct Cancelled {
    control: Arc<dyn AnyControl>,
    listening: Listening,
    over: bool,
}

impl Cancelled {
    pub(crate) fn new(control: Arc<dyn AnyControl>) -> Self {
        Self { control, listening: Listening::default(), over: false }
    }
}

impl Future for Cancelled {
    type Output = Reason;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reason> {
        let this = &mut *self;
        if this.over {
            return Poll::Pending;
        }
        let head = this.control.head();
        let reason = head.poll_news(&mut this.listening, cx, || head.cancel().map(|(reason, _)| reason));
        this.over = reason.is_ready();
        reason
    }
}

impl FusedFuture for Cancelled {
    fn is_terminated(&self) -> bool {
        self.over
    }
}

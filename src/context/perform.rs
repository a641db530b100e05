//! How a body yields: a command on its way, from its making to its answer.

use std::any::TypeId;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::FusedFuture;

use crate::context::time::deadline;
use crate::host::refs::Home;
use crate::observe::Counter;
use crate::platform::clock::Instant;
use crate::process::command::Command;
use crate::process::event::{Answer, Tag, typed};
use crate::process::failure::Failure;
use crate::process::payload::Payload;
use crate::process::state::current::Current;
use crate::process::state::inline_command::Number;
use crate::process::yields::buffer::Buffer;
use crate::process::yields::{Ear, Kept, Yields};

enum State<C> {
    /// Not yielded yet.
    Fresh(Payload),
    Flying(Tag<C>),
    /// It took the short way.
    Inline(Number),
    Over,
}

/// A yield of a body, from its making to its end: what a command and a stream have in common.
pub(crate) struct Issue<C: Command> {
    control: Home,
    state: State<C>,
    deadline: Option<Instant>,
}

impl<C: Command> Issue<C> {
    pub(crate) fn new(control: Home, command: Payload) -> Self {
        Self { control, state: State::Fresh(command), deadline: None }
    }

    pub(crate) fn control(&self) -> &Home {
        &self.control
    }

    /// Gives it a time limit, counted from now; of several the nearest holds.
    pub(crate) fn limit(&mut self, time: Duration) {
        let at = self.control.head().host().now() + time;
        let at = self.deadline.map_or(at, |before| before.min(at));
        self.deadline = Some(at);
        match self.state {
            State::Flying(tag) => deadline::answer_at(&self.control, tag.erase(), at, Err(Failure::TimedOut)),
            State::Inline(number) => {
                // If it has left, it is in flight now, or answered.
                if !self.turn_back(|| Ear::Own)
                    && let Some(answer) = self.claim_kept(number)
                {
                    let _ = self.control.head().yields().keep(number, Kept::Answered(answer));
                }
            }
            State::Fresh(_) | State::Over => {}
        }
    }

    #[inline]
    fn is_at_home(&self) -> bool {
        self.control.is_here()
    }

    /// Yields the command, if that was not done before; it leaves when the step returns.
    ///
    /// # Errors
    /// [`Failure::Outside`], and [`Failure::TimedOut`] when its deadline has passed: then no handler hears of it.
    pub(crate) fn launch(
        &mut self,
        ear: impl FnOnce() -> Ear,
        buffer: Option<Buffer>,
    ) -> Result<Option<Tag<C>>, Failure> {
        if !self.is_at_home() {
            return Err(Failure::Outside);
        }
        let head = self.control.head();
        if !matches!(self.state, State::Fresh(_)) {
            return Ok(None);
        }
        if self.deadline.is_some_and(|at| at <= head.host().now()) {
            return Err(Failure::TimedOut);
        }
        let State::Fresh(command) = std::mem::replace(&mut self.state, State::Over) else { return Ok(None) };
        let yields = head.yields();
        let mut command = Some(command);
        let is_first = !Current::with(|current| current.inline.is_busy()) && !yields.has_pending();
        let pending = if is_first { None } else { command.take() };
        let started = yields.start::<C>(ear(), None, pending, buffer);
        let tag = started.unwrap_or_else(|_| unreachable!("no tag was chosen"));
        if let Some(command) = command {
            Current::with(|current| current.inline.put_tagged(tag.erase(), command));
        }
        head.count(Counter::Yields);
        self.state = State::Flying(tag);
        if let Some(at) = self.deadline {
            deadline::answer_at(&self.control, tag.erase(), at, Err(Failure::TimedOut));
        }
        Ok(Some(tag))
    }

    /// The tag, while it is in flight.
    pub(crate) fn flying(&self) -> Option<Tag> {
        match &self.state {
            State::Flying(tag) => Some(tag.erase()),
            State::Fresh(_) | State::Inline(_) | State::Over => None,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Its answer was collected: there is nothing to give up any more.
    pub(crate) fn answered(&mut self) {
        self.state = State::Over;
    }

    /// Gives it up.
    pub(crate) fn end(&mut self) {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Flying(tag) => drop(self.control.head().yields().cancel(tag.erase())),
            State::Fresh(command) => drop(command),
            State::Inline(number) => self.withdraw(number),
            State::Over => {}
        }
    }

    /// Makes the command the inline command of this turn, if it may be one: it leads to the handler, nobody is before
    /// it, and it is the task itself that waits.
    #[inline]
    fn offer(&mut self, cx: &Context<'_>) -> bool {
        let head = self.control.head();
        Current::with(|current| {
            if self.deadline.is_some()
                || current.inline.is_busy()
                || !current.is_own_waker(cx.waker())
                || !current.steps(self.control.address())
                || head.yields_if_any().is_some_and(Yields::has_pending)
            {
                return false;
            }
            let Some(handler) = head.host().realm().dispatcher().inline(TypeId::of::<C>()) else { return false };
            match std::mem::replace(&mut self.state, State::Over) {
                State::Fresh(command) => {
                    head.count(Counter::Yields);
                    self.state = State::Inline(current.inline.offer(handler, command));
                    true
                }
                other => {
                    self.state = other;
                    false
                }
            }
        })
    }

    /// The answer of one that took the short way, in the turn in which it came or later. One that is not answered in its
    /// turn goes on as any other.
    #[inline]
    fn claim(&mut self, number: Number) -> Option<Answer> {
        match Current::with(|current| current.inline.claim(number)) {
            Some(answer) => Some(answer),
            None => self.claim_kept(number),
        }
    }

    #[cold]
    fn claim_kept(&mut self, number: Number) -> Option<Answer> {
        match self.control.head().yields_if_any()?.take_kept(number)? {
            Kept::Answered(answer) => Some(answer),
            Kept::Flying(tag) => {
                self.state = State::Flying(tag.cast());
                if let Some(at) = self.deadline {
                    deadline::answer_at(&self.control, tag, at, Err(Failure::TimedOut));
                }
                None
            }
            Kept::GivenUp => None,
        }
    }

    /// Moves an inline command that no handler has taken to the table of yields, behind the commands that were yielded since.
    /// Only a command without a time limit, whose answer the task itself waits for, may stay inline.
    #[cold]
    fn turn_back(&mut self, ear: impl FnOnce() -> Ear) -> bool {
        let State::Inline(number) = self.state else { return false };
        let Some(command) = Current::with(|current| current.inline.withdraw(number)) else { return false };
        self.state = State::Fresh(command);
        let _ = self.launch(ear, None);
        true
    }

    #[cold]
    fn withdraw(&self, number: Number) {
        let (command, answer) =
            Current::with(|current| (current.inline.withdraw(number), current.inline.claim(number)));
        if command.is_some() || answer.is_some() {
            return;
        }
        let yields = self.control.head().yields();
        if let Some(Kept::Flying(tag)) = yields.give_up(number) {
            yields.cancel(tag);
        }
    }
}

impl<C: Command> Drop for Issue<C> {
    fn drop(&mut self) {
        match &self.state {
            State::Flying(tag) => drop(self.control.head().yields().cancel(tag.erase())),
            &State::Inline(number) => self.withdraw(number),
            State::Fresh(_) | State::Over => {}
        }
    }
}

/// Who hears of the answer to what is polled with this.
pub(crate) fn ear(cx: &Context<'_>) -> Ear {
    if Current::with(|current| current.is_own_waker(cx.waker())) { Ear::Own } else { Ear::Other(cx.waker().clone()) }
}

/// A command on its way; resolves to its answer: see [`Me::perform`](crate::Me::perform).
#[must_use = "futures do nothing unless polled"]
pub struct Perform<C: Command>(Issue<C>);

impl<C: Command> fmt::Debug for Perform<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Perform<{}>", std::any::type_name::<C>())
    }
}

impl<C: Command> Perform<C> {
    pub(crate) fn new(control: Home, command: C) -> Self {
        Self(Issue::new(control, Payload::new(command)))
    }

    /// Fails with [`Failure::TimedOut`], and cancels the command, unless the answer comes in this time, counted from
    /// now; of several limits the nearest holds.
    ///
    /// Once the command is yielded this needs no poll: its handler sees the cancellation at the deadline, also when
    /// the future is polled later, or was detached. With a limit that has passed when it is yielded, zero for one, the
    /// command fails and its handler never hears of it. One that ends beyond the clock's 584 years is none.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.0.limit(time);
        self
    }

    /// Yields the command now, not at the first poll; it leaves when the step ends. Outside its process this does
    /// nothing: the poll says so.
    pub fn start(mut self) -> Self {
        let _ = self.0.launch(|| Ear::Own, None);
        self
    }

    /// Lets the command run on without its answer. A command that was not yielded yet is, if this is its process.
    pub fn detach(mut self) {
        let _ = self.0.launch(|| Ear::Nobody, None);
        if let State::Inline(number) = self.0.state
            && (Current::with(|current| current.inline.detach(number)) || self.0.claim(number).is_some())
        {
            self.0.state = State::Over;
        }
        if let State::Flying(tag) = std::mem::replace(&mut self.0.state, State::Over) {
            self.0.control.head().yields().detach(tag.erase());
        }
    }
}

impl<C: Command> Future for Perform<C> {
    type Output = Result<C::Reply, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let issue = &mut self.0;
        if matches!(issue.state, State::Fresh(_)) && issue.offer(cx) {
            return Poll::Pending;
        }
        let failure = match &issue.state {
            State::Over => return Poll::Pending,
            State::Fresh(_) => match issue.launch(|| ear(cx), None) {
                Ok(_) => return Poll::Pending,
                Err(failure) => failure,
            },
            State::Flying(_) | State::Inline(_) if !issue.is_at_home() => Failure::Outside,
            &State::Inline(number) => match issue.claim(number) {
                Some(answer) => {
                    issue.answered();
                    return Poll::Ready(typed(answer));
                }
                None if matches!(issue.state, State::Flying(_)) => return self.poll(cx),
                None if Current::with(|current| current.is_own_waker(cx.waker())) => return Poll::Pending,
                None => {
                    issue.turn_back(|| ear(cx));
                    return Poll::Pending;
                }
            },
            State::Flying(tag) => match issue.control.head().yields().poll(tag.erase(), ear(cx)) {
                Some(Ok(answer)) => {
                    issue.answered();
                    return Poll::Ready(typed(answer));
                }
                Some(Err(())) => return Poll::Pending,
                None => Failure::Cancelled,
            },
        };
        issue.end();
        Poll::Ready(Err(failure))
    }
}

impl<C: Command> FusedFuture for Perform<C> {
    fn is_terminated(&self) -> bool {
        self.0.is_over()
    }
}

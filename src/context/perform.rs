//! Defines [`Perform`], the future of a command that an async body yields. A `Perform` and an `ItemStream` each contain
//! a [`BodyYield`].
//!
//! A command reaches its handler on the inline path or through the table of yields (`process/yields.rs`). The inline
//! path is faster, because it needs no lock: the thread itself stores the command. The first command of a step takes
//! the inline path, if the command meets the conditions of `BodyYield::offer`. For example, the command must not have a
//! time limit. All other commands go through the table of yields.

use std::any::TypeId;
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::FusedFuture;

use crate::context::time::deadline;
use crate::host::refs::ProcessRef;
use crate::observe::Counter;
use crate::platform::clock::Instant;
use crate::platform::static_ref::Line;
use crate::process::command::Command;
use crate::process::event::{Answer, Tag, typed};
use crate::process::failure::Failure;
use crate::process::payload::Payload;
use crate::process::state::budget::BudgetPause;
use crate::process::state::current::Current;
use crate::process::state::inline_command::Number;
use crate::process::yields::buffer::Buffer;
use crate::process::yields::{AnswerTarget, YieldInfo, Yields};

enum State<C> {
    /// The process has not yielded the command yet.
    Fresh(Payload),
    /// The process yielded the command on the inline path (`process::state::inline_command`). Since then, the command
    /// may have moved to the table of yields.
    Inline(Number),
    /// The yield is in the table of yields. If the yield has a time limit, the timer of the limit is set.
    Flying(Tag<C>),
    Over,
}

/// One yield of an async body. The yield ends with its answer or with its cancellation.
pub(crate) struct BodyYield<C: Command> {
    control: ProcessRef,
    state: State<C>,
    /// Earliest time limit. The value [`Instant::FAR`] means that there is no limit.
    deadline: Instant,
    /// Source line that created the future. Inspections show this line. The field has 8 bytes.
    line: Line,
}

impl<C: Command> BodyYield<C> {
    pub(crate) fn new(control: ProcessRef, command: Payload, line: Line) -> Self {
        Self { control, state: State::Fresh(command), deadline: Instant::FAR, line }
    }

    pub(crate) fn control(&self) -> &ProcessRef {
        &self.control
    }

    /// Sets a time limit. The time limit starts when this method is called. If a yield has several limits, the earliest
    /// limit applies.
    pub(crate) fn limit(&mut self, time: Duration) {
        let at = self.control.head().host().now() + time;
        let at = self.deadline.min(at);
        self.deadline = at;
        match self.state {
            State::Flying(tag) => deadline::answer_at(&self.control, tag.erase(), at, Err(Failure::TimedOut)),
            // If a handler has already taken the command, `move_to_table` fails. In this case, `find_in_table` looks
            // for the yield in the table of yields, and sets the limit there.
            State::Inline(number) => {
                let _ = self.move_to_table(|| AnswerTarget::Own) || self.find_in_table(number);
            }
            State::Fresh(_) | State::Over => {}
        }
    }

    #[inline]
    fn is_in_step(&self) -> bool {
        self.control.is_here()
    }

    /// Yields the command. If the process has already yielded the command, this function has no effect. The handler
    /// gets the command when the step returns.
    ///
    /// # Errors
    /// Fails with [`Failure::Outside`] if this thread is not in a step of the process. Fails with [`Failure::TimedOut`]
    /// if the deadline has passed before the command is yielded. In this case, no handler gets the command.
    pub(crate) fn launch(
        &mut self,
        target: impl FnOnce() -> AnswerTarget,
        buffer: Option<Buffer>,
    ) -> Result<Option<Tag<C>>, Failure> {
        if !self.is_in_step() {
            return Err(Failure::Outside);
        }
        let head = self.control.head();
        if !matches!(self.state, State::Fresh(_)) {
            return Ok(None);
        }
        if self.deadline != Instant::FAR && self.deadline <= head.host().now() {
            return Err(Failure::TimedOut);
        }
        let State::Fresh(command) = std::mem::replace(&mut self.state, State::Over) else { return Ok(None) };
        let started = head.yields().start::<C>(target(), None, Some(command), buffer, YieldInfo::at(self.line));
        let tag = started.unwrap_or_else(|_| unreachable!("no tag was chosen"));
        head.measure_yield(tag.erase());
        head.count(Counter::Yields);
        if Current::with(Current::is_traced) {
            head.host().trace_yield(head, tag.erase());
        }
        self.flies(tag);
        Ok(Some(tag))
    }

    /// Records that the yield is in the table of yields, and sets the time limit of the yield.
    #[inline]
    fn flies(&mut self, tag: Tag<C>) {
        self.state = State::Flying(tag);
        if self.deadline != Instant::FAR {
            deadline::answer_at(&self.control, tag.erase(), self.deadline, Err(Failure::TimedOut));
        }
    }

    /// Returns the tag of the yield. Returns `None` if the yield is not in the table of yields, or if the future has
    /// taken the answer.
    pub(crate) fn flying(&self) -> Option<Tag> {
        match &self.state {
            State::Flying(tag) => Some(tag.erase()),
            State::Fresh(_) | State::Inline(_) | State::Over => None,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Records that the future has taken the answer. After this call, neither `end` nor the drop of this value cancels
    /// the command.
    pub(crate) fn answered(&mut self) {
        self.state = State::Over;
    }

    /// Cancels the yield.
    pub(crate) fn end(&mut self) {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Flying(tag) => drop(self.control.head().yields().cancel(tag.erase())),
            State::Fresh(command) => drop(command),
            State::Inline(number) => self.cancel_inline(number),
            State::Over => {}
        }
    }

    /// Tries to yield the command on the inline path. Returns true if the command is now the inline command of this
    /// turn. The conditions are:
    /// - The command has no deadline.
    /// - This turn has no other inline command.
    /// - No other command is pending in the table of yields.
    /// - The task of the process polls the future with the waker of this task, in a step of the process.
    /// - A handler is registered for the type of the command. The handler of a `NamedCommand` is registered under a
    ///   name instead.
    #[inline]
    fn offer(&mut self, cx: &Context<'_>) -> bool {
        let head = self.control.head();
        Current::with(|current| {
            if self.deadline != Instant::FAR
                || current.inline.is_busy()
                || !current.is_own_waker(cx.waker())
                || !current.steps(self.control.address())
                || head.yields_if_any().is_some_and(Yields::has_pending)
            {
                return false;
            }
            let Some(handler) = head.host().namespace().dispatcher().index(TypeId::of::<C>()) else { return false };
            match std::mem::replace(&mut self.state, State::Over) {
                State::Fresh(command) => {
                    head.count(Counter::Yields);
                    let number = head.yields().issue();
                    if current.is_traced() {
                        head.host().trace_yield(head, Tag::inline(number));
                    }
                    self.state = State::Inline(number);
                    current.inline.offer(number, handler, command, self.line);
                    true
                }
                other => {
                    self.state = other;
                    false
                }
            }
        })
    }

    /// Takes the answer to an inline command. Returns `None` if the handler has not answered in this turn.
    #[inline]
    fn claim(&self, number: Number) -> Option<Answer> {
        Current::with(|current| current.inline_of(self.control.address())?.claim(number))
    }

    /// Returns whether the command with this number is on the inline path.
    #[cold]
    fn is_inline(&self, number: Number) -> bool {
        let contains = |current: &Current| Some(current.inline_of(self.control.address())?.contains(number));
        Current::with(contains).unwrap_or(false)
    }

    /// Checks whether the inline command has moved to the table of yields. If the command has moved, sets the state to
    /// `Flying` and returns true.
    #[cold]
    fn find_in_table(&mut self, number: Number) -> bool {
        let tag = Tag::<C>::inline(number);
        let is_there = self.control.head().yields().contains(tag.erase());
        if is_there {
            self.flies(tag);
        }
        is_there
    }

    /// Moves an inline command to the table of yields. Returns false if the command is not inline, or if a handler has
    /// already taken the command.
    ///
    /// A command can stay inline only while two conditions hold. The command has no time limit, and the task of the
    /// process itself waits for the answer.
    #[cold]
    fn move_to_table(&mut self, target: impl FnOnce() -> AnswerTarget) -> bool {
        let State::Inline(number) = self.state else { return false };
        let Some(command) = self.withdraw(number) else { return false };
        let tag = Tag::<C>::inline(number);
        let head = self.control.head();
        // `admit` refuses only a cancelled command. This command was not cancelled, because this thread has withdrawn
        // the command.
        let _ = head.yields().admit(tag, target(), Some(command), self.line);
        head.measure_yield(tag.erase());
        self.flies(tag);
        true
    }

    /// Takes the answer out of the table of yields: see [`Yields::poll`].
    fn poll_table(&self, tag: Tag, cx: &Context<'_>) -> Option<Result<Answer, ()>> {
        self.control.head().yields().poll(tag, answer_target(cx))
    }

    /// Takes an inline command back from the turn. Returns `None` if a handler has already taken the command.
    fn withdraw(&self, number: Number) -> Option<Payload> {
        Current::with(|current| current.inline_of(self.control.address())?.withdraw(number))
    }

    #[cold]
    fn cancel_inline(&self, number: Number) {
        let (command, answer) = (self.withdraw(number), self.claim(number));
        if command.is_none() && answer.is_none() {
            self.control.head().yields().cancel(Tag::inline(number));
        }
    }
}

impl<C: Command> Drop for BodyYield<C> {
    fn drop(&mut self) {
        match &self.state {
            State::Flying(tag) => drop(self.control.head().yields().cancel(tag.erase())),
            &State::Inline(number) => self.cancel_inline(number),
            State::Fresh(_) | State::Over => {}
        }
    }
}

/// Returns the [`AnswerTarget`] of a future that waits for an answer. `cx` is the context with which this future is
/// polled.
pub(crate) fn answer_target(cx: &Context<'_>) -> AnswerTarget {
    if Current::with(|current| current.is_own_waker(cx.waker())) {
        AnswerTarget::Own
    } else {
        AnswerTarget::Other(cx.waker().clone())
    }
}

/// Future that resolves to the answer to a command. [`SelfHandle::perform`](crate::SelfHandle::perform) returns this
/// future.
///
/// # Errors
/// See [`SelfHandle::perform`](crate::SelfHandle::perform).
///
/// # Cancel safety
/// If the future is dropped, the command is cancelled. If the future is [detached](Self::detach), the command
/// continues.
#[must_use = "futures do nothing unless polled"]
pub struct Perform<C: Command>(BodyYield<C>, BudgetPause);

impl<C: Command> fmt::Debug for Perform<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Perform<{}>", std::any::type_name::<C>())
    }
}

impl<C: Command> Perform<C> {
    pub(crate) fn new(control: ProcessRef, command: C, line: &'static Location<'static>) -> Self {
        Self(BodyYield::new(control, Payload::new(command), Some(line)), BudgetPause::default())
    }

    /// Sets a time limit. The time limit starts when this method is called. If the answer does not arrive in time, the
    /// command is cancelled, and the future fails with [`Failure::TimedOut`]. If a command has several limits, the
    /// earliest limit applies.
    ///
    /// The limit applies even if the future is detached, or is not polled after the command was yielded. The handler
    /// then sees the cancellation at the deadline. If the limit expires before the command is yielded, the command
    /// fails, and no handler gets the command. A limit of zero expires immediately. A limit beyond the clock's range of
    /// 584 years has no effect.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.0.limit(time);
        self
    }

    /// Yields the command immediately. Without `start`, the first poll of the future yields the command. The handler
    /// gets the command when the step returns. If this method is called outside the process, the method has no effect,
    /// and the first poll in the process yields the command.
    pub fn start(mut self) -> Self {
        let _ = self.0.launch(|| AnswerTarget::Own, None);
        self
    }

    /// Lets the command continue, and discards its answer. If the process has not yielded the command yet, this method
    /// yields the command. The method can yield the command only in a step of the process. A call of `detach` may
    /// cancel the command if two conditions hold: the call happens outside the steps of the process, and the step that
    /// yielded the command has not returned yet. The exit of the process cancels all commands of the process, including
    /// a detached command.
    pub fn detach(mut self) {
        let _ = self.0.launch(|| AnswerTarget::Discard, None);
        if let State::Inline(number) = self.0.state
            && !self.0.move_to_table(|| AnswerTarget::Discard)
            && !self.0.find_in_table(number)
        {
            // If there is an answer, this line drops the answer. If there is no answer, the state stays `Inline`, and
            // the drop of `self` cancels the command.
            drop(self.0.claim(number).inspect(|_| self.0.state = State::Over));
        }
        if let State::Flying(tag) = self.0.state {
            self.0.state = State::Over;
            self.0.control.head().yields().detach(tag.erase());
        }
    }
}

impl<C: Command> Future for Perform<C> {
    type Output = Result<C::Reply, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self(body_yield, pause) = &mut *self;
        if matches!(body_yield.state, State::Fresh(_)) && body_yield.offer(cx) {
            return Poll::Pending;
        }
        let failure = match &body_yield.state {
            State::Over => return Poll::Pending,
            State::Fresh(_) => match body_yield.launch(|| answer_target(cx), None) {
                Ok(_) => return Poll::Pending,
                Err(failure) => failure,
            },
            State::Flying(_) | State::Inline(_) if !body_yield.is_in_step() => Failure::Outside,
            &State::Inline(number) => match body_yield.claim(number) {
                Some(answer) => {
                    body_yield.answered();
                    return Poll::Ready(typed(answer));
                }
                None => match body_yield.poll_table(Tag::inline(number), cx) {
                    Some(Ok(answer)) => {
                        body_yield.answered();
                        return Poll::Ready(typed(answer));
                    }
                    Some(Err(())) => {
                        body_yield.flies(Tag::inline(number));
                        return Poll::Pending;
                    }
                    // The command is neither in the table nor on the inline path, because code outside the future has
                    // cancelled the command.
                    None if !body_yield.is_inline(number) => Failure::Cancelled,
                    None => {
                        if !Current::with(|current| current.is_own_waker(cx.waker())) {
                            body_yield.move_to_table(|| answer_target(cx));
                        }
                        return Poll::Pending;
                    }
                },
            },
            State::Flying(tag) => match body_yield.poll_table(tag.erase(), cx) {
                Some(Ok(answer)) => {
                    body_yield.answered();
                    return Poll::Ready(typed(answer));
                }
                Some(Err(())) => return Poll::Pending,
                None => Failure::Cancelled,
            },
        };
        // No handler has answered. The future may have failed without a wait. A body that repeats the command must
        // nevertheless let other tasks run. After a pause, the next poll finds the failure again.
        ready!(pause.spend(cx));
        match failure {
            // There is no command to cancel. A second cancellation would store a record for an answer that never
            // arrives.
            Failure::Cancelled => body_yield.answered(),
            _ => body_yield.end(),
        }
        Poll::Ready(Err(failure))
    }
}

impl<C: Command> FusedFuture for Perform<C> {
    fn is_terminated(&self) -> bool {
        self.0.is_over()
    }
}

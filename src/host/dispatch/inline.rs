//! The handles that answer an inline command. Within the turn that yielded the command, the answer is stored in the
//! state of the thread (`Current::inline`). After this turn, a handler answers the command through a [`Completion`],
//! like any other command.

use std::fmt;
use std::marker::PhantomData;
use std::task::{Context, Poll};

use crate::host::Host;
use crate::host::control::AnyControl;
use crate::host::dispatch::completion::{Completion, UntypedCompletion, WatchKeys};
use crate::host::refs::ProcessRef;
use crate::platform::static_ref::Line;
use crate::process::command::Command;
use crate::process::event::Tag;
use crate::process::failure::Failure;
use crate::process::payload::Payload;
use crate::process::state::Ref;
use crate::process::state::current::Current;
use crate::process::state::inline_command::Number;
use crate::process::yields::AnswerTarget;

/// One-shot handle that answers an inline command inside the turn of its process. The handler of the command receives
/// this value, and must call `answer` or `into_future_answer`. If the handler drops this value, the command gets no
/// answer.
pub(crate) struct InlineCall<'a, C: Command> {
    number: Number,
    process: &'a dyn Fn() -> Ref<dyn AnyControl>,
    marker: PhantomData<fn(C)>,
}

impl<C: Command> fmt::Debug for InlineCall<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InlineCall").field(&self.number).finish()
    }
}

impl<'a, C: Command> InlineCall<'a, C> {
    #[inline]
    pub(crate) fn new(number: Number, process: &'a dyn Fn() -> Ref<dyn AnyControl>) -> Self {
        Self { number, process, marker: PhantomData }
    }

    /// Answers the command immediately.
    #[inline]
    pub(crate) fn answer(self, answer: Result<C::Reply, Failure>) {
        Current::with(|current| current.inline.answer(self.number, answer.map(Payload::new)));
    }

    /// Converts this handle into a [`FutureAnswer`]. A handler that answers with a future needs this conversion,
    /// because the future may still be pending after the first poll.
    #[inline]
    pub(crate) fn into_future_answer(self) -> FutureAnswer<C> {
        FutureAnswer::Now(self.number, ProcessRef::new((self.process)()))
    }
}

/// Moves an inline command to the table of yields. The handler of the command has already taken the command. Returns
/// the completion of the command. Returns `None` if the command was cancelled before this call. The caller must be
/// inside the turn of `process`.
#[inline]
pub(crate) fn defer<C: Command>(number: Number, process: Ref<dyn AnyControl>) -> Option<Completion<C::Reply>> {
    let tag = Tag::<C>::inline(number);
    let is_wanted = process.head().yields().admit(tag, AnswerTarget::Own, None, inline_line());
    process.head().measure_yield(tag.erase());
    is_wanted.then(|| Completion::new(UntypedCompletion::new(process, tag.erase())))
}

/// Returns the source line that yielded the inline command of this turn.
fn inline_line() -> Line {
    Current::with(|current| current.inline.line())
}

/// How the future of a handler answers a command: in the current turn, or later through a completion.
pub(crate) enum FutureAnswer<C: Command> {
    Now(Number, ProcessRef),
    Later(Completion<C::Reply>),
}

impl<C: Command> FutureAnswer<C> {
    /// Moves the command to the table of yields, because the turn continues without an answer. The caller must be
    /// inside the turn of the process.
    pub(crate) fn defer(&mut self) {
        let Self::Now(number, process) = self else { return };
        let tag = Tag::<C>::inline(*number);
        let head = process.head();
        // If the command was cancelled before this call, the table will refuse the answer.
        let _ = head.yields().admit(tag, AnswerTarget::Own, None, inline_line());
        head.measure_yield(tag.erase());
        *self = Self::Later(Completion::new(UntypedCompletion::new((*process).clone(), tag.erase())));
    }

    pub(crate) fn host(&self) -> &Host {
        match self {
            Self::Now(_, process) => process.head().host(),
            Self::Later(completion) => completion.host(),
        }
    }

    pub(crate) fn poll_cancelled(&self, keys: &mut WatchKeys, cx: &Context<'_>) -> Poll<()> {
        match self {
            Self::Now(..) => Poll::Pending,
            Self::Later(completion) => completion.poll_cancelled(keys, cx),
        }
    }

    /// Removes the wakers that [`poll_cancelled`](Self::poll_cancelled) has stored for `keys`. The caller is about to
    /// answer.
    pub(crate) fn unwatch(&self, keys: &mut WatchKeys) {
        if let Self::Later(completion) = self {
            completion.unwatch(keys);
        }
    }

    #[inline]
    pub(crate) fn finish(self, answer: Result<C::Reply, Failure>) {
        match self {
            Self::Now(number, _) => Current::with(|current| current.inline.answer(number, answer.map(Payload::new))),
            Self::Later(completion) => completion.finish(answer),
        }
    }
}

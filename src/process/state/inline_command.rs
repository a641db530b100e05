//! The inline path of a command: a handler answers it within the turn that yields it. The command needs no lock and no
//! wake-up, and usually it never enters the table of yields.
//!
//! There is room for one command, of the process whose turn this thread is in. A command uses the table of yields
//! (`yields.rs`) if the room is taken, or if commands wait in the table before it. The order is the same on both paths:
//! handlers get the commands when the step returns, in the order in which they were yielded.
//!
//! The command gets its tag when it is yielded. It moves to the table under this tag if it is not answered within the
//! turn.

use std::cell::Cell;

use crate::platform::sync::ThreadCell;
use crate::process::event::Answer;
use crate::process::payload::Payload;

/// Number of the tag of an inline command: see [`Tag::inline`](crate::Tag). A tag of two words would be written in parts
/// and read at once, which misses store forwarding.
pub(crate) type Number = u64;

/// The content of the room, while it is taken out for a nested turn or at the end of a turn.
pub(crate) enum Inlined {
    /// With the index of the handler that answers it.
    Command(Number, u32, Payload),
    /// Its handler has taken it.
    Running(Number),
    Answer(Number, Answer),
}

/// The room for one inline command. Each part is a cell of its own and is moved by itself. It is empty between turns.
///
/// It starts at a cache line, as [`Current`](super::current::Current) does and for the same reason.
#[repr(align(64))]
pub(crate) struct InlineCommand {
    holds: Cell<Holds>,
    number: Cell<Number>,
    handler: Cell<u32>,
    command: ThreadCell<Payload>,
    answer: ThreadCell<Answer>,
}

/// State of the inline command.
///
/// ```text
///   offer ──▶ Command ── take_command ──▶ Running ── answer ──▶ Answer ── claim ──▶ Nothing
///                │                           │                    │
///                │ its future is dropped,    │ its handler waits: │ the turn ends:
///                │ or needs another waker    │ `admit`            │ `admit_answer`
///                │ or a time limit           ▼                    ▼
///                └─ withdraw ──▶ Nothing     in the table of yields, under the same tag
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Nothing,
    Command,
    Running,
    Answer,
}

impl InlineCommand {
    pub(super) const fn new() -> Self {
        Self {
            holds: Cell::new(Holds::Nothing),
            number: Cell::new(0),
            handler: Cell::new(0),
            command: ThreadCell::new(),
            answer: ThreadCell::new(),
        }
    }

    /// Whether the room is taken.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.holds.get() != Holds::Nothing
    }

    /// Puts a command for the handler with this index into the room, which must be free.
    #[inline]
    pub(crate) fn offer(&self, number: Number, handler: u32, command: Payload) {
        self.number.set(number);
        self.handler.set(handler);
        self.command.put(command);
        self.holds.set(Holds::Command);
    }

    /// The number of the command that was offered in this step, and the index of its handler. The command stays in the
    /// room.
    #[inline]
    pub(crate) fn offered(&self) -> Option<(Number, u32)> {
        (self.holds.get() == Holds::Command).then(|| (self.number.get(), self.handler.get()))
    }

    /// Takes out the command, for its handler.
    #[inline]
    pub(crate) fn take_command(&self) -> Option<Payload> {
        if self.holds.get() != Holds::Command {
            return None;
        }
        self.holds.set(Holds::Running);
        self.command.take()
    }

    /// Leaves the answer for the next step.
    #[inline]
    pub(crate) fn answer(&self, number: Number, answer: Answer) {
        self.number.set(number);
        self.answer.put(answer);
        self.holds.set(Holds::Answer);
    }

    /// Whether there is an answer. The handler has returned: without an answer the room is free again.
    #[inline]
    pub(crate) fn is_answered(&self) -> bool {
        let is_answered = self.holds.get() == Holds::Answer;
        if !is_answered {
            self.holds.set(Holds::Nothing);
        }
        is_answered
    }

    #[inline]
    fn take_answer(&self) -> Option<Answer> {
        if self.holds.get() != Holds::Answer {
            return None;
        }
        self.holds.set(Holds::Nothing);
        self.answer.take()
    }

    /// Takes out the answer to this command, if it is here.
    #[inline]
    pub(crate) fn claim(&self, number: Number) -> Option<Answer> {
        if self.number.get() == number { self.take_answer() } else { None }
    }

    /// Takes back this command, unless its handler has taken it.
    pub(crate) fn withdraw(&self, number: Number) -> Option<Payload> {
        let command = if self.number.get() == number { self.take_command() } else { None };
        if command.is_some() {
            self.holds.set(Holds::Nothing);
        }
        command
    }

    /// Takes out the content of the room.
    #[inline]
    pub(crate) fn take(&self) -> Option<Inlined> {
        let (number, handler) = (self.number.get(), self.handler.get());
        match self.holds.replace(Holds::Nothing) {
            Holds::Nothing => None,
            Holds::Command => self.command.take().map(|command| Inlined::Command(number, handler, command)),
            Holds::Running => Some(Inlined::Running(number)),
            Holds::Answer => self.answer.take().map(|answer| Inlined::Answer(number, answer)),
        }
    }

    /// Puts back the content that [`take`](Self::take) took out.
    pub(super) fn restore(&self, inlined: Option<Inlined>) {
        match inlined {
            None => {}
            Some(Inlined::Command(number, handler, command)) => self.offer(number, handler, command),
            Some(Inlined::Running(number)) => {
                self.number.set(number);
                self.holds.set(Holds::Running);
            }
            Some(Inlined::Answer(number, answer)) => self.answer(number, answer),
        }
    }
}

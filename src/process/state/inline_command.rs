//! The inline path of a command: the runtime passes the command from the process to the handler without the table of
//! commands. If the handler answers in the same turn in which the process yields the command, the command needs no lock
//! and no wake-up, and never enters the table.
//!
//! Each thread has storage for one inline command. This command belongs to the process whose turn runs on the thread.
//! If the storage is occupied, or if earlier commands wait in the table of commands (`yields.rs`), a new command enters
//! the table. The order of the commands does not depend on the path. When the step returns, the handlers receive the
//! commands in the order in which the process yielded them.
//!
//! The inline path reduced the CPU time of the bench `command-inline` by 74 %.
//!
//! A command gets its tag when the process yields the command. If the command is not answered within the turn, the
//! command moves to the table and keeps its tag.

use std::cell::Cell;

use crate::platform::static_ref::Line;
use crate::platform::sync::ThreadCell;
use crate::process::event::Answer;
use crate::process::payload::Payload;

/// Number of the tag of an inline command: see [`Tag::inline`](crate::Tag). Only the number is stored, and not the tag.
/// A tag has two words. If the whole tag were stored, the code would write the tag with two stores and read the tag
/// with one load. The processor cannot forward two stores to one load, so this load would be slow.
pub(crate) type Number = u64;

/// The content that was taken out of the storage for an inline command. The content is taken out before a nested
/// turn, and at the end of a turn.
pub(crate) enum Inlined {
    /// The command waits for its handler. The second value is the index of the handler.
    Command(Number, u32, Payload, Line),
    /// The handler has taken the command and has not answered it yet. The second value is the index of the handler.
    Running(Number, u32, Line),
    /// The handler has answered the command. The second value is the index of the handler.
    Answer(Number, u32, Answer),
}

/// The storage for one inline command. Each part is a separate cell and is moved separately. Between turns, the
/// storage is empty.
///
/// The storage is aligned to a cache line for the same reason as [`Current`](super::current::Current).
#[repr(align(64))]
pub(crate) struct InlineCommand {
    holds: Cell<Holds>,
    number: Cell<Number>,
    handler: Cell<u32>,
    /// Source line that yielded the command. If the command moves to the table of commands, inspections show this line.
    line: Cell<Line>,
    command: ThreadCell<Payload>,
    answer: ThreadCell<Answer>,
}

/// State of the inline command.
///
/// ```text
///   offer ──▶ Command ── take_command ──▶ Running ── answer ──▶ Answer ── claim ──▶ Nothing
///                │                           │                    │
///                │ its future is dropped,    │ the answer may     │ the turn ends:
///                │ or needs another waker    │ come later: `admit`│ `admit_answer`
///                │ or a time limit           ▼                    ▼
///                └─ withdraw ──▶ Nothing     in the table of commands, under the same tag
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
            line: Cell::new(None),
            command: ThreadCell::new(),
            answer: ThreadCell::new(),
        }
    }

    /// Returns whether the storage is occupied.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.holds.get() != Holds::Nothing
    }

    /// Stores a command for the handler with this index. `line` is the source line that yielded the command. The
    /// storage must be empty.
    #[inline]
    pub(crate) fn offer(&self, number: Number, handler: u32, command: Payload, line: Line) {
        self.number.set(number);
        self.handler.set(handler);
        self.line.set(line);
        self.command.put(command);
        self.holds.set(Holds::Command);
    }

    /// Returns the number of the command that waits for its handler, and the index of this handler. The command stays
    /// in the storage.
    #[inline]
    pub(crate) fn offered(&self) -> Option<(Number, u32)> {
        (self.holds.get() == Holds::Command).then(|| (self.number.get(), self.handler.get()))
    }

    /// Returns whether the storage contains the command with this number, or the answer to this command.
    pub(crate) fn contains(&self, number: Number) -> bool {
        self.is_busy() && self.number.get() == number
    }

    /// Returns the number of the command that occupied the storage most recently.
    pub(crate) fn number(&self) -> Number {
        self.number.get()
    }

    /// Returns the source line of the command that occupied the storage most recently.
    pub(crate) fn line(&self) -> Line {
        self.line.get()
    }

    /// Returns the handler index of the command that occupied the storage most recently.
    pub(crate) fn handler(&self) -> u32 {
        self.handler.get()
    }

    /// Takes out the command so that its handler can run.
    #[inline]
    pub(crate) fn take_command(&self) -> Option<Payload> {
        if self.holds.get() != Holds::Command {
            return None;
        }
        self.holds.set(Holds::Running);
        self.command.take()
    }

    /// Stores the answer for the next step.
    #[inline]
    pub(crate) fn answer(&self, number: Number, answer: Answer) {
        self.number.set(number);
        self.answer.put(answer);
        self.holds.set(Holds::Answer);
    }

    /// Returns whether the storage contains an answer. This function is called after the handler has returned. If
    /// there is no answer, the storage becomes empty.
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

    /// Takes out the answer if the answer belongs to the command with this number.
    #[inline]
    pub(crate) fn claim(&self, number: Number) -> Option<Answer> {
        if self.number.get() == number { self.take_answer() } else { None }
    }

    /// Takes back the command with this number. Returns `None` if the handler has already taken the command.
    pub(crate) fn withdraw(&self, number: Number) -> Option<Payload> {
        let command = if self.number.get() == number { self.take_command() } else { None };
        if command.is_some() {
            self.holds.set(Holds::Nothing);
        }
        command
    }

    /// Takes out the content of the storage.
    #[inline]
    pub(crate) fn take(&self) -> Option<Inlined> {
        let (number, handler, line) = (self.number.get(), self.handler.get(), self.line.get());
        match self.holds.replace(Holds::Nothing) {
            Holds::Nothing => None,
            Holds::Command => self.command.take().map(|command| Inlined::Command(number, handler, command, line)),
            Holds::Running => Some(Inlined::Running(number, handler, line)),
            Holds::Answer => self.answer.take().map(|answer| Inlined::Answer(number, handler, answer)),
        }
    }

    /// Puts back the content that [`take`](Self::take) took out.
    pub(super) fn restore(&self, inlined: Option<Inlined>) {
        match inlined {
            None => {}
            Some(Inlined::Command(number, handler, command, line)) => self.offer(number, handler, command, line),
            Some(Inlined::Running(number, handler, line)) => {
                self.number.set(number);
                self.handler.set(handler);
                self.line.set(line);
                self.holds.set(Holds::Running);
            }
            Some(Inlined::Answer(number, handler, answer)) => {
                self.handler.set(handler);
                self.answer(number, answer);
            }
        }
    }
}

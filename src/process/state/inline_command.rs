//! The inline path of a command: a handler answers it within the turn that yields it. The command needs no tag, no lock
//! and no wake-up.
//!
//! ```text
//!   offer ──▶ Command ── take_command ──▶ Running ── answer ──▶ Answer ── claim ──▶ Nothing
//!                │                           │                    │
//!                └─ withdraw: its handler    │                    └─ end of the turn: the answer moves to the table of yields
//!                   never sees it            │
//!                                            └─ the handler's future is pending: the yield goes on in the table of yields
//! ```
//!
//! There is room for one command, of the process whose turn this thread is in. A command uses the table of yields
//! (`yields.rs`) if the room is taken, or if commands wait in the table before it. The order is the same on both paths:
//! handlers get the commands when the step returns, in the order in which they were yielded.
//!
//! The first command with a tag in a step waits here too (*Tagged*), until the step ends. So it need not be put into
//! the table, and taken out again, under the table's lock.

use std::cell::Cell;

use crate::platform::sync::ThreadCell;
use crate::platform::sync::tally::{AtomicU64, Ordering};
use crate::process::event::{Answer, Tag};
use crate::process::payload::Payload;

/// Identifies an inline command. A program uses no number twice. 0: no future waits for the answer.
pub(crate) type Number = u64;

/// The content of the room, while it is taken out for a nested turn or at the end of a turn.
pub(crate) enum Inlined {
    /// With the index of the handler that answers it.
    Command(Number, u32, Payload),
    /// Its handler has taken it.
    Running(Number),
    Answer(Number, Answer),
    /// A command that has a tag, and waits for the end of the step.
    Tagged(Tag, Payload),
}

/// Number of command numbers that a thread reserves at once.
const BLOCK: u64 = 1 << 20;

/// The room for one inline command. Each part is a cell of its own and is moved by itself. It is empty between turns.
///
/// It starts at a cache line, as [`Current`](super::current::Current) does and for the same reason.
#[repr(align(64))]
pub(crate) struct InlineCommand {
    holds: Cell<Holds>,
    number: Cell<Number>,
    handler: Cell<u32>,
    tag: Cell<Option<Tag>>,
    command: ThreadCell<Payload>,
    answer: ThreadCell<Answer>,
    next_number: Cell<Number>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Nothing,
    Command,
    Running,
    Answer,
    Tagged,
}

impl InlineCommand {
    pub(super) const fn new() -> Self {
        Self {
            holds: Cell::new(Holds::Nothing),
            number: Cell::new(0),
            handler: Cell::new(0),
            tag: Cell::new(None),
            command: ThreadCell::new(),
            answer: ThreadCell::new(),
            next_number: Cell::new(0),
        }
    }

    #[inline]
    fn new_number(&self) -> Number {
        let number = self.next_number.get();
        let number = if number.is_multiple_of(BLOCK) { first_of_a_block() } else { number };
        self.next_number.set(number + 1);
        number
    }

    #[inline]
    fn put_command(&self, number: Number, handler: u32, command: Payload) {
        self.number.set(number);
        self.handler.set(handler);
        self.command.put(command);
        self.holds.set(Holds::Command);
    }

    /// Whether the room is taken.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.holds.get() != Holds::Nothing
    }

    /// Puts a command for the handler with this index into the room, which must be free.
    #[inline]
    pub(crate) fn offer(&self, handler: u32, command: Payload) -> Number {
        let number = self.new_number();
        self.put_command(number, handler, command);
        number
    }

    /// Puts a command that has a tag into the room, which must be free, until the step is over.
    #[inline]
    pub(crate) fn put_tagged(&self, tag: Tag, command: Payload) {
        self.tag.set(Some(tag));
        self.command.put(command);
        self.holds.set(Holds::Tagged);
    }

    /// Takes out the command that [`put_tagged`](Self::put_tagged) put in.
    #[inline]
    pub(crate) fn take_tagged(&self) -> Option<(Tag, Payload)> {
        if self.holds.get() != Holds::Tagged {
            return None;
        }
        self.holds.set(Holds::Nothing);
        self.tag.get().zip(self.command.take())
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

    /// Lets this command run without a future that waits for its answer. False if its handler has taken it.
    pub(crate) fn detach(&self, number: Number) -> bool {
        let is_here = self.number.get() == number && self.holds.get() == Holds::Command;
        if is_here {
            self.number.set(0);
        }
        is_here
    }

    /// Takes out the content of the room.
    #[inline]
    pub(crate) fn take(&self) -> Option<Inlined> {
        match self.holds.get() {
            Holds::Nothing => None,
            Holds::Command => {
                let command = self.take_command();
                self.holds.set(Holds::Nothing);
                command.map(|command| Inlined::Command(self.number.get(), self.handler.get(), command))
            }
            Holds::Running => {
                self.holds.set(Holds::Nothing);
                Some(Inlined::Running(self.number.get()))
            }
            Holds::Answer => self.take_answer().map(|answer| Inlined::Answer(self.number.get(), answer)),
            Holds::Tagged => self.take_tagged().map(|(tag, command)| Inlined::Tagged(tag, command)),
        }
    }

    /// Puts back the content that [`take`](Self::take) took out.
    pub(super) fn restore(&self, inlined: Option<Inlined>) {
        match inlined {
            None => {}
            Some(Inlined::Command(number, handler, command)) => self.put_command(number, handler, command),
            Some(Inlined::Running(number)) => {
                self.number.set(number);
                self.holds.set(Holds::Running);
            }
            Some(Inlined::Answer(number, answer)) => self.answer(number, answer),
            Some(Inlined::Tagged(tag, command)) => self.put_tagged(tag, command),
        }
    }
}

#[cold]
fn first_of_a_block() -> Number {
    static BLOCKS: AtomicU64 = AtomicU64::new(1);
    BLOCKS.fetch_add(1, Ordering::Relaxed) * BLOCK + 1
}

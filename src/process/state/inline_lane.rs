//! The short way of a command to a handler that answers at once, or may: it never leaves the turn, so it needs no tag, no
//! lock and nobody to be woken.
//!
//! ```text
//!   offer ──▶ Command ── take_command ──▶ Running ── answer ──▶ Answer ── claim ──▶ gone
//!                │                           │                    │
//!                └─ withdraw: its handler    │                    └─ at the end of the turn: kept in the tag table
//!                   never hears of it        │
//!                                            └─ its handler waits for something: in flight, like any other
//! ```
//!
//! The lane has room for one parcel, that of the process whose turn this thread is in; a command that finds it occupied,
//! or others before it, goes the long way (`yields.rs`). The order is the same either way: handlers hear of commands when
//! the step returns, in the order in which they were yielded.
//!
//! The first command of a step waits here for the end of that also if it has a tag (*Tagged*): it need not be put into the
//! table, and taken out again, under the lock of that.

use std::cell::Cell;

use crate::platform::sync::tally::{AtomicU64, Ordering};
use crate::platform::sync::{ThreadCell, thread_local};
use crate::process::event::{Answer, Tag};
use crate::process::payload::Payload;

/// Which command it is. Never used twice in a program; 0 for one whose answer nobody waits for.
pub(crate) type Number = u64;

/// What is under way.
pub(crate) enum Parcel {
    /// With the place of the handler that answers it.
    Command(Number, u32, Payload),
    /// Its handler has taken it.
    Running(Number),
    Answer(Number, Answer),
    /// One that is in flight by this tag, and waits for the end of the step.
    Tagged(Tag, Payload),
}

/// How many numbers a thread takes at once.
const BLOCK: u64 = 1 << 20;

/// What a thread has of this: a parcel in its parts, each of which is moved by itself. A turn leaves nothing behind.
///
/// It begins at a cache line, for the reason that `process::turn` has.
#[repr(align(64))]
struct Lane {
    holds: Cell<Holds>,
    number: Cell<Number>,
    place: Cell<u32>,
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

thread_local! {
    static LANE: Lane = const {
        Lane {
            holds: Cell::new(Holds::Nothing),
            number: Cell::new(0),
            place: Cell::new(0),
            tag: Cell::new(None),
            command: ThreadCell::new(),
            answer: ThreadCell::new(),
            next_number: Cell::new(0),
        }
    };
}

impl Lane {
    #[inline]
    fn new_number(&self) -> Number {
        let number = self.next_number.get();
        let number = if number.is_multiple_of(BLOCK) { first_of_a_block() } else { number };
        self.next_number.set(number + 1);
        number
    }

    #[inline]
    fn put_command(&self, number: Number, place: u32, command: Payload) {
        self.number.set(number);
        self.place.set(place);
        self.command.put(command);
        self.holds.set(Holds::Command);
    }

    #[inline]
    fn take_command(&self) -> Option<Payload> {
        if self.holds.get() != Holds::Command {
            return None;
        }
        self.holds.set(Holds::Running);
        self.command.take()
    }

    #[inline]
    fn put_tagged(&self, tag: Tag, command: Payload) {
        self.tag.set(Some(tag));
        self.command.put(command);
        self.holds.set(Holds::Tagged);
    }

    #[inline]
    fn take_tagged(&self) -> Option<(Tag, Payload)> {
        if self.holds.get() != Holds::Tagged {
            return None;
        }
        self.holds.set(Holds::Nothing);
        self.tag.get().zip(self.command.take())
    }

    #[inline]
    fn put_answer(&self, number: Number, answer: Answer) {
        self.number.set(number);
        self.answer.put(answer);
        self.holds.set(Holds::Answer);
    }

    #[inline]
    fn take_answer(&self) -> Option<Answer> {
        if self.holds.get() != Holds::Answer {
            return None;
        }
        self.holds.set(Holds::Nothing);
        self.answer.take()
    }
}

#[cold]
fn first_of_a_block() -> Number {
    static BLOCKS: AtomicU64 = AtomicU64::new(1);
    BLOCKS.fetch_add(1, Ordering::Relaxed) * BLOCK + 1
}

/// Whether there is something in the lane.
#[inline]
pub(crate) fn is_busy() -> bool {
    LANE.with(|lane| lane.holds.get() != Holds::Nothing)
}

/// Takes out whatever is in the lane.
#[inline]
pub(crate) fn take() -> Option<Parcel> {
    LANE.with(|lane| match lane.holds.get() {
        Holds::Nothing => None,
        Holds::Command => {
            let command = lane.take_command();
            lane.holds.set(Holds::Nothing);
            command.map(|command| Parcel::Command(lane.number.get(), lane.place.get(), command))
        }
        Holds::Running => {
            lane.holds.set(Holds::Nothing);
            Some(Parcel::Running(lane.number.get()))
        }
        Holds::Answer => lane.take_answer().map(|answer| Parcel::Answer(lane.number.get(), answer)),
        Holds::Tagged => lane.take_tagged().map(|(tag, command)| Parcel::Tagged(tag, command)),
    })
}

/// Puts back what was taken out.
pub(crate) fn restore(parcel: Option<Parcel>) {
    LANE.with(|lane| match parcel {
        None => {}
        Some(Parcel::Command(number, place, command)) => lane.put_command(number, place, command),
        Some(Parcel::Running(number)) => {
            lane.number.set(number);
            lane.holds.set(Holds::Running);
        }
        Some(Parcel::Answer(number, answer)) => lane.put_answer(number, answer),
        Some(Parcel::Tagged(tag, command)) => lane.put_tagged(tag, command),
    });
}

/// Leaves a command in the lane, which must be free, for the handler at this place.
#[inline]
pub(crate) fn offer(place: u32, command: Payload) -> Number {
    LANE.with(|lane| {
        let number = lane.new_number();
        lane.put_command(number, place, command);
        number
    })
}

/// Leaves a command that is in flight in the lane, which must be free, until the step is over.
#[inline]
pub(crate) fn leave(tag: Tag, command: Payload) {
    LANE.with(|lane| lane.put_tagged(tag, command));
}

/// Takes out what was [left](leave).
#[inline]
pub(crate) fn take_left() -> Option<(Tag, Payload)> {
    LANE.with(Lane::take_tagged)
}

/// Which command was left in this step, and for the handler at which place; it stays in the lane.
#[inline]
pub(crate) fn command() -> Option<(Number, u32)> {
    LANE.with(|lane| (lane.holds.get() == Holds::Command).then(|| (lane.number.get(), lane.place.get())))
}

/// The handler has returned: whether there is an answer.
#[inline]
pub(crate) fn is_answered() -> bool {
    LANE.with(|lane| match lane.holds.get() {
        Holds::Answer => true,
        _ => {
            lane.holds.set(Holds::Nothing);
            false
        }
    })
}

/// Takes out the command, for its handler.
#[inline]
pub(crate) fn take_command() -> Option<Payload> {
    LANE.with(Lane::take_command)
}

/// Leaves the answer for the next step.
#[inline]
pub(crate) fn answer(number: Number, answer: Answer) {
    LANE.with(|lane| lane.put_answer(number, answer));
}

/// The answer to this command, if it is here.
#[inline]
pub(crate) fn claim(number: Number) -> Option<Answer> {
    LANE.with(|lane| if lane.number.get() == number { lane.take_answer() } else { None })
}

/// Takes back this command, if it has not left yet.
pub(crate) fn withdraw(number: Number) -> Option<Payload> {
    LANE.with(|lane| {
        let command = if lane.number.get() == number { lane.take_command() } else { None };
        if command.is_some() {
            lane.holds.set(Holds::Nothing);
        }
        command
    })
}

/// Lets this command run without anybody who waits for its answer; false if it has left.
pub(crate) fn disown(number: Number) -> bool {
    LANE.with(|lane| {
        let is_here = lane.number.get() == number && lane.holds.get() == Holds::Command;
        if is_here {
            lane.number.set(0);
        }
        is_here
    })
}

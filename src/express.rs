//! The short way of a command to a function that answers at once: it never leaves the turn, so it needs no tag, no lock
//! and nobody to be woken.
//!
//! ```text
//!   offer ──▶ Command ── take_command ──▶ (the function runs) ── answer ──▶ Answer ── claim ──▶ gone
//!                │                                                            │
//!                └─ withdraw: its handler never hears of it                   └─ settle, at the end of the turn:
//!                                                                                kept in the tag table
//! ```
//!
//! The lane has room for one parcel, that of the process whose turn this thread is in; a command that finds it occupied,
//! or others before it, goes the long way (`yields.rs`). The order is the same either way: handlers hear of commands when
//! the step returns, in the order in which they were yielded.

use std::cell::Cell;

use crate::process::failure::Failure;
use crate::process::payload::Payload;
use crate::sync::tally::{AtomicU64, Ordering};
use crate::sync::thread_local;

type Answer = Result<Payload, Failure>;

/// Which command it is. Never used twice in a program; 0 for one whose answer nobody waits for.
pub(crate) type Number = u64;

/// What is under way.
pub(crate) enum Parcel {
    /// With the place of the handler that answers it.
    Command(Number, u32, Payload),
    Answer(Number, Answer),
}

/// How many numbers a thread takes at once.
const BLOCK: u64 = 1 << 20;

thread_local! {
    static LANE: Cell<Option<Parcel>> = const { Cell::new(None) };
    static NUMBERS: Cell<u64> = const { Cell::new(0) };
    /// Whether there is something in the lane: read far more often than that is.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

fn number() -> Number {
    static BLOCKS: AtomicU64 = AtomicU64::new(1);
    NUMBERS.with(|numbers| {
        let mut number = numbers.get();
        if number.is_multiple_of(BLOCK) {
            number = BLOCKS.fetch_add(1, Ordering::Relaxed) * BLOCK + 1;
        }
        numbers.set(number + 1);
        number
    })
}

#[inline]
fn put(parcel: Parcel) {
    LANE.with(|lane| lane.set(Some(parcel)));
    BUSY.with(|busy| busy.set(true));
}

/// Takes out whatever is in the lane.
#[inline]
pub(crate) fn take() -> Option<Parcel> {
    if !is_busy() {
        return None;
    }
    BUSY.with(|busy| busy.set(false));
    LANE.with(Cell::take)
}

#[inline]
pub(crate) fn is_busy() -> bool {
    BUSY.try_with(Cell::get).unwrap_or(false)
}

/// Puts back what was taken out.
pub(crate) fn restore(parcel: Option<Parcel>) {
    if let Some(parcel) = parcel {
        put(parcel);
    }
}

/// Leaves a command in the lane, which must be free, for the handler at this place.
#[inline]
pub(crate) fn offer(place: u32, command: Payload) -> Number {
    let number = number();
    put(Parcel::Command(number, place, command));
    number
}

/// The command that was left in this step.
#[inline]
pub(crate) fn take_command() -> Option<(Number, u32, Payload)> {
    match take()? {
        Parcel::Command(number, place, command) => Some((number, place, command)),
        answer @ Parcel::Answer(..) => {
            put(answer);
            None
        }
    }
}

/// Leaves the answer for the next step.
#[inline]
pub(crate) fn answer(number: Number, answer: Answer) {
    put(Parcel::Answer(number, answer));
}

/// The answer to this command, if it is here.
#[inline]
pub(crate) fn claim(number: Number) -> Option<Answer> {
    match take()? {
        Parcel::Answer(of, answer) if of == number => Some(answer),
        parcel => {
            put(parcel);
            None
        }
    }
}

/// Takes back this command or its answer, whichever is here.
pub(crate) fn withdraw(number: Number) -> Option<Parcel> {
    match take()? {
        Parcel::Command(of, place, command) if of == number => Some(Parcel::Command(of, place, command)),
        Parcel::Answer(of, answer) if of == number => Some(Parcel::Answer(of, answer)),
        parcel => {
            put(parcel);
            None
        }
    }
}

/// Lets this command run without anybody who waits for its answer; hands out the answer if it is here.
pub(crate) fn disown(number: Number) -> Option<Answer> {
    match withdraw(number)? {
        Parcel::Command(_, place, command) => {
            put(Parcel::Command(0, place, command));
            None
        }
        Parcel::Answer(_, answer) => Some(answer),
    }
}

//! Answers commands without the lock of the table. A command that was yielded with `StepOutput::perform` has a slot in
//! the table, and in addition an *answer state*. The answer state is one atomic word. While the state is open, the
//! completion of the command answers the command with one compare-exchange. Without answer states, two threads compete
//! for the lock and for the slots of the table: the thread of the process, and the thread that answers its commands.
//! (In the bench `command-thread`, answer states reduced the CPU time to 67 %.)
//!
//! These commands have no answer state: streams, commands with a chosen tag, commands whose answer is for a future,
//! and commands with very high keys. Commands of these kinds are always answered under the lock.
//!
//! ```text
//!   open ──▶ Open ── answer ──▶ Answered ── close ──▶ Closed
//!             └──────────────── close ────────────────▶ ┘
//! ```
//!
//! A state is open only while three conditions are true: the slot of the command has the phase
//! `InFlight(AnswerTarget::Event)`, the slot has neither watchers nor a buffer, and the command is not measured.
//! Therefore, the only effect of an answer is the event in the mailbox. After an answer without the lock, the slot
//! keeps the phase `InFlight` until the state is closed.
//!
//! When the function `LockedTable::find` finds a command, the function closes the state of this command. The closed
//! state of a command is never opened again, so all later transitions of this command happen under the lock. A slot is
//! removed only after its state was closed. Therefore the next command with the same key can use the word.
//!
//! Only the `Completion` of a command can answer this command without the lock. If a command has an answer state, the
//! completion is created after the dispatch of the command. Therefore, an answer without the lock cannot end a command
//! before its dispatch.
//!
//! The words are freed together with the memory of the process. A completion owns a reference to the process, and may
//! read a word at any time, even during the exit of the process and after this exit. Therefore, a burst of commands may
//! leave up to 4 MiB of words in the memory of the process that performed the commands.
//!
//! All accesses to a state are relaxed. A state protects no other memory, because the answer moves through the mailbox,
//! and the mailbox has its own lock. The state contains the number of the command, and a number is issued only once.
//! Therefore a late answer does not change the state of a newer command with the same key.

use once_cell::race::OnceBox;

use crate::platform::sync::atomic::{AtomicU64, Ordering};
use crate::platform::sync::planted;
use crate::process::event::Tag;

/// State of a command that has no answer yet. The completion of a command in this state can answer the command without
/// the lock.
const OPEN: u64 = 1;
/// State of a command that was answered without the lock.
const ANSWERED: u64 = 2;
/// Number of bits of a state. The other bits of the word contain the number of the command.
const STATE_BITS: u32 = 2;
/// The word of every closed state. This word does not contain the number of a command.
const CLOSED: u64 = 0;

/// Number of words in the first block. Each further block has twice as many words as the block before it.
const FIRST_BLOCK: usize = 8;
/// Maximum number of blocks. A command whose key is beyond the last block has no state.
const BLOCKS: usize = 16;

/// One block: the words of adjacent keys.
type Block = Box<[AtomicU64]>;

/// The answer states of one process, indexed by the keys of the slots. A state never moves in memory.
#[derive(Debug, Default)]
pub(super) struct AnswerStates {
    /// State of the command with the key 0. Most processes have only one command in flight at a time.
    first: AtomicU64,
    /// States of the other commands.
    blocks: OnceBox<[OnceBox<Block>; BLOCKS]>,
}

/// Result of [`AnswerStates::close`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    /// The completion has answered the command without the lock, before this call.
    Answered,
    /// The answer state contained no answer before this call. From now on, each answer needs the lock.
    Unanswered,
}

/// Returns the word for a command in this state. The shift removes the two highest bits of the number. These bits are
/// set only in a tag that is looked up by its number. If a tag is looked up by its number, the command of this tag has
/// no state.
fn word(tag: Tag, state: u64) -> u64 {
    tag.number << STATE_BITS | state
}

/// Returns the position of the word for this key: the index of a block, and an index in this block. The key is not 0.
fn position(key: u32) -> (usize, usize) {
    let above = u64::from(key) - 1 + FIRST_BLOCK as u64;
    let block = above.ilog2() - FIRST_BLOCK.ilog2();
    (block as usize, (above - ((FIRST_BLOCK as u64) << block)) as usize)
}

impl AnswerStates {
    /// Returns the word for this key. Returns `None` if the word was never allocated. In this case, no state with this
    /// key was ever opened.
    #[inline]
    fn get(&self, key: u32) -> Option<&AtomicU64> {
        if key == 0 {
            return Some(&self.first);
        }
        let (block, index) = position(key);
        self.blocks.get()?.get(block)?.get()?.get(index)
    }

    /// Opens the state of a new command. The caller holds the lock of the table, and no other thread knows the tag yet.
    #[inline]
    pub(super) fn open(&self, tag: Tag) {
        debug_assert!(!tag.is_looked_up());
        let open = word(tag, OPEN);
        if tag.key == 0 {
            return self.first.store(open, Ordering::Relaxed);
        }
        let (block, index) = position(tag.key);
        let blocks = self.blocks.get_or_init(Box::default);
        let Some(words) = blocks.get(block) else { return };
        let new = || Box::new((0..FIRST_BLOCK << block).map(|_| AtomicU64::new(CLOSED)).collect());
        words.get_or_init(new)[index].store(open, Ordering::Relaxed);
    }

    /// Answers a command without the lock. If the result is false, the state is not open, and the caller must try to
    /// answer the command under the lock. The caller owns the completion of the command.
    #[inline]
    pub(super) fn answer(&self, tag: Tag) -> bool {
        let Some(state) = self.get(tag.key) else { return false };
        let (open, answered) = (word(tag, OPEN), word(tag, ANSWERED));
        if planted!("yields_answer_is_a_store") {
            let was_open = state.load(Ordering::Relaxed) == open;
            if was_open {
                state.store(answered, Ordering::Relaxed);
            }
            return was_open;
        }
        state.compare_exchange(open, answered, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Returns whether the state of the command is open. If the result is true, the command is in flight.
    #[inline]
    pub(super) fn is_open(&self, tag: Tag) -> bool {
        self.get(tag.key).is_some_and(|state| state.load(Ordering::Relaxed) == word(tag, OPEN))
    }

    /// Returns true if the command was answered without the lock and the state of the command is not closed yet.
    pub(super) fn is_answered(&self, tag: Tag) -> bool {
        self.get(tag.key).is_some_and(|state| state.load(Ordering::Relaxed) == word(tag, ANSWERED))
    }

    /// Closes the state of a command. The caller holds the lock of the table. If the command was answered without the
    /// lock, the result is `Answered`, and the caller must change the phase of the slot. For each command, at most one
    /// call returns `Answered`.
    #[inline]
    pub(super) fn close(&self, tag: Tag) -> Closed {
        let Some(state) = self.get(tag.key) else { return Closed::Unanswered };
        // The lock orders this load after the store in `open`. The state is written under the lock, except for the
        // exchange in `answer`. This exchange changes only an open state.
        let mut seen = state.load(Ordering::Relaxed);
        if seen == word(tag, OPEN) {
            if planted!("yields_close_is_a_store") {
                state.store(CLOSED, Ordering::Relaxed);
                return Closed::Unanswered;
            }
            match state.compare_exchange(seen, CLOSED, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Closed::Unanswered,
                Err(answered) => seen = answered,
            }
        }
        if seen != word(tag, ANSWERED) {
            return Closed::Unanswered;
        }
        state.store(CLOSED, Ordering::Relaxed);
        Closed::Answered
    }

    /// Closes all states. The caller holds the lock of the table. This function does not report which commands were
    /// answered.
    pub(super) fn close_all(&self) {
        self.words().for_each(|state| state.store(CLOSED, Ordering::Relaxed));
    }

    /// Returns the memory in bytes of all states except the first state.
    pub(super) fn bytes(&self) -> usize {
        let Some(blocks) = self.blocks.get() else { return 0 };
        let bytes = |block: &Block| size_of_val(block) + size_of_val(&**block);
        size_of_val(blocks) + blocks.iter().filter_map(OnceBox::get).map(bytes).sum::<usize>()
    }

    fn words(&self) -> impl Iterator<Item = &AtomicU64> {
        let blocks = self.blocks.get().into_iter().flatten().filter_map(OnceBox::get);
        std::iter::once(&self.first).chain(blocks.flatten())
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;

    /// Each key, except 0, has its own position. Within a block, adjacent keys have adjacent positions.
    #[test]
    fn each_key_has_its_own_position() {
        let mut next = (0, 0);
        for key in 1..if cfg!(miri) { 3_000 } else { 100_000 } {
            assert_eq!(position(key), next, "{key}");
            next.1 += 1;
            if next.1 == FIRST_BLOCK << next.0 {
                next = (next.0 + 1, 0);
            }
        }
    }

    #[test]
    fn a_command_is_answered_once() {
        let states = AnswerStates::default();
        let tags = [0, 1, 2, 8, 9, 100].map(|key| Tag::issued(u64::from(key) + 7, key));
        for tag in tags {
            assert!(!states.is_open(tag) && !states.answer(tag) && states.close(tag) == Closed::Unanswered);
            states.open(tag);
        }
        for tag in tags {
            assert!(states.is_open(tag) && !states.is_answered(tag));
            assert!(!states.answer(Tag::issued(tag.number + 1, tag.key)), "the state belongs to another command");
            assert!(states.answer(tag) && !states.answer(tag));
            assert!(!states.is_open(tag) && states.is_answered(tag));
        }
        for tag in tags {
            assert_eq!(states.close(tag), Closed::Answered);
            assert_eq!(states.close(tag), Closed::Unanswered);
        }
    }

    #[test]
    fn a_closed_state_refuses_the_answer() {
        let states = AnswerStates::default();
        let tags = [0, 1, 30].map(|key| Tag::issued(u64::from(key), key));
        tags.into_iter().for_each(|tag| states.open(tag));
        assert_eq!(states.close(tags[1]), Closed::Unanswered);
        assert!(!states.answer(tags[1]) && states.answer(tags[0]));
        states.close_all();
        assert!(tags.into_iter().all(|tag| !states.answer(tag) && states.close(tag) == Closed::Unanswered));
    }

    /// If a key is too high for a state, `open` does nothing, and `answer` returns false. A tag that is looked up by
    /// its number has the key `u32::MAX`, and this key is also too high.
    #[test]
    fn the_highest_keys_have_no_state() {
        let states = AnswerStates::default();
        let limit = (FIRST_BLOCK << BLOCKS) - FIRST_BLOCK;
        for key in [limit as u32 + 1, u32::MAX] {
            let tag = Tag::issued(5, key);
            states.open(tag);
            assert!(!states.is_open(tag) && !states.answer(tag));
        }
        assert_eq!(position(limit as u32).0, BLOCKS - 1);
        assert_eq!(states.bytes(), size_of::<[OnceBox<Block>; BLOCKS]>());
        states.open(Tag::issued(5, 1));
        assert_eq!(states.bytes(), size_of::<[OnceBox<Block>; BLOCKS]>() + size_of::<Block>() + 8 * FIRST_BLOCK);
    }
}

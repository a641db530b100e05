//! Lock-free yields: commands of a hand-written process whose answers arrive as events, under tags that the process did
//! not choose.
//!
//! The state of such a yield is one word. An answering thread changes it with one compare-exchange, and takes no lock.
//! Therefore, beside the mailbox, a process with a thousand commands in flight shares one cache line per eight yields
//! with the answering threads (bench `command-thread`).
//!
//! ```text
//!   gone ── begin ──▶ flying ── answer ──────────▶ queued ── collect ──▶ gone
//!                      │  └ watch ▶ watched ─ answer ┘ │
//!                      └───── cancel ───┴──── cancel ──┴──▶ gone
//! ```
//!
//! Without the lock, a word changes from flying to queued only. Every other transition happens under the lock of the
//! [table](crate::process::yields::table). That table contains the data that few of these yields need: the watchers and
//! the reply type.
//!
//! A word contains the number of its yield, which is never issued twice. Therefore, the compare-exchange of a late
//! answer fails, even if another yield uses the word by then. A word publishes no other data, so all accesses are
//! relaxed: the mailbox transfers the answer.

use std::any::TypeId;

use crate::platform::sync::atomic::{AtomicU64, Ordering};
use crate::platform::sync::{OnceLock, planted};
use crate::process::event::Tag;
use crate::process::yields::table::Watchers;
use crate::process::yields::{Answer, Late, Yields, check_type};

/// Answered: the answer is in the mailbox, or on its way to it.
const QUEUED: u64 = 1;
const FLYING: u64 = 2;
/// In flight, and watched: the state `FLYING` with one more bit.
const WATCHED: u64 = FLYING | WATCHED_BIT;
const WATCHED_BIT: u64 = 1;
/// Number of low bits that contain the state. The higher bits contain the number of the yield. A word without a yield
/// is zero.
const STATE_BITS: u32 = 2;
const STATE: u64 = (1 << STATE_BITS) - 1;

/// Number of words in the first block. Each further block is twice as large as the preceding one.
const FIRST: u32 = if cfg!(procession_loom) { 2 } else { 64 };
const BLOCKS: usize = (u32::BITS - FIRST.ilog2()) as usize;

/// Returns the id and the name of a reply type. It is a function, because a function pointer takes one word.
pub(super) type ReplyType = fn() -> (TypeId, &'static str);

/// Result of an attempt to answer without the lock.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Moved {
    /// The answer was accepted.
    Queued,
    /// The yield is watched: the answer must be given under the lock.
    Watched,
    /// No yield with this tag is in flight.
    Not,
}

/// One word per key. Words do not move when a block is added, so an answering thread never waits for it.
#[derive(Debug)]
pub(super) struct Words {
    blocks: [OnceLock<Box<[AtomicU64]>>; BLOCKS],
}

fn word(tag: Tag, state: u64) -> u64 {
    tag.serial() << STATE_BITS | state
}

/// Index of the block that contains the word of a key, and the index in the block.
fn place(key: u32) -> (usize, usize) {
    let above = u64::from(key) + u64::from(FIRST);
    let block = above.ilog2() - FIRST.ilog2();
    (block as usize, (above - (u64::from(FIRST) << block)) as usize)
}

impl Words {
    pub(super) fn new() -> Self {
        Self { blocks: [const { OnceLock::new() }; BLOCKS] }
    }

    /// Returns `None` for a key that was never used here.
    #[inline]
    fn at(&self, key: u32) -> Option<&AtomicU64> {
        let (block, at) = place(key);
        self.blocks.get(block)?.get()?.get(at)
    }

    /// Begins a yield whose key is free, under the lock.
    #[inline]
    fn begin(&self, tag: Tag) {
        let (block, at) = place(tag.key);
        let words = self.blocks[block].get_or_init(|| (0..FIRST << block).map(|_| AtomicU64::new(0)).collect());
        words[at].store(word(tag, FLYING), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn is_in_flight(&self, tag: Tag) -> bool {
        self.at(tag.key).is_some_and(|at| at.load(Ordering::Relaxed) | WATCHED_BIT == word(tag, WATCHED))
    }

    /// Answers a yield without the lock.
    #[inline]
    pub(super) fn answer(&self, tag: Tag) -> Moved {
        let Some(at) = self.at(tag.key) else { return Moved::Not };
        match at.compare_exchange(word(tag, FLYING), word(tag, QUEUED), Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Moved::Queued,
            Err(seen) if seen == word(tag, WATCHED) => Moved::Watched,
            Err(seen) if planted!("plain_answers_twice") && seen == word(tag, QUEUED) => Moved::Queued,
            Err(_) if planted!("plain_words_have_no_number") => Moved::Queued,
            Err(_) => Moved::Not,
        }
    }

    /// Marks a yield as watched, under the lock. Returns false if it is not in flight.
    fn watch(&self, tag: Tag) -> bool {
        let Some(at) = self.at(tag.key) else { return false };
        if planted!("plain_watch_is_a_store") {
            let flying = self.is_in_flight(tag);
            at.store(word(tag, WATCHED), Ordering::Relaxed);
            return flying;
        }
        let marked = at.compare_exchange(word(tag, FLYING), word(tag, WATCHED), Ordering::Relaxed, Ordering::Relaxed);
        marked.is_ok() || marked == Err(word(tag, WATCHED))
    }

    /// Ends a yield, under the lock. Returns whether it was in flight, or `None` if it was gone.
    fn end(&self, tag: Tag) -> Option<bool> {
        let at = self.at(tag.key)?;
        let mut seen = at.load(Ordering::Relaxed);
        loop {
            if seen == 0 || seen | STATE != word(tag, STATE) {
                return None;
            }
            if planted!("plain_cancel_is_a_store") {
                at.store(0, Ordering::Relaxed);
                return Some(seen & STATE != QUEUED);
            }
            match at.compare_exchange(seen, 0, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(seen & STATE != QUEUED),
                Err(answered) => seen = answered,
            }
        }
    }

    /// Ends an answered yield, under the lock, so no other thread writes the word. Returns false if the yield was gone.
    #[inline]
    fn collect(&self, tag: Tag) -> bool {
        let Some(at) = self.at(tag.key).filter(|at| at.load(Ordering::Relaxed) == word(tag, QUEUED)) else {
            return false;
        };
        at.store(0, Ordering::Relaxed);
        true
    }

    /// Returns the number of answers that are not read yet.
    pub(super) fn queued(&self) -> usize {
        let words = self.blocks.iter().map_while(OnceLock::get).flatten();
        words.filter(|at| at.load(Ordering::Relaxed) & STATE == QUEUED).count()
    }

    /// Ends all yields, under the lock.
    fn end_all(&self) {
        self.blocks.iter().map_while(OnceLock::get).flatten().for_each(|at| at.store(0, Ordering::Relaxed));
    }
}

/// Data of lock-free yields that only the holder of the lock accesses.
#[derive(Debug, Default)]
pub(super) struct Plain {
    /// Keys that were used and are free again.
    free: Vec<u32>,
    /// Reply types, by key.
    replies: Vec<ReplyType>,
    /// Watchers, by key, up to the highest key that was watched.
    watchers: Vec<Watchers>,
}

impl Plain {
    /// Begins the yield with this number, and returns its key.
    #[inline]
    pub(super) fn begin(&mut self, words: &Words, number: u64, reply: ReplyType) -> u32 {
        let key = match self.free.pop() {
            Some(key) => {
                self.replies[key as usize] = reply;
                key
            }
            None => {
                self.replies.push(reply);
                (self.replies.len() - 1) as u32
            }
        };
        words.begin(Tag::plain(number, key));
        key
    }

    pub(super) fn reply(&self, tag: Tag) -> Option<ReplyType> {
        self.replies.get(tag.key as usize).copied()
    }

    /// Removes a yield whose answer was read. Returns false if it was cancelled since.
    #[inline]
    pub(super) fn collect(&mut self, words: &Words, tag: Tag) -> bool {
        let there = words.collect(tag);
        if there {
            self.free.push(tag.key);
        }
        there
    }

    /// Cancels a yield. Returns whether it was in flight, and the watchers to wake. `None` if it was gone.
    pub(super) fn cancel(&mut self, words: &Words, tag: Tag) -> Option<(bool, Watchers)> {
        let flying = words.end(tag)?;
        self.free.push(tag.key);
        if planted!("plain_cancel_forgets_watchers") {
            return Some((flying, Watchers::default()));
        }
        Some((flying, self.unwatch(tag)))
    }

    fn unwatch(&mut self, tag: Tag) -> Watchers {
        self.watchers.get_mut(tag.key as usize).map(std::mem::take).unwrap_or_default()
    }

    /// Answers a watched yield. Returns the watchers to wake, or `None` if the yield is not in flight any more.
    pub(super) fn answer_watched(&mut self, words: &Words, tag: Tag) -> Option<Watchers> {
        let at = words.at(tag.key)?;
        let answered = at.compare_exchange(word(tag, WATCHED), word(tag, QUEUED), Ordering::Relaxed, Ordering::Relaxed);
        answered.is_ok().then(|| self.unwatch(tag))
    }

    /// Returns the watchers of a yield, so that the caller can add one. `None` if the yield is not in flight.
    pub(super) fn watch(&mut self, words: &Words, tag: Tag) -> Option<&mut Watchers> {
        if !words.watch(tag) {
            return None;
        }
        let at = tag.key as usize;
        if self.watchers.len() <= at {
            self.watchers.resize_with(at + 1, Watchers::default);
        }
        Some(&mut self.watchers[at])
    }

    /// Ends all yields. Returns the watchers to wake.
    pub(super) fn close(&mut self, words: &Words) -> impl Iterator<Item = Watchers> + use<> {
        if !planted!("plain_close_keeps_words") {
            words.end_all();
        }
        self.free = Vec::new();
        std::mem::take(&mut self.watchers).into_iter()
    }
}

impl Yields {
    /// Whether a lock-free yield is in flight.
    #[inline]
    pub(super) fn is_flying(&self, tag: Tag) -> bool {
        self.words().is_some_and(|words| words.is_in_flight(tag))
    }

    /// Answers a lock-free yield, as [`complete`](Self::complete) does for other yields. After `Ok`, the caller pushes
    /// the answer into the mailbox.
    ///
    /// # Errors
    /// Returns why the answer came too late. With `check`, also refuses an answer of the wrong type.
    #[inline]
    pub(crate) fn complete_lock_free(
        &self,
        tag: Tag,
        answer: &Option<Answer>,
        check: bool,
        taken: impl FnOnce(),
    ) -> Result<(), Late> {
        let Some(words) = self.words() else { return Err(Late::Unknown) };
        if self.is_over() {
            return Err(Late::Spent);
        }
        if check {
            self.check_lock_free(words, tag, answer)?;
        }
        let watchers = match words.answer(tag) {
            Moved::Queued => None,
            Moved::Watched | Moved::Not => Some(self.answer_watched(words, tag)?),
        };
        taken();
        watchers.into_iter().for_each(Watchers::wake);
        Ok(())
    }

    #[cold]
    fn answer_watched(&self, words: &Words, tag: Tag) -> Result<Watchers, Late> {
        let Some(mut guard) = self.table() else { return Err(Late::Unknown) };
        let table = &mut *guard;
        table.plain().answer_watched(words, tag).ok_or(self.late(tag))
    }

    #[cold]
    fn check_lock_free(&self, words: &Words, tag: Tag, answer: &Option<Answer>) -> Result<(), Late> {
        let Some(mut table) = self.table() else { return Err(Late::Unknown) };
        // No key is reused under the lock. Therefore, if the yield is in flight, the stored reply type belongs to it.
        match table.plain().reply(tag).filter(|_| words.is_in_flight(tag)) {
            Some(reply) => check_type(answer, reply),
            None => Err(self.late(tag)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Wake, Waker};

    use super::*;
    use crate::platform::sync::Arc;
    use crate::platform::sync::atomic::AtomicUsize;

    fn text() -> (TypeId, &'static str) {
        (TypeId::of::<String>(), "text")
    }

    #[test]
    fn each_key_has_its_own_word() {
        let mut next = (0, 0);
        for key in 0..100_000 {
            assert_eq!(place(key), next, "{key}");
            next.1 += 1;
            if next.1 == (FIRST as usize) << next.0 {
                next = (next.0 + 1, 0);
            }
        }
        assert_eq!(place(u32::MAX), (BLOCKS, FIRST as usize - 1), "the last keys have none: nobody gets so far");
        assert_eq!(place(u32::MAX - FIRST).0, BLOCKS - 1);
    }

    #[test]
    fn keys_are_reused_and_numbers_are_not() {
        let (words, mut plain) = (Words::new(), Plain::default());
        let begin = |plain: &mut Plain, number| Tag::plain(number, plain.begin(&words, number, text));
        let first: Vec<Tag> = (0..1_000).map(|number| begin(&mut plain, number)).collect();
        assert!(first.iter().all(|tag| words.is_in_flight(*tag) && words.answer(*tag) == Moved::Queued));
        assert!(first.iter().all(|tag| !words.is_in_flight(*tag) && words.answer(*tag) == Moved::Not));
        assert_eq!(words.queued(), 1_000);
        assert!(first.iter().all(|tag| plain.collect(&words, *tag) && !plain.collect(&words, *tag)));
        assert_eq!(words.queued(), 0);
        let second: Vec<Tag> = (1_000..2_000).map(|number| begin(&mut plain, number)).collect();
        assert!(second.iter().all(|tag| tag.key < 1_000));
        assert!(first.iter().all(|tag| !words.is_in_flight(*tag) && words.answer(*tag) == Moved::Not));
        assert!(first.iter().all(|tag| plain.cancel(&words, *tag).is_none()));
        assert!(second.iter().all(|tag| plain.cancel(&words, *tag).is_some_and(|(flying, _)| flying)));
        assert!(second.iter().all(|tag| words.answer(*tag) == Moved::Not));
        let unknown = Tag::plain(3, 70_000);
        assert_eq!((words.is_in_flight(unknown), words.answer(unknown)), (false, Moved::Not));
    }

    #[test]
    fn each_watcher_is_woken_once() {
        struct WakeCounter(AtomicUsize);
        impl Wake for WakeCounter {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (words, mut plain) = (Words::new(), Plain::default());
        let told = Arc::new(WakeCounter(AtomicUsize::new(0)));
        let times = || told.0.load(Ordering::Relaxed);
        for (number, answered) in [(0, true), (1, false)] {
            let tag = Tag::plain(number, plain.begin(&words, number, text));
            let watchers = plain.watch(&words, tag).expect("it is in flight");
            watchers.add(Waker::from(Arc::clone(&told)));
            assert!(plain.watch(&words, tag).is_some_and(|watchers| watchers.knows(&Waker::from(Arc::clone(&told)))));
            assert_eq!((words.is_in_flight(tag), words.answer(tag)), (true, Moved::Watched));
            if answered {
                plain.answer_watched(&words, tag).expect("it is in flight").wake();
                assert!(plain.answer_watched(&words, tag).is_none());
            } else {
                plain.cancel(&words, tag).expect("it is there").1.wake();
            }
            assert!(plain.watch(&words, tag).is_none());
            assert_eq!(times(), number as usize + 1);
            plain.collect(&words, tag);
        }
        let tag = Tag::plain(2, plain.begin(&words, 2, text));
        plain.watch(&words, tag).expect("it is in flight").add(Waker::from(Arc::clone(&told)));
        plain.close(&words).for_each(Watchers::wake);
        assert_eq!((times(), words.answer(tag)), (3, Moved::Not));
    }
}

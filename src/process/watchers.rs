//! Lists of the wakers of futures that wait for the end of a command or of a call. A list is part of the state of the
//! command or call that the futures wait for, and has no separate lock.
//!
//! Each future has its own entry, even if several futures of one task have equal wakers. Therefore, a future can remove
//! its entry without an effect on the other futures.

use std::mem;
use std::num::NonZeroU32;
use std::task::Waker;

use slab::Slab;

/// The entry of one future in a list of wakers. A new key has no entry.
///
/// The key is the position of the entry. An owner of a list takes out the whole list only once, and then adds no more
/// wakers. Therefore, no other future gets the position of an entry that was taken out.
#[derive(Debug, Default)]
pub(crate) struct WatchKey(Option<NonZeroU32>);

impl WatchKey {
    /// Returns true if the future has added its waker to the list and has not removed this waker.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.0.is_some()
    }
}

/// Wakers of the futures that wait for the end of a command or of a call. Usually there is at most one waker.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    /// The waker with the key 1.
    first: Option<Waker>,
    /// The other wakers. The waker at the index `n` has the key `n + 2`. The slab is never empty. The slab is boxed,
    /// because it is rarely needed, and a boxed slab takes only one word of each command.
    more: Option<Box<Slab<Waker>>>,
}

impl Watchers {
    /// Returns the waker in the entry of `key`.
    fn entry(&mut self, key: &WatchKey) -> Option<&mut Waker> {
        match key.0?.get() as usize {
            1 => self.first.as_mut(),
            key => self.more.as_mut()?.get_mut(key - 2),
        }
    }

    /// Returns whether the entry of `key` contains a waker that wakes the same task as `watcher`.
    pub(crate) fn knows(&mut self, key: &WatchKey, watcher: &Waker) -> bool {
        self.entry(key).is_some_and(|known| known.will_wake(watcher))
    }

    /// Stores `watcher` in the entry of `key`. If `key` has no entry, adds an entry. Returns the previous waker of this
    /// entry. The caller drops the previous waker after the unlock, because the drop runs user code.
    pub(crate) fn set(&mut self, key: &mut WatchKey, watcher: Waker) -> Option<Waker> {
        if let Some(entry) = self.entry(key) {
            return Some(mem::replace(entry, watcher));
        }
        let position = if self.first.is_none() {
            self.first = Some(watcher);
            1
        } else {
            self.more.get_or_insert_default().insert(watcher) + 2
        };
        key.0 = u32::try_from(position).ok().and_then(NonZeroU32::new);
        None
    }

    /// Removes the entry of `key`, and returns the waker of this entry. The caller drops this waker after the unlock.
    pub(crate) fn remove(&mut self, key: &mut WatchKey) -> Option<Waker> {
        match key.0.take()?.get() as usize {
            1 => self.first.take(),
            key => {
                let more = self.more.as_mut()?;
                let removed = more.try_remove(key - 2);
                if more.is_empty() {
                    self.more = None;
                }
                removed
            }
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none() && self.more.is_none()
    }

    pub(crate) fn into_wakers(self) -> impl Iterator<Item = Waker> {
        let more = self.more.into_iter().flat_map(|more| more.into_iter().map(|(_, waker)| waker));
        self.first.into_iter().chain(more)
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;

    /// 3.3c: the removal of an entry does not affect the entries of other futures, even if the wakers are equal.
    #[test]
    fn each_future_has_its_own_entry() {
        let (mut watchers, waker) = (Watchers::default(), Waker::noop());
        let mut keys = [(); 4].map(|()| WatchKey::default());
        assert!(watchers.remove(&mut keys[0]).is_none());
        for key in &mut keys {
            assert!(watchers.set(key, waker.clone()).is_none());
            assert!(watchers.set(key, waker.clone()).is_some());
        }
        for at in [0, 2] {
            assert!(watchers.remove(&mut keys[at]).is_some() && watchers.remove(&mut keys[at]).is_none());
        }
        assert_eq!(keys.each_ref().map(|key| watchers.entry(key).is_some()), [false, true, false, true]);
        let mut later = WatchKey::default();
        assert!(watchers.set(&mut later, waker.clone()).is_none());
        assert!([1, 3].iter().all(|&at| watchers.remove(&mut keys[at]).is_some()));
        assert!(watchers.entry(&later).is_some() && !watchers.is_empty());
        assert!(watchers.remove(&mut later).is_some() && watchers.is_empty());
    }
}

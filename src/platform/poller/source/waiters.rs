//! The operations that wait for one source. The source holds the lock of its waiters during each call. Therefore the
//! functions of this file neither clone nor drop nor call a waker.

use std::collections::VecDeque;
use std::task::Waker;

use crate::platform::poller::source::Direction;

/// Identifies a waiting operation of a source. The key is not `Copy`. If the key were `Copy`, a closure could store the
/// key in a copy of the guard's field. Then the guard of the operation would not see the key.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaiterKey(pub(super) u64);

/// The operations that wait for one source.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// For each direction, the waker from the last call of a `poll_…` function.
    pub(super) polled: [Option<Waker>; 2],
    /// The waiting futures of each direction. The lists are boxed, because most sockets never have a waiting future.
    pub(super) futures: Option<Box<[WaitingFutures; 2]>>,
    next: u64,
    /// Number of keys that the searches have compared.
    #[cfg(test)]
    pub(super) compared: usize,
}

impl Waiters {
    /// Moves the wakers of a direction to `ready`.
    pub(super) fn take(&mut self, direction: Direction, ready: &mut Vec<Waker>) {
        ready.extend(self.polled[direction as usize].take());
        if let Some(futures) = &mut self.futures {
            futures[direction as usize].take(ready);
        }
    }

    pub(super) fn register(
        &mut self,
        direction: Direction,
        waker: Waker,
        key: &mut Option<WaiterKey>,
    ) -> Option<Waker> {
        let known = key.as_ref().and_then(|key| self.find(direction, key));
        let futures = &mut self.futures.get_or_insert_default()[direction as usize];
        if let Some(at) = known {
            let former = futures.entries[at].1.replace(waker);
            futures.without_waker -= usize::from(former.is_none());
            return former;
        }
        *key = Some(WaiterKey(self.next));
        futures.entries.push_back((WaiterKey(self.next), Some(waker)));
        self.next += 1;
        None
    }

    pub(super) fn remove(&mut self, key: &WaiterKey) -> Option<Waker> {
        [Direction::Read, Direction::Write].into_iter().find_map(|direction| {
            let at = self.find(direction, key)?;
            self.futures.as_mut()?[direction as usize].remove(at)
        })
    }

    /// Returns the position of a waiting future in the list of its direction.
    fn find(&mut self, direction: Direction, key: &WaiterKey) -> Option<usize> {
        let entries = &self.futures.as_ref()?[direction as usize].entries;
        let compare = |(known, _): &(WaiterKey, Option<Waker>)| {
            #[cfg(test)]
            {
                self.compared += 1;
            }
            known.cmp(key)
        };
        entries.binary_search_by(compare).ok()
    }
}

/// An empty list keeps its memory if its capacity is at most this number of entries.
pub(super) const KEPT: usize = 64;

/// The futures that wait for one direction of a socket, in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct WaitingFutures {
    /// The waker of a removed future is `None`. Therefore the removal of a future moves no other entry. The keys
    /// ascend, so a search is a binary search. The first entry has a waker.
    pub(super) entries: VecDeque<(WaiterKey, Option<Waker>)>,
    /// Number of entries without a waker.
    pub(super) without_waker: usize,
}

impl WaitingFutures {
    pub(super) fn wakers(&self) -> impl Iterator<Item = &Waker> {
        self.entries.iter().filter_map(|(_, waker)| waker.as_ref())
    }

    /// Moves the wakers to `ready`, and empties the list.
    fn take(&mut self, ready: &mut Vec<Waker>) {
        ready.extend(self.entries.drain(..).filter_map(|(_, waker)| waker));
        self.without_waker = 0;
        self.shrink();
    }

    /// Removes a future and returns its waker. If more than half of the entries have no waker, these entries are
    /// removed. Therefore the mean time of a call is constant.
    fn remove(&mut self, at: usize) -> Option<Waker> {
        let waker = self.entries[at].1.take()?;
        self.without_waker += 1;
        while let Some((_, None)) = self.entries.front() {
            self.entries.pop_front();
            self.without_waker -= 1;
        }
        if self.without_waker > self.entries.len() / 2 {
            self.entries.retain(|(_, waker)| waker.is_some());
            self.without_waker = 0;
        }
        self.shrink();
        Some(waker)
    }

    /// Releases the memory of an empty list that was long.
    fn shrink(&mut self) {
        if self.entries.is_empty() && self.entries.capacity() > KEPT {
            self.entries = VecDeque::new();
        }
    }
}

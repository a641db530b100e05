//! The readiness of one socket, and the operations that wait for it.
//!
//! # Protocol
//!
//! An operation calls the system first. If the system answers `WouldBlock`, the operation [clears](Source::clear) the
//! readiness of its direction, [registers its waker](Source::poll_ready), and waits. The poller sets the readiness and
//! takes the wakers.
//!
//! No event is lost. First, each event increases the counter in the state word. An operation clears the readiness only
//! if the counter has not changed since the operation read it, so an event that arrives between the system call and
//! `clear` keeps its effect. Second, the operation registers its waker and then reads the state word, both under the
//! lock of the waiters. The poller writes the state word and then takes the wakers under this lock. So either the
//! operation sees the readiness, or the poller finds the waker.

use std::io;
use std::task::{Poll, Waker};

use mio::Token;
use mio::event::Event;

use crate::platform::sync::Mutex;
use crate::platform::sync::atomic::{AtomicU32, Ordering};

/// Direction of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// Bits of the state word.
mod bit {
    pub(super) const READABLE: u32 = 1;
    pub(super) const WRITABLE: u32 = 1 << 1;
    /// The peer has closed its side, or the connection is broken. This never ends, so the readiness stays set.
    pub(super) const READ_CLOSED: u32 = 1 << 2;
    pub(super) const WRITE_CLOSED: u32 = 1 << 3;
    /// The runtime has ended.
    pub(super) const ENDED: u32 = 1 << 4;
    /// One event. The bits above count the events.
    pub(super) const EVENT: u32 = 1 << 5;
}

impl Direction {
    fn ready(self) -> u32 {
        match self {
            Self::Read => bit::READABLE,
            Self::Write => bit::WRITABLE,
        }
    }

    fn closed(self) -> u32 {
        match self {
            Self::Read => bit::READ_CLOSED,
            Self::Write => bit::WRITE_CLOSED,
        }
    }
}

/// The state word as an operation has read it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen(u32);

/// Identifies a waiting operation of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WaiterKey(u64);

#[derive(Debug)]
pub(crate) struct Source {
    token: Token,
    state: AtomicU32,
    waiters: Mutex<Waiters>,
}

#[derive(Debug, Default)]
struct Waiters {
    /// Waker of the `poll_…` function of each direction that was called last.
    polled: [Option<Waker>; 2],
    /// The waiting futures, in the order of their arrival. Most sockets never have one, so the list is boxed.
    #[expect(clippy::box_collection, reason = "one word in each socket, not three")]
    futures: Option<Box<Vec<(WaiterKey, Direction, Waker)>>>,
    next: u64,
}

impl Source {
    /// Creates the state of a socket. Until the first `WouldBlock`, the socket counts as ready: usually an accepted
    /// connection has data, and its first read then needs no event.
    pub(super) fn new(token: Token) -> Self {
        let state = AtomicU32::new(bit::READABLE | bit::WRITABLE);
        Self { token, state, waiters: Mutex::default() }
    }

    pub(super) fn token(&self) -> Token {
        self.token
    }

    /// The error of each operation after the runtime has ended.
    pub(crate) fn ended() -> io::Error {
        io::Error::new(io::ErrorKind::NotConnected, "the runtime of this socket has ended")
    }

    /// Records an event, and moves the wakers of the operations that can go on to `ready`.
    pub(super) fn set_ready(&self, event: &Event, ready: &mut Vec<Waker>) {
        let mut bits = 0;
        if event.is_readable() {
            bits |= bit::READABLE;
        }
        if event.is_writable() {
            bits |= bit::WRITABLE;
        }
        if event.is_read_closed() {
            bits |= bit::READABLE | bit::READ_CLOSED;
        }
        if event.is_write_closed() {
            bits |= bit::WRITABLE | bit::WRITE_CLOSED;
        }
        if event.is_error() {
            // The next operation of either direction returns the error.
            bits |= bit::READABLE | bit::WRITABLE;
        }
        self.set(bits, ready);
    }

    /// Ends all operations, because the runtime has ended.
    pub(super) fn close(&self, ready: &mut Vec<Waker>) {
        self.set(bit::READABLE | bit::WRITABLE | bit::ENDED, ready);
    }

    fn set(&self, bits: u32, ready: &mut Vec<Waker>) {
        let add = |state: u32| Some((state | bits).wrapping_add(bit::EVENT));
        let _ = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
        let mut waiters = self.waiters.lock();
        for direction in [Direction::Read, Direction::Write] {
            if bits & direction.ready() != 0 {
                waiters.take(direction, ready);
            }
        }
    }

    /// Makes the direction not ready, because the system answered `WouldBlock` to an operation that has
    /// [seen](Self::poll_ready) `seen`. Has no effect if an event has arrived since then.
    pub(crate) fn clear(&self, direction: Direction, seen: Seen) {
        // A closed direction stays ready, because no further event announces it.
        if seen.0 & (direction.closed() | bit::ENDED) == 0 {
            let mut present = seen.0;
            // The other direction may have been cleared meanwhile. The counter of events tells whether `seen` is old.
            while let Err(now) = self.state.compare_exchange_weak(
                present,
                present & !direction.ready(),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                if now / bit::EVENT != seen.0 / bit::EVENT {
                    return;
                }
                present = now;
            }
        }
    }

    /// Returns the state if the direction is ready.
    pub(crate) fn check(&self, direction: Direction) -> Poll<io::Result<Seen>> {
        let state = self.state.load(Ordering::Acquire);
        if state & bit::ENDED != 0 {
            return Poll::Ready(Err(Self::ended()));
        }
        if state & direction.ready() != 0 { Poll::Ready(Ok(Seen(state))) } else { Poll::Pending }
    }

    /// Returns the state if the direction is ready. Otherwise the poller wakes `waker`, in place of the waker of the
    /// last such call for this direction.
    pub(crate) fn poll_ready(&self, direction: Direction, waker: &Waker) -> Poll<io::Result<Seen>> {
        let checked = self.check(direction);
        if checked.is_ready() {
            return checked;
        }
        let at = direction as usize;
        let is_known = |waiters: &Waiters| waiters.polled[at].as_ref().is_some_and(|known| known.will_wake(waker));
        let mut waiters = self.waiters.lock();
        let mut former = None;
        if !is_known(&waiters) {
            drop(waiters);
            // The clone and the drop of a waker run user code, so the lock is not held.
            let fresh = waker.clone();
            waiters = self.waiters.lock();
            former = waiters.polled[at].replace(fresh);
        }
        let checked = self.check(direction);
        drop(waiters);
        drop(former);
        checked
    }

    /// As [`poll_ready`](Self::poll_ready), for a future that waits together with other futures. `key` identifies the
    /// future. The caller calls [`forget`](Self::forget) when the future is dropped.
    pub(crate) fn poll_ready_as(
        &self,
        direction: Direction,
        waker: &Waker,
        key: &mut Option<WaiterKey>,
    ) -> Poll<io::Result<Seen>> {
        let checked = self.check(direction);
        if checked.is_ready() {
            return checked;
        }
        let fresh = waker.clone();
        let mut waiters = self.waiters.lock();
        let former = waiters.register(direction, fresh, key);
        let checked = self.check(direction);
        drop(waiters);
        drop(former);
        checked
    }

    /// Removes a waiting future.
    pub(crate) fn forget(&self, key: WaiterKey) {
        let mut waiters = self.waiters.lock();
        let former = waiters.remove(key);
        drop(waiters);
        drop(former);
    }
}

impl Waiters {
    /// Moves the wakers of a direction to `ready`.
    fn take(&mut self, direction: Direction, ready: &mut Vec<Waker>) {
        ready.extend(self.polled[direction as usize].take());
        if let Some(futures) = &mut self.futures {
            ready.extend(futures.extract_if(.., |(_, of, _)| *of == direction).map(|(_, _, waker)| waker));
        }
    }

    fn register(&mut self, direction: Direction, waker: Waker, key: &mut Option<WaiterKey>) -> Option<Waker> {
        let futures = self.futures.get_or_insert_default();
        if let Some(entry) = futures.iter_mut().find(|(known, ..)| Some(*known) == *key) {
            return Some(std::mem::replace(&mut entry.2, waker));
        }
        let fresh = WaiterKey(self.next);
        self.next += 1;
        *key = Some(fresh);
        futures.push((fresh, direction, waker));
        None
    }

    fn remove(&mut self, key: WaiterKey) -> Option<Waker> {
        let futures = self.futures.as_mut()?;
        let at = futures.iter().position(|(known, ..)| *known == key)?;
        Some(futures.remove(at).2)
    }
}

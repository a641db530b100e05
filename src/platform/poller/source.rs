//! The readiness of one socket, and the list of the operations that wait for this socket.
//!
//! # Protocol
//!
//! An operation calls the system first. If the system answers `WouldBlock`, the operation [clears](Source::clear) the
//! readiness of its direction, [registers its waker](Source::poll_ready), and waits. When the system reports an event,
//! the poller sets the readiness and takes the wakers.
//!
//! No event is lost, for two reasons. First, each event increases a counter in the state word. An operation clears the
//! readiness only if the counter has not changed since the operation read the counter. So an event that arrives between
//! the system call and `clear` is not lost. Second, the operation holds the lock of the waiters while it registers its
//! waker and then reads the state word. The poller writes the state word, and then takes the wakers under the same
//! lock. Therefore either the operation sees the readiness, or the poller finds the waker.

mod waiters;

use std::io;
use std::task::{Poll, Waker};

use mio::Token;
use mio::event::Event;

use crate::platform::poller::SocketWait;
pub(crate) use crate::platform::poller::source::waiters::WaiterKey;
use crate::platform::poller::source::waiters::Waiters;
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
    /// The peer has closed its side, or the connection is broken. The system reports no further event for this
    /// direction.
    pub(super) const READ_CLOSED: u32 = 1 << 2;
    pub(super) const WRITE_CLOSED: u32 = 1 << 3;
    /// The runtime has ended.
    pub(super) const ENDED: u32 = 1 << 4;
    /// Urgent data has arrived. A read may have ended before the urgent byte, although more bytes are available.
    pub(super) const URGENT: u32 = 1 << 5;
    /// An event has reported that the direction is ready. `READABLE` and `WRITABLE` are also set for a new socket,
    /// before its first event.
    pub(super) const READ_REPORTED: u32 = 1 << 6;
    pub(super) const WRITE_REPORTED: u32 = 1 << 7;
    /// Each event adds this number to the counter of events. The counter consists of this bit and all higher bits.
    pub(super) const EVENT: u32 = 1 << 8;
}

impl Direction {
    fn ready(self) -> u32 {
        match self {
            Self::Read => bit::READABLE,
            Self::Write => bit::WRITABLE,
        }
    }

    fn reported(self) -> u32 {
        match self {
            Self::Read => bit::READ_REPORTED,
            Self::Write => bit::WRITE_REPORTED,
        }
    }

    fn closed(self) -> u32 {
        match self {
            Self::Read => bit::READ_CLOSED,
            Self::Write => bit::WRITE_CLOSED,
        }
    }
}

/// Value that an operation has read from the state word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen(u32);

/// Number that the system gives to a descriptor or a socket.
#[cfg(unix)]
pub(crate) type RawDescriptor = std::os::fd::RawFd;
#[cfg(windows)]
pub(crate) type RawDescriptor = std::os::windows::io::RawSocket;

/// Returns the number of an open descriptor, which is never negative.
#[cfg(unix)]
fn number_of(descriptor: RawDescriptor) -> u64 {
    descriptor.unsigned_abs().into()
}

#[cfg(windows)]
fn number_of(descriptor: RawDescriptor) -> u64 {
    descriptor
}

#[derive(Debug)]
pub(crate) struct Source {
    token: Token,
    descriptor: RawDescriptor,
    state: AtomicU32,
    waiters: Mutex<Waiters>,
}

impl Source {
    /// Creates the state of a socket. The socket counts as ready until the system first answers `WouldBlock`. An
    /// accepted connection usually has data, so its first read need not wait for an event.
    pub(super) fn new(token: Token, descriptor: RawDescriptor) -> Self {
        let state = AtomicU32::new(bit::READABLE | bit::WRITABLE);
        Self { token, descriptor, state, waiters: Mutex::default() }
    }

    /// Calls `visit` with each operation that waits for this socket. The lock of the waiters is held during the calls,
    /// so `visit` must not call user code.
    pub(super) fn visit_waiters(&self, visit: &mut dyn FnMut(SocketWait<'_>)) {
        let waiters = self.waiters.lock();
        for direction in [Direction::Read, Direction::Write] {
            let at = direction as usize;
            let futures = waiters.futures.iter().flat_map(|futures| futures[at].wakers());
            for waker in waiters.polled[at].iter().chain(futures) {
                let (descriptor, is_write) = (number_of(self.descriptor), direction == Direction::Write);
                visit(SocketWait { waker, descriptor, is_write });
            }
        }
    }

    pub(super) fn token(&self) -> Token {
        self.token
    }

    /// Returns the error that each operation returns after the runtime has ended.
    pub(crate) fn ended() -> io::Error {
        io::Error::new(io::ErrorKind::NotConnected, "the runtime of this socket has shut down")
    }

    /// Records an event. Some waiting operations can then continue: this function moves the wakers of these
    /// operations to `ready`.
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
            // An error concerns both directions: the next read or write returns the error.
            bits |= bit::READABLE | bit::WRITABLE;
        }
        if event.is_priority() {
            bits |= bit::READABLE | bit::URGENT;
        }
        for direction in [Direction::Read, Direction::Write] {
            if bits & direction.ready() != 0 {
                bits |= direction.reported();
            }
        }
        self.set(bits, ready);
    }

    /// Makes all operations fail, because the runtime has ended.
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

    /// Returns whether the direction is marked as closed. An event sets this mark. An operation that gets `WouldBlock`
    /// [removes](Self::clear) the mark, because the direction is then open. If a further event arrives during the
    /// operation, the mark stays.
    #[cfg(unix)]
    pub(crate) fn is_closed(&self, direction: Direction) -> bool {
        self.state.load(Ordering::Acquire) & direction.closed() != 0
    }

    /// Returns whether the runtime has ended. Then each operation fails.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.load(Ordering::Acquire) & bit::ENDED != 0
    }

    /// Marks the direction as not ready. An operation calls this function when the system has answered `WouldBlock`.
    /// `seen` is the state that the operation has [read](Self::poll_ready) before its system call. If an event has
    /// arrived after this read, the call has no effect.
    ///
    /// If the direction is marked as closed, this call removes the mark, because `WouldBlock` shows that the direction
    /// is open. mio derives "closed" from events that have another meaning for some sockets. For example, a UDP socket
    /// is still open after an error.
    pub(crate) fn clear(&self, direction: Direction, seen: Seen) {
        self.unset(direction.ready() | direction.reported() | direction.closed(), seen);
    }

    /// Marks the direction as not ready until its next event. A closed direction stays ready, because the system
    /// reports no further event for this direction.
    ///
    /// If an event arrives during this call, the direction may be ready or not ready after the call: the call may
    /// discard the event.
    #[cfg(unix)]
    pub(crate) fn clear_present(&self, direction: Direction) {
        let seen = Seen(self.state.load(Ordering::Acquire));
        if seen.0 & direction.closed() == 0 {
            self.unset(direction.ready() | direction.reported(), seen);
        }
    }

    /// Like [`clear`](Self::clear), but called when a read or a write has transferred fewer bytes than its buffer
    /// holds.
    ///
    /// A closed direction stays ready, because the system reports no further event for this direction. After urgent
    /// data, the read direction stays ready too. A read ends before the urgent byte although more bytes are available,
    /// and no event reports these bytes.
    pub(crate) fn drained(&self, direction: Direction, seen: Seen) {
        let stays = direction.closed() | if direction == Direction::Read { bit::URGENT } else { 0 };
        if seen.0 & stays == 0 {
            self.unset(direction.ready() | direction.reported(), seen);
        }
    }

    fn unset(&self, bits: u32, seen: Seen) {
        let mut present = seen.0;
        // Another operation may have cleared the other direction in the meantime. The counter of events shows whether
        // an event has arrived after `seen` was read.
        while let Err(now) =
            self.state.compare_exchange_weak(present, present & !bits, Ordering::AcqRel, Ordering::Acquire)
        {
            if now / bit::EVENT != seen.0 / bit::EVENT {
                return;
            }
            present = now;
        }
    }

    /// Returns the state if the direction is ready.
    pub(crate) fn check(&self, direction: Direction) -> Poll<io::Result<Seen>> {
        self.check_bit(direction.ready())
    }

    fn check_bit(&self, bit: u32) -> Poll<io::Result<Seen>> {
        let state = self.state.load(Ordering::Acquire);
        if state & bit::ENDED != 0 {
            return Poll::Ready(Err(Self::ended()));
        }
        if state & bit != 0 { Poll::Ready(Ok(Seen(state))) } else { Poll::Pending }
    }

    /// Returns the state if the direction is ready. Otherwise registers `waker`, which is called after the next event
    /// of this direction. This waker replaces the waker of the previous call of this function for the same direction.
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
            // The clone and the drop of a waker run user code. So this thread must not hold the lock during the clone
            // and the drop.
            let fresh = waker.clone();
            waiters = self.waiters.lock();
            former = waiters.polled[at].replace(fresh);
        }
        let checked = self.check(direction);
        drop(waiters);
        drop(former);
        checked
    }

    /// Like [`poll_ready`](Self::poll_ready), but for a future: several futures can wait for one direction. `key`
    /// identifies the future. When the future is dropped, the owner of `key` must call [`forget`](Self::forget).
    pub(crate) fn poll_ready_as(
        &self,
        direction: Direction,
        waker: &Waker,
        key: &mut Option<WaiterKey>,
    ) -> Poll<io::Result<Seen>> {
        self.poll_bit_as(direction.ready(), direction, waker, key)
    }

    /// Like [`poll_ready_as`](Self::poll_ready_as), but a new source is not ready before its first event.
    #[cfg(unix)]
    pub(crate) fn poll_reported_as(
        &self,
        direction: Direction,
        waker: &Waker,
        key: &mut Option<WaiterKey>,
    ) -> Poll<io::Result<Seen>> {
        self.poll_bit_as(direction.reported(), direction, waker, key)
    }

    fn poll_bit_as(
        &self,
        bit: u32,
        direction: Direction,
        waker: &Waker,
        key: &mut Option<WaiterKey>,
    ) -> Poll<io::Result<Seen>> {
        let checked = self.check_bit(bit);
        if checked.is_ready() {
            return checked;
        }
        let fresh = waker.clone();
        let mut waiters = self.waiters.lock();
        let former = waiters.register(direction, fresh, key);
        let checked = self.check_bit(bit);
        drop(waiters);
        drop(former);
        checked
    }

    /// Removes a waiting future and drops its waker.
    pub(crate) fn forget(&self, key: &WaiterKey) {
        let mut waiters = self.waiters.lock();
        let former = waiters.remove(key);
        drop(waiters);
        drop(former);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;
    use crate::platform::poller::source::waiters::KEPT;
    use crate::platform::sync::atomic::AtomicUsize;
    use crate::platform::sync::{Arc, thread};

    const BOTH: [Direction; 2] = [Direction::Read, Direction::Write];

    fn source() -> Source {
        Source::new(Token(1), 1)
    }

    /// Returns a source whose directions are not ready.
    fn waiting() -> Source {
        let source = source();
        BOTH.into_iter().for_each(|direction| source.clear(direction, seen(&source, direction)));
        source
    }

    /// Returns the state of a direction that is ready.
    #[track_caller]
    fn seen(source: &Source, direction: Direction) -> Seen {
        match source.check(direction) {
            Poll::Ready(Ok(seen)) => seen,
            other => panic!("{other:?}"),
        }
    }

    fn is_ready(source: &Source) -> [bool; 2] {
        BOTH.map(|direction| source.check(direction).is_ready())
    }

    /// Sets the bits of an event. Returns the number of wakers that the event has taken from the source.
    fn event(source: &Source, bits: u32) -> usize {
        let mut ready = Vec::new();
        source.set(bits, &mut ready);
        ready.len()
    }

    /// Waker that counts its wake-ups.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_search_for_one_of_many_waiting_futures_compares_few_keys() {
        const FUTURES: usize = 1_000;
        let (source, waker) = (waiting(), Waker::from(Arc::new(Count::default())));
        let mut keys: Vec<Option<WaiterKey>> = (0..FUTURES).map(|_| None).collect();
        // In each round, all futures are polled twice, and then an event wakes all futures. After the three rounds, the
        // test polls the futures in another order.
        for _ in 0..3 {
            for key in keys.iter_mut().rev() {
                assert!(source.poll_ready_as(Direction::Read, &waker, key).is_pending());
                assert!(source.poll_ready_as(Direction::Read, &waker, key).is_pending());
            }
            assert_eq!(event(&source, bit::READABLE), FUTURES);
            source.clear(Direction::Read, seen(&source, Direction::Read));
        }
        for (at, key) in keys.iter_mut().enumerate() {
            let direction = BOTH[at % 2];
            assert!(source.poll_ready_as(direction, &waker, key).is_pending());
        }
        keys.iter().flatten().for_each(|key| source.forget(key));
        assert_eq!(event(&source, bit::READABLE | bit::WRITABLE), 0);
        let compared = source.waiters.lock().compared;
        // A binary search compares at most 11 of 1,000 keys. There are at most nine searches for each future.
        assert!((FUTURES..=9 * 11 * FUTURES).contains(&compared), "{compared}");
    }

    /// Many futures wait for one socket, and end in any order, for example because of their time limits. The removal of
    /// one future takes constant time on average, and the list releases its memory when the list is empty.
    #[test]
    fn futures_are_removed_in_any_order() {
        const FUTURES: usize = 1_000;
        let (source, waker) = (waiting(), Waker::from(Arc::new(Count::default())));
        let mut keys: Vec<Option<WaiterKey>> = (0..FUTURES).map(|_| None).collect();
        for key in &mut keys {
            assert!(source.poll_ready_as(Direction::Read, &waker, key).is_pending());
        }
        // 7 and 1,000 have no common divisor, so this loop visits each number once.
        for step in 0..FUTURES {
            source.forget(keys[step * 7 % FUTURES].as_ref().unwrap());
            let waiters = source.waiters.lock();
            let futures = &waiters.futures.as_ref().unwrap()[Direction::Read as usize];
            let left = FUTURES - 1 - step;
            assert_eq!(futures.wakers().count(), left);
            assert!(futures.entries.len() <= 2 * left + 1, "{} of {left}", futures.entries.len());
            assert!(left != 0 || futures.entries.capacity() <= KEPT);
        }
        // A future that is polled again after its removal is in the list again.
        for key in &mut keys[..3] {
            assert!(source.poll_ready_as(Direction::Read, &waker, key).is_pending());
        }
        source.forget(keys[1].as_ref().unwrap());
        let counts = || {
            let waiters = source.waiters.lock();
            let futures = &waiters.futures.as_ref().unwrap()[Direction::Read as usize];
            (futures.entries.len(), futures.without_waker)
        };
        assert_eq!(counts(), (3, 1));
        assert!(source.poll_ready_as(Direction::Read, &waker, &mut keys[1]).is_pending());
        assert_eq!(counts(), (3, 0));
        assert_eq!(event(&source, bit::READABLE), 3);
    }

    #[test]
    fn the_bits_of_the_state_do_not_overlap() {
        let reported = [bit::READ_REPORTED, bit::WRITE_REPORTED];
        let others =
            [bit::READABLE, bit::WRITABLE, bit::READ_CLOSED, bit::WRITE_CLOSED, bit::ENDED, bit::URGENT, bit::EVENT];
        let bits = [&reported[..], &others].concat();
        assert_eq!(bits.iter().fold(0, |all, bit| all | bit).count_ones() as usize, bits.len());
        assert!(bits.iter().all(|bit| *bit <= bit::EVENT), "the counter is above all other bits");
    }

    /// 12.3d: an event between the system call and `clear` is not lost.
    #[test]
    fn an_event_between_the_system_call_and_the_method_clear_is_kept() {
        for (direction, bits) in [(Direction::Read, bit::READABLE), (Direction::Write, bit::WRITABLE)] {
            let source = source();
            let before = seen(&source, direction);
            event(&source, bits);
            source.clear(direction, before);
            source.drained(direction, before);
            let before = seen(&source, direction);
            // The counter counts each event, including the events of the other direction.
            event(&source, bit::READABLE | bit::WRITABLE);
            source.clear(direction, before);
            source.clear(direction, seen(&source, direction));
            assert!(source.check(direction).is_pending());
            event(&source, bits);
            assert!(source.check(direction).is_ready());
        }
    }

    #[test]
    fn each_direction_is_cleared_alone() {
        let source = source();
        let (read, write) = (seen(&source, Direction::Read), seen(&source, Direction::Write));
        source.clear(Direction::Read, read);
        assert_eq!(is_ready(&source), [false, true]);
        // `write` is an outdated value of the state word, but no event has arrived after this value was read.
        source.clear(Direction::Write, write);
        assert_eq!(is_ready(&source), [false, false]);
        event(&source, bit::WRITABLE);
        assert_eq!(is_ready(&source), [false, true]);
    }

    #[test]
    fn a_closed_direction_stays_ready_until_the_system_shows_that_it_is_open() {
        let source = waiting();
        event(&source, bit::READABLE | bit::READ_CLOSED);
        source.drained(Direction::Read, seen(&source, Direction::Read));
        assert_eq!(is_ready(&source), [true, false]);
        source.clear(Direction::Read, seen(&source, Direction::Read));
        assert_eq!(is_ready(&source), [false, false]);
        event(&source, bit::READABLE);
        source.drained(Direction::Read, seen(&source, Direction::Read));
        assert_eq!(is_ready(&source), [false, false]);
    }

    #[test]
    fn after_urgent_data_a_short_read_does_not_mean_that_the_source_is_empty() {
        let source = waiting();
        event(&source, bit::READABLE | bit::WRITABLE | bit::URGENT);
        BOTH.into_iter().for_each(|direction| source.drained(direction, seen(&source, direction)));
        assert_eq!(is_ready(&source), [true, false]);
    }

    #[test]
    fn the_end_of_the_runtime_is_an_error_of_each_later_operation() {
        let source = waiting();
        let (mut key, mut ready) = (None, Vec::new());
        assert!(source.poll_ready(Direction::Read, Waker::noop()).is_pending());
        assert!(source.poll_ready_as(Direction::Write, Waker::noop(), &mut key).is_pending());
        source.close(&mut ready);
        assert_eq!(ready.len(), 2);
        for direction in BOTH {
            assert!(matches!(source.check(direction), Poll::Ready(Err(_))));
            source.clear(direction, Seen(source.state.load(Ordering::Relaxed)));
            assert!(matches!(source.poll_ready(direction, Waker::noop()), Poll::Ready(Err(_))));
            assert!(matches!(source.poll_ready_as(direction, Waker::noop(), &mut key), Poll::Ready(Err(_))));
        }
    }

    /// 12.3c: an event takes the wakers of all futures of its direction, in the order of their arrival. A dropped
    /// future leaves no waker in the list. A call of `poll_ready` replaces only the waker of an earlier call of
    /// `poll_ready`.
    #[test]
    fn an_event_takes_the_wakers_of_its_direction() {
        let source = waiting();
        let counts: Vec<Arc<Count>> = (0..6).map(|_| Arc::default()).collect();
        let wakers: Vec<_> = counts.iter().map(|count| Waker::from(Arc::clone(count))).collect();
        let mut keys = [None, None, None, None];
        for (key, waker) in keys.iter_mut().zip(&wakers) {
            assert!(source.poll_ready_as(Direction::Read, waker, key).is_pending());
        }
        // A second poll does not change the key, but replaces the waker.
        let first = keys[0].as_ref().map(|key| key.0);
        assert!(source.poll_ready_as(Direction::Read, &wakers[0], &mut keys[0]).is_pending());
        assert_eq!(keys[0].as_ref().map(|key| key.0), first);
        assert!(source.poll_ready(Direction::Read, &wakers[4]).is_pending());
        assert!(source.poll_ready(Direction::Read, &wakers[5]).is_pending());
        assert_eq!(Arc::strong_count(&counts[4]), 2, "it was replaced");
        source.forget(keys[1].as_ref().expect("it waits"));
        assert_eq!(Arc::strong_count(&counts[1]), 2, "it was forgotten");
        let mut write = None;
        assert!(source.poll_ready_as(Direction::Write, &wakers[4], &mut write).is_pending());
        let mut ready = Vec::new();
        source.set(bit::READABLE, &mut ready);
        ready.drain(..).for_each(Waker::wake);
        let woken = counts.iter().map(|count| count.0.load(Ordering::SeqCst)).collect::<Vec<_>>();
        assert_eq!(woken, [1, 0, 1, 1, 0, 1]);
        assert_eq!(event(&source, bit::READABLE), 0);
        assert_eq!(event(&source, bit::WRITABLE), 1);
        // The event has taken the waker of this key, so `forget` has no effect. A future whose waker was taken can wait
        // again.
        source.forget(keys[0].as_ref().expect("it waited"));
        source.clear(Direction::Read, seen(&source, Direction::Read));
        assert!(source.poll_ready_as(Direction::Read, &wakers[2], &mut keys[2]).is_pending());
        assert_eq!(event(&source, bit::READABLE), 1);
    }

    /// 12.1a: one thread reports events. Two threads wait for these events, one with `poll_ready_as` and one with
    /// `poll_ready`. No wake-up is lost.
    #[test]
    fn no_event_is_lost_between_two_threads() {
        const EVENTS: usize = if cfg!(miri) { 100 } else { 20_000 };
        let source = Arc::new(waiting());
        let data = Arc::new(AtomicUsize::new(0));
        let waits = |by_key: bool| {
            let (source, data) = (Arc::clone(&source), Arc::clone(&data));
            thread::spawn(move || {
                struct Unpark(thread::Thread);
                impl Wake for Unpark {
                    fn wake(self: Arc<Self>) {
                        self.0.unpark();
                    }
                }
                let waker = Waker::from(Arc::new(Unpark(thread::current())));
                let mut key = None;
                // The variable `data` represents the data in the system. The other thread writes the data before it
                // reports the event. Therefore, after an event, this load sees the data of the event.
                while data.load(Ordering::SeqCst) < EVENTS {
                    let polled = if by_key {
                        source.poll_ready_as(Direction::Read, &waker, &mut key)
                    } else {
                        source.poll_ready(Direction::Read, &waker)
                    };
                    match polled {
                        Poll::Pending => thread::park(),
                        Poll::Ready(seen) => {
                            if data.load(Ordering::SeqCst) < EVENTS {
                                // The thread has taken all data. A real operation is in this state after the answer
                                // `WouldBlock`.
                                source.clear(Direction::Read, seen.expect("it does not end"));
                            }
                        }
                    }
                }
            })
        };
        let waiting = [waits(true), waits(false)];
        for _ in 0..EVENTS {
            data.fetch_add(1, Ordering::SeqCst);
            let mut ready = Vec::new();
            source.set(bit::READABLE, &mut ready);
            ready.into_iter().for_each(Waker::wake);
        }
        waiting.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
    }
}

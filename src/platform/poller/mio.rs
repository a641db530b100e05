//! The poller of a runtime with sockets. The poller is built on the crate mio.
//!
//! The file `turn.rs` has the locks around the calls of the system. A thread registers a socket through the registry of
//! mio, which needs none of these locks. mio requests edge-triggered events if the system has such events. After an
//! edge-triggered event, no system call is needed to request the next event of the same socket.
//!
//! The crate `polling` was measured as an alternative. With each of the two pollers, one thread ran a loop that
//! echoed 64 bytes. With edge-triggered events, `polling` needed 1.20 times the CPU time of mio for one connection,
//! and as much CPU time as mio for 50 connections. One-shot events are the default of `polling`. With one-shot
//! events, `polling` needed 1.24 times the CPU time of mio for one connection, and 1.10 times for 50 connections.
//! (Medians of seven interleaved rounds on Linux, with the client of `benches/sockets`.)
//!
//! # Stale events
//!
//! A token consists of the index of a source in the table and a generation. When a source is deregistered, the source
//! is removed from the table. If the system reported an event before the deregistration, the token of this event
//! contains the old generation. So this event does not reach a new source that has the same index or the same
//! descriptor.

use std::io;
use std::task::{Wake, Waker};
use std::time::Duration;

use mio::event::Source as System;
use mio::{Events, Interest, Registry, Token};
use slab::Slab;

use crate::platform::poller::source::{RawDescriptor, Source};
use crate::platform::poller::turn::{Called, Turns};
use crate::platform::poller::{SocketWait, Wait};
use crate::platform::sync::{Arc, Mutex};

/// Maximum number of events that one call takes from the system. Further events stay in the system until the next call.
const EVENTS: usize = 1024;

/// Maximum duration of one wait. After this time, [`Poller::poll`] returns without an event, and its caller waits
/// again. On macOS, a wait of more than 100,000,000 seconds fails. If a wait failed, no thread would wait for the
/// sockets.
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);

/// Number of sources that an inspection reads without releasing the lock of the table.
const VISITED: usize = 256;

/// Token of the event that wakes the thread in the poller.
const WAKE: Token = Token(usize::MAX);

/// Number of low bits of a token that hold the index of a source. The higher bits hold the generation.
const INDEX_BITS: u32 = usize::BITS / 2 + if usize::BITS == 32 { 4 } else { 0 };

/// An empty table keeps its memory only if the memory has room for at most this number of sources.
const KEPT: usize = 1_024;

/// Maximum number of registered sources.
const MOST: usize = (1 << INDEX_BITS) - 1;

#[derive(Debug)]
pub(crate) struct Poller {
    turns: Turns<Epoll>,
    registry: Registry,
    waker: Waker,
    table: Mutex<SourceTable>,
}

/// The poller of the system, and the buffer for its events.
#[derive(Debug)]
struct Epoll {
    poll: mio::Poll,
    events: Events,
}

/// The registered sources.
#[derive(Debug, Default)]
struct SourceTable {
    sources: Slab<Arc<Source>>,
    /// Generation of the next source.
    generation: usize,
    /// This flag is set when the runtime has ended. While the flag is set, each registration fails.
    is_closed: bool,
}

/// Wakes the thread that waits in the poller.
struct Interrupt(mio::Waker);

impl Wake for Interrupt {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The call fails only if the poller is closed. No thread waits in a closed poller.
        let _ = self.0.wake();
    }
}

impl Poller {
    /// Opens the poller of the system.
    ///
    /// # Errors
    /// Returns the error of the system, for example if no descriptor is free.
    pub(crate) fn open() -> io::Result<Self> {
        let poll = mio::Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let waker = Waker::from(Arc::new(Interrupt(mio::Waker::new(&registry, WAKE)?)));
        let turns = Turns::new(Epoll { poll, events: Events::with_capacity(EVENTS) });
        Ok(Self { turns, registry, waker, table: Mutex::default() })
    }

    /// Returns a waker that ends the current wait in the poller. If no thread waits in the poller now, the waker ends
    /// the next wait in the poller.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Ends the current wait in the poller. After this call, each later wait returns immediately. Called when the
    /// scheduler stops.
    pub(crate) fn stop(&self) {
        self.turns.stop();
        self.waker.wake_by_ref();
    }

    /// Takes events from the system. Each event allows some waiting operations to continue. Appends the wakers of these
    /// operations to `ready`, in the order of the events. Returns false if another thread uses the poller, or if the
    /// system returned an error. In both cases, the call has not waited for events.
    pub(crate) fn poll(&self, wait: Wait, ready: &mut Vec<Waker>) -> bool {
        self.turns.call(wait, |Epoll { poll, events }, limit| {
            match poll.poll(events, system_limit(limit)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Called::Interrupted,
                Err(_) => return Called::Failed,
            }
            Called::Events { woken: self.handle_events(events, ready) }
        })
    }

    /// Records the events in their sources. Appends to `ready` the wakers of the operations that can now continue.
    /// Ignores the events of deregistered sources. Returns true if one of the events is a wake-up of the poller.
    fn handle_events(&self, events: &Events, ready: &mut Vec<Waker>) -> bool {
        let (mut table, mut woken) = (None, false);
        for event in events {
            if event.token() == WAKE {
                woken = true;
                continue;
            }
            // This thread holds the lock of the table for the whole batch of events. A thread that registers or
            // deregisters a source may have to wait for this lock. But a batch has at most 1,024 events, and each event
            // takes only a short time.
            if let Some(source) = table.get_or_insert_with(|| self.table.lock()).get(event.token()) {
                source.set_ready(event, ready);
            }
        }
        woken
    }

    /// Checks that sockets can still be registered.
    ///
    /// # Errors
    /// Returns an error if the runtime has ended.
    pub(crate) fn ensure_open(&self) -> io::Result<()> {
        self.table.lock().ensure_open()
    }

    /// Registers a socket, and returns its state. `descriptor` is the number of this socket in the system.
    ///
    /// # Errors
    /// Returns the error of the system. Returns an error if the runtime has ended.
    pub(crate) fn register(&self, system: &mut impl System, descriptor: RawDescriptor) -> io::Result<Arc<Source>> {
        let source = self.table.lock().insert(descriptor)?;
        // The source enters the table before the system knows the socket. So the first event of the socket finds the
        // source.
        let interest = Interest::READABLE | Interest::WRITABLE;
        // `PRIORITY` requests events for urgent data: see `Source::drained`.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let interest = interest | Interest::PRIORITY;
        if let Err(error) = self.registry.register(system, source.token(), interest) {
            self.table.lock().remove(&source);
            return Err(error);
        }
        Ok(source)
    }

    /// Deregisters a socket. From now on, the poller ignores the events of this socket, even if the system has already
    /// reported them.
    pub(crate) fn deregister(&self, system: &mut impl System, source: &Source) {
        // An error means that the system does not know the descriptor, because the descriptor is already closed.
        let _ = self.registry.deregister(system);
        self.table.lock().remove(source);
    }

    /// Number of registered sources.
    pub(crate) fn len(&self) -> usize {
        self.table.lock().sources.len()
    }

    /// Calls `visit` with each operation that waits for a socket. The call reads at most [`VISITED`] sources before it
    /// releases the lock of the table. Therefore an event waits only a short time for the lock. `visit` must not call
    /// user code.
    pub(crate) fn visit_waiters(&self, visit: &mut dyn FnMut(SocketWait<'_>)) {
        let mut first = 0;
        loop {
            let table = self.table.lock();
            if first >= table.sources.capacity() {
                return;
            }
            for at in first..first + VISITED {
                table.sources.get(at).into_iter().for_each(|source| source.visit_waiters(visit));
            }
            first += VISITED;
        }
    }

    /// Closes the poller: all pending and later operations of its sources fail. Returns the wakers of the pending
    /// operations.
    pub(crate) fn close(&self) -> Vec<Waker> {
        let mut table = self.table.lock();
        table.is_closed = true;
        let mut ready = Vec::new();
        for (_, source) in &table.sources {
            source.close(&mut ready);
        }
        ready
    }
}

/// Returns the time limit for a wait of the system.
fn system_limit(limit: Option<Duration>) -> Option<Duration> {
    limit.map(|limit| limit.min(LONGEST_WAIT))
}

impl SourceTable {
    fn ensure_open(&self) -> io::Result<()> {
        if self.is_closed { Err(Source::ended()) } else { Ok(()) }
    }

    fn insert(&mut self, descriptor: RawDescriptor) -> io::Result<Arc<Source>> {
        self.ensure_open()?;
        if self.sources.len() >= MOST {
            return Err(io::Error::other("the runtime has too many sockets"));
        }
        self.generation = self.generation.wrapping_add(1);
        let entry = self.sources.vacant_entry();
        let token = Token(entry.key() | self.generation << INDEX_BITS);
        // The token `WAKE` is reserved for the wake-up of the poller.
        let token = if token == WAKE { Token(entry.key()) } else { token };
        Ok(Arc::clone(entry.insert(Arc::new(Source::new(token, descriptor)))))
    }

    fn get(&self, token: Token) -> Option<&Source> {
        self.sources.get(token.0 & MOST).map(|source| &**source).filter(|source| source.token() == token)
    }

    fn remove(&mut self, source: &Source) {
        if self.get(source.token()).is_some() {
            self.sources.remove(source.token().0 & MOST);
            if self.sources.is_empty() && self.sources.capacity() > KEPT {
                self.sources = Slab::new();
            }
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::net::UdpSocket;
    use std::task::Poll;

    use super::*;
    use crate::platform::poller::source::Direction;
    use crate::platform::sync::thread;

    /// Waker that the test only compares with other wakers.
    struct Nothing;

    impl Wake for Nothing {
        fn wake(self: Arc<Self>) {}
    }

    fn poller() -> Arc<Poller> {
        Arc::new(Poller::open().expect("free descriptors"))
    }

    fn register(poller: &Poller, socket: &mut mio::net::UdpSocket) -> io::Result<Arc<Source>> {
        poller.register(socket, 0)
    }

    fn socket() -> mio::net::UdpSocket {
        mio::net::UdpSocket::bind("127.0.0.1:0".parse().expect("an address")).expect("a free port")
    }

    /// 12.1b, 12.1e: a worker checks the poller for events without blocking. At the same moment, the timekeeper
    /// begins its wait. The timekeeper must still wait in the poller, because no other thread waits for the sockets.
    #[test]
    fn a_check_of_the_poller_does_not_keep_the_timekeeper_from_waiting() {
        let poller = poller();
        let asks = poller.turns.calls.lock();
        let timekeeper = Arc::clone(&poller);
        let timekeeper = thread::spawn(move || timekeeper.poll(Wait::For(None), &mut Vec::new()));
        for _ in 0..10_000 {
            thread::yield_now();
        }
        drop(asks);
        poller.waker().wake_by_ref();
        assert!(timekeeper.join().expect("it does not panic"), "it did not wait");
    }

    /// 12.1b: a call that does not wait may take a wake-up. The next wait of the timekeeper then returns immediately.
    #[test]
    fn the_next_wait_ends_immediately_after_a_call_that_does_not_wait_has_taken_a_wake_up() {
        let poller = poller();
        poller.waker().wake_by_ref();
        assert!(poller.poll(Wait::No, &mut Vec::new()));
        // Without a record of the wake-up, this call would never return.
        assert!(poller.poll(Wait::For(None), &mut Vec::new()));
        assert!(!poller.turns.calls.lock().is_woken);
        poller.waker().wake_by_ref();
        // `Wait::Alone` is the wait of the helper thread. This wait consumes the event of a wake-up. Therefore this
        // call records the wake-up for the timekeeper.
        assert!(poller.poll(Wait::Alone, &mut Vec::new()));
        assert!(poller.turns.calls.lock().is_woken);
        assert!(poller.poll(Wait::For(None), &mut Vec::new()));
        assert!(!poller.turns.calls.lock().is_woken);
    }

    /// 12.1b: the poller shortens a time limit that the system could refuse.
    #[test]
    fn the_time_limit_of_the_system_is_at_most_one_day() {
        for (limit, expected) in [
            (None, None),
            (Some(Duration::ZERO), Some(Duration::ZERO)),
            (Some(Duration::from_nanos(1)), Some(Duration::from_nanos(1))),
            (Some(Duration::from_secs(100_000_001)), Some(LONGEST_WAIT)),
            (Some(Duration::MAX), Some(LONGEST_WAIT)),
        ] {
            assert_eq!(system_limit(limit), expected);
        }
        let poller = poller();
        poller.waker().wake_by_ref();
        assert!(poller.poll(Wait::For(Some(Duration::MAX)), &mut Vec::new()));
    }

    /// 12.4b: while one thread waits in the poller, no second thread waits in the poller. When the scheduler stops, all
    /// waits end.
    #[test]
    fn one_thread_waits_and_a_stop_ends_each_wait() {
        let poller = poller();
        let turn = poller.turns.turn.lock();
        assert!(!poller.poll(Wait::For(None), &mut Vec::new()));
        assert!(poller.poll(Wait::No, &mut Vec::new()));
        let helper = Arc::clone(&poller);
        let helper = thread::spawn(move || helper.poll(Wait::Alone, &mut Vec::new()));
        poller.stop();
        // This thread takes the wake-up of `stop`. In a runtime, a waiting timekeeper may take this wake-up in the same
        // way.
        assert!(poller.poll(Wait::No, &mut Vec::new()));
        poller.turns.calls.lock().is_woken = false;
        drop(turn);
        assert!(helper.join().expect("it does not panic"));
        assert!(poller.poll(Wait::For(None), &mut Vec::new()));
    }

    /// 12.3d: a new source with the same index and the same descriptor gets no event of the removed source.
    #[test]
    fn a_stale_token_finds_no_source() {
        let poller = poller();
        let mut one = socket();
        let former = register(&poller, &mut one).expect("it can be registered");
        poller.deregister(&mut one, &former);
        let source = register(&poller, &mut one).expect("it can be registered again");
        let index = |source: &Source| source.token().0 & MOST;
        assert_eq!(index(&source), index(&former));
        let mut table = poller.table.lock();
        assert!(table.get(former.token()).is_none());
        assert!(table.get(source.token()).is_some());
        // Removing a source a second time has no effect on the new source.
        table.remove(&former);
        assert_eq!(table.sources.len(), 1);
        // Even when the generation wraps around, no source gets the token of the wake-up.
        table.generation = usize::MAX;
        for _ in 0..3 {
            assert_ne!(table.insert(0).expect("there is room").token(), WAKE);
        }
    }

    /// 12.3d: the system reports an event of a socket. Before the event is handled, the socket is deregistered, and a
    /// new source gets the same index and the same descriptor. The event wakes no operation of the new source.
    #[test]
    fn a_stale_event_does_not_reach_a_new_source_with_the_same_index() {
        let poller = poller();
        let (mut one, sender) = (socket(), UdpSocket::bind("127.0.0.1:0").expect("a free port"));
        let former = register(&poller, &mut one).expect("it can be registered");
        sender.send_to(b"x", one.local_addr().expect("an address")).expect("it is sent");
        let mut calls = poller.turns.calls.lock();
        let Epoll { poll, events } = &mut calls.system;
        poll.poll(events, Some(Duration::ZERO)).expect("the system reports its events");
        assert!(events.iter().any(|event| event.token() == former.token() && event.is_readable()));
        poller.deregister(&mut one, &former);
        let source = register(&poller, &mut one).expect("it can be registered again");
        assert_eq!(source.token().0 & MOST, former.token().0 & MOST, "the index differs, so the test shows nothing");
        for direction in [Direction::Read, Direction::Write] {
            let Poll::Ready(Ok(seen)) = source.check(direction) else { panic!("a new source is ready") };
            source.clear(direction, seen);
            assert!(source.poll_ready(direction, Waker::noop()).is_pending());
        }
        let mut ready = Vec::new();
        assert!(!poller.handle_events(events, &mut ready));
        assert_eq!(ready.len(), 0, "the stale event has woken an operation of the new source");
        for direction in [Direction::Read, Direction::Write] {
            assert!(source.check(direction).is_pending(), "the stale event has made the new source ready");
        }
        // The new source gets its own event.
        drop(calls);
        assert!(poller.poll(Wait::No, &mut ready));
        assert_eq!(ready.len(), 2);
        assert!(source.check(Direction::Read).is_ready());
    }

    /// 12.4c: after the end of the runtime, no source can be registered, and the wakers of all sources are returned.
    #[test]
    fn a_closed_poller_fails_all_operations() {
        let poller = poller();
        let mut one = socket();
        let source = register(&poller, &mut one).expect("it can be registered");
        let Poll::Ready(Ok(seen)) = source.check(Direction::Read) else { panic!("a new source is ready") };
        source.clear(Direction::Read, seen);
        assert!(source.poll_ready(Direction::Read, Waker::noop()).is_pending());
        assert_eq!(poller.close().len(), 1);
        assert!(matches!(source.check(Direction::Write), Poll::Ready(Err(_))));
        assert!(register(&poller, &mut socket()).is_err());
        poller.deregister(&mut one, &source);
        assert_eq!(poller.close().len(), 0);
    }

    /// 12.1c: the poller returns the wakers in the order of the events.
    #[test]
    fn the_wakers_come_in_the_order_of_the_events() {
        let poller = poller();
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let mut sockets: Vec<_> = (0..20).map(|_| socket()).collect();
        let sources: Vec<_> =
            sockets.iter_mut().map(|socket| register(&poller, socket).expect("it can be registered")).collect();
        let mut ready = Vec::new();
        // This call takes the events that the registrations have caused.
        assert!(poller.poll(Wait::For(Some(Duration::ZERO)), &mut ready));
        let wakers: Vec<_> = sources
            .iter()
            .map(|source| {
                let Poll::Ready(Ok(seen)) = source.check(Direction::Read) else { panic!("a new source is ready") };
                source.clear(Direction::Read, seen);
                let waker = Waker::from(Arc::new(Nothing));
                assert!(source.poll_ready(Direction::Read, &waker).is_pending());
                waker
            })
            .collect();
        let order = [7, 3, 19, 0, 12];
        for at in order {
            sender.send_to(b"x", sockets[at].local_addr().expect("an address")).expect("it is sent");
        }
        assert!(poller.poll(Wait::No, &mut ready));
        let came: Vec<_> = ready
            .iter()
            .map(|ready| wakers.iter().position(|waker| waker.will_wake(ready)).expect("it is one of them"))
            .collect();
        assert_eq!(came, order);
    }

    /// 9.2b: the inspection visits each waiting operation once, although the inspection reads the sources in several
    /// pieces.
    #[test]
    fn each_operation_that_waits_is_visited_once() {
        const SOCKETS: usize = 2 * VISITED + 3;
        let (poller, waker) = (poller(), Waker::from(Arc::new(Nothing)));
        let mut table = poller.table.lock();
        let sources: Vec<_> =
            (0..SOCKETS).map(|at| table.insert(at as RawDescriptor).expect("there is room")).collect();
        drop(table);
        let mut keys: Vec<_> = sources.iter().map(|_| None).collect();
        for (source, key) in sources.iter().zip(&mut keys) {
            for direction in [Direction::Read, Direction::Write] {
                let Poll::Ready(Ok(seen)) = source.check(direction) else { panic!("a new source is ready") };
                source.clear(direction, seen);
            }
            assert!(source.poll_ready(Direction::Read, &waker).is_pending());
            assert!(source.poll_ready_as(Direction::Write, &waker, key).is_pending());
        }
        let visited = || {
            let mut visited = Vec::new();
            poller.visit_waiters(&mut |SocketWait { waker: found, descriptor, is_write }| {
                assert!(found.will_wake(&waker));
                visited.push((descriptor, is_write));
            });
            visited.sort_unstable();
            visited
        };
        let both = |at| [(at, false), (at, true)];
        assert_eq!(visited(), (0..SOCKETS as u64).flat_map(both).collect::<Vec<_>>());
        sources.iter().zip(&keys).for_each(|(source, key)| source.forget(key.as_ref().expect("it waits")));
        assert_eq!(visited(), (0..SOCKETS as u64).map(|at| (at, false)).collect::<Vec<_>>());
    }
}

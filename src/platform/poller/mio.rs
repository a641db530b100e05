//! The poller of a runtime with sockets, on mio.
//!
//! One thread at a time waits in the poller: it holds `turn`. A thread that only asks, without waiting, holds the lock of
//! `system` for a short time. All other threads use the registry, which mio shares with them. mio requests edge-triggered
//! events where the system has them, so an event costs no system call to re-arm the descriptor.
//!
//! # Lost wake-ups
//!
//! Two locks are needed. With one lock, the timekeeper could find the lock held by a worker that only asks, and park
//! outside the poller. No thread would then wait for the sockets.
//!
//! The system reports a wake-up to one call only. If this call only asks, it records the wake-up for the thread that
//! waits next: this thread may have checked for wake-ups before.
//!
//! # Stale events
//!
//! A token consists of the index of a source in the table and a generation. A source that is deregistered leaves the
//! table. An event that the system reported before names the old generation, so it does not reach a new source with the
//! same index or the same descriptor.

use std::io;
use std::task::{Wake, Waker};
use std::time::Duration;

use mio::event::Source as System;
use mio::{Events, Interest, Registry, Token};
use slab::Slab;

use crate::platform::poller::Wait;
use crate::platform::poller::source::Source;
use crate::platform::sync::atomic::{AtomicBool, Ordering};
use crate::platform::sync::{Arc, Mutex};

/// Maximum number of events that one call takes from the system. Further events remain there for the next call.
const EVENTS: usize = 1024;

/// Token of the wake-up of the thread that waits.
const WAKE: Token = Token(usize::MAX);

/// Number of low bits of a token that hold the index of a source. The generation is above them.
const INDEX_BITS: u32 = usize::BITS / 2 + if usize::BITS == 32 { 4 } else { 0 };

/// Maximum number of registered sources.
const MOST: usize = (1 << INDEX_BITS) - 1;

#[derive(Debug)]
pub(crate) struct Poller {
    /// Held by the thread that waits.
    turn: Mutex<()>,
    system: Mutex<Calls>,
    /// Set when the scheduler stops. From then on, no call waits.
    is_stopped: AtomicBool,
    registry: Registry,
    waker: Waker,
    table: Mutex<Table>,
}

/// What a call of the system needs.
#[derive(Debug)]
struct Calls {
    poll: mio::Poll,
    events: Events,
    /// A call that did not wait has taken a wake-up.
    is_woken: bool,
}

/// The registered sources.
#[derive(Debug, Default)]
struct Table {
    sources: Slab<Arc<Source>>,
    /// Generation of the next source.
    generation: usize,
    /// Set when the runtime has ended. Later registrations fail.
    is_closed: bool,
}

/// Wakes the thread that waits in the poller.
struct Interrupt(mio::Waker);

impl Wake for Interrupt {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The write fails only if the poller is closed. Then no thread waits in it.
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
        let system = Mutex::new(Calls { poll, events: Events::with_capacity(EVENTS), is_woken: false });
        let is_stopped = AtomicBool::new(false);
        Ok(Self { turn: Mutex::default(), system, is_stopped, registry, waker, table: Mutex::default() })
    }

    /// Returns a waker that ends the present or the next wait in the poller.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Ends the present wait, and all later waits immediately. Called when the scheduler stops.
    pub(crate) fn stop(&self) {
        // A thread that waits has read the flag before its wait, and this wake-up ends its wait. No other call can take the
        // wake-up, because this thread holds the lock of the calls.
        self.is_stopped.store(true, Ordering::SeqCst);
        self.waker.wake_by_ref();
    }

    /// Takes events from the system, and appends the wakers of the operations that can go on to `ready`, in the order of
    /// the events. Returns false if another thread uses the poller, or if the system returned an error. In both cases
    /// the call has not waited.
    pub(crate) fn poll(&self, wait: Wait, ready: &mut Vec<Waker>) -> bool {
        let _turn = match wait {
            Wait::No => None,
            Wait::For(_) => match self.turn.try_lock() {
                Some(turn) => Some(turn),
                None => return false,
            },
            Wait::Alone => Some(self.turn.lock()),
        };
        let (guard, limit) = match wait {
            Wait::No => (self.system.try_lock(), Some(Duration::ZERO)),
            // A thread that does not wait may hold this lock, but only for a short time.
            Wait::For(limit) => (Some(self.system.lock()), limit),
            Wait::Alone => (Some(self.system.lock()), None),
        };
        let Some(mut calls) = guard else { return false };
        let waits = wait != Wait::No;
        let is_over = waits && (std::mem::take(&mut calls.is_woken) || self.is_stopped.load(Ordering::SeqCst));
        let Calls { poll, events, is_woken } = &mut *calls;
        match poll.poll(events, if is_over { Some(Duration::ZERO) } else { limit }) {
            Ok(()) => {}
            // A signal interrupted the wait. The caller checks for work and waits again.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return true,
            Err(_) => return false,
        }
        let mut table = None;
        for event in &*events {
            if event.token() == WAKE {
                *is_woken = !waits;
                continue;
            }
            // The lock of the table is held for the whole batch. A thread that registers or deregisters a source waits
            // for at most 1,024 short steps.
            if let Some(source) = table.get_or_insert_with(|| self.table.lock()).get(event.token()) {
                source.set_ready(event, ready);
            }
        }
        true
    }

    /// Registers a socket, and returns its state.
    ///
    /// # Errors
    /// Returns the error of the system. Returns an error if the runtime has ended.
    pub(crate) fn register(&self, system: &mut impl System) -> io::Result<Arc<Source>> {
        let source = self.table.lock().insert()?;
        // The source is in the table before the system knows the socket, so that the first event finds it.
        let interest = Interest::READABLE | Interest::WRITABLE;
        // Events of urgent data, see `Source::drained`.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let interest = interest | Interest::PRIORITY;
        if let Err(error) = self.registry.register(system, source.token(), interest) {
            self.table.lock().remove(&source);
            return Err(error);
        }
        Ok(source)
    }

    /// Deregisters a socket. An event that the system has reported but no thread has handled is ignored.
    pub(crate) fn deregister(&self, system: &mut impl System, source: &Source) {
        // An error means that the system does not know the descriptor any more: it was closed.
        let _ = self.registry.deregister(system);
        self.table.lock().remove(source);
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

impl Table {
    fn insert(&mut self) -> io::Result<Arc<Source>> {
        if self.is_closed {
            return Err(Source::ended());
        }
        if self.sources.len() >= MOST {
            return Err(io::Error::other("the runtime has too many sockets"));
        }
        self.generation = self.generation.wrapping_add(1);
        let entry = self.sources.vacant_entry();
        let token = Token(entry.key() | self.generation << INDEX_BITS);
        // This token belongs to the poller itself.
        let token = if token == WAKE { Token(entry.key()) } else { token };
        Ok(Arc::clone(entry.insert(Arc::new(Source::new(token)))))
    }

    fn get(&self, token: Token) -> Option<&Source> {
        self.sources.get(token.0 & MOST).map(|source| &**source).filter(|source| source.token() == token)
    }

    fn remove(&mut self, source: &Source) {
        if self.get(source.token()).is_some() {
            self.sources.remove(source.token().0 & MOST);
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

    /// Waker that is only compared.
    struct Nothing;

    impl Wake for Nothing {
        fn wake(self: Arc<Self>) {}
    }

    fn poller() -> Arc<Poller> {
        Arc::new(Poller::open().expect("free descriptors"))
    }

    fn socket() -> mio::net::UdpSocket {
        mio::net::UdpSocket::bind("127.0.0.1:0".parse().expect("an address")).expect("a free port")
    }

    /// 12.1b, 12.1e: a worker asks the poller just when the timekeeper goes to wait there. The timekeeper must wait in the poller
    /// nevertheless: no other thread would wait for the sockets.
    #[test]
    fn a_call_that_asks_does_not_send_the_timekeeper_away() {
        let poller = poller();
        let asks = poller.system.lock();
        let timekeeper = Arc::clone(&poller);
        let timekeeper = thread::spawn(move || timekeeper.poll(Wait::For(None), &mut Vec::new()));
        for _ in 0..10_000 {
            thread::yield_now();
        }
        drop(asks);
        poller.waker().wake_by_ref();
        assert!(timekeeper.join().expect("it does not panic"), "it did not wait");
    }

    /// 12.1b: a wake-up that a call takes which only asks ends the next wait.
    #[test]
    fn a_call_that_asks_leaves_the_wake_up_to_the_thread_that_waits() {
        let poller = poller();
        poller.waker().wake_by_ref();
        assert!(poller.poll(Wait::No, &mut Vec::new()));
        // Without a record of the wake-up, this call would never return.
        assert!(poller.poll(Wait::For(None), &mut Vec::new()));
        assert!(!poller.system.lock().is_woken);
        poller.waker().wake_by_ref();
        assert!(poller.poll(Wait::Alone, &mut Vec::new()));
        assert!(!poller.system.lock().is_woken);
    }

    /// 12.4b: while a thread waits, a second thread does not. The stop of the scheduler ends all waits.
    #[test]
    fn one_thread_waits_and_a_stop_ends_each_wait() {
        let poller = poller();
        let turn = poller.turn.lock();
        assert!(!poller.poll(Wait::For(None), &mut Vec::new()));
        assert!(poller.poll(Wait::No, &mut Vec::new()));
        let helper = Arc::clone(&poller);
        let helper = thread::spawn(move || helper.poll(Wait::Alone, &mut Vec::new()));
        poller.stop();
        // This thread takes the wake-up of `stop`, as a timekeeper that waits may do.
        assert!(poller.poll(Wait::No, &mut Vec::new()));
        poller.system.lock().is_woken = false;
        drop(turn);
        assert!(helper.join().expect("it does not panic"));
        assert!(poller.poll(Wait::For(None), &mut Vec::new()));
    }

    /// 12.3d: a source with the same index and the same descriptor gets no event of its predecessor.
    #[test]
    fn a_stale_token_finds_no_source() {
        let poller = poller();
        let mut one = socket();
        let former = poller.register(&mut one).expect("it can be registered");
        poller.deregister(&mut one, &former);
        let source = poller.register(&mut one).expect("it can be registered again");
        let index = |source: &Source| source.token().0 & MOST;
        assert_eq!(index(&source), index(&former));
        let mut table = poller.table.lock();
        assert!(table.get(former.token()).is_none());
        assert!(table.get(source.token()).is_some());
        // A source that was removed is removed once.
        table.remove(&former);
        assert_eq!(table.sources.len(), 1);
        // The generation wraps, and no token is that of the poller itself.
        table.generation = usize::MAX;
        for _ in 0..3 {
            assert_ne!(table.insert().expect("there is room").token(), WAKE);
        }
    }

    /// 12.4c: after the end of the runtime, no source can be registered, and the wakers of all sources are returned.
    #[test]
    fn a_closed_poller_fails_all_operations() {
        let poller = poller();
        let mut one = socket();
        let source = poller.register(&mut one).expect("it can be registered");
        let Poll::Ready(Ok(seen)) = source.check(Direction::Read) else { panic!("a new source is ready") };
        source.clear(Direction::Read, seen);
        assert!(source.poll_ready(Direction::Read, Waker::noop()).is_pending());
        assert_eq!(poller.close().len(), 1);
        assert!(matches!(source.check(Direction::Write), Poll::Ready(Err(_))));
        assert!(poller.register(&mut socket()).is_err());
        poller.deregister(&mut one, &source);
        assert_eq!(poller.close().len(), 0);
    }

    /// 12.1c: the wakers come in the order of the events.
    #[test]
    fn the_wakers_come_in_the_order_of_the_events() {
        let poller = poller();
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let mut sockets: Vec<_> = (0..20).map(|_| socket()).collect();
        let sources: Vec<_> =
            sockets.iter_mut().map(|socket| poller.register(socket).expect("it can be registered")).collect();
        let mut ready = Vec::new();
        // The events of the registrations.
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
}

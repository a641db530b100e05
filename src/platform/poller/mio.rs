//! The poller of a runtime with sockets, on mio.
//!
//! One thread at a time waits in the poller: it holds the lock of `poll`. All other threads use the registry, which mio
//! shares with them. mio requests edge-triggered events where the system has them, so an event costs no system call to
//! re-arm the descriptor.
//!
//! # Stale events
//!
//! A token consists of the index of a source in the table and a generation. A source that is deregistered leaves the
//! table. An event that the system reported before names the old generation, so it does not reach a new source with the
//! same index or the same descriptor.

use std::io;
use std::task::{Wake, Waker};

use mio::event::Source as System;
use mio::{Events, Interest, Poll, Registry, Token};
use slab::Slab;

use crate::platform::poller::Wait;
use crate::platform::poller::source::Source;
use crate::platform::sync::atomic::{AtomicBool, Ordering};
use crate::platform::sync::{Arc, Mutex, MutexGuard, thread};

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
    poll: Mutex<(Poll, Events)>,
    /// A helper thread waits in the poller, or is about to.
    has_helper: AtomicBool,
    registry: Registry,
    interrupt: Arc<Interrupt>,
    waker: Waker,
    table: Mutex<Table>,
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
#[derive(Debug)]
struct Interrupt {
    /// Set before the system is told. A thread that asks the poller without waiting may take the event of the system. This
    /// flag remains set then, so the next thread that wants to wait sees it.
    is_woken: AtomicBool,
    system: mio::Waker,
}

impl Wake for Interrupt {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        // The write fails only if the poller is closed. Then no thread waits in it.
        let _ = self.system.wake();
    }
}

impl Poller {
    /// Opens the poller of the system.
    ///
    /// # Errors
    /// Returns the error of the system, for example if no descriptor is free.
    pub(crate) fn open() -> io::Result<Self> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let system = mio::Waker::new(&registry, WAKE)?;
        let interrupt = Arc::new(Interrupt { is_woken: AtomicBool::new(false), system });
        let waker = Waker::from(Arc::clone(&interrupt));
        let poll = Mutex::new((poll, Events::with_capacity(EVENTS)));
        Ok(Self { poll, has_helper: AtomicBool::new(false), registry, interrupt, waker, table: Mutex::default() })
    }

    /// Returns a waker that ends the present or the next wait in the poller.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Takes events from the system, and appends the wakers of the operations that can go on to `ready`, in the order of
    /// the events. Returns false if another thread uses the poller, or if the system returned an error. In both cases
    /// the call has not waited.
    pub(crate) fn poll(&self, wait: Wait, ready: &mut Vec<Waker>) -> bool {
        let (guard, time) = match wait {
            Wait::No => (self.poll.try_lock(), Some(std::time::Duration::ZERO)),
            Wait::For(time) => (self.lock_unless_helped(), time),
            Wait::Alone => {
                self.has_helper.store(true, Ordering::SeqCst);
                (Some(self.poll.lock()), None)
            }
        };
        let Some(mut guard) = guard else { return false };
        let (poll, events) = &mut *guard;
        // This thread holds the lock. So no other thread takes the event of a wake-up that comes after the swap, and such a
        // wake-up ends the wait.
        let is_woken = wait != Wait::No && self.interrupt.is_woken.swap(false, Ordering::SeqCst);
        let time = if is_woken { Some(std::time::Duration::ZERO) } else { time };
        match poll.poll(events, time) {
            Ok(()) => {}
            // A signal interrupted the wait. The caller checks for work and waits again.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return true,
            Err(_) => return false,
        }
        let mut woken = events.iter().filter(|event| event.token() != WAKE).peekable();
        if woken.peek().is_some() {
            // The lock of the table is held for the whole batch. A thread that registers or deregisters a source waits
            // for at most 1,024 short steps.
            let table = self.table.lock();
            for event in woken {
                if let Some(source) = table.get(event.token()) {
                    source.set_ready(event, ready);
                }
            }
        }
        true
    }

    /// Locks the poller for the timekeeper. Returns `None` if there is a helper thread.
    ///
    /// Without a helper thread, the holder of the lock asks the poller without waiting, so it releases the lock soon. The
    /// timekeeper must not give up then: the holder parks outside the poller next, and no thread would wait in it.
    fn lock_unless_helped(&self) -> Option<MutexGuard<'_, (Poll, Events)>> {
        loop {
            if let Some(guard) = self.poll.try_lock() {
                return Some(guard);
            }
            if self.has_helper.load(Ordering::SeqCst) {
                return None;
            }
            thread::yield_now();
        }
    }

    /// Registers a socket, and returns its state.
    ///
    /// # Errors
    /// Returns the error of the system. Returns an error if the runtime has ended.
    pub(crate) fn register(&self, system: &mut impl System) -> io::Result<Arc<Source>> {
        let source = self.table.lock().insert()?;
        // The source is in the table before the system knows the socket, so that the first event finds it.
        let interest = Interest::READABLE | Interest::WRITABLE;
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

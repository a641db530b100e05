//! Finds the poller with which a new socket is registered. If a simulated network is added to the crate, this file will
//! choose between the simulated network and the poller.

use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::host::{Host, WeakHost};
use crate::platform::poller::Poller;
use crate::platform::sync::Arc;
use crate::process::state::current::Current;
use crate::runtime::enqueue::Threads;

/// The runtime of a socket.
#[derive(Debug, Clone)]
pub(crate) struct Backend {
    threads: Arc<Threads>,
}

impl Backend {
    /// Returns the backend of the calling thread's runtime.
    ///
    /// # Errors
    /// Returns an error in a simulation, and on a thread without a runtime.
    pub(crate) fn current() -> io::Result<Self> {
        if Current::with(|current| current.simulation.get()) != 0 {
            return Err(simulated());
        }
        match Threads::here() {
            Some(threads) => Ok(Self { threads }),
            None => Err(io::Error::other(
                "there is no runtime on this thread: create the socket inside a process or inside `Runtime::block_on`, \
                 or pass the host to the function with the suffix `_in`",
            )),
        }
    }

    /// Returns the backend of the runtime of `host`.
    ///
    /// # Errors
    /// Returns an error if the host belongs to a simulation.
    pub(crate) fn of(host: &Host) -> io::Result<Self> {
        let threads = Arc::clone(&host.shared().place).downcast().map_err(|_| simulated())?;
        Ok(Self { threads })
    }

    /// Returns the poller. The first socket of a runtime opens the poller.
    ///
    /// # Errors
    /// Returns the error of the system if the poller cannot be opened.
    pub(crate) fn poller(&self) -> io::Result<&Arc<Poller>> {
        self.threads.open_poller(Poller::open)
    }

    /// Checks that the runtime can register a new socket. A function makes this check before a system call that creates
    /// a file or opens a connection. If the check fails, the function does not make the system call.
    ///
    /// # Errors
    /// Returns the error of the system if the poller cannot be opened. Returns an error if the runtime has ended.
    pub(crate) fn ensure_open(&self) -> io::Result<()> {
        self.poller()?.ensure_open()
    }

    /// Returns the host of the runtime.
    ///
    /// # Errors
    /// Returns an error if the runtime was dropped.
    pub(crate) fn host(&self) -> io::Result<Host> {
        let host = self.threads.owner::<WeakHost>().and_then(WeakHost::upgrade);
        host.ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, "the runtime has shut down"))
    }

    /// Ensures that a thread waits in the poller. Each operation calls this function before the operation waits. A
    /// worker itself waits in the poller. In two cases, the calling thread does not wait in the poller, so another
    /// thread must wait there:
    /// - The thread is outside the runtime. Such a thread runs no tasks of the runtime.
    /// - The step of the worker was handed over. The step may block this thread until the socket is ready.
    ///
    /// # Errors
    /// Returns the error of the system if a helper thread is needed and cannot be started.
    pub(crate) fn will_wait(&self) -> io::Result<()> {
        // If the system cannot start a thread, the system often returns `WouldBlock`. A future of a socket must never
        // return this kind of error. For an adapter, this error could mean that the socket is not ready.
        let refused = |error| io::Error::other(format!("the thread that waits for the sockets cannot start: {error}"));
        match self.threads.is_handed_over_here() {
            Some(false) => Ok(()),
            Some(true) => self.threads.ensure_poll_thread_beside_blocked_step().map_err(refused),
            None => self.threads.ensure_poll_thread().map_err(refused),
        }
    }
}

/// A panic in an operation leaves the backend in a valid state. The reason is that the scheduler catches the panics of
/// user code and calls no user code under a lock.
impl UnwindSafe for Backend {}
impl RefUnwindSafe for Backend {}

fn simulated() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "a simulation has no network: use a handler or a message in place of a socket",
    )
}

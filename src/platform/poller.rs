//! The poller: waits until sockets are ready, and collects the wakers of the operations that wait for these sockets.
//!
//! An idle worker of the scheduler waits in the poller instead of parking its thread. Between two tasks, a worker can
//! check the poller for events without waiting. The poller calls no waker. The poller returns the wakers to its
//! caller, in the order in which the system reported the events.
//!
//! With the feature `net`, the poller uses the crate mio (epoll, kqueue, IOCP). Under loom, the poller is a model that
//! does not call the operating system. In a build without sockets there is no poller: the type `Poller` has no value,
//! so the compiler removes the code that uses this type.

#[cfg(all(feature = "net", not(any(procession_loom, procession_shuttle))))]
mod mio;
#[cfg(procession_loom)]
pub(crate) mod model;
#[cfg(all(feature = "net", not(any(procession_loom, procession_shuttle))))]
pub(crate) mod source;
#[cfg(any(procession_loom, all(feature = "net", not(procession_shuttle))))]
mod turn;
#[cfg(all(unix, any(feature = "net", feature = "console")))]
pub(crate) mod unix_accept;

use std::task::Waker;
use std::time::Duration;

#[cfg(all(feature = "net", not(any(procession_loom, procession_shuttle))))]
pub(crate) use crate::platform::poller::mio::Poller;
#[cfg(procession_loom)]
pub(crate) use crate::platform::poller::model::ModelPoller as Poller;
#[cfg(not(any(procession_loom, all(feature = "net", not(procession_shuttle)))))]
pub(crate) use NoPoller as Poller;

/// Specifies whether a call of `Poller::poll` waits, and the maximum time of the wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The call returns immediately, even if another thread uses the poller.
    No,
    /// The call waits until a source is ready, the poller is woken, or the time limit has passed. `None` means no time
    /// limit. If another thread waits in the poller, the call returns immediately. If another thread is in a call with
    /// `Wait::No`, this call first waits until that call has returned.
    For(Option<Duration>),
    /// Like `For(None)`. However, if another thread waits in the poller, the call first waits until this thread has
    /// left the poller.
    Alone,
}

/// An operation that waits until a socket is ready. For inspection only.
pub(crate) struct SocketWait<'a> {
    /// Waker of the task that has polled the operation.
    pub(crate) waker: &'a Waker,
    /// The number by which the system identifies the descriptor or the socket.
    pub(crate) descriptor: u64,
    /// True if the operation waits until the socket is writable. False if the operation waits until the socket can be
    /// read or can accept a connection.
    pub(crate) is_write: bool,
}

/// Poller of a build without sockets. This type has no value.
#[cfg(not(any(procession_loom, all(feature = "net", not(procession_shuttle)))))]
#[derive(Debug)]
pub(crate) enum NoPoller {}

#[cfg(not(any(procession_loom, all(feature = "net", not(procession_shuttle)))))]
impl NoPoller {
    pub(crate) fn poll(&self, _: Wait, _: &mut Vec<Waker>) -> bool {
        match *self {}
    }

    pub(crate) fn waker(&self) -> &Waker {
        match *self {}
    }

    pub(crate) fn stop(&self) {
        match *self {}
    }

    pub(crate) fn len(&self) -> usize {
        match *self {}
    }

    pub(crate) fn visit_waiters(&self, _: &mut dyn FnMut(SocketWait<'_>)) {
        match *self {}
    }

    pub(crate) fn close(&self) -> Vec<Waker> {
        match *self {}
    }
}

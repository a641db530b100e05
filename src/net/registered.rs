//! A socket that is registered with the poller of a runtime, and the operations on this socket.

use std::future::poll_fn;
use std::io::{self, IoSlice};
#[cfg(unix)]
use std::os::fd::AsRawFd as AsRawDescriptor;
#[cfg(windows)]
use std::os::windows::io::AsRawSocket as AsRawDescriptor;
use std::task::{Context, Poll, Waker, ready};

use crate::net::backend::Backend;
use crate::net::system::SystemSocket;
use crate::platform::poller::source::{Direction, RawDescriptor, Seen, Source, WaiterKey};
use crate::platform::sync::Arc;
use crate::platform::sync::atomic::{AtomicBool, Ordering};
use crate::process::state::budget::{BudgetPause, refund_if_pending};

/// Whether a short TCP read (a read that fills only a part of the buffer) shows that the system has no more data now.
/// If this constant is true, the first read after a short read waits for an event before it calls the system. With
/// edge-triggered events, a short read means that the system has no more data. The exception is a read that ends
/// before urgent data. Only epoll reports urgent data as an event, so this constant is true only for systems with
/// epoll.
const SHORT_READ_MEANS_EMPTY: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// Whether a short write (a write of only a part of the buffer) shows that the send buffer of the system is full.
const SHORT_WRITE_MEANS_FULL: bool = cfg!(any(
    target_os = "linux",
    target_os = "android",
    target_os = "macos",
    target_os = "ios",
    target_os = "freebsd",
    target_os = "netbsd",
    target_os = "openbsd",
    target_os = "dragonfly"
));

/// A socket and its state in the poller. Dropping this value deregisters and closes the socket.
#[derive(Debug)]
pub(crate) struct Registered<S: SystemSocket> {
    /// `None` after `into_inner`.
    io: Option<S>,
    source: Arc<Source>,
    backend: Backend,
    /// One value for each direction. The value is true if the last call of a `poll_…` function has paused because the
    /// budget was spent.
    has_paused: [AtomicBool; 2],
}

/// Returns the descriptor of the socket as a number. On Windows, returns the handle.
fn raw_descriptor(io: &impl AsRawDescriptor) -> RawDescriptor {
    #[cfg(unix)]
    return io.as_raw_fd();
    #[cfg(windows)]
    return io.as_raw_socket();
}

/// A sequence of operations on a socket. Several values of this type can wait for one direction. In contrast, only one
/// caller of the `poll_…` functions of [`Registered`] can wait for one direction.
pub(crate) struct Operations<'a, S: SystemSocket> {
    socket: &'a Registered<S>,
    waiter: Waiter<'a>,
    pause: BudgetPause,
}

impl<'a, S: SystemSocket> Operations<'a, S> {
    pub(crate) fn new(socket: &'a Registered<S>) -> Self {
        Self { socket, waiter: Waiter { source: &socket.source, key: None }, pause: BudgetPause::default() }
    }

    /// Polls an operation, as [`Registered::poll_op`] does.
    pub(crate) fn poll<R>(
        &mut self,
        direction: Direction,
        cx: &mut Context<'_>,
        mut op: impl FnMut(&S) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        let Self { socket, waiter, pause } = self;
        pause.poll(cx, |cx| {
            socket.poll_with(
                direction,
                || socket.source.poll_ready_as(direction, cx.waker(), &mut waiter.key),
                |io| op(io).map(|result| (result, false)),
            )
        })
    }
}

/// Guard of a waiting future. The drop of the guard removes the waker of this future from the source.
struct Waiter<'a> {
    source: &'a Source,
    key: Option<WaiterKey>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(key) = &self.key {
            self.source.forget(key);
        }
    }
}

impl<S: SystemSocket> Registered<S> {
    /// Registers a non-blocking socket.
    ///
    /// # Errors
    /// Returns the error of the system. If the registration fails, the socket is closed.
    pub(crate) fn new(mut io: S, backend: Backend) -> io::Result<Self>
    where
        S: AsRawDescriptor,
    {
        let descriptor = raw_descriptor(&io);
        let source = backend.poller()?.register(&mut io, descriptor)?;
        Ok(Self { io: Some(io), source, backend, has_paused: [AtomicBool::new(false), AtomicBool::new(false)] })
    }

    /// Returns the socket.
    pub(crate) fn io(&self) -> &S {
        self.io.as_ref().expect("only `into_inner` takes it")
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.backend
    }

    /// Returns whether the runtime has ended. Then each operation fails.
    pub(crate) fn has_ended(&self) -> bool {
        self.source.has_ended()
    }

    /// Returns whether the direction is marked as closed: see [`Source::is_closed`].
    #[cfg(unix)]
    pub(crate) fn is_closed(&self, direction: Direction) -> bool {
        self.source.is_closed(direction)
    }

    /// Deregisters the socket and returns the socket.
    pub(crate) fn into_inner(mut self) -> S {
        self.deregister().expect("only this function takes it")
    }

    fn deregister(&mut self) -> Option<S> {
        let mut io = self.io.take()?;
        if let Ok(poller) = self.backend.poller() {
            poller.deregister(&mut io, &self.source);
        }
        Some(io)
    }

    /// Polls an operation: calls `op` until `op` returns anything other than `WouldBlock`. After a `WouldBlock`, this
    /// function calls `op` again only after an event has arrived. For each direction, the source stores only one
    /// waker of this function: a new waker replaces the previous waker.
    pub(crate) fn poll_op<R>(
        &self,
        direction: Direction,
        cx: &mut Context<'_>,
        mut op: impl FnMut(&S) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        let is_taken = ready!(self.spend(direction, cx));
        let polled = self.poll_with(
            direction,
            || self.source.poll_ready(direction, cx.waker()),
            |io| op(io).map(|result| (result, false)),
        );
        refund_if_pending(is_taken, &polled);
        polled
    }

    /// Polls `op`, as [`poll_op`](Self::poll_op) does. `op` may change the socket, but must not replace the socket.
    #[cfg(unix)]
    pub(crate) fn poll_op_mut<R>(
        &mut self,
        direction: Direction,
        cx: &mut Context<'_>,
        mut op: impl FnMut(&mut S) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        let is_taken = ready!(self.spend(direction, cx));
        let Self { io, source, backend, .. } = self;
        let io = io.as_mut().expect("only `into_inner` takes it");
        let poll_ready = || source.poll_ready(direction, cx.waker());
        let polled = poll_with(source, backend, direction, poll_ready, || op(io).map(|result| (result, false)));
        refund_if_pending(is_taken, &polled);
        polled
    }

    /// Returns the socket. The caller must not replace the socket.
    #[cfg(unix)]
    pub(crate) fn io_mut(&mut self) -> &mut S {
        self.io.as_mut().expect("only `into_inner` takes it")
    }

    /// Polls `op`, as [`poll_op`](Self::poll_op) does. `op` must be one of two operations: a write of `size` bytes to a
    /// stream, or a read from a TCP stream into a buffer of `size` bytes. `op` returns the number of bytes that it has
    /// transferred.
    ///
    /// A read on a Unix socket must use `poll_op`. A read on a Unix socket can end early, because the read ends after a
    /// message that contains descriptors. After a read that has ended early, the socket may still have bytes.
    pub(crate) fn poll_transfer(
        &self,
        direction: Direction,
        cx: &mut Context<'_>,
        size: usize,
        mut op: impl FnMut(&S) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let is_taken = ready!(self.spend(direction, cx));
        let short_means_unready = match direction {
            Direction::Read => SHORT_READ_MEANS_EMPTY,
            Direction::Write => SHORT_WRITE_MEANS_FULL,
        };
        let polled = self.poll_with(
            direction,
            || self.source.poll_ready(direction, cx.waker()),
            |io| op(io).map(|count| (count, short_means_unready && 0 < count && count < size)),
        );
        refund_if_pending(is_taken, &polled);
        polled
    }

    /// Takes one unit from the budget for a `poll_…` function, as [`BudgetPause::spend`] does. A `poll_…` function has
    /// no future that could store the pause, so the socket stores the pause.
    fn spend(&self, direction: Direction, cx: &Context<'_>) -> Poll<bool> {
        let has_paused = &self.has_paused[direction as usize];
        let before = has_paused.load(Ordering::Relaxed);
        let mut pause = BudgetPause::new(before);
        let spent = pause.spend(cx);
        if pause.is_over() != before {
            has_paused.store(pause.is_over(), Ordering::Relaxed);
        }
        spent
    }

    /// Waits until `op` returns anything other than `WouldBlock`. Several futures can wait for one direction.
    ///
    /// # Cancel safety
    /// Cancel safe if `op` has no effect when it returns `WouldBlock`.
    pub(crate) async fn op<R>(&self, direction: Direction, mut op: impl FnMut(&S) -> io::Result<R>) -> io::Result<R> {
        let mut operations = Operations::new(self);
        poll_fn(move |cx| operations.poll(direction, cx, &mut op)).await
    }

    /// Calls `op` once, without waiting.
    ///
    /// # Errors
    /// Returns the error of `op`. If this error is `WouldBlock`, each later operation waits for an event before the
    /// operation calls the system.
    pub(crate) fn try_op<R>(&self, direction: Direction, op: impl FnOnce(&S) -> io::Result<R>) -> io::Result<R> {
        let Poll::Ready(seen) = self.source.check(direction) else {
            // The caller may repeat this call in a loop. Without a thread in the poller, no event would arrive.
            self.backend.will_wait()?;
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let seen = seen?;
        op(self.io()).inspect_err(|error| {
            if error.kind() == io::ErrorKind::WouldBlock {
                self.source.clear(direction, seen);
            }
        })
    }

    /// Waits until the socket is ready in this direction. When the future completes, the socket may already be unready
    /// again.
    pub(crate) async fn ready(&self, direction: Direction) -> io::Result<()> {
        self.ready_by(|waker, key| self.source.poll_ready_as(direction, waker, key)).await
    }

    /// Like [`ready`](Self::ready), but a new socket is not ready before its first event.
    #[cfg(unix)]
    pub(crate) async fn reported(&self, direction: Direction) -> io::Result<()> {
        self.ready_by(|waker, key| self.source.poll_reported_as(direction, waker, key)).await
    }

    /// Marks the direction as not ready until its next event: see [`Source::clear_present`].
    #[cfg(unix)]
    pub(crate) fn clear(&self, direction: Direction) {
        self.source.clear_present(direction);
    }

    /// Waits until `poll_ready` returns `Ready`. If `poll_ready` returns `Pending`, `poll_ready` has registered the
    /// waker of the caller.
    async fn ready_by(
        &self,
        poll_ready: impl Fn(&Waker, &mut Option<WaiterKey>) -> Poll<io::Result<Seen>>,
    ) -> io::Result<()> {
        let mut waiter = Waiter { source: &self.source, key: None };
        // Without the budget, a loop of `readable` and `try_read` would not let other processes run while data arrives.
        let mut pause = BudgetPause::default();
        poll_fn(move |cx| {
            // The closure must own the whole guard. If the closure owned only a copy of the key, the key in the guard
            // would stay `None`. Then the drop of the guard would remove no waker.
            let waiter = &mut waiter;
            pause.poll(cx, |cx| match poll_ready(cx.waker(), &mut waiter.key) {
                Poll::Ready(seen) => Poll::Ready(seen.map(drop)),
                Poll::Pending => self.pending(),
            })
        })
        .await
    }

    fn poll_with<R>(
        &self,
        direction: Direction,
        poll_ready: impl FnMut() -> Poll<io::Result<Seen>>,
        mut op: impl FnMut(&S) -> io::Result<(R, bool)>,
    ) -> Poll<io::Result<R>> {
        poll_with(&self.source, &self.backend, direction, poll_ready, || op(self.io()))
    }

    /// Returns `Pending`, and ensures that a thread waits in the poller. The caller has already registered its waker.
    fn pending<R>(&self) -> Poll<io::Result<R>> {
        pending(&self.backend)
    }
}

/// Calls `op` until `op` returns anything other than `WouldBlock`. `poll_ready` registers the waker of the caller.
///
/// The second value that `op` returns is true if a short transfer shows that the socket is not ready now: a read has
/// drained the socket, or a write has filled its send buffer.
fn poll_with<R>(
    source: &Source,
    backend: &Backend,
    direction: Direction,
    mut poll_ready: impl FnMut() -> Poll<io::Result<Seen>>,
    mut op: impl FnMut() -> io::Result<(R, bool)>,
) -> Poll<io::Result<R>> {
    loop {
        let Poll::Ready(seen) = poll_ready() else { return pending(backend) };
        let seen = seen?;
        match op() {
            Ok((result, is_unready)) => {
                if is_unready {
                    source.drained(direction, seen);
                }
                return Poll::Ready(Ok(result));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => source.clear(direction, seen),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

/// Returns `Pending`, and ensures that a thread waits in the poller.
fn pending<R>(backend: &Backend) -> Poll<io::Result<R>> {
    match backend.will_wait() {
        Ok(()) => Poll::Pending,
        Err(error) => Poll::Ready(Err(error)),
    }
}

impl<S: SystemSocket> Drop for Registered<S> {
    fn drop(&mut self) {
        drop(self.deregister());
    }
}

/// Returns whether the buffers contain no byte. A write of no bytes to a stream returns 0 immediately, even if the send
/// buffer of the system is full.
pub(crate) fn are_empty(bufs: &[IoSlice<'_>]) -> bool {
    bufs.iter().all(|buf| buf.is_empty())
}

/// Number of buffers that every system can use in one call.
const FEW: usize = 16;

/// Returns the total size of the buffers of a vectored transfer. Returns 0 if there are more than [`FEW`] buffers. In
/// this case, the system may use only some of the buffers, although the socket could transfer more bytes. If the size
/// is 0, `poll_transfer` does not mark the socket as not ready after a short transfer.
pub(crate) fn size_of_all(sizes: impl ExactSizeIterator<Item = usize>) -> usize {
    if sizes.len() > FEW { 0 } else { sizes.sum() }
}

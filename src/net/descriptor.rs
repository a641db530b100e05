//! [`Async`]: any file descriptor that the system can poll.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::io::{AsyncRead, AsyncWrite};
use socket2::SockRef;

use crate::host::Host;
use crate::net::backend::Backend;
use crate::net::registered::Registered;
use crate::net::system::Descriptor;
use crate::platform::poller::source::Direction;

/// A file descriptor that is registered with the runtime. A process can wait until the descriptor is ready. Examples
/// are a pipe, a terminal, an inotify instance, or a socket of another crate. Unix only.
///
/// The operating system cannot poll a regular file, and returns an error when the file is registered. Read regular
/// files on the blocking pool: see [`Host::spawn_blocking`].
///
/// [`Async::new`] sets the non-blocking mode of the descriptor. All duplicates of a descriptor share this mode, even
/// the duplicates in other programs. For example, the standard input of a program is often a duplicate of the standard
/// input of the shell. If the program sets a descriptor back to blocking mode, the operations block the thread. With
/// [`read_with`](Self::read_with) and [`write_with`](Self::write_with), a process can call any operation of the value.
/// If `T` implements `Read` or `Write`, then `Async<T>` implements `AsyncRead` or `AsyncWrite`. If `&T` implements
/// `Read` or `Write`, then `&Async<T>` implements `AsyncRead` or `AsyncWrite`, so that one task can read and write at
/// the same time. In each direction, these traits wake only the task that polled last. If several tasks wait for one
/// direction, use `read_with` and `write_with`, which wake each of these tasks.
///
/// ```
/// use procession::net::Async;
/// use std::io::{Read, Write};
/// use std::os::unix::net::UnixStream;
///
/// # let rt = procession::Runtime::new()?;
/// # rt.block_on(async {
/// let (one, mut other) = UnixStream::pair()?;
/// let one = Async::new(one)?;
/// other.write_all(b"x")?;
/// let mut buf = [0; 8];
/// assert_eq!(one.read_with(|mut one| one.read(&mut buf)).await?, 1);
/// # std::io::Result::Ok(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Debug)]
pub struct Async<T: AsFd> {
    io: Registered<Descriptor<T>>,
}

impl<T: AsFd> Async<T> {
    /// Registers the descriptor of `io` with the runtime of the calling thread, and makes the descriptor non-blocking.
    ///
    /// # Errors
    /// Returns the error of the system. For example, the error is [`io::ErrorKind::PermissionDenied`] for a regular
    /// file. On Linux, the error is [`io::ErrorKind::AlreadyExists`] if the same descriptor is already registered. On
    /// systems other than Linux, the second registration takes over the events of the first registration. Returns an
    /// error if the thread has no runtime, or if the runtime is a simulation.
    pub fn new(io: T) -> io::Result<Self> {
        Self::register(io, Backend::current()?)
    }

    /// Does the same as [`new`](Self::new), with the runtime of `host`.
    ///
    /// # Errors
    /// Fails under the same conditions as [`new`](Self::new).
    pub fn new_in(host: &Host, io: T) -> io::Result<Self> {
        Self::register(io, Backend::of(host)?)
    }

    fn register(io: T, backend: Backend) -> io::Result<Self> {
        let io = Registered::new(Descriptor(io), backend).map_err(explain)?;
        // The mode is set last. If the registration fails, the mode of the descriptor and its duplicates stays the
        // same.
        SockRef::from(&io.io().0).set_nonblocking(true)?;
        Ok(Self { io })
    }

    /// Returns a reference to the registered value.
    pub fn get_ref(&self) -> &T {
        &self.io.io().0
    }

    /// Deregisters the descriptor and returns the value. The descriptor is still non-blocking.
    pub fn into_inner(self) -> T {
        self.io.into_inner().0
    }

    /// Waits until the system reports that the descriptor can be read. When the future completes, the descriptor may
    /// already be unreadable again.
    ///
    /// After the future has completed, the descriptor counts as readable until a read operation of this value gets
    /// [`io::ErrorKind::WouldBlock`] from the system. An example of a read operation is [`read_with`](Self::read_with).
    /// If the program reads the descriptor without a read operation of this value, the program must call
    /// [`clear_readable`](Self::clear_readable).
    ///
    /// # Errors
    /// Returns an error if the runtime has ended.
    pub async fn readable(&self) -> io::Result<()> {
        self.io.reported(Direction::Read).await
    }

    /// Waits until the system reports that the descriptor can be written. When the future completes, the descriptor may
    /// already be unwritable again.
    ///
    /// After the future has completed, the descriptor counts as writable until a write operation of this value gets
    /// [`io::ErrorKind::WouldBlock`] from the system. An example of a write operation is
    /// [`write_with`](Self::write_with). If the program writes to the descriptor without a write operation of this
    /// value, the program must call [`clear_writable`](Self::clear_writable).
    ///
    /// # Errors
    /// Returns an error if the runtime has ended.
    pub async fn writable(&self) -> io::Result<()> {
        self.io.reported(Direction::Write).await
    }

    /// Marks the descriptor as not readable. The next [`readable`](Self::readable) then waits for the next event of the
    /// descriptor. If the system has reported that the other end is closed, the descriptor stays readable, because no
    /// further event follows. The program must end its loop when it reads the end of the data.
    ///
    /// Use this method if another library reads the descriptor and does not return `WouldBlock`. Call this method
    /// before the library reads, and let the library read until the descriptor has no more data. The system reports
    /// only changes: if the library leaves data in the descriptor, the system does not report this data again. If the
    /// program calls this method only after the library has read the descriptor, new data may arrive between the read
    /// and the call. The call then discards the event that reported this data.
    ///
    /// ```
    /// # use procession::net::Async;
    /// # use std::io::{Read, Write};
    /// # use std::os::unix::net::UnixStream;
    /// # /// Reads all data, as a library would do.
    /// # fn dispatch(mut stream: &UnixStream) -> usize {
    /// #     std::iter::from_fn(|| stream.read(&mut [0; 8]).ok()).sum()
    /// # }
    /// # let rt = procession::Runtime::new()?;
    /// # rt.block_on(async {
    /// # let (one, mut other) = UnixStream::pair()?;
    /// let one = Async::new(one)?;
    /// # let mut count = 0;
    /// # other.write_all(b"abc")?;
    /// while count < 3 {
    ///     one.readable().await?;
    ///     one.clear_readable();
    ///     count += dispatch(one.get_ref());
    /// }
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn clear_readable(&self) {
        self.io.clear(Direction::Read);
    }

    /// Marks the descriptor as not writable. The next [`writable`](Self::writable) then waits for the next event of the
    /// descriptor. There is one exception: if the system has reported an error, or has reported that the other end is
    /// closed, the descriptor stays writable until [`write_with`](Self::write_with) gets [`io::ErrorKind::WouldBlock`].
    ///
    /// Use this method in the same way as [`clear_readable`](Self::clear_readable). Call this method before another
    /// library writes, and let the library write until the descriptor accepts no more data.
    pub fn clear_writable(&self) {
        self.io.clear(Direction::Write);
    }

    /// Calls `op` repeatedly until `op` returns anything other than [`io::ErrorKind::WouldBlock`] and
    /// [`io::ErrorKind::Interrupted`]. After `WouldBlock`, this method waits until the descriptor can be read. After
    /// `Interrupted`, this method calls `op` again immediately.
    ///
    /// `op` must return `WouldBlock` only if the system returned `WouldBlock`. After `WouldBlock`, this method waits
    /// for the next event of the descriptor before it calls `op` again, and the system reports each change only once.
    /// For example, the system does not report the end of a stream a second time.
    ///
    /// # Errors
    /// Returns the error of `op`. Returns an error if the runtime has ended.
    ///
    /// # Cancel safety
    /// Cancel safe if `op` has no effect when it returns `WouldBlock` or `Interrupted`.
    pub async fn read_with<R>(&self, mut op: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.io.op(Direction::Read, |io| op(&io.0)).await
    }

    /// Calls `op` repeatedly until `op` returns anything other than [`io::ErrorKind::WouldBlock`] and
    /// [`io::ErrorKind::Interrupted`]. After `WouldBlock`, this method waits until the descriptor can be written. After
    /// `Interrupted`, this method calls `op` again immediately.
    ///
    /// `op` must return `WouldBlock` only if the system returned `WouldBlock`. After `WouldBlock`, this method waits
    /// for the next event of the descriptor before it calls `op` again, and the system reports each change only once.
    /// For example, the system does not report the end of a stream a second time.
    ///
    /// # Errors
    /// Returns the error of `op`. Returns an error if the runtime has ended.
    ///
    /// # Cancel safety
    /// Cancel safe if `op` has no effect when it returns `WouldBlock` or `Interrupted`.
    pub async fn write_with<R>(&self, mut op: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.io.op(Direction::Write, |io| op(&io.0)).await
    }
}

impl<T: AsFd> Async<T> {
    /// The poll function of [`read_with`](Self::read_with). If several tasks call this function, only the task that
    /// called last is woken.
    ///
    /// # Errors
    /// Fails under the same conditions as [`read_with`](Self::read_with).
    pub fn poll_read_with<R>(
        &self,
        cx: &mut Context<'_>,
        mut op: impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.io.poll_op(Direction::Read, cx, |io| op(&io.0))
    }

    /// The poll function of [`write_with`](Self::write_with). If several tasks call this function, only the task that
    /// called last is woken.
    ///
    /// # Errors
    /// Fails under the same conditions as [`write_with`](Self::write_with).
    pub fn poll_write_with<R>(
        &self,
        cx: &mut Context<'_>,
        mut op: impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.io.poll_op(Direction::Write, cx, |io| op(&io.0))
    }
}

impl<T: AsFd> AsFd for Async<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.get_ref().as_fd()
    }
}

impl<T: AsFd> AsRawFd for Async<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl<T: AsFd> AsyncRead for &Async<T>
where
    for<'a> &'a T: Read,
{
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.io.poll_op(Direction::Read, cx, |io| (&io.0).read(buf))
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.io.poll_op(Direction::Read, cx, |io| (&io.0).read_vectored(bufs))
    }
}

impl<T: AsFd> AsyncWrite for &Async<T>
where
    for<'a> &'a T: Write,
{
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.io.poll_op(Direction::Write, cx, |io| (&io.0).write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.io.poll_op(Direction::Write, cx, |io| (&io.0).write_vectored(bufs))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match flush(&mut &self.io.io().0) {
            Some(flushed) => Poll::Ready(flushed),
            None => self.io.poll_op(Direction::Write, cx, |io| (&io.0).flush()),
        }
    }

    /// Flushes the value. Does not close the descriptor: the descriptor is closed when the value is dropped.
    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

impl<T: AsFd + Read + Unpin> AsyncRead for Async<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.get_mut().io.poll_op_mut(Direction::Read, cx, |io| io.0.read(buf))
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().io.poll_op_mut(Direction::Read, cx, |io| io.0.read_vectored(bufs))
    }
}

impl<T: AsFd + Write + Unpin> AsyncWrite for Async<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().io.poll_op_mut(Direction::Write, cx, |io| io.0.write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().io.poll_op_mut(Direction::Write, cx, |io| io.0.write_vectored(bufs))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let io = &mut self.get_mut().io;
        match flush(&mut io.io_mut().0) {
            Some(flushed) => Poll::Ready(flushed),
            None => io.poll_op_mut(Direction::Write, cx, |io| io.0.flush()),
        }
    }

    /// Flushes the value. Does not close the descriptor: the descriptor is closed when the value is dropped.
    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

/// Adds the cause and the remedy to an error of the registration. The kind of the error stays the same.
fn explain(error: io::Error) -> io::Error {
    let text = match error.raw_os_error() {
        Some(libc::EPERM) => {
            "the system cannot poll this descriptor, because it is a regular file or a directory: read and write files \
             with `Host::spawn_blocking`"
        }
        Some(libc::EEXIST) => {
            "this descriptor is already registered with the runtime: share the first `Async`, or register a duplicate of \
             the descriptor"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), text)
}

/// Flushes `value` without waiting. Returns `None` if the flush must wait until the descriptor is writable.
///
/// Many types have nothing to flush. If there is nothing to flush, the flush must return immediately, even if the
/// descriptor is not writable. For example, the previous write may have timed out.
fn flush(value: &mut impl Write) -> Option<io::Result<()>> {
    loop {
        match value.flush() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            flushed => return Some(flushed),
        }
    }
}

//! Sockets that the scheduler of the runtime polls. Needs the feature `net`.
//!
//! The sockets need no other runtime and no reactor thread. One idle worker waits for the sockets and for the timers in
//! one system call (epoll, kqueue or IOCP, through the crate `mio`). When a socket becomes ready, this worker queues
//! the process that waits for the socket, and usually the same worker runs the process.
//!
//! ```
//! use futures::{AsyncReadExt, AsyncWriteExt};
//! use procession::net::{TcpListener, TcpStream};
//! use procession::{Context, Exit, Runtime};
//!
//! /// Serves one connection. Sends back the bytes that the client sends.
//! async fn echo(stream: TcpStream) -> Result<(), Exit> {
//!     futures::io::copy(&stream, &mut &stream).await?;
//!     Ok(())
//! }
//!
//! async fn server(ctx: Context, listener: TcpListener) -> Result<(), Exit> {
//!     loop {
//!         let (stream, _) = listener.accept().await?;
//!         ctx.spawn(move |_: Context| echo(stream));
//!     }
//! }
//!
//! let rt = Runtime::new()?;
//! let answer = rt.block_on(async {
//!     let listener = TcpListener::bind("127.0.0.1:0").await?;
//!     let address = listener.local_addr()?;
//!     rt.spawn(move |ctx: Context| server(ctx, listener));
//!     let mut stream = TcpStream::connect(address).await?;
//!     stream.write_all(b"hello").await?;
//!     let mut answer = [0; 5];
//!     stream.read_exact(&mut answer).await?;
//!     std::io::Result::Ok(answer)
//! })?;
//! assert_eq!(&answer, b"hello");
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! # The runtime of a socket
//!
//! A socket belongs to a runtime, not to a process. The functions that create a socket, such as `bind`, `connect`,
//! `pair` and `from_std`, use the runtime of the calling thread. A thread has a runtime while the thread runs a
//! process, a handler (except a blocking handler), or the future of [`Runtime::block_on`](crate::Runtime::block_on) or
//! [`Runtime::run`](crate::Runtime::run). On any other thread, pass a [`Host`](crate::Host) to the function that has
//! the same name with the suffix `_in`. Creating a socket fails if the thread has no runtime and the call passes no
//! host. An async function, such as `connect`, uses the runtime of the thread that first polls its future.
//!
//! A Rust value, for example a [`TcpStream`], owns the socket. A program can send this value in a message, and can use
//! the value on any thread and in any executor. Dropping the value closes the socket. When a process is killed, its
//! variables are dropped. This drop closes the sockets that the process owns. When the runtime is dropped, each
//! pending operation of its sockets fails with [`std::io::ErrorKind::NotConnected`]. Each later operation that could
//! wait also fails with `NotConnected`.
//!
//! In a [`Simulation`](crate::Simulation), creating a socket fails with [`std::io::ErrorKind::Unsupported`], because a
//! simulation has no network.
//!
//! # Threads
//!
//! If the runtime has workers, the sockets need no additional thread. A thread that awaits a socket in
//! [`Runtime::block_on`](crate::Runtime::block_on) needs no additional thread either. A runtime without workers starts
//! one helper thread when a future of [`Runtime::run`](crate::Runtime::run) or of another executor waits for a socket.
//! In a runtime with sockets, a call of [`block_in_place`](crate::block_in_place) also starts the helper thread if
//! there are no workers, or if all workers are blocked and have no replacement threads. The helper thread waits in the
//! poller. The name of the helper thread consists of the name of the worker threads and the suffix `-poller`. The
//! helper thread runs until the runtime ends, even if the program sets a number of workers later. For each batch of
//! events, the helper thread must wake the thread that polls the future.
//!
//! Do not block a thread of the runtime to wait for a socket. For example, do not call `block_on` of another executor
//! inside a step, or inside the future of [`Runtime::block_on`](crate::Runtime::block_on) or
//! [`Runtime::run`](crate::Runtime::run). The blocked thread runs no processes and does not wait in the poller. If no
//! other thread waits there, the socket never becomes ready for the runtime. This can happen in three cases:
//! - The runtime has no workers.
//! - The blocked thread is the only worker, and the monitor is off
//!   ([`Builder::long_step_threshold`](crate::Builder::long_step_threshold) is `Duration::MAX`).
//! - All workers are blocked, and no replacement thread can be started
//!   ([`Builder::max_replacement_threads`](crate::Builder::max_replacement_threads) is 0, or the limit is reached).
//!
//! Use `await` instead of the inner `block_on`, or call the inner `block_on` in
//! [`block_in_place`](crate::block_in_place). If the runtime has no other thread that can run, its timers do not fire
//! until the closure of `block_in_place` returns. So this closure can wait for a socket, but not for a timer.
//!
//! In a runtime without workers, do not move a pending `FuturesUnordered` or a similar future from
//! [`Runtime::block_on`](crate::Runtime::block_on) or [`Runtime::run`](crate::Runtime::run) to another executor. The
//! future may then never complete, because there may be no thread that waits in the poller. `block_on` starts no helper
//! thread. A `FuturesUnordered` of the crate `futures` polls a socket operation again only after the socket has become
//! ready. The same is true for each future that polls its inner futures with its own wakers. To avoid this problem,
//! give the runtime a worker, or move the future to the other executor before the first poll of the future.
//!
//! # Fairness
//!
//! The budget of a turn is 128 units. Each socket operation that completes takes one unit, as each received message
//! does. (The `try_…` functions take nothing from the budget.) When the budget is spent, the next socket operation
//! first lets the other processes run. So if a connection always has data, the process that uses the connection returns
//! to the end of the queue after at most 128 operations. A process whose connection always has data does not starve
//! other processes. An async handler also has a budget. A future of [`Host::spawn_future`](crate::Host::spawn_future),
//! [`Runtime::run`](crate::Runtime::run) or [`Runtime::block_on`](crate::Runtime::block_on) has a new budget for each
//! poll. If an executor outside the runtime polls a future, the sockets in this future use no budget. Each running
//! worker checks the poller at least once in 61 tasks. If a step blocks the only worker that is awake, the monitor
//! thread wakes another worker: see [`Builder::long_step_threshold`](crate::Builder::long_step_threshold).
//!
//! # Cancel safety
//!
//! Each future and each `poll_…` function of this module is cancel safe, unless its documentation states that the
//! future or the function is not cancel safe. For example, a read that is dropped before it completes has taken no
//! bytes. The combinators of the crate `futures` are not always cancel safe. For example, a dropped `read_exact` has
//! moved an unknown number of bytes from the socket to the buffer of the caller. A dropped `write_all` may have written
//! a part of its bytes.

// This folder imports `platform`, `process`, `host` and the file `runtime/enqueue.rs`. The type `Threads` of
// `runtime/enqueue.rs` is the scheduler of a runtime. The poller is not in this folder, but in `platform/poller`. The
// scheduler or a helper thread waits for events. The folder contains no unsafe code and no protocol above the sockets,
// such as TLS or HTTP.

pub(crate) mod backend;
#[cfg(unix)]
pub(crate) mod descriptor;
pub(crate) mod halves;
pub(crate) mod handle;
pub(crate) mod registered;
pub(crate) mod resolve;
/// The documentation of this module is at [`procession::signal`](crate::signal).
#[doc(hidden)]
pub mod signal;
pub(crate) mod system;
pub(crate) mod tcp;
pub(crate) mod udp;
#[cfg(unix)]
pub mod unix;

/// The crate `socket2` in version 0.6. Each method `options` of a socket returns a type of this crate. A program that
/// uses this module needs no separate dependency on `socket2`.
pub use socket2;

#[cfg(unix)]
pub use crate::net::descriptor::Async;
pub use crate::net::resolve::{ToSocketAddrs, lookup_host, lookup_host_in};
pub use crate::net::tcp::listener::{Incoming, TcpListener};
pub use crate::net::tcp::socket::TcpSocket;
pub use crate::net::tcp::split::{OwnedReadHalf, OwnedWriteHalf};
pub use crate::net::tcp::stream::TcpStream;
pub use crate::net::udp::UdpSocket;
#[cfg(unix)]
pub use crate::net::unix::datagram::UnixDatagram;
#[cfg(unix)]
pub use crate::net::unix::listener::UnixListener;
#[cfg(unix)]
pub use crate::net::unix::stream::UnixStream;

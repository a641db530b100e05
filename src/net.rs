//! Sockets that the scheduler of the runtime polls. Needs the feature `net`.
//!
//! No other runtime and no reactor thread is needed. The worker that has no work and keeps the time waits for the sockets
//! and the timers in one system call (epoll, kqueue or IOCP, through mio). When a socket is ready, the worker queues the
//! process that waits for it, and usually runs this process itself.
//!
//! ```
//! use futures::{AsyncReadExt, AsyncWriteExt};
//! use procession::net::{TcpListener, TcpStream};
//! use procession::{Context, Exit, Runtime};
//!
//! /// One process for each connection: it sends back the bytes that it receives.
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
//! A socket belongs to a runtime, not to a process. `bind`, `connect` and `from_std` use the runtime of the calling
//! thread. There is one inside a process, inside a handler, and inside the future of
//! [`Runtime::block_on`](crate::Runtime::block_on) or [`Runtime::run`](crate::Runtime::run). On any other thread, pass a
//! [`Host`](crate::Host) to the function with the same name and the suffix `_in`. Without a runtime, creating a socket fails.
//!
//! The value owns the socket. A program can send it in a message, and can use it on any thread, in any executor. Dropping
//! the value closes the socket. If a process is killed, its sockets are closed with its other variables. When the runtime
//! ends, all pending and later operations of its sockets fail with [`std::io::ErrorKind::NotConnected`].
//!
//! In a [`Simulation`](crate::Simulation), creating a socket fails with [`std::io::ErrorKind::Unsupported`], because there is no
//! simulated network yet.
//!
//! # Threads
//!
//! If the runtime has workers, no additional thread is needed. The same is true for a thread in
//! [`Runtime::block_on`](crate::Runtime::block_on). If the runtime has no workers, and a future of
//! [`Runtime::run`](crate::Runtime::run) or another executor waits for a socket, the runtime starts one thread that waits
//! in the poller. This thread is named after the workers, with the suffix `-poller`. It starts at the first need and ends
//! with the runtime. Each batch of events then costs one wake-up of the executor's thread.
//!
//! A thread that blocks inside [`Runtime::block_on`](crate::Runtime::block_on), for example on another executor, waits
//! neither for sockets nor for processes. If the runtime has no workers, a socket that this thread waits for is never
//! ready. Use `await` instead.
//!
//! # Fairness
//!
//! A socket operation that completes takes one unit of the budget of the turn, like a received message. When the budget is
//! spent, the operation first yields to the other processes. So a connection that always has data does not starve
//! other processes. A worker asks the poller at least once in 61 tasks. If a step blocks the only worker that is awake, the
//! monitor wakes another worker: see [`Builder::long_step_threshold`](crate::Builder::long_step_threshold).
//!
//! # Cancel safety
//!
//! Each future and each `poll_…` function of this module is cancel safe unless its documentation says otherwise: a read
//! that is dropped before it completes has taken no bytes. The combinators of the crate `futures` follow their own rules:
//! for example, `read_exact` loses the bytes that it has already read, and `write_all` may have written a part.

pub(crate) mod backend;
#[cfg(unix)]
pub(crate) mod descriptor;
pub(crate) mod registered;
pub(crate) mod resolve;
pub(crate) mod tcp;
pub(crate) mod udp;
#[cfg(unix)]
pub(crate) mod unix;

#[cfg(unix)]
pub use crate::net::descriptor::Async;
pub use crate::net::resolve::{ToSocketAddrs, lookup_host};
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

//! Sockets: servers and clients, time limits, cancellation, two processes for one stream, other crates, files, and
//! costs. Needs the feature `net`.
//!
//! The module [`net`](crate::net) describes the types. This table lists the type or the function for each task of a
//! process:
//!
//! | to | use |
//! |---|---|
//! | accept or open TCP connections | [`TcpListener`](crate::net::TcpListener), [`TcpStream`](crate::net::TcpStream); [`TcpSocket`](crate::net::TcpSocket) for options that must be set first |
//! | send and receive datagrams | [`UdpSocket`](crate::net::UdpSocket), `UnixDatagram` |
//! | use Unix domain sockets | `UnixListener`, `UnixStream` |
//! | wait for a pipe, a terminal, or another descriptor (only on Unix) | `Async` |
//! | wait for Ctrl-C or another signal | [`signal`](crate::signal) |
//! | look up a name | [`lookup_host`](crate::net::lookup_host), or pass the name to `connect` or `bind` |
//! | set another option of a socket | `options`, which returns the type `SockRef` of the crate [`socket2`] |
//! | pass a socket to a function of another crate | `as_fd`, on Windows `as_socket` |
//! | exchange sockets with the standard library | `from_std`, `into_std` |
//!
//! The repository also has complete servers: `examples/echo.rs`, `examples/chat.rs`, and the packages in
//! `examples/apps`.
//!
//! # A server
//!
//! One process accepts the connections, and starts a process for each connection. A failure or a panic in the process
//! of a connection ends only this connection:
//!
//! ```
//! use futures::{AsyncReadExt, AsyncWriteExt};
//! use procession::net::{TcpListener, TcpStream};
//! use procession::{Context, Exit, Runtime};
//! use std::time::Duration;
//!
//! /// Sends back the bytes of one connection.
//! async fn echo(ctx: Context, mut stream: TcpStream) -> Result<(), Exit> {
//!     let mut buf = vec![0; 8 << 10];
//!     loop {
//!         let count = ctx.run_until_cancelled(stream.read(&mut buf)).await??;
//!         if count == 0 {
//!             return Ok(()); // the client has closed its side
//!         }
//!         ctx.run_until_cancelled(stream.write_all(&buf[..count])).await??;
//!     }
//! }
//!
//! async fn server(ctx: Context, listener: TcpListener) -> Result<(), Exit> {
//!     loop {
//!         match ctx.run_until_cancelled(listener.accept()).await? {
//!             Ok((stream, _)) => {
//!                 // An error means that the client has already disconnected.
//!                 let _ = stream.set_nodelay(true);
//!                 ctx.spawn(move |ctx: Context| echo(ctx, stream));
//!             }
//!             // For example, no descriptor is free. Without this pause, the loop would use a whole core.
//!             Err(_) => ctx.sleep(Duration::from_millis(100)).await,
//!         }
//!     }
//! }
//!
//! fn main() -> procession::Result {
//!     let rt = Runtime::new()?;
//!     rt.block_on(async {
//!         let listener = TcpListener::bind("127.0.0.1:0").await?;
//!         let address = listener.local_addr()?;
//!         rt.spawn(move |ctx: Context| server(ctx, listener));
//!
//!         let mut stream = TcpStream::connect(address).await?;
//!         stream.write_all(b"hello").await?;
//!         let mut answer = [0; 5];
//!         stream.read_exact(&mut answer).await?;
//!         assert_eq!(&answer, b"hello");
//!
//!         // Before the shutdown, a real server would wait for `procession::signal::ctrl_c`.
//!         let report = rt.shutdown(Duration::from_secs(5)).await;
//!         assert!(report.left.is_empty());
//!         Ok(())
//!     })
//! }
//! ```
//!
//! - **Cancellation.** When the process is asked to exit,
//!   [`run_until_cancelled`](crate::SelfHandle::run_until_cancelled) drops the read, the write or the `accept`, and
//!   returns an error. The operator `?` then returns this error from the body. Therefore a
//!   [shutdown](crate::Runtime::shutdown) ends the server, even if a client reads no answers. The server and its
//!   clients need no additional protocol for the shutdown.
//! - **A limit of connections.** To limit the number of connections, keep their processes in a
//!   [`JoinSet`](crate::JoinSet). When the set is full, await [`join_next`](crate::JoinSet::join_next) before the next
//!   `accept`. The package `examples/apps/http` in the repository limits its connections with a `JoinSet`.
//! - **Crash reports.** A body may return an error, for example after the peer has reset the connection. If no link,
//!   monitor or join handle receives this error, the runtime prints a [report](crate::CrashReport). If errors of the
//!   peer are normal for the program, return `Ok(())` for these errors, or set
//!   [`Builder::on_crash`](crate::Builder::on_crash).
//! - **The listen backlog.** The system queues up to 1,024 connections until the process accepts these connections. To
//!   set a different limit, use [`TcpSocket::listen`](crate::net::TcpSocket::listen).
//! - **Several cores.** One process is enough to accept all connections. The processes of the connections run on all
//!   workers, because idle workers steal processes.
//!
//! # A client, with time limits
//!
//! A socket operation has no time limit. [`timeout`](crate::SelfHandle::timeout) adds a time limit to any future:
//!
//! ```
//! use futures::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
//! use procession::net::TcpStream;
//! use procession::{Context, Exit};
//! use std::time::Duration;
//!
//! /// Sends one line, and returns the line that the server answers.
//! async fn ask(ctx: &Context, address: &str, question: &str) -> Result<String, Exit> {
//!     // The first `?` returns the failure of the time limit. The second `?` returns the error of the system.
//!     let stream = ctx.timeout(Duration::from_secs(3), TcpStream::connect(address)).await??;
//!     let mut stream = BufReader::new(stream);
//!     let answer = ctx.timeout(Duration::from_secs(10), async {
//!         stream.get_mut().write_all(format!("{question}\n").as_bytes()).await?;
//!         let mut answer = String::new();
//!         // Without this limit, a server that sends no line break could fill the memory.
//!         (&mut stream).take(64 << 10).read_line(&mut answer).await?;
//!         if !answer.ends_with('\n') {
//!             // The answer is too long, or the server has closed the connection inside the answer.
//!             return Err(std::io::ErrorKind::InvalidData.into());
//!         }
//!         std::io::Result::Ok(answer)
//!     });
//!     Ok(answer.await??.trim_end().to_owned())
//! }
//! # use procession::{Runtime, net::TcpListener};
//! # async fn server(listener: TcpListener) -> Result<(), Exit> {
//! #     let (stream, _) = listener.accept().await?;
//! #     futures::io::copy(&stream, &mut &stream).await?;
//! #     Ok(())
//! # }
//! # let rt = Runtime::new()?;
//! # rt.block_on(async {
//! #     let listener = TcpListener::bind("127.0.0.1:0").await?;
//! #     let address = listener.local_addr()?.to_string();
//! #     rt.spawn(move |_: Context| server(listener));
//! #     let asked = rt.spawn(async move |ctx: Context| ask(&ctx, &address, "who?").await);
//! #     assert_eq!(asked.await?, "who?");
//! #     procession::Result::<(), procession::BoxError>::Ok(())
//! # })?;
//! # Ok::<(), procession::BoxError>(())
//! ```
//!
//! To limit the time of a whole process, set a [deadline](crate::ProcessBuilder::deadline): when the deadline passes,
//! the process is cancelled. [`Call::timeout`](crate::future::Call::timeout) limits the time of a call to another
//! process.
//!
//! # What a cancelled operation leaves behind
//!
//! `timeout`, `run_until_cancelled` and `select!` drop the future that did not complete. The operations of the sockets
//! are cancel safe, so a dropped `read`, `write` or `accept` has had no effect. Some combinators of the crate `futures`
//! are not cancel safe:
//!
//! | dropped future | effect |
//! |---|---|
//! | `read`, `peek`, `recv`, `accept`, `readable`, `writable` | none |
//! | `write`, `send` | none: no byte was sent |
//! | `connect` | the attempt ends |
//! | `next` of a stream of `lines` | none: the stream keeps the part of the line that was read |
//! | `read_until`, `read_to_end` | the bytes that were read are in the caller's vector |
//! | `read_exact` | an unknown number of bytes was moved from the socket to the caller's buffer |
//! | `read_line` | the bytes that were read are lost |
//! | `write_all`, `copy` | an unknown part of the bytes may have been sent, so the connection must be closed |
//!
//! In a loop with `select!` or with a time limit for each read, use the operations whose effect in this table is
//! "none". Alternatively, let a second process read, as in the section "One stream, two processes". When a process is
//! [killed](crate::Host::kill), its futures and its sockets are dropped. The drop of a socket closes the connection, so
//! the peer sees the end of the connection.
//!
//! # One stream, two processes
//!
//! If a connection must read and write independently, split its stream. One process reads. The second process receives
//! messages from any process, and writes the contents of these messages in order:
//!
//! ```
//! use futures::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
//! use procession::net::{OwnedReadHalf, OwnedWriteHalf, TcpListener, TcpStream};
//! use procession::{Address, Context, Exit, MailboxCapacity, Runtime};
//!
//! enum Out {
//!     Line(Vec<u8>),
//!     End,
//! }
//!
//! /// Sends each line of the client back, through the mailbox of the writer.
//! async fn read_lines(half: OwnedReadHalf, writer: Address<Out>) -> Result<(), Exit> {
//!     let mut lines = BufReader::new(half);
//!     loop {
//!         let mut line = b"echo: ".to_vec();
//!         // Without this limit, a client that sends no line break could fill the memory.
//!         if (&mut lines).take(1_024).read_until(b'\n', &mut line).await? == 0 {
//!             return Ok(writer.send_wait(Out::End).await?);
//!         }
//!         // Waits while the mailbox is full. So the server reads no more from a client that reads no answers.
//!         writer.send_wait(Out::Line(line)).await?;
//!     }
//! }
//!
//! async fn writer(mut ctx: Context<Out>, mut half: OwnedWriteHalf) -> Result<(), Exit> {
//!     while let Out::Line(line) = ctx.receive().await? {
//!         ctx.run_until_cancelled(half.write_all(&line)).await??;
//!     }
//!     Ok(())
//! }
//!
//! async fn connection(ctx: Context, stream: TcpStream) -> Result<(), Exit> {
//!     let (read, write) = stream.into_split();
//!     ctx.scope(async |scope| {
//!         let bounded = MailboxCapacity::Reject(100);
//!         let writer = scope.spawn_with(|process| process.mailbox_capacity(bounded), |ctx| writer(ctx, write))?;
//!         // Other processes can get this address, too.
//!         ctx.run_until_cancelled(read_lines(read, writer.address())).await?
//!     })
//!     .await
//! }
//! # fn main() -> procession::Result {
//! #     use futures::future::{Either, select};
//! #     let rt = Runtime::new()?;
//! #     rt.block_on(async {
//! #         let listener = TcpListener::bind("127.0.0.1:0").await?;
//! #         let mut stream = BufReader::new(TcpStream::connect(listener.local_addr()?).await?);
//! #         let (server, _) = listener.accept().await?;
//! #         let served = rt.spawn(move |ctx: Context| connection(ctx, server));
//! #         stream.get_mut().write_all(b"hello\n").await?;
//! #         let mut line = String::new();
//! #         stream.read_line(&mut line).await?;
//! #         assert_eq!(line, "echo: hello\n");
//! #         drop(stream);
//! #         served.await?;
//! #         // A shutdown ends a connection whose client sends nothing, and a connection whose client reads nothing.
//! #         let _silent = TcpStream::connect(listener.local_addr()?).await?;
//! #         let (server, _) = listener.accept().await?;
//! #         rt.spawn(move |ctx: Context| connection(ctx, server));
//! #         let mut deaf = TcpStream::connect(listener.local_addr()?).await?;
//! #         let (server, _) = listener.accept().await?;
//! #         rt.spawn(move |ctx: Context| connection(ctx, server));
//! #         // The buffers of the system and the mailbox are full when the connection reads no more.
//! #         let line = [[b'x'; 1_023].as_slice(), b"\n"].concat();
//! #         let wait = std::time::Duration::from_millis(200);
//! #         while let Either::Left(_) = select(deaf.write(&line), rt.sleep(wait)).await {}
//! #         let report = rt.shutdown(std::time::Duration::from_secs(5)).await;
//! #         assert!(report.left.is_empty(), "{report:?}");
//! #         Ok(())
//! #     })
//! # }
//! ```
//!
//! - When the reader or the writer fails, the [scope](crate::SelfHandle::scope) ends both processes. At the end of the
//!   stream, the scope waits until the writer has written the lines that are in its mailbox.
//! - A cancellation of the connection also cancels the writer. `run_until_cancelled` ends the read or the write that is
//!   waiting.
//! - Dropping the write half sends the end of the stream to the peer. The connection closes when both halves are
//!   dropped.
//! - [`reunite`](crate::net::OwnedReadHalf::reunite) joins the two halves of a stream into one stream.
//! - One process can also read and write at the same time: `&TcpStream` implements `AsyncRead` and `AsyncWrite`.
//! - A `UnixStream` splits in the same way as a `TcpStream`. The types of the halves of a `UnixStream` are in the
//!   module `net::unix`.
//! - If several tasks call `poll_read` of one stream, only the task that called `poll_read` last is woken. If several
//!   processes must wait to read one stream, each of these processes calls
//!   [`readable`](crate::net::TcpStream::readable) and [`try_read`](crate::net::TcpStream::try_read).
//!
//! # Other crates
//!
//! The streams implement the traits of `futures::io`. Crates that use these traits need no bridge and no other runtime.
//! The package `examples/apps/bridges` in the repository has a tested program for each of the first three rows. The
//! sections below show the server parts of these programs.
//!
//! | for | crate | how |
//! |---|---|---|
//! | code that is written for tokio's traits | `tokio-util`, feature `compat` | `stream.compat()` implements `tokio::io::AsyncRead` and `AsyncWrite`: `src/bin/tokio_traits.rs` |
//! | TLS | `futures-rustls` | `TlsAcceptor::accept(stream)`, `TlsConnector::connect(name, stream)`: `src/bin/tls.rs` |
//! | WebSockets | `async-tungstenite`, with `default-features = false` and the feature `handshake` | `accept_async(stream)`, `client_async(url, stream)`: `src/bin/websocket.rs` |
//! | HTTP | `hyper`, and `smol-hyper` with `default-features = false` | `FuturesIo::new(stream)` implements the traits of hyper: package `examples/apps/http` |
//!
//! The adapter `compat` adds no thread and needs no tokio runtime. (The crate `async-compat` also adapts the traits,
//! but starts a tokio runtime.) If a library also needs tokio's timers or tasks, the processes need the context of a
//! tokio runtime: see [chapter 6](super::tutorial::embedding) of the tutorial.
//!
//! ## Code for tokio's traits
//!
//! From `examples/apps/bridges/src/bin/tokio_traits.rs`. The function `shout` uses only the traits of tokio. The trait
//! `tokio_util::compat::FuturesAsyncReadCompatExt` has the method `compat`. The constant `LINE` limits the length of a
//! line:
//!
//! ```text
//! /// Sends back each line, with its ASCII letters in upper case. This function uses only tokio's I/O traits.
//! async fn shout(stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<()> {
//!     let (read, mut write) = tokio::io::split(stream);
//!     let (mut lines, mut line) = (BufReader::new(read), Vec::new());
//!     while (&mut lines).take(LINE).read_until(b'\n', &mut line).await? > 0 {
//!         line.make_ascii_uppercase();
//!         write.write_all(&line).await?;
//!         line.clear();
//!     }
//!     write.shutdown().await
//! }
//!
//! async fn server(ctx: Context, listener: TcpListener) -> Result<(), Exit> {
//!     loop {
//!         match ctx.run_until_cancelled(listener.accept()).await? {
//!             Ok((stream, _)) => {
//!                 let shout = shout(stream.compat());
//!                 ctx.spawn(async move |ctx: Context| Ok::<(), Exit>(ctx.run_until_cancelled(shout).await??));
//!             }
//!             // For example, `accept` fails if no file descriptor is free. The server continues after a pause.
//!             Err(_) => ctx.sleep(Duration::from_millis(100)).await,
//!         }
//!     }
//! }
//! ```
//!
//! ## TLS
//!
//! From `examples/apps/bridges/src/bin/tls.rs`. Each connection is a process. The constant `HANDSHAKE` limits
//! the time of the TLS handshake:
//!
//! ```text
//! /// Sends back the bytes of one connection.
//! async fn echo(ctx: Context, stream: TcpStream, tls: TlsAcceptor) -> Result<(), Exit> {
//!     let accepted = ctx.run_until_cancelled(ctx.timeout(HANDSHAKE, tls.accept(stream))).await?;
//!     // If a client does not complete the handshake in time, the server disconnects the client. If the handshake
//!     // fails, the client is the cause. So the process of the connection ends without a failure.
//!     let Ok(Ok(mut stream)) = accepted else { return Ok(()) };
//!     let mut buf = vec![0; 8 << 10];
//!     loop {
//!         let count = ctx.run_until_cancelled(stream.read(&mut buf)).await??;
//!         if count == 0 {
//!             // The call of `close` informs the client that the server has ended the stream intentionally.
//!             return Ok(ctx.run_until_cancelled(stream.close()).await??);
//!         }
//!         ctx.run_until_cancelled(stream.write_all(&buf[..count])).await??;
//!         // The TLS stream contains a write buffer, so the program must flush the bytes.
//!         ctx.run_until_cancelled(stream.flush()).await??;
//!     }
//! }
//! ```
//!
//! ## WebSockets
//!
//! From `examples/apps/bridges/src/bin/websocket.rs`. The process of a connection receives from its client and from its
//! mailbox. The function `is_end` returns true if the error means that the client has closed the connection:
//!
//! ```text
//! /// Sends back the texts of one client. Sends the messages of the mailbox to this client.
//! async fn connection(mut ctx: Context<String>, stream: TcpStream) -> Result<(), Exit> {
//!     let accepted = ctx.run_until_cancelled(ctx.timeout(HANDSHAKE, accept_async(stream))).await?;
//!     // If a client does not complete the handshake in time, the server disconnects the client. If the handshake
//!     // fails, the client is the cause. So the process of the connection ends without a failure.
//!     let Ok(Ok(mut socket)) = accepted else { return Ok(()) };
//!     loop {
//!         let outgoing = select! {
//!             // Both futures are cancel safe, so no message is lost when `select!` drops one of the futures.
//!             message = ctx.receive() => Message::text(message?),
//!             incoming = socket.next() => match incoming {
//!                 Some(Ok(text @ Message::Text(_))) => text,
//!                 // The WebSocket stream itself answers a ping.
//!                 Some(Ok(_)) => continue,
//!                 None => return Ok(()),
//!                 Some(Err(error)) if is_end(&error) => return Ok(()),
//!                 Some(Err(error)) => return Err(Exit::failed(error)),
//!             },
//!         };
//!         match ctx.run_until_cancelled(socket.send(outgoing)).await? {
//!             // The next read returns the end of the connection.
//!             Err(error) if is_end(&error) => {}
//!             sent => sent.map_err(Exit::failed)?,
//!         }
//!     }
//! }
//! ```
//!
//! # Files
//!
//! The operating system cannot poll regular files: an operation on a regular file blocks the calling thread. So a
//! process sends a closure to the blocking pool of the runtime, and the closure calls the functions of `std::fs`:
//!
//! ```
//! use procession::{Context, Exit, Runtime};
//! use std::fs;
//!
//! async fn copy(ctx: Context) -> Result<usize, Exit> {
//!     // One closure for the whole job: each closure costs two switches between threads.
//!     let length = ctx.host().spawn_blocking(|| {
//!         let text = fs::read_to_string("Cargo.toml")?;
//!         std::io::Result::Ok(text.len())
//!     });
//!     // The first `?` returns a refusal of the pool. The second `?` returns the error of the system.
//!     Ok(length.await??)
//! }
//!
//! let rt = Runtime::new()?;
//! assert!(rt.block_on(rt.spawn(copy))? > 0);
//! # Ok::<(), procession::BoxError>(())
//! ```
//!
//! To copy a large file to a socket, read the file in pieces of about 256 KiB. Move the file into each closure, and let
//! the closure return the file together with the piece.
//!
//! There is no `procession::fs`. The crate `async-fs` provides asynchronous files, but uses its own thread pool. The
//! settings of the [`Builder`](crate::Builder) do not limit this thread pool. A process can use `async-fs`, but
//! `async-fs` has no advantage over `spawn_blocking`.
//!
//! # Costs
//!
//! - **A runtime without sockets** opens no descriptor and makes no additional system call.
//! - **A ready socket** costs no thread switch if the runtime has workers, because the worker that waits in the poller
//!   also runs the process.
//! - **The helper thread.** If no thread of the runtime can wait in the poller, the first operation that waits starts a
//!   helper thread. For example, a runtime with [`workers(0)`](crate::Builder::workers) starts the helper thread in two
//!   cases: another executor polls the future of [`run`](crate::Runtime::run), or a process waits for a socket inside
//!   [`block_in_place`](crate::block_in_place). The helper thread only waits in the poller, and runs until the runtime
//!   ends. With the helper thread, each batch of events costs one wake-up of the executor's thread. On a measured
//!   machine, an echo request then took 33 µs of CPU time instead of 22 µs (row `echo-1` of `benches/sockets`).
//! - **An idle connection** needs the memory of one process, the memory of the variables in the body of this process,
//!   and one small block for the state of the socket in the poller. The README states the sum of these amounts. A read
//!   buffer is often the largest part of the memory of a connection. If the body awaits
//!   [`readable`](crate::net::TcpStream::readable) before the body creates a read buffer, an idle connection has no
//!   read buffer.
//! - **Name lookups** run on the blocking pool, so a slow resolver occupies one thread of this pool: see
//!   [`Builder::max_blocking_threads`](crate::Builder::max_blocking_threads).
//!
//! # Outside processes, and in other executors
//!
//! A socket belongs to a runtime, and any executor can poll the socket's futures. Inside a process and inside
//! [`block_on`](crate::Runtime::block_on), the socket functions find the runtime without an argument. On all other
//! threads, pass a [`Host`](crate::Host) to the function with the suffix `_in`:
//!
//! ```
//! use futures::{AsyncReadExt, AsyncWriteExt};
//! use procession::net::{TcpListener, TcpStream};
//! use procession::Runtime;
//!
//! let rt = Runtime::new()?;
//! let host = rt.host();
//! // This is the executor of the crate `futures`. A tokio or smol executor can also run this future.
//! futures::executor::block_on(async {
//!     let listener = TcpListener::bind_in(host, "127.0.0.1:0").await?;
//!     let mut client = TcpStream::connect_in(host, listener.local_addr()?).await?;
//!     let (mut server, _) = listener.accept().await?;
//!     client.write_all(b"x").await?;
//!     server.read_exact(&mut [0]).await?;
//!     std::io::Result::Ok(())
//! })?;
//! # Ok::<(), procession::BoxError>(())
//! ```
//!
//! After the end of a runtime, the operations of the sockets of this runtime fail with
//! [`NotConnected`](std::io::ErrorKind::NotConnected).
//!
//! # Tests
//!
//! A [`Simulation`](crate::Simulation) has no network, so the creation of a socket fails in a simulation. There are two
//! ways to write a program so that tests can run most of its code without sockets. First, write the body of a
//! connection as a function of any `AsyncRead` and `AsyncWrite`, and test this function with a pipe in memory. Second,
//! keep the sockets in a reader process and a writer process, as in the section "One stream, two processes". All other
//! processes then only send and receive messages.

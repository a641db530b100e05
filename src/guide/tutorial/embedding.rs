//! Chapter 6: processes inside tokio, smol and axum.
//!
//! A program with sockets does not need another runtime: with the feature `net`, the module `net` of this crate
//! contains sockets. The page `guide::sockets` describes these sockets. This chapter is for programs that use libraries
//! of tokio or smol. This chapter also shows how an application on tokio or smol can use processes.
//!
//! A process may await any future. Some futures need another runtime, for example the sockets and timers of tokio need
//! the runtime of tokio. There are two ways to combine a runtime of this crate with another runtime:
//!
//! | | own workers | guest |
//! |---|---|---|
//! | build | [`Runtime::builder`](crate::Runtime::builder), with the context of the other runtime on each worker | [`workers(0)`](crate::Builder::workers) |
//! | processes run on | the worker threads of this runtime | the threads of the other runtime, inside [`Runtime::run`](crate::Runtime::run) |
//! | threads | the threads of both runtimes | the threads of the other runtime |
//! | choose it for | servers, computations | tests, tools, single-threaded programs, event loops of a user interface |
//!
//! If the runtime has its own workers, the sockets of tokio and smol cost more than the sockets of this crate. The
//! reactor of tokio or smol wakes the process from another thread, so each wake-up costs a switch between threads. In a
//! guest runtime, a helper thread polls the sockets of this crate. Therefore, in a guest runtime, each wake-up by a
//! socket of this crate also costs a switch between threads.
//!
//! With both ways to combine the runtimes, the tasks of the other runtime can spawn processes, send messages, call
//! processes, and wait for exits. These tasks need a [`Host`](crate::Host), which is cheap to clone and works on any
//! thread.
//!
//! The programs of this chapter need the crates `tokio` and `smol`:
//!
//! ```text
//! cargo add --path ../procession --features tokio
//! cargo add tokio --features full
//! cargo add smol
//! ```
//!
//! # tokio, with workers of the runtime
//!
//! With the feature `tokio`, one line enters the context of tokio on each thread of the runtime:
//!
//! ```
//! # use procession::{Context, Runtime};
//! # #[cfg(feature = "tokio")]
//! # #[tokio::main]
//! # async fn main() -> procession::Result {
//! let rt = Runtime::builder().tokio(tokio::runtime::Handle::current()).build()?;
//! # rt.spawn(async |_: Context| tokio::time::sleep(std::time::Duration::from_millis(1)).await).await?;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "tokio"))]
//! # fn main() {}
//! ```
//!
//! With this context, `tokio::net`, `tokio::time`, and libraries that use these modules work in every process of the
//! runtime. If the tokio runtime has the flavor `current_thread`, one thread must stay in `block_on` of the tokio
//! runtime. Inside this `block_on`, the thread must not block, in particular not in `block_on` of this crate. Otherwise
//! tokio's timers and sockets never become ready.
//!
//! Without the feature `tokio`, use [`wrap_threads`](crate::Builder::wrap_threads), which works for any other runtime.
//! This method wraps the workers and the threads of the blocking pool. `wrap_threads` does not wrap a thread inside
//! [`block_on`](crate::Runtime::block_on) or [`run`](crate::Runtime::run). A thread inside `block_on` or `run` also
//! runs processes, so the code of the program must enter the context on this thread. In this program, `#[tokio::main]`
//! has entered the context:
//!
//! ```
//! use procession::{Context, Exit, Reply, Runtime};
//! use std::time::Duration;
//! use tokio::net::UdpSocket;
//! use tokio::runtime::Handle;
//!
//! enum Msg {
//!     Count(Reply<u64>),
//! }
//!
//! /// Returns each datagram to its sender, and counts the datagrams.
//! async fn echo(mut ctx: Context<Msg>, socket: UdpSocket) -> Result<(), Exit> {
//!     let mut buffer = [0; 1500];
//!     let mut count = 0;
//!     loop {
//!         tokio::select! {
//!             message = ctx.receive() => {
//!                 let Msg::Count(reply) = message?;
//!                 reply.send(count);
//!             }
//!             received = socket.recv_from(&mut buffer) => {
//!                 let (length, sender) = received?;
//!                 socket.send_to(&buffer[..length], sender).await?;
//!                 count += 1;
//!             }
//!         }
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> procession::Result {
//!     let tokio = Handle::current();
//!     let rt = Runtime::builder()
//!         .wrap_threads(move |work| {
//!             let _context = tokio.enter();
//!             work();
//!         })
//!         .build()?;
//!
//!     let socket = UdpSocket::bind("127.0.0.1:0").await?;
//!     let server = socket.local_addr()?;
//!     let echo = rt.spawn(move |ctx| echo(ctx, socket));
//!
//!     let client = UdpSocket::bind("127.0.0.1:0").await?;
//!     client.send_to(b"hello", server).await?;
//!     let mut buffer = [0; 1500];
//!     let (length, _) = client.recv_from(&mut buffer).await?;
//!     assert_eq!(&buffer[..length], b"hello");
//!     assert_eq!(echo.call(Msg::Count).await?, 1);
//!
//!     let report = rt.shutdown(Duration::from_secs(5)).await;
//!     assert!(report.left.is_empty());
//!     Ok(())
//! }
//! ```
//!
//! Both `receive` and `recv_from` are cancel safe, so `select!` loses neither messages nor datagrams.
//!
//! A program without `#[tokio::main]` creates the tokio runtime with `tokio::runtime::Builder`, and enters the handle
//! of this tokio runtime instead of `Handle::current()`. The program must keep the tokio runtime alive. If the program
//! calls `block_on` of this crate, the calling thread must also enter the context: `let _context = tokio.enter();`.
//!
//! If a task of tokio needs the result of a future of this crate, the task should await the future. The task should not
//! pass the future to `block_on` of this crate. If the task must call `block_on`, wrap the call in
//! `tokio::task::block_in_place`. Otherwise the call may wait forever for another task of tokio that was just spawned
//! on the same thread: see [`Runtime::block_on`](crate::Runtime::block_on). Without the feature `tokio`, also wrap the
//! call in `tokio::task::unconstrained`.
//!
//! # tokio, as a guest
//!
//! A runtime with 0 workers starts no worker thread. When tokio polls the future of [`run`](crate::Runtime::run), this
//! future runs the processes:
//!
//! ```
//! use procession::{Context, Exit, Runtime};
//! use std::time::Duration;
//!
//! async fn job(_: Context) -> Result<u32, Exit> {
//!     tokio::time::sleep(Duration::from_millis(1)).await;
//!     Ok(42)
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> procession::Result {
//!     let rt = Runtime::builder().workers(0).build()?;
//!     let answer = rt.run(rt.spawn(job)).await?;
//!     assert_eq!(answer, 42);
//!     Ok(())
//! }
//! ```
//!
//! If no thread is inside `run` or [`block_on`](crate::Runtime::block_on), the runtime runs no process. A poll of `run`
//! ends after 200 steps or 100 µs, so that the other tasks of the executor also run.
//!
//! The future of `run` borrows the runtime. If the processes must run as long as the program, put the runtime into an
//! `Arc`, and move a clone of the `Arc` into the task. Pass a future that resolves at the end of the program:
//!
//! ```
//! use procession::{Context, Exit, Runtime};
//! use std::sync::Arc;
//!
//! #[tokio::main]
//! async fn main() -> procession::Result {
//!     let rt = Arc::new(Runtime::builder().workers(0).build()?);
//!     let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
//!     let guest = Arc::clone(&rt);
//!     let guest = tokio::spawn(async move { guest.run(stopped).await });
//!
//!     // Meanwhile, each task of tokio can use the processes.
//!     let answer = rt.spawn(async |_: Context| Ok::<_, Exit>(42)).await?;
//!     assert_eq!(answer, 42);
//!
//!     let _ = stop.send(());
//!     let _ = guest.await?;
//!     Ok(())
//! }
//! ```
//!
//! # smol
//!
//! The sockets and timers of smol need no context, because smol's reactor has its own thread. Processes on any worker
//! can use these sockets and timers:
//!
//! ```
//! use procession::{Context, Exit, Runtime};
//! use smol::net::UdpSocket;
//!
//! async fn receiver(_: Context, socket: UdpSocket) -> Result<Vec<u8>, Exit> {
//!     let mut buffer = vec![0; 1500];
//!     let (length, _) = socket.recv_from(&mut buffer).await?;
//!     buffer.truncate(length);
//!     Ok(buffer)
//! }
//!
//! fn main() -> procession::Result {
//!     smol::block_on(async {
//!         let rt = Runtime::new()?;
//!         let socket = UdpSocket::bind("127.0.0.1:0").await?;
//!         let to = socket.local_addr()?;
//!         let receiver = rt.spawn(move |ctx| receiver(ctx, socket));
//!         UdpSocket::bind("127.0.0.1:0").await?.send_to(b"hello", to).await?;
//!         assert_eq!(receiver.await?, b"hello");
//!         Ok(())
//!     })
//! }
//! ```
//!
//! If the runtime has no workers, let smol poll the future of `run`: `smol::block_on(rt.run(future))`.
//!
//! # axum, and other web frameworks
//!
//! Keep a [`Host`](crate::Host) in the state of the application. Each request handler then calls a process by the name
//! of the process. In the following program, the function `hit` is the request handler. This function does not use the
//! types of a framework:
//!
//! ```
//! use procession::{CallError, Context, Exit, Host, Name, Reply, Runtime};
//! use std::time::Duration;
//!
//! enum Msg {
//!     Hit(Reply<u64>),
//! }
//!
//! const HITS: Name<Msg> = Name::new("hits");
//!
//! async fn hits(mut ctx: Context<Msg>) -> Result<(), Exit> {
//!     let mut count = 0;
//!     loop {
//!         let Msg::Hit(reply) = ctx.receive().await?;
//!         count += 1;
//!         reply.send(count);
//!     }
//! }
//!
//! async fn hit(host: Host) -> Result<String, CallError> {
//!     let count = host.call(HITS, Msg::Hit).timeout(Duration::from_secs(1)).await?;
//!     Ok(format!("hit {count}"))
//! }
//!
//! #[tokio::main]
//! async fn main() -> procession::Result {
//!     let rt = Runtime::new()?;
//!     rt.process().name(HITS).spawn(hits)?;
//!
//!     // A framework spawns one task for each request.
//!     let first = tokio::spawn(hit(rt.host().clone())).await??;
//!     let second = tokio::spawn(hit(rt.host().clone())).await??;
//!     assert_eq!((first.as_str(), second.as_str()), ("hit 1", "hit 2"));
//!
//!     rt.shutdown(Duration::from_secs(5)).await;
//!     Ok(())
//! }
//! ```
//!
//! With axum, the request handler and the server look as follows. The repository has the whole program, with a test, in
//! the file `examples/apps/bridges/src/bin/axum_server.rs`:
//!
//! ```text
//! async fn hit(State(host): State<Host>) -> Result<String, StatusCode> {
//!     match host.call(HITS, Msg::Hit).timeout(Duration::from_secs(1)).await {
//!         Ok(count) => Ok(format!("hit {count}")),
//!         Err(_) => Err(StatusCode::SERVICE_UNAVAILABLE),
//!     }
//! }
//!
//! async fn serve(rt: Runtime, listener: TcpListener, stop: impl Future<Output = ()> + Send + 'static) -> Result {
//!     let app = Router::new().route("/", get(hit)).with_state(rt.host().clone());
//!     axum::serve(listener, app).with_graceful_shutdown(stop).await?;
//!     let report = rt.shutdown(Duration::from_secs(10)).await;
//!     assert!(report.left.is_empty(), "{report:?}");
//!     Ok(())
//! }
//! ```
//!
//! The future `stop` completes when the program must end. For example, this future awaits `tokio::signal::ctrl_c()` and
//! ignores the result. The server stops before the runtime. Therefore no request reaches a runtime that has shut down.
//!
//! Next: [tests in virtual time](super::testing).

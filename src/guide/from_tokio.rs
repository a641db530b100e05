//! For users of tokio. This page lists the terms of tokio and their counterparts in this crate.
//!
//! A process is a task with a mailbox, a pid and an exit. A common pattern of tokio is a task that owns a state and
//! reads requests from an mpsc channel. Each request contains a oneshot sender. In this crate, the counterpart of a
//! task with a state and a channel is a process that answers calls:
//!
//! ```
//! use procession::{Context, Exit, Reply};
//!
//! // With tokio: enum Msg { Get(oneshot::Sender<u64>) }, mpsc::channel, tokio::spawn, and a struct around these parts.
//! enum Msg {
//!     Add(u64),
//!     Get(Reply<u64>),
//! }
//!
//! async fn counter(mut ctx: Context<Msg>) -> Result<(), Exit> {
//!     let mut count = 0;
//!     loop {
//!         match ctx.receive().await? {
//!             Msg::Add(n) => count += n,
//!             Msg::Get(reply) => reply.send(count),
//!         }
//!     }
//! }
//!
//! async fn app(ctx: Context) -> Result<(), Exit> {
//!     let counter = ctx.spawn(counter);
//!     counter.send(Msg::Add(2))?;
//!     assert_eq!(counter.call(Msg::Get).await?, 2);
//!     counter.abort();
//!     Ok(())
//! }
//!
//! fn main() -> Result<(), Exit> {
//!     procession::run(app)
//! }
//! ```
//!
//! | tokio | here | difference |
//! |---|---|---|
//! | `#[tokio::main]` | [`run`](crate::run), [`Runtime::block_on`](crate::Runtime::block_on) | `main` stays a plain function |
//! | `runtime::Builder` | [`Runtime::builder`](crate::Runtime::builder) | the handlers of commands are also registered with this builder |
//! | `Handle` | [`Host`](crate::Host) | works on any thread; does not keep the runtime alive |
//! | `tokio::spawn(future)` | [`Host::spawn(body)`](crate::Host::spawn), [`SelfHandle::spawn`](crate::SelfHandle::spawn) | a body is a function of a [`Context`](crate::Context). [`Host::spawn_future`](crate::Host::spawn_future) spawns a plain future, which gets no pid |
//! | `JoinHandle` | [`JoinHandle`](crate::JoinHandle) | the handle is also the address of the process. The error of the handle is an [`Exit`](crate::Exit). As in tokio, dropping the handle detaches the process |
//! | `JoinError::is_panic` | [`Exit::Panicked`](crate::Exit::Panicked) | contains the panic message |
//! | `JoinSet` | [`JoinSet`](crate::JoinSet), [`SelfHandle::scope`](crate::SelfHandle::scope) | a scope fails with the first error, and then ends its other processes |
//! | `abort` | [`abort`](crate::JoinHandle::abort), [`Host::kill`](crate::Host::kill) | the process ends at its next scheduling point. If [`cancel`](crate::Host::cancel) is used instead, the process can clean up before its exit |
//! | `mpsc::unbounded_channel` | the mailbox; [`Host::mailbox`](crate::Host::mailbox) outside a process | every [`Address`](crate::Address) is a sender. There is one receiver. Dropping all addresses does not end the process |
//! | `mpsc::channel(n)` | [`MailboxCapacity`](crate::MailboxCapacity) and [`send_wait`](crate::Address::send_wait) | `send` never waits. If the mailbox is full, the policy determines whether the send fails or a message is dropped |
//! | `oneshot` | [`Reply`](crate::Reply), [`call`](crate::Address::call) | if the called process exits before it answers or forwards the `Reply`, the call fails immediately with this exit |
//! | `broadcast` | [`Group`](crate::Group), [`Host::broadcast`](crate::Host::broadcast) | each member has its own mailbox, so a slow member does not affect the others |
//! | `watch`, `Mutex`, `RwLock` | a process that owns the value | the types of `tokio::sync` also work in a process, because they need no tokio runtime |
//! | `Semaphore` | [`layer::ConcurrencyLimit`](crate::handler::layer::ConcurrencyLimit), [`Pool`](crate::Pool) | the limits apply to commands or messages instead of sections of code |
//! | `time::sleep`, `timeout`, `interval` | [`sleep`](crate::SelfHandle::sleep), [`timeout`](crate::SelfHandle::timeout), [`interval`](crate::SelfHandle::interval) | methods of the context, and of the [`Host`](crate::Host) for code outside processes. The first tick of `interval` is due after one period: see below |
//! | `select!` | `tokio::select!`, `futures::select!` | [`receive`](crate::Context::receive) is cancel safe. A dropped [`perform`](crate::SelfHandle::perform) cancels its command |
//! | `spawn_blocking` | [`Host::spawn_blocking`](crate::Host::spawn_blocking), [`handle_blocking`](crate::Builder::handle_blocking) | by default, the pool has at most 64 threads, and at most 65,536 closures wait. If both limits are reached, the pool refuses a new closure |
//! | `block_in_place` | [`block_in_place`](crate::block_in_place) | `block_in_place` works on every thread, and other processes and sockets continue. If a step blocks without this function, the monitor detects the step after 10 to 20 ms |
//! | `task::yield_now` | [`yield_now`](crate::SelfHandle::yield_now) | |
//! | `task::coop` | [`should_yield`](crate::should_yield), [`cooperative`](crate::cooperative()) | the budget of a turn is 128 units. [`should_yield`](crate::should_yield) lists the operations that take a unit |
//! | `LocalSet`, `spawn_local` | [`LocalSet`](crate::LocalSet) | [`Runtime::local_set`](crate::Runtime::local_set) makes a `LocalSet` |
//! | `CancellationToken` | [`CancelToken`](crate::CancelToken) | a cancellation has a reason and a grace period. Spawned processes inherit the token. [`run_until_cancelled`](crate::SelfHandle::run_until_cancelled) returns an error after the cancellation, and `?` leaves the body |
//! | `task_local!` | [`ProcessBuilder::value`](crate::ProcessBuilder::value), [`SelfHandle::value`](crate::SelfHandle::value) | spawned processes inherit the value |
//! | `TaskTracker`, `shutdown_timeout` | [`Runtime::shutdown`](crate::Runtime::shutdown) | the shutdown cancels the processes in order, and reports the processes that did not exit |
//! | `tokio::net::TcpListener`, `TcpStream`, `TcpSocket`, `UdpSocket`, `UnixStream`, … | the types with the same names in `procession::net`, feature `net` | a worker of the runtime polls the sockets; the streams implement the traits of `futures::io` |
//! | `TcpStream::into_split`, `readable`, `try_read`, `try_write` | the same methods | |
//! | `tokio::io::AsyncRead`, `AsyncWrite`, `AsyncReadExt`, `BufReader` | the same names in `futures::io` | `tokio_util::compat` adapts a stream to code that needs the traits of tokio |
//! | `tokio::io::unix::AsyncFd`, `try_io`, `async_io` | `procession::net::Async` | `read_with`, `write_with` |
//! | `tokio::net::lookup_host` | `procession::net::lookup_host` | the lookup runs on the blocking pool, as in tokio |
//! | `tokio::signal::ctrl_c`, `tokio::signal::unix` | `procession::signal::ctrl_c`, `procession::signal::unix`, feature `net` | |
//! | `tokio::fs` | [`spawn_blocking`](crate::Host::spawn_blocking) with `std::fs` | tokio's file functions also run on a blocking pool |
//! | `tokio::process` | `std::process` with [`spawn_blocking`](crate::Host::spawn_blocking), or tokio itself | see [chapter 6](super::tutorial::embedding) of the tutorial |
//! | `#[tokio::test]` | `#[test]` with [`check`](crate::check()), or with [`Runtime::block_on`](crate::Runtime::block_on) | see [chapter 7](super::tutorial::testing) of the tutorial |
//! | `time::pause`, `start_paused` | [`Simulation`](crate::Simulation), [`check`](crate::check()) | a seed also determines the order of the processes |
//! | `RuntimeMetrics`, tokio-console | [`Host::metrics`](crate::Host::metrics), [`RuntimeMetrics`](crate::observe::RuntimeMetrics); the [console](super::console) | |
//!
//! # What surprises tokio users
//!
//! - **The first tick is not immediate.** In tokio, the first tick of `interval` is due immediately. In this crate, the
//!   first tick is due after one period. [`interval_at(ctx.now(), period)`](crate::SelfHandle::interval_at) behaves
//!   like tokio's `interval`. [`MissedTickBehavior`](crate::MissedTickBehavior) has the variants of tokio. In tokio, a
//!   tick that is late by at most 5 ms is not a missed tick. In this crate, only `Delay` has this tolerance, and the
//!   tolerance is at most one period.
//! - **A thread in `block_on` also runs processes.** In tokio's multi-threaded runtime, `block_on` polls only the
//!   future that the program passes to `block_on`. In this crate, the thread also runs processes between two polls of
//!   this future. A long step on this thread delays the future.
//! - **Messages of a process may stay unread.** A send to an [`Address`](crate::Address) of an exited process returns
//!   an error, like a send to a closed channel of tokio. But if a process exits before the process reads an accepted
//!   message, this message becomes a dead letter: [`Host::dead_letters`](crate::Host::dead_letters).
//! - **`?` on `receive` ends a process.** A tokio task usually ends when its channel is closed. A process usually ends
//!   when it is cancelled, because `receive` then returns an error.
//! - **A failure is not silent.** If no join handle, link, monitor or supervisor receives the exit of a failed process,
//!   the runtime reports the failure on stderr.
//! - **The drop of a runtime does not wait for blocking closures.** tokio's drop waits for closures of `spawn_blocking`
//!   that have begun. If the result matters, await the future of the closure before you drop the runtime. If the future
//!   of a closure is dropped before the closure begins, the closure never runs: see
//!   [`Blocking::detach`](crate::future::Blocking::detach).
//! - **`block_on` inside a process does not panic.** `block_on` blocks the worker until the future completes. Use
//!   `await` instead of `block_on`.
//! - **`block_on` inside a task of tokio does not panic.** On a worker thread of tokio, the call may wait forever for a
//!   task of tokio that was just spawned on this thread. Wrap the call in `tokio::task::block_in_place`, or await
//!   [`Runtime::run`](crate::Runtime::run).
//! - **Calls have no time limit by default.** If two processes call each other at the same time, both processes wait
//!   forever. To limit this wait, use [`Call::timeout`](crate::future::Call::timeout).

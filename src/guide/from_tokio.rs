//! Coming from tokio: the terms for tasks, channels and utilities, and their counterparts here.
//!
//! A process is a task with a mailbox, a pid and an exit. A common pattern of tokio is a task that owns a state and
//! reads requests from an mpsc channel, each with a oneshot sender. Here this task becomes a process that answers
//! calls:
//!
//! ```
//! use procession::{Context, Exit, Reply};
//!
//! // With tokio: enum Msg { Get(oneshot::Sender<u64>) }, mpsc::channel, tokio::spawn, and a struct that hides both.
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
//! | `runtime::Builder` | [`Runtime::builder`](crate::Runtime::builder) | handlers of commands are registered here too |
//! | `Handle` | [`Host`](crate::Host) | works on any thread; does not keep the runtime alive |
//! | `tokio::spawn(future)` | [`Host::spawn(body)`](crate::Host::spawn), [`SelfHandle::spawn`](crate::SelfHandle::spawn) | a body is a function of a [`Context`](crate::Context). `Host` also implements `futures::task::Spawn`, for plain futures without a pid |
//! | `JoinHandle` | [`JoinHandle`](crate::JoinHandle) | the handle is also the address of the process. Its error is an [`Exit`](crate::Exit). As in tokio, dropping the handle detaches the process |
//! | `JoinError::is_panic` | [`Exit::Panicked`](crate::Exit::Panicked) | contains the panic message |
//! | `JoinSet` | [`JoinSet`](crate::JoinSet), [`SelfHandle::scope`](crate::SelfHandle::scope) | a scope fails with the first error, and then ends its other processes |
//! | `abort` | [`abort`](crate::JoinHandle::abort), [`Host::kill`](crate::Host::kill) | the process ends at its next scheduling point. [`cancel`](crate::Host::cancel) lets it clean up first |
//! | `mpsc::unbounded_channel` | the mailbox; [`Host::mailbox`](crate::Host::mailbox) outside a process | every [`Address`](crate::Address) is a sender. There is one receiver. Dropping all addresses does not end the process |
//! | `mpsc::channel(n)` | [`MailboxCapacity`](crate::MailboxCapacity) and [`send_wait`](crate::Address::send_wait) | `send` never waits: if the mailbox is full, the policy decides whether the send fails or a message is dropped |
//! | `oneshot` | [`Reply`](crate::Reply), [`call`](crate::Address::call) | if the receiver of the request exits, the call fails immediately with its exit |
//! | `broadcast` | [`Group`](crate::Group), [`Host::broadcast`](crate::Host::broadcast) | each member has its own mailbox, so a slow member does not affect the others |
//! | `watch`, `Mutex`, `RwLock` | a process that owns the value | the types of `tokio::sync` also work in a process, because they need no tokio runtime |
//! | `Semaphore` | [`layer::ConcurrencyLimit`](crate::handler::layer::ConcurrencyLimit), [`Pool`](crate::Pool) | they limit commands or messages, not sections of code |
//! | `time::sleep`, `timeout`, `interval` | [`sleep`](crate::SelfHandle::sleep), [`timeout`](crate::SelfHandle::timeout), [`interval`](crate::SelfHandle::interval) | these are methods of the context. In a simulation the clock is virtual. [`MissedTickBehavior`](crate::MissedTickBehavior) has the variants of tokio |
//! | `select!` | `tokio::select!`, `futures::select!` | [`receive`](crate::Context::receive) is cancel safe. A dropped [`perform`](crate::SelfHandle::perform) cancels its command |
//! | `spawn_blocking` | [`Host::spawn_blocking`](crate::Host::spawn_blocking), [`handle_blocking`](crate::Builder::handle_blocking) | at most 64 threads and 65,536 waiting closures by default; beyond that, the closure is refused |
//! | `block_in_place` | [`block_in_place`](crate::block_in_place) | it never panics. If a step blocks without it, the monitor notices the step after 10 to 20 ms |
//! | `task::yield_now` | [`yield_now`](crate::SelfHandle::yield_now) | |
//! | `task::coop` | [`should_yield`](crate::should_yield), [`cooperative`](crate::cooperative()) | the budget of a turn is 128. Each received message uses one unit of it |
//! | `LocalSet`, `spawn_local` | [`LocalSet`](crate::LocalSet) | made by [`Runtime::local_set`](crate::Runtime::local_set) |
//! | `CancellationToken` | [`CancelToken`](crate::CancelToken) | a cancellation has a reason and a grace period. Spawned processes inherit the token |
//! | `task_local!` | [`ProcessBuilder::value`](crate::ProcessBuilder::value), [`SelfHandle::value`](crate::SelfHandle::value) | spawned processes inherit the value |
//! | `TaskTracker`, `shutdown_timeout` | [`Runtime::shutdown`](crate::Runtime::shutdown) | cancels the processes in order, and reports the processes that did not exit |
//! | `tokio::net`, `tokio::fs`, `tokio::process` | a command, or tokio itself | see [chapter 6](super::tutorial::embedding) of the tutorial |
//! | `time::pause`, `start_paused` | [`Simulation`](crate::Simulation), [`check`](crate::check()) | a seed also determines the order of the processes |
//! | `RuntimeMetrics` | [`Counters`](crate::observe::Counters), [`Observer`](crate::Observer) | |
//!
//! # What surprises tokio users
//!
//! - **Messages of a process may stay unread.** If the receiver has exited, a send to an [`Address`](crate::Address)
//!   returns an error, as a send to a tokio channel does. But if a message was accepted before the exit and was not
//!   read, it becomes a dead letter: [`Host::dead_letters`](crate::Host::dead_letters).
//! - **`?` on `receive` ends a process.** A tokio task usually ends when its channel is closed. A process usually ends
//!   when it is cancelled: `receive` then returns an error.
//! - **A failure is not silent.** If no join handle, link, monitor or supervisor receives the exit of a failed process,
//!   the runtime reports it on stderr.
//! - **`block_on` inside a process does not panic.** It blocks the worker until the future completes. Use `await`
//!   instead.
//! - **Calls have no time limit by default.** If two processes call each other, both wait for ever. Use
//!   [`Call::timeout`](crate::future::Call::timeout).

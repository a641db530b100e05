//! Chapter 3: commands, handlers, and the path of a command.
//!
//! A process uses a *command* to ask the outside world for work, for example to read a file or to fetch a page. The
//! process *yields* the command: the process passes the command to the runtime, and waits for the answer. A *handler*
//! executes the command. Handlers are registered when the runtime is built, and not in the process. Therefore the same
//! process can run with real handlers in production, and with simple functions in a test.
//!
//! A command is a type that implements `Command`. The associated type `Reply` is the type of the answer:
//!
//! ```
//! use procession::{Command, Completion, Context, Failure, Runtime};
//! use std::time::Duration;
//!
//! struct Add(u64, u64);
//! impl Command for Add {
//!     type Reply = u64;
//! }
//!
//! struct ReadFile(&'static str);
//! impl Command for ReadFile {
//!     type Reply = String;
//! }
//!
//! struct Fetch(&'static str);
//! impl Command for Fetch {
//!     type Reply = usize;
//! }
//!
//! struct Measure;
//! impl Command for Measure {
//!     type Reply = f64;
//! }
//!
//! async fn body(ctx: Context) -> Result<u64, Failure> {
//!     let sum = ctx.perform(Add(1, 2)).await?;
//!
//!     // A failure is a value. The operator `?` would instead end the process with this failure.
//!     let missing = ctx.perform(ReadFile("no such file")).await;
//!     assert!(matches!(missing, Err(Failure::Error(_))));
//!
//!     // Two commands are in flight at the same time.
//!     let (page, measured) = futures::join!(ctx.perform(Fetch("a/b")), ctx.perform(Measure));
//!     assert_eq!((page?, measured?), (3, 0.5));
//!     Ok(sum)
//! }
//!
//! fn main() -> procession::Result {
//!     let rt = Runtime::builder()
//!         // The function runs on the worker of the process, and must be short.
//!         .handle(|c: Add| c.0 + c.1)
//!         // The closure runs on a thread of the blocking pool.
//!         .handle_blocking(|c: ReadFile| std::fs::read_to_string(c.0))
//!         // The runtime runs the future.
//!         .handle_async(async |c: Fetch| c.0.len())
//!         // Any thread may answer later, through the completion.
//!         .handler(|_: Measure, completion: Completion<f64>| {
//!             std::thread::spawn(move || {
//!                 std::thread::sleep(Duration::from_millis(1));
//!                 completion.complete(0.5);
//!             });
//!         })
//!         .build()?;
//!     assert_eq!(rt.block_on(rt.spawn(body))?, 3);
//!     Ok(())
//! }
//! ```
//!
//! | method of the builder | the command is answered | use it for |
//! |---|---|---|
//! | [`handle`](crate::Builder::handle) | by a function, immediately, on the worker | lookups, arithmetic |
//! | [`handle_async`](crate::Builder::handle_async) | by a future, which the runtime runs | work that waits |
//! | [`handle_blocking`](crate::Builder::handle_blocking) | by a closure on the blocking pool | files, databases, long computations |
//! | [`handler`](crate::Builder::handler) | by a [`Completion`](crate::Completion), later, from any thread | other threads, callbacks, devices |
//! | [`handle_stream`](crate::Builder::handle_stream) | by many items, then an answer | rows, chunks, subscriptions |
//!
//! A handler returns the reply or a `Result`. An error in the `Result` becomes the [`Failure`](crate::Failure). A panic
//! in a handler also becomes a failure, and does not end the process.
//!
//! A handler often uses a client or a pool of connections. An async handler is a closure that returns a future, and the
//! future must not borrow from the closure. Therefore the closure clones the client for each command:
//!
//! ```
//! use procession::{Command, Context, Runtime};
//! use std::sync::Arc;
//!
//! struct Query(&'static str);
//! impl Command for Query {
//!     type Reply = usize;
//! }
//!
//! /// A client, as database crates provide it. A clone is cheap.
//! #[derive(Clone)]
//! struct Client(Arc<str>);
//!
//! impl Client {
//!     async fn fetch(&self, query: &str) -> usize {
//!         self.0.len() + query.len()
//!     }
//! }
//!
//! fn main() -> procession::Result {
//!     let client = Client("database".into());
//!     let rt = Runtime::builder()
//!         .handle_async(move |query: Query| {
//!             let client = client.clone();
//!             async move { client.fetch(query.0).await }
//!         })
//!         .build()?;
//!     let rows = rt.spawn(async |ctx: Context| ctx.perform(Query("select")).await);
//!     assert_eq!(rt.block_on(rows)?, 14);
//!     Ok(())
//! }
//! ```
//!
//! If a handler needs the [`Host`](crate::Host), use [`handler`](crate::Builder::handler). The
//! [`Completion`](crate::Completion) of the command has the method [`host`](crate::Completion::host).
//!
//! # The path of a command
//!
//! <div>
#![doc = include_str!("../life-of-a-yield.svg")]
//! </div>
//!
//! 1. `perform` returns a future. The first poll of this future yields the command. The runtime issues a *tag*, which
//!    identifies the outstanding command.
//! 2. The runtime passes the command to its handler, with a `Completion`.
//! 3. The handler completes the command with a reply or with a failure. A second answer is impossible, because the
//!    first answer consumes the `Completion`.
//! 4. The future resolves. In a hand-written process, [`Event::Completed`](crate::Event::Completed) arrives with the
//!    tag.
//!
//! A command can also end without a reply:
//!
//! - If no handler is registered for the type of the command, the process gets
//!   [`Failure::NoHandler`](crate::Failure::NoHandler). Neither the compiler nor `build` checks that each command has a
//!   handler.
//! - If the handler drops the `Completion`, the process gets [`Failure::Abandoned`](crate::Failure::Abandoned).
//! - If the time limit of [`Perform::timeout`](crate::future::Perform::timeout) passes, the process gets
//!   [`Failure::TimedOut`](crate::Failure::TimedOut).
//! - If the process drops the future or exits, the command is cancelled, and a later answer is discarded. For example,
//!   `select!` drops the futures that do not complete first. With [`Perform::detach`](crate::future::Perform::detach),
//!   the process drops the future, but the command continues, and the answer of the command is discarded.
//!
//! A command is cancelled if its time limit passes, if its future is dropped, or if the process that performs the
//! command exits. The handler can detect the cancellation: [`is_cancelled`](crate::Completion::is_cancelled) returns
//! true, and [`cancelled`](crate::Completion::cancelled) resolves.
//!
//! # Limits around a handler
//!
//! The module [`layer`](crate::handler::layer) contains handlers that wrap another handler. A layer adds a time limit,
//! retries, a limit of concurrency, or a rate limit.
//!
//! # A call or a command?
//!
//! | | call | command |
//! |---|---|---|
//! | the answer comes from | a process, which has an address | a handler, which the runtime finds by the type of the command |
//! | requests wait | in the mailbox of the process | in no mailbox: each request goes to its handler immediately. A request for a handler of `handle_blocking` waits in the queue of the blocking pool while all threads of the pool are busy. A layer can also delay a request |
//! | state | the process owns its state | all workers share a handler, so a handler must be `Sync` |
//! | replacement in a test | another process | another handler |
//!
//! Next: [failure and supervision](super::failure).

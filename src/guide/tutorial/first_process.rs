//! Chapter 1: a runtime, a process, and the result of the process.
//!
//! The crate is not on crates.io yet. Create a project next to a copy of the repository, and add the crate as a
//! dependency. The later chapters also need the crate `futures`:
//!
//! ```text
//! cargo new greeting
//! cd greeting
//! cargo add --path ../procession
//! cargo add futures
//! ```
//!
//! Replace the text of `src/main.rs` with this program, and start the program with `cargo run`:
//!
//! ```
//! use procession::{Context, Exit, Runtime};
//!
//! async fn greeter(mut ctx: Context<String>) -> Result<usize, Exit> {
//!     let mut greeted = 0;
//!     while greeted < 2 {
//!         let name = ctx.receive().await?;
//!         println!("hello, {name}");
//!         greeted += 1;
//!     }
//!     Ok(greeted)
//! }
//!
//! fn main() -> procession::Result {
//!     let rt = Runtime::new()?;
//!     let greeter = rt.spawn(greeter);
//!     greeter.send("Ada".into())?;
//!     greeter.send("Grace".into())?;
//!     assert_eq!(rt.block_on(greeter)?, 2);
//!     Ok(())
//! }
//! ```
//!
//! - [`Runtime::new`](crate::Runtime::new) starts one worker thread for each core, but at most 40 worker threads.
//! - [`spawn`](crate::Host::spawn) starts a process. The *body* of a process is an async function with a
//!   [`Context`](crate::Context) as its first argument. The type parameter of the context is the type of the messages
//!   that the process receives. `spawn` returns immediately; a worker runs the body.
//! - Every process has a *mailbox*. [`send`](crate::Address::send) appends a message to the mailbox and never waits.
//!   [`receive`](crate::Context::receive) takes the oldest message, and waits if the mailbox is empty.
//! - `spawn` returns a [`JoinHandle`](crate::JoinHandle). The handle is a future that resolves to the result of the
//!   process. The handle is also the address of the process, so messages can be sent to the handle.
//! - [`block_on`](crate::Runtime::block_on) runs a future on the calling thread until the future completes. Between the
//!   polls of the future, this thread also runs processes.
//!
//! A process owns its local variables. No other process can access these variables, so the variables need no lock. A
//! waiting process uses no thread and about 300 bytes of memory. Therefore a program can have millions of processes.
//!
//! # How a process ends
//!
//! A process *exits* when its body returns. A body returns either `()` or a `Result`. The error type of the `Result` is
//! [`Exit`](crate::Exit), or any type that converts into a boxed error. The [exit](crate::Exit) of a process states how
//! the process ended. For example, the process returned normally, returned an error, panicked, was cancelled, or was
//! killed. A panic ends only the process that panicked:
//!
//! ```
//! use procession::{Context, Exit, Runtime};
//!
//! async fn divide(_: Context, by: u64) -> Result<u64, Exit> {
//!     Ok(100 / by)
//! }
//!
//! fn main() -> procession::Result {
//!     let rt = Runtime::new()?;
//!     let good = rt.spawn(|ctx| divide(ctx, 4));
//!     let bad = rt.spawn(|ctx| divide(ctx, 0));
//!     assert_eq!(rt.block_on(good)?, 25);
//!     assert!(matches!(rt.block_on(bad), Err(Exit::Panicked(_))));
//!     Ok(())
//! }
//! ```
//!
//! The type of the error decides what `?` accepts in the body:
//!
//! | the body returns | `?` accepts |
//! |---|---|
//! | `Result<T, Exit>` | most errors of this crate, `std::io::Error` and `BoxError`. For another error: `.map_err(Exit::failed)?` |
//! | `Result<T, BoxError>` | all errors. [`procession::Result<T>`](crate::Result) is this type, and `T` is `()` by default |
//! | `Result<T, MyError>` | the errors that convert into `MyError` |
//!
//! The error of a join handle is always an [`Exit`](crate::Exit). [`Exit::error`](crate::Exit::error) returns the error
//! of the body, for example `exit.error::<MyError>()`.
//!
//! If a body has further arguments, spawn the body with a closure, as in the program above. The closure may capture
//! values, because the closure moves into the process.
//!
//! # Processes that spawn processes
//!
//! The context has methods that spawn processes, send messages, call processes, and sleep. The runtime also has methods
//! for these operations. The type `Context` is an abbreviation of [`Context<Payload>`](crate::Payload). Use the type
//! `Context` for a process that receives messages of any type, or no messages:
//!
//! ```
//! use procession::{Context, Exit};
//!
//! async fn square(_: Context, n: u64) -> Result<u64, Exit> {
//!     Ok(n * n)
//! }
//!
//! async fn sum(ctx: Context) -> Result<u64, Exit> {
//!     let squares: Vec<_> = (1..=10).map(|n| ctx.spawn(move |ctx| square(ctx, n))).collect();
//!     let mut sum = 0;
//!     for square in squares {
//!         sum += square.await?;
//!     }
//!     Ok(sum)
//! }
//!
//! fn main() -> Result<(), Exit> {
//!     assert_eq!(procession::run(sum)?, 385);
//!     Ok(())
//! }
//! ```
//!
//! [`run`](crate::run) builds a runtime, runs one body as a process, and returns the result of the process.
//!
//! # States of a process
//!
//! <div>
#![doc = include_str!("../process-states.svg")]
//! </div>
//!
//! A *worker* is a thread of the runtime. While a process waits for a worker, the process is *ready*. While a worker
//! runs the process, the process is *running*. A waiting process is *blocked* if an operation of the runtime is
//! outstanding, for example a call, a command or a sleep. Any other waiting process is *idle*, for example a process
//! that waits for a message or for a future of another crate. A blocked process blocks no thread. Chapter 3 explains
//! commands.
//!
//! The other pages use these terms:
//!
//! - A *step* is one poll of the body. A step ends when the body returns, or awaits a future that is not ready.
//! - A *turn* is one poll of the task of a process. Usually a turn has one step.
//! - The *budget* limits the work of one turn: see [`should_yield`](crate::should_yield).
//!
//! Next: [messages and calls](super::messages).

//! Chapter 5: timers, time limits, cancellation, and shutdown.
//!
//! # Timers
//!
//! ```
//! use procession::{Context, Exit, Failure, Runtime};
//! use std::time::Duration;
//!
//! async fn body(mut ctx: Context<&'static str>) -> Result<(), Exit> {
//!     let begun = ctx.now();
//!     ctx.sleep(Duration::from_millis(2)).await;
//!     assert!(ctx.now() - begun >= Duration::from_millis(2));
//!
//!     let mut ticks = ctx.interval(Duration::from_millis(1));
//!     ticks.tick().await;
//!     ticks.tick().await;
//!
//!     // A message to this process itself. The exit of this process cancels the timer.
//!     ctx.send_after(Duration::from_millis(1), ctx.pid(), "reminder");
//!     assert_eq!(ctx.receive().await?, "reminder");
//!
//!     // A time limit for any future.
//!     let limited = ctx.timeout(Duration::from_millis(1), std::future::pending::<()>());
//!     assert!(matches!(limited.await, Err(Failure::TimedOut)));
//!     Ok(())
//! }
//!
//! fn main() -> procession::Result {
//!     let rt = Runtime::new()?;
//!     rt.block_on(rt.spawn(body))?;
//!     Ok(())
//! }
//! ```
//!
//! Use the clock of the runtime ([`now`](crate::SelfHandle::now)) instead of `std::time::Instant::now()`. In a
//! simulation, the clock of the runtime is virtual: see chapter 7.
//!
//! [`receive_timeout`](crate::Context::receive_timeout) waits for a message for a limited time. Calls and commands have
//! their own methods for a time limit: [`Call::timeout`](crate::future::Call::timeout) and
//! [`Perform::timeout`](crate::future::Perform::timeout). If the time limit of a command passes, the handler of the
//! command can detect the cancellation.
//!
//! # Cancellation
//!
//! [`cancel`](crate::Host::cancel) asks a process to exit, and gives the process a grace period. After the request,
//! [`receive`](crate::Context::receive) returns an error, and `?` leaves the body. During the grace period, the
//! process can still send, call, and perform commands, for example to save its state. If the process has not exited
//! after the grace period, the process is killed.
//!
//! ```
//! use procession::{Context, Exit, Reason, Reply, Runtime};
//! use std::time::Duration;
//!
//! async fn counter(mut ctx: Context<(u64, Reply<u64>)>) -> Result<u64, Exit> {
//!     let mut sum = 0;
//!     while let Ok((n, reply)) = ctx.receive().await {
//!         sum += n;
//!         reply.send(sum);
//!     }
//!     // The process was cancelled. The process returns its result instead of the error.
//!     Ok(sum)
//! }
//!
//! async fn waiting(ctx: Context) -> Result<(), Exit> {
//!     // This body does not wait for messages, so the body itself waits for the cancellation.
//!     let reason = ctx.cancelled().await;
//!     Err(Exit::Cancelled(reason))
//! }
//!
//! fn main() -> procession::Result {
//!     let rt = Runtime::new()?;
//!     let (counter, waiting) = (rt.spawn(counter), rt.spawn(waiting));
//!     rt.block_on(counter.call(|reply| (7, reply)))?;
//!     rt.cancel(counter.pid(), "enough", Duration::from_secs(1))?;
//!     rt.cancel(waiting.pid(), Reason::REQUESTED, Duration::from_secs(1))?;
//!     assert_eq!(rt.block_on(counter)?, 7);
//!     assert!(matches!(rt.block_on(waiting), Err(Exit::Cancelled(_))));
//!     Ok(())
//! }
//! ```
//!
//! | what must end | use |
//! |---|---|
//! | one process, after its clean-up | [`Host::cancel`](crate::Host::cancel) |
//! | one process, at its next scheduling point | [`Host::kill`](crate::Host::kill), [`JoinHandle::abort`](crate::JoinHandle::abort) |
//! | a process and its descendants | a [`CancelToken`](crate::CancelToken) |
//! | the children of one piece of work | [`SelfHandle::scope`](crate::SelfHandle::scope) |
//! | a process at a certain time | [`ProcessBuilder::deadline`](crate::ProcessBuilder::deadline) |
//! | the whole runtime | [`Runtime::shutdown`](crate::Runtime::shutdown) |
//!
//! A process inherits the deadline and the cancel token of the process that spawned it.
//!
//! # Shutdown
//!
//! [`shutdown`](crate::Runtime::shutdown) refuses new work from outside, cancels all processes, and waits for their
//! exits. The shutdown cancels the top-level supervisors first, and each supervisor stops its children. A process or a
//! task that has a host can begin the shutdown with [`Host::shutdown`](crate::Host::shutdown). At the deadline, the
//! shutdown kills the remaining processes, and returns a list of these processes:
//!
//! ```
//! use procession::{Context, Exit, Runtime};
//! use std::time::Duration;
//!
//! async fn server(mut ctx: Context<u64>) -> Result<(), Exit> {
//!     loop {
//!         ctx.receive().await?;
//!     }
//! }
//!
//! fn main() -> procession::Result {
//!     let rt = Runtime::new()?;
//!     for _ in 0..100 {
//!         rt.spawn(server);
//!     }
//!     let report = futures::executor::block_on(rt.shutdown(Duration::from_secs(5)));
//!     for process in &report.left {
//!         eprintln!("{process}");
//!     }
//!     assert!(report.left.is_empty());
//!     Ok(())
//! }
//! ```
//!
//! Dropping the runtime kills all processes without a grace period.
//!
//! Next: [processes inside tokio, smol and axum](super::embedding).

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
//! # Several events at the same time
//!
//! A future of `receive` borrows the context. To wait for a message and for another event of the context in one
//! `select!`, separate the context with [`split`](crate::Context::split):
//!
//! ```
//! use futures::{FutureExt, select};
//! use procession::{Context, Exit, Runtime};
//! use std::time::Duration;
//!
//! /// Adds numbers until three periods have passed.
//! async fn adder(ctx: Context<u64>) -> Result<u64, Exit> {
//!     let (me, mut mailbox) = ctx.split();
//!     let mut ticks = me.interval(Duration::from_millis(5));
//!     let (mut sum, mut periods) = (0, 0);
//!     while periods < 3 {
//!         select! {
//!             number = mailbox.receive() => sum += number?,
//!             _ = ticks.tick().fuse() => periods += 1,
//!         }
//!     }
//!     Ok(sum)
//! }
//!
//! fn main() -> procession::Result {
//!     // Without workers, the process begins in `block_on`.
//!     let rt = Runtime::builder().workers(0).build()?;
//!     let adder = rt.spawn(adder);
//!     adder.send(2)?;
//!     adder.send(3)?;
//!     assert_eq!(rt.block_on(adder)?, 5);
//!     Ok(())
//! }
//! ```
//!
//! `select!` drops the future that does not complete first. Both `receive` and `tick` are cancel safe, so no message
//! and no tick is lost.
//!
//! # Cancellation
//!
//! [`cancel`](crate::Host::cancel) asks a process to exit, and gives the process a grace period. After the request,
//! [`receive`](crate::Context::receive) returns an error, and the operator `?` returns this error from the body. During
//! the grace period, the process can still send, call, and perform commands, for example to save its state. If the
//! process has not exited after the grace period, the process is killed.
//!
//! - A cancellation interrupts `receive`, but not `sleep`, `call`, `perform` or an operation of a socket. To interrupt
//!   the future of a sleep, a call, a command or an operation of a socket, pass the future to
//!   [`run_until_cancelled`](crate::SelfHandle::run_until_cancelled).
//! - After the request, `receive` returns an error even if the mailbox contains messages.
//!   [`try_receive`](crate::Context::try_receive) still returns these messages.
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
//! | what must end | use | time until the kill |
//! |---|---|---|
//! | one process, after its clean-up | [`Host::cancel`](crate::Host::cancel) | the argument `grace` |
//! | one process, when its current step returns | [`Host::kill`](crate::Host::kill), [`JoinHandle::abort`](crate::JoinHandle::abort) | none |
//! | a process and its descendants | a [`CancelToken`](crate::CancelToken) | the argument `grace` |
//! | the children of one piece of work | [`SelfHandle::scope`](crate::SelfHandle::scope) | 1 s |
//! | a process at a certain time | [`ProcessBuilder::deadline`](crate::ProcessBuilder::deadline) | 1 s |
//! | a child of a supervisor | the supervisor's own exit, [`Child::shutdown`](crate::Child::shutdown) | 5 s by default, no limit for a child that is a supervisor |
//! | the whole runtime | [`Runtime::shutdown`](crate::Runtime::shutdown) | the argument `within` |
//!
//! A process inherits the deadline and the cancel token of its parent. The parent is the process that has spawned this
//! process.
//!
//! # Shutdown
//!
//! [`shutdown`](crate::Runtime::shutdown) refuses spawns from outside, cancels all processes, and waits for their
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

//! Chapter 7: tests in virtual time, with many schedules of the processes.
//!
//! The processes of a program run in a different order in each run. Therefore a test that passes in one order can still
//! fail in a different order. A [`Simulation`](crate::Simulation) runs the same processes on one thread. A *seed*
//! determines the order of the processes, so the same seed gives the same run. [`check`](crate::check()) runs a
//! scenario under many seeds.
//!
//! A scenario is an async function that takes a [`Host`](crate::Host). A scenario spawns processes and asserts results:
//!
//! ```
//! use procession::{Context, Exit, Host, Reply, check};
//! use std::time::Duration;
//!
//! /// A lock. Each caller holds the lock for one minute.
//! async fn lock(mut ctx: Context<Reply<()>>) -> Result<(), Exit> {
//!     loop {
//!         ctx.receive().await?.send(());
//!         ctx.sleep(Duration::from_secs(60)).await;
//!     }
//! }
//!
//! async fn scenario(host: Host) -> Result<(), Exit> {
//!     let lock = host.spawn(lock);
//!     let begun = host.now();
//!     for _ in 0..3 {
//!         lock.call(|reply| reply).await?;
//!     }
//!     assert_eq!(host.now() - begun, Duration::from_secs(120));
//!     Ok(())
//! }
//!
//! # fn main() {
//! // In a project, write this call in a function with the attribute `#[test]`.
//! check(0..1_000, scenario);
//! # }
//! ```
//!
//! Time is virtual. If no process can run, the virtual clock jumps to the next deadline. Therefore the two minutes of
//! virtual time in each run take almost no real time, and the measured time is exact.
//!
//! # What a check finds
//!
//! The run of a seed fails in these cases:
//!
//! - the scenario returns an error or panics, for example because of a failed assertion;
//! - no process can run and no timer is set (a deadlock); the message lists the waiting processes;
//! - a process fails, and no link, monitor, supervisor or join handle receives its exit: see [chapter
//!   4](super::failure);
//! - a second run with the same seed differs from the first run. Only the first seed, each failing seed, and about one
//!   in a hundred passing seeds run twice.
//!
//! This program has a race. Each of two processes reads a value, adds one, and writes the new value. If both processes
//! read the value before the first write, one update is lost:
//!
//! ```
//! use procession::{Address, Context, Exit, Host, Reply, check};
//!
//! enum Msg {
//!     Get(Reply<u64>),
//!     Set(u64),
//! }
//!
//! async fn cell(mut ctx: Context<Msg>) -> Result<(), Exit> {
//!     let mut value = 0;
//!     loop {
//!         match ctx.receive().await? {
//!             Msg::Get(reply) => reply.send(value),
//!             Msg::Set(new) => value = new,
//!         }
//!     }
//! }
//!
//! async fn add_one(cell: Address<Msg>) -> Result<(), Exit> {
//!     let value = cell.call(Msg::Get).await?;
//!     cell.send(Msg::Set(value + 1))?;
//!     Ok(())
//! }
//!
//! async fn scenario(host: Host) -> Result<(), Exit> {
//!     let cell = host.spawn(cell).address();
//!     let (one, two) = (cell.clone(), cell.clone());
//!     let one = host.spawn(|_: Context| add_one(one));
//!     let two = host.spawn(|_: Context| add_one(two));
//!     one.await?;
//!     two.await?;
//!     assert_eq!(cell.call(Msg::Get).await?, 2);
//!     Ok(())
//! }
//!
//! # fn main() {
//! let failure = std::panic::catch_unwind(|| check(0..1_000, scenario)).expect_err("an update is lost");
//! let report = failure.downcast_ref::<String>().expect("a text");
//! assert!(report.contains("the scenario fails under seed"));
//! # }
//! ```
//!
//! The report of a failure contains the seed and a line of code that repeats the run. The check also *shrinks* the
//! failure: the check searches for the smallest number of random choices with which the scenario still fails. The
//! report ends with the trace of the shrunk run. The trace shows each process, its state and the time.
//!
//! # Handlers in a test
//!
//! In a test, the scenario adds a host with handlers for the test. The processes are the same as in production:
//!
//! ```
//! use procession::{Command, Context, Exit, Failure, Host, HostBuilder, check};
//!
//! struct Fetch(&'static str);
//! impl Command for Fetch {
//!     type Reply = String;
//! }
//!
//! async fn letters(ctx: Context) -> Result<usize, Failure> {
//!     Ok(ctx.perform(Fetch("https://example.com")).await?.len())
//! }
//!
//! # fn main() {
//! check(0..100, async |host: Host| {
//!     let host = host.add_host(HostBuilder::new("test").handle(|_: Fetch| String::from("page"))).map_err(Exit::failed)?;
//!     assert_eq!(host.spawn(letters).await?, 4);
//!     Ok::<_, Exit>(())
//! });
//! # }
//! ```
//!
//! # What a scenario must not do
//!
//! The same seed gives the same run only if the scenario uses the clock, the random numbers and the threads of the
//! runtime:
//!
//! | instead of | use |
//! |---|---|
//! | `std::time::Instant::now()` | [`Host::now`](crate::Host::now), [`SelfHandle::now`](crate::SelfHandle::now) |
//! | `std::thread::sleep`, `tokio::time::sleep` | [`Host::sleep`](crate::Host::sleep), [`SelfHandle::sleep`](crate::SelfHandle::sleep) |
//! | a random number generator with its own seed | [`Host::random`](crate::Host::random), [`SelfHandle::random`](crate::SelfHandle::random) |
//! | `std::thread::spawn` | a process, or [`Host::spawn_blocking`](crate::Host::spawn_blocking) |
//! | the order of a `HashMap` | a `BTreeMap`, or a sorted list |
//! | sockets and files | a command, with another handler in the test |
//!
//! The same scenario also runs on threads: `rt.block_on(scenario(rt.host().clone()))`. A check finds errors that depend
//! on the order of events. A run on threads finds errors that depend on the timing of real devices.

//! Chapter 4: exits, links, monitors, and supervisors.
//!
//! # Every process has an exit
//!
//! | [`Exit`](crate::Exit) | cause |
//! |---|---|
//! | `Normal` | the body returned `()` or `Ok` |
//! | `Failed` | the body returned an error, often by `?`; or the process exceeded one of its [`Limits`](crate::Limits) |
//! | `Panicked` | the body panicked |
//! | `Cancelled` | the process was asked to exit, and its body returned the error of `receive` or of another cancelled operation. A body that returns `Ok` after the request exits with `Normal` |
//! | `Killed` | the process was killed |
//! | `Linked` | a linked process exited abnormally |
//! | `InitFailed` | the initialization of a hand-written process or a server failed |
//! | `Refused` | the spawn was refused, because the runtime has shut down, a limit is reached, the name is taken or the scope has ended |
//! | `NoProcess` | only in a monitor, a link or `exited`: no process had the pid |
//!
//! There are four ways to receive the exit of another process:
//!
//! | way | the exit arrives | effect on the receiver |
//! |---|---|---|
//! | await the [`JoinHandle`](crate::JoinHandle) | as the `Err` of the result | none |
//! | [`monitor`](crate::SelfHandle::monitor) | as [`Event::Down`](crate::Event::Down) | none |
//! | [`link`](crate::SelfHandle::link) | as [`Event::Exit`](crate::Event::Exit), if the receiver traps exits | if the receiver does not trap exits, an abnormal exit also ends the receiver |
//! | [`Supervisor`](crate::Supervisor) | in the supervisor | the supervisor restarts the process |
//!
//! If a process fails, and no join handle, monitor, link or supervisor receives its exit, the failure is *unobserved*.
//! The runtime reports an unobserved failure once on stderr, and counts this failure in
//! [`Counters::unobserved`](crate::observe::Counters::unobserved). The [report](crate::CrashReport) contains the pid of
//! the process, its type, its parent, its exit and the source location of a panic.
//! [`Builder::on_crash`](crate::Builder::on_crash) sets a function that receives the reports. The call `on_crash(|_|
//! ())` silences the reports.
//!
//! Two settings add data to the reports. The environment variable `RUST_LIB_BACKTRACE=1` or `RUST_BACKTRACE=1` adds the
//! [backtrace](crate::Exit::panic_backtrace) to the report of a panic. [`Builder::inspect`](crate::Builder::inspect)
//! adds the last messages that the process accepted. An [`Observer`](crate::Observer::crashed) receives the report of
//! each failure, even if a supervisor receives the exit.
//!
//! # Links and monitors
//!
//! If two processes cannot continue without each other, link the two processes. If you only need to know that a process
//! has exited, monitor the process.
//!
//! ```
//! use procession::{Context, Event, Exit, Runtime};
//!
//! async fn worker(_: Context, n: u64) -> Result<u64, String> {
//!     if n == 3 { Err("three".into()) } else { Ok(n) }
//! }
//!
//! async fn parent(mut ctx: Context) -> Result<Vec<String>, Exit> {
//!     for n in 1..=3 {
//!         // The handle is dropped. The monitor receives the exit.
//!         ctx.spawn_monitor(move |ctx| worker(ctx, n));
//!     }
//!     let mut exits = Vec::new();
//!     while exits.len() < 3 {
//!         if let Event::Down { exit, .. } = ctx.event().await {
//!             exits.push(exit.to_string());
//!         }
//!     }
//!     exits.sort();
//!     Ok(exits)
//! }
//!
//! fn main() -> procession::Result {
//!     let rt = Runtime::new()?;
//!     let exits = rt.block_on(rt.spawn(parent))?;
//!     assert_eq!(exits, ["exited normally", "exited normally", "failed: three"]);
//!     Ok(())
//! }
//! ```
//!
//! [`event`](crate::Context::event) returns messages and all other events in the order of their arrival.
//! [`receive`](crate::Context::receive) returns only messages, and leaves `Down` and `Exit` events in the mailbox.
//!
//! # Supervisors
//!
//! A supervisor starts its children in order, and restarts a child that exits. The new process gets the same name. So a
//! client that uses the name needs no new address. A call in progress fails:
//!
//! ```
//! use procession::{Child, Context, Exit, Name, Reply, Runtime, Supervisor};
//! use std::time::Duration;
//!
//! enum Msg {
//!     Divide(u64, u64, Reply<u64>),
//! }
//!
//! const CALCULATOR: Name<Msg> = Name::new("calculator");
//!
//! async fn calculator(mut ctx: Context<Msg>) -> Result<(), Exit> {
//!     loop {
//!         let Msg::Divide(a, b, reply) = ctx.receive().await?;
//!         reply.send(a / b);
//!     }
//! }
//!
//! fn main() -> procession::Result {
//!     let rt = Runtime::new()?;
//!     let tree = Supervisor::one_for_one()
//!         .intensity(3, Duration::from_secs(5))
//!         .add(Child::new(CALCULATOR, calculator).keep_mailbox());
//!     let tree = rt.spawn_process(tree);
//!     rt.block_on(tree.started())?;
//!
//!     // A division by zero panics. The call fails, and the supervisor restarts the calculator.
//!     let failed = rt.block_on(rt.call(CALCULATOR, |reply| Msg::Divide(1, 0, reply)));
//!     assert!(failed.is_err());
//!     assert_eq!(rt.block_on(rt.call(CALCULATOR, |reply| Msg::Divide(6, 3, reply)))?, 2);
//!     Ok(())
//! }
//! ```
//!
//! - The *strategy* determines which children are restarted together. [`one_for_one`](crate::Supervisor::one_for_one)
//!   restarts only the child that exited. [`one_for_all`](crate::Supervisor::one_for_all) restarts all children that
//!   run. [`rest_for_one`](crate::Supervisor::rest_for_one) restarts the child that exited and all running children
//!   that were added after this child. If a temporary child runs at this time, the supervisor stops this child and does
//!   not start the child again.
//! - The [`RestartPolicy`](crate::RestartPolicy) of a child determines after which exits the supervisor restarts the
//!   child. By default, the supervisor restarts the child after each exit.
//! - The *intensity* limits the restarts within a time window. The default is 3 restarts in 5 s. If the restarts exceed
//!   the intensity, the supervisor stops its children and fails. The parent supervisor then restarts the failed
//!   supervisor, and the new instance starts all its children. If a supervisor without a parent fails, the program
//!   continues without the children of the supervisor. To end the program in this case, await the join handle of the
//!   supervisor in `main`.
//! - [`Backoff`](crate::Backoff) delays restarts.
//! - [`keep_mailbox`](crate::Child::keep_mailbox) keeps the unread messages for the next instance of the child. Without
//!   this option, a send is refused while no instance of the child runs.
//!
//! A supervisor is itself a process. Therefore a supervisor can be the child of another supervisor: see
//! [`Child::process`](crate::Child::process). The example `supervisor` shows a tree of two levels.
//!
//! # Which one to use
//!
//! | need | use |
//! |---|---|
//! | the result of a process | await its `JoinHandle` |
//! | several processes for one piece of work | [`scope`](crate::SelfHandle::scope): the first failure ends all processes of the scope |
//! | the results of several processes, in the order of their exits | [`JoinSet`](crate::JoinSet) |
//! | a process that must always run | a `Supervisor` |
//! | many equal processes that share the messages of one address | a [`Pool`](crate::Pool) |
//! | a notice of the exit of any process | a monitor |
//! | two processes that must exit together | a link |
//!
//! The page [`lifecycle`](crate::guide::lifecycle) lists all rules and their tests.
//!
//! Next: [time and cancellation](super::time).

//! A process runtime.
//!
//! A *process* is a small isolated state machine with a mailbox and a [`Pid`], written as an async function or as raw
//! [`step`](Process::step) calls. What it wants from the world leaves it as *yields* ([`Command`]s) to handlers and
//! comes back as *events*. Work-stealing workers run a million of them; an async app that you already have can hold the
//! runtime inside it.
//!
//! ```
//! use procession::{Command, Context, Exit, Reply, Runtime};
//!
//! struct Fetch(String);                                   // a command …
//! impl Command for Fetch {
//!     type Reply = String;
//! }
//!
//! enum Msg {
//!     Visit(String),
//!     Count(Reply<usize>),
//! }
//!
//! async fn crawler(mut ctx: Context<Msg>) -> Result<(), Exit> {
//!     let mut letters = 0;                                // locals are the state
//!     loop {
//!         match ctx.receive().await? {                    // a shutdown leaves through `?`
//!             Msg::Visit(url) => letters += ctx.perform(Fetch(url)).await?.len(),
//!             Msg::Count(reply) => reply.send(letters),
//!         }
//!     }
//! }
//!
//! fn main() -> procession::Result {
//!     let rt = Runtime::builder()
//!         .handle_blocking(|c: Fetch| format!("page at {}", c.0)) // … a handler answers it, elsewhere, later
//!         .build()?;
//!     let crawler = rt.spawn(crawler);                    // JoinHandle: result, reason, typed address
//!     crawler.send(Msg::Visit("a".into()))?;
//!     crawler.send(Msg::Visit("b".into()))?;
//!     let second = std::time::Duration::from_secs(1);
//!     assert_eq!(rt.block_on(crawler.call(Msg::Count).timeout(second))?, 18);
//!     Ok(())
//! }
//! ```
//!
//! # The map
//!
//! | you want to | look at |
//! |---|---|
//! | start | [`Runtime`], [`Builder`], [`run`] |
//! | write a process | [`Context`] for an async body, [`Server`] for a state that answers messages, [`Process`] for a state machine, [`Methods`] for several entries |
//! | spawn it, from anywhere | [`Host`], [`ProcessBuilder`], [`JoinHandle`] |
//! | talk to it | [`Address`], [`Pid`], [`Reply`], [`Mailbox`], [`Receiver`] |
//! | find it, or many | [`Name`], [`Host::whereis`], [`ProcessBuilder::spawn_or_send`], [`Group`], [`Host::broadcast`], [`Me::monitor_group`] |
//! | spawn for a piece of work, and be done with all of it | [`Me::scope`] |
//! | give it new code while it lives | [`Context::upgrade`], [`StepOutput::upgrade`] |
//! | keep it alive, and many in order | [`Supervisor`], [`Child`], [`Restart`], [`Backoff`], [`Host::tree`] |
//! | share work among many of a kind | [`Pool`] |
//! | give it something to want | [`Command`], [`Handler`], [`Completion`], [`handler`], [`layer`]; in many parts: [`StreamCommand`] |
//! | end it, and know why | [`Exit`], [`Host::cancel`], [`CancelToken`], [`Host::kill`], [`Runtime::shutdown`] |
//! | tie it to others, and hear of their ends | [`lives`], [`Me::link`], [`Me::monitor`], [`Me::spawn_monitor`] |
//! | put it inside another runtime | [`Runtime::run`], [`Runtime::block_on`], [`Builder::around_worker`] |
//! | know who runs when, and how long one waits | [`scheduling`], [`Priority`], [`LocalOrder`] |
//! | test it: every order, in virtual time | [`Simulation`], [`check`](check()) |
//! | watch it | [`Observer`], [`State`], [`Counters`] |
//!
//! # What it is not
//!
//! A step that computes without end can't be interrupted: Rust code runs until it returns, or until it asks whether it
//! should ([`should_yield`], [`cooperative`]; [`Host::preempt`]). It is noticed, and what its worker holds is run by
//! others ([`Builder::long_step`], [`block_in_place`]).
//!
//! Processes are isolated from each other's panics only where panics unwind. Under `panic = "abort"` a panic ends the
//! program. A destructor that panics while its thread unwinds from another panic ends the program too, as in every Rust
//! program. In both cases the message names the process and its code: the first runtime of a program adds a panic hook
//! that prints them and then calls the hook that was set before. It prints nothing for other panics.
//!
//! If memory runs out, the program aborts with a message. No operation of the runtime reports it as an error.
//!
//! In a child made by `fork`, only the thread that forked exists. The child has no worker, so nothing runs there by itself.
//! A thread that does not exist there may have held a lock, so every use of the runtime in the child may wait for ever.
//! The child may run another program or leave by `_exit`. The parent works on as before.
//!
//! The runtime handles no signal and blocks none: the system may deliver a signal on any of its threads, whose waits go on
//! when they are interrupted. A signal handler must not use the runtime.
//!
//! It runs on targets with 32-bit and with 64-bit pointers. It does not compile for `wasm32-unknown-unknown`, which has
//! neither threads nor a clock.

/// The programs in the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

/// Misuse of `Send`, `Sync` and ownership does not compile.
#[cfg(doctest)]
#[doc = include_str!("../tests/compile_fail.md")]
mod compile_fail {}

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
compile_error!("procession needs threads and a monotonic clock; wasm32-unknown-unknown has neither");

mod address;
#[cfg(feature = "affinity")]
mod affinity;
mod answer;
mod backoff;
mod batch;
mod blocking;
mod body;
mod call;
mod cancel;
mod cell;
mod chance;
mod clock;
mod context;
mod control;
mod cooperative;
mod counted;
mod crowd;
mod deadline;
mod dispatch;
mod express;
mod group;
pub mod handler;
mod home;
mod host;
mod inherited;
mod intensity;
mod job;
mod join;
pub mod layer;
mod limits;
mod link;
pub mod lives;
mod local;
mod mailbox;
mod me;
mod memory;
#[cfg(procession_loom)]
#[doc(hidden)]
pub mod model;
mod monitored;
mod name;
mod observe;
mod oneshot;
mod pair;
mod perform;
mod pool;
mod preempt;
mod prefetch;
mod process;
mod realm;
mod receive;
mod recipient;
mod relay;
mod runnable;
mod runtime;
mod scheduler;
pub mod scheduling;
mod scope;
mod send_wait;
mod server;
mod simulation;
mod spawn;
mod stream;
mod supervisor;
mod sync;
mod task;
mod time;
mod upgrade;
mod work;
mod yields;

pub use address::{Address, Ended};
pub use backoff::Backoff;
pub use blocking::{PoolRefusal, WhenFull};
pub use body::{Body, BodyFuture, Methods, Outcome, Output};
pub use call::{Call, Reply};
pub use cancel::{CancelToken, Cancelled};
pub use clock::Instant;
pub use context::Context;
pub use cooperative::{Cooperative, cooperative};
pub use dispatch::Handler;
pub use dispatch::attempt::Attempt;
pub use dispatch::completion::{Completion, Unwanted};
pub use group::{Group, GroupName};
pub use handler::Answer;
pub use host::{Host, Left, OnPanic, Package, Receiver, Shutdown, Target};
pub use inherited::Inherited;
pub use join::{JoinHandle, Started};
pub use limits::{LimitExceeded, Limits};
pub use local::Local;
pub use mailbox::Bound;
pub use me::Me;
pub use name::{Name, ProcessName};
pub use observe::{Counters, Histogram, Observer, State, Transition, WorkerState};
pub use perform::Perform;
pub use pool::Pool;
pub use process::command::{Asked, Command, Named, StreamCommand};
pub use process::event::{Completed, Event, Item, MonitorRef, Tag};
pub use process::exit::{BoxError, Exit, Reason, Result};
pub use process::failure::{CallError, Failure};
pub use process::payload::Payload;
pub use process::pid::{ParsePidError, Pid};
pub use process::priority::Priority;
pub use process::refusal::{
    BuildError, CompleteError, CompleteRefusal, InitError, NameError, NoProcess, Refusal, SendError, SpawnError,
    SpawnRefusal, YieldError,
};
pub use process::turn::should_yield;
pub use process::{Events, Next, Process, Start, StepOutput};
pub use realm::HostBuilder;
pub use receive::{Mailbox, Receive};
pub use recipient::Recipient;
pub use runtime::{Builder, LocalOrder, Runtime, block_in_place, run};
pub use scope::Scope;
pub use send_wait::{AddressSink, SendWait};
pub use server::Server;
pub use simulation::Simulation;
pub use simulation::check::{Check, check};
pub use spawn::ProcessBuilder;
pub use stream::{Replier, Replies, StreamHandler};
pub use supervisor::{
    Child, ChildKey, ChildState, GaveUp, Restart, StartFailed, Supervisor, SupervisorMessage, Tree, TreeChild,
};
pub use time::Sleep;
pub use time::interval::{Interval, Missed};
pub use time::later::TimerRef;
pub use upgrade::UpgradeError;
pub use work::Blocking;

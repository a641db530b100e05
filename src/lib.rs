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
//! | write a process | [`Context`] for an async body, [`Server`] for a state that answers messages, [`Process`] for a state machine, [`EntryPoints`] for several entries |
//! | spawn it, from anywhere | [`Host`], [`ProcessBuilder`], [`JoinHandle`] |
//! | talk to it | [`Address`], [`Pid`], [`Reply`], [`Mailbox`], [`Deliver`] |
//! | find it, or many | [`Name`], [`Host::whereis`], [`ProcessBuilder::spawn_or_send`], [`Group`], [`Host::broadcast`], [`SelfHandle::monitor_group`] |
//! | spawn for a piece of work, and be done with all of it | [`SelfHandle::scope`] |
//! | give it new code while it lives | [`Context::upgrade`], [`StepOutput::upgrade`] |
//! | keep it alive, and many in order | [`Supervisor`], [`Child`], [`RestartPolicy`], [`Backoff`], [`Host::supervision_tree`] |
//! | share work among many of a kind | [`Pool`] |
//! | give it something to want | [`Command`], [`Handler`], [`Completion`], [`handler`], [`layer`]; in many parts: [`StreamCommand`] |
//! | end it, and know why | [`Exit`], [`Host::cancel`], [`CancelToken`], [`Host::kill`], [`Runtime::shutdown`] |
//! | tie it to others, and hear of their ends | [`lives`], [`SelfHandle::link`], [`SelfHandle::monitor`], [`SelfHandle::spawn_monitor`] |
//! | put it inside another runtime | [`Runtime::run`], [`Runtime::block_on`], [`Builder::wrap_threads`] |
//! | know who runs when, and how long one waits | [`scheduling`], [`Priority`], [`QueueOrder`] |
//! | test it: every order, in virtual time | [`Simulation`], [`check`](check()) |
//! | watch it | [`Observer`], [`ProcessState`], [`Counters`] |
//!
//! # What it is not
//!
//! A step that computes without end can't be interrupted: Rust code runs until it returns, or until it asks whether it
//! should ([`should_yield`], [`cooperative`]; [`Host::preempt`]). It is noticed, and what its worker holds is run by
//! others ([`Builder::long_step_threshold`], [`block_in_place`]).
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

pub(crate) mod behaviour;
pub(crate) mod context;
pub mod guide;
pub mod handler;
pub(crate) mod host;
#[cfg(procession_loom)]
#[doc(hidden)]
pub mod model;
pub(crate) mod observe;
pub(crate) mod platform;
pub(crate) mod process;
pub(crate) mod runtime;
pub(crate) mod scheduler;
pub(crate) mod task;
pub use guide::{lives, scheduling};
pub use handler::layer;

/// Misuse of `Send`, `Sync` and ownership does not compile.
#[cfg(doctest)]
#[doc = include_str!("../tests/compile_fail.md")]
mod compile_fail {}

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
compile_error!("procession needs threads and a monotonic clock; wasm32-unknown-unknown has neither");

pub use crate::behaviour::pool::Pool;
pub use crate::behaviour::scope::Scope;
pub use crate::behaviour::server::Server;
pub use crate::behaviour::supervisor::{
    Child, ChildId, ChildInfo, ChildState, RestartIntensityExceeded, RestartPolicy, StartFailed, SupervisionTree,
    Supervisor, SupervisorMessage,
};
pub use crate::context::Context;
pub use crate::context::address::recipient::Recipient;
pub use crate::context::address::send_wait::{AddressSink, SendWait};
pub use crate::context::address::{Address, Exited};
pub use crate::context::call::{Call, Reply};
pub use crate::context::cooperative::{Cooperative, cooperative};
pub use crate::context::mailbox::{Mailbox, Receive};
pub use crate::context::me::SelfHandle;
pub use crate::context::names::groups::{Group, IntoGroup};
pub use crate::context::names::{IntoName, Name};
pub use crate::context::perform::Perform;
pub use crate::context::step::{Events, Next, Process, Start, StepOutput};
pub use crate::context::stream::ItemStream;
pub use crate::context::time::Sleep;
pub use crate::context::time::interval::{Interval, MissedTickBehavior};
pub use crate::context::time::send_after::TimerRef;
pub use crate::handler::IntoReply;
pub use crate::handler::blocking::Blocking;
pub use crate::handler::stream::{StreamCompletion, StreamHandler};
pub use crate::host::cancel::inherited::InheritedContext;
pub use crate::host::cancel::{CancelToken, Cancelled};
pub use crate::host::dispatch::Handler;
pub use crate::host::dispatch::attempt::HandlerCall;
pub use crate::host::dispatch::completion::{Completion, Unwanted};
pub use crate::host::job::blocking_pool::{Overflow, PoolRefusal};
pub use crate::host::namespace::builder::HostBuilder;
pub use crate::host::registry::target::Target;
pub use crate::host::shutdown::{ShutdownReport, UnfinishedProcess};
pub use crate::host::timer::backoff::Backoff;
pub use crate::host::{Deliver, Envelope, Host, PanicPolicy};
pub use crate::observe::{Counters, Histogram, Observer, ProcessState, Transition, WorkerState};
pub use crate::platform::clock::Instant;
pub use crate::process::command::{BuiltinCommand, Command, NamedCommand, StreamCommand};
pub use crate::process::error::{
    BuildError, CompleteError, CompleteRefusal, InitError, NameError, NoProcess, SendError, SendErrorKind, SpawnError,
    SpawnErrorKind, YieldError,
};
pub use crate::process::event::{Completed, Event, MonitorRef, StreamItem, Tag};
pub use crate::process::exit::{BoxError, Exit, Reason, Result};
pub use crate::process::failure::{CallError, Failure};
pub use crate::process::limits::{LimitExceeded, Limits};
pub use crate::process::mailbox::MailboxCapacity;
pub use crate::process::payload::Payload;
pub use crate::process::pid::Pid;
pub use crate::process::pid::text::ParsePidError;
pub use crate::process::state::current::should_yield;
pub use crate::process::state::priority::Priority;
pub use crate::runtime::local::LocalSet;
pub use crate::runtime::simulation::Simulation;
pub use crate::runtime::simulation::check::{Check, check};
pub use crate::runtime::{Builder, QueueOrder, Runtime, block_in_place, run};
pub use crate::task::body::{Body, BodyFuture, EntryPoints, Output, ProcessOutput};
pub use crate::task::join::{JoinHandle, Started};
pub use crate::task::spawn::ProcessBuilder;
pub use crate::task::upgrade::UpgradeError;

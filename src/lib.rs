// The following list names the functions of the main code paths. `context/` is the interface that process bodies use.
// `host/`, `process/`, `task/` and `scheduler/` do the work.
// - A message is queued by `Inbox::push`, one of the first functions of `process/mailbox/sender.rs`. Usually,
//   `push_locked` takes the lock and calls `Queue::push` (`queue.rs`). `Queue::push` appends the message to the buffer,
//   or writes the message into the empty slot. If the process waits with an open slot, `deliver` writes the message
//   into this slot without the lock (`Slot::deliver` in `slot.rs`). Bounded mailboxes are in `bounded.rs`, and urgent
//   messages are in `urgent.rs`.
// - A worker thread goes to sleep in `Worker::sleep`, near the end of `scheduler/worker.rs`. `sleep` calls
//   `Worker::park`. If the worker is the timekeeper and there are sockets, `park` first tries to wait in
//   `wait_in_poller`. Otherwise `park` calls `Idle::park`, the last function before the tests of `scheduler/idle.rs`. A
//   thread in `block_on` calls `Worker::park` at the end of `Scheduler::block_on` in `scheduler/guest.rs`.
// - An exit reaches links and monitors in `Links::dissolve`, in the middle of `host/link.rs`. This function calls
//   `notify_peer` for each link, and `notify_watcher` for each monitor. Step 10 of `AnyControl::run_exit` in
//   `host/exit.rs` calls `Head::publish_exit` in `host/control/head/exit.rs`, which calls `Links::dissolve`. Step 12
//   notifies the monitor that `spawn_monitor` has set.
// - A timer fires in `Timers::fire_shard`, in the middle of `host/timer.rs`. This function calls `Fire::run`, near the
//   top of the same file. A worker calls `fire_due_timers` in `scheduler/worker.rs`. `fire_due_timers` calls
//   `Driver::fire_due` (`runtime/enqueue.rs`), and `Driver::fire_due` calls `Timers::fire_due_batch`.
// - A command reaches its handler in `Dispatcher::dispatch`, near the end of `host/dispatch.rs`. An inline command
//   reaches its handler in `dispatch_inline`, which is next to `dispatch`. `dispatch` calls `AnyHandler::handle`, and
//   `AnyHandler::handle` calls `pass_to_handler`. Both functions are in the first half of `host/dispatch.rs`. After
//   each step of a process, `dispatch_all` in `task/effects.rs` dispatches the commands of the step.

//! Process runtime: runs async functions and state machines as processes with mailboxes, on a work-stealing scheduler.
//!
//! ```
//! use procession::{Command, Context, Exit, Reply, Runtime};
//! use std::time::Duration;
//!
//! /// A command. A process performs the command, and a handler answers it.
//! struct Fetch(String);
//! impl Command for Fetch {
//!     type Reply = String;
//! }
//!
//! /// The messages of the process.
//! enum Msg {
//!     Visit(String),
//!     Count(Reply<usize>),
//! }
//!
//! async fn crawler(mut ctx: Context<Msg>) -> Result<(), Exit> {
//!     // Local variables are the state of the process.
//!     let mut letters = 0;
//!     loop {
//!         // After a cancellation, `receive` returns an error, and `?` leaves the body.
//!         match ctx.receive().await? {
//!             Msg::Visit(url) => letters += ctx.perform(Fetch(url)).await?.len(),
//!             Msg::Count(reply) => reply.send(letters),
//!         }
//!     }
//! }
//!
//! fn main() -> procession::Result {
//!     let rt = Runtime::builder()
//!         // The handler runs on the blocking pool.
//!         .handle_blocking(|fetch: Fetch| format!("page at {}", fetch.0))
//!         .build()?;
//!     // The handle is a future of the result, and the address of the process.
//!     let crawler = rt.spawn(crawler);
//!     crawler.send(Msg::Visit("a".into()))?;
//!     crawler.send(Msg::Visit("b".into()))?;
//!     let letters = rt.block_on(crawler.call(Msg::Count).timeout(Duration::from_secs(1)))?;
//!     assert_eq!(letters, 18);
//!     Ok(())
//! }
//! ```
//!
//! A *process* is an async function or a state machine with private state, a mailbox and a [`Pid`]. A process receives
//! messages and calls other processes. To request work such as I/O, a process performs a [`Command`]. A handler does
//! the work and answers the command. A failure ends only one process. Worker threads run millions of processes. The
//! runtime also works inside an application on tokio or smol.
//!
//! The [`guide`] has a [tutorial](guide::tutorial) and a page for [troubleshooting](guide::troubleshooting). The guide
//! also compares the crate with [tokio](guide::from_tokio), [actor libraries](guide::from_actors),
//! [Erlang](guide::from_erlang) and [Go](guide::from_go).
//!
//! # The map
//!
//! | you want to | look at |
//! |---|---|
//! | start | [`run`], [`Runtime`], [`Builder`] |
//! | write a process | [`Context`] for an async body, [`Server`] for a state that handles messages, [`Process`] for a state machine, [`EntryPoints`] for a process with several entries |
//! | spawn a process | [`Host::spawn`], [`SelfHandle::spawn`], [`ProcessBuilder`] for options, [`JoinHandle`] for the result |
//! | send and receive | [`Address`], [`Pid`], [`Context::receive`], [`Context::receive_timeout`], [`Mailbox`], [`MailboxCapacity`], [`Deliver`] for other transports |
//! | call a process | [`Address::call`], [`Reply`], [`CallError`] |
//! | find processes | [`Name`], [`Host::whereis`], [`ProcessBuilder::spawn_or_send`], [`Group`], [`Host::broadcast`], [`Host::multi_call`] |
//! | request I/O or other work | [`Command`], [`SelfHandle::perform`], [`StreamCommand`] for many answers |
//! | answer commands | [`Handler`], [`Completion`], [`handler`], [`layer`] for time limits, retries and rate limits |
//! | spawn children for one piece of work | [`SelfHandle::scope`], [`JoinSet`] to wait for any or all of many processes |
//! | restart processes that fail | [`Supervisor`], [`Child`], [`RestartPolicy`], [`Backoff`], [`Host::supervision_tree`] |
//! | share work among equal processes | [`Pool`] |
//! | receive the exit of a process | [`Exit`], [`SelfHandle::monitor`], [`SelfHandle::link`], [`guide::lifecycle`] |
//! | end a process | [`Host::cancel`], [`Host::kill`], [`CancelToken`], [`ProcessBuilder::deadline`], [`Runtime::shutdown`] |
#![cfg_attr(feature = "net", doc = "| use sockets, or wait for a signal | [`net`], [`signal`], [`guide::sockets`] |")]
#![cfg_attr(
    not(feature = "net"),
    doc = "| use sockets, or wait for a signal | the modules `net` and `signal`, with the feature `net` |"
)]
//! | wait for a time | [`SelfHandle::sleep`], [`SelfHandle::timeout`], [`Context::receive_timeout`], [`SelfHandle::interval`], [`SelfHandle::send_after`]; outside a process [`Host::sleep`], [`Host::timeout`] |
//! | run inside tokio, smol or another executor | [`guide::tutorial::embedding`], [`Runtime::run`], [`Runtime::block_on`], [`Builder::wrap_threads`], `Builder::tokio` with the feature `tokio` |
//! | control the order of processes | [`guide::scheduling`], [`Priority`], [`QueueOrder`], [`should_yield`], [`cooperative`](cooperative()) |
//! | call code that blocks | [`Host::spawn_blocking`], [`block_in_place`] |
//! | limit a process | [`Limits`], [`Builder::max_processes`] |
//! | replace the code of a running process | [`Context::upgrade`], [`StepOutput::upgrade`] |
//! | test in virtual time and in many orders | [`check`](check()), [`Simulation`] |
//! | observe the runtime | [`Observer`], [`observe::ProcessState`], [`CrashReport`] |
//! | measure the runtime | [`Host::metrics`], [`Host::counters`], [`observe::RuntimeMetrics`] |
//! | record what each worker and process does | [`Host::start_trace`], [`guide::tracing`] |
//! | keep the last events in memory, and write them after a fault | [`Builder::flight_recorder`], [`Host::write_flight_record`] |
//! | find the busiest processes | [`Host::sample_run_times`], [`Host::sample_increases`] |
//! | list and inspect processes | [`Host::processes`], [`Host::process_details`], [`observe::ProcessQuery`] |
//! | list names and groups | [`Host::names`], [`Host::groups`] |
//! | find out why processes wait | [`Host::explain`], [`Host::wait_for_graph`], [`guide::troubleshooting`] |
//! | see how processes exited | [`Host::last_exits`], [`CrashReport`], [`Observer::crashed`] |
//! | see the last messages of each process | [`Builder::inspect`], [`observe::LastMessage`] |
//! | inspect a running program from another terminal | `Builder::console` and the page `guide::console`, with the feature `console` |
//!
//! # Limits
//!
//! - **Pre-emption.** The runtime cannot interrupt a step. A step runs until its code returns or awaits a future that
//!   is not ready. In a long computation, call [`should_yield`], and await [`yield_now`](SelfHandle::yield_now) if
//!   `should_yield` returns true. If the futures of a loop are always ready, wrap these futures in
//!   [`cooperative`](cooperative()). The monitor thread of the runtime notices a step that takes longer than
//!   [`Builder::long_step_threshold`]. A replacement thread then runs the other processes of the blocked worker.
//! - **Panics.** If panics unwind, a panic ends only the process that panicked. Under `panic = "abort"`, a panic ends
//!   the program. As in every Rust program, a destructor that panics while its thread unwinds also ends the program.
//!   Before a panic of a process ends the program, the runtime prints a message that names the process and its code. To
//!   print this message, the first runtime of a program adds a panic hook, which also calls the previous hook. The
//!   added hook prints nothing for a panic that does not end the program.
//! - **Memory.** If memory runs out, the program aborts with a message. No operation of the runtime returns an error
//!   for exhausted memory.
//! - **Threads.** A runtime has 48 slots. Therefore at most 48 workers, replacement threads and guest threads run tasks
//!   at the same time. A guest thread is a thread inside [`Runtime::run`] or [`Runtime::block_on`].
//! - **Fork.** The child of a `fork` has only the thread that called `fork`. Because the child has no worker thread, no
//!   process of the runtime runs in the child. In the child, a call into the runtime may wait forever for a lock that
//!   another thread held at the time of the `fork`. The child may start another program, or exit with `_exit`. The
//!   program that called `fork` continues normally.
//! - **Signals.** The runtime blocks no signal, and handles only the signals that the program selects (feature `net`:
//!   `signal`, `FlightRecorder::write_on_signal`). The system may deliver a signal on any thread of the runtime. If a
//!   signal interrupts a system call in which a thread of the runtime waits, the thread continues to wait after the
//!   signal. A signal handler must not use the runtime.
//! - **Targets.** The crate supports targets with 32-bit and with 64-bit pointers. The crate does not compile for
//!   `wasm32-unknown-unknown`, which has neither threads nor a clock.

/// The programs in the README compile and run. One of these programs uses sockets, so this test needs the feature
/// `net`.
#[cfg(all(doctest, feature = "net"))]
#[doc = include_str!("../README.md")]
mod readme {}

pub(crate) mod behaviour;
pub(crate) mod context;
pub mod future;
pub mod guide;
pub mod handler;
pub(crate) mod host;
#[cfg(procession_loom)]
#[doc(hidden)]
pub mod model;
#[cfg(all(feature = "net", not(any(procession_loom, procession_shuttle))))]
pub mod net;
pub mod observe;
pub(crate) mod platform;
pub(crate) mod process;
pub(crate) mod runtime;
pub(crate) mod scheduler;
pub mod supervisor;
pub(crate) mod task;
pub use handler::layer;

#[cfg(all(feature = "net", not(any(procession_loom, procession_shuttle))))]
#[doc(inline)]
pub use crate::net::signal;

/// Programs that misuse `Send`, `Sync` or ownership do not compile.
#[cfg(doctest)]
#[doc = include_str!("../tests/compile_fail.md")]
mod compile_fail {}

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
compile_error!("procession needs threads and a monotonic clock; wasm32-unknown-unknown has neither");

pub use crate::behaviour::join_set::JoinSet;
pub use crate::behaviour::pool::Pool;
pub use crate::behaviour::scope::Scope;
pub use crate::behaviour::server::Server;
pub use crate::behaviour::supervisor::{Child, RestartPolicy, Supervisor};
pub use crate::context::Context;
pub use crate::context::address::Address;
pub use crate::context::address::recipient::Recipient;
pub use crate::context::call::Reply;
pub use crate::context::cooperative::cooperative;
pub use crate::context::mailbox::Mailbox;
pub use crate::context::me::SelfHandle;
pub use crate::context::multi_call::Callees;
pub use crate::context::names::groups::{Group, IntoGroup};
pub use crate::context::names::{IntoName, Name};
pub use crate::context::step::{Events, Next, Process, Start, StepOutput};
pub use crate::context::time::interval::{Interval, MissedTickBehavior};
pub use crate::context::time::send_after::TimerRef;
pub use crate::handler::IntoReply;
pub use crate::handler::stream::{StreamCompletion, StreamHandler};
pub use crate::host::cancel::CancelToken;
pub use crate::host::cancel::inherited::InheritedContext;
pub use crate::host::dispatch::Handler;
pub use crate::host::dispatch::completion::Completion;
pub use crate::host::job::blocking_pool::Overflow;
pub use crate::host::namespace::builder::HostBuilder;
pub use crate::host::registry::target::Target;
pub use crate::host::shutdown::report::{ShutdownReport, UnfinishedProcess};
pub use crate::host::timer::backoff::Backoff;
pub use crate::host::{Deliver, Envelope, Host, PanicPolicy};
pub use crate::observe::{CrashReport, Observer};
pub use crate::platform::clock::Instant;
pub use crate::process::command::{BuiltinCommand, Command, NamedCommand, StreamCommand};
pub use crate::process::error::{
    BuildError, InitError, NameError, NoProcess, SendError, SendErrorKind, SpawnError, SpawnErrorKind,
};
pub use crate::process::event::{Completed, Event, MonitorRef, StreamItem, Tag};
pub use crate::process::exit::{BoxError, Exit, Reason, Result};
pub use crate::process::failure::{CallError, Failure, NoQuorum};
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
pub use crate::task::body::{Body, EntryPoints};
pub use crate::task::join::JoinHandle;
pub use crate::task::spawn::ProcessBuilder;

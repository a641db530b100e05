//! For users of Erlang or Elixir. This page lists processes, OTP behaviours and other terms with their counterparts in
//! this crate.
//!
//! Exits, links, monitors and supervisors have the semantics of Erlang/OTP. The page [`lifecycle`](super::lifecycle)
//! lists all rules and all intended differences.
//!
//! ```erlang
//! counter(N) ->
//!     receive
//!         {add, M} -> counter(N + M);
//!         {get, From, Ref} -> From ! {Ref, N}, counter(N)
//!     end.
//! ```
//!
//! ```
//! use procession::{Context, Exit, Reply, Runtime};
//!
//! enum Msg {
//!     Add(u64),
//!     Get(Reply<u64>),
//! }
//!
//! async fn counter(mut ctx: Context<Msg>) -> Result<(), Exit> {
//!     let mut n = 0;
//!     loop {
//!         match ctx.receive().await? {
//!             Msg::Add(m) => n += m,
//!             Msg::Get(reply) => reply.send(n),
//!         }
//!     }
//! }
//!
//! fn main() -> procession::Result {
//!     let rt = Runtime::new()?;
//!     let counter = rt.spawn(counter);
//!     counter.send(Msg::Add(2))?;
//!     assert_eq!(rt.block_on(counter.call(Msg::Get))?, 2);
//!     Ok(())
//! }
//! ```
//!
//! | Erlang, Elixir | here | difference |
//! |---|---|---|
//! | `spawn`, `spawn_link`, `spawn_monitor` | [`spawn`](crate::SelfHandle::spawn), [`spawn_link`](crate::SelfHandle::spawn_link), [`spawn_monitor`](crate::SelfHandle::spawn_monitor) | the spawn methods return a [`JoinHandle`](crate::JoinHandle), so the result of the process can be awaited |
//! | pid | [`Pid`](crate::Pid), [`Address<M>`](crate::Address) | an address has a message type, and a send to an address needs no lookup |
//! | `Pid ! Msg`, `send` | [`send`](crate::SelfHandle::send) | if the process has exited or the message type is wrong, the send returns an error with the message |
//! | `erlang:send(Pid, Msg, [priority])` | [`send_urgent`](crate::SelfHandle::send_urgent) | the receiver needs no alias. The capacity of a mailbox also limits the urgent messages |
//! | `receive … end` | [`receive`](crate::Context::receive), [`receive_where`](crate::Context::receive_where) | `receive` takes the first message. `receive_where` is selective |
//! | `receive … after T` | [`receive_timeout`](crate::Context::receive_timeout) | if the time passes, no message is lost |
//! | `self()`, `register`, `whereis` | [`pid`](crate::SelfHandle::pid), [`register`](crate::SelfHandle::register), [`whereis`](crate::Host::whereis) | names have a type: [`Name<M>`](crate::Name) |
//! | `pg` | [`Group`](crate::Group), [`monitor_group`](crate::SelfHandle::monitor_group) | |
//! | `link`, `unlink`, `monitor`, `demonitor` | methods of the same names | |
//! | `process_flag(trap_exit, true)` | [`trap_exit`](crate::SelfHandle::trap_exit) | |
//! | `{'EXIT', Pid, R}`, `{'DOWN', …}` | [`Event::Exit`](crate::Event::Exit), [`Event::Down`](crate::Event::Down) | [`event`](crate::Context::event) returns these events, but `receive` does not |
//! | `exit(Pid, kill)` | [`Host::kill`](crate::Host::kill) | |
//! | `exit(Pid, shutdown)` | [`Host::cancel`](crate::Host::cancel) | a request with a grace period; the next `receive` of the process returns this request as an error |
//! | `gen_server` | [`Server`](crate::Server) | the page of `Server` has a table of the callbacks |
//! | `gen_server:call`, default 5 s | [`call`](crate::Address::call) | a call has no time limit by default: see [`Call::timeout`](crate::future::Call::timeout) |
//! | `gen_server:multi_call` | [`multi_call`](crate::Host::multi_call) | the call can also wait for only the first reply, or for a quorum of replies |
//! | `gen_statem` | a `Server` with an `enum` as its state, and [`stash`](crate::Context::stash) | |
//! | `supervisor` | [`Supervisor`](crate::Supervisor), [`Child`](crate::Child) | the restart types and the strategies one-for-one, one-for-all and rest-for-one are the same as in OTP, with one difference: when OTP restarts a group, it also starts the children that were down. Here, a child that has finished or was stopped on request stays down. The default intensity is 3 restarts in 5 s, as in Elixir. The default of OTP is 1 restart in 5 s |
//! | `DynamicSupervisor` | [`SupervisorMessage::StartChild`](crate::supervisor::SupervisorMessage::StartChild) | |
//! | `Task.async`, `Task.await` | `spawn`, and await the handle | |
//! | `Task.Supervisor`, `Task.async_stream` | [`scope`](crate::SelfHandle::scope), [`Pool`](crate::Pool) | |
//! | `Agent`, `ets` | a process that owns the data | a shared map of another crate also works |
//! | `poolboy`, `PartitionSupervisor` | [`Pool`](crate::Pool) | |
//! | `timer:send_after`, `Process.send_after` | [`send_after`](crate::SelfHandle::send_after) | the exit of the process cancels the timer |
//! | `init:stop`, application shutdown | [`Runtime::shutdown`](crate::Runtime::shutdown) | the shutdown first stops the supervision trees, from the top |
//! | crash report | [`CrashReport`](crate::CrashReport) on stderr | the report is printed only if no link, monitor, supervisor or join handle receives the exit |
//! | port, NIF | a [`Command`](crate::Command) with a handler | |
//! | `'$ancestors'`, `$callers` | [`ProcessBuilder::value`](crate::ProcessBuilder::value) | values that spawned processes inherit |
//! | code change | [`Context::upgrade`](crate::Context::upgrade) | a process replaces its own code |
//! | `recon:proc_window` | [`Host::sample_increases`](crate::Host::sample_increases), [`Host::sample_run_times`](crate::Host::sample_run_times) | |
//! | `observer`, `sys:get_state` | [`Host::processes`](crate::Host::processes), [`Host::process_details`](crate::Host::process_details), [`supervision_tree`](crate::Host::supervision_tree), and the [console](super::console) | no function returns the state of a process |
//! | node, distribution | – | not available yet |
//!
//! # What surprises Erlang users
//!
//! - **No pre-emption.** A process that computes without an `await` keeps its worker. The runtime detects the long step
//!   after 10 to 20 ms, and a replacement thread runs the other processes. If
//!   [`should_yield`](crate::should_yield) returns true in a long loop, call `yield_now`.
//! - **Messages are moved, not copied.** After a send, the sender no longer owns the message. A shared value needs an
//!   `Arc`.
//! - **One message type.** A process declares its message type, and the compiler checks each message. A reply does not
//!   arrive in the mailbox: the reply resolves the future of the call.
//! - **Processes can share memory.** Rust prevents data races, but processes can share an `Arc<Mutex<_>>`. If a process
//!   panics while the process holds the lock of the mutex, the mutex is poisoned for the other processes.
//! - **A panic is an exit.** A panic becomes an exit only if panics unwind. With `panic = "abort"`, a panic ends the
//!   program.

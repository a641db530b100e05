//! Troubleshooting by symptom. For each symptom, this page lists the causes, the way to recognize each cause, and the
//! remedy.
//!
//! | symptom | section |
//! |---|---|
//! | the program starts, but no process does anything | [Nothing runs](#nothing-runs) |
//! | one core is always busy, and other processes are late | [One process uses all CPU time](#one-process-uses-all-cpu-time) |
//! | the memory of the program grows | [Memory grows](#memory-grows) |
//! | `shutdown` or the end of `main` takes long | [Shutdown hangs](#shutdown-hangs) |
//! | a message was sent but not handled | [A message is missing](#a-message-is-missing) |
//! | a call or a command waits forever | [A call never returns](#a-call-never-returns) |
//! | a process does not exist any more | [A process has disappeared](#a-process-has-disappeared) |
//! | a process panics with *there is no reactor running* | [No reactor is running](#no-reactor-is-running) |
//! | a command fails with `NoHandler` | [A command has no handler](#a-command-has-no-handler) |
//! | the compiler reports an error in the code of a body | [The code does not compile](#the-code-does-not-compile) |
//!
//! Most sections begin with the call that shows the cause, and with the output of this call. Then they show the view of
//! the console for the symptom. In the outputs, the pids and the paths of types are shortened, and some long lines are
//! wrapped.
//!
//! These tools help with all symptoms:
//!
//! - [`Host::explain`](crate::Host::explain) lists the reasons why processes do not run: see
//!   [Ask the runtime](#ask-the-runtime).
//! - With the feature `console`, the program `procession-console` shows the results of all these tools for a running
//!   program, from another terminal: see `Builder::console`. A digit key selects a view.
//! - [`Host::metrics`](crate::Host::metrics) returns a snapshot of all metrics of the runtime: see [Read the
//!   metrics](#read-the-metrics).
//! - An [`Observer`](crate::Observer) receives the start, each transition and the exit of each process. An observer
//!   also receives the states of workers, long steps, and panics. The example `gmp` prints all of these events.
//! - [`Host::processes`](crate::Host::processes) lists the processes of the running program: see
//!   [List the processes](#list-the-processes).
//! - [`Host::wait_for_graph`](crate::Host::wait_for_graph) finds the processes that wait for each other: see
//!   [Find a deadlock](#find-a-deadlock).
//! - [`Host::last_exits`](crate::Host::last_exits) lists the last abnormal exits: see
//!   [A process has disappeared](#a-process-has-disappeared).
//!
//! # Ask the runtime
//!
//! If a program makes no progress, first call [`Host::explain`](crate::Host::explain). The call works on any thread,
//! even while all workers are blocked. A server can print the explanation when the server receives a signal, or return
//! the explanation as the reply to an HTTP request.
//!
//! ```
//! # use procession::{Command, Completion, Context, Runtime};
//! # use std::time::Duration;
//! # struct Query;
//! # impl Command for Query { type Reply = u64; }
//! # async fn report(ctx: Context) { _ = ctx.perform(Query).await; }
//! # async fn clock(ctx: Context) { ctx.sleep(Duration::from_secs(60)).await; }
//! # let rt = Runtime::builder().workers(0).handler(|_: Query, kept: Completion<u64>| std::mem::forget(kept)).build()?;
//! # let (report, clock) = (rt.spawn(report), rt.spawn(clock));
//! # let text = rt.block_on(async {
//! #     report.started().await.unwrap();
//! #     clock.started().await.unwrap();
//! println!("{}", rt.explain());
//! #     rt.explain().to_string()
//! # });
//! # let lines: Vec<&str> = text.lines().map(str::trim).collect();
//! # let first = format!("1. 1 command {} has no answer yet; it was performed at least ", std::any::type_name::<Query>());
//! # assert!(lines[1].starts_with(&first) && lines[1].ends_with("s ago"), "{text}");
//! # assert!(lines[2].starts_with("handler: ") && lines[2].ends_with("::{{closure}}"), "{text}");
//! # let expected = [
//! #     "what to do: if the number stays, look for a handler that keeps the `Completion`, or set `Perform::timeout`",
//! #     "2 processes: 0 running, 0 ready, 2 waiting (1 for an answer to a command, 1 for the end of a sleep)",
//! # ];
//! # assert_eq!((lines[0], &lines[3..]), ("1 finding:", &expected[..]));
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! The output lists the findings. The last line shows how many processes run, how many are ready, and how many wait for
//! each kind of event:
//!
//! ```text
//! 1 finding:
//! 1. 1 command app::Query has no answer yet; it was performed at least 2.503s ago
//!      handler: app::main::{{closure}}
//!    what to do: if the number stays, look for a handler that keeps the `Completion`, or set `Perform::timeout`
//! 2 processes: 0 running, 0 ready, 2 waiting (1 for an answer to a command, 1 for the end of a sleep)
//! ```
//!
//! A program can match on [`Finding`](crate::observe::Finding), whose variants contain the data. Some findings are
//! normal for a short time, for example a command without an answer. If the same finding appears again after a few
//! seconds, this finding explains the delay.
//!
//! # List the processes
//!
//! [`Host::processes`](crate::Host::processes) can be called on any thread at any time, and never stops a worker. A
//! [query](crate::observe::ProcessQuery) filters and orders the rows. This example prints the ten processes with the
//! longest mailboxes:
//!
//! ```
//! # use procession::{Context, Runtime};
//! use procession::observe::{ProcessColumn, ProcessQuery};
//!
//! # async fn cache(_: Context<u8>) { std::future::pending().await }
//! # let rt = Runtime::builder().workers(0).build()?;
//! # let process = rt.process().name("cache").spawn(cache)?;
//! # (0..3).for_each(|number| process.send(number).unwrap());
//! # rt.block_on(process.started())?;
//! let longest = ProcessQuery::new().min_mailbox_len(1).descending(ProcessColumn::MailboxLen).limit(10);
//! for row in rt.processes(&longest) {
//!     println!("{row}");
//! }
//! # let line = rt.processes(&longest)[0].to_string();
//! # assert!(line.ends_with("::cache: Idle, mailbox 3 (peak 3)"), "{line}");
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! Each row is printed as one line:
//!
//! ```text
//! <1-9f3c.0.1> "cache" app::cache: Idle, mailbox 3 (peak 3)
//! ```
//!
//! The line shows that three messages are in the mailbox. If a process in the state `Idle` or `Blocked` has a long
//! mailbox, the process waits for another event, or for a message that its `receive_where` accepts.
//! [`Host::process_details`](crate::Host::process_details) shows the events that the process waits for, and the links,
//! monitors, yields and timers of the process.
//!
//! The row of a process also contains the time at which this process [began to
//! wait](crate::observe::ProcessInfo::waiting_since). This example finds the blocked process that has waited for the
//! longest time:
//!
//! ```
//! # use procession::{Context, Runtime};
//! # use procession::observe::{ProcessColumn, ProcessQuery};
//! use procession::observe::ProcessState::Blocked;
//!
//! # use std::time::Duration;
//! # let rt = Runtime::builder().workers(0).build()?;
//! # let process = rt.spawn(async |ctx: Context| ctx.sleep(Duration::from_secs(60)).await);
//! # rt.block_on(process.started())?;
//! let query = ProcessQuery::new().state(Blocked).ascending(ProcessColumn::WaitingSince).limit(1);
//! for row in rt.processes(&query) {
//!     if let Some(since) = row.waiting_since {
//!         println!("{row}, for {:?}", rt.now() - since);
//!     }
//! }
//! # assert!(rt.processes(&query)[0].pid == process.pid());
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! # Find a deadlock
//!
//! [`Host::wait_for_graph`](crate::Host::wait_for_graph) returns a graph that shows which process waits for which
//! process. The call also returns the deadlocks: processes that wait only for each other.
//!
//! ```
//! # use procession::{Context, Reply, Runtime};
//! # async fn shop(ctx: Context<Reply<()>>) { _ = ctx.call("bank", |reply: Reply<()>| reply).await; }
//! # async fn bank(ctx: Context<Reply<()>>) { _ = ctx.call("shop", |reply: Reply<()>| reply).await; }
//! # let rt = Runtime::builder().workers(0).build()?;
//! # rt.process().name("shop").spawn(shop)?;
//! # rt.process().name("bank").spawn(bank)?;
//! # rt.block_on(rt.spawn(async |_: Context| ()))?;
//! let graph = rt.wait_for_graph();
//! for deadlock in &graph.deadlocks {
//!     println!("{deadlock}");
//! }
//! # let text = graph.deadlocks[0].to_string();
//! # assert!(text.starts_with("deadlock of 2 processes:\n  <"), "{text}");
//! # assert!(text.contains("::shop waits for the answer to a call to <"), "{text}");
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! The text names the processes, and the source lines of their calls:
//!
//! ```text
//! deadlock of 2 processes:
//!   <1-9f3c.0.1> "shop" app::shop waits for the answer to a call to <1-9f3c.1.1> at src/shop.rs:41
//!   <1-9f3c.1.1> "bank" app::bank waits for the answer to a call to <1-9f3c.0.1> at src/bank.rs:17
//! ```
//!
//! The documentation of `wait_for_graph` lists the waits that the runtime does not know.
//!
//! # Read the metrics
//!
//! [`Host::metrics`](crate::Host::metrics) can be called on any thread at any time, and never stops a worker. A
//! snapshot is printed as a page of text. To see what happened since an earlier snapshot, subtract the earlier
//! snapshot:
//!
//! ```
//! # let rt = procession::Runtime::builder().workers(0).build()?;
//! let before = rt.metrics();
//! // … some time later:
//! println!("{}", rt.metrics() - before);
//! # Ok::<(), procession::BuildError>(())
//! ```
//!
//! [`RuntimeMetrics`](crate::observe::RuntimeMetrics) documents each metric, the unit of the metric, and the place at
//! which the runtime counts the metric. For each question, this table shows the metric that answers the question:
//!
//! | question | metric |
//! |---|---|
//! | How long does a runnable process wait for a worker? | the quantiles of [`scheduling_delay`](crate::observe::Distributions::scheduling_delay); above 1 ms, the workers are overloaded or blocked |
//! | Which work occupies the workers for a long time? | [`step_time`](crate::observe::Distributions::step_time); a long p99.9 with a short p50 means that some steps contain a long computation without an `await` |
//! | How much work does the runtime do? | [`throughput`](crate::observe::RuntimeMetrics::throughput): steps per second |
//! | Are there too few workers? | `global_queue_depth` and the local queues grow, and no worker is `Parked` |
//! | Are workers blocked? | the workers in the state `Blocked`, and the counter `long_steps` |
//! | Is the load balanced? | [`steal_success`](crate::observe::RuntimeMetrics::steal_success); below 0.1, most attempts to steal find no task |
//! | Do wake-ups cost too much? | the counters `wakes`, `parks` and `wakes_without_work`; many wake-ups without work mean many short bursts |
//! | Is a receiver too slow? | `processes.mailbox_messages` and `processes.longest_mailbox` grow; [`mailbox_time`](crate::observe::Distributions::mailbox_time) states how long messages wait |
//! | Is a handler too slow? | [`command_time`](crate::observe::Distributions::command_time) for each command type; `processes.outstanding_yields` grows, or `blocking_pool.queue_depth` is not 0 |
//! | How long do callers wait? | [`call_time`](crate::observe::Distributions::call_time) |
//! | Does a process monopolize its worker? | the counter `budget_yields` |
//! | Is work lost? | the counters `refused`, `dead_letters`, `dropped_by_policy`, `late_replies`, `panics`, `unobserved` |
//! | Does the program leak processes, timers or sockets? | the processes by state, `timers`, `sockets`, `memory` |
//!
//! [`Host::counters`](crate::Host::counters) returns only the exact counts. This call costs less than `metrics`, and is
//! useful in tests.
//!
//! To export the metrics:
//!
//! - [`to_prometheus`](crate::observe::RuntimeMetrics::to_prometheus) returns the metrics as the text that Prometheus
//!   reads. The program `examples/apps/http` in the repository serves this text at `/metrics`. For a program with
//!   several runtimes, [`all_to_prometheus`](crate::observe::RuntimeMetrics::all_to_prometheus) returns one text. The
//!   labels of each sample name the runtime of the sample.
//! - With the feature `metrics`, `observe::MetricsPublisher` passes the metrics of the runtime to the recorder of the
//!   crate `metrics`. The method `labels` of the publisher sets labels that name the runtime.
//! - With the feature `serde`, a snapshot implements `Serialize`.
//!
//! # Nothing runs
//!
//! [`Host::explain`](crate::Host::explain) states whether a thread runs the processes, and whether all workers are
//! blocked:
//!
//! ```
//! # use procession::{Context, Runtime};
//! let rt = Runtime::builder().workers(0).build()?;
//! rt.spawn(async |_: Context| println!("never printed"));
//! println!("{}", rt.explain());
//! # let expected = "\
//! # 1 finding:
//! # 1. 1 process is alive, but no thread runs it: there is no worker, and no thread is in `run` or `block_on`
//! #    what to do: poll `Runtime::run`, call `Runtime::block_on`, or set `Builder::workers`
//! # 1 process: 0 running, 1 ready, 0 waiting";
//! # let plain = |text: &str| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
//! # assert_eq!(plain(&rt.explain().to_string()), plain(expected));
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! ```text
//! 1 finding:
//! 1. 1 process is alive, but no thread runs it: there is no worker, and no thread is in `run` or `block_on`
//!    what to do: poll `Runtime::run`, call `Runtime::block_on`, or set `Builder::workers`
//! 1 process: 0 running, 1 ready, 0 waiting
//! ```
//!
//! The view `Explain` of the console (key `6`) shows the same text:
//!
//! ```text
//! 1 process is alive, but no thread runs it: there is no worker, and no thread is
//! in `run` or `block_on`
//! what to do: poll `Runtime::run`, call `Runtime::block_on`, or set
//! `Builder::workers`
//!
//! 1 process: 0 running, 1 ready, 0 waiting
//! ```
//!
//! | cause | how to recognize the cause | what to do |
//! |---|---|---|
//! | The runtime has no workers, and no thread is inside `run` or `block_on`. | `Builder::workers(0)` in the code | Poll [`Runtime::run`](crate::Runtime::run) while processes must run, or use workers. |
//! | The process belongs to a [`LocalSet`](crate::LocalSet), and no thread runs the `LocalSet`. | [`explain`](crate::Host::explain) lists the processes | Poll [`LocalSet::run`](crate::LocalSet::run), or call [`LocalSet::block_on`](crate::LocalSet::block_on). |
//! | `main` returned and dropped the runtime. The drop kills all processes. | the program exits | Await a join handle in `main`, or wait for a signal and call [`shutdown`](crate::Runtime::shutdown). |
//! | The spawn was refused. | the join handle resolves to [`Exit::Refused`](crate::Exit::Refused) | Check the [reason](crate::SpawnErrorKind) of the refusal, for example a shutdown, [`max_processes`](crate::Builder::max_processes), or a [`Scope`](crate::Scope) that has ended. |
//! | The future was created but is not polled. | the compiler warns about an unused future | Await the future. If a call must not wait, use [`Call::start`](crate::future::Call::start). |
//! | The process failed at its start. | a [crash report](crate::CrashReport) on stderr, or the exit in the join handle | See [`JoinHandle::started`](crate::JoinHandle::started). |
//! | A process was [suspended](crate::Host::suspend). | [`explain`](crate::Host::explain) lists the suspended processes | Call [`Host::resume`](crate::Host::resume). |
//! | All workers block, for example in `std::thread::sleep`. | [`Counters::long_steps`](crate::observe::Counters::long_steps) grows | See the next section. |
//!
//! # One process uses all CPU time
//!
//! A step runs until its code returns, or awaits a future that is not ready. A worker cannot interrupt a step.
//! [`Host::explain`](crate::Host::explain) names each process that has run one step for longer than 10 to 20 ms:
//!
//! ```
//! # use procession::{Context, Runtime};
//! # let rt = Runtime::builder().workers(1).build()?;
//! # let (open, gate) = std::sync::mpsc::channel::<()>();
//! # let index = async move |_: Context| _ = gate.recv();
//! # let process = rt.process().name("index").spawn(index)?;
//! # while rt.explain().findings.is_empty() {
//! #     std::thread::yield_now();
//! # }
//! println!("{}", rt.explain());
//! # let text = rt.explain().to_string();
//! # let lines: Vec<&str> = text.lines().collect();
//! # assert_eq!(lines[0], "1 finding:");
//! # assert!(lines[1].starts_with(&format!("1. the process {} \"index\" ", process.pid())), "{text}");
//! # assert!(lines[1].contains(" has run one step on worker 0 for "), "{text}");
//! # assert!(lines[1].ends_with("s; other threads run its queued tasks"), "{text}");
//! # let advice = "   what to do: move blocking calls to `spawn_blocking`, and call `should_yield` in long computations";
//! # let asked = "     the step was asked to yield, but does not check `should_yield`";
//! # assert_eq!(lines[2..5], [asked, advice, "1 process: 1 running, 0 ready, 0 waiting"]);
//! # assert!(lines[5].starts_with(&format!("running: {} \"index\" ", process.pid())), "{text}");
//! # assert!(lines[5].ends_with(": Running, mailbox 0 (peak 0)"), "{text}");
//! # drop(open);
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! ```text
//! 1 finding:
//! 1. the process <1-9f3c.0.1> "index" app::index has run one step on worker 0 for 1.214s; other threads run its queued tasks
//!      the step was asked to yield, but does not check `should_yield`
//!    what to do: move blocking calls to `spawn_blocking`, and call `should_yield` in long computations
//! 1 process: 1 running, 0 ready, 0 waiting
//! running: <1-9f3c.0.1> "index" app::index: Running, mailbox 0 (peak 0)
//! ```
//!
//! The view `Workers` of the console (key `5`) shows the worker, the process that the worker runs, and the time for
//! which the process has run the present step. With `replaced`, another thread does the work of this worker. With `not
//! replaced`, the runtime has one thread fewer until the step ends:
//!
//! ```text
//! 1 workers requested, 1 replaced
//! WORKER  STATE                  QUEUE  RUNS                    FOR AT LEAST
//! 0       blocked, replaced          0  <1-9f3c.0.1>            1.2 s
//! ```
//!
//! Many short steps can also use all CPU time. [`Host::sample_run_times`](crate::Host::sample_run_times) finds the
//! processes with the longest run times in a given period. The run times are estimates, because the runtime measures
//! one turn in 64:
//!
//! ```
//! # use procession::{Context, Runtime};
//! # use std::time::Duration;
//! # async fn index(ctx: Context) {
//! #     loop { std::hint::black_box((0..1_000_u64).sum::<u64>()); ctx.yield_now().await }
//! # }
//! # let rt = Runtime::builder().workers(1).build()?;
//! # let process = rt.process().name("index").spawn(index)?;
//! let mut sampler = rt.sample_run_times();
//! std::thread::sleep(Duration::from_millis(100));
//! println!("{}", sampler.take(10));
//! # let mut rows = Vec::new();
//! # while rows.is_empty() { rows = sampler.take(10).processes; std::thread::yield_now(); }
//! # assert_eq!(rows[0].pid, process.pid());
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! ```text
//! 91.2ms of run time in a window of 100.1ms
//! <1-9f3c.0.1> "index" app::index: 100.0 %, 91.2ms in 210816 turns, last on worker 0
//! ```
//!
//! The view `Workers` of the console lists the same processes below the workers, in the table `BUSIEST`.
//!
//! | cause | how to recognize the cause | what to do |
//! |---|---|---|
//! | A long computation has no `await`. | [`Observer::blocked`](crate::Observer::blocked) names the process after 10 to 20 ms | Call [`should_yield`](crate::should_yield) in the loop, and await [`yield_now`](crate::SelfHandle::yield_now) if `should_yield` returns true. As an alternative, move the computation to [`spawn_blocking`](crate::Host::spawn_blocking). |
//! | A loop awaits futures that are always ready. | the same | Wrap each future in [`cooperative`](crate::cooperative()). |
//! | A process or an inline handler calls a blocking function. | the same; the CPU is idle | Use [`handle_blocking`](crate::Builder::handle_blocking), [`spawn_blocking`](crate::Host::spawn_blocking), or [`block_in_place`](crate::block_in_place). |
//! | Two processes send messages to each other without end. | the counter `messages` grows fast | Check the protocol. After 16 turns, the pair goes to the back of the queue, so other processes do not starve. |
//! | A process wakes itself without end. | the counter `polls` grows fast, and the process is always `Ready` or `Running` | Search for `wake_by_ref` in your own futures, and for [`Next::Again`](crate::Next::Again) in hand-written processes. |
//! | A process runs longer than it should. | | Set [`Limits::steps`](crate::Limits::steps) or [`Limits::time`](crate::Limits::time). These limits end the process with an error. |
//!
//! # Memory grows
//!
//! [`Host::explain`](crate::Host::explain) lists the full mailboxes. `Host::explain` also lists each mailbox that holds
//! at least 1,000 messages and has never held more messages than at present:
//!
//! ```
//! # use procession::{Context, Runtime};
//! # async fn log(_: Context<u64>) { std::future::pending().await }
//! # let rt = Runtime::builder().workers(0).build()?;
//! # let process = rt.process().name("log").spawn(log)?;
//! # (0..2_000).for_each(|number| process.send(number).unwrap());
//! # let text = rt.block_on(async {
//! #     process.started().await.unwrap();
//! println!("{}", rt.explain().findings[0]);
//! #     rt.explain().findings[0].to_string()
//! # });
//! # let name = std::any::type_name_of_val(&log);
//! # let expected = format!("\
//! #     the mailbox of {} \"log\" {name} holds 2000 messages and has never been longer; \
//! #     the process is Idle and does not receive\n\
//! #     what to do: read `Host::process_details` of the process to see what it waits for", process.pid());
//! # assert_eq!(text, expected);
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! ```text
//! the mailbox of <1-9f3c.0.1> "log" app::log holds 2000 messages and has never been longer; the process is Idle and does not receive
//! what to do: read `Host::process_details` of the process to see what it waits for
//! ```
//!
//! [`Host::sample_increases`](crate::Host::sample_increases) finds the processes whose mailboxes have grown most in a
//! given period, even if the mailboxes are still short:
//!
//! ```
//! # use procession::{Context, Runtime};
//! # use procession::observe::ProcessCount;
//! # async fn log(_: Context<u64>) { std::future::pending().await }
//! # let rt = Runtime::builder().workers(0).build()?;
//! # let process = rt.process().name("log").spawn(log)?;
//! # rt.block_on(process.started())?;
//! let mut sampler = rt.sample_increases(ProcessCount::MailboxLen);
//! // Some time later:
//! # (0..250).for_each(|number| process.send(number).unwrap());
//! # let increases = sampler.take(10);
//! # let name = std::any::type_name_of_val(&log);
//! # let row = format!("+250: {} \"log\" {name}: Idle, mailbox 250 (peak 250)", process.pid());
//! # assert_eq!(increases.to_string().lines().nth(1), Some(&*row));
//! # (250..500).for_each(|number| process.send(number).unwrap());
//! println!("{}", sampler.take(10));
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! ```text
//! increases of messages in the mailbox in a window of 5s
//! +250: <1-9f3c.0.1> "log" app::log: Idle, mailbox 250 (peak 250)
//! ```
//!
//! The view `Processes` of the console (key `2`) sorts the processes by the length of their mailboxes, longest first.
//! The column `PEAK` contains the largest length so far:
//!
//! ```text
//! 1 processes, by mailbox_len, largest first
//! PID                NAME OR TYPE       STATE         MAIL  PEAK CMDS WAITS  LINKS
//! <1-9f3c.0.1>       log                Idle          2000  2000    0     0      0
//! ```
//!
//! One call of `explain` cannot show that a mailbox grows, but a second call can show the growth. If the mailbox
//! contains more messages than at the first call, and the oldest message is still the same, the finding is a
//! [`GrowingMailbox`](crate::observe::Finding::GrowingMailbox). This finding contains the number of new messages:
//!
//! ```text
//! the mailbox of <1-9f3c.0.1> "log" app::log grew by 500 messages in 1.003s and holds 2500 messages, and the oldest message was not taken out; the process is Idle and does not receive
//! ```
//!
//! The field `memory` of [`Host::metrics`](crate::Host::metrics) shows the memory of the crate's own structures.
//! [`MemoryMetrics`](crate::observe::MemoryMetrics) lists the structures that this field does not include.
//!
//! | cause | how to recognize the cause | what to do |
//! |---|---|---|
//! | A mailbox grows, because the receiver is slower than its senders. | the [processes with the longest mailboxes](#list-the-processes), or [`Address::peak_mailbox_len`](crate::Address::peak_mailbox_len) | Set a [`MailboxCapacity`](crate::MailboxCapacity). Let the senders wait with [`send_wait`](crate::Address::send_wait). |
//! | Some messages are not accepted by any call of `receive_where`, so these messages stay in the mailbox. | With a `MailboxCapacity`, the length of the mailbox counts these messages. Otherwise the receiver keeps them in a buffer, and no length counts them. | Also receive these messages, or drop these messages. |
//! | `Down` and `Exit` events are never read. | the process has monitors or links, and calls only `receive` | Call [`event`](crate::Context::event), or remove the monitor with [`demonitor`](crate::SelfHandle::demonitor). |
//! | Stashed messages are never unstashed. | | Call [`unstash`](crate::Context::unstash). |
//! | Processes are spawned and never exit. | [`Host::processes_alive`](crate::Host::processes_alive) grows | Dropping a handle or all addresses does not end a process. Use a [`scope`](crate::SelfHandle::scope), a [deadline](crate::ProcessBuilder::deadline), or [`max_processes`](crate::Builder::max_processes). |
//! | The program keeps addresses or handles of exited processes. | `processes_alive` is low | The memory block of a process is freed with its last address or handle. Store the [`Pid`](crate::Pid) instead, because a pid keeps no memory alive. |
//! | A stream is not read, so its items wait. | | Read the stream, or drop the stream. At most [`StreamCommand::BUFFER`](crate::StreamCommand::BUFFER) items wait. |
//! | Many commands wait for a slow handler. | [`processes.outstanding_yields`](crate::observe::ProcessMetrics::outstanding_yields) grows | Use a [`layer`](crate::handler::layer), or limit the queue of the blocking pool: [`blocking_queue_capacity`](crate::Builder::blocking_queue_capacity). |
//!
//! After a burst, the runtime returns memory to the allocator. However, the allocator may not return this memory to the
//! system.
//!
//! # Shutdown hangs
//!
//! During a shutdown, [`Host::explain`](crate::Host::explain) lists the cancelled processes that wait:
//!
//! ```
//! # use procession::{Context, Runtime};
//! # use std::time::Duration;
//! # async fn session(ctx: Context) { ctx.sleep(Duration::from_secs(600)).await; }
//! # let rt = Runtime::builder().workers(0).build()?;
//! # let process = rt.spawn(session);
//! # rt.block_on(process.started())?;
//! let shutdown = rt.host().shutdown(Duration::from_secs(30));
//! # let text = rt.block_on(async {
//! #     rt.sleep(Duration::from_millis(1)).await;
//! println!("{}", rt.explain().findings[0]);
//! #     rt.explain().findings[0].to_string()
//! # });
//! # let begin = format!("\
//! #     the runtime shuts down, and 1 cancelled process waits and did not exit:\n  \
//! #     {} {} waits for the end of a sleep (600.",
//! #     process.pid(), std::any::type_name_of_val(&session));
//! # let end = "\nwhat to do: await `cancelled` or `receive` together with the other event, or set time limits";
//! # assert!(text.starts_with(&begin) && text.contains("s after the start) at ") && text.ends_with(end), "{text}");
//! # drop(shutdown);
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! ```text
//! the runtime shuts down, and 1 cancelled process waits and did not exit:
//!   <1-9f3c.0.1> app::session waits for the end of a sleep (600.001s after the start) at src/session.rs:8
//! what to do: await `cancelled` or `receive` together with the other event, or set time limits
//! ```
//!
//! While the shutdown runs, the view `Explain` of the console (key `6`) shows the same text, and then the number of
//! processes:
//!
//! ```text
//! the runtime shuts down, and 1 cancelled process waits and did not exit:
//!   <1-9f3c.0.1> app::session waits for the end of a sleep
//! (600.001s after the start) at src/session.rs:8
//! what to do: await `cancelled` or `receive` together with the other event, or set
//! time limits
//!
//! 1 process: 0 running, 0 ready, 1 waiting (1 for the end of a sleep)
//! ```
//!
//! If a process does not exit, the shutdown waits until the deadline, and then kills the process. If the runtime has
//! workers, [`Runtime::shutdown`](crate::Runtime::shutdown) returns when all killed processes have exited.
//! `Runtime::shutdown` also returns if 10 ms pass and no killed process exits during this time. If the runtime has no
//! workers, `Runtime::shutdown` returns only after the step in progress has returned. The
//! [report](crate::ShutdownReport) contains each remaining process and the state of the process:
//!
//! | report | cause | what to do |
//! |---|---|---|
//! | in a step that did not return | an endless or blocking step | see [above](#one-process-uses-all-cpu-time) |
//! | waiting for 2 commands, calls or sleeps | the body ignores the cancellation, because it waits for a command, a call or a sleep | Set time limits. As an alternative, put the wait into [`run_until_cancelled`](crate::SelfHandle::run_until_cancelled). |
//! | waiting for a message or another event | the body ignores the error of [`receive`](crate::Context::receive), or waits with `event` and ignores [`Event::Cancel`](crate::Event::Cancel) | Return from the body. |
//! | | the body waits for a socket or another event that is not a message | Put the wait into [`run_until_cancelled`](crate::SelfHandle::run_until_cancelled). |
//! | suspended | a suspended process takes no step, so it does not see the cancellation | [Resume](crate::Host::resume) the process before the shutdown. |
//! | waiting for a worker | there is too much work before the deadline, or no thread runs the processes | Set a later deadline. With 0 workers, poll the future that [`Runtime::shutdown`](crate::Runtime::shutdown) returns, because this future runs the processes. |
//!
//! Other causes:
//!
//! - If a process awaits `shutdown`, the shutdown waits for the exit of this process until the deadline. Drop the
//!   future, and let the process return.
//! - A supervisor waits for each of its children, up to the [stop time](crate::Child::shutdown) of the child. The
//!   default is 5 s. A child that is a supervisor has no limit by default.
//! - The drop of a runtime waits for steps in progress, up to one second. If an earlier shutdown could not end a
//!   process, the drop waits at most 10 ms. After this wait, the drop prints the pid of each process whose step has not
//!   returned, and detaches the thread of this step.
//!
//! # A message is missing
//!
//! The [dead letters](crate::Host::dead_letters) are accepted messages that no process will read: the receiver exited,
//! or the policy of the full mailbox dropped the message. The [counters](crate::Host::counters) show whether messages
//! were refused, dropped or not read:
//!
//! ```
//! # use procession::{Context, Exit, Runtime};
//! # async fn worker(mut ctx: Context<u64>) -> Result<(), Exit> { ctx.receive().await.map(drop) }
//! # let rt = Runtime::builder().workers(0).build()?;
//! let mut dead_letters = rt.dead_letters();
//! # let process = rt.spawn(worker);
//! # let address = process.address();
//! # (1..=2).for_each(|number| address.send(number).unwrap());
//! # rt.block_on(process)?;
//! # assert!(address.send(3).is_err());
//! # rt.block_on(async {
//! let letter = dead_letters.receive().await?;
//! println!("{} did not read a message of the type {}", letter.to, letter.payload.type_name());
//! # assert_eq!((letter.to, letter.payload.type_name()), (address.pid(), "u64"));
//! # Ok::<(), Exit>(())
//! # })?;
//! let counters = rt.counters();
//! println!("refused: {}, dead letters: {}", counters.refused, counters.dead_letters);
//! # assert_eq!((counters.refused, counters.dead_letters), (1, 1));
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! ```text
//! <1-9f3c.0.1> did not read a message of the type u64
//! refused: 1, dead letters: 1
//! ```
//!
//! The view `Overview` of the console (key `1`) shows these counters. In the left column, the first number is the rate
//! per second, and the second number is the total since the start:
//!
//! ```text
//! refused           0.0         1   commands 0  timers 0  sockets 0
//! dropped           0.0         0   Workers 0
//! dead letters      0.0         1   running 0  searching 0  parked 0  blocked 0
//! late replies      0.0         0   queues: local 0  global 0  priority 0
//! ```
//!
//! To see whether a message arrives at a process, and when the process receives the message, press `t` in the view of
//! this process. The console then shows a live trace with the sender of each message.
//!
//! | cause | how to recognize the cause | what to do |
//! |---|---|---|
//! | The send was refused, and the sender ignored the error. | the counter `refused` | Handle the error of [`send`](crate::Address::send), which contains the message. |
//! | The receiver exited before it read the message. | the counter `dead_letters` is higher than the counter `dropped_by_policy`; [`Host::dead_letters`](crate::Host::dead_letters) receives the message | If the sender must know the result, use a [`call`](crate::Address::call). [`Child::keep_mailbox`](crate::Child::keep_mailbox) keeps unread messages across a restart. |
//! | The policy of a full mailbox dropped the message. | the counter `dropped_by_policy` | Use [`MailboxCapacity::Reject`](crate::MailboxCapacity::Reject). |
//! | The process received the message and then crashed. | the exit of the process | The message is lost, as in Erlang. If a call fails, send the request again. |
//! | The body waits for another event and does not receive. | the state of the process is `Blocked`, or `Idle` with a long mailbox | Wait for both the other event and a message in one `select!` (see [chapter 5](super::tutorial::time)), or use `event`. |
//! | A `receive_where` left the message in the mailbox. | | The next plain [`receive`](crate::Context::receive) returns the message. |
//! | The pid belongs to another runtime, or the process was restarted and has a new pid. | [`SendErrorKind::NoProcess`](crate::SendErrorKind::NoProcess) | Send to a [`Name`](crate::Name). |
//! | A message of `send_after` or `send_interval` to a pid has another type than the receiver's messages. | the counter `refused` | Pass an [`Address`](crate::Address), for example `&ctx.address()`, instead of a pid. The compiler then checks the type. |
//! | The process that called `send_after` or `send_interval` has exited. | | The exit of a process cancels its timers. |
//! | A `receive` future was dropped. | | A dropped `receive` loses no message, because `receive` is cancel safe. |
//!
//! # A call never returns
//!
//! [`Host::process_details`](crate::Host::process_details) shows what the caller waits for. The callee may wait for
//! another process. If the processes wait for each other, [`Host::explain`](crate::Host::explain) reports a
//! [deadlock](#find-a-deadlock).
//!
//! ```
//! # use procession::{Context, Reply, Runtime};
//! # async fn bank(_: Context<Reply<u64>>) { std::future::pending().await }
//! # async fn shop(ctx: Context) { _ = ctx.call("bank", |reply: Reply<u64>| reply).await; }
//! # let rt = Runtime::builder().workers(0).build()?;
//! # let callee = rt.process().name("bank").spawn(bank)?;
//! # let caller = rt.process().name("shop").spawn(shop)?;
//! # let (host, pid) = (rt.host().clone(), caller.pid());
//! # rt.block_on(rt.spawn(async |ctx: Context| ctx.yield_now().await))?;
//! for event in host.process_details(pid).expect("the process is alive").waits_for {
//!     println!("{event}");
//! }
//! # let waits_for = host.process_details(pid).expect("the process is alive").waits_for;
//! # let start = format!("the answer to a call to {} at ", callee.pid());
//! # assert!(waits_for.len() == 1 && waits_for[0].to_string().starts_with(&start));
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! ```text
//! the answer to a call to <1-9f3c.0.1> at src/shop.rs:41
//! ```
//!
//! In the view `Processes` or `Waits`, press Enter to open the view `Process` of the console (key `3`). This view shows
//! what the process waits for, and for how long:
//!
//! ```text
//! names         shop
//! type          app::shop
//! state         Blocked for 12 s, priority Normal
//! waits for     the answer to a call to <1-9f3c.0.1> at src/shop.rs:41
//! ```
//!
//! The view `Waits` (key `4`) shows the deadlocks, and all processes that wait for another process.
//!
//! If the process that holds the [`Reply`](crate::Reply) exits or drops the `Reply`, the call fails immediately. The
//! called process may have passed the `Reply` to another process. The output names this other process only if the
//! called process has used [`Reply::forward`](crate::Reply::forward). With
//! [`keep_mailbox`](crate::Child::keep_mailbox), the request may also wait in the mailbox of a stopped child.
//!
//! | cause | how to recognize the cause | what to do |
//! |---|---|---|
//! | Two processes call each other. | [`Host::wait_for_graph`](crate::Host::wait_for_graph) reports a [deadlock](#find-a-deadlock) | Set [`Call::timeout`](crate::future::Call::timeout). As an alternative, let one of the two processes send its answer as a message instead of a reply. A [`Simulation`](crate::Simulation) also reports this deadlock. |
//! | The other process waits for another event before it answers. | the field `waits_for` of its [details](#list-the-processes) | Follow the callees from process to process. |
//! | The other process waits for a socket. | its [details](#list-the-processes) contain, for example, `data from descriptor 12` | `lsof -p PID` or `ss -tnp` names the peer of the descriptor. Put [`Host::timeout`](crate::Host::timeout) around the operation. |
//! | The other process stored the `Reply` and never used it. | | Check each path of the code. [`Reply::is_closed`](crate::Reply::is_closed) returns whether the caller has stopped waiting. |
//! | The request waits behind many messages. | [`peak_mailbox_len`](crate::Address::peak_mailbox_len) | Use a [`Pool`](crate::Pool), or a bounded mailbox. |
//! | A handler keeps the [`Completion`](crate::Completion) and never answers. | the finding [`UnansweredCommands`](crate::observe::Finding::UnansweredCommands) of [`Host::explain`](crate::Host::explain) names the handler, and the age of the oldest command grows | Set [`Perform::timeout`](crate::future::Perform::timeout), or put a [`Timeout`](crate::handler::layer::Timeout) around the handler. |
//! | The runtime does not run. | no call returns | See [Nothing runs](#nothing-runs). |
//! | A process awaits its own handle, or calls itself. | the handle fails immediately; a call to itself waits forever | Compute the answer in the process, without a call. |
//!
//! # A process has disappeared
//!
//! [`Host::last_exits`](crate::Host::last_exits) returns the last abnormal exits, and
//! [`Builder::exit_history`](crate::Builder::exit_history) sets the maximum number of stored exits:
//!
//! ```
//! # use procession::{Context, Runtime};
//! # async fn cache(mut ctx: Context<u64>) { panic!("no entry {}", ctx.receive().await.unwrap()) }
//! # let rt = Runtime::builder().workers(0).build()?;
//! # let process = rt.process().name("cache").spawn(cache)?;
//! # (7..10).for_each(|number| process.send(number).unwrap());
//! # let pid = process.pid();
//! # assert!(rt.block_on(process).is_err());
//! for exit in rt.last_exits() {
//!     println!("{exit}");
//! }
//! # let text = rt.last_exits()[0].to_string();
//! # let start = format!("{pid} \"cache\" {} panicked at ", std::any::type_name_of_val(&cache));
//! # assert!(text.starts_with(&start) && text.contains(": no entry 7 ("), "{text}");
//! # assert!(text.ends_with("s after the start, mailbox 2)"), "{text}");
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! ```text
//! <1-9f3c.0.1> "cache" app::cache panicked at src/cache.rs:12:5: no entry 7 (12.5s after the start, mailbox 2)
//! ```
//!
//! With `RUST_LIB_BACKTRACE=1` or `RUST_BACKTRACE=1`, the record of a panic also contains the
//! [backtrace](crate::observe::ExitRecord::backtrace). The runtime keeps only the newest 8 backtraces. With
//! [`Builder::inspect`](crate::Builder::inspect), a record contains the [last
//! messages](crate::observe::ExitRecord::last_messages) of the process.
//!
//! The view `Exits` of the console (key `7`) lists the newest exit first, and shows the details of the selected exit:
//!
//! ```text
//! AGO      PID                NAME OR TYPE     EXIT
//! 12 s     <1-9f3c.0.1>       cache            panicked at …he.rs:12:5: no entry 7
//!
//! app::cache: 2 unread messages
//! at src/cache.rs:12:5
//! ```
//!
//! | exit | cause | what to do |
//! |---|---|---|
//! | `panicked` | The code of the process panicked at this source line. | Correct the code. A [`Supervisor`](crate::Supervisor) restarts the process. |
//! | `failed` | The process returned this error. | Handle the error in the process, or restart the process. |
//! | `linked to process` | A linked process exited first. | Look for the exit of the named process. To receive the exit as an event, call [`trap_exit`](crate::SelfHandle::trap_exit). |
//! | `cancelled` | The process was asked to exit, its deadline passed, or its scope ended. | The text after `cancelled` is the reason. |
//! | `killed` | The process was killed, or did not exit within the grace period of its cancellation. | Let the process exit within the grace period. |
//! | no record | The process exited normally, was refused at its spawn, or was cancelled or killed during a shutdown; or later records have displaced its record. | Await the join handle, or call [`monitor`](crate::SelfHandle::monitor). |
//!
//! # No reactor is running
//!
//! The process awaits a future of tokio, but its thread is not in the context of a tokio runtime. The record of the exit
//! contains the panic message of tokio. For a timer of tokio, the record also contains the source line that created the
//! future. For a socket or a file, the record contains a source line of tokio instead:
//!
//! ```
//! # use procession::{Context, Runtime};
//! # async fn fetch(_: Context) { tokio::time::sleep(std::time::Duration::from_secs(1)).await }
//! # let rt = Runtime::builder().workers(0).build()?;
//! # assert!(rt.block_on(rt.spawn(fetch)).is_err());
//! println!("{}", rt.last_exits()[0]);
//! # let text = rt.last_exits()[0].to_string();
//! # assert!(text.contains("::fetch panicked at "), "{text}");
//! # assert!(text.contains(": there is no reactor running, must be called from the context of a Tokio 1.x runtime ("));
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! ```text
//! <1-9f3c.0.1> app::fetch panicked at src/fetch.rs:8:5: there is no reactor running, must be called from the context of
//!     a Tokio 1.x runtime (58.4ms after the start, mailbox 0)
//! ```
//!
//! Pass the handle of a tokio runtime to `Builder::tokio` (feature `tokio`): see [chapter
//! 6](super::tutorial::embedding) of the tutorial.
//!
//! # A command has no handler
//!
//! A command fails with [`Failure::NoHandler`](crate::Failure::NoHandler) if no handler is registered for its type. If
//! the process passes the error on, the process fails, and the record of its exit names the command:
//!
//! ```
//! # use procession::{Command, Context, Exit, Runtime};
//! # struct Query;
//! # impl Command for Query { type Reply = u64; }
//! # async fn report(ctx: Context) -> Result<u64, Exit> { Ok(ctx.perform(Query).await?) }
//! # let rt = Runtime::builder().workers(0).build()?;
//! # assert!(rt.block_on(rt.spawn(report)).is_err());
//! println!("{}", rt.last_exits()[0]);
//! # let text = rt.last_exits()[0].to_string();
//! # let name = std::any::type_name::<Query>();
//! # let end = format!("::report failed: no handler is registered for the command {name}; add one with `Builder::handler` (");
//! # assert!(text.contains(&end), "{text}");
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! ```text
//! <1-9f3c.0.1> app::report failed: no handler is registered for the command app::Query; add one with `Builder::handler`
//!     (843µs after the start, mailbox 0)
//! ```
//!
//! The table `Handlers` in the view `Registry` of the console (key `9`) lists the types of the registered handlers. See
//! [chapter 3](super::tutorial::commands) of the tutorial for the registration of handlers.
//!
//! # The code does not compile
//!
//! | message of the compiler | cause | what to do |
//! |---|---|---|
//! | `type annotations needed` | The compiler does not know the type of the messages of a closure's context. | Write the type: `\|ctx: Context<Msg>\|`, or `\|ctx: Context\|` for a process without messages. |
//! | `future cannot be sent between threads safely` | The body keeps a value that is not `Send` across an `await`, for example an `Rc`. | Drop the value before the `await`, or spawn the body in a [`LocalSet`](crate::LocalSet). |
//! | `cannot borrow ctx as immutable because it is also borrowed as mutable` | A future of `receive` borrows the context, and another future of the same `select!` also needs the context. | Call [`split`](crate::Context::split): see [chapter 5](super::tutorial::time). |
//! | `async closure does not implement Fn` or `lifetime may not live long enough`, in a handler | The future of a handler must not borrow from its closure. | Clone the captured value before the future: see [chapter 3](super::tutorial::commands). |
//! | `?` cannot convert an error of your own to `Exit` | `Exit` converts from most errors of this crate, from `std::io::Error` and from [`BoxError`](crate::BoxError), but from no other error. | `.map_err(Exit::failed)?`, or return [`procession::Result`](crate::Result): see [chapter 1](super::tutorial::first_process). |

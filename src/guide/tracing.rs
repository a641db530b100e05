//! Execution traces: how to record the work of each worker and each process, and how to read the record in Perfetto.
//!
//! This page is not about the crate `tracing`. For the spans and events of that crate, use
//! `observe::TracingObserver`, with the feature `tracing`.
//!
//! # Record a trace
//!
//! [`Host::start_trace`](crate::Host::start_trace) begins a trace at any time, on any thread, and writes the trace to a
//! file. The trace ends when the program calls `finish` on the handle of the trace, or drops this handle:
//!
//! ```
//! # use procession::{Context, Runtime};
//! # let dir = std::env::temp_dir().join(format!("procession-guide-{}", std::process::id()));
//! # std::fs::create_dir_all(&dir)?;
//! # let path = dir.join("run.pftrace");
//! let rt = Runtime::new()?;
//! let trace = rt.start_trace(&path)?;
//! rt.block_on(rt.spawn(async |ctx: Context| ctx.yield_now().await))?;
//! let summary = trace.finish()?;
//! println!("{} events, {} lost", summary.events, summary.lost);
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! [`Host::start_trace_to`](crate::Host::start_trace_to) writes the trace to any [`Write`](std::io::Write), for example
//! a socket. A [`Simulation`](crate::Simulation) is traced in the same way. The times in the trace of a simulation are
//! virtual, and two runs with the same seed give the same bytes.
//!
//! [`Host::start_trace_with`](crate::Host::start_trace_with) takes [options](crate::observe::TraceOptions). These
//! options can limit the trace to one process or to the processes of some types. The options can also set a number of
//! events after which the trace ends. The processes that are not in the trace have no additional cost.
//!
//! # Open a trace
//!
//! Open <https://ui.perfetto.dev> in a browser, and drag the file into the page. The page reads the file in the
//! browser, and does not upload the file. If a file is incomplete, for example because the program was killed, the page
//! shows the file up to the last complete packet.
//!
//! | track | contents |
//! |---|---|
//! | `worker 0`, `worker 1`, … | one slice (an interval with a label) for each step; the label contains the name, the type and the entry point of the process. Also slices for the search and the sleep of the worker |
//! | `thread 0`, … | the slices of a thread that is not a worker, for example a thread that owns a [`LocalSet`](crate::LocalSet) |
//! | `Counters` | number of queued tasks, timers, sockets and replaced workers; total numbers of parks and steals |
//! | one track for each process | the states of the process: `ready`, `running`, `blocked`, `idle`, `suspended` |
//!
//! These slices and marks occur on the track of a worker:
//!
//! | name | category | meaning |
//! |---|---|---|
//! | label of a process | `step` | a step; the annotation `pid` identifies the process |
//! | label of a process | `init` | the code of a hand-written process before its first step |
//! | label of a process | `exit` | a turn in which a killed process exits, without a step |
//! | `searching`, `parked` | `worker` | the worker has no task |
//! | `blocked worker` | `worker` | inside a step: the step was long, or called [`block_in_place`](crate::block_in_place()), and a replacement thread may take over the queues |
//! | `send`, `receive` | `message` | a mailbox accepted a message, or a process received a message; an arrow connects the two marks |
//! | `yield`, `completion` | `command` | a process yielded a command, or the command was answered; an arrow connects the two marks |
//! | `spawn` | `process` | the step spawned a process |
//! | `preempted` | `process` | the process has spent the budget of its turn, and goes to the back of the queue |
//! | `steal` | `worker` | the worker stole tasks from the worker `victim` |
//! | `lost` | `lost` | the worker had reached its limit of events, or newer events had replaced events that were not read yet; the annotation `count` is the number of turns and other events that the trace lacks |
//!
//! A mailbox keeps the order of its messages, so the n-th `receive` mark belongs to the n-th accepted message. The
//! trace relies on this order. The following events change the order: lost events, a dropped message, an urgent
//! message, a selective receive ([`Mailbox::receive_where`](crate::Mailbox::receive_where)) that skips a message, and
//! [`Context::unstash`](crate::Context::unstash). After an event that changes the order, the messages of the process
//! have no arrows until the process has received all its messages and waits for the next message. A message that a
//! [`Pool`](crate::Pool) forwards has no arrow. If the track of a worker or of another thread has a mark `lost`, an
//! open slice of this track ends at the last event before the mark. The mark also ends all open `ready` slices. After
//! the mark, the trace may show an outdated state of a process until the next event of this process. If the trace has
//! reached its maximum rate and skips a change of the state, the slice of the previous state ends.
//!
//! # The flight recorder
//!
//! A fault is often noticed so late that a new trace would not contain the cause of the fault. A flight recorder keeps
//! the last events in memory, and writes these events to a file after the fault.
//! [`Builder::flight_recorder`](crate::Builder::flight_recorder) turns on the flight recorder, and
//! [`FlightRecorder`](crate::observe::FlightRecorder) contains the options of the recorder. The written file has the
//! same format as the file of a trace. The flight recorder can write a file on six occasions:
//!
//! | occasion | how |
//! |---|---|
//! | on demand | [`Host::write_flight_record`](crate::Host::write_flight_record) or [`Host::write_flight_record_to`](crate::Host::write_flight_record_to), on any thread |
//! | a process panics | [`FlightRecorder::write_on_panic`](crate::observe::FlightRecorder::write_on_panic) |
//! | a worker is in a long step | [`FlightRecorder::write_on_blocked_worker`](crate::observe::FlightRecorder::write_on_blocked_worker) |
//! | a signal arrives | `FlightRecorder::write_on_signal`, with the feature `net` on Unix |
//! | a user presses `F` in the console | `Builder::console_actions`, with the feature `console` |
//! | a seed of a check fails | [`Check::flight_record`](crate::Check::flight_record); the times in this file are virtual |
//!
//! With the feature `net` on a Unix system, the program can also write a record when a signal arrives. A blocked worker
//! does not delay this record:
//!
//! ```
//! # #[cfg(all(feature = "net", unix))]
//! # {
//! use procession::Runtime;
//! use procession::observe::FlightRecorder;
//! use procession::signal::unix::SignalKind;
//!
//! // `kill -USR1 PID` writes the file `flight-PID-1-1-signal.pftrace` to this folder.
//! let recorder = FlightRecorder::new().folder("/var/tmp").write_on_signal(SignalKind::USER_DEFINED1);
//! let rt = Runtime::builder().flight_recorder(recorder).build()?;
//! # drop(rt);
//! # }
//! # Ok::<(), procession::BuildError>(())
//! ```
//!
//! Each buffer keeps a fixed number of events. Therefore the buffer of a busy worker covers a shorter time than the
//! buffer of a worker with few events. [`FlightSummary::complete`](crate::observe::FlightSummary::complete) is the
//! length of the last period in which no worker has lost an event. Before this period, the record is incomplete. The
//! mark `lost` on the track of a worker shows where the buffer of the worker begins. Some states of a process may be
//! missing, and messages have no arrows. With a flight recorder, the workers record every event. If the writer of a
//! trace is too slow, the trace loses its oldest events.
//!
//! # Costs and limits
//!
//! Without a trace, a turn of a process costs the same as in a runtime that never traces. For each message, command and
//! spawn, the runtime checks a flag that is already in the cache.
//!
//! With a trace, the worker reads the clock for each event. A turn in which a process receives and sends one message
//! has five events. Each worker records at most 4,096 events in a burst. Over a longer time, each worker records at
//! most about 50,000 events per second. At its limit, the worker *skips* whole turns: the worker runs these turns, but
//! does not record the events of these turns. The thread of the trace raises the limit 100 times per second. Therefore
//! a program with many very short steps is recorded in part, and a program with longer steps is recorded completely. A
//! skipped turn records no messages, commands or wake-ups. If a skipped turn wakes a process, the trace may lack the
//! state `ready` of this process. The limit never delays the worker. A process that is not selected by the options of
//! the trace has no additional cost.
//!
//! A flight recorder skips no turn, even if a worker runs very many turns per second. The flight recorder reads the
//! clock once for each event. The flight recorder also needs the memory of its buffers.
//!
//! Two processes exchanged messages on one worker, at the highest rate. The numbers are the CPU time of the program,
//! and include the thread of the trace. The numbers are relative to a run without inspection. Each number is the median
//! of 9 rounds, followed by the 95 % confidence interval of the median. In the repository, the command `cargo
//! bench-inspection` measures these rows again:
//!
//! | | relative CPU time |
//! |---|---|
//! | trace that selects only processes of another type | 1.01 [0.98, 1.02] |
//! | trace | 1.13 [1.09, 1.16] |
//! | flight recorder | 4.21 [4.21, 4.31] |
//! | [`Builder::inspect`](crate::Builder::inspect): the last 8 messages of each process | 1.59 [1.56, 1.63] |
//! | [`Builder::sample_every_step`](crate::Builder::sample_every_step) | 5.61 [5.57, 5.72] |
//!
//! Each turn of this program takes 48 ns, so the trace reaches its limit of 50,000 events per second and skips nearly
//! all turns. The cost for each turn does not depend on the length of the turn. The cost is a few nanoseconds for a
//! skipped turn, and about 150 ns for a recorded turn. A program whose turns take 10 µs becomes 1.5 % slower with a
//! flight recorder.

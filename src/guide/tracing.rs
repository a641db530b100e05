//! Execution traces: how to record the work of each worker and each process, and how to read the record in Perfetto.
//!
//! # Record a trace
//!
//! [`Host::start_trace`](crate::Host::start_trace) begins a trace at any time, on any thread, and writes it to a file. The
//! trace ends when its handle is finished or dropped:
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
//! [`Host::start_trace_to`](crate::Host::start_trace_to) writes the trace to any [`Write`](std::io::Write), for example a
//! socket. A [`Simulation`](crate::Simulation) is traced in the same way. The times in its trace are virtual, and the same
//! seed gives the same bytes.
//!
//! # Open a trace
//!
//! Open <https://ui.perfetto.dev> in a browser, and drag the file into the page. The page reads the file in the browser,
//! and does not upload it. A file that was cut off, for example because the program was killed, opens up to its last whole
//! packet.
//!
//! | track | contents |
//! |---|---|
//! | `worker 0`, `worker 1`, … | one slice for each step, named by the name, type and entry method of its process; slices for the search and the sleep of the worker |
//! | `thread 0`, … | the same for threads that are no workers, for example a thread that owns a [`LocalSet`](crate::LocalSet) |
//! | `Counters` | number of queued tasks, timers, sockets and replaced workers; total numbers of parks and steals |
//! | one track for each process | the states of the process: `ready`, `running`, `blocked`, `idle` |
//!
//! These slices and marks occur on the lane of a worker:
//!
//! | name | category | meaning |
//! |---|---|---|
//! | label of a process | `step` | a step; the annotation `pid` identifies the process |
//! | label of a process | `init` | the code of a hand-written process before its first step |
//! | label of a process | `exit` | a turn in which a killed process exits, without a step |
//! | `searching`, `parked` | `worker` | the worker has no task |
//! | `blocked worker` | `worker` | inside a step: the step was long, or called [`block_in_place`](crate::block_in_place()), and a replacement thread may take over the queues |
//! | `send`, `receive` | `message` | a mailbox accepted a message, or a process received a message; an arrow connects both |
//! | `yield`, `completion` | `command` | a process yielded a command, or the command was answered; an arrow connects both |
//! | `spawn` | `process` | the step spawned a process |
//! | `preempted` | `process` | the process has spent the budget of its turn, and goes to the back of the queue |
//! | `steal` | `worker` | the worker stole tasks from the worker `victim` |
//! | `lost` | `lost` | the worker had reached its limit, and skipped this number of turns and other events |
//!
//! A mailbox keeps the order of its messages, so the n-th receipt belongs to the n-th message. The trace relies on this
//! order. The following events change the order: lost events, a dropped message, an urgent message, a selective receive
//! ([`Mailbox::receive_where`](crate::Mailbox::receive_where)) and [`Context::unstash`](crate::Context::unstash). After
//! such an event, the messages of the process have no arrows until the process is idle. A message that a
//! [`Pool`](crate::Pool) forwards has no arrow.
//!
//! # Costs and limits
//!
//! Without a trace, a turn of a process costs the same as in a runtime that never traces. A message, a command and a spawn
//! check a flag that is already in the cache.
//!
//! With a trace, a recorded turn takes two readings of the clock more. Each worker records at most 8,192 events in 10 ms.
//! After that, the worker skips whole turns until the thread of the trace has read its buffer. Therefore short steps at
//! the highest rate are recorded in part, and a program with longer steps is recorded as a whole. A skipped event never
//! delays the worker.

//! An observer that reports to the crate `tracing`: one span for each process, and events about the process.

use std::collections::BTreeMap;
use std::fmt;

use tracing::{Span, dispatcher};

use crate::observe::crash::CrashReport;
use crate::observe::states::{ProcessState, WorkerState};
use crate::observe::{Observer, Transition};
use crate::platform::clock::Instant;
use crate::platform::sync::{Arc, CachePadded, Mutex};
use crate::process::catch::catch;
use crate::process::exit::Exit;
use crate::process::pid::Pid;

/// Number of tables. Each table has its own lock. To select the table of a pid, the index of the pid is taken modulo
/// the number of tables.
const SHARDS: usize = 64;

/// Table of the spans of living processes. Each span is in an `Arc`, and a thread that holds the lock clones only the
/// `Arc`. `Span::clone` calls the subscriber, and the subscriber must not run under the lock.
type Spans = Mutex<BTreeMap<Pid, Arc<Span>>>;

/// An observer that creates a [`tracing::Span`] for each process. Needs the feature `tracing`.
///
/// The span has the target `procession`, the level `INFO` and the name `process`. Its fields are `pid`, `type`, and
/// also `name` if the [builder](crate::ProcessBuilder::name) of the process has set a name. The span is entered while
/// the process runs, so each event of the process's code is inside this span. The parent of the span is the current
/// span of the code that spawned the process. If another process spawned the process, the parent is the span of that
/// other process.
///
/// These events have the target `procession`:
///
/// | event | level | span | fields |
/// |---|---|---|---|
/// | `process started` | `DEBUG` | the process | |
/// | `process crashed` | `ERROR` | the process | `report`: the text of the [`CrashReport`] |
/// | `process exited` | `DEBUG` for a normal exit, `INFO` for all other exits | the process | `exit` |
/// | `long step` | `WARN` | the process, or none for a future without a pid | `worker` |
/// | `child restarts` | `WARN` | the supervisor | `child`, `exit` |
///
/// On each thread, the observer uses the current subscriber of this thread. The observer never installs a subscriber.
/// The monitor thread reports a long step to the subscriber of the span. If there is no subscriber, or if the
/// subscriber is not interested in the span, a process has no span. The runtime calls the observer for each transition
/// of a process. At the beginning and at the end of each turn, the observer takes a lock and calls the subscriber.
/// Without this observer, the feature `tracing` costs nothing.
///
/// ```
/// use procession::observe::TracingObserver;
/// use procession::{Context, Runtime};
///
/// let rt = Runtime::builder().observer(TracingObserver::new()).build()?;
/// rt.block_on(rt.spawn(async |_: Context| tracing::info!("this event is in the span of the process")))?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
///
/// # Messages and commands
///
/// A message does not contain the span of its sender, because each message would then be larger. If the receiver needs
/// this span, wrap the message in [`tracing::instrument::Instrumented`]:
///
/// ```
/// use procession::{Context, Exit};
/// use tracing::Span;
/// use tracing::instrument::{Instrument, Instrumented};
///
/// async fn receiver(mut ctx: Context<Instrumented<u64>>) -> Result<u64, Exit> {
///     let message = ctx.receive().await?;
///     Span::current().follows_from(message.span());
///     Ok(message.into_inner())
/// }
///
/// let rt = procession::Runtime::new()?;
/// let receiver = rt.spawn(receiver);
/// receiver.send(7.in_current_span())?;
/// assert_eq!(rt.block_on(receiver)?, 7);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
///
/// A handler of a command is called inside the span of the process that yields the command. The future of an async
/// handler is polled outside this span, unless the handler returns `future.in_current_span()`. A closure on the
/// blocking pool is also outside this span.
pub struct TracingObserver {
    shards: Box<[CachePadded<Spans>]>,
    next: Option<Box<dyn Observer>>,
}

impl fmt::Debug for TracingObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TracingObserver").finish_non_exhaustive()
    }
}

impl Default for TracingObserver {
    fn default() -> Self {
        Self::new()
    }
}

impl TracingObserver {
    /// Creates the observer.
    pub fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| CachePadded(Spans::default())).collect(), next: None }
    }

    /// Creates an observer that also calls another observer. A runtime has only one observer. If your program has its
    /// own observer, pass this observer to this function. Each method calls `next` inside the span of the process.
    pub fn with(next: impl Observer) -> Self {
        Self { next: Some(Box::new(next)), ..Self::new() }
    }

    fn shard(&self, pid: Pid) -> &Spans {
        &self.shards[pid.index() as usize % SHARDS]
    }

    fn span(&self, pid: Pid) -> Option<Arc<Span>> {
        self.shard(pid).lock().get(&pid).cloned()
    }

    /// Calls the other observer, if there is one. Catches a panic of the other observer, so that each span is stored
    /// and exited.
    fn next(&self, f: impl FnOnce(&dyn Observer)) {
        if let Some(next) = &self.next {
            let _ = catch(|| f(&**next));
        }
    }
}

impl Observer for TracingObserver {
    fn started(&self, pid: Pid, name: Option<&str>, type_name: &'static str) {
        let span = tracing::info_span!(target: "procession", "process", %pid, name, "type" = type_name);
        span.in_scope(|| {
            tracing::debug!(target: "procession", "process started");
            self.next(|next| next.started(pid, name, type_name));
        });
        if !span.is_none() {
            self.shard(pid).lock().insert(pid, Arc::new(span));
        }
    }

    fn crashed(&self, report: &CrashReport) {
        let tell = || {
            tracing::error!(target: "procession", %report, "process crashed");
            self.next(|next| next.crashed(report));
        };
        match self.span(report.pid) {
            Some(span) => span.in_scope(tell),
            None => tell(),
        }
    }

    fn ended(&self, pid: Pid, name: Option<&str>, type_name: &'static str, exit: &Exit) {
        let span = self.shard(pid).lock().remove(&pid);
        let report = || {
            if exit.is_normal() {
                tracing::debug!(target: "procession", %exit, "process exited");
            } else {
                tracing::info!(target: "procession", %exit, "process exited");
            }
            self.next(|next| next.ended(pid, name, type_name, exit));
        };
        match span {
            Some(span) => span.in_scope(report),
            None => report(),
        }
    }

    fn transition(&self, t: &Transition) {
        // A process enters `Running` at the beginning of a turn, and leaves this state on the same thread at the end of
        // the turn. Therefore the span is entered and exited on one thread.
        let begins = t.to == ProcessState::Running;
        let ends = !begins && t.from == Some(ProcessState::Running);
        let span = (begins || ends).then(|| self.span(t.pid)).flatten();
        if begins && let Some(span) = &span {
            span.with_subscriber(|(id, subscriber)| subscriber.enter(id));
        }
        self.next(|next| next.transition(t));
        if ends && let Some(span) = &span {
            span.with_subscriber(|(id, subscriber)| subscriber.exit(id));
        }
    }

    fn worker(&self, worker: usize, state: WorkerState, at: Instant) {
        self.next(|next| next.worker(worker, state, at));
    }

    fn blocked(&self, worker: usize, pid: Option<Pid>, at: Instant) {
        let report = || {
            tracing::warn!(target: "procession", worker, "long step");
            self.next(|next| next.blocked(worker, pid, at));
        };
        // The monitor thread has no subscriber of its own, unless there is a global subscriber. Therefore the observer
        // sends the event to the subscriber of the span.
        let span = pid.and_then(|pid| self.span(pid));
        let subscriber = span.as_ref().and_then(|span| span.with_subscriber(|(_, subscriber)| subscriber.clone()));
        match (span, subscriber) {
            (Some(span), Some(subscriber)) => dispatcher::with_default(&subscriber, || span.in_scope(report)),
            _ => report(),
        }
    }

    fn panicked(&self, pid: Pid, message: &str) {
        self.next(|next| next.panicked(pid, message));
    }

    fn restarted(&self, supervisor: Pid, child: &str, exit: &Exit) {
        // The supervisor calls this method during a step of the supervisor.
        tracing::warn!(target: "procession", child, %exit, "child restarts");
        self.next(|next| next.restarted(supervisor, child, exit));
    }
}

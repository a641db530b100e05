//! Defines the futures [`JoinHandle`] and [`Started`]. A spawn returns a `JoinHandle`, which resolves to the outcome of
//! the process. `Started` resolves when the process has started. The futures read the control block and the cell of the
//! process.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context as Cx, Poll, ready};

use futures::future::FusedFuture;

use crate::context::address::Address;
use crate::context::multi_call::{Callee, Callees, Expand, expand_destination};
use crate::host::Host;
use crate::host::control::waits::{Wait, WaitKind};
use crate::host::control::{AnyControl, Control, Head, Listening, flag};
use crate::host::refs::RecordedWait;
use crate::host::registry::target::{DestinationRef, Route, Target};
use crate::process::catch::{Guard, Held};
use crate::process::event::MonitorRef;
use crate::process::exit::{Exit, Reason};
use crate::process::payload::Payload;
use crate::process::pid::Pid;
use crate::process::state::Ref;
use crate::process::state::budget::BudgetPause;
use crate::process::state::current::Current;
use crate::task::cell::Joined;

/// Future that resolves to the outcome of a process. The outcome is either the output or the exit of the process. A
/// `JoinHandle` dereferences to the address of the process.
///
/// If the handle is dropped, the process is detached: the process continues to run, and its outcome is dropped when the
/// process exits. If a caller does not need the outcome, the caller can drop the handle. If the process must not
/// outlive its handle, put the handle into a [`JoinSet`](crate::JoinSet), or spawn the process in a
/// [scope](crate::SelfHandle::scope). A dropped `JoinSet` kills its processes.
///
/// The handle receives the exit when the handle resolves. A failure of the process is *unobserved* if both of these
/// conditions hold: the handle is dropped before the handle has resolved, and the exit has no other receiver. The exit
/// can have these receivers: a link, a monitor, a supervisor, or a future of [`exited`](Address::exited) or
/// [`started`](Self::started). An unobserved failure is [counted](crate::observe::Counters::unobserved), and makes a
/// [`check`](crate::check()) fail.
pub struct JoinHandle<T, M: Send + 'static = Payload> {
    joined: Joined<T, M>,
    monitor: Option<MonitorRef>,
    guard: Guard,
    pause: BudgetPause,
    over: bool,
}

impl<T, M: Send + 'static> fmt::Debug for JoinHandle<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JoinHandle").field(&self.pid()).finish()
    }
}

impl<T, M: Send + 'static> JoinHandle<T, M> {
    pub(crate) fn new((joined, monitor): (Joined<T, M>, Option<MonitorRef>)) -> Self {
        Self { joined, monitor, guard: Guard::default(), pause: BudgetPause::default(), over: false }
    }

    /// Returns a join handle for a process that was not started, because the spawn was refused. The handle resolves to
    /// the exit in the control block.
    pub(crate) fn refused_at_start(control: Ref<Control<M>>) -> Self {
        Self::new((Joined::for_refused_spawn(control), None))
    }

    /// Stores the monitor of the process in this handle.
    pub(crate) fn monitored(mut self, monitor: MonitorRef) -> Self {
        self.monitor = Some(monitor);
        self
    }

    /// Returns the exit of a process whose spawn was refused. Returns `None` for a process that was spawned.
    pub(crate) fn refused(&self) -> Option<Exit> {
        if self.joined.has_begun() { None } else { self.control().head.exit() }
    }

    /// Returns the typed address of the process.
    pub fn address(&self) -> Address<M> {
        self.joined.address().clone()
    }

    /// Returns a future that resolves when the process has started. If the process exits before it has started, the
    /// future fails with the exit of the process. A process that exits normally in its first step has started. With
    /// [`manual_start`](crate::ProcessBuilder::manual_start), a process that exits normally and never calls
    /// [`mark_started`](crate::SelfHandle::mark_started) has not started, and the future fails with [`Exit::Normal`].
    ///
    /// A process has started when its first step, or the first poll of its body, has returned. With
    /// [`manual_start`](crate::ProcessBuilder::manual_start), a process has started when the process has called
    /// [`mark_started`](crate::SelfHandle::mark_started).
    #[track_caller]
    pub fn started(&self) -> Started {
        Started {
            line: Location::caller(),
            control: self.control().any(),
            listening: Listening::default(),
            pause: BudgetPause::default(),
            over: false,
            recorded: RecordedWait::default(),
        }
    }

    /// Returns the monitor of a process that was spawned with [`monitor`](crate::ProcessBuilder::monitor). Returns
    /// `None` for any other process.
    pub fn monitor_ref(&self) -> Option<MonitorRef> {
        self.monitor
    }

    /// Polls the outcome. The waker in `cx` is not the waker of the task that runs on this thread. If a process makes
    /// this poll, and this process belongs to the same runtime as the awaited process, `by` is the pid of the polling
    /// process.
    fn poll_with_foreign_waker(&mut self, cx: &mut Cx<'_>, by: Option<Pid>) -> Poll<Option<Result<T, Exit>>> {
        let polled = self.guard.over_foreign(cx, |cx| self.joined.poll(cx, by.map_or(0, Pid::word)));
        if let (Poll::Pending, Some(by)) = (&polled, by) {
            let shared = self.control().head.host().shared();
            shared.note_join(by, self.pid());
        }
        polled
    }

    /// Polls the outcome in the same way as the future, but takes no unit from the budget of the turn. The caller
    /// itself limits the length of its turn.
    pub(crate) fn poll_without_budget(&mut self, cx: &mut Cx<'_>) -> Poll<Result<T, Exit>> {
        assert!(
            !self.over,
            "the join handle of process {} was polled after it had resolved; poll it once to its end",
            self.pid()
        );
        let polled = if self.joined.is_ready() {
            // This poll registers no waker. The awaited process has exited, so the current step belongs to another
            // process or to no process.
            self.joined.poll(cx, 0)
        } else {
            let pid = self.pid();
            let (by, is_own_waker) = Current::with(|current| (current.pid(), current.is_own_waker(cx.waker())));
            if by == Some(pid) {
                return Poll::Ready(Err(Exit::failed(format!(
                    "process {pid} cannot join itself; another process must await its join handle"
                ))));
            }
            let by = by.filter(|by| by.is_in_same_runtime(pid));
            if is_own_waker {
                self.joined.poll(cx, by.map_or(0, Pid::word))
            } else {
                self.poll_with_foreign_waker(cx, by)
            }
        };
        let Poll::Ready(result) = polled else { return Poll::Pending };
        // There is no outcome if the process was dropped with its runtime, or if its spawn was refused.
        let lost = || Err(self.control().head.exit().unwrap_or(Exit::Cancelled(Reason::SHUTDOWN)));
        let result = result.unwrap_or_else(lost);
        if result.is_err() {
            self.control().head.received_exit();
        }
        self.over = true;
        Poll::Ready(result)
    }

    /// Returns whether the current step belongs to the process of this handle.
    fn is_own(&self) -> bool {
        Current::with(Current::pid) == Some(self.pid())
    }

    /// Kills the process: see [`Host::kill`]. If the process is in a step, the process exits when the step has
    /// returned.
    pub fn abort(&self) {
        self.control().any().kill();
    }

    /// Returns whether the process has exited.
    pub fn is_finished(&self) -> bool {
        self.control().head.has_ended()
    }
}

impl<T, M: Send + 'static> Deref for JoinHandle<T, M> {
    type Target = Address<M>;

    fn deref(&self) -> &Address<M> {
        self.joined.address()
    }
}

impl<T, M: Send + 'static> Target<M> for &JoinHandle<T, M> {}
impl<T, M: Send + 'static> Route<M> for &JoinHandle<T, M> {
    fn destination(&self) -> DestinationRef<'_, M> {
        DestinationRef::Here(self.control())
    }
}

impl<T, M: Send + 'static> Callees<M> for &JoinHandle<T, M> {}
impl<T, M: Send + 'static> Expand<M> for &JoinHandle<T, M> {
    fn callees(&self, host: &Host) -> Vec<Callee<M>> {
        expand_destination(&self.destination(), host)
    }
}

impl<T, M: Send + 'static> Unpin for JoinHandle<T, M> {}

/// Resolves to the output or the exit of the process.
///
/// # Errors
/// Returns the exit if the exit is not normal. If a process awaits its own handle, the future fails immediately,
/// because the process would otherwise wait forever. If the process was dropped with its runtime, there is no outcome,
/// and the error is [`Exit::Cancelled`] with `Reason::SHUTDOWN`.
///
/// # Panics
/// Panics if the handle is polled after it has resolved.
///
/// # Budget
/// The join of a process that has exited takes one unit of the [budget](crate::should_yield).
///
/// # Cancel safety
/// Cancel safe. The handle can be awaited by reference. If the caller awaits the handle by reference, and drops the
/// future of this await, the outcome is not lost.
impl<T, M: Send + 'static> Future for JoinHandle<T, M> {
    type Output = Result<T, Exit>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        // If this poll can resolve immediately, it takes a unit from the budget. Otherwise, a body that joins exited
        // processes in a loop might never end its turn.
        if !self.over && (self.joined.is_ready() || self.is_own()) {
            ready!(self.pause.spend(cx));
        }
        self.poll_without_budget(cx)
    }
}

impl<T, M: Send + 'static> FusedFuture for JoinHandle<T, M> {
    fn is_terminated(&self) -> bool {
        self.over
    }
}

/// A join handle that kills its process when the handle is dropped.
#[derive(Debug)]
pub(crate) struct KillOnDrop<T, M: Send + 'static>(pub(crate) JoinHandle<T, M>);

impl<T, M: Send + 'static> KillOnDrop<T, M> {
    /// Polls the exit of the process, and drops the output of the process. The output and the error in the exit are
    /// user values, and a panic of their `Drop` must not end the process that makes the poll. The poll takes no unit
    /// from the budget of the turn.
    pub(crate) fn poll_exit(&mut self, cx: &mut Cx<'_>) -> Poll<Held<Exit>> {
        self.0.poll_without_budget(cx).map(|result| {
            Held::new(match result {
                Ok(output) => {
                    drop(Held::new(output));
                    Exit::Normal
                }
                Err(exit) => exit,
            })
        })
    }
}

impl<T, M: Send + 'static> Future for KillOnDrop<T, M> {
    type Output = Result<T, Exit>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl<T, M: Send + 'static> Drop for KillOnDrop<T, M> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Future that resolves when a process has started: see [`JoinHandle::started`].
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct Started {
    control: Ref<dyn AnyControl>,
    listening: Listening,
    pause: BudgetPause,
    over: bool,
    recorded: RecordedWait,
    /// Source line that created the future. Inspections show this line.
    line: &'static Location<'static>,
}

impl Drop for Started {
    fn drop(&mut self) {
        self.end_record();
    }
}

impl Started {
    fn end_record(&mut self) {
        let head = self.control.head();
        self.recorded.end(head.host(), || Wait::on(WaitKind::Start, head.pid(), Some(self.line)));
    }

    /// Polls in the same way as the future, but takes no unit from the budget of the turn. The caller itself limits the
    /// length of its turn.
    pub(crate) fn poll_without_budget(&mut self, cx: &mut Cx<'_>) -> Poll<Result<(), Exit>> {
        if self.over {
            return Poll::Pending;
        }
        let head = self.control.head();
        let started = head.poll_news(&mut self.listening, cx, || outcome_of_start(head));
        self.over = started.is_ready();
        if self.over {
            self.end_record();
        } else {
            let head = self.control.head();
            self.recorded.begin(head.host(), &Wait::on(WaitKind::Start, head.pid(), Some(self.line)));
        }
        if let Poll::Ready(Err(_)) = started {
            self.control.head().received_exit();
        }
        started
    }
}

impl Future for Started {
    type Output = Result<(), Exit>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        if !self.over && outcome_of_start(self.control.head()).is_some() {
            ready!(self.pause.spend(cx));
        }
        self.poll_without_budget(cx)
    }
}

/// Returns `Ok` if the process has started, and the exit if the process has exited before its start. Returns `None` if
/// the process may still start.
fn outcome_of_start(head: &Head) -> Option<Result<(), Exit>> {
    match head.exit() {
        // If a process exits normally in its first step, the process counts as started.
        Some(Exit::Normal) if !head.has(flag::MANUAL_START) => Some(Ok(())),
        _ if head.has(flag::STARTED) => Some(Ok(())),
        exit => exit.map(Err),
    }
}

impl FusedFuture for Started {
    fn is_terminated(&self) -> bool {
        self.over
    }
}

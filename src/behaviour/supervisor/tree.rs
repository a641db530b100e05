//! Snapshot of a tree of supervisors. The supervisors are queried from the root down.

use std::fmt;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};

use crate::behaviour::supervisor::plan::{ChildPhase, Strategy};
use crate::behaviour::supervisor::{Supervisor, SupervisorMessage};
use crate::host::Host;
use crate::host::registry::target::Target;
use crate::platform::clock::Instant;
use crate::process::exit::Exit;
use crate::process::failure::CallError;
use crate::process::pid::Pid;

/// Snapshot of a supervisor and its children. `Display` prints the snapshot as a tree. If a supervisor has counted
/// restarts in its window, its line also contains the [number of restarts left](Self::restarts_left):
///
/// ```text
/// one for one, 3 restarts within 5s, 1 left <1-8f3a.0.1>
/// ├─ counter <1-8f3a.4.2> running, restarted 2 times, the last time it ended: panicked: boom
/// └─ rooms <1-8f3a.5.1> running
///    │ one for all, 3 restarts within 5s
///    └─ lobby <1-8f3a.6.1> running
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SupervisionTree {
    /// Pid of the supervisor.
    pub pid: Pid,
    /// One of `one for one`, `one for all` and `rest for one`.
    pub strategy: &'static str,
    /// Maximum number of restarts within the window.
    pub max_restarts: u32,
    /// Length of the sliding window.
    pub within: Duration,
    /// Number of counted restarts in the window, from 0 to [`max_restarts`](Self::max_restarts). The window ends at the
    /// time of the supervisor's answer. A restart on request is not counted. With a window of zero, this number is
    /// always 0.
    pub recent_restarts: u32,
    /// The children, in the order in which they were added.
    pub children: Vec<ChildInfo>,
}

/// A child in a [`SupervisionTree`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ChildInfo {
    /// Name of the child, or `None` if the child has no name.
    pub name: Option<String>,
    /// Pid for messages to the child, or `None` if the child does not run.
    pub pid: Option<Pid>,
    /// State in the life cycle of the child.
    pub state: ChildState,
    /// Number of restarts.
    pub restarts: u64,
    /// Last exit of the child, or `None` if the child has never exited.
    pub last: Option<Exit>,
    /// Whether the child is a supervisor.
    pub is_supervisor: bool,
    /// The children of this child. `None` if the child is not a supervisor or did not answer the query.
    pub below: Option<SupervisionTree>,
}

/// State in the life cycle of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChildState {
    /// The child does not run, and no start is planned.
    Stopped,
    /// The child does not run. The child will start after its back-off, or after other children that must start
    /// first.
    Restarting,
    /// The child runs, but has not started yet.
    Starting,
    /// The child runs and has started.
    Running,
    /// The supervisor has begun to stop the child, and the child has not exited yet.
    Stopping,
}

impl fmt::Display for ChildState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stopped => "stopped",
            Self::Restarting => "restarting",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "stopping",
        })
    }
}

impl Supervisor {
    pub(super) fn tree(&self, pid: Pid, now: Instant) -> SupervisionTree {
        let children = self.children.iter().map(|(&id, kept)| ChildInfo {
            name: kept.child.spec.name.as_deref().map(str::to_owned),
            pid: self.live_children.get(id).map(|member| member.pid),
            state: match self.plan.phase(id) {
                None | Some(ChildPhase::Down) => ChildState::Stopped,
                Some(ChildPhase::Due(_)) => ChildState::Restarting,
                Some(ChildPhase::Starting) => ChildState::Starting,
                Some(ChildPhase::Up(_)) => ChildState::Running,
                Some(ChildPhase::Stopping) => ChildState::Stopping,
            },
            restarts: kept.restarts,
            last: kept.last.as_ref().map(|exit| exit.get().clone()),
            is_supervisor: kept.child.spec.is_supervisor,
            below: None,
        });
        SupervisionTree {
            pid,
            strategy: match self.plan.strategy() {
                Strategy::OneForOne => "one for one",
                Strategy::OneForAll => "one for all",
                Strategy::RestForOne => "rest for one",
            },
            max_restarts: self.plan.intensity().most(),
            within: self.plan.intensity().within(),
            recent_restarts: self.plan.intensity().used(now),
            children: children.collect(),
        }
    }
}

impl Host {
    /// Queries a supervisor, and then each child that is a supervisor. The supervisors answer at different times.
    /// Therefore, if a child changes during the query, only some parts of the tree may show the change.
    ///
    /// # Errors
    /// Returns an error if the supervisor has exited, or if the process is not a supervisor. If a supervisor below the
    /// root exits during the query, the result does not contain the children of this supervisor.
    pub fn supervision_tree<T: Target<SupervisorMessage>>(
        &self,
        supervisor: T,
    ) -> impl Future<Output = Result<SupervisionTree, CallError>> + Send + use<T> {
        let list = self.call(supervisor, SupervisorMessage::WhichChildren);
        let host = self.clone();
        async move {
            let mut tree = list.await?;
            fill(&host, &mut tree, None).await;
            Ok(tree)
        }
    }
}

/// Queries a supervisor, and then its children that are supervisors. If a supervisor has not answered before the time
/// `until`, the tree does not contain the children of this supervisor.
pub(crate) fn tree_until(
    host: &Host,
    supervisor: Pid,
    until: Option<Instant>,
) -> BoxFuture<'_, Result<SupervisionTree, CallError>> {
    async move {
        let list = host.call(supervisor, SupervisorMessage::WhichChildren);
        let mut tree = match until {
            Some(until) => list.timeout(until.saturating_duration_since(host.now())).await?,
            None => list.await?,
        };
        fill(host, &mut tree, until).await;
        Ok(tree)
    }
    .boxed()
}

/// Sends a query to each child that is a supervisor, and waits for all answers together.
async fn fill(host: &Host, tree: &mut SupervisionTree, until: Option<Instant>) {
    let below = tree.children.iter_mut().filter(|child| child.is_supervisor).filter_map(|child| {
        let below = tree_until(host, child.pid?, until);
        Some(async move { child.below = below.await.ok() })
    });
    join_all(below).await;
}

impl SupervisionTree {
    /// Returns the restart budget at the time of the supervisor's answer. The restart budget is the number of further
    /// restarts that the supervisor would have made at this time. The next restart after these restarts exceeds the
    /// [intensity](crate::Supervisor::intensity). Each counted restart that leaves the window increases the budget by
    /// 1.
    pub fn restarts_left(&self) -> u32 {
        self.max_restarts - self.recent_restarts.min(self.max_restarts)
    }

    fn head(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.max_restarts == 1 { "" } else { "s" };
        write!(f, "{}, {} restart{plural} within {:?}", self.strategy, self.max_restarts, self.within)?;
        if self.recent_restarts == 0 { Ok(()) } else { write!(f, ", {} left", self.restarts_left()) }
    }

    fn print(&self, f: &mut fmt::Formatter<'_>, indent: &str) -> fmt::Result {
        for (n, child) in self.children.iter().enumerate() {
            let is_last = n + 1 == self.children.len();
            write!(f, "\n{indent}{} ", if is_last { "└─" } else { "├─" })?;
            child.head(f)?;
            if let Some(below) = &child.below {
                let indent = format!("{indent}{}  ", if is_last { " " } else { "│" });
                write!(f, "\n{indent}{} ", if below.children.is_empty() { " " } else { "│" })?;
                below.head(f)?;
                below.print(f, &indent)?;
            }
        }
        Ok(())
    }
}

impl ChildInfo {
    fn head(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.as_deref().unwrap_or("(no name)"))?;
        if let Some(pid) = self.pid {
            write!(f, " {pid}")?;
        }
        write!(f, " {}", self.state)?;
        match self.restarts {
            0 => {}
            1 => f.write_str(", restarted once")?,
            n => write!(f, ", restarted {n} times")?,
        }
        match &self.last {
            Some(last) => write!(f, ", the last time it ended: {last}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for SupervisionTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.head(f)?;
        write!(f, " {}", self.pid)?;
        self.print(f, "")
    }
}

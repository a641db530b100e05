//! A tree of supervisors as one sees it: asked from top to bottom, and printed.

use std::fmt;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::behaviour::supervisor::plan::{Phase, Strategy};
use crate::behaviour::supervisor::{Supervisor, SupervisorMessage};
use crate::host::{Host, Target};
use crate::process::exit::Exit;
use crate::process::failure::CallError;
use crate::process::pid::Pid;

/// A supervisor and what it keeps, as it was when it was asked. Prints as a tree:
///
/// ```text
/// one for one, 3 restarts within 5s <0-8f3a.0.1>
/// ├─ counter <0-8f3a.4.2> up, restarted 2 times, the last time it ended: panicked: boom
/// └─ rooms <0-8f3a.5.1> up
///    │ one for all, 3 restarts within 5s
///    └─ lobby <0-8f3a.6.1> up
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Tree {
    /// The supervisor.
    pub pid: Pid,
    /// `one for one`, `one for all` or `rest for one`.
    pub strategy: &'static str,
    /// How many restarts there may be, …
    pub restarts: u32,
    /// … and within which time.
    pub within: Duration,
    /// Its children, in their order.
    pub children: Vec<TreeChild>,
}

/// A child in a [`Tree`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TreeChild {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// What leads to it, while it lives.
    pub pid: Option<Pid>,
    /// Where it is in its life.
    pub state: ChildState,
    /// How often it was restarted.
    pub restarts: u64,
    /// How it ended the last time.
    pub last: Option<Exit>,
    /// Whether it is a supervisor.
    pub is_supervisor: bool,
    /// What it keeps, if it is a supervisor that was asked.
    pub below: Option<Tree>,
}

/// Where a child is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChildState {
    /// It does not live, and waits for nothing.
    Down,
    /// It does not live, and waits for its turn or its time.
    Waiting,
    /// It lives, and has not started yet.
    Starting,
    /// It lives.
    Up,
    /// It was told to end.
    Stopping,
}

impl fmt::Display for ChildState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Down => "down",
            Self::Waiting => "waiting",
            Self::Starting => "starting",
            Self::Up => "up",
            Self::Stopping => "stopping",
        })
    }
}

impl Supervisor {
    pub(super) fn tree(&self, pid: Pid) -> Tree {
        let children = self.children.iter().map(|(&id, kept)| TreeChild {
            name: kept.child.spec.name.as_deref().map(str::to_owned),
            pid: self.brood.get(id).map(|member| member.pid),
            state: match self.plan.phase(id) {
                None | Some(Phase::Down) => ChildState::Down,
                Some(Phase::Due(_)) => ChildState::Waiting,
                Some(Phase::Starting) => ChildState::Starting,
                Some(Phase::Up(_)) => ChildState::Up,
                Some(Phase::Stopping) => ChildState::Stopping,
            },
            restarts: kept.restarts,
            last: kept.last.clone(),
            is_supervisor: kept.child.spec.is_supervisor,
            below: None,
        });
        Tree {
            pid,
            strategy: match self.plan.strategy() {
                Strategy::OneForOne => "one for one",
                Strategy::OneForAll => "one for all",
                Strategy::RestForOne => "rest for one",
            },
            restarts: self.plan.intensity().most(),
            within: self.plan.intensity().within(),
            children: children.collect(),
        }
    }
}

impl Host {
    /// Asks a supervisor what it keeps, and the supervisors among that, and so on down. Each is asked in its turn, so what
    /// changes meanwhile may be seen at one place and not at another.
    ///
    /// # Errors
    /// The supervisor is gone, or what was asked is none. One further down that is gone by then has nothing below it.
    pub fn tree<T: Target<SupervisorMessage>>(
        &self,
        supervisor: T,
    ) -> impl Future<Output = Result<Tree, CallError>> + Send + use<T> {
        let list = self.call(supervisor, SupervisorMessage::List);
        let host = self.clone();
        async move {
            let mut tree = list.await?;
            fill(&host, &mut tree).await;
            Ok(tree)
        }
    }
}

fn fill<'a>(host: &'a Host, tree: &'a mut Tree) -> BoxFuture<'a, ()> {
    async move {
        for child in &mut tree.children {
            if child.is_supervisor
                && let Some(pid) = child.pid
                && let Ok(mut below) = host.call(pid, SupervisorMessage::List).await
            {
                fill(host, &mut below).await;
                child.below = Some(below);
            }
        }
    }
    .boxed()
}

impl Tree {
    fn head(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.restarts == 1 { "" } else { "s" };
        write!(f, "{}, {} restart{plural} within {:?}", self.strategy, self.restarts, self.within)
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

impl TreeChild {
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

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.head(f)?;
        write!(f, " {}", self.pid)?;
        self.print(f, "")
    }
}

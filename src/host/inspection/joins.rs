//! Reads the joins of the processes. A join means that a process awaits the join handle of another process. A join is
//! recorded in the process that must exit: see [`Joiner`](crate::process::state::Joiner). Therefore the code must visit
//! all processes to find the joins of one process.

use std::collections::BTreeMap;

use crate::host::Host;
use crate::host::control::AnyControl;
use crate::host::registry::Listed;
use crate::process::pid::Pid;
use crate::process::state::Joiner;

/// States that the process `by` awaits the join handle of the process `target`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Join {
    by: Joiner,
    /// Process that must exit.
    pub(super) target: Pid,
}

/// Maps the pid of a process to the joins of this process, namely the joins in which the process awaits a join handle.
pub(super) type Joins = BTreeMap<Pid, Vec<Join>>;

/// Adds a join to `joins` if a process awaits the join handle of the process that `listed` describes.
pub(super) fn add_join(listed: &Listed<'_, dyn AnyControl>, joins: &mut Vec<Join>) {
    joins.extend(listed.joiner().map(|by| Join { by, target: listed.entry().head().pid() }));
}

impl Host {
    /// Reads the joins of all processes.
    pub(super) fn read_joins(&self) -> Joins {
        let mut joins = Vec::new();
        self.shared().pid_table.visit_listed(|listed| {
            add_join(&listed, &mut joins);
            Ok(())
        });
        self.by_joiner(joins)
    }

    /// Groups the joins by the process that awaits the join handle.
    pub(super) fn by_joiner(&self, joins: Vec<Join>) -> Joins {
        let mut grouped = Joins::new();
        for join in joins {
            if let Some(by) = self.joiner_pid(join.by) {
                grouped.entry(by).or_default().push(join);
            }
        }
        grouped
    }

    /// Returns the pid of the process that awaits the join handle of the process `pid`. Returns `None` if no process
    /// awaits this join handle, or if no process with the pid `pid` exists.
    pub(super) fn joined_by(&self, pid: Pid) -> Option<Pid> {
        let joiner = self.shared().pid_table.with_listed(pid, |listed| Ok(listed.joiner()))??;
        self.joiner_pid(joiner)
    }

    /// Returns the pid of a process that has polled a join handle. Returns `None` if this process has exited, because
    /// an exited process does not wait.
    fn joiner_pid(&self, joiner: Joiner) -> Option<Pid> {
        let pid = self.shared().pid_table.pid_at(joiner.index)?;
        (pid.generation() as u16 == joiner.generation).then_some(pid)
    }
}

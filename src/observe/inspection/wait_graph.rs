//! The wait-for graph: which process waits for which process, and the deadlocks in this graph.
//!
//! A process may wait for several events at the same time. To continue, the code of the process needs either one of
//! these events, as in `select`, or all of these events, as in `join`. The runtime does not know which of the two cases
//! applies. The search assumes that one event is enough (the *OR model*: Knapp, "Deadlock Detection in Distributed
//! Databases", ACM Computing Surveys 19(4), 1987). Therefore a process counts as deadlocked only if all events that it
//! waits for must come from deadlocked processes.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::observe::inspection::WaitsFor;
use crate::process::pid::Pid;

/// Edge of the graph: a process waits for another process. See [`Host::wait_for_graph`](crate::Host::wait_for_graph).
///
/// `Display` prints the edge as one line, for example
/// `<0.1.1> "shop" app::Shop waits for the answer to a call to <0.2.1> at src/shop.rs:41`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitEdge {
    /// Process that waits.
    pub pid: Pid,
    /// Registered name of the process that waits. If the process has several names, this field is the name that the
    /// process registered first.
    pub name: Option<Cow<'static, str>>,
    /// Name of the type of the process's code.
    pub type_name: &'static str,
    /// Process from which the event must come.
    pub target: Pid,
    /// Event that the process waits for.
    pub waits_for: WaitsFor,
    /// Whether the process waits in a step that has called [`Runtime::block_on`](crate::Runtime::block_on). The step
    /// blocks its thread until the event occurs.
    pub in_block_on: bool,
}

impl fmt::Display for WaitEdge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, name, type_name, waits_for, in_block_on, .. } = self;
        write!(f, "{pid} ")?;
        if let Some(name) = name {
            write!(f, "{name:?} ")?;
        }
        write!(f, "{type_name} waits for {waits_for}")?;
        f.write_str(if *in_block_on { ", in `block_on`" } else { "" })
    }
}

/// Processes that wait for each other and can never run again: see
/// [`Host::wait_for_graph`](crate::Host::wait_for_graph).
///
/// `Display` prints one line for each process of the cycle, and one line with the number of processes that wait for the
/// cycle:
///
/// ```text
/// deadlock of 2 processes:
///   <0.1.1> "shop" app::Shop waits for the answer to a call to <0.2.1> at src/shop.rs:41
///   <0.2.1> app::Bank waits for the answer to a call to <0.1.1> at src/bank.rs:17
///   1 other process waits for them: <0.3.1>
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadlock {
    /// The cycle. The target of each edge is the process of the next edge, and the target of the last edge is the
    /// process of the first edge. If a process waits for itself, the cycle has only one edge.
    pub cycle: Vec<WaitEdge>,
    /// Processes outside the cycle that cannot run again because of the cycle, in ascending order.
    pub behind: Vec<Pid>,
}

/// Maximum number of pids that `Display` prints in one line.
const PRINTED: usize = 8;

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cycle.len() {
            1 => f.write_str("deadlock of 1 process that waits for itself:")?,
            count => write!(f, "deadlock of {count} processes:")?,
        }
        self.cycle.iter().try_for_each(|edge| write!(f, "\n  {edge}"))?;
        match self.behind.len() {
            0 => return Ok(()),
            1 => f.write_str("\n  1 other process waits for them:")?,
            count => write!(f, "\n  {count} other processes wait for them:")?,
        }
        self.behind.iter().take(PRINTED).try_for_each(|pid| write!(f, " {pid}"))?;
        f.write_str(if self.behind.len() > PRINTED { " …" } else { "" })
    }
}

/// Which process waits for which process: see [`Host::wait_for_graph`](crate::Host::wait_for_graph).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WaitForGraph {
    /// All edges, in the order of the waiting processes. A process that waits for several processes has several edges.
    pub edges: Vec<WaitEdge>,
    /// Deadlocks. The runtime has read the processes of each deadlock twice, and has found the same waits both times.
    pub deadlocks: Vec<Deadlock>,
}

/// One process of the graph.
#[derive(Debug)]
pub(crate) struct WaitNode {
    /// The waits of this process for other processes. The list is never empty.
    pub(crate) edges: Vec<WaitEdge>,
    /// Whether the process may run again without an action of the targets.
    pub(crate) is_free: bool,
    /// Whether the exit of the process was requested.
    pub(crate) is_cancelled: bool,
    /// True if the process waits for all its cancelled targets, and for no other target. If the value is false, an
    /// action of one target is enough. A supervisor in its shutdown stops its children one after the other. The
    /// supervisor waits for the children that it has already cancelled. The supervisor will cancel or kill the other
    /// children later, so it does not wait for these other children yet.
    pub(crate) needs_cancelled: bool,
    /// Numbers that change in three cases: the process begins a wait, a future that a step has passed to `block_on` is
    /// polled, or a reply for which the process waits is forwarded. If two snapshots of a process contain equal
    /// numbers, none of these three events occurred between the two snapshots.
    pub(crate) generation: (u64, u32, u64, u64),
}

/// The processes that wait for other known processes. If a process is not in the map, the search assumes that this
/// process is free, that is, that the process may run again.
pub(crate) type WaitNodes = BTreeMap<Pid, WaitNode>;

/// Returns the stuck processes, which cannot run again. A process is stuck if it is not free, and if all its targets
/// are stuck. If the process needs its cancelled targets, it is stuck as soon as one of its cancelled targets is stuck.
pub(crate) fn stuck(nodes: &WaitNodes) -> BTreeSet<Pid> {
    let mut waiters: BTreeMap<Pid, Vec<Pid>> = BTreeMap::new();
    for (pid, node) in nodes {
        needed(nodes, node).for_each(|edge| waiters.entry(edge.target).or_default().push(*pid));
    }
    let is_free = |pid: &Pid| {
        nodes.get(pid).is_none_or(|node| node.is_free || node.needs_cancelled && needed(nodes, node).next().is_none())
    };
    let mut stuck: BTreeSet<Pid> = nodes.keys().copied().filter(|pid| !is_free(pid)).collect();
    let mut free: Vec<Pid> = waiters.keys().copied().filter(is_free).collect();
    // Number of needed edges of each process that needs its cancelled targets. The loop subtracts the edges to the free
    // targets.
    let with_count = |(pid, node): (&Pid, &WaitNode)| node.needs_cancelled.then(|| (*pid, needed(nodes, node).count()));
    let mut left: BTreeMap<Pid, usize> = nodes.iter().filter_map(with_count).collect();
    let mut is_freed = |waiter: &Pid| match left.get_mut(waiter) {
        Some(left) => {
            *left -= 1;
            *left == 0 && stuck.remove(waiter)
        }
        None => stuck.remove(waiter),
    };
    // Each process enters `free` at most once, because the process is removed from `stuck` at the same time.
    while let Some(pid) = free.pop() {
        free.extend(waiters.remove(&pid).into_iter().flatten().filter(&mut is_freed));
    }
    stuck
}

/// Returns the edges to the processes that must act before this process runs again.
fn needed<'a>(nodes: &'a WaitNodes, node: &'a WaitNode) -> impl Iterator<Item = &'a WaitEdge> {
    let is_cancelled = |target: &Pid| nodes.get(target).is_some_and(|target| target.is_cancelled);
    node.edges.iter().filter(move |edge| !node.needs_cancelled || is_cancelled(&edge.target))
}

/// Returns the cycles among the stuck processes. From each process, this function follows the first edge to a stuck
/// process. Each stuck process has an edge to a stuck process. Therefore the path from each stuck process along these
/// edges ends in a cycle.
pub(crate) fn deadlocks(nodes: &WaitNodes, stuck: &BTreeSet<Pid>) -> Vec<Deadlock> {
    let first = |pid: Pid| {
        let mut edges = needed(nodes, &nodes[&pid]);
        edges.find(|edge| stuck.contains(&edge.target)).expect("a stuck process waits for a stuck process")
    };
    let mut found: Vec<Deadlock> = Vec::new();
    let mut deadlock_of: BTreeMap<Pid, usize> = BTreeMap::new();
    for &start in stuck {
        let (mut path, mut on_path, mut at) = (Vec::new(), BTreeMap::new(), start);
        while !deadlock_of.contains_key(&at) && !on_path.contains_key(&at) {
            on_path.insert(at, path.len());
            path.push(at);
            at = first(at).target;
        }
        let (number, behind) = match (deadlock_of.get(&at), on_path.get(&at)) {
            (Some(number), _) => (*number, path.len()),
            (None, Some(begin)) => {
                let cycle = path[*begin..].iter().map(|pid| first(*pid).clone()).collect();
                found.push(Deadlock { cycle, behind: Vec::new() });
                (found.len() - 1, *begin)
            }
            (None, None) => unreachable!("the loop has ended"),
        };
        path.iter().for_each(|pid| _ = deadlock_of.insert(*pid, number));
        found[number].behind.extend_from_slice(&path[..behind]);
    }
    found.iter_mut().for_each(|deadlock| deadlock.behind.sort_unstable());
    found
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::platform::random::Rng;

    fn pid(index: u32) -> Pid {
        Pid::new(0, 0, index, 1)
    }

    /// Makes a graph. `free` contains the processes that may run again without an action of their targets. `needy`
    /// contains the processes that need their cancelled targets.
    fn graph(edges: &[(u32, u32)], free: &[u32], needy: &[u32], cancelled: &[u32]) -> WaitNodes {
        let mut nodes = WaitNodes::new();
        for &(from, to) in edges {
            let waits_for = WaitsFor::Exit { process: pid(to), line: None };
            let edge =
                WaitEdge { pid: pid(from), name: None, type_name: "t", target: pid(to), waits_for, in_block_on: false };
            let [is_free, needs_cancelled, is_cancelled] = [free, needy, cancelled].map(|set| set.contains(&from));
            let edges = Vec::new();
            let node = || WaitNode { edges, is_free, is_cancelled, needs_cancelled, generation: (0, 0, 0, 0) };
            nodes.entry(pid(from)).or_insert_with(node).edges.push(edge);
        }
        nodes
    }

    /// Returns the cycles. Each item contains the indices of the processes in the cycle, and the indices of the other
    /// processes that cannot run again because of the cycle.
    fn found(edges: &[(u32, u32)], free: &[u32]) -> Vec<(Vec<u32>, Vec<u32>)> {
        found_with(edges, free, &[], &[])
    }

    /// Does the same as `found`. The processes in `needy` need their targets in `cancelled`.
    fn found_with(edges: &[(u32, u32)], free: &[u32], needy: &[u32], cancelled: &[u32]) -> Vec<(Vec<u32>, Vec<u32>)> {
        let nodes = graph(edges, free, needy, cancelled);
        let indices = |pids: Vec<Pid>| pids.into_iter().map(Pid::index).collect();
        let all = deadlocks(&nodes, &stuck(&nodes)).into_iter();
        all.map(|found| (indices(found.cycle.iter().map(|edge| edge.pid).collect()), indices(found.behind))).collect()
    }

    #[test]
    fn cycles_are_found_and_chains_are_not_found() {
        assert_eq!(found(&[], &[]), []);
        assert_eq!(found(&[(1, 2), (2, 3)], &[]), []);
        assert_eq!(found(&[(1, 1)], &[]), [(vec![1], vec![])]);
        assert_eq!(found(&[(1, 2), (2, 1)], &[]), [(vec![1, 2], vec![])]);
        assert_eq!(found(&[(1, 2), (2, 1)], &[2]), []);
        assert_eq!(found(&[(1, 2), (2, 3), (3, 2), (4, 1)], &[]), [(vec![2, 3], vec![1, 4])]);
        assert_eq!(found(&[(1, 2), (2, 1), (3, 4), (4, 3)], &[]).len(), 2);
    }

    #[test]
    fn a_process_with_several_waits_is_stuck_only_if_all_targets_are_stuck() {
        assert_eq!(found(&[(1, 2), (2, 1), (1, 9)], &[]), []);
        assert_eq!(found(&[(1, 2), (2, 1), (1, 3), (3, 1)], &[]), [(vec![1, 2], vec![3])]);
    }

    #[test]
    fn a_process_that_needs_all_its_cancelled_targets_is_stuck_if_one_such_target_is_stuck() {
        assert_eq!(found_with(&[(1, 2), (2, 1), (1, 9)], &[], &[1], &[2]), [(vec![1, 2], vec![])]);
        assert_eq!(found_with(&[(1, 8), (1, 2), (2, 1), (1, 9)], &[], &[1], &[2, 8]), [(vec![1, 2], vec![])]);
        assert_eq!(found_with(&[(1, 2), (2, 1), (1, 9)], &[2], &[1], &[2]), []);
        assert_eq!(found_with(&[(1, 8), (1, 9)], &[], &[1], &[8, 9]), []);
        assert_eq!(found_with(&[(1, 2), (2, 1), (1, 9), (3, 1)], &[], &[1], &[2]), [(vec![1, 2], vec![3])]);
        // The target 2 is not cancelled yet, so process 1 will still act on this target.
        assert_eq!(found_with(&[(1, 2), (2, 1), (1, 3), (3, 9)], &[], &[1], &[3]), []);
        assert_eq!(found_with(&[(1, 2), (2, 1)], &[], &[1], &[]), []);
        assert_eq!(found_with(&[(1, 2), (2, 3), (3, 2)], &[], &[1], &[]), [(vec![2, 3], vec![])]);
    }

    /// A stuck set is closed: each process of the set waits only for processes of the set. If a process has the flag
    /// `needs_cancelled`, at least one of its cancelled targets is in the set. The test computes the largest closed set
    /// from this definition.
    #[test]
    fn the_stuck_set_is_the_largest_closed_set() {
        let mut chance = Rng::seeded(7);
        for _ in 0..2_000 {
            let count = 1 + chance.below(12);
            let edges: Vec<_> = (0..count).map(|_| (chance.below(7) as u32, chance.below(7) as u32)).collect();
            let free = [chance.below(7) as u32];
            let needy = [chance.below(7) as u32, chance.below(7) as u32];
            let cancelled = [(); 4].map(|()| chance.below(7) as u32);
            let nodes = graph(&edges, &free, &needy, &cancelled);
            let is_node = |at: u32| edges.iter().any(|edge| edge.0 == at);
            let largest = (0_u32..1 << 7)
                .filter(|set| {
                    (0..7).filter(|at| set & 1 << at != 0).all(|at| {
                        let mut targets = edges.iter().filter(|edge| edge.0 == at).map(|edge| edge.1);
                        let is_in_set = |to: u32| set & 1 << to != 0;
                        let waits_only = match needy.contains(&at) {
                            true => targets.any(|to| cancelled.contains(&to) && is_node(to) && is_in_set(to)),
                            false => is_node(at) && targets.all(is_in_set),
                        };
                        !free.contains(&at) && waits_only
                    })
                })
                .fold(0, |union, set| union | set);
            let found = stuck(&nodes).into_iter().fold(0, |set, pid| set | 1 << pid.index());
            assert_eq!(found, largest, "{edges:?} {free:?} {needy:?} {cancelled:?}");
            let in_reports: usize =
                deadlocks(&nodes, &stuck(&nodes)).iter().map(|found| found.cycle.len() + found.behind.len()).sum();
            assert_eq!(in_reports, found.count_ones() as usize);
        }
    }
}

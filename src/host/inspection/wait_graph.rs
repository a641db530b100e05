//! Reads the wait-for graph. A second snapshot of the waits confirms each deadlock.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::Host;
use crate::host::control::blocked_step::BlockedStep;
use crate::host::control::flag;
use crate::host::control::waits::Waits;
use crate::host::control::{AnyControl, Head};
use crate::host::inspection::joins::{Join, Joins, add_join};
use crate::host::inspection::{first_name, process};
use crate::host::registry::Busy;
use crate::host::timer::pending::Pending;
use crate::observe::inspection::WaitsFor;
use crate::observe::inspection::wait_graph::{self, WaitEdge, WaitForGraph, WaitNode, WaitNodes};
use crate::platform::clock::Instant;
use crate::platform::sync::Arc;
use crate::process::pid::Pid;
use crate::process::state::Ref;
use crate::process::yields::listing::YieldedCall;

/// Maximum number of attempts to find a moment at which no exit is in progress.
const ATTEMPTS: u32 = 1_000;

/// Maximum number of outstanding yields of one process among which the graph searches for calls.
const SEARCHED: usize = 4_096;

/// The innermost blocked step of each process that has a blocked step, by pid.
type Steps = BTreeMap<Pid, Arc<BlockedStep>>;

impl Host {
    /// Reads the wait-for graph, and finds the deadlocks. An edge from one process to a second process means that the
    /// first process waits for the second process. The graph includes the processes of all hosts of the runtime.
    ///
    /// The edges are calls, sends that wait because a mailbox is full, and waits for the start or the exit of a
    /// process. A process that awaits a [`JoinHandle`](crate::JoinHandle) also waits for an exit. For example, a
    /// supervisor that waits for the exit of a child has an edge to this child.
    ///
    /// A process is deadlocked if each event that it waits for must come from a deadlocked process. These processes are
    /// not deadlocked:
    ///
    /// - A process that also waits for a message, for the answer to a command, for the end of a sleep, or for a closure
    ///   of [`spawn_blocking`](Self::spawn_blocking). A hand-written process that has made a call also waits for a
    ///   message, because a hand-written process handles messages during the wait for the reply.
    /// - A process with a [deadline](crate::ProcessBuilder::deadline), a process that was cancelled with a time limit,
    ///   or a process whose call or send has a [time limit](crate::future::Call::timeout). The waits of a process with
    ///   a deadline or a time limit can end without an action of another process.
    /// - A [suspended](Self::suspend) process. Some waits of a suspended process may have ended, although their records
    ///   still exist.
    /// - A process that has given its [`Mailbox`](crate::Mailbox) to another process or to a thread, if the new owner
    ///   of the mailbox has polled the most recent receive operation. The new owner may make room in the mailbox and
    ///   answer calls.
    ///
    /// A supervisor that shuts down stops its children one by one. The supervisor waits for the exit of each cancelled
    /// child, even while the supervisor answers requests. Therefore the supervisor is deadlocked if one of its
    /// cancelled children is deadlocked. An example is a cancelled child that waits for the exit of the supervisor.
    ///
    /// A second snapshot of the waits confirms each deadlock. If the waits of a process have changed between the two
    /// snapshots, the process is not reported. Therefore all edges of a reported cycle existed at the same time.
    ///
    /// The runtime does not know all waits:
    ///
    /// - In one `select`, a process may wait for a call and for an event that the runtime does not know. An event that
    ///   the runtime does not know is a message in a mailbox of [`Host::mailbox`](crate::Host::mailbox), or the end of
    ///   one of these futures: a [`Host::sleep`](crate::Host::sleep), a socket operation,
    ///   [`CancelToken::cancelled`](crate::CancelToken::cancelled), [`Reply::closed`](crate::Reply::closed), or a
    ///   future of another crate. The graph then contains only the call. Therefore the graph can report a deadlock that
    ///   does not exist: the wait ends when the unknown event occurs.
    /// - If a pending future of [`receive`](crate::Mailbox::receive) is dropped, for example by a `select`, the process
    ///   still counts as a process that waits for a message. The graph then misses a deadlock of the process.
    /// - A hand-written future may create a new future of [`event`](crate::Mailbox::event) or
    ///   [`receive_where`](crate::Mailbox::receive_where) in each poll, and drop this new future at the end of the
    ///   poll. The process then counts as a process that waits for no message.
    /// - A process may have given its [`Mailbox`](crate::Mailbox) to another process that has not polled a receive
    ///   operation yet. The graph then can report a deadlock that ends when the other process receives.
    /// - A [started](crate::future::Call::start) call has an edge, even while the process does not await the call. The
    ///   edge of a call remains until the process polls or drops the call, even after the answer has arrived. If the
    ///   process then waits only for an event that the runtime does not know, the graph can report a deadlock that ends
    ///   when this event occurs.
    /// - A process that has polled a join handle has an edge until the handle resolves or is dropped, or until another
    ///   process polls the handle. During this time, the process may wait for an event that the runtime does not know.
    /// - The receiver of a request may pass the [`Reply`](crate::Reply) to another process. The graph has an edge to
    ///   the other process only if the receiver uses [`Reply::forward`](crate::Reply::forward). If the receiver moves
    ///   the `Reply` in a plain message, the graph still has an edge to the receiver of the request. This edge also
    ///   remains if the receiver moves the `Reply` to a thread, to a closure of
    ///   [`spawn_blocking`](Self::spawn_blocking) or to a command handler. The graph can then report a deadlock that
    ///   ends when the holder of the `Reply` answers.
    /// - A process may have several calls to one receiver, and the receiver may forward only some of the replies to
    ///   these calls. The runtime then does not know the source line of a call whose reply was forwarded. The edge of a
    ///   call whose reply was forwarded may show the source line of another call to the same receiver. If one of the
    ///   calls has moved to another process, an edge may point to the wrong process. An edge may also point to the
    ///   wrong process in this case: a process forwards a `Reply` that the process did not get with the request, and
    ///   the caller also calls the forwarding process.
    /// - If a hand-written process has more than 4,096 outstanding yields, the graph may miss some calls of this
    ///   process.
    /// - A cancelled child may wait for the exit of its supervisor, and the supervisor may stop a different child
    ///   first. Suppose that another process, and not the supervisor, has cancelled the waiting child without a time
    ///   limit. Then the graph can report a deadlock that ends when the supervisor stops the waiting child.
    /// - A step may block its thread in [`block_on`](crate::Runtime::block_on) of the same runtime. The process then
    ///   has the edges of the future that the step has passed to `block_on`. A call that the process has started before
    ///   `block_on` has no edge. A call that was started before `block_on` may have the same receiver as a call in
    ///   `block_on`. If the reply of one of these two calls was forwarded, the graph reports no deadlock of the
    ///   process. If a step blocks its thread in another way, for example in `block_on` of another executor, this wait
    ///   has no edge.
    ///
    /// Any thread can make this call, even during a step. The call never stops a worker. The duration of the call is
    /// proportional to the largest number of processes that were alive at one time. The call can confirm a deadlock
    /// only if there is a moment at which no process is exiting. If processes exit too often, the call finds no moment
    /// at which no process is exiting, and reports no deadlock. If the call of `wait_for_graph` is made during an exit,
    /// for example by an observer, the call also reports no deadlock.
    ///
    /// ```
    /// # use procession::{Context, Reply, Runtime};
    /// // Each of the two processes calls the other process, and does not receive.
    /// let rt = Runtime::builder().workers(0).build()?;
    /// rt.process().name("one").spawn(async |ctx: Context<Reply<()>>| {
    ///     _ = ctx.call("other", |reply: Reply<()>| reply).await;
    /// })?;
    /// rt.process().name("other").spawn(async |ctx: Context<Reply<()>>| {
    ///     _ = ctx.call("one", |reply: Reply<()>| reply).await;
    /// })?;
    /// # rt.block_on(rt.spawn(async |_: Context| ()))?;
    /// let graph = rt.wait_for_graph();
    /// assert_eq!(graph.deadlocks[0].cycle.len(), 2);
    /// println!("{}", graph.deadlocks[0]);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn wait_for_graph(&self) -> WaitForGraph {
        self.graph_and_joins().0
    }

    /// Reads the wait-for graph. Returns the graph and the joins of all processes.
    pub(super) fn graph_and_joins(&self) -> (WaitForGraph, Joins) {
        let table = &self.shared().pid_table;
        let (mut nodes, mut joins) = (WaitNodes::new(), Vec::new());
        let steps = self.blocked_steps();
        table.visit_listed(|listed| {
            let step = steps.get(&listed.entry().head().pid());
            if let Some(node) = self.wait_node(listed.entry(), &[], step)? {
                nodes.insert(node.edges[0].pid, node);
            }
            add_join(&listed, &mut joins);
            Ok(())
        });
        let joins = self.by_joiner(joins);
        for (pid, joins) in &joins {
            nodes.remove(pid);
            let node = table.with(*pid, |control| self.wait_node(control, joins, steps.get(pid)));
            nodes.extend(node.flatten().map(|node| (*pid, node)));
        }
        let stuck = self.confirm(&mut nodes, &joins, &steps);
        let deadlocks = wait_graph::deadlocks(&nodes, &stuck);
        (WaitForGraph { edges: nodes.into_values().flat_map(|node| node.edges).collect(), deadlocks }, joins)
    }

    /// Reads the *stuck* processes for the second time. According to the first snapshot, a stuck process cannot run
    /// again. If the second snapshot shows that the waits of a stuck process have changed, this function marks the
    /// process as not deadlocked (`is_free`). Returns the stuck processes that remain.
    ///
    /// The code reads a join from the process that must exit. The process that awaits the join handle has no record of
    /// the join. The code reads the joins of a process and the other waits of the process at different times. Therefore
    /// the order of the snapshots matters:
    ///
    /// 1. The second snapshot of the joins begins after the first snapshot of each node has ended. Suppose that a
    ///    process awaited a join handle when the node of the process was read for the first time. Then either the
    ///    second snapshot of the joins contains this join, or the joined process has exited in the meantime.
    /// 2. An exit first removes the pid. After this removal, no new snapshot contains the join. Later, the exit wakes
    ///    the process that awaits the join handle. At one moment after the second snapshot of the joins, no exit is in
    ///    progress. Therefore, if the pid of a joined process was removed before this moment, the exit has already
    ///    woken the process that awaits the join handle.
    /// 3. The second snapshot of a node shows that a woken process is queued, runs, or has run. If a step of the
    ///    process blocks its thread, the second snapshot shows that the future of the step was woken or polled.
    ///
    /// The answer to a call wakes the caller, except the answer to a started call that was never polled. After the
    /// wake-up, the caller may wait again and not poll the call. In these two cases, the edge of the answered call
    /// exists until the caller polls or drops the call, and both snapshots can contain this edge. The documentation of
    /// `wait_for_graph` lists this limit.
    ///
    /// The callee of a call may change while the caller waits, because the callee forwards the reply. The code reads
    /// the table of the forwarded replies together with the waits of the caller:
    ///
    /// 1. A process changes the table in the step that forwards the reply. If the first snapshot shows that the process
    ///    waits, all second snapshots contain the forwards that the process has made in earlier steps. Therefore, if a
    ///    callee has forwarded the reply and then waits, the second snapshot of the caller contains the new callee.
    /// 2. Forwards are numbered in ascending order. The generation of a node contains the number of the newest forward
    ///    that has changed an edge of this node. If a node is unchanged, no reply that the process waits for was
    ///    forwarded between the two snapshots. In particular, no reply that the process waits for was forwarded to
    ///    another process and back.
    /// 3. The end of a call first wakes the caller, and then removes the entry from the table. If a snapshot misses the
    ///    entry, this snapshot also shows that the caller was woken. A started call that was never polled is an
    ///    exception, because the answer to such a call wakes no process. The edge of this call then points to the
    ///    receiver of the request.
    fn confirm(&self, nodes: &mut WaitNodes, joins: &Joins, steps: &Steps) -> BTreeSet<Pid> {
        let table = &self.shared().pid_table;
        if wait_graph::stuck(nodes).is_empty() {
            return BTreeSet::new();
        }
        let second_joins = self.read_joins();
        if !(0..ATTEMPTS).any(|_| self.shared().metrics.is_between_exits()) {
            return BTreeSet::new();
        }
        // All first snapshots end before the second snapshots begin. If a node is unchanged, the edges of the node
        // existed at each moment between the two snapshots of the node. Therefore the edges of all unchanged nodes
        // existed when the last round of this loop began.
        loop {
            let stuck = wait_graph::stuck(nodes);
            let mut is_confirmed = true;
            for pid in &stuck {
                let joins = joins.get(pid).map_or(&[][..], Vec::as_slice);
                let second = table.with(*pid, |control| self.wait_node(control, joins, steps.get(pid))).flatten();
                let has_equal_joins = second_joins.get(pid).map_or(&[][..], Vec::as_slice) == joins;
                let node = nodes.get_mut(pid).expect("a stuck process is a node");
                let is_equal = |second: WaitNode| {
                    has_equal_joins
                        && !second.is_free
                        && second.generation == node.generation
                        && second.edges == node.edges
                };
                if !second.is_some_and(is_equal) {
                    node.is_free = true;
                    is_confirmed = false;
                }
            }
            if is_confirmed {
                return stuck;
            }
        }
    }

    /// Returns the innermost blocked step of each process that has a blocked step.
    fn blocked_steps(&self) -> Steps {
        self.shared().blocked_steps.innermost().into_iter().map(|step| (step.pid(), step)).collect()
    }

    /// Returns the calls for which a hand-written process waits. The caller holds the lock of the process's slot.
    /// Therefore this function searches only a part of a very large table.
    fn some_yielded_calls(&self, head: &Head) -> Vec<YieldedCall> {
        let mut calls = Vec::new();
        if let Some(yields) = head.yields_if_any() {
            let mut from = Some(0);
            while let Some(begin) = from.filter(|begin| *begin < SEARCHED) {
                from = yields.list_calls(begin, &mut calls);
            }
        }
        calls
    }

    /// Reads the edges of a process. `joins` contains the joins of the process, as far as the caller has read these
    /// joins. `step` is the step in which the process blocks its thread, or `None` if the process has no blocked step.
    /// Returns `None` if the process waits for no other process.
    fn wait_node(
        &self,
        control: &Ref<dyn AnyControl>,
        joins: &[Join],
        step: Option<&Arc<BlockedStep>>,
    ) -> Result<Option<WaitNode>, Busy> {
        let Some((head, type_name)) = process(control) else { return Ok(None) };
        // The code reads the run state before and after the other values. If the process runs between the two reads of
        // the run state, the process may change the other values. The record of an answered call exists until the
        // process polls or drops the call. Therefore a record does not show whether the answer has arrived. A wake-up
        // first changes the run state, and later the recorded state. Therefore the code reads the run state, and not
        // the recorded state. The answer to a started call that was never polled wakes no process: see `confirm`. A
        // process whose step blocks its thread is in the state *Running*, and not in a waiting state. For a process
        // whose step blocks its thread, the code compares the phase of the step instead.
        let blocked = step.and_then(|step| Some((step, step.pending()?)));
        let waits_now = || match blocked {
            Some((step, phase)) => step.pending() == Some(phase),
            None => head.is_inactive(),
        };
        let is_waiting = waits_now();
        let Waits { waits, generation } = control.waits();
        let counted: u32 = waits.iter().map(|wait| u32::from(wait.is_call())).sum();
        let mut waits = blocked.iter().fold(waits, |waits, (step, _)| step.without_earlier(waits));
        let earlier = blocked.map_or(&[][..], |(step, _)| step.earlier());
        let redirected = self.shared().forwarded.redirect(head.pid().word(), &mut waits, earlier);
        if blocked.is_none() && is_waiting {
            let calls = self.some_yielded_calls(head);
            waits.extend(calls.into_iter().map(|call| self.yielded_call(head.pid(), call)));
        }
        let joins = joins.iter().filter(|join| blocked.is_none_or(|(step, _)| step.has_joined(join.target)));
        let joins: Vec<Pid> = joins.map(|join| join.target).collect();
        if !is_waiting || waits.is_empty() && joins.is_empty() {
            return Ok(None);
        }
        let name = first_name(head)?;
        let (pid, in_block_on) = (head.pid(), blocked.is_some());
        let edge = |target, waits_for| WaitEdge { pid, name: name.clone(), type_name, target, waits_for, in_block_on };
        let mut edges = Vec::new();
        // `is_bound` is true if no wait can end without an action of a process.
        let mut is_bound = true;
        for wait in waits {
            is_bound &= !wait.is_limited();
            let waits_for = self.waits_for(wait);
            match waits_for.process() {
                Some(target) => edges.push(edge(target, waits_for)),
                None => is_bound = false,
            }
        }
        edges.extend(joins.into_iter().map(|process| edge(process, WaitsFor::Exit { process, line: None })));
        // A cancelled process is killed at the deadline of the cancellation, unless this deadline is infinite. Only the
        // deadline of the first cancellation is stored. If a later cancellation has a finite deadline, the process owns
        // a timer for this deadline.
        let is_finite = head.cancel().is_none_or(|(_, deadline)| deadline != Instant::FAR);
        let is_cancelled = head.is_cancelled();
        let is_killed_later =
            is_cancelled && (is_finite || head.pending_if_any().map_or(Ok(false), Pending::has_any)?);
        let may_be_ended = head.has(flag::KILLED) || is_killed_later || head.inherited().deadline().is_some();
        // After a wait of a suspended process has ended, the record of the wait still exists.
        let is_suspended = self.shared().suspended.contains(|| pid);
        let has_no_receiver = head.ignores_messages() || blocked.is_some_and(|(step, _)| step.has_stale_receiver());
        let mailbox = control.mailbox_figures();
        let awaits_more = mailbox.is_awaited && !has_no_receiver
            // A reader outside the process can make room in the mailbox and answer calls.
            || mailbox.is_read_elsewhere
            || head.yields_if_any().is_some_and(|yields| yields.outstanding() != 0)
            // The function `waiting` counts calls and sleeps, but a sleep has no record. If the numbers differ, the
            // process also sleeps.
            || head.waiting() != counted;
        let is_free =
            !is_bound || may_be_ended || awaits_more || is_suspended || redirected.is_uncertain || !waits_now();
        let generation = (generation.0, generation.1, blocked.map_or(0, |(_, phase)| phase), redirected.number);
        let needs_cancelled = head.ignores_messages();
        let node = WaitNode { edges, is_free, is_cancelled, needs_cancelled, generation };
        Ok((!node.edges.is_empty()).then_some(node))
    }
}

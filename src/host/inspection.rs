//! Inspection of the processes while they run. The inspection reads rows about all processes, and the details of one
//! process.
//!
//! The inspection borrows each entry of the pid table under the lock of the entry's slot, and takes no reference to the
//! entry. Therefore the inspection never drops the last reference to a process, and runs no user code.
//!
//! While the inspection holds the lock of a slot, the inspection takes other locks of the process:
//!
//! - The inspection waits for the spin locks of the mailbox, the links and the yields, one at a time. A thread that
//!   holds one of these locks never looks up a pid. Therefore no deadlock is possible.
//! - A thread that holds another lock of a process may look up a pid. The inspection does not wait for a lock whose
//!   holder may look up a pid. If the lock is busy, the inspection releases the slot and tries again.

#[cfg(test)]
mod clock_reads;
pub(crate) mod exits;
pub(crate) mod explain;
pub(crate) mod growth;
mod increases;
mod joins;
mod last_messages;
pub(crate) mod local_sets;
pub(crate) mod metrics;
mod registered;
pub(crate) mod run_times;
mod unrecorded;
pub(crate) mod wait_graph;

use std::borrow::Cow;

use crate::host::Host;
#[cfg(feature = "console")]
use crate::host::control::Control;
use crate::host::control::waits::{Wait, WaitKind};
use crate::host::control::{AnyControl, Head, flag};
use crate::host::inspection::joins::Join;
use crate::host::inspection::unrecorded::{AwaitedSocket, UnrecordedWaits, WaitingSleep};
use crate::host::link::Links;
use crate::host::link::listing::LinkLists;
use crate::host::registry::names::OwnNames;
use crate::host::registry::{Busy, LocalId};
use crate::observe::ProcessState;
use crate::observe::inspection::last_messages::MessageLog;
use crate::observe::inspection::ranking::Ranking;
use crate::observe::inspection::{CommandCount, ProcessDetails, ProcessInfo, ProcessQuery, RunningStep, WaitsFor};
use crate::observe::snapshot::CurrentStep;
use crate::platform::clock::Instant;
use crate::platform::static_ref::Line;
use crate::process::limits::Meter;
use crate::process::mailbox::MailboxFigures;
use crate::process::pid::Pid;
use crate::process::state::Ref;
use crate::process::yields::listing::{CommandCounts, CountedTable, Outstanding, YieldedCall};

impl Host {
    /// Returns a row about each process that the query selects, in the order of the query. The rows include the
    /// processes of all hosts of the runtime. A mailbox without a process has no row.
    ///
    /// Any thread can make this call, even during a step. The call never stops a worker.
    ///
    /// Processes may start and exit during the call. A process that exists during the whole call is read exactly once.
    /// A process that starts or exits during the call may be missing. Each process is read at a different moment. The
    /// documentation of [`ProcessInfo`] states which values of a row belong together.
    ///
    /// The call reads the entire pid table. The duration of the call is proportional to the largest number of processes
    /// that were alive at one time. The call holds no lock for longer than it needs to read one process, and runs no
    /// user code. With a [limit](ProcessQuery::limit) of `n`, the call stores at most `n` rows.
    ///
    /// ```
    /// # use procession::observe::{ProcessColumn, ProcessQuery};
    /// # use procession::{Context, Runtime};
    /// let rt = Runtime::builder().workers(0).build()?;
    /// let slow = rt.spawn(async |_: Context<u8>| std::future::pending::<()>().await);
    /// for number in 0..3 {
    ///     slow.send(number)?;
    /// }
    /// let longest = rt.processes(&ProcessQuery::new().descending(ProcessColumn::MailboxLen).limit(10));
    /// assert_eq!((longest[0].pid, longest[0].mailbox_len), (slow.pid(), 3));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn processes(&self, query: &ProcessQuery) -> Vec<ProcessInfo> {
        let mut ranking = Ranking::new(query);
        self.shared().pid_table.visit(|control| {
            if let Some(row) = select(control, query)? {
                ranking.add(row);
            }
            Ok(())
        });
        ranking.into_rows()
    }

    /// Returns the details of a process: the row of the process and several lists, for example the list of links. The
    /// row contains only the lengths of the lists. Returns `None` if no process has this pid, or if the process exits
    /// during the call.
    ///
    /// Any thread can make this call, even during a step. The call never stops a worker. The call reads a long list in
    /// several parts, and holds no lock for longer than it needs to read one part. The call runs no user code. If the
    /// process waits, possibly in `block_on`, the call reads the whole pid table. The call then finds each process
    /// whose join handle the waiting process awaits. The call also reads all timers and all sockets, to find the sleeps
    /// and the socket operations of this process. Therefore the duration of the call is proportional to the peak number
    /// of processes, timers and sockets.
    pub fn process_details(&self, pid: Pid) -> Option<ProcessDetails> {
        let waits = self.read_unrecorded_waits(&[pid]);
        self.details(pid, || self.read_joins().remove(&pid).unwrap_or_default(), waits.get(&pid))
    }

    /// Returns the details of a process. The closure `joins` returns the joins of the process. If the process waits,
    /// possibly in `block_on`, this function calls the closure. The caller reads `unrecorded` before this call.
    fn details(
        &self,
        pid: Pid,
        joins: impl FnOnce() -> Vec<Join>,
        unrecorded: Option<&UnrecordedWaits>,
    ) -> Option<ProcessDetails> {
        let table = &self.shared().pid_table;
        let Snapshot { mut details, awaited, mut waits } = table.with(pid, Snapshot::read)??;
        [details.links, details.monitors, details.monitored_by] = self.read_links(pid)?;
        details.joined_by = self.joined_by(pid);
        let commands = self.read_yields(pid)?;
        let calls = self.read_yielded_calls(pid)?;
        details.yields = commands.clone().into_iter().map(command_count).collect();
        details.timers = self.read_timers(pid)?;
        let (sleeps, sockets) = unrecorded.map_or((&[][..], &[][..]), |waits| waits.at(details.info.steps));
        let redirect = |waits: &mut [Wait], earlier: &[Wait]| {
            _ = self.shared().forwarded.redirect(pid.word(), waits, earlier);
        };
        match details.info.state {
            Some(state) if state.is_waiting() => {
                let recorded_calls = waits.iter().filter(|wait| wait.is_call()).count();
                redirect(&mut waits, &[]);
                waits.extend(calls.into_iter().map(|call| self.yielded_call(pid, call)));
                let waits_for = &mut details.waits_for;
                waits_for.extend(awaited.map(|line| WaitsFor::Message { line }));
                waits_for.extend(commands.into_iter().filter_map(without_calls).map(WaitsFor::Command));
                waits_for.extend(sleeps.iter().map(|&WaitingSleep { due, line }| WaitsFor::Sleep {
                    count: 1,
                    until: Some(due),
                    line: Some(line),
                }));
                // Each call that an async body waits for has a record in `waits`. Therefore all other counted waits are
                // sleeps.
                let count = details.info.waits.saturating_sub(recorded_calls + sleeps.len());
                waits_for.extend((count != 0).then_some(WaitsFor::Sleep { count, until: None, line: None }));
                let socket = |&AwaitedSocket { descriptor, is_write }| WaitsFor::Socket { descriptor, is_write };
                waits_for.extend(sockets.iter().map(socket));
                waits_for.extend(waits.into_iter().map(|wait| self.waits_for(wait)));
                waits_for.extend(joins().into_iter().map(|join| WaitsFor::Exit { process: join.target, line: None }));
            }
            Some(ProcessState::Running) => {
                details.step = self.running_step(pid);
                let step = self.shared().blocked_steps.of(pid);
                if let Some(step) = step.filter(|step| step.pending().is_some()) {
                    let joins = joins().into_iter().filter(|join| step.has_joined(join.target));
                    let mut waits = step.without_earlier(waits);
                    redirect(&mut waits, step.earlier());
                    let waits = waits.into_iter().map(|wait| self.waits_for(wait));
                    let joins = joins.map(|join| WaitsFor::Exit { process: join.target, line: None });
                    details.waits_for.extend(waits.chain(joins));
                }
            }
            _ => {}
        }
        Some(details)
    }

    /// Returns the step that a worker runs for this process.
    fn running_step(&self, pid: Pid) -> Option<RunningStep> {
        let gauges = (self.shared().gauges)(&self.shared().place);
        let step = gauges.steps.into_iter().find(|step| step.process == Some(pid.word()))?;
        let CurrentStep { worker, blocked_since, is_asked_to_yield, .. } = step;
        Some(RunningStep { worker, blocked_since, is_asked_to_yield })
    }

    /// Returns the supervisors that have no supervisor themselves.
    #[cfg(feature = "console")]
    pub(crate) fn top_level_supervisors(&self) -> Vec<Pid> {
        let mut supervisors = Vec::new();
        self.shared().pid_table.visit(|control| {
            let head = control.head();
            supervisors.extend(head.has(flag::TOP_LEVEL).then(|| head.pid()));
            Ok(())
        });
        supervisors
    }

    /// Returns the process whose step spawned this process, or `Some(None)` if this process has no parent. Returns
    /// `None` if no process has the pid.
    #[cfg(feature = "console")]
    pub(crate) fn parent(&self, pid: Pid) -> Option<Option<Pid>> {
        self.shared().pid_table.with(pid, |control| Ok(control.head().parent()))
    }

    /// Returns whether the mailbox of the process has the message type `M`. Returns `None` if no process has the pid.
    #[cfg(feature = "console")]
    pub(crate) fn has_message_type<M: Send + 'static>(&self, pid: Pid) -> Option<bool> {
        self.shared().pid_table.with(pid, |control| Ok(control.as_any().is::<Control<M>>()))
    }

    /// Converts the record of a wait into the event that the process waits for.
    fn waits_for(&self, wait: Wait) -> WaitsFor {
        let (is_limited, Wait { kind, process, line }) = (wait.is_limited(), wait);
        let table = &self.shared().pid_table;
        let pid = |word| table.pid(LocalId::from(word));
        match kind {
            WaitKind::Call | WaitKind::LimitedCall => {
                let callee = (process != 0).then(|| pid(process));
                WaitsFor::Call { callee, is_limited, line }
            }
            WaitKind::Room | WaitKind::LimitedRoom => WaitsFor::Room { receiver: pid(process), is_limited, line },
            WaitKind::Exit => WaitsFor::Exit { process: pid(process), line },
            WaitKind::Start => WaitsFor::Start { process: pid(process), line },
            WaitKind::Blocking => WaitsFor::Blocking { line },
        }
    }

    /// Reads three lists: the processes that are linked with this process, the processes that this process monitors,
    /// and the processes that monitor this process.
    fn read_links(&self, pid: Pid) -> Option<[Vec<Pid>; 3]> {
        let table = &self.shared().pid_table;
        let mut lists = LinkLists::default();
        let mut next = |links: &Links<dyn AnyControl>| links.list(&mut lists);
        while table.with(pid, |control| Ok(control.head().links_if_any().is_some_and(&mut next)))? {}
        let pids = |words: Vec<u64>| words.into_iter().map(|word| table.pid(LocalId::from(word))).collect();
        let (mut links, mut monitored_by): (Vec<Pid>, Vec<Pid>) = (pids(lists.links), pids(lists.monitored_by));
        let mut monitors = lists.monitors;
        [&mut links, &mut monitors, &mut monitored_by].into_iter().for_each(|pids| pids.sort_unstable());
        links.dedup();
        Some([links, monitors, monitored_by])
    }

    fn read_yields(&self, pid: Pid) -> Option<CommandCounts> {
        let mut counts = CommandCounts::new();
        self.count_yields(pid, CountedTable::default(), &mut counts)?;
        Some(counts)
    }

    /// Returns the calls for which a hand-written process waits.
    fn read_yielded_calls(&self, pid: Pid) -> Option<Vec<YieldedCall>> {
        let (mut calls, mut from) = (Vec::new(), Some(0));
        while let Some(begin) = from {
            from = self.shared().pid_table.with(pid, |control| {
                Ok(control.head().yields_if_any().and_then(|yields| yields.list_calls(begin, &mut calls)))
            })?;
        }
        Some(calls)
    }

    /// Returns the wait for a call that a hand-written process has yielded. A yielded call has no wait record.
    fn yielded_call(&self, caller: Pid, YieldedCall { number, call, line }: YieldedCall) -> Wait {
        let holder = self.shared().forwarded.holder(caller.word(), number);
        Wait::call(holder.unwrap_or(call.callee), call.is_limited, line)
    }

    /// Counts the yields of a process by command type, beginning at the key `table.from` of the table. Returns `None`
    /// if no process has this pid.
    fn count_yields(&self, pid: Pid, table: CountedTable, counts: &mut CommandCounts) -> Option<()> {
        let mut next = Some(table);
        while let Some(table) = next {
            next = self.shared().pid_table.with(pid, |control| {
                let head = control.head();
                let handler_of = |command: &str| head.host().namespace().dispatcher().handler_of(command);
                Ok(head.yields_if_any().and_then(|yields| yields.count_commands(table, &handler_of, counts)))
            })?;
        }
        Some(())
    }

    fn read_timers(&self, pid: Pid) -> Option<Vec<Instant>> {
        let mut deadlines = Vec::new();
        let mut from = Some(0);
        while let Some(begin) = from {
            from = self.shared().pid_table.with(pid, |control| {
                control.head().pending_if_any().map_or(Ok(None), |pending| pending.deadlines(begin, &mut deadlines))
            })?;
        }
        deadlines.sort_unstable();
        Some(deadlines)
    }
}

type Name = Cow<'static, str>;

/// Values of a process. The inspection takes the lock of the process's slot, reads all these values, and then releases
/// the lock.
struct Snapshot {
    /// Details of the process. Some lists are still empty: the inspection reads these lists later.
    details: ProcessDetails,
    /// The value is `Some` if a receiver waits for the next message. The line is the source line that created the
    /// receive operation.
    awaited: Option<Line>,
    waits: Vec<Wait>,
}

impl Snapshot {
    /// Returns `None` for a mailbox without a process.
    fn read(control: &Ref<dyn AnyControl>) -> Result<Option<Self>, Busy> {
        let Some((head, type_name)) = process(control) else { return Ok(None) };
        let (state, figures) = (head.state(), control.mailbox_figures());
        let names = names(head, |names| names.iter().cloned().collect::<Vec<_>>())?;
        let groups = match head.groups_if_any() {
            Some(groups) => groups.try_lock().ok_or(Busy)?.member_of().cloned().collect(),
            None => Vec::new(),
        };
        let info = row(control, type_name, state, figures, names.first().cloned());
        let (inherited, meter) = (head.inherited(), head.meter());
        let (last_messages, message_counts) = head.message_log_if_any().map(MessageLog::read).unwrap_or_default();
        let details = ProcessDetails {
            // A supervisor spawns its children itself, and a pool spawns its members itself. Therefore, if a process is
            // supervised, the parent of the process is a supervisor or a pool.
            supervisor: info.parent.filter(|_| head.has(flag::SUPERVISED)),
            names,
            groups,
            links: Vec::new(),
            monitors: Vec::new(),
            monitored_by: Vec::new(),
            joined_by: None,
            yields: Vec::new(),
            timers: Vec::new(),
            deadline: inherited.deadline(),
            inherited_values: inherited.type_names(),
            waits_for: Vec::new(),
            ready_since: if state == Some(ProcessState::Ready) { head.ready_since() } else { None },
            step: None,
            run_time: meter.and_then(Meter::run_time),
            last_messages,
            message_counts,
            memory: control.bytes() + head.boxed_bytes() + figures.bytes,
            info,
        };
        Ok(Some(Self {
            details,
            awaited: figures.is_awaited.then(|| control.receive_line()),
            waits: control.waits().waits,
        }))
    }
}

/// Creates the row about the outstanding commands of one type. The row does not count the calls. Returns `None` if all
/// outstanding commands are calls.
fn without_calls((command, outstanding): (&'static str, Outstanding)) -> Option<CommandCount> {
    let count = outstanding.count - outstanding.calls;
    (count != 0).then(|| command_count((command, Outstanding { count, line_of_call: None, ..outstanding })))
}

/// Creates the row about the outstanding commands of one type.
fn command_count((command, outstanding): (&'static str, Outstanding)) -> CommandCount {
    let Outstanding { count, oldest_measured, oldest_measured_stream, line, line_of_call, handler, .. } = outstanding;
    let measured = oldest_measured.into_iter().chain(oldest_measured_stream).min();
    CommandCount {
        command,
        count,
        measured_since: measured.map(Instant::from_ns),
        line: line.or(line_of_call),
        handler,
    }
}

/// Returns the head and the type name of a process. Returns `None` for a mailbox without a process.
pub(super) fn process(control: &Ref<dyn AnyControl>) -> Option<(&Head, &'static str)> {
    let head = control.head();
    if head.is_outside() { None } else { Some((head, control.type_name()?)) }
}

/// Reads the row of a process, if the query selects the process. The function checks the cheapest conditions first.
fn select(control: &Ref<dyn AnyControl>, query: &ProcessQuery) -> Result<Option<ProcessInfo>, Busy> {
    let Some((head, type_name)) = process(control) else { return Ok(None) };
    let state = head.state();
    if !query.selects(state, type_name) {
        return Ok(None);
    }
    let figures = control.mailbox_figures();
    if figures.messages < query.least_mailbox_len() {
        return Ok(None);
    }
    let name = match query.name_text() {
        None => first_name(head)?,
        Some(text) => {
            let first = |names: &OwnNames| {
                let has_text = names.iter().any(|name| name.contains(text));
                if has_text { names.first().cloned() } else { None }
            };
            let Some(name) = names(head, first)? else { return Ok(None) };
            Some(name)
        }
    };
    Ok(Some(row(control, type_name, state, figures, name)))
}

fn row(
    control: &Ref<dyn AnyControl>,
    type_name: &'static str,
    state: Option<ProcessState>,
    figures: MailboxFigures,
    name: Option<Name>,
) -> ProcessInfo {
    let head = control.head();
    let links = head.links_if_any().map(Links::counts).unwrap_or_default();
    // The number of waits is the sum of two counts. This function reads the two counts at different times. If the
    // process changes both counts between the two reads, the sum may be below zero.
    let waits = usize::try_from(head.waiting() as i32).unwrap_or(0);
    ProcessInfo {
        pid: head.pid(),
        name,
        type_name,
        parent: head.parent(),
        state,
        waiting_since: if state.is_some_and(ProcessState::is_waiting) { head.waiting_since() } else { None },
        priority: head.priority(),
        mailbox_len: figures.messages,
        signals: figures.signals,
        mailbox_peak: figures.peak,
        unread_since: figures.unread_since.map(Instant::from_ns),
        yields: head.yields_if_any().map_or(0, |yields| yields.outstanding()),
        waits,
        links: links.links,
        monitors: links.monitors,
        monitored_by: links.monitored_by,
        steps: control.steps(),
        last_worker: head.last_worker(),
        checks_yield: control.checks_yield(),
        is_cancelled: head.is_cancelled(),
        is_killed: head.has(flag::KILLED),
    }
}

/// Returns the oldest name of the process.
pub(in crate::host) fn first_name(head: &Head) -> Result<Option<Name>, Busy> {
    names(head, |names| names.first().cloned())
}

/// Calls `f` with the names of the process.
fn names<R>(head: &Head, f: impl FnOnce(&OwnNames) -> R) -> Result<R, Busy> {
    match head.names_if_any() {
        Some(names) => {
            let names = names.try_lock().ok_or(Busy)?;
            Ok(f(&names))
        }
        None => Ok(f(&OwnNames::default())),
    }
}

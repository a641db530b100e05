//! Finds the reasons why processes do not run: reads all processes, the workers, the blocking pool and the timers.

use crate::host::control::AnyControl;
use crate::host::control::waits::WaitKind;
use crate::host::inspection::growth::{LONG_MAILBOX, LongMailbox, MailboxSnapshot};
use crate::host::inspection::joins::Joins;
use crate::host::inspection::unrecorded::SocketWaiters;
use crate::host::inspection::{command_count, first_name, process, row};
use crate::host::registry::{Busy, LocalId};
use crate::host::{Host, Phase};
use crate::observe::explanation::{Activity, Explanation, Finding};
use crate::observe::inspection::ranking::Ranking;
use crate::observe::inspection::{ProcessColumn, ProcessDetails, ProcessInfo, ProcessQuery};
use crate::observe::snapshot::{CurrentStep, SchedulerGauges};
use crate::observe::{BlockingPoolMetrics, Counters, ProcessState, WorkerMetrics, WorkerState};
use crate::platform::clock::Instant;
use crate::platform::sync::Arc;
use crate::process::command::is_builtin;
use crate::process::mailbox::MailboxFigures;
use crate::process::pid::Pid;
use crate::process::state::Ref;
use crate::process::yields::listing::{CommandCounts, CountedTable, Outstanding};

/// Maximum number of full mailboxes in the result. The same maximum applies to the growing mailboxes and to the long
/// mailboxes.
const MAILBOXES: usize = 16;
/// Maximum number of processes that one finding lists.
const LISTED: usize = 20;

impl Host {
    /// Explains why processes of this runtime do not run. The result lists the [reasons](crate::observe::Finding) that
    /// the runtime finds. The result also contains the number of waiting processes for each kind of event. The result
    /// includes the processes of all hosts of the runtime.
    ///
    /// The runtime finds deadlocks, blocked workers, a busy blocking pool, commands without an answer, and full,
    /// growing or long mailboxes. The runtime also finds suspended processes, processes that ignore their cancellation
    /// during a shutdown, processes that nothing can wake, and a runtime or a [`LocalSet`](crate::LocalSet) without a
    /// thread. The documentation of each [finding](crate::observe::Finding) states when the runtime reports this
    /// finding.
    ///
    /// The call can be made on any thread, even in a step, and even while all workers are blocked. The call never stops
    /// a worker, and runs no user code. The runtime reads the processes one after the other while they run. The finding
    /// [`NothingOutstanding`](crate::observe::Finding::NothingOutstanding) is reported only if no step ran during the
    /// call and all workers are parked. The time of the call is proportional to the largest number of processes that
    /// were alive at one time. The call takes about twice the time of [`metrics`](Self::metrics).
    ///
    /// A single call of `explain` cannot find out whether a mailbox grows. Therefore the runtime stores the lengths of
    /// at most 1,024 long mailboxes, until the next call of `explain` on any host of the runtime. To find [growing
    /// mailboxes](crate::observe::Finding::GrowingMailbox), call `explain` twice, for example one second apart.
    ///
    /// ```
    /// # use procession::{Command, Completion, Context, Runtime};
    /// use procession::observe::Finding;
    ///
    /// struct Ask;
    /// impl Command for Ask { type Reply = u64; }
    ///
    /// // The handler keeps the completion, and never answers.
    /// let rt = Runtime::builder().workers(0).handler(|_: Ask, kept: Completion<u64>| std::mem::forget(kept)).build()?;
    /// let asks = rt.spawn(async |ctx: Context| ctx.perform(Ask).await);
    /// # rt.block_on(rt.spawn(async |_: Context| ()))?;
    /// let explanation = rt.explain();
    /// println!("{explanation}");
    /// let is_unanswered =
    ///     |finding: &Finding| matches!(finding, Finding::UnansweredCommands { commands, .. } if commands.count == 1);
    /// assert!(explanation.findings.iter().any(is_unanswered));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn explain(&self) -> Explanation {
        let begun = self.progress();
        let (graph, joins) = self.graph_and_joins();
        let waiters = self.read_socket_waiters();
        let snapshot = self.read_processes(&joins, &waiters, self.shared().mailbox_snapshot.get());
        let gauges = (self.shared().gauges)(&self.shared().place);
        let is_at_rest = snapshot.all_wait() && self.is_at_rest() && self.progress() == begun;
        let mut findings = Vec::new();
        let has_thread = self.shared().clock.is_virtual() || gauges.worker_target != 0 || !gauges.workers.is_empty();
        if !has_thread && snapshot.activity.processes != 0 {
            findings.push(Finding::NoThread { processes: snapshot.activity.processes });
        }
        findings.extend(self.local_sets_without_thread());
        findings.extend(graph.deadlocks.into_iter().map(Finding::Deadlock));
        findings.extend(self.blocked_workers(&gauges));
        findings.extend(self.busy_pool());
        let Snapshot { activity, mailboxes, commands, cancelled, waiting, suspended, .. } = snapshot;
        findings.extend(self.unanswered(commands));
        findings.extend(self.long_mailboxes(mailboxes));
        if activity.suspended != 0 {
            findings.push(Finding::Suspended { count: activity.suspended, processes: suspended });
        }
        findings.extend(self.ignored_cancellation(cancelled, &joins));
        if is_at_rest {
            let processes = self.details_of(waiting, &joins);
            findings.push(Finding::NothingOutstanding { count: activity.processes, processes });
        }
        Explanation::new(findings, activity)
    }

    /// Returns counts that change with each step of a process, and with each event that makes a process ready.
    fn progress(&self) -> [u64; 5] {
        let Counters { polls, spawned, exited, messages, completions, .. } = self.counters();
        [polls, spawned, exited, messages, completions]
    }

    /// For each command type, returns the number of commands without an answer, as in [`explain`](Self::explain). The
    /// counts include the commands of all hosts of the runtime, and the built-in commands.
    #[cfg(feature = "console")]
    pub(crate) fn outstanding_commands(&self) -> CommandCounts {
        self.read_processes(&Joins::new(), &SocketWaiters::default(), None).commands
    }

    /// Reads the states and the mailbox metrics of all processes. The caller has already read `joins` and `waiters`.
    /// `last` is the snapshot of the mailboxes that the previous explanation stored, if there is one.
    fn read_processes(&self, joins: &Joins, waiters: &SocketWaiters, last: Option<Arc<MailboxSnapshot>>) -> Snapshot {
        let table = &self.shared().pid_table;
        // The clock reading also advances the recent time. Therefore `now` comes before `recent`.
        let (now, recent) = (self.now(), self.shared().timers.recent());
        let mut snapshot = Snapshot::new(MailboxSnapshot::begin(now, recent), last);
        table.visit(|control| snapshot.add(control, joins, waiters));
        for (pid, rest) in std::mem::take(&mut snapshot.long_tables) {
            // If the process has exited in the meantime, no process waits for the answers to the remaining commands in
            // its table.
            let _ = self.count_yields(pid, rest, &mut snapshot.commands);
        }
        snapshot
    }

    /// Returns a finding for each command type that has unanswered commands. The findings include neither streams, nor
    /// the calls and sleeps of hand-written processes.
    fn unanswered(&self, commands: CommandCounts) -> Vec<Finding> {
        let now = self.now();
        let commands = commands.into_iter().filter(|(command, _)| !is_builtin(command));
        let finding = |(command, mut outstanding): (&'static str, Outstanding)| {
            // The answer to a stream command ends the stream. A stream that has no answer yet may still transfer items.
            outstanding.count -= outstanding.streams;
            outstanding.oldest_measured_stream = None;
            if outstanding.count == 0 {
                return None;
            }
            let times = outstanding.oldest_measured.into_iter().chain(outstanding.waiting_since);
            let since = times.min().map(Instant::from_ns);
            let lasts = since.map(|since| now - since);
            Some(Finding::UnansweredCommands { commands: command_count((command, outstanding)), since, lasts })
        };
        commands.filter_map(finding).collect()
    }

    /// Returns the findings about full, growing and long mailboxes. Stores the snapshot of the mailboxes for the next
    /// explanation.
    fn long_mailboxes(&self, mailboxes: Mailboxes) -> Vec<Finding> {
        let Mailboxes { full, growing, long, present, last } = mailboxes;
        let mut findings: Vec<_> =
            full.into_rows().into_iter().filter_map(|process| self.full_mailbox(process)).collect();
        let grows = |process: ProcessInfo| {
            let growth = last.as_deref().and_then(|last| Some((last, present.growth_since(last, process.pid)?)));
            match growth {
                Some((last, grown_by)) => {
                    Finding::GrowingMailbox { process, grown_by, since: last.at, lasts: present.at - last.at }
                }
                // The snapshot of this explanation contains the maximum number of mailboxes, but not this mailbox.
                None => Finding::LongMailbox { process },
            }
        };
        findings.extend(growing.into_rows().into_iter().map(grows));
        findings.extend(long.into_rows().into_iter().map(|process| Finding::LongMailbox { process }));
        self.shared().mailbox_snapshot.set(present);
        findings
    }

    /// Returns whether the runtime is at rest. The runtime is at rest if nothing except a process could make a process
    /// runnable. The caller reads the [progress](Self::progress), and then all processes, and then calls this function.
    /// After the call, the caller checks that the progress has not changed.
    ///
    /// The order in which this function reads the values matters. A timer is an example of a source of wake-ups.
    /// Usually, a source first makes a process ready, and then counts as gone. Some sources first count as gone, and
    /// then make the process ready. In this case, the thread of the source parks only after the process is ready.
    /// Therefore, if all sources are gone, a process that became ready is in a queue, or a thread has taken the process
    /// from the queue. A worker may take a task after this function has read the state of the worker for the first
    /// time, and before this function reads the queues. In this case, there are two possibilities: the second read of
    /// the state finds that the worker is not parked, or the worker has already counted the poll of the task.
    ///
    /// The queue of a [`LocalSet`](crate::LocalSet) is not a queue of the scheduler. A timer may make a local process
    /// ready after the caller has read this process. Therefore this function reads the run state of each process last.
    /// The run state of a local process shows whether the process is queued or runs. If a local process has run and
    /// waits again, its thread has already counted the poll.
    fn is_at_rest(&self) -> bool {
        let shared = self.shared();
        let BlockingPoolMetrics { threads, idle_threads, queue_depth } = self.pool_figures();
        let is_pool_idle = threads == idle_threads && queue_depth == 0;
        if !is_pool_idle || shared.timers.len() != 0 || !shared.future_wakers.lock().is_empty() {
            return false;
        }
        let gauges = || (shared.gauges)(&shared.place);
        let SchedulerGauges { workers, sockets, global_queue_depth, priority_queue_depth, .. } = gauges();
        let queued = workers.iter().map(|worker| worker.local_queue_depth).sum::<usize>();
        let SchedulerGauges { workers, steps, .. } = gauges();
        // This thread may be a guest thread that polls its own future. A guest thread that polls its own future fires
        // no timer now, and therefore counts as parked.
        let here = shared.metrics.worker();
        let polls_own = |worker| steps.iter().any(|step| step.worker == worker && step.is_own_future);
        let is_parked = |&WorkerMetrics { worker, state, .. }: &WorkerMetrics| {
            state == WorkerState::Parked || here == Some(worker) && polls_own(worker)
        };
        let is_idle = queued + global_queue_depth + priority_queue_depth + sockets == 0;
        is_idle && workers.iter().all(is_parked) && self.are_all_inactive()
    }

    /// Returns true if every process waits and no process has been woken. Processes in the state `Complete` are
    /// ignored.
    fn are_all_inactive(&self) -> bool {
        let mut are_inactive = true;
        self.shared().pid_table.visit(|control| {
            if let Some((head, _)) = process(control) {
                are_inactive &= head.is_inactive() || head.state() == Some(ProcessState::Complete);
            }
            Ok(())
        });
        are_inactive
    }

    fn pool_figures(&self) -> BlockingPoolMetrics {
        self.shared().pool.as_ref().map(|pool| pool.figures()).unwrap_or_default()
    }

    /// Returns a finding if runnable processes belong to a `LocalSet` that no thread runs.
    fn local_sets_without_thread(&self) -> Option<Finding> {
        let (count, listed) = self.shared().local_sets.ready_without_thread(LISTED);
        let processes = listed.into_iter().filter_map(|pid| self.row_of(pid)).collect();
        (count != 0).then_some(Finding::LocalSetWithoutThread { count, processes })
    }

    fn blocked_workers(&self, gauges: &SchedulerGauges) -> Vec<Finding> {
        let now = self.now();
        let finding = |CurrentStep { worker, process, blocked_since, checks_yield, .. }: &CurrentStep| {
            let since = (*blocked_since)?;
            let pid = process.map(|word| self.shared().pid_table.pid(LocalId::from(word)));
            let (worker, lasts, is_replaced) = (*worker, now - since, gauges.is_complete);
            Some(Finding::BlockedWorker {
                worker,
                process: pid.and_then(|pid| self.row_of(pid)),
                since,
                lasts,
                is_replaced,
                checks_yield: *checks_yield,
                waits_in_block_on: pid.is_some_and(|pid| self.shared().blocked_steps.of(pid).is_some()),
            })
        };
        gauges.steps.iter().filter_map(finding).collect()
    }

    /// Reads the row of one process.
    fn row_of(&self, pid: Pid) -> Option<ProcessInfo> {
        let read = |control: &Ref<dyn AnyControl>| {
            let Some((head, type_name)) = process(control) else { return Ok(None) };
            let (state, figures) = (head.state(), control.mailbox_figures());
            Ok(Some(row(control, type_name, state, figures, first_name(head)?)))
        };
        self.shared().pid_table.with(pid, read)?
    }

    fn busy_pool(&self) -> Option<Finding> {
        let BlockingPoolMetrics { threads, idle_threads, queue_depth } = self.pool_figures();
        let (most, queue_capacity) = self.shared().pool.as_ref()?.limits();
        let is_busy = threads != 0 && threads == most && idle_threads == 0;
        is_busy.then_some(Finding::BusyBlockingPool { threads, queue_depth, queue_capacity })
    }

    /// Reads the capacity of a mailbox that was full. Returns `None` if the mailbox has free space now.
    fn full_mailbox(&self, process: ProcessInfo) -> Option<Finding> {
        let read = |control: &Ref<dyn AnyControl>| Ok(control.mailbox_figures());
        let MailboxFigures { full_at, waiting_senders, .. } = self.shared().pid_table.with(process.pid, read)?;
        Some(Finding::FullMailbox { process, capacity: full_at?, waiting_senders })
    }

    fn ignored_cancellation(&self, (count, pids): (usize, Vec<Pid>), joins: &Joins) -> Option<Finding> {
        if self.phase() == Phase::Open || count == 0 {
            return None;
        }
        let deadline = Some(self.shutdown_deadline()).filter(|&deadline| deadline != Instant::FAR);
        Some(Finding::IgnoredCancellation { deadline, count, processes: self.details_of(pids, joins) })
    }

    fn details_of(&self, pids: Vec<Pid>, joins: &Joins) -> Vec<ProcessDetails> {
        let waits = self.read_unrecorded_waits(&pids);
        let joins_of = |pid| joins.get(&pid).cloned().unwrap_or_default();
        pids.into_iter().filter_map(|pid| self.details(pid, || joins_of(pid), waits.get(&pid))).collect()
    }
}

/// Snapshot of the states and the mailbox metrics of all processes. The runtime reads the processes one after the
/// other.
struct Snapshot {
    activity: Activity,
    mailboxes: Mailboxes,
    /// Commands without an answer. If the table of a process is in `long_tables`, the counts include only the commands
    /// in the first piece of the table.
    commands: CommandCounts,
    /// Processes whose tables of commands are too long for one lock operation, and the keys at which the next pieces
    /// begin.
    long_tables: Vec<(Pid, CountedTable)>,
    /// Number of waiting processes that are cancelled, and the pids of at most [`LISTED`] such processes.
    cancelled: (usize, Vec<Pid>),
    /// The first processes that wait.
    waiting: Vec<Pid>,
    /// The first suspended processes.
    suspended: Vec<ProcessInfo>,
}

/// Full, growing and long mailboxes.
struct Mailboxes {
    full: Ranking,
    growing: Ranking,
    long: Ranking,
    /// Snapshot of the long mailboxes that this explanation makes.
    present: MailboxSnapshot,
    /// Snapshot that the previous explanation has stored.
    last: Option<Arc<MailboxSnapshot>>,
}

/// Reads a long mailbox. The function reads the number of steps, then the metrics of the mailbox, and then the number
/// of steps again. If the two numbers differ, a step ran in the meantime.
fn read_long(control: &Ref<dyn AnyControl>) -> Option<LongMailbox> {
    let steps = || control.head().is_inactive().then(|| control.steps());
    let before = steps();
    let figures = control.mailbox_figures();
    LongMailbox::new(&figures, steps().filter(|steps| before == Some(*steps)))
}

/// Condition of a mailbox. The explanation reports such a condition as a finding.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Full,
    Growing,
    Long,
}

impl Mailboxes {
    /// Returns the condition of a mailbox. If the mailbox has many messages, stores the length of the mailbox for the
    /// next explanation.
    fn condition(&mut self, control: &Ref<dyn AnyControl>, figures: &MailboxFigures) -> Option<Condition> {
        if figures.full_at.is_some() {
            return Some(Condition::Full);
        }
        if figures.messages < LONG_MAILBOX {
            return None;
        }
        let (pid, long) = (control.head().pid(), read_long(control));
        if let Some(long) = long {
            self.present.add(pid, long);
            if self.last.as_ref().is_some_and(|last| last.growth(pid, &long).is_some()) {
                return Some(Condition::Growing);
            }
        }
        (figures.messages >= figures.peak).then_some(Condition::Long)
    }

    fn add(&mut self, condition: Condition, row: ProcessInfo) {
        match condition {
            Condition::Full => self.full.add(row),
            Condition::Growing => self.growing.add(row),
            Condition::Long => self.long.add(row),
        }
    }
}

impl Snapshot {
    fn new(present: MailboxSnapshot, last: Option<Arc<MailboxSnapshot>>) -> Self {
        let longest = ProcessQuery::new().descending(ProcessColumn::MailboxLen).limit(MAILBOXES);
        let [full, growing, long] = [(); 3].map(|()| Ranking::new(&longest));
        Self {
            activity: Activity::default(),
            mailboxes: Mailboxes { full, growing, long, present, last },
            commands: CommandCounts::new(),
            long_tables: Vec::new(),
            cancelled: (0, Vec::new()),
            waiting: Vec::new(),
            suspended: Vec::new(),
        }
    }

    /// Returns true if all of these conditions hold: at least one process exists, all processes wait, and each command
    /// has an answer. Here, a call of a hand-written process does not count as a command, because another process must
    /// answer the call.
    fn all_wait(&self) -> bool {
        let Activity { processes, waiting, .. } = self.activity;
        processes != 0 && processes == waiting && self.commands.keys().all(|command| is_builtin(command))
    }

    /// Adds the state and the mailbox metrics of a process. The caller holds the lock of the process's slot.
    fn add(&mut self, control: &Ref<dyn AnyControl>, joins: &Joins, waiters: &SocketWaiters) -> Result<(), Busy> {
        let Some((head, type_name)) = process(control) else { return Ok(()) };
        let (state, figures) = (head.state(), control.mailbox_figures());
        let is_running = state == Some(ProcessState::Running);
        let condition = self.mailboxes.condition(control, &figures);
        let is_suspended = state == Some(ProcessState::Suspended);
        let is_listed = is_suspended && self.suspended.len() < LISTED;
        let has_row = condition.is_some() || is_running || is_listed;
        // The next line can fail with `Busy`, and `visit` then calls this function again. No later line can fail.
        // Therefore each process is counted once.
        let row = if has_row { Some(row(control, type_name, state, figures, first_name(head)?)) } else { None };
        let mut waiting_since = None;
        match state {
            Some(ProcessState::Complete) => return Ok(()),
            Some(ProcessState::Running) => self.activity.running.extend(row.clone()),
            Some(ProcessState::Suspended) => {
                self.activity.suspended += 1;
                self.suspended.extend(row.clone().filter(|_| is_listed));
            }
            Some(ProcessState::Blocked | ProcessState::Idle) if head.is_inactive() => {
                waiting_since = head.waiting_since().map(Instant::ns);
                self.add_waiting(control, &figures, joins, waiters);
            }
            // A thread has woken this process, and is queueing the process now. Therefore the process counts as ready.
            _ => self.activity.ready += 1,
        }
        self.activity.processes += 1;
        if let Some(yields) = head.yields_if_any()
            && yields.outstanding() != 0
            && let table = (CountedTable { from: 0, waiting_since })
            && let handler_of = (|command: &str| head.host().namespace().dispatcher().handler_of(command))
            && let Some(rest) = yields.count_commands(table, &handler_of, &mut self.commands)
        {
            self.long_tables.push((head.pid(), rest));
        }
        if let (Some(condition), Some(row)) = (condition, row) {
            self.mailboxes.add(condition, row);
        }
        Ok(())
    }

    /// Counts a process that waits for an event.
    fn add_waiting(
        &mut self,
        control: &Ref<dyn AnyControl>,
        figures: &MailboxFigures,
        joins: &Joins,
        waiters: &SocketWaiters,
    ) {
        let (head, activity) = (control.head(), &mut self.activity);
        activity.waiting += 1;
        let waits = control.waits().waits;
        let has = |kinds: &[WaitKind]| usize::from(waits.iter().any(|wait| kinds.contains(&wait.kind)));
        let counted = waits.iter().filter(|wait| wait.is_call()).count();
        let (outstanding, calls) =
            head.yields_if_any().map_or((0, 0), |yields| (yields.outstanding(), yields.outstanding_calls()));
        let for_process = has(&[WaitKind::Start, WaitKind::Exit]).max(usize::from(joins.contains_key(&head.pid())));
        let kinds = [
            (&mut activity.for_message, usize::from(figures.is_awaited)),
            (&mut activity.for_command, usize::from(outstanding > calls)),
            (&mut activity.for_call, has(&[WaitKind::Call, WaitKind::LimitedCall]).max(usize::from(calls != 0))),
            // A wait without a record is a sleep.
            (&mut activity.for_sleep, usize::from(usize::try_from(head.waiting() as i32).unwrap_or(0) > counted)),
            (&mut activity.for_room, has(&[WaitKind::Room, WaitKind::LimitedRoom])),
            (&mut activity.for_process, for_process),
            (&mut activity.for_blocking, has(&[WaitKind::Blocking])),
            (&mut activity.for_socket, usize::from(waiters.contains(control.identity()))),
        ];
        let mut known = 0;
        for (total, count) in kinds {
            *total += count;
            known += count;
        }
        activity.for_unknown += usize::from(known == 0);
        if self.waiting.len() < LISTED {
            self.waiting.push(head.pid());
        }
        if head.is_cancelled() {
            self.cancelled.0 += 1;
            if self.cancelled.1.len() < LISTED {
                self.cancelled.1.push(head.pid());
            }
        }
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use std::time::Duration;

    use crate::{Context, Runtime};

    /// 9.2f: a timer has made a process of a `LocalSet` ready, and no thread runs the `LocalSet`. The runtime is not at
    /// rest, although no timer is set and no queue of the scheduler contains a process.
    #[test]
    fn a_runtime_with_a_ready_local_process_is_not_at_rest() {
        let rt = Runtime::builder().workers(0).build().expect("no threads");
        let (local, time) = (rt.local_set(), Duration::from_millis(1));
        let (began, has_begun) = futures::channel::oneshot::channel();
        let sleeps = local.spawn(async move |ctx: Context| {
            let _ = began.send(());
            ctx.sleep(time).await;
        });
        local.block_on(has_begun).expect("it has begun");
        assert!(!rt.is_at_rest(), "a timer is set");
        while rt.shared().timers.len() != 0 {
            rt.block_on(rt.sleep(time));
        }
        assert!(!rt.is_at_rest(), "the process is ready");
        local.block_on(sleeps).expect("a normal exit");
        assert!(rt.is_at_rest());
    }
}

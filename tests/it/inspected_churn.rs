//! Section 9.2 of the specification: each kind of inspection runs in a loop while a million processes start and exit.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use procession::observe::{
    Counters, Deadlock, Finding, IncreaseSampler, ProcessColumn, ProcessCount, ProcessInfo, ProcessQuery, ProcessState,
    RunTimeSampler,
};
use procession::*;

use crate::within;

/// Number of processes that start and exit. In a build without optimizations, each process needs about ten times as
/// much time, so fewer processes start.
const PROCESSES: u64 = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
/// Number of processes that live during the whole test, without the planted processes.
const IDLE: usize = 200;
/// Number of processes that spawn the short-lived processes.
const DRIVERS: u64 = 4;
/// Number of calls of `live_and_exit` in one batch. Each call spawns one short-lived process, or a parent and its child.
/// Each process that spawns batches has only one batch at a time.
const BATCH: u64 = 32;
const HOUR: Duration = Duration::from_secs(3600);

const COLUMNS: [ProcessColumn; 17] = [
    ProcessColumn::Pid,
    ProcessColumn::Name,
    ProcessColumn::TypeName,
    ProcessColumn::State,
    ProcessColumn::WaitingSince,
    ProcessColumn::Priority,
    ProcessColumn::MailboxLen,
    ProcessColumn::Signals,
    ProcessColumn::MailboxPeak,
    ProcessColumn::UnreadSince,
    ProcessColumn::Yields,
    ProcessColumn::Waits,
    ProcessColumn::Links,
    ProcessColumn::Monitors,
    ProcessColumn::MonitoredBy,
    ProcessColumn::Steps,
    ProcessColumn::LastWorker,
];

const STATES: [ProcessState; 5] =
    [ProcessState::Ready, ProcessState::Running, ProcessState::Blocked, ProcessState::Idle, ProcessState::Suspended];

/// A command whose handler answers late or never.
struct Slow;
impl Command for Slow {
    type Reply = ();
}

type Question = Reply<u64>;

async fn answers(mut ctx: Context<Question>) -> Result<(), Exit> {
    loop {
        ctx.receive().await?.send(7);
    }
}

async fn idle(mut ctx: Context<u8>) -> Result<(), Exit> {
    ctx.receive().await.map(drop)
}

/// Calls the process `callee`, and receives no message. Two processes that run this function and call each other are
/// deadlocked.
async fn calls(ctx: Context<Question>, callee: &'static str) {
    while ctx.host().whereis(callee).is_none() {
        ctx.yield_now().await;
    }
    _ = ctx.call(callee, |reply: Question| reply).await;
}

/// Spawns the short-lived process with this number, and waits for its exit. The number determines the kind of the
/// process.
async fn live_and_exit(ctx: &Context<u8>, number: u64, server: &Address<Question>) -> Result<(), Exit> {
    let host = ctx.host();
    match number % 8 {
        0 => ctx.spawn(async |_: Context| ()).await?,
        1 => {
            let name = format!("churn {number}");
            let named = host.process().name(name).value(number).spawn(idle).expect("each name is used once");
            named.send(1)?;
            named.await?;
        }
        2 => {
            let member = async |ctx: Context<u8>| {
                ctx.join_group("churn");
                ctx.yield_now().await;
            };
            ctx.spawn(member).await?;
        }
        3 => {
            let sleeper = ctx.spawn(async |ctx: Context<u8>| ctx.sleep(HOUR).await);
            ctx.monitor(sleeper.pid());
            ctx.yield_now().await;
            _ = host.kill(sleeper.pid());
            assert_eq!(sleeper.await.unwrap_err(), Exit::Killed);
        }
        4 => {
            let waits = ctx.spawn(async |ctx: Context| drop(ctx.perform(Slow).await));
            ctx.yield_now().await;
            _ = host.kill(waits.pid());
            _ = waits.await;
        }
        5 => {
            let to = server.clone();
            let asks = ctx.spawn(async move |ctx: Context| ctx.call(&to, |reply: Question| reply).await);
            assert_eq!(asks.await?, 7);
        }
        6 => {
            let parent = async |ctx: Context<u8>| _ = ctx.spawn_link(async |_: Context<u8>| {}).await;
            ctx.spawn(parent).await?;
        }
        _ => {
            let fails = ctx.spawn(async |_: Context| Err::<(), _>("planned"));
            assert!(fails.await.is_err());
        }
    }
    Ok(())
}

/// Spawns short-lived processes until at least `PROCESSES` processes have exited and the inspections have seen enough.
async fn drive(
    mut ctx: Context<u8>,
    driver: u64,
    server: Address<Question>,
    enough: Arc<AtomicBool>,
) -> Result<(), Exit> {
    let mut number = driver;
    while ctx.host().counters().exited < PROCESSES || !enough.load(SeqCst) {
        let batch = (0..BATCH).map(|at| live_and_exit(&ctx, number + at * DRIVERS, &server));
        for result in futures::future::join_all(batch).await {
            result?;
        }
        number += BATCH * DRIVERS;
        // The process monitors the sleepers, so the process receives an event for the exit of each sleeper. This loop
        // removes these events.
        while futures::FutureExt::now_or_never(ctx.event()).is_some() {}
    }
    Ok(())
}

/// Inspects a runtime again and again.
struct Inspector {
    host: Host,
    sampler: RunTimeSampler,
    increases: IncreaseSampler,
    counters: Counters,
    /// Pids of the processes that live during the whole test, in ascending order.
    permanent: Vec<Pid>,
    tree: Pid,
    /// Number of processes that exited during the inspections, for each kind of inspection.
    progress: BTreeMap<&'static str, u64>,
}

impl Inspector {
    /// Inspects the runtime once with each kind of inspection. Counts the processes that exit meanwhile.
    fn inspect(&mut self) {
        let kinds: [(&'static str, fn(&mut Self)); 12] = [
            ("all processes", Self::all_processes),
            ("columns", Self::columns),
            ("filters", Self::filters),
            ("details", Self::details),
            ("wait-for graph", Self::graph),
            ("explanation", Self::explanation),
            ("metrics", Self::metrics),
            ("increases", Self::increases),
            ("run times", Self::run_times),
            ("last exits", Self::last_exits),
            ("names and groups", Self::registered),
            ("supervision tree", Self::tree),
        ];
        for (kind, inspect) in kinds {
            let before = self.host.counters().exited;
            inspect(self);
            *self.progress.entry(kind).or_default() += self.host.counters().exited - before;
        }
    }

    /// Returns true if processes have exited during each kind of inspection.
    fn has_seen_enough(&self) -> bool {
        self.progress.values().all(|exits| *exits != 0)
    }

    fn rows(&self, query: &ProcessQuery) -> Vec<ProcessInfo> {
        let rows = self.host.processes(query);
        for row in &rows {
            assert!(row.links <= 1 && row.monitored_by <= 1 && row.yields <= 1 && row.steps < 1 << 40, "{row}");
            assert!(row.last_worker.is_none_or(|worker| worker < 48), "{row}");
        }
        rows
    }

    /// Each process that lives during the whole test is in the list exactly once.
    fn all_processes(&mut self) {
        let rows = self.rows(&ProcessQuery::new());
        assert!(rows.is_sorted_by(|one, other| one.pid < other.pid), "a process is listed twice");
        let is_listed = |pid: &Pid| rows.binary_search_by_key(pid, |row| row.pid).is_ok();
        assert!(self.permanent.iter().all(is_listed));
    }

    fn columns(&mut self) {
        for column in COLUMNS {
            for query in [ProcessQuery::new().ascending(column), ProcessQuery::new().descending(column)] {
                assert_eq!(self.rows(&query.limit(5)).len(), 5, "{column:?}");
            }
        }
        let top = self.rows(&ProcessQuery::new().descending(ProcessColumn::Steps).limit(20));
        assert!(top.is_sorted_by(|one, other| one.steps >= other.steps), "{top:?}");
    }

    fn filters(&mut self) {
        for state in STATES {
            assert!(self.rows(&ProcessQuery::new().state(state)).iter().all(|row| row.state == Some(state)));
        }
        let named = self.rows(&ProcessQuery::new().name_contains("churn"));
        assert!(
            named.iter().all(|row| row.name.as_deref().is_some_and(|name| name.starts_with("churn "))),
            "{named:?}"
        );
        let idle = self.rows(&ProcessQuery::new().type_contains("inspected_churn::idle"));
        assert!(idle.len() >= IDLE && idle.iter().all(|row| row.type_name.ends_with("::idle")));
        let unread = self.rows(&ProcessQuery::new().min_mailbox_len(1));
        assert!(unread.iter().all(|row| row.mailbox_len >= 1), "{unread:?}");
    }

    fn details(&mut self) {
        let first = self.permanent[0];
        assert_eq!(self.host.process_details(first).expect("it lives").info.pid, first);
        let short_lived = ProcessQuery::new().descending(ProcessColumn::Pid).limit(20);
        let blocked = ProcessQuery::new().state(ProcessState::Blocked).limit(20);
        for row in [short_lived, blocked].iter().flat_map(|query| self.rows(query)) {
            // The process may have exited. The runtime never gives the pid of an exited process to another process.
            let Some(details) = self.host.process_details(row.pid) else { continue };
            assert_eq!((details.info.pid, details.info.type_name), (row.pid, row.type_name));
            assert!(details.links.len() <= 1 && details.timers.len() <= 1 && details.groups.len() <= 1, "{details:?}");
            assert!(details.memory > 0 && !format!("{details:?}").is_empty());
        }
    }

    /// Asserts that the deadlock is the planted deadlock.
    fn check(deadlock: &Deadlock) {
        let mut names: Vec<_> = deadlock.cycle.iter().map(|edge| edge.name.as_deref().expect("a name")).collect();
        names.sort_unstable();
        assert_eq!((names, deadlock.behind.len()), (vec!["left", "right"], 0), "{deadlock}");
    }

    fn graph(&mut self) {
        let graph = self.host.wait_for_graph();
        graph.deadlocks.iter().for_each(Self::check);
        for (from, to) in [("left", "right"), ("right", "left")] {
            let pids = [from, to].map(|name| self.host.whereis(name).expect("it lives"));
            let edges: Vec<_> = graph.edges.iter().filter(|edge| edge.pid == pids[0]).collect();
            assert!(edges.len() == 1 && edges[0].target == pids[1], "{edges:?}");
        }
    }

    fn explanation(&mut self) {
        let explanation = self.host.explain();
        for finding in &explanation.findings {
            match finding {
                Finding::Deadlock(deadlock) => Self::check(deadlock),
                Finding::UnansweredCommands { commands, .. } => {
                    assert!(commands.command.ends_with("::Slow"), "{finding}");
                }
                // On a busy machine, the system may suspend a worker during a step.
                Finding::BlockedWorker { .. } => {}
                // After the exit of the last short-lived process, nothing can wake a permanent process.
                Finding::NothingOutstanding { .. } => {
                    assert_eq!(explanation.activity.processes, self.permanent.len(), "{explanation}");
                }
                _ => panic!("{finding}"),
            }
        }
        assert!(explanation.activity.processes >= self.permanent.len(), "{explanation}");
        assert!(explanation.to_string().contains(" processes: "));
    }

    fn metrics(&mut self) {
        let metrics = self.host.metrics();
        let (now, before) = (&metrics.counters, &self.counters);
        assert!(now.spawned >= before.spawned && now.exited >= before.exited && now.exited <= now.spawned, "{now}");
        let [alive, most] = [self.permanent.len(), self.permanent.len() + 4 * (DRIVERS * BATCH) as usize];
        let processes = metrics.processes;
        let by_state = [processes.new, processes.ready, processes.running, processes.blocked, processes.idle];
        assert!((alive..=most).contains(&by_state.iter().sum()), "{metrics}");
        assert!(metrics.timers <= (DRIVERS * BATCH) as usize && metrics.workers.len() >= 2, "{metrics}");
        assert!(metrics.to_prometheus().contains("procession_steps_total "));
        self.counters = metrics.counters;
    }

    fn run_times(&mut self) {
        let times = self.sampler.take(10);
        assert!(times.processes.len() <= 10 && times.types.len() <= 10);
        assert!(times.processes.is_sorted_by(|one, other| one.run_time >= other.run_time), "{times}");
        let sum: Duration = times.processes.iter().map(|row| row.run_time).sum();
        assert!(sum <= times.run_time && times.processes.iter().all(|row| row.turns <= times.turns), "{times}");
    }

    fn increases(&mut self) {
        let increases = self.increases.take(10);
        assert!(increases.processes.len() <= 10, "{increases}");
        assert!(increases.processes.is_sorted_by(|one, other| one.by >= other.by), "{increases}");
        assert!(increases.processes.iter().all(|row| (1..=row.process.steps).contains(&row.by)), "{increases}");
    }

    fn last_exits(&mut self) {
        let exits = self.host.last_exits();
        assert!(exits.len() <= 100, "{}", exits.len());
        for record in &exits {
            let is_planned = record.exit == Exit::Killed || record.exit.to_string().contains("planned");
            assert!(is_planned && !self.permanent.contains(&record.pid), "{record:?}");
        }
    }

    fn registered(&mut self) {
        let names = self.host.names("", 10);
        assert!(names.rows.len() <= 10 && names.count >= 3, "{names:?}");
        assert!(names.rows.is_sorted_by(|one, other| one.name < other.name), "{names:?}");
        let planted = self.host.names("left", 10);
        assert_eq!((planted.count, &*planted.rows[0].name), (1, "left"));
        let groups = self.host.groups("", 10);
        assert!(groups.rows.iter().all(|row| row.name == "churn") && groups.count <= 1, "{groups:?}");
    }

    fn tree(&mut self) {
        let tree = block_on(self.host.supervision_tree(self.tree)).expect("the supervisor lives");
        let [child] = &tree.children[..] else { panic!("{tree:?}") };
        assert_eq!((child.name.as_deref(), child.restarts), (Some("server"), 0));
    }
}

/// 9.2c, 9.2e: processes of many kinds start and exit on two workers. One thread inspects the runtime in a loop with
/// all kinds of inspection. Each result is plausible. Processes exit during each kind of inspection, so no inspection
/// stops the workers. The only deadlock in any result is the planted deadlock.
#[test]
fn each_kind_of_inspection_is_safe_while_a_million_processes_start_and_exit() {
    within(300, || {
        let kept: Mutex<Vec<Completion<()>>> = Mutex::default();
        let handler = move |_: Slow, completion| {
            let mut kept = kept.lock().unwrap();
            // The drop of a completion answers the command of this completion with a failure. These answers are late.
            if kept.len() == 64 {
                kept.clear();
            }
            kept.push(completion);
        };
        let rt = Runtime::builder().workers(2).exit_history(100).handler(handler).build().unwrap();
        let tree = rt.spawn_process(Supervisor::one_for_one().child("server", answers));
        block_on(tree.started()).unwrap();
        let mut permanent: Vec<_> = (0..IDLE).map(|_| rt.spawn(idle).pid()).collect();
        for (name, callee) in [("left", "right"), ("right", "left")] {
            let body = async move |ctx: Context<Question>| calls(ctx, callee).await;
            permanent.push(rt.process().name(name).spawn(body).unwrap().pid());
        }
        permanent.extend([tree.pid(), rt.whereis("server").unwrap()]);
        permanent.sort_unstable();
        while rt.wait_for_graph().deadlocks.len() != 1 {
            thread::yield_now();
        }
        let mut inspector = Inspector {
            host: rt.host().clone(),
            sampler: rt.sample_run_times(),
            increases: rt.sample_increases(ProcessCount::Steps),
            counters: rt.counters(),
            permanent: permanent.clone(),
            tree: tree.pid(),
            progress: BTreeMap::new(),
        };
        let (enough, server) = (Arc::new(AtomicBool::new(false)), rt.whereis("server").unwrap());
        let running = Arc::new(AtomicU64::new(DRIVERS));
        let drivers: Vec<_> = (0..DRIVERS)
            .map(|driver| {
                let (enough, running) = (Arc::clone(&enough), Arc::clone(&running));
                rt.spawn(async move |ctx: Context<u8>| {
                    let server = ctx.host().address(server).expect("the server has this message type");
                    let result = drive(ctx, driver, server, enough).await;
                    running.fetch_sub(1, SeqCst);
                    result
                })
            })
            .collect();
        while running.load(SeqCst) != 0 {
            inspector.inspect();
            enough.store(inspector.has_seen_enough(), SeqCst);
        }
        drivers.into_iter().for_each(|driver| block_on(driver).unwrap());
        assert!(inspector.has_seen_enough() && rt.counters().exited >= PROCESSES, "{:?}", inspector.progress);
        // Only the permanent processes are left. No inspection still owns data of an exited process.
        let rows = rt.processes(&ProcessQuery::new());
        assert_eq!(rows.iter().map(|row| row.pid).collect::<Vec<_>>(), permanent);
        let metrics = rt.metrics();
        assert_eq!((metrics.timers, metrics.processes.outstanding_yields), (0, 0), "{metrics}");
        assert_eq!((rt.names("", 9).count, rt.groups("", 9).count), (3, 0));
        assert_eq!(rt.wait_for_graph().deadlocks.len(), 1);
    });
}

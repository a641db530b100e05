//! Section 9.2 of the specification: the rows that list the processes, and the details of one process.

use std::any::Any;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use procession::observe::ProcessState::{Blocked, Idle, Ready, Running};
use procession::observe::{
    Finding, IncreaseSampler, ProcessColumn, ProcessCount, ProcessDetails, ProcessInfo, ProcessQuery, WaitsFor,
};
use procession::*;

use crate::waits::{MESSAGE, bare, some_sleeps};
use crate::{shut_down, step_aside, two, within};

const HOUR: Duration = Duration::from_secs(3600);

/// A command whose handler never answers.
struct Never;
impl Command for Never {
    type Reply = ();
}
struct NeverEither;
impl Command for NeverEither {
    type Reply = ();
}
impl StreamCommand for NeverEither {
    type Item = ();
}

type Kept = Vec<Box<dyn Any + Send>>;

/// A message to a puppet: a function that the puppet calls.
struct Act(Box<dyn FnOnce(&mut Context<Act>, &mut Kept) + Send>);

/// Body of a puppet. The puppet receives functions and calls these functions. The puppet has a list of values. The
/// functions add values to this list.
async fn puppet(mut ctx: Context<Act>) -> Result<(), Exit> {
    let mut kept = Kept::new();
    loop {
        let Act(act) = ctx.receive().await?;
        act(&mut ctx, &mut kept);
    }
}

/// Body that never reads its mailbox.
async fn deaf(_: Context<u8>) {
    pending().await
}

async fn idle(mut ctx: Context<u8>) -> Result<(), Exit> {
    loop {
        ctx.receive().await?;
    }
}

pub(crate) fn lone() -> Runtime {
    Runtime::builder().workers(0).build().unwrap()
}

/// Runs all runnable processes.
pub(crate) fn settle(rt: &Runtime) {
    let ready = ProcessQuery::new().state(Ready).limit(1);
    rt.block_on(async {
        for _ in 0..8 {
            step_aside().await;
        }
        while !rt.processes(&ready).is_empty() {
            step_aside().await;
        }
    });
}

/// Returns the row of a process. Asserts that the details of the process contain the same row.
fn row(host: &Host, pid: Pid) -> ProcessInfo {
    let rows = host.processes(&ProcessQuery::new());
    let row = rows.into_iter().find(|row| row.pid == pid).expect("the process is listed");
    assert_eq!(Some(&row), host.process_details(pid).as_ref().map(|details| &details.info));
    row
}

/// A runtime with a puppet.
struct Scene {
    rt: Runtime,
    host: Host,
    puppet: JoinHandle<(), Act>,
}

impl Scene {
    fn new() -> Self {
        let rt = lone();
        let kept = Arc::new(Mutex::new(Kept::new()));
        let streams = Arc::clone(&kept);
        let host = HostBuilder::new("scene")
            .handler(move |_: Never, completion: Completion<()>| kept.lock().unwrap().push(Box::new(completion)))
            .handle_stream(move |_: NeverEither, to: StreamCompletion<NeverEither>| {
                streams.lock().unwrap().push(Box::new(to));
                pending::<Result<(), Failure>>()
            });
        let host = rt.add_host(host).unwrap();
        let puppet = host.spawn(puppet);
        settle(&rt);
        Self { rt, host, puppet }
    }

    /// Makes the puppet call the function `act`.
    fn act(&self, act: impl FnOnce(&mut Context<Act>, &mut Kept) + Send + 'static) {
        self.puppet.send(Act(Box::new(act))).unwrap();
        settle(&self.rt);
    }

    fn line(&self) -> String {
        let row = row(&self.host, self.puppet.pid());
        let text = row.to_string();
        text.strip_prefix(&row.pid.to_string()).expect("the line begins with the pid").to_owned()
    }

    fn details(&self) -> ProcessDetails {
        self.host.process_details(self.puppet.pid()).expect("the puppet lives")
    }
}

/// 9.2a: a row contains the name, the type and the state of a process. A row also contains counts of the messages in
/// the mailbox, the commands in flight, the other waits, the links and the monitors. The test changes each value of the
/// row separately.
#[test]
fn each_value_of_a_row_changes_with_the_process() {
    let scene = Scene::new();
    let pid = scene.puppet.pid();
    let fresh = row(&scene.host, pid);
    assert_eq!(scene.line(), " it::inspection::puppet: Idle, mailbox 0 (peak 0)");
    assert_eq!((fresh.type_name, fresh.parent, &fresh.name), ("it::inspection::puppet", None, &None));
    assert_eq!((fresh.state, fresh.priority), (Some(Idle), Priority::Normal));

    scene.act(|ctx, _| ctx.register("second").unwrap());
    scene.act(|ctx, _| ctx.register("zeta").unwrap());
    let base = " \"second\" it::inspection::puppet: ";
    assert_eq!(scene.line(), format!("{base}Idle, mailbox 0 (peak 1)"));

    scene.act(|ctx, kept| kept.push(Box::new(ctx.perform(Never).start())));
    assert_eq!(scene.line(), format!("{base}Blocked, mailbox 0 (peak 1), yields 1"));
    scene.act(|_, kept| kept.clear());
    assert_eq!(scene.line(), format!("{base}Idle, mailbox 0 (peak 1)"));

    let other = scene.host.spawn(deaf);
    let (callee, _never_answers) = scene.host.mailbox::<Reply<()>>();
    scene.act(move |ctx, kept| kept.push(Box::new(ctx.call(&callee, |reply| reply).start())));
    assert_eq!(scene.line(), format!("{base}Blocked, mailbox 0 (peak 1), waits 1"));
    scene.act(|_, kept| kept.clear());

    let peer = other.pid();
    scene.act(move |ctx, _| ctx.link(peer).unwrap());
    scene.act(move |ctx, _| _ = (ctx.monitor(peer), ctx.monitor(peer)));
    assert_eq!(scene.line(), format!("{base}Idle, mailbox 0 (peak 1), links 1, monitors 2"));
    let line = format!("{peer} it::inspection::deaf: Idle, mailbox 0 (peak 0), links 1, monitored by 2");
    assert_eq!(row(&scene.host, peer).to_string(), line);
    scene.act(move |ctx, _| ctx.unlink(peer));
    assert_eq!(scene.line(), format!("{base}Idle, mailbox 0 (peak 1), monitors 2"));

    (0..3).for_each(|_| scene.puppet.send(Act(Box::new(|_, _| {}))).unwrap());
    assert_eq!(scene.line(), format!("{base}Ready, mailbox 3 (peak 3), monitors 2"));
    scene.host.kill(peer).unwrap();
    scene.rt.block_on(other).unwrap_err();
    settle(&scene.rt);
    assert_eq!(
        scene.line(),
        format!("{base}Idle, mailbox 0 (peak 3), signals 2, monitors 2"),
        "the events are not read"
    );
    shut_down(scene.rt, HOUR);
}

/// 9.2a: a row contains the parent, the priority and the state of a process. The test reads the rows of a new process,
/// a running process, a cancelled process and a killed process.
#[test]
fn a_row_shows_the_parent_and_the_state_of_a_process() {
    let rt = lone();
    let child = rt.block_on(rt.spawn(async |ctx: Context| {
        let child = ctx.host().process().priority(Priority::High).name("child").spawn(idle).unwrap();
        let own = row(ctx.host(), ctx.pid());
        assert_eq!((own.state, own.parent), (Some(Running), None));
        Ok::<_, Exit>((child, ctx.pid()))
    }));
    let (child, parent) = child.unwrap();
    let new = row(rt.host(), child.pid());
    assert_eq!((new.parent, new.priority, new.name.as_deref()), (Some(parent), Priority::High, Some("child")));
    settle(&rt);
    let text = row(rt.host(), child.pid()).to_string();
    assert!(text.ends_with(" \"child\" it::inspection::idle: Idle, mailbox 0 (peak 0), priority High"), "{text}");
    rt.cancel(child.pid(), "enough", HOUR).unwrap();
    let text = row(rt.host(), child.pid()).to_string();
    assert!(text.ends_with(": Ready, mailbox 0 (peak 0), signals 1, priority High, cancelled"), "{text}");
    rt.kill(child.pid()).unwrap();
    let text = row(rt.host(), child.pid()).to_string();
    assert!(text.ends_with(", priority High, cancelled, killed"), "{text}");
    settle(&rt);
    assert_eq!(rt.process_details(child.pid()), None);
    assert!(rt.processes(&ProcessQuery::new()).is_empty());
}

/// 9.2b: the details contain the names, the groups, the linked processes, the monitored processes and the monitoring
/// processes. The details also contain the commands in flight by type, the timers, the deadline, and the events that
/// the process waits for.
#[test]
fn the_details_contain_the_items_that_a_row_counts() {
    let scene = Scene::new();
    let nothing = scene.details();
    assert_eq!(bare(&nothing.waits_for), [MESSAGE]);
    assert!(nothing.names.is_empty() && nothing.groups.is_empty() && nothing.links.is_empty());
    assert!(nothing.yields.is_empty() && nothing.timers.is_empty() && nothing.deadline.is_none());

    let mut others: Vec<_> = (0..600).map(|_| scene.host.spawn(deaf)).collect();
    let mut pids: Vec<Pid> = others.iter().map(|process| process.pid()).collect();
    pids.sort_unstable();
    let peers = pids.clone();
    scene.act(move |ctx, _| {
        ctx.trap_exit(true);
        peers.iter().for_each(|&pid| _ = (ctx.link(pid).unwrap(), ctx.monitor(pid)));
        ctx.register("one").unwrap();
        ctx.register("another").unwrap();
        ctx.join_group("workers");
        ctx.join_group("all");
    });
    let me = scene.puppet.pid();
    let watcher = scene.host.spawn(puppet);
    watcher.send(Act(Box::new(move |ctx, _| _ = ctx.monitor(me)))).unwrap();
    settle(&scene.rt);
    let details = scene.details();
    assert_eq!((&details.links, &details.monitors), (&pids, &pids));
    assert_eq!((details.info.links, details.info.monitors, details.info.monitored_by), (600, 600, 1));
    assert_eq!(details.monitored_by, [watcher.pid()]);
    assert_eq!(
        (&details.names[..], &details.groups[..]),
        (&["one".into(), "another".into()][..], &["all".into(), "workers".into()][..])
    );
    let killed = others.pop().unwrap();
    scene.host.kill(killed.pid()).unwrap();
    settle(&scene.rt);
    let details = scene.details();
    pids.retain(|pid| *pid != killed.pid());
    assert_eq!((&details.links, &details.monitors), (&pids, &pids));
    assert_eq!((details.info.links, details.info.monitors, details.info.signals), (599, 600, 2));

    scene.act(|ctx, kept| {
        (0..600).for_each(|_| kept.push(Box::new(ctx.perform(Never).start())));
        let mut stream = ctx.stream(NeverEither);
        assert!(stream.next().now_or_never().is_none(), "the first poll starts the stream");
        kept.push(Box::new(stream));
        kept.push(Box::new(ctx.send_after(HOUR, &ctx.address(), Act(Box::new(|_, _| {})))));
        kept.push(Box::new(ctx.send_after(2 * HOUR, &ctx.address(), Act(Box::new(|_, _| {})))));
    });
    let details = scene.details();
    let counts: Vec<_> = details.yields.iter().map(|yields| (yields.command, yields.count)).collect();
    let stream = "it::inspection::NeverEither";
    assert_eq!(counts, [("it::inspection::Never", 600), (stream, 1)]);
    assert_eq!(details.info.yields, 601);
    assert!(matches!(details.timers[..], [one, other] if one > scene.host.now() && other - one >= HOUR));
    let commands = details.yields.iter().cloned().map(WaitsFor::Command);
    assert_eq!(bare(&details.waits_for), [MESSAGE].into_iter().chain(commands).collect::<Vec<_>>());
    shut_down(scene.rt, HOUR);
}

/// 9.2b: the details state the events that the process waits for. If the process waits for a foreign future, the
/// details state no event.
#[test]
fn the_details_contain_the_events_that_a_process_waits_for() {
    let rt = lone();
    let at = rt.now() + HOUR;
    let sleeps = rt.process().deadline(at).spawn(async |ctx: Context| ctx.sleep(HOUR).await).unwrap();
    assert_eq!(rt.process_details(sleeps.pid()).unwrap().waits_for, []);
    let foreign = rt.spawn(deaf);
    let both = rt.spawn(async |mut ctx: Context<u8>| _ = ctx.receive_timeout(HOUR).await);
    settle(&rt);
    let details = rt.process_details(sleeps.pid()).unwrap();
    assert_eq!((details.info.state, details.info.waits), (Some(Blocked), 1));
    assert_eq!(bare(&details.waits_for), [some_sleeps(1)]);
    assert_eq!((details.deadline, details.timers), (Some(at), vec![at]));
    let waits_for = |pid| rt.process_details(pid).unwrap().waits_for;
    assert_eq!(waits_for(foreign.pid()), []);
    assert_eq!(bare(&waits_for(both.pid())), [MESSAGE, some_sleeps(1)]);
    both.send(1).unwrap();
    assert_eq!(waits_for(both.pid()), [], "the process is ready");
}

/// 9.2b: the details of a process state which other process awaits the join handle of this process. The details also
/// name the processes whose join handles this process awaits. After the drop of a join handle, the details of both
/// processes no longer show the join.
#[test]
fn the_details_show_both_sides_of_a_join() {
    let rt = lone();
    let [one, other] = [rt.spawn(deaf), rt.spawn(deaf)];
    let pids = [one.pid(), other.pid()];
    let details = |pid| rt.process_details(pid).expect("the process lives");
    assert_eq!(pids.map(|pid| details(pid).joined_by), [None, None]);
    let joins = rt.spawn(async move |mut ctx: Context<u8>| {
        let both = futures::future::join(one, other);
        _ = futures::future::select(Box::pin(both), Box::pin(ctx.receive())).await;
        // The handles were dropped.
        pending::<()>().await;
    });
    settle(&rt);
    assert_eq!(pids.map(|pid| details(pid).joined_by), [Some(joins.pid()); 2]);
    let exits = pids.map(|process| WaitsFor::Exit { process, line: None });
    assert_eq!(bare(&details(joins.pid()).waits_for), [&[MESSAGE][..], &exits].concat());
    assert_eq!((details(joins.pid()).joined_by, &details(pids[0]).waits_for[..]), (None, &[][..]));
    let explanation = rt.explain().to_string();
    assert!(explanation.contains("(1 for a message, 1 for the start or the exit of a process, 2 for an event"));
    assert!(explanation.contains(&format!(", or for the exit of {}, or for", pids[0])));
    joins.send(0).unwrap();
    settle(&rt);
    assert_eq!(pids.map(|pid| details(pid).joined_by), [None, None]);
    assert_eq!(details(joins.pid()).waits_for, []);
    // If a thread awaits the join handle, the details name no process.
    let third = rt.spawn(deaf);
    let pid = third.pid();
    assert!(rt.block_on(async { third.now_or_never() }).is_none());
    assert_eq!(details(pid).joined_by, None);
}

struct TenantId;
struct Trace;

/// 9.2b: the details of a process contain its supervisor, its inherited values, its steps, and its memory. The details
/// also contain the time that counts towards the time limit of the process.
#[test]
fn the_details_contain_the_supervisor_and_the_resources_of_a_process() {
    let rt = lone();
    let supervisor = rt.spawn_process(Supervisor::one_for_one().child(Name::new("child"), idle));
    settle(&rt);
    let details = |pid| rt.process_details(pid).expect("the process lives");
    let child = rt.whereis("child").unwrap();
    assert_eq!((details(child).supervisor, details(supervisor.pid()).supervisor), (Some(supervisor.pid()), None));

    let spawner = async |ctx: Context| {
        Ok::<_, Exit>(ctx.process().value(Trace).limits(Limits::new().steps(9)).spawn(idle).unwrap())
    };
    let heir = rt.block_on(rt.process().value(TenantId).spawn(spawner).unwrap()).unwrap();
    settle(&rt);
    let heirs = details(heir.pid());
    assert_eq!(heirs.supervisor, None, "a parent is no supervisor");
    assert_eq!(heirs.inherited_values, ["it::inspection::TenantId", "it::inspection::Trace"]);
    assert_eq!((heirs.info.steps, heirs.run_time), (1, None));
    heir.send(0).unwrap();
    settle(&rt);
    assert_eq!(details(heir.pid()).info.steps, 2);
    let timed = rt.process().limits(Limits::new().time(HOUR)).spawn(idle).unwrap();
    let new = details(timed.pid());
    assert_eq!((new.run_time, new.info.steps, new.inherited_values), (Some(Duration::ZERO), 0, vec![]));
    settle(&rt);
    assert!(details(timed.pid()).run_time > Some(Duration::ZERO));

    let large = rt.spawn(async |mut ctx: Context<u8>| {
        let state = (ctx.receive().await, [1_u64; 60]);
        pending::<()>().await;
        drop(state);
    });
    let small = rt.spawn(async |_: Context<[u64; 100]>| pending::<()>().await);
    settle(&rt);
    let before = details(small.pid()).memory;
    assert!((100..1_000).contains(&before), "{before}");
    (0..64).for_each(|_| small.send([0; 100]).unwrap());
    assert!(details(small.pid()).memory >= before + 63 * 800);
    let plain = rt.spawn(idle);
    assert!(details(large.pid()).memory >= details(plain.pid()).memory + 60 * 8);
    drop((supervisor, heir, timed, large));
}

/// 9.2b: if each step is measured, the details contain the time at which a process became ready. For each type of
/// command, the details also contain the time at which the process performed the oldest outstanding command of this
/// type.
#[test]
fn the_details_contain_measured_times() {
    let keep = |_: Never, completion: Completion<()>| std::mem::forget(completion);
    let rt = Runtime::builder().workers(0).sample_every_step(true).handler(keep).build().unwrap();
    let begin = rt.now();
    let asks = rt.spawn(async |ctx: Context| {
        let one = ctx.perform(Never).start();
        ctx.yield_now().await;
        _ = futures::future::join(one, ctx.perform(Never)).await;
    });
    let details = || rt.process_details(asks.pid()).unwrap();
    let ready = details().ready_since.expect("each wake-up is measured");
    assert!(begin <= ready && ready <= rt.now());
    settle(&rt);
    let end = rt.now();
    assert_eq!(details().ready_since, None);
    let [commands] = &details().yields[..] else { panic!("{:?}", details()) };
    let since = commands.measured_since.expect("each command is measured");
    assert!(commands.count == 2 && ready <= since && since <= end, "{commands:?}");
}

/// 9.2a: a row contains the number of steps of the process, and the index of the last worker that has run the process.
/// In this test no process exits, so the sum of the steps of all processes is the number of steps that the runtime has
/// counted.
#[test]
fn a_row_contains_the_steps_and_the_last_worker() {
    let rt = lone();
    let yields = |count: usize| {
        rt.spawn(async move |mut ctx: Context<u8>| {
            for _ in 0..count {
                ctx.yield_now().await;
            }
            while ctx.receive().await.is_ok() {}
        })
    };
    // Each poll that returns `Pending` ends a step. The runtime counts the steps of a process in batches of 2^15
    // steps, and the last process completes two batches.
    let counts = [0, 1, 32_766, 32_767, 32_768, 70_000];
    let processes = counts.map(yields);
    assert!(
        processes
            .iter()
            .all(|process| (row(&rt, process.pid()).steps, row(&rt, process.pid()).last_worker) == (0, None))
    );
    settle(&rt);
    let steps = processes.each_ref().map(|process| row(&rt, process.pid()).steps);
    assert_eq!(steps, counts.map(|count| count as u64 + 1));
    let most = rt.processes(&ProcessQuery::new().descending(ProcessColumn::Steps).limit(1));
    assert_eq!((most[0].pid, most[0].steps), (processes[5].pid(), 70_001));
    assert_eq!(most[0].last_worker, Some(0));
    processes[0].send(1).unwrap();
    settle(&rt);
    assert_eq!(row(&rt, processes[0].pid()).steps, 2);
    // No other process has run in this runtime.
    let sum: u64 = rt.processes(&ProcessQuery::new()).iter().map(|row| row.steps).sum();
    assert_eq!(rt.counters().steps, sum);
}

/// 9.2a: the last worker is the worker that ran the last step. The test occupies both workers with blocked steps. Then
/// the test releases one worker, and this worker runs the process.
#[test]
fn the_last_worker_is_the_worker_that_ran_the_last_step() {
    within(60, || {
        // The monitor is off, so that no thread replaces the thread of a blocked step.
        let rt = Runtime::builder().workers(2).long_step_threshold(Duration::MAX).build().unwrap();
        let process = rt.spawn(async |mut ctx: Context<u8>| while ctx.receive().await.is_ok() {});
        // While the process runs, two successive reads of its row may differ. Therefore the test does not call `row`,
        // which compares two reads.
        let info = || rt.process_details(process.pid()).unwrap().info;
        let until = |condition: &dyn Fn() -> bool| {
            while !condition() {
                thread::yield_now();
            }
        };
        until(&|| info().state == Some(Idle));
        for released in 0..2 {
            let steps = info().steps;
            let (began, begins) = mpsc::channel();
            let blockers = [(); 2].map(|()| {
                let (began, (release, is_released)) = (began.clone(), mpsc::channel::<()>());
                let blocker = rt.spawn(async move |_: Context| {
                    began.send(()).unwrap();
                    is_released.recv().unwrap();
                });
                (blocker, release)
            });
            (0..2).for_each(|_| begins.recv().unwrap());
            let worker = |blocker: &JoinHandle<()>| rt.process_details(blocker.pid()).unwrap().step.unwrap().worker;
            process.send(0).unwrap();
            let (one, other): (Vec<_>, Vec<_>) = blockers.into_iter().partition(|(it, _)| worker(it) == released);
            assert_eq!((one.len(), other.len()), (1, 1), "the blocked workers have the numbers 0 and 1");
            one[0].1.send(()).unwrap();
            until(&|| info().steps == steps + 1);
            assert_eq!(info().last_worker, Some(released));
            other[0].1.send(()).unwrap();
            for (blocker, _) in one.into_iter().chain(other) {
                _ = futures::executor::block_on(rt.exited(blocker.pid()));
            }
        }
    });
}

/// 9.2a: a row contains the time at which the wait of a process began. In a simulation, the time is exact. If an event
/// wakes the process and the process waits again, a new wait begins.
#[test]
fn a_row_contains_the_time_at_which_a_wait_began() {
    let mut sim = Simulation::new(1);
    let (host, begin) = (sim.host().clone(), sim.now());
    let (first, second) = (host.spawn(idle), host.spawn(deaf));
    let since = |process: &JoinHandle<_, u8>| row(&host, process.pid()).waiting_since;
    assert_eq!(since(&first), None, "the process has not run");
    let mut pass_an_hour = || sim.run(host.spawn(async |ctx: Context| ctx.sleep(HOUR).await)).unwrap();
    pass_an_hour();
    assert_eq!((since(&first), row(&host, second.pid()).waiting_since), (Some(begin), Some(begin)));
    first.send(1).unwrap();
    assert_eq!((since(&first), row(&host, first.pid()).state), (None, Some(Ready)));
    pass_an_hour();
    assert_eq!((since(&first), row(&host, second.pid()).waiting_since), (Some(begin + HOUR), Some(begin)));
    let new = host.spawn(deaf);
    let by_wait = host.processes(&ProcessQuery::new().ascending(ProcessColumn::WaitingSince));
    assert_eq!(by_wait.iter().map(|row| row.pid).collect::<Vec<_>>(), [second.pid(), first.pid(), new.pid()]);
    host.suspend(first.pid()).unwrap();
    pass_an_hour();
    assert_eq!(since(&first), Some(begin + HOUR * 2));
}

/// A message that does not fit into the slot of a mailbox.
type Large = [u64; 4];

/// 9.2a: a row contains an upper bound for the arrival time of the oldest unread message. The process has taken no
/// message out of the mailbox since this time.
#[test]
fn a_row_bounds_the_arrival_time_of_the_oldest_unread_message() {
    async fn waits(_: Context<Large>) {
        pending().await
    }
    async fn takes_one(mut ctx: Context<Large>) -> Result<(), Exit> {
        ctx.receive().await?;
        pending().await
    }
    let mut sim = Simulation::new(1);
    let (host, begin) = (sim.host().clone(), sim.now());
    let bounded = |capacity| host.process().mailbox_capacity(capacity);
    let [first, second, none] = [(); 3].map(|()| host.spawn(waits));
    let drops = bounded(MailboxCapacity::DropOldest(1)).spawn(waits).unwrap();
    let one_of_two = bounded(MailboxCapacity::Reject(3)).spawn(takes_one).unwrap();
    let all = host.spawn(takes_one);
    let mut pass_an_hour = || sim.run(host.spawn(async |ctx: Context| ctx.sleep(HOUR).await)).unwrap();
    let since = |pid: Pid| row(&host, pid).unread_since.map(|since| (since - begin).as_secs() / 3600);
    first.send(Large::default()).unwrap();
    drops.send(Large::default()).unwrap();
    pass_an_hour();
    for to in [first.address(), second.address(), drops.address(), one_of_two.address(), all.address()] {
        to.send(Large::default()).unwrap();
    }
    one_of_two.send(Large::default()).unwrap();
    all.send(Large::default()).unwrap();
    let pids = [first.pid(), second.pid(), none.pid(), drops.pid(), one_of_two.pid(), all.pid()];
    assert_eq!(pids.map(since), [Some(0), Some(1), None, Some(1), Some(1), Some(1)]);
    pass_an_hour();
    // The process with the unbounded mailbox has read both messages ahead. The process with the bounded mailbox has
    // taken out only one message. The arrival time of the second message in the bounded mailbox is not recorded.
    assert_eq!((row(&host, all.pid()).mailbox_len, row(&host, one_of_two.pid()).mailbox_len), (0, 1));
    assert_eq!(pids.map(since), [Some(0), Some(1), None, Some(1), None, None]);
    one_of_two.send(Large::default()).unwrap();
    assert_eq!(since(one_of_two.pid()), Some(2));
    let by_age = host.processes(&ProcessQuery::new().ascending(ProcessColumn::UnreadSince).limit(1));
    assert_eq!(by_age.iter().map(|row| row.pid).collect::<Vec<_>>(), [first.pid()]);
}

/// 9.2a: in a runtime with workers, the recorded start of a wait is never in the future. The test sends messages in a
/// loop. Each message ends the wait of the process, and then a new wait begins. The loop ends when the recorded start
/// of the new wait is at most 1 ms earlier than the send of the message.
#[test]
fn the_recorded_start_of_a_wait_on_a_worker_is_a_recent_time() {
    const RESOLUTION: Duration = Duration::from_millis(1);
    within(60, || {
        let rt = two();
        let process = rt.spawn(idle);
        let waiting_since = || rt.process_details(process.pid()).unwrap().info.waiting_since;
        // If neither the monitor nor the worker has read the clock after the send, the recorded time is earlier than
        // the send. The test then tries again with another message.
        loop {
            thread::sleep(RESOLUTION * 5);
            let sent = rt.now();
            process.send(1).unwrap();
            let since = loop {
                match rt.process_details(process.pid()).unwrap().info {
                    ProcessInfo { waiting_since: Some(since), mailbox_len: 0, .. } => break since,
                    _ => thread::yield_now(),
                }
            };
            assert!(since <= rt.now());
            if since + RESOLUTION >= sent && Some(since) == waiting_since() {
                break;
            }
        }
    });
}

/// 9.2i: a sampler finds the processes and the types with the longest run times in a window of time. Each call of
/// `take` begins a new window.
#[test]
fn a_sampler_finds_the_busiest_processes() {
    async fn burner(mut ctx: Context<u64>) -> Result<(), Exit> {
        loop {
            let rounds = ctx.receive().await?;
            std::hint::black_box((0..rounds).fold(0_u64, |sum, n| std::hint::black_box(sum ^ n)));
        }
    }
    within(60, || {
        let rt = Runtime::builder().workers(0).sample_every_step(true).build().unwrap();
        let burners: Vec<_> = (0..5).map(|_| rt.spawn(burner)).collect();
        let heavy = rt.process().name("heavy").spawn(burner).unwrap();
        let quiet = rt.spawn(idle);
        settle(&rt);
        let before = rt.now();
        let mut sampler = rt.sample_run_times();
        // If the system interrupts the turn of a light process for a long time, another attempt is necessary.
        let times = loop {
            burners.iter().for_each(|burner| burner.send(1).unwrap());
            (0..3).for_each(|_| heavy.send(300_000).unwrap());
            settle(&rt);
            let times = sampler.take(2);
            assert!(times.window <= rt.now() - before && times.run_time <= times.window, "{times:?}");
            assert_eq!(times.processes.len(), 2);
            if times.processes[0].pid == heavy.pid() && times.share(times.processes[0].run_time) > 0.5 {
                break times;
            }
        };
        let first = &times.processes[0];
        assert_eq!(first.name.as_deref(), Some("heavy"));
        assert!(first.turns >= 1 && first.turns == first.measured_turns && first.last_worker.is_some(), "{first:?}");
        let own = times.types.iter().find(|row| row.type_name == first.type_name).expect("the type of the burners");
        assert!(own.turns >= first.turns + 5 && own.run_time > first.run_time, "{own:?}");
        assert!(
            times.to_string().lines().nth(1).unwrap().starts_with(&format!("{} \"heavy\" ", heavy.pid())),
            "{times}"
        );
        // The next window contains only later turns. A process that exits in this window is also listed.
        rt.kill(heavy.pid()).unwrap();
        quiet.send(1).unwrap();
        settle(&rt);
        let times = sampler.take(9);
        let mut pids: Vec<_> = times.processes.iter().map(|row| (row.pid, row.name.clone())).collect();
        pids.sort_unstable();
        let mut expected = [(heavy.pid(), None), (quiet.pid(), None)];
        expected.sort_unstable();
        assert_eq!(pids, expected);
        assert_eq!(sampler.take(9).processes, []);
    });
}

/// Returns the pids and the increases of the processes whose number has increased since the last call.
fn increases(sampler: &mut IncreaseSampler, limit: usize) -> Vec<(Pid, u64)> {
    sampler.take(limit).processes.iter().map(|row| (row.process.pid, row.by)).collect()
}

/// 9.2j: a sampler finds the processes for which a number has increased most since the last call. A new process counts
/// from 0. A process that has exited is not listed. If a number falls and then rises in the next window, the increase
/// is counted from the lower number.
#[test]
fn a_sampler_finds_the_largest_increases() {
    let rt = lone();
    let [one, two, three] = [(); 3].map(|()| rt.spawn(idle));
    settle(&rt);
    // Later windows must not contain these steps.
    (0..50).for_each(|_| three.send(0).unwrap());
    settle(&rt);
    let (mut steps, mut lens) =
        (rt.sample_increases(ProcessCount::Steps), rt.sample_increases(ProcessCount::MailboxLen));
    for (process, turns) in [(&one, 1), (&two, 3), (&three, 2)] {
        for _ in 0..turns {
            process.send(0).unwrap();
            settle(&rt);
        }
    }
    let new = rt.spawn(idle);
    settle(&rt);
    assert_eq!(increases(&mut steps, 2), [(two.pid(), 3), (three.pid(), 2)]);
    assert_eq!(increases(&mut steps, 9), [], "the next window begins at the last call");
    let before_window = rt.now();
    assert_eq!(increases(&mut lens, 9), []);
    let after_start = rt.now();
    two.send(0).unwrap();
    settle(&rt);
    rt.kill(two.pid()).unwrap();
    new.send(0).unwrap();
    settle(&rt);
    let newest = rt.spawn(idle);
    settle(&rt);
    let mut expected = [(new.pid(), 1), (newest.pid(), 1)];
    expected.sort_by_key(|(pid, _)| *pid);
    let mut seen = increases(&mut steps, 9);
    seen.sort_by_key(|(pid, _)| *pid);
    assert_eq!(seen, expected);

    let send = |count| (0..count).for_each(|_| one.send(0).unwrap());
    send(5);
    let before_end = rt.now();
    let found = lens.take(9);
    assert!((before_end - after_start..=rt.now() - before_window).contains(&found.window), "{found:?}");
    assert_eq!(found.count, ProcessCount::MailboxLen);
    let row = row(&rt, one.pid());
    let text = format!("increases of messages in the mailbox in a window of {:?}\n+5: {row}", found.window);
    assert_eq!(found.to_string(), text);
    settle(&rt);
    assert_eq!(increases(&mut lens, 9), [], "the number has fallen");
    send(2);
    assert_eq!(increases(&mut lens, 0), []);
    send(1);
    assert_eq!(increases(&mut lens, 9), [(one.pid(), 1)]);
}

/// 9.2j: a sampler counts the increases of the number for which it was created, and of no other number.
#[test]
fn each_sampler_counts_the_increases_of_its_own_number() {
    let scene = Scene::new();
    let plain = scene.host.spawn(deaf);
    settle(&scene.rt);
    let (me, peer) = (scene.puppet.pid(), plain.pid());
    let (callee, _never_answers) = scene.host.mailbox::<Reply<()>>();
    let counts = [
        ProcessCount::Signals,
        ProcessCount::Yields,
        ProcessCount::Waits,
        ProcessCount::Links,
        ProcessCount::Monitors,
        ProcessCount::MonitoredBy,
    ];
    let mut samplers = counts.map(|count| scene.rt.sample_increases(count));
    let mut check = |expected: [&[(Pid, u64)]; 6]| {
        for ((sampler, expected), count) in samplers.iter_mut().zip(expected).zip(counts) {
            let mut seen = increases(sampler, 9);
            seen.sort_unstable();
            let mut expected = expected.to_vec();
            expected.sort_unstable();
            assert_eq!(seen, expected, "{count:?}");
        }
    };
    scene.act(|ctx, kept| kept.push(Box::new([ctx.perform(Never).start(), ctx.perform(Never).start()])));
    check([&[], &[(me, 2)], &[], &[], &[], &[]]);
    scene.act(move |ctx, kept| kept.push(Box::new(ctx.call(&callee, |reply| reply).start())));
    check([&[], &[], &[(me, 1)], &[], &[], &[]]);
    scene.act(move |ctx, _| ctx.link(peer).unwrap());
    check([&[], &[], &[], &[(me, 1), (peer, 1)], &[], &[]]);
    scene.act(move |ctx, _| _ = [(); 3].map(|()| ctx.monitor(peer)));
    check([&[], &[], &[], &[], &[(me, 3)], &[(peer, 3)]]);
    scene.act(move |ctx, _| ctx.unlink(peer));
    scene.host.kill(peer).unwrap();
    settle(&scene.rt);
    check([&[(me, 3)], &[], &[], &[], &[], &[]]);
    shut_down(scene.rt, HOUR);
}

/// 9.2i: if a measured turn calls `block_on`, and this call runs another measured turn, both turns are counted.
#[test]
fn an_inner_turn_and_its_outer_turn_are_both_counted() {
    within(60, || {
        let rt = Arc::new(Runtime::builder().workers(1).sample_every_step(true).build().unwrap());
        let mut sampler = rt.sample_run_times();
        let inner = Arc::clone(&rt);
        let outer = rt.spawn(async move |ctx: Context| {
            let child = ctx.spawn(async |_: Context| {});
            let pid = child.pid();
            _ = inner.block_on(child);
            Ok::<_, Exit>(pid)
        });
        let pid = outer.pid();
        let child = futures::executor::block_on(outer).unwrap();
        // The runtime counts a turn only after the turn has woken the task that awaits the join handle. So the test may
        // have to read the sampler several times.
        let mut counted = Vec::new();
        while counted.len() < 2 {
            counted.extend(sampler.take(9).processes.into_iter().map(|row| (row.pid, row.turns)));
        }
        counted.sort_unstable();
        let mut expected = [(pid, 1), (child, 1)];
        expected.sort_unstable();
        assert_eq!(counted, expected);
    });
}

/// 9.2a: in a simulation, the recorded start of a wait is exact even if no timer is set.
#[test]
fn the_start_of_a_wait_is_exact_in_a_simulation_without_timers() {
    let mut sim = Simulation::new(1);
    let (begin, process) = (sim.now(), sim.spawn(idle));
    // The clock of a simulation advances by 1 ms after each 1,000 turns.
    sim.run(sim.host().spawn(async |ctx: Context| {
        for _ in 0..3_500 {
            ctx.yield_now().await;
        }
    }))
    .unwrap();
    process.send(1).unwrap();
    sim.run(sim.host().spawn(async |ctx: Context| {
        for _ in 0..100 {
            ctx.yield_now().await;
        }
    }))
    .unwrap();
    let now = sim.now();
    assert!(now - begin >= Duration::from_millis(3));
    assert_eq!(row(sim.host(), process.pid()).waiting_since, Some(now));
}

/// 9.1e, 9.2i: if two processes wake each other alternately, the runtime measures turns of both processes.
#[test]
fn the_turns_of_two_processes_that_wake_each_other_are_both_measured() {
    within(60, || {
        let rt = Runtime::builder().workers(1).build().unwrap();
        let mut sampler = rt.sample_run_times();
        let echo = rt.spawn(async |mut ctx: Context<Reply<()>>| {
            loop {
                ctx.receive().await?.send(());
            }
            #[expect(unreachable_code, reason = "determines the type of the exit")]
            Ok::<(), Exit>(())
        });
        let (pid, address) = (echo.pid(), echo.address());
        let caller = rt.spawn(async move |ctx: Context| {
            for _ in 0..6_400 {
                ctx.call(&address, |reply| reply).await?;
            }
            Ok::<_, Exit>(())
        });
        let pids = [pid, caller.pid()];
        futures::executor::block_on(caller).unwrap();
        let times = sampler.take(2);
        for pid in pids {
            let row = times.processes.iter().find(|row| row.pid == pid).expect("its turns are measured");
            assert!((80..=120).contains(&row.measured_turns), "{times:?}");
            assert!(row.turns == 64 * row.measured_turns && row.last_worker.is_some(), "{row:?}");
        }
    });
}

/// 9.2b: the details of a running process contain its worker. If the runtime has asked the process to yield and the
/// process has not reacted yet, the details also show this request.
#[test]
fn the_details_of_a_running_process_show_its_worker() {
    within(60, || {
        let rt = Runtime::builder().workers(1).long_step_threshold(Duration::MAX).build().unwrap();
        let [begun, answers, goes_on] = [(); 3].map(|()| Arc::new(Barrier::new(2)));
        let barriers = [&begun, &answers, &goes_on].map(Arc::clone);
        let runs = rt.spawn(async move |_: Context| {
            let [begun, answers, goes_on] = barriers;
            begun.wait();
            answers.wait();
            assert!(should_yield());
            begun.wait();
            goes_on.wait();
        });
        let step = || rt.process_details(runs.pid()).unwrap().step.expect("the process runs");
        begun.wait();
        let first = step();
        assert_eq!((first.worker, first.blocked_since, first.is_asked_to_yield), (0, None, false));
        assert_eq!(rt.preempt(runs.pid()), Ok(true));
        assert!(step().is_asked_to_yield);
        answers.wait();
        begun.wait();
        assert!(!step().is_asked_to_yield);
        goes_on.wait();
        rt.block_on(runs).unwrap();
        let idles = rt.spawn(idle);
        while rt.process_details(idles.pid()).unwrap().info.state != Some(Idle) {
            thread::yield_now();
        }
        assert_eq!(rt.process_details(idles.pid()).unwrap().step, None);
    });
}

/// 9.2b: when the monitor has seen a long step, the details of the process of this step contain the time at which the
/// monitor first saw this step. The explanation contains the same time.
#[test]
fn the_details_of_a_long_step_contain_the_time_of_the_step() {
    within(60, || {
        let rt = Runtime::builder().workers(1).long_step_threshold(Duration::from_millis(10)).build().unwrap();
        let (began, begins) = mpsc::channel();
        let (gate, opened) = mpsc::channel::<()>();
        let before = rt.now();
        let blocks = rt.spawn(async move |_: Context| {
            began.send(()).unwrap();
            _ = opened.recv();
        });
        begins.recv().unwrap();
        let step = || rt.process_details(blocks.pid()).unwrap().step.expect("the step is blocked");
        let since = loop {
            if let Some(since) = step().blocked_since {
                break since;
            }
            thread::yield_now();
        };
        assert!(before <= since && since <= rt.now(), "{before:?}, {since:?}");
        assert_eq!((step().worker, step().blocked_since), (0, Some(since)));
        let explained = rt.explain().findings.into_iter().find_map(|finding| match finding {
            Finding::BlockedWorker { worker: 0, since, process: Some(row), .. } => Some((row.pid, since)),
            _ => None,
        });
        assert_eq!(explained, Some((blocks.pid(), since)));
        drop(gate);
        rt.block_on(blocks).unwrap();
    });
}

/// 9.2b: the details are `None` for a mailbox without a process, for a pid of another runtime and for an exited
/// process.
#[test]
fn only_a_live_process_of_the_runtime_has_details() {
    let (rt, other) = (lone(), lone());
    let (address, _mailbox) = rt.mailbox::<u8>();
    let process = other.spawn(idle);
    assert_eq!((rt.process_details(address.pid()), rt.process_details(process.pid())), (None, None));
    assert!(rt.processes(&ProcessQuery::new()).is_empty());
    assert!(other.process_details(process.pid()).is_some());
    other.kill(process.pid()).unwrap();
    settle(&other);
    assert_eq!(other.process_details(process.pid()), None);
}

/// 9.2a: each filter of a query selects the processes that satisfy its condition.
#[test]
fn each_filter_selects_the_matching_processes() {
    let rt = lone();
    let named = rt.process().name("cache of users").spawn(idle).unwrap();
    let idles: Vec<Pid> = (0..3).map(|_| rt.spawn(idle).pid()).chain([named.pid()]).collect();
    let fulls: Vec<_> = (0..4).map(|_| rt.spawn(deaf)).collect();
    settle(&rt);
    for (number, full) in fulls.iter().enumerate() {
        (0..number).for_each(|_| full.send(0).unwrap());
    }
    let fulls: Vec<Pid> = fulls.iter().map(|process| process.pid()).collect();
    let woken = rt.spawn(puppet).pid();
    let pids = |query: ProcessQuery| rt.processes(&query).iter().map(|row| row.pid).collect::<Vec<_>>();
    let sorted = |pids: &[Pid]| {
        let mut pids = pids.to_vec();
        pids.sort_unstable();
        pids
    };
    let all = || ProcessQuery::new();
    assert_eq!(pids(all()), sorted(&[&idles[..], &fulls, &[woken]].concat()));
    assert_eq!(pids(all().type_contains("inspection::idle")), sorted(&idles));
    assert_eq!(pids(all().type_contains("deaf")), sorted(&fulls));
    assert_eq!(pids(all().name_contains("of users")), [named.pid()]);
    assert_eq!(pids(all().name_contains("of caches")), []);
    assert_eq!(pids(all().min_mailbox_len(2)), sorted(&fulls[2..]));
    assert_eq!(pids(all().state(Ready)), [woken]);
    assert_eq!(pids(all().state(Idle).type_contains("idle").limit(2)), sorted(&idles)[..2]);
    named_by_the_second_name(&rt);
}

fn named_by_the_second_name(rt: &Runtime) {
    let puppet = rt.spawn(puppet);
    puppet
        .send(Act(Box::new(|ctx, _| {
            ctx.register("first").unwrap();
            ctx.register("further").unwrap();
        })))
        .unwrap();
    settle(rt);
    let rows = rt.processes(&ProcessQuery::new().name_contains("further"));
    assert_eq!(rows.iter().map(|row| row.name.as_deref()).collect::<Vec<_>>(), [Some("first")]);
}

/// 9.2a: a query can order the rows by any column, ascending or descending. If the query has a limit, the query returns
/// only the first rows of this order.
#[test]
fn a_query_orders_the_rows_by_a_column() {
    let rt = lone();
    let names = ["c", "a", "d", "b"];
    let processes: Vec<_> = names.iter().map(|&name| rt.process().name(name).spawn(deaf).unwrap()).collect();
    settle(&rt);
    for (process, messages) in processes.iter().zip([2, 0, 7, 2]) {
        (0..messages).for_each(|_| process.send(0).unwrap());
    }
    let order = |query: ProcessQuery| {
        rt.processes(&query).into_iter().map(|row| row.name.expect("a name").into_owned()).collect::<String>()
    };
    let query = ProcessQuery::new;
    assert_eq!(order(query()), "cadb");
    assert_eq!(order(query().ascending(ProcessColumn::Pid)), "cadb");
    assert_eq!(order(query().descending(ProcessColumn::Pid)), "bdac");
    assert_eq!(order(query().ascending(ProcessColumn::Name)), "abcd");
    assert_eq!(order(query().ascending(ProcessColumn::MailboxLen)), "acbd");
    assert_eq!(order(query().descending(ProcessColumn::MailboxLen)), "dcba");
    for limit in 0..6 {
        let top = &"dcba"[..limit.min(4)];
        assert_eq!(order(query().descending(ProcessColumn::MailboxLen).limit(limit)), top);
        assert_eq!(order(query().descending(ProcessColumn::MailboxPeak).limit(limit)), top);
    }
    // All rows have the same value in these columns, so the rows are ordered by pid.
    for column in [ProcessColumn::Signals, ProcessColumn::Yields, ProcessColumn::Waits, ProcessColumn::TypeName] {
        assert_eq!(
            (order(query().ascending(column)), order(query().descending(column))),
            ("cadb".into(), "cadb".into())
        );
    }
}

/// 9.2a: a query can order the rows by each column. The query then compares the rows by the field that has the same
/// name as the column.
#[test]
fn each_column_orders_the_rows_by_its_own_field() {
    let scene = Scene::new();
    let plain = scene.host.spawn(idle);
    let top = |column| scene.rt.processes(&ProcessQuery::new().descending(column).limit(1))[0].pid;
    let (me, peer) = (scene.puppet.pid(), plain.pid());
    let (callee, _never_answers) = scene.host.mailbox::<Reply<()>>();
    scene.act(move |ctx, kept| {
        kept.push(Box::new(ctx.perform(Never).start()));
        kept.push(Box::new(ctx.call(&callee, |reply| reply).start()));
        ctx.monitor(peer);
    });
    let columns = [ProcessColumn::Yields, ProcessColumn::Waits, ProcessColumn::Monitors, ProcessColumn::TypeName];
    columns.into_iter().for_each(|column| assert_eq!(top(column), me, "{column:?}"));
    assert_eq!((top(ProcessColumn::MonitoredBy), top(ProcessColumn::State)), (peer, peer));
    scene.act(move |ctx, _| ctx.link(peer).unwrap());
    let high = scene.rt.process().priority(Priority::High).spawn(idle).unwrap();
    settle(&scene.rt);
    assert_eq!(top(ProcessColumn::Priority), high.pid());
    assert_ne!(top(ProcessColumn::Links), high.pid());
    shut_down(scene.rt, HOUR);
}

/// 9.2a: a query can order the rows by the number of signals. The values in other columns, for example the mailbox
/// length, result in a different order.
#[test]
fn a_query_orders_the_rows_by_the_number_of_signals() {
    let rt = lone();
    let [first_target, second_target, lives] = [(); 3].map(|()| rt.spawn(deaf));
    let monitors = |targets: Vec<Pid>| {
        rt.spawn(async move |ctx: Context<u8>| {
            targets.iter().for_each(|&pid| _ = ctx.monitor(pid));
            pending::<()>().await;
        })
    };
    let (one, other) = (first_target.pid(), second_target.pid());
    let processes = [vec![one], vec![lives.pid(); 5], vec![one, other]].map(monitors);
    settle(&rt);
    [one, other].iter().for_each(|&pid| rt.kill(pid).unwrap());
    settle(&rt);
    for (process, messages) in processes.iter().zip([0, 2, 1]) {
        (0..messages).for_each(|_| process.send(0).unwrap());
    }
    let pids = processes.each_ref().map(|process| process.pid());
    let [a, b, c] = pids;
    assert_eq!(pids.map(|pid| row(&rt, pid).signals), [1, 0, 2]);
    let order = |query: ProcessQuery| {
        let rows = rt.processes(&query).into_iter().map(|row| row.pid);
        rows.filter(|pid| pids.contains(pid)).collect::<Vec<_>>()
    };
    let query = ProcessQuery::new;
    assert_eq!(order(query().ascending(ProcessColumn::Signals)), [b, a, c]);
    assert_eq!(order(query().descending(ProcessColumn::Signals)), [c, a, b]);
    assert_eq!(order(query().ascending(ProcessColumn::MailboxLen)), [a, c, b]);
    assert_eq!(order(query().ascending(ProcessColumn::Monitors)), [a, c, b]);
}

/// 9.2a: a query can order the rows by the last worker. A process that has not run comes first. In this test, the last
/// turn of the first process runs on the second thread. The second process runs only on the first thread.
#[test]
fn a_query_orders_the_rows_by_the_last_worker() {
    within(60, || {
        let rt = lone();
        let (first, second) = (rt.spawn(idle), rt.spawn(idle));
        for _ in 0..3 {
            settle(&rt);
            second.send(0).unwrap();
        }
        settle(&rt);
        rt.block_on(async {
            // This poll blocks the first thread, so only the second thread can run the process.
            thread::scope(|scope| {
                scope.spawn(|| {
                    first.send(0).unwrap();
                    settle(&rt);
                });
            });
        });
        let new = rt.spawn(idle);
        let pids = [first.pid(), second.pid(), new.pid()];
        assert_eq!(pids.map(|pid| row(&rt, pid).last_worker), [Some(1), Some(0), None]);
        let order = |query: ProcessQuery| rt.processes(&query).iter().map(|row| row.pid).collect::<Vec<_>>();
        let [a, b, c] = pids;
        assert_eq!(order(ProcessQuery::new().ascending(ProcessColumn::LastWorker)), [c, b, a]);
        assert_eq!(order(ProcessQuery::new().descending(ProcessColumn::LastWorker)), [a, b, c]);
        assert_eq!(order(ProcessQuery::new().ascending(ProcessColumn::Steps)), [c, a, b]);
    });
}

/// 9.2c: while each worker is inside a step that blocks, an inspection still returns. The inspection reports the
/// processes of these steps as running.
#[test]
fn an_inspection_returns_while_all_workers_are_blocked() {
    within(60, || {
        let rt = Runtime::builder().workers(2).max_replacement_threads(0).build().unwrap();
        let (begun, goes_on) = (Arc::new(Barrier::new(3)), Arc::new(Barrier::new(3)));
        let blocked: Vec<_> = (0..2)
            .map(|_| {
                let (begun, goes_on) = (Arc::clone(&begun), Arc::clone(&goes_on));
                rt.spawn(async move |_: Context| {
                    begun.wait();
                    goes_on.wait();
                })
            })
            .collect();
        begun.wait();
        let running = rt.processes(&ProcessQuery::new().state(Running));
        assert_eq!(running.len(), 2);
        for process in &blocked {
            assert!(rt.process_details(process.pid()).unwrap().waits_for.is_empty());
        }
        goes_on.wait();
        blocked.into_iter().for_each(|process| rt.block_on(process).unwrap());
    });
}

/// 9.2c: one thread lists and inspects the processes in a loop. During this loop, two workers run short processes with
/// names, groups, links and timers. These processes exit or are killed. Each row is plausible. A process that lives
/// during the whole test is in each list exactly once.
#[test]
fn inspection_is_safe_while_processes_start_and_exit() {
    const ROUNDS: usize = 2_000;
    within(120, || {
        let rt = two();
        let stays = rt.process().name("stays").spawn(deaf).unwrap();
        let (over, walks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let inspector = {
            let (host, over, walks, stays) = (rt.host().clone(), Arc::clone(&over), Arc::clone(&walks), stays.pid());
            thread::spawn(move || {
                while !over.load(SeqCst) {
                    let rows = host.processes(&ProcessQuery::new());
                    assert!(rows.is_sorted_by(|one, other| one.pid < other.pid), "no process is listed twice");
                    assert_eq!(rows.iter().filter(|row| row.pid == stays).count(), 1);
                    assert!(rows.iter().all(|row| row.links <= 1 && row.mailbox_len <= 1));
                    let top = host.processes(&ProcessQuery::new().descending(ProcessColumn::Links).limit(3));
                    assert!(top.len() <= 3 && !top.is_empty());
                    for row in top {
                        let details = host.process_details(row.pid);
                        assert!(details.is_none_or(|details| details.info.type_name == row.type_name));
                    }
                    walks.fetch_add(1, SeqCst);
                }
            })
        };
        let driver = rt.spawn(async move |ctx: Context| {
            for round in 0..ROUNDS {
                let name = format!("name {round}");
                let named = ctx.host().process().name(name).value(Arc::new(round)).spawn(idle).unwrap();
                named.send(1).unwrap();
                ctx.host().kill(named.pid()).unwrap();
                let pair = ctx.spawn(async |ctx: Context<u8>| {
                    let child = ctx.spawn_link(async |_: Context<u8>| {});
                    ctx.join_group("churn");
                    ctx.send_after(HOUR, &ctx.address(), 1);
                    _ = child.await;
                });
                pair.await?;
                assert!(named.await.is_err());
            }
            Ok::<_, Exit>(())
        });
        rt.block_on(driver).unwrap();
        while walks.load(SeqCst) < 3 {
            thread::yield_now();
        }
        over.store(true, SeqCst);
        inspector.join().unwrap();
        let rows = rt.processes(&ProcessQuery::new());
        assert_eq!(rows.iter().map(|row| row.pid).collect::<Vec<_>>(), [stays.pid()]);
    });
}

/// 9.2a, 9.2b: the host of a simulation can inspect the processes of the simulation. With the same seed, the results
/// are the same.
#[test]
fn the_host_of_a_simulation_can_inspect_its_processes() {
    let look = |seed| {
        let mut simulation = Simulation::new(seed);
        let host = simulation.host().clone();
        simulation.run(async {
            let sleeps = host.spawn(async |ctx: Context| ctx.sleep(HOUR).await);
            let full = host.process().name("full").spawn(deaf).unwrap();
            (0..3).for_each(|_| full.send(0).unwrap());
            host.sleep(Duration::from_secs(1)).await;
            let details = host.process_details(sleeps.pid()).unwrap();
            assert_eq!(bare(&details.waits_for), [some_sleeps(1)]);
            let rows = host.processes(&ProcessQuery::new().descending(ProcessColumn::MailboxLen));
            assert_eq!(
                rows[0].to_string(),
                format!("{} \"full\" it::inspection::deaf: Idle, mailbox 3 (peak 3)", full.pid())
            );
            host.kill(full.pid()).unwrap();
            rows.iter().map(ToString::to_string).collect::<Vec<_>>()
        })
    };
    assert_eq!((look(1).len(), look(1)), (2, look(1)));
}

/// 9.2a: with the feature `serde`, a row is serialized as a struct of its fields.
#[cfg(feature = "serde")]
#[test]
fn a_row_is_serialized_as_a_struct() {
    use serde_test::{Configure, Token, assert_ser_tokens};

    let mut sim = Simulation::new(1);
    let begin = sim.now();
    sim.run(sim.host().spawn(async |ctx: Context| ctx.sleep(HOUR).await)).unwrap();
    let process = sim.host().process().name("one").priority(Priority::Low).spawn(deaf).unwrap();
    sim.run(sim.host().spawn(async |ctx: Context| ctx.sleep(HOUR).await)).unwrap();
    process.send(1).unwrap();
    let pid = Box::leak(process.pid().to_string().into_boxed_str());
    let number = |name, value| [Token::Str(name), Token::U64(value)];
    let mut tokens = vec![
        Token::Struct { name: "ProcessInfo", len: 21 },
        Token::Str("pid"),
        Token::Str(pid),
        Token::Str("name"),
        Token::Some,
        Token::Str("one"),
        Token::Str("type_name"),
        Token::Str("it::inspection::deaf"),
        Token::Str("parent"),
        Token::None,
        Token::Str("state"),
        Token::Some,
        Token::Str("Idle"),
        Token::Str("waiting_since_ns"),
        Token::Some,
        Token::U64(HOUR.as_nanos() as u64),
        Token::Str("priority"),
        Token::Str("Low"),
    ];
    tokens.extend(number("mailbox_len", 1));
    tokens.extend(number("signals", 0));
    tokens.extend(number("mailbox_peak", 1));
    // If the runtime measures the time of a message, the runtime stores the message in the queue of the mailbox. The
    // runtime also records the arrival time of the message. If the runtime does not measure the time, the message is
    // stored in the mailbox slot.
    tokens.push(Token::Str("unread_since_ns"));
    match row(sim.host(), process.pid()).unread_since {
        Some(since) => tokens.extend([Token::Some, Token::U64((since - begin).as_nanos() as u64)]),
        None => tokens.push(Token::None),
    }
    ["yields", "waits", "links", "monitors", "monitored_by"].iter().for_each(|name| tokens.extend(number(name, 0)));
    tokens.extend(number("steps", 1));
    tokens.extend([Token::Str("last_worker"), Token::Some, Token::U64(0)]);
    tokens.extend([Token::Str("checks_yield"), Token::Bool(false)]);
    let flags = [Token::Str("is_cancelled"), Token::Bool(false), Token::Str("is_killed"), Token::Bool(false)];
    tokens.extend(flags.into_iter().chain([Token::StructEnd]));
    assert_ser_tokens(&row(sim.host(), process.pid()).readable(), &tokens);
}

/// 4.7j, 9.2b: the memory of a process includes the queue of a mailbox with a capacity. After a burst, the mailbox
/// frees this queue.
#[test]
fn the_memory_of_a_process_includes_the_queue_of_a_bounded_mailbox() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let body = async |mut ctx: Context<u64>| {
        for _ in 0..10_000 {
            ctx.receive().await?;
        }
        pending::<Result<(), Exit>>().await
    };
    let process = rt.process().mailbox_capacity(MailboxCapacity::Reject(10_000)).spawn(body).unwrap();
    let memory = || rt.process_details(process.pid()).expect("it lives").memory;
    for number in 0..10_000 {
        process.send(number).unwrap();
    }
    assert!(memory() >= 10_000 * size_of::<u64>(), "{} bytes", memory());
    while rt.process_details(process.pid()).expect("it lives").info.mailbox_len != 0 {
        rt.block_on(rt.spawn(async |ctx: Context| ctx.yield_now().await)).unwrap();
    }
    assert!(memory() < 10_000, "{} bytes", memory());
}

/// 4.7j, 9.2b: after a burst of messages, the memory of a mailbox with a capacity is freed. The memory is also freed if
/// a hand-written process or `receive_where` reads the burst, and after a burst of urgent messages.
#[test]
fn each_way_to_read_a_bounded_mailbox_frees_its_memory() {
    const MESSAGES: u64 = 10_000;
    struct Reads;
    impl Process for Reads {
        type Message = u64;
        type Output = ();
        fn step(&mut self, events: Events<'_, u64>, _: &mut StepOutput<'_, u64>) -> Result<Next<()>, Exit> {
            events.for_each(drop);
            Ok(Next::Wait)
        }
    }
    let rt = Runtime::builder().workers(0).build().unwrap();
    let check = |what: &str, address: &Address<u64>| {
        let pid = address.pid();
        let memory = || rt.process_details(pid).expect("it lives").memory;
        let settle = || {
            while rt.process_details(pid).expect("it lives").info.mailbox_len != 0 {
                rt.block_on(step_aside());
            }
            rt.block_on(step_aside());
        };
        // After a burst, a hand-written process does not free its buffer until its next step.
        let is_small = |kind: &str| {
            address.send(0).unwrap();
            settle();
            assert!(memory() < 10_000, "{what}, {kind}: {} bytes", memory());
        };
        (0..MESSAGES).for_each(|number| address.send(number).unwrap());
        assert!(memory() >= 10_000 * size_of::<u64>(), "{what}: {} bytes", memory());
        settle();
        is_small("normal");
        (0..MESSAGES).for_each(|number| address.send_urgent(number).unwrap());
        settle();
        is_small("urgent");
    };
    let capacity = MailboxCapacity::Reject(MESSAGES as usize);
    check("hand-written", &rt.process().mailbox_capacity(capacity).spawn_process(Reads).unwrap().address());
    let selective = async |mut ctx: Context<u64>| -> Result<(), Exit> {
        loop {
            ctx.receive_where(Ok::<u64, u64>).await?;
        }
    };
    check("receive_where", &rt.process().mailbox_capacity(capacity).spawn(selective).unwrap().address());
}

//! Section 5 of the specification: the states of processes and workers that an observer receives.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use procession::observe::ProcessState::{Blocked, Complete, Idle, Ready, Running};
use procession::observe::*;
use procession::*;

use crate::{shut_down, step_aside, within};

/// Every allowed transition of a process that is never suspended.
const TRANSITIONS: [(Option<ProcessState>, ProcessState); 8] = [
    (None, Ready),
    (Some(Ready), Running),
    (Some(Running), Ready),
    (Some(Running), Blocked),
    (Some(Running), Idle),
    (Some(Running), Complete),
    (Some(Blocked), Ready),
    (Some(Idle), Ready),
];

/// An observer that records every observed event.
#[derive(Clone, Default)]
struct Log(Arc<Heard>);

#[derive(Default)]
struct Heard {
    processes: Mutex<HashMap<Pid, Vec<Transition>>>,
    workers: Mutex<HashMap<usize, Vec<WorkerState>>>,
    panics: Mutex<Vec<Pid>>,
}

impl Observer for Log {
    fn transition(&self, t: &Transition) {
        self.0.processes.lock().unwrap().entry(t.pid).or_default().push(*t);
    }

    fn worker(&self, worker: usize, state: WorkerState, _: Instant) {
        self.0.workers.lock().unwrap().entry(worker).or_default().push(state);
    }

    fn panicked(&self, pid: Pid, _: &str) {
        self.0.panics.lock().unwrap().push(pid);
    }
}

impl Log {
    /// Returns all states that a process has had so far.
    fn of(&self, pid: Pid) -> Vec<ProcessState> {
        self.0.processes.lock().unwrap().get(&pid).map_or(Vec::new(), |all| all.iter().map(|t| t.to).collect())
    }

    /// Returns the states that a process has had since the previous call. The first state in the result is the last
    /// state that the previous call returned.
    fn news(&self, pid: Pid) -> Vec<ProcessState> {
        let mut processes = self.0.processes.lock().unwrap();
        let all = processes.entry(pid).or_default();
        let news = all.iter().map(|t| t.to).collect();
        all.drain(..all.len().saturating_sub(1));
        if let [last] = &mut all[..] {
            assert_ne!(last.from, Some(last.to));
        }
        news
    }

    /// Checks every transition. The transition must be in the diagram, and must begin in the state in which the
    /// previous transition ended. The time of the transition must not be earlier than the time of the previous
    /// transition.
    fn check(&self) {
        let processes = self.0.processes.lock().unwrap();
        for (pid, all) in &*processes {
            let mut before: Option<&Transition> = None;
            for t in all {
                assert_eq!(t.from, before.map(|t| t.to), "{pid}: {all:#?}");
                assert!(TRANSITIONS.contains(&(t.from, t.to)), "{pid}: {t:?}");
                assert!(before.is_none_or(|before| before.at <= t.at), "{pid}: {all:#?}");
                before = Some(t);
            }
        }
        for (worker, states) in &*self.0.workers.lock().unwrap() {
            assert!(states.windows(2).all(|two| two[0] != two[1]), "{worker}: {states:?}");
        }
    }
}

/// Command whose completion the handler stores. The test answers this command later.
struct Later;
impl Command for Later {
    type Reply = ();
}

/// Command that is answered immediately.
struct Now;
impl Command for Now {
    type Reply = ();
}

/// Returns a runtime without workers, the log of its observer, and the completions that its handler stores.
fn watched() -> (Runtime, Log, Arc<Mutex<Vec<Completion<()>>>>) {
    let (log, shelf) = (Log::default(), Arc::new(Mutex::new(Vec::new())));
    let left = shelf.clone();
    let rt = Runtime::builder()
        .workers(0)
        .observer(log.clone())
        .handle(|_: Now| ())
        .handler(move |_: Later, completion| left.lock().unwrap().push(completion))
        .build()
        .unwrap();
    (rt, log, shelf)
}

/// Runs all runnable processes of a runtime without workers.
fn settle(rt: &Runtime) {
    for _ in 0..10 {
        rt.block_on(step_aside());
    }
}

/// 5.1a: while a command, a call or a sleep of a body is outstanding, the body is `Blocked`. A waiting body without an
/// outstanding command, call or sleep is `Idle`. Any event makes the body `Ready`.
#[test]
fn a_body_with_an_outstanding_operation_is_blocked() {
    let (rt, log, shelf) = watched();
    let (outside, mut asked) = rt.mailbox::<Reply<()>>();
    let (wake, foreign) = futures::channel::oneshot::channel::<()>();
    let body = rt.spawn(async move |mut ctx: Context<u8>| {
        ctx.receive().await?;
        ctx.perform(Later).await?;
        ctx.call(&outside, |reply| reply).await?;
        ctx.sleep(Duration::from_millis(1)).await;
        // A message arrives while a command is outstanding. The body is `Blocked` before and after this message.
        let mut later = ctx.perform(Later);
        let first = futures::future::select(ctx.receive(), &mut later).await;
        assert!(matches!(first, futures::future::Either::Left((Ok(2), _))));
        later.await?;
        // A foreign future does not count as outstanding, so the body is `Idle`.
        foreign.await.map_err(Exit::failed)?;
        ctx.perform(Now).await?;
        ctx.yield_now().await;
        Ok::<_, Exit>(())
    });
    let pid = body.pid();
    assert_eq!(log.news(pid), [Ready]);
    settle(&rt);
    assert_eq!(log.news(pid), [Ready, Running, Idle]);
    body.send(1).unwrap();
    assert_eq!(log.news(pid), [Idle, Ready]);
    settle(&rt);
    assert_eq!(log.news(pid), [Ready, Running, Blocked]);
    shelf.lock().unwrap().remove(0).complete(());
    settle(&rt);
    assert_eq!(log.news(pid), [Blocked, Ready, Running, Blocked], "a call");
    rt.block_on(asked.receive()).unwrap().send(());
    settle(&rt);
    let mut napping = log.news(pid);
    // The sleep of the process may still be in progress. Therefore the test continues to run the processes until it has
    // observed all seven states.
    while napping.len() < 7 {
        settle(&rt);
        let more = log.news(pid);
        napping.extend(more.into_iter().skip(1));
    }
    assert_eq!(napping, [Blocked, Ready, Running, Blocked, Ready, Running, Blocked]);
    body.send(2).unwrap();
    settle(&rt);
    assert_eq!(log.news(pid), [Blocked, Ready, Running, Blocked]);
    shelf.lock().unwrap().remove(0).complete(());
    settle(&rt);
    assert_eq!(log.news(pid), [Blocked, Ready, Running, Idle], "a foreign future");
    wake.send(()).unwrap();
    rt.block_on(body).unwrap();
    assert_eq!(log.news(pid), [Idle, Ready, Running, Ready, Running, Complete], "no state for an answer at once");
}

/// 5.1a: a hand-written process has the same states as a body. Commands, calls and sleeps count as outstanding, but
/// messages do not.
#[test]
fn a_hand_written_process_with_an_outstanding_operation_is_blocked() {
    struct Steps {
        outside: Address<Reply<()>>,
        waiting: bool,
    }
    enum Do {
        Nothing,
        Perform,
        Call,
        Sleep,
        Again,
        Stop,
    }
    impl Process for Steps {
        type Message = Do;
        type Output = ();
        fn step(&mut self, events: Events<'_, Do>, out: &mut StepOutput<'_, Do>) -> Result<Next<()>, Exit> {
            for event in events {
                match event {
                    Event::Message(Do::Perform) => drop(out.perform(Later)),
                    Event::Message(Do::Call) => drop(out.call(&self.outside, |reply| reply)),
                    Event::Message(Do::Sleep) => drop(out.sleep(Duration::from_millis(1))),
                    Event::Message(Do::Again) if !self.waiting => {
                        self.waiting = true;
                        return Ok(Next::Again);
                    }
                    Event::Message(Do::Stop) => return Ok(Next::Done(())),
                    Event::Message(Do::Nothing | Do::Again) => {}
                    Event::Completed(done) => drop(done.into_result()?),
                    _ => {}
                }
            }
            Ok(Next::Wait)
        }
    }
    let (rt, log, shelf) = watched();
    let (outside, mut asked) = rt.mailbox();
    let steps = rt.spawn_process(Steps { outside, waiting: false });
    let pid = steps.pid();
    let send = |message| {
        steps.send(message).unwrap();
        settle(&rt);
        log.news(pid)
    };
    assert_eq!(log.news(pid), [Ready]);
    settle(&rt);
    assert_eq!(log.news(pid), [Ready, Running, Idle]);
    assert_eq!(send(Do::Nothing), [Idle, Ready, Running, Idle]);
    assert_eq!(send(Do::Perform), [Idle, Ready, Running, Blocked]);
    assert_eq!(send(Do::Nothing), [Blocked, Ready, Running, Blocked]);
    assert_eq!(send(Do::Call), [Blocked, Ready, Running, Blocked]);
    shelf.lock().unwrap().remove(0).complete(());
    settle(&rt);
    assert_eq!(log.news(pid), [Blocked, Ready, Running, Blocked], "the call is outstanding");
    rt.block_on(asked.receive()).unwrap().send(());
    settle(&rt);
    assert_eq!(log.news(pid), [Blocked, Ready, Running, Idle]);
    steps.send(Do::Sleep).unwrap();
    while log.of(pid).last() != Some(&Idle) || log.of(pid).len() < 7 {
        settle(&rt);
    }
    assert_eq!(log.news(pid), [Idle, Ready, Running, Blocked, Ready, Running, Idle]);
    assert_eq!(send(Do::Again), [Idle, Ready, Running, Ready, Running, Idle]);
    assert_eq!(send(Do::Stop), [Idle, Ready, Running, Complete]);
}

/// 5.1a: a body is `Blocked` while it waits for a call that it made through an address or through its context. If a
/// body starts a call and another task awaits this call, the body is not `Blocked`.
#[test]
fn a_body_that_calls_through_an_address_is_blocked() {
    let (rt, log, _shelf) = watched();
    let (outside, mut asked) = rt.mailbox();
    let (carried, carries) = futures::channel::oneshot::channel();
    let body = rt.spawn(async move |mut ctx: Context<()>| {
        let first: u32 = outside.call(|reply| reply).await?;
        assert!(carried.send(outside.call(|reply| reply).start()).is_ok(), "it is taken outside");
        ctx.receive().await?;
        Ok::<_, BoxError>(first)
    });
    let pid = body.pid();
    settle(&rt);
    assert_eq!(log.news(pid), [Ready, Running, Blocked]);
    rt.block_on(asked.receive()).unwrap().send(7);
    settle(&rt);
    assert_eq!(log.news(pid), [Blocked, Ready, Running, Idle], "the other call is somebody else's");
    rt.block_on(asked.receive()).unwrap().send(8);
    assert_eq!(rt.block_on(async { carries.await.unwrap().await }).unwrap(), 8);
    body.send(()).unwrap();
    assert_eq!(rt.block_on(body).unwrap(), 7);
    assert_eq!(log.news(pid), [Idle, Ready, Running, Complete]);
}

/// 5.1a: the handler of a command makes a call. This call does not count as outstanding for the process that performed
/// the command.
#[test]
fn a_call_by_a_handler_does_not_block_the_process() {
    let log = Log::default();
    let (address, kept) = (Arc::new(Mutex::new(None::<Address<Reply<u32>>>)), Arc::new(Mutex::new(Vec::new())));
    let (to, keeps) = (address.clone(), kept.clone());
    let rt = Runtime::builder()
        .workers(0)
        .observer(log.clone())
        .handler(move |_: Later, completion: Completion<()>| {
            let to = to.lock().unwrap().clone().expect("it was set before");
            keeps.lock().unwrap().push(to.call(|reply| reply).start());
            completion.complete(());
        })
        .build()
        .unwrap();
    let (outside, mut asked) = rt.mailbox();
    *address.lock().unwrap() = Some(outside);
    let body = rt.spawn(async |mut ctx: Context<()>| {
        ctx.perform(Later).await?;
        ctx.receive().await?;
        Ok::<_, BoxError>(())
    });
    settle(&rt);
    assert_eq!(log.of(body.pid()), [Ready, Running, Idle]);
    rt.block_on(asked.receive()).unwrap().send(3);
    let call = kept.lock().unwrap().pop().unwrap();
    assert_eq!(rt.block_on(call).unwrap(), 3);
    body.send(()).unwrap();
    rt.block_on(body).unwrap();
    // The handler holds an address, and the address keeps its runtime alive.
    *address.lock().unwrap() = None;
}

/// 5.1a: a process may exit from any state. Before the exit, the process always becomes `Running`.
#[test]
fn every_process_becomes_running_before_its_exit() {
    let (rt, log, shelf) = watched();
    let killed = rt.spawn(async |mut ctx: Context<()>| ctx.receive().await);
    let blocked = rt.spawn(async |ctx: Context<()>| ctx.perform(Later).await);
    let cancelled = rt.spawn(async |mut ctx: Context<()>| ctx.receive().await);
    let panics = rt.spawn(async |_: Context| -> Result<(), Exit> { std::panic::resume_unwind(Box::new("as told")) });
    settle(&rt);
    let fresh = rt.spawn(async |_: Context| {});
    fresh.abort();
    killed.abort();
    blocked.abort();
    rt.cancel(cancelled.pid(), "enough", Duration::ZERO).unwrap();
    settle(&rt);
    assert_eq!(log.of(killed.pid()), [Ready, Running, Idle, Ready, Running, Complete]);
    assert_eq!(log.of(blocked.pid()), [Ready, Running, Blocked, Ready, Running, Complete]);
    assert_eq!(log.of(cancelled.pid()), [Ready, Running, Idle, Ready, Running, Complete]);
    assert_eq!(log.of(panics.pid()), [Ready, Running, Complete]);
    assert_eq!(log.of(fresh.pid()), [Ready, Running, Complete]);
    assert_eq!(*log.0.panics.lock().unwrap(), [panics.pid()]);
    log.check();
    shelf.lock().unwrap().clear();
}

/// 5.2a: a mailbox that belongs to no process has no state. An observer receives nothing about this mailbox.
#[test]
fn a_mailbox_outside_the_processes_has_no_states() {
    let (rt, log, _) = watched();
    let (address, mailbox) = rt.mailbox::<()>();
    address.send(()).unwrap();
    drop(mailbox);
    drop(rt.dead_letters());
    let (killed, _mailbox) = rt.mailbox::<()>();
    rt.kill(killed.pid()).unwrap();
    assert_eq!(log.of(address.pid()), []);
    assert!(log.0.processes.lock().unwrap().is_empty());
}

/// 5.1a, 5.2a: at random, processes are killed and cancelled, and messages are sent to them. Every transition of every
/// process is in the diagram, and the observer receives the transitions in order.
#[test]
fn only_transitions_of_the_diagram_are_observed() {
    for (seed, workers) in [(1, 2), (2, 3), (3, 4), (4, 2)] {
        within(120, move || {
            let log = Log::default();
            let (answer, answers) = mpsc::channel::<Completion<()>>();
            let answer = Mutex::new(answer);
            let answerer = thread::spawn(move || answers.into_iter().for_each(|completion| completion.complete(())));
            let rt = Runtime::builder()
                .workers(workers)
                .seed(seed)
                .shuffle(seed % 2 == 0)
                .observer(log.clone())
                .handle(|_: Now| ())
                .handler(move |_: Later, completion| drop(answer.lock().unwrap().send(completion)))
                .build()
                .unwrap();
            let count = if cfg!(debug_assertions) { 400 } else { 3000 };
            let pids: Arc<Mutex<Vec<Pid>>> = Arc::default();
            let handles: Vec<_> = (0..count)
                .map(|_| {
                    let known = pids.clone();
                    let handle = rt.spawn(async move |ctx: Context<u64>| live(ctx, known).await);
                    pids.lock().unwrap().push(handle.pid());
                    handle
                })
                .collect();
            let over = Arc::new(AtomicBool::new(false));
            let (host, targets, stop) = (rt.host().clone(), pids.clone(), over.clone());
            let meddler = thread::spawn(move || {
                let mut n = seed;
                while !stop.load(Ordering::SeqCst) {
                    n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let pid = {
                        let all = targets.lock().unwrap();
                        all[(n >> 33) as usize % all.len()]
                    };
                    match n >> 60 {
                        0 => drop(host.kill(pid)),
                        1 => drop(host.cancel(pid, "enough", Duration::from_micros(200))),
                        _ => drop(host.send(pid, n)),
                    }
                    thread::yield_now();
                }
            });
            for handle in handles {
                let _ = block_on(handle);
            }
            over.store(true, Ordering::SeqCst);
            meddler.join().unwrap();
            let spawned = rt.counters().spawned;
            assert_eq!(shut_down(rt, Duration::from_secs(30)).left, []);
            answerer.join().unwrap();
            log.check();
            let processes = log.0.processes.lock().unwrap();
            assert_eq!(processes.len() as u64, spawned);
            assert!(processes.values().flatten().all(|t| t.to != Running || t.worker.is_some()));
            let seen: HashSet<_> = processes.values().flatten().map(|t| (t.from, t.to)).collect();
            assert_eq!(seen.len(), TRANSITIONS.len(), "all of them: {seen:?}");
            for all in processes.values() {
                assert_eq!(all.last().map(|t| t.to), Some(Complete));
                assert_eq!(all.iter().filter(|t| t.to == Complete).count(), 1);
            }
        });
    }

    /// Performs ten random actions.
    async fn live(mut ctx: Context<u64>, known: Arc<Mutex<Vec<Pid>>>) -> Result<(), Exit> {
        for _ in 0..10 {
            match ctx.random() % 16 {
                0..3 => ctx.perform(Now).await?,
                3..6 => ctx.perform(Later).await?,
                6 | 7 => ctx.sleep(Duration::from_micros(ctx.random() % 500)).await,
                8 => {
                    let limit = Duration::from_micros(300);
                    let _ = ctx.timeout(limit, ctx.perform(Later)).await;
                }
                9 => drop(ctx.timeout(Duration::from_micros(300), std::future::pending::<()>()).await),
                10..13 => {
                    let to = {
                        let all = known.lock().unwrap();
                        all[ctx.random() as usize % all.len()]
                    };
                    let _ = ctx.send(to, 1_u64);
                }
                13 => {
                    let child = ctx.spawn(async |mut ctx: Context<Reply<()>>| {
                        ctx.receive().await?.send(());
                        ctx.receive().await.map(drop)
                    });
                    child.call(|reply| reply).await?;
                    if ctx.random().is_multiple_of(2) {
                        child.abort();
                    }
                }
                14 if ctx.random().is_multiple_of(8) => std::panic::resume_unwind(Box::new("as told")),
                14 => while ctx.try_receive().is_some() {},
                _ => ctx.yield_now().await,
            }
            if let Some(Err(exit)) = futures::FutureExt::now_or_never(ctx.receive()) {
                return Err(exit);
            }
        }
        Ok(())
    }
}

/// 5.2a: a transition names the worker on which it happens. If a transition happens outside the workers, the transition
/// names no worker.
#[test]
fn a_transition_names_the_worker_on_which_it_happens() {
    within(60, || {
        let log = Log::default();
        let rt = crate::alone().observer(log.clone()).build().unwrap();
        let body = rt.spawn(async |mut ctx: Context<()>| {
            ctx.receive().await?;
            ctx.yield_now().await;
            Ok::<_, Exit>(())
        });
        let pid = body.pid();
        while log.of(pid).last() != Some(&Idle) {
            thread::yield_now();
        }
        // The process becomes `Idle` shortly before its turn ends. If a message arrived between these two moments, the
        // worker would queue the process. Therefore the test waits until the only worker has run another process: then
        // the turn of the first process has ended.
        block_on(rt.spawn(async |_: Context| {})).unwrap();
        body.send(()).unwrap();
        block_on(body).unwrap();
        let workers: Vec<_> = log.0.processes.lock().unwrap()[&pid].iter().map(|t| (t.to, t.worker)).collect();
        let here = Some(0);
        let expected = [(Ready, None), (Running, here), (Idle, here), (Ready, None), (Running, here)];
        assert_eq!(workers[..5], expected);
        assert_eq!(workers[5..], [(Ready, here), (Running, here), (Complete, here)]);
    });
}

/// 4.5a, 5.2c: workers run, search and park. An observer receives each of these three states.
#[test]
fn an_observer_sees_each_state_of_a_worker() {
    within(60, || {
        let log = Log::default();
        let rt = Runtime::builder().workers(2).observer(log.clone()).build().unwrap();
        let all = [WorkerState::Running, WorkerState::Searching, WorkerState::Parked];
        let seen = |worker| {
            let workers = log.0.workers.lock().unwrap();
            let seen: &[WorkerState] = workers.get(&worker).map_or(&[], |seen| seen);
            all.iter().all(|state| seen.contains(state))
        };
        // In each round, each of the two workers gets a process. The worker that finishes first searches for another
        // process, and then parks until the next round.
        while !(seen(0) && seen(1)) {
            let together = Arc::new(std::sync::Barrier::new(2));
            let pair = [(); 2].map(|()| {
                let together = together.clone();
                rt.spawn(async move |_: Context| {
                    together.wait();
                })
            });
            pair.into_iter().for_each(|one| block_on(one).unwrap());
            thread::yield_now();
        }
        drop(rt);
        log.check();
    });
}

/// 5.2c: the step of a worker returns while the monitor reports that the step is long. The worker reports its next
/// state only after this report. The observer waits for at most 200 ms inside the report of the monitor. If the worker
/// reports its next state during this wait, the report comes too early, and the test fails.
#[test]
fn the_next_state_of_a_worker_comes_after_the_report_of_its_long_step() {
    struct EndsTheStep {
        end_step: Mutex<mpsc::Sender<()>>,
        reports: Mutex<HashMap<usize, Vec<WorkerState>>>,
        has_reported: Condvar,
    }

    impl Observer for EndsTheStep {
        fn worker(&self, worker: usize, state: WorkerState, _: Instant) {
            let mut reports = self.reports.lock().unwrap();
            if state == WorkerState::Blocked {
                let before = reports[&worker].len();
                let _ = self.end_step.lock().unwrap().send(());
                let limit = Duration::from_millis(200);
                let is_quiet = |reports: &mut HashMap<usize, Vec<WorkerState>>| reports[&worker].len() == before;
                reports = self.has_reported.wait_timeout_while(reports, limit, is_quiet).unwrap().0;
            }
            reports.entry(worker).or_default().push(state);
            self.has_reported.notify_all();
        }
    }

    within(60, || {
        let (end_step, step_ends) = mpsc::channel();
        let (end_step, reports, has_reported) = (Mutex::new(end_step), Mutex::default(), Condvar::new());
        let observer = Arc::new(EndsTheStep { end_step, reports, has_reported });
        let rt = Runtime::builder().workers(1).observer(observer.clone()).build().unwrap();
        block_on(rt.spawn(async move |_: Context| step_ends.recv().unwrap())).unwrap();
        assert_eq!(shut_down(rt, Duration::from_secs(30)).left, []);
        let reports = observer.reports.lock().unwrap();
        let long: Vec<_> = reports.values().filter(|states| states.contains(&WorkerState::Blocked)).collect();
        let [states] = long[..] else { panic!("one worker had a long step: {reports:?}") };
        let blocked = states.iter().position(|state| *state == WorkerState::Blocked).unwrap();
        assert_eq!(states[blocked - 1], WorkerState::Running, "{states:?}");
        assert_ne!(states[blocked + 1], WorkerState::Blocked, "{states:?}");
    });
}

/// 5.2a: an observer that panics affects no process.
#[test]
fn a_panic_in_an_observer_affects_no_process() {
    struct Panics;
    impl Observer for Panics {
        fn transition(&self, _: &Transition) {
            std::panic::resume_unwind(Box::new("as told"));
        }
        fn worker(&self, _: usize, _: WorkerState, _: Instant) {
            std::panic::resume_unwind(Box::new("as told"));
        }
        fn panicked(&self, _: Pid, _: &str) {
            std::panic::resume_unwind(Box::new("as told"));
        }
    }
    within(60, || {
        let rt = Runtime::builder().workers(2).observer(Panics).build().unwrap();
        let panics = rt.spawn(async |_: Context| -> Result<(), Exit> { std::panic::resume_unwind(Box::new("too")) });
        assert!(matches!(block_on(panics), Err(Exit::Panicked(_))));
        for n in 0..100_u64 {
            let one = rt.spawn(async move |ctx: Context| {
                ctx.yield_now().await;
                Ok::<_, Exit>(n)
            });
            assert_eq!(block_on(one).unwrap(), n);
        }
    });
}

/// 5.2a: the last state of every process is `Complete`, even if the process is alive when its runtime is dropped.
#[test]
fn every_process_has_exited_after_the_drop_of_its_runtime() {
    within(60, || {
        for workers in [0, 2] {
            let log = Log::default();
            let rt = Runtime::builder().workers(workers).observer(log.clone()).build().unwrap();
            for n in 0..100_u64 {
                let _ = rt.spawn(async move |mut ctx: Context<()>| match n % 4 {
                    0 => ctx.receive().await,
                    1 => {
                        ctx.sleep(Duration::MAX).await;
                        Ok(())
                    }
                    2 => loop {
                        ctx.yield_now().await;
                    },
                    _ => Ok(()),
                });
            }
            drop(rt);
            log.check();
            let processes = log.0.processes.lock().unwrap();
            assert_eq!(processes.len(), 100);
            assert!(processes.values().all(|all| all.last().is_some_and(|t| t.to == Complete)));
        }
    });
}

/// Returns the number of threads whose name begins with `name`, and how many times these threads have waited. A thread
/// with a periodic tick waits again after each tick. Both numbers are 0 if there is no `/proc`.
fn waits_of_threads(name: &str) -> (usize, u64) {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let waits = tasks.filter_map(|task| {
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let field = |name: &str| Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim());
        field("Name:")?.starts_with(name).then(|| field("voluntary_ctxt_switches:")?.parse::<u64>().ok()).flatten()
    });
    waits.fold((0, 0), |(threads, sum), waits| (threads + 1, sum + waits))
}

/// 4.5f: an idle runtime uses no CPU time. An idle runtime has no periodic tick, and its threads stay parked. The test
/// checks the workers and the monitor while the main thread sleeps.
#[test]
fn an_idle_runtime_uses_no_cpu() {
    const NAME: &str = "idle-runtime";
    within(60, || {
        let rt = Runtime::builder().workers(2).thread_name(NAME).build().unwrap();
        // These processes wait for a message, wait for a time in the far future, or wait forever.
        let waiting = Arc::new(AtomicU64::new(0));
        for _ in 0..100 {
            let waits = [waiting.clone(), waiting.clone(), waiting.clone()];
            let [one, two, three] = waits;
            let _ = rt.spawn(async move |mut ctx: Context<()>| {
                one.fetch_add(1, Ordering::SeqCst);
                ctx.receive().await
            });
            let _ = rt.spawn(async move |ctx: Context| {
                two.fetch_add(1, Ordering::SeqCst);
                ctx.sleep(Duration::from_secs(3600)).await;
            });
            let _ = rt.spawn(async move |_: Context| {
                three.fetch_add(1, Ordering::SeqCst);
                std::future::pending::<()>().await;
            });
        }
        while waiting.load(Ordering::SeqCst) < 300 {
            thread::yield_now();
        }
        // On a busy machine the threads may still run in the first iterations, but in some later iteration all threads
        // are parked. A periodic tick would be visible in every iteration.
        let threads = (0..100).find_map(|_| {
            let (before, at_first) = (rt.counters(), waits_of_threads(NAME));
            thread::sleep(Duration::from_millis(300));
            let (counted, at_last) = (rt.counters() - before, waits_of_threads(NAME));
            let is_idle = (counted.parks, counted.wakes, counted.polls, counted.steals_tried) == (0, 0, 0, 0);
            (is_idle && at_first == at_last).then_some(at_last.0)
        });
        let threads = threads.expect("all threads are idle for 300 ms at least once");
        println!("{threads} threads were idle");
        assert!(threads >= 2 || !std::path::Path::new("/proc/self/task").exists(), "{threads} threads");
    });
}

/// 5.2a, 9.2b: a step polls `yield_now` with a waker that does not wake the process, and then waits for another event.
/// The process enters the state `Idle`.
#[test]
fn a_process_that_did_not_wake_itself_enters_a_waiting_state() {
    use futures::FutureExt;
    let rt = Runtime::builder().workers(0).build().unwrap();
    let process = rt.spawn(async |mut ctx: Context| {
        assert!(ctx.yield_now().now_or_never().is_none());
        ctx.receive().await.map(drop)
    });
    rt.block_on(process.started()).unwrap();
    assert_eq!(rt.process_details(process.pid()).unwrap().info.state, Some(Idle));
    process.abort();
}

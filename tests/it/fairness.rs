//! Section 4.6 of the specification: how long a runnable process waits for its turn. The tests count the steps of other
//! processes during this time, on one worker and on two workers. The documentation page `scheduling` derives the
//! bounds.

use std::cell::Cell;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use futures::StreamExt;
use futures::executor::block_on;
use futures::future::BoxFuture;
use procession::*;

use crate::within;

const WORKERS: [usize; 2] = [1, 2];

thread_local! {
    /// The number of the worker that this thread belongs to.
    static WORKER: Cell<usize> = const { Cell::new(0) };
}

/// Returns a runtime with this number of workers. The infinite `long_step_threshold` prevents replacement threads, so
/// each worker stays on one thread and keeps its number.
fn with(workers: usize) -> Runtime {
    let next = AtomicUsize::new(0);
    Runtime::builder()
        .workers(workers)
        .long_step_threshold(Duration::MAX)
        .on_thread_start(move || WORKER.set(next.fetch_add(1, Ordering::SeqCst)))
        .handle(|_: Now| ())
        .build()
        .expect("a runtime")
}

/// Counts steps, separately for each worker.
#[derive(Clone)]
struct Steps(Arc<[AtomicU64; 2]>);

impl Steps {
    fn new() -> Self {
        Self(Arc::default())
    }

    fn count(&self, steps: u64) {
        self.0[WORKER.get()].fetch_add(steps, Ordering::SeqCst);
    }

    fn read(&self) -> [u64; 2] {
        [0, 1].map(|worker| self.0[worker].load(Ordering::SeqCst))
    }

    /// Returns the number of steps that the calling worker has run since `before` was read.
    fn since(&self, before: [u64; 2]) -> u64 {
        self.read()[WORKER.get()] - before[WORKER.get()]
    }
}

/// Runs two greedy and two modest processes per worker. The greedy processes count their steps, and the modest
/// processes call `yield_now`. Measures the number of greedy steps that a worker runs between two successive turns of a
/// modest process on that worker. Returns the maximum of the measured numbers.
fn most_between_turns(workers: usize, greedy: impl Fn(&Host, Steps) + Send + Sync + 'static) -> u64 {
    let turns = if cfg!(debug_assertions) { 2_000 } else { 20_000 };
    let greedy = Arc::new(greedy);
    within(120, move || {
        // If no modest process shared a worker with a greedy process, the run has measured nothing and is repeated.
        loop {
            let rt = with(workers);
            let (steps, host) = (Steps::new(), rt.host().clone());
            let (all, greedy) = (steps.clone(), greedy.clone());
            let begin = rt.spawn(async move |_: Context| (0..2 * workers).for_each(|_| greedy(&host, all.clone())));
            block_on(begin).unwrap();
            let modest = (0..2 * workers).map(|_| {
                let steps = steps.clone();
                rt.spawn(async move |ctx: Context| {
                    while steps.read() == [0, 0] {
                        ctx.yield_now().await;
                    }
                    let mut most = 0;
                    for _ in 0..turns {
                        let (worker, before) = (WORKER.get(), steps.read());
                        ctx.yield_now().await;
                        if WORKER.get() == worker {
                            most = most.max(steps.since(before));
                        }
                    }
                    Ok::<_, Exit>(most)
                })
            });
            let modest: Vec<_> = modest.collect();
            let most = modest.into_iter().map(|one| block_on(one).unwrap()).max().unwrap_or(0);
            if most > 0 {
                return most;
            }
        }
    })
}

/// Computes a bound for the number of steps that greedy processes take between two turns of another process. Asserts
/// that the measured number is at most this bound. A greedy process may take `each` steps per turn, and all greedy
/// processes may be on one worker.
fn check(what: &str, each: u64, greedy: impl Fn(&Host, Steps) + Send + Sync + Clone + 'static) {
    for workers in WORKERS {
        let most = most_between_turns(workers, greedy.clone());
        println!("{what}, {workers} workers: {most} steps between two turns of another");
        let bound = each * 2 * workers as u64;
        assert!(most <= bound, "{what}, {workers} workers: {most}, not within {bound}");
    }
}

/// Command that is answered inline.
struct Now;
impl Command for Now {
    type Reply = ();
}

/// A process that is always runnable. `how` selects the cause of the next step of the process: the result `Again`, a
/// message to itself, or a command with an inline answer.
struct Greedy {
    steps: Steps,
    how: How,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Again,
    Message,
    Inline,
}

impl Process for Greedy {
    type Message = ();
    type Output = ();
    fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
        self.steps.count(1);
        for event in events {
            if let Event::Completed(done) = event {
                done.into_result()?;
            }
        }
        match self.how {
            How::Again => return Ok(Next::Again),
            How::Message => out.address().send(())?,
            How::Inline => drop(out.perform(Now)),
        }
        Ok(Next::Wait)
    }
}

/// 4.2e, 4.6b: if a process is always runnable, the process uses up its budget and then waits behind the other
/// processes. If the process returns `Again` or sends a message to itself, the budget is one step. If the process gets
/// inline answers, the budget is 32 steps.
#[test]
fn a_greedy_process_waits_behind_other_processes() {
    for (how, bound) in [(How::Again, 1), (How::Message, 1), (How::Inline, 32)] {
        check(&format!("{how:?}"), bound, move |host, steps| drop(host.spawn_process(Greedy { steps, how })));
    }
}

/// 4.2e, 4.6b: if an async body is always runnable, the body uses up its budget and then waits behind the other
/// processes. The budget is one call of `yield_now`, or 32 inline answers. If the mailbox is never empty, the budget is
/// 128 messages or events.
#[test]
fn a_greedy_body_waits_behind_other_processes() {
    check("yields", 1, |host, steps| {
        let _ = host.spawn(async move |ctx: Context| -> Result<(), Exit> {
            loop {
                steps.count(1);
                ctx.yield_now().await;
            }
        });
    });
    check("messages", 128, |host, steps| {
        let _ = host.spawn(async move |mut ctx: Context<()>| -> Result<(), Exit> {
            ctx.address().send(())?;
            loop {
                ctx.receive().await?;
                steps.count(1);
                ctx.address().send(())?;
            }
        });
    });
    check("events", 128, |host, steps| {
        let _ = host.spawn(async move |mut ctx: Context<()>| -> Result<(), Exit> {
            ctx.address().send(())?;
            while let Event::Message(()) = ctx.event().await {
                steps.count(1);
                ctx.address().send(())?;
            }
            Ok(())
        });
    });
    check("answers", 32, |host, steps| {
        let _ = host.spawn(async move |ctx: Context| -> Result<(), Exit> {
            loop {
                ctx.perform(Now).await?;
                steps.count(1);
            }
        });
    });
}

/// 4.2d, 4.6a: two processes wake each other through the worker's `next` slot. While other processes wait, the two
/// processes share one budget of 16 turns. After the budget is spent, the processes may get a few more turns before the
/// worker takes a task from its local queue.
#[test]
fn two_processes_that_wake_each_other_do_not_starve_other_processes() {
    check("a pair", 20, |host, steps| {
        let _ = host.spawn(async move |ctx: Context| -> Result<(), Exit> {
            let other = ctx.spawn(async |mut ctx: Context<Reply<()>>| -> Result<(), Exit> {
                loop {
                    ctx.receive().await?.send(());
                }
            });
            loop {
                other.call(|reply| reply).await?;
                steps.count(2);
            }
        });
    });
    fn next(steps: Steps) -> impl FnOnce(Context) -> BoxFuture<'static, Result<(), Exit>> + Send + 'static {
        move |ctx| {
            Box::pin(async move {
                steps.count(1);
                let _ = ctx.spawn(next(steps));
                Ok(())
            })
        }
    }
    check("a chain of spawns", 20, |host, steps| drop(host.spawn(next(steps))));
}

/// 4.6a: if n processes are runnable, each runnable process has a turn within n steps of its worker. If n exceeds the
/// capacity of a local queue, the bound is 4 n + 61. The reason is that a worker takes at least 17 processes from the
/// injector in each 61 searches for a task.
#[test]
fn every_runnable_process_has_a_turn_in_every_round() {
    const ROUNDS: u64 = 20;
    for (workers, n) in [(1, 10), (1, 200), (1, 300), (1, 1000), (1, 5000), (2, 10), (2, 200), (2, 1000), (2, 5000)] {
        let worst = within(120, move || {
            let rt = with(workers);
            let steps = Steps::new();
            let gate = Arc::new(AtomicUsize::new(0));
            // The first process that finishes its work sets this flag. After that, workers may run out of tasks and
            // steal tasks, so the test ignores later measurements.
            let over = Arc::new(AtomicBool::new(false));
            let all: Vec<_> = (0..n)
                .map(|_| {
                    let (steps, gate, over) = (steps.clone(), gate.clone(), over.clone());
                    rt.spawn(async move |ctx: Context| {
                        gate.fetch_add(1, Ordering::SeqCst);
                        while gate.load(Ordering::SeqCst) < n {
                            ctx.yield_now().await;
                        }
                        let mut worst = 0;
                        for _ in 0..ROUNDS {
                            let before = steps.read();
                            steps.count(1);
                            ctx.yield_now().await;
                            if !over.load(Ordering::SeqCst) {
                                worst = worst.max(steps.since(before));
                            }
                        }
                        over.store(true, Ordering::SeqCst);
                        Ok::<_, Exit>(worst)
                    })
                })
                .collect();
            all.into_iter().map(|one| block_on(one).unwrap()).max().unwrap_or(0)
        });
        println!("{n} ready, {workers} workers: a turn every {worst} steps at worst");
        let bound = if n <= 4096 { n } else { 4 * n + 61 } as u64;
        assert!((1..=bound).contains(&worst), "{worst} steps of {n} between two turns of one, {workers} workers");
    }
}

const NOT_YET: u64 = u64::MAX;

/// Runs two processes per worker. These processes count their steps and always call `yield_now`. One of these processes
/// calls `at` after 50 calls of `yield_now`. Returns the value of `done` as soon as `done` is set.
fn busy_until<F>(
    rt: &Runtime,
    (workers, steps): (usize, Steps),
    at: impl FnOnce() -> F + Send + 'static,
    done: Arc<AtomicU64>,
) -> u64
where
    F: Future<Output = ()> + Send + 'static,
{
    let stop = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (1..2 * workers)
        .map(|_| {
            let (stopped, steps) = (stop.clone(), steps.clone());
            rt.spawn(async move |ctx: Context| {
                while !stopped.load(Ordering::SeqCst) {
                    steps.count(1);
                    ctx.yield_now().await;
                }
            })
        })
        .collect();
    let first = rt.spawn(async move |ctx: Context| {
        for _ in 0..50 {
            ctx.yield_now().await;
        }
        at().await;
        while done.load(Ordering::SeqCst) == NOT_YET {
            steps.count(1);
            ctx.yield_now().await;
        }
        stop.store(true, Ordering::SeqCst);
        Ok::<_, Exit>(done.load(Ordering::SeqCst))
    });
    let done = block_on(first).unwrap();
    busy.into_iter().for_each(|one| block_on(one).unwrap());
    done
}

/// 4.2a, 4.6a: if a thread that is not a worker spawns a process, a worker runs this process after at most 61 searches
/// for other tasks. The length of the local queues does not matter.
#[test]
fn a_process_from_another_thread_runs_after_at_most_61_searches() {
    for workers in WORKERS {
        within(60, move || {
            let rt = with(workers);
            for _ in 0..100 {
                let (host, done, steps) = (rt.host().clone(), Arc::new(AtomicU64::new(NOT_YET)), Steps::new());
                let (ran, seen) = (done.clone(), steps.clone());
                let at = move || async move {
                    let submitted = Arc::new(Mutex::new(None));
                    let (from, steps) = (submitted.clone(), seen.clone());
                    let run = async move |_: Context| {
                        // `from` is `None` if another worker ran this process before the spawning thread recorded the
                        // counts. In this case the process did not wait.
                        let from = *from.lock().unwrap();
                        ran.store(from.map_or(0, |from| steps.since(from)), Ordering::SeqCst);
                    };
                    // A thread that is not a worker spawns the process. The present step waits until this thread has
                    // exited.
                    thread::spawn(move || {
                        drop(host.spawn(run));
                        *submitted.lock().unwrap() = Some(seen.read());
                    })
                    .join()
                    .expect("no panic");
                };
                let waited = busy_until(&rt, (workers, steps), at, done);
                assert!(waited <= 61, "{waited}, {workers} workers");
            }
        });
    }
}

/// 4.2a, 4.6a: a worker fires a due timer after at most 61 searches for tasks. The length of the local queues does not
/// matter.
#[test]
fn a_due_timer_waits_for_at_most_61_searches() {
    for workers in WORKERS {
        within(60, move || {
            let rt = with(workers);
            for _ in 0..20 {
                let (host, done, steps) = (rt.host().clone(), Arc::new(AtomicU64::new(NOT_YET)), Steps::new());
                let (over, seen) = (done.clone(), steps.clone());
                let due = Arc::new(Mutex::new(None));
                let at = move || async move {
                    let until = host.now() + Duration::from_millis(1);
                    let (from, steps) = (due.clone(), seen.clone());
                    let _ = host.spawn(async move |ctx: Context| {
                        ctx.sleep_until(until).await;
                        // `from` is `None` if another worker fired the timer before the counts were recorded. In this
                        // case the process did not wait.
                        let from = *from.lock().unwrap();
                        over.store(from.map_or(0, |from| steps.since(from)), Ordering::SeqCst);
                    });
                    // During the two calls of `step_aside`, the spawned process begins its sleep. The measurement
                    // begins one tick after the deadline of this sleep.
                    crate::step_aside().await;
                    crate::step_aside().await;
                    while host.now() < until + Duration::from_millis(1) {
                        std::hint::spin_loop();
                    }
                    *due.lock().unwrap() = Some(seen.read());
                };
                let waited = busy_until(&rt, (workers, steps), at, done);
                assert!(waited <= 64, "{waited}, {workers} workers");
            }
        });
    }
}

/// 4.2d, 4.6a: the `next` slot and the queue of new tasks of a worker share a budget of 16 turns. Until this budget is
/// used up, new processes run before processes that have called `yield_now`. Therefore new processes soon have their
/// first turn. When the budget is used up, a process that has called `yield_now` usually runs next. Every fourth time,
/// a new process runs next.
#[test]
fn new_processes_run_soon_without_starving_other_processes() {
    const NEW: u64 = 100;
    for chains in [0, 1, 3] {
        within(60, move || {
            let rt = with(1);
            let (steps, others) = (Steps::new(), Steps::new());
            let stop = Arc::new(AtomicBool::new(false));
            let (seen, yielded, stopped) = (steps.clone(), others.clone(), stop.clone());
            let parent = rt.spawn(async move |ctx: Context| {
                let all: Vec<_> = (0..NEW)
                    .map(|_| {
                        let (steps, others) = (seen.clone(), yielded.clone());
                        ctx.spawn(async move |_: Context| {
                            steps.count(1);
                            Ok::<_, Exit>((steps.read()[0], others.read()[0]))
                        })
                    })
                    .collect();
                for _ in 0..chains {
                    drop(ctx.spawn(link(seen.clone(), stopped.clone())));
                }
                for _ in 0..3 {
                    let (steps, others, stopped) = (seen.clone(), yielded.clone(), stopped.clone());
                    let _ = ctx.spawn(async move |ctx: Context| {
                        while !stopped.load(Ordering::SeqCst) {
                            steps.count(1);
                            others.count(1);
                            ctx.yield_now().await;
                        }
                    });
                }
                let mut last = (0, 0);
                for one in all {
                    last = last.max(one.await?);
                }
                Ok::<_, Exit>(last)
            });
            let (last, others) = block_on(parent).unwrap();
            stop.store(true, Ordering::SeqCst);
            println!(
                "{chains} chains: the last of {NEW} after {last} steps, of which {others} were of those who yield"
            );
            let bound = if chains == 0 { 2 * NEW } else { NEW * 4 * 18 };
            assert!(last <= bound, "{last} steps before the first turn of the last, {chains} chains");
            assert!(others >= last / 40, "only {others} of {last} steps for those who yield, {chains} chains");
        });
    }

    /// Returns a body that spawns the next body of the chain.
    fn link(
        steps: Steps,
        stop: Arc<AtomicBool>,
    ) -> impl FnOnce(Context) -> BoxFuture<'static, Result<(), Exit>> + Send + 'static {
        move |ctx| {
            Box::pin(async move {
                steps.count(1);
                if !stop.load(Ordering::SeqCst) {
                    drop(ctx.spawn(link(steps, stop)));
                }
                Ok(())
            })
        }
    }
}

/// 4.6b: a selective receive uses up the budget. Therefore other processes run, even if a body always has a message.
#[test]
fn a_selective_receive_spends_the_budget() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let endless = rt.spawn(async |mut ctx: Context<u32>| -> Result<(), Exit> {
        ctx.send(ctx.pid(), 0_u32).unwrap();
        loop {
            let number = ctx.receive_where(Ok::<u32, u32>).await?;
            ctx.send(ctx.pid(), number).unwrap();
        }
    });
    rt.block_on(rt.spawn(async |_: Context| {})).unwrap();
    rt.kill(endless.pid()).unwrap();
    assert_eq!(rt.block_on(endless), Err(Exit::Killed));
}

/// 4.6b: the late ticks of an interval use up the budget, so other processes run between the ticks.
#[test]
fn a_late_interval_spends_the_budget() {
    const TICKS: u64 = 10_000;
    let mut simulation = Simulation::new(1);
    let count = Arc::new(AtomicU64::new(0));
    let ticks = {
        let count = Arc::clone(&count);
        simulation.spawn(async move |ctx: Context| {
            let mut interval = ctx.interval(Duration::from_millis(1));
            ctx.sleep(Duration::from_millis(TICKS)).await;
            for _ in 0..TICKS {
                interval.tick().await;
                count.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let watches = simulation.spawn(async move |ctx: Context| {
        let mut seen = std::collections::BTreeSet::new();
        ctx.sleep(Duration::from_millis(TICKS)).await;
        while count.load(Ordering::Relaxed) != TICKS {
            seen.insert(count.load(Ordering::Relaxed));
            ctx.yield_now().await;
        }
        Ok::<_, Exit>(seen.len())
    });
    let seen = simulation.run(watches).unwrap();
    assert!(seen > 10, "the other process ran {seen} times between the ticks");
    simulation.run(ticks).unwrap();
}

/// 4.6b: a sleep uses up a part of the budget even if its deadline has already passed at its first poll. A time limit
/// of zero also uses up a part of the budget. So other processes still run, even if a body awaits only sleeps with a
/// deadline in the past or time limits of zero.
#[test]
fn sleeps_spend_the_budget_even_without_a_wait() {
    /// Runs `body` beside a process that sets the flag of `body`.
    fn ends<F: Future<Output = ()> + Send + 'static>(
        body: impl FnOnce(Context<()>, Arc<AtomicBool>) -> F + Send + 'static,
    ) {
        within(60, || {
            let rt = Runtime::builder().workers(0).build().unwrap();
            let flag = Arc::new(AtomicBool::new(false));
            let set = flag.clone();
            let loops = rt.spawn(async move |ctx: Context<()>| body(ctx, set).await);
            let sets = rt.spawn(async move |_: Context| flag.store(true, Ordering::SeqCst));
            rt.block_on(sets).unwrap();
            rt.block_on(loops).unwrap();
        });
    }
    ends(async |ctx, flag| {
        while !flag.load(Ordering::SeqCst) {
            ctx.sleep(Duration::ZERO).await;
        }
    });
    ends(async |ctx, flag| {
        let past = ctx.now();
        let mut sleep = ctx.sleep_until(past);
        while !flag.load(Ordering::SeqCst) {
            (&mut sleep).await;
            sleep.reset(past);
        }
    });
    ends(async |ctx, flag| {
        while !flag.load(Ordering::SeqCst) {
            ctx.host().sleep(Duration::ZERO).await;
        }
    });
    ends(async |ctx, flag| {
        while !flag.load(Ordering::SeqCst) {
            let limited = ctx.timeout(Duration::ZERO, std::future::pending::<()>()).await;
            assert!(matches!(limited, Err(Failure::TimedOut)));
        }
    });
    ends(async |mut ctx, flag| {
        while !flag.load(Ordering::SeqCst) {
            assert_eq!(ctx.receive_timeout(Duration::ZERO).await, Ok(None));
        }
    });
}

/// 4.6b: each message that a process sends with `send_wait` or through a sink takes one unit of the budget of the
/// sender. This holds even if the mailbox has free space. Therefore the receiver also runs, and an unbounded mailbox
/// does not fill up even if a sender never stops.
#[test]
fn sends_to_a_mailbox_with_room_spend_the_budget() {
    const MESSAGES: u64 = 1_000;
    /// Counts the messages in `sent`. Returns the largest number of messages that were sent and not received.
    fn longest_queue<F: Future<Output = ()> + Send + 'static>(
        sends: impl FnOnce(Address<u64>, Arc<AtomicU64>) -> F + Send + 'static,
    ) -> u64 {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let sent = Arc::new(AtomicU64::new(0));
        let counts = Arc::clone(&sent);
        let receiver = rt.spawn(async move |mut ctx: Context<u64>| {
            let mut longest = 0;
            for received in 0..MESSAGES {
                ctx.receive().await?;
                longest = longest.max(counts.load(Ordering::Relaxed) - received);
            }
            Ok::<_, Exit>(longest)
        });
        let to = receiver.address().clone();
        rt.block_on(rt.spawn(async move |_: Context| sends(to, sent).await)).unwrap();
        rt.block_on(receiver).unwrap()
    }
    let longest = longest_queue(async |to, sent| {
        for n in 0..MESSAGES {
            sent.fetch_add(1, Ordering::Relaxed);
            to.send_wait(n).await.unwrap();
        }
    });
    assert!(longest <= 256, "{longest} messages were queued");
    let longest = longest_queue(async |to, sent| {
        let messages = futures::stream::iter(0..MESSAGES).map(|n| {
            sent.fetch_add(1, Ordering::Relaxed);
            Ok(n)
        });
        messages.forward(to.sink()).await.unwrap();
    });
    assert!(longest <= 256, "{longest} messages were queued");
}

/// 4.6b: calls that are refused, and calls of an empty group, use up the budget. So other processes run, and one of
/// these processes can register the name that the caller calls.
#[test]
fn calls_spend_the_budget_even_without_a_wait() {
    const SERVER: Name<Reply<()>> = Name::new("server");
    const SERVERS: Group<Reply<()>> = Group::new("servers");
    let serve = async |mut ctx: Context<Reply<()>>| -> Result<(), Exit> {
        ctx.register(SERVER).map_err(Exit::failed)?;
        ctx.join_group(SERVERS);
        loop {
            ctx.receive().await?.send(());
        }
    };
    within(60, move || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let calls = rt.spawn(async |ctx: Context| while ctx.call(SERVER, |reply| reply).await.is_err() {});
        let many =
            rt.spawn(async |ctx: Context| while ctx.multi_call(SERVERS, |reply| reply).first().await.is_err() {});
        // The callers run first.
        rt.block_on(crate::step_aside());
        let _server = rt.spawn(serve);
        rt.block_on(calls).unwrap();
        rt.block_on(many).unwrap();
    });
}

/// 4.6b: a command fails before the command reaches a handler, because the time limit of the command has passed or the
/// command belongs to another process. If a body repeats commands that fail in this way, other processes still run. If
/// a greedy future runs in the same body, a command that fails in this way pauses once and then fails.
#[test]
fn commands_spend_the_budget_even_if_they_fail_at_once() {
    struct Ask;
    impl Command for Ask {
        type Reply = ();
    }
    within(60, || {
        let rt = Runtime::builder().workers(0).handle(|_: Ask| ()).build().unwrap();
        let flag = Arc::new(AtomicBool::new(false));
        let is_set = || {
            let flag = flag.clone();
            move || flag.load(Ordering::SeqCst)
        };
        let (late_ends, outside_ends) = (is_set(), is_set());
        let late = rt.spawn(async move |ctx: Context| {
            while !late_ends() {
                assert!(matches!(ctx.perform(Ask).timeout(Duration::ZERO).await, Err(Failure::TimedOut)));
            }
            let done = AtomicBool::new(false);
            let greedy = async {
                while !done.load(Ordering::SeqCst) {
                    cooperative(std::future::ready(())).await;
                }
            };
            let modest = async {
                assert!(matches!(ctx.perform(Ask).timeout(Duration::ZERO).await, Err(Failure::TimedOut)));
                done.store(true, Ordering::SeqCst);
            };
            futures::join!(greedy, modest);
        });
        let outside = rt.spawn(async move |ctx: Context| {
            let inner = ctx.spawn(async move |ctx: Context| Ok::<_, Exit>(ctx.split().0));
            let other = inner.await?;
            while !outside_ends() {
                assert!(matches!(other.perform(Ask).await, Err(Failure::Outside)));
            }
            Ok::<_, Exit>(())
        });
        // The two bodies run first.
        rt.block_on(crate::step_aside());
        let sets = rt.spawn(async move |_: Context| flag.store(true, Ordering::SeqCst));
        rt.block_on(sets).unwrap();
        rt.block_on(late).unwrap();
        rt.block_on(outside).unwrap();
    });
}

/// 4.6b: the blocking pool refuses each closure of a body. If the body repeats the call, other processes still run, and
/// one of these processes can make the pool accept closures again.
#[test]
fn refused_blocking_work_spends_the_budget() {
    within(60, || {
        let rt = Runtime::builder().workers(0).max_blocking_threads(1).blocking_queue_capacity(0).build().unwrap();
        let (release, waits) = std::sync::mpsc::channel::<()>();
        let first = rt.spawn_blocking(move || waits.recv());
        let repeats = rt.spawn(async |ctx: Context| while ctx.host().spawn_blocking(|| ()).await.is_err() {});
        let frees = rt.spawn(async move |_: Context| release.send(()));
        rt.block_on(frees).unwrap();
        rt.block_on(first).unwrap().unwrap();
        rt.block_on(repeats).unwrap();
    });
}

/// 4.6b: a sleep with a duration of zero pauses only once. This holds even if other futures of the same body spend the
/// whole budget of each turn.
#[test]
fn a_sleep_of_zero_duration_completes_although_another_future_is_greedy() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let body = rt.spawn(async |ctx: Context| {
            let done = AtomicBool::new(false);
            let greedy = async {
                while !done.load(Ordering::SeqCst) {
                    ctx.sleep(Duration::ZERO).await;
                }
            };
            let modest = async {
                ctx.sleep(Duration::ZERO).await;
                done.store(true, Ordering::SeqCst);
            };
            futures::join!(greedy, modest);
        });
        rt.block_on(body).unwrap();
    });
}

/// 4.2e: a process awaits `yield_now` and an inline command at the same time. The command is answered immediately, but
/// the other tasks still run before the process runs again.
#[test]
fn an_inline_answer_does_not_shorten_a_yield() {
    struct Ask;
    impl Command for Ask {
        type Reply = ();
    }
    let rt = Runtime::builder().workers(0).handle(|_: Ask| ()).build().unwrap();
    let turns = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&turns);
    rt.spawn(async move |ctx: Context| -> () {
        loop {
            counts.fetch_add(1, Ordering::SeqCst);
            ctx.yield_now().await;
        }
    });
    let yields = rt.spawn(async move |ctx: Context| {
        let before = turns.load(Ordering::SeqCst);
        for _ in 0..64 {
            futures::join!(ctx.perform(Ask), ctx.yield_now()).0.expect("an answer");
        }
        Ok::<_, Exit>(turns.load(Ordering::SeqCst) - before)
    });
    let turns = rt.block_on(yields).unwrap();
    assert!(turns >= 63, "{turns} turns");
}

/// 4.6b: a future that waits for the exit or for the start of a process uses up the budget, even if the process has
/// already exited. Therefore other processes run between futures that wait for an exit or for a start.
#[test]
fn joins_spend_the_budget_even_without_a_wait() {
    const CHILDREN: usize = 1000;
    type Join = fn(Context, Vec<JoinHandle<()>>) -> BoxFuture<'static, ()>;
    fn set_of(ctx: &Context, handles: Vec<JoinHandle<()>>) -> JoinSet<()> {
        let mut set = ctx.join_set();
        handles.into_iter().for_each(|handle| drop(set.insert(handle)));
        set
    }
    let joins: [(&str, Join); 5] = [
        ("handle", |_, handles| {
            Box::pin(async move {
                for handle in handles {
                    handle.await.unwrap();
                }
            })
        }),
        ("exited", |_, handles| {
            Box::pin(async move {
                for handle in handles {
                    handle.exited().await;
                }
            })
        }),
        ("started", |_, handles| {
            Box::pin(async move {
                for handle in handles {
                    handle.started().await.unwrap();
                }
            })
        }),
        ("join_next", |ctx, handles| {
            Box::pin(async move {
                let mut set = set_of(&ctx, handles);
                while set.join_next().await.is_some() {}
            })
        }),
        ("join_all", |ctx, handles| Box::pin(async move { drop(set_of(&ctx, handles).join_all().await) })),
    ];
    for (name, join) in joins {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let handles: Vec<JoinHandle<()>> = (0..CHILDREN).map(|_| rt.spawn(async |_: Context| {})).collect();
        while handles.iter().any(|handle| !handle.is_finished()) {
            rt.block_on(crate::step_aside());
        }
        let turns = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&turns);
        let _other = rt.spawn(async move |ctx: Context| {
            loop {
                counts.fetch_add(1, Ordering::SeqCst);
                ctx.yield_now().await;
            }
        });
        let body = rt.spawn(async move |ctx: Context| {
            let before = turns.load(Ordering::SeqCst);
            join(ctx, handles).await;
            Ok::<_, Exit>(turns.load(Ordering::SeqCst) - before)
        });
        let between = rt.block_on(body).unwrap();
        assert!(between >= CHILDREN / 256, "{name}: the other process had {between} turns");
    }
}

/// 4.6b: a body may await the handles of refused spawns, or an empty set, in a loop. The body lets the other processes
/// run.
#[test]
fn the_await_of_a_refused_spawn_or_of_an_empty_join_set_spends_the_budget() {
    within(60, || {
        let rt = Runtime::builder().workers(0).max_processes(2).build().unwrap();
        let handles = rt.spawn(async |ctx: Context| while ctx.spawn(async |_: Context| {}).await.is_err() {});
        let other = rt.spawn(async |ctx: Context| ctx.yield_now().await);
        rt.block_on(handles).unwrap();
        rt.block_on(other).unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let is_done = Arc::clone(&done);
        let set = rt.spawn(async move |ctx: Context| {
            let mut set = ctx.join_set::<()>();
            while !is_done.load(Ordering::SeqCst) {
                assert_eq!(set.join_next().await, None);
            }
        });
        let other = rt.spawn(async move |_: Context| done.store(true, Ordering::SeqCst));
        rt.block_on(set).unwrap();
        rt.block_on(other).unwrap();
    });
}

/// 4.6b: a body may await its own join handle in a loop. Each await fails. The body lets the other processes run.
#[test]
fn a_process_that_joins_itself_spends_its_budget() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let slot = Arc::new(Mutex::new(None::<JoinHandle<()>>));
        let done = Arc::new(AtomicBool::new(false));
        let (own, is_done) = (Arc::clone(&slot), Arc::clone(&done));
        let joins = rt.spawn(async move |_: Context| {
            let mut own = own.lock().unwrap().take().expect("the test has stored the handle");
            while !is_done.load(Ordering::SeqCst) {
                assert!((&mut own).await.is_err());
            }
        });
        let exited = joins.exited();
        *slot.lock().unwrap() = Some(joins);
        let other = rt.spawn(async move |_: Context| done.store(true, Ordering::SeqCst));
        assert!(rt.block_on(exited).is_normal());
        rt.block_on(other).unwrap();
    });
}

/// 4.6b: a handler sends more items than fit into the budget of one poll, and the buffer of the stream has room for all
/// items. Other processes run between the items.
#[test]
fn a_stream_handler_with_room_in_the_buffer_spends_the_budget() {
    const ITEMS: usize = 10_000;
    struct Burst;
    impl Command for Burst {
        type Reply = usize;
    }
    impl StreamCommand for Burst {
        type Item = usize;
        const BUFFER: usize = ITEMS;
    }
    let turns = Arc::new(AtomicUsize::new(0));
    let (counts, seen) = (Arc::clone(&turns), turns);
    let handler = move |_: Burst, mut replies: StreamCompletion<Burst>| {
        let seen = Arc::clone(&seen);
        async move {
            let before = seen.load(Ordering::SeqCst);
            for item in 0..ITEMS {
                replies.send(item).await?;
            }
            replies.complete(seen.load(Ordering::SeqCst) - before);
            Ok::<_, Failure>(())
        }
    };
    let rt = Runtime::builder().workers(0).handle_stream(handler).build().unwrap();
    rt.spawn(async move |ctx: Context| -> () {
        loop {
            counts.fetch_add(1, Ordering::SeqCst);
            ctx.yield_now().await;
        }
    });
    let between = rt.spawn(async |ctx: Context| ctx.stream(Burst).last().await);
    let between = rt.block_on(between).unwrap();
    assert!(between >= ITEMS / 256, "the other process had {between} turns");
}

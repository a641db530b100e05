//! SPEC 4.6: how long one waits for its turn, counted in the steps of others, on one worker and on two. The bounds are
//! derived on the page `scheduling`.

use std::cell::Cell;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use futures::future::BoxFuture;
use procession::*;

use crate::within;

const WORKERS: [usize; 2] = [1, 2];

thread_local! {
    /// Which worker this thread is.
    static WORKER: Cell<usize> = const { Cell::new(0) };
}

/// So many workers, each the same thread from beginning to end, that know which they are.
fn with(workers: usize) -> Runtime {
    let next = AtomicUsize::new(0);
    Runtime::builder()
        .workers(workers)
        .long_step(Duration::MAX)
        .on_thread_start(move || WORKER.set(next.fetch_add(1, Ordering::SeqCst)))
        .handle(|_: Now| ())
        .build()
        .expect("a runtime")
}

/// Counts steps, for each worker those that it ran.
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

    /// How many the worker has run, since then, that runs whoever asks now.
    fn since(&self, before: [u64; 2]) -> u64 {
        self.read()[WORKER.get()] - before[WORKER.get()]
    }
}

/// Two greedy processes for each worker, who count their steps, and modest ones that yield. Returns how many steps of greedy
/// ones a worker made at most between two turns of a modest one that it ran both times.
fn most_between_turns(workers: usize, greedy: impl Fn(&Host, Steps) + Send + Sync + 'static) -> u64 {
    let turns = if cfg!(debug_assertions) { 2_000 } else { 20_000 };
    let greedy = Arc::new(greedy);
    within(120, move || {
        // Who never shares a worker with a greedy one has measured nothing.
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

/// Each of the greedy ones may make so many steps in a turn; all of them may be on one worker.
fn check(what: &str, each: u64, greedy: impl Fn(&Host, Steps) + Send + Sync + Clone + 'static) {
    for workers in WORKERS {
        let most = most_between_turns(workers, greedy.clone());
        println!("{what}, {workers} workers: {most} steps between two turns of another");
        let bound = each * 2 * workers as u64;
        assert!(most <= bound, "{what}, {workers} workers: {most}, not within {bound}");
    }
}

/// Answered at once.
struct Now;
impl Command for Now {
    type Reply = ();
}

/// Steps for ever: by `Again`, by a message to itself, or by a yield that is answered at once.
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

/// 4.6: a process that steps for ever spends a budget and goes behind the others. The bounds, in steps: one with `Again`,
/// one with a message to itself, 32 with answers that come at once.
#[test]
fn a_greedy_process_goes_behind_the_others() {
    for (how, bound) in [(How::Again, 1), (How::Message, 1), (How::Inline, 32)] {
        check(&format!("{how:?}"), bound, move |host, steps| drop(host.spawn_process(Greedy { steps, how })));
    }
}

/// 4.6: the same for bodies: one step with `yield_now`, 128 messages or events of a mailbox that is never empty, 32
/// answers that come at once.
#[test]
fn a_greedy_body_goes_behind_the_others() {
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

/// 4.2, 4.6: those who wake each other through the next slot share one budget of 16 runs while others wait; a few more are
/// under way when it is spent.
#[test]
fn a_greedy_pair_goes_behind_the_others() {
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

/// 4.6: of n ready processes each has its turn within n steps of the worker that runs it; within 4 n and 61 where n is more
/// than a local queue holds, for from the global one come at least 17 in 61 looks.
#[test]
fn everybody_has_a_turn_in_every_round() {
    const ROUNDS: u64 = 20;
    for (workers, n) in [(1, 10), (1, 200), (1, 300), (1, 1000), (1, 5000), (2, 10), (2, 200), (2, 1000), (2, 5000)] {
        let worst = within(120, move || {
            let rt = with(workers);
            let steps = Steps::new();
            let gate = Arc::new(AtomicUsize::new(0));
            // Set by the first that is done: from then on workers may run out of work, and steal.
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

/// Two for each worker that always yield, and count that. `at` is called in the 50th turn of one; returns what is in `done`
/// in the end.
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

/// 4.2, 4.6: what comes from outside is taken within 61 looks of whoever runs it, however busy the local queues are.
#[test]
fn what_comes_from_outside_waits_61_looks_at_most() {
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
                        // If another worker took it at once, it has not waited.
                        let from = *from.lock().unwrap();
                        ran.store(from.map_or(0, |from| steps.since(from)), Ordering::SeqCst);
                    };
                    // By a thread that is no worker, and before this step goes on.
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

/// 4.2, 4.6: timers that are due are fired within 61 looks of whoever fires them, however busy the local queues are.
#[test]
fn a_due_timer_waits_61_looks_at_most() {
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
                        // If another worker fires it at once, nobody has waited.
                        let from = *from.lock().unwrap();
                        over.store(from.map_or(0, |from| steps.since(from)), Ordering::SeqCst);
                    });
                    // Two turns, so that it sleeps; and the count begins when its tick is over.
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

/// 4.2, 4.6: who was spawned and has had no turn comes before those who yield, within a budget that both share: so many
/// wait for each other, and keep nobody waiting. Beside chains of spawns that never end, there is one for every four times
/// that those spend their budget.
#[test]
fn the_first_turn_comes_soon_and_keeps_nobody_waiting() {
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

    /// Spawns the next one.
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

//! Section 4 of the specification: the scheduler. No wake-up is lost, every runnable process gets a turn, and idle
//! workers find work.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use futures::future::BoxFuture;
use procession::*;

use crate::{alone, within};

/// Returns `debug` if debug assertions are enabled, and `release` otherwise.
fn many(release: u64, debug: u64) -> u64 {
    if cfg!(debug_assertions) { debug } else { release }
}

fn with(workers: usize) -> Runtime {
    Runtime::builder().workers(workers).build().expect("a runtime")
}

/// Pseudo-random number generator for tests: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    /// Waits for a random time: not at all, for a very short time, or so long that workers park.
    fn gap(&mut self) {
        match self.below(1024) {
            0 => (0..20).for_each(|_| thread::yield_now()),
            1 => thread::park_timeout(Duration::from_micros(100)),
            n if n < 512 => (0..self.below(2000)).for_each(|_| std::hint::spin_loop()),
            _ => {}
        }
    }
}

/// 4.1c: the maximum number of workers is the number of worker slots. With a larger number, the build fails, and the
/// error contains the maximum.
#[test]
fn the_number_of_workers_has_an_exact_maximum() {
    within(60, || {
        let most = match Runtime::builder().workers(1000).build() {
            Err(BuildError::TooManyWorkers { asked: 1000, most }) => most,
            other => panic!("{other:?}"),
        };
        assert!(Runtime::builder().workers(most + 1).build().is_err());
        let rt = with(most);
        let all: Vec<_> = (0..1000_u64).map(|n| rt.spawn(async move |_: Context| Ok::<_, Exit>(n))).collect();
        let sum: u64 = all.into_iter().map(|one| block_on(one).unwrap()).sum();
        assert_eq!(sum, 499_500);
    });
}

/// 4.4a, 4.5e: a thread outside the runtime spawns a process on an idle runtime. The thread waits for this process, and
/// then spawns the next process. If one wake-up is lost, the test hangs.
#[test]
fn each_process_runs_if_an_outside_thread_spawns_a_million_processes() {
    within(300, || {
        let rt = with(2);
        let (done, is_done) = mpsc::channel();
        let mut dice = Random(0x2545_f491_4f6c_dd1d);
        for n in 0..many(1_000_000, 100_000) {
            let done = done.clone();
            let _ = rt.spawn(async move |_: Context| {
                let _ = done.send(n);
            });
            assert_eq!(is_done.recv(), Ok(n));
            dice.gap();
        }
    });
}

/// 4.4a, 4.5e: a thread outside the runtime sends messages to a process of an idle runtime with one or four workers. If
/// one wake-up is lost, the test hangs.
#[test]
fn messages_from_outside_to_an_idle_runtime_are_all_answered() {
    for workers in [1, 4] {
        within(300, move || {
            let rt = with(workers);
            let (done, is_done) = mpsc::channel();
            let echo = rt.spawn(async move |mut ctx: Context<u64>| -> Result<(), Exit> {
                loop {
                    let n = ctx.receive().await?;
                    done.send(n).map_err(Exit::failed)?;
                }
            });
            let mut dice = Random(workers as u64);
            for n in 0..many(200_000, 30_000) {
                echo.send(n).unwrap();
                assert_eq!(is_done.recv(), Ok(n));
                dice.gap();
            }
        });
    }
}

/// 4.4a, 4.5e: several threads spawn processes concurrently. Half of these threads are guest threads.
#[test]
fn all_processes_of_many_spawning_threads_run() {
    within(300, || {
        let rt = Arc::new(with(2));
        let threads: Vec<_> = (1..=4_u64)
            .map(|thread| {
                let rt = rt.clone();
                thread::spawn(move || {
                    let mut dice = Random(thread);
                    for n in 0..many(50_000, 8_000) {
                        let one = rt.spawn(async move |_: Context| Ok::<_, Exit>(n));
                        let joined = if thread % 2 == 0 { block_on(one) } else { rt.block_on(one) };
                        assert_eq!(joined.unwrap(), n);
                        dice.gap();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// Returns the resident memory of this program in bytes, or `None` if this number is unknown.
fn resident() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(statm.split(' ').nth(1)?.parse::<u64>().ok()? * 4096)
}

/// 1.3a, 4.9b: a million processes are alive at the same time, and each receives one message.
#[test]
fn a_million_processes_can_be_alive_at_the_same_time() {
    within(300, || {
        let count = many(1_000_000, 200_000);
        let rt = with(2);
        let (sum, heard) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (done, is_done) = mpsc::channel::<()>();
        let done = Arc::new(Mutex::new(Some(done)));
        let before = resident();
        let all: Vec<_> = (0..count)
            .map(|n| {
                let (sum, heard, done) = (sum.clone(), heard.clone(), done.clone());
                rt.spawn(async move |mut ctx: Context<u64>| {
                    sum.fetch_add(n + ctx.receive().await?, Ordering::Relaxed);
                    if heard.fetch_add(1, Ordering::SeqCst) + 1 == count {
                        drop(done.lock().unwrap().take());
                    }
                    // Each process stays alive until all processes have received their first message.
                    ctx.receive().await
                })
                .address()
            })
            .collect();
        while rt.counters().polls < count {
            thread::yield_now();
        }
        if let (Some(before), Some(after)) = (before, resident()) {
            println!("{} bytes a process, {count} of them", after.saturating_sub(before) / count);
        }
        all.iter().for_each(|one| one.send(1).unwrap());
        assert_eq!(is_done.recv(), Err(mpsc::RecvError));
        assert_eq!(sum.load(Ordering::Relaxed), count * (count - 1) / 2 + count);
        assert_eq!(rt.processes_alive() as u64, count);
        let ended: Vec<_> = all.iter().map(Address::exited).collect();
        all.iter().for_each(|one| one.send(0).unwrap());
        for ended in ended {
            assert!(block_on(ended).is_normal());
        }
        assert_eq!(rt.processes_alive(), 0);
    });
}

/// Returns the body of a process that spawns a binary tree of processes with the given depth. The output of the body is
/// the number of processes in the tree.
fn tree(depth: u32) -> impl FnOnce(Context) -> BoxFuture<'static, Result<u64, Exit>> + Send + 'static {
    move |ctx| {
        Box::pin(async move {
            if depth == 0 {
                return Ok(1);
            }
            let (left, right) = (ctx.spawn(tree(depth - 1)), ctx.spawn(tree(depth - 1)));
            Ok(left.await? + right.await? + 1)
        })
    }
}

/// 4.2a: processes spawn a whole tree of processes. The test counts the processes of the tree, on one worker and on
/// several workers.
#[test]
fn a_tree_of_processes_gives_the_correct_sum() {
    for workers in [1, 2, 4] {
        within(120, move || {
            let rt = with(workers);
            let depth = many(16, 12) as u32;
            assert_eq!(block_on(rt.spawn(tree(depth))).unwrap(), (2 << depth) - 1);
            let counters = rt.counters();
            assert_eq!((counters.spawned, counters.exited), ((2 << depth) - 1, (2 << depth) - 1));
        });
    }
}

/// Calls `width` processes in each of `rounds` rounds. Returns the sum of the answers.
async fn fan_out_and_in(ctx: Context, width: u64, rounds: u64) -> Result<u64, Exit> {
    type Question = (u64, Reply<u64>);
    let many: Vec<_> = (0..width)
        .map(|n| {
            ctx.spawn(async move |mut ctx: Context<Question>| -> Result<(), Exit> {
                loop {
                    let (question, reply) = ctx.receive().await?;
                    if (question + n) % 3 == 0 {
                        ctx.yield_now().await;
                    }
                    reply.send(question + n);
                }
            })
        })
        .collect();
    let mut sum = 0;
    for round in 0..rounds {
        let answers = many.iter().map(|one| one.call(|reply| (round, reply)));
        sum += futures::future::try_join_all(answers).await?.into_iter().sum::<u64>();
    }
    many.iter().for_each(JoinHandle::abort);
    Ok(sum)
}

/// 4.2a, 4.4a: one process calls many processes and sums up their answers. The test runs with one to eight workers.
#[test]
fn fan_out_and_fan_in_give_the_correct_sum() {
    for workers in [1, 2, 4, 8] {
        within(120, move || {
            let rt = with(workers);
            let (width, rounds) = (200, many(200, 30));
            let sum = block_on(rt.spawn(move |ctx| fan_out_and_in(ctx, width, rounds))).unwrap();
            assert_eq!(sum, width * rounds * (rounds - 1) / 2 + rounds * width * (width - 1) / 2);
        });
    }
}

/// 4.2a, 4.5c: an idle worker steals processes from a busy worker. The two children of a process wait for each other,
/// so these children need two workers.
#[test]
fn an_idle_worker_steals_processes_of_a_busy_worker() {
    within(60, || {
        let rt = with(2);
        for _ in 0..many(2000, 300) {
            let parent = rt.spawn(async |ctx: Context| {
                let together = Arc::new(Barrier::new(2));
                let children = [(); 2].map(|()| {
                    let together = together.clone();
                    ctx.spawn(async move |_: Context| {
                        together.wait();
                    })
                });
                for child in children {
                    child.await?;
                }
                Ok::<_, Exit>(())
            });
            block_on(parent).unwrap();
        }
        let counters = rt.counters();
        assert!(counters.steals_won > 0, "{counters}");
    });
}

/// 4.5d, 4.5g: a batch of k runnable processes gets k workers. Either a thread outside the runtime or a process spawns
/// the batch. The processes of the batch wait for each other, so the batch needs k workers.
#[test]
fn a_batch_of_processes_that_wait_for_each_other_gets_enough_workers() {
    for workers in [2, 3, 4, 8] {
        within(60, move || {
            let rt = with(workers);
            let mut dice = Random(workers as u64);
            for _ in 0..many(1000, 100) {
                let together = Arc::new(Barrier::new(workers));
                let wait = |together: &Arc<Barrier>| {
                    let together = together.clone();
                    async move |_: Context| {
                        together.wait();
                    }
                };
                let outside: Vec<_> = (0..workers).map(|_| rt.spawn(wait(&together))).collect();
                outside.into_iter().for_each(|one| block_on(one).unwrap());
                dice.gap();
                let parent = rt.spawn(async move |ctx: Context| {
                    let children: Vec<_> = (0..workers).map(|_| ctx.spawn(wait(&together))).collect();
                    for child in children {
                        child.await?;
                    }
                    Ok::<_, Exit>(())
                });
                block_on(parent).unwrap();
                dice.gap();
            }
        });
    }
}

/// 4.2f, 4.5c: a process calls another process again and again on one worker. These two processes wake no other worker.
#[test]
fn a_lone_pair_of_processes_wakes_no_other_worker() {
    within(60, || {
        let rt = with(2);
        let rounds = 20_000;
        let play = rt.spawn(async move |ctx: Context| {
            let other = ctx.spawn(async |mut ctx: Context<Reply<()>>| -> Result<(), Exit> {
                loop {
                    ctx.receive().await?.send(());
                }
            });
            let before = ctx.host().counters();
            for _ in 0..rounds {
                other.call(|reply| reply).await?;
            }
            let played = ctx.host().counters() - before;
            other.abort();
            Ok::<_, Exit>(played)
        });
        let played = block_on(play).unwrap();
        // A round may need fewer than two polls: an answer from another worker may arrive in the turn that made the
        // call.
        assert!(played.polls >= rounds, "{played}");
        assert!(played.wakes < rounds / 20, "{played}");
    });
}

/// 4.4a: several threads wake a process concurrently. The process is polled after the last wake-up. There is at most
/// one poll for each wake-up.
#[test]
fn a_wake_up_is_neither_lost_nor_duplicated() {
    within(60, || {
        let rt = with(2);
        let each = many(50_000, 5_000);
        let polled = Arc::new(AtomicU64::new(0));
        let (woken, polls) = (Arc::new(AtomicU64::new(0)), polled.clone());
        let (tell, told) = mpsc::channel();
        let seen = woken.clone();
        let sleeper = rt.spawn(async move |_: Context| {
            std::future::poll_fn(|cx| {
                // The first poll reads the count before the threads get the waker. So the first poll is always pending,
                // even if the operating system then preempts this thread until the last wake-up.
                let is_over = seen.load(Ordering::SeqCst) == 4 * each;
                if polls.fetch_add(1, Ordering::SeqCst) == 0 {
                    let _ = tell.send(cx.waker().clone());
                }
                if is_over { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })
            .await;
        });
        let waker = told.recv().unwrap();
        let threads: Vec<_> = (1..=4)
            .map(|thread| {
                let (waker, woken) = (waker.clone(), woken.clone());
                thread::spawn(move || {
                    let mut dice = Random(thread);
                    for _ in 0..each {
                        woken.fetch_add(1, Ordering::SeqCst);
                        waker.wake_by_ref();
                        if dice.below(64) == 0 {
                            dice.gap();
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        block_on(sleeper).unwrap();
        let polled = polled.load(Ordering::SeqCst);
        assert!((2..=4 * each + 1).contains(&polled), "{polled} polls");
    });
}

/// 4.4a, 4.5e: processes wake each other through a foreign channel. Between two wake-ups, the workers park.
#[test]
fn no_wake_up_between_workers_is_lost() {
    within(120, || {
        let rt = with(3);
        let rounds = many(30_000, 3_000);
        let pairs: Vec<_> = (1..=3)
            .map(|seed| {
                let (mut there, mut arrives) = futures::channel::mpsc::channel::<u64>(0);
                let (mut back, mut returns) = futures::channel::mpsc::channel::<u64>(0);
                let echo = rt.spawn(async move |_: Context| {
                    use futures::{SinkExt, StreamExt};
                    while let Some(n) = arrives.next().await {
                        back.send(n).await?;
                    }
                    Ok::<_, futures::channel::mpsc::SendError>(())
                });
                let asks = rt.spawn(async move |_: Context| {
                    use futures::{SinkExt, StreamExt};
                    let mut dice = Random(seed);
                    for n in 0..rounds {
                        there.send(n).await?;
                        dice.gap();
                        assert_eq!(returns.next().await, Some(n));
                    }
                    Ok::<_, futures::channel::mpsc::SendError>(())
                });
                (asks, echo)
            })
            .collect();
        for (asks, echo) in pairs {
            block_on(asks).unwrap();
            block_on(echo).unwrap();
        }
    });
}

/// 4.2a, 4.3c: if a local queue overflows, tasks move to the injector, and all tasks run. The second worker is kept
/// busy until all tasks are spawned, so that this worker steals no task before the queue overflows.
#[test]
fn tasks_that_overflow_a_local_queue_are_run() {
    for workers in [1, 2] {
        within(120, move || {
            let rt = Runtime::builder().workers(workers).long_step_threshold(Duration::MAX).build().unwrap();
            let (busy, spawned) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicBool::new(false)));
            for _ in 1..workers {
                let (busy, spawned) = (busy.clone(), spawned.clone());
                let _ = rt.spawn(async move |_: Context| {
                    busy.fetch_add(1, Ordering::SeqCst);
                    while !spawned.load(Ordering::SeqCst) {
                        thread::yield_now();
                    }
                });
            }
            let parent = rt.spawn(async move |ctx: Context| {
                while busy.load(Ordering::SeqCst) < workers as u64 {
                    ctx.yield_now().await;
                }
                let children: Vec<_> =
                    (0..20_000_u64).map(|n| ctx.spawn(async move |_: Context| Ok::<_, Exit>(n))).collect();
                spawned.store(true, Ordering::SeqCst);
                let mut sum = 0;
                for child in children {
                    sum += child.await?;
                }
                Ok::<_, Exit>(sum)
            });
            assert_eq!(block_on(parent).unwrap(), 199_990_000);
            // No task was stolen. The queues of a worker and its `next` slot together have space for 8,193 tasks. The
            // remaining tasks move to the injector in batches of 128.
            assert!(rt.counters().overflows >= (20_000 - 8_193) / 128, "{} overflows", rt.counters().overflows);
        });
    }
}

/// 4.2a, 4.2c: the scheduler runs a tree of processes depth first. Therefore the number of live processes per worker
/// grows with the height of the tree, not with its width.
#[test]
fn a_tree_of_processes_runs_in_little_memory() {
    for workers in [1, 2] {
        within(120, move || {
            // With a finite long-step threshold, a replacement thread could take over from a worker that the operating
            // system has preempted. The replacement thread would run another part of the tree concurrently, so more
            // processes would be alive.
            let rt = Runtime::builder().workers(workers).long_step_threshold(Duration::MAX).build().unwrap();
            let host = rt.host().clone();
            let alive = Arc::new(Alive::default());
            let depth = many(16, 12) as u32;
            let walked = rt.spawn(counting_tree(depth, alive.clone()));
            assert_eq!(block_on(walked).unwrap(), (2 << depth) - 1);
            let most = alive.most.load(Ordering::SeqCst);
            println!("{workers} workers: {most} alive at most, of {}", (2 << depth) - 1);
            // On each level of the tree, the waiting parent and one sibling of the running child are alive. From time
            // to time, a worker also runs the oldest process of its queue. The oldest process then spawns its subtree
            // early, so this subtree is alive too.
            assert!(most <= 40 * u64::from(depth), "{most}");
            assert_eq!(host.counters().spawned, (2 << depth) - 1);
        });
    }

    /// The number of live processes of a tree, and the maximum of this number so far. `Counters::processes_alive` is
    /// not exact enough for this test, because one thread adds up the counters of all workers. If the operating system
    /// preempts this thread, another worker continues and changes its own counters.
    #[derive(Default)]
    struct Alive {
        now: AtomicU64,
        most: AtomicU64,
    }

    impl Alive {
        /// Counts one process as alive, from before its spawn until the returned guard is dropped.
        fn count(self: &Arc<Self>) -> impl Drop + Send + use<> {
            struct Counted(Arc<Alive>);
            impl Drop for Counted {
                fn drop(&mut self) {
                    self.0.now.fetch_sub(1, Ordering::SeqCst);
                }
            }
            let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            Counted(self.clone())
        }
    }

    /// Like `tree`, but each process also counts itself as alive.
    fn counting_tree(
        depth: u32,
        alive: Arc<Alive>,
    ) -> impl FnOnce(Context) -> BoxFuture<'static, Result<u64, Exit>> + Send + 'static {
        let counted = alive.count();
        move |ctx| {
            Box::pin(async move {
                let _counted = counted;
                if depth == 0 {
                    return Ok(1);
                }
                let child = || ctx.spawn(counting_tree(depth - 1, alive.clone()));
                let (left, right) = (child(), child());
                Ok(left.await? + right.await? + 1)
            })
        }
    }
}

/// 4.2g: no program may rely on the order of the processes in the queues. The test runs the programs of other tests
/// with `Builder::shuffle`, which also shuffles the tasks in the `next` slots.
#[test]
fn programs_give_correct_results_with_shuffled_queues() {
    for seed in 0..many(20, 5) {
        within(120, move || {
            let workers = 1 + seed as usize % 4;
            let rt = Runtime::builder().workers(workers).shuffle(true).seed(seed).build().unwrap();
            assert_eq!(block_on(rt.spawn(tree(8))).unwrap(), 511);
            let sum = block_on(rt.spawn(|ctx| fan_out_and_in(ctx, 50, 10))).unwrap();
            assert_eq!(sum, 50 * 45 + 10 * 50 * 49 / 2);
            // Messages from one sender to one receiver still arrive in order.
            let reader = rt.spawn(async |mut ctx: Context<u64>| {
                for n in 0..1000 {
                    assert_eq!(ctx.receive().await?, n);
                }
                Ok::<_, Exit>(())
            });
            let to = reader.address();
            let writer = rt.spawn(async move |ctx: Context| {
                for n in 0..1000 {
                    to.send(n)?;
                    if n % 7 == 0 {
                        ctx.yield_now().await;
                    }
                }
                Ok::<_, Exit>(())
            });
            block_on(writer).unwrap();
            block_on(reader).unwrap();
        });
    }
}

/// 4.3b: the test runs the programs of other tests with LIFO local queues.
#[test]
fn programs_give_correct_results_with_lifo_queues() {
    for workers in [1, 2, 4] {
        within(120, move || {
            let rt = Runtime::builder().workers(workers).local_order(QueueOrder::Lifo).build().unwrap();
            let depth = many(14, 10) as u32;
            assert_eq!(block_on(rt.spawn(tree(depth))).unwrap(), (2 << depth) - 1);
            let sum = block_on(rt.spawn(|ctx| fan_out_and_in(ctx, 400, 20))).unwrap();
            assert_eq!(sum, 400 * 20 * 19 / 2 + 20 * 400 * 399 / 2);
            let all: Vec<_> = (0..1000)
                .map(|_| {
                    rt.spawn(async |ctx: Context| {
                        for _ in 0..50 {
                            ctx.yield_now().await;
                        }
                    })
                })
                .collect();
            all.into_iter().for_each(|one| block_on(one).unwrap());
        });
    }
}

/// 4.3b, 4.6a: the local queue is LIFO, and a process starts an endless chain of spawns. The process at position n of
/// the queue waits for at most 16 · n turns of the chain. A process that has called `yield_now` waits for at most 61
/// turns. A process that is spawned from outside the runtime runs too.
#[test]
fn lifo_order_starves_no_process() {
    within(60, || {
        fn next(
            links: Arc<AtomicU64>,
        ) -> impl FnOnce(Context) -> BoxFuture<'static, Result<(), Exit>> + Send + 'static {
            move |ctx| {
                Box::pin(async move {
                    links.fetch_add(1, Ordering::SeqCst);
                    let _ = ctx.spawn(next(links));
                    Ok(())
                })
            }
        }
        let rt = alone().local_order(QueueOrder::Lifo).build().unwrap();
        let links = Arc::new(AtomicU64::new(0));
        let seen = links.clone();
        let parent = rt.spawn(async move |ctx: Context| {
            let turn = |seen: &Arc<AtomicU64>| {
                let seen = seen.clone();
                async move |_: Context| Ok::<_, Exit>(seen.load(Ordering::SeqCst))
            };
            let waiting: Vec<_> = (0..20).map(|_| ctx.spawn(turn(&seen))).collect();
            let before = seen.load(Ordering::SeqCst);
            let _ = ctx.spawn(next(seen.clone()));
            let mut turns = Vec::new();
            for one in waiting {
                turns.push(one.await? - before);
            }
            let mut most = 0;
            for _ in 0..many(2_000, 200) {
                let before = seen.load(Ordering::SeqCst);
                ctx.yield_now().await;
                most = most.max(seen.load(Ordering::SeqCst) - before);
            }
            Ok::<_, Exit>((turns, most))
        });
        let (turns, most) = block_on(parent).unwrap();
        println!("turns of those who waited: {turns:?}; of one that yields: {most}");
        for (n, turn) in turns.iter().enumerate() {
            assert!(*turn <= 16 * (n as u64 + 1), "{turn} links before the turn of number {n}");
        }
        assert!(most <= 61, "{most}");
        // A process that is spawned from outside the runtime runs too.
        let before = links.load(Ordering::SeqCst);
        let seen = links.clone();
        let outside = rt.spawn(async move |_: Context| Ok::<_, Exit>(seen.load(Ordering::SeqCst)));
        assert!(block_on(outside).unwrap() >= before);
    });
}

/// 1.5a, 4.2a: processes move between workers. If a worker steals a process, the process continues on this worker.
#[test]
fn processes_move_between_workers() {
    within(60, || {
        // No worker gets a replacement thread, so the two threads are two different workers.
        let rt = Runtime::builder().workers(2).long_step_threshold(Duration::MAX).build().unwrap();
        loop {
            let parent = rt.spawn(async |ctx: Context| {
                let children: Vec<_> = (0..64)
                    .map(|_| {
                        ctx.spawn(async |ctx: Context| {
                            let mut seen = HashSet::new();
                            for _ in 0..50 {
                                seen.insert(thread::current().id());
                                ctx.yield_now().await;
                            }
                            Ok::<_, Exit>(seen.len())
                        })
                    })
                    .collect();
                let mut most = 0;
                for child in children {
                    most = most.max(child.await?);
                }
                Ok::<_, Exit>(most)
            });
            if block_on(parent).unwrap() == 2 {
                return;
            }
        }
    });
}

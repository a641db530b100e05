//! Sections 4.7 and 4.1 of the specification: steps that block their worker. The monitor detects each long step and
//! reports the process of the step. Replacement threads run the other processes until the step returns. After the
//! return, the runtime has the same number of threads as before. The file also tests changes of the number of workers
//! at run time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use procession::observe::*;
use procession::*;

use crate::{patience, shut_down, within};

/// Counts the live worker threads of a runtime.
#[derive(Clone, Default)]
struct Threads(Arc<AtomicUsize>);

impl Threads {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn builder(&self, workers: usize) -> Builder {
        let live = self.clone();
        Runtime::builder().workers(workers).wrap_threads(move |work| {
            live.0.fetch_add(1, Ordering::SeqCst);
            work();
            live.0.fetch_sub(1, Ordering::SeqCst);
        })
    }
}

fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..20_000 * patience() {
        if holds() {
            return;
        }
        thread::park_timeout(Duration::from_millis(1));
    }
    panic!("never: {what}");
}

/// Sender that ends blocked steps: each message ends one step, and the drop of the sender ends all blocked steps.
struct Gate(mpsc::Sender<()>);

/// Receiver that blocks the steps of processes until the test opens the gate. Several steps may share this receiver.
#[derive(Clone)]
struct Wait(Arc<Mutex<mpsc::Receiver<()>>>);

fn gate() -> (Gate, Wait) {
    let (open, wait) = mpsc::channel();
    (Gate(open), Wait(Arc::new(Mutex::new(wait))))
}

impl Gate {
    fn release_one(&self) {
        self.0.send(()).unwrap();
    }
}

impl Wait {
    fn block(&self) {
        let _ = self.0.lock().unwrap().recv();
    }
}

/// Spawns a process whose step blocks, and returns when that step has started.
fn blocked(rt: &Runtime, wait: &Wait) -> JoinHandle<()> {
    let wait = wait.clone();
    let (begun, has_begun) = mpsc::channel();
    let process = rt.spawn(async move |_: Context| {
        let _ = begun.send(());
        wait.block();
    });
    has_begun.recv().unwrap();
    process
}

/// 4.7a, 4.7d, 4.7f: while both workers are blocked in steps, a thousand other processes run, sleep and exit. After the
/// blocked steps have returned, the runtime has the same number of threads as before.
#[test]
fn long_steps_do_not_delay_other_processes() {
    within(60, || {
        let threads = Threads::default();
        // The default threshold, multiplied by the factor for slow environments.
        let rt = threads.builder(2).long_step_threshold(Duration::from_millis(10) * patience()).build().unwrap();
        let (gate, wait) = gate();
        let stuck = [blocked(&rt, &wait), blocked(&rt, &wait)];
        let light: Vec<_> = (0..1000_u64)
            .map(|n| {
                rt.spawn(async move |ctx: Context| {
                    if n % 10 == 0 {
                        ctx.sleep(Duration::from_millis(1 + n % 7)).await;
                    }
                    ctx.yield_now().await;
                    Ok::<_, Exit>(n)
                })
            })
            .collect();
        assert_eq!(light.into_iter().map(|one| block_on(one).unwrap()).sum::<u64>(), 499_500);
        assert!(stuck.iter().all(|one| !one.is_finished()));
        assert!(threads.count() > 2);
        // The thread that replaces the first blocked worker may run all light processes before the monitor detects the
        // second long step. Therefore the test waits for this detection. The counter of long steps may exceed 2. A busy
        // operating system may suspend the step of a light process for longer than the threshold. This step then also
        // counts as a long step.
        eventually("both long steps are detected", || rt.counters().long_steps >= 2);
        drop(gate);
        stuck.into_iter().for_each(|one| block_on(one).unwrap());
        eventually("the substitutes are gone", || threads.count() == 2);
        let all: Vec<_> = (0..100_u64).map(|n| rt.spawn(async move |_: Context| Ok::<_, Exit>(n))).collect();
        assert_eq!(all.into_iter().map(|one| block_on(one).unwrap()).sum::<u64>(), 4950);
        // If the system suspends a worker for longer than the threshold, a replacement thread starts again for this
        // worker.
        eventually("there are two threads again", || threads.count() == 2);
    });
}

/// 4.7d, 4.7e: a step spawns a task and then blocks its worker. The task waits in the worker's `next` slot, and no
/// other worker was woken for the task. Nevertheless, a replacement thread runs the task. After the monitor has
/// detected the long step, the step spawns more tasks. A replacement thread runs these tasks too.
#[test]
fn a_task_in_the_next_slot_of_a_blocked_worker_still_runs() {
    within(60, || {
        let rt = Runtime::builder().workers(1).build().unwrap();
        let waits = rt.spawn(async |ctx: Context| {
            for _ in 0..20 {
                let (answer, is_answered) = mpsc::channel();
                let _ = ctx.spawn(async move |_: Context| {
                    let _ = answer.send(());
                });
                is_answered.recv().map_err(Exit::failed)?;
            }
            Ok::<_, Exit>(())
        });
        block_on(waits).unwrap();
        assert!(rt.counters().long_steps >= 1);
    });
}

/// 4.7d, 4.7e: no spawn and no message of a blocking step is lost. In each round, the step spawns 10, then 400 and then
/// 3000 processes. While the step spawns these processes, another thread takes over the queues of the worker.
#[test]
fn no_spawn_and_no_message_of_a_long_step_is_lost() {
    for by_hand in [false, true] {
        within(60, move || {
            let rt = Runtime::builder().workers(2).build().unwrap();
            let sums = rt.spawn(async |mut ctx: Context<u64>| {
                let mut sum = 0;
                for _ in 0..3 * (10 + 400 + 3000) {
                    sum += ctx.receive().await?;
                }
                Ok::<_, Exit>(sum)
            });
            let to = sums.address();
            let (done, is_done) = mpsc::channel();
            let busy = rt.spawn(async move |ctx: Context| {
                let round = || {
                    for count in [10, 400, 3000] {
                        for _ in 0..count {
                            let (to, done) = (to.clone(), done.clone());
                            let _ = ctx.spawn(async move |_: Context| {
                                let _ = to.send(1);
                                let _ = done.send(());
                            });
                        }
                        (0..count).for_each(|_| is_done.recv().unwrap());
                    }
                };
                if by_hand {
                    block_in_place(|| (round(), round()));
                } else {
                    round();
                    round();
                }
                round();
            });
            block_on(busy).unwrap();
            assert_eq!(block_on(sums).unwrap(), 3 * 3410);
            eventually("all have ended", || rt.counters().spawned == rt.counters().exited);
        });
    }
}

#[derive(Default)]
struct Watch {
    blocked: Mutex<Vec<(usize, Option<Pid>)>>,
    states: Mutex<Vec<(usize, WorkerState)>>,
}

struct Watcher(Arc<Watch>);

impl Observer for Watcher {
    fn worker(&self, worker: usize, state: WorkerState, _: Instant) {
        self.0.states.lock().unwrap().push((worker, state));
    }

    fn blocked(&self, worker: usize, pid: Option<Pid>, _: Instant) {
        self.0.blocked.lock().unwrap().push((worker, pid));
        panic!("nobody is hurt by this");
    }
}

/// 4.7c, 5.2c: a long step is counted once. The observer receives the pid of the process that runs the step. The worker
/// that runs the step is in the state `Blocked`. Short steps are not reported.
#[test]
fn a_long_step_is_reported_once_with_its_process() {
    within(60, || {
        let watch = Arc::new(Watch::default());
        let rt = Runtime::builder().workers(1).observer(Watcher(watch.clone())).build().unwrap();
        let short: Vec<_> = (0..1000).map(|_| rt.spawn(async |ctx: Context| -> () { ctx.yield_now().await })).collect();
        short.into_iter().for_each(|one| block_on(one).unwrap());
        let (gate, wait) = gate();
        let stuck = blocked(&rt, &wait);
        let pid = stuck.pid();
        let named = |pid: Pid| {
            let blocked = watch.blocked.lock().unwrap();
            blocked.iter().find(|(_, named)| *named == Some(pid)).map(|&(worker, _)| worker)
        };
        eventually("it is named", || named(pid).is_some());
        let worker = named(pid).expect("it is named");
        assert!(watch.states.lock().unwrap().contains(&(worker, WorkerState::Blocked)));
        // The monitor checks every worker in each round, and needs several rounds to detect the second step. In these
        // rounds the monitor also checks the first step again. The monitor must not report the first step a second
        // time.
        let (other_gate, wait) = self::gate();
        let other = blocked(&rt, &wait);
        let other_pid = other.pid();
        eventually("the other is named", || named(other_pid).is_some());
        drop((gate, other_gate));
        block_on(stuck).unwrap();
        block_on(other).unwrap();
        let named: Vec<_> = watch.blocked.lock().unwrap().iter().map(|&(_, pid)| pid).collect();
        assert_eq!([pid, other_pid].map(|pid| named.iter().filter(|&&named| named == Some(pid)).count()), [1, 1]);
        assert!(rt.counters().long_steps >= named.len() as u64);
    });
}

/// 4.7h: a call of `block_in_place` immediately hands the queues of the calling worker over to another thread, even in
/// a runtime without a monitor. The closure of `block_in_place` may panic.
#[test]
fn a_call_of_block_in_place_immediately_hands_over_the_queues_of_its_worker() {
    within(60, || {
        let threads = Threads::default();
        let rt = threads.builder(1).long_step_threshold(Duration::MAX).build().unwrap();
        let (answer, is_answered) = mpsc::channel();
        let waits = rt.spawn(async move |ctx: Context| {
            let _ = ctx.spawn(async move |_: Context| {
                let _ = answer.send(());
            });
            block_in_place(|| is_answered.recv()).map_err(Exit::failed)
        });
        block_on(waits).unwrap();
        let panics = rt.spawn(async |_: Context| -> () { block_in_place(|| panic!("in place")) });
        assert!(matches!(block_on(panics), Err(Exit::Panicked(_))));
        assert_eq!(rt.counters().long_steps, 0);
        eventually("one worker is left", || threads.count() == 1);
        assert_eq!(block_on(rt.spawn(async |_: Context| Ok::<_, Exit>(7))).unwrap(), 7);
    });
}

/// 4.6a, 4.7d: the replacement thread always has a process to run, because one process yields in a loop. The processes
/// in the queues of the blocked worker still run. The blocked step spawns three of these processes before the
/// replacement thread takes over the queues. The step spawns three more processes after the replacement thread has
/// taken over the queues.
#[test]
fn no_idle_worker_is_needed_to_run_the_processes_of_a_blocked_worker() {
    within(60, || {
        let rt = Runtime::builder().workers(1).long_step_threshold(Duration::MAX).build().unwrap();
        let turns = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&turns);
        let endless = rt.spawn(async move |ctx: Context| -> Result<(), Exit> {
            loop {
                counted.fetch_add(1, Ordering::SeqCst);
                ctx.yield_now().await;
            }
        });
        eventually("the endless process runs", || turns.load(Ordering::SeqCst) != 0);
        let blocks = rt.spawn(async move |ctx: Context| {
            let (answer, answers) = mpsc::channel();
            let answering = || {
                let answer = answer.clone();
                let _ = ctx.spawn(async move |_: Context| {
                    let _ = answer.send(());
                });
            };
            (0..3).for_each(|_| answering());
            block_in_place(|| {
                let begun = turns.load(Ordering::SeqCst);
                // The replacement thread now always has a process to run, and does not search any more.
                eventually("the replacement runs", || turns.load(Ordering::SeqCst) >= begun + 1_000);
                (0..3).for_each(|_| answering());
                (0..6).try_for_each(|_| answers.recv())
            })
            .map_err(Exit::failed)
        });
        block_on(blocks).unwrap();
        endless.abort();
        assert!(matches!(block_on(endless), Err(Exit::Killed)));
    });
}

/// 4.7d, 4.7f, 4.7g: if a replacement thread blocks, another thread replaces it. In this test, many steps block, each
/// step after the previous step has ended. Each time, another thread takes over the queues of the blocked thread, and
/// at most one replacement thread exists at a time. One thread may become a replacement thread many times.
#[test]
fn a_replacement_thread_that_blocks_is_replaced() {
    for by_hand in [true, false] {
        within(60, move || {
            let threads = Threads::default();
            let long_step = if by_hand { Duration::MAX } else { Duration::from_millis(2) };
            let rt = threads.builder(1).max_replacement_threads(1).long_step_threshold(long_step).build().unwrap();
            let rounds = if by_hand { 100 } else { 20 };
            for round in 0..rounds {
                let blocks = rt.spawn(async move |ctx: Context| {
                    let (answer, is_answered) = mpsc::channel();
                    let _ = ctx.spawn(async move |_: Context| {
                        let _ = answer.send(round);
                    });
                    let wait = || is_answered.recv();
                    if by_hand { block_in_place(wait) } else { wait() }.map_err(Exit::failed)
                });
                assert_eq!(block_on(blocks).unwrap(), round);
            }
            eventually("one worker is left", || threads.count() == 1);
            if !by_hand {
                assert!(rt.counters().long_steps >= rounds, "{}", rt.counters());
            }
        });
    }
}

/// 4.1a: by default, a runtime has one worker per core, and at most 40 workers.
#[test]
fn the_default_number_of_workers_is_the_number_of_cores() {
    within(60, || {
        let started = Arc::new(AtomicUsize::new(0));
        let count = started.clone();
        let builder = Runtime::builder().wrap_threads(move |work| {
            count.fetch_add(1, Ordering::SeqCst);
            work();
        });
        drop(builder.build().unwrap());
        let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        assert_eq!(started.load(Ordering::SeqCst), cores.min(40));
    });
}

/// 4.7h: `block_in_place` also works on a thread that is not a worker, for example on a guest thread. The call returns
/// the result of the closure.
#[test]
fn a_call_of_block_in_place_works_on_any_thread() {
    within(60, || {
        assert_eq!(block_in_place(|| 1), 1);
        for workers in [0, 1] {
            let rt = Runtime::builder().workers(workers).build().unwrap();
            assert_eq!(rt.block_on(async { block_in_place(|| 2) }), 2);
            let body = async |_: Context| Ok::<_, Exit>(block_in_place(|| block_in_place(|| 3)));
            assert_eq!(rt.block_on(rt.spawn(body)).unwrap(), 3);
        }
    });
}

/// 4.7f, 4.7g: the runtime has at most `max_replacement_threads` replacement threads, by default 16. If every thread is
/// blocked, a runnable process waits until one of the blocked steps returns.
#[test]
fn the_number_of_replacement_threads_is_bounded() {
    within(60, || {
        for (option, most) in [(Some(0), 0), (Some(1), 1), (Some(3), 3), (None, 16)] {
            let threads = Threads::default();
            let builder = threads.builder(1).long_step_threshold(Duration::ZERO);
            let rt = option.into_iter().fold(builder, Builder::max_replacement_threads).build().unwrap();
            let (gate, wait) = gate();
            let stuck: Vec<_> = (0..=most).map(|_| blocked(&rt, &wait)).collect();
            let ran = Arc::new(AtomicBool::new(false));
            let runs = ran.clone();
            let waits = rt.spawn(async move |_: Context| runs.store(true, Ordering::SeqCst));
            eventually("all are known to be long", || rt.counters().long_steps == most as u64 + 1);
            thread::sleep(Duration::from_millis(20));
            assert!(!ran.load(Ordering::SeqCst));
            assert_eq!(threads.count(), most + 1);
            gate.release_one();
            block_on(waits).unwrap();
            drop(gate);
            stuck.into_iter().for_each(|one| block_on(one).unwrap());
            eventually("one worker is left", || threads.count() == 1);
        }
    });
}

/// 4.7d, 6.5c, 6.5d, 8.3b, 8.3c: if a step never returns, a replacement thread takes over the queues of the worker that
/// runs the step. A shutdown still completes, and the report of the shutdown names the process that runs the step. The
/// drop of the runtime completes too.
#[test]
fn a_shutdown_does_not_wait_for_a_step_whose_worker_was_replaced() {
    within(60, || {
        for workers in [1, 2] {
            let rt = Runtime::builder().workers(workers).build().unwrap();
            let (_gate, wait) = gate();
            let stuck = blocked(&rt, &wait);
            eventually("it is noticed", || rt.counters().long_steps == 1);
            block_on(rt.spawn(async |_: Context| ())).unwrap();
            let ended = shut_down(rt, Duration::from_millis(50));
            assert_eq!(ended.left.iter().map(|left| left.pid).collect::<Vec<_>>(), [stuck.pid()]);
            assert_eq!(ended.left[0].state, Some(ProcessState::Running));
        }
        let rt = Runtime::builder().workers(1).build().unwrap();
        let (_gate, wait) = gate();
        let _stuck = blocked(&rt, &wait);
        eventually("it is noticed", || rt.counters().long_steps == 1);
        drop(rt);
    });
}

/// 4.7a, 4.7d: while the future of a guest thread blocks, the workers run the tasks in the queues of this guest thread.
/// The monitor does not report this future, even if the future blocks for longer than the threshold of a long step.
#[test]
fn the_future_of_a_guest_thread_is_not_reported_as_a_long_step() {
    within(60, || {
        let watch = Arc::new(Watch::default());
        let rt = Runtime::builder().workers(1).observer(Watcher(watch.clone())).build().unwrap();
        let (gate, wait) = gate();
        let (stuck,) = rt.block_on(async {
            let (answer, is_answered) = mpsc::channel();
            let _ = rt.spawn(async move |_: Context| {
                let _ = answer.send(());
            });
            is_answered.recv().unwrap();
            let stuck = blocked(&rt, &wait);
            let pid = stuck.pid();
            eventually("it is named", || watch.blocked.lock().unwrap().iter().any(|&(_, named)| named == Some(pid)));
            (stuck,)
        });
        drop(gate);
        block_on(stuck).unwrap();
        assert!(watch.blocked.lock().unwrap().iter().all(|(_, named)| named.is_some()));
    });
}

/// 4.7a: while the future of a guest thread blocks, the metrics show no worker as blocked.
#[test]
fn the_blocked_future_of_a_guest_thread_does_not_count_as_a_blocked_worker() {
    within(60, || {
        let rt = Runtime::builder().workers(1).build().unwrap();
        let check = || {
            let metrics = rt.metrics();
            assert_eq!(metrics.workers_in(WorkerState::Blocked), 0, "{metrics}");
            assert_ne!(metrics.workers_in(WorkerState::Running), 0, "{metrics}");
            assert_eq!(rt.explain().findings, []);
        };
        eventually("the worker sleeps", || rt.metrics().workers_in(WorkerState::Parked) == 1);
        // The process waits in a queue of this thread. While the future blocks, the queues of this thread are handed
        // over, and the hand-over wakes the worker.
        rt.block_on(async {
            let (answer, is_answered) = mpsc::channel();
            let _ = rt.spawn(async move |_: Context| {
                let _ = answer.send(());
            });
            is_answered.recv().unwrap();
            check();
        });
        rt.block_on(async { block_in_place(check) });
    });
}

/// 4.1a: the number of workers changes while processes run. First, a thread outside the runtime changes the number
/// several times, for example to zero and back. Then a step of a process changes the number. No process is lost.
#[test]
fn the_number_of_workers_can_change_at_run_time() {
    within(120, || {
        let threads = Threads::default();
        // The infinite threshold prevents replacement threads, which would change the number of threads.
        let rt = Arc::new(threads.builder(1).long_step_threshold(Duration::MAX).build().unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let all: Vec<_> = (0..50_u64)
            .map(|n| {
                let stop = stop.clone();
                rt.spawn(async move |ctx: Context| {
                    while !stop.load(Ordering::Relaxed) {
                        ctx.yield_now().await;
                        if n % 5 == 0 {
                            ctx.sleep(Duration::from_micros(n * 20)).await;
                        }
                    }
                    Ok::<_, Exit>(n)
                })
            })
            .collect();
        for count in [3, 1, 4, 0, 2, 2, 8, 1, 0, 5] {
            rt.set_workers(count);
            eventually("there are as many as asked for", || threads.count() == count);
        }
        let inside = rt.clone();
        block_on(rt.spawn(async move |_: Context| inside.set_workers(2))).unwrap();
        eventually("there are two", || threads.count() == 2);
        rt.set_workers(usize::MAX);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(all.into_iter().map(|one| block_on(one).unwrap()).sum::<u64>(), 1225);
        rt.set_workers(0);
        eventually("there is none", || threads.count() == 0);
        // Without workers, guest threads run the processes.
        assert_eq!(rt.block_on(rt.spawn(async |_: Context| Ok::<_, Exit>(7))).unwrap(), 7);
    });
}

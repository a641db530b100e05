//! Section 4.10 of the specification: processes of high priority run first, and processes of low priority still get
//! their share of the turns.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use futures::executor::block_on;
use procession::*;

use crate::{alone, step_aside, within};

const ALL: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];

/// Runs processes of the three priorities on one worker. `each` contains the number of processes of each priority.
/// Returns the number of turns of each priority among the first `turns` turns.
fn shares(each: [usize; 3], turns: usize) -> [usize; 3] {
    within(60, move || {
        let rt = alone().build().unwrap();
        let parent = rt.spawn(async move |ctx: Context| {
            let log = Arc::new(Mutex::new(Vec::new()));
            let gate = Arc::new(AtomicUsize::new(0));
            let all: usize = each.iter().sum();
            let mut children = Vec::new();
            for (class, priority) in ALL.into_iter().enumerate() {
                for _ in 0..each[class] {
                    let (log, gate) = (log.clone(), gate.clone());
                    let body = async move |ctx: Context| {
                        gate.fetch_add(1, Ordering::SeqCst);
                        while gate.load(Ordering::SeqCst) < all {
                            ctx.yield_now().await;
                        }
                        while log.lock().unwrap().len() < turns {
                            log.lock().unwrap().push(class);
                            ctx.yield_now().await;
                        }
                    };
                    children
                        .push(ctx.process().priority(priority).spawn(body).map_err(|e| Exit::failed(e.to_string()))?);
                }
            }
            for child in children {
                child.await?;
            }
            let log = log.lock().unwrap();
            Ok::<_, Exit>([0, 1, 2].map(|class| log[..turns].iter().filter(|&&of| of == class).count()))
        });
        block_on(parent).unwrap()
    })
}

/// 4.10a: of 16 turns, high priority gets 12, normal priority gets 3 and low priority gets 1. The number of processes
/// of each priority does not matter. If a priority has no runnable process, another priority gets its turn.
#[test]
fn each_priority_gets_its_share_of_turns() {
    let turns = 16_000;
    for each in [[1, 1, 1], [5, 1, 1], [2, 20, 3], [1, 1, 40]] {
        let got = shares(each, turns);
        println!("{each:?}: {got:?} turns");
        for (got, share) in got.into_iter().zip([12, 3, 1]) {
            let fair = turns * share / 16;
            assert!(got.abs_diff(fair) <= turns / 100, "{got} turns, not {fair}, of {each:?}");
        }
    }
    for (each, share) in
        [([0, 3, 3], [0, 15, 1]), ([3, 0, 3], [15, 0, 1]), ([3, 3, 0], [12, 4, 0]), ([0, 0, 2], [0, 0, 16])]
    {
        let got = shares(each, turns);
        println!("{each:?}: {got:?} turns");
        for (got, share) in got.into_iter().zip(share) {
            assert!(got.abs_diff(turns * share / 16) <= turns / 100, "{got:?} of {each:?}");
        }
    }
}

/// 4.10a: many processes of normal priority are runnable. A runnable process of high priority still waits for at most
/// three turns.
#[test]
fn a_runnable_process_of_high_priority_waits_for_few_turns() {
    within(60, || {
        let rt = alone().build().unwrap();
        let parent = rt.spawn(async |ctx: Context| {
            let turns = Arc::new(AtomicU64::new(0));
            let worst = Arc::new(AtomicU64::new(0));
            let (now, most) = (turns.clone(), worst.clone());
            let urgent = ctx.process().priority(Priority::High).spawn(async move |mut ctx: Context<u64>| {
                while let Ok(sent) = ctx.receive().await {
                    most.fetch_max(now.load(Ordering::SeqCst) - sent, Ordering::SeqCst);
                }
            });
            let urgent = urgent.map_err(|refused| Exit::failed(refused.to_string()))?;
            let busy: Vec<_> = (0..500)
                .map(|_| {
                    let (turns, urgent) = (turns.clone(), urgent.address());
                    ctx.spawn(async move |ctx: Context| {
                        for round in 0..40_u64 {
                            let now = turns.fetch_add(1, Ordering::SeqCst);
                            if now % 7 == round % 7 {
                                urgent.send(now + 1)?;
                            }
                            ctx.yield_now().await;
                        }
                        Ok::<_, Exit>(())
                    })
                })
                .collect();
            for one in busy {
                one.await?;
            }
            urgent.abort();
            Ok::<_, Exit>(worst.load(Ordering::SeqCst))
        });
        let worst = block_on(parent).unwrap();
        assert!(worst <= 3, "{worst} turns of others");
    });
}

/// 4.4a, 4.10a: an idle runtime runs a new process of any priority. The test spawns the processes from a thread outside
/// the runtime and from a step.
#[test]
fn no_wake_up_is_lost_for_any_priority() {
    for workers in [1, 2, 4] {
        within(120, move || {
            let rt = Runtime::builder().workers(workers).build().unwrap();
            let (done, is_done) = mpsc::channel();
            for n in 0..3_000_usize {
                let done = done.clone();
                let inner = ALL[n / 3 % 3];
                let outer = rt.process().priority(ALL[n % 3]).spawn(async move |ctx: Context| {
                    let body = async move |ctx: Context| {
                        ctx.yield_now().await;
                        let _ = done.send(n);
                    };
                    drop(ctx.process().priority(inner).spawn(body));
                });
                assert!(outer.is_ok());
                assert_eq!(is_done.recv(), Ok(n));
            }
        });
    }
}

/// 4.10a: the new priority of a process has an effect when the process becomes runnable again. A mailbox without a
/// process has no priority.
#[test]
fn the_priority_of_a_process_can_be_changed() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    let process = |number: usize| {
        let log = log.clone();
        rt.spawn(async move |mut ctx: Context<()>| {
            ctx.receive().await?;
            log.lock().unwrap().push(number);
            Ok::<_, Exit>(())
        })
    };
    let all: Vec<_> = (0..6).map(process).collect();
    all.iter().for_each(|process| rt.block_on(process.started()).unwrap());
    for (process, priority) in all.iter().zip([ALL[2], ALL[2], ALL[1], ALL[1], ALL[0], ALL[0]]) {
        rt.set_priority(process.pid(), priority).unwrap();
    }
    all.iter().for_each(|process| process.send(()).unwrap());
    let pids: Vec<_> = all.iter().map(|process| process.pid()).collect();
    all.into_iter().for_each(|process| rt.block_on(process).unwrap());
    let log = log.lock().unwrap();
    let place = |number: usize| log.iter().position(|one| *one == number).unwrap();
    assert!(place(4) < place(0) && place(5) < place(1), "{log:?}");
    assert_eq!(rt.set_priority(pids[0], Priority::High), Err(NoProcess(pids[0])));
    let (address, mailbox) = rt.mailbox::<()>();
    assert_eq!(rt.set_priority(address.pid(), Priority::High), Err(NoProcess(address.pid())));
    drop(mailbox);
}

/// 4.7e, 4.10a: a long step spawns processes of all priorities, and these processes run on another thread. When a
/// runtime is dropped, the queued processes of all priorities are dropped too.
#[test]
fn processes_of_every_priority_run_during_a_long_step_and_are_dropped_with_the_runtime() {
    within(60, || {
        let rt = alone().build().unwrap();
        let parent = rt.spawn(async |ctx: Context| {
            let ran = Arc::new(AtomicUsize::new(0));
            for priority in ALL {
                let ran = ran.clone();
                let body = async move |_: Context| {
                    ran.fetch_add(1, Ordering::SeqCst);
                };
                drop(ctx.process().priority(priority).spawn(body));
            }
            block_in_place(|| {
                while ran.load(Ordering::SeqCst) < 3 {
                    std::thread::yield_now();
                }
            });
        });
        block_on(parent).unwrap();
        let dropped = Arc::new(());
        let none = Runtime::builder().workers(0).build().unwrap();
        for priority in ALL {
            let held = dropped.clone();
            drop(none.process().priority(priority).spawn(async move |_: Context| drop(held)));
        }
        assert_eq!(Arc::strong_count(&dropped), 4);
        drop(none);
        assert_eq!(Arc::strong_count(&dropped), 1);
    });
}

/// 4.10a: each call of `block_on` in this test runs only a few turns. Over all these calls together, each priority gets
/// at least half of its share of the turns.
#[test]
fn many_short_runs_on_a_guest_thread_starve_no_priority() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let counts: Arc<[AtomicU64; 3]> = Arc::default();
        for (class, priority) in ALL.into_iter().enumerate() {
            let counts = Arc::clone(&counts);
            let body = async move |ctx: Context| -> Result<(), Exit> {
                loop {
                    counts[class].fetch_add(1, Ordering::Relaxed);
                    ctx.yield_now().await;
                }
            };
            drop(rt.process().priority(priority).spawn(body).unwrap());
        }
        for _ in 0..1_600 {
            rt.block_on(step_aside());
        }
        let counts = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        assert!(counts.iter().zip([1_200, 300, 100]).all(|(&got, share)| got >= share / 2), "{counts:?}");
    });
}

//! Section 4.5 of the specification: spawning many processes in one call.

use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use procession::observe::WorkerState;
use procession::*;

use crate::{alone, shut_down, within};

/// Checks that all thousand processes ran. A process may run up to 17 places earlier or later than its position in the
/// batch. The reason is that the worker takes every 61st task directly from the injector. A task from the injector
/// overtakes up to 16 tasks of the batch. The overtaken tasks are the tasks that the worker has already moved to the
/// local queue of the worker.
fn in_order(seen: &[u64]) {
    assert_eq!(seen.len(), 1000);
    for (n, &number) in (0_u64..).zip(seen) {
        assert!(number.abs_diff(n) <= 17, "{number} is number {n}");
    }
}

/// 4.5g: all processes of a batch run, in the order of the batch. The test spawns a batch from another thread, a batch
/// from a process, and an empty batch.
#[test]
fn the_processes_of_a_batch_run_in_order() {
    within(60, || {
        let rt = alone().build().unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let body = |n: u64| {
            let order = order.clone();
            async move |_: Context| {
                order.lock().unwrap().push(n);
                Ok::<_, Exit>(n)
            }
        };
        let outside = rt.spawn_batch((0..1000).map(body));
        let ends: Vec<u64> = outside.into_iter().map(|one| block_on(one.unwrap()).unwrap()).collect();
        assert_eq!(ends, (0..1000).collect::<Vec<_>>());
        in_order(&std::mem::take(&mut *order.lock().unwrap()));
        let bodies: Vec<_> = (0..1000).map(body).collect();
        let parent = rt.process().value(7_u8).spawn(async move |ctx: Context| {
            for child in ctx.spawn_batch(bodies) {
                child.map_err(|refused| Exit::failed(refused.kind().to_string()))?.await?;
            }
            let heirs = ctx.spawn_batch([async |ctx: Context| ctx.value::<u8>().map(|seven| *seven).ok_or("none")]);
            for heir in heirs {
                assert_eq!(heir.unwrap().await?, 7);
            }
            Ok::<_, Exit>(())
        });
        block_on(parent.unwrap()).unwrap();
        in_order(&order.lock().unwrap());
        assert!(rt.spawn_batch((0..0).map(body)).is_empty());
    });
}

/// 4.5g: a batch of k processes wakes at most k sleeping workers. When a woken worker finds a task, this worker may
/// wake one more worker. Therefore the test accepts up to `2 * k` wake-ups.
#[test]
fn a_batch_of_k_processes_wakes_at_most_k_workers() {
    for k in 1..=3 {
        within(60, move || {
            let rt = Runtime::builder().workers(8).long_step_threshold(Duration::MAX).build().unwrap();
            let mut most = 0;
            for _ in 0..20 {
                while rt.metrics().workers_in(WorkerState::Parked) < 8 {
                    thread::yield_now();
                }
                // The processes block until the test has read the counter. Each process therefore needs its own worker.
                let (all_run, released) = (Arc::new(Barrier::new(k + 1)), Arc::new(Barrier::new(k + 1)));
                let wait = |_| {
                    let (all_run, released) = (all_run.clone(), released.clone());
                    async move |_: Context| {
                        all_run.wait();
                        released.wait();
                        Ok::<_, Exit>(())
                    }
                };
                let before = rt.counters().wakes;
                let batch = rt.spawn_batch((0..k).map(wait));
                all_run.wait();
                let wakes = rt.counters().wakes - before;
                released.wait();
                batch.into_iter().for_each(|one| block_on(one.unwrap()).unwrap());
                most = most.max(wakes);
            }
            println!("{k} processes: {most} wake-ups at most");
            assert!(most <= 2 * k as u64, "{most} wake-ups for {k} processes");
        });
    }
}

/// 4.5g: the processes of a batch share a barrier, so the batch finishes only if every worker runs a process of the
/// batch.
#[test]
fn a_batch_wakes_a_worker_for_each_process() {
    for workers in [2, 3, 8] {
        within(60, move || {
            let rt = Runtime::builder().workers(workers).build().unwrap();
            for round in 0..200 {
                let together = Arc::new(Barrier::new(workers));
                let wait = |_| {
                    let together = together.clone();
                    async move |_: Context| {
                        together.wait();
                        Ok::<_, Exit>(())
                    }
                };
                if round % 2 == 0 {
                    let batch = rt.spawn_batch((0..workers).map(wait));
                    batch.into_iter().for_each(|one| block_on(one.unwrap()).unwrap());
                } else {
                    let bodies: Vec<_> = (0..workers).map(wait).collect();
                    let parent = rt.spawn(async move |ctx: Context| {
                        for child in ctx.spawn_batch(bodies) {
                            child.unwrap().await?;
                        }
                        Ok::<_, Exit>(())
                    });
                    block_on(parent).unwrap();
                }
            }
        });
    }
}

/// 4.9b: if a batch exceeds the process limit, the first bodies of the batch are spawned and the remaining bodies are
/// returned to the caller. After the shutdown of the runtime, all bodies of a batch are returned.
#[test]
fn bodies_above_the_process_limit_are_returned() {
    within(60, || {
        let rt = Runtime::builder().workers(1).max_processes(5).build().unwrap();
        let body = |n: u64| async move |mut ctx: Context<()>| ctx.receive().await.map(|()| n);
        let batch = rt.spawn_batch((0..8).map(body));
        let taken: Vec<_> = batch.iter().map(Result::is_ok).collect();
        assert_eq!(taken, [true, true, true, true, true, false, false, false]);
        let mut refused = Vec::new();
        for (n, one) in (0..).zip(batch) {
            match one {
                Ok(child) => {
                    child.send(()).unwrap();
                    assert_eq!(block_on(child).unwrap(), n);
                }
                Err(error) => {
                    assert!(matches!(error.kind(), SpawnErrorKind::Limit(5)));
                    refused.push(error.into_body());
                }
            }
        }
        for one in rt.spawn_batch(refused) {
            let child = one.unwrap();
            child.send(()).unwrap();
            assert!((5..8).contains(&block_on(child).unwrap()));
        }
        let host = rt.host().clone();
        drop(rt);
        let late = host.spawn_batch((0..3).map(body));
        assert!(late.iter().all(|one| matches!(one.as_ref().map_err(SpawnError::kind), Err(SpawnErrorKind::ShutDown))));
    });
}

/// 4.4a: if the iterator of bodies panics, the processes that were spawned before the panic still run.
#[test]
fn processes_that_were_spawned_before_a_panic_of_the_iterator_still_run() {
    within(60, || {
        let rt = alone().build().unwrap();
        let host = rt.host().clone();
        let batch = thread::spawn(move || {
            let bodies = (0..5).map(|n| {
                assert_ne!(n, 3, "no more of them");
                async move |mut ctx: Context<()>| ctx.receive().await
            });
            host.spawn_batch(bodies).len()
        });
        assert!(batch.join().is_err());
        assert_eq!(rt.processes_alive(), 3);
        assert!(shut_down(rt, Duration::from_secs(10)).left.is_empty());
    });
}

//! Tests of scheduling: work stealing, guest threads, a changing number of workers, replacement threads, priorities and
//! preemption.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use procession::*;
use shuttle::sync::atomic::{AtomicBool, Ordering::SeqCst};
use shuttle::thread;

use crate::{Msg, adds, futures_block_on, runtime};

scenarios! {
    /// Tasks are distributed over the workers, and every task runs.
    fn a_tree_of_processes_runs_to_completion() {
        fn tree(ctx: Context, depth: u64) -> BoxFuture<'static, Result<u64, Exit>> {
            Box::pin(async move {
                if depth == 0 {
                    return Ok(1);
                }
                let one = ctx.spawn(move |ctx| tree(ctx, depth - 1));
                let other = ctx.spawn(move |ctx| tree(ctx, depth - 1));
                Ok(one.await? + other.await?)
            })
        }
        let rt = runtime(2);
        assert_eq!(rt.block_on(rt.spawn(|ctx| tree(ctx, 2))).unwrap(), 4);
    }

    /// Two processes wake each other, either on one worker or on two workers.
    fn two_processes_wake_each_other() {
        let rt = runtime(2);
        let pong = rt.spawn(async |mut ctx: Context<(u64, Reply<u64>)>| {
            while let Ok((n, reply)) = ctx.receive().await {
                reply.send(n + 1);
            }
        });
        let to = pong.address();
        let ping = rt.spawn(async move |ctx: Context| {
            let mut n = 0;
            while n < 3 {
                n = ctx.call(&to, |reply| (n, reply)).await.map_err(Exit::failed)?;
            }
            Ok::<_, Exit>(n)
        });
        assert_eq!(rt.block_on(ping).unwrap(), 3);
    }

    /// Guest threads drive a runtime that has no workers. When a guest thread leaves, no task and no wake-up is lost.
    fn guest_threads_drive_the_runtime() {
        let rt = Arc::new(runtime(0));
        let sums = rt.spawn(adds);
        let guests: Vec<_> = (1..=2_u64)
            .map(|n| {
                let (rt, to) = (Arc::clone(&rt), sums.address());
                thread::spawn(move || rt.block_on(async {
                    let _ = to.send(Msg::Add(n));
                    to.call(Msg::Sum).await.unwrap()
                }))
            })
            .collect();
        let seen: Vec<u64> = guests.into_iter().map(|guest| guest.join().unwrap()).collect();
        assert!(seen.contains(&3) && seen.iter().all(|n| (1..=3).contains(n)), "{seen:?}");
        sums.abort();
        assert!(matches!(rt.block_on(sums), Err(Exit::Killed)));
    }

    /// 4.7d, 4.7h: a replacement thread immediately takes over the queue of a blocked worker. The replacement thread
    /// also runs the tasks that are queued behind the process of the blocked step.
    fn a_blocked_worker_is_replaced() {
        let rt = runtime(1);
        let gate = Arc::new((shuttle::sync::Mutex::new(false), shuttle::sync::Condvar::new()));
        let blocks = rt.spawn(async move |ctx: Context| {
            let opens = Arc::clone(&gate);
            let _ = ctx.spawn(async move |_: Context| {
                *opens.0.lock().unwrap() = true;
                opens.1.notify_all();
            });
            block_in_place(|| {
                let mut open = gate.0.lock().unwrap();
                while !*open {
                    open = gate.1.wait(open).unwrap();
                }
            });
        });
        // This thread does not drive the runtime, so only the workers run the processes.
        rt.set_workers(1);
        while !blocks.is_finished() {
            thread::yield_now();
        }
        assert!(rt.block_on(blocks).is_ok());
    }

    /// 6.5a: spawns and sends happen during a shutdown. Each spawn and each send is either executed or refused, and no
    /// process remains.
    fn a_shutdown_races_with_spawns() {
        let rt = runtime(2);
        let host = rt.host().clone();
        let busy = thread::spawn(move || {
            for n in 0..3 {
                let one = host.spawn(adds);
                let _ = one.send(Msg::Add(n));
            }
        });
        let ended = rt.spawn(async |mut ctx: Context<()>| ctx.receive().await);
        let shutdown = futures_block_on(rt.shutdown(Duration::from_secs(1)));
        assert!(shutdown.left.is_empty());
        // The exit of the last process may be delivered after the shutdown. The drop waits for the workers.
        drop(rt);
        busy.join().unwrap();
        assert!(ended.is_finished());
    }

    /// 4.1a: the number of workers changes while tasks are queued. The remaining workers run all queued tasks.
    fn the_number_of_workers_changes() {
        let rt = Arc::new(runtime(1));
        let turns = [(); 3].map(|()| {
            rt.spawn(async |ctx: Context| {
                let child = ctx.spawn(async |ctx: Context<()>| ctx.yield_now().await);
                ctx.yield_now().await;
                child.await
            })
        });
        let other = Arc::clone(&rt);
        let sets = thread::spawn(move || [3, 0, 2, 1].into_iter().for_each(|count| other.set_workers(count)));
        // This thread does not drive the runtime, so only the workers run the processes.
        turns.into_iter().for_each(|one| futures_block_on(one).unwrap());
        sets.join().unwrap();
    }

    /// 4.1a, 4.7f: the number of workers changes while steps block. All processes exit.
    fn the_number_of_workers_changes_while_steps_block() {
        let rt = Arc::new(runtime(1));
        let blocks = [(); 2].map(|()| {
            rt.spawn(async |ctx: Context| {
                let open = Arc::new(AtomicBool::new(false));
                let opens = Arc::clone(&open);
                let child = ctx.spawn(async move |_: Context<()>| opens.store(true, SeqCst));
                block_in_place(|| {
                    while !open.load(SeqCst) {
                        thread::yield_now();
                    }
                });
                child.await
            })
        });
        let other = Arc::clone(&rt);
        let sets = thread::spawn(move || [2, 0, 1].into_iter().for_each(|count| other.set_workers(count)));
        blocks.into_iter().for_each(|one| futures_block_on(one).unwrap());
        sets.join().unwrap();
    }

    /// 7.1b: a due timer fires, no matter which thread sets the timer. A due timer fires even if a timekeeper already
    /// waits for a later deadline.
    fn due_timers_fire() {
        let rt = runtime(2);
        let sleeps = rt.spawn(async |ctx: Context<()>| ctx.sleep(Duration::from_secs(3_600)).await);
        let deaf = rt.spawn(async |_: Context<()>| std::future::pending::<()>().await);
        let told = rt.spawn(async |mut ctx: Context<u8>| {
            ctx.send_after(Duration::ZERO, &ctx.address(), 1);
            let _ = ctx.timeout(Duration::ZERO, std::future::pending::<()>()).await;
            ctx.receive().await
        });
        rt.cancel(deaf.pid(), "enough", Duration::ZERO).unwrap();
        assert!(matches!(futures_block_on(deaf), Err(Exit::Killed)));
        assert_eq!(futures_block_on(told).unwrap(), 1);
        rt.cancel(sleeps.pid(), "enough", Duration::ZERO).unwrap();
        assert!(matches!(futures_block_on(sleeps), Err(Exit::Killed)));
    }

    /// 4.10a: processes of each priority run, no matter whether a worker or another thread spawns them.
    fn processes_of_all_priorities_run() {
        const RANKS: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];
        async fn turns(ctx: Context<()>) {
            ctx.yield_now().await;
            ctx.yield_now().await;
        }
        let rt = runtime(2);
        let host = rt.host().clone();
        let outside = thread::spawn(move || RANKS.map(|rank| host.process().priority(rank).spawn(turns).unwrap()));
        let inside = rt.spawn(async |ctx: Context| {
            let all = RANKS.map(|rank| ctx.process().priority(rank).spawn(turns));
            for one in all {
                one?.await?;
            }
            Ok::<_, Exit>(())
        });
        // This thread does not drive the runtime, so only the workers run the processes.
        futures_block_on(inside).unwrap();
        outside.join().unwrap().into_iter().for_each(|one| futures_block_on(one).unwrap());
    }

    /// A thread outside the runtime calls a process of high or low priority. A worker that is about to park still finds
    /// the process.
    fn a_call_wakes_a_process_of_another_priority() {
        let rt = runtime(1);
        for rank in [Priority::High, Priority::Low] {
            let sums = rt.process().priority(rank).spawn(adds).unwrap();
            for _ in 0..2 {
                assert_eq!(futures_block_on(sums.call(Msg::Sum)).unwrap(), 0);
            }
        }
    }

    /// 1.7a: after a call of `preempt` for a running process, the next `should_yield` of this process returns true. The
    /// call does not affect the next process on the worker.
    fn a_preempted_process_is_asked_to_yield() {
        let rt = runtime(1);
        let asked = Arc::new(AtomicBool::new(false));
        let knows = Arc::clone(&asked);
        let runs = rt.spawn(async move |ctx: Context| {
            let behind = ctx.spawn(async |_: Context| Ok::<_, Exit>(should_yield()));
            while !knows.load(SeqCst) {
                thread::yield_now();
            }
            let told = should_yield();
            ctx.yield_now().await;
            Ok::<_, Exit>((told, behind.await?))
        });
        let (host, pid) = (rt.host().clone(), runs.pid());
        let asks = thread::spawn(move || {
            while !host.preempt(pid).unwrap() {
                thread::yield_now();
            }
            asked.store(true, SeqCst);
        });
        assert_eq!(futures_block_on(runs).unwrap(), (true, false));
        asks.join().unwrap();
    }
}

//! Whole runtimes under schedules drawn by chance: every lock, atomic, park and spawn of the crate is a point where
//! another thread may go on instead.
//!
//! ```sh
//! RUSTFLAGS="--cfg procession_shuttle" cargo test --release --test shuttle
//! ```
//!
//! runs each scenario so many times as `SHUTTLE_ITERATIONS` says (2,000), half of them at random, half by PCT (Burckhardt et
//! al., *A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs*, ASPLOS 2010). A lost wake is a deadlock,
//! which the explorer reports; what else must hold is asserted. Time does not pass. What it is blind to is the order of
//! memory: that is loom's business. With `PROCESSION_BUG=…` in the environment, for each of these bugs, the scenario
//! beside it must fail, the rarest of them in four of five runs of that length, all in far longer ones:
//!
//! - receiver_unlocks: ping_pong
//! - push_unlocks: a_send_meets_a_kill
//! - idle_no_second_look: threads_lend_themselves
//! - bounded_pop_admits_nobody: room_is_made
//! - links_look_before_locking: a_link_meets_an_end
//! - handover_finds_nobody: who_blocks_is_stood_in_for
#![cfg(procession_shuttle)]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use futures::future::BoxFuture;
use procession::*;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, MaxSteps, Runner, thread};

/// How many orders of events a PCT schedule depends on at most.
const DEPTH: usize = 3;
/// Far more than a scenario takes: it would be one that never ends.
const STEPS: usize = 1_000_000;

fn explore(scenario: fn()) {
    let times = std::env::var("SHUTTLE_ITERATIONS").map_or(2_000, |times| times.parse().expect("a number"));
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.max_steps = MaxSteps::FailAfter(STEPS);
    Runner::new(RandomScheduler::new(times / 2), config.clone()).run(scenario);
    Runner::new(PctScheduler::new(DEPTH, times.div_ceil(2)), config).run(scenario);
}

macro_rules! scenarios {
    ($($(#[$doc:meta])* fn $name:ident() $body:block)*) => {
        $($(#[$doc])* #[test] fn $name() { explore(|| $body); })*
    };
}

fn runtime(workers: usize) -> Runtime {
    Runtime::builder().workers(workers).seed(1).long_step(Duration::MAX).build().expect("a runtime")
}

enum Msg {
    Add(u64),
    Sum(Reply<u64>),
}

async fn adds(mut ctx: Context<Msg>) -> Result<u64, Exit> {
    let mut sum = 0;
    loop {
        match ctx.receive().await {
            Ok(Msg::Add(n)) => sum += n,
            Ok(Msg::Sum(reply)) => reply.send(sum),
            Err(Exit::Cancelled(_)) => return Ok(sum),
            Err(exit) => return Err(exit),
        }
    }
}

scenarios! {
    /// Work spreads over workers, and all of it is done.
    fn a_tree_of_processes_adds_up() {
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

    /// Two wake each other, from two workers or one.
    fn ping_pong() {
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

    /// Threads that are not the runtime's come and go, and take nothing with them.
    fn threads_lend_themselves() {
        let rt = Arc::new(runtime(0));
        let sums = rt.spawn(adds);
        let lenders: Vec<_> = (1..=2_u64)
            .map(|n| {
                let (rt, to) = (Arc::clone(&rt), sums.address());
                thread::spawn(move || rt.block_on(async {
                    let _ = to.send(Msg::Add(n));
                    to.call(Msg::Sum).await.unwrap()
                }))
            })
            .collect();
        let seen: Vec<u64> = lenders.into_iter().map(|lender| lender.join().unwrap()).collect();
        assert!(seen.contains(&3) && seen.iter().all(|n| (1..=3).contains(n)), "{seen:?}");
        sums.abort();
        assert!(matches!(rt.block_on(sums), Err(Exit::Killed)));
    }

    /// A message to one that is killed is read, refused, or a dead letter.
    fn a_send_meets_a_kill() {
        let rt = runtime(1);
        let read = Arc::new(AtomicUsize::new(0));
        let reads = Arc::clone(&read);
        let reader = rt.spawn(async move |mut ctx: Context<u8>| {
            while ctx.receive().await.is_ok() {
                reads.fetch_add(1, SeqCst);
            }
        });
        let to = reader.address();
        let sender = thread::spawn(move || (0..3).filter(|_| to.send(0).is_ok()).count());
        reader.abort();
        assert!(matches!(rt.block_on(reader), Err(Exit::Killed)));
        let sent = sender.join().unwrap();
        assert_eq!(sent, read.load(SeqCst) + rt.counters().dead_letters as usize);
    }

    /// A call to one that dies is answered or fails, and never waits for ever.
    fn a_call_meets_a_death() {
        let rt = runtime(2);
        let server = rt.spawn(adds);
        let calls: Vec<_> = (0..2)
            .map(|_| {
                let to = server.address();
                rt.spawn(async move |ctx: Context| Ok::<_, Exit>(ctx.call(&to, Msg::Sum).await))
            })
            .collect();
        server.abort();
        for call in calls {
            match rt.block_on(call).unwrap() {
                Ok(0) | Err(CallError::Died(_) | CallError::NoProcess) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// A command that another thread answers, is cancelled at the same time, or given up with its process.
    fn commands_are_answered_from_elsewhere() {
        struct Ask;
        impl Command for Ask { type Reply = u64; }
        let rt = Runtime::builder().workers(2).seed(1).long_step(Duration::MAX);
        let rt = rt
            .handler::<Ask>(|_: Ask, completion: Completion<u64>| {
                thread::spawn(move || completion.complete(7));
            })
            .build()
            .unwrap();
        let asks = rt.spawn(async |ctx: Context| {
            let one = ctx.perform(Ask);
            let mut other = ctx.perform(Ask);
            // Polled once and given up.
            let _ = futures::poll!(&mut other);
            drop(other);
            one.await
        });
        let killed = rt.spawn(async |ctx: Context| ctx.perform(Ask).await);
        killed.abort();
        assert_eq!(rt.block_on(asks).unwrap(), 7);
        assert!(matches!(rt.block_on(killed), Ok(7) | Err(Exit::Killed)));
    }

    /// A full mailbox: who waits for room has it, in turn, or hears that the receiver is gone.
    fn room_is_made() {
        let rt = runtime(2);
        let slow = rt.process().mailbox(Bound::Reject(1)).spawn(async |mut ctx: Context<u8>| {
            ctx.receive().await?;
            ctx.receive().await
        }).unwrap();
        let senders: Vec<_> = (0..3)
            .map(|_| {
                let to = slow.address();
                rt.spawn(async move |ctx: Context| Ok::<_, Exit>(ctx.send_wait(&to, 1).await.is_ok()))
            })
            .collect();
        assert!(rt.block_on(slow).is_ok());
        let sent = senders.into_iter().filter_map(|sender| rt.block_on(sender).unwrap().then_some(())).count();
        assert!(sent >= 2, "{sent}");
    }

    /// SPEC 6.3: linked to one that ends at that moment, one dies of it or hears that nobody is there.
    fn a_link_meets_an_end() {
        let rt = runtime(2);
        let ends = rt.spawn(async |_: Context| Err::<(), _>("ends"));
        let pid = ends.pid();
        let links = rt.spawn(async move |mut ctx: Context| {
            ctx.link(pid).map_err(|_| "nobody there")?;
            match ctx.receive().await {
                Ok(_) => Ok(()),
                Err(_) => Err("cancelled"),
            }
        });
        match rt.block_on(links).unwrap_err() {
            Exit::Linked { origin, .. } => assert_eq!(origin, pid),
            Exit::Failed(error) => assert_eq!(error.to_string(), "nobody there"),
            other => panic!("{other}"),
        }
        assert!(rt.block_on(ends).is_err());
    }

    /// SPEC 6.1, 6.3: one that traps hears of the end once, after what was sent before it.
    fn a_trapped_exit_comes_after_the_mail() {
        let rt = runtime(2);
        let parent = rt.spawn(async |mut ctx: Context<u8>| {
            ctx.trap_exit(true);
            let to = ctx.address();
            let child = ctx.spawn_link(async move |ctx: Context| {
                let _ = ctx.send(&to, 1);
                let _ = ctx.send(&to, 2);
                Err::<(), _>("done")
            });
            let mut heard = Vec::new();
            for _ in 0..3 {
                heard.push(match ctx.event().await {
                    Event::Message(n) => n,
                    Event::Exit { from, .. } if from == child.pid() => 9,
                    _ => 0,
                });
            }
            Ok::<_, Exit>(heard)
        });
        assert_eq!(rt.block_on(parent).unwrap(), [1, 2, 9]);
    }

    /// SPEC 6.3: a monitor that is taken back in time never tells; one that was not tells once.
    fn a_monitor_is_taken_back() {
        let rt = runtime(2);
        let ends = rt.spawn(async |_: Context| {});
        let pid = ends.pid();
        let watch = rt.spawn(async move |mut ctx: Context<()>| {
            let watches = [ctx.monitor(pid), ctx.monitor(pid)];
            let in_time = ctx.demonitor(watches[0]);
            let mut downs = 0;
            while downs < 1 + usize::from(!in_time) {
                if let Event::Down { monitor, .. } = ctx.event().await {
                    assert!(!(in_time && monitor == watches[0]));
                    downs += 1;
                }
            }
            Ok::<_, Exit>(())
        });
        rt.block_on(watch).unwrap();
        assert!(rt.block_on(ends).is_ok());
    }

    /// SPEC 6.3: two that are linked and end at once each have one exit; so do three in a circle.
    fn linked_ones_end_at_once() {
        let rt = runtime(2);
        let ring: Vec<JoinHandle<(), Pid>> = (0..3)
            .map(|_| {
                rt.spawn(async |mut ctx: Context<Pid>| {
                    let next = ctx.receive().await?;
                    ctx.link(next)?;
                    ctx.receive().await.map(drop)
                })
            })
            .collect();
        for n in 0..3 {
            let _ = ring[n].send(ring[(n + 1) % 3].pid());
        }
        rt.kill(ring[0].pid()).unwrap();
        ring[1].abort();
        // Of the kill, of a link to one that died, or of one that it linked to too late.
        ring.into_iter().for_each(|one| drop(rt.block_on(one).unwrap_err()));
    }

    /// SPEC 2.5, 6.1: whoever hears of an end finds the name free, and of two that want a name one has it.
    fn a_name_is_free_when_its_holder_has_ended() {
        let rt = runtime(2);
        let holder = rt.spawn(async |ctx: Context<()>| ctx.register("name"));
        assert!(rt.block_on(holder).is_ok());
        assert_eq!(rt.whereis("name"), None);
        let wants: Vec<_> = (0..2)
            .map(|_| {
                rt.spawn(async |ctx: Context<()>| {
                    let has = ctx.register("name").is_ok();
                    assert!(!has || ctx.host().whereis("name") == Some(ctx.pid()));
                    Ok::<_, Exit>(has)
                })
            })
            .collect();
        let has: Vec<bool> = wants.into_iter().map(|one| rt.block_on(one).unwrap()).collect();
        assert!(has.contains(&true));
        assert_eq!(rt.whereis("name"), None);
    }

    /// SPEC 2.5: of several that spawn or send at once, one spawns, and no message is lost.
    fn one_is_spawned_and_all_are_sent() {
        let rt = runtime(2);
        let all: Vec<_> = (0..3_u64)
            .map(|n| {
                rt.spawn(async move |ctx: Context| {
                    ctx.process().name("sums").spawn_or_send(Msg::Add(1 << (8 * n)), adds).map_err(|_| "refused")
                })
            })
            .collect();
        let pids: Vec<Pid> = all.into_iter().map(|one| rt.block_on(one).unwrap()).collect();
        assert!(pids.iter().all(|pid| *pid == pids[0]));
        assert_eq!(rt.block_on(rt.call("sums", Msg::Sum)).unwrap(), 0x1_01_01);
    }

    /// SPEC 4.7: whoever blocks is stood in for, at once, and what waits behind it is run.
    fn who_blocks_is_stood_in_for() {
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
        // Not lent: what the workers don't do is not done.
        rt.set_workers(1);
        while !blocks.is_finished() {
            thread::yield_now();
        }
        assert!(rt.block_on(blocks).is_ok());
    }

    /// SPEC 6.5: a shutdown meets spawns and sends: all are done or refused, and nobody is left.
    fn a_shutdown_meets_work() {
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
        busy.join().unwrap();
        assert!(ended.is_finished());
    }

    /// SPEC 6.4: kills of a child and of its supervisor: nobody lives twice, and all come back.
    fn a_supervisor_meets_kills() {
        const CHILD: Name<Msg> = Name::new("child");
        const BELOW: Name<SupervisorMessage> = Name::new("below");
        let rt = runtime(2);
        let lives = Arc::new(AtomicI64::new(0));
        let child = {
            let lives = Arc::clone(&lives);
            move |ctx: Context<Msg>| {
                struct Life(Arc<AtomicI64>);
                impl Drop for Life {
                    fn drop(&mut self) {
                        self.0.fetch_sub(1, SeqCst);
                    }
                }
                assert_eq!(lives.fetch_add(1, SeqCst), 0, "it lives twice");
                let life = Life(Arc::clone(&lives));
                async move {
                    let _life = life;
                    adds(ctx).await
                }
            }
        };
        let child = Arc::new(child);
        let below = move || {
            let child = Arc::clone(&child);
            Supervisor::one_for_one().intensity(9, Duration::from_secs(1)).child(CHILD, move |ctx| child(ctx))
        };
        let tree = Supervisor::one_for_one().intensity(9, Duration::from_secs(1)).add(Child::process(BELOW, below));
        let tree = rt.spawn_process(tree);
        rt.block_on(tree.started()).unwrap();
        let killed: Vec<Pid> = [CHILD.as_str(), BELOW.as_str()].into_iter().filter_map(|name| rt.whereis(name)).collect();
        let host = rt.host().clone();
        let killer = thread::spawn(move || killed.into_iter().for_each(|pid| host.kill(pid).unwrap_or(())));
        killer.join().unwrap();
        // Until the next life has begun there is nobody to call.
        while rt.block_on(rt.call(CHILD, Msg::Sum)).is_err() {
            thread::yield_now();
        }
        rt.cancel(tree.pid(), "enough", Duration::from_secs(1)).unwrap();
        assert!(matches!(rt.block_on(tree), Err(Exit::Cancelled(_))));
        assert_eq!(lives.load(SeqCst), 0);
    }

    /// What a member of a pool has not read when it dies goes to another.
    fn a_pool_loses_no_mail() {
        let rt = runtime(2);
        let pool = rt.spawn_pool(Pool::new(2, adds_one).mailbox(4));
        let sums = rt.spawn(adds);
        for n in 0..3 {
            pool.send((n == 1, sums.address())).unwrap();
        }
        // The one that fails has read its message; the others are added, whoever does it.
        while rt.block_on(sums.call(Msg::Sum)).unwrap() < 3 {
            thread::yield_now();
        }
        pool.abort();
        assert!(rt.block_on(pool).is_err());
    }

    /// A scope ends when all its children have, and with the first error.
    fn a_scope_is_over_when_its_children_are() {
        let rt = runtime(2);
        let alive = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&alive);
        let scoped = rt.spawn(async move |ctx: Context| {
            let inner = Arc::clone(&counts);
            let result = ctx
                .scope(async |s| {
                    for n in 0..3 {
                        let counts = Arc::clone(&inner);
                        let _ = s.spawn(async move |mut ctx: Context<()>| {
                            struct Here(Arc<AtomicUsize>);
                            impl Drop for Here {
                                fn drop(&mut self) {
                                    self.0.fetch_sub(1, SeqCst);
                                }
                            }
                            counts.fetch_add(1, SeqCst);
                            let _here = Here(counts);
                            if n == 1 {
                                return Err(Exit::failed("one"));
                            }
                            ctx.receive().await
                        });
                    }
                    Ok::<_, Exit>(())
                })
                .await;
            assert_eq!(counts.load(SeqCst), 0);
            result
        });
        assert!(rt.block_on(scoped).is_err());
    }
}

async fn adds_one(mut ctx: Context<(bool, Address<Msg>)>) -> Result<(), Exit> {
    loop {
        let (fails, to) = ctx.receive().await?;
        let _ = ctx.send(&to, Msg::Add(1));
        if fails {
            return Err(Exit::failed("told to"));
        }
    }
}

/// Polls on this thread, without lending it.
fn futures_block_on<F: Future>(future: F) -> F::Output {
    shuttle::future::block_on(future)
}

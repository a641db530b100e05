//! Sections 6.3 and 6.4 of the specification: ten thousand linked processes exit together, and supervisors are killed
//! during a restart.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use procession::supervisor::*;
use procession::*;

use crate::{step_aside, within};

const A: Name<Do> = Name::new("a");
const B: Name<Do> = Name::new("b");
const SUB: Name<SupervisorMessage> = Name::new("sub");
const HOUR: Duration = Duration::from_secs(3600);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

// ---- Exits along links

enum Msg {
    Link(Vec<Pid>),
    Fail,
}

async fn member(mut ctx: Context<Msg>, linked: Arc<AtomicUsize>) -> Result<(), Exit> {
    loop {
        match ctx.receive().await? {
            Msg::Link(pids) => {
                for pid in pids {
                    ctx.link(pid)?;
                }
                linked.fetch_add(1, SeqCst);
            }
            Msg::Fail => return Err(Exit::failed("failed")),
        }
    }
}

/// Links `count` processes: process `n` is linked with each process in `links(n)`. Then makes process 0 fail, and
/// asserts three facts:
/// - Each process exits exactly once, and the exit names process 0 as the origin. A listener is linked with every
///   process, and receives exactly one exit from each process.
/// - The number of turns is linear, because each process needs at most two turns for its exit.
/// - No worker needs a deep stack, because no function recurses along the links.
fn storm(count: usize, links: impl Fn(usize) -> Vec<usize> + Send + 'static) {
    within(300, move || {
        // A recursion over all processes would overflow this stack if each level needed 27 bytes or more.
        let rt = Runtime::builder().workers(2).stack_size(256 << 10).build().unwrap();
        let linked = Arc::new(AtomicUsize::new(0));
        let all: Vec<_> = (0..count)
            .map(|_| {
                let linked = Arc::clone(&linked);
                rt.spawn(move |ctx| member(ctx, linked))
            })
            .collect();
        let pids: Vec<_> = all.iter().map(|handle| handle.pid()).collect();
        let listener = {
            let pids = pids.clone();
            rt.spawn(async move |mut ctx: Context<Reply<()>>| -> Result<(), Exit> {
                ctx.trap_exit(true);
                for &pid in &pids {
                    ctx.link(pid)?;
                }
                ctx.receive().await?.send(());
                let mut alive: BTreeSet<_> = pids.into_iter().collect();
                while !alive.is_empty() {
                    let Event::Exit { from, .. } = ctx.event().await else { panic!("something else") };
                    assert!(alive.remove(&from), "{from} is heard twice");
                }
                assert!(ctx.event().now_or_never().is_none(), "more is heard");
                Ok(())
            })
        };
        futures::executor::block_on(async {
            for (place, handle) in all.iter().enumerate() {
                handle.send(Msg::Link(links(place).into_iter().map(|other| pids[other]).collect())).unwrap();
            }
            while linked.load(SeqCst) < count {
                step_aside().await;
            }
            listener.call(|reply| reply).await.unwrap();
            let before = rt.counters();
            all[0].send(Msg::Fail).unwrap();
            let exits = join_all(all).await;
            listener.await.unwrap();
            let storm = rt.counters() - before;
            for (place, exit) in exits.into_iter().enumerate() {
                match exit.unwrap_err() {
                    Exit::Failed(_) if place == 0 => {}
                    Exit::Linked { origin, reason } if place > 0 => {
                        assert_eq!((origin, &*reason.to_string()), (pids[0], "failed: failed"));
                    }
                    other => panic!("{place}: {other}"),
                }
            }
            assert_eq!((storm.exited, storm.panics), (count as u64 + 1, 0));
            // Each process has at most two turns. The listener has at most one more turn for each exit.
            assert!(storm.polls <= 3 * count as u64 + 100, "{storm}");
        });
    });
}

const MANY: usize = 10_000;

/// 6.3f: ten thousand processes are linked in a ring. When one process fails, every process exits once.
#[test]
fn every_process_in_a_ring_of_ten_thousand_processes_exits_once() {
    storm(MANY, |place| vec![(place + 1) % MANY]);
}

/// 6.3f: ten thousand processes are linked in a chain. When the process at one end fails, every process exits once.
#[test]
fn every_process_in_a_chain_of_ten_thousand_processes_exits_once() {
    storm(MANY, |place| if place == 0 { vec![] } else { vec![place - 1] });
}

/// 6.3f: ten thousand processes are linked in a star. When one of the outer processes fails, every process exits once.
#[test]
fn every_process_in_a_star_of_ten_thousand_processes_exits_once() {
    storm(MANY, |place| if place == 1 { vec![] } else { vec![1] });
}

/// 6.3f: cliques of fifty processes are linked in a ring. The ten thousand processes have 245,000 links within the
/// cliques. When one process fails, every process exits once.
#[test]
fn every_process_of_a_ring_of_cliques_exits_once() {
    const CLIQUE: usize = 50;
    storm(MANY, |place| {
        let first = place - place % CLIQUE;
        let next = (place + CLIQUE) % MANY;
        (first..place).chain((place == first).then_some(next)).collect()
    });
}

// ---- Supervisors

enum Do {
    Ping(Reply<()>),
}

/// Contains two numbers for each child: the number of live instances of the child, and the maximum of this number so
/// far.
#[derive(Clone, Default)]
struct Lives(Arc<[(AtomicI64, AtomicI64); 2]>);

struct Life(Lives, usize);

impl Lives {
    fn begin(&self, which: usize) -> Life {
        let (now, most) = &self.0[which];
        most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
        Life(self.clone(), which)
    }

    fn now(&self) -> [i64; 2] {
        self.0.each_ref().map(|(now, _)| now.load(SeqCst))
    }

    fn most(&self) -> [i64; 2] {
        self.0.each_ref().map(|(_, most)| most.load(SeqCst))
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.0.0[self.1].0.fetch_sub(1, SeqCst);
    }
}

async fn answer(mut ctx: Context<Do>) -> Result<(), Exit> {
    loop {
        let Do::Ping(reply) = ctx.receive().await?;
        reply.send(());
    }
}

/// Returns a tree of two supervisors. The lower supervisor has two children. One child fails every few turns, and the
/// other child never fails. `begin` is called before each start of the failing child.
fn tree(strategy: fn() -> Supervisor, lives: &Lives, begin: impl Fn() + Clone + Send + Sync + 'static) -> Supervisor {
    let lives = lives.clone();
    let below = move || {
        let (fails, stays) = (lives.clone(), lives.clone());
        // The child has no registered name. If the child had a registered name, a second instance could never start.
        // Then the test could not detect a supervisor that starts a second instance.
        let fails = Child::unnamed(move |ctx: Context<Do>| {
            let life = fails.begin(0);
            async move {
                let _life = life;
                for _ in 0..3 {
                    ctx.yield_now().await;
                }
                Err::<(), _>("again")
            }
        });
        let begin = begin.clone();
        let fails = fails.options(move |process| {
            begin();
            process
        });
        let stays = Child::new(B, move |ctx| {
            let life = stays.begin(1);
            async move {
                let _life = life;
                answer(ctx).await
            }
        });
        strategy().intensity(u32::MAX, HOUR).add(fails).add(stays)
    };
    Supervisor::one_for_one().intensity(u32::MAX, HOUR).add(Child::process(SUB, below))
}

const STRATEGIES: [fn() -> Supervisor; 3] =
    [Supervisor::one_for_one, Supervisor::one_for_all, Supervisor::rest_for_one];

/// Starts the tree and calls `disturb`. Waits until the lower supervisor has children again, and then cancels the tree.
/// Then asserts that no child is left, and that each child had at most one instance at a time.
fn assert_no_child_is_leaked(seed: u64, lives: &Lives, top: Supervisor, disturb: impl AsyncFn(&Host)) {
    let mut simulation = Simulation::new(seed);
    let host = simulation.host().clone();
    simulation.run(async {
        let top = host.spawn_process(top);
        disturb(&host).await;
        let mut tries = 0;
        while host.call(B, Do::Ping).await.is_err() {
            tries += 1;
            assert!(tries < 10_000, "the children do not come back, seed {seed}");
            step_aside().await;
        }
        assert!(!top.is_finished());
        host.cancel(top.pid(), "enough", HOUR).unwrap();
        assert!(matches!(top.await, Err(Exit::Cancelled(_))));
    });
    assert_eq!((lives.now(), lives.most()), ([0; 2], [1; 2]), "seed {seed}");
    assert_eq!(host.processes_alive(), 0, "seed {seed}");
    let counters = host.counters();
    assert_eq!(counters.spawned, counters.exited, "seed {seed}");
}

/// 6.4g: a supervisor restarts its children many times, and is killed at an arbitrary moment. The supervisor leaves no
/// child behind, and no child has two instances at a time.
#[test]
fn a_supervisor_that_is_killed_at_any_moment_leaves_no_child_behind() {
    for strategy in STRATEGIES {
        for moment in 0..100 {
            let lives = Lives::default();
            let top = tree(strategy, &lives, || {});
            assert_no_child_is_leaked(moment, &lives, top, async |host| {
                for _ in 0..moment {
                    step_aside().await;
                }
                if let Some(sub) = host.whereis(SUB) {
                    let _ = host.kill(sub);
                    host.exited(sub).await;
                }
            });
        }
    }
}

/// 6.4g: a supervisor is killed while the supervisor starts a child. The supervisor leaves no child behind, and no
/// child has two instances at a time.
#[test]
fn a_supervisor_that_is_killed_while_it_starts_a_child_leaves_no_child_behind() {
    for strategy in STRATEGIES {
        for victim in 1..20 {
            let lives = Lives::default();
            let (starts, kills) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(None::<Host>)));
            let (counts, killer) = (Arc::clone(&starts), Arc::clone(&kills));
            let top = tree(strategy, &lives, move || {
                if counts.fetch_add(1, SeqCst) + 1 == victim
                    && let Some(host) = &*killer.lock().unwrap()
                {
                    host.kill(host.whereis(SUB).unwrap()).unwrap();
                }
            });
            assert_no_child_is_leaked(victim as u64, &lives, top, async |host| {
                *kills.lock().unwrap() = Some(host.clone());
                let mut tries = 0;
                while starts.load(SeqCst) <= victim {
                    tries += 1;
                    assert!(tries < 100_000, "the child is not started again, victim {victim}");
                    step_aside().await;
                }
            });
            kills.lock().unwrap().take();
        }
    }
}

/// 6.4d: the time window of the restart intensity is a half-open interval. When exactly the length of the window has
/// passed after a restart, the supervisor no longer counts this restart.
#[test]
fn the_time_window_of_the_restart_intensity_is_half_open() {
    // The supervisor allows two restarts within 100 ms. Each case contains the planned lifetimes of the instances in
    // milliseconds, and the number of instances that the supervisor really starts.
    let cases: &[(&[u64], usize)] = &[
        // At the third exit and at each later exit, the second-to-last restart happened exactly 100 ms earlier.
        // Therefore, the supervisor no longer counts the second-to-last restart.
        (&[10, 50, 50, 50, 50, 50, 50], 7),
        (&[10, 0, 100, 0, 100, 0], 6),
        (&[10, 50, 49, 50], 3),
        (&[10, 99, 0, 1], 3),
        (&[10, 0, 99, 1], 3),
    ];
    for &(ends, begun) in cases {
        check(0..10, async move |host: Host| {
            let (count, lasts) = (Arc::new(AtomicUsize::new(0)), ends.to_vec());
            let begins = Arc::clone(&count);
            let child = Child::new(A, move |ctx: Context<Do>| {
                let life = lasts.get(begins.fetch_add(1, SeqCst)).copied();
                async move {
                    match life {
                        Some(life) => ctx.sleep(ms(life)).await,
                        None => std::future::pending().await,
                    }
                    Err::<(), _>("again")
                }
            });
            let tree = host.spawn_process(Supervisor::one_for_one().intensity(2, ms(100)).add(child));
            host.sleep(ms(1_000)).await;
            // If the supervisor does not fail, the supervisor starts one more instance, which never exits.
            let gives_up = begun < ends.len();
            assert_eq!(count.load(SeqCst), if gives_up { begun } else { begun + 1 }, "{ends:?}");
            assert_eq!(tree.is_finished(), gives_up);
            if gives_up {
                assert!(matches!(
                    tree.await.unwrap_err().error(),
                    Some(SupervisorError::RestartIntensityExceeded { .. })
                ));
            }
        });
    }
}

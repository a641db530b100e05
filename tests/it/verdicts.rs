//! Sections 9.5 and 10.1 of the specification: a check of a simulation fails in three cases. An abnormal exit is not
//! observed, the code is not deterministic, or there is a deadlock.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{Either, pending, select};
use procession::*;

use crate::within;

const HOUR: Duration = Duration::from_secs(3600);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Returns the panic message of `f`, or `None` if `f` does not panic.
fn panic_of(f: impl FnOnce()) -> Option<String> {
    catch_unwind(AssertUnwindSafe(f)).err().map(|panic| *panic.downcast::<String>().expect("a text"))
}

/// Checks a scenario with one seed. Returns the report, or `None` if the seed passes.
macro_rules! verdict {
    ($scenario:expr) => {
        panic_of(|| check(0..1, $scenario))
    };
}

async fn fails(_: Context) -> Result<(), &'static str> {
    Err("no luck")
}

async fn fails_with_text(_: Context) -> Result<String, &'static str> {
    Err("no luck")
}

async fn waits(mut ctx: Context) -> Result<(), Exit> {
    ctx.receive().await.map(drop)
}

/// Runs all runnable processes.
async fn settle(host: &Host) {
    host.sleep(ms(1)).await;
}

/// 9.5a, 9.5b, 10.1e: if a process panics and nothing receives its exit, the run of this seed fails. The report
/// contains the pid of the process, the panic message and the location. With `allow_unobserved_exits` the run passes.
#[test]
fn an_unobserved_panic_fails_the_run_of_its_seed() {
    const LINE: u32 = line!() + 3;
    let scenario = async |host: Host| {
        drop(host.spawn(async |_: Context| -> Result<(), Exit> {
            panic!("boom");
        }));
        settle(&host).await;
    };
    let text = verdict!(scenario).expect("a failure");
    assert!(text.starts_with("the scenario fails under seed 0: no link, monitor, supervisor or join handle"), "{text}");
    let place = format!("an exit: <0.0.1> panicked at {}:{LINE}:13: boom\n", file!());
    assert!(text.contains(&place), "{place} is not in {text}");
    assert!(text.contains("<0.0.1> complete"), "{text}");
    Check::new(0..20).allow_unobserved_exits().run(scenario);
    // If the scenario also fails, the report still contains the unobserved exit.
    let both = verdict!(async |host: Host| {
        scenario(host).await;
        Err::<(), _>(Exit::failed("of its own"))
    });
    let both = both.expect("a failure");
    assert!(both.contains("of its own; ") && both.contains("<0.0.1> panicked at "), "{both}");
}

/// 9.5a, 10.1e: an exit is observed if a join handle, a link, a monitor or an owner receives the exit.
#[test]
fn an_exit_is_observed_if_a_process_or_a_handle_receives_it() {
    let unobserved = |scenario: fn(Host) -> futures::future::BoxFuture<'static, Result<(), Exit>>, pids: &[&str]| {
        let text = verdict!(async |host: Host| scenario(host).await).unwrap_or_default();
        let told: Vec<_> =
            text.split("receives an exit: ").skip(1).map(|exit| exit.split(' ').next().unwrap()).collect();
        assert_eq!(told, pids, "{text}");
    };
    macro_rules! case {
        ($pids:expr, async |$host:ident| $body:block) => {
            unobserved(
                |$host: Host| {
                    async move {
                        $body
                        settle(&$host).await;
                        Ok(())
                    }
                    .boxed()
                },
                &$pids,
            )
        };
    }
    // Join handles. Some join handles are dropped before the exit and some after the exit, with and without an address.
    // Other join handles are awaited before the exit or after the exit.
    case!(["<0.0.1>"], async |host| { drop(host.spawn(fails)) });
    case!(["<0.0.1>"], async |host| { drop(host.spawn(fails_with_text)) });
    case!(["<0.0.1>"], async |host| {
        let handle = host.spawn(fails);
        settle(&host).await;
        assert!(handle.is_finished());
    });
    case!(["<0.0.1>"], async |host| {
        let mut handle = host.spawn(fails_with_text);
        assert!((&mut handle).now_or_never().is_none());
        settle(&host).await;
        assert!(handle.is_finished());
    });
    case!(["<0.0.1>", "<0.1.1>"], async |host| {
        let handle = host.spawn(fails);
        let (_early, _late) = (handle.address().clone(), host.spawn(fails).address());
        drop(handle);
        settle(&host).await;
    });
    case!([], async |host| {
        let late = host.spawn(fails);
        assert!(host.spawn(fails).await.is_err());
        settle(&host).await;
        assert!(late.await.is_err());
    });
    // Links: the linked process receives the exit. The linked process either traps the exit, or exits because of the
    // exit.
    case!([], async |host| {
        let linked = host.spawn(async |mut ctx: Context| {
            ctx.trap_exit(true);
            drop(ctx.spawn_link(fails));
            assert!(matches!(ctx.event().await, Event::Exit { .. }));
        });
        linked.await?;
    });
    case!(["<0.0.1>"], async |host| {
        drop(host.spawn(async |ctx: Context| {
            drop(ctx.spawn_link(fails));
            pending::<()>().await;
        }));
    });
    case!([], async |host| {
        let linked = host.spawn(async |ctx: Context| {
            drop(ctx.spawn_link(fails));
            pending::<()>().await;
        });
        assert!(matches!(linked.await, Err(Exit::Linked { .. })));
    });
    // Monitors. Some monitors are set when the process is spawned, and other monitors are set later. A monitor that was
    // removed receives nothing.
    case!([], async |host| {
        let watches = host.spawn(async |mut ctx: Context| {
            drop(ctx.spawn_monitor(fails));
            assert!(matches!(ctx.event().await, Event::Down { .. }));
            let child = ctx.spawn(fails);
            ctx.monitor(child.pid());
            drop(child);
            assert!(matches!(ctx.event().await, Event::Down { .. }));
        });
        watches.await?;
    });
    case!(["<0.1.1>"], async |host| {
        let forgets = host.spawn(async |ctx: Context| {
            let (child, monitor) = ctx.spawn_monitor(fails);
            ctx.demonitor(monitor);
            drop(child);
        });
        forgets.await?;
    });
    // A waiting `exited()` future counts as a monitor. A dropped `exited()` future does not count.
    case!([], async |host| {
        let handle = host.spawn(fails);
        let ended = handle.exited();
        drop(handle);
        assert!(matches!(ended.await, Exit::Failed(_)));
    });
    case!(["<0.0.1>"], async |host| {
        let handle = host.spawn(fails);
        let ended = handle.exited();
        drop((handle, ended));
    });
    // Owners: a supervisor and a scope own their children.
    case!([], async |host| {
        let child = Child::unnamed(fails).restart(RestartPolicy::Temporary);
        let tree = host.spawn_process(Supervisor::one_for_one().add(child));
        tree.started().await?;
        host.sleep(HOUR).await;
        host.cancel(tree.pid(), "done", HOUR).unwrap();
        assert!(matches!(tree.await, Err(Exit::Cancelled(_))));
    });
    case!([], async |host| {
        let owner = host.spawn(async |ctx: Context| {
            ctx.scope(async |scope| {
                drop(scope.spawn(fails));
                pending::<Result<(), Exit>>().await
            })
            .await
        });
        assert!(matches!(owner.await, Err(Exit::Failed(_))));
    });
    // Two more unobserved failures: an `init` that fails, and a destructor that panics while the simulation is dropped.
    case!(["<0.0.1>"], async |host| {
        struct Refuses;
        impl Process for Refuses {
            type Message = ();
            type Output = ();
            fn init(&mut self, _: Start<'_>) -> Result<(), InitError> {
                Err(InitError::failed("no"))
            }
            fn step(&mut self, _: Events<'_, ()>, _: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
                unreachable!("it has not begun")
            }
        }
        drop(host.spawn_process(Refuses));
    });
    case!(["<0.0.1>"], async |host| {
        struct Explodes;
        impl Drop for Explodes {
            fn drop(&mut self) {
                panic!("in a destructor");
            }
        }
        drop(host.spawn(async |ctx: Context| {
            let _explodes = Explodes;
            waits(ctx).await
        }));
    });
}

/// 9.5a: if a process exits because it was cancelled or killed, the exit is not a failure. If this exit makes a linked
/// process exit too, the second exit is not a failure either.
#[test]
fn an_exit_after_a_cancellation_or_a_kill_is_not_reported() {
    let verdict = verdict!(async |host: Host| {
        let (cancelled, killed, aborted) = (host.spawn(waits), host.spawn(waits), host.spawn(waits));
        let linked = host.spawn(async |ctx: Context| {
            drop(ctx.spawn_link(waits));
            ctx.host().kill(ctx.pid()).unwrap();
            ctx.yield_now().await;
        });
        settle(&host).await;
        host.cancel(cancelled.pid(), "enough", HOUR).unwrap();
        host.kill(killed.pid()).unwrap();
        aborted.abort();
        drop((cancelled, killed, aborted, linked));
        drop(host.execute(Waits, "", ()).now_or_never());
        settle(&host).await;
        // This process is killed when the simulation is dropped.
        drop(host.spawn(waits));
    });
    assert_eq!(verdict, None);
}

struct Waits;
impl Process for Waits {
    type Message = ();
    type Output = ();
    fn step(&mut self, _: Events<'_, ()>, _: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
        Ok(Next::Wait)
    }
}

/// 9.5a, 9.5b: processes form a chain of links, and one process fails. The report names only the process that exits
/// last. The report contains the cause and the location of the first failure.
#[test]
fn a_report_on_a_chain_of_links_contains_the_last_process_and_the_first_cause() {
    fn links(ctx: Context, depth: u64) -> futures::future::BoxFuture<'static, Result<(), Exit>> {
        async move {
            assert_ne!(depth, 0, "a bomb");
            drop(ctx.spawn_link(move |ctx| links(ctx, depth - 1)));
            pending().await
        }
        .boxed()
    }
    let text = verdict!(async |host: Host| {
        drop(host.spawn(|ctx| links(ctx, 5)));
        settle(&host).await;
    });
    let text = text.expect("a failure");
    assert_eq!(text.matches("receives an exit: ").count(), 1, "{text}");
    let cause = format!("<0.0.1> linked to process <0.5.1>, which exited: panicked at {}:", file!());
    assert!(text.contains(&cause) && text.contains(": assertion `left != right` failed: a bomb"), "{text}");
}

/// 9.5a: a runtime counts each unobserved failure exactly once. The test awaits some handles. The test drops the other
/// handles before or after their processes exit.
#[test]
fn a_runtime_counts_each_unobserved_exit_once() {
    within(60, || {
        let rt = crate::two();
        let mut expected = 0;
        for round in 0..50_u64 {
            let handles: Vec<_> = (0..40).map(|_| rt.spawn(fails_with_text)).collect();
            let addresses: Vec<_> = handles.iter().map(|handle| handle.address().clone()).collect();
            for (n, handle) in handles.into_iter().enumerate() {
                match (n as u64 + round) % 4 {
                    0 => assert!(rt.block_on(handle).is_err()),
                    1 => {
                        // The process may already have exited, or it may exit soon.
                        drop(handle);
                        expected += 1;
                    }
                    2 => {
                        let mut handle = handle;
                        if (&mut handle).now_or_never().is_none() {
                            expected += 1;
                        }
                    }
                    _ => {
                        let ended = handle.exited();
                        rt.block_on(async { drop(handle) });
                        assert!(matches!(rt.block_on(ended), Exit::Failed(_)));
                    }
                }
            }
            drop(addresses);
        }
        let host = rt.host().clone();
        // The drop of the runtime kills each process that has not exited yet. A kill would not count as a failure, so
        // the test waits for all exits.
        while host.counters().exited < 50 * 40 {
            thread::yield_now();
        }
        drop(rt);
        assert_eq!(host.counters().unobserved, expected);
    });
}

/// Checks a scenario that passes but is not deterministic. Returns the report.
fn difference(scenario: impl AsyncFn(Host)) -> String {
    let text = verdict!(scenario).expect("a difference");
    assert!(text.starts_with("the scenario is not deterministic: two runs under seed 0 differ in step "), "{text}");
    let line = |before: &str| text.lines().find_map(|line| line.strip_prefix(before).map(str::to_owned)).unwrap();
    assert_ne!(line("  first run:  "), line("  second run: "));
    text
}

/// 10.1d: the behaviour of the scenario depends on the order of a randomly seeded hash map. The report names the first
/// step that differs between two runs.
#[test]
fn a_dependence_on_the_order_of_a_random_map_is_detected() {
    let text = difference(async |host: Host| {
        let naps: HashMap<u64, ()> = (1..64).map(|nap| (nap, ())).collect();
        for nap in naps.into_keys() {
            host.spawn(async move |ctx: Context| ctx.sleep(ms(nap)).await).started().await.unwrap();
        }
        host.sleep(HOUR).await;
    });
    assert!(text.contains("ms <0."), "the process is named: {text}");
}

/// 10.1d: a scenario that reads the time of the system is reported.
#[test]
fn the_use_of_real_time_is_detected() {
    let begun = std::time::Instant::now();
    difference(async |host: Host| {
        let nap = begun.elapsed();
        host.spawn(async move |ctx: Context| ctx.sleep(nap * 1_000).await).await.unwrap();
    });
}

/// 10.1d: a scenario that uses another thread is reported.
#[test]
fn the_use_of_another_thread_is_detected() {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    difference(async |host: Host| {
        let process = host.spawn(async |ctx: Context| {
            let many = thread::spawn(|| RUNS.fetch_add(1, SeqCst)).join().unwrap();
            for _ in 0..many {
                ctx.yield_now().await;
            }
        });
        process.await.unwrap();
    });
}

/// 10.1d: a scenario that is woken from outside the simulation is reported.
#[test]
fn a_wake_up_from_outside_the_simulation_is_detected() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    difference(async |host: Host| {
        let wakes = RUNS.fetch_add(1, SeqCst);
        let waker = Arc::new(Mutex::new(None::<Waker>));
        let own = waker.clone();
        let mut polls = 0;
        let sleeper = host.spawn(async move |_: Context| {
            std::future::poll_fn(|cx| {
                *own.lock().unwrap() = Some(cx.waker().clone());
                polls += 1;
                if polls > wakes { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        });
        for _ in 0..wakes {
            settle(&host).await;
            let waker = waker.lock().unwrap().clone().unwrap();
            thread::spawn(move || waker.wake()).join().unwrap();
        }
        sleeper.await.unwrap();
    });
}

/// 10.1d: `check` also runs a failing seed a second time. If the two runs differ, the report contains both the
/// difference and the failure.
#[test]
fn a_failure_that_does_not_recur_is_reported_with_the_difference() {
    let runs = AtomicUsize::new(0);
    let text = verdict!(async |_: Host| if runs.fetch_add(1, SeqCst) == 0 { Err("only once") } else { Ok(()) });
    let text = text.expect("a difference");
    assert!(
        text.contains("differ in their result\n  first run:  failed: only once\n  second run: it passes"),
        "{text}"
    );
    assert!(text.contains("the first run fails: failed: only once") && text.contains("check(0..1, …)"), "{text}");
    assert_eq!(runs.load(SeqCst), 2);
}

/// 10.1d: `check` runs some passing seeds twice: the first seed, and about one seed in a hundred. Each run of `check`
/// selects the same seeds.
#[test]
fn some_passing_seeds_are_run_twice() {
    let twice = |seeds: std::ops::Range<u64>| {
        let runs = Mutex::new(HashMap::new());
        check(seeds, async |host: Host| {
            let drawn = host.spawn(async |ctx: Context| Ok::<_, Exit>(ctx.random())).await.unwrap();
            *runs.lock().unwrap().entry(drawn).or_insert(0) += 1;
        });
        let runs = runs.into_inner().unwrap();
        let mut twice: Vec<_> = runs.into_iter().filter(|&(_, runs)| runs == 2).map(|(drawn, _)| drawn).collect();
        twice.sort_unstable();
        twice
    };
    let all = twice(0..2_000);
    assert!((10..=40).contains(&all.len()), "{}", all.len());
    assert_eq!(all, twice(0..2_000));
    assert_eq!(twice(7..8).len(), 1);
}

/// 2.1e, 10.1a: the pids of two simulations may have the same text. A pid is valid only in its own simulation. If a pid
/// is parsed from text during a run, the pid belongs to the simulation that is running.
#[test]
fn a_pid_belongs_to_one_simulation() {
    async fn counts(mut ctx: Context<u64>) -> Result<u64, Exit> {
        ctx.receive().await
    }
    let (mut one, mut other) = (Simulation::new(1), Simulation::new(1));
    let (first, second) = (one.spawn(counts), other.spawn(counts));
    assert_eq!(first.pid().to_string(), second.pid().to_string());
    assert_ne!(first.pid(), second.pid());
    assert_eq!(first.pid().incarnation(), 0);
    let rt = crate::two();
    let of_runtime = rt.spawn(counts);
    for host in [other.host(), rt.host()] {
        let pid = first.pid();
        assert_eq!(host.send(pid, 1_u64).unwrap_err().kind(), SendErrorKind::NoProcess);
        assert_eq!(host.kill(pid), Err(NoProcess(pid)));
        assert!(host.address::<u64>(pid).is_none());
    }
    assert_eq!(one.send(of_runtime.pid(), 1_u64).unwrap_err().kind(), SendErrorKind::NoProcess);
    assert_eq!(one.send(second.pid(), 1_u64).unwrap_err().kind(), SendErrorKind::NoProcess);
    let text = second.pid().to_string();
    let host = other.host().clone();
    let counted = other.run(async {
        let pid: Pid = text.parse().unwrap();
        assert_eq!(pid, second.pid());
        host.send(pid, 7_u64).unwrap();
        second.await
    });
    assert_eq!(counted.unwrap(), 7);
    // Outside a run, no process has the pid that this text contains.
    assert_eq!(one.send(text.parse::<Pid>().unwrap(), 1_u64).unwrap_err().kind(), SendErrorKind::NoProcess);
    one.send(first.pid(), 3_u64).unwrap();
    assert_eq!(one.run(first).unwrap(), 3);
}

/// Body of a process that waits for a message of another process. The other process waits for a message of this
/// process, so both processes wait forever.
async fn waits_for_the_other(mut ctx: Context<Pid>) -> Result<(), Exit> {
    let other = ctx.receive().await?;
    let answer = ctx.receive().await?;
    ctx.send(other, answer)?;
    Ok(())
}

async fn deadlock(host: &Host) -> Result<(), Exit> {
    let (one, other) = (host.spawn(waits_for_the_other), host.spawn(waits_for_the_other));
    one.send(other.pid())?;
    other.send(one.pid())?;
    one.await?;
    other.await
}

/// 9.2f, 10.1f: a deadlock is detected even if a periodic timer runs. The report names the processes that wait in the
/// deadlock, but not the processes that use the timer.
#[test]
fn a_periodic_timer_does_not_hide_a_deadlock() {
    within(120, || {
        let interval = verdict!(async |host: Host| {
            let _ticks = host.spawn(async |ctx: Context| -> Result<(), Exit> {
                let mut ticks = ctx.interval(ms(10));
                loop {
                    ticks.tick().await;
                }
            });
            deadlock(&host).await
        });
        let repeated = verdict!(async |host: Host| {
            let _hears = host.spawn(async |mut ctx: Context<u64>| {
                ctx.send_interval(ms(10), ctx.pid(), 1_u64);
                while ctx.receive().await.is_ok() {}
            });
            deadlock(&host).await
        });
        for text in [interval, repeated] {
            let text = text.expect("a deadlock");
            assert!(text.contains("it panicked at ") && text.contains(": deadlock beside timers: "), "{text}");
            let waits = ["<0.1.1>", "<0.2.1>"].map(|pid| format!("{pid} was waiting for a message or another event"));
            assert!(text.contains(&format!("{}\n", waits.join("; "))), "{text}");
        }
    });
}

/// 10.1f: if a process sleeps for a long time while a periodic timer runs, there is no deadlock. A process may also
/// wait for many ticks of a timer. In this case, `deadlock_after` must set a sufficient number of ticks.
#[test]
fn a_long_wait_while_a_periodic_timer_runs_is_not_a_deadlock() {
    const TICKS: u64 = 70_000;
    async fn counts(ctx: Context) {
        let mut ticks = ctx.interval(ms(10));
        for _ in 0..TICKS {
            ticks.tick().await;
        }
    }
    within(120, || {
        let mut simulation = Simulation::new(1);
        let counting = simulation.spawn(counts);
        let host = simulation.host().clone();
        simulation.run(async move {
            let _waits = host.spawn(waits);
            host.sleep(TICKS as u32 * ms(10)).await;
        });
        simulation.run(counting).unwrap();
        let mut simulation = Simulation::new(1).deadlock_after(u64::MAX);
        let counting = simulation.spawn(counts);
        simulation.run(counting).unwrap();
        let scenario = async |host: Host| host.spawn(counts).await;
        // Only the future of the scenario waits.
        let text = panic_of(|| Check::new(0..1).run(scenario)).expect("the limit");
        let text = text.lines().next().unwrap_or_default();
        assert!(text.contains("and the future passed to `run` has not run; ") && text.ends_with(" intended"), "{text}");
        Check::new(0..1).deadlock_after(2 * TICKS).run(scenario);
    });
}

/// 9.5a: a killed process exits as `Killed`. If a linked process panics after the kill, the killed process does not
/// receive this panic, so the panic is unobserved.
#[test]
fn a_killed_process_does_not_receive_the_panic_of_a_linked_process() {
    let text = verdict!(async |host: Host| {
        let session = host.spawn(async |mut ctx: Context| -> Result<(), Exit> {
            let me = ctx.pid();
            drop(ctx.spawn_link(async move |ctx: Context| -> Result<(), Exit> {
                ctx.host().kill(me)?;
                panic!("a bug");
            }));
            ctx.receive().await.map(drop)
        });
        assert!(matches!(session.await, Err(Exit::Killed)));
        settle(&host).await;
        Ok::<_, Exit>(())
    });
    let text = text.expect("a failure");
    assert!(text.contains("receives an exit: <0.1.1> panicked at "), "{text}");
}

/// 9.5a: two children of a process fail, and the process is linked with both children. The first failure makes the
/// process exit. If the second failure arrives before the process exits, this failure counts as received too. The exit
/// of the process reports one of the two failures.
#[test]
fn a_process_that_must_exit_also_receives_a_second_failure() {
    let mut both_failed = 0;
    for seed in 0..20 {
        let first_run = OnceLock::new();
        let text = panic_of(|| {
            check(seed..seed + 1, async |host: Host| {
                let failed = Arc::new(AtomicU64::new(0));
                let count = Arc::clone(&failed);
                let session = host.spawn(async move |mut ctx: Context| -> Result<(), Exit> {
                    for _ in 0..2 {
                        let count = Arc::clone(&count);
                        drop(ctx.spawn_link(async move |_: Context| -> Result<(), &'static str> {
                            count.fetch_add(1, SeqCst);
                            Err("no luck")
                        }));
                    }
                    ctx.receive().await.map(drop)
                });
                assert!(session.await.is_err());
                settle(&host).await;
                first_run.get_or_init(|| failed.load(SeqCst));
            });
        });
        // If the process `session` exits before its second child runs, the link makes the second child exit too. Then
        // nothing receives the exit of the second child, so the check reports this exit.
        let both = *first_run.get().expect("the scenario ends") == 2;
        assert_eq!(text.is_none(), both, "{text:?}");
        both_failed += u64::from(both);
    }
    assert!((1..20).contains(&both_failed), "{both_failed}");
}

/// 10.1f: for each message, a process sets a time limit of one day, and cancels this time limit when the message
/// arrives. These cancelled time limits do not hide a deadlock.
#[test]
fn a_cancelled_time_limit_does_not_hide_a_deadlock() {
    let text = within(60, || {
        let scenario = async |host: Host| {
            let server = host.spawn(async |mut ctx: Context<u8>| -> Result<(), Exit> {
                loop {
                    let limit = ctx.sleep(24 * HOUR);
                    match select(ctx.receive(), limit).await {
                        Either::Left((message, _)) => drop(message?),
                        Either::Right(_) => return Ok(()),
                    }
                }
            });
            let address = server.address();
            let ticker = host.spawn(async move |ctx: Context| {
                while address.send(1).is_ok() {
                    ctx.sleep(ms(1)).await;
                }
            });
            ticker.started().await?;
            deadlock(&host).await
        };
        panic_of(|| Check::new(0..1).deadlock_after(5_000).run(scenario))
    });
    let text = text.expect("a deadlock");
    assert!(text.contains("deadlock beside timers"), "{text}");
}

async fn panics_when_called(mut ctx: Context<Reply<()>>) -> Result<(), Exit> {
    let _reply = ctx.receive().await?;
    panic!("boom");
}

/// 9.5a, 10.1e: the scenario ends before the receiver of an exit has run. The exit still counts as observed, under each
/// seed. The receiver is a supervisor, a pool, a process, or a future that awaits the join handle.
#[test]
fn an_exit_is_observed_even_if_the_scenario_ends_first() {
    const WORK: Name<Reply<()>> = Name::new("work");
    check(0..50, async |host: Host| {
        let tree = host.spawn_process(Supervisor::one_for_one().child(WORK, panics_when_called));
        tree.started().await?;
        assert!(matches!(host.call(WORK, |reply| reply).await, Err(CallError::Died(_))));
        Ok::<_, Exit>(())
    });
    check(0..50, async |host: Host| {
        let pool = host.spawn_pool(Pool::new(2, panics_when_called));
        pool.started().await?;
        assert!(matches!(pool.call(|reply| reply).await, Err(CallError::Died(_))));
        Ok::<_, Exit>(())
    });
    check(0..50, async |host: Host| {
        let worker = host.spawn(panics_when_called);
        let address = worker.address();
        drop(host.spawn(async move |_: Context| assert!(worker.await.is_err())));
        assert!(address.call(|reply| reply).await.is_err());
    });
    check(0..50, async |host: Host| {
        let worker = host.spawn(panics_when_called);
        let address = worker.address();
        host.spawn_future(async move { assert!(worker.await.is_err()) });
        assert!(address.call(|reply| reply).await.is_err());
    });
}

/// 9.5a, 10.1e: a failure after the end of the scenario does not fail the run, even if the end of the scenario causes
/// this failure. A failure before the end of the scenario still fails the run. This also holds if a linked process
/// receives this failure and exits only after the end of the scenario.
#[test]
fn a_failure_after_the_end_of_the_scenario_is_not_reported() {
    check(0..50, async |host: Host| {
        let (address, _mailbox) = host.mailbox::<Reply<()>>();
        let caller = host.spawn(async move |ctx: Context| {
            ctx.mark_started();
            address.call(|reply| reply).await.map_err(Exit::failed)
        });
        caller.started().await
    });
    // This process is always runnable. The end of the scenario does not wait for this process.
    check(0..5, async |host: Host| {
        drop(host.spawn(async |ctx: Context| {
            while !ctx.is_cancelled() {
                ctx.yield_now().await;
            }
        }));
    });
    for seed in 0..20 {
        let text = panic_of(|| {
            check(seed..seed + 1, async |host: Host| {
                let failing = host.spawn(async |mut ctx: Context<Reply<()>>| -> Result<(), Exit> {
                    drop(ctx.spawn_link(waits));
                    let _reply = ctx.receive().await?;
                    panic!("boom");
                });
                assert!(failing.call(|reply| reply).await.is_err());
            });
        });
        assert!(text.expect("a failure").contains(": boom"));
    }
}

/// 9.5a: if an `exited()` future is not polled after the exit and is then dropped, this future has not received the
/// exit. The failure is reported when the last of these `exited()` futures is dropped.
#[test]
fn a_failure_is_reported_when_the_last_future_that_waits_for_it_is_dropped() {
    let rt = Runtime::builder().workers(0).on_crash(|_| ()).build().unwrap();
    let handle = rt.spawn(async |_: Context| Err::<(), _>("boom"));
    let futures = [handle.exited(), handle.exited()];
    drop(handle);
    rt.block_on(rt.spawn(async |ctx: Context| ctx.yield_now().await)).unwrap();
    let [first, last] = futures;
    drop(first);
    assert_eq!(rt.counters().unobserved, 0, "a future still waits");
    drop(last);
    assert_eq!(rt.counters().unobserved, 1);
}

/// 10.1e: an error may own the join handle of another failed process. The check reports both failures.
#[test]
fn an_unobserved_error_may_own_the_handle_of_another_failed_process() {
    #[derive(Debug)]
    struct Carries(#[expect(dead_code, reason = "it is only dropped")] Mutex<JoinHandle<(), ()>>);
    impl std::fmt::Display for Carries {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a fails")
        }
    }
    impl std::error::Error for Carries {}
    let message = within(60, || {
        panic_of(|| {
            check(0..1, async |host: Host| {
                let b = host.spawn(async |_: Context<()>| Err::<(), _>("b fails"));
                drop(host.spawn(async move |ctx: Context| {
                    ctx.sleep(ms(1)).await;
                    Err::<(), _>(Carries(Mutex::new(b)))
                }));
                host.sleep(ms(5)).await;
                Ok::<_, Exit>(())
            });
        })
    });
    let message = message.expect("two failures are unobserved");
    assert!(message.contains("a fails"), "{message}");
}

//! Sections 10.1 and 7.2 of the specification: a simulation runs processes in virtual time. A seed decides the order in
//! which the processes run.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use futures::future::{BoxFuture, join_all, pending};
use futures::{FutureExt, StreamExt};
use procession::*;

use crate::{step_aside, within};

const HOUR: Duration = Duration::from_secs(3600);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Runs a scenario in a simulation with the given seed. Returns the output of the scenario and the trace of the
/// simulation.
fn under<F: Future>(seed: u64, scenario: impl FnOnce(Host) -> F) -> (F::Output, String) {
    let mut simulation = Simulation::new(seed);
    let host = simulation.host().clone();
    let output = simulation.run(scenario(host));
    (output, simulation.trace())
}

/// Returns the panic message of `f`, which must panic.
fn panic_of<T>(f: impl FnOnce() -> T) -> String {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(_) => panic!("it does not panic"),
        Err(panic) => *panic.downcast::<String>().expect("a text"),
    }
}

struct Inline(u64);
impl Command for Inline {
    type Reply = u64;
}
struct Slow(u64);
impl Command for Slow {
    type Reply = u64;
}
struct Blocks(u64);
impl Command for Blocks {
    type Reply = u64;
}
struct Numbers;
impl Command for Numbers {
    type Reply = ();
}
impl StreamCommand for Numbers {
    type Item = u64;
}

/// Returns a host with handlers of every kind.
fn tools(host: &Host) -> Host {
    let clock = host.clone();
    let tools = HostBuilder::new("tools")
        .handle(|c: Inline| c.0)
        .handle_async(move |c: Slow| {
            let nap = clock.sleep(ms(c.0));
            async move {
                nap.await;
                c.0
            }
        })
        .handle_blocking(|c: Blocks| c.0)
        .handle_stream(async |_: Numbers, mut to: StreamCompletion<Numbers>| {
            for n in 0..5 {
                to.send(n).await?;
            }
            Ok::<_, Failure>(())
        });
    host.add_host(tools).unwrap()
}

enum Ask {
    Add(u64),
    Total(Reply<u64>),
    Die,
}

async fn adder(mut ctx: Context<Ask>) -> Result<(), Exit> {
    let mut total = 0;
    loop {
        match ctx.receive().await? {
            Ask::Add(n) => total += n,
            Ask::Total(reply) => reply.send(total),
            Ask::Die => return Err(Exit::failed("as it was told")),
        }
    }
}

const ADDER: Name<Ask> = Name::new("adder");

/// A scenario that uses many features. The result of the scenario is the same under every order of execution. The last
/// number of the result is 1 if an hour has passed.
async fn many_features(host: Host) -> Result<Vec<u64>, Exit> {
    let begun = host.now();
    let tools = tools(&host);
    let child = Child::new(ADDER, adder).backoff(Backoff::new(ms(10), ms(500)));
    let tree = host.spawn_process(Supervisor::one_for_one().intensity(9, HOUR).add(child));
    tree.started().await?;
    let pool = host.spawn_pool(Pool::new(3, adder));
    let member = |n: u64| {
        let pool = pool.address().clone();
        async move |mut ctx: Context| {
            let (inline, slow, blocks) =
                futures::join!(ctx.perform(Inline(n)), ctx.perform(Slow(n % 3)), ctx.perform(Blocks(n)));
            ctx.yield_now().await;
            let numbers: Vec<_> = ctx.stream(Numbers).collect().await;
            let child = ctx.spawn(adder);
            child.send(Ask::Add(ctx.random() % 1_000))?;
            assert!(child.call(Ask::Total).await? < 1_000);
            ctx.monitor(child.pid());
            child.send(Ask::Die)?;
            let Event::Down { .. } = ctx.event().await else { panic!("its end is told") };
            pool.send(Ask::Add(n))?;
            Ok::<_, Exit>(inline? + slow? + blocks? + numbers.len() as u64)
        }
    };
    let members: Vec<_> = (0..6).map(|n| tools.spawn(member(n))).collect();
    let mut all = Vec::new();
    for member in members {
        all.push(member.await?);
    }
    host.send(ADDER, Ask::Add(7))?;
    all.push(host.call(ADDER, Ask::Total).await?);
    host.send(ADDER, Ask::Die)?;
    while !matches!(host.call(ADDER, Ask::Total).await, Ok(0)) {
        host.sleep(ms(7)).await;
    }
    host.sleep(HOUR).await;
    all.push(u64::from(host.now() - begun >= HOUR));
    Ok(all)
}

/// 10.1b: the runtime handles a measured message differently from other messages, and this can change the number of
/// turns. Nevertheless, the same seed gives the same trace, even if the thread has sent other messages before.
#[test]
fn measured_messages_do_not_change_the_trace_of_a_seed() {
    let trace = || {
        let mut simulation = Simulation::new(5);
        let receives = simulation.spawn(async |mut ctx: Context<u64>| {
            for _ in 0..2_000 {
                if ctx.receive().await? != 0 {
                    ctx.address().send(0).unwrap();
                }
            }
            Ok::<_, Exit>(())
        });
        let to = receives.address();
        let _sends = simulation.spawn(async move |ctx: Context| {
            for _ in 0..1_000 {
                to.send(1).unwrap();
                ctx.sleep(Duration::from_millis(1)).await;
            }
        });
        simulation.run(receives).unwrap();
        simulation.trace()
    };
    let first = trace();
    assert!((0..5).all(|_| trace() == first));
}

/// 10.1b: messages that the thread sends between the creation and the run of a simulation do not change the trace of
/// the seed. Between two runs, a thread may send messages to the simulation. In this case too, the number of messages
/// that this thread has sent elsewhere does not change the trace.
#[test]
fn messages_outside_a_run_do_not_change_the_trace_of_a_seed() {
    /// Sends `outside` messages between runs, and 1,000 messages during a run.
    fn trace(mut simulation: Simulation, outside: usize) -> String {
        let receives = simulation.spawn(async move |mut ctx: Context<u64>| {
            for _ in 0..2_000 + 2 * outside {
                if ctx.receive().await? != 0 {
                    ctx.address().send(0).unwrap();
                }
            }
            Ok::<_, Exit>(())
        });
        let (host, to) = (simulation.host().clone(), receives.address().clone());
        for _ in 0..outside {
            simulation.run(host.sleep(ms(1)));
            to.send(1).unwrap();
        }
        let _sends = simulation.spawn(async move |ctx: Context| {
            for _ in 0..1_000 {
                to.send(1).unwrap();
                ctx.sleep(ms(1)).await;
            }
        });
        simulation.run(receives).unwrap();
        simulation.trace()
    }
    /// Sends messages in a separate runtime on this thread, to change the number of messages that the thread has sent.
    /// Each message arrives in an empty mailbox.
    fn send_elsewhere(messages: usize) {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let sends = rt.spawn(async move |mut ctx: Context<u64>| {
            for _ in 0..messages {
                ctx.address().send(0).unwrap();
                ctx.receive().await?;
            }
            Ok::<_, Exit>(())
        });
        rt.block_on(sends).unwrap();
    }
    for outside in [0, 300] {
        let (one, two) = (Simulation::new(5), Simulation::new(5));
        let first = trace(one, outside);
        assert!(trace(two, outside) == first, "{outside}");
        for messages in [1, 77, 300] {
            let simulation = Simulation::new(5);
            send_elsewhere(messages);
            assert!(trace(simulation, outside) == first, "{outside}, {messages}");
        }
    }
}

/// 10.1b: the same seed always gives the same trace, byte for byte. A different seed gives a different trace. A correct
/// program computes the same result under every seed.
#[test]
fn the_same_seed_gives_the_same_trace() {
    within(60, || {
        let expected = [5, 8, 11, 11, 14, 17, 7, 1];
        let mut traces = BTreeSet::new();
        for seed in 0..20 {
            let (all, trace) = under(seed, many_features);
            assert_eq!(all.unwrap(), expected);
            let (_, again) = thread::spawn(move || under(seed, many_features)).join().unwrap();
            assert_eq!(trace, again);
            traces.insert(trace);
        }
        assert_eq!(traces.len(), 20);
    });
}

/// 1.4a, 10.1c: a scenario needs only a host. Therefore the same scenario can run in a runtime and in a simulation.
#[test]
fn a_scenario_runs_in_a_runtime_and_in_a_simulation() {
    async fn scenario(host: Host) -> Result<u64, Exit> {
        let adder = host.spawn(adder);
        join_all((1..=4_u64).map(|n| {
            let adder = adder.address().clone();
            host.spawn(async move |ctx: Context| {
                ctx.sleep(ms(n)).await;
                adder.send(Ask::Add(n))
            })
        }))
        .await;
        Ok(adder.call(Ask::Total).await?)
    }
    within(60, || {
        let rt = Runtime::new().unwrap();
        assert_eq!(rt.block_on(scenario(rt.host().clone())).unwrap(), 10);
        let sums = std::cell::RefCell::new(Vec::new());
        check(0..50, async |host: Host| {
            let sum = scenario(host).await?;
            sums.borrow_mut().push(sum);
            Ok::<_, Exit>(())
        });
        // `check` runs some seeds a second time.
        let sums = sums.into_inner();
        assert!(sums.len() > 50 && sums.iter().all(|&sum| sum == 10), "{sums:?}");
    });
}

/// 7.1b, 7.2a, 10.1a: time is virtual. A long sleep takes no real time. In virtual time, the duration of the sleep is
/// exact to the tick.
#[test]
fn virtual_time_advances_when_no_process_is_runnable() {
    let (_, trace) = under(1, async |host: Host| {
        let begun = host.now();
        host.sleep(100 * HOUR).await;
        assert_eq!(host.now() - begun, 100 * HOUR);
        let begun = host.now();
        let ticks = host.spawn(async move |ctx: Context| {
            let mut ticks = ctx.interval(ms(250));
            for n in 1..=5 {
                ticks.tick().await;
                assert_eq!(ctx.now() - begun, n * ms(250));
            }
        });
        let never = host.spawn(async move |ctx: Context| {
            assert!(matches!(ctx.timeout(ms(70), pending::<()>()).await, Err(Failure::TimedOut)));
            assert_eq!(ctx.now() - begun, ms(70));
        });
        ticks.await?;
        never.await?;
        // If the deadline of a sleep is between two ticks, the sleep returns at the later tick, never earlier.
        let begun = host.now();
        host.sleep(Duration::from_micros(1_001)).await;
        assert_eq!(host.now() - begun, ms(2));
        Ok::<_, Exit>(())
    });
    assert!(trace.starts_with("0ns the scenario runs\n360000s the scenario runs\n"), "{trace}");
}

/// 7.2a, 10.1a: virtual time also advances while a process is always runnable. One process polls the clock until a
/// deadline, and another process sleeps. Each of the two processes reaches its deadline.
#[test]
fn virtual_time_advances_while_a_process_never_sleeps() {
    within(60, || {
        let (_, trace) = under(3, async |host: Host| {
            let until = host.now() + ms(5);
            let polls = host.spawn(async move |ctx: Context| {
                while ctx.now() < until {
                    ctx.yield_now().await;
                }
            });
            let sleeps = host.spawn(async |ctx: Context| ctx.sleep(ms(2)).await);
            sleeps.await?;
            assert!(host.now() < until && !polls.is_finished());
            polls.await
        });
        assert!(trace.lines().last().unwrap().starts_with("5ms "), "{}", trace.lines().last().unwrap());
    });
}

/// 7.2b, 10.1a, 10.1b: the seed determines all choices. Each order of three runnable processes occurs with at least one
/// seed. The three processes get different random numbers.
#[test]
fn every_order_of_three_processes_occurs_under_some_seed() {
    let orders: BTreeSet<_> = (0..100)
        .map(|seed| {
            let order = Arc::new(Mutex::new(Vec::new()));
            let all = (0..3).map(|n| {
                let order = order.clone();
                async move |ctx: Context| {
                    order.lock().unwrap().push(n);
                    ctx.random()
                }
            });
            let mut simulation = Simulation::new(seed);
            let all: Vec<_> =
                all.map(|body| simulation.spawn(async move |ctx| Ok::<_, Exit>(body(ctx).await))).collect();
            let random = simulation.run(join_all(all)).into_iter().map(Result::unwrap).collect::<BTreeSet<_>>();
            assert_eq!(random.len(), 3);
            std::mem::take(&mut *order.lock().unwrap())
        })
        .collect();
    assert_eq!(orders.len(), 6);
}

/// 10.1a: processes, handlers and blocking closures run on the thread that runs the simulation.
#[test]
fn a_simulation_uses_one_thread() {
    let here = thread::current().id();
    let is_here = move || assert_eq!(thread::current().id(), here);
    let mut simulation = Simulation::with_host(
        1,
        HostBuilder::new("")
            .handle_blocking(move |c: Blocks| {
                is_here();
                c.0
            })
            .handle_async(move |c: Slow| async move {
                is_here();
                c.0
            }),
    )
    .unwrap();
    let process = simulation.spawn(async move |ctx: Context| {
        is_here();
        let sum = ctx.perform(Blocks(3)).await? + ctx.perform(Slow(4)).await?;
        Ok::<_, Failure>(
            sum + ctx
                .host()
                .spawn_blocking(move || {
                    is_here();
                    5
                })
                .await?,
        )
    });
    assert_eq!(simulation.run(process).unwrap(), 12);
    assert_eq!(simulation.counters().spawned, 1);
    assert!(matches!(
        Simulation::with_host(1, HostBuilder::new("").handle(|_: Inline| 1).handle(|_: Inline| 2)),
        Err(BuildError::DuplicateHandler { .. })
    ));
}

/// 9.2f, 10.1f: if a scenario can never end, the simulation panics. The panic message names the waiting processes, and
/// the event for which each process waits.
#[test]
fn a_scenario_that_never_ends_is_reported() {
    let mut simulation = Simulation::new(1);
    let adder = simulation.spawn(adder);
    let text = panic_of(|| simulation.run(pending::<()>()));
    assert!(
        text.starts_with("deadlock: no process is runnable") && text.contains("<0.0.1> was waiting for a message"),
        "{text}"
    );
    // The simulation still works.
    assert_eq!(simulation.run(adder.call(Ask::Total)).unwrap(), 0);
    let mut simulation = Simulation::new(1);
    assert!(panic_of(|| simulation.run(pending::<()>())).contains("no process is left"));
    let _many: Vec<_> = (0..30).map(|_| simulation.spawn(async |_: Context| pending::<()>().await)).collect();
    assert!(panic_of(|| simulation.run(pending::<()>())).contains("and 10 more"));
}

/// 10.1a: a panic in a process is recorded in the trace. A panic in the scenario reaches the caller of `run`. After
/// each of these panics, the other processes can continue.
#[test]
fn a_panic_is_recorded_or_reaches_the_caller_of_run() {
    let mut simulation = Simulation::new(1);
    let process = simulation.spawn(async |ctx: Context| assert_eq!(ctx.random(), 0, "of its own"));
    assert!(simulation.run(process).is_err());
    assert!(simulation.trace().contains("<0.0.1> panicked: assertion"), "{}", simulation.trace());
    let adder = simulation.spawn(adder);
    assert_eq!(panic_of(|| simulation.run(async { panic!("{}", 7) })), "7");
    assert_eq!(simulation.run(adder.call(Ask::Total)).unwrap(), 0);
}

/// A scenario with a lost update: two processes read a number, and then each process writes a new value.
async fn lost_update(host: Host) -> Result<(), Exit> {
    let total = Arc::new(AtomicUsize::new(0));
    let one = |_| {
        let total = total.clone();
        host.spawn(async move |ctx: Context| {
            let read = total.load(SeqCst);
            ctx.yield_now().await;
            total.store(read + 1, SeqCst);
        })
    };
    for one in [(); 2].map(one) {
        one.await?;
    }
    if total.load(SeqCst) == 2 { Ok(()) } else { Err(Exit::failed("an update was lost")) }
}

/// 10.3a: the report of a failing seed contains the code that runs this seed again, the reduced number of random
/// choices, and the trace. The second run of this seed fails in the same way.
#[test]
fn a_failing_seed_is_shrunk_and_run_again() {
    let text = panic_of(|| check(0..1_000, lost_update));
    let number = |before: &str| -> u64 {
        let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("{before:?} is not in {text}"));
        rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    let (seed, choices) = (number("under seed "), number(".random_choices("));
    assert!(text.contains(&format!("check({seed}..{}, …)", seed + 1)) && text.contains("an update was lost"), "{text}");
    assert!(text.contains("<0.1.1> complete\n"), "{text}");
    let run = |choices| {
        let mut simulation = Simulation::new(seed).random_choices(choices);
        let host = simulation.host().clone();
        let failed = simulation.run(lost_update(host)).is_err();
        (failed, simulation.trace())
    };
    let (failed, trace) = run(choices);
    assert!(failed && text.ends_with(&trace), "{text}");
    assert!(choices == 0 || !run(choices - 1).0);
    // The scenario passes under all smaller seeds.
    check(0..seed, lost_update);
    assert_eq!(panic_of(|| check(seed..seed + 1, lost_update)), text);
    // A panic counts as a failure. A scenario that never ends counts as a failure too.
    assert!(
        panic_of(|| check(0..1, async |host: Host| assert_ne!(host.node(), 0, "it is wrong"))).contains("it is wrong")
    );
    assert!(panic_of(|| check(0..1, async |_: Host| pending::<()>().await)).contains("deadlock: "));
}

/// 10.3a: the report of a failing seed repeats the options of the check. If `Simulation::run` does not detect this kind
/// of failure, the report states that only a check reports the failure.
#[test]
fn the_report_of_a_check_contains_its_options() {
    let fails = async |_: Host| Err::<(), _>(Exit::failed("it is wrong"));
    let only = "only a check reports this failure";
    let text = panic_of(|| Check::new(3..9).deadlock_after(5_000).allow_unobserved_exits().run(fails));
    for line in [
        "again: `Check::new(3..4).allow_unobserved_exits().deadlock_after(5000).run(…)`; ",
        "shrunk: `Simulation::new(3).random_choices(0).deadlock_after(5000)`\n",
    ] {
        assert!(text.contains(line) && !text.contains(only), "{text}");
    }
    let drops = async |host: Host| {
        drop(host.spawn(async |_: Context| Err::<(), _>("it is dropped")));
        host.sleep(ms(1)).await;
    };
    let text = panic_of(|| Check::new(3..9).deadlock_after(5_000).run(drops));
    assert!(text.contains("again: `Check::new(3..4).deadlock_after(5000).run(…)`") && text.contains(only), "{text}");
}

/// 6.5b, 6.5d, 10.1a: a simulation shuts down in the defined order and within its deadline. The report lists the
/// remaining processes.
#[test]
fn a_simulation_can_be_shut_down() {
    let mut simulation = Simulation::new(1);
    let obeys = simulation.spawn(async |mut ctx: Context| {
        let told = ctx.receive().await.is_err();
        ctx.sleep(ms(10)).await;
        told.then_some(()).ok_or("it was not told")
    });
    simulation.run(step_aside());
    simulation.run(obeys.started()).unwrap();
    let host = simulation.host().clone();
    let report = simulation.shutdown(HOUR);
    assert!(report.left.is_empty());
    assert!(futures::executor::block_on(obeys).is_ok());
    assert!(host.spawn(adder).is_finished());

    let mut simulation = Simulation::new(1);
    let deaf = simulation.spawn(async |_: Context| pending::<()>().await);
    simulation.run(deaf.started()).unwrap();
    let (host, begun) = (simulation.host().clone(), simulation.now());
    let until = begun + ms(1_500);
    let watch = host.clone();
    let late = simulation.spawn(async move |ctx: Context| {
        let _ = ctx.cancelled().await;
        ctx.sleep_until(until).await;
        assert!(watch.now() >= until);
    });
    simulation.run(late.started()).unwrap();
    let report = simulation.shutdown(ms(1_600));
    assert_eq!(report.left.iter().map(|left| left.pid).collect::<Vec<_>>(), [deaf.pid()]);
    assert!(matches!(futures::executor::block_on(deaf), Err(Exit::Killed)));
    assert!(futures::executor::block_on(late).is_ok());
}

/// 8.3b, 10.1a: when a simulation is dropped, it kills the remaining processes. The destructors of these processes run
/// exactly once. Later operations on the host of the simulation are refused. A sleep on this host completes
/// immediately.
#[test]
fn a_dropped_simulation_leaves_nothing_behind() {
    struct Counts(Arc<AtomicUsize>);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let counts = || Counts(dropped.clone());
    let mut simulation = Simulation::new(1);
    let (waits, new) = (counts(), counts());
    let waits = simulation.spawn(async move |mut ctx: Context| {
        let _waits = waits;
        ctx.receive().await.map(drop)
    });
    simulation.run(waits.started()).unwrap();
    let new = simulation.spawn(async move |_: Context| drop(new));
    let future = counts();
    simulation.spawn_future(async move {
        let _future = future;
        pending::<()>().await;
    });
    let blocks = counts();
    let refused = simulation.spawn_blocking(move || drop(blocks));
    let host = simulation.host().clone();
    let mut sleep = Box::pin(host.sleep(HOUR));
    assert!((&mut sleep).now_or_never().is_none());
    drop(simulation);
    assert_eq!(dropped.load(SeqCst), 4);
    within(10, || {
        futures::executor::block_on(async move {
            assert!(matches!(waits.await, Err(Exit::Killed)) && new.await.is_err());
            let failure = refused.await.unwrap_err();
            assert!(failure == Failure::ShutDown, "{failure}");
            sleep.await;
            host.sleep(HOUR).await;
            assert!(host.spawn(adder).is_finished());
        });
    });
}

/// 7.1b, 10.1a: after the shutdown of a host, the simulation continues until it is dropped. Time still passes for a
/// sleep, and blocking work still runs.
#[test]
fn a_simulation_continues_after_the_shutdown_of_its_host() {
    check(0..10, async |host: Host| {
        assert_eq!(host.shutdown(ms(1_000)).await.left, []);
        let begun = host.now();
        let mut short = Box::pin(host.sleep(HOUR / 2));
        assert!((&mut short).now_or_never().is_none());
        host.sleep(HOUR).await;
        assert_eq!(host.now() - begun, HOUR);
        short.await;
        assert_eq!(host.now() - begun, HOUR);
        assert_eq!(host.spawn_blocking(|| 5).await, Ok(5));
    });
}

/// 8.3a, 10.1a: a simulation runs on any thread. This thread may be running a process of a runtime or of another
/// simulation.
#[test]
fn a_simulation_runs_inside_other_runtimes() {
    fn nests(ctx: Context, depth: u64) -> BoxFuture<'static, Result<u64, Exit>> {
        Box::pin(async move {
            let inner = match depth {
                0 => 0,
                _ => {
                    let mut simulation = Simulation::new(depth);
                    let inner = simulation.spawn(move |ctx| nests(ctx, depth - 1));
                    simulation.run(inner)?
                }
            };
            // The inner simulation has ended, so the process belongs to the outer simulation or runtime again.
            let child = ctx.spawn(adder);
            child.send(Ask::Add(inner + 1))?;
            ctx.sleep(ms(1)).await;
            Ok(child.call(Ask::Total).await?)
        })
    }
    within(60, || {
        let rt = Runtime::builder().workers(2).build().unwrap();
        assert_eq!(rt.block_on(rt.spawn(|ctx| nests(ctx, 3))).unwrap(), 4);
    });
}

/// 6.5b: the shutdown of a simulation ends at its deadline, even if a process is always runnable.
#[test]
fn the_shutdown_of_a_simulation_ends_although_a_process_is_always_runnable() {
    within(120, || {
        for limit in [Duration::ZERO, ms(20)] {
            let mut simulation = Simulation::new(1);
            let busy = simulation.spawn(async |ctx: Context| -> Result<(), Exit> {
                loop {
                    ctx.yield_now().await;
                }
            });
            simulation.run(busy.started()).unwrap();
            let report = simulation.shutdown(limit);
            assert_eq!(report.left.iter().map(|left| left.pid).collect::<Vec<_>>(), [busy.pid()]);
        }
    });
}

/// 10.1a: after the last random choice, the processes run in the order in which they became runnable.
#[test]
fn after_the_last_random_choice_the_processes_run_in_order() {
    for seed in 0..50 {
        let order = Arc::new(Mutex::new(String::new()));
        let notes = Arc::clone(&order);
        let mut simulation = Simulation::new(seed).random_choices(1);
        let host = simulation.host().clone();
        simulation.run(async move {
            let spawn = |letter| {
                let notes = Arc::clone(&notes);
                host.spawn(async move |_: Context| notes.lock().unwrap().push(letter))
            };
            let handles: Vec<_> = "ABCDEF".chars().map(spawn).collect();
            join_all(handles).await;
        });
        let order = order.lock().unwrap();
        assert!(order[1..].chars().is_sorted(), "seed {seed}: {order}");
    }
}

/// 10.1b: a run does not depend on earlier runs on the same thread. A future pauses when the budget is spent. If the
/// thread remembered a pause from an earlier run, the next future would not pause.
#[test]
fn a_run_does_not_depend_on_earlier_runs_of_the_thread() {
    let run = || {
        let mut simulation = Simulation::new(1);
        let process = simulation.spawn(async |ctx: Context| -> Result<_, Exit> {
            ctx.cancelled().await;
            while !should_yield() {}
            Ok(ctx.cancelled().now_or_never().is_some())
        });
        simulation.host().cancel(process.pid(), "stop", ms(1_000)).unwrap();
        (simulation.run(process), simulation.trace())
    };
    let first = run();
    for _ in 0..3 {
        assert_eq!(run(), first);
    }
}

/// 10.1a: the `Debug` output of a simulation is written without a lock.
#[test]
fn the_debug_output_of_a_simulation_may_spawn_a_process() {
    struct Spawns(Host, usize);
    impl std::fmt::Write for Spawns {
        fn write_str(&mut self, _: &str) -> std::fmt::Result {
            self.0.spawn(async |_: Context| ());
            self.1 += 1;
            Ok(())
        }
    }
    within(60, || {
        let simulation = Simulation::new(1);
        let mut spawns = Spawns(simulation.host().clone(), 0);
        std::fmt::Write::write_fmt(&mut spawns, format_args!("{simulation:?}")).unwrap();
        assert!(spawns.1 > 5, "{}", spawns.1);
    });
}

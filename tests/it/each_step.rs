//! Section 6.5 of the specification: a small program has supervisors, restarts, commands and timers. The test runs
//! the program once for each step of the program, and begins a shutdown at this step.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{Either, select};
use procession::supervisor::*;
use procession::*;

use crate::step_aside;

const SUB: Name<SupervisorMessage> = Name::new("sub");
const HOUR: Duration = Duration::from_secs(3600);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

struct Ask(u64);
impl Command for Ask {
    type Reply = u64;
}

/// The events in the order of their occurrence. `+x` means that the process `x` has begun, `!x` means that the shutdown
/// has cancelled `x`, and `-x` means that `x` has exited.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(char, char)>>>);

impl Log {
    fn note(&self, what: char, of: char) {
        self.0.lock().unwrap().push((what, of));
    }

    fn events(&self) -> Vec<(char, char)> {
        self.0.lock().unwrap().clone()
    }
}

struct Over(Log, char);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.note('-', self.1);
    }
}

/// What a process of the program does until the process is cancelled.
#[derive(Clone, Copy)]
enum Work {
    /// The process performs commands with a time limit in a loop.
    Busy,
    /// The process waits for the answer to a command. This command is never answered.
    Asks,
    /// The process fails after two sleeps.
    Fails,
}

/// Body of a process. The process works until it is cancelled. Then the process cleans up: it performs a command and
/// sleeps.
async fn live(ctx: Context<()>, log: Log, name: char, work: Work) -> Result<(), Exit> {
    log.note('+', name);
    let _over = Over(log.clone(), name);
    let mut round = 0;
    let reason = loop {
        let working = async {
            match work {
                Work::Asks => ctx.perform(Ask(0)).await.map(drop),
                Work::Busy => ctx.perform(Ask(1)).timeout(HOUR).await.map(drop),
                Work::Fails => {
                    ctx.sleep(ms(1)).await;
                    Ok(())
                }
            }
        };
        match select(ctx.cancelled(), pin!(working)).await {
            Either::Left((reason, _)) => break reason,
            Either::Right((done, _)) => done?,
        }
        round += 1;
        if matches!(work, Work::Fails) && round == 2 {
            return Err(Exit::failed("again"));
        }
    };
    if reason == Reason::SHUTDOWN {
        log.note('!', name);
    }
    assert_eq!(ctx.perform(Ask(2)).await.unwrap(), 2);
    ctx.sleep(ms(1)).await;
    Err(Exit::Cancelled(reason))
}

/// Handler that never answers the number 0. The handler answers each number except 0 after 300 µs.
struct Answers(Arc<Mutex<Vec<Completion<u64>>>>);

impl Handler<Ask> for Answers {
    fn handle(&self, Ask(n): Ask, completion: Completion<u64>) {
        if n == 0 {
            return self.0.lock().unwrap().push(completion);
        }
        let host = completion.host().clone();
        host.clone().spawn_future(async move {
            host.sleep(Duration::from_micros(300)).await;
            completion.complete(n);
        });
    }
}

/// Starts a supervisor that has a second supervisor as a child. Also starts processes with each kind of `Work`: some of
/// these processes are children of the two supervisors, and the remaining processes have no supervisor.
fn begin(host: &Host, log: &Log) {
    let child = |name: char, work| {
        let log = log.clone();
        Child::unnamed(move |ctx| live(ctx, log.clone(), name, work))
    };
    let (asks, fails) = (log.clone(), log.clone());
    let below = move || {
        let (asks, fails) = (asks.clone(), fails.clone());
        Supervisor::one_for_all()
            .intensity(u32::MAX, HOUR)
            .add(Child::unnamed(move |ctx| live(ctx, asks.clone(), 'b', Work::Asks)))
            .add(
                Child::unnamed(move |ctx| live(ctx, fails.clone(), 'c', Work::Fails))
                    .backoff(Backoff::new(ms(1), ms(2))),
            )
    };
    let root = Supervisor::rest_for_one()
        .add(child('a', Work::Busy))
        .add(Child::process(SUB, below))
        .add(child('d', Work::Busy));
    drop(host.spawn_process(root));
    for (name, work) in [('e', Work::Busy), ('f', Work::Asks)] {
        let log = log.clone();
        drop(host.spawn(move |ctx| live(ctx, log, name, work)));
    }
    drop(host.spawn(async |ctx: Context| {
        for _ in 0..4 {
            ctx.sleep(ms(1)).await;
        }
    }));
}

/// Asserts that the supervisors stop their children one at a time, in reverse order. Also asserts that the other
/// processes are cancelled only after all processes of the tree have exited.
fn assert_top_down(log: &[(char, char)]) {
    let told: Vec<_> = log.iter().enumerate().filter(|(_, (what, _))| *what == '!').collect();
    let (tree, rest): (Vec<_>, Vec<_>) = told.iter().partition(|(_, (_, name))| *name <= 'd');
    let names: Vec<_> = tree.iter().map(|(_, (_, name))| *name).collect();
    assert!(names.is_sorted_by(|one, next| one > next), "{names:?} is no reverse order, or one is told twice");
    let over = |place: usize, name: char| {
        place + log[place..].iter().position(|&event| event == ('-', name)).expect("each that is told ends")
    };
    for pair in tree.windows(2) {
        let ((place, (_, name)), (next, _)) = (pair[0], pair[1]);
        assert!(over(place, *name) < next, "{name} was not over when the next one was told");
    }
    if let (Some((last, (_, name))), Some((first, _))) = (tree.last(), rest.first()) {
        assert!(over(*last, *name) < *first, "the rest is told after the tree");
    }
    for name in 'a'..='f' {
        let count = |what| log.iter().filter(|&&event| event == (what, name)).count();
        assert_eq!(count('+'), count('-'), "each life of {name} is over");
        assert!(count('!') <= 1, "{name} is told once");
    }
}

/// Returns when the processes of the program have taken at least `steps` steps.
async fn reach(host: &Host, steps: u64) {
    let (mut seen, mut idle) = (0, 0);
    while host.counters().steps < steps {
        // While the future of `reach` is always runnable, virtual time advances slowly. When all futures sleep, virtual
        // time jumps to the next timer.
        step_aside().await;
        let now = host.counters().steps;
        idle = if now == seen { idle + 1 } else { 0 };
        if idle == 20 {
            host.sleep(Duration::from_micros(100)).await;
            idle = 0;
        }
        seen = now;
    }
}

/// 6.5a, 6.5b, 6.5c: a shutdown may begin at any step. The shutdown stops the processes in order and before the
/// deadline, and leaves no process behind. After that, the drop of the simulation begins a second shutdown, which has
/// no effect.
#[test]
fn a_shutdown_at_any_step_stops_processes_in_order() {
    let mut told = BTreeSet::new();
    for step in 0..120 {
        // The seed selects the steps after which `reach` is polled. The call of `find_map` finds a seed with which
        // `reach` returns exactly at this step.
        let steps_at = |seed| {
            let log = Log::default();
            let shelf = Arc::default();
            let host = HostBuilder::new("").handler(Answers(Arc::clone(&shelf)));
            let mut simulation = Simulation::with_host(seed, host).unwrap();
            let host = simulation.host().clone();
            begin(&host, &log);
            simulation.run(reach(&host, step));
            (host.counters().steps == step).then_some((simulation, log, shelf))
        };
        let (simulation, log, shelf) = (0..100).find_map(steps_at).expect("one of the seeds stops there");
        let (host, before, begun) = (simulation.host().clone(), log.events(), simulation.now());
        let shutdown = simulation.shutdown(HOUR);
        let log = log.events();
        let context = format!("step {step}, {before:?} and then {:?}", &log[before.len()..]);
        assert!(shutdown.left.is_empty(), "{:?}, {context}", shutdown.left);
        // Each clean-up takes 1.3 ms. At most seven clean-ups and one restart happen one after another.
        assert!(host.now() - begun < ms(20), "{:?}, {context}", host.now() - begun);
        let counters = host.counters();
        assert_eq!((counters.spawned, counters.panics), (counters.exited, 0), "{context}");
        assert_eq!(host.processes_alive(), 0, "{context}");
        // If the root supervisor has not run its first step, the shutdown treats the root supervisor as a process
        // without a supervisor, and cancels the root supervisor. In this case, the order of the exits is not
        // guaranteed.
        if before.contains(&('+', 'a')) {
            assert_top_down(&log);
        }
        told.insert(log.iter().filter(|(what, _)| *what == '!').count());
        drop(shelf);
    }
    assert!(told.contains(&6), "{told:?}");
}

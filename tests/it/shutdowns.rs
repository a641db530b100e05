//! Section 6.5 of the specification: any thread, host or process can request a shutdown.

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use procession::supervisor::SupervisorMessage;
use procession::{Context, Events, Exit, Next, Process, Reason, Runtime, Simulation, StepOutput, Supervisor};

use crate::{alone, two, within};

const LONG: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(20);

/// 6.5a: a clone of the host shuts the runtime down. All callers get the same report. After the shutdown, the runtime
/// refuses spawns. A thread in `block_on` can drive the shutdown.
#[test]
fn a_host_can_shut_down_its_runtime() {
    within(60, || {
        for workers in [0, 2] {
            let rt = Runtime::builder().workers(workers).build().unwrap();
            let server = rt.spawn(async |mut ctx: Context<()>| ctx.receive().await);
            let state = rt.host().clone();
            let (first, second) = (state.shutdown(LONG), rt.shutdown(LONG));
            let (first, second) = rt.block_on(async { futures::join!(first, second) });
            assert_eq!((first.left, second.left), (Vec::new(), Vec::new()));
            assert!(matches!(rt.block_on(server), Err(Exit::Cancelled(reason)) if reason == Reason::SHUTDOWN));
            assert!(matches!(rt.block_on(state.spawn(async |_: Context| ())), Err(Exit::Refused(_))));
            assert_eq!(rt.block_on(state.shutdown(LONG)).left, []);
        }
    });
}

/// 6.5a: the future of a shutdown does not borrow the runtime. Therefore the runtime may be dropped before this future.
#[test]
fn the_future_of_a_shutdown_can_outlive_its_runtime() {
    within(60, || {
        for workers in [0, 2] {
            let rt = Runtime::builder().workers(workers).build().unwrap();
            let waits = rt.spawn(async |_: Context| pending::<()>().await);
            let shutdown = rt.shutdown(LONG);
            drop(rt);
            assert_eq!(block_on(shutdown).left, []);
            assert!(matches!(block_on(waits), Err(Exit::Killed)));
        }
    });
}

/// 6.5d: the report of a shutdown describes the wait of each remaining process. An idle process may wait for an event
/// that is not a message.
#[test]
fn the_report_describes_the_wait_of_each_process() {
    let simulation = Simulation::new(1);
    let host = simulation.host().clone();
    let idle = host.spawn(async |_: Context| pending::<()>().await);
    let sleeper = host.spawn(async |ctx: Context| {
        futures::join!(ctx.sleep(LONG), ctx.sleep(LONG));
    });
    let suspended = host.spawn(async |_: Context| pending::<()>().await);
    host.suspend(suspended.pid()).unwrap();
    let mut texts: Vec<_> = simulation.shutdown(SOON).left.iter().map(ToString::to_string).collect();
    texts.sort();
    let mut expected = [
        format!("{} was waiting for a message or another event", idle.pid()),
        format!("{} was waiting for 2 commands, calls or sleeps", sleeper.pid()),
        format!("{} was suspended", suspended.pid()),
    ];
    expected.sort();
    assert_eq!(texts, expected);
}

/// 6.5b: if a process requests a shutdown and then returns, the process does not delay the shutdown.
#[test]
fn a_process_can_request_a_shutdown_and_return() {
    for seed in 0..10 {
        let mut simulation = Simulation::new(seed);
        let host = simulation.host().clone();
        let begun = host.now();
        let server = host.spawn(async |mut ctx: Context<()>| ctx.receive().await);
        let asks = host.spawn(async |ctx: Context| drop(ctx.host().shutdown(LONG)));
        simulation.run(asks).unwrap();
        assert!(matches!(simulation.run(server), Err(Exit::Cancelled(_))));
        assert_eq!(simulation.run(host.shutdown(LONG)).left, []);
        assert!(host.now() - begun < LONG);
    }
}

/// 6.5d: if a process awaits the shutdown that it has requested, the process is killed at the deadline. Every caller
/// gets a report that contains the pid of this process.
#[test]
fn a_process_that_awaits_the_shutdown_is_killed_at_the_deadline() {
    for seed in 0..10 {
        let mut simulation = Simulation::new(seed);
        let host = simulation.host().clone();
        let waits = host.spawn(async |ctx: Context| drop(ctx.host().shutdown(SOON).await));
        let (pid, due) = (waits.pid(), host.now() + SOON);
        assert!(matches!(simulation.run(waits), Err(Exit::Killed)));
        assert_eq!(host.now(), due);
        let report = simulation.run(host.shutdown(LONG));
        assert_eq!(report.left.iter().map(|left| left.pid).collect::<Vec<_>>(), [pid]);
    }
}

/// 6.5c: a shutdown keeps its deadline even if its future was dropped.
#[test]
fn a_shutdown_keeps_its_deadline_after_its_future_is_dropped() {
    for seed in 0..10 {
        let mut simulation = Simulation::new(seed);
        let host = simulation.host().clone();
        let deaf = host.spawn(async |_: Context| pending::<()>().await);
        let due = host.now() + SOON;
        drop(host.shutdown(SOON));
        assert!(matches!(simulation.run(deaf), Err(Exit::Killed)));
        assert_eq!(host.now(), due);
    }
}

/// 6.5c: a step blocks its worker until the shutdown ends. The step gets the report at the deadline, and the report
/// names the process of this step.
#[test]
fn a_step_may_block_until_the_shutdown_ends() {
    within(60, || {
        let rt = two();
        let (tell, told) = mpsc::channel();
        let blocks = rt.spawn(async move |ctx: Context| {
            let _ = tell.send((ctx.pid(), block_on(ctx.host().shutdown(SOON))));
        });
        let (pid, report) = told.recv().unwrap();
        assert_eq!(report.left.iter().map(|left| left.pid).collect::<Vec<_>>(), [pid]);
        // The process was killed at the deadline, but its step later returned an output. The test accepts every exit of
        // the process.
        let _ = block_on(blocks);
    });
}

/// 6.5c: a thread polls a shutdown with a late deadline, and another thread requests an earlier deadline. No worker can
/// fire the timer of the earlier deadline, because the only worker is in a step that does not return. The first future
/// still resolves at the earlier deadline.
#[test]
fn an_earlier_deadline_applies_to_a_pending_shutdown_although_no_worker_fires_timers() {
    within(60, || {
        let rt = alone().build().unwrap();
        let (release, (began, has_begun)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
        let released = Arc::clone(&release);
        let spins = rt.spawn(async move |_: Context| {
            began.send(()).unwrap();
            while !released.load(SeqCst) {
                thread::yield_now();
            }
        });
        has_begun.recv().unwrap();
        let (mut shutdown, (polled, was_polled)) = (rt.host().shutdown(LONG), mpsc::channel());
        let polls = thread::spawn(move || {
            block_on(poll_fn(|cx| {
                let poll = Pin::new(&mut shutdown).poll(cx);
                let _ = polled.send(());
                poll
            }))
        });
        was_polled.recv().unwrap();
        drop(rt.host().shutdown(SOON));
        let report = polls.join().unwrap();
        assert_eq!(report.left.iter().map(|left| left.pid).collect::<Vec<_>>(), [spins.pid()]);
        release.store(true, SeqCst);
    });
}

/// A supervisor that replaces itself with another supervisor in its first step.
struct Replaced {
    supervisor: Supervisor,
    upgrades: usize,
}

impl Process for Replaced {
    type Message = SupervisorMessage;
    type Output = ();

    fn step(
        &mut self,
        events: Events<'_, SupervisorMessage>,
        out: &mut StepOutput<'_, SupervisorMessage>,
    ) -> Result<Next<()>, Exit> {
        let next = self.supervisor.step(events, out)?;
        if let Some(upgrades) = self.upgrades.checked_sub(1) {
            out.upgrade(Self { supervisor: Supervisor::one_for_one(), upgrades }, "", ())?;
        }
        Ok(next)
    }
}

/// 6.5a, 6.7a: a top-level supervisor may be upgraded to another supervisor. After the exit of the upgraded supervisor,
/// a shutdown cancels the other processes.
#[test]
fn an_upgraded_supervisor_counts_as_one_supervisor_in_a_shutdown() {
    let mut simulation = Simulation::new(1);
    let supervisor = simulation.spawn_process(Replaced { supervisor: Supervisor::one_for_one(), upgrades: 2 });
    let other = simulation.spawn(async |mut ctx: Context<()>| ctx.receive().await);
    simulation.run(async {
        supervisor.started().await.unwrap();
        other.started().await.unwrap();
    });
    assert_eq!(simulation.shutdown(LONG).left, []);
}

/// 6.5a: a first shutdown of a simulation ends at its deadline. A second shutdown with a later deadline returns the
/// report of the first shutdown.
#[test]
fn the_shutdown_of_a_simulation_returns_the_report_of_an_earlier_shutdown() {
    let mut simulation = Simulation::new(1);
    let process = simulation.spawn(async |_: Context| pending::<()>().await);
    simulation.run(process.started()).unwrap();
    drop(simulation.host().shutdown(SOON));
    let report = simulation.shutdown(LONG);
    assert_eq!(report.left.len(), 1, "{report:?}");
    assert_eq!(report.left[0].pid, process.pid());
}

//! Tests of the memory of a process, from the spawn of the process to the drop of the last reference to the process.
//! The queue of a simulation contains no unsafe code. Therefore, Miri can check these tests with Stacked Borrows.

use std::pin::pin;

use crate::context::Context;
use crate::context::step::{Events, Next, Process, StepOutput};
use crate::host::Host;
use crate::host::namespace::builder::HostBuilder;
use crate::platform::sync::Arc;
use crate::process::event::Event;
use crate::process::exit::Exit;
use crate::runtime::simulation::Simulation;

/// Adds up the received numbers. The number 0 ends the process.
struct Adder(u64);

impl Process for Adder {
    type Message = u64;
    type Output = Box<u64>;

    fn step(&mut self, events: Events<'_, u64>, _: &mut StepOutput<'_, u64>) -> Result<Next<Box<u64>>, Exit> {
        for event in events {
            match event {
                Event::Message(0) => return Ok(Next::Done(Box::new(self.0))),
                Event::Message(number) => self.0 += number,
                _ => {}
            }
        }
        Ok(Next::Wait)
    }
}

/// Returns the number of references to the value, including `value`.
fn references(value: &Arc<()>) -> usize {
    Arc::strong_count(value)
}

/// The outcome reaches a join handle that waits before the exit, and a join handle that is polled after the exit. The
/// body borrows its own local variable across an await.
#[test]
fn the_outcome_reaches_a_join_handle_that_is_polled_before_or_after_the_exit() {
    async fn body(mut ctx: Context<Box<u64>>) -> Result<Box<u64>, Exit> {
        let mut sum = Box::new(0);
        let borrowed = &mut sum;
        for _ in 0..3 {
            **borrowed += *ctx.receive().await?;
        }
        Ok(sum)
    }
    let mut simulation = Simulation::new(1);
    let host = simulation.host().clone();
    let (early, late) = (host.spawn(body), host.spawn(body));
    for number in 1..=3 {
        // The first message is written into the slot, and the others into the queue.
        early.send(Box::new(number)).unwrap();
        late.send(Box::new(10 * number)).unwrap();
    }
    let outcome = simulation.run(async {
        let mut early = pin!(early);
        assert!(futures::poll!(&mut early).is_pending());
        let early = early.await;
        let _ = late.exited().await;
        (early, late.await)
    });
    assert_eq!(outcome, (Ok(Box::new(6)), Ok(Box::new(60))));
}

/// A hand-written process takes messages out of its slot and its queue, and passes its outcome to the join handle.
#[test]
fn a_hand_written_process_passes_its_outcome_to_the_join_handle() {
    let mut simulation = Simulation::new(1);
    let adder = simulation.host().spawn_process(Adder(0));
    for number in [1, 2, 0] {
        adder.send(number).unwrap();
    }
    assert_eq!(simulation.run(adder), Ok(Box::new(3)));
}

/// If the join handle is dropped before or after the exit, the outcome is dropped once. The address keeps the cell
/// alive after the exit.
#[test]
fn a_dropped_join_handle_drops_the_outcome_once() {
    let value = Arc::new(());
    let spawn = |host: &Host| {
        let value = Arc::clone(&value);
        host.spawn(|_: Context<u8>| async move { Ok::<_, Exit>(value) })
    };
    let mut simulation = Simulation::new(1);
    let (early, late) = (spawn(simulation.host()), spawn(simulation.host()));
    let address = early.address();
    drop(early);
    let _ = simulation.run(async { (address.exited().await, late.exited().await) });
    assert_eq!(references(&value), 2, "the cell of `late` contains its outcome");
    drop(late);
    assert_eq!(references(&value), 1);
    assert!(address.send(1).is_err());
    drop(simulation);
    drop(address);
}

/// The drop of the simulation drops the state and the unread messages of processes that have not exited. One process
/// has not begun its first turn, and the other process waits.
#[test]
fn the_drop_of_a_simulation_drops_the_state_of_its_processes_once() {
    let value = Arc::new(());
    let mut simulation = Simulation::new(1);
    let spawn = |host: &Host| {
        let value = Arc::clone(&value);
        host.spawn(move |mut ctx: Context<Arc<()>>| async move {
            let _received = ctx.receive().await;
            let _ = ctx.receive().await;
            drop(value);
        })
    };
    let waiting = spawn(simulation.host());
    waiting.send(Arc::clone(&value)).unwrap();
    simulation.run(waiting.started()).unwrap();
    let fresh = spawn(simulation.host());
    fresh.send(Arc::clone(&value)).unwrap();
    assert_eq!(references(&value), 5);
    drop(simulation);
    assert_eq!(references(&value), 1);
    drop((waiting, fresh));
}

/// A kill ends a process that waits, and a process that has not begun its first turn. The kill drops the state of both
/// processes, and both join handles get the exit.
#[test]
fn a_kill_drops_the_state_and_reaches_the_join_handle() {
    let value = Arc::new(());
    let mut simulation = Simulation::new(1);
    let host = simulation.host().clone();
    let spawn = || {
        let value = Arc::clone(&value);
        host.spawn(move |mut ctx: Context<u8>| async move {
            let _ = ctx.receive().await;
            drop(value);
        })
    };
    let waiting = spawn();
    simulation.run(waiting.started()).unwrap();
    let fresh = spawn();
    waiting.kill();
    fresh.kill();
    let outcomes = simulation.run(async { (waiting.await, fresh.await) });
    assert_eq!(outcomes, (Err(Exit::Killed), Err(Exit::Killed)));
    assert_eq!(references(&value), 1);
}

/// A refused spawn drops the body, and the join handle gets an error.
#[test]
fn a_refused_spawn_drops_the_body() {
    let value = Arc::new(());
    let host = HostBuilder::new("").max_processes(1);
    let mut simulation = Simulation::with_host(1, host).unwrap();
    let spawn = || {
        let value = Arc::clone(&value);
        simulation.host().spawn(move |mut ctx: Context<u8>| async move {
            let _ = ctx.receive().await;
            drop(value);
        })
    };
    let (_accepted, refused) = (spawn(), spawn());
    assert_eq!(references(&value), 2);
    assert!(refused.send(1).is_err());
    assert!(simulation.run(refused).is_err());
}

//! Observes the scheduler while a few workers run tens of processes. The processes compute, wait for messages, sleep,
//! and use the blocking pool.
//!
//! An observer records each state transition, in order. At the end, the program checks that all transitions are legal,
//! and that each process has started and exited.

// The file `clippy.toml` forbids some types and methods in the source of the crate. This program may use these types
// and methods.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use procession::{
    Address, Command, Context, Exit, Instant, Observer, Pid, Runtime,
    observe::{ProcessState, Transition, WorkerState},
};

const WORKERS: usize = 3;
const PROCESSES: usize = 40;

#[derive(Clone)]
enum Entry {
    Process(Transition),
    Worker(usize, WorkerState, Instant),
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Entry>>>);

impl Observer for Log {
    fn transition(&self, t: &Transition) {
        self.0.lock().unwrap().push(Entry::Process(*t));
    }

    fn worker(&self, worker: usize, state: WorkerState, at: Instant) {
        self.0.lock().unwrap().push(Entry::Worker(worker, state, at));
    }
}

/// Returns whether the diagram of `ProcessState` contains this transition.
fn is_legal(from: Option<ProcessState>, to: ProcessState) -> bool {
    use ProcessState::*;
    matches!(
        (from, to),
        (None, Ready)
            | (Some(Ready), Running)
            | (Some(Running), Ready | Blocked | Idle | Complete)
            | (Some(Blocked | Idle), Ready)
    )
}

struct Wait(Duration);
impl Command for Wait {
    type Reply = ();
}

/// Body of a player. The player receives a token, calls `yield_now`, and does one operation. If there is a next player,
/// the player passes the token to the next player. The kind of the player selects the operation: a sleep, a command, or
/// nothing.
async fn player(mut ctx: Context<u64>, kind: usize, next: Option<Address<u64>>) -> Result<u64, Exit> {
    let token = ctx.receive().await?;
    for _ in 0..3 {
        ctx.yield_now().await;
    }
    match kind % 3 {
        0 => ctx.sleep(Duration::from_millis(1)).await,
        1 => ctx.perform(Wait(Duration::from_micros(200))).await?,
        _ => {}
    }
    if let Some(next) = next {
        next.send(token + 1)?;
    }
    Ok(token)
}

fn main() -> procession::Result {
    let log = Log::default();
    let rt = Runtime::builder()
        .workers(WORKERS)
        .observer(log.clone())
        .handle_blocking(|c: Wait| std::thread::sleep(c.0))
        .build()?;

    // The players form several chains. Each player passes its token to the previously spawned player.
    let mut players = Vec::new();
    let mut next: Option<Address<u64>> = None;
    for kind in 0..PROCESSES {
        let to = if kind % 10 == 0 { None } else { next.take() };
        let player = rt.spawn(move |ctx| player(ctx, kind, to));
        next = Some(player.address());
        if kind % 10 == 9 {
            player.send(0)?;
        }
        players.push(player);
    }
    let tokens = rt.block_on(futures::future::try_join_all(players))?;
    assert_eq!(tokens.iter().sum::<u64>(), 4 * (0..10).sum::<u64>());
    let ended = futures::executor::block_on(rt.shutdown(Duration::from_secs(1)));
    assert!(ended.left.is_empty());

    let mut last: BTreeMap<Pid, ProcessState> = BTreeMap::new();
    for entry in log.0.lock().unwrap().iter() {
        match entry {
            Entry::Process(t) => {
                let worker = t.worker.map_or("outside".to_owned(), |worker| format!("worker {worker}"));
                let from = t.from.map_or("New".to_owned(), |from| format!("{from:?}"));
                println!("{:>12?}  {worker:>9}  {}  {from} -> {:?}", t.at, t.pid, t.to);
                assert_eq!(last.get(&t.pid).copied(), t.from, "{} is where it was left", t.pid);
                assert!(is_legal(t.from, t.to), "{} went from {from} to {:?}", t.pid, t.to);
                last.insert(t.pid, t.to);
            }
            Entry::Worker(worker, state, at) => println!("{at:>12?}   worker {worker}  {state:?}"),
        }
    }
    assert_eq!(last.len(), PROCESSES);
    assert!(last.values().all(|state| *state == ProcessState::Complete), "every process has ended");
    println!("{PROCESSES} processes on {WORKERS} workers went through legal transitions only");
    Ok(())
}

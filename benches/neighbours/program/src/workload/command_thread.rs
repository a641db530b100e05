//! A thread outside the runtime answers commands, and 1,000 commands are in flight. In `command-thread`, one process
//! has all 1,000 commands in flight, and performs the next command after each answer. In `command-each`, each of 1,000
//! processes has one command in flight. An operation is one command with its answer. On the other runtimes, the thread
//! answers through a oneshot channel. In `command-thread`, the column `by-hand` uses two channels between two threads,
//! without a runtime.

use std::sync::mpsc;
use std::thread;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use procession::{Completion, Context, Event, Events, Exit, Next, Process, Runtime, StepOutput};

use super::command::Increment;
use super::{Workload, runs};
use crate::latch::DONE;
use crate::round::{Round, Sample};
use crate::tasks::Tasks;
use crate::verdict::{Shape, cpu};

pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "command-thread",
        ops: 1_000_000,
        shape: Shape::Sequential,
        judged: &[cpu(&[])],
        runs: runs!(built: ours, by_hand: bare, tasks: tasks),
    },
    Workload {
        name: "command-each",
        ops: 1_000_000,
        shape: Shape::Sequential,
        judged: &[cpu(&[])],
        runs: runs!(built: each, tasks: tasks_each),
    },
];

/// Number of commands in flight.
const IN_FLIGHT: u64 = 1_000;

fn ours(round: &Round) -> Sample {
    answered_outside(round, |rt, n| {
        DONE.close(1);
        drop(rt.spawn_process(InFlight { left: n, in_flight: 0 }));
        DONE.wait();
    })
}

fn each(round: &Round) -> Sample {
    answered_outside(round, |rt, n| {
        DONE.close(IN_FLIGHT);
        for at in 0..IN_FLIGHT {
            drop(rt.spawn(async move |ctx: Context| {
                let mut value = 0;
                for _ in 0..share(n, at) {
                    value = ctx.perform(Increment(value)).await.expect("it is answered");
                }
                assert_eq!(value, share(n, at));
                DONE.count_down();
            }));
        }
        DONE.wait();
    })
}

/// Returns the number of operations of the process with the index `at`. All processes together do `n` operations.
fn share(n: u64, at: u64) -> u64 {
    n / IN_FLIGHT + u64::from(at < n % IN_FLIGHT)
}

/// Measures procession. A separate thread answers each command.
fn answered_outside(round: &Round, run: impl Fn(&Runtime, u64)) -> Sample {
    let (send, receive) = mpsc::channel::<(Increment, Completion<u64>)>();
    let answering = thread::spawn(move || {
        for (command, completion) in receive {
            completion.complete(command.0 + 1);
        }
    });
    let builder = Runtime::builder().handler(move |command: Increment, completion: Completion<u64>| {
        send.send((command, completion)).expect("it is received");
    });
    let sample = round.procession(builder, run);
    answering.join().expect("it does not panic");
    sample
}

/// Keeps up to `IN_FLIGHT` commands in flight until all commands are answered.
struct InFlight {
    left: u64,
    in_flight: u64,
}

impl Process for InFlight {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
        for event in events {
            if let Event::Completed(_) = event {
                self.in_flight -= 1;
            }
        }
        while self.in_flight < IN_FLIGHT && self.left > 0 {
            out.perform(Increment(0));
            self.in_flight += 1;
            self.left -= 1;
        }
        if self.in_flight > 0 {
            return Ok(Next::Wait);
        }
        DONE.count_down();
        Ok(Next::Done(()))
    }
}

fn bare(round: &Round) -> Sample {
    let (send, receive) = mpsc::channel::<(u64, u64)>();
    let (reply, replies) = mpsc::channel::<(u64, u64)>();
    let answering = thread::spawn(move || {
        for (tag, value) in receive {
            reply.send((tag, value + 1)).expect("it is received");
        }
    });
    let sample = round.bare(|n| {
        let ask = |tag| send.send((tag, 0)).expect("it is received");
        let first = IN_FLIGHT.min(n);
        (0..first).for_each(ask);
        for next in first..n + first {
            assert_eq!(replies.recv().expect("each is answered").1, 1);
            if next < n {
                ask(next);
            }
        }
    });
    drop(send);
    answering.join().expect("it does not panic");
    sample
}

fn tasks<T: Tasks>(on: &T, n: u64) {
    DONE.close(1);
    let (send, receive) = mpsc::channel::<(u64, T::Reply<u64>)>();
    let answering = thread::spawn(move || {
        for (value, reply) in receive {
            T::reply(reply, value + 1);
        }
    });
    on.spawn(async move {
        let ask = || {
            let (reply, answer) = T::oneshot();
            send.send((0, reply)).expect("it is received");
            T::answer(answer)
        };
        let mut flying: FuturesUnordered<_> = (0..IN_FLIGHT.min(n)).map(|_| ask()).collect();
        let mut left = n - flying.len() as u64;
        while let Some(answer) = flying.next().await {
            assert_eq!(answer, 1);
            if left > 0 {
                left -= 1;
                flying.push(ask());
            }
        }
        DONE.count_down();
    });
    DONE.wait();
    answering.join().expect("it does not panic");
}

fn tasks_each<T: Tasks>(on: &T, n: u64) {
    DONE.close(IN_FLIGHT);
    let (send, receive) = mpsc::channel::<(u64, T::Reply<u64>)>();
    let answering = thread::spawn(move || {
        for (value, reply) in receive {
            T::reply(reply, value + 1);
        }
    });
    for at in 0..IN_FLIGHT {
        let send = send.clone();
        on.spawn(async move {
            let mut value = 0;
            for _ in 0..share(n, at) {
                let (reply, answer) = T::oneshot();
                send.send((value, reply)).expect("it is received");
                value = T::answer(answer).await;
            }
            assert_eq!(value, share(n, at));
            DONE.count_down();
        });
    }
    drop(send);
    DONE.wait();
    answering.join().expect("it does not panic");
}

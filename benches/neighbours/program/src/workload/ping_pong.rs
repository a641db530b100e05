//! Pairs of processes that answer each other; the pairs are independent. An operation is one message.

use procession::{Context, Runtime};

use super::{Workload, runs};
use crate::actors::{Actor, Actors, Then};
use crate::latch::DONE;
use crate::tasks::Tasks;
use crate::verdict::{Shape, actix, cpu, tokio};

pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "ping-pong",
        ops: 1_000_000,
        shape: Shape::Sequential,
        judged: &[cpu(&[tokio(0.55), actix(0.75)])],
        runs: runs!(ours::<1>, tasks: tasks::<_, 1>, actors: actors::<_, 1>),
    },
    Workload {
        name: "ping-pong-100",
        ops: 2_000_000,
        shape: Shape::Parallel,
        judged: &[cpu(&[tokio(0.55), actix(0.75)])],
        runs: runs!(ours::<100>, tasks: tasks::<_, 100>, actors: actors::<_, 100>),
    },
];

/// Runs `PAIRS` pairs, with `n` messages in total.
fn ours<const PAIRS: u64>(rt: &Runtime, n: u64) {
    let n = n / PAIRS / 2;
    DONE.close(PAIRS);
    for _ in 0..PAIRS {
        drop(rt.spawn(async move |mut ping: Context<u64>| {
            let back = ping.address();
            let pong = ping.spawn(async move |mut pong: Context<u64>| {
                for _ in 0..n {
                    let ball = pong.receive().await.expect("nobody ends it");
                    back.send(ball + 1).expect("ping waits");
                }
            });
            let mut ball = 0;
            for _ in 0..n {
                pong.send(ball).expect("pong waits");
                ball = ping.receive().await.expect("nobody ends it");
            }
            assert_eq!(ball, n);
            DONE.count_down();
        }));
    }
    DONE.wait();
}

fn tasks<T: Tasks, const PAIRS: u64>(on: &T, n: u64) {
    let n = n / PAIRS / 2;
    DONE.close(PAIRS);
    for _ in 0..PAIRS {
        let inside = on.clone();
        on.spawn(async move {
            let (forth, mut pong) = T::channel::<u64>();
            let (back, mut ping) = T::channel::<u64>();
            inside.spawn(async move {
                for _ in 0..n {
                    let ball = T::receive(&mut pong).await.expect("ping sends");
                    T::send(&back, ball + 1);
                }
            });
            let mut ball = 0;
            for _ in 0..n {
                T::send(&forth, ball);
                ball = T::receive(&mut ping).await.expect("pong sends");
            }
            assert_eq!(ball, n);
            DONE.count_down();
        });
    }
    DONE.wait();
}

/// One player of a pair. The player adds one to the ball and sends the ball back. The pair stops when the ball has made
/// `n` passes.
struct Player<A: Actors> {
    other: Option<A::Address<Self>>,
    n: u64,
}

enum Play<A: Actors> {
    Meet(A::Address<Player<A>>),
    Ball(u64),
}

impl<A: Actors> Actor for Player<A> {
    type Message = Play<A>;

    fn handle(&mut self, message: Play<A>) -> Then {
        match message {
            Play::Meet(other) => self.other = Some(other),
            Play::Ball(passes) if passes == self.n => DONE.count_down(),
            Play::Ball(passes) => A::tell(self.other.as_ref().expect("they met"), Play::Ball(passes + 1)),
        }
        Then::Next
    }
}

fn actors<A: Actors, const PAIRS: u64>(on: &A, n: u64) {
    let n = n / PAIRS;
    DONE.close(PAIRS);
    on.enter(move |on| {
        for _ in 0..PAIRS {
            let ping = on.spawn(Player::<A> { other: None, n });
            let pong = on.spawn(Player::<A> { other: None, n });
            A::tell(&ping, Play::Meet(pong.clone()));
            A::tell(&pong, Play::Meet(ping.clone()));
            A::tell(&ping, Play::Ball(0));
        }
    });
    DONE.wait();
}

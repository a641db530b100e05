//! Savina's thread ring: 100 processes pass a token. The token counts the remaining hops. An operation is one hop.

use procession::{Context, Runtime};

use super::{Workload, runs};
use crate::actors::{Actor, Actors, Then};
use crate::latch::DONE;
use crate::tasks::Tasks;
use crate::verdict::{Shape, actix, cpu, tokio};

pub(super) const WORKLOADS: &[Workload] = &[Workload {
    name: "ring",
    ops: 1_000_000,
    shape: Shape::Sequential,
    judged: &[cpu(&[tokio(0.55), actix(0.75)])],
    runs: runs!(ours, tasks: tasks, actors: actors),
}];

const PROCESSES: u64 = 100;

/// Returns true if the number of remaining hops, `hops`, is too small for another round of the ring. In this case, the
/// process that has received the token will not receive the token again.
fn is_last_round(hops: u64) -> bool {
    hops < PROCESSES
}

fn ours(rt: &Runtime, n: u64) {
    DONE.close(1);
    drop(rt.spawn(async move |first: Context<u64>| {
        let mut next = first.address();
        for _ in 1..PROCESSES {
            let after = next.clone();
            next = first.spawn(async move |ctx: Context<u64>| node(ctx, after).await).address();
        }
        next.send(n).expect("it waits");
        node(first, next).await;
    }));
    DONE.wait();

    async fn node(mut ctx: Context<u64>, next: procession::Address<u64>) {
        loop {
            let hops = ctx.receive().await.expect("nobody ends it");
            if hops == 0 {
                return DONE.count_down();
            }
            next.send(hops - 1).expect("it waits");
            if is_last_round(hops) {
                return;
            }
        }
    }
}

fn tasks<T: Tasks>(on: &T, n: u64) {
    DONE.close(1);
    let inside = on.clone();
    on.spawn(async move {
        let (mut next, first) = T::channel::<u64>();
        for _ in 1..PROCESSES {
            let (sender, receiver) = T::channel::<u64>();
            inside.spawn(node::<T>(receiver, next));
            next = sender;
        }
        T::send(&next, n);
        node::<T>(first, next).await;
    });
    DONE.wait();

    async fn node<T: Tasks>(mut receiver: T::Receiver<u64>, next: T::Sender<u64>) {
        loop {
            let hops = T::receive(&mut receiver).await.expect("the ring is closed");
            if hops == 0 {
                return DONE.count_down();
            }
            T::send(&next, hops - 1);
            if is_last_round(hops) {
                return;
            }
        }
    }
}

struct Node<A: Actors> {
    next: Option<A::Address<Self>>,
}

enum Ring<A: Actors> {
    Next(A::Address<Node<A>>),
    Token(u64),
}

impl<A: Actors> Actor for Node<A> {
    type Message = Ring<A>;

    fn handle(&mut self, message: Ring<A>) -> Then {
        match message {
            Ring::Next(next) => self.next = Some(next),
            Ring::Token(0) => {
                DONE.count_down();
                return Then::Stop;
            }
            Ring::Token(hops) => {
                A::tell(self.next.as_ref().expect("it was told"), Ring::Token(hops - 1));
                if is_last_round(hops) {
                    return Then::Stop;
                }
            }
        }
        Then::Next
    }
}

fn actors<A: Actors>(on: &A, n: u64) {
    DONE.close(1);
    on.enter(move |on| {
        let first = on.spawn(Node::<A> { next: None });
        let mut next = first.clone();
        for _ in 1..PROCESSES {
            next = on.spawn(Node::<A> { next: Some(next) });
        }
        A::tell(&first, Ring::Next(next.clone()));
        A::tell(&first, Ring::Token(n));
    });
    DONE.wait();
}

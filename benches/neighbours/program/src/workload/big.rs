//! Savina's big. Each of 120 processes asks a random process and waits for the answer. After the answer, the process
//! asks the next random process. An operation is one question with its answer, which is two messages.

use std::sync::{Arc, OnceLock};

use procession::{Address, Context, Runtime};

use super::{Workload, runs};
use crate::actors::{Actor, Actors, Then};
use crate::latch::DONE;
use crate::tasks::Tasks;
use crate::verdict::{Shape, actix, cpu, tokio};

pub(super) const WORKLOADS: &[Workload] = &[Workload {
    name: "big",
    ops: PROCESSES as u64 * 20_000,
    shape: Shape::Parallel,
    judged: &[cpu(&[tokio(0.60), actix(0.90)])],
    runs: runs!(ours, tasks: tasks, actors: actors),
}];

const PROCESSES: usize = 120;

#[derive(Clone, Copy)]
enum Message {
    /// A question, with the index of the sender.
    Ping(usize),
    /// An answer, or the message that starts a process.
    Pong,
}

/// Addresses of all processes. The addresses are set before the first message is sent.
type Everyone<To> = Arc<OnceLock<Vec<To>>>;

/// State of a process. All runtimes use the same function to handle the messages of a process.
struct Player<To> {
    own: usize,
    everyone: Everyone<To>,
    /// Number of outstanding answers, including the message that starts the process.
    left: u64,
    chance: u64,
}

impl<To> Player<To> {
    fn new(own: usize, everyone: &Everyone<To>, n: u64) -> Self {
        Self { own, everyone: Arc::clone(everyone), left: n + 1, chance: own as u64 + 1 }
    }

    fn handle(&mut self, message: Message, send: impl Fn(&To, Message)) {
        let everyone = self.everyone.get().expect("it was set before the first message");
        match message {
            Message::Ping(from) => send(&everyone[from], Message::Pong),
            Message::Pong => {
                self.left -= 1;
                match self.left {
                    0 => DONE.count_down(),
                    _ => send(&everyone[random_index(&mut self.chance)], Message::Ping(self.own)),
                }
            }
        }
    }
}

fn random_index(chance: &mut u64) -> usize {
    *chance ^= *chance << 13;
    *chance ^= *chance >> 7;
    *chance ^= *chance << 17;
    *chance as usize % PROCESSES
}

/// Spawns all processes and sends each process its first message.
fn begin<To>(n: u64, spawn: impl Fn(Player<To>) -> To, send: impl Fn(&To, Message)) {
    let everyone = Everyone::default();
    let addresses = (0..PROCESSES).map(|own| spawn(Player::new(own, &everyone, n / PROCESSES as u64))).collect();
    for one in everyone.get_or_init(|| addresses) {
        send(one, Message::Pong);
    }
}

fn ours(rt: &Runtime, n: u64) {
    DONE.close(PROCESSES as u64);
    let send = |to: &Address<Message>, message| to.send(message).expect("they live");
    drop(rt.spawn(async move |ctx: Context| {
        let spawn = |mut player: Player<Address<Message>>| {
            let process = async move |mut ctx: Context<Message>| {
                while let Ok(message) = ctx.receive().await {
                    player.handle(message, send);
                }
            };
            ctx.spawn(process).address()
        };
        begin(n, spawn, send);
    }));
    DONE.wait();
}

fn tasks<T: Tasks>(on: &T, n: u64) {
    DONE.close(PROCESSES as u64);
    let inside = on.clone();
    on.spawn(async move {
        let spawn = |mut player: Player<T::Sender<Message>>| {
            let (sender, mut receiver) = T::channel::<Message>();
            inside.spawn(async move {
                while let Some(message) = T::receive(&mut receiver).await {
                    player.handle(message, T::send);
                }
            });
            sender
        };
        begin(n, spawn, T::send);
    });
    DONE.wait();
}

struct Peer<A: Actors>(Player<A::Address<Self>>);

impl<A: Actors> Actor for Peer<A> {
    type Message = Message;

    fn handle(&mut self, message: Message) -> Then {
        self.0.handle(message, A::tell::<Self>);
        Then::Next
    }
}

fn actors<A: Actors>(on: &A, n: u64) {
    DONE.close(PROCESSES as u64);
    on.enter(move |on| begin(n, |player| on.spawn(Peer::<A>(player)), A::tell::<Peer<A>>));
    DONE.wait();
}

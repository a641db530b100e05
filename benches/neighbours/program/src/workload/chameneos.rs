//! Savina's chameneos. Each of 100 creatures of three colours sends a message to a mall, and the mall pairs the
//! creatures. After each meeting, both creatures change their colours and send a message to the mall again. The work
//! ends after the given number of meetings. An operation is one meeting, which is four messages.

use procession::{Address, Context, Runtime};

use super::{Workload, runs};
use crate::actors::{Actor, Actors, Then};
use crate::latch::DONE;
use crate::tasks::Tasks;
use crate::verdict::{Shape, cpu, tokio};

pub(super) const WORKLOADS: &[Workload] = &[Workload {
    name: "chameneos",
    ops: 400_000,
    shape: Shape::Parallel,
    judged: &[cpu(&[tokio(0.60)])],
    runs: runs!(ours, tasks: tasks, actors: actors),
}];

const CREATURES: u64 = 100;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Colour {
    Red,
    Yellow,
    Blue,
}

use Colour::{Blue, Red, Yellow};

impl Colour {
    fn of(creature: u64) -> Self {
        [Red, Yellow, Blue][(creature % 3) as usize]
    }

    /// Returns the colour that both creatures have after a meeting. If both creatures have the same colour, both
    /// creatures keep this colour. Otherwise both creatures get the third colour.
    fn with(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b => a,
            (Red, Yellow) | (Yellow, Red) => Blue,
            (Red, Blue) | (Blue, Red) => Yellow,
            _ => Red,
        }
    }
}

/// Messages to the mall.
enum ToMall<C> {
    Meet(C, Colour),
    /// Number of meetings of a creature. The creature sends this number when it exits.
    Had(u64),
}

/// Messages to a creature, from the mall and from other creatures.
enum ToCreature<C> {
    Meet(C, Colour),
    Change(Colour),
    Stop,
}

/// State of the mall. All runtimes use the same function to handle the messages of the mall.
struct Mall<C> {
    waiting: Option<C>,
    left: u64,
    faded: u64,
    /// Two numbers that must be equal at the end. The first number is twice the number of meetings. The second number
    /// is the sum of the meetings that the creatures report.
    met: [u64; 2],
}

impl<C> Mall<C> {
    fn new(n: u64) -> Self {
        Self { waiting: None, left: n, faded: 0, met: [2 * n, 0] }
    }

    fn handle(&mut self, message: ToMall<C>, send: impl Fn(&C, ToCreature<C>)) -> Then {
        match message {
            ToMall::Meet(creature, _) if self.left == 0 => send(&creature, ToCreature::Stop),
            ToMall::Meet(creature, colour) => match self.waiting.take() {
                None => self.waiting = Some(creature),
                Some(other) => {
                    self.left -= 1;
                    send(&other, ToCreature::Meet(creature, colour));
                }
            },
            ToMall::Had(meetings) => {
                self.met[1] += meetings;
                self.faded += 1;
            }
        }
        if self.faded < CREATURES {
            return Then::Next;
        }
        assert_eq!(self.met[0], self.met[1]);
        DONE.count_down();
        Then::Stop
    }
}

/// State of a creature. All runtimes use the same function to handle the messages of a creature.
struct Creature {
    colour: Colour,
    meetings: u64,
}

impl Creature {
    fn new(number: u64) -> Self {
        Self { colour: Colour::of(number), meetings: 0 }
    }

    fn handle<C: Clone>(
        &mut self,
        message: ToCreature<C>,
        own: &C,
        send: impl Fn(&C, ToCreature<C>),
        mall: impl Fn(ToMall<C>),
    ) -> Then {
        match message {
            ToCreature::Meet(other, colour) => {
                self.colour = self.colour.with(colour);
                send(&other, ToCreature::Change(self.colour));
            }
            ToCreature::Change(colour) => self.colour = colour,
            ToCreature::Stop => {
                mall(ToMall::Had(self.meetings));
                return Then::Stop;
            }
        }
        self.meetings += 1;
        mall(ToMall::Meet(own.clone(), self.colour));
        Then::Next
    }
}

#[derive(Clone)]
struct Ours(Address<ToCreature<Ours>>);

fn ours(rt: &Runtime, n: u64) {
    DONE.close(1);
    let mall = rt.spawn(async move |mut ctx: Context<ToMall<Ours>>| {
        let mut mall = Mall::new(n);
        while let Ok(message) = ctx.receive().await {
            if mall.handle(message, |to, message| to.0.send(message).expect("it waits")) == Then::Stop {
                return;
            }
        }
    });
    for number in 0..CREATURES {
        let mall = mall.address();
        drop(rt.spawn(async move |mut ctx: Context<ToCreature<Ours>>| {
            let (mut creature, own) = (Creature::new(number), Ours(ctx.address()));
            let tell_mall = |message| mall.send(message).expect("it waits");
            tell_mall(ToMall::Meet(own.clone(), creature.colour));
            while let Ok(message) = ctx.receive().await {
                let send = |to: &Ours, message| to.0.send(message).expect("it waits");
                if creature.handle(message, &own, send, tell_mall) == Then::Stop {
                    return;
                }
            }
        }));
    }
    DONE.wait();
}

struct Sender<T: Tasks>(T::Sender<ToCreature<Self>>);

impl<T: Tasks> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

fn tasks<T: Tasks>(on: &T, n: u64) {
    DONE.close(1);
    let (mall_sender, mut mall_receiver) = T::channel::<ToMall<Sender<T>>>();
    on.spawn(async move {
        let mut mall = Mall::new(n);
        while let Some(message) = T::receive(&mut mall_receiver).await {
            if mall.handle(message, |to, message| T::send(&to.0, message)) == Then::Stop {
                return;
            }
        }
    });
    for number in 0..CREATURES {
        let mall = mall_sender.clone();
        on.spawn(async move {
            let (sender, mut receiver) = T::channel::<ToCreature<Sender<T>>>();
            let (mut creature, own) = (Creature::new(number), Sender::<T>(sender));
            let tell_mall = |message| T::send(&mall, message);
            tell_mall(ToMall::Meet(own.clone(), creature.colour));
            while let Some(message) = T::receive(&mut receiver).await {
                let send = |to: &Sender<T>, message| T::send(&to.0, message);
                if creature.handle(message, &own, send, tell_mall) == Then::Stop {
                    return;
                }
            }
        });
    }
    DONE.wait();
}

struct MallActor<A: Actors>(Mall<A::Address<CreatureActor<A>>>);

struct CreatureActor<A: Actors> {
    creature: Creature,
    own: Option<A::Address<Self>>,
    mall: A::Address<MallActor<A>>,
}

/// The first message to a creature contains the address of this creature.
enum Heard<A: Actors> {
    You(A::Address<CreatureActor<A>>),
    Other(ToCreature<A::Address<CreatureActor<A>>>),
}

impl<A: Actors> Actor for MallActor<A> {
    type Message = ToMall<A::Address<CreatureActor<A>>>;

    fn handle(&mut self, message: Self::Message) -> Then {
        self.0.handle(message, |to, message| A::tell::<CreatureActor<A>>(to, Heard::Other(message)))
    }
}

impl<A: Actors> Actor for CreatureActor<A> {
    type Message = Heard<A>;

    fn handle(&mut self, message: Heard<A>) -> Then {
        let tell_mall = |message| A::tell::<MallActor<A>>(&self.mall, message);
        match message {
            Heard::You(own) => {
                tell_mall(ToMall::Meet(own.clone(), self.creature.colour));
                self.own = Some(own);
                Then::Next
            }
            Heard::Other(message) => {
                let own = self.own.as_ref().expect("it was told first");
                let send = |to: &_, message| A::tell::<Self>(to, Heard::Other(message));
                self.creature.handle(message, own, send, tell_mall)
            }
        }
    }
}

fn actors<A: Actors>(on: &A, n: u64) {
    DONE.close(1);
    on.enter(move |on| {
        let mall = on.spawn(MallActor::<A>(Mall::new(n)));
        for number in 0..CREATURES {
            let creature = Creature::new(number);
            let creature = on.spawn(CreatureActor::<A> { creature, own: None, mall: mall.clone() });
            A::tell::<CreatureActor<A>>(&creature, Heard::You(creature.clone()));
        }
    });
    DONE.wait();
}

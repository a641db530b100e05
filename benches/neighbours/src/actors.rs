//! What the runtimes whose unit is an actor have in common: an actor takes one message after the other in a handler,
//! is told and is asked. A workload is written once over [`Actors`]; a file of `actors/` says it in a framework's words.

mod actix;
mod by_hand;
mod kameo;
mod ractor;

pub(crate) use self::actix::Actix;
pub(crate) use by_hand::ByHand;
pub(crate) use kameo::Kameo;
pub(crate) use ractor::Ractor;

/// What is spawned.
pub(crate) trait Actor: Unpin + Send + Sync + Sized + 'static {
    type Message: Send + 'static;

    fn handle(&mut self, message: Self::Message) -> Then;
}

/// What comes after a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// The next one.
    Next,
    /// The same, after this answer to who asked.
    Answer(u64),
    /// The actor's end.
    Stop,
}

impl Then {
    /// What who asked hears.
    fn answer(self) -> u64 {
        match self {
            Self::Answer(value) => value,
            Self::Next | Self::Stop => 0,
        }
    }
}

/// A runtime of actors, as its own threads have it at hand.
pub(crate) trait Actors: Clone + Send + Sync + 'static {
    type Address<A: Actor>: Clone + Unpin + Send + Sync + 'static;

    /// Runs `f` on a thread of this runtime, soon.
    fn enter(&self, f: impl FnOnce(&Self) + Send + 'static);
    /// Starts an actor, which may be told something at once.
    fn spawn<A: Actor>(&self, actor: A) -> Self::Address<A>;
    /// Starts a task that is no actor, as those who ask often are.
    fn task(&self, task: impl Future<Output = ()> + Send + 'static);
    fn tell<A: Actor>(to: &Self::Address<A>, message: A::Message);
    fn ask<A: Actor>(to: &Self::Address<A>, message: A::Message) -> impl Future<Output = u64> + Send;
}

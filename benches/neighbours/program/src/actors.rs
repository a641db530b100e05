//! Common interface of the actor runtimes. An actor handles its messages one after another, and supports the operations
//! `tell` and `ask`. Each workload is written once for all actor runtimes, with the trait [`Actors`]. Each file of
//! `actors/` implements the interface for one runtime.

mod actix;
mod by_hand;
mod kameo;
mod ractor;

pub(crate) use self::actix::Actix;
pub(crate) use by_hand::ByHand;
pub(crate) use kameo::Kameo;
pub(crate) use ractor::Ractor;

/// Behaviour of an actor.
pub(crate) trait Actor: Unpin + Send + Sync + Sized + 'static {
    type Message: Send + 'static;

    fn handle(&mut self, message: Self::Message) -> Then;
}

/// Action of an actor after a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// The actor waits for the next message.
    Next,
    /// The actor answers with this value, and waits for the next message.
    Answer(u64),
    /// The actor stops.
    Stop,
}

impl Then {
    /// Returns the answer to `ask`. If the actor has no answer, returns 0.
    fn answer(self) -> u64 {
        match self {
            Self::Answer(value) => value,
            Self::Next | Self::Stop => 0,
        }
    }
}

/// Handle of an actor runtime, for code that runs on the threads of this runtime.
pub(crate) trait Actors: Clone + Send + Sync + 'static {
    type Address<A: Actor>: Clone + Unpin + Send + Sync + 'static;

    /// Runs `f` on a thread of this runtime, asynchronously.
    fn enter(&self, f: impl FnOnce(&Self) + Send + 'static);
    /// Starts an actor. The address of the actor may be used immediately.
    fn spawn<A: Actor>(&self, actor: A) -> Self::Address<A>;
    /// Starts a task that is not an actor.
    fn task(&self, task: impl Future<Output = ()> + Send + 'static);
    fn tell<A: Actor>(to: &Self::Address<A>, message: A::Message);
    fn ask<A: Actor>(to: &Self::Address<A>, message: A::Message) -> impl Future<Output = u64> + Send;
}

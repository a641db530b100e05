//! ractor: an actor is a tokio task, and the state of the actor is separate from the code of the actor.

use std::marker::PhantomData;

use ractor::{ActorProcessingErr, ActorRef, ActorRuntime, RpcReplyPort};

use super::{Actor, Actors, Then};

#[derive(Clone, Copy)]
pub(crate) struct Ractor;

/// Adapter for a ractor actor. The adapter is not private, because `Actors::Address` names the adapter.
pub(crate) struct Adapter<A>(PhantomData<A>);

/// The type parameter is the actor, not the message type of the actor. If the message type were the parameter, an
/// address in a message would lead to an infinitely recursive type.
pub(crate) enum Envelope<A: Actor> {
    Only(A::Message),
    AndAsked(A::Message, RpcReplyPort<u64>),
}

impl<A: Actor> ractor::Actor for Adapter<A> {
    type Msg = Envelope<A>;
    type State = A;
    type Arguments = A;

    async fn pre_start(&self, _: ActorRef<Self::Msg>, actor: A) -> Result<A, ActorProcessingErr> {
        Ok(actor)
    }

    async fn handle(&self, me: ActorRef<Self::Msg>, told: Self::Msg, actor: &mut A) -> Result<(), ActorProcessingErr> {
        let (message, reply) = match told {
            Envelope::Only(message) => (message, None),
            Envelope::AndAsked(message, reply) => (message, Some(reply)),
        };
        let then = actor.handle(message);
        if let Some(reply) = reply {
            reply.send(then.answer())?;
        }
        if then == Then::Stop {
            me.stop(None);
        }
        Ok(())
    }
}

impl Actors for Ractor {
    type Address<A: Actor> = ActorRef<Envelope<A>>;

    fn enter(&self, f: impl FnOnce(&Self) + Send + 'static) {
        drop(tokio::spawn(async { f(&Self) }));
    }

    fn spawn<A: Actor>(&self, actor: A) -> Self::Address<A> {
        let (address, started) =
            ActorRuntime::spawn_instant(None, Adapter::<A>(PhantomData), actor).expect("it has no name to be taken");
        drop(started);
        address
    }

    fn task(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(tokio::spawn(task));
    }

    fn tell<A: Actor>(to: &Self::Address<A>, message: A::Message) {
        to.send_message(Envelope::Only(message)).expect("it lives");
    }

    async fn ask<A: Actor>(to: &Self::Address<A>, message: A::Message) -> u64 {
        let asked = to.call(|reply| Envelope::AndAsked(message, reply), None).await;
        asked.expect("it lives").expect("it answers")
    }
}

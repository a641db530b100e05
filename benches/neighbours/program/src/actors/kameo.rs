//! kameo: an actor is a tokio task. The mailboxes are unbounded here.

use std::convert::Infallible;

use kameo::actor::{ActorRef, Spawn as _};
use kameo::mailbox;
use kameo::message::{Context, Message};

use super::{Actor, Actors, Then};

#[derive(Clone, Copy)]
pub(crate) struct Kameo;

/// Adapter for a kameo actor. The adapter is not private, because `Actors::Address` names the adapter.
pub(crate) struct Adapter<A>(A);

pub(crate) struct Envelope<M>(M);

impl<A: Actor> kameo::Actor for Adapter<A> {
    type Args = A;
    type Error = Infallible;

    async fn on_start(actor: A, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(Self(actor))
    }
}

impl<A: Actor> Message<Envelope<A::Message>> for Adapter<A> {
    type Reply = u64;

    async fn handle(&mut self, Envelope(message): Envelope<A::Message>, ctx: &mut Context<Self, u64>) -> u64 {
        let then = self.0.handle(message);
        if then == Then::Stop {
            ctx.stop();
        }
        then.answer()
    }
}

impl Actors for Kameo {
    type Address<A: Actor> = ActorRef<Adapter<A>>;

    fn enter(&self, f: impl FnOnce(&Self) + Send + 'static) {
        drop(tokio::spawn(async { f(&Self) }));
    }

    fn spawn<A: Actor>(&self, actor: A) -> Self::Address<A> {
        Adapter::spawn_with_mailbox(actor, mailbox::unbounded())
    }

    fn task(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(tokio::spawn(task));
    }

    fn tell<A: Actor>(to: &Self::Address<A>, message: A::Message) {
        to.tell(Envelope(message)).try_send().expect("it lives");
    }

    async fn ask<A: Actor>(to: &Self::Address<A>, message: A::Message) -> u64 {
        to.ask(Envelope(message)).await.expect("it answers")
    }
}

//! actix: all actors run on one arbiter, which is one thread.

use actix::{Actor as _, ActorContext as _, Addr, ArbiterHandle, Handler, Message};

use super::{Actor, Actors, Then};

#[derive(Clone)]
pub(crate) struct Actix(pub(crate) ArbiterHandle);

/// Adapter for an actix actor. The adapter is not private, because `Actors::Address` names the adapter.
pub(crate) struct Adapter<A>(A);

pub(crate) struct Envelope<M>(M);

impl<M> Message for Envelope<M> {
    type Result = u64;
}

impl<A: Actor> actix::Actor for Adapter<A> {
    type Context = actix::Context<Self>;
}

impl<A: Actor> Handler<Envelope<A::Message>> for Adapter<A> {
    type Result = u64;

    fn handle(&mut self, Envelope(message): Envelope<A::Message>, ctx: &mut Self::Context) -> u64 {
        let then = self.0.handle(message);
        if then == Then::Stop {
            ctx.stop();
        }
        then.answer()
    }
}

impl Actors for Actix {
    type Address<A: Actor> = Addr<Adapter<A>>;

    fn enter(&self, f: impl FnOnce(&Self) + Send + 'static) {
        let inside = self.clone();
        assert!(self.0.spawn_fn(move || f(&inside)), "the arbiter runs");
    }

    fn spawn<A: Actor>(&self, actor: A) -> Self::Address<A> {
        Adapter(actor).start()
    }

    fn task(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(actix::spawn(task));
    }

    fn tell<A: Actor>(to: &Self::Address<A>, message: A::Message) {
        // `do_send` ignores the capacity of the mailbox, so the mailbox is unbounded as on the other runtimes.
        to.do_send(Envelope(message));
    }

    async fn ask<A: Actor>(to: &Self::Address<A>, message: A::Message) -> u64 {
        to.send(Envelope(message)).await.expect("it answers")
    }
}

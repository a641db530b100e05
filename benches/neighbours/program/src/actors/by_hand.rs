//! Implements the common interface of the actor runtimes for procession. Each actor is a hand-written process.

use procession::{Address, Context, Event, Events, Exit, Host, Next, Process, Reply, StepOutput};

use super::{Actor, Actors, Then};

#[derive(Clone)]
pub(crate) struct ByHand(pub(crate) Host);

/// Adapter for a hand-written process. The adapter is not private, because `Actors::Address` names the adapter.
pub(crate) struct Adapter<A>(A);

/// The type parameter is the actor, not the message type of the actor. If the message type were the parameter, an
/// address in a message would lead to an infinitely recursive type.
pub(crate) enum Envelope<A: Actor> {
    Only(A::Message),
    AndAsked(A::Message, Reply<u64>),
}

impl<A: Actor> Process for Adapter<A> {
    type Message = Envelope<A>;
    type Output = ();

    fn step(
        &mut self,
        events: Events<'_, Self::Message>,
        _: &mut StepOutput<'_, Self::Message>,
    ) -> Result<Next<()>, Exit> {
        for event in events {
            let then = match event {
                Event::Message(Envelope::Only(message)) => self.0.handle(message),
                Event::Message(Envelope::AndAsked(message, reply)) => {
                    let then = self.0.handle(message);
                    reply.send(then.answer());
                    then
                }
                Event::Cancel { .. } => Then::Stop,
                _ => Then::Next,
            };
            if then == Then::Stop {
                return Ok(Next::Done(()));
            }
        }
        Ok(Next::Wait)
    }
}

impl Actors for ByHand {
    type Address<A: Actor> = Address<Envelope<A>>;

    fn enter(&self, f: impl FnOnce(&Self) + Send + 'static) {
        let inside = self.clone();
        drop(self.0.spawn(async move |_: Context| f(&inside)));
    }

    fn spawn<A: Actor>(&self, actor: A) -> Self::Address<A> {
        self.0.spawn_process(Adapter(actor)).address()
    }

    fn task(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.0.spawn(async move |_: Context| task.await));
    }

    fn tell<A: Actor>(to: &Self::Address<A>, message: A::Message) {
        to.send(Envelope::Only(message)).expect("it lives");
    }

    async fn ask<A: Actor>(to: &Self::Address<A>, message: A::Message) -> u64 {
        to.call(|reply| Envelope::AndAsked(message, reply)).await.expect("it answers")
    }
}

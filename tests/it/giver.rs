//! A handler that completes its commands when the test calls [`Giver::give`].

use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use procession::{Command, Completion, Handler};

/// Command that asks for a value of type `R`.
pub(crate) struct Give<R>(PhantomData<fn() -> R>);

impl<R> Give<R> {
    pub(crate) fn me() -> Self {
        Self(PhantomData)
    }
}

impl<R: Send + 'static> Command for Give<R> {
    type Reply = R;
}

/// Handler that stores the completions of its commands. A call of [`give`](Self::give) completes the stored commands.
pub(crate) struct Giver<R: Send + 'static>(Arc<Mutex<Vec<Completion<R>>>>);

impl<R: Send + 'static> Clone for Giver<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R: Send + 'static> Default for Giver<R> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<R: Send + 'static> Handler<Give<R>> for Giver<R> {
    fn handle(&self, _: Give<R>, completion: Completion<R>) {
        self.0.lock().unwrap().push(completion);
    }
}

impl<R: Send + 'static> Giver<R> {
    /// Completes every command that the handler has stored.
    pub(crate) fn give(&self, answer: impl Fn() -> R) {
        let completions = std::mem::take(&mut *self.0.lock().unwrap());
        completions.into_iter().for_each(|completion| completion.complete(answer()));
    }
}

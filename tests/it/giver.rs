//! A handler that answers when the test says so.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use procession::{Command, Completion, Handler};

/// Asks for a value of this type.
pub(crate) struct Give<R>(PhantomData<fn() -> R>);

impl<R> Give<R> {
    pub(crate) fn me() -> Self {
        Self(PhantomData)
    }
}

impl<R: Send + 'static> Command for Give<R> {
    type Reply = R;
}

/// Keeps what it is asked for, until the test gives the answers.
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
    /// Answers all that it was asked for.
    pub(crate) fn give(&self, answer: impl Fn() -> R) {
        let completions = std::mem::take(&mut *self.0.lock().unwrap());
        completions.into_iter().for_each(|completion| completion.complete(answer()));
    }
}

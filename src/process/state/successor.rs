//! What the body that is polled on this thread wants its task to do: to say whether new code fits it, and to put that in
//! the place of the old. The two talk here because neither has a reference to the other. How it is used: `upgrade.rs`.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};

use futures::future::BoxFuture;

use crate::platform::sync::{Lasting, thread_local};
use crate::process::exit::Exit;

/// What is polled in the place of a body.
pub(crate) type Future<T> = BoxFuture<'static, Result<T, Exit>>;

enum Wanted {
    /// Whether the task ends with a result of this type.
    Fit(TypeId),
    /// A [`Future`] of that type.
    Place(Box<dyn Any + Send>),
}

/// The answer: the name of the type if it is another.
pub(crate) type Fit = Result<(), &'static str>;

/// What is wanted, and what was answered.
type Talk = (Option<Wanted>, Option<Fit>);

thread_local! {
    static TALK: Lasting<RefCell<Talk>> = const { Lasting::new(RefCell::new((None, None))) };
    /// Whether something is wanted: read far more often than that is.
    static IS_WANTED: Cell<bool> = const { Cell::new(false) };
}

fn want(wanted: Wanted) {
    let former = TALK.with(|talk| talk.borrow_mut().0.replace(wanted));
    IS_WANTED.with(|is_wanted| is_wanted.set(true));
    drop(former);
}

/// Asks whether the task ends with a `T`, until the task has answered.
pub(crate) fn ask<T: 'static>() -> Option<Fit> {
    let answer = TALK.with(|talk| talk.borrow_mut().1.take());
    if answer.is_none() {
        want(Wanted::Fit(TypeId::of::<T>()));
    }
    answer
}

/// Wants this polled in the place of the body, from the end of its poll on.
pub(crate) fn place<T: 'static>(next: Future<T>) {
    want(Wanted::Place(Box::new(next)));
}

/// Whether the body that was polled wants something.
#[inline]
pub(crate) fn is_wanted() -> bool {
    IS_WANTED.with(Cell::get)
}

/// For a task that ends with a `T`, when its body has returned from a poll and wants something. Unless there is something
/// to be put in its place, it is to be polled again, for the answer.
#[cold]
pub(crate) fn settle<T: 'static>() -> Option<Future<T>> {
    IS_WANTED.with(|is_wanted| is_wanted.set(false));
    match TALK.with(|talk| talk.borrow_mut().0.take())? {
        Wanted::Fit(id) => {
            let fit = if id == TypeId::of::<T>() { Ok(()) } else { Err(std::any::type_name::<T>()) };
            TALK.with(|talk| talk.borrow_mut().1 = Some(fit));
            None
        }
        Wanted::Place(next) => next.downcast().ok().map(|next| *next),
    }
}

/// The body has ended: what it wanted is nothing any more.
#[cold]
pub(crate) fn forget() {
    drop(take());
}

/// Of the turn in which another one begins.
pub(crate) fn take() -> Option<Box<Outer>> {
    IS_WANTED.with(|is_wanted| is_wanted.set(false));
    let talk = TALK.with(|talk| talk.take());
    if talk.0.is_none() && talk.1.is_none() { None } else { Some(Box::new(Outer(talk))) }
}

/// When that is over.
pub(crate) fn restore(outer: Option<Box<Outer>>) {
    let talk = outer.map_or((None, None), |outer| outer.0);
    IS_WANTED.with(|is_wanted| is_wanted.set(talk.0.is_some()));
    let former = TALK.with(|now| now.replace(talk));
    drop(former);
}

/// What the body wants that another one's turn is nested in.
pub(crate) struct Outer(Talk);

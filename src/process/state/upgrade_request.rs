//! Upgrade requests. With an upgrade request, a running body asks its task to replace the body with other code. The
//! body and its task have no reference to each other. Therefore, the body writes the request into the state of the
//! thread, and the task writes the reply into the same state: see `upgrade.rs`.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};

use futures::future::BoxFuture;

use crate::platform::sync::NeverDropped;
use crate::process::catch::drop_caught;
use crate::process::exit::Exit;
use crate::process::pid::Pid;

/// The future that replaces a body.
pub(crate) type Future<T> = BoxFuture<'static, Result<T, Exit>>;

enum Request {
    /// The body asks whether the result type of the task is the type in the [`Question`].
    Fits(Question),
    /// The body asks the task to replace the body with this [`Future`]. The result type of the future is the result
    /// type of the task.
    Replace(Box<dyn Any + Send>),
}

/// The reply to [`UpgradeRequest::ask`]. An error contains the name of the task's result type.
pub(crate) type Fit = Result<(), &'static str>;

/// Question of a body: the pid of the body's process, and the result type that the body asks for. The address of the
/// control block would not suffice, because a later process may have the same address.
type Question = (Pid, TypeId);

/// Two values: the open request, and the most recently answered question with the reply to this question.
type Exchange = (Option<Request>, Option<(Question, Fit)>);

/// The request of the body that this thread polls.
pub(crate) struct UpgradeRequest {
    exchange: NeverDropped<RefCell<Exchange>>,
    /// Whether there is a request. The task reads this flag after each poll of a body.
    is_pending: Cell<bool>,
}

impl UpgradeRequest {
    pub(super) const fn new() -> Self {
        Self { exchange: NeverDropped::new(RefCell::new((None, None))), is_pending: Cell::new(false) }
    }

    fn request(&self, request: Request) {
        let former = self.exchange.borrow_mut().0.replace(request);
        self.is_pending.set(true);
        // The previous request is dropped after the borrow of `exchange` has ended, because the destructor of a future
        // is user code.
        drop(former);
    }

    /// Asks whether the result of the task is a `T`. `process` is the pid of the body's process. The first call
    /// returns `None`. After the reply of the task, the next call returns the reply.
    ///
    /// A reply stays on the thread until one of two events: the body that asked takes the reply, or a task writes the
    /// next reply on this thread. A body may await several upgrades, so the stored reply may belong to another question
    /// of the same body.
    pub(crate) fn ask<T: 'static>(&self, process: Pid) -> Option<Fit> {
        let question = (process, TypeId::of::<T>());
        if let Some((_, fit)) = self.exchange.borrow_mut().1.take_if(|(answered, _)| *answered == question) {
            return Some(fit);
        }
        // If another upgrade of this body has already requested a replacement, the task drops this body after this
        // poll. In this case, the question must not overwrite this request.
        if !matches!(self.exchange.borrow().0, Some(Request::Replace(_))) {
            self.request(Request::Fits(question));
        }
        None
    }

    /// Asks the task to replace the body with `next` after the current poll of the body.
    pub(crate) fn replace<T: 'static>(&self, next: Future<T>) {
        self.request(Request::Replace(Box::new(next)));
    }

    /// Returns whether the body has made a request.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.is_pending.get()
    }

    /// Replies to the request of a body after a poll of the body. `T` is the result type of the task. Returns the
    /// future that replaces the body. If the result is `None`, the task must poll the body again, and the body then
    /// reads the reply.
    #[cold]
    pub(crate) fn settle<T: 'static>(&self) -> Option<Future<T>> {
        self.is_pending.set(false);
        let request = self.exchange.borrow_mut().0.take()?;
        match request {
            Request::Fits(question) => {
                let fit = if question.1 == TypeId::of::<T>() { Ok(()) } else { Err(std::any::type_name::<T>()) };
                self.exchange.borrow_mut().1 = Some((question, fit));
                None
            }
            Request::Replace(next) => next.downcast().ok().map(|next| *next),
        }
    }

    /// Drops the request. Either the body has ended, or no task can grant a request that was made in this step.
    #[cold]
    pub(crate) fn forget(&self) {
        let _ = drop_caught(self.save());
    }

    /// Takes out the request and the reply of the current turn. This function is called before a nested turn begins.
    pub(super) fn save(&self) -> Option<Box<Saved>> {
        self.is_pending.set(false);
        let exchange = self.exchange.take();
        if exchange.0.is_none() && exchange.1.is_none() { None } else { Some(Box::new(Saved(exchange))) }
    }

    /// Restores the request and the reply of an outer turn. This function is called after the nested turn has ended.
    pub(super) fn restore(&self, saved: Option<Box<Saved>>) {
        let exchange = saved.map_or((None, None), |saved| saved.0);
        self.is_pending.set(exchange.0.is_some());
        let former = self.exchange.replace(exchange);
        drop(former);
    }
}

/// Saved exchange of an outer turn while a nested turn runs.
pub(crate) struct Saved(Exchange);

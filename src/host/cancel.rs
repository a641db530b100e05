//! Cancellation of many processes. A [`CancelToken`] requests the exit of many processes. A [`Cancelled`] future waits
//! for this request. The code in `process.rs` cancels a single process. The code in `task/spawn.rs` registers a process
//! with a token.

pub(crate) mod inherited;
mod process;
pub(crate) mod tree;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::FusedFuture;
use pin_project_lite::pin_project;

use crate::host::Phase;
use crate::host::cancel::tree::{Cause, Node, Subject};
use crate::host::control::{AnyControl, Head, Listening, poll_news};
use crate::platform::sync::Arc;
use crate::process::exit::{Exit, Reason};
use crate::process::state::Ref;
use crate::process::state::budget::BudgetPause;

/// Requests the exit of many processes and tasks.
///
/// If a token is cancelled, the processes that were [spawned with the token](crate::ProcessBuilder::cancel_token) are
/// cancelled. Processes that inherited the token from their parents are cancelled too. The cancellation also resolves
/// all futures that [`cancelled`](Self::cancelled) has returned, inside and outside of processes. A clone of a
/// `CancelToken` is a handle to the same token.
///
/// Tokens form trees. If a token is cancelled, the [children](Self::child) of this token and all other descendants are
/// cancelled too. The parent of this token is not cancelled. The processes of child tokens are notified before the
/// processes of the parent token. Within one token, the cancellation notifies the processes in reverse order of their
/// spawns. Therefore a child process is notified before its parent process. The children of a
/// [`Supervisor`](crate::Supervisor) are notified only by their supervisor, in the order that the supervisor defines.
/// The members of a [`Pool`](crate::Pool) are notified only by their pool. A cancellation does not wait for exits. To
/// terminate processes in order, use supervisors or [`SelfHandle::scope`](crate::SelfHandle::scope).
///
/// After a token was cancelled, the token stays cancelled. If a process is spawned with a cancelled token, the process
/// is cancelled before its first step. Dropping all handles of a token does not cancel the token. The cancellation of
/// an ancestor token can still cancel this token.
///
/// ```
/// use procession::{CancelToken, Context, Exit, Runtime};
/// use std::time::Duration;
///
/// async fn session(mut ctx: Context) -> Result<(), Exit> {
///     // The helper inherits the cancel token of the session.
///     let helper = ctx.spawn(async |mut ctx: Context| ctx.receive().await.map(drop));
///     ctx.receive().await?;
///     helper.await
/// }
/// let rt = Runtime::new()?;
/// let all = CancelToken::new();
/// let one = all.child();
/// let sessions = [rt.process().cancel_token(&all).spawn(session)?, rt.process().cancel_token(&one).spawn(session)?];
///
/// one.cancel("logged out", Duration::from_secs(1));
/// assert!(one.is_cancelled() && !all.is_cancelled());
/// all.cancel("maintenance", Duration::from_secs(1));
///
/// let reasons = sessions.map(|session| rt.block_on(session).unwrap_err().to_string());
/// assert_eq!(reasons, ["cancelled: maintenance", "cancelled: logged out"]);
/// assert!(rt.block_on(all.cancelled()) == "maintenance");
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Clone)]
pub struct CancelToken(Arc<Node<dyn AnyControl>>);

impl Subject for dyn AnyControl {
    fn notify(this: &Ref<Self>, Cause { reason, grace }: &Cause) {
        let head = this.head();
        if !head.has_ended() {
            head.host().cancel_by(this, reason.clone(), head.host().now() + *grace);
        }
    }
}

impl Head {
    /// Returns whether another process exited because of a cancellation that also cancels this process. `exit` is the
    /// exit of the other process. A token, a deadline and a shutdown notify the processes one after another. Therefore
    /// the other process may exit before this process is notified.
    pub(crate) fn shares_cancellation(&self, exit: &Exit) -> bool {
        let Exit::Cancelled(reason) = exit.unlinked() else { return false };
        let host = self.host();
        self.inherited().is_at_end(host.now()) || (*reason == Reason::SHUTDOWN && host.phase() != Phase::Open)
    }
}

impl CancelToken {
    /// Creates a token without a parent.
    pub fn new() -> Self {
        Self(Node::root())
    }

    /// Creates a child token. If this token is cancelled, the child token is cancelled too. A cancellation of the child
    /// token does not cancel this token. The child of a cancelled token is cancelled from the beginning.
    pub fn child(&self) -> Self {
        Self(self.0.child())
    }

    /// Requests the exit of all processes and tasks of this token. Processes that have not exited after `grace` are
    /// killed. With `Duration::MAX`, no process is killed. Returns false if the token was already cancelled.
    ///
    /// A call of `cancel` first notifies all processes and tasks of each token that this call has cancelled, and then
    /// returns. The duration of the call is proportional to the number of these processes and tasks. If a process is
    /// cancelled several times, the process keeps the first reason. The first reason may come from another token, or
    /// from [`Host::cancel`](crate::Host::cancel). The process is killed after `grace`, even if an earlier cancellation
    /// has a longer grace period. There is one exception: if a child token was cancelled before this call, this call
    /// has no effect on the processes of the child token.
    ///
    /// Several threads may cancel tokens of one tree at the same time. Each process is notified by only one of these
    /// threads. One thread may notify the processes of a child token while another thread notifies the processes of the
    /// parent token. In this case, a process of the parent token may be notified before a process of the child token.
    /// No call of `cancel` waits for a call of `cancel` on another thread. [`is_cancelled`](Self::is_cancelled) of a
    /// token returns true only after all processes of this token have been notified.
    pub fn cancel(&self, reason: impl Into<Reason>, grace: Duration) -> bool {
        self.0.cancel(&Cause { reason: reason.into(), grace })
    }

    /// Returns true if the token was cancelled and all processes of the token have been notified.
    pub fn is_cancelled(&self) -> bool {
        self.reason().is_some()
    }

    /// Returns the reason of the cancellation, if the token [was cancelled](Self::is_cancelled).
    pub fn reason(&self) -> Option<Reason> {
        self.0.reason()
    }

    /// Returns a future that resolves when the token is cancelled. The output of the future is the reason. If the token
    /// is already cancelled, the future resolves in its first poll. There is one exception: if the budget of the turn
    /// is spent, this poll may be pending (see [`should_yield`](crate::should_yield)). The future works in any
    /// executor.
    pub fn cancelled(&self) -> Cancelled {
        Cancelled::of(CancelSource::Token(self.clone()))
    }

    /// Runs a future until the future completes or the token is cancelled. The returned future works in any executor.
    /// [`SelfHandle::run_until_cancelled`](crate::SelfHandle::run_until_cancelled) does the same for the cancellation
    /// of a process.
    ///
    /// # Errors
    /// Returns [`Exit::Cancelled`] with the reason of the cancellation.
    ///
    /// # Cancel safety
    /// The returned future is as cancel safe as `future`.
    pub fn run_until_cancelled<F: Future>(&self, future: F) -> impl Future<Output = Result<F::Output, Exit>> + use<F> {
        UntilCancelled::new(future, self.cancelled())
    }

    /// Returns whether the token was cancelled. Some processes of the token may not have been notified yet.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.cause().is_some()
    }

    /// Registers a process with this token. Dropping the returned value ends the registration. If the token is already
    /// cancelled, this call notifies the process and returns `None`.
    pub(crate) fn adopt(&self, process: &Ref<dyn AnyControl>) -> Option<CancelRegistration> {
        self.0.adopt(process).map(|number| CancelRegistration { token: self.clone(), number })
    }
}

impl Default for CancelToken {
    fn default() -> Self {
        Self::new()
    }
}

/// Two handles are equal if they belong to the same token.
impl PartialEq for CancelToken {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for CancelToken {}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (children, processes) = self.0.count();
        f.debug_struct("CancelToken")
            .field("reason", &self.reason())
            .field("children", &children)
            .field("processes", &processes)
            .finish()
    }
}

/// Registration of a process with a token. The control block of the process owns the registration. Dropping the
/// registration removes the process from the token.
#[derive(Debug)]
pub(crate) struct CancelRegistration {
    token: CancelToken,
    number: u64,
}

impl Drop for CancelRegistration {
    fn drop(&mut self) {
        self.token.0.release(self.number);
    }
}

/// Future that resolves when the exit of a process is requested, or when a token is cancelled. The output of the future
/// is the reason. [`SelfHandle::cancelled`](crate::SelfHandle::cancelled) and [`CancelToken::cancelled`] return this
/// future.
///
/// # Cancel safety
/// The future is cancel safe: dropping the future does not change the process or the token.
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct Cancelled {
    source: CancelSource,
    listening: Listening,
    pause: BudgetPause,
    over: bool,
}

#[derive(Debug)]
enum CancelSource {
    Process(Ref<dyn AnyControl>),
    Token(CancelToken),
}

impl Cancelled {
    pub(crate) fn new(control: Ref<dyn AnyControl>) -> Self {
        Self::of(CancelSource::Process(control))
    }

    fn of(source: CancelSource) -> Self {
        Self { source, listening: Listening::default(), pause: BudgetPause::default(), over: false }
    }

    /// Makes the future resolve even if the budget of the turn is spent.
    pub(crate) fn without_pause(mut self) -> Self {
        self.pause.skip();
        self
    }
}

impl Future for Cancelled {
    type Output = Reason;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reason> {
        let this = &mut *self;
        if this.over {
            return Poll::Pending;
        }
        let listening = &mut this.listening;
        let has_waited = listening.is_active();
        let reason = match &this.source {
            CancelSource::Process(control) => {
                let head = control.head();
                head.poll_news(listening, cx, || head.cancel().map(|(reason, _)| reason))
            }
            CancelSource::Token(token) => poll_news(token.0.news(), listening, cx, || token.reason()),
        };
        // A body may ignore its cancellation, and may await a `Cancelled` future in a loop. If a `Cancelled` future
        // took no unit from the budget, a loop that awaits `Cancelled` futures would never end the turn. Therefore a
        // future that resolves without a wait takes a unit from the budget.
        if reason.is_ready() && !has_waited {
            ready!(this.pause.spend_as_check(cx));
        }
        this.over = reason.is_ready();
        reason
    }
}

impl FusedFuture for Cancelled {
    fn is_terminated(&self) -> bool {
        self.over
    }
}

pin_project! {
    /// Future that runs an inner future until the inner future completes, or until a cancellation is requested.
    /// [`SelfHandle::run_until_cancelled`](crate::SelfHandle::run_until_cancelled) explains the details.
    #[must_use = "futures do nothing unless polled"]
    pub(crate) struct UntilCancelled<F> {
        #[pin]
        future: F,
        cancelled: Cancelled,
        was_polled: bool,
    }
}

impl<F> UntilCancelled<F> {
    pub(crate) fn new(future: F, cancelled: Cancelled) -> Self {
        Self { future, cancelled, was_polled: false }
    }
}

impl<F: Future> Future for UntilCancelled<F> {
    type Output = Result<F::Output, Exit>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut cancelled = Pin::new(this.cancelled);
        // The first poll checks for a cancellation, and then polls `future`. Each later poll first polls `future`,
        // because an output that is ready must not be lost. The check may find a cancellation although the budget of
        // the turn is spent. In this case, the first poll returns `Pending`. The next poll then repeats the check, and
        // `future` is never polled.
        if !*this.was_polled {
            match cancelled.as_mut().poll(cx) {
                Poll::Ready(reason) => return Poll::Ready(Err(Exit::Cancelled(reason))),
                Poll::Pending if cancelled.pause.is_over() => return Poll::Pending,
                Poll::Pending => *this.was_polled = true,
            }
        }
        match this.future.poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => cancelled.poll(cx).map(|reason| Err(Exit::Cancelled(reason))),
        }
    }
}

//! Structured concurrency. A scope spawns child processes, and completes only when all child processes have exited.
//!
//! The design follows N. J. Smith, *Notes on structured concurrency, or: Go statement considered harmful* (2018).

use std::fmt;
use std::pin::Pin;
use std::task::{Context as Cx, Poll};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use futures::task::AtomicWaker;
use pin_project_lite::pin_project;

use crate::context::Context;
use crate::context::address::Exited;
use crate::context::me::SelfHandle;
use crate::context::step::Process;
use crate::host::Host;
use crate::host::cancel::Cancelled;
use crate::host::cancel::inherited::InheritedContext;
use crate::host::control::AnyControl;
use crate::platform::clock::Instant;
use crate::platform::sync::{Arc, Mutex, planted};
use crate::process::catch::{delay_wakers, drop_caught};
use crate::process::error::{SpawnError, SpawnErrorKind};
use crate::process::exit::{Exit, Reason};
use crate::process::state::Ref;
use crate::task::body::{Body, ProcessOutput};
use crate::task::join::JoinHandle;
use crate::task::spawn::ProcessBuilder;

/// Maximum number of events that a scope handles in one turn. An event is a new child or an exit.
const EVENTS_AT_ONCE: usize = 256;

/// Handle of a scope. The handle spawns the children of the scope: see [`SelfHandle::scope`]. A clone refers to the
/// same scope. A child may use a clone to spawn other children of the scope.
#[derive(Clone)]
pub struct Scope {
    shared: Arc<ScopeState>,
}

struct ScopeState {
    host: Host,
    inherited: InheritedContext,
    state: Mutex<State>,
    /// Waker of the task that runs the scope.
    news: AtomicWaker,
}

struct State {
    over: bool,
    /// New children, for which the task of the scope does not wait yet.
    fresh: Vec<Ref<dyn AnyControl>>,
    grace: Duration,
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The formatter is user code, so the lock is not held while the formatter runs.
        let over = self.shared.state.lock().over;
        f.debug_struct("Scope").field("over", &over).finish_non_exhaustive()
    }
}

impl Scope {
    /// Spawns a child. The child inherits the values, the deadline and the cancel token of the process that runs the
    /// scope.
    ///
    /// If the spawn is refused, the handle resolves to [`Exit::Refused`]. A scope that has completed refuses every
    /// spawn. In a running scope, a refused child counts as a child that has failed.
    pub fn spawn<N, F, Fut>(&self, body: F) -> JoinHandle<F::Value, N>
    where
        N: Send + 'static,
        F: Body<N, Future = Fut> + FnOnce(Context<N>) -> Fut,
        Fut: Future,
    {
        let builder = self.process();
        if self.shared.state.lock().over {
            return builder.refuse(SpawnErrorKind::ScopeOver, body);
        }
        self.adopt(builder.spawn_or_refuse(body))
    }

    /// Spawns a hand-written process as a child. In all other respects, this method does the same as
    /// [`spawn`](Self::spawn). The scope waits for the exit of the process. Therefore, if the process never exits by
    /// itself, as for example a [`Supervisor`](crate::Supervisor), the scope completes only after a failure or a
    /// cancellation.
    pub fn spawn_process<Q: Process + Send>(&self, process: Q) -> JoinHandle<Q::Output, Q::Message> {
        let builder = self.process();
        if self.shared.state.lock().over {
            return builder.refuse(SpawnErrorKind::ScopeOver, process);
        }
        self.adopt(builder.spawn_process_or_refuse(process))
    }

    /// Spawns a child with options that `build` sets. Example: `scope.spawn_with(|process| process.name("one"), body)`.
    ///
    /// # Errors
    /// Returns the body and the reason for the refusal. A refusal does not make the scope fail.
    pub fn spawn_with<N, F, Fut>(
        &self,
        build: impl FnOnce(ProcessBuilder) -> ProcessBuilder,
        body: F,
    ) -> Result<JoinHandle<F::Value, N>, SpawnError<F>>
    where
        N: Send + 'static,
        F: Body<N, Future = Fut> + FnOnce(Context<N>) -> Fut,
        Fut: Future,
    {
        if self.shared.state.lock().over {
            return Err(SpawnError::new(SpawnErrorKind::ScopeOver, body));
        }
        build(self.process()).spawn(body).map(|handle| self.adopt(handle))
    }

    /// Sets the maximum time between the cancellation of the children and their exits. After this time, the children
    /// are killed. Default: 1 s. With `Duration::MAX`, the children are never killed.
    pub fn grace(&self, time: Duration) -> &Self {
        self.shared.state.lock().grace = time;
        self
    }

    fn process(&self) -> ProcessBuilder {
        self.shared.host.process_inheriting(self.shared.inherited.clone())
    }

    fn adopt<T, N: Send + 'static>(&self, handle: JoinHandle<T, N>) -> JoinHandle<T, N> {
        let child = handle.control().any();
        let mut state = self.shared.state.lock();
        let over = state.over;
        if planted!("scope_adopts_unlocked") {
            drop(state);
            state = self.shared.state.lock();
        }
        if over {
            // The scope completed while the child was being spawned.
            drop(state);
            child.kill();
        } else {
            state.fresh.push(child);
            drop(state);
            self.shared.news.wake();
        }
        handle
    }
}

/// Future of the exit of a child. Dropping the future kills the child.
struct ScopedChild {
    control: Ref<dyn AnyControl>,
    ended: Exited,
}

impl Future for ScopedChild {
    type Output = Exit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Exit> {
        Pin::new(&mut self.ended).poll(cx)
    }
}

impl Drop for ScopedChild {
    fn drop(&mut self) {
        self.control.kill();
    }
}

/// Cancels a child after a failure of the scope. The child may belong to another runtime, and each runtime has its own
/// clock.
fn cancel_within(child: &Ref<dyn AnyControl>, grace: Duration) {
    let host = child.head().host();
    host.cancel_by(child, Reason::PARENT, host.now() + grace);
}

/// Cancels a child after the cancellation of the process that runs the scope, with the same reason and deadline.
/// `deadline` is an instant of the clock of `host`.
fn cancel_until(host: &Host, child: &Ref<dyn AnyControl>, reason: Reason, deadline: Instant) {
    host.cancel_until(child, reason, host.deadline_for(child.head(), deadline));
}

pin_project! {
    /// Future of a running scope.
    struct Run<T, Fut> {
        #[pin]
        body: Option<Fut>,
        own: Ref<dyn AnyControl>,
        // This future resolves when the process is cancelled. Then the scope cancels its children too.
        cancelled: Option<Cancelled>,
        children: FuturesUnordered<ScopedChild>,
        // The value that the body returned, or the first error.
        outcome: Option<Result<T, Exit>>,
        shared: Arc<ScopeState>,
    }

    impl<T, Fut> PinnedDrop for Run<T, Fut> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            let mut state = this.shared.state.lock();
            state.over = true;
            let unseen = std::mem::take(&mut state.fresh);
            drop(state);
            unseen.iter().for_each(|child| child.kill());
        }
    }
}

impl<T, Fut> Run<T, Fut> {
    /// Calls the function of the scope. If this function panics, the drop of `run` kills the children that the function
    /// has already spawned.
    fn begin(own: Ref<dyn AnyControl>, shared: Arc<ScopeState>, f: impl FnOnce(Scope) -> Fut) -> Self {
        let (cancelled, children) = (Some(Cancelled::new(own.clone()).without_pause()), FuturesUnordered::new());
        let mut run = Self { body: None, own, cancelled, children, outcome: None, shared };
        run.body = Some(f(Scope { shared: Arc::clone(&run.shared) }));
        run
    }

    /// Records the first error, drops the body, and cancels the other children.
    fn fail(mut self: Pin<&mut Self>, exit: Exit) {
        let mut this = self.as_mut().project();
        if matches!(this.outcome, Some(Err(_))) {
            // The error in the exit is a user value. A panic in the `Drop` of this value must not replace the first
            // error.
            let _ = drop_caught(exit);
            return;
        }
        *this.outcome = Some(Err(exit));
        this.body.set(None);
        let grace = this.shared.state.lock().grace;
        let children = &*this.children;
        delay_wakers(|| children.iter().for_each(|child| cancel_within(&child.control, grace)));
    }

    /// Takes the children that were spawned since the last call, and adds them to the set of children for which the
    /// scope waits. Returns the number of new children.
    fn adopt(self: Pin<&mut Self>) -> usize {
        let this = self.project();
        let (fresh, grace) = {
            let mut state = this.shared.state.lock();
            (std::mem::take(&mut state.fresh), state.grace)
        };
        let (has_failed, count) = (matches!(this.outcome, Some(Err(_))), fresh.len());
        delay_wakers(|| {
            for control in fresh {
                if has_failed {
                    cancel_within(&control, grace);
                } else if let (None, Some((reason, deadline))) = (&this.cancelled, this.own.head().cancel()) {
                    cancel_until(&this.shared.host, &control, reason, deadline);
                }
                let ended = Exited::new(Some(control.clone()));
                this.children.push(ScopedChild { control, ended });
            }
        });
        count
    }

    /// Cancels the children if the process was cancelled. The children are cancelled before the body can react to the
    /// cancellation.
    fn forward_cancel(self: Pin<&mut Self>, cx: &mut Cx<'_>) {
        let this = self.project();
        let Some(cancelled) = this.cancelled else { return };
        let Poll::Ready(_) = Pin::new(cancelled).poll(cx) else { return };
        *this.cancelled = None;
        if let Some((reason, deadline)) = this.own.head().cancel() {
            let (host, children) = (&this.shared.host, &*this.children);
            delay_wakers(|| {
                children.iter().for_each(|child| cancel_until(host, &child.control, reason.clone(), deadline));
            });
        }
    }
}

impl<T: Send + 'static, Fut: Future<Output: ProcessOutput<Output = T>>> Future for Run<T, Fut> {
    type Output = Result<T, Exit>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        self.shared.news.register(cx.waker());
        // The body can spawn children in each poll, and the children can exit on other workers during this turn. All
        // passes of the loop share one limit. Without this limit, the turn might never end, and the process could not
        // be killed.
        let mut left = EVENTS_AT_ONCE;
        loop {
            left = left.saturating_sub(self.as_mut().adopt());
            self.as_mut().forward_cancel(cx);
            while left > 0
                && let Poll::Ready(Some(exit)) = self.as_mut().project().children.poll_next_unpin(cx)
            {
                left -= 1;
                // If a child was cancelled together with the process, the child has not failed. An inherited deadline,
                // an inherited cancel token or a shutdown may cancel the child before the process.
                let is_expected = || self.cancelled.is_none() || self.own.head().shares_cancellation(&exit);
                let expected = matches!(exit.unlinked(), Exit::Cancelled(_)) && is_expected();
                if !exit.is_normal() && !expected {
                    self.as_mut().fail(exit);
                }
            }
            let this = self.as_mut().project();
            if let Some(body) = this.body.as_pin_mut()
                && let Poll::Ready(outcome) = body.poll(cx)
            {
                self.as_mut().project().body.set(None);
                match outcome.into_result() {
                    Ok(value) => *self.as_mut().project().outcome = Some(Ok(value)),
                    Err(exit) => self.as_mut().fail(exit),
                }
            }
            let adopted = self.as_mut().adopt();
            left = left.saturating_sub(adopted);
            if left == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if adopted > 0 {
                continue;
            }
            let this = self.as_mut().project();
            if this.body.is_some() || !this.children.is_empty() {
                return Poll::Pending;
            }
            let mut state = this.shared.state.lock();
            if state.fresh.is_empty() {
                state.over = true;
                drop(state);
                return Poll::Ready(this.outcome.take().expect("it was polled to its end once"));
            }
        }
    }
}

impl<M: Send + 'static> SelfHandle<M> {
    /// Runs a body with child processes. The children cannot outlive the scope. When the body has returned and all
    /// children have exited, the future resolves to the result of the body.
    ///
    /// The first failure ends the scope. A failure is an abnormal exit of a child or an error of the body. After the
    /// failure, the body is dropped, and the other children are cancelled with [`Reason::PARENT`]. After the [grace
    /// period](Scope::grace) of the scope, the other children are killed. When all children have exited, the scope
    /// fails with the first error. If the process is cancelled, its children are cancelled with the same reason and
    /// deadline. The body of the scope continues, and receives the cancellation in the same way as without a scope.
    ///
    /// # Errors
    /// Returns the first error of the body or of a child.
    ///
    /// # Cancel safety
    /// If the future is dropped, the children are killed. The drop cannot wait for the exits of the children.
    ///
    /// ```
    /// use procession::{Context, Exit, Runtime};
    ///
    /// async fn square(_: Context, n: u64) -> Result<u64, Exit> {
    ///     if n < 100 { Ok(n * n) } else { Err(Exit::failed("too large")) }
    /// }
    ///
    /// async fn sum(ctx: Context, numbers: Vec<u64>) -> Result<u64, Exit> {
    ///     ctx.scope(async |scope| {
    ///         let squares: Vec<_> = numbers.iter().map(|&n| scope.spawn(move |ctx| square(ctx, n))).collect();
    ///         let mut sum = 0;
    ///         for square in squares {
    ///             sum += square.await?;
    ///         }
    ///         Ok::<_, Exit>(sum)
    ///     })
    ///     .await
    /// }
    /// let rt = Runtime::new()?;
    /// assert_eq!(rt.block_on(rt.spawn(|ctx| sum(ctx, vec![1, 2, 3])))?, 14);
    /// assert!(rt.block_on(rt.spawn(|ctx| sum(ctx, vec![1, 200, 3]))).unwrap_err().to_string().contains("too large"));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub async fn scope<T, F, Fut>(&self, f: F) -> Result<T, Exit>
    where
        T: Send + 'static,
        F: FnOnce(Scope) -> Fut,
        Fut: Future<Output: ProcessOutput<Output = T>>,
    {
        let own = self.any();
        let state = State { over: false, fresh: Vec::new(), grace: Duration::from_secs(1) };
        let shared = Arc::new(ScopeState {
            host: self.host().clone(),
            inherited: own.head().inherited().clone(),
            state: Mutex::new(state),
            news: AtomicWaker::new(),
        });
        Run::begin(own, shared, f).await
    }
}

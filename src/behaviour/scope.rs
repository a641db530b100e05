//! Structured concurrency: processes that are spawned for a piece of work, and are gone when it is over.
//!
//! After N. J. Smith, *Notes on structured concurrency, or: Go statement considered harmful* (2018).

use std::fmt;
use std::pin::Pin;
use std::task::{Context as Cx, Poll};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use futures::task::AtomicWaker;
use pin_project_lite::pin_project;

use crate::context::address::Ended;
use crate::context::me::Me;
use crate::host::Host;
use crate::host::cancel::Cancelled;
use crate::host::cancel::inherited::Inherited;
use crate::host::control::AnyControl;
use crate::platform::sync::{Arc, Mutex, planted};
use crate::process::error::{SpawnError, SpawnRefusal};
use crate::process::exit::{Exit, Reason};
use crate::process::state::Ref;
use crate::task::body::{Body, BodyFuture, Outcome, Output};
use crate::task::join::JoinHandle;
use crate::task::spawn::ProcessBuilder;

/// What a scope spawns its children by: see [`Me::scope`]. A clone is the same scope, also for a child that spawns
/// siblings.
#[derive(Clone)]
pub struct Scope {
    shared: Arc<Shared>,
}

struct Shared {
    host: Host,
    inherited: Inherited,
    state: Mutex<State>,
    /// Whoever runs the scope.
    news: AtomicWaker,
}

struct State {
    over: bool,
    /// Spawned, and not seen yet by whoever runs the scope.
    fresh: Vec<Ref<dyn AnyControl>>,
    grace: Duration,
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("over", &self.shared.state.lock().over).finish_non_exhaustive()
    }
}

impl Scope {
    /// Spawns a child that inherits what the process has to pass on whose scope this is.
    ///
    /// If it is refused the handle says so, [`Exit::Refused`]; in a scope that is over that is always so. A child that was
    /// refused has failed, as any other that ends in error.
    pub fn spawn<N, F, Fut>(&self, body: F) -> JoinHandle<Output<Fut>, N>
    where
        N: Send + 'static,
        F: Body<N, Fut>,
        Fut: BodyFuture,
    {
        let builder = self.process();
        if self.shared.state.lock().over {
            return builder.refuse(SpawnRefusal::ScopeOver, body);
        }
        self.adopt(builder.spawn_or_refuse(body))
    }

    /// Spawns a child with options, as they are made by `build`: `scope.spawn_with(|process| process.name("one"), body)`.
    ///
    /// # Errors
    /// The body and why it was refused. That is no failure of the scope.
    pub fn spawn_with<N, F, Fut>(
        &self,
        build: impl FnOnce(ProcessBuilder) -> ProcessBuilder,
        body: F,
    ) -> Result<JoinHandle<Output<Fut>, N>, SpawnError<F>>
    where
        N: Send + 'static,
        F: Body<N, Fut>,
        Fut: BodyFuture,
    {
        if self.shared.state.lock().over {
            return Err(SpawnError::new(SpawnRefusal::ScopeOver, body));
        }
        build(self.process()).spawn(body).map(|handle| self.adopt(handle))
    }

    /// How long children may take to end when they are cancelled, before they are killed (1 s).
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
            // It ended while the child was being spawned.
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

/// A child, until it has ended. Dropped before, it is killed.
struct Child {
    control: Ref<dyn AnyControl>,
    ended: Ended,
}

impl Future for Child {
    type Output = Exit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Exit> {
        Pin::new(&mut self.ended).poll(cx)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.control.kill();
    }
}

pin_project! {
    /// A scope that runs.
    struct Run<T, Fut> {
        #[pin]
        body: Option<Fut>,
        own: Ref<dyn AnyControl>,
        // Until the process is cancelled; the children are told then.
        cancelled: Option<Cancelled>,
        children: FuturesUnordered<Child>,
        // What the body returned, or the first error.
        outcome: Option<Result<T, Exit>>,
        shared: Arc<Shared>,
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
    /// The first error ends the body and the others.
    fn fail(mut self: Pin<&mut Self>, exit: Exit) {
        let mut this = self.as_mut().project();
        if matches!(this.outcome, Some(Err(_))) {
            return;
        }
        *this.outcome = Some(Err(exit));
        this.body.set(None);
        let host = &this.shared.host;
        let deadline = host.now() + this.shared.state.lock().grace;
        for child in &*this.children {
            host.cancel_until(&child.control, Reason::PARENT, deadline);
        }
    }

    /// Whether the process is being told to end by what it inherited, and its children with it.
    fn is_at_end(&self) -> bool {
        let inherited = &self.shared.inherited;
        inherited.is_at_end(self.shared.host.now())
    }

    /// Takes over who was spawned. True if somebody was.
    fn adopt(self: Pin<&mut Self>) -> bool {
        let this = self.project();
        let (fresh, grace) = {
            let mut state = this.shared.state.lock();
            (std::mem::take(&mut state.fresh), state.grace)
        };
        let any = !fresh.is_empty();
        for control in fresh {
            if matches!(this.outcome, Some(Err(_))) {
                let host = &this.shared.host;
                host.cancel_until(&control, Reason::PARENT, host.now() + grace);
            } else if let (None, Some((reason, deadline))) = (&this.cancelled, this.own.head().cancel()) {
                this.shared.host.cancel_until(&control, reason, deadline);
            }
            let ended = Ended::new(Some(control.clone()));
            this.children.push(Child { control, ended });
        }
        any
    }

    /// Hands on that the process was cancelled, before it can act on it itself.
    fn hand_on_cancel(self: Pin<&mut Self>, cx: &mut Cx<'_>) {
        let this = self.project();
        let Some(cancelled) = this.cancelled else { return };
        let Poll::Ready(_) = Pin::new(cancelled).poll(cx) else { return };
        *this.cancelled = None;
        if let Some((reason, deadline)) = this.own.head().cancel() {
            for child in &*this.children {
                this.shared.host.cancel_until(&child.control, reason.clone(), deadline);
            }
        }
    }
}

impl<T: Send + 'static, Fut: Future<Output: Outcome<Output = T>>> Future for Run<T, Fut> {
    type Output = Result<T, Exit>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        self.shared.news.register(cx.waker());
        loop {
            self.as_mut().adopt();
            self.as_mut().hand_on_cancel(cx);
            while let Poll::Ready(Some(exit)) = self.as_mut().project().children.poll_next_unpin(cx) {
                // Children that end because all of this is to end are no failure of theirs. By a deadline, or a token,
                // they may have been told first.
                let expected = matches!(exit, Exit::Cancelled(_)) && (self.cancelled.is_none() || self.is_at_end());
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
            if self.as_mut().adopt() {
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

impl<M: Send + 'static> Me<M> {
    /// Runs a body with children that can't outlive it: it resolves when the body is done and all of them have ended, to
    /// what the body returned.
    ///
    /// The first child that ends other than normally, and a body that fails, end all of it: the body is dropped where it
    /// is, the other children are cancelled ([`Reason::PARENT`]) and killed after their [grace](Scope::grace), and when
    /// they are gone the scope fails with that first error. When the process is cancelled its children are too, with the
    /// same reason and deadline; the body goes on, and hears of it as always.
    ///
    /// # Errors
    /// The first error.
    ///
    /// # Cancel safety
    /// Dropped, it kills the children, as the end of its process does; it can't wait for them then.
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
        Fut: Future<Output: Outcome<Output = T>>,
    {
        let own = self.any();
        let state = State { over: false, fresh: Vec::new(), grace: Duration::from_secs(1) };
        let shared = Arc::new(Shared {
            host: self.host().clone(),
            inherited: own.head().inherited().clone(),
            state: Mutex::new(state),
            news: AtomicWaker::new(),
        });
        let body = f(Scope { shared: Arc::clone(&shared) });
        let cancelled = Some(Cancelled::new(own.clone()));
        Run { body: Some(body), own, cancelled, children: FuturesUnordered::new(), outcome: None, shared }.await
    }
}

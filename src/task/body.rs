//! Async functions as processes: what a body may be and may return, and the machine that polls it.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

use futures::FutureExt;
use futures::future::BoxFuture;
use pin_project_lite::pin_project;

use crate::context::Context;
use crate::context::mailbox::Mailbox;
use crate::context::me::Me;
use crate::context::step::{Events, Next, Process, Start, StepOutput};
use crate::host::control::Control;
use crate::platform::sync::Mutex;
use crate::process::error::InitError;
use crate::process::exit::{BoxError, Exit};
use crate::process::payload::Payload;
use crate::process::state::Ref;
use crate::process::state::current::Current;
use crate::process::state::upgrade_request;
use crate::task::{Entry, Machine};

/// What can be spawned as a process: `async fn(Context<M>)`, `|ctx| body(ctx, 1)`, `async move |ctx: Context<M>| …`.
pub trait Body<M: Send + 'static, Fut>: FnOnce(Context<M>) -> Fut + Send + 'static {}
impl<M: Send + 'static, Fut, F: FnOnce(Context<M>) -> Fut + Send + 'static> Body<M, Fut> for F {}

/// A body's future: `Send`, and ending in an [`Outcome`].
pub trait BodyFuture: Future<Output: Outcome> + Send + 'static {}
impl<Fut: Future<Output: Outcome> + Send + 'static> BodyFuture for Fut {}

/// What joining a body with this future gives.
pub type Output<Fut> = <<Fut as Future>::Output as Outcome>::Output;

/// What a body may return: `()`, or `Result<T, E>` for any `E` that converts into a boxed error. An [`Exit`] inside the
/// error is found again, so that `?` carries a cancel through `anyhow` or an error of your own.
#[diagnostic::on_unimplemented(
    message = "a process ends with `()` or a `Result`, not with `{Self}`",
    note = "return `Ok::<_, procession::Exit>(…)` where it can't fail"
)]
pub trait Outcome {
    /// What joining gives.
    type Output: Send + 'static;
    /// As a result.
    ///
    /// # Errors
    /// How the process ends instead.
    fn into_result(self) -> Result<Self::Output, Exit>;
}

impl Outcome for () {
    type Output = ();
    fn into_result(self) -> Result<(), Exit> {
        Ok(())
    }
}

impl<T: Send + 'static, E: Into<BoxError>> Outcome for Result<T, E> {
    type Output = T;
    fn into_result(self) -> Result<T, Exit> {
        self.map_err(Exit::failed)
    }
}

/// A body or a future of more bytes than this is boxed when it is spawned.
const LARGE: usize = 1024;

/// Whether a body is boxed before anything else is done with it, and its future when it is made. Without optimizations the
/// compiler copies a value for each function that it passes through: a body of 512 KiB must pass through few.
pub(crate) const fn is_large<F, Fut>() -> bool {
    size_of::<F>() > LARGE || size_of::<Fut>() > LARGE
}

/// What the future of a process is made from: a body, or a [`Large`] one.
pub(crate) trait Open<M: Send + 'static, Fut> {
    fn open(self, context: Context<M>) -> Fut;

    /// The name of the user's code.
    fn name() -> &'static str;
}

impl<M: Send + 'static, Fut, F: FnOnce(Context<M>) -> Fut> Open<M, Fut> for F {
    #[inline]
    fn open(self, context: Context<M>) -> Fut {
        self(context)
    }

    fn name() -> &'static str {
        std::any::type_name::<F>()
    }
}

/// A large body in a box, which boxes its future; or a large hand-written process.
pub(crate) struct Large<F>(pub(crate) Box<F>);

impl<M: Send + 'static, Fut, F: FnOnce(Context<M>) -> Fut> Open<M, Pin<Box<Fut>>> for Large<F> {
    fn open(self, context: Context<M>) -> Pin<Box<Fut>> {
        // `Box<F>` passes the body on where it is.
        Box::into_pin(Box::new((self.0)(context)))
    }

    fn name() -> &'static str {
        std::any::type_name::<F>()
    }
}

/// Gives back the body that something was made from, in a box: in the one that it is in already, if it is.
pub(crate) trait Whole<F> {
    fn whole(self) -> Box<F>;
}

impl<F> Whole<F> for F {
    fn whole(self) -> Box<F> {
        Box::new(self)
    }
}

impl<F> Whole<F> for Large<F> {
    fn whole(self) -> Box<F> {
        self.0
    }
}

impl<Q: Process> Process for Large<Q> {
    type Message = Q::Message;
    type Output = Q::Output;

    fn init(&mut self, start: Start<'_>) -> Result<(), InitError> {
        self.0.init(start)
    }

    fn step(
        &mut self,
        events: Events<'_, Q::Message>,
        out: &mut StepOutput<'_, Q::Message>,
    ) -> Result<Next<Q::Output>, Exit> {
        self.0.step(events, out)
    }

    fn close(&mut self) {
        self.0.close();
    }
}

/// As [`with_machine`], of a hand-written process.
macro_rules! with_process {
    ($Q:ty, $process:ident, $entry:expr, |$machine:ident| $then:expr) => {{
        if const { $crate::task::body::is_large::<$Q, ()>() } {
            let $machine = $crate::task::Raw::new($crate::task::body::Large(Box::new($process)), $entry);
            $then
        } else {
            let $machine = $crate::task::Raw::new($process, $entry);
            $then
        }
    }};
}
pub(crate) use with_process;

/// Evaluates `$then` with the machine of a body: `AsyncBody` of the body itself, or of the boxed body if it is large. The
/// types are those of the messages, the body and its future.
macro_rules! with_machine {
    ($N:ty, $F:ty, $Fut:ty, $body:ident, $entry:expr, |$machine:ident| $then:expr) => {{
        if const { $crate::task::body::is_large::<$F, $Fut>() } {
            let large = $crate::task::body::Large(Box::new($body));
            let $machine = $crate::task::body::AsyncBody::<$N, _, std::pin::Pin<Box<$Fut>>>::new(large, $entry);
            $then
        } else {
            let $machine = $crate::task::body::AsyncBody::<$N, $F, $Fut>::new($body, $entry);
            $then
        }
    }};
}
pub(crate) use with_machine;

/// What is polled in the place of a body that was replaced.
type Successor<Fut> = upgrade_request::Future<Output<Fut>>;

pin_project! {
    /// Where a body is in its life.
    #[project = BodyProjection]
    pub(crate) enum AsyncBody<M, F, Fut>
    where
        M: Send,
        M: 'static,
        Fut: Future,
        Fut::Output: Outcome,
    {
        Unstarted { body: Option<F>, entry: Option<Box<Entry>>, own: Option<Ref<Control<M>>> },
        Running { #[pin] future: Fut },
        Upgraded { future: Successor<Fut> },
        Gone,
    }
}

/// What became of a body that has returned from a poll and wanted something.
enum Settled {
    /// It is to be polled again at once, for an answer.
    Asked,
    /// Another one is in its place. That one is polled again, for a waker, where so far it had a combinator's; and in a turn
    /// of its own, so that code that is replaced without end lets others run, and can be killed.
    Replaced,
    /// It has ended, and wants nothing any more.
    Ended,
}

/// Does what a body wants that has returned from a poll, by `put` if that is to be replaced.
#[cold]
fn settle<T: 'static>(
    current: &Current,
    polled: &Poll<Result<T, Exit>>,
    put: impl FnOnce(upgrade_request::Future<T>),
) -> Settled {
    if polled.is_ready() {
        current.upgrade.forget();
        return Settled::Ended;
    }
    match current.upgrade.settle() {
        None => Settled::Asked,
        Some(next) => {
            put(next);
            Settled::Replaced
        }
    }
}

impl<M: Send + 'static, F, Fut: Future<Output: Outcome>> AsyncBody<M, F, Fut> {
    pub(crate) fn new(body: F, entry: Option<Box<Entry>>) -> Self {
        Self::Unstarted { body: Some(body), entry, own: None }
    }

    pub(crate) fn into_inner(self) -> Option<F> {
        match self {
            Self::Unstarted { body, .. } => body,
            _ => None,
        }
    }
}

impl<M, F, Fut> Machine for AsyncBody<M, F, Fut>
where
    M: Send + 'static,
    F: Open<M, Fut>,
    Fut: Future<Output: Outcome>,
{
    type Message = M;
    type Output = Output<Fut>;

    const KEEPS_ITSELF: bool = true;

    fn name() -> &'static str {
        F::name()
    }

    #[inline]
    fn keep(self: Pin<&mut Self>, reference: Ref<Control<M>>) {
        if let BodyProjection::Unstarted { own, .. } = self.project() {
            *own = Some(reference);
        }
    }

    fn is_fresh(&self) -> bool {
        matches!(self, Self::Unstarted { .. })
    }

    /// A body has one entry, and takes no input but what it captured.
    #[inline]
    fn init(self: Pin<&mut Self>, _: &Me<M>) -> Result<(), InitError> {
        if let BodyProjection::Unstarted { entry, .. } = self.project()
            && let Some(entry) = entry.take()
            && !entry.method.is_empty()
        {
            return Err(InitError::UnknownMethod { method: entry.method.into_owned(), known: Vec::new() });
        }
        Ok(())
    }

    #[inline]
    fn step(
        mut self: Pin<&mut Self>,
        current: &Current,
        me: &Me<M>,
        cx: &mut std::task::Context<'_>,
    ) -> Result<Next<Self::Output>, Exit> {
        if let BodyProjection::Unstarted { body, own, .. } = self.as_mut().project()
            && let Some(body) = body.take()
        {
            let future = body.open(Context::new(own.take().unwrap_or_else(|| me.control().clone())));
            self.set(Self::Running { future });
        }
        loop {
            let polled = match self.as_mut().project() {
                BodyProjection::Running { future } => future.poll(cx).map(Outcome::into_result),
                BodyProjection::Upgraded { future } => future.as_mut().poll(cx),
                _ => unreachable!("a body is not stepped after its end"),
            };
            if current.upgrade.is_pending() {
                match settle(current, &polled, |future| self.set(Self::Upgraded { future })) {
                    Settled::Asked => continue,
                    Settled::Replaced => return Ok(Next::Again),
                    Settled::Ended => {}
                }
            }
            return match polled {
                Poll::Pending => Ok(Next::Wait),
                Poll::Ready(result) => result.map(Next::Done),
            };
        }
    }

    fn close(self: Pin<&mut Self>) {}

    fn clear(mut self: Pin<&mut Self>, _: &Me<M>) {
        self.set(Self::Gone);
    }

    fn is_gone(&self) -> bool {
        matches!(self, Self::Gone)
    }
}

type MethodBody<M, T> = Mutex<Box<dyn FnOnce(Context<M>, Payload) -> BoxFuture<'static, Result<T, Exit>> + Send>>;

struct Method<M: Send + 'static, T> {
    body: MethodBody<M, T>,
    input: TypeId,
    input_name: &'static str,
}

/// Async entry points under names: one process that can be started in several ways.
///
/// A hand-written process may delegate its steps to `Methods`. From the first of these steps on, the context of the entry
/// point is the receiver of the process's [`Mailbox`]. If the process then reads its [`Events`] itself, it is the receiver
/// again, and the context's `receive` fails.
///
/// An unknown method, or an input of another type than the entry point's, is an [`InitError`] that says which there
/// are.
///
/// ```
/// use procession::{Context, Exit, Methods, Runtime};
///
/// async fn serve(_: Context, port: u16) -> Result<u32, Exit> { Ok(u32::from(port)) }
/// async fn migrate(_: Context, from: u32) -> Result<u32, Exit> { Ok(from + 1) }
/// let app = || Methods::new().method("serve", serve).method("migrate", migrate);
///
/// let rt = Runtime::new()?;
/// assert_eq!(rt.block_on(rt.execute(app(), "migrate", 3_u32))?, 4);
/// let error = rt.block_on(rt.execute(app(), "burn", ())).unwrap_err();
/// assert!(error.to_string().contains("burn") && error.to_string().contains("migrate"));
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub struct Methods<M: Send + 'static, T> {
    entries: BTreeMap<&'static str, Method<M, T>>,
    chosen: Option<(MethodBody<M, T>, Payload)>,
    // Locks that are never taken: they make `Methods` as `Sync` as an error that carries it back has to be.
    future: Option<Mutex<BoxFuture<'static, Result<T, Exit>>>>,
}

impl<M: Send + 'static, T> fmt::Debug for Methods<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Methods").field("known", &self.entries.keys()).finish()
    }
}

impl<M: Send + 'static, T: Send + 'static> Default for Methods<M, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Send + 'static, T: Send + 'static> Methods<M, T> {
    /// No entry point yet.
    pub fn new() -> Self {
        Self { entries: BTreeMap::new(), chosen: None, future: None }
    }

    /// An entry point more; of two with the same name the last holds.
    #[must_use]
    pub fn method<I, F, Fut>(mut self, name: &'static str, body: F) -> Self
    where
        I: Send + 'static,
        F: FnOnce(Context<M>, I) -> Fut + Send + 'static,
        Fut: Future<Output: Outcome<Output = T>> + Send + 'static,
    {
        let run = move |context, input: Payload| {
            let input = input.downcast::<I>().unwrap_or_else(|_| unreachable!("`init` compared the types"));
            body(context, input).map(Outcome::into_result).boxed()
        };
        let entry = Method {
            body: Mutex::new(Box::new(run)),
            input: TypeId::of::<I>(),
            input_name: std::any::type_name::<I>(),
        };
        self.entries.insert(name, entry);
        self
    }
}

impl<M: Send + 'static, T: Send + 'static> Process for Methods<M, T> {
    type Message = M;
    type Output = T;

    fn init(&mut self, start: Start<'_>) -> Result<(), InitError> {
        let Some(entry) = self.entries.remove(start.method) else {
            return Err(InitError::UnknownMethod {
                method: start.method.to_owned(),
                known: self.entries.keys().copied().collect(),
            });
        };
        if entry.input != start.input.type_id() && entry.input != TypeId::of::<Payload>() {
            return Err(InitError::WrongInput {
                method: start.method.to_owned(),
                expected: entry.input_name,
                found: start.input.type_name(),
            });
        }
        self.chosen = Some((entry.body, start.input));
        Ok(())
    }

    fn step(&mut self, events: Events<'_, M>, out: &mut StepOutput<'_, M>) -> Result<Next<T>, Exit> {
        // Its bodies read the mailbox themselves.
        if let Some((body, input)) = self.chosen.take() {
            assert!(events.are_of(out.control()), "the events and the output of a step belong to one process");
            let front = events.hand_over().expect("a step is delegated in the turn of its process");
            let mailbox = Mailbox::with(out.control().clone(), front);
            let future = body.into_inner()(Context::of(mailbox), input);
            self.future = Some(Mutex::new(future));
        } else {
            events.leave();
        }
        let future = self.future.as_mut().expect("init chose an entry").get_mut();
        loop {
            let polled = future.as_mut().poll(&mut std::task::Context::from_waker(out.waker()));
            if Current::with(|current| current.upgrade.is_pending()) {
                match Current::with(|current| settle(current, &polled, |next| *future = next)) {
                    Settled::Asked => continue,
                    Settled::Replaced => return Ok(Next::Again),
                    Settled::Ended => {}
                }
            }
            return match polled {
                Poll::Pending => Ok(Next::Wait),
                Poll::Ready(result) => result.map(Next::Done),
            };
        }
    }
}

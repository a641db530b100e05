//! Async functions as processes. This module defines the trait of bodies, the trait of their results, the machine that
//! polls a body, and [`EntryPoints`]. The module `task` implements the turn and the exit of a process.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

use futures::FutureExt;
use futures::future::BoxFuture;
use pin_project_lite::pin_project;

use crate::context::Context;
use crate::context::mailbox::Mailbox;
use crate::context::me::SelfHandle;
use crate::context::step::{Events, Next, Process, Start, StepOutput};
use crate::host::control::Control;
use crate::platform::sync::Mutex;
use crate::process::error::InitError;
use crate::process::exit::{BoxError, Exit};
use crate::process::payload::Payload;
use crate::process::state::Ref;
use crate::process::state::current::Current;
use crate::process::state::upgrade_request;
use crate::task::{Entry, Machine, Progress};

/// A function that a process runs. The function is an async function, an async closure, or a closure that returns a
/// future. Its only argument is a [`Context`]. `M` is the type of the messages. Every function of this form implements
/// `Body`, and no other type can implement `Body`.
///
/// A body returns `()` or `Result<T, E>`. `E` can be any type that converts into a boxed error. If the error is an
/// [`Exit`], or if its chain of sources contains an [`Exit`], the process ends with this [`Exit`]: see
/// [`Exit::failed`]. Therefore, if a cancelled operation returns an error and the body returns this error with `?`, the
/// process ends as cancelled. This rule also applies if `anyhow` or an error type of the application wraps the error.
/// If a body never returns, its return type is `!`. If a body returns only errors, its return type is
/// `Result<Infallible, E>`, with [`std::convert::Infallible`].
///
/// The function and its future must be `Send`, because different workers may poll the process. The function and its
/// future must not borrow from the caller. [`LocalSet::spawn`](crate::LocalSet::spawn) takes a body that is not `Send`.
///
/// ```
/// use procession::{Body, Context, Exit, Host, JoinHandle, Runtime};
/// use std::convert::Infallible;
///
/// async fn add(_: Context, a: u64, b: u64) -> Result<u64, Exit> {
///     Ok(a + b)
/// }
/// async fn print_all(mut ctx: Context<String>) -> Result<Infallible, Exit> {
///     loop {
///         println!("{}", ctx.receive().await?);
///     }
/// }
/// async fn heartbeat(ctx: Context) -> ! {
///     loop {
///         ctx.sleep(std::time::Duration::from_secs(1)).await;
///     }
/// }
/// // A function of the application that spawns any body.
/// fn spawn_and_log<M: Send + 'static, F: Body<M>>(host: &Host, name: &str, body: F) -> JoinHandle<F::Value, M> {
///     let handle = host.spawn(body);
///     println!("{name} is {}", handle.pid());
///     handle
/// }
/// let rt = Runtime::new()?;
/// rt.spawn(print_all);
/// rt.spawn(heartbeat);
/// let three = rt.spawn(|ctx| add(ctx, 1, 2));
/// let four = spawn_and_log(&rt, "four", async |_: Context| Ok::<_, Exit>(4));
/// assert_eq!(rt.block_on(three)? + rt.block_on(four)?, 7);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
// The functions that spawn a body also have the bounds `FnOnce(Context<M>) -> Fut` and `Fut: Future`. From these two
// bounds, the compiler infers the argument type of an async closure. From the trait alone, the compiler cannot infer
// the argument type, because the future is an associated type of the trait. If a caller passes a value that is not a
// body, the compiler reports which bound the value does not satisfy. For example, the value is not `Send`, or the value
// takes no argument. If the trait defined an error message, this message would replace the report. Therefore the trait
// defines no error message.
pub trait Body<M: Send + 'static>: FnOnce(Context<M>) -> <Self as Body<M>>::Future + Send + 'static {
    /// Future that the function returns.
    type Future: Future<Output: ProcessOutput<Output = Self::Value>> + Send + 'static;

    /// Type of the result that the join handle returns. For a body that returns `Result<T, E>`, the type is `T`.
    type Value: Send + 'static;
}

impl<M, F, Fut> Body<M> for F
where
    M: Send + 'static,
    F: FnOnce(Context<M>) -> Fut + Send + 'static,
    Fut: Future<Output: ProcessOutput> + Send + 'static,
{
    type Future = Fut;
    type Value = Output<Fut>;
}

/// Type of the result that a join handle returns. The future of the body has the type `Fut`.
pub(crate) type Output<Fut> = <<Fut as Future>::Output as ProcessOutput>::Output;

/// Return type of a body: see [`Body`]. This trait also applies to other kinds of bodies, namely a body with an input,
/// a body that is not `Send`, and a scenario of a simulation. Users can neither name nor implement this trait.
#[diagnostic::on_unimplemented(
    message = "a process cannot end with `{Self}`",
    label = "this body does not return `()`, `!` or `Result<T, E>`",
    note = "return `Ok::<_, procession::Exit>(…)` if the body cannot fail",
    note = "a body that never returns is declared `-> !`"
)]
pub trait ProcessOutput {
    /// Type of the result that the join handle returns.
    type Output: Send + 'static;
    /// Converts the return value of the body into a result.
    fn into_result(self) -> Result<Self::Output, Exit>;
}

impl ProcessOutput for () {
    type Output = ();
    fn into_result(self) -> Result<(), Exit> {
        Ok(())
    }
}

impl<T: Send + 'static, E: Into<BoxError>> ProcessOutput for Result<T, E> {
    type Output = T;
    fn into_result(self) -> Result<T, Exit> {
        self.map_err(Exit::failed)
    }
}

// There is no implementation for `Infallible` itself. The standard library plans to make `Infallible` an alias of `!`,
// and the two implementations would then overlap.
impl ProcessOutput for never::Never {
    type Output = Infallible;
    fn into_result(self) -> Result<Infallible, Exit> {
        match self {}
    }
}

/// The type `!`. Stable Rust accepts `!` only as a return type. Therefore, this module extracts `!` from the type of a
/// function. The crate `bevy_ecs` uses the same method.
mod never {
    pub trait ReturnType {
        type Type;
    }

    impl<T> ReturnType for fn() -> T {
        type Type = T;
    }

    pub(super) type Never = <fn() -> ! as ReturnType>::Type;
}

/// Size in bytes. If a body or its future is larger than this size, both are boxed.
const LARGE: usize = 1024;

/// Returns whether a body is large. A spawn boxes a large body before any other operation. The future of a large body
/// is boxed when the future is created. Without optimizations, each function call copies the values that are passed to
/// the function. If a body of 512 KiB were passed through many functions, the copies could overflow the stack.
pub(crate) const fn is_large<F, Fut>() -> bool {
    size_of::<F>() > LARGE || size_of::<Fut>() > LARGE
}

/// The code that creates the future of a process: a body, or a boxed body ([`Large`]).
pub(crate) trait Open<M: Send + 'static, Fut> {
    fn open(self, context: Context<M>) -> Fut;

    /// Returns the type name of the user's code.
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

/// Box for a large body or a large hand-written process. The future of a large body is also boxed.
pub(crate) struct Large<F>(pub(crate) Box<F>);

impl<M: Send + 'static, Fut, F: FnOnce(Context<M>) -> Fut> Open<M, Pin<Box<Fut>>> for Large<F> {
    fn open(self, context: Context<M>) -> Pin<Box<Fut>> {
        // A call of a `Box<F>` does not copy the body out of the box.
        Box::into_pin(Box::new((self.0)(context)))
    }

    fn name() -> &'static str {
        std::any::type_name::<F>()
    }
}

/// Puts the body of a machine into a `Box`. If the body is already in a `Box`, returns this `Box`.
pub(crate) trait IntoBox<F> {
    fn into_box(self) -> Box<F>;
}

impl<F> IntoBox<F> for F {
    fn into_box(self) -> Box<F> {
        Box::new(self)
    }
}

impl<F> IntoBox<F> for Large<F> {
    fn into_box(self) -> Box<F> {
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

/// Evaluates `$then` with the machine of a hand-written process. The macro [`with_machine`] evaluates `$then` with the
/// machine of a body.
macro_rules! with_process {
    ($Q:ty, $process:ident, $entry:expr, |$machine:ident| $then:expr) => {{
        if const { $crate::task::body::is_large::<$Q, ()>() } {
            let $machine = $crate::task::hand_written::Raw::new($crate::task::body::Large(Box::new($process)), $entry);
            $then
        } else {
            let $machine = $crate::task::hand_written::Raw::new($process, $entry);
            $then
        }
    }};
}
pub(crate) use with_process;

/// Evaluates `$then` with the machine of a body. If the body is large, the machine contains the body in a box. The
/// three type arguments are the message type, the type of the body, and the type of the future.
macro_rules! with_machine {
    ($N:ty, $F:ty, $Fut:ty, $body:ident, $entry:expr, |$machine:ident| $then:expr) => {{
        if const { $crate::task::body::is_large::<$F, $Fut>() } {
            let $machine = $crate::task::body::machine_of_large::<$N, $F>(Box::new($body), $entry);
            $then
        } else {
            let $machine = $crate::task::body::machine_of::<$N, $F>($body, $entry);
            $then
        }
    }};
}
pub(crate) use with_machine;

/// Does the same as [`with_machine`], for a body that need not be `Send`.
macro_rules! with_local_machine {
    ($N:ty, $F:ty, $Fut:ty, $body:ident, |$machine:ident| $then:expr) => {{
        if const { $crate::task::body::is_large::<$F, $Fut>() } {
            let large = $crate::task::body::Large(Box::new($body));
            let $machine = $crate::task::body::AsyncBody::<$N, _, std::pin::Pin<Box<$Fut>>>::new(large, None);
            $then
        } else {
            let $machine = $crate::task::body::AsyncBody::<$N, $F, $Fut>::new($body, None);
            $then
        }
    }};
}
pub(crate) use with_local_machine;

/// Machine of the body `F`.
pub(crate) trait BodyMachine<F>: Machine + Send + 'static {
    /// Returns the body of a machine. The machine must not have run.
    fn into_body(self) -> Box<F>;
}

impl<M, F, B, Fut> BodyMachine<F> for AsyncBody<M, B, Fut>
where
    M: Send + 'static,
    B: Open<M, Fut> + IntoBox<F> + Send + 'static,
    Fut: Future<Output: ProcessOutput> + Send + 'static,
{
    fn into_body(self) -> Box<F> {
        match self {
            Self::Unstarted { body: Some(body), .. } => body.into_box(),
            _ => unreachable!("it never ran"),
        }
    }
}

/// Creates the machine of a small body. A small body is cheap to move. The return type is opaque and does not name the
/// type of the future. If the type of the future were a type parameter of the caller, the compiler could not prove that
/// the output of the future is a [`ProcessOutput`].
#[inline]
pub(crate) fn machine_of<M: Send + 'static, F: Body<M>>(
    body: F,
    entry: Option<Box<Entry>>,
) -> impl BodyMachine<F, Message = M, Output = F::Value> {
    AsyncBody::<M, F, F::Future>::new(body, entry)
}

/// Creates the machine of a large body. For all other bodies, [`machine_of`] creates the machine.
pub(crate) fn machine_of_large<M: Send + 'static, F: Body<M>>(
    body: Box<F>,
    entry: Option<Box<Entry>>,
) -> impl BodyMachine<F, Message = M, Output = F::Value> {
    AsyncBody::<M, Large<F>, Pin<Box<F::Future>>>::new(Large(body), entry)
}

/// Future of the new code that replaces a body in an upgrade.
type Successor<Fut> = upgrade_request::Future<Output<Fut>>;

pin_project! {
    /// Stage of the life cycle of a body.
    #[project = BodyProjection]
    pub(crate) enum AsyncBody<M, F, Fut>
    where
        M: Send,
        M: 'static,
        Fut: Future,
        Fut::Output: ProcessOutput,
    {
        Unstarted { body: Option<F>, entry: Option<Box<Entry>>, own: Option<Ref<Control<M>>> },
        Running { #[pin] future: Fut },
        Upgraded { future: Successor<Fut> },
        Gone,
    }
}

/// Result of [`settle`].
enum Settled<T> {
    /// The body has asked its task for the result type of the process. The body is polled again immediately, and then
    /// reads the reply.
    Asked,
    /// Another future has replaced the body. The caller stores the new future. It is possible that all earlier polls of
    /// the new future used the waker of a combinator. Therefore, the task polls the new future again, with the waker of
    /// the task. This poll is in another turn, so that other processes can run between two replacements, and a body
    /// that replaces itself endlessly can be killed.
    Replaced(upgrade_request::Future<T>),
    /// The body has ended, and the upgrade request of the body was dropped.
    Ended,
}

/// Processes the upgrade request that a body has made in a poll. If the body must be replaced, this function returns
/// the new future.
#[cold]
fn settle<T: 'static>(current: &Current, polled: &Poll<Result<T, Exit>>) -> Settled<T> {
    if polled.is_ready() {
        current.upgrade.forget();
        return Settled::Ended;
    }
    match current.upgrade.settle() {
        None => Settled::Asked,
        Some(next) => Settled::Replaced(next),
    }
}

/// Returns an error if `entry` contains the name of an entry point, because a body has only one entry point.
#[cold]
fn refuse_entry(entry: Option<Box<Entry>>) -> Result<(), InitError> {
    match entry {
        Some(entry) if !entry.name.is_empty() => {
            let Entry { name, input } = *entry;
            // The input is dropped before the error is created. If the drop panicked after the creation of the error,
            // the error would be leaked.
            drop(input);
            Err(InitError::UnknownEntry { entry: name.into_owned(), known: Vec::new() })
        }
        _ => Ok(()),
    }
}

impl<M: Send + 'static, F, Fut: Future<Output: ProcessOutput>> AsyncBody<M, F, Fut> {
    pub(crate) fn new(body: F, entry: Option<Box<Entry>>) -> Self {
        Self::Unstarted { body: Some(body), entry, own: None }
    }
}

impl<M, F, Fut> Machine for AsyncBody<M, F, Fut>
where
    M: Send + 'static,
    F: Open<M, Fut>,
    Fut: Future<Output: ProcessOutput>,
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

    #[inline]
    fn progress(self: Pin<&mut Self>) -> Progress {
        match self.project() {
            BodyProjection::Unstarted { entry: Some(_), .. } => Progress::NeedsInit,
            BodyProjection::Unstarted { .. } => Progress::Fresh,
            BodyProjection::Gone => Progress::Gone,
            _ => Progress::Begun,
        }
    }

    /// Returns an error if the spawn names an entry point, because a body has only one entry point. If the entry has an
    /// input, the input is dropped, because a body gets only its captured variables.
    #[inline]
    fn init(self: Pin<&mut Self>, _: &SelfHandle<M>) -> Result<(), InitError> {
        match self.project() {
            BodyProjection::Unstarted { entry: entry @ Some(_), .. } => refuse_entry(entry.take()),
            _ => Ok(()),
        }
    }

    #[inline]
    fn step(
        mut self: Pin<&mut Self>,
        current: &Current,
        me: &SelfHandle<M>,
        cx: &mut std::task::Context<'_>,
    ) -> Result<Next<Self::Output>, Exit> {
        if let BodyProjection::Unstarted { body, own, .. } = self.as_mut().project()
            && let Some(body) = body.take()
        {
            let own = match own.take() {
                Some(own) => own,
                None => me.control().clone(),
            };
            let future = body.open(Context::new(own));
            self.set(Self::Running { future });
        }
        loop {
            let polled = match self.as_mut().project() {
                BodyProjection::Running { future } => future.poll(cx).map(ProcessOutput::into_result),
                BodyProjection::Upgraded { future } => future.as_mut().poll(cx),
                _ => unreachable!("a body is not stepped after its end"),
            };
            if current.upgrade.is_pending() {
                match settle(current, &polled) {
                    Settled::Asked => continue,
                    Settled::Replaced(future) => {
                        self.set(Self::Upgraded { future });
                        return Ok(Next::Again);
                    }
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

    fn clear(mut self: Pin<&mut Self>, _: &SelfHandle<M>) {
        self.set(Self::Gone);
    }
}

type EntryBody<M, T> = Mutex<Box<dyn FnOnce(Context<M>, Payload) -> BoxFuture<'static, Result<T, Exit>> + Send>>;

struct EntryPoint<M: Send + 'static, T> {
    body: EntryBody<M, T>,
    input: TypeId,
    input_name: &'static str,
}

/// A process with several async entry points. The caller starts the process with the name of an entry point.
///
/// A hand-written process may delegate its `init` and its steps to `EntryPoints`. At the first delegated step, the
/// [`Mailbox`](crate::Mailbox) in the context of the entry point becomes the receiver of the process. If the
/// hand-written process later reads its [`Events`] itself, the hand-written process becomes the receiver again, and
/// `receive` of the context fails.
///
/// If the entry point is unknown, `init` fails with an [`InitError`] that lists the known entry points. If the input
/// has the wrong type, `init` fails with an [`InitError`] that contains the expected type.
///
/// The body of the entry point gets the events that the process has not read.
///
/// # Panics
/// A delegated step panics in these cases:
/// - No delegated `init` has succeeded before.
/// - An earlier delegated step has returned [`Next::Done`](crate::Next::Done) or an error.
/// - The step runs outside the turn of its process.
/// - The events and the output of the step belong to different processes.
///
/// ```
/// use procession::{Context, Exit, EntryPoints, Runtime};
///
/// async fn serve(_: Context, port: u16) -> Result<u32, Exit> { Ok(u32::from(port)) }
/// async fn migrate(_: Context, from: u32) -> Result<u32, Exit> { Ok(from + 1) }
/// let app = || EntryPoints::new().entry("serve", serve).entry("migrate", migrate);
///
/// let rt = Runtime::new()?;
/// assert_eq!(rt.block_on(rt.execute(app(), "migrate", 3_u32))?, 4);
/// let error = rt.block_on(rt.execute(app(), "burn", ())).unwrap_err();
/// assert!(error.to_string().contains("burn") && error.to_string().contains("migrate"));
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub struct EntryPoints<M: Send + 'static, T> {
    entries: BTreeMap<&'static str, EntryPoint<M, T>>,
    chosen: Option<(EntryBody<M, T>, Payload)>,
    // The mutexes of this type are never locked. The mutexes make `EntryPoints` `Sync`, because an error that contains
    // an `EntryPoints` must be `Sync`.
    future: Option<Mutex<BoxFuture<'static, Result<T, Exit>>>>,
    has_ended: bool,
}

impl<M: Send + 'static, T> fmt::Debug for EntryPoints<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntryPoints").field("known", &self.entries.keys()).finish()
    }
}

/// Panics because a step of `EntryPoints` is called incorrectly. `misuse` ends the sentence.
#[cold]
fn refuse_step<M: Send + 'static>(out: &StepOutput<'_, M>, misuse: &str) -> ! {
    panic!("the process {} calls `EntryPoints::step` {misuse}", out.control().head.pid())
}

impl<M: Send + 'static, T: Send + 'static> Default for EntryPoints<M, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Send + 'static, T: Send + 'static> EntryPoints<M, T> {
    /// Creates a process without entry points.
    pub fn new() -> Self {
        Self { entries: BTreeMap::new(), chosen: None, future: None, has_ended: false }
    }

    /// Adds an entry point. If two entry points have the same name, the second entry point replaces the first entry
    /// point.
    #[must_use]
    pub fn entry<I, F, Fut>(mut self, name: &'static str, body: F) -> Self
    where
        I: Send + 'static,
        F: FnOnce(Context<M>, I) -> Fut + Send + 'static,
        Fut: Future<Output: ProcessOutput<Output = T>> + Send + 'static,
    {
        let run = move |context, input: Payload| {
            let input = input.downcast::<I>().unwrap_or_else(|_| unreachable!("`init` compared the types"));
            body(context, input).map(ProcessOutput::into_result).boxed()
        };
        let entry = EntryPoint {
            body: Mutex::new(Box::new(run)),
            input: TypeId::of::<I>(),
            input_name: std::any::type_name::<I>(),
        };
        self.entries.insert(name, entry);
        self
    }
}

impl<M: Send + 'static, T: Send + 'static> Process for EntryPoints<M, T> {
    type Message = M;
    type Output = T;

    fn init(&mut self, start: Start<'_>) -> Result<(), InitError> {
        let Some(entry) = self.entries.get(start.entry) else {
            return Err(InitError::UnknownEntry {
                entry: start.entry.to_owned(),
                known: self.entries.keys().copied().collect(),
            });
        };
        if entry.input != start.input.type_id() && entry.input != TypeId::of::<Payload>() {
            return Err(InitError::WrongInput {
                entry: start.entry.to_owned(),
                expected: entry.input_name,
                found: start.input.type_name(),
            });
        }
        // The chosen entry point is removed only after the checks. Therefore, after an error, another call of `init`
        // can still choose any entry point.
        self.chosen = self.entries.remove(start.entry).map(|entry| (entry.body, start.input));
        Ok(())
    }

    fn step(&mut self, events: Events<'_, M>, out: &mut StepOutput<'_, M>) -> Result<Next<T>, Exit> {
        // The body of the entry point itself reads the mailbox. Therefore, this function does not read the events of
        // the step.
        if let Some((body, input)) = self.chosen.take() {
            if !events.are_of(out.control()) {
                refuse_step(out, "with the events of another process; pass on both arguments of `step`");
            }
            let Some(front) = events.hand_over() else {
                refuse_step(out, "outside the turn of this process; call it only in `Process::step`");
            };
            let mailbox = Mailbox::with(out.control().clone(), front);
            let future = body.into_inner()(Context::of(mailbox), input);
            self.future = Some(Mutex::new(future));
            self.has_ended = false;
        } else {
            events.leave();
        }
        let Some(future) = self.future.as_mut().map(Mutex::get_mut) else {
            refuse_step(
                out,
                "before a delegated `init` has succeeded; call `EntryPoints::init` in the `init` of the process",
            );
        };
        if self.has_ended {
            refuse_step(
                out,
                "after the entry point has returned; return the `Next::Done` or the error of the last step",
            );
        }
        loop {
            let polled = future.as_mut().poll(&mut std::task::Context::from_waker(out.waker()));
            let settled = Current::with(|current| current.upgrade.is_pending().then(|| settle(current, &polled)));
            match settled {
                Some(Settled::Asked) => continue,
                Some(Settled::Replaced(next)) => {
                    *future = next;
                    return Ok(Next::Again);
                }
                Some(Settled::Ended) | None => {}
            }
            return match polled {
                Poll::Pending => Ok(Next::Wait),
                Poll::Ready(result) => {
                    self.has_ended = true;
                    result.map(Next::Done)
                }
            };
        }
    }
}

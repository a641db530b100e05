//! Finds the handler of a command, and calls the handler. If the command is in the table of yields,
//! `Dispatcher::dispatch` calls the handler. If the command is an inline command, `Dispatcher::dispatch_inline` calls
//! the handler. For a [`NamedCommand`], the name of the command selects the handler. For any other command, the type of
//! the command selects the handler. The set of handlers does not change after the build of the runtime. Therefore the
//! table of handlers, in `table.rs`, has no lock.

pub(crate) mod attempt;
pub(crate) mod completion;
pub(crate) mod inline;
pub(crate) mod table;

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::marker::PhantomData;

use crate::host::control::AnyControl;
use crate::host::dispatch::completion::{Completion, UntypedCompletion};
use crate::host::dispatch::inline::{InlineCall, defer};
use crate::host::dispatch::table::{AnyHandler, ByName, Dispatcher, NamedHandler};
use crate::process::catch::drop_caught;
use crate::process::command::{Command, NamedCommand, Streamed, name_of};
use crate::process::error::BuildError;
use crate::process::event::Tag;
use crate::process::failure::Failure;
use crate::process::payload::Payload;
use crate::process::state::Ref;
use crate::process::state::current::Current;
use crate::process::state::inline_command::Number;

/// Handles the commands of one type. A handler may answer before `handle` returns, or later from any thread, or never.
/// If a handler may never answer a command, the process should set a time limit:
/// [`Perform::timeout`](crate::future::Perform::timeout).
///
/// A handler runs on the worker that ran the step of the process, and must not block this worker. With the module
/// [`handler`](crate::handler), a handler can run a future or a blocking function. Any closure
/// `Fn(C, Completion<C::Reply>)` is a handler. A layer is a handler that wraps another handler.
///
/// A completion holds a reference to a process. The process holds a reference to the runtime, and the runtime owns the
/// handlers. Therefore a handler that stores a completion forms a reference cycle. If this handler neither answers nor
/// drops the completion, the cycle is never freed, even after the drop of the runtime. A handler that stores
/// completions should remove each completion that [is cancelled](Completion::is_cancelled). When the runtime shuts
/// down, the handler should drop all its completions.
///
/// ```
/// use procession::{Command, Completion, Handler};
/// struct NextId;
/// impl Command for NextId { type Reply = u64; }
///
/// struct Ids(std::sync::atomic::AtomicU64);
/// impl Handler<NextId> for Ids {
///     fn handle(&self, _: NextId, completion: Completion<u64>) {
///         completion.complete(self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
///     }
/// }
/// let rt = procession::Runtime::builder().handler(Ids(0.into())).build()?;
/// let id = rt.spawn(async |ctx: procession::Context| ctx.perform(NextId).await);
/// assert_eq!(rt.block_on(id)?, 0);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub trait Handler<C: Command>: Send + Sync + 'static {
    /// Handles the command, and answers through `completion`, immediately or later. If this function holds completions
    /// and panics, the yields of these completions fail with [`Failure::Panicked`]. The panic has no other effect.
    fn handle(&self, command: C, completion: Completion<C::Reply>);
}

/// A handler that can answer an inline command of an async body before the turn ends. `handle_inline` has the same
/// effect as `handle`. `handle_inline` costs less: if the handler answers within the turn, the command usually does not
/// enter the table of yields.
pub(crate) trait InlineHandler<C: Command>: Handler<C> {
    fn handle_inline(&self, command: C, call: InlineCall<'_, C>);
}

/// A type-erased [`InlineHandler`]. From this type, [`Dispatcher::add`] finds out that a handler is an inline handler.
pub(crate) struct AnyInline<C: Command>(Box<dyn AnyInlineHandler<C>>);

impl<C: Command> AnyInline<C> {
    pub(crate) fn new(handler: impl InlineHandler<C>) -> Self {
        Self(Box::new(TypedInline(handler, PhantomData)))
    }
}

impl<C: Command> Handler<C> for AnyInline<C> {
    fn handle(&self, command: C, completion: Completion<C::Reply>) {
        self.0.handle_typed(command, completion);
    }
}

impl<C: Command, F> Handler<C> for F
where
    F: Fn(C, Completion<C::Reply>) + Send + Sync + 'static,
{
    fn handle(&self, command: C, completion: Completion<C::Reply>) {
        self(command, completion);
    }
}

/// Type-erased interface of the handler in an [`AnyInline`].
trait AnyInlineHandler<C: Command>: AnyHandler<dyn AnyControl> {
    fn handle_typed(&self, command: C, completion: Completion<C::Reply>);
}

struct Typed<C, H>(H, PhantomData<fn(C)>);

struct TypedInline<C, H>(H, PhantomData<fn(C)>);

/// Passes a command to the handler of the command's type.
fn pass_to_handler<C: Command>(
    handler: &impl Handler<C>,
    command: &mut Option<Payload>,
    to: Ref<dyn AnyControl>,
    tag: Tag,
) {
    match Payload::take::<C>(command) {
        Some(command) => handler.handle(command, Completion::new(UntypedCompletion::new(to, tag))),
        None => unreachable!("it was looked up by its type"),
    }
}

/// Takes the inline command out of this thread's state. Returns the command as the type that the handler expects.
#[inline(always)]
fn take_inline<C: Command>(current: &Current) -> Option<C> {
    match current.inline.take_command()?.downcast::<C>() {
        Ok(command) => Some(command),
        Err(command) => unreachable!("`{}` was looked up by its type", command.type_name()),
    }
}

impl<C: Command, H: Handler<C>> AnyHandler<dyn AnyControl> for Typed<C, H> {
    fn command_name(&self) -> &'static str {
        std::any::type_name::<C>()
    }

    fn handler_name(&self) -> &'static str {
        std::any::type_name::<H>()
    }

    fn handle(&self, command: &mut Option<Payload>, to: Ref<dyn AnyControl>, tag: Tag) {
        pass_to_handler(&self.0, command, to, tag);
    }

    fn handle_inline(&self, current: &Current, number: Number, process: &dyn Fn() -> Ref<dyn AnyControl>) {
        let Some(command) = take_inline::<C>(current) else { return };
        // The answer may arrive after the turn. Therefore the command moves to the table of yields before the handler
        // runs.
        if let Some(completion) = defer::<C>(number, process()) {
            let _ = completion::guarded(|| self.0.handle(command, completion));
        }
    }
}

impl<C: Command, H: InlineHandler<C>> AnyInlineHandler<C> for TypedInline<C, H> {
    fn handle_typed(&self, command: C, completion: Completion<C::Reply>) {
        self.0.handle(command, completion);
    }
}

impl<C: Command, H: InlineHandler<C>> AnyHandler<dyn AnyControl> for TypedInline<C, H> {
    fn command_name(&self) -> &'static str {
        std::any::type_name::<C>()
    }

    fn handler_name(&self) -> &'static str {
        std::any::type_name::<H>()
    }

    fn handle(&self, command: &mut Option<Payload>, to: Ref<dyn AnyControl>, tag: Tag) {
        pass_to_handler(&self.0, command, to, tag);
    }

    fn handle_inline(&self, current: &Current, number: Number, process: &dyn Fn() -> Ref<dyn AnyControl>) {
        let Some(command) = take_inline::<C>(current) else { return };
        self.0.handle_inline(command, InlineCall::new(number, process));
    }
}

impl<C: Command, H: Handler<C>> NamedHandler<C, dyn AnyControl> for Typed<C, H> {
    fn handle(&self, command: C, to: Ref<dyn AnyControl>, tag: Tag) {
        self.0.handle(command, Completion::new(UntypedCompletion::new(to, tag)));
    }
}

impl Dispatcher<dyn AnyControl> {
    /// Registers the handler of a command type.
    ///
    /// # Errors
    /// Returns an error if the type already has a handler. Also returns an error if the type is [`NamedCommand`] and at
    /// least one handler is registered for a name. The same rule applies to `Streamed<NamedCommand>` and the stream
    /// handlers.
    pub(crate) fn add<C: Command>(&mut self, handler: impl Handler<C>) -> Result<(), BuildError> {
        let mut handler = Some(handler);
        let inline = (&mut handler as &mut dyn Any).downcast_mut::<Option<AnyInline<C>>>().and_then(Option::take);
        let handler: Box<dyn AnyHandler<dyn AnyControl>> = match (inline, handler) {
            (Some(AnyInline(handler)), _) => handler,
            (None, Some(handler)) => Box::new(Typed(handler, PhantomData)),
            (None, None) => unreachable!("only an `AnyInline` was taken"),
        };
        let type_id = TypeId::of::<C>();
        let has_names = type_id == TypeId::of::<NamedCommand>() && !self.by_name.is_empty()
            || type_id == TypeId::of::<Streamed<NamedCommand>>() && !self.streams_by_name.is_empty();
        if has_names || !self.insert(type_id, handler) {
            return Err(BuildError::DuplicateHandler(name_of(std::any::type_name::<C>())));
        }
        Ok(())
    }

    /// Registers the handler of the commands with this name.
    ///
    /// # Errors
    /// Returns an error if the name already has a handler. Returns an error if the type [`NamedCommand`] has a handler,
    /// because the handler of the type would receive all named commands.
    pub(crate) fn add_named(
        &mut self,
        name: Cow<'static, str>,
        handler: impl Handler<NamedCommand>,
    ) -> Result<(), BuildError> {
        let former = self.by_name.insert(name.clone(), Box::new(Typed(handler, PhantomData)));
        if former.is_some() || self.of_type(TypeId::of::<NamedCommand>()).is_some() {
            return Err(BuildError::DuplicateHandler(name));
        }
        Ok(())
    }

    /// Registers the handler of the stream commands with this name.
    ///
    /// # Errors
    /// Returns an error if the name already has a stream handler, or if the type [`NamedCommand`] has a stream handler.
    pub(crate) fn add_named_stream(
        &mut self,
        name: Cow<'static, str>,
        handler: impl Handler<Streamed<NamedCommand>>,
    ) -> Result<(), BuildError> {
        let former = self.streams_by_name.insert(name.clone(), Box::new(Typed(handler, PhantomData)));
        if former.is_some() || self.of_type(TypeId::of::<Streamed<NamedCommand>>()).is_some() {
            return Err(BuildError::DuplicateHandler(name));
        }
        Ok(())
    }

    /// Calls the handler with this index for the inline command of this thread. The handler takes the command out of
    /// `current.inline`.
    ///
    /// An [`InlineHandler`] may store its answer in `current.inline`. In this case, this function returns true. For
    /// every other handler, the command moves to the table of yields.
    ///
    /// The command is not an argument, and the answer is not a return value. The moves of these two values would take
    /// more time than the run of most handlers.
    ///
    /// Without `always`, some builds do not inline this function. An inline command then takes 40 more instructions.
    #[inline(always)]
    pub(crate) fn dispatch_inline(
        &self,
        current: &Current,
        number: Number,
        handler: u32,
        process: &dyn Fn() -> Ref<dyn AnyControl>,
    ) -> bool {
        let Some(handler) = self.at(handler) else { unreachable!("`inline` returned this index") };
        if let Err(text) = completion::guarded_on(current, || handler.handle_inline(current, number, process)) {
            current.inline.answer(number, Err(Failure::Panicked(text)));
        }
        current.inline.is_answered()
    }

    /// Takes the command out of `command`, and passes the command to its handler. The command belongs to the yield
    /// `tag` of the process `to`. If the command has no handler, the yield fails. The failure contains the name of
    /// the command.
    #[inline]
    pub(crate) fn dispatch(&self, command: &mut Option<Payload>, to: Ref<dyn AnyControl>, tag: Tag) {
        if let Some(type_id) = command.as_ref().map(Payload::type_id)
            && let Some(handler) = self.of_type(type_id)
        {
            let _ = completion::guarded(|| handler.handle(command, to, tag));
            return;
        }
        self.dispatch_by_name(command, to, tag);
    }

    #[inline(never)]
    fn dispatch_by_name(&self, command: &mut Option<Payload>, to: Ref<dyn AnyControl>, tag: Tag) {
        if let Some(named) = Payload::take::<NamedCommand>(command) {
            return self.dispatch_named(&self.by_name, named, |named| &named.name, to, tag);
        }
        if let Some(named) = Payload::take::<Streamed<NamedCommand>>(command) {
            return self.dispatch_named(&self.streams_by_name, named, |named| &named.0.name, to, tag);
        }
        let name = name_of(command.as_ref().map_or("", Payload::type_name));
        let _ = drop_caught(command.take());
        UntypedCompletion::new(to, tag).finish(Err(self.no_handler(name)));
    }

    fn dispatch_named<C: Command>(
        &self,
        handlers: &ByName<C, dyn AnyControl>,
        command: C,
        name: impl Fn(&C) -> &Cow<'static, str>,
        to: Ref<dyn AnyControl>,
        tag: Tag,
    ) {
        match handlers.get(name(&command)) {
            Some(handler) => drop(completion::guarded(|| handler.handle(command, to, tag))),
            None => {
                let name = match TypeId::of::<C>() == TypeId::of::<NamedCommand>() {
                    true => name(&command).clone(),
                    false => format!("{}, as a stream", name(&command)).into(),
                };
                let _ = drop_caught(command);
                UntypedCompletion::new(to, tag).finish(Err(self.no_handler(name)));
            }
        }
    }
}

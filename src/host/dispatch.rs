//! Finds the handler of a command: by the type of the command, or by its name for [`NamedCommand`] commands. The set of
//! handlers does not change after the runtime is built. It is stored without a lock.

pub(crate) mod attempt;
pub(crate) mod completion;
pub(crate) mod inline;

use std::any::TypeId;
use std::borrow::Cow;
use std::collections::hash_map::Entry::Vacant;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::marker::PhantomData;

use crate::host::dispatch::completion::{Completion, UntypedCompletion};
use crate::host::dispatch::inline::InlineCall;
use crate::host::refs::ProcessRef;
use crate::process::catch::{catch, drop_caught};
use crate::process::command::{Command, NamedCommand, Streamed, name_of};
use crate::process::error::BuildError;
use crate::process::failure::Failure;
use crate::process::payload::Payload;
use crate::process::state::current::Current;
use crate::process::state::inline_command::Number;

/// Answers commands: before it returns, later from any thread, or never. For commands that may never be answered, the
/// process sets a deadline.
///
/// A handler runs on the worker that stepped the process, and must not block it. See [`handler`](crate::handler) for
/// handlers that are futures or that block. Any closure `Fn(C, Completion<C::Reply>)` is a handler. A layer is a
/// handler that wraps another handler.
///
/// A completion keeps its process in memory, the process keeps the runtime, and the runtime keeps its handlers.
/// Therefore a handler that stores completions, and neither answers nor drops them, leaks all of these, even after the
/// runtime was dropped. It should check [`is_cancelled`](Completion::is_cancelled) to remove a completion, or drop all
/// of them when the runtime shuts down.
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
    /// Handles the command, and answers through `completion`, now or later. A panic in this function fails the yields
    /// whose completions it held, with [`Failure::Panicked`]; it affects nothing else.
    fn handle(&self, command: C, completion: Completion<C::Reply>);

    /// Whether [`handle_inline`](Self::handle_inline) has the same effect as `handle` at a lower cost. If so, a command
    /// of an async body is handled inline.
    #[doc(hidden)]
    fn is_short(&self) -> bool {
        false
    }

    #[doc(hidden)]
    fn handle_inline(&self, command: C, call: InlineCall<'_, C>) {
        let _ = (command, call);
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

/// A handler behind a type-erased interface.
trait Erased: Send + Sync {
    /// Handles the command, and takes it out of `command`.
    fn handle(&self, command: &mut Option<Payload>, slip: UntypedCompletion);
    /// Handles the inline command of the thread.
    fn handle_inline(&self, current: &Current, number: Number, home: &dyn Fn() -> ProcessRef);
}

struct Typed<C, H>(H, PhantomData<fn(C)>);

impl<C: Command, H: Handler<C>> Erased for Typed<C, H> {
    fn handle(&self, command: &mut Option<Payload>, slip: UntypedCompletion) {
        match Payload::take::<C>(command) {
            Some(command) => self.0.handle(command, Completion::new(slip)),
            None => unreachable!("it was looked up by its type"),
        }
    }

    fn handle_inline(&self, current: &Current, number: Number, home: &dyn Fn() -> ProcessRef) {
        let Some(command) = current.inline.take_command() else { return };
        match command.downcast::<C>() {
            Ok(command) => self.0.handle_inline(command, InlineCall::new(number, home)),
            Err(command) => unreachable!("`{}` was looked up by its type", command.type_name()),
        }
    }
}

/// Hasher for `TypeId`, which contains a hash already.
#[derive(Default)]
struct TypeIdHasher(u64);

impl Hasher for TypeIdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 ^= u64::from_ne_bytes(word);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 ^= word;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// For each command type, the index of its handler in `typed`.
type ByType = HashMap<TypeId, u32, BuildHasherDefault<TypeIdHasher>>;

type ByName<C> = BTreeMap<Cow<'static, str>, Box<dyn Handler<C>>>;

/// The handlers of one host.
pub(crate) struct Dispatcher {
    /// Name of the host; empty for the host that the runtime was built with.
    host: Cow<'static, str>,
    by_type: ByType,
    /// The handlers by index. The flag tells whether the handler answers inline commands.
    typed: Vec<(bool, Box<dyn Erased>)>,
    by_name: ByName<NamedCommand>,
    streams_by_name: ByName<Streamed<NamedCommand>>,
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher").field("types", &self.typed.len()).field("names", &self.by_name.keys()).finish()
    }
}

impl Dispatcher {
    pub(crate) fn new(host: Cow<'static, str>) -> Self {
        Self {
            host,
            by_type: ByType::default(),
            typed: Vec::new(),
            by_name: BTreeMap::new(),
            streams_by_name: BTreeMap::new(),
        }
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Failure of a command that has no handler. It names the command, and the host if that has a name.
    fn no_handler(&self, command: Cow<'static, str>) -> Failure {
        Failure::NoHandler(match &*self.host {
            "" => command,
            host => format!("{command} in the host {host}").into(),
        })
    }

    /// Registers the handler of a command type.
    ///
    /// # Errors
    /// Returns an error if the type already has a handler.
    pub(crate) fn add<C: Command>(&mut self, handler: impl Handler<C>) -> Result<(), BuildError> {
        let Vacant(vacant) = self.by_type.entry(TypeId::of::<C>()) else {
            return Err(BuildError::DuplicateHandler(name_of(std::any::type_name::<C>())));
        };
        vacant.insert(u32::try_from(self.typed.len()).expect("fewer than 2^32 types"));
        self.typed.push((handler.is_short(), Box::new(Typed(handler, PhantomData))));
        Ok(())
    }

    /// Registers the handler of the commands with this name.
    ///
    /// # Errors
    /// Returns an error if the name already has a handler.
    pub(crate) fn add_named(
        &mut self,
        name: Cow<'static, str>,
        handler: impl Handler<NamedCommand>,
    ) -> Result<(), BuildError> {
        match self.by_name.insert(name.clone(), Box::new(handler)) {
            None => Ok(()),
            Some(_) => Err(BuildError::DuplicateHandler(name)),
        }
    }

    /// Registers the handler of the streams with this name.
    ///
    /// # Errors
    /// Returns an error if the name already has a handler.
    pub(crate) fn add_named_stream(
        &mut self,
        name: Cow<'static, str>,
        handler: impl Handler<Streamed<NamedCommand>>,
    ) -> Result<(), BuildError> {
        match self.streams_by_name.insert(name.clone(), Box::new(handler)) {
            None => Ok(()),
            Some(_) => Err(BuildError::DuplicateHandler(name)),
        }
    }

    fn by_type(&self, command: TypeId) -> Option<&(bool, Box<dyn Erased>)> {
        self.typed.get(*self.by_type.get(&command)? as usize)
    }

    /// Index of the handler of this command type, if that handler answers inline commands.
    #[inline]
    pub(crate) fn inline(&self, command: TypeId) -> Option<u32> {
        let place = *self.by_type.get(&command)?;
        self.typed.get(place as usize).is_some_and(|(is_short, _)| *is_short).then_some(place)
    }

    /// Calls the handler with this index for the inline command of the thread. The handler takes the command from there
    /// and leaves its answer there. Passing the two as arguments and results would cost more than most handlers do.
    /// Returns true if there is an answer.
    #[inline]
    pub(crate) fn dispatch_inline(
        &self,
        current: &Current,
        number: Number,
        handler: u32,
        home: &dyn Fn() -> ProcessRef,
    ) -> bool {
        if let Err(text) = catch(|| self.typed[handler as usize].1.handle_inline(current, number, home)) {
            current.inline.answer(number, Err(Failure::Panicked(text)));
        }
        current.inline.is_answered()
    }

    /// Passes a command to its handler, and takes it out of `command`. If there is no handler, it answers the yield
    /// with a failure that names the command.
    pub(crate) fn dispatch(&self, command: &mut Option<Payload>, slip: UntypedCompletion) {
        if let Some(type_id) = command.as_ref().map(Payload::type_id)
            && let Some((_, handler)) = self.by_type(type_id)
        {
            return completion::guarded(|| handler.handle(command, slip));
        }
        self.dispatch_by_name(command, slip);
    }

    #[inline(never)]
    fn dispatch_by_name(&self, command: &mut Option<Payload>, slip: UntypedCompletion) {
        if let Some(named) = Payload::take::<NamedCommand>(command) {
            return self.dispatch_named(&self.by_name, named, |named| &named.name, slip);
        }
        if let Some(named) = Payload::take::<Streamed<NamedCommand>>(command) {
            return self.dispatch_named(&self.streams_by_name, named, |named| &named.0.name, slip);
        }
        let name = name_of(command.as_ref().map_or("", Payload::type_name));
        let _ = drop_caught(command.take());
        slip.finish(Err(self.no_handler(name)));
    }

    fn dispatch_named<C: Command>(
        &self,
        handlers: &ByName<C>,
        command: C,
        name: impl Fn(&C) -> &Cow<'static, str>,
        slip: UntypedCompletion,
    ) {
        match handlers.get(name(&command)) {
            Some(handler) => completion::guarded(|| handler.handle(command, Completion::new(slip))),
            None => {
                let name = match TypeId::of::<C>() == TypeId::of::<NamedCommand>() {
                    true => name(&command).clone(),
                    false => format!("{}, as a stream", name(&command)).into(),
                };
                let _ = drop_caught(command);
                slip.finish(Err(self.no_handler(name)));
            }
        }
    }
}

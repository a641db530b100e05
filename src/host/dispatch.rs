//! From a command to its handler: by the command's type, or by name; frozen when the runtime is built.

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
use crate::process::command::{Command, Named, Streamed, name_of};
use crate::process::error::BuildError;
use crate::process::failure::Failure;
use crate::process::payload::Payload;
use crate::process::state::current::Current;
use crate::process::state::inline_command::Number;

/// Answers commands: at once, later from any thread, or never (then a deadline helps).
///
/// Handlers run on the worker that stepped the process and must not block it; see [`handler`](crate::handler) for
/// those that are futures or that block. Any closure `Fn(C, Completion<C::Reply>)` is one; layers are handlers around
/// handlers.
///
/// A completion holds its process, and so the runtime, which holds its handlers: one that keeps completions and neither
/// answers nor drops them keeps all of these in memory for good, also when the runtime is gone. Whoever shelves
/// completions looks at [`is_cancelled`](Completion::is_cancelled), or lets go of the shelf at the end.
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
    /// Takes the command; whoever holds `completion` owes its answer. A panic in here is a failure to the process that
    /// performed, and nothing else.
    fn handle(&self, command: C, completion: Completion<C::Reply>);

    /// Whether [`handle_inline`](Self::handle_inline) does the same at a lower cost. Then commands of a body are handled
    /// inline.
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

/// A handler whose command's type is known only inside.
trait Erased: Send + Sync {
    /// Takes the command from where it is.
    fn handle(&self, command: &mut Option<Payload>, slip: UntypedCompletion);
    /// Takes the thread's inline command.
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

/// Type ids are hashes already.
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

/// For each type of command the place of its handler.
type ByType = HashMap<TypeId, u32, BuildHasherDefault<TypeIdHasher>>;

type ByName<C> = BTreeMap<Cow<'static, str>, Box<dyn Handler<C>>>;

/// The handlers of one host.
pub(crate) struct Dispatcher {
    /// The name of the host; empty for the runtime's own.
    host: Cow<'static, str>,
    by_type: ByType,
    /// Each with whether the short way leads there.
    typed: Vec<(bool, Box<dyn Erased>)>,
    by_name: ByName<Named>,
    streams_by_name: ByName<Streamed<Named>>,
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

    /// The failure that says that there is no handler, and where there is none.
    fn no_handler(&self, command: Cow<'static, str>) -> Failure {
        Failure::NoHandler(match &*self.host {
            "" => command,
            host => format!("{command} in the host {host}").into(),
        })
    }

    /// Registers the handler of a command type.
    ///
    /// # Errors
    /// The type has one.
    pub(crate) fn add<C: Command>(&mut self, handler: impl Handler<C>) -> Result<(), BuildError> {
        let Vacant(vacant) = self.by_type.entry(TypeId::of::<C>()) else {
            return Err(BuildError::DuplicateHandler(name_of(std::any::type_name::<C>())));
        };
        vacant.insert(u32::try_from(self.typed.len()).expect("fewer than 2^32 types"));
        self.typed.push((handler.is_short(), Box::new(Typed(handler, PhantomData))));
        Ok(())
    }

    /// Registers the handler of a name.
    ///
    /// # Errors
    /// The name has one.
    pub(crate) fn add_named(
        &mut self,
        name: Cow<'static, str>,
        handler: impl Handler<Named>,
    ) -> Result<(), BuildError> {
        match self.by_name.insert(name.clone(), Box::new(handler)) {
            None => Ok(()),
            Some(_) => Err(BuildError::DuplicateHandler(name)),
        }
    }

    /// Registers the handler of the streams of a name.
    ///
    /// # Errors
    /// The name has one.
    pub(crate) fn add_named_stream(
        &mut self,
        name: Cow<'static, str>,
        handler: impl Handler<Streamed<Named>>,
    ) -> Result<(), BuildError> {
        match self.streams_by_name.insert(name.clone(), Box::new(handler)) {
            None => Ok(()),
            Some(_) => Err(BuildError::DuplicateHandler(name)),
        }
    }

    fn by_type(&self, command: TypeId) -> Option<&(bool, Box<dyn Erased>)> {
        self.typed.get(*self.by_type.get(&command)? as usize)
    }

    /// The place of the handler of this type of command, if the short way leads there.
    #[inline]
    pub(crate) fn inline(&self, command: TypeId) -> Option<u32> {
        let place = *self.by_type.get(&command)?;
        self.typed.get(place as usize).is_some_and(|(is_short, _)| *is_short).then_some(place)
    }

    /// Calls the handler with this index for the inline command. It takes it from there and leaves its answer there:
    /// passed from hand to hand the two would cost more than most handlers do. True if there is an answer.
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

    /// Hands a command to its handler, from where it is; without one its yield is answered at once with a failure that names
    /// the command.
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
        if let Some(named) = Payload::take::<Named>(command) {
            return self.dispatch_named(&self.by_name, named, |named| &named.name, slip);
        }
        if let Some(named) = Payload::take::<Streamed<Named>>(command) {
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
                let name = match TypeId::of::<C>() == TypeId::of::<Named>() {
                    true => name(&command).clone(),
                    false => format!("{}, as a stream", name(&command)).into(),
                };
                let _ = drop_caught(command);
                slip.finish(Err(self.no_handler(name)));
            }
        }
    }
}

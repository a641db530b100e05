//! The table of the command handlers of one host. The table does not know the types of handlers and completions. The
//! code in `dispatch.rs` fills the table and calls the handlers. The type parameter `E` is the control block of a
//! process.

use std::any::TypeId;
use std::borrow::Cow;
use std::collections::hash_map::Entry::Vacant;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use crate::process::catch::drop_caught;
use crate::process::command::{NamedCommand, Streamed, streamed};
use crate::process::event::Tag;
use crate::process::failure::Failure;
use crate::process::payload::Payload;
use crate::process::state::Ref;
use crate::process::state::current::Current;
use crate::process::state::inline_command::Number;

/// Type-erased interface of a handler. The type of a command selects this handler.
pub(crate) trait AnyHandler<E: ?Sized>: Send + Sync {
    /// Takes the command out of `command`, and handles the command. `to` is the process that has yielded the command,
    /// and `tag` is the tag of the command.
    fn handle(&self, command: &mut Option<Payload>, to: Ref<E>, tag: Tag);
    /// Returns the name of the command type.
    fn command_name(&self) -> &'static str;
    /// Returns the name of the handler's type. For a closure, the name contains the function that defines the closure.
    fn handler_name(&self) -> &'static str;
    /// Handles the inline command of this thread. `process` returns a reference to the process that yielded the
    /// command.
    fn handle_inline(&self, current: &Current, number: Number, process: &dyn Fn() -> Ref<E>);
}

/// Interface of a handler. The name of a command selects this handler.
pub(crate) trait NamedHandler<C, E: ?Sized>: Send + Sync {
    /// Handles a command. The command belongs to the yield `tag` of the process `to`.
    fn handle(&self, command: C, to: Ref<E>, tag: Tag);
}

/// Hasher for `TypeId`. A `TypeId` already contains a hash. Therefore this hasher only combines the words of this hash.
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

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 ^= word;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// Maps each command type to the index of its handler in [`Dispatcher::typed`].
type ByType = HashMap<TypeId, u32, BuildHasherDefault<TypeIdHasher>>;

pub(super) type ByName<C, E> = BTreeMap<Cow<'static, str>, Box<dyn NamedHandler<C, E>>>;

/// The handlers of one host.
pub(crate) struct Dispatcher<E: ?Sized> {
    /// Name of the host. The first host of a runtime has an empty name.
    host: Cow<'static, str>,
    by_type: ByType,
    /// The handlers by index.
    typed: Vec<Box<dyn AnyHandler<E>>>,
    pub(super) by_name: ByName<NamedCommand, E>,
    pub(super) streams_by_name: ByName<Streamed<NamedCommand>, E>,
}

/// Property of a command that selects the handler of the command.
#[cfg(feature = "console")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandlerKey<'a> {
    /// Type of the command.
    Type(&'static str),
    /// Name of a [`NamedCommand`].
    Name(&'a str),
    /// Name of a [`NamedCommand`] that yields a stream.
    StreamName(&'a str),
}

impl<E: ?Sized> fmt::Debug for Dispatcher<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher").field("types", &self.typed.len()).field("names", &self.by_name.keys()).finish()
    }
}

/// Drops each handler separately, and catches the panic of each drop. Without this implementation, the program would
/// abort if the drops of two handlers panicked, because the second panic would occur during the unwinding of the first
/// panic.
impl<E: ?Sized> Drop for Dispatcher<E> {
    fn drop(&mut self) {
        self.typed.drain(..).for_each(|handler| drop(drop_caught(handler)));
        std::mem::take(&mut self.by_name).into_values().for_each(|handler| drop(drop_caught(handler)));
        std::mem::take(&mut self.streams_by_name).into_values().for_each(|handler| drop(drop_caught(handler)));
    }
}

impl<E: ?Sized> Dispatcher<E> {
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

    /// Returns the failure of a command that has no handler. The failure contains the name of the command. If the host
    /// has a name, the failure also contains the name of the host.
    pub(super) fn no_handler(&self, command: Cow<'static, str>) -> Failure {
        Failure::NoHandler(match &*self.host {
            "" => command,
            host => format!("{command} in the host {host}").into(),
        })
    }

    /// Adds the handler of a command type. Returns false if the type already has a handler.
    pub(super) fn insert(&mut self, command: TypeId, handler: Box<dyn AnyHandler<E>>) -> bool {
        let Vacant(vacant) = self.by_type.entry(command) else { return false };
        vacant.insert(u32::try_from(self.typed.len()).expect("fewer than 2^32 types"));
        self.typed.push(handler);
        true
    }

    /// Returns the handler of this command type.
    pub(super) fn of_type(&self, command: TypeId) -> Option<&dyn AnyHandler<E>> {
        self.at(self.index(command)?)
    }

    /// Returns the handler with this index.
    #[inline]
    pub(super) fn at(&self, place: u32) -> Option<&dyn AnyHandler<E>> {
        self.typed.get(place as usize).map(|handler| &**handler)
    }

    /// Returns the name of the command type that the handler at index `place` handles.
    pub(crate) fn command_name(&self, place: u32) -> &'static str {
        self.at(place).map_or("", AnyHandler::command_name)
    }

    /// Finds the handler of a command type, and returns the type name of this handler. `command` is the name of the
    /// command type. If the command type has only a stream handler, the function returns the type name of the stream
    /// handler. The function searches the table from the beginning, so only inspections call this function.
    pub(crate) fn handler_of(&self, command: &str) -> Option<&'static str> {
        let names = || self.typed.iter().map(|handler| (handler.command_name(), handler.handler_name()));
        let plain = names().find(|(name, _)| *name == command);
        plain.or_else(|| names().find(|(name, _)| streamed(name) == Some(command))).map(|(_, handler)| handler)
    }

    /// Returns the keys of all handlers: first the types in the order of their registration, then the names, then the
    /// stream names. The names and the stream names are in alphabetical order.
    #[cfg(feature = "console")]
    pub(crate) fn handler_keys(&self) -> impl Iterator<Item = HandlerKey<'_>> {
        let types = self.typed.iter().map(|handler| HandlerKey::Type(handler.command_name()));
        let names = self.by_name.keys().map(|name| HandlerKey::Name(name));
        types.chain(names).chain(self.streams_by_name.keys().map(|name| HandlerKey::StreamName(name)))
    }

    /// Returns the index of the handler of this command type.
    #[inline]
    pub(crate) fn index(&self, command: TypeId) -> Option<u32> {
        self.by_type.get(&command).copied()
    }
}

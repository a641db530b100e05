//! The traits and types of commands: [`Command`], [`StreamCommand`] and [`NamedCommand`].
//!
//! A process *yields* a command: the process passes the command to the runtime. The module `host::dispatch` passes the
//! command to a handler, and the handler answers the command.

use std::any::type_name;
use std::borrow::Cow;

use crate::process::payload::Payload;

/// A request that a process hands to the runtime, and that a handler answers with a [`Reply`](Self::Reply).
///
/// ```
/// struct ReadLine { file: u32 }
/// impl procession::Command for ReadLine {
///     type Reply = Option<String>;
/// }
/// ```
pub trait Command: Send + 'static {
    /// Type of the handler's answer.
    type Reply: Send + 'static;
}

/// A command whose handler sends several items and then one reply. The process decides when to pull each item.
///
/// ```
/// use procession::{Command, StreamCommand};
/// struct Lines { file: u32 }
/// impl Command for Lines {
///     type Reply = usize;                 // the number of lines
/// }
/// impl StreamCommand for Lines {
///     type Item = String;
/// }
/// ```
pub trait StreamCommand: Command {
    /// Type of the items. The handler sends all items before the reply.
    type Item: Send + 'static;

    /// Maximum number of items that the handler has sent and the process has not pulled yet. When this maximum is
    /// reached, [`StreamCompletion::send`](crate::StreamCompletion::send) waits. If the constant is 0, the maximum is
    /// 1. Default: 8.
    const BUFFER: usize = 8;
}

/// Wrapper around a stream command. The runtime dispatches the stream command in this wrapper. `Streamed<C>` and `C`
/// are distinct types. Therefore, one command type can have two handlers: one handler that sends a stream, and one
/// handler that gives a single answer.
#[derive(Debug)]
pub(crate) struct Streamed<C>(pub(crate) C);

impl<C: StreamCommand> Command for Streamed<C> {
    type Reply = C::Reply;
}

/// Returns the name of a command's type for messages to the user. The wrapper [`Streamed`] is replaced by the suffix `,
/// as a stream`.
pub(crate) fn name_of(full: &'static str) -> Cow<'static, str> {
    streamed(full).map_or(Cow::Borrowed(full), |inner| format!("{inner}, as a stream").into())
}

/// If `full` is the name of a type `Streamed<C>`, returns the name of the type `C`.
pub(crate) fn streamed(full: &str) -> Option<&str> {
    let prefix = type_name::<Streamed<()>>().strip_suffix("()>")?;
    full.strip_prefix(prefix)?.strip_suffix('>')
}

/// A command that is identified by its name. For example, a program that runs scripts can use named commands. The
/// runtime passes the command to the handler that was registered under this name.
#[derive(Debug)]
pub struct NamedCommand {
    /// Name under which the handler was registered.
    pub name: Cow<'static, str>,
    /// Arguments of the command.
    pub payloads: Vec<Payload>,
}

impl NamedCommand {
    /// Creates a command without arguments.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Self { name: name.into(), payloads: Vec::new() }
    }

    /// Appends an argument.
    #[must_use]
    pub fn arg<T: Send + 'static>(mut self, value: T) -> Self {
        self.payloads.push(Payload::new(value));
        self
    }
}

impl Command for NamedCommand {
    type Reply = Payload;
}

impl StreamCommand for NamedCommand {
    type Item = Payload;
}

/// Command type for the calls and sleeps of a hand-written process. If the reply to a call or a sleep has the type `T`,
/// the tag of the call or the sleep is a `Tag<BuiltinCommand<T>>`.
#[derive(Debug)]
pub struct BuiltinCommand<T>(std::marker::PhantomData<fn() -> T>);

impl<T: Send + 'static> Command for BuiltinCommand<T> {
    type Reply = T;
}

/// Returns whether `command_name` is the name of a type `BuiltinCommand<T>`, for any `T`.
pub(crate) fn is_builtin(command_name: &str) -> bool {
    let of_unit = type_name::<BuiltinCommand<()>>();
    of_unit
        .split_once('<')
        .is_some_and(|(generic, _)| command_name.strip_prefix(generic).is_some_and(|rest| rest.starts_with('<')))
}

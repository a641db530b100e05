//! What a process may want from the world: commands, typed or by name.

use std::any::type_name;
use std::borrow::Cow;

use crate::process::payload::Payload;

/// What a process may want from the world, and what it is answered with.
///
/// ```
/// struct ReadLine { file: u32 }
/// impl procession::Command for ReadLine {
///     type Reply = Option<String>;
/// }
/// ```
pub trait Command: Send + 'static {
    /// What a handler answers.
    type Reply: Send + 'static;
}

/// A command that is answered many times: with items, which the process pulls at its own pace, and then with the reply.
///
/// ```
/// use procession::{Command, StreamCommand};
/// struct Lines { file: u32 }
/// impl Command for Lines {
///     type Reply = usize;                 // how many there were
/// }
/// impl StreamCommand for Lines {
///     type Item = String;
/// }
/// ```
pub trait StreamCommand: Command {
    /// What comes before the reply.
    type Item: Send + 'static;

    /// How many items the handler may be ahead of the process: sent, and not pulled yet. One more waits in
    /// [`Replier::send`](crate::Replier::send). 0 means 1.
    const BUFFER: usize = 8;
}

/// A stream command as it is dispatched: a type of its own, so that its handler is one of its own.
#[derive(Debug)]
pub(crate) struct Streamed<C>(pub(crate) C);

impl<C: StreamCommand> Command for Streamed<C> {
    type Reply = C::Reply;
}

/// The name of a command's type as its user knows it.
pub(crate) fn name_of(full: &'static str) -> Cow<'static, str> {
    let prefix = type_name::<Streamed<()>>().strip_suffix("()>");
    let inner = prefix.and_then(|prefix| full.strip_prefix(prefix)?.strip_suffix('>'));
    inner.map_or(Cow::Borrowed(full), |inner| format!("{inner}, as a stream").into())
}

/// A command by name, for hosts of scripts: it goes to the handler that was registered under that name.
#[derive(Debug)]
pub struct Named {
    /// The name that the handler was registered under.
    pub name: Cow<'static, str>,
    /// The arguments.
    pub payloads: Vec<Payload>,
}

impl Named {
    /// A command without arguments.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Self { name: name.into(), payloads: Vec::new() }
    }

    /// One argument more.
    #[must_use]
    pub fn with<T: Send + 'static>(mut self, value: T) -> Self {
        self.payloads.push(Payload::new(value));
        self
    }
}

impl Command for Named {
    type Reply = Payload;
}

impl StreamCommand for Named {
    type Item = Payload;
}

/// The command behind a call or a sleep of a hand-written process: its reply is the answer.
#[derive(Debug)]
pub struct Asked<T>(std::marker::PhantomData<fn() -> T>);

impl<T: Send + 'static> Command for Asked<T> {
    type Reply = T;
}

//! What a process may want from the world: commands, typed or by name.

use std::borrow::Cow;

use super::payload::Payload;

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

/// The command behind a call or a sleep of a hand-written process: its reply is the answer.
#[derive(Debug)]
pub struct Asked<T>(std::marker::PhantomData<fn() -> T>);

impl<T: Send + 'static> Command for Asked<T> {
    type Reply = T;
}

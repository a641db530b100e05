//! What a hand-written process has of its mailbox: what it took out of the inbox, under one lock, and reads from here.

use std::collections::VecDeque;

use super::front::KEEP;
use super::signals::Drained;
use crate::process::event::{Signal, Tag};

/// What a hand-written process took over and has not read yet.
#[derive(Debug)]
pub(crate) struct Taken<M> {
    pub(crate) messages: VecDeque<M>,
    pub(super) signals: Drained,
    /// How many messages the process was given so far.
    given: u64,
    /// Answers that it was given, whose yields are in their table still.
    pub(crate) read: Vec<Tag>,
}

impl<M> Default for Taken<M> {
    fn default() -> Self {
        Self { messages: VecDeque::new(), signals: Drained::default(), given: 0, read: Vec::new() }
    }
}

impl<M> Taken<M> {
    pub(crate) fn len(&self) -> usize {
        self.messages.len() + self.signals.len()
    }

    /// The next signal, if no message came before it.
    pub(crate) fn pop_signal(&mut self) -> Option<Signal> {
        self.signals.pop(self.given)
    }

    /// How many messages the process will have been given when it has read all that it took.
    pub(super) fn ahead(&self) -> u64 {
        self.given + self.messages.len() as u64
    }

    pub(crate) fn pop(&mut self) -> Option<M> {
        let message = self.messages.pop_front()?;
        self.given += 1;
        Some(message)
    }

    /// Gives back what a burst needed, when the last of it was read.
    #[inline]
    pub(super) fn shrink(&mut self) {
        if self.messages.capacity() > KEEP && self.messages.is_empty() {
            self.messages = VecDeque::new();
        }
        self.signals.shrink();
    }
}

//! What happened in a simulation, in order, as text.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::time::Duration;

use crate::clock::Instant;
use crate::observe::{Observer, State, Transition};
use crate::process::pid::Pid;
use crate::sync::Mutex;

/// So many lines are kept; those before them are counted.
const KEPT: usize = 1 << 20;

/// Keeps what happened.
#[derive(Debug, Default)]
pub(super) struct Trace(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    last: VecDeque<Line>,
    forgotten: u64,
}

#[derive(Debug)]
struct Line {
    at: Instant,
    what: What,
}

/// What a line tells.
#[derive(Debug)]
pub(super) enum What {
    /// A process went to this state; the first time it was spawned.
    State(Pid, Option<State>, State),
    Panicked(Pid, Box<str>),
    /// A future without a pid has a turn: a handler's, say.
    Future,
    /// The future that the simulation was given has one.
    Own,
}

impl Trace {
    pub(super) fn note(&self, at: Instant, what: What) {
        let lines = &mut *self.0.lock();
        if lines.last.len() == KEPT {
            lines.last.pop_front();
            lines.forgotten += 1;
        }
        lines.last.push_back(Line { at, what });
    }

    /// The last so many lines.
    pub(super) fn last(&self, most: usize) -> String {
        let lines = self.0.lock();
        let left_out = lines.last.len().saturating_sub(most);
        let mut text = String::new();
        let forgotten = lines.forgotten + left_out as u64;
        if forgotten != 0 {
            let _ = writeln!(text, "… {forgotten} lines before these");
        }
        for line in lines.last.iter().skip(left_out) {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    /// All that is kept.
    pub(super) fn text(&self) -> String {
        self.last(usize::MAX)
    }
}

impl Observer for Trace {
    fn transition(&self, t: &Transition) {
        self.note(t.at, What::State(t.pid, t.from, t.to));
    }

    fn panicked(&self, pid: Pid, message: &str) {
        // It was running, so there is a line of it.
        let now = self.0.lock().last.back().map_or(Instant::FAR, |line| line.at);
        self.note(now, What::Panicked(pid, message.into()));
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = Duration::from_nanos(self.at.ns());
        match &self.what {
            What::State(pid, None, _) => write!(f, "{at:?} {pid} spawned"),
            What::State(pid, _, to) => {
                let to = match to {
                    State::Ready => "ready",
                    State::Running => "running",
                    State::Blocked => "blocked",
                    State::Idle => "idle",
                    State::Complete => "complete",
                };
                write!(f, "{at:?} {pid} {to}")
            }
            What::Panicked(pid, text) => write!(f, "{at:?} {pid} panicked: {text}"),
            What::Future => write!(f, "{at:?} a future runs"),
            What::Own => write!(f, "{at:?} the scenario runs"),
        }
    }
}

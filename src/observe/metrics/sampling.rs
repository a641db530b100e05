//! The sampled turns of a thread, and the sampling state that decides which turns and messages are measured.

use crate::observe::metrics::{HERE, Here, Outside, SAMPLE_MESSAGES_ONE_IN};

/// The process of a sampled turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampledProcess {
    /// The pid as one word.
    pub(crate) word: u64,
    pub(crate) type_name: &'static str,
}

/// Sampled turns can be nested. This number is the maximum number of nested turns whose processes a thread stores.
pub(super) const MAX_SAMPLED: usize = 4;

/// Begins a sampled turn of this thread. The calls and commands of a sampled turn are measured. A turn may run inside
/// another turn on the same thread. If the outer turn is sampled, the inner turn also counts as sampled.
pub(crate) fn begin_sampled_turn(process: SampledProcess) {
    let _ = HERE.try_with(|here| {
        let depth = here.sampled_turns.get();
        let mut all = here.sampled.get();
        if let Some(place) = all.get_mut(depth) {
            *place = Some(process);
        }
        here.sampled.set(all);
        here.sampled_turns.set(depth + 1);
    });
}

/// Ends a sampled turn. Returns the process of the turn, or `None` if too many sampled turns are nested.
pub(crate) fn end_sampled_turn() -> Option<SampledProcess> {
    let end = |here: &Here| {
        let depth = here.sampled_turns.get().saturating_sub(1);
        here.sampled_turns.set(depth);
        here.sampled.get().get(depth).copied().flatten()
    };
    HERE.try_with(end).ok().flatten()
}

/// Returns whether this thread runs a sampled turn.
#[inline]
pub(crate) fn is_sampled_turn() -> bool {
    HERE.try_with(|here| here.sampled_turns.get() != 0).unwrap_or(false)
}

/// The sampling state of a thread. The state decides which of the next turns and messages are measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sampling {
    ticks: u32,
    messages_left: u32,
    distances: u32,
    sampled_turns: usize,
    sampled: [Option<SampledProcess>; MAX_SAMPLED],
}

impl Sampling {
    /// The sampling state of a new simulation. The code path of a measured message differs from the code path of other
    /// messages, and the number of turns can depend on the path. Therefore, two simulations with the same seed must
    /// measure the same messages.
    pub(crate) const FIRST: Self = Self {
        ticks: 1,
        messages_left: SAMPLE_MESSAGES_ONE_IN / 2,
        distances: 0,
        sampled_turns: 0,
        sampled: [None; MAX_SAMPLED],
    };

    /// A sampling state that measures the same turns as `FIRST`, but no message.
    #[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
    pub(crate) const WITHOUT_MESSAGES: Self = Self { messages_left: u32::MAX, ..Self::FIRST };

    /// Resets the sampling state of the calling thread, before the first run of a new simulation. As a result, each
    /// simulation measures the same messages. If this thread runs a sampled turn now, the turn stays sampled.
    pub(crate) fn begin_simulation() {
        let Self { sampled_turns, sampled, .. } = Self::FIRST.replace();
        let _ = HERE.try_with(|here| {
            here.sampled_turns.set(sampled_turns);
            here.sampled.set(sampled);
        });
    }

    /// Stores this state as the state of the calling thread. Returns the previous state of the thread.
    pub(crate) fn replace(self) -> Self {
        // When a thread increments a counter for the first time, the thread chooses a counter block, and this choice
        // changes `ticks`. Therefore the thread chooses its block before this function replaces `ticks`.
        let _ = Outside::here();
        let replace = |here: &Here| Self {
            ticks: here.ticks.replace(self.ticks),
            messages_left: here.messages_left.replace(self.messages_left),
            distances: here.distances.replace(self.distances),
            sampled_turns: here.sampled_turns.replace(self.sampled_turns),
            sampled: here.sampled.replace(self.sampled),
        };
        HERE.try_with(replace).unwrap_or(self)
    }
}

/// Counts a message that can be measured. Returns false if the caller must call
/// [`measures_message`](super::Metrics::measures_message) for this message.
#[inline]
pub(crate) fn skips_message() -> bool {
    HERE.try_with(|here| {
        let left = here.messages_left.get();
        if left <= 1 {
            return false;
        }
        here.messages_left.set(left - 1);
        true
    })
    .unwrap_or(true)
}

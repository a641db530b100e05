//! `Pid`: the identifier of one instance of a process. `text.rs` parses the text form of a pid.
//!
//! A pid contains no reference to the process. A sender searches for the process in the pid table, and finds nothing
//! after the process has exited.

#[cfg(feature = "serde")]
mod serialize;
pub(crate) mod text;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU64;

/// Identifier of a process. `Display` writes a pid as `<node.index.generation>`, and `FromStr` parses this text.
///
/// The local part of a pid has 64 bits. The local part contains an *index* and a *generation*. The runtime stores each
/// process in a slot of a table, and the index is the position of this slot. The generation counts the processes that
/// this slot has held. Because of the generation, the pid of an exited process never refers to a later process. A pid
/// also contains its *node* and its *incarnation*. The node is the number that identifies the runtime in the program.
/// The incarnation is a random number that this runtime chose when the runtime was built. The runtimes of one program
/// have different nodes, unless [`Builder::node`](crate::Builder::node) sets equal nodes. Two runtimes with equal
/// nodes, for example in two programs, have the same incarnation with a probability of about 2^-31. Apart from this
/// case, a pid of another runtime never refers to a process of this runtime. A `Pid` takes 16 bytes, and an
/// `Option<Pid>` has the same size.
///
/// In the text, the incarnation follows the node in hexadecimal, for example `<1-9f3c.7.2>`. If the incarnation is 0,
/// it is not printed, for example `<1.7.2>`. Each pid has exactly one text.
///
/// A pid of a simulation is printed without an incarnation, for example `<0.7.2>`, because two runs with the same seed
/// must print the same trace. Although the text has no incarnation, each pid of a simulation belongs to exactly one
/// simulation. Two pids of different simulations are different, even if their texts are equal. A pid of one simulation
/// never refers to a process of another simulation. While a simulation runs, a text with the node 0 and without an
/// incarnation parses to a pid of that simulation. Outside a simulation, a text without an incarnation parses to a pid
/// that no process has.
///
/// With the feature `serde`, a pid implements `Serialize` and `Deserialize`. Human-readable formats contain the text of
/// the pid, and all other formats contain four numbers.
///
/// Pids are ordered by node, incarnation, generation and index. The order of pids has no meaning, but is the same on
/// every system.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pid {
    runtime: RuntimeId,
    /// The low half contains the index, and the high half contains the generation. Generations start at 1, so this
    /// value is never 0.
    local: NonZeroU64,
}

/// Node and incarnation of a runtime, in one word. A look-up loads and compares the whole word. If a pid stored the
/// node and the incarnation in two fields, a copy of the pid could store the fields with two instructions. The
/// processor could not forward these two stores to the load, and the load would wait until both stores have reached
/// the cache (bench `link-unlink`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RuntimeId(u64);

impl RuntimeId {
    /// If `node` is 0, and `incarnation` is even and not 0, then `incarnation` is the number of a simulation.
    /// Otherwise, `incarnation` is the incarnation of the node. The public API does not show the number of a
    /// simulation.
    #[inline]
    pub(crate) const fn new(node: u32, incarnation: u32) -> Self {
        Self((node as u64) << 32 | incarnation as u64)
    }

    #[inline]
    pub(crate) const fn node(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    pub(crate) const fn incarnation(self) -> u32 {
        self.0 as u32
    }
}

impl Pid {
    /// Creates a pid.
    ///
    /// # Panics
    ///
    /// Panics if the generation is 0. The generations of a slot start at 1.
    #[inline]
    pub(crate) const fn new(node: u32, incarnation: u32, index: u32, generation: u32) -> Self {
        Self::in_runtime(RuntimeId::new(node, incarnation), index, generation)
    }

    /// Creates a pid in this runtime.
    ///
    /// # Panics
    ///
    /// Panics if the generation is 0.
    #[inline]
    pub(crate) const fn in_runtime(runtime: RuntimeId, index: u32, generation: u32) -> Self {
        assert!(generation != 0, "generations start at 1");
        match NonZeroU64::new((generation as u64) << 32 | index as u64) {
            Some(local) => Self { runtime, local },
            None => unreachable!(),
        }
    }

    /// Returns the node: the number that identifies the runtime in the program.
    #[inline]
    pub const fn node(self) -> u32 {
        self.runtime.node()
    }

    /// Returns the random number that the runtime chose when the runtime was built. In simulations, returns 0.
    #[inline]
    pub const fn incarnation(self) -> u32 {
        if self.is_simulated() { 0 } else { self.runtime.incarnation() }
    }

    /// Returns whether the pid comes from the pid table of this runtime.
    #[inline]
    pub(crate) fn is_of(self, runtime: RuntimeId) -> bool {
        self.runtime == runtime
    }

    /// Returns whether the pid belongs to a simulation. The number of a simulation is even, and the incarnation of a
    /// runtime is odd.
    const fn is_simulated(self) -> bool {
        let incarnation = self.runtime.incarnation();
        self.runtime.node() == 0 && incarnation != 0 && incarnation.is_multiple_of(2)
    }

    /// Returns the index of the slot that the process has in the pid table of the runtime.
    #[inline]
    pub const fn index(self) -> u32 {
        self.local.get() as u32
    }

    /// Returns the index and the generation in one word. The word is unique in the runtime.
    #[inline]
    pub(crate) const fn word(self) -> u64 {
        self.local.get()
    }

    /// Returns whether both pids belong to the same runtime.
    #[inline]
    pub(crate) fn is_in_same_runtime(self, other: Self) -> bool {
        self.runtime == other.runtime
    }

    /// Returns the number of processes that the slot of this process has held so far, including this process. The
    /// number is at least 1.
    #[inline]
    pub const fn generation(self) -> u32 {
        (self.local.get() >> 32) as u32
    }

    fn write(self, to: &mut impl fmt::Write) -> fmt::Result {
        let (node, index, generation) = (self.node(), self.index(), self.generation());
        match self.incarnation() {
            0 => write!(to, "<{node}.{index}.{generation}>"),
            incarnation => write!(to, "<{node}-{incarnation:x}.{index}.{generation}>"),
        }
    }
}

/// Hashes the pid without the incarnation. The incarnation changes from run to run. If the hash included the
/// incarnation, the iteration order of a map with a fixed hasher would also change from run to run.
impl Hash for Pid {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.node().hash(state);
        self.local.hash(state);
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.width().is_none() && f.precision().is_none() {
            return self.write(f);
        }
        let mut text = String::new();
        self.write(&mut text)?;
        f.pad(&text)
    }
}

impl fmt::Debug for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2.1b: a pid takes 16 bytes, and an option of a pid has the same size.
    #[test]
    fn a_pid_and_an_option_of_a_pid_have_16_bytes() {
        assert_eq!(size_of::<Pid>(), 16);
        assert_eq!(size_of::<Option<Pid>>(), 16);
    }

    #[test]
    fn pids_are_ordered_by_node_first() {
        let ordered = [
            Pid::new(1, 0, 9, 1),
            Pid::new(1, 0, 0, 2),
            Pid::new(1, 1, 0, 1),
            Pid::new(2, 0, 0, 1),
            Pid::new(2, 0, 1, 1),
        ];
        assert!(ordered.is_sorted());
    }
}

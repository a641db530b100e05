//! Serialization of pids with serde. Human-readable formats contain the text form of a pid, and all other formats
//! contain four numbers. A serialized pid does not keep the process alive.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::process::pid::Pid;

/// In a human-readable format such as JSON, writes the text of the pid, for example `"<1.7.2>"`. In any other format,
/// writes a tuple of four `u32`: node, incarnation, index and generation.
impl Serialize for Pid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            (self.node(), self.incarnation(), self.index(), self.generation()).serialize(serializer)
        }
    }
}

/// Reads a pid that `Serialize` has written in the same format. The process of the pid may already have exited.
impl<'de> Deserialize<'de> for Pid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return deserializer.deserialize_str(PidVisitor);
        }
        let (node, incarnation, index, generation) = Deserialize::deserialize(deserializer)?;
        Self::from_parts(node, incarnation, index, generation).map_err(D::Error::custom)
    }
}

struct PidVisitor;

impl Visitor<'_> for PidVisitor {
    type Value = Pid;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the text of a pid, such as <1.7.2>")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Pid, E> {
        text.parse().map_err(E::custom)
    }
}

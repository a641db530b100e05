//! Lists the outstanding commands of a process by command type, for inspection. The list is read in pieces, so that the
//! lock of the table is held only briefly.

use std::collections::BTreeMap;

use crate::platform::static_ref::Line;
use crate::process::event::Tag;
use crate::process::yields::table::Slot;
use crate::process::yields::{SharedTable, Yields};

/// Maximum number of slots that are read under one lock operation.
const PIECE: usize = 256;

/// Number of outstanding commands of each command type, by the name of the type.
pub(crate) type CommandCounts = BTreeMap<&'static str, Outstanding>;

/// The outstanding commands of one type.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Outstanding {
    pub(crate) count: usize,
    /// Time at which the oldest measured command was yielded, in ns of the runtime's clock. Only one command in 64 is
    /// measured.
    pub(crate) oldest_measured: Option<u64>,
    /// Source line that yielded one of the commands, if the line is known.
    pub(crate) line: Line,
}

impl Yields {
    /// Returns the memory of the table in bytes, without the commands and the answers in the table.
    pub(crate) fn bytes(&self) -> usize {
        let Some(table) = self.table() else { return 0 };
        size_of::<SharedTable>() + table.slots.bytes() + table.states.bytes()
    }

    /// Counts the commands in one piece of the table. The piece begins at the key `from`. Returns the key at which the
    /// next piece begins, or `None` at the end of the table.
    pub(crate) fn count_commands(&self, from: usize, counts: &mut CommandCounts) -> Option<usize> {
        let table = self.table()?;
        let to = (from + PIECE).min(table.slots.key_limit());
        let slots = (from..to).filter_map(|key| Some((key, table.slots.get(key)?)));
        let is_answered = |key, slot: &Slot| table.states.is_answered(Tag::of_slot(slot.number, key as u32));
        let in_flight = slots.filter(|&(key, slot)| slot.is_in_flight() && !is_answered(key, slot));
        for (_, slot) in in_flight {
            let outstanding = counts.entry((slot.types)().command_name).or_default();
            outstanding.count += 1;
            outstanding.line = outstanding.line.or(slot.line);
            // The list of the measured commands is short, and usually empty.
            if let Some(since) = table.since(slot.number) {
                outstanding.oldest_measured = Some(outstanding.oldest_measured.map_or(since, |known| known.min(since)));
            }
        }
        (to < table.slots.key_limit()).then_some(to)
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::any::type_name;

    use super::*;
    use crate::process::command::NamedCommand;
    use crate::process::yields::tests::start;

    #[test]
    fn the_memory_includes_the_slots_and_the_answer_states() {
        let yields = Yields::new();
        assert_eq!(yields.bytes(), 0);
        for _ in 0..100 {
            let _tag = start(&yields);
        }
        let table = yields.table().expect("a command was yielded");
        let (slots, states) = (table.slots.bytes(), table.states.bytes());
        drop(table);
        assert!(slots >= 99 * size_of::<Slot>() && states >= 99 * size_of::<u64>(), "{slots}, {states} bytes");
        assert_eq!(yields.bytes(), size_of::<SharedTable>() + slots + states);
    }

    #[test]
    fn commands_are_counted_in_pieces() {
        let yields = Yields::new();
        for _ in 0..1_025 {
            let _tag = start(&yields);
        }
        let (mut counts, mut from) = (CommandCounts::new(), Some(0));
        for piece in 1..=5 {
            from = yields.count_commands(from.expect("there are 5 pieces"), &mut counts);
            assert_eq!(counts[type_name::<NamedCommand>()].count, 1_025.min(256 * piece));
        }
        assert_eq!((from, counts.len()), (None, 1));
    }
}

//! Lists the outstanding commands of a process by command type, for inspection. The list is read in pieces, so that the
//! lock of the table is held only briefly.

use std::collections::BTreeMap;

use crate::process::yields::Yields;

/// Maximum number of slots that are read under one lock operation.
const PIECE: usize = 256;

/// Number of outstanding commands of each command type, by the name of the type.
pub(crate) type CommandCounts = BTreeMap<&'static str, usize>;

impl Yields {
    /// Counts the commands in one piece of the table. The piece begins at the key `from`. Returns the key at which the
    /// next piece begins, or `None` at the end of the table.
    pub(crate) fn count_commands(&self, from: usize, counts: &mut CommandCounts) -> Option<usize> {
        let table = self.table()?;
        let to = (from + PIECE).min(table.slots.key_limit());
        let in_flight = (from..to).filter_map(|key| table.slots.get(key)).filter(|slot| slot.is_in_flight());
        for slot in in_flight {
            *counts.entry((slot.types)().command_name).or_default() += 1;
        }
        (to < table.slots.key_limit()).then_some(to)
    }
}

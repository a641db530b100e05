//! Counts and lists the links and monitors of a process, for inspection. A reader reads a list in pieces. Therefore the
//! reader holds the lock of the table only for a short time.

use std::ops::Bound;

use crate::host::link::{LinkEntry, Linkable, Links};
use crate::process::pid::Pid;

/// Maximum number of entries that one piece contains. The reader locks the table once for each piece.
const PIECE: usize = 256;

/// Sizes of the table of one process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LinkCounts {
    /// Number of linked processes.
    pub(crate) links: usize,
    /// Number of monitors that other processes have set on this process. Monitors from `spawn_monitor` are not counted.
    pub(crate) monitored_by: usize,
    /// Number of monitors that this process has set. If the `Down` event of a monitor was delivered but not read, the
    /// monitor is still counted.
    pub(crate) monitors: usize,
}

/// The entries that the reader has read from a table so far, and the position of the next entry.
#[derive(Debug, Default)]
pub(crate) struct LinkLists {
    /// The linked processes, as [words](Pid::word) of their pids.
    pub(crate) links: Vec<u64>,
    /// The processes that monitor this process, as [words](Pid::word) of their pids.
    pub(crate) monitored_by: Vec<u64>,
    /// Pids of the processes that this process monitors. If `spawn_monitor` has set the monitor, the monitored process
    /// is not listed.
    pub(crate) monitors: Vec<Pid>,
    last: Option<LinkEntry>,
    slot: usize,
}

impl LinkLists {
    fn add(&mut self, entry: LinkEntry) {
        if entry.number == 0 { self.links.push(entry.word) } else { self.monitored_by.push(entry.word) }
    }
}

impl<E: Linkable + ?Sized> Links<E> {
    pub(crate) fn counts(&self) -> LinkCounts {
        let table = self.0.lock();
        let more = table.more.as_deref();
        let links = table.link_count();
        let entries = more.map_or(0, |more| more.ties.len()) + usize::from(table.one.is_some());
        LinkCounts { links, monitored_by: entries - links, monitors: more.map_or(0, |more| more.watched.len()) }
    }

    /// Reads the next piece of the table into `lists`. Returns false at the end of the table. If an entry is added or
    /// removed between two pieces, the lists may miss the entry, or may contain the entry twice.
    pub(crate) fn list(&self, lists: &mut LinkLists) -> bool {
        let table = self.0.lock();
        if lists.last.is_none()
            && let Some((entry, _)) = &table.one
        {
            lists.add(*entry);
        }
        let Some(more) = &table.more else { return false };
        let begin = lists.last.map_or(Bound::Unbounded, Bound::Excluded);
        let piece = more.ties.range((begin, Bound::Unbounded)).take(PIECE);
        let mut count = 0;
        for (entry, _) in piece {
            lists.add(*entry);
            lists.last = Some(*entry);
            count += 1;
        }
        if count == PIECE {
            return true;
        }
        // The next call continues with the monitors. In `ties`, the next call finds no entry, or only entries that were
        // added in the meantime.
        lists.last = lists.last.or(Some(LinkEntry { word: 0, number: 0 }));
        let end = lists.slot + PIECE;
        lists.monitors.extend(more.watched.in_slots(lists.slot..end).map(|other| other.pid()));
        lists.slot = end;
        end < more.watched.slot_count()
    }
}

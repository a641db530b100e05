//! Finds mailboxes that grow while their oldest messages stay in the queue. One snapshot of a mailbox cannot show that
//! the mailbox grows. Therefore [`Host::explain`](crate::Host::explain) stores the lengths of the long mailboxes. The
//! next call of `explain` reads the lengths again, and compares the new lengths with the stored lengths.
//!
//! A process may take the oldest message out between the two snapshots, and the mailbox may then become longer than
//! before. A mailbox whose oldest message was taken out does not count as growing. A selective receive may take a newer
//! message, and urgent messages are taken from another queue. After a receive of a newer or an urgent message, the
//! oldest message is still in the queue, so the mailbox can still count as growing. A mailbox does not count its
//! receive operations, because such a count would make each receive operation more expensive. Instead, the comparison
//! uses the time `unread_since` of the mailbox: see [`LongMailbox::is_unread_since`]. The mailbox has not been empty
//! since the time `unread_since`.

use std::collections::BTreeMap;

use crate::platform::clock::Instant;
use crate::platform::sync::{Arc, Mutex};
use crate::process::mailbox::MailboxFigures;
use crate::process::pid::Pid;

/// Minimum length of a long mailbox.
pub(super) const LONG_MAILBOX: usize = 1_000;
/// Maximum number of mailboxes in a snapshot. With this maximum, a snapshot takes less than 100 KiB.
const MAX_LONG: usize = 1_024;

/// The stored snapshot of the long mailboxes of a runtime. The next call of `explain` compares a new snapshot with this
/// snapshot.
#[derive(Debug, Default)]
pub(crate) struct LastSnapshot(Mutex<Option<Arc<MailboxSnapshot>>>);

impl LastSnapshot {
    pub(super) fn get(&self) -> Option<Arc<MailboxSnapshot>> {
        self.0.lock().clone()
    }

    pub(super) fn set(&self, snapshot: MailboxSnapshot) {
        let former = self.0.lock().replace(Arc::new(snapshot));
        drop(former);
    }
}

/// Snapshot of the long mailboxes of a runtime. The runtime reads the mailboxes one after the other.
#[derive(Debug)]
pub(crate) struct MailboxSnapshot {
    /// Time of the snapshot. No mailbox was read before this time.
    pub(super) at: Instant,
    /// The [recent](crate::host::timer::Timers::recent) time when the snapshot was begun. If a mailbox becomes
    /// non-empty after the begin of this snapshot, the mailbox records this time or a later time.
    recent: Instant,
    mailboxes: BTreeMap<Pid, LongMailbox>,
}

/// Snapshot of one long mailbox.
#[derive(Debug, Clone, Copy)]
pub(super) struct LongMailbox {
    pub(super) len: usize,
    /// The time [`MailboxFigures::unread_since`] in ns.
    unread_since: u64,
    /// Number of steps that the process had completed when the mailbox was read. The value is `None` if code that can
    /// take out a message may have run while the mailbox was read. This code is a step of the process, or a receiver
    /// outside the steps of the process.
    steps_at_rest: Option<u64>,
}

impl LongMailbox {
    /// Creates the snapshot of a mailbox with these metrics. `steps_at_rest` is the number of steps of the process, if
    /// no step ran while the metrics were read. Returns `None` if the mailbox is not long, or if `unread_since` is not
    /// known.
    pub(super) fn new(figures: &MailboxFigures, steps_at_rest: Option<u64>) -> Option<Self> {
        let unread_since = figures.unread_since.filter(|_| figures.messages >= LONG_MAILBOX)?;
        let steps_at_rest = steps_at_rest.filter(|_| !figures.is_read_elsewhere);
        Some(Self { len: figures.messages, unread_since, steps_at_rest })
    }

    /// Returns true only if it is certain that the process has not taken out the oldest message since the earlier
    /// snapshot `former` of the mailbox. The snapshot `former` was begun at the recent time `recent`.
    ///
    /// When a process takes out the oldest message, the process resets the time `unread_since`. The next message that
    /// arrives sets `unread_since` to the recent time. The recent time never decreases. Two cases are possible. In the
    /// first case, the snapshot `former` contains a time earlier than `recent`. If the times of both snapshots are
    /// equal, the process has not reset the time between the two snapshots. In the second case, the snapshot `former`
    /// contains the time `recent` or a later time. A message that arrives later may set the same time again, so equal
    /// times prove nothing. Therefore, in the second case, this function returns true only if the process has not run
    /// between the two snapshots.
    fn is_unread_since(&self, former: &Self, recent: Instant) -> bool {
        let has_not_run = self.steps_at_rest.is_some() && self.steps_at_rest == former.steps_at_rest;
        self.unread_since == former.unread_since && (former.unread_since < recent.ns() || has_not_run)
    }
}

impl MailboxSnapshot {
    /// Begins a snapshot. The caller first reads the clock, which gives `at`, and then reads the recent time.
    pub(super) fn begin(at: Instant, recent: Instant) -> Self {
        Self { at, recent, mailboxes: BTreeMap::new() }
    }

    /// Adds a mailbox, if the snapshot contains fewer mailboxes than its maximum.
    pub(super) fn add(&mut self, pid: Pid, mailbox: LongMailbox) {
        if self.mailboxes.len() < MAX_LONG {
            self.mailboxes.insert(pid, mailbox);
        }
    }

    /// Returns the number of messages by which this process's mailbox has grown between an earlier snapshot and this
    /// snapshot: see [`growth`](Self::growth).
    pub(super) fn growth_since(&self, earlier: &Self, pid: Pid) -> Option<usize> {
        earlier.growth(pid, self.mailboxes.get(&pid)?)
    }

    /// Returns the number of messages by which this process's mailbox has grown since this snapshot. Returns `None` if
    /// the mailbox was not long, has not grown, or may have lost its oldest message since this snapshot.
    pub(super) fn growth(&self, pid: Pid, now: &LongMailbox) -> Option<usize> {
        let former = self.mailboxes.get(&pid)?;
        let grown_by = now.len.checked_sub(former.len).filter(|more| *more != 0)?;
        now.is_unread_since(former, self.recent).then_some(grown_by)
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;

    fn pid() -> Pid {
        let rt = crate::Runtime::builder().workers(0).build().expect("no threads");
        rt.spawn(async |_: crate::Context| ()).pid()
    }

    fn mailbox(len: usize, unread_since: u64, steps: u64, is_at_rest: bool) -> LongMailbox {
        LongMailbox { len, unread_since, steps_at_rest: is_at_rest.then_some(steps) }
    }

    #[test]
    fn a_mailbox_grows_only_if_it_was_not_read_between_the_snapshots() {
        let pid = pid();
        // The previous snapshot was begun when the recent time of the clock was 100.
        let growth = |former, now| {
            let mut snapshot = MailboxSnapshot::begin(Instant::from_ns(110), Instant::from_ns(100));
            snapshot.add(pid, former);
            snapshot.growth(pid, &now)
        };
        let table = [
            // The mailbox was unread for some time before the earlier snapshot. The process may run other steps.
            (mailbox(1_000, 99, 1, true), mailbox(1_003, 99, 1, true), Some(3)),
            (mailbox(1_000, 99, 1, true), mailbox(1_003, 99, 7, false), Some(3)),
            (mailbox(1_000, 99, 1, false), mailbox(1_003, 99, 1, false), Some(3)),
            // The mailbox was read.
            (mailbox(1_000, 99, 1, true), mailbox(1_003, 100, 2, true), None),
            // The mailbox has not grown.
            (mailbox(1_000, 99, 1, true), mailbox(1_000, 99, 1, true), None),
            (mailbox(1_000, 99, 1, true), mailbox(999, 99, 1, true), None),
            // The mailbox may have been read and filled again at the same recent time.
            (mailbox(1_000, 100, 1, true), mailbox(1_003, 100, 1, true), Some(3)),
            (mailbox(1_000, 100, 1, true), mailbox(1_003, 100, 2, true), None),
            (mailbox(1_000, 100, 1, false), mailbox(1_003, 100, 1, true), None),
            (mailbox(1_000, 100, 1, true), mailbox(1_003, 100, 1, false), None),
            (mailbox(1_000, 100, 1, false), mailbox(1_003, 100, 1, false), None),
        ];
        for (number, (former, now, expected)) in table.into_iter().enumerate() {
            assert_eq!(growth(former, now), expected, "row {number}");
        }
    }

    #[test]
    fn a_snapshot_has_a_bounded_number_of_mailboxes() {
        let rt = crate::Runtime::builder().workers(0).build().expect("no threads");
        let mut snapshot = MailboxSnapshot::begin(Instant::from_ns(2), Instant::from_ns(2));
        for _ in 0..=MAX_LONG {
            snapshot.add(rt.spawn(async |_: crate::Context| ()).pid(), mailbox(1_000, 1, 1, true));
        }
        assert_eq!(snapshot.mailboxes.len(), MAX_LONG);
    }
}

//! Selects the first rows in the order of a query. The rows are in a heap, whose maximum size is the limit of the
//! query.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::observe::inspection::{ProcessColumn, ProcessInfo, ProcessQuery};
use crate::platform::clock::Instant;

/// The first rows in the order of `T`. The memory is proportional to the limit, and not to the number of added rows.
#[derive(Debug)]
pub(crate) struct FirstRows<T> {
    limit: usize,
    /// Heap of the selected rows. The greatest row of the heap is the last selected row.
    rows: BinaryHeap<T>,
}

impl<T: Ord> FirstRows<T> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, rows: BinaryHeap::new() }
    }

    /// Adds a row. If the number of rows then exceeds the limit, drops the last row.
    pub(crate) fn add(&mut self, row: T) {
        if self.rows.len() < self.limit {
            self.rows.push(row);
        } else if let Some(mut last) = self.rows.peek_mut()
            && row < *last
        {
            *last = row;
        }
    }

    /// Returns the rows in ascending order.
    pub(crate) fn into_sorted(self) -> impl Iterator<Item = T> {
        self.rows.into_sorted_vec().into_iter()
    }
}

/// Rows that were selected so far.
#[derive(Debug)]
pub(crate) struct Ranking {
    column: ProcessColumn,
    descending: bool,
    rows: FirstRows<Ranked>,
}

#[derive(Debug)]
struct Ranked {
    column: ProcessColumn,
    descending: bool,
    row: ProcessInfo,
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = compare(self.column, &self.row, &other.row);
        let order = if self.descending { order.reverse() } else { order };
        order.then_with(|| self.row.pid.cmp(&other.row.pid))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ranked {}

/// A row without a time comes after all rows with a time.
fn by_time(one: Option<Instant>, other: Option<Instant>) -> Ordering {
    let order = |time: Option<Instant>| time.unwrap_or(Instant::FAR);
    order(one).cmp(&order(other))
}

fn compare(column: ProcessColumn, one: &ProcessInfo, other: &ProcessInfo) -> Ordering {
    match column {
        ProcessColumn::Pid => one.pid.cmp(&other.pid),
        ProcessColumn::Name => one.name.cmp(&other.name),
        ProcessColumn::TypeName => one.type_name.cmp(other.type_name),
        ProcessColumn::State => one.state.cmp(&other.state),
        ProcessColumn::WaitingSince => by_time(one.waiting_since, other.waiting_since),
        ProcessColumn::Priority => one.priority.cmp(&other.priority),
        ProcessColumn::MailboxLen => one.mailbox_len.cmp(&other.mailbox_len),
        ProcessColumn::Signals => one.signals.cmp(&other.signals),
        ProcessColumn::MailboxPeak => one.mailbox_peak.cmp(&other.mailbox_peak),
        ProcessColumn::UnreadSince => by_time(one.unread_since, other.unread_since),
        ProcessColumn::Yields => one.yields.cmp(&other.yields),
        ProcessColumn::Waits => one.waits.cmp(&other.waits),
        ProcessColumn::Links => one.links.cmp(&other.links),
        ProcessColumn::Monitors => one.monitors.cmp(&other.monitors),
        ProcessColumn::MonitoredBy => one.monitored_by.cmp(&other.monitored_by),
        ProcessColumn::Steps => one.steps.cmp(&other.steps),
        ProcessColumn::LastWorker => one.last_worker.cmp(&other.last_worker),
    }
}

impl Ranking {
    pub(crate) fn new(query: &ProcessQuery) -> Self {
        let (column, descending) = query.order.unwrap_or((ProcessColumn::Pid, false));
        Self { column, descending, rows: FirstRows::new(query.limit.unwrap_or(usize::MAX)) }
    }

    /// Adds a row. If the number of rows then exceeds the limit, drops the last row in the order of the query.
    pub(crate) fn add(&mut self, row: ProcessInfo) {
        self.rows.add(Ranked { column: self.column, descending: self.descending, row });
    }

    /// Returns the rows in the order of the query.
    pub(crate) fn into_rows(self) -> Vec<ProcessInfo> {
        self.rows.into_sorted().map(|ranked| ranked.row).collect()
    }
}

//! The rates of the process that the view `Process` shows. The console computes the rates from the replies of the
//! server. The server counts the steps of each process, but not the messages. Therefore the console measures the
//! messages with a live trace, and only after the user has asked for this measurement.

use std::collections::VecDeque;

use crate::app::HISTORY;
use crate::model::Details;
use crate::trace::Trace;

/// Rates of one process, oldest first.
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "the names of the fields are enough")]
pub struct Rates {
    pid: String,
    /// Time and number of steps in the last snapshot.
    last: Option<(u64, u64)>,
    /// Steps per second.
    pub steps: VecDeque<u64>,
    /// Number of messages in the mailbox.
    pub mailbox: VecDeque<u64>,
    pub messages: MessageRates,
}

/// Number of messages that the process receives per second.
#[derive(Debug, Default)]
pub struct MessageRates {
    /// Whether the user has asked for the measurement.
    pub is_on: bool,
    /// Counts of the last snapshot.
    last: Option<Counts>,
    /// Messages per second, oldest first.
    pub rates: VecDeque<u64>,
    /// Whether the trace has lost events since the last snapshot. The last rate is then an estimate.
    pub is_estimate: bool,
}

/// Counts of a live trace.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    now_ns: u64,
    received: u64,
    events: u64,
    lost: u64,
}

impl Rates {
    /// Adds a snapshot of a process. If the snapshot belongs to another process, removes the earlier snapshots.
    pub fn add(&mut self, details: &Details) {
        let (pid, now, steps) = (&details.info.pid, details.now_ns, details.info.steps);
        let is_same = *pid == self.pid && self.last.is_some_and(|(time, count)| time <= now && count <= steps);
        if !is_same {
            let messages = std::mem::take(&mut self.messages);
            // The user may ask for the measurement before the first snapshot.
            let messages = if self.last.is_none() { messages } else { MessageRates::default() };
            *self = Self { pid: pid.clone(), messages, ..Self::default() };
        }
        if let Some((time, count)) = self.last {
            push(&mut self.steps, per_second((steps - count) as f64, now - time));
        }
        push(&mut self.mailbox, details.info.mailbox_len);
        self.last = Some((now, steps));
    }
}

impl MessageRates {
    /// Begins or ends the measurement.
    pub fn toggle(&mut self) {
        *self = Self { is_on: !self.is_on, ..Self::default() };
    }

    /// Adds a snapshot of the live trace. A new trace counts from zero.
    ///
    /// A process with many messages exceeds the limits of the trace. The trace then skips whole turns, and counts the
    /// skipped events as lost. The console assumes that the lost events contain the same share of messages as the other
    /// events.
    pub fn add(&mut self, trace: &Trace) {
        let Trace { now_ns, received, read: events, lost, .. } = *trace;
        let now = Counts { now_ns, received, events, lost };
        let last = self.last.replace(now);
        let Some(last) = last.filter(|last| last.now_ns < now_ns && last.events <= events && last.lost <= lost) else {
            return;
        };
        let (events, lost) = ((events - last.events) as f64, (lost - last.lost) as f64);
        let share = if events == 0.0 { 1.0 } else { (events + lost) / events };
        self.is_estimate = lost != 0.0;
        push(&mut self.rates, per_second(received.saturating_sub(last.received) as f64 * share, now_ns - last.now_ns));
    }

    /// Removes the counts of the previous trace, because a new trace begins.
    pub fn restart(&mut self) {
        self.last = None;
    }
}

fn per_second(count: f64, ns: u64) -> u64 {
    (count * 1e9 / ns.max(1) as f64).round() as u64
}

fn push(history: &mut VecDeque<u64>, value: u64) {
    history.push_back(value);
    history.drain(..history.len().saturating_sub(HISTORY));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Row;

    fn details(pid: &str, seconds: u64, steps: u64, mailbox_len: u64) -> Details {
        let info = Row { pid: pid.into(), steps, mailbox_len, ..Row::default() };
        Details { now_ns: seconds * 1_000_000_000, info, ..Details::default() }
    }

    #[test]
    fn the_rates_belong_to_one_process() {
        let mut rates = Rates::default();
        for (seconds, steps, len) in [(1, 100, 5), (2, 150, 6), (4, 450, 0)] {
            rates.add(&details("<1.0.1>", seconds, steps, len));
        }
        assert_eq!(
            (rates.steps.make_contiguous(), rates.mailbox.make_contiguous()),
            (&mut [50, 150][..], &mut [5, 6, 0][..])
        );
        rates.add(&details("<1.1.1>", 5, 1_000, 9));
        assert_eq!((rates.steps.len(), rates.mailbox.make_contiguous()), (0, &mut [9][..]));
        // The counters of a restarted program begin at 0.
        rates.add(&details("<1.1.1>", 1, 10, 3));
        assert_eq!((rates.steps.len(), rates.mailbox.len()), (0, 1));
        (0..2 * HISTORY as u64).for_each(|second| rates.add(&details("<1.1.1>", 2 + second, 10, 3)));
        assert_eq!(rates.steps.len(), HISTORY);
    }

    #[test]
    fn lost_events_contain_the_same_share_of_messages() {
        let mut messages = MessageRates::default();
        messages.toggle();
        let mut add = |seconds: u64, received, read, lost| {
            let now_ns = seconds * 1_000_000_000;
            messages.add(&Trace { now_ns, received, read, lost, ..Trace::default() });
            (messages.rates.back().copied(), messages.is_estimate)
        };
        assert_eq!(add(1, 7, 20, 0), (None, false));
        assert_eq!(add(3, 27, 120, 0), (Some(10), false));
        assert_eq!(add(4, 47, 220, 300), (Some(80), true));
        // A new trace counts from zero.
        assert_eq!(add(5, 1, 5, 0), (Some(80), true));
        assert_eq!(add(6, 4, 20, 0), (Some(3), false));
        messages.toggle();
        assert!(!messages.is_on && messages.rates.is_empty());
    }
}

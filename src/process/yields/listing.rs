//! Lists the outstanding commands of a process by command type, for inspection. The list is read in pieces, so that the
//! lock of the table is held only briefly.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::platform::static_ref::Line;
use crate::process::event::Tag;
use crate::process::yields::table::Slot;
use crate::process::yields::{CallInfo, LockedTable, SharedTable, YieldInfo, Yields};

/// Maximum number of slots that are read under one lock operation.
const PIECE: usize = 256;

/// Number of outstanding commands of each command type, by the name of the type.
pub(crate) type CommandCounts = BTreeMap<&'static str, Outstanding>;

/// The outstanding commands of one type.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Outstanding {
    pub(crate) count: usize,
    /// Number of these commands that are streams.
    pub(crate) streams: usize,
    /// Time at which the oldest measured command was yielded, in ns of the runtime's clock. Only one command in 64 is
    /// measured. Streams are not included.
    pub(crate) oldest_measured: Option<u64>,
    /// Like `oldest_measured`, for the streams.
    pub(crate) oldest_measured_stream: Option<u64>,
    /// Number of these commands that are calls of hand-written processes.
    pub(crate) calls: usize,
    /// Source line that yielded one of the commands, if the line is known. This command is not a call: see
    /// `line_of_call`.
    pub(crate) line: Line,
    /// Source line of one of the calls.
    pub(crate) line_of_call: Line,
    /// The earliest [`CountedTable::waiting_since`] of the processes that yielded the commands, in ns. Streams are not
    /// included.
    pub(crate) waiting_since: Option<u64>,
    /// Type name of the handler of the command type. `None` if no handler is known.
    pub(crate) handler: Option<&'static str>,
}

/// A call of a hand-written process that has no reply yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct YieldedCall {
    /// Number of the tag of the call.
    pub(crate) number: u64,
    pub(crate) call: CallInfo,
    /// Source line that made the call.
    pub(crate) line: Line,
}

/// The part of a table of yields that was not counted yet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CountedTable {
    /// Key at which the next piece begins.
    pub(crate) from: usize,
    /// Time in ns at which the process began to wait. All commands of the process were yielded before this time. `None`
    /// if the process does not wait, or if the time is not known. The time is used for the first piece only, because
    /// the process may run before the next piece is counted.
    pub(crate) waiting_since: Option<u64>,
}

/// Returns the earlier of two times. A time that is not known is ignored.
fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

impl Yields {
    /// Returns the memory of the table in bytes, without the commands and the answers in the table.
    pub(crate) fn bytes(&self) -> usize {
        let Some(table) = self.table() else { return 0 };
        size_of::<SharedTable>() + table.slots.bytes() + table.states.bytes()
    }

    /// Counts the commands in one piece of the table. Returns the rest of the table, or `None` at the end of the table.
    /// When this function counts the first command of a type, this function calls `handler_of`. The closure returns the
    /// type name of the handler for this type.
    pub(crate) fn count_commands(
        &self,
        CountedTable { from, waiting_since }: CountedTable,
        handler_of: &dyn Fn(&str) -> Option<&'static str>,
        counts: &mut CommandCounts,
    ) -> Option<CountedTable> {
        let table = self.table()?;
        let to = (from + PIECE).min(table.slots.key_limit());
        for slot in table.in_flight(from..to) {
            let command = (slot.types)().command_name;
            let new = || Outstanding { handler: handler_of(command), ..Outstanding::default() };
            let outstanding = counts.entry(command).or_insert_with(new);
            outstanding.count += 1;
            if slot.info.call.is_some() {
                outstanding.calls += 1;
                outstanding.line_of_call = outstanding.line_of_call.or(slot.info.line);
            } else {
                outstanding.line = outstanding.line.or(slot.info.line);
            }
            // The list of the measured commands is short, and usually empty.
            let measured = table.since(slot.number);
            if slot.buffer.is_some() {
                outstanding.streams += 1;
                outstanding.oldest_measured_stream = earlier(outstanding.oldest_measured_stream, measured);
            } else {
                outstanding.oldest_measured = earlier(outstanding.oldest_measured, measured);
                outstanding.waiting_since = earlier(outstanding.waiting_since, waiting_since);
            }
        }
        (to < table.slots.key_limit()).then_some(CountedTable { from: to, waiting_since: None })
    }

    /// Adds the calls in one piece of the table to `calls`, if these calls have no reply yet. The piece begins at the
    /// key `from`. Returns the key at which the next piece begins, or `None` if no further call exists. Only a
    /// hand-written process yields calls.
    pub(crate) fn list_calls(&self, from: usize, calls: &mut Vec<YieldedCall>) -> Option<usize> {
        let table = self.table()?;
        let to = (from + PIECE).min(table.slots.key_limit());
        if table.calls != 0 {
            calls.extend(table.in_flight(from..to).filter_map(|slot| {
                let YieldInfo { line, call } = slot.info;
                Some(YieldedCall { number: slot.number, call: call?, line })
            }));
        }
        let are_listed = calls.len() >= table.calls as usize;
        (to < table.slots.key_limit() && !are_listed).then_some(to)
    }

    /// Returns the number of outstanding calls of a hand-written process. The number may include calls whose replies
    /// the process has not read yet.
    pub(crate) fn outstanding_calls(&self) -> usize {
        if self.outstanding() == 0 { 0 } else { self.table().map_or(0, |table| table.calls as usize) }
    }
}

impl LockedTable<'_> {
    /// Returns the slots with these keys whose commands have no answer yet.
    fn in_flight(&self, keys: Range<usize>) -> impl Iterator<Item = &Slot> {
        let slots = keys.filter_map(|key| Some((key, self.slots.get(key)?)));
        let is_answered = |key, slot: &Slot| self.states.is_answered(Tag::of_slot(slot.number, key as u32));
        slots.filter(move |&(key, slot)| slot.is_in_flight() && !is_answered(key, slot)).map(|(_, slot)| slot)
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::any::type_name;
    use std::panic::Location;

    use super::*;
    use crate::process::command::NamedCommand;
    use crate::process::payload::Payload;
    use crate::process::yields::buffer::Buffer;
    use crate::process::yields::tests::answer;
    use crate::process::yields::tests::start;
    use crate::process::yields::{AnswerTarget, Answerer};

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

    /// The combined count contains the earliest waiting time and the first handler.
    #[test]
    fn the_counts_of_several_tables_are_combined() {
        let (yields, mut counts) = (Yields::new(), CommandCounts::new());
        let _tag = start(&yields);
        let rows = [(None, "one", None), (Some(7), "two", Some(7)), (Some(9), "two", Some(7)), (Some(3), "", Some(3))];
        for (waiting_since, handler, earliest) in rows {
            let rest = yields.count_commands(CountedTable { from: 0, waiting_since }, &|_| Some(handler), &mut counts);
            let counted = counts[type_name::<NamedCommand>()];
            assert!(rest.is_none());
            assert_eq!((counted.waiting_since, counted.handler), (earliest, Some("one")));
        }
        assert_eq!(counts[type_name::<NamedCommand>()].count, rows.len());
    }

    /// Each stream is counted. The line belongs to one of the commands.
    #[test]
    fn streams_are_counted_and_the_line_of_a_command_is_kept() {
        let (yields, mut counts) = (Yields::new(), CommandCounts::new());
        let line = Some(Location::caller());
        for _ in 0..3 {
            let (command, buffer) = (Some(Payload::new(())), Some(Buffer::new(1)));
            yields
                .start::<NamedCommand>(AnswerTarget::Event, None, command, buffer, YieldInfo::at(line))
                .expect("no tag");
        }
        assert!(yields.count_commands(CountedTable::default(), &|_| None, &mut counts).is_none());
        let counted = counts[type_name::<NamedCommand>()];
        assert_eq!((counted.count, counted.streams), (3, 3));
        assert!(counted.line.is_some());
    }

    /// 9.2d: an answered call is not listed. The list shows whether a call has a time limit.
    #[test]
    fn the_calls_without_a_reply_are_listed() {
        let yields = Yields::new();
        let call = |callee| {
            let info = YieldInfo { line: None, call: Some(CallInfo { callee, is_limited: false }) };
            yields.start::<NamedCommand>(AnswerTarget::Event, None, None, None, info).expect("no tag").erase()
        };
        let listed = || {
            let (mut listed, mut from, mut pieces) = (Vec::new(), Some(0), 0);
            while let Some(next) = from {
                from = yields.list_calls(next, &mut listed);
                pieces += 1;
            }
            (listed, pieces)
        };
        assert!(listed().0.is_empty());
        let _command = start(&yields);
        let calls: Vec<_> = (0..600).map(call).collect();
        assert_eq!(yields.outstanding_calls(), 600);
        assert!(yields.cancel(calls[0]) && answer(&yields, calls[599], Answerer::Completion).is_ok());
        yields.note_limit(calls[300]);
        let (found, pieces) = listed();
        assert_eq!(found.iter().map(|found| found.call.callee).collect::<Vec<_>>(), Vec::from_iter(1..599));
        assert_eq!(found.iter().map(|found| found.number).collect::<Vec<_>>(), Vec::from_iter(2..600));
        assert_eq!(found.iter().filter(|found| found.call.is_limited).count(), 1);
        assert!(found[299].call.is_limited && pieces >= 3);
        calls[1..].iter().for_each(|call| _ = yields.cancel(*call));
        assert_eq!((yields.outstanding_calls(), listed().1), (0, 1), "the rest of the table is not searched");
    }

    #[test]
    fn commands_are_counted_in_pieces() {
        let yields = Yields::new();
        for _ in 0..1_025 {
            let _tag = start(&yields);
        }
        let (mut counts, mut rest) = (CommandCounts::new(), Some(CountedTable::default()));
        for piece in 1..=5 {
            rest = yields.count_commands(rest.expect("there are 5 pieces"), &|_| None, &mut counts);
            assert_eq!(counts[type_name::<NamedCommand>()].count, 1_025.min(256 * piece));
        }
        assert_eq!((rest.is_none(), counts.len()), (true, 1));
    }
}

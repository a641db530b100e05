//! The packets of a Perfetto trace: tracks, slices, instants and counters.
//!
//! A trace is a sequence of `TracePacket` messages without a header or a trailer. Therefore an incomplete trace is
//! readable up to its last whole packet. All packets belong to one sequence, so the trace contains each name only once.
//! The field numbers come from `protos/perfetto/trace` in the repository of Perfetto.

use std::collections::BTreeSet;

use crate::observe::trace::proto::Message;

/// Fields of `TracePacket`.
mod packet {
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE_ID: u32 = 10;
    pub(super) const TRACK_EVENT: u32 = 11;
    pub(super) const INTERNED_DATA: u32 = 12;
    pub(super) const SEQUENCE_FLAGS: u32 = 13;
    pub(super) const TRACK_DESCRIPTOR: u32 = 60;
    pub(super) const FIRST_ON_SEQUENCE: u32 = 87;
}

/// Values of `TracePacket.sequence_flags`.
const STATE_CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;

/// Fields of `TrackEvent`.
mod event {
    pub(super) const CATEGORY_IIDS: u32 = 3;
    pub(super) const ANNOTATION: u32 = 4;
    pub(super) const TYPE: u32 = 9;
    pub(super) const NAME_IID: u32 = 10;
    pub(super) const TRACK: u32 = 11;
    pub(super) const COUNTER_VALUE: u32 = 30;
    pub(super) const FLOWS: u32 = 47;
    pub(super) const ENDED_FLOWS: u32 = 48;
}

/// Values of `TrackEvent.type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Begin = 1,
    End = 2,
    Instant = 3,
    Counter = 4,
}

/// Fields of `InternedData`.
mod interned {
    pub(super) const CATEGORIES: u32 = 1;
    pub(super) const EVENT_NAMES: u32 = 2;
    pub(super) const ANNOTATION_NAMES: u32 = 3;
}

/// Fields of `DebugAnnotation`.
mod annotation {
    pub(super) const NAME_IID: u32 = 1;
    pub(super) const UINT: u32 = 3;
    pub(super) const STRING: u32 = 6;
}

/// Fields of `TrackDescriptor`.
mod track {
    pub(super) const UUID: u32 = 1;
    pub(super) const NAME: u32 = 2;
    pub(super) const PARENT: u32 = 5;
    pub(super) const COUNTER: u32 = 8;
    pub(super) const CHILD_ORDERING: u32 = 11;
    pub(super) const RANK: u32 = 12;
    /// Value of the field `child_ordering`: the children have ranks.
    pub(super) const EXPLICIT: u64 = 3;
    /// Field `unit` of `CounterDescriptor`, and the value of this field for a count.
    pub(super) const UNIT: u32 = 3;
    pub(super) const UNIT_COUNT: u64 = 2;
}

/// Id of the packet sequence. A trace has only one packet sequence.
const SEQUENCE: u64 = 1;

/// Track of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Track {
    Runtime,
    Workers,
    Processes,
    Counters,
    /// The counter with this number.
    Counter(u8),
    /// The lane with this number, which is the track of a thread.
    Lane(u16),
    /// The states of a process.
    Process(u64),
}

impl Track {
    /// Returns the id of the track. The function `mix` computes the id.
    pub(super) fn uuid(self) -> u64 {
        let (kind, number) = match self {
            Self::Runtime => (1, 0),
            Self::Workers => (2, 0),
            Self::Processes => (3, 0),
            Self::Lane(lane) => (4, u64::from(lane)),
            Self::Process(process) => (5, process),
            Self::Counters => (6, 0),
            Self::Counter(counter) => (7, u64::from(counter)),
        };
        // The id 0 has a special meaning.
        mix(kind, number).max(1)
    }
}

/// Returns an id for two numbers. The computation is the finalizer of splitmix64 (Steele, Lea and Flood, 2014). For a
/// fixed first number, different second numbers have different ids, because each step is invertible.
pub(super) fn mix(one: u64, two: u64) -> u64 {
    let mixed = two.wrapping_add(one.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Arrow between two events. The arrow begins at the event with `From`, and ends at the event with `To`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    None,
    From(u64),
    To(u64),
}

/// Name of an event: a fixed name, or the label with this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Title {
    Fixed(Word),
    Label(u32),
}

macro_rules! words {
    ($($name:ident => $text:literal,)*) => {
        /// A fixed name of events, categories and annotations.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Word {
            $($name,)*
        }
        const WORDS: &[&str] = &[$($text),*];
    };
}

words! {
    // Categories.
    Step => "step",
    Init => "init",
    Exit => "exit",
    State => "state",
    Worker => "worker",
    Process => "process",
    Lost => "lost",
    Message => "message",
    Command => "command",
    // States of processes.
    Ready => "ready",
    Running => "running",
    Blocked => "blocked",
    Idle => "idle",
    Suspended => "suspended",
    // States of workers.
    Searching => "searching",
    Parked => "parked",
    LongStep => "blocked worker",
    // Instants.
    Spawn => "spawn",
    Steal => "steal",
    Preempted => "preempted",
    Send => "send",
    Receive => "receive",
    Yield => "yield",
    Completion => "completion",
    // Annotations.
    Pid => "pid",
    Parent => "parent",
    To => "to",
    Victim => "victim",
    Count => "count",
}

impl Word {
    /// Id of the word in the interned data. The id 0 means "no id".
    fn iid(self) -> u64 {
        self as u64 + 1
    }
}

/// The interned event names contain words and labels. This number is the id of the first label.
const FIRST_LABEL: u64 = 1 << 10;

/// Value of an annotation.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    Text(&'a str),
    Number(u64),
}

/// An event on a track.
#[derive(Debug)]
pub(super) struct TrackEvent<'a> {
    pub(super) at: u64,
    pub(super) kind: Kind,
    pub(super) track: Track,
    pub(super) category: Word,
    pub(super) title: Title,
    pub(super) notes: &'a [(Word, Value<'a>)],
    pub(super) flow: Flow,
}

/// Encodes packets.
#[derive(Debug)]
pub(super) struct Packets {
    out: Message,
    /// The labels that the trace already contains.
    labels: BTreeSet<u32>,
}

impl Packets {
    /// Begins a trace. The first packets describe the tracks that have children. `title` is the name of the runtime.
    pub(super) fn new(title: &str) -> Self {
        let mut packets = Self { out: Message::default(), labels: BTreeSet::new() };
        packets.packet(|packet| {
            packet.varint(packet::FIRST_ON_SEQUENCE, 1).varint(packet::SEQUENCE_FLAGS, STATE_CLEARED);
            packet.message(packet::INTERNED_DATA, |data| {
                for (number, text) in WORDS.iter().enumerate() {
                    for table in [interned::CATEGORIES, interned::EVENT_NAMES, interned::ANNOTATION_NAMES] {
                        data.message(table, |entry| {
                            entry.varint(1, number as u64 + 1).string(2, text);
                        });
                    }
                }
            });
        });
        packets.describe(Track::Runtime, title, None, 0);
        packets.describe(Track::Workers, "Workers", Some(Track::Runtime), 0);
        packets.describe(Track::Processes, "Processes", Some(Track::Runtime), 1);
        packets.describe(Track::Counters, "Counters", Some(Track::Runtime), 2);
        packets
    }

    /// Returns the bytes of the packets since the last call of [`clear`](Self::clear).
    pub(super) fn bytes(&self) -> &[u8] {
        self.out.bytes()
    }

    pub(super) fn clear(&mut self) {
        self.out.clear();
    }

    /// Describes a track. The children of a track are ordered by rank.
    pub(super) fn describe(&mut self, track: Track, name: &str, parent: Option<Track>, rank: u64) {
        self.packet(|packet| {
            packet.message(packet::TRACK_DESCRIPTOR, |descriptor| {
                descriptor.varint(track::UUID, track.uuid()).string(track::NAME, name);
                if let Some(parent) = parent {
                    descriptor.varint(track::PARENT, parent.uuid()).varint(track::RANK, rank);
                }
                if matches!(track, Track::Runtime | Track::Workers | Track::Counters) {
                    descriptor.varint(track::CHILD_ORDERING, track::EXPLICIT);
                }
                if let Track::Counter(_) = track {
                    descriptor.message(track::COUNTER, |counter| {
                        counter.varint(track::UNIT, track::UNIT_COUNT);
                    });
                }
            });
        });
    }

    /// Writes the value of a counter.
    pub(super) fn count(&mut self, at: u64, track: Track, value: u64) {
        self.packet(|packet| {
            packet.varint(packet::TIMESTAMP, at).varint(packet::SEQUENCE_FLAGS, NEEDS_STATE);
            packet.message(packet::TRACK_EVENT, |message| {
                message.varint(event::TYPE, Kind::Counter as u64).varint(event::TRACK, track.uuid());
                message.varint(event::COUNTER_VALUE, value);
            });
        });
    }

    /// Writes a packet that contains only a time.
    pub(super) fn beat(&mut self, at: u64) {
        self.packet(|packet| {
            packet.varint(packet::TIMESTAMP, at);
        });
    }

    /// Writes an event. `text` returns the text of a label that was not written yet.
    pub(super) fn event(&mut self, event: &TrackEvent<'_>, text: impl FnOnce(u32) -> String) {
        let new_label = match event.title {
            Title::Label(label) if event.kind != Kind::End && self.labels.insert(label) => Some(label),
            _ => None,
        };
        self.packet(|packet| {
            packet.varint(packet::TIMESTAMP, event.at).varint(packet::SEQUENCE_FLAGS, NEEDS_STATE);
            if let Some(label) = new_label {
                packet.message(packet::INTERNED_DATA, |data| {
                    data.message(interned::EVENT_NAMES, |entry| {
                        entry.varint(1, FIRST_LABEL + u64::from(label)).string(2, &text(label));
                    });
                });
            }
            packet.message(packet::TRACK_EVENT, |message| {
                message.varint(event::TYPE, event.kind as u64).varint(event::TRACK, event.track.uuid());
                if event.kind == Kind::End {
                    return;
                }
                let name = match event.title {
                    Title::Fixed(word) => word.iid(),
                    Title::Label(label) => FIRST_LABEL + u64::from(label),
                };
                message.varint(event::CATEGORY_IIDS, event.category.iid()).varint(event::NAME_IID, name);
                for (name, value) in event.notes {
                    message.message(event::ANNOTATION, |note| {
                        note.varint(annotation::NAME_IID, name.iid());
                        match *value {
                            Value::Text(text) => note.string(annotation::STRING, text),
                            Value::Number(number) => note.varint(annotation::UINT, number),
                        };
                    });
                }
                match event.flow {
                    Flow::None => message,
                    Flow::From(id) => message.fixed64(event::FLOWS, id),
                    Flow::To(id) => message.fixed64(event::ENDED_FLOWS, id),
                };
            });
        });
    }

    /// Appends a packet to the trace.
    fn packet(&mut self, fill: impl FnOnce(&mut Message)) {
        // In the message of a trace, each packet is a field with the number 1.
        self.out.message(1, |packet| {
            packet.varint(packet::SEQUENCE_ID, SEQUENCE);
            fill(packet);
        });
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_ids_of_tracks_differ() {
        let tracks = [Track::Runtime, Track::Workers, Track::Processes, Track::Counters].into_iter();
        let tracks = tracks
            .chain((0..9).map(Track::Counter))
            .chain((0..100).map(Track::Lane))
            .chain((0..1_000).map(Track::Process));
        let count = tracks.clone().count();
        assert_eq!(tracks.map(Track::uuid).collect::<BTreeSet<_>>().len(), count);
    }

    #[test]
    fn fixed_names_and_labels_have_different_ids() {
        assert!((WORDS.len() as u64) < FIRST_LABEL && Word::Count.iid() == WORDS.len() as u64);
    }
}

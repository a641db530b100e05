//! Decoder of the parts of Perfetto traces that the tests need, and a writer that keeps a trace in memory.
//!
//! The decoder shares no code with the encoder of the crate. The files in `protos/perfetto/trace` in the repository of
//! Perfetto define the format. The decoder uses the field numbers of these files, and checks the rules that the files
//! state.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

/// Writer that stores its bytes in memory, so that the test can read them.
#[derive(Clone, Default)]
pub(crate) struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Buffer {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

/// Value of a protobuf field.
#[derive(Debug, Clone, Copy)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    fn number(self) -> u64 {
        let Value::Number(number) = self else { panic!("{self:?} is not a number") };
        number
    }

    fn bytes(self) -> &'a [u8] {
        let Value::Bytes(bytes) = self else { panic!("{self:?} has no bytes") };
        bytes
    }

    fn text(self) -> String {
        String::from_utf8(self.bytes().to_vec()).expect("UTF-8")
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    panic!("a varint has at most ten bytes")
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (first, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(first)
}

/// Removes the first field from the bytes. Returns `None` if the field is not complete.
fn field<'a>(bytes: &mut &'a [u8]) -> Option<(u64, Value<'a>)> {
    let tag = varint(bytes)?;
    let value = match tag & 7 {
        0 => Value::Number(varint(bytes)?),
        1 => Value::Number(u64::from_le_bytes(take(bytes, 8)?.try_into().expect("eight bytes"))),
        2 => {
            let length = usize::try_from(varint(bytes)?).expect("a length");
            Value::Bytes(take(bytes, length)?)
        }
        other => panic!("wire type {other}"),
    };
    Some((tag >> 3, value))
}

/// Returns all fields of a complete message.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Value<'_>)> {
    std::iter::from_fn(|| (!bytes.is_empty()).then(|| field(&mut bytes).expect("a whole message"))).collect()
}

fn first<'a>(fields: &[(u64, Value<'a>)], number: u64) -> Option<Value<'a>> {
    fields.iter().find(|(field, _)| *field == number).map(|(_, value)| *value)
}

fn all<'a>(fields: &[(u64, Value<'a>)], number: u64) -> impl Iterator<Item = Value<'a>> {
    fields.iter().filter(move |(field, _)| *field == number).map(|(_, value)| *value)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Begin,
    End,
    Instant,
    Counter,
}

#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) at: u64,
    pub(super) kind: Kind,
    pub(super) track: u64,
    pub(super) name: String,
    pub(super) category: String,
    pub(super) notes: BTreeMap<String, String>,
    pub(super) flows: Vec<u64>,
    pub(super) ended_flows: Vec<u64>,
    pub(super) count: u64,
}

/// A slice with its track, name and category.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) track: String,
    pub(super) name: String,
    pub(super) category: String,
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) pid: Option<String>,
}

/// A decoded trace.
#[derive(Debug, Default)]
pub(super) struct Decoded {
    /// Name and parent of each track.
    pub(super) tracks: BTreeMap<u64, (String, Option<u64>)>,
    /// The events, ordered by time. Events with the same time are in the order of the file.
    pub(super) events: Vec<Event>,
    /// Number of whole packets.
    pub(super) packets: usize,
}

#[derive(Default)]
struct Names {
    categories: BTreeMap<u64, String>,
    events: BTreeMap<u64, String>,
    notes: BTreeMap<u64, String>,
}

/// Decodes the complete packets of a trace. The trace may be cut off.
pub(super) fn decode(mut bytes: &[u8]) -> Decoded {
    let (mut decoded, mut names) = (Decoded::default(), Names::default());
    while let Some((number, packet)) = field(&mut bytes) {
        assert_eq!(number, 1, "a trace contains only packets");
        let packet = fields(packet.bytes());
        assert!(first(&packet, 10).is_some_and(|sequence| sequence.number() != 0), "a packet has a sequence");
        let flags = first(&packet, 13).map_or(0, Value::number);
        assert!(decoded.packets != 0 || flags & 1 != 0, "the first packet begins the interned names");
        if let Some(data) = first(&packet, 12) {
            let data = fields(data.bytes());
            for (number, table) in [(1, &mut names.categories), (2, &mut names.events), (3, &mut names.notes)] {
                for entry in all(&data, number) {
                    let entry = fields(entry.bytes());
                    let (id, name) = (first(&entry, 1).expect("an id"), first(&entry, 2).expect("a name"));
                    assert_eq!(table.insert(id.number(), name.text()), None, "a name is interned once");
                }
            }
        }
        if let Some(track) = first(&packet, 60) {
            let track = fields(track.bytes());
            let uuid = first(&track, 1).expect("an id").number();
            let (name, parent) = (first(&track, 2).expect("a name").text(), first(&track, 5).map(Value::number));
            assert!(parent.is_none_or(|parent| decoded.tracks.contains_key(&parent)), "{name}: the parent comes first");
            assert!(decoded.tracks.insert(uuid, (name, parent)).is_none(), "a track is described once");
        }
        if let Some(event) = first(&packet, 11) {
            let at = first(&packet, 8).expect("a time").number();
            assert!(flags & 2 != 0, "an event with interned names needs them");
            let event = event_of(at, &fields(event.bytes()), &names);
            assert!(decoded.tracks.contains_key(&event.track), "{event:?}: the track is described first");
            decoded.events.push(event);
        }
        decoded.packets += 1;
    }
    decoded.events.sort_by_key(|event| event.at);
    decoded
}

fn event_of(at: u64, event: &[(u64, Value<'_>)], names: &Names) -> Event {
    let kind = match first(event, 9).expect("a type").number() {
        1 => Kind::Begin,
        2 => Kind::End,
        3 => Kind::Instant,
        4 => Kind::Counter,
        other => panic!("type {other}"),
    };
    let name = |table: &BTreeMap<u64, String>, field| match first(event, field) {
        Some(id) => table.get(&id.number()).expect("the name was interned before").clone(),
        None => String::new(),
    };
    let notes = all(event, 4).map(|note| {
        let note = fields(note.bytes());
        let name = names.notes[&first(&note, 1).expect("a name").number()].clone();
        (name, first(&note, 6).map_or_else(|| first(&note, 3).expect("a value").number().to_string(), Value::text))
    });
    Event {
        at,
        kind,
        track: first(event, 11).expect("a track").number(),
        name: name(&names.events, 10),
        category: name(&names.categories, 3),
        notes: notes.collect(),
        flows: all(event, 47).map(Value::number).collect(),
        ended_flows: all(event, 48).map(Value::number).collect(),
        count: first(event, 30).map_or(0, Value::number),
    }
}

impl Decoded {
    pub(super) fn track(&self, uuid: u64) -> &str {
        &self.tracks[&uuid].0
    }

    /// Events with this kind and name.
    pub(super) fn named(&self, kind: Kind, name: &str) -> Vec<&Event> {
        self.events.iter().filter(|event| event.kind == kind && event.name == name).collect()
    }

    /// Returns all slices, in the order of their ends. Fails if the slices of a track do not nest, or if a slice has no
    /// end.
    pub(super) fn slices(&self) -> Vec<Slice> {
        let (mut open, mut slices): (BTreeMap<u64, Vec<&Event>>, _) = (BTreeMap::new(), Vec::new());
        for event in &self.events {
            let stack = open.entry(event.track).or_default();
            match event.kind {
                Kind::Begin => stack.push(event),
                Kind::End => {
                    let begin = stack.pop().unwrap_or_else(|| panic!("{event:?} ends nothing"));
                    slices.push(Slice {
                        track: self.track(event.track).to_owned(),
                        name: begin.name.clone(),
                        category: begin.category.clone(),
                        from: begin.at,
                        to: event.at,
                        pid: begin.notes.get("pid").cloned(),
                    });
                }
                Kind::Instant | Kind::Counter => {}
            }
        }
        let left: Vec<_> = open.values().flatten().collect();
        assert!(left.is_empty(), "slices without an end: {left:?}");
        slices
    }

    /// Returns the slices with this category.
    pub(super) fn of(&self, category: &str) -> Vec<Slice> {
        self.slices().into_iter().filter(|slice| slice.category == category).collect()
    }
}

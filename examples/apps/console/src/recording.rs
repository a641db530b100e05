//! A recording: an execution trace, a flight record, or the record of a simulation. This module reads the file of a
//! recording into memory. [`Player`](crate::player::Player) steps through the events of the recording.
//!
//! The format is the protobuf format of Perfetto. The file `src/observe/trace/packets.rs` of the crate writes this
//! format. Memory is bounded: a recording keeps at most [`Limits::events`] events of 40 bytes, [`Limits::tracks`]
//! tracks and [`Limits::text_bytes`] bytes of text. If a recording has more events, only the last events are kept.

mod proto;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use serde_json::{Value as Json, json};

use crate::recording::proto::{Fields, Invalid, Value};

/// Maximum length of a packet in bytes. A packet contains at most one event, and possibly the table of all names.
const LONGEST_PACKET: u64 = 16 << 20;

/// Index of the text `…`. This text replaces each unknown name, and each name for which the limit of the texts leaves
/// no room.
const UNKNOWN: u32 = 0;

/// Index that means "no event".
pub(crate) const NONE: u32 = u32::MAX;

/// Limits of the memory of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of events. Default: 2,097,152. The first events of a longer recording are left out.
    pub events: usize,
    /// Maximum number of tracks. Default: 262,144. The events of further tracks are left out.
    pub tracks: usize,
    /// Maximum total size of the texts of a recording, in bytes. Default: 64 MiB. Further texts are replaced by `…`.
    pub text_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { events: 1 << 21, tracks: 1 << 18, text_bytes: 64 << 20 }
    }
}

/// Kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Begin,
    End,
    Instant,
    Counter,
}

/// An event on a track.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    /// Time on the runtime's clock, in ns.
    pub(crate) at: u64,
    pub(crate) kind: Kind,
    /// Index of the track.
    pub(crate) track: u32,
    /// Index of the name in the table of texts.
    pub(crate) name: u32,
    category: u32,
    /// For a counter, the value of the counter. For other events, the index of the note in the table of texts. A note
    /// is, for example, the pid of a process.
    pub(crate) value: u64,
    /// If the event belongs to a process, the index of this process's track. Otherwise [`NONE`].
    pub(crate) process: u32,
    /// Index of another event of the same track, or [`NONE`]. For the beginning of a slice, the other event is the
    /// beginning of the enclosing slice. For the end of a slice, the other event is the beginning of the same slice.
    /// For a counter, the other event is the event with the previous value.
    pub(crate) link: u32,
}

/// Kind of a track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrackKind {
    /// A thread that runs processes.
    Lane,
    Process,
    Counter,
    /// A track without events, which groups other tracks.
    Group,
}

/// A sequence of events.
#[derive(Debug, Clone)]
pub(crate) struct Track {
    uuid: u64,
    parent: u64,
    rank: u64,
    pub(crate) kind: TrackKind,
    /// The name. The name of a process consists of the pid and the label of the process.
    pub(crate) name: String,
}

impl Track {
    /// Returns the pid of the process, if this is the track of a process.
    pub(crate) fn pid(&self) -> &str {
        self.name.split(' ').next().unwrap_or_default()
    }

    /// Returns the label of the process, if this is the track of a process.
    pub(crate) fn label(&self) -> &str {
        self.name.split_once(' ').map_or("", |(_, label)| label)
    }
}

/// Error of a file.
#[derive(Debug)]
pub enum Error {
    /// The file cannot be read.
    Io(io::Error),
    /// The file is no recording, or is damaged.
    Invalid {
        /// Position of the packet in bytes.
        offset: u64,
        /// Explanation.
        text: &'static str,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Invalid { offset, text } => {
                write!(f, "no recording, or a damaged recording: {text} at byte {offset}")
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A table of texts. The table stores each distinct text once.
#[derive(Debug)]
struct Texts {
    numbers: HashMap<Rc<str>, u32>,
    texts: Vec<Rc<str>>,
    /// Number of bytes that further texts may take.
    room: usize,
}

impl Texts {
    /// Memory of one text in the two tables, in bytes, without the bytes of the text.
    const ENTRY: usize = 48;

    fn new(room: usize) -> Self {
        Self { numbers: HashMap::new(), texts: vec!["…".into()], room }
    }

    fn number(&mut self, bytes: &[u8]) -> u32 {
        let text = String::from_utf8_lossy(bytes);
        if let Some(number) = self.numbers.get(&*text) {
            return *number;
        }
        let Some(room) = self.room.checked_sub(text.len() + Self::ENTRY) else { return UNKNOWN };
        let (text, number) = (Rc::<str>::from(&*text), self.texts.len() as u32);
        (self.room, _) = (room, self.numbers.insert(Rc::clone(&text), number));
        self.texts.push(text);
        number
    }
}

/// A recording in memory.
#[derive(Debug)]
pub struct Recording {
    pub(crate) title: String,
    pub(crate) tracks: Vec<Track>,
    pub(crate) events: Vec<Event>,
    texts: Texts,
    /// Number of events that were left out because of the limits.
    pub(crate) left_out: u64,
    /// Number of bytes of an incomplete packet at the end of the file.
    pub(crate) incomplete_bytes: u64,
}

impl Recording {
    /// Reads a file. A file that ends within a packet is read up to this packet.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is damaged, or contains no recording of the crate.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::read(std::fs::File::open(path)?, Limits::default())
    }

    /// Reads a recording.
    ///
    /// # Errors
    /// Returns the errors of [`open`](Self::open).
    pub fn read(source: impl Read, limits: Limits) -> Result<Self, Error> {
        let mut source = BufReader::new(source);
        let mut loader = Loader::new(limits);
        let (mut packet, mut offset) = (Vec::new(), 0);
        let incomplete_bytes = loop {
            let header = match read_header(&mut source)? {
                Header::Packet { length, header } if length <= LONGEST_PACKET => (length, header),
                Header::Packet { .. } => return Err(Error::Invalid { offset, text: "a packet is too long" }),
                Header::Other => return Err(Error::Invalid { offset, text: "no packet begins" }),
                Header::End { bytes } => break bytes,
            };
            packet.clear();
            (&mut source).take(header.0).read_to_end(&mut packet)?;
            if (packet.len() as u64) < header.0 {
                break header.1 + packet.len() as u64;
            }
            let text = "a packet has invalid contents";
            loader.packet(&packet).map_err(|Invalid| Error::Invalid { offset, text })?;
            offset += header.0 + header.1;
        };
        loader.finish(incomplete_bytes).ok_or(Error::Invalid {
            offset,
            text: if offset == 0 { "no complete packet" } else { "no track of a runtime" },
        })
    }

    pub(crate) fn text(&self, number: u32) -> &str {
        self.texts.texts.get(number as usize).map_or("…", |text| text)
    }

    /// The text of the note of an event, for example a pid.
    pub(crate) fn note(&self, event: &Event) -> &str {
        if event.kind == Kind::Counter || event.value == 0 { "" } else { self.text(event.value as u32) }
    }

    /// The indexes of the tracks of this kind, in the order of the recording.
    pub(crate) fn of_kind(&self, kind: TrackKind) -> impl Iterator<Item = usize> {
        self.tracks.iter().enumerate().filter(move |(_, track)| track.kind == kind).map(|(index, _)| index)
    }

    /// Time of the first event.
    pub(crate) fn begin_ns(&self) -> u64 {
        self.events.first().map_or(0, |event| event.at)
    }

    /// Returns the numbers of events. Instants are counted by name, and the slices of threads are counted by category.
    fn counts(&self) -> std::collections::BTreeMap<&str, u64> {
        let mut counts = std::collections::BTreeMap::new();
        for event in &self.events {
            let name = match event.kind {
                Kind::Instant => self.text(event.name),
                Kind::Begin if self.tracks[event.track as usize].kind == TrackKind::Lane => self.text(event.category),
                _ => continue,
            };
            *counts.entry(name).or_default() += 1;
        }
        counts
    }

    /// The summary for scripts.
    pub fn summary(&self) -> Json {
        let end = self.events.last().map_or(0, |event| event.at);
        json!({
            "title": self.title,
            "event_count": self.events.len(),
            "begin_ns": self.begin_ns(),
            "end_ns": end,
            "lanes": self.of_kind(TrackKind::Lane).map(|lane| self.tracks[lane].name.as_str()).collect::<Vec<_>>(),
            "process_count": self.of_kind(TrackKind::Process).count(),
            "counts": self.counts(),
            "left_out_events": self.left_out,
            "incomplete_bytes": self.incomplete_bytes,
        })
    }

    /// The summary for people.
    pub fn summary_text(&self) -> String {
        use std::fmt::Write as _;

        use crate::report::plain;
        use crate::views::{duration, number};
        let end = self.events.last().map_or(0, |event| event.at);
        let time = duration(std::time::Duration::from_nanos(end - self.begin_ns()));
        let count = |kind| number(self.of_kind(kind).count() as u64);
        let events = number(self.events.len() as u64);
        let (lanes, processes) = (count(TrackKind::Lane), count(TrackKind::Process));
        let title = plain(&self.title);
        let mut text = format!("{title}: {events} events of {lanes} threads and {processes} processes in {time}\n");
        for (name, count) in self.counts() {
            let _ = writeln!(text, "  {}: {}", plain(name), number(count));
        }
        if self.left_out != 0 {
            let _ = writeln!(text, "{} events exceed the limits, and are left out", number(self.left_out));
        }
        if self.incomplete_bytes != 0 {
            let _ = writeln!(text, "the last packet is incomplete ({} bytes)", self.incomplete_bytes);
        }
        text
    }
}

/// Start of a packet.
enum Header {
    /// Length of the packet, and length of the header.
    Packet {
        length: u64,
        header: u64,
    },
    Other,
    /// The end of the file. `bytes` is the number of bytes of an incomplete header at this end.
    End {
        bytes: u64,
    },
}

/// Reads the tag and the length of a packet. In a trace, each packet has the field number 1.
fn read_header(source: &mut impl BufRead) -> io::Result<Header> {
    let (mut length, mut count) = (0, 0);
    loop {
        let Some(byte) = source.bytes().next().transpose()? else { return Ok(Header::End { bytes: count }) };
        match count {
            0 if byte != 1 << 3 | 2 => return Ok(Header::Other),
            0 => {}
            10 => return Ok(Header::Other),
            _ => {
                length |= u64::from(byte & 0x7f) << (7 * (count - 1));
                if byte & 0x80 == 0 {
                    return Ok(Header::Packet { length, header: count + 1 });
                }
            }
        }
        count += 1;
    }
}

/// Table of interned names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Table {
    Categories = 1,
    EventNames = 2,
}

/// Collects the packets of a file.
struct Loader {
    limits: Limits,
    texts: Texts,
    names: HashMap<(Table, u64), u32>,
    tracks: Vec<Track>,
    indexes: HashMap<u64, u32>,
    events: VecDeque<Event>,
    left_out: u64,
}

impl Loader {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            texts: Texts::new(limits.text_bytes),
            names: HashMap::new(),
            tracks: Vec::new(),
            indexes: HashMap::new(),
            events: VecDeque::new(),
            left_out: 0,
        }
    }

    /// Reads a `TracePacket`. The file `protos/perfetto/trace/trace_packet.proto` of Perfetto lists the field numbers.
    fn packet(&mut self, bytes: &[u8]) -> Result<(), Invalid> {
        let (mut at, mut event) = (0, None);
        for field in Fields(bytes) {
            match field? {
                (8, value) => at = value.number(),
                (11, value) => event = Some(value),
                // If the lowest bit of the value is set, the earlier names are no longer valid.
                (13, value) if value.number() & 1 != 0 => self.names.clear(),
                (12, value) => self.intern(value)?,
                (60, value) => self.describe(value)?,
                _ => {}
            }
        }
        event.map_or(Ok(()), |event| self.event(at, event))
    }

    fn intern(&mut self, data: Value<'_>) -> Result<(), Invalid> {
        for field in data.fields() {
            let (table, entry) = match field? {
                (1, entry) => (Table::Categories, entry),
                (2, entry) => (Table::EventNames, entry),
                _ => continue,
            };
            let (mut id, mut text): (_, &[u8]) = (0, &[]);
            for field in entry.fields() {
                match field? {
                    (1, value) => id = value.number(),
                    (2, value) => text = value.bytes(),
                    _ => {}
                }
            }
            if self.names.len() < self.limits.tracks {
                self.names.insert((table, id), self.texts.number(text));
            }
        }
        Ok(())
    }

    fn describe(&mut self, descriptor: Value<'_>) -> Result<(), Invalid> {
        let (kind, name) = (TrackKind::Group, String::new());
        let mut track = Track { uuid: 0, parent: 0, rank: 0, kind, name };
        for field in descriptor.fields() {
            match field? {
                (1, value) => track.uuid = value.number(),
                // The name of a process may be as long as a packet, so only the first 1,000 characters of the name are
                // kept.
                (2, value) => track.name = String::from_utf8_lossy(value.bytes()).chars().take(1_000).collect(),
                (5, value) => track.parent = value.number(),
                (8, _) => track.kind = TrackKind::Counter,
                (12, value) => track.rank = value.number(),
                _ => {}
            }
        }
        let parent = self.indexes.get(&track.parent).map(|parent| self.tracks[*parent as usize].name.as_str());
        match parent {
            Some("Workers") => track.kind = TrackKind::Lane,
            Some("Processes") => track.kind = TrackKind::Process,
            _ => {}
        }
        let room = self.texts.room.checked_sub(track.name.len());
        if self.indexes.contains_key(&track.uuid) || self.tracks.len() >= self.limits.tracks || room.is_none() {
            return Ok(());
        }
        self.texts.room = room.unwrap_or_default();
        self.indexes.insert(track.uuid, self.tracks.len() as u32);
        self.tracks.push(track);
        Ok(())
    }

    /// Reads a `TrackEvent` and its `DebugAnnotation`.
    fn event(&mut self, at: u64, event: Value<'_>) -> Result<(), Invalid> {
        let (mut kind, mut track, mut name, mut category, mut count, mut note) = (0, 0, UNKNOWN, UNKNOWN, 0, None);
        for field in event.fields() {
            match field? {
                (3, value) => category = self.name(Table::Categories, value),
                // The first annotation contains the process of the event.
                (4, value) if note.is_none() => note = Some(self.annotation(value)?),
                (9, value) => kind = value.number(),
                (10, value) => name = self.name(Table::EventNames, value),
                (11, value) => track = value.number(),
                (30, value) => count = value.number(),
                _ => {}
            }
        }
        let kind = match kind {
            1 => Kind::Begin,
            2 => Kind::End,
            3 => Kind::Instant,
            4 => Kind::Counter,
            _ => return Err(Invalid),
        };
        let Some(&track) = self.indexes.get(&track) else {
            self.left_out += 1;
            return Ok(());
        };
        if self.events.len() >= self.limits.events {
            self.events.pop_front();
            self.left_out += 1;
        }
        let value = if kind == Kind::Counter { count } else { note.unwrap_or(UNKNOWN).into() };
        self.events.push_back(Event { at, kind, track, name, category, value, process: NONE, link: NONE });
        Ok(())
    }

    fn name(&self, table: Table, id: Value<'_>) -> u32 {
        self.names.get(&(table, id.number())).copied().unwrap_or(UNKNOWN)
    }

    /// Returns the index of the text of an annotation.
    fn annotation(&mut self, annotation: Value<'_>) -> Result<u32, Invalid> {
        let mut text = UNKNOWN;
        for field in annotation.fields() {
            match field? {
                (3, value) => text = self.texts.number(value.number().to_string().as_bytes()),
                (6, value) => text = self.texts.number(value.bytes()),
                _ => {}
            }
        }
        Ok(text)
    }

    /// Sorts the events by time, and sets the links between the events. Returns `None` if the file has no track of a
    /// runtime.
    fn finish(self, incomplete_bytes: u64) -> Option<Recording> {
        let Self { texts, tracks, events, left_out, .. } = self;
        let is_ours = |track: &Track| track.parent != 0 && matches!(track.name.as_str(), "Workers" | "Processes");
        let root = tracks.iter().find(|track| is_ours(track))?.parent;
        let title = tracks.iter().find(|track| track.uuid == root)?.name.clone();
        let mut events = Vec::from(events);
        // The sort must be stable. Events of a track can have the same time, and these events must keep their order.
        events.sort_by_key(|event| event.at);
        let mut recording = Recording { title, tracks, events, texts, left_out, incomplete_bytes };
        recording.connect();
        Some(recording)
    }
}

impl Recording {
    /// Sets the links and the processes of all events.
    fn connect(&mut self) {
        let processes: HashMap<&str, u32> =
            (self.of_kind(TrackKind::Process)).map(|index| (self.tracks[index].pid(), index as u32)).collect();
        let mut of_text: HashMap<u64, u32> = HashMap::new();
        for (number, text) in self.texts.texts.iter().enumerate() {
            of_text.extend(processes.get(&**text).map(|process| (number as u64, *process)));
        }
        let mut tops = vec![NONE; self.tracks.len()];
        for index in 0..self.events.len() {
            let Event { kind, track, value, .. } = self.events[index];
            let top = tops[track as usize];
            let around = |top: u32| self.events.get(top as usize).map_or(NONE, |event| event.process);
            let process = match (self.tracks[track as usize].kind, kind) {
                (TrackKind::Process, _) => track,
                (TrackKind::Lane, Kind::Begin) => of_text.get(&value).copied().unwrap_or(around(top)),
                // An event outside a turn belongs to the process that the note of the event names.
                (TrackKind::Lane, _) if top == NONE => of_text.get(&value).copied().unwrap_or(NONE),
                (TrackKind::Lane, _) => around(top),
                (TrackKind::Counter | TrackKind::Group, _) => NONE,
            };
            tops[track as usize] = match kind {
                Kind::Begin | Kind::Counter => index as u32,
                Kind::End => self.events.get(top as usize).map_or(NONE, |begin| begin.link),
                Kind::Instant => top,
            };
            let event = &mut self.events[index];
            (event.process, event.link) = (process, if kind == Kind::Instant { NONE } else { top });
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    use procession::{Address, Context, Simulation};

    /// A writer for tests: a test can read the written bytes.
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    async fn receive(mut ctx: Context<u8>) {
        for _ in 0..3 {
            ctx.receive().await.unwrap();
        }
    }

    async fn send(ctx: Context, to: Address<u8>) {
        for number in 0..3 {
            ctx.sleep(std::time::Duration::from_millis(5)).await;
            to.send(number).unwrap();
        }
    }

    /// The trace of a simulation with two processes. The process `pong` sends three messages to the process `ping`.
    pub(crate) fn trace() -> Vec<u8> {
        let (mut simulation, bytes) = (Simulation::new(1), Shared::default());
        let trace = simulation.host().start_trace_to(bytes.clone()).unwrap();
        let host = simulation.host().clone();
        simulation.run(async move {
            let ping = host.process().name("ping").spawn(async |ctx: Context<u8>| receive(ctx).await).unwrap();
            let address = ping.address();
            host.process().name("pong").spawn(async move |ctx: Context| send(ctx, address).await).unwrap();
            ping.await.unwrap();
        });
        trace.finish().unwrap();
        bytes.0.lock().unwrap().clone()
    }

    pub(crate) fn recording() -> Recording {
        Recording::read(&trace()[..], Limits::default()).unwrap()
    }

    #[test]
    fn the_trace_of_a_simulation_is_read() {
        let recording = recording();
        let summary = recording.summary();
        assert_eq!((&summary["process_count"], &summary["counts"]["send"]), (&2.into(), &3.into()), "{summary}");
        assert_eq!((&summary["counts"]["receive"], &summary["incomplete_bytes"]), (&3.into(), &0.into()), "{summary}");
        let pids: Vec<_> = recording.of_kind(TrackKind::Process).map(|index| recording.tracks[index].label()).collect();
        assert!(pids[0].starts_with("ping (") && pids[1].starts_with("pong ("), "{pids:?}");
        assert!(recording.summary_text().contains("  send: 3\n"));
    }

    #[test]
    fn an_incomplete_file_is_read_to_its_last_complete_packet() {
        let bytes = trace();
        let whole = recording();
        let mut counts = Vec::new();
        for length in 0..bytes.len() {
            match Recording::read(&bytes[..length], Limits::default()) {
                Ok(recording) => counts.push((recording.events.len(), recording.incomplete_bytes)),
                Err(Error::Invalid { text, .. }) => {
                    assert!(counts.is_empty() && ["no complete packet", "no track of a runtime"].contains(&text));
                }
                Err(error) => panic!("{length}: {error}"),
            }
        }
        assert!(counts.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        let (events, incomplete) = *counts.last().unwrap();
        assert!(events == whole.events.len() - 1 && incomplete != 0);
    }

    #[test]
    fn a_damaged_file_is_an_error_with_its_position() {
        let error = |bytes: &[u8]| Recording::read(bytes, Limits::default()).unwrap_err().to_string();
        let text = "no recording, or a damaged recording: no packet begins at byte 0";
        assert_eq!(error(b"#!/bin/sh\n"), text);
        assert!(error(b"").ends_with("no complete packet at byte 0"));
        let bytes = trace();
        let damaged = [&bytes[..], &[0x0a, 2, 0x0b, 0]].concat();
        assert!(error(&damaged).ends_with(&format!("a packet has invalid contents at byte {}", bytes.len())));
        let damaged = [&bytes[..], &[0x0a, 0xff, 0xff, 0xff, 0x7f]].concat();
        assert!(error(&damaged).ends_with(&format!("a packet is too long at byte {}", bytes.len())));
        let damaged = [&bytes[..], b"x"].concat();
        assert!(error(&damaged).ends_with(&format!("no packet begins at byte {}", bytes.len())));
        // After one byte has changed, the result is either an error or another recording, and never a panic.
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x55;
            drop(Recording::read(&damaged[..], Limits::default()).map(|recording| recording.summary()));
        }
    }

    #[test]
    fn the_limits_keep_the_last_events() {
        let (bytes, whole) = (trace(), recording());
        let read = |limits| Recording::read(&bytes[..], limits).unwrap();
        let short = read(Limits { events: 10, ..Limits::default() });
        assert_eq!((short.events.len(), short.left_out), (10, whole.events.len() as u64 - 10));
        assert_eq!(short.events.last().unwrap().at, whole.events.last().unwrap().at);
        let narrow = read(Limits { tracks: 6, ..Limits::default() });
        assert!(narrow.tracks.len() == 6 && narrow.left_out > 0);
        let terse = read(Limits { text_bytes: 200, ..Limits::default() });
        assert!(terse.texts.texts.len() < whole.texts.texts.len());
    }
}

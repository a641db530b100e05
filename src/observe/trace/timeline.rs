//! Converts the entries of a trace to tracks. Each thread has a track, the *lane*, with a slice (an interval with a
//! name) for each step. Each process has a track with a slice for each state.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::observe::states::{ProcessState, WorkerState};
use crate::observe::trace::packets::{Flow, Kind, Packets, Title, Track, TrackEvent, Value, Word, mix};
use crate::observe::trace::{Lane, Recorder, TraceEntry, TraceEvent};
use crate::platform::sync::Arc;

/// Data about the processes of the runtime.
pub(crate) trait Lookup: Send {
    /// Returns the text of a pid.
    fn text(&self, process: u64) -> String;
    /// Returns the label of the process, if the process exists.
    fn label(&self, process: u64) -> Option<u32>;
    /// Returns whether the process exists.
    fn is_alive(&self, process: u64) -> bool;
    /// Returns the present values of the counters.
    fn gauges(&self) -> Gauges;
}

/// Values of the counter tracks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Gauges {
    /// Number of tasks in the queue that all workers share.
    pub(crate) queued_global: u64,
    /// Number of tasks in the queues of the workers.
    pub(crate) queued_local: u64,
    pub(crate) parks: u64,
    pub(crate) steals: u64,
    pub(crate) timers: u64,
    /// Number of workers that are in a long step, and whose queues were handed over to other threads.
    pub(crate) replaced: u64,
    pub(crate) sockets: u64,
}

impl Gauges {
    fn named(self) -> [(&'static str, u64); 7] {
        [
            ("queued tasks, shared queue", self.queued_global),
            ("queued tasks, queues of workers", self.queued_local),
            ("parks", self.parks),
            ("steals", self.steals),
            ("timers", self.timers),
            ("replaced workers", self.replaced),
            ("sockets", self.sockets),
        ]
    }
}

/// A process that was alive when the trace began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alive {
    pub(crate) label: u32,
    pub(crate) state: Option<ProcessState>,
    /// True if the process has received all its messages and waits for the next message.
    pub(crate) is_mailbox_empty: bool,
}

/// The slices that are open (begun, not ended) on a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct LaneState {
    /// Number of the lane in the trace.
    number: u16,
    /// Time of the last event on the lane.
    last: u64,
    running: Running,
    /// Whether the slice `blocked worker` is open inside the slice of the step.
    blocked: bool,
    /// Whether the slice for the search or the sleep of the worker is open (begun, not ended).
    rests: bool,
}

/// The process that a lane runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Running {
    #[default]
    Nothing,
    /// The turn began at the time `since`. The slice of the turn is not written yet, because its category is not known.
    Begins {
        process: u64,
        since: u64,
    },
    Open {
        process: u64,
    },
}

impl Running {
    fn process(self) -> Option<u64> {
        match self {
            Self::Nothing => None,
            Self::Begins { process, .. } | Self::Open { process } => Some(process),
        }
    }
}

/// State of the track of a process.
#[derive(Debug)]
struct ProcessTrack {
    label: u32,
    pid: Arc<str>,
    /// Whether a slice for a state is open.
    is_open: bool,
}

/// The tables are searched for dead processes only if the tables have at least this number of processes.
const FEW: usize = 1 << 12;
/// If a call of [`Timeline::forget_dead`] finds that a process is dead, a later call removes the process. This number
/// is the distance between the two calls.
const REMOVAL_DELAY: u32 = 2;

/// The state of the conversion.
pub(super) struct Timeline {
    packets: Packets,
    lookup: Box<dyn Lookup>,
    /// Time at which the trace began, and the time of the last event.
    begun: u64,
    last: u64,
    alive: BTreeMap<u64, Alive>,
    lanes: BTreeMap<u16, LaneState>,
    /// Number of lanes of threads outside the slots.
    outside: u16,
    processes: BTreeMap<u64, ProcessTrack>,
    /// [`forget_dead`](Self::forget_dead) searches for dead processes only if the tables have at least this number of
    /// processes.
    most: usize,
    /// Processes that were found dead and are not removed yet.
    dead: BTreeSet<u64>,
    /// Number of calls of [`forget_dead`](Self::forget_dead) until the dead processes are removed. 0 if no search for
    /// dead processes has begun.
    removal: u32,
    /// For each process, the arrows of the messages that the process has not received yet, in the order of the mailbox.
    /// If the trace does not know the contents of a mailbox, the process of this mailbox is not in this map.
    messages: BTreeMap<u64, VecDeque<u64>>,
    /// Processes whose open slice is the state *ready*.
    ready: BTreeSet<u64>,
    /// Before this time, the trace does not know the contents of any mailbox.
    arrows_from: u64,
    /// Number of arrows of messages.
    arrows: u64,
    /// The last value of each counter that this timeline has written.
    gauges: Option<Gauges>,
    /// Number of events that were converted.
    pub(super) events: u64,
    /// Number of events that were lost.
    pub(super) lost: u64,
}

impl Timeline {
    pub(super) fn new(title: &str, begun: u64, alive: BTreeMap<u64, Alive>, lookup: Box<dyn Lookup>) -> Self {
        let packets = Packets::new(title);
        let empty = alive.iter().filter(|(_, alive)| alive.is_mailbox_empty);
        let messages = empty.map(|(process, _)| (*process, VecDeque::new())).collect();
        Self {
            packets,
            lookup,
            begun,
            last: begun,
            alive,
            lanes: BTreeMap::new(),
            outside: 0,
            processes: BTreeMap::new(),
            most: FEW,
            dead: BTreeSet::new(),
            removal: 0,
            messages,
            ready: BTreeSet::new(),
            arrows_from: 0,
            arrows: 0,
            gauges: None,
            events: 0,
            lost: 0,
        }
    }

    /// Disables the arrows of all messages that were sent before `time`, because earlier events are missing.
    pub(super) fn no_arrows_before(&mut self, time: u64) {
        self.arrows_from = time;
    }

    /// Returns the bytes since the last call of [`clear`](Self::clear).
    pub(super) fn bytes(&self) -> &[u8] {
        self.packets.bytes()
    }

    pub(super) fn clear(&mut self) {
        self.packets.clear();
    }

    /// Converts an entry. The caller must pass the entries of one lane in the order of their times.
    pub(super) fn add(&mut self, entry: TraceEntry, recorder: &Recorder) {
        self.last = self.last.max(entry.at);
        let mut view = View { timeline: self, recorder, at: entry.at, lane: entry.lane };
        match entry.event {
            TraceEvent::State { process, to, detail } => view.state(process, to, detail),
            TraceEvent::Step { process } => view.step(process),
            TraceEvent::Created { process, parent, label } => view.created(process, parent, label),
            TraceEvent::Ended { process, label } => view.ended(process, label),
            TraceEvent::Worker { slot, state } => {
                view.lane = Lane::Worker(slot as u16);
                view.worker(state);
            }
            TraceEvent::Stolen { victim } => {
                view.instant(Word::Worker, Word::Steal, &[(Word::Victim, Value::Number(u64::from(victim)))]);
            }
            TraceEvent::Preempted { process } => {
                let pid = view.pid(process);
                view.instant(Word::Process, Word::Preempted, &[(Word::Pid, Value::Text(&pid))]);
            }
            TraceEvent::Sent { to, .. } => view.sent(to),
            TraceEvent::Received { process } => {
                let arrow = view.timeline.messages.get_mut(&process).and_then(VecDeque::pop_front);
                view.arrow(Word::Message, Word::Receive, &[], arrow.map_or(Flow::None, Flow::To));
            }
            TraceEvent::Reordered { process } => {
                view.timeline.messages.remove(&process);
            }
            TraceEvent::Yielded { process, tag } => {
                view.arrow(Word::Command, Word::Yield, &[], Flow::From(command(process, tag)));
            }
            TraceEvent::Completed { process, tag } => {
                let pid = view.pid(process);
                let (notes, flow) = ([(Word::To, Value::Text(&pid))], Flow::To(command(process, tag)));
                view.arrow(Word::Command, Word::Completion, &notes, flow);
            }
            TraceEvent::Skipped { process } => {
                view.end_state(process);
                return;
            }
            TraceEvent::Lost { total } => {
                view.timeline.lost += total;
                // The lost events may include messages, the end of this turn, and turns of processes that were ready.
                view.timeline.messages.clear();
                // The trace does not know what the thread did after its last event.
                view.at = view.lane_state().last.min(entry.at);
                view.end_running();
                view.end_rest();
                view.at = entry.at;
                for process in std::mem::take(&mut view.timeline.ready) {
                    view.end_state(process);
                }
                view.lane_state().last = entry.at;
                view.instant(Word::Lost, Word::Lost, &[(Word::Count, Value::Number(total))]);
                return;
            }
        }
        let last = &mut view.lane_state().last;
        *last = entry.at.max(*last);
        self.events += 1;
    }

    /// Removes the dead processes from the tables if the tables are large. The tables contain a dead process if the
    /// event of its exit was lost. Because of this function, the size of the tables is proportional to the number of
    /// living processes. The caller must call this function after each collection of the reader.
    ///
    /// When a process is found dead, the rings may still contain the last events of the process. The first collection
    /// after this moment reads these events from the rings. The second collection after this moment converts these
    /// events. Therefore this function first lists the dead processes, and removes them two calls later. (The thread
    /// that runs an exit removes the pid shortly before it records the last event of the process. If this thread is not
    /// scheduled during the next two collections, the track may have no name.)
    pub(super) fn forget_dead(&mut self, recorder: &Recorder) {
        match self.removal {
            0 if self.processes.len() + self.alive.len() >= self.most => {
                let all = self.processes.keys().chain(self.alive.keys()).chain(self.messages.keys());
                self.dead = all.copied().filter(|process| !self.lookup.is_alive(*process)).collect();
                self.removal = REMOVAL_DELAY;
            }
            0 => {}
            1 => {
                let at = self.last;
                for process in std::mem::take(&mut self.dead) {
                    View { timeline: self, recorder, at, lane: Lane::Worker(0) }.remove(process);
                }
                self.most = FEW + 2 * (self.processes.len() + self.alive.len());
                self.removal = 0;
            }
            _ => self.removal -= 1,
        }
    }

    /// Writes the counters that have changed.
    pub(super) fn count(&mut self, at: u64) {
        let gauges = self.lookup.gauges();
        let former = self.gauges.replace(gauges).map(Gauges::named);
        for (number, (name, value)) in gauges.named().into_iter().enumerate() {
            let track = Track::Counter(number as u8);
            match &former {
                None => self.packets.describe(track, name, Some(Track::Counters), number as u64),
                Some(former) if former[number].1 == value => continue,
                Some(_) => {}
            }
            self.packets.count(at, track, value);
        }
    }

    /// Writes a packet without an event.
    pub(super) fn beat(&mut self, at: u64) {
        self.packets.beat(at);
    }

    /// Ends all open slices at the time `at`. If workers have recorded events after this time, the slices end at the
    /// time of the last event.
    pub(super) fn finish(&mut self, at: u64, recorder: &Recorder) {
        let at = at.max(self.last);
        let lanes: Vec<_> = self.lanes.keys().copied().collect();
        for lane in lanes {
            let mut view = View { timeline: self, recorder, at, lane: Lane::of(lane) };
            view.end_running();
            view.end_rest();
        }
        let open: Vec<_> =
            self.processes.iter().filter(|(_, track)| track.is_open).map(|(process, _)| *process).collect();
        for process in open {
            let mut view = View { timeline: self, recorder, at, lane: Lane::Worker(0) };
            view.end_state(process);
        }
    }
}

/// If a mailbox contains more messages than this number, none of its messages has an arrow.
const MOST_ARROWS: usize = 1 << 16;

/// Id of the arrow of a command.
fn command(process: u64, tag: u64) -> u64 {
    mix(process, tag) >> 1
}

/// The conversion of one entry.
struct View<'a> {
    timeline: &'a mut Timeline,
    recorder: &'a Recorder,
    at: u64,
    lane: Lane,
}

impl View<'_> {
    fn state(&mut self, process: u64, to: ProcessState, detail: bool) {
        if to == ProcessState::Running {
            self.end_running();
            self.end_rest();
            self.lane_state().running = Running::Begins { process, since: self.at };
            if detail {
                self.open(Word::Step);
            }
        } else if self.lane_state().running.process() == Some(process) {
            self.end_running();
        }
        self.track(process);
        self.end_state(process);
        let state = match to {
            ProcessState::Ready => Word::Ready,
            ProcessState::Running => Word::Running,
            ProcessState::Blocked => Word::Blocked,
            ProcessState::Idle => {
                if detail {
                    self.mailbox_is_empty(process);
                }
                Word::Idle
            }
            ProcessState::Suspended => Word::Suspended,
            ProcessState::Complete => return,
        };
        self.begin_state(process, state, self.at);
    }

    /// Records that the mailbox of this process is empty. After this record, the trace knows the contents of the
    /// mailbox. Before the time `arrows_from`, this function does nothing.
    fn mailbox_is_empty(&mut self, process: u64) {
        if self.at >= self.timeline.arrows_from {
            self.timeline.messages.entry(process).or_default();
        }
    }

    fn sent(&mut self, to: u64) {
        let pid = self.pid(to);
        self.timeline.arrows += 1;
        // The highest bit distinguishes the arrows of messages from the arrows of commands.
        let arrow = self.timeline.arrows | 1 << 63;
        let flow = match self.timeline.messages.get_mut(&to) {
            Some(waiting) if waiting.len() < MOST_ARROWS => {
                waiting.push_back(arrow);
                Flow::From(arrow)
            }
            _ => {
                self.timeline.messages.remove(&to);
                Flow::None
            }
        };
        self.arrow(Word::Message, Word::Send, &[(Word::To, Value::Text(&pid))], flow);
    }

    fn step(&mut self, process: u64) {
        if let Running::Open { .. } = self.lane_state().running {
            self.end_running();
            self.lane_state().running = Running::Begins { process, since: self.at };
        }
        self.open(Word::Step);
    }

    fn created(&mut self, process: u64, parent: u64, label: u32) {
        self.timeline.alive.insert(process, Alive { label, state: None, is_mailbox_empty: false });
        self.mailbox_is_empty(process);
        self.track(process);
        let (pid, parent) = (self.pid(process), if parent == 0 { "".into() } else { self.pid(parent) });
        let notes = [(Word::Pid, Value::Text(&pid)), (Word::Parent, Value::Text(&parent))];
        let notes = if parent.is_empty() { &notes[..1] } else { &notes };
        self.instant(Word::Process, Word::Spawn, notes);
    }

    fn ended(&mut self, process: u64, label: u32) {
        if !self.timeline.processes.contains_key(&process) {
            self.timeline.alive.entry(process).or_insert(Alive { label, state: None, is_mailbox_empty: false });
            self.track(process);
        }
        // The process has no further events.
        self.remove(process);
    }

    /// Ends the slice of the state of this process. Then removes the process from the tables, which contain only living
    /// processes.
    fn remove(&mut self, process: u64) {
        self.end_state(process);
        self.timeline.processes.remove(&process);
        self.timeline.alive.remove(&process);
        self.timeline.messages.remove(&process);
    }

    fn worker(&mut self, state: WorkerState) {
        match state {
            WorkerState::Running => self.end_rest(),
            WorkerState::Searching | WorkerState::Parked => {
                self.end_running();
                self.end_rest();
                let word = if state == WorkerState::Parked { Word::Parked } else { Word::Searching };
                self.on_lane(Kind::Begin, self.at, Word::Worker, Title::Fixed(word), &[]);
                self.lane_state().rests = true;
            }
            WorkerState::Blocked => {
                self.open(Word::Init);
                let lane = self.lane_state();
                if !lane.blocked && lane.running != Running::Nothing {
                    lane.blocked = true;
                    self.on_lane(Kind::Begin, self.at, Word::Worker, Title::Fixed(Word::LongStep), &[]);
                }
            }
        }
    }

    /// Writes the slice of the turn that begins on this lane, if the slice is not written yet.
    fn open(&mut self, category: Word) {
        let Running::Begins { process, since } = self.lane_state().running else { return };
        self.lane_state().running = Running::Open { process };
        self.track(process);
        let ProcessTrack { label, pid, .. } = &self.timeline.processes[&process];
        let (title, pid) = (Title::Label(*label), pid.clone());
        self.on_lane(Kind::Begin, since, category, title, &[(Word::Pid, Value::Text(&pid))]);
    }

    /// Ends the slice of the turn on this lane, if there is a turn.
    fn end_running(&mut self) {
        // If the slice of the turn is not written yet, the turn had no step. In a turn without a step, the process
        // exits.
        self.open(Word::Exit);
        let lane = self.lane_state();
        let ends = u32::from(std::mem::take(&mut lane.blocked)) + u32::from(lane.running != Running::Nothing);
        lane.running = Running::Nothing;
        for _ in 0..ends {
            self.on_lane(Kind::End, self.at, Word::Step, Title::Fixed(Word::Step), &[]);
        }
    }

    /// Ends the slice for the search or the sleep of the worker, if this slice is open.
    fn end_rest(&mut self) {
        if std::mem::take(&mut self.lane_state().rests) {
            self.on_lane(Kind::End, self.at, Word::Worker, Title::Fixed(Word::Worker), &[]);
        }
    }

    fn instant(&mut self, category: Word, name: Word, notes: &[(Word, Value<'_>)]) {
        self.arrow(category, name, notes, Flow::None);
    }

    fn arrow(&mut self, category: Word, name: Word, notes: &[(Word, Value<'_>)], flow: Flow) {
        self.open(Word::Init);
        let track = Track::Lane(self.lane_state().number);
        let (kind, title) = (Kind::Instant, Title::Fixed(name));
        self.emit(&TrackEvent { at: self.at, kind, track, category, title, notes, flow });
    }

    fn on_lane(&mut self, kind: Kind, at: u64, category: Word, title: Title, notes: &[(Word, Value<'_>)]) {
        let track = Track::Lane(self.lane_state().number);
        self.emit(&TrackEvent { at, kind, track, category, title, notes, flow: Flow::None });
    }

    fn begin_state(&mut self, process: u64, state: Word, at: u64) {
        let (kind, track, title) = (Kind::Begin, Track::Process(process), Title::Fixed(state));
        self.emit(&TrackEvent { at, kind, track, category: Word::State, title, notes: &[], flow: Flow::None });
        if let Some(track) = self.timeline.processes.get_mut(&process) {
            track.is_open = true;
        }
        if state == Word::Ready {
            self.timeline.ready.insert(process);
        }
    }

    fn end_state(&mut self, process: u64) {
        let is_open = self.timeline.processes.get_mut(&process).map(|track| &mut track.is_open);
        if is_open.is_some_and(std::mem::take) {
            self.timeline.ready.remove(&process);
            let (kind, track, title) = (Kind::End, Track::Process(process), Title::Fixed(Word::State));
            self.emit(&TrackEvent {
                at: self.at,
                kind,
                track,
                category: Word::State,
                title,
                notes: &[],
                flow: Flow::None,
            });
        }
    }

    fn emit(&mut self, event: &TrackEvent<'_>) {
        let recorder = self.recorder;
        self.timeline.packets.event(event, |label| recorder.text(label));
    }

    /// Describes the track of a process, if the track is not described yet. If the process was alive when the trace
    /// began, its state at that time is the first slice of the track.
    fn track(&mut self, process: u64) {
        if self.timeline.processes.contains_key(&process) {
            return;
        }
        let known = self.timeline.alive.get(&process).copied();
        // The event of the spawn may have been discarded.
        let found = || {
            let label = self.timeline.lookup.label(process).unwrap_or(0);
            Alive { label, state: None, is_mailbox_empty: false }
        };
        let Alive { label, state, .. } = known.unwrap_or_else(found);
        let pid: Arc<str> = self.timeline.lookup.text(process).into();
        let name = format!("{pid} {}", self.recorder.text(label));
        self.timeline.packets.describe(Track::Process(process), &name, Some(Track::Processes), 0);
        self.timeline.processes.insert(process, ProcessTrack { label, pid, is_open: false });
        let first = match state {
            Some(ProcessState::Ready) => Word::Ready,
            Some(ProcessState::Running) => Word::Running,
            Some(ProcessState::Blocked) => Word::Blocked,
            Some(ProcessState::Idle) => Word::Idle,
            Some(ProcessState::Suspended) => Word::Suspended,
            Some(ProcessState::Complete) | None => return,
        };
        // A thread may have read the clock before the trace began, and may have recorded its event later.
        self.begin_state(process, first, self.timeline.begun.min(self.at));
    }

    fn pid(&self, process: u64) -> Arc<str> {
        match self.timeline.processes.get(&process) {
            Some(track) => track.pid.clone(),
            None => self.timeline.lookup.text(process).into(),
        }
    }

    /// Returns the state of the lane. If the lane is new, describes its track. The threads outside the slots are
    /// numbered in the order in which these threads occur in the trace. Therefore two equal simulations have equal
    /// traces.
    fn lane_state(&mut self) -> &mut LaneState {
        let Timeline { lanes, outside, packets, .. } = &mut *self.timeline;
        lanes.entry(self.lane.number()).or_insert_with(|| {
            let (lane, name) = match self.lane {
                Lane::Worker(slot) => (self.lane, format!("worker {slot}")),
                Lane::Outside(_) => {
                    let lane = (Lane::Outside(*outside), format!("thread {outside}"));
                    *outside = outside.saturating_add(1);
                    lane
                }
            };
            packets.describe(Track::Lane(lane.number()), &name, Some(Track::Workers), u64::from(lane.number()));
            LaneState { number: lane.number(), ..LaneState::default() }
        })
    }
}

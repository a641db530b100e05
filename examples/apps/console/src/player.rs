//! Steps through a recording. The player shows one moment of the recording: the moment after a certain number of
//! events. A step to the next event and a step to the previous event have the same cost. The reason is that each event
//! contains a link to the state of its track before the event.

use ratatui::crossterm::event::{KeyCode, KeyEvent};

use crate::keys;
use crate::recording::{Event, Kind, NONE, Recording, Track, TrackKind};

/// Number of events of a large step.
const LARGE_STEP: usize = 100;

/// Action that the loop of the console performs after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// Draw the screen.
    Draw,
    /// End the console.
    Quit,
}

/// A recording, and a moment in this recording.
#[derive(Debug)]
pub struct Player {
    pub(crate) recording: Recording,
    /// Number of events before the present moment.
    position: usize,
    /// For each track, the index of an event, or [`NONE`]. This event begins the innermost open slice, or contains the
    /// last value of the counter.
    tops: Vec<u32>,
    /// For each track, the indexes of its first and its last event.
    spans: Vec<(usize, usize)>,
    /// Index of the track of the chosen process.
    pub(crate) chosen: Option<usize>,
    /// Message about the last key.
    pub(crate) message: Option<&'static str>,
}

/// A slice that is open at the present moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open<'a> {
    pub(crate) name: &'a str,
    /// Pid of the process if the slice is a turn.
    pub(crate) note: &'a str,
    /// Time since the beginning of the slice, in ns.
    pub(crate) age_ns: u64,
}

impl Player {
    /// Creates a player at the first event.
    pub fn new(recording: Recording) -> Self {
        let tops = vec![NONE; recording.tracks.len()];
        let mut spans = vec![(usize::MAX, 0); recording.tracks.len()];
        for (index, event) in recording.events.iter().enumerate() {
            let (first, last) = &mut spans[event.track as usize];
            (*first, *last) = ((*first).min(index), index);
        }
        let mut player = Self { recording, position: 0, tops, spans, chosen: None, message: None };
        player.seek(1);
        player
    }

    /// Number of events before the present moment. The last of these events is the present event.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The present event.
    pub(crate) fn present(&self) -> Option<&Event> {
        self.recording.events.get(self.position.checked_sub(1)?)
    }

    /// Time of the present event in ns.
    pub(crate) fn now_ns(&self) -> u64 {
        self.present().map_or(0, |event| event.at)
    }

    /// The open slices of a track at the present moment, innermost first.
    pub(crate) fn open(&self, track: usize) -> impl Iterator<Item = Open<'_>> {
        let begin = |index: u32| self.recording.events.get(index as usize);
        std::iter::successors(begin(self.tops[track]), move |event| begin(event.link)).map(|event| Open {
            name: self.recording.text(event.name),
            note: self.recording.note(event),
            age_ns: self.now_ns().saturating_sub(event.at),
        })
    }

    /// The value of a counter at the present moment.
    pub(crate) fn count(&self, track: usize) -> Option<u64> {
        self.recording.events.get(self.tops[track] as usize).map(|event| event.value)
    }

    /// The tracks of the processes that exist at the present moment. Between two states, a process exists but has no
    /// state: one event ends the old state, and a later event begins the new state. If a recording was cut off, the
    /// last state of a living process has no end. A process whose last state has no end exists until the end of the
    /// recording.
    pub(crate) fn alive(&self) -> Vec<usize> {
        let exists = |track: &usize| {
            let (first, last) = self.spans[*track];
            first < self.position && (self.position <= last || self.tops[*track] != NONE)
        };
        self.recording.of_kind(TrackKind::Process).filter(exists).collect()
    }

    pub(crate) fn track(&self, track: usize) -> &Track {
        &self.recording.tracks[track]
    }

    /// Moves to the moment after `position` events. The first moment is the moment after the first event.
    pub fn seek(&mut self, position: usize) {
        let events = &self.recording.events;
        let target = position.max(1).min(events.len());
        while self.position < target {
            let event = &events[self.position];
            self.tops[event.track as usize] = match event.kind {
                Kind::Begin | Kind::Counter => self.position as u32,
                Kind::End => events.get(event.link as usize).map_or(NONE, |begin| begin.link),
                Kind::Instant => self.tops[event.track as usize],
            };
            self.position += 1;
        }
        while self.position > target {
            self.position -= 1;
            let event = &events[self.position];
            if event.kind != Kind::Instant {
                self.tops[event.track as usize] = event.link;
            }
        }
    }

    /// Returns true in two cases: the event belongs to the process, or the note of the event is the pid of the process.
    fn concerns(&self, event: &Event, process: usize) -> bool {
        let pid = self.recording.tracks[process].pid();
        event.process as usize == process || (!pid.is_empty() && self.recording.note(event) == pid)
    }

    /// Moves to the next or the previous event of the chosen process.
    fn seek_chosen(&mut self, is_forward: bool) {
        let Some(process) = self.chosen else {
            self.message = Some("no process is chosen; choose a process with the arrow keys");
            return;
        };
        let events = &self.recording.events;
        let found = if is_forward {
            (self.position..events.len()).find(|index| self.concerns(&events[*index], process))
        } else {
            (0..self.position.saturating_sub(1)).rev().find(|index| self.concerns(&events[*index], process))
        };
        match found {
            Some(index) => self.seek(index + 1),
            None => self.message = Some("the process has no further event"),
        }
    }

    /// Chooses the next or the previous process in the list.
    fn choose(&mut self, is_forward: bool) {
        let alive = self.alive();
        let next = match self.chosen.map(|chosen| (alive.partition_point(|track| *track < chosen), chosen)) {
            None => 0,
            Some((at, chosen)) if is_forward => at + usize::from(alive.get(at) == Some(&chosen)),
            Some((at, _)) => at.saturating_sub(1),
        };
        if let Some(last) = alive.len().checked_sub(1) {
            self.chosen = Some(alive[next.min(last)]);
        }
    }

    /// Handles a key.
    pub fn handle_key(&mut self, key: &KeyEvent) -> Reaction {
        self.message = None;
        if keys::is_interrupt(key) {
            return Reaction::Quit;
        }
        match key.code {
            KeyCode::Char('q') => return Reaction::Quit,
            KeyCode::Char('n') | KeyCode::Right => self.seek(self.position.saturating_add(1)),
            KeyCode::Char('p') | KeyCode::Left => self.seek(self.position.saturating_sub(1)),
            KeyCode::Char('N') | KeyCode::PageDown => self.seek(self.position.saturating_add(LARGE_STEP)),
            KeyCode::Char('P') | KeyCode::PageUp => self.seek(self.position.saturating_sub(LARGE_STEP)),
            KeyCode::Char('g') | KeyCode::Home => self.seek(0),
            KeyCode::Char('G') | KeyCode::End => self.seek(usize::MAX),
            KeyCode::Down => self.choose(true),
            KeyCode::Up => self.choose(false),
            KeyCode::Char('f') => self.seek_chosen(true),
            KeyCode::Char('b') => self.seek_chosen(false),
            KeyCode::Esc => self.chosen = None,
            _ => {}
        }
        Reaction::Draw
    }
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::KeyModifiers;

    use super::*;
    use crate::recording::Limits;
    use crate::recording::tests::{recording, trace};

    fn press(player: &mut Player, code: KeyCode) -> Reaction {
        player.handle_key(&KeyEvent::new(code, KeyModifiers::NONE))
    }

    /// The data that the player shows about a moment.
    fn moment(player: &Player) -> String {
        let tracks = 0..player.recording.tracks.len();
        let slices = |track: usize| match player.track(track).kind {
            TrackKind::Counter => format!("{:?}", player.count(track)),
            _ => format!("{:?}", player.open(track).collect::<Vec<_>>()),
        };
        format!("{} {} {:?}", player.position(), player.now_ns(), tracks.map(slices).collect::<Vec<_>>())
    }

    #[test]
    fn backward_steps_lead_through_the_same_moments_as_forward_steps() {
        let mut player = Player::new(recording());
        let count = player.recording.events.len();
        let mut forward = vec![moment(&player)];
        for _ in 1..count {
            press(&mut player, KeyCode::Char('n'));
            forward.push(moment(&player));
        }
        press(&mut player, KeyCode::Char('n'));
        assert_eq!(moment(&player), forward[count - 1]);
        for expected in forward.iter().rev().skip(1) {
            press(&mut player, KeyCode::Left);
            assert_eq!(&moment(&player), expected);
        }
        press(&mut player, KeyCode::Left);
        assert_eq!(player.position(), 1);
        for (position, expected) in [(count / 2, count / 2), (3, 3), (usize::MAX, count), (0, 1)] {
            player.seek(position);
            assert_eq!(moment(&player), forward[expected - 1]);
        }
    }

    #[test]
    fn no_slice_is_open_after_the_last_event() {
        let mut player = Player::new(recording());
        press(&mut player, KeyCode::End);
        let tracks = player.recording.tracks.iter().enumerate();
        let open =
            tracks.filter(|(_, track)| track.kind != TrackKind::Counter).map(|(index, _)| player.open(index).count());
        assert_eq!((open.sum::<usize>(), player.alive()), (0, vec![]));
    }

    #[test]
    fn a_process_exists_between_two_of_its_states() {
        let mut player = Player::new(recording());
        let tracks: Vec<_> = player.recording.of_kind(TrackKind::Process).collect();
        let mut without_state = 0;
        let mut lives = vec![Vec::new(); tracks.len()];
        for position in 1..=player.recording.events.len() {
            player.seek(position);
            let alive = player.alive();
            without_state += alive.iter().filter(|track| player.open(**track).next().is_none()).count();
            tracks.iter().zip(&mut lives).for_each(|(track, life)| life.push(alive.contains(track)));
        }
        // Each process enters the list once, and leaves the list once.
        for life in &lives {
            assert_eq!(life.windows(2).filter(|pair| pair[0] != pair[1]).count(), 2, "{life:?}");
        }
        assert_ne!(without_state, 0);
    }

    #[test]
    fn a_process_with_an_open_slice_exists_until_the_end_of_a_recording_that_was_cut_off() {
        let bytes = trace();
        let cut_off = Recording::read(&bytes[..bytes.len() * 2 / 3], Limits::default()).unwrap();
        let count = cut_off.events.len();
        let (mut cut_off, mut whole) = (Player::new(cut_off), Player::new(recording()));
        let with_slice = |player: &Player| -> Vec<_> {
            player.alive().into_iter().filter(|track| player.open(*track).next().is_some()).collect()
        };
        for position in 1..=count {
            cut_off.seek(position);
            whole.seek(position);
            assert_eq!(with_slice(&cut_off), with_slice(&whole), "{position} of {count}");
        }
        assert_eq!(with_slice(&cut_off).len(), 2);
    }

    #[test]
    fn large_steps_move_by_100_events_and_stop_at_the_ends() {
        let mut player = Player::new(recording());
        press(&mut player, KeyCode::PageDown);
        assert_eq!(player.position(), 101.min(player.recording.events.len()));
        press(&mut player, KeyCode::Char('P'));
        assert_eq!(player.position(), 1);
        assert_eq!(press(&mut player, KeyCode::Char('q')), Reaction::Quit);
    }

    #[test]
    fn the_events_of_the_chosen_process_are_found_in_both_directions() {
        let mut player = Player::new(recording());
        press(&mut player, KeyCode::Char('f'));
        assert!(player.message.is_some_and(|text| text.starts_with("no process is chosen")));
        while player.alive().len() < 2 {
            press(&mut player, KeyCode::Char('n'));
        }
        press(&mut player, KeyCode::Down);
        let ping = player.chosen.unwrap();
        assert!(player.track(ping).label().starts_with("ping ("));
        press(&mut player, KeyCode::Down);
        assert!(player.track(player.chosen.unwrap()).label().starts_with("pong ("));
        press(&mut player, KeyCode::Up);
        assert_eq!(player.chosen, Some(ping));
        let mut names = Vec::new();
        while player.message.is_none() {
            press(&mut player, KeyCode::Char('f'));
            let event = *player.present().unwrap();
            names.push((player.position(), player.recording.text(event.name).to_owned()));
        }
        let count = |name: &str| names[..names.len() - 1].iter().filter(|(_, one)| one == name).count();
        // The `send` events name the chosen process, and the `receive` events happen in the turns of the chosen
        // process.
        assert_eq!((count("send"), count("receive")), (3, 3), "{names:?}");
        player.message = None;
        let last = player.position();
        press(&mut player, KeyCode::Char('b'));
        assert!(player.position() < last && player.message.is_none());
    }
}

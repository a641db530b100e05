//! The player opens each kind of recording, and steps through the events of the recording in both directions.

use std::path::{Path, PathBuf};
use std::time::Duration;

use procession::observe::FlightRecorder;
use procession::{Check, Context, Exit, Host, Runtime};
use procession_console::player::Player;
use procession_console::recording::Recording;
use procession_console::views::{player_buffer, rows};
use ratatui::crossterm::event::KeyCode;

/// Maximum number of steps in each direction.
const STEPS: usize = 150;

/// Folder that is removed when the value is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("procession-recordings-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Opens the file, and shows the moments of the recording: first with backward steps from the last event, then with
/// forward steps. The steps in both directions must show the same screens. Returns the screens of the first and the
/// last events.
fn step_both_ways(path: &Path) -> Vec<String> {
    let mut player = Player::new(Recording::open(path).unwrap());
    player.handle_key(&KeyCode::End.into());
    let count = player.position();
    assert!(count > 50, "there are only {count} events");
    let steps = STEPS.min(count);
    let walk = |player: &mut Player, key: KeyCode| -> Vec<String> {
        let screens = (0..steps).map(|_| {
            let screen = rows(&player_buffer(player)).join("\n");
            player.handle_key(&key.into());
            screen
        });
        screens.collect()
    };
    let mut backward = walk(&mut player, KeyCode::Char('p'));
    backward.reverse();
    player.seek(count + 1 - steps);
    assert_eq!(walk(&mut player, KeyCode::Char('n')), backward);
    let differences = backward.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert_eq!(differences, steps - 1, "two moments have the same screen");
    player.seek(1);
    let first = walk(&mut player, KeyCode::Right);
    [first, backward].concat()
}

/// Receives messages until the number 0 arrives.
async fn echo(mut ctx: Context<u32>) {
    while ctx.receive().await.is_ok_and(|number| number != 0) {}
}

/// Sends `count` messages to a process with the name `echo`.
fn exchange(rt: &Runtime, count: u32) {
    let echo = rt.process().name("echo").spawn(echo).unwrap();
    for number in (0..count).rev() {
        echo.send(number).unwrap();
        rt.block_on(rt.spawn(async |ctx: Context| ctx.yield_now().await)).unwrap();
    }
    rt.block_on(echo).unwrap();
}

fn has(screens: &[String], text: &str) -> bool {
    screens.iter().any(|screen| screen.contains(text))
}

/// 9.6b: the player steps through the execution trace of a program.
#[test]
fn an_execution_trace_is_played_in_both_directions() {
    let folder = Folder::new("trace");
    let path = folder.0.join("run.pftrace");
    let rt = Runtime::builder().workers(1).build().unwrap();
    let trace = rt.start_trace(&path).unwrap();
    exchange(&rt, 30);
    trace.finish().unwrap();
    let screens = step_both_ways(&path);
    assert!(screens[0].contains("event 1 at +") && has(&screens, ": send <") && has(&screens, ": receive"));
}

/// 9.6b: the player steps through a flight record, in which newer events have overwritten the first events.
#[test]
fn a_flight_record_is_played_in_both_directions() {
    let folder = Folder::new("flight");
    let path = folder.0.join("flight.pftrace");
    let recorder = FlightRecorder::new().buffer_size(0);
    let rt = Runtime::builder().workers(1).flight_recorder(recorder).build().unwrap();
    let mut overwritten = 0;
    while overwritten == 0 {
        exchange(&rt, 100);
        overwritten = rt.write_flight_record(&path).unwrap().overwritten;
    }
    let screens = step_both_ways(&path);
    assert!(screens[0].contains("event 1 at +") && screens[0].contains("recording of "), "{}", screens[0]);
    assert!(has(&screens, "running") && has(&screens, "worker 0"));
    // The summary for scripts counts the same events.
    let summary = Recording::open(&path).unwrap().summary();
    assert_eq!(summary["incomplete_bytes"], 0, "{summary}");
}

/// 9.6b: a simulation fails with one seed, and the player steps through the flight record of this seed. The screens
/// show the virtual time.
#[test]
fn the_record_of_a_simulation_is_played_in_both_directions() {
    let folder = Folder::new("simulation");
    let path = folder.0.join("failing.pftrace");
    let fails = async |host: Host| {
        let echo = host.process().name("echo").spawn(echo).map_err(Exit::failed)?;
        for number in (0..30).rev() {
            host.sleep(Duration::from_secs(60)).await;
            echo.send(number).map_err(|_| Exit::failed("echo has exited"))?;
        }
        echo.await?;
        Err::<(), _>(Exit::failed("no luck"))
    };
    let check = Check::new(0..1).flight_record(&path);
    assert!(std::panic::catch_unwind(|| check.run(fails)).is_err());
    let screens = step_both_ways(&path);
    assert!(has(&screens, "echo (") && has(&screens, "at +29 min"), "{}", screens.last().unwrap());
}

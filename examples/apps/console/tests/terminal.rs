//! The whole console in a pseudo-terminal, attached to a real program: the test types keys, and reads the screen.

#![cfg(unix)]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use portable_pty::{CommandBuilder, PtyPair, PtySize, native_pty_system};
use procession::{Context, Runtime, Supervisor};

/// Maximum time until a text is on the screen. Only a test that hangs reaches this limit.
const LIMIT: Duration = Duration::from_secs(60);

/// The program `console-demo`, which runs until the value is dropped.
struct Demo {
    child: Child,
    folder: PathBuf,
}

impl Demo {
    fn start(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("procession-console-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_console-demo"));
        let mut child =
            command.arg(folder.join("socket")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the demo");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { child, folder }
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// Runs the console with options, and returns the output of the console.
    fn ask(&self, options: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_procession-console")).args(options).arg(self.socket()).output().unwrap()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The console in a terminal of 80 x 24 characters.
struct Screen {
    parser: vt100::Parser,
    output: mpsc::Receiver<Vec<u8>>,
    keyboard: Box<dyn Write + Send>,
    console: Box<dyn portable_pty::Child + Send + Sync>,
    _pair: PtyPair,
}

impl Screen {
    fn open(demo: &Demo) -> Self {
        Self::of(&demo.socket())
    }

    /// Opens the view of the process `clerk-1`.
    fn open_clerk(demo: &Demo) -> Self {
        let mut screen = Self::open(demo);
        screen.wait_for("Processes 7");
        screen.press("2");
        screen.wait_for("archive");
        screen.press("/clerk-1\r");
        screen.wait("one row", |text| text.contains("clerk-1") && !text.contains("archive"));
        screen.press("\r");
        screen
    }

    /// Opens the console for a socket or a recording.
    fn of(path: &Path) -> Self {
        let pair = native_pty_system().openpty(PtySize { rows: 24, cols: 80, ..PtySize::default() }).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_procession-console"));
        command.args(["--interval", "0.1"]);
        command.arg(path);
        command.env("TERM", "xterm");
        let console = pair.slave.spawn_command(command).unwrap();
        let mut reader = pair.master.try_clone_reader().unwrap();
        let (send, output) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if send.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let keyboard = pair.master.take_writer().unwrap();
        Self { parser: vt100::Parser::new(24, 80, 0), output, keyboard, console, _pair: pair }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
        self.keyboard.flush().unwrap();
    }

    /// Waits until the screen satisfies the condition. Returns the screen.
    fn wait(&mut self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + LIMIT;
        loop {
            let text: String =
                self.parser.screen().contents().lines().flat_map(|line| [line.trim_end(), "\n"]).collect();
            if is_there(&text) {
                return text;
            }
            match self.output.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.parser.process(&bytes),
                Err(_) => panic!("{what} is not on the screen:\n{text}"),
            }
        }
    }

    fn wait_for(&mut self, text: &str) -> String {
        self.wait(text, |screen| screen.contains(text))
    }
}

/// 9.4c: the console shows rates, delays, processes, deadlocks and workers of a running program.
#[test]
fn keys_switch_between_the_views_of_a_running_program() {
    let demo = Demo::start("views");
    let mut screen = Screen::open(&demo);
    screen.wait_for("Processes 7");
    screen.wait_for("longest mailbox 100");
    // The clerks send messages all the time.
    screen.wait("a rate", |text| text.lines().any(|line| line.starts_with("messages") && !line.contains(" 0.0 ")));
    screen.press("2");
    let table = screen.wait_for("7 processes, by mailbox_len, largest first");
    assert!(table.lines().nth(4).unwrap().contains("archive"), "{table}");
    screen.press("/");
    screen.wait_for("filter (NAME type=TEXT state=STATE): _");
    screen.press("sho\r");
    screen.wait("one row", |text| text.contains("filter sho") && text.contains("shop") && !text.contains("archive"));
    screen.press("\r");
    let process = screen.wait_for("waits for     the answer to a call to <");
    assert!(process.contains("names         shop"), "{process}");
    screen.press("4");
    let graph = screen.wait_for("1 deadlock\n");
    for name in ["shop", "bank"] {
        assert!(graph.lines().any(|line| line.starts_with("  <") && line.ends_with(name)), "{graph}");
        assert!(
            graph.lines().any(|line| line.starts_with('<') && line.contains(name) && line.contains(" call ")),
            "{graph}"
        );
    }
    assert!(graph.contains("console-demo.rs:"), "{graph}");
    screen.press("5");
    screen.wait("the blocked worker", |text| {
        text.lines().any(|line| line.contains("blocked, replaced ") && line.ends_with('s'))
    });
    screen.press("6");
    screen.wait_for("deadlock of 2 processes:");
    screen.wait_for("what to do: ");
    screen.press("7");
    screen.wait_for("no abnormal exit");
    screen.press("8");
    let tree = screen.wait_for("clerk-2");
    let supervisor = tree.lines().nth(3).unwrap();
    assert!(supervisor.starts_with("clerks ") && supervisor.ends_with("0  3 of 3 in 5.0 s"), "{tree}");
    assert!(tree.contains("  clerk-1"), "{tree}");
    screen.press("1");
    screen.wait_for("steps per second");
    screen.press("q");
    assert!(screen.console.wait().unwrap().success());
}

/// 9.6b: the console lists the names, groups, timers and handlers of a running program.
#[test]
fn the_registry_tables_of_a_running_program_are_listed() {
    let demo = Demo::start("registry");
    let mut screen = Screen::open(&demo);
    screen.wait_for("Processes 7");
    screen.press("9t");
    let groups = screen.wait_for("1 groups\n");
    assert!(groups.lines().any(|line| line.starts_with("clerks  ") && line.contains("  2 ")), "{groups}");
    screen.press("t");
    // The clerks sleep most of the time.
    screen.wait("a wheel", |text| text.lines().any(|line| line.starts_with("worker ") && line.contains("in ")));
    screen.press("t");
    screen.wait_for(" handlers, with the number of commands without an answer");
    screen.press("t");
    let names = screen.wait_for("7 names\n");
    assert!(names.lines().nth(4).unwrap().starts_with("archive  "), "{names}");
    assert!(names.lines().all(|line| line.chars().count() <= 80) && names.contains("9Registry"), "{names}");
    screen.press("/cl\r");
    let clerks = screen.wait_for("3 names that begin with cl\n");
    assert!(clerks.contains("clerk-1 ") && !clerks.contains("archive"), "{clerks}");
    screen.press("\r");
    screen.wait_for("names         clerk-1");
    screen.press("q");
    assert!(screen.console.wait().unwrap().success());
}

#[test]
fn actions_are_confirmed_and_change_the_program() {
    let demo = Demo::start("actions");
    let mut screen = Screen::open(&demo);
    screen.wait_for("Processes 7");
    screen.press("2");
    screen.wait_for("archive");
    screen.press("k");
    screen.wait_for("? (y/n)");
    screen.press("n");
    screen.wait_for("nothing was done");
    screen.press("P");
    screen.wait_for("priority High? (y/n)");
    screen.press("y");
    screen.wait_for("set_priority: done");
    screen.press("Sy");
    screen.wait_for("suspend: done");
    screen.wait_for("Suspended+");
    screen.press("Sy");
    screen.wait_for("resume: done");
    screen.wait_for("Idle+");
    screen.press("k");
    screen.wait_for("? (y/n)");
    screen.press("y");
    screen.wait("the end of the process", |text| text.contains("6 processes") && !text.contains("archive"));
    screen.press("7");
    screen.wait("the exit", |text| text.lines().any(|line| line.contains("archive") && line.ends_with("killed")));
    screen.press("5");
    screen.wait_for("2 workers requested, 1 replaced");
    screen.press("+y");
    screen.wait_for("3 workers requested, ");
    screen.press("F");
    screen.wait_for("write a flight record? (y/n)");
    screen.press("y");
    screen.wait_for("write_flight_record: ");
    let is_record = |file: &Path| file.extension().is_some_and(|extension| extension == "pftrace");
    assert!(std::fs::read_dir(&demo.folder).unwrap().any(|file| is_record(&file.unwrap().path())));
    screen.press("8");
    screen.wait_for("  clerk-1 ");
    screen.press("\u{1b}[BR");
    screen.wait_for("restart_child clerk-1? (y/n)");
    screen.press("y");
    screen.wait_for("restart_child: <");
    screen.press("5");
    screen.wait_for("3 workers requested");
    // The keys Ctrl-C end the console in each state.
    screen.press("-");
    screen.wait_for("set the number of workers to 2? (y/n)");
    screen.press("\u{3}");
    assert!(screen.console.wait().unwrap().success());
}

#[test]
fn the_console_reports_the_end_of_a_program_and_continues() {
    let demo = Demo::start("end");
    let mut screen = Screen::open(&demo);
    screen.wait_for("Processes 7");
    drop(demo);
    screen.wait_for("connection: ");
    screen.press("q");
    assert!(screen.console.wait().unwrap().success());
}

#[test]
fn a_script_gets_an_exit_status_and_either_text_or_json() {
    let demo = Demo::start("scripts");
    let stdout = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap();
    // At the start of the program, the deadlock does not exist yet. The deadlock arises a moment later.
    let end = Instant::now() + LIMIT;
    while demo.ask(&["--fail-if", "deadlock"]).status.code() != Some(1) {
        assert!(Instant::now() < end, "no deadlock: {}", stdout(&demo.ask(&["--once"])));
    }
    let text = demo.ask(&["--once"]);
    assert_eq!(text.status.code(), Some(0));
    assert!(
        stdout(&text).contains("  deadlock of 2 processes:\n") && stdout(&text).contains("archive: Idle, mailbox 100")
    );
    let json = demo.ask(&["--json", "--fail-if", "panic"]);
    assert_eq!(json.status.code(), Some(0));
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&value["wait_for_graph"]["deadlock_count"], &value["overview"]["processes_alive"]),
        (&1.into(), &7.into())
    );
    assert_eq!((&value["names"]["name_count"], value["groups"]["rows"].is_array()), (&7.into(), true));
    assert!(value["timers"]["timer_count"].is_u64() && value["handlers"]["handler_count"].is_u64(), "{value}");
    let status = |options: &[&str]| demo.ask(options).status.code();
    assert_eq!(
        (
            status(&["--fail-if", "nothing"]),
            status(&["--interval", "0"]),
            status(&["--interval", "1e19"]),
            status(&["--dance"])
        ),
        (Some(2), Some(2), Some(2), Some(2))
    );
    let tree = &value["supervision_tree"]["rows"][0];
    assert_eq!((&tree["name"], &tree["supervisor"]["restarts_left"]), (&"clerks".into(), &3.into()), "{value}");
    assert!(stdout(&text).contains(" clerks: one for one, 3 of 3 restarts left in 5.0 s\n"), "{}", stdout(&text));
    assert_eq!(status(&["--fail-if", "no-restarts-left"]), Some(0));
}

/// While no supervisor answers, the restart budgets are not known. But if a condition that does not need the budgets
/// holds, this condition decides the exit status.
#[test]
fn a_condition_that_cannot_be_checked_is_an_error() {
    let folder = Folder::new("unknown");
    let socket = folder.0.join("socket");
    let builder = Runtime::builder().workers(1).max_replacement_threads(0).console(&socket);
    let rt = builder.long_step_threshold(Duration::MAX).build().unwrap();
    let top = rt.spawn_process(Supervisor::one_for_one());
    rt.block_on(top.started()).unwrap();
    let ask = |conditions: &[&str]| {
        let options = conditions.iter().flat_map(|condition| ["--fail-if", condition]);
        let mut command = Command::new(env!("CARGO_BIN_EXE_procession-console"));
        let output = command.args(options).arg(&socket).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(ask(&["no-restarts-left"]), (Some(0), String::new()));
    let (release, released) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let blocked = rt.spawn(async move |_: Context| {
        procession::block_in_place(|| {
            tell.send(()).unwrap();
            released.recv().unwrap_err();
        });
    });
    told.recv().unwrap();
    let unknown = "procession-console: no-restarts-left could not be checked: \
                   the supervisors have not answered in time; perhaps no worker is free\n";
    assert_eq!(ask(&["no-restarts-left", "panic"]), (Some(2), unknown.to_owned()));
    let both = format!("{unknown}procession-console: blocked-worker holds\n");
    assert_eq!(ask(&["no-restarts-left", "blocked-worker"]), (Some(1), both));
    drop(release);
    rt.block_on(blocked).unwrap();
}

/// The error message for a common mistake states the cause of the error, and what the user must do.
#[test]
fn the_error_of_a_common_mistake_states_what_to_do() {
    let (folder, recording) = record("mistakes");
    let path = |name: &str| folder.0.join(name).display().to_string();
    let error = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_procession-console"));
        let output = command.args(arguments).env_remove("PROCESSION_CONSOLE_TOKEN").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        text.strip_prefix("procession-console: ").unwrap().trim_end().to_owned()
    };
    let ended = std::os::unix::net::UnixListener::bind(path("ended")).unwrap();
    drop(ended);
    let silent = std::os::unix::net::UnixListener::bind(path("silent")).unwrap();
    let other = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut client, _) = silent.accept().unwrap();
            client.write_all(b"{\"hello\": 1}\n").unwrap();
        }
    });
    std::fs::write(path("text"), "a text").unwrap();
    let socket = path("socket");
    let _rt = Runtime::builder().workers(0).console(&socket).build().unwrap();
    for (arguments, expected) in [
        (
            &["--once", &path("none")][..],
            "No such file or directory (os error 2); no program has opened this socket: start it with PROCESSION_CONSOLE=PATH",
        ),
        (
            &["--once", &path("ended")],
            "Connection refused (os error 111); the program that has opened this socket has ended",
        ),
        (&["--once", &path("silent")], "the server is no console server"),
        (&["--once", &path("text")], "no recording, or a damaged recording: no packet begins at byte 0"),
        (&["--once", &path("")], ": this is a folder; name a socket or a recording"),
        (&[&socket], "the output is no terminal; use --once, --json or --fail-if"),
        (&[recording.to_str().unwrap()], "the output is no terminal; use --once, --json or --fail-if"),
        (&["--once", "--tcp", "localhost:1"], "--tcp needs the token of Builder::console_tcp in this variable"),
        (&[], "name either a socket, a recording or --tcp; --help lists the options"),
        (&["--dance", &socket], "invalid option '--dance'; --help lists the options"),
        (&[&socket, &socket], "; --help lists the options"),
        (
            &["--fail-if", "deadlok", &socket],
            "unknown condition deadlok; the conditions are deadlock, blocked-worker, panic, finding, no-restarts-left",
        ),
        (&["--trace", "clerk-1", &socket], "field `pid`: not a pid: it must stand between `<` and `>`"),
    ] {
        let text = error(arguments);
        assert!(text.ends_with(expected), "{arguments:?}: {text}");
    }
    // Another program, or a console without the right token, gets no answer.
    error(&["--once", &path("silent")]);
    other.join().unwrap();
    let token = "0123456789abcdef";
    let rt = Runtime::builder().workers(0).console_tcp(([127, 0, 0, 1], 0), token).build().unwrap();
    let address = rt.console_address().unwrap().to_string();
    let tcp = |address: &str, token: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_procession-console"));
        command.args(["--once", "--tcp", address]).env("PROCESSION_CONSOLE_TOKEN", token).output().unwrap()
    };
    assert_eq!(tcp(&address, token).status.code(), Some(0));
    for (address, token, expected) in
        [(address.as_str(), "wrong", "the token is wrong\n"), ("127.0.0.1", token, "; --tcp needs HOST:PORT\n")]
    {
        let text = String::from_utf8(tcp(address, token).stderr).unwrap();
        assert!(text.ends_with(expected), "{text}");
    }
    drop(rt);
    let text = String::from_utf8(tcp(&address, token).stderr).unwrap();
    assert!(text.ends_with("; no program listens at this address: see Builder::console_tcp\n"), "{text}");
}

/// A reader such as `head -1` ends before the console has printed everything. The early end of the reader does not
/// change the exit status of the console.
#[test]
fn a_closed_output_is_no_error() {
    let demo = Demo::start("closed");
    let (_folder, path) = record("closed-recording");
    for (options, source, expected) in [
        (&["--json"][..], demo.socket(), 0),
        (&["--once", "--fail-if", "blocked-worker"], demo.socket(), 1),
        (&["--json"], path.clone(), 0),
        (&["--once"], path, 0),
        (&["--help"], demo.socket(), 0),
    ] {
        let end = Instant::now() + LIMIT;
        loop {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let mut command = Command::new(env!("CARGO_BIN_EXE_procession-console"));
            let output = command.args(options).arg(&source).stdout(writer).stderr(Stdio::piped()).output().unwrap();
            // The worker begins to block shortly after the start of the program, not immediately.
            if output.status.code() == Some(expected) {
                break;
            }
            let is_early = expected == 1 && output.status.code() == Some(0) && Instant::now() < end;
            assert!(is_early, "{options:?}: {output:?}");
        }
    }
}

/// 9.6f: the console shows the live trace of a process, and prints the trace for scripts.
#[test]
fn a_trace_of_a_process_is_shown_on_the_screen_and_printed_for_scripts() {
    let demo = Demo::start("trace");
    let mut screen = Screen::open_clerk(&demo);
    screen.wait_for("names         clerk-1");
    screen.press("t");
    screen.wait_for(" events, 0 lost; runs");
    // The clerk sends itself a message every 10 ms.
    let trace = screen.wait("messages", |text| text.contains("sent           by <") && text.contains("received"));
    assert!(trace.lines().nth(2).unwrap().contains("clerk-1 ("), "{trace}");
    let details = screen_of_process(&mut screen);
    let pid = details.lines().find_map(|line| line.strip_prefix("pid           ")).unwrap().to_owned();
    let output = demo.ask(&["--json", "--interval", "0.3", "--trace", &pid]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let trace = &value["trace"];
    // The trace on the screen ended when the console left the view of the trace. The trace of the script has ended too,
    // so no trace runs.
    assert_eq!((&trace["ended"], &value["hello"]["traces"]), (&"max_ms".into(), &0.into()), "{trace}");
    let events = trace["events"].as_array().unwrap();
    let sent = events.iter().filter(|event| event["event"] == "sent");
    assert!(sent.clone().count() > 0 && sent.clone().all(|event| event["from"] == *pid), "{trace}");
    assert_eq!(demo.ask(&["--trace", "<1.7.7>"]).status.code(), Some(2));
    let long = demo.ask(&["--trace", &pid, "--interval", "601"]);
    let error = "procession-console: --trace: --interval is longer than 600 s\n";
    assert_eq!((long.status.code(), String::from_utf8(long.stderr).unwrap().as_str()), (Some(2), error));
    let text = String::from_utf8(demo.ask(&["--interval", "0.2", "--trace", &pid]).stdout).unwrap();
    assert!(text.contains(&format!("trace of {pid} clerk-1 (")) && text.contains("  received\n"), "{text}");
    screen.press("q");
    assert!(screen.console.wait().unwrap().success());
}

/// 9.4c: the view of a process shows the rates of the process.
#[test]
fn the_rates_of_a_process_are_shown() {
    let demo = Demo::start("rates");
    let mut screen = Screen::open_clerk(&demo);
    let rate = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        let number = line.get(14..)?.split_whitespace().next()?.trim_start_matches('~').replace(',', "");
        number.parse::<u64>().ok()
    };
    // The clerk sends itself a message every 10 ms.
    let details = screen.wait("the steps", |text| rate(text, "steps/s").is_some_and(|rate| rate > 0));
    assert!(details.contains("supervisor    <") && details.contains("memory        "), "{details}");
    assert_eq!(rate(&details, "messages/s"), None);
    screen.press("m");
    screen.wait("the messages", |text| rate(text, "messages/s").is_some_and(|rate| rate > 0));
    screen.press("m");
    screen.wait_for("press m to measure the messages with a live trace");
    let traces = || {
        let json: serde_json::Value = serde_json::from_slice(&demo.ask(&["--json"]).stdout).unwrap();
        json["hello"]["traces"].clone()
    };
    assert_eq!(traces(), 0);
    screen.press("q");
    assert!(screen.console.wait().unwrap().success());
}

/// Leaves the trace. Returns the view of the process.
fn screen_of_process(screen: &mut Screen) -> String {
    screen.press("\u{1b}");
    screen.wait_for("names         clerk-1")
}

/// A folder that is removed when the value is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = Self(std::env::temp_dir().join(format!("procession-console-{name}-{}", std::process::id())));
        std::fs::create_dir(&folder.0).unwrap();
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Writes the trace of a run in which the process `echo` gets 100 messages. Returns the folder and the file.
fn record(name: &str) -> (Folder, PathBuf) {
    async fn echo(mut ctx: Context<u32>) {
        while ctx.receive().await.is_ok_and(|number| number != 100) {}
    }
    let folder = Folder::new(name);
    let path = folder.0.join("run.pftrace");
    let rt = Runtime::builder().workers(1).build().unwrap();
    let trace = rt.start_trace(&path).unwrap();
    let echo = rt.process().name("echo").spawn(async |ctx: Context<u32>| echo(ctx).await).unwrap();
    (1..=100).for_each(|number| echo.send(number).unwrap());
    rt.block_on(echo).unwrap();
    trace.finish().unwrap();
    (folder, path)
}

/// 9.6b: without a running program, the console opens a recording and steps through the events of the recording.
#[test]
fn the_user_can_move_forward_and_backward_through_a_recording_with_keys() {
    let (_folder, path) = record("recording");
    let mut screen = Screen::of(&path);
    screen.wait_for("event 1 at +");
    screen.press("nnn");
    screen.wait_for("event 4 at +");
    screen.press("p");
    screen.wait_for("event 3 at +");
    screen.press("N");
    screen.wait_for("event 103 at +");
    screen.press("\u{1b}[B");
    let chosen = screen.wait("a process", |text| text.lines().any(|line| line.starts_with('<')));
    assert!(chosen.lines().any(|line| line.starts_with('<') && line.contains(" echo (")), "{chosen}");
    screen.press("f");
    let next = screen.wait("the next event", |text| text.contains("event 1") && !text.contains("event 103 "));
    screen.press("b");
    screen.wait("the previous event", |text| text != next);
    screen.press("G");
    screen.wait_for("(0 processes)");
    screen.press("f");
    screen.wait_for("the process has no further event");
    screen.press("g");
    screen.wait_for("event 1 at +");
    screen.press("q");
    assert!(screen.console.wait().unwrap().success());
}

/// 9.6b: the console opens a flight record that a running program has written.
#[test]
fn a_flight_record_of_a_running_program_is_opened() {
    let demo = Demo::start("flight");
    let mut screen = Screen::open(&demo);
    screen.wait_for("Processes 7");
    screen.press("F");
    screen.wait_for("write a flight record? (y/n)");
    screen.press("y");
    screen.wait_for("write_flight_record: ");
    let is_record = |file: &Path| file.extension().is_some_and(|extension| extension == "pftrace");
    let mut files = std::fs::read_dir(&demo.folder).unwrap().map(|file| file.unwrap().path());
    let path = files.find(|path| is_record(path)).unwrap();
    let mut player = Screen::of(&path);
    player.wait_for("event 1 at +");
    player.press("nn");
    player.wait_for("event 3 at +");
    player.press("p");
    player.wait_for("event 2 at +");
    // In the flight record, the last events end the state of each process. So the screen shows no process after the
    // last event.
    player.press("G");
    player.wait_for("(0 processes)");
    let mut last = player.wait_for("event ");
    let has_all = |text: &str| ["clerk-1 (", "printer (", "archive ("].iter().all(|part| text.contains(part));
    // The last events end the states of the processes, one after another.
    for _ in 0..100 {
        if has_all(&last) {
            break;
        }
        player.press("p");
        last = player.wait("the previous event", |text| text != last);
    }
    player.wait("the processes", has_all);
    player.press("q");
    assert!(player.console.wait().unwrap().success());
    screen.press("q");
    assert!(screen.console.wait().unwrap().success());
}

/// 9.6b: a recording has a summary for scripts. A file that is cut off can still be read, and a damaged file causes an
/// error.
#[test]
fn scripts_get_the_summary_of_a_recording() {
    let (folder, path) = record("summary");
    let ask = |path: &Path, option: &str| {
        Command::new(env!("CARGO_BIN_EXE_procession-console")).arg(option).arg(path).output().unwrap()
    };
    let summary = |path: &Path| -> serde_json::Value {
        let output = ask(path, "--json");
        assert_eq!(output.status.code(), Some(0));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let whole = summary(&path);
    assert_eq!((&whole["counts"]["send"], &whole["counts"]["receive"]), (&100.into(), &100.into()), "{whole}");
    assert!(String::from_utf8(ask(&path, "--once").stdout).unwrap().contains("  send: 100\n"));
    let bytes = std::fs::read(&path).unwrap();
    let cut = folder.0.join("cut.pftrace");
    std::fs::write(&cut, &bytes[..bytes.len() - 1]).unwrap();
    assert_ne!(summary(&cut)["incomplete_bytes"], 0);
    let damaged = folder.0.join("damaged.pftrace");
    std::fs::write(&damaged, [&bytes[..], b"x"].concat()).unwrap();
    let output = ask(&damaged, "--once");
    let text = format!("no packet begins at byte {}\n", bytes.len());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && stderr.ends_with(&text), "{stderr}");
    let condition = Command::new(env!("CARGO_BIN_EXE_procession-console"))
        .args(["--fail-if", "deadlock"])
        .arg(&path)
        .output()
        .unwrap();
    assert_eq!(condition.status.code(), Some(2));
}

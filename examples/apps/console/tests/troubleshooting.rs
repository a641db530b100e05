//! The page `guide::troubleshooting` shows, for each symptom, a part of the screen of the console. Each test causes the
//! symptom in a real program, attaches the console, and looks for this part on the screen.
//!
//! The page shortens the pids and the paths of types. On the page and on the screen, the test replaces pids and
//! durations by the same text. The test ignores line breaks and the number of spaces.

#![cfg(unix)]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use procession::{Builder, Context, Exit, Reply, Runtime};
use procession_console::app::App;
use procession_console::client::Target;
use procession_console::terminal::{Connection, refresh};
use procession_console::views::{buffer, rows};
use ratatui::crossterm::event::KeyCode;

/// The source of the page.
const PAGE: &str = include_str!("../../../../src/guide/troubleshooting.rs");

/// Maximum time until the expected text is on the screen. Only a test that hangs reaches this limit.
const LIMIT: Duration = Duration::from_secs(60);

/// The symptoms. Each symptom has a section on the page, and a test below.
const SYMPTOMS: [&str; 7] = [
    "Nothing runs",
    "One process uses all CPU time",
    "Memory grows",
    "Shutdown hangs",
    "A message is missing",
    "A call never returns",
    "A process has disappeared",
];

/// Returns the outputs of the console in a section: the key of the view, and the text. Each output follows a paragraph
/// that contains the words "console (key `N`)".
fn outputs(section: &str) -> Vec<(char, String)> {
    let lines =
        PAGE.lines().filter_map(|line| line.strip_prefix("//!")).map(|line| line.strip_prefix(' ').unwrap_or(line));
    let (mut is_inside, mut paragraph, mut found) = (false, String::new(), Vec::new());
    let mut lines = lines.peekable();
    while let Some(line) = lines.next() {
        if let Some(title) = line.strip_prefix("# ") {
            is_inside = title == section;
        } else if line.starts_with("```") {
            let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            let key = paragraph.split("console (key `").nth(1).and_then(|rest| rest.chars().next());
            found.extend(key.filter(|_| is_inside && line == "```text").map(|key| (key, block.join("\n"))));
            paragraph.clear();
        } else if !line.is_empty() {
            paragraph.push_str(line);
            paragraph.push(' ');
        } else if lines.peek().is_none_or(|next| !next.starts_with("```")) {
            paragraph.clear();
        }
    }
    found
}

/// Replaces the parts of a text that differ from run to run: pids, durations, and the characters of charts. Joins all
/// lines.
fn plain(text: &str) -> String {
    let text = text
        .replace("troubleshooting::", "app::")
        .replace("examples/apps/console/tests/troubleshooting.rs", "src/shop.rs");
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let pid = word.find('<').zip(word.find('>')).filter(|(begin, end)| begin < end);
        let word = match pid {
            Some((begin, end)) => format!("{}<pid>{}", &word[..begin], &word[end + 1..]),
            None => word.to_owned(),
        };
        let word = if word.contains(".rs:") { "<line>".to_owned() } else { word };
        let unit =
            ["ns", "µs", "ms", "s", "min", "h"].iter().find(|unit| word.trim_end_matches([';', ',', ')']) == **unit);
        let is_number = |word: &str| !word.is_empty() && word.chars().all(|char| char.is_ascii_digit() || char == '.');
        let digits =
            word.trim_end_matches([';', ',', ')']).trim_end_matches(['n', 'µ', 'm', 's']).trim_start_matches('(');
        if unit.is_some() && words.last().is_some_and(|last| is_number(last.trim_start_matches('('))) {
            words.pop();
            words.push("<time>".into());
        } else if digits.len() < word.trim_start_matches('(').trim_end_matches([';', ',', ')']).len()
            && is_number(digits)
        {
            words.push("<time>".into());
        } else {
            words.push(word);
        }
    }
    words.join(" ")
}

/// The console without a terminal, attached to a program with the symptom.
struct Console {
    app: App,
    connection: Connection,
}

/// The path of the socket of a test.
fn socket(test: &str) -> PathBuf {
    std::env::temp_dir().join(format!("procession-{test}-{}", std::process::id()))
}

impl Console {
    fn attach(test: &str) -> Self {
        let connection = Connection::open(Target::Path(socket(test))).unwrap();
        let mut console = Self { app: App::new("socket".into()), connection };
        refresh(&mut console.connection, &mut console.app);
        console
    }

    fn press(&mut self, keys: &str) {
        for key in keys.chars() {
            self.app.handle_key(if key == '\n' { KeyCode::Enter } else { KeyCode::Char(key) }.into());
            refresh(&mut self.connection, &mut self.app);
        }
    }

    /// Opens the view of the process with this name.
    fn open(&mut self, name: &str) {
        self.press(&format!("2/{name}\n\n"));
    }

    /// Waits until the screen contains each output of the section. `step` runs the program between two snapshots.
    fn shows(&mut self, section: &str, mut step: impl FnMut()) {
        let outputs = outputs(section);
        assert!(!outputs.is_empty(), "the section {section} has no output of the console");
        for (key, output) in outputs {
            // The view of a process is open, because the test has chosen the process.
            if key != '3' {
                self.press(&key.to_string());
            }
            let expected = plain(&output);
            let end = Instant::now() + LIMIT;
            loop {
                refresh(&mut self.connection, &mut self.app);
                let screen = rows(&buffer(&self.app)).join("\n");
                if plain(&screen).contains(&expected) {
                    break;
                }
                let is_early = Instant::now() < end;
                assert!(
                    is_early,
                    "{section}: expected\n{output}\n\n{expected}\n\nshown:\n{screen}\n\n{}",
                    plain(&screen)
                );
                step();
            }
        }
    }
}

fn builder(test: &str, workers: usize) -> Builder {
    Runtime::builder().workers(workers).console(socket(test))
}

// The bodies of the processes. The screen shows the types of these functions.

async fn spin(ctx: Context) {
    loop {
        std::hint::black_box((0..1_000_u64).sum::<u64>());
        ctx.yield_now().await;
    }
}

async fn log(_: Context<u64>) {
    std::future::pending().await
}

async fn session(ctx: Context) {
    ctx.sleep(Duration::from_secs(600)).await;
}

async fn worker(mut ctx: Context<u64>) -> Result<(), Exit> {
    ctx.receive().await.map(drop)
}

async fn bank(_: Context<Reply<u64>>) {
    std::future::pending().await
}

async fn shop(ctx: Context) {
    _ = ctx.call("bank", |reply: Reply<u64>| reply).await;
}

async fn cache(mut ctx: Context<u64>) {
    panic!("no entry {}", ctx.receive().await.unwrap())
}

#[test]
fn each_symptom_has_an_output_of_the_console() {
    for section in SYMPTOMS {
        assert!(PAGE.contains(&format!("//! # {section}\n")), "the page has no section {section}");
        assert!(!outputs(section).is_empty(), "the section {section} has no output of the console");
    }
    assert_eq!(
        plain("a <1-2f.3.4> for 1.5 s (12.5s) at src/a.rs:7, 20 msgs"),
        "a <pid> for <time> <time> at <line> 20 msgs"
    );
}

#[test]
fn nothing_runs() {
    let rt = builder("nothing", 0).build().unwrap();
    rt.spawn(async |_: Context| ());
    Console::attach("nothing").shows(SYMPTOMS[0], || {});
}

#[test]
fn one_process_uses_all_cpu_time() {
    let rt = builder("cpu", 1).build().unwrap();
    let (open, gate) = std::sync::mpsc::channel::<()>();
    rt.process().name("index").spawn(async move |_: Context| _ = gate.recv()).unwrap();
    let mut console = Console::attach("cpu");
    console.shows(SYMPTOMS[1], std::thread::yield_now);
    drop(open);
    // The run times of many short steps.
    rt.process().name("spin").spawn(spin).unwrap();
    let end = Instant::now() + LIMIT;
    while !rows(&buffer(&console.app)).iter().any(|row| row.starts_with('<') && row.contains(" spin ")) {
        assert!(Instant::now() < end, "{:#?}", rows(&buffer(&console.app)));
        console.press("5");
    }
}

#[test]
fn memory_grows() {
    let rt = builder("memory", 0).build().unwrap();
    let process = rt.process().name("log").spawn(log).unwrap();
    (0..2_000).for_each(|number| process.send(number).unwrap());
    rt.block_on(process.started()).unwrap();
    Console::attach("memory").shows(SYMPTOMS[2], || {});
}

#[test]
fn a_shutdown_hangs() {
    let rt = builder("shutdown", 0).build().unwrap();
    let process = rt.spawn(session);
    rt.block_on(process.started()).unwrap();
    let _shutdown = rt.host().shutdown(Duration::from_secs(600));
    let mut console = Console::attach("shutdown");
    console.shows(SYMPTOMS[3], || rt.block_on(rt.sleep(Duration::from_millis(1))));
}

#[test]
fn a_message_is_missing() {
    let rt = builder("message", 0).build().unwrap();
    let process = rt.spawn(worker);
    let address = process.address();
    (1..=2).for_each(|number| address.send(number).unwrap());
    rt.block_on(process).unwrap();
    assert!(address.send(3).is_err());
    let mut console = Console::attach("message");
    // The rates of the first snapshot contain all events since the start.
    refresh(&mut console.connection, &mut console.app);
    console.shows(SYMPTOMS[4], || {});
}

#[test]
fn a_call_never_returns() {
    let rt = builder("call", 0).build().unwrap();
    rt.process().name("bank").spawn(bank).unwrap();
    rt.process().name("shop").spawn(shop).unwrap();
    rt.block_on(rt.spawn(async |ctx: Context| ctx.yield_now().await)).unwrap();
    let mut console = Console::attach("call");
    console.open("shop");
    console.shows(SYMPTOMS[5], || {});
}

#[test]
fn a_process_has_disappeared() {
    let rt = builder("exit", 0).build().unwrap();
    let process = rt.process().name("cache").spawn(cache).unwrap();
    (7..10).for_each(|number| process.send(number).unwrap());
    assert!(rt.block_on(process).is_err());
    Console::attach("exit").shows(SYMPTOMS[6], || {});
}

//! What the compiler can't see: who imports whom, who names the system's clock, threads and chance, and that the
//! changelog and the list of promises say what is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Rooms of `src`, from bottom to top. A file imports what lies below its own room, and nothing else.
const ROOMS: &[Room] = &[
    // A file with unsafe code for each that a bench paid for.
    household(&["sync", "sync::checked", "sync::event", "sync::lock"]),
    room(&[
        "chance",
        "clock",
        "counted::run_state",
        "prefetch",
        "observe::histogram",
        "process::pid",
        "process::placing",
        "process::priority",
    ]),
    room(&["memory::places", "time::wheel"]),
    room(&["memory::slab"]),
    room(&["memory"]),
    room(&["pair", "process::payload"]),
    // An exit holds a failure, a failure a refusal, a refusal an exit.
    household(&["process::exit", "process::failure", "process::refusal"]),
    room(&["preempt", "process::command", "process::successor"]),
    room(&["process::event"]),
    room(&["express"]),
    room(&["observe::metrics", "process::turn"]),
    household(&["counted", "counted::ready"]),
    room(&["cooperative", "observe", "process::panic"]),
    room(&["relay::names"]),
    room(&["backoff", "intensity", "mailbox::bounded", "mailbox::front", "mailbox::routed", "mailbox::wakes"]),
    room(&["mailbox::slot"]),
    room(&["mailbox::queue", "mailbox::signals"]),
    room(&["mailbox::taken"]),
    room(&["mailbox::locked"]),
    household(&["mailbox", "mailbox::receiver", "mailbox::sender"]),
    room(&["answer", "blocking", "limits", "oneshot", "time::timers", "yields::buffer"]),
    room(&["link::watched"]),
    room(&["link::table"]),
    household(&["yields", "yields::plain", "yields::stage", "yields::stream", "yields::table"]),
    room(&["cancel::tree", "relay::groups"]),
    room(&["relay"]),
    room(&["time::alarm"]),
    room(&["scheduler::global", "scheduler::hooks", "scheduler::idle", "scheduler::post"]),
    household(&["scheduler::nursery", "scheduler::nursery::tests"]),
    household(&["scheduler::queue", "scheduler::queue::tests"]),
    room(&["scheduler::ranks"]),
    Room {
        only: Some(&[
            "sync",
            "chance",
            "observe",
            "preempt",
            "scheduler::global",
            "scheduler::hooks",
            "scheduler::idle",
            "scheduler::nursery",
            "scheduler::post",
            "scheduler::queue",
            "scheduler::ranks",
        ]),
        ..household(SCHEDULER)
    },
    // A process has a way back to its host, which knows it by its control block; what leaves the one for the other,
    // a completion, a sleep, a call, knows both.
    household(&[
        "address",
        "call",
        "cancel",
        "control",
        "control::head",
        "crowd",
        "dispatch",
        "dispatch::attempt",
        "dispatch::completion",
        "dispatch::shortcut",
        "home",
        "host",
        "host::ends",
        "host::pocket",
        "host::receiver",
        "host::shared",
        "host::shutdown",
        "host::spares",
        "host::target",
        "inherited",
        "job",
        "realm",
        "time",
        "time::interval",
        "time::later",
        "time::spare",
    ]),
    room(&["deadline", "recipient", "send_wait"]),
    room(&["perform"]),
    room(&["stream"]),
    room(&["layer::line", "layer::retry", "layer::timeout"]),
    room(&["layer::concurrency", "layer::rate"]),
    room(&["layer"]),
    room(&["handler"]),
    room(&["me"]),
    room(&["receive"]),
    room(&["context"]),
    room(&["group", "link", "name", "process", "task::around"]),
    room(&["server", "task"]),
    room(&["cell"]),
    room(&["body", "join", "monitored"]),
    room(&["work"]),
    household(&["spawn", "spawn::builder"]),
    room(&["batch", "pool::members", "scope", "upgrade"]),
    room(&["pool"]),
    household(&["supervisor::plan", "supervisor::plan::tests"]),
    household(&["supervisor", "supervisor::child", "supervisor::tree"]),
    room(&["affinity"]),
    room(&["runnable"]),
    room(&["runtime"]),
    room(&["simulation::idle", "simulation::queue", "simulation::trace"]),
    household(&["simulation", "simulation::check"]),
    room(&["local"]),
    // A page.
    room(&["lives", "scheduling"]),
    household(MODEL),
];

/// The other column: where processes run. It knows nothing of them, and is known to `runtime` alone.
const SCHEDULER: &[&str] = &[
    "scheduler",
    "scheduler::crew",
    "scheduler::lend",
    "scheduler::monitor",
    "scheduler::tests",
    "scheduler::tests::lend",
    "scheduler::worker",
];

/// What the model checker explores; it is there for it alone, and looks into whatever it likes.
const MODEL: &[&str] = &[
    "model",
    "model::answer",
    "model::cancel",
    "model::completion",
    "model::counts",
    "model::groups",
    "model::handover",
    "model::idle",
    "model::links",
    "model::mailbox",
    "model::names",
    "model::room",
    "model::run_state",
    "model::slots",
    "model::stream",
    "model::timers",
];

/// What one file names for all others: `std` paths, and the file.
const GATES: &[(&[&str], &str)] = &[
    (&["std::sync", "std::thread", "core::sync"], "sync"),
    (&["std::time::Instant", "std::time::SystemTime"], "clock"),
    (&["std::hash::RandomState", "std::collections::hash_map::RandomState"], "chance"),
];

struct Room {
    files: &'static [&'static str],
    /// Whether its files import each other.
    household: bool,
    /// All that it may import, where that is less than what lies below.
    only: Option<&'static [&'static str]>,
}

const fn room(files: &'static [&'static str]) -> Room {
    Room { files, household: false, only: None }
}

const fn household(files: &'static [&'static str]) -> Room {
    Room { files, household: true, only: None }
}

#[test]
fn imports_only_point_down() {
    let files = sources();
    let level = |file: &str| ROOMS.iter().position(|room| room.files.contains(&file));
    let mut wrong = String::new();
    for name in ROOMS.iter().flat_map(|room| room.files).filter(|name| !files.contains_key(**name)) {
        let _ = writeln!(wrong, "{name} has a room and no file");
    }
    for (file, code) in &files {
        if file == "lib" {
            continue;
        }
        let Some(own) = level(file) else {
            let _ = writeln!(wrong, "{file} has no room");
            continue;
        };
        for import in imports(file, code, &files) {
            let Some(other) = level(&import) else {
                let _ = writeln!(wrong, "{file} names {import}, which is no file: say which file it is in");
                continue;
            };
            let allowed = match ROOMS[own].only {
                _ if own == other => ROOMS[own].household,
                Some(only) => only.contains(&import.as_str()),
                None => other < own,
            };
            if !allowed {
                let _ = writeln!(wrong, "{file} imports {import}");
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

fn is_scheduler(file: &str) -> bool {
    file == "scheduler" || file.starts_with("scheduler::")
}

#[test]
fn only_the_runtime_knows_the_scheduler() {
    let files = sources();
    let may = |file: &str| ["runtime", "runnable"].contains(&file) || is_scheduler(file) || MODEL.contains(&file);
    for (file, code) in files.iter().filter(|(file, _)| !may(file)) {
        let known = imports(file, code, &files).into_iter().find(|import| is_scheduler(import));
        assert_eq!(known, None, "{file} knows the scheduler");
    }
}

#[test]
fn households_are_no_larger_than_they_must_be() {
    // Who does not come back to itself by what it imports belongs into a room of its own, below or above.
    let files = sources();
    for household in ROOMS.iter().filter(|room| room.household) {
        for file in household.files {
            let (mut reached, mut left) = (BTreeSet::new(), vec![(*file).to_owned()]);
            while let Some(next) = left.pop() {
                let known = imports(&next, &files[&next], &files).into_iter();
                let known = known.filter(|import| household.files.contains(&import.as_str()));
                left.extend(known.filter(|import| reached.insert(import.clone())));
            }
            assert!(reached.contains(*file), "{file} needs no household");
        }
    }
}

#[test]
fn one_file_names_threads_one_the_clock_and_one_chance() {
    let mut wrong = String::new();
    for (file, code) in sources() {
        for path in ["std::", "core::"].iter().flat_map(|root| paths(&code, root)) {
            for (gated, gate) in GATES {
                let named = |gated: &&&str| path == **gated || path.starts_with(&format!("{gated}::"));
                if file != *gate && gated.iter().any(|gated| named(&gated)) {
                    let _ = writeln!(wrong, "{file} names {path}, which {gate}.rs has for all");
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn unsafe_code_is_allowed_in_these_files() {
    let allowed = sources().into_iter().filter(|(_, code)| code.contains("unsafe_code")).map(|(file, _)| file);
    assert_eq!(
        allowed.collect::<Vec<_>>(),
        [
            "cell",
            "counted",
            "counted::ready",
            "counted::run_state",
            "mailbox::slot",
            "memory",
            "memory::slab",
            "pair",
            "prefetch",
            "process::payload",
            "sync::checked",
            "sync::lock"
        ]
    );
}

#[test]
fn the_changelog_names_the_version() {
    let heading = format!("\n## {}", env!("CARGO_PKG_VERSION"));
    assert!(read("CHANGELOG.md").contains(&heading), "no line of CHANGELOG.md begins with{heading}");
}

#[test]
fn every_promise_is_held_by_tests_that_cite_it() {
    let list = read("tests/promises.md");
    let (mut wrong, mut seen) = (String::new(), BTreeSet::new());
    // An item goes on over the lines that are indented.
    let list = list.replace("\n  ", " ");
    for (number, tests) in list.lines().filter_map(promise) {
        if !seen.insert(number) {
            let _ = writeln!(wrong, "{number} stands there twice");
        }
        if tests.is_empty() {
            let _ = writeln!(wrong, "{number} has no test");
        }
        for test in tests {
            match doc_of(test) {
                None => drop(writeln!(wrong, "{number}: there is no test {test}")),
                Some(doc) if !cites(&doc, number) => drop(writeln!(wrong, "{number} is not cited above {test}")),
                Some(_) => {}
            }
        }
    }
    assert!(seen.len() > 10, "the list is not read: {seen:?}");
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn the_page_on_lives_names_tests_that_are_there() {
    let page = read("src/lives.rs");
    let tests = ["links", "supervisors", "trees", "cancel"].map(|name| read(&format!("tests/it/{name}.rs"))).concat();
    let rows = page.lines().filter_map(|line| line.strip_prefix("//! |")?.strip_suffix(" |")?.rsplit_once(" | "));
    let named: BTreeSet<&str> = rows.flat_map(|(_, tests)| tests.split('`').skip(1).step_by(2)).collect();
    assert!(named.len() > 20, "the page is not read: {named:?}");
    let missing: Vec<_> = named.iter().filter(|name| !tests.contains(&format!("\nfn {name}()"))).collect();
    assert!(missing.is_empty(), "the page names no test: {missing:?}");
}

#[test]
fn every_file_of_tests_is_run() {
    let main = read("tests/it/main.rs");
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it")).expect("tests are there") {
        let path = entry.expect("tests can be listed").path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("names are plain");
        assert!(name == "main" || main.contains(&format!("\nmod {name};\n")), "main.rs does not name {name}");
    }
}

/// The number and the tests of an item `- **1.1** text — `file::test`, `file::test``.
fn promise(line: &str) -> Option<(&str, Vec<&str>)> {
    let (number, rest) = line.strip_prefix("- **")?.split_once("** ")?;
    let quoted = rest.rsplit_once(" — ").map_or("", |(_, tests)| tests).split('`').skip(1).step_by(2);
    Some((number, quoted.collect()))
}

/// What stands above a test, or nothing if there is no such test.
fn doc_of(test: &str) -> Option<String> {
    let (file, name) = test.split_once("::")?;
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).ok()?;
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let at = lines.iter().position(|line| {
        let line = line.strip_prefix("async ").unwrap_or(line);
        line.strip_prefix("fn ").and_then(|line| line.strip_prefix(name)).is_some_and(|rest| rest.starts_with('('))
    })?;
    let above = lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("///"));
    let above: Vec<&str> = above.copied().collect();
    above.contains(&"#[test]").then(|| above.join("\n"))
}

/// Whether the number stands there by itself: 1.1 is not 11.1, nor 1.10.
fn cites(doc: &str, number: &str) -> bool {
    doc.split(|c: char| !c.is_ascii_digit() && c != '.').any(|word| word.trim_matches('.') == number)
}

/// The files of `src` by the names of their modules, without comments.
fn sources() -> BTreeMap<String, String> {
    fn gather(folder: &Path, prefix: &str, files: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).expect("src is there") {
            let path = entry.expect("src can be listed").path();
            let stem = path.file_stem().and_then(|stem| stem.to_str()).expect("names are plain");
            let name = format!("{prefix}{stem}");
            if path.is_dir() {
                gather(&path, &format!("{name}::"), files);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("sources can be read");
                let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
                files.insert(name, code.flat_map(|line| [line, "\n"]).collect());
            }
        }
    }
    let mut files = BTreeMap::new();
    gather(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut files);
    files
}

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The files that a file imports or declares, its unit tests aside; what `crate::` leads to that is in no file stands for itself.
fn imports(file: &str, code: &str, files: &BTreeMap<String, String>) -> BTreeSet<String> {
    let code = code.split("\nmod tests {").next().unwrap_or_default();
    let module = |path: &str| {
        let ends = path.match_indices("::").map(|(end, _)| end).chain([path.len()]);
        ends.map(|end| &path[..end]).filter(|name| files.contains_key(*name)).last().map(str::to_owned)
    };
    let mut found = BTreeSet::new();
    for path in paths(code, "crate::") {
        let path = &path["crate::".len()..];
        found.insert(module(path).unwrap_or_else(|| path.to_owned()));
    }
    // Inside an inline module `super` is the file itself: what leads to no file is that.
    let parent = file.rsplit_once("::").map_or(String::new(), |(parent, _)| format!("{parent}::"));
    found.extend(paths(code, "super::").iter().filter_map(|path| module(&path.replacen("super::", &parent, 1))));
    let children = code.lines().filter_map(|line| line.trim().strip_suffix(';')?.rsplit_once("mod "));
    found.extend(children.filter_map(|(_, child)| module(&format!("{file}::{child}"))));
    found.remove(file);
    found
}

/// Every path in `code` that begins with `root`, those in braces spelled out.
fn paths(code: &str, root: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices(root) {
        let before = code[..at].chars().next_back();
        if !before.is_some_and(|c| c.is_alphanumeric() || "_:$".contains(c)) {
            spell_out(&code[at + root.len()..], root.trim_end_matches(':'), &mut found);
        }
    }
    found
}

/// Reads one path, or a group of them, behind `prefix::`; returns what follows.
fn spell_out<'a>(text: &'a str, prefix: &str, found: &mut Vec<String>) -> &'a str {
    if let Some(mut text) = text.strip_prefix('{') {
        loop {
            text = text.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
            match text.strip_prefix('}') {
                Some(rest) => return rest,
                None if text.is_empty() => return text,
                None => text = spell_out(text, prefix, found),
            }
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '*').unwrap_or(text.len());
    let (segment, rest) = text.split_at(end);
    let path = format!("{prefix}::{segment}");
    match rest.strip_prefix("::") {
        Some(deeper) if deeper.starts_with(|c: char| c.is_alphabetic() || "_{*".contains(c)) => {
            spell_out(deeper, &path, found)
        }
        _ => {
            found.push(if segment.is_empty() { prefix.to_owned() } else { path });
            let alias = rest.strip_prefix(" as ").map(|rest| rest.trim_start_matches(|c: char| c.is_alphanumeric()));
            // What can't be read is skipped by one character, so that a group always comes to its end.
            match alias {
                Some(rest) => rest,
                None if segment.is_empty() => rest.get(1..).unwrap_or_default(),
                None => rest,
            }
        }
    }
}

#[test]
fn groups_are_spelled_out() {
    let code =
        "use crate::a::{self, b::{C, d as e}, F};\nlet x = crate::g::h(1); $crate::i; use std::{fmt, sync::Arc};";
    assert_eq!(
        paths(code, "crate::"),
        ["crate::a::self", "crate::a::b::C", "crate::a::b::d", "crate::a::F", "crate::g::h"]
    );
    assert_eq!(paths(code, "std::"), ["std::fmt", "std::sync::Arc"]);
    assert!(cites("/// 1.10, 11: x", "1.10") && cites("/// 1.10, 11.", "11") && !cites("/// 1.10, 11: x", "1.1"));
}

//! Checks rules that the compiler cannot check: which folder imports which, which file names the system's clock,
//! threads and randomness, and which files contain unsafe code. It also checks the changelog and the list of promises
//! against the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The folders and top-level files of `src`, from bottom to top, each with the folders that it may import. `lib.rs` and
/// the models of the model checker may import all of them.
const LAYERS: &[(&str, &[&str])] = &[
    ("platform", &[]),
    ("process", &["platform"]),
    ("observe", &["platform", "process"]),
    ("scheduler", &["platform", "observe"]),
    ("host", &["platform", "process", "observe"]),
    ("context", &["platform", "process", "observe", "host"]),
    ("handler", &["platform", "process", "observe", "host"]),
    ("task", &["platform", "process", "observe", "host", "context"]),
    ("behaviour", &["platform", "process", "observe", "host", "context", "task"]),
    ("runtime", &["platform", "process", "observe", "scheduler", "host", "context", "handler", "task"]),
    ("guide", &[]),
];

/// Pairs of an importing file and an imported file that may break the rule.
const EXCEPTIONS: &[(&str, &str)] = &[("scheduler::hooks", "process::catch"), ("handler::blocking", "task::body")];

/// Maximum number of files of one folder in a cycle of imports.
const LARGEST_CYCLE: usize = 6;

/// `std` paths that only one file may name, and that file.
const GATES: &[(&[&str], &str)] = &[
    (&["std::sync", "std::thread", "core::sync"], "platform::sync"),
    (&["std::time::Instant", "std::time::SystemTime"], "platform::clock"),
    (&["std::hash::RandomState", "std::collections::hash_map::RandomState"], "platform::random"),
];

/// Returns the folder of a file, or the file itself if it is at the top of `src`.
fn top(file: &str) -> &str {
    file.split("::").next().unwrap_or(file)
}

/// Returns whether the file is exempt from all rules about imports.
fn is_exempt(file: &str) -> bool {
    file == "lib" || top(file) == "model"
}

#[test]
fn folders_import_only_the_folders_below_them() {
    let files = sources();
    let allowed: BTreeMap<&str, &[&str]> = LAYERS.iter().copied().collect();
    let (mut wrong, mut used) = (String::new(), BTreeSet::new());
    for (file, code) in files.iter().filter(|(file, _)| !is_exempt(file)) {
        let Some(allowed) = allowed.get(top(file)) else {
            let _ = writeln!(wrong, "{file} is in no layer");
            continue;
        };
        for import in imports(file, code, &files) {
            if !files.contains_key(&import) {
                let _ = writeln!(wrong, "{file} names {import}, which is no file: say which file it is in");
            } else if let Some(exception) = EXCEPTIONS.iter().find(|exception| **exception == (file, &import)) {
                used.insert(exception);
            } else if top(&import) != top(file) && !allowed.contains(&top(&import)) {
                let _ = writeln!(wrong, "{file} imports {import}");
            }
        }
    }
    for (folder, below) in LAYERS {
        let known = |name: &str| files.keys().any(|file| top(file) == name);
        let earlier = LAYERS.iter().map(|(name, _)| *name).take_while(|name| name != folder);
        let earlier: Vec<_> = earlier.collect();
        if !known(folder) || !below.iter().all(|name| earlier.contains(name)) {
            let _ = writeln!(wrong, "{folder} is no folder, or may import one above it");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    assert_eq!(used.len(), EXCEPTIONS.len(), "an exception is not needed: {used:?}");
}

#[test]
fn few_files_of_a_folder_import_each_other() {
    let files = sources();
    let graph: BTreeMap<&str, BTreeSet<String>> =
        files.iter().map(|(file, code)| (file.as_str(), imports(file, code, &files))).collect();
    let reached = |from: &str| {
        let (mut reached, mut left) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(next) = left.pop() {
            let near = graph.get(next.as_str()).into_iter().flatten().filter(|file| top(file) == top(from));
            left.extend(near.filter(|file| reached.insert((*file).clone())).cloned());
        }
        reached
    };
    let all: BTreeMap<&str, BTreeSet<String>> = graph.keys().map(|file| (*file, reached(file))).collect();
    for (file, reached) in all.iter().filter(|(file, _)| !is_exempt(file) && !file.ends_with("::tests")) {
        let cycle: Vec<_> =
            reached.iter().filter(|other| all.get(other.as_str()).is_some_and(|back| back.contains(*file))).collect();
        assert!(cycle.len() <= LARGEST_CYCLE, "{} files import each other: {cycle:?}", cycle.len());
    }
}

#[test]
fn only_one_file_names_threads_the_clock_or_randomness() {
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
            "context::call::shared_cell",
            "platform::alloc",
            "platform::alloc::slab",
            "platform::prefetch",
            "platform::sync::checked",
            "platform::sync::lock",
            "process::mailbox::slot",
            "process::payload",
            "process::state",
            "process::state::run_state",
            "process::state::runnable",
            "task::cell",
        ]
    );
}

/// These files define functions that user code enters, so they get the state of the thread by themselves. All other
/// functions receive it as a parameter.
#[test]
fn these_files_read_the_state_of_the_thread() {
    let readers = sources()
        .into_iter()
        .filter(|(_, code)| code.contains("Current::with(") || code.contains("Current::try_with("));
    assert_eq!(
        readers.map(|(file, _)| file).collect::<Vec<_>>(),
        [
            "context::call",
            "context::cooperative",
            "context::mailbox",
            "context::me",
            "context::perform",
            "context::step",
            "context::time",
            "context::time::reuse",
            "handler",
            "host::control",
            "host::dispatch::completion",
            "host::dispatch::inline",
            "host::exit",
            "host::job",
            "host::job::batch",
            "host::refs",
            "host::registry",
            "host::registry::receiver",
            "process::catch",
            "process::mailbox::wakes",
            "process::pid::text",
            "process::state::current",
            "process::state::runnable",
            "runtime",
            "runtime::enqueue",
            "runtime::simulation",
            "task",
            "task::body",
            "task::join",
            "task::spawn",
            "task::upgrade",
        ]
    );
}

#[test]
fn the_changelog_names_the_version() {
    let heading = format!("\n## {}", env!("CARGO_PKG_VERSION"));
    assert!(read("CHANGELOG.md").contains(&heading), "no line of CHANGELOG.md begins with{heading}");
}

#[test]
fn every_promise_names_tests_that_cite_it() {
    let list = read("tests/promises.md");
    let (mut wrong, mut seen) = (String::new(), BTreeSet::new());
    // Indented lines continue an item.
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
fn the_page_on_life_cycles_names_existing_tests() {
    let page = read("src/guide/lifecycle.rs");
    // The last table of the page names items of the crate, not tests.
    let (page, _) = page.split_once("# Differences from Erlang").expect("the page has this section");
    let tests = ["links", "supervisors", "trees", "cancel"].map(|name| read(&format!("tests/it/{name}.rs"))).concat();
    let rows = page.lines().filter_map(|line| line.strip_prefix("//! |")?.strip_suffix(" |")?.rsplit_once(" | "));
    let named: BTreeSet<&str> = rows.flat_map(|(_, tests)| tests.split('`').skip(1).step_by(2)).collect();
    assert!(named.len() > 20, "the page is not read: {named:?}");
    let missing: Vec<_> = named.iter().filter(|name| !tests.contains(&format!("\nfn {name}()"))).collect();
    assert!(missing.is_empty(), "the page names no test: {missing:?}");
}

#[test]
fn main_declares_every_test_file() {
    let main = read("tests/it/main.rs");
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it")).expect("tests are there") {
        let path = entry.expect("tests can be listed").path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("names are plain");
        assert!(name == "main" || main.contains(&format!("\nmod {name};\n")), "main.rs does not name {name}");
    }
}

/// Returns the number and the tests of an item `- **1.1** text — `file::test`, `file::test``.
fn promise(line: &str) -> Option<(&str, Vec<&str>)> {
    let (number, rest) = line.strip_prefix("- **")?.split_once("** ")?;
    let quoted = rest.rsplit_once(" — ").map_or("", |(_, tests)| tests).split('`').skip(1).step_by(2);
    Some((number, quoted.collect()))
}

/// Returns the doc comment and the attributes of a test, or `None` if the test does not exist.
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

/// Returns whether `doc` contains the number as a whole word: 1.1 is neither 11.1 nor 1.10.
fn cites(doc: &str, number: &str) -> bool {
    doc.split(|c: char| !c.is_ascii_digit() && c != '.').any(|word| word.trim_matches('.') == number)
}

/// Returns the code of each file of `src` by its module path, without comment lines.
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

/// Returns the files that a file imports, except in its unit tests. A `crate::` path that leads to no file is returned
/// itself.
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
    // In an inline module, `super` is the file itself. The path then leads to no file, and is skipped.
    let parent = file.rsplit_once("::").map_or(String::new(), |(parent, _)| format!("{parent}::"));
    found.extend(paths(code, "super::").iter().filter_map(|path| module(&path.replacen("super::", &parent, 1))));
    found.remove(file);
    found
}

/// Returns all paths in `code` that begin with `root`, with import groups expanded.
fn paths(code: &str, root: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices(root) {
        let before = code[..at].chars().next_back();
        if !before.is_some_and(|c| c.is_alphanumeric() || "_:$".contains(c)) {
            expand(&code[at + root.len()..], root.trim_end_matches(':'), &mut found);
        }
    }
    found
}

/// Reads a path or a group of paths behind `prefix::`, and appends the paths to `found`. Returns the rest of the text.
fn expand<'a>(text: &'a str, prefix: &str, found: &mut Vec<String>) -> &'a str {
    if let Some(mut text) = text.strip_prefix('{') {
        loop {
            text = text.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
            match text.strip_prefix('}') {
                Some(rest) => return rest,
                None if text.is_empty() => return text,
                None => text = expand(text, prefix, found),
            }
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '*').unwrap_or(text.len());
    let (segment, rest) = text.split_at(end);
    let path = format!("{prefix}::{segment}");
    match rest.strip_prefix("::") {
        Some(deeper) if deeper.starts_with(|c: char| c.is_alphabetic() || "_{*".contains(c)) => {
            expand(deeper, &path, found)
        }
        _ => {
            found.push(if segment.is_empty() { prefix.to_owned() } else { path });
            let alias = rest.strip_prefix(" as ").map(|rest| rest.trim_start_matches(|c: char| c.is_alphanumeric()));
            // Unreadable text is skipped by one character, so the loop over a group always terminates.
            match alias {
                Some(rest) => rest,
                None if segment.is_empty() => rest.get(1..).unwrap_or_default(),
                None => rest,
            }
        }
    }
}

#[test]
fn import_groups_are_expanded() {
    let code =
        "use crate::a::{self, b::{C, d as e}, F};\nlet x = crate::g::h(1); $crate::i; use std::{fmt, sync::Arc};";
    assert_eq!(
        paths(code, "crate::"),
        ["crate::a::self", "crate::a::b::C", "crate::a::b::d", "crate::a::F", "crate::g::h"]
    );
    assert_eq!(paths(code, "std::"), ["std::fmt", "std::sync::Arc"]);
    assert!(cites("/// 1.10, 11: x", "1.10") && cites("/// 1.10, 11.", "11") && !cites("/// 1.10, 11: x", "1.1"));
}

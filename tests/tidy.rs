//! Checks rules that the compiler cannot check. The rules limit the imports between folders, the files with unsafe
//! code, and the files that name the system's clock, threads and randomness. Other rules limit the length of files and
//! functions, and the use of unclear words. In addition, this file checks the changelog, the list of promises and the
//! list of public items against the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Folders and top-level files of `src`, from bottom to top. Each entry names a folder and lists the other folders that
/// this folder may import. If `is_exempt` returns true for a file, this file may import all folders.
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
    ("runtime", &["platform", "process", "observe", "scheduler", "host", "context", "handler", "task", "behaviour"]),
    ("net", &["platform", "process", "host", "context", "handler", "runtime"]),
    ("guide", &[]),
];

/// Public modules that contain only re-exports. Like the root of the crate, these modules may name every folder.
const RE_EXPORTS: &[&str] = &["future", "supervisor"];

/// Pairs of files. Each pair is an exception: the first file may import the second file, although the folder of the
/// first file may not import the folder of the second file.
const EXCEPTIONS: &[(&str, &str)] = &[("handler::blocking", "task::body")];

/// Maximum number of files in a cycle of imports inside one folder.
const LARGEST_CYCLE: usize = 6;

/// Groups of `std` paths. Each entry contains the paths of one group, and the only module that may use these paths.
const GATES: &[(&[&str], &str)] = &[
    (&["std::sync", "std::thread", "core::sync"], "platform::sync"),
    (&["std::time::Instant", "std::time::SystemTime"], "platform::clock"),
    (&["std::hash::RandomState", "std::collections::hash_map::RandomState"], "platform::random"),
];

/// Maximum number of lines of code in a file. Unit tests count. Comments and blank lines do not count.
const LONGEST_FILE: usize = 600;

/// Maximum number of lines of code in a function, without comments.
const LONGEST_FUNCTION: usize = 70;

/// Words and phrases that hide the subject of a sentence, or that have no meaning outside this crate.
const RIDDLES: &[&str] = &[
    "whoever",
    "whom",
    "somebody",
    "nobody",
    "so many",
    "let go of",
    "lets go of",
    "letting go of",
    "heed",
    "heeds",
    "bury",
    "buried",
    "mourner",
    "bereave",
    "orphan",
    "orphans",
    "stillborn",
    "embryo",
    "hatch",
    "hatched",
    "condemn",
    "is waited for",
    "in the same breath",
    "comes by",
    "stands in for",
    "what comes",
    "who comes",
    "if nothing else is said",
    "as things stand",
];

/// Maximum number of [`RIDDLES`] in 1,000 words of prose.
const MOST_RIDDLES: f64 = 0.5;

/// Maximum number of public items at the root of the crate, without modules.
const MOST_ROOT_ITEMS: usize = 100;

/// Maximum number of public types that implement `Error`.
const MOST_ERRORS: usize = 12;

/// Returns the folder of a file, or the file itself if it is at the top of `src`.
fn top(file: &str) -> &str {
    file.split("::").next().unwrap_or(file)
}

/// Returns true if no rule about imports applies to the file. These files are the root of the crate, its modules of
/// re-exports, and the models for the model checker.
fn is_exempt(file: &str) -> bool {
    file == "lib" || RE_EXPORTS.contains(&file) || top(file) == "model"
}

#[test]
fn these_modules_only_export_items_of_other_modules() {
    let files = sources();
    for file in RE_EXPORTS {
        let code = files[*file].replace(|character: char| character.is_whitespace(), "");
        let others: Vec<_> = code.split_terminator(';').filter(|item| !item.starts_with("pubusecrate::")).collect();
        assert!(!code.is_empty() && others.is_empty(), "{file} contains more than re-exports: {others:?}");
    }
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
fn a_cycle_of_imports_has_a_bounded_number_of_files() {
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
fn only_one_file_uses_each_group_of_std_paths() {
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
fn only_these_files_allow_unsafe_code() {
    let allowed = sources().into_iter().filter(|(_, code)| code.contains("unsafe_code")).map(|(file, _)| file);
    assert_eq!(
        allowed.collect::<Vec<_>>(),
        [
            "model::run_state",
            "platform::alloc",
            "platform::alloc::slab",
            "platform::by_value",
            "platform::erased",
            "platform::prefetch",
            "platform::shared_cell",
            "platform::static_ref",
            "platform::sync::checked",
            "platform::sync::lock",
            "platform::sync::undropped",
            "platform::sync::unique_rc",
            "process::mailbox::slot",
            "process::state",
            "process::state::run_state",
            "process::state::runnable",
            "task::cell",
        ]
    );
}

/// A simulated network can replace the sockets of the system only if all other files of `net` name the sockets through
/// `net::system`.
#[test]
fn only_these_files_use_mio() {
    let named = sources().into_iter().filter(|(_, code)| !paths(code, "mio::").is_empty()).map(|(file, _)| file);
    assert_eq!(
        named.collect::<Vec<_>>(),
        [
            "net::system",
            "platform::poller::mio",
            "platform::poller::source",
            "platform::poller::unix_accept",
            "runtime::console::server",
            "runtime::console::socket",
            "scheduler::tests",
        ]
    );
}

/// User code calls the functions of these files, and does not pass the state of the thread as an argument. So these
/// functions read the state themselves. All other functions receive the state as a parameter.
#[test]
fn only_these_files_read_the_state_of_the_thread() {
    let readers = sources()
        .into_iter()
        .filter(|(_, code)| code.contains("Current::with(") || code.contains("Current::try_with("));
    assert_eq!(
        readers.map(|(file, _)| file).collect::<Vec<_>>(),
        [
            "context::call",
            "context::mailbox",
            "context::me",
            "context::perform",
            "context::step",
            "context::time",
            "context::time::reuse",
            "handler",
            "handler::blocking",
            "host::control",
            "host::dispatch::completion",
            "host::dispatch::inline",
            "host::exit",
            "host::refs",
            "host::registry",
            "host::registry::receiver",
            "host::trace",
            "net::backend",
            "observe::metrics",
            "observe::trace",
            "process::catch",
            "process::pid::text",
            "process::state::budget",
            "process::state::current",
            "process::state::runnable",
            "runtime",
            "runtime::enqueue",
            "runtime::local",
            "runtime::simulation",
            "task",
            "task::body",
            "task::join",
            "task::spawn",
            "task::upgrade",
        ]
    );
}

/// Functions and a trait on which safety arguments rely, and the files that may use these functions and this trait.
/// Most of these items create a proof, for example the proof that the calling thread is in the turn of a process. A
/// `SAFETY` comment then relies on this proof. In the file `process::mailbox::receiver`, only a function for tests and
/// models creates a proof.
const PROOFS: &[(&str, &[&str])] = &[
    ("InTurn::of_right()", &["process::state::runnable"]),
    ("InTurn::in_test()", &["process::mailbox::read_ahead"]),
    ("ReceiverTurn::in_test()", &["process::mailbox::receiver"]),
    ("Receiving::closing(", &["process::mailbox::locked"]),
    (".note_waits_for_message(", &["context::mailbox", "host::control"]),
    ("Own for ", &["process::mailbox::wakes"]),
];

#[test]
fn only_these_files_create_proofs() {
    for (item, allowed) in PROOFS {
        let users = sources().into_iter().filter(|(file, code)| !is_exempt(file) && without_tests(code).contains(item));
        assert_eq!(users.map(|(file, _)| file).collect::<Vec<_>>(), *allowed, "{item}");
    }
}

#[test]
fn files_and_functions_are_short() {
    let mut wrong = String::new();
    for (file, code) in sources() {
        let lines = code.lines().filter(|line| !line.trim().is_empty()).count();
        if lines > LONGEST_FILE {
            let _ = writeln!(wrong, "{file} has {lines} lines of code, more than {LONGEST_FILE}");
        }
        for (function, length) in functions(without_tests(&code)) {
            if length > LONGEST_FUNCTION {
                let _ = writeln!(wrong, "{file}::{function} has {length} lines, more than {LONGEST_FUNCTION}");
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn the_prose_uses_few_riddle_words() {
    let (mut words, mut found, mut list) = (0, 0, String::new());
    for (file, prose) in prose() {
        let flat = prose.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        words += flat.split(|c: char| !c.is_ascii_alphabetic() && c != '\'').filter(|word| !word.is_empty()).count();
        for riddle in RIDDLES {
            let times = occurrences(&flat, riddle);
            found += times;
            if times > 0 {
                let _ = writeln!(list, "{file}: {riddle} ({times})");
            }
        }
    }
    assert!(words > 50_000, "the prose is not read: {words} words");
    let share = 1000.0 * found as f64 / words as f64;
    assert!(share <= MOST_RIDDLES, "{share:.2} riddle words in 1,000, more than {MOST_RIDDLES}:\n{list}");
}

/// `.ci/run docs` builds the documentation, and compares the whole list with the documentation. This test does not
/// build the documentation, so it checks only the names at the root.
#[test]
fn the_list_of_public_items_agrees_with_the_root_of_the_crate() {
    let code = &sources()["lib"];
    let mut exported = BTreeSet::new();
    for statement in code.split(';').map(str::trim) {
        if let Some(at) = statement.find("pub use ") {
            let mut found = Vec::new();
            expand(&statement[at + "pub use ".len()..], "", &mut found);
            exported.extend(found.iter().filter_map(|path| path.rsplit("::").next()).map(str::to_owned));
        }
    }
    assert!(exported.len() > 50, "lib.rs is not read: {exported:?}");
    let listed = root_names();
    let (new, gone): (Vec<_>, Vec<_>) =
        (exported.difference(&listed).collect(), listed.difference(&exported).collect());
    // A module can be exported by `pub use` or by `pub mod`.
    let gone: Vec<_> = gone.into_iter().filter(|name| !code.contains(&format!("pub mod {name};"))).collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "tests/public_api.txt lacks {new:?}, and lists {gone:?}; see .ci/public_api.py"
    );
}

#[test]
fn the_public_api_is_small() {
    let modules: BTreeSet<String> =
        items().into_iter().filter(|(kind, _)| kind == "mod").map(|(_, path)| path).collect();
    let is_module = |name: &str| modules.iter().any(|path| path.rsplit("::").next() == Some(name));
    let roots: Vec<_> = root_names().into_iter().filter(|name| !is_module(name)).collect();
    assert!(roots.len() > 50, "the list is not read: {roots:?}");
    assert!(roots.len() <= MOST_ROOT_ITEMS, "{} items at the root, more than {MOST_ROOT_ITEMS}", roots.len());
    let list = read("tests/public_api.txt");
    let errors: BTreeSet<&str> = list.lines().filter_map(error_type).collect();
    assert!(errors.contains("Exit") || errors.contains("Failure"), "the list is not read: {errors:?}");
    assert!(errors.len() <= MOST_ERRORS, "{} error types, more than {MOST_ERRORS}: {errors:?}", errors.len());
    let mut counts = BTreeMap::<String, usize>::new();
    for (_, path) in items().into_iter().filter(|(kind, _)| kind != "mod") {
        let module = path.rsplit_once("::").map_or(path.as_str(), |(module, _)| module);
        *counts.entry(module.to_owned()).or_default() += 1;
    }
    println!("items of each module: {counts:?}; {} error types: {errors:?}", errors.len());
}

#[test]
fn the_changelog_names_the_version() {
    let heading = format!("\n## {}", env!("CARGO_PKG_VERSION"));
    assert!(read("CHANGELOG.md").contains(&heading), "no line of CHANGELOG.md begins with{heading}");
}

/// A user looks for a new type in the sections "Added" of the changelog.
#[test]
fn the_changelog_names_each_public_item() {
    let page = read("CHANGELOG.md");
    let sections = page.split("\n### ").filter_map(|section| section.strip_prefix("Added\n"));
    // The last section of a version ends at the heading of the next version.
    let added: String = sections.filter_map(|section| section.split("\n## ").next()).collect();
    let words: BTreeSet<&str> = added.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let items = items();
    assert!(items.len() > 200, "the list of public items is not read: {} items", items.len());
    let outside_guide = items.iter().filter(|(_, path)| !path.starts_with("procession::guide::"));
    let missing: Vec<_> = outside_guide
        .filter(|(_, path)| path.rsplit("::").next().is_some_and(|name| !words.contains(name)))
        .map(|(kind, path)| format!("{kind} {path}"))
        .collect();
    assert!(missing.is_empty(), "the sections \"Added\" of CHANGELOG.md do not name {missing:#?}");
}

/// If a file is moved, the map in CONTRIBUTING.md must be updated. If a check is added, the table in CONTRIBUTING.md
/// must be updated.
#[test]
fn contributing_md_names_only_existing_files_and_lists_every_check() {
    let (page, checks) = (read("CONTRIBUTING.md"), read(".ci/run"));
    let mut wrong = String::new();
    let quoted: BTreeSet<&str> = page.split('`').skip(1).step_by(2).collect();
    let roots = ["src/", "tests/", "benches/", "examples/", ".ci/"];
    for path in quoted.iter().filter(|path| roots.iter().any(|root| path.starts_with(root)) && !path.contains(' ')) {
        if !Path::new(env!("CARGO_MANIFEST_DIR")).join(path).exists() {
            let _ = writeln!(wrong, "CONTRIBUTING.md names {path}, which does not exist");
        }
    }
    let folders =
        sources().into_keys().filter_map(|file| Some(file.rsplit_once("::")?.0.split("::").next()?.to_owned()));
    for folder in folders.collect::<BTreeSet<_>>() {
        if !quoted.contains(format!("src/{folder}").as_str()) {
            let _ = writeln!(wrong, "CONTRIBUTING.md does not name src/{folder}");
        }
    }
    let steps: Vec<_> =
        checks.lines().filter_map(|line| line.trim_start().strip_prefix("step \"")?.split('"').next()).collect();
    assert!(steps.len() > 25, "the steps of .ci/run are not read: {steps:?}");
    for step in steps.iter().filter(|step| !step.starts_with("long:")) {
        if !page.contains(&format!("\n| `{step}` |")) {
            let _ = writeln!(wrong, "CONTRIBUTING.md does not list the check {step}");
        }
    }
    assert!(quoted.len() > 50, "CONTRIBUTING.md is not read: {quoted:?}");
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn each_promise_is_cited_by_a_test_and_each_cited_promise_exists() {
    let (promises, headings, mut wrong) = promises(&read("tests/promises.md"));
    let cited = citations();
    assert!(promises.len() > 100 && cited.len() > 100, "{} promises, {} cited", promises.len(), cited.len());
    let unlettered = |number: &String| headings.contains(number) && !has_letters(number, &promises);
    let missing = promises.iter().filter(|number| !cited.contains_key(*number));
    wrong.extend(missing.map(|number| format!("no test cites {number}")));
    wrong.extend(
        cited
            .iter()
            .filter(|(number, _)| !promises.contains(*number) && !unlettered(number))
            .map(|(number, test)| format!("{test} cites {number}, which is not in tests/promises.md")),
    );
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_page_about_life_cycles_names_only_existing_tests() {
    let page = read("src/guide/lifecycle.rs");
    // The last table of the page names items of the crate, and no tests.
    let (page, _) = page.split_once("# Differences from Erlang").expect("the page has this section");
    let tests = ["links", "supervisors", "trees", "cancel"].map(|name| read(&format!("tests/it/{name}.rs"))).concat();
    let rows = page.lines().filter_map(|line| line.strip_prefix("//! |")?.strip_suffix(" |")?.rsplit_once(" | "));
    let named: BTreeSet<&str> = rows.flat_map(|(_, tests)| tests.split('`').skip(1).step_by(2)).collect();
    assert!(named.len() > 20, "the page is not read: {named:?}");
    let missing: Vec<_> = named.iter().filter(|name| !tests.contains(&format!("\nfn {name}()"))).collect();
    assert!(missing.is_empty(), "the page names no test: {missing:?}");
}

/// The guide cannot compile these programs, because axum, futures-rustls and the other crates are not dependencies of
/// this crate.
#[test]
fn the_guide_shows_the_programs_of_the_bridges_package() {
    for (guide, program) in [
        ("src/guide/tutorial/embedding.rs", "examples/apps/bridges/src/bin/axum_server.rs"),
        ("src/guide/sockets.rs", "examples/apps/bridges/src/bin/tokio_traits.rs"),
        ("src/guide/sockets.rs", "examples/apps/bridges/src/bin/tls.rs"),
        ("src/guide/sockets.rs", "examples/apps/bridges/src/bin/websocket.rs"),
    ] {
        let (page, code) = (read(guide), read(program));
        let (_, after) = page.split_once(program).expect("the page names the program");
        let block = after.split_once("```text\n").and_then(|(_, rest)| rest.split_once("//! ```\n"));
        let (block, _) = block.expect("a block follows the name of the program");
        let shown: String =
            block.lines().flat_map(|line| [line.trim_start_matches("//!").get(1..).unwrap_or(""), "\n"]).collect();
        for part in shown.split("\n\n").map(str::trim_end) {
            assert!(part.len() > 50 && code.contains(part), "{program} does not contain this part of {guide}:\n{part}");
        }
    }
}

#[test]
fn main_rs_declares_every_file_of_integration_tests() {
    let main = read("tests/it/main.rs");
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it")).expect("tests are there") {
        let path = entry.expect("tests can be listed").path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("names are plain");
        assert!(name == "main" || main.contains(&format!("\nmod {name};\n")), "main.rs does not name {name}");
    }
}

/// Reads the list of promises. Returns the numbers of the promises, the numbers of the sections, and messages about
/// wrong numbers. A number is wrong if it occurs twice, or if the number does not belong to the section that contains
/// the number.
fn promises(list: &str) -> (BTreeSet<String>, BTreeSet<String>, Vec<String>) {
    let (mut promises, mut headings, mut wrong) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    let mut section = String::new();
    for line in list.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading.split(' ').next().unwrap_or_default().to_owned();
            if is_number(&section) && !headings.insert(section.clone()) {
                wrong.push(format!("section {section} stands twice in the list"));
            }
        } else if let Some((number, _)) = line.strip_prefix("- **").and_then(|line| line.split_once("** ")) {
            if number.trim_end_matches(|c: char| c.is_ascii_lowercase()) != section {
                wrong.push(format!("{number} stands in section {section}"));
            }
            if !promises.insert(number.to_owned()) {
                wrong.push(format!("{number} stands twice in the list"));
            }
        }
    }
    (promises, headings, wrong)
}

/// Returns true if a promise of this section has a number with a letter, such as `2.3a`.
fn has_letters(section: &str, promises: &BTreeSet<String>) -> bool {
    promises.iter().any(|number| number.trim_end_matches(|c: char| c.is_ascii_lowercase()) == section)
}

/// Returns each number that a test of `src`, `tests` or the console cites, with the name of one test that cites this
/// number.
fn citations() -> BTreeMap<String, String> {
    fn gather(path: &Path, found: &mut BTreeMap<String, String>) {
        if path.is_dir() {
            let entries = fs::read_dir(path).expect("folders can be listed");
            entries.for_each(|entry| gather(&entry.expect("folders can be listed").path(), found));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(path).expect("sources can be read");
            let file = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap_or(path);
            for (test, numbers) in citations_of(&text) {
                let test = format!("{}::{test}", file.display());
                found.extend(numbers.into_iter().map(|number| (number.to_owned(), test.clone())));
            }
        }
    }
    let mut found = BTreeMap::new();
    for folder in ["src", "tests", "examples/apps/console"] {
        gather(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut found);
    }
    found
}

/// Returns each test of a file if the doc comment of the test begins with the number of a promise, for example `6.5b`.
/// Each returned test has the numbers of its promises. In a file that calls `scenarios!`, a function without `#[test]`
/// is also a test, because this macro adds the attribute.
fn citations_of(text: &str) -> Vec<(&str, Vec<&str>)> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let scenarios = lines.contains(&"scenarios! {");
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let line = line.strip_prefix("async ").unwrap_or(line);
        let Some(name) = line.strip_prefix("fn ").and_then(|line| line.split(['(', '<']).next()) else { continue };
        let above = lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("///"));
        let above: Vec<&str> = above.copied().collect();
        let first = above.iter().rev().find_map(|line| line.strip_prefix("///"));
        if let Some(first) = first.filter(|_| scenarios || above.contains(&"#[test]")) {
            found.extend(numbers(first.trim_start()).map(|numbers| (name, numbers)));
        }
    }
    found
}

/// Returns the numbers at the head of a doc comment, as in `1.1d, 2.3a: …`. Returns `None` if the doc comment begins
/// with other text. If the doc comment begins with a number such as `1.1d`, but the list of numbers is malformed,
/// returns the whole line. The list of promises does not contain this line, so the check fails.
fn numbers(doc: &str) -> Option<Vec<&str>> {
    let head: Vec<&str> = doc.split_once(':').map_or(Vec::new(), |(head, _)| head.split(", ").collect());
    if !head.is_empty() && head.iter().all(|number| is_number(number)) {
        return Some(head);
    }
    let first = doc.split([' ', ',', ':']).next().unwrap_or_default();
    (first.contains('.') && is_number(first)).then(|| vec![doc])
}

/// Returns whether `text` is the number of a section or of a promise: `11`, `2.3` or `2.3a`.
fn is_number(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.split_once('.') {
        Some((chapter, section)) => {
            digits(chapter) && digits(section.strip_suffix(|c: char| c.is_ascii_lowercase()).unwrap_or(section))
        }
        None => digits(text),
    }
}

/// Returns a map from the module path of each file of `src` to the code of this file without comment lines.
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

/// Returns the code in front of the unit tests.
fn without_tests(code: &str) -> &str {
    code.split("\nmod tests {").next().unwrap_or_default()
}

/// Returns the name and the number of lines of each function with a body. A function ends at the first closing brace
/// that has the same indentation as the first line of the function.
fn functions(code: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = code.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let mut head = line.trim_start();
        let indent = line.len() - head.len();
        if let Some(rest) = head.strip_prefix("pub") {
            head = rest
                .strip_prefix('(')
                .and_then(|rest| rest.split_once(')'))
                .map_or(rest, |(_, rest)| rest)
                .trim_start();
        }
        while let Some(rest) = ["const ", "async ", "unsafe "].iter().find_map(|word| head.strip_prefix(word)) {
            head = rest;
        }
        let Some(rest) = head.strip_prefix("fn ") else { continue };
        let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
        let inside = |line: &&&str| line.trim().is_empty() || line.len() - line.trim_start().len() > indent;
        // If rustfmt wraps a signature, its last lines begin with `)`, or are `where` or `{`. The last lines of a
        // wrapped signature are not the end of the function.
        let ends = |line: &str| line.trim_start().starts_with(')') || line.trim() == "where" || line.trim() == "{";
        let mut length = 1;
        for line in &lines[at + 1..] {
            if !inside(&line) && !ends(line) {
                length += usize::from(line.trim_start().starts_with('}'));
                break;
            }
            length += 1;
        }
        // Skips a declaration in a trait, and a function on one line.
        if !line.trim_end().ends_with(';') && !line.trim_end().ends_with('}') {
            found.push((name, length));
        }
    }
    found
}

/// Returns how often the phrase occurs in the text. Only whole words count.
fn occurrences(text: &str, phrase: &str) -> usize {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let whole = |at: usize| !part(text[..at].chars().next_back()) && !part(text[at + phrase.len()..].chars().next());
    text.match_indices(phrase).filter(|(at, _)| whole(*at)).count()
}

/// Returns a map from the path of each file to the prose of this file. The prose of a Rust file is its comments and doc
/// comments. The prose of a Markdown file is the whole text.
fn prose() -> BTreeMap<String, String> {
    fn gather(folder: &Path, files: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("the folder can be listed").path();
            let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
            if path.is_dir() {
                if path.file_name().is_some_and(|name| name != "target") {
                    gather(&path, files);
                }
            } else if ["rs", "md"].contains(&extension) {
                let mut text = fs::read_to_string(&path).expect("the file can be read");
                if extension == "rs" {
                    let comments = text.lines().map(str::trim).filter(|line| line.starts_with("//"));
                    text = comments.flat_map(|line| [line.trim_start_matches(['/', '!']), "\n"]).collect();
                }
                files.insert(path.display().to_string(), text);
            }
        }
    }
    let (root, mut files) = (Path::new(env!("CARGO_MANIFEST_DIR")), BTreeMap::new());
    for folder in ["src", "tests", "examples", "benches"] {
        gather(&root.join(folder), &mut files);
    }
    for entry in fs::read_dir(root).expect("the package is there") {
        let path = entry.expect("the package can be listed").path();
        if path.extension().is_some_and(|extension| extension == "md") {
            files.insert(path.display().to_string(), fs::read_to_string(&path).expect("the file can be read"));
        }
    }
    let root = format!("{}/", root.display());
    files.into_iter().map(|(path, text)| (path.trim_start_matches(&root).to_owned(), text)).collect()
}

/// Returns the kind and the path of each public item: for example, `struct` and `procession::Pid`. The unindented lines
/// of the list contain both the kind and the path.
fn items() -> Vec<(String, String)> {
    let list = read("tests/public_api.txt");
    let items = list.lines().filter(|line| !line.starts_with(' ')).filter_map(|line| line.split_once(' '));
    items.map(|(kind, path)| (kind.to_owned(), path.to_owned())).collect()
}

/// Returns the name of each public item and module at the root of the crate.
fn root_names() -> BTreeSet<String> {
    let name = |path: &str| path.strip_prefix("procession::").filter(|name| !name.contains("::")).map(str::to_owned);
    let mut names: BTreeSet<String> = items().into_iter().filter_map(|(_, path)| name(&path)).collect();
    // rustdoc may show an item on the page of another module. The list contains this item as a re-export.
    for line in read("tests/public_api.txt").lines().skip(1).map_while(|line| line.strip_prefix("    pub use ")) {
        names.extend(line.trim_end_matches(';').rsplit("::").next().map(str::to_owned));
    }
    names
}

/// Returns the name of the type that implements `Error`, if the line is an implementation of `Error`. An example of an
/// implementation is `impl<M> Error for SendError<M>`.
fn error_type(line: &str) -> Option<&str> {
    let (head, of) = line.trim().split_once(" Error for ")?;
    head.starts_with("impl").then(|| of.split(['<', ' ']).next().unwrap_or(of))
}

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the files that a file imports, without the imports of its unit tests. If a `crate::` path leads to no file,
/// the path itself is returned.
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
    // In an inline module, `super` is the file itself. In this case, the path in the import leads to no file, so the
    // search skips this path.
    let parent = file.rsplit_once("::").map_or(String::new(), |(parent, _)| format!("{parent}::"));
    found.extend(paths(code, "super::").iter().filter_map(|path| module(&path.replacen("super::", &parent, 1))));
    found.remove(file);
    found
}

/// Returns all paths in `code` that begin with `root`. Import groups are expanded.
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

/// Reads the path or the group of paths after `prefix::`, and appends the paths to `found`. Returns the rest of the
/// text.
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
            // If the text cannot be parsed, one character is skipped. Therefore the loop over a group always
            // terminates.
            match alias {
                Some(rest) => rest,
                None if segment.is_empty() => rest.get(1..).unwrap_or_default(),
                None => rest,
            }
        }
    }
}

#[test]
fn lengths_and_words_are_counted() {
    let code = "fn a() -> u8 {\n    1\n}\nimpl X {\n    pub(crate) async fn b(\n        self,\n    ) -> u8\n    where\n        X: Y,\n    {\n        1\n    }\n    fn c(&self);\n    const fn d() {}\n}\n";
    assert_eq!(functions(code), [("a", 3), ("b", 8)]);
    assert_eq!(occurrences("heed heeds unheeded heed, so heed_it", "heed"), 2);
    assert_eq!(error_type("    impl<M> Error for SendError<M>"), Some("SendError"));
    assert_eq!(error_type("    pub fn error(&self) -> Error"), None);
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
}

#[test]
fn the_cited_promises_of_a_test_are_found() {
    // Each line of this text begins with a quotation mark. Therefore this file itself does not cite the numbers.
    let text = [
        "/// 1.10a, 11: x.",
        "/// 2.2: not at the head.",
        "#[test]",
        "fn cites_two() {",
        "/// 3.1a: not a test.",
        "fn helper() {",
        "/// No number: x.",
        "#[test]",
        "fn cites_none() {",
        "/// 3: x.",
        "#[test]",
        "async fn cites_a_section() {",
        "/// 3.1a 3.1b: x.",
        "#[test]",
        "fn is_malformed() {",
    ]
    .join("\n");
    let expected =
        [("cites_two", vec!["1.10a", "11"]), ("cites_a_section", vec!["3"]), ("is_malformed", vec!["3.1a 3.1b: x."])];
    assert_eq!(citations_of(&text), expected);
    assert_eq!(citations_of("scenarios! {\n    /// 2.5a: x\n    fn macro_test() {"), [("macro_test", vec!["2.5a"])]);
    let (found, sections, wrong) = promises("## 1.1 A\n- **1.1a** x.\n- **1.1a** y.\n- **1.2a** z.\n## 11 B\n- x\n");
    assert_eq!((found.len(), sections.len(), wrong.len()), (2, 2, 2), "{wrong:?}");
    assert!(has_letters("1.1", &found) && !has_letters("11", &found));
    assert!(["1.", ".1", "a", "", "1.1ab", "1.a"].iter().all(|text| !is_number(text)));
}

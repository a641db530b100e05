//! Sections 6.3 and 6.4 of the specification: links, monitors, names and supervisors behave as in Erlang. The file
//! `erlang/scenarios.txt` contains the scenarios. Each line of a scenario is an *act*, for example a spawn or a kill.
//! Each scenario runs in this crate and on a real Erlang/OTP. The file `erlang/outcomes.txt` contains the outcomes of
//! Erlang/OTP. If the crate differs from Erlang/OTP on purpose, `scenarios.txt` states the reason.
//!
//! If the environment variable `PROCESSION_ERLANG` is `required`, the test fails if Erlang/OTP is not installed. If the
//! variable is `record`, the test records the outcomes of Erlang/OTP again.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command as Program, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use procession::supervisor::*;
use procession::*;

use crate::within;

const HOUR: Duration = Duration::from_secs(3600);
/// Reason with which a scenario cancels a process that is not a supervisor.
const ASKED: &str = "asked to";

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/erlang"))
}

fn read(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap()
}

// ---- The scenarios

#[derive(Default)]
struct Scenario {
    name: String,
    acts: Vec<Vec<String>>,
    /// Reason for an intended difference from Erlang/OTP. If this field contains a reason, the field `here` contains
    /// the expected outcome.
    differs: Option<String>,
    here: Vec<String>,
}

fn scenarios() -> Vec<Scenario> {
    let mut all: Vec<Scenario> = Vec::new();
    for line in read("scenarios.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        if first == "scenario" {
            all.push(Scenario { name: rest.to_owned(), ..Scenario::default() });
            continue;
        }
        let scenario = all.last_mut().expect("a scenario begins with its name");
        match first {
            "differs" => scenario.differs = Some(rest.to_owned()),
            "here" => scenario.here.push(rest.to_owned()),
            _ => scenario.acts.push(line.split(' ').map(str::to_owned).collect()),
        }
    }
    all
}

/// Parses the recorded outcomes. Returns a map from the name of each scenario to the output lines of the scenario.
fn outcomes(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines() {
        match line.strip_prefix("scenario ") {
            Some(next) => {
                name = next.to_owned();
                assert!(all.insert(name.clone(), Vec::new()).is_none(), "two scenarios {name:?}");
            }
            None => all.get_mut(&name).expect("a scenario begins with its name").push(line.to_owned()),
        }
    }
    all
}

/// 6.3e, 6.4b, 6.4c, 6.4d: each scenario has the same outcome in this crate as on Erlang/OTP. If a scenario declares an
/// intended difference, the outcome of the scenario in this crate equals the declared outcome, and differs from the
/// outcome on Erlang/OTP.
#[test]
fn every_scenario_has_the_same_outcome_as_on_erlang() {
    let there = outcomes(&read("outcomes.txt"));
    let mut wrong = String::new();
    let mut names = BTreeSet::new();
    for scenario in scenarios() {
        let name = scenario.name.clone();
        assert!(names.insert(name.clone()), "two scenarios {name:?}");
        let there = there.get(&name).unwrap_or_else(|| panic!("{name}: not recorded yet"));
        let (differs, expected) = match scenario.differs.is_some() {
            true => (true, scenario.here.clone()),
            false => (false, there.clone()),
        };
        let here = within(60, move || play(&scenario));
        if here != expected {
            let _ = writeln!(wrong, "{name}:\n  expected {expected:#?}\n  and not {here:#?}");
        } else if differs && here == *there {
            let _ = writeln!(wrong, "{name}: no longer differs");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(there.keys().all(|name| names.contains(name)), "outcomes of scenarios that are gone");
}

/// 6.3e, 6.4b: if Erlang/OTP is installed, each scenario has the recorded outcome on this Erlang/OTP.
#[test]
fn the_recorded_outcomes_equal_the_outcomes_of_erlang() {
    let wish = env::var("PROCESSION_ERLANG").unwrap_or_default();
    let is_there = |program: &str, argument: &str| {
        let mut program = Program::new(program);
        program.arg(argument).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        program.status().is_ok()
    };
    if !is_there("erlc", "-help") || !is_there("escript", "--help") {
        assert!(wish.is_empty(), "PROCESSION_ERLANG={wish}, and there is no Erlang/OTP: it is in Debian's erlang-base");
        // If a test passes, the test harness hides the output of the print macros. The test writes directly to stderr,
        // so that this line is shown.
        let mut stderr = std::io::stderr();
        let _ = writeln!(
            stderr,
            "SKIPPED the_recorded_outcomes_equal_the_outcomes_of_erlang: no Erlang/OTP here (Debian's erlang-base)"
        );
        return;
    }
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("erlang");
    fs::create_dir_all(&scratch).unwrap();
    let compiled = Program::new("erlc").arg("-o").arg(&scratch).arg(folder().join("tree.erl")).output().unwrap();
    assert!(compiled.status.success(), "{compiled:?}");
    let output = Program::new("escript")
        .env("ERL_FLAGS", format!("-pa {}", scratch.display()))
        .arg(folder().join("run.escript"))
        .arg(folder().join("scenarios.txt"))
        .output()
        .unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    if wish == "record" {
        fs::write(folder().join("outcomes.txt"), &told).unwrap();
    }
    let (told, recorded) = (outcomes(&told), outcomes(&read("outcomes.txt")));
    for (name, outcome) in &told {
        assert_eq!(Some(outcome), recorded.get(name), "{name}: as Erlang/OTP does it, and as it is recorded");
    }
    assert_eq!(told.len(), recorded.len());
}

// ---- The scenarios in this crate

fn play(scenario: &Scenario) -> Vec<String> {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let stage = Stage(Arc::new(Mutex::new(Props::default())));
    for act in &scenario.acts {
        let words: Vec<&str> = act.iter().map(String::as_str).collect();
        stage.act(&rt, &words);
        settle(&rt, &stage);
    }
    let order = std::mem::take(&mut stage.props().order);
    for (name, ending) in order {
        let end = ending(&rt).map_or_else(|| "lives".to_owned(), |exit| format!("ended {}", reason(&exit)));
        stage.tell(format!("{name} {end}"));
    }
    std::mem::take(&mut stage.props().told)
}

/// Returns the atom or text that Erlang uses for this exit.
fn reason(exit: &Exit) -> String {
    match exit {
        Exit::Normal => "normal".into(),
        Exit::Killed => "killed".into(),
        Exit::NoProcess => "noproc".into(),
        Exit::Cancelled(_) => "shutdown".into(),
        Exit::Failed(_) if matches!(exit.error(), Some(SupervisorError::RestartIntensityExceeded { .. })) => {
            "shutdown".into()
        }
        Exit::Failed(error) => error.to_string(),
        Exit::Linked { reason: root, .. } => reason(root),
        other => panic!("{other}"),
    }
}

/// Runs the processes until no process can run and every child of the tree is either running or stopped.
fn settle(rt: &Runtime, stage: &Stage) {
    loop {
        let quiet = rt.spawn(async |ctx: Context| {
            for _ in 0..200 {
                ctx.yield_now().await;
            }
        });
        rt.block_on(quiet).unwrap();
        let Some(tree) = stage.pid("tree") else { return };
        match rt.block_on(rt.supervision_tree(tree)) {
            Ok(tree) if !is_settled(&tree) => {}
            _ => return,
        }
    }
}

fn is_settled(tree: &SupervisionTree) -> bool {
    tree.children.iter().all(|child| {
        matches!(child.state, ChildState::Running | ChildState::Stopped) && child.below.as_ref().is_none_or(is_settled)
    })
}

/// State of a running scenario.
#[derive(Clone)]
struct Stage(Arc<Mutex<Props>>);

#[derive(Default)]
struct Props {
    /// The output lines of the scenario so far.
    told: Vec<String>,
    /// The names and the handles of the processes whose exits are printed at the end.
    order: Vec<(String, Ending)>,
    /// The names and the pids of the processes. A name may occur several times, and the last entry with a name contains
    /// the newest pid of this name.
    pids: Vec<(String, Pid)>,
    /// Events of the children of a tree since the last `log` act.
    log: Vec<String>,
    /// Number of starts of each child of a tree.
    starts: BTreeMap<String, usize>,
    branches: BTreeMap<String, Vec<String>>,
}

/// Returns the exit of a process, or `None` if the process has not exited.
type Ending = Box<dyn FnOnce(&Runtime) -> Option<Exit> + Send>;

fn ending<M: Send + 'static>(handle: JoinHandle<(), M>) -> Ending {
    Box::new(|rt| handle.is_finished().then(|| rt.block_on(handle).err().unwrap_or(Exit::Normal)))
}

/// Message to a process of a scenario.
enum Do {
    Act(Vec<String>),
    Mail(String),
}

/// Returns the name as a `'static` string, because `Name::new` requires such a string. The function leaks each name
/// once.
fn constant(name: String) -> &'static str {
    static ALL: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    let mut all = ALL.lock().unwrap();
    if let Some(known) = all.get(name.as_str()) {
        return known;
    }
    let name = String::leak(name);
    all.insert(name);
    name
}

impl Stage {
    fn props(&self) -> std::sync::MutexGuard<'_, Props> {
        self.0.lock().unwrap()
    }

    fn tell(&self, what: String) {
        self.props().told.push(what);
    }

    fn log(&self, what: String) {
        self.props().log.push(what);
    }

    /// Records the pid under this name.
    fn know(&self, name: &str, pid: Pid) {
        self.props().pids.push((name.to_owned(), pid));
    }

    fn track<M: Send + 'static>(&self, name: &str, handle: JoinHandle<(), M>) {
        self.know(name, handle.pid());
        self.props().order.push((name.to_owned(), ending(handle)));
    }

    fn pid(&self, name: &str) -> Option<Pid> {
        self.props().pids.iter().rev().find(|(other, _)| other == name).map(|&(_, pid)| pid)
    }

    fn name(&self, pid: Pid) -> String {
        self.props().pids.iter().find(|&&(_, other)| other == pid).expect("somebody that is known").0.clone()
    }

    /// Returns the pid of the process with this name. If a child of the tree has this name, the function returns the
    /// pid of this child.
    fn whom(&self, host: &Host, name: &str) -> Pid {
        host.whereis(format!("tree {name}")).or_else(|| self.pid(name)).unwrap_or_else(|| panic!("who is {name}?"))
    }

    fn act(&self, rt: &Runtime, words: &[&str]) {
        let tree = self.pid("tree");
        let ask = |message: &dyn Fn(Reply<bool>) -> SupervisorMessage| {
            let answer = rt.block_on(rt.call(tree.unwrap(), message)).unwrap();
            self.tell(format!("{}: {}", words.join(" "), yes(answer)));
        };
        let begin = |message: &mut dyn FnMut(Reply<Result<Pid, Exit>>) -> SupervisorMessage| {
            let answer = rt.block_on(rt.call(tree.unwrap(), message)).unwrap();
            self.tell(format!("{}: {}", words.join(" "), yes(answer.is_ok())));
        };
        match *words {
            ["spawn", name, ref trap @ ..] => {
                let (stage, traps) = (self.clone(), !trap.is_empty());
                let handle = rt.spawn(async move |ctx| {
                    ctx.trap_exit(traps);
                    obey(ctx, stage).await
                });
                self.track(name, handle);
            }
            ["kill", name] => drop(rt.kill(self.whom(rt, name))),
            ["cancel", "tree"] => drop(rt.cancel(tree.unwrap(), Reason::REQUESTED, HOUR)),
            ["cancel", name] => drop(rt.cancel(self.whom(rt, name), ASKED, HOUR)),
            ["whereis", name] => {
                let who = if rt.whereis(name).is_some() { "somebody" } else { "nobody" };
                self.tell(format!("whereis {name}: {who}"));
            }
            ["branch", name, ref spec @ ..] => {
                self.props().branches.insert(name.into(), spec.iter().map(|&word| word.to_owned()).collect());
            }
            ["tree", ref spec @ ..] => {
                let handle = rt.spawn_process(self.family(spec));
                self.track("tree", handle);
            }
            ["add", spec] => {
                let mut child = Some(self.child(spec));
                begin(&mut |reply| SupervisorMessage::StartChild(child.take().unwrap(), reply));
            }
            ["stop", name] => ask(&|reply| SupervisorMessage::TerminateChild(key(name), reply)),
            ["remove", name] => ask(&|reply| SupervisorMessage::DeleteChild(key(name), reply)),
            ["restart", name] => begin(&mut |reply| SupervisorMessage::RestartChild(key(name), reply)),
            ["children"] => {
                let tree = rt.block_on(rt.supervision_tree(tree.unwrap())).unwrap();
                let mut line = "children:".to_owned();
                for child in tree.children {
                    let name = child.name.unwrap();
                    let state = if child.state == ChildState::Running { "up" } else { "down" };
                    let _ = write!(line, " {}-{state}", name.strip_prefix("tree ").unwrap());
                }
                self.tell(line);
            }
            ["log", ref sorted @ ..] => {
                let mut log = std::mem::take(&mut self.props().log);
                if !sorted.is_empty() {
                    log.sort();
                }
                self.tell(log.iter().fold("log:".to_owned(), |line, entry| line + " " + entry));
            }
            [name, ref act @ ..] => {
                let act = act.iter().map(|&word| word.to_owned()).collect();
                // A process that has exited cannot execute the act. In this case the send fails, and the error of the
                // send is ignored.
                let _ = rt.send(self.whom(rt, name), Do::Act(act));
            }
            [] => unreachable!("no line is empty"),
        }
    }

    fn family(&self, spec: &[&str]) -> Supervisor {
        let [strategy, most, children @ ..] = spec else { panic!("{spec:?}") };
        let tree = match *strategy {
            "one_for_one" => Supervisor::one_for_one(),
            "one_for_all" => Supervisor::one_for_all(),
            "rest_for_one" => Supervisor::rest_for_one(),
            other => panic!("{other}"),
        };
        let tree = tree.intensity(most.parse().unwrap(), HOUR);
        children.iter().fold(tree, |tree, child| tree.add(self.child(child)))
    }

    fn child(&self, text: &str) -> Child {
        let (text, end) = text.split_once('/').unwrap_or((text, ""));
        let (text, fails) = text.split_once('!').unwrap_or((text, ""));
        let (name, restart) = text.split_once(':').unwrap_or((text, "permanent"));
        let called = constant(format!("tree {name}"));
        let branch = self.props().branches.get(name).cloned();
        let child = match branch {
            Some(spec) => {
                let stage = self.clone();
                Child::process(Name::new(called), move || {
                    stage.family(&spec.iter().map(String::as_str).collect::<Vec<_>>())
                })
            }
            None => {
                let play = Play { stage: self.clone(), name: name.into(), fails: fails.into(), end: end.into() };
                Child::with_args(Name::new(called), play, begin_child).options(ProcessBuilder::manual_start)
            }
        };
        let child = match end {
            "brutal" => child.shutdown(Duration::ZERO),
            "stubborn" => child.shutdown(Duration::from_millis(100)),
            _ => child,
        };
        child.restart(match restart {
            "permanent" => RestartPolicy::Permanent,
            "transient" => RestartPolicy::Transient,
            "temporary" => RestartPolicy::Temporary,
            other => panic!("{other}"),
        })
    }
}

fn key(name: &str) -> ChildId {
    format!("tree {name}").into()
}

fn yes(is_so: bool) -> &'static str {
    if is_so { "yes" } else { "no" }
}

/// The behaviour of a child of a tree.
#[derive(Clone)]
struct Play {
    stage: Stage,
    name: String,
    fails: String,
    end: String,
}

async fn begin_child(ctx: Context<Do>, play: Play) -> Result<(), Exit> {
    let Play { stage, name, fails, end } = play;
    let start = {
        let mut props = stage.props();
        let starts = props.starts.entry(name.clone()).or_default();
        *starts += 1;
        starts.to_string()
    };
    if fails == "all" || fails == start {
        stage.log(format!("?{name}"));
        return Err(Exit::failed("not today"));
    }
    stage.log(format!("+{name}"));
    stage.know(&name, ctx.pid());
    ctx.mark_started();
    let ended = obey(ctx, stage.clone()).await;
    if let Err(Exit::Cancelled(reason)) = &ended
        && *reason != ASKED
    {
        stage.log(format!("-{name}"));
        if end == "stubborn" {
            std::future::pending().await
        }
    }
    ended
}

/// Body of a process that executes its acts. A message that is not an act stays in the mailbox until the process
/// executes the act `read`.
fn obey(ctx: Context<Do>, stage: Stage) -> BoxFuture<'static, Result<(), Exit>> {
    run_acts(ctx, stage).boxed()
}

async fn run_acts(mut ctx: Context<Do>, stage: Stage) -> Result<(), Exit> {
    let mut watches: BTreeMap<String, MonitorRef> = BTreeMap::new();
    loop {
        let act = ctx.receive_where(|message| if let Do::Act(act) = message { Ok(act) } else { Err(message) }).await?;
        let words: Vec<&str> = act.iter().map(String::as_str).collect();
        let whom = |name| stage.whom(ctx.host(), name);
        let tell = |what: &str| stage.tell(format!("{} {}: {what}", stage.name(ctx.pid()), words.join(" ")));
        match words[..] {
            ["end"] => return Ok(()),
            ["fail", text] => return Err(Exit::failed(text)),
            ["trap"] => drop(ctx.trap_exit(true)),
            ["untrap"] => drop(ctx.trap_exit(false)),
            ["link", other] => {
                if ctx.link(whom(other)).is_err() {
                    tell("noproc");
                }
            }
            ["unlink", other] => ctx.unlink(whom(other)),
            ["monitor", other] => drop(watches.insert(other.into(), ctx.monitor(whom(other)))),
            ["monitor_name", name] => drop(ctx.monitor(ctx.host().whereis(name).unwrap())),
            ["demonitor", other] => tell(&ctx.demonitor(watches[other]).to_string()),
            ["demonitor_flush", other] => tell(&ctx.demonitor_flush(watches[other]).to_string()),
            ["mail", other, text] => drop(ctx.send(whom(other), Do::Mail(text.into()))),
            ["mail_name", name, text] => {
                let sent = ctx.send(name, Do::Mail(text.into())).is_ok();
                stage.tell(format!("{} mail_name {name}: {}", stage.name(ctx.pid()), yes(sent)));
            }
            ["register", _] => tell(yes(ctx.register(act[1].clone()).is_ok())),
            ["unregister", _] => tell(yes(ctx.unregister(act[1].clone()))),
            ["takes_over", _, other] => {
                let watch = ctx.monitor(whom(other));
                let Event::Down { monitor, .. } = ctx.event().await else { panic!("nothing else was sent") };
                assert_eq!(monitor, watch);
                let took = if ctx.register(act[1].clone()).is_ok() { "took" } else { "missed" };
                let _ = ctx.send(ctx.pid(), Do::Mail(took.into()));
            }
            ["read", ref sorted @ ..] => {
                let mut heard = Vec::new();
                while let Some(event) = at_once(&mut ctx).await {
                    heard.push(match event {
                        Event::Message(Do::Mail(text)) => format!("mail {text}"),
                        Event::Exit { from, exit: how } => format!("exit {} {}", stage.name(from), reason(&how)),
                        Event::Down { pid, exit: how, .. } => format!("down {} {}", stage.name(pid), reason(&how)),
                        _ => panic!("nothing else was sent"),
                    });
                }
                if !sorted.is_empty() {
                    heard.sort();
                }
                for what in heard {
                    stage.tell(format!("{}: {what}", stage.name(ctx.pid())));
                }
            }
            ["tree", ref spec @ ..] => {
                let handle =
                    ctx.process().link().spawn_process(stage.family(spec)).map_err(|_| Exit::failed("refused"))?;
                stage.track("tree", handle);
            }
            [how @ ("spawn_link" | "spawn_monitor" | "spawn_both"), child, ref at_once @ ..] => {
                let process = match how {
                    "spawn_link" => ctx.process().link(),
                    "spawn_monitor" => ctx.process().monitor(),
                    _ => ctx.process().link().monitor(),
                };
                let (inside, at_once) =
                    (stage.clone(), at_once.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
                let lives = at_once.is_empty();
                let handle = process
                    .spawn(async move |ctx| match &at_once[..] {
                        [fail, text] if fail == "fail" => Err(Exit::failed(text.as_str())),
                        [_] => Ok(()),
                        _ => obey(ctx, inside).await,
                    })
                    .map_err(|_| Exit::failed("refused"))?;
                watches.extend(handle.monitor_ref().map(|watch| (child.to_owned(), watch)));
                if lives {
                    stage.track(child, handle);
                } else {
                    stage.know(child, handle.pid());
                }
            }
            _ => panic!("{words:?}"),
        }
    }
}

/// Returns the next event, or `None` if no event is queued.
async fn at_once(ctx: &mut Context<Do>) -> Option<Event<Do>> {
    match futures::poll!(std::pin::pin!(ctx.event())) {
        std::task::Poll::Ready(event) => Some(event),
        std::task::Poll::Pending => None,
    }
}

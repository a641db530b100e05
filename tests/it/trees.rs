//! Sections 6.3 and 6.4 of the specification: the test builds random trees of supervisors, with links between the
//! leaves. The test kills, stops and restarts processes, makes processes fail, and compares the result with an
//! executable model. The model predicts the exits with their reasons, the notifications, and the order and the number
//! of the starts. The model also predicts which supervisors exceed their intensity.

mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use procession::supervisor::*;
use procession::*;

use self::model::{End, Keeps, Life, Model, Node, Place, Policy, Strategy, name};
use crate::within;

const HOUR: Duration = Duration::from_secs(3600);

// ---- Random choices

struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn strategy(&mut self) -> Strategy {
        self.of(&[Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne])
    }

    fn policy(&mut self) -> Policy {
        self.of(&[Policy::Permanent, Policy::Permanent, Policy::Transient, Policy::Temporary])
    }

    /// Returns a random tree of at most three levels.
    fn tree(&mut self) -> Model {
        let mut model = Model::default();
        model.nodes.push(Node::new(None, Policy::Permanent, Some(Keeps::new(self.strategy(), self.below(6) as u32))));
        self.grow(&mut model, 0, 2);
        model
    }

    fn grow(&mut self, model: &mut Model, supervisor: Place, levels: usize) {
        for _ in 0..1 + self.below(4) {
            let place = model.nodes.len();
            if place >= 14 {
                return;
            }
            let is_branch = levels > 0 && self.one_in(3);
            let keeps = is_branch.then(|| Keeps::new(self.strategy(), self.below(4) as u32));
            let mut node = Node::new(Some(supervisor), self.policy(), keeps);
            if !is_branch && self.one_in(6) {
                node.fails.insert(1 + self.below(4) as u32);
            }
            model.nodes.push(node);
            if is_branch {
                self.grow(model, place, levels - 1);
            }
        }
    }
}

// ---- The running tree

/// Instruction to a leaf or to the watcher.
enum Do {
    End,
    Fail,
    Panic,
    LinkTo(Pid),
    Watch(Pid, Place),
}

/// The observed events.
#[derive(Default)]
struct Seen {
    starts: BTreeMap<Place, u32>,
    /// For each supervisor, the log of its leaves.
    logs: BTreeMap<Place, Vec<String>>,
    /// For each leaf, the exits of its instances. `downs` contains the exits that monitors report, and `exits` contains
    /// the exits that links report. `None` means that the instance had exited before the monitor or link was set.
    downs: BTreeMap<Place, Vec<Option<End>>>,
    exits: BTreeMap<Place, Vec<Option<End>>>,
}

/// The running tree.
#[derive(Clone)]
struct Stage {
    /// The random tree before the first action.
    drawn: Arc<Model>,
    seen: Arc<Mutex<Seen>>,
    watcher: Pid,
}

impl Stage {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    fn supervisor(&self, place: Place) -> Supervisor {
        let keeps = self.drawn.nodes[place].keeps.as_ref().unwrap();
        let supervisor = match keeps.strategy {
            Strategy::OneForOne => Supervisor::one_for_one(),
            Strategy::OneForAll => Supervisor::one_for_all(),
            Strategy::RestForOne => Supervisor::rest_for_one(),
        };
        let children = self.drawn.children(place).into_iter();
        children.fold(supervisor.intensity(keeps.most, HOUR), |supervisor, child| {
            let node = &self.drawn.nodes[child];
            supervisor.add(self.child(place, child, node.policy, &node.fails))
        })
    }

    fn child(&self, supervisor: Place, place: Place, policy: Policy, fails: &BTreeSet<u32>) -> Child {
        let stage = self.clone();
        let child = if self.drawn.nodes.get(place).is_some_and(|node| node.keeps.is_some()) {
            Child::process(Name::new(name(place)), move || stage.supervisor(place))
        } else {
            let fails = fails.clone();
            let body = move |ctx| leaf(ctx, stage.clone(), supervisor, place, fails.clone());
            Child::new(Name::new(name(place)), body).options(ProcessBuilder::manual_start)
        };
        child.restart(match policy {
            Policy::Permanent => RestartPolicy::Permanent,
            Policy::Transient => RestartPolicy::Transient,
            Policy::Temporary => RestartPolicy::Temporary,
        })
    }
}

async fn leaf(
    mut ctx: Context<Do>,
    stage: Stage,
    supervisor: Place,
    place: Place,
    fails: BTreeSet<u32>,
) -> Result<(), Exit> {
    let log = |what: char| {
        let mut seen = stage.seen();
        seen.logs.entry(supervisor).or_default().push(format!("{what}{}", name(place)));
    };
    let start = {
        let mut seen = stage.seen();
        let starts = seen.starts.entry(place).or_default();
        *starts += 1;
        *starts
    };
    if fails.contains(&start) {
        log('?');
        return Err(Exit::failed("not today"));
    }
    log('+');
    let _ = ctx.send(stage.watcher, Do::Watch(ctx.pid(), place));
    ctx.mark_started();
    loop {
        match ctx.receive().await {
            Ok(Do::LinkTo(peer)) => ctx.link(peer)?,
            Ok(Do::End) => return Ok(()),
            Ok(Do::Fail) => return Err(Exit::failed("failed")),
            Ok(Do::Panic) => panic!("on purpose"),
            Ok(Do::Watch(..)) => unreachable!("it is no watcher"),
            Err(exit) => {
                log('-');
                return Err(exit);
            }
        }
    }
}

/// A watcher that monitors and links to each instance of each leaf.
async fn watch(mut ctx: Context<Do>, seen: Arc<Mutex<Seen>>) {
    let mut places = BTreeMap::new();
    ctx.trap_exit(true);
    loop {
        match ctx.event().await {
            Event::Message(Do::Watch(pid, place)) => {
                places.insert(pid, place);
                ctx.monitor(pid);
                // If the leaf has already exited, `link` sends the watcher an exit event.
                let _ = ctx.link(pid);
            }
            Event::Down { pid, exit: reason, .. } => {
                seen.lock().unwrap().downs.entry(places[&pid]).or_default().push(how(&reason));
            }
            Event::Exit { from, exit: reason } => {
                seen.lock().unwrap().exits.entry(places[&from]).or_default().push(how(&reason));
            }
            _ => return,
        }
    }
}

fn how(exit: &Exit) -> Option<End> {
    Some(match exit {
        Exit::Normal => End::Normal,
        Exit::Failed(_) => End::Failed,
        Exit::Panicked(_) => End::Panicked,
        Exit::Killed => End::Killed,
        Exit::Cancelled(_) => End::Stopped,
        Exit::Linked { reason, .. } => return how(reason),
        Exit::NoProcess => return None,
        other => panic!("{other}"),
    })
}

// ---- Actions on the tree and on the model

#[derive(Debug, Clone)]
enum Act {
    Begin,
    Link(Place, Place),
    /// Kills the nodes one after the other. No process gets a turn between these kills.
    Kill(Vec<Place>),
    Tell(Place, End),
    Stop(Place),
    Remove(Place),
    Restart(Place),
    Add(Place, Policy),
    ShutDown,
}

impl Act {
    fn draw(chance: &mut Chance, model: &Model) -> Option<Self> {
        let there = |place: &Place| model.nodes[*place].life == Life::Up;
        let nodes: Vec<Place> = (1..model.nodes.len()).filter(there).collect();
        let (branches, leaves): (Vec<Place>, Vec<Place>) =
            nodes.iter().partition(|&&place| model.nodes[place].keeps.is_some());
        if leaves.is_empty() || !there(&0) {
            return None;
        }
        Some(match chance.below(12) {
            0..3 => {
                let a = chance.of(&leaves);
                let peers: Vec<Place> = leaves.iter().copied().filter(|&b| a != b && siblings(model, a, b)).collect();
                if peers.is_empty() { Self::Kill(vec![a]) } else { Self::Link(a, chance.of(&peers)) }
            }
            3..6 => Self::Tell(chance.of(&leaves), chance.of(&[End::Normal, End::Failed, End::Panicked])),
            6..9 => {
                let mut victims: Vec<Place> = (0..1 + chance.below(4)).map(|_| chance.of(&leaves)).collect();
                if !branches.is_empty() && chance.one_in(4) {
                    victims.push(chance.of(&branches));
                }
                victims.sort_unstable();
                victims.dedup();
                if chance.one_in(2) {
                    victims.reverse();
                }
                Self::Kill(victims)
            }
            9 => Self::Stop(chance.of(&nodes)),
            10 if chance.one_in(2) => Self::Remove(chance.of(&nodes)),
            10 => Self::Restart(known(chance, model)),
            _ => {
                let supervisor = if branches.is_empty() || chance.one_in(2) { 0 } else { chance.of(&branches) };
                if model.nodes.len() < 20 { Self::Add(supervisor, chance.policy()) } else { Self::Kill(leaves) }
            }
        })
    }

    fn on_model(&self, model: &mut Model) {
        match *self {
            Self::Begin => model.begin(),
            Self::Link(a, b) => model.link(a, b),
            Self::Kill(ref victims) => victims.iter().for_each(|&victim| model.make_exit(victim, End::Killed)),
            Self::Tell(leaf, end) => model.make_exit(leaf, end),
            Self::Stop(child) => model.stop_by_request(child, false),
            Self::Remove(child) => model.stop_by_request(child, true),
            Self::Restart(child) => model.restart(child),
            Self::Add(supervisor, policy) => model.add(supervisor, policy),
            Self::ShutDown => model.shut_down(),
        }
    }

    fn on_tree(&self, rt: &Runtime, root: Pid, stage: &Stage, model: &Model) {
        let pid = |place: Place| if place == 0 { root } else { rt.whereis(name(place)).expect("it is up") };
        let above = |child: Place| pid(model.nodes[child].parent.unwrap());
        match *self {
            Self::Begin => {}
            Self::Link(a, b) => rt.send(pid(a), Do::LinkTo(pid(b))).unwrap(),
            Self::Kill(ref victims) => victims.iter().for_each(|&victim| rt.kill(pid(victim)).unwrap()),
            Self::Tell(leaf, End::Normal) => rt.send(pid(leaf), Do::End).unwrap(),
            Self::Tell(leaf, End::Panicked) => rt.send(pid(leaf), Do::Panic).unwrap(),
            Self::Tell(leaf, _) => rt.send(pid(leaf), Do::Fail).unwrap(),
            Self::Stop(child) => {
                let stop = |reply| SupervisorMessage::TerminateChild(name(child).into(), reply);
                assert!(rt.block_on(rt.call(above(child), stop)).unwrap());
            }
            Self::Remove(child) => {
                let remove = |reply| SupervisorMessage::DeleteChild(name(child).into(), reply);
                assert!(rt.block_on(rt.call(above(child), remove)).unwrap());
            }
            Self::Restart(child) => {
                let restart = |reply| SupervisorMessage::RestartChild(name(child).into(), reply);
                let _ = rt.block_on(rt.call(above(child), restart));
            }
            Self::Add(supervisor, policy) => {
                let child = stage.child(supervisor, model.nodes.len(), policy, &BTreeSet::new());
                let add = |reply| SupervisorMessage::StartChild(child, reply);
                assert!(rt.block_on(rt.call(pid(supervisor), add)).unwrap().is_ok());
            }
            Self::ShutDown => rt.cancel(root, "enough", HOUR).unwrap(),
        }
    }
}

fn siblings(model: &Model, a: Place, b: Place) -> bool {
    model.nodes[a].parent == model.nodes[b].parent
}

/// Returns a random child of a running supervisor. The child itself is either running or stopped.
fn known(chance: &mut Chance, model: &Model) -> Place {
    let all: Vec<Place> = (1..model.nodes.len())
        .filter(|&place| {
            let node = &model.nodes[place];
            node.life != Life::Gone && node.parent.is_some_and(|above| model.nodes[above].life == Life::Up)
        })
        .collect();
    chance.of(&all)
}

// ---- Comparison of the tree and the model

/// Runs all runnable processes.
fn settle(rt: &Runtime) {
    let quiet = rt.spawn(async |ctx: Context| {
        for _ in 0..400 {
            ctx.yield_now().await;
        }
    });
    rt.block_on(quiet).unwrap();
}

/// The observable state of a tree. The test computes this state both from the model and from the running tree.
#[derive(Debug, PartialEq)]
struct View {
    /// The children of each running supervisor. For each child, the entry contains the name of the child, whether the
    /// child is running, and the number of its restarts.
    families: BTreeMap<Place, Vec<(String, bool, u64)>>,
    logs: BTreeMap<Place, Vec<String>>,
    ends: BTreeMap<Place, Vec<Option<End>>>,
    root: Life,
}

impl View {
    fn of_model(model: &Model) -> Self {
        let mut view =
            Self { families: BTreeMap::new(), logs: BTreeMap::new(), ends: BTreeMap::new(), root: model.nodes[0].life };
        for (place, node) in model.nodes.iter().enumerate() {
            if let Some(keeps) = &node.keeps {
                if !keeps.log.is_empty() {
                    view.logs.insert(place, keeps.log.clone());
                }
                if node.life.is_there() {
                    let child = |&child: &Place| {
                        let node = &model.nodes[child];
                        (name(child).to_owned(), node.life.is_there(), node.restarts)
                    };
                    view.families.insert(place, model.children(place).iter().map(child).collect());
                }
            }
            if !node.ends.is_empty() {
                view.ends.insert(place, node.ends.iter().copied().map(Some).collect());
            }
        }
        view
    }

    fn of_tree(rt: &Runtime, root: &mut Option<JoinHandle<(), SupervisorMessage>>, stage: &Stage) -> Self {
        let life = match root.take_if(|root| root.is_finished()) {
            None => Life::Up,
            Some(root) => match rt.block_on(root).unwrap_err() {
                Exit::Killed => Life::Over(End::Killed),
                Exit::Cancelled(_) => Life::Over(End::Stopped),
                exit if matches!(exit.error(), Some(SupervisorError::RestartIntensityExceeded { .. })) => {
                    Life::Over(End::GaveUp)
                }
                exit => panic!("{exit}"),
            },
        };
        let mut families = BTreeMap::new();
        if let Some(root) = root {
            fill(&mut families, 0, &rt.block_on(rt.supervision_tree(&*root)).unwrap());
        }
        let mut seen = stage.seen();
        let (logs, ends) = (std::mem::take(&mut seen.logs), std::mem::take(&mut seen.downs));
        // A link and a monitor of the same process must report the same exits.
        assert_eq!(ends, std::mem::take(&mut seen.exits));
        Self { families, logs, ends, root: life }
    }

    /// Returns whether this view of the model matches the observed view. If an observed exit is `None`, this entry
    /// matches any exit, because the instance had exited before the watcher set its monitor or link.
    fn is_seen_as(&self, seen: &Self) -> bool {
        let same = |ends: &[Option<End>], seen: &[Option<End>]| {
            ends.len() == seen.len() && ends.iter().zip(seen).all(|(end, seen)| seen.is_none() || end == seen)
        };
        (self.root, &self.families, &self.logs) == (seen.root, &seen.families, &seen.logs)
            && self.ends.keys().eq(seen.ends.keys())
            && self.ends.values().zip(seen.ends.values()).all(|(ends, seen)| same(ends, seen))
    }
}

fn fill(families: &mut BTreeMap<Place, Vec<(String, bool, u64)>>, place: Place, tree: &SupervisionTree) {
    let mut family = Vec::new();
    for child in &tree.children {
        let called = child.name.clone().unwrap();
        assert!(matches!(child.state, ChildState::Running | ChildState::Stopped), "nothing moves any more: {tree}");
        if let Some(below) = &child.below {
            fill(families, usize::from(called.as_bytes()[0] - b'a'), below);
        }
        family.push((called, child.state == ChildState::Running, child.restarts));
    }
    families.insert(place, family);
}

/// Runs random actions on a random tree. Returns two numbers: the number of actions with exactly one possible outcome,
/// and the number of actions with several possible outcomes.
fn play(seed: u64) -> (usize, usize) {
    let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let rt = Runtime::builder().workers(0).build().unwrap();
    let drawn = chance.tree();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let watched = Arc::clone(&seen);
    let watcher = rt.spawn(|ctx| watch(ctx, watched)).pid();
    let stage = Stage { drawn: Arc::new(drawn.clone()), seen, watcher };
    let mut root = Some(rt.spawn_process(stage.supervisor(0)));
    let pid = root.as_ref().unwrap().pid();
    let (mut exact, mut several) = (0, 0);
    let mut possible = BTreeSet::from([drawn]);
    let mut acts = Vec::new();
    let rounds = 4 + chance.below(12);
    for round in 0..=rounds {
        let model = possible.first().unwrap().clone();
        let act = match round {
            0 => Some(Act::Begin),
            _ if round == rounds && model.nodes[0].life == Life::Up => Some(Act::ShutDown),
            _ => Act::draw(&mut chance, &model),
        };
        let Some(act) = act else { break };
        acts.push(act.clone());
        act.on_tree(&rt, pid, &stage, &model);
        settle(&rt);
        let view = View::of_tree(&rt, &mut root, &stage);
        let next: BTreeSet<Model> = std::mem::take(&mut possible)
            .into_iter()
            .flat_map(|mut model| {
                act.on_model(&mut model);
                model.outcomes()
            })
            .collect();
        if next.len() == 1 {
            exact += 1
        } else {
            several += 1
        }
        possible = next.iter().filter(|model| View::of_model(model).is_seen_as(&view)).cloned().collect();
        assert!(
            !possible.is_empty(),
            "seed {seed}\nacts {acts:?}\nbefore {model:#?}\nseen {view:#?}\nof {} that may be, the first: {:#?}",
            next.len(),
            next.first().map(View::of_model)
        );
        possible = possible.into_iter().map(clear_history).collect();
    }
    (exact, several)
}

fn clear_history(mut model: Model) -> Model {
    for node in &mut model.nodes {
        node.ends.clear();
        if let Some(keeps) = &mut node.keeps {
            keeps.log.clear();
        }
    }
    model
}

/// 6.3a, 6.4a, 6.4b, 6.4c, 6.4d, 6.4f, 6.4g: each action on a random tree has an outcome that the model allows. For
/// most actions, the model allows exactly one outcome. The environment variable `PROCESSION_TREES` sets the number of
/// trees. Default: 300.
#[test]
fn random_trees_behave_as_the_model_allows() {
    let seeds = std::env::var("PROCESSION_TREES").map_or(300, |seeds| seeds.parse().unwrap());
    let (mut exact, mut several) = (0, 0);
    for seed in 1..=seeds {
        let counts = within(60, move || play(seed));
        exact += counts.0;
        several += counts.1;
    }
    println!("{exact} acts with one outcome, {several} with several");
    assert!(exact > 2 * several, "{exact} acts with one outcome, {several} with several");
}

//! An executable model of a tree of supervisors. The model consists of a state and of the small steps that change this
//! state. When processes race, several steps are possible, and [`Model::outcomes`] follows all these steps.

use std::collections::{BTreeMap, BTreeSet};

/// Index of a node. A child with a higher index is later in the start order of its supervisor.
pub(super) type Place = usize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Strategy {
    OneForOne,
    OneForAll,
    RestForOne,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Policy {
    Permanent,
    Transient,
    Temporary,
}

/// How an instance ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    Normal,
    Failed,
    Panicked,
    Killed,
    /// The supervisor of the process, or the shutdown, has stopped the process.
    Stopped,
    /// The process is a supervisor that exceeded its restart intensity.
    GaveUp,
}

/// State of a node in its life cycle.
///
/// ```text
///  Down ──▶ (Starting) ──▶ Up ──▶ Told ──▶ Over ──▶ Down, Gone
///                          └──▶ MustExit ──▲
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Life {
    /// The node has no instance.
    Down,
    /// The node is a supervisor, and not all children of the node have started yet.
    Starting,
    Up,
    /// The node is a leaf that was asked to stop. The leaf exits in its next turn.
    Told,
    /// The process must exit for this reason. The next turn of the process is its last turn, and the process does
    /// nothing else in this turn.
    MustExit(End),
    /// The instance has exited, but its supervisor has not processed the exit yet.
    Over(End),
    /// The node is no longer a child of its supervisor.
    Gone,
}

impl Life {
    pub(super) fn is_there(self) -> bool {
        matches!(self, Self::Starting | Self::Up)
    }

    /// Whether the supervisor of the node still counts the node as alive.
    fn lives(self) -> bool {
        !matches!(self, Self::Down | Self::Gone)
    }

    fn has_ended(self) -> bool {
        matches!(self, Self::Down | Self::Over(_) | Self::Gone)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Node {
    pub(super) parent: Option<Place>,
    pub(super) policy: Policy,
    /// State of the node as a supervisor. `None` for a leaf.
    pub(super) keeps: Option<Keeps>,
    /// Each start of this node has a number. This set contains the numbers of the starts that fail.
    pub(super) fails: BTreeSet<u32>,
    /// Whether the node was added while its supervisor ran. When a supervisor is restarted, the supervisor does not
    /// start its added nodes again.
    pub(super) added: bool,
    pub(super) life: Life,
    starts: u32,
    /// Number of restarts of the node by its supervisor.
    pub(super) restarts: u64,
    /// Siblings that are linked with this node.
    links: BTreeSet<Place>,
    /// The exits of the instances of this node, in order.
    pub(super) ends: Vec<End>,
}

impl Node {
    pub(super) fn new(parent: Option<Place>, policy: Policy, keeps: Option<Keeps>) -> Self {
        Self {
            parent,
            policy,
            keeps,
            fails: BTreeSet::new(),
            added: false,
            life: Life::Down,
            starts: 0,
            restarts: 0,
            links: BTreeSet::new(),
            ends: Vec::new(),
        }
    }
}

/// Action of the supervisor after the exit of a child that the supervisor has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Then {
    Stay,
    Start,
    Forget,
}

/// State of a node as a supervisor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Keeps {
    pub(super) strategy: Strategy,
    /// Maximum number of restarts. `used` is the number of restarts so far.
    pub(super) most: u32,
    used: u32,
    /// Children that wait for their start. The children in `turns` start in order: each child starts after the previous
    /// child has started. The children in `due` start in any order.
    turns: BTreeSet<Place>,
    due: BTreeSet<Place>,
    /// Children that must be stopped, from the last to the first. `told` is the child that was asked to stop and whose
    /// exit was not processed yet.
    stops: BTreeMap<Place, Then>,
    told: Option<Place>,
    /// If this field is set, the supervisor exits with this `End` as soon as all its children have exited.
    ending: Option<End>,
    /// Log of the leaves of this supervisor: `+a` means that `a` has started, `?a` means that `a` failed to start, and
    /// `-a` means that `a` was asked to stop.
    pub(super) log: Vec<String>,
}

impl Keeps {
    pub(super) fn new(strategy: Strategy, most: u32) -> Self {
        Self {
            strategy,
            most,
            used: 0,
            turns: BTreeSet::new(),
            due: BTreeSet::new(),
            stops: BTreeMap::new(),
            told: None,
            ending: None,
            log: Vec::new(),
        }
    }
}

/// Name of a node: `a` for the first node, `b` for the second node, and so on.
pub(super) fn name(place: Place) -> &'static str {
    &"abcdefghijklmnopqrstuvwxyz"[place..=place]
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Model {
    /// The first node is the root. A child has a higher index than its supervisor.
    pub(super) nodes: Vec<Node>,
}

impl Model {
    fn keeps(&mut self, supervisor: Place) -> &mut Keeps {
        self.nodes[supervisor].keeps.as_mut().expect("it is a supervisor")
    }

    fn above(&self, child: Place) -> Place {
        self.nodes[child].parent.expect("the root is nobody's child")
    }

    /// Returns the present children of a supervisor.
    pub(super) fn children(&self, supervisor: Place) -> Vec<Place> {
        let is_child = |&place: &Place| {
            let node = &self.nodes[place];
            node.parent == Some(supervisor) && node.life != Life::Gone
        };
        (supervisor + 1..self.nodes.len()).filter(is_child).collect()
    }

    // ---- Actions from outside

    /// Starts the tree.
    pub(super) fn begin(&mut self) {
        self.start(0);
    }

    /// Cancels the root.
    pub(super) fn shut_down(&mut self) {
        self.end(0, End::Stopped);
    }

    /// Links two leaves of one supervisor.
    pub(super) fn link(&mut self, a: Place, b: Place) {
        self.nodes[a].links.insert(b);
        self.nodes[b].links.insert(a);
    }

    /// Makes a process exit for this reason in its next turn, unless the process already must exit for another reason.
    pub(super) fn make_exit(&mut self, place: Place, end: End) {
        let life = &mut self.nodes[place].life;
        if life.is_there() || *life == Life::Told {
            *life = Life::MustExit(end);
        }
    }

    /// Adds a child.
    pub(super) fn add(&mut self, supervisor: Place, policy: Policy) {
        let place = self.nodes.len();
        let mut node = Node::new(Some(supervisor), policy, None);
        node.added = true;
        self.nodes.push(node);
        self.keeps(supervisor).turns.insert(place);
    }

    /// Stops a child by request. If `remove` is set, also removes the child.
    pub(super) fn stop_by_request(&mut self, child: Place, remove: bool) {
        let then = if remove || self.nodes[child].policy == Policy::Temporary { Then::Forget } else { Then::Stay };
        let above = self.above(child);
        if self.nodes[child].life.lives() {
            self.keeps(above).stops.insert(child, then);
        } else if then == Then::Forget {
            self.nodes[child].life = Life::Gone;
        }
    }

    /// Restarts a child by request.
    pub(super) fn restart(&mut self, child: Place) {
        let above = self.above(child);
        if self.nodes[child].life.lives() {
            self.keeps(above).stops.insert(child, Then::Start);
        } else {
            self.keeps(above).turns.insert(child);
        }
    }

    // ---- Steps

    fn log(&mut self, leaf: Place, what: char) {
        let above = self.above(leaf);
        self.keeps(above).log.push(format!("{what}{}", name(leaf)));
    }

    /// Starts a new instance of a node.
    fn start(&mut self, place: Place) {
        let node = &mut self.nodes[place];
        node.starts += 1;
        if let Some(keeps) = &mut node.keeps {
            node.life = Life::Starting;
            *keeps = Keeps { log: std::mem::take(&mut keeps.log), ..Keeps::new(keeps.strategy, keeps.most) };
            // A new instance of a supervisor starts all its original children again, even a child that the previous
            // instance has removed. The new instance does not start a child that was added to the previous instance.
            for child in place + 1..self.nodes.len() {
                let node = &mut self.nodes[child];
                if node.parent == Some(place) {
                    node.restarts = 0;
                    node.life = if node.added { Life::Gone } else { Life::Down };
                    if !node.added {
                        self.keeps(place).turns.insert(child);
                    }
                }
            }
            self.has_started(place);
        } else if node.fails.contains(&node.starts) {
            node.life = Life::Over(End::Failed);
            self.log(place, '?');
        } else {
            node.life = Life::Up;
            self.log(place, '+');
        }
    }

    /// Marks a supervisor as started if none of its children waits in `turns`. Then the parent supervisor can start its
    /// next child.
    fn has_started(&mut self, supervisor: Place) {
        let node = &mut self.nodes[supervisor];
        if node.life == Life::Starting && node.keeps.as_ref().is_some_and(|keeps| keeps.turns.is_empty()) {
            node.life = Life::Up;
            if let Some(above) = node.parent {
                self.keeps(above).turns.remove(&supervisor);
                self.has_started(above);
            }
        }
    }

    /// Makes a supervisor stop all its children and then exit with `end`.
    fn end(&mut self, supervisor: Place, end: End) {
        let living = self.children(supervisor).into_iter().filter(|&child| self.nodes[child].life.lives());
        let stops = living.map(|child| (child, Then::Stay)).collect();
        let keeps = self.keeps(supervisor);
        keeps.ending.get_or_insert(end);
        keeps.stops = stops;
        keeps.turns.clear();
        keeps.due.clear();
    }

    /// Models the last turn of a process that was asked to stop or must exit.
    fn take_last_turn(&mut self, place: Place) {
        let end = match self.nodes[place].life {
            Life::MustExit(end) => end,
            _ => {
                self.log(place, '-');
                End::Stopped
            }
        };
        self.nodes[place].life = Life::Over(end);
        if self.nodes[place].keeps.is_some() {
            // When a supervisor exits, its children are killed.
            self.children(place).into_iter().for_each(|child| self.make_exit(child, End::Killed));
            return;
        }
        self.nodes[place].ends.push(end);
        for peer in std::mem::take(&mut self.nodes[place].links) {
            self.nodes[peer].links.remove(&place);
            if end != End::Normal {
                self.make_exit(peer, end);
            }
        }
    }

    /// Whether an instance has exited. If the instance is a supervisor, all instances below this supervisor must have
    /// exited too.
    fn is_over(&self, place: Place) -> bool {
        self.nodes[place].life.has_ended()
            && (self.nodes[place].keeps.is_none() || self.children(place).into_iter().all(|child| self.is_over(child)))
    }

    /// Simulates how the supervisor handles the exit of a child that the supervisor has stopped.
    fn process_requested_exit(&mut self, child: Place) {
        let above = self.above(child);
        let keeps = self.keeps(above);
        let then = keeps.stops.remove(&child).expect("it was to be stopped");
        keeps.told.take_if(|told| *told == child);
        keeps.turns.remove(&child);
        self.nodes[child].life = if then == Then::Forget { Life::Gone } else { Life::Down };
        if then == Then::Start {
            self.nodes[child].restarts += 1;
            self.keeps(above).turns.insert(child);
        }
    }

    /// Simulates how the supervisor handles the exit of a child that the supervisor has not stopped.
    fn process_exit(&mut self, child: Place, end: End) {
        let above = self.above(child);
        let policy = self.nodes[child].policy;
        let follows = match policy {
            Policy::Permanent => true,
            Policy::Transient => !matches!(end, End::Normal | End::Stopped),
            Policy::Temporary => false,
        };
        self.nodes[child].life = Life::Down;
        if !follows {
            if policy == Policy::Temporary {
                self.nodes[child].life = Life::Gone;
            }
            self.keeps(above).turns.remove(&child);
            self.has_started(above);
            return;
        }
        let keeps = self.keeps(above);
        keeps.used += 1;
        if keeps.used > keeps.most {
            self.end(above, End::GaveUp);
            return;
        }
        let group = match keeps.strategy {
            Strategy::OneForOne if keeps.turns.contains(&child) => None,
            Strategy::OneForOne => {
                keeps.due.insert(child);
                None
            }
            Strategy::OneForAll => Some(0),
            Strategy::RestForOne => Some(child),
        };
        self.nodes[child].restarts += 1;
        let Some(first) = group else { return };
        self.keeps(above).turns.insert(child);
        for other in self.children(above) {
            // If a child was stopped by its policy or by a request, the child stays stopped. If a child still waits for
            // its start, nothing changes for this child.
            if other != child && other >= first && self.nodes[other].life.lives() {
                if self.nodes[other].policy == Policy::Temporary {
                    self.keeps(above).stops.insert(other, Then::Forget);
                } else {
                    self.keeps(above).stops.entry(other).or_insert(Then::Start);
                }
            }
        }
    }

    /// Simulates that the supervisor asks the last child in `stops` to stop.
    fn ask_to_stop(&mut self, supervisor: Place) {
        let keeps = self.keeps(supervisor);
        let (&child, _) = keeps.stops.last_key_value().expect("somebody is to be stopped");
        keeps.told = Some(child);
        match self.nodes[child].life {
            Life::Up if self.nodes[child].keeps.is_none() => self.nodes[child].life = Life::Told,
            Life::Up | Life::Starting => self.end(child, End::Stopped),
            // The child is already about to exit.
            _ => {}
        }
    }

    // ---- Possible paths

    /// Searches for a step that commutes with all other steps, so that the order of this step does not matter. Returns
    /// the state after this step, or `None` if there is no step of this kind.
    fn quiet_step(&self) -> Option<Self> {
        let mut next = self.clone();
        for (place, node) in self.nodes.iter().enumerate() {
            let is_last_turn = matches!(node.life, Life::Told | Life::MustExit(_));
            // A supervisor below this node continues to work until this node has taken its last turn.
            let goes_on = |&child: &Place| self.nodes[child].keeps.is_some() && self.nodes[child].life.is_there();
            if is_last_turn && node.links.is_empty() && !self.children(place).iter().any(goes_on) {
                next.take_last_turn(place);
                return Some(next);
            }
            if let (true, Some(keeps)) = (node.life.is_there(), &node.keeps)
                && let Some(end) = keeps.ending
                && keeps.stops.is_empty()
            {
                next.nodes[place].life = Life::Over(end);
                return Some(next);
            }
            if self.may_be_processed(place)
                && let above = self.above(place)
                && next.keeps(above).stops.contains_key(&place)
            {
                next.process_requested_exit(place);
                return Some(next);
            }
        }
        None
    }

    /// Whether the supervisor of a node may handle the exit of this node.
    fn may_be_processed(&self, place: Place) -> bool {
        let node = &self.nodes[place];
        let is_over = matches!(node.life, Life::Over(_)) && self.is_over(place);
        is_over && node.parent.is_some_and(|above| self.nodes[above].life.is_there())
    }

    /// Returns all states that can be reached in one step.
    fn steps(&self) -> Vec<Self> {
        if let Some(next) = self.quiet_step() {
            return vec![next];
        }
        let mut next = Vec::new();
        let mut step = |how: &dyn Fn(&mut Self)| {
            let mut state = self.clone();
            how(&mut state);
            next.push(state);
        };
        for (place, node) in self.nodes.iter().enumerate() {
            match node.life {
                Life::Told | Life::MustExit(_) => step(&|state| state.take_last_turn(place)),
                Life::Over(end) if self.may_be_processed(place) => step(&|state| state.process_exit(place, end)),
                _ => {}
            }
            let (true, Some(keeps)) = (node.life.is_there(), &node.keeps) else { continue };
            if !keeps.stops.is_empty() {
                if keeps.told.is_none() {
                    step(&|state| state.ask_to_stop(place));
                }
                continue;
            }
            let in_turn = keeps.turns.first().copied().filter(|&first| self.nodes[first].life == Life::Down);
            for child in in_turn.into_iter().chain(keeps.due.iter().copied()) {
                step(&|state| {
                    state.keeps(place).due.remove(&child);
                    state.start(child);
                    if state.nodes[child].life == Life::Up {
                        state.keeps(place).turns.remove(&child);
                        state.has_started(place);
                    }
                });
            }
        }
        next
    }

    /// Follows all paths from this state. Returns every final state: a state without a next step.
    pub(super) fn outcomes(self) -> BTreeSet<Self> {
        let (mut seen, mut ends, mut open) = (BTreeSet::new(), BTreeSet::new(), vec![self]);
        while let Some(state) = open.pop() {
            let next = state.steps();
            if next.is_empty() {
                ends.insert(state);
                continue;
            }
            open.extend(next.into_iter().filter(|state| seen.insert(state.clone())));
        }
        ends
    }
}

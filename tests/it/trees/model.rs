//! What a tree of supervisors does, as an executable model: a plain state, and the small steps that it can take. Where
//! processes race it can take several, and [`Model::outcomes`] follows them all.

use std::collections::{BTreeMap, BTreeSet};

/// A node of a tree, by its place; of two children of one supervisor the one with the higher place comes later.
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

/// How a life was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    Normal,
    Failed,
    Panicked,
    Killed,
    /// It was told to end.
    Stopped,
    /// A supervisor that had to restart too often.
    GaveUp,
}

/// Where a node is in its life.
///
/// ```text
///  Down ──▶ (Starting) ──▶ Up ──▶ Told ──▶ Over ──▶ Down, Gone
///                          └──▶ Condemned ──▲
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Life {
    /// It has none.
    Down,
    /// A supervisor whose children have not all started yet.
    Starting,
    Up,
    /// A leaf that was told to end, and will in a turn of its own.
    Told,
    /// It will die of this in a turn of its own, and do nothing else.
    Condemned(End),
    /// It has ended, and its supervisor has not heard yet.
    Over(End),
    /// It is no child any more.
    Gone,
}

impl Life {
    pub(super) fn is_there(self) -> bool {
        matches!(self, Self::Starting | Self::Up)
    }

    /// As far as its supervisor has heard.
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
    /// Of a supervisor; others are leaves.
    pub(super) keeps: Option<Keeps>,
    /// Which of its starts fail.
    pub(super) fails: BTreeSet<u32>,
    /// Was added while its supervisor ran, which therefore forgets it when it begins anew.
    pub(super) added: bool,
    pub(super) life: Life,
    starts: u32,
    /// How often its supervisor has begun another life of it.
    pub(super) restarts: u64,
    /// To siblings.
    links: BTreeSet<Place>,
    /// How its lives were over, in order.
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

/// What becomes of a child that was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Then {
    Stay,
    Start,
    Forget,
}

/// What makes a node a supervisor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Keeps {
    pub(super) strategy: Strategy,
    /// How many restarts are allowed, and how many were.
    pub(super) most: u32,
    used: u32,
    /// Who begins in turn, each when the one before has started; and who begins whatever the others do.
    turns: BTreeSet<Place>,
    due: BTreeSet<Place>,
    /// Who is to be stopped, from the last to the first; and who was told, and has not ended yet.
    stops: BTreeMap<Place, Then>,
    told: Option<Place>,
    /// It ends so when all its children have.
    ending: Option<End>,
    /// What its leaves told: `+a` began, `?a` failed to, `-a` was told to stop.
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

/// What is called so: `a` for the first, and so on.
pub(super) fn name(place: Place) -> &'static str {
    &"abcdefghijklmnopqrstuvwxyz"[place..=place]
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Model {
    /// The first is the root; whoever is kept stands after its supervisor.
    pub(super) nodes: Vec<Node>,
}

impl Model {
    fn keeps(&mut self, supervisor: Place) -> &mut Keeps {
        self.nodes[supervisor].keeps.as_mut().expect("it is a supervisor")
    }

    fn above(&self, child: Place) -> Place {
        self.nodes[child].parent.expect("the root is nobody's child")
    }

    /// Who is kept by it now.
    pub(super) fn children(&self, supervisor: Place) -> Vec<Place> {
        let is_child = |&place: &Place| {
            let node = &self.nodes[place];
            node.parent == Some(supervisor) && node.life != Life::Gone
        };
        (supervisor + 1..self.nodes.len()).filter(is_child).collect()
    }

    // ---- What is done to it

    /// Somebody begins the tree.
    pub(super) fn begin(&mut self) {
        self.start(0);
    }

    /// Somebody ends it.
    pub(super) fn shut_down(&mut self) {
        self.end(0, End::Stopped);
    }

    /// Two leaves of one supervisor are linked.
    pub(super) fn link(&mut self, a: Place, b: Place) {
        self.nodes[a].links.insert(b);
        self.nodes[b].links.insert(a);
    }

    /// It will die of this, if not of something else.
    pub(super) fn condemn(&mut self, place: Place, end: End) {
        let life = &mut self.nodes[place].life;
        if life.is_there() || *life == Life::Told {
            *life = Life::Condemned(end);
        }
    }

    /// One more child.
    pub(super) fn add(&mut self, supervisor: Place, policy: Policy) {
        let place = self.nodes.len();
        let mut node = Node::new(Some(supervisor), policy, None);
        node.added = true;
        self.nodes.push(node);
        self.keeps(supervisor).turns.insert(place);
    }

    /// A child is stopped by hand, and removed if that is said.
    pub(super) fn put_down(&mut self, child: Place, remove: bool) {
        let then = if remove || self.nodes[child].policy == Policy::Temporary { Then::Forget } else { Then::Stay };
        let above = self.above(child);
        if self.nodes[child].life.lives() {
            self.keeps(above).stops.insert(child, then);
        } else if then == Then::Forget {
            self.nodes[child].life = Life::Gone;
        }
    }

    /// A child is begun anew by hand.
    pub(super) fn restart(&mut self, child: Place) {
        let above = self.above(child);
        if self.nodes[child].life.lives() {
            self.keeps(above).stops.insert(child, Then::Start);
        } else {
            self.keeps(above).turns.insert(child);
        }
    }

    // ---- What it does

    fn log(&mut self, leaf: Place, what: char) {
        let above = self.above(leaf);
        self.keeps(above).log.push(format!("{what}{}", name(leaf)));
    }

    /// Begins a life.
    fn start(&mut self, place: Place) {
        let node = &mut self.nodes[place];
        node.starts += 1;
        if let Some(keeps) = &mut node.keeps {
            node.life = Life::Starting;
            *keeps = Keeps { log: std::mem::take(&mut keeps.log), ..Keeps::new(keeps.strategy, keeps.most) };
            // Also those that were forgotten in its life before; not those that were added in it.
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

    /// A supervisor has started when nobody waits for a turn there, and so its own turn is over.
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

    /// A supervisor is to end all that it keeps, and then so.
    fn end(&mut self, supervisor: Place, end: End) {
        let living = self.children(supervisor).into_iter().filter(|&child| self.nodes[child].life.lives());
        let stops = living.map(|child| (child, Then::Stay)).collect();
        let keeps = self.keeps(supervisor);
        keeps.ending.get_or_insert(end);
        keeps.stops = stops;
        keeps.turns.clear();
        keeps.due.clear();
    }

    /// The turn of one that was told to end or is condemned.
    fn take_last_turn(&mut self, place: Place) {
        let end = match self.nodes[place].life {
            Life::Condemned(end) => end,
            _ => {
                self.log(place, '-');
                End::Stopped
            }
        };
        self.nodes[place].life = Life::Over(end);
        if self.nodes[place].keeps.is_some() {
            // What it keeps does not outlive it.
            self.children(place).into_iter().for_each(|child| self.condemn(child, End::Killed));
            return;
        }
        self.nodes[place].ends.push(end);
        for peer in std::mem::take(&mut self.nodes[place].links) {
            self.nodes[peer].links.remove(&place);
            if end != End::Normal {
                self.condemn(peer, end);
            }
        }
    }

    /// Whether nothing is left of a life: of a supervisor's, when nobody lives below.
    fn is_over(&self, place: Place) -> bool {
        self.nodes[place].life.has_ended()
            && (self.nodes[place].keeps.is_none() || self.children(place).into_iter().all(|child| self.is_over(child)))
    }

    /// A supervisor hears that a life is over which it has ended itself.
    fn hear_of_stopped(&mut self, child: Place) {
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

    /// A supervisor hears that a life is over, of itself.
    fn hear(&mut self, child: Place, end: End) {
        let above = self.above(child);
        let policy = self.nodes[child].policy;
        let follows = match policy {
            Policy::Permanent => true,
            Policy::Transient => end != End::Normal,
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
            // Whoever is down, by its policy or by hand, stays so; whoever waits for its turn waits.
            if other != child && other >= first && self.nodes[other].life.lives() {
                if self.nodes[other].policy == Policy::Temporary {
                    self.keeps(above).stops.insert(other, Then::Forget);
                } else {
                    self.keeps(above).stops.entry(other).or_insert(Then::Start);
                }
            }
        }
    }

    /// A supervisor tells the last of those that are to be stopped.
    fn tell(&mut self, supervisor: Place) {
        let keeps = self.keeps(supervisor);
        let (&child, _) = keeps.stops.last_key_value().expect("somebody is to be stopped");
        keeps.told = Some(child);
        match self.nodes[child].life {
            Life::Up if self.nodes[child].keeps.is_none() => self.nodes[child].life = Life::Told,
            Life::Up | Life::Starting => self.end(child, End::Stopped),
            // It is about to end anyway.
            _ => {}
        }
    }

    // ---- Which ways there are

    /// A step that does the same whether it comes sooner or later than all others, if there is one.
    fn quiet_step(&self) -> Option<Self> {
        let mut next = self.clone();
        for (place, node) in self.nodes.iter().enumerate() {
            let is_last_turn = matches!(node.life, Life::Told | Life::Condemned(_));
            // As long as it has not come, a supervisor below goes on as before.
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
            if self.is_heard(place)
                && let above = self.above(place)
                && next.keeps(above).stops.contains_key(&place)
            {
                next.hear_of_stopped(place);
                return Some(next);
            }
        }
        None
    }

    /// Whether its supervisor may hear that its life is over.
    fn is_heard(&self, place: Place) -> bool {
        let node = &self.nodes[place];
        let is_over = matches!(node.life, Life::Over(_)) && self.is_over(place);
        is_over && node.parent.is_some_and(|above| self.nodes[above].life.is_there())
    }

    /// All the states that are one step from here.
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
                Life::Told | Life::Condemned(_) => step(&|state| state.take_last_turn(place)),
                Life::Over(end) if self.is_heard(place) => step(&|state| state.hear(place, end)),
                _ => {}
            }
            let (true, Some(keeps)) = (node.life.is_there(), &node.keeps) else { continue };
            if !keeps.stops.is_empty() {
                if keeps.told.is_none() {
                    step(&|state| state.tell(place));
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

    /// Every state in which nothing is left to do, by whatever way from here.
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

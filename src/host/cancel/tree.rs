//! The tree of cancel tokens: what each has below it, and who tells whom when one is cancelled.
//!
//! A node that is cancelled is first closed, then what lies below it, and so on down; whoever comes below a closed node is
//! told at once by whoever brings it there, under whose lock both that and the closing happen: so nobody is missed, and
//! nobody told twice by one node. Then all that was found is told from below upwards, the newest first. A node is closed by
//! one canceller alone, who tells all that is directly below it; what another closed that one tells.
//!
//! Nothing is told, woken or dropped under the lock of a node, and no node is locked while another one is.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::platform::sync::{Arc, Event, Mutex, Weak, planted};
use crate::process::exit::Reason;
use crate::process::state as counted;
use crate::process::state::Ref;

/// Who can be told.
pub(crate) trait Subject: Send + Sync + 'static {
    /// Of several causes the first counts. It tells nobody, and does not panic.
    fn tell(this: &Ref<Self>, cause: &Cause);
}

/// Why somebody is cancelled, and how long after that he is killed.
#[derive(Debug, Clone)]
pub(crate) struct Cause {
    pub(crate) reason: Reason,
    pub(crate) grace: Duration,
}

/// One token. A child keeps its parent, which knows it weakly: what is above can't be lost, what is below may go.
#[derive(Debug)]
pub(crate) struct Node<E: ?Sized> {
    /// And its number there.
    parent: Option<(Arc<Self>, u64)>,
    state: Mutex<State<E>>,
    /// Told when it is over.
    news: Event,
}

/// What is below has a number each, in the order in which it came.
#[derive(Debug)]
struct State<E: ?Sized> {
    next: u64,
    nodes: BTreeMap<u64, Weak<Node<E>>>,
    subjects: BTreeMap<u64, counted::Weak<E>>,
    /// Set when it is closed.
    cause: Option<Cause>,
    /// Set when all that was below it then has been told.
    over: bool,
}

/// What was directly below a node when it was closed, in the order in which it came.
struct Below<E: ?Sized> {
    nodes: Vec<Arc<Node<E>>>,
    subjects: Vec<Ref<E>>,
}

impl<E: Subject + ?Sized> Node<E> {
    fn new(parent: Option<(Arc<Self>, u64)>, cause: Option<Cause>) -> Arc<Self> {
        let over = cause.is_some();
        let state = State { next: 0, nodes: BTreeMap::new(), subjects: BTreeMap::new(), cause, over };
        Arc::new(Self { parent, state: Mutex::new(state), news: Event::new() })
    }

    /// One that has nothing above it.
    pub(crate) fn root() -> Arc<Self> {
        Self::new(None, None)
    }

    /// One below this one; of a closed one, a closed one.
    pub(crate) fn child(self: &Arc<Self>) -> Arc<Self> {
        let entered = self.enter(|state, number| {
            let child = Self::new(Some((Arc::clone(self), number)), None);
            state.nodes.insert(number, Arc::downgrade(&child));
            child
        });
        entered.unwrap_or_else(|cause| Self::new(None, Some(cause)))
    }

    /// Has somebody told with this node, and says by which number to [`release`](Self::release) him. Nobody is to be
    /// released from a closed one: he has been told.
    pub(crate) fn adopt(&self, subject: &Ref<E>) -> Option<u64> {
        let entered = self.enter(|state, number| {
            state.subjects.insert(number, Ref::downgrade(subject));
            number
        });
        entered.map_err(|cause| E::tell(subject, &cause)).ok()
    }

    /// Lets something in below, under a number of its own, unless it is closed.
    fn enter<T>(&self, insert: impl FnOnce(&mut State<E>, u64) -> T) -> Result<T, Cause> {
        let mut state = self.state.lock();
        if let Some(cause) = &state.cause {
            return Err(cause.clone());
        }
        if planted!("cancel_enter_unlocks") {
            drop(state);
            state = self.state.lock();
        }
        state.next += 1;
        let number = state.next;
        Ok(insert(&mut state, number))
    }

    /// Forgets somebody who was adopted.
    pub(crate) fn release(&self, number: u64) {
        self.state.lock().subjects.remove(&number);
    }

    /// Closes this and all below, and tells whom that concerns. False if it was closed before.
    pub(crate) fn cancel(self: &Arc<Self>, cause: &Cause) -> bool {
        let (mut closed, mut next) = (Vec::new(), vec![Arc::clone(self)]);
        while let Some(node) = next.pop() {
            if let Some(Below { nodes, subjects }) = node.close(cause) {
                next.extend(nodes.into_iter().rev());
                closed.push((node, subjects));
            }
        }
        let first = !closed.is_empty();
        // What is above was closed before what is below, and of neighbours the oldest first.
        if planted!("cancel_tells_from_above") {
            closed.reverse();
        }
        while let Some((node, subjects)) = closed.pop() {
            subjects.iter().rev().for_each(|subject| E::tell(subject, cause));
            node.state.lock().over = true;
            node.news.notify(usize::MAX);
        }
        first
    }

    /// Lets nobody in any more, and says who is there. `None` if it was closed before.
    fn close(&self, cause: &Cause) -> Option<Below<E>> {
        let mut state = self.state.lock();
        if state.cause.is_some() {
            return None;
        }
        state.cause = Some(cause.clone());
        let nodes = state.nodes.values().filter_map(Weak::upgrade).collect();
        let subjects = std::mem::take(&mut state.subjects).into_values().filter_map(|subject| subject.upgrade());
        Some(Below { nodes, subjects: subjects.collect() })
    }

    /// Why it is closed, if it is, whether or not all have been told.
    pub(crate) fn cause(&self) -> Option<Cause> {
        self.state.lock().cause.clone()
    }

    /// Why it is closed, if all have been told.
    pub(crate) fn reason(&self) -> Option<Reason> {
        let state = self.state.lock();
        state.cause.as_ref().filter(|_| state.over).map(|cause| cause.reason.clone())
    }

    /// Told when there is a [`reason`](Self::reason).
    pub(crate) fn news(&self) -> &Event {
        &self.news
    }

    /// How many nodes and how many subjects are directly below.
    pub(crate) fn count(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.nodes.len(), state.subjects.len())
    }
}

impl<E: ?Sized> Node<E> {
    /// Its parent does not know it any more.
    fn leave(&mut self) -> Option<Arc<Self>> {
        let (parent, number) = self.parent.take()?;
        parent.state.lock().nodes.remove(&number);
        Some(parent)
    }
}

impl<E: ?Sized> Drop for Node<E> {
    fn drop(&mut self) {
        // Parents that nobody else holds go one after another: chains may be long.
        let mut above = self.leave();
        while let Some(mut parent) = above.and_then(Arc::into_inner) {
            above = parent.leave();
        }
    }
}

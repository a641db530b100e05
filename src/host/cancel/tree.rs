//! The tree of cancel tokens: the children and subjects of each node, and the order in which a cancellation notifies
//! them.
//!
//! A cancellation first closes its node and then the descendants of the node, parents before children. If a thread adds
//! a subject to a closed node, this thread notifies the subject. A child that is added to a closed node is created
//! closed. Adding and closing both happen under the lock of the node. Therefore a node notifies each of its subjects
//! exactly once. After all nodes are closed, the canceller notifies the subjects from the leaves to the root. Within a
//! node, the canceller notifies newer subjects before older subjects. Each node is closed by exactly one canceller, and
//! this canceller notifies the subjects directly below the node.
//!
//! No subject is notified, no waker is called and no value is dropped under the lock of a node. No thread holds the
//! locks of two nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::platform::sync::{Arc, Event, Mutex, Weak, planted};
use crate::process::exit::Reason;
use crate::process::state as counted;
use crate::process::state::Ref;

/// A process that a node can notify.
pub(crate) trait Subject: Send + Sync + 'static {
    /// Notifies the subject. If a subject is notified with several causes, the subject keeps the first cause. The
    /// function notifies no other subject, and does not panic.
    fn tell(this: &Ref<Self>, cause: &Cause);
}

/// Reason of a cancellation, and the grace period before the kill.
#[derive(Debug, Clone)]
pub(crate) struct Cause {
    pub(crate) reason: Reason,
    pub(crate) grace: Duration,
}

/// Node of one cancel token. A child holds a strong reference to its parent, and the parent holds a weak reference to
/// the child. Therefore a child keeps its ancestors alive, and a parent does not keep its children alive.
#[derive(Debug)]
pub(crate) struct Node<E: ?Sized> {
    /// The parent, and the number of this node among the children and subjects of the parent.
    parent: Option<(Arc<Self>, u64)>,
    state: Mutex<State<E>>,
    /// Event that is notified when [`State::over`] is set.
    news: Event,
}

/// State of a node. Children and subjects are numbered in the order of their registration.
#[derive(Debug)]
struct State<E: ?Sized> {
    next: u64,
    nodes: BTreeMap<u64, Weak<Node<E>>>,
    subjects: BTreeMap<u64, counted::Weak<E>>,
    /// Set when the node is closed.
    cause: Option<Cause>,
    /// Whether the canceller that closed this node has notified the subjects of the node. The canceller first notifies
    /// the subjects of all descendants that it has closed itself, and then the subjects of this node. If a node is
    /// created closed, this field is true from the beginning.
    over: bool,
}

/// Children and subjects of a node at the time when the node was closed, in the order of their registration.
struct Registered<E: ?Sized> {
    nodes: Vec<Arc<Node<E>>>,
    subjects: Vec<Ref<E>>,
}

impl<E: Subject + ?Sized> Node<E> {
    fn new(parent: Option<(Arc<Self>, u64)>, cause: Option<Cause>) -> Arc<Self> {
        let over = cause.is_some();
        let state = State { next: 0, nodes: BTreeMap::new(), subjects: BTreeMap::new(), cause, over };
        Arc::new(Self { parent, state: Mutex::new(state), news: Event::new() })
    }

    /// Creates a node without a parent.
    pub(crate) fn root() -> Arc<Self> {
        Self::new(None, None)
    }

    /// Creates a child node. If this node is closed, the child is created closed.
    pub(crate) fn child(self: &Arc<Self>) -> Arc<Self> {
        let entered = self.enter(|state, number| {
            let child = Self::new(Some((Arc::clone(self), number)), None);
            state.nodes.insert(number, Arc::downgrade(&child));
            child
        });
        entered.unwrap_or_else(|cause| Self::new(None, Some(cause)))
    }

    /// Registers a subject. Returns the number with which [`release`](Self::release) removes the subject. If the node
    /// is closed, this function notifies the subject immediately and returns `None`, because no subject was registered.
    pub(crate) fn adopt(&self, subject: &Ref<E>) -> Option<u64> {
        let entered = self.enter(|state, number| {
            state.subjects.insert(number, Ref::downgrade(subject));
            number
        });
        entered.map_err(|cause| E::tell(subject, &cause)).ok()
    }

    /// Inserts a child or subject under a new number, unless the node is closed.
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

    /// Removes a registered subject.
    pub(crate) fn release(&self, number: u64) {
        self.state.lock().subjects.remove(&number);
    }

    /// Closes this node and all nodes below it, and notifies their subjects. Returns false if this node was closed
    /// before.
    pub(crate) fn cancel(self: &Arc<Self>, cause: &Cause) -> bool {
        let (mut closed, mut next) = (Vec::new(), vec![Arc::clone(self)]);
        while let Some(node) = next.pop() {
            if let Some(Registered { nodes, subjects }) = node.close(cause) {
                next.extend(nodes.into_iter().rev());
                closed.push((node, subjects));
            }
        }
        let first = !closed.is_empty();
        // `closed` is in preorder: each node comes before its descendants, and older siblings come before newer
        // siblings. The loop pops nodes from the end of `closed`. Therefore the loop notifies descendants before their
        // ancestors, and newer siblings before older siblings.
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

    /// Closes the node, and returns its children and subjects. Returns `None` if the node was closed before.
    fn close(&self, cause: &Cause) -> Option<Registered<E>> {
        let mut state = self.state.lock();
        if state.cause.is_some() {
            return None;
        }
        state.cause = Some(cause.clone());
        let nodes = state.nodes.values().filter_map(Weak::upgrade).collect();
        let subjects = std::mem::take(&mut state.subjects).into_values().filter_map(|subject| subject.upgrade());
        Some(Registered { nodes, subjects: subjects.collect() })
    }

    /// Cause of the cancellation if the node is closed. Some subjects of the node may not have been notified yet.
    pub(crate) fn cause(&self) -> Option<Cause> {
        self.state.lock().cause.clone()
    }

    /// Reason of the cancellation, if the node is closed and `over` is set.
    pub(crate) fn reason(&self) -> Option<Reason> {
        let state = self.state.lock();
        state.cause.as_ref().filter(|_| state.over).map(|cause| cause.reason.clone())
    }

    /// Event that is notified when the [`reason`](Self::reason) becomes available.
    pub(crate) fn news(&self) -> &Event {
        &self.news
    }

    /// Number of child nodes and of subjects directly below this node.
    pub(crate) fn count(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.nodes.len(), state.subjects.len())
    }
}

impl<E: ?Sized> Node<E> {
    /// Removes this node from its parent, and returns the parent.
    fn leave(&mut self) -> Option<Arc<Self>> {
        let (parent, number) = self.parent.take()?;
        parent.state.lock().nodes.remove(&number);
        Some(parent)
    }
}

impl<E: ?Sized> Drop for Node<E> {
    fn drop(&mut self) {
        // If no other reference to the parent exists, this loop frees the parent. A recursive drop could overflow the
        // stack, because a chain of parents may be long.
        let mut above = self.leave();
        while let Some(mut parent) = above.and_then(Arc::into_inner) {
            above = parent.leave();
        }
    }
}

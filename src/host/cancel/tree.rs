//! The tree of cancel tokens. Each token is a node with child nodes and subjects. A subject is a process that a
//! cancellation notifies. This module defines the order of the notifications.
//!
//! A canceller is a thread that cancels a node. The canceller first closes the node, and then closes the descendants of
//! the node, parents before children. If a thread adds a subject to a closed node, this thread notifies the subject. If
//! a thread adds a child to a closed node, the child is created closed. A thread holds the lock of the node while it
//! adds to the node or closes the node. Therefore each subject of a node is notified exactly once.
//!
//! After all nodes are closed, the canceller notifies the subjects from the leaves to the root. Within a node, the
//! canceller notifies newer subjects before older subjects. Exactly one canceller closes each node. This canceller
//! notifies the subjects directly below the node.
//!
//! While a thread holds the lock of a node, the thread notifies no subject, calls no waker and drops no value. No
//! thread holds the locks of two nodes at the same time.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::platform::sync::{Arc, Event, Mutex, Weak, planted};
use crate::process::catch::notify;
use crate::process::exit::Reason;
use crate::process::state as counted;
use crate::process::state::Ref;

/// A process that a node of the tree can notify of a cancellation.
pub(crate) trait Subject: Send + Sync + 'static {
    /// Notifies a subject of a cancellation. If a subject is notified several times, the subject keeps the first cause.
    /// This function must not notify another subject, and must not panic.
    fn tell(this: &Ref<Self>, cause: &Cause);
}

/// Reason of a cancellation, and the time between the cancellation and the kill.
#[derive(Debug, Clone)]
pub(crate) struct Cause {
    pub(crate) reason: Reason,
    pub(crate) grace: Duration,
}

/// Node of one cancel token. A child holds a strong reference to its parent, and the parent holds a weak reference to
/// the child. Therefore a child keeps its ancestors alive, and a parent does not keep its children alive.
#[derive(Debug)]
pub(crate) struct Node<E: ?Sized> {
    /// The parent node, and the number under which the parent has registered this node.
    parent: Option<(Arc<Self>, u64)>,
    state: Mutex<State<E>>,
    /// Event that the canceller notifies after it has set [`State::over`].
    news: Event,
}

/// State of a node. Each registered child and each registered subject has a number. The numbers increase in the order
/// of the registrations.
#[derive(Debug)]
struct State<E: ?Sized> {
    next: u64,
    nodes: BTreeMap<u64, Weak<Node<E>>>,
    subjects: BTreeMap<u64, counted::Weak<E>>,
    /// Cause of the cancellation. This field is set when the node is closed.
    cause: Option<Cause>,
    /// Whether the canceller that closed this node has notified the subjects of the node. Before these subjects, the
    /// canceller notifies the subjects of all descendants that it has closed. If a node is created closed, this field
    /// is true from the beginning.
    over: bool,
}

/// The children and subjects that a node had when the node was closed. The lists have the order of the registrations.
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

    /// Creates a child node. If this node is closed, the child node is created closed and has no parent.
    pub(crate) fn child(self: &Arc<Self>) -> Arc<Self> {
        let entered = self.enter(|state, number| {
            let child = Self::new(Some((Arc::clone(self), number)), None);
            state.nodes.insert(number, Arc::downgrade(&child));
            child
        });
        entered.unwrap_or_else(|cause| Self::new(None, Some(cause)))
    }

    /// Registers a subject. Returns the number with which [`release`](Self::release) removes the subject. If the node
    /// is closed, this function notifies the subject immediately. In this case the function registers no subject and
    /// returns `None`.
    pub(crate) fn adopt(&self, subject: &Ref<E>) -> Option<u64> {
        let entered = self.enter(|state, number| {
            state.subjects.insert(number, Ref::downgrade(subject));
            number
        });
        entered.map_err(|cause| E::tell(subject, &cause)).ok()
    }

    /// Inserts a child or a subject under a new number. If the node is closed, this function inserts nothing and
    /// returns the cause.
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

    /// Closes this node and all its descendants, and notifies the subjects of these nodes. Returns false if this node
    /// was closed before.
    pub(crate) fn cancel(self: &Arc<Self>, cause: &Cause) -> bool {
        let (mut closed, mut next) = (Vec::new(), vec![Arc::clone(self)]);
        while let Some(node) = next.pop() {
            if let Some(Registered { nodes, subjects }) = node.close(cause) {
                next.extend(nodes.into_iter().rev());
                closed.push((node, subjects));
            }
        }
        let first = !closed.is_empty();
        // The list `closed` is in preorder. A node comes before its descendants, and an older sibling comes before a
        // newer sibling. The loop below takes nodes from the end of `closed`. Therefore this loop notifies descendants
        // before ancestors, and newer siblings before older siblings.
        if planted!("cancel_tells_from_above") {
            closed.reverse();
        }
        while let Some((node, subjects)) = closed.pop() {
            subjects.iter().rev().for_each(|subject| E::tell(subject, cause));
            node.state.lock().over = true;
            notify(&node.news);
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

    /// Returns the cause of the cancellation, if the node is closed. Some subjects of the node may not have been
    /// notified yet.
    pub(crate) fn cause(&self) -> Option<Cause> {
        self.state.lock().cause.clone()
    }

    /// Returns the reason of the cancellation, if the node is closed and its subjects were notified.
    pub(crate) fn reason(&self) -> Option<Reason> {
        let state = self.state.lock();
        state.cause.as_ref().filter(|_| state.over).map(|cause| cause.reason.clone())
    }

    /// Returns the event that is notified when the [`reason`](Self::reason) becomes available.
    pub(crate) fn news(&self) -> &Event {
        &self.news
    }

    /// Returns the number of child nodes and the number of subjects directly below this node.
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
        // A chain of ancestors may be long, and a recursive drop could overflow the stack. Therefore this loop frees
        // each ancestor that has no other reference.
        let mut above = self.leave();
        while let Some(mut parent) = above.and_then(Arc::into_inner) {
            above = parent.leave();
        }
    }
}

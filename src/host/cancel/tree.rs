//! The tree of cancel tokens. Each token is a node. A node has child nodes and registered processes. In the code, a
//! registered process is called a *subject*. This module defines the order in which a cancellation notifies the
//! registered processes.
//!
//! To cancel a node, a thread first closes the node, and then closes the descendants of the node, parents before
//! children. If a thread registers a process with a closed node, this thread notifies the process immediately. If a
//! thread adds a child to a closed node, the child is created closed. To close a node, register a process or add a
//! child, a thread takes the lock of the node. Therefore each process that registers with a node is notified exactly
//! once.
//!
//! After all nodes are closed, the cancelling thread notifies the processes from the leaves to the root. Within a node,
//! the thread notifies newer processes before older processes. If several threads cancel nodes of one tree, each node
//! is closed by exactly one of these threads. The thread that closes a node also notifies the processes that are
//! registered with the node.
//!
//! While a thread holds the lock of a node, the thread notifies no process, calls no waker and drops no value. No
//! thread holds the locks of two nodes at the same time.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::platform::sync::{Arc, Event, Mutex, Weak, planted};
use crate::process::catch::{delay_wakers, notify};
use crate::process::exit::Reason;
use crate::process::state as counted;
use crate::process::state::Ref;

/// A process that can register with a node of the tree.
pub(crate) trait Subject: Send + Sync + 'static {
    /// Notifies the process of a cancellation. If the process is notified several times, the process keeps the first
    /// cause. This function must not notify another process, and must not panic.
    fn notify(this: &Ref<Self>, cause: &Cause);
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
    /// This event wakes its waiters after [`State::over`] was set.
    news: Event,
}

/// State of a node. Each registered child and each registered process has a number. The numbers increase in the order
/// of the registrations.
#[derive(Debug)]
struct State<E: ?Sized> {
    next: u64,
    nodes: BTreeMap<u64, Weak<Node<E>>>,
    subjects: BTreeMap<u64, counted::Weak<E>>,
    /// Cause of the cancellation. This field is set when the node is closed.
    cause: Option<Cause>,
    /// Whether the processes of this node have been notified. The thread that closed this node sets this field.
    /// Before the thread sets this field, the thread has also notified the processes of all descendants that this
    /// thread has closed. If a node is created closed, this field is true from the beginning.
    over: bool,
}

/// The children and processes of a node at the time when the node was closed, in the order of their registration.
struct ChildrenAndSubjects<E: ?Sized> {
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

    /// Registers a process. Returns the number with which [`release`](Self::release) removes the process. If the node
    /// is closed, this function notifies the process immediately. In this case the function does not register the
    /// process, and returns `None`.
    pub(crate) fn adopt(&self, subject: &Ref<E>) -> Option<u64> {
        let entered = self.enter(|state, number| {
            state.subjects.insert(number, Ref::downgrade(subject));
            number
        });
        entered.map_err(|cause| E::notify(subject, &cause)).ok()
    }

    /// Inserts a child or a process under a new number. If the node is closed, this function inserts nothing and
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

    /// Removes a registered process.
    pub(crate) fn release(&self, number: u64) {
        self.state.lock().subjects.remove(&number);
    }

    /// Closes this node and all its descendants, and notifies the processes of these nodes. Returns false if this
    /// node was already closed.
    pub(crate) fn cancel(self: &Arc<Self>, cause: &Cause) -> bool {
        let (mut closed, mut next) = (Vec::new(), vec![Arc::clone(self)]);
        while let Some(node) = next.pop() {
            if let Some(ChildrenAndSubjects { nodes, subjects }) = node.close(cause) {
                next.extend(nodes.into_iter().rev());
                closed.push((node, subjects));
            }
        }
        let first = !closed.is_empty();
        // The list `closed` is in preorder. In this list, a node comes before its descendants, and an older sibling
        // comes before a newer sibling. The loop below takes nodes from the end of `closed`. Therefore this loop
        // notifies descendants before ancestors, and newer siblings before older siblings.
        if planted!("cancel_notifies_in_preorder") {
            closed.reverse();
        }
        // A foreign waker may block until one of the notified processes has run. Therefore the foreign wakers are
        // called after all notifications.
        delay_wakers(|| {
            for (node, subjects) in closed.iter().rev() {
                subjects.iter().rev().for_each(|subject| E::notify(subject, cause));
                node.state.lock().over = true;
                notify(&node.news);
            }
        });
        first
    }

    /// Closes the node, and returns its children and processes. Returns `None` if the node was already closed.
    fn close(&self, cause: &Cause) -> Option<ChildrenAndSubjects<E>> {
        let mut state = self.state.lock();
        if state.cause.is_some() {
            return None;
        }
        state.cause = Some(cause.clone());
        let nodes = state.nodes.values().filter_map(Weak::upgrade).collect();
        let subjects = std::mem::take(&mut state.subjects).into_values().filter_map(|subject| subject.upgrade());
        Some(ChildrenAndSubjects { nodes, subjects: subjects.collect() })
    }

    /// Returns the cause of the cancellation, if the node is closed. Some processes of the node may not have been
    /// notified yet.
    pub(crate) fn cause(&self) -> Option<Cause> {
        self.state.lock().cause.clone()
    }

    /// Returns the reason of the cancellation, if the node is closed and its processes were notified.
    pub(crate) fn reason(&self) -> Option<Reason> {
        let state = self.state.lock();
        state.cause.as_ref().filter(|_| state.over).map(|cause| cause.reason.clone())
    }

    /// Returns the event that wakes its waiters when the [`reason`](Self::reason) becomes available.
    pub(crate) fn news(&self) -> &Event {
        &self.news
    }

    /// Returns the number of child nodes and the number of processes of this node. The children and processes of the
    /// descendants are not counted.
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

//! Models of cancel tokens. A subject is an object that registers with a token. A token that is cancelled notifies its
//! subjects. While one thread cancels a token, another thread registers or removes a subject, or creates or cancels a
//! child token.

use std::time::Duration;

use crate::host::cancel::tree::{Cause, Node, Subject};
use crate::model::{join, spawn};
use crate::platform::sync::{Arc, Mutex};
use crate::process::exit::Reason;
use crate::process::state::{Ref, RefCounted};

const ROOT: Reason = Reason::new("root");
const BRANCH: Reason = Reason::new("branch");

/// A subject that records the reason of each notification. If the subject has a child subject, the child subject must
/// be notified before its parent.
#[derive(Default)]
struct Subscriber {
    told: Mutex<Vec<Reason>>,
    child: Option<Ref<RefCounted<Subscriber>>>,
}

impl Subscriber {
    fn told(&self) -> Vec<Reason> {
        self.told.lock().clone()
    }
}

impl Subject for RefCounted<Subscriber> {
    fn notify(this: &Ref<Self>, cause: &Cause) {
        if let Some(child) = &this.child {
            assert_eq!(child.told().len(), 1, "a parent was told before its child");
        }
        this.told.lock().push(cause.reason.clone());
    }
}

/// A token and its child token.
struct World {
    root: Arc<Node<RefCounted<Subscriber>>>,
    branch: Arc<Node<RefCounted<Subscriber>>>,
}

impl World {
    fn new() -> Arc<Self> {
        let root = Node::root();
        let branch = root.child();
        Arc::new(Self { root, branch })
    }

    fn cancel(node: &Arc<Node<RefCounted<Subscriber>>>, reason: Reason) -> bool {
        node.cancel(&Cause { reason, grace: Duration::ZERO })
    }
}

/// A subject registers with a token that is being cancelled. This subject and all earlier subjects are notified once.
/// The subjects of child tokens are notified first.
pub fn adopt_against_cancel() {
    let world = World::new();
    let child = Ref::counted(Subscriber::default());
    let parent = Ref::counted(Subscriber { child: Some(child.clone()), ..Subscriber::default() });
    world.branch.adopt(&child);
    world.root.adopt(&parent);
    let cancels = spawn(&world, |world| assert!(World::cancel(&world.root, ROOT)));
    let late = Ref::counted(Subscriber::default());
    world.branch.adopt(&late);
    join(cancels);
    for ward in [child, parent, late] {
        assert_eq!(ward.told(), [ROOT]);
    }
    assert_eq!((world.root.reason(), world.branch.reason()), (Some(ROOT), Some(ROOT)));
}

/// A child token is created below a token that is being cancelled. The child token is cancelled too, and a subject that
/// registers with the child token is notified once.
pub fn child_against_cancel() {
    let world = World::new();
    let cancels = spawn(&world, |world| assert!(World::cancel(&world.root, ROOT)));
    let twig = world.branch.child();
    let late = Ref::counted(Subscriber::default());
    twig.adopt(&late);
    join(cancels);
    assert_eq!((late.told(), twig.reason()), (vec![ROOT], Some(ROOT)));
}

/// A token and its child token are cancelled at the same time. Each subject is notified once, by one of the two
/// cancellations.
pub fn two_cancel_at_once() {
    let world = World::new();
    let twig = world.branch.child();
    let (child, parent) = (Ref::counted(Subscriber::default()), Ref::counted(Subscriber::default()));
    twig.adopt(&child);
    world.root.adopt(&parent);
    let cancels = spawn(&world, |world| World::cancel(&world.branch, BRANCH));
    assert!(World::cancel(&world.root, ROOT));
    let first = join(cancels);
    assert_eq!(parent.told(), [ROOT]);
    assert_eq!(world.branch.reason(), Some(if first { BRANCH } else { ROOT }));
    assert_eq!(child.told(), [twig.reason().expect("all have been told")]);
    assert!(first || child.told() == [ROOT]);
}

/// One thread cancels the parent token. At the same time, another thread removes a subject from the child token and
/// drops the child token. Afterwards, the tokens have no reference to the subject, and the child token no longer
/// exists.
pub fn drop_against_cancel() {
    let (root, leaver) = (Node::root(), Ref::counted(Subscriber::default()));
    let branch = root.child();
    let number = branch.adopt(&leaver).expect("the token is not cancelled yet");
    let root = Arc::new(root);
    let cancels = spawn(&root, |root| assert!(World::cancel(root, ROOT)));
    branch.release(number);
    drop(branch);
    join(cancels);
    assert!(leaver.told().len() <= 1 && leaver.count() == 1);
    assert_eq!((root.count(), Arc::strong_count(&root)), ((0, 0), 1));
}

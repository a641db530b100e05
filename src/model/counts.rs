//! Models of the reference counts. A value is dropped once, after the last access to the value. The memory of the value
//! is freed once, after the last access to the reference counts.

use crate::model::join;
use crate::platform::sync::counts::explored;
use crate::platform::sync::tally::{AtomicUsize, Ordering};
use crate::platform::sync::{Arc, UnsafeCell};
use crate::process::state::{Ref, RefCounted, Weak};

/// A value that counts its drops. Loom reports each access that has no happens-before edge to the drop.
struct Value {
    accessed: UnsafeCell<()>,
    drops: Arc<AtomicUsize>,
}

impl Value {
    fn read(&self) {
        assert_eq!(self.drops.load(Ordering::Relaxed), 0, "it was dropped");
        self.accessed.with(|_| ());
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.accessed.with_mut(|_| ());
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

type Strong = Ref<RefCounted<Value>>;

/// Creates a value with one strong reference. Also returns a counter of its drops.
fn value() -> (Strong, Arc<AtomicUsize>) {
    let drops = Arc::new(AtomicUsize::new(0));
    let value = Value { accessed: UnsafeCell::new(()), drops: Arc::clone(&drops) };
    (explored(|| Ref::counted(value)), drops)
}

/// Starts a thread that owns a reference.
fn with<T: 'static>(reference: T, f: impl FnOnce(T) + 'static) -> crate::platform::sync::thread::JoinHandle<()> {
    crate::platform::sync::thread::spawn(move || f(reference))
}

fn upgrade(weak: Weak<RefCounted<Value>>) {
    if let Some(strong) = weak.upgrade() {
        strong.read();
    }
}

/// The first thread clones its reference. The second thread upgrades a weak reference. The third thread drops its
/// reference. Each thread then drops all its references.
pub fn clone_against_upgrade_and_drop() {
    let (one, drops) = value();
    let (own, weak) = (one.clone(), Ref::downgrade(&one));
    let clones = with(own, |own| {
        let again = own.clone();
        drop(own);
        again.read();
    });
    let upgrades = with(weak, upgrade);
    drop(one);
    join(clones);
    join(upgrades);
    assert_eq!(drops.load(Ordering::Relaxed), 1, "it is dropped once");
}

/// Two threads upgrade weak references and then drop the strong references that the upgrades returned. At the same
/// time, the only other strong reference is dropped.
pub fn two_upgrades_against_the_last_drop() {
    let (one, drops) = value();
    let threads = [Ref::downgrade(&one), Ref::downgrade(&one)].map(|weak| with(weak, upgrade));
    drop(one);
    threads.into_iter().for_each(join);
    assert_eq!(drops.load(Ordering::Relaxed), 1, "it is dropped once");
}

/// The first thread creates a weak reference and then drops this weak reference. The second thread drops a weak
/// reference. The third thread drops a strong reference.
pub fn weak_drops_against_the_last_drop() {
    let (one, drops) = value();
    let (own, weak) = (one.clone(), Ref::downgrade(&one));
    let makes = with(own, |own| drop(Ref::downgrade(&own)));
    let leaves = with(weak, drop);
    drop(one);
    join(makes);
    join(leaves);
    assert_eq!(drops.load(Ordering::Relaxed), 1, "it is dropped once");
}

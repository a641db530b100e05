//! Models of registered names. A process may exit while a name is being registered for the process. A name refers to
//! one process at a time, and only as long as this process exists.

use crate::host::registry::names::{Gone, Names, Own, Unclaimed};
use crate::model::{join, spawn};
use crate::platform::sync::atomic::{AtomicBool, Ordering};
use crate::platform::sync::{Arc, Mutex};
use crate::process::state::{Ref, RefCounted};

/// A process with only the parts that these models need: a list of names, and a flag. If the flag is false, the process
/// has no names.
#[derive(Default)]
struct TestEntry {
    known: AtomicBool,
    own: Own,
    /// Whether the mailbox is closed.
    closed: Mutex<bool>,
}

struct World {
    names: Names<RefCounted<TestEntry>>,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self { names: Names::new() })
    }

    /// Registers the name for a process, as `SelfHandle::register` does.
    fn register(&self, process: &Ref<RefCounted<TestEntry>>) -> Result<(), Unclaimed<RefCounted<TestEntry>, Gone>> {
        process.known.swap(true, Ordering::SeqCst);
        self.names.register("n".into(), process, &process.own, || !*process.closed.lock())
    }

    /// Makes a process exit, as `AnyControl::run_exit` does.
    fn end(&self, process: &Ref<RefCounted<TestEntry>>) {
        *process.closed.lock() = true;
        if process.known.load(Ordering::SeqCst) {
            self.names.release(&process.own);
        }
    }
}

/// A process registers a name while the process exits. After the exit, another process can register the same name and
/// keep this name.
pub fn register_against_end() {
    let world = World::new();
    let first = Ref::counted(TestEntry::default());
    let ending = first.clone();
    let ends = spawn(&world, move |world| {
        world.end(&ending);
        let second = Ref::counted(TestEntry::default());
        assert!(world.register(&second).is_ok(), "the exit has released the name");
        second
    });
    drop(world.register(&first));
    let second = join(ends);
    assert!(world.names.get("n").is_some_and(|holder| holder.is_same(&second)));
    world.end(&second);
    assert!(world.names.get("n").is_none());
}

/// Two processes register the same name. Exactly one of the two processes gets the name.
pub fn two_want_a_name() {
    let world = World::new();
    let (one, other) = (Ref::counted(TestEntry::default()), Ref::counted(TestEntry::default()));
    let rival = one.clone();
    let registers = spawn(&world, move |world| world.register(&rival).is_ok());
    let got = world.register(&other).is_ok();
    assert!(join(registers) != got, "one of the two entries has the name");
    let holder = world.names.get("n").expect("one of the two entries has the name");
    assert_eq!(holder.is_same(&other), got);
    world.end(&one);
    world.end(&other);
    assert!(world.names.get("n").is_none());
}

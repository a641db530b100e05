//! Names against ends: a name leads to one tenant, and never outlives it.

use super::{join, spawn};
use crate::relay::names::{Gone, Names, Own, Unclaimed};
use crate::relay::{Lane, Place, Relay, Tenant};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};

/// A tenant that is marked and keeps a list, as processes do.
struct Lodger {
    generation: u32,
    known: AtomicBool,
    own: Own,
}

impl Tenant for Lodger {
    fn generation(&self) -> u32 {
        self.generation
    }
}

/// What they all refer to: nothing.
#[derive(Clone)]
struct House;

impl Lane for House {
    fn fork(&self) -> Self {
        Self
    }

    fn is_same(&self, _: &Self) -> bool {
        true
    }
}

struct World {
    relay: Relay<Lodger, House>,
    names: Names<Lodger>,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self { relay: Relay::new(0, 0, 1), names: Names::new() })
    }

    /// A tenant with its place.
    fn lodge(&self) -> (Place, Arc<Lodger>) {
        let lodge = |place: Place, _| {
            let lodger =
                Arc::new(Lodger { generation: place.generation, known: AtomicBool::new(false), own: Own::default() });
            (Arc::clone(&lodger), (place, lodger))
        };
        self.relay.insert(0, &House, lodge).expect("there is room")
    }

    /// As `Me::register` does.
    fn register(&self, (place, lodger): &(Place, Arc<Lodger>)) -> Result<(), Unclaimed<Lodger, Gone>> {
        lodger.known.swap(true, Ordering::SeqCst);
        self.names.register("n".into(), lodger, &lodger.own, || self.relay.get(self.relay.pid(*place)).is_some())
    }

    /// As `Host::forget` does.
    fn end(&self, (place, lodger): &(Place, Arc<Lodger>)) {
        self.relay.remove(self.relay.pid(*place));
        if lodger.known.load(Ordering::SeqCst) {
            self.names.release(&lodger.own);
        }
    }
}

/// A tenant is registered while it ends: when that is over its name is free for another one, for good.
pub fn register_against_end() {
    let world = World::new();
    let first = Arc::new(world.lodge());
    let ending = Arc::clone(&first);
    let ends = spawn(&world, move |world| {
        world.end(&ending);
        let second = world.lodge();
        assert!(world.register(&second).is_ok(), "the end is known, and the name taken");
        second
    });
    drop(world.register(&first));
    let second = join(ends);
    assert!(world.names.get("n").is_some_and(|holder| Arc::ptr_eq(&holder, &second.1)));
    world.end(&second);
    assert!(world.names.get("n").is_none());
}

/// Two tenants want one name: one gets it.
pub fn two_want_a_name() {
    let world = World::new();
    let (one, other) = (Arc::new(world.lodge()), world.lodge());
    let rival = Arc::clone(&one);
    let registers = spawn(&world, move |world| world.register(&rival).is_ok());
    let got = world.register(&other).is_ok();
    assert!(join(registers) != got, "one of them has it");
    let holder = world.names.get("n").expect("one of them has it");
    assert_eq!(Arc::ptr_eq(&holder, &other.1), got);
    world.end(&one);
    world.end(&other);
    assert!(world.names.get("n").is_none());
}

//! Pid slot reuse: who holds a pid gets what it named, or nothing.

use crate::host::registry::{Lane, Place, Relay, Tenant};
use crate::model::{join, spawn};
use crate::platform::sync::Arc;
use crate::process::pid::Pid;
use crate::process::state::{Counted, Ref};

/// Generations go up to 3 here.
const LAST: u32 = 3;

/// A tenant that knows its generation, as processes do.
struct Lodger {
    name: u32,
    generation: u32,
}

impl Tenant for Counted<Lodger> {
    fn generation(&self) -> u32 {
        self.generation
    }
}

/// What they all refer to: nothing.
#[derive(Clone)]
struct House;

impl Lane for House {
    type Stock = ();

    fn stock(&self, _: u32) {}

    fn take(&self, (): &mut ()) -> Option<Self> {
        Some(Self)
    }
}

type Table = Relay<Counted<Lodger>, House>;

fn relay() -> Arc<Table> {
    // Of two shards one is never inserted into: who is at home there gives slots back from elsewhere.
    Arc::new(Relay::new(0, 0, 2))
}

fn insert(relay: &Table, name: u32) -> Pid {
    let lodge = |place: Place, _| (Ref::counted(Lodger { name, generation: place.generation }), place);
    relay.pid(relay.insert(0, &House, lodge).expect("there is room"))
}

fn get(relay: &Table, pid: Pid) -> Option<u32> {
    relay.get(pid).map(|tenant| tenant.name)
}

fn remove(relay: &Table, pid: Pid) -> Option<u32> {
    relay.remove(0, pid).map(|tenant| tenant.name)
}

/// By one that is at home in another shard.
fn remove_from_elsewhere(relay: &Table, pid: Pid) -> Option<u32> {
    relay.remove(1, pid).map(|tenant| tenant.name)
}

/// The first tenant goes and a second one comes, while somebody looks the first one up, and takes it out.
pub fn stale_pid() {
    let relay = relay();
    let first = insert(&relay, 1);
    let other = spawn(&relay, move |relay| {
        let removed = remove_from_elsewhere(relay, first);
        (removed, insert(relay, 2))
    });
    assert_ne!(get(&relay, first), Some(2), "never the new tenant");
    let removed = remove(&relay, first);
    let (also_removed, second) = join(other);
    assert_eq!([removed, also_removed].into_iter().flatten().collect::<Vec<_>>(), [1]);
    assert_eq!((get(&relay, first), get(&relay, second)), (None, Some(2)));
    assert!(first != second && remove(&relay, first).is_none());
    assert_eq!(relay.len(), 1);
}

/// Two come at once, and one of them goes again: each finds itself.
pub fn two_come_at_once() {
    let relay = relay();
    let other = spawn(&relay, |relay| {
        let pid = insert(relay, 1);
        assert_eq!(get(relay, pid), Some(1));
        assert_eq!(remove_from_elsewhere(relay, pid), Some(1));
        pid
    });
    let mine = insert(&relay, 2);
    assert_eq!(get(&relay, mine), Some(2));
    let gone = join(other);
    assert_ne!(mine, gone);
    assert_eq!((get(&relay, mine), get(&relay, gone), relay.len()), (Some(2), None, 1));
}

/// A slot that has had its last generation is let alone; no pid is ever given out twice.
pub fn slot_wears_out() {
    let relay = relay();
    let come_and_go = |relay: &Table| {
        [remove, remove_from_elsewhere].map(|remove| {
            let pid = insert(relay, 0);
            assert!(remove(relay, pid).is_some());
            pid
        })
    };
    let other = spawn(&relay, come_and_go);
    let mut pids = Vec::from(come_and_go(&relay));
    pids.extend(join(other));
    pids.push(insert(&relay, 1));
    assert!(pids.iter().all(|pid| pid.generation() <= LAST), "{pids:?}");
    let last = pids.pop();
    assert!(pids.iter().all(|&pid| get(&relay, pid).is_none()));
    pids.extend(last);
    pids.sort_unstable_by_key(|pid| (pid.index(), pid.generation()));
    pids.dedup();
    assert_eq!(pids.len(), 5);
    assert_eq!(relay.len(), 1);
}

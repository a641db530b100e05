//! Models of the reuse of pid slots. A look-up of a pid finds either the process to which the pid was issued, or no
//! process.

use crate::host::registry::{EntryHost, PidEntry, PidTable};
use crate::model::{join, spawn};
use crate::platform::sync::Arc;
use crate::process::pid::Pid;
use crate::process::state::{Ref, RefCounted};

/// The highest generation of a slot. In models, this generation is 3.
const LAST: u32 = 3;

/// Entry of the pid table. The entry contains its generation, as a process does.
struct TestEntry {
    name: u32,
    generation: u32,
}

impl PidEntry for RefCounted<TestEntry> {
    fn generation(&self) -> u32 {
        self.generation
    }
}

/// The shared value to which all entries refer. In these models, this value is empty.
#[derive(Clone)]
struct TestHost;

impl EntryHost for TestHost {
    type CountedRefs = ();

    fn counted_refs(&self, _: u32) {}

    fn take(&self, (): &mut ()) -> Option<Self> {
        Some(Self)
    }
}

type Table = PidTable<RefCounted<TestEntry>, TestHost>;

fn pid_table() -> Arc<Table> {
    // The table has two shards, and no entry is ever inserted into the second shard. Therefore, a thread of the second
    // shard frees only slots of the first shard.
    Arc::new(PidTable::new(0, 0, 2))
}

fn insert(pid_table: &Table, name: u32) -> Pid {
    let (place, _) = pid_table.reserve(0, &TestHost).expect("there is room");
    pid_table.publish(place, Ref::counted(TestEntry { name, generation: place.generation }));
    pid_table.pid(place)
}

fn get(pid_table: &Table, pid: Pid) -> Option<u32> {
    pid_table.get(pid).map(|holder| holder.name)
}

fn remove(pid_table: &Table, pid: Pid) -> Option<u32> {
    pid_table.remove(0, pid).map(|holder| holder.name)
}

/// Removes an entry on a thread of another shard.
fn remove_from_elsewhere(pid_table: &Table, pid: Pid) -> Option<u32> {
    pid_table.remove(1, pid).map(|holder| holder.name)
}

/// One thread removes the first entry and inserts a second entry. At the same time, another thread looks up the pid
/// of the first entry, and tries to remove the first entry by this pid.
pub fn stale_pid() {
    let pid_table = pid_table();
    let first = insert(&pid_table, 1);
    let other = spawn(&pid_table, move |pid_table| {
        let removed = remove_from_elsewhere(pid_table, first);
        (removed, insert(pid_table, 2))
    });
    assert_ne!(get(&pid_table, first), Some(2), "a pid never finds the next entry of its slot");
    let removed = remove(&pid_table, first);
    let (also_removed, second) = join(other);
    assert_eq!([removed, also_removed].into_iter().flatten().collect::<Vec<_>>(), [1]);
    assert_eq!((get(&pid_table, first), get(&pid_table, second)), (None, Some(2)));
    assert!(first != second && remove(&pid_table, first).is_none());
    assert_eq!(pid_table.len(), 1);
}

/// Two threads insert one entry each at the same time. One of the two threads also removes its entry. Each thread
/// finds its own entry.
pub fn two_inserts_at_once() {
    let pid_table = pid_table();
    let other = spawn(&pid_table, |pid_table| {
        let pid = insert(pid_table, 1);
        assert_eq!(get(pid_table, pid), Some(1));
        assert_eq!(remove_from_elsewhere(pid_table, pid), Some(1));
        pid
    });
    let mine = insert(&pid_table, 2);
    assert_eq!(get(&pid_table, mine), Some(2));
    let gone = join(other);
    assert_ne!(mine, gone);
    assert_eq!((get(&pid_table, mine), get(&pid_table, gone), pid_table.len()), (Some(2), None, 1));
}

/// If a slot has reached its last generation, the slot is not used again. No pid is issued twice.
pub fn slot_wears_out() {
    let pid_table = pid_table();
    let come_and_go = |pid_table: &Table| {
        [remove, remove_from_elsewhere].map(|remove| {
            let pid = insert(pid_table, 0);
            assert!(remove(pid_table, pid).is_some());
            pid
        })
    };
    let other = spawn(&pid_table, come_and_go);
    let mut pids = Vec::from(come_and_go(&pid_table));
    pids.extend(join(other));
    pids.push(insert(&pid_table, 1));
    assert!(pids.iter().all(|pid| pid.generation() <= LAST), "{pids:?}");
    let last = pids.pop();
    assert!(pids.iter().all(|&pid| get(&pid_table, pid).is_none()));
    pids.extend(last);
    pids.sort_unstable_by_key(|pid| (pid.index(), pid.generation()));
    pids.dedup();
    assert_eq!(pids.len(), 5);
    assert_eq!(pid_table.len(), 1);
}

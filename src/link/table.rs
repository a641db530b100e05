//! Links and monitors as tables: who hears of whose exit. A table for each process that has any, under a lock of its
//! own; what reaches a process is put into its mailbox, and what it dies of is noted, under that lock.
//!
//! # The protocol
//!
//! A link stands in the tables of both its ends, a monitor in that of the watcher and that of the watched. Both are
//! set, and links are cut, with both tables locked, in the order of their addresses: so both stand in both, or in none.
//! Whoever ends says so first (`Party::exit`), then closes its table, which hands out all that stood in it, and tells
//! one after another, each under the lock of that one's table alone. From this follows what is promised:
//!
//! - *Heard or refused.* Whoever links or monitors looks, under the locks, whether the other one has ended. If not, the
//!   entry is there before the close, and is told; if so, the caller learns of it at once.
//! - *Once.* Whoever is told looks for the entry in its own table, and takes it out: two that die at the same time, or a
//!   link that was set twice, are told once.
//! - *Nothing new after an unlink.* An exit that is on its way finds no entry. What it does it does under the lock: the
//!   event is in the mailbox, or the process condemned, before the lock that an unlink waits for is free.
//!
//! A process that is condemned dies in a turn of its own. So nothing here recurses, however long a chain of links is,
//! and all the work of a death is a look into the table of each that it is tied to.

use std::collections::BTreeMap;

use crate::mailbox::Wakes;
use crate::process::event::{MonitorRef, Signal};
use crate::process::exit::Exit;
use crate::process::panic::drop_caught;
use crate::process::pid::Pid;
use crate::sync::{Arc, Lock, LockGuard, planted};

/// Whoever can be tied to others: a process, as these tables see it.
pub(crate) trait Party {
    fn pid(&self) -> Pid;

    /// Its table. It is marked as one that has a table before this returns, so that its end, which says
    /// [`exit`](Self::exit) first and looks for the mark then, closes it: one of the two sees the other.
    fn links(&self) -> &Links<Self>;

    /// How it ended, once it did.
    fn exit(&self) -> Option<Exit>;

    /// Puts a signal into its mailbox.
    ///
    /// # Errors
    /// The signal, when the mailbox is closed.
    fn put(&self, signal: Signal) -> Result<Wakes, Signal>;

    /// Notes that it has to die. False if that was noted before: then it dies of something else.
    fn condemn(&self) -> bool;

    /// Has it find out that it was condemned, to this. Nobody's table is locked.
    fn fall(self: &Arc<Self>, fate: &Exit);
}

/// The table of one process.
#[derive(Debug)]
pub(crate) struct Links<E: ?Sized>(Lock<Table<E>>);

impl<E: ?Sized> Default for Links<E> {
    fn default() -> Self {
        Self(Lock::new(Table::default()))
    }
}

#[derive(Debug)]
struct Table<E: ?Sized> {
    /// Exits of others come as events.
    traps: bool,
    peers: Few<Pid, Arc<E>>,
    /// What this one monitors, by number; nothing if the down of it waits to be read.
    watched: Few<u64, Option<Arc<E>>>,
    /// Who monitors this one.
    watchers: Few<MonitorRef, Arc<E>>,
    /// How many monitors it has set.
    monitors: u64,
    /// What it was condemned to by a link.
    fate: Option<Exit>,
}

impl<E: ?Sized> Default for Table<E> {
    fn default() -> Self {
        Self {
            traps: false,
            peers: Few::default(),
            watched: Few::default(),
            watchers: Few::default(),
            monitors: 0,
            fate: None,
        }
    }
}

/// What the exit of another one does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Nothing,
    Event,
    Death,
}

impl<E: ?Sized> Table<E> {
    /// What an exit does that reaches this process for sure.
    fn verdict(&self, exit: &Exit) -> Verdict {
        match () {
            () if self.traps => Verdict::Event,
            () if exit.is_normal() => Verdict::Nothing,
            () => Verdict::Death,
        }
    }

    /// What the exit of a process does that was linked to this one, if it still is. From now on it is not.
    fn hear_exit(&mut self, from: Pid, exit: &Exit) -> Verdict {
        let linked = self.peers.remove(&from).is_some() || planted!("links_hear_strangers");
        if linked { self.verdict(exit) } else { Verdict::Nothing }
    }

    /// Whether the end of what this monitor watches is news. From now on it is known.
    fn hear_down(&mut self, number: u64) -> bool {
        let known = self.watched.get_mut(&number).and_then(Option::take).is_some();
        known || planted!("links_down_was_never_taken_back")
    }

    /// Takes a number for a monitor.
    fn number(&mut self) -> u64 {
        self.monitors += 1;
        self.monitors
    }

    /// Hands out all that stands here. The process has ended, so nothing is let in any more.
    fn close(&mut self) -> Table<E> {
        Table {
            peers: std::mem::take(&mut self.peers),
            watched: std::mem::take(&mut self.watched),
            watchers: std::mem::take(&mut self.watchers),
            ..Table::default()
        }
    }
}

impl<E: Party + ?Sized> Links<E> {
    /// Whether the exits of others come as events from now on; what held before.
    pub(crate) fn trap(&self, on: bool) -> bool {
        std::mem::replace(&mut self.0.lock().traps, on)
    }

    /// What a link condemned the process to.
    pub(crate) fn fate(&self) -> Option<Exit> {
        self.0.lock().fate.clone()
    }

    /// Whether a down is still wanted that was put into the mailbox and is read now. It is not wanted twice.
    pub(crate) fn collect(&self, monitor: MonitorRef) -> bool {
        self.0.lock().watched.remove(&monitor.number()).is_some()
    }

    /// The end of the process, which has said that it ended: tells everybody who is to hear of it.
    pub(crate) fn dissolve(&self, pid: Pid, exit: &Exit) {
        let Table { peers, watched, watchers, .. } = self.0.lock().close();
        if !peers.is_empty() {
            let fate = fate_of_peers(pid, exit);
            for (_, peer) in peers {
                tell_peer(&peer, pid, exit, &fate, |table| table.hear_exit(pid, exit));
            }
        }
        for (monitor, watcher) in watchers {
            let mut table = watcher.links().0.lock();
            let put = table
                .hear_down(monitor.number())
                .then(|| watcher.put(Signal::Down { monitor, pid, reason: exit.clone() }));
            drop(table);
            settle(put);
        }
        for (number, watched) in watched {
            if let Some(watched) = watched {
                watched.links().0.lock().watchers.remove(&MonitorRef::new(pid, number));
            }
        }
    }
}

/// What those die of that were linked to a process that ended like this: the first to die is named, however long the
/// chain.
pub(crate) fn fate_of_peers(pid: Pid, exit: &Exit) -> Exit {
    let mut first = exit;
    let mut origin = pid;
    while let Exit::Linked { origin: further, reason } = first {
        (origin, first) = (*further, reason);
    }
    match exit {
        // The usual one: it is not nested, and only counted.
        Exit::Linked { reason, .. } if std::ptr::eq(&**reason, first) => exit.clone(),
        _ => Exit::Linked { origin, reason: Arc::new(first.clone()) },
    }
}

/// Does to a process what `verdict` says that an exit does.
fn tell_peer<E: Party + ?Sized>(
    peer: &Arc<E>,
    from: Pid,
    exit: &Exit,
    fate: &Exit,
    verdict: impl FnOnce(&mut Table<E>) -> Verdict,
) {
    let mut table = peer.links().0.lock();
    match verdict(&mut table) {
        Verdict::Nothing => {}
        Verdict::Event => {
            let put = peer.put(Signal::Exit { from, reason: exit.clone() });
            drop(table);
            settle(Some(put));
        }
        Verdict::Death => {
            if peer.condemn() {
                table.fate = Some(fate.clone());
                drop(table);
                peer.fall(fate);
            }
        }
    }
}

/// What a signal owes that was put into a mailbox under a lock.
fn settle(put: Option<Result<Wakes, Signal>>) {
    match put {
        None => {}
        Some(Ok(wakes)) => wakes.wake(),
        Some(Err(refused)) => drop(drop_caught(refused)),
    }
}

type Guard<'a, E> = LockGuard<'a, Table<E>>;

/// Locks two tables: always the one at the lower address first, so that nobody waits in a circle.
fn lock_both<'a, E: ?Sized>(one: &'a Links<E>, other: &'a Links<E>) -> (Guard<'a, E>, Guard<'a, E>) {
    debug_assert!(!std::ptr::eq(one, other), "a process is not tied to itself");
    if std::ptr::from_ref(one) < std::ptr::from_ref(other) || planted!("links_lock_in_any_order") {
        let one = one.0.lock();
        (one, other.0.lock())
    } else {
        let other = other.0.lock();
        (one.0.lock(), other)
    }
}

/// Whoever was to be linked has ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    Caller,
    Other,
}

/// Links two processes; to itself, one is not linked. One that traps exits is told by an event of one that has ended, or
/// is not there as `other` says.
///
/// # Errors
/// One of them has ended.
pub(crate) fn link<E: Party + ?Sized>(caller: &Arc<E>, pid: Pid, other: Result<&Arc<E>, Exit>) -> Result<(), Gone> {
    if caller.pid() == pid {
        return Ok(());
    }
    let mut own;
    let absent = if let Ok(other) = &other {
        let early = planted!("links_look_before_locking").then(|| other.exit().is_some());
        let mut theirs;
        (own, theirs) = lock_both(caller.links(), other.links());
        let ended = early.unwrap_or_else(|| other.exit().is_some());
        if caller.exit().is_some() {
            return Err(Gone::Caller);
        }
        if !ended {
            if !own.peers.contains(&pid) {
                own.peers.insert(pid, Arc::clone(other));
                theirs.peers.insert(caller.pid(), Arc::clone(caller));
            }
            return Ok(());
        }
        drop(theirs);
        Exit::NoProcess
    } else {
        own = caller.links().0.lock();
        if caller.exit().is_some() {
            return Err(Gone::Caller);
        }
        other.err().unwrap_or(Exit::NoProcess)
    };
    if !own.traps {
        return Err(Gone::Other);
    }
    let put = caller.put(Signal::Exit { from: pid, reason: absent });
    drop(own);
    settle(Some(put));
    Ok(())
}

/// Cuts the link between two processes; false if there was none.
pub(crate) fn unlink<E: Party + ?Sized>(caller: &E, pid: Pid) -> bool {
    let links = caller.links();
    let Some(other) = links.0.lock().peers.get_mut(&pid).map(|other| Arc::clone(other)) else { return false };
    let (mut own, mut theirs) = lock_both(links, other.links());
    let cut = (own.peers.remove(&pid), theirs.peers.remove(&caller.pid()));
    // The last reference to a process is not let go under a lock: it holds values of the user's.
    drop((own, theirs));
    cut.0.is_some()
}

/// Sets a monitor. If there is nothing to watch, as `other` says or as turns out, the down is there at once.
pub(crate) fn monitor<E: Party + ?Sized>(caller: &Arc<E>, pid: Pid, other: Result<&Arc<E>, Exit>) -> MonitorRef {
    let mut own;
    let (monitor, reason);
    if let Ok(other) = other
        && caller.pid() != pid
    {
        let mut theirs;
        (own, theirs) = lock_both(caller.links(), other.links());
        monitor = MonitorRef::new(caller.pid(), own.number());
        if caller.exit().is_some() {
            return monitor;
        }
        if other.exit().is_none() {
            own.watched.insert(monitor.number(), Some(Arc::clone(other)));
            theirs.watchers.insert(monitor, Arc::clone(caller));
            return monitor;
        }
        reason = Exit::NoProcess;
    } else {
        own = caller.links().0.lock();
        monitor = MonitorRef::new(caller.pid(), own.number());
        match other {
            Err(absent) if caller.exit().is_none() => reason = absent,
            // Nobody is there to hear of its own end.
            _ => return monitor,
        }
    }
    own.watched.insert(monitor.number(), None);
    let put = caller.put(Signal::Down { monitor, pid, reason });
    drop(own);
    settle(Some(put));
    monitor
}

/// Takes back a monitor: true if its down has not come, and now never will. With `flush` a down that came and was not
/// read is gone too.
pub(crate) fn demonitor<E: Party + ?Sized>(caller: &E, monitor: MonitorRef, flush: bool) -> bool {
    if !monitor.is_of(caller.pid()) {
        return false;
    }
    let mut own = caller.links().0.lock();
    let watched = match own.watched.get_mut(&monitor.number()) {
        None => return false,
        Some(None) if !flush => return false,
        Some(watched) => watched.take(),
    };
    own.watched.remove(&monitor.number());
    drop(own);
    let Some(watched) = watched else { return false };
    watched.links().0.lock().watchers.remove(&monitor);
    true
}

/// How a process is tied to one that it spawns.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ties {
    pub(crate) link: bool,
    pub(crate) monitor: bool,
}

/// Ties a process to its child, which has not begun: before it can end, in whatever way.
pub(crate) fn adopt<E: Party + ?Sized>(parent: &Arc<E>, child: &Arc<E>, ties: Ties) -> Option<MonitorRef> {
    if ties.link && link(parent, child.pid(), Ok(child)) == Err(Gone::Caller) {
        // It ended just now, as if it had been linked before that.
        let exit = parent.exit().unwrap_or(Exit::Killed);
        let fate = fate_of_peers(parent.pid(), &exit);
        tell_peer(child, parent.pid(), &exit, &fate, |table| table.verdict(&exit));
    }
    ties.monitor.then(|| monitor(parent, child.pid(), Ok(child)))
}

/// Tells a process of a child that it was to be tied to, and that never began.
pub(crate) fn bereave<E: Party + ?Sized>(parent: &Arc<E>, pid: Pid, exit: &Exit, ties: Ties) -> Option<MonitorRef> {
    if ties.link {
        let fate = fate_of_peers(pid, exit);
        tell_peer(parent, pid, exit, &fate, |table| table.verdict(exit));
    }
    ties.monitor.then(|| monitor(parent, pid, Err(exit.clone())))
}

/// A map with room for one: most processes are tied to one other, some to a hundred thousand.
#[derive(Debug)]
struct Few<K, V> {
    one: Option<(K, V)>,
    more: BTreeMap<K, V>,
}

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Self { one: None, more: BTreeMap::new() }
    }
}

impl<K: Ord, V> Few<K, V> {
    fn is_empty(&self) -> bool {
        self.one.is_none() && self.more.is_empty()
    }

    fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match &mut self.one {
            Some((one, value)) if one == key => Some(value),
            _ => self.more.get_mut(key),
        }
    }

    fn contains(&self, key: &K) -> bool {
        self.one.as_ref().is_some_and(|(one, _)| one == key) || self.more.contains_key(key)
    }

    /// Under a key that is not there.
    fn insert(&mut self, key: K, value: V) {
        if self.one.is_none() {
            self.one = Some((key, value));
        } else {
            self.more.insert(key, value);
        }
    }

    fn remove(&mut self, key: &K) -> Option<V> {
        match self.one.take_if(|(one, _)| one == key) {
            Some((_, value)) => Some(value),
            None => self.more.remove(key),
        }
    }
}

impl<K, V> IntoIterator for Few<K, V> {
    type Item = (K, V);
    type IntoIter = std::iter::Chain<std::option::IntoIter<(K, V)>, std::collections::btree_map::IntoIter<K, V>>;

    fn into_iter(self) -> Self::IntoIter {
        self.one.into_iter().chain(self.more)
    }
}

//! Links and monitors as tables: who hears of whose exit. A table for each process that has any, under a lock of its
//! own; what reaches a process is put into its mailbox, and what it dies of is noted, under that lock.
//!
//! # The protocol
//!
//! A link stands in the tables of both its ends, a monitor in that of the watcher and that of the watched. Both are
//! set, and links are cut, with both tables locked, in the order of their addresses: so both stand in both, or in none.
//! (What is set stands in the other's table first, which may be free a moment before the caller's.)
//! Whoever ends says so first (`Linkable::exit`), then closes its table, which hands out all that stood in it, and tells
//! one after another, each under the lock of that one's table alone. (A monitor that is set with a spawn stands in the
//! table of the watcher alone: the child [carries](Watch) it, and tells when it has closed its table.) From this follows
//! what is promised:
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

pub(crate) mod monitors;

use std::collections::BTreeMap;

use crate::host::link::monitors::Watched;
use crate::platform::sync::{Arc, Lock, LockGuard, planted};
use crate::process::catch::drop_caught;
use crate::process::event::{MonitorRef, Signal};
use crate::process::exit::Exit;
use crate::process::mailbox::Wakes;
use crate::process::pid::Pid;
use crate::process::state::Ref;

/// Whoever can be tied to others: a process, as these tables see it.
pub(crate) trait Linkable {
    fn pid(&self) -> Pid;

    /// Its table. It is marked as one that has a table before this returns, so that its end, which says
    /// [`exit`](Self::exit) first and looks for the mark then, closes it: one of the two sees the other.
    fn links(&self) -> &Links<Self>;

    /// How it ended, once it did.
    fn exit(&self) -> Option<Exit>;

    fn has_ended(&self) -> bool;

    /// Puts a signal into its mailbox.
    ///
    /// # Errors
    /// The signal, when the mailbox is closed.
    fn put(&self, signal: Signal) -> Result<Wakes, Signal>;

    /// Puts a down into its mailbox. Nothing if that is closed.
    fn put_down(&self, number: u64, pid: Pid, reason: &Exit) -> Option<Wakes>;

    /// Notes that it has to die. False if that was noted before: then it dies of something else.
    fn condemn(&self) -> bool;

    /// Has it find out that it was condemned, to this. Nobody's table is locked.
    fn fall(this: &Ref<Self>, fate: &Exit);
}

/// The table of one process.
#[derive(Debug)]
pub(crate) struct Links<E: ?Sized>(Lock<Table<E>>);

impl<E: ?Sized> Default for Links<E> {
    fn default() -> Self {
        Self(Lock::new(Table::default()))
    }
}

/// Most processes are tied to one other, and pay for that one.
#[derive(Debug)]
struct Table<E: ?Sized> {
    one: Option<(LinkEntry, Ref<E>)>,
    more: Option<Box<More<E>>>,
}

/// Why another one is to hear of the end of this one: they are linked, or it monitors this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LinkEntry {
    /// Of the other's pid; whoever is tied to this one is of its runtime.
    word: u64,
    /// Of the monitor; 0, which none has, of a link.
    number: u64,
}

impl LinkEntry {
    fn link(pid: Pid) -> Self {
        Self { word: pid.word(), number: 0 }
    }

    /// That a process has set a monitor of this number.
    fn monitor(pid: Pid, number: u64) -> Self {
        debug_assert_ne!(number, 0, "numbers begin further up");
        Self { word: pid.word(), number }
    }
}

#[derive(Debug)]
struct More<E: ?Sized> {
    /// Exits of others come as events.
    traps: bool,
    ties: BTreeMap<LinkEntry, Ref<E>>,
    /// What this one monitors.
    watched: Watched<E>,
    /// What it was condemned to by a link.
    fate: Option<Exit>,
}

impl<E: ?Sized> Default for Table<E> {
    fn default() -> Self {
        Self { one: None, more: None }
    }
}

impl<E: ?Sized> Default for More<E> {
    fn default() -> Self {
        Self { traps: false, ties: BTreeMap::new(), watched: Watched::default(), fate: None }
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
    fn traps(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.traps)
    }

    /// What an exit does that reaches this process for sure.
    fn verdict(&self, exit: &Exit) -> Verdict {
        match () {
            () if self.traps() => Verdict::Event,
            () if exit.is_normal() => Verdict::Nothing,
            () => Verdict::Death,
        }
    }

    /// What the exit of a process does that was linked to this one, if it still is. From now on it is not.
    fn hear_exit(&mut self, from: Pid, exit: &Exit) -> Verdict {
        let linked = self.cut(LinkEntry::link(from)).is_some() || planted!("links_hear_strangers");
        if linked { self.verdict(exit) } else { Verdict::Nothing }
    }

    /// Whether the end of what this monitor watches is news. From now on it is known.
    fn hear_down(&mut self, number: u64) -> bool {
        let known = self.more.as_mut().is_some_and(|more| more.watched.tell(number));
        known || planted!("links_down_was_never_taken_back")
    }

    fn more(&mut self) -> &mut More<E> {
        self.more.get_or_insert_default()
    }

    #[inline]
    fn get(&self, tie: LinkEntry) -> Option<&Ref<E>> {
        match &self.one {
            Some((one, other)) if *one == tie => Some(other),
            _ => self.more.as_ref()?.ties.get(&tie),
        }
    }

    /// One more, that is not there.
    #[inline]
    fn add(&mut self, tie: LinkEntry, other: Ref<E>) {
        if self.one.is_none() {
            self.one = Some((tie, other));
        } else {
            self.more().ties.insert(tie, other);
        }
    }

    #[inline]
    fn cut(&mut self, tie: LinkEntry) -> Option<Ref<E>> {
        match &self.one {
            Some((one, _)) if *one == tie => self.one.take().map(|(_, other)| other),
            _ => self.more.as_mut()?.ties.remove(&tie),
        }
    }
}

impl<E: Linkable + ?Sized> Links<E> {
    /// Whether the exits of others come as events from now on; what held before.
    pub(crate) fn trap(&self, on: bool) -> bool {
        let mut table = self.0.lock();
        (on || table.more.is_some()) && std::mem::replace(&mut table.more().traps, on)
    }

    /// What a link condemned the process to.
    pub(crate) fn fate(&self) -> Option<Exit> {
        self.0.lock().more.as_ref().and_then(|more| more.fate.clone())
    }

    /// Whether a down is still wanted that was put into the mailbox and is read now. It is not wanted twice.
    pub(crate) fn collect(&self, number: u64) -> bool {
        self.0.lock().more.as_mut().is_some_and(|more| more.watched.collect(number))
    }

    /// The end of the process, which has said that it ended: tells all processes that are tied to it. Returns whether one of
    /// them received the exit: a linked process that lives, or a watcher.
    pub(crate) fn dissolve(&self, pid: Pid, exit: &Exit) -> bool {
        let mut table = self.0.lock();
        // It has ended, so nothing is let in any more.
        let (one, more) = (table.one.take(), table.more.take());
        drop(table);
        let (mut fate, mut received) = (None, false);
        let mut tell = |(tie, other): (LinkEntry, Ref<E>)| {
            received |= if tie.number == 0 {
                let fate = fate.get_or_insert_with(|| fate_of_peers(pid, exit));
                tell_peer(&other, pid, exit, fate, |table| table.hear_exit(pid, exit))
            } else {
                tell_watcher(&other, tie.number, pid, exit)
            };
        };
        one.into_iter().for_each(&mut tell);
        let Some(more) = more else { return received };
        let More { ties, watched, .. } = *more;
        ties.into_iter().for_each(tell);
        for (number, watched) in watched.into_living() {
            let cut = watched.links().0.lock().cut(LinkEntry::monitor(pid, number));
            drop(cut);
        }
        received
    }
}

/// Tells a process of the end of one that it monitors, unless it has taken that back. Returns whether it is told.
fn tell_watcher<E: Linkable + ?Sized>(watcher: &Ref<E>, number: u64, pid: Pid, exit: &Exit) -> bool {
    let mut table = watcher.links().0.lock();
    let wakes = if table.hear_down(number) { watcher.put_down(number, pid, exit) } else { None };
    drop(table);
    let is_told = wakes.is_some();
    if let Some(wakes) = wakes {
        wakes.wake_behind();
    }
    is_told
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

/// Applies to a process what `verdict` says about an exit. Returns whether the process received the exit. A process that has
/// ended does not. One that is already condemned does only if it is condemned to a failure: then its own end reports that
/// failure. One that is condemned by a kill ends as `Killed`, which reports nothing.
fn tell_peer<E: Linkable + ?Sized>(
    peer: &Ref<E>,
    from: Pid,
    exit: &Exit,
    fate: &Exit,
    verdict: impl FnOnce(&mut Table<E>) -> Verdict,
) -> bool {
    let mut table = peer.links().0.lock();
    match verdict(&mut table) {
        Verdict::Nothing => false,
        Verdict::Event => {
            let put = peer.put(Signal::Exit { from, reason: exit.clone() });
            drop(table);
            let received = put.is_ok();
            settle(put);
            received
        }
        Verdict::Death => {
            let lives = !peer.has_ended();
            if peer.condemn() {
                table.more().fate = Some(fate.clone());
                drop(table);
                E::fall(peer, fate);
                return lives;
            }
            // The peer ends with its earlier fate: that of another link, or a kill, which would hide a failure.
            lives && table.more.as_ref().and_then(|more| more.fate.as_ref()).is_some_and(Exit::is_failure)
        }
    }
}

/// What a signal owes that was put into a mailbox under a lock.
fn settle(put: Result<Wakes, Signal>) {
    match put {
        Ok(wakes) => wakes.wake_behind(),
        Err(refused) => drop(drop_caught(refused)),
    }
}

type Guard<'a, E> = LockGuard<'a, Table<E>>;

/// Locks two tables: always the one at the lower address first, so that nobody waits in a circle.
fn lock_both<'a, 'b, E: ?Sized>(one: &'a Links<E>, other: &'b Links<E>) -> (Guard<'a, E>, Guard<'b, E>) {
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
/// is not there as `other` says. `handle` leads to the caller.
///
/// # Errors
/// One of them has ended.
pub(crate) fn link<E: Linkable + ?Sized>(
    caller: &E,
    handle: Ref<E>,
    pid: Pid,
    other: Result<Ref<E>, Exit>,
) -> Result<(), Gone> {
    let me = caller.pid();
    if me == pid {
        return Ok(());
    }
    let absent = match other {
        Err(absent) => absent,
        Ok(other) => {
            let early = planted!("links_look_before_locking").then(|| other.has_ended());
            let (mut own, mut theirs) = lock_both(caller.links(), other.links());
            let ended = early.unwrap_or_else(|| other.has_ended());
            if caller.has_ended() {
                return Err(Gone::Caller);
            }
            if !ended {
                if own.get(LinkEntry::link(pid)).is_none() {
                    theirs.add(LinkEntry::link(me), handle);
                    // Whoever finds that one has to wait for the other, as if both were locked.
                    drop(theirs);
                    own.add(LinkEntry::link(pid), other);
                }
                return Ok(());
            }
            Exit::NoProcess
        }
    };
    let own = caller.links().0.lock();
    if caller.has_ended() {
        return Err(Gone::Caller);
    }
    if !own.traps() {
        return Err(Gone::Other);
    }
    let put = caller.put(Signal::Exit { from: pid, reason: absent });
    drop(own);
    settle(put);
    Ok(())
}

/// Cuts the link between two processes; false if there was none.
pub(crate) fn unlink<E: Linkable + ?Sized>(caller: &E, pid: Pid) -> bool {
    let me = caller.pid();
    if !me.is_beside(pid) {
        return false;
    }
    let links = caller.links();
    let Some(other) = links.0.lock().get(LinkEntry::link(pid)).cloned() else { return false };
    let (mut own, mut theirs) = lock_both(links, other.links());
    let cut = (own.cut(LinkEntry::link(pid)), theirs.cut(LinkEntry::link(me)));
    // The last reference to a process is not let go under a lock: it holds values of the user's.
    drop((own, theirs));
    cut.0.is_some()
}

/// Sets a monitor. If there is nothing to watch, as `other` says or as turns out, the down is there at once. `handle` leads
/// to the caller.
pub(crate) fn monitor<E: Linkable + ?Sized>(
    caller: &E,
    handle: Ref<E>,
    pid: Pid,
    other: Result<Ref<E>, Exit>,
) -> MonitorRef {
    let me = caller.pid();
    // Nobody is there to hear of its own end.
    let is_itself = me == pid;
    let absent = match other {
        Err(absent) => absent,
        Ok(other) if !is_itself => {
            let (mut own, mut theirs) = lock_both(caller.links(), other.links());
            if !caller.has_ended() && !other.has_ended() {
                let vacant = own.more().watched.vacant();
                theirs.add(LinkEntry::monitor(me, vacant.number()), handle);
                // As with a link.
                drop(theirs);
                return MonitorRef::new(me, vacant.watch(Some(other)));
            }
            Exit::NoProcess
        }
        Ok(_) => Exit::NoProcess,
    };
    let mut own = caller.links().0.lock();
    if is_itself || caller.has_ended() {
        return MonitorRef::new(me, own.more().watched.spend());
    }
    let monitor = MonitorRef::new(me, own.more().watched.vacant().tell());
    let wakes = caller.put_down(monitor.number(), pid, &absent);
    drop(own);
    if let Some(wakes) = wakes {
        wakes.wake_behind();
    }
    monitor
}

/// Takes back a monitor: true if its down has not come, and now never will. With `flush` a down that came and was not
/// read is gone too.
pub(crate) fn demonitor<E: Linkable + ?Sized>(caller: &E, monitor: MonitorRef, flush: bool) -> bool {
    let me = caller.pid();
    if !monitor.is_of(me) {
        return false;
    }
    let mut own = caller.links().0.lock();
    let Some(more) = &mut own.more else { return false };
    let Some(watched) = more.watched.remove(monitor.number()) else {
        if flush {
            more.watched.collect(monitor.number());
        }
        return false;
    };
    drop(own);
    if let Some(watched) = watched {
        let cut = watched.links().0.lock().cut(LinkEntry::monitor(me, monitor.number()));
        drop(cut);
    }
    true
}

/// A monitor that is set with a spawn, as the child has it, which carries it to its end: nobody else has to find it
/// there. That spares the child a table.
///
/// One that was taken back, or whose watcher has ended, stays with the child, and tells nobody.
#[derive(Debug)]
pub(crate) struct Watch<E: ?Sized> {
    watcher: Ref<E>,
    number: u64,
}

impl<E: Linkable + ?Sized> Watch<E> {
    /// Sets it, before there is a child.
    pub(crate) fn set(watcher: Ref<E>) -> Self {
        let mut own = watcher.links().0.lock();
        let watched = &mut own.more().watched;
        let number = if watcher.has_ended() { watched.spend() } else { watched.vacant().watch(None) };
        drop(own);
        Self { watcher, number }
    }

    /// Its number among the monitors of its watcher.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The child has said that it ended; or it never began. Returns whether the watcher is told.
    pub(crate) fn tell(self, pid: Pid, exit: &Exit) -> bool {
        tell_watcher(&self.watcher, self.number, pid, exit)
    }
}

/// How a process is tied to one that it spawns.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SpawnLinks {
    pub(crate) link: bool,
    pub(crate) monitor: bool,
}

/// SpawnLinks a process to its child, which has not begun: before it can end, in whatever way.
pub(crate) fn adopt<E: Linkable + ?Sized>(parent: &Ref<E>, child: &Ref<E>, ties: SpawnLinks) -> Option<MonitorRef> {
    let pid = child.pid();
    if ties.link && link(&**parent, parent.clone(), pid, Ok(child.clone())) == Err(Gone::Caller) {
        // It ended just now, as if it had been linked before that.
        let exit = parent.exit().unwrap_or(Exit::Killed);
        let fate = fate_of_peers(parent.pid(), &exit);
        tell_peer(child, parent.pid(), &exit, &fate, |table| table.verdict(&exit));
    }
    ties.monitor.then(|| monitor(&**parent, parent.clone(), pid, Ok(child.clone())))
}

/// Tells a process of a child that it was to be linked to, and that never began.
pub(crate) fn deliver_exit<E: Linkable + ?Sized>(parent: &Ref<E>, pid: Pid, exit: &Exit) {
    let fate = fate_of_peers(pid, exit);
    tell_peer(parent, pid, exit, &fate, |table| table.verdict(exit));
}

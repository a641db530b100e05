//! The tables of links and monitors. When a process exits, these tables determine which other processes receive the
//! exit.
//!
//! Each process that has links or monitors has its own table with its own lock. To put an exit signal into the mailbox
//! of the process, a thread takes the lock of this table. A link may also kill the process. In this case, the thread
//! that kills the process stores the exit in the table, also under this lock.
//!
//! # The protocol
//!
//! A link has an entry in the tables of both linked processes. The process that has set a monitor is the *watcher*. A
//! monitor has an entry in the table of the watcher, and an entry in the table of the watched process. Some operations
//! set a link, set a monitor or remove a link. Each of these operations locks both tables. The addresses of the tables
//! determine the order of the two locks. Therefore either both tables have the entry, or neither table has the entry.
//! An operation adds a new entry first to the table of the other process. The operation may then unlock the table of
//! the other process first, and unlock the table of the caller later.
//!
//! At an exit, `Head::publish_exit` first makes the exit visible to [`Linkable::exit`]. Then `Head::publish_exit` calls
//! [`Links::dissolve`], which closes the table, takes out all entries, and notifies the other processes one by one.
//! Each notification locks only the table of the notified process.
//!
//! A monitor from `spawn_monitor` is only in the table of the watcher. The child [stores](Watch) this monitor outside
//! the table of the child. An exiting child first closes the table of the child, and then notifies the watcher.
//!
//! The protocol guarantees:
//!
//! - *Notified or refused.* A caller that sets a link or a monitor holds the locks of both tables. The caller checks
//!   whether the other process has exited. If the other process has not exited, the caller adds the entry before the
//!   exit of the other process closes the table. Therefore the other process notifies the caller later. If the other
//!   process has exited, the caller is notified immediately.
//! - *At most once.* A notification removes the entry from the table of the notified process. Therefore each of two
//!   linked processes gets at most one notification, even if both processes exit at the same time, or if the link was
//!   set twice.
//! - *Nothing after an unlink.* A notification after an unlink finds no entry. A notification before an unlink puts
//!   the signal into the mailbox, or marks the process as killed. During this work, the notifying thread holds the
//!   lock of the notified process's table. The unlink needs the same lock. Therefore the notification is complete
//!   before the unlink gets the lock.
//!
//! If a link kills a process, the killed process exits in one of its own turns, and not inside the call that kills the
//! process. Therefore no function of this module recurses, even if a chain of links is long. An exit looks up one entry
//! in the table of each linked or watching process.

pub(crate) mod listing;
pub(crate) mod monitors;

use std::cell::OnceCell;
use std::collections::BTreeMap;

use crate::host::link::monitors::Watched;
use crate::platform::sync::{Arc, Lock, LockGuard, planted};
use crate::process::catch::{delay_wakers, drop_caught};
use crate::process::event::{MonitorRef, Signal};
use crate::process::exit::Exit;
use crate::process::mailbox::Wakes;
use crate::process::pid::Pid;
use crate::process::state::Ref;

/// A process that can be linked and monitored. The trait contains the operations that the tables of links and monitors
/// need.
pub(crate) trait Linkable {
    fn pid(&self) -> Pid;

    /// Returns the table of the process, and marks that the process has a table. An exiting process first publishes
    /// [`exit`](Self::exit), and then checks the mark. Therefore either the exiting process sees the mark and closes
    /// the table, or the caller sees the exit.
    fn links(&self) -> &Links<Self>;

    /// Returns the exit, if the process has exited.
    fn exit(&self) -> Option<Exit>;

    fn has_ended(&self) -> bool;

    /// Returns whether the mailbox is closed. An exiting process first closes its mailbox, and later publishes its
    /// exit. If the mailbox is closed, the exit of the process has already begun, and no link can change this exit.
    fn is_closed(&self) -> bool;

    /// Puts a signal into the mailbox.
    ///
    /// # Errors
    /// Returns the signal if the mailbox is closed.
    fn put(&self, signal: Signal) -> Result<Wakes, Signal>;

    /// Puts the `Down` event of a monitor into the mailbox. Returns `None` if the mailbox is closed.
    fn put_down(&self, number: u64, pid: Pid, reason: &Exit) -> Option<Wakes>;

    /// Removes the unread `Down` event of a monitor from the mailbox, if this event is one of the newest events in the
    /// mailbox.
    fn discard_down(&self, number: u64);

    /// Marks the process as killed. Returns false if the process was already marked. In this case the process exits
    /// with the earlier reason.
    fn mark_killed(&self) -> bool;

    /// Wakes a process that the caller has marked as killed, so that the process exits. The caller must not hold the
    /// lock of a table. Returns false for a mailbox or a receiver that belongs to no process. In this case, the caller
    /// must call [`exit_outside`](Self::exit_outside).
    #[must_use]
    fn wake_killed(&self) -> bool;

    /// Closes a mailbox or a receiver that belongs to no process. `exit` is its exit. The caller must have marked the
    /// mailbox or receiver as killed. The close runs user code, so the caller must hold no lock.
    fn exit_outside(this: &Ref<Self>, exit: &Exit);
}

/// The table of links and monitors of one process.
#[derive(Debug)]
pub(crate) struct Links<E: ?Sized>(Lock<LinkTable<E>>);

impl<E: ?Sized> Default for Links<E> {
    fn default() -> Self {
        Self(Lock::new(LinkTable::default()))
    }
}

/// Contents of a table of links and monitors. One entry is stored inline, because most processes have only one link or
/// monitor.
#[derive(Debug)]
struct LinkTable<E: ?Sized> {
    one: Option<(LinkEntry, Ref<E>)>,
    more: Option<Box<More<E>>>,
}

/// Key of an entry in the table of a process, which is the owner of the table. The entry stands for another process,
/// which receives the exit of the owner. The two processes are linked, or the other process monitors the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LinkEntry {
    /// [Word](Pid::word) of the other process's pid. The word is sufficient, because linked and monitoring processes
    /// belong to the same runtime.
    word: u64,
    /// Number of the monitor. For a link, the value is 0. No monitor has the number 0.
    number: u64,
}

impl LinkEntry {
    fn link(pid: Pid) -> Self {
        Self { word: pid.word(), number: 0 }
    }

    /// Returns the key of a monitor. The process `pid` has set the monitor, and `number` is the number of the monitor.
    fn monitor(pid: Pid, number: u64) -> Self {
        debug_assert_ne!(number, 0, "numbers begin further up");
        Self { word: pid.word(), number }
    }
}

#[derive(Debug)]
struct More<E: ?Sized> {
    /// Whether the process traps exits. If the process traps exits, the exit of a linked process becomes an event in
    /// the mailbox.
    traps: bool,
    ties: BTreeMap<LinkEntry, Ref<E>>,
    /// Number of links in `ties`. The other entries of `ties` are monitors.
    links: usize,
    /// The processes that this process monitors.
    watched: Watched<E>,
    /// The exit that a link has propagated to this process. The process exits with this exit.
    propagated: Option<Exit>,
}

impl<E: ?Sized> Default for LinkTable<E> {
    fn default() -> Self {
        Self { one: None, more: None }
    }
}

impl<E: ?Sized> Default for More<E> {
    fn default() -> Self {
        Self { traps: false, ties: BTreeMap::new(), links: 0, watched: Watched::default(), propagated: None }
    }
}

/// Effect of a linked process's exit on the process that owns the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Nothing,
    Event,
    Death,
}

impl<E: ?Sized> LinkTable<E> {
    fn traps(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.traps)
    }

    /// Returns the effect of a linked process's exit on the process that owns the table. This function does not check
    /// whether the two processes are linked.
    fn verdict(&self, exit: &Exit) -> Verdict {
        match () {
            () if self.traps() => Verdict::Event,
            () if exit.is_normal() => Verdict::Nothing,
            () => Verdict::Death,
        }
    }

    /// Removes the link to the process `from`, and returns the effect of the exit of `from` on the process that owns
    /// the table. If the two processes were not linked, the exit has no effect.
    fn take_link_exit(&mut self, from: Pid, exit: &Exit) -> Verdict {
        let linked = self.cut(LinkEntry::link(from)).is_some() || planted!("links_take_exit_without_link");
        if linked { self.verdict(exit) } else { Verdict::Nothing }
    }

    /// Marks a monitor as notified. Returns whether the `Down` event of the monitor must be delivered.
    fn take_monitor_exit(&mut self, number: u64) -> bool {
        let known = self.more.as_mut().is_some_and(|more| more.watched.notify(number));
        known || planted!("links_down_ignores_demonitor")
    }

    fn more(&mut self) -> &mut More<E> {
        self.more.get_or_insert_default()
    }

    fn link_count(&self) -> usize {
        let one = self.one.as_ref().is_some_and(|(tie, _)| tie.number == 0);
        self.more.as_ref().map_or(0, |more| more.links) + usize::from(one)
    }

    #[inline]
    fn get(&self, tie: LinkEntry) -> Option<&Ref<E>> {
        match &self.one {
            Some((one, other)) if *one == tie => Some(other),
            _ => self.more.as_ref()?.ties.get(&tie),
        }
    }

    /// Adds an entry. The table must not contain this entry yet.
    #[inline]
    fn add(&mut self, tie: LinkEntry, other: Ref<E>) {
        if self.one.is_none() {
            self.one = Some((tie, other));
        } else {
            let more = self.more();
            more.links += usize::from(tie.number == 0);
            more.ties.insert(tie, other);
        }
    }

    #[inline]
    fn cut(&mut self, tie: LinkEntry) -> Option<Ref<E>> {
        match &self.one {
            Some((one, _)) if *one == tie => self.one.take().map(|(_, other)| other),
            _ => {
                let more = self.more.as_mut()?;
                let other = more.ties.remove(&tie)?;
                more.links -= usize::from(tie.number == 0);
                Some(other)
            }
        }
    }
}

impl<E: Linkable + ?Sized> Links<E> {
    /// Sets whether the process traps exits. Returns the previous setting.
    pub(crate) fn trap(&self, on: bool) -> bool {
        let mut table = self.0.lock();
        (on || table.more.is_some()) && std::mem::replace(&mut table.more().traps, on)
    }

    /// Returns the exit that a link has propagated to the process.
    pub(crate) fn propagated(&self) -> Option<Exit> {
        self.0.lock().more.as_ref().and_then(|more| more.propagated.clone())
    }

    /// Returns the pids of at most `most` linked processes.
    pub(crate) fn linked(&self, most: usize) -> Vec<Pid> {
        let table = self.0.lock();
        // The search ends at the last link. Therefore a process without links does not search its monitors.
        let most = most.min(table.link_count());
        let one = table.one.iter().map(|(tie, other)| (tie, other));
        let more = table.more.iter().flat_map(|more| &more.ties);
        one.chain(more).filter(|(tie, _)| tie.number == 0).take(most).map(|(_, other)| other.pid()).collect()
    }

    /// Removes a monitor whose `Down` event was just read from the mailbox. Returns true if the process must receive
    /// this event.
    pub(crate) fn collect(&self, number: u64) -> bool {
        self.0.lock().more.as_mut().is_some_and(|more| more.watched.collect(number))
    }

    /// Closes the table of a process that has published its exit, and notifies the linked processes and the watchers in
    /// the table. The watcher that called `spawn_monitor` is not in the table. Returns true if a watcher or a linked
    /// process received the exit. A linked process receives the exit only if the exit of the linked process has not
    /// begun.
    pub(crate) fn dissolve(&self, pid: Pid, exit: &Exit) -> bool {
        let mut table = self.0.lock();
        // The exit is already published, so no thread adds an entry after this point.
        let (one, more) = (table.one.take(), table.more.take());
        drop(table);
        let entries = || {
            let one = one.iter().map(|(tie, other)| (tie, other));
            one.chain(more.iter().flat_map(|more| &more.ties))
        };
        let propagated = OnceCell::new();
        let for_peers = || propagated.get_or_init(|| exit_for_peers(pid, exit));
        let (mut killed_outside, mut received) = (Vec::new(), false);
        // A foreign waker may block until a process of this table has run. Therefore all processes are notified first.
        delay_wakers(|| {
            for (tie, other) in entries() {
                if tie.number != 0 {
                    received |= notify_watcher(other, tie.number, pid, exit);
                    continue;
                }
                let effect = notify_peer(other, pid, exit, for_peers(), |table| table.take_link_exit(pid, exit));
                received |= effect.is_received;
                if effect.is_killed && !other.wake_killed() {
                    killed_outside.push(other);
                }
            }
        });
        // The exit of a mailbox outside a process runs user code. Therefore this exit begins after all notifications.
        killed_outside.into_iter().for_each(|other| E::exit_outside(other, for_peers()));
        drop_entries(pid, one, more);
        received
    }
}

/// Drops the entries of a table after all notifications. An entry may hold the last reference to another process or to
/// an attached receiver. The drop of this reference runs destructors of the user, so each panic is caught.
fn drop_entries<E: Linkable + ?Sized>(pid: Pid, one: Option<(LinkEntry, Ref<E>)>, more: Option<Box<More<E>>>) {
    if let Some((_, other)) = one {
        let _ = drop_caught(other);
    }
    let Some(more) = more else { return };
    let More { ties, watched, propagated, .. } = *more;
    // `propagated` may hold the last reference to the error of another process. The destructor of this error is user
    // code.
    let _ = drop_caught(propagated);
    for other in ties.into_values() {
        let _ = drop_caught(other);
    }
    for (number, watched) in watched.into_watched() {
        let cut = watched.links().0.lock().cut(LinkEntry::monitor(pid, number));
        let _ = drop_caught((cut, watched));
    }
}

/// Notifies a watcher of the exit of a process. If the monitor was removed, the watcher is not notified. Returns
/// whether the watcher was notified.
fn notify_watcher<E: Linkable + ?Sized>(watcher: &Ref<E>, number: u64, pid: Pid, exit: &Exit) -> bool {
    let mut table = watcher.links().0.lock();
    let wakes = if table.take_monitor_exit(number) { watcher.put_down(number, pid, exit) } else { None };
    drop(table);
    let is_notified = wakes.is_some();
    if let Some(wakes) = wakes {
        wakes.wake_behind();
    }
    is_notified
}

/// Returns the exit that a process propagates to its linked processes. `exit` is the exit of the process itself. In a
/// chain of links, the returned exit contains the pid of the first process that exited.
pub(crate) fn exit_for_peers(pid: Pid, exit: &Exit) -> Exit {
    let mut first = exit;
    let mut origin = pid;
    while let Exit::Linked { origin: further, reason } = first {
        (origin, first) = (*further, reason);
    }
    match exit {
        // Usually an exit `Linked` contains no further exit `Linked`. In this case, a clone of the exit only increments
        // the reference count of the reason.
        Exit::Linked { reason, .. } if std::ptr::eq(&**reason, first) => exit.clone(),
        _ => Exit::Linked { origin, reason: Arc::new(first.clone()) },
    }
}

/// Result of [`notify_peer`].
#[must_use]
struct Effect {
    /// Whether the process received the exit.
    is_received: bool,
    /// Whether the process was marked as killed. In this case, the caller must make the process exit.
    is_killed: bool,
}

/// Applies the exit of the process `from` to `peer`. The function `verdict` decides the effect on `peer`. If the exit
/// of `peer` has begun, `peer` does not receive the exit of `from`.
///
/// If `peer` was already killed, `peer` counts as a receiver of the exit in only one case: a link has killed `peer`
/// with a failure. In this case, `peer` itself exits with this failure, and thus reports a failure. If `peer` was
/// killed without a link, `peer` exits with `Killed`, and `Killed` is no failure.
fn notify_peer<E: Linkable + ?Sized>(
    peer: &Ref<E>,
    from: Pid,
    exit: &Exit,
    propagated: &Exit,
    verdict: impl FnOnce(&mut LinkTable<E>) -> Verdict,
) -> Effect {
    let mut table = peer.links().0.lock();
    let is_received = match verdict(&mut table) {
        Verdict::Nothing => false,
        Verdict::Event => {
            let put = peer.put(Signal::Exit { from, reason: exit.clone() });
            drop(table);
            let received = put.is_ok();
            settle(put);
            received
        }
        Verdict::Death => {
            let receives = !peer.is_closed();
            if peer.mark_killed() {
                if receives {
                    table.more().propagated = Some(propagated.clone());
                }
                return Effect { is_received: receives, is_killed: true };
            }
            // `peer` was already killed, so `peer` exits with an earlier exit. The earlier exit is `Killed`, or the
            // exit that another link has propagated. If the earlier exit is `Killed`, the failure of the process `from`
            // would not be visible in this exit. Therefore `peer` does not count as a receiver of the failure.
            let lives = !peer.has_ended();
            lives && table.more.as_ref().and_then(|more| more.propagated.as_ref()).is_some_and(Exit::is_failure)
        }
    };
    Effect { is_received, is_killed: false }
}

/// Performs the wake-ups for a signal after the lock of the table was released. Drops a signal that the mailbox
/// refused.
fn settle(put: Result<Wakes, Signal>) {
    match put {
        Ok(wakes) => wakes.wake_behind(),
        Err(refused) => drop(drop_caught(refused)),
    }
}

type Guard<'a, E> = LockGuard<'a, LinkTable<E>>;

/// Locks two tables in the order of their addresses. The fixed order prevents a deadlock.
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

/// Reason why a link cannot be set: one of the two processes has exited.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    Caller,
    Other,
}

/// Links two processes. `handle` is a reference to the caller. If the caller and the other process are the same
/// process, nothing changes. The other process may have exited, or `other` may be an error. In this case, a caller that
/// traps exits receives an exit event.
///
/// # Errors
/// Returns `Gone` if the caller has exited. Also returns `Gone` if the other process does not exist and the caller does
/// not trap exits.
///
/// Without `inline`, some builds inline neither this function nor [`unlink`]. In these builds, the benchmark
/// `link-unlink` takes 9 % more instructions.
#[inline]
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
                    // This thread still holds the lock of `own`. The exit of the other process may now find the entry
                    // in `theirs`. To notify the caller, the exit of the other process must then wait for the lock of
                    // `own`. Therefore the early unlock of `theirs` has no visible effect.
                    drop(theirs);
                    own.add(LinkEntry::link(pid), other);
                }
                return Ok(());
            }
            Exit::NoProcess
        }
    };
    link_absent(caller, pid, absent)
}

/// Links the caller with a process that does not exist.
#[cold]
fn link_absent<E: Linkable + ?Sized>(caller: &E, pid: Pid, absent: Exit) -> Result<(), Gone> {
    let own = caller.links().0.lock();
    if caller.has_ended() {
        return Err(Gone::Caller);
    }
    // If the table of the caller still contains a link to the other process, the exit of the other process has not
    // notified the caller yet. The exit of the other process will notify the caller later, through this link. An entry
    // contains only a part of the pid. Therefore an entry may be equal to the entry of a pid of another runtime.
    if caller.pid().is_in_same_runtime(pid) && own.get(LinkEntry::link(pid)).is_some() {
        return Ok(());
    }
    if !own.traps() {
        return Err(Gone::Other);
    }
    let put = caller.put(Signal::Exit { from: pid, reason: absent });
    drop(own);
    settle(put);
    Ok(())
}

/// Removes the link between two processes. Returns false if the processes were not linked.
#[inline]
pub(crate) fn unlink<E: Linkable + ?Sized>(caller: &E, pid: Pid) -> bool {
    let me = caller.pid();
    if !me.is_in_same_runtime(pid) {
        return false;
    }
    let links = caller.links();
    let Some(other) = links.0.lock().get(LinkEntry::link(pid)).cloned() else { return false };
    let (mut own, mut theirs) = lock_both(links, other.links());
    let cut = (own.cut(LinkEntry::link(pid)), theirs.cut(LinkEntry::link(me)));
    // The references are dropped after the unlock. The drop of the last reference to a process runs destructors of the
    // user.
    drop((own, theirs));
    cut.0.is_some()
}

/// Sets a monitor on another process. `handle` is a reference to the caller. If the other process has exited, or
/// `other` is an error, this function delivers the `Down` event immediately.
pub(crate) fn monitor<E: Linkable + ?Sized>(
    caller: &E,
    handle: Ref<E>,
    pid: Pid,
    other: Result<Ref<E>, Exit>,
) -> MonitorRef {
    let me = caller.pid();
    // A process that monitors itself would never receive the `Down` event, because this event is sent after the exit of
    // the process.
    let is_itself = me == pid;
    let absent = match other {
        Err(absent) => absent,
        Ok(other) if !is_itself => {
            let (mut own, mut theirs) = lock_both(caller.links(), other.links());
            if !caller.has_ended() && !other.has_ended() {
                let vacant = own.more().watched.vacant();
                theirs.add(LinkEntry::monitor(me, vacant.number()), handle);
                // The early unlock of `theirs` has no visible effect, because this thread still holds the lock of
                // `own`: see the comment in the function `link`.
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
    let monitor = MonitorRef::new(me, own.more().watched.vacant().notify());
    let wakes = caller.put_down(monitor.number(), pid, &absent);
    drop(own);
    if let Some(wakes) = wakes {
        wakes.wake_behind();
    }
    monitor
}

/// Removes a monitor. Returns true if the `Down` event of the monitor was not delivered. In this case, the event will
/// never be delivered. If `flush` is true, this call also discards a `Down` event that was delivered and not read.
pub(crate) fn demonitor<E: Linkable + ?Sized>(caller: &E, monitor: MonitorRef, flush: bool) -> bool {
    let me = caller.pid();
    if !monitor.is_of(me) {
        return false;
    }
    let mut own = caller.links().0.lock();
    let Some(more) = &mut own.more else { return false };
    let Some(watched) = more.watched.remove(monitor.number()) else {
        let is_unread = flush && more.watched.collect(monitor.number());
        drop(own);
        if is_unread {
            caller.discard_down(monitor.number());
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

/// A monitor that `spawn_monitor` sets on the child. Until the child exits, the child stores this monitor outside the
/// table of links and monitors. Therefore a child without other links and monitors needs no table.
///
/// The watcher may remove the monitor, or may exit. The child then still stores the monitor, but the monitor notifies
/// no process.
#[derive(Debug)]
pub(crate) struct Watch<E: ?Sized> {
    watcher: Ref<E>,
    number: u64,
}

impl<E: Linkable + ?Sized> Watch<E> {
    /// Sets the monitor before the child exists.
    pub(crate) fn set(watcher: Ref<E>) -> Self {
        let mut own = watcher.links().0.lock();
        let watched = &mut own.more().watched;
        let number = if watcher.has_ended() { watched.spend() } else { watched.vacant().watch(None) };
        drop(own);
        Self { watcher, number }
    }

    /// Returns the number of the monitor among the monitors of the watcher.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Notifies the watcher of the child's exit. The child must have published its exit, or must never have started.
    /// Returns whether the watcher was notified.
    pub(crate) fn notify(self, pid: Pid, exit: &Exit) -> bool {
        notify_watcher(&self.watcher, self.number, pid, exit)
    }
}

/// Options of a spawn: whether the parent is linked with the child, and whether the parent monitors the child.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SpawnLinks {
    pub(crate) link: bool,
    pub(crate) monitor: bool,
}

/// Sets the requested link and the requested monitor between a process and its child. The child has not started.
/// Therefore the child cannot exit before this function has set the link and the monitor.
pub(crate) fn adopt<E: Linkable + ?Sized>(parent: &Ref<E>, child: &Ref<E>, ties: SpawnLinks) -> Option<MonitorRef> {
    let pid = child.pid();
    if ties.link && link(&**parent, parent.clone(), pid, Ok(child.clone())) == Err(Gone::Caller) {
        // The parent has just exited. The child receives the exit of the parent as if the link had existed before this
        // exit.
        deliver_exit(child, parent.pid(), &parent.exit().unwrap_or(Exit::Killed));
    }
    ties.monitor.then(|| monitor(&**parent, parent.clone(), pid, Ok(child.clone())))
}

/// Applies the exit of the process `pid` to `peer`, as if the two processes were linked. A spawn with a link calls this
/// function if the child was never started, or if the parent has just exited.
pub(crate) fn deliver_exit<E: Linkable + ?Sized>(peer: &Ref<E>, pid: Pid, exit: &Exit) {
    let propagated = exit_for_peers(pid, exit);
    let effect = notify_peer(peer, pid, exit, &propagated, |table| table.verdict(exit));
    if effect.is_killed && !peer.wake_killed() {
        E::exit_outside(peer, &propagated);
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use std::error::Error;
    use std::fmt;

    use super::*;
    use crate::{Context, Runtime};

    /// The destructor of an error in a propagated exit may panic.
    #[test]
    fn a_panic_of_the_propagated_exit_does_not_interrupt_the_exit() {
        #[derive(Debug)]
        struct Bomb;
        impl fmt::Display for Bomb {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bomb")
            }
        }
        impl Error for Bomb {}
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("on purpose");
            }
        }
        let rt = Runtime::builder().workers(0).build().unwrap();
        let process = rt.spawn(async |mut ctx: Context| ctx.receive().await.map(drop)).address();
        let links = process.control().head.links();
        links.0.lock().more().propagated = Some(Exit::failed(Bomb));
        assert!(!links.dissolve(process.pid(), &Exit::Normal));
        rt.kill(process.pid()).unwrap();
    }
}

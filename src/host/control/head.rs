//! The part of a control block that does not depend on the type of its messages: who a process is, what it does now, what
//! it waits for and how it ended, and whom that is news to.

use std::pin::Pin;
use std::task::{Context, Poll};

use once_cell::race::OnceBox;

use crate::host::Host;
use crate::host::cancel::CancelRegistration;
use crate::host::cancel::inherited::Inherited;
use crate::host::control::AnyControl;
use crate::host::link::Links;
use crate::host::registry::{LocalId, groups, names};
use crate::host::timer::pending::Pending;
use crate::observe::{Counter, State};
use crate::platform::clock::Instant;
use crate::platform::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use crate::platform::sync::{Event, EventListener, OnceLock};
use crate::process::catch::Guard;
use crate::process::event::Signal;
use crate::process::exit::{Exit, Reason};
use crate::process::limits::{Limits, Meter};
use crate::process::pid::Pid;
use crate::process::state::RunState;
use crate::process::state::priority::Priority;
use crate::process::yields::Yields;

/// Bits of [`Head::flags`].
pub(crate) mod flag {
    /// Ends at the next scheduling point.
    pub(crate) const KILLED: u16 = 1;
    /// Was told to end.
    pub(crate) const CANCELLED: u16 = 1 << 1;
    /// Its first step is done.
    pub(crate) const STARTED: u16 = 1 << 2;
    /// Says itself when it has started.
    pub(crate) const BY_HAND: u16 = 1 << 3;
    /// A mailbox outside any process: nobody runs it, its owner reads it.
    pub(crate) const OUTSIDE: u16 = 1 << 4;
    /// Its exit is known.
    pub(crate) const ENDED: u16 = 1 << 5;
    /// Somebody listens, or did, for news of it.
    pub(crate) const LISTENED: u16 = 1 << 6;
    /// Its steps are counted.
    pub(crate) const LIMITED: u16 = 1 << 7;
    /// Its runtime has an observer.
    pub(crate) const OBSERVED: u16 = 1 << 8;
    /// Has a table of links and monitors.
    pub(crate) const TIED: u16 = 1 << 9;
    /// Of high priority, or of low.
    pub(crate) const HIGH: u16 = 1 << 10;
    pub(crate) const LOW: u16 = 1 << 11;
    /// May have names, or be in groups, or watch some.
    pub(crate) const KNOWN: u16 = 1 << 12;
    /// Its supervisor says when it ends.
    pub(crate) const SUPERVISED: u16 = 1 << 13;
    /// A supervisor that has none itself: in an orderly shutdown it ends before those that have nothing to do with any.
    pub(crate) const ROOT: u16 = 1 << 14;
    /// Its new code has not said yet that it has started.
    pub(crate) const UPGRADING: u16 = 1 << 15;
}

/// Of a count; as a word it is what is added.
#[derive(Debug, Clone, Copy)]
#[repr(u32)]
pub(crate) enum Change {
    More = 1,
    Less = u32::MAX,
}

/// Not yet scheduled for the first time; the states proper follow.
const NEW: u8 = u8::MAX;

/// The part of a control block that does not depend on the type of its messages.
///
/// A million idle processes pay for each byte: what most never need is in [`Rare`].
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Head {
    /// Whether it is to be run. Of what is no task it is over.
    pub(crate) run: RunState,
    state: AtomicU8,
    flags: AtomicU16,
    /// How many calls and sleeps it waits for, beside its yields.
    waiting: AtomicU32,
    /// Of its pid; the rest of that is the runtime's.
    index: u32,
    generation: u32,
    host: Host,
    /// When it became ready, in ns of the runtime's clock, if this turn is sampled; else 0.
    ready_at: AtomicU64,
    rare: OnceBox<Rare>,
}

/// What most processes never need, made when it first is.
#[derive(Debug)]
struct Rare {
    /// Whom it is tied to.
    links: Links<dyn AnyControl>,
    inherited: Inherited,
    yields: Yields,
    /// Told when the process has started, is cancelled, has ended: whoever waits looks which.
    news: Event,
    cancel: OnceBox<(Reason, Instant)>,
    /// How it ended, if it did and not normally.
    exit: OnceBox<Abnormal>,
    rarer: OnceBox<Rarer>,
}

/// An exit that is not normal.
#[derive(Debug)]
struct Abnormal {
    exit: Exit,
    /// A link, a monitor or a join handle has received it, or it was reported as one that none of them receives.
    received: AtomicBool,
}

/// What fewer still need.
#[derive(Debug, Default)]
struct Rarer {
    /// What was counted of what it waits for by those who do not step it: with the other count the sum.
    waiting: AtomicU32,
    /// How many [`Ended`](crate::Ended) wait for it.
    awaited: AtomicU32,
    /// That its cancel token knows it.
    heed: OnceLock<CancelRegistration>,
    meter: Meter,
    /// What will be sent for it.
    pending: Pending,
    names: names::Own,
    groups: groups::Own,
}

/// Under a model checker atomics and locks are larger.
#[cfg(not(any(procession_loom, procession_shuttle)))]
const _: () = assert!(size_of::<Rare>() <= 112);

/// What a process is given to begin with, if anything.
#[derive(Debug, Default)]
pub(crate) struct SpawnSettings {
    rare: OnceBox<Rare>,
    flags: u16,
}

impl SpawnSettings {
    #[inline]
    pub(crate) fn new(inherited: Inherited, limits: Option<Box<Limits>>) -> Self {
        if inherited.is_empty() && limits.is_none() { Self::default() } else { Self::some(inherited, limits) }
    }

    fn some(inherited: Inherited, limits: Option<Box<Limits>>) -> Self {
        let rare = Rare::new(inherited);
        let mut flags = 0;
        if let Some(limits) = limits.filter(|limits| limits.concern_steps()) {
            flags = flag::LIMITED;
            let _ = rare.rarer.set(Box::new(Rarer { meter: Meter::new(*limits), ..Rarer::default() }));
        }
        Self { rare: OnceBox::with_value(rare), flags }
    }
}

impl Rare {
    fn new(inherited: Inherited) -> Box<Self> {
        Box::new(Self {
            links: Links::default(),
            inherited,
            yields: Yields::new(),
            news: Event::new(),
            cancel: OnceBox::new(),
            exit: OnceBox::new(),
            rarer: OnceBox::new(),
        })
    }

    fn rarer(&self) -> &Rarer {
        self.rarer.get_or_init(Box::default)
    }
}

impl Head {
    #[inline]
    pub(crate) fn new(run: RunState, place: LocalId, host: Host, flags: u16, given: SpawnSettings) -> Self {
        let observed = if host.shared().observer.is_some() { flag::OBSERVED } else { 0 };
        let flags = flags | given.flags | observed;
        Self {
            run,
            state: AtomicU8::new(NEW),
            flags: AtomicU16::new(flags),
            waiting: AtomicU32::new(0),
            index: place.index,
            generation: place.generation,
            host,
            ready_at: AtomicU64::new(0),
            rare: given.rare,
        }
    }

    /// What counts its steps, if they are limited.
    #[inline]
    pub(crate) fn meter(&self) -> Option<&Meter> {
        if self.has(flag::LIMITED) { self.rarer_if_any().map(|rarer| &rarer.meter) } else { None }
    }

    #[inline]
    pub(crate) fn pid(&self) -> Pid {
        self.host().shared().pid_table.pid(self.place())
    }

    #[inline]
    pub(crate) fn place(&self) -> LocalId {
        LocalId { index: self.index, generation: self.generation }
    }

    #[inline]
    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// Counts one, for the runtime.
    #[inline]
    pub(crate) fn count(&self, counter: Counter) {
        self.host.shared().metrics.add(counter, 1);
    }

    fn rare(&self) -> &Rare {
        self.rare.get_or_init(|| Rare::new(Inherited::default()))
    }

    fn rarer_if_any(&self) -> Option<&Rarer> {
        self.rare.get()?.rarer.get()
    }

    /// The table of its yields. To look at what there is, [`yields_if_any`](Self::yields_if_any) makes none.
    #[inline]
    pub(crate) fn yields(&self) -> &Yields {
        &self.rare().yields
    }

    #[inline]
    pub(crate) fn yields_if_any(&self) -> Option<&Yields> {
        self.rare.get().map(|rare| &rare.yields)
    }

    /// The names that it has. Whoever gives it some calls this first, so that its end finds them.
    pub(crate) fn names(&self) -> &names::Own {
        self.set(flag::KNOWN);
        &self.rare().rarer().names
    }

    /// The groups that it is in or watches, as [`names`](Self::names).
    pub(crate) fn groups(&self) -> &groups::Own {
        self.set(flag::KNOWN);
        &self.rare().rarer().groups
    }

    /// Its links and monitors. Whoever ties it to something calls this first, so that its end finds that: the mark and
    /// the end are read-modify-writes of one word, so either the end sees the mark, or who asks for its end after this
    /// sees that.
    pub(crate) fn links(&self) -> &Links<dyn AnyControl> {
        if !self.has(flag::TIED) {
            self.set(flag::TIED);
        }
        &self.rare().links
    }

    fn links_if_any(&self) -> Option<&Links<dyn AnyControl>> {
        self.rare.get().map(|rare| &rare.links)
    }

    /// Whether a signal that was in its mailbox and is read now is still wanted: what a monitor told is if that still
    /// stands.
    pub(crate) fn heeds(&self, signal: &Signal) -> bool {
        match *signal {
            Signal::Down { number, .. } => self.links_if_any().is_some_and(|links| links.collect(number)),
            Signal::Joined { number, .. } | Signal::Left { number, .. } => self.groups().lock().watches(number),
            _ => true,
        }
    }

    /// How a process ends that has to die.
    pub(crate) fn fate(&self) -> Exit {
        self.links_if_any().and_then(Links::fate).unwrap_or(Exit::Killed)
    }

    pub(crate) fn inherited(&self) -> &Inherited {
        self.rare.get().map_or(Inherited::NOTHING, |rare| &rare.inherited)
    }

    /// Its token cancels it from now on.
    pub(crate) fn heed(&self, heed: CancelRegistration) {
        let _ = self.rare().rarer().heed.set(heed);
    }

    /// Its timers. To end them, [`pending_if_any`](Self::pending_if_any) makes no table.
    pub(crate) fn pending(&self) -> &Pending {
        &self.rare().rarer().pending
    }

    #[inline]
    pub(crate) fn pending_if_any(&self) -> Option<&Pending> {
        self.rarer_if_any().map(|rarer| &rarer.pending)
    }

    /// Counts what the process waits for beside its yields, a call, a sleep: one more, or one less. Whoever steps it, that
    /// is `here`, is alone with its count; others have one of their own.
    #[inline]
    pub(crate) fn wait_for(&self, change: Change, here: bool) {
        let change = change as u32;
        if here {
            self.waiting.store(self.waiting.load(Ordering::Relaxed).wrapping_add(change), Ordering::Relaxed);
        } else {
            self.rare().rarer().waiting.fetch_add(change, Ordering::Relaxed);
        }
    }

    /// How many answers it waits for, of whatever kind.
    pub(crate) fn outstanding(&self) -> usize {
        self.waiting() as usize + self.yields_if_any().map_or(0, Yields::outstanding)
    }

    /// Whether it waits for any, as far as its turn is concerned.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting() != 0 || self.yields_if_any().is_some_and(Yields::is_waiting)
    }

    /// For what it waits beside its yields.
    #[inline]
    fn waiting(&self) -> u32 {
        let elsewhere = self.rarer_if_any().map_or(0, |rarer| rarer.waiting.load(Ordering::Relaxed));
        self.waiting.load(Ordering::Relaxed).wrapping_add(elsewhere)
    }

    #[inline]
    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags.load(Ordering::SeqCst) & flag != 0
    }

    /// Sets a flag; true if it was not set before.
    #[inline]
    pub(crate) fn set(&self, flag: u16) -> bool {
        self.flags.fetch_or(flag, Ordering::SeqCst) & flag == 0
    }

    /// Takes a flag back.
    pub(crate) fn unset(&self, flag: u16) {
        self.flags.fetch_and(!flag, Ordering::SeqCst);
    }

    /// All flags at once: a turn looks once.
    #[inline]
    pub(crate) fn flags(&self) -> u16 {
        self.flags.load(Ordering::SeqCst)
    }

    /// Notes the state that a process with these flags is in now. Without an observer that is a store and a branch.
    #[inline]
    pub(crate) fn enter(&self, flags: u16, to: State) {
        if flags & flag::OBSERVED == 0 {
            self.enter_unseen(to);
        } else {
            let from = self.state();
            self.state.store(to as u8, Ordering::Relaxed);
            self.host().observe(self, from, to);
        }
    }

    /// The same for who has looked whether anybody observes it.
    #[inline]
    pub(crate) fn enter_unseen(&self, to: State) {
        self.state.store(to as u8, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn state(&self) -> Option<State> {
        State::from_u8(self.state.load(Ordering::Relaxed))
    }

    /// Notes that it became ready. Returns how urgent it is, and whether it is so for the first time.
    #[inline]
    pub(crate) fn ready(&self) -> (Priority, bool) {
        let host = self.host();
        if host.shared().metrics.tick() {
            self.ready_at.store(host.now().ns().max(1), Ordering::Relaxed);
        }
        let is_new = self.state.load(Ordering::Relaxed) == NEW;
        let flags = self.flags.load(Ordering::Relaxed);
        if flags & (flag::OBSERVED | flag::HIGH | flag::LOW) != 0 {
            return (self.ready_and_not_like_most(flags), is_new);
        }
        self.enter_unseen(State::Ready);
        (Priority::Normal, is_new)
    }

    #[cold]
    fn ready_and_not_like_most(&self, flags: u16) -> Priority {
        self.enter(flags, State::Ready);
        match flags & (flag::HIGH | flag::LOW) {
            0 => Priority::Normal,
            flag::HIGH => Priority::High,
            _ => Priority::Low,
        }
    }

    /// Notes that a worker runs it now. If this turn is sampled, the caller measures it: on this host, from this moment.
    #[inline]
    pub(crate) fn running(&self) -> Option<(Host, Instant)> {
        if self.ready_at.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let since = self.ready_at.swap(0, Ordering::Relaxed);
        let host = self.host();
        let now = host.now();
        host.shared().metrics.sample_delay(now.ns().saturating_sub(since));
        Some((host.clone(), now))
    }

    /// How it ended, once it did.
    #[inline]
    pub(crate) fn exit(&self) -> Option<Exit> {
        let exit = || self.abnormal().map_or(Exit::Normal, |abnormal| abnormal.exit.clone());
        self.has_ended().then(exit)
    }

    fn abnormal(&self) -> Option<&Abnormal> {
        self.rare.get()?.exit.get()
    }

    /// A link, a monitor or a join handle has received how it ended.
    #[cold]
    pub(crate) fn received_exit(&self) {
        if let Some(abnormal) = self.abnormal() {
            abnormal.received.store(true, Ordering::SeqCst);
        }
    }

    /// How it ended, if that is not normal and was not received. It counts as received from now on: of two callers one gets
    /// it. An `Ended` that still waits is to receive it, as a monitor would.
    pub(crate) fn take_unreceived(&self) -> Option<Exit> {
        let abnormal = self.abnormal()?;
        let is_awaited = self.rarer_if_any().is_some_and(|rarer| rarer.awaited.load(Ordering::SeqCst) != 0);
        let is_free = !is_awaited && !abnormal.received.swap(true, Ordering::SeqCst);
        is_free.then(|| abnormal.exit.clone())
    }

    /// Counts those that wait for its end: one more, or one less.
    pub(crate) fn await_end(&self, change: Change) {
        self.rare().rarer().awaited.fetch_add(change as u32, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.has(flag::ENDED)
    }

    /// It has ended: whoever wants to hear of it does.
    #[inline]
    pub(crate) fn set_exit(&self, exit: &Exit) {
        if !exit.is_normal() {
            let _ = self.rare().exit.set(Box::new(Abnormal { exit: exit.clone(), received: AtomicBool::new(false) }));
        }
        let former = self.announce(flag::ENDED);
        if former & flag::TIED != 0
            && let Some(links) = self.links_if_any()
        {
            // That of the first end, if there were two at once.
            let exit = self.abnormal().map_or(&Exit::Normal, |abnormal| &abnormal.exit);
            if links.dissolve(self.pid(), exit) {
                self.received_exit();
            }
        }
    }

    /// Sets a flag that others wait for, and tells them. Returns all that were set before.
    ///
    /// Whoever listens sets `LISTENED` before it looks at the flags; both are read-modify-writes of one word, so
    /// either the listener sees the flag or this sees the listener.
    #[inline]
    fn announce(&self, flag: u16) -> u16 {
        let former = self.flags.fetch_or(flag, Ordering::SeqCst);
        if former & flag::LISTENED != 0 {
            self.rare().news.notify(usize::MAX);
        }
        former
    }

    /// Polls until `check` finds something, sleeping in between on what is announced.
    pub(crate) fn poll_news<T>(
        &self,
        listener: &mut Listening,
        cx: &mut Context<'_>,
        check: impl FnMut() -> Option<T>,
    ) -> Poll<T> {
        if !self.has(flag::LISTENED) {
            self.set(flag::LISTENED);
        }
        poll_news(&self.rare().news, listener, cx, check)
    }

    /// Notes that it is asked to end, once, and tells those who wait for that. False if it was noted before.
    pub(super) fn set_cancel(&self, reason: Reason, deadline: Instant) -> bool {
        let is_first = self.rare().cancel.set(Box::new((reason, deadline))).is_ok();
        if is_first {
            self.announce(flag::CANCELLED);
        }
        is_first
    }

    /// Whether it was asked to end.
    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.has(flag::CANCELLED)
    }

    /// Why and until when it was asked to end.
    #[inline]
    pub(crate) fn cancel(&self) -> Option<(Reason, Instant)> {
        if self.is_cancelled() { self.cancel_if_any() } else { None }
    }

    #[cold]
    fn cancel_if_any(&self) -> Option<(Reason, Instant)> {
        self.rare.get()?.cancel.get().cloned()
    }

    #[inline]
    pub(crate) fn started(&self) {
        if self.announce(flag::STARTED) & flag::UPGRADING != 0 {
            self.unset(flag::UPGRADING);
        }
    }
}

/// How a future listens to an event.
#[derive(Debug, Default)]
pub(crate) struct Listening {
    listener: Option<EventListener>,
    guard: Guard,
}

/// Polls until `check` finds something, sleeping on `event` in between.
pub(crate) fn poll_news<T>(
    event: &Event,
    listening: &mut Listening,
    cx: &mut Context<'_>,
    mut check: impl FnMut() -> Option<T>,
) -> Poll<T> {
    loop {
        if let Some(found) = check() {
            listening.listener = None;
            return Poll::Ready(found);
        }
        match &mut listening.listener {
            // Looks once more after it has begun to listen: what came in between is seen then.
            None => listening.listener = Some(event.listen()),
            Some(waiting) => {
                if listening.guard.over(cx, |cx| Pin::new(waiting).poll(cx)).is_pending() {
                    return Poll::Pending;
                }
                listening.listener = None;
            }
        }
    }
}

//! Defines the head of a control block. The head does not depend on the message type. Therefore the mailbox is not in
//! the head. The head contains the identity, the flags, the state, the pending waits and the exit of a process. The
//! head also notifies the tasks that wait for the start, the cancellation or the exit of the process.

mod exit;

use std::borrow::Cow;
use std::task::{Context, Poll};

use once_cell::race::OnceBox;

use crate::host::Host;
use crate::host::cancel::CancelRegistration;
use crate::host::cancel::inherited::InheritedContext;
use crate::host::control::AnyControl;
use crate::host::control::listening::{Listening, poll_news};
use crate::host::control::steps::{LastWorker, LowSteps};
use crate::host::control::waits::{MoreWaits, Wait, WaitRecord, Waits};
use crate::host::link::Links;
use crate::host::registry::{LocalId, groups, names};
use crate::host::timer::pending::Pending;
use crate::observe::crash::AbnormalState;
use crate::observe::inspection::last_messages::MessageLog;
use crate::observe::metrics::{SampledProcess, begin_sampled_turn};
use crate::observe::{Counter, ProcessState, Sampled};
use crate::platform::clock::Instant;
use crate::platform::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use crate::platform::sync::{Event, Lock, OnceLock};
use crate::process::catch::{Held, notify};
use crate::process::event::Signal;
use crate::process::exit::{Exit, Reason};
use crate::process::limits::{Limits, Meter};
use crate::process::pid::Pid;
use crate::process::state::RunState;
use crate::process::state::priority::Priority;
use crate::process::yields::Yields;

/// Bits of [`Head::flags`].
pub(crate) mod flag {
    /// The process was killed. A killed process exits at its next scheduling point.
    pub(crate) const KILLED: u16 = 1;
    /// A cancellation has requested the exit of the process.
    pub(crate) const CANCELLED: u16 = 1 << 1;
    /// The process has started. Usually the process sets this flag at the end of its first step.
    pub(crate) const STARTED: u16 = 1 << 2;
    /// The process reports its own start explicitly.
    pub(crate) const MANUAL_START: u16 = 1 << 3;
    /// The mailbox contains urgent messages. The flag changes only under the lock of the mailbox.
    pub(crate) const URGENT: u16 = 1 << 4;
    /// The process has exited, and its exit is published.
    pub(crate) const ENDED: u16 = 1 << 5;
    /// A task waits, or has waited, for the start, the cancellation or the exit of the process.
    pub(crate) const LISTENED: u16 = 1 << 6;
    /// The steps of the process are limited, and therefore a meter measures each step.
    pub(crate) const LIMITED: u16 = 1 << 7;
    /// At least one of these conditions is true: the runtime has an observer, the runtime records the last messages, a
    /// trace records the events of the process, or the process is suspended.
    pub(crate) const OBSERVED: u16 = 1 << 8;
    /// The process has a table of links and monitors.
    pub(crate) const TIED: u16 = 1 << 9;
    /// The process has high priority. A process without `HIGH` and without `LOW` has normal priority.
    pub(crate) const HIGH: u16 = 1 << 10;
    pub(crate) const LOW: u16 = 1 << 11;
    /// Mark of a mailbox that belongs to no process. The owner of the mailbox reads the messages. The mailbox has no
    /// task. The mark is the combination of `HIGH` and `LOW`, because a mailbox that belongs to no process has no
    /// priority.
    pub(crate) const OUTSIDE: u16 = HIGH | LOW;
    /// The process may have names, be a member of groups, or monitor groups.
    pub(crate) const KNOWN: u16 = 1 << 12;
    /// The process has a supervisor. In an orderly shutdown, the supervisor terminates the process.
    pub(crate) const SUPERVISED: u16 = 1 << 13;
    /// The process is a top-level supervisor, so the process itself has no supervisor. An orderly shutdown cancels the
    /// top-level supervisors first.
    pub(crate) const TOP_LEVEL: u16 = 1 << 14;
    /// The process was upgraded to new code, and the new code has not reported its start yet.
    pub(crate) const UPGRADING: u16 = 1 << 15;
}

/// Change of a count by one. The code adds the value of the variant to the count with a wrapping addition.
#[derive(Debug, Clone, Copy)]
#[repr(u32)]
pub(crate) enum Change {
    More = 1,
    Less = u32::MAX,
}

/// Bit of [`Head::since`]: the next turn of the process is sampled, so the runtime measures the delay and the duration
/// of this turn. The real clock reaches a time with this bit only after 292 years.
const SAMPLED: u64 = 1 << 63;

/// Value of [`Head::since`] from the beginning of a sampled turn until the process waits.
const NO_TIME: u64 = SAMPLED - 1;

/// Value of the state field before the process is scheduled for the first time. All other values of the state field are
/// values of [`ProcessState`].
const NEW: u8 = u8::MAX;

/// The part of a control block that does not depend on the message type.
///
/// A million idle processes need a million heads, so a head must be small. Therefore the fields that most processes
/// never need are in [`Rare`].
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Head {
    /// Run state of the process's task. In a control block without a task, the run state is *Over*.
    pub(crate) run: RunState,
    state: AtomicU8,
    flags: AtomicU16,
    /// Number of calls and sleeps that the process waits for. Outstanding commands are not included. Only the thread
    /// that runs the process writes this field. If a change does not fit into this field, the thread changes
    /// [`RarestParts::waiting`] instead.
    waiting: AtomicU8,
    last_worker: LastWorker,
    steps: LowSteps,
    /// Index of the pid. The head stores only the index and the generation, because the other parts are the same for
    /// all pids of the runtime.
    index: u32,
    generation: u32,
    host: Host,
    /// Time of the runtime's clock, in ns. The meaning of the time depends on the bit [`SAMPLED`]:
    ///
    /// - If the bit is set, the next turn of the process is sampled, and the time is the time at which the process
    ///   became runnable.
    /// - If the bit is not set, and the process waits, the time is the time at which the process began to wait.
    since: AtomicU64,
    rare: OnceBox<Rare>,
    /// [Word](Pid::word) of the parent's pid. The parent is the process whose step spawned this process. The value is 0
    /// if this process has no parent.
    parent: u64,
}

/// Rarely used parts of the head. These parts are allocated in a box at the first use.
#[derive(Debug)]
struct Rare {
    /// Table of the links and monitors. The table contains monitors on this process, and monitors that this process has
    /// set.
    links: Links<dyn AnyControl>,
    inherited: InheritedContext,
    /// Record of the second operation that the process waits for. The records are for inspection only. The first record
    /// is in the control block.
    second_wait: WaitRecord,
    yields: Yields,
    /// Event for the start, the cancellation and the exit of the process. A notified waiter must check whether the
    /// process has started, was cancelled or has exited.
    news: Event,
    cancel: OnceBox<(Reason, Instant)>,
    /// Exit of the process, if the exit is not normal.
    exit: OnceBox<Abnormal>,
    rarest: OnceBox<RarestParts>,
}

/// An exit that is not normal, and details of this exit.
#[derive(Debug)]
struct Abnormal {
    /// The error in the exit is a user value, and the destructor of this value may panic. Any thread may drop the last
    /// reference to the process. Therefore a `Held` contains the exit, and catches the panic.
    exit: Held<Exit>,
    /// True if a link, a monitor or a join handle has received the exit. Also true if the exit was reported as
    /// unobserved.
    received: AtomicBool,
    /// Whether the runtime has already tried to report the exit as unobserved. If an `Exited` future was pending during
    /// this attempt, the drop of the last pending `Exited` future causes a further attempt.
    is_report_requested: AtomicBool,
    /// Data for the crash report. The value is `None` if the exit is no failure, or if this control block belongs to no
    /// process.
    crash: Option<AbnormalState>,
}

/// The most rarely used parts of the head. A process needs these parts even more rarely than [`Rare`]. The parts are
/// allocated in a box at the first use.
#[derive(Debug, Default)]
struct RarestParts {
    /// Second part of the number of waits. A thread that does not run the process changes only this part. The thread
    /// that runs the process changes this part only if `Head::waiting` is 0 or at its maximum. The total number of
    /// waits is the sum of this field and `Head::waiting`.
    waiting: AtomicU32,
    /// Records of the operations that the process waits for, from the third record onwards.
    waits: Lock<MoreWaits>,
    /// Number of pending [`Exited`](crate::future::Exited) futures of the process.
    awaited: AtomicU32,
    /// True if a message cannot end the wait of the process: see [`Head::set_ignores_messages`].
    ignores_messages: AtomicBool,
    /// The earliest time at which a timer will kill the process. The field stores the bitwise complement of the
    /// deadline in ns, so the initial value 0 means [`Instant::FAR`].
    kill_deadline: AtomicU64,
    /// Registration of the process with its cancel token.
    cancel_registration: OnceLock<CancelRegistration>,
    meter: Meter,
    /// Timers of the process. Each timer sends a message or calls a function at a later time.
    pending: Pending,
    names: names::Own,
    groups: groups::Own,
    /// The last messages of the process. Allocated at the first event, if the runtime records the last messages.
    messages: OnceBox<MessageLog>,
}

/// Limit of the size of [`Rare`]. Under a model checker the size is not checked, because the atomics and locks of a
/// model checker are larger.
#[cfg(not(any(procession_loom, procession_shuttle)))]
const _: () = assert!(size_of::<Rare>() <= 160);

/// Initial contents of a control block: the inherited values and the limits of the process.
#[derive(Debug, Default)]
pub(crate) struct SpawnSettings {
    rare: OnceBox<Rare>,
    flags: u16,
}

impl SpawnSettings {
    #[inline]
    pub(crate) fn new(inherited: InheritedContext, limits: Option<Box<Limits>>) -> Self {
        if inherited.is_empty() && limits.is_none() { Self::default() } else { Self::some(inherited, limits) }
    }

    fn some(inherited: InheritedContext, limits: Option<Box<Limits>>) -> Self {
        let rare = Rare::new(inherited);
        let mut flags = 0;
        if let Some(limits) = limits.filter(|limits| limits.limits_steps()) {
            flags = flag::LIMITED;
            let _ = rare.rarest.set(Box::new(RarestParts { meter: Meter::new(*limits), ..RarestParts::default() }));
        }
        Self { rare: OnceBox::with_value(rare), flags }
    }
}

impl Rare {
    fn new(inherited: InheritedContext) -> Box<Self> {
        Box::new(Self {
            links: Links::default(),
            inherited,
            second_wait: WaitRecord::none(),
            yields: Yields::new(),
            news: Event::new(),
            cancel: OnceBox::new(),
            exit: OnceBox::new(),
            rarest: OnceBox::new(),
        })
    }

    fn rarer(&self) -> &RarestParts {
        self.rarest.get_or_init(Box::default)
    }
}

impl Head {
    #[inline]
    pub(crate) fn new(
        run: RunState,
        place: LocalId,
        host: Host,
        flags: u16,
        parent: Option<Pid>,
        given: SpawnSettings,
    ) -> Self {
        let observed = if host.shared().observes_all() { flag::OBSERVED } else { 0 };
        let flags = flags | given.flags | observed;
        Self {
            run,
            state: AtomicU8::new(NEW),
            flags: AtomicU16::new(flags),
            waiting: AtomicU8::new(0),
            last_worker: LastWorker::new(),
            steps: LowSteps::new(),
            index: place.index,
            generation: place.generation,
            host,
            since: AtomicU64::new(0),
            rare: given.rare,
            parent: parent.map_or(0, Pid::word),
        }
    }

    /// Returns the meter of the process's steps, if the steps are limited.
    #[inline]
    pub(crate) fn meter(&self) -> Option<&Meter> {
        if self.has(flag::LIMITED) { self.rarest_if_any().map(|rarer| &rarer.meter) } else { None }
    }

    #[inline]
    pub(crate) fn pid(&self) -> Pid {
        self.host().shared().pid_table.pid(self.place())
    }

    #[inline]
    pub(crate) fn place(&self) -> LocalId {
        LocalId { index: self.index, generation: self.generation }
    }

    /// Returns the address of the head. The address identifies the process as long as the control block of the process
    /// exists.
    #[inline]
    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    #[inline]
    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// Adds one to a counter of the runtime.
    #[inline]
    pub(crate) fn count(&self, counter: Counter) {
        self.host.shared().metrics.add(counter, 1);
    }

    #[inline]
    fn rare(&self) -> &Rare {
        self.rare.get().unwrap_or_else(|| self.make_rare())
    }

    #[cold]
    fn make_rare(&self) -> &Rare {
        self.rare.get_or_init(|| Rare::new(InheritedContext::default()))
    }

    #[inline]
    fn rarest_if_any(&self) -> Option<&RarestParts> {
        self.rare.get()?.rarest.get()
    }

    /// Returns the table of yields. If the table does not exist, this function allocates the table. In contrast,
    /// [`yields_if_any`](Self::yields_if_any) allocates nothing.
    #[inline]
    pub(crate) fn yields(&self) -> &Yields {
        &self.rare().yields
    }

    #[inline]
    pub(crate) fn yields_if_any(&self) -> Option<&Yields> {
        self.rare.get().map(|rare| &rare.yields)
    }

    /// Returns the names of the process, and sets `KNOWN`. Code that adds a name must call this function first. The
    /// exit releases the names only if `KNOWN` is set.
    pub(crate) fn names(&self) -> &names::Own {
        self.set(flag::KNOWN);
        &self.rare().rarer().names
    }

    /// Returns the oldest name of the process, if the process has a name.
    pub(crate) fn first_name(&self) -> Option<Cow<'static, str>> {
        if self.has(flag::KNOWN) { self.names().lock().first().cloned() } else { None }
    }

    /// Returns the names of the process, if the table of names was allocated. Unlike [`names`](Self::names), this
    /// function sets no flag and allocates nothing.
    pub(crate) fn names_if_any(&self) -> Option<&names::Own> {
        self.rarest_if_any().map(|rarer| &rarer.names)
    }

    /// Returns the groups of the process, if the table of groups was allocated. Unlike [`groups`](Self::groups), this
    /// function sets no flag and allocates nothing.
    pub(crate) fn groups_if_any(&self) -> Option<&groups::Own> {
        self.rarest_if_any().map(|rarer| &rarer.groups)
    }

    /// Returns the groups that the process has joined or monitors. Like [`names`](Self::names), this function sets
    /// `KNOWN`.
    pub(crate) fn groups(&self) -> &groups::Own {
        self.set(flag::KNOWN);
        &self.rare().rarer().groups
    }

    /// Returns the links and monitors of the process, and sets `TIED`. Code that adds a link or a monitor must call
    /// this function first. The exit closes the table only if `TIED` is set. `TIED` and `ENDED` are set by
    /// read-modify-write operations on the same word. Therefore either the exit sees `TIED`, or a caller that reads the
    /// flags after this call sees `ENDED`.
    pub(crate) fn links(&self) -> &Links<dyn AnyControl> {
        if !self.has(flag::TIED) {
            self.set(flag::TIED);
        }
        &self.rare().links
    }

    pub(crate) fn links_if_any(&self) -> Option<&Links<dyn AnyControl>> {
        self.rare.get().map(|rare| &rare.links)
    }

    /// Returns true if the process must receive a signal that was just read from the mailbox. The process receives the
    /// signal of a monitor only while the monitor is set.
    pub(crate) fn wants(&self, signal: &Signal) -> bool {
        match *signal {
            Signal::Down { number, .. } => self.links_if_any().is_some_and(|links| links.collect(number)),
            Signal::Joined { number, .. } | Signal::Left { number, .. } => self.groups().lock().watches(number),
            _ => true,
        }
    }

    /// Returns the exit of a killed process. If a link has propagated an exit to the process, the result is this exit.
    /// Otherwise the result is `Killed`.
    pub(crate) fn exit_when_killed(&self) -> Exit {
        self.links_if_any().and_then(Links::propagated).unwrap_or(Exit::Killed)
    }

    pub(crate) fn inherited(&self) -> &InheritedContext {
        self.rare.get().map_or(InheritedContext::NOTHING, |rare| &rare.inherited)
    }

    /// Stores the registration of the process with its cancel token. While the registration is stored, a cancellation
    /// of the token cancels the process.
    pub(crate) fn set_cancel_registration(&self, registration: CancelRegistration) {
        let _ = self.rare().rarer().cancel_registration.set(registration);
    }

    /// Returns the timers of the process. If the table of timers does not exist, this function allocates the table. In
    /// contrast, [`pending_if_any`](Self::pending_if_any) allocates nothing.
    pub(crate) fn pending(&self) -> &Pending {
        &self.rare().rarer().pending
    }

    #[inline]
    pub(crate) fn pending_if_any(&self) -> Option<&Pending> {
        self.rarest_if_any().map(|rarer| &rarer.pending)
    }

    /// Returns the log of the last messages. If the log does not exist, this function allocates a log with room for
    /// `capacity` records.
    pub(crate) fn message_log(&self, capacity: usize) -> &MessageLog {
        self.rare().rarer().messages.get_or_init(|| Box::new(MessageLog::new(capacity)))
    }

    /// Returns the log of the last messages, if the process has received an event and the runtime records the messages.
    pub(crate) fn message_log_if_any(&self) -> Option<&MessageLog> {
        self.rarest_if_any()?.messages.get()
    }

    /// Changes the number of calls and sleeps that the process waits for. This number does not include outstanding
    /// commands. The caller sets `here` to true if this thread runs a step of the process. Only the thread that runs
    /// the process writes `Head::waiting`. Therefore a write of `Head::waiting` needs no read-modify-write operation.
    /// All other threads change a separate count, `RarestParts::waiting`.
    #[inline]
    pub(crate) fn wait_for(&self, change: Change, here: bool) {
        if here {
            let waiting = self.waiting.load(Ordering::Relaxed);
            let changed = match change {
                Change::More => waiting.checked_add(1),
                Change::Less => waiting.checked_sub(1),
            };
            if let Some(changed) = changed {
                return self.waiting.store(changed, Ordering::Relaxed);
            }
        }
        self.wait_elsewhere(change);
    }

    #[cold]
    fn wait_elsewhere(&self, change: Change) {
        self.rare().rarer().waiting.fetch_add(change as u32, Ordering::Relaxed);
    }

    /// Counts a step that has ended, in the head and in the counters of the runtime. The thread that runs the process
    /// calls this function. If the step completes a batch of steps, the function calls `count_batch`.
    #[inline]
    pub(crate) fn count_step(&self, count_batch: impl FnOnce()) {
        self.last_worker.set(self.host.shared().metrics.add_step());
        self.steps.count(count_batch);
    }

    /// Returns the low bits of the number of steps so far.
    pub(super) fn low_steps(&self) -> u16 {
        self.steps.bits()
    }

    /// Returns the number of steps so far. The caller passes the place of the first wait record.
    pub(crate) fn steps(&self, first: &WaitRecord) -> u64 {
        self.steps.total(&first.step_batches)
    }

    /// Returns the number of the worker that ran the last step.
    pub(crate) fn last_worker(&self) -> Option<usize> {
        self.last_worker.get()
    }

    /// Adds a record of an operation that the process waits for. `AnyControl::begin_wait` calls this function if the
    /// place of the first record is occupied, or if this thread runs no step of the process. If this thread runs a
    /// step of the process, the caller passes the place of the first record in `first`.
    #[cold]
    pub(crate) fn begin_more_waits(&self, wait: &Wait, first: Option<&WaitRecord>) {
        let rare = self.rare();
        if first.is_none() || rare.second_wait.begin(wait).is_none() {
            rare.rarer().waits.lock().begin(*wait, first.map(|first| [first, &rare.second_wait]));
        }
    }

    /// Removes the record of an operation. The caller calls this function if [`WaitRecord::end`] did not find the
    /// record, or if this thread runs no step of the process. If this thread runs a step of the process, the caller
    /// passes the place of the first record in `first`.
    #[cold]
    pub(crate) fn end_more_waits(&self, wait: &Wait, first: Option<&WaitRecord>) {
        if first.is_some_and(|first| first.end_equal(wait)) {
            return;
        }
        let rare = self.rare();
        if first.is_none() || !rare.second_wait.end_equal(wait) {
            rare.rarer().waits.lock().end(*wait);
        }
    }

    /// Returns the records of the operations that the process waits for. The place of the first record is `first`.
    pub(crate) fn waits(&self, first: &WaitRecord) -> Waits {
        let rare = self.rare.get();
        let more = rare.and_then(|rare| rare.rarest.get()).map(|rarer| rarer.waits.lock());
        Waits::read([Some(first), rare.map(|rare| &rare.second_wait)], more.as_deref())
    }

    /// Returns the time at which the process became runnable, if the next turn of the process is sampled and has not
    /// begun.
    pub(crate) fn ready_since(&self) -> Option<Instant> {
        let since = self.since.load(Ordering::Relaxed);
        (since & SAMPLED != 0).then(|| Instant::from_ns(since & !SAMPLED))
    }

    /// Returns the time at which the process began to wait. Before this call, the caller has found that the process
    /// waits. The result is `None` if the process no longer waits, and the next turn or the present turn of the process
    /// is sampled.
    pub(crate) fn waiting_since(&self) -> Option<Instant> {
        let since = self.since.load(Ordering::Relaxed);
        (since < NO_TIME).then(|| Instant::from_ns(since))
    }

    /// Returns the memory of the boxed parts of the head, in bytes. The links, names, groups and timers of the process
    /// are not included.
    pub(crate) fn boxed_bytes(&self) -> usize {
        let Some(rare) = self.rare.get() else { return 0 };
        let log = self.message_log_if_any().map_or(0, MessageLog::bytes);
        size_of::<Rare>() + rare.rarest.get().map_or(0, |_| size_of::<RarestParts>()) + rare.yields.bytes() + log
    }

    /// Returns the number of answers of any kind that the process waits for.
    pub(crate) fn outstanding(&self) -> usize {
        self.waiting() as usize + self.yields_if_any().map_or(0, Yields::outstanding)
    }

    /// Returns whether the process waits for an answer.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting() != 0 || self.yields_if_any().is_some_and(Yields::is_waiting)
    }

    /// Returns the number of calls and sleeps that the process waits for. Outstanding commands are not included.
    #[inline]
    pub(crate) fn waiting(&self) -> u32 {
        let elsewhere = self.rarest_if_any().map_or(0, |rarer| rarer.waiting.load(Ordering::Relaxed));
        u32::from(self.waiting.load(Ordering::Relaxed)).wrapping_add(elsewhere)
    }

    /// Returns the priority of the process.
    pub(crate) fn priority(&self) -> Priority {
        priority_of(self.flags.load(Ordering::Relaxed))
    }

    /// Changes the priority of the process. A mailbox outside any process has no priority. If this control block is
    /// such a mailbox, the function returns false.
    pub(crate) fn set_priority(&self, priority: Priority) -> bool {
        let mark = match priority {
            Priority::Normal => 0,
            Priority::High => flag::HIGH,
            Priority::Low => flag::LOW,
        };
        // One operation changes `HIGH` and `LOW`, because these two flags together mark a mailbox outside any
        // process.
        let change = |flags: u16| (flags & flag::OUTSIDE != flag::OUTSIDE).then_some(flags & !flag::OUTSIDE | mark);
        self.flags.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change).is_ok()
    }

    #[inline]
    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags.load(Ordering::SeqCst) & flag != 0
    }

    /// Returns whether this control block is a mailbox that belongs to no process.
    #[inline]
    pub(crate) fn is_outside(&self) -> bool {
        self.flags() & flag::OUTSIDE == flag::OUTSIDE
    }

    /// Returns true if the exit of the process was requested or the mailbox contains urgent messages. A cancellation
    /// and urgent messages overtake the messages in the read-ahead buffer of the receiver. One load and one branch
    /// check both conditions.
    #[inline]
    pub(crate) fn is_disturbed(&self) -> bool {
        self.has(flag::CANCELLED | flag::URGENT)
    }

    /// Returns whether the mailbox contains urgent messages.
    #[inline]
    pub(crate) fn has_urgent(&self) -> bool {
        self.has(flag::URGENT)
    }

    /// Sets a flag. Returns true if this call has changed the flag.
    #[inline]
    pub(crate) fn set(&self, flag: u16) -> bool {
        self.flags.fetch_or(flag, Ordering::SeqCst) & flag == 0
    }

    /// Clears a flag.
    pub(crate) fn unset(&self, flag: u16) {
        self.flags.fetch_and(!flag, Ordering::SeqCst);
    }

    /// Returns all flags. A turn calls this function before each step of the turn.
    #[inline]
    pub(crate) fn flags(&self) -> u16 {
        self.flags.load(Ordering::SeqCst)
    }

    /// Records the state that the process enters. The caller passes the flags of the process in `flags`. If nothing
    /// observes the process, this function costs one store and one branch.
    #[inline]
    pub(crate) fn enter(&self, flags: u16, to: ProcessState) {
        if flags & flag::OBSERVED == 0 {
            self.enter_unseen(to);
        } else {
            let from = self.state();
            self.state.store(to as u8, Ordering::Relaxed);
            self.host().observe(self, from, to);
        }
    }

    /// Records the state in which the process begins to wait, as [`enter`](Self::enter) does. This function also
    /// records the [recent](crate::host::timer::Timers::recent) time, which costs four loads and one store, and no
    /// clock reading.
    #[inline]
    pub(crate) fn enter_wait(&self, flags: u16, to: ProcessState) {
        self.since.store(self.host.shared().timers.recent().ns(), Ordering::Relaxed);
        self.enter(flags, to);
    }

    /// Records the state that the process enters, as [`enter`](Self::enter) does. The caller must know that the flag
    /// `OBSERVED` is not set.
    #[inline]
    pub(crate) fn enter_unseen(&self, to: ProcessState) {
        self.state.store(to as u8, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn state(&self) -> Option<ProcessState> {
        ProcessState::from_u8(self.state.load(Ordering::Relaxed))
    }

    /// Returns whether the process is neither queued nor running. The result is correct at the moment of the call. The
    /// result of [`state`](Self::state) can be out of date. The thread that runs the process stores the state before
    /// the process waits. A thread that wakes the process stores the state after the wake-up.
    pub(crate) fn is_inactive(&self) -> bool {
        self.run.is_waiting()
    }

    /// Returns true in each of these cases: the runtime has an observer, the runtime records the last messages, a trace
    /// records the events of this process, or the process is suspended.
    #[inline]
    pub(crate) fn is_observed(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & flag::OBSERVED != 0
    }

    /// Records that the process became runnable. Returns two values: the priority of the process, and true if the
    /// process became runnable for the first time.
    #[inline]
    pub(crate) fn ready(&self) -> (Priority, bool) {
        let host = self.host();
        if host.shared().metrics.tick() {
            self.sample_next_turn();
        }
        let is_new = self.state.load(Ordering::Relaxed) == NEW;
        let flags = self.flags.load(Ordering::Relaxed);
        if flags & (flag::OBSERVED | flag::HIGH | flag::LOW) != 0 {
            return (self.ready_with_priority(flags), is_new);
        }
        self.enter_unseen(ProcessState::Ready);
        (Priority::Normal, is_new)
    }

    #[cold]
    fn ready_with_priority(&self, flags: u16) -> Priority {
        // If the runtime has an observer, no turn is skipped. Therefore an observer receives each transition.
        if flags & flag::OBSERVED != 0 && !self.host().is_skipped_turn() {
            return self.ready_observed(flags);
        }
        self.enter_unseen(ProcessState::Ready);
        priority_of(flags)
    }

    /// Reports to the observer or the trace that the process became runnable. The function is separate, so that a
    /// wake-up in a skipped turn pushes no registers to the stack.
    #[inline(never)]
    fn ready_observed(&self, flags: u16) -> Priority {
        self.enter(flags, ProcessState::Ready);
        priority_of(flags)
    }

    /// Records the scheduling delay if the turn that begins now is sampled. A worker calls this function when the
    /// worker begins to run the process. For a sampled turn, the function marks the turn of this thread as sampled, and
    /// returns the host and the present time. The caller measures the duration of the turn from the returned time. If
    /// the turn is not sampled, the function returns `None`.
    #[inline]
    pub(crate) fn running(&self, type_name: impl FnOnce() -> &'static str) -> Option<(Host, Instant)> {
        let since = self.since.load(Ordering::Relaxed);
        if since & SAMPLED == 0 {
            return None;
        }
        Some(self.begin_sampled_turn(since & !SAMPLED, type_name()))
    }

    /// Records that the process became runnable now, and that the next turn of the process is sampled.
    #[cold]
    fn sample_next_turn(&self) {
        self.since.store(self.host().shared().timers.now().ns() | SAMPLED, Ordering::Relaxed);
    }

    /// Begins a sampled turn. The process became runnable at the time `since`.
    #[cold]
    fn begin_sampled_turn(&self, since: u64, type_name: &'static str) -> (Host, Instant) {
        // A plain store is sufficient: only the thread that runs the process clears the bit, and no other thread makes
        // a running process ready.
        self.since.store(NO_TIME, Ordering::Relaxed);
        let shared = self.host().shared();
        let now = shared.timers.now();
        shared.metrics.sample(Sampled::SchedulingDelay, now.ns().saturating_sub(since));
        begin_sampled_turn(SampledProcess { word: self.place().into(), type_name });
        (self.host().clone(), now)
    }

    /// Records whether messages can change the set of events that the process waits for. If `on` is true, no message
    /// changes this set, although the process still receives messages. Only the wait-for graph reads the recorded
    /// value.
    #[cold]
    pub(crate) fn set_ignores_messages(&self, on: bool) {
        self.rare().rarer().ignores_messages.store(on, Ordering::Relaxed);
    }

    pub(crate) fn ignores_messages(&self) -> bool {
        self.rarest_if_any().is_some_and(|rarer| rarer.ignores_messages.load(Ordering::Relaxed))
    }

    /// Returns the process whose step spawned this process.
    pub(crate) fn parent(&self) -> Option<Pid> {
        (self.parent != 0).then(|| self.host().shared().pid_table.pid(LocalId::from(self.parent)))
    }

    /// Sets a flag that tasks wait for, and notifies these tasks. Returns the flags that were set before this call.
    ///
    /// A waiter makes sure that `LISTENED` is set, and then reads the flags. `LISTENED` and `flag` are set by
    /// read-modify-write operations on the same word. If `flag` is set first, the waiter sees `flag`. Otherwise this
    /// function sees `LISTENED`, and notifies the waiter.
    #[inline]
    fn announce(&self, flag: u16) -> u16 {
        let former = self.flags.fetch_or(flag, Ordering::SeqCst);
        if former & flag::LISTENED != 0 {
            notify(&self.rare().news);
        }
        former
    }

    /// Calls `check` until `check` returns a value. After each failed check, the calling future waits until `announce`
    /// is called for this process.
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

    /// Stores the first cancel request, and notifies the tasks that wait for a request. Returns false if an earlier
    /// request exists.
    pub(super) fn set_cancel(&self, reason: Reason, deadline: Instant) -> bool {
        let is_first = self.rare().cancel.set(Box::new((reason, deadline))).is_ok();
        if is_first {
            self.announce(flag::CANCELLED);
        }
        is_first
    }

    /// Records that the caller will set a timer. The timer will kill the process at `deadline`. Returns false if the
    /// process already has a timer that kills the process at the same deadline or at an earlier deadline. The caller
    /// then sets no timer. Without this check, each further cancellation of a process would leave one more timer.
    pub(crate) fn record_kill_deadline(&self, deadline: Instant) -> bool {
        let complement = !deadline.ns();
        self.rare().rarer().kill_deadline.fetch_max(complement, Ordering::Relaxed) < complement
    }

    /// Returns whether a cancellation has requested the exit of the process.
    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.has(flag::CANCELLED)
    }

    /// Returns the reason and the deadline of the cancel request, if such a request exists.
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

fn priority_of(flags: u16) -> Priority {
    match flags & (flag::HIGH | flag::LOW) {
        0 => Priority::Normal,
        flag::HIGH => Priority::High,
        _ => Priority::Low,
    }
}

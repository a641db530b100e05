//! A simulation runs processes on one thread and in virtual time, without a change of their code. A seed determines the
//! order of the processes. Like a runtime, a simulation has a [`Host`]. A simulation differs from a runtime only in its
//! queue of runnable tasks and its clock.

pub(crate) mod check;
pub(crate) mod idle;
#[cfg(all(test, not(procession_loom)))]
mod memory_tests;
pub(crate) mod queue;
pub(crate) mod trace;

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::host::job::Job;
use crate::host::namespace::builder::HostBuilder;
use crate::host::registry::PidTable;
use crate::host::shutdown::report::{ShutdownReport, UnfinishedProcess};
use crate::host::timer::Timers;
use crate::host::{Environment, Host, PanicPolicy, Phase, Shared};
use crate::observe::exits::ExitHistory;
use crate::observe::snapshot::SchedulerGauges;
use crate::observe::trace::timeline::Gauges;
use crate::observe::{Counter, FlightRecorder, InspectOptions, Metrics, Observer, Sampling};
use crate::platform::clock::{Clock, Instant};
use crate::platform::preempt;
use crate::platform::random::Rng;
use crate::platform::sync::atomic::AtomicUsize;
use crate::platform::sync::tally::{AtomicU32, Ordering};
use crate::platform::sync::{Arc, Mutex};
use crate::process::catch::catch;
use crate::process::error::BuildError;
use crate::process::pid::Pid;
use crate::process::pid::text::Simulated;
use crate::process::state::current::Current;
use crate::process::state::wake_source::{SchedulerHandle, WakeSource};
use crate::runtime::simulation::idle::Idle;
use crate::runtime::simulation::queue::{Next, Own, ReadyEntry, ReadyQueue};
use crate::runtime::simulation::trace::{Trace, What};

/// If the clock has not moved during this number of turns, the clock advances by one millisecond.
const TURNS_PER_MS: u32 = 1_000;
/// Maximum number of waiting processes that the panic message of a deadlock lists.
const MAX_NAMED: usize = 20;

/// Runs processes on one thread, in virtual time. A seed determines the order of the processes. Two runs with the same
/// seed are equal. A different seed usually gives a different order.
///
/// Like a [`Runtime`](crate::Runtime), a `Simulation` dereferences to a [`Host`]. Therefore, a function with a host as
/// its argument runs unchanged in a runtime and in a simulation:
///
/// ```
/// use procession::{Context, Exit, Host, Reply, Runtime, Simulation};
/// use std::time::Duration;
///
/// enum Msg { Nap, Count(Reply<u64>) }
///
/// async fn sleeper(mut ctx: Context<Msg>) -> Result<(), Exit> {
///     let mut naps = 0;
///     loop {
///         match ctx.receive().await? {
///             Msg::Nap => {
///                 ctx.sleep(Duration::from_secs(3600)).await;
///                 naps += 1;
///             }
///             Msg::Count(reply) => reply.send(naps),
///         }
///     }
/// }
///
/// async fn scenario(host: Host) -> Result<(), Exit> {
///     let sleeper = host.spawn(sleeper);
///     sleeper.send(Msg::Nap)?;
///     assert_eq!(sleeper.call(Msg::Count).await?, 1);
///     Ok(())
/// }
///
/// let mut simulation = Simulation::new(7);
/// let host = simulation.host().clone();
/// let begun = simulation.now();
/// simulation.run(scenario(host))?;                     // an hour of virtual time passes immediately
/// assert_eq!(simulation.now() - begun, Duration::from_secs(3600));
/// # Ok::<(), Exit>(())
/// ```
///
/// # Time
///
/// Usually, the clock stands still while a process is runnable. When no process is runnable, the clock jumps to the
/// nearest deadline. Therefore, a scenario measures times with the resolution of the timers, which is 1 ms. The clock
/// begins at zero.
///
/// If the clock has stood still for 1,000 turns, the clock advances by one millisecond. Therefore, if a loop calls
/// `yield_now` until a certain time, this loop eventually ends. Within a turn, the clock stands still. Therefore, if a
/// loop waits for a certain time without an `await`, this loop never ends. For the same reason, no process reaches its
/// [limit of time](crate::Limits::time).
///
/// # What the seed decides
///
/// - The seed decides which runnable process has the next turn. Priorities have no effect. As in a runtime, the
///   messages from one sender to one receiver stay in order.
/// - The seed decides whether a due timer fires before or after the turns of the runnable processes. Therefore, if an
///   answer arrives in the same tick as the deadline for this answer, the answer is in time under some seeds and too
///   late under other seeds. If several timers are due in the same tick, these timers fire in the order in which they
///   were set.
/// - The seed decides the values of [`SelfHandle::random`](crate::SelfHandle::random), and the jitter of
///   [`Backoff`](crate::Backoff) and [`layer::Retry`](crate::handler::layer::Retry).
///
/// Blocking work (of [`Host::spawn_blocking`] and of [blocking handlers](fn@crate::handler::blocking)) runs in a turn,
/// as any other task does, and takes no virtual time.
///
/// # What a simulation cannot control
///
/// A simulation does not control the following kinds of code: code that reads the time or random numbers from the
/// system, code that uses other threads, and code that blocks the thread. A simulation also does not control the random
/// order of a `HashMap`. To find code that a simulation does not control, [`check`](check::check) runs some seeds
/// twice.
///
/// Each simulation numbers its pids from the beginning, so that equal runs print equal pids. A pid is valid only in the
/// simulation that created the pid. In any other simulation, or in a runtime, the pid refers to no process.
///
/// # Deadlocks
///
/// The simulation can detect a run that never ends. [`run`](Self::run) panics if no process is runnable and no timer is
/// set. If a periodic timer is set, there is always a next deadline, and the run could continue forever. For runs with
/// a periodic timer, there is [a limit](Self::deadlock_after) on the number of time steps. A time step is a jump of the
/// clock. If neither the future nor the waiting processes have run during this number of time steps, `run` panics.
///
/// [`check`](check::check) runs a scenario under many seeds.
pub struct Simulation {
    host: Host,
    queue: Arc<ReadyQueue>,
    trace: Arc<Trace>,
    /// The unobserved failures. Each entry describes a crash report. The entry contains the pid of the process that
    /// failed first, and the summary of the report as text. The list does not contain the exits themselves. The reason
    /// is that the error in an exit may contain a reference to the simulation, and the destructor of this error is user
    /// code.
    unobserved: Arc<Mutex<Vec<(Pid, String)>>>,
    idle: Idle,
    /// Number of turns since the clock last moved.
    turns: u32,
    /// The sampling state of the thread at the end of the last run. The next run continues with this state, so the code
    /// between two runs cannot change which messages are measured.
    sampling: Sampling,
    /// Next result of [`Current::skips_pause`], saved at the end of the last run.
    skips_pause: bool,
}

/// Returns the incarnation of a new simulation. The incarnation is an even number other than 0. The incarnations repeat
/// after about 2^31 simulations.
fn incarnation() -> u32 {
    static SIMULATIONS: AtomicU32 = AtomicU32::new(0);
    (SIMULATIONS.fetch_add(1, Ordering::Relaxed) % (u32::MAX / 2) + 1) * 2
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("now", &self.now()).field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl Deref for Simulation {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

/// Queues a job of a simulation.
fn to_queue(job: Job, _source: WakeSource<'_>) {
    if let Job::Process(ready) = &job {
        let _ = ready.head().ready();
    }
    let place = Arc::clone(&job.host().shared().place);
    queue_of(place).push(ReadyEntry::Job(job));
}

/// Queues a batch of jobs of a simulation.
fn all_to_queue(_place: &SchedulerHandle, jobs: Vec<Job>) {
    jobs.into_iter().for_each(|job| to_queue(job, WakeSource::Waiting(None)));
}

/// Reads the number of runnable tasks of a simulation.
fn gauges_of_queue(place: &SchedulerHandle) -> SchedulerGauges {
    let (global_queue_depth, global_queue_bytes) = queue_of(Arc::clone(place)).size();
    SchedulerGauges { global_queue_depth, global_queue_bytes, ..SchedulerGauges::default() }
}

fn queue_of(place: Arc<dyn Any + Send + Sync>) -> Arc<ReadyQueue> {
    place.downcast().unwrap_or_else(|_| unreachable!("a scheduler handle of a simulation contains its queue"))
}

impl Simulation {
    /// Creates a simulation without handlers. A scenario can add hosts with handlers: see [`Host::add_host`].
    pub fn new(seed: u64) -> Self {
        match Self::with_host(seed, HostBuilder::new("")) {
            Ok(simulation) => simulation,
            Err(error) => unreachable!("a simulation registers no handlers: {error}"),
        }
    }

    /// Creates a simulation whose own host has the handlers and limits of `host`.
    ///
    /// ```
    /// # use procession::{Command, Context, HostBuilder, Simulation};
    /// struct Ask;
    /// impl Command for Ask { type Reply = u64; }
    ///
    /// let mut simulation = Simulation::with_host(1, HostBuilder::new("").handle(|_: Ask| 42))?;
    /// let asks = simulation.spawn(async |ctx: Context| ctx.perform(Ask).await);
    /// assert_eq!(simulation.run(asks)?, 42);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    /// [`BuildError::DuplicateHandler`] if a command has two handlers.
    pub fn with_host(seed: u64, host: HostBuilder) -> Result<Self, BuildError> {
        let namespace = host.build()?;
        // Resets the sampling state of this thread. Otherwise, earlier code on this thread would influence which
        // messages are measured before the first run.
        Sampling::begin_simulation();
        let mut rng = Rng::seeded(seed);
        let chance = Rng::seeded(rng.next());
        let queue = Arc::new(ReadyQueue::new(rng));
        let trace = Arc::new(Trace::default());
        let unobserved = Arc::<Mutex<Vec<_>>>::default();
        let reported = Arc::clone(&unobserved);
        let clock = Clock::virtual_();
        let place: Arc<dyn Any + Send + Sync> = queue.clone();
        let gauges = Arc::clone(&queue);
        let shared = Shared::new(Environment {
            pid_table: PidTable::new(0, incarnation(), 1),
            timers: Arc::new(Timers::new(clock.clone(), 0)),
            clock,
            pool: None,
            metrics: Arc::new(Metrics::new(1).in_order()),
            observer: Some(Arc::clone(&trace) as Arc<dyn Observer>),
            on_panic: PanicPolicy::Observe,
            on_crash: Box::new(move |report| {
                let text = catch(|| report.summary()).unwrap_or_else(|_| format!("{} (its text panics)", report.pid));
                reported.lock().push((report.origin(), text));
            }),
            exits: ExitHistory::default(),
            last_messages: AtomicUsize::new(0),
            schedule: to_queue,
            schedule_all: all_to_queue,
            gauges: gauges_of_queue,
            visit_sockets: |_, _| {},
            scheduler_address: Arc::as_ptr(&queue) as usize,
            place,
            within_context: Box::new(|f| f()),
            rearm: Box::new(|| {}),
            has_workers: Box::new(|| true),
            preempt: Box::new(|_| false),
            trace_gauges: Box::new(move || Gauges { queued_global: gauges.size().0 as u64, ..Gauges::default() }),
            chance: Mutex::new(chance),
        });
        let host = Host::new(Arc::new(shared), namespace);
        Ok(Self {
            host,
            queue,
            trace,
            unobserved,
            idle: Idle::default(),
            turns: 0,
            sampling: Sampling::FIRST,
            skips_pause: false,
        })
    }

    /// Sets the maximum number of random choices. After this number of choices, the next process is always the process
    /// that has been runnable for the longest time. Default: `u64::MAX`.
    #[must_use]
    pub fn random_choices(self, most: u64) -> Self {
        self.queue.limit(most);
        self
    }

    /// Keeps the last events of the simulation in memory, so that [`Host::write_flight_record`] can write these events
    /// to a file. Default: off. The times of the record are virtual, and the same seed gives the same bytes. A
    /// simulation never writes a file by itself. [`Check::flight_record`](crate::Check::flight_record) writes the
    /// record of a failing seed. If this method is called a second time, the second call has no effect.
    #[must_use]
    pub fn flight_recorder(self, recorder: FlightRecorder) -> Self {
        self.host.shared().metrics.recorder().keep_last_events(recorder);
        self
    }

    /// Turns on inspections that cost memory, as [`Builder::inspect`](crate::Builder::inspect) does. Default: off. Call
    /// this method before the first spawn: the messages of earlier processes may be missing. The times of the records
    /// are virtual and exact.
    #[must_use]
    pub fn inspect(self, options: InspectOptions) -> Self {
        let (last_messages, flight) = options.into_parts();
        self.host.shared().last_messages.store(last_messages, Ordering::Relaxed);
        match flight {
            Some(recorder) => self.flight_recorder(recorder),
            None => self,
        }
    }

    /// Sets the maximum number of time steps without progress. Default: 65,536. While timers still fire, a run with
    /// fewer time steps without progress is not a deadlock. After this number of time steps, the run can be a deadlock
    /// even if timers still fire. `u64::MAX` means no limit.
    ///
    /// If no process is runnable, the clock jumps to the next deadline, and this jump is a time step. Two kinds of
    /// events count as progress: a poll of the future that the simulation runs, and the first turn of a process after
    /// the simulation has listed this process. The simulation lists all processes 1,024 time steps after the last poll
    /// of the future. The list does not contain the processes that were spawned later, and the turns of these processes
    /// do not count as progress. Therefore, a run can be a deadlock even if the run spawns new processes again and
    /// again. If a timer was set before the time steps without progress and is still pending, the run is not a
    /// deadlock. If a process must sleep more often than this limit before it wakes another process, raise the limit.
    #[must_use]
    pub fn deadlock_after(mut self, steps: u64) -> Self {
        self.idle.set_limit(steps);
        self
    }

    /// Returns the host of the simulation. A clone of the host can be passed to processes.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Runs a future to completion, together with the processes. The seed determines the order of the turns of the
    /// processes and the polls of the future. If processes have not exited when the future completes, these processes
    /// continue in the next call of `run`.
    ///
    /// # Panics
    /// - If the future panics.
    /// - If the future can never complete, because no process is runnable and no timer is set.
    /// - If the run counts as a deadlock although timers still fire: see [`deadlock_after`](Self::deadlock_after).
    ///
    /// In the last two cases, the panic message lists at most 20 waiting processes, and states why each of these
    /// processes waits.
    #[track_caller]
    pub fn run<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        let own = Own::ready(&self.queue);
        let waker = Waker::from(Arc::clone(&own));
        let output = self.inside(|this| {
            loop {
                match this.next() {
                    Some(ReadyEntry::Own(turn)) if Arc::ptr_eq(&turn, &own) => {
                        own.begin();
                        this.idle.progress();
                        this.trace.note(this.now(), What::Own);
                        let poll = || future.as_mut().poll(&mut Context::from_waker(&waker));
                        if let Poll::Ready(output) = Current::with(|current| current.with_budget(poll)) {
                            return Ok(output);
                        }
                    }
                    // This entry belongs to the future of an earlier call of `run`. Therefore, the entry is ignored.
                    Some(ReadyEntry::Own(_)) => {}
                    Some(ReadyEntry::Job(job)) => this.turn(job),
                    None if this.pass_time(Instant::FAR) => {
                        if let Some(waiting) = this.find_deadlock() {
                            return Err(Some(waiting));
                        }
                    }
                    None => return Err(None),
                }
            }
        });
        match output {
            Ok(output) => output,
            Err(waiting) => self.stuck(waiting),
        }
    }

    /// Shuts the simulation down in the same way as [`Runtime::shutdown`](crate::Runtime::shutdown). `within` is
    /// virtual time. Processes that have not exited at the deadline are reported and killed.
    pub fn shutdown(mut self, within: Duration) -> ShutdownReport {
        let deadline = self.now() + within;
        self.host.begin_shutdown(deadline);
        self.inside(|this| {
            while !(this.host.all_ended() && this.host.alive().is_empty()) {
                // If a process is always runnable, the clock advances with the number of turns. With `>=` instead of
                // `>`, a shutdown with `within` equal to zero would not run the processes that are runnable now.
                if this.now() > deadline {
                    break;
                }
                match this.next() {
                    Some(ReadyEntry::Job(job)) => this.turn(job),
                    Some(ReadyEntry::Own(_)) => {}
                    None if this.pass_time(deadline) => {}
                    None => break,
                }
            }
        });
        // A call of `Host::shutdown` may have begun the shutdown. In this case, an earlier deadline may have ended the
        // shutdown.
        self.host.shutdown_report().unwrap_or_else(|| ShutdownReport { left: self.host.left() })
    }

    /// Returns the trace. The trace contains one line for each event, in order. Each line contains the time, the
    /// process and the event. The same seed gives the same text, byte for byte. If the trace of a run is longer than
    /// 1,048,576 lines, the text contains only the last 1,048,576 lines and the number of earlier lines.
    pub fn trace(&self) -> String {
        self.trace.text()
    }

    /// Returns the number of choices that the queue has made.
    fn drawn(&self) -> u64 {
        self.queue.drawn()
    }

    /// Runs tasks in the order in which they became runnable. Stops when no runnable task is left, or after
    /// `most_turns` turns. No time passes, and no timer fires.
    fn settle(&mut self, most_turns: u32) {
        self.queue.limit(0);
        self.inside(|this| {
            for _ in 0..most_turns {
                match this.queue.next(false) {
                    Next::Entry(ReadyEntry::Job(job)) => this.turn(job),
                    Next::Entry(ReadyEntry::Own(_)) => {}
                    Next::Timer | Next::Nothing => break,
                }
            }
        });
    }

    /// Runs `f` on this thread. During the call, this thread counts as the only worker of this simulation. `f` runs
    /// outside the turns of processes.
    fn inside<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        let _counting = self.host.shared().metrics.enter(0);
        let _pids = Simulated::enter(self.host.shared().pid_table.incarnation());
        let _requests = preempt::ignore();
        let run = RunGuard::begin(self);
        Current::with(|current| current.outside(|| f(run.simulation)))
    }

    /// Returns the next runnable task. If there is no runnable task, returns `None`. If the queue chooses a timer,
    /// fires this timer and chooses again.
    fn next(&mut self) -> Option<ReadyEntry> {
        let timers = &self.host.shared().timers;
        if self.turns >= TURNS_PER_MS {
            self.turns = 0;
            timers.advance(Duration::from_millis(1));
        }
        self.turns += 1;
        loop {
            match self.queue.next(timers.wait() == Some(Duration::ZERO)) {
                Next::Entry(entry) => return Some(entry),
                Next::Timer => drop(timers.fire_one_of_each_wheel()),
                Next::Nothing => return None,
            }
        }
    }

    fn turn(&mut self, job: Job) {
        self.host.shared().metrics.add(Counter::Polls, 1);
        match &job {
            Job::Future(_) => self.trace.note(self.now(), What::Future),
            Job::Process(ready) => self.idle.ran(ready.head().place().into()),
        }
        job.run_here();
    }

    /// Counts a time step. If the run is a deadlock although timers still fire, returns the labels of the deadlocked
    /// processes.
    fn find_deadlock(&mut self) -> Option<BTreeSet<u64>> {
        let host = &self.host;
        let alive = || host.alive().iter().map(|control| control.head().place().into()).collect();
        self.idle.time_passed(&host.shared().timers, alive)
    }

    /// If the nearest deadline is before `until`, moves the clock to this deadline and returns true. If no deadline is
    /// before `until`, moves the clock to `until` and returns false. But the clock never moves to [`Instant::FAR`].
    fn pass_time(&mut self, until: Instant) -> bool {
        let timers = &self.host.shared().timers;
        let nearest = timers.nearest().filter(|&nearest| nearest < until);
        if let Some(to) = nearest.or((until != Instant::FAR).then_some(until)) {
            self.turns = 0;
            timers.advance(to - timers.now());
        }
        nearest.is_some()
    }

    /// Panics because the future can never complete. If `beside_timers` is `None`, no process is runnable and no timer
    /// is set. If `beside_timers` is `Some`, its set contains the deadlocked processes, and only timers wake the other
    /// processes.
    #[track_caller]
    fn stuck(&self, beside_timers: Option<BTreeSet<u64>>) -> ! {
        let mut left = self.host.left();
        if let Some(waiting) = &beside_timers {
            left.retain(|left| waiting.contains(&left.pid.word()));
        }
        let mut who: Vec<_> = left.iter().take(MAX_NAMED).map(UnfinishedProcess::to_string).collect();
        if left.len() > MAX_NAMED {
            who.push(format!("and {} more", left.len() - MAX_NAMED));
        }
        if beside_timers.is_some() {
            let (idle, who) = if who.is_empty() {
                ("the future passed to `run` has not run", String::new())
            } else {
                let who = format!(": {}", who.join("; "));
                ("neither the future passed to `run` nor these waiting processes have run", who)
            };
            panic!(
                "deadlock beside timers: timers alone have driven the last steps, and {idle}; raise \
                 `deadlock_after` if the wait is intended{who}"
            );
        }
        let who = if who.is_empty() { "no process is left".into() } else { who.join("; ") };
        panic!(
            "deadlock: no process is runnable and no timer is set, so the future passed to `run` cannot \
             complete; wake it from a process of the simulation, not from another thread: {who}"
        );
    }
}

/// Guard of a run. During the run, the thread uses two saved values of the simulation: the sampling state, and the next
/// result of [`Current::skips_pause`].
struct RunGuard<'a> {
    simulation: &'a mut Simulation,
    /// The state of the thread outside the run.
    outside: Sampling,
    outside_skips_pause: bool,
}

impl<'a> RunGuard<'a> {
    fn begin(simulation: &'a mut Simulation) -> Self {
        let outside = simulation.sampling.replace();
        let outside_skips_pause = Current::with(|current| current.replace_skips_pause(simulation.skips_pause));
        Self { simulation, outside, outside_skips_pause }
    }
}

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        self.simulation.sampling = self.outside.replace();
        self.simulation.skips_pause = Current::with(|current| current.replace_skips_pause(self.outside_skips_pause));
    }
}

impl Drop for Simulation {
    /// Kills the processes that have not exited.
    fn drop(&mut self) {
        self.inside(|this| {
            let run_dry = || {
                while let Next::Entry(entry) = this.queue.next(false) {
                    if let ReadyEntry::Job(job) = entry {
                        job.run_here();
                    }
                }
            };
            this.host.advance(Phase::Closed);
            this.host.shared().clock.stop();
            this.host.close_and_kill();
            run_dry();
            this.queue.close();
            run_dry();
            this.host.shared().timers.clear();
        });
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::context::Context as Ctx;
    use crate::context::time::interval::MissedTickBehavior;
    use crate::process::exit::Exit;

    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Moves the clock forward, like the clock of a machine that was suspended.
    fn jump(host: &Host, time: Duration) {
        host.shared().clock.advance(time);
    }

    #[test]
    fn after_a_clock_jump_each_timer_fires_once_and_passed_periods_are_skipped() {
        let mut simulation = Simulation::new(1);
        let host = simulation.host().clone();
        let until = host.now() + YEAR + ms(2_000);
        simulation.run(async {
            let sleepers: Vec<_> =
                (0..1_000).map(|n| host.spawn(async move |ctx: Ctx| ctx.sleep(ms(1_000 * n)).await)).collect();
            let repeated = host.spawn(async move |mut ctx: Ctx<u64>| {
                ctx.send_interval(ms(1_000), ctx.pid(), 1_u64);
                let mut heard = 0;
                while ctx.now() < until {
                    heard += ctx.receive().await?;
                }
                Ok::<_, Exit>(heard)
            });
            let [skips, delays] = [MissedTickBehavior::Skip, MissedTickBehavior::Delay].map(|policy| {
                host.spawn(async move |ctx: Ctx| {
                    let mut ticks = ctx.interval(ms(1_000)).missed_tick_behavior(policy);
                    let mut heard = 0;
                    while ctx.now() < until {
                        ticks.tick().await;
                        heard += 1;
                    }
                    Ok::<_, Exit>((heard, ctx.now()))
                })
            });
            host.sleep(ms(1_500)).await;
            jump(&host, YEAR);
            for sleeper in sleepers {
                sleeper.await.expect("it wakes once");
            }
            assert!(host.now() < until);
            // The process has received three messages: the first before the jump, the second late, and the third at the
            // next regular time.
            assert_eq!(repeated.await.expect("it hears"), 3);
            assert_eq!(skips.await.expect("it hears"), (3, until));
            assert_eq!(delays.await.expect("it hears"), (3, until + ms(500)));
        });
    }

    #[test]
    fn a_clock_jump_to_the_end_of_time_causes_no_overflow() {
        let mut simulation = Simulation::new(1);
        let host = simulation.host().clone();
        simulation.run(async {
            let early = host.spawn(async |ctx: Ctx| ctx.sleep(500 * YEAR).await);
            let never = host.spawn(async |ctx: Ctx| ctx.sleep(Duration::MAX).await);
            early.started().await.expect("it starts");
            never.started().await.expect("it starts");
            jump(&host, Duration::MAX);
            early.await.expect("its time has passed");
            assert!(host.now() < Instant::FAR && host.now() + ms(1) == Instant::FAR);
            jump(&host, Duration::MAX);
            assert!(!never.is_finished());
        });
        let stuck = catch(|| simulation.run(host.sleep(ms(1)))).expect_err("that moment never comes");
        assert!(stuck.as_str().contains("deadlock: "), "{stuck}");
    }
}

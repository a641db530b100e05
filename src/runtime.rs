//! Where everything meets: a host, a scheduler, a clock. Building a runtime, lending it threads, ending it.

#[cfg(feature = "affinity")]
pub(crate) mod affinity;
pub(crate) mod enqueue;
pub(crate) mod local;
pub(crate) mod simulation;

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::pin;
use std::task::Waker;
use std::time::Duration;

use crate::handler::Answer;
use crate::handler::stream::{ByStream, Replier, StreamHandler};
use crate::host::dispatch::Handler;
use crate::host::job::blocking_pool::{Pool, WhenFull};
use crate::host::job::{Job, batch as crowd, blocking_pool as blocking};
use crate::host::namespace::{HostBuilder, host_methods};
use crate::host::registry::{Place, Relay};
use crate::host::timer::alarm::Alarm;
use crate::host::timer::{Timers, alarm};
use crate::host::{Ground, Host, OnPanic, Shared, Shutdown};
use crate::observe::{Metrics, Observer, State, WorkerState};
use crate::platform::clock::Clock;
use crate::platform::random as chance;
use crate::platform::random::Rng;
use crate::platform::sync::atomic::Ordering;
use crate::platform::sync::tally::AtomicU32;
use crate::platform::sync::{Arc, Mutex};
use crate::process::catch::catch;
use crate::process::command::{Command, Named, StreamCommand};
use crate::process::error::BuildError;
use crate::process::exit::Exit;
use crate::process::limits::Limits;
use crate::process::pid::Pid;
use crate::process::state::current::Current;
use crate::process::state::wake_order::WakeOrder;
use crate::runtime::enqueue::{Threads, all_to_threads, to_threads};
/// For [`Runtime::local`], which lends a thread by the same rules.
pub(crate) use crate::scheduler::Budget;
pub use crate::scheduler::LocalOrder;
pub(crate) use crate::scheduler::OwnWaker;
use crate::scheduler::{Hooks, Local, NOBODY, TooManyWorkers};
use crate::task::body::{Body, BodyFuture, Output, is_large};
use crate::{handler, scheduler};

/// How long a dropped runtime waits for steps that are under way.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long after its deadline a shutdown waits for steps that are under way. A worker that is about to stop needs some
/// time for that, so without this a short step would be taken for one that does not return.
const GRACE: Duration = Duration::from_millis(10);

/// The smallest stack of a worker, in bytes. On a stack of 16 KiB, which the system allows, a worker of a debug build overflows
/// at times.
const MIN_STACK: usize = 64 << 10;

/// Runs something that blocks, inside a step: what else this worker would do, another one takes over at once. It stays so
/// until the step returns; then this worker goes on, or goes, if there are enough of them without it.
///
/// For the rare call that can't be made elsewhere: it costs a thread, though one that is called again soon, and the
/// process itself waits: nothing reaches it until `f` returns. There are bounds to how many may do so at once
/// ([`Builder::substitutes`]); beyond them the others wait too. Work of this kind by the thousand is for
/// [`Host::spawn_blocking`]. On a lent thread and on one that runs no process, it is `f()`; what a lent thread holds,
/// others are told of.
///
/// ```
/// # use procession::{Context, Exit, Runtime, block_in_place};
/// let rt = Runtime::new()?;
/// let sum = rt.spawn(async |_: Context| Ok::<_, Exit>(block_in_place(|| (0..1000).sum::<u64>())));
/// assert_eq!(rt.block_on(sum)?, 499_500);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
///
/// # Panics
/// As `f` does; that ends the process as any panic in a step does.
pub fn block_in_place<T>(f: impl FnOnce() -> T) -> T {
    Local::<Job>::hand_over_here();
    f()
}

/// Time as the workers see it.
struct Time {
    timers: Arc<Timers>,
}

impl scheduler::Driver for Time {
    type Alarm = Alarm;

    fn now(&self) -> Duration {
        Duration::from_nanos(self.timers.now().ns())
    }

    fn turn(&self) -> usize {
        crowd::together(|| self.timers.turn_some())
    }

    fn wait(&self) -> Option<Duration> {
        self.timers.wait()
    }

    fn is_due(&self, now: Duration) -> bool {
        self.timers.nearest().is_some_and(|at| at.ns() <= now.as_nanos() as u64)
    }

    fn keep_time(&self) -> Option<Duration> {
        self.timers.keep_time()
    }

    fn keeps_no_time(&self) {
        self.timers.keeps_no_time();
    }

    fn alarm(&self, waker: &Waker, after: Duration) -> Alarm {
        alarm::ring(after, waker.clone())
    }
}

/// Owns workers, or none: then the threads that lend themselves by [`run`](Self::run) or [`block_on`](Self::block_on)
/// drive it, and with none of those nothing runs.
///
/// Dropped, it kills what is left. A thread inside a step that never returns is named on stderr and left behind.
///
/// ```
/// let rt = procession::Runtime::new()?;
/// let answer = rt.spawn(async |_: procession::Context| Ok::<_, procession::Exit>(6 * 7));
/// assert_eq!(rt.block_on(answer)?, 42);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub struct Runtime {
    host: Host,
    threads: Arc<Threads>,
    patience: Duration,
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("node", &self.host.node()).field("workers", &self.threads.workers()).finish()
    }
}

impl Deref for Runtime {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

/// Builds a runtime, runs one body on it to its end, shuts down.
///
/// ```
/// async fn hello(ctx: procession::Context) {
///     println!("hello from {}", ctx.pid());
/// }
/// procession::run(hello)?;
/// # Ok::<(), procession::Exit>(())
/// ```
///
/// # Errors
/// How the body ended instead; [`Exit::Failed`] with a [`BuildError`] if no runtime could be built.
pub fn run<M, F, Fut>(body: F) -> Result<Output<Fut>, Exit>
where
    M: Send + 'static,
    F: Body<M, Fut>,
    Fut: BodyFuture,
{
    let rt = Runtime::new().map_err(Exit::failed)?;
    rt.block_on(rt.spawn(body))
}

impl Runtime {
    /// A runtime with one worker for each core, and no handler.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn new() -> Result<Self, BuildError> {
        Self::builder().build()
    }

    /// A runtime to one's own measure.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn threads(&self) -> &Arc<Threads> {
        &self.threads
    }

    /// The handle that everybody may hold.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Runs a future on this thread, which lends itself to the runtime until the future is done: in between it runs
    /// processes, and sleeps when there are none.
    ///
    /// When `future` has been woken, at most the step that is in progress on this thread comes before its next poll. If
    /// `future` wakes itself in its own poll, one step comes in between. A deadline that `future` waits for is noticed at
    /// the latest 16 steps after it has passed, and after each step while steps take more than 20 µs.
    ///
    /// It works on any thread, also inside a step, where it keeps the worker, and in the destructor of a thread-local. Each
    /// call in progress takes one of the 48 places that workers and lent threads share, also one that is nested in the step
    /// of another one. Beyond those, a call waits for its future and for a place, and runs no processes: then timers may be
    /// late by up to a second. If all places belong to calls that wait for processes, nothing runs these: prefer `await` in
    /// an asynchronous body.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        if const { is_large::<F, ()>() } {
            self.block_on_moved(Box::into_pin(Box::new(future)))
        } else {
            self.block_on_moved(future)
        }
    }

    /// As [`block_on`](Self::block_on), of a future that may be moved often: it is small.
    fn block_on_moved<F: Future>(&self, future: F) -> F::Output {
        // What this thread keeps may be what is waited for.
        crowd::release();
        Current::with(|current| current.waking(WakeOrder::NextSlot, || self.threads.block_on(future)))
    }

    /// A future that does what `future` does, and drives processes wherever it is polled until then: so the whole
    /// runtime can live inside another executor, with no thread of its own.
    ///
    /// A poll ends after 200 steps, or after 100 µs, so that other tasks of the executor have their turn. The clock is
    /// read after each step while steps are long, and at least once in 16 steps, so a poll exceeds that time by one long
    /// step, or by up to 16 steps if they have just become long. If `future` itself uses up that time, one step is executed
    /// nevertheless, so that it does not starve the processes. If there is more to do, the poll wakes its own waker
    /// before it returns. When `future` has been woken, at most the step that is in progress comes before its next poll, as
    /// in [`block_on`](Self::block_on).
    ///
    /// Dropped, it passes on what it holds. One that is never polled again, or passed to [`std::mem::forget`], delays no
    /// other thread, but keeps one of the 48 places that workers and lent threads share. Beyond those, a further lender
    /// drives nothing until one is free. For that reason all futures of this kind are woken when there is work for which no
    /// worker and no blocked thread is free.
    pub async fn run<F: Future>(&self, future: F) -> F::Output {
        self.threads.run(future).await
    }

    /// Has so many workers from now on, at most as many as fit (see [`BuildError::TooManyWorkers`]); with 0 it is driven by
    /// those who lend themselves, and not at all if there are none.
    ///
    /// Returns at once, on any thread, also inside a step. Those who are too many leave after the step that they are in;
    /// what they hold goes to the others. Where the system has no thread for one that is to come, it is not there until
    /// the number is set again or a step that blocks is noticed.
    pub fn set_workers(&self, count: usize) {
        self.threads.set_workers(count);
    }

    /// Ends the runtime in order: refuses new work from outside, tells every process to end, keeps running until the
    /// last one has, clean-up commands included, or `within` is over; then kills.
    ///
    /// Returns at its deadline even if a step never ends, and says who was left: for a thread that is in such a step it
    /// waits up to 10 ms longer. A runtime without workers is driven by this future itself, and can do that only if every
    /// step returns.
    ///
    /// It takes the runtime, so that one can't be what waits for it; any other executor can.
    ///
    /// ```
    /// # use procession::{Context, Runtime};
    /// # use std::time::Duration;
    /// let rt = Runtime::new()?;
    /// rt.spawn(async |mut ctx: Context| ctx.receive().await.map(drop));
    /// let report = futures::executor::block_on(rt.shutdown(Duration::from_secs(1)));
    /// assert!(report.left.is_empty(), "{:?}", report.left);
    /// # Ok::<(), procession::BuildError>(())
    /// ```
    pub async fn shutdown(mut self, within: Duration) -> Shutdown {
        let host = self.host.clone();
        let deadline = host.now() + within;
        host.begin_shutdown(deadline);
        let ended = pin!(host.clone().ended_by(deadline, alarm::ring));
        let ended = if self.threads.workers() == 0 { self.threads.run(ended).await } else { ended.await };
        // Whoever is spawned from here on, by a thread that began to before, is not left: it never was.
        let left = if ended { Vec::new() } else { host.left() };
        if !left.is_empty() {
            self.patience = (deadline + GRACE).saturating_duration_since(host.now());
        }
        drop(self);
        Shutdown { left }
    }

    /// Runs what is queued until nothing is.
    fn run_dry(&self) {
        loop {
            let tasks = self.threads.drain();
            if tasks.is_empty() {
                return;
            }
            tasks.into_iter().for_each(Job::run_here);
        }
    }

    /// Stops the workers, buries who is left, and lets go of the rest.
    fn end(&mut self) {
        self.host.advance(crate::host::Phase::Closed);
        self.threads.stop();
        let stopped = self.threads.wait_stopped(self.patience);
        self.host.condemn();
        if !stopped {
            for control in self.host.alive() {
                let head = control.head();
                if head.state() == Some(State::Running) {
                    eprintln!(
                        "procession: {} is in a step that does not return; its thread is left behind",
                        head.pid()
                    );
                }
            }
        }
        // Every one of these was told to end: it is run once more for that. What is queued after the last look is dropped
        // where it is queued, which is its end too.
        self.run_dry();
        self.threads.close();
        self.run_dry();
        self.host.shared().pool.iter().for_each(Pool::close);
        self.host.shared().timers.clear();
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.end();
    }
}

host_methods!(Builder, host);
host_methods!(HostBuilder,);

/// Wraps what a thread of the runtime does from its first to its last moment.
type Around = Arc<dyn Fn(&mut dyn FnMut()) + Send + Sync>;

/// How a runtime is built. A turbofish is never needed: the command is the closure's argument type.
#[must_use = "a builder builds nothing until `build`"]
pub struct Builder {
    workers: Option<usize>,
    host: HostBuilder,
    observer: Option<Arc<dyn Observer>>,
    on_panic: OnPanic,
    blocking_threads: usize,
    blocking_queue: usize,
    blocking_idle: Duration,
    when_blocking_full: WhenFull,
    around: Option<Around>,
    hooks: Hooks,
    #[cfg(feature = "affinity")]
    cores: Option<Vec<usize>>,
    node: Option<u32>,
    seed: Option<u64>,
    order: LocalOrder,
    shuffle: bool,
    exact: bool,
    long_step: Duration,
    substitutes: usize,
    thread_name: String,
    stack_size: Option<usize>,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("workers", &self.workers).field("host", &self.host).finish_non_exhaustive()
    }
}

impl Builder {
    fn new() -> Self {
        Self {
            workers: None,
            host: HostBuilder::new(""),
            observer: None,
            on_panic: OnPanic::default(),
            blocking_threads: 64,
            blocking_queue: 1 << 16,
            blocking_idle: Duration::from_secs(10),
            when_blocking_full: WhenFull::default(),
            around: None,
            hooks: Hooks::default(),
            #[cfg(feature = "affinity")]
            cores: None,
            node: None,
            seed: None,
            order: LocalOrder::default(),
            shuffle: false,
            exact: false,
            long_step: Duration::from_millis(10),
            substitutes: 16,
            thread_name: "procession-worker".into(),
            stack_size: None,
        }
    }

    /// What worker threads are called (`procession-worker`); a number follows, and `-monitor` for the monitor's. A name
    /// that contains a NUL byte is an error when building.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = name.into();
        self
    }

    /// Sets the size of the workers' stacks in bytes. Default: that of the standard library. A size below 64 KiB is raised to
    /// 64 KiB, because the runtime's own code needs a part of the stack. The system rounds the size up, or refuses it: that is
    /// an error when building.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes.max(MIN_STACK));
        self
    }

    /// How many workers: by default as many as the machine has cores. With 0 the runtime owns no thread: those that
    /// lend themselves drive it.
    pub fn workers(mut self, count: usize) -> Self {
        self.workers = Some(count);
        self
    }

    /// Who is told of every transition. Without an observer one costs a predicted branch.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// What happens beyond the end of a process that panicked.
    pub fn on_panic(mut self, policy: OnPanic) -> Self {
        self.on_panic = policy;
        self
    }

    /// How many threads the blocking pool may have (64); they are started when they are needed. With 0 blocking work
    /// is refused.
    pub fn blocking_threads(mut self, most: usize) -> Self {
        self.blocking_threads = most;
        self
    }

    /// How much work may wait for a blocking thread (65,536), beside what runs; with 0 none does. What comes beyond is
    /// for [`when_blocking_full`](Self::when_blocking_full).
    pub fn blocking_queue(mut self, most: usize) -> Self {
        self.blocking_queue = most;
        self
    }

    /// A blocking thread that had no work for so long goes (10 s); with zero, as soon as nothing waits for it.
    pub fn blocking_idle(mut self, time: Duration) -> Self {
        self.blocking_idle = time;
        self
    }

    /// What is refused when as many blocking threads as there may be are busy and the queue is full: the new work, by
    /// default. Neither a handler nor [`Host::spawn_blocking`] ever waits for room.
    pub fn when_blocking_full(mut self, policy: WhenFull) -> Self {
        self.when_blocking_full = policy;
        self
    }

    /// Wraps what each worker and each blocking thread does from its first to its last moment, so that another
    /// runtime's context can be entered there. `f` has to call what it is given, once.
    ///
    /// ```
    /// # fn enter() -> impl Drop { struct Guard; impl Drop for Guard { fn drop(&mut self) {} } Guard }
    /// let rt = procession::Runtime::builder()
    ///     .around_worker(|work| {
    ///         let _guard = enter();
    ///         work();
    ///     })
    ///     .build()?;
    /// # Ok::<(), procession::BuildError>(())
    /// ```
    pub fn around_worker(mut self, f: impl Fn(&mut dyn FnMut()) + Send + Sync + 'static) -> Self {
        self.around = Some(Arc::new(f));
        self
    }

    /// Called on each worker thread before it runs its first task; once in its life, wherever it works. Not on
    /// the threads of the blocking pool, nor on lent ones: see [`around_worker`](Self::around_worker).
    ///
    /// The four hooks are called under no lock. One that panics is as one that returned; one that takes long keeps its
    /// worker from its work. The last one set holds.
    ///
    /// ```
    /// # use std::sync::atomic::{AtomicUsize, Ordering};
    /// static AT_WORK: AtomicUsize = AtomicUsize::new(0);
    /// let rt = procession::Runtime::builder()
    ///     .workers(2)
    ///     .on_thread_start(|| { AT_WORK.fetch_add(1, Ordering::SeqCst); })
    ///     .on_thread_stop(|| { AT_WORK.fetch_sub(1, Ordering::SeqCst); })
    ///     .build()?;
    /// drop(rt);
    /// assert_eq!(AT_WORK.load(Ordering::SeqCst), 0);
    /// # Ok::<(), procession::BuildError>(())
    /// ```
    pub fn on_thread_start(mut self, f: impl Fn() + Send + Sync + 'static) -> Self {
        self.hooks.start = Some(Arc::new(f));
        self
    }

    /// Called on each worker thread after its last task: see [`on_thread_start`](Self::on_thread_start). Not of one that
    /// is left behind in a step that never returns.
    pub fn on_thread_stop(mut self, f: impl Fn() + Send + Sync + 'static) -> Self {
        self.hooks.stop = Some(Arc::new(f));
        self
    }

    /// Called on a worker thread that has found nothing to do, right before it sleeps: see
    /// [`on_thread_start`](Self::on_thread_start). What comes meanwhile waits until it returns.
    pub fn on_thread_park(mut self, f: impl Fn() + Send + Sync + 'static) -> Self {
        self.hooks.park = Some(Arc::new(f));
        self
    }

    /// Called on a worker thread when it has slept, once for each [`on_thread_park`](Self::on_thread_park).
    pub fn on_thread_unpark(mut self, f: impl Fn() + Send + Sync + 'static) -> Self {
        self.hooks.unpark = Some(Arc::new(f));
        self
    }

    /// Whether each worker stays on a core of its own, as far as there are cores that this program may use: worker n on
    /// the n-th of them, and from the first again. Substitutes are workers like any others, with the next numbers. Some
    /// systems take it for a hint. Needs the feature `affinity`.
    ///
    /// It helps where nothing else runs on these cores, and hurts where something does: a worker that has lost its core
    /// can't go to another.
    #[cfg(feature = "affinity")]
    pub fn pin_workers(mut self, on: bool) -> Self {
        self.cores = on.then(Vec::new);
        self
    }

    /// The same with these cores, by the system's numbers; with none of them, with all that there are. One that this
    /// program may not use is an error when building.
    #[cfg(feature = "affinity")]
    pub fn pin_workers_to(mut self, cores: impl IntoIterator<Item = usize>) -> Self {
        self.cores = Some(cores.into_iter().collect());
        self
    }

    /// The number of this runtime as a node; by default one that no other runtime of this program has.
    pub fn node(mut self, node: u32) -> Self {
        self.node = Some(node);
        self
    }

    /// The seed of everything that is left to chance: by default another one each time.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// In which order each worker runs what waits in its own queue: [`LocalOrder::Fifo`], by default, or newest first.
    pub fn local_order(mut self, order: LocalOrder) -> Self {
        self.order = order;
        self
    }

    /// For tests: shuffles the next slot and the queues, so that nobody relies on their order.
    pub fn shuffle(mut self, on: bool) -> Self {
        self.shuffle = on;
        self
    }

    /// Measures every scheduling delay, where one in 64 is by default.
    pub fn exact_times(mut self, on: bool) -> Self {
        self.exact = on;
        self
    }

    /// How long a step may keep its worker before it is called long (10 ms): see [`WorkerState::Blocked`]. It is noticed
    /// when it has taken that long, and before it has taken twice as long, to the precision of the system's timers; then
    /// a substitute takes over what its worker holds. Times under 2 ms are taken for that; with `Duration::MAX` no step is
    /// long. Without workers of its own the runtime has no thread that would notice.
    pub fn long_step(mut self, time: Duration) -> Self {
        self.long_step = time;
        self
    }

    /// How many threads may stand in, at a time, for workers in long steps (16); with 0 none do, and what such a worker
    /// holds goes to those that there are. Beyond that many, long steps keep others waiting. Those who are too many when
    /// steps return go after half a second.
    pub fn substitutes(mut self, most: usize) -> Self {
        self.substitutes = most;
        self
    }

    /// Starts the runtime.
    ///
    /// The first runtime of a program also adds a panic hook in front of the present one. The hook names the process if a
    /// panic aborts the program, and prints nothing for other panics. A hook that the program sets later replaces it.
    ///
    /// # Errors
    /// Two handlers for one command, more workers than fit (see [`BuildError::TooManyWorkers`]), an option that has no
    /// meaning ([`BuildError::Invalid`]), or a thread that could not be started: then none is left behind.
    pub fn build(self) -> Result<Runtime, BuildError> {
        /// Numbers the runtimes of this program.
        static NODES: AtomicU32 = AtomicU32::new(1);

        if self.thread_name.contains('\0') {
            // The standard library panics when a thread is started under such a name.
            return Err(BuildError::Invalid("the thread name contains a NUL byte"));
        }
        let realm = self.host.build()?;
        let workers = self.workers.unwrap_or_else(scheduler::cores);
        let seed = self.seed.unwrap_or_else(chance::seed);
        let clock = Clock::real();
        let metrics = Metrics::new(scheduler::SLOTS);
        let metrics = Arc::new(if self.exact { metrics.exact() } else { metrics });
        let timers = Arc::new(Timers::new(clock.clone(), workers.min(scheduler::SLOTS)));
        let node = self.node.unwrap_or_else(|| NODES.fetch_add(1, Ordering::Relaxed));
        // Never 0, which is a simulation's.
        let incarnation = chance::seed() as u32 | 1;
        let observe = self.observer.clone().map(|observer| reports_to(observer, clock.clone(), (node, incarnation)));
        #[cfg_attr(not(feature = "affinity"), expect(unused_mut, reason = "workers are pinned by a hook"))]
        let mut hooks = self.hooks;
        #[cfg(feature = "affinity")]
        if let Some(cores) = self.cores {
            hooks.seat = Some(affinity::pin_to(cores)?);
        }
        let options = scheduler::Options {
            workers,
            name: self.thread_name,
            stack_size: self.stack_size,
            seed,
            order: self.order,
            shuffle: self.shuffle,
            around: self.around.clone(),
            hooks,
            observe,
            long_step: Some(self.long_step).filter(|&time| time != Duration::MAX),
            substitutes: self.substitutes,
        };
        let threads = Threads::new(options, Time { timers: Arc::clone(&timers) }, Arc::clone(&metrics))
            .map_err(|TooManyWorkers { asked, most }| BuildError::TooManyWorkers { asked, most })?;
        let (rearm, preempt) = (Arc::clone(&threads), Arc::clone(&threads));
        let home = Arc::as_ptr(&threads) as usize;
        let place: Arc<dyn Any + Send + Sync> = threads.clone();
        let shared = Shared::new(Ground {
            relay: Relay::new(node, incarnation, 4 * workers.max(1)),
            clock,
            timers,
            pool: Some(Pool::new(blocking::Options {
                most: self.blocking_threads,
                queue: self.blocking_queue,
                when_full: self.when_blocking_full,
                keep: self.blocking_idle,
                name: "procession-blocking".into(),
                around: self.around,
            })),
            metrics,
            observer: self.observer,
            on_panic: self.on_panic,
            on_unobserved: None,
            schedule: to_threads,
            schedule_all: all_to_threads,
            place,
            home,
            rearm: Box::new(move || rearm.rearm()),
            preempt: Box::new(move |label| preempt.preempt(label)),
            chance: Mutex::new(Rng::seeded(seed)),
        });
        let host = Host::new(Arc::new(shared), realm);
        threads.start()?;
        Ok(Runtime { host, threads, patience: PATIENCE })
    }
}

/// What a scheduler calls when the state of a worker changes, or when a step keeps its worker for too long.
type Observe = Arc<dyn Fn(usize, WorkerState, Option<u64>) + Send + Sync>;

/// Reports to an observer of the runtime whose pids have these two numbers. Panics of the observer are caught.
fn reports_to(observer: Arc<dyn Observer>, clock: Clock, (node, incarnation): (u32, u32)) -> Observe {
    Arc::new(move |worker, state, task| {
        let _ = catch(|| observer.worker(worker, state, clock.now()));
        if let Some(task) = task {
            let Place { index, generation } = Place::from(task);
            let pid = (task != NOBODY).then(|| Pid::new(node, incarnation, index, generation));
            let _ = catch(|| observer.blocked(worker, pid, clock.now()));
        }
    })
}

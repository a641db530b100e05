//! The threaded runtime: [`Runtime`] and its [`Builder`], the thread-bound processes of a `LocalSet`, and the
//! `Simulation`. A runtime combines a host, a scheduler and a clock. The drop of a runtime ends its processes, its
//! threads and its timers, in a fixed order.
//!
//! This folder imports `task` and all folders that `task` imports. In this folder, only the module `console` also
//! imports the folder `behaviour`. The host owns the processes. The scheduler owns the worker threads and their queues.
//! A simulation has its own queue of tasks instead of a scheduler. The runtime does not interpret messages.

#[cfg(feature = "affinity")]
pub(crate) mod affinity;
#[cfg(feature = "console")]
pub(crate) mod console;
pub(crate) mod enqueue;
pub(crate) mod local;
mod own_future;
pub(crate) mod simulation;
pub(crate) mod step_guard;
pub(crate) mod tokio_context;
pub(crate) mod wrap_threads;

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io::{Write, stderr};
use std::ops::Deref;
use std::pin::{Pin, pin};
use std::time::Duration;

use crate::context::Context;
use crate::handler::IntoReply;
use crate::handler::stream::{ByStream, StreamCompletion, StreamHandler};
use crate::host::dispatch::Handler;
use crate::host::job::blocking_pool::{Overflow, Pool};
use crate::host::job::{Job, batch, blocking_pool as blocking};
use crate::host::namespace::builder::{HostBuilder, host_methods};
use crate::host::registry::{LocalId, PidTable};
use crate::host::shutdown::SHUTDOWN_GRACE;
use crate::host::shutdown::report::ShutdownReport;
use crate::host::timer::Timers;
use crate::host::{Environment, Host, PanicPolicy, Shared};
use crate::observe::crash::{CrashReport, OnCrash};
use crate::observe::exits::ExitHistory;
use crate::observe::trace::flight::RecordCause;
use crate::observe::{FlightRecorder, InspectOptions, Metrics, Observer, ProcessState, WorkerState};
use crate::platform::clock::Clock;
use crate::platform::random as chance;
use crate::platform::random::Rng;
use crate::platform::sync::atomic::{AtomicUsize, Ordering};
use crate::platform::sync::tally::AtomicU32;
use crate::platform::sync::{Arc, Mutex};
use crate::process::catch::catch;
use crate::process::command::{Command, NamedCommand, StreamCommand};
use crate::process::error::BuildError;
use crate::process::exit::Exit;
use crate::process::limits::Limits;
use crate::process::pid::Pid;
use crate::process::pid::text::Simulated;
use crate::process::state::current::Current;
use crate::runtime::enqueue::{Threads, all_to_threads, gauges_of_threads, to_threads, visit_sockets_of_threads};
use crate::runtime::own_future::{DropFuture, DropGuard, OwnFuture};
use crate::runtime::step_guard::StepGuard;
use crate::runtime::tokio_context::TokioContext;
use crate::runtime::wrap_threads::WrapThread;
/// Budget of one poll. The same rules limit a poll of [`Runtime::run`] and a poll of a [`LocalSet`](local::LocalSet).
pub(crate) use crate::scheduler::Budget;
pub(crate) use crate::scheduler::OwnWaker;
pub use crate::scheduler::QueueOrder;
use crate::scheduler::{Hook, Hooks, NO_LABEL, TooManyWorkers, Worker};
use crate::task::body::{Body, is_large};
use crate::{handler, scheduler};

/// Maximum time that the drop of a runtime waits for steps in progress.
const DROP_TIMEOUT: Duration = Duration::from_secs(1);

/// Smallest stack of a worker, in bytes. The system allows a stack of 16 KiB, but a worker of a debug build can
/// overflow such a stack.
const MIN_STACK: usize = 64 << 10;

/// Runs a blocking closure inside a step. A replacement thread immediately runs the other processes of the step's
/// worker. When the step returns, the thread of the step becomes a worker again. If enough workers already run, the
/// thread of the step exits.
///
/// Each call of this function occupies a thread. Therefore, use this function only for rare calls that cannot run on
/// another thread. For many blocking calls, use [`Host::spawn_blocking`]. The process receives no messages until `f`
/// returns. A surplus thread waits for half a second before the thread exits, so that another call can reuse the
/// thread. [`Builder::max_replacement_threads`] and the [48 slots](Builder::workers) of a runtime limit the number of
/// replacement threads that run at the same time. When a limit is reached, no thread replaces the blocked worker, and
/// the other workers take the queued tasks of the blocked worker.
///
/// This function does not report to tokio that the thread blocks. On a worker thread of tokio, `f` must therefore not
/// wait for a new task of tokio: see [`Runtime::block_on`].
///
/// On a thread that runs no task, this function only calls `f`. On a guest thread, this function calls `f` and also
/// wakes a worker. Workers steal the tasks that the guest thread has queued.
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
/// Panics if `f` panics. The panic ends the process, as every panic in a step does.
pub fn block_in_place<T>(f: impl FnOnce() -> T) -> T {
    Worker::<Job>::hand_over_here();
    let _unstored = Current::with(Current::block);
    f()
}

/// The next free node number. If the builder sets no node number, the runtime takes this number.
static NODES: AtomicU32 = AtomicU32::new(1);

/// A runtime. A runtime runs processes on its worker threads.
///
/// If a runtime has no workers, the guest threads run the processes of the runtime. A guest thread is a thread inside
/// [`run`](Self::run) or [`block_on`](Self::block_on). Without workers and guest threads, no process runs.
///
/// The drop of the runtime kills the remaining processes. The drop waits up to one second for steps in progress. If a
/// step does not return within this second, the drop prints the pid of the process of this step to stderr. The drop
/// does not stop the thread of the step. If the runtime has no workers, a thread that polls a future of
/// [`shutdown`](Self::shutdown) runs steps. While a thread polls such a future, the drop of the runtime does not wait
/// for a step on this thread. The drop does not wait for closures that run on the blocking pool. The drop also does not
/// wait until the system has ended the worker threads. Therefore the destructors of thread-local values of the workers
/// may run after the drop.
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
    tokio: TokioContext,
    /// The console server, if the runtime has a console socket.
    #[cfg(feature = "console")]
    console: Option<console::Console>,
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

/// Builds a runtime, spawns `body` as a process, waits until this process exits, and drops the runtime.
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
/// Returns the exit of the body if the exit is not normal, for example after an error, a panic, a cancellation or a
/// kill. Returns [`Exit::Failed`] with a [`BuildError`] if the runtime could not be built.
pub fn run<M, F, Fut>(body: F) -> Result<F::Value, Exit>
where
    M: Send + 'static,
    F: Body<M, Future = Fut> + FnOnce(Context<M>) -> Fut,
    Fut: Future,
{
    let rt = Runtime::new().map_err(Exit::failed)?;
    rt.block_on(rt.spawn(body))
}

impl Runtime {
    /// Builds a runtime with one worker for each core, but at most 40 workers, and without handlers.
    ///
    /// # Errors
    /// Returns an error if a thread could not be started.
    pub fn new() -> Result<Self, BuildError> {
        Self::builder().build()
    }

    /// Returns a builder with default options.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn threads(&self) -> &Arc<Threads> {
        &self.threads
    }

    /// Returns the host of the runtime. A clone of the host can be sent to any thread.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Runs a future to completion on this thread. During this call, the thread is a guest thread: between the polls of
    /// the future, the thread runs processes. When no process is runnable, the thread parks.
    ///
    /// When another thread or a process wakes `future`, this thread first completes the step in progress, and then
    /// polls `future` again. If `future` wakes itself during its own poll, one step runs before the next poll.
    ///
    /// If `future` waits for a deadline, the thread may notice the deadline late. If each step takes more than 20 µs,
    /// the thread notices the deadline at the end of the current step. If the steps are shorter, the thread notices the
    /// deadline after at most 16 steps. If long steps follow short steps, all these 16 steps may be long.
    ///
    /// This method works on any thread, and also in the destructor of a thread-local. This method also works inside a
    /// step, but then the method blocks the worker of the step. Inside a step, `future` must not wait for a command
    /// that the same step yields: the runtime dispatches the commands of a step when the step ends. Calls and sleeps
    /// work inside a step.
    ///
    /// While a call runs a step of a process, this step may itself call `block_on`. The outer call then returns
    /// only after the inner call has returned.
    ///
    /// On a worker thread of tokio's multi-threaded runtime, `future` may wait forever for a task of tokio that was
    /// just spawned on this thread. The reason is that tokio stores such a task in the LIFO slot of the worker. No
    /// other worker of tokio takes the task from this slot. Call `tokio::task::block_in_place(|| rt.block_on(future))`
    /// instead, or await [`run`](Self::run). Without the feature `tokio` of this crate, a task of tokio must also wrap
    /// the call in `tokio::task::unconstrained`. Otherwise tokio limits the task to 128 operations in this call.
    ///
    /// Each call in progress takes one of the 48 slots that workers and guest threads share. If a call runs a step, and
    /// this step calls `block_on`, the nested call also takes a slot. If all slots are in use, the call runs no
    /// processes until a slot is free. Meanwhile, the call still polls its future, and returns when the future
    /// completes. While the call waits for a slot, timers and sockets may be late by up to one second. Suppose that
    /// each slot belongs to a call that runs a step, and that this step waits for another process in a nested call.
    /// Then no thread is left to run the other processes. Therefore, in an async body, use `await` and not this method.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        // The call may happen inside a simulation. The future and the tasks that this call runs still belong to this
        // runtime.
        let _pids = Simulated::enter(0);
        let _unstored = Current::with(Current::block);
        let step = StepGuard::new(&self.host);
        let mut output = None;
        if const { is_large::<F, ()>() } {
            // The future is boxed first, because each further move would copy this large future.
            let future = Box::into_pin(Box::new(future));
            self.block_on_own(step.as_ref(), pin!(OwnFuture::new(future, &mut output)));
        } else {
            self.block_on_own(step.as_ref(), pin!(OwnFuture::new(future, &mut output)));
        }
        output.expect("the future has resolved")
    }

    /// Runs tasks until the future resolves, and then drops the future. The future is a trait object, so this code is
    /// compiled once, and not once for each type of future.
    fn block_on_own(&self, step: Option<&StepGuard>, own: Pin<&mut dyn DropFuture>) {
        self.tokio.within_blocking(|| {
            // The future is dropped inside the context, because the destructor of the future may also use tokio.
            let mut own = DropGuard(own);
            self.threads.block_on(poll_fn(|cx| match step {
                Some(step) => step.poll(own.0.as_mut(), cx),
                None => own.0.as_mut().poll(cx),
            }));
        });
    }

    /// Returns a future that resolves to the output of `future`. Each poll of the returned future also runs processes.
    /// Therefore, the whole runtime can run inside another executor, and needs no thread of its own.
    ///
    /// A poll ends after 200 steps or after 100 µs, so that other tasks of the executor can run. While steps are long,
    /// the poll reads the clock after each step. While steps are short, the poll reads the clock at least once in 16
    /// steps. Therefore, while steps are long, a poll exceeds 100 µs by at most one step. If long steps follow short
    /// steps, up to 16 long steps may run before the poll reads the clock. Each poll runs at least one step, even if
    /// the poll of `future` takes more than 100 µs. There is one exception: if another thread wakes `future` during
    /// each poll of `future`, `future` is polled up to 16 times before the next step. Therefore, `future` does not
    /// starve the processes. If processes are still runnable at the end of a poll, the poll wakes its own waker before
    /// it returns.
    ///
    /// When `future` is woken, `future` is polled again after the step in progress, as in [`block_on`](Self::block_on).
    ///
    /// # Cancel safety
    /// If the returned future is dropped, `future` is also dropped, and the other threads take the queued tasks of the
    /// returned future. If the returned future is never polled again, or is passed to [`std::mem::forget`], the
    /// returned future delays no task. If a task is runnable, and neither a worker nor a thread in `block_on` is free,
    /// the runtime wakes all futures of this method. Therefore, another future of this method can run the task. A
    /// future that is never polled again still takes one of the 48 slots that workers and guest threads share. If all
    /// slots are in use, a further guest runs no processes until a slot is free.
    pub fn run<F: Future>(&self, future: F) -> impl Future<Output = F::Output> {
        drive(&self.threads, &self.tokio, future)
    }

    /// Sets the number of worker threads. The [48 slots](Builder::workers) limit this number: a number above 48 means
    /// 48. With 0 workers, processes run only on threads inside [`run`](Self::run) or [`block_on`](Self::block_on).
    ///
    /// This method returns immediately, and may be called on any thread, even inside a step. Surplus workers exit after
    /// their current step, and the other threads take the queued tasks of the surplus workers. If the system refuses to
    /// start the thread of a new worker, the runtime has one worker fewer. The runtime tries again to start this thread
    /// in two cases: the number is set again, or the monitor thread (the thread that detects long steps) finds a busy
    /// worker.
    pub fn set_workers(&self, count: usize) {
        self.threads.set_workers(count);
    }

    /// Shuts the runtime down in an orderly way, as [`Host::shutdown`] does. The shutdown begins when this method is
    /// called, and not at the first poll of the returned future. If the runtime has no workers at this first poll, the
    /// returned future runs the processes. In this case, the shutdown ends by its deadline only if every step returns.
    ///
    /// Any executor can poll the returned future, including this runtime. The future does not borrow the runtime. The
    /// threads of the runtime are stopped later, by the drop of the runtime. If a step does not return, the drop waits
    /// at most 10 ms for the thread of the step.
    ///
    /// ```
    /// # use procession::{Context, Runtime};
    /// # use std::time::Duration;
    /// let rt = Runtime::new()?;
    /// rt.spawn(async |mut ctx: Context| ctx.receive().await.map(drop));
    /// let report = rt.block_on(rt.shutdown(Duration::from_secs(1)));
    /// assert!(report.left.is_empty(), "{:?}", report.left);
    /// # Ok::<(), procession::BuildError>(())
    /// ```
    ///
    /// # Cancel safety
    /// Cancel safe. After the future was dropped, a later call returns a future that resolves to the report.
    pub fn shutdown(&self, within: Duration) -> impl Future<Output = ShutdownReport> + Send + use<> {
        let shutdown = self.host.shutdown(within);
        let (threads, tokio) = (Arc::clone(&self.threads), self.tokio.clone());
        async move { if threads.workers() == 0 { drive(&threads, &tokio, shutdown).await } else { shutdown.await } }
    }

    /// Prepares the flight recorder, if the options contain a flight recorder.
    fn start_record_writer(self) -> Result<Self, BuildError> {
        self.host.start_record_writer(self.threads.workers())?;
        Ok(self)
    }

    /// Runs the queued tasks until the queues are empty.
    fn run_dry(&self) {
        loop {
            let tasks = self.threads.drain();
            if tasks.is_empty() {
                return;
            }
            tasks.into_iter().for_each(Job::run_here);
        }
    }

    /// Stops the workers, kills the remaining processes, and drops the remaining jobs.
    fn end(&mut self) {
        // The rest of this function records many events, and these events could overwrite the events of a requested
        // flight record. Therefore, the requested flight records are written before the rest of this function runs.
        self.host.stop_record_writer();
        self.host.advance(crate::host::Phase::Closed);
        self.threads.stop();
        // If a process is still alive after a shutdown, the process is in a step that does not return.
        let is_left = self.host.is_shut_down() && !self.host.all_ended();
        let stopped = self.threads.wait_stopped(if is_left { SHUTDOWN_GRACE } else { DROP_TIMEOUT });
        self.host.close_and_kill();
        if !stopped {
            for control in self.host.alive() {
                let head = control.head();
                if head.state() == Some(ProcessState::Running) && !control.has_turn_here() {
                    // A broken pipe must not panic here, because the rest of this function must run.
                    let _ = writeln!(
                        stderr(),
                        "procession: {} is in a step that does not return; the runtime ends without this thread",
                        head.pid()
                    );
                }
            }
        }
        // Each remaining process was killed. Therefore, each of these processes is queued once more, and `run_dry` runs
        // the exit of the process. If a task is queued after the last `drain`, the closed queue drops this task. The
        // drop of a task also ends its process.
        self.run_dry();
        self.threads.close();
        if let Some(poller) = self.threads.poller() {
            // After the close of the poller, all socket operations fail, even outside the processes of this runtime.
            // The next line calls the wakers of the pending operations.
            let _ = catch(|| batch::wake_all(&mut poller.close(), &|| ()));
        }
        self.run_dry();
        self.host.shared().pool.iter().for_each(Pool::close);
        self.host.shared().timers.clear();
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let tokio = self.tokio.clone();
        tokio.within(|| self.end());
    }
}

/// Runs `future`, and runs processes at each poll of the returned future. If there is a context of tokio, each poll
/// runs inside this context, and `future` is dropped inside this context.
fn drive<F: Future>(threads: &Arc<Threads>, tokio: &TokioContext, future: F) -> impl Future<Output = F::Output> {
    tokio.wrap_future(threads.run(future))
}

host_methods!(Builder, host);
host_methods!(HostBuilder,);

/// Builder of a [`Runtime`]. A call that registers a handler needs no turbofish, because the compiler infers the
/// command type from the argument type of the closure.
#[must_use = "a builder builds nothing until `build`"]
pub struct Builder {
    workers: Option<usize>,
    host: HostBuilder,
    observer: Option<Arc<dyn Observer>>,
    flight: Option<FlightRecorder>,
    last_messages: usize,
    on_panic: PanicPolicy,
    on_crash: OnCrash,
    exits: ExitHistory,
    blocking: blocking::Options,
    around: Option<WrapThread>,
    tokio: TokioContext,
    hooks: Hooks,
    #[cfg(feature = "affinity")]
    cores: Option<Vec<usize>>,
    #[cfg(feature = "console")]
    console: console::ConsoleOptions,
    node: Option<u32>,
    seed: Option<u64>,
    order: QueueOrder,
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
            flight: None,
            last_messages: 0,
            on_panic: PanicPolicy::default(),
            on_crash: Box::new(CrashReport::print),
            exits: ExitHistory::default(),
            blocking: blocking::Options { most: 64, queue: 1 << 16, ..blocking::Options::default() },
            around: None,
            tokio: TokioContext::default(),
            hooks: Hooks::default(),
            #[cfg(feature = "affinity")]
            cores: None,
            #[cfg(feature = "console")]
            console: console::ConsoleOptions::default(),
            node: None,
            seed: None,
            order: QueueOrder::default(),
            shuffle: false,
            exact: false,
            long_step: Duration::from_millis(10),
            substitutes: 16,
            thread_name: "procession".into(),
            stack_size: None,
        }
    }

    /// Sets the name of the worker threads. The name of each worker thread ends with a hyphen and a number, for example
    /// `procession-0`. The name of the monitor thread ends with `-mon`. Default: `procession`. Linux shows only the
    /// first 15 bytes of the name of a thread. Therefore, if `name` has more than 10 bytes, tools such as `top` show
    /// the same name for several threads. If the name contains a NUL byte, [`build`](Self::build) returns an error.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = name.into();
        self
    }

    /// Sets the stack size of the workers in bytes. Default: the default of the standard library. A size below 64 KiB
    /// is raised to 64 KiB, because the code of the runtime itself needs a part of the stack. Up to 47 calls of
    /// [`Runtime::block_on`] can be nested. In a debug build, each of these calls needs about 10 KiB. The system may
    /// round the size up. If the system refuses the size, [`build`](Self::build) returns an error.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes.max(MIN_STACK));
        self
    }

    /// Sets the number of worker threads. Default: the number of cores, at most 40. With 0 workers, the runtime has no
    /// worker thread, and processes run only on threads inside [`Runtime::run`] or [`Runtime::block_on`].
    ///
    /// A runtime has 48 slots. Each worker, each guest thread and each [replacement
    /// thread](Self::max_replacement_threads) takes one slot. A guest thread is a thread inside [`Runtime::run`] or
    /// [`Runtime::block_on`]. While all slots are in use, a further guest thread runs no processes, and no
    /// thread replaces a blocked worker. With more than 48
    /// workers, [`build`](Self::build) returns [`BuildError::TooManyWorkers`]. A program that needs more threads builds
    /// several runtimes.
    pub fn workers(mut self, count: usize) -> Self {
        self.workers = Some(count);
        self
    }

    /// Sets the observer. The runtime calls the observer for every change of the state of a process. Default: no
    /// observer. Without an observer, a change of state costs one predicted branch. A runtime has one observer: a
    /// second call replaces the first observer.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Keeps the last events of the runtime in memory, so that [`Host::write_flight_record`] can write these events to
    /// a file. Default: off. Without a flight recorder, the runtime has no additional cost. The [`FlightRecorder`] sets
    /// the size of the buffers. The [`FlightRecorder`] also sets whether the runtime writes a file on its own after
    /// certain events, for example after a panic.
    pub fn flight_recorder(mut self, recorder: FlightRecorder) -> Self {
        self.flight = Some(recorder);
        self
    }

    /// Turns on inspections that cost time and memory: the records of the last messages of each process, and optionally
    /// the flight recorder. Default: off. Without this option, there is no additional cost. [`InspectOptions`] states
    /// the costs. If the method is called several times, the last call sets the number of records. If this method and
    /// [`flight_recorder`](Self::flight_recorder) both set a flight recorder, the later call applies.
    ///
    /// ```
    /// # use procession::observe::InspectOptions;
    /// # use procession::{Context, Exit, Runtime};
    /// let rt = Runtime::builder().workers(0).inspect(InspectOptions::new().last_messages(2)).build()?;
    /// let process = rt.spawn(async |mut ctx: Context<u64>| -> Result<(), Exit> {
    ///     let divisor = ctx.receive().await?;
    ///     Err(Exit::failed(format!("no number is divisible by {divisor}")))
    /// });
    /// process.send(0)?;
    /// assert!(rt.block_on(process).is_err());
    /// let [message] = rt.last_exits()[0].last_messages[..] else { panic!("the process has received one message") };
    /// assert!(message.to_string().starts_with("message u64 ("));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn inspect(mut self, options: InspectOptions) -> Self {
        let (last_messages, flight) = options.into_parts();
        self.last_messages = last_messages;
        self.flight = flight.or(self.flight);
        self
    }

    /// Sets the policy for panics. A process that panics exits under every policy. The policy determines what the
    /// runtime does in addition. Default: [`PanicPolicy::Observe`].
    pub fn on_panic(mut self, policy: PanicPolicy) -> Self {
        self.on_panic = policy;
        self
    }

    /// Sets the function that receives the [crash report](CrashReport) of each unobserved failure. A failure is
    /// unobserved if no link, monitor, supervisor or join handle received the exit. Default: prints the report and a
    /// note to stderr. An empty function suppresses this output. The counter
    /// [`Counters::unobserved`](crate::observe::Counters::unobserved) still counts these failures. An observer receives
    /// the reports of all failures: see [`Observer::crashed`].
    ///
    /// The exit of the process or the drop of its join handle calls the function, on the same thread. The function must
    /// be short and must not block. A panic of the function is caught and ignored.
    ///
    /// ```
    /// # use procession::{Context, Exit, Runtime};
    /// # use std::sync::mpsc;
    /// let (tell, told) = mpsc::channel();
    /// let rt = Runtime::builder().on_crash(move |report| tell.send(report.to_string()).unwrap_or_default()).build()?;
    /// drop(rt.spawn(async |_: Context| Err::<(), _>("no luck")));
    /// assert!(told.recv()?.contains("exit:    failed: no luck"));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn on_crash(mut self, f: impl Fn(&CrashReport) + Send + Sync + 'static) -> Self {
        self.on_crash = Box::new(f);
        self
    }

    /// Sets the number of abnormal exits that [`Host::last_exits`] returns. Default: 64. The runtime keeps one record
    /// for each of these exits. A record makes an abnormal exit about 0.2 µs slower. The size of a record is about 180
    /// bytes, plus the size of the text of its error, plus 48 bytes for each of its last messages (at most 1,024
    /// messages). At most 8 records also have a [backtrace](crate::observe::ExitRecord::backtrace), which usually takes
    /// up to 50 KiB. If the number is 0, the runtime keeps no record. The runtime keeps no records of normal exits, so
    /// the number does not change the cost of a normal exit.
    ///
    /// ```
    /// # use procession::{Context, Runtime};
    /// let rt = Runtime::builder().exit_history(1).build()?;
    /// for error in ["first", "second"] {
    ///     assert!(rt.block_on(rt.spawn(async move |_: Context| Err::<(), _>(error))).is_err());
    /// }
    /// let [last] = &rt.last_exits()[..] else { panic!("the runtime keeps one record") };
    /// assert_eq!(last.exit.to_string(), "failed: second");
    /// # Ok::<(), procession::BuildError>(())
    /// ```
    pub fn exit_history(mut self, count: usize) -> Self {
        self.exits = ExitHistory::new(count);
        self
    }

    /// Sets the maximum number of threads of the blocking pool. Default: 64. The pool starts a thread when no thread is
    /// free for a new job. If the maximum is 0, the pool refuses every job.
    pub fn max_blocking_threads(mut self, most: usize) -> Self {
        self.blocking.most = most;
        self
    }

    /// Sets the maximum number of jobs that wait for a thread of the blocking pool. Running jobs are not counted.
    /// Default: 65,536. If the maximum is 0, no job waits. If the queue is full,
    /// [`blocking_overflow`](Self::blocking_overflow) determines which job is refused.
    pub fn blocking_queue_capacity(mut self, most: usize) -> Self {
        self.blocking.queue = most;
        self
    }

    /// Sets the maximum time for which an idle thread of the blocking pool waits for a job. After this time, the thread
    /// exits. Default: 10 s. If the time is zero, the thread exits as soon as no job is queued.
    pub fn blocking_keep_alive(mut self, time: Duration) -> Self {
        self.blocking.keep = time;
        self
    }

    /// Sets which job is refused when all threads of the blocking pool are busy and the queue is full. Default:
    /// [`Overflow::Reject`], which refuses the new job. Handlers and [`Host::spawn_blocking`] never wait for free space
    /// in the queue.
    pub fn blocking_overflow(mut self, policy: Overflow) -> Self {
        self.blocking.when_full = policy;
        self
    }

    /// Sets the tokio runtime that processes can use. Processes can then use `tokio::net`, `tokio::time`,
    /// `tokio::spawn`, and crates that need tokio, for example reqwest and sqlx. Default: no tokio runtime. This method
    /// needs the feature `tokio`.
    ///
    /// Each worker thread, replacement thread and thread of the blocking pool enters the context of this tokio runtime.
    /// Each thread inside [`Runtime::block_on`] or [`Runtime::run`] also enters this context. The tokio runtime drives
    /// its sockets and timers on its own threads. Therefore, the tokio runtime must run as long as processes use it. If
    /// the tokio runtime is a current-thread runtime, a thread must stay in `block_on` of the tokio runtime during this
    /// time. The future that this thread polls there must not block the thread, in particular not in
    /// [`Runtime::block_on`].
    ///
    /// smol needs no option of the builder, because the sockets and timers of smol need no context: see
    /// [`wrap_threads`](Self::wrap_threads).
    ///
    /// ```
    /// # use procession::{Context, Runtime};
    /// # use std::time::Duration;
    /// #[tokio::main]
    /// async fn main() -> procession::Result {
    ///     let rt = Runtime::builder().tokio(tokio::runtime::Handle::current()).build()?;
    ///     let listener = rt.spawn(async |_: Context| {
    ///         tokio::time::sleep(Duration::from_millis(1)).await;
    ///         tokio::net::TcpListener::bind("127.0.0.1:0").await
    ///     });
    ///     assert!(listener.await?.local_addr().is_ok());
    ///     rt.shutdown(Duration::from_secs(1)).await;
    ///     Ok(())
    /// }
    /// ```
    #[cfg(feature = "tokio")]
    pub fn tokio(mut self, handle: tokio::runtime::Handle) -> Self {
        self.tokio = TokioContext::new(handle);
        self
    }

    /// Sets a wrapper for the main function of each worker thread and each thread of the blocking pool. For example,
    /// the wrapper enters the context of another runtime. A thread in [`Runtime::block_on`] or [`Runtime::run`] is not
    /// wrapped, although such a thread also runs processes. Default: no wrapper. The function `f` gets a closure as its
    /// argument, and must call this closure exactly once. The closure runs the main function of the thread.
    ///
    /// If `f` calls the closure a second time, the second call does nothing. If `f` panics or returns before it calls
    /// the closure, the runtime prints a line to stderr. Each runtime prints this line only once. The thread then runs
    /// its main function without the wrapper. The runtime catches each panic of `f`.
    ///
    /// For tokio, the feature `tokio` adds the method `tokio` to this builder. The crates smol, async-io and
    /// futures-timer need no setup: a process awaits `smol::Timer` or `smol::net::TcpStream` like any other future. A
    /// thread of smol, async-io or futures-timer polls the sockets and timers, and wakes the process.
    ///
    /// ```
    /// # fn enter() -> impl Drop { struct Guard; impl Drop for Guard { fn drop(&mut self) {} } Guard }
    /// let rt = procession::Runtime::builder()
    ///     .wrap_threads(|work| {
    ///         let _guard = enter();
    ///         work();
    ///     })
    ///     .build()?;
    /// # Ok::<(), procession::BuildError>(())
    /// ```
    pub fn wrap_threads(mut self, f: impl Fn(&mut dyn FnMut()) + Send + Sync + 'static) -> Self {
        self.around = Some(wrap_threads::once(f));
        self
    }

    /// Sets a function that each worker thread calls before its first task. A thread calls the function once, even if
    /// the thread later uses another worker slot. Threads of the blocking pool and guest threads do not call the
    /// function: see [`wrap_threads`](Self::wrap_threads).
    ///
    /// The following rules apply to the four thread hooks. The runtime holds no lock while it calls a hook. The runtime
    /// catches and ignores a panic of a hook. A slow hook delays the worker that calls the hook. If a hook is set
    /// twice, only the second function is called.
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
        self.hooks.start = Some(hook(f));
        self
    }

    /// Sets a function that each worker thread calls after its last task: see
    /// [`on_thread_start`](Self::on_thread_start). If a step never returns, the thread of the step does not call the
    /// function.
    pub fn on_thread_stop(mut self, f: impl Fn() + Send + Sync + 'static) -> Self {
        self.hooks.stop = Some(hook(f));
        self
    }

    /// Sets a function that a worker thread calls when the thread has found no runnable task and is about to park: see
    /// [`on_thread_start`](Self::on_thread_start). If a task becomes runnable during the call, another worker runs the
    /// task. If there is no other worker, the task waits until the function returns. After the call, the worker checks
    /// once more for runnable tasks. If the worker finds a task, the worker does not park.
    pub fn on_thread_park(mut self, f: impl Fn() + Send + Sync + 'static) -> Self {
        self.hooks.park = Some(hook(f));
        self
    }

    /// Sets a function that a worker thread calls each time that the thread is unparked. The thread calls the function
    /// of [`on_thread_park`](Self::on_thread_park) and this function in pairs. If the thread finds a task just before
    /// the park, the thread does not park, but still calls both functions.
    ///
    /// The function may block. Therefore, a worker that was unparked for a task first unparks another worker, and then
    /// calls the function. So one message to an idle runtime may unpark several workers.
    pub fn on_thread_unpark(mut self, f: impl Fn() + Send + Sync + 'static) -> Self {
        self.hooks.unpark = Some(hook(f));
        self
    }

    /// Sets whether each worker is pinned to a core. Default: off. Worker n is pinned to the n-th core that this
    /// program may use. If there are more workers than cores, the assignment starts again at the first core. The
    /// numbers of the replacement threads follow the numbers of the workers. Replacement threads are pinned by the same
    /// rule. Some systems treat the pinning as a hint. This method needs the feature `affinity`.
    ///
    /// On Linux, a new thread may use only the cores of the thread that starts the new thread. Therefore, a thread that
    /// a process starts on a pinned worker can use only the core of this worker. This rule also applies to threads of
    /// the runtime that a pinned worker starts, for example a thread of the blocking pool.
    ///
    /// Pinning helps if no other program runs on the cores of the workers. If another program takes the core of a
    /// pinned worker, the worker cannot move to another core, and the runtime becomes slower.
    #[cfg(feature = "affinity")]
    pub fn pin_workers(mut self, on: bool) -> Self {
        self.cores = on.then(Vec::new);
        self
    }

    /// Pins the workers to these cores: see [`pin_workers`](Self::pin_workers). `cores` contains the numbers that the
    /// system has given to the cores. If `cores` is empty, the workers use all cores that this program may use. If this
    /// program may not use one of the cores, [`build`](Self::build) returns an error. This method needs the feature
    /// `affinity`.
    #[cfg(feature = "affinity")]
    pub fn pin_workers_to(mut self, cores: impl IntoIterator<Item = usize>) -> Self {
        self.cores = Some(cores.into_iter().collect());
        self
    }

    /// Sets the node number of this runtime. The node number is a part of each pid of the runtime. Default: the next
    /// number of a counter that all runtimes of the program share. The counter begins at 1.
    pub fn node(mut self, node: u32) -> Self {
        self.node = Some(node);
        self
    }

    /// Sets the seed of the runtime's random number generators. Default: a random seed.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets the order in which each worker runs the tasks of its local queue. Default: [`QueueOrder::Fifo`].
    pub fn local_order(mut self, order: QueueOrder) -> Self {
        self.order = order;
        self
    }

    /// Sets whether the runtime shuffles the tasks in the `next` slots and queues of its workers. Default: off. Use
    /// this option in tests, to find code that relies on the order of the queued tasks.
    pub fn shuffle(mut self, on: bool) -> Self {
        self.shuffle = on;
        self
    }

    /// Sets whether the runtime measures every turn, and every message that [can be
    /// measured](crate::observe::Distributions::mailbox_time). For a turn, the runtime measures the scheduling delay
    /// and the duration. For a message, the runtime measures the time in the mailbox. Default: off. If this option is
    /// off, the runtime measures one turn in 64, and about one in 256 of the messages that can be measured. The
    /// snapshot of [`Host::metrics`](crate::Host::metrics) states both sampling intervals.
    pub fn sample_every_step(mut self, on: bool) -> Self {
        self.exact = on;
        self
    }

    /// Sets the time after which a step is a long step: see [`WorkerState::Blocked`]. Default: 10 ms. The monitor
    /// thread notices a long step after at least the set time, and after at most twice this time. If the system's
    /// timers are late, the monitor thread may notice the step a little later. When the monitor thread has noticed the
    /// step, a replacement thread runs the other processes of the worker.
    ///
    /// A time under 2 ms is treated as 2 ms. With `Duration::MAX`, no step is a long step. A runtime without workers
    /// has no monitor thread, so no long step is noticed.
    ///
    /// The monitor thread also ensures that a long step does not delay sockets and timers. With a threshold of more
    /// than 50 ms, the monitor thread reacts too late. In this case, the runtime wakes a second worker each time that a
    /// socket wakes a worker. This second wake-up makes programs with sockets slower.
    pub fn long_step_threshold(mut self, time: Duration) -> Self {
        self.long_step = time;
        self
    }

    /// Sets the maximum number of replacement threads that run at the same time. A replacement thread replaces a worker
    /// that is in a long step. Default: 16. If the maximum is 0, there is no replacement thread. The queued tasks of a
    /// worker in a long step then wait until the other workers take them. When the maximum is reached, or all [48
    /// slots](Self::workers) are in use, further long steps delay other processes. While all workers and all
    /// replacement threads are in long steps, only threads inside [`Runtime::run`] or [`Runtime::block_on`] fire the
    /// timers and check the sockets of the runtime. If no thread is inside [`Runtime::run`] or [`Runtime::block_on`],
    /// timers and sockets wait until a step returns. If [`Runtime::set_workers`] lowers the number of workers during a
    /// long step, this step still counts towards the maximum. Surplus threads exit half a second after the long steps
    /// have returned.
    pub fn max_replacement_threads(mut self, most: usize) -> Self {
        self.substitutes = most;
        self
    }

    /// Builds the runtime and starts its worker threads.
    ///
    /// The first runtime of a program also adds a panic hook, which runs before the panic hook that was set earlier. If
    /// a panic aborts the program, the added hook prints which process panicked. The added hook prints nothing for
    /// other panics. If the program later sets another hook, that hook replaces the added hook.
    ///
    /// # Errors
    /// - [`BuildError::DuplicateHandler`] if a command has two handlers.
    /// - [`BuildError::TooManyWorkers`] if more than 48 workers are requested.
    /// - [`BuildError::Invalid`] if an option has an invalid value.
    /// - [`BuildError::Io`] if a thread could not be started, or if the handler of a signal of
    ///   `FlightRecorder::write_on_signal` cannot be installed. In this case, `build` stops the threads that it has
    ///   already started.
    /// - `BuildError::Console` if the socket of the console cannot be opened.
    pub fn build(self) -> Result<Runtime, BuildError> {
        check_thread_name(&self.thread_name)?;
        let namespace = self.host.build()?;
        let (workers, seed) = (self.workers.unwrap_or_else(scheduler::cores), self.seed.unwrap_or_else(chance::seed));
        let clock = Clock::real();
        let metrics = Arc::new(Metrics::new(scheduler::SLOTS).sample_every(self.exact).keep_last_events(self.flight));
        let timers = Arc::new(Timers::new(clock.clone(), workers.min(scheduler::SLOTS)));
        let node = self.node.unwrap_or_else(|| NODES.fetch_add(1, Ordering::Relaxed));
        // The incarnation of a runtime is odd, because the incarnations of simulations are even.
        let incarnation = chance::seed() as u32 | 1;
        let observe = reports_to(self.observer.clone(), &metrics, clock.clone(), (node, incarnation));
        let hooks = self.hooks;
        #[cfg(feature = "affinity")]
        let hooks = Hooks { occupied: self.cores.map(affinity::pin_to).transpose()?, ..hooks };
        let (around, context) = (self.tokio.wrap(self.around), self.tokio.clone());
        let options = scheduler::Options {
            workers,
            name: self.thread_name,
            stack_size: self.stack_size,
            seed,
            order: self.order,
            shuffle: self.shuffle,
            around: around.clone(),
            hooks,
            observe,
            long_step: Some(self.long_step).filter(|&time| time != Duration::MAX),
            substitutes: self.substitutes,
        };
        let threads = Threads::new(options, enqueue::Time { timers: Arc::clone(&timers) }, Arc::clone(&metrics))
            .map_err(|TooManyWorkers { asked, most }| BuildError::TooManyWorkers { asked, most })?;
        let [rearm, preempt, trace_gauges, has_workers] = [(); 4].map(|()| Arc::clone(&threads));
        let (scheduler_address, place): (usize, Arc<dyn Any + Send + Sync>) =
            (Arc::as_ptr(&threads) as usize, threads.clone());
        let shared = Shared::new(Environment {
            pid_table: PidTable::new(node, incarnation, 4 * workers.max(1)),
            clock,
            timers,
            pool: Some(Pool::new(blocking::Options { around, ..self.blocking })),
            metrics,
            observer: self.observer,
            on_panic: self.on_panic,
            on_crash: self.on_crash,
            exits: self.exits,
            last_messages: AtomicUsize::new(self.last_messages),
            schedule: to_threads,
            schedule_all: all_to_threads,
            gauges: gauges_of_threads,
            visit_sockets: visit_sockets_of_threads,
            place,
            scheduler_address,
            within_context: Box::new(move |f| context.within(f)),
            rearm: Box::new(move || rearm.rearm()),
            has_workers: Box::new(move || has_workers.workers() != 0),
            preempt: Box::new(move |label| preempt.preempt(label)),
            trace_gauges: Box::new(move || trace_gauges.trace_gauges()),
            chance: Mutex::new(Rng::seeded(seed)),
        });
        let host = Host::new(Arc::new(shared), namespace);
        enqueue::set_owner(&threads, &host);
        #[cfg(feature = "console")]
        let console = console::Console::open(self.console, &host, &threads)?;
        threads.start()?;
        let runtime = Runtime {
            host,
            threads,
            tokio: self.tokio,
            #[cfg(feature = "console")]
            console,
        };
        runtime.start_record_writer()
    }
}

/// Returns an error if the name contains a NUL byte, because the standard library would panic.
fn check_thread_name(name: &str) -> Result<(), BuildError> {
    if name.contains('\0') { Err(BuildError::Invalid("the thread name contains a NUL byte")) } else { Ok(()) }
}

/// Returns a hook of the scheduler that calls `f` and catches each panic of `f`. Therefore, a panic of `f` does not end
/// the worker.
fn hook(f: impl Fn() + Send + Sync + 'static) -> Hook {
    Arc::new(move || drop(catch(&f)))
}

/// Callback of the scheduler. The scheduler calls this function when a worker changes its state, and when a step counts
/// as long.
type Observe = Arc<dyn Fn(usize, WorkerState, Option<u64>) + Send + Sync>;

/// Returns a callback that reports to the observer and to the flight recorder. Returns `None` if there is neither an
/// observer nor a flight recorder that records blocked workers. The callback catches the panics of the observer. `node`
/// and `incarnation` are the parts that are equal in all pids of the runtime.
fn reports_to(
    observer: Option<Arc<dyn Observer>>,
    metrics: &Arc<Metrics>,
    clock: Clock,
    (node, incarnation): (u32, u32),
) -> Option<Observe> {
    let recorder = metrics.recorder().is_enabled(RecordCause::BlockedWorker).then(|| Arc::clone(metrics));
    if observer.is_none() && recorder.is_none() {
        return None;
    }
    Some(Arc::new(move |worker, state, task| {
        if let Some(observer) = &observer {
            let _ = catch(|| observer.worker(worker, state, clock.now()));
            if let Some(task) = task {
                let LocalId { index, generation } = LocalId::from(task);
                let pid = (task != NO_LABEL).then(|| Pid::new(node, incarnation, index, generation));
                let _ = catch(|| observer.blocked(worker, pid, clock.now()));
            }
        }
        if let (Some(metrics), Some(_)) = (&recorder, task) {
            metrics.recorder().request_record(RecordCause::BlockedWorker);
        }
    }))
}

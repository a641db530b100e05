//! The blocking pool. The pool has a bounded number of threads for blocking work, and a bounded queue. The pool starts
//! threads on demand. A thread that has been idle for some time exits.
//!
//! The pool does not know which command a job belongs to. The code that submits a job must pass the result or the panic
//! of the job to the requester.

use std::collections::VecDeque;
use std::time::Duration;
use std::{fmt, io};

use crate::observe::BlockingPoolMetrics;
use crate::platform::sync::{Arc, Condvar, Mutex, MutexGuard, thread, wait_within};
use crate::process::catch::catch;
use crate::process::exit::Reason;
use crate::process::failure::Failure;

/// A job for a thread of the pool. A panic in `run` or `refuse` is caught and ignored.
pub(crate) trait Job: Send {
    /// Does the work. This function runs on a thread of the pool.
    fn run(self: Box<Self>);

    /// Notifies the requester that the pool has refused the job. The pool then does not call `run`.
    fn refuse(self: Box<Self>, failure: Failure);

    /// Returns true if the requester still waits for the job. If the requester does not wait, the pool may remove the
    /// job from a full queue.
    fn is_wanted(&self) -> bool;
}

/// Reason why the pool refuses a job. After the pool has released its lock, the pool converts this reason to a failure
/// with a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// All threads are busy, the pool can start no further thread, and the queue is full. The value is the number of
    /// threads.
    Full(usize),
    /// The job waited in the queue, and the pool removed the job to make room for a newer job: see
    /// [`Overflow::DropOldest`].
    Displaced,
    /// The pool has no thread, because the maximum is 0 or because the system refused to start a thread.
    NoThread,
    /// The runtime has shut down.
    ShutDown,
}

impl Refusal {
    fn failure(self, options: &Options) -> Failure {
        let Options { most, queue, .. } = options;
        Failure::Overloaded(Reason::from(match self {
            Self::Full(threads) if threads < *most => format!(
                "the blocking pool is full: its {threads} threads are busy, its queue of {queue} has no room, and the \
                 operating system refused to start another thread"
            ),
            Self::Full(threads) => format!(
                "the blocking pool is full: its {threads} threads are busy and its queue of {queue} has no room; raise \
                 `max_blocking_threads` or `blocking_queue_capacity`"
            ),
            Self::Displaced => format!(
                "the blocking pool is full: newer work displaced this work from its queue of {queue}; raise \
                 `max_blocking_threads` or `blocking_queue_capacity`"
            ),
            Self::NoThread if *most == 0 => "the blocking pool has 0 threads; raise `max_blocking_threads`".into(),
            Self::NoThread => "the blocking pool has no thread: the operating system refused to start one".into(),
            Self::ShutDown => return Failure::ShutDown,
        }))
    }
}

/// Policy for a full queue of the blocking pool or of a layer: decides which work is refused. The requester of the
/// refused work receives a [`Failure::Overloaded`] immediately. Default: `Reject`.
///
/// No policy waits for free space, because a handler must not block its worker. Work waits only in the queue of the
/// pool or of the layer. To refuse no work, set the capacity of the queue to `usize::MAX`. In this case, only the
/// number of commands in flight limits the length of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Overflow {
    /// The new work is refused.
    #[default]
    Reject,
    /// The oldest work in the queue is refused, and the new work is queued. Therefore the pool serves the most recent
    /// requests under overload. If the capacity of the queue is 0, the queue holds no older work. In this case the new
    /// work is refused.
    DropOldest,
}

/// Function that calls its argument exactly one time, in the context of an external runtime, for example tokio. A call
/// of this function does not unwind.
pub(crate) type Around = Arc<dyn Fn(&mut dyn FnMut()) + Send + Sync>;

/// Configuration of a pool.
#[derive(Clone)]
pub(crate) struct Options {
    /// Maximum number of threads. If the maximum is 0, every job is refused.
    pub(crate) most: usize,
    /// Maximum number of jobs that wait because all threads are busy.
    pub(crate) queue: usize,
    pub(crate) when_full: Overflow,
    /// Idle time after which a thread exits.
    pub(crate) keep: Duration,
    /// Name of the threads.
    pub(crate) name: String,
    /// Each thread calls this function one time, with a closure as the argument. The closure runs all jobs of the
    /// thread.
    pub(crate) around: Option<Around>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            most: 512,
            queue: 100_000,
            when_full: Overflow::Reject,
            keep: Duration::from_secs(10),
            name: String::from("procession-pool"),
            around: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { most, queue, when_full, keep, name, around } = self;
        f.debug_struct("Options")
            .field("most", most)
            .field("queue", queue)
            .field("when_full", when_full)
            .field("keep", keep)
            .field("name", name)
            .field("around", &around.is_some())
            .finish()
    }
}

/// Threads that run jobs in the order of their submission. The drop of the pool closes the pool.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<PoolState>,
}

#[derive(Debug)]
struct PoolState {
    state: Mutex<State>,
    /// Idle threads wait on this condition variable. The pool notifies this condition variable when a job is queued
    /// and when the pool is closed.
    work: Condvar,
    /// The exit of the last thread of the pool notifies this condition variable. Only a test waits on this condition
    /// variable.
    empty: Condvar,
    options: Options,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Box<dyn Job>>,
    /// Number of threads.
    threads: usize,
    /// Number of threads that run no job. Each of these threads will soon take one job from the queue. Therefore the
    /// first `free` jobs of the queue do not wait for a busy thread.
    free: usize,
    closed: bool,
    /// Index in the queue at which the next [sweep](State::sweep) begins.
    swept: usize,
    /// For tests: if true, each start of a thread fails, as if the system had refused the start.
    #[cfg(test)]
    exhausted: bool,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queue, threads, free, closed, .. } = self;
        f.debug_struct("State")
            .field("queued", &queue.len())
            .field("threads", threads)
            .field("free", free)
            .field("closed", closed)
            .finish()
    }
}

/// Maximum number of jobs that one sweep checks. Each new job for a full queue causes a sweep. The queue may be long,
/// and a sweep holds the lock of the pool. Therefore one sweep must not check the whole queue.
const SWEEP: usize = 128;

impl State {
    /// Returns true if one more job can be queued. If the queue is full, this function first moves unwanted jobs from
    /// the queue to `unwanted`. A job is unwanted if its requester no longer waits.
    fn has_room(&mut self, options: &Options, unwanted: &mut Vec<Box<dyn Job>>) -> bool {
        let most = self.free.saturating_add(options.queue);
        if self.queue.len() >= most {
            *unwanted = self.sweep();
        }
        self.queue.len() < most
    }

    /// Checks the next [`SWEEP`] jobs of the queue. Removes and returns the jobs whose requesters no longer wait. The
    /// other jobs keep their order.
    fn sweep(&mut self) -> Vec<Box<dyn Job>> {
        let from = if self.swept < self.queue.len() { self.swept } else { 0 };
        let to = self.queue.len().min(from + SWEEP);
        let mut kept = from;
        for at in from..to {
            if self.queue[at].is_wanted() {
                self.queue.swap(kept, at);
                kept += 1;
            }
        }
        self.swept = kept;
        self.queue.drain(kept..to).collect()
    }
}

impl Pool {
    /// Returns the number of threads, the number of idle threads and the number of queued jobs, all at one moment.
    pub(crate) fn figures(&self) -> BlockingPoolMetrics {
        let state = self.shared.state.lock();
        BlockingPoolMetrics { threads: state.threads, idle_threads: state.free, queue_depth: state.queue.len() }
    }

    /// Returns the maximum number of threads, and the maximum number of jobs that wait for a thread.
    pub(crate) fn limits(&self) -> (usize, usize) {
        (self.shared.options.most, self.shared.options.queue)
    }

    /// Creates a pool without threads.
    pub(crate) fn new(options: Options) -> Self {
        let shared = PoolState { state: Mutex::default(), work: Condvar::new(), empty: Condvar::new(), options };
        Self { shared: Arc::new(shared) }
    }

    /// Runs a job on a thread of the pool. If a thread is idle, this thread runs the job. Otherwise the pool starts a
    /// new thread for the job. If the pool cannot start a thread, the job waits in the queue for the first idle
    /// thread. If the pool has no thread at all, the pool refuses the job.
    ///
    /// This call never waits. If the queue is full, the pool immediately refuses either this job or an older job.
    pub(crate) fn run(&self, job: Box<dyn Job>) {
        let mut unwanted = Vec::new();
        if let Err((job, refusal)) = self.enqueue(job, &mut unwanted) {
            let _ = catch(|| job.refuse(refusal.failure(&self.shared.options)));
        }
        // The drop of a job runs user code and may panic. Therefore the unwanted jobs are dropped without the lock, one
        // by one.
        for job in unwanted {
            let _ = catch(|| drop(job));
        }
    }

    /// Queues a job. If the queue is full, this function first moves unwanted jobs from the queue to `unwanted`. A job
    /// is unwanted if its requester no longer waits.
    ///
    /// # Errors
    /// Returns the refused job. This job is either the oldest job of the queue, or the new job.
    fn enqueue(&self, job: Box<dyn Job>, unwanted: &mut Vec<Box<dyn Job>>) -> Result<(), (Box<dyn Job>, Refusal)> {
        let shared = &self.shared;
        let options = &shared.options;
        let mut state = shared.state.lock();
        if state.closed {
            return Err((job, Refusal::ShutDown));
        }
        if state.queue.len() >= state.free {
            // No thread is free for the job. Therefore this function tries to start a thread, and holds the lock during
            // the start. Without the lock, another caller could queue a job for the new thread. If the system then
            // refused to start this thread, no thread would run the job of the other caller.
            let started = state.threads < options.most && shared.start(&state).is_ok();
            if started {
                state.threads += 1;
                state.free += 1;
            } else if state.threads == 0 {
                return Err((job, Refusal::NoThread));
            } else if !state.has_room(options, unwanted) {
                if options.when_full == Overflow::Reject || options.queue == 0 {
                    return Err((job, Refusal::Full(state.threads)));
                }
                // Free threads will soon take the first `free` jobs of the queue. No free thread will take the next
                // job. The pool refuses this next job, because this job is the oldest waiting job.
                let at = state.free;
                let oldest = state.queue.remove(at).expect("with some room at all, a full queue has that many");
                state.queue.push_back(job);
                return Err((oldest, Refusal::Displaced));
            }
        }
        state.queue.push_back(job);
        drop(state);
        shared.work.notify_one();
        Ok(())
    }

    /// Closes the pool. A closed pool accepts no jobs. This call refuses the queued jobs, and makes idle threads exit.
    /// Each busy thread exits after its job. The call does not wait for running jobs.
    pub(crate) fn close(&self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        let refused = std::mem::take(&mut state.queue);
        drop(state);
        self.shared.work.notify_all();
        // The jobs are refused one by one. Therefore a panic of one job does not affect the other jobs.
        for job in refused {
            let _ = catch(|| job.refuse(Failure::ShutDown));
        }
    }

    /// Waits until the pool has no thread, but at most for the time `within`. Returns true if the pool has no thread.
    /// Without a call of `close`, a thread exits only after the thread was idle for the time `keep`. A job of this pool
    /// must not call this function, because the thread of this job cannot exit during the call.
    #[cfg(test)]
    pub(crate) fn wait(&self, within: Duration) -> bool {
        let clock = crate::platform::clock::Clock::real();
        let end = clock.now() + within;
        let mut state = self.shared.state.lock();
        loop {
            if state.threads == 0 {
                return true;
            }
            let left = end - clock.now();
            if left.is_zero() {
                return false;
            }
            (state, _) = wait_within(&self.shared.empty, state, left);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
    }
}

impl PoolState {
    /// Starts a thread. The argument `_state` proves that the caller holds the lock.
    fn start(self: &Arc<Self>, _state: &State) -> io::Result<()> {
        #[cfg(test)]
        if _state.exhausted {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let shared = Arc::clone(self);
        thread::Builder::new().name(self.options.name.clone()).spawn(move || shared.live())?;
        Ok(())
    }

    /// Body of each thread of the pool.
    fn live(&self) {
        match &self.options.around {
            Some(around) => around(&mut || self.serve()),
            None => self.serve(),
        }
    }

    /// Runs jobs until the pool is closed, or until the thread was idle for too long. The caller has already counted
    /// the thread as free. Before this function returns, the function removes the thread from the counts.
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                state.free -= 1;
                drop(state);
                let _ = catch(|| job.run());
                state = self.state.lock();
                state.free += 1;
            } else if state.closed {
                return self.leave(state);
            } else {
                let idle_too_long;
                (state, idle_too_long) = wait_within(&self.work, state, self.options.keep);
                // If a job was queued just before the timeout, this thread takes the job.
                if idle_too_long && state.queue.is_empty() {
                    return self.leave(state);
                }
            }
        }
    }

    fn leave(&self, mut state: MutexGuard<'_, State>) {
        state.free -= 1;
        state.threads -= 1;
        if state.threads == 0 {
            drop(state);
            self.empty.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::sync::atomic::AtomicUsize;
    use crate::platform::sync::atomic::Ordering::SeqCst;
    use crate::platform::sync::wait;

    /// A counter. A thread can wait until the counter reaches a value.
    #[derive(Default)]
    struct Level {
        now: Mutex<usize>,
        changed: Condvar,
    }

    impl Level {
        fn raise(&self) {
            *self.now.lock() += 1;
            self.changed.notify_all();
        }

        fn reached(&self, level: usize) {
            let mut now = self.now.lock();
            while *now < level {
                now = wait(&self.changed, now, None);
            }
        }

        fn get(&self) -> usize {
            *self.now.lock()
        }
    }

    /// A pool with test jobs. Each job reports its start, and then waits for the permission to end.
    struct Fixture {
        pool: Pool,
        began: Arc<Level>,
        gate: Arc<Level>,
        ended: Arc<Level>,
    }

    /// A job that runs a closure. If the pool refuses the job, the job records the failure.
    struct Closure<F>(F, Arc<Mutex<Vec<Failure>>>);

    impl<F: FnOnce() + Send> Job for Closure<F> {
        fn run(self: Box<Self>) {
            (self.0)();
        }

        fn refuse(self: Box<Self>, failure: Failure) {
            self.1.lock().push(failure);
            drop(self.0);
        }

        fn is_wanted(&self) -> bool {
            true
        }
    }

    /// Returns true if the pool accepts the closure.
    fn runs(pool: &Pool, f: impl FnOnce() + Send + 'static) -> bool {
        let refusals = Arc::default();
        pool.run(Box::new(Closure(f, Arc::clone(&refusals))));
        let refused = !refusals.lock().is_empty();
        !refused
    }

    const LONG: Duration = Duration::from_secs(3_600);

    impl Fixture {
        fn new(most: usize, queue: usize, keep: Duration) -> Self {
            let pool = Pool::new(Options { most, queue, keep, ..Options::default() });
            Self { pool, began: Arc::default(), gate: Arc::default(), ended: Arc::default() }
        }

        fn run(&self) -> bool {
            let (began, gate, ended) = (Arc::clone(&self.began), Arc::clone(&self.gate), Arc::clone(&self.ended));
            let job = move || {
                began.raise();
                gate.reached(1);
                ended.raise();
            };
            runs(&self.pool, job)
        }

        fn threads(&self) -> (usize, usize) {
            let state = self.pool.shared.state.lock();
            (state.threads, state.free)
        }

        /// Waits until at least `free` threads are free. A thread becomes free shortly after the end of its job.
        fn free(&self, free: usize) {
            while self.threads().1 < free {
                thread::yield_now();
            }
        }
    }

    #[test]
    fn threads_and_queue_are_bounded() {
        let f = Fixture::new(2, 3, LONG);
        for accepted in [true, true, true, true, true, false, false] {
            assert_eq!(f.run(), accepted);
        }
        f.began.reached(2);
        assert_eq!((f.began.get(), f.threads()), (2, (2, 0)));
        f.gate.raise();
        f.ended.reached(5);
        assert_eq!(f.threads().0, 2);
        assert!(f.run());
        f.ended.reached(6);
    }

    #[test]
    fn the_policy_drop_oldest_refuses_the_oldest_queued_job() {
        let mut f = Fixture::new(1, 2, LONG);
        let options = Options { most: 1, queue: 2, keep: LONG, when_full: Overflow::DropOldest, ..Options::default() };
        f.pool = Pool::new(options);
        assert!(f.run());
        f.began.reached(1);
        let (ran, refusals) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        for n in 0..5 {
            let (log, ended) = (Arc::clone(&ran), Arc::clone(&f.ended));
            let job = move || {
                log.lock().push(n);
                ended.raise();
            };
            f.pool.run(Box::new(Closure(job, Arc::clone(&refusals))));
        }
        let displaced = Refusal::Displaced.failure(&f.pool.shared.options);
        assert_eq!(*refusals.lock(), [displaced.clone(), displaced.clone(), displaced]);
        f.gate.raise();
        f.ended.reached(3);
        assert_eq!(*ran.lock(), [3, 4]);
        let none = Options { most: 1, queue: 0, keep: LONG, when_full: Overflow::DropOldest, ..Options::default() };
        f.pool = Pool::new(none);
        f.gate = Arc::default();
        assert!(f.run() && !f.run());
        f.gate.raise();
    }

    #[test]
    fn a_full_queue_is_swept_in_parts_for_unwanted_jobs() {
        struct Unwanted;
        impl Job for Unwanted {
            fn run(self: Box<Self>) {}
            fn refuse(self: Box<Self>, _: Failure) {}
            fn is_wanted(&self) -> bool {
                false
            }
        }
        let f = Fixture::new(1, 3 * SWEEP, LONG);
        assert!(f.run());
        f.began.reached(1);
        for _ in 0..3 * SWEEP - 1 {
            assert!(f.run());
        }
        f.pool.run(Box::new(Unwanted));
        // The unwanted job is in the third part of the queue. After the removal of the unwanted job, the queue has
        // space for only one new job.
        assert_eq!([f.run(), f.run(), f.run(), f.run()], [false, false, true, false]);
        f.gate.raise();
        f.ended.reached(1 + 3 * SWEEP);
    }

    #[test]
    fn a_pool_without_a_queue_runs_jobs_on_free_threads() {
        let f = Fixture::new(1, 0, LONG);
        assert!(f.run() && !f.run());
        f.gate.raise();
        f.ended.reached(1);
        f.free(1);
        assert!(f.run());
        f.ended.reached(2);
    }

    #[test]
    fn a_pool_without_threads_refuses_every_job() {
        let f = Fixture::new(0, 10, LONG);
        assert!(!f.run());
        assert!(f.pool.wait(Duration::ZERO));
    }

    #[test]
    fn free_threads_are_used_again() {
        let f = Fixture::new(8, 0, LONG);
        f.gate.raise();
        for done in 1..=20 {
            assert!(f.run());
            f.ended.reached(done);
            f.free(1);
            assert_eq!(f.threads(), (1, 1));
        }
    }

    #[test]
    fn the_threads_of_a_pool_have_the_name_of_the_pool() {
        let f = Fixture::new(1, 0, LONG);
        let (name, ended) = (Arc::new(Mutex::new(None)), Arc::clone(&f.ended));
        let seen = Arc::clone(&name);
        let job = move || {
            *seen.lock() = thread::current().name().map(String::from);
            ended.raise();
        };
        assert!(runs(&f.pool, job));
        f.ended.reached(1);
        assert_eq!(name.lock().as_deref(), Some("procession-pool"));
    }

    #[test]
    fn idle_threads_exit_and_new_threads_start() {
        let f = Fixture::new(4, 0, Duration::from_millis(5));
        f.gate.raise();
        for round in 1..=2 {
            for _ in 0..3 {
                assert!(f.run());
            }
            f.ended.reached(3 * round);
            assert!(f.pool.wait(LONG));
            assert_eq!(f.threads(), (0, 0));
        }
    }

    #[test]
    fn a_panic_of_a_job_does_not_end_its_thread() {
        let f = Fixture::new(1, 10, LONG);
        assert!(runs(&f.pool, || panic!("in a job")));
        f.gate.raise();
        assert!(f.run());
        f.ended.reached(1);
        assert_eq!(f.threads().0, 1);
    }

    #[test]
    fn a_closed_pool_refuses_each_queued_job_once_and_each_later_job() {
        struct Dropped(Arc<AtomicUsize>);
        impl Drop for Dropped {
            fn drop(&mut self) {
                self.0.fetch_add(1, SeqCst);
                panic!("in the drop of a job");
            }
        }
        let f = Fixture::new(1, 10, LONG);
        assert!(f.run());
        f.began.reached(1);
        let dropped = Arc::new(AtomicUsize::new(0));
        for _ in 0..5 {
            let guard = Dropped(Arc::clone(&dropped));
            assert!(runs(&f.pool, move || drop(guard)));
        }
        f.pool.close();
        assert_eq!(dropped.load(SeqCst), 5);
        assert!(!f.run());
        // `close` does not wait for the running job.
        assert!(!f.pool.wait(Duration::from_millis(1)));
        assert_eq!(f.threads().0, 1);
        f.gate.raise();
        assert!(f.pool.wait(LONG));
        assert_eq!((f.ended.get(), f.threads()), (1, (0, 0)));
        f.pool.close();
        assert!(f.pool.wait(Duration::ZERO));
    }

    #[test]
    fn idle_threads_exit_when_the_pool_is_closed() {
        let f = Fixture::new(2, 0, LONG);
        f.gate.raise();
        assert!(f.run());
        f.ended.reached(1);
        f.pool.close();
        assert!(f.pool.wait(LONG));
    }

    #[test]
    fn a_job_is_refused_if_no_thread_can_be_started() {
        let f = Fixture::new(4, 1, LONG);
        f.pool.shared.state.lock().exhausted = true;
        assert!(!runs(&f.pool, || ()));
        assert_eq!((f.threads(), f.pool.shared.state.lock().queue.len()), ((0, 0), 0));
        f.pool.shared.state.lock().exhausted = false;
        assert!(f.run());
        f.began.reached(1);
        // One thread is busy, and no other thread can be started. A new job waits in the queue while the queue has free
        // space.
        f.pool.shared.state.lock().exhausted = true;
        assert!(f.run() && !f.run());
        let refusals = Arc::default();
        f.pool.run(Box::new(Closure(|| (), Arc::clone(&refusals))));
        let text = refusals.lock()[0].to_string();
        assert!(text.contains("its 1 threads are busy") && text.contains("refused to start"), "{text}");
        f.gate.raise();
        f.ended.reached(2);
    }

    #[test]
    fn the_function_in_the_option_named_around_runs_the_jobs() {
        let entered = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&entered);
        let around: Option<Around> = Some(Arc::new(move |f: &mut dyn FnMut()| {
            count.fetch_add(1, SeqCst);
            f();
        }));
        let pool = Pool::new(Options { most: 1, queue: 9, keep: LONG, around, ..Options::default() });
        let ended = Arc::new(Level::default());
        for _ in 0..3 {
            let ended = Arc::clone(&ended);
            assert!(runs(&pool, move || ended.raise()));
        }
        ended.reached(3);
        pool.close();
        assert!(pool.wait(LONG));
        assert!(entered.load(SeqCst) >= 1);
    }

    #[test]
    fn many_jobs_from_many_threads_all_run() {
        const EACH: usize = 2_000;
        let pool = Pool::new(Options { most: 3, queue: usize::MAX, keep: Duration::ZERO, ..Options::default() });
        let ended = Arc::new(Level::default());
        thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    for _ in 0..EACH {
                        let ended = Arc::clone(&ended);
                        assert!(runs(&pool, move || ended.raise()));
                    }
                });
            }
        });
        ended.reached(3 * EACH);
        assert!(pool.wait(LONG));
        assert_eq!((ended.get(), pool.shared.state.lock().free), (3 * EACH, 0));
    }
}

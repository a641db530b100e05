//! Work outside processes: futures without a pid, and closures on the blocking pool.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context as Cx, Poll, ready};

use async_task::{Runnable, WithInfo};
use futures::future::FusedFuture;
use futures::task::{FutureObj, Spawn};
use pin_project_lite::pin_project;

use crate::host::control::waits::Wait;
use crate::host::job::blocking_pool::Job;
use crate::host::job::schedule;
use crate::host::refs::RecordedWait;
use crate::host::{Host, Phase};
use crate::observe::Counter;
use crate::platform::sync::Arc;
use crate::process::catch::{Held, catch, drop_caught};
use crate::process::failure::Failure;
use crate::process::state::budget::BudgetPause;
use crate::process::state::current::Current;
use crate::process::state::reply_slot::ReplySlot;
use crate::task::body::is_large;

/// Returns whether a future is boxed when it is created: see [`is_large`].
pub(super) const fn is_large_future<Fut>() -> bool {
    is_large::<Fut, ()>()
}

impl Host {
    /// Runs a future that is not a process. The future has no pid and no mailbox. When the runtime shuts down, the
    /// runtime drops the future. If the runtime has already shut down, the future is dropped immediately. A panic of
    /// the future is caught and [counted](crate::observe::Counters::panics).
    pub fn spawn_future<Fut>(&self, future: Fut)
    where
        Fut: Future<Output = ()> + Send + 'static,
    {
        if const { is_large_future::<Fut>() } {
            self.schedule_future(Box::into_pin(Box::new(future)));
        } else {
            self.schedule_future(future);
        }
    }

    fn schedule_future(&self, future: impl Future<Output = ()> + Send + 'static) {
        if self.phase() == Phase::Closed {
            // The destructor of the future may need the context of tokio, and the calling thread may be outside this
            // context.
            let mut future = Some(future);
            (self.shared().within_context)(&mut || _ = drop_caught(future.take()));
            return;
        }
        self.clone().task(SpawnedFuture { future: Some(future), host: self.clone(), key: None }).schedule();
    }

    /// Creates a detached task. The caller runs or queues the task. The task may own the last reference to the host.
    /// The crate `async-task` aborts the program if the drop of the metadata panics. The metadata is the reference to
    /// the host. The drop of the host drops the handlers of the user, and may panic. Therefore `Held` catches this
    /// panic.
    fn task(self, future: impl Future<Output = ()> + Send + 'static) -> Runnable<Held<Self>> {
        let (runnable, task) =
            async_task::Builder::new().metadata(Held::new(self)).spawn(move |_| future, WithInfo(schedule));
        task.detach();
        runnable
    }

    /// Runs a closure on the blocking pool, and returns a future of the closure's result. The closure runs even if the
    /// future is never polled.
    ///
    /// If the future is dropped before the closure begins, the closure never runs. To discard the result but let the
    /// closure run, call [`Blocking::detach`](crate::future::Blocking::detach). A closure that has begun runs to its
    /// end. The drop of the runtime does not wait for a closure that has begun. Therefore, the end of the program may
    /// interrupt the closure. If the future of a waiting closure is dropped, the closure may stay in the queue for a
    /// while. When another closure arrives and the queue is full, the pool checks the next 128 closures of the queue,
    /// and removes each closure whose future was dropped.
    ///
    /// # Errors
    /// - [`Failure::Panicked`], if the closure panics.
    /// - [`Failure::Overloaded`], if the pool refuses the closure. `spawn_blocking` never waits for free space in the
    ///   queue. See [`Builder::blocking_overflow`](crate::Builder::blocking_overflow).
    /// - [`Failure::ShutDown`], if the runtime was dropped. The pool still runs closures between the end of
    ///   [`Runtime::shutdown`](crate::Runtime::shutdown) and the drop of the runtime.
    #[track_caller]
    pub fn spawn_blocking<T, F>(&self, f: F) -> Blocking<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let line = Location::caller();
        if const { is_large::<F, ()>() } {
            self.queue_blocking(Box::new(f), line)
        } else {
            self.queue_blocking(f, line)
        }
    }

    fn queue_blocking<T: Send + 'static>(
        &self,
        f: impl FnOnce() -> T + Send + 'static,
        line: &'static Location<'static>,
    ) -> Blocking<T> {
        /// A closure and the cell for its result. If the pool refuses the closure, the failure is put into the cell.
        struct Once<T, F>(F, Arc<ReplySlot<Result<T, Failure>>>);
        impl<T: Send, F: FnOnce() -> T + Send> Job for Once<T, F> {
            fn run(self: Box<Self>) {
                let Self(f, cell) = *self;
                if !cell.is_closed() {
                    drop(cell.send(catch(f).map_err(Failure::Panicked), || ()));
                }
            }

            fn refuse(self: Box<Self>, failure: Failure) {
                let Self(f, cell) = *self;
                let _ = drop_caught(f);
                drop(cell.send(Err(failure), || ()));
            }

            fn is_wanted(&self) -> bool {
                !self.1.is_closed()
            }
        }
        let cell = Arc::new(ReplySlot::new(false));
        self.run_blocking(Box::new(Once(f, Arc::clone(&cell))));
        Blocking {
            cell,
            host: self.clone(),
            line,
            recorded: RecordedWait::default(),
            pause: BudgetPause::default(),
            over: false,
            is_detached: false,
        }
    }

    /// Runs blocking work on the pool. A simulation has no pool, so the work runs as a task.
    pub(crate) fn run_blocking(&self, job: Box<dyn Job>) {
        match &self.shared().pool {
            Some(pool) => pool.run(job),
            None => {
                // This task also runs between a shutdown and the drop of the simulation, as the tasks of a pool do.
                let job = InTurn { job: Some(job), host: self.clone() };
                self.clone().task(async move { job.run() }).schedule();
            }
        }
    }

    /// Runs the future of a handler. The calling thread runs the first poll. After the first poll, the future is a
    /// task. The runtime has no list of these tasks, because a task ends when its command ends. If a command has not
    /// ended before its process exits, the exit of the process ends the command.
    pub(crate) fn start(self, future: impl Future<Output = ()> + Send + 'static) {
        self.task(future).run();
    }
}

/// Blocking work as a task. If the task is dropped before it runs, the work is refused. The work is also refused during
/// the drop of the simulation.
struct InTurn {
    job: Option<Box<dyn Job>>,
    host: Host,
}

impl InTurn {
    fn run(mut self) {
        if self.host.shared().clock.is_simulated()
            && let Some(job) = self.job.take()
        {
            let _ = catch(|| job.run());
        }
    }
}

impl Drop for InTurn {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            let _ = catch(|| job.refuse(Failure::ShutDown));
        }
    }
}

/// Future of the result of a closure on the blocking pool: see [`Host::spawn_blocking`].
#[must_use = "if this future is dropped before the closure begins, the closure never runs: see `Blocking::detach`"]
pub struct Blocking<T> {
    cell: Arc<ReplySlot<Result<T, Failure>>>,
    host: Host,
    /// Source line that called `spawn_blocking`, for inspections.
    line: &'static Location<'static>,
    recorded: RecordedWait,
    pause: BudgetPause,
    over: bool,
    is_detached: bool,
}

impl<T> Blocking<T> {
    /// Drops this future, but the closure still runs. The result of the closure is discarded. If the pool refuses the
    /// closure, or if the runtime is dropped before the closure begins, the closure is dropped.
    pub fn detach(mut self) {
        self.is_detached = true;
    }
}

impl<T> fmt::Debug for Blocking<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Blocking")
    }
}

impl<T> Future for Blocking<T> {
    type Output = Result<T, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.over {
            return Poll::Pending;
        }
        // The future of a refused closure has a result at its first poll. A body that calls `spawn_blocking` repeatedly
        // must let other tasks run. Therefore a poll with a result takes one unit from the budget.
        if this.cell.may_be_full() {
            ready!(this.pause.spend(cx));
        }
        match this.cell.poll(cx.waker()) {
            Poll::Pending => {
                this.recorded.begin(&this.host, &Wait::blocking(this.line));
                Poll::Pending
            }
            Poll::Ready(result) => {
                this.over = true;
                this.recorded.end(&this.host, || Wait::blocking(this.line));
                Poll::Ready(result)
            }
        }
    }
}

impl<T> FusedFuture for Blocking<T> {
    fn is_terminated(&self) -> bool {
        self.over
    }
}

impl<T> Drop for Blocking<T> {
    fn drop(&mut self) {
        self.recorded.end(&self.host, || Wait::blocking(self.line));
        if !self.is_detached {
            drop(self.cell.close());
        }
    }
}

pin_project! {
    /// A future without a pid. At a shutdown, the runtime must find and drop the future. The runtime finds a runnable
    /// future in a queue. To find a waiting future, the runtime uses a list of the wakers of all waiting futures.
    struct SpawnedFuture<F> {
        #[pin]
        future: Option<F>,
        host: Host,
        key: Option<usize>,
    }

    impl<F> PinnedDrop for SpawnedFuture<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if let Some(key) = this.key.take() {
                let waker = this.host.shared().future_wakers.lock().remove(key);
                drop(waker);
            }
            // The destructor of the future may panic. This panic must not unwind into the crate `async-task`.
            let _ = catch(|| this.future.set(None));
        }
    }
}

impl<F: Future<Output = ()>> Future for SpawnedFuture<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<()> {
        let mut this = self.project();
        if this.host.phase() == Phase::Closed {
            return Poll::Ready(());
        }
        let poll = || this.future.as_mut().as_pin_mut().map_or(Poll::Ready(()), |future| future.poll(cx));
        match catch(|| Current::with(|current| current.with_budget(poll))) {
            Ok(Poll::Ready(())) => Poll::Ready(()),
            Ok(Poll::Pending) => {
                if this.key.is_none() {
                    *this.key = Some(this.host.shared().future_wakers.lock().insert(cx.waker().clone()));
                    // The shutdown sets the phase before it reads the list. Therefore, either the shutdown finds the
                    // waker in the list, or this load sees the new phase.
                    if this.host.phase() == Phase::Closed {
                        return Poll::Ready(());
                    }
                }
                Poll::Pending
            }
            Err(_) => {
                this.host.shared().metrics.add(Counter::Panics, 1);
                Poll::Ready(())
            }
        }
    }
}

impl Spawn for Host {
    fn spawn_obj(&self, future: FutureObj<'static, ()>) -> Result<(), futures::task::SpawnError> {
        self.status()?;
        self.spawn_future(future);
        Ok(())
    }

    fn status(&self) -> Result<(), futures::task::SpawnError> {
        if self.phase() == Phase::Closed { Err(futures::task::SpawnError::shutdown()) } else { Ok(()) }
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use std::time::Duration;

    use crate::Simulation;

    /// After a burst, the list frees its memory, even if one future stays in the list.
    #[test]
    fn the_list_of_pending_futures_frees_its_memory_after_a_burst() {
        const COUNT: usize = 20_000;
        let mut simulation = Simulation::new(1);
        let host = simulation.host().clone();
        for number in 1..=COUNT {
            let seconds = if number == 1 { 1_000_000 } else { 2 };
            host.spawn_future(host.sleep(Duration::from_secs(seconds)));
        }
        let mut sizes_after = |seconds| {
            let sleep = host.sleep(Duration::from_secs(seconds));
            simulation.run(sleep);
            let wakers = host.shared().future_wakers.lock();
            (wakers.len(), wakers.capacity())
        };
        let (pending, capacity) = sizes_after(1);
        assert!((pending, capacity >= COUNT) == (COUNT, true), "{pending}, {capacity}");
        let (pending, capacity) = sizes_after(2);
        assert!((pending, capacity <= 4096) == (1, true), "{pending}, {capacity}");
    }
}

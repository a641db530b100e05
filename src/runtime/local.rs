//! Processes that are not `Send`. These processes run only on the thread that created their [`LocalSet`], inside
//! [`LocalSet::run`] or [`LocalSet::block_on`]. The workers of the runtime never run these processes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::pin;
use std::task::{Context as Cx, Poll, Waker};

use slab::Slab;

use crate::context::Context;
use crate::context::step::Process;
use crate::host::Host;
use crate::host::cancel::inherited::InheritedContext;
use crate::host::control::AnyControl;
use crate::host::inspection::local_sets::LocalSetQueue;
use crate::host::job::Job;
use crate::observe::{Counter, ProcessState};
use crate::platform::sync::atomic::{AtomicUsize, Ordering};
use crate::platform::sync::{Arc, Mutex, planted, this_thread, thread};
use crate::process::catch::{drop_caught, wake_runner};
use crate::process::pid::Pid;
use crate::process::state::current::Current;
use crate::process::state::wake_source::WakeSource;
use crate::process::state::{Ref, RunnableProcess, Schedule, Weak};
use crate::runtime::{Budget, OwnWaker, Runtime};
use crate::task::Machine;
use crate::task::body::{ProcessOutput, with_local_machine, with_process};
use crate::task::join::JoinHandle;

/// Spawns and runs processes that are not `Send`: see [`Runtime::local_set`].
///
/// The processes of a `LocalSet` may use an `Rc`, a `RefCell`, or any other value that must stay on one thread. These
/// processes run only while the future of [`run`](Self::run) is polled or [`block_on`](Self::block_on) runs. Meanwhile,
/// the thread is a guest thread and also runs other processes of the runtime. Addresses and handles of the processes of
/// a `LocalSet` may be sent to any thread.
///
/// The monitor thread does not detect a [long step](crate::Builder::long_step_threshold) of these processes, because
/// the processes are part of the future that the guest thread polls. Therefore [`Host::explain`] reports no [blocked
/// worker](crate::observe::Finding::BlockedWorker) for a long step of these processes, and
/// [`ProcessDetails::step`](crate::observe::ProcessDetails::step) is always `None`.
///
/// If the runtime has no workers, up to 200 turns of the processes of the `LocalSet` may run between two turns of other
/// processes. Inside a step of such a process, do not wait with [`Runtime::block_on`] for another process of the same
/// `LocalSet`. The reason is that this call of [`Runtime::block_on`] does not poll the `LocalSet`.
///
/// The drop of the `LocalSet` kills its remaining processes, and runs their exits on this thread. If the `LocalSet` is
/// passed to [`std::mem::forget`], even the drop of the runtime does not kill these processes. If a process drops its
/// own `LocalSet` in a step, the drop also kills this process, but the process exits only after the step.
///
/// ```
/// use std::{cell::RefCell, rc::Rc};
/// # use procession::{Context, Exit, Runtime};
/// let rt = Runtime::new()?;
/// let local = rt.local_set();
/// let sum = Rc::new(RefCell::new(0));
/// let own = Rc::clone(&sum);
/// let adder = local.spawn(async move |mut ctx: Context<i32>| -> Result<(), Exit> {
///     *own.borrow_mut() += ctx.receive().await?;
///     Ok(())
/// });
/// let address = adder.address();
/// std::thread::spawn(move || address.send(1));
/// local.block_on(adder)?;
/// assert_eq!(*sum.borrow(), 1);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub struct LocalSet<'rt> {
    runtime: &'rt Runtime,
    queue: Arc<LocalQueue>,
    /// The spawned processes. When half of these processes have exited, [`forget_exited`](Self::forget_exited) removes
    /// the exited processes.
    spawned: RefCell<Vec<Weak<dyn AnyControl>>>,
    /// This field makes `LocalSet` neither `Send` nor `Sync`, because the processes of the `LocalSet` belong to the
    /// thread that created the `LocalSet`.
    _here: PhantomData<*const ()>,
}

impl fmt::Debug for LocalSet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The formatter is user code, so the lock is not held while the formatter runs.
        let ready = self.queue.state.lock().ready.len();
        f.debug_struct("LocalSet").field("ready", &ready).finish_non_exhaustive()
    }
}

/// Queue of the local processes that are runnable.
#[derive(Debug, Default)]
struct LocalQueue {
    state: Mutex<QueueState>,
    /// Number of processes that have exited since the last call of [`LocalSet::forget_exited`]. Only the thread of the
    /// `LocalSet` accesses this field.
    exited: AtomicUsize,
}

#[derive(Debug, Default)]
struct QueueState {
    ready: VecDeque<RunnableProcess>,
    /// One entry for each future of [`LocalSet::drive`]. The entry contains the waker of the task that polls the
    /// future. The wake-up takes the waker out of the entry, and the next poll of the future stores a waker in the
    /// entry again.
    drivers: Slab<Option<Waker>>,
}

/// Entry of a future in the list of drivers. The drop of this value removes the entry.
struct DriverEntry<'a> {
    queue: &'a LocalQueue,
    key: usize,
}

impl<'a> DriverEntry<'a> {
    fn new(queue: &'a LocalQueue) -> Self {
        Self { queue, key: queue.state.lock().drivers.insert(None) }
    }

    fn register(&self, waker: &Waker) {
        if self.queue.state.lock().drivers[self.key].as_ref().is_some_and(|known| known.will_wake(waker)) {
            return;
        }
        // The lock is not held while a waker is cloned or dropped, because the clone and the drop run user code.
        let fresh = waker.clone();
        let former = self.queue.state.lock().drivers[self.key].replace(fresh);
        drop(former);
    }
}

impl Drop for DriverEntry<'_> {
    fn drop(&mut self) {
        let waker = self.queue.state.lock().drivers.remove(self.key);
        let _ = drop_caught(waker);
    }
}

/// Minimum number of exits before a `LocalSet` searches its list for exited processes.
const FEW: usize = 64;

/// `Schedule` of a process that is not `Send`. The process is queued for the thread of its `LocalSet`.
#[derive(Clone)]
struct OnThread {
    queue: Arc<LocalQueue>,
    /// The thread's [number](this_thread).
    thread: usize,
}

impl Schedule for OnThread {
    fn schedule(self, ready: RunnableProcess, _: WakeSource<'_>) {
        self.queue.push(ready);
    }

    fn is_here(&self) -> bool {
        this_thread() == self.thread
    }

    fn note_exit(&self) {
        self.queue.exited.fetch_add(1, Ordering::Relaxed);
    }
}

impl LocalQueue {
    /// Queues a process. Any thread may call this function. No wake-up is lost: this function first queues the process
    /// and then wakes the driver, and `drive` first registers its waker and then checks the queue.
    fn push(&self, ready: RunnableProcess) {
        // The priority is ignored, because all local processes have normal priority.
        let _ = ready.head().ready();
        let mut state = self.state.lock();
        state.ready.push_back(ready);
        // All drivers are woken. If only one driver were woken, and this driver were never polled again, the process
        // would never run. Usually there is only one driver. In this case, no vector is allocated.
        let mut wakers = state.drivers.iter_mut().filter_map(|(_, waker)| waker.take());
        let (first, others) = (wakers.next(), wakers.collect::<Vec<_>>());
        drop(state);
        first.into_iter().chain(others).for_each(wake_runner);
    }

    fn pop(&self) -> Option<RunnableProcess> {
        self.state.lock().ready.pop_front()
    }
}

impl LocalSetQueue for LocalQueue {
    fn ready_without_thread(&self, most: usize) -> (usize, Vec<Pid>) {
        let state = self.state.lock();
        if !state.drivers.is_empty() {
            return (0, Vec::new());
        }
        (state.ready.len(), state.ready.iter().take(most).map(|ready| ready.head().pid()).collect())
    }
}

impl Runtime {
    /// Returns a new [`LocalSet`] for this thread. The `LocalSet` spawns and runs processes that are not `Send`.
    pub fn local_set(&self) -> LocalSet<'_> {
        let queue: Arc<LocalQueue> = Arc::default();
        let as_dyn: Arc<dyn LocalSetQueue> = queue.clone();
        self.host.shared().local_sets.add(Arc::downgrade(&as_dyn));
        LocalSet { runtime: self, queue, spawned: RefCell::default(), _here: PhantomData }
    }
}

impl LocalSet<'_> {
    /// Spawns an async body as a process on this thread, in the same way as [`Host::spawn`]. The closure and its future
    /// need not be `Send`, but the messages and the output must be `Send`.
    pub fn spawn<N, F, Fut>(&self, body: F) -> JoinHandle<<Fut::Output as ProcessOutput>::Output, N>
    where
        N: Send + 'static,
        F: FnOnce(Context<N>) -> Fut + 'static,
        Fut: Future<Output: ProcessOutput> + 'static,
    {
        with_local_machine!(N, F, Fut, body, |machine| self.launch(machine))
    }

    /// Spawns a hand-written process on this thread. The process need not be `Send`.
    pub fn spawn_process<Q: Process>(&self, process: Q) -> JoinHandle<Q::Output, Q::Message> {
        with_process!(Q, process, None, |machine| self.launch(machine))
    }

    fn launch<X: Machine + 'static>(&self, machine: X) -> JoinHandle<X::Output, X::Message> {
        let host: &Host = self.runtime;
        let schedule = OnThread { queue: Arc::clone(&self.queue), thread: this_thread() };
        match host.launch(machine, InheritedContext::default(), schedule) {
            Ok(spawned) => {
                self.spawned.borrow_mut().push(Ref::downgrade(&spawned.0.address().control().any()));
                JoinHandle::new(spawned)
            }
            Err((refusal, machine)) => host.refuse_machine(machine, refusal),
        }
    }

    /// Removes the exited processes from the list of the spawned processes. Does nothing until half of the listed
    /// processes have exited. Therefore the list is scanned rarely, and takes little memory after a burst. While the
    /// list contains the entry of a process, the memory of this process stays allocated.
    fn forget_exited(&self) {
        let exited = self.queue.exited.load(Ordering::Relaxed);
        if exited < FEW || exited < self.spawned.borrow().len() / 2 {
            return;
        }
        self.queue.exited.store(0, Ordering::Relaxed);
        let mut spawned = self.spawned.take();
        // The last other reference to a process may be dropped during this scan. Then the drop of `present` drops
        // values of the user. Therefore, the list is not borrowed during the drop of `present`.
        let mut present = Vec::new();
        spawned.retain(|process| {
            let control = process.upgrade();
            let is_alive = control.as_ref().is_some_and(|control| !control.head().has_ended());
            present.extend(control);
            is_alive
        });
        spawned.shrink_to(2 * spawned.len());
        self.spawned.replace(spawned);
        present.into_iter().for_each(|control| drop(drop_caught(control)));
    }

    /// Runs `future`, as [`Runtime::run`] does, and also runs the processes of this `LocalSet` within the same limits.
    /// A poll runs these processes in batches. A batch ends after 200 steps or after 100 µs. After 100 µs, a poll
    /// begins at most one further batch. If another task or thread wakes `future`, `future` is polled before the next
    /// step of these processes.
    ///
    /// # Cancel safety
    /// If the returned future is dropped, `future` is dropped too. The processes stay in this `LocalSet`, and continue
    /// in the next call of `run` or [`block_on`](Self::block_on).
    pub fn run<F: Future>(&self, future: F) -> impl Future<Output = F::Output> {
        self.runtime.run(self.drive(future))
    }

    /// Runs `future`, as [`Runtime::block_on`] does, and also runs the processes of this `LocalSet`. If another task or
    /// thread wakes `future`, `future` is polled before the next step of these processes.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(self.drive(future))
    }

    async fn drive<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let threads = self.runtime.threads();
        let entry = DriverEntry::new(&self.queue);
        let wakes = OwnWaker::new();
        let (own, waker) = (&wakes.own, Waker::from(Arc::clone(&wakes)));
        // Number of polls of the future since the last step of a process. This number is kept between the polls of the
        // outer future.
        let mut polls = 0_u32;
        std::future::poll_fn(|cx: &mut Cx<'_>| {
            entry.register(cx.waker());
            wakes.set_outer(cx.waker());
            let mut budget = Budget::of_a_poll(threads.time());
            while !budget.is_over() {
                if own.is_woken() {
                    polls = polls.saturating_add(1);
                    let mut cx = Cx::from_waker(&waker);
                    let polled =
                        own.poll(|| Current::with(|current| current.with_budget(|| future.as_mut().poll(&mut cx))));
                    if polled.is_ready() {
                        return polled;
                    }
                    budget.spend_own(threads.time());
                }
                if self.run_some(&mut budget, || own.comes_first(polls, 0), || own.comes_first(polls, 1)) {
                    polls = 0;
                } else if !own.comes_first(polls, 0) && !budget.is_over() {
                    // The future has called its own waker on this thread. Such a call asks the executor to run other
                    // tasks first. Other processes of the runtime must run before the next poll of the future.
                    return Poll::Pending;
                }
            }
            // The budget is spent, and more processes may be runnable. Therefore, the waker is called, so that the
            // executor polls this task again after the other tasks of the executor.
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }

    /// Runs local processes until the future must be polled, the queue is empty, or the budget is spent. Returns false
    /// if no process has run.
    fn run_some(&self, budget: &mut Budget, is_first: impl Fn() -> bool, becomes_first: impl Fn() -> bool) -> bool {
        let threads = self.runtime.threads();
        if is_first() {
            return false;
        }
        let mut any = false;
        while !budget.is_over() {
            let Some(ready) = self.queue.pop() else { break };
            self.runtime.host.shared().metrics.add(Counter::Polls, 1);
            Job::Process(ready).run_here();
            any = true;
            if let Some(now) = budget.spend(|| threads.time()) {
                threads.fire_due(now);
            }
            if becomes_first() {
                break;
            }
        }
        self.forget_exited();
        any
    }
}

impl Drop for LocalSet<'_> {
    /// Kills the remaining processes and runs their exits, inside the context of tokio.
    fn drop(&mut self) {
        let tokio = self.runtime.tokio.clone();
        tokio.within(|| self.end());
    }
}

impl LocalSet<'_> {
    fn end(&self) {
        // This thread runs the processes now, so an inspection must not report that no thread runs these processes.
        let _driver = DriverEntry::new(&self.queue);
        // After this function has returned, no thread runs the processes of the `LocalSet`. The remaining processes are
        // killed here, and exit in the loop below.
        let mut alive: Vec<_> = self.spawned.take().iter().filter_map(Weak::upgrade).collect();
        alive.iter().for_each(|control| control.kill());
        // If a process of this thread is `Running` here, the step of this process has dropped the `LocalSet`. This
        // process can exit only after this function has returned. Therefore, the loop must not wait for this process.
        alive.retain(|control| control.head().state() != Some(ProcessState::Running));
        loop {
            while let Some(ready) = self.queue.pop() {
                Job::Process(ready).run_here();
            }
            // Another thread may be waking a process at this moment. Then the kill does not queue this process, and the
            // other thread may queue the process later. After this loop, no thread can run or drop a process of the
            // `LocalSet`. Therefore, the loop waits until the other thread has queued the process.
            if alive.iter().all(|control| control.head().has_ended()) || planted!("local_drop_looks_once") {
                break;
            }
            thread::yield_now();
        }
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;
    use crate::Exit;
    use crate::platform::sync::OnceLock;

    /// 4.7j: the list of the spawned processes keeps the memory of only a few exited processes allocated. This is also
    /// true if no process is spawned after a burst.
    #[test]
    fn the_memory_of_exited_processes_is_freed() {
        const BURST: usize = 10_000;
        let rt = Runtime::builder().workers(0).build().expect("no threads");
        let local = rt.local_set();
        let waits = async |mut ctx: Context<()>| ctx.receive().await;
        let (stays, burst) = (local.spawn(waits), (0..BURST).map(|_| local.spawn(waits)).collect::<Vec<_>>());
        burst.iter().for_each(|process| process.send(()).unwrap());
        local.block_on(async {
            for process in burst {
                process.await.unwrap();
            }
        });
        let (len, capacity) = (local.spawned.borrow().len(), local.spawned.borrow().capacity());
        assert!(len <= 2 * FEW && capacity <= 4 * FEW, "{len} of {capacity}");
        stays.send(()).unwrap();
        local.block_on(stays).unwrap();
    }

    /// This test has two `LocalSet`s with one queue. The first `LocalSet` runs the processes. The second `LocalSet` has
    /// spawned a process, and this process drops the second `LocalSet`.
    #[test]
    fn a_local_set_can_be_dropped_inside_one_of_its_own_processes() {
        // A process that owns a `LocalSet` needs a runtime that is never dropped.
        static RUNTIME: OnceLock<Runtime> = OnceLock::new();
        let rt = RUNTIME.get_or_init(|| Runtime::builder().workers(0).build().expect("no threads"));
        let driver = rt.local_set();
        let owner =
            LocalSet { runtime: rt, queue: Arc::clone(&driver.queue), spawned: RefCell::default(), _here: PhantomData };
        let (holds, steps) = (Rc::new(Cell::new(None::<LocalSet<'static>>)), Rc::new(Cell::new(0)));
        let (held, count) = (Rc::clone(&holds), Rc::clone(&steps));
        let drops = owner.spawn(async move |ctx: Context| -> Result<(), Exit> {
            drop(held.take());
            count.set(count.get() + 1);
            ctx.yield_now().await;
            count.set(count.get() + 1);
            Ok(())
        });
        let waits = owner.spawn(async |mut ctx: Context<()>| ctx.receive().await);
        holds.set(Some(owner));
        let (dropped, waited) = driver.block_on(async { futures::join!(drops, waits) });
        assert!(matches!((dropped, waited), (Err(Exit::Killed), Err(Exit::Killed))));
        // The step that dropped the `LocalSet` has run to its end, and no other step has run.
        assert_eq!((steps.get(), Rc::strong_count(&steps)), (1, 1));
    }
}

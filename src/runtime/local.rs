//! Processes that are not `Send`: they live on the thread that lends itself by [`Local::run`], begin there and end there.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::pin;
use std::task::{Context as Cx, Poll, Waker};

use futures::task::AtomicWaker;

use crate::context::Context;
use crate::context::step::Process;
use crate::host::Host;
use crate::host::cancel::inherited::Inherited;
use crate::host::control::AnyControl;
use crate::host::job::Job;
use crate::observe::State;
use crate::platform::sync::{Arc, Mutex, planted, this_thread, thread};
use crate::process::state::wake_order::WakeSource;
use crate::process::state::{Ref, RunnableProcess, Schedule, Weak};
use crate::runtime::{Budget, OwnWaker, Runtime};
use crate::task::Machine;
use crate::task::body::{Outcome, with_machine, with_process};
use crate::task::join::JoinHandle;

/// Spawns and drives processes that are not `Send`: see [`Runtime::local`].
///
/// They may hold an `Rc`, a `RefCell`, anything of their thread. They run while [`run`](Self::run) or
/// [`block_on`](Self::block_on) is polled, which lends the thread to all other processes too; their addresses and handles
/// go to any thread.
///
/// Dropped, it kills those that still live and ends them here, on their thread. A process in whose step it is dropped is
/// killed too, but it ends after that step.
///
/// ```
/// use std::{cell::RefCell, rc::Rc};
/// # use procession::{Context, Exit, Runtime};
/// let rt = Runtime::new()?;
/// let local = rt.local();
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
pub struct Local<'rt> {
    runtime: &'rt Runtime,
    queue: Arc<Queue>,
    /// Those that may still live.
    spawned: RefCell<Vec<Weak<dyn AnyControl>>>,
    /// Neither sent nor shared: what it drives belongs to this thread.
    _here: PhantomData<*const ()>,
}

impl fmt::Debug for Local<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").field("ready", &self.queue.ready.lock().len()).finish_non_exhaustive()
    }
}

/// Where local tasks wait for their thread.
#[derive(Debug, Default)]
struct Queue {
    ready: Mutex<VecDeque<RunnableProcess>>,
    /// Whoever drives them.
    driver: AtomicWaker,
}

/// How a process is queued that is not `Send`.
#[derive(Clone)]
struct OnThread {
    queue: Arc<Queue>,
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
}

impl Queue {
    /// From any thread. The process is there before the driver is woken, and the driver leaves its waker before it looks.
    fn push(&self, ready: RunnableProcess) {
        // All that run here are normal.
        let _ = ready.head().ready();
        self.ready.lock().push_back(ready);
        self.driver.wake();
    }

    fn pop(&self) -> Option<RunnableProcess> {
        self.ready.lock().pop_front()
    }
}

impl Runtime {
    /// The way to processes that are not `Send`, on this thread. Each call makes one of its own.
    pub fn local(&self) -> Local<'_> {
        Local { runtime: self, queue: Arc::default(), spawned: RefCell::default(), _here: PhantomData }
    }
}

impl Local<'_> {
    /// Spawns an async body on this thread. As [`Host::spawn`], but nothing of it need be `Send`, save what it returns.
    pub fn spawn<N, F, Fut>(&self, body: F) -> JoinHandle<<Fut::Output as Outcome>::Output, N>
    where
        N: Send + 'static,
        F: FnOnce(Context<N>) -> Fut + 'static,
        Fut: Future<Output: Outcome> + 'static,
    {
        with_machine!(N, F, Fut, body, None, |machine| self.launch(machine))
    }

    /// Spawns a hand-written process on this thread.
    pub fn spawn_process<Q: Process>(&self, process: Q) -> JoinHandle<Q::Output, Q::Message> {
        with_process!(Q, process, None, |machine| self.launch(machine))
    }

    fn launch<X: Machine + 'static>(&self, machine: X) -> JoinHandle<X::Output, X::Message> {
        let host: &Host = self.runtime;
        let schedule = OnThread { queue: Arc::clone(&self.queue), thread: this_thread() };
        let launched = host.launch(machine, Inherited::default(), schedule);
        if let Ok((joined, _)) = &launched {
            let mut spawned = self.spawned.borrow_mut();
            if spawned.len() == spawned.capacity() {
                // Before it grows; and then by so much that this is not done for each of them.
                spawned.retain(|control| control.upgrade().is_some_and(|control| !control.head().has_ended()));
                let alive = spawned.len();
                spawned.reserve(alive.max(8));
            }
            spawned.push(Ref::downgrade(&joined.address().control().any()));
        }
        host.join_or_refuse(launched)
    }

    /// As [`Runtime::run`], and drives the processes of this thread too, within the same limits: a poll ends after 200 of
    /// their steps, or 100 µs, and no step of theirs begins while `future` is woken.
    pub async fn run<F: Future>(&self, future: F) -> F::Output {
        self.runtime.run(self.drive(future)).await
    }

    /// As [`Runtime::block_on`], and drives the processes of this thread too: no step of theirs begins while `future` is
    /// woken.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(self.drive(future))
    }

    async fn drive<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let threads = self.runtime.threads();
        let wakes = OwnWaker::new();
        let (own, waker) = (&wakes.own, Waker::from(Arc::clone(&wakes)));
        // How often the future was polled since the last step of a process, also in earlier polls of this.
        let mut polls = 0;
        std::future::poll_fn(|cx: &mut Cx<'_>| {
            self.queue.driver.register(cx.waker());
            wakes.set_outer(cx.waker());
            let mut budget = Budget::of_a_poll(threads.time());
            while !budget.is_over() {
                if own.is_woken() {
                    polls += 1;
                    let polled = own.poll(|| future.as_mut().poll(&mut Cx::from_waker(&waker)));
                    if polled.is_ready() {
                        return polled;
                    }
                    budget.spend_own(threads.time());
                }
                if self.run_some(&mut budget, || own.comes_first(polls, 0), || own.comes_first(polls, 1)) {
                    polls = 0;
                } else if !own.comes_first(polls, 0) && !budget.is_over() {
                    // If the future yields, its wake has reached the thread: other processes come before its next poll.
                    return Poll::Pending;
                }
            }
            // There may be more. The executor has its turn first.
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }

    /// Runs processes of this thread until one of them makes the future come first, or none is ready. False if it ran none.
    fn run_some(&self, budget: &mut Budget, is_first: impl Fn() -> bool, becomes_first: impl Fn() -> bool) -> bool {
        let threads = self.runtime.threads();
        if is_first() {
            return false;
        }
        let mut any = false;
        while !budget.is_over() {
            let Some(ready) = self.queue.pop() else { break };
            Job::Process(ready).run_here();
            any = true;
            if let Some(now) = budget.spend(|| threads.time()) {
                threads.fire_due(now);
            }
            if becomes_first() {
                break;
            }
        }
        any
    }
}

impl Drop for Local<'_> {
    fn drop(&mut self) {
        // No thread drives the processes any more: those that live are killed, and end here.
        let mut alive: Vec<_> = self.spawned.take().iter().filter_map(Weak::upgrade).collect();
        alive.iter().for_each(|control| control.kill());
        // Between two of its steps none of them runs, so one that does is in a step that has called this. It ends when that
        // step has returned, which is after this.
        alive.retain(|control| control.head().state() != Some(State::Running));
        loop {
            while let Some(ready) = self.queue.pop() {
                Job::Process(ready).run_here();
            }
            // A kill does not wake a process that another thread is waking. That thread may not have queued it yet, and
            // after this loop no thread could run or drop it.
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

    /// The thread is driven by one `Local`. A process drops another one, which has spawned this process.
    #[test]
    fn a_local_can_be_dropped_inside_one_of_its_own_processes() {
        // A process that holds a `Local` needs a runtime that is never dropped.
        static RUNTIME: OnceLock<Runtime> = OnceLock::new();
        let rt = RUNTIME.get_or_init(|| Runtime::builder().workers(0).build().expect("no threads"));
        let driver = rt.local();
        let owner =
            Local { runtime: rt, queue: Arc::clone(&driver.queue), spawned: RefCell::default(), _here: PhantomData };
        let (holds, steps) = (Rc::new(Cell::new(None::<Local<'static>>)), Rc::new(Cell::new(0)));
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
        // The step in which it was dropped went on to its end, and no other came.
        assert_eq!((steps.get(), Rc::strong_count(&steps)), (1, 1));
    }
}

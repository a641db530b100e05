//! Processes that are not `Send`: they live on the thread that lends itself by [`Local::run`], begin there and end there.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::pin;
use std::task::{Context as Cx, Poll};

use futures::task::AtomicWaker;

use crate::body::{AsyncBody, Outcome};
use crate::context::Context;
use crate::control::AnyControl;
use crate::counted::{Ready, Ref, Schedule, Weak};
use crate::host::Host;
use crate::inherited::Inherited;
use crate::job::Job;
use crate::join::JoinHandle;
use crate::process::Process;
use crate::process::placing::Comes;
use crate::runtime::Runtime;
use crate::sync::{Arc, Mutex, planted, thread, thread_local};
use crate::task::{Machine, Raw};

/// How many local processes run before their thread's own future has a turn.
const TASKS_PER_POLL: usize = 200;

/// Spawns and drives processes that are not `Send`: see [`Runtime::local`].
///
/// They may hold an `Rc`, a `RefCell`, anything of their thread. They run while [`run`](Self::run) or
/// [`block_on`](Self::block_on) is polled, which lends the thread to all other processes too; their addresses and handles
/// go to any thread. Dropped, it kills those that still live and ends them here, on their thread.
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
    ready: Mutex<VecDeque<Ready>>,
    /// Whoever drives them.
    driver: AtomicWaker,
}

/// How a process is queued that is not `Send`.
#[derive(Clone)]
struct OnThread {
    queue: Arc<Queue>,
    /// By the address of what each thread has of its own.
    thread: usize,
}

/// Which thread this is.
fn here() -> usize {
    thread_local! {
        static MARK: u8 = const { 0 };
    }
    MARK.with(|mark| std::ptr::from_ref(mark) as usize)
}

impl Schedule for OnThread {
    fn schedule(self, ready: Ready, _: Comes<'_>) {
        self.queue.push(ready);
    }

    fn is_here(&self) -> bool {
        here() == self.thread
    }
}

impl Queue {
    /// From any thread. The process is there before the driver is woken, and the driver leaves its waker before it looks.
    fn push(&self, ready: Ready) {
        // All that run here are normal.
        let _ = ready.head().ready();
        self.ready.lock().push_back(ready);
        self.driver.wake();
    }

    fn pop(&self) -> Option<Ready> {
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
        self.launch(AsyncBody::new(body, None))
    }

    /// Spawns a hand-written process on this thread.
    pub fn spawn_process<Q: Process>(&self, process: Q) -> JoinHandle<Q::Output, Q::Message> {
        self.launch(Raw::new(process, None))
    }

    fn launch<X: Machine + 'static>(&self, machine: X) -> JoinHandle<X::Output, X::Message> {
        let host: &Host = self.runtime;
        let schedule = OnThread { queue: Arc::clone(&self.queue), thread: here() };
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

    /// As [`Runtime::run`], and drives the processes of this thread too.
    pub async fn run<F: Future>(&self, future: F) -> F::Output {
        self.runtime.run(self.drive(future)).await
    }

    /// As [`Runtime::block_on`], and drives the processes of this thread too.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(self.drive(future))
    }

    async fn drive<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        std::future::poll_fn(|cx: &mut Cx<'_>| {
            self.queue.driver.register(cx.waker());
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(output);
            }
            for _ in 0..TASKS_PER_POLL {
                match self.queue.pop() {
                    Some(ready) => Job::Process(ready).run_here(),
                    None => return Poll::Pending,
                }
            }
            // There may be more; whoever polls this has its turn first.
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }
}

impl Drop for Local<'_> {
    fn drop(&mut self) {
        // Nobody drives them any more: whoever lives is killed, and ends here.
        let alive: Vec<_> = self.spawned.take().iter().filter_map(Weak::upgrade).collect();
        alive.iter().for_each(|control| control.kill());
        loop {
            while let Some(ready) = self.queue.pop() {
                Job::Process(ready).run_here();
            }
            // A kill does not wake one that is being woken by another thread, which may not have queued it yet: it comes
            // in a moment, and after this nobody could run it, nor drop it.
            if alive.iter().all(|control| control.head().has_ended()) || planted!("local_drop_looks_once") {
                break;
            }
            thread::yield_now();
        }
    }
}

//! Defines [`JoinSet`], a set of processes whose exits are awaited together. The design follows tokio's `JoinSet`. The
//! set contains a join handle of each process. The drop of the set kills the remaining processes.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context as Cx, Poll, ready};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use crate::context::Context;
use crate::context::address::Address;
use crate::context::me::SelfHandle;
use crate::host::Host;
use crate::host::cancel::inherited::InheritedContext;
use crate::host::control::AnyControl;
use crate::process::catch::delay_wakers;
use crate::process::exit::{Exit, Reason};
use crate::process::pid::Pid;
use crate::process::state::Ref;
use crate::process::state::budget::BudgetPause;
use crate::task::body::Body;
use crate::task::join::JoinHandle;

/// A set of processes that return values of the same type. The caller can wait for the next exit or for all exits. The
/// processes may have different message types.
///
/// Outside a process, [`Host::join_set`] makes an empty set. Inside a process, [`SelfHandle::join_set`] makes an empty
/// set. The futures of a set work on any executor, not only in this runtime.
///
/// The drop of the set kills the processes that are still in the set, as with tokio's `JoinSet`. The drop does not wait
/// for the exits of these processes. To keep the processes running, call [`detach_all`](Self::detach_all) before the
/// drop. In contrast to a set, a [scope](SelfHandle::scope) waits for its processes, and ends all its processes at the
/// first failure.
///
/// ```
/// use procession::{Context, Exit, Runtime};
///
/// async fn square(_: Context, n: u64) -> Result<u64, Exit> {
///     if n < 100 { Ok(n * n) } else { Err(Exit::failed("too large")) }
/// }
/// let rt = Runtime::new()?;
/// let mut set = rt.join_set();
/// for n in [3, 200, 4] {
///     set.spawn(move |ctx| square(ctx, n));
/// }
/// let (mut sum, mut failures) = (0, 0);
/// rt.block_on(async {
///     while let Some(result) = set.join_next().await {
///         match result {
///             Ok(square) => sum += square,
///             Err(_) => failures += 1,
///         }
///     }
/// });
/// assert_eq!((sum, failures), (25, 1));
/// # Ok::<(), procession::BuildError>(())
/// ```
pub struct JoinSet<T> {
    host: Host,
    inherited: InheritedContext,
    running: FuturesUnordered<SetMember<T>>,
    /// Results of processes that have exited. No call has returned these results yet.
    exited: VecDeque<Joined<T>>,
    /// Number of processes that were added to the set.
    added: u64,
}

/// An exited process of a set, and the result of this process.
struct Joined<T> {
    /// Number of the process in the set. Processes are numbered in the order in which they were added.
    number: u64,
    pid: Pid,
    result: Result<T, Exit>,
}

/// A join handle whose message type is erased.
trait Outcome<T>: Send + Sync {
    /// Polls the outcome of the process. The poll takes no unit from the budget of the turn. Instead, the methods of
    /// the set take the units.
    fn poll_outcome(&mut self, cx: &mut Cx<'_>) -> Poll<Result<T, Exit>>;
}

impl<T: Send, M: Send + 'static> Outcome<T> for JoinHandle<T, M> {
    fn poll_outcome(&mut self, cx: &mut Cx<'_>) -> Poll<Result<T, Exit>> {
        self.poll_without_budget(cx)
    }
}

/// A process of a set. Dropping this value kills the process, unless the process is detached or was joined.
struct SetMember<T> {
    number: u64,
    control: Ref<dyn AnyControl>,
    handle: Box<dyn Outcome<T>>,
    is_detached: bool,
}

impl<T> Future for SetMember<T> {
    type Output = Joined<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Joined<T>> {
        let result = self.handle.poll_outcome(cx);
        // A process may poll a set that contains this process itself. In this case, the join handle of this process
        // resolves to an error before this process has exited. Then the drop of this value must not kill the process.
        self.is_detached |= result.is_ready();
        result.map(|result| Joined { number: self.number, pid: self.control.head().pid(), result })
    }
}

impl<T> Drop for SetMember<T> {
    fn drop(&mut self) {
        if !self.is_detached {
            self.control.kill();
        }
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinSet").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<T: Send + 'static> JoinSet<T> {
    fn new(host: Host, inherited: InheritedContext) -> Self {
        Self { host, inherited, running: FuturesUnordered::new(), exited: VecDeque::new(), added: 0 }
    }

    /// Spawns an async body, adds the process to the set, and returns the address of the process. If the set belongs to
    /// a process, the new process inherits the values, the deadline and the cancel token of that process.
    ///
    /// If the spawn is refused, the set contains a process that has exited with [`Exit::Refused`].
    pub fn spawn<N, F, Fut>(&mut self, body: F) -> Address<N>
    where
        N: Send + 'static,
        F: Body<N, Future = Fut, Value = T> + FnOnce(Context<N>) -> Fut,
        Fut: Future,
    {
        let handle = self.host.process_inheriting(self.inherited.clone()).spawn_or_refuse(body);
        self.insert(handle)
    }

    /// Adds a process that the set has not spawned, for example a process with options or a hand-written process.
    /// Returns the address of the process.
    ///
    /// ```
    /// # use procession::{Context, Exit, Runtime};
    /// let rt = Runtime::new()?;
    /// let mut set = rt.join_set();
    /// set.insert(rt.process().name("first").spawn(async |_: Context| Ok::<_, Exit>(1))?);
    /// set.insert(rt.spawn(async |_: Context<String>| Ok::<_, Exit>(2)));
    /// let results: Result<Vec<_>, Exit> = rt.block_on(set.join_all()).into_iter().collect();
    /// assert_eq!(results?, [1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn insert<N: Send + 'static>(&mut self, handle: JoinHandle<T, N>) -> Address<N> {
        let address = handle.address();
        let control = address.control().any();
        self.running.push(SetMember { number: self.added, control, handle: Box::new(handle), is_detached: false });
        self.added += 1;
        address
    }

    /// Waits until one of the processes exits, removes this process from the set, and returns the result of the
    /// process. If the process did not exit normally, the result is an error that contains the exit of the process.
    /// Returns `None` if the set is empty.
    ///
    /// # Cancel safety
    /// Cancel safe: if the future is dropped before it completes, no process is removed from the set.
    pub async fn join_next(&mut self) -> Option<Result<T, Exit>> {
        self.join_next_with_pid().await.map(|(_, result)| result)
    }

    /// Same as [`join_next`](Self::join_next), but also returns the pid of the process.
    ///
    /// # Cancel safety
    /// Cancel safe: if the future is dropped before it completes, no process is removed from the set.
    pub async fn join_next_with_pid(&mut self) -> Option<(Pid, Result<T, Exit>)> {
        let mut pause = BudgetPause::default();
        let joined = poll_fn(|cx| {
            // While this future pauses because the budget is spent, the result stays in the set.
            if self.exited.is_empty()
                && let Some(joined) = ready!(self.running.poll_next_unpin(cx))
            {
                self.exited.push_back(joined);
            }
            ready!(pause.spend(cx));
            Poll::Ready(self.exited.pop_front())
        })
        .await?;
        Some((joined.pid, joined.result))
    }

    /// Waits until all processes have exited, and empties the set. Returns the results in the order in which the
    /// processes were added. In contrast, tokio returns the results in the order of the exits.
    ///
    /// # Cancel safety
    /// Cancel safe: if the future is dropped, the results of the processes that have exited stay in the set.
    pub async fn join_all(&mut self) -> Vec<Result<T, Exit>> {
        let (mut pause, mut is_over) = (BudgetPause::default(), false);
        while !is_over {
            match self.running.next().await {
                Some(joined) => self.exited.push_back(joined),
                None => is_over = true,
            }
            poll_fn(|cx| pause.spend(cx)).await;
        }
        let mut all = Vec::from(std::mem::take(&mut self.exited));
        all.sort_by_key(|joined| joined.number);
        all.into_iter().map(|joined| joined.result).collect()
    }

    /// Asks all processes to exit. After the time `grace`, the processes that still run are killed, even if an earlier
    /// cancellation has set a longer grace period. With `Duration::MAX`, no process is killed. The processes stay in
    /// the set until they are joined.
    pub fn cancel_all(&self, reason: impl Into<Reason>, grace: Duration) {
        let reason = reason.into();
        // A task may await the exit of one member, and the waker of this task may block until another member has
        // exited. Therefore all members are cancelled before the first foreign waker is called.
        delay_wakers(|| {
            for member in &self.running {
                // A member may belong to another runtime, and each runtime has its own clock.
                let host = member.control.head().host();
                host.cancel_by(&member.control, reason.clone(), host.now() + grace);
            }
        });
    }
}

impl<T> JoinSet<T> {
    /// Kills all processes at their next scheduling point. The processes stay in the set until they are joined.
    pub fn abort_all(&self) {
        self.running.iter().for_each(|member| member.control.kill());
    }

    /// Removes all processes from the set. The processes continue to run, and their results are dropped.
    pub fn detach_all(&mut self) {
        self.running.iter_mut().for_each(|member| member.is_detached = true);
        self.running.clear();
        self.exited.clear();
    }

    /// Returns the number of processes in the set. The number includes the processes that have exited but were not
    /// joined yet.
    pub fn len(&self) -> usize {
        self.running.len() + self.exited.len()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Host {
    /// Makes an empty [`JoinSet`]. The processes that the set spawns belong to this host.
    pub fn join_set<T: Send + 'static>(&self) -> JoinSet<T> {
        JoinSet::new(self.clone(), InheritedContext::default())
    }
}

impl<M: Send + 'static> SelfHandle<M> {
    /// Makes an empty [`JoinSet`]. The processes that the set spawns inherit the [values](Self::value), the
    /// [deadline](Self::deadline) and the [cancel token](Self::cancel_token) of this process. If the body of this
    /// process owns the set, the exit of this process drops the set. The drop kills the processes of the set.
    ///
    /// ```
    /// # use procession::{Context, Exit, Runtime};
    /// async fn first_of(ctx: Context) -> Result<u64, Exit> {
    ///     let mut set = ctx.join_set();
    ///     for n in 1..=3 {
    ///         set.spawn(async move |_: Context| Ok::<_, Exit>(n));
    ///     }
    ///     // The other processes are killed when the set is dropped.
    ///     set.join_next().await.expect("three processes are in the set")
    /// }
    /// let rt = Runtime::new()?;
    /// assert!((1..=3).contains(&rt.block_on(rt.spawn(first_of))?));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn join_set<T: Send + 'static>(&self) -> JoinSet<T> {
        JoinSet::new(self.host().clone(), self.passes_on())
    }
}

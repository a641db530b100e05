//! Pools: processes with the same body behind one address.
//!
//! A pool is a process whose mailbox forwards each message to a member, during the send and on the sender's thread. The
//! body of the pool, the keeper, starts and replaces the members. It also forwards the queued messages for which no
//! member had room.

pub(crate) mod members;

use std::any::type_name;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::Pin;
use std::task::{Context as Cx, Poll};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use crate::behaviour::intensity::{Intensity, RETRY_PAUSE};
use crate::behaviour::pool::members::{Members, Routing};
use crate::context::Context;
use crate::context::mailbox::Mailbox;
use crate::context::me::SelfHandle;
use crate::context::time::Sleep;
use crate::host::Host;
use crate::host::control::Control;
use crate::platform::clock::Instant;
use crate::platform::sync::{Arc, Mutex};
use crate::process::error::{SpawnError, SpawnErrorKind};
use crate::process::exit::{Exit, Reason};
use crate::process::mailbox::MailboxCapacity;
use crate::process::state::Ref;
use crate::task::body::Body;
use crate::task::join::{JoinHandle, KillOnDrop};
use crate::task::spawn::ProcessBuilder;

/// Processes with the same body that share the messages of one address. The pool is a process itself, with a pid, an
/// optional name, and a handle.
///
/// A message goes directly to a member. If no member has room, the message waits in the queue of the pool, in order. If
/// the queue is full too, the send is refused ([`SendErrorKind::Full`](crate::SendErrorKind::Full));
/// [`send_wait`](crate::Address::send_wait) waits instead. With [`by_key`](Self::by_key), a send is also refused if the
/// member of its key is full. The pool refuses no other message while it runs. The member that reads a call answers it.
///
/// A member that exits, for whatever reason, is replaced. The messages that it had not read go to other members, before
/// all later messages. Messages that it had taken but not finished are lost, as with any process. If too many members
/// exit in a short time ([`restarts`](Self::restarts)), the pool fails, and its members are killed.
///
/// The runtime can refuse a member, because the limit of processes is reached:
/// - If one of the first members is refused, the pool's own start fails, and the members that it has started are
///   killed.
/// - If a replacement is refused, that counts as a restart, and the pool tries again after 1 ms. Meanwhile messages for
///   that member wait in the queue of the pool. After a shutdown of the runtime the pool does not try again, and fails.
/// - If a member by which the pool would [grow](Self::max_size) is refused, the pool keeps its size.
///
/// A pool that is cancelled cancels its members with the same reason and deadline, and exits when all of them have
/// exited. Messages that are unread then are [dead letters](Host::dead_letters). A pool that is killed kills its
/// members.
///
/// ```
/// use procession::{Context, Exit, Pool, Reply, Runtime};
///
/// async fn squares(mut ctx: Context<(u64, Reply<u64>)>) -> Result<(), Exit> {
///     loop {
///         let (n, reply) = ctx.receive().await?;
///         reply.send(n * n);
///     }
/// }
/// let rt = Runtime::new()?;
/// let pool = rt.process().name("squares").spawn_pool(Pool::new(4, squares).max_size(8))?;
/// assert_eq!(rt.block_on(pool.call(|reply| (12, reply)))?, 144);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[must_use = "a pool does nothing before it is spawned"]
pub struct Pool<M, F> {
    body: F,
    routing: Routing<M>,
    plan: Box<Plan>,
}

/// Options of a pool.
struct Plan {
    least: usize,
    most: usize,
    /// Capacity of a member's mailbox, if it was set.
    mailbox: Option<usize>,
    queue: usize,
    restarts: u32,
    within: Duration,
    idle: Duration,
}

impl<M, F> fmt::Debug for Pool<M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool<{}>({}..={})", type_name::<M>(), self.plan.least, self.plan.most)
    }
}

impl<M: Send + 'static, F> Pool<M, F> {
    /// Creates a pool of `size` members that each run a clone of `body`. With 0, the first member is started for the
    /// first message.
    ///
    /// By default each message goes to the member with the lowest load: the message that it handles plus its unread
    /// messages. Of several members with the lowest load, the first one gets the message.
    pub fn new<Fut>(size: usize, body: F) -> Self
    where
        F: Body<M, Future = Fut> + FnOnce(Context<M>) -> Fut + Clone,
        Fut: Future,
    {
        let plan = Plan {
            least: size,
            most: size.max(1),
            mailbox: None,
            queue: 1024,
            restarts: 10,
            within: Duration::from_secs(10),
            idle: Duration::from_secs(10),
        };
        Self { body, routing: Routing::LeastLoaded, plan: Box::new(plan) }
    }

    /// Chooses members by round robin: each message goes to the next member in turn. Members that are full are skipped.
    pub fn round_robin(mut self) -> Self {
        self.routing = Routing::RoundRobin;
        self
    }

    /// Chooses members by key: messages of one key go to the same member, in order, as long as the number of members
    /// stays the same. If the number changes, most keys keep their member. If the member is full, the send is refused,
    /// even if another member has room. When a member has exited, its replacement gets its messages.
    ///
    /// `key` runs on the sending thread: if it panics, the send panics.
    pub fn by_key<K: Hash>(mut self, key: impl Fn(&M) -> K + Send + Sync + 'static) -> Self {
        self.routing = Routing::Key(Box::new(move |message| {
            let mut hasher = DefaultHasher::new();
            key(message).hash(&mut hasher);
            hasher.finish()
        }));
        self
    }

    /// Sets the maximum number of members. Default: the initial size. The pool adds a member when no member has room
    /// for a message. A member that has been [idle](Self::idle_timeout) exits, down to the initial size. A maximum
    /// below the initial size means that the pool does not grow.
    pub fn max_size(mut self, most: usize) -> Self {
        self.plan.most = most.max(self.plan.least).max(1);
        self
    }

    /// Sets how long the last member must be idle before it is cancelled, if the pool has more members than initially.
    /// Default: 10 s. The keeper checks once in this time, so a member may stay idle for almost twice as long.
    pub fn idle_timeout(mut self, time: Duration) -> Self {
        self.plan.idle = time;
        self
    }

    /// Sets how many messages may wait at a member, in addition to the one that it handles. Default: 1, so that no
    /// message waits for a busy member while another member is idle; 1,024 with [`round_robin`](Self::round_robin) or
    /// [`by_key`](Self::by_key). 0 means 1.
    pub fn member_capacity(mut self, most: usize) -> Self {
        self.plan.mailbox = Some(most);
        self
    }

    /// Sets how many messages may wait in the queue of the pool. Default: 1,024. 0 means 1. The unread messages of a
    /// member that exited go into the queue even beyond this number.
    pub fn queue_capacity(mut self, most: usize) -> Self {
        self.plan.queue = most;
        self
    }

    /// Sets how many members may exit, or fail to start, within a sliding window. Default: 10 within 10 s. If one more
    /// does, the pool fails.
    pub fn restarts(mut self, most: u32, within: Duration) -> Self {
        self.plan.restarts = most;
        self.plan.within = within;
        self
    }
}

/// State of the process that runs a pool.
struct Keeper<M, F>
where
    M: Send + 'static,
    F: Body<M>,
{
    me: SelfHandle<M>,
    mailbox: Mailbox<M>,
    body: F,
    members: Arc<Members<M>>,
    crew: FuturesUnordered<Member<F::Value, M>>,
    size: usize,
    least: usize,
    most: usize,
    room: usize,
    intensity: Intensity,
    /// Places whose replacement was refused; `retry` is the timer of the next attempt.
    vacancies: Vec<Vacancy<M>>,
    retry: Option<Sleep>,
    /// The idle time; the timer of the next check; the number of messages that the last member had taken when it was
    /// seen idle.
    idle: (Duration, Option<Sleep>, u64),
}

/// Place of a member that has exited and whose replacement was refused.
struct Vacancy<M: Send + 'static> {
    place: usize,
    former: Ref<Control<M>>,
    /// Exit of the former member.
    exit: Exit,
}

/// Future of the exit of a member. It resolves to the place, the control block and the exit of the member.
struct Member<T, M: Send + 'static> {
    place: usize,
    handle: KillOnDrop<T, M>,
}

impl<T, M: Send + 'static> Future for Member<T, M> {
    type Output = (usize, Ref<Control<M>>, Exit);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.handle).poll(cx).map(|result| {
            let member = self.handle.0.address().control().clone();
            (self.place, member, result.err().unwrap_or(Exit::Normal))
        })
    }
}

impl<M, F> Keeper<M, F>
where
    M: Send + 'static,
    F: Body<M> + Clone,
{
    fn new(ctx: Context<M>, pool: Pool<M, F>) -> Self {
        let (me, mailbox) = ctx.split();
        let plan = *pool.plan;
        let members = Arc::new(Members::new(pool.routing, plan.most, Ref::downgrade(me.control())));
        me.control().inbox.route_to(&**me.control(), members.clone());
        let room = plan.mailbox.unwrap_or(if members.is_least_loaded() { 1 } else { 1024 });
        Self {
            me,
            mailbox,
            body: pool.body,
            members,
            crew: FuturesUnordered::new(),
            size: 0,
            least: plan.least,
            most: plan.most,
            room,
            intensity: Intensity::new(plan.restarts, plan.within),
            vacancies: Vec::new(),
            retry: None,
            idle: (plan.idle, None, 0),
        }
    }

    fn add(&mut self, place: usize) -> Result<(), Exit> {
        let handle = self.me.process().mailbox_capacity(MailboxCapacity::Reject(self.room)).spawn(self.body.clone())?;
        let member = handle.address();
        member.control().inbox.leave_to(self.members.clone());
        self.members.set(place, member.control().clone());
        self.crew.push(Member { place, handle: KillOnDrop(handle) });
        self.size = self.size.max(place + 1);
        Ok(())
    }

    /// Replaces a member that has exited. If the replacement is refused, the pool tries again in a later turn, after a
    /// pause.
    ///
    /// # Errors
    /// Returns the exit with which the pool must fail: there were too many replacements, or the runtime has shut down.
    fn fill(&mut self, place: usize, former: Ref<Control<M>>, exit: Exit) -> Result<(), Exit> {
        // The pool may have shrunk meanwhile, and may have grown again.
        if !self.members.list().get(place).is_some_and(|there| there.is_same(&former)) {
            return Ok(());
        }
        if !self.intensity.allows(self.me.now()) {
            let (most, within) = (self.intensity.most(), self.intensity.within());
            let error = format!("more than {most} members of a pool ended within {within:?}, the last one: {exit}");
            return Err(Exit::failed(error));
        }
        match self.add(place) {
            Err(exit) if exit.error() == Some(&SpawnErrorKind::ShutDown) => return Err(exit),
            Err(exit) => self.vacancies.push(Vacancy { place, former, exit }),
            Ok(()) => {}
        }
        Ok(())
    }

    /// Tries again to start the replacements that were refused, after a pause.
    fn fill_vacancies(&mut self, cx: &mut Cx<'_>) -> Result<(), Exit> {
        while !self.vacancies.is_empty() {
            let retry = self.retry.get_or_insert_with(|| self.me.sleep(RETRY_PAUSE));
            if Pin::new(retry).poll(cx).is_pending() {
                return Ok(());
            }
            self.retry = None;
            for Vacancy { place, former, exit } in std::mem::take(&mut self.vacancies) {
                self.fill(place, former, exit)?;
            }
        }
        self.retry = None;
        Ok(())
    }

    fn start(&mut self) -> Result<(), Exit> {
        (0..self.least).try_for_each(|place| self.add(place))
    }

    fn poll(&mut self, cx: &mut Cx<'_>) -> Poll<Result<(), Exit>> {
        while let Poll::Ready(Some((place, member, exit))) = self.crew.poll_next_unpin(cx) {
            self.fill(place, member, exit)?;
        }
        self.fill_vacancies(cx)?;
        if self.members.take_growth_request() && self.size < self.most {
            // If the host refuses the member, the pool keeps its size.
            let _ = self.add(self.size);
        }
        loop {
            let mut left = self.members.hand_on(&mut self.mailbox, cx)?;
            if left == Some(true) {
                // A member that makes room after this call wakes the pool. Room that was made before is found by the
                // second attempt.
                self.members.watch(cx.waker());
                left = self.members.hand_on(&mut self.mailbox, cx)?;
            }
            match left {
                None => {}
                Some(false) => self.me.control().inbox.resume(),
                Some(true) if self.size < self.most && self.add(self.size).is_ok() => continue,
                // The first member was refused, so no member will wake the pool. A pause does, and then the pool adds
                // one.
                Some(true) if self.size == 0 => {
                    let retry = self.retry.insert(self.me.sleep(RETRY_PAUSE));
                    if Pin::new(retry).poll(cx).is_ready() {
                        continue;
                    }
                }
                Some(true) => {}
            }
            break;
        }
        self.remove_idle(cx);
        Poll::Pending
    }

    /// Checks from time to time whether the last member is idle, if the pool has more members than its initial size.
    fn remove_idle(&mut self, cx: &mut Cx<'_>) {
        let (time, next, taken) = &mut self.idle;
        while self.size > self.least {
            let Some(sleep) = next else {
                *next = Some(self.me.sleep(*time));
                *taken = u64::MAX;
                continue;
            };
            if Pin::new(sleep).poll(cx).is_pending() {
                return;
            }
            let (busy, took) = self.members.list().last().map_or((0, 0), |last| last.inbox.load());
            let was_idle = (busy, took) == (0, *taken);
            // A member that is busy now starts its idle time at this check. The same holds for the previous member if
            // the last one is removed now.
            *taken = if busy == 0 && !was_idle { took } else { u64::MAX };
            if was_idle && let Some(last) = self.members.pop() {
                self.size -= 1;
                // The member is cancelled, not killed: a sender may have given it a message just now, which it can
                // still finish.
                let last = last.into_any();
                last.cancel(Reason::from("idle"), Instant::FAR);
            }
            *next = Some(self.me.sleep((*time).max(Duration::from_millis(1))));
        }
        *next = None;
    }

    /// Cancels the members and waits for their exits. Returns the exit of the pool.
    async fn stop(mut self, reason: Reason, deadline: Instant) -> Exit {
        self.members.clear();
        for member in &self.crew {
            let member = member.handle.0.control().any();
            member.cancel(reason.clone(), deadline);
        }
        while self.crew.next().await.is_some() {}
        Exit::Cancelled(reason)
    }
}

async fn keep<M, F>(ctx: Context<M>, pool: Pool<M, F>) -> Result<(), Exit>
where
    M: Send + 'static,
    F: Body<M> + Clone,
{
    let mut keeper = Keeper::new(ctx, pool);
    keeper.start()?;
    let failed = std::future::poll_fn(|cx| match keeper.me.control().head.cancel() {
        Some(_) => Poll::Ready(Ok(())),
        None => keeper.poll(cx),
    })
    .await;
    match keeper.me.control().head.cancel() {
        Some((reason, deadline)) => Err(keeper.stop(reason, deadline).await),
        None => failed,
    }
}

impl ProcessBuilder {
    /// Spawns a [`Pool`]. Its members inherit the values, the deadline and the cancel token that this builder gives to
    /// the pool. The other options apply to the pool process itself, whose mailbox is its
    /// [queue](Pool::queue_capacity).
    ///
    /// # Errors
    /// Returns the pool and the reason of the refusal.
    pub fn spawn_pool<M, F>(self, pool: Pool<M, F>) -> Result<JoinHandle<(), M>, SpawnError<Pool<M, F>>>
    where
        M: Send + 'static,
        F: Body<M> + Clone,
    {
        let queue = MailboxCapacity::Reject(pool.plan.queue);
        // The pool is kept here, so that it can be returned if the spawn is refused.
        let place = Arc::new(Mutex::new(Some(pool)));
        let taken = Arc::clone(&place);
        let body = async move |ctx| {
            let pool = taken.lock().take().expect("it starts once");
            keep(ctx, pool).await
        };
        let lost = "a pool that was refused did not start";
        self.mailbox_capacity(queue).spawn(body).map_err(|error| error.map(|_| place.lock().take().expect(lost)))
    }
}

impl Host {
    /// Spawns a [`Pool`]. If the runtime refuses the spawn, the handle resolves to [`Exit::Refused`].
    pub fn spawn_pool<M, F>(&self, pool: Pool<M, F>) -> JoinHandle<(), M>
    where
        M: Send + 'static,
        F: Body<M> + Clone,
    {
        let queue = MailboxCapacity::Reject(pool.plan.queue);
        self.process().mailbox_capacity(queue).spawn_or_refuse(async move |ctx| keep(ctx, pool).await)
    }
}

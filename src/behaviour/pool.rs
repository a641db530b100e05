//! Pools. A pool is a group of processes with the same body and one address.
//!
//! A pool is itself a process. During a send to the pool, the thread of the sender pushes the message into the mailbox
//! of a member. The body of the pool, called the keeper, starts and replaces the members. If no member has free space
//! for a message, the message waits in the mailbox of the pool, and the keeper forwards the message later.

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
use crate::host::control::{Control, flag};
use crate::platform::clock::Instant;
use crate::platform::sync::{Arc, Mutex};
use crate::process::catch::{Held, delay_wakers};
use crate::process::error::{SpawnError, SpawnErrorKind};
use crate::process::exit::{Exit, Reason};
use crate::process::mailbox::MailboxCapacity;
use crate::process::state::Ref;
use crate::task::body::Body;
use crate::task::join::{JoinHandle, KillOnDrop};
use crate::task::spawn::{ProcessBuilder, exit_of_refusal};

/// Maximum number of members that the keeper starts in one turn.
const STARTS_AT_ONCE: usize = 256;

/// Maximum number of members by which the pool grows in one turn. This number is small, because each growth copies the
/// list of members.
const GROWTH_AT_ONCE: usize = 16;

/// Maximum number of member exits that the keeper handles in one turn.
const EXITS_AT_ONCE: usize = 256;

/// A group of processes with the same body that share the messages of one address. The pool itself is also a process. A
/// pool has a pid, an optional name, and a handle.
///
/// The thread of the sender passes a message directly to a member. If no member has free space, the message waits in
/// the queue of the pool. The queue of the pool does not change the order of the messages. If the queue is also full,
/// `send` is refused ([`SendErrorKind::Full`](crate::SendErrorKind::Full)), and
/// [`send_wait`](crate::Address::send_wait) waits. With [`by_key`](Self::by_key), a send is also refused if the member
/// for the key of the message is full. A running pool has no other reason to refuse a message. The member that reads a
/// call answers the call.
///
/// If a member exits for any reason, the pool replaces this member. There are two exceptions: the pool has stopped this
/// member because the member was idle, or a cancellation has ended both the member and the pool. The pool forwards the
/// unread messages of the exited member before any later message. If a member exits while it handles a message, this
/// message is lost, as in any process. If too many members exit in a short time ([`restarts`](Self::restarts)), the
/// pool fails, and its members are killed.
///
/// If the limit of processes is reached, the runtime refuses a new member:
/// - If one of the first members is refused, the start of the pool fails, and the members that were already started are
///   killed.
/// - If the replacement of a member is refused, the refusal counts as a restart, and the pool tries again after 1 ms.
///   Until the next attempt, messages for the missing member wait in the queue of the pool. After a shutdown of the
///   runtime, the pool does not try again, and fails.
/// - If the pool wants to [grow](Self::max_size) and the new member is refused, the pool keeps its size.
///
/// If a pool is cancelled, the pool cancels its members with the same reason and the same deadline. A shutdown cancels
/// only the pool directly, not the members. The members inherit the cancel token and the deadline of the pool. However,
/// the cancellation of the token and the end of the deadline also cancel only the pool directly, not the members. The
/// pool exits when all members have exited. The unread messages become [dead letters](Host::dead_letters). If a pool is
/// killed, its members are also killed.
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
    /// Capacity of a member's mailbox, or `None` for the default.
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
    /// Creates a pool of `size` members. Each member runs a clone of `body`. With a size of 0, the pool starts its
    /// first member when the pool receives its first message.
    ///
    /// By default, each message is passed to the member with the lowest load. The load of a member is the number of its
    /// unread messages, plus one if the member is handling a message. If several members have the lowest load, the
    /// first of these members gets the message.
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

    /// Chooses members by round robin. Each message is passed to the next member of the list. A member whose mailbox is
    /// full is skipped.
    pub fn round_robin(mut self) -> Self {
        self.routing = Routing::RoundRobin;
        self
    }

    /// Chooses members by key. While the number of members stays the same, all messages with the same key go to the
    /// same member, in order. If the number of members changes, the member for most keys stays the same. If the member
    /// of a key is full, the send is refused, even if another member has free space. If a member has exited, its
    /// replacement gets the messages with the keys of this member. While a large pool starts its first members, an
    /// urgent message may be refused, and all other messages wait in the queue of the pool.
    ///
    /// The queue of the pool is common to all keys. After the start, a message enters the queue in two cases: a
    /// [`send_wait`](crate::Address::send_wait) finds that the member for the key of its message is full, or a member
    /// has exited. Until the queue is empty again, all later messages also enter the queue. The pool then forwards each
    /// message to the member for the key of the message, and a full member does not stop the messages for other
    /// members. But if a member does not read its messages, the messages for this member can fill the queue of the
    /// pool. The pool then refuses the messages of all keys. If a member may stop reading its messages, use
    /// [`send`](crate::Address::send), or spawn one process for each key.
    ///
    /// `key` runs on the sending thread. If `key` panics, the send panics. If the message must wait in the queue of the
    /// pool, `key` runs again in the process of the pool. If this second call panics, the pool exits.
    pub fn by_key<K: Hash>(mut self, key: impl Fn(&M) -> K + Send + Sync + 'static) -> Self {
        self.routing = Routing::Key(Box::new(move |message| {
            let mut hasher = DefaultHasher::new();
            key(message).hash(&mut hasher);
            hasher.finish()
        }));
        self
    }

    /// Sets the maximum number of members. Default: the initial size. The pool adds a member when no member has free
    /// space for a message. If the pool has more members than its initial size, and the last member has been idle for
    /// the [idle time](Self::idle_timeout), the pool removes this member. If the maximum is below the initial size, the
    /// pool does not grow.
    pub fn max_size(mut self, most: usize) -> Self {
        self.plan.most = most.max(self.plan.least).max(1);
        self
    }

    /// Sets the idle time after which the pool cancels the last member in its list. Default: 10 s. The pool cancels a
    /// member only if the pool has more members than its initial size. The time between two checks of the last member
    /// is equal to the idle time. Therefore a member may be idle for almost twice the idle time before the member is
    /// cancelled.
    pub fn idle_timeout(mut self, time: Duration) -> Self {
        self.plan.idle = time;
        self
    }

    /// Sets the maximum number of messages that wait in the mailbox of a member. The message that the member is
    /// handling does not count. Default: 1, so that no message waits for a busy member while another member is idle.
    /// With [`round_robin`](Self::round_robin) or [`by_key`](Self::by_key), the default is 1,024. A value of 0 means 1.
    pub fn member_capacity(mut self, most: usize) -> Self {
        self.plan.mailbox = Some(most);
        self
    }

    /// Sets the maximum number of messages in the queue of the pool. Default: 1,024. A value of 0 means 1. If a member
    /// exits, its unread messages go into the queue, even if the queue becomes longer than this maximum.
    pub fn queue_capacity(mut self, most: usize) -> Self {
        self.plan.queue = most;
        self
    }

    /// Sets the maximum number of restarts within a sliding window. Default: 10 within 10 s. Each replacement of a
    /// member and each failed start counts as a restart. If there are more restarts within the window, the pool fails.
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
    running: FuturesUnordered<Member<F::Value, M>>,
    size: usize,
    least: usize,
    most: usize,
    room: usize,
    intensity: Intensity,
    /// Positions of the exited members whose replacement was refused. `retry` is the timer of the next attempt.
    vacancies: Vec<Vacancy<M>>,
    retry: Option<Sleep>,
    /// Three values: the idle time, the timer of the next check, and a number of messages. If a check finds that the
    /// last member is idle, the check stores the number of messages that this member has taken.
    idle: (Duration, Option<Sleep>, u64),
}

/// Position of a member that has exited and whose replacement was refused.
struct Vacancy<M: Send + 'static> {
    place: usize,
    former: Ref<Control<M>>,
    /// Refusal of the last attempt.
    exit: Held<Exit>,
}

/// Future of the exit of a member. The future resolves to the position, the control block and the exit of the member.
struct Member<T, M: Send + 'static> {
    place: usize,
    handle: KillOnDrop<T, M>,
}

impl<T, M: Send + 'static> Future for Member<T, M> {
    type Output = (usize, Ref<Control<M>>, Held<Exit>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        self.handle.poll_exit(cx).map(|exit| {
            let member = self.handle.0.address().control().clone();
            (self.place, member, exit)
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
            running: FuturesUnordered::new(),
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
        let member = self.spawn(place)?;
        self.members.set(place, member);
        Ok(())
    }

    /// Spawns the member for the position `place`. The caller puts the member into the list.
    fn spawn(&mut self, place: usize) -> Result<Ref<Control<M>>, Exit> {
        // A shutdown, the token of the pool, and the deadline of the pool do not cancel the members directly. A
        // shutdown, the token and the deadline cancel the pool, and the pool then cancels its members. If a
        // cancellation reached a member before the pool, the pool would replace this member.
        let process = self.me.process().supervised().mailbox_capacity(MailboxCapacity::Reject(self.room));
        let handle = process.spawn(self.body.clone()).map_err(exit_of_refusal)?;
        let member = handle.address().control().clone();
        member.inbox.leave_to(self.members.clone());
        self.running.push(Member { place, handle: KillOnDrop(handle) });
        self.size = self.size.max(place + 1);
        Ok(member)
    }

    /// Adds a member, and returns whether the pool has grown. If the pool already has its maximum size, or if the
    /// runtime refuses the member, the pool keeps its size.
    fn grow(&mut self) -> bool {
        self.size < self.most && self.add(self.size).is_ok()
    }

    /// Returns whether this member is at this position of the list.
    fn is_listed(&self, place: usize, member: &Ref<Control<M>>) -> bool {
        self.members.list().get(place).is_some_and(|there| there.is_same(member))
    }

    /// Starts the replacement of a member that has exited, and adds the replacement to `fresh`. The caller puts the
    /// replacements of one turn into the list together, because each change copies the list. If the runtime refuses the
    /// replacement, the pool tries again in a later turn, after a pause.
    ///
    /// # Errors
    /// Returns the exit of the pool if there were too many replacements, or if the runtime has shut down.
    fn fill(
        &mut self,
        place: usize,
        former: Ref<Control<M>>,
        exit: Held<Exit>,
        fresh: &mut Vec<(usize, Ref<Control<M>>)>,
    ) -> Result<(), Exit> {
        // After the exit of the member, the pool may have removed this position, and may have added the position again
        // for another member. But the member may also be a replacement that was started during this turn.
        if !self.is_listed(place, &former) {
            self.members.replace(fresh);
            if !self.is_listed(place, &former) {
                return Ok(());
            }
        }
        // The member may wait for a process that the member has spawned. A cancellation may reach this process earlier
        // than the pool. The exit of this process may then end the member. The pool is then cancelled too.
        if self.me.control().head.shares_cancellation(exit.get()) {
            return Ok(());
        }
        if !self.intensity.allows(self.me.now()) {
            let (most, within) = (self.intensity.most(), self.intensity.within());
            let error = format!(
                "the pool exceeded its restart intensity of {most} in {within:?}; the last exit of a member: {}",
                exit.get()
            );
            return Err(Exit::failed(error));
        }
        match self.spawn(place) {
            Err(refusal) if refusal == Exit::Refused(SpawnErrorKind::ShutDown) => return Err(refusal),
            Err(refusal) => self.vacancies.push(Vacancy { place, former, exit: Held::new(refusal) }),
            Ok(member) => fresh.push((place, member)),
        }
        Ok(())
    }

    /// After a pause, tries again to start the replacements that were refused.
    fn fill_vacancies(&mut self, cx: &mut Cx<'_>) -> Result<(), Exit> {
        while !self.vacancies.is_empty() {
            let retry = self.retry.get_or_insert_with(|| self.me.sleep(RETRY_PAUSE));
            if Pin::new(retry).poll(cx).is_pending() {
                return Ok(());
            }
            self.retry = None;
            let mut fresh = Vec::new();
            for Vacancy { place, former, exit } in std::mem::take(&mut self.vacancies) {
                self.fill(place, former, exit, &mut fresh)?;
            }
            self.members.replace(&mut fresh);
        }
        self.retry = None;
        Ok(())
    }

    /// Starts the first members. If the pool is cancelled, this function returns before all members have started.
    ///
    /// Each append copies the list of members. Therefore the pool collects new members, and appends the collected
    /// members when there are more collected members than members in the list. With this rule, the total cost of the
    /// copies is linear in the number of members. But if the key of a message determines the member, all members are
    /// appended together at the end of this function. An incomplete list would map the key of an urgent message to a
    /// wrong member. With a routing by key, all messages that are not urgent wait in the queue of the pool during the
    /// start.
    async fn start(&mut self) -> Result<(), Exit> {
        let (mut fresh, mut listed) = (Vec::new(), 0);
        for place in 0..self.least {
            if place > 0 && place.is_multiple_of(STARTS_AT_ONCE) {
                self.me.yield_now().await;
                if self.me.is_cancelled() {
                    break;
                }
            }
            fresh.push(self.spawn(place)?);
            if fresh.len() > listed && !self.members.by_key() {
                listed += fresh.len();
                self.members.append(&mut fresh);
            }
        }
        self.members.append(&mut fresh);
        Ok(())
    }

    fn poll(&mut self, cx: &mut Cx<'_>) -> Poll<Result<(), Exit>> {
        // New members can exit on other workers during this turn. Without the limit `EXITS_AT_ONCE`, the turn might
        // never end.
        let (mut left, mut fresh) = (EXITS_AT_ONCE, Vec::new());
        while let Poll::Ready(Some((place, member, exit))) = self.running.poll_next_unpin(cx) {
            self.fill(place, member, exit, &mut fresh)?;
            left -= 1;
            if left == 0 {
                cx.waker().wake_by_ref();
                break;
            }
        }
        self.members.replace(&mut fresh);
        self.fill_vacancies(cx)?;
        let mut growth = GROWTH_AT_ONCE;
        if self.members.take_growth_request() && self.grow() {
            growth -= 1;
        }
        loop {
            let mut left = self.members.forward_waiting(&mut self.mailbox, cx)?;
            if left == Some(true) {
                // If a member frees space in its mailbox after the call of `watch`, the member wakes the pool. If a
                // member freed space before the call of `watch`, the second call of `forward_waiting` uses this
                // space.
                self.members.watch(cx.waker());
                left = self.members.forward_waiting(&mut self.mailbox, cx)?;
            }
            match left {
                None => {}
                Some(false) => self.me.control().inbox.resume(),
                Some(true) if growth == 0 => cx.waker().wake_by_ref(),
                Some(true) if self.grow() => {
                    growth -= 1;
                    continue;
                }
                // The pool has no member, because the first member was refused. So no member can wake the pool.
                // Therefore a timer wakes the pool after a pause, and the pool tries again to add a member.
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

    /// If the pool has more members than its initial size, checks periodically whether the last member is idle.
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
            // If the last member is busy, its idle time begins at the next check. If this function removes the last
            // member, the previous member becomes the last member, and the idle time of this member begins at the next
            // check.
            *taken = if busy == 0 && !was_idle { took } else { u64::MAX };
            if was_idle && let Some(last) = self.members.pop() {
                self.size -= 1;
                // A sender may have sent a message to this member just before this check. Therefore the member is
                // cancelled instead of killed, and can still finish the message.
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
        delay_wakers(|| {
            for member in &self.running {
                let member = member.handle.0.control().any();
                member.cancel(reason.clone(), deadline);
            }
        });
        while self.running.next().await.is_some() {}
        Exit::Cancelled(reason)
    }
}

async fn keep<M, F>(ctx: Context<M>, pool: Pool<M, F>) -> Result<(), Exit>
where
    M: Send + 'static,
    F: Body<M> + Clone,
{
    let mut keeper = Keeper::new(ctx, pool);
    // The start may need several turns. The pool has started when all its first members were spawned. If the pool is
    // cancelled before all its first members were spawned, the pool never starts.
    keeper.me.control().head.set(flag::MANUAL_START);
    keeper.start().await?;
    if !keeper.me.is_cancelled() {
        keeper.me.mark_started();
    }
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
    /// Spawns a [`Pool`]. The members of the pool inherit the values, the deadline and the cancel token that this
    /// builder gives to the pool. All other options apply only to the pool itself. The mailbox of the pool is the
    /// [queue](Pool::queue_capacity) of the pool.
    ///
    /// # Errors
    /// Returns the pool and the reason for the refusal.
    pub fn spawn_pool<M, F>(self, pool: Pool<M, F>) -> Result<JoinHandle<(), M>, SpawnError<Pool<M, F>>>
    where
        M: Send + 'static,
        F: Body<M> + Clone,
    {
        let queue = MailboxCapacity::Reject(pool.plan.queue);
        // This variable owns the pool until the body takes the pool. If the spawn is refused, `spawn_pool` returns
        // the pool.
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

//! Many processes of a kind behind one address.
//!
//! A pool is a process whose messages go on to its members, at the send and on the sender's thread: its own body, the
//! keeper, sees to the members, and to what none of them had room for.

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
use crate::context::me::Me;
use crate::context::time::Sleep;
use crate::host::Host;
use crate::host::control::Control;
use crate::platform::clock::Instant;
use crate::platform::sync::{Arc, Mutex};
use crate::process::error::{SpawnError, SpawnRefusal};
use crate::process::exit::{Exit, Reason};
use crate::process::mailbox::Bound;
use crate::process::state::Ref;
use crate::task::body::{Body, BodyFuture, Output};
use crate::task::join::{JoinHandle, KillOnDrop};
use crate::task::spawn::ProcessBuilder;

/// Processes of a kind that share the messages of one address: the pool is a process itself, with a pid, a name if it is
/// given one, and a handle.
///
/// A message goes straight to a member; where none has room it waits in the queue of the pool, in order, and where that is
/// full too the send is refused ([`Refusal::Full`](crate::Refusal::Full)) or, with
/// [`send_wait`](crate::Address::send_wait), waits. Nothing else is refused while the pool lives, and a call is answered
/// by whoever reads it.
///
/// A member that ends, however it does, is replaced. What it had not read goes to others, before all that came later; what
/// it had taken and not finished is lost with it, as with any process. If too many end in a short time
/// ([`restarts`](Self::restarts)) the pool fails, and its members are killed.
///
/// The runtime can refuse a member, because the limit of processes is reached:
/// - If one of the first members is refused, the pool's own start fails, and the members that it has started are killed.
/// - If a replacement is refused, that counts as a restart, and the pool tries again after 1 ms. Meanwhile messages for that
///   member wait in the queue of the pool. After a shutdown of the runtime it does not try again, and fails.
/// - If a member by which the pool would [grow](Self::up_to) is refused, the pool stays as it is.
///
/// Cancelled, the pool cancels its members with the same reason and time, and ends when they have; what was unread then
/// is a [dead letter](Host::dead_letters). Killed, it takes them with it.
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
/// let pool = rt.process().name("squares").spawn_pool(Pool::new(4, squares).up_to(8))?;
/// assert_eq!(rt.block_on(pool.call(|reply| (12, reply)))?, 144);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[must_use = "a pool does nothing before it is spawned"]
pub struct Pool<M, F> {
    body: F,
    routing: Routing<M>,
    plan: Box<Plan>,
}

/// What a pool is to be like.
struct Plan {
    least: usize,
    most: usize,
    /// How many messages wait at a member, if that was said.
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
    /// So many members that each run a clone of `body`. Of none the first one comes with the first message.
    ///
    /// Each message goes to the member that has the least before it: what it has in hand and what it has not read; of
    /// several such, to the first.
    pub fn new<Fut>(size: usize, body: F) -> Self
    where
        F: Body<M, Fut> + Clone,
        Fut: BodyFuture,
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

    /// Each message goes to the next member in turn, and only past those that are full.
    pub fn round_robin(mut self) -> Self {
        self.routing = Routing::RoundRobin;
        self
    }

    /// Messages of one key go to one member, in their order, as long as the number of members is the same; of those of
    /// another number most still do. If that member is full the send is refused, whatever room there is elsewhere. In
    /// place of a member that ended its replacement gets them.
    ///
    /// `key` runs on the thread that sends: if it panics, so does the send.
    pub fn by_key<K: Hash>(mut self, key: impl Fn(&M) -> K + Send + Sync + 'static) -> Self {
        self.routing = Routing::Key(Box::new(move |message| {
            let mut hasher = DefaultHasher::new();
            key(message).hash(&mut hasher);
            hasher.finish()
        }));
        self
    }

    /// Another member is added when a message finds none with room, up to this number; one that has been
    /// [idle](Self::idle) goes again, down to the size that the pool began with. Less than that means that it does not grow.
    pub fn up_to(mut self, most: usize) -> Self {
        self.plan.most = most.max(self.plan.least).max(1);
        self
    }

    /// How long the last member has to have nothing to do before it goes, if there are more than the pool began with
    /// (10 s). Looked at once in this time, so it may be almost twice as long.
    pub fn idle(mut self, time: Duration) -> Self {
        self.plan.idle = time;
        self
    }

    /// How many messages may wait at a member, beside the one that it has in hand: 1, so that none waits for one busy
    /// member while another is idle; or 1,024, by round robin or key. 0 means 1.
    pub fn mailbox(mut self, most: usize) -> Self {
        self.plan.mailbox = Some(most);
        self
    }

    /// How many messages may wait in the queue of the pool (1,024). 0 means 1. The mail of a member that ended comes
    /// there whether there is room or not.
    pub fn queue(mut self, most: usize) -> Self {
        self.plan.queue = most;
        self
    }

    /// How many members may end, or fail to start, within a time that slides: with one more the pool fails. (10 within
    /// 10 s.)
    pub fn restarts(mut self, most: u32, within: Duration) -> Self {
        self.plan.restarts = most;
        self.plan.within = within;
        self
    }
}

/// The process that keeps a pool.
struct Keeper<M, F, Fut>
where
    M: Send + 'static,
    Fut: BodyFuture,
{
    me: Me<M>,
    mailbox: Mailbox<M>,
    body: F,
    members: Arc<Members<M>>,
    crew: FuturesUnordered<Member<Output<Fut>, M>>,
    size: usize,
    least: usize,
    most: usize,
    room: usize,
    intensity: Intensity,
    /// Places whose replacement was refused, and when they are tried again.
    vacancies: Vec<Vacancy<M>>,
    retry: Option<Sleep>,
    /// How long one has to be idle; when that is looked at next; and how much the last one had taken when it was seen
    /// idle.
    idle: (Duration, Option<Sleep>, u64),
}

/// A place of a member that has ended, and whose replacement was refused.
struct Vacancy<M: Send + 'static> {
    place: usize,
    former: Ref<Control<M>>,
    /// Why it is vacant.
    exit: Exit,
}

/// A member, or one that was; resolves to how it ended, and where it stood.
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

impl<M, F, Fut> Keeper<M, F, Fut>
where
    M: Send + 'static,
    F: Body<M, Fut> + Clone,
    Fut: BodyFuture,
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
        let handle = self.me.process().mailbox(Bound::Reject(self.room)).spawn(self.body.clone())?;
        let member = handle.address();
        member.control().inbox.leave_to(self.members.clone());
        self.members.set(place, member.control().clone());
        self.crew.push(Member { place, handle: KillOnDrop(handle) });
        self.size = self.size.max(place + 1);
        Ok(())
    }

    /// Replaces a member that has ended. If the replacement is refused, the pool tries again after a pause, in a later turn.
    ///
    /// # Errors
    /// The pool has to fail: there were too many replacements, or the runtime has shut down.
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
            Err(exit) if exit.error() == Some(&SpawnRefusal::ShutDown) => return Err(exit),
            Err(exit) => self.vacancies.push(Vacancy { place, former, exit }),
            Ok(()) => {}
        }
        Ok(())
    }

    /// Tries again to fill the places whose replacement was refused, after a pause.
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
        if self.members.is_pressed() && self.size < self.most {
            // Refused by the host, it stays as it is.
            let _ = self.add(self.size);
        }
        loop {
            let mut left = self.members.hand_on(&mut self.mailbox, cx)?;
            if left == Some(true) {
                // Whoever makes room after this wakes; whoever did before is found now.
                self.members.watch(cx.waker());
                left = self.members.hand_on(&mut self.mailbox, cx)?;
            }
            match left {
                None => {}
                Some(false) => self.me.control().inbox.resume(),
                Some(true) if self.size < self.most && self.add(self.size).is_ok() => continue,
                // The first member was refused, so no member will wake the pool. A pause does, and then the pool adds one.
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
        self.let_go(cx);
        Poll::Pending
    }

    /// Looks from time to time whether the last member has something to do, if there are more than there must be.
    fn let_go(&mut self, cx: &mut Cx<'_>) {
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
            // One that is busy now, and the one before it if this one goes, begin to be idle after this look.
            *taken = if busy == 0 && !was_idle { took } else { u64::MAX };
            if was_idle && let Some(last) = self.members.pop() {
                self.size -= 1;
                // Not killed: it may have been given something just now, which it may finish.
                let last = last.into_any();
                last.cancel(Reason::from("idle"), Instant::FAR);
            }
            *next = Some(self.me.sleep((*time).max(Duration::from_millis(1))));
        }
        *next = None;
    }

    /// Ends the members, and then the pool.
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

async fn keep<M, F, Fut>(ctx: Context<M>, pool: Pool<M, F>) -> Result<(), Exit>
where
    M: Send + 'static,
    F: Body<M, Fut> + Clone,
    Fut: BodyFuture,
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
    /// Spawns a [`Pool`]. Its members inherit the values; all else is the pool's own, whose mailbox is its
    /// [queue](Pool::queue).
    ///
    /// # Errors
    /// The pool and why it was refused.
    pub fn spawn_pool<M, F, Fut>(self, pool: Pool<M, F>) -> Result<JoinHandle<(), M>, SpawnError<Pool<M, F>>>
    where
        M: Send + 'static,
        F: Body<M, Fut> + Clone,
        Fut: BodyFuture,
    {
        let queue = Bound::Reject(pool.plan.queue);
        // Where it is found again if the spawn is refused.
        let place = Arc::new(Mutex::new(Some(pool)));
        let taken = Arc::clone(&place);
        let body = async move |ctx| {
            let pool = taken.lock().take().expect("it starts once");
            keep(ctx, pool).await
        };
        let lost = "a pool that was refused did not start";
        self.mailbox(queue).spawn(body).map_err(|error| error.map(|_| place.lock().take().expect(lost)))
    }
}

impl Host {
    /// Spawns a [`Pool`]. If the runtime refuses, the handle says so: [`Exit::Refused`].
    pub fn spawn_pool<M, F, Fut>(&self, pool: Pool<M, F>) -> JoinHandle<(), M>
    where
        M: Send + 'static,
        F: Body<M, Fut> + Clone,
        Fut: BodyFuture,
    {
        let queue = Bound::Reject(pool.plan.queue);
        self.process().mailbox(queue).spawn_or_refuse(async move |ctx| keep(ctx, pool).await)
    }
}

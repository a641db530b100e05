//! The members of a pool, and the choice of a member for each message.
//!
//! Senders run this code on their own threads. A sender reads the list of members and pushes the message into the
//! mailbox of one member. Each change of the members replaces the whole list. If no member takes a message, the message
//! enters the mailbox of the pool, and the keeper forwards the message later. The mailbox of an exited member is
//! closed. Therefore, an exited member takes no message, even if the member is still in the list.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::task::{Context, Waker};

use crate::context::mailbox::Mailbox;
use crate::context::mailbox::selective::NotTaken;
use crate::host::control::{AnyControl, Control};
use crate::platform::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::platform::sync::{Arc, Mutex};
use crate::process::exit::Exit;
use crate::process::mailbox::{Router, Unrouted, Unsent, Wakes};
use crate::process::state::{Ref, Weak};

/// Maximum number of messages that the keeper forwards from the queue in one turn.
const AT_ONCE: usize = 64;

/// Method by which a member is chosen for a message.
pub(crate) enum Routing<M> {
    LeastLoaded,
    RoundRobin,
    Key(Box<dyn Fn(&M) -> u64 + Send + Sync>),
}

type List<M> = Arc<[Ref<Control<M>>]>;

/// The members of a pool, in order.
pub(crate) struct Members<M: Send + 'static> {
    routing: Routing<M>,
    list: Mutex<List<M>>,
    /// Counter for the round robin. Each round-robin search for a member adds one to this counter.
    turn: AtomicUsize,
    /// Maximum number of members.
    most: usize,
    /// Request for the pool to grow. A sender sets this flag when the only possible member for a message is full.
    should_grow: AtomicBool,
    /// The process that runs the pool.
    pool: Weak<Control<M>>,
}

impl<M: Send + 'static> fmt::Debug for Members<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Members").field("members", &self.list().len()).finish_non_exhaustive()
    }
}

/// One pass of the keeper over the queue.
struct Pass {
    /// Number of messages that the pass may still forward.
    left: usize,
    /// Number of messages that the pass may still skip. The initial value is the length of the queue. Without this
    /// limit, a pass would never end if the senders append messages as fast as the pass skips them.
    skips: usize,
    /// True if the pass has stopped because the pass had already skipped its maximum number of messages. In this case,
    /// the keeper wakes itself, because a member may have free space for a later message.
    is_cut: bool,
    /// Positions of the members that did not take a message of this pass.
    blocked: BTreeSet<usize>,
}

impl Pass {
    fn new(queued: usize) -> Self {
        Self { left: AT_ONCE, skips: queued, is_cut: false, blocked: BTreeSet::new() }
    }
}

/// Reason why a member did not take a message.
enum NotAccepted<M> {
    Full(M),
    Ended(M),
}

fn taken<M>(pushed: Result<Wakes, Unsent<M>>) -> Result<Wakes, NotAccepted<M>> {
    pushed.map_err(|unsent| match unsent {
        Unsent::Closed(message) => NotAccepted::Ended(message),
        Unsent::Full(message) => NotAccepted::Full(message),
        Unsent::Dropped(..) | Unsent::Routed(..) => unreachable!("a member refuses what it has no room for"),
    })
}

/// Records in the pool and in the member that the member has accepted a message.
#[inline]
fn accepted_by<M: Send + 'static>(member: &Control<M>, accepted: &dyn Fn()) {
    accepted();
    member.accepted_from_router();
}

fn give<M: Send + 'static>(member: &Control<M>, message: M, accepted: &dyn Fn()) -> Result<(), NotAccepted<M>> {
    taken(member.inbox.push(member, message, || accepted_by(member, accepted))).map(Wakes::wake)
}

impl<M: Send + 'static> Members<M> {
    pub(crate) fn new(routing: Routing<M>, most: usize, pool: Weak<Control<M>>) -> Self {
        Self {
            routing,
            list: Mutex::new(Arc::new([])),
            turn: AtomicUsize::new(0),
            most,
            should_grow: AtomicBool::new(false),
            pool,
        }
    }

    /// Returns the current list of members.
    pub(crate) fn list(&self) -> List<M> {
        Arc::clone(&self.list.lock())
    }

    pub(crate) fn is_least_loaded(&self) -> bool {
        matches!(self.routing, Routing::LeastLoaded)
    }

    /// Returns true if a sender has asked the pool to grow. Also clears the request.
    pub(crate) fn take_growth_request(&self) -> bool {
        self.should_grow.load(Ordering::Relaxed) && self.should_grow.swap(false, Ordering::AcqRel)
    }

    fn request_growth(&self) {
        if !self.should_grow.swap(true, Ordering::AcqRel)
            && let Some(pool) = self.pool.upgrade()
        {
            pool.wake();
        }
    }

    /// Returns whether the key of a message determines the member.
    pub(crate) fn by_key(&self) -> bool {
        matches!(self.routing, Routing::Key(_))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<Ref<Control<M>>>) -> T) -> T {
        let mut members = self.list().to_vec();
        let changed = change(&mut members);
        let former = std::mem::replace(&mut *self.list.lock(), members.into());
        drop(former);
        changed
    }

    /// Puts `member` at the position `place`, or at the end of the list if the list has no such position. Only the
    /// keeper calls this function.
    pub(crate) fn set(&self, place: usize, member: Ref<Control<M>>) {
        let former = self.change(|members| match members.get_mut(place) {
            Some(former) => Some(std::mem::replace(former, member)),
            None => {
                members.push(member);
                None
            }
        });
        drop(former);
    }

    /// Puts each member at its position, and leaves `members` empty. The positions are in the list. The call copies the
    /// list once. Only the keeper calls this function.
    pub(crate) fn replace(&self, members: &mut Vec<(usize, Ref<Control<M>>)>) {
        if !members.is_empty() {
            let former: Vec<_> = self.change(|list| {
                members.drain(..).map(|(at, member)| std::mem::replace(&mut list[at], member)).collect()
            });
            drop(former);
        }
    }

    /// Appends `members`. Only the keeper calls this function.
    pub(crate) fn append(&self, members: &mut Vec<Ref<Control<M>>>) {
        self.change(|list| list.append(members));
    }

    /// Removes the last member. Only the keeper calls this function.
    pub(crate) fn pop(&self) -> Option<Ref<Control<M>>> {
        self.change(Vec::pop)
    }

    /// Removes all members. Only the keeper calls this function.
    pub(crate) fn clear(&self) -> Vec<Ref<Control<M>>> {
        self.change(std::mem::take)
    }

    /// Registers the keeper's waker with every member. When a member frees space in its mailbox, this member wakes the
    /// keeper. A registration with only one member would not be enough, because a concurrent sender may fill this
    /// member before the keeper runs.
    pub(crate) fn watch(&self, waker: &Waker) {
        for member in &*self.list() {
            member.inbox.watch(waker.clone());
        }
    }

    /// Forwards the messages in the queue. Returns true if messages are left. There are two reasons why messages can be
    /// left: no member has free space for these messages, or the pass was cut (see `Pass::is_cut`) and the keeper has
    /// woken itself. Returns `None` if this turn has forwarded the maximum number of messages.
    pub(crate) fn forward_waiting(&self, queue: &mut Mailbox<M>, cx: &mut Context<'_>) -> Result<Option<bool>, Exit> {
        let mut pass = Pass::new(queue.unread());
        let some_left = queue.offer(cx, self.by_key(), |message| self.forward(message, &mut pass))?;
        if pass.left == 0 || pass.is_cut {
            cx.waker().wake_by_ref();
        }
        Ok((pass.left != 0).then_some(some_left))
    }

    /// Forwards one message of the queue. `pass` is the pass over the queue that reads this message.
    ///
    /// # Errors
    /// Returns the message if the message stays in the queue. If no later message can be forwarded, the pass stops and
    /// does not read the rest of the queue.
    fn forward(&self, message: M, pass: &mut Pass) -> Result<(), NotTaken<M>> {
        if pass.left == 0 {
            return Err(NotTaken::Stop(message));
        }
        match self.route_in_order(message, &mut pass.blocked) {
            Ok(()) => pass.left -= 1,
            Err(NotTaken::Continue(message)) if pass.skips == 0 => {
                pass.is_cut = true;
                return Err(NotTaken::Stop(message));
            }
            Err(kept) => {
                pass.skips = pass.skips.saturating_sub(1);
                return Err(kept);
            }
        }
        Ok(())
    }

    /// Forwards a message from the queue. The oldest message is forwarded first. `blocked` contains the position of
    /// each member that did not take an older message. No later message is forwarded to a member in `blocked`, because
    /// the later message would overtake the older message.
    ///
    /// # Errors
    /// Returns the message if no member took the message. The error is [`NotTaken::Stop`] if each member is blocked or
    /// there is no member. If the routing is not by key, the error is always [`NotTaken::Stop`].
    fn route_in_order(&self, message: M, blocked: &mut BTreeSet<usize>) -> Result<(), NotTaken<M>> {
        let Routing::Key(key) = &self.routing else {
            // A message in the queue was already counted at its send.
            return self.route(message, &|| {}).map_err(|unrouted| match unrouted {
                Unrouted::Later(message) | Unrouted::Full(message) => NotTaken::Stop(message),
            });
        };
        let members = self.list();
        if members.is_empty() {
            return Err(NotTaken::Stop(message));
        }
        let place = jump(key(&message), members.len());
        if blocked.contains(&place) {
            return Err(NotTaken::Continue(message));
        }
        give(&members[place], message, &|| {}).map_err(|(NotAccepted::Full(message) | NotAccepted::Ended(message))| {
            blocked.insert(place);
            if blocked.len() < members.len() { NotTaken::Continue(message) } else { NotTaken::Stop(message) }
        })
    }

    /// Pushes a message to the only possible member, during the send of the message.
    fn route_to(
        &self,
        member: &Control<M>,
        message: M,
        accepted: &dyn Fn(),
        members: usize,
    ) -> Result<(), Unrouted<M>> {
        let Some(pool) = self.pool.upgrade() else { return Err(Unrouted::Later(message)) };
        // The push runs under the lock of the pool's queue, and only if this queue is empty. If the member has exited,
        // its unread messages may be in the queue. Without the lock or without the check, the message could overtake
        // earlier messages of the same sender.
        let mut message = Some(message);
        let accepted = || accepted_by(member, accepted);
        let push = || member.inbox.push(member, message.take().expect("just put there"), accepted);
        let pushed = pool.inbox.if_none_waits(push);
        match pushed.map(taken) {
            Some(Ok(wakes)) => {
                wakes.wake();
                Ok(())
            }
            // No other member may take this message. In the queue of the pool, this message would use space that the
            // messages for other members need. Therefore the send is refused, or the sender waits.
            Some(Err(NotAccepted::Full(message))) => {
                if members < self.most {
                    self.request_growth();
                }
                Err(Unrouted::Full(message))
            }
            Some(Err(NotAccepted::Ended(message))) => Err(Unrouted::Later(message)),
            None => Err(Unrouted::Later(message.expect("the message is in its place until it is pushed"))),
        }
    }

    /// Returns the position at which the search for a member begins.
    fn first(&self, members: &[Ref<Control<M>>]) -> usize {
        if let Routing::RoundRobin = self.routing {
            return self.turn.fetch_add(1, Ordering::Relaxed) % members.len();
        }
        let mut least = (usize::MAX, 0);
        for (place, member) in members.iter().enumerate() {
            let load = member.inbox.load().0;
            if load == 0 {
                return place;
            }
            least = least.min((load, place));
        }
        least.1
    }
}

impl<M: Send + 'static> Router<M> for Members<M> {
    fn route(&self, mut message: M, accepted: &dyn Fn()) -> Result<(), Unrouted<M>> {
        let members = self.list();
        if members.is_empty() {
            return Err(Unrouted::Later(message));
        }
        if let Routing::Key(key) = &self.routing {
            return self.route_to(&members[jump(key(&message), members.len())], message, accepted, members.len());
        }
        let first = self.first(&members);
        for place in (first..members.len()).chain(0..first) {
            match give(&members[place], message, accepted) {
                Ok(()) => return Ok(()),
                Err(NotAccepted::Full(back) | NotAccepted::Ended(back)) => message = back,
            }
        }
        Err(Unrouted::Later(message))
    }

    fn route_urgent(&self, mut message: M) -> Result<(), M> {
        let members = self.list();
        if members.is_empty() {
            return Err(message);
        }
        if let Routing::Key(key) = &self.routing {
            let member = &members[jump(key(&message), members.len())];
            return member.push_urgent(message).map_err(|(_, message)| message);
        }
        let first = self.first(&members);
        for place in (first..members.len()).chain(0..first) {
            match members[place].push_urgent(message) {
                Ok(()) => return Ok(()),
                Err((_, refused)) => message = refused,
            }
        }
        Err(message)
    }

    fn refuses(&self) -> bool {
        let members = self.list();
        !members.is_empty() && members.iter().all(|member| member.inbox.refuses() == Some(true))
    }

    fn refuses_urgent(&self) -> bool {
        self.list().iter().all(|member| member.refuses_urgent().is_some())
    }

    fn queues(&self) -> bool {
        // A pool that routes by key refuses a message if the member for the key of the message is full.
        !self.by_key()
    }

    fn inherit(&self, unread: Vec<M>) -> Result<(), Vec<M>> {
        // The unread messages of the exited member come before all messages that were sent after its exit. Therefore
        // the messages of each key stay in order.
        match self.pool.upgrade() {
            Some(pool) => pool.inbox.put_first(&*pool, unread).map(Wakes::wake),
            None => Err(unread),
        }
    }

    fn targets(&self) -> Box<dyn Any> {
        Box::new(self.list())
    }
}

/// Maps a key to a number below `buckets`. If the number of buckets grows by one, only the smallest possible number of
/// keys moves to another bucket. The algorithm is the jump consistent hash (Lamping and Veach, 2014).
fn jump(mut key: u64, buckets: usize) -> usize {
    let (mut bucket, mut next) = (0, 0.0);
    while next < buckets as f64 {
        bucket = next as usize;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        next = ((bucket + 1) as f64 * ((1_u64 << 31) as f64 / ((key >> 33) + 1) as f64)).floor();
    }
    bucket
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member may exit before the pool sets the router of the member's mailbox. The closed mailbox must not keep the
    /// router, because the router refers to the members.
    #[cfg(not(any(procession_loom, procession_shuttle)))]
    #[test]
    fn a_closed_mailbox_keeps_no_router() {
        let rt = crate::Runtime::builder().workers(0).build().unwrap();
        let (address, mailbox) = rt.mailbox::<u8>();
        let control = address.control();
        let members = Arc::new(Members::new(Routing::RoundRobin, 1, Ref::downgrade(control)));
        drop(mailbox);
        control.inbox.leave_to(members.clone());
        assert_eq!(Arc::strong_count(&members), 1);
    }

    /// The key function of a pool may own a value with a destructor. This destructor runs while the closed mailbox is
    /// not locked.
    #[cfg(not(any(procession_loom, procession_shuttle)))]
    #[test]
    fn a_closed_mailbox_drops_its_router_while_the_mailbox_is_not_locked() {
        use crate::Address;

        /// Router that checks in its `drop` whether its mailbox is closed.
        #[derive(Debug)]
        struct Looks(Address<u8>, Arc<AtomicBool>);

        impl Drop for Looks {
            fn drop(&mut self) {
                let is_closed = self.0.control().inbox.refuses() == Some(false);
                self.1.store(is_closed, Ordering::SeqCst);
            }
        }

        impl Router<u8> for Looks {
            fn route(&self, message: u8, _: &dyn Fn()) -> Result<(), Unrouted<u8>> {
                Err(Unrouted::Later(message))
            }

            fn route_urgent(&self, message: u8) -> Result<(), u8> {
                Err(message)
            }

            fn refuses(&self) -> bool {
                true
            }

            fn refuses_urgent(&self) -> bool {
                true
            }

            fn queues(&self) -> bool {
                true
            }

            fn inherit(&self, unread: Vec<u8>) -> Result<(), Vec<u8>> {
                Err(unread)
            }

            fn targets(&self) -> Box<dyn Any> {
                Box::new(())
            }
        }

        let rt = crate::Runtime::builder().workers(0).build().unwrap();
        let (address, mailbox) = rt.mailbox::<u8>();
        let saw_closed = Arc::new(AtomicBool::new(false));
        let control = address.control();
        control.inbox.route_to(&**control, Arc::new(Looks(address.clone(), Arc::clone(&saw_closed))));
        drop(mailbox);
        assert!(saw_closed.load(Ordering::SeqCst));
    }

    #[test]
    fn keys_are_spread_evenly_and_move_only_to_the_new_bucket() {
        const KEYS: u64 = 10_000;
        let spread = |key: u64| key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for buckets in 1..20 {
            let mut counts = vec![0_u64; buckets + 1];
            for key in (0..KEYS).map(spread) {
                let (before, after) = (jump(key, buckets), jump(key, buckets + 1));
                assert!(before < buckets && (after == before || after == buckets), "{key} {buckets}");
                counts[after] += 1;
            }
            let fair = KEYS / (buckets as u64 + 1);
            assert!(counts.iter().all(|count| (fair / 2..fair * 2).contains(count)), "{counts:?}");
        }
    }
}

/// Tests of the keeper's passes over the queue of a pool. The tests need a runtime, which the model checkers do not
/// have.
#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod pass_tests {
    use std::task::Wake;
    use std::time::Duration;

    use super::*;
    use crate::process::mailbox::MailboxCapacity;
    use crate::{Address, Runtime};

    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    /// Returns two values: the members of a keeper whose mailbox is `kept`, and the mailbox of the only member.
    fn with_one_member<M: Send + 'static>(
        rt: &Runtime,
        kept: &Address<M>,
        capacity: usize,
    ) -> (Members<M>, Mailbox<M>) {
        let (member, received) = rt.mailbox_with(MailboxCapacity::Reject(capacity));
        let members = Members::new(Routing::Key(Box::new(|_| 0)), 1, Ref::downgrade(kept.control()));
        members.set(0, member.control().clone());
        (members, received)
    }

    /// 6.4g: a pass over the queue stops after the maximum number of forwarded messages. Therefore the total number of
    /// messages that the passes inspect is linear in the length of the queue.
    #[test]
    fn a_pass_stops_after_the_maximum_number_of_forwarded_messages() {
        const MESSAGES: usize = 20_000;
        let rt = Runtime::builder().workers(0).build().unwrap();
        let (kept, mut queue) = rt.mailbox_with::<usize>(MailboxCapacity::Reject(usize::MAX));
        let (members, mut received) = with_one_member(&rt, &kept, MESSAGES);
        (0..MESSAGES).for_each(|n| kept.send(n).unwrap());
        let (mut inspected, mut passes, mut some_left) = (0, 0, true);
        while some_left {
            let mut pass = Pass::new(queue.unread());
            let forward = |message| {
                inspected += 1;
                members.forward(message, &mut pass)
            };
            some_left = queue.offer(&mut Context::from_waker(Waker::noop()), true, forward).unwrap();
            passes += 1;
        }
        assert_eq!((passes, inspected), (MESSAGES.div_ceil(AT_ONCE), MESSAGES + MESSAGES / AT_ONCE));
        assert!((0..MESSAGES).all(|n| received.try_receive() == Some(n)), "in order");
    }

    /// 6.4g: even if a pass stops early, the pass reports that the queue was cancelled, and later messages wake the
    /// keeper.
    #[test]
    fn a_stopped_pass_registers_the_keeper_and_reports_the_cancellation() {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let (kept, mut queue) = rt.mailbox_with::<u8>(MailboxCapacity::Reject(usize::MAX));
        let (members, _received) = with_one_member(&rt, &kept, 1);
        (0..3).for_each(|n| kept.send(n).unwrap());
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut forward_waiting = || members.forward_waiting(&mut queue, &mut Context::from_waker(&waker));
        assert_eq!(forward_waiting().unwrap(), Some(true));
        assert!(!woken.0.load(Ordering::SeqCst));
        kept.send(3).unwrap();
        assert!(woken.0.swap(false, Ordering::SeqCst));
        assert_eq!(forward_waiting().unwrap(), Some(true));
        rt.cancel(kept.pid(), "enough", Duration::ZERO).unwrap();
        assert!(woken.0.load(Ordering::SeqCst));
        assert!(matches!(forward_waiting(), Err(Exit::Cancelled(_))));
    }

    /// Senders append messages while a pass skips the messages of a full member. The pass ends, and the keeper wakes
    /// itself.
    #[test]
    fn a_pass_ends_although_messages_are_appended() {
        const MOST: usize = 1_000;
        let rt = Runtime::builder().workers(0).build().unwrap();
        let (pool, mut queue) = rt.mailbox_with::<u8>(MailboxCapacity::Reject(usize::MAX));
        let appended = Arc::new(AtomicUsize::new(0));
        let (count, to) = (Arc::clone(&appended), pool.clone());
        // The pass calls this function for each message.
        let key = move |_: &u8| {
            if count.fetch_add(1, Ordering::SeqCst) < MOST {
                to.send(0).unwrap();
            }
            0
        };
        let members = Members::new(Routing::Key(Box::new(key)), 2, Ref::downgrade(pool.control()));
        let both = [(); 2].map(|()| rt.mailbox_with(MailboxCapacity::Reject(1)));
        members.append(&mut both.iter().map(|(member, _)| member.control().clone()).collect());
        pool.send(0).unwrap();
        // The keeper is not registered as the receiver during the pass. Therefore the sends do not wake the keeper.
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&woken));
        let result = members.forward_waiting(&mut queue, &mut Context::from_waker(&waker)).unwrap();
        assert_eq!((result, appended.load(Ordering::SeqCst)), (Some(true), 3));
        assert!(woken.0.load(Ordering::SeqCst));
    }
}

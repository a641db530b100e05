//! The members of a pool, and the choice of a member for each message.
//!
//! Senders run this code on their own threads. A sender reads the list of members and pushes the message into the
//! mailbox of one member. Each change of the members replaces the whole list. If no member takes a message, the message
//! goes into the mailbox of the pool, and the keeper forwards the message later. The mailbox of an exited member is
//! closed. Therefore, an exited member takes no message while it is still in the list.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::task::{Context, Waker};

use crate::context::mailbox::Mailbox;
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
    /// Counter for the round robin. Each search for a member adds one.
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

fn give<M: Send + 'static>(member: &Control<M>, message: M, accepted: &dyn Fn()) -> Result<(), NotAccepted<M>> {
    taken(member.inbox.push(member, message, accepted)).map(Wakes::wake)
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

    /// Returns the present list of members.
    pub(crate) fn list(&self) -> List<M> {
        Arc::clone(&self.list.lock())
    }

    pub(crate) fn is_least_loaded(&self) -> bool {
        matches!(self.routing, Routing::LeastLoaded)
    }

    /// Returns whether a sender has asked the pool to grow, and clears the request.
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

    /// Puts `member` at the position `place`, or at the end if the list is shorter. Only the keeper calls this
    /// function.
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

    /// Forwards the messages in the queue. Returns true if no member has free space for the messages that are left.
    /// Returns `None` if this turn has forwarded the maximum number of messages.
    pub(crate) fn hand_on(&self, queue: &mut Mailbox<M>, cx: &mut Context<'_>) -> Result<Option<bool>, Exit> {
        let mut left = AT_ONCE;
        let mut blocked = BTreeSet::new();
        let some_left = queue.offer(cx, self.by_key(), |message| {
            if left == 0 {
                return Err(message);
            }
            self.route_in_order(message, &mut blocked).map(|()| left -= 1)
        })?;
        if left == 0 {
            cx.waker().wake_by_ref();
            return Ok(None);
        }
        Ok(Some(some_left))
    }

    /// Forwards a message from the queue. The oldest message is forwarded first. `blocked` contains the position of
    /// each member that did not take an older message. No later message is forwarded to such a member, because the
    /// later message would overtake the older message.
    fn route_in_order(&self, message: M, blocked: &mut BTreeSet<usize>) -> Result<(), M> {
        let Routing::Key(key) = &self.routing else {
            // A queued message was already counted when it was sent.
            return self.route(message, &|| {}).map_err(|unrouted| match unrouted {
                Unrouted::Later(message) | Unrouted::Full(message) => message,
            });
        };
        let members = self.list();
        if members.is_empty() {
            return Err(message);
        }
        let place = jump(key(&message), members.len());
        if blocked.contains(&place) {
            return Err(message);
        }
        give(&members[place], message, &|| {}).map_err(|(NotAccepted::Full(message) | NotAccepted::Ended(message))| {
            blocked.insert(place);
            message
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

/// Maps a key to a number below `buckets`. If the number of buckets grows by one, the smallest possible number of keys
/// moves. The algorithm is the jump consistent hash (Lamping and Veach, 2014).
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

    /// A member may exit before its pool sets the router of the member's mailbox. The closed mailbox must not keep the
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

//! Who of a pool gets a message.
//!
//! Senders come here on their own threads, look at a list of the members that is replaced as a whole when it changes, and
//! put the message into the mailbox of one of them. What no member takes they leave in the mailbox of the pool, where its
//! keeper sees to it. A member that ended is found by its closed mailbox, until the keeper has replaced it.

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

/// How many messages are handed on from the queue in a turn.
const AT_ONCE: usize = 64;

/// How a member is chosen.
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
    /// Whose turn it is.
    turn: AtomicUsize,
    /// How many there may be.
    most: usize,
    /// One that had no room was the only one that would do: there should be more.
    pressed: AtomicBool,
    /// The process that keeps the pool.
    pool: Weak<Control<M>>,
}

impl<M: Send + 'static> fmt::Debug for Members<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Members").field("members", &self.list().len()).finish_non_exhaustive()
    }
}

/// Why a member did not take a message.
enum Untaken<M> {
    Full(M),
    Ended(M),
}

fn taken<M>(pushed: Result<Wakes, Unsent<M>>) -> Result<Wakes, Untaken<M>> {
    pushed.map_err(|unsent| match unsent {
        Unsent::Closed(message) => Untaken::Ended(message),
        Unsent::Full(message) => Untaken::Full(message),
        Unsent::Dropped(..) | Unsent::Routed(..) => unreachable!("a member refuses what it has no room for"),
    })
}

fn give<M: Send + 'static>(member: &Control<M>, message: M, accepted: &dyn Fn()) -> Result<(), Untaken<M>> {
    taken(member.inbox.push(member, message, accepted)).map(Wakes::wake)
}

impl<M: Send + 'static> Members<M> {
    pub(crate) fn new(routing: Routing<M>, most: usize, pool: Weak<Control<M>>) -> Self {
        Self {
            routing,
            list: Mutex::new(Arc::new([])),
            turn: AtomicUsize::new(0),
            most,
            pressed: AtomicBool::new(false),
            pool,
        }
    }

    /// All of them now.
    pub(crate) fn list(&self) -> List<M> {
        Arc::clone(&self.list.lock())
    }

    pub(crate) fn is_least_loaded(&self) -> bool {
        matches!(self.routing, Routing::LeastLoaded)
    }

    /// Whether there should be more of them, asked once.
    pub(crate) fn is_pressed(&self) -> bool {
        self.pressed.load(Ordering::Relaxed) && self.pressed.swap(false, Ordering::AcqRel)
    }

    fn press(&self) {
        if !self.pressed.swap(true, Ordering::AcqRel)
            && let Some(pool) = self.pool.upgrade()
        {
            pool.wake();
        }
    }

    /// Whether it is the message that says who gets it.
    fn by_key(&self) -> bool {
        matches!(self.routing, Routing::Key(_))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<Ref<Control<M>>>) -> T) -> T {
        let mut members = self.list().to_vec();
        let changed = change(&mut members);
        let former = std::mem::replace(&mut *self.list.lock(), members.into());
        drop(former);
        changed
    }

    /// Puts a member at a place, or behind the last one. By the keeper alone.
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

    /// Takes out the last one. By the keeper alone.
    pub(crate) fn pop(&self) -> Option<Ref<Control<M>>> {
        self.change(Vec::pop)
    }

    /// Takes out all of them, for good. By the keeper alone.
    pub(crate) fn clear(&self) -> Vec<Ref<Control<M>>> {
        self.change(std::mem::take)
    }

    /// Has the keeper told by this waker when a member makes room. All are watched: one that has room now may have none
    /// when the keeper gets there, by a sender that was on its way.
    pub(crate) fn watch(&self, waker: &Waker) {
        for member in &*self.list() {
            member.inbox.watch(waker.clone());
        }
    }

    /// Hands on what waits in the queue. Says whether some is left that nobody has room for; nothing if its turn is over.
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

    /// Hands a message on from the queue, oldest first. `blocked` are the places of members that did not take one that
    /// is older; none that is for the same member goes before that.
    fn route_in_order(&self, message: M, blocked: &mut BTreeSet<usize>) -> Result<(), M> {
        let Routing::Key(key) = &self.routing else {
            // What waits here was counted when it came.
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
        give(&members[place], message, &|| {}).map_err(|(Untaken::Full(message) | Untaken::Ended(message))| {
            blocked.insert(place);
            message
        })
    }

    /// Hands a message to the one member that will do, from its sender.
    fn route_to(
        &self,
        member: &Control<M>,
        message: M,
        accepted: &dyn Fn(),
        members: usize,
    ) -> Result<(), Unrouted<M>> {
        let Some(pool) = self.pool.upgrade() else { return Err(Unrouted::Later(message)) };
        // Under the lock of the queue: what that member left unread, and the sender sent before, may be there by now.
        let mut message = Some(message);
        let push = || member.inbox.push(member, message.take().expect("just put there"), accepted);
        let pushed = pool.inbox.if_none_waits(push);
        match pushed.map(taken) {
            Some(Ok(wakes)) => {
                wakes.wake();
                Ok(())
            }
            // No other one will do: whoever can wait is not to stand before messages for others.
            Some(Err(Untaken::Full(message))) => {
                if members < self.most {
                    self.press();
                }
                Err(Unrouted::Full(message))
            }
            Some(Err(Untaken::Ended(message))) => Err(Unrouted::Later(message)),
            None => Err(Unrouted::Later(message.expect("nobody took it"))),
        }
    }

    /// Where to look first, and then one after the other.
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
                Err(Untaken::Full(back) | Untaken::Ended(back)) => message = back,
            }
        }
        Err(Unrouted::Later(message))
    }

    fn inherit(&self, unread: Vec<M>) -> Result<(), Vec<M>> {
        // Before all that came after its end: for one key the order holds.
        match self.pool.upgrade() {
            Some(pool) => pool.inbox.put_first(&*pool, unread).map(Wakes::wake),
            None => Err(unread),
        }
    }
}

/// A number below `buckets` for a key, such that where there is one more of them no more keys move than must: jump
/// consistent hash (Lamping and Veach, 2014).
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

    #[test]
    fn keys_spread_and_move_only_to_the_bucket_that_is_new() {
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

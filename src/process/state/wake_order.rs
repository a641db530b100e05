//! Where those go that this thread wakes: next in line, behind the others, or nowhere yet. Who wakes says it, who queues
//! asks; and where whoever is queued comes from.

use std::any::Any;
use std::cell::Cell;

use crate::platform::sync::{Arc, thread_local};

/// What is queued where: that of its host.
pub(crate) type Station = Arc<dyn Any + Send + Sync>;

/// Where a task goes that is woken now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placing {
    /// Where it goes by the rules of the queues.
    Next,
    /// Behind those that are ready.
    Behind,
    /// It is kept until all are woken that are to be, and queued with them.
    Together,
}

/// Where one comes from that is queued.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Comes<'a> {
    /// It waited, or is new. Whoever queues it may know its place, and keep that: then it need not be kept over the push.
    FromRest(Option<&'a Station>),
    /// It has had a turn just now, and goes on.
    FromTurn,
}

thread_local! {
    static PLACING: Cell<Placing> = const { Cell::new(Placing::Next) };
}

/// What `wake` wakes goes there.
#[inline]
pub(crate) fn at<R>(placing: Placing, wake: impl FnOnce() -> R) -> R {
    struct Back(Placing);
    impl Drop for Back {
        fn drop(&mut self) {
            PLACING.with(|placing| placing.set(self.0));
        }
    }
    let _back = Back(PLACING.with(|now| now.replace(placing)));
    wake()
}

/// Where what is woken now goes.
#[inline]
pub(crate) fn now() -> Placing {
    PLACING.with(Cell::get)
}

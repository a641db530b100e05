//! Which process is asked to let others run: one word for each place where processes run, which the one that runs there
//! looks at when it asks whether it should yield. Who is asked, and when, others decide.
//!
//! A word may hold the number of one that has gone elsewhere since. It is asked when it next comes to this place, and
//! yields once for nothing.

use std::cell::RefCell;

use crate::platform::sync::tally::{AtomicU64, Ordering};
use crate::platform::sync::{Arc, CachePadded, NeverDropped, thread_local};

const NOBODY: u64 = u64::MAX;

thread_local! {
    /// The word of the place that this thread is at.
    static HERE: NeverDropped<RefCell<Option<Arc<Asked>>>> = const { NeverDropped::new(RefCell::new(None)) };
}

/// Who is asked at one place.
#[derive(Debug)]
pub(crate) struct Asked(CachePadded<AtomicU64>);

impl Asked {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(CachePadded(AtomicU64::new(NOBODY))))
    }

    /// Asks this process. Relaxed, here and where it is read: nothing else follows from it.
    pub(crate) fn ask(&self, whom: u64) {
        self.0.store(whom, Ordering::Relaxed);
    }

    /// From here until what is returned is dropped, this thread is at this place.
    pub(crate) fn sit(self: &Arc<Self>) -> PreemptGuard {
        PreemptGuard(HERE.with(|here| here.replace(Some(Arc::clone(self)))))
    }
}

/// Restores where this thread was before.
#[must_use]
pub(crate) struct PreemptGuard(Option<Arc<Asked>>);

impl Drop for PreemptGuard {
    fn drop(&mut self) {
        HERE.with(|here| here.replace(self.0.take()));
    }
}

/// Whether this process is asked where it runs; once for each time.
pub(crate) fn take(who: u64) -> bool {
    HERE.with(|here| {
        let here = here.borrow();
        let Some(Asked(asked)) = here.as_deref() else { return false };
        asked.load(Ordering::Relaxed) == who
            && asked.compare_exchange(who, NOBODY, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    })
}

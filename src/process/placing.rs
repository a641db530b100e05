//! Where those go that this thread wakes: next in line, or behind the others. Who wakes says it, who queues asks.

use std::cell::Cell;

use crate::sync::thread_local;

thread_local! {
    static BEHIND: Cell<bool> = const { Cell::new(false) };
}

/// What `wake` wakes goes behind those that are ready.
#[inline]
pub(crate) fn behind(wake: impl FnOnce()) {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            BEHIND.with(|behind| behind.set(self.0));
        }
    }
    let _back = Back(BEHIND.with(|behind| behind.replace(true)));
    wake();
}

/// Whether what is woken now goes there.
#[inline]
pub(crate) fn is_behind() -> bool {
    BEHIND.with(Cell::get)
}

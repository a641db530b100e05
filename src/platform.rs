//! (new folder)

pub(crate) mod alloc;
pub(crate) mod clock;
pub(crate) mod preempt;
pub(crate) mod prefetch;
pub(crate) mod random;
pub(crate) mod sync;

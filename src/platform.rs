//! Platform layer: memory, clock, random numbers, prefetching, preemption requests, and synchronization.
//!
//! The other modules get these only from here, so the model checkers and the simulation can replace them.

pub(crate) mod alloc;
pub(crate) mod clock;
pub(crate) mod preempt;
pub(crate) mod prefetch;
pub(crate) mod random;
pub(crate) mod sync;

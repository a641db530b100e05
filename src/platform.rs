//! Platform layer: locks, threads, the clock, the poller of sockets, random numbers, memory blocks, values of any type,
//! values that are dropped by value, cells that two owners share, atomic references, prefetching, preemption requests,
//! delayed wake-ups, and the end of panics.
//!
//! This folder imports no other folder. The other folders get time, threads and random numbers only from here, so the
//! model checkers and the simulation can replace them. It knows no process, no task and no queue.

pub(crate) mod alloc;
pub(crate) mod by_value;
pub(crate) mod clock;
pub(crate) mod delayed_wake;
pub(crate) mod erased;
pub(crate) mod poller;
pub(crate) mod preempt;
pub(crate) mod prefetch;
pub(crate) mod random;
pub(crate) mod shared_cell;
pub(crate) mod static_ref;
pub(crate) mod sync;
pub(crate) mod unwind;

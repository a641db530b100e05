//! Platform layer: the parts that all other folders build on. These parts are locks, threads, the clock, the poller of
//! sockets, random numbers, the memory allocator, and several small types. Most files with unsafe code are in this
//! folder.
//!
//! This folder imports no other folder. The other folders get time, threads and random numbers only from this folder.
//! Therefore the model checkers and the simulation can replace the time, the threads and the random numbers. The code
//! of this folder does not use processes, tasks or run queues.

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
mod this_thread;
pub(crate) mod unwind;

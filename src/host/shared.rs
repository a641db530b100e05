//! What all hosts of a runtime share: the table, the timers, the counters, and where jobs go. A threaded runtime and a
//! simulation differ in what they make it of, and in nothing else.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::task::Waker;

use slab::Slab;

use crate::host::control::{AnyControl, Control};
use crate::host::job::Job;
use crate::host::job::blocking_pool::Pool;
use crate::host::registry::Relay;
use crate::host::timer::Timers;
use crate::host::{Host, OnPanic, Package, Receiver};
use crate::observe::{Metrics, Observer, Unobserved};
use crate::platform::clock::Clock;
use crate::platform::random::Rng;
use crate::platform::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize};
use crate::platform::sync::{Arc, Event, Mutex};
use crate::process::state::wake_order::{SchedulerHandle, WakeSource};
use crate::process::{catch as panic, state as counted};

/// Where a job goes, and where it comes from: the one seam between what runs and where it runs.
pub(crate) type Enqueue = fn(Job, WakeSource<'_>);
/// The same for many at once, which are new; with [`Ground::place`].
pub(crate) type EnqueueAll = fn(&SchedulerHandle, Vec<Job>);

/// What a threaded runtime and a simulation differ in.
pub(crate) struct Ground {
    pub(crate) relay: Relay<dyn AnyControl, Host>,
    pub(crate) clock: Clock,
    pub(crate) timers: Arc<Timers>,
    /// `None` where blocking work is run in turn with all else.
    pub(crate) pool: Option<Pool>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) on_panic: OnPanic,
    /// Is told, once for each, of the exits that are counted as `unobserved`; on the thread that finds out.
    pub(crate) on_unobserved: Option<Box<dyn Fn(Unobserved) + Send + Sync>>,
    pub(crate) schedule: Enqueue,
    pub(crate) schedule_all: EnqueueAll,
    /// Whatever `schedule` needs to find its queues.
    pub(crate) place: SchedulerHandle,
    /// Its address, to compare.
    pub(crate) home: usize,
    /// Tells whoever sleeps until the nearest deadline that there is a nearer one.
    pub(crate) rearm: Box<dyn Fn() + Send + Sync>,
    /// Asks whoever has this word as its pid's to let others run; false if it does not run.
    pub(crate) preempt: Box<dyn Fn(u64) -> bool + Send + Sync>,
    pub(crate) chance: Mutex<Rng>,
}

/// What all hosts of a runtime share.
pub(crate) struct Shared {
    ground: Ground,
    pub(crate) phase: AtomicU8,
    /// When what still runs during a shutdown is killed.
    pub(crate) deadline: AtomicU64,
    /// The futures of nobody's that wait, to be found when the runtime ends.
    pub(crate) futures: Mutex<Slab<Waker>>,
    /// Told when the last process has ended, while the runtime shuts down.
    pub(crate) emptied: Event,
    /// Supervisors that have none themselves, and live.
    pub(crate) roots: AtomicUsize,
    pub(crate) mourners: Mutex<Vec<counted::Weak<Control<Package>>>>,
    pub(crate) nodes: Mutex<BTreeMap<u32, Arc<dyn Receiver>>>,
}

impl Shared {
    /// As it is at the beginning.
    pub(crate) fn new(ground: Ground) -> Self {
        panic::watch();
        Self {
            ground,
            phase: AtomicU8::new(0),
            deadline: AtomicU64::new(u64::MAX),
            futures: Mutex::default(),
            emptied: Event::new(),
            roots: AtomicUsize::new(0),
            mourners: Mutex::default(),
            nodes: Mutex::default(),
        }
    }
}

impl Deref for Shared {
    type Target = Ground;

    #[inline]
    fn deref(&self) -> &Ground {
        &self.ground
    }
}

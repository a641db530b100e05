//! Models of timers. While one thread turns the timer wheel and fires the due timers, another thread cancels a timer,
//! changes its waker, or inserts another deadline.

use std::time::Duration;

use crate::host::timer::{Fire, Key, Timers};
use crate::model::{Waiter, join, spawn};
use crate::platform::clock::{Clock, Instant};
use crate::platform::sync::Arc;
use crate::platform::sync::atomic::{AtomicUsize, Ordering};

/// Deadline of the first timer of a model, and two deadlines that a model does not reach.
const SOON: Instant = Instant::from_ns(1_000_000);
const LATER: Instant = Instant::from_ns(2_000_000);
const LATEST: Instant = Instant::from_ns(3_000_000);

/// Returns the timers of one worker and the shared wheel. The current time is `SOON`.
fn timers() -> Arc<Timers> {
    let clock = Clock::virtual_();
    clock.advance(SOON - clock.now());
    Arc::new(Timers::new(clock, 1))
}

/// Counts how often the timers that use this counter have fired.
#[derive(Clone, Default)]
struct Fired(Arc<AtomicUsize>);

impl Fired {
    fn set(&self, timers: &Timers, worker: Option<usize>, at: Instant) -> Key {
        let fired = self.clone();
        let count = move || {
            fired.0.fetch_add(1, Ordering::SeqCst);
        };
        timers.insert(worker, at, Fire::Call(Box::new(count))).0
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// At the same time, two threads fire due timers, and a third thread cancels a timer. The timer either fires once or
/// is cancelled. Then a second timer may use the entry of the first timer. The second timer does not fire early, and
/// a second cancellation of the first timer does not cancel the second timer.
pub fn cancel_against_fire() {
    let (timers, first, second) = (timers(), Fired::default(), Fired::default());
    let key = first.set(&timers, None, SOON);
    let firing = spawn(&timers, |timers| timers.fire_due());
    let cancelling = spawn(&timers, move |timers| timers.cancel(key).is_some());
    timers.fire_due();
    let late = second.set(&timers, None, LATER);
    join(firing);
    let cancelled = join(cancelling);
    assert_eq!(first.get() + usize::from(cancelled), 1);
    assert!(timers.cancel(key).is_none(), "gone for good");
    assert_eq!((second.get(), timers.nearest()), (0, Some(LATER)));
    assert!(timers.cancel(late).is_some());
    assert_eq!(timers.nearest(), None);
}

/// A sleep is polled with another waker while its timer fires. Either the last registered waker is woken, or the poll
/// sees that the timer has already fired.
pub fn waker_against_fire() {
    let timers = timers();
    let former = Waiter::here();
    let (key, _) = timers.insert(None, SOON, Fire::Wake(former.waker(), None));
    let firing = spawn(&timers, |timers| timers.fire_due());
    let waiter = Waiter::here();
    if timers.update(key, &waiter.waker()) {
        waiter.wait();
    }
    join(firing);
    assert_eq!((Arc::strong_count(&former), Arc::strong_count(&waiter)), (1, 1), "the wakers are dropped");
}

/// While one thread fires the due timers of a wheel, later deadlines are inserted into this wheel and into another
/// wheel. Neither deadline is lost.
pub fn insert_against_turn() {
    let (timers, fired) = (timers(), Fired::default());
    fired.set(&timers, Some(0), SOON);
    let firing = spawn(&timers, |timers| timers.fire_due());
    let never = |timers: &Timers, worker, at| timers.insert(worker, at, Fire::Call(Box::new(|| ()))).0;
    let other = spawn(&timers, move |timers| never(timers, None, LATEST));
    let later = never(&timers, Some(0), LATER);
    join(firing);
    join(other);
    assert_eq!((fired.get(), timers.nearest()), (1, Some(LATER)));
    assert!(timers.cancel(later).is_some());
    assert_eq!(timers.nearest(), Some(LATEST));
}

/// The timer with the earliest deadline was cancelled, and the timekeeper reads the earliest deadline again. At the
/// same time, another deadline is inserted. Either the timekeeper sleeps at most until the inserted deadline, or the
/// inserting thread must wake the timekeeper.
pub fn insert_against_keeper() {
    let timers = timers();
    let never = |timers: &Timers, at| timers.insert(None, at, Fire::Call(Box::new(|| ())));
    let (far, near) = (LATEST + Duration::from_millis(9), LATER);
    never(&timers, SOON);
    never(&timers, far);
    let (taken_back, _) = never(&timers, near);
    timers.fire_due();
    assert_eq!(timers.keep_time(), Some(near - SOON));
    assert!(timers.cancel(taken_back).is_some());
    let inserting = spawn(&timers, move |timers| never(timers, LATEST).1);
    let promised = timers.keep_time().expect("there is one");
    let must_notify = join(inserting);
    assert!(
        must_notify || promised <= LATEST - SOON,
        "the timekeeper sleeps for {promised:?}, and the inserting thread does not wake it"
    );
}

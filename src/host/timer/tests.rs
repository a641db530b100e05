//! Tests of the timers, on a virtual clock.

use std::collections::BTreeSet;
use std::task::Wake;

use super::*;
use crate::platform::random::Rng;
use crate::platform::sync::atomic::AtomicUsize;
use crate::platform::sync::{Arc, Mutex, thread};

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Count {
    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn at(ms: u64) -> Instant {
    Instant::from_ns(ms.saturating_mul(TICK))
}

struct Fixture {
    clock: Clock,
    timers: Arc<Timers>,
    /// The fired timers, in the order in which they fired.
    log: Arc<Mutex<Vec<u64>>>,
}

impl Fixture {
    fn new() -> Self {
        let clock = Clock::virtual_();
        Self { timers: Arc::new(Timers::new(clock.clone(), 2)), clock, log: Arc::default() }
    }

    fn note(&self, ms: u64, what: u64) -> (Key, bool) {
        let log = Arc::clone(&self.log);
        self.timers.insert(None, at(ms), Fire::Call(Box::new(move || log.lock().push(what))))
    }

    fn turn_at(&self, ms: u64) -> usize {
        self.clock.advance(at(ms) - self.clock.now());
        self.timers.fire_due()
    }

    fn log(&self) -> Vec<u64> {
        mem::take(&mut self.log.lock())
    }
}

#[cfg(feature = "console")]
#[test]
fn each_wheel_has_its_own_figures() {
    let f = Fixture::new();
    let insert = |worker, at| f.timers.insert(worker, at, Fire::Call(Box::new(|| ()))).0;
    insert(Some(1), at(30));
    let first = insert(Some(1), at(20));
    insert(None, Instant::FAR);
    let figures = |worker, timers, nearest| WheelFigures { worker, timers, nearest };
    let none = [figures(Some(0), 0, None), figures(None, 1, None)];
    assert_eq!(f.timers.wheels(), [none[0], figures(Some(1), 2, Some(at(20))), none[1]]);
    f.timers.cancel(first);
    let [_, one, _] = f.timers.wheels()[..] else { panic!("three wheels") };
    assert_eq!((one.timers, one.nearest.is_some_and(|nearest| nearest <= at(30))), (1, true));
    f.turn_at(30);
    assert_eq!(f.timers.wheels(), [none[0], figures(Some(1), 0, None), none[1]]);
}

#[test]
fn a_key_can_be_stored_as_two_words() {
    let f = Fixture::new();
    for worker in [Some(0), Some(1), None] {
        for _ in 0..3 {
            let (key, _) = f.timers.insert(worker, at(1), Fire::Call(Box::new(|| ())));
            assert_eq!(key.shard, worker.unwrap_or(2) as u32);
            assert_eq!(Key::unpack(key.pack()), key);
        }
    }
    // Threads without a wheel of their own share the last wheel.
    for worker in [2, 9] {
        assert_eq!(f.timers.insert(Some(worker), at(1), Fire::Call(Box::new(|| ()))).0.shard, 2);
    }
}

#[test]
fn the_recent_time_changes_only_when_it_is_behind_by_more_than_the_slack() {
    let clock = Clock::virtual_();
    let mut timers = Timers::new(clock.clone(), 0);
    timers.recent_slack = TICK;
    clock.advance(Duration::from_nanos(TICK));
    assert_eq!((timers.now(), timers.recent()), (at(1), Instant::from_ns(0)));
    clock.advance(Duration::from_nanos(1));
    assert_eq!(timers.now(), timers.recent());
    // The largest result leaves one bit free, and differs from the largest word.
    clock.advance(Duration::MAX);
    let _ = timers.now();
    assert_eq!(timers.recent().ns(), i64::MAX as u64 - 1);
}

#[test]
fn the_number_of_the_next_timer_grows() {
    let f = Fixture::new();
    let first = f.timers.next_number();
    f.note(1, 1);
    assert!(f.timers.next_number() > first);
}

#[test]
fn timers_fire_in_order_and_never_early() {
    let f = Fixture::new();
    assert_eq!((f.timers.nearest(), f.timers.wait(), f.timers.fire_due()), (None, None, 0));
    let earlier: Vec<_> = [(30, 1), (10, 2), (20, 3), (10, 4), (5, 5)].map(|(ns, what)| f.note(ns, what).1).into();
    assert_eq!(earlier, [true, true, false, false, true]);
    assert_eq!(f.timers.nearest(), Some(at(5)));
    assert_eq!(f.turn_at(4), 0);
    assert_eq!(f.timers.wait(), Some(Duration::from_millis(1)));
    assert_eq!((f.turn_at(5), f.log()), (1, vec![5]));
    assert_eq!(f.timers.wait(), Some(Duration::from_millis(5)));
    assert_eq!((f.turn_at(20), f.log()), (3, vec![2, 4, 3]));
    assert_eq!((f.turn_at(29), f.turn_at(31), f.log()), (0, 1, vec![1]));
    assert_eq!((f.timers.nearest(), f.timers.len()), (None, 0));
}

#[test]
fn a_deadline_is_reported_only_if_it_is_before_the_next_check() {
    let f = Fixture::new();
    let (first, must_notify) = f.note(100, 1);
    assert!(must_notify);
    assert_eq!(f.timers.keep_time(), Some(Duration::from_millis(100)));
    assert!(f.timers.cancel(first).is_some());
    assert_eq!([f.note(200, 2).1, f.note(150, 3).1, f.note(99, 4).1], [false, false, true]);
    f.timers.stop_keeping_time();
    assert!(f.note(98, 5).1);
    // A thread has promised a check at 100 ms. Until the promise ends, a new timer at 100 ms needs no notification.
    let f = Fixture::new();
    let (first, _) = f.note(100, 1);
    f.timers.keep_time();
    f.timers.cancel(first);
    let (again, must_notify) = f.note(100, 2);
    assert!(!must_notify);
    f.timers.cancel(again);
    f.timers.stop_keeping_time();
    assert!(f.note(150, 3).1);
    // The thread wakes once at the reported deadline, even if the timer of this deadline was cancelled.
    let f = Fixture::new();
    let (first, _) = f.note(10, 1);
    f.timers.cancel(first);
    f.note(30, 2);
    assert_eq!(f.timers.keep_time(), Some(Duration::from_millis(10)));
    f.turn_at(10);
    assert_eq!(f.timers.keep_time(), Some(Duration::from_millis(20)));
}

/// 7.1c: a million timers take 72 bytes each, of which 8 bytes are the source line of the sleep.
#[test]
fn a_million_timers_take_72_bytes_each() {
    const COUNT: usize = 1_000_000;
    let (f, mut rng) = (Fixture::new(), Rng::seeded(64));
    let keys: Vec<_> = (0..COUNT)
        .map(|_| f.timers.insert(None, at(1 + rng.below(10_000) as u64), Fire::Wake(Waker::noop().clone(), None)).0)
        .collect();
    let bytes = || f.timers.bytes();
    assert!(bytes() >= 64 * COUNT, "{}", bytes() as f64 / COUNT as f64);
    assert!(bytes() <= 72 * COUNT, "{}", bytes() as f64 / COUNT as f64);
    // Measures the memory again in two cases: while timers move to lower levels of the wheel, and after nine of ten
    // timers were cancelled.
    f.turn_at(1_000);
    assert!(bytes() <= 72 * COUNT, "{}", bytes() as f64 / COUNT as f64);
    keys.iter().enumerate().filter(|(n, _)| n % 10 > 0).for_each(|(_, &key)| drop(f.timers.cancel(key)));
    assert!(bytes() <= 72 * COUNT, "{}", bytes() as f64 / COUNT as f64);
    f.turn_at(10_000);
    assert!(bytes() < 1 << 16, "{}", bytes());
}

#[test]
fn the_method_fire_due_batch_fires_many_due_timers_in_batches() {
    let f = Fixture::new();
    for what in 0..1_000 {
        f.note(10, what);
    }
    f.clock.advance(Duration::from_millis(10));
    let mut fired = Vec::new();
    while f.timers.wait() == Some(Duration::ZERO) {
        let some = f.timers.fire_due_batch(&mut Vec::new(), &|| ());
        assert!((1..2 * BATCH).contains(&some), "{some}");
        fired.extend(f.log());
    }
    assert_eq!(fired, Vec::from_iter(0..1_000));
}

#[test]
fn a_timer_in_the_past_fires_at_the_next_turn() {
    let f = Fixture::new();
    f.turn_at(100);
    f.note(0, 1);
    assert_eq!(f.timers.wait(), Some(Duration::ZERO));
    assert_eq!((f.timers.fire_due(), f.log()), (1, vec![1]));
    // All timers are due at their insertion, so no timer moves to another level of the wheel during the turn.
    let many = 2 * BATCH + 1;
    (0..many as u64).for_each(|what| _ = f.note(50, what));
    assert_eq!((f.timers.fire_due(), f.log().len()), (many, many));
}

#[test]
fn a_timer_with_the_largest_deadline_never_fires() {
    let f = Fixture::new();
    let (key, earlier) = f.note(u64::MAX, 1);
    assert_eq!((earlier, f.timers.nearest(), f.timers.len()), (false, None, 1));
    f.note(u64::MAX / TICK - 1, 2);
    f.clock.advance(Duration::MAX);
    assert_eq!((f.timers.fire_due(), f.log()), (1, vec![2]));
    f.clock.advance(Duration::MAX);
    assert_eq!((f.timers.fire_due(), f.timers.wait()), (0, None));
    assert!(f.timers.cancel(key).is_some());
}

#[test]
fn a_cancelled_timer_does_not_fire() {
    let f = Fixture::new();
    let (first, _) = f.note(10, 1);
    let (second, _) = f.note(20, 2);
    f.turn_at(4);
    let fire = f.timers.cancel(first).expect("it waits");
    assert_eq!(f.timers.nearest(), Some(at(20)));
    drop(fire);
    assert!(f.timers.cancel(first).is_none());
    assert_eq!((f.turn_at(30), f.log()), (1, vec![2]));
    assert!(f.timers.cancel(second).is_none());
}

#[test]
fn a_timer_wakes_its_latest_waker() {
    let f = Fixture::new();
    let (old, new) = (Arc::new(Count::default()), Arc::new(Count::default()));
    let (key, _) = f.timers.insert(None, at(1), Fire::Wake(Arc::clone(&old).into(), None));
    assert!(f.timers.update(key, &new.clone().into()));
    assert_eq!(Arc::strong_count(&old), 1);
    assert_eq!(f.turn_at(1), 1);
    assert_eq!((old.get(), new.get()), (0, 1));
    assert!(!f.timers.update(key, &old.clone().into()));
    let (key, _) = f.note(9, 1);
    assert!(!f.timers.update(key, &old.clone().into()));
    assert_eq!((Arc::strong_count(&old), Arc::strong_count(&new)), (1, 1));
}

#[test]
fn a_turn_ends_even_if_a_timer_inserts_itself_again() {
    fn again(timers: &Arc<Timers>, log: &Arc<Mutex<Vec<u64>>>) {
        let (t, l) = (Arc::clone(timers), Arc::clone(log));
        let call = move || {
            l.lock().push(7);
            again(&t, &l);
        };
        timers.insert(None, at(0), Fire::Call(Box::new(call)));
    }
    let f = Fixture::new();
    again(&f.timers, &f.log);
    f.note(3, 8);
    assert_eq!((f.turn_at(5), f.log()), (2, vec![7, 8]));
    assert_eq!((f.timers.fire_due(), f.log()), (1, vec![7]));
    f.timers.clear();
    assert_eq!((f.timers.len(), f.timers.nearest()), (0, None));
}

#[test]
fn timers_of_one_tick_fire_in_one_turn_and_in_order() {
    let f = Fixture::new();
    let many = 3 * BATCH as u64 + 5;
    for what in 0..many {
        f.note(7, what);
    }
    assert_eq!(f.turn_at(7) as u64, many);
    assert!(f.log().into_iter().eq(0..many));
    // Tests a batch that is exactly full.
    for what in 0..BATCH as u64 {
        f.note(8, what);
    }
    assert_eq!((f.turn_at(8), f.timers.len()), (BATCH, 0));
}

#[test]
fn a_timer_function_can_cancel_timers_and_may_panic() {
    let f = Fixture::new();
    let (late, _) = f.note(50, 1);
    let timers = Arc::clone(&f.timers);
    let call = move || {
        assert!(timers.cancel(late).is_some());
        panic!("in a timer");
    };
    f.timers.insert(None, at(1), Fire::Call(Box::new(call)));
    f.note(2, 2);
    f.turn_at(2);
    assert_eq!((f.log(), f.timers.len()), (vec![2], 0));
}

#[test]
fn timers_behave_like_a_sorted_set_under_random_operations() {
    let (mut rng, f) = (Rng::seeded(7), Fixture::new());
    let (mut model, mut keys) = (BTreeSet::new(), Vec::new());
    let mut now = 0;
    for what in 0..20_000_u64 {
        match rng.below(5) {
            0..3 => {
                let ms = (now + rng.below(200) as u64).saturating_sub(20);
                let log = Arc::clone(&f.log);
                let note = Fire::Call(Box::new(move || log.lock().push(what)));
                let before = f.timers.nearest().unwrap_or(Instant::FAR);
                let (key, earlier) = f.timers.insert(Some(rng.below(4)), at(ms), note);
                assert!(if earlier { at(ms) <= before } else { before <= at(ms) });
                model.insert((ms, what));
                keys.push((key, ms, what));
            }
            3 if !keys.is_empty() => {
                let (key, ms, what) = keys.swap_remove(rng.below(keys.len()));
                assert_eq!(f.timers.cancel(key).is_some(), model.remove(&(ms, what)));
            }
            _ => {
                now += rng.below(50) as u64;
                let later = model.split_off(&(now + 1, 0));
                let mut due: Vec<u64> = mem::replace(&mut model, later).into_iter().map(|(_, what)| what).collect();
                assert_eq!(f.turn_at(now), due.len());
                due.sort_unstable();
                let mut log = f.log();
                log.sort_unstable();
                assert_eq!(log, due);
            }
        }
        // `nearest` may be the deadline of a cancelled timer. No pending timer has a deadline before `nearest`.
        let nearest = f.timers.nearest().unwrap_or(Instant::FAR);
        assert!(model.first().is_none_or(|&(ms, _)| nearest <= at(ms)));
        assert_eq!(f.timers.len(), model.len());
    }
}

#[test]
fn each_timer_either_fires_once_or_is_cancelled() {
    const EACH: usize = 5_000;
    let f = Fixture::new();
    let woken = Arc::new(Count::default());
    let cancelled: usize = thread::scope(|s| {
        let threads = [0_u64, 1].map(|half| {
            let (f, woken) = (&f, &woken);
            s.spawn(move || {
                let mut rng = Rng::seeded(half);
                let mut cancelled = 0;
                for _ in 0..EACH {
                    let at = f.clock.now() + Duration::from_millis(rng.below(3) as u64);
                    let (key, _) = f.timers.insert(Some(half as usize), at, Fire::Wake(Arc::clone(woken).into(), None));
                    f.clock.advance(Duration::from_millis(1));
                    f.timers.fire_due();
                    cancelled += usize::from(f.timers.cancel(key).is_some());
                }
                cancelled
            })
        });
        threads.map(|t| t.join().expect("no panic")).iter().sum()
    });
    f.clock.advance(Duration::from_millis(10));
    f.timers.fire_due();
    assert_eq!(woken.get() + cancelled, 2 * EACH);
    assert_eq!(Arc::strong_count(&woken), 1);
}

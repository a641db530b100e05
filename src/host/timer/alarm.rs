//! Alarms for futures that run on a foreign executor, for example on tokio. While such a future waits, it is possible
//! that no thread of the runtime checks the timers. Therefore one alarm thread serves all these futures in the program.
//! The first alarm starts the alarm thread. The alarm thread exits after some time without a pending alarm.

use std::io;
use std::task::Waker;
use std::time::Duration;

use crate::host::timer::{Fire, Key, Timers};
use crate::platform::clock::Clock;
#[cfg(test)]
use crate::platform::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use crate::platform::sync::{Arc, Condvar, Mutex, OnceLock, thread, wait_within};
use crate::process::catch::{catch, drop_caught};

/// Calls `waker` after this duration of real time. The drop of the returned `Alarm` cancels the wake-up.
///
/// If no alarm thread runs and the system refuses to start a thread, this function calls the waker immediately. The
/// woken future reads the clock, finds that its deadline has not passed, and sets the next alarm. This repetition is
/// slow, but the future makes progress.
pub(crate) fn ring(after: Duration, waker: Waker) -> Alarm {
    if cfg!(procession_shuttle) {
        // The model checker shuttle repeats an execution many times, and no time passes in an execution. A static
        // variable would keep the state of the alarm waker between two executions. Therefore, under shuttle, this
        // function sets no alarm.
        return Alarm(Key::NONE);
    }
    Alarm(alarm_waker().ring(after, waker))
}

/// Returns the alarm waker of the whole program.
fn alarm_waker() -> &'static Arc<AlarmWaker> {
    static RINGER: OnceLock<Arc<AlarmWaker>> = OnceLock::new();
    RINGER.get_or_init(|| Arc::new(AlarmWaker::new(IDLE)))
}

/// If the alarm thread has waited for this time and no alarm is set, the alarm thread exits.
const IDLE: Duration = Duration::from_secs(5);

/// Handle of an alarm. The drop of the handle cancels the alarm.
#[derive(Debug)]
#[must_use]
pub(crate) struct Alarm(Key);

impl Alarm {
    /// Converts the alarm to a key. The alarm stays set. To cancel the alarm, convert the key back [with
    /// `of`](Self::of) and drop the result.
    pub(crate) fn into_key(self) -> Key {
        let key = self.0;
        std::mem::forget(self);
        key
    }

    pub(crate) fn of(key: Key) -> Self {
        Self(key)
    }

    /// Cancels the alarm and returns the waker of the alarm. Returns `None` if the alarm has fired: the waker was
    /// called or is called soon.
    pub(crate) fn into_waker(self) -> Option<Waker> {
        if cfg!(procession_shuttle) {
            return None;
        }
        match alarm_waker().timers.cancel(self.0) {
            Some(Fire::Wake(waker, _)) => Some(waker),
            _ => None,
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if !cfg!(procession_shuttle) {
            alarm_waker().call_off(self.0);
        }
    }
}

#[derive(Debug)]
struct AlarmWaker {
    clock: Clock,
    timers: Timers,
    idle: Duration,
    state: Mutex<State>,
    /// The alarm thread waits on this condition variable. The wait ends when the next alarm is due, or when an earlier
    /// alarm is set.
    changed: Condvar,
    /// For tests: number of times that a thread has looked for the next alarm.
    #[cfg(test)]
    checks: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    running: bool,
    /// For tests: if true, each start of a thread fails, as if the system had refused the start.
    #[cfg(test)]
    exhausted: bool,
    /// For tests: number of threads that were started.
    #[cfg(test)]
    started: usize,
}

impl AlarmWaker {
    fn new(idle: Duration) -> Self {
        let clock = Clock::real();
        let timers = Timers::new(clock.clone(), 0);
        Self {
            clock,
            timers,
            idle,
            state: Mutex::default(),
            changed: Condvar::new(),
            #[cfg(test)]
            checks: AtomicUsize::new(0),
        }
    }

    fn ring(self: &Arc<Self>, after: Duration, waker: Waker) -> Key {
        let (key, earlier) = self.timers.insert(None, self.clock.now() + after, Fire::Wake(waker, None));
        // This thread takes the lock after the insertion. The alarm thread may be about to sleep or to exit. In this
        // situation, one of three cases is true:
        // - The alarm thread has already seen the new alarm.
        // - The code below notifies the alarm thread.
        // - The alarm thread has recorded its exit under the lock, and the code below starts a new thread.
        let mut state = self.state.lock();
        let there = state.running || self.start(&mut state).is_ok();
        drop(state);
        if !there {
            if let Some(Fire::Wake(waker, _)) = self.timers.cancel(key) {
                let _ = catch(|| waker.wake());
            }
        } else if earlier {
            self.changed.notify_all();
        }
        key
    }

    fn call_off(&self, key: Key) {
        // This function does not notify the alarm thread. At the deadline of the cancelled alarm, the alarm thread
        // wakes, and then sleeps again.
        if let Some(fire) = self.timers.cancel(key) {
            let _ = drop_caught(fire);
        }
    }

    fn start(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        #[cfg(test)]
        {
            if state.exhausted {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            state.started += 1;
        }
        let alarms = Arc::clone(self);
        thread::Builder::new().name(String::from("procession-alarm")).spawn(move || alarms.serve())?;
        state.running = true;
        Ok(())
    }

    /// Body of the alarm thread: fires the due alarms, and sleeps until the next alarm.
    fn serve(&self) {
        loop {
            self.timers.fire_due();
            #[cfg(test)]
            self.checks.fetch_add(1, SeqCst);
            let state = self.state.lock();
            match self.timers.wait() {
                Some(time) if time.is_zero() => {}
                Some(time) => drop(wait_within(&self.changed, state, time)),
                None => {
                    let (mut state, idle_too_long) = wait_within(&self.changed, state, self.idle);
                    if idle_too_long && self.timers.nearest().is_none() {
                        state.running = false;
                        drop(state);
                        // A test may wait for the exit of this thread.
                        return self.changed.notify_all();
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;
    use crate::platform::clock::Instant;
    use crate::platform::sync::wait;

    /// Waker that records the time of each wake-up. A test can wait for a wake-up.
    #[derive(Debug)]
    struct Bell {
        clock: Clock,
        rung: Mutex<Vec<Instant>>,
        changed: Condvar,
    }

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.rung.lock().push(self.clock.now());
            self.changed.notify_all();
        }
    }

    impl Bell {
        fn new() -> Arc<Self> {
            Arc::new(Self { clock: Clock::real(), rung: Mutex::default(), changed: Condvar::new() })
        }

        fn waker(self: &Arc<Self>) -> Waker {
            Arc::clone(self).into()
        }

        fn heard(&self, times: usize) -> Instant {
            let mut rung = self.rung.lock();
            while rung.len() < times {
                rung = wait(&self.changed, rung, None);
            }
            rung[times - 1]
        }
    }

    fn gone(alarms: &AlarmWaker) {
        let mut state = alarms.state.lock();
        while state.running {
            state = wait(&alarms.changed, state, None);
        }
    }

    #[test]
    fn an_alarm_rings_once_and_not_early() {
        let bell = Bell::new();
        let time = Duration::from_millis(20);
        let set = bell.clock.now();
        let _alarm = ring(time, bell.waker());
        assert!(bell.heard(1) - set >= time);
        assert_eq!(bell.rung.lock().len(), 1);
    }

    #[test]
    fn an_earlier_alarm_does_not_wait_for_a_later_alarm() {
        let (alarms, bell, late) = (Arc::new(AlarmWaker::new(IDLE)), Bell::new(), Bell::new());
        let far = alarms.ring(Duration::MAX, late.waker());
        let long = alarms.ring(Duration::from_secs(3_600), late.waker());
        alarms.ring(Duration::from_millis(5), bell.waker());
        alarms.ring(Duration::ZERO, bell.waker());
        bell.heard(2);
        assert!(late.rung.lock().is_empty());
        assert_eq!(alarms.state.lock().started, 1);
        // The thread sleeps between the alarms. Each alarm that was set wakes the thread at most once.
        let checks = alarms.checks.load(SeqCst);
        assert!((1..50).contains(&checks), "{checks}");
        alarms.call_off(far);
        alarms.call_off(long);
        assert_eq!((alarms.timers.len(), Arc::strong_count(&late)), (0, 1));
    }

    #[test]
    fn a_dropped_alarm_does_not_wake() {
        let bell = Bell::new();
        let alarm = ring(Duration::from_secs(3_600), bell.waker());
        assert_eq!(Arc::strong_count(&bell), 2);
        drop(Alarm::of(alarm.into_key()));
        assert_eq!(Arc::strong_count(&bell), 1);
        assert!(bell.rung.lock().is_empty());
    }

    #[test]
    fn the_idle_thread_exits_and_a_new_thread_starts() {
        let (alarms, bell) = (Arc::new(AlarmWaker::new(Duration::from_millis(5))), Bell::new());
        for times in 1..=3 {
            alarms.ring(Duration::from_millis(1), bell.waker());
            bell.heard(times);
            gone(&alarms);
            assert_eq!(alarms.state.lock().started, times);
        }
        // An alarm that never rings does not prevent the exit of the thread.
        alarms.ring(Duration::MAX, bell.waker());
        gone(&alarms);
    }

    /// The thread does not exit if an alarm is set just when the idle time of the thread ends. In this test, the alarm
    /// is set, but the thread is not notified.
    #[test]
    fn the_idle_thread_does_not_exit_if_an_alarm_is_set() {
        let (alarms, bell) = (Arc::new(AlarmWaker::new(Duration::from_millis(20))), Bell::new());
        let mut rings = 0;
        loop {
            alarms.ring(Duration::ZERO, bell.waker());
            rings += 1;
            bell.heard(rings);
            // While this thread holds the lock, the alarm thread does not exit.
            let state = alarms.state.lock();
            if state.running {
                let soon = alarms.clock.now() + Duration::from_millis(60);
                let _ = alarms.timers.insert(None, soon, Fire::Wake(bell.waker(), None));
                break;
            }
        }
        bell.heard(rings + 1);
    }

    #[test]
    fn without_a_thread_the_waker_is_woken_immediately() {
        let (alarms, bell) = (Arc::new(AlarmWaker::new(IDLE)), Bell::new());
        alarms.state.lock().exhausted = true;
        alarms.ring(Duration::from_secs(3_600), bell.waker());
        assert_eq!((bell.rung.lock().len(), alarms.timers.len()), (1, 0));
        alarms.state.lock().exhausted = false;
        alarms.ring(Duration::from_millis(1), bell.waker());
        bell.heard(2);
    }
}

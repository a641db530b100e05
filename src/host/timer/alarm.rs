//! Alarms for futures that nobody of ours drives: polled by a foreign executor, in a program where no thread of the
//! runtime would see the time pass. One thread serves the whole program; it starts at the first alarm and goes when none
//! was set for a while.

use std::io;
use std::task::Waker;
use std::time::Duration;

use crate::host::timer::{Fire, Key, Timers};
use crate::platform::clock::Clock;
use crate::platform::sync::{Arc, Condvar, Mutex, OnceLock, thread, wait_within};
use crate::process::catch::{catch, drop_caught};

/// Wakes `waker` after so long, of real time; dropping the `Alarm` calls it off.
///
/// If there is no thread to do it and the system gives none, the waker is woken at once: whoever is woken looks at the
/// clock anyway, finds that it is too early and sets the next alarm, which is slow but goes on.
pub(crate) fn ring(after: Duration, waker: Waker) -> Alarm {
    if cfg!(procession_shuttle) {
        // Time does not pass there, and what stands in a static would outlive an execution.
        return Alarm(Key::NONE);
    }
    Alarm(ringer().ring(after, waker))
}

/// That of the whole program.
fn ringer() -> &'static Arc<AlarmWaker> {
    static RINGER: OnceLock<Arc<AlarmWaker>> = OnceLock::new();
    RINGER.get_or_init(|| Arc::new(AlarmWaker::new(IDLE)))
}

/// A thread that had nothing to wait for so long goes.
const IDLE: Duration = Duration::from_secs(5);

/// Dropped, it wakes nobody any more.
#[derive(Debug)]
#[must_use]
pub(crate) struct Alarm(Key);

impl Alarm {
    /// What it is called off by, once it is [made again](Self::of) of that and dropped.
    pub(crate) fn into_key(self) -> Key {
        let key = self.0;
        std::mem::forget(self);
        key
    }

    pub(crate) fn of(key: Key) -> Self {
        Self(key)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if !cfg!(procession_shuttle) {
            ringer().call_off(self.0);
        }
    }
}

#[derive(Debug)]
struct AlarmWaker {
    clock: Clock,
    timers: Timers,
    idle: Duration,
    state: Mutex<State>,
    /// The thread waits here for the next alarm, or for an earlier one.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    running: bool,
    /// For tests: the system has no more threads.
    #[cfg(test)]
    exhausted: bool,
    /// For tests: how many threads there have been.
    #[cfg(test)]
    started: usize,
}

impl AlarmWaker {
    fn new(idle: Duration) -> Self {
        let clock = Clock::real();
        let timers = Timers::new(clock.clone(), 0);
        Self { clock, timers, idle, state: Mutex::default(), changed: Condvar::new() }
    }

    fn ring(self: &Arc<Self>, after: Duration, waker: Waker) -> Key {
        let (key, earlier) = self.timers.insert(None, self.clock.now() + after, Fire::Wake(waker));
        // The lock comes after the insert: a thread that was about to sleep or to go has either seen the new alarm, or
        // is told of it, or has said under the lock that it is gone.
        let mut state = self.state.lock();
        let there = state.running || self.start(&mut state).is_ok();
        drop(state);
        if !there {
            if let Some(Fire::Wake(waker)) = self.timers.cancel(key) {
                let _ = catch(|| waker.wake());
            }
        } else if earlier {
            self.changed.notify_all();
        }
        key
    }

    fn call_off(&self, key: Key) {
        // The thread is not told: it wakes up for nothing once, and sleeps on.
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
        let ringer = Arc::clone(self);
        thread::Builder::new().name(String::from("procession-alarm")).spawn(move || ringer.serve())?;
        state.running = true;
        Ok(())
    }

    /// What the thread does: rings what is due, and sleeps until the next.
    fn serve(&self) {
        loop {
            self.timers.turn();
            let state = self.state.lock();
            match self.timers.wait() {
                Some(time) if time.is_zero() => {}
                Some(time) => drop(wait_within(&self.changed, state, time)),
                None => {
                    let (mut state, idle_too_long) = wait_within(&self.changed, state, self.idle);
                    if idle_too_long && self.timers.nearest().is_none() {
                        state.running = false;
                        drop(state);
                        // For whoever wants to see it go.
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

    /// When it was woken, and how often; somebody can wait for it.
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

    fn gone(ringer: &AlarmWaker) {
        let mut state = ringer.state.lock();
        while state.running {
            state = wait(&ringer.changed, state, None);
        }
    }

    #[test]
    fn an_alarm_rings_and_not_early() {
        let bell = Bell::new();
        let time = Duration::from_millis(20);
        let set = bell.clock.now();
        let _alarm = ring(time, bell.waker());
        assert!(bell.heard(1) - set >= time);
        assert_eq!(bell.rung.lock().len(), 1);
    }

    #[test]
    fn an_earlier_alarm_does_not_wait_for_a_later_one() {
        let (ringer, bell, late) = (Arc::new(AlarmWaker::new(IDLE)), Bell::new(), Bell::new());
        let far = ringer.ring(Duration::MAX, late.waker());
        let long = ringer.ring(Duration::from_secs(3_600), late.waker());
        ringer.ring(Duration::from_millis(5), bell.waker());
        ringer.ring(Duration::ZERO, bell.waker());
        bell.heard(2);
        assert!(late.rung.lock().is_empty());
        assert_eq!(ringer.state.lock().started, 1);
        ringer.call_off(far);
        ringer.call_off(long);
        assert_eq!((ringer.timers.len(), Arc::strong_count(&late)), (0, 1));
    }

    #[test]
    fn a_dropped_alarm_wakes_nobody() {
        let bell = Bell::new();
        let alarm = ring(Duration::from_secs(3_600), bell.waker());
        assert_eq!(Arc::strong_count(&bell), 2);
        drop(Alarm::of(alarm.into_key()));
        assert_eq!(Arc::strong_count(&bell), 1);
        assert!(bell.rung.lock().is_empty());
    }

    #[test]
    fn the_thread_goes_when_idle_and_comes_again() {
        let (ringer, bell) = (Arc::new(AlarmWaker::new(Duration::from_millis(5))), Bell::new());
        for times in 1..=3 {
            ringer.ring(Duration::from_millis(1), bell.waker());
            bell.heard(times);
            gone(&ringer);
            assert_eq!(ringer.state.lock().started, times);
        }
        // What never rings does not keep it either.
        ringer.ring(Duration::MAX, bell.waker());
        gone(&ringer);
    }

    #[test]
    fn without_a_thread_the_waker_is_woken_at_once() {
        let (ringer, bell) = (Arc::new(AlarmWaker::new(IDLE)), Bell::new());
        ringer.state.lock().exhausted = true;
        ringer.ring(Duration::from_secs(3_600), bell.waker());
        assert_eq!((bell.rung.lock().len(), ringer.timers.len()), (1, 0));
        ringer.state.lock().exhausted = false;
        ringer.ring(Duration::from_millis(1), bell.waker());
        bell.heard(2);
    }
}

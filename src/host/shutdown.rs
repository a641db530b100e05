//! The end of a runtime: how far it is on its way there, and who is told to end when.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::host::Host;
use crate::host::control::{AnyControl, Head, Listening, flag, poll_news};
use crate::observe::State;
use crate::platform::clock::Instant;
use crate::platform::sync::atomic::Ordering;
use crate::process::exit::Reason;
use crate::process::pid::Pid;
use crate::process::state::Ref;

/// How far a runtime is on its way to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    Open,
    /// Refuses work from outside, runs what is there.
    Closing,
    /// Refuses all work.
    Closed,
}

/// How a shutdown went.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shutdown {
    /// Who had not ended at the deadline, and was killed then.
    pub left: Vec<Left>,
}

/// A process that had not ended at the deadline of a shutdown, and what it was doing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Left {
    /// Who.
    pub pid: Pid,
    /// In which state; `Running` for a step that does not return.
    pub state: Option<State>,
    /// How many answers it was waiting for.
    pub outstanding: usize,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was ", self.pid)?;
        match self.state {
            Some(State::Running) => f.write_str("in a step that did not return"),
            Some(State::Blocked) => write!(f, "waiting for {} answers", self.outstanding),
            Some(State::Idle) => f.write_str("waiting for mail"),
            _ => f.write_str("waiting for a worker"),
        }
    }
}

impl Host {
    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        match self.shared().phase.load(Ordering::SeqCst) {
            0 => Phase::Open,
            1 => Phase::Closing,
            _ => Phase::Closed,
        }
    }

    /// Moves on to `phase`; never back.
    pub(crate) fn advance(&self, phase: Phase) {
        self.shared().phase.fetch_max(phase as u8, Ordering::SeqCst);
    }

    /// Whether every process that was spawned is at its end: the last that is left of it is to be [buried](Self::bury).
    #[inline]
    pub(crate) fn all_ended(&self) -> bool {
        self.shared().metrics.all_ended()
    }

    pub(crate) fn shutdown_deadline(&self) -> Instant {
        Instant::from_ns(self.shared().deadline.load(Ordering::SeqCst))
    }

    /// The processes that have not ended.
    pub(crate) fn alive(&self) -> Vec<Ref<dyn AnyControl>> {
        let mut all = self.shared().relay.all();
        all.retain(|control| !control.head().has(flag::OUTSIDE) && !control.head().has_ended());
        all
    }

    /// The same, and what each is doing.
    pub(crate) fn left(&self) -> Vec<Left> {
        let alive = self.alive();
        let left = alive.iter().map(|control| {
            let head = control.head();
            Left { pid: head.pid(), state: head.state(), outstanding: head.outstanding() }
        });
        left.collect()
    }

    /// Refuses work from outside and tells every process to end: first the supervisors, each of which ends its own
    /// children in its order, and when they have ended, the rest.
    pub(crate) fn begin_shutdown(&self, deadline: Instant) {
        self.shared().deadline.fetch_min(deadline.ns(), Ordering::SeqCst);
        self.advance(Phase::Closing);
        self.cancel_all(|head| head.has(flag::ROOT));
        // Whoever is the last of them counts itself out first and looks at the phase then: one of the two does it.
        if self.shared().roots.load(Ordering::SeqCst) == 0 {
            self.shut_down_rest();
        }
    }

    /// Resolves to true when every process has ended, or to false at the deadline. `ring` sets an alarm that needs no
    /// worker: it wakes the waker after this time.
    pub(crate) fn ended_by<A: Unpin, R: Fn(Duration, Waker) -> A + Unpin>(
        self,
        deadline: Instant,
        ring: R,
    ) -> impl Future<Output = bool> {
        AllEnded { host: self, listening: Listening::default(), deadline, ring, alarm: None }
    }

    /// A supervisor begins that nobody supervises.
    pub(crate) fn root_begins(&self, root: &dyn AnyControl) {
        self.shared().roots.fetch_add(1, Ordering::SeqCst);
        root.head().set(flag::ROOT);
        // Whoever shuts down sets the phase first and looks for roots then.
        if self.phase() != Phase::Open {
            root.cancel(Reason::SHUTDOWN, self.shutdown_deadline());
        }
    }

    #[cold]
    pub(super) fn root_ended(&self) {
        if self.shared().roots.fetch_sub(1, Ordering::SeqCst) == 1 && self.phase() != Phase::Open {
            self.shut_down_rest();
        }
    }

    fn shut_down_rest(&self) {
        self.cancel_all(|head| !head.has(flag::SUPERVISED));
    }

    fn cancel_all(&self, concerns: impl Fn(&Head) -> bool) {
        for control in self.alive().iter().filter(|control| concerns(control.head())) {
            control.cancel(Reason::SHUTDOWN, self.shutdown_deadline());
        }
    }

    /// The end: refuses all work, and condemns what is left. Whoever calls this runs the queue dry.
    pub(crate) fn condemn(&self) {
        self.advance(Phase::Closed);
        self.shared().relay.close();
        for control in self.shared().relay.all() {
            control.kill();
        }
        let futures: Vec<Waker> = self.shared().futures.lock().iter().map(|(_, waker)| waker.clone()).collect();
        futures.into_iter().for_each(Waker::wake);
    }
}

/// The future of [`Host::ended_by`].
struct AllEnded<A, R> {
    host: Host,
    listening: Listening,
    deadline: Instant,
    ring: R,
    alarm: Option<A>,
}

impl<A: Unpin, R: Fn(Duration, Waker) -> A + Unpin> Future for AllEnded<A, R> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let this = &mut *self;
        let host = &this.host;
        // One that was spawned when the shutdown began may have its pid and not be counted yet: it will end, and say so.
        let ended = || (host.all_ended() && host.alive().is_empty()).then_some(());
        if poll_news(&host.shared().emptied, &mut this.listening, cx, ended).is_ready() {
            return Poll::Ready(true);
        }
        // Another shutdown may have an earlier deadline.
        let deadline = this.deadline.min(host.shutdown_deadline());
        let now = host.now();
        if now >= deadline {
            return Poll::Ready(false);
        }
        // This alarm is for the deadline, whatever has woken this before, and replaces the former one, which may have the
        // waker of a former poll.
        this.alarm = Some((this.ring)(deadline - now, cx.waker().clone()));
        Poll::Pending
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::Simulation;
    use crate::platform::sync::Mutex;

    /// The clock is a simulation's: it moves when the test says so.
    #[test]
    fn the_alarm_of_a_shutdown_is_set_for_its_deadline() {
        let ms = Duration::from_millis;
        let simulation = Simulation::new(1);
        let host = simulation.host().clone();
        let clock = host.shared().clock.clone();
        let _lives = host.spawn(async |_: crate::Context| std::future::pending::<()>().await);
        clock.advance(ms(3));
        let deadline = host.now() + ms(50);
        host.begin_shutdown(deadline);
        let alarms = Mutex::new(Vec::new());
        let mut ended = Box::pin(host.clone().ended_by(deadline, |after, _| alarms.lock().push(after)));
        let mut poll_after = |time| {
            clock.advance(time);
            ended.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        };
        // The first poll comes late, as after a long `begin_shutdown`.
        assert!(poll_after(ms(20)).is_pending());
        // A process has ended, perhaps.
        assert!(poll_after(ms(29)).is_pending());
        host.begin_shutdown(deadline + ms(9));
        assert!(poll_after(ms(0)).is_pending());
        assert_eq!(poll_after(ms(1)), Poll::Ready(false));
        assert_eq!(*alarms.lock(), [ms(30), ms(1), ms(1)]);
        // Of two shutdowns, the earlier deadline counts.
        let mut later = Box::pin(host.ended_by(deadline + ms(9), |_, _| ()));
        assert_eq!(later.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(false));
    }
}

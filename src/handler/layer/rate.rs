//! A limit on the rate of commands that reach the inner handler.

use std::fmt;
use std::time::Duration;

use crate::handler::layer::retry::pause;
use crate::handler::layer::waiters::{Bound, CommandWithHandler, Leave, Line, run_in_order};
use crate::host::dispatch::Handler;
use crate::host::dispatch::completion::Completion;
use crate::host::job::blocking_pool::Overflow;
use crate::host::{Host, Phase};
use crate::platform::clock::{Clock, Instant};
use crate::platform::sync::{Arc, Mutex};
use crate::process::catch::drop_caught;
use crate::process::command::Command;

/// Limits the rate of commands that reach the inner handler. Further commands wait in a queue, in the order of their
/// arrival.
///
/// A command *passes* when this layer hands the command to the inner handler. The limit is a token bucket: after a
/// pause, `burst` commands may pass immediately. In a time span of any length, the number of commands that pass is at
/// most `burst` plus the number of commands that the rate allows in that span. Timers have a resolution of
/// milliseconds. Therefore, a waiting command passes a little late, but never early. The limit compensates up to 10 ms
/// of this delay: the next commands pass as if the late command had passed on time. As a result, the rate is exact in
/// the long run. However, because of the compensation, a time span may contain more commands than the token bucket
/// allows. The excess is at most the number of commands that the rate allows in 10 ms.
///
/// If a waiting command is cancelled, the command leaves the queue immediately, and uses no token. If the queue is
/// full, a command fails with [`Failure::Overloaded`](crate::Failure::Overloaded). Clones of a layer share one limit.
/// Therefore, one limit can apply to several types of commands, or to the commands of several runtimes of a program.
/// While commands wait, a task of one of these runtimes takes the commands out of the queue. This task hands the
/// waiting commands of its runtime to the inner handler, one after another. The task belongs to the runtime of the
/// command that was the first to wait. Therefore a worker or another thread must drive each runtime that shares the
/// limit, even after the runtime's own commands have ended. Otherwise the commands of the other runtimes wait until
/// this runtime shuts down.
pub struct RateLimit<H> {
    inner: Arc<H>,
    rate: Rate,
    bound: Bound,
    tap: Arc<SharedState>,
}

impl<H> RateLimit<H> {
    /// Wraps `inner`, and lets `count` commands pass in each period `per`. If `count` is 0, one command may pass in
    /// each period. All `count` commands may pass at the same moment: see [`burst`](Self::burst). If `per` is zero,
    /// there is no limit. By default, up to 100,000 commands wait in the queue.
    pub fn new(inner: H, count: u32, per: Duration) -> Self {
        let rate = Rate { count: count.max(1), per, burst: count.max(1) };
        Self { inner: Arc::new(inner), rate, bound: Bound::default(), tap: Arc::default() }
    }

    /// Sets the number of commands that may pass immediately after a pause. A value of 0 means 1. If the value is 1,
    /// waiting commands pass at equal intervals. Default: the argument `count` of [`new`](Self::new).
    #[must_use]
    pub fn burst(mut self, most: u32) -> Self {
        self.rate.burst = most.max(1);
        self
    }

    /// Sets the maximum number of commands that wait in the queue. Default: 100,000.
    #[must_use]
    pub fn queue_capacity(mut self, most: usize) -> Self {
        self.bound.queue = most;
        self
    }

    /// Sets which command is refused when the queue is full. Default: [`Overflow::Reject`].
    #[must_use]
    pub fn overflow(mut self, policy: Overflow) -> Self {
        self.bound.when_full = policy;
        self
    }
}

impl<H> Clone for RateLimit<H> {
    fn clone(&self) -> Self {
        let Self { inner, rate, bound, tap } = self;
        Self { inner: Arc::clone(inner), rate: *rate, bound: *bound, tap: Arc::clone(tap) }
    }
}

impl<H: fmt::Debug> fmt::Debug for RateLimit<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.tap.state.lock().line.len();
        f.debug_struct("RateLimit")
            .field("inner", &self.inner)
            .field("rate", &self.rate)
            .field("bound", &self.bound)
            .field("waiting", &waiting)
            .finish()
    }
}

/// A rate of `count` commands in each period `per`. At most `burst` commands pass at the same moment.
#[derive(Debug, Clone, Copy)]
struct Rate {
    count: u32,
    per: Duration,
    burst: u32,
}

/// Maximum delay that the schedule compensates. If a timer fires late and its delay is at most `LATE`, the delay does
/// not shift the planned times of the next commands in the queue.
const LATE: Duration = Duration::from_millis(10);

/// Maximum number of commands that a task hands to the handler before the task lets other tasks run.
const BATCH: usize = 64;

/// The generic cell rate algorithm (virtual scheduling): ITU-T recommendation I.371 (2004), annex A. The unit of time
/// is 1 ns divided by `count`, so that no rate is rounded. The algorithm here differs from the recommendation in one
/// point. If a waiting command passes late because of its timer, the algorithm calculates with an earlier time. The
/// difference is at most `LATE`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Schedule {
    /// Theoretical arrival time: the time at which the next command would pass if all commands came at equal intervals.
    next: u128,
}

impl Rate {
    /// Converts a time to the unit of the schedule.
    fn parts(&self, time: Duration) -> u128 {
        u128::from(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)) * u128::from(self.count)
    }

    /// Time between two commands, `per / count`. In the unit of the schedule, this interval is the number of
    /// nanoseconds in `per`.
    fn interval(&self) -> u128 {
        self.parts(self.per) / u128::from(self.count)
    }

    fn tolerance(&self) -> u128 {
        self.interval() * u128::from(self.burst - 1)
    }
}

impl Schedule {
    /// Earliest time at which the next command may pass. The time is rounded up, so that the command is never early.
    fn due(&self, rate: &Rate) -> Instant {
        let due = self.next.saturating_sub(rate.tolerance()).div_ceil(u128::from(rate.count));
        Instant::from_ns(u64::try_from(due).unwrap_or(u64::MAX))
    }

    /// If the next command is due at `now`, lets the command pass and returns `true`. The parameter `late` is the
    /// maximum delay that is compensated.
    fn pass(&mut self, rate: &Rate, now: Instant, late: Duration) -> bool {
        if self.due(rate) > now {
            return false;
        }
        let now = rate.parts(Duration::from_nanos(now.ns())).saturating_sub(rate.parts(late));
        self.next = self.next.max(now).saturating_add(rate.interval());
        true
    }

    /// Converts the schedule to another clock. `from` is the current time of the old clock, and `to` is the current
    /// time of the new clock. The time until the next command stays the same.
    fn convert(&mut self, rate: &Rate, from: Instant, to: Instant) {
        let [from, to] = [from, to].map(|at| rate.parts(Duration::from_nanos(at.ns())));
        self.next = self.next.saturating_sub(from).saturating_add(to);
    }
}

#[derive(Default)]
struct SharedState {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    schedule: Schedule,
    /// Clock of the schedule. `None` before the first command.
    clock: Option<Clock>,
    line: Line,
    /// True if a task *attends* the queue. A task that attends the queue waits until the first command in the queue is
    /// due.
    attended: bool,
}

impl State {
    /// Returns the current time of the schedule. `clock` is the clock of the runtime of the caller.
    ///
    /// Several runtimes may share the limit, and their clocks count from different moments. If the runtimes use the
    /// clock of the system, the schedule continues to use the clock of the first runtime. The clock of a simulation
    /// advances only while this simulation runs. Therefore, if the clock of the schedule and the clock of the caller do
    /// not advance together, this function converts the schedule to the clock of the caller.
    fn now(&mut self, rate: &Rate, clock: &Clock) -> Instant {
        match &self.clock {
            Some(known) if known.advances_with(clock) => known.now(),
            known => {
                let now = clock.now();
                if let Some(known) = known {
                    self.schedule.convert(rate, known.now(), now);
                }
                self.clock = Some(clock.clone());
                now
            }
        }
    }
}

impl SharedState {
    /// Spawns a task that attends the queue. The task hands each command to the handler when the command is due. The
    /// task ends when the queue is empty.
    fn attend(self: &Arc<Self>, rate: Rate, host: &Host) {
        let (mut attendant, on) = (LineAttendant { tap: Some(Arc::clone(self)), rate }, host.clone());
        host.spawn_future(async move {
            while let Some(time) = attendant.tap.as_ref().and_then(|tap| tap.run_due(&rate, &on)) {
                pause(on.sleep(time)).await;
            }
            // The function `run_due` found the queue empty, and cleared `attended` under the same lock. A command that
            // arrives later starts its own task. Therefore, the drop of `attendant` must not start another task.
            drop(attendant.tap.take());
        });
    }

    /// Hands the due commands to the handler, but at most [`BATCH`] commands. Then returns the time until the next
    /// command is due, or `None` if the queue is empty. If the next command may already be due, the time is zero. In
    /// this case, the caller lets other tasks run before the caller calls this function again.
    fn run_due(&self, rate: &Rate, host: &Host) -> Option<Duration> {
        for _ in 0..BATCH {
            let mut state = self.state.lock();
            let Some(is_wanted) = state.line.first().map(|first| first.is_wanted()) else {
                state.attended = false;
                return None;
            };
            // If the first command was cancelled a moment ago, this command may still be in the queue. The reason is
            // that the waker of the cancellation has not removed the command yet. Such a command uses no token, and
            // `WaitingCommand::run_or_drop` drops the command.
            if is_wanted {
                let now = state.now(rate, host.shared().timers.clock());
                if !state.schedule.pass(rate, now, LATE) {
                    return Some(state.schedule.due(rate) - now);
                }
            }
            let next = state.line.pop();
            drop(state);
            if let Some(next) = next {
                run_in_order(next, host);
            }
        }
        Some(Duration::ZERO)
    }
}

/// Guard in the task that attends the queue. If the task is dropped because its runtime shuts down, the guard starts a
/// new task in the runtime of another waiting command.
struct LineAttendant {
    tap: Option<Arc<SharedState>>,
    rate: Rate,
}

impl Drop for LineAttendant {
    fn drop(&mut self) {
        let Some(tap) = self.tap.take() else { return };
        let mut state = tap.state.lock();
        let host = state.line.open_host();
        state.attended = host.is_some();
        drop(state);
        // If the other runtime has shut down in the meantime, the new task is dropped immediately, and this function
        // runs again.
        if let Some(host) = host {
            tap.attend(self.rate, &host);
        }
    }
}

impl Leave for SharedState {
    fn leave(&self, ticket: u64) {
        let left = self.state.lock().line.remove(ticket);
        let _ = drop_caught(left);
    }
}

impl<C: Command, H: Handler<C>> Handler<C> for RateLimit<H> {
    fn handle(&self, command: C, completion: Completion<C::Reply>) {
        if self.rate.per.is_zero() {
            return self.inner.handle(command, completion);
        }
        let host = completion.host().clone();
        let mut state = self.tap.state.lock();
        // The clock is read under the lock. Suppose that this thread read the clock before it took the lock. Then
        // another thread could take the lock first, and let a command pass with a later time. The schedule would then
        // delay the command of this thread.
        let now = state.now(&self.rate, host.shared().timers.clock());
        // A command must not overtake the commands of the queue. If `attended` is true, the queue may be empty although
        // a command still waits for its handler. In this case, the attending task has just taken this command out of
        // the queue.
        let is_first = state.line.is_empty() && !state.attended;
        if is_first && state.schedule.pass(&self.rate, now, Duration::ZERO) {
            drop(state);
            return self.inner.handle(command, completion);
        }
        let command = CommandWithHandler::new(&self.inner, command, completion);
        let rejected = state.line.join(Box::new(command), self.bound, &self.tap);
        // If the runtime of the command has shut down, the attending task would be dropped immediately. The drop of the
        // task would then search the whole queue for an open runtime. If a runtime ends while many of its commands
        // wait, each further command of this runtime would cause a search of the whole queue.
        let unattended =
            !state.line.is_empty() && host.phase() != Phase::Closed && !std::mem::replace(&mut state.attended, true);
        drop(state);
        if unattended {
            self.tap.attend(self.rate, &host);
        }
        if let Some(rejected) = rejected {
            rejected.refuse_or_drop(
                || format!("rate limit of {} per {:?}", self.rate.count, self.rate.per),
                self.bound.queue,
            );
        }
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::Simulation;
    use crate::handler::layer::waiters::WaitingCommand;
    use crate::platform::sync::atomic::{AtomicUsize, Ordering};

    const MS: u64 = 1_000_000;

    /// A waiting command. If `is_wanted` is false, the command was cancelled after it had joined the queue.
    /// `run_or_drop` counts its calls.
    struct Fake {
        host: Host,
        is_wanted: bool,
        calls: Arc<AtomicUsize>,
    }

    impl WaitingCommand for Fake {
        fn host(&self) -> &Host {
            &self.host
        }

        fn watch(&mut self, _: &Waker) -> bool {
            true
        }

        fn is_wanted(&self) -> bool {
            self.is_wanted
        }

        fn run_or_drop(self: Box<Self>, _: Box<dyn Send>) {
            self.calls.fetch_add(1, Ordering::SeqCst);
        }

        fn refuse(self: Box<Self>, _: String, _: usize, _: bool) {
            unreachable!("the queue has room");
        }
    }

    /// 3.2e: a thread cancels a waiting command. The attendant may reach this command before the waker of the
    /// cancellation has removed the command from the queue.
    #[test]
    fn a_command_that_is_not_wanted_uses_no_token() {
        let (simulation, tap, calls) = (Simulation::new(1), Arc::new(SharedState::default()), Arc::default());
        let (host, rate) = (simulation.host(), rate(1, Duration::from_secs(3_600), 1));
        for is_wanted in [false, false, true, false, true] {
            let fake = Fake { host: host.clone(), is_wanted, calls: Arc::clone(&calls) };
            assert!(tap.state.lock().line.join(Box::new(fake), Bound::default(), &tap).is_none());
        }
        // The two unwanted commands and the first wanted command leave the queue. The next unwanted command also leaves
        // the queue, and the last command waits.
        assert!(tap.run_due(&rate, host).is_some_and(|time| !time.is_zero()));
        assert_eq!((calls.load(Ordering::SeqCst), tap.state.lock().line.len()), (4, 1));
    }

    /// After a runtime has shut down, its further commands do not search the queue for a command of an open runtime.
    /// The end of a runtime with many waiting commands would otherwise take quadratic time.
    #[test]
    fn a_command_of_a_runtime_that_has_shut_down_does_not_search_the_queue() {
        /// A waiting command that counts how often its host is read.
        struct Counted(Host, Arc<AtomicUsize>);
        impl WaitingCommand for Counted {
            fn host(&self) -> &Host {
                self.1.fetch_add(1, Ordering::SeqCst);
                &self.0
            }

            fn watch(&mut self, _: &Waker) -> bool {
                true
            }

            fn is_wanted(&self) -> bool {
                true
            }

            fn run_or_drop(self: Box<Self>, _: Box<dyn Send>) {}

            fn refuse(self: Box<Self>, _: String, _: usize, _: bool) {}
        }
        struct Ask;
        impl Command for Ask {
            type Reply = ();
        }
        let kept = Arc::new(Mutex::new(None));
        let keeps = Arc::clone(&kept);
        let keep = move |_: Ask, completion: Completion<()>| *keeps.lock() = Some(completion);
        let rt = crate::Runtime::builder().workers(0).handler(keep).build().unwrap();
        let asks = rt.spawn(async |ctx: crate::Context| drop(ctx.perform(Ask).await));
        rt.block_on(rt.spawn(async |_: crate::Context| {})).unwrap();
        let (host, completion) =
            (rt.host().clone(), kept.lock().take().expect("the process has performed the command"));
        drop((asks, rt));
        let limit = RateLimit::new(|_: Ask, _: Completion<()>| {}, 1, Duration::from_secs(3_600));
        let reads = Arc::new(AtomicUsize::new(0));
        let waiting = Box::new(Counted(host, Arc::clone(&reads)));
        assert!(limit.tap.state.lock().line.join(waiting, Bound::default(), &limit.tap).is_none());
        limit.handle(Ask, completion);
        assert_eq!((reads.load(Ordering::SeqCst), limit.tap.state.lock().attended), (0, false));
    }

    /// Returns the times at which the schedule lets `count` commands pass, one time for each command. All commands are
    /// in the queue from the beginning. The schedule is checked only at the times in `looks`.
    fn pass_times(rate: Rate, count: usize, looks: impl Iterator<Item = u64>) -> Vec<u64> {
        let (mut schedule, mut pass_times) = (Schedule::default(), Vec::new());
        for ns in looks {
            while pass_times.len() < count && schedule.pass(&rate, Instant::from_ns(ns), LATE) {
                pass_times.push(ns);
            }
        }
        pass_times
    }

    fn rate(count: u32, per: Duration, burst: u32) -> Rate {
        Rate { count, per, burst }
    }

    #[test]
    fn commands_pass_at_even_intervals_after_a_burst() {
        let rate = rate(4, Duration::from_millis(100), 3);
        let at: Vec<u64> = pass_times(rate, 7, (0..1_000).map(|n| n * MS)).iter().map(|ns| ns / MS).collect();
        assert_eq!(at, [0, 0, 0, 25, 50, 75, 100]);
    }

    #[test]
    fn a_pause_allows_at_most_one_burst() {
        let rate = rate(1, Duration::from_millis(10), 2);
        let mut schedule = Schedule::default();
        let mut at = |ms: u64| schedule.pass(&rate, Instant::from_ns(ms * MS), Duration::ZERO);
        assert_eq!([at(0), at(0), at(0), at(9), at(10), at(19)], [true, true, false, false, true, false]);
        assert_eq!([at(1_000), at(1_000), at(1_000), at(1_009), at(1_010)], [true, true, false, false, true]);
    }

    /// 3.2e: the real clocks of two runtimes count from different moments. The time of the schedule never goes back.
    #[test]
    fn a_schedule_with_two_real_clocks_never_goes_back() {
        let (rate, mut state) = (rate(1, Duration::from_secs(3_600), 1), State::default());
        let first = Clock::real();
        while first.now().ns() < 1_000 {}
        let before = state.now(&rate, &first);
        assert!(state.schedule.pass(&rate, before, Duration::ZERO));
        let due = state.schedule.due(&rate);
        assert!(state.now(&rate, &Clock::real()) >= before);
        assert!(state.now(&rate, &first) >= before);
        assert_eq!(state.schedule.due(&rate), due);
    }

    #[test]
    fn no_rate_is_rounded() {
        // The rate is three commands per second. After one year, the due time of the next command is exact to the
        // nanosecond.
        let rate = rate(3, Duration::from_secs(1), 1);
        let mut schedule = Schedule::default();
        let year = 31_536_000;
        schedule.next = rate.interval() * (3 * year);
        assert_eq!(schedule.due(&rate), Instant::from_ns(year as u64 * 1_000_000_000));
        schedule.next += rate.interval();
        assert_eq!(schedule.due(&rate), Instant::from_ns(year as u64 * 1_000_000_000 + 333_333_334));
    }

    #[test]
    fn late_timers_do_not_lower_the_rate() {
        // The rate is ten commands per millisecond, and the schedule is checked once per millisecond. Therefore ten
        // commands pass at each check, and 10,000 commands pass in one second.
        let rate = rate(10_000, Duration::from_secs(1), 1);
        let all = pass_times(rate, 20_000, (0..=1_000).map(|n| n * MS));
        assert_eq!(all.len(), 10_001);
        // After a long pause, the schedule compensates at most 10 ms.
        let mut schedule = Schedule { next: rate.parts(Duration::from_millis(5)) };
        let late = Instant::from_ns(10_000 * MS);
        assert_eq!((0..1_000).filter(|_| schedule.pass(&rate, late, LATE)).count(), 101);
    }

    #[test]
    fn extreme_rates_are_accepted() {
        let none = rate(1, Duration::ZERO, 1);
        assert_eq!(pass_times(none, 1_000, std::iter::once(5)).len(), 1_000);
        let endless = rate(u32::MAX, Duration::MAX, u32::MAX);
        assert_eq!(pass_times(endless, 10, std::iter::once(0)).len(), 10);
        let once = rate(1, Duration::MAX, 1);
        let mut schedule = Schedule::default();
        assert!(schedule.pass(&once, Instant::from_ns(7), LATE));
        assert_eq!(schedule.due(&once), Instant::FAR);
        assert!(!schedule.pass(&once, Instant::from_ns(u64::MAX - 1), LATE));
    }
}

//! Section 7 of the specification: sleeps, timeouts, intervals and delayed messages. They are tested on the virtual
//! clock, where all times are exact, and on the real clock.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context as Cx, Wake, Waker};
use std::thread;
use std::time::Duration;

use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::executor::block_on;
use futures::{FutureExt, StreamExt};
use procession::*;

use crate::{everywhere, step_aside, two, within};

/// Command that is never answered.
struct Never;
impl Command for Never {
    type Reply = ();
}

const HOUR: Duration = Duration::from_secs(3600);
/// Nearly the whole range of the clock.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(500 * 365 * 24 * 3600);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// How late an event may be.
#[derive(Clone, Copy)]
pub(crate) struct Late(Duration);

impl Late {
    /// For a runtime: an event may be late by any time, but never early.
    pub(crate) const ANY: Self = Self(Duration::MAX);
    /// For a simulation: no event is late.
    const NOT: Self = Self(Duration::ZERO);

    /// Fails if `now` is before `due`, or too late after it.
    #[track_caller]
    pub(crate) fn check(self, now: Instant, due: Instant) {
        assert!(now >= due && now - due <= self.0, "due at {due:?}, and it is {now:?}");
    }

    pub(crate) fn is_exact(self) -> bool {
        self.0.is_zero()
    }
}

/// Runs a scenario as [`everywhere`] does, first on a runtime and then in simulations. Tells the scenario how late
/// events may be.
pub(crate) fn timed<F>(scenario: impl Fn(Host, Late) -> F + Send + Sync + 'static)
where
    F: Future<Output = ()>,
{
    let simulated = AtomicBool::new(false);
    everywhere(move |host| {
        let late = if simulated.swap(true, Ordering::SeqCst) { Late::NOT } else { Late::ANY };
        scenario(host, late)
    });
}

/// 7.1: the tasks that the timers of one tick wake are queued together. A foreign waker of the same tick may block on
/// one of these tasks, on the thread that fires the timers. It does not wait forever.
#[test]
fn a_waker_may_block_on_a_task_of_the_same_tick() {
    struct Waits(Mutex<Option<(Arc<Runtime>, JoinHandle<()>)>>, mpsc::Sender<()>);
    impl Wake for Waits {
        fn wake(self: Arc<Self>) {
            let (rt, sleeper) = self.0.lock().unwrap().take().expect("it is woken once");
            rt.block_on(sleeper).unwrap();
            self.1.send(()).unwrap();
        }
    }
    within(60, || {
        // On a slow machine the time may have passed before the second process polls its sleep. Then a later time is
        // tried.
        for time in [50, 500, 5_000, 20_000].map(ms) {
            let rt = Arc::new(Runtime::builder().workers(1).build().unwrap());
            let at = rt.host().now() + time;
            let sleeper = rt.spawn(async move |ctx: Context| ctx.sleep_until(at).await);
            let (done, told) = mpsc::channel();
            let sees = rt.clone();
            let holder = rt.spawn(async move |ctx: Context| {
                // This timer is in the same wheel, behind the other one.
                let waker = Waker::from(Arc::new(Waits(Mutex::new(Some((sees, sleeper))), done)));
                let mut sleep = ctx.host().sleep(ms(1));
                sleep.reset(at);
                if sleep.poll_unpin(&mut Cx::from_waker(&waker)).is_pending() {
                    drop(waker);
                    std::future::pending::<()>().await;
                }
            });
            if told.recv().is_ok() {
                return holder.abort();
            }
        }
        panic!("this machine is too slow");
    });
}

/// 7.1: no sleep ends early, whatever its length. In virtual time no sleep ends late. The delays are printed.
#[test]
fn no_sleep_ends_early() {
    timed(async |host, exact| {
        let begun = host.now();
        let all: Vec<_> = (0..300)
            .map(|_| {
                host.spawn(async move |ctx: Context| {
                    let mut late = Vec::new();
                    for n in 0..20 {
                        let time = Duration::from_nanos(ctx.random() % 20_000_000);
                        let until = ctx.now() + time;
                        if n % 2 == 0 {
                            ctx.sleep(time).await
                        } else {
                            ctx.sleep_until(until).await
                        }
                        // A sleep ends at the first tick that is not before its deadline.
                        let ticks = (until - begun).as_nanos().div_ceil(ms(1).as_nanos());
                        let tick = begun + ms(u64::try_from(ticks).unwrap());
                        exact.check(ctx.now(), if exact.is_exact() { tick } else { until });
                        late.push(ctx.now() - until);
                    }
                    Ok::<_, Exit>(late)
                })
            })
            .collect();
        let mut late = Vec::new();
        for one in all {
            late.extend(one.await.unwrap());
        }
        late.sort();
        let part = |percent: usize| late[(late.len() - 1) * percent / 100];
        println!("late by {:?} (half), {:?} (99 %), {:?} (most)", part(50), part(99), part(100));
    });
}

/// 7.1, 11: a sleep of zero, or until a time that has passed, completes immediately.
#[test]
fn a_sleep_of_zero_completes_immediately() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    assert!(rt.sleep(Duration::ZERO).now_or_never().is_some());
    let body = rt.spawn(async |ctx: Context| {
        let at = ctx.now();
        ctx.sleep(Duration::ZERO).await;
        ctx.sleep_until(at).await;
        let mut over = ctx.sleep_until(at);
        (&mut over).await;
        assert!(futures::future::FusedFuture::is_terminated(&over));
    });
    rt.block_on(body).unwrap();
    assert_eq!(rt.counters().polls, 1);
}

/// 7.1, 11: a sleep of an enormous duration never ends, and nothing overflows.
#[test]
fn an_enormous_sleep_never_ends() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    for time in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_secs(1 << 40)] {
        assert!(rt.sleep(time).now_or_never().is_none());
        let body = rt.spawn(async move |ctx: Context| {
            assert!(ctx.sleep(time).now_or_never().is_none());
            assert_eq!(ctx.timeout(time, std::future::ready(1)).await?, 1);
            let asleep = ctx.sleep(time);
            futures::future::select(asleep, pin!(ctx.sleep(ms(1)))).await;
            Ok::<_, Exit>(())
        });
        rt.block_on(body).unwrap();
        let asks = rt.spawn(async move |ctx: Context| {
            let _ = ctx.perform(Never).timeout(time).await;
        });
        rt.block_on(asks).unwrap();
    }
    check(0..10, async |host: Host| {
        let asleep = [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_secs(1 << 40)]
            .map(|time| host.spawn(async move |ctx: Context| ctx.sleep(time).await));
        host.sleep(FOR_EVER).await;
        assert!(asleep.iter().all(|one| !one.is_finished()));
    });
}

/// 7.1: concurrent sleeps end in the order of their deadlines, in whatever order they began.
#[test]
fn sleeps_end_in_the_order_of_their_deadlines() {
    struct Note {
        number: u64,
        host: Host,
        order: Arc<Mutex<Vec<(u64, Instant)>>>,
        last: Mutex<Option<UnboundedSender<()>>>,
    }
    impl Wake for Note {
        fn wake(self: Arc<Self>) {
            self.order.lock().unwrap().push((self.number, self.host.now()));
            drop(self.last.lock().unwrap().take());
        }
    }
    async fn scenario(host: Host, late: Late) {
        let order = Arc::new(Mutex::new(Vec::new()));
        let (tell, mut told) = unbounded();
        let begun = host.now();
        let number = |n: u64| n * 27 % 50;
        let sleeps: Vec<_> = (0..50)
            .map(|n| {
                let number = number(n);
                let until = begun + ms(20 + 3 * number);
                let mut sleep = Box::pin(host.sleep(until - host.now()));
                let last = Mutex::new(Some(tell.clone()));
                let waker = Waker::from(Arc::new(Note { number, host: host.clone(), order: order.clone(), last }));
                assert!(sleep.as_mut().poll(&mut Cx::from_waker(&waker)).is_pending());
                sleep
            })
            .collect();
        drop(tell);
        assert_eq!(told.next().await, None, "all have been woken");
        let mut due: Vec<_> = sleeps.iter().zip(0..).map(|(sleep, n)| (sleep.deadline(), number(n))).collect();
        due.sort();
        let order = order.lock().unwrap();
        assert_eq!(order.len(), 50);
        for ((number, at), (due, of)) in order.iter().zip(due) {
            assert_eq!(*number, of);
            late.check(*at, due);
        }
    }
    within(30, || {
        let rt = Runtime::builder().workers(1).build().unwrap();
        block_on(scenario(rt.host().clone(), Late::ANY));
    });
    check(0..10, |host| scenario(host, Late::NOT));
}

/// 7.1: a hundred thousand processes sleep at the same time, until deadlines within one millisecond.
#[test]
fn a_hundred_thousand_processes_sleep_at_the_same_time() {
    within(120, || {
        let rt = two();
        let count = if cfg!(debug_assertions) { 20_000 } else { 100_000 };
        let until = rt.now() + ms(if cfg!(debug_assertions) { 400 } else { 600 });
        let all: Vec<_> = (0..count)
            .map(|n| {
                rt.spawn(async move |ctx: Context| {
                    let until = until + Duration::from_micros(n % 1000);
                    ctx.sleep_until(until).await;
                    assert!(ctx.now() >= until);
                    Ok::<_, Exit>(ctx.now() - until)
                })
            })
            .collect();
        let latest = all.into_iter().map(|one| block_on(one).unwrap()).max();
        println!("{count} sleeps within a millisecond: the last one is late by {latest:?}");
        assert_eq!(rt.counters().exited, count);
    });
}

/// 7.1: a dropped sleep leaves nothing behind: its waker is dropped, and is never woken.
#[test]
fn a_dropped_sleep_leaves_nothing_behind() {
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    check(0..10, async |host: Host| {
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(count.clone());
        let mut sleep = Box::pin(host.sleep(HOUR));
        assert!(sleep.as_mut().poll(&mut Cx::from_waker(&waker)).is_pending());
        assert_eq!(Arc::strong_count(&count), 3);
        drop(sleep);
        assert_eq!(Arc::strong_count(&count), 2);
        host.sleep(3 * HOUR).await;
        assert_eq!(count.0.load(Ordering::SeqCst), 0);

        // A sleep that is polled with another waker wakes this waker, and drops the former one.
        let mut sleep = Box::pin(host.sleep(HOUR));
        let until = sleep.deadline();
        assert!(sleep.as_mut().poll(&mut Cx::from_waker(&waker)).is_pending());
        sleep.await;
        assert_eq!(host.now(), until);
        assert_eq!((Arc::strong_count(&count), count.0.load(Ordering::SeqCst)), (2, 0));
    });
}

/// 7.1: a sleep after a dropped sleep may reuse its timer, but ends at its own deadline. It does not end at the
/// deadline of the dropped sleep.
#[test]
fn a_sleep_after_a_dropped_sleep_ends_at_its_own_deadline() {
    /// Polls a sleep once, and drops it.
    async fn poll_and_drop(sleep: impl Future) {
        let mut sleep = pin!(sleep);
        assert!(futures::poll!(&mut sleep).is_pending());
    }
    timed(async |host, late| {
        let bodies = [0, 3, 20].map(|kept| {
            host.spawn(async move |ctx: Context| {
                for (former, time) in [(1, 10), (5, 6), (6, 5), (3_600_000, 2), (2, 2)] {
                    poll_and_drop(ctx.sleep(ms(former))).await;
                    // On the real clock the old timer fires during this pause, before the next sleep begins, or not at
                    // all.
                    if !late.is_exact() {
                        thread::sleep(ms(kept));
                    }
                    let sleep = ctx.sleep(ms(time));
                    let until = sleep.deadline();
                    sleep.await;
                    late.check(ctx.now(), until);
                }
                // Many sleeps are dropped in time, and then one timeout passes.
                for _ in 0..100 {
                    poll_and_drop(ctx.sleep(ms(4))).await;
                }
                let until = ctx.now() + ms(8);
                assert!(ctx.timeout(ms(8), std::future::pending::<()>()).await.is_err());
                late.check(ctx.now(), until);
                // The second sleep is created before the first one is dropped, and is polled for the first time
                // afterwards.
                let (first, second) = (ctx.sleep(ms(2)), ctx.sleep(ms(6)));
                let until = second.deadline();
                let mut first = Box::pin(first);
                assert!(futures::poll!(&mut first).is_pending());
                ctx.sleep(ms(3)).await;
                drop(first);
                second.await;
                late.check(ctx.now(), until);
                // The deadline of one sleep is reset many times, within one step and from step to step.
                let mut sleep = ctx.sleep(ms(3));
                for n in 0..10 {
                    // On the real clock the sleep may have ended, if the machine is slow.
                    assert!(futures::poll!(&mut sleep).is_pending() || !late.is_exact());
                    sleep.reset(ctx.now() + ms(3 + n % 3));
                    if n % 4 == 3 {
                        ctx.yield_now().await;
                    }
                }
                let until = sleep.deadline();
                sleep.await;
                late.check(ctx.now(), until);
                Ok::<_, Exit>(())
            })
        });
        for body in bodies {
            body.await.unwrap();
        }
    });
}

/// 7.1: the timer of a dropped sleep is removed when the step ends, unless the next sleep reuses it.
#[test]
fn a_dropped_sleep_does_not_wake_its_process_after_the_step() {
    check(0..10, async |host: Host| {
        let body = host.spawn(async |ctx: Context| {
            assert!(futures::poll!(&mut ctx.sleep(HOUR)).is_pending());
            ctx.host().sleep(5 * HOUR).await;
        });
        body.await.unwrap();
        assert_eq!(host.counters().polls, 2);
        // A reused timer wakes the process at most once more.
        let body = async |ctx: Context| {
            assert!(futures::poll!(&mut ctx.sleep(HOUR)).is_pending());
            let sleep = ctx.sleep(5 * HOUR);
            let until = sleep.deadline();
            sleep.await;
            assert_eq!(ctx.now(), until);
        };
        host.spawn(body).await.unwrap();
        assert!((2 + 2..=2 + 3).contains(&host.counters().polls));
        // A process with a step limit does not run one step too many.
        host.process().limits(Limits::new().steps(2)).spawn(body).unwrap().await.unwrap();
    });
}

/// 7.1: a sleep is cancelled when its process exits, and the values of the process are dropped.
#[test]
fn a_sleep_is_cancelled_with_its_process() {
    struct Naps;
    impl Process for Naps {
        type Message = ();
        type Output = ();
        fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
            if events.count() == 0 {
                out.sleep(HOUR);
                return Ok(Next::Wait);
            }
            Ok(Next::Done(()))
        }
    }
    check(0..10, async |host: Host| {
        let begun = host.now();
        let given = Arc::new(());
        let body = host.process().value(given.clone()).spawn(async |mut ctx: Context<()>| {
            let nap = pin!(ctx.sleep(HOUR));
            let _ = futures::future::select(nap, ctx.receive()).await;
        });
        let body = body.unwrap();
        body.started().await.unwrap();
        body.send(()).unwrap();
        body.await.unwrap();
        assert_eq!(Arc::strong_count(&given), 1, "a body's");
        let steps = host.process().value(given.clone()).spawn_process(Naps).unwrap();
        steps.started().await.unwrap();
        steps.send(()).unwrap();
        steps.await.unwrap();
        assert_eq!(Arc::strong_count(&given), 1, "a hand-written one's");
        assert_eq!(host.now(), begun, "nobody has slept");
    });
}

/// 7.1, 1.2: a hand-written process sleeps by a yield, which is completed like any other yield, and can be cancelled.
#[test]
fn a_hand_written_process_sleeps_by_a_yield() {
    struct Naps {
        naps: HashMap<Tag, (Instant, bool)>,
        cancelled: Option<Tag>,
        late: Late,
    }
    impl Process for Naps {
        type Message = ();
        type Output = usize;
        fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<usize>, Exit> {
            for event in events {
                let Event::Completed(done) = event else { continue };
                let nap = self.naps.get_mut(&done.tag()).expect("one of these");
                assert!(!nap.1, "twice");
                self.late.check(out.now(), nap.0);
                nap.1 = true;
                done.into_result()?;
            }
            if self.naps.is_empty() {
                for n in 0..50_u64 {
                    let time = ms(n * 37 % 50 / 5);
                    let until = out.now() + time;
                    self.naps.insert(out.sleep(time).erase(), (until, false));
                }
                let cancelled = out.sleep(ms(1));
                assert!(out.cancel_yield(cancelled));
                self.cancelled = Some(cancelled.erase());
            }
            let over = self.naps.values().filter(|nap| nap.1).count();
            if over == self.naps.len() { Ok(Next::Done(over)) } else { Ok(Next::Wait) }
        }
    }
    timed(async |host, late| {
        let naps = host.spawn_process(Naps { naps: HashMap::new(), cancelled: None, late });
        assert_eq!(naps.await.unwrap(), 50);
    });
}

/// 7.1: a timeout polls its future first. A result that is there is not lost, even if the timeout has passed.
#[test]
fn a_timeout_polls_its_future_first() {
    check(0..10, async |host: Host| {
        let body = host.spawn(async |ctx: Context| {
            let begun = ctx.now();
            assert_eq!(ctx.timeout(Duration::ZERO, std::future::ready(5)).await?, 5);
            assert!(matches!(ctx.timeout(Duration::ZERO, std::future::pending::<()>()).await, Err(Failure::TimedOut)));
            assert_eq!(ctx.now(), begun);
            let late = ctx.timeout(2 * HOUR, std::future::pending::<()>()).await;
            assert!(matches!(late, Err(Failure::TimedOut)));
            assert_eq!(ctx.now() - begun, 2 * HOUR);
            // For one future the first poll comes after both times, and for the other one the second poll.
            let both = |value| ctx.timeout(HOUR, ctx.sleep(HOUR).map(move |()| value));
            let (first, mut second) = (both(6), pin!(both(7)));
            assert!(futures::poll!(&mut second).is_pending());
            ctx.sleep(3 * HOUR).await;
            assert_eq!((first.await?, second.await?), (6, 7));
            assert_eq!(ctx.now() - begun, 5 * HOUR);
            Ok::<_, Exit>(())
        });
        body.await
    });
}

/// 3.5, 2.6: a command and a call can have a time limit inside a process. A call can have a time limit outside too.
#[test]
fn yields_and_calls_time_out() {
    timed(async |host, late| {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let keep = kept.clone();
        let keeps =
            HostBuilder::new("keeps").handler(move |_: Never, completion| keep.lock().unwrap().push(completion));
        let keeps = host.add_host(keeps).unwrap();
        let (silent, _mailbox) = host.mailbox::<Reply<()>>();
        let to = silent.clone();
        let body = keeps.spawn(async move |ctx: Context| {
            let until = ctx.now() + ms(3);
            let yielded = ctx.perform(Never).timeout(ms(3)).await;
            assert!(matches!(yielded, Err(Failure::TimedOut)), "{yielded:?}");
            late.check(ctx.now(), until);
            let until = ctx.now() + ms(3);
            let called = ctx.call(&to, |reply| reply).timeout(ms(3)).await;
            assert!(matches!(called, Err(CallError::TimedOut)), "{called:?}");
            late.check(ctx.now(), until);
            let until = ctx.now();
            let at_once = ctx.perform(Never).timeout(Duration::ZERO).await;
            assert!(matches!(at_once, Err(Failure::TimedOut)), "{at_once:?}");
            late.check(ctx.now(), until);
        });
        body.await.unwrap();
        let kept = std::mem::take(&mut *kept.lock().unwrap());
        assert!(!kept.is_empty() && kept.iter().all(Completion::is_cancelled));
        let until = host.now() + ms(3);
        let called = silent.call(|reply| reply).timeout(ms(3)).await;
        assert!(matches!(called, Err(CallError::TimedOut)), "{called:?}");
        late.check(host.now(), until);
    });
}

/// 4.5, 7.1: all workers are parked until a far deadline. A nearer deadline that is set from outside is met.
#[test]
fn a_nearer_deadline_from_outside_is_met() {
    within(120, || {
        for workers in [1, 2] {
            let rt = Runtime::builder().workers(workers).build().unwrap();
            let _far = rt.spawn(async |ctx: Context| ctx.sleep(Duration::from_secs(3600)).await);
            let mut late = Duration::ZERO;
            for n in 0..100 {
                // In every other round the test waits until the counters stay equal, so that the workers are parked.
                let mut still = if n % 2 == 0 { 0 } else { 50 };
                let mut before = rt.counters();
                while still < 50 {
                    thread::yield_now();
                    let now = rt.counters();
                    still = if now == before { still + 1 } else { 0 };
                    before = now;
                }
                let (longer, shorter) = (rt.sleep(ms(4)), rt.sleep(Duration::from_micros(n % 3 * 500)));
                let until = shorter.deadline();
                // The longer sleep is set first. The shorter one has to wake the thread that waits for the longer one.
                let first = block_on(futures::future::select(longer, shorter));
                assert!(matches!(first, futures::future::Either::Right(_)) || rt.now() - until >= ms(3));
                assert!(rt.now() >= until);
                late = late.max(rt.now() - until);
            }
            println!("{workers} workers: late by {late:?} at most");
        }
    });
}

/// 4.5, 7.1: one thread wakes the sleeps of runtimes that were dropped. It waits for a far deadline, and a nearer one
/// is still met. The same holds for a guest thread of a foreign executor, and just after another runtime was dropped.
#[test]
fn a_nearer_deadline_is_met_after_a_runtime_was_dropped() {
    within(60, || {
        let empty = || Runtime::builder().workers(0).build().unwrap();
        let gone = empty();
        let mut far = gone.sleep(HOUR);
        drop(gone);
        assert!((&mut far).now_or_never().is_none());
        for round in 0..50 {
            // Another sleep wakes the thread, which then waits for the far deadline again.
            let (dropped, kept) = (empty(), two());
            let (near, other) = (dropped.sleep(ms(1)), dropped.sleep(HOUR));
            drop(dropped);
            assert!(other.now_or_never().is_none());
            block_on(near);
            block_on(kept.sleep(ms(1)));
            // Here a foreign executor polls the runtime, which has no workers.
            let lent = empty();
            let sleeps = lent.spawn(async |ctx: Context| ctx.sleep(ms(1)).await);
            block_on(lent.run(sleeps)).unwrap_or_else(|exit| panic!("round {round}: {exit}"));
            // A guest thread leaves the runtime while it waits for a far deadline.
            let mut leaves = Box::pin(lent.run(lent.sleep(HOUR)));
            assert!(leaves.as_mut().now_or_never().is_none());
            drop(leaves);
            drop(lent);
            let late = kept.sleep(ms(1));
            drop(kept);
            block_on(late);
        }
        assert!((&mut far).now_or_never().is_none());
    });
}

/// 4.5, 7.1: a worker that was the timekeeper runs a long step. A parked worker takes over the timekeeping. The monitor
/// starts no replacement thread here.
#[test]
fn a_due_timer_does_not_wait_for_a_long_step() {
    within(60, || {
        for _ in 0..20 {
            let rt = Runtime::builder().workers(2).long_step_threshold(Duration::MAX).build().unwrap();
            let (tell, told) = mpsc::channel::<()>();
            let second = rt.spawn(async move |ctx: Context| {
                ctx.sleep(ms(20)).await;
                drop(tell);
            });
            let first = rt.spawn(async move |ctx: Context| {
                ctx.sleep(ms(5)).await;
                // Blocks its worker until the other process has run.
                assert_eq!(told.recv(), Err(mpsc::RecvError));
            });
            block_on(first).unwrap();
            block_on(second).unwrap();
        }
    });
}

/// 7.2: the clock never goes back. It is the same for bodies and outside.
#[test]
fn the_clock_never_goes_back() {
    everywhere(async |host| {
        let before = host.now();
        let body = host.spawn(async move |ctx: Context| {
            let mut last = before;
            for _ in 0..1000 {
                let now = ctx.now();
                assert!(now >= last);
                last = now;
                ctx.yield_now().await;
            }
            Ok::<_, Exit>(last)
        });
        let last = body.await.unwrap();
        step_aside().await;
        assert!(host.now() >= last);
    });
}

/// 7.2: random numbers come from the seed of the runtime: the same seed gives a process the same numbers.
#[test]
fn random_numbers_come_from_the_seed() {
    let numbers = |seed| {
        let rt = Runtime::builder().workers(0).seed(seed).build().unwrap();
        let body = rt.spawn(async |ctx: Context| Ok::<_, Exit>([(); 8].map(|()| ctx.random())));
        rt.block_on(body).unwrap()
    };
    assert_eq!(numbers(1), numbers(1));
    assert_ne!(numbers(1), numbers(2));
}

// ---- Intervals and delayed messages

/// 7.1: an interval ticks at equal distances, and never early. A tick is not lost if its future is dropped.
#[test]
fn an_interval_ticks_at_equal_distances() {
    check(0..10, async |host: Host| {
        let ticks = host.spawn(async |ctx: Context| -> Result<_, Exit> {
            let begun = ctx.now();
            let mut every = ctx.interval_at(begun + ms(200), ms(150));
            let mut ticks = Vec::new();
            for _ in 0..5 {
                // Polled once and dropped.
                assert!(futures::poll!(pin!(every.tick())).is_pending());
                let tick = every.tick().await;
                assert_eq!(ctx.now(), tick);
                ticks.push(tick - begun);
            }
            Ok(ticks)
        });
        assert_eq!(ticks.await.unwrap(), [200, 350, 500, 650, 800].map(ms));
    });
}

/// 7.1: missed ticks arrive in a burst, delay the later ticks, or are skipped, as the policy says.
#[test]
fn missed_ticks_follow_the_policy() {
    check(0..10, async |host: Host| {
        // The due time and the actual time of each tick, in ms.
        let policies = [
            (MissedTickBehavior::Burst, [(10, 45), (20, 45), (30, 45), (40, 45), (50, 50), (60, 60)]),
            (MissedTickBehavior::Delay, [(10, 45), (55, 55), (65, 65), (75, 75), (85, 85), (95, 95)]),
            (MissedTickBehavior::Skip, [(10, 45), (50, 50), (60, 60), (70, 70), (80, 80), (90, 90)]),
        ];
        let begun = host.now();
        let late = policies.map(|(policy, expected)| {
            host.spawn(async move |ctx: Context| {
                let mut every = ctx.interval(ms(10)).missed_tick_behavior(policy);
                ctx.sleep(ms(45)).await;
                for (due, came) in expected {
                    assert_eq!((every.tick().await - begun, ctx.now() - begun), (ms(due), ms(came)), "{policy:?}");
                }
            })
        });
        for one in late {
            one.await.unwrap();
        }
    });
}

/// 7.1: a period of zero is refused by the call that sets it.
#[test]
fn a_period_of_zero_is_refused() {
    let rt = two();
    let interval = rt.spawn(async |ctx: Context| drop(ctx.interval(Duration::ZERO)));
    let again = rt.spawn(async |ctx: Context| {
        ctx.send_interval(Duration::ZERO, ctx.pid(), ());
    });
    for refused in [interval, again] {
        let exit = rt.block_on(refused).unwrap_err();
        assert!(exit.to_string().contains("a period longer than zero"), "{exit}");
    }
}

/// 7.1: a delayed message is not sent early. It can be cancelled, which returns the remaining time.
#[test]
fn delayed_messages_are_sent_or_cancelled() {
    check(0..10, async |host: Host| {
        let body = host.spawn(async |mut ctx: Context<u64>| -> Result<_, Exit> {
            let begun = ctx.now();
            let me = ctx.address();
            let late = ctx.send_after(ms(60_000), &me, 1);
            let second = ctx.send_after(ms(20), &me, 2);
            ctx.send_after(ms(5), ctx.pid(), 3_u64);
            ctx.send_after(Duration::ZERO, &me, 4);
            ctx.send_after(Duration::MAX, &me, 5);
            let mut read = Vec::new();
            for _ in 0..3 {
                read.push((ctx.receive().await?, ctx.now() - begun));
            }
            assert_eq!(ctx.cancel_timer(late), Some(ms(60_000 - 20)));
            assert_eq!((ctx.cancel_timer(late), ctx.cancel_timer(second)), (None, None));
            // The cancelled message is not sent, and the message with the maximal delay is not sent either.
            ctx.sleep(FOR_EVER).await;
            assert_eq!(ctx.try_receive(), None);
            Ok(read)
        });
        assert_eq!(body.await.unwrap(), [(4, ms(0)), (3, ms(5)), (2, ms(20))]);
    });
}

/// 7.1: timers are cancelled when their process exits. Their messages are dropped, and are never sent.
#[test]
fn timers_are_cancelled_with_their_process() {
    everywhere(async |host| {
        let (to, mut mailbox) = host.mailbox::<Arc<()>>();
        let message = Arc::new(());
        let (own, address) = (message.clone(), to.clone());
        let sender = host.spawn(async move |mut ctx: Context<()>| -> Result<(), Exit> {
            ctx.send_after(ms(30), &address, own.clone());
            ctx.send_interval(ms(30), &address, own);
            ctx.receive().await
        });
        sender.started().await.unwrap();
        assert_eq!(Arc::strong_count(&message), 3);
        sender.abort();
        assert!(matches!(sender.await, Err(Exit::Killed)));
        assert_eq!(Arc::strong_count(&message), 1, "dropped before its end is known");
        host.sleep(ms(60)).await;
        assert!(mailbox.try_receive().is_none());
    });
}

/// 7.1: a periodic message is sent until it is cancelled, or until its receiver has exited.
#[test]
fn periodic_messages_are_sent_until_they_are_cancelled() {
    check(0..10, async |host: Host| {
        let body = host.spawn(async |mut ctx: Context<&'static str>| -> Result<(), Exit> {
            let (begun, gone) = (ctx.now(), ctx.spawn(async |_: Context<u8>| ()));
            let to = gone.address();
            gone.await?;
            let nobody = ctx.send_interval(ms(1), &to, 1_u8);
            let every = ctx.send_interval(ms(5), ctx.pid(), "tick");
            for n in 1..=4 {
                assert_eq!(ctx.receive().await?, "tick");
                assert_eq!(ctx.now() - begun, ms(5 * n));
            }
            ctx.sleep(ms(2)).await;
            assert_eq!(ctx.cancel_timer(every), Some(ms(3)));
            assert_eq!(ctx.cancel_timer(nobody), None, "it has ended by itself");
            ctx.sleep(HOUR).await;
            assert_eq!(ctx.try_receive(), None);
            Ok(())
        });
        body.await.unwrap();
        assert_eq!(host.counters().refused, 1);
    });
}

/// 7.1: many timers of one tick race their cancellations. Each message is either sent or cancelled.
#[test]
fn timers_of_one_tick_race_their_cancellations() {
    within(120, || {
        let count = if cfg!(debug_assertions) { 20_000 } else { 1_000_000_u64 };
        let rt = two();
        let (to, mut mailbox) = rt.mailbox::<u64>();
        let storm = rt.spawn(async move |ctx: Context| {
            let soon = ctx.now() + ms(if cfg!(debug_assertions) { 60 } else { 1_500 });
            let at = soon + ms(5);
            let timers: Vec<_> = (0..count).map(|n| ctx.send_after(at - ctx.now(), &to, n)).collect();
            ctx.sleep_until(soon).await;
            let cancelled: Vec<u64> = (0..count).filter(|&n| ctx.cancel_timer(timers[n as usize]).is_some()).collect();
            ctx.sleep_until(at + ms(5)).await;
            Ok::<_, Exit>(cancelled)
        });
        let mut all = rt.block_on(storm).unwrap();
        // The turn that fires the timers may still run on the other worker.
        while (all.len() as u64) < count {
            all.push(rt.block_on(mailbox.receive()).unwrap());
        }
        all.sort_unstable();
        assert!(all.into_iter().eq(0..count));
        assert!(mailbox.try_receive().is_none());
    });
}

/// 6.2: a deadline ends a process that listens, a process that ignores it, and a process that is spawned after it. A
/// process that exits in time is not affected.
#[test]
fn a_process_exits_at_its_deadline() {
    check(0..10, async |host: Host| {
        let begun = host.now();
        let until = begun + HOUR;
        let listens = host.process().deadline(until).spawn(async |mut ctx: Context<()>| ctx.receive().await).unwrap();
        let exit = listens.await.unwrap_err();
        assert!(matches!(exit, Exit::Cancelled(reason) if reason == Reason::DEADLINE));
        assert_eq!(host.now(), until);
        let deaf = async |_: Context| std::future::pending::<()>().await;
        let parked = host.process().deadline_within(until + ms(5), ms(10)).spawn(deaf).unwrap();
        assert!(matches!(parked.await, Err(Exit::Killed)));
        assert_eq!(host.now() - until, ms(15));
        let late = host.process().deadline(until).spawn(async |mut ctx: Context<()>| ctx.receive().await).unwrap();
        assert!(matches!(late.await, Err(Exit::Cancelled(reason)) if reason == Reason::DEADLINE));
        assert_eq!(host.now() - until, ms(15), "at once");
        let done = host.process().deadline(host.now() + HOUR).spawn(async |ctx: Context| ctx.sleep(HOUR / 2).await);
        let done = done.unwrap();
        let control = done.address();
        done.await.unwrap();
        assert!(matches!(control.exited().await, Exit::Normal));
        host.sleep(HOUR).await;
    });
}

/// 7.1: a timer of a process that has exited is dropped immediately, also if the process had no timer before. Its
/// message is dropped, and is never sent.
#[test]
fn a_process_that_has_exited_sets_no_timer() {
    for ends_first in [true, false] {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let (to, mut mailbox) = rt.mailbox::<Arc<()>>();
        let (smuggled, hears) = mpsc::channel();
        let process = rt.spawn(async move |mut ctx: Context| {
            let _ = smuggled.send((*ctx).clone());
            let _ = ctx.receive().await;
        });
        rt.block_on(process.started()).unwrap();
        let me = hears.recv().unwrap();
        if ends_first {
            process.abort();
            let _ = rt.block_on(process);
        } else {
            drop(rt);
        }
        let message = Arc::new(());
        let one = me.send_after(Duration::ZERO, &to, message.clone());
        let many = me.send_interval(ms(1), &to, message.clone());
        assert_eq!(Arc::strong_count(&message), 1);
        assert_eq!((me.cancel_timer(one), me.cancel_timer(many)), (None, None));
        assert!(mailbox.try_receive().is_none());
    }
}

/// 7.1: `receive_timeout` returns a message that is there, also if its time is zero. Without a message it returns `None`,
/// never early. A cancellation is an error.
#[test]
fn a_receive_with_a_time_limit_ends_in_time() {
    timed(async |host, late| {
        let process = host.spawn(async move |mut ctx: Context<u8>| -> Result<(), Exit> {
            assert_eq!(ctx.receive_timeout(FOR_EVER).await?, Some(1));
            assert_eq!(ctx.receive_timeout(Duration::ZERO).await?, Some(2));
            assert_eq!(ctx.receive_timeout(Duration::ZERO).await?, None);
            let due = ctx.now() + ms(5);
            assert_eq!(ctx.receive_timeout(ms(5)).await?, None);
            late.check(ctx.now(), due);
            ctx.mark_started();
            ctx.receive_timeout(FOR_EVER).await.map(drop)
        });
        process.send(1).unwrap();
        process.send(2).unwrap();
        process.started().await.unwrap();
        host.sleep(ms(50)).await;
        host.cancel(process.pid(), "enough", HOUR).unwrap();
        assert!(matches!(process.await, Err(Exit::Cancelled(reason)) if reason == "enough"));
    });
}

/// 7.1: a `receive_timeout` whose time is over takes every message of a full mailbox, also when the budget of the turn is
/// spent.
#[test]
fn a_receive_without_time_empties_the_mailbox() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let process = rt.spawn(async |mut ctx: Context<u32>| -> Result<u32, Exit> {
        let mut count = 0;
        while ctx.receive_timeout(Duration::ZERO).await?.is_some() {
            count += 1;
        }
        Ok(count)
    });
    // No process runs before `block_on`.
    for n in 0..1_000 {
        process.send(n).unwrap();
    }
    assert_eq!(rt.block_on(process).unwrap(), 1_000);
}

/// 7.1: a dropped `receive_timeout` has taken no message. A mailbox outside any process has the method too.
#[test]
fn a_dropped_receive_with_a_time_limit_takes_nothing() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let (address, mut mailbox) = rt.mailbox::<u8>();
    let mut receive = Box::pin(mailbox.receive_timeout(HOUR));
    assert!(receive.as_mut().now_or_never().is_none());
    address.send(1).unwrap();
    drop(receive);
    assert_eq!(rt.block_on(mailbox.receive_timeout(HOUR)).unwrap(), Some(1));
    assert_eq!(rt.block_on(mailbox.receive_timeout(ms(1))).unwrap(), None);
}

//! Section 7 of the specification: sleeps, timeouts, intervals and delayed messages. The tests use the virtual clock,
//! where all times are exact, and the real clock.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context as Cx, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::executor::block_on;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use procession::*;

use crate::{everywhere, step_aside, two, within};

/// Command that is never answered.
struct Never;
impl Command for Never {
    type Reply = ();
}

const HOUR: Duration = Duration::from_secs(3600);
/// A duration that is nearly the whole range of the clock.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(500 * 365 * 24 * 3600);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Maximum lateness of an event.
#[derive(Clone, Copy)]
pub(crate) struct Late(Duration);

impl Late {
    /// For a runtime: an event may be late by any time, but it is never early.
    pub(crate) const ANY: Self = Self(Duration::MAX);
    /// For a simulation: no event is late.
    const NOT: Self = Self(Duration::ZERO);

    /// Fails if `now` is before `due`, or if `now` is later than `due` by more than the allowed time.
    #[track_caller]
    pub(crate) fn check(self, now: Instant, due: Instant) {
        assert!(now >= due && now - due <= self.0, "due at {due:?}, and it is {now:?}");
    }

    pub(crate) fn is_exact(self) -> bool {
        self.0.is_zero()
    }
}

/// Runs a scenario as [`everywhere`] does: first on a runtime and then in simulations. The second argument of the
/// scenario is the maximum lateness of events.
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

/// 7.1d: when several timers are due in the same tick, the tasks of these timers are queued together. One of these
/// timers calls a waker of another executor. On the thread that fires the timers, this waker blocks until one of the
/// tasks has run. The waker returns, because the task is already queued.
#[test]
fn a_waker_may_block_on_a_task_that_is_woken_in_the_same_tick() {
    struct Waits(Mutex<Option<(Arc<Runtime>, JoinHandle<()>)>>, mpsc::Sender<()>);
    impl Wake for Waits {
        fn wake(self: Arc<Self>) {
            let (rt, sleeper) = self.0.lock().unwrap().take().expect("it is woken once");
            rt.block_on(sleeper).unwrap();
            self.1.send(()).unwrap();
        }
    }
    within(60, || {
        // On a slow machine, the deadline may have passed before the second process polls its sleep. In this case the
        // test tries again with a later deadline.
        for time in [50, 500, 5_000, 20_000].map(ms) {
            let rt = Arc::new(Runtime::builder().workers(1).build().unwrap());
            let at = rt.host().now() + time;
            let sleeper = rt.spawn(async move |ctx: Context| ctx.sleep_until(at).await);
            let (done, told) = mpsc::channel();
            let sees = rt.clone();
            let holder = rt.spawn(async move |ctx: Context| {
                // This timer is in the same timer wheel as the timer of the process `sleeper`. This timer fires after
                // the timer of `sleeper`.
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

/// 7.1b, 7.1d: no sleep ends early, for any duration. In virtual time, each sleep ends exactly on time. The test prints
/// the lateness of the sleeps.
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
                        // A sleep ends at its deadline if a tick is due at this time, and otherwise at the first tick
                        // after the deadline of the sleep.
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

/// 7.1b, 11: a sleep completes immediately if its duration is zero or if its deadline has passed.
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

/// 7.1b, 11: a sleep with an enormous duration never ends. No calculation overflows.
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

/// 7.1b: concurrent sleeps end in the order of their deadlines, and not in the order in which the sleeps began.
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

/// 7.1c: a hundred thousand processes sleep at the same time. All deadlines are within one millisecond.
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

/// 7.1a: when a sleep is dropped, its waker is dropped too, and is never called.
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

        // If a sleep is polled with another waker, the sleep drops the old waker, and later calls the new waker.
        let mut sleep = Box::pin(host.sleep(HOUR));
        let until = sleep.deadline();
        assert!(sleep.as_mut().poll(&mut Cx::from_waker(&waker)).is_pending());
        sleep.await;
        assert_eq!(host.now(), until);
        assert_eq!((Arc::strong_count(&count), count.0.load(Ordering::SeqCst)), (2, 0));
    });
}

/// 7.1a, 7.1b: a sleep may reuse the timer of a dropped sleep. The new sleep still ends at its own deadline, not at the
/// deadline of the dropped sleep.
#[test]
fn a_sleep_after_a_dropped_sleep_ends_at_its_own_deadline() {
    /// Polls a sleep once, and drops the sleep.
    async fn poll_and_drop(sleep: impl Future) {
        let mut sleep = pin!(sleep);
        assert!(futures::poll!(&mut sleep).is_pending());
    }
    timed(async |host, late| {
        let bodies = [0, 3, 20].map(|kept| {
            host.spawn(async move |ctx: Context| {
                for (former, time) in [(1, 10), (5, 6), (6, 5), (3_600_000, 2), (2, 2)] {
                    poll_and_drop(ctx.sleep(ms(former))).await;
                    // On the real clock, the old timer may fire during this pause, or between the pause and the next
                    // sleep, or not at all.
                    if !late.is_exact() {
                        thread::sleep(ms(kept));
                    }
                    let sleep = ctx.sleep(ms(time));
                    let until = sleep.deadline();
                    sleep.await;
                    late.check(ctx.now(), until);
                }
                // Many sleeps are dropped before their deadlines. After these drops, one timeout elapses.
                for _ in 0..100 {
                    poll_and_drop(ctx.sleep(ms(4))).await;
                }
                let until = ctx.now() + ms(8);
                assert!(ctx.timeout(ms(8), std::future::pending::<()>()).await.is_err());
                late.check(ctx.now(), until);
                // The second sleep is created before the first sleep is dropped. The first poll of the second sleep
                // comes after the drop of the first sleep.
                let (first, second) = (ctx.sleep(ms(2)), ctx.sleep(ms(6)));
                let until = second.deadline();
                let mut first = Box::pin(first);
                assert!(futures::poll!(&mut first).is_pending());
                ctx.sleep(ms(3)).await;
                drop(first);
                second.await;
                late.check(ctx.now(), until);
                // The deadline of one sleep is reset many times, both within one step and across several steps.
                let mut sleep = ctx.sleep(ms(3));
                for n in 0..10 {
                    // On a slow machine with the real clock, the sleep may have ended already.
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

/// Polls the sleep once, resets the sleep to `until`, and waits until the sleep ends. After the reset, the sleep is not
/// polled until the task is woken.
async fn reset_after_poll(mut sleep: future::Sleep, until: Instant) {
    let mut is_reset = false;
    std::future::poll_fn(|cx| {
        let polled = sleep.poll_unpin(cx);
        if std::mem::replace(&mut is_reset, true) {
            return polled;
        }
        sleep.reset(until);
        Poll::Pending
    })
    .await;
}

/// 7.1a: if a task waits for a sleep and the sleep is reset, the task is woken at the new deadline.
#[test]
fn a_reset_of_a_sleep_keeps_the_waker() {
    timed(async |host, late| {
        for new in [ms(5), ms(40)] {
            let outside = host.sleep(HOUR);
            let until = host.now() + new;
            reset_after_poll(outside, until).await;
            late.check(host.now(), until);
            let body = host.spawn(async move |ctx: Context| {
                for old in [HOUR, ms(20)] {
                    let (sleep, until) = (ctx.sleep(old), ctx.now() + new);
                    reset_after_poll(sleep, until).await;
                    late.check(ctx.now(), until);
                    // The join polls the sleep with a waker of its own.
                    let (sleep, until) = (ctx.sleep(old), ctx.now() + new);
                    let unordered = FuturesUnordered::from_iter([reset_after_poll(sleep, until)]);
                    unordered.collect::<()>().await;
                    late.check(ctx.now(), until);
                }
            });
            body.await.unwrap();
        }
    });
    // No thread of the runtime fires its timers. Therefore the alarm thread wakes the sleep.
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let until = rt.now() + ms(5);
        block_on(reset_after_poll(rt.sleep(HOUR), until));
        assert!(rt.now() >= until);
    });
}

/// 7.1a, 4.6b: if a body resets its sleep to the past after each poll, other processes still run.
#[test]
fn a_sleep_that_is_reset_to_the_past_takes_a_unit_of_the_budget() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let flag = Arc::new(AtomicBool::new(false));
        let set = flag.clone();
        let loops = rt.spawn(async move |ctx: Context| {
            let past = ctx.now();
            while !set.load(Ordering::SeqCst) {
                let mut sleep = ctx.sleep(HOUR);
                assert!(futures::poll!(&mut sleep).is_pending());
                sleep.reset(past);
                sleep.await;
            }
        });
        let sets = rt.spawn(async move |_: Context| flag.store(true, Ordering::SeqCst));
        rt.block_on(sets).unwrap();
        rt.block_on(loops).unwrap();
    });
}

/// 7.1a: the timer of a dropped sleep is removed at the end of the step, unless another sleep reuses the timer in this
/// step.
#[test]
fn a_dropped_sleep_does_not_wake_its_process_after_the_step() {
    check(0..10, async |host: Host| {
        let body = host.spawn(async |ctx: Context| {
            assert!(futures::poll!(&mut ctx.sleep(HOUR)).is_pending());
            ctx.host().sleep(5 * HOUR).await;
        });
        body.await.unwrap();
        assert_eq!(host.counters().polls, 2);
        // In this body, the second sleep reuses the timer of the dropped sleep. The reused timer causes at most one
        // unnecessary wake-up of the process.
        let body = async |ctx: Context| {
            assert!(futures::poll!(&mut ctx.sleep(HOUR)).is_pending());
            let sleep = ctx.sleep(5 * HOUR);
            let until = sleep.deadline();
            sleep.await;
            assert_eq!(ctx.now(), until);
        };
        host.spawn(body).await.unwrap();
        assert!((2 + 2..=2 + 3).contains(&host.counters().polls));
        // This process has a limit of two steps. The reused timer causes no third step.
        host.process().limits(Limits::new().steps(2)).spawn(body).unwrap().await.unwrap();
    });
}

/// 7.1a: when a process exits, its sleep is cancelled and its values are dropped.
#[test]
fn a_sleep_is_cancelled_when_its_process_exits() {
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

/// 1.2b, 7.1a: a sleep of a hand-written process has a tag, like a command. The sleep is completed like a command, and
/// the process can cancel the sleep like a command.
#[test]
fn a_sleep_of_a_hand_written_process_has_a_tag() {
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

/// 7.1a: a timeout polls its inner future before the timeout checks the time. Therefore the result of a ready inner
/// future is returned, even if the time limit has passed.
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
            // When the test awaits the two futures, the time limit and the sleep of each future have passed. The first
            // future has not been polled before, and the second future has been polled once.
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

/// 2.6a, 3.5a: inside a process, a command and a call can have a time limit. Outside the processes, a call can have a
/// time limit.
#[test]
fn commands_and_calls_can_have_time_limits() {
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

/// 4.5f, 7.1d: all workers are parked until a deadline in the far future. If another thread begins a sleep with an
/// earlier deadline, this sleep ends on time.
#[test]
fn an_earlier_deadline_of_another_thread_fires_on_time() {
    within(120, || {
        for workers in [1, 2] {
            let rt = Runtime::builder().workers(workers).build().unwrap();
            let _far = rt.spawn(async |ctx: Context| ctx.sleep(Duration::from_secs(3600)).await);
            let mut late = Duration::ZERO;
            for n in 0..100 {
                // In half of the rounds, the test waits until the counters no longer change. After this wait, the
                // workers are parked.
                let mut still = if n % 2 == 0 { 0 } else { 50 };
                let mut before = rt.counters();
                while still < 50 {
                    thread::yield_now();
                    let now = rt.counters();
                    still = if now == before { still + 1 } else { 0 };
                    before = now;
                }
                let sleep = rt.sleep(Duration::from_micros(n % 3 * 500));
                let until = sleep.deadline();
                // A thread of the runtime waits for the deadline in the far future. The sleep must wake this thread.
                // Otherwise this call hangs.
                block_on(sleep);
                assert!(rt.now() >= until);
                late = late.max(rt.now() - until);
            }
            println!("{workers} workers: late by {late:?} at most");
        }
    });
}

/// 4.5f, 7.1d: one background thread wakes the sleeps of all runtimes that were dropped. While this thread waits for a
/// far deadline, a sleep with an earlier deadline still ends on time. The test also checks a guest thread of a foreign
/// executor. In addition, the test drops a runtime and immediately awaits a sleep of this runtime.
#[test]
fn an_earlier_deadline_fires_on_time_after_a_runtime_was_dropped() {
    within(60, || {
        let empty = || Runtime::builder().workers(0).build().unwrap();
        let gone = empty();
        let mut far = gone.sleep(HOUR);
        drop(gone);
        assert!((&mut far).now_or_never().is_none());
        for round in 0..50 {
            // The sleep `near` wakes the background thread. Then the background thread waits for the far deadline
            // again.
            let (dropped, kept) = (empty(), two());
            let (near, other) = (dropped.sleep(ms(1)), dropped.sleep(HOUR));
            drop(dropped);
            assert!(other.now_or_never().is_none());
            block_on(near);
            block_on(kept.sleep(ms(1)));
            // A foreign executor drives this runtime, which has no workers.
            let lent = empty();
            let sleeps = lent.spawn(async |ctx: Context| ctx.sleep(ms(1)).await);
            block_on(lent.run(sleeps)).unwrap_or_else(|exit| panic!("round {round}: {exit}"));
            // A guest thread waits for a far deadline, and then leaves the runtime before this deadline.
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

/// 4.2b, 4.5f, 7.1d: when the worker that is the timekeeper runs a long step, a parked worker becomes the timekeeper.
/// In this test, the monitor starts no replacement thread, so only the parked worker can fire the timer of the other
/// process.
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
                // Blocks the worker until the process `second` has run.
                assert_eq!(told.recv(), Err(mpsc::RecvError));
            });
            block_on(first).unwrap();
            block_on(second).unwrap();
        }
    });
}

/// 7.2a: the clock never goes back. Bodies and threads outside the runtime read the same clock.
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

/// 7.2a, 7.2b: random numbers come from the seed of the runtime. With the same seed, a process gets the same random
/// numbers.
#[test]
fn random_numbers_come_from_the_seed_of_the_runtime() {
    let numbers = |seed| {
        let rt = Runtime::builder().workers(0).seed(seed).build().unwrap();
        let body = rt.spawn(async |ctx: Context| Ok::<_, Exit>([(); 8].map(|()| ctx.random())));
        rt.block_on(body).unwrap()
    };
    assert_eq!(numbers(1), numbers(1));
    assert_ne!(numbers(1), numbers(2));
}

// ---- Intervals and delayed messages

/// 7.1a, 7.1b: the ticks of an interval have equal distances and are never early. If the future of a tick is dropped,
/// the tick is not lost.
#[test]
fn an_interval_ticks_at_equal_distances() {
    check(0..10, async |host: Host| {
        let ticks = host.spawn(async |ctx: Context| -> Result<_, Exit> {
            let begun = ctx.now();
            let mut every = ctx.interval_at(begun + ms(200), ms(150));
            let mut ticks = Vec::new();
            for _ in 0..5 {
                // The future of this tick is polled once and then dropped.
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

/// 7.1a: if ticks of an interval are missed, its policy decides: the missed ticks arrive in a burst, the later ticks
/// are delayed, or the missed ticks are skipped.
#[test]
fn missed_ticks_of_an_interval_follow_its_policy() {
    check(0..10, async |host: Host| {
        // Each pair contains the time at which a tick is due and the time at which the tick arrives, in ms.
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

/// 7.1a, 7.1b: the timers tick once per millisecond, so a tick may be late by less than 1 ms. The policy `Delay` does
/// not add this time to the period.
#[test]
fn the_policy_delay_does_not_delay_ticks_that_are_not_missed() {
    check(0..10, async |host: Host| {
        let period = Duration::from_micros(10_300);
        let ticks = host.spawn(async move |ctx: Context| {
            let begun = ctx.now();
            let mut every = ctx.interval(period).missed_tick_behavior(MissedTickBehavior::Delay);
            for n in 1..=20 {
                let due = every.tick().await;
                assert_eq!(due - begun, period * n);
                assert!(ctx.now() - due < ms(1));
            }
        });
        ticks.await
    });
}

/// 7.1a: if the period is zero, the call that sets the period is refused.
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

/// 7.1a, 7.1b: a delayed message is never sent early. A delayed message can be cancelled. The cancellation returns the
/// remaining time.
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
            // Neither the cancelled message nor the message with the maximum delay is sent.
            ctx.sleep(FOR_EVER).await;
            assert_eq!(ctx.try_receive(), None);
            Ok(read)
        });
        assert_eq!(body.await.unwrap(), [(4, ms(0)), (3, ms(5)), (2, ms(20))]);
    });
}

/// 6.2a, 6.2e, 7.1a: a process cannot cancel a timer with the `TimerRef` of another process. After this failed attempt,
/// the process still has its own timers, its deadline and its kill timer.
#[test]
fn the_timer_of_another_process_cannot_be_cancelled() {
    check(0..10, async |host: Host| {
        let start = host.now();
        let body = async move |mut ctx: Context<()>| -> Result<(), Exit> {
            ctx.send_interval(HOUR / 2, ctx.pid(), ());
            let cancel_foreign = async || {
                let other = |ctx: Context| {
                    let refs: Vec<_> = (0..5).map(|_| ctx.send_after(HOUR, ctx.pid(), ())).collect();
                    async { Ok::<_, Exit>(refs) }
                };
                for timer in ctx.host().spawn(other).await? {
                    assert_eq!(ctx.cancel_timer(timer), None);
                }
                Ok::<_, Exit>(())
            };
            cancel_foreign().await?;
            assert_eq!(ctx.cancelled().await, Reason::DEADLINE);
            assert_eq!(ctx.now(), start + HOUR);
            // Now the timer that kills this process is set.
            cancel_foreign().await?;
            assert_eq!(ctx.try_receive(), Some(()));
            std::future::pending().await
        };
        let body = host.process().deadline_within(start + HOUR, HOUR).spawn(body).unwrap();
        assert!(matches!(body.await, Err(Exit::Killed)));
        assert_eq!(host.now(), start + 2 * HOUR);
    });
}

/// 7.1a: when a process exits, its timers are cancelled. The messages of these timers are dropped without being sent.
#[test]
fn timers_are_cancelled_when_their_process_exits() {
    timed(async |host, late| {
        let (to, mut mailbox) = host.mailbox::<Arc<()>>();
        let message = Arc::new(());
        let (own, address) = (message.clone(), to.clone());
        let sender = host.spawn(async move |mut ctx: Context<()>| -> Result<(), Exit> {
            ctx.send_after(HOUR, &address, own.clone());
            ctx.send_interval(HOUR, &address, own);
            ctx.receive().await
        });
        sender.started().await.unwrap();
        assert_eq!(Arc::strong_count(&message), 3);
        sender.abort();
        assert!(matches!(sender.await, Err(Exit::Killed)));
        assert_eq!(Arc::strong_count(&message), 1, "dropped before its end is known");
        if late.is_exact() {
            // The time is virtual.
            host.sleep(2 * HOUR).await;
        }
        assert!(mailbox.try_receive().is_none());
    });
}

/// 7.1a: a periodic message is sent again and again, until it is cancelled or its receiver exits.
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

/// 7.1a: many timers fire in one tick while a process cancels these timers on another worker. Each message is either
/// sent or cancelled, never both.
#[test]
fn each_message_of_a_timer_is_either_sent_or_cancelled() {
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
        // The turn that fires the timers may still be running on the other worker.
        while (all.len() as u64) < count {
            all.push(rt.block_on(mailbox.receive()).unwrap());
        }
        all.sort_unstable();
        assert!(all.into_iter().eq(0..count));
        assert!(mailbox.try_receive().is_none());
    });
}

/// 6.1b, 6.2e: a process is cancelled at its deadline. A process that ignores the cancellation is killed after its
/// grace period. A process that is spawned after its deadline is cancelled immediately. A process that exits before its
/// deadline is not affected.
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

/// 7.1a: a process that has exited cannot set a timer. The new timer and its message are dropped immediately, and the
/// message is never sent. The process in this test never had a timer.
#[test]
fn a_process_that_has_exited_cannot_set_a_timer() {
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

/// 7.1a, 11: two timers fire in one turn. One timer wakes a process, and the other timer calls a waker of another
/// executor. This waker blocks until the process has run. Even if the timer of the process has the later deadline, the
/// wait ends, because the process is already queued.
#[test]
fn a_waker_may_wait_for_a_process_that_was_woken_in_the_same_turn() {
    struct Waits {
        rt: Runtime,
        process: Mutex<Option<JoinHandle<()>>>,
        done: AtomicBool,
    }
    impl Wake for Waits {
        fn wake(self: Arc<Self>) {
            let process = self.process.lock().unwrap().take();
            self.rt.block_on(process.expect("it is woken once")).unwrap();
            self.done.store(true, Ordering::SeqCst);
        }
    }
    within(60, || {
        [(1, 2), (2, 1)].into_iter().for_each(|(time, foreign_time)| {
            let rt = Runtime::builder().workers(0).build().unwrap();
            let process = rt.spawn(async move |ctx: Context| ctx.sleep(ms(time)).await);
            rt.block_on(step_aside());
            let mut sleep = pin!(rt.sleep(ms(foreign_time)));
            let waits = Arc::new(Waits { rt, process: Mutex::new(Some(process)), done: AtomicBool::new(false) });
            let deadline = waits.rt.now() + ms(4);
            assert!(sleep.as_mut().poll(&mut Cx::from_waker(&Waker::from(Arc::clone(&waits)))).is_pending());
            // Both timers are already due when this thread begins to drive the runtime.
            while waits.rt.now() < deadline {
                thread::yield_now();
            }
            waits.rt.block_on(async {
                while !waits.done.load(Ordering::SeqCst) {
                    step_aside().await;
                }
            });
        })
    });
}

/// 4.6a, 7.1a: on a worker that was parked, a timer calls a waker of another executor. The waker blocks until the timer
/// of a process has fired. This timer has a later deadline, and the other worker fires this timer.
#[test]
fn a_blocked_waker_of_a_parked_worker_does_not_stop_the_timers() {
    struct Blocks(Mutex<mpsc::Receiver<()>>);
    impl Wake for Blocks {
        fn wake(self: Arc<Self>) {
            self.0.lock().unwrap().recv().unwrap();
        }
    }
    // With the default threshold, the monitor notices the blocked waker. Without a monitor, the worker that calls the
    // waker must first wake the other worker.
    within(60, || {
        for threshold in [ms(10), Duration::MAX] {
            let rt = Runtime::builder().workers(2).long_step_threshold(threshold).build().unwrap();
            let (fed, feeds) = mpsc::channel();
            let mut foreign = pin!(rt.sleep(ms(20)));
            let waker = Waker::from(Arc::new(Blocks(Mutex::new(feeds))));
            assert!(foreign.as_mut().poll(&mut Cx::from_waker(&waker)).is_pending());
            let process = rt.spawn(async move |ctx: Context| {
                ctx.sleep(ms(60)).await;
                fed.send(()).unwrap();
            });
            // No thread drives the runtime from outside, so only the workers can fire the timers.
            let host = rt.host().clone();
            _ = block_on(host.exited(process.pid()));
            drop(process);
        }
    });
}

/// 7.1b: if a message is in the mailbox, `receive_timeout` returns this message, even with a timeout of zero. Without a
/// message, `receive_timeout` returns `None` after the timeout has passed, and never earlier. After a cancellation,
/// `receive_timeout` returns an error.
#[test]
fn a_receive_timeout_ends_at_its_time_limit() {
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

/// 1.3f: `receive_timeout` with a timeout of zero takes every message of a full mailbox, even if the budget of the turn
/// is used up.
#[test]
fn a_receive_timeout_with_a_limit_of_zero_can_empty_a_mailbox() {
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

/// 1.3f: if a `receive_timeout` future is dropped, it has taken no message. A mailbox outside any process has this
/// method too.
#[test]
fn a_dropped_receive_timeout_takes_no_message() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let (address, mut mailbox) = rt.mailbox::<u8>();
    let mut receive = Box::pin(mailbox.receive_timeout(HOUR));
    assert!(receive.as_mut().now_or_never().is_none());
    address.send(1).unwrap();
    drop(receive);
    assert_eq!(rt.block_on(mailbox.receive_timeout(HOUR)).unwrap(), Some(1));
    assert_eq!(rt.block_on(mailbox.receive_timeout(ms(1))).unwrap(), None);
}

/// 7.1d, 11: an attached receiver panics when it receives the first message of a repeating timer. The timer continues,
/// and the owner can cancel the timer.
#[test]
fn a_panic_of_an_attached_receiver_does_not_end_a_repeating_timer() {
    struct PanicsOnce(Arc<AtomicUsize>);
    impl Deliver for PanicsOnce {
        fn deliver(&self, _: Envelope) -> std::result::Result<(), SendError<Envelope>> {
            assert!(self.0.fetch_add(1, Ordering::SeqCst) > 0, "the first message");
            Ok(())
        }
    }
    let mut simulation = Simulation::new(1);
    let host = simulation.host().clone();
    let count = Arc::new(AtomicUsize::new(0));
    let receiver = host.attach(PanicsOnce(Arc::clone(&count))).unwrap();
    let left = simulation.run(host.spawn(async move |ctx: Context| {
        let timer = ctx.send_interval(ms(10), receiver, 1_u8);
        ctx.sleep(ms(35)).await;
        Ok::<_, Exit>(ctx.cancel_timer(timer))
    }));
    assert_eq!((left.unwrap(), count.load(Ordering::SeqCst)), (Some(ms(5)), 3));
}

/// 7.1a, 4.6b: a process waits for many other processes, each with a time limit. The number of waits is higher than the
/// budget of the process. The other processes exit in time, but the waiting process is suspended, and continues to run
/// only after the time limits. No wait reports a timeout.
#[test]
fn a_spent_budget_does_not_turn_a_ready_future_into_a_timeout() {
    const CHILDREN: usize = 400;
    let mut simulation = Simulation::new(1);
    let host = simulation.host().clone();
    let waits = host.spawn(async |ctx: Context| {
        let child = |_| {
            let handle = ctx.spawn(async |ctx: Context| ctx.sleep(Duration::from_millis(500)).await);
            ctx.timeout(Duration::from_secs(1), handle)
        };
        let all: Vec<_> = (0..CHILDREN).map(child).collect();
        Ok::<_, Exit>(futures::future::join_all(all).await.into_iter().filter(Result::is_ok).count())
    });
    let pid = waits.pid();
    let in_time = simulation.run(async {
        host.sleep(Duration::from_millis(100)).await;
        host.suspend(pid).unwrap();
        host.sleep(Duration::from_secs(1)).await;
        host.resume(pid).unwrap();
        waits.await.unwrap()
    });
    assert_eq!(in_time, CHILDREN);
}

/// 11: the receiver of a repeating timer has exited, and the drop of the refused message panics. The timer ends.
#[test]
fn a_repeating_timer_ends_although_the_drop_of_its_refused_message_panics() {
    #[derive(Clone)]
    struct Bomb(Arc<AtomicUsize>);
    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0.fetch_add(1, Ordering::SeqCst) < 10 && !thread::panicking() {
                panic!("a refused message");
            }
        }
    }
    let mut simulation = Simulation::new(1);
    let host = simulation.host().clone();
    let gone = host.spawn(async |mut ctx: Context<Bomb>| ctx.receive().await.map(drop));
    let to = gone.pid();
    host.kill(to).unwrap();
    assert!(simulation.run(gone).is_err());
    let drops = Arc::new(AtomicUsize::new(0));
    let bomb = Bomb(Arc::clone(&drops));
    let owner = host.spawn(async move |ctx: Context| {
        ctx.send_interval(Duration::from_millis(10), to, bomb);
        ctx.sleep(Duration::from_secs(1)).await;
    });
    simulation.run(owner).unwrap();
    assert!(drops.load(Ordering::SeqCst) <= 2, "{} messages", drops.load(Ordering::SeqCst));
}

/// 7.1a: a host sets time limits and intervals outside processes.
#[test]
fn a_host_sets_time_limits_and_intervals() {
    everywhere(async |host: Host| {
        let begun = host.now();
        assert!(matches!(host.timeout(ms(20), host.sleep(HOUR)).await, Err(Failure::TimedOut)));
        assert_eq!(host.timeout(HOUR, async { 7 }).await.unwrap(), 7);
        let mut ticks = host.interval_at(begun, ms(10));
        for tick in 0..3 {
            assert_eq!(ticks.tick().await, begun + tick * ms(10));
        }
        let first = host.interval(ms(10)).tick().await;
        assert!(first >= begun + ms(30), "the interval begins after the time limit has passed");
        host.sleep_until(first + ms(5)).await;
        assert!(host.now() >= first + ms(5));
    });
    let random = |seed| Simulation::new(seed).host().random();
    assert_eq!(random(1), random(1));
    assert_ne!(random(1), random(2));
}

//! Section 1.7 of the specification: requests to yield, `should_yield` and `cooperative`.

use std::future::{pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::channel::oneshot;
use futures::executor::block_on;
use futures::future::{FutureExt, join_all, poll_immediate};
use futures::stream::FuturesUnordered;
use procession::*;

use crate::{alone, within};

/// 1.7a: a running process is asked to yield. The process sees the request in the rest of this turn, but not in the
/// next turn.
#[test]
fn a_request_to_yield_lasts_until_the_end_of_the_turn() {
    within(60, || {
        let rt = alone().build().unwrap();
        let (runs, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (begins, waits) = (runs.clone(), asked.clone());
        let one = rt.spawn(async move |ctx: Context| {
            begins.store(true, Ordering::SeqCst);
            while !waits.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
            let told = [should_yield(), should_yield()];
            ctx.yield_now().await;
            Ok::<_, Exit>((told, should_yield()))
        });
        while !runs.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        assert_eq!(rt.preempt(one.pid()).ok(), Some(true));
        asked.store(true, Ordering::SeqCst);
        assert_eq!(block_on(one).unwrap(), ([true, true], false));
    });
}

/// 1.7a: a process may ask itself to yield. If a process is not running, a request to yield has no effect on this
/// process. If a process has exited or belongs to another runtime, a request to yield is an error.
#[test]
fn only_a_running_process_is_asked_to_yield() {
    within(60, || {
        let rt = alone().build().unwrap();
        let own = rt.spawn(async |ctx: Context| {
            let before = should_yield();
            let ran = ctx.host().preempt(ctx.pid()).ok();
            Ok::<_, Exit>((before, ran, should_yield()))
        });
        let pid = own.pid();
        assert_eq!(block_on(own).unwrap(), (false, Some(true), true));
        assert!(rt.preempt(pid).is_err());
        let idle = rt.spawn(async |mut ctx: Context<()>| ctx.receive().await.map(|()| should_yield()));
        block_on(idle.started()).unwrap();
        // The request may arrive at the end of the turn. In this case the process sees the request in its next turn.
        let mut asked = false;
        while rt.preempt(idle.pid()).expect("it lives") {
            asked = true;
            std::thread::yield_now();
        }
        let other = Runtime::builder().workers(1).build().unwrap();
        assert!(other.preempt(idle.pid()).is_err());
        idle.send(()).unwrap();
        assert!(!block_on(idle).unwrap() || asked);
    });
}

/// 1.7a, 4.7a: before the monitor counts a step as long, the monitor asks the process to yield.
#[test]
fn a_process_in_a_long_step_is_asked_to_yield() {
    within(60, || {
        let rt = Runtime::builder().workers(1).long_step_threshold(Duration::from_millis(20)).build().unwrap();
        let long = rt.spawn(async |ctx: Context| {
            while ctx.host().counters().long_steps == 0 {
                std::hint::spin_loop();
            }
            Ok::<_, Exit>(should_yield())
        });
        assert!(block_on(long).unwrap());
    });
}

/// 1.7a: a step of a process blocks in `block_on`, and meanwhile the thread of this step runs another process. A
/// request to yield reaches only the process with the given pid.
#[test]
fn a_request_to_yield_reaches_only_the_named_process() {
    within(60, || {
        let rt = Arc::new(alone().build().unwrap());
        let inside = Arc::clone(&rt);
        let outer = rt.spawn(async move |ctx: Context| {
            let inner = ctx.spawn(async |ctx: Context| {
                let ran = ctx.host().preempt(ctx.pid()).ok();
                Ok::<_, Exit>((ran, should_yield()))
            });
            let pid = ctx.pid();
            let other = ctx.host().clone();
            assert_eq!(other.preempt(pid).ok(), Some(true));
            assert_eq!(inside.block_on(inner)?, (Some(true), true));
            Ok::<_, Exit>((should_yield(), inside))
        });
        let (told, inside) = block_on(outer).unwrap();
        assert!(told);
        drop(inside);
    });
}

/// 1.7b, 4.6b: a body awaits `cooperative` futures that are always ready. The body yields within its budget, so other
/// processes run.
#[test]
fn cooperative_futures_yield_within_the_budget() {
    within(60, || {
        let rt = alone().build().unwrap();
        let pieces = Arc::new(AtomicU64::new(0));
        let done = pieces.clone();
        let modest = rt.spawn(async move |ctx: Context| {
            let seen = done.clone();
            let greedy = ctx.spawn(async move |_: Context| -> Result<(), Exit> {
                loop {
                    cooperative(ready(())).await;
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
            let mut most = 0;
            for _ in 0..500 {
                let before = seen.load(Ordering::SeqCst);
                ctx.yield_now().await;
                most = most.max(seen.load(Ordering::SeqCst) - before);
            }
            greedy.abort();
            Ok::<_, Exit>(most)
        });
        let most = block_on(modest).unwrap();
        assert!((1..=128).contains(&most), "{most} pieces");
    });
}

/// 1.7b: another future of the body spends the whole budget of each turn. A `cooperative` future pauses once and then
/// completes.
#[test]
fn a_cooperative_future_completes_beside_a_greedy_future() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let body = rt.spawn(async |_: Context| {
            let done = AtomicBool::new(false);
            let greedy = async {
                while !done.load(Ordering::SeqCst) {
                    cooperative(ready(())).await;
                }
            };
            let modest = cooperative(async { done.store(true, Ordering::SeqCst) });
            futures::join!(greedy, modest);
        });
        rt.block_on(body).unwrap();
    });
}

/// Awaits `cooperative` futures until another task sets `stop`.
async fn spin(stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::SeqCst) {
        cooperative(ready(())).await;
    }
}

/// 1.7b, 4.6b: another future of the body spends the whole budget of each turn. Each receive operation of the process
/// pauses once and then makes progress.
#[test]
fn a_receive_completes_beside_a_greedy_future() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let body = rt.spawn(async |ctx: Context<u32>| {
            let (_me, mut mailbox) = ctx.split();
            let done = Arc::new(AtomicBool::new(false));
            let greedy = spin(done.clone());
            let modest = async move {
                assert_eq!(mailbox.receive().await?, 0, "an urgent message");
                assert_eq!(mailbox.receive().await?, 1);
                assert_eq!(
                    mailbox.receive_where(|number| if number == 3 { Ok(number) } else { Err(number) }).await?,
                    3
                );
                assert!(matches!(mailbox.event().await, Event::Message(2)));
                assert_eq!(mailbox.next().await, Some(4));
                assert_eq!(mailbox.receive_timeout(Duration::from_secs(3600)).await?, Some(5));
                assert_eq!(mailbox.receive_timeout(Duration::from_millis(1)).await?, None);
                done.store(true, Ordering::SeqCst);
                Ok::<_, Exit>(())
            };
            futures::join!(greedy, modest).1
        });
        (1..=5).for_each(|number| body.send(number).unwrap());
        body.send_urgent(0).unwrap();
        rt.block_on(body).unwrap();
    });
}

/// 1.7b: a step receives messages in the `block_on` of another crate. This `block_on` never ends the turn of the
/// process. After the budget is spent, each receive operation pauses once and then makes progress.
#[test]
fn a_step_in_a_foreign_block_on_can_receive_more_messages_than_the_budget() {
    const EACH: u32 = 300;
    within(60, || {
        let rt = alone().build().unwrap();
        let body = rt.spawn(async |mut ctx: Context<u32>| {
            for number in 0..EACH {
                assert_eq!(block_on(ctx.receive())?, number);
            }
            for number in 0..EACH {
                assert!(matches!(block_on(ctx.event()), Event::Message(message) if message == number));
            }
            for number in 0..EACH {
                assert_eq!(block_on(ctx.receive_where(Ok::<u32, u32>))?, number);
            }
            Ok::<_, Exit>(())
        });
        (0..3).flat_map(|_| 0..EACH).for_each(|number| body.send(number).unwrap());
        block_on(body).unwrap();
    });
}

/// 1.7b, 4.6b: a combinator with its own wakers polls the mailbox of a process. In one turn, the process receives at
/// most as many messages as its budget allows, plus one message for each further poll by the combinator.
#[test]
fn a_mailbox_in_a_combinator_yields_within_the_budget() {
    within(60, || {
        let rt = alone().build().unwrap();
        let received = Arc::new(AtomicU64::new(0));
        let seen = received.clone();
        let modest = rt.spawn(async move |ctx: Context| {
            let greedy = ctx.spawn(async move |mut ctx: Context<u32>| {
                let receives = async {
                    while ctx.receive().await.is_ok() {
                        received.fetch_add(1, Ordering::SeqCst);
                    }
                };
                let other = pending();
                let mut both: FuturesUnordered<_> =
                    [receives.left_future(), other.right_future()].into_iter().collect();
                both.next().await;
            });
            (0..10_000).for_each(|number| greedy.send(number).unwrap());
            let mut most = 0;
            for _ in 0..50 {
                let before = seen.load(Ordering::SeqCst);
                ctx.yield_now().await;
                most = most.max(seen.load(Ordering::SeqCst) - before);
            }
            greedy.abort();
            Ok::<_, Exit>(most)
        });
        let most = block_on(modest).unwrap();
        assert!((1..=130).contains(&most), "{most} messages");
    });
}

/// 1.7b: each future that the runtime polls has a budget, even outside a process. The future lets the processes run.
#[test]
fn a_future_outside_a_process_yields_within_its_budget() {
    struct Spin(Arc<AtomicBool>);
    impl Command for Spin {
        type Reply = ();
    }
    within(60, || {
        let rt = Runtime::builder().workers(0).handle_async(|spin: Spin| self::spin(spin.0)).build().unwrap();
        let stop = || {
            let stop = Arc::new(AtomicBool::new(false));
            let sets = stop.clone();
            drop(rt.spawn(async move |_: Context| sets.store(true, Ordering::SeqCst)));
            stop
        };
        rt.block_on(spin(stop()));
        block_on(rt.run(spin(stop())));
        let local = rt.local_set();
        let done = Arc::new(AtomicBool::new(false));
        let sets = done.clone();
        let local_process = local.spawn(async move |_: Context| sets.store(true, Ordering::SeqCst));
        local.block_on(spin(done));
        local.block_on(local_process).unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let (waits, sets) = (stop(), done.clone());
        rt.spawn_future(async move {
            spin(waits).await;
            sets.store(true, Ordering::SeqCst);
        });
        rt.block_on(spin(done));
        let waits = Arc::new(AtomicBool::new(false));
        let sets = waits.clone();
        let performs = rt.spawn(async move |ctx: Context| {
            let spins = ctx.perform(Spin(waits));
            let other = ctx.spawn(async move |_: Context| sets.store(true, Ordering::SeqCst));
            let (spins, other) = futures::join!(spins, other);
            spins.unwrap();
            other.unwrap();
        });
        rt.block_on(performs).unwrap();
    });
}

/// 1.7b: the first poll of an async handler is a part of the turn of the process that performs the command. The handler
/// has its own budget, and does not change the budget of the process.
#[test]
fn an_async_handler_does_not_change_the_budget_of_its_process() {
    struct Take(u32);
    impl Command for Take {
        type Reply = ();
    }
    within(60, || {
        let take = async |take: Take| {
            for _ in 0..take.0 {
                cooperative(ready(())).await;
                assert!(poll_immediate(cooperative(pending::<()>())).await.is_none());
            }
        };
        let rt = Runtime::builder().workers(0).handle_async(move |count: Take| take(count)).build().unwrap();
        let units = |taken: u32| {
            let body = rt.spawn(async move |ctx: Context| {
                ctx.perform(Take(taken)).await.unwrap();
                Ok::<_, Exit>((0..).take_while(|_| !should_yield()).count())
            });
            rt.block_on(body).unwrap()
        };
        assert_eq!(units(0), units(100));
    });
}

/// 4.6b: a mailbox without a process uses the budget of the future that polls the mailbox. The future lets
/// processes run, although the mailbox always has a message.
#[test]
fn a_mailbox_outside_a_process_uses_the_budget() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let (address, mut mailbox) = rt.mailbox::<u32>();
        let stop = Arc::new(AtomicBool::new(false));
        let sets = stop.clone();
        drop(rt.spawn(async move |_: Context| sets.store(true, Ordering::SeqCst)));
        rt.block_on(async {
            while !stop.load(Ordering::SeqCst) {
                address.send(1).unwrap();
                assert_eq!(mailbox.receive().await.unwrap(), 1);
            }
            // The budget of this poll is spent. The mailbox is checked before the time limit ends the wait.
            for n in 0..200 {
                address.send(n).unwrap();
                assert_eq!(mailbox.receive_timeout(Duration::ZERO).await.unwrap(), Some(n));
            }
            // Another future spends the whole budget of each poll.
            address.send(7).unwrap();
            let done = Arc::new(AtomicBool::new(false));
            let modest = async {
                assert_eq!(mailbox.receive().await.unwrap(), 7);
                assert_eq!(mailbox.receive_timeout(Duration::from_millis(1)).await.unwrap(), None);
                done.store(true, Ordering::SeqCst);
            };
            futures::join!(spin(done.clone()), modest);
        });
    });
}

/// 1.7b: a pending `cooperative` future uses no budget. If many pending futures are polled together, each future can
/// still complete. In a future of another executor, a `cooperative` future only polls its inner future.
#[test]
fn pending_cooperative_futures_use_no_budget() {
    within(60, || {
        assert_eq!(block_on(cooperative(ready(7))), 7);
        assert!(block_on(poll_immediate(cooperative(pending::<()>()))).is_none());
        let rt = alone().build().unwrap();
        let (tell, told): (Vec<_>, Vec<_>) = (0..1000).map(|_| oneshot::channel::<u32>()).unzip();
        let all = rt.spawn(async move |_: Context| {
            let all = join_all(told.into_iter().map(|one| cooperative(async move { one.await.unwrap_or(0) }))).await;
            Ok::<_, Exit>(all.into_iter().sum::<u32>())
        });
        block_on(all.started()).unwrap();
        // The last future is completed first. A pass over all futures polls a thousand pending futures before the last
        // future.
        tell.into_iter().rev().for_each(|one| one.send(1).unwrap());
        assert_eq!(block_on(all).unwrap(), 1000);
    });
}

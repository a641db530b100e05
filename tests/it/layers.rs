//! SPEC 3: layers, which are handlers around handlers: time limits, retries, limits of rate and of concurrency.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::join_all;
use procession::layer::*;
use procession::*;

use crate::{step_aside, within};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(3_600);

#[derive(Clone, Debug)]
struct Ask(u64);
impl Command for Ask {
    type Reply = u64;
}

/// Keeps the completions, with what was asked, until they are taken.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<VecDeque<(u64, Completion<u64>)>>>);

impl Handler<Ask> for Shelf {
    fn handle(&self, ask: Ask, completion: Completion<u64>) {
        self.0.lock().unwrap().push_back((ask.0, completion));
    }
}

impl Shelf {
    fn try_take(&self) -> Option<(u64, Completion<u64>)> {
        self.0.lock().unwrap().pop_front()
    }

    /// The oldest; waits until there is one.
    fn take(&self) -> (u64, Completion<u64>) {
        loop {
            match self.try_take() {
                Some(taken) => return taken,
                None => thread::yield_now(),
            }
        }
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Answers with what is next in its list; counts how often it was asked.
#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<VecDeque<Result<u64, Failure>>>>,
    asked: Arc<AtomicUsize>,
}

impl Script {
    fn new(answers: impl IntoIterator<Item = Result<u64, Failure>>) -> Self {
        Self { answers: Arc::new(Mutex::new(answers.into_iter().collect())), asked: Arc::default() }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Handler<Ask> for Script {
    fn handle(&self, _: Ask, completion: Completion<u64>) {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let next = self.answers.lock().unwrap().pop_front();
        match next {
            Some(Err(Failure::Abandoned)) => drop(completion),
            Some(Err(Failure::Panicked(text))) => panic!("{text}"),
            Some(answer) => completion.finish(answer),
            None => completion.complete(0),
        }
    }
}

fn runtime(workers: usize, handler: impl Handler<Ask>) -> Runtime {
    Runtime::builder().workers(workers).handler(handler).build().unwrap()
}

fn ask(rt: &Runtime, n: u64) -> JoinHandle<u64> {
    rt.spawn(async move |ctx: Context| ctx.perform(Ask(n)).await)
}

/// What one command is answered through these layers.
fn answer(handler: impl Handler<Ask>) -> Result<u64, Failure> {
    let rt = runtime(2, handler);
    let asked = rt.spawn(async move |ctx: Context| Ok::<_, Exit>(ctx.perform(Ask(1)).await));
    rt.block_on(asked).unwrap()
}

/// Lets everything happen that can without time passing, where the caller's thread is the only one.
fn settle(rt: &Runtime) {
    for _ in 0..20 {
        rt.block_on(step_aside());
    }
}

/// 3.2: a layer that asks gets the answer, whatever it is, a panic with its text among them.
#[test]
fn a_layer_hears_every_answer() {
    struct Tell<H>(H, Arc<Mutex<Vec<String>>>);
    impl<H: Handler<Ask>> Handler<Ask> for Tell<H> {
        fn handle(&self, command: Ask, completion: Completion<u64>) {
            let answer = completion.ask(&self.0, command).now_or_never();
            self.1.lock().unwrap().push(format!("{answer:?}"));
            completion.finish(answer.unwrap_or(Err(Failure::TimedOut)));
        }
    }
    let heard = Arc::default();
    let script = Script::new([Ok(7), Err("no".into()), Err(Failure::Panicked("oh".into())), Err(Failure::Abandoned)]);
    let rt = runtime(0, Tell(Tell(script, Arc::default()), Arc::clone(&heard)));
    for _ in 0..4 {
        let _ = rt.block_on(ask(&rt, 1));
    }
    let expected =
        [r#"Some(Ok(7))"#, r#"Some(Err(Error("no")))"#, r#"Some(Err(Panicked("oh")))"#, r#"Some(Err(Abandoned))"#];
    assert_eq!(*heard.lock().unwrap(), expected);
}

/// 3.2: a panic passes through any layer as a failure with its text.
#[test]
fn a_panic_passes_through_layers_with_its_text() {
    let panics = || Script::new((0..9).map(|_| Err(Failure::Panicked("oh dear".into()))));
    let intercepted = |ask: Ask, completion: Completion<u64>| {
        let _completion = completion.intercept(|answer, outer| outer.finish(answer));
        panic!("oh dear, {}", ask.0 - 1);
    };
    let failures = [
        answer(Timeout::new(panics(), LONG)),
        answer(Retry::new(panics(), 2, MS)),
        answer(ConcurrencyLimit::new(panics(), 1)),
        answer(RateLimit::new(panics(), 1, LONG)),
        answer(RateLimit::new(ConcurrencyLimit::new(Timeout::new(Retry::new(panics(), 1, MS), LONG), 1), 1, LONG)),
    ];
    for failure in failures {
        assert!(matches!(&failure, Err(Failure::Panicked(text)) if text.as_str() == "oh dear"), "{failure:?}");
    }
    let failure = answer(intercepted);
    assert!(matches!(&failure, Err(Failure::Panicked(text)) if text.as_str() == "oh dear, 0"), "{failure:?}");
}

/// 3.2, 3.3: through any nesting of layers the handler sees at once that its process has given up.
#[test]
fn a_handler_sees_the_cancellation_through_all_layers() {
    fn seen(layered: impl FnOnce(Shelf) -> Box<dyn FnOnce() -> Runtime>) {
        let shelf = Shelf::default();
        let rt = layered(shelf.clone())();
        let given_up = rt.spawn(async |ctx: Context| {
            let mut perform = ctx.perform(Ask(1));
            assert!(futures::poll!(&mut perform).is_pending());
            ctx.yield_now().await;
            drop(perform);
            // Not later: in the same step.
            Ok::<_, Exit>(())
        });
        rt.block_on(given_up).unwrap();
        let (_, completion) = shelf.try_take().unwrap();
        assert!(completion.is_cancelled());
        assert!(completion.cancelled().now_or_never().is_some());
        let watched = completion.cancelled();
        completion.complete(1);
        assert!(watched.now_or_never().is_some());
        settle(&rt);
        assert_eq!(rt.counters().discarded, 1);
    }
    seen(|shelf| Box::new(|| runtime(0, shelf)));
    seen(|shelf| Box::new(|| runtime(0, Timeout::new(shelf, LONG))));
    seen(|shelf| Box::new(|| runtime(0, Retry::new(shelf, 3, LONG))));
    seen(|shelf| Box::new(|| runtime(0, ConcurrencyLimit::new(shelf, 1))));
    seen(|shelf| Box::new(|| runtime(0, RateLimit::new(shelf, 1, LONG))));
    seen(|shelf| Box::new(|| runtime(0, Retry::new(Timeout::new(Retry::new(shelf, 3, LONG), LONG), 3, LONG))));
    seen(|shelf| {
        let inner = ConcurrencyLimit::new(Timeout::new(shelf, LONG), 1);
        Box::new(|| runtime(0, Timeout::new(RateLimit::new(Retry::new(inner, 1, MS), 1, LONG), LONG)))
    });
}

/// 3.5: a time limit is a failure to the process, and a cancellation to the handler, whose late answer is discarded.
#[test]
fn a_time_limit_tells_the_handler_and_the_process() {
    let shelf = Shelf::default();
    let rt = runtime(1, Timeout::new(shelf.clone(), 20 * MS));
    let begun = Instant::now();
    let asked = rt.spawn(async |ctx: Context| Ok::<_, Exit>(ctx.perform(Ask(1)).await));
    let answer = rt.block_on(asked).unwrap();
    assert!(matches!(answer, Err(Failure::TimedOut)), "{answer:?}");
    assert!(begun.elapsed() >= 20 * MS);
    let (_, completion) = shelf.take();
    assert!(completion.is_cancelled());
    completion.complete(1);
    let counters = rt.counters();
    assert_eq!((counters.yields, counters.completions, counters.discarded), (1, 1, 0));
}

/// 3.5: zero is over before the handler hears of it, beyond the end of time is no limit, an answer at once is in time.
#[test]
fn odd_time_limits_have_a_meaning() {
    let script = Script::new([Ok(1), Ok(2), Ok(3)]);
    assert!(matches!(answer(Timeout::new(script.clone(), Duration::ZERO)), Err(Failure::TimedOut)));
    assert_eq!(script.asked(), 0);
    assert_eq!(answer(Timeout::new(script.clone(), Duration::MAX)).unwrap(), 1);
    assert_eq!(answer(Timeout::new(script.clone(), Duration::from_nanos(1))).unwrap(), 2);
    let slow = handler::future(async |ask: Ask| {
        step_aside().await;
        ask.0
    });
    assert_eq!(answer(Timeout::new(slow, LONG)).unwrap(), 1);
}

/// 3.4: where the handler answers at once, no layer costs the process its turn.
#[test]
fn an_answer_at_once_stays_in_its_turn_through_layers() {
    let inner = Retry::new(Timeout::new(handler::inline(|ask: Ask| ask.0), LONG), 3, LONG);
    let rt = runtime(0, RateLimit::new(ConcurrencyLimit::new(inner, 1), 100, MS));
    let other = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&other);
    let asks = rt.spawn(async move |ctx: Context| {
        let _ = ctx.spawn(async move |_: Context| set.store(true, Ordering::SeqCst));
        let mut sum = 0;
        for n in 0..10 {
            sum += ctx.perform(Ask(n)).await?;
            assert!(!other.load(Ordering::SeqCst), "the other had a turn before command {n} was answered");
        }
        Ok::<_, Exit>(sum)
    });
    assert_eq!(rt.block_on(asks).unwrap(), 45);
}

/// 3.2: what failed is asked again, so often and no more, after waits that double; the last failure is heard.
#[test]
fn failures_are_retried_with_growing_waits() {
    let script = Script::new([Err("a".into()), Err(Failure::Abandoned), Err(Failure::TimedOut), Ok(4)]);
    let begun = Instant::now();
    assert_eq!(answer(Retry::new(script.clone(), 3, 10 * MS)).unwrap(), 4);
    assert_eq!(script.asked(), 4);
    assert!(begun.elapsed() >= 70 * MS);
    let script = Script::new([Err("a".into()), Err("b".into()), Err("c".into()), Err("d".into())]);
    let begun = Instant::now();
    let failure = answer(Retry::new(script.clone(), 2, 10 * MS).ceiling(15 * MS)).unwrap_err();
    assert!(failure.to_string().ends_with(": c"), "{failure}");
    assert_eq!(script.asked(), 3);
    assert!(begun.elapsed() >= 25 * MS);
    let script = Script::new([Err("a".into())]);
    assert!(answer(Retry::new(script.clone(), 0, MS)).is_err());
    assert_eq!(script.asked(), 1);
    // Jitter and odd waits only change when.
    let script = Script::new((0..20).map(|_| Err("no".into())));
    assert_eq!(answer(Retry::new(script.clone(), 20, Duration::ZERO).jitter()).unwrap(), 0);
    let script = Script::new((0..5).map(|_| Err("no".into())));
    assert_eq!(answer(Retry::new(script, u32::MAX, Duration::MAX).ceiling(MS).jitter()).unwrap(), 0);
}

/// 3.2: what can't get better is not retried; a predicate decides otherwise, and may panic.
#[test]
fn a_policy_decides_what_is_retried() {
    let script = Script::new([Err(Failure::NoHandler("X".into()))]);
    assert!(matches!(answer(Retry::new(script.clone(), 9, MS)), Err(Failure::NoHandler(_))));
    let only_no = |failure: &Failure| failure.to_string().ends_with(": no");
    let script = Script::new([Err("no".into()), Err("never".into())]);
    let failure = answer(Retry::new(script.clone(), 9, MS).when(only_no)).unwrap_err();
    assert!(failure.to_string().ends_with(": never") && script.asked() == 2, "{failure}");
    let script = Script::new([Err("no".into())]);
    let failure = answer(Retry::new(script, 9, MS).when(|_| panic!("which?"))).unwrap_err();
    assert!(matches!(&failure, Failure::Panicked(text) if text.as_str() == "which?"), "{failure:?}");
}

/// 3.3: nothing is retried that nobody waits for, and a wait for the next attempt ends with the command.
#[test]
fn what_is_given_up_is_not_retried() {
    let (script, dropped) = (Script::new((0..9).map(|_| Err("no".into()))), Arc::new(()));
    #[derive(Clone)]
    struct Held(#[expect(dead_code)] Arc<()>);
    impl Command for Held {
        type Reply = u64;
    }
    struct Inner(Script);
    impl Handler<Held> for Inner {
        fn handle(&self, _: Held, completion: Completion<u64>) {
            self.0.handle(Ask(0), completion);
        }
    }
    let layered = Retry::new(Timeout::new(Inner(script.clone()), LONG), 9, LONG);
    let rt = Runtime::builder().workers(0).handler(layered).build().unwrap();
    let held = Held(Arc::clone(&dropped));
    rt.block_on(rt.spawn(async move |ctx: Context| {
        let mut perform = ctx.perform(held);
        assert!(futures::poll!(&mut perform).is_pending());
        ctx.yield_now().await;
        assert!(futures::poll!(&mut perform).is_pending());
        Ok::<_, Exit>(())
    }))
    .unwrap();
    settle(&rt);
    assert_eq!((script.asked(), Arc::strong_count(&dropped)), (1, 1));
}

/// 3.2: so many commands are at work and not one more; the others wait their turn, in order, and all are answered.
#[test]
fn a_limit_of_concurrency_is_exact_and_fair() {
    within(60, || {
        let shelf = Shelf::default();
        let limit = ConcurrencyLimit::new(shelf.clone(), 3);
        let rt = runtime(0, limit);
        let asks = rt.spawn(async |ctx: Context| Ok::<_, Exit>(join_all((0..50).map(|n| ctx.perform(Ask(n)))).await));
        settle(&rt);
        for n in 0..50 {
            assert_eq!(shelf.len(), (50 - n as usize).min(3));
            let (asked, completion) = shelf.try_take().unwrap();
            assert_eq!(asked, n);
            match n % 3 {
                0 => completion.complete(n),
                1 => drop(completion),
                _ => completion.fail("no"),
            }
            settle(&rt);
        }
        let answers = rt.block_on(asks).unwrap();
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 17);
    });
}

/// 3.2: with many workers too, nothing is lost and the limit holds.
#[test]
fn a_limit_of_concurrency_holds_among_workers() {
    within(60, || {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (n, m) = (Arc::clone(&now), Arc::clone(&most));
        let work = handler::future(move |ask: Ask| {
            let (now, most) = (Arc::clone(&n), Arc::clone(&m));
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            async move {
                step_aside().await;
                now.fetch_sub(1, Ordering::SeqCst);
                ask.0
            }
        });
        let rt = runtime(4, ConcurrencyLimit::new(work, 7));
        let asks: Vec<_> = (0..500)
            .map(|_| {
                rt.spawn(async |ctx: Context| {
                    let mut sum = 0;
                    for n in 0..10 {
                        sum += ctx.perform(Ask(n)).await?;
                    }
                    Ok::<_, Exit>(sum)
                })
            })
            .collect();
        let sums = rt.block_on(join_all(asks));
        assert!(sums.into_iter().all(|sum| sum.unwrap() == 45));
        assert!(most.load(Ordering::SeqCst) <= 7);
        assert_eq!(now.load(Ordering::SeqCst), 0);
    });
}

/// 3.3: a command that is given up in the queue leaves it at once, and the next takes its place; one at work keeps its
/// place until the handler is done with it.
#[test]
fn who_gives_up_leaves_the_queue_at_once() {
    let shelf = Shelf::default();
    let rt = runtime(0, ConcurrencyLimit::new(shelf.clone(), 1).queue(1));
    let asks = rt.spawn(async |ctx: Context| {
        let at_work = ctx.perform(Ask(0)).start();
        let waits = ctx.perform(Ask(1)).start();
        ctx.yield_now().await;
        let refused = ctx.perform(Ask(2)).await.unwrap_err();
        assert!(matches!(refused.error(), Some(LayerRefusal::Full { queue: 1, .. })), "{refused:?}");
        assert!(refused.to_string().contains("the limit of 1 at once is reached for"), "{refused}");
        drop(waits);
        // In the same step there is room again.
        let next = ctx.perform(Ask(3)).start();
        ctx.yield_now().await;
        // Given up at work, it is at work nevertheless.
        drop(at_work);
        let refused = ctx.perform(Ask(4)).await.unwrap_err();
        assert!(refused.error::<LayerRefusal>().is_some());
        Ok::<_, Exit>(next.await)
    });
    settle(&rt);
    assert_eq!(shelf.len(), 1);
    let (n, completion) = shelf.try_take().unwrap();
    assert!(n == 0 && completion.is_cancelled());
    drop(completion);
    settle(&rt);
    let (n, completion) = shelf.try_take().unwrap();
    assert_eq!(n, 3);
    completion.complete(33);
    assert_eq!(rt.block_on(asks).unwrap().unwrap(), 33);
}

/// 3.2: with the other policy whoever waits longest gives way; with no queue nobody waits.
#[test]
fn the_oldest_gives_way_where_so_asked() {
    let shelf = Shelf::default();
    let limit = ConcurrencyLimit::new(shelf.clone(), 0).queue(2).when_full(WhenFull::DropOldest);
    let rt = runtime(0, limit);
    let asks = rt.spawn(async |ctx: Context| Ok::<_, Exit>(join_all((0..5).map(|n| ctx.perform(Ask(n)))).await));
    let mut served = Vec::new();
    settle(&rt);
    while let Some((n, completion)) = shelf.try_take() {
        served.push(n);
        completion.complete(n);
        settle(&rt);
    }
    assert_eq!(served, [0, 3, 4]);
    let answers = rt.block_on(asks).unwrap();
    for n in [1, 2] {
        let failure = answers[n].as_ref().unwrap_err();
        assert!(matches!(failure.error(), Some(LayerRefusal::Displaced { .. })), "{failure:?}");
    }
    let rt = runtime(0, ConcurrencyLimit::new(shelf.clone(), 1).queue(0).when_full(WhenFull::DropOldest));
    let first = ask(&rt, 0);
    settle(&rt);
    let refused = rt.block_on(ask(&rt, 1)).unwrap_err();
    assert!(refused.error::<LayerRefusal>().is_some(), "{refused:?}");
    shelf.take().1.complete(9);
    assert_eq!(rt.block_on(first).unwrap(), 9);
}

/// 3.2: clones share a limit, so that several commands can.
#[test]
fn clones_share_a_limit() {
    struct Other;
    impl Command for Other {
        type Reply = u64;
    }
    #[derive(Clone)]
    struct Both(Shelf);
    impl Handler<Ask> for Both {
        fn handle(&self, ask: Ask, completion: Completion<u64>) {
            self.0.handle(ask, completion);
        }
    }
    impl Handler<Other> for Both {
        fn handle(&self, _: Other, completion: Completion<u64>) {
            self.0.handle(Ask(99), completion);
        }
    }
    let shelf = Shelf::default();
    let limit = ConcurrencyLimit::new(Both(shelf.clone()), 1);
    let rt = Runtime::builder().workers(0).handler::<Ask>(limit.clone()).handler::<Other>(limit).build().unwrap();
    let first = ask(&rt, 1);
    let second = rt.spawn(async |ctx: Context| ctx.perform(Other).await);
    settle(&rt);
    assert_eq!(shelf.len(), 1);
    shelf.take().1.complete(1);
    settle(&rt);
    shelf.take().1.complete(2);
    assert_eq!((rt.block_on(first).unwrap(), rt.block_on(second).unwrap()), (1, 2));
}

/// 3.2: a burst passes at once, the rest at the rate and in order, never early.
#[test]
fn a_limit_of_rate_is_never_early_and_fair() {
    within(60, || {
        let order = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&order);
        let note = handler::inline(move |ask: Ask| {
            seen.lock().unwrap().push((ask.0, Instant::now()));
            ask.0
        });
        let rt = runtime(1, RateLimit::new(note, 10, 50 * MS).burst(3));
        let begun = Instant::now();
        let asks = rt.spawn(async |ctx: Context| Ok::<_, Exit>(join_all((0..23).map(|n| ctx.perform(Ask(n)))).await));
        assert!(rt.block_on(asks).unwrap().into_iter().all(|answer| answer.is_ok()));
        for (at, (n, when)) in order.lock().unwrap().iter().enumerate() {
            assert_eq!(*n, at as u64);
            let due = 5 * MS * at.saturating_sub(2) as u32;
            assert!(*when - begun >= due, "{n} passed after {:?} and not {due:?}", *when - begun);
        }
    });
}

/// 3.3: who gives up while it waits for the rate takes nothing of it, and its place is free at once.
#[test]
fn who_gives_up_takes_nothing_of_the_rate() {
    let shelf = Shelf::default();
    let rt = runtime(0, RateLimit::new(shelf.clone(), 1, LONG).queue(1));
    let asks = rt.spawn(async |ctx: Context| {
        let _passed = ctx.perform(Ask(0)).start();
        let waits = ctx.perform(Ask(1)).start();
        ctx.yield_now().await;
        let refused = ctx.perform(Ask(2)).await.unwrap_err();
        assert!(refused.to_string().contains("the limit of 1 in 3600s is reached for"), "{refused}");
        drop(waits);
        let next = ctx.perform(Ask(3)).start();
        ctx.yield_now().await;
        drop(next);
        Ok::<_, Exit>(())
    });
    rt.block_on(asks).unwrap();
    settle(&rt);
    assert_eq!(shelf.len(), 1);
    drop(shelf.take());
}

/// 3.2: layers nest in any order, and each command is answered once.
#[test]
fn layers_nest_in_any_order() {
    fn flaky() -> impl Handler<Ask> {
        let count = AtomicUsize::new(0);
        move |ask: Ask, completion: Completion<u64>| {
            let count = count.fetch_add(1, Ordering::SeqCst);
            match count % 5 {
                0 => completion.fail("no"),
                1 => drop(completion),
                2 => panic!("oh"),
                3 => {
                    thread::spawn(move || completion.complete(ask.0));
                }
                _ => completion.complete(ask.0),
            }
        }
    }
    fn all_answered(handler: impl Handler<Ask>) {
        within(60, move || {
            let rt = runtime(2, handler);
            let asks: Vec<_> = (0..40).map(|n| ask(&rt, n)).collect();
            let answers = rt.block_on(join_all(asks));
            for (n, answer) in answers.into_iter().enumerate() {
                assert_eq!(answer.unwrap(), n as u64);
            }
            let counters = rt.counters();
            assert_eq!((counters.yields, counters.completions, counters.discarded), (40, 40, 0));
        });
    }
    let retry = |inner| Retry::new(inner, 60, MS).ceiling(2 * MS).jitter();
    all_answered(retry(Timeout::new(flaky(), LONG)));
    let fast = 100_000;
    all_answered(ConcurrencyLimit::new(Retry::new(RateLimit::new(flaky(), fast, MS), 60, Duration::ZERO), 3));
    all_answered(Timeout::new(Retry::new(ConcurrencyLimit::new(flaky(), 2), 60, Duration::ZERO), LONG));
    let inner = RateLimit::new(Timeout::new(ConcurrencyLimit::new(flaky(), 2), LONG), fast, MS);
    all_answered(RateLimit::new(Timeout::new(Retry::new(inner, 60, Duration::ZERO), LONG), fast, MS));
    all_answered(Retry::new(Retry::new(Retry::new(flaky(), 1, MS), 2, MS), 60, MS));
}

/// 3.5: a time limit inside a retry is a failure to be retried, one outside cuts through it.
#[test]
fn a_time_limit_inside_is_retried_and_one_outside_is_not() {
    let shelf = Shelf::default();
    let rt = runtime(1, Retry::new(Timeout::new(shelf.clone(), 5 * MS), 1, MS));
    let asked = ask(&rt, 1);
    let first = shelf.take().1;
    let second = shelf.take().1;
    assert!(first.is_cancelled());
    drop(first);
    second.complete(5);
    // It may have been too late for the second as well; then that is what the process hears.
    match rt.block_on(asked) {
        Ok(n) => assert_eq!(n, 5),
        Err(exit) => assert!(matches!(exit.error(), Some(Failure::TimedOut)), "{exit:?}"),
    }
    let script = Script::new((0..1_000_000).map(|_| Err("no".into())));
    let failure = answer(Timeout::new(Retry::new(script, u32::MAX, MS).ceiling(MS), 20 * MS)).unwrap_err();
    assert!(matches!(failure, Failure::TimedOut), "{failure:?}");
}

/// 3.3: a runtime ends, and lets go of everything, whatever waits in layers.
#[test]
fn a_runtime_ends_with_commands_in_its_layers() {
    within(60, || {
        for round in 0..20 {
            let held = Arc::new(());
            let shelf = Shelf::default();
            struct Keep<H>(H, #[expect(dead_code)] Arc<()>);
            impl<H: Handler<Ask>> Handler<Ask> for Keep<H> {
                fn handle(&self, ask: Ask, completion: Completion<u64>) {
                    self.0.handle(ask, completion);
                }
            }
            let inner = Keep(Retry::new(Timeout::new(shelf.clone(), LONG), 9, LONG), Arc::clone(&held));
            let rt = runtime(round % 3, RateLimit::new(ConcurrencyLimit::new(inner, 2), 5_000, LONG));
            for n in 0..10_000 {
                drop(ask(&rt, n));
            }
            if round % 2 == 0 {
                settle(&rt);
            }
            if round % 4 == 1 {
                drop(shelf.try_take());
            }
            drop(rt);
            shelf.0.lock().unwrap().clear();
            drop(shelf);
            // A worker may be just leaving.
            while Arc::strong_count(&held) != 1 {
                thread::yield_now();
            }
        }
    });
}

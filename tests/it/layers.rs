//! Section 3 of the specification: layers. A layer is a handler that wraps another handler. The tests cover time
//! limits, retries, rate limits and concurrency limits.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use procession::future::*;
use procession::layer::*;
use procession::*;

use crate::{everywhere, step_aside, within};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(3_600);

#[derive(Clone, Debug)]
struct Ask(u64);
impl Command for Ask {
    type Reply = u64;
}

/// Handler that stores its commands with their completions until the test takes the commands.
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

    /// Removes and returns the oldest command with its completion. Panics if no command is stored.
    fn take(&self) -> (u64, Completion<u64>) {
        self.try_take().expect("it was asked")
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Handler that counts its commands, and answers each command with the next answer in its list. If the list is empty,
/// the answer is 0.
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

/// Handler that answers immediately. The handler records each command and the time since the handler was created.
#[derive(Clone)]
struct Diary {
    clock: Host,
    begun: Instant,
    notes: Arc<Mutex<Vec<(u64, Duration)>>>,
}

impl Diary {
    fn new(clock: &Host) -> Self {
        Self { clock: clock.clone(), begun: clock.now(), notes: Arc::default() }
    }

    fn notes(&self) -> Vec<(u64, Duration)> {
        self.notes.lock().unwrap().clone()
    }
}

impl Handler<Ask> for Diary {
    fn handle(&self, ask: Ask, completion: Completion<u64>) {
        self.notes.lock().unwrap().push((ask.0, self.clock.now() - self.begun));
        completion.complete(ask.0);
    }
}

fn runtime(workers: usize, handler: impl Handler<Ask>) -> Runtime {
    Runtime::builder().workers(workers).handler(handler).build().unwrap()
}

/// Adds a host with this handler to the runtime of `host`.
fn layered(host: &Host, handler: impl Handler<Ask>) -> Host {
    host.add_host(HostBuilder::new("layered").handler(handler)).unwrap()
}

fn ask(host: &Host, n: u64) -> JoinHandle<u64> {
    host.spawn(async move |ctx: Context| ctx.perform(Ask(n)).await)
}

/// Performs one command through these layers. Returns the answer and the time that the command took.
async fn timed(host: &Host, handler: impl Handler<Ask>) -> (Result<u64, Failure>, Duration) {
    let begun = host.now();
    let asked = layered(host, handler).spawn(async |ctx: Context| Ok::<_, Exit>(ctx.perform(Ask(1)).await));
    (asked.await.unwrap(), host.now() - begun)
}

async fn answer(host: &Host, handler: impl Handler<Ask>) -> Result<u64, Failure> {
    timed(host, handler).await.0
}

/// Runs all runnable tasks, and does not wait for timers. The calling thread is the only thread of the runtime.
fn settle(rt: &Runtime) {
    for _ in 0..20 {
        rt.block_on(step_aside());
    }
}

/// 3.2e: if a process or a thread owns the completion of a command behind a layer and panics, the command is abandoned.
/// No handler has panicked.
#[test]
fn a_command_behind_a_layer_is_abandoned_if_the_owner_of_its_completion_panics() {
    let shelf = Shelf::default();
    let handler = ConcurrencyLimit::new(shelf.clone(), 1);
    let rt = Runtime::builder().workers(0).on_crash(|_| ()).handler(handler).build().unwrap();
    let ask = |n| rt.spawn(async move |ctx: Context| Ok::<_, Exit>(ctx.perform(Ask(n)).await));
    let asked = ask(1);
    settle(&rt);
    let (_, completion) = shelf.take();
    let owner = rt.spawn(async move |_: Context| -> Result<(), Exit> {
        let _completion = completion;
        panic!("in the process")
    });
    assert!(matches!(rt.block_on(owner), Err(Exit::Panicked(_))));
    assert_eq!(rt.block_on(asked).unwrap(), Err(Failure::Abandoned));
    let asked = ask(2);
    settle(&rt);
    let (_, completion) = shelf.take();
    let owner = thread::spawn(move || {
        let _completion = completion;
        panic!("in the thread")
    });
    assert!(owner.join().is_err());
    assert_eq!(rt.block_on(asked).unwrap(), Err(Failure::Abandoned));
}

/// 3.2e: a layer calls its handler and receives the answer. The answer is a value, an error, a panic with its text, or
/// the failure that a dropped completion causes.
#[test]
fn a_layer_receives_every_kind_of_answer() {
    struct Tell<H>(H, Arc<Mutex<Vec<String>>>);
    impl<H: Handler<Ask>> Handler<Ask> for Tell<H> {
        fn handle(&self, command: Ask, completion: Completion<u64>) {
            let answer = completion.call_handler(&self.0, command).now_or_never();
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

/// 3.2c, 3.2e: if a handler panics, the failure with the text of the panic passes through every layer.
#[test]
fn the_text_of_a_panic_passes_through_all_layers() {
    everywhere(async |host| {
        let panics = || Script::new((0..9).map(|_| Err(Failure::Panicked("oh dear".into()))));
        let intercepted = |ask: Ask, completion: Completion<u64>| {
            let _completion = completion.intercept(|answer, outer| outer.finish(answer));
            panic!("oh dear, {}", ask.0 - 1);
        };
        let all = RateLimit::new(ConcurrencyLimit::new(Timeout::new(Retry::new(panics(), 1, MS), LONG), 1), 1, LONG);
        let failures = [
            answer(&host, Timeout::new(panics(), LONG)).await,
            answer(&host, Retry::new(panics(), 2, MS)).await,
            answer(&host, ConcurrencyLimit::new(panics(), 1)).await,
            answer(&host, RateLimit::new(panics(), 1, LONG)).await,
            answer(&host, all).await,
        ];
        for failure in failures {
            assert!(matches!(&failure, Err(Failure::Panicked(text)) if text.as_str() == "oh dear"), "{failure:?}");
        }
        let failure = answer(&host, intercepted).await;
        assert!(matches!(&failure, Err(Failure::Panicked(text)) if text.as_str() == "oh dear, 0"), "{failure:?}");
    });
}

/// 3.2c, 3.2e: if the closure of `Completion::intercept` panics, the command fails with the text of the panic. It makes
/// no difference whether the handler answers during the call of the handler or later. The panic does not affect the
/// code that answers the command.
#[test]
fn a_panic_of_an_intercepting_closure_affects_only_its_command() {
    everywhere(async |host| {
        let not_affected = Arc::new(AtomicUsize::new(0));
        for (late, drops) in [(false, false), (false, true), (true, false), (true, true)] {
            let count = Arc::clone(&not_affected);
            let handler = move |_: Ask, completion: Completion<u64>| {
                let host = completion.host().clone();
                let completion = completion.intercept(|_, _outer| panic!("oh dear"));
                let count = Arc::clone(&count);
                let answer = move || {
                    if drops {
                        drop(completion)
                    } else {
                        completion.complete(1)
                    }
                    count.fetch_add(1, Ordering::SeqCst);
                };
                if late { host.spawn_future(async { answer() }) } else { answer() }
            };
            let failure = answer(&host, handler).await;
            assert!(matches!(&failure, Err(Failure::Panicked(text)) if text.as_str() == "oh dear"), "{failure:?}");
        }
        // The process may receive the last answer before the closure `answer` has increased the counter.
        while not_affected.load(Ordering::SeqCst) != 4 {
            step_aside().await;
        }
    });
}

/// 3.2e, 3.3c: when a command is cancelled, its handler sees the cancellation immediately, no matter how many layers
/// wrap the handler.
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
            // The process returns in this step. The handler must already have seen the cancellation at this point.
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

/// 3.2e, 3.5a: when a time limit expires, the command fails and the completion of the handler is cancelled. If the
/// handler answers later, its answer is discarded.
#[test]
fn a_time_limit_fails_the_command_and_cancels_the_handler() {
    check(0..10, async |host: Host| {
        let (shelf, begun) = (Shelf::default(), host.now());
        let host = layered(&host, Timeout::new(shelf.clone(), LONG));
        let asked = host.spawn(async |ctx: Context| Ok::<_, Exit>(ctx.perform(Ask(1)).await));
        host.sleep(LONG - MS).await;
        let (_, completion) = shelf.take();
        assert!(!completion.is_cancelled() && !asked.is_finished());
        let answer = asked.await.unwrap();
        assert!(matches!(answer, Err(Failure::TimedOut)), "{answer:?}");
        assert_eq!(host.now() - begun, LONG);
        assert!(completion.is_cancelled());
        completion.complete(1);
        let counters = host.counters();
        assert_eq!((counters.yields, counters.completions, counters.discarded), (1, 1, 0));
    });
}

/// 3.5a: a handler awaits the cancellation of its command. When the time limit around the handler expires, the handler
/// is woken, even if other layers are between the time limit and the handler. Inside a retry layer, the handler is
/// woken in each attempt.
#[test]
fn a_time_limit_wakes_a_handler_that_awaits_its_cancellation() {
    /// Handler that never answers. The handler records when each command was cancelled.
    #[derive(Clone)]
    struct Waits(Arc<Mutex<Vec<Instant>>>);
    impl Handler<Ask> for Waits {
        fn handle(&self, _: Ask, completion: Completion<u64>) {
            let told = Arc::clone(&self.0);
            let host = completion.host().clone();
            host.clone().spawn_future(async move {
                completion.cancelled().await;
                assert!(completion.is_cancelled());
                told.lock().unwrap().push(host.now());
            });
        }
    }
    /// Layer that calls its handler but observes neither the answer nor the cancellation.
    struct Holds<H>(H, Arc<Mutex<Vec<(HandlerCall<u64>, Completion<u64>)>>>);
    impl<H: Handler<Ask>> Handler<Ask> for Holds<H> {
        fn handle(&self, ask: Ask, completion: Completion<u64>) {
            let attempt = completion.call_handler(&self.0, ask);
            self.1.lock().unwrap().push((attempt, completion));
        }
    }
    fn told<H: Handler<Ask>>(layers: impl Fn(Waits) -> H + Send + Sync + 'static, due: &'static [u32]) {
        crate::time::timed(move |host, late| {
            let (told, begun) = (Arc::default(), host.now());
            let host = layered(&host, layers(Waits(Arc::clone(&told))));
            async move {
                let asked = host.spawn(async |ctx: Context| Ok::<_, Exit>(ctx.perform(Ask(1)).await));
                assert!(matches!(asked.await.unwrap(), Err(Failure::TimedOut)));
                while told.lock().unwrap().len() < due.len() {
                    step_aside().await;
                }
                let told = told.lock().unwrap();
                assert_eq!(told.len(), due.len());
                for (&told, &due) in told.iter().zip(due) {
                    late.check(told, begun + due * MS);
                }
            }
        });
    }
    let limit = 10 * MS;
    told(move |waits| Timeout::new(waits, limit), &[10]);
    told(move |waits| Timeout::new(Timeout::new(waits, LONG), limit), &[10]);
    told(move |waits| Timeout::new(Retry::new(waits, 3, MS), limit), &[10]);
    told(move |waits| Timeout::new(ConcurrencyLimit::new(RateLimit::new(waits, 1, LONG), 1), limit), &[10]);
    told(move |waits| Timeout::new(Holds(waits, Arc::default()), limit), &[10]);
    // The retry layer waits 5 ms before the second attempt, and 10 ms before the third attempt.
    told(move |waits| Retry::new(Timeout::new(waits, limit), 2, 5 * MS), &[10, 25, 45]);
    told(move |waits| Retry::new(Timeout::new(Retry::new(waits, 3, LONG), limit), 1, 5 * MS), &[10, 25]);
    // The first attempt times out. The retry layer starts a second attempt and does not report this timeout to the
    // process.
    told(move |waits| Retry::new(Timeout::new(Holds(waits, Arc::default()), limit), 1, 5 * MS), &[10, 25]);
}

/// 3.2e, 3.5a: a limit of zero expires before the handler is called. A limit of `Duration::MAX` never expires. An
/// immediate answer never times out. A limit of 1 ns expires at the next tick of the timer.
#[test]
fn unusual_time_limits_of_a_layer_are_accepted() {
    check(0..10, async |host: Host| {
        let script = Script::new([Ok(1), Ok(2), Ok(3)]);
        let (answer, took) = timed(&host, Timeout::new(script.clone(), Duration::ZERO)).await;
        assert!(matches!(answer, Err(Failure::TimedOut)), "{answer:?}");
        assert_eq!((script.asked(), took), (0, Duration::ZERO));
        let (answer, _) = timed(&host, Timeout::new(script.clone(), Duration::MAX)).await;
        assert_eq!(answer.unwrap(), 1);
        let shortest = Duration::from_nanos(1);
        let (answer, _) = timed(&host, Timeout::new(script.clone(), shortest)).await;
        assert_eq!(answer.unwrap(), 2);
        let (answer, took) = timed(&host, Timeout::new(Shelf::default(), shortest)).await;
        assert!(matches!(answer, Err(Failure::TimedOut)), "{answer:?}");
        assert_eq!(took, MS);
        let steps_aside = handler::future(async |ask: Ask| {
            step_aside().await;
            ask.0
        });
        let (answer, took) = timed(&host, Timeout::new(steps_aside, LONG)).await;
        assert_eq!((answer.unwrap(), took), (1, Duration::ZERO));
        let (clock, years) = (host.clone(), 80_000 * 24 * LONG);
        let slow = handler::future(move |ask: Ask| {
            let sleep = clock.sleep(years);
            async move {
                sleep.await;
                ask.0
            }
        });
        let (answer, took) = timed(&host, Timeout::new(slow, Duration::MAX)).await;
        assert_eq!((answer.unwrap(), took), (1, years));
    });
}

/// 3.2e, 3.4a: if the handler answers immediately, the process continues in the same turn, no matter which layers wrap
/// the handler.
#[test]
fn an_immediate_answer_through_layers_arrives_in_the_same_turn() {
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

/// 3.2e: a failed command is retried until the limit of attempts is reached. The wait doubles before each further
/// attempt. If the last attempt fails, its failure is reported.
#[test]
fn failures_are_retried_with_growing_waits() {
    let drawn = Mutex::new(BTreeSet::new());
    check(0..10, async |host: Host| {
        let script = Script::new([Err("a".into()), Err(Failure::Abandoned), Err(Failure::TimedOut), Ok(4)]);
        let (answer, took) = timed(&host, Retry::new(script.clone(), 3, 10 * SEC)).await;
        assert_eq!((answer.unwrap(), script.asked(), took), (4, 4, 70 * SEC));
        let script = Script::new([Err("a".into()), Err("b".into()), Err("c".into()), Err("d".into())]);
        let (answer, took) = timed(&host, Retry::new(script.clone(), 2, 10 * SEC).ceiling(15 * SEC)).await;
        let failure = answer.unwrap_err();
        assert!(failure.to_string().ends_with(": c"), "{failure}");
        assert_eq!((script.asked(), took), (3, 25 * SEC));
        let script = Script::new([Err("a".into())]);
        let (answer, took) = timed(&host, Retry::new(script.clone(), 0, LONG)).await;
        assert!(answer.is_err());
        assert_eq!((script.asked(), took), (1, Duration::ZERO));
        // By default, a wait is never longer than one minute.
        let script = Script::new((0..5).map(|_| Err("no".into())));
        let (answer, took) = timed(&host, Retry::new(script, 5, 20 * SEC)).await;
        assert_eq!((answer.unwrap(), took), (0, (20 + 40 + 60 + 60 + 60) * SEC));
        // Jitter and extreme waits change the times of the attempts, but not the number of the attempts.
        let script = Script::new((0..20).map(|_| Err("no".into())));
        let (answer, took) = timed(&host, Retry::new(script, 20, Duration::ZERO).jitter()).await;
        assert_eq!((answer.unwrap(), took), (0, Duration::ZERO));
        let script = Script::new((0..5).map(|_| Err("no".into())));
        let (answer, took) = timed(&host, Retry::new(script, u32::MAX, Duration::MAX).ceiling(LONG).jitter()).await;
        assert_eq!(answer.unwrap(), 0);
        assert!(took < 5 * LONG, "{took:?}");
        drawn.lock().unwrap().insert(took);
    });
    assert_eq!(drawn.into_inner().unwrap().len(), 10);
}

/// 3.2e: after a failure that a retry cannot correct, the command is not retried. A predicate of the user may override
/// this rule, and the predicate may panic.
#[test]
fn a_policy_decides_which_failures_are_retried() {
    check(0..10, async |host: Host| {
        let script = Script::new([Err(Failure::NoHandler("X".into()))]);
        let (answer, took) = timed(&host, Retry::new(script.clone(), 9, SEC)).await;
        assert!(matches!(answer, Err(Failure::NoHandler(_))), "{answer:?}");
        assert_eq!((script.asked(), took), (1, Duration::ZERO));
        let only_no = |failure: &Failure| failure.to_string().ends_with(": no");
        let script = Script::new([Err("no".into()), Err("never".into())]);
        let (answer, took) = timed(&host, Retry::new(script.clone(), 9, SEC).when(only_no)).await;
        let failure = answer.unwrap_err();
        assert!(failure.to_string().ends_with(": never"), "{failure}");
        assert_eq!((script.asked(), took), (2, SEC));
        let script = Script::new([Err("no".into())]);
        let (answer, took) = timed(&host, Retry::new(script, 9, SEC).when(|_| panic!("which?"))).await;
        let failure = answer.unwrap_err();
        assert!(matches!(&failure, Failure::Panicked(text) if text.as_str() == "which?"), "{failure:?}");
        assert_eq!(took, Duration::ZERO);
    });
}

/// 3.2e, 3.3c: a handler fails immediately, and the retry layer does not wait between attempts. A time limit and a kill
/// still end the attempts.
#[test]
fn a_retry_without_pauses_ends_when_its_command_ends() {
    // In 5 ms, a simulation has fewer turns than this bound. A faulty retry layer would loop endlessly and hang the
    // test. The bound makes the test fail instead.
    const MOST: usize = 100_000;
    let failing = || Script::new((0..MOST).map(|_| Err("no".into())));
    check(0..3, async |host: Host| {
        let script = failing();
        let layers = Timeout::new(Retry::new(script.clone(), u32::MAX, Duration::ZERO), 5 * MS);
        let answer = answer(&host, layers).await;
        assert!(matches!(answer, Err(Failure::TimedOut)), "{answer:?}");
        assert!((1..MOST).contains(&script.asked()));
        let script = failing();
        let asks = ask(&layered(&host, Retry::new(script.clone(), u32::MAX, Duration::ZERO)), 1);
        host.sleep(MS).await;
        asks.abort();
        assert!(matches!(asks.await, Err(Exit::Killed)));
        // The task of the retry needs one more turn to see that the retried command was cancelled.
        host.sleep(MS).await;
        let asked = script.asked();
        assert!((1..MOST).contains(&asked));
        host.sleep(MS).await;
        assert_eq!(script.asked(), asked);
    });
}

/// 3.2e: an attempt fails with an error whose destructor panics. The command is still retried.
#[test]
fn a_panic_in_the_drop_of_an_error_does_not_end_a_retry() {
    #[derive(Debug)]
    struct Bomb;
    impl std::fmt::Display for Bomb {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("bomb")
        }
    }
    impl std::error::Error for Bomb {}
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("the error is dropped");
        }
    }
    check(0..3, async |host: Host| {
        let script = Script::new([Err(Failure::new(Bomb)), Err(Failure::new(Bomb)), Ok(7)]);
        assert_eq!(answer(&host, Retry::new(script.clone(), 5, MS)).await.unwrap(), 7);
        assert_eq!(script.asked(), 3);
    });
}

/// 3.2e, 3.3c: if a command is cancelled while it waits for its next attempt, the wait ends and the command is not
/// retried.
#[test]
fn a_cancelled_command_is_not_retried() {
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
    check(0..10, async |host: Host| {
        let (script, dropped) = (Script::new((0..9).map(|_| Err("no".into()))), Arc::new(()));
        let layers = Retry::new(Timeout::new(Inner(script.clone()), LONG), 9, LONG);
        let layered = host.add_host(HostBuilder::new("layered").handler(layers)).unwrap();
        let held = Held(Arc::clone(&dropped));
        let gives_up = layered.spawn(async move |ctx: Context| {
            let mut perform = ctx.perform(held);
            assert!(futures::poll!(&mut perform).is_pending());
            ctx.sleep(LONG / 2).await;
            assert!(futures::poll!(&mut perform).is_pending());
        });
        gives_up.await.unwrap();
        // Every runnable task has a turn during this sleep.
        host.sleep(MS).await;
        assert_eq!((script.asked(), Arc::strong_count(&dropped)), (1, 1));
        host.sleep(9 * LONG).await;
        assert_eq!(script.asked(), 1);
    });
}

/// 3.2e: the number of commands in the handler reaches the limit exactly and never exceeds the limit. The commands
/// above the limit wait in order. Each command is answered.
#[test]
fn a_concurrency_limit_is_exact_and_fair() {
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

/// 3.2e: with several workers, the concurrency limit is never exceeded and no command is lost.
#[test]
fn a_concurrency_limit_is_exact_with_several_workers() {
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

/// 3.2e, 3.3c: if a command is cancelled while it waits in the queue, the command leaves the queue immediately, and its
/// place in the queue becomes free. If the handler already has the command, the command counts towards the limit until
/// the handler completes the command or drops the completion of the command.
#[test]
fn a_cancelled_command_leaves_the_queue_immediately() {
    let shelf = Shelf::default();
    let rt = runtime(0, ConcurrencyLimit::new(shelf.clone(), 1).queue_capacity(1));
    let asks = rt.spawn(async |ctx: Context| {
        let at_work = ctx.perform(Ask(0)).start();
        let waits = ctx.perform(Ask(1)).start();
        ctx.yield_now().await;
        let refused = ctx.perform(Ask(2)).await.unwrap_err();
        assert!(matches!(&refused, Failure::Overloaded(_)), "{refused:?}");
        let text = "::Ask is reached and its queue of 1 has no room";
        assert!(refused.to_string().contains("the concurrency limit of 1 for the command "), "{refused}");
        assert!(refused.to_string().contains(text), "{refused}");
        drop(waits);
        // In the same step, the queue has a free place again.
        let next = ctx.perform(Ask(3)).start();
        ctx.yield_now().await;
        // A cancelled command counts towards the limit as long as the handler holds the completion of the command.
        drop(at_work);
        let refused = ctx.perform(Ask(4)).await.unwrap_err();
        assert!(matches!(refused, Failure::Overloaded(_)));
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

/// 3.2e: with `DropOldest`, a full queue drops the command that has waited longest. A layer without a queue refuses a
/// command that would have to wait.
#[test]
fn a_full_layer_queue_may_drop_its_oldest_command() {
    let shelf = Shelf::default();
    let limit = ConcurrencyLimit::new(shelf.clone(), 0).queue_capacity(2).overflow(Overflow::DropOldest);
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
        assert!(matches!(failure, Failure::Overloaded(_)) && failure.to_string().contains("displaced"), "{failure:?}");
    }
    let rt = runtime(0, ConcurrencyLimit::new(shelf.clone(), 1).queue_capacity(0).overflow(Overflow::DropOldest));
    let first = ask(&rt, 0);
    settle(&rt);
    let refused = rt.block_on(ask(&rt, 1)).unwrap_err();
    assert!(matches!(refused.error(), Some(Failure::Overloaded(_))), "{refused:?}");
    shelf.take().1.complete(9);
    assert_eq!(rt.block_on(first).unwrap(), 9);
}

/// 3.2e: clones of a layer share the limit of the layer. Therefore one limit can apply to several types of command.
#[test]
fn clones_of_a_layer_share_its_limit() {
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

/// 3.2e: a period of zero means that the rate is not limited. No command is refused, although several workers perform
/// commands at the same time and the queue has a capacity of zero.
#[test]
fn a_rate_limit_without_a_period_refuses_no_command() {
    within(60, || {
        let handler = RateLimit::new(handler::inline(|ask: Ask| ask.0), 1, Duration::ZERO).queue_capacity(0);
        let rt = Runtime::builder().workers(2).handler(handler).build().unwrap();
        let asks = (0..4).map(|_| {
            rt.spawn(async |ctx: Context| {
                for n in 0..20_000 {
                    assert_eq!(ctx.perform(Ask(n)).await?, n);
                    if n % 50 == 0 {
                        ctx.yield_now().await;
                    }
                }
                Ok::<_, Exit>(())
            })
        });
        for asked in rt.block_on(join_all(asks.collect::<Vec<_>>())) {
            asked.unwrap();
        }
    });
}

/// 3.2e: the layer passes the commands of a burst to the handler immediately. After the burst, the layer passes the
/// remaining commands to the handler in order, at the configured rate, and never too early.
#[test]
fn a_rate_limit_is_fair_and_never_lets_a_command_pass_too_early() {
    async fn asks(host: &Host, count: u64, handler: impl Handler<Ask>) {
        let all = async move |ctx: Context| Ok::<_, Exit>(join_all((0..count).map(|n| ctx.perform(Ask(n)))).await);
        let answers = layered(host, handler).spawn(all).await.unwrap();
        assert!(answers.into_iter().map(Result::unwrap).eq(0..count));
    }
    check(0..10, async |host: Host| {
        let diary = Diary::new(&host);
        asks(&host, 23, RateLimit::new(diary.clone(), 10, 50 * SEC).burst(3)).await;
        let due = |n: u64| (n, 5 * SEC * n.saturating_sub(2) as u32);
        assert_eq!(diary.notes(), (0..23).map(due).collect::<Vec<_>>());
        // The layer passes each command to the handler at the first possible tick. The rounding errors of the ticks do
        // not accumulate.
        let diary = Diary::new(&host);
        asks(&host, 100, RateLimit::new(diary.clone(), 3, SEC).burst(1)).await;
        let due = |n: u64| (n, Duration::from_millis((n * 1_000).div_ceil(3)));
        assert_eq!(diary.notes(), (0..100).map(due).collect::<Vec<_>>());
    });
}

/// 3.2e, 3.3c: if a command is cancelled while the rate limit makes it wait, the command does not count towards the
/// rate. The place of the command in the queue is free immediately.
#[test]
fn a_cancelled_command_does_not_count_towards_the_rate() {
    check(0..10, async |host: Host| {
        let diary = Diary::new(&host);
        let asks = async |ctx: Context| {
            let _passed = ctx.perform(Ask(0)).start();
            let waits = ctx.perform(Ask(1)).start();
            ctx.yield_now().await;
            let refused = ctx.perform(Ask(2)).await.unwrap_err();
            assert!(refused.to_string().contains("the rate limit of 1 per 3600s for the command "), "{refused}");
            drop(waits);
            let next = ctx.perform(Ask(3)).start();
            ctx.sleep(LONG / 2).await;
            drop(next);
            ctx.perform(Ask(4)).await
        };
        let asks = layered(&host, RateLimit::new(diary.clone(), 1, LONG).queue_capacity(1)).spawn(asks);
        assert_eq!(asks.await.unwrap(), 4);
        assert_eq!(diary.notes(), [(0, Duration::ZERO), (4, LONG)]);
    });
}

/// 3.2e, 4.6b: many waiting commands become due at the same time. The rate limit passes a few commands to the
/// handler, and then lets other tasks run.
#[test]
fn a_rate_limit_with_many_due_commands_lets_other_tasks_run() {
    const COUNT: u64 = 5_000;
    check(0..10, async |host: Host| {
        let (turns, passed) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (seen, passes) = (Arc::clone(&turns), Arc::clone(&passed));
        let handler = handler::inline(move |ask: Ask| {
            passes.lock().unwrap().push((ask.0, seen.load(Ordering::SeqCst)));
            ask.0
        });
        let handler = RateLimit::new(handler, 10_000_000, SEC).burst(1);
        let asks = async |ctx: Context| {
            let all = join_all((0..COUNT).map(|n| ctx.perform(Ask(n)))).await;
            assert!(all.iter().all(Result::is_ok));
            Ok::<_, Exit>(())
        };
        let asks = layered(&host, handler).spawn(asks);
        let other = host.spawn(async move |ctx: Context| {
            loop {
                turns.fetch_add(1, Ordering::SeqCst);
                ctx.yield_now().await;
            }
        });
        asks.await.unwrap();
        other.abort();
        let passed = std::mem::take(&mut *passed.lock().unwrap());
        assert!(passed.iter().map(|(n, _)| *n).eq(0..COUNT));
        // A simulation may run the rate limit several times before the simulation runs the other process.
        let most = passed.chunk_by(|one, next| one.1 == next.1).map(<[_]>::len).max().unwrap();
        assert!(most <= 16 * 64, "{most} commands in a row");
    });
}

/// 3.2e: layers can be nested in any order. Each command is answered exactly once.
#[test]
fn layers_can_be_nested_in_any_order() {
    type Elsewhere = fn(Host, Box<dyn FnOnce() + Send>);
    fn flaky(elsewhere: Elsewhere) -> impl Handler<Ask> {
        let count = AtomicUsize::new(0);
        move |ask: Ask, completion: Completion<u64>| {
            let count = count.fetch_add(1, Ordering::SeqCst);
            match count % 5 {
                0 => completion.fail("no"),
                1 => drop(completion),
                2 => panic!("oh"),
                3 => elsewhere(completion.host().clone(), Box::new(move || completion.complete(ask.0))),
                _ => completion.complete(ask.0),
            }
        }
    }
    async fn asks(host: Host) {
        let asks: Vec<_> = (0..40).map(|n| ask(&host, n)).collect();
        let answers = join_all(asks).await;
        for (n, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.unwrap(), n as u64);
        }
        let counters = host.counters();
        assert_eq!((counters.yields, counters.completions, counters.discarded), (40, 40, 0));
    }
    fn all_answered<H: Handler<Ask>>(layers: impl Fn(Elsewhere) -> H + Send + Sync + 'static) {
        within(60, move || {
            let rt = runtime(2, layers(|_, answer| drop(thread::spawn(answer))));
            rt.block_on(asks(rt.host().clone()));
            let in_turn: Elsewhere = |host, answer| host.spawn_future(async { answer() });
            check(0..10, |host| asks(layered(&host, layers(in_turn))));
        });
    }
    all_answered(|to| Retry::new(Timeout::new(flaky(to), LONG), 60, MS).ceiling(2 * MS).jitter());
    let fast = 100_000;
    let zero = Duration::ZERO;
    all_answered(move |to| ConcurrencyLimit::new(Retry::new(RateLimit::new(flaky(to), fast, MS), 60, zero), 3));
    all_answered(move |to| Timeout::new(Retry::new(ConcurrencyLimit::new(flaky(to), 2), 60, zero), LONG));
    all_answered(move |to| {
        let inner = RateLimit::new(Timeout::new(ConcurrencyLimit::new(flaky(to), 2), LONG), fast, MS);
        RateLimit::new(Timeout::new(Retry::new(inner, 60, zero), LONG), fast, MS)
    });
    all_answered(|to| Retry::new(Retry::new(Retry::new(flaky(to), 1, MS), 2, MS), 60, MS));
}

/// 3.2e: two runtimes share a rate limit. One of these runtimes runs the task that serves the queue. Then this runtime
/// is dropped. The waiting command of the other runtime is still answered.
#[test]
fn a_shared_rate_limit_outlives_one_of_its_runtimes() {
    for seed in 0..10 {
        let limit = RateLimit::new(handler::inline(|ask: Ask| ask.0), 1, SEC);
        let new = || Simulation::with_host(seed, HostBuilder::new("").handler(limit.clone())).unwrap();
        let (mut one, mut other) = (new(), new());
        let first = ask(one.host(), 1);
        assert_eq!(one.run(first).unwrap(), 1);
        // Each runtime has one command in the queue. The first runtime runs the task that serves the queue.
        let _second = ask(one.host(), 2);
        let third = ask(other.host(), 3);
        for simulation in [&mut one, &mut other] {
            let host = simulation.host().clone();
            simulation.run(host.sleep(MS));
        }
        drop(one);
        let host = other.host().clone();
        other.run(host.sleep(LONG));
        assert_eq!(third.now_or_never().expect("it is answered").unwrap(), 3);
    }
}

/// 3.2e: the clocks of two runtimes that share a rate limit show different times. In both runtimes, the limit lets the
/// next command pass one period after the previous command.
#[test]
fn a_shared_rate_limit_does_not_compare_the_clocks_of_its_runtimes() {
    for seed in 0..10 {
        let limit = RateLimit::new(handler::inline(|ask: Ask| ask.0), 1, SEC);
        let new = || Simulation::with_host(seed, HostBuilder::new("").handler(limit.clone())).unwrap();
        let (mut old, mut young) = (new(), new());
        let host = old.host().clone();
        old.run(host.sleep(LONG));
        for n in 0..6 {
            let simulation = if n % 2 == 0 { &mut old } else { &mut young };
            let host = simulation.host().clone();
            let begun = host.now();
            assert_eq!(simulation.run(ask(&host, n)).unwrap(), n);
            assert_eq!(host.now() - begun, if n == 0 { Duration::ZERO } else { SEC });
        }
    }
}

/// 3.2e, 3.5a: a time limit inside a retry fails one attempt, and the command is retried. A time limit around a retry
/// ends all attempts.
#[test]
fn a_retry_repeats_after_an_inner_time_limit_and_ends_at_an_outer_time_limit() {
    check(0..10, async |host: Host| {
        for is_in_time in [true, false] {
            let (shelf, begun) = (Shelf::default(), host.now());
            let asked = ask(&layered(&host, Retry::new(Timeout::new(shelf.clone(), 5 * SEC), 1, SEC)), 1);
            host.sleep(5 * SEC + MS).await;
            let (_, first) = shelf.take();
            assert!(first.is_cancelled());
            drop(first);
            host.sleep(SEC - 2 * MS).await;
            assert_eq!(shelf.len(), 0);
            host.sleep(2 * MS).await;
            let (_, second) = shelf.take();
            assert!(!second.is_cancelled());
            if is_in_time {
                second.complete(5);
                assert_eq!(asked.await.unwrap(), 5);
                assert_eq!(host.now() - begun, 6 * SEC + MS);
            } else {
                let exit = asked.await.unwrap_err();
                assert!(matches!(exit.error(), Some(Failure::TimedOut)), "{exit:?}");
                assert!(second.is_cancelled());
                assert_eq!(host.now() - begun, 11 * SEC);
            }
        }
        let script = Script::new((0..100).map(|_| Err("no".into())));
        let (retry, limit) = (Retry::new(script.clone(), u32::MAX, SEC).ceiling(SEC), 20 * SEC + SEC / 2);
        let (answer, took) = timed(&host, Timeout::new(retry, limit)).await;
        assert!(matches!(answer, Err(Failure::TimedOut)), "{answer:?}");
        assert_eq!((script.asked(), took), (21, limit));
        host.sleep(LONG).await;
        assert_eq!(script.asked(), 21);
    });
}

/// 3.3c: commands wait in the layers of a runtime. When the runtime is dropped, the runtime releases all its resources.
#[test]
fn a_runtime_can_be_dropped_while_commands_wait_in_its_layers() {
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
            // A worker may still own a reference until the worker exits.
            while Arc::strong_count(&held) != 1 {
                thread::yield_now();
            }
        }
    });
}

/// 3.3c: the answer of an attempt wakes the task that awaits `cancelled` of this attempt. Nevertheless, the command
/// continues with the next attempt.
#[test]
fn an_answered_attempt_wakes_the_task_that_waits_for_its_cancellation() {
    let shelf = Shelf::default();
    let rt = runtime(0, Retry::new(shelf.clone(), 1, LONG));
    let asks = rt.spawn(async |ctx: Context| Ok::<_, Exit>(ctx.perform(Ask(1)).await));
    settle(&rt);
    let (_, completion) = shelf.try_take().unwrap();
    let (waker, count) = counting_waker();
    let mut cancelled = completion.cancelled();
    assert!(cancelled.poll_unpin(&mut std::task::Context::from_waker(&waker)).is_pending());
    completion.fail("no");
    assert_eq!(count.load(Ordering::SeqCst), 1);
    assert!(cancelled.now_or_never().is_some());
    rt.kill(asks.pid()).unwrap();
}

/// 3.2e, 3.3c: in each attempt of a retry, the handler polls and then drops futures of the method `cancelled`. The
/// command keeps no waker of a dropped future.
#[test]
fn a_dropped_cancellation_future_leaves_no_waker_in_its_command() {
    const MOST: usize = 1_000;
    /// The wakers of all futures.
    #[derive(Default)]
    struct Wakers {
        all: Mutex<Vec<std::sync::Weak<AtomicUsize>>>,
        most_alive: AtomicUsize,
    }
    struct Counts(Arc<AtomicUsize>);
    impl std::task::Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    impl Wakers {
        /// Polls the future with a new waker.
        fn poll(&self, future: &mut Unwanted) {
            let count = Arc::new(AtomicUsize::new(0));
            self.all.lock().unwrap().push(Arc::downgrade(&count));
            let waker = Arc::new(Counts(count)).into();
            let _ = future.poll_unpin(&mut std::task::Context::from_waker(&waker));
            drop(waker);
            self.most_alive.fetch_max(self.alive(), Ordering::SeqCst);
        }
        fn alive(&self) -> usize {
            self.all.lock().unwrap().iter().filter(|waker| waker.strong_count() != 0).count()
        }
    }
    let wakers = Arc::new(Wakers::default());
    let (polled, attempts) = (Arc::clone(&wakers), AtomicUsize::new(0));
    let handler = move |_: Ask, completion: Completion<u64>| {
        let (mut one, mut other) = (completion.cancelled(), completion.cancelled());
        // A further poll replaces the waker.
        (0..3).for_each(|_| polled.poll(&mut one));
        polled.poll(&mut other);
        drop((one, other));
        match attempts.fetch_add(1, Ordering::SeqCst) {
            MOST => completion.complete(5),
            _ => completion.fail("no"),
        }
    };
    let rt = runtime(0, Retry::new(handler, u32::MAX, Duration::ZERO));
    assert_eq!(rt.block_on(ask(rt.host(), 1)).unwrap(), 5);
    assert_eq!((wakers.most_alive.load(Ordering::SeqCst), wakers.alive()), (2, 0));
}

/// 3.3c: several futures await the cancellation of one command, and some of them are dropped. The cancellation wakes
/// each remaining future, and only the remaining futures.
#[test]
fn a_dropped_future_of_a_cancellation_does_not_affect_other_futures() {
    let shelf = Shelf::default();
    for layered in [false, true] {
        let rt = if layered { runtime(0, Timeout::new(shelf.clone(), LONG)) } else { runtime(0, shelf.clone()) };
        let asks = rt.spawn(async |ctx: Context| Ok::<_, Exit>(ctx.perform(Ask(1)).await));
        settle(&rt);
        let (_, completion) = shelf.try_take().unwrap();
        let (wakers, counts): (Vec<_>, Vec<_>) = (0..6).map(|_| counting_waker()).unzip();
        let mut futures: Vec<_> = wakers.iter().map(|_| Some(completion.cancelled())).collect();
        let poll = |futures: &mut [Option<Unwanted>], at: usize, waker: usize| {
            let cx = &mut std::task::Context::from_waker(&wakers[waker]);
            assert!(futures[at].as_mut().unwrap().poll_unpin(cx).is_pending());
        };
        (0..5).for_each(|at| poll(&mut futures, at, at));
        (futures[0], futures[2]) = (None, None);
        futures[5] = Some(completion.cancelled());
        poll(&mut futures, 5, 5);
        // Two futures have the same waker, and one of them is dropped.
        poll(&mut futures, 4, 3);
        futures[4] = None;
        rt.kill(asks.pid()).unwrap();
        settle(&rt);
        // When a layer ends its call of the handler, the layer wakes the future a second time.
        let woken: Vec<_> = counts.iter().map(|count| count.load(Ordering::SeqCst) != 0).collect();
        assert_eq!(woken, [false, true, false, true, false, true]);
        assert!(futures.into_iter().flatten().all(|future| future.now_or_never().is_some()));
    }
}

/// Returns a waker, and a counter of its wake-ups.
fn counting_waker() -> (std::task::Waker, Arc<AtomicUsize>) {
    struct Counts(Arc<AtomicUsize>);
    impl std::task::Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let count = Arc::new(AtomicUsize::new(0));
    (std::task::Waker::from(Arc::new(Counts(Arc::clone(&count)))), count)
}

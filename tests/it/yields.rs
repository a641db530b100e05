//! Sections 3 and 4.4 of the specification: commands, handlers, completions, and the wake-ups that completions cause.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{Either, select};
use procession::*;

use crate::{step_aside, two, within};

/// Command whose completion the handler stores. The test answers this command later.
struct Ask(u64);
impl Command for Ask {
    type Reply = u64;
}

/// Handler of `Ask` that stores the completions.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<Vec<(u64, Completion<u64>)>>>);

impl Handler<Ask> for Shelf {
    fn handle(&self, command: Ask, completion: Completion<u64>) {
        self.0.lock().unwrap().push((command.0, completion));
    }
}

impl Shelf {
    fn take(&self) -> Completion<u64> {
        self.0.lock().unwrap().remove(0).1
    }
}

/// A process that performs one command, counts its steps and records the answers that it receives.
struct Once {
    tag: Option<Tag<Ask>>,
    steps: Arc<AtomicUsize>,
    answers: Arc<Mutex<Vec<Result<u64, Failure>>>>,
    ends: bool,
}

impl Process for Once {
    type Message = ();
    type Output = ();
    fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
        self.steps.fetch_add(1, Ordering::SeqCst);
        for event in events {
            match event {
                Event::Completed(done) => {
                    let answer = done.take(self.tag.take().expect("one")).expect("the only one");
                    self.answers.lock().unwrap().push(answer);
                    if self.ends {
                        return Ok(Next::Done(()));
                    }
                }
                Event::Cancel { .. } => return Ok(Next::Done(())),
                _ => {}
            }
        }
        if self.steps.load(Ordering::SeqCst) == 1 {
            self.tag = Some(out.perform(Ask(1)));
        }
        Ok(Next::Wait)
    }
}

struct Counted {
    steps: Arc<AtomicUsize>,
    answers: Arc<Mutex<Vec<Result<u64, Failure>>>>,
}

fn once(rt: &Runtime, ends: bool) -> (JoinHandle<(), ()>, Counted) {
    let counted = Counted { steps: Arc::default(), answers: Arc::default() };
    let process = Once { tag: None, steps: counted.steps.clone(), answers: counted.answers.clone(), ends };
    (rt.spawn_process(process), counted)
}

/// Runs all runnable processes of a runtime without workers.
fn settle(rt: &Runtime) {
    for _ in 0..10 {
        rt.block_on(step_aside());
    }
}

/// 3.3a, 4.4a, 4.4c: a step performs a command. After this step, the thread that runs the process completes the
/// command. The completion queues the process exactly once.
#[test]
fn a_completion_after_the_step_queues_the_process_once() {
    let shelf = Shelf::default();
    let rt = Runtime::builder().workers(0).handler(shelf.clone()).build().unwrap();
    let (handle, counted) = once(&rt, false);
    settle(&rt);
    assert_eq!((rt.counters().polls, counted.steps.load(Ordering::SeqCst)), (1, 1));
    shelf.take().complete(5);
    settle(&rt);
    assert_eq!((rt.counters().polls, counted.steps.load(Ordering::SeqCst)), (2, 2));
    assert!(matches!(counted.answers.lock().unwrap()[..], [Ok(5)]));
    drop(handle);
}

/// 4.4a, 4.4c: another thread completes a command after the step that performed this command. The completion queues the
/// process exactly once.
#[test]
fn a_completion_from_another_thread_queues_the_process_once() {
    let shelf = Shelf::default();
    let rt = Runtime::builder().workers(0).handler(shelf.clone()).build().unwrap();
    let (_handle, counted) = once(&rt, false);
    settle(&rt);
    let completion = shelf.take();
    std::thread::spawn(move || completion.complete(6)).join().unwrap();
    settle(&rt);
    assert_eq!((rt.counters().polls, counted.steps.load(Ordering::SeqCst)), (2, 2));
    assert!(matches!(counted.answers.lock().unwrap()[..], [Ok(6)]));
}

/// 3.4a: an inline answer causes another step of the process in the same turn. The counters show two steps and one
/// poll.
#[test]
fn an_inline_answer_bypasses_the_queues() {
    let rt = Runtime::builder().workers(0).handle(|c: Ask| c.0 + 1).build().unwrap();
    let (handle, counted) = once(&rt, true);
    rt.block_on(handle).unwrap();
    assert_eq!((rt.counters().polls, rt.counters().steps, counted.steps.load(Ordering::SeqCst)), (1, 2, 2));
    assert!(matches!(counted.answers.lock().unwrap()[..], [Ok(2)]));
    let body = rt.spawn(async |ctx: Context| ctx.perform(Ask(4)).await);
    assert_eq!(rt.block_on(body).unwrap(), 5);
    assert_eq!(rt.counters().polls, 2);
}

/// 4.4b: a command is completed during a step of its process, either by the thread of this step or by another thread.
/// The completion causes exactly one more step.
#[test]
fn a_completion_during_the_step_queues_the_process_once() {
    struct During {
        shelf: Shelf,
        elsewhere: bool,
        steps: usize,
        tag: Option<Tag<Ask>>,
    }
    impl Process for During {
        type Message = ();
        type Output = usize;
        fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<usize>, Exit> {
            self.steps += 1;
            let mut answered = 0;
            for event in events {
                if let Event::Completed(done) = event {
                    assert_eq!(done.take(self.tag.take().expect("one")).expect("the only one")?, 3);
                    answered += 1;
                }
            }
            match self.steps {
                1 => self.tag = Some(out.perform(Ask(1))),
                2 => {
                    assert_eq!(answered, 0);
                    let completion = self.shelf.take();
                    if self.elsewhere {
                        std::thread::spawn(move || completion.complete(3)).join().unwrap();
                    } else {
                        completion.complete(3);
                    }
                }
                3 => assert_eq!(answered, 1),
                _ => panic!("once too often"),
            }
            Ok(Next::Wait)
        }
    }
    for elsewhere in [false, true] {
        let shelf = Shelf::default();
        let rt = Runtime::builder().workers(0).handler(shelf.clone()).build().unwrap();
        let handle = rt.spawn_process(During { shelf, elsewhere, steps: 0, tag: None });
        settle(&rt);
        handle.send(()).unwrap();
        settle(&rt);
        assert_eq!(rt.counters().steps, 3);
        assert!(!handle.is_finished());
    }
}

/// 3.3c: if a process has exited, a later answer to one of its commands is discarded and counted. The value of this
/// answer is dropped exactly once.
#[test]
fn a_completion_after_the_exit_is_discarded() {
    struct Value(#[expect(dead_code)] Arc<()>);
    struct Give;
    impl Command for Give {
        type Reply = Value;
    }
    let kept = Arc::new(Mutex::new(None));
    let keep = kept.clone();
    let rt = Runtime::builder()
        .workers(0)
        .handler(move |_: Give, completion: Completion<Value>| *keep.lock().unwrap() = Some(completion))
        .build()
        .unwrap();
    let handle = rt.spawn(async |ctx: Context| ctx.perform(Give).await.map(drop));
    settle(&rt);
    handle.abort();
    assert!(matches!(rt.block_on(handle), Err(Exit::Killed)));
    let completion = kept.lock().unwrap().take().unwrap();
    assert!(completion.is_cancelled());
    let value = Arc::new(());
    completion.complete(Value(value.clone()));
    assert_eq!((Arc::strong_count(&value), rt.counters().discarded), (1, 1));
}

/// 3.3e: `complete_yield` refuses the pid of an exited process, an unknown tag, the tag of an answered command, and an
/// answer of the wrong type. The error returns the answer.
#[test]
fn the_method_complete_yield_refuses_an_invalid_answer() {
    let shelf = Shelf::default();
    let rt = Runtime::builder().workers(0).handler(shelf.clone()).build().unwrap();
    let (handle, counted) = once(&rt, false);
    settle(&rt);
    let (pid, tag) = shelf.take().into_tag();
    assert_eq!(pid, handle.pid());

    let refused = rt.complete_yield(pid, tag, Ok(Payload::new("text"))).unwrap_err();
    assert_eq!(refused.kind(), SendErrorKind::WrongType { expected: "u64" });
    rt.complete_yield(pid, tag, Ok(Payload::new(8_u64))).unwrap();
    let refused = rt.complete_yield(pid, tag, Ok(Payload::new(9_u64))).unwrap_err();
    assert_eq!(refused.kind(), SendErrorKind::Spent);
    assert_eq!(refused.into_message().unwrap().downcast::<u64>().unwrap(), 9);
    let unknown = Tag::<Payload>::chosen(12);
    let refused = rt.complete_yield(pid, unknown, Err(Failure::Abandoned)).unwrap_err();
    assert_eq!(refused.kind(), SendErrorKind::UnknownTag);
    settle(&rt);
    assert!(matches!(counted.answers.lock().unwrap()[..], [Ok(8)]));
    handle.abort();
    let _ = rt.block_on(handle);
    let refused = rt.complete_yield(pid, tag, Err(Failure::Abandoned)).unwrap_err();
    assert_eq!(refused.kind(), SendErrorKind::NoProcess);
}

/// 3.3a, 3.3e: several threads answer one command by its tag. Exactly one of these answers is accepted.
#[test]
fn exactly_one_of_many_answers_to_a_command_is_accepted() {
    let shelf = Shelf::default();
    let rt = Runtime::builder().workers(2).handler(shelf.clone()).build().unwrap();
    for _ in 0..100 {
        let body = rt.spawn(async |ctx: Context| ctx.perform(Ask(0)).await);
        while shelf.0.lock().unwrap().is_empty() {
            std::thread::yield_now();
        }
        let (pid, tag) = shelf.take().into_tag();
        let counted = Arc::new(AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for n in 0..4_u64 {
                let (host, counted) = (rt.host().clone(), counted.clone());
                scope.spawn(move || {
                    if host.complete_yield(pid, tag, Ok(Payload::new(n))).is_ok() {
                        counted.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(counted.load(Ordering::SeqCst), 1);
        assert!(rt.block_on(body).unwrap() < 4);
    }
}

/// 3.1d: a command without a handler completes with a failure, and the failure names the command. The process
/// continues.
#[test]
fn a_command_without_a_handler_fails_and_the_failure_names_the_command() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let body = rt.spawn(async |ctx: Context| {
        let typed = ctx.perform(Ask(1)).await.unwrap_err();
        let named = ctx.perform(NamedCommand::new("fs.read")).await.unwrap_err();
        Ok::<_, Exit>((typed.to_string(), named.to_string()))
    });
    let (typed, named) = rt.block_on(body).unwrap();
    assert!(typed.contains("Ask"), "{typed}");
    assert!(named.contains("fs.read"), "{named}");
}

/// 3.1b: if a command or a name has two handlers, the build fails. The error names the command.
#[test]
fn a_build_with_a_duplicate_handler_fails() {
    let twice = Runtime::builder().handle(|c: Ask| c.0).handle(|c: Ask| c.0).build().unwrap_err();
    assert!(matches!(&twice, BuildError::DuplicateHandler(name) if name.contains("Ask")), "{twice}");
    let named = |_: NamedCommand, completion: Completion<Payload>| completion.complete(Payload::new(()));
    let twice = Runtime::builder().handler_named("x", named).handler_named("x", named).build().unwrap_err();
    assert!(matches!(&twice, BuildError::DuplicateHandler(name) if name == "x"), "{twice}");
    // A handler for the type `NamedCommand` would receive all commands with names, so the handler for the name `x`
    // would never be called.
    let both = [
        Runtime::builder().handler(named).handler_named("x", named),
        Runtime::builder().handler_named("x", named).handler(named),
    ];
    for builder in both {
        assert!(matches!(builder.build(), Err(BuildError::DuplicateHandler(_))));
    }
    assert!(Runtime::builder().handler(named).build().is_ok());
}

/// 3.1c: a command with a name reaches the handler for this name, together with the payloads of the command.
#[test]
fn named_commands_reach_their_handler() {
    let rt = Runtime::builder()
        .workers(0)
        .handler_named("add", |c: NamedCommand, completion: Completion<Payload>| {
            let sum: u64 = c.payloads.into_iter().filter_map(|n| n.downcast::<u64>().ok()).sum();
            completion.complete(Payload::new(sum));
        })
        .build()
        .unwrap();
    let body = rt.spawn(async |ctx: Context| {
        let sum = ctx.perform(NamedCommand::new("add").arg(2_u64).arg(3_u64)).await?;
        Ok::<_, Exit>(sum.downcast::<u64>().unwrap())
    });
    assert_eq!(rt.block_on(body).unwrap(), 5);
}

struct Fail(&'static str);
impl Command for Fail {
    type Reply = u64;
}

/// 3.1a, 3.1b, 3.2a, 3.2b, 3.2c: a handler can answer in four ways: inline, later, by a future, or by a blocking
/// closure. An error or a panic of the handler becomes a failure of the command.
#[test]
fn every_kind_of_handler_can_answer_or_fail_or_panic() {
    fn behave(c: &Fail) -> Result<u64, std::io::Error> {
        match c.0 {
            "panic" => panic!("as told"),
            "error" => Err(std::io::Error::other("as told")),
            _ => Ok(1),
        }
    }
    let builders = [
        Runtime::builder().handle(|c: Fail| behave(&c)),
        Runtime::builder().handle_async(async |c: Fail| behave(&c)),
        Runtime::builder().handle_blocking(|c: Fail| behave(&c)),
        Runtime::builder().handler(|c: Fail, completion: Completion<u64>| match behave(&c) {
            Ok(n) => completion.complete(n),
            Err(error) => completion.fail(Failure::new(error)),
        }),
        Runtime::builder().handler(|c: Fail, completion: Completion<u64>| {
            std::thread::spawn(move || completion.finish(handler_result(c)));
        }),
    ];
    fn handler_result(c: Fail) -> Result<u64, Failure> {
        match catch_unwind(|| behave(&c)) {
            Ok(result) => result.map_err(Failure::new),
            Err(_) => Err(Failure::Panicked("as told".into())),
        }
    }
    for builder in builders {
        within(20, move || {
            let rt = builder.workers(2).build().unwrap();
            let body = rt.spawn(async |ctx: Context| {
                assert_eq!(ctx.perform(Fail("")).await.unwrap(), 1);
                let error = ctx.perform(Fail("error")).await.unwrap_err();
                assert!(error.error::<std::io::Error>().is_some(), "{error:?}");
                let panic = ctx.perform(Fail("panic")).await.unwrap_err();
                assert!(matches!(&panic, Failure::Panicked(text) if text.as_str() == "as told"), "{panic:?}");
                assert_eq!(ctx.perform(Fail("")).await.unwrap(), 1);
            });
            rt.block_on(body).unwrap();
        });
    }
}

/// 3.3b: if a completion is dropped without an answer, the command completes with `Abandoned`.
#[test]
fn a_command_is_abandoned_if_its_completion_is_dropped() {
    let rt = Runtime::builder().workers(0).handler(|_: Ask, _: Completion<u64>| {}).build().unwrap();
    let body = rt.spawn(async |ctx: Context| ctx.perform(Ask(1)).await);
    match rt.block_on(body) {
        Err(exit) => assert!(matches!(exit.error::<Failure>(), Some(Failure::Abandoned)), "{exit:?}"),
        Ok(n) => panic!("{n}"),
    }
}

/// 3.3b: if a handler runs on a thread that is already unwinding, only a panic of the handler itself makes the command
/// fail with `Panicked`.
#[test]
fn a_command_can_be_abandoned_on_a_thread_that_is_unwinding() {
    struct OnDrop<F: FnMut()>(F);
    impl<F: FnMut()> Drop for OnDrop<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    let handler = |Ask(n): Ask, completion: Completion<u64>| {
        if n == 2 {
            // `resume_unwind` calls no panic hook, so no backtrace is printed.
            resume_unwind(Box::new("the handler panics"));
        }
        if n == 0 {
            return drop(completion);
        }
        drop(completion.intercept(move |answer, outer| if n == 3 { outer.complete(40) } else { outer.finish(answer) }));
    };
    let rt = Runtime::builder().workers(0).handler(handler).build().unwrap();
    let mut results = Vec::new();
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _performs = OnDrop(|| {
            let perform = |n| rt.block_on(rt.spawn(async move |ctx: Context| ctx.perform(Ask(n)).await));
            results = [0, 1, 2, 3].map(perform).into();
        });
        panic!("the thread unwinds");
    }));
    assert!(unwound.is_err());
    let failure = |n: usize| results[n].as_ref().unwrap_err().error::<Failure>();
    assert!(matches!(failure(0), Some(Failure::Abandoned)), "{results:?}");
    assert!(matches!(failure(1), Some(Failure::Abandoned)), "{results:?}");
    assert!(matches!(failure(2), Some(Failure::Panicked(_))), "{results:?}");
    assert!(matches!(results[3], Ok(40)), "{results:?}");
}

/// 3.3c, 3.5a: a handler can ask whether its command is cancelled, and can wait for the cancellation.
#[test]
fn a_handler_can_query_and_await_the_cancellation() {
    let shelf = Shelf::default();
    let limit = Duration::from_secs(1);
    let mut simulation = Simulation::with_host(1, HostBuilder::new("").handler(shelf.clone())).unwrap();
    let body = simulation.spawn(async move |ctx: Context| ctx.perform(Ask(1)).timeout(limit).await);
    let exit = simulation.run(body).unwrap_err();
    assert!(matches!(exit.error::<Failure>(), Some(Failure::TimedOut)), "{exit:?}");
    assert!(shelf.take().is_cancelled());

    let rt = Runtime::builder().workers(2).handler(shelf.clone()).build().unwrap();
    let body = rt.spawn(async |ctx: Context| ctx.perform(Ask(2)).await);
    while shelf.0.lock().unwrap().is_empty() {
        std::thread::yield_now();
    }
    let completion = shelf.take();
    assert!(!completion.is_cancelled());
    let cancelled = completion.cancelled();
    body.abort();
    within(10, move || futures::executor::block_on(cancelled));
}

/// 3.2a, 3.3c: when a command is cancelled, the future of its async handler is dropped.
#[test]
fn the_future_of_an_async_handler_is_dropped_with_its_command() {
    struct Told(std::sync::mpsc::Sender<()>);
    impl Drop for Told {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let (told, hears) = std::sync::mpsc::channel();
    let (told, begun) = (Mutex::new(told), Arc::new(AtomicBool::new(false)));
    let begins = Arc::clone(&begun);
    let rt = Runtime::builder()
        .workers(2)
        .handle_async(move |_: Ask| {
            begins.store(true, Ordering::SeqCst);
            let told = Told(told.lock().unwrap().clone());
            async move {
                let _told = told;
                std::future::pending::<u64>().await
            }
        })
        .build()
        .unwrap();
    // On a slow machine, the time limit may pass before the process issues the command. Then the handler gets no
    // command, and the test tries again.
    while !begun.load(Ordering::SeqCst) {
        let body = rt.spawn(async |ctx: Context| ctx.perform(Ask(1)).timeout(Duration::from_millis(2)).await);
        assert!(rt.block_on(body).is_err());
    }
    hears.recv_timeout(Duration::from_secs(10)).expect("its future is dropped");
}

/// 3.4a, 4.6b: inline answers use up the budget of a process. Then other processes run.
#[test]
fn inline_answers_use_up_the_budget_of_a_process() {
    let rt = Runtime::builder().workers(0).handle(|c: Ask| c.0).build().unwrap();
    let greedy = rt.spawn(async |ctx: Context| -> Result<(), Failure> {
        loop {
            ctx.perform(Ask(1)).await?;
        }
    });
    let modest = rt.spawn(async |_: Context| {});
    rt.block_on(modest).unwrap();
    assert!(!greedy.is_finished());
    assert!(rt.counters().budget_yields <= 2);
}

/// 3.2e: a layer is a handler that contains another handler. The layer receives the answer of the inner handler and may
/// change this answer.
#[test]
fn a_layer_can_change_the_answer_of_its_handler() {
    struct PlusOne<H>(H);
    impl<H: Handler<Ask>> Handler<Ask> for PlusOne<H> {
        fn handle(&self, command: Ask, completion: Completion<u64>) {
            self.0.handle(command, completion.intercept(|answer, outer| outer.finish(answer.map(|n| n + 1))));
        }
    }
    struct Lazy;
    impl Handler<Ask> for Lazy {
        fn handle(&self, _: Ask, completion: Completion<u64>) {
            drop(completion.intercept(|answer, outer| match answer {
                Err(Failure::Abandoned) => outer.complete(40),
                other => outer.finish(other),
            }));
        }
    }
    let rt = Runtime::builder().workers(0).handler(PlusOne(PlusOne(Lazy))).build().unwrap();
    let body = rt.spawn(async |ctx: Context| ctx.perform(Ask(1)).await);
    assert_eq!(rt.block_on(body).unwrap(), 42);
}

/// 3.2a, 4.7i, 4.9c: closures run on the blocking pool, and the size of this pool is bounded. The caller gets the
/// result of the closure, the panic of the closure, or the reason why the pool refused the closure.
#[test]
fn the_blocking_pool_runs_closures() {
    let rt = two();
    let body = rt.spawn(async |ctx: Context| {
        let n = ctx.host().spawn_blocking(|| 5).await?;
        let panic = ctx.host().spawn_blocking(|| -> u64 { panic!("in there") }).await.unwrap_err();
        assert!(matches!(&panic, Failure::Panicked(text) if text.as_str() == "in there"));
        Ok::<_, Exit>(n)
    });
    assert_eq!(rt.block_on(body).unwrap(), 5);
    let none = Runtime::builder().workers(0).max_blocking_threads(0).handle_blocking(|c: Ask| c.0).build().unwrap();
    let refused = none.block_on(none.spawn_blocking(|| 1)).unwrap_err();
    assert!(refused.to_string().contains("blocking"), "{refused}");
    let refused = none.block_on(none.spawn(async |ctx: Context| ctx.perform(Ask(1)).await)).unwrap_err();
    assert!(refused.to_string().contains("blocking"), "{refused}");
}

/// A command of another type.
struct Other(u64);
impl Command for Other {
    type Reply = u64;
}

/// A stream command.
struct Count(u64);
impl Command for Count {
    type Reply = ();
}
impl StreamCommand for Count {
    type Item = u64;
}

/// Instruction of a script: the next command or sleep.
#[derive(Debug, Clone, Copy)]
enum Now {
    Ask,
    Other,
    Chosen,
    Stream,
    Sleep,
    /// Performs an `Ask` and cancels this command immediately.
    GiveUp,
}

/// A process that executes all `moves` in its first step. Later the process counts the answers, and checks that each
/// tag gets exactly one answer.
struct Script {
    moves: Vec<Now>,
    flying: std::collections::HashSet<Tag>,
}

impl Process for Script {
    type Message = ();
    type Output = usize;
    fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<usize>, Exit> {
        let mut answered = 0;
        for event in events {
            if let Event::Completed(done) = event {
                assert!(self.flying.remove(&done.tag()));
                answered += 1;
            }
        }
        for (n, now) in std::mem::take(&mut self.moves).into_iter().enumerate() {
            let n = n as u64;
            let tag = match now {
                Now::Ask => out.perform(Ask(n)).erase(),
                Now::Other => out.perform(Other(n)).erase(),
                Now::Stream => out.stream(Count(n)).erase(),
                Now::Sleep => out.sleep(Duration::from_secs(n)).erase(),
                Now::Chosen => {
                    let tag = Tag::chosen(n as u32);
                    out.perform_as(tag, Ask(n)).unwrap();
                    tag.erase()
                }
                Now::GiveUp => {
                    let tag = out.perform(Ask(n));
                    assert!(out.cancel_yield(tag) && !out.cancel_yield(tag));
                    continue;
                }
            };
            assert!(self.flying.insert(tag), "{now:?} has the tag of another");
        }
        if self.flying.is_empty() { Ok(Next::Done(answered)) } else { Ok(Next::Wait) }
    }
}

/// 1.2b: the commands of a step are dispatched in the order in which the step performs them. The step may perform
/// commands of several types, and several commands of one type in a row. If a command is cancelled in the same step,
/// the command is not dispatched. Each command has its own tag and gets exactly one answer.
#[test]
fn many_commands_of_a_step_are_dispatched_in_order() {
    for seed in 0..200_u64 {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (asks, others, counts) = (heard.clone(), heard.clone(), heard.clone());
        let host = HostBuilder::new("")
            .handle(move |c: Ask| {
                asks.lock().unwrap().push(c.0);
                c.0
            })
            .handle(move |c: Other| {
                others.lock().unwrap().push(c.0);
                c.0
            })
            .stream_handler(move |c: Count, replies: StreamCompletion<Count>| {
                counts.lock().unwrap().push(c.0);
                replies.complete(());
            });
        let mut simulation = Simulation::with_host(seed, host).unwrap();
        // The script contains runs of equal instructions. The length of each run is random.
        let mut chance = seed;
        let mut draw = |below: u64| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (chance >> 33) % below
        };
        let all = [Now::Ask, Now::Other, Now::Chosen, Now::Stream, Now::Sleep, Now::GiveUp];
        let mut moves = Vec::new();
        for _ in 0..draw(12) {
            let (now, times) = (all[draw(6) as usize], draw(30));
            moves.extend((0..times).map(|_| if draw(9) == 0 { Now::GiveUp } else { now }));
        }
        let commands = moves.iter().enumerate().filter(|(_, now)| !matches!(now, Now::Sleep | Now::GiveUp));
        let expected: Vec<_> = commands.map(|(n, _)| n as u64).collect();
        let script = simulation.spawn_process(Script { moves, flying: Default::default() });
        simulation.run(script).unwrap();
        assert_eq!(*heard.lock().unwrap(), expected, "seed {seed}");
    }
}

/// 1.2b, 6.5d: all commands that a step performs count as outstanding, except the commands that the step cancels.
#[test]
fn commands_that_a_step_performs_are_outstanding() {
    for count in 0..40 {
        let shelf = Shelf::default();
        let mut simulation = Simulation::with_host(1, HostBuilder::new("").handler(shelf.clone())).unwrap();
        let mut moves = vec![Now::Ask; count];
        moves.extend([Now::GiveUp; 3]);
        moves.push(Now::Ask);
        let script = simulation.spawn_process(Script { moves, flying: Default::default() });
        simulation.run(script.started()).unwrap();
        let report = simulation.shutdown(Duration::ZERO);
        assert_eq!(report.left.iter().map(|left| left.outstanding).collect::<Vec<_>>(), [count + 1]);
        assert_eq!(shelf.0.lock().unwrap().drain(..).count(), count + 1);
    }
}

/// 1.2g, 4.8a: a step performs commands and then panics. Each of these commands is still dispatched exactly once.
#[test]
fn the_commands_of_a_panicking_step_are_dispatched() {
    struct Falls(u64);
    impl Process for Falls {
        type Message = ();
        type Output = ();
        fn step(&mut self, _: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
            for n in 0..self.0 {
                out.perform(Ask(n));
            }
            panic!("in its step");
        }
    }
    for count in [0, 1, 2, 3, 4, 9, 30] {
        let shelf = Shelf::default();
        let mut simulation = Simulation::with_host(1, HostBuilder::new("").handler(shelf.clone())).unwrap();
        let falls = simulation.spawn_process(Falls(count));
        let exit = simulation.run(falls).unwrap_err();
        assert!(matches!(&exit, Exit::Panicked(text) if text.as_str().contains("in its step")), "{exit}");
        let heard: Vec<_> = shelf.0.lock().unwrap().drain(..).collect();
        assert!(heard.iter().map(|(n, _)| *n).eq(0..count));
        assert!(heard.iter().all(|(_, completion)| completion.is_cancelled()));
    }
}

/// 3.5a: a step performs many commands. Each command may have its own time limit.
#[test]
fn each_of_many_commands_may_have_its_own_time_limit() {
    struct Limits(std::collections::HashMap<Tag<Ask>, u64>);
    impl Process for Limits {
        type Message = ();
        type Output = Vec<u64>;
        fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<Vec<u64>>, Exit> {
            for event in events {
                if let Event::Completed(done) = event {
                    let (tag, n) = self.0.iter().find(|(tag, _)| tag.erase() == done.tag()).expect("it is one of them");
                    let (tag, n) = (*tag, *n);
                    assert!(matches!(done.take(tag), Ok(Err(Failure::TimedOut))) && n % 3 == 0);
                    self.0.remove(&tag);
                }
            }
            if self.0.is_empty() {
                for n in 0..30 {
                    let tag = out.perform(Ask(n));
                    if n % 3 == 0 {
                        out.set_timeout(tag, Duration::from_secs(n));
                    }
                    self.0.insert(tag, n);
                }
            }
            if self.0.len() == 20 { Ok(Next::Done(self.0.values().copied().collect())) } else { Ok(Next::Wait) }
        }
    }
    let shelf = Shelf::default();
    let mut simulation = Simulation::with_host(1, HostBuilder::new("").handler(shelf.clone())).unwrap();
    let begun = simulation.now();
    let limits = simulation.spawn_process(Limits(Default::default()));
    let mut left = simulation.run(limits).unwrap();
    left.sort_unstable();
    assert_eq!(left, (0..30).filter(|n| n % 3 != 0).collect::<Vec<_>>());
    assert_eq!(simulation.now() - begun, Duration::from_secs(27));
    // The time limit of the first command is zero, so this command times out before it is dispatched.
    assert_eq!(shelf.0.lock().unwrap().drain(..).count(), 29);
}

/// 3.5a: a hand-written process delegates its steps to a body. The body waits for a command that began on the inline
/// path, and the process cancels this command by its tag. The body receives the cancellation.
#[test]
fn a_body_receives_the_cancellation_of_a_command_that_began_inline() {
    struct Delegates(EntryPoints<(), Failure>, Arc<Mutex<Option<Tag>>>);
    impl Process for Delegates {
        type Message = ();
        type Output = Failure;

        fn init(&mut self, start: Start<'_>) -> Result<(), InitError> {
            self.0.init(start)
        }

        fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<Failure>, Exit> {
            if let Some(tag) = self.1.lock().unwrap().take() {
                assert!(out.cancel_yield(tag));
            }
            self.0.step(events, out)
        }
    }
    let shelf = Shelf::default();
    let rt = Runtime::builder().workers(0).handler(shelf.clone()).build().unwrap();
    let body = async |mut ctx: Context<()>, (): ()| -> Result<Failure, Exit> {
        // The message wakes the body. The future of the command is polled first.
        match select(ctx.perform(Ask(1)), pin!(ctx.receive())).await {
            Either::Left((answer, _)) => Ok(answer.expect_err("it is cancelled")),
            Either::Right(_) => panic!("the body has not received the cancellation"),
        }
    };
    let tag = Arc::default();
    let process = Delegates(EntryPoints::new().entry("", body), Arc::clone(&tag));
    let process = rt.process().entry("").input(()).spawn_process(process).unwrap();
    settle(&rt);
    let completion = shelf.take();
    *tag.lock().unwrap() = Some(completion.tag());
    process.send(()).unwrap();
    assert_eq!(rt.block_on(process).unwrap(), Failure::Cancelled);
    drop(completion);
}

//! Section 3 of the specification: commands, their deadlines and their failures. Some handlers return a future, some
//! run in the blocking pool, and some answer inline.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak, mpsc};
use std::task::{Context as Cx, Poll};
use std::thread;
use std::time::Duration;

use futures::channel::oneshot;
use futures::executor::block_on;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use procession::future::*;
use procession::*;

use crate::{step_aside, within};

/// Command whose handler stores the completion and answers later.
struct Ask(u64);
impl Command for Ask {
    type Reply = u64;
}

/// Handler of `Ask`. The handler stores the completions until the test takes them.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<Vec<Completion<u64>>>>);

impl Handler<Ask> for Shelf {
    fn handle(&self, _: Ask, completion: Completion<u64>) {
        self.0.lock().unwrap().push(completion);
    }
}

impl Shelf {
    /// Removes and returns the newest completion. Panics if no completion is stored.
    fn take(&self) -> Completion<u64> {
        self.0.lock().unwrap().pop().expect("it was asked")
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn runtime(&self, workers: usize) -> Runtime {
        Runtime::builder().workers(workers).handler(self.clone()).build().unwrap()
    }

    /// Adds a host with this handler to the runtime of `host`.
    fn host(&self, host: &Host) -> Host {
        host.add_host(HostBuilder::new("shelf").handler(self.clone())).unwrap()
    }
}

fn settle(rt: &Runtime) {
    for _ in 0..10 {
        rt.block_on(step_aside());
    }
}

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_millis(1);

/// A hand-written process that runs one closure in its first step. The process logs the answers of its commands. The
/// process also receives closures as messages, and logs the results of these closures.
struct Notes<F> {
    begin: Option<F>,
    log: Arc<Mutex<Vec<String>>>,
}

type Out<'a, 'b> = &'a mut StepOutput<'b, Again>;

/// Message with a closure. The process runs the closure in a step and logs the returned text.
struct Again(Box<dyn FnOnce(Out<'_, '_>) -> String + Send>);

impl<F: FnOnce(Out<'_, '_>) + Send + 'static> Process for Notes<F> {
    type Message = Again;
    type Output = ();
    fn step(&mut self, events: Events<'_, Again>, out: Out<'_, '_>) -> Result<Next<()>, Exit> {
        if let Some(begin) = self.begin.take() {
            begin(out);
        }
        for event in events {
            let note = match event {
                Event::Completed(done) => match done.into_result() {
                    Ok(payload) => payload.downcast::<u64>().unwrap().to_string(),
                    Err(failure) => failure.to_string(),
                },
                Event::Message(Again(what)) => what(out),
                _ => continue,
            };
            self.log.lock().unwrap().push(note);
        }
        Ok(Next::Wait)
    }
}

/// Yields a command with a time limit.
fn perform_within<M: Send + 'static>(out: &mut StepOutput<'_, M>, time: Duration, command: Ask) -> Tag<Ask> {
    let tag = out.perform(command);
    out.set_timeout(tag, time);
    tag
}

struct Noted {
    handle: JoinHandle<(), Again>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Noted {
    fn spawn(host: &Host, begin: impl FnOnce(Out<'_, '_>) + Send + 'static) -> Self {
        let log = Arc::<Mutex<Vec<String>>>::default();
        let handle = host.spawn_process(Notes { begin: Some(begin), log: log.clone() });
        Self { handle, log }
    }

    fn tell(&self, rt: &Runtime, what: impl FnOnce(Out<'_, '_>) -> String + Send + 'static) {
        self.handle.send(Again(Box::new(what))).unwrap();
        settle(rt);
    }

    fn log(&self) -> String {
        std::mem::take(&mut *self.log.lock().unwrap()).join(", ")
    }
}

// ---- Deadlines

/// 3.5a: a command times out at its deadline, even if the future of the command is not polled. The completion of the
/// command is then cancelled.
#[test]
fn a_command_times_out_without_being_polled() {
    for detached in [false, true] {
        check(0..10, async |host: Host| {
            let (shelf, begun) = (Shelf::default(), host.now());
            let host = shelf.host(&host);
            let (go, gate) = oneshot::channel::<()>();
            let body = host.spawn(async move |ctx: Context| {
                let perform = ctx.perform(Ask(1)).timeout(LONG);
                let perform = if detached {
                    perform.detach();
                    None
                } else {
                    Some(perform.start())
                };
                gate.await?;
                if let Some(perform) = perform {
                    assert!(matches!(perform.await, Err(Failure::TimedOut)));
                }
                Ok::<_, BoxError>(())
            });
            host.sleep(LONG - TICK).await;
            let completion = shelf.take();
            assert!(!completion.is_cancelled());
            completion.cancelled().await;
            assert_eq!(host.now() - begun, LONG);
            assert!(completion.is_cancelled());
            completion.complete(1);
            go.send(()).unwrap();
            body.await.unwrap();
            assert_eq!(host.counters().discarded, 1);
        });
    }
}

/// 3.5a, 11: a command with a time limit of zero fails and does not reach its handler. An enormous time limit never
/// expires. If a command has several time limits, the shortest limit applies. A time limit also applies if the process
/// sets the limit while the command is in flight.
#[test]
fn unusual_time_limits_of_a_command_are_accepted() {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);
    check(0..10, async |host: Host| {
        let (shelf, begun) = (Shelf::default(), host.now());
        let host = shelf.host(&host);
        let body = host.spawn(async |ctx: Context| {
            let zero = ctx.perform(Ask(1)).timeout(Duration::ZERO);
            assert!(matches!(zero.await, Err(Failure::TimedOut)));
            let nearest = ctx.perform(Ask(1)).timeout(LONG).timeout(Duration::ZERO).timeout(LONG);
            assert!(matches!(nearest.await, Err(Failure::TimedOut)));
            let flying = ctx.perform(Ask(1)).start().timeout(Duration::ZERO);
            assert!(matches!(flying.await, Err(Failure::TimedOut)));
        });
        body.await.unwrap();
        assert_eq!(host.now(), begun);
        let noted = Noted::spawn(&host, |out| {
            perform_within(out, Duration::ZERO, Ask(1));
        });
        host.sleep(TICK).await;
        assert_eq!((noted.log(), shelf.len()), (Failure::TimedOut.to_string(), 0));

        let enormous = Duration::from_secs(u64::MAX / 1_000_000_000);
        for (never, wait) in [(Duration::MAX, CENTURY), (enormous, CENTURY), (LONG, LONG - 2 * TICK)] {
            let body = host.spawn(async move |ctx: Context| ctx.perform(Ask(1)).timeout(never).await);
            let noted = Noted::spawn(&host, move |out| {
                perform_within(out, never, Ask(1));
            });
            host.sleep(wait).await;
            assert_eq!(shelf.len(), 2);
            shelf.take().complete(5);
            shelf.take().complete(5);
            assert_eq!(body.await.unwrap(), 5);
            host.sleep(TICK).await;
            assert_eq!(noted.log(), "5");
        }
        // Two time limits are set before the start of the command, and one time limit is set after the start. The
        // shortest limit applies.
        let begun = host.now();
        let body = host.spawn(async |ctx: Context| {
            ctx.perform(Ask(1)).timeout(LONG).timeout(SHORT).start().timeout(2 * SHORT).await.map(drop)
        });
        assert!(body.await.is_err());
        assert_eq!(host.now() - begun, SHORT);
    });
}

/// 3.5a: a hand-written process can set deadlines too. The process receives each timeout once.
#[test]
fn a_hand_written_process_can_set_deadlines() {
    check(0..10, async |host: Host| {
        let (shelf, begun) = (Shelf::default(), host.now());
        let host = shelf.host(&host);
        let noted = Noted::spawn(&host, |out| {
            let tag = perform_within(out, SHORT, Ask(1));
            out.set_timeout(tag, LONG);
            // A sleep has a tag like a command, so the process can set a time limit for the sleep.
            let sleep = out.sleep(LONG);
            out.set_timeout(sleep, SHORT);
        });
        host.sleep(SHORT - TICK).await;
        let completion = shelf.take();
        assert_eq!((completion.is_cancelled(), noted.log().as_str()), (false, ""));
        completion.cancelled().await;
        assert_eq!(host.now() - begun, SHORT);
        host.sleep(TICK).await;
        assert_eq!(noted.log(), format!("{0}, {0}", Failure::TimedOut));
        completion.complete(2);
        host.sleep(LONG).await;
        assert_eq!((noted.log().as_str(), host.counters().discarded), ("", 1));
    });
}

/// 3.3a, 3.5a: if a command is answered at the moment when its deadline passes, the command completes once. The command
/// completes either with the answer or with the failure `TimedOut`. The process and the handler agree whether the
/// command was answered in time.
#[test]
fn a_race_of_a_deadline_and_an_answer_gives_exactly_one_result() {
    within(60, || {
        let shelf = Shelf::default();
        let rt = shelf.runtime(2);
        // The number of commands that timed out although the test completed these commands.
        let mut late = 0;
        for round in 0..400_u64 {
            let limit = Duration::from_micros(50 + round % 300);
            let body = rt.spawn(async move |ctx: Context| match ctx.perform(Ask(1)).timeout(limit).await {
                Ok(7) => Ok(true),
                Err(Failure::TimedOut) => Ok(false),
                other => Err(format!("{other:?}")),
            });
            let completion = loop {
                if let Some(completion) = shelf.0.lock().unwrap().pop() {
                    break Some(completion);
                }
                if body.is_finished() {
                    break shelf.0.lock().unwrap().pop();
                }
                thread::yield_now();
            };
            let is_completed = completion.is_some();
            if let Some(completion) = completion {
                if round % 2 == 0 {
                    thread::sleep(limit);
                }
                completion.complete(7);
            }
            let is_answered = rt.block_on(body).unwrap();
            assert!(is_completed || !is_answered);
            late += u64::from(is_completed && !is_answered);
        }
        let host = rt.host().clone();
        drop(rt);
        assert_eq!(host.counters().discarded, late);
    });
    // An answer one tick before the deadline is in time, and an answer one tick after the deadline is late. If the
    // answer arrives exactly at the deadline, the process gets the answer under some seeds, and a timeout under the
    // other seeds.
    let times_out = |at: Duration| {
        let (runs, times_out) = (Cell::new(0), Cell::new(0));
        check(0..40, async |host: Host| {
            let shelf = Shelf::default();
            let host = shelf.host(&host);
            let body = host.spawn(async |ctx: Context| Ok::<_, Exit>(ctx.perform(Ask(1)).timeout(LONG).await));
            host.sleep(at).await;
            let completion = shelf.take();
            let is_too_late = completion.is_cancelled();
            completion.complete(7);
            match body.await.unwrap() {
                Ok(answer) => assert!(!is_too_late && answer == 7),
                Err(failure) => assert!(is_too_late && matches!(failure, Failure::TimedOut), "{failure:?}"),
            }
            assert_eq!(host.counters().discarded, u64::from(is_too_late));
            runs.update(|runs| runs + 1);
            times_out.update(|times| times + i32::from(is_too_late));
        });
        // `check` may run a seed twice, so this test counts the runs itself.
        (times_out.get(), runs.get())
    };
    assert_eq!(times_out(LONG - TICK).0, 0);
    let (late, all) = times_out(LONG + TICK);
    assert_eq!(late, all);
    let (some, all) = times_out(LONG);
    assert!((1..all).contains(&some));
}

// ---- Cancelled commands

/// 1.2h, 3.3a, 3.3d: a command can be cancelled in every state. `cancel_yield` returns true only if the command has no
/// answer yet.
#[test]
fn a_command_can_be_cancelled_in_every_state() {
    let shelf = Shelf::default();
    let rt = shelf.runtime(0);
    let noted = Noted::spawn(&rt, |out| {
        // This command is cancelled before its dispatch, so the command does not reach the handler.
        let tag = out.perform(Ask(1));
        assert!(out.cancel_yield(tag) && !out.cancel_yield(tag));
        // The process has chosen the tag of this command. This command is also cancelled before its dispatch.
        // Immediately after the cancellation, another command reuses the tag.
        let chosen = Tag::<Ask>::chosen(7);
        out.perform_as(chosen, Ask(1)).unwrap();
        assert!(out.perform_as(chosen, Ask(2)).is_err());
        assert!(out.cancel_yield(chosen));
        out.perform_as(chosen, Ask(3)).unwrap();
        assert!(out.perform_as(tag, Ask(4)).is_err(), "not a chosen one");
    });
    settle(&rt);
    assert_eq!(shelf.len(), 1);
    let completion = shelf.take();
    assert!(!completion.is_cancelled());
    // Cancels the command in flight.
    noted.tell(&rt, |out| out.cancel_yield(Tag::<Ask>::chosen(7)).to_string());
    assert!(completion.is_cancelled());
    assert_eq!(noted.log(), "true");
    completion.complete(1);
    // Each of the following three cancellations returns false. The answer of the first command has arrived but is
    // unread, so the cancellation discards this answer. The answer of the second command was already read. The third
    // tag belongs to no command.
    noted.tell(&rt, |out| {
        out.perform_as(Tag::chosen(8), Ask(1)).unwrap();
        "asked".into()
    });
    let again = shelf.clone();
    noted.tell(&rt, move |out| {
        again.take().complete(2);
        out.cancel_yield(Tag::<Ask>::chosen(8)).to_string()
    });
    noted.tell(&rt, |out| {
        out.perform_as(Tag::chosen(9), Ask(1)).unwrap();
        String::from("asked")
    });
    shelf.take().complete(3);
    settle(&rt);
    noted.tell(&rt, |out| out.cancel_yield(Tag::<Ask>::chosen(9)).to_string());
    noted.tell(&rt, |out| out.cancel_yield(Tag::<Ask>::chosen(10)).to_string());
    assert_eq!(noted.log(), "asked, false, asked, 3, false, false");
    // A command is cancelled while its answer is unread, and the tag of the command is reused immediately for a new
    // command. The unread answer does not complete the new command.
    noted.tell(&rt, |out| {
        out.perform_as(Tag::chosen(11), Ask(1)).unwrap();
        String::from("asked")
    });
    let again = shelf.clone();
    noted.tell(&rt, move |out| {
        again.take().complete(4);
        let in_flight = out.cancel_yield(Tag::<Ask>::chosen(11));
        out.perform_as(Tag::chosen(11), Ask(1)).unwrap();
        in_flight.to_string()
    });
    shelf.take().complete(5);
    settle(&rt);
    assert_eq!(noted.log(), "asked, false, 5");
}

/// 1.2h: a process chooses the tag of a command. When a step has read the answer of this command, the process may reuse
/// the tag. If the same step reuses the tag for a second command, the second command is answered too.
#[test]
fn a_tag_is_free_again_in_the_step_that_reads_the_answer_of_its_command() {
    const ROUNDS: u64 = 100;
    #[derive(Default)]
    struct Reuses {
        has_begun: bool,
        answers: u64,
    }
    impl Process for Reuses {
        type Message = ();
        type Output = u64;
        fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<u64>, Exit> {
            let tag = Tag::<Ask>::chosen(7);
            if !std::mem::replace(&mut self.has_begun, true) {
                out.perform_as(tag, Ask(0)).unwrap();
            }
            for event in events {
                if let Event::Completed(done) = event {
                    assert_eq!(done.take(tag).unwrap()?, self.answers);
                    self.answers += 1;
                    if self.answers == ROUNDS {
                        return Ok(Next::Done(self.answers));
                    }
                    out.perform_as(tag, Ask(self.answers)).expect("the tag is free");
                    assert!(out.perform_as(tag, Ask(0)).is_err(), "it is in flight again");
                }
            }
            Ok(Next::Wait)
        }
    }
    // If the handler is inline, the answer exists when the step returns. If the handler is not inline, the answer
    // arrives later.
    let inline = Runtime::builder().workers(0).handle(|c: Ask| c.0).build().unwrap();
    assert_eq!(inline.block_on(inline.spawn_process(Reuses::default())).unwrap(), ROUNDS);
    let shelf = Shelf::default();
    let rt = shelf.runtime(0);
    let reuses = rt.spawn_process(Reuses::default());
    for n in 0..ROUNDS {
        settle(&rt);
        shelf.take().complete(n);
    }
    assert_eq!(rt.block_on(reuses).unwrap(), ROUNDS);
    assert_eq!((shelf.len(), rt.counters().discarded), (0, 0));
}

/// 1.3d, 3.3a: 100,000 commands have unread answers. Cancelling all these commands takes linear time.
#[test]
fn cancelling_very_many_answered_commands_takes_linear_time() {
    struct Asking(Vec<Tag<Ask>>);
    impl Process for Asking {
        type Message = ();
        type Output = usize;
        fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<usize>, Exit> {
            if self.0.is_empty() {
                self.0 = (0..100_000).map(|n| out.perform(Ask(n))).collect();
                return Ok(Next::Wait);
            }
            // The first iteration reads the first answer, and then cancels all commands, the newest command first.
            let mut read = 0;
            for event in events {
                read += usize::from(matches!(event, Event::Completed(_)));
                self.0.drain(..).rev().for_each(|tag| assert!(!out.cancel_yield(tag)));
            }
            Ok(Next::Done(read))
        }
    }
    within(60, || {
        let shelf = Shelf::default();
        let rt = shelf.runtime(0);
        let asking = rt.spawn_process(Asking(Vec::new()));
        settle(&rt);
        let all = std::mem::take(&mut *shelf.0.lock().unwrap());
        all.into_iter().for_each(|completion| completion.complete(0));
        assert_eq!(rt.block_on(asking).unwrap(), 1);
    });
}

/// 1.3d, 3.3a: a step cancels very many commands whose tags the process has chosen, the newest command first. A later
/// step cancels commands that were already dispatched. During this second step, very many other commands wait for their
/// dispatch. Both steps take linear time. Each command that is not cancelled before its dispatch reaches the handler.
/// These commands reach the handler in the order in which the process performed the commands.
#[test]
fn cancelling_very_many_commands_with_chosen_tags_takes_linear_time() {
    const MANY: u32 = 300_000;
    within(60, || {
        let shelf = Shelf::default();
        let rt = shelf.runtime(0);
        let tags = || (0..MANY).map(Tag::<Ask>::chosen);
        let noted = Noted::spawn(&rt, move |out| {
            tags().for_each(|tag| out.perform_as(tag, Ask(0)).unwrap());
            tags().rev().filter(|tag| *tag != Tag::<Ask>::chosen(5)).for_each(|tag| assert!(out.cancel_yield(tag)));
            out.perform_as(Tag::chosen(4), Ask(0)).unwrap();
            assert!(out.cancel_yield(Tag::<Ask>::chosen(4)));
            out.perform_as(Tag::chosen(4), Ask(0)).unwrap();
        });
        settle(&rt);
        let reached = || std::mem::take(&mut *shelf.0.lock().unwrap());
        let first = reached();
        let tags_of_first: Vec<_> = first.iter().map(Completion::tag).collect();
        assert_eq!(tags_of_first, [5, 4].map(|number| Tag::<Ask>::chosen(number).erase()));
        noted.tell(&rt, move |out| {
            tags().skip(6).for_each(|tag| out.perform_as(tag, Ask(0)).unwrap());
            String::new()
        });
        let second = reached();
        assert_eq!(second.len(), MANY as usize - 6);
        noted.tell(&rt, move |out| {
            let waiting: Vec<_> = (0..MANY).map(|_| out.perform(Ask(0))).collect();
            tags().skip(6).for_each(|tag| assert!(out.cancel_yield(tag)));
            out.cancel_yield(waiting[0]).to_string()
        });
        assert_eq!((reached().len(), noted.log()), (MANY as usize - 1, ", true".into()));
        assert!(second.iter().all(Completion::is_cancelled) && !first.iter().any(Completion::is_cancelled));
    });
}

/// 1.2b, 3.3a: a command may be answered before its dispatch, while the handler of an earlier command runs. The
/// answered command then does not reach its handler. This holds for tags that the process has chosen, and for tags that
/// the runtime has chosen. The other commands of the step reach their handlers.
#[test]
fn if_a_command_is_answered_before_its_dispatch_the_command_reaches_no_handler() {
    struct First;
    impl Command for First {
        type Reply = u64;
    }
    for (first_chosen, second_chosen) in [(false, false), (false, true), (true, false), (true, true)] {
        let shelf = Shelf::default();
        let second = Arc::new(Mutex::new(None::<(Host, Pid, Tag)>));
        let known = Arc::clone(&second);
        let answers = move |_: First, completion: Completion<u64>| {
            let (host, pid, tag) = known.lock().unwrap().take().unwrap();
            // Another thread gives the answer. If the handler itself gave the answer, the result of the test would be
            // the same.
            let elsewhere = thread::spawn(move || host.complete_yield(pid, tag, Ok(Payload::new(2_u64))).unwrap());
            elsewhere.join().unwrap();
            completion.complete(1);
        };
        let rt = Runtime::builder().workers(0).handler(shelf.clone()).handler(answers).build().unwrap();
        let noted = Noted::spawn(&rt, move |out| {
            out.perform(Ask(0));
            match first_chosen {
                true => out.perform_as(Tag::chosen(1), First).unwrap(),
                false => drop(out.perform(First)),
            }
            out.perform(Ask(0));
            let tag = match second_chosen {
                true => {
                    out.perform_as(Tag::chosen(2), Ask(0)).unwrap();
                    Tag::<Ask>::chosen(2).erase()
                }
                false => out.perform(Ask(0)).erase(),
            };
            *second.lock().unwrap() = Some((out.host().clone(), out.pid(), tag));
            out.perform(Ask(0));
        });
        settle(&rt);
        assert_eq!((shelf.len(), noted.log().as_str()), (3, "2, 1"), "{first_chosen} {second_chosen}");
    }
}

/// 1.3b, 3.2a: a process performs a command. This command contains a second command future of the same process. The
/// second future has not been polled yet. The handler polls the second future during the turn of the process, and this
/// poll performs the inner command. The inner command reaches its handler after all commands that the process performed
/// earlier.
#[test]
fn a_handler_may_poll_a_command_of_its_process() {
    struct Poll(Mutex<Option<Perform<Ask>>>);
    impl Command for Poll {
        type Reply = Perform<Ask>;
    }
    for others in 0..3 {
        let order = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::new(Mutex::new(None::<(Completion<Perform<Ask>>, Perform<Ask>)>));
        let (polls, asks) = (Arc::clone(&order), Arc::clone(&order));
        let (keeps, takes) = (Arc::clone(&kept), kept);
        let polls = move |command: Poll, completion: Completion<Perform<Ask>>| {
            polls.lock().unwrap().push(100);
            let mut inner = command.0.lock().unwrap().take().unwrap();
            assert!((&mut inner).now_or_never().is_none());
            *keeps.lock().unwrap() = Some((completion, inner));
        };
        let asks = move |command: Ask, completion: Completion<u64>| {
            asks.lock().unwrap().push(command.0);
            completion.complete(command.0 + 1);
            if command.0 == 7 {
                let (completion, inner) = takes.lock().unwrap().take().unwrap();
                completion.complete(inner);
            }
        };
        let rt = Runtime::builder().workers(0).handler(polls).handler(asks).build().unwrap();
        let body = rt.spawn(async move |ctx: Context| {
            let outer = ctx.perform(Poll(Mutex::new(Some(ctx.perform(Ask(7)))))).start();
            let others: Vec<_> = (0..others).map(|n| ctx.perform(Ask(n)).start()).collect();
            let inner = outer.await.map_err(Exit::failed)?;
            for (n, other) in (0..).zip(others) {
                assert_eq!(other.await.unwrap(), n + 1);
            }
            inner.await.map_err(Exit::failed)
        });
        assert_eq!(within(20, move || rt.block_on(body)).unwrap(), 8);
        let expected: Vec<u64> = [100].into_iter().chain(0..others).chain([7]).collect();
        assert_eq!(*order.lock().unwrap(), expected);
    }
}

/// 1.2a, 3.3a: many answers arrive together, and the process reads these answers in one step. If the process cancels a
/// command whose answer is unread, the process does not receive this answer. If the answer was already read, the
/// cancellation has no effect. If the process performs a new command in the same step, the new command gets its own
/// answer, and not an answer to an earlier command.
#[test]
fn commands_with_unread_answers_can_be_cancelled() {
    struct Asking {
        tags: Vec<Tag<Ask>>,
        log: Arc<Mutex<Vec<u64>>>,
    }
    impl Process for Asking {
        type Message = ();
        type Output = ();
        fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
            if self.tags.is_empty() {
                self.tags = (0..100).map(|n| out.perform(Ask(n))).collect();
            }
            for event in events {
                let Event::Completed(done) = event else { continue };
                let n = done.into_result().unwrap().downcast::<u64>().unwrap();
                self.log.lock().unwrap().push(n);
                if n == 40 {
                    assert!(self.tags.iter().skip(1).step_by(2).all(|&tag| !out.cancel_yield(tag)));
                }
                if n < 100 {
                    out.perform(Ask(100 + n));
                }
            }
            Ok(Next::Wait)
        }
    }
    let shelf = Shelf::default();
    let rt = shelf.runtime(0);
    let log = Arc::<Mutex<Vec<u64>>>::default();
    let asking = rt.spawn_process(Asking { tags: Vec::new(), log: log.clone() });
    let answer = |from: u64| {
        settle(&rt);
        let all = std::mem::take(&mut *shelf.0.lock().unwrap());
        (from..).zip(all).for_each(|(n, completion)| completion.complete(n));
        settle(&rt);
        std::mem::take(&mut *log.lock().unwrap())
    };
    let wanted = (0..100).filter(|n| *n <= 40 || n % 2 == 0);
    assert_eq!(answer(0), wanted.clone().collect::<Vec<_>>());
    assert_eq!(answer(100), (100..).take(wanted.count()).collect::<Vec<_>>());
    assert_eq!((asking.is_finished(), rt.counters().discarded), (false, 0));
}

/// 9.2a, 9.2b: an answered command is no longer outstanding, although the process has not read the answer yet. Some
/// commands are answered through their completions, and the other commands are answered through their tags. Each
/// command accepts one answer.
#[test]
fn a_command_with_an_unread_answer_is_not_outstanding() {
    let shelf = Shelf::default();
    let rt = shelf.runtime(0);
    let (send, tags) = mpsc::channel();
    let asking = Noted::spawn(&rt, move |out| (0..40).for_each(|n| send.send(out.perform(Ask(n)).erase()).unwrap()));
    settle(&rt);
    let pid = asking.handle.pid();
    let outstanding = || {
        let details = rt.process_details(pid).unwrap();
        let listed = details.yields.iter().map(|command| command.count).sum();
        assert_eq!([details.info.yields, rt.metrics().processes.outstanding_yields], [listed; 2]);
        listed
    };
    let completions = std::mem::take(&mut *shelf.0.lock().unwrap());
    assert_eq!((completions.len(), outstanding()), (40, 40));
    for (at, (completion, tag)) in completions.into_iter().zip(tags).enumerate() {
        let answer = || rt.complete_yield(pid, tag, Ok(Payload::new(at as u64)));
        assert!(!completion.is_cancelled());
        if at % 3 == 0 {
            answer().unwrap();
            assert!(completion.is_cancelled());
            drop(completion);
        } else {
            completion.complete(at as u64);
        }
        assert_eq!((outstanding(), answer().unwrap_err().kind()), (39 - at, SendErrorKind::Spent));
    }
    assert_eq!(asking.log(), "");
    settle(&rt);
    assert_eq!(asking.log(), (0..40).map(|n| n.to_string()).collect::<Vec<_>>().join(", "));
    assert_eq!((outstanding(), rt.counters().completions), (0, 40));
}

/// 1.3d, 11: 100,000 command futures are polled and dropped in the same step. No command reaches the handler, and
/// dropping the futures takes linear time.
#[test]
fn very_many_commands_can_be_cancelled_in_the_step_that_performs_them() {
    within(60, || {
        let shelf = Shelf::default();
        let rt = shelf.runtime(1);
        let body = rt.spawn(async |ctx: Context| {
            let mut all: FuturesUnordered<_> = (0..100_000).map(|n| ctx.perform(Ask(n))).collect();
            assert!(all.next().now_or_never().is_none());
            drop(all);
            ctx.yield_now().await;
        });
        rt.block_on(body).unwrap();
        assert_eq!(shelf.len(), 0);
    });
}

/// 3.1a, 3.2a, 3.3a, 3.3c, 3.3e, 3.5a: if a step performs many commands, each command has its own tag and its own
/// answer. If a command is cancelled before its dispatch, the command does not reach its handler. A command with a time
/// limit of zero fails. If a command is cancelled or is answered through its tag, the completion of the command is
/// notified. A tag accepts only one answer, and this answer must have the reply type of the command.
#[test]
fn each_of_many_commands_of_a_step_has_its_own_tag_and_answer() {
    let shelf = Shelf::default();
    let rt = shelf.runtime(0);
    let tags = Arc::new(Mutex::new(Vec::new()));
    let keeps = Arc::clone(&tags);
    let noted = Noted::spawn(&rt, move |out| {
        let all: Vec<Tag<Ask>> = (0..100)
            .map(|n| if n % 10 == 7 { perform_within(out, Duration::ZERO, Ask(n)) } else { out.perform(Ask(n)) })
            .collect();
        assert!(all.iter().step_by(10).all(|tag| out.cancel_yield(*tag) && !out.cancel_yield(*tag)));
        *keeps.lock().unwrap() = all;
    });
    settle(&rt);
    let tags = std::mem::take(&mut *tags.lock().unwrap());
    let mut held = std::mem::take(&mut *shelf.0.lock().unwrap());
    assert_eq!((held.len(), rt.counters().yields), (80, 100));
    assert_eq!(noted.log(), vec![Failure::TimedOut.to_string(); 10].join(", "));

    let pid = noted.handle.pid();
    let by_tag = |n: usize, answer: Payload| rt.complete_yield(pid, tags[n].erase(), Ok(answer)).map_err(|e| e.kind());
    assert_eq!(by_tag(5, Payload::new("text")), Err(SendErrorKind::WrongType { expected: "u64" }));
    assert_eq!(by_tag(0, Payload::new(5_u64)), Err(SendErrorKind::Spent));
    assert_eq!(by_tag(5, Payload::new(5_u64)), Ok(()));
    assert_eq!(by_tag(5, Payload::new(6_u64)), Err(SendErrorKind::Spent));
    let unwanted: Vec<_> = held.iter().map(Completion::cancelled).collect();
    let ended = |unwanted: Vec<Unwanted>| unwanted.into_iter().filter_map(FutureExt::now_or_never).count();
    let gives_up = tags[6];
    noted.tell(&rt, move |out| out.cancel_yield(gives_up).to_string());
    assert_eq!((noted.log().as_str(), ended(unwanted)), ("5, true", 2));
    let second = held.split_off(40);
    held.into_iter().for_each(|completion| completion.complete(1));
    assert_eq!(rt.counters().discarded, 2);
    settle(&rt);
    assert_eq!(noted.log(), ["1"].repeat(38).join(", "));
    noted.handle.abort();
    settle(&rt);
    assert!(second.iter().all(Completion::is_cancelled));
    drop(second);
    assert_eq!((rt.counters().discarded, rt.counters().completions), (42, 10 + 1 + 38));
}

// ---- Handlers that are futures

/// 3.2a, 3.4a: if a handler's future is ready at its first poll, the runtime creates no task for this future. The
/// process continues in the same turn.
#[test]
fn the_future_of_a_handler_becomes_no_task_if_the_future_does_not_wait() {
    let rt = Runtime::builder().workers(0).handle_async(async |c: Ask| c.0 + 1).build().unwrap();
    let body = rt.spawn(async |ctx: Context| {
        let mut n = 0;
        for _ in 0..10 {
            n = ctx.perform(Ask(n)).await?;
        }
        Ok::<_, Failure>(n)
    });
    assert_eq!(rt.block_on(body).unwrap(), 10);
    assert_eq!(rt.counters().polls, 1);
}

/// 3.2a: if a handler's future has to wait, the future becomes a task of the runtime. The awaited event wakes this
/// task.
#[test]
fn the_future_of_a_handler_becomes_a_task_if_the_future_waits() {
    let rt = Runtime::builder()
        .workers(0)
        .handle_async(async |c: Ask| {
            step_aside().await;
            let (send, receive) = oneshot::channel();
            thread::spawn(move || send.send(c.0 + 1));
            receive.await
        })
        .build()
        .unwrap();
    let body = rt.spawn(async |ctx: Context| {
        let all: FuturesUnordered<_> = (0..10).map(|n| ctx.perform(Ask(n))).collect();
        Ok::<_, Failure>(all.fold(0, async |sum, n| sum + n.unwrap()).await)
    });
    assert_eq!(rt.block_on(body).unwrap(), 55);
}

/// A future that counts its polls and reports its drop.
struct Watched {
    polls: Arc<AtomicUsize>,
    drops: mpsc::Sender<()>,
    panics: bool,
    waits: bool,
}

impl Future for Watched {
    type Output = u64;
    fn poll(self: Pin<&mut Self>, _: &mut Cx<'_>) -> Poll<u64> {
        self.polls.fetch_add(1, Ordering::SeqCst);
        if self.waits { Poll::Pending } else { Poll::Ready(1) }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.drops.send(());
        if self.panics {
            panic!("in the drop of a handler's future");
        }
    }
}

type Watch = Box<dyn Fn(Ask) -> Watched + Send + Sync>;

/// Returns a handler, the number of polls of the handler's futures, and a channel that reports the drop of each future.
fn watched(panics: bool, waits: bool) -> (Watch, Arc<AtomicUsize>, mpsc::Receiver<()>) {
    let (told, hears) = mpsc::channel();
    let (polls, told) = (Arc::<AtomicUsize>::default(), Mutex::new(told));
    let counts = polls.clone();
    let watch = move |_: Ask| {
        let drops = told.lock().unwrap().clone();
        Watched { polls: counts.clone(), drops, panics, waits }
    };
    (Box::new(watch), polls, hears)
}

/// 3.2a, 3.3c: no matter how a command ends, the future of its handler is dropped immediately, and is dropped only
/// once. If the drop of the future panics, no process fails.
#[test]
fn the_future_of_a_handler_is_dropped_with_the_command() {
    for panics in [false, true] {
        for how in 0..6 {
            within(20, move || {
                let (watch, polls, drops) = watched(panics, true);
                let rt = Runtime::builder().workers(2).handle_async(watch).build().unwrap();
                let (tell, told) = mpsc::channel();
                let body = rt.spawn(async move |ctx: Context| {
                    let perform = ctx.perform(Ask(1)).start();
                    match how {
                        0 => {
                            ctx.yield_now().await;
                            drop(perform);
                        }
                        1 => {
                            ctx.yield_now().await;
                            panic!("as told");
                        }
                        2 => {
                            perform.detach();
                            ctx.yield_now().await;
                            return Ok(());
                        }
                        _ => {
                            ctx.yield_now().await;
                            tell.send(())?;
                            let answer = perform.await;
                            assert!(how == 5 && matches!(answer, Ok(9)), "{answer:?}");
                        }
                    }
                    std::future::pending::<()>().await;
                    Ok::<(), BoxError>(())
                });
                if how >= 3 {
                    told.recv().unwrap();
                }
                match how {
                    3 => body.abort(),
                    4 => drop(rt),
                    5 => rt.complete_yield(body.pid(), tag_of(&rt, &body), Ok(Payload::new(9_u64))).unwrap(),
                    _ => {}
                }
                drops.recv_timeout(Duration::from_secs(10)).expect("it is dropped");
                assert!(drops.try_recv().is_err());
                assert!(polls.load(Ordering::SeqCst) <= 1);
            });
        }
        check(0..10, async |host: Host| {
            let (watch, polls, drops) = watched(panics, true);
            let host = host.add_host(HostBuilder::new("watched").handle_async(watch)).unwrap();
            let begun = host.now();
            let limited = host.spawn(async move |ctx: Context| {
                let perform = ctx.perform(Ask(1)).start();
                assert!(matches!(perform.timeout(LONG).await, Err(Failure::TimedOut)));
                assert_eq!(ctx.now() - begun, LONG);
                std::future::pending::<()>().await;
            });
            host.sleep(LONG - TICK).await;
            assert_eq!((polls.load(Ordering::SeqCst), drops.try_recv().is_ok()), (1, false));
            host.sleep(2 * TICK).await;
            assert_eq!([drops.try_recv().is_ok(), drops.try_recv().is_ok()], [true, false]);
            assert_eq!((polls.load(Ordering::SeqCst), limited.is_finished()), (1, false));
        });
    }
}

/// Returns the tag of the first command of a process.
fn tag_of(rt: &Runtime, body: &Address<Payload>) -> Tag {
    // The handler of `body` is a future, so this handler gets no completion that contains the tag. Therefore the
    // function spawns a process in another runtime, and reads the tag of the first command of this process. Every
    // process numbers its commands in the same way. Both processes call `start`, so the first commands of both
    // processes have the same tag.
    let shelf = Shelf::default();
    let twin = shelf.runtime(0);
    let other = twin.spawn(async |ctx: Context| ctx.perform(Ask(1)).start().await);
    settle(&twin);
    let tag = shelf.take().into_tag().1;
    drop(other);
    assert!(rt.complete_yield(body.pid(), tag, Ok(Payload::new("wrong type"))).is_err());
    tag
}

/// 3.2a: a command is cancelled while a worker polls the future of the handler of this command. The worker finishes
/// this poll, drops the future, and does not poll the future again.
#[test]
fn the_future_of_a_cancelled_command_is_dropped_after_its_current_poll() {
    struct Slow {
        polls: Arc<AtomicUsize>,
        began: mpsc::Sender<()>,
        go: Arc<Mutex<mpsc::Receiver<()>>>,
        dropped: mpsc::Sender<()>,
    }
    impl Future for Slow {
        type Output = u64;
        fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<u64> {
            match self.polls.fetch_add(1, Ordering::SeqCst) {
                0 => cx.waker().wake_by_ref(),
                1 => {
                    self.began.send(()).unwrap();
                    self.go.lock().unwrap().recv().unwrap();
                    cx.waker().wake_by_ref();
                }
                _ => {}
            }
            Poll::Pending
        }
    }
    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.dropped.send(());
        }
    }
    for kills in [false, true] {
        within(20, move || {
            let (began, begins) = mpsc::channel();
            let (release, go) = mpsc::channel();
            let (dropped, drops) = mpsc::channel();
            let (polls, go) = (Arc::<AtomicUsize>::default(), Arc::new(Mutex::new(go)));
            let (counts, senders) = (polls.clone(), Mutex::new((began, dropped)));
            let rt = Runtime::builder()
                .workers(2)
                .handle_async(move |_: Ask| {
                    let (began, dropped) = senders.lock().unwrap().clone();
                    Slow { polls: counts.clone(), began, go: go.clone(), dropped }
                })
                .build()
                .unwrap();
            let (stop, stopped) = oneshot::channel::<()>();
            let body = rt.spawn(async move |ctx: Context| {
                let perform = ctx.perform(Ask(1)).start();
                let _ = stopped.await;
                drop(perform);
            });
            begins.recv_timeout(Duration::from_secs(10)).unwrap();
            if kills {
                body.abort();
                assert!(block_on(body).is_err());
            } else {
                stop.send(()).unwrap();
                block_on(body).unwrap();
            }
            assert!(drops.try_recv().is_err());
            release.send(()).unwrap();
            drops.recv_timeout(Duration::from_secs(10)).expect("it is dropped");
            assert_eq!(polls.load(Ordering::SeqCst), 2);
        });
    }
}

/// 3.2a: a handler's future is dropped before the process receives the answer of this future. If the drop of the future
/// panics, the process still receives the answer.
#[test]
fn the_future_of_a_handler_is_dropped_before_the_answer_arrives() {
    for panics in [false, true] {
        let (watch, _, drops) = watched(panics, false);
        let rt = Runtime::builder().workers(0).handle_async(watch).build().unwrap();
        let drops = Mutex::new(drops);
        let body = rt.spawn(async move |ctx: Context| {
            let answer = ctx.perform(Ask(1)).await?;
            drops.lock().unwrap().try_recv()?;
            Ok::<_, BoxError>(answer)
        });
        assert_eq!(rt.block_on(body).unwrap(), 1);
    }
}

/// 3.2c: if a handler's future panics in its first poll or in a later poll, the command fails.
#[test]
fn a_command_fails_if_the_future_of_its_handler_panics() {
    let rt = Runtime::builder()
        .workers(0)
        .handle_async(async |c: Ask| {
            for _ in 0..c.0 {
                step_aside().await;
            }
            if c.0 < 3 {
                panic!("as told");
            }
            c.0
        })
        .build()
        .unwrap();
    let body = rt.spawn(async |ctx: Context| {
        for n in 0..3 {
            let failure = ctx.perform(Ask(n)).await.unwrap_err();
            assert!(matches!(&failure, Failure::Panicked(text) if text.as_str() == "as told"), "{failure:?}");
        }
        ctx.perform(Ask(3)).await
    });
    assert_eq!(rt.block_on(body).unwrap(), 3);
}

/// 1.3e, 3.2a: a process performs a command, and the handler of this command returns a future. The future cannot
/// perform commands as this process, even if the future is polled in a turn of the process.
#[test]
fn the_future_of_a_handler_cannot_act_as_the_calling_process() {
    struct Lend(SelfHandle, u64);
    impl Command for Lend {
        type Reply = ();
    }
    let rt = Runtime::builder()
        .workers(0)
        .handle(|c: Ask| c.0)
        .handle_async(async |c: Lend| {
            for _ in 0..c.1 {
                step_aside().await;
            }
            assert!(matches!(c.0.perform(Ask(1)).await, Err(Failure::Outside)));
            assert!(!should_yield());
        })
        .build()
        .unwrap();
    let body = rt.spawn(async |ctx: Context| {
        for n in 0..2 {
            ctx.perform(Lend((*ctx).clone(), n)).await?;
        }
        ctx.perform(Ask(4)).await
    });
    assert_eq!(rt.block_on(body).unwrap(), 4);
}

/// 3.4a, 11: a handler's future may drive the runtime in its first poll. A process that runs during this poll may
/// perform a command whose handler also drives the runtime. Each process receives its answer.
#[test]
fn the_future_of_a_handler_may_drive_the_runtime() {
    within(20, || {
        let cell = Arc::<OnceLock<Weak<Runtime>>>::default();
        let known = cell.clone();
        let rt = Runtime::builder()
            .workers(0)
            .handle_async(move |c: Ask| {
                let rt = known.get().and_then(Weak::upgrade).expect("it lives");
                async move {
                    match c.0 {
                        0 => 1,
                        n => {
                            rt.block_on(rt.spawn(async move |ctx: Context| ctx.perform(Ask(n - 1)).await)).unwrap() + 1
                        }
                    }
                }
            })
            .build()
            .unwrap();
        let rt = Arc::new(rt);
        cell.set(Arc::downgrade(&rt)).expect("once");
        let body = rt.spawn(async |ctx: Context| {
            let first = ctx.perform(Ask(5)).await?;
            Ok::<_, Failure>(first + ctx.perform(Ask(2)).await?)
        });
        assert_eq!(rt.block_on(body).unwrap(), 6 + 3);
    });
}

/// 3.2c: a handler panics while the handler holds the completion of a second command. Both commands fail with the text
/// of the panic, for each kind of handler, and for commands with and without a time limit.
#[test]
fn each_command_of_a_panicking_handler_fails_with_the_text_of_the_panic() {
    struct Boom;
    impl Command for Boom {
        type Reply = u64;
    }
    within(20, || {
        let kinds =
            ["handler", "handle", "handle_async", "handle_async, first poll", "handle_async, later", "blocking"];
        for (kind, is_limited) in kinds.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
            let shelf = Shelf::default();
            let builder = Runtime::builder().workers(0).handler(shelf.clone());
            let held = shelf.clone();
            let boom = move || -> u64 {
                let _held = held.take();
                panic!("boom")
            };
            let builder = match kind {
                "handler" => builder.handler(move |_: Boom, _completion: Completion<u64>| {
                    boom();
                }),
                "handle" => builder.handle(move |_: Boom| boom()),
                "handle_async" => builder.handle_async(move |_: Boom| std::future::ready(boom())),
                "blocking" => builder.handle_blocking(move |_: Boom| boom()),
                _ => builder.handle_async(move |_: Boom| {
                    let (boom, waits) = (boom.clone(), kind.ends_with("later"));
                    async move {
                        if waits {
                            step_aside().await;
                        }
                        boom()
                    }
                }),
            };
            let rt = builder.build().unwrap();
            let keeps = rt.spawn(async |ctx: Context| Ok::<_, Exit>(ctx.perform(Ask(1)).await));
            settle(&rt);
            let bursts = rt.spawn(async move |ctx: Context| {
                let perform = ctx.perform(Boom);
                Ok::<_, Exit>(if is_limited { perform.timeout(LONG).await } else { perform.await })
            });
            for answer in [rt.block_on(bursts).unwrap(), rt.block_on(keeps).unwrap()] {
                let is_text = |text: &Reason| text.as_str() == "boom";
                assert!(matches!(&answer, Err(Failure::Panicked(text)) if is_text(text)), "{kind}: {answer:?}");
            }
        }
    });
}

/// 3.2e: the future of a handler drives the runtime after its first wait. A process that runs during this poll owns the
/// completion of a command and panics. The command is abandoned immediately, because no handler has panicked.
#[test]
fn a_panicking_process_abandons_its_completions_while_a_handler_drives_the_runtime() {
    struct Drive;
    impl Command for Drive {
        type Reply = String;
    }
    impl StreamCommand for Drive {
        type Item = ();
    }
    fn abandons(rt: &Runtime, shelf: &Shelf) -> String {
        let asks = rt.spawn(async |ctx: Context| Ok::<_, Exit>(ctx.perform(Ask(1)).await));
        settle(rt);
        let completion = shelf.take();
        let owner = rt.spawn(async move |_: Context| -> Result<(), Exit> {
            let _completion = completion;
            panic!("in the process")
        });
        assert!(matches!(rt.block_on(owner), Err(Exit::Panicked(_))));
        format!("{:?}", rt.block_on(asks).unwrap())
    }
    within(20, || {
        let (shelf, cell) = (Shelf::default(), Arc::<OnceLock<Weak<Runtime>>>::default());
        let parts = || {
            let (shelf, known) = (shelf.clone(), cell.clone());
            move || (shelf.clone(), known.get().and_then(Weak::upgrade).expect("it lives"))
        };
        let (of_future, of_stream) = (parts(), parts());
        let rt = Runtime::builder()
            .workers(0)
            .on_crash(|_| ())
            .handler(shelf.clone())
            .handle_async(move |_: Drive| {
                let (shelf, rt) = of_future();
                async move {
                    step_aside().await;
                    abandons(&rt, &shelf)
                }
            })
            .handle_stream(move |_: Drive, replies: StreamCompletion<Drive>| {
                let (shelf, rt) = of_stream();
                async move {
                    step_aside().await;
                    replies.complete(abandons(&rt, &shelf));
                    Ok::<_, Failure>(())
                }
            })
            .build()
            .unwrap();
        let rt = Arc::new(rt);
        cell.set(Arc::downgrade(&rt)).expect("once");
        let body = rt
            .spawn(async |ctx: Context| Ok::<_, Failure>([ctx.perform(Drive).await?, ctx.stream(Drive).last().await?]));
        assert_eq!(rt.block_on(body).unwrap(), ["Err(Abandoned)", "Err(Abandoned)"]);
    });
}

/// 3.3a, 3.3c: the `cancelled` future of a completion also resolves if another thread has answered the command through
/// its tag.
#[test]
fn an_answer_by_tag_from_another_thread_cancels_the_completion() {
    let shelf = Shelf::default();
    let rt = shelf.runtime(0);
    let body = rt.spawn(async |ctx: Context| ctx.perform(Ask(1)).await);
    settle(&rt);
    let completion = shelf.take();
    let (cancelled, pid, tag) = (completion.cancelled(), completion.pid(), completion.tag());
    let waiter = thread::spawn(move || block_on(cancelled));
    rt.complete_yield(pid, tag, Ok(Payload::new(4_u64))).unwrap();
    within(10, move || waiter.join().unwrap());
    assert!(completion.is_cancelled());
    completion.complete(5);
    assert_eq!(rt.block_on(body).unwrap(), 4);
}

/// 3.3a, 11: two threads concurrently answer 250,000 commands of one process.
#[test]
fn very_many_answers_can_arrive_together() {
    within(100, || {
        const ALL: u64 = 250_000;
        let shelf = Shelf::default();
        let rt = shelf.runtime(1);
        struct Sum {
            has_asked: bool,
            left: u64,
            sum: u64,
        }
        impl Process for Sum {
            type Message = ();
            type Output = u64;
            fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<u64>, Exit> {
                if !std::mem::replace(&mut self.has_asked, true) {
                    for n in 0..ALL {
                        out.perform(Ask(n));
                    }
                }
                for event in events {
                    if let Event::Completed(done) = event {
                        self.left -= 1;
                        self.sum += done.into_result()?.downcast::<u64>().expect("a number");
                    }
                }
                Ok(if self.left == 0 { Next::Done(self.sum) } else { Next::Wait })
            }
        }
        let sum = rt.spawn_process(Sum { has_asked: false, left: ALL, sum: 0 });
        while shelf.len() < ALL as usize {
            thread::yield_now();
        }
        let mut all = std::mem::take(&mut *shelf.0.lock().unwrap());
        let half = all.split_off(all.len() / 2);
        let answerers = [all, half]
            .map(|half| thread::spawn(move || half.into_iter().for_each(|completion| completion.complete(2))));
        assert_eq!(rt.block_on(sum).unwrap(), 2 * ALL);
        answerers.into_iter().for_each(|answerer| answerer.join().unwrap());
    });
}

// ---- The blocking pool

struct Block(Arc<Gate>);
impl Command for Block {
    type Reply = ();
}

/// A gate that blocks closures until the test opens the gate. The gate counts the closures that have reached the gate.
#[derive(Default)]
struct Gate {
    waiting: AtomicUsize,
    open: Mutex<bool>,
    opened: std::sync::Condvar,
}

impl Gate {
    fn wait(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut open = self.open.lock().unwrap();
        while !*open {
            open = self.opened.wait(open).unwrap();
        }
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    fn reached(&self, count: usize) {
        while self.waiting.load(Ordering::SeqCst) < count {
            thread::yield_now();
        }
    }
}

fn is_overloaded(failure: &Failure, why: &str) -> bool {
    matches!(failure, Failure::Overloaded(reason) if reason.as_str().contains(why))
}

/// 4.7i: by default, the blocking pool has at most 64 threads and at most 65,536 waiting closures.
#[test]
fn the_default_blocking_pool_has_64_threads_and_65536_places_in_its_queue() {
    within(120, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let (gate, wait) = mpsc::channel::<()>();
        let (wait, begun) = (Arc::new(Mutex::new(wait)), Arc::new(AtomicUsize::new(0)));
        let running: Vec<_> = (0..64)
            .map(|_| {
                let (wait, begun) = (wait.clone(), begun.clone());
                rt.spawn_blocking(move || {
                    begun.fetch_add(1, Ordering::SeqCst);
                    let _ = wait.lock().unwrap().recv();
                })
            })
            .collect();
        while begun.load(Ordering::SeqCst) < 64 {
            thread::yield_now();
        }
        let mut waiting: Vec<_> = (0..65_536).map(|_| rt.spawn_blocking(|| ())).collect();
        assert!(waiting.iter_mut().all(|closure| closure.now_or_never().is_none()));
        let refused = block_on(rt.spawn_blocking(|| ()));
        assert!(matches!(refused, Err(Failure::Overloaded(_))), "{refused:?}");
        drop(gate);
        assert!(running.into_iter().chain(waiting).all(|closure| block_on(closure) == Ok(())));
    });
}

/// 3.2a, 4.9a, 4.9c: the blocking pool accepts one job for each of its threads and for each place in its queue. Every
/// further job fails immediately, and the failure states the reason.
#[test]
fn the_blocking_pool_accepts_exactly_as_many_jobs_as_its_bounds_allow() {
    within(20, || {
        let gate = Arc::<Gate>::default();
        let builder = Runtime::builder().workers(2).max_blocking_threads(2).blocking_queue_capacity(3);
        let rt = builder.handle_blocking(|c: Block| c.0.wait()).build().unwrap();
        let inside = gate.clone();
        let body = rt.spawn(async move |ctx: Context| {
            let all: Vec<_> = (0..5).map(|_| ctx.perform(Block(inside.clone())).start()).collect();
            ctx.yield_now().await;
            for _ in 0..3 {
                let failure = ctx.perform(Block(inside.clone())).await.unwrap_err();
                assert!(is_overloaded(&failure, "its 2 threads are busy and its queue of 3 has no room"), "{failure}");
                let failure = ctx.host().spawn_blocking(|| ()).await.unwrap_err();
                assert!(is_overloaded(&failure, "its 2 threads are busy and its queue of 3 has no room"), "{failure}");
            }
            inside.reached(2);
            inside.open();
            futures::future::join_all(all).await.into_iter().collect::<Result<Vec<()>, _>>()?;
            // The queue is no longer full.
            ctx.host().spawn_blocking(|| ()).await
        });
        rt.block_on(body).unwrap();
        assert_eq!(gate.waiting.load(Ordering::SeqCst), 5);
    });
}

/// 3.2a, 4.9c: if a process drops the handle of its queued blocking job, or exits, the job never runs. A new job can
/// then take the place of this job in the queue.
#[test]
fn an_abandoned_blocking_job_frees_its_place_in_the_queue() {
    within(20, || {
        let gate = Arc::<Gate>::default();
        let builder = Runtime::builder().workers(0).max_blocking_threads(1).blocking_queue_capacity(2);
        let rt = builder.handle_blocking(|c: Block| c.0.wait()).build().unwrap();
        let is_full = || {
            let refused = block_on(rt.spawn_blocking(|| ()));
            refused.is_err_and(|failure| is_overloaded(&failure, "its queue of 2 has no room"))
        };
        let inside = gate.clone();
        let runs = rt.spawn_blocking(move || inside.wait());
        gate.reached(1);
        let (first, second) = (rt.spawn_blocking(|| 1), rt.spawn_blocking(|| 2));
        assert!(is_full());
        drop(second);
        let third = rt.spawn_blocking(|| 3);
        assert!(is_full());
        drop(first);
        // A command takes the place of the dropped job in the queue. Then the process that has performed this command
        // is killed.
        let inside = gate.clone();
        let asks = rt.spawn(async move |ctx: Context| ctx.perform(Block(inside)).await);
        rt.block_on(asks.started()).unwrap();
        assert!(is_full());
        asks.abort();
        assert!(rt.block_on(asks).is_err());
        let fourth = rt.spawn_blocking(|| 4);
        assert!(is_full());
        gate.open();
        block_on(runs).unwrap();
        assert_eq!((block_on(third).unwrap(), block_on(fourth).unwrap()), (3, 4));
        assert_eq!(gate.waiting.load(Ordering::SeqCst), 1);
    });
}

/// 3.2a, 4.9c: with `Overflow::DropOldest`, a full queue drops its oldest job. The failure of the dropped job states
/// the reason. Jobs that already run are not affected.
#[test]
fn a_full_blocking_queue_may_drop_its_oldest_job() {
    within(20, || {
        let gate = Arc::<Gate>::default();
        let rt = Runtime::builder()
            .workers(0)
            .max_blocking_threads(1)
            .blocking_queue_capacity(2)
            .blocking_overflow(Overflow::DropOldest)
            .build()
            .unwrap();
        let inside = gate.clone();
        let first = rt.spawn_blocking(move || inside.wait());
        gate.reached(1);
        let rest: Vec<_> = (0..4).map(|n| rt.spawn_blocking(move || n)).collect();
        gate.open();
        block_on(first).unwrap();
        let rest: Vec<_> = rest.into_iter().map(block_on).collect();
        assert!(rest[..2].iter().all(|r| r.as_ref().is_err_and(|f| is_overloaded(f, "displaced this work"))));
        assert!(matches!(rest[2..], [Ok(2), Ok(3)]));
    });
}

/// 3.2a: if a blocking command is cancelled before its closure begins, the closure never runs. If the closure has
/// already begun, the closure runs to its end.
#[test]
fn a_blocking_command_never_runs_if_it_was_cancelled_before_its_start() {
    within(20, || {
        let gate = Arc::<Gate>::default();
        let ran = Arc::<AtomicUsize>::default();
        let counts = ran.clone();
        let rt = Runtime::builder()
            .workers(1)
            .max_blocking_threads(1)
            .handle_blocking(|c: Block| c.0.wait())
            .handle_blocking(move |c: Ask| {
                counts.fetch_add(1, Ordering::SeqCst);
                c.0
            })
            .build()
            .unwrap();
        let inside = gate.clone();
        let body = rt.spawn(async move |ctx: Context| {
            let first = ctx.perform(Block(inside.clone())).start();
            let second = ctx.perform(Ask(1)).start();
            ctx.yield_now().await;
            inside.reached(1);
            drop((first, second));
            inside.open();
            ctx.perform(Ask(2)).await
        });
        assert_eq!(rt.block_on(body).unwrap(), 2);
        assert_eq!(ran.load(Ordering::SeqCst), 1);
    });
}

/// 3.2a, 6.5a, 6.5c: a runtime that shuts down refuses the blocking jobs in its queue. The shutdown does not wait for a
/// running closure that never returns.
#[test]
fn a_shutdown_does_not_wait_for_the_blocking_pool() {
    within(20, || {
        let gate = Arc::<Gate>::default();
        let rt = Runtime::builder().workers(1).max_blocking_threads(1).build().unwrap();
        let inside = gate.clone();
        let first = rt.spawn_blocking(move || inside.wait());
        gate.reached(1);
        let second = rt.spawn_blocking(|| ());
        let host = rt.host().clone();
        drop(rt);
        assert_eq!(block_on(second), Err(Failure::ShutDown));
        assert_eq!(block_on(host.spawn_blocking(|| ())), Err(Failure::ShutDown));
        gate.open();
        block_on(first).unwrap();
    });
}

/// 3.2a: an idle thread of the blocking pool exits after the idle time. If the idle time is zero, an idle thread exits
/// immediately. A new job starts a new thread.
#[test]
fn idle_threads_of_the_blocking_pool_exit() {
    fn blocking_threads(name: &str) -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|comm| comm.trim() == name).count()
    }
    for idle in [Duration::ZERO, Duration::from_millis(1)] {
        within(30, move || {
            let name = format!("idle-{}", idle.as_micros());
            let named = name.clone();
            let rt = Runtime::builder()
                .workers(0)
                .blocking_keep_alive(idle)
                .wrap_threads(move |work| {
                    let _ = std::fs::write("/proc/thread-self/comm", &named);
                    work();
                })
                .build()
                .unwrap();
            for round in 0..3 {
                let all: Vec<_> = (0..4).map(|n| rt.spawn_blocking(move || n + round)).collect();
                for (n, one) in (0..4).zip(all) {
                    assert_eq!(block_on(one).unwrap(), n + round);
                }
                while blocking_threads(&name) > 0 {
                    thread::yield_now();
                }
            }
        });
    }
}

/// 3.2a: with an idle time of zero, each thread of the pool exits as soon as the thread is idle. The pool still runs
/// every job of a burst. The pool also runs every job that arrives at the moment when a thread exits.
#[test]
fn a_pool_runs_every_job_although_each_idle_thread_exits_immediately() {
    for threads in [1, 2, 5] {
        within(60, move || {
            let builder = Runtime::builder().workers(0).max_blocking_threads(threads);
            let rt = builder.blocking_keep_alive(Duration::ZERO).build().unwrap();
            for burst in 0..50 {
                let jobs: Vec<_> = (0..1 + burst % 7).map(|n| rt.spawn_blocking(move || n)).collect();
                for (n, job) in (0..).zip(jobs) {
                    assert_eq!(block_on(job).unwrap(), n, "burst {burst} of {threads} threads");
                }
            }
            // In each round, the pause before the next job is a little longer. In some rounds the job arrives at the
            // moment when the thread finds no further job.
            for round in 0..1_500 {
                let done = Arc::new(AtomicBool::new(false));
                let sets = Arc::clone(&done);
                let job = rt.spawn_blocking(move || sets.store(true, Ordering::SeqCst));
                for look in 1_u32.. {
                    if done.load(Ordering::SeqCst) {
                        break;
                    }
                    // On a busy machine, the system may not run the thread of the pool until the thread of the test
                    // calls `yield_now`.
                    if look > 1_000 {
                        thread::yield_now();
                    }
                }
                (0..round % 300).for_each(|_| std::hint::spin_loop());
                drop(job);
            }
        });
    }
}

/// 3.2a, 11: a pool with zero threads refuses commands and closures with the reason `NoThread`.
#[test]
fn a_pool_without_threads_refuses_every_job() {
    let rt = Runtime::builder().workers(0).max_blocking_threads(0).handle_blocking(|c: Ask| c.0).build().unwrap();
    let failure = block_on(rt.spawn_blocking(|| ())).unwrap_err();
    assert!(is_overloaded(&failure, "0 threads"), "{failure}");
    let body = rt.spawn(async |ctx: Context| Ok::<_, Exit>(ctx.perform(Ask(1)).await.unwrap_err()));
    assert_eq!(rt.block_on(body), Ok(failure));
}

// ---- Inline commands

struct Twice(u64);
impl Command for Twice {
    type Reply = u64;
}

fn twice() -> Runtime {
    Runtime::builder().workers(0).handle(|c: Twice| c.0 * 2).build().unwrap()
}

/// 1.3b, 3.3a: an inline handler answers a command, and the future of the command is not polled until later. When the
/// future is polled again, even in a later turn, the future returns the answer.
#[test]
fn an_inline_answer_is_kept_until_its_future_is_polled() {
    let rt = twice();
    let body = async |mut ctx: Context<()>| -> Result<_, Exit> {
        let mut first = Box::pin(ctx.perform(Twice(1)));
        assert!(futures::poll!(&mut first).is_pending());
        // When this step returns, the inline handler answers `first`. Then the process performs more commands, and the
        // turn of the process ends.
        assert_eq!(ctx.perform(Twice(2)).await?, 4);
        for n in 0..100 {
            assert_eq!(ctx.perform(Twice(n)).await?, 2 * n);
        }
        ctx.receive().await?;
        Ok((first.await?, ctx.perform(Twice(3)).await?))
    };
    let handle = rt.spawn(body);
    let address = handle.address();
    let sender = rt.spawn(async move |ctx: Context| -> Result<(), Exit> {
        ctx.yield_now().await;
        Ok(address.send(())?)
    });
    rt.block_on(sender).unwrap();
    assert_eq!(rt.block_on(handle).unwrap(), (2, 6));
}

/// 1.2b, 1.3d, 3.3a: if a command is cancelled in the step that performed the command, the command never reaches its
/// inline handler. If a command is detached, or is cancelled in a later step, the command still reaches its inline
/// handler. The handlers run in the order in which the commands were performed, whether the handlers are inline or not.
#[test]
fn inline_handlers_run_in_the_order_of_their_commands() {
    struct Short(u64);
    impl Command for Short {
        type Reply = ();
    }
    struct Long(u64);
    impl Command for Long {
        type Reply = ();
    }
    let heard = Arc::new(Mutex::new(Vec::new()));
    let (short, long) = (Arc::clone(&heard), Arc::clone(&heard));
    let rt = Runtime::builder().workers(0).handle(move |c: Short| short.lock().unwrap().push(c.0)).handler(
        move |c: Long, answer: Completion<()>| {
            long.lock().unwrap().push(c.0);
            answer.complete(());
        },
    );
    let rt = rt.build().unwrap();
    let yields = async |ctx: Context| {
        let mut given_up = Box::pin(ctx.perform(Short(1)));
        assert!(futures::poll!(&mut given_up).is_pending());
        drop(given_up);
        ctx.perform(Short(2)).detach();
        let all = futures::join!(ctx.perform(Short(3)), ctx.perform(Long(4)), ctx.perform(Short(5)));
        let mut late = Box::pin(ctx.perform(Short(6)));
        assert!(futures::poll!(&mut late).is_pending());
        ctx.yield_now().await;
        drop(late);
        // The combinator `FuturesUnordered` polls the futures with its own wakers.
        let mut both: FuturesUnordered<_> = [7, 8].map(|n| ctx.perform(Short(n))).into_iter().collect();
        while both.next().await.is_some() {}
        (all.0.and(all.1).and(all.2), ctx.perform(Short(9)).timeout(Duration::from_secs(60)).await)
    };
    let yields = async move |ctx: Context| Ok::<_, Exit>(yields(ctx).await);
    let (all, last) = rt.block_on(rt.spawn(yields)).unwrap();
    all.and(last).unwrap();
    assert_eq!(*heard.lock().unwrap(), [2, 3, 4, 5, 6, 7, 8, 9]);
    let counters = rt.counters();
    assert_eq!((counters.yields, counters.completions, counters.discarded), (9, 8, 0));
}

/// 3.2c, 3.3c: if an inline handler panics, the command fails and the process continues. If a process is killed or
/// returns while its inline command is in flight, the answer is dropped.
#[test]
fn an_inline_handler_may_panic_and_may_answer_after_the_end_of_the_calling_process() {
    struct Kill(Pid, Host);
    impl Command for Kill {
        type Reply = Arc<()>;
    }
    let reply = Arc::new(());
    let given = Arc::clone(&reply);
    let rt = Runtime::builder().workers(0).handle(|c: Twice| if c.0 == 0 { panic!("nought") } else { c.0 * 2 }).handle(
        move |c: Kill| {
            c.1.kill(c.0).unwrap();
            Arc::clone(&given)
        },
    );
    let rt = rt.build().unwrap();
    let body = async |ctx: Context| Ok::<_, Exit>((ctx.perform(Twice(0)).await, ctx.perform(Twice(2)).await));
    let (failure, answer) = rt.block_on(rt.spawn(body)).unwrap();
    assert!(matches!(failure, Err(Failure::Panicked(text)) if text.as_str() == "nought"));
    assert_eq!(answer.unwrap(), 4);
    let killed = rt.spawn(async |ctx: Context| -> Result<(), Exit> {
        let _ = ctx.perform(Kill(ctx.pid(), ctx.host().clone())).await;
        panic!("it was killed in its own turn")
    });
    assert!(matches!(rt.block_on(killed), Err(Exit::Killed)));
    // The process returns in the step that performed the command. The test keeps the future of this command after the
    // process has returned.
    let kept = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&kept);
    let done = rt.spawn(async move |ctx: Context| {
        let mut last = Box::pin(ctx.perform(Kill(Pid::from_str("<1.1.1>").unwrap(), ctx.host().clone())));
        assert!(futures::poll!(&mut last).is_pending());
        *keep.lock().unwrap() = Some(last);
    });
    rt.block_on(done).unwrap();
    assert_eq!(Arc::strong_count(&reply), 2, "the answers are gone");
    let last = kept.lock().unwrap().take();
    assert!(matches!(last.unwrap().now_or_never(), Some(Err(Failure::Outside))));
}

/// A step with a pending inline command blocks on another process of the same runtime. The step still gets the answer
/// of its own command.
#[test]
fn a_nested_turn_keeps_the_inline_command_of_the_outer_turn() {
    let rt = Arc::new(twice());
    let inner = Arc::clone(&rt);
    let outer = rt.spawn(async move |ctx: Context| {
        let mut mine = Box::pin(ctx.perform(Twice(1)));
        assert!(futures::poll!(&mut mine).is_pending());
        let other = inner.block_on(inner.spawn(async |ctx: Context| ctx.perform(Twice(10)).await)).unwrap();
        Ok::<_, Failure>((mine.await?, other))
    });
    assert_eq!(rt.block_on(outer).unwrap(), (2, 20));
}

/// A step with a pending inline command drops another runtime. The other runtime has two processes. The first process
/// got the answer to its own inline command, and waits. The second process has not run. The step still gets the answer
/// to its own command.
#[test]
fn dropping_a_runtime_in_a_step_keeps_the_inline_command_of_the_step() {
    within(30, || {
        let rt = twice();
        let outer = rt.spawn(async |ctx: Context| {
            let other = twice();
            let waits = other.spawn(async |ctx: Context| {
                ctx.perform(Twice(1)).await?;
                ctx.sleep(Duration::MAX).await;
                Ok::<_, Failure>(())
            });
            other.block_on(waits.started()).unwrap();
            let never = other.spawn(async |_: Context| {});
            let mut sleep = Box::pin(ctx.sleep(Duration::from_secs(3600)));
            assert!(futures::poll!(&mut sleep).is_pending());
            drop(sleep);
            let mut mine = Box::pin(ctx.perform(Twice(1)));
            assert!(futures::poll!(&mut mine).is_pending());
            drop((other, waits, never));
            let answer = mine.await?;
            ctx.sleep(Duration::from_millis(1)).await;
            Ok::<_, Failure>(answer)
        });
        assert_eq!(rt.block_on(outer).unwrap(), 2);
    });
}

/// 1.3c, 1.3d: while a command is in flight, the future of the command may move into a combinator. The answer then
/// wakes the combinator. The future may also move to another thread, and that thread drops the future.
#[test]
fn an_inline_command_may_move_to_another_waker_or_thread() {
    /// If the command contains a value, the handler stores the value and never answers. If the command contains `None`,
    /// the future of the handler answers in its first poll.
    struct Wait(Option<Arc<()>>);
    impl Command for Wait {
        type Reply = ();
    }
    within(30, || {
        let rt = Runtime::builder().workers(0).handle(|c: Twice| c.0 * 2).handle_async(|c: Ask| async move {
            step_aside().await;
            c.0
        });
        let rt = rt
            .handle_async(|c: Wait| async move {
                if let Some(_held) = c.0 {
                    std::future::pending::<()>().await;
                }
            })
            .build()
            .unwrap();
        let body = async |ctx: Context| {
            let (mut first, mut second) = (Box::pin(ctx.perform(Twice(1))), Box::pin(ctx.perform(Ask(3))));
            assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending());
            let answers = futures::future::join_all([first as Pin<Box<dyn Future<Output = _> + Send>>, second]);
            let answers: FuturesUnordered<_> = [answers].into_iter().collect();
            let one: Vec<_> = answers.concat().await.into_iter().map(Result::unwrap).collect();
            // The future of the third command moves to a combinator when the step that performed the command has
            // already returned.
            let mut third = Box::pin(ctx.perform(Ask(4)));
            assert!(futures::poll!(&mut third).is_pending());
            ctx.yield_now().await;
            let two: Vec<_> = FuturesUnordered::from_iter([third]).collect().await;
            // Another thread drops the future of a command. The first round drops the future during the step that
            // performed the command, and the second round during a later step.
            let held = Arc::new(());
            for later in [false, true] {
                let mut wait = Box::pin(ctx.perform(Wait(Some(Arc::clone(&held)))));
                assert!(futures::poll!(&mut wait).is_pending());
                if later {
                    ctx.yield_now().await;
                }
                thread::scope(|s| drop(s.spawn(|| drop(wait))));
                while Arc::strong_count(&held) > 1 {
                    ctx.yield_now().await;
                }
            }
            let mut unread = Box::pin(ctx.perform(Wait(None)));
            assert!(futures::poll!(&mut unread).is_pending());
            thread::scope(|s| drop(s.spawn(|| drop(unread))));
            Ok::<_, Failure>((one, two))
        };
        let (one, two) = rt.block_on(rt.spawn(body)).unwrap();
        assert_eq!((one, two.into_iter().map(Result::unwrap).collect()), (vec![2, 3], vec![4]));
    });
}

/// 1.3d, 3.2a, 3.5a: while the handler of a command waits, the command is in flight. After the dispatch, the process
/// can set a time limit, cancel the command, or detach the command.
#[test]
fn a_command_is_in_flight_while_its_handler_waits() {
    struct CountsDrop(Arc<AtomicUsize>);
    impl Drop for CountsDrop {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    async fn scenario(host: Host) {
        let (begun, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (begins, count) = (Arc::clone(&begun), Arc::clone(&ended));
        let handler = move |c: Ask| {
            begins.fetch_add(1, Ordering::SeqCst);
            let ended = CountsDrop(Arc::clone(&count));
            async move {
                let _ended = ended;
                let mut steps = c.0;
                std::future::poll_fn(|cx| {
                    steps = steps.saturating_sub(1);
                    cx.waker().wake_by_ref();
                    if steps == 0 { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                c.0
            }
        };
        let host = host.add_host(HostBuilder::new("slow").handle_async(handler)).unwrap();
        let (called, seen) = (Arc::clone(&begun), Arc::clone(&ended));
        let body = async move |ctx: Context| {
            let ended = || seen.load(Ordering::SeqCst);
            // The first round sets the limit after the dispatch of the command. The second round sets the limit before
            // the dispatch. If the limit passes before the dispatch, no handler gets the command. In this case, the
            // round is repeated, and the new limit is twice the previous limit.
            for (round, leave) in [(1, true), (2, false)] {
                let mut limit = Duration::from_millis(2);
                while called.load(Ordering::SeqCst) < round {
                    let mut ask = Box::pin(ctx.perform(Ask(u64::MAX)));
                    assert!(futures::poll!(&mut ask).is_pending());
                    if leave {
                        ctx.yield_now().await;
                    }
                    let failure = Pin::into_inner(ask).timeout(limit).await;
                    assert!(matches!(failure, Err(Failure::TimedOut)));
                    limit *= 2;
                }
            }
            while ended() < 2 {
                ctx.yield_now().await;
            }
            let mut ask = Box::pin(ctx.perform(Ask(u64::MAX)));
            assert!(futures::poll!(&mut ask).is_pending());
            ctx.yield_now().await;
            drop(ask);
            while ended() < 3 {
                ctx.yield_now().await;
            }
            // The first round detaches the command after its dispatch. The second round detaches the command before its
            // dispatch.
            for leave in [true, false] {
                let mut ask = Box::pin(ctx.perform(Ask(20)));
                assert!(futures::poll!(&mut ask).is_pending());
                if leave {
                    ctx.yield_now().await;
                }
                Pin::into_inner(ask).detach();
            }
            while ended() < 5 {
                ctx.yield_now().await;
            }
            // The first command is answered in the first poll of its handler's future. The second command is answered
            // in a later poll.
            Ok::<_, Failure>((ctx.perform(Ask(1)).await?, ctx.perform(Ask(9)).await?))
        };
        assert_eq!(host.spawn(body).await.unwrap(), (1, 9));
        assert_eq!((begun.load(Ordering::SeqCst), ended.load(Ordering::SeqCst)), (7, 7));
    }
    within(30, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        rt.block_on(scenario(rt.host().clone()));
        check(0..10, scenario);
    });
}

/// 1.2h, 3.5a: a process may reuse the chosen tag of a cancelled command for a new command. The handler of the
/// cancelled command sees the cancellation, and the late answer of this handler is discarded. The time limit of the
/// cancelled command does not end the new command.
#[test]
fn a_chosen_tag_never_receives_the_answer_of_an_earlier_command() {
    let shelf = Shelf::default();
    let rt = shelf.runtime(0);
    let tag = Tag::<Ask>::chosen(7);
    for round in 0..3 {
        let other = Tag::<Ask>::chosen(8);
        let noted = Noted::spawn(&rt, move |out| {
            // In the last round, a third command is in the first slot of the command table, so the two tested commands
            // use a different slot.
            if round == 2 {
                out.perform_as(other, Ask(0)).unwrap();
            }
            out.perform_as(tag, Ask(1)).unwrap();
        });
        settle(&rt);
        let first = shelf.take();
        noted.tell(&rt, move |out| {
            // The same step sets the limit and cancels the command, because the limit must not pass before the
            // cancellation.
            out.set_timeout(tag, TICK);
            assert!(out.cancel_yield(tag));
            out.perform_as(tag, Ask(2)).unwrap();
            assert!(out.perform_as(tag, Ask(3)).is_err());
            "again".into()
        });
        let second = shelf.take();
        assert!(first.is_cancelled() && !second.is_cancelled());
        assert!(first.cancelled().now_or_never().is_some());
        if round == 0 {
            first.complete(1);
        } else {
            drop(first);
        }
        // After this sleep, the time limit of the first command has passed.
        rt.block_on(rt.sleep(TICK * 3));
        settle(&rt);
        assert_eq!(noted.log(), "again");
        assert_eq!(second.tag(), tag.erase());
        second.complete(2);
        settle(&rt);
        assert_eq!(noted.log(), "2");
        drop(std::mem::take(&mut *shelf.0.lock().unwrap()));
    }
}

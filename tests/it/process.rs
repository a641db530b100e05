//! Section 1 of the specification: processes, written as async bodies and as hand-written `Process` implementations.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use procession::*;

use crate::{everywhere, on_workers, step_aside, two, within};

struct Double(u64);
impl Command for Double {
    type Reply = u64;
}

/// Command that is never answered: its handler stores the completion.
struct Keep;
impl Command for Keep {
    type Reply = u64;
}

/// 1.1a, 1.1b, 1.1d, 1.1e, 1.1f, 1.1h: `init` runs on a worker, not on the thread that spawns the process. A message
/// that is sent before `init` stays in the mailbox until `init` has returned. `close` runs exactly once.
#[test]
fn init_runs_on_a_worker_and_close_runs_exactly_once() {
    struct Watched {
        calls: Arc<Mutex<Vec<String>>>,
        spawner: std::thread::ThreadId,
    }
    impl Process for Watched {
        type Message = u64;
        type Output = ();
        fn init(&mut self, start: Start<'_>) -> Result<(), InitError> {
            assert_ne!(std::thread::current().id(), self.spawner);
            assert_eq!((start.entry, start.input.is::<()>()), ("", true));
            self.calls.lock().unwrap().push("init".into());
            Ok(())
        }
        fn step(&mut self, events: Events<'_, u64>, _: &mut StepOutput<'_, u64>) -> Result<Next<()>, Exit> {
            for event in events {
                if let Event::Message(n) = event {
                    self.calls.lock().unwrap().push(format!("message {n}"));
                    if n == 2 {
                        return Ok(Next::Done(()));
                    }
                }
            }
            Ok(Next::Wait)
        }
        fn close(&mut self) {
            self.calls.lock().unwrap().push("close".into());
        }
    }
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = calls.clone();
    on_workers(async move |host| {
        let handle = host.spawn_process(Watched { calls: seen, spawner: std::thread::current().id() });
        handle.send(1).unwrap();
        handle.started().await.unwrap();
        handle.send(2).unwrap();
        handle.await.unwrap();
    });
    assert_eq!(*calls.lock().unwrap(), ["init", "message 1", "message 2", "close"]);
}

/// 1.1g: if `init` fails, the process exits with `InitFailed`. Neither a step nor `close` runs, and the messages of the
/// process become dead letters.
#[test]
fn a_failed_init_ends_the_process() {
    struct Fails(Arc<AtomicUsize>);
    impl Process for Fails {
        type Message = u64;
        type Output = ();
        fn init(&mut self, _: Start<'_>) -> Result<(), InitError> {
            Err(InitError::failed("no socket"))
        }
        fn step(&mut self, _: Events<'_, u64>, _: &mut StepOutput<'_, u64>) -> Result<Next<()>, Exit> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(Next::Wait)
        }
        fn close(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let touched = Arc::new(AtomicUsize::new(0));
    let rt = Runtime::builder().workers(0).build().unwrap();
    let mut dead = rt.dead_letters();
    let handle = rt.spawn_process(Fails(touched.clone()));
    handle.send(7).unwrap();
    let started = handle.started();
    let exit = rt.block_on(started).unwrap_err();
    assert!(matches!(exit, Exit::InitFailed(_)), "{exit:?}");
    assert!(exit.to_string().contains("no socket"), "{exit}");
    assert!(matches!(rt.block_on(handle), Err(Exit::InitFailed(_))));
    assert_eq!(dead.try_receive().unwrap().payload.downcast::<u64>().unwrap(), 7);
    assert_eq!(touched.load(Ordering::Relaxed), 0);
}

/// 1.1b, 1.1c: a process may have several entry points. An unknown entry point is an error. The error names the unknown
/// entry point and the existing entry points. An input of the wrong type is an error too.
#[test]
fn the_error_for_an_unknown_entry_point_names_the_existing_entry_points() {
    async fn serve(_: Context, port: u16) -> Result<u32, Exit> {
        Ok(u32::from(port))
    }
    async fn migrate(_: Context, from: u32) -> Result<u32, std::num::ParseIntError> {
        Ok(from + "1".parse::<u32>()?)
    }
    let app = || EntryPoints::new().entry("serve", serve).entry("migrate", migrate);
    on_workers(async move |host| {
        assert_eq!(host.execute(app(), "serve", 80_u16).await.unwrap(), 80);
        assert_eq!(host.execute(app(), "migrate", 3_u32).await.unwrap(), 4);

        let exit = host.execute(app(), "burn", ()).await.unwrap_err();
        match exit.error::<InitError>() {
            Some(InitError::UnknownEntry { entry, known }) => {
                assert_eq!((entry.as_str(), &known[..]), ("burn", &["migrate", "serve"][..]));
            }
            other => panic!("{other:?}"),
        }
        let exit = host.execute(app(), "serve", "eighty").await.unwrap_err();
        let text = exit.to_string();
        assert!(text.contains("serve") && text.contains("u16") && text.contains("str"), "{text}");
    });
}

/// 1.1f, 1.3a: `started()` of a body completes when the body has been polled once, or when the body exits. With a
/// manual start, `started()` waits for `mark_started`.
#[test]
fn a_body_has_started_after_its_first_poll_or_after_it_has_called_mark_started() {
    everywhere(async |host| {
        let plain = host.spawn(async |mut ctx: Context<()>| ctx.receive().await);
        plain.started().await.unwrap();
        let failing = host.spawn(async |_: Context| Err::<(), _>("at once"));
        assert!(matches!(failing.started().await, Err(Exit::Failed(_))));

        let by_hand = host.process().manual_start().spawn(async |mut ctx: Context<u8>| {
            while ctx.receive().await? != 2 {}
            ctx.mark_started();
            ctx.receive().await
        });
        let by_hand = by_hand.unwrap();
        let started = by_hand.started();
        by_hand.send(1).unwrap();
        let mut started = Box::pin(started);
        assert!(futures::poll!(&mut started).is_pending());
        by_hand.send(2).unwrap();
        started.await.unwrap();
    });
}

/// 1.2a, 1.2f: events arrive in order. If a step leaves events unread, the next step receives these events first. A
/// step that returns `Again` requests another step.
#[test]
fn unread_events_of_a_step_come_first_in_the_next_step() {
    struct OneByOne(Vec<u64>);
    impl Process for OneByOne {
        type Message = u64;
        type Output = Vec<u64>;
        fn step(&mut self, mut events: Events<'_, u64>, _: &mut StepOutput<'_, u64>) -> Result<Next<Vec<u64>>, Exit> {
            let Some(Event::Message(n)) = events.next() else { return Ok(Next::Wait) };
            self.0.push(n);
            if n == 5 { Ok(Next::Done(std::mem::take(&mut self.0))) } else { Ok(Next::Again) }
        }
    }
    let rt = Runtime::builder().workers(0).build().unwrap();
    let handle = rt.spawn_process(OneByOne(Vec::new()));
    (1..=5).for_each(|n| handle.send(n).unwrap());
    assert_eq!(rt.block_on(handle).unwrap(), [1, 2, 3, 4, 5]);
}

/// 1.2a, 5.1a: every event causes a step, even if the process does not read its events.
#[test]
fn every_event_causes_a_step_of_a_process_that_does_not_read_events() {
    struct Blind(u32);
    impl Process for Blind {
        type Message = ();
        type Output = u32;
        fn step(&mut self, _: Events<'_, ()>, _: &mut StepOutput<'_, ()>) -> Result<Next<u32>, Exit> {
            self.0 += 1;
            if self.0 == 4 { Ok(Next::Done(self.0)) } else { Ok(Next::Wait) }
        }
    }
    on_workers(async |host| {
        let blind = host.spawn_process(Blind(0));
        while !blind.is_finished() {
            let _ = blind.send(());
            std::thread::yield_now();
        }
        assert_eq!(blind.await.unwrap(), 4);
    });
}

/// 1.2b, 1.2g: the commands of a step are dispatched in order when the step returns, even if the step returns `Done`. A
/// cancelled command is not dispatched.
#[test]
fn commands_of_the_last_step_are_dispatched() {
    struct Note(u64);
    impl Command for Note {
        type Reply = ();
    }
    struct Last;
    impl Process for Last {
        type Message = ();
        type Output = ();
        fn step(&mut self, _: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
            let given_up = out.perform(Note(0));
            out.perform(Note(1));
            out.perform(Note(2));
            assert!(out.cancel_yield(given_up));
            Ok(Next::Done(()))
        }
    }
    let notes = Arc::new(Mutex::new(Vec::new()));
    let heard = notes.clone();
    let rt = Runtime::builder().workers(0).handle(move |c: Note| heard.lock().unwrap().push(c.0)).build().unwrap();
    rt.block_on(rt.spawn_process(Last)).unwrap();
    assert_eq!(*notes.lock().unwrap(), [1, 2]);
}

/// 1.2g, 3.3c: the answer to a command of the last step comes too late. This answer counts as discarded and its value
/// is dropped. It does not matter whether the command took the inline path or was stored in the table of commands.
#[test]
fn an_answer_to_a_command_of_the_last_step_counts_as_discarded() {
    struct Note(Arc<()>);
    impl Command for Note {
        type Reply = Arc<()>;
    }
    struct Last(Arc<()>, bool);
    impl Process for Last {
        type Message = ();
        type Output = ();
        fn step(&mut self, _: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
            out.perform(Note(self.0.clone()));
            out.perform_as(Tag::chosen(7), Note(self.0.clone())).expect("it is not in flight");
            if self.1 { Ok(Next::Done(())) } else { Err(Exit::failed("on purpose")) }
        }
    }
    let value = Arc::new(());
    let rt = Runtime::builder().workers(0).handle(|note: Note| note.0).build().unwrap();
    let _ = rt.block_on(rt.spawn_process(Last(value.clone(), true)));
    let _ = rt.block_on(rt.spawn_process(Last(value.clone(), false)));
    // If a body performs one command in its step, the command takes the inline path. A second command is stored in the
    // table.
    for commands in [1, 2] {
        let own = value.clone();
        rt.block_on(rt.spawn(async move |ctx: Context| {
            for _ in 0..commands {
                ctx.perform(Note(own.clone())).detach();
            }
        }))
        .unwrap();
    }
    let counters = rt.counters();
    assert_eq!((counters.completions, counters.discarded), (0, 7), "{counters}");
    assert_eq!(Arc::strong_count(&value), 1);
}

/// 1.2g: if a destructor yields a command during the exit of a process, the runtime dispatches the command.
#[test]
fn the_commands_of_a_destructor_are_dispatched_during_the_exit() {
    struct CleanUp(#[expect(dead_code)] Arc<()>);
    impl Command for CleanUp {
        type Reply = ();
    }
    struct Guard(SelfHandle<()>, Arc<()>);
    impl Drop for Guard {
        fn drop(&mut self) {
            for _ in 0..2 {
                self.0.perform(CleanUp(self.1.clone())).detach();
            }
        }
    }
    let value = Arc::new(());
    let handled = Arc::new(AtomicUsize::new(0));
    let count = handled.clone();
    let handler = move |command: CleanUp| {
        count.fetch_add(1, Ordering::SeqCst);
        drop(command);
    };
    let rt = Runtime::builder().workers(0).handle(handler).build().unwrap();
    let own = value.clone();
    let process = rt.spawn(async move |ctx: Context<()>| -> Result<(), Exit> {
        let (me, mut mailbox) = ctx.split();
        let _guard = Guard(me, own);
        mailbox.receive().await
    });
    rt.block_on(process.started()).unwrap();
    rt.kill(process.pid()).unwrap();
    assert_eq!(rt.block_on(process), Err(Exit::Killed));
    assert_eq!((handled.load(Ordering::SeqCst), Arc::strong_count(&value)), (2, 1));
    assert_eq!(rt.counters().discarded, 2);
}

/// 1.2h: a command is refused if its tag is in flight, and the error returns the command. After the answer the tag can
/// be used again.
#[test]
fn a_command_with_a_tag_in_flight_is_refused_and_returned() {
    struct Twice(u32);
    impl Process for Twice {
        type Message = ();
        type Output = u64;
        fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<u64>, Exit> {
            let tag = Tag::<Double>::chosen(9);
            for event in events {
                let Event::Completed(done) = event else { continue };
                let n = done.take(tag).expect("the only one")?;
                if self.0 == 2 {
                    return Ok(Next::Done(n));
                }
            }
            self.0 += 1;
            out.perform_as(tag, Double(u64::from(self.0))).expect("not in flight");
            let refused = out.perform_as(tag, Double(77)).expect_err("in flight");
            assert_eq!(refused.into_message().0, 77);
            Ok(Next::Wait)
        }
    }
    let rt = Runtime::builder().workers(0).handle(|c: Double| c.0 * 2).build().unwrap();
    assert_eq!(rt.block_on(rt.spawn_process(Twice(0))).unwrap(), 4);
}

/// 1.3b, 1.3c, 1.3d: a body performs several commands at the same time, with `join`, `select` and `FuturesUnordered`.
/// `select` cancels the command that does not complete first.
#[test]
fn several_commands_can_be_in_flight_and_select_cancels_the_slower_command() {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keeper = kept.clone();
    let rt = Runtime::builder()
        .workers(2)
        .handle(|c: Double| c.0 * 2)
        .handler(move |_: Keep, completion: Completion<u64>| keeper.lock().unwrap().push(completion))
        .build()
        .unwrap();
    let sum = rt.spawn(async |ctx: Context| -> Result<u64, Failure> {
        let (a, b) = futures::join!(ctx.perform(Double(1)), ctx.perform(Double(2)));
        let mut many: FuturesUnordered<_> = (0..100).map(|n| ctx.perform(Double(n))).collect();
        let mut sum = a? + b?;
        while let Some(n) = many.next().await {
            sum += n?;
        }
        let first = futures::future::select(ctx.perform(Keep), ctx.perform(Double(1000))).await;
        match first {
            futures::future::Either::Right((n, _)) => Ok(sum + n?),
            futures::future::Either::Left(_) => panic!("nobody answers that one"),
        }
    });
    assert_eq!(rt.block_on(sum).unwrap(), 6 + 9900 + 2000);
    let kept = kept.lock().unwrap().pop().expect("it was dispatched");
    assert!(kept.is_cancelled());
}

/// 1.3d: a detached command continues when its future is dropped. A command that is dropped without `detach` is
/// cancelled.
#[test]
fn a_detached_command_outlives_its_future() {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keeper = kept.clone();
    let rt = Runtime::builder()
        .workers(0)
        .handler(move |_: Keep, completion: Completion<u64>| keeper.lock().unwrap().push(completion))
        .build()
        .unwrap();
    let handle = rt.spawn(async |mut ctx: Context<()>| {
        ctx.perform(Keep).detach();
        let mut dropped = ctx.perform(Keep);
        assert!(futures::poll!(&mut dropped).is_pending());
        ctx.yield_now().await;
        drop(dropped);
        ctx.receive().await
    });
    rt.block_on(handle.started()).unwrap();
    rt.block_on(async {
        while !kept.lock().unwrap().get(1).is_some_and(|completion| completion.is_cancelled()) {
            step_aside().await;
        }
    });
    let kept = std::mem::take(&mut *kept.lock().unwrap());
    assert_eq!(kept.iter().map(|completion| completion.is_cancelled()).collect::<Vec<_>>(), [false, true]);
}

/// 1.3e: a `perform` future fails if it is polled outside its process.
#[test]
fn a_command_future_fails_outside_its_process() {
    let rt = two();
    let (send, receive) = std::sync::mpsc::channel();
    let send = Mutex::new(send);
    let handle = rt.spawn(async move |mut ctx: Context<()>| {
        send.lock().unwrap().send(ctx.perform(Double(1))).unwrap();
        ctx.receive().await
    });
    let stray = receive.recv().unwrap();
    assert!(matches!(futures::executor::block_on(stray), Err(Failure::Outside)));
    drop(handle);
}

/// 1.3f: if a `select` drops a pending receive, the dropped receive has taken no message.
#[test]
fn a_dropped_receive_loses_no_message() {
    everywhere(async |host| {
        let handle = host.spawn(async |mut ctx: Context<u64>| {
            let mut seen = Vec::new();
            while seen.len() < 1000 {
                let ready = futures::future::ready(());
                match futures::future::select(ready, ctx.receive()).await {
                    futures::future::Either::Left(((), receive)) => drop(receive),
                    futures::future::Either::Right(_) => unreachable!("the other was ready first"),
                }
                seen.push(ctx.receive().await?);
            }
            Ok::<_, Exit>(seen)
        });
        (0..1000).for_each(|n| handle.send(n).unwrap());
        assert_eq!(handle.await.unwrap(), (0..1000).collect::<Vec<_>>());
    });
}

/// 1.3h: a body may await futures of other crates. These futures wake the process.
#[test]
fn a_body_awaits_foreign_futures() {
    everywhere(async |host| {
        let (send, receive) = futures::channel::oneshot::channel::<u64>();
        let handle = host.spawn(async move |_: Context| receive.await);
        handle.started().await.unwrap();
        std::thread::spawn(move || send.send(5)).join().unwrap().unwrap();
        assert_eq!(handle.await.unwrap(), 5);
    });
}

/// 1.4a: an async body and a hand-written process implement the same program. Both implementations give the same output
/// in the same order.
#[test]
fn a_body_and_a_hand_written_process_give_the_same_output() {
    enum Msg {
        Add(u64),
        Double(u64),
        Stop,
    }
    async fn body(mut ctx: Context<Msg>) -> Result<Vec<u64>, Exit> {
        let mut out = Vec::new();
        loop {
            match ctx.receive().await? {
                Msg::Add(n) => out.push(n),
                Msg::Double(n) => out.push(ctx.perform(Double(n)).await?),
                Msg::Stop => return Ok(out),
            }
        }
    }
    #[derive(Default)]
    struct Steps {
        out: Vec<u64>,
        doubling: Option<Tag<Double>>,
    }
    impl Process for Steps {
        type Message = Msg;
        type Output = Vec<u64>;
        fn step(&mut self, mut events: Events<'_, Msg>, out: &mut StepOutput<'_, Msg>) -> Result<Next<Vec<u64>>, Exit> {
            // The process handles one message at a time, like the body. If more messages arrive together with the
            // answer, the process sends these messages back to its own mailbox.
            while self.doubling.is_none() {
                match events.next() {
                    None => return Ok(Next::Wait),
                    Some(Event::Message(Msg::Add(n))) => self.out.push(n),
                    Some(Event::Message(Msg::Double(n))) => {
                        self.doubling = Some(out.perform(Double(n)));
                        return Ok(Next::Again);
                    }
                    Some(Event::Message(Msg::Stop)) => return Ok(Next::Done(std::mem::take(&mut self.out))),
                    Some(_) => {}
                }
            }
            let mut later = Vec::new();
            for event in events {
                match event {
                    Event::Completed(done) => {
                        let tag = self.doubling.take().expect("the only one");
                        self.out.push(done.take(tag).expect("the only one")?);
                    }
                    Event::Message(message) => later.push(message),
                    _ => {}
                }
            }
            for message in later {
                out.address().send(message)?;
            }
            Ok(Next::Again)
        }
    }
    let script = || [Msg::Add(1), Msg::Double(2), Msg::Add(3), Msg::Double(4), Msg::Double(5), Msg::Add(6), Msg::Stop];
    let rt = Runtime::builder().workers(0).handle(|c: Double| c.0 * 2).build().unwrap();
    let by_body = rt.spawn(body);
    let by_step = rt.spawn_process(Steps::default());
    for handle in [by_body.address(), by_step.address()] {
        script().into_iter().for_each(|message| handle.send(message).unwrap());
    }
    let expected = [1, 4, 3, 8, 10, 6];
    assert_eq!(rt.block_on(by_body).unwrap(), expected);
    assert_eq!(rt.block_on(by_step).unwrap(), expected);
}

/// 1.5a: many threads wake a process. The process never runs on two threads at the same time.
#[test]
fn a_process_never_runs_on_two_threads_at_the_same_time() {
    struct Alone(Arc<AtomicUsize>, u32);
    impl Process for Alone {
        type Message = ();
        type Output = ();
        fn step(&mut self, events: Events<'_, ()>, _: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
            assert_eq!(self.0.fetch_add(1, Ordering::SeqCst), 0, "somebody else is in here");
            self.1 += events.count() as u32;
            assert_eq!(self.0.fetch_sub(1, Ordering::SeqCst), 1);
            if self.1 == 40_000 { Ok(Next::Done(())) } else { Ok(Next::Wait) }
        }
    }
    everywhere(async |host| {
        let handle = host.spawn_process(Alone(Arc::new(AtomicUsize::new(0)), 0));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let address = handle.address();
                std::thread::spawn(move || (0..10_000).for_each(|_| address.send(()).unwrap()))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        handle.await.unwrap();
    });
}

/// 1.6a, 1.6b: a typed process accepts only its own message type, even if the message is sent to its pid. A process
/// with the message type `Payload` accepts any type. A refused message is returned.
#[test]
fn a_message_of_the_wrong_type_is_refused_and_returned() {
    everywhere(async |host| {
        let typed = host.spawn(async |mut ctx: Context<u64>| ctx.receive().await);
        let refused = host.send(typed.pid(), "a text").unwrap_err();
        assert_eq!(refused.kind(), SendErrorKind::WrongType { expected: "u64" });
        assert_eq!(refused.into_message(), "a text");
        let refused = host.send(typed.pid(), Payload::new(1_u8)).unwrap_err();
        assert_eq!(refused.into_message().downcast::<u8>().unwrap(), 1);
        host.send(typed.pid(), Payload::new(4_u64)).unwrap();
        assert_eq!(typed.await.unwrap(), 4);

        let any = host.spawn(async |mut ctx: Context| {
            let first = ctx.receive().await?.downcast::<String>().map_err(|_| "a string first")?;
            let second = ctx.receive().await?.downcast::<u8>().map_err(|_| "a number second")?;
            Ok::<_, BoxError>(format!("{first}{second}"))
        });
        host.send(any.pid(), String::from("a")).unwrap();
        host.send(any.pid(), 1_u8).unwrap();
        assert_eq!(any.await.unwrap(), "a1");
    });
}

/// 1.7a: inside a process, `should_yield` returns true after a bounded number of calls. Outside a process,
/// `should_yield` never returns true.
#[test]
fn a_process_is_told_to_yield_after_a_bounded_number_of_checks() {
    assert!((0..10_000).all(|_| !should_yield()));
    everywhere(async |host| {
        let pieces = host.spawn(async |ctx: Context| {
            let mut longest = 0;
            for _ in 0..10 {
                let mut pieces = 0;
                while !should_yield() {
                    pieces += 1;
                    assert!(pieces < 10_000);
                }
                longest = longest.max(pieces);
                ctx.yield_now().await;
            }
            Ok::<_, Exit>(longest)
        });
        assert!((1..=1000).contains(&pieces.await.unwrap()));
    });
}

/// 1.1b, 6.6a: a process inherits the values of the process that spawns it. The builder of a process can replace an
/// inherited value with another value for this process.
#[test]
fn inherited_values_reach_the_grandchildren() {
    #[derive(PartialEq, Debug)]
    struct TraceId(u64);
    within(10, || {
        let rt = two();
        let root = rt.process().value(TraceId(1)).value("shadowed").spawn(async |ctx: Context| {
            let child = ctx.process().value("mine").spawn(async |ctx: Context| {
                let grandchild = ctx.spawn(async |ctx: Context| {
                    Ok::<_, Exit>((ctx.value::<TraceId>(), ctx.value::<&str>(), ctx.value::<u8>()))
                });
                grandchild.await
            })?;
            let own = ctx.value::<&str>();
            Ok::<_, BoxError>((child.await?, own))
        });
        let ((trace, text, none), own) = rt.block_on(root.unwrap()).unwrap();
        assert_eq!((trace, none), (Some(Arc::new(TraceId(1))), None));
        assert_eq!((text, own), (Some(Arc::new("mine")), Some(Arc::new("shadowed"))));
        let _ = Duration::ZERO;
    });
}

/// 1.3a: a body that never returns is declared `-> !`, and a body that ends only with an error returns
/// `Result<Infallible, E>`.
#[test]
fn a_body_need_not_return() {
    async fn ticks(ctx: Context) -> ! {
        loop {
            ctx.sleep(Duration::from_secs(1)).await;
        }
    }
    async fn serves(mut ctx: Context<()>) -> Result<Infallible, Exit> {
        loop {
            ctx.receive().await?;
        }
    }
    everywhere(async |host| {
        let (ticks, serves) = (host.spawn(ticks), host.spawn(serves));
        let closure = host.spawn(async |_: Context| -> ! { std::future::pending().await });
        let forever: [JoinHandle<Infallible>; 2] = [ticks, closure];
        host.cancel(serves.pid(), "enough", Duration::from_secs(1)).unwrap();
        assert!(matches!(serves.await, Err(Exit::Cancelled(_))));
        for forever in forever {
            forever.abort();
            assert!(matches!(forever.await, Err(Exit::Killed)));
        }
    });
}

/// 1.3a: the argument type of an async closure is inferred. A boxed function and a function of a generic type can also
/// be bodies.
#[test]
fn functions_of_every_kind_can_be_bodies() {
    type Boxed = Box<dyn FnOnce(Context<u8>) -> futures::future::BoxFuture<'static, Result<u8, Exit>> + Send>;
    async fn first(mut ctx: Context<u8>) -> Result<u8, Exit> {
        ctx.receive().await
    }
    fn opaque() -> impl FnOnce(Context<u8>) -> futures::future::BoxFuture<'static, Result<u8, Exit>> + Send {
        |ctx| Box::pin(first(ctx))
    }
    fn wrapped<M: Send + 'static, F: Body<M>>(host: &Host, body: F) -> JoinHandle<F::Value, M> {
        host.spawn(body)
    }
    everywhere(async |host| {
        let boxed: Boxed = Box::new(|ctx| Box::pin(first(ctx)));
        let handles = [
            host.spawn(first),
            host.spawn(opaque()),
            host.spawn(boxed),
            wrapped(&host, first),
            host.spawn(async |ctx| {
                ctx.trap_exit(true);
                first(ctx).await
            }),
        ];
        for handle in handles {
            handle.send(7).unwrap();
            assert_eq!(handle.await.unwrap(), 7);
        }
    });
}

/// 1.2a, 5.1a: a hand-written process delegates its steps to an entry point until the body of the entry point ends.
/// Then the process reads its events itself, and each event causes a step.
#[test]
fn a_process_reads_its_events_again_after_its_delegated_body_has_ended() {
    struct Outer {
        inner: Option<EntryPoints<u64, u64>>,
        sum: u64,
    }
    impl Process for Outer {
        type Message = u64;
        type Output = u64;
        fn init(&mut self, start: Start<'_>) -> Result<(), InitError> {
            self.inner.as_mut().expect("it has not begun").init(start)
        }
        fn step(&mut self, events: Events<'_, u64>, out: &mut StepOutput<'_, u64>) -> Result<Next<u64>, Exit> {
            if let Some(inner) = &mut self.inner {
                if let Next::Done(first) = inner.step(events, out)? {
                    self.sum = first;
                    self.inner = None;
                }
                return Ok(Next::Wait);
            }
            for event in events {
                match event {
                    Event::Message(0) => return Ok(Next::Done(self.sum)),
                    Event::Message(n) => self.sum += n,
                    _ => {}
                }
            }
            Ok(Next::Wait)
        }
    }
    for together in [false, true] {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let inner = EntryPoints::new().entry("first", async |mut ctx: Context<u64>, (): ()| ctx.receive().await);
        let outer = rt.process().entry("first").input(()).spawn_process(Outer { inner: Some(inner), sum: 0 }).unwrap();
        for n in [1, 10, 100, 0] {
            outer.send(n).unwrap();
            if !together {
                (0..4).for_each(|_| rt.block_on(step_aside()));
            }
        }
        assert_eq!(rt.block_on(outer).unwrap(), 111);
    }
}

/// 1.2a: a process may read some of its events and then delegate its steps. The body of the entry point receives the
/// events that the process has not read, in order.
#[test]
fn a_delegated_body_receives_the_unread_events_of_its_process() {
    struct Outer {
        inner: EntryPoints<u64, Vec<String>>,
        watched: Pid,
        reads: usize,
    }
    impl Process for Outer {
        type Message = u64;
        type Output = Vec<String>;
        fn init(&mut self, start: Start<'_>) -> Result<(), InitError> {
            self.inner.init(start)
        }
        fn step(
            &mut self,
            mut events: Events<'_, u64>,
            out: &mut StepOutput<'_, u64>,
        ) -> Result<Next<Vec<String>>, Exit> {
            while self.reads > 0 {
                match events.next() {
                    Some(Event::Message(0)) => drop(out.monitor(self.watched)),
                    Some(_) => {}
                    None => return Ok(Next::Wait),
                }
                self.reads -= 1;
            }
            self.inner.step(events, out)
        }
    }
    async fn collect(mut ctx: Context<u64>, (): ()) -> Result<Vec<String>, Exit> {
        let mut read = Vec::new();
        while read.len() < 5 {
            read.push(match ctx.event().await {
                Event::Message(n) => n.to_string(),
                Event::Down { .. } => "down".into(),
                other => panic!("{other:?}"),
            });
        }
        Ok(read)
    }
    for reads in 1..=3 {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let watched = rt.spawn(async |mut ctx: Context<()>| ctx.receive().await);
        let inner = EntryPoints::new().entry("collect", collect);
        let outer = Outer { inner, watched: watched.pid(), reads };
        let outer = rt.process().entry("collect").input(()).spawn_process(outer).unwrap();
        outer.send(0).unwrap();
        if reads > 1 {
            (0..10).for_each(|_| rt.block_on(step_aside()));
        }
        [1, 2].into_iter().for_each(|n| outer.send(n).unwrap());
        if reads > 1 {
            rt.kill(watched.pid()).unwrap();
            let _ = rt.block_on(watched);
        }
        [3, 4, 5].into_iter().for_each(|n| outer.send(n).unwrap());
        let expected: &[&str] = match reads {
            1 => &["1", "2", "3", "4", "5"],
            2 => &["2", "down", "3", "4", "5"],
            _ => &["down", "3", "4", "5"],
        };
        if reads == 3 {
            outer.send(6).unwrap();
        }
        let read = rt.block_on(outer).unwrap();
        assert_eq!(read[..expected.len()], *expected, "{reads}");
    }
}

/// A process that delegates its steps to entry points. Other processes have already used these entry points.
struct SharesEntryPoints(Arc<Mutex<EntryPoints<u64, u64>>>);

impl Process for SharesEntryPoints {
    type Message = u64;
    type Output = u64;

    fn init(&mut self, start: Start<'_>) -> Result<(), InitError> {
        self.0.lock().unwrap().init(start)
    }

    fn step(&mut self, events: Events<'_, u64>, out: &mut StepOutput<'_, u64>) -> Result<Next<u64>, Exit> {
        self.0.lock().unwrap().step(events, out)
    }
}

/// 1.1c: after an entry point has returned, another process may choose another entry point of the same `EntryPoints`
/// value.
#[test]
fn two_processes_use_the_same_entry_points_one_after_the_other() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let entries = EntryPoints::new()
        .entry("one", async |mut ctx: Context<u64>, (): ()| ctx.receive().await)
        .entry("two", async |mut ctx: Context<u64>, (): ()| Ok::<_, Exit>(2 * ctx.receive().await?));
    let entries = Arc::new(Mutex::new(entries));
    for (name, expected) in [("one", 7), ("two", 14)] {
        let handle = rt.process().entry(name).input(()).spawn_process(SharesEntryPoints(entries.clone())).unwrap();
        handle.send(7).unwrap();
        assert_eq!(rt.block_on(handle).unwrap(), expected);
    }
}

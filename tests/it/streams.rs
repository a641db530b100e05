//! Section 3 of the specification: stream commands. The handler answers a stream command with many items, as fast as
//! the consumer reads them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use futures::stream::{FusedStream, SelectAll};
use futures::{FutureExt, StreamExt};
use procession::*;

use crate::{everywhere, step_aside, within};

/// Command that asks for a stream of numbers. The value of the command is the number of items. The items count upwards
/// from 0, and the reply is the number of items.
struct Count(u64);
impl Command for Count {
    type Reply = u64;
}
impl StreamCommand for Count {
    type Item = u64;
    const BUFFER: usize = 3;
}

async fn count(command: Count, mut replies: StreamCompletion<Count>) -> Result<(), Failure> {
    for n in 0..command.0 {
        replies.send(n).await?;
    }
    replies.complete(command.0);
    Ok(())
}

/// Handler that stores the completions of its streams until the test takes these completions.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<Vec<StreamCompletion<Count>>>>);

impl StreamHandler<Count> for Shelf {
    fn handle(&self, _: Count, replies: StreamCompletion<Count>) {
        self.0.lock().unwrap().push(replies);
    }
}

impl Shelf {
    fn take(&self) -> StreamCompletion<Count> {
        loop {
            if let Some(replies) = self.0.lock().unwrap().pop() {
                return replies;
            }
            thread::yield_now();
        }
    }

    fn runtime(&self, workers: usize) -> Runtime {
        Runtime::builder().workers(workers).stream_handler(self.clone()).build().unwrap()
    }
}

fn settle(rt: &Runtime) {
    for _ in 0..10 {
        rt.block_on(step_aside());
    }
}

/// Text of a failure, without the location of a panic.
fn text_of(failure: &Failure) -> String {
    match failure {
        Failure::Panicked(message) => format!("the handler panicked: {message}"),
        failure => failure.to_string(),
    }
}

/// 1.1b, 1.2a: a hand-written process performs a command and a stream command, and delegates its steps to an entry
/// point. The body of the entry point receives the answers as events. After these answers, the process has no
/// outstanding command and no unread event. A command that was cancelled causes no event.
#[test]
fn a_delegated_body_reads_the_answers_that_its_process_receives() {
    struct Number;
    impl Command for Number {
        type Reply = u64;
    }
    struct Delegates {
        body: EntryPoints<Payload, Vec<String>>,
        has_begun: bool,
    }
    impl Process for Delegates {
        type Message = Payload;
        type Output = Vec<String>;
        fn init(&mut self, start: Start<'_>) -> Result<(), InitError> {
            self.body.init(start)
        }
        fn step(
            &mut self,
            events: Events<'_, Payload>,
            out: &mut StepOutput<'_, Payload>,
        ) -> Result<Next<Vec<String>>, Exit> {
            if !std::mem::replace(&mut self.has_begun, true) {
                out.perform(Number);
                let stream = out.stream(Count(2));
                assert!((0..3).all(|_| out.pull(stream)));
                let cancelled = out.perform(Number);
                assert!(out.cancel_yield(cancelled));
            }
            self.body.step(events, out)
        }
    }
    async fn read(mut ctx: Context, (): ()) -> Result<Vec<String>, Exit> {
        let mut read = Vec::new();
        while read.len() < 4 {
            read.push(match ctx.event().await {
                Event::Completed(done) => format!("answer {}", done.into_result()?.downcast::<u64>().unwrap()),
                Event::Item(item) => format!("item {}", item.into_payload().downcast::<u64>().unwrap()),
                other => panic!("{other:?}"),
            });
        }
        let info = ctx.host().process_details(ctx.pid()).expect("it is alive").info;
        assert_eq!((info.yields, info.signals), (0, 0));
        Ok(read)
    }
    for workers in [0, 2] {
        let builder = Runtime::builder().workers(workers).handle_stream(count);
        let rt = builder.handle(|_: Number| 7_u64).build().unwrap();
        let body = EntryPoints::new().entry("read", read);
        let process = rt.execute(Delegates { body, has_begun: false }, "read", ());
        let mut read = rt.block_on(process).expect("it ends");
        read.sort();
        assert_eq!(read, ["answer 2", "answer 7", "item 0", "item 1"]);
    }
}

/// A process that pulls items. If `eager` is set, the process requests the next item whenever it has received an item.
/// If `eager` is not set, the process requests an item only when a message asks for an item.
#[derive(Default)]
struct Puller {
    tag: Option<Tag<Count>>,
    eager: bool,
    seen: Arc<Mutex<Vec<String>>>,
}

enum Do {
    Pull(usize),
    Cancel,
    End,
}

impl Process for Puller {
    type Message = Do;
    type Output = ();
    fn step(&mut self, events: Events<'_, Do>, out: &mut StepOutput<'_, Do>) -> Result<Next<()>, Exit> {
        if self.tag.is_none() {
            self.tag = Some(out.stream(Count(5)));
            if self.eager {
                assert!(out.pull(self.tag.expect("just set")));
            }
        }
        let tag = self.tag.expect("set above");
        let note = |text: String| self.seen.lock().unwrap().push(text);
        for event in events {
            match event {
                Event::Item(item) => {
                    note(item.take(tag).expect("the only stream").to_string());
                    if self.eager {
                        out.pull(tag);
                    }
                }
                Event::Completed(done) => {
                    let text = match done.take(tag).expect("the only stream") {
                        Ok(n) => format!("end {n}"),
                        Err(failure) => text_of(&failure),
                    };
                    note(text);
                    assert!(!out.pull(tag) && !out.cancel_yield(tag));
                }
                Event::Message(Do::Pull(n)) => {
                    for _ in 0..n {
                        if !out.pull(tag) {
                            note("nothing".into());
                        }
                    }
                }
                Event::Message(Do::Cancel) => note(out.cancel_yield(tag).to_string()),
                Event::Message(Do::End) | Event::Cancel { .. } => return Ok(Next::Done(())),
                _ => {}
            }
        }
        Ok(Next::Wait)
    }
}

fn seen(log: &Mutex<Vec<String>>) -> String {
    std::mem::take(&mut *log.lock().unwrap()).join(", ")
}

/// 3.2d: a body receives every item once and in order, and then the reply. The test tries an async handler, a handler
/// on a thread, and an async handler that returns `Pending` before each item.
#[test]
fn items_arrive_in_order_before_the_reply() {
    let builders = [
        Runtime::builder().handle_stream(count),
        Runtime::builder().stream_handler(|command: Count, replies: StreamCompletion<Count>| {
            thread::spawn(move || block_on(count(command, replies)));
        }),
        Runtime::builder().handle_stream(|command: Count, mut replies: StreamCompletion<Count>| async move {
            for n in 0..command.0 {
                step_aside().await;
                replies.send(n).await?;
            }
            step_aside().await;
            replies.complete(command.0);
            Ok::<_, Failure>(())
        }),
    ];
    for builder in builders {
        within(20, move || {
            let rt = builder.workers(2).build().unwrap();
            let body = rt.spawn(async |ctx: Context| {
                for n in [0, 1, 2, 3, 4, 100] {
                    let mut items = ctx.stream(Count(n));
                    let mut came = Vec::new();
                    while let Some(item) = items.next().await {
                        came.push(item);
                    }
                    assert_eq!(came, (0..n).collect::<Vec<_>>());
                    assert!(items.is_terminated() && items.next().await.is_none());
                    assert_eq!(items.last().await.unwrap(), n);
                }
            });
            rt.block_on(body).unwrap();
        });
    }
}

/// 3.2d: the handler waits when the buffer is full of unread items. The consumer is either a hand-written process or a
/// body.
#[test]
fn a_stream_handler_waits_for_its_consumer() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counts = sent.clone();
    let rt = Runtime::builder()
        .workers(0)
        .handle_stream(move |_: Count, mut replies: StreamCompletion<Count>| {
            let counts = counts.clone();
            async move {
                loop {
                    replies.send(0).await?;
                    counts.fetch_add(1, Ordering::SeqCst);
                }
                #[expect(unreachable_code, reason = "it says what the future returns")]
                Ok::<(), Failure>(())
            }
        })
        .build()
        .unwrap();
    let puller = rt.spawn_process(Puller::default());
    settle(&rt);
    assert_eq!(sent.load(Ordering::SeqCst), 3);
    for pulled in 1..=5 {
        puller.send(Do::Pull(1)).unwrap();
        settle(&rt);
        assert_eq!(sent.load(Ordering::SeqCst), 3 + pulled);
    }
    drop(puller);
    sent.store(0, Ordering::SeqCst);
    let (go, mut gates) = futures::channel::mpsc::unbounded::<()>();
    let body = rt.spawn(async move |ctx: Context| {
        let mut items = ctx.stream(Count(0)).start();
        while let Some(()) = gates.next().await {
            assert_eq!(items.next().await, Some(0));
        }
    });
    for pulled in 0..4 {
        settle(&rt);
        assert_eq!(sent.load(Ordering::SeqCst), 3 + pulled);
        go.unbounded_send(()).unwrap();
    }
    drop(body);
}

/// 1.2a, 3.2d: a hand-written process receives only the items that it has pulled. The process receives the end of the
/// stream after the last item. When the process cancels a stream, the process receives nothing more of this stream.
#[test]
fn a_hand_written_process_pulls_items_at_its_own_pace() {
    let rt = Runtime::builder().workers(0).handle_stream(count).build().unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    let puller = rt.spawn_process(Puller { seen: log.clone(), ..Puller::default() });
    let tell = |what: Do| {
        puller.send(what).unwrap();
        settle(&rt);
        seen(&log)
    };
    settle(&rt);
    assert_eq!(seen(&log), "");
    assert_eq!(tell(Do::Pull(1)), "0");
    assert_eq!(tell(Do::Pull(2)), "1, 2");
    assert_eq!(tell(Do::Pull(0)), "");
    // The handler has already sent all items and the reply. The end of the stream waits until the process has pulled
    // the last item.
    assert_eq!(tell(Do::Pull(1)), "3");
    assert_eq!(tell(Do::Pull(2)), "4, end 5");
    assert_eq!(tell(Do::Pull(1)), "nothing");
    assert_eq!(tell(Do::Cancel), "false");

    let eager = rt.spawn_process(Puller { eager: true, seen: log.clone(), ..Puller::default() });
    settle(&rt);
    assert_eq!(seen(&log), "0, 1, 2, 3, 4, end 5");
    eager.send(Do::End).unwrap();
    rt.block_on(eager).unwrap();

    // The process cancels a stream while requests for items are outstanding. After the cancellation, the process
    // receives no item, and the reply is discarded.
    let shelf = Shelf::default();
    let rt = shelf.runtime(0);
    let puller = rt.spawn_process(Puller { seen: log.clone(), ..Puller::default() });
    settle(&rt);
    let mut replies = shelf.take();
    puller.send(Do::Pull(9)).unwrap();
    settle(&rt);
    block_on(replies.send(7)).unwrap();
    settle(&rt);
    assert_eq!(seen(&log), "7");
    block_on(replies.send(8)).unwrap();
    puller.send(Do::Cancel).unwrap();
    settle(&rt);
    assert_eq!(seen(&log), "8, true");
    assert!(replies.is_cancelled());
    assert!(matches!(block_on(replies.send(9)), Err(Failure::Cancelled)));
    replies.complete(0);
    settle(&rt);
    assert_eq!((seen(&log).as_str(), rt.counters().discarded), ("", 1));
}

/// 3.2d, 3.3a, 3.3b: a stream may end in several ways. In each case the end arrives after the items that were sent
/// before the end.
#[test]
fn the_end_of_a_stream_arrives_after_its_items() {
    type Handle = fn(Count, StreamCompletion<Count>) -> futures::future::BoxFuture<'static, Result<(), BoxError>>;
    fn with(
        end: impl FnOnce(StreamCompletion<Count>) -> Result<(), BoxError> + Send + 'static,
        mut replies: StreamCompletion<Count>,
    ) -> futures::future::BoxFuture<'static, Result<(), BoxError>> {
        async move {
            replies.send(0).await?;
            step_aside().await;
            replies.send(1).await?;
            end(replies)
        }
        .boxed()
    }
    let cases: [(Handle, &str); 6] = [
        (|_, r| with(|_| panic!("as told"), r), "the handler panicked: as told"),
        (|_, r| with(|_r| Ok(()), r), "the handler dropped its `Completion` without an answer"),
        (|_, r| with(|_r| Err("disk".into()), r), "the handler failed: disk"),
        (
            |_, r| {
                with(
                    |r| {
                        r.fail("by hand");
                        Err("too late".into())
                    },
                    r,
                )
            },
            "the handler failed: by hand",
        ),
        // The completion is still alive when the future of the handler returns. Therefore the error of this future does
        // not end the stream.
        (
            |_, r| {
                with(
                    |r| {
                        thread::spawn(move || r.complete(3));
                        Err("not mine any more".into())
                    },
                    r,
                )
            },
            "3",
        ),
        (|_, _| panic!("before it began"), "the handler panicked: before it began"),
    ];
    for (n, (handle, text)) in cases.into_iter().enumerate() {
        let rt = Runtime::builder().workers(2).handle_stream(handle).build().unwrap();
        let body = rt.spawn(async move |ctx: Context| {
            let mut items = ctx.stream(Count(0));
            let came: Vec<u64> = (&mut items).collect().await;
            assert_eq!(came, if n == 5 { vec![] } else { vec![0, 1] });
            Ok::<_, Exit>(items.last().await.map_or_else(|failure| text_of(&failure), |n| n.to_string()))
        });
        assert_eq!(rt.block_on(body).unwrap(), text);
        let log = Arc::new(Mutex::new(Vec::new()));
        let puller = rt.spawn_process(Puller { eager: true, seen: log.clone(), ..Puller::default() });
        let end = if n == 4 { "end 3" } else { text };
        let expected = if n == 5 { end.to_owned() } else { format!("0, 1, {end}") };
        within(10, move || {
            let mut all = String::new();
            while all.len() < expected.len() {
                let more = seen(&log);
                if !more.is_empty() {
                    all = if all.is_empty() { more } else { format!("{all}, {more}") };
                }
                thread::yield_now();
            }
            assert_eq!(all, expected);
        });
        drop(puller);
    }
}

/// 3.3c: the consumer of a stream drops the stream, panics, or is killed. In a fourth case, the time limit of the
/// stream passes. In each case the handler is notified, even while the handler waits for free space in the buffer.
#[test]
fn a_stream_handler_is_notified_when_its_consumer_stops_reading() {
    for how in 0..3 {
        let shelf = Shelf::default();
        let rt = shelf.runtime(2);
        let (go, gate) = futures::channel::oneshot::channel::<()>();
        let body = rt.spawn(async move |ctx: Context| {
            let mut items = ctx.stream(Count(1));
            assert_eq!(items.next().await, Some(0));
            let _ = gate.await;
            match how {
                0 => drop(items),
                1 => panic!("as told"),
                _ => return std::future::pending().await,
            }
            std::future::pending::<Result<(), Exit>>().await
        });
        let mut replies = shelf.take();
        let (ready, sent) = mpsc::channel();
        let sender = thread::spawn(move || {
            for n in 0..4 {
                block_on(replies.send(n)).unwrap();
            }
            ready.send(()).unwrap();
            let full = block_on(replies.send(4));
            assert!(replies.is_cancelled() && block_on(replies.send(5)).is_err());
            full
        });
        sent.recv_timeout(Duration::from_secs(10)).expect("four items have room");
        go.send(()).unwrap();
        if how == 2 {
            body.abort();
        }
        within(10, move || {
            assert!(matches!(sender.join().unwrap(), Err(Failure::Cancelled)));
        });
    }
    // The time limit is set either at the start, or when the stream is already in flight. The test runs with threads,
    // and in simulations, where the time must be exact to the tick.
    async fn limited(host: Host, limit: Duration, from_the_first: bool) -> Duration {
        let (tell, mut told) = futures::channel::mpsc::unbounded();
        let handler = move |_: Count, replies: StreamCompletion<Count>| tell.unbounded_send(replies).unwrap();
        let host = host.add_host(HostBuilder::new("streams").stream_handler(handler)).unwrap();
        let (full, is_full) = futures::channel::oneshot::channel::<()>();
        let (go, gate) = futures::channel::oneshot::channel::<()>();
        let body = host.spawn(async move |ctx: Context| {
            let mut items = ctx.stream(Count(1));
            if from_the_first {
                items = items.timeout(limit);
            }
            assert_eq!(items.next().await, Some(0));
            let _ = is_full.await;
            if !from_the_first {
                items = items.timeout(limit);
            }
            let _ = gate.await;
            // Items that were sent before the time limit still arrive.
            let rest: Vec<u64> = (&mut items).collect().await;
            assert_eq!(rest, [1, 2, 3]);
            assert!(matches!(items.last().await, Err(Failure::TimedOut)));
        });
        let mut replies = told.next().await.unwrap();
        for n in 0..4 {
            replies.send(n).await.unwrap();
        }
        let (begun, cancelled) = (host.now(), replies.cancelled());
        full.send(()).unwrap();
        assert!(matches!(replies.send(4).await, Err(Failure::Cancelled)));
        let took = host.now() - begun;
        cancelled.await;
        assert!(replies.is_cancelled() && replies.send(5).await.is_err());
        go.send(()).unwrap();
        body.await.unwrap();
        took
    }
    const SOON: Duration = Duration::from_millis(5);
    everywhere(async |host| assert!(limited(host, SOON, false).await >= SOON));
    let long = Duration::from_secs(3_600);
    for from_the_first in [true, false] {
        check(0..10, async |host: Host| assert_eq!(limited(host, long, from_the_first).await, long));
    }
}

/// 3.3c: when a stream is dropped, the future of its handler is dropped too.
#[test]
fn the_future_of_a_stream_handler_is_dropped_with_its_stream() {
    struct Told(mpsc::Sender<()>);
    impl Drop for Told {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let (told, hears) = mpsc::channel();
    let told = Mutex::new(told);
    let rt = Runtime::builder()
        .workers(2)
        .handle_stream(move |_: Count, mut replies: StreamCompletion<Count>| {
            let told = Told(told.lock().unwrap().clone());
            async move {
                let _told = told;
                replies.send(1).await?;
                std::future::pending::<Result<(), Failure>>().await
            }
        })
        .build()
        .unwrap();
    let body = rt.spawn(async |ctx: Context| ctx.stream(Count(0)).next().await.ok_or("nothing"));
    assert_eq!(rt.block_on(body).unwrap(), 1);
    hears.recv_timeout(Duration::from_secs(10)).expect("its future is dropped");
}

/// 3.1d: a stream without a handler ends with a failure that names the command. A handler for `perform` does not handle
/// streams. A stream handler does not handle `perform`.
#[test]
fn a_stream_without_a_handler_fails_and_the_failure_names_the_command() {
    let rt = Runtime::builder().workers(0).handle(|c: Count| c.0).build().unwrap();
    let body = rt.spawn(async |ctx: Context| {
        assert_eq!(ctx.perform(Count(3)).await?, 3);
        let mut items = ctx.stream(Count(1));
        assert!(items.next().await.is_none());
        let typed = items.last().await.unwrap_err();
        let named = ctx.stream(NamedCommand::new("tail")).last().await.unwrap_err();
        Ok::<_, Exit>((typed.to_string(), named.to_string()))
    });
    let (typed, named) = rt.block_on(body).unwrap();
    assert!(typed.contains("for the command ") && typed.contains("Count, as a stream; "), "{typed}");
    assert_eq!(named, "no handler is registered for the command tail, as a stream; add one with `Builder::handler`");
    let rt = Runtime::builder().workers(0).handle_stream(count).build().unwrap();
    let body = rt.spawn(async |ctx: Context| ctx.perform(Count(3)).await);
    assert!(rt.block_on(body).is_err());
    let twice = Runtime::builder().handle_stream(count).handle_stream(count).build().unwrap_err();
    assert!(twice.to_string().contains("Count, as a stream"), "{twice}");
}

/// 3.1c: a command with a name can be a stream command. Programs that run scripts need named stream commands.
#[test]
fn named_stream_commands_reach_their_handler() {
    let handle = |command: NamedCommand, replies: StreamCompletion<NamedCommand>| {
        thread::spawn(move || {
            let mut replies = replies;
            for payload in command.payloads {
                block_on(replies.send(payload)).unwrap();
            }
            replies.complete(Payload::new("done"));
        });
    };
    let rt = Runtime::builder().workers(0).stream_handler_named("echo", handle).build().unwrap();
    let body = rt.spawn(async |ctx: Context| {
        let mut items = ctx.stream(NamedCommand::new("echo").arg(1_u64).arg(String::from("two")));
        assert_eq!(items.next().await.unwrap().downcast::<u64>().unwrap(), 1);
        assert_eq!(items.next().await.unwrap().downcast::<String>().unwrap(), "two");
        assert_eq!(items.last().await?.downcast::<&str>().unwrap(), "done");
        let unknown = ctx.stream(NamedCommand::new("else")).last().await.unwrap_err();
        assert_eq!(unknown, Failure::NoHandler("else, as a stream".into()));
        Ok::<_, Exit>(())
    });
    rt.block_on(body).unwrap();
    let twice = Runtime::builder().stream_handler_named("x", handle).stream_handler_named("x", handle).build();
    assert!(matches!(twice.unwrap_err(), BuildError::DuplicateHandler(name) if name == "x"));
}

/// 3.3c: when a stream is cancelled, every item of the stream is dropped exactly once. It does not matter whether the
/// item is in the buffer or in a `send` that waits for free space. If the drop of an item panics, the panic is caught.
#[test]
fn each_item_of_a_cancelled_stream_is_dropped_exactly_once() {
    struct Value(Arc<AtomicUsize>);
    impl Drop for Value {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
            panic!("in the drop of an item");
        }
    }
    struct Give;
    impl Command for Give {
        type Reply = ();
    }
    impl StreamCommand for Give {
        type Item = Value;
        const BUFFER: usize = 4;
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let counts = dropped.clone();
    let rt = Runtime::builder()
        .workers(0)
        .handle_stream(move |_: Give, mut replies: StreamCompletion<Give>| {
            let counts = counts.clone();
            async move {
                for _ in 0..4 {
                    replies.send(Value(counts.clone())).await?;
                }
                // The buffer has no place for the fifth item, so this send waits forever.
                replies.send(Value(counts.clone())).await
            }
        })
        .build()
        .unwrap();
    let body = rt.spawn(async |ctx: Context| {
        let items = ctx.stream(Give).start();
        ctx.yield_now().await;
        drop(items);
    });
    rt.block_on(body).unwrap();
    settle(&rt);
    assert_eq!(dropped.load(Ordering::SeqCst), 5);
    let body = rt.spawn(async |ctx: Context| {
        let _items = ctx.stream(Give).start();
        std::future::pending::<()>().await
    });
    settle(&rt);
    body.abort();
    assert!(rt.block_on(body).is_err());
    settle(&rt);
    assert_eq!(dropped.load(Ordering::SeqCst), 10);
}

/// 1.3c, 3.2d: many streams run concurrently in combinators, with several workers.
#[test]
fn many_streams_run_concurrently() {
    within(60, || {
        let rt = Runtime::builder()
            .workers(2)
            .handle_stream(|command: Count, mut replies: StreamCompletion<Count>| async move {
                for n in 0..command.0 {
                    if n % 7 == 0 {
                        step_aside().await;
                    }
                    replies.send(n).await?;
                }
                replies.complete(command.0);
                Ok::<_, Failure>(())
            })
            .build()
            .unwrap();
        let bodies: Vec<_> = (0..20)
            .map(|_| {
                rt.spawn(async |ctx: Context| {
                    let mut all: SelectAll<_> = (0..10).map(|_| ctx.stream(Count(100))).collect();
                    let mut sum = 0;
                    while let Some(n) = all.next().await {
                        sum += n;
                    }
                    Ok::<_, Exit>(sum)
                })
            })
            .collect();
        for body in bodies {
            assert_eq!(rt.block_on(body).unwrap(), 10 * 4_950);
        }
    });
}

/// 1.3e: a stream works only inside its own process. If the time limit of a stream has passed before the stream starts,
/// the stream does not reach its handler.
#[test]
fn a_stream_fails_outside_its_process() {
    let called = Arc::new(AtomicUsize::new(0));
    let counts = called.clone();
    let rt = Runtime::builder()
        .workers(0)
        .stream_handler(move |_: Count, _: StreamCompletion<Count>| {
            counts.fetch_add(1, Ordering::SeqCst);
        })
        .build()
        .unwrap();
    let items = rt.spawn(async |ctx: Context| Ok::<_, Exit>(ctx.stream(Count(1))));
    let mut items = rt.block_on(items).unwrap();
    assert!(rt.block_on(items.next()).is_none());
    assert!(matches!(rt.block_on(items.last()), Err(Failure::Outside)));
    let body = rt.spawn(async |ctx: Context| ctx.stream(Count(1)).timeout(Duration::ZERO).last().await.map(drop));
    let exit = rt.block_on(body).unwrap_err();
    assert!(matches!(exit.error::<Failure>(), Some(Failure::TimedOut)), "{exit:?}");
    assert_eq!(called.load(Ordering::SeqCst), 0);
}

/// 4.6b: a body that pulls the items of a full buffer uses up its budget. The method `last`, which drops the items,
/// also uses up the budget.
#[test]
fn pulling_items_spends_the_budget() {
    const ITEMS: usize = 10_000;
    /// Counts its drops.
    struct Item(Arc<AtomicUsize>);
    impl Drop for Item {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    struct Burst(Arc<AtomicUsize>);
    impl Command for Burst {
        type Reply = ();
    }
    impl StreamCommand for Burst {
        type Item = Item;
        const BUFFER: usize = ITEMS;
    }
    async fn send_all(command: Burst, mut replies: StreamCompletion<Burst>) -> Result<(), Failure> {
        for _ in 0..ITEMS {
            replies.send(Item(command.0.clone())).await?;
        }
        replies.complete(());
        Ok(())
    }
    for pulls_each in [true, false] {
        let rt = Runtime::builder().workers(0).handle_stream(send_all).build().unwrap();
        let count = Arc::new(AtomicUsize::new(0));
        let dropped = count.clone();
        let pulls = rt.spawn(async move |ctx: Context| {
            let mut items = ctx.stream(Burst(dropped));
            if pulls_each {
                while items.next().await.is_some() {}
            }
            items.last().await
        });
        let watches = rt.spawn(async move |ctx: Context| {
            let mut seen = std::collections::BTreeSet::new();
            while count.load(Ordering::SeqCst) != ITEMS {
                seen.insert(count.load(Ordering::SeqCst));
                ctx.yield_now().await;
            }
            Ok::<_, Exit>(seen.len())
        });
        let seen = rt.block_on(watches).unwrap();
        assert!(seen > 10, "the other process ran {seen} times between the items");
        rt.block_on(pulls).unwrap();
    }
}

/// 3.2d: the debug output of a stream begins with the name of its type.
#[test]
fn the_debug_output_of_a_stream_names_its_type() {
    let handler = async |_: Count, replies: StreamCompletion<Count>| {
        assert!(format!("{replies:?}").starts_with("StreamCompletion {"), "{replies:?}");
        replies.complete(0);
        Ok::<_, Failure>(())
    };
    let rt = Runtime::builder().workers(0).handle_stream(handler).build().unwrap();
    let last = rt.block_on(rt.spawn(async |ctx: Context| {
        let stream = ctx.stream(Count(0));
        assert!(format!("{stream:?}").starts_with("ItemStream<"), "{stream:?}");
        stream.last().await
    }));
    assert_eq!(last.unwrap(), 0);
}

//! Section 9.4 of the specification: spans and events of the crate `tracing`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use procession::observe::{ProcessState, TracingObserver, Transition};
use procession::*;
use tracing::field::{Field, Visit};
use tracing::instrument::{Instrument, Instrumented};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::with_default;
use tracing::{Event, Level, Metadata, Span, Subscriber};
use tracing_core::span::Current;

use crate::within;

/// Fields of a span or an event, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl Fields {
    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }
}

#[derive(Debug, Clone)]
struct SpanData {
    metadata: &'static Metadata<'static>,
    fields: Fields,
    parent: Option<u64>,
    /// Number of handles of the span.
    handles: u64,
    follows: Vec<u64>,
}

#[derive(Debug, Clone)]
struct Reported {
    level: Level,
    fields: Fields,
    span: Option<u64>,
}

/// Subscriber that stores all spans and events.
#[derive(Default)]
struct Log {
    spans: Mutex<BTreeMap<u64, SpanData>>,
    events: Mutex<Vec<Reported>>,
    next: AtomicU64,
}

thread_local! {
    /// The spans that this thread has entered.
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

fn current() -> Option<u64> {
    ENTERED.with_borrow(|entered| entered.last().copied())
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        span.record(&mut fields);
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let data = SpanData { metadata: span.metadata(), fields, parent: current(), handles: 1, follows: Vec::new() };
        self.spans.lock().unwrap().insert(id, data);
        Id::from_u64(id)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.spans.lock().unwrap().get_mut(&span.into_u64()).unwrap().follows.push(follows.into_u64());
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.events.lock().unwrap().push(Reported { level: *event.metadata().level(), fields, span: current() });
    }

    fn enter(&self, span: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(span.into_u64()));
    }

    fn exit(&self, span: &Id) {
        assert_eq!(ENTERED.with_borrow_mut(Vec::pop), Some(span.into_u64()), "spans nest");
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.spans.lock().unwrap().get_mut(&id.into_u64()).unwrap().handles += 1;
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let mut spans = self.spans.lock().unwrap();
        let span = spans.get_mut(&id.into_u64()).unwrap();
        span.handles -= 1;
        span.handles == 0
    }

    fn current_span(&self) -> Current {
        let spans = self.spans.lock().unwrap();
        current().map_or_else(Current::none, |id| Current::new(Id::from_u64(id), spans[&id].metadata))
    }
}

impl Log {
    /// Returns the events with this message.
    fn events(&self, message: &str) -> Vec<Reported> {
        let events = self.events.lock().unwrap();
        events.iter().filter(|event| event.fields.get("message") == message).cloned().collect()
    }

    /// Returns a field of the span of an event.
    fn field(&self, event: &Reported, name: &str) -> String {
        let spans = self.spans.lock().unwrap();
        event.span.map_or(String::new(), |span| spans[&span].fields.get(name).to_owned())
    }

    fn span_of(&self, pid: Pid) -> (u64, SpanData) {
        let spans = self.spans.lock().unwrap();
        let (id, span) = spans.iter().find(|(_, span)| span.fields.get("pid") == pid.to_string()).expect("a span");
        (*id, span.clone())
    }

    /// Asserts that each span of a process is closed, and that this thread is in no span.
    fn assert_closed(&self) {
        let open: Vec<_> = self.spans.lock().unwrap().values().filter(|span| span.handles != 0).cloned().collect();
        assert!(open.is_empty() && current().is_none(), "{open:?}");
    }
}

/// Runs `scenario` on a runtime without workers, so that all processes run on this thread.
fn logged(scenario: impl FnOnce(&Runtime)) -> Arc<Log> {
    let log = Arc::new(Log::default());
    with_default(Arc::clone(&log), || {
        let observer = TracingObserver::new();
        let rt = Runtime::builder().workers(0).observer(observer).on_crash(|_| {}).build().unwrap();
        scenario(&rt);
    });
    log.assert_closed();
    log
}

/// 9.4a: each process has a span with its pid, name and type. The span is entered during each step of the process, and
/// only then.
#[test]
fn the_span_of_a_process_is_entered_during_its_steps() {
    async fn speaks(ctx: Context) {
        for _ in 0..3 {
            tracing::info!(own = %ctx.pid(), "step");
            ctx.yield_now().await;
        }
    }
    let log = logged(|rt| {
        let named = rt.process().name("named").spawn(speaks).unwrap();
        let other = rt.spawn(speaks);
        rt.block_on(async {
            tracing::info!("outside");
            named.await.unwrap();
            other.await.unwrap();
        });
    });
    let steps = log.events("step");
    assert_eq!(steps.len(), 6);
    for step in &steps {
        assert_eq!(log.field(step, "pid"), step.fields.get("own"));
        assert!(log.field(step, "type").contains("speaks"), "{step:?}");
    }
    let names: Vec<_> = steps.iter().map(|step| log.field(step, "name")).collect();
    assert_eq!(names.iter().filter(|name| *name == "named").count(), 3);
    assert_eq!(names.iter().filter(|name| name.is_empty()).count(), 3);
    assert_eq!(log.events("outside")[0].span, None);
    assert_eq!(log.events("process started").len(), 2);
}

/// 9.4a: `TracingObserver::with` wraps an observer that panics in each of its methods. Nevertheless, each process has
/// its span, and the worker exits the span after each step.
#[test]
fn a_panic_of_the_wrapped_observer_leaves_no_span_entered() {
    struct Panics;
    impl Observer for Panics {
        fn started(&self, _: Pid, _: Option<&str>, _: &'static str) {
            std::panic::resume_unwind(Box::new("started"));
        }

        fn ended(&self, _: Pid, _: Option<&str>, _: &'static str, _: &Exit) {
            std::panic::resume_unwind(Box::new("ended"));
        }

        fn transition(&self, _: &Transition) {
            std::panic::resume_unwind(Box::new("transition"));
        }
    }
    let log = Arc::new(Log::default());
    with_default(Arc::clone(&log), || {
        let rt = Runtime::builder().workers(0).observer(TracingObserver::with(Panics)).build().unwrap();
        for name in ["first", "second"] {
            let process = rt.process().name(name).spawn(async |ctx: Context| {
                tracing::info!("step");
                ctx.yield_now().await;
            });
            rt.block_on(process.unwrap()).unwrap();
            assert_eq!(current(), None);
        }
    });
    log.assert_closed();
    let names: Vec<_> = log.events("step").iter().map(|step| log.field(step, "name")).collect();
    assert_eq!(names, ["first", "second"]);
}

/// 9.4a: the span of a child is inside the span of the process that spawned the child.
#[test]
fn the_span_of_a_child_is_inside_the_span_of_its_parent() {
    let log = logged(|rt| {
        let outer = tracing::info_span!("outer");
        let parent = outer.in_scope(|| {
            rt.spawn(async |ctx: Context| {
                let child = ctx.spawn(async |_: Context| tracing::info!("child"));
                child.await?;
                tracing::info!("parent");
                Ok::<_, Exit>(())
            })
        });
        rt.block_on(parent).unwrap();
    });
    let span = |message: &str| log.events(message)[0].span.expect("a span");
    let spans = log.spans.lock().unwrap();
    assert_eq!(spans[&span("child")].parent, Some(span("parent")));
    let outer = spans[&span("parent")].parent.expect("the span of the host's caller");
    assert!(spans[&outer].fields.0.is_empty());
}

/// 9.4a: the level of the event for an exit depends on the kind of the exit.
#[test]
fn the_level_of_an_exit_depends_on_its_kind() {
    let waits = async |mut ctx: Context<u8>| ctx.receive().await.map(drop);
    let log = logged(|rt| {
        rt.block_on(rt.process().name("normal").spawn(async |_: Context| {}).unwrap()).unwrap();
        let killed = rt.process().name("killed").spawn(waits).unwrap();
        rt.kill(killed.pid()).unwrap();
        rt.block_on(killed).unwrap_err();
        let cancelled = rt.process().name("cancelled").spawn(waits).unwrap();
        rt.cancel(cancelled.pid(), "enough", Duration::from_secs(60)).unwrap();
        rt.block_on(cancelled).unwrap_err();
        let failed = rt.process().name("failed").spawn(async |_: Context| Err::<(), _>("no luck")).unwrap();
        rt.block_on(failed).unwrap_err();
        let panics = async |_: Context| std::panic::resume_unwind(Box::new("no luck"));
        let panicked = rt.process().name("panicked").spawn(panics).unwrap();
        rt.block_on(panicked).unwrap_err();
    });
    let levels: BTreeMap<_, _> =
        log.events("process exited").iter().map(|event| (log.field(event, "name"), event.level)).collect();
    let expected = [
        ("normal", Level::DEBUG),
        ("killed", Level::INFO),
        ("cancelled", Level::INFO),
        ("failed", Level::INFO),
        ("panicked", Level::INFO),
    ];
    assert_eq!(levels, expected.map(|(name, level)| (name.to_owned(), level)).into());
    let failed = log.events("process exited").into_iter().find(|event| log.field(event, "name") == "failed");
    assert!(failed.unwrap().fields.get("exit").contains("no luck"));
    // Each failure causes one event with the level `ERROR`.
    let crashed: Vec<_> =
        log.events("process crashed").iter().map(|event| (log.field(event, "name"), event.level)).collect();
    assert_eq!(crashed, ["failed", "panicked"].map(|name| (name.to_owned(), Level::ERROR)));
}

/// 9.4a, 9.5e: the observer, the event of `tracing` and the report on stderr contain the same text. The text contains
/// the name, the messages and the backtrace of the process.
#[test]
fn the_observer_and_tracing_and_stderr_report_a_crash_with_the_same_text() {
    use crate::subprocess::{again_with, role};
    use procession::observe::InspectOptions;

    /// Prints each report.
    struct Prints;
    impl Observer for Prints {
        fn crashed(&self, report: &CrashReport) {
            print!("<observer>{report}</observer>");
        }
    }

    if role().is_some() {
        let log = Arc::new(Log::default());
        with_default(Arc::clone(&log), || {
            let observer = TracingObserver::with(Prints);
            let builder = Runtime::builder().workers(0).observer(observer).inspect(InspectOptions::new());
            let rt = builder.build().unwrap();
            let fails = rt.process().name("divides").spawn(async |mut ctx: Context<u64>| {
                let number = ctx.receive().await?;
                assert_ne!(number, 0, "a division\nby zero");
                Ok::<_, Exit>(())
            });
            let fails = fails.unwrap();
            (0..3).for_each(|number| fails.send(number).unwrap());
            drop(fails);
            crate::lives::settle(&rt);
        });
        let crashes = log.events("process crashed");
        let [crash] = &crashes[..] else { panic!("{crashes:?}") };
        print!("<tracing>{}</tracing>", crash.fields.get("report"));
        return;
    }
    let test = the_observer_and_tracing_and_stderr_report_a_crash_with_the_same_text;
    let ran = again_with(test, "child", 120, |command| _ = command.env("RUST_LIB_BACKTRACE", "1"));
    let (stdout, stderr) = (&ran.passed().stdout, &ran.stderr);
    let between = |tag: &str| {
        let (_, after) = stdout.split_once(&format!("<{tag}>")).unwrap_or_else(|| panic!("{ran:#?}"));
        after.split_once(&format!("</{tag}>")).unwrap_or_else(|| panic!("{ran:#?}")).0
    };
    let text = between("observer");
    assert_eq!(between("tracing"), text);
    let note = "  note:    no link, monitor, supervisor or join handle received this exit\n";
    assert!(stderr.ends_with(&format!("\n{text}\n{note}")), "{ran:#?}");
    assert!(text.starts_with("process <") && text.contains("\"divides\""), "{text}");
    for part in ["by zero\n", "\n  mailbox: 2 messages\n", "\n    message u64 (", "\n  backtrace:\n"] {
        assert_eq!(text.matches(part).count(), if part.contains("u64") { 3 } else { 1 }, "{text}");
    }
}

/// 9.4a: a restart of a child is a warning in the span of its supervisor.
#[test]
fn a_restart_is_a_warning_in_the_span_of_the_supervisor() {
    let log = logged(|rt| {
        let (tell, told) = mpsc::channel();
        let attempts = Arc::new(AtomicU64::new(0));
        let frail = move |_: Context| {
            let (tell, attempts) = (tell.clone(), Arc::clone(&attempts));
            async move {
                if attempts.fetch_add(1, Ordering::Relaxed) == 0 {
                    return Err("the first instance fails");
                }
                tell.send(()).unwrap();
                Ok(())
            }
        };
        let child = Child::new("frail", frail).restart(RestartPolicy::Transient);
        let supervisor = rt.spawn_process(Supervisor::one_for_one().add(child));
        let pid = supervisor.pid();
        rt.block_on(async {
            while told.try_recv().is_err() {
                crate::step_aside().await;
            }
        });
        rt.cancel(pid, "done", Duration::from_secs(60)).unwrap();
        rt.block_on(supervisor).unwrap_err();
    });
    let restarts = log.events("child restarts");
    let [restart] = &restarts[..] else { panic!("{restarts:?}") };
    assert_eq!((restart.level, restart.fields.get("child")), (Level::WARN, "frail"));
    assert!(restart.fields.get("exit").contains("the first instance fails"));
    assert!(log.field(restart, "type").contains("Supervisor"), "{restart:?}");
}

/// 9.4a: a long step is a warning in the span of its process, although the monitor thread reports the step.
#[test]
fn a_long_step_is_a_warning_in_the_span_of_its_process() {
    within(60, || {
        let log = Arc::new(Log::default());
        let dispatch = tracing::Dispatch::from(Arc::clone(&log));
        let on_worker = dispatch.clone();
        let long = Duration::from_millis(2);
        let rt = Runtime::builder()
            .workers(1)
            .long_step_threshold(long)
            .wrap_threads(move |work| tracing::dispatcher::with_default(&on_worker, work))
            .observer(TracingObserver::new())
            .build()
            .unwrap();
        let seen = Arc::clone(&log);
        let waits = async move |_: Context| {
            while seen.events("long step").is_empty() {
                std::thread::yield_now();
            }
        };
        let spawned = tracing::dispatcher::with_default(&dispatch, || rt.process().name("long").spawn(waits).unwrap());
        let pid = spawned.pid();
        futures::executor::block_on(spawned).unwrap();
        let steps = log.events("long step");
        assert_eq!((steps[0].level, log.field(&steps[0], "name").as_str()), (Level::WARN, "long"));
        assert_eq!(steps[0].span, Some(log.span_of(pid).0));
    });
}

/// 9.4a: a message that is wrapped in `Instrumented` carries the span of its sender.
#[test]
fn a_wrapped_message_carries_the_span_of_its_sender() {
    let mut pids = None;
    let log = logged(|rt| {
        let receiver = rt.spawn(async |mut ctx: Context<Instrumented<u64>>| {
            let message = ctx.receive().await?;
            Span::current().follows_from(message.span());
            Ok::<_, Exit>(message.into_inner())
        });
        let to = receiver.address().clone();
        let sender = rt.spawn(async move |_: Context| to.send(7.in_current_span()).map_err(|_| "no receiver"));
        pids = Some((sender.pid(), receiver.pid()));
        rt.block_on(sender).unwrap();
        assert_eq!(rt.block_on(receiver).unwrap(), 7);
    });
    let (sender, receiver) = pids.unwrap();
    assert_eq!(log.span_of(receiver).1.follows, [log.span_of(sender).0]);
}

/// 9.4a: `TracingObserver::with` wraps another observer and calls this observer inside the span of the process.
#[test]
fn another_observer_is_called_inside_the_span() {
    struct Next;
    impl Observer for Next {
        fn started(&self, pid: Pid, _: Option<&str>, _: &'static str) {
            tracing::info!(own = %pid, "next");
        }
        fn ended(&self, pid: Pid, _: Option<&str>, _: &'static str, _: &Exit) {
            tracing::info!(own = %pid, "next");
        }
        fn transition(&self, t: &Transition) {
            if t.to == ProcessState::Running || t.to == ProcessState::Complete {
                tracing::info!(own = %t.pid, "next");
            }
        }
    }
    let log = Arc::new(Log::default());
    with_default(Arc::clone(&log), || {
        let rt = Runtime::builder().workers(0).observer(TracingObserver::with(Next)).build().unwrap();
        rt.block_on(rt.spawn(async |_: Context| {})).unwrap();
    });
    let calls = log.events("next");
    assert_eq!(calls.len(), 4);
    assert!(calls.iter().all(|call| log.field(call, "pid") == call.fields.get("own")), "{calls:?}");
    log.assert_closed();
}

/// 9.4a: without a subscriber, the observer creates no span, and the processes run as usual.
#[test]
fn the_observer_works_without_a_subscriber() {
    let rt = Runtime::builder().workers(0).observer(TracingObserver::new()).build().unwrap();
    let is_none = async |_: Context| Ok::<_, Exit>(Span::current().is_none());
    assert!(rt.block_on(rt.spawn(is_none)).unwrap());
}

/// 9.4a: the observer reports processes, restarts and long steps. Afterwards, the program can still install its global
/// subscriber. The test runs in its own process, because a process can install a global subscriber only once.
#[test]
fn the_observer_installs_no_global_subscriber() {
    use crate::subprocess::{again, role};

    /// Runs a process that fails, a child that is restarted, and a process with a long step.
    fn use_observer(builder: Builder) {
        let reported = Arc::new(AtomicU64::new(0));
        let tell = Arc::clone(&reported);
        let observer = TracingObserver::with(TellsLongSteps(tell));
        let builder = builder.workers(1).long_step_threshold(Duration::from_millis(2)).on_crash(|_| {});
        let rt = builder.observer(observer).build().unwrap();
        futures::executor::block_on(rt.spawn(async |_: Context| Err::<(), _>("no luck"))).unwrap_err();
        let attempts = AtomicU64::new(0);
        let (tell, told) = mpsc::channel();
        let frail = move |_: Context| {
            let (tell, is_first) = (tell.clone(), attempts.fetch_add(1, Ordering::Relaxed) == 0);
            async move { if is_first { Err("no luck") } else { tell.send(()).map_err(|_| "no test") } }
        };
        let child = Child::new("frail", frail).restart(RestartPolicy::Transient);
        let _supervisor = rt.spawn_process(Supervisor::one_for_one().add(child));
        told.recv().unwrap();
        let long = rt.spawn(async move |_: Context| {
            while reported.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
        });
        futures::executor::block_on(long).unwrap();
    }

    struct TellsLongSteps(Arc<AtomicU64>);
    impl Observer for TellsLongSteps {
        fn blocked(&self, _: usize, _: Option<Pid>, _: Instant) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    if role().is_none() {
        again(the_observer_installs_no_global_subscriber, "child", 120).passed();
        return;
    }
    use_observer(Runtime::builder());
    let log = Arc::new(Log::default());
    let dispatch = tracing::Dispatch::from(Arc::clone(&log));
    let on_worker = dispatch.clone();
    let builder = Runtime::builder().wrap_threads(move |work| tracing::dispatcher::with_default(&on_worker, work));
    tracing::dispatcher::with_default(&dispatch, || use_observer(builder));
    assert_eq!(log.events("child restarts").len(), 1);
    let global = Arc::new(Log::default());
    tracing::subscriber::set_global_default(Arc::clone(&global)).expect("there is no global subscriber");
    tracing::info!("global");
    assert_eq!(global.events("global").len(), 1);
}

//! Section 9.5 of the specification. If a process fails, and no process and no handle receives its exit, the failure is
//! reported once. By default, the report is printed on stderr. An observer receives the start and the exit of every
//! process.

use std::sync::{Arc, Mutex, mpsc};

use futures::FutureExt;
use procession::observe::*;
use procession::*;

use crate::lives::settle;
use crate::subprocess::{again, again_with, role};
use crate::within;

/// Path of this module, as it appears in type names.
const HERE: &str = module_path!();

/// Last line of a report on stderr.
const NOTE: &str = "  note:    no link, monitor, supervisor or join handle received this exit\n";

/// Line of the panic in `Cache`. `BODY_LINE` is the line of the panic in `panics`.
const CACHE_LINE: u32 = line!() + 12;
const BODY_LINE: u32 = line!() + 23;

/// A process that panics at its first message.
struct Cache;

impl Process for Cache {
    type Message = u64;
    type Output = ();
    fn step(&mut self, events: Events<'_, u64>, _: &mut StepOutput<'_, u64>) -> Result<Next<()>, Exit> {
        const { assert!(line!() + 2 == CACHE_LINE) };
        for event in events {
            assert!(!matches!(event, Event::Message(_)), "the cache is broken");
        }
        Ok(Next::Wait)
    }
}

async fn fails(_: Context) -> Result<(), &'static str> {
    Err("no luck")
}

async fn panics(_: Context<u64>) {
    const { assert!(line!() + 1 == BODY_LINE) };
    panic!("two\nlines");
}

async fn waits(mut ctx: Context) -> Result<(), Exit> {
    ctx.receive().await.map(drop)
}

/// Runs `scenario` in a runtime without workers. Afterwards, this function runs all runnable processes, and returns the
/// counters of the runtime.
fn run_to_end(builder: Builder, scenario: impl FnOnce(&Runtime)) -> Counters {
    let rt = builder.workers(0).node(5).build().unwrap();
    scenario(&rt);
    settle(&rt);
    rt.counters()
}

fn named_process(rt: &Runtime) {
    let parent = rt.spawn(async |ctx: Context| {
        let cache = ctx.process().name("cache").spawn_process(Cache).unwrap();
        cache.address().send(1).unwrap();
        cache.address().send(2).unwrap();
        drop(cache);
        ctx.sleep(std::time::Duration::from_secs(3600)).await;
    });
    drop(parent);
}

/// Spawns a process that is linked with a second process. The second process is killed, and then the first process
/// panics. A killed process does not receive the panic of a linked process.
fn panic_after_the_kill_of_a_linked_process(rt: &Runtime) {
    drop(rt.spawn(async |ctx: Context| -> Result<(), Exit> {
        let killed = ctx.spawn_link(waits).pid();
        ctx.trap_exit(true);
        ctx.yield_now().await;
        ctx.host().kill(killed).unwrap();
        panic!("beside a link");
    }));
}

/// Returns the output from the beginning of the first report. Each pid is replaced by a letter, for example by `<A>`.
fn reports(stderr: &str) -> String {
    let mut text = stderr.find("process <").map_or("", |at| &stderr[at..]).to_owned();
    for letter in 'A'..='Y' {
        let Some((before, rest)) = text.split_once("<5-") else { break };
        let pid = format!("<5-{}>", rest[..rest.find('>').unwrap()].to_owned());
        assert!(!before.contains(&pid));
        text = text.replace(&pid, &format!("<{letter}>"));
    }
    text
}

/// 9.5a, 9.5b: the report of a panic states the pid, the name and the type of the process. The report also states the
/// exit, the source location of the panic, the parent, the number of unread messages and the links. The report of an
/// error exit states the error. Each report is printed once. Nothing is printed for a killed or cancelled process.
#[test]
fn an_unobserved_failure_is_printed_on_stderr() {
    if let Some(role) = role() {
        let counters = run_to_end(Runtime::builder(), |rt| match &*role {
            "process" => named_process(rt),
            "body" => drop(rt.spawn(panics)),
            "error" => drop(rt.spawn(fails)),
            "late" => {
                let handle = rt.spawn(fails);
                settle(rt);
                assert_eq!(rt.counters().unobserved, 0);
                drop(handle);
                settle(rt);
            }
            "link" => panic_after_the_kill_of_a_linked_process(rt),
            "killed" => rt.kill(rt.spawn(waits).pid()).unwrap(),
            "cancelled" => rt.cancel(rt.spawn(waits).pid(), "enough", std::time::Duration::ZERO).unwrap(),
            role => unreachable!("{role}"),
        });
        assert_eq!(counters.unobserved, u64::from(!matches!(&*role, "killed" | "cancelled")));
        return;
    }
    let report = |role| again(an_unobserved_failure_is_printed_on_stderr, role, 60).passed().stderr.clone();
    let head = |text: &str| format!("{text} failed\n");
    let place = |line: u32, column: u32| format!("{}:{line}:{column}", file!());
    let stderr = report("process");
    assert_eq!(
        reports(&stderr),
        head(&format!("process <A> \"cache\" ({HERE}::Cache)"))
            + &format!("  exit:    panicked at {}: the cache is broken\n", place(CACHE_LINE, 13))
            + "  parent:  <B>\n  mailbox: 1 message\n  links:   none\n"
            + NOTE
    );
    // The panic hook of the standard library prints the thread and the backtrace.
    assert!(stderr.starts_with("\nthread '") && stderr.contains("the cache is broken\nnote: run with"), "{stderr}");
    assert_eq!(
        reports(&report("body")),
        head(&format!("process <A> ({HERE}::panics)"))
            + &format!("  exit:    panicked at {}: two\n           lines\n", place(BODY_LINE, 5))
            + "  parent:  none\n  mailbox: 0 messages\n  links:   none\n"
            + NOTE
    );
    for role in ["error", "late"] {
        assert_eq!(
            reports(&report(role)),
            head(&format!("process <A> ({HERE}::fails)"))
                + "  exit:    failed: no luck\n  parent:  none\n  mailbox: 0 messages\n  links:   none\n"
                + NOTE
        );
    }
    let linked = reports(&report("link"));
    let end = format!("  parent:  none\n  mailbox: 0 messages\n  links:   <B>\n{NOTE}");
    assert!(linked.ends_with(&end), "{linked}");
    for role in ["killed", "cancelled"] {
        assert_eq!(report(role), "");
    }
}

/// 9.5a: if a join handle, a link, a monitor or a supervisor receives an exit, the exit is not reported.
#[test]
fn no_failure_is_printed_if_a_process_or_a_handle_receives_the_exit() {
    if let Some(role) = role() {
        let counters = run_to_end(Runtime::builder(), |rt| match &*role {
            "joined" => assert!(rt.block_on(rt.spawn(panics)).is_err()),
            "linked" => drop(rt.spawn(async |mut ctx: Context| {
                ctx.trap_exit(true);
                drop(ctx.spawn_link(panics));
                assert!(matches!(ctx.event().await, Event::Exit { .. }));
            })),
            "monitored" => drop(rt.spawn(async |mut ctx: Context| {
                drop(ctx.spawn_monitor(panics));
                assert!(matches!(ctx.event().await, Event::Down { .. }));
            })),
            "supervised" => {
                const CHILD: Name<u64> = Name::new("child");
                let child = Child::new(CHILD, panics).restart(RestartPolicy::Temporary);
                drop(rt.spawn_process(Supervisor::one_for_one().add(child)));
            }
            role => unreachable!("{role}"),
        });
        assert_eq!((counters.panics, counters.unobserved), (1, 0));
        return;
    }
    for role in ["joined", "linked", "monitored", "supervised"] {
        let ran = again(no_failure_is_printed_if_a_process_or_a_handle_receives_the_exit, role, 60);
        assert_eq!(reports(&ran.passed().stderr), "", "{role}");
    }
}

/// 9.5b: the function that the program has passed to `on_crash` replaces the output on stderr. If this function does
/// nothing, no report is printed.
#[test]
fn crash_reports_can_be_silenced() {
    if role().is_some() {
        let counters = run_to_end(Runtime::builder().on_crash(|_| ()), |rt| drop(rt.spawn(fails)));
        assert_eq!(counters.unobserved, 1);
        return;
    }
    assert_eq!(again(crash_reports_can_be_silenced, "silent", 60).passed().stderr, "");
}

/// 9.5b: the function that the program has passed to `on_crash` receives the fields of the report. If this function
/// panics, the panic is caught. The function may use the runtime, because the runtime holds no lock during the call.
#[test]
fn crash_reports_can_be_redirected() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let reports = Arc::clone(&told);
    let host = Arc::new(Mutex::new(None::<Host>));
    let of_runtime = Arc::clone(&host);
    let builder = Runtime::builder().on_crash(move |report| {
        let host = of_runtime.lock().unwrap().clone().expect("set before the first spawn");
        assert_eq!(host.whereis(Name::<u64>::new("cache")), None);
        assert!(host.send(report.pid, 1_u64).is_err());
        drop(host.spawn(waits));
        reports.lock().unwrap().push(report.clone());
        panic!("in the function");
    });
    let counters = run_to_end(builder, |rt| {
        *host.lock().unwrap() = Some(rt.host().clone());
        named_process(rt);
        drop(rt.spawn(fails));
    });
    assert_eq!((counters.unobserved, counters.spawned), (2, 5));
    let told = told.lock().unwrap();
    let [cache, error] = &told[..] else { panic!("{told:?}") };
    let (cache, error) = if cache.name.is_some() { (cache, error) } else { (error, cache) };
    assert_eq!(cache.name.as_deref(), Some("cache"));
    assert_eq!(cache.type_name, std::any::type_name::<Cache>());
    assert!(cache.parent.is_some_and(|parent| parent != cache.pid));
    assert!(matches!(&cache.exit, Exit::Panicked(text) if *text == "the cache is broken"));
    assert!(cache.location().is_some_and(|location| location.starts_with(file!())));
    assert_eq!((cache.mailbox_len, &cache.links[..]), (1, &[][..]));
    assert_eq!((error.name.as_deref(), error.parent, error.location()), (None, None, None));
    *host.lock().unwrap() = None;
}

/// An error whose `Display` panics.
#[derive(Debug)]
struct NoText;

impl std::fmt::Display for NoText {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("no text")
    }
}

impl std::error::Error for NoText {}

/// 9.5b: if the `Display` of the error panics, the report contains the message of this panic instead of the error.
#[test]
fn a_failure_whose_error_has_no_text_is_reported() {
    if role().is_some() {
        run_to_end(Runtime::builder(), |rt| drop(rt.spawn(async |_: Context| Err::<(), _>(NoText))));
        return;
    }
    let stderr = again(a_failure_whose_error_has_no_text_is_reported, "evil", 60).passed().stderr.clone();
    let report = reports(&stderr);
    let exit = "  exit:    failed: the text of the error panicked: no text\n";
    assert!(report.contains(exit) && report.ends_with(&format!("  links:   none\n{NOTE}")), "{stderr}");
}

/// 9.5b: a report lists at most 16 linked processes. The list ends with "…" only if more processes were linked.
#[test]
fn a_report_shows_whether_its_list_of_links_is_complete() {
    for (count, is_complete) in [(15, true), (16, true), (17, false)] {
        let told = Arc::new(Mutex::new(Vec::new()));
        let reports = Arc::clone(&told);
        let builder = Runtime::builder().on_crash(move |report| reports.lock().unwrap().push(report.clone()));
        run_to_end(builder, |rt| {
            drop(rt.spawn(async move |ctx: Context| -> Result<(), Exit> {
                ctx.trap_exit(true);
                let killed: Vec<_> = (0..count).map(|_| ctx.spawn_link(waits).pid()).collect();
                ctx.yield_now().await;
                killed.into_iter().for_each(|pid| ctx.host().kill(pid).unwrap());
                panic!("beside its links");
            }));
        });
        let told = told.lock().unwrap();
        let [report] = &told[..] else { panic!("{told:?}") };
        // With `RUST_BACKTRACE=1`, a backtrace follows the line of the links.
        let text = report.to_string();
        let links = text.lines().find(|line| line.starts_with("  links: ")).expect("the report lists the links");
        assert_eq!((report.links.len(), !links.ends_with('…')), (count.min(16), is_complete), "{report}");
    }
}

/// 9.5b: a report counts the unread messages of the process. The messages that an async body has read ahead also count.
/// The body may also own a mailbox that does not belong to the process. The unread messages of this mailbox do not
/// count.
#[test]
fn a_report_counts_all_unread_messages() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let reports = Arc::clone(&told);
    let builder = Runtime::builder().on_crash(move |report| reports.lock().unwrap().push(report.mailbox_len));
    run_to_end(builder, |rt| {
        let handle = rt.spawn(async |mut ctx: Context<u64>| -> Result<(), Exit> {
            let (other, _mailbox) = ctx.host().mailbox::<u64>();
            other.send(1).unwrap();
            ctx.receive().await?;
            Err(Exit::failed("no luck"))
        });
        (0..5).for_each(|n| handle.address().send(n).unwrap());
        drop(handle);
    });
    assert_eq!(*told.lock().unwrap(), [4]);
}

/// 9.5a: in a runtime with worker threads, each unobserved failure is reported once. The test drops and polls the
/// handles at arbitrary times.
#[test]
fn each_unobserved_failure_on_worker_threads_is_reported_once() {
    within(60, || {
        let told = Arc::new(Mutex::new(Vec::new()));
        let reports = Arc::clone(&told);
        let rt = Runtime::builder().workers(2).on_crash(move |report| reports.lock().unwrap().push(report.pid));
        let rt = rt.build().unwrap();
        let mut expected = Vec::new();
        for n in 0..400 {
            let mut handle = rt.spawn(fails);
            expected.push(handle.pid());
            match n % 3 {
                0 => drop(handle),
                1 if (&mut handle).now_or_never().is_none() => drop(handle),
                _ => {
                    expected.pop();
                }
            }
        }
        while rt.counters().exited < 400 {
            std::thread::yield_now();
        }
        let host = rt.host().clone();
        drop(rt);
        let mut told = std::mem::take(&mut *told.lock().unwrap());
        assert_eq!(told.len() as u64, host.counters().unobserved);
        told.sort_unstable();
        told.dedup();
        assert_eq!(told.len() as u64, host.counters().unobserved);
        assert!(expected.iter().all(|pid| told.contains(pid)));
    });
}

/// 9.5a: a process has returned, and drops its state. During this drop, the only linked process fails. The exit of the
/// returned process is already decided. Therefore this process does not receive the failure. The failure is reported.
#[test]
fn a_failure_is_reported_if_the_only_linked_process_has_already_returned() {
    /// The destructor sends a message to the test, and then waits for a message from the test.
    struct BlockingDrop(mpsc::Sender<()>, mpsc::Receiver<()>);

    impl Drop for BlockingDrop {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            self.1.recv().unwrap();
        }
    }

    struct Holder(#[expect(dead_code, reason = "the field is only dropped")] BlockingDrop);

    impl Process for Holder {
        type Message = ();
        type Output = ();
        fn step(&mut self, events: Events<'_, ()>, _: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
            Ok(if events.count() == 0 { Next::Wait } else { Next::Done(()) })
        }
    }

    within(60, || {
        let told = Arc::new(Mutex::new(Vec::new()));
        let reports = Arc::clone(&told);
        let builder = Runtime::builder().workers(2).long_step_threshold(std::time::Duration::MAX);
        let rt = builder.on_crash(move |report| reports.lock().unwrap().push(report.pid)).build().unwrap();
        let ((begun, has_begun), (release, is_released)) = (mpsc::channel(), mpsc::channel());
        let holder = rt.spawn_process(Holder(BlockingDrop(begun, is_released)));
        let pid = holder.pid();
        let failing = rt.spawn(async move |mut ctx: Context<()>| -> Result<(), Exit> {
            ctx.link(pid)?;
            ctx.receive().await?;
            Err(Exit::failed("no luck"))
        });
        futures::executor::block_on(failing.started()).unwrap();
        holder.send(()).unwrap();
        has_begun.recv().unwrap();
        let (failing_pid, address) = (failing.pid(), failing.address());
        drop(failing);
        address.send(()).unwrap();
        // One worker is blocked. The other worker first runs the failing process, and then the process that this line
        // spawns.
        futures::executor::block_on(rt.spawn(async |_: Context| {})).unwrap();
        release.send(()).unwrap();
        futures::executor::block_on(holder).unwrap();
        let host = rt.host().clone();
        drop(rt);
        assert_eq!((told.lock().unwrap().as_slice(), host.counters().unobserved), (&[failing_pid][..], 1));
    });
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(Pid, String)>>>);

impl Log {
    fn push(&self, pid: Pid, text: String) {
        self.0.lock().unwrap().push((pid, text));
    }

    fn of(&self, pid: Pid) -> Vec<String> {
        self.0.lock().unwrap().iter().filter(|(of, _)| *of == pid).map(|(_, text)| text.clone()).collect()
    }
}

impl Observer for Log {
    fn started(&self, pid: Pid, name: Option<&str>, type_name: &'static str) {
        self.push(pid, format!("started {name:?} {type_name}"));
        panic!("in the observer");
    }

    fn transition(&self, t: &Transition) {
        if matches!(t.to, ProcessState::Ready | ProcessState::Complete) {
            self.push(t.pid, format!("{:?}", t.to));
        }
    }

    fn ended(&self, pid: Pid, name: Option<&str>, type_name: &'static str, exit: &Exit) {
        self.push(pid, format!("ended {name:?} {type_name}: {exit}"));
        panic!("in the observer");
    }
}

/// 9.5c: an observer receives the start of a process before the first transition of the process. An observer receives
/// the exit of a process before the join handle receives the exit. An observer also receives the exit of a process that
/// is dropped with its runtime. If the observer panics, the panic is caught.
#[test]
fn an_observer_receives_starts_and_exits() {
    within(60, || {
        let log = Log::default();
        let rt = Runtime::builder().workers(2).observer(log.clone()).on_crash(|_| ()).build().unwrap();
        let failed = rt.spawn(fails);
        let pid = failed.pid();
        assert!(futures::executor::block_on(failed).is_err());
        assert_eq!(
            log.of(pid),
            [
                format!("started None {HERE}::fails"),
                "Ready".into(),
                "Complete".into(),
                format!("ended None {HERE}::fails: failed: no luck")
            ]
        );
        let cache = rt.process().name("cache").spawn_process(Cache).unwrap();
        let pid = cache.pid();
        rt.kill(pid).unwrap();
        assert!(futures::executor::block_on(cache).is_err());
        let cache_log = log.of(pid);
        assert_eq!(cache_log[0], format!("started Some(\"cache\") {HERE}::Cache"));
        assert_eq!(*cache_log.last().unwrap(), format!("ended Some(\"cache\") {HERE}::Cache: killed"));
        let renamed = rt.spawn(async |ctx: Context| {
            ctx.register("late").unwrap();
            ctx.register("later").unwrap();
        });
        let pid = renamed.pid();
        futures::executor::block_on(renamed).unwrap();
        assert!(log.of(pid).last().unwrap().starts_with("ended Some(\"late\") "));
        let left = rt.spawn(waits).pid();
        drop(rt);
        assert!(log.of(left).last().unwrap().starts_with(&format!("ended None {HERE}::waits: ")));
    });
}

/// Observer that stores the reports and the exits, in the order of the calls.
#[derive(Clone, Default)]
struct Reports(Arc<Mutex<Vec<(Pid, Option<CrashReport>)>>>);

impl Observer for Reports {
    fn crashed(&self, report: &CrashReport) {
        self.0.lock().unwrap().push((report.pid, Some(report.clone())));
        panic!("in the observer");
    }

    fn ended(&self, pid: Pid, _: Option<&str>, _: &'static str, _: &Exit) {
        self.0.lock().unwrap().push((pid, None));
    }
}

impl Reports {
    /// Returns the report of a process. Asserts that the observer has received at most one report of this process, and
    /// that the last call was a call of `ended`.
    fn of(&self, pid: Pid) -> Option<CrashReport> {
        let mut all: Vec<_> = self.0.lock().unwrap().iter().filter(|(of, _)| *of == pid).cloned().collect();
        assert!(all.pop().is_some_and(|(_, report)| report.is_none()), "the process has not ended");
        assert!(all.len() <= 1, "{all:?}");
        all.pop()?.1
    }
}

/// 9.5e: for each failure, the runtime first calls the method `crashed` of an observer with the report, and then calls
/// the method `ended`. Both calls happen even if a process receives the exit. An observer receives no report of a
/// normal exit, a cancellation or a kill. If only an observer receives the report, the exit still counts as not
/// received. The record of the exit exists before the report.
#[test]
fn an_observer_receives_the_report_of_each_failure() {
    let (reports, told) = (Reports::default(), Arc::new(Mutex::new(Vec::new())));
    let unobserved = Arc::clone(&told);
    let builder = Runtime::builder().workers(0).observer(reports.clone());
    let rt = builder.on_crash(move |report| unobserved.lock().unwrap().push(report.to_string())).build().unwrap();
    let joined = rt.spawn(fails);
    let pid = joined.pid();
    rt.block_on(joined).unwrap_err();
    let report = reports.of(pid).expect("a failure");
    assert_eq!(
        (report.type_name, report.exit.to_string()),
        (std::any::type_name_of_val(&fails), "failed: no luck".into())
    );
    assert_eq!(report.location(), None);
    let child = Child::new("child", panics).restart(RestartPolicy::Temporary);
    let supervisor = rt.spawn_process(Supervisor::one_for_one().add(child));
    settle(&rt);
    let supervised = rt.last_exits()[1].pid;
    let report = reports.of(supervised).expect("a failure");
    assert_eq!((report.parent, report.exit.to_string().lines().count()), (Some(supervisor.pid()), 2));
    let linked = rt.spawn(async |ctx: Context| {
        drop(ctx.spawn_link(panics));
        std::future::pending::<()>().await;
    });
    let pid = linked.pid();
    rt.block_on(linked).unwrap_err();
    let report = reports.of(pid).expect("a failure");
    assert!(matches!(report.exit, Exit::Linked { .. }) && report.location().is_some(), "{report}");
    let (killed, cancelled, normal) = (rt.spawn(waits), rt.spawn(waits), rt.spawn(async |_: Context| {}));
    rt.kill(killed.pid()).unwrap();
    rt.cancel(cancelled.pid(), "enough", std::time::Duration::from_secs(3600)).unwrap();
    settle(&rt);
    for pid in [killed.pid(), cancelled.pid(), normal.pid()] {
        assert!(reports.of(pid).is_none());
    }
    assert_eq!((told.lock().unwrap().as_slice(), rt.counters().unobserved), (&[][..], 0));
    let dropped = rt.spawn(fails);
    let pid = dropped.pid();
    drop(dropped);
    settle(&rt);
    let report = reports.of(pid).expect("a failure");
    assert_eq!((told.lock().unwrap().as_slice(), rt.counters().unobserved), (&[report.to_string()][..], 1));
}

/// A process that panics in this function has the name of the function in its backtrace.
#[inline(never)]
async fn panics_in_a_named_function(_: Context<u64>) {
    panic!("with a backtrace");
}

/// 9.5f: if `RUST_LIB_BACKTRACE` or `RUST_BACKTRACE` enables backtraces, the exit, the record of the exit and the
/// report contain the backtrace of a panic. The comparison of exits ignores the backtrace. If no variable enables
/// backtraces, the exit, the record and the report contain no backtrace.
#[test]
fn a_report_contains_a_backtrace_if_backtraces_are_enabled() {
    if let Some(role) = role() {
        let told = Arc::new(Mutex::new(None));
        let report = Arc::clone(&told);
        let builder = Runtime::builder().on_crash(move |one| *report.lock().unwrap() = Some(one.clone()));
        run_to_end(builder, |rt| {
            let exit = rt.block_on(rt.spawn(panics_in_a_named_function)).unwrap_err();
            let is_named = |text: &dyn std::fmt::Display| text.to_string().contains("panics_in_a_named_function");
            assert_eq!(exit.panic_backtrace().is_some_and(|trace| is_named(trace)), role == "on");
            assert_eq!(exit, Exit::Panicked("with a backtrace".into()));
            let record = &rt.last_exits()[0];
            assert_eq!(record.backtrace().is_some_and(|trace| is_named(trace)), role == "on");
            assert_eq!(record.to_string().lines().count(), 1);
            drop(rt.spawn(panics_in_a_named_function));
        });
        let told = told.lock().unwrap();
        let report = told.as_ref().expect("an unobserved failure");
        assert_eq!(report.backtrace().is_some(), role == "on");
        let text = report.to_string();
        let Some((before, backtrace)) = text.split_once("\n  backtrace:\n") else {
            return assert_eq!((role.as_str(), text.lines().count()), ("off", 5), "{text}");
        };
        assert!(before.ends_with("  links:   none") && backtrace.contains("panics_in_a_named_function"), "{text}");
        // The report contains at most 200 lines of the backtrace.
        assert!(backtrace.lines().count() <= 201, "{text}");
        return;
    }
    for (role, variables) in [
        ("off", &[("RUST_BACKTRACE", "0")][..]),
        ("on", &[("RUST_BACKTRACE", "1")]),
        ("on", &[("RUST_BACKTRACE", "0"), ("RUST_LIB_BACKTRACE", "1")]),
        ("off", &[("RUST_BACKTRACE", "1"), ("RUST_LIB_BACKTRACE", "0")]),
    ] {
        let prepare = |command: &mut std::process::Command| {
            command.env_remove("RUST_LIB_BACKTRACE").envs(variables.iter().copied());
        };
        again_with(a_report_contains_a_backtrace_if_backtraces_are_enabled, role, 120, prepare).passed();
    }
}

//! Section 9.2 of the specification: `Host::explain` finds the reasons why processes do not run. Each test creates one
//! of these reasons.

use std::cell::RefCell;
use std::future::pending;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use futures::StreamExt;
use futures::executor::block_on;
use futures::future::select;
use procession::observe::{Activity, Explanation, Finding, ProcessState};
use procession::*;

use crate::deadlocks::settle;
use crate::{alone, waits, within};

const HOUR: Duration = Duration::from_secs(3600);

/// Path of this module, as it appears in type names.
const HERE: &str = module_path!();

type Question = Reply<()>;

/// A command whose handler never answers.
struct Never;
impl Command for Never {
    type Reply = ();
}

/// Another command whose handler never answers.
struct Later;
impl Command for Later {
    type Reply = u64;
}

/// Body that never reads its mailbox.
async fn deaf<M: Send>(_: Context<M>) {
    pending().await
}

async fn receives(mut ctx: Context<u64>) -> Result<(), Exit> {
    loop {
        ctx.receive().await?;
    }
}

async fn sleeps(ctx: Context) {
    ctx.sleep(HOUR).await;
}

/// Returns a runtime without workers. The handlers of `Never` and `Later` never answer.
fn runtime(builder: Builder) -> Runtime {
    let (kept, kept_too) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    builder
        .workers(0)
        .handler(move |_: Never, completion: Completion<()>| kept.lock().unwrap().push(completion))
        .handler(move |_: Later, completion: Completion<u64>| kept_too.lock().unwrap().push(completion))
        .build()
        .unwrap()
}

/// Runs all runnable processes, and then returns the explanation. This thread is a guest thread during the call.
fn explained(rt: &Runtime) -> Explanation {
    settle(rt);
    rt.block_on(async { rt.explain() })
}

/// Calls `Host::explain` until `find` returns a value for the explanation. Returns this value.
fn eventually<T>(host: &Host, find: impl Fn(&Explanation) -> Option<T>) -> T {
    for _ in 0..20_000 * crate::patience() {
        if let Some(found) = find(&host.explain()) {
            return found;
        }
        thread::park_timeout(Duration::from_millis(1));
    }
    panic!("the finding never appears: {}", host.explain());
}

fn lines(value: &impl ToString) -> Vec<String> {
    value.to_string().lines().map(String::from).collect()
}

/// 9.2g: if a process waits for a message and a timer is set, the explanation has no finding. The text states how many
/// processes wait for each kind of event.
#[test]
fn a_runtime_without_a_problem_has_no_finding() {
    let rt = runtime(Runtime::builder());
    drop((rt.spawn(receives), rt.spawn(sleeps)));
    let explanation = explained(&rt);
    assert_eq!(explanation.findings, []);
    let text = ["no finding", "2 processes: 0 running, 0 ready, 2 waiting (1 for a message, 1 for the end of a sleep)"];
    assert_eq!(lines(&explanation), text);
}

/// 9.2g: the explanation counts each kind of event that processes wait for.
#[test]
fn the_explanation_counts_each_kind_of_event_that_processes_wait_for() {
    let rt = runtime(Runtime::builder());
    let full = rt.process().mailbox_capacity(MailboxCapacity::Reject(1)).spawn(deaf::<u64>).unwrap();
    full.send(1).unwrap();
    let (room, exit, callee) = (full.address(), full.address(), rt.spawn(deaf::<Question>).address());
    drop(rt.spawn(receives));
    drop(rt.spawn(sleeps));
    drop(rt.spawn(async |ctx: Context| ctx.perform(Never).await));
    drop(rt.spawn(async move |ctx: Context| _ = ctx.call(&callee, |reply| reply).await));
    drop(rt.spawn(async move |_: Context| _ = room.send_wait(2).await));
    drop(rt.spawn(async move |_: Context| _ = exit.exited().await));
    drop(rt.spawn(async |ctx: Context| {
        let (me, mut mailbox) = ctx.split();
        _ = select(me.sleep(HOUR), Box::pin(mailbox.receive())).await;
    }));
    let Activity {
        processes,
        running,
        ready,
        waiting,
        for_message,
        for_command,
        for_call,
        for_sleep,
        for_room,
        for_process,
        for_unknown,
        ..
    } = explained(&rt).activity;
    assert_eq!((processes, running.len(), ready, waiting), (9, 0, 0, 9));
    assert_eq!((for_message, for_command, for_call, for_sleep), (2, 1, 1, 2));
    assert_eq!((for_room, for_process, for_unknown), (1, 1, 2));
}

/// 9.2g: if the runtime has no worker and no thread is in `block_on`, the finding states that no thread runs the
/// processes.
#[test]
fn a_runtime_without_a_thread_is_explained() {
    let rt = runtime(Runtime::builder());
    assert_eq!(rt.explain().findings, []);
    let process = rt.spawn(sleeps);
    let explanation = rt.explain();
    let [finding @ Finding::NoThread { processes: 1 }] = &explanation.findings[..] else { panic!("{explanation}") };
    assert_eq!(
        lines(finding),
        [
            "1 process is alive, but no thread runs it: there is no worker, and no thread is in `run` or `block_on`",
            "what to do: poll `Runtime::run`, call `Runtime::block_on`, or set `Builder::workers`",
        ]
    );
    assert_eq!(explanation.activity.ready, 1);
    rt.block_on(async {
        process.started().await.unwrap();
        assert_eq!(rt.explain().findings, []);
    });
    rt.set_workers(1);
    assert_eq!(rt.explain().findings, []);
}

/// 9.2g: if processes of a `LocalSet` are ready and no thread runs the `LocalSet`, the finding lists these processes.
#[test]
fn a_local_set_without_a_thread_is_explained() {
    let rt = runtime(Runtime::builder());
    let (local, driven) = (rt.local_set(), rt.local_set());
    drop(rt.spawn(sleeps));
    // A thread is in `block_on`, but not in the `block_on` of the `LocalSet`.
    let explained = || rt.block_on(async { rt.explain().findings });
    let (waits, ends) = (local.spawn(receives), local.spawn(async |_: Context| ()));
    assert!(matches!(explained()[..], [Finding::LocalSetWithoutThread { count: 2, .. }]));
    // A thread runs the second `LocalSet`, so the ready process of this `LocalSet` is not a finding.
    let found = driven.block_on(async {
        drop(driven.spawn(sleeps));
        rt.explain().findings
    });
    drop(driven);
    let [finding @ Finding::LocalSetWithoutThread { count: 2, processes }] = &found[..] else { panic!("{found:?}") };
    assert_eq!(processes.iter().map(|process| process.pid).collect::<Vec<_>>(), [waits.pid(), ends.pid()]);
    let [first, one, _, advice] = &lines(finding)[..] else { panic!("{finding}") };
    assert_eq!(first, "2 processes of a `LocalSet` are ready, but no thread runs them:");
    assert!(one.starts_with(&format!("  {} {HERE}::receives", waits.pid())), "{one}");
    assert_eq!(advice, "what to do: poll `LocalSet::run`, or call `LocalSet::block_on`");
    local.block_on(ends).unwrap();
    assert!(explained().is_empty(), "the other process waits");
    waits.send(1).unwrap();
    assert!(matches!(explained()[..], [Finding::LocalSetWithoutThread { count: 1, .. }]));
    drop(local);
    assert!(explained().is_empty());
}

/// 9.2e, 9.2g: a deadlock is a finding, even if another process waits for a timer.
#[test]
fn a_deadlock_is_explained() {
    let rt = runtime(Runtime::builder());
    drop(rt.spawn(sleeps));
    for (name, other) in [("one", "other"), ("other", "one")] {
        let body = async move |ctx: Context<Question>| _ = ctx.call(other, |reply: Question| reply).await;
        drop(rt.process().name(name).spawn(body).unwrap());
    }
    let explanation = explained(&rt);
    let [finding @ Finding::Deadlock(deadlock)] = &explanation.findings[..] else { panic!("{explanation}") };
    assert_eq!(deadlock.cycle.len(), 2);
    let text = lines(finding);
    assert_eq!((text.len(), &*text[0]), (4, "deadlock of 2 processes:"));
    assert!(text[3].starts_with("what to do: set a time limit with `Call::timeout`"), "{text:?}");
    let text = lines(&explanation);
    assert_eq!((&*text[0], &*text[1]), ("1 finding:", "1. deadlock of 2 processes:"));
    assert!(text[2].starts_with("     <"), "{text:?}");
}

/// Spawns a process whose step blocks until the sender is dropped. Waits until the step has begun.
fn blocked(
    rt: &Runtime,
    name: &'static str,
    block: impl FnOnce(mpsc::Receiver<()>) + Send + 'static,
) -> mpsc::Sender<()> {
    let ((open, wait), (begun, has_begun)) = (mpsc::channel(), mpsc::channel());
    let body = async move |_: Context| {
        begun.send(()).unwrap();
        block(wait);
    };
    drop(rt.process().name(name).spawn(body).unwrap());
    has_begun.recv().unwrap();
    open
}

/// 9.2g: while all workers are blocked and have no replacement, a thread outside the runtime gets the explanation. The
/// explanation names the blocked processes.
#[test]
fn blocked_workers_are_explained_while_all_workers_are_blocked() {
    within(60, || {
        let rt = Runtime::builder().workers(2).max_replacement_threads(0).build().unwrap();
        let begin = rt.now();
        let gates = ["one", "other"].map(|name| blocked(&rt, name, |wait| _ = wait.recv()));
        let waiting = rt.spawn(async |_: Context| ());
        let findings = eventually(&rt, |explanation| {
            let blocked = |finding: &&Finding| matches!(finding, Finding::BlockedWorker { .. });
            let blocked: Vec<_> = explanation.findings.iter().filter(blocked).cloned().collect();
            (blocked.len() == 2).then_some(blocked)
        });
        let mut names = Vec::new();
        for finding in &findings {
            let Finding::BlockedWorker { process, since, lasts, is_replaced: false, checks_yield, .. } = finding else {
                panic!("{finding}")
            };
            assert_eq!(*checks_yield, Some(false), "a blocked step cannot check");
            let process = process.as_ref().expect("the process lives");
            assert_eq!(process.state, Some(ProcessState::Running));
            assert!(begin <= *since && *since + *lasts <= rt.now());
            let name = process.name.clone().expect("it has a name");
            let text = lines(finding);
            assert!(text[0].starts_with(&format!("the process {} {name:?} {HERE}::blocked", process.pid)), "{text:?}");
            assert!(text[0].ends_with("; no replacement thread runs its queued tasks"), "{text:?}");
            assert_eq!(text[1], "  the step was asked to yield, but does not check `should_yield`");
            assert!(text[2].ends_with("raise `Builder::max_replacement_threads`"), "{text:?}");
            names.push(name);
        }
        names.sort();
        assert_eq!(names, ["one", "other"]);
        let activity = rt.explain().activity;
        assert_eq!((activity.running.len(), activity.ready), (2, 1));
        drop(gates);
        block_on(waiting).unwrap();
        eventually(&rt, |explanation| explanation.findings.is_empty().then_some(()));
    });
}

/// 9.2g: a blocked worker is a finding even if a replacement thread has taken over the queues of the worker. A step in
/// `block_in_place` is a finding immediately, even without a monitor.
#[test]
fn a_replaced_worker_is_explained() {
    within(60, || {
        let rt = alone().build().unwrap();
        let begin = rt.now();
        let (entered, has_entered) = mpsc::channel();
        let gate = blocked(&rt, "waits", move |wait| {
            block_in_place(|| {
                entered.send(()).unwrap();
                _ = wait.recv();
            });
        });
        has_entered.recv().unwrap();
        let explanation = rt.explain();
        let [finding] = &explanation.findings[..] else { panic!("{explanation}") };
        let Finding::BlockedWorker { process: Some(process), since, is_replaced: true, checks_yield, .. } = finding
        else {
            panic!("{explanation}")
        };
        assert_eq!(*checks_yield, None, "the runtime has not asked the step to yield");
        assert_eq!(process.name.as_deref(), Some("waits"));
        assert!(begin <= *since && *since <= rt.now());
        assert!(lines(finding)[0].ends_with("; other threads run its queued tasks"), "{finding}");
        let text = lines(&explanation);
        assert!(text[3].starts_with("1 process: 1 running, 0 ready, 0 waiting"), "{text:?}");
        assert!(text[4].starts_with(&format!("running: {} \"waits\" ", process.pid)), "{text:?}");
        drop(gate);
        eventually(&rt, |explanation| explanation.findings.is_empty().then_some(()));
    });
}

/// 9.2g: a step blocks its worker in `Runtime::block_on`. The finding recommends to await the future.
#[test]
fn a_worker_that_waits_in_block_on_is_explained() {
    within(60, || {
        let rt = Arc::new(Runtime::builder().workers(1).build().unwrap());
        let (open, gate) = futures::channel::oneshot::channel::<()>();
        let own = Arc::downgrade(&rt);
        let process = rt.spawn(async move |_: Context| {
            let rt = own.upgrade().expect("the test holds the runtime");
            rt.block_on(gate).unwrap();
        });
        let blocked = |finding: &&Finding| matches!(finding, Finding::BlockedWorker { .. });
        let finding = eventually(&rt, |explanation| explanation.findings.iter().find(blocked).cloned());
        assert!(matches!(finding, Finding::BlockedWorker { waits_in_block_on: true, .. }), "{finding:?}");
        let text = lines(&finding);
        assert_eq!(text[1], "  the step waits in `Runtime::block_on`");
        assert_eq!(text[2], "what to do: await the future in the body, instead of passing it to `Runtime::block_on`");
        open.send(()).unwrap();
        block_on(process).unwrap();
        eventually(&rt, |explanation| explanation.findings.is_empty().then_some(()));
    });
}

/// 9.2g: a long step calls `should_yield`, but continues although the call returns true. The finding distinguishes this
/// step from a step that does not check.
#[test]
fn a_long_step_that_ignores_the_request_to_yield_is_explained() {
    within(60, || {
        let rt = Runtime::builder().workers(1).build().unwrap();
        let gate = blocked(&rt, "ignores", |wait| {
            while wait.try_recv() == Err(mpsc::TryRecvError::Empty) {
                _ = should_yield();
            }
        });
        // The system may suspend the thread of the step before the step makes its first check. Therefore the test waits
        // until an explanation reports a check.
        let checks = |finding: &&Finding| matches!(finding, Finding::BlockedWorker { checks_yield: Some(true), .. });
        let finding = eventually(&rt, |explanation| explanation.findings.iter().find(checks).cloned());
        let Finding::BlockedWorker { process: Some(process), .. } = &finding else { panic!("{finding}") };
        assert_eq!((process.name.as_deref(), process.checks_yield), (Some("ignores"), false), "no step has ended");
        let text = lines(&finding);
        assert_eq!(text[1], "  the step checks `should_yield`, but does not end");
        assert_eq!(
            text[2],
            "what to do: if `should_yield` returns true, end the step: await `yield_now`, or return `Next::Again`"
        );
        drop(gate);
        eventually(&rt, |explanation| explanation.findings.is_empty().then_some(()));
    });
}

/// 9.2g: if all threads of the blocking pool run jobs and further jobs wait, a finding reports the pool.
#[test]
fn a_busy_blocking_pool_is_explained() {
    within(60, || {
        let rt = Runtime::builder().workers(1).max_blocking_threads(1).blocking_queue_capacity(2).build().unwrap();
        let ((open, wait), (begun, has_begun)) = (mpsc::channel::<()>(), mpsc::channel());
        let wait = Arc::new(Mutex::new(wait));
        let jobs: Vec<_> = (0..3)
            .map(|_| {
                let (wait, begun) = (Arc::clone(&wait), begun.clone());
                rt.spawn_blocking(move || {
                    begun.send(()).unwrap();
                    _ = wait.lock().unwrap().recv();
                })
            })
            .collect();
        has_begun.recv().unwrap();
        let explanation = rt.explain();
        let expected = Finding::BusyBlockingPool { threads: 1, queue_depth: 2, queue_capacity: 2 };
        assert_eq!(explanation.findings, [expected]);
        assert_eq!(
            lines(&explanation.findings[0]),
            [
                "each of the 1 thread of the blocking pool runs a job, and 2 jobs wait; the queue is full, so further \
                 jobs are refused",
                "what to do: make the jobs shorter, or raise `Builder::max_blocking_threads`",
            ]
        );
        drop(open);
        for job in jobs {
            block_on(job).unwrap();
        }
        assert_eq!(eventually(&rt, |explanation| explanation.findings.is_empty().then_some(())), ());
    });
}

/// A hand-written process that only sleeps.
struct Sleeper;

impl Process for Sleeper {
    type Message = u64;
    type Output = ();
    fn step(&mut self, _: Events<'_, u64>, out: &mut StepOutput<'_, u64>) -> Result<Next<()>, Exit> {
        let _ = out.sleep(HOUR);
        Ok(Next::Wait)
    }
}

/// 9.2g: the explanation counts the unanswered commands of all processes by type. A long table of commands is read in
/// several parts, and each command is counted once. The sleep of a hand-written process does not count as a command.
#[test]
fn unanswered_commands_are_explained_by_type() {
    let rt = runtime(Runtime::builder());
    drop(rt.spawn_process(Sleeper));
    assert_eq!(explained(&rt).findings, []);
    drop(rt.spawn(async |ctx: Context| ctx.perform(Later).await));
    for count in [1, 1_000] {
        drop(rt.spawn(async move |ctx: Context| {
            let commands: Vec<_> = (0..count).map(|_| ctx.perform(Never)).collect();
            futures::future::join_all(commands).await;
        }));
    }
    let explanation = explained(&rt);
    let [first, finding] = &explanation.findings[..] else { panic!("{explanation}") };
    let (Finding::UnansweredCommands { commands: one, .. }, Finding::UnansweredCommands { commands: other, .. }) =
        (first, finding)
    else {
        panic!("{explanation}")
    };
    assert_eq!((one.command, one.count), (std::any::type_name::<Later>(), 1));
    assert_eq!((other.command, other.count), (std::any::type_name::<Never>(), 1_001));
    let one_handler = one.handler;
    let [others, one] = [finding, first].map(|finding| lines(finding)[0].clone());
    assert!(others.starts_with(&format!("1001 commands {HERE}::Never have no answer yet; the oldest ")), "{others}");
    assert!(
        one.starts_with(&format!("1 command {HERE}::Later has no answer yet; it was performed at least ")),
        "{one}"
    );
    assert!(one_handler.is_some_and(|handler| handler.starts_with(&format!("{HERE}::runtime::"))), "{one_handler:?}");
}

/// 9.2g: a full mailbox is a finding. The finding contains the number of senders that wait for free space.
#[test]
fn a_full_mailbox_is_explained() {
    let rt = runtime(Runtime::builder());
    drop(rt.spawn(sleeps));
    let bounded = |name, capacity| rt.process().name(name).mailbox_capacity(capacity).spawn(deaf::<u64>).unwrap();
    let full = bounded("full", MailboxCapacity::Reject(2));
    let roomy = bounded("roomy", MailboxCapacity::DropOldest(3));
    (0..2).for_each(|number| {
        full.send(number).unwrap();
        roomy.send(number).unwrap();
    });
    let address = full.address();
    drop(rt.spawn(async move |_: Context| _ = address.send_wait(3).await));
    let explanation = explained(&rt);
    let [finding @ Finding::FullMailbox { process, capacity: 2, waiting_senders: 1 }] = &explanation.findings[..]
    else {
        panic!("{explanation}")
    };
    assert_eq!((process.pid, process.mailbox_len), (full.pid(), 2));
    let text = format!(
        "the mailbox of {} \"full\" {} is full with 2 messages, and 1 send waits for room; the process is Idle and does \
         not receive",
        full.pid(),
        process.type_name
    );
    assert_eq!(lines(finding)[0], text);
    assert!(lines(finding)[1].starts_with("what to do: read `Host::process_details`"), "{finding}");
}

/// 9.2g: a mailbox with a capacity of zero does not count as a full mailbox.
#[test]
fn a_mailbox_without_capacity_is_not_full() {
    let rt = runtime(Runtime::builder());
    drop(rt.spawn(sleeps));
    let process = rt.process().limits(Limits::new().mailbox_capacity(0)).spawn(deaf::<u64>).unwrap();
    assert!(process.send(1).is_err());
    let findings = explained(&rt).findings;
    assert!(findings.is_empty(), "{findings:?}");
}

/// 9.2g: the findings have the order of the variants of `Finding`.
#[test]
fn the_findings_have_the_order_of_their_variants() {
    let rt = runtime(Runtime::builder());
    let full = rt.process().mailbox_capacity(MailboxCapacity::Reject(1)).spawn(deaf::<u64>).unwrap();
    full.send(1).unwrap();
    let (suspended, _sleeps) = (rt.spawn(receives), rt.spawn(sleeps));
    settle(&rt);
    rt.suspend(suspended.pid()).unwrap();
    let findings = explained(&rt).findings;
    let [.., Finding::FullMailbox { .. }, Finding::Suspended { .. }] = &findings[..] else { panic!("{findings:?}") };
    rt.resume(suspended.pid()).unwrap();
}

/// 9.2g: an unbounded mailbox is a finding if the mailbox contains at least 1,000 messages and has never contained more
/// messages than now.
#[test]
fn a_long_mailbox_is_explained() {
    let rt = runtime(Runtime::builder());
    drop(rt.spawn(sleeps));
    let process = rt.spawn(async |mut ctx: Context<u64>| {
        while ctx.receive().await? != 0 {}
        pending::<Result<(), Exit>>().await
    });
    explained(&rt);
    (0..999).for_each(|_| process.send(0).unwrap());
    assert_eq!(rt.explain().activity.processes, 2);
    let long = |explanation: &Explanation| match &explanation.findings[..] {
        [] => None,
        [Finding::LongMailbox { process }] => Some(process.mailbox_len),
        _ => panic!("{explanation}"),
    };
    // The process receives the first message, reads the other messages ahead, and then never reads its mailbox again.
    assert_eq!(long(&explained(&rt)), None);
    (0..999).for_each(|_| process.send(0).unwrap());
    assert_eq!(long(&explained(&rt)), None);
    process.send(0).unwrap();
    assert_eq!(long(&explained(&rt)), Some(1_000));
    let finding = &explained(&rt).findings[0];
    let text = lines(finding);
    assert!(text[0].contains(" holds 1000 messages and has never been longer; the process is Idle"), "{text:?}");
    assert!(text[1].starts_with("what to do: read `Host::process_details` of the process"), "{text:?}");
}

/// 9.2g: if many mailboxes are full, the explanation lists a bounded number of these mailboxes, beginning with the
/// longest mailbox.
#[test]
fn only_the_longest_full_mailboxes_are_listed() {
    let rt = runtime(Runtime::builder());
    for capacity in 1..=40 {
        let process = rt.process().mailbox_capacity(MailboxCapacity::Reject(capacity)).spawn(deaf::<u64>).unwrap();
        (0..capacity).for_each(|_| process.send(0).unwrap());
    }
    drop(rt.spawn(sleeps));
    let capacities: Vec<usize> = explained(&rt)
        .findings
        .iter()
        .map(|finding| match finding {
            Finding::FullMailbox { capacity, .. } => *capacity,
            _ => panic!("{finding}"),
        })
        .collect();
    assert_eq!(capacities, (25..=40).rev().collect::<Vec<_>>());
}

/// 9.2g: a process that ignores the cancellation of a shutdown is a finding. The finding contains the event that the
/// process waits for.
#[test]
fn a_process_that_ignores_the_shutdown_is_explained() {
    let rt = runtime(Runtime::builder());
    let stubborn = rt.process().name("stubborn").spawn(sleeps).unwrap();
    drop(rt.spawn(receives));
    explained(&rt);
    let deadline = rt.now() + HOUR;
    let shutdown = rt.host().shutdown(HOUR);
    let explanation = explained(&rt);
    let [finding @ Finding::IgnoredCancellation { deadline: Some(at), count: 1, processes }] =
        &explanation.findings[..]
    else {
        panic!("{explanation}")
    };
    assert!(*at >= deadline && *at <= rt.now() + HOUR);
    assert_eq!(
        (processes[0].info.pid, waits::bare(&processes[0].waits_for)),
        (stubborn.pid(), vec![waits::some_sleeps(1)])
    );
    assert_eq!(
        lines(finding),
        [
            "the runtime shuts down, and 1 cancelled process waits and did not exit:".to_owned(),
            format!("  {} \"stubborn\" {HERE}::sleeps waits for {}", stubborn.pid(), processes[0].waits_for[0]),
            "what to do: await `cancelled` or `receive` together with the other event, or set time limits".to_owned(),
        ]
    );
    drop(shutdown);
}

fn is_nothing_outstanding(explanation: &Explanation) -> bool {
    explanation.findings.iter().any(|finding| matches!(finding, Finding::NothingOutstanding { .. }))
}

/// 9.2f: if all processes wait, and nothing in the runtime can make a process run, the finding lists which process
/// waits for which process.
#[test]
fn processes_that_nothing_can_wake_are_explained() {
    let rt = runtime(Runtime::builder());
    assert!(!is_nothing_outstanding(&explained(&rt)), "there is no process");
    let callee = rt.process().name("callee").spawn(deaf::<Question>).unwrap();
    let address = callee.address();
    let caller =
        rt.process().name("caller").spawn(async move |ctx: Context| _ = ctx.call(&address, |reply| reply).await);
    let caller = caller.unwrap();
    let receiver = rt.process().name("receiver").spawn(receives).unwrap();
    let explanation = explained(&rt);
    let [finding @ Finding::NothingOutstanding { count: 3, processes }] = &explanation.findings[..] else {
        panic!("{explanation}")
    };
    let pids: Vec<Pid> = processes.iter().map(|process| process.info.pid).collect();
    assert_eq!(pids, [callee.pid(), caller.pid(), receiver.pid()]);
    assert_eq!(processes[1].waits_for[0].process(), Some(callee.pid()));
    let text = lines(finding);
    assert_eq!(
        text[0],
        "nothing is outstanding: 3 processes wait, and no timer, command, blocking job or socket of the runtime can \
         make a process run:"
    );
    assert!(text[1].ends_with(" waits for an event that the runtime does not know"), "{text:?}");
    let call = format!("  {} \"caller\" {HERE}::", caller.pid());
    assert!(text[2].starts_with(&call), "{text:?}");
    assert!(text[2].contains(&format!(" waits for the answer to a call to {} at ", callee.pid())), "{text:?}");
    assert!(text[3].contains(&format!("::receives waits for a message at {}:", file!())), "{text:?}");
    assert_eq!(
        text[4],
        "what to do: send a message from another thread; if no thread will send, no process can ever run again"
    );
    (0..40).for_each(|_| drop(rt.spawn(receives)));
    let explanation = explained(&rt);
    let [finding @ Finding::NothingOutstanding { count: 43, processes }] = &explanation.findings[..] else {
        panic!("{explanation}")
    };
    assert_eq!((processes.len(), &*lines(finding)[21]), (20, "  and 23 more"));
}

/// 9.2f: the explanation states that nothing is outstanding only if no timer, command, blocking job, future without a
/// pid or runnable process exists.
#[test]
fn outstanding_work_prevents_the_finding_that_nothing_is_outstanding() {
    within(60, || {
        let nothing_after = |plant: &dyn Fn(&Runtime)| {
            let rt = runtime(Runtime::builder());
            drop(rt.spawn(receives));
            assert!(is_nothing_outstanding(&explained(&rt)));
            plant(&rt);
            is_nothing_outstanding(&explained(&rt))
        };
        assert!(nothing_after(&|_| ()));
        assert!(nothing_after(&|rt| drop(rt.spawn(deaf::<u64>))));
        assert!(!nothing_after(&|rt| drop(rt.spawn(sleeps))));
        assert!(!nothing_after(&|rt| drop(rt.spawn(async |ctx: Context| ctx.perform(Never).await))));
        assert!(!nothing_after(&|rt| rt.spawn_future(pending::<()>())));
        let (open, wait) = mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        // If the future of a blocking job is dropped before the job begins, the job never runs.
        let jobs = RefCell::new(Vec::new());
        assert!(!nothing_after(&|rt| {
            let wait = Arc::clone(&wait);
            jobs.borrow_mut().push(rt.spawn_blocking(move || _ = wait.lock().unwrap().recv()));
        }));
        drop(open);
        // The new process is runnable, but no thread runs it.
        let rt = runtime(Runtime::builder());
        drop(rt.spawn(receives));
        assert!(!is_nothing_outstanding(&rt.explain()));
    });
}

/// 9.2f: two processes on two workers send a message back and forth. While messages are sent, no explanation states
/// that nothing is outstanding. After the last message, an explanation states that nothing is outstanding.
#[test]
fn an_unread_message_prevents_the_finding_that_nothing_is_outstanding() {
    within(60, || {
        let rt = crate::two();
        let peers: Vec<_> = (0..2)
            .map(|_| {
                rt.spawn(async |mut ctx: Context<(u64, Option<Pid>)>| {
                    let mut other = None;
                    loop {
                        let (left, peer) = ctx.receive().await?;
                        other = peer.or(other);
                        if left != 0
                            && let Some(other) = other
                        {
                            ctx.send(other, (left - 1, None::<Pid>)).map_err(Exit::failed)?;
                        }
                        if left == u64::MAX {
                            return Ok::<_, Exit>(());
                        }
                    }
                })
            })
            .collect();
        const ROUNDS: u64 = 200_000;
        peers[1].send((0, Some(peers[0].pid()))).unwrap();
        peers[0].send((ROUNDS, Some(peers[1].pid()))).unwrap();
        let mut explanations = 0;
        loop {
            let explanation = rt.explain();
            if is_nothing_outstanding(&explanation) {
                break;
            }
            explanations += 1;
        }
        assert_eq!(rt.counters().messages, ROUNDS + 2);
        assert!(explanations > 0);
    });
}

/// 9.2f, 10.1c: in a simulation, `Host::explain` reports the same findings as in a runtime.
#[test]
fn a_simulation_explains_its_processes() {
    let mut simulation = Simulation::new(1);
    let host = simulation.host().clone();
    let explanation = simulation.run(async {
        let callee = host.process().name("callee").spawn(deaf::<Question>).unwrap();
        let address = callee.address();
        let caller = host.spawn(async move |ctx: Context| _ = ctx.call(&address, |reply| reply).await);
        caller.started().await.unwrap();
        callee.started().await.unwrap();
        let rests = host.explain();
        let sleeper = host.spawn(sleeps);
        sleeper.started().await.unwrap();
        assert!(!is_nothing_outstanding(&host.explain()));
        rests
    });
    assert!(matches!(explanation.findings[..], [Finding::NothingOutstanding { count: 2, .. }]), "{explanation}");
}

/// 9.2g: the answer to a stream command ends the stream. Therefore an open stream is not an unanswered command.
#[test]
fn an_open_stream_is_not_an_unanswered_command() {
    struct Ticks;
    impl Command for Ticks {
        type Reply = ();
    }
    impl StreamCommand for Ticks {
        type Item = u64;
    }
    let sends = async |_: Ticks, mut replies: StreamCompletion<Ticks>| -> Result<(), Failure> {
        replies.send(1).await?;
        pending().await
    };
    let rt = runtime(Runtime::builder().handle_stream(sends));
    let reads = rt.spawn(async |ctx: Context| {
        let mut ticks = ctx.stream(Ticks);
        while ticks.next().await.is_some() {}
    });
    let explanation = explained(&rt);
    assert_eq!(explanation.findings, [], "{explanation}");
    assert_eq!(explanation.activity.for_command, 1);
    // An unanswered command that is not a stream is still a finding.
    drop(rt.spawn(async |ctx: Context| ctx.perform(Never).await));
    let explanation = explained(&rt);
    assert!(matches!(&explanation.findings[..], [Finding::UnansweredCommands { .. }]), "{explanation}");
    reads.abort();
}

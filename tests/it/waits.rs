//! Section 9.2 of the specification: the operations that a process waits for. If an operation waits for another
//! process, the entry of the operation contains the pid of this process. The entry also contains the source line of the
//! operation, except for a join, a socket operation, and a mailbox that is polled as a `Stream`.

use std::future::pending;
use std::panic::Location;
use std::sync::mpsc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{join, select};
use procession::future::Call;
use procession::observe::ProcessState::Blocked;
use procession::observe::WaitsFor;
use procession::*;

use crate::inspection::{lone, settle};
use crate::{step_aside, within};

const HOUR: Duration = Duration::from_secs(3600);

/// Body that never reads its mailbox.
async fn deaf<M: Send>(_: Context<M>) {
    pending().await
}

fn waits_for(host: &Host, pid: Pid) -> Vec<WaitsFor> {
    host.process_details(pid).expect("the process lives").waits_for
}

#[track_caller]
fn here() -> u32 {
    Location::caller().line()
}

fn line_of(wait: &WaitsFor) -> Option<(&'static str, u32)> {
    wait.line().map(|line| (line.file(), line.line()))
}

pub(crate) const MESSAGE: WaitsFor = WaitsFor::Message { line: None };

pub(crate) fn some_sleeps(count: usize) -> WaitsFor {
    WaitsFor::Sleep { count, until: None, line: None }
}

/// Returns copies of the waits. In the waits for messages, sleeps, exits and starts, the fields `line` and `until` of
/// the copies are `None`.
pub(crate) fn bare(waits: &[WaitsFor]) -> Vec<WaitsFor> {
    let bare = |wait: &WaitsFor| match wait.clone() {
        WaitsFor::Message { .. } => MESSAGE,
        WaitsFor::Sleep { count, .. } => some_sleeps(count),
        WaitsFor::Exit { process, .. } => WaitsFor::Exit { process, line: None },
        WaitsFor::Start { process, .. } => WaitsFor::Start { process, line: None },
        other => other,
    };
    waits.iter().map(bare).collect()
}

type Question = Reply<()>;

/// 9.2b: the details of a process that waits for a call contain the callee and the source line of the call. The target
/// of the call may be a pid, a name or an address.
#[test]
fn a_call_names_its_callee_and_its_source_line() {
    let rt = lone();
    let callee = rt.process().name("callee").spawn(deaf::<Question>).unwrap();
    let (pid, address) = (callee.pid(), callee.address());
    let line = here() + 2;
    let callers = [
        rt.spawn(async move |ctx: Context| _ = ctx.call(&address, |reply: Question| reply).await),
        rt.spawn(async move |ctx: Context| _ = ctx.call(pid, |reply: Question| reply).await),
        rt.spawn(async move |ctx: Context| _ = ctx.call("callee", |reply: Question| reply).await),
        rt.spawn(async move |ctx: Context| _ = ctx.host().call(pid, |reply: Question| reply).await),
    ];
    let address = callee.address();
    let late = rt.spawn(async move |_: Context| _ = address.call(|reply| reply).await);
    settle(&rt);
    for (number, caller) in callers.iter().map(|caller| caller.pid()).enumerate() {
        let waits = waits_for(&rt, caller);
        let [wait @ WaitsFor::Call { callee, is_limited: false, .. }] = &waits[..] else { panic!("{waits:?}") };
        assert_eq!((*callee, line_of(wait)), (Some(pid), Some((file!(), line + number as u32))));
        let text = format!("the answer to a call to {pid} at {}:{}", file!(), line + number as u32);
        assert_eq!(wait.to_string(), text);
    }
    assert!(matches!(waits_for(&rt, late.pid())[..], [WaitsFor::Call { callee: Some(to), .. }] if to == pid));
}

/// 9.2b: the details state whether a call has a time limit, even if the limit is set after the request was sent.
#[test]
fn a_call_states_whether_it_has_a_time_limit() {
    let rt = lone();
    let callee = rt.spawn(deaf::<Question>);
    let (one, other) = (callee.address(), callee.address());
    let unsent = rt.spawn(async move |ctx: Context| _ = ctx.call(&one, |reply| reply).timeout(HOUR).await);
    let sent = rt.spawn(async move |ctx: Context| {
        _ = ctx.call(&other, |reply| reply).start().timeout(HOUR).timeout(2 * HOUR).await;
    });
    settle(&rt);
    for caller in [unsent.pid(), sent.pid()] {
        assert!(matches!(waits_for(&rt, caller)[..], [WaitsFor::Call { is_limited: true, .. }]));
        assert_eq!(rt.process_details(caller).unwrap().info.waits, 1);
    }
}

/// 9.2b: a process waits for several operations. The details of the process contain each operation until this operation
/// ends.
#[test]
fn several_waits_are_listed_until_each_of_them_ends() {
    let rt = lone();
    let (one, other) = (rt.spawn(holds), rt.spawn(holds));
    let (first, second) = (one.address(), other.address());
    let caller = rt.spawn(async move |ctx: Context| {
        let calls = join(ctx.call(&first, Ask::Wait), ctx.call(&second, Ask::Wait));
        _ = select(calls, ctx.sleep(HOUR)).await;
        pending::<()>().await;
    });
    settle(&rt);
    let callees = |waits: &[WaitsFor]| -> Vec<Pid> {
        let callee = |wait: &WaitsFor| if let WaitsFor::Call { callee, .. } = wait { *callee } else { None };
        waits.iter().filter_map(callee).collect()
    };
    let waits = waits_for(&rt, caller.pid());
    assert_eq!((callees(&waits), waits.len()), (vec![one.pid(), other.pid()], 3), "{waits:?}");
    assert_eq!(bare(&waits[..1]), [some_sleeps(1)]);
    one.send(Ask::Answer).unwrap();
    settle(&rt);
    let waits = waits_for(&rt, caller.pid());
    assert_eq!((callees(&waits), waits.len()), (vec![other.pid()], 2));
    other.send(Ask::Answer).unwrap();
    settle(&rt);
    assert_eq!(waits_for(&rt, caller.pid()), []);
}

enum Ask {
    Wait(Question),
    Answer,
}

/// Body that answers its questions only when it receives an `Answer`.
async fn holds(mut ctx: Context<Ask>) -> Result<(), Exit> {
    let mut held = Vec::new();
    loop {
        match ctx.receive().await? {
            Ask::Wait(reply) => held.push(reply),
            Ask::Answer => held.drain(..).for_each(|reply| reply.send(())),
        }
    }
}

/// 9.2b: the details contain the number of sleeps that a process waits for, even if a sleep reuses the timer of an
/// earlier sleep.
#[test]
fn the_details_of_a_process_contain_the_number_of_its_pending_sleeps() {
    let rt = lone();
    let reader = rt.spawn(async move |mut ctx: Context<Duration>| {
        let long = ctx.sleep(100 * HOUR);
        let reads = async {
            let mut time = HOUR;
            while let Ok(Some(more)) = ctx.receive_timeout(time).await {
                time += more;
            }
        };
        _ = select(long, pin(reads)).await;
    });
    for _ in 0..3 {
        settle(&rt);
        assert_eq!(bare(&waits_for(&rt, reader.pid())), [MESSAGE, some_sleeps(1), some_sleeps(1)]);
        reader.send(HOUR).unwrap();
    }
}

/// 9.2b: the details contain the number of sleeps, even if the process has a thousand sleeps. The counter
/// `Head::waiting` is too small for this number.
#[test]
fn a_thousand_sleeps_are_counted_in_the_details_of_a_process() {
    let rt = lone();
    let sleeper = rt.spawn(async move |mut ctx: Context<usize>| {
        let mut sleeps: Vec<_> = (0..1_000).map(|_| Box::pin(ctx.sleep(HOUR))).collect();
        loop {
            // A sleep counts as a wait after its first poll.
            for sleep in &mut sleeps {
                assert!(futures::poll!(sleep).is_pending());
            }
            sleeps.truncate(ctx.receive().await?);
        }
        #[expect(unreachable_code)]
        Ok::<_, Exit>(())
    });
    for (count, next) in [(1_000, 700), (700, 256), (256, 255), (255, 254), (254, 0), (0, 0)] {
        settle(&rt);
        assert_eq!(rt.process_details(sleeper.pid()).unwrap().info.waits, count);
        sleeper.send(next).unwrap();
    }
}

/// 9.2b: if a process waits for free mailbox space, for an exit or for a start, the details contain the pid of the
/// other process.
#[test]
fn a_wait_names_the_process_that_must_read_or_exit_or_start() {
    let rt = lone();
    let full = rt.process().mailbox_capacity(MailboxCapacity::Reject(1)).spawn(deaf::<u8>).unwrap();
    full.send(0).unwrap();
    let (pid, address) = (full.pid(), full.address());
    let line = here() + 1;
    let sends = rt.spawn(async move |ctx: Context| _ = ctx.send_wait(&address, 1).await);
    let awaits = rt.spawn(async move |ctx: Context| _ = ctx.host().exited(pid).await);
    let manual = rt.process().manual_start().spawn(deaf::<u8>).unwrap();
    let (manual_pid, starts) = (manual.pid(), rt.spawn(async move |_: Context| _ = manual.started().await));
    settle(&rt);
    let waits = waits_for(&rt, sends.pid());
    assert_eq!(waits.iter().map(line_of).collect::<Vec<_>>(), [Some((file!(), line))]);
    assert!(matches!(waits[..], [WaitsFor::Room { receiver, .. }] if receiver == pid));
    assert_eq!(bare(&waits_for(&rt, awaits.pid())), [WaitsFor::Exit { process: pid, line: None }]);
    assert_eq!(bare(&waits_for(&rt, starts.pid())), [WaitsFor::Start { process: manual_pid, line: None }]);
    for (waiting, text) in [(&awaits, "the exit of"), (&starts, "the start of")] {
        assert!(waits_for(&rt, waiting.pid())[0].to_string().starts_with(text));
    }
}

struct Never;
impl Command for Never {
    type Reply = ();
}

struct NoItems;
impl Command for NoItems {
    type Reply = ();
}
impl StreamCommand for NoItems {
    type Item = ();
}

/// Returns a runtime without workers. Its handlers never answer.
fn unanswering() -> Runtime {
    let (kept, streams) = (std::sync::Mutex::new(Vec::new()), std::sync::Mutex::new(Vec::new()));
    Runtime::builder()
        .workers(0)
        .handler(move |_: Never, completion: Completion<()>| kept.lock().unwrap().push(completion))
        .handle_stream(move |_: NoItems, completion: StreamCompletion<NoItems>| {
            streams.lock().unwrap().push(completion);
            pending::<Result<(), Failure>>()
        })
        .build()
        .unwrap()
}

/// 9.2b: the details of a process contain the source line that created the awaited future.
#[test]
fn each_future_of_the_crate_names_its_source_line() {
    let rt = unanswering();
    let deaf = rt.process().manual_start().spawn(deaf::<u8>).unwrap();
    let (pid, starts) = (deaf.pid(), deaf);
    let first = here() + 2;
    let processes = [
        rt.spawn(async move |mut ctx: Context| _ = ctx.receive().await),
        rt.spawn(async move |mut ctx: Context| _ = ctx.receive_where(Ok::<_, Payload>).await),
        rt.spawn(async move |mut ctx: Context| _ = ctx.event().await),
        rt.spawn(async move |mut ctx: Context| _ = ctx.mailbox().receive().await),
        rt.spawn(async move |ctx: Context| ctx.sleep(HOUR).await),
        rt.spawn(async move |ctx: Context| ctx.sleep_until(ctx.now() + HOUR).await),
        rt.spawn(async move |ctx: Context| _ = ctx.timeout(HOUR, pending::<()>()).await),
        rt.spawn(async move |ctx: Context| _ = ctx.interval(HOUR).tick().await),
        rt.spawn(async move |ctx: Context| ctx.host().sleep(HOUR).await),
        rt.spawn(async move |ctx: Context| _ = ctx.host().exited(pid).await),
        rt.spawn(async move |_: Context| _ = starts.started().await),
        rt.spawn(async move |ctx: Context| _ = ctx.perform(Never).await),
        rt.spawn(async move |ctx: Context| _ = ctx.perform(Never).timeout(HOUR).await),
        rt.spawn(async move |ctx: Context| _ = ctx.stream(NoItems).last().await),
    ];
    settle(&rt);
    for (number, process) in processes.iter().enumerate() {
        let waits = waits_for(&rt, process.pid());
        let line = first + number as u32;
        assert_eq!(waits.iter().map(line_of).collect::<Vec<_>>(), [Some((file!(), line))], "{waits:?}");
        assert!(waits[0].to_string().ends_with(&format!(" at {}:{line}", file!())), "{waits:?}");
    }
    assert!(processes.iter().enumerate().all(|(number, process)| number == 12 || !process.is_finished()));
    // The stated end of a sleep is at most one millisecond after its deadline. The stated end of a time limit that is a
    // sleep is also at most one millisecond after the deadline of the time limit.
    for process in &processes[4..9] {
        let [WaitsFor::Sleep { count: 1, until: Some(until), .. }] = waits_for(&rt, process.pid())[..] else {
            panic!("a sleep")
        };
        assert!(until <= rt.now() + HOUR + Duration::from_millis(1));
    }
}

/// 9.2b: a receive operation without a known line does not show the line of an earlier receive operation.
#[test]
fn a_stream_of_messages_has_no_source_line() {
    let rt = lone();
    let reads = rt.spawn(async move |mut ctx: Context<u8>| {
        _ = ctx.receive().await;
        _ = futures::StreamExt::next(ctx.mailbox()).await;
        _ = ctx.receive().await;
    });
    for has_line in [true, false, true] {
        settle(&rt);
        let waits = waits_for(&rt, reads.pid());
        assert_eq!((bare(&waits), waits[0].line().is_some()), (vec![MESSAGE], has_line));
        reads.send(0).unwrap();
    }
}

/// 9.2b: for each yield of a hand-written process, the details contain the source line of the yield in the step. The
/// line of a command is known on each path to the handler.
#[test]
fn a_yield_of_a_hand_written_process_names_its_source_line() {
    /// Line of the assertion in the step.
    const STEP: u32 = line!() + 6;
    struct ByHand;
    impl Process for ByHand {
        type Message = u8;
        type Output = ();
        fn step(&mut self, _: Events<'_, u8>, out: &mut StepOutput<'_, u8>) -> Result<Next<()>, Exit> {
            const { assert!(STEP == line!()) };
            out.perform(Never);
            out.sleep(HOUR);
            Ok(Next::Wait)
        }
    }
    let rt = unanswering();
    let by_hand = rt.spawn_process(ByHand);
    let body = here() + 2;
    let bodies = [
        rt.spawn(async move |ctx: Context| _ = ctx.perform(Never).await),
        rt.spawn(async move |ctx: Context| _ = ctx.perform(Never).start().await),
    ];
    settle(&rt);
    let lines = |pid| -> Vec<_> { waits_for(&rt, pid).iter().map(line_of).collect() };
    let here = |line| Some((file!(), line));
    assert_eq!(lines(by_hand.pid()), [None, here(STEP + 1), here(STEP + 2)]);
    let yields = rt.process_details(by_hand.pid()).unwrap().yields;
    let handlers: Vec<_> = yields.iter().map(|command| command.handler).collect();
    let is_closure = handlers[0].is_some_and(|handler| handler.starts_with("it::waits::unanswering::"));
    assert!(is_closure && handlers[1].is_none(), "a sleep has no handler: {handlers:?}");
    for (number, body_pid) in bodies.iter().map(|body| body.pid()).enumerate() {
        assert_eq!(lines(body_pid), [here(body + number as u32)]);
    }
}

/// 9.2b: for a sleep, the details show the end and the source line of the timer that wakes the process. If the sleep
/// reuses the timer of an earlier sleep, the details show the reused timer.
#[test]
fn a_sleep_shows_the_timer_that_wakes_the_process() {
    let mut simulation = Simulation::new(1);
    let host = simulation.host().clone();
    let reader = host.spawn(async move |mut ctx: Context<Duration>| -> Result<(), Exit> {
        let mut time = HOUR;
        while let Some(more) = ctx.receive_timeout(time).await? {
            time = more;
        }
        Ok(())
    });
    simulation.run(async {
        for (sent, end) in [(None, HOUR), (Some(HOUR / 2), HOUR / 2), (Some(3 * HOUR), 3 * HOUR)] {
            sent.into_iter().for_each(|time| reader.send(time).unwrap());
            host.sleep(Duration::from_millis(1)).await;
            let waits = waits_for(&host, reader.pid());
            let [WaitsFor::Message { line: message }, WaitsFor::Sleep { count: 1, until: Some(until), line }] =
                waits[..]
            else {
                panic!("{waits:?}")
            };
            assert!(line.is_some() && line == message);
            assert!(until <= host.now() + end, "{until:?}");
            if end != 3 * HOUR {
                assert!(until + Duration::from_millis(1) >= host.now() + end, "{until:?}");
            }
        }
    });
    host.kill(reader.pid()).unwrap();
}

/// 9.2b: if the timer of a sleep calls the waker of a combinator, the sleep is counted, but its end is not known.
#[test]
fn a_sleep_in_a_combinator_is_counted() {
    let rt = lone();
    let sleeper = rt.spawn(async move |ctx: Context| {
        let mut all: futures::stream::FuturesUnordered<_> = (0..3).map(|_| ctx.sleep(HOUR)).collect();
        _ = select(futures::StreamExt::next(&mut all), ctx.sleep(2 * HOUR)).await;
    });
    settle(&rt);
    let waits = waits_for(&rt, sleeper.pid());
    assert!(matches!(waits[0], WaitsFor::Sleep { count: 1, until: Some(_), line: Some(_) }), "{waits:?}");
    assert_eq!(waits[1..], [some_sleeps(3)]);
    assert_eq!(waits[1].to_string(), "the ends of 3 sleeps");
}

/// 9.2b: if a process waits for the result of a closure on the blocking pool, the details list the closure and the
/// source line of its `spawn_blocking` call. `explain` counts the process as a process that waits for the blocking
/// pool. A closure that ends, fails or is dropped is no longer listed. The process does not wait for another process,
/// so the wait-for graph has no edge for this wait.
#[test]
fn a_wait_for_a_closure_on_the_blocking_pool_is_listed_until_the_closure_ends() {
    within(60, || {
        let rt = Runtime::builder().workers(0).max_blocking_threads(3).build().unwrap();
        let [(open_one, one), (open_two, two), (open_three, three)] = [(); 3].map(|()| mpsc::channel::<()>());
        let opens = [open_one, open_two, open_three];
        let line = here() + 2;
        let process = rt.spawn(async move |mut ctx: Context<u8>| {
            let one = ctx.host().spawn_blocking(move || one.recv());
            let two = ctx.host().spawn_blocking(move || panic!("the sender is gone: {}", two.recv().is_err()));
            let dropped = ctx.host().spawn_blocking(move || three.recv());
            let receives_and_drops = async {
                _ = select(dropped, Box::pin(ctx.receive())).await;
            };
            _ = join(join(one, two), receives_and_drops).await;
            ctx.receive().await
        });
        settle(&rt);
        let pid = process.pid();
        let lines = || {
            let blocking = waits_for(&rt, pid).into_iter().filter(|wait| matches!(wait, WaitsFor::Blocking { .. }));
            let mut lines: Vec<_> = blocking.map(|wait| line_of(&wait).expect("the line is known").1).collect();
            lines.sort_unstable();
            lines
        };
        let [first, second, third] = [line, line + 1, line + 2];
        assert_eq!(lines(), [first, second, third]);
        assert!(rt.wait_for_graph().edges.is_empty());
        assert_eq!((rt.explain().activity.for_blocking, rt.explain().activity.for_unknown), (1, 0));
        // When the process has received the message, the process drops the third future.
        process.send(1).unwrap();
        settle(&rt);
        assert_eq!(lines(), [first, second]);
        let text = waits_for(&rt, pid).iter().map(ToString::to_string).collect::<Vec<_>>();
        let expected = format!("the result of a closure on the blocking pool at {}:{first}", file!());
        assert!(text.contains(&expected), "{text:?}");
        // The other futures end, one with a result and one with a panic.
        drop(opens);
        rt.block_on(async {
            while bare(&waits_for(&rt, pid)) != [MESSAGE] {
                step_aside().await;
            }
        });
        assert_eq!(rt.explain().activity.for_blocking, 0);
        process.send(2).unwrap();
        assert_eq!(rt.block_on(process).unwrap(), 2);
    });
}

/// 9.2b: when an operation succeeds, fails or is dropped, the details no longer list this operation.
#[test]
fn a_wait_that_ends_is_not_listed_any_more() {
    let rt = lone();
    let full = rt.process().mailbox_capacity(MailboxCapacity::Reject(1)).spawn(deaf::<u8>).unwrap();
    full.send(0).unwrap();
    let (address, pid) = (full.address(), full.pid());
    let waits = rt.spawn(async move |mut ctx: Context<()>| {
        let child = ctx.spawn(async |_: Context<u8>| step_aside().await);
        child.await?;
        let child = ctx.spawn(deaf::<u8>);
        let started = child.started();
        let dropped = select(child, pin(ctx.yield_now())).await;
        drop((dropped, started));
        let _dropped = ctx.send_wait(&address, 1).now_or_never();
        let _dropped = ctx.host().exited(pid).now_or_never();
        let _dropped = ctx.sleep(HOUR).now_or_never();
        let _dropped = ctx.call(pid, |reply: Question| reply).now_or_never();
        ctx.sleep(Duration::ZERO).await;
        let own = ctx.host().process_details(ctx.pid()).unwrap();
        ctx.receive().await?;
        Ok::<_, Exit>(own.info.waits)
    });
    settle(&rt);
    assert_eq!(bare(&waits_for(&rt, waits.pid())), [MESSAGE]);
    waits.send(()).unwrap();
    assert_eq!(rt.block_on(waits).unwrap(), 0);
}

fn pin<F: Future>(future: F) -> std::pin::Pin<Box<F>> {
    Box::pin(future)
}

/// 9.2b: if another thread drops a call that a process has made, the details no longer list this call. The details
/// still list the next call that the process makes.
#[test]
fn a_call_that_another_thread_drops_is_not_listed_any_more() {
    within(60, || {
        let rt = lone();
        let callee = rt.spawn(deaf::<Question>);
        let address = callee.address();
        let (to, from) = mpsc::channel::<Call<()>>();
        let caller = rt.spawn(async move |mut ctx: Context<()>| {
            loop {
                to.send(ctx.call(&address, |reply| reply).start()).map_err(|_| Exit::Normal)?;
                ctx.receive().await?;
            }
            #[expect(unreachable_code, reason = "the type of the output")]
            Ok::<_, Exit>(())
        });
        for _ in 0..3 {
            settle(&rt);
            assert_eq!(rt.process_details(caller.pid()).unwrap().info.state, Some(Blocked));
            assert!(matches!(waits_for(&rt, caller.pid())[..], [WaitsFor::Message { .. }, WaitsFor::Call { .. }]));
            drop(from.recv().unwrap());
            assert_eq!(bare(&waits_for(&rt, caller.pid())), [MESSAGE]);
            caller.send(()).unwrap();
        }
    });
}

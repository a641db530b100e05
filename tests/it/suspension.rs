//! Section 9.2 of the specification: suspended processes.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use procession::observe::{Finding, Observer, ProcessState, Transition};
use procession::*;

use crate::deadlocks::settle;
use crate::{everywhere, step_aside, two, within};

const HOUR: Duration = Duration::from_secs(3600);

fn state(host: &Host, pid: Pid) -> Option<ProcessState> {
    host.process_details(pid).and_then(|details| details.info.state)
}

/// Adds each message to a list, until the message 0 arrives.
async fn collect(mut ctx: Context<u64>, seen: Arc<Mutex<Vec<u64>>>) -> Result<(), Exit> {
    loop {
        match ctx.receive().await? {
            0 => return Ok(()),
            message => seen.lock().unwrap().push(message),
        }
    }
}

/// 9.2h: a suspended process takes no step, and no message is lost or reordered.
#[test]
fn a_suspended_process_receives_after_it_is_resumed() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let list = seen.clone();
    let process = rt.spawn(async move |ctx: Context<u64>| collect(ctx, list).await);
    process.send(1).unwrap();
    settle(&rt);
    rt.suspend(process.pid()).unwrap();
    for message in 2..100 {
        process.send(message).unwrap();
        if message % 10 == 0 {
            settle(&rt);
        }
    }
    settle(&rt);
    assert_eq!(*seen.lock().unwrap(), [1]);
    assert_eq!(state(&rt, process.pid()), Some(ProcessState::Suspended));
    assert_eq!(rt.metrics().processes.suspended, 1);
    rt.suspend(process.pid()).unwrap();
    rt.resume(process.pid()).unwrap();
    settle(&rt);
    assert_eq!(*seen.lock().unwrap(), (1..100).collect::<Vec<_>>());
    assert_eq!(state(&rt, process.pid()), Some(ProcessState::Idle));
    assert_eq!(rt.metrics().processes.suspended, 0);
    // A second resume has no effect.
    rt.resume(process.pid()).unwrap();
    process.send(0).unwrap();
    rt.block_on(process).unwrap();
}

/// 9.2h: if a process is suspended before its first step, this step happens after the process is resumed.
#[test]
fn a_new_process_does_not_begin_while_it_is_suspended() {
    struct Begins(Arc<AtomicUsize>);
    impl Process for Begins {
        type Message = ();
        type Output = ();
        fn init(&mut self, _: Start<'_>) -> Result<(), InitError> {
            self.0.fetch_add(1, SeqCst);
            Ok(())
        }
        fn step(&mut self, _: Events<'_, ()>, _: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
            self.0.fetch_add(1, SeqCst);
            Ok(Next::Done(()))
        }
    }
    let rt = Runtime::builder().workers(0).build().unwrap();
    let steps = Arc::new(AtomicUsize::new(0));
    let process = rt.spawn_process(Begins(steps.clone()));
    rt.suspend(process.pid()).unwrap();
    settle(&rt);
    assert_eq!((steps.load(SeqCst), state(&rt, process.pid())), (0, Some(ProcessState::Suspended)));
    rt.resume(process.pid()).unwrap();
    rt.block_on(process).unwrap();
    assert_eq!(steps.load(SeqCst), 2);
}

/// 9.2h: a kill ends a suspended process. If a suspended process is cancelled, the process reacts after it is resumed.
/// If the process is not resumed before the deadline of the cancellation, the process is killed.
#[test]
fn a_suspended_process_can_be_killed_and_cancelled() {
    everywhere(async |host| {
        let waits = async |mut ctx: Context| ctx.receive().await.map(drop);
        let [killed, cancelled, overdue] = [(); 3].map(|()| host.spawn(waits));
        for process in [&killed, &cancelled, &overdue] {
            host.suspend(process.pid()).unwrap();
        }
        host.kill(killed.pid()).unwrap();
        let pid = killed.pid();
        assert_eq!(killed.await, Err(Exit::Killed));
        assert_eq!((host.suspend(pid), host.resume(pid)), (Err(NoProcess(pid)), Err(NoProcess(pid))));
        host.cancel(cancelled.pid(), "no need", HOUR).unwrap();
        host.cancel(overdue.pid(), "no need", Duration::from_millis(5)).unwrap();
        assert_eq!(overdue.await, Err(Exit::Killed));
        assert!(host.process_details(cancelled.pid()).unwrap().info.is_cancelled);
        host.resume(cancelled.pid()).unwrap();
        assert!(matches!(cancelled.await, Err(Exit::Cancelled(_))));
    });
}

/// 9.2h: a process that suspends itself ends its step, and takes no further step.
#[test]
fn a_process_can_suspend_itself() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let steps = Arc::new(AtomicUsize::new(0));
    let counted = steps.clone();
    let process = rt.spawn(async move |ctx: Context| {
        ctx.host().suspend(ctx.pid()).unwrap();
        counted.fetch_add(1, SeqCst);
        ctx.yield_now().await;
        counted.fetch_add(1, SeqCst);
    });
    settle(&rt);
    assert_eq!((steps.load(SeqCst), state(&rt, process.pid())), (1, Some(ProcessState::Suspended)));
    rt.resume(process.pid()).unwrap();
    rt.block_on(process).unwrap();
    assert_eq!(steps.load(SeqCst), 2);
}

/// 9.2h: if a command is answered or a sleep ends while its process is suspended, the process continues only after it
/// is resumed.
#[test]
fn a_suspended_process_gets_answers_and_timers_after_it_is_resumed() {
    struct Ask;
    impl Command for Ask {
        type Reply = u64;
    }
    let kept = Arc::new(Mutex::new(None));
    let keep = kept.clone();
    let handler = move |_: Ask, completion: Completion<u64>| *keep.lock().unwrap() = Some(completion);
    let rt = Runtime::builder().workers(0).handler(handler).build().unwrap();
    let steps = Arc::new(AtomicUsize::new(0));
    let [first, second] = [steps.clone(), steps.clone()];
    let asks = rt.spawn(async move |ctx: Context| {
        let answer = ctx.perform(Ask).await;
        first.fetch_add(1, SeqCst);
        answer
    });
    let sleeps = rt.spawn(async move |ctx: Context| {
        // The process suspends itself before its sleep begins, so the sleep always ends while the process is suspended.
        ctx.host().suspend(ctx.pid()).unwrap();
        ctx.sleep(Duration::from_millis(1)).await;
        second.fetch_add(1, SeqCst);
    });
    settle(&rt);
    rt.suspend(asks.pid()).unwrap();
    kept.lock().unwrap().take().unwrap().complete(7);
    // This sleep ends after the sleep of the process.
    rt.block_on(rt.host().sleep(Duration::from_millis(5)));
    settle(&rt);
    assert_eq!(steps.load(SeqCst), 0);
    rt.resume(asks.pid()).unwrap();
    rt.resume(sleeps.pid()).unwrap();
    assert_eq!(rt.block_on(asks), Ok(7));
    rt.block_on(sleeps).unwrap();
}

/// 9.2h: the end of a trace does not resume a suspended process. If a process is resumed during a trace, the trace
/// records the process.
#[test]
fn a_trace_and_a_suspension_do_not_disturb_each_other() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let list = seen.clone();
    let process = rt.spawn(async move |ctx: Context<u64>| collect(ctx, list).await);
    settle(&rt);
    // The process is suspended during the first trace, and stays suspended after the end of the trace.
    let trace = rt.start_trace_to(std::io::sink()).unwrap();
    rt.suspend(process.pid()).unwrap();
    settle(&rt);
    trace.finish().unwrap();
    process.send(1).unwrap();
    settle(&rt);
    assert!(seen.lock().unwrap().is_empty());
    // The process is resumed during the second trace, so this trace contains the events of the process.
    let trace = rt.start_trace_to(std::io::sink()).unwrap();
    rt.resume(process.pid()).unwrap();
    settle(&rt);
    assert_eq!(*seen.lock().unwrap(), [1]);
    let counted = trace.finish().unwrap().events;
    let trace = rt.start_trace_to(std::io::sink()).unwrap();
    settle(&rt);
    let without = trace.finish().unwrap().events;
    assert!(counted > without, "{counted} events with a resumed process, {without} without");
}

/// 9.2h: a suspended process is never part of a deadlock, because some of its waits may already have ended.
#[test]
fn a_suspended_process_is_not_deadlocked() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let first = async |ctx: Context<Reply<()>>| Ok::<_, Exit>(ctx.call("second", |reply: Reply<()>| reply).await?);
    let second = async |mut ctx: Context<Reply<()>>| {
        ctx.receive().await?.send(());
        Ok::<_, Exit>(ctx.call("first", |reply: Reply<()>| reply).await?)
    };
    // The first process is suspended before it gets its answer, so its record of the call remains.
    let second = rt.process().name("second").spawn(second).unwrap();
    rt.suspend(second.pid()).unwrap();
    let first = rt.process().name("first").spawn(first).unwrap();
    settle(&rt);
    rt.suspend(first.pid()).unwrap();
    rt.resume(second.pid()).unwrap();
    settle(&rt);
    let graph = rt.wait_for_graph();
    assert_eq!((graph.edges.len(), graph.deadlocks.len()), (2, 0), "{graph:?}");
    let found = rt.explain();
    let is_suspended = |finding: &Finding| match finding {
        Finding::Suspended { count: 1, processes } => processes[0].pid == first.pid(),
        _ => false,
    };
    assert!(found.findings.iter().any(is_suspended), "{found}");
    assert_eq!((found.activity.suspended, found.activity.ready), (1, 0), "{found}");
    assert!(found.to_string().contains("1 process is suspended:\n"), "{found}");
    assert!(found.to_string().contains("resume the processes with `Host::resume`"), "{found}");
    rt.resume(first.pid()).unwrap();
    settle(&rt);
    drop(second);
}

/// 9.2h: the observer receives the state `Suspended`. Each transition begins in the state in which the previous
/// transition ended.
#[test]
fn the_observer_receives_the_suspended_state() {
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<Transition>>>);
    impl Observer for Log {
        fn transition(&self, transition: &Transition) {
            self.0.lock().unwrap().push(*transition);
        }
    }
    use ProcessState::{Complete, Idle, Ready, Running, Suspended};
    let log = Log::default();
    let rt = Runtime::builder().workers(0).observer(log.clone()).build().unwrap();
    let process = rt.spawn(async |mut ctx: Context<()>| ctx.receive().await.map(drop));
    settle(&rt);
    rt.suspend(process.pid()).unwrap();
    settle(&rt);
    process.send(()).unwrap();
    settle(&rt);
    rt.resume(process.pid()).unwrap();
    let pid = process.pid();
    rt.block_on(process).unwrap();
    let all: Vec<_> = log.0.lock().unwrap().iter().filter(|one| one.pid == pid).copied().collect();
    let states: Vec<_> = all.iter().map(|one| one.to).collect();
    assert_eq!(states, [Ready, Running, Idle, Ready, Suspended, Ready, Suspended, Ready, Running, Complete]);
    assert!(all.windows(2).all(|two| two[1].from == Some(two[0].to)), "{all:?}");
}

/// 9.2h: threads suspend and resume a process while other threads send. A suspended process takes no step, and each
/// message arrives once and in order.
#[test]
fn no_message_is_lost_while_threads_suspend_and_resume_the_receiver() {
    within(60, || {
        let rt = two();
        let count = Arc::new(AtomicU64::new(0));
        let counted = count.clone();
        let process = rt.spawn(async move |mut ctx: Context<u64>| {
            for expected in 1.. {
                match ctx.receive().await? {
                    0 => return Ok::<_, Exit>(()),
                    message => assert_eq!(message, expected),
                }
                counted.store(expected, SeqCst);
            }
            Ok(())
        });
        let (host, pid) = (rt.host().clone(), process.pid());
        let address = process.address().clone();
        let sender = thread::spawn(move || {
            for message in 1..=20_000 {
                address.send(message).unwrap();
                if message % 64 == 0 {
                    thread::yield_now();
                }
            }
        });
        let mut suspensions = 0;
        while !sender.is_finished() || suspensions < 100 {
            host.suspend(pid).unwrap();
            // When the process has the state `Suspended`, the process takes no step, although messages still arrive and
            // make the process ready.
            while state(&host, pid) != Some(ProcessState::Suspended) {
                thread::yield_now();
            }
            let before = count.load(SeqCst);
            (0..20).for_each(|_| thread::yield_now());
            assert_eq!(count.load(SeqCst), before);
            host.resume(pid).unwrap();
            suspensions += 1;
        }
        sender.join().unwrap();
        process.send(0).unwrap();
        futures::executor::block_on(process).unwrap();
        assert_eq!(count.load(SeqCst), 20_000);
    });
}

/// 9.2h: a process can suspend its child, in a runtime and in a simulation. A process of a local set can be suspended
/// too.
#[test]
fn children_and_processes_of_a_local_set_can_be_suspended() {
    everywhere(async |host| {
        let parent = host.spawn(async |ctx: Context| {
            let seen = Arc::new(AtomicUsize::new(0));
            let counted = seen.clone();
            let child = ctx.spawn(async move |mut ctx: Context<()>| {
                ctx.receive().await?;
                counted.fetch_add(1, SeqCst);
                Ok::<_, Exit>(())
            });
            ctx.host().suspend(child.pid()).unwrap();
            child.send(()).unwrap();
            while state(ctx.host(), child.pid()) != Some(ProcessState::Suspended) {
                step_aside().await;
            }
            assert_eq!(seen.load(SeqCst), 0);
            ctx.host().resume(child.pid()).unwrap();
            child.await
        });
        parent.await.unwrap();
    });
    let rt = two();
    let local = rt.local_set();
    let process = local.spawn(async |mut ctx: Context<u64>| ctx.receive().await);
    rt.suspend(process.pid()).unwrap();
    process.send(7).unwrap();
    let host = rt.host().clone();
    let answer = local.block_on(async move {
        while state(&host, process.pid()) != Some(ProcessState::Suspended) {
            step_aside().await;
        }
        host.resume(process.pid()).unwrap();
        process.await
    });
    assert_eq!(answer, Ok(7));
}

/// A command with a number. The handler answers the command with this number.
struct Echo(u64);
impl Command for Echo {
    type Reply = u64;
}

/// Returns a runtime whose handler answers in the same turn in which the process performs the command.
fn answers_at_once() -> Runtime {
    let handler = |Echo(n): Echo, completion: Completion<u64>| completion.complete(n);
    Runtime::builder().workers(0).handler(handler).build().unwrap()
}

/// 9.2h: a process suspends itself and then performs a command that is answered in the same turn. The process takes no
/// step for this answer before it is resumed, and the answer is not lost.
#[test]
fn an_answer_in_the_same_turn_causes_no_step_of_a_suspended_process() {
    let rt = answers_at_once();
    let steps = Arc::new(AtomicUsize::new(0));
    let counted = steps.clone();
    let process = rt.spawn(async move |mut ctx: Context<u64>| {
        let mut sum = 0;
        for n in 1..=3 {
            ctx.host().suspend(ctx.pid()).unwrap();
            sum += ctx.perform(Echo(n)).await?;
            counted.fetch_add(1, SeqCst);
        }
        Ok::<_, Exit>(sum + ctx.receive().await?)
    });
    process.send(4).unwrap();
    for resumed in 0..3 {
        settle(&rt);
        assert_eq!((steps.load(SeqCst), state(&rt, process.pid())), (resumed, Some(ProcessState::Suspended)));
        rt.resume(process.pid()).unwrap();
    }
    assert_eq!(rt.block_on(process).unwrap(), 10);
}

/// 9.2h: if a suspended process is killed, its unread answer is dropped.
#[test]
fn an_answer_in_the_same_turn_is_dropped_if_the_suspended_process_is_killed() {
    struct Noted(Arc<AtomicUsize>);
    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    struct Ask(Arc<AtomicUsize>);
    impl Command for Ask {
        type Reply = Noted;
    }
    let handler = |Ask(drops): Ask, completion: Completion<Noted>| completion.complete(Noted(drops));
    let rt = Runtime::builder().workers(0).handler(handler).build().unwrap();
    let drops = Arc::new(AtomicUsize::new(0));
    let noted = drops.clone();
    let process = rt.spawn(async move |ctx: Context| {
        ctx.host().suspend(ctx.pid()).unwrap();
        ctx.perform(Ask(noted)).await.map(drop)
    });
    settle(&rt);
    assert_eq!((drops.load(SeqCst), state(&rt, process.pid())), (0, Some(ProcessState::Suspended)));
    rt.kill(process.pid()).unwrap();
    assert!(matches!(rt.block_on(process), Err(Exit::Killed)));
    assert_eq!(drops.load(SeqCst), 1);
}

/// 9.2h: a hand-written process can suspend itself in `init` and in a step. The process takes no further step in the
/// same turn, and each event arrives once.
#[test]
fn a_hand_written_process_that_suspends_itself_takes_no_further_step_in_the_turn() {
    struct Asks {
        host: Host,
        pid: Option<Pid>,
        steps: Arc<AtomicUsize>,
        sum: u64,
    }
    impl Process for Asks {
        type Message = u64;
        type Output = u64;
        fn init(&mut self, start: Start<'_>) -> Result<(), InitError> {
            self.pid = Some(start.pid);
            self.host.suspend(start.pid).unwrap();
            Ok(())
        }
        fn step(&mut self, events: Events<'_, u64>, out: &mut StepOutput<'_, u64>) -> Result<Next<u64>, Exit> {
            let step = self.steps.fetch_add(1, SeqCst);
            for event in events {
                self.sum += match event {
                    Event::Completed(done) => done.into_result()?.downcast::<u64>().expect("a number"),
                    Event::Message(message) => message,
                    _ => 0,
                };
            }
            self.host.suspend(self.pid.expect("it has begun")).unwrap();
            if step == 3 {
                return Ok(Next::Done(self.sum));
            }
            out.perform(Echo(1));
            out.perform(Echo(10));
            Ok(if step == 1 { Next::Again } else { Next::Wait })
        }
    }
    let rt = answers_at_once();
    let steps = Arc::new(AtomicUsize::new(0));
    let asks = Asks { host: rt.host().clone(), pid: None, steps: steps.clone(), sum: 0 };
    let process = rt.spawn_process(asks);
    process.send(100).unwrap();
    for resumed in 0..4 {
        settle(&rt);
        assert_eq!((steps.load(SeqCst), state(&rt, process.pid())), (resumed, Some(ProcessState::Suspended)));
        process.send(1000).unwrap();
        rt.resume(process.pid()).unwrap();
    }
    assert_eq!(rt.block_on(process).unwrap(), 4133);
    assert_eq!(steps.load(SeqCst), 4);
}

/// 9.2h: suspended processes take no step while traces end, although a thread continuously wakes the processes.
#[test]
fn the_end_of_a_trace_causes_no_step_of_a_suspended_process() {
    within(60, || {
        let rt = two();
        let steps = Arc::new(AtomicUsize::new(0));
        let is_over = Arc::new(AtomicBool::new(false));
        let wakers = Arc::new(Mutex::new(Vec::new()));
        let processes: Vec<_> = (0..8)
            .map(|_| {
                let (steps, is_over, wakers) = (steps.clone(), is_over.clone(), wakers.clone());
                rt.spawn(async move |_: Context| {
                    poll_fn(|cx| {
                        wakers.lock().unwrap().push(cx.waker().clone());
                        steps.fetch_add(1, SeqCst);
                        if is_over.load(SeqCst) { Poll::Ready(()) } else { Poll::Pending }
                    })
                    .await;
                })
            })
            .collect();
        while wakers.lock().unwrap().len() != processes.len() {
            thread::yield_now();
        }
        for process in &processes {
            rt.suspend(process.pid()).unwrap();
            while state(&rt, process.pid()) != Some(ProcessState::Suspended) {
                thread::yield_now();
            }
        }
        let before = steps.load(SeqCst);
        let host = rt.host().clone();
        let tracer = thread::spawn(move || (0..2000).for_each(|_| drop(host.start_trace_to(std::io::sink()).unwrap())));
        let wakers = std::mem::take(&mut *wakers.lock().unwrap());
        while !tracer.is_finished() {
            wakers.iter().for_each(Waker::wake_by_ref);
        }
        tracer.join().unwrap();
        assert_eq!(steps.load(SeqCst), before);
        is_over.store(true, SeqCst);
        for process in processes {
            rt.resume(process.pid()).unwrap();
            futures::executor::block_on(process).unwrap();
        }
    });
}

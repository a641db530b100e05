//! Section 11 of the specification: misuse of the API. The tests in this file cover the rows of the table in section
//! 11, with two exceptions. The rows about panics have their tests in `panics.rs`. If another section contains the same
//! promise as a row, the tests of that section cover the row.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use procession::observe::*;
use procession::*;

use crate::lives::{Ask, LONG, Shelf, lone, settle};
use crate::{shut_down, two, within};

async fn echo(mut ctx: Context<u64>) -> Result<u64, Exit> {
    ctx.receive().await
}

async fn serve(mut ctx: Context<Reply<u64>>) -> Result<(), Exit> {
    loop {
        ctx.receive().await?.send(1);
    }
}

/// 1.1c, 1.1f, 11: a start fails if its entry point is unknown or its input has the wrong type. The error of
/// `started()` and the exit contain the given and the expected entry point, or the given and the expected input type.
#[test]
fn a_failed_start_names_its_cause() {
    async fn port(_: Context<()>, port: u16) -> Result<u32, Exit> {
        Ok(u32::from(port))
    }
    let rt = lone();
    let app = || EntryPoints::new().entry("port", port);
    let unknown = rt.process().entry("prot").spawn_process(app()).unwrap();
    let wrong = rt.process().entry("port").input("80").spawn_process(app()).unwrap();
    let none = rt.process().entry("port").spawn_process(app()).unwrap();
    let body = rt.process().entry("port").spawn(echo).unwrap();
    let (a, b, c, d) = (unknown.started(), wrong.started(), none.started(), body.started());
    let exits = rt.block_on(async move {
        let started = [a.await, b.await, c.await, d.await].map(Result::unwrap_err);
        let ended = [unknown.await.unwrap_err(), wrong.await.unwrap_err(), none.await.unwrap_err()];
        assert!(matches!(body.await, Err(Exit::InitFailed(_))));
        for (one, other) in started.iter().zip(&ended) {
            assert_eq!(one.to_string(), other.to_string());
        }
        started.map(|exit| {
            assert!(matches!(exit, Exit::InitFailed(_)), "{exit:?}");
            exit.to_string()
        })
    });
    for (exit, words) in exits.iter().zip([["`prot`", "`port`"], ["u16", "str"], ["u16", "()"], ["`port`", "none"]]) {
        assert!(words.iter().all(|word| exit.contains(word)), "{exit}");
    }
}

/// 2.2c, 11: every operation on a pid without a process fails at the sender, and the error returns the message. The pid
/// may be unknown or stale. The pid may also belong to an exited process, to another runtime or to another incarnation.
#[test]
fn a_pid_without_a_process_is_an_error() {
    let (rt, other) = (lone(), lone());
    let dead = rt.spawn(async |_: Context<u64>| {});
    let (dead_pid, dead_address) = (dead.pid(), dead.address());
    let mut next = None;
    rt.block_on(async {
        dead.await.unwrap();
        next = Some(rt.spawn(echo));
    });
    let successor = next.unwrap();
    assert_eq!(successor.pid().index(), dead_pid.index(), "the slot is used again");
    let own = successor.pid();
    let parsed = |node: u32, incarnation: u32, index: u32, generation: u32| -> Pid {
        format!("<{node}-{incarnation:x}.{index}.{generation}>").parse().unwrap()
    };
    let (node, life, index, generation) = (own.node(), own.incarnation(), own.index(), own.generation());
    let pids = [
        dead_pid,
        other.spawn(echo).pid(),
        parsed(node, life, u32::MAX, 1),
        parsed(node, life, u32::MAX, u32::MAX),
        parsed(node, life, index, generation + 1),
        parsed(node, life, index, u32::MAX),
        parsed(node, life ^ 0x100, index, generation),
        parsed(node + 1000, life, index, generation),
        parsed(u32::MAX, u32::MAX, u32::MAX, u32::MAX),
    ];
    let before = rt.counters().refused;
    for pid in pids {
        let refused = rt.send(pid, 7_u64).unwrap_err();
        assert_eq!((refused.kind(), refused.into_message()), (SendErrorKind::NoProcess, 7), "{pid}");
        assert_eq!(rt.kill(pid), Err(NoProcess(pid)));
        assert_eq!(rt.cancel(pid, "no", LONG), Err(NoProcess(pid)));
        assert!(rt.address::<u64>(pid).is_none());
        assert!(matches!(rt.block_on(rt.exited(pid)), Exit::NoProcess));
        assert!(matches!(
            rt.block_on(rt.call(pid, |_: Reply<()>| 1_u64)),
            Err(CallError::Send(SendErrorKind::NoProcess))
        ));
        let refused = rt.complete_yield(pid, Tag::chosen(1), Ok(Payload::new(1_u64))).unwrap_err();
        assert_eq!(refused.kind(), SendErrorKind::NoProcess);
        assert_eq!(refused.into_message().unwrap().downcast::<u64>().unwrap(), 1);
    }
    assert_eq!(rt.counters().refused - before, 2 * pids.len() as u64);
    assert_eq!(dead_address.send(8).unwrap_err().into_message(), 8);
    successor.send(9).unwrap();
    assert_eq!(rt.block_on(successor).unwrap(), 9);
}

/// 1.6b, 11: a send of a message of the wrong type fails at the sender. The error names the expected type and returns
/// the message. A message of the wrong type in a payload is refused too. A mailbox outside any process refuses a
/// message of the wrong type too.
#[test]
fn a_message_of_the_wrong_type_is_refused_at_the_sender() {
    let rt = lone();
    let typed = rt.spawn(echo);
    let (outside, _mailbox) = rt.mailbox::<u64>();
    for pid in [typed.pid(), outside.pid()] {
        let refused = rt.send(pid, "text").unwrap_err();
        assert_eq!((refused.kind(), refused.into_message()), (SendErrorKind::WrongType { expected: "u64" }, "text"));
        let large = [7_u64; 9];
        assert_eq!(rt.send(pid, large).unwrap_err().into_message(), large);
        let refused = rt.send(pid, Payload::new(1_u32)).unwrap_err();
        assert_eq!(refused.into_message().downcast::<u32>().unwrap(), 1);
        assert!(rt.address::<u32>(pid).is_none());
        let called = rt.block_on(rt.call(pid, |reply: Reply<u32>| reply));
        assert!(matches!(called, Err(CallError::Send(SendErrorKind::WrongType { expected: "u64" }))), "{called:?}");
    }
    rt.send(typed.pid(), Payload::new(5_u64)).unwrap();
    assert_eq!(rt.block_on(typed).unwrap(), 5);
}

/// 11: if an option has an impossible value, the build fails. An extreme but possible value works.
#[test]
fn extreme_options_work_or_are_errors() {
    for asked in [49, 1_000, usize::MAX] {
        let error = Runtime::builder().workers(asked).build().unwrap_err();
        assert!(matches!(error, BuildError::TooManyWorkers { asked: a, most } if a == asked && most < 49), "{error}");
    }
    within(30, || {
        let most = Runtime::builder().workers(48).build().unwrap();
        assert_eq!(block_on(most.spawn(async |_: Context| Ok::<_, Exit>(1))).unwrap(), 1);
        // This thread cannot run processes, because all worker slots are taken. The call of `block_on` still returns
        // the result.
        assert_eq!(most.block_on(most.spawn(async |_: Context| Ok::<_, Exit>(2))).unwrap(), 2);
        assert_eq!(block_on(most.run(most.spawn(async |_: Context| Ok::<_, Exit>(3)))).unwrap(), 3);
    });
    within(10, || {
        let none = Runtime::builder().workers(1).max_blocking_threads(0).blocking_queue_capacity(0).build().unwrap();
        assert!(block_on(none.spawn_blocking(|| 1)).is_err());
        let huge =
            Runtime::builder().workers(1).max_blocking_threads(usize::MAX).blocking_queue_capacity(usize::MAX).build();
        assert_eq!(block_on(huge.unwrap().spawn_blocking(|| 1)).unwrap(), 1);
        let queue = Runtime::builder().workers(1).max_blocking_threads(1).blocking_queue_capacity(0).build().unwrap();
        assert_eq!(block_on(queue.spawn_blocking(|| 1)).unwrap(), 1);
    });
}

/// 4.1b, 8.1a, 8.1f: without workers, nothing runs until a guest thread drives the runtime. As soon as a guest thread
/// drives the runtime, this thread runs all processes.
#[test]
fn a_guest_thread_runs_all_processes_of_a_runtime_without_workers() {
    within(20, || {
        let rt = Runtime::builder().workers(0).handle_async(async |c: Ask| c.0).build().unwrap();
        let body = rt.spawn(async |ctx: Context| {
            ctx.sleep(Duration::from_millis(1)).await;
            ctx.spawn(async |ctx: Context| ctx.perform(Ask(4)).await).await
        });
        let mut handle = pin!(body);
        let ready = block_on(poll_fn(|cx| Poll::Ready(handle.as_mut().poll(cx).is_ready())));
        assert!(!ready);
        assert_eq!(rt.counters().polls, 0);
        assert_eq!(block_on(rt.run(handle)).unwrap(), 4);
        // The runtime is dropped while a process that never ran is still queued.
        let left = rt.spawn(async |_: Context| {});
        drop(rt);
        assert!(block_on(left).is_err());
    });
}

/// 11: a duration of zero elapses immediately, and the longest durations never elapse. A sleep that never ends does not
/// block its process. The process can exit before such a sleep ends, and the runtime can shut down.
#[test]
fn extreme_durations_elapse_immediately_or_never() {
    for workers in [0, 2] {
        within(20, move || {
            let shelf = Shelf::default();
            let rt = Runtime::builder().workers(workers).handler(shelf.clone()).build().unwrap();
            let keeps = rt.spawn(async |mut ctx: Context<Reply<u64>>| -> Result<(), Exit> {
                let mut kept = Vec::new();
                loop {
                    kept.push(ctx.receive().await?);
                }
            });
            let server = rt.spawn(serve);
            let (keeper, quick) = (keeps.address(), server.address());
            let body = rt.spawn(async move |ctx: Context| {
                ctx.sleep(Duration::ZERO).await;
                let past = ctx.now();
                ctx.sleep_until(past).await;
                let failure = ctx.timeout(Duration::ZERO, pending::<()>()).await.unwrap_err();
                assert!(matches!(failure, Failure::TimedOut));
                assert_eq!(ctx.timeout(Duration::ZERO, std::future::ready(1)).await.unwrap(), 1);
                assert_eq!(ctx.timeout(Duration::MAX, std::future::ready(2)).await.unwrap(), 2);
                let failure = ctx.perform(Ask(1)).timeout(Duration::ZERO).await.unwrap_err();
                assert!(matches!(failure, Failure::TimedOut));
                let late = ctx.call(&keeper, |reply| reply).timeout(Duration::ZERO).await;
                assert!(matches!(late, Err(CallError::TimedOut)), "{late:?}");
                assert_eq!(ctx.call(&quick, |reply| reply).timeout(Duration::MAX).await.unwrap(), 1);
                // Each duration is beyond the range of the clock, so a sleep of this duration never elapses. Adding the
                // duration to the present time does not overflow.
                for time in [Duration::MAX, Duration::from_nanos(u64::MAX), Duration::from_secs(u64::MAX)] {
                    let sleep = ctx.sleep(time);
                    let never = ctx.timeout(Duration::from_millis(1), sleep).await.unwrap_err();
                    assert!(matches!(never, Failure::TimedOut));
                    assert!(ctx.now() + time > ctx.now());
                }
                Ok::<_, Exit>(())
            });
            rt.block_on(body).unwrap();
            let sleeps = rt.spawn(async |ctx: Context<()>| ctx.sleep(Duration::MAX).await);
            rt.block_on(sleeps.started()).unwrap();
            sleeps.abort();
            assert!(matches!(rt.block_on(sleeps), Err(Exit::Killed)));
            struct Sleeps;
            impl Process for Sleeps {
                type Message = ();
                type Output = ();
                fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
                    for event in events {
                        if let Event::Completed(_) = event {
                            return Ok(Next::Done(()));
                        }
                    }
                    let _ = (out.sleep(Duration::MAX), out.sleep(Duration::ZERO));
                    Ok(Next::Wait)
                }
            }
            rt.block_on(rt.spawn_process(Sleeps)).unwrap();
            assert_eq!(shut_down(rt, Duration::MAX).left, []);
            drop((keeps, server));
        });
    }
}

/// 1.2h, 3.3c, 3.3e, 11: the runtime refuses an answer with an unknown tag, and refuses a command whose tag is in
/// flight. The runtime discards a second answer to a command, and an answer after the exit of the process.
#[test]
fn unrequested_answers_are_refused_or_discarded() {
    let shelf = Shelf::default();
    let rt = Runtime::builder().workers(0).handler(shelf.clone()).build().unwrap();
    struct Chooses;
    impl Process for Chooses {
        type Message = ();
        type Output = ();
        fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
            events.for_each(drop);
            let tag = Tag::chosen(7);
            if out.perform_as(tag, Ask(1)).is_ok() {
                assert_eq!(out.perform_as(tag, Ask(2)).unwrap_err().into_message().0, 2);
                assert!(out.cancel_yield(tag) && !out.cancel_yield(tag));
                out.perform_as(tag, Ask(3)).unwrap();
                let issued = out.perform(Ask(4));
                assert!(out.perform_as(issued, Ask(5)).is_err(), "not one that can be chosen");
                assert!(out.cancel_yield(issued));
            }
            Ok(Next::Wait)
        }
    }
    let handle = rt.spawn_process(Chooses);
    settle(&rt);
    let pid = handle.pid();
    let refused = rt.complete_yield(pid, Tag::chosen(8), Ok(Payload::new(1_u64))).unwrap_err();
    assert_eq!(refused.kind(), SendErrorKind::UnknownTag);
    let completion = shelf.take();
    let (tag, discarded) = (completion.tag(), rt.counters().discarded);
    rt.complete_yield(pid, tag, Ok(Payload::new(1_u64))).unwrap();
    // The command is first answered through its tag. Then the completion answers the same command, and this second
    // answer is discarded.
    assert!(completion.is_cancelled());
    completion.complete(2);
    assert_eq!(rt.counters().discarded, discarded + 1);
    settle(&rt);
    let completion = shelf.take();
    handle.abort();
    assert!(matches!(rt.block_on(handle), Err(Exit::Killed)));
    completion.fail("too late");
    assert_eq!(rt.counters().discarded, discarded + 2);
}

/// Calls the operations of a host and of an address. The tests call this function in places in which a user may not
/// expect these operations to work.
fn everything(host: &Host, server: &Address<Reply<u64>>) {
    let spawned = host.spawn(echo);
    let _ = spawned.send(3);
    let mut call = server.call(|reply| reply).start();
    let _ = futures::FutureExt::now_or_never(&mut call);
    host.spawn_future(async {});
    drop(host.spawn_blocking(|| 1));
    let (to, mut mailbox) = host.mailbox::<u64>();
    let _ = to.send(1);
    let _ = mailbox.try_receive();
    drop(host.sleep(LONG));
    let _ = host.cancel(spawned.pid(), "all", LONG);
    let _ = host.kill(spawned.pid());
    let _ = (host.counters(), host.processes_alive(), host.now());
    drop((spawned, call));
}

/// When this value is dropped, its destructor calls `everything` and then sends the text in the field `place`.
struct Busy {
    host: Host,
    server: Address<Reply<u64>>,
    done: mpsc::Sender<&'static str>,
    place: &'static str,
}

impl Drop for Busy {
    fn drop(&mut self) {
        everything(&self.host, &self.server);
        let _ = self.done.send(self.place);
    }
}

/// 11: spawn, send, call, cancel and kill work inside a step, a body, a handler of any kind, a foreign thread, a
/// blocking closure and a plain future. These operations also work in the `Drop` of a state, a message, a reply and a
/// command.
#[test]
fn every_operation_works_in_every_context() {
    struct Give(#[expect(dead_code)] Option<Busy>);
    impl Command for Give {
        type Reply = Option<Busy>;
    }
    struct Steps(Busy);
    impl Process for Steps {
        type Message = Busy;
        type Output = ();
        fn step(&mut self, _: Events<'_, Busy>, out: &mut StepOutput<'_, Busy>) -> Result<Next<()>, Exit> {
            everything(out.host(), &self.0.server);
            let _ = self.0.done.send("step");
            Ok(Next::Wait)
        }
        fn close(&mut self) {
            everything(&self.0.host, &self.0.server);
            let _ = self.0.done.send("close");
        }
    }
    within(30, || {
        let (done, hears) = mpsc::channel();
        let place = Arc::new(Mutex::new(None::<(Host, Address<Reply<u64>>)>));
        let known = place.clone();
        let busy = {
            let done = Mutex::new(done);
            move |place: &'static str| {
                let (host, server) = known.lock().unwrap().clone().expect("set before");
                Busy { host, server, done: done.lock().unwrap().clone(), place }
            }
        };
        let busy = Arc::new(busy);
        struct Inline(u64);
        struct Blocks(u64);
        impl Command for Inline {
            type Reply = u64;
        }
        impl Command for Blocks {
            type Reply = u64;
        }
        let (a, b, c, d) = (busy.clone(), busy.clone(), busy.clone(), busy.clone());
        let rt = Runtime::builder()
            .workers(2)
            .handle(move |c: Inline| (drop(a("inline")), c.0).1)
            .handle_blocking(move |c: Blocks| (drop(b("blocking")), c.0).1)
            .handle_async(move |_: Ask| {
                let busy = c("async");
                async move {
                    drop(busy);
                    1_u64
                }
            })
            .handle(move |command: Give| {
                drop(command);
                Some(d("reply"))
            })
            .build()
            .unwrap();
        let server = rt.spawn(serve);
        *place.lock().unwrap() = Some((rt.host().clone(), server.address()));

        let raw = rt.spawn_process(Steps(busy("state")));
        block_on(raw.started()).unwrap();
        let body = rt.spawn({
            let busy = busy.clone();
            async move |mut ctx: Context<Busy>| {
                everything(ctx.host(), &busy("x").server);
                assert_eq!(
                    ctx.perform(Inline(1)).await? + ctx.perform(Blocks(1)).await? + ctx.perform(Ask(1)).await?,
                    3
                );
                drop(ctx.perform(Give(Some(busy("command")))).await?);
                drop(ctx.receive().await?);
                Ok::<_, Exit>(())
            }
        });
        body.send(busy("message")).unwrap();
        block_on(body).unwrap();
        raw.abort();
        let address = raw.address();
        let _ = address.send(busy("unread"));
        let _ = block_on(raw);
        let future = busy("future");
        rt.spawn_future(async move { drop(future) });
        let closure = busy("closure");
        block_on(rt.spawn_blocking(move || drop(closure))).unwrap();
        let foreign = busy("thread");
        thread::spawn(move || drop(foreign)).join().unwrap();
        let mut places: Vec<_> = Vec::new();
        let expected = [
            "async", "blocking", "close", "closure", "command", "future", "inline", "message", "reply", "state",
            "step", "thread", "unread", "x",
        ];
        while !expected.iter().all(|place| places.contains(place)) {
            places.push(hears.recv().unwrap());
        }
        assert_eq!(block_on(server.call(|reply| reply)).unwrap(), 1);
        assert_eq!(shut_down(rt, LONG).left, []);
        *place.lock().unwrap() = None;
    });
}

/// 11: while a runtime is dropped, the destructors of its values spawn, send, call, cancel and kill. Every operation is
/// refused, and no operation hangs.
#[test]
fn every_operation_is_refused_while_the_runtime_is_dropped() {
    for workers in [0, 1, 2] {
        within(30, move || {
            let (done, hears) = mpsc::channel();
            let rt = Runtime::builder().workers(workers).build().unwrap();
            let server = rt.spawn(serve);
            let (host, address) = (rt.host().clone(), server.address());
            let busy = |place| Busy { host: host.clone(), server: address.clone(), done: done.clone(), place };
            let state = busy("state");
            let body = rt.spawn(async move |_: Context<Busy>| {
                let _state = state;
                pending::<()>().await;
            });
            body.send(busy("message")).unwrap();
            let future = busy("future");
            rt.spawn_future(async move {
                let _future = future;
                pending().await
            });
            let (to, _mailbox) = rt.mailbox::<Busy>();
            to.send(busy("outside")).unwrap();
            rt.block_on(body.started()).unwrap();
            drop(rt);
            let mut places: Vec<_> = hears.try_iter().collect();
            places.sort_unstable();
            assert_eq!(places, ["future", "message", "outside", "state"]);
            assert!(block_on(body).is_err());
            assert_eq!(host.counters().spawned, host.counters().exited);
            assert_eq!(host.processes_alive(), 0);
        });
    }
}

/// 6.5a, 6.5c, 6.5d, 11: a process may shut down its own runtime. Every other process exits. The shutdown waits for the
/// calling process until the deadline, and then lists this process in its report.
#[test]
fn a_process_may_shut_down_its_own_runtime() {
    for workers in [1, 2] {
        within(30, move || {
            let rt = Runtime::builder().workers(workers).build().unwrap();
            let (host, server) = (rt.host().clone(), rt.spawn(serve));
            let owner = rt.spawn(async move |mut ctx: Context<Runtime>| {
                let rt = ctx.receive().await?;
                let report = rt.shutdown(Duration::from_secs(3600)).await;
                Ok::<_, Exit>(report)
            });
            let pid = owner.pid();
            owner.address().send(rt).unwrap();
            assert!(matches!(block_on(server), Err(Exit::Cancelled(_))));
            // The process that owns the runtime waits for the shutdown that this process has requested. The test
            // requests a second shutdown with an earlier deadline.
            let shutdown = block_on(host.shutdown(Duration::ZERO));
            assert!(matches!(block_on(owner), Err(Exit::Killed)));
            assert_eq!(shutdown.left.iter().map(|left| left.pid).collect::<Vec<_>>(), [pid]);
        });
    }
}

/// 8.1d, 11: a step may call `Runtime::block_on` of its own runtime. While the step blocks, its worker runs other
/// processes.
#[test]
fn a_step_may_block_on_its_own_runtime() {
    within(20, || {
        let rt = Arc::new(Runtime::builder().workers(1).build().unwrap());
        let (own, server) = (rt.clone(), rt.spawn(serve));
        let address = server.address();
        let body = rt.spawn(async move |_: Context| {
            let replied = own.block_on(address.call(|reply| reply));
            let spawned = own.block_on(own.spawn(async |_: Context| Ok::<_, Exit>(2)));
            drop(own);
            Ok::<_, Exit>(replied? + spawned?)
        });
        assert_eq!(block_on(body).unwrap(), 3);
    });
}

/// 6.5c, 6.5d, 11: one process spins in a step that does not return. The other processes continue on the other worker.
/// A shutdown still returns, and lists the spinning process.
#[test]
fn a_process_that_spins_does_not_stop_other_processes() {
    within(30, || {
        let rt = two();
        let (spins, release) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (said, released) = (spins.clone(), release.clone());
        let greedy = rt.spawn(async move |_: Context<()>| {
            said.store(true, SeqCst);
            while !released.load(SeqCst) {
                std::hint::spin_loop();
            }
        });
        while !spins.load(SeqCst) {
            thread::yield_now();
        }
        let server = rt.spawn(serve);
        for _ in 0..100 {
            assert_eq!(block_on(server.call(|reply| reply)).unwrap(), 1);
        }
        let many: Vec<_> = (0..1_000).map(|n| rt.spawn(async move |_: Context<()>| Ok::<_, Exit>(n))).collect();
        let sum: u32 = many.into_iter().map(|handle| block_on(handle).unwrap()).sum();
        assert_eq!(sum, 499_500);
        block_on(rt.sleep(Duration::from_millis(1)));
        assert!(!greedy.is_finished());
        rt.cancel(server.pid(), "enough", LONG).unwrap();
        assert!(matches!(block_on(server), Err(Exit::Cancelled(_))));
        let shutdown = shut_down(rt, Duration::from_millis(5));
        let left: Vec<_> = shutdown.left.iter().map(|left| (left.pid, left.state)).collect();
        assert_eq!(left, [(greedy.pid(), Some(ProcessState::Running))]);
        release.store(true, SeqCst);
        // The spinning step then returns the result of the body, so the process exits normally.
        block_on(greedy).unwrap();
    });
}

/// 1.3e, 11: a future belongs to one process. The future fails if another process polls it, or if it is polled outside
/// any process.
#[test]
fn futures_of_one_process_fail_in_another_process() {
    let rt = Runtime::builder().workers(0).handle(|c: Ask| c.0).build().unwrap();
    let (tell, told) = mpsc::channel();
    let gives = rt.spawn(async move |ctx: Context<()>| {
        tell.send(ctx.perform(Ask(1))).unwrap();
        tell.send(ctx.perform(Ask(2))).unwrap();
        pending::<()>().await;
    });
    settle(&rt);
    let (inside, outside) = (told.recv().unwrap(), told.recv().unwrap());
    assert!(matches!(block_on(outside), Err(Failure::Outside)));
    let other = rt.spawn(async move |_: Context<()>| {
        assert!(matches!(inside.await, Err(Failure::Outside)));
    });
    rt.block_on(other).unwrap();
    assert!(!gives.is_finished());
}

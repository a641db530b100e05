//! Section 2 of the specification: pids, mailboxes, and the routing of messages.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures::future::Either;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use procession::future::*;
use procession::*;

mod receivers;

use crate::time::timed;
use crate::{everywhere, on_workers, step_aside, two, within};

async fn echo(mut ctx: Context<u64>) -> Result<u64, Exit> {
    ctx.receive().await
}

/// 2.1a, 2.1d: a pid can be printed and parsed. Pids are ordered, and a pid needs few bytes. A restarted runtime has a
/// new incarnation number, and refuses the pids of the previous incarnation.
#[test]
fn a_pid_can_be_printed_and_parsed() {
    let rt = two();
    let a = rt.spawn(echo).pid();
    let b = rt.spawn(echo).pid();
    assert_ne!(a, b);
    assert_eq!(a.to_string().parse::<Pid>().unwrap(), a);
    assert!(a < b || b < a);
    assert_eq!((size_of::<Pid>(), size_of::<Option<Pid>>()), (16, 16));
    for wrong in ["", "<>", "1.2.3", "<1.2>", "<1.2.3.4>", "<a.b.c>", "<1.2.0>"] {
        assert!(wrong.parse::<Pid>().is_err(), "{wrong}");
    }
    let again = Runtime::builder().workers(0).node(a.node()).build().unwrap();
    assert_eq!(again.node(), a.node());
    let stale = again.send(a, 1_u64).unwrap_err();
    assert_eq!((stale.kind(), stale.into_message()), (SendErrorKind::NoProcess, 1));
}

/// A message that owns a mailbox. The mailbox contains another message of this type.
struct Nested {
    _next: Option<Mailbox<Nested>>,
    dropped: Arc<AtomicU64>,
}

impl Drop for Nested {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, SeqCst);
    }
}

/// 2.2d, 11: a message may own the mailbox of the next message, to any depth. The nested messages are dropped one after
/// the other, on a stack of 64 KiB.
#[test]
fn a_million_nested_messages_are_dropped_on_a_small_stack() {
    const DEPTH: u64 = 1_000_000;
    let rt = Runtime::builder().workers(0).build().unwrap();
    let dropped = Arc::<AtomicU64>::default();
    let mut outer = None;
    for _ in 0..DEPTH {
        let (address, mailbox) = rt.mailbox();
        address.send(Nested { _next: outer.take(), dropped: dropped.clone() }).unwrap();
        outer = Some(mailbox);
    }
    let thread = std::thread::Builder::new().stack_size(64 << 10);
    thread.spawn(move || drop(outer)).unwrap().join().unwrap();
    assert_eq!(dropped.load(SeqCst), DEPTH);
    assert_eq!(rt.counters().dead_letters, DEPTH);
}

/// 2.2d, 11: a thread-local variable owns nested messages. When the thread exits, the destructor of this variable drops
/// the messages one after the other.
#[test]
fn nested_messages_are_dropped_on_a_small_stack_while_a_thread_exits() {
    const DEPTH: u64 = 100_000;
    thread_local!(static LAST: std::cell::RefCell<Option<Mailbox<Nested>>> = const { std::cell::RefCell::new(None) });
    fn nest(host: &Host, depth: u64, dropped: &Arc<AtomicU64>) -> Option<Mailbox<Nested>> {
        (0..depth).fold(None, |inner, _| {
            let (address, mailbox) = host.mailbox();
            address.send(Nested { _next: inner, dropped: dropped.clone() }).unwrap();
            Some(mailbox)
        })
    }
    let rt = Runtime::builder().workers(0).build().unwrap();
    let (host, dropped) = (rt.host().clone(), Arc::<AtomicU64>::default());
    let count = Arc::clone(&dropped);
    let thread = std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
        // The thread-local is initialised before the first message is dropped on this thread. Thread-locals are
        // destroyed in the reverse order of their first use. Therefore the thread-locals of the crate are destroyed
        // before this thread-local.
        LAST.set(None);
        drop(nest(&host, 10, &count));
        LAST.set(nest(&host, DEPTH, &count));
    });
    thread.unwrap().join().unwrap();
    assert_eq!(dropped.load(SeqCst), DEPTH + 10);
}

/// 2.2d, 11: each process of a chain has an unread message, and this message owns the only address of the next process.
/// When the runtime is dropped, all processes exit on a stack of 64 KiB.
#[test]
fn processes_exit_on_a_small_stack_even_if_unread_messages_form_a_long_chain() {
    const DEPTH: usize = 20_000;
    struct Knows {
        _next: Option<Address<Knows>>,
    }
    let rt = Runtime::builder().workers(0).build().unwrap();
    let mut first = None;
    for _ in 0..DEPTH {
        let process = rt.spawn(async |ctx: Context<Knows>| {
            std::future::pending::<()>().await;
            drop(ctx);
        });
        process.send(Knows { _next: first.take() }).unwrap();
        first = Some(process.address());
    }
    let host = rt.host().clone();
    let thread = std::thread::Builder::new().stack_size(64 << 10);
    thread.spawn(move || drop((first, rt))).unwrap().join().unwrap();
    let counters = host.counters();
    assert_eq!((counters.exited, counters.dead_letters), (DEPTH as u64, DEPTH as u64));
}

/// 2.1e: a pid slot is reused with another generation. A message to the stale pid never reaches the new process in the
/// slot.
#[test]
fn a_message_to_a_stale_pid_never_reaches_the_new_process() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let mut former: Vec<Pid> = Vec::new();
    // Each process exits on the thread that spawns the next process, so the next process reuses the slot of the exited
    // process.
    rt.block_on(async {
        for n in 0..100 {
            let next = rt.spawn(echo);
            assert!(!former.contains(&next.pid()));
            for stale in &former {
                assert_eq!(rt.send(*stale, 666_u64).unwrap_err().kind(), SendErrorKind::NoProcess);
                assert!(rt.address::<u64>(*stale).is_none());
                assert!(rt.kill(*stale).is_err());
            }
            next.send(n).unwrap();
            former.push(next.pid());
            assert_eq!(next.await.unwrap(), n);
        }
    });
    assert!(former.iter().any(|pid| pid.generation() > 10), "slots are used again: {former:?}");
}

/// 2.1e, 11: a send to a pid of another runtime fails at the sender. The error returns the message.
#[test]
fn a_send_to_a_pid_of_another_runtime_is_refused() {
    let (here, there) = (two(), two());
    let pid = there.spawn(echo).pid();
    let refused = here.send(pid, 5_u64).unwrap_err();
    assert_eq!((refused.kind(), refused.into_message()), (SendErrorKind::NoProcess, 5));
    let never: Pid = format!("<{}.4294967295.7>", here.node()).parse().unwrap();
    assert_eq!(here.send(never, 5_u64).unwrap_err().kind(), SendErrorKind::NoProcess);
}

/// 2.2b: messages from one sender to one receiver arrive in order, even if several senders send at the same time.
#[test]
fn messages_from_one_sender_arrive_in_order() {
    everywhere(async |host| {
        let all = host.spawn(async |mut ctx: Context<(usize, u32)>| {
            let mut next = [0; 4];
            for _ in 0..40_000 {
                let (sender, n) = ctx.receive().await?;
                assert_eq!(next[sender], n);
                next[sender] += 1;
            }
            Ok::<_, Exit>(())
        });
        for sender in 0..4 {
            let to = all.address();
            let _ = host.spawn(async move |ctx: Context| {
                for n in 0..10_000 {
                    to.send((sender, n))?;
                    if n % 100 == 0 {
                        ctx.yield_now().await;
                    }
                }
                Ok::<_, Exit>(())
            });
        }
        all.await.unwrap();
    });
}

/// 2.2d: the runtime and its mailbox of dead letters are dropped, in either order. After the second drop, nothing of
/// the runtime remains in memory.
#[test]
fn a_mailbox_for_dead_letters_does_not_keep_the_runtime_alive() {
    struct Now;
    impl Command for Now {
        type Reply = ();
    }
    for mailbox_first in [true, false] {
        let held = Arc::new(());
        let handler = held.clone();
        let rt = Runtime::builder().workers(1).handle(move |_: Now| drop(handler.clone())).build().unwrap();
        let (letters, unread) = (rt.dead_letters(), rt.dead_letters());
        drop(unread);
        let unheard = rt.spawn(echo);
        (0..3).for_each(|n| drop(unheard.send(n)));
        rt.block_on(unheard).unwrap();
        assert_eq!(Arc::strong_count(&held), 2);
        if mailbox_first {
            drop(letters);
            drop(rt);
        } else {
            drop(rt);
            drop(letters);
        }
        assert_eq!(Arc::strong_count(&held), 1, "the runtime is still there");
    }
}

/// 2.2d: if an accepted message cannot be delivered, it becomes a dead letter. Dead letters arrive in order and are
/// counted.
#[test]
fn unread_messages_become_dead_letters() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let before = rt.counters();
    let unheard = rt.spawn(echo);
    (0..3).for_each(|n| unheard.send(n).unwrap());
    rt.block_on(unheard).unwrap();
    assert_eq!((rt.counters() - before).dead_letters, 2);

    let mut letters = rt.dead_letters();
    let dies = rt.spawn(async |mut ctx: Context<u64>| -> Result<(), Exit> {
        ctx.receive().await?;
        panic!("before it read the rest")
    });
    let pid = dies.pid();
    (0..300).for_each(|n| dies.send(n).unwrap());
    assert!(matches!(rt.block_on(dies), Err(Exit::Panicked(_))));
    for n in 1..300 {
        let letter = letters.try_receive().expect("a letter");
        assert_eq!((letter.to, letter.payload.downcast::<u64>().unwrap()), (pid, n));
    }
    assert!(letters.try_receive().is_none());
}

/// 2.3e: a message that a process sends just before it exits is delivered before the exit of the process is reported.
#[test]
fn messages_arrive_before_the_report_of_the_exit_of_their_sender() {
    everywhere(async |host| {
        for _ in 0..200 {
            let (to, mut mailbox) = host.mailbox::<u64>();
            let sender = host.spawn(async move |_: Context| {
                to.send(1)?;
                Ok::<_, Exit>(())
            });
            let ended = sender.exited();
            drop(sender);
            assert!(ended.await.is_normal());
            assert_eq!(mailbox.try_receive(), Some(1));
        }
    });
}

/// 2.3e, 2.3h: a cancellation arrives after the messages that were sent before the cancellation, and before the
/// messages that were sent later. A hand-written process and `event()` both receive the cancellation in this order.
#[test]
fn a_cancellation_arrives_in_order_with_the_messages() {
    #[derive(Default)]
    struct Order(Vec<String>);
    fn note<M: std::fmt::Debug>(seen: &mut Vec<String>, event: Event<M>) -> bool {
        match event {
            Event::Message(n) => seen.push(format!("{n:?}")),
            Event::Cancel { reason, .. } => seen.push(reason.to_string()),
            _ => unreachable!(),
        }
        seen.len() == 4
    }
    impl Process for Order {
        type Message = u64;
        type Output = Vec<String>;
        fn step(&mut self, events: Events<'_, u64>, _: &mut StepOutput<'_, u64>) -> Result<Next<Vec<String>>, Exit> {
            for event in events {
                if note(&mut self.0, event) {
                    return Ok(Next::Done(std::mem::take(&mut self.0)));
                }
            }
            Ok(Next::Wait)
        }
    }
    let rt = Runtime::builder().workers(0).build().unwrap();
    let by_step = rt.spawn_process(Order::default());
    let by_body = rt.spawn(async |mut ctx: Context<u64>| {
        let mut seen = Vec::new();
        while !note(&mut seen, ctx.event().await) {}
        Ok::<_, Exit>(seen)
    });
    for address in [by_step.address(), by_body.address()] {
        address.send(1).unwrap();
        address.send(2).unwrap();
        rt.cancel(address.pid(), "enough", Duration::from_secs(9)).unwrap();
        address.send(3).unwrap();
    }
    assert_eq!(rt.block_on(by_step).unwrap(), ["1", "2", "enough", "3"]);
    assert_eq!(rt.block_on(by_body).unwrap(), ["1", "2", "enough", "3"]);
}

/// 2.2c, 2.4b: a mailbox that belongs to no process has a pid. Threads and tasks of any executor can receive from this
/// mailbox.
#[test]
fn a_mailbox_outside_the_processes_has_a_pid() {
    let rt = two();
    let (address, mut mailbox) = rt.mailbox::<u64>();
    let pid = mailbox.pid();
    let _ = rt.spawn(async move |ctx: Context| ctx.send(pid, 3_u64));
    assert_eq!(futures::executor::block_on(mailbox.receive()).unwrap(), 3);
    address.send(4).unwrap();
    drop(mailbox);
    let refused = address.send(5).unwrap_err();
    assert_eq!((refused.kind(), refused.into_message()), (SendErrorKind::NoProcess, 5));
    assert!(rt.send(pid, 6_u64).is_err());

    let (address, mut mailbox) = rt.mailbox::<u64>();
    address.send(1).unwrap();
    rt.kill(address.pid()).unwrap();
    assert!(matches!(futures::executor::block_on(mailbox.receive()), Err(Exit::Killed)));
}

#[derive(Clone, Default)]
struct Wire(Arc<Mutex<Vec<(Pid, u64)>>>);

impl Deliver for Wire {
    fn deliver(&self, package: Envelope) -> std::result::Result<(), SendError<Envelope>> {
        if !package.payload.is::<u64>() {
            return Err(SendError::new(SendErrorKind::WrongType { expected: "u64" }, package));
        }
        let Envelope { to, payload, .. } = package;
        self.0.lock().unwrap().push((to, payload.downcast().unwrap()));
        Ok(())
    }
}

/// 2.4a, 2.4b, 2.4c: a receiver can be attached under a new pid, or for all pids of another node. If the attached
/// receiver refuses a message, the message returns to the sender.
#[test]
fn a_receiver_can_be_attached_for_a_pid_and_for_a_node() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let wire = Wire::default();
    let pid = rt.attach(wire.clone()).unwrap();
    rt.send(pid, 7_u64).unwrap();
    let refused = rt.send(pid, "text").unwrap_err();
    assert_eq!((refused.kind(), refused.into_message()), (SendErrorKind::WrongType { expected: "u64" }, "text"));
    rt.kill(pid).unwrap();
    assert_eq!(rt.send(pid, 8_u64).unwrap_err().kind(), SendErrorKind::NoProcess);

    let far: Pid = "<4711-a.3.1>".parse().unwrap();
    assert!(rt.send(far, 9_u64).is_err());
    rt.attach_node(4711, wire.clone());
    rt.send(far, 9_u64).unwrap();
    // The host itself implements `Deliver`.
    let here = rt.spawn(echo);
    rt.host().deliver(Envelope::new(here.pid(), Payload::new(5_u64))).unwrap();
    assert_eq!(rt.block_on(here).unwrap(), 5);
    assert_eq!(*wire.0.lock().unwrap(), [(pid, 7), (far, 9)]);
}

/// 2.4c, 8.3b: the end of a runtime detaches the receivers that were attached for other nodes. Therefore two connected
/// runtimes do not keep each other alive, and a host of an ended runtime sends no message to another runtime.
#[test]
fn the_end_of_a_runtime_detaches_the_receivers_of_other_nodes() {
    struct Now;
    impl Command for Now {
        type Reply = ();
    }
    let held = Arc::new(());
    let runtime = |node| {
        let handler = Arc::clone(&held);
        Runtime::builder().workers(0).node(node).handle(move |_: Now| drop(handler.clone())).build().unwrap()
    };
    let (one, other) = (runtime(4711), runtime(4712));
    one.attach_node(4712, other.host().clone());
    other.attach_node(4711, one.host().clone());
    let (host, inbox) = (one.host().clone(), other.spawn(async |mut ctx: Context<u8>| ctx.receive().await));
    drop(one);
    assert_eq!(host.send(inbox.pid(), 1_u8).unwrap_err().kind(), SendErrorKind::ShutDown);
    // A receiver that is attached after the end of the runtime is dropped immediately.
    let wire = Wire::default();
    host.attach_node(4713, wire.clone());
    assert_eq!(Arc::strong_count(&wire.0), 1);
    drop((host, inbox, other));
    assert_eq!(Arc::strong_count(&held), 1);
}

/// 2.4b: when an attached receiver is killed, the receiver is dropped immediately, even before the deadline of an
/// earlier cancellation.
#[test]
fn an_attached_receiver_is_dropped_when_it_is_killed() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let wire = Wire::default();
    let pid = rt.attach(wire.clone()).unwrap();
    rt.cancel(pid, "a receiver cannot exit by itself", Duration::from_secs(3600)).unwrap();
    assert_eq!(Arc::strong_count(&wire.0), 2);
    rt.kill(pid).unwrap();
    assert_eq!(Arc::strong_count(&wire.0), 1);
}

/// A value whose destructor calls a function.
struct OnDrop(Option<Box<dyn FnOnce() + Send>>);

impl OnDrop {
    fn new(f: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(f)))
    }
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f();
        }
    }
}

/// 2.4b, 6.5a: if the runtime ends while a receiver is being attached, the receiver is detached again. In this test,
/// `attach` reserves a pid, and thereby drops the last reference to another host. The handler of this host owns a
/// value. When this value is dropped, its destructor shuts the runtime down.
#[test]
fn a_receiver_is_not_attached_while_the_runtime_ends() {
    struct Never;
    impl Command for Never {
        type Reply = ();
    }
    let rt = Runtime::builder().workers(0).build().unwrap();
    let host = rt.host().clone();
    let ends = Mutex::new(OnDrop::new(move || drop(host.shutdown(Duration::ZERO).now_or_never())));
    let builder = HostBuilder::new("other").handle(move |_: Never| {
        let _ = &ends;
    });
    let other = rt.add_host(builder).unwrap();
    rt.block_on(other.spawn(async |_: Context| {})).unwrap();
    drop(other);
    let wire = Wire::default();
    assert_eq!(rt.attach(wire.clone()), None);
    assert_eq!(Arc::strong_count(&wire.0), 1);
}

/// 6.2a: a mailbox that belongs to no process is killed and dropped at the same time. The mailbox has one exit, and a
/// monitor reports the same exit.
#[test]
fn a_mailbox_that_is_killed_and_dropped_at_the_same_time_has_one_exit() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    for is_killed in [false, true] {
        let (address, mailbox) = rt.mailbox::<OnDrop>();
        let pid = address.pid();
        let watcher = rt.spawn(async move |mut ctx: Context| {
            ctx.monitor(pid);
            match ctx.event().await {
                Event::Down { exit, .. } => Ok(exit),
                other => Err(Exit::failed(format!("{other:?}"))),
            }
        });
        rt.block_on(watcher.started()).unwrap();
        // The exit drops the unread message after the mailbox was closed, and before the exit is published.
        if is_killed {
            address.send(OnDrop::new(move || drop(mailbox))).unwrap();
            rt.kill(pid).unwrap();
        } else {
            let host = rt.host().clone();
            address.send(OnDrop::new(move || host.kill(pid).unwrap())).unwrap();
            drop(mailbox);
        }
        let (published, reported) = (rt.block_on(address.exited()), rt.block_on(watcher).unwrap());
        let expected = if is_killed { Exit::Killed } else { Exit::Normal };
        assert_eq!((published.to_string(), reported.to_string()), (expected.to_string(), expected.to_string()));
    }
}

enum Ask {
    Get(Reply<u64>),
    Keep(Reply<u64>),
    Drop(Reply<u64>),
    Panic(Reply<u64>),
    GiveBack(Reply<Option<Reply<u64>>>),
}

async fn server(mut ctx: Context<Ask>) -> Result<(), Exit> {
    let mut kept = None;
    loop {
        match ctx.receive().await? {
            Ask::Get(reply) => reply.send(1),
            Ask::Keep(reply) => kept = Some(reply),
            Ask::Drop(reply) => drop(reply),
            Ask::Panic(_reply) => panic!("asked to"),
            Ask::GiveBack(to) => to.send(kept.take()),
        }
    }
}

/// 2.6a, 2.6b, 2.6c, 2.6d: a call returns either the reply or an error. The error states the cause: the reply was
/// dropped, the callee exited, the callee did not exist, the message had the wrong type, or the call timed out.
#[test]
fn a_call_returns_the_reply_or_the_cause_of_its_failure() {
    timed(async |host, exact| {
        let server = host.spawn(server);
        assert_eq!(server.call(Ask::Get).await.unwrap(), 1);
        assert!(matches!(server.call(Ask::Drop).await, Err(CallError::Dropped)));
        let until = host.now() + Duration::from_millis(5);
        let timed = server.call(Ask::Keep).timeout(Duration::from_millis(5)).await;
        assert!(matches!(timed, Err(CallError::TimedOut)));
        exact.check(host.now(), until);
        // If a reply comes too late, `try_send` returns the reply to the callee. Late replies are counted.
        let late = server.call(Ask::GiveBack).await.unwrap().expect("kept");
        assert!(late.is_closed());
        let before = host.counters().late_replies;
        assert_eq!(late.try_send(3), Err(3));
        assert_eq!(host.counters().late_replies, before + 1);

        // The process keeps the reply of the call `held` in its state, and the message of the call `unread` is in the
        // mailbox of the process. The exit of the process completes both calls with an error.
        let held = server.call(Ask::Keep).start();
        let panics = server.call(Ask::Panic).start();
        let unread = server.call(Ask::Get).start();
        for call in [held, panics, unread] {
            match call.await {
                Err(
                    CallError::Died(Exit::Panicked(_)) | CallError::Dropped | CallError::Send(SendErrorKind::NoProcess),
                ) => {}
                other => panic!("{other:?}"),
            }
        }
        let address = server.address();
        assert!(server.await.is_err());
        assert!(matches!(address.call(Ask::Get).await, Err(CallError::Send(SendErrorKind::NoProcess))));
        let wrong = host.spawn(echo);
        let wrong = host.call(wrong.pid(), |reply: Reply<u8>| reply).await;
        assert!(matches!(wrong, Err(CallError::Send(SendErrorKind::WrongType { expected: "u64" }))));
    });
}

/// 1.4a, 2.6c: a process that exits while it holds a `Reply` completes the call with its exit. The test covers a body,
/// a server and a hand-written process. The local variables of a body are dropped before the exit of the process is
/// known.
#[test]
fn the_caller_gets_the_exit_of_each_kind_of_process_that_holds_the_reply() {
    type Holds = Reply<u64>;
    #[derive(Clone, Copy)]
    enum How {
        Fail,
        Finish,
        Panic,
    }
    struct Keeper(How, Option<Holds>);
    impl Keeper {
        fn end(&mut self, reply: Holds) -> Result<Next<()>, Exit> {
            self.1 = Some(reply);
            match self.0 {
                How::Fail => Err(Exit::failed("planned")),
                How::Finish => Ok(Next::Done(())),
                How::Panic => std::panic::resume_unwind(Box::new("planned")),
            }
        }
    }
    impl Server for Keeper {
        type Message = Holds;
        type Output = ();
        async fn handle(&mut self, reply: Holds, _: &mut Context<Holds>) -> Result<Next<()>, Exit> {
            self.end(reply)
        }
    }
    impl Process for Keeper {
        type Message = Holds;
        type Output = ();
        fn step(&mut self, events: Events<'_, Holds>, _: &mut StepOutput<'_, Holds>) -> Result<Next<()>, Exit> {
            for event in events {
                if let Event::Message(reply) = event {
                    return self.end(reply);
                }
            }
            Ok(Next::Wait)
        }
    }
    everywhere(async |host| {
        for how in [How::Fail, How::Finish, How::Panic] {
            let body = async move |mut ctx: Context<Holds>| {
                let reply = ctx.receive().await?;
                Keeper(how, None).end(reply).map(drop)
            };
            let body = host.spawn(body);
            let server = host.spawn(move |ctx| Keeper(how, None).serve(ctx));
            let process = host.spawn_process(Keeper(how, None));
            let by_body = body.call(|reply| reply).await;
            let by_server = server.call(|reply| reply).await;
            let by_process = process.call(|reply| reply).await;
            let exit = match how {
                How::Fail => Exit::failed("planned"),
                How::Finish => Exit::Normal,
                How::Panic => Exit::Panicked("planned".into()),
            };
            for answer in [by_body, by_server, by_process] {
                assert_eq!(answer, Err(CallError::Died(exit.clone())));
            }
            // The handles receive the exits. Otherwise the simulation would report unobserved failures.
            drop((body.await, server.await, process.await));
        }
        // After the cancellation, the second `receive` of the body returns an error, and the body returns this error.
        let holds = host.spawn(async |mut ctx: Context<Holds>| {
            let _held = ctx.receive().await?;
            ctx.receive().await.map(drop)
        });
        let call = holds.call(|reply| reply).start();
        while holds.address().mailbox_len() != 0
            || host.process_details(holds.pid()).is_none_or(|it| it.info.steps == 0)
        {
            step_aside().await;
        }
        host.cancel(holds.pid(), Reason::REQUESTED, Duration::MAX).unwrap();
        assert_eq!(call.await, Err(CallError::Died(Exit::Cancelled(Reason::REQUESTED))));
    });
}

/// 2.6b: a step drops a `Reply`, and the process continues. The caller gets `Dropped` at the end of the step.
#[test]
fn a_step_that_drops_the_reply_answers_the_call_at_the_end_of_the_step() {
    everywhere(async |host| {
        let drops = host.spawn(async |mut ctx: Context<Reply<u64>>| {
            drop(ctx.receive().await?);
            ctx.receive().await.map(drop)
        });
        assert_eq!(drops.call(|reply| reply).await, Err(CallError::Dropped));
        assert!(!drops.is_finished());
        drops.abort();
        assert_eq!(drops.await, Err(Exit::Killed));
    });
}

/// 2.6b: a step drops a `Reply`, and then ends a process of another runtime. The exit of this other process does not
/// answer the call.
#[test]
fn the_exit_of_a_nested_runtime_does_not_answer_a_call_to_the_outer_process() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let drops = rt.spawn(async |mut ctx: Context<Reply<u64>>| {
        drop(ctx.receive().await?);
        let inner = Runtime::builder().workers(0).build().unwrap();
        drop(inner.spawn(async |mut ctx: Context<u8>| ctx.receive().await.map(drop)));
        drop(inner);
        let simulation = Simulation::new(1);
        drop(simulation.host().spawn(async |mut ctx: Context<u8>| ctx.receive().await.map(drop)));
        drop(simulation);
        ctx.receive().await.map(drop)
    });
    assert_eq!(rt.block_on(drops.call(|reply| reply)), Err(CallError::Dropped));
}

/// 2.6b: a simulation runs inside a step of a process. The future of the simulation drops a `Reply`, and the caller in
/// the simulation gets `Dropped` during this step.
#[test]
fn a_reply_that_is_dropped_in_a_simulation_inside_a_step_answers_the_call() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let outer = rt.spawn(async |_: Context| {
        let mut simulation = Simulation::new(1);
        let host = simulation.host().clone();
        let answer = simulation.run(async move {
            let (address, mut mailbox) = host.mailbox::<Reply<u64>>();
            let calls = host.spawn(async move |_: Context| Ok::<_, Exit>(address.call(|reply| reply).await));
            drop(mailbox.receive().await.unwrap());
            calls.await.unwrap()
        });
        Ok::<_, Exit>(answer)
    });
    assert_eq!(rt.block_on(outer).unwrap(), Err(CallError::Dropped));
}

/// 2.6b: the policy of a full mailbox drops a message with a `Reply` in the last step of the sender. The caller does
/// not get the exit of the sender.
#[test]
fn a_reply_that_a_policy_drops_does_not_report_the_exit_of_the_sender() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let (full, mut mailbox) = rt.mailbox_with::<Reply<u64>>(MailboxCapacity::DropOldest(1));
    let mut call = full.call(|reply| reply).start();
    let sends = rt.spawn(async move |_: Context| {
        drop(full.call(|reply| reply).start());
        Err::<(), _>(Exit::failed("planned"))
    });
    drop(rt.block_on(sends));
    let answer = rt.block_on(&mut call);
    assert_eq!((answer, mailbox.try_receive().is_some()), (Err(CallError::Dropped), true));
}

/// 2.6b: a step drops a `Reply` and then blocks its thread. The caller is notified before the step blocks.
#[test]
fn a_step_that_drops_the_reply_notifies_the_caller_before_the_step_blocks() {
    within(20, || {
        let rt = Arc::new(Runtime::builder().workers(2).build().unwrap());
        for kind in 0..3 {
            let inner = Arc::clone(&rt);
            let (told, tells) = std::sync::mpsc::channel();
            let drops = rt.spawn(async move |mut ctx: Context<Reply<u64>>| {
                let reply = ctx.receive().await?;
                match kind {
                    0 => {
                        drop(reply);
                        block_in_place(|| tells.recv().unwrap());
                    }
                    1 => {
                        drop(reply);
                        inner.block_on(async { tells.recv().unwrap() });
                    }
                    _ => inner.block_on(async {
                        drop(reply);
                        tells.recv().unwrap()
                    }),
                }
                Ok::<_, Exit>(())
            });
            // In `Runtime::block_on`, this thread could run the step that blocks.
            let answer = futures::executor::block_on(drops.call(|reply| reply));
            assert_eq!(answer, Err(CallError::Dropped));
            told.send(()).unwrap();
            futures::executor::block_on(drops).unwrap();
        }
    });
}

/// 2.6a: an answer wakes the task that polled the call last. The task may have polled the call with the waker of its
/// process, with the waker of a combinator, or with the waker of another process.
#[test]
fn an_answer_wakes_the_last_task_that_polled_the_call() {
    within(20, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let (to_outside, mut asked) = rt.mailbox::<Reply<u64>>();
        let settle = || (0..10).for_each(|_| rt.block_on(step_aside()));
        for by_context in [false, true] {
            for aside in [false, true] {
                let heir = rt.spawn(async |mut ctx: Context<Call<u64>>| -> Result<u64, BoxError> {
                    let call = ctx.receive().await?;
                    Ok(call.await?)
                });
                let (to, heir_at) = (to_outside.clone(), heir.address());
                let asker = rt.spawn(async move |ctx: Context| -> Result<Option<u64>, BoxError> {
                    let mut call = if by_context { ctx.call(&to, |reply| reply) } else { to.call(|reply| reply) };
                    // The first poll is in the first turn of the process, with the waker of the process. The second
                    // poll is in a later turn.
                    assert!(futures::poll!(&mut call).is_pending());
                    ctx.yield_now().await;
                    assert!(futures::poll!(&mut call).is_pending());
                    if aside {
                        let mut aside = FuturesUnordered::from_iter([call]);
                        return Ok(Some(aside.next().await.expect("one")?));
                    }
                    heir_at.send(call)?;
                    Ok(None)
                });
                settle();
                rt.block_on(asked.receive()).unwrap().send(7);
                let answered = rt.block_on(asker).unwrap();
                assert_eq!(answered, aside.then_some(7));
                if !aside {
                    assert_eq!(rt.block_on(heir).unwrap(), 7);
                }
            }
        }
    });
}

/// 2.6a: an answer wakes the process only if the process has polled the call. The test has two cases: a call that was
/// started but not polled, and a call that was dropped before it was sent. In both cases, the call causes no further
/// poll of the process.
#[test]
fn a_call_that_was_not_polled_wakes_no_process() {
    within(20, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let settle = || (0..10).for_each(|_| rt.block_on(step_aside()));
        for starts in [false, true] {
            let (to, mut asked) = rt.mailbox::<Reply<u64>>();
            let (go, mut gate) = futures::channel::oneshot::channel::<()>();
            let asker = rt.spawn(async move |_: Context| {
                let call = to.call(|reply| reply);
                let _started = starts.then(|| call.start());
                let mut polls = 0;
                let opened = std::future::poll_fn(|cx| {
                    polls += 1;
                    gate.poll_unpin(cx)
                });
                opened.await.expect("the test opens the gate");
                Ok::<u32, Exit>(polls)
            });
            settle();
            if starts {
                rt.block_on(asked.receive()).unwrap().send(7);
                settle();
            }
            go.send(()).expect("the process waits");
            assert_eq!(rt.block_on(asker).unwrap(), 2);
        }
    });
}

/// 2.6d: the function that makes the request may store the `Reply` instead of sending the `Reply`. This `Reply` is
/// closed if the call is dropped before the request is sent, or if the request is refused.
#[test]
fn a_reply_is_closed_if_its_call_was_not_sent() {
    timed(async |host, _| {
        let (to, asked) = host.mailbox::<u64>();
        let mut kept = None;
        let call = to.call(|reply: Reply<u64>| {
            kept = Some(reply);
            0
        });
        let reply = kept.take().expect("the request was made");
        assert!(!reply.is_closed());
        drop(call);
        reply.closed().await;
        assert_eq!(reply.try_send(1), Err(1));

        drop(asked);
        let call = to.call(|reply: Reply<u64>| {
            kept = Some(reply);
            0
        });
        assert!(matches!(call.await, Err(CallError::Send(SendErrorKind::NoProcess))));
        let reply = kept.take().expect("the request was made");
        reply.closed().await;
        assert_eq!(reply.try_send(1), Err(1));
    });
}

/// 2.6a, 2.6d: a callee polls `Reply::closed` while its caller still waits, and then answers. The answer wakes the
/// caller.
#[test]
fn a_callee_that_has_watched_its_caller_can_answer() {
    timed(async |host, _| {
        let (to, mut asked) = host.mailbox::<Reply<u64>>();
        let caller = host.spawn(async move |_: Context| Ok::<_, Exit>(to.call(|reply| reply).await?));
        let reply = asked.receive().await.unwrap();
        assert!(reply.closed().now_or_never().is_none());
        reply.send(7);
        assert_eq!(caller.await.unwrap(), 7);
    });
}

/// 2.6d: a callee polls many futures of the method `closed` with different wakers, and drops these futures. The call
/// keeps no waker of a dropped future. The exit of the caller wakes a future that was not dropped.
#[test]
fn a_dropped_future_of_the_method_closed_leaves_no_waker_in_the_call() {
    struct Counter(AtomicU64);
    impl std::task::Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    fn counter() -> Arc<Counter> {
        Arc::new(Counter(AtomicU64::new(0)))
    }
    timed(async |host, _| {
        let (to, mut asked) = host.mailbox::<Reply<u64>>();
        let caller = host.spawn(async move |_: Context| Ok::<_, Exit>(to.call(|reply| reply).await?));
        let reply = asked.receive().await.unwrap();
        let kept = counter();
        let mut waits = std::pin::pin!(reply.closed());
        assert!(waits.poll_unpin(&mut std::task::Context::from_waker(&Arc::clone(&kept).into())).is_pending());
        let mut wakers = Vec::new();
        for _ in 0..1_000 {
            let mut closed = Box::pin(reply.closed());
            for _ in 0..2 {
                let counter = counter();
                wakers.push(Arc::downgrade(&counter));
                assert!(closed.poll_unpin(&mut std::task::Context::from_waker(&counter.into())).is_pending());
            }
            assert!(wakers.iter().filter(|waker| waker.strong_count() != 0).count() <= 1);
        }
        assert_eq!(wakers.iter().filter(|waker| waker.strong_count() != 0).count(), 0);
        caller.abort();
        _ = caller.await;
        while kept.0.load(SeqCst) == 0 {
            step_aside().await;
        }
        waits.await;
        assert_eq!((kept.0.load(SeqCst), Arc::strong_count(&kept)), (1, 1));
    });
}

/// 2.6d: a refused call does not wake its caller. The callee may be an address, a pid or a name.
#[test]
fn a_refused_call_does_not_wake_its_caller() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let callee = rt.spawn(async |_: Context<Reply<u64>>| Ok::<_, Exit>(()));
    let (address, pid) = (callee.address(), callee.pid());
    rt.block_on(callee).unwrap();
    for way in ["address", "pid", "name"] {
        let (address, before) = (address.clone(), rt.counters().steps);
        let caller = rt.spawn(async move |ctx: Context| -> Result<(), Exit> {
            let request = |reply: Reply<u64>| reply;
            let call = match way {
                "address" => address.call(request),
                "pid" => ctx.call(pid, request),
                _ => ctx.call("unknown", request),
            };
            assert!(matches!(call.await, Err(CallError::Send(_))));
            std::future::pending().await
        });
        (0..10).for_each(|_| rt.block_on(step_aside()));
        assert_eq!(rt.counters().steps - before, 1, "{way}");
        caller.abort();
    }
}

/// 2.6b, 2.6c: when the process that holds a reply is killed, the caller receives the exit reason.
#[test]
fn callers_receive_the_exit_reason_of_a_killed_callee() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let server = rt.spawn(server);
    let held = server.call(Ask::Keep).start();
    let unread = server.call(Ask::Get);
    rt.block_on(server.call(Ask::Get)).unwrap();
    let unread = unread.start();
    server.abort();
    assert!(matches!(rt.block_on(held), Err(CallError::Died(Exit::Killed))));
    assert!(matches!(rt.block_on(unread), Err(CallError::Died(Exit::Killed))));
}

/// 2.6a, 2.6b: a hand-written process can make a call. The call has a tag. Either a reply or a refusal arrives as the
/// completion of this tag.
#[test]
fn a_hand_written_process_can_make_a_call() {
    struct Asks {
        server: Address<Ask>,
        asked: Option<Tag<BuiltinCommand<u64>>>,
    }
    impl Process for Asks {
        type Message = ();
        type Output = Result<u64, Failure>;
        fn step(
            &mut self,
            events: Events<'_, ()>,
            out: &mut StepOutput<'_, ()>,
        ) -> Result<Next<Result<u64, Failure>>, Exit> {
            for event in events {
                if let Event::Completed(done) = event {
                    let tag = self.asked.take().expect("asked");
                    return Ok(Next::Done(done.take(tag).expect("the only one")));
                }
            }
            if self.asked.is_none() {
                let server = self.server.clone();
                self.asked = Some(out.call(&server, Ask::Get));
            }
            Ok(Next::Wait)
        }
    }
    let rt = Runtime::builder().workers(0).build().unwrap();
    let server = rt.spawn(server);
    let asks = rt.spawn_process(Asks { server: server.address(), asked: None });
    assert_eq!(rt.block_on(asks).unwrap().unwrap(), 1);
    let dead = server.address();
    server.abort();
    let _ = rt.block_on(server);
    let asks = rt.spawn_process(Asks { server: dead, asked: None });
    let failure = rt.block_on(asks).unwrap().unwrap_err();
    assert!(matches!(failure.error::<CallError>(), Some(CallError::Send(SendErrorKind::NoProcess))), "{failure:?}");
}

/// 2.6b, 1.4a: if a called process fails with a `Failure`, a hand-written caller receives a `CallError` that contains
/// the exit of the called process. If the handler of a command makes the call, the command fails with the same error.
#[test]
fn a_caller_does_not_take_over_the_failure_of_the_called_process() {
    struct Asks(Address<Reply<u64>>, Option<Tag<BuiltinCommand<u64>>>);
    impl Process for Asks {
        type Message = ();
        type Output = Result<u64, Failure>;
        fn step(
            &mut self,
            events: Events<'_, ()>,
            out: &mut StepOutput<'_, ()>,
        ) -> Result<Next<Result<u64, Failure>>, Exit> {
            for event in events {
                if let Event::Completed(done) = event {
                    let tag = self.1.take().expect("asked");
                    return Ok(Next::Done(done.take(tag).expect("the only one")));
                }
            }
            self.1 = Some(out.call(&self.0, |reply| reply));
            Ok(Next::Wait)
        }
    }
    struct AskServer(Address<Reply<u64>>);
    impl Command for AskServer {
        type Reply = u64;
    }
    struct Fails(Option<Reply<u64>>);
    impl Process for Fails {
        type Message = Reply<u64>;
        type Output = ();
        fn step(
            &mut self,
            mut events: Events<'_, Reply<u64>>,
            _: &mut StepOutput<'_, Reply<u64>>,
        ) -> Result<Next<()>, Exit> {
            match events.next() {
                Some(Event::Message(reply)) => {
                    self.0 = Some(reply);
                    Err(Failure::TimedOut.into())
                }
                _ => Ok(Next::Wait),
            }
        }
    }
    let builder = Runtime::builder().workers(0).on_crash(|_| ());
    let rt = builder.handle_async(|ask: AskServer| async move { ask.0.call(|reply| reply).await }).build().unwrap();
    let callee = rt.spawn_process(Fails(None)).address();
    let by_hand = rt.block_on(rt.spawn_process(Asks(callee, None))).unwrap().unwrap_err();
    let callee = rt.spawn_process(Fails(None)).address();
    let body = async move |ctx: Context| Ok::<_, Exit>(ctx.perform(AskServer(callee)).await);
    let handled = rt.block_on(rt.spawn(body)).unwrap().unwrap_err();
    let died = CallError::Died(Exit::failed(Failure::TimedOut));
    for failure in [by_hand, handled] {
        assert_eq!(failure.error::<CallError>(), Some(&died), "{failure:?}");
    }
}

/// 2.3i: the messages that `receive_where` skips keep their order, even if all messages arrive at the same time.
#[test]
fn a_selective_receive_keeps_the_order_of_the_skipped_messages() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let body = async |mut ctx: Context<u32>| -> Result<Vec<u32>, Exit> {
        let mut read = vec![ctx.receive_where(|n| if n == 4 { Ok(n) } else { Err(n) }).await?];
        read.push(ctx.receive_where(|n| if n == 7 { Ok(n) } else { Err(n) }).await?);
        while let Some(n) = ctx.try_receive() {
            read.push(n);
        }
        Ok(read)
    };
    let handle = rt.spawn(body);
    for n in 0..6 {
        handle.send(n).unwrap();
    }
    let more = handle.address();
    let _ = rt.spawn(async move |ctx: Context| {
        ctx.yield_now().await;
        for n in 6..9 {
            more.send(n).unwrap();
        }
    });
    assert_eq!(rt.block_on(handle).unwrap(), [4, 7, 0, 1, 2, 3, 5, 6, 8]);
}

/// 2.3d: a sink forwards all messages to its address, in order. If the receiver no longer accepts messages, the sink
/// returns the message.
#[test]
fn a_sink_returns_a_refused_message() {
    use futures::{SinkExt, StreamExt, stream};
    let rt = Runtime::builder().workers(0).build().unwrap();
    let (address, mut mailbox) = rt.mailbox::<String>();
    let mut sink = address.sink();
    rt.block_on(async {
        let all = ["a", "b"].map(|text| Ok::<_, SendError<String>>(text.to_owned()));
        stream::iter(all).forward(sink.clone()).await.unwrap();
        sink.feed("c".into()).await.unwrap();
        sink.close().await.unwrap();
    });
    let came: Vec<String> = std::iter::from_fn(|| mailbox.try_receive()).collect();
    assert_eq!(came, ["a", "b", "c"]);
    drop(mailbox);
    let refused = rt.block_on(sink.send("d".into())).unwrap_err();
    assert_eq!((refused.kind(), refused.into_message().as_str()), (SendErrorKind::NoProcess, "d"));
    fn shared<T: Send + Sync + Unpin + 'static>(_: &T) {}
    shared(&sink);
}

fn drain<M: Send + 'static>(mailbox: &mut Mailbox<M>) -> Vec<M> {
    std::iter::from_fn(|| mailbox.try_receive()).collect()
}

/// 2.2a, 2.3a, 2.3b, 2.3c: a mailbox with the bound n accepts exactly n messages. A bound of 0 has the same effect as a
/// bound of 1. A full mailbox applies its overflow policy. If the policy drops a message, the message becomes a dead
/// letter and is counted.
#[test]
fn mailbox_bounds_are_exact_and_policies_are_applied() {
    use MailboxCapacity::{DropNewest, DropOldest, Reject, Unbounded};
    let table: [(MailboxCapacity, &[u32], &[u32], usize); 6] = [
        (Unbounded, &[0, 1, 2, 3, 4], &[], 0),
        (Reject(3), &[0, 1, 2], &[], 2),
        (Reject(0), &[0], &[], 4),
        (DropOldest(2), &[3, 4], &[0, 1, 2], 0),
        (DropOldest(0), &[4], &[0, 1, 2, 3], 0),
        (DropNewest(4), &[0, 1, 2, 3], &[4], 0),
    ];
    for (bound, read, dropped, refused) in table {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let mut letters = rt.dead_letters();
        let (address, mut mailbox) = rt.mailbox_with::<u32>(bound);
        let mut back = Vec::new();
        for n in 0..5 {
            if let Err(full) = address.send(n) {
                assert_eq!(full.kind(), SendErrorKind::Full);
                back.push(full.into_message());
            }
        }
        assert_eq!(
            (address.peak_mailbox_len(), rt.peak_mailbox_len(address.pid())),
            (read.len(), Some(read.len())),
            "{bound:?}"
        );
        assert_eq!((drain(&mut mailbox), back.len()), (read.to_vec(), refused), "{bound:?}");
        let dead: Vec<u32> = drain(&mut letters).into_iter().map(|dead| dead.payload.downcast().unwrap()).collect();
        assert_eq!(dead, dropped, "{bound:?}");
        let counted = rt.counters();
        assert_eq!((counted.dropped_by_policy, counted.dead_letters), (dropped.len() as u64, dropped.len() as u64));
        assert_eq!(counted.refused, refused as u64);
        // The mailbox is empty again, so it accepts a message.
        address.send(9).unwrap();
        assert_eq!(mailbox.try_receive(), Some(9));
        assert!(address.peak_mailbox_len() >= read.len());
    }
}

/// 2.3f, 2.3g, 2.3h: only messages count against the bound. A process with a full mailbox still receives the answer of
/// its command. A full mailbox also accepts a cancellation. The process receives the cancellation in order with the
/// messages.
#[test]
fn only_messages_count_against_the_bound_of_a_mailbox() {
    struct Echo(u8);
    impl Command for Echo {
        type Reply = u8;
    }
    let rt = Runtime::builder().workers(0).handle(|c: Echo| c.0).build().unwrap();
    let body = async |mut ctx: Context<u8>| -> Result<Vec<String>, Exit> {
        let answer = ctx.perform(Echo(3)).await?;
        let mut seen = vec![answer.to_string()];
        while !note(&mut seen, ctx.event().await) {}
        Ok(seen)
    };
    fn note(seen: &mut Vec<String>, event: Event<u8>) -> bool {
        seen.push(match event {
            Event::Message(message) => message.to_string(),
            Event::Cancel { reason, .. } => reason.as_str().to_owned(),
            other => panic!("{other:?}"),
        });
        seen.len() == 4
    }
    let handle = rt.process().mailbox_capacity(MailboxCapacity::Reject(2)).spawn(body).unwrap();
    handle.send(1).unwrap();
    rt.cancel(handle.pid(), "enough", Duration::from_secs(9)).unwrap();
    handle.send(2).unwrap();
    assert_eq!(handle.send(3).unwrap_err().kind(), SendErrorKind::Full);
    assert_eq!(rt.block_on(handle).unwrap(), ["3", "1", "enough", "2"]);
}

/// 2.3d: if the mailbox has a free place, `send_wait` completes immediately. If the mailbox is full, the sender waits.
/// Waiting senders get free places in the order in which they began to wait.
#[test]
fn senders_that_wait_for_free_space_proceed_in_order() {
    use futures::FutureExt;
    let rt = Runtime::builder().workers(0).build().unwrap();
    for bound in [MailboxCapacity::Reject(2), MailboxCapacity::DropOldest(2), MailboxCapacity::DropNewest(2)] {
        let (address, mut mailbox) = rt.mailbox_with::<u32>(bound);
        let sent: Vec<bool> = (0..2).map(|n| address.send_wait(n).now_or_never().is_some()).collect();
        assert_eq!(sent, [true, true]);
        let mut waiting: Vec<_> = (2..6_u32).map(|n| rt.send_wait(address.pid(), n)).collect();
        assert!(waiting.iter_mut().all(|wait| wait.now_or_never().is_none()));
        // The third waiting sender drops its future, so its message is never sent.
        drop(waiting.remove(2));
        assert_eq!(mailbox.try_receive(), Some(0));
        assert!((&mut waiting[0]).now_or_never().unwrap().is_ok());
        assert!((&mut waiting[1]).now_or_never().is_none());
        assert_eq!(drain(&mut mailbox), [1, 2, 3, 5]);
        for mut wait in waiting.drain(1..) {
            assert!(!futures::future::FusedFuture::is_terminated(&wait));
            assert!((&mut wait).now_or_never().unwrap().is_ok());
            assert!(futures::future::FusedFuture::is_terminated(&wait));
            assert!((&mut wait).now_or_never().is_none());
        }
        assert_eq!(address.peak_mailbox_len(), 2);
    }
    assert_eq!(rt.counters().dropped_by_policy, 0);
    assert_eq!(rt.counters().messages, 3 * 5);
}

/// 2.3d: a hand-written process takes all messages out of a full mailbox in one step. After this step, waiting senders
/// proceed until the mailbox is full again. The sender that has waited longest proceeds first.
#[test]
fn waiting_senders_proceed_when_a_step_empties_the_mailbox() {
    use futures::FutureExt;
    const BOUND: usize = 3;
    type Waiting = Arc<Mutex<Vec<SendWait<u32>>>>;
    /// Records two values for each step that receives messages: the messages, and the number of waiting senders that
    /// have proceeded.
    struct Drains(Waiting, Arc<Mutex<Vec<(Vec<u32>, usize)>>>);
    impl Process for Drains {
        type Message = u32;
        type Output = ();
        fn step(&mut self, events: Events<'_, u32>, _: &mut StepOutput<'_, u32>) -> Result<Next<()>, Exit> {
            let messages = events.filter_map(|event| if let Event::Message(n) = event { Some(n) } else { None });
            let messages: Vec<u32> = messages.collect();
            if !messages.is_empty() {
                let mut waiting = self.0.lock().unwrap();
                let before = waiting.len();
                waiting.retain_mut(|wait| wait.now_or_never().is_none());
                self.1.lock().unwrap().push((messages, before - waiting.len()));
            }
            Ok(Next::Wait)
        }
    }
    for bound in
        [MailboxCapacity::Reject(BOUND), MailboxCapacity::DropOldest(BOUND), MailboxCapacity::DropNewest(BOUND)]
    {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let (waiting, steps) = (Waiting::default(), Arc::default());
        let drains =
            rt.process().mailbox_capacity(bound).spawn_process(Drains(waiting.clone(), Arc::clone(&steps))).unwrap();
        let address = drains.address();
        (0..3).for_each(|n| address.send(n).unwrap());
        for n in 3..10 {
            let mut wait = address.send_wait(n);
            assert!((&mut wait).now_or_never().is_none());
            waiting.lock().unwrap().push(wait);
        }
        (0..20).for_each(|_| rt.block_on(step_aside()));
        let steps = std::mem::take(&mut *steps.lock().unwrap());
        let expected: [(Vec<u32>, usize); 4] =
            [(vec![0, 1, 2], 3), (vec![3, 4, 5], 3), (vec![6, 7, 8], 1), (vec![9], 0)];
        assert_eq!(steps, expected, "{bound:?}");
        assert_eq!(address.peak_mailbox_len(), BOUND);
    }
}

/// 2.3d: if the receiver exits while a sender waits for a free place, the sender gets its message back. If a sender
/// begins to wait after the exit, the sender gets its message back immediately. If the option
/// `Limits::mailbox_capacity` is 0, no place ever becomes free, so the sender also gets its message back immediately.
/// Untyped messages are returned too.
#[test]
fn a_send_that_waits_for_free_space_fails_when_the_receiver_exits() {
    use futures::FutureExt;
    let rt = Runtime::builder().workers(0).build().unwrap();
    let full = rt
        .process()
        .mailbox_capacity(MailboxCapacity::Reject(1))
        .name("full")
        .spawn(async |ctx: Context| drop(ctx.cancelled().await));
    let full = full.unwrap();
    rt.send(full.pid(), 0_u8).unwrap();
    let text = || String::from("back");
    let mut waiting = [rt.send_wait(full.pid(), text()), rt.send_wait("full", text())];
    assert!(waiting.iter_mut().all(|wait| wait.now_or_never().is_none()));
    let ends = full.exited();
    full.abort();
    assert!(matches!(rt.block_on(ends), Exit::Killed));
    for wait in waiting {
        let refused = rt.block_on(wait).unwrap_err();
        assert_eq!((refused.kind(), refused.into_message()), (SendErrorKind::NoProcess, text()));
    }
    for to in [rt.send_wait(full.pid(), text()), rt.send_wait("full", text())] {
        assert_eq!(rt.block_on(to).unwrap_err().kind(), SendErrorKind::NoProcess);
    }
    let mute = rt
        .process()
        .limits(Limits::new().mailbox_capacity(0))
        .spawn(async |ctx: Context<String>| drop(ctx.cancelled().await));
    let mute = mute.unwrap();
    assert_eq!(rt.block_on(mute.send_wait(text())).unwrap_err().kind(), SendErrorKind::Full);
    let wrong = rt.block_on(rt.send_wait(mute.pid(), 5_u8)).unwrap_err();
    assert!(matches!(wrong.kind(), SendErrorKind::WrongType { .. }));
    assert_eq!(rt.counters().refused, 6);
    // When the runtime is dropped, a waiting send completes and returns its message.
    let (address, mailbox) = rt.mailbox_with::<u8>(MailboxCapacity::Reject(1));
    address.send(1).unwrap();
    let mut wait = address.send_wait(2);
    assert!((&mut wait).now_or_never().is_none());
    drop(rt);
    assert_eq!(futures::executor::block_on(wait).unwrap_err().into_message(), 2);
    drop(mailbox);
}

/// 2.3a, 2.3d: several senders fill a small mailbox. Each message arrives, and the mailbox never contains more messages
/// than its bound. No sender waits forever. Three kinds of receiver are tested: a body, a body that receives
/// selectively, and a hand-written process. The messages of one sender arrive in order, except in the body that
/// receives selectively.
#[test]
fn free_space_in_a_mailbox_is_neither_lost_nor_taken_twice() {
    const SENDERS: u32 = 6;
    const EACH: u32 = 800;
    struct Raw(Vec<(u32, u32)>);
    impl Process for Raw {
        type Message = (u32, u32);
        type Output = Vec<(u32, u32)>;
        fn step(
            &mut self,
            events: Events<'_, (u32, u32)>,
            _: &mut StepOutput<'_, (u32, u32)>,
        ) -> Result<Next<Self::Output>, Exit> {
            for event in events {
                if let Event::Message(message) = event {
                    self.0.push(message);
                }
            }
            let all = self.0.len() == (SENDERS * EACH) as usize;
            Ok(if all { Next::Done(std::mem::take(&mut self.0)) } else { Next::Wait })
        }
    }
    let body = async |mut ctx: Context<(u32, u32)>| -> Result<Vec<(u32, u32)>, Exit> {
        let mut read = Vec::new();
        while read.len() < (SENDERS * EACH) as usize {
            read.push(ctx.receive().await?);
        }
        Ok(read)
    };
    let selective = async |mut ctx: Context<(u32, u32)>| -> Result<Vec<(u32, u32)>, Exit> {
        let (mut read, total) = (Vec::new(), (SENDERS * EACH) as usize);
        while read.len() < total {
            // While more than ten messages are outstanding, every second call of `receive_where` skips one message.
            let mut pass = read.len() % 2 == 1 && read.len() + 10 < total;
            let pick = |m| if std::mem::take(&mut pass) { Err(m) } else { Ok(m) };
            read.push(ctx.receive_where(pick).await?);
        }
        Ok(read)
    };
    for bound in [1, 3] {
        // A skipped message counts against the bound. If the bound were 1, no message could arrive after a skipped
        // message.
        for which in (0..3).filter(|which| (bound, *which) != (1, 1)) {
            let (read, high) = on_workers(async move |host| {
                let to = host.process().mailbox_capacity(MailboxCapacity::Reject(bound));
                let reader = match which {
                    0 => to.spawn(body).unwrap(),
                    1 => to.spawn(async move |ctx: Context<(u32, u32)>| selective(ctx).await).unwrap(),
                    _ => to.spawn_process(Raw(Vec::new())).unwrap(),
                };
                for sender in 0..SENDERS {
                    let to = reader.address();
                    let _ = host.spawn(async move |ctx: Context| -> Result<(), Exit> {
                        for n in 0..EACH {
                            to.send_wait((sender, n)).await?;
                            // The future is dropped before its first poll, so nothing is sent.
                            drop(ctx.send_wait(&to, (SENDERS, 0)));
                        }
                        Ok(())
                    });
                }
                let address = reader.address();
                (reader.await.unwrap(), address.peak_mailbox_len())
            });
            assert_eq!(high, bound);
            for sender in 0..SENDERS {
                let of: Vec<u32> = read.iter().filter(|(from, _)| *from == sender).map(|(_, n)| *n).collect();
                let mut sorted = of.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..EACH).collect::<Vec<_>>());
                assert!(which == 1 || of == sorted, "out of order");
            }
        }
    }
}

/// 2.3d: the receiver exits while senders wait, and some senders drop their send future. Each message is read, becomes
/// a dead letter, or returns to its sender. No sender waits forever.
#[test]
fn no_message_is_lost_when_the_receiver_exits_while_senders_wait() {
    const ROUNDS: u64 = 1_500;
    everywhere(async |host| {
        let mut letters = host.dead_letters();
        let read = Arc::new(AtomicU64::new(0));
        let mut sent = 0;
        for round in 0..ROUNDS {
            let reads = Arc::clone(&read);
            let reader = host.process().mailbox_capacity(MailboxCapacity::Reject(1)).spawn(
                async move |mut ctx: Context<u64>| {
                    for _ in 0..round % 5 {
                        ctx.receive().await?;
                        reads.fetch_add(1, SeqCst);
                    }
                    Ok::<_, Exit>(())
                },
            );
            let reader = reader.unwrap();
            let senders: Vec<_> = (0..4)
                .map(|sender| {
                    let to = reader.address();
                    host.spawn(async move |ctx: Context| {
                        let mut sent = 0;
                        loop {
                            let wait = to.send_wait(sender);
                            let outcome = if (sent + sender) % 3 == 1 {
                                // After some turns, the sender drops the future of the send, unless the send has
                                // already completed.
                                let turns = async {
                                    for _ in 0..=sender {
                                        ctx.yield_now().await;
                                    }
                                };
                                futures::pin_mut!(turns);
                                match futures::future::select(wait, turns).await {
                                    Either::Left((outcome, _)) => outcome,
                                    Either::Right(_) => continue,
                                }
                            } else {
                                wait.await
                            };
                            match outcome {
                                Ok(()) => sent += 1,
                                Err(refused) => {
                                    assert_eq!(
                                        (refused.kind(), refused.into_message()),
                                        (SendErrorKind::NoProcess, sender)
                                    );
                                    return Ok::<_, Exit>(sent);
                                }
                            }
                        }
                    })
                })
                .collect();
            if round % 2 == 0 {
                reader.abort();
            }
            let _ = reader.await;
            for sender in senders {
                sent += sender.await.unwrap();
            }
        }
        let dead = drain(&mut letters).len() as u64;
        let (read, counted) = (read.load(SeqCst), host.counters());
        // The counter `messages` counts each dead letter twice: as a message to its receiver, and as a message to
        // `letters`. A message may be accepted before its sender drops the future. The sender does not count this
        // message, so `sent` may be less than the number of read messages and dead letters.
        assert_eq!(counted.messages, read + 2 * dead);
        assert!(sent <= read + dead, "{sent} {read} {dead}");
        assert_eq!((counted.dead_letters, counted.panics), (dead, 0));
    });
}

/// 2.3c, 2.3i: a message that a selective receive skips still counts against the bound and keeps its position. The
/// filter examines each message only once. The overflow policy may drop a message that the filter skips, even while the
/// filter still examines this message.
#[test]
fn a_selective_receive_examines_each_message_once() {
    for bound in [MailboxCapacity::Unbounded, MailboxCapacity::Reject(40), MailboxCapacity::DropOldest(40)] {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let handle = rt.process().mailbox_capacity(bound).spawn(async |mut ctx: Context<u32>| -> Result<_, Exit> {
            let mut looks = Vec::new();
            let picked = ctx.receive_where(|n| {
                looks.push(n);
                if n >= 30 { Ok(n) } else { Err(n) }
            });
            let picked = picked.await?;
            let rest = drain(ctx.mailbox());
            Ok((looks, picked, rest))
        });
        let handle = handle.unwrap();
        let to = handle.address();
        let _ = rt.spawn(async move |ctx: Context| {
            for n in 0..=31 {
                to.send(n).unwrap();
                if n % 4 == 0 {
                    ctx.yield_now().await;
                }
            }
        });
        let (looks, picked, rest) = rt.block_on(handle).unwrap();
        let once: Vec<u32> = (0..=picked).collect();
        assert_eq!((looks, picked), (once, 30), "{bound:?}");
        assert_eq!(rest, Vec::from_iter((0..30).chain([31])), "{bound:?}");
    }

    let rt = Runtime::builder().workers(0).build().unwrap();
    let (address, mut mailbox) = rt.mailbox_with::<u32>(MailboxCapacity::DropOldest(2));
    let mut letters = rt.dead_letters();
    address.send(0).unwrap();
    address.send(1).unwrap();
    let to = address.clone();
    let picked = rt.block_on(mailbox.receive_where(|n| {
        if n == 0 {
            // Two messages arrive while the filter examines the oldest message. The mailbox is full, so the policy
            // drops the two oldest messages.
            to.send(2).unwrap();
            to.send(3).unwrap();
        }
        if n == 3 { Ok(n) } else { Err(n) }
    }));
    assert_eq!((picked.unwrap(), drain(&mut mailbox)), (3, vec![2]));
    let mut dead: Vec<u32> = drain(&mut letters).into_iter().map(|dead| dead.payload.downcast().unwrap()).collect();
    dead.sort_unstable();
    assert_eq!((dead, rt.counters().dropped_by_policy), (vec![0, 1], 2));

    // If the filter panics, the examined message is lost, and its place in the mailbox becomes free.
    let (address, mut mailbox) = rt.mailbox_with::<u32>(MailboxCapacity::Reject(1));
    address.send(0).unwrap();
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        rt.block_on(mailbox.receive_where(|_| -> Result<u32, u32> { panic!("on purpose") }))
    }));
    assert!(panics.is_err());
    address.send(1).unwrap();
    assert_eq!(drain(&mut mailbox), [1]);
}

/// 2.3i: unstashed messages are read before all other messages, in order. Stashed messages do not count against the
/// bound. Stashed messages become dead letters when the mailbox is dropped.
#[test]
fn unstashed_messages_are_read_in_order() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    for bound in [MailboxCapacity::Unbounded, MailboxCapacity::Reject(3)] {
        let (address, mut mailbox) = rt.mailbox_with::<u32>(bound);
        let send = |from: u32| (from..from + 3).for_each(|n| address.send(n).unwrap());
        send(0);
        for n in 0..3 {
            let message = mailbox.try_receive().unwrap();
            assert_eq!(message, n);
            mailbox.stash(message);
        }
        assert_eq!(mailbox.try_receive(), None);
        send(3);
        assert_eq!((mailbox.unstash(), mailbox.unstash()), (3, 0));
        let picked = rt.block_on(mailbox.receive_where(|n| if n == 4 { Ok(n) } else { Err(n) })).unwrap();
        assert_eq!(picked, 4);
        let first = mailbox.try_receive().unwrap();
        mailbox.stash(first);
        mailbox.unstash();
        assert_eq!(drain(&mut mailbox), [0, 1, 2, 3, 5]);
        let mut letters = rt.dead_letters();
        mailbox.stash(7);
        address.send(8).unwrap();
        drop(mailbox);
        let mut dead: Vec<u32> = drain(&mut letters).into_iter().map(|dead| dead.payload.downcast().unwrap()).collect();
        dead.sort_unstable();
        assert_eq!(dead, [7, 8]);
    }
}

/// 2.3i: messages arrive one at a time, and the process stashes each message. After `unstash` the process receives all
/// these messages without waiting.
#[test]
fn messages_that_were_stashed_one_at_a_time_are_read_without_waiting() {
    within(20, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let door = rt.spawn(async |mut ctx: Context<u32>| -> Result<Vec<u32>, Exit> {
            loop {
                match ctx.receive().await? {
                    3 => break,
                    early => ctx.stash(early),
                }
            }
            ctx.unstash();
            let mut read = Vec::new();
            while read.len() < 2 {
                read.push(ctx.receive().await?);
            }
            Ok(read)
        });
        let address = door.address().clone();
        let knocks = rt.spawn(async move |ctx: Context| {
            for n in 1..=3 {
                address.send(n).unwrap();
                for _ in 0..3 {
                    ctx.yield_now().await;
                }
            }
        });
        rt.block_on(knocks).unwrap();
        assert_eq!(rt.block_on(door).unwrap(), [1, 2]);
    });
}

/// 2.2b, 2.3e: messages are read in order, and each message counts as unread until it is read. The test sends messages
/// of two sizes. Some messages arrive while the process waits. Other messages arrive after the process was woken and
/// before it runs.
#[test]
fn messages_to_a_waiting_process_are_read_in_order() {
    fn check<M: Send + 'static>(message: impl Fn(u64) -> M, number: impl Fn(M) -> u64 + Send + 'static) {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let read = Arc::new(Mutex::new(Vec::new()));
        let reads = read.clone();
        let reader = rt.spawn(async move |mut ctx: Context<M>| -> Result<(), Exit> {
            loop {
                match ctx.event().await {
                    Event::Message(message) => reads.lock().unwrap().push(number(message)),
                    Event::Cancel { .. } => reads.lock().unwrap().push(100),
                    _ => unreachable!("nobody sends anything else"),
                }
            }
        });
        let address = reader.address();
        let send = |from: u64, to: u64| (from..to).for_each(|n| address.send(message(n)).unwrap());
        let run = || drop(rt.block_on(rt.spawn(async |ctx: Context| ctx.yield_now().await)));
        let have_come = |count: u64, high: usize| {
            assert_eq!(address.peak_mailbox_len(), high);
            run();
            assert_eq!(*read.lock().unwrap(), (0..count).collect::<Vec<_>>());
            assert_eq!(address.peak_mailbox_len(), high);
        };
        run();
        send(0, 1);
        have_come(1, 1);
        send(1, 2);
        have_come(2, 1);
        send(2, 5);
        have_come(5, 3);
        send(5, 6);
        have_come(6, 3);
        send(6, 7);
        rt.cancel(address.pid(), "now", Duration::from_secs(60)).unwrap();
        send(7, 8);
        run();
        assert_eq!(read.lock().unwrap()[6..], [6, 100, 7]);
        // This message is still unread when the process is killed.
        let mut letters = rt.dead_letters();
        send(8, 9);
        rt.kill(address.pid()).unwrap();
        assert!(matches!(rt.block_on(reader), Err(Exit::Killed)));
        assert_eq!(drain(&mut letters).len(), 1);
    }
    check(|n| n, |n| n);
    check(|n| [n; 8], |n| n[0]);
    check(|n| n.to_string(), |n| n.parse().unwrap());
}

/// 2.2b: a process waits for a message, and then moves its mailbox to another thread. The other thread reads all
/// messages. The messages of each sender arrive in order.
#[test]
fn a_mailbox_that_is_moved_to_another_thread_receives_all_messages() {
    const EACH: u64 = 50;
    within(60, || {
        let rt = two();
        for round in 0..60 {
            let (tell, told) = futures::channel::oneshot::channel();
            let process = rt.spawn(async move |ctx: Context<u64>| {
                let (me, mut mailbox) = ctx.split();
                // The process polls the mailbox in zero, one or two turns, and then moves the mailbox.
                let mut read = Vec::new();
                for _ in 0..round % 3 {
                    if let Poll::Ready(message) = futures::poll!(mailbox.receive()) {
                        read.push(message);
                    }
                    me.yield_now().await;
                }
                let elsewhere = std::thread::spawn(move || {
                    while read.len() < 2 * EACH as usize {
                        read.push(futures::executor::block_on(mailbox.receive()));
                    }
                    tell.send(()).unwrap();
                    read.into_iter().map(Result::unwrap).collect::<Vec<_>>()
                });
                told.await.unwrap();
                Ok::<_, Exit>(elsewhere.join().unwrap())
            });
            let addresses = [process.address(), process.address()];
            let senders = addresses.map(|address| {
                rt.spawn(async move |ctx: Context| {
                    let from = ctx.pid().to_string().len() as u64;
                    for n in 0..EACH {
                        address.send(n).unwrap();
                        if (n + from).is_multiple_of(3) {
                            ctx.yield_now().await;
                        }
                    }
                })
            });
            let read = rt.block_on(process).unwrap();
            assert_eq!(read.iter().sum::<u64>(), EACH * (EACH - 1));
            let mut next = Vec::from([0; 2]);
            for n in read {
                let sender = next.iter().position(|next| *next == n).expect("one of the two is there");
                next[sender] += 1;
            }
            senders.into_iter().for_each(|sender| rt.block_on(sender).unwrap());
        }
    });
}

/// 2.3d: a sink waits for a free place before it sends each message. When the mailbox is dropped, the sink returns the
/// message that waits.
#[test]
fn a_sink_waits_for_free_space() {
    use futures::{FutureExt, SinkExt, StreamExt, stream};
    let rt = Runtime::builder().workers(0).build().unwrap();
    let (address, mut mailbox) = rt.mailbox_with::<u32>(MailboxCapacity::Reject(2));
    let forward = stream::iter((0..100).map(Ok::<_, SendError<u32>>)).forward(address.sink());
    let read = async {
        let mut read = Vec::new();
        while read.len() < 100 {
            read.push(mailbox.receive().await.unwrap());
        }
        read
    };
    let (forwarded, read) = rt.block_on(futures::future::join(forward, read));
    assert!(forwarded.is_ok());
    assert_eq!((read, address.peak_mailbox_len()), ((0..100).collect::<Vec<_>>(), 2));
    let mut sink = address.sink();
    for n in 0..3 {
        sink.feed(n).now_or_never().expect("it is ready").unwrap();
    }
    assert!(sink.flush().now_or_never().is_none());
    assert!(sink.feed(3).now_or_never().is_none());
    // When the last clone of the sink is dropped, the waiting message is not sent.
    drop(sink.clone());
    drop(sink);
    assert_eq!(drain(&mut mailbox), [0, 1]);
    let mut sink = address.sink();
    for n in 0..3 {
        sink.feed(n).now_or_never().unwrap().unwrap();
    }
    drop(mailbox);
    let refused = sink.flush().now_or_never().unwrap().unwrap_err();
    assert_eq!((refused.kind(), refused.into_message()), (SendErrorKind::NoProcess, 2));
}

/// 2.2c, 2.3b: a recipient accepts messages of one type, and converts them into the message type of the mailbox. If a
/// message is refused, the sender gets the unconverted message back.
#[test]
fn a_recipient_converts_and_sends_messages() {
    struct Number(u64);
    impl From<u32> for Number {
        fn from(n: u32) -> Self {
            Number(n.into())
        }
    }
    let rt = Runtime::builder().workers(0).build().unwrap();
    let (address, mut mailbox) = rt.mailbox_with::<Number>(MailboxCapacity::Reject(1));
    let recipient: Recipient<u32> = address.recipient();
    assert_eq!(recipient.pid(), address.pid());
    recipient.clone().send(5).unwrap();
    let refused = recipient.send(6).unwrap_err();
    assert_eq!((refused.kind(), refused.into_message()), (SendErrorKind::Full, 6));
    assert_eq!(mailbox.try_receive().unwrap().0, 5);
    drop(mailbox);
    let refused = recipient.send(7).unwrap_err();
    assert_eq!((refused.kind(), refused.into_message()), (SendErrorKind::NoProcess, 7));
    assert_eq!(rt.counters().refused, 2);
}

/// 5.1b: a body has read all its messages and waits for another future. New messages do not cause a poll of this body.
/// The next receive of the body finds the new messages.
#[test]
fn a_message_does_not_wake_a_body_that_waits_for_another_future() {
    within(60, || {
        let rt = crate::alone().build().unwrap();
        let (go, went) = futures::channel::oneshot::channel::<()>();
        let (there, is_there) = futures::channel::oneshot::channel();
        let body = rt.spawn(async move |mut ctx: Context<u64>| -> Result<Vec<u64>, Exit> {
            let mut read = vec![ctx.receive().await?];
            let _ = there.send(());
            let _ = went.await;
            while read.len() < 4 {
                read.push(ctx.receive().await?);
            }
            Ok(read)
        });
        let steps = || rt.counters().steps;
        let settled = || rt.block_on(rt.spawn(async |ctx: Context| ctx.yield_now().await)).unwrap();
        body.send(0).unwrap();
        rt.block_on(is_there).unwrap();
        settled();
        let before = steps();
        settled();
        let of_settling = steps() - before;
        let before = steps();
        (1..3).for_each(|n| body.send(n).unwrap());
        settled();
        assert_eq!(steps() - before, of_settling, "nobody but those was stepped");
        go.send(()).unwrap();
        body.send(3).unwrap();
        assert_eq!(rt.block_on(body).unwrap(), [0, 1, 2, 3]);
    });
}

/// 2.2b, 5.1a: a new message wakes the task that polled the mailbox last. The task may use any waker, and the waker may
/// change several times in one turn.
#[test]
fn a_message_wakes_the_task_that_polled_the_mailbox_last() {
    async fn body(mut ctx: Context<u64>) -> Result<u64, Exit> {
        let mut sum = 0;
        loop {
            // The mailbox is polled in a turn of the process, with the waker of the process.
            sum += ctx.receive().await?;
            // The mailbox is polled once with another waker. Then the receive future is dropped.
            {
                let mut aside = FuturesUnordered::from_iter([ctx.receive()]);
                if let Poll::Ready(Some(message)) = futures::poll!(aside.next()) {
                    sum += message?;
                }
            }
            // The mailbox is polled with the waker of the process. Then this second receive future is dropped too.
            if sum % 2 == 0
                && let Poll::Ready(message) = futures::poll!(ctx.receive())
            {
                sum += message?;
            }
            if sum == 45 {
                return Ok(sum);
            }
        }
    }
    everywhere(async |host| {
        for _ in 0..50 {
            let body = host.spawn(body);
            for n in 0..10 {
                body.send(n).unwrap();
                if n % 3 == 0 {
                    host.spawn(async |ctx: Context| ctx.yield_now().await).await.unwrap();
                }
            }
            assert_eq!(body.await.unwrap(), 45);
        }
    });
}

/// 2.4c: two hosts are attached to each other for the same node. A message to an unknown pid of this node is refused.
#[test]
fn a_host_does_not_pass_an_envelope_on() {
    let (one, other) = (Simulation::new(1), Simulation::new(2));
    one.attach_node(0, other.host().clone());
    other.attach_node(0, one.host().clone());
    let unknown: Pid = "<0.5.1>".parse().unwrap();
    assert_eq!(one.send(unknown, 1_u8).unwrap_err().kind(), SendErrorKind::NoProcess);
}

/// 2.4b: a host delivers an envelope to an attached receiver, and does not change the sender in the envelope.
#[test]
fn an_attached_receiver_gets_the_sender_of_an_envelope() {
    #[derive(Clone, Default)]
    struct Senders(Arc<Mutex<Vec<Option<Pid>>>>);
    impl Deliver for Senders {
        fn deliver(&self, package: Envelope) -> Result<(), SendError<Envelope>> {
            self.0.lock().unwrap().push(package.from);
            Ok(())
        }
    }
    let rt = Runtime::builder().workers(0).build().unwrap();
    let senders = Senders::default();
    let pid = rt.attach(senders.clone()).unwrap();
    let remote: Pid = "<4711-a.3.1>".parse().unwrap();
    let mut envelope = Envelope::new(pid, Payload::new(1_u8));
    envelope.from = Some(remote);
    rt.host().deliver(envelope).unwrap();
    rt.send(pid, 2_u8).unwrap();
    assert_eq!(*senders.0.lock().unwrap(), [Some(remote), None]);
}

/// 2.6b: a process exits while a timer of the process owns a message with a `Reply`. The caller gets the exit.
#[test]
fn a_reply_in_the_message_of_a_timer_reports_the_exit() {
    enum Msg {
        Ask(Reply<u8>),
        Later(#[expect(dead_code)] Reply<u8>),
    }
    let rt = two();
    let process = rt.spawn(async |mut ctx: Context<Msg>| -> Result<(), Exit> {
        if let Msg::Ask(reply) = ctx.receive().await? {
            ctx.send_after(Duration::from_secs(3_600), ctx.pid(), Msg::Later(reply));
        }
        Err(Exit::failed("on purpose"))
    });
    let error = rt.block_on(process.call(Msg::Ask)).unwrap_err();
    assert!(matches!(&error, CallError::Died(Exit::Failed(_))), "{error:?}");
    rt.block_on(process).unwrap_err();
}

//! SPEC 2: pids, mailboxes, routing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use procession::*;

use crate::{on_workers, two, within};

async fn echo(mut ctx: Context<u64>) -> Result<u64, Exit> {
    ctx.receive().await
}

/// 2.1: pids print and parse back, are ordered and small; a restarted runtime is a new incarnation.
#[test]
fn a_pid_prints_and_parses_back() {
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
    assert_eq!((stale.refusal(), stale.into_message()), (Refusal::NoProcess, 1));
}

/// 2.1: a slot is used again under another generation; the old pid does not reach the new tenant.
#[test]
fn a_stale_pid_never_reaches_the_new_tenant() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let mut former: Vec<Pid> = Vec::new();
    for n in 0..100 {
        let tenant = rt.spawn(echo);
        assert!(!former.contains(&tenant.pid()));
        for stale in &former {
            assert_eq!(rt.send(*stale, 666_u64).unwrap_err().refusal(), Refusal::NoProcess);
            assert!(rt.address::<u64>(*stale).is_none());
            assert!(rt.kill(*stale).is_err());
        }
        tenant.send(n).unwrap();
        former.push(tenant.pid());
        assert_eq!(rt.block_on(tenant).unwrap(), n);
    }
    assert!(former.iter().any(|pid| pid.generation() > 10), "slots are used again: {former:?}");
}

/// 2.1, 11: a pid of another runtime is an error at the sender, with the message.
#[test]
fn a_foreign_pid_is_refused() {
    let (here, there) = (two(), two());
    let pid = there.spawn(echo).pid();
    let refused = here.send(pid, 5_u64).unwrap_err();
    assert_eq!((refused.refusal(), refused.into_message()), (Refusal::NoProcess, 5));
    let never: Pid = format!("<{}.4294967295.7>", here.node()).parse().unwrap();
    assert_eq!(here.send(never, 5_u64).unwrap_err().refusal(), Refusal::NoProcess);
}

/// 2.2: messages between one sender and one receiver arrive in order, whatever the others do.
#[test]
fn order_holds_between_a_pair() {
    on_workers(|host| async move {
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

/// 2.2: mail that was accepted and can't be delivered goes to dead letters, in order, and is counted.
#[test]
fn unread_mail_goes_to_dead_letters() {
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

/// 2.3: a message that was sent just before the death is handed over before the exit is known.
#[test]
fn a_message_before_a_death_arrives_before_the_exit_is_known() {
    on_workers(|host| async move {
        for _ in 0..200 {
            let (to, mut mailbox) = host.mailbox::<u64>();
            let sender = host.spawn(async move |_: Context| {
                to.send(1)?;
                Ok::<_, Exit>(())
            });
            let ended = sender.ended();
            drop(sender);
            assert!(ended.await.is_normal());
            assert_eq!(mailbox.try_receive(), Some(1));
        }
    });
}

/// 2.3: signals keep their place among the messages, for a hand-written process and for `event()`.
#[test]
fn a_cancel_keeps_its_place_among_the_messages() {
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

/// 2.4: an outside channel is a pid like any other, for threads and for tasks of any executor.
#[test]
fn an_outside_mailbox_has_a_pid() {
    let rt = two();
    let (address, mut mailbox) = rt.mailbox::<u64>();
    let pid = mailbox.pid();
    let _ = rt.spawn(async move |ctx: Context| ctx.send(pid, 3_u64));
    assert_eq!(futures::executor::block_on(mailbox.receive()).unwrap(), 3);
    address.send(4).unwrap();
    drop(mailbox);
    let refused = address.send(5).unwrap_err();
    assert_eq!((refused.refusal(), refused.into_message()), (Refusal::NoProcess, 5));
    assert!(rt.send(pid, 6_u64).is_err());

    let (address, mut mailbox) = rt.mailbox::<u64>();
    address.send(1).unwrap();
    rt.kill(address.pid()).unwrap();
    assert!(matches!(futures::executor::block_on(mailbox.receive()), Err(Exit::Killed)));
}

#[derive(Clone, Default)]
struct Wire(Arc<Mutex<Vec<(Pid, u64)>>>);

impl Receiver for Wire {
    fn deliver(&self, package: Package) -> std::result::Result<(), SendError<Package>> {
        if !package.payload.is::<u64>() {
            return Err(SendError::new(Refusal::WrongType { expected: "u64" }, package));
        }
        let Package { to, payload, .. } = package;
        self.0.lock().unwrap().push((to, payload.downcast().unwrap()));
        Ok(())
    }
}

/// 2.4: a receiver can be attached under a pid, and for the pids of another node; its refusals come back.
#[test]
fn receivers_are_attached_for_pids_and_for_nodes() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let wire = Wire::default();
    let pid = rt.attach(wire.clone()).unwrap();
    rt.send(pid, 7_u64).unwrap();
    let refused = rt.send(pid, "text").unwrap_err();
    assert_eq!((refused.refusal(), refused.into_message()), (Refusal::WrongType { expected: "u64" }, "text"));
    rt.kill(pid).unwrap();
    assert_eq!(rt.send(pid, 8_u64).unwrap_err().refusal(), Refusal::NoProcess);

    let far: Pid = "<4711-a.3.1>".parse().unwrap();
    assert!(rt.send(far, 9_u64).is_err());
    rt.attach_node(4711, wire.clone());
    rt.send(far, 9_u64).unwrap();
    // The host is a receiver itself.
    let here = rt.spawn(echo);
    rt.host().deliver(Package::new(here.pid(), Payload::new(5_u64))).unwrap();
    assert_eq!(rt.block_on(here).unwrap(), 5);
    assert_eq!(*wire.0.lock().unwrap(), [(pid, 7), (far, 9)]);
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

/// 2.6: a call returns the reply, or an error that says which: dropped, died, no such process, timed out.
#[test]
fn a_call_says_what_became_of_it() {
    within(20, || {
        let rt = two();
        let server = rt.spawn(server);
        assert_eq!(rt.block_on(server.call(Ask::Get)).unwrap(), 1);
        assert!(matches!(rt.block_on(server.call(Ask::Drop)), Err(CallError::Dropped)));
        let timed = rt.block_on(server.call(Ask::Keep).timeout(Duration::from_millis(5)));
        assert!(matches!(timed, Err(CallError::TimedOut)));
        // What comes late goes nowhere and is counted, or comes back.
        let late = rt.block_on(server.call(Ask::GiveBack)).unwrap().expect("kept");
        assert!(late.is_closed());
        let before = rt.counters().late_replies;
        assert_eq!(late.try_send(3), Err(3));
        assert_eq!(rt.counters().late_replies, before + 1);

        // One waits in the process's state, one in its mailbox: both hear of the death at once.
        let held = server.call(Ask::Keep).start();
        let panics = server.call(Ask::Panic).start();
        let unread = server.call(Ask::Get).start();
        for call in [held, panics, unread] {
            match rt.block_on(call) {
                Err(CallError::Died(Exit::Panicked(_)) | CallError::Dropped | CallError::NoProcess) => {}
                other => panic!("{other:?}"),
            }
        }
        let address = server.address();
        assert!(rt.block_on(server).is_err());
        assert!(matches!(rt.block_on(address.call(Ask::Get)), Err(CallError::NoProcess)));
        let wrong = rt.spawn(echo);
        let wrong = rt.block_on(rt.call(wrong.pid(), |reply: Reply<u8>| reply));
        assert!(matches!(wrong, Err(CallError::WrongType { expected: "u64" })));
    });
}

/// 2.6: whoever held the question and died is what the caller hears of, with the reason.
#[test]
fn a_death_is_told_to_the_callers_at_once() {
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

/// 2.6: a hand-written process asks too; the reply answers its tag, and so does a refusal.
#[test]
fn a_hand_written_process_asks() {
    struct Asks {
        server: Address<Ask>,
        asked: Option<Tag<Asked<u64>>>,
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
    assert!(matches!(failure.error::<CallError>(), Some(CallError::NoProcess)), "{failure:?}");
}

/// 2.3: what `receive_where` passes over keeps its place, also when it came in one burst.
#[test]
fn what_is_passed_over_in_a_burst_keeps_its_place() {
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

/// 2.3: an address as a sink takes all, in order, and hands back what nobody takes any more.
#[test]
fn a_sink_hands_back_what_is_refused() {
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
    assert_eq!((refused.refusal(), refused.into_message().as_str()), (Refusal::NoProcess, "d"));
    fn shared<T: Send + Sync + Unpin + 'static>(_: &T) {}
    shared(&sink);
}

//! Section 2.3 of the specification: urgent messages.

use std::time::Duration;

use futures::FutureExt;
use procession::*;

use crate::{everywhere, on_workers, step_aside, within};

fn lone() -> Runtime {
    Runtime::builder().workers(0).build().unwrap()
}

fn all(mailbox: &mut Mailbox<u64>) -> Vec<u64> {
    std::iter::from_fn(|| mailbox.try_receive()).collect()
}

/// 2.3j: the receiver gets urgent messages before all other unread messages, and in their order of arrival. Normal
/// messages keep their order.
#[test]
fn urgent_messages_come_first_and_in_order() {
    let rt = lone();
    for capacity in [MailboxCapacity::Unbounded, MailboxCapacity::Reject(9), MailboxCapacity::DropOldest(9)] {
        let (address, mut mailbox) = rt.mailbox_with::<u64>(capacity);
        for n in 0..3 {
            address.send(n).unwrap();
            address.send_urgent(10 + n).unwrap();
        }
        assert_eq!(all(&mut mailbox), [10, 11, 12, 0, 1, 2]);
        address.send(3).unwrap();
        assert_eq!(all(&mut mailbox), [3], "the mailbox is usable after its last urgent message");
    }
}

/// 2.3j: an urgent message also overtakes the messages that the receiver has already taken into its read-ahead buffer.
/// The test receives with `receive`, `event` and `try_receive`.
#[test]
fn an_urgent_message_overtakes_the_messages_that_were_read_ahead() {
    everywhere(async |host| {
        let by_receive = host.spawn(async |mut ctx: Context<u64>| -> Result<_, Exit> {
            let me = ctx.address();
            (0..4).for_each(|n| me.send(n).unwrap());
            let mut read = vec![ctx.receive().await?];
            me.send_urgent(9).unwrap();
            while read.len() < 5 {
                read.push(ctx.receive().await?);
            }
            Ok(read)
        });
        let by_event = host.spawn(async |mut ctx: Context<u64>| -> Result<_, Exit> {
            let me = ctx.address();
            (0..4).for_each(|n| me.send(n).unwrap());
            let mut read = Vec::new();
            while read.len() < 5 {
                let Event::Message(message) = ctx.event().await else { panic!("there are only messages") };
                if read.is_empty() {
                    me.send_urgent(9).unwrap();
                }
                read.push(message);
            }
            Ok(read)
        });
        let by_try = host.spawn(async |mut ctx: Context<u64>| -> Result<_, Exit> {
            let me = ctx.address();
            (0..4).for_each(|n| me.send(n).unwrap());
            let mut read = vec![ctx.try_receive().unwrap()];
            me.send_urgent(9).unwrap();
            read.extend(std::iter::from_fn(|| ctx.try_receive()));
            Ok(read)
        });
        for reader in [by_receive, by_event, by_try] {
            assert_eq!(reader.await.unwrap(), [0, 9, 1, 2, 3]);
        }
    });
}

/// A hand-written process that collects its messages. After five messages, the process exits and returns the messages.
struct Collect(Vec<u64>);

impl Process for Collect {
    type Message = u64;
    type Output = Vec<u64>;

    fn step(&mut self, events: Events<'_, u64>, out: &mut StepOutput<'_, u64>) -> Result<Next<Vec<u64>>, Exit> {
        for event in events {
            let Event::Message(message) = event else { continue };
            if self.0.is_empty() {
                out.send_urgent(out.pid(), 9_u64).unwrap();
            }
            self.0.push(message);
        }
        Ok(if self.0.len() == 5 { Next::Done(std::mem::take(&mut self.0)) } else { Next::Wait })
    }
}

/// 2.3j, 1.4a: a hand-written process reads an urgent message before the events that its step has already taken.
#[test]
fn a_hand_written_process_reads_urgent_messages_first() {
    everywhere(async |host| {
        let collect = host.spawn_process(Collect(Vec::new()));
        (0..4).for_each(|n| collect.send(n).unwrap());
        assert_eq!(collect.await.unwrap(), [0, 9, 1, 2, 3]);
    });
}

/// 2.3j, 2.3i: a selective receive examines urgent messages first. A skipped message keeps its position.
#[test]
fn a_selective_receive_sees_urgent_messages_first() {
    for capacity in [MailboxCapacity::Unbounded, MailboxCapacity::Reject(9)] {
        let rt = lone();
        let (address, mut mailbox) = rt.mailbox_with::<u64>(capacity);
        (0..3).for_each(|n| address.send(n).unwrap());
        (10..13).for_each(|n| address.send_urgent(n).unwrap());
        let mut seen = Vec::new();
        let mut pick = |wanted: u64| {
            seen.clear();
            let picked = mailbox.receive_where(|n| {
                seen.push(n);
                if n == wanted { Ok(n) } else { Err(n) }
            });
            assert_eq!(rt.block_on(picked).unwrap(), wanted);
            seen.clone()
        };
        assert_eq!(pick(11), [10, 11]);
        assert_eq!(pick(1), [10, 12, 0, 1]);
        assert_eq!(all(&mut mailbox), [10, 12, 0, 2]);
        // An urgent message wakes a waiting selective receive. The receive operation passes each message to its filter
        // at most once.
        address.send_urgent(20).unwrap();
        let mut seen = Vec::new();
        let mut waits = Box::pin(mailbox.receive_where(|n| {
            seen.push(n);
            if n == 22 { Ok(n) } else { Err(n) }
        }));
        assert!((&mut waits).now_or_never().is_none());
        address.send(21).unwrap();
        assert!((&mut waits).now_or_never().is_none());
        address.send_urgent(22).unwrap();
        assert_eq!(waits.now_or_never().unwrap().unwrap(), 22);
        assert_eq!(seen, [20, 21, 22]);
        assert_eq!(rt.block_on(mailbox.receive()).unwrap(), 20, "the skipped urgent message is not forgotten");
        assert_eq!(all(&mut mailbox), [21]);
    }
}

/// 2.3j: an urgent message wakes a waiting receiver, no matter whether the process of the receiver or another task
/// waits.
#[test]
fn an_urgent_message_wakes_a_waiting_receiver() {
    everywhere(async |host| {
        let reader = host.spawn(async |mut ctx: Context<u64>| -> Result<_, Exit> {
            Ok([ctx.receive().await?, ctx.receive_timeout(Duration::from_secs(3600)).await?.unwrap()])
        });
        step_aside().await;
        reader.send_urgent(1).unwrap();
        step_aside().await;
        host.send_urgent(reader.pid(), 2_u64).unwrap();
        assert_eq!(reader.await.unwrap(), [1, 2]);
        let (address, mut mailbox) = host.mailbox::<u64>();
        let mut waits = mailbox.receive();
        assert!((&mut waits).now_or_never().is_none());
        address.send_urgent(3).unwrap();
        assert_eq!(waits.await.unwrap(), 3);
    });
}

/// 2.2c, 2.3j: if a mailbox is closed, the send of an urgent message fails and returns the message.
#[test]
fn a_closed_mailbox_returns_an_urgent_message() {
    let rt = lone();
    let (address, mailbox) = rt.mailbox::<String>();
    drop(mailbox);
    let refused = rt.counters().refused;
    for error in [
        address.send_urgent("one".into()).unwrap_err(),
        rt.send_urgent(address.pid(), String::from("one")).unwrap_err(),
        rt.send_urgent("absent", String::from("one")).unwrap_err(),
    ] {
        assert_eq!((error.kind(), &*error.into_message()), (SendErrorKind::NoProcess, "one"));
    }
    assert_eq!(rt.counters().refused, refused + 3);
    let (typed, _mailbox) = rt.mailbox::<u64>();
    let error = rt.send_urgent(typed.pid(), String::from("one")).unwrap_err();
    assert!(matches!(error.kind(), SendErrorKind::WrongType { .. }));
    assert_eq!(error.into_message(), "one");
}

/// 2.2d, 2.3j: unread urgent messages become dead letters, before the other unread messages.
#[test]
fn unread_urgent_messages_become_dead_letters() {
    let rt = lone();
    let mut dead = rt.dead_letters();
    let (address, mailbox) = rt.mailbox::<u64>();
    address.send(1).unwrap();
    address.send_urgent(2).unwrap();
    address.send_urgent(3).unwrap();
    drop(mailbox);
    let letters: Vec<u64> =
        std::iter::from_fn(|| dead.try_receive()).map(|letter| letter.payload.downcast().unwrap()).collect();
    assert_eq!(letters, [2, 3, 1]);
    assert_eq!(rt.counters().dead_letters, 3);
}

/// 2.3j, 2.3a: a mailbox with a capacity of n accepts up to n urgent messages in addition to its normal messages. With
/// each overflow policy, the mailbox refuses every further urgent message.
#[test]
fn a_full_mailbox_has_separate_room_for_urgent_messages() {
    let rt = lone();
    for capacity in [MailboxCapacity::Reject(2), MailboxCapacity::DropOldest(2), MailboxCapacity::DropNewest(2)] {
        let (address, mut mailbox) = rt.mailbox_with::<u64>(capacity);
        address.send(1).unwrap();
        address.send(2).unwrap();
        address.send_urgent(3).unwrap();
        address.send_urgent(4).unwrap();
        let error = address.send_urgent(5).unwrap_err();
        assert_eq!((error.kind(), error.into_message()), (SendErrorKind::Full, 5), "{capacity:?}");
        assert_eq!(mailbox.try_receive(), Some(3));
        address.send_urgent(6).unwrap();
        assert_eq!(all(&mut mailbox), [4, 6, 1, 2], "{capacity:?}");
    }
    // An urgent message does not occupy the place of a normal message.
    let (address, mut mailbox) = rt.mailbox_with::<u64>(MailboxCapacity::Reject(1));
    address.send_urgent(1).unwrap();
    address.send(2).unwrap();
    assert_eq!(all(&mut mailbox), [1, 2]);
}

/// 2.3j: a value of the type `Recipient` converts and sends urgent messages.
#[test]
fn urgent_messages_can_be_sent_through_an_address_of_the_type_recipient() {
    let rt = lone();
    let (address, mut mailbox) = rt.mailbox_with::<u64>(MailboxCapacity::Reject(1));
    let small: Recipient<u8> = address.recipient();
    address.send(1).unwrap();
    small.send_urgent(2).unwrap();
    assert_eq!(small.send_urgent(3).unwrap_err().into_message(), 3);
    assert_eq!(all(&mut mailbox), [2, 1]);
    drop(mailbox);
    assert_eq!(small.send_urgent(4).unwrap_err().kind(), SendErrorKind::NoProcess);
}

/// 2.3j: a pool routes an urgent message to one of its members, and this member reads the message first.
#[test]
fn a_pool_routes_urgent_messages() {
    on_workers(async |host| {
        let (log, mut read) = host.mailbox::<u64>();
        let (open, gate) = futures::channel::oneshot::channel::<()>();
        let gate = gate.shared();
        let body = async move |mut ctx: Context<u64>| -> Result<(), Exit> {
            let _ = gate.await;
            loop {
                log.send(ctx.receive().await?)?;
            }
        };
        let pool = host.spawn_pool(Pool::new(1, body));
        pool.started().await.unwrap();
        pool.send(1).unwrap();
        pool.send(2).unwrap();
        pool.send_urgent(3).unwrap();
        open.send(()).unwrap();
        let mut order = Vec::new();
        while order.len() < 3 {
            order.push(read.receive().await.unwrap());
        }
        assert_eq!(order, [3, 1, 2]);
        pool.abort();
    });
}

/// 2.3j, 9.2a: in the list of processes, the mailbox length of a process includes the unread urgent messages.
#[test]
fn unread_urgent_messages_are_counted() {
    let rt = lone();
    let deaf = rt.spawn(async |_: Context<u64>| futures::future::pending::<()>().await);
    deaf.send(1).unwrap();
    deaf.send_urgent(2).unwrap();
    let row = rt.processes(&observe::ProcessQuery::new()).remove(0);
    assert!(row.to_string().contains("mailbox 2 (peak 2)"), "{row}");
}

/// 2.3j, 1.2a: an urgent message causes a step, even if the process does not read its events.
#[test]
fn an_urgent_message_causes_a_step_of_a_process_that_reads_no_events() {
    struct Blind(u32);
    impl Process for Blind {
        type Message = ();
        type Output = u32;
        fn step(&mut self, _: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<u32>, Exit> {
            self.0 += 1;
            // The first step sends a message to its own process, so the message arrives during this step.
            if self.0 == 1 {
                out.send_urgent(out.pid(), ())?;
            }
            Ok(if self.0 == 3 { Next::Done(self.0) } else { Next::Wait })
        }
    }
    let rt = lone();
    let blind = rt.spawn_process(Blind(0));
    rt.block_on(async {
        for _ in 0..50 {
            step_aside().await;
        }
    });
    assert!(!blind.is_finished(), "two steps: the start and one urgent message");
    blind.send_urgent(()).unwrap();
    assert_eq!(rt.block_on(blind).unwrap(), 3);
}

/// 2.3j: several threads send urgent and normal messages to one process. No message is lost, and the messages of each
/// kind from one sender stay in order.
#[test]
fn no_message_is_lost_if_urgent_and_normal_messages_arrive_together() {
    const EACH: u64 = 5_000;
    within(60, || {
        let rt = crate::two();
        let reader = rt.spawn(async |mut ctx: Context<(usize, u64)>| -> Result<(), Exit> {
            let mut next = [0; 4];
            for _ in 0..4 * EACH {
                let (sender, n) = ctx.receive().await?;
                assert_eq!(n, next[sender], "sender {sender}");
                next[sender] += 1;
            }
            Ok(())
        });
        let address = reader.address();
        std::thread::scope(|scope| {
            for sender in 0..4 {
                let address = address.clone();
                scope.spawn(move || {
                    for n in 0..EACH {
                        match sender % 2 {
                            0 => address.send((sender, n)).unwrap(),
                            _ => address.send_urgent((sender, n)).unwrap(),
                        }
                    }
                });
            }
        });
        futures::executor::block_on(reader).unwrap();
    });
}

/// 2.3j, 4.9a: while the receiver looks at an urgent message, the message still occupies its place in a bounded
/// mailbox. An urgent message that arrives at this time is queued after all urgent messages that are already in the
/// mailbox.
#[test]
fn an_urgent_message_keeps_its_place_while_the_receiver_looks_at_the_message() {
    everywhere(async |host| {
        let body = async |mut ctx: Context<u64>| -> Result<_, Exit> {
            let me = ctx.address();
            let full = ctx
                .receive_where(|message| {
                    let is_full = me.send_urgent(9).is_err();
                    if message == 2 { Ok(is_full) } else { Err(message) }
                })
                .await?;
            let mut mailbox = ctx.split().1;
            Ok((full, all(&mut mailbox)))
        };
        for (capacity, full, rest) in [(2, true, vec![1]), (3, true, vec![1, 9])] {
            let process = host.process().mailbox_capacity(MailboxCapacity::Reject(capacity));
            let process = process.spawn(body).unwrap();
            for message in [1, 2] {
                process.send_urgent(message).unwrap();
            }
            assert_eq!(process.await, Ok((full, rest)), "{capacity}");
        }
    });
}

/// 2.3j: if the closure of `receive_where` panics, only the message that the closure has received is lost.
#[test]
fn a_panic_while_the_receiver_looks_at_an_urgent_message_loses_only_this_message() {
    let rt = lone();
    let (address, mut mailbox) = rt.mailbox_with::<u64>(MailboxCapacity::Reject(3));
    for lost in 0..3 {
        for message in 0..3 {
            address.send_urgent(message).unwrap();
        }
        assert!(address.send_urgent(3).is_err(), "it is full");
        let looks = |message| -> Result<(), u64> { if message == lost { panic!("no") } else { Err(message) } };
        let panics = std::panic::AssertUnwindSafe(|| mailbox.receive_where(looks).now_or_never());
        assert!(std::panic::catch_unwind(panics).is_err());
        address.send_urgent(3).unwrap();
        let rest: Vec<u64> = (0..4).filter(|message| *message != lost).collect();
        assert_eq!(all(&mut mailbox), rest);
    }
}

/// A hand-written process that sends itself an urgent message for each message.
struct Floods;

impl Process for Floods {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
        for event in events {
            if let Event::Message(()) = event {
                out.send_urgent(out.pid(), ()).unwrap();
            }
        }
        Ok(Next::Wait)
    }
}

/// 4.6b, 6.2d: a hand-written process sends itself one urgent message for each urgent message that it reads.
/// Nevertheless, its step ends. Therefore other processes run, and the process can be killed.
#[test]
fn a_step_ends_although_urgent_messages_arrive() {
    within(60, || {
        let rt = lone();
        let floods = rt.spawn_process(Floods);
        floods.send_urgent(()).unwrap();
        rt.block_on(rt.spawn(async |ctx: Context| {
            for _ in 0..10 {
                ctx.yield_now().await;
            }
        }))
        .unwrap();
        rt.kill(floods.pid()).unwrap();
        assert!(matches!(rt.block_on(floods), Err(Exit::Killed)));
    });
}

/// 2.3j: a step reads at most 128 urgent messages. The next step reads the remaining messages without a further
/// wake-up.
#[test]
fn a_hand_written_process_reads_all_urgent_messages() {
    struct Counts(Vec<u64>, usize);
    impl Process for Counts {
        type Message = u64;
        type Output = (Vec<u64>, usize);

        fn step(&mut self, events: Events<'_, u64>, _: &mut StepOutput<'_, u64>) -> Result<Next<Self::Output>, Exit> {
            self.1 += 1;
            self.0.extend(events.filter_map(|event| if let Event::Message(n) = event { Some(n) } else { None }));
            Ok(if self.0.len() == 301 { Next::Done((std::mem::take(&mut self.0), self.1)) } else { Next::Wait })
        }
    }
    let rt = lone();
    let counts = rt.spawn_process(Counts(Vec::new(), 0));
    counts.send(300).unwrap();
    (0..300).for_each(|n| counts.send_urgent(n).unwrap());
    let (read, steps) = rt.block_on(counts).unwrap();
    assert_eq!((read, steps), ((0..=300).collect(), 3));
}

/// 2.3j: a step reads its maximum number of urgent messages, and then passes its events to `EntryPoints`. The next step
/// still reads the remaining messages.
#[test]
fn a_process_that_delegates_its_steps_reads_all_urgent_messages() {
    struct Delegates(EntryPoints<u64, ()>, u64);
    impl Process for Delegates {
        type Message = u64;
        type Output = ();

        fn init(&mut self, start: Start<'_>) -> Result<(), InitError> {
            self.0.init(start)
        }

        fn step(&mut self, mut events: Events<'_, u64>, out: &mut StepOutput<'_, u64>) -> Result<Next<()>, Exit> {
            self.1 += events.by_ref().count() as u64;
            if self.1 == 300 { Ok(Next::Done(())) } else { self.0.step(events, out) }
        }
    }
    within(60, || {
        let rt = lone();
        let body = async |mut ctx: Context<u64>, (): ()| {
            // The step of the process reads the messages, so this receive operation fails.
            assert!(ctx.receive().await.is_err());
            std::future::pending::<()>().await;
        };
        let entries = EntryPoints::new().entry("wait", body);
        let process = rt.process().entry("wait").spawn_process(Delegates(entries, 0)).unwrap();
        rt.block_on(process.started()).unwrap();
        (0..300).for_each(|n| process.send_urgent(n).unwrap());
        rt.block_on(process).unwrap();
    });
}

/// 2.3j: the largest length of a mailbox counts the urgent messages together with the other messages, no matter which
/// messages arrive first.
#[test]
fn the_largest_length_counts_all_unread_messages() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    for capacity in [MailboxCapacity::Unbounded, MailboxCapacity::Reject(5)] {
        let (address, mut mailbox) = rt.mailbox_with::<u32>(capacity);
        address.send_urgent(0).unwrap();
        (1..4).for_each(|n| address.send(n).unwrap());
        assert_eq!((address.mailbox_len(), address.peak_mailbox_len()), (4, 4));
        assert_eq!(mailbox.try_receive(), Some(0));
        assert_eq!(mailbox.try_receive(), Some(1));
        assert_eq!(address.peak_mailbox_len(), 4);
        let (address, mut mailbox) = rt.mailbox_with::<u32>(capacity);
        address.send_urgent(0).unwrap();
        (1..4).for_each(|n| address.send(n).unwrap());
        let picked = mailbox.receive_where(|n| if n == 0 { Ok(n) } else { Err(n) }).now_or_never();
        assert_eq!((picked, address.peak_mailbox_len()), (Some(Ok(0)), 4));
    }
}

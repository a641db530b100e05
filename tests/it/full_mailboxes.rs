//! Tests of waiting for free space in a full mailbox: calls that wait, sends with a time limit, and capacities with a
//! policy.

use std::time::Duration;

use futures::FutureExt;
use futures::future::FusedFuture;
use procession::observe::WaitsFor;
use procession::*;

use crate::lives::{lone, settle};

type Question = (u64, Reply<u64>);

fn full(rt: &Runtime) -> (Address<Question>, Mailbox<Question>) {
    let (address, mailbox) = rt.mailbox_with(MailboxCapacity::Reject(1));
    drop(address.call(|reply| (0, reply)).start());
    assert_eq!(address.mailbox_len(), 1);
    (address, mailbox)
}

/// 2.3d: a call that waits for free space sends its request when the mailbox has free space, and then receives the
/// reply. An ordinary call to a full mailbox fails, and the error of this call names `call_wait`.
#[test]
fn a_call_waits_for_free_space() {
    let rt = lone();
    let (address, mut mailbox) = full(&rt);
    let refused = rt.block_on(address.call(|reply| (1, reply))).unwrap_err();
    assert_eq!(refused, CallError::Send(SendErrorKind::Full));
    assert!(refused.to_string().contains("`call_wait`"), "{refused}");
    let mut calls = [address.call_wait(|reply| (2, reply)), rt.call_wait(address.pid(), |reply| (3, reply))];
    for call in &mut calls {
        assert!(call.now_or_never().is_none() && !call.is_terminated());
    }
    drop(mailbox.try_receive());
    for (call, number) in calls.iter_mut().zip([2, 3]) {
        let (question, reply) = mailbox.try_receive().expect("the request has entered the mailbox");
        assert_eq!(question, number);
        assert!(call.now_or_never().is_none());
        reply.send(number * number);
        assert_eq!(rt.block_on(&mut *call), Ok(number * number));
        assert!(call.is_terminated() && call.now_or_never().is_none());
    }
    assert_eq!((address.mailbox_len(), rt.counters().late_replies), (0, 0));
}

/// 2.3d: a call that waits for free space ends at its time limit. The request is then not sent. If the mailbox of the
/// receiver is dropped while the call waits, the call fails.
#[test]
fn a_call_can_end_while_it_waits_for_free_space() {
    check(0..4, async |host: Host| {
        let (address, mut mailbox) = host.mailbox_with::<Question>(MailboxCapacity::Reject(1));
        drop(address.call(|reply| (0, reply)).start());
        let second = Duration::from_secs(1);
        let begin = host.now();
        let limited = address.call_wait(|reply| (1, reply)).timeout(second);
        assert_eq!(limited.await, Err(CallError::TimedOut));
        assert_eq!(host.now() - begin, second);
        drop(mailbox.try_receive());
        assert!(mailbox.try_receive().is_none(), "the request is not sent");
        // The time limit also applies to the reply.
        let unanswered = address.call_wait(|reply| (2, reply)).timeout(second);
        assert_eq!(unanswered.await, Err(CallError::TimedOut));
        assert_eq!(host.now() - begin, 2 * second);
        let mut dropped = address.call_wait(|reply| (3, reply));
        let mut waiting = address.call_wait(|reply| (4, reply));
        assert!((&mut dropped).now_or_never().is_none() && (&mut waiting).now_or_never().is_none());
        drop(dropped);
        drop(mailbox);
        assert_eq!(waiting.await, Err(CallError::Send(SendErrorKind::NoProcess)));
        assert_eq!(host.counters().late_replies, 0);
        Ok::<_, Exit>(())
    });
}

/// 9.2a: while a request waits for free space, the inspection shows the wait for free space. When the request is in the
/// mailbox, the inspection shows the call.
#[test]
fn the_inspection_shows_both_waits_of_a_call() {
    let rt = lone();
    let (address, mut mailbox) = full(&rt);
    let to = address.clone();
    let caller = rt.spawn(async move |ctx: Context| ctx.call_wait(&to, |reply| (1, reply)).await);
    settle(&rt);
    let waits = || rt.process_details(caller.pid()).expect("it waits").waits_for;
    assert!(matches!(waits()[..], [WaitsFor::Room { .. }]), "{:?}", waits());
    drop(mailbox.try_receive());
    settle(&rt);
    assert!(matches!(waits()[..], [WaitsFor::Call { .. }]), "{:?}", waits());
    mailbox.try_receive().expect("the request").1.send(5);
    assert_eq!(rt.block_on(caller).unwrap(), 5);
}

/// 2.3d: a send that waits for free space ends at its time limit and returns its message. This also holds if the
/// receiver accepts messages of any type. The first poll sends the message even if the time limit is zero.
#[test]
fn a_send_that_waits_for_free_space_has_a_time_limit() {
    check(0..4, async |host: Host| {
        let (typed, mut mailbox) = host.mailbox_with::<u8>(MailboxCapacity::Reject(1));
        let (untyped, _any) = host.mailbox_with::<Payload>(MailboxCapacity::Reject(1));
        typed.send_wait(0).timeout(Duration::ZERO).await?;
        host.send_wait(untyped.pid(), 0_u8).timeout(Duration::ZERO).await?;
        let begin = host.now();
        for to in [typed.pid(), untyped.pid()] {
            let refused = host.send_wait(to, 1_u8).timeout(Duration::from_secs(1)).await.unwrap_err();
            assert_eq!((refused.kind(), refused.into_message()), (SendErrorKind::TimedOut, 1));
        }
        assert_eq!(host.now() - begin, Duration::from_secs(2));
        assert_eq!((typed.mailbox_len(), untyped.mailbox_len()), (1, 1));
        // If a completed future is polled again, the poll returns `Pending`. A completed future has no timer.
        let mut ended = [typed.send_wait(1).timeout(Duration::ZERO), typed.send_wait(1).timeout(Duration::MAX)];
        assert_eq!((&mut ended[0]).await.unwrap_err().kind(), SendErrorKind::TimedOut);
        assert!((&mut ended[1]).now_or_never().is_none());
        assert_eq!(mailbox.try_receive(), Some(0));
        (&mut ended[1]).await?;
        for future in &mut ended {
            assert!(future.is_terminated() && future.now_or_never().is_none());
        }
        assert_eq!(mailbox.try_receive(), Some(1));
        let mut sent = typed.send_wait(0).timeout(Duration::ZERO);
        (&mut sent).await?;
        assert!(sent.is_terminated() && (&mut sent).now_or_never().is_none());
        // A message that enters the mailbox in time is not returned.
        let mut sent = typed.send_wait(2).timeout(Duration::from_secs(1));
        assert!((&mut sent).now_or_never().is_none());
        assert_eq!(mailbox.try_receive(), Some(0));
        host.sleep(Duration::from_secs(2)).await;
        sent.await?;
        assert_eq!(mailbox.try_receive(), Some(2));
        Ok::<_, Exit>(())
    });
}

/// 2.3a, 4.9d: a limit of a process lowers the capacity of the mailbox of the process, and does not change the policy
/// of the mailbox. An unbounded mailbox with a limit refuses the messages above this limit. If the limit is 0, the
/// mailbox refuses all messages.
#[test]
fn a_limit_keeps_the_policy_of_the_mailbox() {
    let rt = lone();
    let kept = |bound: MailboxCapacity, limit: usize| {
        let limits = Limits::new().mailbox_capacity(limit);
        let body = async |mut ctx: Context<u8>| -> Result<Vec<u8>, Exit> {
            ctx.cancelled().await;
            Ok(std::iter::from_fn(|| ctx.try_receive()).collect())
        };
        let process = rt.process().mailbox_capacity(bound).limits(limits).spawn(body).unwrap();
        let refused = (0..4_u8).filter(|&n| process.send(n).is_err()).count();
        process.cancel("enough", Duration::MAX);
        (refused, rt.block_on(process).unwrap())
    };
    assert_eq!(kept(MailboxCapacity::DropOldest(3), 2), (0, vec![2, 3]));
    assert_eq!(kept(MailboxCapacity::DropNewest(3), 2), (0, vec![0, 1]));
    assert_eq!(kept(MailboxCapacity::Reject(3), 2), (2, vec![0, 1]));
    assert_eq!(kept(MailboxCapacity::Unbounded, 2), (2, vec![0, 1]));
    assert_eq!(kept(MailboxCapacity::DropOldest(1), 2), (0, vec![3]));
    assert_eq!(kept(MailboxCapacity::DropOldest(3), 0), (4, vec![]));
}

/// 2.3a: the length of a mailbox includes the unread messages and the urgent messages, but no events.
#[test]
fn the_length_of_a_mailbox_counts_its_messages() {
    let rt = lone();
    let (address, mut mailbox) = rt.mailbox::<u8>();
    let ends = rt.spawn(async |_: Context| ());
    mailbox.monitor(ends.pid());
    rt.block_on(ends).unwrap();
    assert_eq!(address.mailbox_len(), 0);
    address.send(1).unwrap();
    address.send_urgent(2).unwrap();
    assert_eq!(address.mailbox_len(), 2);
    assert_eq!(mailbox.try_receive(), Some(2));
    assert_eq!(address.mailbox_len(), 1);
}

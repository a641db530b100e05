//! Section 2.6 of the specification: calls to many processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use futures::FutureExt;
use futures::future::FusedFuture;
use procession::observe::ProcessQuery;
use procession::*;

use crate::{everywhere, on_workers, step_aside, two, within};

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);

/// A request. The `Arc` counts the requests that still exist.
struct Ask(Arc<()>, Reply<u64>);

fn lone() -> Runtime {
    Runtime::builder().workers(0).build().unwrap()
}

/// Returns `n` mailboxes outside any process, with their addresses.
fn mailboxes<const N: usize>(rt: &Host) -> ([Address<Reply<u64>>; N], Vec<Mailbox<Reply<u64>>>) {
    let mut mailboxes = Vec::new();
    let addresses = std::array::from_fn(|_| {
        let (address, mailbox) = rt.mailbox();
        mailboxes.push(mailbox);
        address
    });
    (addresses, mailboxes)
}

fn take(mailbox: &mut Mailbox<Reply<u64>>) -> Reply<u64> {
    mailbox.try_receive().expect("a request")
}

/// Spawns a member of the group, and waits until the member has joined.
async fn member(host: &Host, group: Group<Reply<u64>>, answer: u64) -> JoinHandle<(), Reply<u64>> {
    let body = async move |mut ctx: Context<Reply<u64>>| -> Result<(), Exit> {
        ctx.join_group(group);
        ctx.mark_started();
        loop {
            ctx.receive().await?.send(answer);
        }
    };
    let member = host.process().manual_start().spawn(body).unwrap();
    member.started().await.unwrap();
    member
}

/// Runs every runnable process of a runtime without workers.
fn settle(rt: &Runtime) {
    rt.block_on(async {
        for _ in 0..50 {
            step_aside().await;
        }
    });
}

/// 2.6e: a call to a group returns the answers of all members in the order in which the members joined. The call works
/// outside any process, inside a process through its own handle, and inside a process through a host.
#[test]
fn a_call_to_a_group_returns_all_answers_in_order() {
    const GROUP: Group<Reply<u64>> = Group::new("all");
    everywhere(async |host| {
        let mut expected = Vec::new();
        for n in 0..5 {
            expected.push((member(&host, GROUP, n).await.pid(), Ok(n)));
        }
        assert_eq!(host.multi_call(GROUP, |reply| reply).await, expected);
        let inside = host.spawn(async |ctx: Context| {
            let own = ctx.multi_call(GROUP, |reply| reply).timeout(HOUR).await;
            assert_eq!(ctx.host().multi_call(GROUP, |reply| reply).timeout(HOUR).await, own);
            Ok::<_, Exit>(own)
        });
        assert_eq!(inside.await.unwrap(), expected);
        expected.iter().for_each(|(pid, _)| host.kill(*pid).unwrap());
    });
}

/// 2.6e, 2.6c: if a process has exited before the call, or exits before its reply, the result for this process is the
/// cause of the failure. This result arrives without a delay. The other processes still answer.
#[test]
fn a_call_to_a_dead_process_fails_at_once_and_the_other_processes_answer() {
    everywhere(async |host| {
        let answers = host.spawn(async |mut ctx: Context<Reply<u64>>| {
            let _ = ctx.receive().await.map(|reply| reply.send(1));
        });
        let drops = host.spawn(async |mut ctx: Context<Reply<u64>>| {
            drop(ctx.receive().await);
            ctx.receive().await.map(drop)
        });
        let exits = host.spawn(async |mut ctx: Context<Reply<u64>>| -> Result<(), Exit> {
            let _reply = ctx.receive().await?;
            ctx.host().kill(ctx.pid())?;
            futures::future::pending().await
        });
        let dead = host.spawn(async |_: Context<Reply<u64>>| {});
        let dead_address = dead.address();
        dead.await.unwrap();
        let callees = [dead_address, exits.address(), drops.address(), answers.address()];
        let pids = callees.each_ref().map(Address::pid);
        let found = host.multi_call(&callees, |reply| reply).await;
        let expected = [
            Err(CallError::Send(SendErrorKind::NoProcess)),
            Err(CallError::Died(Exit::Killed)),
            Err(CallError::Dropped),
            Ok(1),
        ];
        assert_eq!(found, pids.into_iter().zip(expected).collect::<Vec<_>>());
        let _ = exits.await;
        drops.abort();
    });
}

/// 2.6e: one time limit applies to all calls together. If a process has not replied when the limit expires, its result
/// is `TimedOut`. The replies of the other processes are kept.
#[test]
fn a_time_limit_ends_the_calls_that_have_no_reply() {
    let mut simulation = Simulation::new(1);
    let host = simulation.host().clone();
    simulation.run(async move {
        let ([slow, quick], mut boxes) = mailboxes(&host);
        let begin = host.now();
        let call = host.multi_call(&[slow.clone(), quick.clone()], |reply| reply).timeout(SECOND).start();
        take(&mut boxes[1]).send(7);
        let answers = call.await;
        assert_eq!(host.now() - begin, SECOND);
        assert_eq!(answers, [(slow.pid(), Err(CallError::TimedOut)), (quick.pid(), Ok(7))]);
        let late = take(&mut boxes[0]);
        assert!(late.is_closed());
        late.send(8);
        assert_eq!(host.counters().late_replies, 1);

        // If the quorum is not reached before the time limit expires, the call fails. The error contains the answers so
        // far.
        let call = host.multi_call(&[slow.clone(), quick.clone()], |reply| reply).quorum(2).timeout(SECOND).start();
        take(&mut boxes[1]).send(9);
        let Err(CallError::NoQuorum(missed)) = call.await else { panic!("the quorum is not reached") };
        assert_eq!(host.now() - begin, 2 * SECOND);
        assert_eq!(missed.take_replies(), Some(vec![(quick.pid(), 9_u64)]));
        assert_eq!(missed.failures(), [(slow.pid(), CallError::TimedOut)]);
    });
}

/// 2.6e, 2.6d: the first reply ends the call, even if another process has already failed. The calls in flight are
/// cancelled, and their replies are counted as late.
#[test]
fn the_first_reply_wins_and_later_replies_are_counted() {
    let rt = lone();
    let (callees, mut boxes) = mailboxes::<3>(&rt);
    let mut call = rt.multi_call(&callees, |reply| reply).first().start();
    assert_eq!((&mut call).now_or_never(), None);
    drop(take(&mut boxes[0]));
    assert_eq!((&mut call).now_or_never(), None);
    take(&mut boxes[2]).send(5);
    assert_eq!((&mut call).now_or_never(), Some(Ok((callees[2].pid(), 5))));
    let late = take(&mut boxes[1]);
    assert!(late.is_closed() && call.is_terminated());
    late.send(6);
    assert_eq!(rt.counters().late_replies, 1);
    assert_eq!(call.now_or_never(), None, "the call has ended");
}

/// 2.6e: a call with a quorum of k ends when k processes have replied. The replies are in the order in which the call
/// names the processes.
#[test]
fn a_quorum_call_returns_exactly_the_replies_of_the_quorum() {
    let rt = lone();
    let (callees, mut boxes) = mailboxes::<4>(&rt);
    let mut call = rt.multi_call(&callees, |reply| reply).quorum(2).start();
    take(&mut boxes[3]).send(3);
    drop(take(&mut boxes[2]));
    assert_eq!((&mut call).now_or_never(), None);
    take(&mut boxes[1]).send(1);
    let replies = call.now_or_never().unwrap().unwrap();
    assert_eq!(replies, [(callees[1].pid(), 1), (callees[3].pid(), 3)]);
    assert!(take(&mut boxes[0]).is_closed());
    assert_eq!(rt.block_on(rt.multi_call(&callees, |reply| reply).quorum(0)), Ok(vec![]));
    assert!(boxes.iter_mut().all(|mailbox| mailbox.try_receive().is_none()), "nothing was sent");
}

/// 2.6e: a call fails as soon as its quorum cannot be reached any more, even if some processes have not answered yet.
/// The error contains the answers so far.
#[test]
fn a_call_fails_as_soon_as_its_quorum_cannot_be_reached() {
    let rt = lone();
    let (callees, mut boxes) = mailboxes::<4>(&rt);
    let mut call = rt.multi_call(&callees, |reply| reply).quorum(3).start();
    take(&mut boxes[0]).send(4);
    drop(take(&mut boxes[1]));
    assert_eq!((&mut call).now_or_never(), None, "three processes can still reply");
    drop(boxes.remove(2));
    let error = call.now_or_never().expect("only two processes can still reply").unwrap_err();
    let CallError::NoQuorum(missed) = &error else { panic!("{error}") };
    let failures = [(callees[1].pid(), CallError::Dropped), (callees[2].pid(), CallError::Dropped)];
    assert_eq!((missed.needed(), missed.replied(), missed.failures()), (3, 1, &failures[..]));
    assert_eq!(missed.take_replies::<u8>(), None, "the replies have another type");
    assert_eq!(missed.clone().take_replies(), Some(vec![(callees[0].pid(), 4_u64)]));
    assert_eq!(missed.take_replies::<u64>(), None, "the replies were taken");
    let text = format!(
        "1 of the 3 needed replies arrived; process {}: the called process dropped the `Reply` without an answer; 1 more failed",
        callees[1].pid()
    );
    assert_eq!(error.to_string(), text);
    let exit = Exit::failed(error.clone());
    assert_eq!(exit.error::<CallError>(), Some(&error), "a body returns the error with `?`");
    assert!(take(&mut boxes[2]).is_closed());
}

/// 2.6e: if fewer processes are called than the quorum needs, no request is sent, and the requests are handed back.
#[test]
fn a_quorum_larger_than_the_number_of_processes_sends_nothing() {
    let rt = lone();
    let (callees, mut boxes) = mailboxes::<2>(&rt);
    let mut call = rt.multi_call(&callees, |reply| reply).quorum(3).start();
    let error = (&mut call).now_or_never().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "0 of the 3 needed replies arrived; too few processes were called");
    assert!(boxes.iter_mut().all(|mailbox| mailbox.try_receive().is_none()));
    let undelivered = call.take_undelivered();
    assert!(undelivered.iter().map(|(pid, _)| *pid).eq(callees.iter().map(Address::pid)));
    assert!(undelivered.iter().all(|(_, reply)| reply.is_closed()));
    assert_eq!(call.take_undelivered().len(), 0);
}

/// 2.6e: a call to a group without members, or to a name without a process, sends no request. The call returns an empty
/// list immediately. With `first` or `quorum`, the call fails immediately.
#[test]
fn a_multi_call_without_receivers_ends_immediately() {
    const EMPTY: Group<Reply<u64>> = Group::new("empty");
    let rt = lone();
    assert_eq!(rt.multi_call(EMPTY, |reply| reply).now_or_never(), Some(vec![]));
    assert_eq!(rt.multi_call("absent", |reply: Reply<u64>| reply).now_or_never(), Some(vec![]));
    for error in [
        rt.multi_call(EMPTY, |reply| reply).first().now_or_never().unwrap().unwrap_err(),
        rt.multi_call(EMPTY, |reply| reply).quorum(1).now_or_never().unwrap().unwrap_err(),
    ] {
        assert_eq!(error.to_string(), "0 of the 1 needed replies arrived; too few processes were called");
    }
}

/// 2.6e: one process can be called through its pid, its name, its address and its handle. If a pid belongs to a process
/// with another message type, the result contains the error of the send.
#[test]
fn any_target_can_be_called() {
    const NAME: Name<Reply<u64>> = Name::new("only");
    let rt = lone();
    let body = async |mut ctx: Context<Reply<u64>>| -> Result<(), Exit> {
        loop {
            ctx.receive().await?.send(3);
        }
    };
    let only = rt.process().name(NAME).spawn(body).unwrap();
    let (pid, address) = (only.pid(), only.address());
    let expected = [(pid, Ok(3))];
    assert_eq!(rt.block_on(rt.multi_call(pid, |reply: Reply<u64>| reply)), expected);
    assert_eq!(rt.block_on(rt.multi_call(NAME, |reply| reply)), expected);
    assert_eq!(rt.block_on(rt.multi_call("only", |reply: Reply<u64>| reply)), expected);
    assert_eq!(rt.block_on(rt.multi_call(&address, |reply| reply)), expected);
    assert_eq!(rt.block_on(rt.multi_call(&only, |reply| reply)), expected);
    assert_eq!(rt.block_on(rt.multi_call(&vec![address.clone()], |reply| reply)), expected);
    let [(found, Err(CallError::Send(SendErrorKind::WrongType { .. })))] =
        &rt.block_on(rt.multi_call(pid, |reply: Reply<u64>| (1, reply)))[..]
    else {
        panic!("the process takes no such message")
    };
    assert_eq!(*found, pid);
    rt.kill(pid).unwrap();
    rt.block_on(only).unwrap_err();
    let gone = [(pid, Err(CallError::Send(SendErrorKind::NoProcess)))];
    assert_eq!(rt.block_on(rt.multi_call(pid, |reply: Reply<u64>| reply)), gone);
}

/// 2.6e: a call to a pool calls each member exactly once.
#[test]
fn a_call_to_a_pool_calls_each_member() {
    on_workers(async |host| {
        let body = async |mut ctx: Context<Reply<Pid>>| -> Result<(), Exit> {
            loop {
                let reply = ctx.receive().await?;
                reply.send(ctx.pid());
            }
        };
        let pool = host.process().name("pool").spawn_pool(Pool::new(3, body)).unwrap();
        pool.started().await.unwrap();
        for _ in 0..3 {
            let mut answers = host.multi_call(&pool, |reply| reply).await;
            assert!(answers.iter().all(|(pid, answer)| answer.as_ref() == Ok(pid)), "{answers:?}");
            answers.dedup_by_key(|(pid, _)| *pid);
            assert_eq!(answers.len(), 3);
            assert_eq!(host.multi_call("pool", |reply: Reply<Pid>| reply).quorum(3).await.unwrap().len(), 3);
        }
        pool.abort();
    });
}

/// 2.6e: `first`, `quorum` and a time limit work for a group and for a pool.
#[test]
fn the_methods_first_and_quorum_and_timeout_work_for_groups_and_pools() {
    const GROUP: Group<Reply<Pid>> = Group::new("members");
    let mut simulation = Simulation::new(1);
    let host = simulation.host().clone();
    simulation.run(async move {
        // Number of requests that the members still answer. The members store all further requests and do not answer
        // them.
        let answers = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&answers);
        let body = move |mut ctx: Context<Reply<Pid>>| {
            let left = Arc::clone(&left);
            async move {
                ctx.join_group(GROUP);
                let mut kept = Vec::new();
                while let Ok(reply) = ctx.receive().await {
                    match left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)) {
                        Ok(_) => reply.send(ctx.pid()),
                        Err(_) => kept.push(reply),
                    }
                }
            }
        };
        let pool = host.spawn_pool(Pool::new(3, body));
        while host.members(GROUP).len() < 3 {
            step_aside().await;
        }
        for is_group in [true, false] {
            let call = || match is_group {
                true => host.multi_call(GROUP, |reply| reply).timeout(SECOND),
                false => host.multi_call(&pool, |reply| reply).timeout(SECOND),
            };
            let all = call().await;
            assert!(all.len() == 3 && all.iter().all(|(_, answer)| *answer == Err(CallError::TimedOut)), "{all:?}");
            answers.store(1, SeqCst);
            let (pid, reply) = call().first().await.unwrap();
            assert_eq!(pid, reply);
            answers.store(2, SeqCst);
            let replies = call().quorum(2).await.unwrap();
            assert!(replies.len() == 2 && replies[0].0 != replies[1].0, "{replies:?}");
            assert!(replies.iter().all(|(pid, reply)| pid == reply), "{replies:?}");
            answers.store(1, SeqCst);
            let Err(CallError::NoQuorum(missed)) = call().quorum(2).await else { panic!("two members are silent") };
            assert_eq!(missed.failures().len(), 2);
        }
        pool.abort();
    });
}

/// 2.6e: a pool that has not started yet, and a pool without a member, each count as one process. One member of the
/// pool answers.
#[test]
fn a_multi_call_to_a_starting_or_empty_pool_is_answered_by_one_member() {
    let body = async |mut ctx: Context<Reply<Pid>>| -> Result<(), Exit> {
        loop {
            let reply = ctx.receive().await?;
            reply.send(ctx.pid());
        }
    };
    let all = within(60, move || {
        let rt = lone();
        rt.block_on(async {
            let mut all = Vec::new();
            // The start of 600 members takes several turns. The pool exists from the first turn on. If the pool is
            // keyed, its list of members is empty until the start is complete. Otherwise, the list grows.
            for pool in [Pool::new(600, body), Pool::new(600, body).by_key(|_| 0)] {
                let before = rt.processes_alive();
                let pool = rt.spawn_pool(pool);
                while rt.processes_alive() < before + 2 {
                    step_aside().await;
                }
                assert!(pool.started().now_or_never().is_none(), "the pool is still starting");
                all.push(rt.multi_call(&pool, |reply| reply).await);
            }
            let empty = rt.spawn_pool(Pool::new(0, body));
            empty.started().await.unwrap();
            all.push(rt.multi_call(&empty, |reply| reply).await);
            all
        })
    });
    for answers in all {
        assert!(matches!(&answers[..], [(_, Ok(_))]), "{} answers", answers.len());
    }
}

/// 2.6e: if the mailbox of a callee is full, the caller gets its request to this callee back. The other callees answer.
#[test]
fn a_multi_call_returns_the_requests_that_full_mailboxes_refuse() {
    let rt = lone();
    let body = async |mut ctx: Context<(u64, Reply<u64>)>| -> Result<(), Exit> {
        loop {
            let (n, reply) = ctx.receive().await?;
            reply.send(n);
        }
    };
    let deaf = async |_: Context<(u64, Reply<u64>)>| futures::future::pending::<()>().await;
    let full = rt.process().mailbox_capacity(MailboxCapacity::Reject(1)).spawn(deaf).unwrap();
    let _waits = full.call(|reply| (0, reply)).start();
    let open = rt.spawn(body);
    let refused = rt.counters().refused;
    let mut next = 0;
    let mut call = rt.multi_call(&[full.address(), open.address()], |reply| {
        next += 1;
        (next, reply)
    });
    let answers = rt.block_on(&mut call);
    assert_eq!(answers, [(full.pid(), Err(CallError::Send(SendErrorKind::Full))), (open.pid(), Ok(2))]);
    assert_eq!(rt.counters().refused, refused + 1);
    let [(pid, (1, reply))] = &call.take_undelivered()[..] else { panic!("one request comes back") };
    assert!(*pid == full.pid() && reply.is_closed());
}

/// 2.6e: if the future of a multi-call is dropped, before or after its first poll, the requests and the calls of this
/// future are dropped too.
#[test]
fn a_dropped_call_leaks_nothing() {
    let rt = lone();
    let (address, mut mailbox) = rt.mailbox::<Ask>();
    let alive = Arc::new(());
    let callees = vec![address; 3];
    let make = || rt.multi_call(&callees, |reply| Ask(Arc::clone(&alive), reply));
    let unpolled = make();
    assert_eq!(Arc::strong_count(&alive), 4);
    drop(unpolled);
    assert_eq!(Arc::strong_count(&alive), 1);
    assert!(mailbox.try_receive().is_none());
    let mut polled = make().first();
    assert!((&mut polled).now_or_never().is_none());
    drop(polled);
    for _ in 0..3 {
        let Ask(copy, reply) = mailbox.try_receive().expect("the request was sent");
        assert!(reply.is_closed() && Arc::ptr_eq(&copy, &alive));
    }
    assert_eq!(Arc::strong_count(&alive), 1);
    // A reply that arrived and was not read is dropped with the future.
    let (address, mut mailbox) = rt.mailbox::<Reply<Arc<()>>>();
    let unread = rt.multi_call(&[address], |reply| reply).start();
    mailbox.try_receive().unwrap().send(Arc::clone(&alive));
    assert_eq!(Arc::strong_count(&alive), 2);
    drop(unread);
    assert_eq!(Arc::strong_count(&alive), 1);
}

/// 2.6e, 9.2a: if a process waits for a multi-call, each call of the multi-call counts as a wait of the process. When a
/// call ends, it no longer counts as a wait.
#[test]
fn each_call_counts_as_a_wait_of_its_process() {
    for own_handle in [true, false] {
        let rt = lone();
        let (callees, mut boxes) = mailboxes::<3>(&rt);
        let asks = rt.spawn(async move |mut ctx: Context<()>| {
            let call = match own_handle {
                true => ctx.multi_call(&callees, |reply| reply),
                false => ctx.host().multi_call(&callees, |reply| reply),
            };
            let replies = call.quorum(2).await?.len();
            ctx.receive().await?;
            Ok::<_, Exit>(replies)
        });
        let waits = || {
            settle(&rt);
            let all = rt.processes(&ProcessQuery::new());
            all.iter().find(|info| info.pid == asks.pid()).expect("it is alive").waits
        };
        assert_eq!(waits(), 3, "own handle: {own_handle}");
        take(&mut boxes[0]).send(1);
        assert_eq!(waits(), 2, "own handle: {own_handle}");
        take(&mut boxes[1]).send(1);
        assert_eq!(waits(), 0, "own handle: {own_handle}");
        asks.send(()).unwrap();
        assert_eq!(rt.block_on(asks).unwrap(), 2);
    }
}

/// 2.6e: a thousand processes on several workers answer one call, and no answer is lost.
#[test]
fn a_thousand_processes_answer_one_call() {
    within(60, || {
        let rt = two();
        let body = async |mut ctx: Context<Reply<u64>>| -> Result<(), Exit> {
            ctx.receive().await?.send(1);
            Ok(())
        };
        let callees: Vec<_> = (0..1000).map(|_| rt.spawn(body).address()).collect();
        let answers = futures::executor::block_on(rt.multi_call(&callees, |reply| reply));
        assert!(answers.iter().zip(&callees).all(|((pid, answer), to)| *pid == to.pid() && *answer == Ok(1)));
        assert_eq!(answers.len(), 1000);
    });
}

/// 2.6e, 6.4g: a child with a kept mailbox counts as one process. The request waits in the mailbox. The next instance
/// first reads the messages that were sent earlier, and then the request. The answer contains the pid of the mailbox.
#[test]
fn a_call_to_a_kept_mailbox_waits_for_the_next_instance() {
    let rt = lone();
    let body = async |mut ctx: Context<Option<Reply<u64>>>| -> Result<(), Exit> {
        let mut sent_before = 0;
        loop {
            match ctx.receive().await? {
                Some(reply) => reply.send(sent_before),
                None => sent_before += 1,
            }
        }
    };
    let tree = rt.spawn_process(Supervisor::one_for_one().add(Child::new("kept", body).keep_mailbox()));
    rt.block_on(tree.started()).unwrap();
    let kept = rt.whereis("kept").unwrap();
    // After this stop, no instance runs before the test requests a start.
    let stop = tree.call(|reply| supervisor::SupervisorMessage::TerminateChild(kept.into(), reply));
    assert!(rt.block_on(stop).unwrap());
    for _ in 0..2 {
        rt.send("kept", None::<Reply<u64>>).unwrap();
    }
    let mut by_name = rt.multi_call("kept", Some::<Reply<u64>>);
    let mut by_pid = rt.multi_call(kept, Some::<Reply<u64>>);
    assert!((&mut by_name).now_or_never().is_none() && (&mut by_pid).now_or_never().is_none());
    let start = tree.call(|reply| supervisor::SupervisorMessage::RestartChild("kept".into(), reply));
    assert_eq!(rt.block_on(start).unwrap(), Ok(kept));
    assert_eq!(rt.block_on(by_name), [(kept, Ok(2))]);
    assert_eq!(rt.block_on(by_pid), [(kept, Ok(2))]);
}

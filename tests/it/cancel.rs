//! Sections 6.1, 6.2 and 6.6 of the specification: cancel tokens and deadlines. A process passes its token and its
//! deadline on to the processes that it spawns.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context as Cx, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use futures::executor::block_on;
use futures::future::BoxFuture;
use procession::{
    BoxError, CancelToken, Child, Context, Event, Events, Exit, Host, Name, Next, Process, Reason, RestartPolicy,
    Runtime, StepOutput, Supervisor, check, future::Cancelled, should_yield,
};

use crate::lives::settle;
use crate::time::timed;
use crate::{everywhere, shut_down, two, within};

const LONG: Duration = Duration::from_secs(3600);

fn lone() -> Runtime {
    Runtime::builder().workers(0).build().unwrap()
}

fn is_cancelled(exit: &Exit, why: &str) -> bool {
    matches!(exit, Exit::Cancelled(reason) if *reason == why)
}

/// Body that waits for its cancellation.
async fn idle(mut ctx: Context<()>) -> Result<(), Exit> {
    ctx.receive().await
}

/// Waker with a name. When the waker is woken, the waker records its name.
struct RecordingWaker(&'static str, Arc<Mutex<Vec<&'static str>>>);

impl Wake for RecordingWaker {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().push(self.0);
    }
}

/// 6.6c: a cancelled token first notifies the processes of its child tokens, beginning with the newest child token.
/// Then the token notifies the processes of the token itself. Each child process is notified before its parent process.
/// The token's `cancelled` future resolves last.
#[test]
fn a_token_notifies_children_before_parents() {
    let rt = lone();
    let all = CancelToken::new();
    let a = all.child();
    let b = all.child();
    let below_b = b.child();
    let waits: Vec<(&'static str, Cancelled)> = rt.block_on(async {
        let parent = rt.process().cancel_token(&all).spawn(async |mut ctx: Context<()>| {
            let child = ctx.spawn(async |ctx: Context<()>| Ok::<_, Exit>(ctx.cancelled()));
            let child_waits = child.await?;
            // This child is still alive when the token is cancelled. The child is notified before its parent.
            let child = ctx.spawn(idle);
            child.started().await?;
            let waits = [("an ended child", child_waits), ("parent", ctx.cancelled())];
            Ok::<_, Exit>((waits, child, ctx.receive().await))
        });
        drop(parent);
        let spawn = |token: &CancelToken| {
            let (give, waits) = futures::channel::oneshot::channel();
            let process = rt.process().cancel_token(token).spawn(async move |mut ctx: Context<()>| {
                let me = ctx.clone();
                let child = ctx.spawn(async move |mut ctx: Context<()>| {
                    let _ = give.send((me.cancelled(), ctx.cancelled()));
                    ctx.receive().await
                });
                let ended = ctx.receive().await;
                child.await.and(ended)
            });
            drop(process);
            waits
        };
        let (all_parent, all_child) = spawn(&all).await.unwrap();
        let (a_parent, a_child) = spawn(&a).await.unwrap();
        let (below_parent, below_child) = spawn(&below_b).await.unwrap();
        let (b_parent, b_child) = spawn(&b).await.unwrap();
        vec![
            ("all", all.cancelled()),
            ("all's parent", all_parent),
            ("all's child", all_child),
            ("a", a.cancelled()),
            ("a's parent", a_parent),
            ("a's child", a_child),
            ("b", b.cancelled()),
            ("b's parent", b_parent),
            ("b's child", b_child),
            ("below b", below_b.cancelled()),
            ("below b's parent", below_parent),
            ("below b's child", below_child),
        ]
    });
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waits: Vec<_> = waits
        .into_iter()
        .map(|(name, wait)| (wait, Waker::from(Arc::new(RecordingWaker(name, Arc::clone(&order))))))
        .collect();
    let mut poll = || -> Vec<Poll<Reason>> {
        waits.iter_mut().map(|(wait, waker)| Pin::new(wait).poll(&mut Cx::from_waker(waker))).collect()
    };
    assert!(poll().iter().all(Poll::is_pending));
    assert!(all.cancel("over", LONG) && !all.cancel("again", LONG) && !b.cancel("again", LONG));
    assert_eq!(
        *order.lock().unwrap(),
        [
            "below b's child",
            "below b's parent",
            "below b",
            "b's child",
            "b's parent",
            "b",
            "a's child",
            "a's parent",
            "a",
            "all's child",
            "all's parent",
            "all",
        ]
    );
    assert!(poll().iter().all(|told| matches!(told, Poll::Ready(reason) if *reason == "over")));
    assert!(all.reason().is_some_and(|reason| reason == "over") && below_b.is_cancelled());
}

/// 6.6a, 6.6c: if a process is spawned under a cancelled token, the process is already cancelled when its first step
/// begins. A child token of a cancelled token is cancelled too.
#[test]
fn a_cancelled_token_also_cancels_processes_that_are_spawned_later() {
    let rt = lone();
    let token = CancelToken::new();
    let before = token.child();
    assert!(token.cancel("closed", LONG));
    for token in [token.clone(), before, token.child(), token.child().child()] {
        assert!(token.is_cancelled() && !token.cancel("again", LONG));
        assert_eq!(block_on(token.cancelled()), Reason::from("closed"));
        let late = rt.process().cancel_token(&token).spawn(async |mut ctx: Context<()>| {
            assert!(ctx.is_cancelled(), "before its first step");
            assert!(ctx.cancelled().await == "closed");
            // A process may still run after its cancellation, and may spawn another process. The spawned process is
            // cancelled too.
            let child = ctx.spawn(idle);
            assert!(is_cancelled(&child.await.unwrap_err(), "closed"));
            ctx.receive().await
        });
        assert!(is_cancelled(&rt.block_on(late.unwrap()).unwrap_err(), "closed"));
    }
}

/// 6.6c: if every handle of a token is dropped, no process is cancelled. If the parent token is cancelled later, the
/// processes of the child token are cancelled too, although no handle of the child token exists.
#[test]
fn dropping_a_token_cancels_no_process() {
    let rt = lone();
    let all = CancelToken::new();
    let one = all.child();
    let process = rt.process().cancel_token(&one).spawn(idle).unwrap();
    drop(one);
    let unrelated = rt.process().cancel_token(&CancelToken::new()).spawn(idle).unwrap();
    rt.block_on(async {
        process.started().await.unwrap();
        unrelated.started().await.unwrap();
        assert!(!process.is_finished() && !unrelated.is_finished());
        all.cancel("over", LONG);
        assert!(is_cancelled(&process.await.unwrap_err(), "over"));
        unrelated.send(()).unwrap();
        unrelated.await.unwrap();
    });
}

/// 6.6c: a token stores no entry for an exited process. A token also stores no entry for a child token if all handles
/// of the child token are dropped.
#[test]
fn a_token_keeps_no_entry_for_exited_processes() {
    let rt = lone();
    let token = CancelToken::new();
    let (mut handles, mut children) = (Vec::new(), Vec::new());
    for _ in 0..100 {
        handles.push(rt.process().cancel_token(&token).spawn(async |_: Context<()>| {}).unwrap());
        children.push(token.child());
    }
    assert_eq!(format!("{token:?}"), "CancelToken { reason: None, children: 100, processes: 100 }");
    rt.block_on(futures::future::join_all(handles));
    drop(children);
    assert_eq!(format!("{token:?}"), "CancelToken { reason: None, children: 0, processes: 0 }");
}

/// 6.6a, 6.6c: a long chain of tokens can be cancelled and dropped on a small stack. A long chain of processes can be
/// cancelled too, even if each process passes a token and a value to the next process. A process inherits only one
/// value of each type, even if the chain is long.
#[test]
fn a_long_chain_of_tokens_can_be_cancelled_and_dropped_on_a_small_stack() {
    const CHAIN: usize = 100_000;
    struct Generation(usize);
    fn spawn_chain(ctx: &Context<()>, left: usize) {
        let token = ctx.cancel_token().expect("it was given one").child();
        let process = ctx.process().cancel_token(&token).value(Generation(left));
        let next = process.spawn(async move |mut ctx: Context<()>| -> Result<(), Exit> {
            assert_eq!(ctx.value::<Generation>().unwrap().0, left);
            match left {
                0 => ctx.receive().await,
                _ => {
                    spawn_chain(&ctx, left - 1);
                    Ok(())
                }
            }
        });
        drop(next.unwrap());
    }
    let small = || thread::Builder::new().stack_size(128 * 1024);
    let chain = || {
        let root = CancelToken::new();
        let mut leaf = root.child();
        (1..CHAIN).for_each(|_| leaf = leaf.child());
        (root, leaf)
    };
    let drops = move || {
        let (root, leaf) = chain();
        root.cancel("over", LONG);
        assert!(leaf.is_cancelled());
        drop(root);
        drop(leaf);
        // This chain of tokens is not cancelled. The test drops the leaf of the chain first.
        let (root, leaf) = chain();
        drop(leaf);
        assert_eq!(format!("{root:?}"), "CancelToken { reason: None, children: 0, processes: 0 }");
    };
    within(60, move || small().spawn(drops).unwrap().join().unwrap());
    within(60, move || {
        let rt = Runtime::builder().workers(1).stack_size(128 * 1024).build().unwrap();
        let root = CancelToken::new();
        let first = rt.process().cancel_token(&root).spawn(async |ctx: Context<()>| spawn_chain(&ctx, 20_000));
        block_on(first.unwrap()).unwrap();
        while rt.counters().spawned < 20_002 {
            thread::yield_now();
        }
        root.cancel("over", LONG);
        let shutdown = shut_down(rt, LONG);
        assert!(shutdown.left.is_empty(), "{shutdown:?}");
    });
}

/// 6.2e, 6.6a, 6.6b: a process inherits the deadline of its parent. If several deadlines apply to a process, the
/// earliest deadline applies, no matter which process has set this deadline.
#[test]
fn the_earliest_of_several_deadlines_applies() {
    timed(async |host, exact| {
        let now = host.now();
        let (soon, late) = (now + Duration::from_millis(30), now + LONG);
        let parent = host.process().deadline(soon).spawn(async move |mut ctx: Context<()>| -> Result<(), Exit> {
            assert_eq!(ctx.deadline(), Some(soon));
            let asks_for_more = ctx.process().deadline(late).spawn(async move |mut ctx: Context<()>| {
                assert_eq!(ctx.deadline(), Some(soon));
                let grandchild = ctx.spawn(async move |mut ctx: Context<()>| {
                    assert_eq!(ctx.deadline(), Some(soon));
                    ctx.receive().await
                });
                let ended = ctx.receive().await;
                assert!(is_cancelled(&grandchild.await.unwrap_err(), "deadline"));
                ended
            })?;
            // If a child has an earlier deadline than its parent, the child exits earlier.
            let at_once = ctx.process().deadline(now).spawn(idle)?;
            assert!(is_cancelled(&at_once.await.unwrap_err(), "deadline"));
            exact.check(ctx.now(), now);
            // A process that is spawned through the host has no parent, so the process inherits no deadline.
            let stranger = ctx.host().spawn(async |ctx: Context<()>| assert_eq!(ctx.deadline(), None));
            stranger.await?;
            let ended = ctx.receive().await;
            exact.check(ctx.now(), soon);
            assert!(is_cancelled(&asks_for_more.await.unwrap_err(), "deadline"));
            ended
        });
        assert!(is_cancelled(&parent.unwrap().await.unwrap_err(), "deadline"));
    });
}

/// 6.6a, 6.6c: while a token is being cancelled, a tree of processes under this token grows quickly. Every process that
/// is spawned in this time is cancelled too.
#[test]
fn processes_that_are_spawned_during_a_cancellation_are_cancelled() {
    #[derive(Default)]
    struct Books {
        begun: AtomicUsize,
        told: AtomicUsize,
    }
    fn grow(ctx: &Context<()>, books: &Arc<Books>) -> Result<(), Exit> {
        for _ in 0..2 {
            let books = Arc::clone(books);
            // About half of the children get a child token.
            let token = ctx.cancel_token().expect("it was given one");
            let token = if ctx.random().is_multiple_of(2) { token.child() } else { token };
            let child = ctx.process().cancel_token(&token).spawn(async move |mut ctx: Context<()>| {
                books.begun.fetch_add(1, SeqCst);
                // A cancelled process spawns no more children. If a process missed the cancellation, the tree would
                // grow to the limit.
                if !ctx.is_cancelled() && books.begun.load(SeqCst) < 50_000 {
                    grow(&ctx, &books)?;
                }
                let ended = ctx.receive().await;
                assert!(is_cancelled(ended.as_ref().unwrap_err(), "over"));
                books.told.fetch_add(1, SeqCst);
                ended
            });
            drop(child?);
        }
        Ok(())
    }
    within(60, || {
        for round in 0..50 {
            let rt = two();
            let token = CancelToken::new();
            let books = Arc::<Books>::default();
            let seed = Arc::clone(&books);
            let first = rt.process().cancel_token(&token).spawn(async move |mut ctx: Context<()>| {
                grow(&ctx, &seed)?;
                ctx.receive().await
            });
            while books.begun.load(SeqCst) < 20 * round {
                thread::yield_now();
            }
            token.cancel("over", LONG);
            assert!(is_cancelled(&block_on(first.unwrap()).unwrap_err(), "over"));
            while rt.counters().spawned > rt.counters().exited {
                thread::yield_now();
            }
            assert_eq!(books.begun.load(SeqCst), books.told.load(SeqCst), "round {round}");
        }
    });
}

/// 6.6c: a process may cancel its own token, in a hand-written step and in an async body.
#[test]
fn a_process_can_cancel_its_own_token() {
    struct Raw(bool);
    impl Process for Raw {
        type Message = ();
        type Output = bool;
        fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<bool>, Exit> {
            if !self.0 {
                self.0 = true;
                let token = out.cancel_token().expect("it was given one");
                assert!(token.cancel("enough", LONG) && token.is_cancelled() && out.is_cancelled());
                return Ok(Next::Wait);
            }
            let told: Vec<_> = events.collect();
            let [Event::Cancel { reason, .. }] = &told[..] else { panic!("{told:?}") };
            Ok(Next::Done(*reason == "enough"))
        }
    }
    everywhere(async |host| {
        let body = host.process().cancel_token(&CancelToken::new()).spawn(async |mut ctx: Context<()>| {
            let sibling = ctx.spawn(idle);
            let token = ctx.cancel_token().expect("it was given one");
            assert!(token.cancel("enough", LONG));
            assert!(token.is_cancelled() && ctx.is_cancelled());
            assert!(is_cancelled(&sibling.await.unwrap_err(), "enough"));
            ctx.receive().await
        });
        assert!(is_cancelled(&body.unwrap().await.unwrap_err(), "enough"));
        let raw = host.process().cancel_token(&CancelToken::new()).spawn_process(Raw(false));
        assert!(raw.unwrap().await.unwrap());
    });
}

/// 6.6c: any thread may wait for the cancellation of a token, in any executor. If the waker of one waiting task panics,
/// the other waiting tasks are still notified.
#[test]
fn a_token_can_be_awaited_on_any_thread() {
    struct Fatal;
    impl Wake for Fatal {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics");
        }
    }
    within(60, || {
        let rt = two();
        let token = CancelToken::new();
        let mut fatal = token.child().cancelled();
        let waker = Waker::from(Arc::new(Fatal));
        assert!(Pin::new(&mut fatal).poll(&mut Cx::from_waker(&waker)).is_pending());
        let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let ready = Arc::new(Barrier::new(4));
        let waits = |name: &str, wait: Box<dyn FnOnce(Cancelled) -> Reason + Send>| {
            let (ready, cancelled) = (Arc::clone(&ready), token.cancelled());
            let run = move || {
                ready.wait();
                wait(cancelled)
            };
            thread::Builder::new().name(name.to_owned()).spawn(run).unwrap()
        };
        let threads = [
            waits("futures", Box::new(block_on)),
            waits("smol", Box::new(smol::block_on)),
            waits("tokio", Box::new(move |wait| tokio.block_on(wait))),
        ];
        // This process does not belong to the token, but the process can wait for the cancellation of the token.
        let wait = token.cancelled();
        let other = rt.spawn(async |_: Context| Ok::<_, Exit>(wait.await));
        block_on(other.started()).unwrap();
        ready.wait();
        assert!(token.cancel("over", LONG));
        for thread in threads {
            assert!(thread.join().unwrap() == "over");
        }
        assert!(block_on(other).unwrap() == "over");
        assert!(matches!(Pin::new(&mut fatal).poll(&mut Cx::from_waker(&waker)), Poll::Ready(_)));
    });
}

/// 6.6c: two threads cancel a parent token and its child token concurrently, with different reasons. Every process is
/// notified once, with one of the two reasons. For each token, only the first call of `cancel` returns true, and the
/// token keeps the reason of this call.
#[test]
fn a_parent_and_a_child_token_can_be_cancelled_concurrently() {
    within(60, || {
        let rt = two();
        for _ in 0..300 {
            let parent = CancelToken::new();
            let child = parent.child();
            let grandchild = child.child();
            let [above, middle, below] = [&parent, &child, &grandchild].map(|token| {
                let told = async |mut ctx: Context<()>| {
                    let mut told = Vec::new();
                    loop {
                        match ctx.event().await {
                            Event::Cancel { reason, .. } => told.push(reason),
                            Event::Message(()) => return told,
                            other => panic!("{other:?}"),
                        }
                    }
                };
                rt.process()
                    .cancel_token(token)
                    .spawn(async move |ctx: Context<()>| Ok::<_, Exit>(told(ctx).await))
                    .unwrap()
            });
            let start = Barrier::new(2);
            let child_first = thread::scope(|s| {
                let cancels = s.spawn(|| {
                    start.wait();
                    child.cancel("child", LONG)
                });
                start.wait();
                assert!(parent.cancel("parent", LONG), "nobody else does");
                cancels.join().unwrap()
            });
            let by = if child_first { "child" } else { "parent" };
            assert_eq!(child.reason().unwrap(), Reason::from(by));
            for (process, by) in [(above, "parent"), (middle, by)] {
                process.send(()).unwrap();
                assert_eq!(block_on(process).unwrap(), [Reason::from(by)]);
            }
            below.send(()).unwrap();
            let told = block_on(below).unwrap();
            assert!(told.len() == 1 && grandchild.reason().as_ref() == told.first());
            assert!(child_first || told[0] == "parent");
        }
    });
}

/// 6.2a: the grace period of a token applies to each process of the token. If a process has not exited when the grace
/// period ends, the process is killed. A grace period of `Duration::MAX` does not overflow.
#[test]
fn a_process_is_killed_after_the_grace_period_of_its_token() {
    timed(async |host, exact| {
        let token = CancelToken::new();
        let deaf = host.process().cancel_token(&token).spawn(async |_: Context<()>| std::future::pending::<()>().await);
        let deaf = deaf.unwrap();
        deaf.started().await.unwrap();
        let until = host.now() + Duration::from_millis(5);
        token.cancel("over", Duration::from_millis(5));
        assert!(matches!(deaf.await, Err(Exit::Killed)));
        exact.check(host.now(), until);
        let patient = CancelToken::new();
        let process = host.process().cancel_token(&patient).spawn(idle).unwrap();
        let now = host.now();
        patient.cancel("over", Duration::MAX);
        assert!(is_cancelled(&process.await.unwrap_err(), "over"));
        exact.check(host.now(), now);
        // If a cancelled process is cancelled again, the process keeps the reason of its first cancellation.
        let late = CancelToken::new();
        let process = host.process().cancel_token(&late).spawn(async |ctx: Context<()>| {
            let reason = ctx.cancelled().await;
            ctx.sleep(Duration::from_millis(20)).await;
            Ok::<_, Exit>(reason)
        });
        let process = process.unwrap();
        let until = host.now() + Duration::from_millis(20);
        host.cancel(process.pid(), "first", LONG).unwrap();
        assert!(late.cancel("second", LONG));
        assert_eq!(process.await.unwrap(), Reason::from("first"));
        exact.check(host.now(), until);
    });
}

/// 6.2a, 6.2e: a process is cancelled with a long grace period. If a deadline, a token or a `JoinSet` then cancels the
/// process with a shorter grace period, the process is killed at the end of the shorter period.
#[test]
fn a_longer_grace_period_of_an_earlier_cancellation_delays_no_kill() {
    check(0..10, async |host: Host| {
        let deaf = async |_: Context<()>| std::future::pending::<()>().await;
        let begun = host.now();
        let after = |ms| begun + Duration::from_millis(ms);
        let limited = host.process().deadline_within(after(10), Duration::from_millis(5)).spawn(deaf).unwrap();
        let token = CancelToken::new();
        let of_token = host.process().cancel_token(&token).spawn(deaf).unwrap();
        let mut set = host.join_set();
        let of_set = set.spawn(deaf);
        for pid in [limited.pid(), of_token.pid(), of_set.pid()] {
            host.cancel(pid, "drain", Duration::MAX).unwrap();
        }
        assert!(token.cancel("token", Duration::from_millis(20)));
        set.cancel_all("set", Duration::from_millis(25));
        assert!(matches!(limited.await, Err(Exit::Killed)));
        assert_eq!(host.now(), after(15));
        assert!(matches!(of_token.await, Err(Exit::Killed)));
        assert_eq!(host.now(), after(20));
        assert!(matches!(set.join_next().await, Some(Err(Exit::Killed))));
        assert_eq!(host.now(), after(25));
    });
}

/// 6.2e: a process may be spawned long after its deadline. The grace period of this process begins when the process is
/// cancelled.
#[test]
fn the_grace_period_of_a_deadline_in_the_past_begins_with_the_cancellation() {
    check(0..10, async |host: Host| {
        let past = host.now();
        host.sleep(Duration::from_secs(2)).await;
        let process = host.process().deadline(past).spawn(async |ctx: Context| {
            let reason = ctx.cancelled().await;
            ctx.sleep(Duration::from_millis(5)).await;
            Ok::<_, Exit>(reason)
        });
        assert_eq!(process.unwrap().await.unwrap(), Reason::DEADLINE);
    });
}

/// 6.2e: a process that is spawned after its deadline is cancelled before its first step.
#[test]
fn a_deadline_in_the_past_cancels_the_process_before_the_first_step() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let body = async |ctx: Context| Ok::<_, Exit>((ctx.is_cancelled(), ctx.cancelled().await));
    let process = rt.process().deadline(rt.now()).spawn(body).unwrap();
    assert_eq!(rt.block_on(process).unwrap(), (true, Reason::DEADLINE));
}

/// 6.4f, 6.6a, 6.6c: if a token or a deadline cancels a supervisor, the supervisor itself stops its children, in the
/// order of the supervisor. The token does not cancel the children directly, and the supervisor restarts no child.
#[test]
fn a_supervisor_under_a_token_stops_its_children_in_order() {
    const BELOW: Name<procession::supervisor::SupervisorMessage> = Name::new("cancel: below");
    async fn ends_in_order(host: Host, by_deadline: bool) {
        let token = CancelToken::new();
        let ended = Arc::new(Mutex::new(Vec::new()));
        let worker = |n: usize| {
            let ended = Arc::clone(&ended);
            Child::unnamed(move |mut ctx: Context<()>| {
                let ended = Arc::clone(&ended);
                async move {
                    // The helper is not a child of the supervisor, so the inherited token cancels the helper
                    // directly.
                    let helper = ctx.spawn(idle);
                    let exit = ctx.receive().await;
                    ctx.yield_now().await;
                    ended.lock().unwrap().push(n);
                    helper.await.and(exit)
                }
            })
        };
        let below = {
            let worker = worker(100);
            let worker = Mutex::new(Some(worker));
            Child::process(BELOW, move || Supervisor::one_for_one().add(worker.lock().unwrap().take().unwrap()))
        };
        let tree = (0..50).fold(Supervisor::one_for_all().intensity(0, LONG), |tree, n| tree.add(worker(n)));
        let until = host.now() + LONG;
        let process = host.process().cancel_token(&token);
        let process = if by_deadline { process.deadline_within(until, LONG) } else { process };
        let tree = process.spawn_process(tree.add(below)).unwrap();
        tree.started().await.unwrap();
        if !by_deadline {
            token.cancel("over", LONG);
        }
        let exit = tree.await.unwrap_err();
        assert!(is_cancelled(&exit, if by_deadline { "deadline" } else { "over" }), "{exit}");
        assert!(!by_deadline || host.now() == until);
        let expected: Vec<usize> = std::iter::once(100).chain((0..50).rev()).collect();
        assert_eq!(*ended.lock().unwrap(), expected);
    }
    everywhere(|host| ends_in_order(host, false));
    check(0..10, |host| ends_in_order(host, true));
}

/// A token cancels the helper of a child. The child exits because its helper has exited. At this time, the supervisor
/// of this child is not cancelled yet. The supervisor nevertheless does not restart the child, because the parent of
/// the supervisor will stop the supervisor later.
#[test]
fn a_child_that_exits_because_of_the_token_of_its_supervisor_is_not_restarted() {
    const BELOW: Name<procession::supervisor::SupervisorMessage> = Name::new("cancel: below a slow stop");
    let rt = lone();
    let (token, starts) = (CancelToken::new(), Arc::new(AtomicUsize::new(0)));
    let (release, is_released) = futures::channel::oneshot::channel::<()>();
    let started = Arc::clone(&starts);
    let below = Child::process(BELOW, move || {
        let started = Arc::clone(&started);
        Supervisor::one_for_one().add(Child::unnamed(move |ctx: Context<()>| {
            started.fetch_add(1, SeqCst);
            async move { ctx.spawn(idle).await }
        }))
    });
    let is_released = Mutex::new(Some(is_released));
    let slow = Child::unnamed(move |mut ctx: Context<()>| {
        let is_released = is_released.lock().unwrap().take();
        async move {
            let exit = ctx.receive().await;
            is_released.expect("it starts once").await.unwrap();
            exit
        }
    });
    let tree = Supervisor::one_for_one().add(below).add(slow);
    let tree = rt.process().cancel_token(&token).spawn_process(tree).unwrap();
    rt.block_on(tree.started()).unwrap();
    token.cancel("over", LONG);
    // The parent supervisor waits for the slow child, and has not stopped the supervisor `BELOW` yet.
    settle(&rt);
    assert!(rt.whereis(BELOW).is_some());
    release.send(()).unwrap();
    assert!(is_cancelled(&rt.block_on(tree).unwrap_err(), "over"));
    assert_eq!(starts.load(SeqCst), 1);
}

/// 6.4c: a child of a supervisor may have its own token. If the token is cancelled, the child exits. The supervisor
/// then restarts the child.
#[test]
fn a_supervised_child_may_have_its_own_token() {
    const CHILD: Name<()> = Name::new("cancel: child");
    everywhere(async |host| {
        let token = CancelToken::new();
        let given = token.clone();
        let lives = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&lives);
        let child = Child::with_args(CHILD, counted, async |mut ctx: Context<()>, lives| {
            lives.fetch_add(1, SeqCst);
            ctx.receive().await
        });
        let child = child.options(move |process| process.cancel_token(&given));
        let tree = host.spawn_process(Supervisor::one_for_one().intensity(5, LONG).add(child));
        tree.started().await.unwrap();
        token.cancel("over", LONG);
        // Each new instance of the child starts under the cancelled token, so each new instance exits immediately.
        // After five restarts the supervisor exceeds its restart intensity and fails.
        let exit = tree.await.unwrap_err();
        assert!(
            matches!(exit.error(), Some(procession::supervisor::SupervisorError::RestartIntensityExceeded { .. })),
            "{exit}"
        );
        assert_eq!(lives.load(SeqCst), 6);
    });
}

/// 6.4f: a child of a supervisor inherits a token or a deadline. The child also has its own deadline or its own token.
/// Neither the inherited token nor the inherited deadline cancels the child directly. Therefore the supervisor stops
/// its children in reverse order.
#[test]
fn an_inherited_token_or_deadline_cancels_no_supervised_child_directly() {
    async fn ends_in_order(host: Host, by_deadline: bool, has_own_token: bool) {
        let (token, own) = (CancelToken::new(), CancelToken::new());
        let until = host.now() + LONG;
        let ended = Arc::new(Mutex::new(Vec::new()));
        let child = |name: &'static str, time: Duration| {
            Child::with_args(Name::new(name), Arc::clone(&ended), move |mut ctx: Context<()>, ended| async move {
                let exit = ctx.receive().await;
                ctx.sleep(time).await;
                ended.lock().unwrap().push(name);
                exit
            })
        };
        let first = child("first", Duration::ZERO).options(move |process| match has_own_token {
            true => process.cancel_token(&own),
            false => process.deadline(until + LONG),
        });
        let tree = Supervisor::one_for_one().add(first).add(child("second", Duration::from_secs(1)));
        let process = match by_deadline {
            true => host.process().deadline_within(until, LONG),
            false => host.process().cancel_token(&token),
        };
        let tree = process.spawn_process(tree).unwrap();
        tree.started().await.unwrap();
        if !by_deadline {
            token.cancel("over", LONG);
        }
        assert!(is_cancelled(&tree.await.unwrap_err(), if by_deadline { "deadline" } else { "over" }));
        assert_eq!(*ended.lock().unwrap(), ["second", "first"]);
    }
    for (by_deadline, has_own_token) in [(false, false), (true, true), (true, false)] {
        check(0..10, move |host| ends_in_order(host, by_deadline, has_own_token));
    }
}

/// 6.4c: a child of a supervisor may have its own deadline, even if the supervisor has a cancel token or another
/// deadline. The deadline of the child cancels the child, and the supervisor does not restart a temporary child.
#[test]
fn a_supervised_child_may_have_its_own_deadline() {
    for has_token in [false, true] {
        check(0..10, async move |host| {
            let (until, ended) = (host.now() + LONG, Arc::new(Mutex::new(Vec::new())));
            let seen = Arc::clone(&ended);
            let child = Child::with_args(Name::new("child"), ended, async |ctx: Context<()>, ended| {
                let reason = ctx.cancelled().await;
                ended.lock().unwrap().push((reason, ctx.now()));
            });
            let child = child.restart(RestartPolicy::Temporary).options(move |process| process.deadline(until));
            let process = match has_token {
                true => host.process().cancel_token(&CancelToken::new()),
                false => host.process().deadline(until + LONG),
            };
            let tree = process.spawn_process(Supervisor::one_for_one().add(child)).unwrap();
            tree.started().await.unwrap();
            host.sleep(LONG + LONG / 2).await;
            assert_eq!(*seen.lock().unwrap(), [(Reason::DEADLINE, until)]);
        });
    }
}

/// 6.6a, 6.6c: if a token cancels a scope, the token first cancels the children of the scope, and then the body of the
/// scope. The exits of the children do not make the scope fail, because the body of the scope receives the cancellation
/// too.
#[test]
fn a_scope_body_receives_the_cancellation_of_its_token() {
    timed(async |host, exact| {
        for round in 0..100 {
            let token = CancelToken::new();
            let until = host.now() + Duration::from_millis(2);
            let process = if round % 2 == 0 {
                host.process().cancel_token(&token)
            } else {
                host.process().deadline_within(until, LONG)
            };
            let process = process.spawn(async |ctx: Context<()>| {
                let me = ctx.clone();
                ctx.scope(async move |scope| {
                    for _ in 0..20 {
                        drop(scope.spawn(idle));
                    }
                    let reason = me.cancelled().await;
                    me.yield_now().await;
                    Ok::<_, BoxError>(reason)
                })
                .await
            });
            let process = process.unwrap();
            process.started().await.unwrap();
            token.cancel("deadline", LONG);
            assert_eq!(process.await.unwrap(), Reason::DEADLINE, "it cleaned up");
            if round % 2 == 1 {
                exact.check(host.now(), until);
            }
        }
    });
}

/// 6.2c: `run_until_cancelled` returns the output of the future. If the process is cancelled before the output is
/// ready, `run_until_cancelled` drops the future and fails with the reason. If the future becomes ready in the poll
/// that observes the cancellation, the output of the future is returned.
#[test]
fn a_future_runs_until_its_process_is_cancelled() {
    everywhere(async |host| {
        let (dropped, is_dropped) = futures::channel::oneshot::channel::<()>();
        let process = host.spawn(async move |ctx: Context<()>| -> Result<(), Exit> {
            assert_eq!(ctx.run_until_cancelled(async { 1 }).await?, 1);
            let (cancelled, me) = (ctx.cancelled(), (*ctx).clone());
            assert!(me.run_until_cancelled(async { cancelled.await == "enough" }).await?);
            // The process was cancelled before the first poll, so the future is not polled.
            ctx.run_until_cancelled(async move { drop(dropped) }).await
        });
        process.started().await.unwrap();
        host.cancel(process.pid(), "enough", LONG).unwrap();
        assert!(is_cancelled(&process.await.unwrap_err(), "enough"));
        assert!(is_dropped.await.is_err());
    });
}

/// 6.2c: a token can cancel a future that runs outside any process.
#[test]
fn a_future_runs_until_a_token_is_cancelled() {
    let token = CancelToken::new();
    assert_eq!(block_on(token.run_until_cancelled(async { 1 })).unwrap(), 1);
    let mut waits = Box::pin(token.run_until_cancelled(std::future::pending::<()>()));
    assert!(waits.as_mut().poll(&mut Cx::from_waker(Waker::noop())).is_pending());
    token.cancel("enough", LONG);
    assert!(is_cancelled(&block_on(waits).unwrap_err(), "enough"));
    let polled = block_on(token.run_until_cancelled(async { unreachable!("the token was cancelled before") }));
    assert!(is_cancelled(&polled.unwrap_err(), "enough"));
}

/// 6.2b: a cancelled body polls a future of `event` and then drops this future. The future is pending. The next
/// `receive` still fails because of the cancellation.
#[test]
fn a_receive_in_a_cancelled_process_fails_even_after_a_dropped_event_future() {
    within(60, || {
        let rt = lone();
        let body = rt.spawn(async |mut ctx: Context<u32>| -> Result<(), Exit> {
            while !matches!(ctx.event().await, Event::Cancel { .. }) {}
            assert!(futures::poll!(std::pin::pin!(ctx.event())).is_pending());
            ctx.receive().await.map(drop)
        });
        rt.block_on(body.started()).unwrap();
        rt.cancel(body.pid(), "stop", Duration::MAX).unwrap();
        assert!(is_cancelled(&rt.block_on(body).unwrap_err(), "stop"));
    });
}

/// 4.6b, 6.2a: a cancelled body ignores its cancellation and awaits further futures. Each of these futures fails or
/// resolves immediately, because the body is cancelled. Nevertheless, other tasks run between the turns of the body.
/// The body is killed after the grace period.
#[test]
fn a_body_that_ignores_its_cancellation_in_a_loop_is_killed() {
    type Once = fn(&mut Context<()>) -> BoxFuture<'_, ()>;
    let operations: [(&str, Once); 5] = [
        ("receive", |ctx| Box::pin(async { drop(ctx.receive().await) })),
        ("receive_timeout", |ctx| Box::pin(async { drop(ctx.receive_timeout(LONG).await) })),
        ("receive_where", |ctx| Box::pin(async { drop(ctx.receive_where(Ok::<(), ()>).await) })),
        ("run_until_cancelled", |ctx| {
            Box::pin(async { drop(ctx.run_until_cancelled(std::future::pending::<()>()).await) })
        }),
        ("cancelled", |ctx| Box::pin(async { drop(ctx.cancelled().await) })),
    ];
    for (name, once) in operations {
        within(60, move || {
            let rt = lone();
            let body = rt.spawn(async move |mut ctx: Context<()>| -> () {
                loop {
                    once(&mut ctx).await;
                }
            });
            rt.block_on(body.started()).unwrap();
            rt.cancel(body.pid(), "stop", Duration::from_millis(1)).unwrap();
            assert_eq!(rt.block_on(body), Err(Exit::Killed), "{name}");
        });
    }
}

/// 4.6b, 6.2a: a cancelled body has spent its budget, and then checks many times whether a cancellation has happened.
/// Each check polls a new future once, without an `await`. Of two successive checks, at least one check finds the
/// cancellation.
#[test]
fn a_check_without_an_await_finds_the_cancellation() {
    type Check = fn(&Context<()>, &CancelToken) -> bool;
    let checks: [(&str, Check); 4] = [
        ("cancelled", |ctx, _| ctx.cancelled().now_or_never().is_some()),
        ("run_until_cancelled", |ctx, _| ctx.run_until_cancelled(std::future::ready(())).now_or_never().is_some()),
        ("token", |_, token| token.cancelled().now_or_never().is_some()),
        ("token, run_until_cancelled", |_, token| {
            token.run_until_cancelled(std::future::ready(())).now_or_never().is_some()
        }),
    ];
    for (name, check) in checks {
        let rt = lone();
        let body = rt.spawn(async move |ctx: Context<()>| {
            let token = CancelToken::new();
            token.cancel("stop", LONG);
            ctx.host().cancel(ctx.pid(), "stop", LONG).unwrap();
            while !should_yield() {}
            Ok::<_, Exit>((0..10).map(|_| check(&ctx, &token)).collect::<Vec<_>>())
        });
        let found = rt.block_on(body).unwrap();
        assert!(found.windows(2).all(|two| two[0] || two[1]), "{name}: {found:?}");
    }
}

/// 4.6b, 6.2c: a body waits for a token that is already cancelled, and lets other processes run. The runtime does not
/// poll the future that the body passes to `run_until_cancelled`.
#[test]
fn futures_of_a_cancelled_token_spend_the_budget() {
    within(60, || {
        let rt = lone();
        let (token, stop) = (CancelToken::new(), CancelToken::new());
        token.cancel("before", LONG);
        let stops = stop.clone();
        let body = rt.spawn(async move |_: Context| {
            while !stop.is_cancelled() {
                assert!(token.cancelled().await == "before");
            }
            for _ in 0..1_000 {
                token.run_until_cancelled(async { panic!("it is polled") }).await.unwrap_err();
            }
        });
        rt.block_on(rt.spawn(async move |_: Context| _ = stops.cancel("stop", LONG))).unwrap();
        rt.block_on(body).unwrap();
    });
}

//! Sections 6.4 and 6.5 of the specification: supervisors start, stop and restart their children in a defined order. A
//! shutdown stops the supervision trees first.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::channel::oneshot;
use futures::{FutureExt, poll};
use procession::supervisor::*;
use procession::*;

use crate::time::timed;
use crate::{everywhere, shut_down, step_aside, two, within};

const A: Name<Do> = Name::new("a");
const B: Name<Do> = Name::new("b");
const C: Name<Do> = Name::new("c");
const SUB: Name<SupervisorMessage> = Name::new("sub");
const SECOND: Duration = Duration::from_secs(1);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Instruction to a child of a test.
enum Do {
    Add(u64),
    Sum(Reply<u64>),
    End,
    Fail,
    Panic,
    Who(Reply<Pid>),
}

/// The events of a test, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Value on the stack of an instance. The drop of this value logs the exit of the instance, for any exit reason.
struct Over(Log, &'static str);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.note(format!("-{}", self.1));
    }
}

async fn obey(mut ctx: Context<Do>) -> Result<(), Exit> {
    let mut sum = 0;
    loop {
        match ctx.receive().await? {
            Do::Add(n) => sum += n,
            Do::Sum(reply) => reply.send(sum),
            Do::End => return Ok(()),
            Do::Fail => return Err(Exit::failed("failed")),
            Do::Panic => panic!("boom"),
            Do::Who(reply) => reply.send(ctx.pid()),
        }
    }
}

/// Returns a child that logs its start and its exit.
fn noted(name: Name<Do>, log: &Log) -> Child {
    let log = log.clone();
    Child::new(name, move |ctx| {
        let log = log.clone();
        async move {
            log.note(format!("+{name}"));
            let _over = Over(log, name.as_str());
            obey(ctx).await
        }
    })
}

/// Calls a child until the child answers, and returns the pid of this child. A call may fail, because between two
/// instances no process has the name.
async fn who(host: &Host, name: Name<Do>) -> Pid {
    loop {
        match host.call(name, Do::Who).await {
            Ok(pid) => return pid,
            // The child may wait for its back-off. In a simulation, a loop without a sleep takes 1,000 turns for each
            // millisecond of the back-off.
            Err(_) => host.sleep(ms(1)).await,
        }
    }
}

/// Makes a child exit. Returns the pid of the next instance of the child.
async fn next_instance(host: &Host, name: Name<Do>, how: Do) -> Pid {
    let before = who(host, name).await;
    host.send(name, how).unwrap();
    host.exited(before).await;
    let after = who(host, name).await;
    assert_ne!(before, after);
    after
}

async fn started(host: &Host, supervisor: Supervisor) -> JoinHandle<(), SupervisorMessage> {
    let handle = host.spawn_process(supervisor);
    handle.started().await.unwrap();
    handle
}

async fn until(what: impl Fn() -> bool) {
    while !what() {
        step_aside().await;
    }
}

/// 6.4b, 6.4c, 6.4d: a child that exits is restarted under its name. `started()` of a supervisor completes when all its
/// children have started.
#[test]
fn a_child_is_restarted_under_its_name() {
    everywhere(async |host| {
        let tree = Supervisor::one_for_one().child(A, obey).child(B, obey);
        let tree = started(&host, tree).await;
        let b = host.whereis(B).unwrap();
        for how in [Do::Panic, Do::Fail, Do::End] {
            next_instance(&host, A, how).await;
        }
        assert_eq!(host.whereis(B), Some(b));
        let killed = who(&host, A).await;
        host.kill(killed).unwrap();
        host.exited(killed).await;
        until(|| host.whereis(A).is_none_or(|pid| pid != killed)).await;
        // Four restarts exceed the default intensity, which is three restarts within five seconds.
        let exit = tree.await.unwrap_err();
        let gave_up = SupervisorError::RestartIntensityExceeded {
            child: "a".into(),
            restarts: 3,
            within: SECOND * 5,
            last: Exit::Killed,
        };
        assert_eq!(exit, Exit::failed(gave_up));
        assert_eq!((host.whereis(A), host.whereis(B)), (None, None));
    });
    // The five seconds are a sliding window, so the supervisor no longer counts old restarts.
    check(0..10, async |host: Host| {
        let tree = started(&host, Supervisor::one_for_one().child(A, obey)).await;
        for _ in 0..10 {
            next_instance(&host, A, Do::Fail).await;
            host.sleep(ms(1_667)).await;
        }
        host.sleep(SECOND * 5).await;
        // `next_instance` may sleep for an unknown time. Therefore the scenario sleeps until fixed instants, not for
        // fixed durations.
        let first = host.now();
        for n in 1..4 {
            next_instance(&host, A, Do::Fail).await;
            host.sleep(first + ms(1_666) * n - host.now()).await;
        }
        let now = host.now();
        host.send(A, Do::Fail).unwrap();
        assert!(matches!(tree.await.unwrap_err().error(), Some(SupervisorError::RestartIntensityExceeded { .. })));
        assert_eq!(host.now(), now);
    });
}

/// 6.4f: each child starts after the previous child has started. The children stop in reverse order.
#[test]
fn children_start_in_order_and_stop_in_reverse_order() {
    everywhere(async |host| {
        let log = Log::default();
        let (open, opened) = oneshot::channel::<()>();
        let opened = Arc::new(Mutex::new(Some(opened)));
        let slow = {
            let (log, opened) = (log.clone(), Arc::clone(&opened));
            Child::new(B, move |ctx| {
                let (log, opened) = (log.clone(), opened.lock().unwrap().take());
                async move {
                    log.note("+b");
                    let _over = Over(log.clone(), "b");
                    if let Some(opened) = opened {
                        let _ = opened.await;
                    }
                    log.note("ready b");
                    ctx.mark_started();
                    obey(ctx).await
                }
            })
            .options(ProcessBuilder::manual_start)
        };
        let tree = Supervisor::one_for_one().add(noted(A, &log)).add(slow).add(noted(C, &log));
        let tree = host.spawn_process(tree);
        until(|| host.whereis(B).is_some()).await;
        assert_eq!(host.whereis(C), None);
        let family = tree.call(SupervisorMessage::WhichChildren).await.unwrap();
        let states: Vec<_> = family.children.iter().map(|child| child.state).collect();
        assert_eq!(states, [ChildState::Running, ChildState::Starting, ChildState::Restarting]);
        open.send(()).unwrap();
        tree.started().await.unwrap();
        host.cancel(tree.pid(), "enough", SECOND).unwrap();
        let Err(Exit::Cancelled(reason)) = tree.await else { panic!("it was asked to end") };
        assert_eq!(reason, "enough");
        assert_eq!(log.take(), ["+a", "+b", "ready b", "+c", "-c", "-b", "-a"]);
    });
}

/// 6.4b: if one child of a one-for-all supervisor exits, all other children are stopped, from the last to the first.
/// Then all children are started, from the first to the last.
#[test]
fn the_strategy_one_for_all_restarts_all_children() {
    everywhere(async |host| {
        let log = Log::default();
        let tree = Supervisor::one_for_all().add(noted(A, &log)).add(noted(B, &log)).add(noted(C, &log));
        let tree = started(&host, tree).await;
        log.take();
        host.send(B, Do::Fail).unwrap();
        until(|| log.0.lock().unwrap().len() == 6).await;
        assert_eq!(log.take(), ["-b", "-c", "-a", "+a", "+b", "+c"]);
        assert_eq!(tree.call(SupervisorMessage::CountChildren).await.unwrap(), 3);
    });
}

/// 6.4b: if one child of a rest-for-one supervisor exits, this child and the children after it are restarted. The
/// children before this child continue to run.
#[test]
fn the_strategy_rest_for_one_restarts_the_later_children() {
    everywhere(async |host| {
        let log = Log::default();
        let tree = Supervisor::rest_for_one().add(noted(A, &log)).add(noted(B, &log)).add(noted(C, &log));
        let _tree = started(&host, tree).await;
        let a = host.whereis(A);
        log.take();
        host.send(B, Do::Panic).unwrap();
        until(|| log.0.lock().unwrap().len() == 4).await;
        assert_eq!(log.take(), ["-b", "-c", "+b", "+c"]);
        assert_eq!(host.whereis(A), a);
    });
}

/// 6.4c: a transient child is restarted when it fails. A temporary child is never restarted: when it has exited, the
/// supervisor removes the child from its list of children.
#[test]
fn restart_policies_are_obeyed() {
    everywhere(async |host| {
        let tree = Supervisor::one_for_one()
            .add(Child::new(A, obey).restart(RestartPolicy::Transient))
            .add(Child::new(B, obey).restart(RestartPolicy::Temporary));
        let tree = started(&host, tree).await;
        next_instance(&host, A, Do::Fail).await;
        for (name, how) in [(A, Do::End), (B, Do::Panic)] {
            let pid = who(&host, name).await;
            host.send(name, how).unwrap();
            host.exited(pid).await;
        }
        until(|| host.whereis(A).is_none() && host.whereis(B).is_none()).await;
        // A call may arrive before the exit of a child, so the test repeats the call until the supervisor has processed
        // the exit.
        let family = loop {
            let family = tree.call(SupervisorMessage::WhichChildren).await.unwrap();
            if family.children.len() == 1 && family.children[0].state == ChildState::Stopped {
                break family;
            }
            step_aside().await;
        };
        assert_eq!(family.children[0].name.as_deref(), Some("a"));
        assert_eq!(family.children[0].restarts, 1);
        assert!(matches!(family.children[0].last, Some(Exit::Normal)));
        // A stopped child can be restarted with a message.
        let pid = tree.call(|reply| SupervisorMessage::RestartChild(A.into(), reply)).await.unwrap().unwrap();
        assert_eq!(host.whereis(A), Some(pid));
    });
}

/// 6.4d: a failed start counts as a restart. In this test either the factory of a child panics, or the body of a child
/// exits before it has started.
#[test]
fn failed_starts_count_as_restarts() {
    everywhere(async |host| {
        let tries = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&tries);
        let panics = Child::process(A, move || -> Raw {
            counts.fetch_add(1, SeqCst);
            panic!("no process")
        });
        let never_ready =
            Child::new(C, async |_: Context<Do>| Err::<(), _>("not today")).options(ProcessBuilder::manual_start);
        for (child, last) in [(panics, "no process"), (never_ready, "not today")] {
            // Before the supervisor exits, it stops its first child. This stop does not count as a start.
            let tree = Supervisor::one_for_one().intensity(4, SECOND * 60).add(Child::unnamed(obey)).add(child);
            let tree = host.spawn_process(tree);
            let exit = tree.started().await.unwrap_err();
            let Some(SupervisorError::RestartIntensityExceeded { last: found, .. }) = exit.error() else {
                panic!("{exit}")
            };
            assert!(found.to_string().contains(last), "{exit}");
            assert!(tree.await.is_err());
        }
        assert_eq!(tries.load(SeqCst), 5);
    });
}

struct Raw;

impl Process for Raw {
    type Message = Do;
    type Output = ();

    fn step(&mut self, _: Events<'_, Do>, _: &mut StepOutput<'_, Do>) -> Result<Next<()>, Exit> {
        Ok(Next::Wait)
    }
}

/// 6.4c: a permanent child is restarted even if `Error::source` of its error panics. The step of the supervisor does
/// not call `source`.
#[test]
fn a_child_whose_error_has_a_panicking_source_is_restarted() {
    #[derive(Debug)]
    struct NoSource;
    impl std::fmt::Display for NoSource {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("no source")
        }
    }
    impl std::error::Error for NoSource {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            panic!("`source` was called")
        }
    }
    everywhere(async |host| {
        let starts = Arc::new(AtomicUsize::new(0));
        let child = Child::with_args(A, Arc::clone(&starts), async |mut ctx: Context<Do>, starts| {
            if starts.fetch_add(1, SeqCst) == 0 {
                return Err(Exit::Failed(Arc::new(NoSource)));
            }
            ctx.receive().await.map(drop)
        });
        let tree = host.spawn_process(Supervisor::one_for_one().add(child));
        let mut over = pin!(host.exited(tree.pid()));
        while starts.load(SeqCst) < 2 {
            assert!(poll!(&mut over).is_pending(), "the supervisor has exited");
            step_aside().await;
        }
        assert_eq!(tree.call(SupervisorMessage::CountChildren).await.unwrap(), 1);
        tree.abort();
        assert_eq!(tree.await, Err(Exit::Killed));
    });
}

/// 6.4b: while a supervisor stops its children before its own exit, the supervisor refuses new children.
#[test]
fn an_exiting_supervisor_refuses_children() {
    everywhere(async |host| {
        let tree = host.spawn_process(Supervisor::one_for_one().add(Child::unnamed_process(|| Raw)));
        tree.started().await.unwrap();
        host.cancel(tree.pid(), Reason::REQUESTED, Duration::MAX).unwrap();
        let added = tree.call(|reply| SupervisorMessage::StartChild(Child::new(A, obey), reply)).await.unwrap();
        assert_eq!(added, Err(Exit::Refused(SpawnErrorKind::SupervisorExiting)));
        tree.abort();
        assert_eq!(tree.await, Err(Exit::Killed));
    });
}

/// 6.1a, 6.4b: if another process has the name of a child, the child is refused, and the refusal contains the pid of
/// that process. A child with a kept mailbox is refused in the same way.
#[test]
fn the_refusal_of_a_child_contains_the_process_that_has_the_same_name() {
    everywhere(async |host| {
        let holder = host.process().name(A).spawn(obey).unwrap();
        let tree = started(&host, Supervisor::one_for_one()).await;
        for child in [Child::new(A, obey), Child::new(A, obey).keep_mailbox()] {
            let refused = tree.call(|reply| SupervisorMessage::StartChild(child, reply)).await.unwrap();
            assert_eq!(refused, Err(Exit::Refused(SpawnErrorKind::NameTaken(holder.pid()))));
        }
        holder.abort();
        tree.abort();
        assert_eq!(tree.await, Err(Exit::Killed));
    });
}

/// 6.4b: while the supervisor runs, children are added, stopped, restarted, deleted, counted and listed.
#[test]
fn children_are_managed_at_run_time() {
    timed(async |host, late| {
        let tree = started(&host, Supervisor::one_for_one()).await;
        let ask = |child| tree.call(|reply| SupervisorMessage::StartChild(child, reply));
        let a = ask(Child::new(A, obey)).await.unwrap().unwrap();
        assert_eq!(host.whereis(A), Some(a));
        // A second child with the same name is refused. The first child continues to run.
        assert_eq!(ask(Child::new(A, obey)).await.unwrap(), Err(Exit::Refused(SpawnErrorKind::NameTaken(a))));
        // If the first start of an added child fails, the child is not added.
        let fails = Child::new(B, async |_: Context<Do>| Err::<(), _>("no")).options(ProcessBuilder::manual_start);
        assert!(matches!(ask(fails).await.unwrap(), Err(Exit::Failed(_))));
        // The added child ignores its cancellation.
        let raw = ask(Child::unnamed_process(|| Raw).shutdown(ms(10))).await.unwrap().unwrap();
        let body = ask(Child::unnamed(obey)).await.unwrap().unwrap();
        assert_eq!(tree.call(SupervisorMessage::CountChildren).await.unwrap(), 3);

        assert!(tree.call(|reply| SupervisorMessage::TerminateChild(A.into(), reply)).await.unwrap());
        assert_eq!(host.whereis(A), None);
        assert_eq!(ask(Child::new(A, obey)).await.unwrap(), Err(Exit::Refused(SpawnErrorKind::AlreadyPresent)));
        let again = tree.call(|reply| SupervisorMessage::RestartChild("a".into(), reply)).await.unwrap().unwrap();
        assert_ne!(again, a);
        let other = tree.call(|reply| SupervisorMessage::RestartChild(body.into(), reply)).await.unwrap().unwrap();
        assert_ne!(other, body);
        let until = host.now() + ms(10);
        assert!(tree.call(|reply| SupervisorMessage::DeleteChild(raw.into(), reply)).await.unwrap());
        late.check(host.now(), until);
        for key in [ChildId::from(raw), ChildId::from(body), String::from("b").into()] {
            assert!(!tree.call(|reply| SupervisorMessage::DeleteChild(key.clone(), reply)).await.unwrap());
            assert!(!tree.call(|reply| SupervisorMessage::TerminateChild(key.clone(), reply)).await.unwrap());
            let refused = tree.call(|reply| SupervisorMessage::RestartChild(key.clone(), reply)).await.unwrap();
            assert!(matches!(refused, Err(Exit::NoProcess)));
        }
        assert!(tree.call(|reply| SupervisorMessage::DeleteChild(A.into(), reply)).await.unwrap());
        assert_eq!(tree.call(SupervisorMessage::CountChildren).await.unwrap(), 1);
        // The name is free again.
        ask(Child::new(A, obey)).await.unwrap().unwrap();
    });
}

/// 2.2b, 2.3e, 6.4g: a kept mailbox of a child outlives the instances of this child. Messages wait in the kept mailbox
/// between two instances. The next instance reads the waiting messages in order.
#[test]
fn a_kept_mailbox_outlives_its_child() {
    timed(async |host, late| {
        let read = Log::default();
        let log = read.clone();
        let slow = Child::new(A, move |mut ctx| {
            let log = log.clone();
            async move {
                while let Ok(message) = ctx.receive().await {
                    match message {
                        Do::Add(n) => log.note(n.to_string()),
                        Do::Sum(reply) => reply.send(7),
                        Do::Panic => panic!("boom"),
                        _ => {}
                    }
                }
            }
        });
        let backoff = Backoff::new(ms(2), SECOND).jitter(false);
        let tree = Supervisor::one_for_one().intensity(1000, SECOND).add(slow.keep_mailbox().backoff(backoff));
        let tree = started(&host, tree).await;
        let address = host.whereis(A).unwrap();
        let begun = host.now();
        for n in 0..50 {
            if n % 10 == 3 {
                host.send(A, Do::Panic).unwrap();
            }
            host.send(A, Do::Add(n)).unwrap();
        }
        // Some messages make the child panic, and the call waits in the mailbox after these messages. A later instance
        // of the child answers the call.
        assert_eq!(host.call(A, Do::Sum).await.unwrap(), 7);
        late.check(host.now(), begun + ms(2 + 4 + 8 + 16 + 32));
        assert_eq!(read.take(), (0..50).map(|n: u64| n.to_string()).collect::<Vec<_>>());
        assert_eq!(host.whereis(A), Some(address));
        let family = tree.call(SupervisorMessage::WhichChildren).await.unwrap();
        assert_eq!((family.children[0].restarts, family.children[0].pid), (5, Some(address)));

        // When the test kills the child through its pid, the next instance of the child has another pid.
        let until = host.now() + ms(64);
        host.kill(address).unwrap();
        loop {
            if let Ok(7) = host.call(A, Do::Sum).await {
                break;
            }
            host.sleep(ms(1)).await;
        }
        assert!(host.now() >= until && (!late.is_exact() || host.now() - until <= ms(1)));
        assert_ne!(host.whereis(A), Some(address));

        let mut dead = host.dead_letters();
        assert!(tree.call(|reply| SupervisorMessage::TerminateChild(A.into(), reply)).await.unwrap());
        host.send(A, Do::Add(1)).unwrap();
        assert!(tree.call(|reply| SupervisorMessage::DeleteChild(A.into(), reply)).await.unwrap());
        assert!(matches!(dead.receive().await.unwrap().payload.downcast(), Ok(Do::Add(1))));
        assert!(host.send(A, Do::Add(2)).is_err());
    });
}

/// 6.4c, 6.4g: a transient child has a kept mailbox and exits normally. The kept mailbox is closed, its unread messages
/// become dead letters, and the name is free. A requested start opens a new kept mailbox.
#[test]
fn a_kept_mailbox_is_closed_when_its_child_has_finished() {
    everywhere(async |host| {
        let (open, gate) = oneshot::channel::<()>();
        let gate = Arc::new(Mutex::new(Some(gate)));
        let child = Child::new(A, move |ctx| {
            let gate = gate.lock().unwrap().take();
            async move {
                match gate {
                    // The first instance reads no message.
                    Some(gate) => gate.await.map_err(|_| Exit::failed("no gate")),
                    None => obey(ctx).await,
                }
            }
        });
        let child = child.restart(RestartPolicy::Transient).keep_mailbox();
        let tree = started(&host, Supervisor::one_for_one().add(child)).await;
        let mut dead = host.dead_letters();
        let kept = host.whereis(A).unwrap();
        let closed = host.exited(kept);
        let mut call = pin!(host.call(A, Do::Sum));
        assert!(poll!(&mut call).is_pending());
        host.send(A, Do::Add(1)).unwrap();
        open.send(()).unwrap();
        assert!(matches!(dead.receive().await.unwrap().payload.downcast(), Ok(Do::Sum(_))));
        assert!(matches!(dead.receive().await.unwrap().payload.downcast(), Ok(Do::Add(1))));
        assert!(matches!(call.await, Err(CallError::Died(Exit::Normal) | CallError::Dropped)));
        assert_eq!(closed.await, Exit::Normal);
        assert!(host.send(A, Do::Add(2)).is_err() && host.whereis(A).is_none());

        let restart = || tree.call(|reply| SupervisorMessage::RestartChild(A.into(), reply));
        let next = restart().await.unwrap().unwrap();
        assert!(next != kept && host.whereis(A) == Some(next));
        let closed = host.exited(next);
        who(&host, A).await;
        host.send(A, Do::End).unwrap();
        assert_eq!(closed.await, Exit::Normal);
        assert!(host.call(A, Do::Sum).await.is_err());
    });
}

/// 2.2b, 6.4g: several processes send to a child that fails repeatedly. The child has a kept mailbox, so each message
/// is read exactly once. The messages of one sender arrive in order.
#[test]
fn a_kept_mailbox_loses_no_unread_message() {
    everywhere(async |host| {
        const SENDERS: u64 = 4;
        const EACH: u64 = 500;
        let read = Arc::new(Mutex::new(Vec::new()));
        let reads = Arc::clone(&read);
        let child = Child::new(A, move |mut ctx| {
            let reads = Arc::clone(&reads);
            async move {
                loop {
                    if let Do::Add(n) = ctx.receive().await? {
                        reads.lock().unwrap().push(n);
                        // The child records a message before it fails, so no received message is lost.
                        if n % 97 == 13 {
                            return Err::<(), _>(Exit::failed("again"));
                        }
                    }
                }
            }
        });
        let tree = Supervisor::one_for_one().intensity(u32::MAX, SECOND).add(child.keep_mailbox());
        let _tree = started(&host, tree).await;
        let senders = (0..SENDERS).map(|sender| {
            host.spawn(async move |ctx: Context| {
                for n in 0..EACH {
                    ctx.send(A, Do::Add(sender * EACH + n)).map_err(|_| "refused")?;
                    if n % 16 == 0 {
                        ctx.yield_now().await;
                    }
                }
                Ok::<_, &str>(())
            })
        });
        for sender in senders.collect::<Vec<_>>() {
            sender.await.unwrap();
        }
        until(|| read.lock().unwrap().len() as u64 >= SENDERS * EACH).await;
        let read = read.lock().unwrap();
        for sender in 0..SENDERS {
            let own: Vec<_> = read.iter().copied().filter(|n| n / EACH == sender).collect();
            assert_eq!(own, (sender * EACH..(sender + 1) * EACH).collect::<Vec<_>>());
        }
    });
}

/// A process that logs the received numbers. When the process receives the number `fails_at`, the process logs this
/// number and then fails.
struct RawLog {
    log: Log,
    fails_at: Option<u64>,
}

impl Process for RawLog {
    type Message = Do;
    type Output = ();

    fn step(&mut self, events: Events<'_, Do>, _: &mut StepOutput<'_, Do>) -> Result<Next<()>, Exit> {
        for event in events {
            if let Event::Message(Do::Add(n)) = event {
                self.log.note(n.to_string());
                if self.fails_at == Some(n) {
                    return Err(Exit::failed("the process does not accept this number"));
                }
            }
        }
        Ok(Next::Wait)
    }
}

/// 6.4g: an instance with a kept mailbox takes all messages out of its mailbox and reads some of these messages. The
/// instance ends before its body returns: a process kills the instance, or a linked process fails. The next instance
/// reads the remaining messages in order.
#[test]
fn the_next_instance_reads_the_messages_that_a_killed_instance_has_taken_out() {
    everywhere(async |host| {
        for is_linked in [false, true] {
            let read = Log::default();
            let instance = Arc::new(Mutex::new(None));
            let (log, pid) = (read.clone(), instance.clone());
            let child = Child::new("kept", move |mut ctx: Context<u64>| {
                let (log, pid) = (log.clone(), pid.clone());
                async move {
                    // All messages are in the mailbox when the instance receives the first message.
                    ctx.sleep(ms(2)).await;
                    loop {
                        let n = ctx.receive().await?;
                        log.note(n.to_string());
                        if n == 5 {
                            if is_linked {
                                ctx.process()
                                    .link()
                                    .spawn(async |_: Context| Err::<(), _>("a linked process fails"))?;
                            }
                            *pid.lock().unwrap() = Some(ctx.pid());
                            std::future::pending::<()>().await;
                        }
                        if n == 99 {
                            std::future::pending::<Result<(), Exit>>().await?;
                        }
                    }
                    #[expect(unreachable_code, reason = "the type of the output")]
                    Ok::<_, Exit>(())
                }
            });
            let tree = started(&host, Supervisor::one_for_one().add(child.keep_mailbox())).await;
            let kept = host.address::<u64>(host.whereis("kept").unwrap()).unwrap();
            (0..100).for_each(|n| kept.send(n).unwrap());
            until(|| instance.lock().unwrap().is_some()).await;
            let mut expected: Vec<_> = (0..100).map(|n: u64| n.to_string()).collect();
            if !is_linked {
                // The urgent message overtakes the messages that the instance has taken out of its mailbox.
                kept.send_urgent(1_000).unwrap();
                expected.insert(6, "1000".into());
                host.kill(instance.lock().unwrap().unwrap()).unwrap();
            }
            until(|| read.0.lock().unwrap().len() == expected.len()).await;
            assert_eq!(read.take(), expected);
            host.kill(tree.pid()).unwrap();
            tree.exited().await;
        }
    });
}

/// 6.4g: a hand-written instance takes all messages out of its mailbox in one step, and fails in the middle of the
/// step. The next instance reads the remaining messages in order.
#[test]
fn the_next_instance_reads_the_messages_that_a_failed_step_has_not_read() {
    everywhere(async |host| {
        let read = Log::default();
        let log = read.clone();
        let child = Child::process(A, move || RawLog { log: log.clone(), fails_at: Some(5) }).keep_mailbox();
        let _tree = started(&host, Supervisor::one_for_one().add(child)).await;
        let address = host.address::<Do>(host.whereis(A).unwrap()).unwrap();
        (0..20).for_each(|n| address.send(Do::Add(n)).unwrap());
        until(|| read.0.lock().unwrap().len() == 20).await;
        assert_eq!(read.take(), (0..20).map(|n: u64| n.to_string()).collect::<Vec<_>>());
    });
}

/// 6.4g, 2.3d: a hand-written child has a bounded mailbox and a kept mailbox. The child takes all messages out of the
/// bounded mailbox in one step. Then messages move from the kept mailbox to the bounded mailbox.
#[test]
fn messages_move_from_a_kept_mailbox_to_a_hand_written_child() {
    everywhere(async |host| {
        let read = Log::default();
        let log = read.clone();
        let child = Child::process(A, move || RawLog { log: log.clone(), fails_at: None })
            .keep_mailbox()
            .options(|process| process.mailbox_capacity(MailboxCapacity::Reject(2)));
        let _tree = started(&host, Supervisor::one_for_one().add(child)).await;
        let address = host.address::<Do>(host.whereis(A).unwrap()).unwrap();
        futures::future::join_all((0..20).map(|n| address.send_wait(Do::Add(n)))).await;
        until(|| read.0.lock().unwrap().len() == 20).await;
        assert_eq!(read.take(), (0..20).map(|n: u64| n.to_string()).collect::<Vec<_>>());
    });
}

/// 6.4g: a name in the options of a child is ignored. The name is ignored even if the child is unnamed or has a kept
/// mailbox.
#[test]
fn a_name_in_the_options_of_a_child_is_ignored() {
    everywhere(async |host| {
        for keeps in [false, true] {
            let named = |child: Child, name: Name<Do>| {
                let child = child.options(move |process| process.name(name));
                if keeps { child.keep_mailbox() } else { child }
            };
            let children = [
                named(Child::new(A, obey), A),
                named(Child::new(B, obey), C),
                named(Child::unnamed(obey), Name::new("unnamed")),
            ];
            let tree = started(&host, children.into_iter().fold(Supervisor::one_for_one(), Supervisor::add)).await;
            let family = tree.call(SupervisorMessage::WhichChildren).await.unwrap();
            let pid = |name: Name<Do>| host.whereis(name);
            assert_eq!([pid(A), pid(B)], [family.children[0].pid, family.children[1].pid]);
            assert_eq!([pid(C), pid(Name::new("unnamed"))], [None; 2]);
            tree.abort();
            until(|| pid(A).is_none() && pid(B).is_none()).await;
        }
    });
}

/// 6.4b: two children crash again and again while their supervisor starts them. A step of the supervisor ends after the
/// step has processed a limited number of exits. So a kill ends the supervisor although the crashes continue.
#[test]
fn a_step_of_a_supervisor_ends_while_its_children_crash() {
    within(60, || {
        const MOST: usize = 5_000;
        let rt = Arc::new(Runtime::builder().workers(0).build().unwrap());
        let starts = Arc::new(AtomicUsize::new(0));
        let crashes = |name| {
            let (begun, counts, runtime) = (Arc::clone(&starts), Arc::clone(&starts), Arc::downgrade(&rt));
            let body = move |ctx: Context<Do>| {
                let ends = (3..MOST).contains(&begun.load(SeqCst));
                async move { if ends { Err(Exit::failed("again")) } else { obey(ctx).await } }
            };
            Child::new(name, body).options(move |process| {
                let rt = runtime.upgrade().unwrap();
                if counts.fetch_add(1, SeqCst) == 10 {
                    rt.kill(rt.whereis(SUB).unwrap()).unwrap();
                }
                // The other child runs and crashes during the step of the supervisor. In a runtime with several
                // workers, the other child could run and crash on another worker.
                rt.block_on(async {
                    for _ in 0..4 {
                        step_aside().await;
                    }
                });
                process
            })
        };
        let tree = Supervisor::one_for_one().intensity(u32::MAX, SECOND).add(crashes(A)).add(crashes(B));
        let tree = rt.process().name(SUB).spawn_process(tree).unwrap();
        rt.block_on(tree.started()).unwrap();
        rt.send(A, Do::Fail).unwrap();
        rt.send(B, Do::Fail).unwrap();
        assert_eq!(rt.block_on(tree), Err(Exit::Killed));
        let starts = starts.load(SeqCst);
        assert!((10..600).contains(&starts), "{starts} starts");
    });
}

/// 6.4f: each child has its own shutdown time. When this time has passed, the child is killed. If the time is zero, the
/// child is killed immediately.
#[test]
fn each_child_has_its_own_shutdown_time() {
    timed(async |host, late| {
        let log = Log::default();
        let stubborn = |name: Name<Do>, log: &Log, within| {
            let log = log.clone();
            Child::new(name, move |mut ctx| {
                let log = log.clone();
                async move {
                    let _over = Over(log.clone(), name.as_str());
                    let Event::Cancel { reason, .. } = ctx.event().await else { return };
                    log.note(format!("{name} heard {reason}"));
                    std::future::pending().await
                }
            })
            .shutdown(within)
        };
        let tree = Supervisor::one_for_one()
            .add(noted(A, &log).shutdown(SECOND * 3600))
            .add(stubborn(B, &log, ms(20)))
            .add(stubborn(C, &log, Duration::ZERO));
        let tree = started(&host, tree).await;
        log.take();
        let end = host.now() + ms(20);
        host.cancel(tree.pid(), "enough", SECOND * 3600).unwrap();
        assert!(tree.await.is_err());
        late.check(host.now(), end);
        assert_eq!(log.take(), ["-c", "b heard enough", "-b", "-a"]);

        // The deadline of the supervisor also limits the time of its children.
        let tree = Supervisor::one_for_one().add(stubborn(B, &log, SECOND * 3600));
        let tree = started(&host, tree).await;
        let soon = host.now() + ms(20);
        host.cancel(tree.pid(), "soon", ms(20)).unwrap();
        assert!(matches!(tree.await, Err(Exit::Cancelled(_) | Exit::Killed)));
        until(|| host.whereis(B).is_none()).await;
        late.check(host.now(), soon);
    });
    // The default shutdown time is five seconds.
    check(0..10, async |host: Host| {
        let tree = started(&host, Supervisor::one_for_one().add(Child::unnamed_process(|| Raw))).await;
        let begun = host.now();
        host.cancel(tree.pid(), "enough", SECOND * 3600).unwrap();
        assert!(tree.await.is_err());
        assert_eq!((host.now() - begun, host.processes_alive()), (SECOND * 5, 0));
    });
}

/// 6.4e: with a backoff, the delay before the restart grows with each restart.
#[test]
fn a_backoff_grows() {
    timed(async |host, late| {
        let births = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&births);
        let fails = Child::new(A, move |ctx: Context<Do>| {
            noted.lock().unwrap().push(ctx.now());
            async { Err::<(), _>("again") }
        });
        let tree = Supervisor::one_for_one()
            .intensity(5, SECOND * 60)
            .add(fails.backoff(Backoff::new(ms(5), ms(20)).jitter(false)))
            .child(B, obey);
        let tree = host.spawn_process(tree);
        assert!(matches!(tree.await.unwrap_err().error(), Some(SupervisorError::RestartIntensityExceeded { .. })));
        let births = births.lock().unwrap();
        assert_eq!(births.len(), 6);
        for (pair, wait) in births.windows(2).zip([5, 10, 20, 20, 20]) {
            late.check(pair[1], pair[0] + ms(wait));
        }
    });
}

/// 6.4b: a restart of a child is requested while the child starts. The request returns the pid of the new instance,
/// even if the present instance finishes its start before the supervisor stops this instance.
#[test]
fn a_requested_restart_during_a_start_returns_the_new_instance() {
    everywhere(async |host| {
        let (open, opened) = oneshot::channel::<()>();
        let opened = Mutex::new(Some(opened));
        let exits = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&exits);
        let slow = Child::new(A, move |ctx: Context<Do>| {
            let (opened, exits) = (opened.lock().unwrap().take(), Arc::clone(&noted));
            async move {
                ctx.cancelled().await;
                exits.store(true, SeqCst);
                let _ = opened.expect("the child has one instance").await;
            }
        });
        let starting = Child::new(B, async |mut ctx: Context<Do>| {
            while let Ok(order) = ctx.receive().await {
                match order {
                    Do::Who(reply) => reply.send(ctx.pid()),
                    _ => ctx.mark_started(),
                }
            }
        });
        let starting = starting.options(ProcessBuilder::manual_start);
        let tree = host.spawn_process(Supervisor::rest_for_one().add(slow).add(starting));
        let first = who(&host, B).await;
        // This supervisor stops one child at a time. Therefore the supervisor stops B only after the exit of A.
        let mut stopped = pin!(tree.call(|reply| SupervisorMessage::TerminateChild(A.into(), reply)));
        assert!(poll!(&mut stopped).is_pending());
        until(|| exits.load(SeqCst)).await;
        let mut restarted = pin!(tree.call(|reply| SupervisorMessage::RestartChild(B.into(), reply)));
        assert!(poll!(&mut restarted).is_pending());
        host.send(B, Do::End).unwrap();
        while tree.call(SupervisorMessage::WhichChildren).await.unwrap().children[1].state == ChildState::Starting {
            step_aside().await;
        }
        assert!(poll!(&mut restarted).is_pending());
        open.send(()).unwrap();
        assert!(stopped.await.unwrap());
        host.exited(first).await;
        let second = who(&host, B).await;
        assert_ne!(first, second);
        host.send(B, Do::End).unwrap();
        assert_eq!(restarted.await.unwrap().unwrap(), second);
    });
}

/// 6.4b, 6.4f: in a one-for-one supervisor, a restart of a child is requested during the first start of the child. The
/// request returns the pid of the new instance. The next child starts only when the new instance has started.
#[test]
fn a_requested_restart_during_a_start_delays_the_start_of_the_next_child() {
    everywhere(async |host| {
        let starting = Child::new(B, async |mut ctx: Context<Do>| {
            while let Ok(order) = ctx.receive().await {
                match order {
                    Do::Who(reply) => reply.send(ctx.pid()),
                    _ => ctx.mark_started(),
                }
            }
        });
        let starting = starting.options(ProcessBuilder::manual_start);
        let tree = host.spawn_process(Supervisor::one_for_one().add(starting).child(C, obey));
        let first = who(&host, B).await;
        let mut restarted = pin!(tree.call(|reply| SupervisorMessage::RestartChild(B.into(), reply)));
        assert!(poll!(&mut restarted).is_pending());
        host.exited(first).await;
        let second = who(&host, B).await;
        assert_ne!(first, second);
        assert_eq!(host.whereis(C), None, "the next child waits for the new instance");
        assert!(poll!(&mut restarted).is_pending() && tree.started().now_or_never().is_none());
        host.send(B, Do::End).unwrap();
        assert_eq!(restarted.await.unwrap().unwrap(), second);
        tree.started().await.unwrap();
        assert!(host.whereis(C).is_some());
    });
}

/// 6.4b, 6.4f: a one-for-one supervisor receives a request to stop a child that is starting. The start of the
/// supervisor does not wait for this child.
#[test]
fn the_strategy_one_for_one_does_not_wait_for_the_start_of_a_stopped_child() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let slow = Child::new(A, async |_: Context<Do>| std::future::pending::<()>().await);
        let slow = slow.options(ProcessBuilder::manual_start).shutdown(SECOND * 3600);
        let supervisor = rt.spawn_process(Supervisor::one_for_one().add(slow));
        rt.block_on(until(|| rt.whereis(A).is_some()));
        assert!(supervisor.started().now_or_never().is_none(), "the child is starting");
        let mut stopped = supervisor.call(|reply| SupervisorMessage::TerminateChild(A.into(), reply)).start();
        rt.block_on(supervisor.started()).unwrap();
        assert!(rt.block_on(async { poll!(&mut stopped) }).is_pending(), "the child still runs");
        rt.kill(rt.whereis(A).unwrap()).unwrap();
        assert_eq!(rt.block_on(stopped), Ok(true));
    });
}

/// 6.4e: a requested restart resets the backoff of the child, even while the supervisor delays a restart of this child.
#[test]
fn a_requested_restart_resets_the_backoff() {
    timed(async |host, late| {
        let births = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&births);
        let child = Child::new(A, move |ctx: Context<Do>| {
            noted.lock().unwrap().push(ctx.now());
            obey(ctx)
        });
        let child = child.backoff(Backoff::new(ms(5), SECOND * 60).jitter(false));
        let tree = started(&host, Supervisor::one_for_one().intensity(1_000, SECOND).add(child)).await;
        let restart =
            async || tree.call(|reply| SupervisorMessage::RestartChild(A.into(), reply)).await.unwrap().unwrap();
        // Makes the child exit four times, and asserts the delay before each restart.
        let dies = async |waits: [u64; 4]| {
            for wait in waits {
                let died = host.now();
                next_instance(&host, A, Do::Fail).await;
                late.check(*births.lock().unwrap().last().unwrap(), died + ms(wait));
            }
        };
        dies([5, 10, 20, 40]).await;
        restart().await;
        dies([5, 10, 20, 40]).await;
        // After this exit, the backoff is 80 ms. The requested restart starts the next instance immediately.
        let (pid, now) = (who(&host, A).await, host.now());
        host.send(A, Do::Fail).unwrap();
        host.exited(pid).await;
        restart().await;
        late.check(*births.lock().unwrap().last().unwrap(), now);
        dies([5, 10, 20, 40]).await;
    });
}

/// 6.4a, 6.4d: if a supervisor exceeds its restart intensity, the parent supervisor restarts this supervisor and all
/// its children.
#[test]
fn a_supervisor_that_exceeds_its_intensity_is_restarted_by_its_parent_supervisor() {
    everywhere(async |host| {
        let log = Log::default();
        let inner = log.clone();
        let below =
            move || Supervisor::one_for_one().intensity(1, SECOND * 60).add(noted(A, &inner)).add(noted(B, &inner));
        let tree = Supervisor::one_for_one().add(Child::process(SUB, below)).add(noted(C, &log));
        let tree = started(&host, tree).await;
        let (sub, c) = (host.whereis(SUB).unwrap(), host.whereis(C));
        next_instance(&host, A, Do::Fail).await;
        host.send(A, Do::Fail).unwrap();
        host.exited(sub).await;
        until(|| host.whereis(SUB).is_some_and(|pid| pid != sub)).await;
        who(&host, B).await;
        assert_eq!(host.whereis(C), c);
        let family = host.supervision_tree(&tree).await.unwrap();
        let below = family.children[0].below.as_ref().unwrap();
        assert_eq!((family.children[0].restarts, below.children.len()), (1, 2));
        let last = family.children[0].last.as_ref().unwrap();
        assert!(matches!(last.error(), Some(SupervisorError::RestartIntensityExceeded { .. })), "{last}");
        let printed = family.to_string();
        let lines: Vec<_> = printed.lines().collect();
        // On a slow machine, the restart may be older than 5 s. Then the supervisor no longer counts this restart.
        let head = ["one for one, 3 restarts within 5s <", "one for one, 3 restarts within 5s, 2 left <"];
        assert!(head.iter().any(|head| lines[0].starts_with(head)), "{printed}");
        assert!(lines[1].starts_with("├─ sub <") && lines[1].contains("restarted once"), "{printed}");
        assert_eq!(lines[2], "│  │ one for one, 1 restart within 60s", "{printed}");
        assert!(lines[3].starts_with("│  ├─ a <") && lines[3].ends_with("> running"), "{printed}");
        assert!(lines[4].starts_with("│  └─ b <"), "{printed}");
        assert!(lines[5].starts_with("└─ c <"), "{printed}");
        assert_eq!(lines.len(), 6, "{printed}");
    });
}

/// 6.4d: the supervision tree shows the number of remaining restarts of a supervisor. Requested restarts and restarts
/// outside the sliding window do not reduce this number.
#[test]
fn the_tree_shows_the_remaining_restarts_of_a_supervisor() {
    check(0..10, async |host: Host| {
        let tree = started(&host, Supervisor::one_for_one().child(A, obey)).await;
        let left = async || {
            let family = host.supervision_tree(&tree).await.unwrap();
            let head = family.to_string().lines().next().unwrap().split(" <").next().unwrap().to_owned();
            (family.recent_restarts, family.restarts_left(), head)
        };
        let all = (0, 3, "one for one, 3 restarts within 5s".to_owned());
        assert_eq!(left().await, all);
        next_instance(&host, A, Do::Fail).await;
        let fewer = (1, 2, "one for one, 3 restarts within 5s, 2 left".to_owned());
        assert_eq!(left().await, fewer);
        host.call(&tree, |reply| SupervisorMessage::RestartChild(A.into(), reply)).await.unwrap().unwrap();
        assert_eq!(left().await, fewer);
        next_instance(&host, A, Do::Panic).await;
        assert_eq!(left().await.1, 1);
        host.sleep(SECOND * 5).await;
        assert_eq!(left().await, all);
    });
}

/// 6.1d, 6.4g: if a supervisor is killed, its children are killed too. The parent supervisor starts the next instance
/// only after all these children have exited, even if these exits take a long time. A child never has two instances at
/// the same time.
#[test]
fn a_child_never_has_two_instances() {
    within(60, || {
        let rt = two();
        let host = rt.host().clone();
        let (lives, most) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
        let body = {
            let (lives, most) = (Arc::clone(&lives), Arc::clone(&most));
            move |ctx: Context<Do>| {
                struct Life(Arc<AtomicI64>);
                impl Drop for Life {
                    fn drop(&mut self) {
                        self.0.fetch_sub(1, SeqCst);
                    }
                }
                most.fetch_max(lives.fetch_add(1, SeqCst) + 1, SeqCst);
                let life = Life(Arc::clone(&lives));
                async move {
                    let _life = life;
                    obey(ctx).await
                }
            }
        };
        let body = Arc::new(body);
        let below = move || {
            let body = Arc::clone(&body);
            Supervisor::one_for_one().intensity(u32::MAX, SECOND).child(A, move |ctx| body(ctx))
        };
        let tree = Supervisor::one_for_one().intensity(u32::MAX, SECOND).add(Child::process(SUB, below));
        let tree = rt.spawn_process(tree);
        rt.block_on(tree.started()).unwrap();
        let killers: Vec<_> = [A.as_str(), SUB.as_str()]
            .into_iter()
            .map(|whom| {
                let host = host.clone();
                rt.spawn(async move |ctx: Context| {
                    let mut killed = BTreeSet::new();
                    while killed.len() < 200 {
                        if let Some(pid) = host.whereis(whom)
                            && host.kill(pid).is_ok()
                        {
                            killed.insert(pid);
                        }
                        ctx.yield_now().await;
                    }
                })
            })
            .collect();
        killers.into_iter().for_each(|killer| rt.block_on(killer).unwrap());
        rt.block_on(who(&host, A));
        assert_eq!((lives.load(SeqCst), most.load(SeqCst)), (1, 1));
        assert!(!tree.is_finished());
        tree.abort();
        rt.block_on(async {
            let _ = tree.await;
            until(|| lives.load(SeqCst) == 0).await;
        });
    });
}

/// 6.3a, 6.4f: if a linked process exits abnormally, the supervisor stops its children in order and then exits. If a
/// linked process exits normally, the supervisor continues to run.
#[test]
fn a_supervisor_stops_its_children_in_order_when_a_linked_process_fails() {
    everywhere(async |host| {
        let log = Log::default();
        let (tell, told) = oneshot::channel();
        let noted_log = log.clone();
        let parent = host.spawn(async move |mut ctx: Context<Do>| {
            let tree = Supervisor::one_for_one().add(noted(A, &noted_log)).add(noted(B, &noted_log));
            let tree = ctx.process().link().spawn_process(tree).map_err(|_| Exit::failed("refused"))?;
            tree.started().await?;
            let _ = tell.send(tree);
            ctx.receive().await?;
            Err::<(), _>(Exit::failed("the parent"))
        });
        let tree = told.await.unwrap();
        log.take();
        let friend = host.spawn(obey);
        // A second linked process exits normally, so the supervisor continues to run.
        let other = host.spawn(async move |ctx: Context<Do>| ctx.link(tree.pid()).map(|()| tree).map_err(Exit::from));
        let tree = other.await.unwrap();
        parent.send(Do::End).unwrap();
        let Err(Exit::Linked { origin, .. }) = tree.await else { panic!("its parent has failed") };
        assert_eq!(origin, parent.pid());
        assert_eq!(log.take(), ["-b", "-a"]);
        friend.abort();
    });
}

/// 6.4b: ten thousand children are all killed. The supervisor restarts all these children.
#[test]
fn all_children_are_restarted_after_all_children_were_killed() {
    timed(async |host, late| {
        let many: u32 = if late.is_exact() { 1_000 } else { 10_000 };
        let mut tree = Supervisor::one_for_one().intensity(many, SECOND * 60);
        for _ in 0..many {
            tree = tree.add(Child::unnamed(obey));
        }
        let tree = started(&host, tree).await;
        let before = tree.call(SupervisorMessage::WhichChildren).await.unwrap();
        for child in &before.children {
            host.kill(child.pid.unwrap()).unwrap();
        }
        let after = loop {
            let after = tree.call(SupervisorMessage::WhichChildren).await.unwrap();
            if after.children.iter().all(|child| child.restarts == 1 && child.state == ChildState::Running) {
                break after;
            }
            step_aside().await;
        };
        assert_eq!(after.children.len(), many as usize);
        assert_eq!(tree.call(SupervisorMessage::CountChildren).await.unwrap(), many as usize);
    });
}

/// 6.5a: a shutdown stops the supervision trees first, and each supervisor stops its children in reverse order. The
/// other processes are cancelled only after the trees have stopped. Therefore a child can still use the other processes
/// while it cleans up, and these processes can still spawn processes.
#[test]
fn a_shutdown_stops_the_supervision_trees_first() {
    fn spawn_tree(host: &Host, log: &Log) -> JoinHandle<(), SupervisorMessage> {
        // This process has no supervisor. The children still need this process while they exit.
        let store_log = log.clone();
        let store = host.process().name("store").spawn(async move |mut ctx: Context<Do>| {
            let _over = Over(store_log.clone(), "store");
            while let Ok(message) = ctx.receive().await {
                if let Do::Sum(reply) = message {
                    let body = async |mut ctx: Context<Reply<u64>>| ctx.receive().await.map(|reply| reply.send(1));
                    let helper = ctx.spawn(body);
                    assert!(helper.send(reply).is_ok());
                }
            }
        });
        drop(store.unwrap());
        let cleans_up = |name: Name<Do>, log: &Log| {
            let log = log.clone();
            Child::new(name, move |mut ctx: Context<Do>| {
                let log = log.clone();
                async move {
                    let _over = Over(log, name.as_str());
                    ctx.cancelled().await;
                    let kept: Result<u64, _> = ctx.call("store", Do::Sum).await;
                    assert_eq!(kept.unwrap(), 1);
                    ctx.sleep(ms(5)).await;
                    assert!(ctx.try_receive().is_none());
                }
            })
        };
        let inner = log.clone();
        let below = move || Supervisor::one_for_one().add(cleans_up(A, &inner)).add(cleans_up(B, &inner));
        host.spawn_process(Supervisor::one_for_one().add(Child::process(SUB, below)).add(cleans_up(C, log)))
    }
    let ended = ["-c", "-b", "-a", "-store"];
    within(60, move || {
        let rt = two();
        let log = Log::default();
        let tree = spawn_tree(&rt, &log);
        rt.block_on(tree.started()).unwrap();
        let shutdown = shut_down(rt, SECOND * 30);
        assert!(shutdown.left.is_empty(), "{:?}", shutdown.left);
        assert_eq!(log.take(), ended);
    });
    for seed in 0..10 {
        let (mut simulation, log) = (Simulation::new(seed), Log::default());
        let tree = spawn_tree(&simulation, &log);
        simulation.run(tree.started()).unwrap();
        let (host, begun) = (simulation.host().clone(), simulation.now());
        let shutdown = simulation.shutdown(SECOND * 30);
        assert!(shutdown.left.is_empty(), "{:?}", shutdown.left);
        assert_eq!((log.take(), host.now() - begun), (ended.map(String::from).to_vec(), ms(15)), "one after the other");
    }
}

/// 6.5b, 6.5c, 6.5d: if a child ignores its cancellation, it is killed when its shutdown time has passed. If the step
/// of a child never returns, the report lists the child as remaining.
#[test]
fn a_shutdown_keeps_to_its_deadline() {
    fn spawn_tree(host: &Host) -> JoinHandle<(), SupervisorMessage> {
        let deaf = Child::new(A, async |ctx: Context<Do>| -> () {
            std::future::pending::<()>().await;
            drop(ctx);
        });
        host.spawn_process(Supervisor::one_for_one().add(deaf.shutdown(ms(10))).child(B, obey))
    }
    for seed in 0..10 {
        let time_left = |within: Duration| {
            let mut simulation = Simulation::new(seed);
            let tree = spawn_tree(&simulation);
            simulation.run(tree.started()).unwrap();
            let (host, a) = (simulation.host().clone(), simulation.whereis(A).unwrap());
            let deadline = host.now() + within;
            let left: Vec<_> = simulation.shutdown(within).left.into_iter().map(|left| left.pid).collect();
            (deadline - host.now(), left.contains(&a))
        };
        assert_eq!(time_left(SECOND * 30), (SECOND * 30 - ms(10), false));
        assert_eq!(time_left(ms(9)), (Duration::ZERO, true));
    }
    within(60, || {
        let rt = two();
        let tree = spawn_tree(&rt);
        rt.block_on(tree.started()).unwrap();
        assert!(shut_down(rt, SECOND * 30).left.is_empty());

        let rt = two();
        let release = Arc::new(AtomicBool::new(false));
        let (spins, spinning) = (Arc::clone(&release), Arc::new(AtomicBool::new(false)));
        let is_spinning = Arc::clone(&spinning);
        let stuck = Child::new(A, move |_: Context<Do>| {
            is_spinning.store(true, SeqCst);
            while !spins.load(SeqCst) {
                std::thread::yield_now();
            }
            async {}
        });
        let tree = rt.spawn_process(Supervisor::one_for_one().add(stuck));
        futures::executor::block_on(until(|| spinning.load(SeqCst)));
        let ended = shut_down(rt, Duration::from_millis(50));
        let names: Vec<_> = ended.left.iter().map(|left| left.pid).collect();
        assert!(names.len() <= 2 && !names.is_empty(), "{names:?}");
        release.store(true, SeqCst);
        drop(tree);
    });
}

/// 6.5a: during the shutdown of a tree, a supervisor that has not been stopped yet still restarts its children.
#[test]
fn a_supervisor_restarts_its_children_until_a_shutdown_stops_the_supervisor() {
    fn spawn_tree(host: &Host, mended: &Arc<AtomicBool>) -> JoinHandle<(), SupervisorMessage> {
        let below = || Supervisor::one_for_one().child(A, obey);
        let (inside, noted) = (host.clone(), Arc::clone(mended));
        // The supervisor stops the last child first. This child exits only after `A` has been restarted.
        let last = Child::new(B, move |mut ctx: Context<Do>| {
            let (host, noted) = (inside.clone(), Arc::clone(&noted));
            async move {
                while !matches!(ctx.event().await, Event::Cancel { .. }) {}
                next_instance(&host, A, Do::Panic).await;
                noted.store(true, SeqCst);
            }
        });
        host.spawn_process(Supervisor::one_for_one().add(Child::process(SUB, below)).add(last))
    }
    within(60, || {
        let (rt, mended) = (two(), Arc::default());
        let tree = spawn_tree(&rt, &mended);
        rt.block_on(tree.started()).unwrap();
        assert!(shut_down(rt, SECOND * 30).left.is_empty());
        assert!(mended.load(SeqCst));
    });
    for seed in 0..10 {
        let (mut simulation, mended) = (Simulation::new(seed), Arc::default());
        let tree = spawn_tree(&simulation, &mended);
        simulation.run(tree.started()).unwrap();
        assert!(simulation.shutdown(SECOND * 30).left.is_empty());
        assert!(mended.load(SeqCst));
    }
}

/// 6.4b: a child that is added at run time may have a name that was computed at run time. The name survives a restart.
#[test]
fn a_child_that_is_added_at_run_time_may_have_a_computed_name() {
    everywhere(async |host| {
        let tree = started(&host, Supervisor::one_for_one()).await;
        for n in 1..=2 {
            let child = Child::new(format!("child-{n}"), obey);
            tree.call(|reply| SupervisorMessage::StartChild(child, reply)).await.unwrap().unwrap();
        }
        let second = host.whereis("child-2").unwrap();
        let restart = |reply| SupervisorMessage::RestartChild(String::from("child-2").into(), reply);
        let again = tree.call(restart).await.unwrap().unwrap();
        assert_ne!(again, second);
        assert_eq!(host.whereis(format!("child-{}", 2)), Some(again));
        tree.abort();
    });
}

/// 6.4b: two requests for the same child may overlap while the child exits. Each caller gets an answer. If one of the
/// requests is to delete the child, the child is deleted.
#[test]
fn overlapping_requests_for_a_child_are_all_answered() {
    everywhere(async |host| {
        /// Body that exits 20 ms after its first event.
        async fn slow(mut ctx: Context<Do>) -> Result<(), Exit> {
            let _ = ctx.event().await;
            ctx.host().sleep(ms(20)).await;
            Ok(())
        }
        let tree = started(&host, Supervisor::one_for_one().child(A, slow)).await;
        let first = host.whereis(A).unwrap();
        let terminate = tree.call(|reply| SupervisorMessage::TerminateChild(A.into(), reply));
        let restart = tree.call(|reply| SupervisorMessage::RestartChild(A.into(), reply));
        let (terminated, restarted) = futures::join!(terminate, restart);
        assert!(terminated.unwrap());
        assert_ne!(restarted.unwrap().unwrap(), first);

        let delete = tree.call(|reply| SupervisorMessage::DeleteChild(A.into(), reply));
        let terminate = tree.call(|reply| SupervisorMessage::TerminateChild(A.into(), reply));
        let restart = tree.call(|reply| SupervisorMessage::RestartChild(A.into(), reply));
        let (deleted, terminated, restarted) = futures::join!(delete, terminate, restart);
        assert!(deleted.unwrap() && terminated.unwrap());
        assert!(matches!(restarted.unwrap(), Err(Exit::NoProcess)));
        assert_eq!(tree.call(SupervisorMessage::CountChildren).await.unwrap(), 0);
        tree.call(|reply| SupervisorMessage::StartChild(Child::new(A, slow), reply)).await.unwrap().unwrap();
    });
}

/// 6.4b: a child has no name and was added at run time. When this child has exited and is not restarted, the supervisor
/// removes the child from its list of children. The reason is that no request can address this child any more.
#[test]
fn an_unnamed_child_that_was_added_at_run_time_is_removed_after_its_exit() {
    everywhere(async |host| {
        let first = Child::unnamed(async |_: Context| ()).restart(RestartPolicy::Transient);
        let tree = started(&host, Supervisor::one_for_one().add(first)).await;
        for _ in 0..10 {
            let job = Child::unnamed(async |_: Context| ()).restart(RestartPolicy::Transient);
            let job = tree.call(|reply| SupervisorMessage::StartChild(job, reply)).await.unwrap().unwrap();
            host.exited(job).await;
            let body = Child::unnamed(obey);
            let body = tree.call(|reply| SupervisorMessage::StartChild(body, reply)).await.unwrap().unwrap();
            assert!(tree.call(|reply| SupervisorMessage::TerminateChild(body.into(), reply)).await.unwrap());
        }
        // The first child was not added at run time, so this child stays in the list.
        while tree.call(SupervisorMessage::WhichChildren).await.unwrap().children.len() != 1 {
            step_aside().await;
        }
    });
}

/// 6.4g: if a kept mailbox is cancelled, the present instance of the child is cancelled too, and the next instance gets
/// a new kept mailbox. The pid of the mailbox and the pid of the instance both identify the child.
#[test]
fn if_a_kept_mailbox_is_cancelled_the_child_gets_a_new_kept_mailbox() {
    everywhere(async |host| {
        let tree = Supervisor::one_for_one().add(Child::new(A, obey).keep_mailbox()).intensity(1, SECOND * 60);
        let tree = started(&host, tree).await;
        let kept = host.whereis(A).unwrap();
        let instance = who(&host, A).await;
        assert_ne!(kept, instance);
        host.cancel(kept, "reload", SECOND * 60).unwrap();
        host.exited(instance).await;
        let next = loop {
            match host.whereis(A) {
                Some(pid) if pid != kept => break pid,
                _ => step_aside().await,
            }
        };
        let instance = who(&host, A).await;
        assert_eq!(tree.call(SupervisorMessage::CountChildren).await.unwrap(), 1);
        for key in [ChildId::from(instance), ChildId::from(next)] {
            let known = tree.call(SupervisorMessage::WhichChildren).await.unwrap();
            assert_eq!(known.children.len(), 1);
            if key == ChildId::from(next) {
                assert!(tree.call(|reply| SupervisorMessage::TerminateChild(key, reply)).await.unwrap());
            } else {
                let pid = tree.call(|reply| SupervisorMessage::RestartChild(key, reply)).await.unwrap().unwrap();
                assert_eq!(pid, next, "the mailbox outlives the instance");
            }
        }
    });
}

/// 6.4g: a supervisor is killed while its child runs a long step. The parent of this supervisor is killed while the
/// parent waits for the child. The grandparent does not restart the tree before the child has exited.
#[test]
fn a_child_has_one_instance_after_two_of_its_supervisors_were_killed() {
    const MIDDLE: Name<SupervisorMessage> = Name::new("middle");
    let rt = Arc::new(Runtime::builder().workers(0).build().unwrap());
    let settle = |rt: &Runtime| (0..50).for_each(|_| rt.block_on(step_aside()));
    let (pids, weak) = (Arc::new(Mutex::new(Vec::new())), Arc::downgrade(&rt));
    let started = Arc::clone(&pids);
    // The child has no name, because a taken name would also prevent a second instance.
    let child = move || {
        let (pids, weak) = (started.clone(), weak.clone());
        Child::unnamed(move |mut ctx: Context<Reply<usize>>| {
            let (pids, weak) = (pids.clone(), weak.clone());
            async move {
                pids.lock().unwrap().push(ctx.pid());
                let reply = ctx.receive().await?;
                // The code up to the next `receive` is one long step. Inside this step, `settle` runs the other
                // processes.
                let rt = weak.upgrade().expect("the test holds the runtime");
                for name in [SUB, MIDDLE] {
                    rt.kill(rt.whereis(name).expect("it runs")).unwrap();
                    settle(&rt);
                }
                reply.send(pids.lock().unwrap().len());
                ctx.receive().await.map(drop)
            }
        })
    };
    let sub = move || Supervisor::one_for_one().add(child());
    let middle = move || Supervisor::one_for_one().add(Child::process(SUB, sub.clone()));
    let top = rt.spawn_process(Supervisor::one_for_one().add(Child::process(MIDDLE, middle)));
    rt.block_on(top.started()).unwrap();
    let first = pids.lock().unwrap()[0];
    assert_eq!(rt.block_on(rt.call(first, |reply: Reply<usize>| reply)).unwrap(), 1);
    settle(&rt);
    assert_eq!(pids.lock().unwrap().len(), 2);
}

/// 6.4b, 6.4g: the pid of a kept mailbox identifies the child of this mailbox until the mailbox is closed or replaced,
/// even while no instance runs.
#[test]
fn the_pid_of_a_kept_mailbox_identifies_a_child_that_is_down() {
    everywhere(async |host| {
        let child = Child::unnamed(obey).restart(RestartPolicy::Transient).keep_mailbox();
        let tree = started(&host, Supervisor::one_for_one().add(child)).await;
        let stop = |pid: Pid| tree.call(move |reply| SupervisorMessage::TerminateChild(pid.into(), reply));
        let start = |pid: Pid| tree.call(move |reply| SupervisorMessage::RestartChild(pid.into(), reply));
        let kept = tree.call(SupervisorMessage::WhichChildren).await.unwrap().children[0].pid.unwrap();
        for _ in 0..2 {
            let instance = host.call(kept, Do::Who).await.unwrap();
            assert!(stop(kept).await.unwrap());
            assert!(stop(kept).await.unwrap(), "the child is down");
            assert!(!stop(instance).await.unwrap(), "the instance has exited");
            assert_eq!(start(kept).await.unwrap(), Ok(kept));
        }
        // The kill closes the mailbox, and the next instance gets a new one.
        let instance = host.call(kept, Do::Who).await.unwrap();
        host.kill(kept).unwrap();
        host.exited(instance).await;
        let next = loop {
            match tree.call(SupervisorMessage::WhichChildren).await.unwrap().children[0].pid {
                Some(pid) if pid != kept => break pid,
                _ => step_aside().await,
            }
        };
        assert!(!stop(kept).await.unwrap(), "the mailbox was replaced");
        // The child finishes, so its mailbox is closed.
        let instance = host.call(next, Do::Who).await.unwrap();
        let closed = host.exited(next);
        host.send(next, Do::End).unwrap();
        host.exited(instance).await;
        closed.await;
        assert!(!stop(next).await.unwrap(), "the mailbox was closed");
        assert_eq!(start(next).await.unwrap(), Err(Exit::NoProcess));
    });
    everywhere(async |host| {
        let tree = started(&host, Supervisor::one_for_one().add(Child::unnamed(obey).keep_mailbox())).await;
        let kept = tree.call(SupervisorMessage::WhichChildren).await.unwrap().children[0].pid.unwrap();
        assert!(tree.call(|reply| SupervisorMessage::TerminateChild(kept.into(), reply)).await.unwrap());
        assert!(tree.call(|reply| SupervisorMessage::DeleteChild(kept.into(), reply)).await.unwrap());
        assert!(!tree.call(|reply| SupervisorMessage::DeleteChild(kept.into(), reply)).await.unwrap());
    });
}

/// 6.4b, 6.4f: a child of a one-for-one supervisor does not exit after its cancellation. Meanwhile, the supervisor
/// restarts, starts and stops the other children without delay.
#[test]
fn the_strategy_one_for_one_delays_no_child_while_another_child_stops() {
    const SLOW: Name<()> = Name::new("slow");
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let (end, until) = oneshot::channel::<()>();
        let until = Arc::new(Mutex::new(Some(until)));
        let slow = Child::new(SLOW, move |_: Context<()>| {
            let until = until.lock().unwrap().take();
            async move { if let Some(until) = until { _ = until.await } else { std::future::pending().await } }
        });
        let supervisor = Supervisor::one_for_one().add(slow.shutdown(SECOND * 3600)).child(A, obey).child(B, obey);
        let supervisor = rt.spawn_process(supervisor);
        rt.block_on(supervisor.started()).unwrap();
        let mut stopped = supervisor.call(|reply| SupervisorMessage::TerminateChild(SLOW.into(), reply)).start();
        let first = rt.whereis(A).unwrap();
        rt.send(A, Do::Panic).unwrap();
        rt.block_on(rt.exited(first));
        (0..20).for_each(|_| rt.block_on(step_aside()));
        assert!(rt.whereis(A).is_some_and(|pid| pid != first), "the child was restarted");
        let added = supervisor.call(|reply| SupervisorMessage::StartChild(Child::new(C, obey), reply));
        assert!(rt.block_on(added).unwrap().is_ok());
        let removed = supervisor.call(|reply| SupervisorMessage::DeleteChild(B.into(), reply));
        assert_eq!(rt.block_on(removed), Ok(true));
        assert!(rt.block_on(async { poll!(&mut stopped) }).is_pending(), "the slow child still runs");
        end.send(()).unwrap();
        assert_eq!(rt.block_on(stopped), Ok(true));
        assert_eq!(rt.block_on(supervisor.call(SupervisorMessage::CountChildren)), Ok(2));
    });
}

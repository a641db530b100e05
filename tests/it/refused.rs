//! Sections 6.4 and 4.9 of the specification: if the runtime refuses to start a process, a supervisor or a pool must
//! not retry the start forever.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::executor::block_on;
use futures::future::BoxFuture;
use procession::supervisor::*;
use procession::*;

use crate::time::timed;
use crate::{alone, everywhere, shut_down, step_aside, within};

const A: Name<Do> = Name::new("a");
const B: Name<Do> = Name::new("b");
const C: Name<Do> = Name::new("c");
const HOUR: Duration = Duration::from_secs(3600);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

enum Do {
    Ping(Reply<()>),
    End,
}

async fn obey(mut ctx: Context<Do>) -> Result<(), Exit> {
    loop {
        match ctx.receive().await? {
            Do::Ping(reply) => reply.send(()),
            Do::End => return Err(Exit::failed("told to")),
        }
    }
}

/// An obstacle is a process that makes the runtime refuse a start. The obstacle either uses up the process limit of a
/// host or has the name of the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obstacle {
    Limit,
    Name,
}

const OBSTACLES: [Obstacle; 2] = [Obstacle::Limit, Obstacle::Name];

impl Obstacle {
    fn put(self, host: &Host) -> JoinHandle<(), Do> {
        let process = match self {
            Self::Limit => host.process(),
            Self::Name => host.process().name(A),
        };
        process.spawn(obey).unwrap()
    }

    fn text(self) -> &'static str {
        match self {
            Self::Limit => "the process limit of",
            Self::Name => "the name is taken",
        }
    }

    /// Returns a new host. With the obstacle `Limit`, the host allows only two processes: a supervisor and its only
    /// child.
    fn host(self, host: &Host) -> Host {
        let few = HostBuilder::new("few");
        host.add_host(if self == Self::Limit { few.max_processes(2) } else { few }).unwrap()
    }
}

/// Counts the starts of a child. At the second start of the child, this value creates the obstacle before the process
/// is spawned. Therefore the second start is refused.
#[derive(Clone)]
struct Starts {
    host: Host,
    obstacle: Obstacle,
    times: Arc<Mutex<Vec<Instant>>>,
    blocker: Arc<Mutex<Option<JoinHandle<(), Do>>>>,
}

impl Starts {
    fn new(host: &Host, obstacle: Obstacle) -> Self {
        Self { host: host.clone(), obstacle, times: Arc::default(), blocker: Arc::default() }
    }

    fn child(&self) -> Child {
        let starts = self.clone();
        Child::new(A, obey).options(move |process| {
            starts.begin();
            process
        })
    }

    fn begin(&self) {
        let count = {
            let mut times = self.times.lock().unwrap();
            times.push(self.host.now());
            times.len()
        };
        if count == 2 {
            *self.blocker.lock().unwrap() = Some(self.obstacle.put(&self.host));
        }
    }

    fn count(&self) -> usize {
        self.times.lock().unwrap().len()
    }

    async fn reach(&self, count: usize) {
        while self.count() < count {
            step_aside().await;
        }
    }

    async fn unblock(&self) {
        let blocker = self.blocker.lock().unwrap().take().unwrap();
        blocker.abort();
        let _ = blocker.await;
    }
}

async fn until_up(tree: &Address<SupervisorMessage>) -> ChildInfo {
    loop {
        let family = tree.call(SupervisorMessage::WhichChildren).await.expect("the supervisor lives");
        if family.children[0].state == ChildState::Running {
            return family.children[0].clone();
        }
        step_aside().await;
    }
}

/// 6.4d: if a restart is refused, the supervisor counts the refused attempt as a restart and ends its turn. The
/// supervisor stays responsive and retries after a pause. When the obstacle has exited, the retry succeeds.
#[test]
fn a_refused_restart_is_retried_in_later_turns() {
    for obstacle in OBSTACLES {
        timed(move |host, late| async move {
            let few = obstacle.host(&host);
            let starts = Starts::new(&few, obstacle);
            let supervisor = Supervisor::one_for_one().intensity(1_000, HOUR).add(starts.child());
            let tree = few.spawn_process(supervisor);
            tree.started().await.unwrap();
            let address = tree.address();
            few.send(A, Do::End).unwrap();
            starts.reach(3).await;
            assert!(tree.call(SupervisorMessage::CountChildren).await.unwrap() == 0, "it answers between two attempts");
            starts.reach(5).await;
            starts.unblock().await;
            let child = until_up(&address).await;
            assert_eq!(child.restarts + 1, starts.count() as u64, "each attempt is a restart");
            let times = starts.times.lock().unwrap().clone();
            for pair in times.windows(2).skip(1) {
                late.check(pair[1], pair[0] + ms(1));
            }
            few.call(A, Do::Ping).await.unwrap();
        });
    }
}

/// 6.4e: before a supervisor retries a refused restart, the supervisor waits for the backoff of the child.
#[test]
fn a_refused_restart_is_retried_after_the_backoff() {
    for obstacle in OBSTACLES {
        timed(move |host, late| async move {
            let few = obstacle.host(&host);
            let starts = Starts::new(&few, obstacle);
            let child = starts.child().backoff(Backoff::new(ms(5), ms(20)).jitter(false));
            let tree = few.spawn_process(Supervisor::one_for_one().intensity(1_000, HOUR).add(child));
            tree.started().await.unwrap();
            few.send(A, Do::End).unwrap();
            starts.reach(6).await;
            starts.unblock().await;
            until_up(&tree.address()).await;
            let times = starts.times.lock().unwrap().clone();
            // The first restart was delayed by 5 ms after the exit of the child.
            for (pair, wait) in times[1..].windows(2).zip([10, 20, 20, 20]) {
                late.check(pair[1], pair[0] + ms(wait));
            }
        });
    }
}

/// 6.4d: the supervisor exits when refused restarts exceed the intensity.
#[test]
fn a_supervisor_exits_when_refused_restarts_exceed_the_intensity() {
    for obstacle in OBSTACLES {
        everywhere(async move |host| {
            let few = obstacle.host(&host);
            let starts = Starts::new(&few, obstacle);
            let tree = few.spawn_process(Supervisor::one_for_one().intensity(4, HOUR).add(starts.child()));
            tree.started().await.unwrap();
            few.send(A, Do::End).unwrap();
            let exit = tree.await.unwrap_err();
            let Some(SupervisorError::RestartIntensityExceeded { last, .. }) = exit.error() else { panic!("{exit}") };
            assert!(last.to_string().contains(obstacle.text()), "{exit}");
            // The attempts are the first start and the four allowed restarts.
            assert_eq!(starts.count(), 1 + 4);
            starts.unblock().await;
        });
    }
}

/// 6.4b: a supervisor restarts its children as a group, and the restart of one child is refused. When this child can
/// start again, the supervisor restarts the whole group.
#[test]
fn a_group_waits_for_a_member_whose_restart_is_refused() {
    for strategy in [Supervisor::one_for_all, Supervisor::rest_for_one] {
        everywhere(async move |host| {
            let starts = Starts::new(&host, Obstacle::Name);
            let supervisor = strategy().intensity(1_000, HOUR).add(starts.child()).child(B, obey);
            let tree = host.spawn_process(supervisor);
            tree.started().await.unwrap();
            let b = host.whereis(B);
            host.send(A, Do::End).unwrap();
            starts.reach(4).await;
            assert_eq!((tree.call(SupervisorMessage::CountChildren).await.unwrap(), host.whereis(B)), (0, None));
            starts.unblock().await;
            while tree.call(SupervisorMessage::CountChildren).await.unwrap() < 2 {
                step_aside().await;
            }
            host.call(A, Do::Ping).await.unwrap();
            assert!(host.whereis(B).is_some_and(|pid| Some(pid) != b));
        });
    }
}

/// Returns a child that logs its start and its exit.
fn logged_child(name: Name<Do>, log: &Arc<Mutex<Vec<String>>>) -> Child {
    struct Over(Arc<Mutex<Vec<String>>>, Name<Do>);
    impl Drop for Over {
        fn drop(&mut self) {
            self.0.lock().unwrap().push(format!("-{}", self.1));
        }
    }
    let log = Arc::clone(log);
    Child::new(name, move |ctx| {
        let log = Arc::clone(&log);
        async move {
            log.lock().unwrap().push(format!("+{name}"));
            let _over = Over(log, name);
            obey(ctx).await
        }
    })
}

/// 6.4f: if the first start of a child is refused, the start of its supervisor fails. The children that have already
/// started are stopped in reverse order. The supervisor attempts the start only once, with and without a kept mailbox.
#[test]
fn a_refused_first_start_fails_the_supervisor() {
    everywhere(async |host| {
        let taken = host.process().name(A).spawn(obey).unwrap();
        let full = host.add_host(HostBuilder::new("full").max_processes(3)).unwrap();
        for (host, keeps, text) in [
            (&host, false, "the name is taken"),
            (&host, true, "is taken by"),
            (&full, false, "the process limit of 3"),
        ] {
            let (log, tries) = (Arc::default(), Arc::new(AtomicUsize::new(0)));
            let counts = Arc::clone(&tries);
            let refused = Child::new(A, obey).options(move |process| {
                counts.fetch_add(1, SeqCst);
                process
            });
            let refused = if keeps { refused.keep_mailbox() } else { refused };
            let tree = Supervisor::one_for_one().add(logged_child(B, &log)).add(logged_child(C, &log)).add(refused);
            let tree = host.spawn_process(tree);
            let exit = tree.started().await.unwrap_err();
            let Some(SupervisorError::StartFailed { child, exit: reason }) = exit.error() else { panic!("{exit}") };
            assert_eq!(child, "a");
            assert!(reason.to_string().contains(text), "{exit}");
            assert!(exit.to_string().contains("child `a` could not be started"), "{exit}");
            assert!(tree.await.is_err());
            assert_eq!(*log.lock().unwrap(), ["+b", "+c", "-c", "-b"]);
            assert_eq!(tries.load(SeqCst), 1);
        }
        assert_eq!(full.processes_alive(), 1, "only the holder of the name");
        taken.abort();
    });
}

/// 6.4a, 6.4f: the first start of a supervisor fails, so the start of its parent supervisor fails too.
#[test]
fn a_refused_first_start_also_fails_the_parent_supervisor() {
    everywhere(async |host| {
        let taken = host.process().name(A).spawn(obey).unwrap();
        let made = Arc::new(AtomicUsize::new(0));
        let log = Arc::default();
        let (counts, inner) = (Arc::clone(&made), Arc::clone(&log));
        let below = move || {
            counts.fetch_add(1, SeqCst);
            Supervisor::one_for_one().add(logged_child(C, &inner)).child(A, obey)
        };
        let tree = Supervisor::one_for_one().add(logged_child(B, &log)).add(Child::process(Name::new("sub"), below));
        let tree = host.spawn_process(tree);
        assert!(tree.started().await.is_err());
        let exit = tree.await.unwrap_err();
        let Some(SupervisorError::StartFailed { child, exit: below }) = exit.error() else { panic!("{exit}") };
        assert_eq!(child, "sub");
        assert!(matches!(below.error(), Some(SupervisorError::StartFailed { child, .. }) if child == "a"), "{below}");
        taken.abort();
        while log.lock().unwrap().len() < 4 {
            step_aside().await;
        }
        assert_eq!((*log.lock().unwrap()).join(" "), "+b +c -c -b");
        assert_eq!(made.load(SeqCst), 1);
    });
}

/// 6.4b: the start of a child that is added at run time is refused. The supervisor answers with the refusal and
/// continues. If the restart of a stopped child is refused, the supervisor also answers with the refusal, and the child
/// stays stopped.
#[test]
fn at_run_time_a_supervisor_answers_a_refused_start_with_the_refusal() {
    for obstacle in OBSTACLES {
        everywhere(async move |host| {
            let few = obstacle.host(&host);
            let tree = few.spawn_process(Supervisor::one_for_one());
            tree.started().await.unwrap();
            let refuses = |answer: Result<Pid, Exit>| {
                let exit = answer.unwrap_err();
                assert!(exit.to_string().contains(obstacle.text()), "{exit}");
                assert!(matches!(exit, Exit::Refused(_)), "{exit:?}");
            };
            let add = || tree.call(|reply| SupervisorMessage::StartChild(Child::new(A, obey), reply));
            let blocker = obstacle.put(&few);
            refuses(add().await.unwrap());
            assert!(tree.call(SupervisorMessage::WhichChildren).await.unwrap().children.is_empty());
            blocker.abort();
            let _ = blocker.await;
            let pid = add().await.unwrap().unwrap();

            assert!(tree.call(|reply| SupervisorMessage::TerminateChild(pid.into(), reply)).await.unwrap());
            let blocker = obstacle.put(&few);
            let restart = || tree.call(|reply| SupervisorMessage::RestartChild(A.into(), reply));
            for _ in 0..5 {
                refuses(restart().await.unwrap());
            }
            let family = tree.call(SupervisorMessage::WhichChildren).await.unwrap();
            let states: Vec<_> = family.children.iter().map(|child| (child.state, child.restarts)).collect();
            assert_eq!(states, [(ChildState::Stopped, 0)]);
            blocker.abort();
            let _ = blocker.await;
            restart().await.unwrap().unwrap();
            few.call(A, Do::Ping).await.unwrap();
        });
    }
}

/// 6.4c, 6.4g: a child with a kept mailbox has finished, and a request to start the child again is refused. After the
/// refusal, the child has no mailbox that accepts messages. In the second part, a request stops the child, and a
/// request to start the child again is refused. After this refusal, the kept mailbox still exists.
#[test]
fn a_refused_start_leaves_no_new_kept_mailbox() {
    everywhere(async |host| {
        let few = Obstacle::Limit.host(&host);
        let child = Child::new(A, async |mut ctx: Context<Do>| {
            if let Do::Ping(reply) = ctx.receive().await? {
                reply.send(());
            }
            Ok::<_, Exit>(())
        });
        let child = child.restart(RestartPolicy::Transient).keep_mailbox();
        let tree = few.spawn_process(Supervisor::one_for_one().add(child));
        tree.started().await.unwrap();
        let restart = || tree.call(|reply| SupervisorMessage::RestartChild(A.into(), reply));
        let kept = few.whereis(A).unwrap();
        few.send(A, Do::End).unwrap();
        few.exited(kept).await;
        let blocker = Obstacle::Limit.put(&few);
        assert!(restart().await.unwrap().is_err());
        assert!(few.whereis(A).is_none() && few.send(A, Do::End).is_err());
        blocker.abort();
        let _ = blocker.await;
        let kept = restart().await.unwrap().unwrap();

        assert!(tree.call(|reply| SupervisorMessage::TerminateChild(A.into(), reply)).await.unwrap());
        let blocker = Obstacle::Limit.put(&few);
        let ping = few.call(A, Do::Ping);
        assert!(restart().await.unwrap().is_err());
        assert_eq!(few.whereis(A), Some(kept));
        blocker.abort();
        let _ = blocker.await;
        assert_eq!(restart().await.unwrap().unwrap(), kept);
        ping.await.unwrap();
    });
}

/// Counts the starts of a child. Delays the second start until the runtime has shut down, so that the runtime refuses
/// this start.
#[derive(Clone, Default)]
struct Gate(Arc<Held>);

#[derive(Default)]
struct Held {
    starts: AtomicUsize,
    is_held: AtomicBool,
    go_on: AtomicBool,
}

impl Gate {
    fn pass(&self) {
        if self.0.starts.fetch_add(1, SeqCst) == 1 {
            self.0.is_held.store(true, SeqCst);
            while !self.0.go_on.load(SeqCst) {
                std::thread::yield_now();
            }
        }
    }
}

/// Makes a child named `a` exit. Shuts the runtime down during the restart of this child. Returns the number of starts.
fn starts_during_a_shutdown(keep: impl FnOnce(&Host, Gate) -> BoxFuture<'static, Exit> + Send + 'static) -> usize {
    within(60, || {
        let rt = alone().build().unwrap();
        let gate = Gate::default();
        let exit = keep(&rt, gate.clone());
        while rt.send(A, Do::End).is_err() {
            std::thread::yield_now();
        }
        while !gate.0.is_held.load(SeqCst) {
            std::thread::yield_now();
        }
        assert!(!shut_down(rt, Duration::ZERO).left.is_empty(), "a step does not return");
        gate.0.go_on.store(true, SeqCst);
        let exit = block_on(exit);
        assert!(matches!(exit, Exit::Killed | Exit::Cancelled(_)), "{exit}");
        gate.0.starts.load(SeqCst)
    })
}

/// 6.4d, 6.5a: a supervisor does not retry a start after the runtime has shut down.
#[test]
fn a_supervisor_does_not_retry_after_a_shutdown() {
    let starts = starts_during_a_shutdown(|host, gate| {
        let child = Child::new(A, obey).options(move |process| {
            gate.pass();
            process
        });
        let tree = host.spawn_process(Supervisor::one_for_one().intensity(100, HOUR).add(child));
        tree.map(Result::unwrap_err).boxed()
    });
    assert_eq!(starts, 2);
}

// ---- Pools

/// A value in the body of a pool. The pool clones its body for each start of a member, so this value can count the
/// starts.
struct OnClone<F: Fn()>(Arc<F>);

impl<F: Fn()> Clone for OnClone<F> {
    fn clone(&self) -> Self {
        (self.0)();
        Self(Arc::clone(&self.0))
    }
}

type Work = BoxFuture<'static, Result<(), Exit>>;

/// Returns a pool of `size` members. The pool calls `start` before each start of a member.
fn pool(
    size: usize,
    start: impl Fn() + Send + Sync + 'static,
) -> Pool<Do, impl FnOnce(Context<Do>) -> Work + Clone + Send + 'static> {
    let start = OnClone(Arc::new(start));
    Pool::new(size, move |ctx: Context<Do>| {
        drop(start);
        obey(ctx).boxed()
    })
}

/// If the replacement of a member is refused, the pool counts the refused attempt as a restart and ends its turn.
/// Messages wait in the queue of the pool. A process causes the refusals, and the pool repeats the attempt until this
/// process has exited.
#[test]
fn a_pool_retries_a_refused_replacement_in_later_turns() {
    timed(|host, late| async move {
        let few = Obstacle::Limit.host(&host);
        let starts = Starts::new(&few, Obstacle::Limit);
        let begin = starts.clone();
        let pool = few.spawn_pool(pool(1, move || begin.begin()).restarts(1_000, HOUR));
        pool.started().await.unwrap();
        pool.send(Do::End).unwrap();
        starts.reach(3).await;
        let call = pool.call(Do::Ping).start();
        let count = starts.count();
        assert!(count < 1_000, "the attempts are not all in one turn");
        starts.reach(count + 2).await;
        starts.unblock().await;
        call.await.unwrap();
        let times = starts.times.lock().unwrap().clone();
        for pair in times.windows(2).skip(1) {
            late.check(pair[1], pair[0] + ms(1));
        }
        let count = starts.count();
        pool.call(Do::Ping).await.unwrap();
        assert_eq!(starts.count(), count, "one member is enough");
    });
}

/// A pool counts refused replacements as restarts. When the refused replacements exceed the restart limit of the pool,
/// the pool fails.
#[test]
fn a_pool_fails_when_refused_replacements_exceed_its_limit() {
    everywhere(async |host| {
        let few = Obstacle::Limit.host(&host);
        let starts = Starts::new(&few, Obstacle::Limit);
        let begin = starts.clone();
        let pool = few.spawn_pool(pool(1, move || begin.begin()).restarts(4, HOUR));
        pool.started().await.unwrap();
        pool.send(Do::End).unwrap();
        let exit = pool.await.unwrap_err();
        assert!(
            exit.to_string().starts_with("failed: the pool exceeded its restart intensity of 4 in 3600s"),
            "{exit}"
        );
        assert!(exit.to_string().contains(Obstacle::Limit.text()), "{exit}");
        assert_eq!(starts.count(), 1 + 4);
        starts.unblock().await;
    });
}

/// If the start of one of the first members is refused, the start of the pool fails. The members that have already
/// started then exit.
#[test]
fn a_refused_first_member_fails_the_pool() {
    everywhere(async |host| {
        let few = host.add_host(HostBuilder::new("few").max_processes(3)).unwrap();
        let tries = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&tries);
        let pool = few.spawn_pool(pool(5, move || {
            counts.fetch_add(1, SeqCst);
        }));
        let exit = pool.started().await.unwrap_err();
        assert_eq!(exit, Exit::Refused(SpawnErrorKind::Limit(3)));
        assert_eq!(tries.load(SeqCst), 3);
        assert!(pool.await.is_err());
        while few.processes_alive() > 0 {
            step_aside().await;
        }
    });
}

/// 6.5a: a pool does not retry a start after the runtime has shut down.
#[test]
fn a_pool_does_not_retry_after_a_shutdown() {
    let starts = starts_during_a_shutdown(|host, gate| {
        let pool = pool(1, move || gate.pass()).restarts(100, HOUR);
        let pool = host.process().name(A).spawn_pool(pool).unwrap();
        pool.map(Result::unwrap_err).boxed()
    });
    assert_eq!(starts, 2);
}

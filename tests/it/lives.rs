//! Sections 6.1, 6.2, 6.5 and 4.8 of the specification: exits of processes, cancellations, shutdowns of a runtime, and
//! the effect of panics.

use std::error::Error;
use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Poll, Wake};
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use futures::executor::block_on;
use futures::future::{BoxFuture, Either, join_all, select};
use futures::stream::StreamExt;
use procession::observe::*;
use procession::*;

use crate::time::{FOR_EVER, Late, timed};
use crate::{alone, shut_down, step_aside, two, within};

/// A duration that is longer than any test takes.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// Returns a runtime without workers. Only the thread of the test drives the runtime.
pub(crate) fn lone() -> Runtime {
    Runtime::builder().workers(0).build().expect("a runtime")
}

/// Runs all runnable tasks of a runtime without workers.
pub(crate) fn settle(rt: &Runtime) {
    for _ in 0..50 {
        rt.block_on(step_aside());
    }
}

/// Waker that runs all runnable tasks of a runtime without workers. The tasks run on the thread that calls the waker.
/// The waker does nothing until a test sets the flag of the waker.
pub(crate) struct SettlingWaker(pub(crate) Arc<Runtime>, pub(crate) AtomicBool);

impl Wake for SettlingWaker {
    fn wake(self: Arc<Self>) {
        if self.1.load(SeqCst) {
            settle(&self.0);
        }
    }
}

/// Command whose handler stores the completion and answers later.
pub(crate) struct Ask(pub(crate) u64);
impl Command for Ask {
    type Reply = u64;
}

/// Handler of `Ask`. The handler stores the completions until the test takes them.
#[derive(Clone, Default)]
pub(crate) struct Shelf(Arc<Mutex<Vec<Completion<u64>>>>);

impl Handler<Ask> for Shelf {
    fn handle(&self, _: Ask, completion: Completion<u64>) {
        self.0.lock().unwrap().push(completion);
    }
}

impl Shelf {
    pub(crate) fn take(&self) -> Completion<u64> {
        loop {
            if let Some(completion) = self.0.lock().unwrap().pop() {
                return completion;
            }
            thread::yield_now();
        }
    }
}

/// Counts the calls of each method of a process, and the states of processes that are not dropped yet.
#[derive(Clone, Default)]
struct Tally {
    inits: Arc<AtomicUsize>,
    steps: Arc<AtomicUsize>,
    closes: Arc<AtomicUsize>,
    cancels: Arc<Mutex<Vec<String>>>,
    alive: Arc<()>,
}

impl Tally {
    /// Returns the number of inits, steps, closes and cancel events, and the number of states that are not dropped yet.
    fn counts(&self) -> (usize, usize, usize, usize, usize) {
        let cancels = self.cancels.lock().unwrap().len();
        let alive = Arc::strong_count(&self.alive) - 1;
        (self.inits.load(SeqCst), self.steps.load(SeqCst), self.closes.load(SeqCst), cancels, alive)
    }
}

/// A process that counts the calls of its methods. The process only executes the instructions in its messages.
struct Counting(Tally);

impl Process for Counting {
    type Message = u64;
    type Output = u64;
    fn init(&mut self, _: Start<'_>) -> Result<(), InitError> {
        self.0.inits.fetch_add(1, SeqCst);
        Ok(())
    }
    /// The message 0 makes the process perform a command. Any greater number makes the process exit, and the number is
    /// the result of the process.
    fn step(&mut self, events: Events<'_, u64>, out: &mut StepOutput<'_, u64>) -> Result<Next<u64>, Exit> {
        self.0.steps.fetch_add(1, SeqCst);
        for event in events {
            match event {
                Event::Message(0) => drop(out.perform(Ask(0)).erase()),
                Event::Message(n) => return Ok(Next::Done(n)),
                Event::Cancel { reason, .. } => self.0.cancels.lock().unwrap().push(reason.to_string()),
                _ => {}
            }
        }
        Ok(Next::Wait)
    }
    fn close(&mut self) {
        self.0.closes.fetch_add(1, SeqCst);
    }
}

fn counting(host: &Host) -> (JoinHandle<u64, u64>, Tally) {
    let tally = Tally::default();
    (host.spawn_process(Counting(tally.clone())), tally)
}

#[derive(Debug)]
struct Wrapped(Box<dyn Error + Send + Sync>);
impl std::fmt::Display for Wrapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("wrapped")
    }
}
impl Error for Wrapped {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

// ---- 6.1: exits and handles

/// 6.1a, 6.1d: after a normal exit, the handle returns the result. If a body returns an error, the exit is
/// `Exit::Failed`, and `Exit::error` returns the error if the caller names the type of the error.
#[test]
fn a_result_causes_a_normal_exit_and_an_error_is_contained_in_the_exit() {
    let rt = lone();
    let normal = rt.spawn(async |_: Context| Ok::<_, Exit>(5));
    let ended = normal.exited();
    assert_eq!(rt.block_on(normal).unwrap(), 5);
    assert!(rt.block_on(ended).is_normal());

    let failed = rt.spawn(async |_: Context| Err::<(), _>(std::io::Error::other("disk")));
    let ended = failed.exited();
    for exit in [rt.block_on(failed).unwrap_err(), rt.block_on(ended)] {
        assert!(matches!(exit, Exit::Failed(_)), "{exit:?}");
        assert_eq!(exit.error::<std::io::Error>().unwrap().to_string(), "disk");
        assert!(exit.error::<std::fmt::Error>().is_none());
    }
    let wrapped = rt.spawn(async |_: Context| Err::<(), _>(Wrapped(Box::new(std::io::Error::other("disk")))));
    let exit = rt.block_on(wrapped).unwrap_err();
    assert!(exit.error::<Wrapped>().is_some() && exit.error::<std::io::Error>().is_some());
    let text = rt.spawn(async |_: Context| Err::<(), _>("only a text"));
    assert_eq!(rt.block_on(text).unwrap_err().to_string(), "failed: only a text");
}

/// 6.1a, 6.1d: each kind of exit that is not normal has its own reason: a panic with its text, a kill, a failed start,
/// and a refused spawn.
#[test]
fn every_abnormal_exit_states_its_reason() {
    let rt = lone();
    let panicked = rt.spawn(async |_: Context| -> () { panic!("number {}", 7) });
    assert!(matches!(rt.block_on(panicked), Err(Exit::Panicked(text)) if text == "number 7"));
    let killed = rt.spawn(async |_: Context| pending::<()>().await);
    killed.abort();
    assert!(matches!(rt.block_on(killed), Err(Exit::Killed)));
    let unknown = rt.block_on(rt.execute(EntryPoints::<(), ()>::new(), "go", ())).unwrap_err();
    assert!(matches!(&unknown, Exit::InitFailed(_)), "{unknown:?}");
    assert!(matches!(unknown.error::<InitError>(), Some(InitError::UnknownEntry { entry, .. }) if entry == "go"));

    let host = rt.host().clone();
    drop(rt);
    let refused = host.spawn(async |_: Context| {});
    assert!(refused.is_finished());
    let (started, ended) = (refused.started(), refused.exited());
    assert!(matches!(block_on(started), Err(Exit::Refused(_))));
    assert!(matches!(block_on(ended), Exit::Refused(_)));
    assert!(matches!(block_on(refused), Err(Exit::Refused(_))));
}

/// 6.1a, 6.1b, 6.2b: the `?` operator may convert a cancellation to any error type. If the body returns this error, the
/// process still exits as cancelled.
#[test]
fn the_question_mark_operator_passes_a_cancellation_on() {
    async fn plain(mut ctx: Context<u64>) -> Result<u64, Exit> {
        ctx.receive().await
    }
    async fn boxed(mut ctx: Context<u64>) -> Result<u64, Box<dyn Error + Send + Sync>> {
        Ok(ctx.receive().await?)
    }
    async fn wrapped(mut ctx: Context<u64>) -> Result<u64, Wrapped> {
        ctx.receive().await.map_err(|exit| Wrapped(Box::new(exit)))
    }
    let rt = lone();
    for handle in [rt.spawn(plain), rt.spawn(boxed), rt.spawn(wrapped)] {
        settle(&rt);
        rt.cancel(handle.pid(), "enough", LONG).unwrap();
        let ended = handle.exited();
        assert!(matches!(rt.block_on(handle), Err(Exit::Cancelled(reason)) if reason == "enough"));
        assert!(matches!(rt.block_on(ended), Exit::Cancelled(reason) if reason == "enough"));
    }
}

/// 6.1d: when no handle can take the result of a process any more, the result is dropped. An address of the process
/// does not keep the result alive.
#[test]
fn a_result_that_no_handle_can_take_is_dropped() {
    struct Noted(Arc<AtomicUsize>);
    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let rt = lone();
    let dropped = Arc::new(AtomicUsize::new(0));
    let spawn = || {
        let noted = Noted(Arc::clone(&dropped));
        let body = async move |mut ctx: Context<()>| {
            ctx.receive().await?;
            Ok::<_, Exit>(noted)
        };
        let handle = rt.spawn(body);
        settle(&rt);
        let address = handle.address();
        (handle, address)
    };
    let end = |address: &Address<()>| {
        address.send(()).unwrap();
        settle(&rt);
        assert!(rt.block_on(address.exited()).is_normal());
    };

    // The handle is dropped before the exit.
    let (handle, _first) = spawn();
    drop(handle);
    end(&_first);
    assert_eq!(dropped.load(SeqCst), 1);

    // The handle is dropped after the exit, and was never polled.
    let (handle, _second) = spawn();
    end(&_second);
    assert_eq!(dropped.load(SeqCst), 1);
    drop(handle);
    assert_eq!(dropped.load(SeqCst), 2);

    // The handle was polled. In the first round, the handle is dropped before the exit of the process. In the second
    // round, the handle is dropped after the exit.
    for goes_first in [true, false] {
        let so_far = dropped.load(SeqCst);
        let (mut handle, address) = spawn();
        assert!(rt.block_on(futures::future::poll_immediate(&mut handle)).is_none());
        if goes_first {
            drop(handle);
            end(&address);
        } else {
            end(&address);
            assert_eq!(dropped.load(SeqCst), so_far);
            drop(handle);
        }
        assert_eq!(dropped.load(SeqCst), so_far + 1);
    }

    // The handle returns the result, so the caller owns the result.
    let so_far = dropped.load(SeqCst);
    let (handle, address) = spawn();
    end(&address);
    let noted = rt.block_on(handle).unwrap();
    assert_eq!(dropped.load(SeqCst), so_far);
    drop(noted);
    assert_eq!(dropped.load(SeqCst), so_far + 1);
}

/// 6.1d: dropping the handle detaches the process. The process continues to run and exits by itself.
#[test]
fn a_dropped_handle_detaches_its_process() {
    let rt = lone();
    let (handle, tally) = counting(&rt);
    let address = handle.address();
    drop(handle);
    settle(&rt);
    assert_eq!(tally.counts(), (1, 1, 0, 0, 1));
    address.send(1).unwrap();
    assert!(rt.block_on(address.exited()).is_normal());
    assert_eq!(tally.counts(), (1, 2, 1, 0, 0));
    assert_eq!(rt.processes_alive(), 0);
}

/// 6.1d: if a handle is polled through a mutable reference, the drop of the reference does not lose the result. Later,
/// the handle returns the result exactly once.
#[test]
fn a_handle_that_is_polled_by_reference_keeps_its_result() {
    let rt = lone();
    let (mut handle, _) = counting(&rt);
    for _ in 0..3 {
        let pends = rt.block_on(poll_fn(|cx| Poll::Ready(Pin::new(&mut handle).poll(cx).is_pending())));
        assert!(pends);
    }
    let Either::Right(((), _)) = rt.block_on(select(&mut handle, pin!(step_aside()))) else { panic!("not yet") };
    assert!(!handle.is_finished());
    handle.send(9).unwrap();
    assert_eq!(rt.block_on(&mut handle).unwrap(), 9);
    assert!(handle.is_finished());
    assert!(futures::future::FusedFuture::is_terminated(&handle));
}

/// 6.1d: if a process awaits its own handle, the handle returns an error immediately. After the process has exited, the
/// handle still returns the result.
#[test]
fn a_process_that_joins_itself_gets_an_error() {
    let rt = lone();
    let place: Arc<Mutex<Option<JoinHandle<String, ()>>>> = Arc::default();
    let held = place.clone();
    let own = rt.spawn(async move |_: Context<()>| {
        let mut own = held.lock().unwrap().take().expect("put there before the first poll");
        let error = (&mut own).await.unwrap_err();
        *held.lock().unwrap() = Some(own);
        assert!(matches!(error, Exit::Failed(_)), "{error:?}");
        Ok::<_, Exit>(error.to_string())
    });
    *place.lock().unwrap() = Some(own);
    settle(&rt);
    let own = place.lock().unwrap().take().expect("put back");
    assert!(rt.block_on(own).unwrap().contains("itself"));
}

/// 6.1a, 6.1d: every waiter receives the exit, inside and outside the runtime. Waiting for the pid of an exited process
/// returns `NoProcess` immediately.
#[test]
fn every_waiter_receives_the_exit() {
    within(20, || {
        let rt = two();
        let (handle, _) = counting(&rt);
        let pid = handle.pid();
        let waiting: Vec<_> = (0..20)
            .map(|n| {
                let ended = if n % 2 == 0 { rt.exited(pid) } else { handle.exited() };
                rt.spawn(async move |_: Context| Ok::<_, Exit>(ended.await.is_normal()))
            })
            .collect();
        let outside: Vec<_> = (0..3)
            .map(|_| {
                thread::spawn({
                    let ended = rt.exited(pid);
                    move || block_on(ended)
                })
            })
            .collect();
        handle.send(1).unwrap();
        assert_eq!(block_on(handle).unwrap(), 1);
        assert!(block_on(join_all(waiting)).into_iter().all(|normal| normal.unwrap()));
        assert!(outside.into_iter().all(|thread| thread.join().unwrap().is_normal()));
        assert!(matches!(block_on(rt.exited(pid)), Exit::NoProcess));
    });
}

// ---- 6.2: cancel

/// 6.1b, 6.2a: the cancel event arrives exactly once, with the reason and the deadline of the first cancellation. Later
/// cancellations change nothing.
#[test]
fn a_cancel_event_arrives_exactly_once() {
    check(0..10, async |host: Host| {
        let (handle, tally) = counting(&host);
        handle.started().await.unwrap();
        host.cancel(handle.pid(), "first", LONG).unwrap();
        // If the grace period of the second cancellation applied, the process would be killed immediately.
        host.cancel(handle.pid(), "second", Duration::ZERO).unwrap();
        host.cancel(handle.pid(), "third", Duration::from_millis(1)).unwrap();
        host.sleep(LONG / 2).await;
        host.cancel(handle.pid(), "fourth", Duration::ZERO).unwrap();
        host.sleep(LONG / 4).await;
        assert_eq!(*tally.cancels.lock().unwrap(), ["first"]);
        assert_eq!(tally.counts(), (1, 2, 0, 1, 1));
        let pid = handle.pid();
        handle.send(4).unwrap();
        assert_eq!(handle.await.unwrap(), 4);
        assert_eq!(tally.counts(), (1, 3, 1, 1, 0));
        assert_eq!(host.cancel(pid, "dead", LONG), Err(NoProcess(pid)));
        assert_eq!(host.kill(pid), Err(NoProcess(pid)));
        // This process ignores its cancellation. The process is killed at the first deadline, even if a later
        // cancellation has a later deadline.
        let (handle, tally) = counting(&host);
        let begun = host.now();
        host.cancel(handle.pid(), "first", LONG).unwrap();
        host.sleep(LONG / 2).await;
        host.cancel(handle.pid(), "second", LONG).unwrap();
        assert!(matches!(handle.await, Err(Exit::Killed)));
        assert_eq!((host.now() - begun, tally.counts()), (LONG, (1, 1, 1, 1, 0)));
    });
}

/// 6.1b, 6.2a: if a process is cancelled before its first step, its first step receives the cancellation.
#[test]
fn a_cancellation_before_the_first_step_is_delivered() {
    let rt = lone();
    let (handle, tally) = counting(&rt);
    rt.cancel(handle.pid(), Reason::PARENT, LONG).unwrap();
    settle(&rt);
    assert_eq!(*tally.cancels.lock().unwrap(), ["parent"]);
    let body = rt.spawn(async |mut ctx: Context<u64>| ctx.receive().await);
    rt.cancel(body.pid(), Reason::PARENT, LONG).unwrap();
    assert!(matches!(rt.block_on(body), Err(Exit::Cancelled(reason)) if reason == Reason::PARENT));
}

/// 1.3g, 2.3h, 6.2b: after a cancellation, every `receive` returns an error. The process can still drain the messages
/// in its queue.
#[test]
fn every_receive_fails_after_a_cancellation() {
    let rt = lone();
    let body = rt.spawn(async |mut ctx: Context<u64>| {
        assert!(!ctx.is_cancelled());
        ctx.host().cancel(ctx.pid(), "own", LONG)?;
        assert!(ctx.is_cancelled());
        for _ in 0..3 {
            assert!(matches!(ctx.receive().await, Err(Exit::Cancelled(reason)) if reason == "own"));
            let picked = ctx.receive_where(Ok::<u64, u64>).await;
            assert!(matches!(picked, Err(Exit::Cancelled(reason)) if reason == "own"));
        }
        assert_eq!(ctx.mailbox().next().await, None);
        let drained: Vec<u64> = std::iter::from_fn(|| ctx.try_receive()).collect();
        assert_eq!(ctx.cancelled().await, "own");
        Ok::<_, Exit>(drained)
    });
    (0..3).for_each(|n| body.send(n).unwrap());
    assert_eq!(rt.block_on(body).unwrap(), [0, 1, 2]);
}

/// 6.2a, 6.2b: during the grace period, a process can still perform commands for its clean-up, and these commands are
/// answered.
#[test]
fn commands_for_a_clean_up_are_answered_during_the_grace_period() {
    timed(async |host, late| {
        let host = host.add_host(HostBuilder::new("adds").handle_async(async |c: Ask| c.0 + 1)).unwrap();
        let body = host.spawn(async |mut ctx: Context| {
            let exit = ctx.receive().await.unwrap_err();
            let mut cleaned = 0;
            for n in 0..5 {
                cleaned += ctx.perform(Ask(n)).await?;
                ctx.sleep(Duration::from_millis(1)).await;
            }
            assert!(matches!(exit, Exit::Cancelled(_)));
            Ok::<_, Exit>(cleaned)
        });
        let until = host.now() + Duration::from_millis(5);
        host.cancel(body.pid(), "clean", LONG).unwrap();
        assert_eq!(body.await.unwrap(), 15);
        late.check(host.now(), until);
    });
}

/// 6.2a: if a process ignores its cancellation, it is killed when the grace period has passed, and not earlier. A
/// blocked process is killed in the same way as an idle process. The kill cancels the outstanding commands of the
/// process.
#[test]
fn a_process_is_killed_after_its_grace_period() {
    async fn killed(host: Host, late: Late) {
        let shelf = Shelf::default();
        let host = host.add_host(HostBuilder::new("shelf").handler(shelf.clone())).unwrap();
        let grace = Duration::from_millis(10);
        let blocked = host.spawn(async |ctx: Context<u64>| ctx.perform(Ask(1)).await);
        let (idle, tally) = counting(&host);
        blocked.started().await.unwrap();
        idle.started().await.unwrap();
        for handle in [blocked, idle] {
            let until = host.now() + grace;
            host.cancel(handle.pid(), "go", grace).unwrap();
            assert!(matches!(handle.await, Err(Exit::Killed)));
            late.check(host.now(), until);
        }
        assert!(shelf.take().is_cancelled());
        assert_eq!(tally.counts(), (1, 2, 1, 1, 0));
    }
    within(20, || {
        let rt = lone();
        rt.block_on(killed(rt.host().clone(), Late::ANY));
    });
    timed(killed);
}

/// 6.2a, 11: if the grace period is zero, the process is killed immediately. If the grace period is `Duration::MAX`,
/// the process is never killed.
#[test]
fn zero_and_enormous_grace_periods_are_accepted() {
    timed(async |host, late| {
        let now = host.now();
        let (none, tally) = counting(&host);
        host.cancel(none.pid(), "now", Duration::ZERO).unwrap();
        assert!(matches!(none.await, Err(Exit::Killed)));
        assert_eq!(tally.counts().4, 0);
        late.check(host.now(), now);
        let (ever, _) = counting(&host);
        host.cancel(ever.pid(), "some day", Duration::MAX).unwrap();
        ever.started().await.unwrap();
        if late.is_exact() {
            host.sleep(FOR_EVER).await;
        }
        ever.send(3).unwrap();
        assert_eq!(ever.await.unwrap(), 3);
    });
}

/// 6.2c: a body is cancelled while the body waits for a future of another crate. The body still receives the
/// cancellation.
#[test]
fn a_cancellation_reaches_a_body_that_awaits_a_foreign_future() {
    within(20, || {
        let rt = two();
        let (_keep, foreign) = futures::channel::oneshot::channel::<()>();
        let body = rt.spawn(async move |ctx: Context| match select(ctx.cancelled(), foreign).await {
            Either::Left((reason, _)) => Err::<(), _>(Exit::Cancelled(reason)),
            Either::Right(_) => Ok(()),
        });
        block_on(body.started()).unwrap();
        rt.cancel(body.pid(), "seen", LONG).unwrap();
        assert!(matches!(block_on(body), Err(Exit::Cancelled(reason)) if reason == "seen"));
    });
}

// ---- 6.2: kill

/// 1.1d, 1.1h, 6.2d: a process that is killed before its first step never runs. Neither `init` nor `close` is called.
/// The state of the process is dropped.
#[test]
fn a_process_that_is_killed_before_its_first_step_never_runs() {
    let rt = lone();
    let (handle, tally) = counting(&rt);
    handle.send(7).unwrap();
    rt.kill(handle.pid()).unwrap();
    rt.kill(handle.pid()).unwrap();
    let started = handle.started();
    assert!(matches!(rt.block_on(handle), Err(Exit::Killed)));
    assert!(matches!(rt.block_on(started), Err(Exit::Killed)));
    assert_eq!(tally.counts(), (0, 0, 0, 0, 0));
    let ran = Arc::new(AtomicUsize::new(0));
    let body = rt.spawn({
        let ran = ran.clone();
        async move |_: Context| {
            let _ = ran.fetch_add(1, SeqCst);
        }
    });
    body.abort();
    assert!(matches!(rt.block_on(body), Err(Exit::Killed)));
    assert_eq!((ran.load(SeqCst), Arc::strong_count(&ran)), (0, 1));
    assert_eq!(rt.counters().dead_letters, 1);
}

/// 1.1h, 2.3h, 6.2d: a kill ends idle, blocked and runnable processes. The kill cancels the outstanding commands of the
/// process, and `close` runs exactly once.
#[test]
fn a_kill_reaches_a_process_in_every_state() {
    let shelf = Shelf::default();
    let rt = Runtime::builder().workers(0).handler(shelf.clone()).build().unwrap();
    let (idle, of_idle) = counting(&rt);
    let (blocked, of_blocked) = counting(&rt);
    let (ready, of_ready) = counting(&rt);
    blocked.send(0).unwrap();
    settle(&rt);
    ready.send(7).unwrap();
    let completion = shelf.take();
    assert!(!completion.is_cancelled());
    let handles = [idle, blocked, ready];
    handles.iter().for_each(|handle| rt.kill(handle.pid()).unwrap());
    assert!(!handles.iter().any(|handle| handle.is_finished()), "only this thread drives them");
    for handle in handles {
        let pid = handle.pid();
        assert!(matches!(rt.block_on(handle), Err(Exit::Killed)));
        assert!(rt.kill(pid).is_err());
    }
    assert!(completion.is_cancelled());
    block_on(completion.cancelled());
    completion.complete(1);
    for (tally, steps) in [(of_idle, 1), (of_blocked, 1), (of_ready, 1)] {
        assert_eq!(tally.counts(), (1, steps, 1, 0, 0));
    }
    assert_eq!((rt.counters().spawned, rt.counters().exited, rt.counters().discarded), (3, 3, 1));
}

/// 6.2d: if a running process is killed, the kill takes effect after the current step. If that step returns a result,
/// the process exits with this result. If that step returns no result, the process exits as killed.
#[test]
fn a_kill_of_a_running_process_takes_effect_after_the_step() {
    struct Kills(Option<Next<u64>>, Arc<AtomicUsize>);
    impl Process for Kills {
        type Message = ();
        type Output = u64;
        fn step(&mut self, _: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<u64>, Exit> {
            self.1.fetch_add(1, SeqCst);
            out.host().kill(out.pid()).unwrap();
            Ok(self.0.take().expect("it is not stepped again"))
        }
        fn close(&mut self) {
            self.1.fetch_add(100, SeqCst);
        }
    }
    let rt = lone();
    for (next, killed) in [(Next::Wait, true), (Next::Again, true), (Next::Done(3), false)] {
        let count = Arc::new(AtomicUsize::new(0));
        let exit = rt.block_on(rt.spawn_process(Kills(Some(next), count.clone())));
        assert_eq!((matches!(exit, Err(Exit::Killed)), matches!(exit, Ok(3))), (killed, !killed), "{exit:?}");
        assert_eq!(count.load(SeqCst), 101);
    }
}

/// A body that spins and occupies its worker until the test releases the body.
struct Spinner {
    spins: Arc<AtomicBool>,
    release: Arc<AtomicBool>,
}

impl Spinner {
    fn spawn(rt: &Runtime) -> (Self, JoinHandle<(), ()>) {
        let own = Self { spins: Arc::default(), release: Arc::default() };
        let (spins, release) = (own.spins.clone(), own.release.clone());
        let handle = rt.spawn(async move |_: Context<()>| {
            spins.store(true, SeqCst);
            while !release.load(SeqCst) {
                thread::yield_now();
            }
            pending::<()>().await;
        });
        while !own.spins.load(SeqCst) {
            thread::yield_now();
        }
        (own, handle)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.release.store(true, SeqCst);
    }
}

/// 6.2d: another thread kills a process during a step. The process exits when the step returns.
#[test]
fn a_kill_by_another_thread_takes_effect_when_the_step_returns() {
    within(20, || {
        let rt = two();
        let (spinner, handle) = Spinner::spawn(&rt);
        handle.abort();
        // The other worker still runs processes. The killed process has not exited yet, because its step has not
        // returned.
        block_on(rt.spawn(async |_: Context| {})).unwrap();
        assert!(!handle.is_finished());
        drop(spinner);
        assert!(matches!(block_on(handle), Err(Exit::Killed)));
    });
}

// ---- 6.5: shutdown

/// 6.5a, 6.5b: during a shutdown, the runtime refuses requests from outside, but answers commands for the clean-up.
/// After the shutdown, every request is refused, and messages and bodies are returned to the caller.
#[test]
fn a_shutdown_refuses_new_work_and_answers_commands_for_the_clean_up() {
    within(30, || {
        let shelf = Shelf::default();
        let rt = Runtime::builder().workers(2).handler(shelf.clone()).build().unwrap();
        let host = rt.host().clone();
        let cleans = rt.spawn(async |mut ctx: Context<u64>| {
            let exit = ctx.receive().await.unwrap_err();
            assert!(matches!(exit, Exit::Cancelled(reason) if reason == Reason::SHUTDOWN));
            ctx.perform(Ask(1)).await
        });
        let (address, pid) = (cleans.address(), cleans.pid());
        let shutdown = thread::spawn(move || shut_down(rt, LONG));
        let completion = shelf.take();
        let refused = host.spawn(async |_: Context| {});
        assert!(matches!(block_on(refused), Err(Exit::Refused(_))));
        let refused = host.process().spawn(async |_: Context| {}).unwrap_err();
        assert_eq!(refused.kind().clone(), SpawnErrorKind::ShutDown);
        assert!(!shutdown.is_finished() && !cleans.is_finished());
        completion.complete(8);
        assert_eq!(shutdown.join().unwrap().left, []);
        assert_eq!(block_on(cleans).unwrap(), 8);

        let body = Arc::new(5);
        let captured = body.clone();
        let refused = host.process().spawn(async move |_: Context| drop(captured)).unwrap_err();
        assert_eq!((refused.kind().clone(), Arc::strong_count(&body)), (SpawnErrorKind::ShutDown, 2));
        drop(refused.into_body());
        assert_eq!(Arc::strong_count(&body), 1);
        let tally = Tally::default();
        let refused = host.process().spawn_process(Counting(tally.clone())).unwrap_err();
        assert_eq!(refused.into_body().0.counts(), (0, 0, 0, 0, 1));
        assert_eq!(tally.counts(), (0, 0, 0, 0, 0));

        let refused = host.send(pid, 6_u64).unwrap_err();
        assert_eq!((refused.kind(), refused.into_message()), (SendErrorKind::ShutDown, 6));
        let refused = address.send(7).unwrap_err();
        assert_eq!((refused.kind(), refused.into_message()), (SendErrorKind::ShutDown, 7));
        assert!(matches!(
            block_on(host.call(pid, |_: Reply<()>| 1_u64)),
            Err(CallError::Send(SendErrorKind::ShutDown))
        ));
        assert!(matches!(block_on(host.exited(pid)), Exit::NoProcess));
        assert!(host.kill(pid).is_err() && host.cancel(pid, "late", LONG).is_err());
        assert!(block_on(host.spawn_blocking(|| ())).is_err());
        let (to, mut mailbox) = host.mailbox::<u64>();
        assert!(to.send(1).is_err() && block_on(mailbox.receive()).is_err());
        let held = Arc::new(());
        let inside = held.clone();
        host.spawn_future(async move { drop(inside) });
        assert_eq!((Arc::strong_count(&held), host.processes_alive()), (1, 0));
    });
}

/// 6.1b, 6.5a: a shutdown cancels every process, in any state. When the shutdown returns, all processes have exited.
#[test]
fn a_shutdown_cancels_every_process() {
    for workers in [0, 2] {
        within(30, move || {
            let rt = Runtime::builder().workers(workers).build().unwrap();
            let host = rt.host().clone();
            let handles: Vec<_> = (0..500)
                .map(|n| {
                    let handle = rt.spawn(async |mut ctx: Context<u64>| ctx.receive().await);
                    if n == 250 {
                        settle(&rt);
                    }
                    handle
                })
                .collect();
            assert_eq!(shut_down(rt, LONG).left, []);
            assert_eq!((host.counters().spawned, host.counters().exited), (500, 500));
            for handle in handles {
                assert!(handle.is_finished());
                assert!(matches!(block_on(handle), Err(Exit::Cancelled(reason)) if reason == Reason::SHUTDOWN));
            }
        });
    }
}

/// 6.5b, 6.5c: if two shutdowns run concurrently, the earlier deadline applies, no matter which shutdown begins first.
/// In this test a panic begins one of the two shutdowns, and this shutdown has no deadline.
#[test]
fn the_earlier_deadline_of_two_shutdowns_applies() {
    for panic_is_first in [true, false] {
        within(60, move || {
            let rt = alone().on_panic(PanicPolicy::ShutDown).build().unwrap();
            let host = rt.host().clone();
            // This process ignores its cancellation. On request, the process spawns a child and replies with the
            // deadline of this child.
            let asks = rt.spawn(async |mut ctx: Context<Option<Reply<Instant>>>| -> Result<(), Exit> {
                loop {
                    match ctx.event().await {
                        Event::Message(Some(reply)) => {
                            let child = ctx.spawn(async |mut ctx: Context| {
                                let Event::Cancel { deadline, .. } = ctx.event().await else { unreachable!() };
                                Ok::<_, Exit>(deadline)
                            });
                            reply.send(child.await?);
                        }
                        Event::Message(None) => return Ok(()),
                        _ => {}
                    }
                }
            });
            let panics = rt.spawn(async |mut ctx: Context<()>| -> Result<(), Exit> {
                while !matches!(ctx.event().await, Event::Message(())) {}
                panic!("loud")
            });
            for started in [asks.started(), panics.started()] {
                block_on(started).unwrap();
            }
            let panic_now = || {
                panics.send(()).unwrap();
                block_on(host.exited(panics.pid()));
            };
            let deadline = || block_on(asks.call(Some)).unwrap();
            if panic_is_first {
                panic_now();
                assert!(deadline() - host.now() > 2 * LONG, "it has no deadline");
            }
            let begun = host.now();
            let mut shutdown = Box::pin(rt.shutdown(LONG));
            assert!((&mut shutdown).now_or_never().is_none());
            let latest = host.now() + LONG;
            if !panic_is_first {
                panic_now();
            }
            let deadline = deadline();
            assert!((begun + LONG..=latest).contains(&deadline), "{deadline:?}");
            asks.send(None).unwrap();
            assert_eq!(block_on(shutdown).left, []);
        });
    }
}

/// 6.5b: if no process exists, a shutdown returns immediately, for any time limit.
#[test]
fn a_shutdown_without_processes_returns_immediately() {
    for workers in [0, 1, 2] {
        for time in [Duration::ZERO, LONG, Duration::MAX] {
            within(20, move || {
                let rt = Runtime::builder().workers(workers).build().unwrap();
                let (_to, _mailbox) = rt.mailbox::<u64>();
                let _letters = rt.dead_letters();
                assert_eq!(shut_down(rt, time).left, []);
            });
        }
    }
    for time in [Duration::ZERO, LONG, Duration::MAX] {
        let simulation = Simulation::new(1);
        let (host, begun) = (simulation.host().clone(), simulation.now());
        let (_to, _mailbox) = host.mailbox::<u64>();
        let _letters = host.dead_letters();
        assert_eq!(simulation.shutdown(time).left, []);
        assert_eq!(host.now(), begun);
    }
}

/// 6.5c, 6.5d: if a step never returns, the shutdown still returns at its deadline. The report of the shutdown contains
/// the process of this step and the state of this process.
#[test]
fn a_shutdown_returns_even_if_a_step_never_returns() {
    within(20, || {
        let rt = two();
        let (spinner, handle) = Spinner::spawn(&rt);
        let (polite, _) = counting(&rt);
        polite.send(1).unwrap();
        block_on(polite).unwrap();
        let shutdown = shut_down(rt, Duration::from_millis(20));
        let left = &shutdown.left;
        assert_eq!(
            (left.len(), left[0].pid, left[0].state, left[0].outstanding),
            (1, handle.pid(), Some(ProcessState::Running), 0)
        );
        assert!(left[0].to_string().contains("in a step that did not return"), "{}", left[0]);
        assert!(left[0].to_string().contains(&handle.pid().to_string()));
        drop(spinner);
        assert!(block_on(handle).is_err());
    });
}

/// Runs the processes until the process `pid` has completed more than `steps` steps and is then blocked. Returns the
/// number of steps of this process.
fn blocked_after(rt: &Runtime, pid: Pid, steps: u64) -> u64 {
    let mut has_stepped = false;
    loop {
        // Without workers, only this thread runs the processes.
        rt.block_on(step_aside());
        let row = rt.process_details(pid).expect("the process lives").info;
        // In one row, the state may be older than the number of steps. Therefore the loop reads the number of steps
        // from one row, and the state from a later row.
        if has_stepped && row.state == Some(ProcessState::Blocked) {
            return row.steps;
        }
        has_stepped = row.steps > steps;
    }
}

/// 6.5b, 6.5d: if a process still waits for an answer at the deadline of a shutdown, the shutdown reports and kills
/// the process.
#[test]
fn a_shutdown_kills_blocked_processes_at_its_deadline() {
    let is_told = |shutdown: ShutdownReport, handle: JoinHandle<u64, ()>, shelf: Shelf| {
        let names: Vec<_> = shutdown.left.iter().map(|left| (left.pid, left.state, left.outstanding)).collect();
        assert_eq!(names, [(handle.pid(), Some(ProcessState::Blocked), 1)]);
        assert!(shutdown.left[0].to_string().contains("waiting for 1 command, call or sleep"), "{}", shutdown.left[0]);
        assert!(handle.is_finished() && shelf.take().is_cancelled());
        assert!(matches!(block_on(handle), Err(Exit::Killed)));
    };
    for workers in [0, 2] {
        within(20, move || {
            let shelf = Shelf::default();
            let rt = Runtime::builder().workers(workers).handler(shelf.clone()).build().unwrap();
            let handle = rt.spawn(async |ctx: Context<()>| ctx.perform(Ask(1)).await);
            let host = rt.host().clone();
            let steps = blocked_after(&rt, handle.pid(), 0);
            // The shutdown cancels the process, and the cancellation wakes the process once. The second shutdown sets
            // its deadline only after the process has blocked again, so the test does not depend on the speed of the
            // machine.
            drop(rt.shutdown(LONG));
            blocked_after(&rt, handle.pid(), steps);
            let (grace, begun) = (Duration::from_millis(20), host.now());
            is_told(shut_down(rt, grace), handle, shelf);
            assert!(host.now() - begun >= grace, "the process was killed before the deadline");
        });
    }
    for seed in 0..10 {
        let shelf = Shelf::default();
        let mut simulation = Simulation::with_host(seed, HostBuilder::new("").handler(shelf.clone())).unwrap();
        let handle = simulation.spawn(async |ctx: Context<()>| ctx.perform(Ask(1)).await);
        simulation.run(handle.started()).unwrap();
        let (host, begun) = (simulation.host().clone(), simulation.now());
        is_told(simulation.shutdown(LONG), handle, shelf);
        assert_eq!(host.now() - begun, LONG);
    }
}

/// 6.5a, 6.5b: if a process is spawned during a shutdown, the process is cancelled too, and the shutdown waits for the
/// exit of the process.
#[test]
fn processes_that_are_spawned_during_a_shutdown_are_cancelled_too() {
    fn family(mut ctx: Context<()>, depth: u32, ends: Arc<AtomicUsize>) -> BoxFuture<'static, Result<(), Exit>> {
        Box::pin(async move {
            let exit = ctx.receive().await.unwrap_err();
            if depth > 0 {
                let below = ends.clone();
                // Only the shutdown waits for this child. The parent of the child does not wait.
                drop(ctx.spawn(move |ctx| family(ctx, depth - 1, below)));
            }
            ends.fetch_add(1, SeqCst);
            Err(exit)
        })
    }
    for round in 0..30 {
        within(30, move || {
            let rt = two();
            let ends = Arc::new(AtomicUsize::new(0));
            let (chains, depth) = (1 + round % 4, 200_u32);
            for _ in 0..chains {
                let ends = ends.clone();
                drop(rt.spawn(move |ctx| family(ctx, depth, ends)));
            }
            let shutdown = shut_down(rt, LONG);
            assert_eq!((shutdown.left, ends.load(SeqCst)), (vec![], chains * (depth as usize + 1)), "round {round}");
        });
    }
}

/// 6.5a: several threads spawn, send and call while the runtime shuts down or is dropped. Each of these operations
/// returns an answer or an error, and no operation hangs.
#[test]
fn operations_during_a_shutdown_succeed_or_are_refused() {
    for round in 0..100 {
        within(30, move || {
            let rt = two();
            let server = rt.spawn(async |mut ctx: Context<Reply<u64>>| -> Result<(), Exit> {
                loop {
                    ctx.receive().await?.send(1);
                }
            });
            let begin = Arc::new(Barrier::new(4));
            let alive = Arc::new(());
            let racers: Vec<_> = (0..3)
                .map(|kind| {
                    let (host, server, begin, alive) =
                        (rt.host().clone(), server.address(), begin.clone(), alive.clone());
                    thread::spawn(move || {
                        begin.wait();
                        for _ in 0..100 {
                            match kind {
                                0 => {
                                    let alive = alive.clone();
                                    let handle = host.spawn(async move |mut ctx: Context<u64>| {
                                        let _alive = alive;
                                        ctx.receive().await
                                    });
                                    let (ended, sent) = (handle.exited(), handle.send(1));
                                    match block_on(handle) {
                                        Ok(1) => assert!(sent.is_ok()),
                                        Err(Exit::Refused(_)) => assert!(sent.is_err()),
                                        Err(Exit::Cancelled(_) | Exit::Killed) => {}
                                        other => panic!("{other:?}"),
                                    }
                                    block_on(ended);
                                }
                                1 => match block_on(host.call(&server, |reply| reply)) {
                                    Ok(1) => {}
                                    Err(CallError::Died(_) | CallError::Send(_)) => {}
                                    Err(CallError::Dropped) => {}
                                    other => panic!("{other:?}"),
                                },
                                _ => {
                                    let (to, mut mailbox) = host.mailbox::<u64>();
                                    match to.send(1) {
                                        Ok(()) => drop(block_on(mailbox.receive())),
                                        Err(refused) => assert_eq!(refused.into_message(), 1),
                                    }
                                }
                            }
                        }
                    })
                })
                .collect();
            begin.wait();
            if round % 2 == 0 {
                assert_eq!(shut_down(rt, LONG).left, []);
            } else {
                drop(rt);
            }
            racers.into_iter().for_each(|racer| racer.join().unwrap());
            assert!(block_on(server).is_err());
            assert_eq!(Arc::strong_count(&alive), 1);
        });
    }
}

// ---- 4.8: the effect of a panic on the rest of the runtime

#[derive(Clone, Default)]
struct Hears(Arc<Mutex<Vec<(Pid, String)>>>);

impl Observer for Hears {
    fn panicked(&self, pid: Pid, message: &str) {
        self.0.lock().unwrap().push((pid, message.into()));
    }
}

/// 4.8a, 4.8b: by default, the observer is notified of a panic before the exit is delivered. Other processes are not
/// affected.
#[test]
fn the_observer_is_notified_of_a_panic() {
    let hears = Hears::default();
    let rt = Runtime::builder().workers(0).observer(hears.clone()).build().unwrap();
    let (other, _) = counting(&rt);
    let panics = rt.spawn(async |_: Context| -> () { panic!("loud") });
    let pid = panics.pid();
    assert!(rt.block_on(panics).is_err());
    assert_eq!(*hears.0.lock().unwrap(), [(pid, "loud".to_owned())]);
    assert_eq!(rt.counters().panics, 1);
    other.send(2).unwrap();
    assert_eq!(rt.block_on(other).unwrap(), 2);
}

/// 4.8b: the runtime calls the callback of the panic policy on the thread that ran the process. If the callback itself
/// panics, this panic is caught.
#[test]
fn the_callback_of_the_panic_policy_is_called() {
    let (tell, heard) = mpsc::channel();
    let tell = Mutex::new(tell);
    let call = PanicPolicy::Call(Arc::new(move |pid, text: &str| {
        tell.lock().unwrap().send((pid, text.to_owned(), thread::current().id())).unwrap();
        panic!("in the call-back");
    }));
    let rt = Runtime::builder().workers(0).on_panic(call).build().unwrap();
    let panics = rt.spawn(async |_: Context| -> () { panic!("loud") });
    let pid = panics.pid();
    assert!(matches!(rt.block_on(panics), Err(Exit::Panicked(text)) if text == "loud"));
    assert_eq!(heard.try_iter().collect::<Vec<_>>(), [(pid, "loud".to_owned(), thread::current().id())]);
}

/// 4.8b: with `PanicPolicy::ShutDown`, a panic begins a shutdown: the runtime refuses new work and cancels every
/// process. The processes can still clean up.
#[test]
fn a_panic_can_shut_down_the_runtime() {
    within(20, || {
        let rt = Runtime::builder().workers(2).on_panic(PanicPolicy::ShutDown).build().unwrap();
        let (told, rest) = (rt.spawn(async |mut ctx: Context<u64>| ctx.receive().await), counting(&rt));
        drop(rt.spawn(async |_: Context| -> () { panic!("loud") }));
        assert!(matches!(block_on(told), Err(Exit::Cancelled(reason)) if reason == Reason::SHUTDOWN));
        assert!(matches!(block_on(rt.spawn(async |_: Context| {})), Err(Exit::Refused(_))));
        let (rest, tally) = rest;
        while tally.counts().3 == 0 {
            thread::yield_now();
        }
        rest.send(6).unwrap();
        assert_eq!(block_on(rest).unwrap(), 6);
        assert_eq!(shut_down(rt, LONG).left, []);
    });
}

// ---- Drop of the runtime

/// A value that counts its live copies.
#[derive(Clone)]
struct Alive(#[expect(dead_code)] Arc<()>);

enum Mail {
    Call(#[expect(dead_code)] Alive, #[expect(dead_code)] Reply<Alive>),
    Keep(#[expect(dead_code)] Alive),
}

/// 6.5a, 8.3b: when a runtime is dropped, everything in progress ends, and each value is dropped exactly once. Some
/// handles, addresses and mailboxes outlive the runtime, and then return errors.
#[test]
fn everything_is_dropped_when_a_runtime_is_dropped() {
    struct Give;
    impl Command for Give {
        type Reply = Alive;
    }
    for workers in [0, 2] {
        within(30, move || {
            let counter = Arc::new(());
            let alive = Alive(counter.clone());
            let kept = Arc::new(Mutex::new(Vec::new()));
            let keep = kept.clone();
            let rt = Runtime::builder()
                .workers(workers)
                .handler(move |_: Give, completion: Completion<Alive>| keep.lock().unwrap().push(completion))
                .handle_async({
                    let alive = alive.clone();
                    move |_: Ask| {
                        let alive = alive.clone();
                        async move {
                            let _alive = alive;
                            pending::<u64>().await
                        }
                    }
                })
                .build()
                .unwrap();
            let host = rt.host().clone();
            let state = || alive.clone();

            let idle = rt.spawn({
                let state = state();
                async move |mut ctx: Context<Mail>| {
                    let _state = state;
                    let mut held = Vec::new();
                    while held.len() < 2 {
                        held.push(ctx.receive().await?);
                    }
                    pending::<Result<(), Exit>>().await
                }
            });
            let called = idle.call(|reply| Mail::Call(state(), reply)).start();
            idle.send(Mail::Keep(state())).unwrap();
            idle.send(Mail::Keep(state())).unwrap();
            let performs = rt.spawn({
                let state = state();
                async move |ctx: Context<()>| {
                    let _state = state;
                    let (a, b) = futures::join!(ctx.perform(Give), ctx.perform(Ask(1)));
                    a?;
                    b?;
                    Ok::<_, Exit>(())
                }
            });
            let (_keep_sender, foreign) = futures::channel::oneshot::channel::<Alive>();
            let foreign = rt.spawn({
                let state = state();
                async move |_: Context<()>| {
                    let _state = state;
                    drop(foreign.await);
                }
            });
            let sleeps = rt.spawn({
                let state = state();
                async move |ctx: Context<()>| {
                    let _state = state;
                    ctx.timeout(LONG, ctx.sleep(Duration::MAX)).await
                }
            });
            rt.spawn_future({
                let state = state();
                async move {
                    let _state = state;
                    pending().await
                }
            });
            if workers == 0 {
                settle(&rt);
            } else {
                block_on(async {
                    idle.started().await.unwrap();
                    performs.started().await.unwrap();
                    foreign.started().await.unwrap();
                    sleeps.started().await.unwrap();
                });
                while kept.lock().unwrap().is_empty() {
                    thread::yield_now();
                }
            }
            // This process is queued, and may be dropped before it ever runs.
            let queued = rt.spawn({
                let state = state();
                async move |_: Context<()>| {
                    let _state = state;
                    pending::<()>().await
                }
            });
            let (to, mut mailbox) = rt.mailbox::<Alive>();
            to.send(state()).unwrap();
            let (addresses, pid) = ((idle.address(), performs.address()), idle.pid());
            let ended = host.exited(pid);
            drop(rt);

            assert!(matches!(block_on(called), Err(CallError::Died(_) | CallError::Dropped)));
            assert!(matches!(block_on(ended), Exit::Killed | Exit::Cancelled(_)));
            assert!(block_on(idle).is_err() && block_on(performs).is_err() && block_on(foreign).is_err());
            assert!(block_on(sleeps).is_err() && block_on(queued).is_err());
            let completion = kept.lock().unwrap().pop().unwrap();
            assert!(completion.is_cancelled());
            completion.complete(state());
            let refused = addresses.0.send(Mail::Keep(state())).unwrap_err();
            assert_eq!(refused.kind(), SendErrorKind::ShutDown);
            drop(refused);
            assert_eq!(addresses.1.send(()).unwrap_err().kind(), SendErrorKind::ShutDown);
            assert!(to.send(state()).is_err());
            let _last = block_on(mailbox.receive());
            assert!(block_on(mailbox.receive()).is_err());
            drop((_last, mailbox));
            assert_eq!(host.counters().spawned, host.counters().exited);
            // The handler of `Ask` owns a copy. The host owns the handler, so dropping the host drops this copy.
            drop((host, to, addresses, alive, kept));
            assert_eq!(Arc::strong_count(&counter), 1);
        });
    }
}

/// 8.3b: a process that owns its runtime may drop the runtime in a step. Every other process exits. The process itself
/// exits with the result that its step returns.
#[test]
fn a_process_may_drop_its_own_runtime() {
    for workers in [1, 2] {
        within(30, move || {
            let rt = Runtime::builder().workers(workers).build().unwrap();
            let host = rt.host().clone();
            let (other, tally) = counting(&rt);
            block_on(other.started()).unwrap();
            let owner = rt.spawn(async |mut ctx: Context<Runtime>| {
                let rt = ctx.receive().await?;
                drop(rt);
                Ok::<_, Exit>(5)
            });
            owner.address().send(rt).unwrap();
            assert_eq!(block_on(owner).unwrap(), 5);
            assert!(matches!(block_on(other), Err(Exit::Killed | Exit::Cancelled(_))));
            assert_eq!(tally.counts(), (1, 1, 1, 0, 0));
            assert!(matches!(block_on(host.spawn(async |_: Context| {})), Err(Exit::Refused(_))));
        });
    }
}

/// 8.3b: a process may own the runtime that it runs on. The runtime may be in the mailbox or in the state of the
/// process. When the process is dropped, the runtime is dropped too.
#[test]
fn a_runtime_owned_by_its_own_process_is_dropped_with_the_process() {
    within(30, || {
        let rt = two();
        let host = rt.host().clone();
        let keeps = rt.spawn(async |mut ctx: Context<Runtime>| {
            let _own = ctx.receive().await?;
            pending::<Result<(), Exit>>().await
        });
        let pid = keeps.pid();
        keeps.address().send(rt).unwrap();
        host.kill(pid).unwrap();
        assert!(matches!(block_on(keeps), Err(Exit::Killed)));
        assert!(matches!(block_on(host.spawn(async |_: Context| {})), Err(Exit::Refused(_))));
    });
}

/// 8.3b: an inline handler and a blocking handler may also drop the runtime.
#[test]
fn a_handler_may_drop_the_runtime() {
    for blocking in [false, true] {
        within(30, move || {
            let place = Arc::new(Mutex::new(None::<Runtime>));
            let held = place.clone();
            let handle = move |c: Ask| {
                drop(held.lock().unwrap().take());
                c.0
            };
            let builder = Runtime::builder().workers(2);
            let builder = if blocking { builder.handle_blocking(handle) } else { builder.handle(handle) };
            let rt = builder.build().unwrap();
            let (other, tally) = counting(&rt);
            block_on(other.started()).unwrap();
            let (go, wait) = futures::channel::oneshot::channel::<()>();
            let body = rt.spawn(async move |ctx: Context| {
                let _ = wait.await;
                ctx.perform(Ask(1)).await
            });
            *place.lock().unwrap() = Some(rt);
            go.send(()).unwrap();
            assert!(matches!(block_on(other), Err(Exit::Killed | Exit::Cancelled(_))));
            match block_on(body) {
                Ok(1) | Err(Exit::Killed | Exit::Cancelled(_)) => {}
                other => panic!("{other:?}"),
            }
            assert_eq!(tally.counts(), (1, 1, 1, 0, 0));
        });
    }
}

/// 8.3a, 8.3b: a process may drop another runtime. The process itself continues.
#[test]
fn a_runtime_may_be_dropped_inside_another_runtime() {
    within(30, || {
        let (outer, inner) = (two(), two());
        let (other, tally) = counting(&inner);
        block_on(other.started()).unwrap();
        let drops = outer.spawn(async move |_: Context| drop(inner));
        block_on(drops).unwrap();
        assert!(other.is_finished());
        assert!(block_on(other).is_err());
        assert_eq!(tally.counts(), (1, 1, 1, 0, 0));
        block_on(outer.spawn(async |_: Context| {})).unwrap();
    });
}

/// 3.2a, 6.5a: a closure waits for a blocking thread when the runtime is dropped. The closure never runs, and the code
/// that waits for the closure receives an error.
#[test]
fn if_a_blocking_closure_never_runs_its_caller_gets_an_error() {
    within(10, || {
        let rt = Runtime::builder().workers(1).max_blocking_threads(1).build().unwrap();
        let (release, gate) = mpsc::channel::<()>();
        let (began, begun) = mpsc::channel();
        let first = rt.spawn_blocking(move || {
            began.send(()).unwrap();
            let _ = gate.recv();
            1
        });
        begun.recv().unwrap();
        let alive = Arc::new(());
        let inside = alive.clone();
        let second = rt.spawn_blocking(move || drop(inside));
        drop(rt);
        assert!(block_on(second).is_err());
        assert_eq!(Arc::strong_count(&alive), 1);
        drop(release);
        assert_eq!(block_on(first).unwrap(), 1);
    });
}

/// 7.1a, 8.3b: a sleep that was created by the host of a runtime is polled in another executor. When the runtime is
/// dropped, the sleep still ends and does not hang.
#[test]
fn a_sleep_does_not_hang_when_its_runtime_is_dropped() {
    within(10, || {
        let rt = two();
        let host = rt.host().clone();
        let mut early = pin!(host.sleep(Duration::from_millis(5)));
        let pends = block_on(poll_fn(|cx| Poll::Ready(early.as_mut().poll(cx).is_pending())));
        let waits = thread::spawn({
            let sleep = host.sleep(Duration::from_millis(50));
            move || block_on(sleep)
        });
        drop(rt);
        if pends {
            block_on(early);
        }
        waits.join().unwrap();
        block_on(host.sleep(Duration::from_millis(1)));
    });
}

/// 1.3g, 8.3b: a mailbox is split off from its process and moved to another thread. After the process has exited, a
/// receive on the mailbox does not wait forever.
#[test]
fn a_mailbox_that_is_moved_out_of_its_process_ends_with_the_process() {
    within(10, || {
        let rt = two();
        let (tell, told) = mpsc::channel();
        let body = rt.spawn(async move |ctx: Context<u64>| {
            let (_me, mailbox) = ctx.split();
            tell.send(mailbox).unwrap();
        });
        let mut mailbox = told.recv().unwrap();
        block_on(body).unwrap();
        assert!(block_on(mailbox.receive()).is_err());
        assert_eq!(mailbox.try_receive(), None);
    });
}

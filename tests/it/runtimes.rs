//! Section 8.3 of the specification: several runtimes and simulations in one program. While a step blocks in
//! `Runtime::block_on`, the thread of this step runs other tasks. The file also tests these tasks.

use std::future::pending;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::time::Duration;

use futures::channel::oneshot;
use procession::observe::WaitsFor;
use procession::*;

use crate::{step_aside, within};

const LONG: Duration = Duration::from_secs(3600);

fn lone() -> Runtime {
    Runtime::builder().workers(0).build().unwrap()
}

/// Runs all runnable processes.
fn settle(rt: &Runtime) {
    (0..20).for_each(|_| rt.block_on(step_aside()));
}

/// Body that keeps its first message, and never answers this message.
async fn keeps(mut ctx: Context<Reply<()>>) -> Result<(), Exit> {
    let _reply = ctx.receive().await?;
    pending().await
}

/// 8.3a, 9.2b, 9.2d: a process waits for a process of another runtime. Both processes have the same index and the same
/// generation. The runtime reports no deadlock, because this runtime does not know the callee.
#[test]
fn a_call_to_another_runtime_is_no_deadlock() {
    // If a new thread spawns the processes, their indices are equal in both runtimes.
    let test = || {
        let (one, other) = (lone(), lone());
        let server = other.spawn(keeps);
        let address = server.address().clone();
        let caller = one.spawn(async move |ctx: Context| ctx.call(&address, |reply: Reply<()>| reply).await);
        settle(&one);
        assert_eq!(server.pid().index(), caller.pid().index(), "the test needs equal indices");
        assert_eq!(one.wait_for_graph().deadlocks, []);
        let waits = one.process_details(caller.pid()).unwrap().waits_for;
        assert!(waits.iter().any(|wait| matches!(wait, WaitsFor::Call { callee: None, .. })), "{waits:?}");
    };
    std::thread::spawn(test).join().unwrap();
}

/// 6.2a, 8.3a: a set of processes contains a process of another runtime. The grace period of `cancel_all` is measured
/// with the clock of this other runtime.
#[test]
fn a_join_set_measures_the_grace_period_with_the_clock_of_the_other_runtime() {
    let early = Simulation::new(1);
    let mut late = Simulation::new(2);
    late.run(late.host().sleep(LONG * 10));
    let mut set = early.join_set();
    set.insert(late.spawn(async |mut ctx: Context| {
        let Event::Cancel { .. } = ctx.event().await else { panic!("it is cancelled") };
        ctx.sleep(LONG / 2).await;
        Ok::<_, Exit>(())
    }));
    set.cancel_all("stop", LONG);
    assert_eq!(late.run(set.join_next()), Some(Ok(())), "the process had its grace period");
}

/// Returns two simulations. The clock of the second simulation is ten hours ahead.
fn early_and_late() -> (Simulation, Simulation) {
    let (early, mut late) = (Simulation::new(1), Simulation::new(2));
    late.run(late.host().sleep(LONG * 10));
    (early, late)
}

fn settle_simulation(simulation: &mut Simulation) {
    (0..20).for_each(|_| simulation.run(step_aside()));
}

/// Body that needs half an hour after its cancellation. The body sets the flag when the body has finished.
async fn needs_time(mut ctx: Context, is_done: Arc<AtomicBool>) -> Result<(), Exit> {
    let Event::Cancel { .. } = ctx.event().await else { panic!("it is cancelled") };
    ctx.sleep(LONG / 2).await;
    is_done.store(true, Ordering::SeqCst);
    Ok(())
}

/// 6.4f, 8.3a: a child of a supervisor belongs to another runtime. The time limit for the stop of the child is measured
/// with the clock of this other runtime. If the supervisor itself is cancelled with a time limit, this limit also
/// applies to the child. For the child, the limit is measured with the clock of the other runtime.
#[test]
fn a_supervisor_measures_the_shutdown_time_with_the_clock_of_the_other_runtime() {
    for cancels_supervisor in [false, true] {
        let (mut early, mut late) = early_and_late();
        let (host, is_done) = (late.host().clone(), Arc::new(AtomicBool::new(false)));
        let child = Child::with_args("child", Arc::clone(&is_done), needs_time);
        let within = if cancels_supervisor { LONG * 100 } else { LONG };
        let child = child.options(move |_| host.process()).shutdown(within);
        let supervisor = early.spawn_process(Supervisor::one_for_one().add(child));
        settle_simulation(&mut early);
        let pid = late.host().whereis("child").expect("the child runs");
        let exited = late.host().exited(pid);
        settle_simulation(&mut late);
        settle_simulation(&mut early);
        let stop = |reply| supervisor::SupervisorMessage::TerminateChild("child".into(), reply);
        let _stopped = if cancels_supervisor {
            early.host().cancel(supervisor.pid(), "stop", LONG).unwrap();
            None
        } else {
            Some(supervisor.call(stop).start())
        };
        settle_simulation(&mut early);
        assert_eq!((late.run(exited), is_done.load(Ordering::SeqCst)), (Exit::Normal, true), "{cancels_supervisor}");
    }
}

/// 6.2a, 8.3a: a child of a scope belongs to another runtime. The grace period of the child is measured with the clock
/// of this other runtime.
#[test]
fn a_scope_measures_the_grace_period_with_the_clock_of_the_other_runtime() {
    for case in ["fails", "fails at once", "is cancelled", "spawns after its cancellation"] {
        let (mut early, mut late) = early_and_late();
        let (host, is_done) = (late.host().clone(), Arc::new(AtomicBool::new(false)));
        let (send, receive) = oneshot::channel();
        let done = Arc::clone(&is_done);
        let body = early.spawn(async move |ctx: Context| {
            let scope = ctx.scope(async |scope| {
                scope.grace(LONG);
                if case == "spawns after its cancellation" {
                    ctx.cancelled().await;
                    step_aside().await;
                }
                let spawned = scope.spawn_with(|_| host.process(), move |ctx| needs_time(ctx, done));
                let _ = send.send(spawned.unwrap().exited());
                match case {
                    "fails at once" => {}
                    "fails" => step_aside().await,
                    _ => pending().await,
                }
                Err::<(), _>(Exit::failed("it fails"))
            });
            scope.await
        });
        settle_simulation(&mut early);
        if case.contains("cancel") {
            early.host().cancel(body.pid(), "stop", LONG).unwrap();
            settle_simulation(&mut early);
        }
        let exited = late.run(receive).unwrap();
        assert_eq!((late.run(exited), is_done.load(Ordering::SeqCst)), (Exit::Normal, true), "{case}");
    }
}

/// 10.1a: a preemption request for a process does not reach a simulation that this process runs.
#[test]
fn a_preemption_request_does_not_reach_a_simulation() {
    within(60, || {
        let rt = Runtime::builder().workers(1).build().unwrap();
        let counts = rt.spawn(async |ctx: Context| {
            assert_eq!(ctx.host().preempt(ctx.pid()), Ok(true));
            let mut simulation = Simulation::new(1);
            let counts: Vec<_> = (0..=ctx.pid().index())
                .map(|_| {
                    simulation
                        .spawn(async |_: Context| Ok::<_, Exit>((0..1_000).take_while(|_| !should_yield()).count()))
                })
                .collect();
            Ok::<_, Exit>(counts.into_iter().map(|count| simulation.run(count).unwrap()).collect::<Vec<_>>())
        });
        let counts = rt.block_on(counts).unwrap();
        assert!(counts.iter().all(|&count| count == counts[0] && count > 100), "{counts:?}");
    });
}

/// 10.1a: the hash of an address does not depend on the memory of the program.
#[test]
fn the_addresses_of_equal_simulations_have_equal_hashes() {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let mut simulations = [Simulation::new(1), Simulation::new(1)];
    let hashes = simulations.each_mut().map(|simulation| {
        let handle = simulation.spawn(async |mut ctx: Context<u8>| ctx.receive().await);
        (hasher.hash_one(handle.address()), handle)
    });
    assert_eq!(hashes[0].0, hashes[1].0);
    assert_ne!(hashes[0].1.address(), hashes[1].1.address());
}

/// 1.3e, 8.1a: while a step blocks in `block_on`, the thread of the step runs a future that was spawned with
/// `spawn_future`. The future belongs to no process.
#[test]
fn a_future_that_runs_inside_a_blocked_step_belongs_to_no_process() {
    within(60, || {
        let rt = Arc::new(lone());
        let inside = Arc::clone(&rt);
        let outer = rt.spawn(async move |ctx: Context| {
            let host = ctx.host().clone();
            let (sender, receiver) = oneshot::channel();
            ctx.host().spawn_future(async move {
                let yields = (0..1_000).any(|_| should_yield());
                let parent = host.process_details(host.spawn(async |_: Context| pending::<()>().await).pid()).unwrap();
                let _ = sender.send((yields, parent.info.parent));
            });
            Ok::<_, Exit>(inside.block_on(receiver).unwrap())
        });
        assert_eq!(rt.block_on(outer), Ok((false, None)));
    });
}

/// 2.6c: a step waits for a reply. Inside this step, a future that was spawned with `spawn_future` panics while the
/// future holds the reply. The call fails, so the step does not wait forever.
#[test]
fn a_call_ends_if_a_future_drops_the_reply_inside_the_waiting_step() {
    within(60, || {
        let rt = Arc::new(lone());
        let server = rt.spawn(async |mut ctx: Context<Reply<()>>| {
            let reply = ctx.receive().await?;
            ctx.host().spawn_future(async move {
                let _reply = reply;
                panic!("the reply is lost");
            });
            ctx.receive().await.map(drop)
        });
        let (inside, address) = (Arc::clone(&rt), server.address().clone());
        let calls = rt.spawn(async move |_: Context| {
            let called = inside.block_on(address.call(|reply: Reply<()>| reply));
            Ok::<_, Exit>(matches!(called, Err(CallError::Dropped)))
        });
        assert_eq!(rt.block_on(calls), Ok(true));
    });
}

struct Shelved;
impl Command for Shelved {
    type Reply = ();
}

struct Drives;
impl Command for Drives {
    type Reply = bool;
}
impl StreamCommand for Drives {
    type Item = bool;
}

/// Spawns two processes. The first process waits for the command `Shelved`. The second process panics while it owns the
/// completion of this command. Returns whether the command was abandoned.
fn abandons(rt: &Runtime, shelf: &Arc<Mutex<Option<Completion<()>>>>) -> bool {
    let asks =
        rt.spawn(async |ctx: Context| Ok::<_, Exit>(matches!(ctx.perform(Shelved).await, Err(Failure::Abandoned))));
    rt.block_on(step_aside());
    let takes = Arc::clone(shelf);
    let owner = rt.spawn(async move |_: Context| -> Result<(), Exit> {
        let _completion = takes.lock().unwrap().take().expect("it is on the shelf");
        panic!("the owner panics");
    });
    let abandoned = rt.block_on(asks).unwrap();
    assert!(rt.block_on(owner).is_err());
    abandoned
}

/// 3.3c: a handler drives the runtime. Meanwhile, another process runs on the same thread. This process panics and
/// drops the completion of another command. This other command fails immediately. The handler is a function.
#[test]
fn a_command_is_abandoned_at_once_if_its_completion_is_dropped_inside_a_handler() {
    within(60, || {
        let shelf = Arc::new(Mutex::new(None::<Completion<()>>));
        let (puts, takes) = (Arc::clone(&shelf), shelf);
        let cell = Arc::<std::sync::OnceLock<Weak<Runtime>>>::default();
        let known = Arc::clone(&cell);
        let rt = Runtime::builder()
            .workers(0)
            .handler(move |_: Shelved, completion| *puts.lock().unwrap() = Some(completion))
            .handler(move |_: Drives, completion: Completion<bool>| {
                let rt = known.get().and_then(Weak::upgrade).expect("it lives");
                completion.complete(abandons(&rt, &takes));
            })
            .build()
            .unwrap();
        let rt = Arc::new(rt);
        cell.set(Arc::downgrade(&rt)).expect("once");
        assert!(rt.block_on(rt.spawn(async |ctx: Context| ctx.perform(Drives).await)).unwrap());
    });
}

/// 3.3c: the handler of a command is a future. During a poll of this future, a process panics and drops the completion
/// of another command. This other command is also abandoned immediately. The process runs in a later poll of this
/// future, and this poll is outside any turn.
#[test]
fn a_command_is_abandoned_at_once_if_its_completion_is_dropped_inside_an_async_handler() {
    within(60, || {
        let shelf = Arc::new(Mutex::new(None::<Completion<()>>));
        let (puts, takes) = (Arc::clone(&shelf), shelf);
        let cell = Arc::<std::sync::OnceLock<Weak<Runtime>>>::default();
        let known = Arc::clone(&cell);
        let rt = Runtime::builder()
            .workers(0)
            .handler(move |_: Shelved, completion| *puts.lock().unwrap() = Some(completion))
            .handle_stream(move |_: Drives, replies: StreamCompletion<Drives>| {
                let (known, takes) = (Arc::clone(&known), Arc::clone(&takes));
                async move {
                    step_aside().await;
                    let rt = known.get().and_then(Weak::upgrade).expect("it lives");
                    replies.complete(abandons(&rt, &takes));
                    Ok::<_, Failure>(())
                }
            })
            .build()
            .unwrap();
        let rt = Arc::new(rt);
        cell.set(Arc::downgrade(&rt)).expect("once");
        let body = rt.spawn(async |ctx: Context| ctx.stream(Drives).last().await);
        assert!(rt.block_on(body).unwrap());
    });
}

/// 9.1a: the turns of local processes are counted as polls.
#[test]
fn the_turns_of_local_processes_are_counted() {
    let rt = lone();
    let local = rt.local_set();
    let before = rt.counters().polls;
    let yields = local.spawn(async |ctx: Context| {
        for _ in 0..100 {
            ctx.yield_now().await;
        }
    });
    local.block_on(yields).unwrap();
    assert!(rt.counters().polls - before >= 101);
}

/// 4.7h: a step waits in `block_on`. Its thread runs another process, and this process blocks. The tasks in the queues
/// of the outer worker still run.
#[test]
fn if_a_process_blocks_the_thread_of_a_waiting_step_no_other_process_is_delayed() {
    within(60, || {
        let rt = Runtime::builder().workers(1).long_step_threshold(Duration::MAX).build().unwrap();
        let rt = Arc::new(rt);
        let inside = Arc::clone(&rt);
        let outer = rt.spawn(async move |ctx: Context| {
            let (sender, receiver) = mpsc::channel();
            let waits = ctx.spawn(async move |_: Context| Ok::<_, Exit>(block_in_place(|| receiver.recv().unwrap())));
            let sends = ctx.spawn(async move |_: Context| sender.send(7).unwrap());
            let got = inside.block_on(waits).unwrap();
            sends.await?;
            Ok::<_, Exit>(got)
        });
        assert_eq!(futures::executor::block_on(outer), Ok(7));
    });
}

/// 8.1e: in a runtime with `QueueOrder::Lifo`, a guest thread releases its worker slot. The process that yielded in the
/// last turn of the guest is in the global queue, and the parked worker runs this process.
#[test]
fn a_process_that_yields_in_the_last_turn_of_a_guest_runs_again() {
    within(60, || {
        let rt = Runtime::builder().workers(1).local_order(QueueOrder::Lifo).build().unwrap();
        // The worker parks.
        while rt.metrics().counters.parks == 0 {
            std::thread::yield_now();
        }
        for _ in 0..50 {
            let (done, is_done) = mpsc::channel();
            let (sender, receiver) = oneshot::channel();
            rt.block_on(async {
                drop(rt.spawn(async move |ctx: Context| {
                    let _ = sender.send(());
                    ctx.yield_now().await;
                    done.send(()).unwrap();
                }));
                receiver.await.unwrap();
            });
            is_done.recv().unwrap();
        }
    });
}

/// A value that records whether it is dropped inside the context of tokio.
#[cfg(feature = "tokio")]
struct UsesTokio(Arc<AtomicBool>);

#[cfg(feature = "tokio")]
impl Drop for UsesTokio {
    fn drop(&mut self) {
        self.0.store(tokio::runtime::Handle::try_current().is_ok(), Ordering::SeqCst);
    }
}

/// 8.2d: a future without a pid is spawned after the end of the runtime. This future is dropped inside the context of
/// tokio.
#[cfg(feature = "tokio")]
#[test]
fn an_ended_runtime_drops_a_refused_future_inside_the_context_of_tokio() {
    let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let rt = Runtime::builder().workers(0).tokio(tokio.handle().clone()).build().unwrap();
    let host = rt.host().clone();
    drop(rt);
    let was_inside = Arc::new(AtomicBool::new(false));
    let held = UsesTokio(Arc::clone(&was_inside));
    host.spawn_future(async move {
        let _held = held;
    });
    assert!(was_inside.load(Ordering::SeqCst));
}

/// 8.2d: a future of `run` that was never polled is dropped inside the context of tokio.
#[cfg(feature = "tokio")]
#[test]
fn an_unpolled_run_future_is_dropped_inside_the_context_of_tokio() {
    let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let rt = Runtime::builder().workers(0).tokio(tokio.handle().clone()).build().unwrap();
    let was_inside = Arc::new(AtomicBool::new(false));
    let held = UsesTokio(Arc::clone(&was_inside));
    drop(rt.run(async move {
        let _held = held;
    }));
    assert!(was_inside.load(Ordering::SeqCst));
}

/// 6.5a, 6.4c: a supervisor belongs to one runtime, and its child belongs to another runtime. A shutdown of the child's
/// runtime cancels the child directly, because the child has no supervisor in that runtime. The supervisor then cannot
/// start the child again. This refusal counts towards the restart intensity, and is not treated as a shutdown of the
/// supervisor's own runtime.
#[test]
fn a_shutdown_cancels_a_child_whose_supervisor_belongs_to_another_runtime() {
    let (mut early, mut late) = early_and_late();
    let host = late.host().clone();
    let child = Child::new("child", async |mut ctx: Context| ctx.receive().await.map(drop));
    let supervisor = early.spawn_process(Supervisor::one_for_one().add(child.options(move |_| host.process())));
    settle_simulation(&mut early);
    settle_simulation(&mut late);
    let (host, begun) = (late.host().clone(), late.now());
    let report = late.shutdown(LONG);
    assert!(report.left.is_empty() && host.now() < begun + LONG, "{:?}", report.left);
    match early.run(supervisor) {
        Err(Exit::Failed(failure)) => assert!(failure.to_string().contains("shut down"), "{failure}"),
        other => panic!("the supervisor has reached its restart intensity: {other:?}"),
    }
}

/// 6.3e: a pid of another runtime may have the same numbers as the pid of a linked process. A link to the pid of the
/// other runtime still fails, and a process that traps exits receives the event.
#[test]
fn a_link_to_another_runtime_does_not_match_a_local_link() {
    let (mut early, other) = (Simulation::new(1), Simulation::new(2));
    let waits = async |mut ctx: Context| ctx.receive().await.map(drop);
    let local = early.spawn(waits).pid();
    // Each process is the first process of its simulation, so the two pids contain the same numbers.
    let foreign = other.spawn(waits).pid();
    assert!(local != foreign && local.to_string() == foreign.to_string(), "{local}, {foreign}");
    for traps in [false, true] {
        let caller = early.spawn(async move |mut ctx: Context| -> Result<_, Exit> {
            ctx.trap_exit(traps);
            ctx.link(local)?;
            let linked = ctx.link(foreign);
            assert_eq!(linked.is_ok(), traps);
            let event = if traps { Some(ctx.event().await) } else { None };
            ctx.unlink(local);
            Ok(matches!(event, Some(Event::Exit { from, .. }) if from == foreign))
        });
        assert_eq!(early.run(caller), Ok(traps));
    }
}

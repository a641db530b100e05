//! 9.2d, 9.2e: deadlocks of supervisors during their shutdown.

use std::time::Duration;

use procession::observe::{Deadlock, Finding, WaitsFor};
use procession::supervisor::SupervisorMessage;
use procession::*;

use super::{assert_deadlock, settle};

/// Waits for its cancellation, and then waits for the exit of its supervisor.
async fn waits_for_exit(mut ctx: Context<Reply<()>>) {
    while ctx.receive().await.is_ok() {}
    let supervisor = ctx.host().whereis("supervisor").expect("the supervisor lives");
    ctx.host().exited(supervisor).await;
}

/// Waits for its cancellation, and then calls the process `child`.
async fn calls_child(mut ctx: Context<Reply<()>>) {
    while ctx.receive().await.is_ok() {}
    _ = ctx.call("child", |reply: Reply<()>| reply).await;
}

/// Spawns a supervisor with the name `supervisor`. When the supervisor stops a child, the supervisor waits at most
/// `limit` for the exit of this child.
fn supervise(rt: &Runtime, limit: Duration) -> JoinHandle<(), SupervisorMessage> {
    let child = Child::new("child", waits_for_exit).shutdown(limit);
    let caller = Child::new("caller", calls_child).shutdown(limit);
    let supervisor = Supervisor::one_for_one().add(caller).add(child);
    let supervisor = rt.process().name("supervisor").spawn_process(supervisor).unwrap();
    rt.block_on(supervisor.started()).unwrap();
    supervisor
}

/// Cancels the supervisor without a time limit.
fn cancel(rt: &Runtime, supervisor: Pid) {
    rt.cancel(supervisor, "stop", Duration::MAX).unwrap();
}

/// Spawns a process that is linked with the supervisor. This process fails.
fn fail_linked(rt: &Runtime, supervisor: Pid) {
    let linked = rt.spawn(async move |ctx: Context| {
        ctx.link(supervisor).expect("the supervisor lives");
        Err::<(), _>("planned")
    });
    rt.block_on(linked).unwrap_err();
}

fn found(rt: &Runtime) -> Vec<Deadlock> {
    let findings = rt.explain().findings.into_iter();
    findings
        .filter_map(|finding| if let Finding::Deadlock(deadlock) = finding { Some(deadlock) } else { None })
        .collect()
}

/// 9.2d, 9.2e, 9.2g: a supervisor stops its children in reverse order, and waits without a time limit for the exit of
/// the last child. This child waits for the exit of the supervisor. Both processes are deadlocked, until a kill of the
/// child ends the deadlock. Then the next child exits, because the callee of its call has already exited.
#[test]
fn a_supervisor_in_its_shutdown_is_deadlocked_with_a_child_that_waits_for_the_supervisor() {
    for stop in [cancel, fail_linked] {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let supervisor = supervise(&rt, Duration::MAX);
        settle(&rt);
        assert_eq!((rt.wait_for_graph().deadlocks, found(&rt)), (vec![], vec![]));
        stop(&rt, supervisor.pid());
        settle(&rt);
        let graph = rt.wait_for_graph();
        assert_deadlock(&graph, &["child", "supervisor"], 0);
        assert_eq!(found(&rt), graph.deadlocks);
        for edge in &graph.deadlocks[0].cycle {
            assert!(matches!(edge.waits_for, WaitsFor::Exit { process, .. } if process == edge.target), "{edge:?}");
        }
        // A request to the supervisor is answered, but does not end the deadlock.
        assert_eq!(rt.block_on(rt.supervision_tree(supervisor.pid())).unwrap().children.len(), 2);
        settle(&rt);
        assert_deadlock(&rt.wait_for_graph(), &["child", "supervisor"], 0);
        rt.kill(rt.whereis("child").unwrap()).unwrap();
        rt.block_on(supervisor).unwrap_err();
        assert_eq!((rt.wait_for_graph().deadlocks, found(&rt), rt.processes_alive()), (vec![], vec![], 0));
    }
}

/// Waits for its cancellation, and then sleeps.
async fn slow(mut ctx: Context<Reply<()>>) {
    while ctx.receive().await.is_ok() {}
    ctx.sleep(Duration::from_secs(3600)).await;
}

/// Waits for the exit of its supervisor. The body never receives.
async fn watches_supervisor(ctx: Context<Reply<()>>) {
    let supervisor = ctx.host().whereis("supervisor").expect("the supervisor lives");
    ctx.host().exited(supervisor).await;
}

/// 9.2e: during its shutdown, a supervisor stops its children one after the other. While the supervisor stops one
/// child, a second child may wait for the exit of the supervisor. This wait is not a deadlock, because the supervisor
/// cancels or kills the second child later.
#[test]
fn no_deadlock_is_reported_if_the_supervisor_will_stop_the_waiting_child_later() {
    let hour = Duration::from_secs(3600);
    let rt = Runtime::builder().workers(0).build().unwrap();
    for shutdown in [hour, Duration::MAX] {
        let name = rt.process().name("supervisor");
        let watcher = Child::new("watcher", watches_supervisor).shutdown(shutdown);
        let first = Supervisor::one_for_one().add(watcher);
        let supervisor = name.spawn_process(first.add(Child::new("slow", slow).shutdown(Duration::MAX))).unwrap();
        rt.block_on(async {
            while rt.whereis("supervisor").is_none() {
                crate::step_aside().await;
            }
        });
        settle(&rt);
        cancel(&rt, supervisor.pid());
        settle(&rt);
        assert_eq!((rt.wait_for_graph().deadlocks, found(&rt)), (vec![], vec![]));
        rt.kill(rt.whereis("slow").unwrap()).unwrap();
        settle(&rt);
        // Now the supervisor waits for the watcher. If the stop of the watcher has a time limit, a timer kills the
        // watcher later.
        let deadlocks = rt.wait_for_graph().deadlocks;
        assert_eq!(deadlocks.len(), usize::from(shutdown == Duration::MAX), "{deadlocks:?}");
        rt.kill(supervisor.pid()).unwrap();
        rt.block_on(supervisor).unwrap_err();
    }
}

/// 9.2e: a child was cancelled without a time limit. Later the supervisor stops the child with a time limit. When this
/// time limit expires, a timer ends the wait, so the wait is not a deadlock.
#[test]
fn no_deadlock_is_reported_if_the_child_was_cancelled_before_the_supervisor_stops_this_child() {
    let hour = Duration::from_secs(3600);
    let rt = Runtime::builder().workers(0).build().unwrap();
    let supervisor = supervise(&rt, hour);
    settle(&rt);
    cancel(&rt, rt.whereis("child").unwrap());
    settle(&rt);
    cancel(&rt, supervisor.pid());
    settle(&rt);
    assert_eq!((rt.wait_for_graph().deadlocks, found(&rt)), (vec![], vec![]));
    rt.kill(supervisor.pid()).unwrap();
    rt.block_on(supervisor).unwrap_err();
}

/// 9.2e: a child with a time limit is killed at the end of the time limit. Therefore the wait for this child is not a
/// deadlock. If the cancellation of the supervisor has a time limit, the wait is not a deadlock either.
#[test]
fn a_shutdown_with_a_time_limit_is_no_deadlock() {
    let hour = Duration::from_secs(3600);
    for (limit, grace) in [(hour, Duration::MAX), (Duration::MAX, hour)] {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let supervisor = supervise(&rt, limit);
        rt.cancel(supervisor.pid(), "stop", grace).unwrap();
        settle(&rt);
        let graph = rt.wait_for_graph();
        assert_eq!((graph.edges.len() >= 2, graph.deadlocks, found(&rt)), (true, vec![], vec![]));
        rt.kill(supervisor.pid()).unwrap();
        rt.block_on(supervisor).unwrap_err();
    }
}

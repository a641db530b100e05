//! Section 9.2 of the specification: an inspection states whether a process checks for requests to yield.

use std::future::{pending, ready};
use std::sync::Arc;

use procession::observe::{ProcessInfo, ProcessQuery, ProcessState};
use procession::*;

use crate::inspection::{lone, settle};
use crate::step_aside;

/// Number of steps during which a check counts.
const RECENT: u64 = 64;

/// What a process does in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Do {
    Nothing,
    Check,
    /// Awaits a ready future in `cooperative`.
    Cooperate,
    /// Polls a pending future in `cooperative`, and drops this future.
    PollOnce,
    /// Awaits a future of the crate that uses the budget of the turn. Does not use `cooperative`.
    UseBudget,
}

async fn act(ctx: &Context<Do>, what: Do) {
    match what {
        Do::Nothing => {}
        Do::Check => assert!(!should_yield()),
        Do::Cooperate => cooperative(ready(())).await,
        Do::PollOnce => assert!(futures::FutureExt::now_or_never(cooperative(pending::<()>())).is_none()),
        Do::UseBudget => _ = ctx.send_wait(&ctx.address(), Do::Nothing).await,
    }
}

async fn body(mut ctx: Context<Do>) -> Result<(), Exit> {
    loop {
        let what = ctx.receive().await?;
        act(&ctx, what).await;
    }
}

struct ByHand;

impl Process for ByHand {
    type Message = Do;
    type Output = ();
    fn step(&mut self, events: Events<'_, Do>, _: &mut StepOutput<'_, Do>) -> Result<Next<()>, Exit> {
        for event in events {
            if let Event::Message(Do::Check) = event {
                assert!(!should_yield());
            }
        }
        Ok(Next::Wait)
    }
}

fn row(host: &Host, pid: Pid) -> ProcessInfo {
    host.process_details(pid).expect("the process lives").info
}

fn checks(host: &Host, pid: Pid) -> bool {
    let row = row(host, pid);
    assert_eq!(row.to_string().contains(", checks should_yield"), row.checks_yield, "{row}");
    row.checks_yield
}

/// Lets the process run one step for each message. Asserts that each message causes exactly one step.
fn steps(rt: &Runtime, to: &Address<Do>, messages: impl IntoIterator<Item = Do>) {
    for message in messages {
        let before = row(rt, to.pid()).steps;
        to.send(message).unwrap();
        settle(rt);
        assert_eq!(row(rt, to.pid()).steps, before + 1);
    }
}

/// 9.2a: if a process never checks whether it should yield, no check is recorded for this process, even after many
/// steps. A check counts during 64 steps. This rule applies to async bodies and to hand-written processes.
#[test]
fn a_yield_check_is_remembered_for_64_steps() {
    let rt = lone();
    for process in [rt.spawn(body).address(), rt.spawn_process(ByHand).address()] {
        settle(&rt);
        let pid = process.pid();
        assert!(!checks(&rt, pid), "it has only started");
        steps(&rt, &process, [Do::Nothing; 200]);
        assert!(!checks(&rt, pid), "it never checks");
        steps(&rt, &process, [Do::Check]);
        assert!(checks(&rt, pid), "its last step checked");
        for later in 1..=3 * RECENT {
            steps(&rt, &process, [Do::Nothing]);
            assert_eq!(checks(&rt, pid), later < RECENT, "{later} steps after the check");
        }
        steps(&rt, &process, [Do::Check]);
        assert!(checks(&rt, pid), "it checks again");
    }
}

/// 9.2a: a poll of a `cooperative` future counts as a check, even if the inner future is pending. Another
/// future may also use the budget of the turn, but a poll of this other future does not count as a check.
#[test]
fn a_poll_of_a_cooperative_future_is_a_check() {
    for (what, expected) in [(Do::Cooperate, true), (Do::PollOnce, true), (Do::Nothing, false)] {
        let rt = lone();
        let process = rt.spawn(body).address();
        settle(&rt);
        steps(&rt, &process, [what]);
        assert_eq!(checks(&rt, process.pid()), expected, "{what:?}");
    }
    let rt = lone();
    let process = rt.spawn(body).address();
    process.send(Do::UseBudget).unwrap();
    settle(&rt);
    assert!(!checks(&rt, process.pid()), "only `cooperative` and `should_yield` are recorded");
}

/// 9.2a: if a body pauses between two `cooperative` futures, the inspection states that the body checks for requests to
/// yield. The body has used the budget of its first step, and is ready for its second step.
#[test]
fn the_inspection_shows_that_a_body_of_cooperative_futures_checks_for_requests_to_yield() {
    let rt = lone();
    let pieces = rt.spawn(async |_: Context| {
        for _ in 0..200 {
            cooperative(ready(())).await;
        }
        pending::<()>().await;
    });
    let pid = pieces.pid();
    // This process runs after the first step of the other process.
    let look = rt.spawn(async move |ctx: Context| Ok::<_, Exit>(row(ctx.host(), pid)));
    let seen = rt.block_on(look).unwrap();
    assert_eq!((seen.state, seen.steps, seen.checks_yield), (Some(ProcessState::Ready), 1, true));
    settle(&rt);
    assert_eq!((row(&rt, pid).steps, checks(&rt, pid)), (2, true));
}

/// 9.2a: if a step waits in `block_on`, the thread of the step runs other processes meanwhile. Each check belongs to
/// the process that performed the check.
#[test]
fn each_check_inside_block_on_belongs_to_the_process_that_made_the_check() {
    for (outer_checks, inner_checks) in [(true, false), (false, true)] {
        let rt = Arc::new(lone());
        let inside = Arc::clone(&rt);
        let outer = rt.spawn(async move |ctx: Context| {
            if outer_checks {
                _ = should_yield();
            }
            let inner = ctx.spawn(async move |ctx: Context| {
                if inner_checks {
                    _ = should_yield();
                }
                ctx.yield_now().await;
                Ok::<_, Exit>(row(ctx.host(), ctx.pid()))
            });
            let seen = inside.block_on(inner)?;
            drop(inside);
            assert_eq!((seen.steps, seen.checks_yield), (1, inner_checks));
            pending::<Result<(), Exit>>().await
        });
        let pid = outer.pid();
        settle(&rt);
        assert_eq!((row(&rt, pid).steps, checks(&rt, pid)), (1, outer_checks));
    }
}

struct Ask;
impl Command for Ask {
    type Reply = bool;
}

/// 9.2a: a check in the handler of a command does not count as a check of the process that performs the command. A
/// check outside the processes counts for no process.
#[test]
fn a_check_in_a_handler_is_no_check_of_the_process() {
    let inline = Runtime::builder().workers(0).handle(|_: Ask| should_yield()).build().unwrap();
    let later = Runtime::builder().workers(0).handle_async(async |_: Ask| {
        step_aside().await;
        should_yield()
    });
    for rt in [inline, later.build().unwrap()] {
        let asks = rt.spawn(async |ctx: Context| {
            assert!(!ctx.perform(Ask).await?);
            pending::<Result<(), Exit>>().await
        });
        settle(&rt);
        assert!(!should_yield());
        assert_eq!((row(&rt, asks.pid()).yields, checks(&rt, asks.pid())), (0, false));
    }
}

/// 9.2a: a step that panics after its check ends the process. The check does not count for the next process on the
/// same thread.
#[test]
fn the_check_of_a_failed_step_does_not_count_for_another_process() {
    let rt = lone();
    for _ in 0..3 {
        let fails = rt.spawn(async |_: Context| {
            _ = should_yield();
            panic!("after the check");
        });
        let next = rt.spawn(body);
        rt.block_on(fails).unwrap_err();
        settle(&rt);
        assert!(!checks(&rt, next.pid()));
    }
}

/// 9.2a: an inspection of a simulation contains the checks of its processes, and each process query returns these
/// checks.
#[test]
fn the_checks_of_a_simulated_process_are_known() {
    let mut simulation = Simulation::new(7);
    let host = simulation.host().clone();
    let (asks, never) = (host.spawn(body), host.spawn(body));
    asks.send(Do::Check).unwrap();
    never.send(Do::Nothing).unwrap();
    simulation.run(host.sleep(std::time::Duration::from_secs(1)));
    let rows = host.processes(&ProcessQuery::new());
    let seen = |pid| rows.iter().find(|row| row.pid == pid).expect("it is listed").checks_yield;
    assert_eq!((seen(asks.pid()), seen(never.pid())), (true, false));
}

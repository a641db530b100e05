//! Tests of the plan of a supervisor. Some tests check scenarios against the rules of OTP. Random tests check
//! invariants and termination.

use crate::behaviour::supervisor::plan::*;
use crate::platform::random::Rng;
use crate::platform::sync::Arc;
use crate::process::pid::Pid;

const MS: fn(u64) -> Duration = Duration::from_millis;

mod requests;

fn at(ms: u64) -> Instant {
    Instant::from_ns(ms * 1_000_000)
}

fn boom() -> Exit {
    Exit::Panicked("boom".into())
}

fn plan(strategy: Strategy, restarts: &[RestartPolicy]) -> Plan {
    let mut plan = Plan::new(strategy, Intensity::new(3, MS(1_000)));
    for &restart in restarts {
        plan.add(Policy { restart, backoff: None }, false, at(0));
    }
    plan
}

/// Starts every child that can be started now. Each child immediately reports its start.
fn bring_up(plan: &mut Plan, now: Instant) -> Vec<Id> {
    let mut up = Vec::new();
    while let Some(action) = plan.next(now) {
        let Start(id) = action else { panic!("{action:?} while starting") };
        plan.started(id, now);
        up.push(id);
    }
    up
}

/// Returns all actions that are possible now.
fn next(plan: &mut Plan, now: Instant) -> Vec<Action> {
    std::iter::from_fn(|| plan.next(now)).collect()
}

use Action::{Start, Stop};
use RestartPolicy::{Permanent, Temporary, Transient};

#[test]
fn each_child_starts_after_the_previous_child_has_started() {
    let mut plan = plan(Strategy::OneForOne, &[Permanent; 3]);
    assert_eq!(next(&mut plan, at(0)), [Start(0)]);
    assert_eq!(next(&mut plan, at(0)), []);
    plan.started(0, at(1));
    assert_eq!(next(&mut plan, at(1)), [Start(1)]);
    assert!(!plan.is_settled());
    // The start of the second child fails. The plan repeats this start before it starts the third child.
    assert_eq!(plan.exited(1, Over::Ended, &boom(), at(2), || 0), ExitAction::Again);
    assert_eq!(next(&mut plan, at(2)), [Start(1)]);
    plan.started(1, at(3));
    assert_eq!(next(&mut plan, at(3)), [Start(2)]);
}

#[test]
fn a_started_child_stays_up_until_a_stop_is_planned() {
    let mut plan = plan(Strategy::OneForAll, &[Permanent; 2]);
    assert!(!plan.is_up_with_no_stop_planned(0), "the child is due");
    assert_eq!(next(&mut plan, at(0)), [Start(0)]);
    assert!(!plan.is_up_with_no_stop_planned(0), "the child is starting");
    plan.started(0, at(1));
    assert!(
        plan.is_up_with_no_stop_planned(0)
            && !plan.is_up_with_no_stop_planned(1)
            && !plan.is_up_with_no_stop_planned(2)
    );
    assert_eq!(bring_up(&mut plan, at(1)), [1]);
    // After the exit of the second child, the plan stops the first child.
    plan.exited(1, Over::Ended, &boom(), at(2), || 0);
    assert!(!plan.is_up_with_no_stop_planned(0), "a stop is planned");
    assert_eq!(next(&mut plan, at(2)), [Stop(0)]);
    assert!(!plan.is_up_with_no_stop_planned(0), "the child is stopping");
}

#[test]
fn the_strategy_one_for_one_restarts_only_the_child_that_exited() {
    let mut plan = plan(Strategy::OneForOne, &[Permanent; 3]);
    assert_eq!(bring_up(&mut plan, at(0)), [0, 1, 2]);
    plan.exited(1, Over::Ended, &boom(), at(5), || 0);
    assert_eq!(next(&mut plan, at(5)), [Start(1)]);
    // Child 0 exits. The restart of child 0 does not wait until child 1 has started.
    plan.exited(0, Over::Ended, &boom(), at(6), || 0);
    assert_eq!(next(&mut plan, at(6)), [Start(0)]);
}

#[test]
fn the_strategy_one_for_all_stops_children_in_reverse_order_and_starts_all_children_in_order() {
    let mut plan = plan(Strategy::OneForAll, &[Permanent; 3]);
    bring_up(&mut plan, at(0));
    plan.exited(1, Over::Ended, &boom(), at(5), || 0);
    assert_eq!(next(&mut plan, at(5)), [Stop(2)]);
    assert_eq!(next(&mut plan, at(5)), []);
    plan.exited(2, Over::Ended, &Exit::Cancelled("parent".into()), at(6), || 0);
    assert_eq!(next(&mut plan, at(6)), [Stop(0)]);
    // The child panics while the plan stops the group. Because the child had to be stopped, its exit does not count as
    // a failure.
    plan.exited(0, Over::Ended, &boom(), at(7), || 0);
    assert_eq!(bring_up(&mut plan, at(7)), [0, 1, 2]);
}

#[test]
fn the_strategy_rest_for_one_keeps_earlier_children_running() {
    let mut plan = plan(Strategy::RestForOne, &[Permanent; 4]);
    bring_up(&mut plan, at(0));
    plan.exited(1, Over::Ended, &boom(), at(5), || 0);
    for id in [3, 2] {
        assert_eq!(next(&mut plan, at(5)), [Stop(id)]);
        plan.exited(id, Over::Ended, &Exit::Killed, at(5), || 0);
    }
    assert_eq!(bring_up(&mut plan, at(6)), [1, 2, 3]);
}

#[test]
fn exits_during_a_group_restart_do_not_count_as_restarts() {
    let mut plan = plan(Strategy::OneForAll, &[Permanent; 3]);
    bring_up(&mut plan, at(0));
    plan.exited(0, Over::Ended, &boom(), at(5), || 0);
    assert_eq!(next(&mut plan, at(5)), [Stop(2)]);
    // The plan had to stop this child, but the stop was still pending. The exit of this child does not count as another
    // restart.
    plan.exited(1, Over::Ended, &boom(), at(5), || 0);
    plan.exited(2, Over::Ended, &boom(), at(5), || 0);
    assert_eq!(bring_up(&mut plan, at(6)), [0, 1, 2]);
}

#[test]
fn transient_children_restart_only_after_failures_and_temporary_children_never_restart() {
    let mut plan = plan(Strategy::OneForOne, &[Transient, Temporary, Permanent]);
    bring_up(&mut plan, at(0));
    plan.exited(0, Over::Ended, &boom(), at(1), || 0);
    assert_eq!(next(&mut plan, at(1)), [Start(0)]);
    plan.started(0, at(1));
    assert_eq!(plan.exited(0, Over::Ended, &Exit::Normal, at(2), || 0), ExitAction::Finished);
    // The cancellation of a linked process is no failure either.
    let linked = |reason| Exit::Linked { origin: Pid::new(0, 0, 7, 1), reason: Arc::new(reason) };
    for (exit, action) in [
        (Exit::Cancelled("bye".into()), ExitAction::Finished),
        (linked(Exit::Cancelled("bye".into())), ExitAction::Finished),
        (linked(Exit::Killed), ExitAction::Again),
    ] {
        assert!(plan.restart(0, at(2)));
        assert_eq!(bring_up(&mut plan, at(2)), [0]);
        assert_eq!(plan.exited(0, Over::Ended, &exit, at(2), || 0), action, "{exit}");
    }
    assert_eq!(bring_up(&mut plan, at(2)), [0]);
    assert_eq!(plan.exited(0, Over::Ended, &Exit::Normal, at(2), || 0), ExitAction::Finished);
    assert_eq!(plan.exited(1, Over::Ended, &boom(), at(2), || 0), ExitAction::Forgotten);
    assert_eq!(next(&mut plan, at(2)), []);
    plan.exited(2, Over::Ended, &Exit::Normal, at(3), || 0);
    assert_eq!(next(&mut plan, at(3)), [Start(2)]);
    assert_eq!(plan.children.keys().copied().collect::<Vec<_>>(), [0, 2]);
    assert_eq!(plan.phase(0), Some(ChildPhase::Down));
    assert!(plan.restart(0, at(4)));
    assert_eq!(next(&mut plan, at(4)), [Start(0)]);
    // A temporary child is removed after its exit, even if the child was stopped on request.
    let last = plan.add(Policy { restart: Temporary, backoff: None }, false, at(5));
    plan.started(0, at(5));
    assert_eq!(bring_up(&mut plan, at(5)), [last]);
    assert_eq!(plan.stop(last), None);
    assert_eq!(next(&mut plan, at(5)), [Stop(last)]);
    assert_eq!(plan.exited(last, Over::Ended, &Exit::Killed, at(5), || 0), ExitAction::Forgotten);
}

#[test]
fn a_stopped_child_that_was_added_at_run_time_is_kept_if_its_next_start_is_refused() {
    for was_starting in [true, false] {
        let mut plan = plan(Strategy::OneForOne, &[]);
        let id = plan.add(Policy { restart: Permanent, backoff: None }, true, at(0));
        if was_starting {
            assert_eq!(next(&mut plan, at(0)), [Start(id)]);
            assert_eq!(plan.stop(id), None);
            assert_eq!(next(&mut plan, at(0)), [Stop(id)]);
            assert_eq!(plan.exited(id, Over::Ended, &boom(), at(0), || 0), ExitAction::Down);
        } else {
            assert_eq!(plan.stop(id), Some(ExitAction::Down));
        }
        assert!(plan.restart(id, at(1)));
        assert_eq!(next(&mut plan, at(1)), [Start(id)]);
        assert_eq!(plan.exited(id, Over::Refused, &boom(), at(1), || 0), ExitAction::Down);
        assert_eq!(plan.phase(id), Some(ChildPhase::Down));
    }
}

#[test]
fn a_child_is_not_restarted_if_its_cancellation_also_reaches_the_supervisor() {
    let mut plan = plan(Strategy::OneForAll, &[Permanent, Temporary, Permanent]);
    bring_up(&mut plan, at(0));
    let exit = Exit::Cancelled("over".into());
    for (id, action) in [(0, ExitAction::Down), (1, ExitAction::Forgotten)] {
        assert_eq!(plan.exited(id, Over::Cancelled, &exit, at(0), || 0), action);
    }
    assert_eq!(next(&mut plan, at(0)), []);
    plan.shut_down();
    assert_eq!(next(&mut plan, at(0)), [Stop(2)]);
}

#[test]
fn a_temporary_child_that_is_stopped_with_its_group_is_not_restarted() {
    let mut plan = plan(Strategy::OneForAll, &[Permanent, Temporary, Transient]);
    bring_up(&mut plan, at(0));
    plan.exited(0, Over::Ended, &boom(), at(1), || 0);
    assert_eq!(next(&mut plan, at(1)), [Stop(2)]);
    plan.exited(2, Over::Ended, &Exit::Normal, at(1), || 0);
    assert_eq!(next(&mut plan, at(1)), [Stop(1)]);
    assert_eq!(plan.exited(1, Over::Ended, &Exit::Normal, at(1), || 0), ExitAction::Forgotten);
    assert_eq!(bring_up(&mut plan, at(1)), [0, 2]);
}

#[test]
fn a_supervisor_that_exceeds_its_intensity_stops_all_children_and_fails() {
    let mut plan = plan(Strategy::OneForOne, &[Permanent; 2]);
    bring_up(&mut plan, at(0));
    for ms in 1..=3 {
        plan.exited(1, Over::Ended, &boom(), at(ms), || 0);
        assert_eq!(bring_up(&mut plan, at(ms)), [1]);
    }
    plan.exited(1, Over::Ended, &boom(), at(4), || 0);
    assert!(plan.ended().is_none());
    assert_eq!(next(&mut plan, at(4)), [Stop(0)]);
    plan.exited(0, Over::Ended, &Exit::Normal, at(5), || 0);
    assert!(matches!(plan.ended(), Some(End::GaveUp(1, Exit::Panicked(_)))));
    assert_eq!((next(&mut plan, at(5)), plan.next_time()), (vec![], None));
}

#[test]
fn failed_starts_count_as_restarts() {
    let mut plan = plan(Strategy::OneForOne, &[Permanent]);
    for ms in 0..3 {
        assert_eq!(next(&mut plan, at(ms)), [Start(0)]);
        plan.exited(0, Over::Ended, &boom(), at(ms), || 0);
    }
    assert_eq!(next(&mut plan, at(3)), [Start(0)]);
    plan.exited(0, Over::Ended, &boom(), at(3), || 0);
    assert!(matches!(plan.ended(), Some(End::GaveUp(0, _))));
    assert!(!plan.is_settled(), "it has not started");
}

#[test]
fn a_refused_first_start_stops_the_earlier_children() {
    for over in [Over::Refused, Over::Unmade, Over::Ended] {
        let mut plan = plan(Strategy::OneForOne, &[Permanent, Permanent, Temporary]);
        for id in 0..2 {
            assert_eq!(next(&mut plan, at(0)), [Start(id)]);
            plan.started(id, at(0));
        }
        assert_eq!(next(&mut plan, at(0)), [Start(2)]);
        let action = plan.exited(2, over, &boom(), at(1), || 0);
        if over != Over::Refused {
            // The start failed because of a fault of the child. The temporary child is removed, and the other children
            // continue to run.
            assert_eq!((action, next(&mut plan, at(1))), (ExitAction::Forgotten, vec![]));
            assert!(plan.is_settled());
            continue;
        }
        assert_eq!(action, ExitAction::Down);
        for id in [1, 0] {
            assert!(plan.ended().is_none());
            assert_eq!(next(&mut plan, at(1)), [Stop(id)]);
            plan.exited(id, Over::Ended, &Exit::Normal, at(2), || 0);
        }
        assert!(matches!(plan.ended(), Some(End::StartFailed(2, Exit::Panicked(_)))));
        assert!(!plan.is_settled() && plan.next(at(9)).is_none());
    }
}

#[test]
fn a_refused_restart_counts_as_a_restart_and_the_next_attempt_is_delayed() {
    let backoff = Backoff::new(MS(10), MS(40)).jitter(false);
    for (over, backoff, waits) in [
        (Over::Refused, None, [1, 1, 1]),
        (Over::Unmade, None, [1, 1, 1]),
        (Over::Ended, None, [0, 0, 0]),
        (Over::Refused, Some(backoff), [20, 40, 40]),
        (Over::Refused, Some(Backoff::new(Duration::ZERO, Duration::ZERO)), [1, 1, 1]),
    ] {
        let mut plan = Plan::new(Strategy::OneForOne, Intensity::new(4, MS(1_000)));
        plan.add(Policy { restart: Permanent, backoff }, false, at(0));
        bring_up(&mut plan, at(0));
        plan.exited(0, Over::Ended, &boom(), at(0), || 0);
        let mut now = 50;
        assert_eq!(next(&mut plan, at(now)), [Start(0)]);
        for wait in waits {
            assert_eq!(plan.exited(0, over, &boom(), at(now), || 0), ExitAction::Again);
            assert_eq!(plan.next_time(), Some(at(now + wait)));
            now += wait;
            assert_eq!(next(&mut plan, at(now)), [Start(0)]);
        }
        assert_eq!(plan.exited(0, over, &boom(), at(now), || 0), ExitAction::Down);
        assert!(matches!(plan.ended(), Some(End::GaveUp(0, _))), "{over:?} {waits:?}");
    }
}

#[test]
fn an_added_child_is_removed_if_its_start_fails() {
    for over in [Over::Refused, Over::Unmade, Over::Ended] {
        let mut plan = plan(Strategy::OneForAll, &[Permanent]);
        bring_up(&mut plan, at(0));
        let added = plan.add(Policy { restart: Permanent, backoff: None }, true, at(1));
        assert_eq!(next(&mut plan, at(1)), [Start(added)]);
        assert_eq!(plan.exited(added, over, &boom(), at(1), || 0), ExitAction::Forgotten);
        assert_eq!((next(&mut plan, at(1)), plan.is_settled(), plan.phase(added)), (vec![], true, None));
        // After its start, the added child is supervised in the same way as the other children.
        let added = plan.add(Policy { restart: Permanent, backoff: None }, true, at(2));
        assert_eq!(bring_up(&mut plan, at(2)), [added]);
        assert_eq!(plan.exited(added, Over::Ended, &boom(), at(2), || 0), ExitAction::Again);
    }
}

#[test]
fn a_child_stays_down_if_its_requested_start_is_refused() {
    let mut plan = plan(Strategy::OneForAll, &[Permanent; 2]);
    bring_up(&mut plan, at(0));
    assert_eq!(plan.stop(0), None);
    assert_eq!(next(&mut plan, at(1)), [Stop(0)]);
    plan.exited(0, Over::Ended, &Exit::Normal, at(1), || 0);
    for ms in 2..10 {
        assert!(plan.restart(0, at(ms)));
        assert_eq!(next(&mut plan, at(ms)), [Start(0)]);
        assert_eq!(plan.exited(0, Over::Refused, &boom(), at(ms), || 0), ExitAction::Down);
        assert_eq!((plan.phase(0), plan.is_settled()), (Some(ChildPhase::Down), true));
    }
    // If an instance exits before it has started, this exit is not a refusal. Therefore, the child is restarted.
    assert!(plan.restart(0, at(10)));
    assert_eq!(next(&mut plan, at(10)), [Start(0)]);
    assert_eq!(plan.exited(0, Over::Ended, &boom(), at(10), || 0), ExitAction::Again);
    assert_eq!(next(&mut plan, at(10)), [Stop(1)]);
    plan.exited(1, Over::Ended, &Exit::Normal, at(10), || 0);
    assert_eq!(bring_up(&mut plan, at(10)), [0, 1]);
    // If a running child is restarted on request and the start is refused, the refusal counts as a restart.
    assert!(plan.restart(1, at(10)));
    assert_eq!(next(&mut plan, at(10)), [Stop(1)]);
    plan.exited(1, Over::Ended, &Exit::Normal, at(10), || 0);
    assert_eq!(next(&mut plan, at(10)), [Start(1)]);
    assert_eq!(plan.exited(1, Over::Refused, &boom(), at(10), || 0), ExitAction::Again);
    assert_eq!(next(&mut plan, at(10)), [Stop(0)]);
    plan.exited(0, Over::Ended, &Exit::Normal, at(10), || 0);
    assert_eq!(bring_up(&mut plan, at(11)), [0, 1]);
}

#[test]
fn a_requested_restart_resets_the_backoff() {
    let backoff = Backoff::new(MS(10), MS(80)).jitter(false);
    let mut plan = Plan::new(Strategy::OneForOne, Intensity::new(100, MS(1)));
    plan.add(Policy { restart: Permanent, backoff: Some(backoff) }, false, at(0));
    bring_up(&mut plan, at(0));
    let mut now = 0;
    let mut dies = |plan: &mut Plan, wait: u64| {
        now += 1;
        plan.exited(0, Over::Ended, &boom(), at(now), || 0);
        assert_eq!(plan.next_time(), Some(at(now + wait)));
        now += wait;
        assert_eq!(bring_up(plan, at(now)), [0]);
        now
    };
    dies(&mut plan, 10);
    let now = dies(&mut plan, 20);
    assert!(plan.restart(0, at(now)));
    assert_eq!(next(&mut plan, at(now)), [Stop(0)]);
    plan.exited(0, Over::Ended, &Exit::Normal, at(now), || 0);
    assert_eq!(bring_up(&mut plan, at(now)), [0]);
    dies(&mut plan, 10);
}

#[test]
fn the_backoff_of_a_requested_restart_does_not_delay_other_children() {
    let backoff = Backoff::new(MS(60_000), MS(60_000)).jitter(false);
    let mut plan = Plan::new(Strategy::OneForOne, Intensity::new(100, MS(1)));
    plan.add(Policy { restart: Permanent, backoff: Some(backoff) }, false, at(0));
    // The first start fails. The child keeps its position, so a later child waits.
    assert_eq!(next(&mut plan, at(0)), [Start(0)]);
    assert!(plan.restart(0, at(0)));
    assert_eq!(next(&mut plan, at(0)), [Stop(0)]);
    plan.exited(0, Over::Ended, &Exit::Normal, at(0), || 0);
    assert_eq!(next(&mut plan, at(0)), [Start(0)]);
    plan.exited(0, Over::Ended, &boom(), at(0), || 0);
    let added = plan.add(Policy { restart: Permanent, backoff: None }, true, at(1));
    assert_eq!(next(&mut plan, at(1)), []);
    assert_eq!(bring_up(&mut plan, at(60_000)), [0, added]);
    // The requests restart a running child, and start a child that is down. Each of these starts fails, and no other
    // child waits.
    for now in [60_001, 60_002] {
        assert!(plan.restart(0, at(now)));
        if now == 60_001 {
            assert_eq!(next(&mut plan, at(now)), [Stop(0)]);
            plan.exited(0, Over::Ended, &Exit::Normal, at(now), || 0);
        }
        assert_eq!(next(&mut plan, at(now)), [Start(0)]);
        assert_eq!(plan.exited(0, Over::Ended, &boom(), at(now), || 0), ExitAction::Again);
        let added = plan.add(Policy { restart: Permanent, backoff: None }, true, at(now));
        assert_eq!(bring_up(&mut plan, at(now)), [added]);
        assert!(plan.is_settled());
        assert_eq!(plan.next_time(), Some(at(now + 60_000)));
        assert_eq!(plan.stop(0), Some(ExitAction::Down));
    }
}

#[test]
fn the_backoff_grows_and_is_reset_after_a_stable_instance() {
    let backoff = Backoff::new(MS(10), MS(40)).jitter(false).reset_after(MS(100));
    let mut plan = Plan::new(Strategy::OneForOne, Intensity::new(100, MS(1)));
    plan.add(Policy { restart: Permanent, backoff: Some(backoff) }, false, at(0));
    bring_up(&mut plan, at(0));
    let mut now = 0;
    for (uptime, wait) in [(1, 10), (1, 20), (1, 40), (99, 40), (100, 10), (1, 20)] {
        now += uptime;
        plan.exited(0, Over::Ended, &boom(), at(now), || 0);
        assert_eq!(plan.next_time(), Some(at(now + wait)));
        assert_eq!(next(&mut plan, at(now + wait - 1)), []);
        now += wait;
        assert_eq!(bring_up(&mut plan, at(now)), [0]);
    }
}

#[test]
fn a_group_waits_for_the_backoff_of_the_failed_child() {
    let backoff = Backoff::new(MS(10), MS(40)).jitter(false);
    let mut plan = Plan::new(Strategy::RestForOne, Intensity::new(100, MS(1)));
    for backoff in [Some(backoff), None] {
        plan.add(Policy { restart: Permanent, backoff }, false, at(0));
    }
    bring_up(&mut plan, at(0));
    plan.exited(0, Over::Ended, &boom(), at(1), || 0);
    assert_eq!((next(&mut plan, at(1)), plan.next_time()), (vec![Stop(1)], None));
    plan.exited(1, Over::Ended, &Exit::Normal, at(2), || 0);
    assert_eq!((next(&mut plan, at(2)), plan.next_time()), (vec![], Some(at(11))));
    assert_eq!(bring_up(&mut plan, at(11)), [0, 1]);

    // Children that are earlier in the order than the failed child also wait.
    let mut plan = Plan::new(Strategy::OneForAll, Intensity::new(100, MS(1)));
    for backoff in [None, Some(backoff)] {
        plan.add(Policy { restart: Permanent, backoff }, false, at(0));
    }
    bring_up(&mut plan, at(0));
    plan.exited(1, Over::Ended, &boom(), at(1), || 0);
    assert_eq!(next(&mut plan, at(1)), [Stop(0)]);
    plan.exited(0, Over::Ended, &Exit::Normal, at(2), || 0);
    assert_eq!((next(&mut plan, at(2)), plan.next_time()), (vec![], Some(at(11))));
    assert_eq!(bring_up(&mut plan, at(11)), [0, 1]);
}

#[test]
fn a_shutdown_during_the_start_stops_children_in_reverse_order() {
    let mut plan = plan(Strategy::OneForAll, &[Permanent; 3]);
    assert_eq!(next(&mut plan, at(0)), [Start(0)]);
    plan.started(0, at(0));
    assert_eq!(next(&mut plan, at(0)), [Start(1)]);
    assert!(!plan.is_ending());
    plan.shut_down();
    assert!(plan.is_ending());
    assert_eq!(next(&mut plan, at(0)), [Stop(1)]);
    // The child reports its start after the shutdown has begun.
    plan.started(1, at(0));
    assert_eq!(next(&mut plan, at(0)), []);
    plan.exited(1, Over::Ended, &boom(), at(0), || 0);
    assert_eq!(next(&mut plan, at(0)), [Stop(0)]);
    assert!(plan.ended().is_none());
    plan.exited(0, Over::Ended, &Exit::Normal, at(0), || 0);
    assert!(matches!(plan.ended(), Some(End::Asked)));
}

/// Children exit at random times, one after another. A simple model predicts the order and the times of the stops and
/// starts. The model also predicts the exit that exceeds the intensity.
#[test]
fn random_exits_match_the_model() {
    for seed in 0..3_000 {
        let mut rng = Rng::seeded(seed);
        let strategy = [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne][rng.below(3)];
        let (most, within) = (rng.below(5), 1 + rng.below(60) as u64);
        let mut plan = Plan::new(strategy, Intensity::new(most as u32, MS(within)));
        let kinds: Vec<_> = (0..=rng.below(6))
            .map(|_| ([Permanent, Permanent, Transient, Temporary][rng.below(4)], [0, 0, 10, 25][rng.below(4)]))
            .collect();
        for &(restart, wait) in &kinds {
            let backoff = (wait > 0).then(|| Backoff::new(MS(wait), MS(wait)).jitter(false));
            plan.add(Policy { restart, backoff }, false, at(0));
        }
        let all = 0..kinds.len() as Id;
        assert_eq!(bring_up(&mut plan, at(0)), all.clone().collect::<Vec<_>>());
        let mut up: BTreeSet<Id> = all.collect();
        let (mut now, mut restarts) = (0, Vec::new());
        while !up.is_empty() && restarts.len() < 40 {
            now += rng.below(15) as u64;
            let victim = *up.iter().nth(rng.below(up.len())).expect("it is below");
            up.remove(&victim);
            let exit = [boom(), Exit::Killed, Exit::Normal, Exit::Cancelled("asked".into())][rng.below(4)].clone();
            let action = plan.exited(victim, Over::Ended, &exit, at(now), || 0);
            let (restart, wait) = kinds[victim as usize];
            let is_failure = matches!(exit, Exit::Panicked(_) | Exit::Killed);
            if restart == Temporary || restart == Transient && !is_failure {
                assert_eq!(
                    action,
                    if restart == Temporary { ExitAction::Forgotten } else { ExitAction::Finished },
                    "seed {seed}"
                );
                assert_eq!((next(&mut plan, at(now)), plan.next_time()), (vec![], None), "seed {seed}");
                continue;
            }
            let gives_up = restarts.iter().filter(|&&before| now - before < within).count() >= most;
            restarts.push(now);
            let first = match strategy {
                _ if gives_up => 0,
                Strategy::OneForOne => Id::MAX,
                Strategy::OneForAll => 0,
                Strategy::RestForOne => victim,
            };
            let stopped: Vec<Id> = up.range(first..).copied().collect();
            for &other in stopped.iter().rev() {
                assert_eq!(next(&mut plan, at(now)), [Stop(other)], "seed {seed}");
                assert!(plan.ended().is_none());
                now += rng.below(2) as u64;
                plan.exited(other, Over::Ended, &Exit::Killed, at(now), || 0);
            }
            if gives_up {
                let Some(End::GaveUp(who, _)) = plan.ended() else { panic!("seed {seed}: {plan:?}") };
                assert_eq!((*who, next(&mut plan, at(now)), plan.next_time()), (victim, vec![], None));
                break;
            }
            up.retain(|id| !stopped.contains(id));
            let until = restarts[restarts.len() - 1] + wait;
            if now < until {
                assert_eq!((next(&mut plan, at(until - 1)), plan.next_time()), (vec![], Some(at(until))));
                now = until;
            }
            let comes_back = |id: &Id| kinds[*id as usize].0 != Temporary;
            let back: BTreeSet<Id> = stopped.into_iter().filter(comes_back).chain([victim]).collect();
            assert_eq!(bring_up(&mut plan, at(now)), back.iter().copied().collect::<Vec<_>>(), "seed {seed}");
            up.extend(back);
        }
    }
}

/// Runs random events in random order. The test checks that no child has two instances at the same time, that children
/// are stopped from the last to the first, and that the plan terminates.
#[test]
fn a_child_never_has_two_instances() {
    for seed in 0..2_000 {
        let mut rng = Rng::seeded(seed);
        let strategy = [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne][rng.below(3)];
        let mut plan = Plan::new(strategy, Intensity::new(20, MS(50)));
        let mut alive: Vec<(Id, bool)> = Vec::new();
        let mut now = 0;
        for _ in 0..200 {
            now += rng.below(5) as u64;
            match rng.below(10) {
                0 if plan.end.is_none() => {
                    let restart = [Permanent, Transient, Temporary][rng.below(3)];
                    let backoff = (rng.below(2) == 0).then_some(Backoff::new(MS(1), MS(10)));
                    plan.add(Policy { restart, backoff }, rng.below(2) == 0, at(now));
                }
                1 => drop(plan.remove(rng.below(10) as Id)),
                2 => drop(plan.restart(rng.below(10) as Id, at(now))),
                3 => drop(plan.stop(rng.below(10) as Id)),
                4..=6 if !alive.is_empty() => {
                    let (id, _) = alive.swap_remove(rng.below(alive.len()));
                    let exit = [boom(), Exit::Normal, Exit::Killed][rng.below(3)].clone();
                    plan.exited(id, Over::Ended, &exit, at(now), || rng.next());
                }
                _ if !alive.is_empty() => {
                    let which = rng.below(alive.len());
                    plan.started(alive[which].0, at(now));
                }
                _ => {}
            }
            if rng.below(500) == 0 {
                plan.shut_down();
            }
            for action in next(&mut plan, at(now)) {
                match action {
                    Start(id) => {
                        assert!(!alive.iter().any(|&(other, _)| other == id), "two instances of {id}, seed {seed}");
                        alive.push((id, false));
                    }
                    Stop(id) => {
                        // A supervisor that exits stops one child at a time, whatever its strategy is.
                        let stops_one = plan.is_ending().then(|| alive.iter().all(|&(_, stopping)| !stopping));
                        assert_ne!(stops_one, Some(false), "seed {seed}");
                        let child = alive.iter_mut().find(|(other, _)| *other == id).expect("it lives");
                        assert!(!std::mem::replace(&mut child.1, true), "stopped twice, seed {seed}");
                    }
                }
            }
            let stopping = alive.iter().filter(|(_, stopping)| *stopping).count();
            assert!(stopping <= 1 || strategy == Strategy::OneForOne, "seed {seed}");
        }
        plan.shut_down();
        for _ in 0..1_000 {
            let stopping = alive.iter().any(|&(_, stopping)| stopping);
            for action in next(&mut plan, at(now)) {
                let Stop(id) = action else { panic!("{action:?} after the end, seed {seed}") };
                assert!(!stopping, "seed {seed}");
                alive.iter_mut().find(|(other, _)| *other == id).expect("it lives").1 = true;
            }
            assert!(alive.iter().filter(|(_, stopping)| *stopping).count() <= 1 || stopping, "seed {seed}");
            match alive.iter().max().copied() {
                Some(last) => {
                    alive.retain(|&other| other != last);
                    plan.exited(last.0, Over::Ended, &Exit::Normal, at(now), || 0);
                }
                None => break,
            }
        }
        assert!(plan.ended().is_some(), "seed {seed}");
    }
}

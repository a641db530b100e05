//! Requests of the user: children are added, stopped, restarted and removed while the supervisor runs.

use super::*;

#[test]
fn children_can_be_added_and_stopped_and_restarted_and_removed() {
    let mut plan = plan(Strategy::OneForOne, &[Permanent; 2]);
    bring_up(&mut plan, at(0));
    let third = plan.add(Policy { restart: Permanent, backoff: None }, false, at(1));
    assert_eq!(bring_up(&mut plan, at(1)), [third]);
    assert_eq!(plan.stop(0), None);
    assert_eq!(next(&mut plan, at(2)), [Stop(0)]);
    plan.exited(0, Over::Ended, &Exit::Killed, at(2), || 0);
    assert_eq!(plan.remove(0), Some(ExitAction::Forgotten));
    assert_eq!(plan.remove(1), None);
    assert_eq!(next(&mut plan, at(3)), [Stop(1)]);
    assert_eq!(plan.exited(1, Over::Ended, &Exit::Normal, at(3), || 0), ExitAction::Forgotten);
    assert!(plan.restart(third, at(4)));
    assert_eq!(next(&mut plan, at(4)), [Stop(third)]);
    plan.exited(third, Over::Ended, &Exit::Normal, at(4), || 0);
    assert_eq!(next(&mut plan, at(4)), [Start(third)]);
    assert!(!plan.restart(1, at(5)));
    assert_eq!((plan.stop(0), plan.remove(77)), (Some(ExitAction::Forgotten), Some(ExitAction::Forgotten)));
}

/// In a one-for-one supervisor, a requested stop of a child delays no other child. In two cases,
/// the children are stopped one at a time: the supervisor has another strategy, or the supervisor exits.
#[test]
fn a_requested_stop_delays_other_children_only_in_a_group() {
    for strategy in [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne] {
        let is_independent = strategy == Strategy::OneForOne;
        let mut plan = plan(strategy, &[Permanent; 5]);
        // The stop of the first child begins during the start of this child.
        assert_eq!(next(&mut plan, at(0)), [Start(0)]);
        assert_eq!(plan.stop(0), None);
        assert_eq!(next(&mut plan, at(0))[0], Stop(0));
        assert_eq!(plan.phase(1) == Some(ChildPhase::Starting), is_independent);
        assert_eq!(plan.exited(0, Over::Ended, &Exit::Killed, at(0), || 0), ExitAction::Down);
        assert!(plan.restart(0, at(0)));
        plan.started(1, at(0));
        bring_up(&mut plan, at(0));
        assert!(plan.is_settled());
        // The stop of two running children begins.
        assert_eq!((plan.stop(4), next(&mut plan, at(1))), (None, vec![Stop(4)]));
        assert_eq!(plan.stop(3), None);
        assert_eq!(next(&mut plan, at(1)), if is_independent { vec![Stop(3)] } else { vec![] });
        if is_independent {
            plan.exited(1, Over::Ended, &boom(), at(1), || 0);
            assert_eq!(plan.next_time(), Some(at(1)));
            assert_eq!(bring_up(&mut plan, at(1)), [1]);
        }
        plan.shut_down();
        assert_eq!((next(&mut plan, at(2)), plan.next_time()), (vec![], None));
        for id in [4, 3, 2, 1, 0] {
            if id < 3 || id == 3 && !is_independent {
                assert_eq!(next(&mut plan, at(2)), [Stop(id)]);
            }
            assert_eq!(next(&mut plan, at(2)), []);
            plan.exited(id, Over::Ended, &Exit::Killed, at(2), || 0);
        }
        assert!(matches!(plan.ended(), Some(End::Asked)));
    }
}

/// Each child is started when the previous child has started. A requested restart of a starting child does not change
/// this order. A requested stop removes the child from the order, even if the child is already stopping because of a
/// restart.
#[test]
fn a_restart_that_is_requested_during_a_start_keeps_the_start_order() {
    let mut plan = plan(Strategy::OneForOne, &[Permanent; 3]);
    assert_eq!(next(&mut plan, at(0)), [Start(0)]);
    assert!(plan.restart(0, at(0)));
    assert_eq!((next(&mut plan, at(0)), plan.next_time()), (vec![Stop(0)], None));
    assert_eq!(plan.exited(0, Over::Ended, &Exit::Killed, at(1), || 0), ExitAction::Again);
    assert_eq!(next(&mut plan, at(1)), [Start(0)]);
    plan.started(0, at(1));
    assert_eq!(next(&mut plan, at(1)), [Start(1)]);
    // A stop of the second child is requested while this child is already stopping for a restart.
    assert!(plan.restart(1, at(2)));
    assert_eq!(next(&mut plan, at(2)), [Stop(1)]);
    assert_eq!((plan.stop(1), plan.next_time()), (None, Some(at(0))));
    assert_eq!(next(&mut plan, at(2)), [Start(2)]);
    // The stop of the last child begins during the start of this child. The start of the supervisor does not wait for
    // the exits.
    assert!(!plan.is_settled());
    assert_eq!((plan.stop(2), next(&mut plan, at(3)), plan.is_settled()), (None, vec![Stop(2)], true));
    // If a restart is requested while the child is stopping, the child is started after its exit. The child has lost
    // its position in the start order, so its back-off delays no other child.
    assert!(plan.restart(2, at(4)));
    assert_eq!(next(&mut plan, at(4)), []);
    assert_eq!(plan.exited(2, Over::Ended, &Exit::Killed, at(4), || 0), ExitAction::Again);
    assert_eq!((next(&mut plan, at(4)), plan.is_settled()), (vec![Start(2)], false));
    assert_eq!(plan.exited(2, Over::Unmade, &boom(), at(5), || 0), ExitAction::Again);
    assert_eq!((plan.is_settled(), plan.next_time()), (true, Some(at(6))));
    assert_eq!(plan.exited(1, Over::Ended, &Exit::Killed, at(6), || 0), ExitAction::Down);
}

/// A child of a started one-for-one supervisor was stopped during its first start. If a later requested start of this
/// child is refused, the child stays down, and the supervisor continues.
#[test]
fn the_supervisor_continues_if_a_requested_start_of_an_initial_child_is_refused() {
    let mut plan = plan(Strategy::OneForOne, &[Permanent; 2]);
    assert_eq!(next(&mut plan, at(0)), [Start(0)]);
    assert_eq!((plan.stop(0), next(&mut plan, at(0))), (None, vec![Stop(0), Start(1)]));
    plan.started(1, at(0));
    assert!(plan.is_settled() && plan.restart(0, at(1)));
    assert_eq!(plan.exited(0, Over::Ended, &Exit::Killed, at(1), || 0), ExitAction::Again);
    assert_eq!(next(&mut plan, at(1)), [Start(0)]);
    assert_eq!(plan.exited(0, Over::Refused, &boom(), at(1), || 0), ExitAction::Down);
    assert_eq!((next(&mut plan, at(2)), plan.ended().is_none()), (vec![], true));
}

/// A caller requests a second restart of a child while the child starts. The stop of this child takes a long time. A
/// requested restart of a later child does not wait for this stop.
#[test]
fn a_second_request_to_restart_a_child_delays_no_other_child() {
    let mut plan = plan(Strategy::OneForOne, &[Permanent; 2]);
    bring_up(&mut plan, at(0));
    assert!(plan.restart(0, at(1)));
    assert_eq!(next(&mut plan, at(1)), [Stop(0)]);
    assert_eq!(plan.exited(0, Over::Ended, &Exit::Killed, at(1), || 0), ExitAction::Again);
    assert_eq!(next(&mut plan, at(1)), [Start(0)]);
    assert!(plan.restart(0, at(2)));
    assert_eq!(next(&mut plan, at(2)), [Stop(0)]);
    assert!(plan.restart(1, at(2)));
    assert_eq!(next(&mut plan, at(2)), [Stop(1)]);
    assert_eq!(plan.exited(1, Over::Ended, &Exit::Killed, at(2), || 0), ExitAction::Again);
    assert_eq!(next(&mut plan, at(2)), [Start(1)]);
}

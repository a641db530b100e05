//! Tests of a task that needs another turn after its turn.

use crate::scheduler::tests::*;

/// Pushes a task to an empty worker, and then runs another task that needs two turns. `rank` is the priority of the
/// second turn. If `is_handed_over` is true, the first turn is a long step that is handed over. Returns the turns in
/// their order, and whether the global queue and the queues of the priorities contain a task after the first turn.
fn turns_of_two_tasks(order: QueueOrder, rank: Option<Rank>, is_handed_over: bool) -> (Vec<&'static str>, [bool; 2]) {
    let options = Options { order, substitutes: 0, ..options(0) };
    let scheduler = Scheduler::<Job>::new(options, Moved::default(), Arc::new(Metrics::new(SLOTS))).unwrap();
    let worker = scheduler.occupy(true).unwrap();
    let turns = Arc::new(Mutex::new(Vec::new()));
    let turn = |name| {
        let turns = Arc::clone(&turns);
        move || turns.lock().push(name)
    };
    let (first, second) = (turn("first"), turn("second"));
    let (of_step, slot) = (Arc::clone(&scheduler), worker.slot());
    let _wakes = worker.push(job(turn("other")), Placement::Behind);
    worker.run(Job(Box::new(move || {
        first();
        assert!(!is_handed_over || of_step.hand_over(slot, None));
        Some((job(second), rank))
    })));
    let shared = [scheduler.global.len() != 0, !scheduler.priorities.is_empty()];
    worker.end_any_hand_over();
    while let Some(task) = worker.find(1) {
        worker.run(task);
    }
    let turns = turns.lock().clone();
    (turns, shared)
}

/// 4.2e, 4.10a: a task that needs another turn is added to the back of the local queue. With LIFO order, and
/// after a step that was handed over, the task is added to the global queue instead. A task with high or low priority
/// is added to the queue of this priority.
#[test]
fn the_place_of_a_task_after_its_turn() {
    use QueueOrder::{Fifo, Lifo};
    let (behind, before) = (vec!["first", "other", "second"], vec!["first", "second", "other"]);
    let (local, global, ranked) = ([false, false], [true, false], [false, true]);
    for (order, is_handed_over, place) in
        [(Fifo, false, local), (Lifo, false, global), (Fifo, true, global), (Lifo, true, global)]
    {
        assert_eq!(turns_of_two_tasks(order, None, is_handed_over), (behind.clone(), place), "{order:?}");
        for (rank, turns) in [(Rank::High, &before), (Rank::Low, &behind)] {
            let seen = turns_of_two_tasks(order, Some(rank), is_handed_over);
            assert_eq!(seen, (turns.clone(), ranked), "{order:?} {rank:?} {is_handed_over}");
        }
    }
}

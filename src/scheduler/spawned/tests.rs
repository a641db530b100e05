//! Tests of the order in which the owner takes tasks from the queue of new tasks.

use crate::scheduler::spawned::*;

/// Alternately pushes a new task and pops a task, until `item` is popped. Returns the number of pops before the pop of
/// `item`. The queue always contains a task that is newer than `item`.
fn comes_after(new_tasks: &NewTasks<u32>, item: u32) -> u32 {
    (0..)
        .find(|_| {
            assert!(new_tasks.push(u32::MAX).is_ok());
            new_tasks.pop() == Some(item)
        })
        .expect("it comes")
}

/// 4.2a: the newest new task is first, but the oldest task does not starve.
#[test]
fn the_newest_task_is_taken_first_and_each_1024th_pop_takes_the_oldest_task() {
    let (new_tasks, _remote) = NewTasks::new();
    for n in 0..3 {
        assert_eq!(new_tasks.push(n), Ok(n as usize + 1));
    }
    assert_eq!(new_tasks.pop(), Some(2));
    // At first `0` is the oldest task. After the pop of `0`, the oldest task is `1`.
    assert_eq!(comes_after(&new_tasks, 0), OLDEST_EVERY - 2);
    assert_eq!(comes_after(&new_tasks, 1), OLDEST_EVERY - 1);
}

/// After the queue was full, the owner takes the oldest tasks until half of the queue is empty.
#[test]
fn a_full_queue_returns_the_oldest_tasks_first_until_it_is_half_empty() {
    let (new_tasks, _remote) = NewTasks::new();
    for n in 0..ROOM {
        assert_eq!(new_tasks.push(n), Ok(n + 1));
    }
    assert_eq!(new_tasks.push(ROOM), Err(ROOM));
    for n in 0..ROOM / 2 {
        assert_eq!(new_tasks.pop(), Some(n));
    }
    assert_eq!(new_tasks.pop(), Some(ROOM / 2));
    assert_eq!(new_tasks.pop(), Some(ROOM - 1));
}

#[test]
fn the_queue_is_idle_after_a_failed_pop_until_the_next_push() {
    let (new_tasks, remote) = NewTasks::new();
    assert!(new_tasks.is_idle());
    assert_eq!((new_tasks.push(1), new_tasks.push(2)), (Ok(1), Ok(2)));
    assert_eq!(new_tasks.pop(), Some(2));
    assert!(matches!(remote.steal(), Steal::Success(1)));
    assert!(!new_tasks.is_idle() && remote.is_empty());
    assert_eq!(new_tasks.pop(), None);
    assert!(new_tasks.is_idle());
}

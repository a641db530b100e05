//! Who of those without a turn is next.

use crate::scheduler::spawned::*;

/// Pushes and pops by turns, so that there is always a newer one; returns when `item` came.
fn comes_after(new_tasks: &NewTasks<u32>, item: u32) -> u32 {
    (0..)
        .find(|_| {
            assert!(new_tasks.push(u32::MAX).is_ok());
            new_tasks.pop() == Some(item)
        })
        .expect("it comes")
}

/// 4.2: of those that have had no turn the newest is first; the oldest is not starved.
#[test]
fn the_newest_is_first_and_every_so_many_the_oldest() {
    let (new_tasks, _remote) = NewTasks::new();
    for n in 0..3 {
        assert_eq!(new_tasks.push(n), Ok(n as usize + 1));
    }
    assert_eq!(new_tasks.pop(), Some(2));
    // Each that waits longer is worth one of the oldest's turns.
    assert_eq!(comes_after(&new_tasks, 0), OLDEST_EVERY - 2);
    assert_eq!(comes_after(&new_tasks, 1), OLDEST_EVERY - 1);
}

/// Spawning is faster than running: then who waits longest is first, until half of them are gone.
#[test]
fn without_room_the_oldest_is_first_until_half_are_gone() {
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
fn it_is_idle_when_none_was_found_and_none_has_come() {
    let (new_tasks, remote) = NewTasks::new();
    assert!(new_tasks.is_idle());
    assert_eq!((new_tasks.push(1), new_tasks.push(2)), (Ok(1), Ok(2)));
    assert_eq!(new_tasks.pop(), Some(2));
    assert!(matches!(remote.steal(), Steal::Success(1)));
    assert!(!new_tasks.is_idle() && remote.is_empty());
    assert_eq!(new_tasks.pop(), None);
    assert!(new_tasks.is_idle());
}

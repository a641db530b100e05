//! Tests of the local queues in both orders. No task is lost or taken twice, and the owner and the thieves take the
//! tasks in the right order.

use crate::platform::sync::atomic::AtomicUsize;
use crate::scheduler::queue::*;

/// 4.2a, 4.2c: the task in the `next` slot runs before the tasks in the deque, and a displaced task moves to the back
/// of the deque.
#[test]
fn the_task_in_the_next_slot_runs_before_the_deque_and_a_displaced_task_goes_to_the_back() {
    let (queues, _remote) = Queues::new(QueueOrder::Fifo);
    assert!(matches!(queues.push_back(1), Pushed::ToDeque(_)));
    assert_eq!(queues.push_next(2), Pushed::ToSlot);
    assert!(matches!(queues.push_next(3), Pushed::ToDeque(_)));
    assert_eq!(all(&queues), [3, 1, 2]);
}

fn take<T>(global: &Injector<T>, workers: usize, into: &Queues<T>) -> Option<T> {
    global.take(workers, |_, _| {}, |more| into.refill(more))
}

fn all<T>(queues: &Queues<T>) -> Vec<T> {
    std::iter::from_fn(|| queues.next()).collect()
}

/// 4.2d: at most 16 tasks from the `next` slot run in a row, and then another task runs. If the task in the `next` slot
/// is the only task, this task continues to run.
#[test]
fn tasks_in_the_next_slot_share_one_budget() {
    let (queues, _remote) = Queues::new(QueueOrder::Fifo);
    let _ = queues.push_back("other");
    let _ = queues.push_next("woken");
    for _ in 0..2 {
        for _ in 0..BUDGET {
            assert_eq!(queues.next(), Some("woken"));
            let _ = queues.push_next("woken");
        }
        assert_eq!(queues.next(), Some("other"));
        assert_eq!(queues.next(), Some("woken"));
        // The woken task was moved from the `next` slot to the deque.
        let _ = queues.push_back("other");
        let _ = queues.push_next("woken");
        queues.budget.set(BUDGET);
    }
    let (queues, _remote) = Queues::new(QueueOrder::Fifo);
    for _ in 0..100 {
        assert_eq!(queues.push_next("alone"), Pushed::ToSlot);
        assert_eq!(queues.next(), Some("alone"));
    }
}

/// 4.2a, 4.2d: new tasks run before all other tasks, the newest first, until the budget is spent.
#[test]
fn new_tasks_run_first_until_the_budget_is_spent() {
    let (queues, _remote) = Queues::new(QueueOrder::Fifo);
    for n in 0..4 {
        let _ = queues.push_back(n);
    }
    for n in 100..175 {
        let _ = queues.push_new(n);
    }
    // When the budget is spent, the first task of the deque runs. Every fourth time that the budget is spent, a new
    // task runs instead.
    let new: Vec<_> = (100..175).rev().collect();
    let expected = [&new[..16], &[0], &new[16..32], &[1], &new[32..48], &[2], &new[48..], &[3]].concat();
    assert_eq!(all(&queues), expected);
    // If a woken task is displaced from the `next` slot, this task does not move to the queue of new tasks. With LIFO
    // order, no task enters the queue of new tasks.
    for n in 0..3 {
        let _ = queues.push_next(n);
    }
    assert!(queues.new_tasks.is_empty());
    let (queues, _remote) = Queues::new(QueueOrder::Lifo);
    for n in 0..3 {
        let _ = queues.push_new(n);
    }
    assert!(queues.new_tasks.is_empty());
}

/// In a chain, each task spawns the next task of the chain. After 16 tasks of one chain, the next task of this chain
/// moves to the back. Therefore both chains make progress.
#[test]
fn a_chain_of_spawns_is_interrupted_when_the_budget_is_spent() {
    let (queues, _remote) = Queues::new(QueueOrder::Fifo);
    let _ = queues.push_new('a');
    let _ = queues.push_new('b');
    let mut turns = [0, 0];
    for _ in 0..1000 {
        let link = queues.next().expect("both go on for ever");
        turns[usize::from(link == 'b')] += 1;
        let _ = queues.push_new(link);
    }
    assert!(turns.iter().all(|&turns| turns > 400), "{turns:?}");
}

#[test]
fn an_overflow_keeps_all_tasks_in_order() {
    let (queues, _remote) = Queues::new(QueueOrder::Fifo);
    let global = Injector::new();
    let count = LOCAL_FULL + 744;
    for n in 0..count {
        if queues.push_back(n) == Pushed::BatchFull {
            queues.overflow(&global);
        }
    }
    assert_eq!(global.len(), (count - LOCAL_FULL) / BATCH * BATCH);
    let mut local: Vec<_> = std::iter::from_fn(|| queues.pop()).collect();
    let shared = global.drain();
    let split = local.split_off(LOCAL_FULL);
    let all: Vec<_> = local.into_iter().chain(shared).chain(split).collect();
    assert_eq!(all, (0..count).collect::<Vec<_>>());
}

/// 4.2e: a yielded task stays in the deque even if the deque is full.
#[test]
fn a_yielded_task_stays_in_the_deque_even_if_the_deque_is_full() {
    let (queues, _remote) = Queues::new(QueueOrder::Fifo);
    for n in 0..LOCAL_FULL {
        assert!(matches!(queues.push_back(n), Pushed::ToDeque(_)));
    }
    assert!(matches!(queues.push_again(LOCAL_FULL), Pushed::ToDeque(_)));
    assert!(queues.batch.is_empty());
    assert_eq!(queues.deque.len(), LOCAL_FULL + 1);
    // While the batch is not empty, the task is added to the batch, like every other pushed task.
    let _ = queues.push_back(LOCAL_FULL + 1);
    let _ = queues.push_again(LOCAL_FULL + 2);
    assert_eq!(queues.batch.len(), 2);
}

#[test]
fn no_task_overtakes_a_waiting_batch() {
    let (queues, _remote) = Queues::new(QueueOrder::Fifo);
    let count = LOCAL_FULL + 44;
    for n in 0..count {
        let _ = queues.push_back(n);
    }
    for n in 0..60 {
        assert_eq!(queues.next(), Some(n));
        let _ = queues.push_back(n + count);
    }
    assert_eq!((queues.deque.len(), queues.batch.len()), (LOCAL_FULL - 60, 104));
    assert_eq!(all(&queues), (60..count + 60).collect::<Vec<_>>());
}

/// 4.2a: a worker takes its share of the global queue.
#[test]
fn a_worker_takes_its_share_of_the_global_queue() {
    let global = Injector::new();
    let (queues, _remote) = Queues::new(QueueOrder::Fifo);
    for n in 0..100 {
        global.push(n).unwrap();
    }
    assert_eq!(take(&global, 10, &queues), Some(0));
    assert_eq!((queues.deque.len(), global.len()), (11, 88));
    assert_eq!(take(&global, 1, &queues), Some(12));
    assert_eq!((queues.deque.len(), global.len()), (27, 71));
    global.close();
    assert_eq!(global.push(7), Err(7));
}

/// 4.2a, 4.3a: a thief takes half of the deque, rounded up. A separate steal takes the task in the `next` slot.
#[test]
fn one_steal_takes_half_of_the_deque_and_another_steal_takes_the_next_slot() {
    let (queues, remote) = Queues::new(QueueOrder::Fifo);
    let (thief, _) = Queues::new(QueueOrder::Fifo);
    for n in 0..35 {
        let _ = queues.push_back(n);
    }
    let _ = queues.push_next(1000);
    assert_eq!(remote.len(), 36);
    assert!(matches!(remote.steal_half(&thief), Steal::Success(0)));
    assert_eq!((thief.deque.len(), queues.deque.len()), (17, 17));
    assert!(matches!(remote.steal_slot(), Steal::Success(1000)));
    assert!(matches!(remote.steal_slot(), Steal::Empty));
    assert_eq!(queues.slot.pop(), None);
    // One steal takes at most `STEAL_MOST` tasks, because the thief must copy all tasks before the owner takes the next
    // task.
    for n in 35..135 {
        let _ = queues.push_back(n);
    }
    assert!(matches!(remote.steal_half(&thief), Steal::Success(18)));
    assert_eq!((thief.deque.len(), queues.deque.len()), (17 + STEAL_MOST - 1, 117 - STEAL_MOST));
}

/// 4.6a: a busy worker takes only one task from the deque of a worker in a long step.
#[test]
fn a_thief_can_take_one_task_of_the_deque() {
    let (queues, remote) = Queues::new(QueueOrder::Fifo);
    let (thief, _) = Queues::new(QueueOrder::Fifo);
    for n in 0..9 {
        let _ = queues.push_back(n);
    }
    let _ = queues.push_next(1000);
    let steal = |one| (remote.steal_any(one, &thief).success(), thief.deque.len());
    assert_eq!([steal(true), steal(true), steal(true)], [(Some(1000), 0), (Some(0), 0), (Some(1), 0)]);
    assert_eq!(steal(false), (Some(2), 3));
}

/// A thief takes the oldest new task, because most of the remaining work is in the subtree of this task.
#[test]
fn a_thief_takes_the_oldest_new_task() {
    let (queues, remote) = Queues::new(QueueOrder::Fifo);
    let (thief, _) = Queues::new(QueueOrder::Fifo);
    for n in 0..4 {
        let _ = queues.push_new(n);
    }
    let _ = queues.push_back(9);
    assert_eq!(remote.len(), 5);
    assert!(matches!(remote.steal_half(&thief), Steal::Success(9)));
    assert!(matches!(remote.steal_half(&thief), Steal::Success(0)));
    assert!(matches!(remote.steal_half(&thief), Steal::Success(1)));
    assert!(thief.is_empty());
    assert_eq!(all(&queues), [3, 2]);
    assert!(remote.is_empty());
}

#[test]
fn a_thief_also_steals_from_the_batch() {
    let (queues, remote) = Queues::new(QueueOrder::Fifo);
    let (thief, _) = Queues::new(QueueOrder::Fifo);
    for n in 0..LOCAL_FULL + 3 {
        let _ = queues.push_back(n);
    }
    assert_eq!(remote.len(), LOCAL_FULL + 3);
    while !queues.deque.is_empty() {
        let _ = remote.steal_half(&thief);
    }
    while thief.deque.pop().is_some() {}
    assert!(matches!(remote.steal_half(&thief), Steal::Success(LOCAL_FULL)));
    assert_eq!((thief.deque.len(), remote.is_empty(), queues.is_empty()), (2, true, true));
}

const ORDERS: [QueueOrder; 2] = [QueueOrder::Fifo, QueueOrder::Lifo];

/// 4.3b: the owner takes the newest task, and every thief takes the oldest task.
#[test]
fn with_lifo_order_only_the_owner_takes_the_newest_task() {
    let (queues, remote) = Queues::new(QueueOrder::Lifo);
    let (thief, _) = Queues::new(QueueOrder::Lifo);
    for n in 0..8 {
        assert!(matches!(queues.push_back(n), Pushed::ToDeque(_)));
    }
    assert_eq!((queues.pop(), queues.pop()), (Some(7), Some(6)));
    assert_eq!(queues.pop_oldest(), Some(0));
    // The thief takes tasks from the older half, and runs the newest stolen task first.
    assert!(matches!(remote.steal_half(&thief), Steal::Success(3)));
    assert_eq!(std::iter::from_fn(|| thief.pop()).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(queues.push_next(8), Pushed::ToSlot);
    assert!(matches!(queues.push_next(9), Pushed::ToDeque(_)));
    assert_eq!((queues.next(), queues.next(), queues.next()), (Some(9), Some(8), Some(5)));
    assert_eq!((queues.pop_oldest(), queues.pop_oldest()), (Some(4), None));
}

#[test]
fn tasks_from_other_queues_keep_their_order() {
    for order in ORDERS {
        let (queues, remote) = Queues::new(order);
        let (thief, _) = Queues::new(order);
        let global = Injector::new();
        for n in 0..17 {
            global.push(n).unwrap();
        }
        assert_eq!(take(&global, 1, &queues), Some(0));
        assert_eq!(std::iter::from_fn(|| queues.pop()).collect::<Vec<_>>(), (1..17).collect::<Vec<_>>());
        // With LIFO order, a thief takes the batch in this test. With FIFO order, the owner takes the batch.
        for _ in 0..2 {
            for n in 0..LOCAL_FULL + 20 {
                let _ = queues.push_back(n);
            }
            if order == QueueOrder::Fifo {
                let all: Vec<_> = std::iter::from_fn(|| queues.pop()).collect();
                assert_eq!(all, (0..LOCAL_FULL + 20).collect::<Vec<_>>());
                continue;
            }
            while queues.pop_oldest().is_some() {}
            assert!(matches!(remote.steal_half(&thief), Steal::Success(LOCAL_FULL)));
            let rest = LOCAL_FULL + 1..LOCAL_FULL + 20;
            assert_eq!(std::iter::from_fn(|| thief.pop()).collect::<Vec<_>>(), rest.collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_thief_can_steal_the_only_item_of_each_queue() {
    for order in ORDERS {
        let (queues, remote) = Queues::new(order);
        let (thief, _) = Queues::new(order);
        let _ = queues.push_back(1);
        assert!(matches!(remote.steal_half(&thief), Steal::Success(1)));
        let _ = queues.push_next(2);
        assert!(remote.steal_half(&thief).is_empty());
        assert!(matches!(remote.steal_slot(), Steal::Success(2)));
        queues.batch.with(|items| items.push(3));
        assert!(matches!(remote.steal_half(&thief), Steal::Success(3)));
        assert!(remote.is_empty() && queues.is_empty() && thief.is_empty());
    }
}

/// Thieves steal from other thieves. No task is lost, and no task appears twice.
#[test]
fn chained_steals_neither_lose_nor_duplicate_an_item() {
    for order in ORDERS {
        let all: Vec<_> = (0..5).map(|_| Queues::new(order)).collect();
        let (queues, remotes): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        for n in 0..200 {
            let _ = queues[0].push_back(n);
        }
        let mut out = Vec::new();
        for (from, into) in (0..4).map(|n| (n, n + 1)).chain([(0, 4), (4, 1), (1, 0), (2, 3)]) {
            match remotes[from].steal_half(&queues[into]) {
                Steal::Success(item) => out.push(item),
                Steal::Empty => {}
                Steal::Retry => unreachable!("one thread alone loses no race"),
            }
            let left: usize = remotes.iter().map(Remote::len).sum();
            assert_eq!(left + out.len(), 200);
        }
        out.extend(queues.iter().flat_map(Queues::drain));
        out.sort_unstable();
        assert_eq!(out, (0..200).collect::<Vec<_>>());
    }
}

#[test]
fn the_destructor_of_each_item_runs_exactly_once() {
    let count = Arc::new(());
    for order in ORDERS {
        let (queues, remote) = Queues::new(order);
        let (thief, kept) = Queues::new(order);
        let global = Injector::new();
        for _ in 0..LOCAL_FULL + 2 * BATCH {
            if queues.push_back(Arc::clone(&count)) == Pushed::BatchFull {
                queues.overflow(&global);
            }
        }
        let _ = queues.push_new(Arc::clone(&count));
        let _ = queues.push_new(Arc::clone(&count));
        assert_eq!(Arc::strong_count(&count), LOCAL_FULL + 2 * BATCH + 3);
        drop(remote.steal_half(&thief));
        drop(take(&global, 1, &thief));
        drop((queues, remote));
        assert_eq!(Arc::strong_count(&count), global.len() + thief.deque.len() + 1);
        drop((thief, kept, global));
        assert_eq!(Arc::strong_count(&count), 1);
    }
}

/// 4.3a, 4.3b: the owner pushes and pops tasks, and its queue overflows. At the same time, thieves steal half of a
/// deque or the task in a `next` slot, and take tasks from the global queue. Each item is taken exactly once. If
/// `PROCESSION_LONG` is set, the test uses 10 million items.
#[test]
fn thieves_lose_no_item_and_take_no_item_twice() {
    let long = std::env::var_os("PROCESSION_LONG").is_some();
    let items: usize = if long { 10_000_000 } else { 200_000 };
    for order in ORDERS {
        let taken: Vec<_> = (0..items).map(|_| Tally::new(0)).collect();
        let count = |item: usize| {
            taken[item].fetch_add(1, Ordering::Relaxed);
        };
        let (global, over) = (Injector::new(), AtomicUsize::new(0));
        let (owner, remote) = Queues::new(order);
        crate::platform::sync::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let (own, _) = Queues::new(order);
                    loop {
                        // The thread reads the flag before it checks the queues. If the flag is set, no task is added
                        // to the queues any more.
                        let is_over = over.load(Ordering::SeqCst) == 1;
                        let found = match remote.steal_half(&own) {
                            Steal::Empty => match remote.steal_slot() {
                                Steal::Success(item) => Some(item),
                                Steal::Empty => take(&global, 4, &own),
                                Steal::Retry => continue,
                            },
                            Steal::Success(item) => Some(item),
                            Steal::Retry => continue,
                        };
                        let none = found.is_none();
                        found.into_iter().chain(std::iter::from_fn(|| own.next())).for_each(count);
                        if none && is_over {
                            break;
                        }
                    }
                });
            }
            for item in 0..items {
                let pushed = match item % 7 {
                    0 => owner.push_next(item),
                    3 | 4 => owner.push_new(item),
                    _ => owner.push_back(item),
                };
                if pushed == Pushed::BatchFull {
                    owner.overflow(&global);
                }
                match item % 11 {
                    0 | 4 => owner.pop().into_iter().for_each(count),
                    3 => owner.next().into_iter().for_each(count),
                    6 => owner.new_tasks.pop().into_iter().for_each(count),
                    8 => owner.pop_oldest().into_iter().for_each(count),
                    _ => {}
                }
            }
            owner.drain().into_iter().for_each(count);
            over.store(1, Ordering::SeqCst);
        });
        let wrong = taken.iter().filter(|taken| taken.load(Ordering::Relaxed) != 1).count();
        assert_eq!(wrong, 0, "{wrong} tasks were lost or ran twice, {order:?}");
    }
}

/// Returns four sets of queues. Each set contains only one item. The string is the name of the queue that contains this
/// item.
fn with_one_in_each_place() -> [(&'static str, (Queues<u32>, Remote<u32>)); 4] {
    let slot = Queues::new(QueueOrder::Fifo);
    let _ = slot.0.push_next(7);
    let new_tasks = Queues::new(QueueOrder::Fifo);
    let _ = new_tasks.0.push_new(7);
    let _ = new_tasks.0.push_new(8);
    assert_eq!(new_tasks.0.slot.pop(), Some(8));
    let deque = Queues::new(QueueOrder::Fifo);
    let _ = deque.0.push_back(7);
    let batch = Queues::new(QueueOrder::Fifo);
    for _ in 0..LOCAL_FULL {
        let _ = batch.0.push_back(0);
    }
    assert_eq!(batch.0.push_back(7), Pushed::ToDeque(LOCAL_FULL + 1));
    while batch.0.deque.pop().is_some() {}
    [("slot", slot), ("new_tasks", new_tasks), ("deque", deque), ("batch", batch)]
}

#[test]
fn an_item_is_seen_in_every_queue() {
    for (place, (queues, remote)) in with_one_in_each_place() {
        assert!(!queues.is_empty() && !remote.is_empty(), "{place}");
        assert_eq!((queues.slot_is_empty(), remote.len()), (place != "slot", 1), "{place}");
        assert_eq!(queues.next(), Some(7), "{place}");
        assert!(queues.is_empty() && queues.slot_is_empty() && remote.is_empty(), "{place}");
        assert_eq!(remote.len(), 0, "{place}");
    }
    let (queues, remote) = Queues::new(QueueOrder::Fifo);
    let _ = queues.push_new(1);
    let _ = queues.push_next(2);
    let _ = queues.push_next(3);
    assert_eq!((remote.len(), queues.is_empty(), queues.slot_is_empty()), (3, false, false));
}

#[test]
fn a_drain_takes_the_item_from_every_queue() {
    for (place, (queues, remote)) in with_one_in_each_place() {
        let mut all = vec![1];
        remote.drain(&mut all);
        assert_eq!((all, queues.is_empty(), queues.next()), (vec![1, 7], true, None), "{place}");
    }
    for (place, (queues, remote)) in with_one_in_each_place() {
        assert_eq!((queues.drain(), remote.is_empty()), (vec![7], true), "{place}");
    }
}

#[test]
fn a_push_returns_the_number_of_waiting_tasks() {
    let (queues, remote) = Queues::new(QueueOrder::Fifo);
    assert_eq!([queues.push_back(1), queues.push_back(2)], [Pushed::ToDeque(1), Pushed::ToDeque(2)]);
    assert_eq!([queues.push_again(3), queues.push_again(4)], [Pushed::ToDeque(3), Pushed::ToDeque(4)]);
    assert_eq!(queues.push_new(5), Pushed::ToSlot);
    // Each push displaces the item in the `next` slot. The displaced item moves to the queue of new tasks.
    assert_eq!([queues.push_new(6), queues.push_new(7)], [Pushed::ToDeque(5), Pushed::ToDeque(6)]);
    assert_eq!(remote.len(), 7);
    let (queues, remote) = Queues::new(QueueOrder::Fifo);
    (0..LOCAL_FULL).for_each(|n| assert_eq!(queues.push_back(n), Pushed::ToDeque(n + 1)));
    for n in 1..BATCH {
        assert_eq!(queues.push_back(n), Pushed::ToDeque(LOCAL_FULL + n));
    }
    assert_eq!(queues.push_back(0), Pushed::BatchFull);
    assert_eq!(remote.len(), LOCAL_FULL + BATCH);
}

#[test]
fn a_kept_item_waits_behind_all_other_items() {
    let (queues, _remote) = Queues::new(QueueOrder::Fifo);
    let _ = queues.push_back(1);
    queues.keep(2);
    assert_eq!(all(&queues), [1, 2]);
}

/// Thieves may take many tasks in one steal, so the owner may never see the deque exactly half full.
#[test]
fn the_owner_takes_the_batch_after_thieves_have_emptied_the_deque() {
    let (queues, remote) = Queues::new(QueueOrder::Fifo);
    for n in 0..LOCAL_FULL + 3 {
        let _ = queues.push_back(n);
    }
    for n in 0..LOCAL_FULL - 10 {
        assert_eq!(queues.deque.pop(), Some(n));
    }
    assert_eq!((remote.batch.len(), queues.next()), (3, Some(LOCAL_FULL - 10)));
    assert_eq!((remote.batch.len(), remote.deque.len()), (0, 12));
}

/// The worker steals from the unattended slots one after the other. Otherwise a worker might steal only from a slot
/// with many tasks, and never from the other unattended slots.
#[test]
fn the_unattended_slots_take_turns() {
    let (queues, _remote) = Queues::<()>::new(QueueOrder::Fifo);
    let next = |with_tasks: &[usize]| queues.next_unattended(|slot| with_tasks.contains(slot));
    assert_eq!(next(&[]), None);
    let last = SLOTS - 1;
    assert_eq!([(); 5].map(|()| next(&[0, 2, last])), [2, last, 0, 2, last].map(Some));
    assert_eq!([next(&[1]), next(&[1]), next(&[0, 1])], [1, 1, 0].map(Some));
}

/// The seed of a worker's random numbers contains the count of the attempts to find a task.
#[test]
fn every_attempt_to_find_a_task_is_counted() {
    let (queues, _remote) = Queues::<()>::new(QueueOrder::Fifo);
    assert_eq!(queues.looks(), 0);
    for n in 1..4 {
        assert_eq!((queues.count_look(), queues.looks()), (n, n));
    }
}

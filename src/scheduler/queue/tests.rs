//! What every order of the local queues promises: nothing lost, nothing doubled, each in its turn, whoever takes it.

use super::*;

#[test]
fn the_slot_runs_before_the_deque_and_what_it_held_goes_to_the_back() {
    let (queues, _remote) = Queues::new(LocalOrder::Fifo);
    assert!(matches!(queues.push_back(1), Pushed::ToDeque(_)));
    assert_eq!(queues.push_next(2), Pushed::ToSlot);
    assert!(matches!(queues.push_next(3), Pushed::ToDeque(_)));
    assert_eq!(queues.pop_slot(), Some(3));
    assert_eq!((queues.pop(), queues.pop(), queues.pop()), (Some(1), Some(2), None));
}

#[test]
fn an_overflow_keeps_everything_in_order() {
    let (queues, _remote) = Queues::new(LocalOrder::Fifo);
    let global = Global::new();
    for n in 0..1000 {
        if queues.push_back(n) == Pushed::BatchFull {
            queues.overflow(&global);
        }
    }
    assert_eq!(global.len(), (1000 - LOCAL_FULL) / BATCH * BATCH);
    let mut local: Vec<_> = std::iter::from_fn(|| queues.pop()).collect();
    let shared = global.drain();
    let split = local.split_off(LOCAL_FULL);
    let all: Vec<_> = local.into_iter().chain(shared).chain(split).collect();
    assert_eq!(all, (0..1000).collect::<Vec<_>>());
}

#[test]
fn what_was_taken_from_here_stays_here_however_long_the_queue_is() {
    let (queues, _remote) = Queues::new(LocalOrder::Fifo);
    for n in 0..LOCAL_FULL {
        assert!(matches!(queues.push_back(n), Pushed::ToDeque(_)));
    }
    assert!(matches!(queues.push_again(LOCAL_FULL), Pushed::ToDeque(_)));
    assert!(queues.batch.is_empty());
    assert_eq!(queues.deque.len(), LOCAL_FULL + 1);
    // Behind a batch that waits it goes the way of all.
    let _ = queues.push_back(LOCAL_FULL + 1);
    let _ = queues.push_again(LOCAL_FULL + 2);
    assert_eq!(queues.batch.len(), 2);
}

#[test]
fn nothing_overtakes_a_batch_that_waits() {
    let (queues, _remote) = Queues::new(LocalOrder::Fifo);
    for n in 0..300 {
        let _ = queues.push_back(n);
    }
    for n in 0..200 {
        assert_eq!(queues.pop(), Some(n));
        let _ = queues.push_back(n + 300);
        if queues.batch.len() == BATCH {
            return;
        }
    }
    assert_eq!(std::iter::from_fn(|| queues.pop()).collect::<Vec<_>>(), (200..500).collect::<Vec<_>>());
}

#[test]
fn a_worker_takes_its_share_of_the_global_queue() {
    let global = Global::new();
    let (queues, _remote) = Queues::new(LocalOrder::Fifo);
    for n in 0..100 {
        global.push(n).unwrap();
    }
    assert_eq!(global.take(&queues, 10, |_, _| {}), Some(0));
    assert_eq!((queues.deque.len(), global.len()), (11, 88));
    assert_eq!(global.take(&queues, 1, |_, _| {}), Some(12));
    assert_eq!((queues.deque.len(), global.len()), (27, 71));
    global.close();
    assert_eq!(global.push(7), Err(7));
}

#[test]
fn a_thief_takes_half_rounded_up_and_the_slot_by_itself() {
    let (queues, remote) = Queues::new(LocalOrder::Fifo);
    let (thief, _) = Queues::new(LocalOrder::Fifo);
    for n in 0..101 {
        let _ = queues.push_back(n);
    }
    let _ = queues.push_next(1000);
    assert_eq!(remote.len(), 102);
    assert!(matches!(remote.steal_half(&thief), Steal::Success(0)));
    assert_eq!((thief.deque.len(), queues.deque.len()), (50, 50));
    assert!(matches!(remote.steal_slot(), Steal::Success(1000)));
    assert!(matches!(remote.steal_slot(), Steal::Empty));
    assert_eq!(queues.pop_slot(), None);
}

#[test]
fn a_thief_finds_the_batch_too() {
    let (queues, remote) = Queues::new(LocalOrder::Fifo);
    let (thief, _) = Queues::new(LocalOrder::Fifo);
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

const ORDERS: [LocalOrder; 2] = [LocalOrder::Fifo, LocalOrder::Lifo];

/// 4.3: the owner has the newest, everybody else the oldest.
#[test]
fn newest_first_is_so_for_the_owner_alone() {
    let (queues, remote) = Queues::new(LocalOrder::Lifo);
    let (thief, _) = Queues::new(LocalOrder::Lifo);
    for n in 0..8 {
        assert!(matches!(queues.push_back(n), Pushed::ToDeque(_)));
    }
    assert_eq!((queues.pop(), queues.pop()), (Some(7), Some(6)));
    assert_eq!(queues.pop_oldest(), Some(0));
    // The older half; of that, too, the newest first.
    assert!(matches!(remote.steal_half(&thief), Steal::Success(3)));
    assert_eq!(std::iter::from_fn(|| thief.pop()).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(queues.push_next(8), Pushed::ToSlot);
    assert!(matches!(queues.push_next(9), Pushed::ToDeque(_)));
    assert_eq!((queues.pop_slot(), queues.pop(), queues.pop()), (Some(9), Some(8), Some(5)));
    assert_eq!((queues.pop_oldest(), queues.pop_oldest()), (Some(4), None));
}

#[test]
fn what_comes_from_elsewhere_is_run_in_its_order() {
    for order in ORDERS {
        let (queues, remote) = Queues::new(order);
        let (thief, _) = Queues::new(order);
        let global = Global::new();
        for n in 0..17 {
            global.push(n).unwrap();
        }
        assert_eq!(global.take(&queues, 1, |_, _| {}), Some(0));
        assert_eq!(std::iter::from_fn(|| queues.pop()).collect::<Vec<_>>(), (1..17).collect::<Vec<_>>());
        // A batch that a thief takes whole, and one that its owner comes to.
        for _ in 0..2 {
            for n in 0..LOCAL_FULL + 20 {
                let _ = queues.push_back(n);
            }
            if order == LocalOrder::Fifo {
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
fn a_lone_item_can_be_stolen_wherever_it_is() {
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

/// Halves of halves: nobody ends with more or less than there was.
#[test]
fn chained_steals_keep_the_count_and_the_set() {
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
fn destructors_run_once_wherever_an_item_ends() {
    let count = Arc::new(());
    for order in ORDERS {
        let (queues, remote) = Queues::new(order);
        let (thief, kept) = Queues::new(order);
        let global = Global::new();
        for _ in 0..LOCAL_FULL + 2 * BATCH {
            if queues.push_back(Arc::clone(&count)) == Pushed::BatchFull {
                queues.overflow(&global);
            }
        }
        let _ = queues.push_next(Arc::clone(&count));
        assert_eq!(Arc::strong_count(&count), LOCAL_FULL + 2 * BATCH + 2);
        drop(remote.steal_half(&thief));
        drop(global.take(&thief, 1, |_, _| {}));
        drop((queues, remote));
        assert_eq!(Arc::strong_count(&count), global.len() + thief.deque.len() + 1);
        drop((thief, kept, global));
        assert_eq!(Arc::strong_count(&count), 1);
    }
}

/// 4.3: an owner that pushes, pops and overflows against thieves that take halves, slots and what is shared: every item comes
/// out exactly once. With `PROCESSION_LONG` set, 10 million of them.
#[test]
fn thieves_at_work_lose_nothing_and_double_nothing() {
    let long = std::env::var_os("PROCESSION_LONG").is_some();
    let items: usize = if long { 10_000_000 } else { 200_000 };
    for order in ORDERS {
        let taken: Vec<_> = (0..items).map(|_| Tally::new(0)).collect();
        let take = |item: usize| {
            taken[item].fetch_add(1, Ordering::Relaxed);
        };
        let (global, over) = (Global::new(), AtomicUsize::new(0));
        let (owner, remote) = Queues::new(order);
        crate::sync::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let (own, _) = Queues::new(order);
                    loop {
                        // Read first: what is there afterwards is all that is left.
                        let is_over = over.load(Ordering::SeqCst) == 1;
                        let found = match remote.steal_half(&own) {
                            Steal::Empty => match remote.steal_slot() {
                                Steal::Success(item) => Some(item),
                                Steal::Empty => global.take(&own, 4, |_, _| {}),
                                Steal::Retry => continue,
                            },
                            Steal::Success(item) => Some(item),
                            Steal::Retry => continue,
                        };
                        let none = found.is_none();
                        found.into_iter().chain(std::iter::from_fn(|| own.pop())).for_each(take);
                        if none && is_over {
                            break;
                        }
                    }
                });
            }
            for item in 0..items {
                let pushed = if item % 7 == 0 { owner.push_next(item) } else { owner.push_back(item) };
                if pushed == Pushed::BatchFull {
                    owner.overflow(&global);
                }
                match item % 11 {
                    0 | 4 => owner.pop().into_iter().for_each(take),
                    3 => owner.pop_slot().into_iter().for_each(take),
                    8 => owner.pop_oldest().into_iter().for_each(take),
                    _ => {}
                }
            }
            owner.drain().into_iter().for_each(take);
            over.store(1, Ordering::SeqCst);
        });
        let wrong = taken.iter().filter(|taken| taken.load(Ordering::Relaxed) != 1).count();
        assert_eq!(wrong, 0, "lost or doubled, {order:?}");
    }
}

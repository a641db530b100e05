//! Tests of the counters of steals.

use crate::scheduler::tests::*;

/// Returns the number of all attempts to steal, and the numbers of the attempts that were won, empty and retried.
fn attempts(scheduler: &Scheduler<Job>) -> [u64; 4] {
    let counted = scheduler.metrics.counters();
    [counted.steals_tried, counted.steals_won, counted.steals_empty, counted.steals_retried]
}

/// Returns the numbers of tasks in the queues of the first two slots.
fn depths(scheduler: &Scheduler<Job>) -> [usize; 2] {
    [0, 1].map(|slot| scheduler.remotes[slot].len())
}

/// 4.2a, 9.1b: one thread acts alternately as two workers. Each attempt to steal has an exact result.
#[test]
fn each_attempt_to_steal_is_counted_with_its_result() {
    let scheduler = Scheduler::<Job>::new(options(2), Moved::default(), Arc::new(Metrics::new(SLOTS))).unwrap();
    let (victim, thief) = (scheduler.occupy(false).unwrap(), scheduler.occupy(false).unwrap());
    let ran = Arc::new(AtomicUsize::new(0));
    let push = |how| {
        let ran = Arc::clone(&ran);
        let _wakes = victim.push(job(move || one_more(&ran)), how);
    };
    let steal = |passes| {
        let stolen = thief.steal(passes);
        let is_stolen = stolen.is_some();
        stolen.into_iter().for_each(run);
        is_stolen
    };
    // The thief tries no victim whose queues are empty.
    assert!(!steal(4));
    assert_eq!(attempts(&scheduler), [0; 4]);
    // Only the last of the four passes steals the task in the `next` slot. The first three attempts are empty.
    push(Placement::Woken);
    assert!(steal(4));
    assert_eq!((attempts(&scheduler), depths(&scheduler)), ([4, 1, 3, 0], [0, 0]));
    // The first attempt takes half of the deque. The thief runs one of the stolen tasks, and the other stolen tasks
    // stay in the queues of the thief.
    (0..6).for_each(|_| push(Placement::Behind));
    assert!(steal(4));
    assert_eq!((attempts(&scheduler), depths(&scheduler)), ([5, 2, 3, 0], [3, 2]));
    // An attempt takes at most 32 tasks.
    (0..97).for_each(|_| push(Placement::Behind));
    assert!(steal(4));
    assert_eq!((attempts(&scheduler), depths(&scheduler)), ([6, 3, 3, 0], [68, 33]));
    // The worker finds its own tasks without an attempt to steal. After these tasks, seven attempts empty the deque of
    // the victim. Before these attempts, the deque contains 68, 36, 18, 9, 4, 2 and 1 tasks.
    for _ in 0..33 {
        run(thief.find(1).expect("an own task"));
    }
    assert_eq!((attempts(&scheduler), depths(&scheduler)), ([6, 3, 3, 0], [68, 0]));
    while let Some(task) = thief.find(1) {
        run(task);
    }
    assert_eq!((attempts(&scheduler), depths(&scheduler)), ([13, 10, 3, 0], [0, 0]));
    assert_eq!(ran.load(Ordering::SeqCst), 1 + 6 + 97);
}

/// 4.2a, 9.1b: two thieves steal from one victim at the same time. Some attempts lose the race for a task. The sum of
/// the won, empty and retried attempts is the number of all attempts.
#[test]
fn an_attempt_that_loses_a_race_is_counted_as_retried() {
    within(|| {
        let scheduler = Scheduler::<Job>::new(options(3), Moved::default(), Arc::new(Metrics::new(SLOTS))).unwrap();
        let victim = scheduler.occupy(false).unwrap();
        let (stop, ran, mut pushed) = (AtomicBool::new(false), Arc::new(AtomicUsize::new(0)), 0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let thief = scheduler.occupy(false).unwrap();
                    loop {
                        let stops = stop.load(Ordering::SeqCst);
                        let has_tasks = !scheduler.remotes[thief.slot()].is_empty();
                        match if has_tasks { thief.find(1) } else { thief.steal(4) } {
                            Some(task) => run(task),
                            None if stops => break,
                            None => {}
                        }
                    }
                });
            }
            while attempts(&scheduler)[3] == 0 {
                // While the two thieves empty the long queue, they compete for the same tasks. The machine may have
                // only two cores, so this thread adds many tasks together and then lets both thieves run.
                if scheduler.remotes[0].is_empty() {
                    for _ in 0..4_000 {
                        let ran = Arc::clone(&ran);
                        let _wakes = victim.push(job(move || one_more(&ran)), Placement::Behind);
                    }
                    pushed += 4_000;
                }
                thread::yield_now();
            }
            stop.store(true, Ordering::SeqCst);
        });
        let [tried, won, empty, retried] = attempts(&scheduler);
        assert!(retried > 0 && won > 0 && tried == won + empty + retried, "{tried} {won} {empty} {retried}");
        // The thieves may stop while the victim has tasks.
        while let Some(task) = victim.find(1) {
            run(task);
        }
        assert_eq!(ran.load(Ordering::SeqCst), pushed);
    });
}

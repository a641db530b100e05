//! Section 9.1 of the specification, first part: the events that each counter counts, and the subtraction of two
//! snapshots.

use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use procession::*;

use crate::{alone, everywhere, step_aside, two, within};

/// Command with a number. In most tests, the handler answers inline with twice this number.
struct Double(u64);
impl Command for Double {
    type Reply = u64;
}

/// 9.1a, 9.1b, 9.1c: if a single guest thread runs the runtime, the value of every counter is predictable.
#[test]
fn counters_are_exact_on_a_single_thread() {
    let rt = Runtime::builder().workers(0).handle(|c: Double| c.0 * 2).build().unwrap();
    let none = rt.counters();
    assert_eq!((none.spawned, none.polls, none.to_string().as_str()), (0, 0, "nothing counted"));

    let yields = rt.spawn(async |ctx: Context| {
        for _ in 0..9 {
            ctx.yield_now().await;
        }
    });
    rt.block_on(yields).unwrap();
    let first = rt.counters();
    assert_eq!((first.spawned, first.exited, first.polls, first.steps), (1, 1, 10, 10));

    let performs = rt.spawn(async |ctx: Context| {
        for n in 0..5 {
            ctx.perform(Double(n)).await?;
        }
        Ok::<_, Exit>(())
    });
    rt.block_on(performs).unwrap();
    let second = rt.counters() - first;
    assert_eq!((second.spawned, second.exited, second.polls, second.steps), (1, 1, 1, 6));
    assert_eq!((second.yields, second.completions, second.messages), (5, 5, 0));

    let before = rt.counters();
    let reader = rt.spawn(async |mut ctx: Context<u64>| {
        for _ in 0..3 {
            ctx.receive().await?;
        }
        Ok::<_, Exit>(())
    });
    for n in 0..5 {
        reader.send(n).unwrap();
    }
    let to = reader.address();
    rt.block_on(reader).unwrap();
    assert!(to.send(5).is_err());
    assert!(rt.send(to.pid(), "a text").is_err());
    let third = rt.counters() - before;
    assert_eq!((third.messages, third.dead_letters, third.refused), (5, 2, 2), "{third}");
}

/// 4.6b, 9.1b: the runtime counts how often processes use up their budgets.
#[test]
fn every_use_of_a_whole_budget_is_counted() {
    let rt = Runtime::builder().workers(0).handle(|c: Double| c.0 * 2).build().unwrap();
    let reader = rt.spawn(async |mut ctx: Context<()>| {
        for _ in 0..1000 {
            ctx.receive().await?;
        }
        Ok::<_, Exit>(())
    });
    (0..1000).for_each(|_| reader.send(()).unwrap());
    rt.block_on(reader).unwrap();
    let messages = rt.counters();
    assert_eq!(messages.budget_yields, 1000 / 128);
    let asks = rt.spawn(async |ctx: Context| {
        for n in 0..1000 {
            ctx.perform(Double(n)).await?;
        }
        Ok::<_, Exit>(())
    });
    rt.block_on(asks).unwrap();
    assert_eq!((rt.counters() - messages).budget_yields, 1000 / 32);
}

/// 9.1b: a new task wakes a parked worker at most once. The woken worker runs the task and then parks again. Sometimes
/// a worker returns from its park although no new task woke the worker, because the token of an earlier unpark was
/// still set.
#[test]
fn parks_and_wake_ups_of_workers_are_counted() {
    within(60, || {
        let rt = alone().build().unwrap();
        let parked = |before: u64| {
            while rt.counters().parks <= before {
                thread::yield_now();
            }
            rt.counters()
        };
        let rounds = 1000;
        let first = parked(0);
        let mut before = first.clone();
        for _ in 0..rounds {
            block_on(rt.spawn(async |_: Context| {})).unwrap();
            let after = parked(before.parks);
            let once = after.clone() - before;
            assert!(once.wakes <= 1 && (once.polls, once.spawned, once.exited) == (1, 1, 1), "{once}");
            before = after;
        }
        let all = before - first;
        assert!(all.wakes > rounds / 2 && all.parks >= rounds, "{all}");
    });
}

/// 9.1b: every attempt to steal is counted once: in `steals_won`, in `steals_empty` or in `steals_retried`.
#[test]
fn every_attempt_to_steal_is_counted_exactly_once() {
    within(60, || {
        let rt = two();
        for _ in 0..100 {
            let parent = rt.spawn(async |ctx: Context| {
                let together = Arc::new(Barrier::new(2));
                let children = [(); 2].map(|()| {
                    let together = together.clone();
                    ctx.spawn(async move |_: Context| {
                        together.wait();
                    })
                });
                for child in children {
                    child.await?;
                }
                Ok::<_, Exit>(())
            });
            block_on(parent).unwrap();
        }
        // The loop ends when two successive snapshots are equal and both workers have parked. No attempt to steal is
        // then in progress.
        let mut before = rt.counters();
        loop {
            thread::yield_now();
            let now = rt.counters();
            if now == before && now.parks >= 2 {
                break;
            }
            before = now;
        }
        assert!(before.steals_won > 0, "{before}");
        assert_eq!(before.steals_tried, before.steals_won + before.steals_empty + before.steals_retried);
        let success = before.steals_won as f64 / before.steals_tried as f64;
        assert_eq!(before.steal_success(), success);
    });
}

/// 4.3c, 9.1b: if the local queue already holds 4,096 tasks, new tasks go to the injector in batches of 128.
#[test]
fn overflows_of_the_local_queue_are_counted() {
    let rt = Runtime::builder().workers(0).long_step_threshold(Duration::MAX).build().unwrap();
    let parent = rt.spawn(async |ctx: Context| {
        let before = ctx.host().counters().overflows;
        let children: Vec<_> = (0..2 * 4_096 + 1 + 6 * 128).map(|_| ctx.spawn(async |_: Context| {})).collect();
        // One child is in the worker's `next` slot, 4,096 children are in the queue of new tasks, and 4,096 children
        // are in the local queue. The remaining children went to the injector in six batches.
        let overflows = ctx.host().counters().overflows - before;
        for child in children {
            child.await?;
        }
        Ok::<_, Exit>(overflows)
    });
    assert_eq!(rt.block_on(parent).unwrap(), 6);
}

/// 9.1a: when all processes have exited, the number of exited processes is the number of spawned processes, for any
/// exit reason. Panics are counted too.
#[test]
fn every_spawned_process_is_counted_as_exited_in_the_end() {
    everywhere(async |host| {
        let handles: Vec<_> = (0..1000_u64)
            .map(|n| {
                host.spawn(async move |mut ctx: Context<()>| -> Result<(), Exit> {
                    match n % 5 {
                        0 => return Ok(()),
                        1 => return Err("on purpose".into()).map_err(|e: BoxError| Exit::from(e)),
                        2 => std::panic::resume_unwind(Box::new("on purpose")),
                        3 => ctx.sleep(Duration::from_micros(n)).await,
                        _ => drop(ctx.receive().await),
                    }
                    Ok(())
                })
            })
            .collect();
        for (n, handle) in handles.into_iter().enumerate() {
            if n % 5 == 4 {
                handle.abort();
            }
            let _ = handle.await;
        }
        let counters = host.counters();
        assert_eq!((counters.spawned, counters.exited, counters.panics), (1000, 1000, 200));
    });
}

/// 9.1a: when a process has received an answer, every later snapshot of the counters includes this answer. Every later
/// snapshot also includes the messages that the process has received, and the exits that the process has observed.
#[test]
fn an_event_is_counted_before_it_can_be_observed() {
    within(60, || {
        let (to_thread, asked) = mpsc::channel::<Completion<u64>>();
        let to_thread = Mutex::new(to_thread);
        let rt = Runtime::builder()
            .workers(2)
            .handler(move |_: Double, completion| to_thread.lock().unwrap().send(completion).unwrap())
            .build()
            .unwrap();
        let host = rt.host().clone();
        let answers = thread::spawn(move || asked.into_iter().for_each(|completion| completion.complete(0)));
        let asks = rt.spawn(async |ctx: Context| {
            for n in 1..=1_000 {
                ctx.perform(Double(n)).await?;
                assert_eq!(ctx.host().counters().completions, n);
            }
            Ok::<_, Exit>(())
        });
        rt.block_on(asks).unwrap();

        let (address, mut mailbox) = rt.mailbox::<u64>();
        let sends = thread::spawn(move || (1..=5_000).for_each(|n| address.send(n).unwrap()));
        for _ in 1..=5_000 {
            let n = block_on(mailbox.receive()).unwrap();
            assert!(host.counters().messages >= n);
        }
        sends.join().unwrap();

        let before = host.counters().exited;
        for n in 1..=1_000 {
            let pid = rt.spawn(async |_: Context| ()).pid();
            block_on(host.exited(pid));
            assert_eq!(host.counters().exited - before, n);
        }
        drop(rt);
        drop((mailbox, host));
        answers.join().unwrap();
    });
}

/// 3.3e, 9.1c: the counter of answers includes the answers through a tag and the answers through a completion.
#[test]
fn answers_by_tag_are_counted() {
    let (to_test, asked) = mpsc::channel();
    let to_test = Mutex::new(to_test);
    let handler = move |_: Double, completion: Completion<u64>| {
        to_test.lock().unwrap().send(completion.into_tag()).unwrap();
    };
    let rt = Runtime::builder().workers(0).handler(handler).build().unwrap();
    let asks = rt.spawn(async |ctx: Context| ctx.perform(Double(1)).await);
    rt.block_on(step_aside());
    let (pid, tag) = asked.recv().unwrap();
    rt.complete_yield(pid, tag, Ok(Payload::new(7_u64))).unwrap();
    assert!(rt.complete_yield(pid, tag, Ok(Payload::new(8_u64))).is_err(), "it comes back: it is not discarded");
    assert_eq!(rt.block_on(asks).unwrap(), 7);
    let counters = rt.counters();
    assert_eq!((counters.yields, counters.completions, counters.discarded), (1, 1, 0));
}

/// 2.6d, 9.1a: if a caller drops its call and the reply arrives later, the reply is counted as late.
#[test]
fn late_replies_are_counted() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let (address, mut mailbox) = rt.mailbox::<Reply<u64>>();
    let call = address.call(|reply| reply).start();
    drop(call);
    let reply = rt.block_on(mailbox.receive()).unwrap();
    assert!(reply.is_closed());
    reply.send(1);
    assert_eq!(rt.counters().late_replies, 1);
}

/// 9.1d, 9.1e: with `sample_every_step`, the runtime measures the scheduling delay of every turn and the duration of
/// every step.
#[test]
fn the_option_sample_every_step_measures_every_turn() {
    within(60, || {
        for workers in [0, 2] {
            let rt = Runtime::builder().workers(workers).sample_every_step(true).build().unwrap();
            let all: Vec<_> = (0..200)
                .map(|_| {
                    rt.spawn(async |ctx: Context| {
                        for _ in 0..5 {
                            ctx.yield_now().await;
                        }
                    })
                })
                .collect();
            for one in all {
                if workers == 0 { rt.block_on(one) } else { block_on(one) }.unwrap();
            }
            // A turn is measured at its end. The last turn of a process ends shortly after the exit of the process.
            // After the workers have exited, every turn has been measured.
            let host = rt.host().clone();
            drop(rt);
            let metrics = host.metrics();
            let (counters, times) = (&metrics.counters, &metrics.distributions);
            assert_eq!((times.sampled_one_in, counters.polls), (1, 1200));
            assert_eq!(times.scheduling_delay.count(), 1200);
            assert_eq!(times.step_time.count(), counters.steps);
            let (half, most) = (times.scheduling_delay.quantile(0.5), times.scheduling_delay.quantile(1.0));
            assert!(half <= most && most.is_some_and(|most| most < Duration::from_secs(60)), "{metrics}");
        }
    });
}

/// 9.1e: by default one turn in 64 is measured.
#[test]
fn one_turn_in_64_is_measured_by_default() {
    // The test needs a new thread, because each thread counts its own turns.
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let yields = rt.spawn(async |ctx: Context| {
            for _ in 1..6400 {
                ctx.yield_now().await;
            }
        });
        rt.block_on(yields).unwrap();
        let metrics = rt.metrics();
        assert_eq!((metrics.distributions.sampled_one_in, metrics.counters.polls), (64, 6400));
        // The number of turns from one measured turn to the next varies, so the number of measured turns may differ a
        // little from 100.
        let measured = metrics.distributions.scheduling_delay.count();
        assert!((98..=102).contains(&measured), "{measured}");
    });
}

/// 9.1f: the number of exited processes in a snapshot is never greater than the number of spawned processes. This also
/// holds if processes start and exit while the snapshot is taken. The number of threads that take snapshots exceeds the
/// number of cores. Therefore the system sometimes preempts a thread in the middle of a snapshot.
#[test]
fn no_snapshot_shows_more_exited_than_spawned_processes() {
    within(60, || {
        let rt = two();
        let busy = rt.spawn(async |ctx: Context| {
            for _ in 0..100_000 {
                let _ = ctx.spawn(async |_: Context| {});
                ctx.yield_now().await;
            }
        });
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !busy.is_finished() {
                        let now = rt.counters();
                        assert!(now.exited <= now.spawned, "{now}");
                    }
                });
            }
        });
    });
}

/// 9.1f: a snapshot is printed as one line. No counter decreases from one snapshot to the next, even while the runtime
/// is busy.
#[test]
fn a_snapshot_prints_as_one_line_and_counters_never_decrease() {
    within(60, || {
        let rt = two();
        let busy: Vec<_> = (0..4)
            .map(|_| {
                rt.spawn(async |ctx: Context| {
                    for _ in 0..2000 {
                        let _ = ctx.spawn(async |_: Context| {});
                        ctx.yield_now().await;
                    }
                })
            })
            .collect();
        let mut before = rt.counters();
        while !busy.iter().all(JoinHandle::is_finished) {
            let now = rt.counters();
            let line = now.to_string();
            assert!(!line.contains('\n') && line.contains("spawned"), "{line}");
            let between = now.clone() - before;
            assert!(between.polls < 1 << 32 && between.spawned < 1 << 32 && between.steps < 1 << 32, "{between}");
            before = now;
        }
    });
}

/// 9.1a: two runtimes have separate counters, even if a thread of one runtime is a guest thread of the other runtime.
#[test]
fn each_runtime_has_its_own_counters() {
    let one = Runtime::builder().workers(0).build().unwrap();
    let other = Arc::new(Runtime::builder().workers(0).build().unwrap());
    let inner = other.clone();
    let nested = one.spawn(async move |ctx: Context| {
        inner.block_on(async {
            for _ in 0..3 {
                inner.spawn(async |_: Context| {}).await?;
            }
            step_aside().await;
            Ok::<_, Exit>(())
        })?;
        ctx.yield_now().await;
        Ok::<_, Exit>(())
    });
    one.block_on(nested).unwrap();
    let (one, other) = (one.counters(), other.counters());
    assert_eq!((one.spawned, one.exited, one.polls, one.steps), (1, 1, 2, 2));
    assert_eq!((other.spawned, other.exited, other.polls, other.steps), (3, 3, 3, 3));
}

/// 9.1a, 9.1b, 9.1c: one run on a single guest thread changes all counters of processes, messages and commands. The
/// snapshot contains exactly these counts.
#[test]
fn the_counts_of_a_scripted_run_are_exact() {
    let kept: Arc<Mutex<Vec<Completion<u64>>>> = Arc::default();
    let keep = Arc::clone(&kept);
    let handler = move |_: Double, completion| keep.lock().unwrap().push(completion);
    let rt = Runtime::builder().workers(0).on_crash(|_| {}).handler(handler).build().unwrap();
    // Two steps: the second step takes both messages. The mailbox keeps the newest two of five messages, and a sixth
    // message is sent after the exit.
    let reader = async |mut ctx: Context<u64>| {
        step_aside().await;
        ctx.receive().await?;
        ctx.receive().await
    };
    let reader = rt.process().mailbox_capacity(MailboxCapacity::DropOldest(2)).spawn(reader).unwrap();
    (0..5).for_each(|number| reader.send(number).unwrap());
    let to = reader.address();
    assert_eq!(rt.block_on(reader), Ok(4));
    assert!(to.send(5).is_err());
    // One step, and one unread message.
    let unread = rt.spawn(async |_: Context<u64>| ());
    unread.send(1).unwrap();
    rt.block_on(unread).unwrap();
    // Three steps. The first command is cancelled in the second step, so its answer arrives too late. The second
    // command is answered before the third step.
    let asks = rt.spawn(async |ctx: Context| {
        let cancelled = ctx.perform(Double(1)).start();
        ctx.yield_now().await;
        drop(cancelled);
        ctx.perform(Double(2)).await
    });
    while kept.lock().unwrap().len() < 2 {
        rt.block_on(step_aside());
    }
    kept.lock().unwrap().drain(..).for_each(|completion| completion.complete(7));
    assert_eq!(rt.block_on(asks), Ok(7));
    // One step with a panic, and one step with an error. No process receives these two exits.
    drop(rt.spawn(async |_: Context| std::panic::resume_unwind(Box::new("planned"))));
    drop(rt.spawn(async |_: Context| Err::<(), _>("planned")));
    while rt.processes_alive() != 0 {
        rt.block_on(step_aside());
    }
    let expected = "spawned 5, exited 5, failures 2, polls 8, steps 8, messages 6, refused 1, dead_letters 4, \
                    dropped_by_policy 3, yields 2, completions 1, discarded 1, panics 1, unobserved 2";
    assert_eq!(rt.counters().to_string(), expected);
}

/// 9.1a: the counters `failures` and `restarts` count each failed process and each restart of a child once. A killed
/// process and the first start of a child are not counted.
#[test]
fn failures_and_restarts_are_counted() {
    const CHILD: Name<bool> = Name::new("child");
    let rt = Runtime::builder().workers(0).build().unwrap();
    let body = async |mut ctx: Context<bool>| {
        if ctx.receive().await? { Err::<(), _>(Exit::failed("planned")) } else { panic!("planned") }
    };
    let supervisor = rt.spawn_process(Supervisor::one_for_one().intensity(10, Duration::MAX).child(CHILD, body));
    rt.block_on(supervisor.started()).unwrap();
    let restarted = |end: &dyn Fn(Pid)| {
        let pid = rt.whereis(CHILD).unwrap();
        end(pid);
        while rt.whereis(CHILD).is_none_or(|now| now == pid) {
            rt.block_on(step_aside());
        }
        let counters = rt.counters();
        (counters.failures, counters.restarts)
    };
    assert_eq!((rt.counters().failures, rt.counters().restarts), (0, 0));
    assert_eq!(restarted(&|_| rt.send(CHILD, true).unwrap()), (1, 1));
    assert_eq!(restarted(&|_| rt.send(CHILD, false).unwrap()), (2, 2));
    assert_eq!(restarted(&|pid| rt.kill(pid).unwrap()), (2, 3));
}

/// 9.1a: a dead letter is counted once, even if the mailbox for dead letters is dropped before the dead letter is read.
#[test]
fn an_unread_dead_letter_is_counted_once() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let letters = rt.dead_letters();
    let (address, mailbox) = rt.mailbox::<u32>();
    (0..10).for_each(|n| address.send(n).unwrap());
    drop(mailbox);
    // Each message was accepted twice: by the mailbox of its receiver, and by the mailbox for dead letters.
    assert_eq!((rt.counters().dead_letters, rt.counters().messages), (10, 20));
    drop(letters);
    assert_eq!((rt.counters().dead_letters, rt.counters().messages), (10, 20));
}

//! Section 6 of the specification, structured concurrency: the children of a scope cannot outlive the scope.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context as Cx, Waker};
use std::time::Duration;

use futures::FutureExt;
use procession::*;

use crate::lives::{SettlingWaker, settle};
use crate::{everywhere, step_aside, within};

const LONG: Duration = Duration::from_secs(3600);

fn lone() -> Runtime {
    Runtime::builder().workers(0).build().unwrap()
}

/// A value whose drop increments a counter.
struct CountsDrop(Arc<AtomicUsize>);

impl Drop for CountsDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A scope ends when its body has returned and all its children have exited. A scope also waits for children that the
/// body does not await.
#[test]
fn a_scope_waits_for_its_children() {
    everywhere(async |host| {
        for _ in 0..200 {
            let ended = Arc::new(AtomicUsize::new(0));
            let seen = Arc::clone(&ended);
            let sum = host.spawn(async move |ctx: Context| -> Result<u64, Exit> {
                let sum = ctx
                    .scope(async |scope| {
                        let squares: Vec<_> = (0..10_u64)
                            .map(|n| {
                                let last = CountsDrop(Arc::clone(&ended));
                                scope.spawn(async move |ctx: Context| {
                                    ctx.yield_now().await;
                                    let _last = last;
                                    Ok::<_, Exit>(n * n)
                                })
                            })
                            .collect();
                        let mut sum = 0;
                        for square in squares.into_iter().take(4) {
                            sum += square.await?;
                        }
                        Ok::<_, Exit>(sum)
                    })
                    .await?;
                assert_eq!(ended.load(SeqCst), 10, "none outlives it");
                Ok(sum)
            });
            assert_eq!(sum.await.unwrap(), 14);
            assert_eq!(seen.load(SeqCst), 10);
        }
    });
}

/// When a child or the body fails, the scope drops the body and cancels the other children. The scope returns the first
/// error.
#[test]
fn the_first_error_ends_the_scope() {
    let rt = lone();
    let (dropped, told) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (body_dropped, heard) = (Arc::clone(&dropped), Arc::clone(&told));
    let outcome = rt.block_on(rt.spawn(async move |ctx: Context| {
        let result: Result<(), Exit> = ctx
            .scope(async |scope| {
                let _last = CountsDrop(Arc::clone(&body_dropped));
                for _ in 0..3 {
                    let heard = Arc::clone(&heard);
                    drop(scope.spawn(async move |mut ctx: Context| {
                        let exit = ctx.receive().await.unwrap_err();
                        assert!(matches!(&exit, Exit::Cancelled(reason) if *reason == Reason::PARENT), "{exit}");
                        // The child may clean up.
                        ctx.yield_now().await;
                        heard.fetch_add(1, SeqCst);
                        Err::<(), _>(exit)
                    }));
                }
                drop(scope.spawn(async |ctx: Context| {
                    ctx.yield_now().await;
                    Err::<(), _>(Exit::failed("first"))
                }));
                std::future::pending::<()>().await;
                Ok::<_, Exit>(())
            })
            .await;
        Ok::<_, Exit>(result.unwrap_err().to_string())
    }));
    assert_eq!(outcome.unwrap(), "failed: first");
    assert_eq!((dropped.load(SeqCst), told.load(SeqCst), rt.processes_alive()), (1, 3, 0));
}

/// If a child ignores its cancellation, the scope kills the child after the grace period. A panic of a child has the
/// same effect as any other error.
#[test]
fn a_child_that_ignores_cancellation_is_killed() {
    check(0..10, async |host: Host| {
        let begun = host.now();
        let outcome = host.spawn(async |ctx: Context| {
            let result: Result<(), Exit> = ctx
                .scope(async |scope| {
                    scope.grace(LONG);
                    drop(scope.spawn(async |_: Context| std::future::pending::<()>().await));
                    let panics = scope.spawn(async |_: Context| -> Result<(), Exit> { panic!("oh") });
                    panics.await
                })
                .await;
            Ok::<_, Exit>(matches!(result, Err(Exit::Panicked(_))))
        });
        assert!(outcome.await.unwrap());
        assert_eq!((host.now() - begun, host.processes_alive()), (LONG, 0));
    });
}

/// 6.5b: a shutdown first cancels the children of a scope, and then the process that runs the scope. The children exit
/// before this process is cancelled. The body of the scope continues, and receives the cancellation.
#[test]
fn a_scope_body_receives_the_cancellation_of_a_shutdown() {
    let rt = Arc::new(lone());
    // A shutdown cancels the processes in the order of their slots. The children reuse the slots of the processes that
    // the next line aborts.
    (0..3).for_each(|_| rt.spawn(async |mut ctx: Context| ctx.receive().await).abort());
    let waits = Arc::new(Mutex::new(Vec::new()));
    let given = Arc::clone(&waits);
    let process = rt.spawn(async move |ctx: Context| {
        let (me, given) = (&*ctx, &given);
        me.scope(async move |scope| {
            for _ in 0..3 {
                let given = Arc::clone(given);
                drop(scope.spawn(async move |mut ctx: Context| {
                    given.lock().unwrap().push(ctx.cancelled());
                    ctx.receive().await
                }));
            }
            let reason = me.cancelled().await;
            me.yield_now().await;
            Ok::<_, Exit>(reason)
        })
        .await
    });
    settle(&rt);
    let settling = Arc::new(SettlingWaker(Arc::clone(&rt), AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&settling));
    let mut waits = std::mem::take(&mut *waits.lock().unwrap());
    assert_eq!(waits.len(), 3);
    assert!(waits.iter_mut().all(|wait| wait.poll_unpin(&mut Cx::from_waker(&waker)).is_pending()));
    drop(rt.shutdown(LONG));
    settling.1.store(false, SeqCst);
    assert_eq!(rt.block_on(process).unwrap(), Reason::SHUTDOWN, "the body has cleaned up");
}

/// If the process that runs a scope is cancelled, the scope cancels its children with the same reason. The body of the
/// scope continues, and the scope returns the result of the body.
#[test]
fn the_cancellation_of_a_scope_reaches_all_descendants() {
    let rt = lone();
    let told = Arc::new(AtomicUsize::new(0));
    let heard = Arc::clone(&told);
    let tree = rt.spawn(async move |ctx: Context| {
        let heard = &heard;
        let me = &*ctx;
        me.scope(async |scope| {
            let child = Arc::clone(heard);
            drop(scope.spawn(async move |ctx: Context| {
                ctx.scope(async |scope| {
                    let grandchild = Arc::clone(&child);
                    drop(scope.spawn(async move |mut ctx: Context| {
                        let exit = ctx.receive().await.unwrap_err();
                        assert_eq!(exit.to_string(), Exit::Cancelled("enough".into()).to_string());
                        grandchild.fetch_add(1, SeqCst);
                        Err::<(), _>(exit)
                    }));
                    assert_eq!(ctx.cancelled().await, "enough");
                    child.fetch_add(10, SeqCst);
                    Ok::<_, Exit>(())
                })
                .await
            }));
            me.cancelled().await;
            for _ in 0..50 {
                ctx.yield_now().await;
            }
            heard.fetch_add(100, SeqCst);
            Ok::<_, Exit>(7)
        })
        .await
    });
    rt.block_on(async {
        for _ in 0..50 {
            step_aside().await;
        }
        rt.cancel(tree.pid(), "enough", LONG).unwrap();
        assert_eq!(tree.await.unwrap(), 7);
    });
    assert_eq!((told.load(SeqCst), rt.processes_alive()), (111, 0));
}

/// If a scope is dropped, or the process of the scope is killed, the children of the scope exit too. A scope that has
/// ended refuses new children.
#[test]
fn children_do_not_outlive_their_scope() {
    let rt = lone();
    let dropped = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&dropped);
    let kept = rt.block_on(rt.spawn(async move |ctx: Context| {
        let mut kept = None;
        {
            let mut scope = Box::pin(ctx.scope(async |scope| {
                kept = Some(scope.clone());
                let last = CountsDrop(count);
                drop(scope.spawn(async move |_: Context| {
                    let _last = last;
                    std::future::pending::<()>().await;
                }));
                std::future::pending::<()>().await;
                Ok::<(), Exit>(())
            }));
            assert!(futures::poll!(&mut scope).is_pending());
        }
        Ok::<_, Exit>(kept.unwrap())
    }));
    let kept = kept.unwrap();
    let refused = rt.block_on(kept.spawn(async |_: Context| ())).unwrap_err();
    assert_eq!(refused, Exit::Refused(SpawnErrorKind::ScopeOver));
    let refused = kept.spawn_with(|process| process.name("late"), async |_: Context| ()).unwrap_err();
    assert_eq!(*refused.kind(), SpawnErrorKind::ScopeOver);
    let killed = rt.spawn(async |ctx: Context| {
        ctx.scope(async |scope| {
            drop(
                scope.spawn_with(|process| process.name("left"), async |_: Context| std::future::pending::<()>().await),
            );
            std::future::pending::<()>().await;
            Ok::<(), Exit>(())
        })
        .await
    });
    rt.block_on(async {
        while rt.whereis("left").is_none() {
            step_aside().await;
        }
        killed.abort();
        assert!(matches!(killed.await, Err(Exit::Killed)));
        while rt.processes_alive() != 0 {
            step_aside().await;
        }
    });
    assert_eq!(dropped.load(SeqCst), 1);
}

/// A child may spawn siblings, even after the body has returned or while other children fail.
#[test]
fn siblings_may_be_spawned_while_the_scope_ends() {
    within(60, || {
        let rt = crate::two();
        for round in 0..300_u32 {
            let alive = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&alive);
            let fails = Arc::new(AtomicBool::new(false));
            let failed = Arc::clone(&fails);
            let outcome = rt.block_on(rt.spawn(async move |ctx: Context| {
                let result = ctx
                    .scope(async |scope| {
                        fn more(scope: Scope, left: u32, fail: bool, count: Arc<AtomicUsize>, failed: Arc<AtomicBool>) {
                            let siblings = scope.clone();
                            drop(scope.spawn(async move |ctx: Context| {
                                count.fetch_add(1, SeqCst);
                                let _alive = Guard(Arc::clone(&count));
                                ctx.yield_now().await;
                                if left > 0 {
                                    for _ in 0..2 {
                                        more(siblings.clone(), left - 1, fail, Arc::clone(&count), Arc::clone(&failed));
                                    }
                                } else if fail && !failed.swap(true, SeqCst) {
                                    return Err(Exit::failed("one of them"));
                                }
                                Ok(())
                            }));
                        }
                        more(scope, 4, round % 2 == 0, Arc::clone(&count), Arc::clone(&failed));
                        Ok::<_, Exit>(())
                    })
                    .await;
                assert_eq!(count.load(SeqCst), 0, "none is left");
                Ok::<_, Exit>(result.map_err(|exit| exit.to_string()))
            }));
            let expected = if round % 2 == 0 { Err("failed: one of them".to_owned()) } else { Ok(()) };
            assert_eq!(outcome.unwrap(), expected);
            let _ = (&alive, &fails);
        }
    });
}

struct Guard(Arc<AtomicUsize>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// A scope that fails kills its children after its grace period, even if a child was already cancelled with a later
/// deadline.
#[test]
fn a_scope_kills_a_child_that_was_already_cancelled() {
    within(60, || {
        let mut simulation = Simulation::new(1);
        let process = simulation.spawn(async |ctx: Context| {
            ctx.scope(async |scope| {
                let deaf = scope.spawn(async |_: Context| {
                    std::future::pending::<()>().await;
                    Ok::<_, Exit>(())
                });
                deaf.started().await?;
                ctx.host().cancel(deaf.pid(), "an earlier cancellation", Duration::MAX).expect("it is alive");
                Err::<(), _>(Exit::failed("the body"))
            })
            .await
        });
        let exit = simulation.run(process).unwrap_err();
        assert!(matches!(exit, Exit::Failed(_)), "{exit}");
    });
}

/// If the function of a scope panics after it has spawned a child, the child is killed.
#[test]
fn a_child_does_not_outlive_a_scope_whose_function_panics() {
    let rt = lone();
    let fails = |n: u32| assert_eq!(n, 0, "the function fails");
    let process = rt.spawn(async move |ctx: Context| {
        ctx.scope(|scope| {
            drop(scope.spawn(async |_: Context| std::future::pending::<()>().await));
            fails(1);
            async { Ok::<(), Exit>(()) }
        })
        .await
    });
    assert!(matches!(rt.block_on(process), Err(Exit::Panicked(_))));
    for _ in 0..50 {
        rt.block_on(step_aside());
    }
    assert_eq!(rt.processes_alive(), 0);
}

/// The body of a scope spawns a child in each poll. The turn of the scope ends, so other processes run.
#[test]
fn the_turn_of_a_scope_ends_while_its_body_spawns_children() {
    const POLLS: usize = 5_000;
    let rt = lone();
    let (ends, polls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (end, count) = (Arc::clone(&ends), Arc::clone(&polls));
    let process = rt.spawn(async move |ctx: Context| {
        ctx.scope(async |scope| {
            std::future::poll_fn(|_| {
                if end.load(SeqCst) || count.fetch_add(1, SeqCst) == POLLS {
                    return std::task::Poll::Ready(());
                }
                drop(scope.spawn(async |_: Context| {}));
                std::task::Poll::Pending
            })
            .await;
            Ok::<(), Exit>(())
        })
        .await
    });
    // This process runs after the first turn of the scope.
    let other = rt.spawn(async move |_: Context| ends.store(true, SeqCst));
    rt.block_on(other).unwrap();
    rt.block_on(process).unwrap();
    assert!(polls.load(SeqCst) < POLLS, "the turn did not end");
    assert_eq!(rt.processes_alive(), 0);
}

/// A hand-written process can be a child of a scope. The scope waits for the process, and a failure of the process
/// fails the scope. A scope that is over refuses the process.
#[test]
fn a_hand_written_process_can_be_a_child_of_a_scope() {
    struct Counts(u32, Result<u32, Exit>);
    impl Process for Counts {
        type Message = ();
        type Output = u32;

        fn step(&mut self, _: Events<'_, ()>, _: &mut StepOutput<'_, ()>) -> Result<Next<u32>, Exit> {
            self.0 += 1;
            if self.0 < 5 { Ok(Next::Again) } else { self.1.clone().map(Next::Done) }
        }
    }
    everywhere(async |host| {
        for result in [Ok(7), Err(Exit::failed("on purpose"))] {
            let (fails, process) = (result.is_err(), Counts(0, result));
            let body = host.spawn(async move |ctx: Context| -> Result<Scope, Exit> {
                ctx.scope(async |scope| {
                    drop(scope.spawn_process(process));
                    Ok::<_, Exit>(scope.clone())
                })
                .await
            });
            let result = body.await;
            assert_eq!(host.processes_alive(), 0, "the scope waits for its child");
            assert_eq!(result.is_err(), fails);
            if let Ok(scope) = result {
                assert!(matches!(scope.spawn_process(Counts(0, Ok(7))).await, Err(Exit::Refused(_))));
            }
        }
    });
}

//! Section 9.2 of the specification: the wait-for graph and its deadlocks.

mod supervisors;

use std::future::{Future, pending};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use futures::future::{Either, join, select};
use futures::stream::{FuturesUnordered, StreamExt};
use procession::observe::{
    Deadlock, Explanation, Finding, ProcessQuery, ProcessState, Transition, WaitEdge, WaitForGraph, WaitsFor,
};
use procession::*;

use crate::waits::{MESSAGE, bare};
use crate::{everywhere, step_aside};

const HOUR: Duration = Duration::from_secs(3600);

type Question = Reply<()>;

/// A command whose handler never answers.
struct Never;
impl Command for Never {
    type Reply = ();
}

/// Runs all runnable processes.
pub(crate) fn settle(rt: &Runtime) {
    let ready = ProcessQuery::new().state(ProcessState::Ready).limit(1);
    rt.block_on(async {
        for _ in 0..8 {
            step_aside().await;
        }
        while !rt.processes(&ready).is_empty() {
            step_aside().await;
        }
    });
}

/// Calls `plant`, which spawns processes. Runs these processes until each process waits, and returns the wait-for
/// graph.
fn graph_of(plant: impl FnOnce(&Host)) -> WaitForGraph {
    let kept = Mutex::new(Vec::new());
    let keep = move |_: Never, completion: Completion<()>| kept.lock().unwrap().push(completion);
    let rt = Runtime::builder().workers(0).handler(keep).build().unwrap();
    plant(rt.host());
    settle(&rt);
    rt.wait_for_graph()
}

/// Returns the names of the processes in the order of the cycle, beginning with the alphabetically first name.
fn names(deadlock: &Deadlock) -> Vec<&str> {
    let mut names: Vec<_> = deadlock.cycle.iter().map(|edge| edge.name.as_deref().expect("a name")).collect();
    let first = names.iter().enumerate().min_by_key(|(_, name)| **name).map_or(0, |(at, _)| at);
    names.rotate_left(first);
    names
}

/// Asserts that the graph contains one deadlock, whose cycle consists of these processes. Also asserts that exactly
/// `behind` other processes wait for processes of this cycle, directly or indirectly.
#[track_caller]
fn assert_deadlock(graph: &WaitForGraph, cycle: &[&str], behind: usize) {
    let [deadlock] = &graph.deadlocks[..] else { panic!("{graph:?}") };
    assert_eq!((&names(deadlock)[..], deadlock.behind.len()), (cycle, behind), "{deadlock}");
    let next = deadlock.cycle.iter().cycle().skip(1);
    assert!(deadlock.cycle.iter().zip(next).all(|(edge, next)| edge.target == next.pid));
}

/// Spawns a process with the name `name`. The process calls the process with the name `callee`, and never receives a
/// message.
fn calls(host: &Host, name: &'static str, callee: &'static str) {
    let body = async move |ctx: Context<Question>| {
        while ctx.host().whereis(callee).is_none() {
            ctx.yield_now().await;
        }
        _ = ctx.call(callee, |reply: Question| reply).await;
    };
    host.process().name(name).spawn(body).unwrap();
}

/// 9.2d, 9.2e: processes that call each other in a ring are deadlocked. A process that calls itself is also deadlocked.
/// The report also counts the other processes that wait for the ring.
#[test]
fn a_ring_of_calls_is_a_deadlock() {
    for ring in [&["a"][..], &["a", "b"], &["a", "b", "c"], &["a", "b", "c", "d", "e"]] {
        let graph = graph_of(|host| {
            for (at, name) in ring.iter().enumerate() {
                calls(host, name, ring[(at + 1) % ring.len()]);
            }
            calls(host, "x", "a");
            calls(host, "y", "x");
        });
        assert_deadlock(&graph, ring, 2);
        assert_eq!(graph.edges.len(), ring.len() + 2);
        assert!(graph.deadlocks[0].cycle.iter().all(|edge| matches!(edge.waits_for, WaitsFor::Call { .. })));
    }
}

/// 9.2e: the text of a deadlock names the processes, the operations and the source lines.
#[test]
fn the_text_of_a_deadlock_names_processes_and_source_lines() {
    let graph = graph_of(|host| {
        calls(host, "a", "b");
        calls(host, "b", "a");
        calls(host, "x", "a");
    });
    let lines: Vec<String> = graph.deadlocks[0].to_string().lines().map(String::from).collect();
    let [title, one, other, behind] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(title, "deadlock of 2 processes:");
    for (line, name) in [(one, "a"), (other, "b")] {
        assert!(line.contains(&format!(" \"{name}\" it::deadlocks::calls")), "{line}");
        assert!(line.contains(" waits for the answer to a call to <") && line.contains("deadlocks.rs:"), "{line}");
    }
    assert!(behind.starts_with("  1 other process waits for them: <"), "{behind}");
}

/// 9.2e: if a server calls its client while the server handles the request of this client, both processes are
/// deadlocked.
#[test]
fn a_server_that_calls_its_waiting_client_causes_a_deadlock() {
    let graph = graph_of(|host| {
        let server = async |mut ctx: Context<Question>| {
            let reply = ctx.receive().await?;
            _ = ctx.call("client", |reply: Question| reply).await;
            reply.send(());
            Ok::<_, Exit>(())
        };
        host.process().name("server").spawn(server).unwrap();
        calls(host, "client", "server");
    });
    assert_deadlock(&graph, &["client", "server"], 0);
}

/// 9.2e: a process that waits for several calls is deadlocked only if none of the callees can ever answer.
#[test]
fn several_calls_at_once_are_a_deadlock_if_no_callee_can_answer() {
    let plant = |free: &'static str| {
        graph_of(move |host| {
            let both = async |ctx: Context<Question>| {
                let calls = join(ctx.call("b", |reply: Question| reply), ctx.call("c", |reply: Question| reply));
                _ = calls.await;
            };
            host.process().name("a").spawn(both).unwrap();
            for name in ["b", "c"] {
                let waits = async move |mut ctx: Context<Question>| {
                    if name == free {
                        let _held = ctx.receive().await;
                        pending::<()>().await;
                    }
                    _ = ctx.call("a", |reply: Question| reply).await;
                };
                host.process().name(name).spawn(waits).unwrap();
            }
        })
    };
    let graph = plant("none");
    assert_eq!((graph.deadlocks.len(), graph.deadlocks[0].behind.len()), (1, 1), "{graph:?}");
    // The callee `c` waits for an event that the runtime does not know, so `c` may still answer.
    assert_eq!(plant("c").deadlocks, []);
}

/// 9.2e: a process has given its mailbox to another process. The process that has given its mailbox waits in a cycle,
/// but the process that has received the mailbox will free space in the mailbox. Therefore the cycle is not a deadlock.
#[test]
fn a_process_that_gave_its_mailbox_away_is_not_deadlocked_if_another_process_reads_the_mailbox() {
    let graph = graph_of(|host| {
        let owner = async |ctx: Context<u8>| {
            let (me, mut mailbox) = ctx.split();
            drop(me.spawn(async move |ctx: Context| {
                while mailbox.receive().await.is_ok() {
                    ctx.sleep(HOUR).await;
                }
            }));
            _ = me.call("sender", |reply: Question| reply).await;
        };
        let owner = host.process().name("owner").mailbox_capacity(MailboxCapacity::Reject(1)).spawn(owner).unwrap();
        let address = owner.address();
        let sender = async move |mut ctx: Context<Question>| {
            for letter in 0..3 {
                _ = address.send_wait(letter).await;
            }
            while let Ok(reply) = ctx.receive().await {
                reply.send(());
            }
        };
        drop(host.process().name("sender").spawn(sender).unwrap());
    });
    assert!(matches!(graph.edges[..], [WaitEdge { .. }, WaitEdge { .. }]), "{graph:?}");
    assert_eq!(graph.deadlocks, []);
}

/// 9.2e: a wait for free space in a full mailbox, and a wait for an exit, are edges of a deadlock, like a call. One
/// cycle may contain all three kinds of edge.
#[test]
fn a_wait_for_mailbox_space_or_for_an_exit_is_an_edge_of_a_deadlock() {
    let full = |host: &Host, name: &'static str, to: &'static str| {
        let body = async move |ctx: Context<u8>| {
            while ctx.send(to, 0_u8).is_ok() {}
            _ = ctx.send_wait(to, 1_u8).await;
        };
        host.process().name(name).mailbox_capacity(MailboxCapacity::Reject(1)).spawn(body).unwrap()
    };
    let graph = graph_of(|host| {
        full(host, "a", "b");
        full(host, "b", "a");
    });
    assert_deadlock(&graph, &["a", "b"], 0);
    assert!(graph.edges.iter().all(|edge| matches!(edge.waits_for, WaitsFor::Room { .. })));

    let graph = graph_of(|host| {
        for (name, other) in [("a", "b"), ("b", "a")] {
            let body = async move |ctx: Context<u8>| {
                let other = ctx.host().whereis(other).unwrap();
                ctx.host().exited(other).await;
            };
            host.process().name(name).spawn(body).unwrap();
        }
    });
    assert_deadlock(&graph, &["a", "b"], 0);

    // `a` waits for the exit of `b`, `b` waits for free space in the mailbox of `c`, and `c` calls `a`.
    let graph = graph_of(|host| {
        let exits = async move |ctx: Context<Question>| {
            let other = ctx.host().whereis("b").unwrap();
            ctx.host().exited(other).await;
        };
        host.process().name("a").spawn(exits).unwrap();
        let calls = async move |ctx: Context<u8>| {
            _ = ctx.call("a", |reply: Question| reply).await;
        };
        host.process().name("c").mailbox_capacity(MailboxCapacity::Reject(1)).spawn(calls).unwrap();
        full(host, "b", "c");
    });
    assert_deadlock(&graph, &["a", "b", "c"], 0);
}

/// 9.2e: a parent that waits for the start of a child is deadlocked if the child calls the parent before the child
/// calls `mark_started`.
#[test]
fn a_starting_child_that_calls_the_waiting_parent_causes_a_deadlock() {
    let graph = graph_of(|host| {
        let parent = async |ctx: Context<Question>| {
            let child = async |ctx: Context| _ = ctx.call("parent", |reply: Question| reply).await;
            let child = ctx.host().process().name("child").manual_start().spawn(child).unwrap();
            _ = child.started().await;
        };
        host.process().name("parent").spawn(parent).unwrap();
    });
    assert_deadlock(&graph, &["child", "parent"], 0);
}

/// 9.2d, 9.2e: a process that awaits the join handle of a child is deadlocked if the child calls this process. The
/// process may await the handle directly, in a combinator, or in a join set.
#[test]
fn a_parent_that_joins_a_child_is_deadlocked_if_the_child_calls_the_parent() {
    async fn child(ctx: Context) {
        _ = ctx.call("parent", |reply: Question| reply).await;
    }
    let plant = |parent: fn(&Host)| {
        let graph = graph_of(parent);
        assert_deadlock(&graph, &["child", "parent"], 0);
        let joins = |edge: &WaitEdge| {
            bare(std::slice::from_ref(&edge.waits_for)) == [WaitsFor::Exit { process: edge.target, line: None }]
        };
        assert_eq!(graph.edges.iter().filter(|edge| joins(edge)).count(), 1, "{graph:?}");
    };
    plant(|host| {
        let parent =
            async move |ctx: Context<Question>| _ = ctx.host().process().name("child").spawn(child).unwrap().await;
        host.process().name("parent").spawn(parent).unwrap();
    });
    plant(|host| {
        let parent = async move |ctx: Context<Question>| {
            let mut all = FuturesUnordered::from_iter([ctx.host().process().name("child").spawn(child).unwrap()]);
            _ = all.next().await;
        };
        host.process().name("parent").spawn(parent).unwrap();
    });
    plant(|host| {
        let parent = async move |ctx: Context<Question>| {
            let mut set = ctx.join_set();
            set.insert(ctx.host().process().name("child").spawn(child).unwrap());
            _ = set.join_next().await;
        };
        host.process().name("parent").spawn(parent).unwrap();
    });
}

/// 9.2d, 9.2e: the process that calls `scope` waits for the children of the scope. This parent process is deadlocked if
/// a child calls the parent process. The details of the parent process contain the wait for the child.
#[test]
fn a_parent_in_a_scope_is_deadlocked_if_a_child_of_the_scope_calls_the_parent() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let parent = async move |ctx: Context<Question>| {
        let child = async |ctx: Context| _ = ctx.call("parent", |reply: Question| reply).await;
        ctx.scope(async |scope| scope.spawn_with(|process| process.name("child"), child).map(drop)).await
    };
    let parent = rt.process().name("parent").spawn(parent).unwrap();
    settle(&rt);
    assert_deadlock(&rt.wait_for_graph(), &["child", "parent"], 0);
    let child = rt.whereis("child").unwrap();
    let details = rt.process_details(parent.pid()).unwrap();
    let waits = |wait: &WaitsFor| matches!(wait, WaitsFor::Exit { process, .. } if *process == child);
    assert!(details.waits_for.iter().any(waits), "{:?}", details.waits_for);
}

/// 9.2e: a process that waits for both a join handle and a call is deadlocked only if neither the join nor the call can
/// ever complete.
#[test]
fn a_process_with_a_join_and_a_call_is_deadlocked_if_neither_can_complete() {
    let plant = |free: bool| {
        graph_of(move |host| {
            let parent = async move |ctx: Context<Question>| {
                let joined = ctx.host().process().name("b").spawn(async move |ctx: Context| {
                    if free {
                        pending::<()>().await;
                    }
                    _ = ctx.call("a", |reply: Question| reply).await;
                });
                _ = select(joined.unwrap(), ctx.call("c", |reply: Question| reply)).await;
            };
            host.process().name("a").spawn(parent).unwrap();
            calls(host, "c", "a");
        })
    };
    let graph = plant(false);
    assert_eq!((graph.deadlocks.len(), graph.deadlocks[0].behind.len(), graph.edges.len()), (1, 1, 4), "{graph:?}");
    let graph = plant(true);
    assert_eq!((&graph.deadlocks[..], graph.edges.len()), (&[][..], 3), "{graph:?}");
}

/// 9.2d: the edge of a join belongs to the process that last polled the join handle. The edge of a join disappears
/// when the join handle is dropped.
#[test]
fn the_edge_of_a_join_belongs_to_the_process_that_polled_the_handle_last() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let edges = || {
        settle(&rt);
        rt.wait_for_graph().edges.into_iter().map(|edge| (edge.pid, edge.target)).collect::<Vec<_>>()
    };
    let joined = rt.spawn(async |_: Context| pending::<()>().await);
    let target = joined.pid();
    let joins = async |mut ctx: Context<JoinHandle<()>>| {
        let mut joined = ctx.receive().await.unwrap();
        if let Either::Right((Ok(_), _)) = select(&mut joined, Box::pin(ctx.receive())).await {
            panic!("one handle is enough");
        }
    };
    let (one, other) = (rt.spawn(joins), rt.spawn(joins));
    let passes = async |mut ctx: Context<(JoinHandle<()>, Address<JoinHandle<()>>)>| {
        let (mut joined, to) = ctx.receive().await.unwrap();
        _ = select(&mut joined, Box::pin(ctx.yield_now())).await;
        to.send(joined).unwrap();
        pending::<()>().await;
    };
    let passes = rt.spawn(passes);
    passes.address().send((joined, one.address())).unwrap();
    assert_eq!(edges(), [(one.pid(), target)]);
    one.abort();
    assert_eq!(edges(), []);
    drop((other, passes));
}

/// 9.2e: a cycle is not a deadlock if a further event can end the wait of a process of the cycle. In this test, such an
/// event is a message, the end of a sleep, the answer to a command, a time limit of the call, or the deadline of the
/// process.
#[test]
fn a_cycle_that_another_event_can_end_is_no_deadlock() {
    let plant = |other: fn(&Host)| {
        let graph = graph_of(|host| {
            calls(host, "a", "b");
            other(host);
        });
        assert_eq!((graph.edges.len(), &graph.deadlocks[..]), (2, &[][..]), "{graph:?}");
    };
    plant(|host| {
        let receives = async |mut ctx: Context<Question>| {
            let call = ctx.call("a", |reply: Question| reply);
            let selects_no_message = Box::pin(ctx.receive_where(Err::<(), Question>));
            _ = select(call, selects_no_message).await;
        };
        host.process().name("b").spawn(receives).unwrap();
    });
    plant(|host| {
        let sleeps = async |ctx: Context<Question>| {
            _ = select(ctx.call("a", |reply: Question| reply), ctx.sleep(HOUR)).await;
        };
        host.process().name("b").spawn(sleeps).unwrap();
    });
    plant(|host| {
        let limited = async |ctx: Context<Question>| _ = ctx.call("a", |reply: Question| reply).timeout(HOUR).await;
        host.process().name("b").spawn(limited).unwrap();
    });
    plant(|host| {
        let performs = async |ctx: Context<Question>| {
            _ = select(ctx.call("a", |reply: Question| reply), ctx.perform(Never)).await;
        };
        let host = host.clone();
        host.process().name("b").spawn(performs).unwrap();
    });
    plant(|host| {
        let body = async |ctx: Context<Question>| _ = ctx.call("a", |reply: Question| reply).await;
        host.process().name("b").deadline(host.now() + HOUR).spawn(body).unwrap();
    });
}

/// 9.2d, 9.2e: a process no longer waits for a message after its receive operation was dropped. A message still wakes
/// the process.
#[test]
fn a_dropped_receive_does_not_hide_a_deadlock() {
    async fn receives(ctx: &mut Context<u8>, kind: u32) {
        match kind {
            0 => assert_eq!(ctx.receive_timeout(Duration::from_millis(1)).await, Ok(None)),
            1 => assert!(futures::poll!(Box::pin(ctx.receive_where(Err::<(), u8>))).is_pending()),
            2 => assert!(futures::poll!(FuturesUnordered::from_iter([Box::pin(ctx.event())]).next()).is_pending()),
            _ => {
                // The receive operation is polled in this turn, and dropped in a later turn.
                let mut event = Box::pin(ctx.event());
                assert!(futures::poll!(&mut event).is_pending());
                step_aside().await;
            }
        }
    }
    for kind in 0..=3 {
        let mut simulation = Simulation::new(1);
        let host = simulation.host().clone();
        let graph = simulation.run(async move {
            for (name, other) in [("a", "b"), ("b", "a")] {
                let body = async move |mut ctx: Context<u8>| {
                    receives(&mut ctx, kind).await;
                    let other = ctx.host().whereis(other).unwrap();
                    ctx.host().exited(other).await;
                };
                host.process().name(name).spawn(body).unwrap();
            }
            host.sleep(HOUR).await;
            let graph = host.wait_for_graph();
            for name in ["a", "b"] {
                let pid = host.whereis(name).unwrap();
                let waits_for = host.process_details(pid).unwrap().waits_for;
                assert!(!bare(&waits_for).contains(&MESSAGE), "{waits_for:?}");
                host.kill(pid).unwrap();
            }
            graph
        });
        assert_deadlock(&graph, &["a", "b"], 0);
    }
}

/// 9.2d: after a receive operation was dropped, the next receive operation waits for a message again. A body may create
/// a new receive operation for each poll.
#[test]
fn a_receive_after_a_dropped_receive_waits_for_a_message() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let receives = rt.spawn(async |mut ctx: Context<u8>| {
        assert!(futures::poll!(Box::pin(ctx.event())).is_pending());
        step_aside().await;
        ctx.receive().await
    });
    let polls = rt.spawn(async |mut ctx: Context<u8>| {
        match std::future::poll_fn(|cx| Box::pin(ctx.event()).as_mut().poll(cx)).await {
            Event::Message(message) => Ok(message),
            _ => Err(Exit::Killed),
        }
    });
    settle(&rt);
    let details = rt.process_details(receives.pid()).unwrap();
    assert_eq!(bare(&details.waits_for), [MESSAGE]);
    for process in [&receives, &polls] {
        process.send(7).unwrap();
    }
    assert_eq!(rt.block_on(receives).unwrap(), 7);
    assert_eq!(rt.block_on(polls).unwrap(), 7);
}

/// 9.2e: a cycle is not a deadlock if a process of the cycle also waits for a closure on the blocking pool.
#[test]
fn a_process_that_also_waits_for_a_blocking_closure_is_not_deadlocked() {
    crate::within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let (ends, end) = std::sync::mpsc::channel::<()>();
        let selects = async move |ctx: Context<Question>| {
            let job = ctx.host().spawn_blocking(move || end.recv());
            let call = ctx.call("b", |reply: Question| reply);
            match select(call, job).await {
                Either::Left(_) => panic!("the call has no answer"),
                // The process now waits only for the call.
                Either::Right((_, call)) => _ = call.await,
            }
        };
        let selects = rt.process().name("a").spawn(selects).unwrap();
        calls(rt.host(), "b", "a");
        settle(&rt);
        let graph = rt.wait_for_graph();
        assert_eq!((graph.edges.len(), &graph.deadlocks[..]), (2, &[][..]), "{graph:?}");
        let waits = rt.process_details(selects.pid()).unwrap().waits_for;
        let [call, WaitsFor::Blocking { line: Some(_) }] = &waits[..] else { panic!("{waits:?}") };
        assert_eq!(*call, graph.edges[0].waits_for);
        ends.send(()).unwrap();
        while rt.wait_for_graph().deadlocks.is_empty() {
            settle(&rt);
        }
    });
}

enum Job {
    /// The receiver answers this request. Before the receiver answers, the receiver may send requests to workers with a
    /// higher number.
    Ask(u64, Question),
    Tell,
}

/// Handles jobs. A worker waits only for workers with a higher number, and for processes that it has spawned, directly
/// or indirectly. A worker also suspends and resumes workers with a higher number. Therefore, no cycle is possible.
async fn worker(mut ctx: Context<Job>, above: Vec<Address<Job>>) -> Result<(), Exit> {
    loop {
        let Job::Ask(chance, reply) = ctx.receive().await? else { continue };
        let Some(next) = above.get(chance as usize % above.len().max(1)) else {
            ctx.yield_now().await;
            reply.send(());
            continue;
        };
        let asks = |to: &Address<Job>, salt: u64| ctx.call(to, move |reply| Job::Ask(chance / 3 + salt, reply));
        match chance % 11 {
            0 => _ = asks(next, 1).await,
            1 => _ = join(asks(next, 2), asks(&above[0], 3)).await,
            2 => _ = select(asks(next, 4), ctx.sleep(Duration::from_millis(1))).await,
            3 => _ = next.send_wait(Job::Tell).await,
            4 => {
                let next = next.clone();
                _ = ctx.spawn(async move |_: Context<u8>| _ = next.call(|reply| Job::Ask(5, reply)).await).await;
            }
            // The worker waits until either its child has exited or an answer has arrived.
            5 => {
                let (asks_next, yields) = (next.clone(), chance % 2 == 0);
                let child = ctx.spawn(async move |ctx: Context<u8>| {
                    if yields {
                        ctx.yield_now().await;
                    }
                    _ = asks_next.call(|reply| Job::Ask(7, reply)).await;
                });
                _ = select(child, asks(next, 6)).await;
            }
            6 => {
                let mut set = ctx.join_set();
                for _ in 0..2 {
                    let next = next.clone();
                    set.spawn(async move |_: Context<u8>| _ = next.call(|reply| Job::Ask(8, reply)).await);
                }
                _ = set.join_next().await;
            }
            // The worker sends the `Reply` to another worker, and this worker answers.
            7 => {
                _ = next.send_wait(Job::Ask(chance / 5, reply)).await;
                continue;
            }
            // During its shutdown, the supervisor waits for its child, and the child may wait for an answer.
            8 => {
                let next = next.clone();
                let body = move |ctx: Context<u8>| {
                    let next = next.clone();
                    async move {
                        _ = next.call(|reply| Job::Ask(9, reply)).await;
                        ctx.cancelled().await;
                    }
                };
                let child = Child::new(format!("child {}", ctx.random()), body).restart(RestartPolicy::Temporary);
                let supervisor = ctx.host().spawn_process(Supervisor::one_for_one().add(child));
                _ = supervisor.started().await;
                _ = ctx.host().cancel(supervisor.pid(), "the worker ends its supervisor", HOUR);
                _ = supervisor.await;
            }
            9 => {
                _ = ctx.host().suspend(next.pid());
                ctx.yield_now().await;
                _ = ctx.host().resume(next.pid());
            }
            _ => ctx.yield_now().await,
        }
        reply.send(());
    }
}

/// 9.2e: many processes make calls, join other processes, wait for mailbox space, supervise children, and suspend and
/// resume other processes. These processes never wait in a cycle, so no deadlock is reported. The test runs on two
/// workers and in simulations. Then two more processes call each other, and this deadlock is reported.
#[test]
fn no_false_deadlock_is_reported_under_load() {
    let seen = Arc::new(AtomicUsize::new(0));
    let edges = Arc::clone(&seen);
    everywhere(async move |host: Host| {
        let mut workers: Vec<JoinHandle<(), Job>> = Vec::new();
        for _ in 0..8 {
            let above: Vec<_> = workers.iter().rev().map(|worker| worker.address()).collect();
            let body = async move |ctx: Context<Job>| worker(ctx, above).await;
            workers.push(host.process().mailbox_capacity(MailboxCapacity::Reject(3)).spawn(body).unwrap());
        }
        let lowest: Vec<_> = workers.iter().rev().take(4).map(|worker| worker.address()).collect();
        let clients: Vec<_> = (0..6)
            .map(|_| {
                let lowest = lowest.clone();
                host.spawn(async move |ctx: Context| {
                    for _ in 0..20 {
                        let (chance, to) = (ctx.random(), &lowest[ctx.random() as usize % lowest.len()]);
                        _ = ctx.call(to, |reply| Job::Ask(chance >> 8, reply)).await;
                    }
                })
            })
            .collect();
        let inspected = host.clone();
        let inspector = host.spawn(async move |ctx: Context| {
            let mut edges = 0;
            while !ctx.is_cancelled() {
                let graph = inspected.wait_for_graph();
                assert_eq!(graph.deadlocks, []);
                edges += graph.edges.len();
                let Explanation { findings, .. } = inspected.explain();
                let is_invented =
                    |finding: &Finding| matches!(finding, Finding::Deadlock(_) | Finding::NothingOutstanding { .. });
                assert!(!findings.iter().any(is_invented), "{findings:?}");
                ctx.yield_now().await;
            }
            Ok::<_, Exit>(edges)
        });
        for client in clients {
            client.await.unwrap();
        }
        host.cancel(inspector.pid(), "the clients are done", HOUR).unwrap();
        edges.fetch_add(inspector.await.unwrap(), SeqCst);
        calls(&host, "a", "b");
        calls(&host, "b", "a");
        while host.wait_for_graph().deadlocks.is_empty() {
            host.spawn(async |ctx: Context| ctx.yield_now().await).await.unwrap();
        }
        let planted = host.wait_for_graph();
        assert_eq!(names(&planted.deadlocks[0]), ["a", "b"]);
        // If one of the two processes is killed, the call of the other process fails, and the other process exits.
        for edge in &planted.deadlocks[0].cycle {
            _ = host.kill(edge.pid);
        }
        workers.iter().for_each(|worker| worker.abort());
    });
    assert!(seen.load(SeqCst) > 100, "the graphs contained edges");
}

/// Observer that reads the graph at a special moment: the worker has recorded that the process `waits` is blocked, but
/// the turn of `waits` has not ended. At this moment, the observer delays the worker. During this delay, the process
/// `answers` answers the call of `waits`, and then calls `waits`.
#[derive(Default)]
struct BeforeTheWait {
    pids: OnceLock<(Host, Pid, Pid)>,
    seen: Mutex<Option<Vec<Deadlock>>>,
}

impl Observer for BeforeTheWait {
    fn transition(&self, t: &Transition) {
        let Some((host, waits, answers)) = self.pids.get() else { return };
        while t.pid == *waits && t.to == ProcessState::Blocked && self.seen.lock().unwrap().is_none() {
            let graph = host.wait_for_graph();
            if graph.edges.iter().any(|edge| edge.pid == *answers) {
                *self.seen.lock().unwrap() = Some(graph.deadlocks);
            }
            thread::yield_now();
        }
    }
}

/// Runs a caller, and a process that answers the call and then calls the caller. Returns the deadlocks that the
/// observer has read. This list may be empty. If the answer arrived before the caller began to wait, the observer has
/// stored no list, and the function returns `None`.
fn deadlocks_before_the_wait() -> Option<Vec<Deadlock>> {
    let observer = Arc::new(BeforeTheWait::default());
    let rt = Runtime::builder().workers(2).observer(Arc::clone(&observer)).build().unwrap();
    let caller = rt.spawn(async |mut ctx: Context<(Address<Question>, Option<Question>)>| {
        let (other, _) = ctx.receive().await?;
        ctx.call(&other, |reply: Question| reply).await.unwrap();
        Ok::<_, Exit>(())
    });
    let address = caller.address();
    let answers = rt.spawn(async move |mut ctx: Context<Question>| {
        let this = ctx.address();
        ctx.receive().await?.send(());
        Ok::<_, Exit>(ctx.call(&address, |reply| (this, Some(reply))).await)
    });
    let pids = (rt.host().clone(), caller.pid(), answers.pid());
    assert!(observer.pids.set(pids).is_ok());
    caller.address().send((answers.address(), None)).unwrap();
    while observer.seen.lock().unwrap().is_none() && rt.processes_alive() != 0 {
        thread::yield_now();
    }
    // The test clones the value, because the value must stay in the observer. If the test took the value out of the
    // observer, the observer would read further graphs.
    let seen = observer.seen.lock().unwrap().clone();
    for pid in [caller.pid(), answers.pid()] {
        _ = rt.kill(pid);
    }
    seen
}

/// 9.2e: a call that has been answered is not an edge of the wait-for graph. The answer arrives after the worker has
/// recorded that the caller is blocked, but before the turn of the caller has ended.
#[test]
fn an_answered_call_is_no_edge_of_a_deadlock() {
    crate::within(60, || {
        // If the system interrupts the caller after the send, the caller may get the answer without waiting. The test
        // then tries again.
        let seen = std::iter::repeat_with(deadlocks_before_the_wait).find_map(|seen| seen);
        assert_eq!(seen, Some(Vec::new()));
    });
}

/// Observer that reads the graph during the exit of the process `child`. At this moment, the runtime has removed the
/// pid of `child`, but has not woken the process that awaits the join handle of `child`.
#[derive(Default)]
struct DuringTheExit {
    host: OnceLock<Host>,
    seen: Mutex<Option<WaitForGraph>>,
}

impl Observer for DuringTheExit {
    fn transition(&self, _: &Transition) {}

    fn ended(&self, _: Pid, name: Option<&str>, _: &'static str, _: &Exit) {
        if let (Some("child"), Some(host)) = (name, self.host.get()) {
            *self.seen.lock().unwrap() = Some(host.wait_for_graph());
        }
    }
}

/// 9.2e: a process waits for a call and for the exit of a child. While the child exits, the process is not part of a
/// deadlock, although its call is part of a cycle.
#[test]
fn a_join_that_is_about_to_end_is_no_deadlock() {
    let observer = Arc::new(DuringTheExit::default());
    let rt = Runtime::builder().workers(0).observer(Arc::clone(&observer)).build().unwrap();
    assert!(observer.host.set(rt.host().clone()).is_ok());
    let joins = async |ctx: Context<Question>| {
        let child = async |mut ctx: Context<u8>| _ = ctx.receive().await;
        let child = ctx.host().process().name("child").spawn(child).unwrap();
        _ = select(child, ctx.call("b", |reply: Question| reply)).await;
    };
    let joins = rt.process().name("a").spawn(joins).unwrap();
    calls(rt.host(), "b", "a");
    settle(&rt);
    assert_eq!((rt.wait_for_graph().edges.len(), rt.wait_for_graph().deadlocks), (3, vec![]));
    rt.host().send("child", 1_u8).unwrap();
    settle(&rt);
    let during = observer.seen.lock().unwrap().take().unwrap();
    assert_eq!((during.edges.len(), during.deadlocks), (2, vec![]));
    assert!(joins.is_finished());
}

/// 9.2c, 9.2e: a second snapshot confirms each deadlock. On two workers, two processes call each other alternately.
/// Both edges of a cycle occur, but never at the same time, so no deadlock is reported.
#[test]
fn edges_that_never_exist_at_the_same_time_form_no_deadlock() {
    crate::within(60, || {
        let rt = crate::two();
        let peer = |other: &'static str| {
            async move |mut ctx: Context<Question>| {
                loop {
                    ctx.receive().await?.send(());
                    while ctx.host().whereis(other).is_none() {
                        ctx.yield_now().await;
                    }
                    if ctx.call(other, |reply: Question| reply).await.is_err() {
                        return Ok::<_, Exit>(());
                    }
                }
            }
        };
        let a = rt.process().name("a").spawn(peer("b")).unwrap();
        rt.process().name("b").spawn(peer("a")).unwrap();
        futures::executor::block_on(a.address().call(|reply: Question| reply)).unwrap();
        let (mut from_a, mut from_b) = (0, 0);
        while from_a < 20 || from_b < 20 {
            let graph = rt.wait_for_graph();
            thread::yield_now();
            assert_eq!(graph.deadlocks, []);
            let count = graph.edges.iter().filter(|edge| edge.pid == a.pid()).count();
            from_a += count;
            from_b += graph.edges.len() - count;
        }
        for name in ["a", "b"] {
            if let Some(pid) = rt.whereis(name) {
                _ = rt.kill(pid);
            }
        }
    });
}

/// Reads the graph until it contains a deadlock.
fn until_deadlock(rt: &Runtime) -> WaitForGraph {
    loop {
        let graph = rt.wait_for_graph();
        if !graph.deadlocks.is_empty() {
            return graph;
        }
        thread::yield_now();
    }
}

/// 9.2d, 9.2e, 9.2g: two processes that call each other are deadlocked, even if one process awaits its call in
/// `block_on` inside a step. The details and the explanation show the wait.
#[test]
fn a_call_in_block_on_inside_a_step_is_an_edge_of_a_deadlock() {
    crate::within(60, || {
        for receives_first in [false, true] {
            let rt = Arc::new(crate::two());
            let inner = Arc::clone(&rt);
            let blocks = async move |mut ctx: Context<Question>| {
                // After a receive, the mailbox may still store the waker of its receiver. This waker must not count as
                // a wait for a message.
                let _unanswered = if receives_first { Some(ctx.receive().await.unwrap()) } else { None };
                // If the name is not registered yet, the call fails.
                while inner.whereis("b").is_none() {
                    thread::yield_now();
                }
                _ = inner.block_on(ctx.call("b", |reply: Question| reply));
            };
            let blocks = rt.process().name("a").spawn(blocks).unwrap();
            calls(rt.host(), "b", "a");
            let graph = until_deadlock(&rt);
            assert_deadlock(&graph, &["a", "b"], 0);
            let in_block_on: Vec<bool> = graph.edges.iter().map(|edge| edge.in_block_on).collect();
            assert_eq!(in_block_on, [true, false], "{graph:?}");
            let text = graph.deadlocks[0].to_string();
            assert_eq!(text.matches(", in `block_on`").count(), 1, "{text}");
            let details = rt.process_details(blocks.pid()).unwrap();
            assert_eq!(details.info.state, Some(ProcessState::Running));
            assert_eq!(details.waits_for, [graph.edges[0].waits_for.clone()]);
            let Explanation { findings, .. } = rt.explain();
            assert!(findings.iter().any(|finding| matches!(finding, Finding::Deadlock(_))), "{findings:?}");
            rt.kill(rt.whereis("b").unwrap()).unwrap();
            rt.block_on(blocks).unwrap();
            assert_eq!(rt.wait_for_graph(), WaitForGraph::default());
        }
    });
}

/// 9.2d, 9.2e: a call through an address is an edge, even if the call is polled with a waker of a combinator or of
/// `block_on`.
#[test]
fn a_call_through_an_address_is_an_edge_no_matter_which_waker_is_used() {
    let graph = graph_of(|host| {
        let collects = async |ctx: Context<Question>| {
            let callee = loop {
                match ctx.host().whereis("b").and_then(|pid| ctx.host().address::<Question>(pid)) {
                    Some(callee) => break callee,
                    None => ctx.yield_now().await,
                }
            };
            _ = FuturesUnordered::from_iter([callee.call(|reply: Question| reply)]).next().await;
        };
        host.process().name("a").spawn(collects).unwrap();
        calls(host, "b", "a");
    });
    assert_deadlock(&graph, &["a", "b"], 0);

    // The answer to one of the two calls would let `a` continue.
    let graph = graph_of(|host| {
        let answers_later = async |mut ctx: Context<Question>| {
            let _held = ctx.receive().await;
            pending::<()>().await;
        };
        let free = host.process().name("c").spawn(answers_later).unwrap().address();
        let selects = async move |ctx: Context<Question>| {
            let mut free = FuturesUnordered::from_iter([free.call(|reply: Question| reply)]);
            _ = select(ctx.call("b", |reply: Question| reply), free.next()).await;
        };
        host.process().name("a").spawn(selects).unwrap();
        calls(host, "b", "a");
    });
    assert_eq!((graph.edges.len(), &graph.deadlocks[..]), (3, &[][..]), "{graph:?}");

    crate::within(60, || {
        let rt = Arc::new(crate::two());
        let inner = Arc::clone(&rt);
        let blocks = async move |mut ctx: Context<Address<Question>>| {
            let callee = ctx.receive().await.unwrap();
            _ = inner.block_on(callee.call(|reply: Question| reply));
        };
        let blocks = rt.process().name("a").spawn(blocks).unwrap();
        let asks = async |ctx: Context<Question>| {
            let exited = ctx.host().whereis("a").unwrap();
            ctx.host().exited(exited).await;
        };
        blocks.send(rt.process().name("b").spawn(asks).unwrap().address()).unwrap();
        let graph = until_deadlock(&rt);
        assert_deadlock(&graph, &["a", "b"], 0);
        rt.kill(rt.whereis("b").unwrap()).unwrap();
        rt.block_on(blocks).unwrap();
        assert_eq!(rt.wait_for_graph(), WaitForGraph::default());
    });
}

/// 9.2b, 9.2e: the record of a multi-call and of `spawn_or_call` contains the callee, the time limit and the source
/// line of the call.
#[test]
fn a_multi_call_and_a_call_that_may_spawn_its_callee_are_edges_of_a_deadlock() {
    fn answers(host: &Host) {
        host.process()
            .name("b")
            .spawn(async |ctx: Context<Question>| _ = ctx.call("a", |reply: Question| reply).await)
            .unwrap();
    }
    let all = |host: &Host| {
        answers(host);
        let multi_calls = async |ctx: Context<Question>| _ = ctx.multi_call("b", |reply: Question| reply).await;
        host.process().name("a").spawn(multi_calls).unwrap();
    };
    let all_of_host = |host: &Host| {
        answers(host);
        let multi_calls = async |ctx: Context<Question>| {
            let callees = [ctx.host().address::<Question>(ctx.host().whereis("b").unwrap()).unwrap()];
            _ = ctx.host().multi_call(&callees, |reply: Question| reply).start().await;
        };
        host.process().name("a").spawn(multi_calls).unwrap();
    };
    let spawns = |host: &Host| {
        let spawn_or_calls = async |ctx: Context<Question>| {
            let callee = async |ctx: Context<Question>| _ = ctx.call("a", |reply: Question| reply).await;
            _ = ctx.process().name("b").spawn_or_call(|reply: Question| reply, callee).unwrap().await;
        };
        host.process().name("a").spawn(spawn_or_calls).unwrap();
    };
    let plants: [fn(&Host); 3] = [all, all_of_host, spawns];
    for plant in plants {
        let graph = graph_of(plant);
        assert_deadlock(&graph, &["a", "b"], 0);
        let text = graph.deadlocks[0].to_string();
        assert_eq!(text.matches("deadlocks.rs:").count(), 2, "{text}");
    }
    // A time limit may be set before or after the start of the multi-call.
    for starts in [false, true] {
        let graph = graph_of(|host| {
            answers(host);
            let multi_calls = async move |ctx: Context<Question>| {
                let call = ctx.multi_call("b", |reply: Question| reply);
                let call = if starts { call.start().timeout(HOUR) } else { call.timeout(HOUR) };
                _ = call.await;
            };
            host.process().name("a").spawn(multi_calls).unwrap();
        });
        assert_eq!((graph.edges.len(), &graph.deadlocks[..]), (2, &[][..]), "{graph:?}");
        let is_limited = |edge: &WaitEdge| matches!(edge.waits_for, WaitsFor::Call { is_limited: true, .. });
        assert_eq!(graph.edges.iter().filter(|edge| is_limited(edge)).count(), 1, "{graph:?}");
    }
}

/// 9.2d: if the future of a call through an address moves to another process, the call has no edge. The process that
/// made the call no longer waits for the answer.
#[test]
fn a_call_that_moves_to_another_process_has_no_edge() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let callee = rt.spawn(async |_: Context<Question>| pending::<()>().await).address();
    let awaits = rt.spawn(async |mut ctx: Context<future::Call<()>>| {
        let call = ctx.receive().await.unwrap();
        _ = call.await;
    });
    let to = awaits.address();
    let makes = rt.spawn(async move |mut ctx: Context<()>| {
        let mut call = callee.call(|reply: Question| reply);
        assert!(futures::poll!(&mut call).is_pending());
        _ = ctx.receive().await;
        to.send(call).unwrap();
        pending::<()>().await;
    });
    settle(&rt);
    assert_eq!(rt.wait_for_graph().edges.len(), 1);
    makes.send(()).unwrap();
    settle(&rt);
    assert_eq!(rt.wait_for_graph(), WaitForGraph::default());
    assert_eq!(rt.process_details(makes.pid()).unwrap().info.waits, 0);
}

/// 9.2d, 9.2e: if a step waits in `block_on` for an exit, a start or free mailbox space, this wait is also an edge of a
/// deadlock.
#[test]
fn each_kind_of_wait_in_block_on_is_an_edge_of_a_deadlock() {
    async fn child(ctx: Context<u8>) {
        _ = ctx.call("a", |reply: Question| reply).await;
    }
    type Inner = fn(&Runtime, &Context<Question>);
    let inners: [Inner; 3] = [
        |rt, ctx| _ = rt.block_on(ctx.process().name("b").spawn(child).unwrap()),
        |rt, ctx| _ = rt.block_on(ctx.process().name("b").manual_start().spawn(child).unwrap().started()),
        |rt, ctx| {
            let full = ctx.process().name("b").mailbox_capacity(MailboxCapacity::Reject(1)).spawn(child).unwrap();
            full.send(1).unwrap();
            _ = rt.block_on(full.send_wait(2));
        },
    ];
    crate::within(60, move || {
        for block in inners {
            let rt = Arc::new(crate::two());
            let inner = Arc::clone(&rt);
            let blocks = async move |ctx: Context<Question>| block(&inner, &ctx);
            let blocks = rt.process().name("a").spawn(blocks).unwrap();
            let graph = until_deadlock(&rt);
            assert_deadlock(&graph, &["a", "b"], 0);
            assert_eq!(graph.edges.iter().filter(|edge| edge.in_block_on).count(), 1, "{graph:?}");
            rt.kill(rt.whereis("b").unwrap()).unwrap();
            rt.block_on(blocks).unwrap();
        }
    });
}

/// 9.2e: a process starts a join and a call, and then blocks its thread in `block_on`. While the process is inside
/// `block_on`, the process counts as waiting only for the future in `block_on`. If the runtime does not know which
/// event completes this future, the process is not part of a deadlock.
#[test]
fn a_process_in_block_on_does_not_wait_for_its_earlier_operations() {
    crate::within(60, || {
        let rt = Arc::new(crate::two());
        let inner = Arc::clone(&rt);
        let (begun, has_begun) = std::sync::mpsc::channel();
        let (goes_on, event) = futures::channel::oneshot::channel::<()>();
        let blocks = async move |ctx: Context<Question>| {
            let child = async |ctx: Context| _ = ctx.call("a", |reply: Question| reply).await;
            let joined = ctx.process().name("child").spawn(child).unwrap();
            let call = ctx.call("b", |reply: Question| reply);
            let mut waits = Box::pin(select(joined, call));
            assert!(futures::poll!(&mut waits).is_pending());
            inner.block_on(async {
                begun.send(()).unwrap();
                event.await.unwrap();
            });
            _ = waits.await;
        };
        let blocks = rt.process().name("a").spawn(blocks).unwrap();
        calls(rt.host(), "b", "a");
        has_begun.recv().unwrap();
        let b = rt.whereis("b").unwrap();
        // The number of graphs in which `b` waits for the blocked process.
        let mut edges = 0;
        while edges < 500 {
            let graph = rt.wait_for_graph();
            assert!(graph.edges.iter().all(|edge| edge.pid != blocks.pid()), "{graph:?}");
            assert_eq!(graph.deadlocks, []);
            assert_eq!(rt.process_details(blocks.pid()).unwrap().waits_for, []);
            edges += graph.edges.iter().filter(|edge| (edge.pid, edge.target) == (b, blocks.pid())).count();
        }
        goes_on.send(()).unwrap();
        // Now the process itself waits for both operations.
        let graph = until_deadlock(&rt);
        assert_eq!(graph.edges.iter().filter(|edge| edge.pid == blocks.pid() && !edge.in_block_on).count(), 2);
        for name in ["child", "b", "a"] {
            _ = rt.whereis(name).map(|pid| rt.kill(pid));
        }
        _ = rt.block_on(blocks);
    });
}

/// 9.2c, 9.2e: two processes call each other alternately. One of the two processes makes its calls in `block_on` inside
/// a step. Both edges of a cycle occur, but never at the same time, so no deadlock is reported.
#[test]
fn an_answered_call_in_block_on_is_no_edge() {
    crate::within(60, || {
        let rt = Arc::new(crate::two());
        let peer = |other: &'static str, inner: Option<Arc<Runtime>>| {
            async move |mut ctx: Context<Question>| {
                loop {
                    ctx.receive().await?.send(());
                    while ctx.host().whereis(other).is_none() {
                        ctx.yield_now().await;
                    }
                    let call = ctx.call(other, |reply: Question| reply);
                    let answer = match &inner {
                        Some(rt) => rt.block_on(call),
                        None => call.await,
                    };
                    if answer.is_err() {
                        return Ok::<_, Exit>(());
                    }
                }
            }
        };
        let one = rt.process().name("a").spawn(peer("b", Some(Arc::clone(&rt)))).unwrap();
        let other = rt.process().name("b").spawn(peer("a", None)).unwrap();
        futures::executor::block_on(one.address().call(|reply: Question| reply)).unwrap();
        let (mut in_block_on, mut others) = (0, 0);
        while in_block_on < 100 || others < 100 {
            let graph = rt.wait_for_graph();
            thread::yield_now();
            assert_eq!(graph.deadlocks, []);
            let count = graph.edges.iter().filter(|edge| edge.in_block_on).count();
            in_block_on += count;
            others += graph.edges.len() - count;
        }
        // At this moment, each process may wait for the other process, or may be looking up the name of the other
        // process.
        for pid in [other.pid(), one.pid()] {
            _ = rt.kill(pid);
        }
        _ = (rt.block_on(one), rt.block_on(other));
    });
}

/// Returns the address of the process with this name, as soon as the process is alive.
async fn find(ctx: &Context<Question>, name: &str) -> Address<Question> {
    loop {
        match ctx.host().whereis(name).and_then(|pid| ctx.host().address(pid)) {
            Some(address) => return address,
            None => ctx.yield_now().await,
        }
    }
}

/// Spawns a process with the name `name`. The process forwards its first request to the process `to`. If `calls` names
/// a process, the forwarding process then calls this process. Otherwise the forwarding process waits forever.
fn forwards(host: &Host, name: &'static str, to: &'static str, calls: Option<&'static str>) {
    let body = async move |mut ctx: Context<Question>| {
        let to = find(&ctx, to).await;
        ctx.receive().await.unwrap().forward(&to, |reply| reply).unwrap();
        match calls {
            Some(callee) => _ = ctx.call(callee, |reply: Question| reply).await,
            None => pending().await,
        }
    };
    host.process().name(name).spawn(body).unwrap();
}

/// Spawns a process with the name `name`. The process does not answer its first request, and calls the process
/// `callee`.
fn keeps_and_calls(host: &Host, name: &'static str, callee: &'static str) {
    let body = async move |mut ctx: Context<Question>| {
        let _kept = ctx.receive().await;
        _ = ctx.call(callee, |reply: Question| reply).await;
    };
    host.process().name(name).spawn(body).unwrap();
}

/// Returns the callees of the calls that the process awaits.
fn callees(host: &Host, pid: Pid) -> Vec<Option<Pid>> {
    let callee = |wait| if let WaitsFor::Call { callee, .. } = wait { Some(callee) } else { None };
    host.process_details(pid).unwrap().waits_for.into_iter().filter_map(callee).collect()
}

/// 9.2d, 9.2e: a forwarded reply is an edge to the process that must answer. The reply may have been forwarded several
/// times. A process that has forwarded the reply belongs to no deadlock, even if this process calls the caller.
#[test]
fn the_receiver_of_a_forwarded_reply_is_part_of_a_deadlock() {
    let graph = graph_of(|host| {
        calls(host, "a", "b");
        forwards(host, "b", "c", None);
        keeps_and_calls(host, "c", "a");
    });
    assert_deadlock(&graph, &["a", "c"], 0);
    let graph = graph_of(|host| {
        calls(host, "a", "b");
        forwards(host, "b", "c", Some("a"));
        forwards(host, "c", "d", Some("a"));
        keeps_and_calls(host, "d", "a");
    });
    assert_deadlock(&graph, &["a", "d"], 2);
}

/// 9.2d, 9.2e: a process has forwarded a reply, and then calls the caller that waits for this reply. The process is not
/// deadlocked. After the answer, the caller makes another call. The wait-for graph then has an edge to the process that
/// receives the request of this call.
#[test]
fn a_process_that_has_forwarded_a_reply_may_call_the_caller() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let answers = rt.spawn(async |mut ctx: Context<Option<Question>>| {
        let question = ctx.receive().await.unwrap().expect("the first message contains the question");
        assert!(ctx.receive().await.unwrap().is_none());
        question.send(());
        pending::<()>().await;
    });
    let to = answers.address();
    let front = rt.spawn(async move |mut ctx: Context<(Question, Address<Question>)>| {
        let (question, caller) = ctx.receive().await.unwrap();
        question.forward(&to, Some).unwrap();
        caller.call(|reply: Question| reply).await.unwrap();
        let _kept = ctx.receive().await;
        pending::<()>().await;
    });
    let to = front.address();
    let caller = rt.spawn(async move |mut ctx: Context<Question>| {
        let own = ctx.address();
        ctx.call(&to, |reply: Question| (reply, own.clone())).await.unwrap();
        ctx.receive().await.unwrap().send(());
        _ = ctx.call(&to, |reply: Question| (reply, own.clone())).await;
    });
    settle(&rt);
    let graph = rt.wait_for_graph();
    let mut edges: Vec<_> = graph.edges.iter().map(|edge| (edge.pid, edge.target)).collect();
    edges.sort_unstable();
    let mut expected = [(caller.pid(), answers.pid()), (front.pid(), caller.pid())];
    expected.sort_unstable();
    assert_eq!((&edges[..], &graph.deadlocks[..]), (&expected[..], &[][..]));
    assert_eq!(callees(&rt, caller.pid()), [Some(answers.pid())]);
    answers.send(None).unwrap();
    settle(&rt);
    assert_eq!(callees(&rt, caller.pid()), [Some(front.pid())]);
}

/// 9.2d: if a forward is refused, the forwarding process gets the message with the reply back, and must still answer.
/// The refused forward may be the first forward of the reply or a later forward.
#[test]
fn a_refused_forward_changes_no_edge() {
    /// Spawns a process that tries to forward its first request to an exited process, and then calls the process `a`.
    fn fails_to_forward(host: &Host, name: &'static str, exited: &Address<Question>) {
        let exited = exited.clone();
        let body = async move |mut ctx: Context<Question>| {
            let mut reply = ctx.receive().await.unwrap();
            for _ in 0..3 {
                let refused = reply.forward(&exited, |reply| reply).unwrap_err();
                assert_eq!(refused.kind(), SendErrorKind::NoProcess);
                reply = refused.into_message();
            }
            let answer = ctx.call("a", |reply: Question| reply).await;
            assert!(answer.is_err(), "the process `a` was aborted");
            assert_eq!(reply.try_send(()), Err(()), "the process `a` has exited");
        };
        host.process().name(name).spawn(body).unwrap();
    }
    let rt = Runtime::builder().workers(0).build().unwrap();
    let exited = rt.spawn(async |_: Context<Question>| ());
    let address = exited.address();
    rt.block_on(exited).unwrap();
    for is_first in [true, false] {
        let (name, first) = if is_first { ("b", "b") } else { ("c", "b") };
        fails_to_forward(&rt, name, &address);
        if !is_first {
            forwards(&rt, first, name, None);
        }
        calls(&rt, "a", first);
        settle(&rt);
        assert_deadlock(&rt.wait_for_graph(), &["a", name], 0);
        for name in ["a", "b"] {
            rt.whereis(name).into_iter().for_each(|pid| rt.kill(pid).unwrap());
        }
        settle(&rt);
        assert_eq!(["a", "b", "c"].map(|name| rt.whereis(name)), [None; 3]);
    }
    // The reply inside the refused message still answers the call.
    let front = rt.spawn(async move |mut ctx: Context<Question>| {
        let refused = ctx.receive().await.unwrap().forward(&address, |reply| reply).unwrap_err();
        refused.into_message().send(());
    });
    assert_eq!(rt.block_on(front.call(|reply: Question| reply)), Ok(()));
}

/// 9.2d: a caller drops a call whose reply was forwarded. The next call of this caller has an edge to the process
/// that receives the new request. The process that holds the forwarded reply finds that the call is closed.
#[test]
fn a_dropped_call_leaves_no_forwarded_reply() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let holds = rt.spawn(async |mut ctx: Context<Question>| ctx.receive().await.unwrap().closed().await);
    let to = holds.address();
    let front = rt.spawn(async move |mut ctx: Context<Question>| {
        ctx.receive().await.unwrap().forward(&to, |reply| reply).unwrap();
        let _kept = ctx.receive().await;
        pending::<()>().await;
    });
    let to = front.address();
    let caller = rt.spawn(async move |mut ctx: Context<()>| {
        let call = ctx.call(&to, |reply: Question| reply);
        let Either::Right(_) = select(call, Box::pin(ctx.receive())).await else { panic!("the call is not answered") };
        _ = ctx.call(&to, |reply: Question| reply).await;
    });
    settle(&rt);
    assert_eq!(callees(&rt, caller.pid()), [Some(holds.pid())]);
    caller.send(()).unwrap();
    settle(&rt);
    assert_eq!(callees(&rt, caller.pid()), [Some(front.pid())]);
    assert_eq!(rt.block_on(holds), Ok(()));
}

/// 9.2d, 9.2e: a reply is forwarded to a process of another runtime. The call then has no known callee, and the caller
/// is not deadlocked. A process of another runtime may also forward a reply to a process of the caller's runtime. The
/// callee is then known.
#[test]
fn a_forward_to_another_runtime_has_no_edge() {
    let [rt, other] = [0, 1].map(|_| Runtime::builder().workers(0).build().unwrap());
    let to = other.spawn(async |_: Context<Question>| pending::<()>().await).address();
    calls(&rt, "a", "b");
    let front = async move |mut ctx: Context<Question>| {
        ctx.receive().await.unwrap().forward(&to, |reply| reply).unwrap();
        _ = ctx.call("a", |reply: Question| reply).await;
    };
    let front = rt.process().name("b").spawn(front).unwrap();
    settle(&rt);
    let caller = rt.whereis("a").unwrap();
    let graph = rt.wait_for_graph();
    assert_eq!((graph.edges.len(), graph.edges[0].pid, &graph.deadlocks[..]), (1, front.pid(), &[][..]));
    assert_eq!(callees(&rt, caller), [None]);
    rt.kill(caller).unwrap();
    settle(&rt);

    keeps_and_calls(&rt, "c", "a");
    settle(&rt);
    let to = rt.address::<Question>(rt.whereis("c").unwrap()).unwrap();
    let front = other.spawn(async move |mut ctx: Context<Question>| {
        ctx.receive().await.unwrap().forward(&to, |reply| reply).unwrap();
        pending::<()>().await;
    });
    let to = front.address();
    let caller = async move |ctx: Context<Question>| _ = ctx.call(&to, |reply: Question| reply).await;
    rt.process().name("a").spawn(caller).unwrap();
    [&rt, &other, &rt].into_iter().for_each(settle);
    assert_deadlock(&rt.wait_for_graph(), &["a", "c"], 0);
}

/// 9.2d: a reply is forwarded outside a step. The first forward of the reply only sends the message, and does not
/// change the callee of the call. A later forward also changes the callee.
#[test]
fn outside_a_step_a_later_forward_changes_the_callee_but_the_first_forward_does_not() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let kept: Arc<Mutex<Option<Question>>> = Arc::default();
    let keeps = |kept: Arc<Mutex<Option<Question>>>| {
        rt.spawn(async move |mut ctx: Context<Question>| {
            *kept.lock().unwrap() = ctx.receive().await.ok();
            pending::<()>().await;
        })
    };
    let last = keeps(Arc::default());
    let caller = |to: Address<Question>| {
        let caller = rt.spawn(async move |ctx: Context<Question>| _ = ctx.call(&to, |reply: Question| reply).await);
        settle(&rt);
        let reply = kept.lock().unwrap().take().expect("the request has arrived");
        reply.forward(&last.address(), |reply| reply).unwrap();
        callees(&rt, caller.pid())
    };
    let keeper = keeps(Arc::clone(&kept));
    assert_eq!(caller(keeper.address()), [Some(keeper.pid())]);
    let (keeper, to) = (keeps(Arc::clone(&kept)), OnceLock::new());
    to.set(keeper.address()).unwrap();
    let front = rt.spawn(async move |mut ctx: Context<Question>| {
        ctx.receive().await.unwrap().forward(to.get().unwrap(), |reply| reply).unwrap();
        pending::<()>().await;
    });
    assert_eq!(caller(front.address()), [Some(last.pid())]);
}

/// 9.2d, 9.2e: a process awaits a call in `block_on` inside a step. In this case too, the edge of the call leads to the
/// process that received the forwarded reply.
#[test]
fn a_forwarded_call_in_block_on_is_an_edge_of_a_deadlock() {
    crate::within(60, || {
        let rt = Arc::new(crate::two());
        let inner = Arc::clone(&rt);
        forwards(&rt, "b", "c", None);
        keeps_and_calls(&rt, "c", "a");
        let blocks = async move |ctx: Context<Question>| _ = inner.block_on(ctx.call("b", |reply: Question| reply));
        let blocks = rt.process().name("a").spawn(blocks).unwrap();
        let graph = until_deadlock(&rt);
        assert_deadlock(&graph, &["a", "c"], 0);
        assert_eq!(callees(&rt, blocks.pid()), [rt.whereis("c")]);
        rt.kill(rt.whereis("c").unwrap()).unwrap();
        rt.block_on(blocks).unwrap();
    });
}

/// 9.2e: a process starts a first call, and the callee forwards the reply of this call. Then a step of the process
/// calls the same callee again, in `block_on`. The runtime cannot tell the two calls apart, so the runtime reports no
/// deadlock.
#[test]
fn a_forwarded_reply_of_an_earlier_call_makes_no_deadlock_in_block_on() {
    crate::within(60, || {
        let rt = Arc::new(crate::two());
        let (inner, forwarded) = (Arc::clone(&rt), Arc::new(AtomicBool::new(false)));
        keeps_and_calls(&rt, "c", "a");
        let sets = Arc::clone(&forwarded);
        let callee = async move |mut ctx: Context<Question>| {
            let to = find(&ctx, "c").await;
            ctx.receive().await?.forward(&to, |reply| reply).unwrap();
            sets.store(true, SeqCst);
            let second = ctx.receive().await?;
            pending::<()>().await;
            drop(second);
            Ok::<_, Exit>(())
        };
        rt.process().name("b").spawn(callee).unwrap();
        let blocks = async move |ctx: Context<Question>| {
            let first = ctx.call("b", |reply: Question| reply).start();
            while !forwarded.load(SeqCst) {
                ctx.yield_now().await;
            }
            _ = inner.block_on(ctx.call("b", |reply: Question| reply));
            drop(first);
        };
        let blocks = rt.process().name("a").spawn(blocks).unwrap();
        let is_call_of = |pid, callee| callees(&rt, pid) == [Some(callee)];
        let [b, c] = ["b", "c"].map(|name| rt.whereis(name).unwrap());
        while !is_call_of(c, blocks.pid()) || !is_call_of(blocks.pid(), b) {
            thread::yield_now();
        }
        assert_eq!(rt.wait_for_graph().deadlocks, []);
        rt.kill(b).unwrap();
        rt.block_on(blocks).unwrap();
    });
}

/// 9.2e: the reply of an earlier call was forwarded. The callee of the call in `block_on` is not the callee of this
/// earlier call. The runtime can tell these calls apart, so the runtime reports the deadlock.
#[test]
fn a_forwarded_reply_of_an_earlier_call_hides_no_deadlock_with_another_callee() {
    crate::within(60, || {
        let rt = Arc::new(crate::two());
        let inner = Arc::clone(&rt);
        forwards(&rt, "b", "c", None);
        rt.process().name("c").spawn(async |_: Context<Question>| pending::<()>().await).unwrap();
        keeps_and_calls(&rt, "d", "a");
        let blocks = async move |ctx: Context<Question>| {
            let first = ctx.call("b", |reply: Question| reply).start();
            while callees(ctx.host(), ctx.pid()).is_empty() && ctx.host().whereis("d").is_none() {
                ctx.yield_now().await;
            }
            _ = inner.block_on(ctx.call("d", |reply: Question| reply));
            drop(first);
        };
        let blocks = rt.process().name("a").spawn(blocks).unwrap();
        assert_deadlock(&until_deadlock(&rt), &["a", "d"], 0);
        rt.kill(rt.whereis("d").unwrap()).unwrap();
        rt.block_on(blocks).unwrap();
    });
}

/// A request of the test with many forwards. The request contains the address of its sender. Each process `front`
/// forwards the request and then calls the sender.
enum Passed {
    Ask(u64, Address<Question>, Question),
}

/// Answers, drops or forwards each request. This process waits for no other process.
async fn back(mut ctx: Context<Passed>, next: Option<Address<Passed>>) -> Result<(), Exit> {
    loop {
        let Passed::Ask(chance, caller, reply) = ctx.receive().await?;
        for _ in 0..chance % 3 {
            ctx.yield_now().await;
        }
        match (chance / 3 % 4, &next) {
            (0, _) => drop(reply),
            (1 | 2, Some(next)) => _ = reply.forward(next, |reply| Passed::Ask(chance / 7, caller, reply)),
            _ => reply.send(()),
        }
    }
}

/// Forwards each request to the process `back`, and then calls the process that made the request.
async fn front(mut ctx: Context<Passed>, back: Address<Passed>) -> Result<(), Exit> {
    loop {
        let Passed::Ask(chance, caller, reply) = ctx.receive().await?;
        let message = |reply| Passed::Ask(chance / 5, caller.clone(), reply);
        if let Err(refused) = reply.forward(&back, message) {
            let Passed::Ask(_, _, reply) = refused.into_message();
            reply.send(());
        }
        _ = ctx.call(&caller, |reply: Question| reply).await;
    }
}

/// 9.2e: processes forward, answer, drop and abandon many calls at the same time. Each process `front` forwards the
/// reply, and then calls the caller. At that time, the caller may still wait for the answer to the forwarded call. No
/// deadlock is reported, on two workers and in simulations.
#[test]
fn forwarded_replies_cause_no_false_deadlock_under_load() {
    everywhere(async |host: Host| {
        let last = host.spawn(async |ctx: Context<Passed>| back(ctx, None).await);
        let next = last.address();
        let body = async move |ctx: Context<Passed>| back(ctx, Some(next)).await;
        let middle = host.process().mailbox_capacity(MailboxCapacity::Reject(2)).spawn(body).unwrap();
        let fronts: Vec<_> = (0..3)
            .map(|_| {
                let to = middle.address();
                host.spawn(async move |ctx: Context<Passed>| front(ctx, to).await)
            })
            .collect();
        let clients: Vec<_> = (0..6)
            .map(|number| {
                let to = fronts[number % fronts.len()].address();
                host.spawn(async move |mut ctx: Context<Question>| {
                    for _ in 0..30 {
                        let (chance, own) = (ctx.random(), ctx.address());
                        let call = ctx.call(&to, |reply| Passed::Ask(chance >> 8, own, reply));
                        if chance % 4 == 0 {
                            _ = select(call.start(), Box::pin(ctx.yield_now())).await;
                        } else {
                            _ = call.await;
                        }
                        ctx.receive().await.unwrap().send(());
                    }
                })
            })
            .collect();
        let inspected = host.clone();
        let inspector = host.spawn(async move |ctx: Context| {
            while !ctx.is_cancelled() {
                assert_eq!(inspected.wait_for_graph().deadlocks, []);
                ctx.yield_now().await;
            }
        });
        for client in clients {
            client.await.unwrap();
        }
        host.cancel(inspector.pid(), "the clients are done", HOUR).unwrap();
        inspector.await.unwrap();
        fronts.iter().chain([&middle, &last]).for_each(|process| process.abort());
    });
}

/// 9.2d, 9.2e: a send or a call waits for free space in a mailbox, and has a time limit. This send or call is not part
/// of a deadlock, because the time limit ends the wait. The time limit may be set before or after the first poll.
#[test]
fn a_limited_wait_for_mailbox_space_is_no_deadlock() {
    type Body = fn(Context<Question>, &'static str) -> futures::future::BoxFuture<'static, ()>;
    let bodies: [(Body, bool); 3] = [
        (|ctx, to| Box::pin(async move { _ = ctx.call_wait(to, |reply: Question| reply).await }), false),
        (|ctx, to| Box::pin(async move { _ = ctx.call_wait(to, |reply: Question| reply).timeout(HOUR).await }), true),
        (
            |ctx, to| {
                Box::pin(async move {
                    let mut call = ctx.call_wait(to, |reply: Question| reply);
                    assert!(futures::poll!(&mut call).is_pending());
                    _ = call.timeout(HOUR).await;
                })
            },
            true,
        ),
    ];
    for (body, is_limited) in bodies {
        let graph = graph_of(|host| {
            for (own, other) in [("a", "b"), ("b", "a")] {
                let process = host.process().name(own).mailbox_capacity(MailboxCapacity::Reject(1));
                let process = process.spawn(async move |ctx: Context<Question>| body(ctx, other).await).unwrap();
                // This request fills the mailbox. The test drops the call immediately, and does not wait for the
                // answer.
                drop(process.call(|reply: Question| reply).start());
            }
        });
        assert_eq!(graph.deadlocks.is_empty(), is_limited, "{graph:?}");
        let limited = |edge: &WaitEdge| matches!(edge.waits_for, WaitsFor::Room { is_limited: true, .. });
        assert_eq!(graph.edges.iter().filter(|edge| limited(edge)).count(), if is_limited { 2 } else { 0 });
        let text = graph.edges[0].to_string();
        assert_eq!(text.contains("with a time limit"), is_limited, "{text}");
    }
}

/// 9.2d: the reply to a yielded call of a hand-written process was forwarded. A later step waits in `block_on` for a
/// second call to the same process. The reply of the second call was not forwarded, so the callee of the second call is
/// still this process.
#[test]
fn the_forwarded_reply_of_a_yielded_call_does_not_change_a_call_in_block_on() {
    struct Blocks {
        rt: Arc<Runtime>,
        b: Address<Question>,
    }
    impl Process for Blocks {
        type Message = ();
        type Output = ();
        fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
            if events.count() == 0 {
                out.call(&self.b, |reply: Question| reply);
            } else {
                _ = self.rt.block_on(self.b.call(|reply| reply));
            }
            Ok(Next::Wait)
        }
    }
    crate::within(60, || {
        let rt = Arc::new(Runtime::builder().workers(1).long_step_threshold(Duration::MAX).build().unwrap());
        let keeps = rt.spawn(async |mut ctx: Context<Question>| {
            let _kept = ctx.receive().await;
            pending::<()>().await;
        });
        let keeper = keeps.address();
        let b = rt.spawn(async move |mut ctx: Context<Question>| {
            ctx.receive().await.unwrap().forward(&keeper, |reply| reply).unwrap();
            let _kept = ctx.receive().await;
            pending::<()>().await;
        });
        let b = b.address();
        let a = rt.spawn_process(Blocks { rt: Arc::clone(&rt), b: b.clone() });
        let targets = || {
            let edges = rt.wait_for_graph().edges.into_iter().filter(|edge| edge.pid == a.pid());
            edges.map(|edge| (edge.target, edge.in_block_on)).collect::<Vec<_>>()
        };
        let eventually = |expected: &[(Pid, bool)]| {
            while targets() != expected {
                thread::park_timeout(Duration::from_millis(1));
            }
        };
        eventually(&[(keeps.pid(), false)]);
        a.send(()).unwrap();
        eventually(&[(b.pid(), true)]);
        let waits_for = || rt.process_details(a.pid()).unwrap().waits_for;
        assert_eq!(waits_for().iter().filter_map(WaitsFor::process).collect::<Vec<_>>(), [b.pid()]);
        assert!(rt.wait_for_graph().deadlocks.is_empty());
        rt.kill(b.pid()).unwrap();
        eventually(&[(keeps.pid(), false)]);
    });
}

/// 9.2b, 9.2d: a call of a hand-written process has an edge to the process that must answer. The edge belongs to no
/// deadlock, because the process also handles messages. When the call ends, the edge disappears.
#[test]
fn a_call_by_a_hand_written_process_has_an_edge() {
    /// Line of the assertion in the step.
    const STEP: u32 = line!() + 12;
    /// Makes two calls in its first step, and keeps all requests.
    #[derive(Default)]
    struct ByHand {
        is_started: bool,
        kept: Vec<Question>,
    }
    impl Process for ByHand {
        type Message = Question;
        type Output = ();
        fn step(&mut self, events: Events<'_, Question>, out: &mut StepOutput<'_, Question>) -> Result<Next<()>, Exit> {
            if !self.is_started {
                const { assert!(STEP == line!()) };
                let limited = out.call("b", |reply: Question| reply);
                out.set_timeout(limited, HOUR);
                out.call("d", |reply: Question| reply);
                out.sleep(HOUR);
                self.is_started = true;
            }
            let requests =
                events.filter_map(|event| if let Event::Message(request) = event { Some(request) } else { None });
            self.kept.extend(requests);
            Ok(Next::Wait)
        }
    }
    let rt = Runtime::builder().workers(0).build().unwrap();
    forwards(rt.host(), "b", "c", None);
    keeps_and_calls(rt.host(), "c", "a");
    let d = rt.process().name("d").spawn(async |mut ctx: Context<Question>| {
        let _kept = ctx.receive().await;
        pending::<()>().await;
    });
    let d = d.unwrap().pid();
    settle(&rt);
    let a = rt.process().name("a").spawn_process(ByHand::default()).unwrap().pid();
    settle(&rt);
    let call = |callee, is_limited, line| {
        let waits_for = rt.process_details(a).unwrap().waits_for.into_iter();
        let found = waits_for.filter(|wait| wait.process() == Some(callee)).collect::<Vec<_>>();
        let [WaitsFor::Call { is_limited: limit, line: Some(source), .. }] = found[..] else { panic!("{found:?}") };
        assert_eq!((limit, source.file(), source.line()), (is_limited, file!(), STEP + line));
    };
    let c = rt.whereis("c").unwrap();
    call(c, true, 1);
    call(d, false, 3);
    let targets = || {
        let graph = rt.wait_for_graph();
        assert!(graph.deadlocks.is_empty(), "{graph:?}");
        let from_a = graph.edges.into_iter().filter(|edge| edge.pid == a && edge.name.as_deref() == Some("a"));
        from_a.map(|edge| edge.target).collect::<Vec<_>>()
    };
    assert_eq!(targets(), [c, d]);
    let details = rt.process_details(a).unwrap();
    let sleep = details.waits_for.iter().filter(|wait| matches!(wait, WaitsFor::Command(_))).collect::<Vec<_>>();
    let [WaitsFor::Command(sleep)] = sleep[..] else { panic!("{sleep:?}") };
    assert_eq!((sleep.count, sleep.line.map(|line| line.line())), (1, Some(STEP + 4)));
    let activity = rt.explain().activity;
    assert_eq!((activity.for_call, activity.for_command), (2, 1), "a and c wait for calls");
    assert_eq!(details.yields.iter().map(|command| command.count).sum::<usize>(), 3);
    rt.kill(d).unwrap();
    settle(&rt);
    assert_eq!(targets(), [c]);
}

//! Section 2.5 of the specification: names, groups, and `spawn_or_send`.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use procession::*;

use crate::{everywhere, two, within};

const SUM: Name<u64> = Name::new("sum");

fn lone() -> Runtime {
    Runtime::builder().workers(0).build().unwrap()
}

/// Body that sums up the received messages until a zero arrives.
async fn sum(mut ctx: Context<u64>) -> Result<u64, Exit> {
    let mut sum = 0;
    loop {
        match ctx.receive().await? {
            0 => return Ok(sum),
            n => sum += n,
        }
    }
}

/// 2.5a, 2.5b: a name resolves to its process in sends, calls and `whereis`. From the spawn until the exit of the
/// process, the name resolves, even before the first step. After the exit, the name is free.
#[test]
fn a_name_resolves_to_its_process_until_the_exit() {
    let rt = lone();
    let handle = rt.process().name(SUM).spawn(sum).unwrap();
    assert_eq!((rt.whereis("sum"), rt.whereis(SUM)), (Some(handle.pid()), Some(handle.pid())));
    rt.send(SUM, 3).unwrap();
    rt.send("sum", 4_u64).unwrap();
    let wrong = rt.send("sum", 'x').unwrap_err();
    assert_eq!((wrong.kind(), wrong.into_message()), (SendErrorKind::WrongType { expected: "u64" }, 'x'));
    let wrong = rt.block_on(rt.call("sum", |reply: Reply<()>| reply));
    assert!(matches!(wrong, Err(CallError::Send(SendErrorKind::WrongType { expected: "u64" }))), "{wrong:?}");
    let to = rt.block_on(rt.spawn(async |ctx: Context| {
        ctx.send(SUM, 5)?;
        Ok::<_, Exit>(ctx.host().whereis(SUM))
    }));
    assert_eq!(to.unwrap(), Some(handle.pid()));
    rt.send(SUM, 0).unwrap();
    assert_eq!(rt.block_on(handle).unwrap(), 12);
    assert_eq!(rt.whereis(SUM), None);
    let refused = rt.send(SUM, 1).unwrap_err();
    assert_eq!((refused.kind(), refused.into_message()), (SendErrorKind::NoProcess, 1));
    assert!(matches!(
        rt.block_on(rt.call("sum", |reply: Reply<()>| reply)),
        Err(CallError::Send(SendErrorKind::NoProcess))
    ));
}

/// 2.5a: a call to a name resolves the name when the call is sent, not when the call is created.
#[test]
fn a_call_resolves_its_name_when_it_is_sent() {
    let rt = lone();
    let call = rt.call(format!("late-{}", 1).as_str(), |reply: Reply<u8>| reply);
    let _ = rt.process().name("late-1").spawn(async |mut ctx: Context<Reply<u8>>| -> Result<(), Exit> {
        ctx.receive().await?.send(7);
        Ok(())
    });
    assert_eq!(rt.block_on(call).unwrap(), 7);
}

/// 2.5c: a spawn with a taken name fails. The error contains the pid of the process that has the name, and returns the
/// body.
#[test]
fn a_spawn_with_a_taken_name_fails_and_the_error_contains_the_holder() {
    let rt = lone();
    let first = rt.process().name(SUM).spawn(sum).unwrap();
    let alive = rt.processes_alive();
    let (address, mailbox) = rt.mailbox::<u64>();
    let taken = NameError::Taken { name: "sum".into(), holder: first.pid() };
    assert_eq!(mailbox.register(SUM).unwrap_err(), taken);
    let second = rt.process().name("sum").spawn(sum).unwrap_err();
    assert_eq!(*second.kind(), SpawnErrorKind::NameTaken(first.pid()));
    assert_eq!(rt.processes_alive(), alive);
    let body = second.into_body();
    let second = rt.spawn(body);
    let by_body = rt.block_on(rt.spawn(async |ctx: Context<u64>| ctx.register(SUM)));
    assert!(by_body.unwrap_err().to_string().contains(&taken.to_string()));
    // Each host has its own names, so a process of another host can have the same name.
    let other = rt.add_host(HostBuilder::new("other")).unwrap();
    let namesake = other.process().name(SUM).spawn(sum).unwrap();
    assert_eq!((other.whereis(SUM), rt.whereis(SUM)), (Some(namesake.pid()), Some(first.pid())));
    first.abort();
    assert!(matches!(rt.block_on(first), Err(Exit::Killed)));
    mailbox.register(SUM).unwrap();
    assert_eq!(rt.whereis(SUM), Some(address.pid()));
    drop((second, mailbox));
    assert_eq!(rt.whereis(SUM), None);
}

/// 2.5a: a process may have several names, and may register the same name twice. A process can unregister only its own
/// names. A process that has exited cannot register a name.
#[test]
fn a_process_registers_and_unregisters_names() {
    let rt = lone();
    let kept = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&kept);
    let body = rt.spawn(async move |ctx: Context<u64>| -> Result<(), Exit> {
        for name in ["one", "other"] {
            ctx.register(name)?;
        }
        ctx.register(format!("by-{}", "text"))?;
        ctx.register("one")?;
        assert!(ctx.unregister("other") && !ctx.unregister("other") && !ctx.unregister("nobody's"));
        let found = ["one", "other", "by-text"].map(|name| ctx.host().whereis(name));
        assert_eq!(found, [Some(ctx.pid()), None, Some(ctx.pid())]);
        *keep.lock().unwrap() = Some(ctx.split().0);
        Ok(())
    });
    rt.block_on(body).unwrap();
    assert_eq!(["one", "by-text"].map(|name| rt.whereis(name)), [None, None]);
    let me = kept.lock().unwrap().take().unwrap();
    let late = me.register("late").unwrap_err();
    assert_eq!(late, NameError::Exited { name: "late".into(), pid: me.pid() });
    assert_eq!(rt.whereis("late"), None);
    me.join_group("late");
    assert!(rt.members::<u64>("late").is_empty());
    assert!(!me.unregister("one"));
}

/// 2.5b: when the exit of a process is reported, the name of the process is already free, and the pid of the process no
/// longer resolves. A new process can take the name immediately.
#[test]
fn a_name_is_free_before_the_exit_is_reported() {
    const ROUNDS: u64 = 2_000;
    everywhere(async |host| {
        for round in 1..=ROUNDS {
            let by_body = round % 2 == 0;
            let handle = match by_body {
                true => host.process().name(SUM).spawn(sum).unwrap(),
                false => host.spawn(async |ctx: Context<u64>| {
                    ctx.register(SUM)?;
                    sum(ctx).await
                }),
            };
            let address = handle.address();
            address.send(round).unwrap();
            if round % 3 == 0 {
                handle.abort()
            } else {
                address.send(0).unwrap()
            }
            let heard = address.exited();
            let exit = if round % 5 == 0 { handle.await.map(drop) } else { Err(heard.await) };
            assert!(host.whereis(SUM).is_none(), "round {round}: {exit:?}");
            assert!(host.address::<u64>(address.pid()).is_none());
        }
    });
}

/// 2.5b, 2.5c: several processes register one name and join one group, and are killed at the same time. If a
/// registration is refused because the name is taken, the error contains the pid of another process. After the exits,
/// the name is free and the group is empty.
#[test]
fn concurrent_registrations_and_exits_leave_no_name_behind() {
    const ROUNDS: usize = 400;
    within(60, || {
        let rt = two();
        for _ in 0..ROUNDS {
            let mes: Vec<_> = (0..3)
                .map(|_| {
                    let (tell, me) = std::sync::mpsc::channel();
                    let handle = rt.spawn(async move |ctx: Context<u64>| {
                        let (me, mut mailbox) = ctx.split();
                        tell.send(me).unwrap();
                        let _ = mailbox.receive().await;
                    });
                    (me.recv().unwrap(), handle)
                })
                .collect();
            let barrier = Barrier::new(4);
            thread::scope(|scope| {
                for (me, _) in &mes {
                    let (barrier, me) = (&barrier, me.clone());
                    scope.spawn(move || {
                        barrier.wait();
                        me.join_group("crowd");
                        match me.register(SUM) {
                            Ok(()) => {}
                            Err(NameError::Taken { holder, .. }) => assert_ne!(holder, me.pid()),
                            Err(NameError::Exited { pid, .. }) => assert_eq!(pid, me.pid()),
                            Err(other) => panic!("{other}"),
                        }
                    });
                }
                barrier.wait();
                mes.iter().for_each(|(_, handle)| handle.abort());
            });
            for (_, handle) in mes {
                let _ = rt.block_on(handle);
            }
            assert_eq!(rt.whereis(SUM), None);
            assert!(rt.members::<u64>("crowd").is_empty());
        }
    });
}

/// 2.5a, 2.5b: a process with many names may unregister these names in any order. The process is identified by its
/// oldest name. Its exit releases the remaining names.
#[test]
fn a_process_may_have_many_names() {
    const NAMES: usize = 100;
    let rt = lone();
    let name = |n: usize| format!("name {n}");
    let process = rt.spawn(async move |mut ctx: Context<usize>| -> Result<(), Exit> {
        for n in 0..NAMES {
            ctx.register(name(n))?;
        }
        ctx.register(name(7))?;
        for n in (0..NAMES).rev().filter(|n| n % 3 != 1) {
            assert!(ctx.unregister(name(n)) && !ctx.unregister(name(n)));
        }
        ctx.register(name(0))?;
        ctx.receive().await.map(drop)
    });
    rt.block_on(process.started()).unwrap();
    for n in 0..NAMES {
        let expected = if n == 0 || n % 3 == 1 { Some(process.pid()) } else { None };
        assert_eq!(rt.whereis(name(n).as_str()), expected, "{n}");
    }
    let details = rt.process_details(process.pid()).unwrap();
    assert_eq!(details.info.name.as_deref(), Some("name 1"));
    let expected = (0..NAMES).filter(|n| n % 3 == 1).chain([0]).map(name);
    assert!(details.names.iter().cloned().eq(expected), "{:?}", details.names);
    process.send(0).unwrap();
    rt.block_on(process).unwrap();
    assert!((0..NAMES).all(|n| rt.whereis(name(n).as_str()).is_none()));
}

/// A value whose destructor looks up a name.
struct LooksUp {
    host: Host,
    name: &'static str,
    found: Arc<Mutex<Vec<Option<Pid>>>>,
}

impl Drop for LooksUp {
    fn drop(&mut self) {
        self.found.lock().unwrap().push(self.host.whereis(self.name));
    }
}

/// 2.5c: a refused spawn with a name drops the values that the process would have inherited. The destructor of a
/// dropped value may look up the same name.
#[test]
fn a_refused_spawn_drops_the_inherited_values_without_the_lock_of_the_name() {
    within(60, || {
        let rt = Runtime::builder().workers(0).max_processes(1).build().unwrap();
        let _lives = rt.spawn(async |mut ctx: Context<u64>| ctx.receive().await.map(drop));
        let found = Arc::new(Mutex::new(Vec::new()));
        let value = || LooksUp { host: rt.host().clone(), name: "x", found: Arc::clone(&found) };
        let named = rt.process().name("x").value(value()).spawn(sum);
        assert_eq!(*named.unwrap_err().kind(), SpawnErrorKind::Limit(1));
        let sent = rt.process().name("x").value(value()).spawn_or_send(1, sum);
        assert_eq!(*sent.unwrap_err().kind(), SpawnErrorKind::Limit(1));
        drop(rt.shutdown(Duration::ZERO));
        let late = rt.process().name("x").value(value()).spawn(sum);
        assert_eq!(*late.unwrap_err().kind(), SpawnErrorKind::ShutDown);
        assert_eq!(*found.lock().unwrap(), [None; 3]);
    });
}

/// 2.5b: the drop of the last reference to an added host drops the handlers of this host. The destructor of a handler
/// may look up a name.
#[test]
fn the_destructor_of_a_handler_may_look_up_a_name() {
    struct Never;
    impl Command for Never {
        type Reply = ();
    }
    within(60, || {
        let rt = lone();
        let found = Arc::new(Mutex::new(Vec::new()));
        let value = LooksUp { host: rt.host().clone(), name: "x", found: Arc::clone(&found) };
        let builder = HostBuilder::new("other").handle(move |_: Never| {
            let _ = &value;
        });
        let other = rt.add_host(builder).unwrap();
        let named = rt.process().name("x").spawn(sum).unwrap();
        let last = other.spawn(async |_: Context| {});
        drop(other);
        assert!(found.lock().unwrap().is_empty(), "the process still refers to the host");
        rt.block_on(last).unwrap();
        assert_eq!(*found.lock().unwrap(), [Some(named.pid())]);
    });
}

/// 2.5d: `spawn_or_send` is atomic. Concurrent calls spawn only one process with the name, and this process reads every
/// message.
#[test]
fn concurrent_senders_to_a_free_name_spawn_one_process_and_lose_no_message() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 300;
    within(60, || {
        let rt = two();
        for _ in 0..ROUNDS {
            let (lives, total) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let barrier = Barrier::new(THREADS as usize);
            let pids: Vec<Pid> = thread::scope(|scope| {
                let senders: Vec<_> = (1..=THREADS)
                    .map(|n| {
                        let (host, barrier) = (rt.host().clone(), &barrier);
                        let (lives, total) = (Arc::clone(&lives), Arc::clone(&total));
                        scope.spawn(move || {
                            barrier.wait();
                            let body = async move |mut ctx: Context<u64>| -> Result<(), Exit> {
                                lives.fetch_add(1, SeqCst);
                                for _ in 0..THREADS {
                                    total.fetch_add(ctx.receive().await? as usize, SeqCst);
                                }
                                Ok(())
                            };
                            host.process().name(SUM).spawn_or_send(n, body).unwrap()
                        })
                    })
                    .collect();
                senders.into_iter().map(|sender| sender.join().unwrap()).collect()
            });
            assert!(matches!(rt.block_on(rt.exited(pids[0])), Exit::Normal | Exit::NoProcess));
            assert!(pids.iter().all(|pid| *pid == pids[0]), "{pids:?}");
            assert_eq!((lives.load(SeqCst), total.load(SeqCst) as u64), (1, THREADS * (THREADS + 1) / 2));
        }
    });
}

/// 2.5d: processes with the same name continuously start and exit. Each message either is read, or becomes a dead
/// letter because the receiver exits. There is never more than one process with the name.
#[test]
fn no_message_to_a_name_is_lost_while_processes_with_this_name_start_and_exit() {
    const EACH: u64 = 3_000;
    within(60, || {
        let rt = two();
        let mut letters = rt.dead_letters();
        let (lives, read) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let pids = Mutex::new(HashSet::new());
        thread::scope(|scope| {
            for _ in 0..2 {
                let (host, lives, read, pids) = (rt.host().clone(), &lives, &read, &pids);
                scope.spawn(move || {
                    for n in 0..EACH {
                        let (lives, read) = (Arc::clone(lives), Arc::clone(read));
                        let body = async move |mut ctx: Context<u64>| -> Result<(), Exit> {
                            assert_eq!(lives.fetch_add(1, SeqCst), 0, "two of one name");
                            ctx.receive().await?;
                            read.fetch_add(1, SeqCst);
                            lives.fetch_sub(1, SeqCst);
                            Ok(())
                        };
                        let pid = host.process().name(SUM).spawn_or_send(n, body).unwrap();
                        pids.lock().unwrap().insert(pid);
                    }
                });
            }
        });
        // When a process exits, its name becomes free before its unread messages become dead letters. The pid of the
        // process stays in the pid table until all its unread messages have become dead letters.
        for pid in pids.into_inner().unwrap() {
            let _ = rt.block_on(rt.exited(pid));
        }
        let dead = std::iter::from_fn(|| letters.try_receive()).count();
        assert_eq!(read.load(SeqCst) + dead, 2 * EACH as usize);
        assert_eq!(rt.counters().panics, 0);
    });
}

/// 2.5d: a refused `spawn_or_send` returns the message and the body. Without a name, `spawn_or_send` spawns a process.
#[test]
fn a_refused_spawn_with_a_message_returns_the_message_and_the_body() {
    let rt = lone();
    let _ = rt.process().name("text").spawn(async |mut ctx: Context<String>| drop(ctx.receive().await));
    let wrong = rt.process().name("text").spawn_or_send(5, sum).unwrap_err();
    let refusal = SpawnErrorKind::MessageRefused(SendErrorKind::WrongType { expected: "alloc::string::String" });
    assert_eq!(*wrong.kind(), refusal);
    let (message, body) = wrong.into_body();
    let limited = rt.process().limits(Limits::new().mailbox_capacity(0)).spawn_or_send(message, body).unwrap_err();
    assert_eq!(*limited.kind(), SpawnErrorKind::MessageRefused(SendErrorKind::Full));
    let (message, body) = limited.into_body();
    assert_eq!(rt.counters().refused, 2);
    let pid = rt.process().spawn_or_send(message, body).unwrap();
    let to = rt.address::<u64>(pid).unwrap();
    to.send(0).unwrap();
    assert!(matches!(rt.block_on(to.exited()), Exit::Normal));
    let host = rt.host().clone();
    drop(rt);
    let closed = host.process().name(SUM).spawn_or_send(6, sum).unwrap_err();
    assert_eq!((closed.kind().clone(), closed.into_body().0), (SpawnErrorKind::ShutDown, 6));
}

const ROOM: Group<&str> = Group::new("room");

/// Joins the group `ROOM` and returns the first message that arrives.
async fn guest(mut ctx: Context<&'static str>) -> Result<&'static str, Exit> {
    ctx.join_group(ROOM);
    ctx.join_group("room");
    ctx.receive().await
}

/// 2.5e: a group contains each process that joined, until the process leaves or exits. The group contains each process
/// exactly once, in the order in which the processes joined. A broadcast returns the number of members that accepted
/// the message.
#[test]
fn a_group_contains_its_members_in_order() {
    let rt = lone();
    rt.block_on(async {
        let mut guests = Vec::new();
        for _ in 0..3 {
            guests.push(rt.spawn(guest));
            guests.last().expect("pushed just now").started().await.unwrap();
        }
        let pids = |rt: &Runtime| rt.members(ROOM).iter().map(Address::pid).collect::<Vec<_>>();
        assert_eq!(pids(&rt), guests.iter().map(|guest| guest.pid()).collect::<Vec<_>>());
        assert!(rt.members::<u64>("room").is_empty(), "they take texts");
        guests[1].abort();
        guests[1].exited().await;
        assert_eq!(pids(&rt), [guests[0].pid(), guests[2].pid()]);
        assert_eq!((rt.broadcast(ROOM, "hush"), rt.broadcast("room", 5), rt.broadcast("void", 5)), (2, 0, 0));
        for (guest, heard) in guests.into_iter().zip([Ok("hush"), Err(()), Ok("hush")]) {
            assert_eq!(guest.await.map_err(drop), heard);
        }
        assert!(pids(&rt).is_empty());
        let leaves = rt.spawn(async |ctx: Context<&'static str>| {
            ctx.join_group(ROOM);
            let joined = ctx.host().members(ROOM).len();
            ctx.leave_group("room");
            ctx.leave_group("another");
            (joined == 1 && ctx.host().members(ROOM).is_empty()).then_some(()).ok_or("it is still there")
        });
        leaves.await.unwrap();
    });
}

/// 2.5e: many processes join a group and exit while a message is broadcast to the group. The broadcast still reaches
/// each process that is a member during the whole test.
#[test]
fn a_broadcast_reaches_every_process_that_stays_in_a_changing_group() {
    everywhere(async |host| {
        const CROWD: usize = 2_000;
        let stays: Vec<_> = (0..10).map(|_| host.spawn(guest)).collect();
        for guest in &stays {
            guest.started().await.unwrap();
        }
        let passes: Vec<_> = (0..CROWD)
            .map(|_| {
                host.spawn(async |ctx: Context<&'static str>| {
                    ctx.join_group(ROOM);
                    ctx.yield_now().await;
                })
            })
            .collect();
        let took = host.broadcast(ROOM, "heard");
        assert!((10..=10 + CROWD).contains(&took), "{took}");
        for handle in passes {
            handle.await.unwrap();
        }
        for guest in stays {
            assert_eq!(guest.await.unwrap(), "heard");
        }
        assert!(host.members(ROOM).is_empty());
    });
}

/// 2.5d: if a process has the name, `spawn_or_call` calls this process. If no process has the name, `spawn_or_call`
/// spawns a process, and the request is the first message of this process. If `spawn_or_call` is refused, it returns
/// the body.
#[test]
fn a_request_to_a_name_spawns_a_process_only_if_the_name_is_free() {
    async fn count(mut ctx: Context<Reply<u64>>) -> Result<(), Exit> {
        for count in 1.. {
            ctx.receive().await?.send(count);
        }
        Ok(())
    }
    everywhere(async |host| {
        let call = |host: &Host| host.process().name("count").spawn_or_call(|reply| reply, count).unwrap();
        assert_eq!(call(&host).await.unwrap(), 1);
        let pid = host.whereis("count").unwrap();
        let caller = host.spawn(async move |ctx: Context| call(ctx.host()).await);
        assert_eq!((caller.await.unwrap(), host.whereis("count")), (2, Some(pid)));
        host.kill(pid).unwrap();
        host.exited(pid).await;
        assert_eq!(call(&host).await.unwrap(), 1);
        host.kill(host.whereis("count").unwrap()).unwrap();
    });
    let rt = lone();
    rt.process().name("other").spawn(async |mut ctx: Context<u8>| ctx.receive().await).unwrap();
    let refused = rt.process().name("other").spawn_or_call(|reply| reply, count).unwrap_err();
    assert!(matches!(refused.kind(), SpawnErrorKind::MessageRefused(_)));
}

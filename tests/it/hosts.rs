//! Sections 3.1 and 4.9 of the specification: hosts with their own handlers and limits. The file also tests the limits
//! of a single process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use procession::*;

use crate::{shut_down, two};

struct Erase;
impl Command for Erase {
    type Reply = &'static str;
}

struct Log;
impl Command for Log {
    type Reply = &'static str;
}

fn lone() -> Runtime {
    Runtime::builder().workers(0).build().unwrap()
}

/// 3.1b, 3.1d: a process can use only the handlers of its own host. If this host has no handler for a command, the
/// command fails, and the failure names the host. A child belongs to the host of its parent.
#[test]
fn a_process_uses_only_the_handlers_of_its_host() {
    let rt = Runtime::builder().workers(2).handle(|_: Erase| "erased").handle(|_: Log| "outer").build().unwrap();
    let inner = HostBuilder::new("plugins").handle(|_: Log| "inner");
    let inner = rt.add_host(inner.handler_named("say", |_, answer: Completion<_>| answer.complete(Payload::new(1_u8))));
    let inner = inner.unwrap();
    assert_eq!((rt.name(), inner.name()), ("", "plugins"));
    let perform = async |ctx: Context| -> Result<_, Exit> {
        let child = ctx.spawn(async |ctx: Context| {
            Ok::<_, Exit>((ctx.perform(Log).await, ctx.perform(Erase).await, ctx.host().name() == "plugins"))
        });
        Ok((
            ctx.perform(Log).await,
            ctx.perform(Erase).await,
            ctx.perform(NamedCommand::new("say")).await,
            child.await?,
        ))
    };
    let (log, erase, say, child) = rt.block_on(rt.spawn(perform)).unwrap();
    assert_eq!((log.unwrap(), erase.unwrap()), ("outer", "erased"));
    assert_eq!(
        say.unwrap_err().to_string(),
        "no handler is registered for the command say; add one with `Builder::handler`"
    );
    assert_eq!((child.0.unwrap(), child.1.unwrap(), child.2), ("outer", "erased", false));

    let (log, erase, say, child) = rt.block_on(inner.spawn(perform)).unwrap();
    assert_eq!(log.unwrap(), "inner");
    let text = erase.unwrap_err().to_string();
    assert!(text.contains("Erase in the host plugins; "), "{text}");
    assert_eq!(say.unwrap().downcast::<u8>().unwrap(), 1);
    assert_eq!((child.0.unwrap(), child.2), ("inner", true));
    assert!(matches!(child.1, Err(Failure::NoHandler(_))));
}

/// 3.1b: if a host has two handlers for the same command, `add_host` returns an error. The other hosts are not
/// affected.
#[test]
fn two_handlers_for_one_command_in_a_host_are_an_error() {
    let rt = two();
    let twice = HostBuilder::new("twice").handle(|_: Log| "one").handle(|_: Log| "other");
    assert!(matches!(rt.add_host(twice), Err(BuildError::DuplicateHandler(_))));
    assert!(rt.add_host(HostBuilder::new("once").handle(|_: Log| "one")).is_ok());
}

/// Processes of different hosts of one runtime send messages to each other. A shutdown of the runtime ends all hosts.
#[test]
fn hosts_share_their_runtime() {
    let rt = two();
    let other = rt.add_host(HostBuilder::new("other")).unwrap();
    let echo = other.spawn(async |mut ctx: Context<Reply<Pid>>| -> Result<(), Exit> {
        loop {
            let reply = ctx.receive().await?;
            reply.send(ctx.pid());
        }
    });
    let (pid, address) = (echo.pid(), echo.address());
    let asks = rt.spawn(async move |ctx: Context| ctx.call(&address, |reply| reply).await);
    assert_eq!(rt.block_on(asks).unwrap(), pid);
    assert_eq!(rt.processes_alive(), other.processes_alive());
    let left = shut_down(rt, Duration::from_secs(5));
    assert!(left.left.is_empty());
    assert!(echo.is_finished());
    assert!(
        matches!(other.process().spawn(async |_: Context| ()), Err(refused) if refused.kind() == &SpawnErrorKind::ShutDown)
    );
}

/// 4.9a, 4.9b: the limit of live processes is exact. If a spawn is refused, the body of the refused process is
/// returned. The limit does not include processes that have exited.
#[test]
fn the_limit_of_processes_is_exact() {
    let rt = two();
    let few = rt.add_host(HostBuilder::new("few").max_processes(3)).unwrap();
    let wait = async |mut ctx: Context<()>| ctx.receive().await;
    let mut handles: Vec<_> = (0..3).map(|_| few.spawn(wait)).collect();
    let refused = few.process().spawn(wait).unwrap_err();
    assert_eq!(refused.kind(), &SpawnErrorKind::Limit(3));
    // `spawn` cannot return an error, so the returned handle reports the refusal.
    let exit = rt.block_on(few.spawn(wait)).unwrap_err();
    assert_eq!(exit, Exit::Refused(SpawnErrorKind::Limit(3)));
    // The process limit of the host `few` does not apply to other hosts.
    drop(rt.spawn(wait));
    let first = handles.remove(0);
    first.send(()).unwrap();
    rt.block_on(first).unwrap();
    drop(few.process().spawn(refused.into_body()).unwrap());
    assert!(few.process().spawn(wait).is_err());
    let none = rt.add_host(HostBuilder::new("none").max_processes(0)).unwrap();
    assert!(none.process().spawn(wait).is_err());
}

/// 4.9a, 4.9b: several threads spawn processes while other processes exit. The limit of live processes is still exact.
#[test]
fn the_limit_of_processes_is_exact_under_concurrency() {
    const MOST: usize = 5;
    let rt = two();
    let few = rt.add_host(HostBuilder::new("few").max_processes(MOST)).unwrap();
    let alive = Arc::new(AtomicUsize::new(0));
    let spawners = (0..3).map(|_| {
        let (few, alive) = (few.clone(), Arc::clone(&alive));
        std::thread::spawn(move || {
            let mut spawned = 0;
            for _ in 0..2_000 {
                let alive = Arc::clone(&alive);
                let counted = few.process().spawn(async move |ctx: Context| {
                    assert!(alive.fetch_add(1, SeqCst) < MOST, "more than may live");
                    ctx.yield_now().await;
                    alive.fetch_sub(1, SeqCst);
                });
                spawned += usize::from(counted.is_ok());
            }
            spawned
        })
    });
    let spawners: Vec<_> = spawners.collect();
    let spawned: usize = spawners.into_iter().map(|spawner| spawner.join().unwrap()).sum();
    rt.block_on(async {
        while rt.processes_alive() != 0 {
            futures::future::ready(()).await;
            std::thread::yield_now();
        }
    });
    let counters = rt.counters();
    assert_eq!((counters.spawned, counters.panics), (spawned as u64, 0));
    assert!(spawned >= MOST);
}

/// 4.9a, 4.9d: a process takes exactly as many steps as its limit allows.
#[test]
fn the_limit_of_steps_is_exact() {
    struct Steps(Arc<AtomicUsize>, usize);
    impl Process for Steps {
        type Message = ();
        type Output = usize;
        fn step(&mut self, _: Events<'_, ()>, _: &mut StepOutput<'_, ()>) -> Result<Next<usize>, Exit> {
            let steps = self.0.fetch_add(1, SeqCst) + 1;
            Ok(if steps == self.1 { Next::Done(steps) } else { Next::Again })
        }
    }
    let rt = lone();
    let steps = Arc::new(AtomicUsize::new(0));
    let ten = || rt.process().limits(Limits::new().steps(10));
    let exit = rt.block_on(ten().spawn_process(Steps(Arc::clone(&steps), usize::MAX)).unwrap()).unwrap_err();
    assert_eq!((steps.swap(0, SeqCst), exit.error()), (10, Some(&LimitExceeded::Steps(10))));
    assert_eq!(rt.block_on(ten().spawn_process(Steps(Arc::clone(&steps), 10)).unwrap()).unwrap(), 10);
    // If a process and its host both have a limit, the lower limit applies.
    let host = rt.add_host(HostBuilder::new("short").limits(Limits::new().steps(3))).unwrap();
    for limits in [Limits::new(), Limits::new().steps(100)] {
        steps.store(0, SeqCst);
        let process = Steps(Arc::clone(&steps), usize::MAX);
        let exit = rt.block_on(host.process().limits(limits).spawn_process(process).unwrap()).unwrap_err();
        assert_eq!((steps.load(SeqCst), exit.error()), (3, Some(&LimitExceeded::Steps(3))));
    }
    let never = rt.block_on(rt.process().limits(Limits::new().steps(0)).spawn(async |_: Context| ()).unwrap());
    assert_eq!(never.unwrap_err().error(), Some(&LimitExceeded::Steps(0)));
}

/// 4.9d: a time limit applies to the total duration of all steps of a process. If the limit is exceeded during a step,
/// the runtime ends the process after this step. If this step returns the result of the process, the process exits with
/// this result, and not because of the limit.
#[test]
fn a_process_that_exceeds_its_time_limit_is_ended_after_its_step() {
    let rt = lone();
    let limits = Limits::new().time(Duration::from_millis(5));
    let spin = |ctx: &Context, time: Duration| {
        let begun = ctx.now();
        while ctx.now() - begun < time {}
    };
    let steps = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&steps);
    let exit = rt.block_on(
        rt.process()
            .limits(limits)
            .spawn(async move |ctx: Context| {
                loop {
                    spin(&ctx, Duration::from_millis(2));
                    count.fetch_add(1, SeqCst);
                    ctx.yield_now().await;
                }
                #[expect(unreachable_code)]
                ()
            })
            .unwrap(),
    );
    assert_eq!(exit.unwrap_err().error(), Some(&LimitExceeded::Time(Duration::from_millis(5))));
    assert!((1..=3).contains(&steps.load(SeqCst)));
    let done =
        rt.process().limits(limits).spawn(async move |ctx: Context| spin(&ctx, Duration::from_millis(10))).unwrap();
    rt.block_on(done).unwrap();
    // A process that waits does not use up its time limit.
    check(0..10, async |host: Host| {
        let begun = host.now();
        let waits = host.process().limits(limits).spawn(async |ctx: Context| {
            for _ in 0..24 {
                ctx.sleep(Duration::from_secs(3_600)).await;
            }
        });
        waits.unwrap().await.unwrap();
        assert_eq!(host.now() - begun, Duration::from_secs(24 * 3_600));
    });
}

/// 4.9d: the time limit of a process includes the work of an inline handler, and the first poll of an async handler.
#[test]
fn the_time_limit_includes_the_handlers_on_the_thread_of_the_process() {
    struct Inline(Host);
    struct Async(Host);
    impl Command for Inline {
        type Reply = ();
    }
    impl Command for Async {
        type Reply = ();
    }
    async fn fails<C: Command<Reply = ()>>(host: &Host, command: C) {
        let limits = Limits::new().time(Duration::from_millis(5));
        let exit = host.process().limits(limits).spawn(async move |ctx: Context| ctx.perform(command).await).unwrap();
        let exit = exit.await.unwrap_err();
        assert_eq!(exit.error(), Some(&LimitExceeded::Time(Duration::from_millis(5))), "{exit}");
    }
    fn spin(host: &Host) {
        let begun = host.now();
        while host.now() - begun < Duration::from_millis(6) {}
    }
    let first_poll = handler::future(async |Async(host)| spin(&host));
    let rt = Runtime::builder().workers(0).handler(handler::inline(|Inline(host)| spin(&host))).handler(first_poll);
    let rt = rt.build().unwrap();
    rt.block_on(fails(&rt, Inline(rt.host().clone())));
    rt.block_on(fails(&rt, Async(rt.host().clone())));
}

/// 4.9a, 4.9d: the limit of queued messages is exact. Each refused message is returned to the sender. When the receiver
/// reads a message, one more message can be sent.
#[test]
fn the_limit_of_queued_messages_is_exact() {
    let rt = lone();
    let limits = Limits::new().mailbox_capacity(3);
    let reader = rt.process().limits(limits).spawn(async |mut ctx: Context<u32>| -> Result<_, Exit> {
        let mut read = vec![ctx.receive().await?];
        let own = ctx.address();
        // The receiver has read one message, so the mailbox accepts one more message. The other messages are unread.
        // Each unread message counts, even if the message is already in the read-ahead buffer of the receiver.
        read.push(own.send(10).is_ok().into());
        let refused = own.send(11).unwrap_err();
        assert_eq!((refused.kind(), refused.into_message()), (SendErrorKind::Full, 11));
        while let Some(message) = ctx.try_receive() {
            read.push(message);
        }
        Ok(read)
    });
    let reader = reader.unwrap();
    (0..3).for_each(|message| reader.send(message).unwrap());
    let refused = rt.send(reader.pid(), 3_u32).unwrap_err();
    assert_eq!((refused.kind(), refused.into_message()), (SendErrorKind::Full, 3));
    assert!(reader.send(3).is_err());
    assert_eq!(rt.block_on(reader).unwrap(), [0, 1, 1, 2, 10]);
    assert_eq!(rt.counters().refused, 3);
    let deaf = rt
        .process()
        .limits(Limits::new().mailbox_capacity(0))
        .spawn(async |mut ctx: Context<()>| ctx.receive().await)
        .unwrap();
    assert_eq!(deaf.send(()).unwrap_err().kind(), SendErrorKind::Full);
}

/// 4.9d: the limit of queued messages also works if the process receives selectively. When the process exits, the
/// unread messages of the process become dead letters.
#[test]
fn the_limit_of_messages_works_with_selective_receives_and_dead_letters() {
    let rt = lone();
    let mut letters = rt.dead_letters();
    let picks = rt.process().limits(Limits::new().mailbox_capacity(4)).spawn(
        async |mut ctx: Context<u32>| -> Result<_, Exit> {
            ctx.receive_where(|n| if n == 2 { Ok(n) } else { Err(n) }).await
        },
    );
    let picks = picks.unwrap();
    (0..4).for_each(|message| picks.send(message).unwrap());
    assert_eq!(rt.block_on(picks).unwrap(), 2);
    let mut dead = Vec::new();
    while let Some(letter) = letters.try_receive() {
        dead.push(letter.payload.downcast::<u32>().unwrap());
    }
    assert_eq!(dead, [0, 1, 3]);
}

/// 3.1b: the program drops an added host. After the processes of the host have exited, the handlers of the host are
/// dropped. The runtime still runs.
#[test]
fn the_handlers_of_a_dropped_host_are_dropped() {
    let rt = lone();
    let owned = Arc::new(());
    let weak = Arc::downgrade(&owned);
    let plugin =
        HostBuilder::new("plugin").handle(move |_: Log| if Arc::strong_count(&owned) > 0 { "log" } else { "" });
    let plugin = rt.add_host(plugin).unwrap();
    let logged = rt.block_on(plugin.spawn(async |ctx: Context| ctx.perform(Log).await)).unwrap();
    assert_eq!(logged, "log");
    drop(plugin);
    assert!(weak.upgrade().is_none());
}

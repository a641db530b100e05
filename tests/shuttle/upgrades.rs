//! Tests of upgrades: running processes are upgraded while messages, signals, kills and answers arrive.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use futures::channel::oneshot;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use procession::*;
use shuttle::thread;

use crate::{LONG, builder, runtime};

/// Number of messages that are sent.
const MAIL: u8 = 4;

type Read = Arc<Mutex<Vec<u8>>>;

/// Repeatedly reads one message and then upgrades to a new body. The last body returns when all messages are read.
fn read_one_and_upgrade(mut ctx: Context<u8>, read: Read) -> BoxFuture<'static, Result<(), Exit>> {
    Box::pin(async move {
        let message = ctx.receive().await?;
        read.lock().unwrap().push(message);
        if message + 1 == MAIL {
            return Ok(());
        }
        // `FuturesUnordered` polls the upgrade with a waker that is not the waker of this body.
        let mut upgrade = FuturesUnordered::from_iter([ctx.upgrade(move |ctx| read_one_and_upgrade(ctx, read))]);
        Err(upgrade.next().await.expect("it is there").1)
    })
}

fn sends(to: Address<u8>) -> thread::JoinHandle<usize> {
    thread::spawn(move || (0..MAIL).take_while(|n| to.send(*n).is_ok()).count())
}

/// A body that upgrades itself without end.
fn upgrade_forever(ctx: Context<()>) -> BoxFuture<'static, Result<(), Exit>> {
    Box::pin(async move {
        ctx.yield_now().await;
        // Some schedules run another thread only after an explicit call of `yield_now`.
        thread::yield_now();
        Err(ctx.upgrade(upgrade_forever).await.1)
    })
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Recorded {
    Cancel,
    Down,
    Exit,
    Message,
}

/// Records one event, and then upgrades to a new body. The last body returns when four events are recorded.
fn record_one_and_upgrade(
    mut ctx: Context<()>,
    mut heard: Vec<Recorded>,
) -> BoxFuture<'static, Result<Vec<Recorded>, Exit>> {
    Box::pin(async move {
        heard.push(match ctx.event().await {
            Event::Message(()) => Recorded::Message,
            Event::Cancel { .. } => Recorded::Cancel,
            Event::Exit { .. } => Recorded::Exit,
            Event::Down { .. } => Recorded::Down,
            other => panic!("{other:?}"),
        });
        if heard.len() == 4 {
            return Ok(heard);
        }
        Err(ctx.upgrade(move |ctx| record_one_and_upgrade(ctx, heard)).await.1)
    })
}

/// A hand-written process that does the same as [`read_one_and_upgrade`].
struct ReadsOne(Read);

impl Process for ReadsOne {
    type Message = u8;
    type Output = ();

    fn step(&mut self, mut events: Events<'_, u8>, out: &mut StepOutput<'_, u8>) -> Result<Next<()>, Exit> {
        let Some(Event::Message(message)) = events.next() else { return Ok(Next::Wait) };
        self.0.lock().unwrap().push(message);
        if message + 1 == MAIL {
            return Ok(Next::Done(()));
        }
        out.upgrade(Self(Arc::clone(&self.0)), "", ())?;
        Ok(Next::Wait)
    }
}

scenarios! {
    /// 6.7a: messages that arrive during an upgrade are read exactly once and in order, either by the old body or by
    /// the new body.
    fn a_body_is_replaced_while_messages_arrive() {
        let rt = runtime(2);
        let read = Read::default();
        let log = Arc::clone(&read);
        let reads = rt.spawn(|ctx| read_one_and_upgrade(ctx, log));
        let sender = sends(reads.address());
        rt.block_on(reads).unwrap();
        assert_eq!(sender.join().unwrap(), usize::from(MAIL));
        assert_eq!(*read.lock().unwrap(), [0, 1, 2, 3]);
    }

    /// A hand-written process is upgraded while messages arrive. The messages are read exactly once and in order.
    fn a_hand_written_process_is_replaced_while_messages_arrive() {
        let rt = runtime(2);
        let read = Read::default();
        let reads = rt.spawn_process(ReadsOne(Arc::clone(&read)));
        let sender = sends(reads.address());
        rt.block_on(reads).unwrap();
        assert_eq!(sender.join().unwrap(), usize::from(MAIL));
        assert_eq!(*read.lock().unwrap(), [0, 1, 2, 3]);
    }

    /// A process is killed during an upgrade. Each message is either read in order or counted as a dead letter. No body
    /// leaks.
    fn a_body_is_killed_while_it_is_replaced() {
        let rt = runtime(2);
        let (read, hand_written) = (Read::default(), Read::default());
        let log = Arc::clone(&read);
        let reads = rt.spawn(|ctx| read_one_and_upgrade(ctx, log));
        let steps = rt.spawn_process(ReadsOne(Arc::clone(&hand_written)));
        let senders = [sends(reads.address()), sends(steps.address())];
        reads.abort();
        steps.abort();
        let _ = rt.block_on(reads);
        let _ = rt.block_on(steps);
        let sent: usize = senders.map(|sender| sender.join().unwrap()).iter().sum();
        let mut all = 0;
        for read in [read, hand_written] {
            let read = Arc::into_inner(read).expect("all bodies are gone").into_inner().unwrap();
            assert_eq!(read, [0, 1, 2, 3][..read.len()]);
            all += read.len();
        }
        assert_eq!(sent, all + rt.counters().dead_letters as usize);
    }

    /// Three signals arrive during an upgrade: a cancellation, the exit of a linked process, and the report of a
    /// monitor. Either the old body or the new body receives each signal, exactly once.
    fn a_body_is_replaced_while_signals_arrive() {
        let rt = runtime(2);
        let hears = rt.spawn(async |ctx: Context<()>| {
            ctx.trap_exit(true);
            let child = ctx.spawn_link(async |_: Context<()>| Err::<(), _>("ends"));
            ctx.monitor(child.pid());
            Err::<Vec<Recorded>, _>(ctx.upgrade(|ctx| record_one_and_upgrade(ctx, Vec::new())).await.1)
        });
        let to = hears.address();
        let tells = thread::spawn(move || to.send(()).unwrap());
        rt.cancel(hears.pid(), "enough", LONG).unwrap();
        let mut heard = rt.block_on(hears).unwrap();
        heard.sort_unstable();
        assert_eq!(heard, [Recorded::Cancel, Recorded::Down, Recorded::Exit, Recorded::Message]);
        tells.join().unwrap();
    }

    /// A process that upgrades itself without end is still terminated by a link or a kill.
    fn an_upgrading_process_can_be_terminated() {
        let rt = runtime(2);
        let ends = rt.spawn(async |mut ctx: Context<()>| {
            ctx.receive().await?;
            Err::<(), _>(Exit::failed("ends"))
        });
        let pid = ends.pid();
        let linked = rt.spawn(async move |ctx: Context<()>| {
            ctx.link(pid).map_err(|_| Exit::NoProcess)?;
            upgrade_forever(ctx).await
        });
        let killed = rt.spawn(upgrade_forever);
        ends.send(()).unwrap();
        let host = rt.host().clone();
        let victim = killed.pid();
        let kills = thread::spawn(move || host.kill(victim).unwrap());
        // The linked process may exit before the link is set. In this case `link` fails, and the exit is `NoProcess`.
        let exit = rt.block_on(linked).unwrap_err();
        assert!(matches!(exit, Exit::Linked { .. } | Exit::NoProcess), "{exit:?}");
        assert!(matches!(rt.block_on(killed), Err(Exit::Killed)));
        assert!(rt.block_on(ends).is_err());
        kills.join().unwrap();
    }

    /// A new body reads messages and then fails before it is ready. The old body continues with these messages, in
    /// order.
    fn a_failed_upgrade_loses_no_message() {
        let rt = runtime(2);
        let read = Read::default();
        let log = Arc::clone(&read);
        let reads = rt.process().manual_start().spawn(async move |ctx: Context<u8>| {
            let trial = Arc::clone(&log);
            let (mut ctx, exit) = ctx
                .upgrade(async move |mut ctx: Context<u8>| {
                    let message = ctx.receive().await?;
                    trial.lock().unwrap().push(message);
                    ctx.yield_now().await;
                    // A stashed message goes back to the mailbox.
                    let message = ctx.receive().await?;
                    ctx.stash(message);
                    Err::<(), _>(Exit::failed("does not start"))
                })
                .await;
            assert!(matches!(exit, Exit::Failed(_)), "{exit}");
            while log.lock().unwrap().len() < usize::from(MAIL) {
                let message = ctx.receive().await?;
                log.lock().unwrap().push(message);
            }
            Ok::<_, Exit>(())
        });
        let reads = reads.unwrap();
        let sender = sends(reads.address());
        rt.block_on(reads).unwrap();
        assert_eq!(sender.join().unwrap(), usize::from(MAIL));
        assert_eq!(*read.lock().unwrap(), [0, 1, 2, 3]);
    }

    /// Two commands are answered while their process is upgraded: an inline command, and a command that another thread
    /// answers.
    fn a_command_is_answered_during_an_upgrade() {
        struct Now;
        impl Command for Now { type Reply = u64; }
        struct Later;
        impl Command for Later { type Reply = u64; }
        let rt = builder(2)
            .handle(|_: Now| 1_u64)
            .handle_async(|_: Later| async {
                let (tell, told) = oneshot::channel();
                thread::spawn(move || tell.send(2_u64));
                told.await
            })
            .build()
            .unwrap();
        let asks = rt.spawn(async |ctx: Context<()>| {
            let (now, mut later) = (ctx.perform(Now), ctx.perform(Later));
            let _ = futures::poll!(&mut later);
            let ends = async move |_: Context<()>| {
                let (now, later) = futures::join!(now, later);
                Ok::<_, Exit>(now? + later?)
            };
            Err::<u64, _>(ctx.upgrade(ends).await.1)
        });
        assert_eq!(rt.block_on(asks).unwrap(), 3);
    }
}

//! Tests of mail: messages to processes that exit, bounded mailboxes, and mailboxes that are read outside their
//! process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use futures::channel::oneshot;
use procession::*;
use shuttle::thread;

use crate::{LONG, Msg, adds, futures_block_on, runtime};

scenarios! {
    /// A message is sent to a process while the process is killed. The message is read, refused, or counted as a dead
    /// letter.
    fn a_send_races_with_a_kill() {
        let rt = runtime(1);
        let read = Arc::new(AtomicUsize::new(0));
        let reads = Arc::clone(&read);
        let reader = rt.spawn(async move |mut ctx: Context<u8>| {
            while ctx.receive().await.is_ok() {
                reads.fetch_add(1, SeqCst);
            }
        });
        let to = reader.address();
        let sender = thread::spawn(move || (0..3).filter(|_| to.send(0).is_ok()).count());
        reader.abort();
        assert!(matches!(rt.block_on(reader), Err(Exit::Killed)));
        let sent = sender.join().unwrap();
        assert_eq!(sent, read.load(SeqCst) + rt.counters().dead_letters as usize);
    }

    /// A process is killed while it is called. The call is answered or fails. The call never waits forever.
    fn a_call_races_with_an_exit() {
        let rt = runtime(2);
        let server = rt.spawn(adds);
        let calls: Vec<_> = (0..2)
            .map(|_| {
                let to = server.address();
                rt.spawn(async move |ctx: Context| Ok::<_, Exit>(ctx.call(&to, Msg::Sum).await))
            })
            .collect();
        server.abort();
        for call in calls {
            match rt.block_on(call).unwrap() {
                Ok(0) | Err(CallError::Died(_) | CallError::Send(SendErrorKind::NoProcess)) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// A process is killed while it makes several calls. One of the calls is dropped on another thread. No reference to
    /// the process remains, and the callee keeps running.
    fn a_caller_is_killed() {
        let rt = runtime(2);
        let held = Arc::new(());
        let sums = rt.spawn(adds);
        let to = sums.address();
        let caller = rt.process().value(Arc::clone(&held)).spawn(async move |ctx: Context<()>| {
            for _ in 0..2 {
                assert_eq!(ctx.call(&to, Msg::Sum).await.map_err(Exit::failed)?, 0);
                let mut given_up = ctx.call(&to, Msg::Sum);
                let _ = futures::poll!(&mut given_up);
                thread::spawn(move || drop(given_up));
                assert_eq!(ctx.call(&to, Msg::Sum).timeout(LONG).await.map_err(Exit::failed)?, 0);
            }
            Ok::<_, Exit>(())
        });
        let caller = caller.unwrap();
        let (host, pid) = (rt.host().clone(), caller.pid());
        let kills = thread::spawn(move || host.kill(pid).is_ok());
        assert!(matches!(rt.block_on(caller), Ok(()) | Err(Exit::Killed)));
        kills.join().unwrap();
        while Arc::strong_count(&held) != 1 {
            thread::yield_now();
        }
        assert_eq!(rt.block_on(sums.call(Msg::Sum)).unwrap(), 0);
    }

    /// A process polls a call. Then another thread waits for the call or drops the call. The thread that waits gets the
    /// answer. If the call was dropped, the answer is refused.
    fn a_call_moves_to_another_thread() {
        let rt = runtime(2);
        let server = rt.spawn(adds);
        let to = server.address();
        let asker = rt.spawn(async move |ctx: Context<()>| {
            let mut hands = Vec::new();
            for waits in [true, false] {
                let mut call = ctx.call(&to, Msg::Sum);
                if futures::poll!(&mut call).is_ready() {
                    continue;
                }
                hands.push(thread::spawn(move || {
                    if waits {
                        assert_eq!(futures_block_on(call).unwrap(), 0);
                    } else {
                        drop(futures::FutureExt::now_or_never(&mut call));
                    }
                }));
            }
            Ok::<_, Exit>(hands)
        });
        rt.block_on(asker).unwrap().into_iter().for_each(|hand| hand.join().unwrap());
        assert_eq!(rt.block_on(server.call(Msg::Sum)).unwrap(), 0);
    }

    /// A bounded mailbox is full, and several senders wait. Whenever the receiver reads a message, the sender that has
    /// waited longest gets the free space. When the receiver exits, the senders that still wait receive an error.
    fn free_places_go_to_waiting_senders() {
        let rt = runtime(2);
        let slow = rt.process().mailbox_capacity(MailboxCapacity::Reject(1)).spawn(async |mut ctx: Context<u8>| {
            ctx.receive().await?;
            ctx.receive().await
        }).unwrap();
        let senders: Vec<_> = (0..3)
            .map(|_| {
                let to = slow.address();
                rt.spawn(async move |ctx: Context| Ok::<_, Exit>(ctx.send_wait(&to, 1).await.is_ok()))
            })
            .collect();
        assert!(rt.block_on(slow).is_ok());
        let sent = senders.into_iter().filter_map(|sender| rt.block_on(sender).unwrap().then_some(())).count();
        assert!(sent >= 2, "{sent}");
    }

    /// A waiting sender cancels its send while the receiver frees a place. A later sender gets this place instead.
    fn a_waiting_sender_cancels_its_send() {
        let rt = runtime(2);
        let slow = rt.process().mailbox_capacity(MailboxCapacity::Reject(1)).spawn(async |mut ctx: Context<u8>| {
            let mut read = Vec::new();
            while read.iter().filter(|n| **n == 1).count() < 2 {
                read.push(ctx.receive().await?);
            }
            Ok::<_, Exit>(read)
        });
        let slow = slow.unwrap();
        let to = slow.address();
        let leaves = rt.spawn(async move |ctx: Context| {
            for _ in 0..2 {
                let mut waits = ctx.send_wait(&to, 0);
                let _ = futures::poll!(&mut waits);
                ctx.yield_now().await;
            }
        });
        let stay = [(); 2].map(|()| {
            let to = slow.address();
            rt.spawn(async move |ctx: Context| ctx.send_wait(&to, 1).await.map_err(|_| Exit::NoProcess))
        });
        assert!(rt.block_on(slow).is_ok());
        stay.into_iter().for_each(|one| rt.block_on(one).unwrap());
        rt.block_on(leaves).unwrap();
    }

    /// Another thread reads a mailbox while its process exits. Each sent message is read or counted as a dead letter,
    /// and the reader never waits forever.
    fn a_mailbox_is_read_on_another_thread() {
        let rt = runtime(1);
        let (give, mailbox) = oneshot::channel();
        let (end, ends) = oneshot::channel::<()>();
        let process = rt.spawn(async move |ctx: Context<u8>| {
            let (_me, mailbox) = ctx.split();
            drop(give.send(mailbox));
            let _ = ends.await;
        });
        let to = process.address();
        let reads = thread::spawn(move || {
            futures_block_on(async {
                let mut mailbox: Mailbox<u8> = mailbox.await.unwrap();
                let mut read = 0;
                while mailbox.receive().await.is_ok() {
                    read += 1;
                }
                read
            })
        });
        let sends = thread::spawn(move || {
            let sent = (0..2).filter(|n| to.send(*n).is_ok()).count();
            drop(end);
            sent + (2..4).filter(|n| to.send(*n).is_ok()).count()
        });
        futures_block_on(process).unwrap();
        let (read, sent) = (reads.join().unwrap(), sends.join().unwrap());
        assert_eq!(sent, read + rt.counters().dead_letters as usize);
    }

    /// A thread waits on the mailbox of a process. The thread is woken when the process exits, no matter when the
    /// thread began to wait.
    fn a_mailbox_is_awaited_on_another_thread() {
        let rt = runtime(1);
        let (give, mailbox) = oneshot::channel();
        let process = rt.spawn(async move |ctx: Context<u8>| drop(give.send(ctx.split().1)));
        let waits = thread::spawn(move || {
            futures_block_on(async {
                let mut mailbox: Mailbox<u8> = mailbox.await.unwrap();
                mailbox.receive().await.is_err()
            })
        });
        futures_block_on(process).unwrap();
        assert!(waits.join().unwrap());
    }

    /// A mailbox outside a process is dropped. Meanwhile other threads send to the mailbox, link to the mailbox and
    /// monitor the mailbox. Each sent message is read or counted as a dead letter. Links and monitors report the exit
    /// of the mailbox in the same way as the exit of a process.
    fn a_mailbox_outside_a_process_is_dropped() {
        let rt = runtime(2);
        let (to, mut mailbox) = rt.mailbox::<u8>();
        let pid = to.pid();
        let watches = rt.spawn(async move |mut ctx: Context<()>| {
            ctx.trap_exit(true);
            let watch = ctx.monitor(pid);
            let linked = ctx.link(pid).is_ok();
            let (mut down, mut exit) = (0, 0);
            while down + exit < 1 + usize::from(linked) {
                match ctx.event().await {
                    Event::Down { monitor, .. } if monitor == watch => down += 1,
                    Event::Exit { from, .. } if from == pid => exit += 1,
                    other => panic!("{other:?}"),
                }
            }
            Ok::<_, Exit>((down, exit == usize::from(linked)))
        });
        let sends = thread::spawn(move || (0..3).filter(|n| to.send(*n).is_ok()).count());
        let read = usize::from(mailbox.try_receive().is_some());
        drop(mailbox);
        let sent = sends.join().unwrap();
        assert_eq!(rt.block_on(watches).unwrap(), (1, true));
        assert_eq!(sent, read + rt.counters().dead_letters as usize);
    }

    /// When a pool member exits, another member gets the unread messages of the exited member.
    fn a_pool_loses_no_message() {
        let rt = runtime(2);
        let pool = rt.spawn_pool(Pool::new(2, adds_one).member_capacity(4));
        let sums = rt.spawn(adds);
        for n in 0..3 {
            pool.send((n == 1, sums.address())).unwrap();
        }
        // A member reads and forwards a message, and then fails. The other messages are also forwarded, by any member.
        while rt.block_on(sums.call(Msg::Sum)).unwrap() < 3 {
            thread::yield_now();
        }
        pool.abort();
        assert!(rt.block_on(pool).is_err());
    }
}

async fn adds_one(mut ctx: Context<(bool, Address<Msg>)>) -> Result<(), Exit> {
    loop {
        let (fails, to) = ctx.receive().await?;
        let _ = ctx.send(&to, Msg::Add(1));
        if fails {
            return Err(Exit::failed("told to"));
        }
    }
}

//! Sections 2.3, 3.2 and 11 of the specification: pools. A pool has one address and distributes its messages to several
//! processes with the same code. Section 11 defines which messages a pool refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context as Cx, Waker};
use std::time::Duration;

use futures::FutureExt;
use procession::future::*;
use procession::*;

use crate::lives::SettlingWaker;
use crate::{lives, on_workers, step_aside, two, within};

const LONG: Duration = Duration::from_secs(3600);
const TICK: Duration = Duration::from_millis(1);

fn lone() -> Runtime {
    Runtime::builder().workers(0).build().unwrap()
}

/// A job. The member that receives the job waits for `until`, and then replies with its own pid.
struct Job {
    until: Option<futures::channel::oneshot::Receiver<()>>,
    reply: Reply<Pid>,
}

async fn work(mut ctx: Context<Job>) -> Result<(), Exit> {
    loop {
        let Job { until, reply } = ctx.receive().await?;
        if let Some(until) = until {
            let _ = until.await;
        }
        reply.send(ctx.pid());
    }
}

fn long(pool: &Address<Job>) -> (futures::channel::oneshot::Sender<()>, Call<Pid>) {
    let (tell, until) = futures::channel::oneshot::channel();
    (tell, pool.call(|reply| Job { until: Some(until), reply }).start())
}

fn short(pool: &Address<Job>) -> Call<Pid> {
    pool.call(|reply| Job { until: None, reply })
}

/// Lets other tasks run 200 times, so that every runnable task runs.
async fn settle() {
    for _ in 0..200 {
        step_aside().await;
    }
}

/// Waits until no process is alive.
async fn wait_for_all_exits(rt: &Runtime) {
    while rt.processes_alive() != 0 {
        step_aside().await;
    }
}

/// The members of a pool crash again and again while the pool replaces them. A turn of the pool ends after a limited
/// number of exits, so a cancellation ends the pool although the crashes continue.
#[test]
fn a_turn_of_a_pool_ends_while_its_members_crash() {
    /// Value that the body of the members owns. The pool clones this value for each start of a member.
    struct OnClone(std::sync::Weak<Runtime>, Arc<AtomicUsize>);

    impl OnClone {
        fn starts(&self) -> usize {
            self.1.load(SeqCst)
        }
    }

    impl Clone for OnClone {
        fn clone(&self) -> Self {
            let rt = self.0.upgrade().unwrap();
            if self.1.fetch_add(1, SeqCst) == 10 {
                rt.cancel(rt.whereis("pool").unwrap(), "enough", LONG).unwrap();
            }
            // The other member runs and crashes during the turn of the pool. In a runtime with several workers, the
            // other member could run and crash on another worker.
            rt.block_on(async {
                for _ in 0..4 {
                    step_aside().await;
                }
            });
            Self(self.0.clone(), Arc::clone(&self.1))
        }
    }
    within(60, || {
        const MOST: usize = 5_000;
        let rt = Arc::new(lone());
        let starts = Arc::new(AtomicUsize::new(0));
        let counts = OnClone(Arc::downgrade(&rt), Arc::clone(&starts));
        let body = move |mut ctx: Context<()>| {
            let crashes = counts.starts() < MOST;
            async move { if crashes { Err(Exit::failed("again")) } else { ctx.receive().await } }
        };
        let pool = Pool::new(2, body).restarts(u32::MAX, LONG);
        let pool = rt.process().name("pool").spawn_pool(pool).unwrap();
        assert!(matches!(rt.block_on(pool), Err(Exit::Cancelled(_))));
        let starts = starts.load(SeqCst);
        assert!((10..600).contains(&starts), "{starts} starts");
    });
}

/// Several senders fill the pool. Every message is read exactly once, by one member.
#[test]
fn every_message_to_a_pool_is_read_once() {
    const SENDERS: u64 = 4;
    const EACH: u64 = 2_000;
    for routing in 0..3 {
        let read = Arc::new(Mutex::new(BTreeMap::<u64, Vec<(Pid, u64)>>::new()));
        let pids = Arc::clone(&read);
        on_workers(async move |host| {
            let body = async move |mut ctx: Context<(u64, u64)>| -> Result<(), Exit> {
                loop {
                    let (sender, n) = ctx.receive().await?;
                    read.lock().unwrap().entry(sender).or_default().push((ctx.pid(), n));
                }
            };
            let pool = Pool::new(3, body).queue_capacity(8).member_capacity(4);
            let pool = host.spawn_pool(match routing {
                0 => pool,
                1 => pool.round_robin(),
                _ => pool.by_key(|message| message.0),
            });
            let senders: Vec<_> = (0..SENDERS)
                .map(|sender| {
                    let pool = pool.address();
                    host.spawn(async move |_: Context| {
                        for n in 0..EACH {
                            pool.send_wait((sender, n)).await?;
                        }
                        Ok::<_, Exit>(())
                    })
                })
                .collect();
            for sender in senders {
                sender.await.unwrap();
            }
            while pids.lock().unwrap().values().map(Vec::len).sum::<usize>() < (SENDERS * EACH) as usize {
                host.spawn(async |_: Context| ()).await.unwrap();
            }
            let read = pids.lock().unwrap();
            for messages in read.values() {
                let numbers: BTreeSet<_> = messages.iter().map(|(_, n)| *n).collect();
                assert_eq!((messages.len() as u64, numbers.len() as u64), (EACH, EACH));
                let readers: BTreeSet<_> = messages.iter().map(|(pid, _)| *pid).collect();
                if routing == 2 {
                    assert_eq!(readers.len(), 1, "one key, one member");
                    assert!(messages.iter().map(|(_, n)| *n).eq(0..EACH), "in order");
                }
            }
        });
    }
}

/// The default routing sends no message to a busy member while another member is idle.
#[test]
fn the_least_loaded_member_gets_the_message() {
    let rt = lone();
    let pool = rt.spawn_pool(Pool::new(3, work));
    rt.block_on(async {
        let (first_may, first) = long(&pool);
        let (second_may, second) = long(&pool);
        settle().await;
        let third = short(&pool).await.unwrap();
        for _ in 0..5 {
            assert_eq!(short(&pool).await.unwrap(), third, "the others have something in hand");
        }
        drop((first_may, second_may));
        let busy = [first.await.unwrap(), second.await.unwrap()];
        assert!(busy[0] != busy[1] && !busy.contains(&third));
    });
}

/// With round robin, the pool sends one message to each member, always in the same order of the members. The pool
/// ignores the load of the members, but skips a member with a full mailbox.
#[test]
fn round_robin_sends_one_message_to_each_member_in_a_fixed_order() {
    let rt = lone();
    let pool = rt.spawn_pool(Pool::new(3, work).round_robin().member_capacity(1));
    rt.block_on(async {
        let mut order = Vec::new();
        for _ in 0..6 {
            order.push(short(&pool).await.unwrap());
        }
        assert_eq!(order[..3], order[3..]);
        assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 3);
        let (may, stuck) = long(&pool);
        settle().await;
        let (queued_may, queued) = {
            let others = [short(&pool).await.unwrap(), short(&pool).await.unwrap()];
            assert_eq!(others, [order[1], order[2]]);
            long(&pool)
        };
        // The mailbox of the first member is full, so the second member gets the message instead.
        for expected in [1, 2, 1] {
            assert_eq!(short(&pool).await.unwrap(), order[expected]);
        }
        drop((may, queued_may));
        assert_eq!([stuck.await.unwrap(), queued.await.unwrap()], [order[0]; 2]);
    });
}

/// If no member can take a message, the message waits in the queue of the pool. If the queue is full too, either the
/// message is refused and returned, or its sender waits.
#[test]
fn a_full_pool_refuses_and_returns_messages() {
    let rt = lone();
    let pool = rt.spawn_pool(
        Pool::new(2, async |mut ctx: Context<u32>| -> Result<(), Exit> {
            ctx.receive().await?;
            std::future::pending().await
        })
        .queue_capacity(3),
    );
    rt.block_on(async {
        // After these sends, each member processes one message and has one message in its mailbox, and the queue of the
        // pool contains three messages.
        for n in 0..2 {
            pool.send(n).unwrap();
            settle().await;
        }
        for n in 2..7 {
            pool.send(n).unwrap();
            settle().await;
        }
        let refused = pool.send(7).unwrap_err();
        assert_eq!((refused.kind(), refused.into_message()), (SendErrorKind::Full, 7));
        let mut waits = Box::pin(pool.send_wait(8));
        assert!(futures::poll!(&mut waits).is_pending());
        assert_eq!(rt.counters().refused, 1);
        rt.cancel(pool.pid(), "enough", Duration::ZERO).unwrap();
        let ended = pool.exited().await;
        assert!(matches!(ended, Exit::Killed | Exit::Cancelled(_)), "{ended}");
        let refused = waits.await.unwrap_err();
        assert_eq!(refused.into_message(), 8);
        wait_for_all_exits(&rt).await;
        assert_eq!(rt.counters().dead_letters, 5);
    });
}

/// If all members are full and the queue of the pool has no room, the pool refuses a message. When a member has room
/// again, the pool accepts messages again.
#[test]
fn a_pool_without_a_queue_accepts_messages_after_an_overload() {
    let rt = lone();
    let builder = rt.process().limits(Limits::new().mailbox_capacity(0));
    let pool = builder.spawn_pool(Pool::new(1, work)).unwrap();
    rt.block_on(async {
        settle().await;
        let (may, first) = long(&pool);
        settle().await;
        let second = short(&pool).start();
        settle().await;
        assert!(matches!(short(&pool).await, Err(CallError::Send(SendErrorKind::Full))));
        drop(may);
        assert!(first.await.is_ok() && second.await.is_ok());
        settle().await;
        assert!(short(&pool).await.is_ok());
        rt.kill(pool.pid()).unwrap();
    });
}

/// A pool sends all messages with the same key to the same member, even if the mailbox of this member is full. A member
/// with a full mailbox does not delay the messages for other members.
#[test]
fn messages_of_one_key_go_to_one_member() {
    let rt = lone();
    // For each key and each member, the number of messages with this key that the member has received.
    let who = Arc::new(Mutex::new(BTreeMap::<u8, BTreeMap<Pid, u32>>::new()));
    let seen = Arc::clone(&who);
    let gate = Arc::new(AtomicBool::new(true));
    let open = Arc::clone(&gate);
    let body = async move |mut ctx: Context<u8>| -> Result<(), Exit> {
        loop {
            let key = ctx.receive().await?;
            *who.lock().unwrap().entry(key).or_default().entry(ctx.pid()).or_default() += 1;
            while key == 0 && !gate.load(SeqCst) {
                ctx.yield_now().await;
            }
        }
    };
    let pool = rt.spawn_pool(Pool::new(4, body).by_key(|key: &u8| *key).member_capacity(2));
    rt.block_on(async {
        for round in 0..4 {
            for key in 0..32 {
                pool.send_wait(key).await.unwrap();
            }
            let _ = round;
        }
        settle().await;
        {
            let seen = seen.lock().unwrap();
            assert!(seen.len() == 32 && seen.values().all(|members| members.len() == 1));
            assert_eq!(seen.values().flat_map(BTreeMap::keys).collect::<BTreeSet<_>>().len(), 4);
        }
        let (hot, other) = {
            let seen = seen.lock().unwrap();
            let hot = *seen[&0].keys().next().unwrap();
            (hot, *seen.iter().find(|(_, members)| !members.contains_key(&hot)).unwrap().0)
        };
        open.store(false, SeqCst);
        pool.send(0).unwrap();
        settle().await;
        pool.send(0).unwrap();
        pool.send(0).unwrap();
        assert_eq!(pool.send(0).unwrap_err().kind(), SendErrorKind::Full);
        // Another message waits for the member with the full mailbox. This waiting message does not delay messages for
        // other members.
        let mut waits = Box::pin(pool.send_wait(0));
        assert!(futures::poll!(&mut waits).is_ready(), "there is room in the queue");
        for _ in 0..20 {
            pool.send(other).unwrap();
            settle().await;
        }
        // The other member has received its messages, although the member with the full mailbox still waits.
        let received = |key: u8| seen.lock().unwrap()[&key].values().copied().collect::<Vec<_>>();
        assert_eq!((received(other), received(0)), (vec![4 + 20], vec![4 + 1]));
        open.store(true, SeqCst);
        settle().await;
        assert_eq!(seen.lock().unwrap()[&0], BTreeMap::from([(hot, 4 + 4)]));
    });
}

/// Many messages wait in the queue of a pool, and the only member has a small mailbox. Each time the member frees
/// space, the pool reads only the oldest messages of its queue. The number of calls of the key function is linear in
/// the number of messages.
#[test]
fn a_pool_with_a_full_member_does_not_read_its_whole_queue() {
    const MESSAGES: usize = 2_000;
    within(60, || {
        let rt = lone();
        let (calls, read) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (count, notes) = (Arc::clone(&calls), Arc::clone(&read));
        let body = async move |mut ctx: Context<usize>| -> Result<(), Exit> {
            loop {
                let n = ctx.receive().await?;
                notes.lock().unwrap().push(n);
            }
        };
        let pool = Pool::new(1, body).by_key(move |_| {
            count.fetch_add(1, SeqCst);
        });
        let pool = rt.spawn_pool(pool.member_capacity(1).queue_capacity(MESSAGES));
        for n in 0..MESSAGES {
            pool.send(n).unwrap();
        }
        rt.block_on(async {
            while read.lock().unwrap().len() < MESSAGES {
                step_aside().await;
            }
        });
        assert!(read.lock().unwrap().iter().copied().eq(0..MESSAGES), "in order");
        let calls = calls.load(SeqCst);
        assert!(calls <= 5 * MESSAGES, "{calls} calls for {MESSAGES} messages");
    });
}

/// One member of a pool is full. The messages that wait for other members overtake the messages that wait for the full
/// member. The messages of each key stay in order.
#[test]
fn waiting_messages_of_one_key_stay_in_order_while_one_member_is_full() {
    const KEYS: u8 = 16;
    const EACH: u32 = 100;
    within(60, || {
        let rt = lone();
        let read = Arc::new(Mutex::new(BTreeMap::<u8, (Pid, Vec<u32>)>::new()));
        let open = Arc::new(AtomicBool::new(false));
        let (notes, gate) = (Arc::clone(&read), Arc::clone(&open));
        let body = async move |mut ctx: Context<(u8, u32)>| -> Result<(), Exit> {
            loop {
                let (key, n) = ctx.receive().await?;
                notes.lock().unwrap().entry(key).or_insert_with(|| (ctx.pid(), Vec::new())).1.push(n);
                while key == 0 && !gate.load(SeqCst) {
                    ctx.yield_now().await;
                }
            }
        };
        let pool = Pool::new(4, body).by_key(|message: &(u8, u32)| message.0).member_capacity(2);
        let pool = rt.spawn_pool(pool.queue_capacity(usize::from(KEYS) * EACH as usize));
        for n in 0..EACH {
            for key in 0..KEYS {
                pool.send((key, n)).unwrap();
            }
        }
        rt.block_on(settle());
        // If no message of a key has been read yet, the full member is the member for this key.
        let all_read =
            |key: u8| read.lock().unwrap().get(&key).is_some_and(|(_, numbers)| numbers.len() == EACH as usize);
        let keys = || read.lock().unwrap().clone();
        let hot = keys()[&0].0;
        let others = (0..KEYS).filter(|key| keys().get(key).is_some_and(|(pid, _)| *pid != hot)).collect::<Vec<_>>();
        assert!(!others.is_empty());
        rt.block_on(async {
            while !others.iter().all(|&key| all_read(key)) {
                step_aside().await;
            }
        });
        assert_eq!(keys()[&0].1, [0], "the first message occupies the member");
        open.store(true, SeqCst);
        rt.block_on(async {
            while !(0..KEYS).all(all_read) {
                step_aside().await;
            }
        });
        assert!(keys().values().all(|(_, numbers)| numbers.iter().copied().eq(0..EACH)), "in order");
    });
}

/// While a pool starts its members in several turns, the pool sends all messages with the same key to the same member,
/// including the urgent messages. For each key, the messages that are not urgent stay in order.
#[test]
fn messages_of_one_key_go_to_one_member_during_the_start() {
    const KEYS: u64 = 64;
    let rt = lone();
    let received = Arc::new(Mutex::new(BTreeMap::<u64, (BTreeSet<Pid>, Vec<usize>)>::new()));
    let notes = Arc::clone(&received);
    let body = async move |mut ctx: Context<(u64, Option<usize>)>| -> Result<(), Exit> {
        loop {
            let (key, number) = ctx.receive().await?;
            let mut notes = notes.lock().unwrap();
            let (members, numbers) = notes.entry(key).or_default();
            members.insert(ctx.pid());
            numbers.extend(number);
        }
    };
    let pool = rt.spawn_pool(Pool::new(600, body).by_key(|message: &(u64, Option<usize>)| message.0));
    let rounds = rt.block_on(async {
        // After each turn of the pool, the test sends two messages of each key. After the start, the test sends two
        // further messages of each key. During the start, the pool refuses the urgent messages.
        let (mut started, mut before, mut round) = (pool.started(), 1, 0);
        loop {
            let (has_started, alive) = ((&mut started).now_or_never().is_some(), rt.processes_alive());
            if has_started || alive > before {
                for key in 0..KEYS {
                    let _ = pool.send_urgent((key, None));
                    pool.send((key, Some(round))).unwrap();
                }
                (before, round) = (alive, round + 1);
            }
            step_aside().await;
            if has_started {
                break;
            }
        }
        let count = || received.lock().unwrap().values().map(|(_, numbers)| numbers.len()).sum::<usize>();
        while count() < KEYS as usize * round {
            step_aside().await;
        }
        round
    });
    assert!(rounds > 2, "the pool needs several turns for its start");
    let received = received.lock().unwrap();
    assert_eq!(received.len() as u64, KEYS);
    for (key, (members, numbers)) in &*received {
        assert_eq!((members.len(), numbers), (1, &(0..rounds).collect()), "key {key}");
    }
}

/// A member that exits is replaced. Only the message that the member was processing is lost. Messages that are routed
/// by key stay in order.
#[test]
fn an_exited_member_is_replaced_and_its_unread_messages_are_kept() {
    for routing in 0..3 {
        let rt = lone();
        let read = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&read);
        let body = async move |mut ctx: Context<u32>| -> Result<(), Exit> {
            loop {
                let n = ctx.receive().await?;
                if n % 10 == 3 {
                    return Err(Exit::failed("dropped it"));
                }
                assert_ne!(n % 10, 7, "dropped it too");
                read.lock().unwrap().push(n);
                if n % 10 == 9 {
                    return Ok(());
                }
            }
        };
        let pool = Pool::new(2, body).restarts(1_000, LONG).member_capacity(30);
        let pool = rt.spawn_pool(match routing {
            0 => pool,
            1 => pool.round_robin(),
            _ => pool.by_key(|_| 1),
        });
        let mut letters = rt.dead_letters();
        rt.block_on(async {
            for n in 0..200 {
                pool.send_wait(n).await.unwrap();
            }
            while seen.lock().unwrap().len() < 160 {
                step_aside().await;
            }
            settle().await;
        });
        let mut seen = seen.lock().unwrap().clone();
        if routing == 2 {
            assert!(seen.is_sorted(), "{seen:?}");
        }
        seen.sort_unstable();
        assert!(seen.iter().copied().eq((0..200).filter(|n| !matches!(n % 10, 3 | 7))), "{seen:?}");
        assert!(letters.try_receive().is_none());
        // The pool forwards each accepted message, but the message is counted only once.
        assert_eq!(rt.counters().messages, 200);
    }
}

/// If too many members exit within the period, the pool fails, and its exit contains the cause. The remaining members
/// of the pool exit too.
#[test]
fn a_pool_fails_if_its_members_exit_too_often() {
    let rt = lone();
    let lives = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&lives);
    let pool = rt.spawn_pool(
        Pool::new(2, async move |_: Context<u32>| -> Result<(), Exit> {
            if count.fetch_add(1, SeqCst) == 0 {
                return std::future::pending().await;
            }
            Err(Exit::failed("no luck"))
        })
        .restarts(3, LONG),
    );
    let address = pool.address();
    let exit = rt.block_on(pool).unwrap_err();
    assert_eq!(
        exit.to_string(),
        "failed: the pool exceeded its restart intensity of 3 in 3600s; the last exit of a member: failed: no luck"
    );
    assert_eq!(lives.load(SeqCst), 5);
    rt.block_on(wait_for_all_exits(&rt));
    assert_eq!(address.send(1).unwrap_err().into_message(), 1);

    check(0..10, async |host: Host| {
        let dies = |life: Duration| {
            let body = async move |ctx: Context<u32>| -> Result<(), Exit> {
                ctx.sleep(life).await;
                Err(Exit::failed("no luck"))
            };
            host.spawn_pool(Pool::new(1, body).restarts(3, LONG))
        };
        // If each member lives for a third of the period, there are at most three exits within one period.
        let (spawned, pool) = (host.counters().spawned, dies(LONG / 3));
        host.sleep(100 * LONG + TICK).await;
        assert!(!pool.is_finished());
        assert_eq!(host.counters().spawned - spawned, 1 + 1 + 300);
        let (begun, life) = (host.now(), LONG / 3 - TICK);
        assert!(dies(life).await.is_err());
        assert_eq!(host.now() - begun, 4 * life);
    });
}

/// A pool grows up to its maximum size while the mailboxes of its members are full. A pool shrinks to its minimum size
/// when members are idle.
#[test]
fn a_pool_grows_and_shrinks_between_its_bounds() {
    for least in [0, 1] {
        check(0..10, async |host: Host| {
            let pool = host.spawn_pool(Pool::new(least, work).max_size(3).idle_timeout(LONG));
            let members = || host.processes_alive() - 1;
            host.sleep(TICK).await;
            assert_eq!(members(), least);
            let calls: Vec<_> = (0..10).map(|_| long(&pool)).collect();
            host.sleep(TICK).await;
            assert_eq!(members(), 3);
            // A member that processes a message is not idle, however often the pool checks.
            host.sleep(10 * LONG).await;
            assert_eq!(members(), 3);
            let mut pids = BTreeSet::new();
            for (may, call) in calls {
                drop(may);
                pids.insert(call.await.unwrap());
            }
            assert_eq!(pids.len(), 3);
            // The members were busy at the last check, one tick ago. At the next check, the members have not been idle
            // for long enough.
            host.sleep(2 * LONG - 2 * TICK).await;
            assert_eq!(members(), 3);
            host.sleep(2 * TICK).await;
            assert_eq!(members(), 2);
            host.sleep(2 * (2 - least as u32) * LONG).await;
            assert_eq!(members(), least);
            host.sleep(10 * LONG).await;
            assert_eq!(members(), least);
            // The pool still works.
            assert!(short(&pool).await.is_ok());
        });
    }
}

/// 4.6b: many messages wait in the queue of a pool. The pool grows by at most 16 members in one turn, so that other
/// processes run in between.
#[test]
fn a_pool_grows_by_few_members_in_one_turn() {
    check(0..10, async |host: Host| {
        let pool = host.spawn_pool(Pool::new(1, work).max_size(200));
        let turns = || host.process_details(pool.pid()).unwrap().info.steps as usize;
        let members = || host.processes_alive() - 1;
        host.sleep(TICK).await;
        let mut seen = (members(), turns());
        assert_eq!(seen.0, 1);
        let jobs: Vec<_> = (0..800).map(|_| long(&pool)).collect();
        while members() < 200 {
            step_aside().await;
            let new = (members(), turns());
            assert!(new.0 - seen.0 <= 16 * (new.1 - seen.1), "{seen:?}, {new:?}");
            seen = new;
        }
        drop(jobs);
    });
}

/// A member exits when it has been idle for the whole idle timeout, and not earlier. A member that was busy at the
/// previous check does not exit at the present check. This also holds if another member with the same number of
/// received messages exits at the present check.
#[test]
fn a_member_that_was_busy_at_the_last_check_stays() {
    async fn takes_long(mut ctx: Context<(Duration, Reply<()>)>) -> Result<(), Exit> {
        loop {
            let (time, reply) = ctx.receive().await?;
            ctx.sleep(time).await;
            reply.send(());
        }
    }
    // Duration of the job of the second member. The third member exits at one check. With the first value, the job ends
    // between this check and the next check. With the second value, the job ends after the next check.
    for busy in [LONG * 14 / 5, LONG * 7 / 2] {
        check(0..10, async |host: Host| {
            let pool = host.spawn_pool(Pool::new(1, takes_long).max_size(3).idle_timeout(LONG));
            let members = || host.processes_alive() - 1;
            let job = |time| pool.call(move |reply| (time, reply)).start();
            for one in [0, 1, 2].map(|_| job(LONG / 100)) {
                one.await?;
            }
            // The first of these jobs keeps the first member busy until the end of the test. The second job keeps the
            // second member busy for the duration `busy`. After the third job, the third member is idle. The second
            // member and the third member have then received two messages each.
            let [_busy, second] = [job(100 * LONG), job(busy)];
            job(Duration::ZERO).await?;
            second.await?;
            let idle_since = host.now();
            assert_eq!(members(), 2);
            while members() == 2 {
                host.sleep(LONG / 100).await;
            }
            let idle = host.now() - idle_since;
            assert!(idle >= LONG && idle <= 2 * LONG, "gone after {idle:?}");
            Ok::<_, Exit>(())
        });
    }
}

/// A pool routes messages by key. The pool routes a key to one member. If the mailbox of this member is full, the pool
/// grows.
#[test]
fn a_pool_grows_when_the_mailbox_of_the_member_for_a_key_is_full() {
    let rt = lone();
    let pool = rt.spawn_pool(Pool::new(1, work).by_key(|_| 0).member_capacity(1).max_size(2));
    rt.block_on(async {
        settle().await;
        let in_hand = long(&pool);
        settle().await;
        let unread = long(&pool);
        assert_eq!(rt.processes_alive(), 1 + 1);
        assert!(matches!(short(&pool).await, Err(CallError::Send(SendErrorKind::Full))));
        settle().await;
        assert_eq!(rt.processes_alive(), 1 + 2);
        drop((in_hand, unread));
    });
}

/// If a pool is cancelled, the pool cancels its members. The members may use their grace period. The pool exits when
/// all its members have exited.
#[test]
fn a_cancelled_pool_lets_its_members_finish() {
    let rt = lone();
    let done = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&done);
    let pool = rt.spawn_pool(Pool::new(2, async move |mut ctx: Context<u32>| -> Result<(), Exit> {
        loop {
            match ctx.receive().await {
                Ok(_) => {}
                Err(exit) => {
                    for _ in 0..20 {
                        ctx.yield_now().await;
                    }
                    count.fetch_add(1, SeqCst);
                    return Err(exit);
                }
            }
        }
    }));
    rt.block_on(async {
        pool.send(1).unwrap();
        settle().await;
        rt.cancel(pool.pid(), "closing time", LONG).unwrap();
        assert_eq!(pool.await.unwrap_err().to_string(), Exit::Cancelled("closing time".into()).to_string());
    });
    assert_eq!((done.load(SeqCst), rt.processes_alive()), (2, 0));
}

/// A token or a shutdown does not cancel the members of a pool directly, because the members would then be cancelled
/// before the pool. Instead, the pool cancels its members, and replaces no member. The members exit normally after
/// their cancellation.
#[test]
fn a_token_or_a_shutdown_cancels_the_pool_and_not_its_members() {
    for by_token in [true, false] {
        let (rt, token) = (Arc::new(lone()), CancelToken::new());
        // A shutdown cancels the processes in the order of their slots. The members reuse the slots of the processes
        // that the next line aborts.
        (0..3).for_each(|_| rt.spawn(async |mut ctx: Context| ctx.receive().await).abort());
        let waits = Arc::new(Mutex::new(Vec::new()));
        let given = Arc::clone(&waits);
        let pool = Pool::new(3, async move |mut ctx: Context<()>| {
            given.lock().unwrap().push(ctx.cancelled());
            let _ = ctx.receive().await;
        });
        let pool = rt.process().cancel_token(&token).spawn_pool(pool).unwrap();
        lives::settle(&rt);
        let settling = Arc::new(SettlingWaker(Arc::clone(&rt), AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&settling));
        let mut first = std::mem::take(&mut *waits.lock().unwrap());
        assert_eq!(first.len(), 3);
        assert!(first.iter_mut().all(|wait| Pin::new(wait).poll(&mut Cx::from_waker(&waker)).is_pending()));
        if by_token {
            token.cancel("over", LONG);
        } else {
            drop(rt.shutdown(LONG));
        }
        settling.1.store(false, SeqCst);
        let exit = rt.block_on(pool).unwrap_err();
        assert_eq!(exit.to_string(), if by_token { "cancelled: over" } else { "cancelled: shutdown" });
        assert_eq!((waits.lock().unwrap().len(), rt.processes_alive()), (0, 0), "no member was replaced");
    }
}

/// A member of a pool waits for a helper. A token cancels first the helper and then the pool. The exit of the helper
/// ends the member. The pool does not replace this member.
#[test]
fn a_member_that_exits_because_of_the_token_of_its_pool_is_not_replaced() {
    let (rt, token, starts) = (Arc::new(lone()), CancelToken::new(), Arc::new(AtomicUsize::new(0)));
    let waits = Arc::new(Mutex::new(Vec::new()));
    let (given, started) = (Arc::clone(&waits), Arc::clone(&starts));
    let pool = Pool::new(3, async move |ctx: Context<()>| {
        started.fetch_add(1, SeqCst);
        let given = Arc::clone(&given);
        let helper = ctx.spawn(async move |mut ctx: Context| {
            given.lock().unwrap().push(ctx.cancelled());
            ctx.receive().await
        });
        helper.await
    });
    let pool = rt.process().cancel_token(&token).spawn_pool(pool.restarts(0, LONG)).unwrap();
    lives::settle(&rt);
    let settling = Arc::new(SettlingWaker(Arc::clone(&rt), AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&settling));
    let mut waits = std::mem::take(&mut *waits.lock().unwrap());
    assert!(waits.iter_mut().all(|wait| Pin::new(wait).poll(&mut Cx::from_waker(&waker)).is_pending()));
    token.cancel("over", LONG);
    settling.1.store(false, SeqCst);
    assert_eq!(rt.block_on(pool).unwrap_err().to_string(), "cancelled: over");
    assert_eq!(starts.load(SeqCst), 3);
}

/// A pool may have a name, and its members may inherit values. If the spawn of a pool is refused, the error returns the
/// pool.
#[test]
fn a_pool_is_spawned_like_any_process() {
    let rt = lone();
    let pool = rt.process().name("pool").value(7_u8).spawn_pool(Pool::new(1, async |mut ctx: Context<Reply<u8>>| {
        let value = *ctx.value::<u8>().unwrap();
        ctx.receive().await?.send(value);
        Ok::<_, Exit>(())
    }));
    let pool = pool.unwrap();
    assert_eq!(rt.whereis("pool"), Some(pool.pid()));
    assert_eq!(rt.block_on(rt.call("pool", |reply: Reply<u8>| reply)).unwrap(), 7);
    let refused = rt.process().name("pool").spawn_pool(Pool::new(5, work)).unwrap_err();
    assert_eq!(format!("{:?}", refused.into_body()), "Pool<it::pools::Job>(5..=5)");
    rt.kill(pool.pid()).unwrap();
    rt.block_on(wait_for_all_exits(&rt));
}

/// A pool begins without members, and the start of its first member is refused. The pool retries the start after a
/// pause.
#[test]
fn the_refused_start_of_the_first_member_is_retried() {
    for seed in 0..10 {
        let mut simulation = Simulation::with_host(seed, HostBuilder::new("").max_processes(2)).unwrap();
        let host = simulation.host().clone();
        simulation.run(async {
            let other = host.spawn(async |_: Context| std::future::pending::<()>().await);
            let pool = host.spawn_pool(Pool::new(0, async |mut ctx: Context<Reply<u64>>| -> Result<(), Exit> {
                loop {
                    ctx.receive().await?.send(5);
                }
            }));
            pool.started().await.unwrap();
            let call = pool.call(|reply| reply).start();
            host.sleep(50 * TICK).await;
            other.abort();
            let _ = other.await;
            assert_eq!(call.timeout(3000 * TICK).await.ok(), Some(5));
        });
    }
}

/// Members are killed and the pool grows, while several processes send messages. Each message is either read, or lost
/// with the member that was processing the message. No message is refused, because the senders wait until the pool can
/// take their messages.
#[test]
fn kills_of_members_lose_only_messages_in_progress() {
    const SENDERS: u64 = 4;
    const EACH: u64 = 1_500;
    within(120, || {
        let rt = two();
        let (read, begun) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let crew = Group::<u64>::new("crew");
        let (seen, hands) = (Arc::clone(&read), Arc::clone(&begun));
        let body = async move |mut ctx: Context<u64>| -> Result<(), Exit> {
            ctx.join_group(crew);
            loop {
                ctx.receive().await?;
                hands.fetch_add(1, SeqCst);
                ctx.yield_now().await;
                seen.fetch_add(1, SeqCst);
            }
        };
        let pool = rt.spawn_pool(Pool::new(1, body).max_size(4).queue_capacity(16).restarts(u32::MAX, LONG));
        let over = Arc::new(AtomicBool::new(false));
        let killer = {
            let (host, over) = (rt.host().clone(), Arc::clone(&over));
            std::thread::spawn(move || {
                let mut kills = 0_u32;
                // On a busy machine, all senders may end before this thread has killed a member. In this case, the
                // thread kills a member after the senders have ended.
                while kills == 0 || !over.load(SeqCst) {
                    if let Some(victim) = host.members(crew).first() {
                        kills += u32::from(host.kill(victim.pid()).is_ok());
                    }
                    std::thread::yield_now();
                }
                kills
            })
        };
        let senders: Vec<_> = (0..SENDERS)
            .map(|_| {
                let pool = pool.address();
                rt.spawn(async move |_: Context| {
                    for n in 0..EACH {
                        pool.send_wait(n).await?;
                    }
                    Ok::<_, Exit>(())
                })
            })
            .collect();
        for sender in senders {
            rt.block_on(sender).unwrap();
        }
        over.store(true, SeqCst);
        assert!(killer.join().unwrap() > 0);
        // A member receives and counts a message in the same step. A kill takes effect only between two steps, so every
        // received message is counted.
        let all = (SENDERS * EACH) as usize;
        while begun.load(SeqCst) < all {
            std::thread::yield_now();
        }
        assert_eq!((begun.load(SeqCst), rt.counters().messages, rt.counters().dead_letters), (all, all as u64, 0));
        assert!(read.load(SeqCst) <= all);
    });
}

/// 4.6b: a pool starts its first members in several turns, so other tasks run between these turns. The pool has started
/// when all members were spawned. If the pool is cancelled during its start, all members exit.
#[test]
fn a_large_pool_starts_its_members_in_several_turns() {
    const MEMBERS: usize = 2000;
    async fn wait(mut ctx: Context<()>) -> Result<(), Exit> {
        ctx.receive().await
    }
    let rt = lone();
    let pool = rt.spawn_pool(Pool::new(MEMBERS, wait));
    let most = rt.block_on(async {
        let (mut started, mut before, mut most) = (pool.started(), 0, 0);
        while (&mut started).now_or_never().is_none() {
            let alive = rt.processes_alive();
            most = most.max(alive - before);
            before = alive;
            step_aside().await;
        }
        most
    });
    assert!(most < MEMBERS / 2, "{most} members were spawned between two polls");
    assert_eq!(rt.processes_alive(), MEMBERS + 1);
    let cancelled = rt.spawn_pool(Pool::new(MEMBERS, wait));
    rt.block_on(async {
        while rt.processes_alive() <= MEMBERS + 2 {
            step_aside().await;
        }
    });
    assert!(rt.processes_alive() < 2 * MEMBERS, "the second pool is still starting its members");
    let started = cancelled.started();
    for pool in [cancelled, pool] {
        rt.cancel(pool.pid(), "stop", LONG).unwrap();
        assert_eq!(rt.block_on(pool), Err(Exit::Cancelled("stop".into())));
    }
    assert_eq!(rt.block_on(started), Err(Exit::Cancelled("stop".into())), "the second pool has not started");
    rt.block_on(wait_for_all_exits(&rt));
}

/// 2.3j, 6.4g: a pool that routes by key refuses a message if its members are full. A `Recipient` detects this refusal
/// before it converts the message. So the caller gets the original message back. A `Recipient` of a kept mailbox that
/// is full detects the refusal in the same way.
#[test]
fn a_recipient_returns_a_message_that_no_member_accepts() {
    struct Number(u8);
    impl From<u8> for Number {
        fn from(number: u8) -> Self {
            Self(number)
        }
    }
    async fn waits(mut ctx: Context<Number>) -> Result<(), Exit> {
        let Number(number) = ctx.receive().await?;
        assert_eq!(number, 0);
        std::future::pending().await
    }
    let rt = Runtime::builder().workers(0).build().unwrap();
    let settle = || (0..20).for_each(|_| rt.block_on(step_aside()));
    let pool = rt.spawn_pool(Pool::new(1, waits).by_key(|number: &Number| number.0).member_capacity(1));
    let child = Child::new("kept", waits).keep_mailbox();
    let child = child.options(|build| build.mailbox_capacity(MailboxCapacity::Reject(1)));
    let supervisor = rt.spawn_process(Supervisor::one_for_one().add(child));
    settle();
    let kept = rt.address(rt.whereis("kept").expect("the child runs")).expect("the type is right");
    for address in [pool.address(), kept] {
        address.send(Number(0)).unwrap();
        settle();
        address.send(Number(1)).unwrap();
        let recipient: Recipient<u8> = address.recipient();
        let before = rt.counters();
        recipient.send_urgent(4).unwrap();
        for urgent in [false, true] {
            let refused = if urgent { recipient.send_urgent(3) } else { recipient.send(3) }.unwrap_err();
            assert_eq!((refused.kind(), refused.into_message()), (SendErrorKind::Full, 3), "{urgent}");
        }
        let after = rt.counters() - before;
        assert_eq!((after.dead_letters, after.refused), (0, 2));
    }
    // While no instance runs, the kept mailbox refuses urgent messages, because no process could read the urgent
    // messages before the other messages.
    let recipient: Recipient<u8> = rt.address::<Number>(rt.whereis("kept").expect("it is kept")).unwrap().recipient();
    let stopped = supervisor.call(|reply| supervisor::SupervisorMessage::TerminateChild("kept".into(), reply)).start();
    assert!(rt.block_on(stopped).unwrap());
    assert_eq!(recipient.send_urgent(5).map_err(SendError::into_message), Err(5));
    assert!(recipient.send(6).is_ok());
}

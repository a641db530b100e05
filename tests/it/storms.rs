//! Sections 2, 4.3, 4.9 and 11 of the specification: guessed pids, endless spawns and endless messages. In these tests,
//! other processes still run, and the numbers of live processes and messages stay bounded.
//!
//! If the environment variable `PROCESSION_LONG` is set, the tests use very large numbers (10^7 spawns, 10^8 messages),
//! otherwise smaller numbers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use futures::executor::block_on;
use futures::future::BoxFuture;
use procession::*;

use crate::{shut_down, two, within};

fn amount(usual: u64, long: u64) -> (u64, u64) {
    if std::env::var_os("PROCESSION_LONG").is_some() { (long, 3_600) } else { (usual, 120) }
}

/// Small deterministic generator of pseudo-random numbers. The generator always produces the same numbers, so a failing
/// case can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, most: usize) -> usize {
        (self.next() % most as u64) as usize
    }

    /// Returns either `near`, a number close to `near`, 0, the maximum, or a random number.
    fn number(&mut self, near: u32) -> u32 {
        match self.below(16) {
            0 => 0,
            1 => u32::MAX,
            2 => near.wrapping_add(1),
            3 => near.wrapping_sub(1),
            4 => near ^ (1 << self.below(32)),
            5 => self.next() as u32,
            _ => near,
        }
    }
}

/// Returns the text with some bytes changed, duplicated, inserted or removed.
fn mutated(text: &str, random: &mut Random) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len().max(1)).min(bytes.len());
        match random.below(4) {
            0 if !bytes.is_empty() => drop(bytes.remove(at.min(bytes.len() - 1))),
            1 => bytes.insert(at, b"<>.-0123456789abcdefF+ \0"[random.below(24)]),
            2 if at < bytes.len() => bytes[at] = random.next() as u8,
            _ => bytes.extend_from_within(at..),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// 2.1a, 2.1e, 11: the test guesses pids from random text and random numbers. Each guess either is not a valid pid, or
/// is the pid of no live process, or reaches exactly the process with this pid.
#[test]
fn a_guessed_pid_reaches_no_other_process() {
    let (cases, seconds) = amount(50_000, 5_000_000);
    within(seconds, move || {
        let (rt, other) = (two(), two());
        let got = |rt: &Runtime| {
            let handle = rt.spawn(async |mut ctx: Context<u64>| -> Result<(), Exit> {
                loop {
                    let sent = ctx.receive().await?;
                    assert_eq!(sent, u64::from(ctx.pid().index()), "a message for another process");
                }
            });
            (handle.pid(), handle)
        };
        let alive: BTreeMap<_, _> = (0..20).map(|_| got(&rt)).collect();
        let elsewhere: BTreeMap<_, _> = (0..20).map(|_| got(&other)).collect();
        let ended: Vec<Pid> =
            (0..20).map(|_| rt.spawn(async |_: Context| {})).map(|h| (h.pid(), block_on(h)).0).collect();
        let known: Vec<Pid> = alive.keys().chain(elsewhere.keys()).chain(&ended).copied().collect();
        let mut random = Random(0x9E37_79B9_7F4A_7C15);
        let mut reached = 0;
        for _ in 0..cases {
            let pid = known[random.below(known.len())];
            let text = if random.below(2) == 0 {
                mutated(&pid.to_string(), &mut random)
            } else {
                let [node, incarnation] = [pid.node(), pid.incarnation()].map(|n| random.number(n));
                let [index, generation] = [pid.index(), pid.generation()].map(|n| random.number(n));
                format!("<{node}-{incarnation:x}.{index}.{generation}>")
            };
            let Ok(guess) = text.parse::<Pid>() else { continue };
            assert_eq!(guess.to_string(), text, "each pid has one text");
            let sent = rt.send(guess, u64::from(guess.index()));
            assert_eq!(sent.is_ok(), alive.contains_key(&guess), "{text}");
            reached += u64::from(sent.is_ok());
            if !alive.contains_key(&guess) {
                assert!(rt.address::<u64>(guess).is_none() && rt.kill(guess).is_err(), "{text}");
                assert!(rt.cancel(guess, "guessed", Duration::ZERO).is_err(), "{text}");
            }
        }
        assert!(reached > cases / 100, "some guesses are right: {reached}");
        let counters = rt.counters();
        assert_eq!((counters.messages, counters.dead_letters, counters.panics), (reached, 0, 0));
        assert_eq!((other.counters().messages, other.processes_alive(), rt.processes_alive()), (0, 20, 20));
    });
}

/// Counters that the processes or messages of a storm share.
#[derive(Default)]
struct Storm {
    left: AtomicU64,
    refused: AtomicU64,
    alive: AtomicUsize,
    most: AtomicUsize,
}

/// Counts a process or a message as alive until this guard is dropped.
struct Alive(Arc<Storm>);

impl Alive {
    fn new(storm: &Arc<Storm>) -> Self {
        let alive = storm.alive.fetch_add(1, SeqCst) + 1;
        storm.most.fetch_max(alive, SeqCst);
        Self(storm.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, SeqCst);
    }
}

/// Returns the body of a process that spawns two processes with this same body. When the counter `left` is zero, the
/// body spawns no more processes.
fn spawns(ctx: Context<()>, alive: Alive) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        for _ in 0..2 {
            let storm = &alive.0;
            if storm.left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_err() {
                return;
            }
            let next = Alive::new(storm);
            if ctx.process().spawn(move |ctx| spawns(ctx, next)).is_err() {
                storm.refused.fetch_add(1, SeqCst);
            }
        }
    })
}

/// 4.9b, 11: processes spawn endlessly and reach the process limit of their host. Further spawns are refused. The
/// number of live processes never exceeds the limit. The processes of other hosts still run.
#[test]
fn endless_spawns_stay_within_the_limit() {
    const MOST: usize = 1_000;
    let (spawned, seconds) = amount(100_000, 10_000_000);
    within(seconds, move || {
        let rt = two();
        let hosts = rt.add_host(HostBuilder::new("storm").max_processes(MOST)).unwrap();
        let bystander = rt.spawn(async |mut ctx: Context<Reply<()>>| -> Result<(), Exit> {
            loop {
                ctx.receive().await?.send(());
            }
        });
        let storm = Arc::new(Storm { left: AtomicU64::new(spawned), ..Storm::default() });
        let mut answered = 0;
        while storm.left.load(SeqCst) > 0 {
            // The storm may end because all spawns of its last processes were refused. Then a new process starts the
            // storm again.
            if storm.alive.load(SeqCst) == 0 {
                let first = Alive::new(&storm);
                drop(hosts.process().spawn(move |ctx| spawns(ctx, first)).unwrap());
            }
            block_on(bystander.call(|reply| reply)).unwrap();
            answered += 1;
        }
        while storm.alive.load(SeqCst) > 0 {
            std::thread::yield_now();
        }
        println!("{answered} answers, {} refused", storm.refused.load(SeqCst));
        // A process is counted before its spawn, so a refused process counts as alive for a moment. At any time, at
        // most one refused process counts as alive on each worker and on each of the 16 replacement threads.
        assert!((MOST / 2..=MOST + 2 + 16).contains(&storm.most.load(SeqCst)), "{:?}", storm.most);
        assert!(storm.refused.load(SeqCst) > 0 && answered > 0);
        let counters = rt.counters();
        assert!(counters.spawned + storm.refused.load(SeqCst) >= spawned);
        assert_eq!(shut_down(rt, Duration::from_secs(10)).left, []);
    });
}

/// 2.2a, 2.3a, 2.3b, 2.3c, 11: senders send endlessly, and their receiver is slower than the senders. The test tries
/// each overflow policy. The number of live messages stays within the bound. Each message is received, returned, or
/// dropped by the policy. Other processes still run.
#[test]
fn endless_messages_stay_within_the_bounds() {
    const MOST: usize = 100;
    const SENDERS: u64 = 3;
    let (messages, seconds) = amount(150_000, 100_000_000);
    for bound in [MailboxCapacity::Reject(MOST), MailboxCapacity::DropOldest(MOST), MailboxCapacity::DropNewest(MOST)] {
        within(seconds, move || {
            let rt = two();
            let bystander = rt.spawn(async |mut ctx: Context<Reply<()>>| -> Result<(), Exit> {
                loop {
                    ctx.receive().await?.send(());
                }
            });
            let each = messages / 3 / SENDERS;
            let storm = Arc::new(Storm::default());
            let receiver = rt.process().mailbox_capacity(bound).spawn(async |mut ctx: Context<Option<Alive>>| {
                let mut received = 0_u64;
                // `None` is the last message. The sender sends the last message with `send_wait`, so a full mailbox
                // does not refuse this message.
                while ctx.receive().await?.is_some() {
                    received += 1;
                    if received.is_multiple_of(16) {
                        ctx.yield_now().await;
                    }
                }
                Ok::<_, Exit>(received)
            });
            let receiver = receiver.unwrap();
            let senders: Vec<_> = (0..SENDERS)
                .map(|_| {
                    let (address, storm) = (receiver.address(), storm.clone());
                    rt.spawn(async move |ctx: Context| {
                        for n in 0..each {
                            if address.send(Some(Alive::new(&storm))).is_err() {
                                storm.refused.fetch_add(1, SeqCst);
                            }
                            if n.is_multiple_of(64) {
                                ctx.yield_now().await;
                            }
                        }
                    })
                })
                .collect();
            for sender in senders {
                while !sender.is_finished() {
                    block_on(bystander.call(|reply| reply)).unwrap();
                }
                block_on(sender).unwrap();
            }
            block_on(receiver.send_wait(None)).unwrap();
            let received = block_on(receiver).unwrap();
            let (refused, dropped) = (storm.refused.load(SeqCst), rt.counters().dropped_by_policy);
            println!("{bound:?}: {received} received, {refused} refused, {dropped} dropped");
            assert_eq!(received + refused + dropped, each * SENDERS);
            // Messages outside the queue are alive too: each sender holds one message, and the receiver holds one
            // message or a whole burst.
            assert!(storm.most.load(SeqCst) <= 2 * MOST + SENDERS as usize + 1, "{:?}", storm.most);
            assert_eq!(storm.alive.load(SeqCst), 0);
        });
    }
}

/// 4.3a, 4.6b: a process endlessly sends messages to itself. Other processes still run.
#[test]
fn a_process_that_endlessly_sends_to_itself_lets_other_processes_run() {
    within(60, || {
        let rt = crate::alone().build().unwrap();
        let endless = rt.spawn(async |mut ctx: Context<u64>| -> Result<(), Exit> {
            loop {
                let n = ctx.receive().await?;
                ctx.address().send(n + 1)?;
            }
        });
        endless.send(0).unwrap();
        let echo = rt.spawn(async |mut ctx: Context<Reply<()>>| -> Result<(), Exit> {
            loop {
                ctx.receive().await?.send(());
            }
        });
        for _ in 0..100 {
            block_on(echo.call(|reply| reply)).unwrap();
        }
        assert!(!endless.is_finished() && rt.counters().messages > 100);
        endless.abort();
        assert!(block_on(endless).is_err());
    });
}

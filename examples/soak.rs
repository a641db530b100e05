//! A load test of all features, for a given time. Test processes, called monkeys, spawn other processes and perform
//! random operations on these processes. The spawned processes exit, panic, are killed and are cancelled. The monkeys
//! send messages and calls to living and dead processes. Handlers answer, fail, panic, wait, or drop their completions.
//! Streams are dropped before all items were read, and sleeps are cancelled. At the end, each process must have exited.
//! Each accepted message must have been read, or must be a dead letter. The memory must not have grown.
//!
//! `cargo run --release --example soak -- [SECONDS [WORKERS [SEED]]]`

// The file `clippy.toml` forbids some types and methods in the source of the crate. This program may use these types
// and methods.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt;
use procession::*;

/// Maximum number of processes that the monkeys know at a time. A monkey is a process that performs random operations
/// on the known processes. `MONKEYS` is the number of monkeys.
const KNOWN: usize = 2_000;
const MONKEYS: usize = 8;

enum Msg {
    Note,
    Ask(Reply<u64>),
    Forget(Reply<u64>),
    Panic,
    End,
}

/// What a handler does with one command.
#[derive(Clone, Copy)]
enum Reaction {
    Answer,
    Fail,
    Panic,
    Drop,
    Wait,
}

struct Inline(Reaction);
struct Later(Reaction);
struct Slow(Reaction);
struct Block(Reaction);
struct Count(u64);

impl Command for Inline {
    type Reply = u64;
}
impl Command for Later {
    type Reply = u64;
}
impl Command for Slow {
    type Reply = u64;
}
impl Command for Block {
    type Reply = u64;
}
impl Command for Count {
    type Reply = u64;
}
impl StreamCommand for Count {
    type Item = u64;
}

fn answer_or_fail(reaction: Reaction) -> Result<u64, &'static str> {
    match reaction {
        Reaction::Panic => panic!("chosen at random"),
        Reaction::Fail => Err("chosen at random"),
        Reaction::Answer | Reaction::Drop | Reaction::Wait => Ok(1),
    }
}

fn build(workers: usize, seed: u64) -> Result<Runtime, BuildError> {
    Runtime::builder()
        .workers(workers)
        .seed(seed)
        .max_blocking_threads(4)
        .blocking_queue_capacity(64)
        .handle(|c: Inline| answer_or_fail(c.0))
        .handler(|c: Later, answer: Completion<u64>| {
            let host = answer.host().clone();
            match c.0 {
                Reaction::Drop => drop(answer),
                Reaction::Panic => panic!("chosen at random"),
                Reaction::Wait => host.clone().spawn_future(async move {
                    // Waits until the command is cancelled.
                    answer.cancelled().await;
                    drop(answer);
                }),
                reaction => {
                    host.spawn_future(async move { answer.finish(answer_or_fail(reaction).map_err(Failure::from)) })
                }
            }
        })
        .handle_async(|c: Slow| async move {
            if matches!(c.0, Reaction::Wait) {
                std::future::pending::<()>().await;
            }
            answer_or_fail(c.0)
        })
        .handle_blocking(|c: Block| answer_or_fail(c.0))
        .handle_stream(|c: Count, mut replies: StreamCompletion<Count>| async move {
            for n in 0..c.0 {
                replies.send(n).await?;
            }
            replies.complete(c.0);
            Ok::<_, Failure>(())
        })
        .build()
}

#[derive(Default)]
struct Books {
    /// Number of messages that were taken out of mailboxes.
    read: AtomicU64,
    sent: AtomicU64,
    refused: AtomicU64,
    answered: AtomicU64,
    unanswered: AtomicU64,
    performed: AtomicU64,
    failed: AtomicU64,
    over: AtomicBool,
    known: Mutex<Vec<Address<Msg>>>,
}

/// A process under test. The monkeys send messages to this process, call this process and kill this process.
async fn citizen(mut ctx: Context<Msg>, books: Arc<Books>) -> Result<(), Exit> {
    loop {
        let message = ctx.receive().await?;
        books.read.fetch_add(1, Relaxed);
        match message {
            Msg::Note => {
                if ctx.random().is_multiple_of(4) {
                    let _ = ctx.perform(Inline(Reaction::Answer)).await;
                }
            }
            Msg::Ask(reply) => reply.send(1),
            Msg::Forget(reply) => drop(reply),
            Msg::Panic => panic!("as told"),
            Msg::End => return Ok(()),
        }
    }
}

async fn monkey(ctx: Context, books: Arc<Books>) -> Result<(), Exit> {
    let pick = |n: u64| ctx.random() % n;
    while !books.over.load(Relaxed) {
        let target = {
            let known = books.known.lock().unwrap();
            known.get(pick(KNOWN as u64) as usize).cloned()
        };
        let reaction =
            [Reaction::Answer, Reaction::Answer, Reaction::Fail, Reaction::Panic, Reaction::Drop, Reaction::Wait]
                [pick(6) as usize];
        let limit = Duration::from_micros(pick(3_000));
        let count = |result: Result<u64, Failure>| {
            let counter = if result.is_ok() { &books.performed } else { &books.failed };
            counter.fetch_add(1, Relaxed);
        };
        match (pick(16), target) {
            (0..3, _) | (_, None) => {
                let own = Arc::clone(&books);
                let limits = if pick(4) == 0 { Limits::new().mailbox_capacity(4).steps(50) } else { Limits::new() };
                if let Ok(new) = ctx.process().limits(limits).spawn(|ctx| citizen(ctx, own)) {
                    let mut known = books.known.lock().unwrap();
                    if known.len() < KNOWN {
                        known.push(new.address());
                    } else {
                        let at = pick(KNOWN as u64) as usize;
                        let former = std::mem::replace(&mut known[at], new.address());
                        drop(known);
                        // The process `former` is no longer in the list. Without the next line, `former` could wait
                        // forever.
                        let _ = ctx.host().cancel(former.pid(), "forgotten", Duration::from_millis(5));
                    }
                }
            }
            (3..7, Some(target)) => {
                for _ in 0..=pick(20) {
                    let counter = if target.send(Msg::Note).is_ok() { &books.sent } else { &books.refused };
                    counter.fetch_add(1, Relaxed);
                }
            }
            (7, Some(target)) => {
                let forgets = pick(3) == 0;
                let ask = |reply| if forgets { Msg::Forget(reply) } else { Msg::Ask(reply) };
                let answer = ctx.call(&target, ask).timeout(limit).await;
                let counter = if answer.is_ok() { &books.answered } else { &books.unanswered };
                counter.fetch_add(1, Relaxed);
            }
            (8, Some(target)) => {
                // The process may already have exited.
                match pick(4) {
                    0 => drop(ctx.host().kill(target.pid())),
                    1 => drop(ctx.host().cancel(target.pid(), "chosen at random", limit)),
                    2 => drop(target.send(Msg::Panic)),
                    _ => drop(target.send(Msg::End)),
                }
            }
            (9, _) => count(ctx.perform(Inline(reaction)).timeout(limit).await),
            (10, _) => count(ctx.perform(Later(reaction)).timeout(limit).await),
            (11, _) => count(ctx.perform(Slow(reaction)).timeout(limit).await),
            (12, _) => count(ctx.perform(Block(reaction)).timeout(limit).await),
            (13, _) => {
                let mut numbers = ctx.stream(Count(pick(50)));
                for _ in 0..pick(50) {
                    if numbers.next().await.is_none() {
                        break;
                    }
                }
            }
            (14, _) => {
                // The sleep completes first, because the handler never answers. The drop of both futures then cancels
                // the command.
                let both = futures::future::select(ctx.perform(Slow(Reaction::Wait)), Box::pin(ctx.sleep(limit))).await;
                drop(both);
            }
            _ => ctx.yield_now().await,
        }
    }
    Ok(())
}

/// Resident memory of this program in bytes, or `None` if the system does not report the resident memory.
fn resident() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(statm.split(' ').nth(1)?.parse::<u64>().ok()? * 4096)
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let seconds = arguments.next().unwrap_or(600);
    let workers = arguments.next().unwrap_or(4) as usize;
    let seed = arguments.next().unwrap_or(1);
    std::panic::set_hook(Box::new(|_| {}));
    let rt = build(workers, seed).expect("nothing is wrong with it");
    let books = Arc::new(Books::default());
    let monkeys: Vec<_> = (0..MONKEYS)
        .map(|_| {
            let books = Arc::clone(&books);
            rt.spawn(|ctx: Context| monkey(ctx, books))
        })
        .collect();
    let begun = Instant::now();
    let mut memory = Vec::new();
    while begun.elapsed() < Duration::from_secs(seconds) {
        std::thread::sleep(Duration::from_millis(500));
        memory.extend(resident());
    }
    books.over.store(true, Relaxed);
    let mut wrong = Vec::new();
    for monkey in monkeys {
        if let Err(exit) = rt.block_on(monkey) {
            wrong.push(format!("a monkey {exit}"));
        }
    }
    let host = rt.host().clone();
    let left = futures::executor::block_on(rt.shutdown(Duration::from_secs(30)));
    let counters = host.counters();
    println!("{counters}");
    let read = |counter: &AtomicU64| counter.load(Relaxed);
    println!(
        "sent {}, refused {}, read {}; calls {} + {}; commands {} + {}",
        read(&books.sent),
        read(&books.refused),
        read(&books.read),
        read(&books.answered),
        read(&books.unanswered),
        read(&books.performed),
        read(&books.failed)
    );
    if !left.left.is_empty() {
        wrong.push(format!("{} processes outlived the shutdown", left.left.len()));
    }
    if counters.spawned != counters.exited || host.processes_alive() != 0 {
        wrong.push(format!("{} spawned, {} ended", counters.spawned, counters.exited));
    }
    if counters.messages != read(&books.read) + counters.dead_letters {
        let (accepted, dead) = (counters.messages, counters.dead_letters);
        wrong.push(format!("{accepted} messages accepted, {} read and {dead} dead letters", read(&books.read)));
    }
    // The first third of the time is the warm-up.
    let memory = &memory[memory.len() / 3..];
    if let (Some(first), Some(last)) = (memory.first(), memory.last()) {
        println!("resident: {} MB after a third, {} MB at the end", first >> 20, last >> 20);
        if *last > first + first / 4 + (8 << 20) {
            wrong.push("memory grew".into());
        }
    }
    for wrong in &wrong {
        eprintln!("{wrong}");
    }
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

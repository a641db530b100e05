//! Five ways to answer a command: inline, by a future, by a blocking closure, later from a thread, and by name.

// The file `clippy.toml` forbids some types and methods in the source of the crate. This program may use these types
// and methods.
#![allow(clippy::disallowed_methods)]

use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use procession::{Command, Completion, Context, Exit, Failure, NamedCommand, Payload, Runtime};

struct Add(u64, u64);
impl Command for Add {
    type Reply = u64;
}

struct Slow(u64);
impl Command for Slow {
    type Reply = u64;
}

struct ReadFile(&'static str);
impl Command for ReadFile {
    type Reply = Vec<u8>;
}

struct Later(u64);
impl Command for Later {
    type Reply = u64;
}

struct Unheard;
impl Command for Unheard {
    type Reply = ();
}

async fn body(ctx: Context) -> Result<(), Exit> {
    println!("1 + 2 = {}", ctx.perform(Add(1, 2)).await?);

    // Several commands are in flight. The answers may arrive in any order, and each future resolves to the answer to
    // the command of this future.
    let mut slow: FuturesUnordered<_> = (1..=3).map(|n| ctx.perform(Slow(n))).collect();
    let mut sum = 0;
    while let Some(n) = slow.next().await {
        sum += n?;
    }
    println!("sum of all slow answers: {sum}");

    let manifest = ctx.perform(ReadFile("Cargo.toml")).await?;
    println!("the manifest has {} bytes", manifest.len());
    match ctx.perform(ReadFile("there is no such file")).await {
        Err(failure) => println!("the failure arrives as a value: {failure}"),
        Ok(_) => unreachable!("there is such a file"),
    }
    println!("from another thread: {}", ctx.perform(Later(7)).await?);

    // Performs a command by its name. Programs that run scripts use named commands.
    let shouted = ctx.perform(NamedCommand::new("shout").arg("hello".to_owned())).await?;
    println!("{}", shouted.downcast::<String>().unwrap_or_default());

    // The time limit expires before the handler answers. The handler detects that the command is cancelled.
    let late = ctx.perform(Later(60_000)).timeout(Duration::from_millis(5)).await;
    assert!(matches!(late, Err(Failure::TimedOut)));
    let missing = ctx.perform(Unheard).await;
    println!("{}", missing.expect_err("it has no handler"));
    Ok(())
}

fn main() -> procession::Result {
    let rt = Runtime::builder()
        .handle(|c: Add| c.0 + c.1)
        .handle_async(|c: Slow| async move { c.0 * 10 })
        .handle_blocking(|c: ReadFile| std::fs::read(c.0))
        .handler(|c: Later, done: Completion<u64>| {
            std::thread::spawn(move || {
                // Computes until the result is ready or the command is cancelled.
                for _ in 0..c.0 {
                    std::thread::sleep(Duration::from_millis(1));
                    if done.is_cancelled() {
                        return;
                    }
                }
                done.complete(c.0);
            });
        })
        .handler_named("shout", |c: NamedCommand, done: Completion<Payload>| {
            let words = c.payloads.into_iter().filter_map(|word| word.downcast::<String>().ok());
            done.complete(Payload::new(words.map(|word| word.to_uppercase()).collect::<String>()));
        })
        .build()?;
    rt.block_on(rt.spawn(body))?;
    Ok(())
}

//! A simulation finds an order of events in which a wrong protocol loses money. For a correct protocol, the simulation
//! finds no order that loses money. At the end, the program simulates a year of virtual time in a short real time.
//!
//! Two clerks move money between two accounts. The accounts are processes. With the wrong protocol, a clerk reads a
//! balance and then writes the new balance. With the correct protocol, a clerk sends the change to the account.

use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

use procession::{Address, Context, Exit, Host, Reply, Simulation, check};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

enum Account {
    Read(Reply<i64>),
    Write(i64),
    Add(i64),
}

async fn account(mut ctx: Context<Account>, mut balance: i64) -> Result<(), Exit> {
    loop {
        match ctx.receive().await? {
            Account::Read(reply) => reply.send(balance),
            Account::Write(new) => balance = new,
            Account::Add(amount) => balance += amount,
        }
    }
}

/// Reads the balance, then writes the new balance. If the other clerk changes the balance between the read and the
/// write, this change is lost.
async fn careless(account: &Address<Account>, amount: i64) -> Result<(), Exit> {
    let balance = account.call(Account::Read).await?;
    account.send(Account::Write(balance + amount))?;
    Ok(())
}

async fn careful(account: &Address<Account>, amount: i64) -> Result<(), Exit> {
    Ok(account.send(Account::Add(amount))?)
}

/// For some days, each of two clerks makes one transfer per day. Fails if the total has changed.
async fn transfers(host: Host, days: i64, is_careful: bool) -> Result<(), Exit> {
    let [a, b] = [70, 30].map(|balance| host.spawn(move |ctx| account(ctx, balance)).address());
    let clerks = [1, -2].map(|amount| {
        let (a, b) = (a.clone(), b.clone());
        host.spawn(async move |ctx: Context| {
            for _ in 0..days {
                for (account, amount) in [(&a, -amount), (&b, amount)] {
                    match is_careful {
                        true => careful(account, amount).await?,
                        false => careless(account, amount).await?,
                    }
                }
                ctx.sleep(DAY).await;
            }
            Ok::<_, Exit>(())
        })
    });
    for clerk in clerks {
        clerk.await?;
    }
    let total = a.call(Account::Read).await? + b.call(Account::Read).await?;
    if total == 100 { Ok(()) } else { Err(Exit::failed(format!("the total was 100, and is now {total}"))) }
}

fn main() -> procession::Result {
    // Each seed gives a different order of events. After the first failed run, `check` searches for a smaller run that
    // also fails. Then `check` panics. The message of the panic states how to repeat the run.
    panic::set_hook(Box::new(|_| ()));
    let found = panic::catch_unwind(AssertUnwindSafe(|| check(0..1_000, |host| transfers(host, 2, false))));
    let _ = panic::take_hook();
    let found = found.expect_err("the careless protocol is wrong");
    println!("{}\n", found.downcast_ref::<String>().expect("a text"));

    check(0..1_000, |host| transfers(host, 2, true));
    println!("careful: the total is 100 in each of 1,000 runs");

    let mut simulation = Simulation::new(1);
    let begun = simulation.now();
    simulation.run(transfers(simulation.host().clone(), 365, true))?;
    println!("careful: the total is also 100 after {} days", (simulation.now() - begun).as_secs() / DAY.as_secs());
    Ok(())
}

//! Each account is a process. Accounts transfer money while random accounts are killed. At the end, the total of all
//! balances equals the initial total, to the cent.
//!
//! A killed account is restarted with the data of this account on the disk. An account saves each payment before the
//! account sends the payment. The account sends a payment again until the receiver acknowledges the payment. The
//! receiver credits each payment only once.

// The file `clippy.toml` forbids some types and methods in the source of the crate. This program may use these types
// and methods.
#![allow(clippy::disallowed_types)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use procession::{
    CancelToken, Child, Command, Context, Exit, Host, Instant, Name, Next, Reply, Result, Runtime, Server, Supervisor,
};

const NAMES: [&str; 6] = ["ada", "bill", "carl", "dora", "emil", "fay"];
/// Initial balance. All amounts are in cents.
const OPENING: u64 = 100_000;
const TELLERS: usize = 4;
const KILLS: u64 = 300;
const RESEND: Duration = Duration::from_millis(10);

type Owner = &'static str;

fn account(owner: Owner) -> Name<Msg> {
    Name::new(owner)
}

// ---- The disk: data that outlives a process

/// Data of an account.
#[derive(Clone, Default)]
struct Book {
    balance: u64,
    /// Debited payments that are not acknowledged yet. The key is the number of the payment. The value consists of the
    /// receiver and the amount of the payment.
    sent: BTreeMap<u64, (Owner, u64)>,
    next: u64,
    /// Credited payments. Each entry consists of the sender and the number that the sender gave to the payment.
    taken: BTreeSet<(Owner, u64)>,
}

/// Reads an account for a new instance of the account's process. After this read, the disk refuses writes of earlier
/// instances of the process, even if such a write is already in progress.
struct Load(Owner);
impl Command for Load {
    type Reply = (u64, Book);
}

struct Save(Owner, u64, Book);
impl Command for Save {
    type Reply = ();
}

/// The data of each account, and the number of the present instance of the account's process.
#[derive(Default)]
struct Disk(Mutex<BTreeMap<Owner, (u64, Book)>>);

impl Disk {
    fn load(&self, owner: Owner) -> (u64, Book) {
        let mut disk = self.0.lock().expect("no panic");
        let (instance, book) = disk.entry(owner).or_insert((0, Book { balance: OPENING, ..Book::default() }));
        *instance += 1;
        (*instance, book.clone())
    }

    fn save(&self, owner: Owner, instance: u64, book: Book) -> Result<(), &'static str> {
        let mut disk = self.0.lock().expect("no panic");
        match disk.get_mut(owner) {
            Some(entry) if entry.0 == instance => entry.1 = book,
            _ => return Err("another instance has begun"),
        }
        Ok(())
    }
}

// ---- An account

enum Msg {
    Pay(Owner, u64, Reply<Result<(), &'static str>>),
    Credit {
        from: Owner,
        number: u64,
        amount: u64,
    },
    Credited(u64),
    /// Returns the balance, and the number of payments that are not acknowledged.
    Look(Reply<(u64, usize)>),
}

struct Account {
    owner: Owner,
    instance: u64,
    book: Book,
    resend: Option<Instant>,
}

impl Account {
    fn new(owner: Owner) -> Self {
        Self { owner, instance: 0, book: Book::default(), resend: None }
    }

    async fn save(&self, ctx: &Context<Msg>) -> Result<(), Exit> {
        Ok(ctx.perform(Save(self.owner, self.instance, self.book.clone())).await?)
    }

    /// Sends a payment. If the receiver is dead, this account sends the payment again later.
    fn send(&mut self, ctx: &Context<Msg>, number: u64) {
        let Some(&(to, amount)) = self.book.sent.get(&number) else { return };
        let _ = ctx.send(account(to), Msg::Credit { from: self.owner, number, amount });
        self.resend.get_or_insert(ctx.now() + RESEND);
    }

    fn send_all(&mut self, ctx: &Context<Msg>) {
        self.resend = None;
        for number in self.book.sent.keys().copied().collect::<Vec<_>>() {
            self.send(ctx, number);
        }
    }
}

impl Server for Account {
    type Message = Msg;
    type Output = ();

    async fn init(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        (self.instance, self.book) = ctx.perform(Load(self.owner)).await?;
        self.send_all(ctx);
        Ok(())
    }

    async fn handle(&mut self, message: Msg, ctx: &mut Context<Msg>) -> Result<Next<()>, Exit> {
        match message {
            Msg::Pay(_, amount, reply) if amount > self.book.balance => reply.send(Err("not enough")),
            Msg::Pay(to, amount, reply) => {
                self.book.balance -= amount;
                let number = self.book.next;
                self.book.next += 1;
                self.book.sent.insert(number, (to, amount));
                self.save(ctx).await?;
                self.send(ctx, number);
                reply.send(Ok(()));
            }
            Msg::Credit { from, number, amount } => {
                if self.book.taken.insert((from, number)) {
                    self.book.balance += amount;
                    self.save(ctx).await?;
                }
                let _ = ctx.send(account(from), Msg::Credited(number));
            }
            Msg::Credited(number) => {
                if self.book.sent.remove(&number).is_some() {
                    self.save(ctx).await?;
                }
            }
            Msg::Look(reply) => reply.send((self.book.balance, self.book.sent.len())),
        }
        Ok(Next::Wait)
    }

    fn deadline(&self) -> Option<Instant> {
        self.resend
    }

    async fn handle_timeout(&mut self, ctx: &mut Context<Msg>) -> Result<Next<()>, Exit> {
        self.send_all(ctx);
        Ok(Next::Wait)
    }
}

// ---- Tellers, kills and the check

/// Makes payments until the cancel token of this process is cancelled. Returns the number of confirmed payments and the
/// number of uncertain payments. If the account is killed before the account replies, the teller does not know whether
/// the account has made the payment.
async fn teller(ctx: Context) -> Result<(u64, u64), Exit> {
    let any = || NAMES[ctx.random() as usize % NAMES.len()];
    let (mut confirmed, mut unknown) = (0, 0);
    while !ctx.is_cancelled() {
        let (from, to, amount) = (any(), any(), ctx.random() % 20_000);
        match ctx.call(account(from), |reply| Msg::Pay(to, amount, reply)).await {
            Ok(paid) => confirmed += u64::from(paid.is_ok()),
            Err(_) => {
                unknown += 1;
                ctx.sleep(Duration::from_millis(1)).await;
            }
        }
    }
    Ok((confirmed, unknown))
}

/// Kills random accounts.
async fn storm(ctx: Context) -> Result<(), Exit> {
    let mut kills = 0;
    while kills < KILLS {
        let owner = NAMES[ctx.random() as usize % NAMES.len()];
        if let Some(pid) = ctx.host().whereis(owner)
            && ctx.host().kill(pid).is_ok()
        {
            kills += 1;
        }
        ctx.sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Returns the balance of an account as soon as all payments of this account are acknowledged.
async fn settled(host: &Host, owner: Owner) -> u64 {
    loop {
        match host.call(account(owner), Msg::Look).await {
            Ok((balance, 0)) => return balance,
            _ => host.sleep(RESEND).await,
        }
    }
}

fn main() -> Result {
    let disk = Arc::new(Disk::default());
    let (reads, writes) = (Arc::clone(&disk), Arc::clone(&disk));
    let rt = Runtime::builder()
        .handle(move |Load(owner): Load| reads.load(owner))
        .handle_async(move |Save(owner, instance, book): Save| {
            let disk = Arc::clone(&writes);
            async move {
                // Because of this delay, a kill can happen after the request for a write and before the write.
                smol::future::yield_now().await;
                disk.save(owner, instance, book)
            }
        })
        .build()?;
    let bank = NAMES.into_iter().fold(Supervisor::one_for_one().intensity(u32::MAX, RESEND), |bank, owner| {
        bank.add(Child::new(account(owner), move |ctx| Account::new(owner).serve(ctx)))
    });
    let bank = rt.spawn_process(bank);
    rt.block_on(bank.started())?;

    let day = CancelToken::new();
    let tellers = (0..TELLERS).map(|_| rt.process().cancel_token(&day).spawn(teller));
    let tellers = tellers.collect::<Result<Vec<_>, _>>()?;
    rt.block_on(rt.spawn(storm))?;
    day.cancel("the day is over", Duration::from_secs(10));
    let done = rt.block_on(futures::future::try_join_all(tellers))?;
    let (confirmed, unknown) = done.into_iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));

    // After this line, no new payments are made. When all payments are acknowledged, the balances no longer change.
    for owner in NAMES {
        rt.block_on(settled(&rt, owner));
    }
    let mut total = 0;
    for owner in NAMES {
        let balance = rt.block_on(settled(&rt, owner));
        println!("{owner:>5} {:>6}.{:02}", balance / 100, balance % 100);
        total += balance;
    }
    println!("total {:>6}.{:02}", total / 100, total % 100);
    println!("{KILLS} kills; {confirmed} payments are confirmed, {unknown} payments have an unknown result");
    assert_eq!(total, OPENING * NAMES.len() as u64, "money was made or lost");
    assert!(confirmed > 0 && unknown > 0, "no payment was confirmed, or no payment was interrupted");
    let shutdown = futures::executor::block_on(rt.shutdown(Duration::from_secs(10)));
    assert!(shutdown.left.is_empty(), "{shutdown:?}");
    Ok(())
}

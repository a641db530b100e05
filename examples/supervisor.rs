//! A supervision tree whose processes crash on purpose. The supervisors restart the processes. If a child crashes too
//! often, its supervisor stops the other children and fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use procession::{
    Backoff, Child, Context, Exit, Host, Name, Reply, RestartPolicy, Runtime, Supervisor,
    supervisor::{SupervisorError, SupervisorMessage},
};

enum Order {
    Take(&'static str, Reply<u64>),
}

const KITCHEN: Name<SupervisorMessage> = Name::new("kitchen");
const STOVE: Name<()> = Name::new("stove");
const COOK: Name<Order> = Name::new("cook");
const DOOR: Name<()> = Name::new("door");

/// A cook: cooks dishes and fails when a dish burns. The mailbox is kept across restarts, so the next instance receives
/// the remaining orders.
async fn cook(mut ctx: Context<Order>, served: Arc<AtomicU64>) -> Result<(), Exit> {
    println!("  cook {} begins", ctx.pid());
    loop {
        let Order::Take(dish, reply) = ctx.receive().await?;
        match dish {
            "soufflé" => panic!("the soufflé is on fire"),
            _ => reply.send(served.fetch_add(1, Ordering::Relaxed) + 1),
        }
    }
}

async fn stove(mut ctx: Context<()>) -> Result<(), Exit> {
    println!("  stove {} is lit", ctx.pid());
    let ended = ctx.receive().await;
    println!("  stove {} is off", ctx.pid());
    ended
}

/// A process that waits for a message, and then fails.
async fn door(mut ctx: Context<()>) -> Result<(), Exit> {
    ctx.receive().await?;
    Err(Exit::failed("it fell shut"))
}

fn kitchen(served: &Arc<AtomicU64>) -> Supervisor {
    // A cook cannot work without the stove. With rest-for-one, the supervisor restarts the child that exited and all
    // later children.
    Supervisor::rest_for_one()
        .intensity(5, Duration::from_secs(10))
        .child(STOVE, stove)
        .add(Child::with_args(COOK, Arc::clone(served), cook).keep_mailbox())
}

async fn order(host: &Host, dish: &'static str) {
    match host.call(COOK, |reply| Order::Take(dish, reply)).await {
        Ok(n) => println!("  {dish}: served, number {n}"),
        Err(error) => println!("  {dish}: {error}"),
    }
}

fn main() -> procession::Result {
    let rt = Runtime::new()?;
    let served = Arc::new(AtomicU64::new(0));
    let kept = Arc::clone(&served);
    let backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(20));
    let restaurant = Supervisor::one_for_one()
        .intensity(2, Duration::from_secs(10))
        .add(Child::process(KITCHEN, move || kitchen(&kept)))
        .add(Child::new(DOOR, door).restart(RestartPolicy::Transient).backoff(backoff));
    println!("it opens:");
    let restaurant = rt.spawn_process(restaurant);
    rt.block_on(restaurant.started())?;
    println!("{}", rt.block_on(rt.supervision_tree(&restaurant))?);

    println!("\na cook burns something, and the next one goes on with what was ordered:");
    rt.block_on(async { futures::join!(order(&rt, "soup"), order(&rt, "soufflé"), order(&rt, "bread")) });

    println!("\nthe stove goes out, and the cook with it:");
    let out = rt.whereis(STOVE).ok_or("there is a stove")?;
    rt.kill(out)?;
    rt.block_on(rt.exited(out));
    rt.block_on(order(&rt, "tea"));
    println!("{}", rt.block_on(rt.supervision_tree(&restaurant))?);

    println!("\nthe door can't be mended:");
    let mut opened = 0;
    while !restaurant.is_finished() {
        // Between the exit of the process `door` and its restart, no process has this name, and the send fails.
        opened += u64::from(rt.send(DOOR, ()).is_ok());
        std::thread::yield_now();
    }
    let exit = rt.block_on(restaurant).expect_err("it has given up");
    println!("  {exit}");
    let Some(SupervisorError::RestartIntensityExceeded { child, .. }) = exit.error() else { return Err(exit.into()) };
    assert_eq!((child.as_str(), served.load(Ordering::Relaxed)), ("door", 3));
    assert!(opened >= 3 && rt.whereis(COOK).is_none());
    println!("\nserved: {}, and no process is left", served.load(Ordering::Relaxed));
    Ok(())
}

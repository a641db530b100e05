use procession::*;
async fn worker(ctx: Context, n: u64) -> Result<u64, std::io::Error> {
    if n == 3 {
        panic!("three")
    }
    Ok(n)
}
async fn parent(mut ctx: Context<String>) -> Result<(), Exit> {
    ctx.trap_exit(true);
    let linked = ctx.spawn_link(|ctx| worker(ctx, 1));
    let (child, watch) = ctx.spawn_monitor(|ctx| worker(ctx, 3));
    let other = ctx.spawn(async |ctx: Context| {});
    let m = ctx.monitor(other.pid());
    ctx.link(other.pid())?;
    loop {
        match ctx.event().await {
            Event::Message(text) => println!("{text}"),
            Event::Down { monitor, pid, exit } if monitor == watch => println!("{pid} ended: {exit}"),
            Event::Exit { from, exit } => println!("linked {from}: {exit}"),
            Event::Cancel { .. } => break,
            _ => {}
        }
    }
    let n: Result<u64, Exit> = child.await;
    Ok(())
}
pub fn main() {
    Runtime::new().unwrap().spawn(parent);
}

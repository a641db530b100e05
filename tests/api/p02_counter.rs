use procession::{Context, Exit, Reply, Runtime};
enum Msg {
    Inc(u64),
    Get(Reply<u64>),
}
async fn counter(mut ctx: Context<Msg>, start: u64) -> Result<(), Exit> {
    let mut count = start;
    loop {
        match ctx.receive().await? {
            Msg::Inc(n) => count += n,
            Msg::Get(reply) => reply.send(count),
        }
    }
}
pub fn main() -> procession::Result {
    let rt = Runtime::new()?;
    let counter = rt.spawn(|ctx| counter(ctx, 0));
    counter.send(Msg::Inc(2))?;
    let n = rt.block_on(counter.call(Msg::Get))?;
    println!("{n}");
    Ok(())
}

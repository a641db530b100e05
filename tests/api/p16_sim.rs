use procession::*;
use std::time::Duration;
struct Now;
impl Command for Now {
    type Reply = u64;
}
enum Msg {
    Inc,
    Get(Reply<u64>),
}
async fn counter(mut ctx: Context<Msg>) -> Result<(), Exit> {
    let mut n = 0;
    loop {
        match ctx.receive().await? {
            Msg::Inc => {
                ctx.sleep(Duration::from_secs(3600)).await;
                n += 1
            }
            Msg::Get(r) => r.send(n),
        }
    }
}
async fn scenario(host: Host) -> Result<(), Exit> {
    let c = host.spawn(counter);
    c.send(Msg::Inc)?;
    assert_eq!(c.call(Msg::Get).await?, 1);
    Ok(())
}
pub fn main() -> procession::Result {
    let mut sim = Simulation::new(7);
    let host = (*sim).clone();
    sim.run(scenario(host))?;
    println!("{}", sim.trace());
    check(0..10_000, scenario);
    check(0..10, async |host: Host| {
        host.spawn(counter).send(Msg::Inc)?;
        Ok::<_, Exit>(())
    });
    let rt = Runtime::new()?;
    rt.block_on(scenario((*rt).clone()))?;
    Ok(())
}

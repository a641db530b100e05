use procession::supervisor::*;
use procession::*;
use std::{sync::Arc, time::Duration};
enum Msg {
    Inc(u64),
    Get(Reply<u64>),
    Crash,
}
const COUNTER: Name<Msg> = Name::new("counter");
async fn counter(mut ctx: Context<Msg>, start: u64) -> Result<(), Exit> {
    let mut count = start;
    loop {
        match ctx.receive().await? {
            Msg::Inc(n) => count += n,
            Msg::Get(reply) => reply.send(count),
            Msg::Crash => panic!("boom"),
        }
    }
}
pub fn main() -> procession::Result {
    let rt = Runtime::new()?;
    let tree = Supervisor::one_for_one().intensity(3, Duration::from_secs(5)).child(COUNTER, |ctx| counter(ctx, 0));
    rt.block_on(rt.spawn_process(tree).started())?;
    rt.send(COUNTER, Msg::Crash)?;
    let n = rt.block_on(rt.call(COUNTER, Msg::Get).timeout(Duration::from_secs(1)))?;
    println!("{n}");
    Ok(())
}
// ---- More ways to declare children. The functions below are only compiled.
struct Config {
    start: u64,
}
const SUB: Name<SupervisorMessage> = Name::new("sub");
const B: Name<Msg> = Name::new("b");
const C: Name<Msg> = Name::new("c");
async fn with_config(ctx: Context<Msg>, config: Arc<Config>) -> Result<(), Exit> {
    counter(ctx, config.start).await
}
fn more(rt: &Runtime) {
    let config = Arc::new(Config { start: 3 });
    let c2 = config.clone();
    let start = 4;
    let tree = Supervisor::rest_for_one()
        .add(
            Child::new(COUNTER, move |ctx| with_config(ctx, config.clone()))
                .restart(RestartPolicy::Transient)
                .backoff(Backoff::new(Duration::from_millis(10), Duration::from_secs(1)))
                .keep_mailbox(),
        )
        .child(B, move |ctx| counter(ctx, start))
        .child(C, move |mut ctx| {
            let c = c2.clone();
            async move {
                ctx.receive().await?;
                with_config(ctx, c).await
            }
        })
        .add(Child::process(SUB, || Supervisor::one_for_all().child(COUNTER, |ctx| counter(ctx, 0))));
    let tree =
        tree.add(Child::with_args(COUNTER, 5, counter)).add(Child::with_args(C, String::new(), async |mut ctx, s| {
            ctx.receive().await?;
            println!("{s}");
            Ok::<_, Exit>(())
        }));
    let t = rt.spawn_process(tree);
    let n = rt.block_on(t.call(SupervisorMessage::CountChildren));
    let add = rt.block_on(t.call(|r| SupervisorMessage::StartChild(Child::new(B, |ctx| counter(ctx, 1)), r)));
}

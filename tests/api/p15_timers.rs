use futures::{FutureExt, StreamExt};
use procession::*;
use std::time::Duration;
const S: Duration = Duration::from_secs(1);
#[derive(Clone)]
enum Msg {
    Tick,
    Get(std::sync::Arc<()>),
}
async fn body(mut ctx: Context<Msg>, peer: Address<Msg>) -> procession::Result {
    ctx.sleep(S).await;
    ctx.sleep_until(ctx.now() + S).await;
    let t = ctx.send_after(S, &peer, Msg::Tick);
    let again = ctx.send_interval(S, ctx.pid(), Msg::Tick);
    let left: Option<Duration> = ctx.cancel_timer(t);
    let mut every = ctx.interval(S).missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        futures::select! {
            _ = every.tick().fuse() => println!("tick"),
            m = ctx.receive().fuse() => { m?; break }
        }
    }
    let me = ctx.address();
    match ctx.timeout(S, every.tick()).await {
        Ok(_) => {}
        Err(Failure::TimedOut) => {}
        Err(e) => return Err(e.into()),
    }
    let m = {
        let t = ctx.sleep(S);
        let r = ctx.receive();
        futures::pin_mut!(r);
        match futures::future::select(r, t).await {
            futures::future::Either::Left((m, _)) => m?,
            _ => return Ok(()),
        }
    };
    let n: u64 = "5".parse()?;
    if n == 4 {
        Err("four")?
    }
    Ok(())
}
pub fn main() {
    let rt = Runtime::new().unwrap();
    let (a, _m) = rt.mailbox();
    rt.spawn(|ctx| body(ctx, a));
}

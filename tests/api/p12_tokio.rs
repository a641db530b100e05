use procession::*;
use std::{future::Future, sync::Arc, time::Duration};
enum Msg {
    Hit(Reply<u64>),
}
async fn hits(mut ctx: Context<Msg>) -> anyhow::Result<()> {
    let mut n = 0;
    let sock = tokio::net::UdpSocket::bind("127.0.0.1:0").await?;
    sock.connect(sock.local_addr()?).await?;
    loop {
        let Msg::Hit(r) = ctx.receive().await?;
        n += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
        sock.send(b"x").await?;
        sock.recv(&mut [0; 1]).await?;
        r.send(n)
    }
}
// Has the signature of a route in axum: the arguments are a state and an async handler.
fn get<S: Clone + Send + Sync + 'static, F, Fut>(state: S, f: F)
where
    F: Fn(S) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<String, String>> + Send,
{
}
async fn index(hits: Address<Msg>) -> Result<String, String> {
    let n = hits.call(Msg::Hit).timeout(Duration::from_secs(1)).await.map_err(|e| e.to_string())?;
    Ok(format!("hit {n}"))
}
#[tokio::main]
pub async fn main() -> anyhow::Result<()> {
    let rt = Runtime::builder().tokio(tokio::runtime::Handle::current()).build()?;
    let hits = rt.spawn(hits);
    get(hits.address(), index);
    assert_eq!(index(hits.address()).await, Ok("hit 1".into()));
    let a = hits.address();
    let host: Host = (*rt).clone();
    tokio::spawn(async move {
        a.call(Msg::Hit).await?;
        host.spawn(async |_: Context| {}).await?;
        anyhow::Ok(())
    })
    .await??;
    rt.shutdown(Duration::from_secs(5)).await;
    // The shutdown has cancelled the process while the process waited for a message.
    assert_eq!(hits.await, Err(Exit::Cancelled(Reason::SHUTDOWN)));
    Ok(())
}

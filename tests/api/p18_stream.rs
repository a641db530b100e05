use futures::{SinkExt, StreamExt, stream};
use procession::*;
async fn pipe(ctx: Context<String>, next: Address<usize>) -> procession::Result {
    let (me, mailbox) = ctx.split();
    mailbox.map(|s| Ok(s.len())).forward(next.sink()).await?;
    Ok(())
}
async fn feed(ctx: Context, to: Address<String>) -> procession::Result {
    stream::iter(["a", "b"]).map(|s| Ok(s.to_string())).forward(to.sink()).await?;
    to.sink().send("c".into()).await?;
    Ok(())
}
async fn peek(mut ctx: Context<String>) -> procession::Result {
    let n: u64 = ctx.receive_where(|s| s.parse().map_err(|_| s)).await?;
    while let Some(s) = ctx.mailbox().next().await {
        println!("{s}")
    }
    Ok(())
}
struct Link;
impl Deliver for Link {
    fn deliver(&self, p: Envelope) -> std::result::Result<(), SendError<Envelope>> {
        println!("{} {:?}", p.to, p.payload);
        Ok(())
    }
}
pub fn main() {
    let rt = Runtime::new().unwrap();
    rt.spawn(peek);
    rt.attach_node(2, Link);
}

use procession::*;
async fn slow(mut ctx: Context<u64>) -> Result<(), Exit> {
    loop {
        let n = ctx.receive().await?;
        ctx.sleep(std::time::Duration::from_millis(n)).await
    }
}
async fn producer(ctx: Context, to: Address<u64>) -> Result<(), Exit> {
    for n in 0.. {
        to.send_wait(n).await?;
        ctx.send_wait(&to, n).await?;
    }
    Ok(())
}
pub fn main() -> procession::Result {
    let rt = Runtime::new()?;
    let slow = rt.process().mailbox_capacity(MailboxCapacity::Reject(64)).name("slow").spawn(slow)?;
    if let Err(e) = slow.send(1)
        && e.kind() == SendErrorKind::Full
    {
        let back: u64 = e.into_message();
    }
    let to = slow.address();
    rt.spawn(move |ctx| producer(ctx, to));
    Ok(())
}

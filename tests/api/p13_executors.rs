use procession::*;
use std::sync::Arc;
async fn job(ctx: Context) -> Result<u32, Exit> {
    Ok(1)
}
pub fn main() -> procession::Result {
    let rt = Arc::new(Runtime::builder().workers(0).build()?);
    let n = futures::executor::block_on(rt.run(rt.spawn(job)))?;
    let n = smol::block_on(rt.run(async { rt.spawn(job).await }))?;
    let rt2 = rt.clone();
    let lent = smol::spawn(async move { rt2.run(std::future::pending::<()>()).await });
    let rt3 = rt.clone();
    std::thread::spawn(move || futures::executor::block_on(rt3.run(rt3.sleep(std::time::Duration::from_secs(1)))));
    use futures::task::SpawnExt;
    (*rt).clone().spawn_with_handle(async { 1 })?;
    let (address, mailbox) = rt.mailbox::<String>();
    Ok(())
}

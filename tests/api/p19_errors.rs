use procession::future::*;
use procession::*;
#[derive(Debug, thiserror::Error)]
enum MyError {
    #[error("exit")]
    Exit(#[from] Exit),
    #[error("io")]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    F(#[from] Failure),
}
struct Ping;
impl Command for Ping {
    type Reply = ();
}
struct NotSync(std::cell::Cell<u8>);
async fn a(mut ctx: Context<u8>) -> Result<(), MyError> {
    ctx.receive().await?;
    std::fs::read("x")?;
    ctx.perform(Ping).await?;
    Ok(())
}
async fn b(mut ctx: Context<u8>) -> anyhow::Result<u8> {
    ctx.receive().await?;
    ctx.perform(Ping).await?;
    std::fs::read("x")?;
    ctx.send(ctx.pid(), NotSync(0.into()))?;
    anyhow::bail!("x")
}
async fn c(mut ctx: Context<u8>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    ctx.receive().await?;
    ctx.send(ctx.pid(), NotSync(0.into()))?;
    Ok(())
}
async fn d(mut ctx: Context<u8>) {
    let _ = ctx.receive().await;
}
async fn e(mut ctx: Context<u8>) -> Result<(), String> {
    Err("x".into())
}
async fn f(mut ctx: Context<u8>) -> Result<(), Exit> {
    ctx.receive().await?;
    ctx.perform(Ping).await?;
    std::fs::read("x")?;
    ctx.send(ctx.pid(), NotSync(0.into()))?;
    ctx.call(ctx.pid(), |r: Reply<()>| r).await?;
    Ok(())
}
pub fn main() {
    if std::env::args().count() == 1 {
        // If an exit by cancellation is converted to another error type, the crate must still recognise the
        // cancellation.
        let x = || Exit::Cancelled("bye".into());
        println!("box {:?}", Exit::failed(Box::<dyn std::error::Error + Send + Sync>::from(x())));
        println!("anyhow {:?}", Exit::failed(anyhow::Error::from(x())));
        println!("anyhow+context {:?}", Exit::failed(anyhow::Error::from(x()).context("while")));
        println!("thiserror {:?}", Exit::failed(MyError::from(x())));
        println!("string {:?}", Exit::failed("x"));
        return;
    }
    let rt = Runtime::new().unwrap();
    rt.spawn(a);
    rt.spawn(b);
    rt.spawn(c);
    rt.spawn(d);
    rt.spawn(e);
    rt.spawn(f);
    rt.spawn(async |_: Context| {});
}

use procession::future::*;
use procession::*;
struct OnlySend(std::cell::Cell<u8>);
impl Command for OnlySend {
    type Reply = OnlySend;
}
fn ss<T: Send + Sync + 'static>() {}
async fn with_timeout(mut ctx: Context<u8>) -> procession::Result<u8> {
    let m = (*ctx).clone();
    Ok(m.timeout(std::time::Duration::ZERO, ctx.receive()).await??)
}
pub fn main() {
    ss::<Context<OnlySend>>();
    ss::<Address<OnlySend>>();
    ss::<Reply<OnlySend>>();
    ss::<JoinHandle<OnlySend, OnlySend>>();
    ss::<Completion<OnlySend>>();
    ss::<Perform<OnlySend>>();
    ss::<SendError<OnlySend>>();
    ss::<Mailbox<OnlySend>>();
    ss::<Exit>();
    ss::<Failure>();
    let rt = Runtime::new().unwrap();
    rt.spawn(with_timeout);
    rt.spawn(async |mut ctx| -> Result<(), Exit> {
        match ctx.receive().await? {
            Some(1) => Ok(()),
            _ => Ok(()),
        }
    });
    let b: Box<dyn Process<Message = u8, Output = ()>>;
}

use procession::{
    handler::{self, Retry, Timeout},
    *,
};
use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
struct Add(u64, u64);
impl Command for Add {
    type Reply = u64;
}
#[derive(Clone)]
struct Fetch(String);
impl Command for Fetch {
    type Reply = String;
}
struct ReadFile(String);
impl Command for ReadFile {
    type Reply = Vec<u8>;
}
struct NextId;
impl Command for NextId {
    type Reply = u64;
}
struct Later(u64);
impl Command for Later {
    type Reply = u64;
}
struct Parse(String);
impl Command for Parse {
    type Reply = Result<u32, std::num::ParseIntError>;
}
struct Tail;
impl Command for Tail {
    type Reply = usize;
}
impl StreamCommand for Tail {
    type Item = String;
}
struct Ids(AtomicU64);
impl Handler<NextId> for Ids {
    fn handle(&self, _: NextId, c: Completion<u64>) {
        c.complete(self.0.fetch_add(1, Ordering::Relaxed))
    }
}
async fn fetch(f: Fetch) -> Result<String, io::Error> {
    Ok(f.0)
}
pub fn main() -> procession::Result {
    let rt = Runtime::builder()
        .handle(|c: Add| c.0 + c.1)
        .handle(|c: Parse| c.0.parse::<u32>())
        .handle_blocking(|c: ReadFile| std::fs::read(c.0))
        .handler(Retry::new(Timeout::new(handler::future(fetch), Duration::from_secs(1)), 3, Duration::from_millis(10)))
        .handler(Ids(AtomicU64::new(0)))
        .handler(|c: Later, done: Completion<u64>| {
            std::thread::spawn(move || {
                if !done.is_cancelled() {
                    done.complete(c.0)
                }
            });
        })
        .stream_handler(|_: Tail, mut out: StreamCompletion<Tail>| {
            let _ = async move {
                out.send("line".into()).await?;
                out.complete(1);
                Ok::<_, Failure>(())
            };
        })
        .build()?;
    rt.spawn(async |ctx: Context| -> Result<u64, Failure> {
        use futures::StreamExt;
        let n: u64 = ctx.perform(Add(1, 2)).await?;
        let p = ctx.perform(Parse("1".into())).await?;
        let mut lines = ctx.stream(Tail);
        while let Some(line) = lines.next().await {
            println!("{line}")
        }
        let count = lines.last().await?;
        Ok(n + count as u64)
    });
    let rt2 = Runtime::builder().handle_async(fetch).handle_async(async |c: Add| c.0 + c.1).build()?;
    Ok(())
}

use futures::{FutureExt, StreamExt, join, select, stream::FuturesUnordered};
use procession::*;
use std::time::Duration;
#[derive(Clone)]
struct Fetch(String);
impl Command for Fetch {
    type Reply = String;
}
enum Msg {
    Get(String),
    Len(Reply<usize>),
}
async fn both(ctx: Context) -> Result<usize, Failure> {
    let (a, b) = join!(ctx.perform(Fetch("a".into())), ctx.perform(Fetch("b".into())));
    // `select!` drops the future that does not complete first. The drop of a command future cancels the command.
    let first = select! { a = ctx.perform(Fetch("x".into())) => a?, b = ctx.perform(Fetch("y".into())) => b? };
    let c = ctx.perform(Fetch("c".into())).timeout(Duration::from_secs(1)).await?;
    Ok(a?.len() + b?.len() + first.len() + c.len())
}
async fn many(ctx: Context, urls: Vec<String>) -> Result<usize, Failure> {
    let mut pages: FuturesUnordered<_> = urls.into_iter().map(|u| ctx.perform(Fetch(u))).collect();
    let mut n = 0;
    while let Some(page) = pages.next().await {
        n += page?.len()
    }
    Ok(n)
}
// Receives messages while commands are in flight. `perform` does not borrow the context, so the program need not split
// the context.
async fn fetcher(mut ctx: Context<Msg>) -> Result<(), Exit> {
    let (mut seen, mut flying) = (Vec::new(), FuturesUnordered::new());
    loop {
        futures::select! {
            m = ctx.receive().fuse() => match m? {
                Msg::Get(url) => { seen.push(0); flying.push(ctx.perform(Fetch(url))) }
                Msg::Len(reply) => reply.send(seen.iter().sum()),
            },
            page = flying.select_next_some() => seen.push(page?.len()),
        }
    }
}
async fn fetcher_tokio(mut ctx: Context<Msg>) -> Result<(), Exit> {
    let (mut seen, mut flying) = (Vec::<usize>::new(), FuturesUnordered::new());
    loop {
        tokio::select! {
            m = ctx.receive() => match m? {
                Msg::Get(url) => flying.push(ctx.perform(Fetch(url))),
                Msg::Len(reply) => reply.send(seen.iter().sum()),
            },
            Some(page) = flying.next() => seen.push(page?.len()),
        }
    }
}
async fn splitter(ctx: Context<Msg>) -> Result<(), Exit> {
    let (me, mailbox) = ctx.split();
    let flows = mailbox.for_each_concurrent(8, |m| {
        let me = me.clone();
        async move {
            if let Msg::Get(u) = m {
                let _ = me.perform(Fetch(u)).await;
                me.sleep(Duration::from_millis(1)).await
            }
        }
    });
    flows.await;
    Ok(())
}
pub fn main() {
    let rt = Runtime::new().unwrap();
    rt.spawn(both);
    rt.spawn(|ctx| many(ctx, vec![]));
    rt.spawn(fetcher);
    rt.spawn(fetcher_tokio);
    rt.spawn(splitter);
    // Bodies may also be inline closures.
    let h = rt.spawn(async |ctx: Context| ctx.perform(Fetch("a".into())).await);
    let url = String::from("u");
    let h2 = rt.spawn(async move |mut ctx: Context<Msg>| {
        ctx.receive().await?;
        ctx.perform(Fetch(url)).await?;
        Ok::<_, Exit>(1)
    });
    let h3 = rt.spawn(async |mut ctx: Context<Msg>| -> Result<u8, Exit> {
        ctx.receive().await?;
        Ok(1)
    });
    let _: (JoinHandle<String>, JoinHandle<i32, Msg>, JoinHandle<u8, Msg>) = (h, h2, h3);
}

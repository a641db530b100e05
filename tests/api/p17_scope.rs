use procession::*;
async fn part(ctx: Context, n: u64) -> Result<u64, std::io::Error> {
    Ok(n)
}
async fn sum(ctx: Context) -> Result<u64, Exit> {
    let base = vec![1u64];
    let total: u64 = ctx
        .scope(async |s| {
            let (a, b) = (s.spawn(|ctx| part(ctx, 1)), s.spawn(|ctx| part(ctx, 2)));
            Ok::<_, Exit>(a.await? + b.await? + base[0])
        })
        .await?;
    Ok(total)
}
pub fn main() {
    Runtime::new().unwrap().spawn(sum);
}

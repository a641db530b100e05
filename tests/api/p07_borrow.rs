use procession::*;
struct Fetch<'a>(&'a str);
struct Get(String);
impl Command for Get {
    type Reply = String;
}
struct State {
    pages: Vec<String>,
    hits: std::collections::HashMap<String, u32>,
    cell: std::cell::Cell<u8>,
}
impl State {
    async fn add(&mut self, ctx: &Context<String>, url: &str) -> Result<&str, Failure> {
        let page = ctx.perform(Get(url.to_owned())).await?;
        *self.hits.entry(url.to_owned()).or_default() += 1;
        self.pages.push(page);
        Ok(self.pages.last().unwrap())
    }
}
async fn body(mut ctx: Context<String>) -> Result<usize, Exit> {
    let mut state = State { pages: vec![], hits: Default::default(), cell: Default::default() };
    while let Ok(url) = ctx.receive().await {
        let url: &str = &url;
        let page = state.add(&ctx, url).await?;
        println!("{page}");
        helper(&mut ctx, &mut state).await?;
    }
    Ok(state.pages.len())
}
async fn helper(ctx: &mut Context<String>, s: &mut State) -> Result<(), Exit> {
    s.pages.push(ctx.receive().await?);
    Ok(())
}
pub fn main() {
    Runtime::new().unwrap().spawn(body);
}

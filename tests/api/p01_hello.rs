use procession::Context;
async fn hello(ctx: Context) {
    println!("hello from {}", ctx.pid());
}
pub fn main() -> Result<(), procession::Exit> {
    procession::run(hello)
}

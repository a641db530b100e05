//! The smallest program: one process prints one line.

use procession::{Context, Exit};

async fn hello(ctx: Context) {
    println!("hello from {}", ctx.pid());
}

fn main() -> Result<(), Exit> {
    procession::run(hello)
}

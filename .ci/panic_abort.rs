//! A program for `panic = "abort"`: one process succeeds, and the next one panics, which aborts the program.

use procession::{Context, Runtime};

async fn careless(_: Context) {
    panic!("the body fails");
}

fn main() {
    let rt = Runtime::builder().workers(1).build().expect("a runtime");
    let ok = rt.block_on(rt.spawn(async |_: Context| Ok::<_, procession::Exit>(1)));
    println!("before: {ok:?}");
    let _ = rt.block_on(rt.spawn(careless));
    println!("after");
}

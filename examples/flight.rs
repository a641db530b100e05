//! Writes flight records of the last events of a program: one record when a process panics, and one record on demand.
//!
//! ```sh
//! cargo run --release --example flight -- target/flight.pftrace
//! ```
//!
//! <https://ui.perfetto.dev> opens the files.

use std::path::{Path, PathBuf};

use procession::observe::FlightRecorder;
use procession::{Address, Context, Exit, Reply, Runtime};

/// Request for the square of a number. The server panics for one number.
struct Square(u64, Reply<u64>);

async fn server(mut ctx: Context<Square>) -> Result<(), Exit> {
    loop {
        let Square(number, reply) = ctx.receive().await?;
        assert!(number != 4_321, "this number is a bug of the server");
        reply.send(number * number);
    }
}

async fn client(_: Context, to: Address<Square>) -> Result<u64, Exit> {
    let mut sum = 0;
    for number in 0..10_000 {
        sum += to.call(|reply| Square(number, reply)).await?;
    }
    Ok(sum)
}

fn main() -> procession::Result {
    let path: PathBuf = std::env::args().nth(1).ok_or("usage: flight FILE")?.into();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let recorder = FlightRecorder::new().buffer_size(512 << 10).folder(folder).write_on_panic(true);
    let rt = Runtime::builder().flight_recorder(recorder).build()?;
    let server = rt.process().name("squares").spawn(server)?;
    let to = server.address().clone();
    let client = rt.spawn(async move |ctx: Context| client(ctx, to).await);
    if let Err(exit) = rt.block_on(client) {
        println!("the client has failed: {exit}");
    }
    drop(rt.block_on(server));
    let summary = rt.write_flight_record(&path)?;
    // `.ci/trace.py` compares these counts with the record.
    println!("events={} overwritten={}", summary.events, summary.overwritten);
    println!("no event of the last {:?} is missing", summary.complete);
    Ok(())
}

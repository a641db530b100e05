//! A demonstration program, to which the console can attach. The program has two clerks with a supervisor and a group,
//! a slow process with a long mailbox, a worker that is blocked, and two processes that call each other.
//!
//!     cargo run -p procession-console --bin console-demo -- /tmp/demo.console
//!
//! The program ends when its standard input ends.

use std::path::Path;
use std::time::Duration;

use procession::observe::FlightRecorder;
use procession::{BoxError, Context, Exit, Reply, Runtime, Supervisor};

/// Sends itself a message every 10 ms.
async fn clerk(mut ctx: Context<u64>) -> Result<(), Exit> {
    let own = ctx.address();
    ctx.join_group("clerks");
    own.send(0)?;
    loop {
        let number = ctx.receive().await?;
        ctx.sleep(Duration::from_millis(10)).await;
        own.send(number + 1)?;
    }
}

/// Calls the process `other`, and does not receive the call that the process `other` makes to this process.
async fn partner(ctx: Context<Reply<()>>, other: &'static str) -> Result<(), Exit> {
    while ctx.host().whereis(other).is_none() {
        ctx.sleep(Duration::from_millis(1)).await;
    }
    ctx.call(other, |reply: Reply<()>| reply).await?;
    Ok(())
}

fn main() -> Result<(), BoxError> {
    let path = std::env::args_os().nth(1).ok_or("the argument is the path of the socket")?;
    // If a console asks for a flight record, this program writes the record to the folder of the socket.
    let folder = Path::new(&path).parent().ok_or("the argument is no path of a file")?.to_owned();
    let recorder = FlightRecorder::new().buffer_size(1 << 19).folder(folder);
    let builder = Runtime::builder().workers(2).console(path).console_actions(true).flight_recorder(recorder);
    let rt = builder.build()?;
    let clerks = Supervisor::one_for_one().child("clerk-1", clerk).child("clerk-2", clerk);
    rt.process().name("clerks").spawn_process(clerks)?;
    let archive = rt.process().name("archive").spawn(async |_: Context<u8>| std::future::pending::<()>().await)?;
    for number in 0..100 {
        archive.send(number)?;
    }
    rt.process().name("shop").spawn(async |ctx| partner(ctx, "bank").await)?;
    rt.process().name("bank").spawn(async |ctx| partner(ctx, "shop").await)?;
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let blocked = rt.process().name("printer").spawn(async move |_: Context| _ = stopped.recv())?;
    println!("ready");
    // Waits for the end of the standard input.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    drop(stop);
    let _ = rt.block_on(blocked);
    Ok(())
}

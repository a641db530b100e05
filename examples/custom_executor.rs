//! A runtime inside another executor. The runtime has no worker threads. The executor polls a future, and this future
//! runs the processes. In this program, the executor is the single-threaded pool of the `futures` crate, but any
//! executor is possible.

use futures::executor::LocalPool;
use futures::task::{LocalSpawnExt, SpawnExt};
use procession::{Context, Exit, Reply, Runtime};

enum Msg {
    Square(u64, Reply<u64>),
}

async fn server(mut ctx: Context<Msg>) -> Result<(), Exit> {
    loop {
        let Msg::Square(n, reply) = ctx.receive().await?;
        reply.send(n * n);
    }
}

fn main() -> procession::Result {
    let rt = std::rc::Rc::new(Runtime::builder().workers(0).build()?);
    let server = rt.spawn(server).address();

    let mut pool = LocalPool::new();
    // One task of the pool drives the processes.
    let guest = std::rc::Rc::clone(&rt);
    let (finish, finished) = futures::channel::oneshot::channel::<()>();
    let driving = pool.spawner().spawn_local_with_handle(async move { guest.run(finished).await })?;
    // Other tasks of the pool call the processes.
    let asking: Vec<_> = (1..=3)
        .map(|n| {
            let server = server.clone();
            let ask = async move { server.call(|reply| Msg::Square(n, reply)).await };
            pool.spawner().spawn_with_handle(ask)
        })
        .collect::<Result<_, _>>()?;
    let squares = pool.run_until(futures::future::try_join_all(asking))?;
    println!("{squares:?}");
    assert_eq!(squares, [1, 4, 9]);

    finish.send(()).expect("the driver waits for it");
    pool.run_until(driving).expect("it was told to finish, not dropped");

    // The runtime can also run plain futures, through the trait `SpawnExt`.
    let spawner = rt.host().clone();
    let answer = rt.block_on(spawner.spawn_with_handle(async { 6 * 7 })?);
    assert_eq!(answer, 42);
    Ok(())
}

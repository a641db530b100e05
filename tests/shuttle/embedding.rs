//! Tests of embedding: guest threads leave, processes are bound to one thread, and runtimes are dropped or shut down
//! while threads still use the runtimes.

use std::rc::Rc;
use std::sync::Arc;

use procession::*;
use shuttle::thread;

use crate::{LONG, Msg, adds, futures_block_on, runtime, waits};

scenarios! {
    /// 1.5b, 1.5c, 8.1g: a `LocalSet` is dropped while other threads wake its processes. The processes are killed, and
    /// they are dropped on the thread of the `LocalSet`.
    fn a_local_set_is_dropped_while_messages_arrive() {
        let rt = runtime(1);
        let local = rt.local_set();
        let here = Rc::new(());
        let held = Rc::clone(&here);
        let reads = local.spawn(async move |mut ctx: Context<()>| {
            let _held = held;
            loop {
                ctx.receive().await?;
            }
            #[expect(unreachable_code, reason = "it says which type")]
            Ok::<(), Exit>(())
        });
        local.block_on(reads.started()).unwrap();
        let to = reads.address();
        let sends = thread::spawn(move || (0..2).filter(|_| to.send(()).is_ok()).count());
        drop(local);
        assert!(matches!(futures_block_on(reads), Err(Exit::Killed)));
        assert_eq!(Rc::strong_count(&here), 1);
        sends.join().unwrap();
    }

    /// 8.1e: a guest thread drops its `run` future between two polls. The other guest thread receives the wake-up of
    /// the dropped guest, and the tasks in the queue of the dropped guest.
    fn a_guest_is_dropped_between_polls() {
        let rt = Arc::new(runtime(0));
        let sums = rt.spawn(adds);
        let (lent, to) = (Arc::clone(&rt), sums.address());
        let leaves = thread::spawn(move || {
            let mut lends = Box::pin(lent.run(std::future::pending::<()>()));
            let _ = futures_block_on(async { futures::poll!(&mut lends) });
            let _ = to.send(Msg::Add(1));
            let _ = futures_block_on(async { futures::poll!(&mut lends) });
            let _ = to.send(Msg::Add(2));
            thread::yield_now();
        });
        let sum = rt.block_on(async {
            let _ = sums.send(Msg::Add(4));
            sums.call(Msg::Sum).await.unwrap()
        });
        assert!((4..8).contains(&sum), "{sum}");
        leaves.join().unwrap();
        assert_eq!(rt.block_on(sums.call(Msg::Sum)).unwrap(), 7);
    }

    /// 8.3b: a process drops the last handle of its runtime, while other processes run and other threads wait for these
    /// processes.
    fn a_runtime_is_dropped_by_its_process() {
        let rt = Arc::new(runtime(2));
        let others = [rt.spawn(waits), rt.spawn(waits)];
        let last = Arc::clone(&rt);
        let drops = rt.spawn(async move |ctx: Context<()>| {
            ctx.yield_now().await;
            drop(last);
        });
        let to = others[0].address();
        let sends = thread::spawn(move || {
            let _ = to.send(());
        });
        drop(rt);
        let _ = futures_block_on(drops);
        let [first, second] = others.map(futures_block_on);
        assert!(!matches!(first, Err(Exit::Failed(_))) && second.is_err());
        sends.join().unwrap();
    }

    /// 6.5a: blocking work that is submitted during a shutdown is either run or refused. Threads that wait for the
    /// work always return.
    fn blocking_work_races_with_a_shutdown() {
        let rt = runtime(1);
        let host = rt.host().clone();
        let works = thread::spawn(move || {
            let work = [host.spawn_blocking(|| 1_u64), host.spawn_blocking(|| 2)];
            let inside = host.spawn(async |ctx: Context<()>| ctx.host().spawn_blocking(|| 3_u64).await);
            (work.map(futures_block_on), futures_block_on(inside))
        });
        let shutdown = futures_block_on(rt.shutdown(LONG));
        assert!(shutdown.left.is_empty());
        let ([one, two], three) = works.join().unwrap();
        assert!(one.is_err() || one.unwrap() == 1);
        assert!(two.is_err() || two.unwrap() == 2);
        assert!(three.is_err() || three.unwrap() == 3);
    }
}

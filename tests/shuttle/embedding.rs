//! Threads that lend themselves and leave, processes that are theirs alone, and runtimes that end while they are used.

use std::rc::Rc;
use std::sync::Arc;

use procession::*;
use shuttle::thread;

use crate::{LONG, Msg, adds, futures_block_on, runtime, waits};

scenarios! {
    /// SPEC 1.5, 8.1: the thread that processes are bound to leaves while they are woken from elsewhere: they end there.
    fn a_local_is_dropped_while_mail_comes() {
        let rt = runtime(1);
        let local = rt.local();
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

    /// SPEC 8.1: a lender that is dropped between two polls passes on what it had and was woken for.
    fn a_lender_is_dropped() {
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

    /// SPEC 8.3: the last reference to a runtime is dropped by one of its processes, while others run and are waited for.
    fn a_runtime_is_dropped_inside() {
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

    /// SPEC 6.5: work that blocks, handed in while the runtime shuts down, is done or refused, and nobody waits for ever.
    fn blocking_work_meets_a_shutdown() {
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

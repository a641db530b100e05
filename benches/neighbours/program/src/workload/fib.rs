//! Savina's fibonacci: fib(25) by recursion. Each call is a process. The process spawns a child process for each of its
//! two recursive calls, and joins both children. An operation is one call.

use procession::{Context, Runtime};

use super::{Workload, runs};
use crate::latch::DONE;
use crate::tasks::Tasks;
use crate::verdict::{Shape, best, cpu, tokio};

pub(super) const WORKLOADS: &[Workload] = &[Workload {
    name: "fib",
    ops: calls(25),
    shape: Shape::Parallel,
    judged: &[cpu(&[tokio(0.45), best(0.45)])],
    runs: runs!(ours, tasks: tasks),
}];

/// Number of calls of fib(k), including the call itself.
const fn calls(k: u64) -> u64 {
    2 * numbers(k + 1).0 - 1
}

/// Returns fib(k) and fib(k + 1).
const fn numbers(k: u64) -> (u64, u64) {
    let (mut a, mut b, mut i) = (0, 1, 0);
    while i < k {
        (a, b) = (b, a + b);
        i += 1;
    }
    (a, b)
}

/// Returns the largest `k` for which fib(k) needs at most `n` calls.
fn argument(n: u64) -> u64 {
    (0..90).take_while(|&k| calls(k) <= n.max(1)).last().expect("fib(0) is one call")
}

fn ours(rt: &Runtime, n: u64) {
    DONE.close(1);
    let k = argument(n);
    drop(rt.spawn(async move |ctx: Context| {
        assert_eq!(fib(ctx, k).await.expect("no call fails"), numbers(k).0);
        DONE.count_down();
    }));
    DONE.wait();

    #[expect(clippy::manual_async_fn, reason = "an `async fn` that is spawned by itself is not known to be `Send`")]
    fn fib(ctx: Context, k: u64) -> impl Future<Output = Result<u64, procession::Exit>> + Send {
        async move {
            if k < 2 {
                return Ok(k);
            }
            let (a, b) =
                (ctx.spawn(move |ctx: Context| fib(ctx, k - 1)), ctx.spawn(move |ctx: Context| fib(ctx, k - 2)));
            Ok(a.await? + b.await?)
        }
    }
}

fn tasks<T: Tasks>(on: &T, n: u64) {
    DONE.close(1);
    let (inside, k) = (on.clone(), argument(n));
    on.spawn(async move {
        assert_eq!(fib(inside, k).await, numbers(k).0);
        DONE.count_down();
    });
    DONE.wait();

    #[expect(clippy::manual_async_fn, reason = "as above")]
    fn fib<T: Tasks>(on: T, k: u64) -> impl Future<Output = u64> + Send {
        async move {
            if k < 2 {
                return k;
            }
            let (a, b) = (on.join(fib(on.clone(), k - 1)), on.join(fib(on.clone(), k - 2)));
            a.await + b.await
        }
    }
}

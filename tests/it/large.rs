//! Sections 1.3 and 1.1 of the specification: bodies, futures and processes of 512 KiB run on stacks of 2 MiB, even
//! without compiler optimizations. Each move of a large value may need a copy on the stack. Therefore the spawning
//! thread and the worker move a large value only a few times.

use std::future::{Ready, poll_fn, ready};
use std::hint::black_box;
use std::task::Poll;

use futures::executor::block_on;
use procession::*;

const LARGE: usize = 512 << 10;
/// The default stack size of the standard library. This stack size must be large enough for the spawning thread and for
/// a worker.
const STACK: usize = 2 << 20;

/// Runs `f` on a thread with a stack of `STACK` bytes, and passes a runtime to `f`. The worker of the runtime has the
/// same stack size.
fn on_usual_stacks(f: impl FnOnce(&Runtime) + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK);
    let run = || {
        let rt = Runtime::builder().workers(1).stack_size(STACK).build().unwrap();
        f(&rt);
    };
    thread.spawn(run).unwrap().join().unwrap();
}

/// A small body whose future is large.
async fn large_future(ctx: Context) -> Result<u8, Exit> {
    let mut data = [1_u8; LARGE];
    ctx.yield_now().await;
    data[7] = 2;
    black_box(&mut data);
    Ok(data[LARGE - 1])
}

/// Returns a large body whose future is small.
fn large_body() -> impl FnOnce(Context) -> Ready<Result<u8, Exit>> + Send + 'static {
    let data = [1_u8; LARGE];
    move |_| ready(Ok(data[LARGE - 1]))
}

struct LargeProcess([u8; LARGE]);

impl Process for LargeProcess {
    type Message = ();
    type Output = u8;
    fn step(&mut self, _: Events<'_, ()>, _: &mut StepOutput<'_, ()>) -> Result<Next<u8>, Exit> {
        Ok(Next::Done(self.0[LARGE - 1]))
    }
}

/// 1.3a: `Runtime::block_on` runs a large future.
#[test]
fn block_on_runs_a_large_future_on_default_stacks() {
    async fn large() -> u8 {
        let mut data = [1_u8; LARGE];
        yields_once().await;
        data[7] = 2;
        black_box(&mut data);
        data[LARGE - 1]
    }
    async fn yields_once() {
        let mut yielded = false;
        poll_fn(|cx| {
            cx.waker().wake_by_ref();
            if std::mem::replace(&mut yielded, true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
    on_usual_stacks(|rt| assert_eq!(rt.block_on(large()), 1));
}

/// 1.3a: a large future can be spawned with every method that spawns a future.
#[test]
fn a_large_future_runs_on_default_stacks() {
    on_usual_stacks(|rt| {
        assert_eq!(block_on(rt.spawn(large_future)).unwrap(), 1);
        assert_eq!(block_on(rt.process().spawn(large_future).unwrap()).unwrap(), 1);
        let rt = rt.host().clone();
        let parent = rt.spawn(async |ctx: Context| {
            assert_eq!(ctx.spawn(large_future).await?, 1);
            assert_eq!(ctx.spawn_link(large_future).await?, 1);
            assert_eq!(ctx.spawn_monitor(large_future).0.await?, 1);
            for handle in ctx.spawn_batch([large_future, large_future]) {
                assert_eq!(handle?.await?, 1);
            }
            ctx.scope(async |scope| scope.spawn(large_future).await).await
        });
        assert_eq!(block_on(parent).unwrap(), 1);
    });
}

/// 1.3a: the runtime runs a body that captures a large value.
#[test]
fn a_large_body_runs_on_default_stacks() {
    on_usual_stacks(|rt| assert_eq!(block_on(rt.spawn(large_body())).unwrap(), 1));
    on_usual_stacks(|rt| assert_eq!(block_on(rt.process().spawn(large_body()).unwrap()).unwrap(), 1));
    on_usual_stacks(|rt| {
        let local = rt.local_set();
        assert_eq!(local.block_on(local.spawn(large_body())).unwrap(), 1);
    });
    on_usual_stacks(|rt| {
        let data = [1_u8; LARGE];
        assert_eq!(block_on(rt.spawn_blocking(move || data[LARGE - 1])).unwrap(), 1);
    });
}

/// 1.3a, 4.9b: if the spawn of a large body is refused, the body is returned unchanged.
#[test]
fn a_refused_large_body_is_returned() {
    on_usual_stacks(|rt| {
        let host = rt.add_host(HostBuilder::new("full").max_processes(0)).unwrap();
        let refused = host.process().spawn(large_body()).unwrap_err();
        assert_eq!(*refused.kind(), SpawnErrorKind::Limit(0));
        assert_eq!(block_on(rt.spawn(refused.into_body())).unwrap(), 1);
    });
}

/// 1.1a: a large hand-written process runs.
#[test]
fn a_large_process_runs_on_default_stacks() {
    on_usual_stacks(|rt| assert_eq!(block_on(rt.spawn_process(LargeProcess([1; LARGE]))).unwrap(), 1));
    on_usual_stacks(|rt| {
        let process = rt.process().spawn_process(LargeProcess([1; LARGE])).unwrap();
        assert_eq!(block_on(process).unwrap(), 1);
    });
}

/// 6.4a: a supervisor can start and restart a large child.
#[test]
fn a_supervised_child_may_be_large() {
    const CHILD: Name<Reply<u8>> = Name::new("child");
    on_usual_stacks(|rt| {
        let child = Child::new(CHILD, async |mut ctx: Context<Reply<u8>>| {
            let data = [1_u8; LARGE];
            let reply = ctx.receive().await?;
            reply.send(black_box(&data)[LARGE - 1]);
            Err::<(), _>(Exit::failed("on purpose"))
        });
        let supervisor = rt.spawn_process(Supervisor::one_for_one().add(child));
        block_on(supervisor.started()).unwrap();
        for _ in 0..2 {
            // While the supervisor restarts the child, the name of the child is not registered and the call fails.
            while !matches!(block_on(rt.call(CHILD, |reply| reply)), Ok(1)) {
                std::thread::yield_now();
            }
        }
    });
}

/// 3.3b: the future of a handler may be large. The test covers each method that registers a handler with a future. The
/// test also covers commands on the inline path and in the table of commands.
#[test]
fn the_future_of_a_handler_may_be_large() {
    struct Ask;
    impl Command for Ask {
        type Reply = u8;
    }
    struct Flow;
    impl Command for Flow {
        type Reply = u8;
    }
    impl StreamCommand for Flow {
        type Item = u8;
    }
    async fn large() -> u8 {
        let mut data = [1_u8; LARGE];
        crate::step_aside().await;
        black_box(&mut data)[LARGE - 1]
    }
    let thread = std::thread::Builder::new().stack_size(STACK);
    let run = || {
        let builder = Runtime::builder().workers(1).stack_size(STACK).handle_async(|_: Ask| large());
        let builder = builder.handle_stream(|_: Flow, replies: StreamCompletion<Flow>| async move {
            let data = large().await;
            replies.complete(data);
            Ok::<_, Failure>(())
        });
        let rt = builder.build().unwrap();
        let body = rt.spawn(async |ctx: Context| {
            assert_eq!(ctx.perform(Ask).await?, 1);
            // Because of the time limit, this command does not use the inline path.
            assert_eq!(ctx.perform(Ask).timeout(std::time::Duration::from_secs(600)).await?, 1);
            ctx.stream(Flow).last().await
        });
        assert_eq!(block_on(body).unwrap(), 1);
    };
    thread.spawn(run).unwrap().join().unwrap();
}

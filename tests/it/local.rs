//! Section 1.5 of the specification: processes that are not `Send`. These local processes run only on the guest thread
//! that owns their `LocalSet`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use procession::*;

use crate::{step_aside, two, within};

struct Ask;
impl Command for Ask {
    type Reply = ThreadId;
}

/// A value that records the thread on which it is dropped.
struct Dropped(Rc<Cell<Option<ThreadId>>>);
impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.set(Some(thread::current().id()));
    }
}

/// A value that records whether it is dropped inside the context of tokio.
#[cfg(feature = "tokio")]
struct UsesTokio(Rc<Cell<bool>>);

#[cfg(feature = "tokio")]
impl Drop for UsesTokio {
    fn drop(&mut self) {
        self.0.set(tokio::runtime::Handle::try_current().is_ok());
    }
}

/// 1.5c, 8.2d: the drop of a `LocalSet` runs the exits of its processes inside the context of tokio.
#[cfg(feature = "tokio")]
#[test]
fn the_drop_of_a_local_set_enters_the_context_of_tokio() {
    let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let rt = Runtime::builder().workers(0).tokio(tokio.handle().clone()).build().unwrap();
    let (local, is_inside) = (rt.local_set(), Rc::new(Cell::new(false)));
    let value = UsesTokio(Rc::clone(&is_inside));
    let waits = local.spawn(async move |mut ctx: Context<u8>| {
        let _value = value;
        ctx.receive().await
    });
    local.block_on(waits.started()).unwrap();
    drop(local);
    assert!(is_inside.get());
    assert!(matches!(rt.block_on(waits), Err(Exit::Killed)));
}

/// 1.5a, 1.5b, 8.1g: a local process runs only on its own thread, no matter which thread wakes it. Other processes of
/// the runtime may move between threads at the same time.
#[test]
fn a_local_process_stays_on_its_thread() {
    for workers in [0, 2] {
        let rt = Runtime::builder().workers(workers).handle_blocking(|_: Ask| thread::current().id()).build().unwrap();
        let local = rt.local_set();
        let (here, log) = (thread::current().id(), Rc::new(RefCell::new(Vec::new())));
        let own = Rc::clone(&log);
        let process = local.spawn(async move |mut ctx: Context<u64>| -> Result<(), Exit> {
            for _ in 0..3 {
                let message = ctx.receive().await?;
                own.borrow_mut().push((thread::current().id(), message));
                // Another thread answers the command, so another thread wakes the process.
                assert_ne!(ctx.perform(Ask).await?, thread::current().id());
                ctx.sleep(Duration::from_millis(1)).await;
                let child = ctx.spawn(async |ctx: Context| Ok::<_, Exit>(ctx.pid()));
                child.await?;
            }
            Ok(())
        });
        let address = process.address();
        let sender = rt.spawn(async move |_: Context| -> Result<(), Exit> {
            (0..3).try_for_each(|n| address.send(n))?;
            Ok(())
        });
        local.block_on(async { futures::join!(process, sender) }).0.unwrap();
        assert_eq!(*log.borrow(), [(here, 0), (here, 1), (here, 2)]);
        assert_eq!(Rc::strong_count(&log), 1);
    }
}

/// 1.5b, 1.5c: when a `LocalSet` is dropped, its waiting processes are killed. The killed processes are dropped on
/// their own thread, and their handles return `Exit::Killed`.
#[test]
fn a_local_process_is_dropped_on_its_own_thread() {
    let rt = two();
    let gone = Rc::new(Cell::new(None));
    let local = rt.local_set();
    let spawn = |waits: bool| {
        let mine = Dropped(Rc::clone(&gone));
        local.spawn(async move |mut ctx: Context<()>| -> Result<(), Exit> {
            let _mine = mine;
            if waits { ctx.receive().await } else { std::future::pending().await }
        })
    };
    let (waits, fresh) = (spawn(true), spawn(false));
    local.block_on(waits.started()).unwrap();
    let never_polled = spawn(false);
    drop(local);
    assert_eq!((gone.get(), Rc::strong_count(&gone)), (Some(thread::current().id()), 1));
    let ends = thread::spawn(move || [waits, fresh, never_polled].map(futures::executor::block_on));
    for end in ends.join().unwrap() {
        assert!(matches!(end, Err(Exit::Killed)), "{end:?}");
    }
    assert_eq!(rt.processes_alive(), 0);
}

/// 1.5b, 8.1c: a future drives many local processes, and one of these processes is always runnable. The future itself
/// is not starved.
#[test]
fn local_processes_do_not_starve_the_future_that_drives_them() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let local = rt.local_set();
    let turns = Rc::new(Cell::new(0_u64));
    let own = Rc::clone(&turns);
    let busy = local.spawn(async move |ctx: Context| {
        loop {
            own.set(own.get() + 1);
            ctx.yield_now().await;
        }
        #[expect(unreachable_code)]
        ()
    });
    let ring: Vec<_> = (0..1_000)
        .map(|n| {
            local.spawn(async move |mut ctx: Context<u64>| Ok::<_, Exit>(Rc::new(n).as_ref() + ctx.receive().await?))
        })
        .collect();
    ring.iter().for_each(|process| process.send(1).unwrap());
    let sums = local.block_on(futures::future::join_all(ring));
    assert_eq!(sums.into_iter().map(Result::unwrap).sum::<u64>(), (1..=1_000).sum::<u64>());
    assert!(turns.get() >= 1);
    busy.abort();
    assert!(matches!(local.block_on(busy), Err(Exit::Killed)));
}

/// 1.1a, 1.5b, 4.8a, 8.1g: if a local process panics, only this process exits. The test also runs a hand-written local
/// process.
#[test]
fn a_panic_ends_only_its_local_process() {
    struct Count(Rc<Cell<u64>>);
    impl Process for Count {
        type Message = u64;
        type Output = u64;
        fn step(&mut self, events: Events<'_, u64>, _: &mut StepOutput<'_, u64>) -> Result<Next<u64>, Exit> {
            for event in events {
                match event {
                    Event::Message(0) => return Ok(Next::Done(self.0.get())),
                    Event::Message(n) => self.0.set(self.0.get() + n),
                    _ => {}
                }
            }
            Ok(Next::Wait)
        }
    }
    let rt = two();
    let local = rt.local_set();
    let panics = local.spawn(async |_: Context| -> Result<(), Exit> {
        let _here = Rc::new(());
        panic!("local")
    });
    let counts = local.spawn_process(Count(Rc::default()));
    [3, 4, 0].into_iter().for_each(|n| counts.send(n).unwrap());
    let (panicked, counted) = local.block_on(async { futures::join!(panics, counts) });
    assert!(matches!(panicked, Err(Exit::Panicked(text)) if text.as_str() == "local"));
    assert_eq!(counted.unwrap(), 7);
}

/// 1.5b, 8.1c: a thread drives local processes and one future that belongs to no process. When this future is woken, it
/// is polled before any local process takes another step.
#[test]
fn a_woken_future_is_polled_before_local_processes_run() {
    for blocks in [true, false] {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let local = rt.local_set();
        let (wake, woken) = futures::channel::oneshot::channel();
        let steps = Rc::new(Cell::new(0_u64));
        let (mut wake, tenth) = (Some(wake), Rc::clone(&steps));
        let busy = move |ctx: Context, mut wake: Option<futures::channel::oneshot::Sender<()>>| {
            let steps = Rc::clone(&tenth);
            async move {
                loop {
                    steps.set(steps.get() + 1);
                    if steps.get() >= 10
                        && let Some(wake) = wake.take()
                    {
                        wake.send(()).unwrap();
                        steps.set(0);
                    }
                    ctx.yield_now().await;
                }
                #[expect(unreachable_code)]
                ()
            }
        };
        for _ in 0..5 {
            let (busy, wake) = (busy.clone(), wake.take());
            let _busy = local.spawn(async move |ctx: Context| busy(ctx, wake).await);
        }
        if blocks {
            local.block_on(woken).unwrap();
        } else {
            futures::executor::block_on(local.run(woken)).unwrap();
        }
        assert_eq!(steps.get(), 0);
    }
}

/// 8.1c, 8.1g: the future that `LocalSet::run` drives wakes itself in each poll. Each poll takes longer than the time
/// limit for the poll of a guest. Local processes are not starved.
#[test]
fn a_long_future_that_wakes_itself_does_not_starve_local_processes() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let local = rt.local_set();
    let done = Rc::new(Cell::new(false));
    let sets = Rc::clone(&done);
    let process = local.spawn(async move |ctx: Context| {
        for _ in 0..20 {
            ctx.yield_now().await;
        }
        sets.set(true);
    });
    let mut polls = 0;
    futures::executor::block_on(local.run(std::future::poll_fn(|cx| {
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_micros(200) {}
        polls += 1;
        assert!(polls < 1_000, "the process is starved");
        cx.waker().wake_by_ref();
        if done.get() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })));
    local.block_on(process).unwrap();
}

/// 8.1g: if two futures drive a local set, each wake-up of a local process wakes both futures. If one of the two
/// futures has completed or was dropped, the other future still gets every wake-up.
#[test]
fn two_drivers_of_a_local_set_lose_no_wake_up() {
    within(60, || {
        let rt = two();
        let local = rt.local_set();
        let process = local.spawn(async |mut ctx: Context<u32>| ctx.receive().await);
        let address = process.address();
        let (begin, begun) = std::sync::mpsc::channel();
        let sender = thread::spawn(move || {
            begun.recv().unwrap();
            address.send(7).unwrap();
        });
        futures::executor::block_on(async {
            let mut first = Box::pin(local.run(process));
            assert!(futures::poll!(&mut first).is_pending());
            local.run(step_aside()).await;
            let mut dropped = Box::pin(local.run(std::future::pending::<()>()));
            assert!(futures::poll!(&mut dropped).is_pending());
            begin.send(()).unwrap();
            drop(dropped);
            assert_eq!(first.await.unwrap(), 7);
        });
        sender.join().unwrap();
    });
}

/// 8.2d: a future of `LocalSet::run` that was never polled is dropped inside the context of tokio.
#[cfg(feature = "tokio")]
#[test]
fn a_future_of_a_local_set_is_dropped_inside_the_context_of_tokio() {
    let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let rt = Runtime::builder().workers(0).tokio(tokio.handle().clone()).build().unwrap();
    let (local, is_inside) = (rt.local_set(), Rc::new(Cell::new(false)));
    let value = UsesTokio(Rc::clone(&is_inside));
    drop(local.run(async move { drop(value) }));
    assert!(is_inside.get());
}

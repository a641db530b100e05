//! Section 8 of the specification: a runtime inside other executors, guest threads, and two runtimes in one program. In
//! these tests, a guest is a future of [`Runtime::run`] or a call of [`Runtime::block_on`]. The thread that polls the
//! guest runs processes.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context as Cx, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::task::{Spawn, SpawnExt};
use procession::observe::WorkerState;
use procession::*;

use crate::{alone, shut_down, step_aside, subprocess, two, within};

/// Returns a runtime without worker threads.
fn none() -> Arc<Runtime> {
    Arc::new(Runtime::builder().workers(0).build().expect("a runtime"))
}

enum Count {
    Up(u64),
    Total(Reply<u64>),
}

async fn counter(mut ctx: Context<Count>) -> Result<(), Exit> {
    let mut total = 0;
    loop {
        match ctx.receive().await? {
            Count::Up(n) => total += n,
            Count::Total(reply) => reply.send(total),
        }
    }
}

/// Body that spawns children, sends messages, makes calls and sleeps.
async fn job(ctx: Context) -> Result<u64, Exit> {
    let counter = ctx.spawn(counter);
    let children: Vec<_> = (1..=100_u64)
        .map(|n| {
            let to = counter.address();
            ctx.spawn(async move |ctx: Context| {
                if n % 10 == 0 {
                    ctx.sleep(Duration::from_millis(1)).await;
                } else {
                    ctx.yield_now().await;
                }
                to.send(Count::Up(n)).map_err(Exit::from)
            })
        })
        .collect();
    for child in children {
        child.await?;
    }
    let total = counter.call(Count::Total).await?;
    counter.abort();
    counter.exited().await;
    Ok(total)
}

const JOB: u64 = 5050;

/// A waker that counts its wake-ups and unparks a waiting thread.
#[derive(Default)]
struct Bell {
    rung: AtomicUsize,
    waiting: Mutex<Option<thread::Thread>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.fetch_add(1, Ordering::SeqCst);
        if let Some(thread) = &*self.waiting.lock().unwrap() {
            thread.unpark();
        }
    }
}

/// A guest without an executor: the test polls this guest directly.
struct ManualGuest {
    bell: Arc<Bell>,
    future: BoxFuture<'static, ()>,
}

impl ManualGuest {
    fn new(rt: &Arc<Runtime>, future: impl Future<Output = ()> + Send + 'static) -> Self {
        let rt = Arc::clone(rt);
        Self { bell: Arc::default(), future: Box::pin(async move { rt.run(future).await }) }
    }

    /// Polls the guest once. Returns true if the future of the guest is done.
    fn poll(&mut self) -> bool {
        let waker = Waker::from(Arc::clone(&self.bell));
        Pin::new(&mut self.future).poll(&mut Cx::from_waker(&waker)).is_ready()
    }

    fn rung(&self) -> usize {
        self.bell.rung.load(Ordering::SeqCst)
    }

    /// Polls the guest repeatedly, and stops after a poll that did not wake the guest again.
    fn settle(&mut self) {
        loop {
            let before = self.rung();
            assert!(!self.poll());
            if self.rung() == before {
                return;
            }
        }
    }

    /// Acts as an executor of one task: polls the guest after each wake-up, and returns when `done` returns true.
    fn drive(&mut self, done: impl Fn() -> bool) {
        *self.bell.waiting.lock().unwrap() = Some(thread::current());
        let mut heard = usize::MAX;
        while !done() {
            let rung = self.rung();
            if rung == heard {
                thread::park();
                continue;
            }
            heard = rung;
            assert!(!self.poll());
        }
    }
}

/// 8.1a, 8.1d: `block_on` drives a runtime that has no worker threads.
#[test]
fn a_call_of_block_on_drives_a_runtime_without_workers() {
    within(30, || {
        let rt = none();
        assert_eq!(rt.block_on(rt.spawn(job)).unwrap(), JOB);
    });
}

/// 8.1b, 8.2b: `Runtime::run` drives a runtime without workers inside the `block_on` of the `futures` crate.
#[test]
fn the_runtime_runs_inside_block_on_of_the_futures_crate() {
    within(30, || {
        let rt = none();
        assert_eq!(futures::executor::block_on(rt.run(rt.spawn(job))).unwrap(), JOB);
    });
}

/// 8.1b, 8.1d: the only guest thread is parked in the `block_on` of another executor. A sleep nevertheless ends on
/// time.
#[test]
fn a_sleep_ends_on_time_without_a_thread_of_the_runtime() {
    within(30, || {
        let rt = none();
        let nap = rt.spawn(async |ctx: Context| {
            let until = ctx.now() + Duration::from_millis(5);
            ctx.sleep_until(until).await;
            Ok::<_, Exit>(ctx.now() >= until)
        });
        assert!(futures::executor::block_on(rt.run(nap)).unwrap());
        // A sleep in the guest's own future ends on time too.
        futures::executor::block_on(rt.run(rt.sleep(Duration::from_millis(5))));
    });
}

/// 8.2b: the runtime runs inside smol, on one thread and on several threads.
#[test]
fn the_runtime_runs_inside_smol() {
    within(60, || {
        let rt = none();
        assert_eq!(smol::block_on(rt.run(rt.spawn(job))).unwrap(), JOB);

        let executor = Arc::new(smol::Executor::new());
        let (stop, stopped) = smol::channel::bounded::<()>(1);
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (executor, stopped) = (executor.clone(), stopped.clone());
                thread::spawn(move || smol::block_on(executor.run(stopped.recv())).unwrap_err())
            })
            .collect();
        let guests: Vec<_> = (0..6)
            .map(|_| {
                let rt = rt.clone();
                executor.spawn(async move { rt.run(rt.spawn(job)).await })
            })
            .collect();
        for guest in guests {
            assert_eq!(smol::block_on(guest).unwrap(), JOB);
        }
        drop(stop);
        threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), smol::channel::RecvError));
    });
}

/// 8.2b: processes use smol's timers and sockets, both with and without worker threads of the runtime. Without worker
/// threads, a task of smol's global executor is the guest.
#[test]
fn processes_can_use_timers_and_sockets_of_smol() {
    within(60, || {
        for workers in [0, 2] {
            let rt = Arc::new(Runtime::builder().workers(workers).build().unwrap());
            let echo = rt.spawn(async |_: Context| {
                let one = smol::net::UdpSocket::bind("127.0.0.1:0").await?;
                let other = smol::net::UdpSocket::bind("127.0.0.1:0").await?;
                smol::Timer::after(Duration::from_millis(2)).await;
                one.send_to(b"hello", other.local_addr()?).await?;
                let mut buffer = [0; 16];
                let (length, _) = other.recv_from(&mut buffer).await?;
                Ok::<_, std::io::Error>(buffer[..length].to_vec())
            });
            let lent = rt.clone();
            let guest = smol::spawn(async move { lent.run(echo).await });
            assert_eq!(smol::block_on(guest).unwrap(), b"hello");
        }
    });
}

/// 8.2a, 8.2d: the runtime runs inside a tokio application. The processes use the sockets and timers of tokio on
/// workers that have entered the context of tokio.
#[test]
fn processes_can_use_timers_and_sockets_of_tokio() {
    within(60, || {
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let handle = tokio.handle().clone();
        let rt = Runtime::builder()
            .workers(2)
            .wrap_threads(move |work| {
                let _entered = handle.enter();
                work();
            })
            .build()
            .unwrap();
        let echo = rt.spawn(async |mut ctx: Context<()>| {
            let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await?;
            let address = socket.local_addr()?;
            ctx.spawn(async move |mut inner: Context<()>| {
                let mut buffer = [0; 64];
                loop {
                    tokio::select! {
                        read = socket.recv_from(&mut buffer) => {
                            let (length, from) = read?;
                            socket.send_to(&buffer[..length], from).await?;
                        }
                        stop = inner.receive() => return stop.map_err(BoxError::from),
                    }
                }
            })
            .started()
            .await?;
            ctx.process().value(address).spawn(client)?.await?;
            let _ = ctx.try_receive();
            Ok::<_, BoxError>(())
        });
        async fn client(ctx: Context) -> Result<(), BoxError> {
            let server = *ctx.value::<std::net::SocketAddr>().ok_or("no address")?;
            let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await?;
            let mut buffer = [0; 64];
            for n in 0..100_u8 {
                socket.send_to(&[n; 8], server).await?;
                let read = tokio::time::timeout(Duration::from_secs(10), socket.recv(&mut buffer)).await??;
                assert_eq!(buffer[..read], [n; 8]);
            }
            let before = tokio::time::Instant::now();
            tokio::time::sleep(Duration::from_millis(3)).await;
            assert!(before.elapsed() >= Duration::from_millis(3));
            Ok(())
        }
        tokio.block_on(echo).unwrap();
    });
}

/// 8.2a: tokio tasks spawn processes, send messages to these processes, call these processes, and join these processes.
/// The test runs once with worker threads and once with a guest.
#[test]
fn tokio_tasks_can_communicate_with_processes() {
    within(60, || {
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        for workers in [0, 2] {
            tokio.block_on(async move {
                let rt = Arc::new(Runtime::builder().workers(workers).build().unwrap());
                let counter = rt.spawn(counter);
                let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
                let guest = (workers == 0).then(|| {
                    let rt = rt.clone();
                    tokio::spawn(async move { rt.run(stopped).await })
                });
                let tasks: Vec<_> = (0..20_u64)
                    .map(|n| {
                        let (host, to) = (rt.host().clone(), counter.address());
                        tokio::spawn(async move {
                            to.send(Count::Up(n)).unwrap();
                            to.call(Count::Total).await.unwrap();
                            host.spawn(async move |ctx: Context| {
                                ctx.sleep(Duration::from_millis(n % 3)).await;
                                Ok::<_, Exit>(n)
                            })
                            .await
                            .unwrap()
                        })
                    })
                    .collect();
                let mut joined = 0;
                for task in tasks {
                    joined += task.await.unwrap();
                }
                assert_eq!((joined, counter.call(Count::Total).await.unwrap()), (190, 190));
                counter.abort();
                assert!(matches!(counter.await, Err(Exit::Killed)));
                drop(stop);
                if let Some(guest) = guest {
                    assert!(guest.await.unwrap().is_err());
                }
            });
        }
    });
}

/// 8.1b, 8.2a: if the guests of the runtime are tokio tasks, the processes can use tokio without `Builder::tokio`. The
/// reason is that the threads that poll these guests are already inside the context of tokio.
#[test]
fn guests_of_tokio_are_inside_the_context_of_tokio() {
    within(60, || {
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        tokio.block_on(async {
            let rt = none();
            let guests: Vec<_> = (0..4)
                .map(|_| {
                    let rt = rt.clone();
                    tokio::spawn(async move {
                        let nap = rt.spawn(async |_: Context| {
                            tokio::time::sleep(Duration::from_millis(2)).await;
                            tokio::spawn(async { 7 }).await
                        });
                        rt.run(nap).await.unwrap()
                    })
                })
                .collect();
            for guest in guests {
                assert_eq!(guest.await.unwrap(), 7);
            }
        });
    });
}

/// 8.2c: a host implements `futures::task::Spawn`.
#[test]
fn a_host_spawns_futures_for_other_crates() {
    within(30, || {
        let rt = two();
        let generic: &dyn Spawn = rt.host();
        let handle = generic.spawn_with_handle(async { 6 * 7 }).unwrap();
        assert_eq!(futures::executor::block_on(handle), 42);
        let host = rt.host().clone();
        drop(rt);
        assert!(host.status().is_err_and(|error| error.is_shutdown()));
        assert!(host.spawn_with_handle(async {}).is_err_and(|error| error.is_shutdown()));
    });
}

/// 8.1b: the future of `Runtime::run` is `Send` if its inner future is `Send`.
#[test]
fn the_future_of_run_implements_send_if_its_inner_future_does() {
    fn is_send<T: Send>(future: T) -> T {
        future
    }
    within(30, || {
        let rt = none();
        let done = rt.spawn(async |_: Context| Ok::<_, Exit>(1));
        let guest = is_send(rt.run(done));
        assert_eq!(futures::executor::block_on(guest).unwrap(), 1);
    });
}

/// 8.1b: a guest may be polled on one thread first and on another thread later.
#[test]
fn a_guest_may_move_between_threads() {
    within(30, || {
        let rt = none();
        let handle = rt.spawn(job);
        let mut guest = ManualGuest::new(&rt, async move { assert_eq!(handle.await.unwrap(), JOB) });
        *guest.bell.waiting.lock().unwrap() = Some(thread::current());
        loop {
            let heard = guest.rung();
            let polled = thread::spawn(move || (guest.poll(), guest)).join().unwrap();
            if polled.0 {
                return;
            }
            guest = polled.1;
            while guest.rung() == heard {
                thread::park();
            }
        }
    });
}

/// 8.1a: if there are more guests than worker slots, all guests complete. Each guest waits for a process. The guests
/// with a slot also run the processes of the guests without a slot.
#[test]
fn all_guests_complete_even_if_there_are_fewer_worker_slots_than_guests() {
    within(60, || {
        let rt = none();
        let gate = Arc::new(std::sync::Barrier::new(60));
        let threads: Vec<_> = (0..60_u64)
            .map(|n| {
                let (rt, gate) = (rt.clone(), gate.clone());
                thread::spawn(move || {
                    let body = async move |ctx: Context| {
                        ctx.sleep(Duration::from_millis(n % 7)).await;
                        ctx.yield_now().await;
                        Ok::<_, Exit>(n)
                    };
                    gate.wait();
                    let handle = rt.spawn(body);
                    if n % 2 == 0 { rt.block_on(handle) } else { futures::executor::block_on(rt.run(handle)) }
                })
            })
            .collect();
        let sum: u64 = threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).sum();
        assert_eq!(sum, 1770);
    });
}

/// 8.1a, 8.1e: guests take and release worker slots many times. No process is lost.
#[test]
fn no_process_is_lost_while_guests_take_and_release_worker_slots() {
    within(120, || {
        let rt = none();
        let rounds = if cfg!(debug_assertions) { 300 } else { 3000 };
        let threads: Vec<_> = (0..6_u64)
            .map(|n| {
                let rt = rt.clone();
                thread::spawn(move || {
                    for round in 0..rounds {
                        let child = rt.spawn(async |ctx: Context| {
                            let child = ctx.spawn(async |_: Context| {});
                            ctx.yield_now().await;
                            child.await
                        });
                        match (n + round) % 3 {
                            0 => rt.block_on(child),
                            1 => futures::executor::block_on(rt.run(child)),
                            _ => smol::block_on(rt.run(child)),
                        }
                        .unwrap();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let counters = rt.counters();
        assert_eq!((counters.spawned, counters.exited), (12 * rounds, 12 * rounds));
    });
}

/// 8.1c: a guest runs a bounded number of turns in one poll. Then the guest wakes its waker and returns to its
/// executor, so the executor polls the guest again.
#[test]
fn a_guest_runs_a_bounded_number_of_turns_per_poll() {
    let rt = none();
    let _endless = rt.spawn(async |ctx: Context| -> Result<(), Exit> {
        loop {
            ctx.yield_now().await;
        }
    });
    let mut guest = ManualGuest::new(&rt, pending());
    for polls in 1..=5_u64 {
        let before = rt.counters().polls;
        assert!(!guest.poll());
        let ran = rt.counters().polls - before;
        assert!((1..=200).contains(&ran), "{ran} in one poll");
        assert_eq!(guest.rung() as u64, polls, "it asks to be polled again");
    }
}

/// 8.1d, 8.1e: two guests are woken for a new task, and one of these guests is dropped before its next poll. The task
/// is not lost, because the remaining guest runs the task.
#[test]
fn no_task_is_lost_if_a_guest_is_dropped_after_its_wake_up() {
    let rt = none();
    let (mut first, mut second) = (ManualGuest::new(&rt, pending()), ManualGuest::new(&rt, pending()));
    first.settle();
    second.settle();
    // On a busy machine, the guest may have been woken during its first poll. Therefore the test compares the count of
    // wake-ups before and after the spawn.
    let before = (first.rung(), second.rung());
    let done = rt.spawn(async |_: Context| {});
    let rung = (first.rung() - before.0, second.rung() - before.1);
    assert_eq!(rung, (1, 1), "either may never be polled again");
    drop(first);
    second.settle();
    assert!(done.is_finished());
}

/// 8.1e: a guest is woken for a new task and dropped before its next poll. The task is not lost, because a worker runs
/// the task.
#[test]
fn if_a_woken_guest_is_dropped_a_worker_runs_the_task_of_this_guest() {
    within(60, || {
        for _ in 0..if cfg!(debug_assertions) { 200 } else { 2000 } {
            let rt = Arc::new(alone().build().unwrap());
            let mut guest = ManualGuest::new(&rt, pending());
            // The worker is busy, so the runtime wakes the guest.
            let (busy, free) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
            let (held, hold) = (busy.clone(), free.clone());
            let worker = rt.spawn(async move |_: Context| {
                held.store(false, Ordering::SeqCst);
                while !hold.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
            });
            while busy.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            guest.settle();
            let before = guest.rung();
            let done = rt.spawn(async |_: Context| {});
            assert_eq!(guest.rung() - before, 1);
            free.store(true, Ordering::SeqCst);
            drop(guest);
            futures::executor::block_on(worker).unwrap();
            futures::executor::block_on(done).unwrap();
        }
    });
}

/// 8.1e: if a guest is dropped while tasks are in its local queue, another guest runs these tasks.
#[test]
fn another_guest_runs_the_queued_tasks_of_a_dropped_guest() {
    let rt = none();
    let (mut first, mut second) = (ManualGuest::new(&rt, pending()), ManualGuest::new(&rt, pending()));
    second.settle();
    // A process that runs on the first guest spawns the children, so the children are in the local queue of the first
    // guest.
    let parent = rt.spawn(async |ctx: Context| {
        let children: Vec<_> = (0..300)
            .map(|_| {
                ctx.spawn(async |ctx: Context| {
                    for _ in 0..5 {
                        ctx.yield_now().await;
                    }
                })
            })
            .collect();
        for child in children {
            child.await?;
        }
        Ok::<_, Exit>(())
    });
    assert!(!first.poll());
    assert!(rt.counters().spawned > 1 && !parent.is_finished());
    drop(first);
    assert!(second.rung() >= 1, "it is told");
    second.settle();
    assert!(parent.is_finished());
}

/// 8.1e: if a dropped guest was the timekeeper, another guest becomes the timekeeper. Without a timekeeper, the other
/// guests would sleep forever.
#[test]
fn another_guest_becomes_the_timekeeper_if_the_timekeeper_is_dropped() {
    let rt = none();
    let (mut first, mut second) = (ManualGuest::new(&rt, pending()), ManualGuest::new(&rt, pending()));
    let nap = rt.spawn(async |ctx: Context| ctx.sleep(Duration::from_millis(300)).await);
    first.settle();
    second.settle();
    drop(first);
    within(60, move || second.drive(|| nap.is_finished()));
}

/// 8.1e: if the future of a guest completes and the guest was the timekeeper, another guest becomes the timekeeper.
#[test]
fn another_guest_becomes_the_timekeeper_if_the_timekeeper_completes() {
    let rt = none();
    let (done, is_done) = futures::channel::oneshot::channel::<()>();
    let mut first = ManualGuest::new(&rt, async move { is_done.await.unwrap() });
    let mut second = ManualGuest::new(&rt, pending());
    let nap = rt.spawn(async |ctx: Context| ctx.sleep(Duration::from_millis(300)).await);
    first.settle();
    second.settle();
    done.send(()).unwrap();
    assert!(first.poll());
    within(60, move || second.drive(|| nap.is_finished()));
}

/// 8.1e: a guest thread in `block_on` may be the timekeeper of a runtime with workers. After this thread has returned
/// from `block_on`, a sleep still ends on time.
#[test]
fn a_sleep_ends_on_time_after_the_timekeeper_has_returned_from_block_on() {
    within(60, || {
        let rt = two();
        for n in 0..if cfg!(debug_assertions) { 200 } else { 1000_u64 } {
            let (tell, told) = mpsc::channel::<()>();
            let nap = rt.spawn(async move |ctx: Context| {
                ctx.sleep(Duration::from_millis(1 + n % 3)).await;
                drop(tell);
            });
            // The guest thread checks the timers, may become the timekeeper, and returns from `block_on`.
            rt.block_on(nap.started()).unwrap();
            rt.block_on(rt.sleep(Duration::from_micros(n % 700)));
            assert_eq!(told.recv_timeout(Duration::from_secs(10)), Err(mpsc::RecvTimeoutError::Disconnected));
        }
    });
}

/// Spins for the given time.
fn takes(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// 8.1c: if one step takes longer than the time limit of a poll, the poll ends after that step. Other tasks of a
/// single-threaded executor can then run. The test does not depend on the speed of the machine, because each step spins
/// for 1 ms.
#[test]
fn a_poll_of_a_guest_ends_after_one_long_step() {
    const STEPS: usize = 60;
    within(60, || {
        let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let rt = none();
        let steps = Arc::new(AtomicUsize::new(0));
        let busy: Vec<_> = (0..3)
            .map(|_| {
                let steps = Arc::clone(&steps);
                rt.spawn(async move |ctx: Context| {
                    for _ in 0..STEPS / 3 {
                        takes(Duration::from_millis(1));
                        steps.fetch_add(1, Ordering::SeqCst);
                        ctx.yield_now().await;
                    }
                })
            })
            .collect();
        let turns = Arc::new(AtomicUsize::new(0));
        let (counted, (mut polls, mut most)) = (Arc::clone(&turns), (0, 0));
        tokio.block_on(async {
            tokio::spawn(async move {
                loop {
                    counted.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                }
            });
            let mut guest = std::pin::pin!(rt.run(futures::future::join_all(busy)));
            std::future::poll_fn(|cx| {
                let before = steps.load(Ordering::SeqCst);
                let polled = guest.as_mut().poll(cx);
                most = most.max(steps.load(Ordering::SeqCst) - before);
                polls += 1;
                polled
            })
            .await;
        });
        assert_eq!((most, steps.load(Ordering::SeqCst)), (1, STEPS));
        assert!(polls >= STEPS, "{polls} polls");
        let turns = turns.load(Ordering::SeqCst);
        assert!(turns >= STEPS / 2, "the other task had {turns} turns");
    });
}

/// 8.1c: the future of a guest thread has a deadline, and many processes are runnable. When the deadline passes during
/// a step, the thread detects this after the step.
#[test]
fn block_on_runs_no_step_after_the_deadline_of_its_future() {
    within(60, || {
        for blocks in [true, false] {
            let rt = none();
            let late = Arc::new(Mutex::new(None));
            let begun_late = Arc::new(AtomicUsize::new(0));
            let _busy: Vec<_> = (0..10)
                .map(|_| {
                    let (begun_late, late) = (Arc::clone(&begun_late), Arc::clone(&late));
                    rt.spawn(async move |ctx: Context| -> Result<(), Exit> {
                        loop {
                            let is_late = late.lock().unwrap().is_some_and(|late| ctx.now() >= late);
                            begun_late.fetch_add(usize::from(is_late), Ordering::SeqCst);
                            takes(Duration::from_millis(2));
                            ctx.yield_now().await;
                        }
                    })
                })
                .collect();
            let nap = async {
                let nap = rt.sleep(Duration::from_millis(20));
                // The additional millisecond is the resolution of timers.
                *late.lock().unwrap() = Some(rt.now() + Duration::from_millis(21));
                nap.await;
            };
            if blocks {
                rt.block_on(nap);
            } else {
                futures::executor::block_on(rt.run(nap));
            }
            // One step may begin after the deadline. The reason is that the thread reads the clock before the step, and
            // the system may preempt the thread after this read.
            let begun_late = begun_late.load(Ordering::SeqCst);
            assert!(begun_late <= 1, "{begun_late} steps began after the deadline");
        }
    });
}

/// 8.1e: a guest is polled once and then leaked with `mem::forget`. Later guests run the tasks of the leaked guest, the
/// timers of the leaked guest fire, and new tasks wake the later guests. The shutdown completes.
#[test]
fn a_leaked_guest_blocks_nothing() {
    for busy in [false, true] {
        for workers in [0, 1] {
            within(60, move || {
                let rt = Runtime::builder().workers(workers).build().unwrap();
                let endless = busy.then(|| {
                    rt.spawn(async |ctx: Context| -> Result<(), Exit> {
                        loop {
                            ctx.yield_now().await;
                        }
                    })
                });
                let nap = rt.spawn(async |ctx: Context| ctx.sleep(Duration::from_millis(2)).await);
                let mut forgotten = Box::pin(rt.run(pending::<()>()));
                assert!(forgotten.as_mut().poll(&mut Cx::from_waker(Waker::noop())).is_pending());
                std::mem::forget(forgotten);
                rt.block_on(nap).unwrap();
                rt.block_on(rt.sleep(Duration::from_millis(2)));
                assert_eq!(futures::executor::block_on(rt.run(rt.spawn(job))).unwrap(), JOB);
                let host = rt.host().clone();
                let (ask, asked) = futures::channel::mpsc::unbounded();
                let asks = thread::spawn(move || {
                    for n in 0..100_u64 {
                        // This thread spawns the process while the guest thread sleeps or is about to sleep.
                        let double = host.spawn(async move |_: Context| Ok::<_, Exit>(2 * n));
                        assert_eq!(futures::executor::block_on(double).unwrap(), 2 * n);
                    }
                    drop(ask);
                });
                rt.block_on(futures::StreamExt::for_each(asked, async |(): ()| ()));
                asks.join().unwrap();
                if let Some(endless) = endless {
                    endless.abort();
                    assert!(matches!(rt.block_on(endless), Err(Exit::Killed)));
                }
                let waits = rt.spawn(async |mut ctx: Context| ctx.receive().await.map(drop));
                let report = shut_down(rt, Duration::from_secs(30));
                assert!(report.left.is_empty(), "{:?}", report.left);
                assert!(waits.is_finished());
            });
        }
    }
}

/// 8.1d: the destructor of a thread-local may call `block_on`. The call succeeds. The thread may have initialized that
/// thread-local before or after the thread-locals of the crate.
#[test]
fn the_destructor_of_a_thread_local_can_call_block_on() {
    struct Last(RefCell<Option<Arc<Runtime>>>);
    impl Drop for Last {
        fn drop(&mut self) {
            let rt = self.0.take().expect("set by the test");
            assert_eq!(rt.block_on(rt.spawn(job)).unwrap(), JOB);
            assert_eq!(futures::executor::block_on(rt.run(rt.spawn(job))).unwrap(), JOB);
            ENDED.fetch_add(1, Ordering::SeqCst);
        }
    }
    thread_local!(static LAST: Last = const { Last(RefCell::new(None)) });
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    // A panic in the destructor of a thread-local aborts the program, so the test runs in a child program.
    if subprocess::role().is_none() {
        subprocess::again(the_destructor_of_a_thread_local_can_call_block_on, "", 60).passed();
        return;
    }
    for workers in [0, 1] {
        for is_older in [true, false] {
            let before = ENDED.load(Ordering::SeqCst);
            let rt = Arc::new(Runtime::builder().workers(workers).build().unwrap());
            let run = move || {
                let keep = || LAST.with(|last| last.0.replace(Some(Arc::clone(&rt))));
                if is_older {
                    keep();
                }
                assert_eq!(rt.block_on(rt.spawn(job)).unwrap(), JOB);
                keep();
            };
            thread::spawn(run).join().unwrap();
            assert_eq!(ENDED.load(Ordering::SeqCst), before + 1);
        }
    }
}

/// 8.1f: without a guest or a worker, no process runs. The next guest runs all queued tasks.
#[test]
fn no_process_runs_without_a_guest_or_a_worker() {
    let rt = none();
    let handles: Vec<_> = (0..100).map(|_| rt.spawn(async |_: Context| {})).collect();
    assert!(handles.iter().all(|handle| !handle.is_finished()));
    assert_eq!(rt.counters().polls, 0);
    ManualGuest::new(&rt, pending()).settle();
    assert!(handles.iter().all(JoinHandle::is_finished));
}

/// 8.3a: processes of two runtimes in one program send messages to each other. Each process runs only on threads of its
/// own runtime.
#[test]
fn two_runtimes_do_not_disturb_each_other() {
    fn named(name: &'static str) -> Runtime {
        let started = move |work: &mut dyn FnMut()| {
            NAME.set(name);
            work();
        };
        Runtime::builder().workers(2).wrap_threads(started).build().unwrap()
    }
    thread_local!(static NAME: std::cell::Cell<&'static str> = const { std::cell::Cell::new("") });
    struct Volley {
        left: u64,
        to: Pid,
        host: Host,
    }
    /// Body of a player. The player sends each received ball back to the other player. The body returns the names of
    /// the threads on which the player ran.
    async fn player(mut ctx: Context<Volley>) -> Result<BTreeSet<&'static str>, Exit> {
        let mut seen = BTreeSet::new();
        loop {
            let Volley { left, to, host } = ctx.receive().await?;
            seen.insert(NAME.get());
            if left > 0 {
                host.send(to, Volley { left: left - 1, to: ctx.pid(), host: ctx.host().clone() })?;
            }
            if left < 2 {
                return Ok(seen);
            }
        }
    }
    within(60, || {
        let (one, other) = (named("one"), named("other"));
        assert_ne!(one.node(), other.node());
        let plays = 2000_u64;
        let pairs: Vec<_> = (0..10)
            .map(|_| {
                let (ping, pong) = (one.spawn(player), other.spawn(player));
                ping.send(Volley { left: plays, to: pong.pid(), host: other.host().clone() }).unwrap();
                (ping, pong)
            })
            .collect();
        for (ping, pong) in pairs {
            assert_eq!(futures::executor::block_on(ping).unwrap(), BTreeSet::from(["one"]));
            assert_eq!(futures::executor::block_on(pong).unwrap(), BTreeSet::from(["other"]));
        }
        assert_eq!((one.counters().spawned, other.counters().spawned), (10, 10));
    });
}

/// 8.3b: workers and guest threads store some memory for their next spawn. This memory contains no reference to a host,
/// so the host is dropped with its runtime.
#[test]
fn a_host_is_dropped_with_its_runtime() {
    struct Now;
    impl Command for Now {
        type Reply = ();
    }
    let spawns = async |host: Host| {
        for n in 0..100_u64 {
            assert_eq!(host.spawn(async move |_: Context| Ok::<_, Exit>(n)).await.unwrap(), n);
        }
    };
    for workers in [0, 2] {
        let held = Arc::new(());
        let handler = Arc::clone(&held);
        let rt = Runtime::builder().workers(workers).handle(move |_: Now| drop(handler.clone())).build().unwrap();
        let other = Runtime::builder().workers(1).build().unwrap();
        // The processes are spawned by a guest thread, by a process of this runtime, and by a process of another
        // runtime.
        rt.block_on(spawns(rt.host().clone()));
        let host = rt.host().clone();
        rt.block_on(rt.spawn(async move |_: Context| spawns(host).await)).unwrap();
        let host = rt.host().clone();
        let elsewhere = other.spawn(async move |_: Context| spawns(host).await);
        rt.block_on(elsewhere).unwrap();
        let mut guest = Box::pin(rt.run(pending::<()>()));
        let begun = rt.spawn(async |ctx: Context| drop(ctx.spawn(async |_: Context| {})));
        while rt.processes_alive() > 0 {
            assert!(guest.as_mut().poll(&mut Cx::from_waker(Waker::noop())).is_pending());
        }
        drop((begun, guest));
        drop(rt);
        assert_eq!(Arc::strong_count(&held), 1, "somebody keeps it, with {workers} workers");
    }
}

/// 2.1d, 2.1e, 8.3a: if a pid belongs to another runtime, the host refuses the pid.
#[test]
fn a_pid_of_another_runtime_is_refused() {
    let (one, other) = (none(), none());
    let (here, there) = (one.spawn(counter), other.spawn(counter));
    assert_ne!(here.pid(), there.pid());
    let refused = other.send(here.pid(), Count::Up(1)).unwrap_err();
    assert_eq!(refused.kind(), SendErrorKind::NoProcess);
    assert!(matches!(refused.into_message(), Count::Up(1)));
}

/// 8.3a: two runtimes have one worker each. A process of the first runtime calls `block_on` of the second runtime and
/// of its own runtime.
#[test]
fn calls_of_block_on_can_be_nested() {
    within(60, || {
        let one = Arc::new(Runtime::builder().workers(1).build().unwrap());
        let other = Arc::new(Runtime::builder().workers(1).build().unwrap());
        let (mine, theirs) = (Arc::downgrade(&one), Arc::downgrade(&other));
        let nested = one.spawn(async move |ctx: Context| {
            let before = ctx.spawn(async |_: Context| Ok::<_, Exit>(1));
            let (one, other) = (mine.upgrade().ok_or("gone")?, theirs.upgrade().ok_or("gone")?);
            // This thread is the only worker, so the nested call must run the tasks in the queue of this worker.
            let mut sum = one.block_on(before)?;
            sum += other.block_on(other.spawn(async |ctx: Context| {
                ctx.sleep(Duration::from_millis(1)).await;
                Ok::<_, Exit>(10)
            }))?;
            sum += one.block_on(async {
                let inner = one.spawn(async |ctx: Context| {
                    ctx.yield_now().await;
                    Ok::<_, Exit>(100)
                });
                inner.await
            })?;
            sum += futures::executor::block_on(one.run(one.spawn(job)))?;
            // After the nested calls, the thread continues the turn of the outer process. The outer process can still
            // spawn and await a child.
            let after = ctx.spawn(async |_: Context| Ok::<_, Exit>(1000));
            Ok::<_, BoxError>(sum + after.await?)
        });
        assert_eq!(futures::executor::block_on(nested).unwrap(), 1 + 10 + 100 + JOB + 1000);
        let counters = (one.counters(), other.counters());
        assert_eq!(counters.0.spawned, counters.0.exited);
        assert_eq!((counters.1.spawned, counters.1.exited), (1, 1));
    });
}

/// 8.3a: the nesting of calls of `block_on` may be deep. Each nested call is a call on the runtime that the enclosing
/// call does not use.
#[test]
fn calls_of_block_on_can_be_nested_deeply() {
    fn level(runtimes: [std::sync::Weak<Runtime>; 2], depth: usize) -> BoxFuture<'static, Result<usize, BoxError>> {
        Box::pin(async move {
            if depth == 0 {
                return Ok(0);
            }
            let rt = runtimes[depth % 2].upgrade().ok_or("gone")?;
            let below = rt.spawn(async move |_: Context| level(runtimes, depth - 1).await);
            Ok(rt.block_on(below)? + 1)
        })
    }
    within(60, || {
        let runtimes = [none(), none()];
        let weak = [Arc::downgrade(&runtimes[0]), Arc::downgrade(&runtimes[1])];
        assert_eq!(futures::executor::block_on(level(weak, 30)).unwrap(), 30);
    });
}

/// 8.1d: more steps call `block_on` than there are worker slots for guests. The sleep in each call still ends.
#[test]
fn timers_fire_in_nested_calls_of_block_on_without_a_worker_slot() {
    within(60, || {
        let rt = Arc::new(two());
        let handles: Vec<_> = (0..60)
            .map(|_| {
                let rt2 = Arc::downgrade(&rt);
                rt.spawn(async move |_: Context| {
                    let rt = rt2.upgrade().unwrap();
                    rt.block_on(rt.sleep(Duration::from_millis(5)));
                })
            })
            .collect();
        handles.into_iter().for_each(|handle| futures::executor::block_on(handle).unwrap());
    });
}

/// 8.2d: with `Builder::tokio`, processes use tokio on workers, on guest threads, in blocking work, and in a runtime
/// without workers. The function of `Builder::wrap_threads` is called inside the context of tokio.
#[cfg(feature = "tokio")]
#[test]
fn the_builder_enters_the_context_of_tokio() {
    async fn naps(_: Context) -> Result<u64, BoxError> {
        tokio::net::UdpSocket::bind("127.0.0.1:0").await?;
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(tokio::spawn(async { 7 }).await?)
    }
    within(60, || {
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        for workers in [0, 2] {
            let inside = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&inside);
            let wrap = move |work: &mut dyn FnMut()| {
                count.fetch_add(usize::from(tokio::runtime::Handle::try_current().is_ok()), Ordering::SeqCst);
                work();
            };
            // The monitor is off, because the test counts the threads.
            let builder = Runtime::builder().workers(workers).long_step_threshold(Duration::MAX);
            let rt = builder.tokio(tokio.handle().clone()).wrap_threads(wrap).build().unwrap();
            let blocking = rt.spawn_blocking(|| tokio::runtime::Handle::try_current().is_ok());
            assert!(futures::executor::block_on(blocking).unwrap());
            assert_eq!(rt.block_on(rt.spawn(naps)).unwrap(), 7);
            assert_eq!(futures::executor::block_on(rt.run(rt.spawn(naps))).unwrap(), 7);
            let local = rt.local_set();
            assert_eq!(local.block_on(local.spawn(naps)).unwrap(), 7);
            drop(local);
            if workers > 0 {
                // The thread of the test does not drive the runtime here, so only the workers run the process.
                assert_eq!(futures::executor::block_on(rt.spawn(naps)).unwrap(), 7);
            }
            assert!(tokio::runtime::Handle::try_current().is_err());
            assert_eq!(shut_down(rt, Duration::from_secs(60)).left, []);
            assert_eq!(inside.load(Ordering::SeqCst), workers + 1);
        }
    });
}

/// 8.2d: the function of `Builder::wrap_threads` panics, does not call its closure, or calls its closure twice. Each
/// worker thread and each thread of the blocking pool runs its main function exactly once. If the function has not
/// called the closure, the runtime prints one line to stderr.
#[test]
fn each_thread_runs_once_even_if_the_thread_wrapper_misuses_its_closure() {
    let Some(case) = subprocess::role() else {
        for (case, lines) in [("panics", 1), ("returns", 1), ("calls twice", 0), ("panics later", 0)] {
            let ran = subprocess::again(each_thread_runs_once_even_if_the_thread_wrapper_misuses_its_closure, case, 60);
            let printed = ran.passed().stderr.matches("`Builder::wrap_threads` did not call").count();
            assert_eq!(printed, lines, "{case}: {ran:#?}");
        }
        return;
    };
    let (starts, stops) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let count = |calls: &Arc<AtomicUsize>| {
        let calls = Arc::clone(calls);
        move || {
            calls.fetch_add(1, Ordering::SeqCst);
        }
    };
    let wrap = move |work: &mut dyn FnMut()| match &*case {
        "panics" => panic!("before the work"),
        "returns" => {}
        "calls twice" => {
            work();
            work();
        }
        _ => {
            work();
            panic!("after the work");
        }
    };
    // The monitor is off, so no thread replaces a blocked worker.
    let builder = Runtime::builder().workers(2).long_step_threshold(Duration::MAX).wrap_threads(wrap);
    let rt = builder.on_thread_start(count(&starts)).on_thread_stop(count(&stops)).build().unwrap();
    let barrier = Arc::new(std::sync::Barrier::new(2));
    let processes = [(); 2].map(|()| {
        let barrier = Arc::clone(&barrier);
        rt.spawn(async move |_: Context| {
            barrier.wait();
        })
    });
    for process in processes {
        futures::executor::block_on(process).unwrap();
    }
    assert_eq!(futures::executor::block_on(rt.spawn_blocking(|| 7)).unwrap(), 7);
    drop(rt);
    assert_eq!((starts.load(Ordering::SeqCst), stops.load(Ordering::SeqCst)), (2, 2));
}

/// 8.2d: a replacement thread also enters the context of tokio.
#[cfg(feature = "tokio")]
#[test]
fn a_replacement_thread_enters_the_context_of_tokio() {
    within(60, || {
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let rt = Runtime::builder().workers(1).tokio(tokio.handle().clone()).build().unwrap();
        let (go, wait) = mpsc::channel::<()>();
        let blocks =
            rt.spawn(async move |_: Context| block_in_place(|| wait.recv().is_ok()).then_some(()).ok_or("gone"));
        // The only worker blocks until a process on the replacement thread releases the worker.
        let other = rt.spawn(async move |_: Context| {
            tokio::time::sleep(Duration::from_millis(1)).await;
            go.send(())
        });
        futures::executor::block_on(other).unwrap();
        futures::executor::block_on(blocks).unwrap();
    });
}

/// 8.2d: if a tokio task calls `block_on`, tokio's budget for this task does not limit the future of `block_on`. The
/// futures of `block_on` and of `run` are dropped inside the context of tokio.
#[cfg(feature = "tokio")]
#[test]
fn a_future_inside_a_task_of_tokio_has_no_budget_and_is_dropped_inside_the_context() {
    struct Drops(Arc<AtomicUsize>);
    impl Drop for Drops {
        fn drop(&mut self) {
            self.0.fetch_add(usize::from(tokio::runtime::Handle::try_current().is_ok()), Ordering::SeqCst);
        }
    }
    impl Future for Drops {
        type Output = ();
        fn poll(self: Pin<&mut Self>, _: &mut Cx<'_>) -> std::task::Poll<()> {
            std::task::Poll::Ready(())
        }
    }
    async fn receives() -> usize {
        let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
        for n in 0..1_000 {
            let _ = send.send(n);
            let _ = receive.recv().await;
        }
        1_000
    }
    within(60, || {
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let builder = || Runtime::builder().workers(0).tokio(tokio.handle().clone());
        let inside = Arc::new(AtomicUsize::new(0));
        let drops = || Drops(Arc::clone(&inside));
        let rt = builder().build().unwrap();
        rt.block_on(drops());
        rt.block_on(rt.spawn(async |_: Context| {})).unwrap();
        futures::executor::block_on(rt.run(drops()));
        let mut unfinished = Box::pin(rt.run(async {
            let _drops = drops();
            pending::<()>().await;
        }));
        assert!(unfinished.as_mut().poll(&mut Cx::from_waker(Waker::noop())).is_pending());
        drop(unfinished);
        assert_eq!(inside.load(Ordering::SeqCst), 3);
        // `run` does not disable the budget of tokio. Therefore each poll of `run` ends, although the operations are
        // always ready.
        let (driven, done) = (builder().build().unwrap(), AtomicBool::new(false));
        tokio.block_on(async {
            let sets = async {
                tokio::task::yield_now().await;
                done.store(true, Ordering::SeqCst);
            };
            let drives = driven.run(async {
                while !done.load(Ordering::SeqCst) {
                    receives().await;
                }
            });
            futures::join!(drives, sets);
        });
        let nested = builder().build().unwrap();
        let task = tokio.spawn(async move {
            // tokio has only one thread, and this call of `block_on` blocks that thread. So the call must complete
            // without a second thread of tokio.
            let received = nested.block_on(receives());
            received + nested.block_on(nested.spawn(async |_: Context| Ok::<_, Exit>(receives().await))).unwrap()
        });
        assert_eq!(futures::executor::block_on(task).unwrap(), 2_000);
        // If a runtime was built without the handle of tokio, `block_on` also ignores the budget of the calling task.
        for workers in [0, 1] {
            let nested = Runtime::builder().workers(workers).build().unwrap();
            let task = tokio.spawn(async move {
                let received = nested.block_on(receives());
                received + nested.block_on(nested.spawn(async |_: Context| Ok::<_, Exit>(receives().await))).unwrap()
            });
            assert_eq!(futures::executor::block_on(task).unwrap(), 2_000);
        }
    });
}

/// 4.6a, 8.1d: a step spawns a process and blocks the thread of the step in `block_on`. The nested guest always has a
/// process to run, because the guest has stolen a different process from the queues of the worker of this step. The
/// spawned process runs nevertheless.
#[test]
fn a_nested_guest_with_an_endless_process_still_runs_the_queue_of_its_thread() {
    for workers in [0, 1] {
        within(60, move || {
            let rt = Arc::new(Runtime::builder().workers(workers).long_step_threshold(Duration::MAX).build().unwrap());
            let endless = |count: usize| -> Vec<_> {
                (0..count)
                    .map(|_| {
                        rt.spawn(async |ctx: Context| -> Result<(), Exit> {
                            loop {
                                ctx.yield_now().await;
                            }
                        })
                    })
                    .collect()
            };
            let others = endless(2);
            let weak = Arc::downgrade(&rt);
            let blocks = rt.spawn(async move |ctx: Context| {
                let rt = weak.upgrade().expect("the test holds the runtime");
                let spawned = [1, 2, 3].map(|n| ctx.spawn(async move |_: Context| Ok::<_, Exit>(n)));
                spawned.into_iter().map(|one| rt.block_on(one)).sum::<Result<u64, _>>()
            });
            let sum = if workers == 0 { rt.block_on(blocks) } else { futures::executor::block_on(blocks) };
            assert_eq!(sum.unwrap(), 6);
            others.iter().for_each(JoinHandle::abort);
        });
    }
}

/// 4.6a: each process calls `block_in_place` in each of its steps. No process starves.
#[test]
fn no_process_starves_if_each_step_calls_block_in_place() {
    for processes in [4, 18, 35] {
        within(60, move || {
            let rt = none();
            let counts: Arc<[AtomicUsize]> = (0..processes).map(|_| AtomicUsize::new(0)).collect();
            for n in 0..processes {
                let counts = Arc::clone(&counts);
                drop(rt.spawn(async move |ctx: Context| -> Result<(), Exit> {
                    loop {
                        counts[n].fetch_add(1, Ordering::SeqCst);
                        block_in_place(|| ());
                        ctx.yield_now().await;
                    }
                }));
            }
            while counts[0].load(Ordering::SeqCst) < 300 {
                rt.block_on(step_aside());
            }
            let counts: Vec<_> = counts.iter().map(|count| count.load(Ordering::SeqCst)).collect();
            assert!(counts.iter().all(|&count| count > 100), "{counts:?}");
        });
    }
}

/// 4.6a, 8.1e: three guests leave tasks in their slots, and return. Then many short calls of `block_on` take a slot,
/// one call after the other. If each call takes the same slot, the tasks of the other two slots run nevertheless.
#[test]
fn the_tasks_of_all_vacant_slots_run_in_short_calls_of_block_on() {
    within(60, || {
        let rt = none();
        let counts: Arc<[AtomicUsize; 3]> = Arc::default();
        let together = Arc::new(std::sync::Barrier::new(counts.len()));
        let (first, last) = (Arc::new(AtomicUsize::new(0)), counts.len() - 1);
        let guests: Vec<_> = (0..counts.len())
            .map(|n| {
                let (rt, counts) = (Arc::clone(&rt), Arc::clone(&counts));
                let (together, returned) = (Arc::clone(&together), Arc::clone(&first));
                thread::spawn(move || {
                    rt.block_on(async {
                        drop(rt.spawn(async move |ctx: Context| -> Result<(), Exit> {
                            loop {
                                counts[n].fetch_add(1, Ordering::SeqCst);
                                ctx.yield_now().await;
                            }
                        }));
                        together.wait();
                        while n == 0 && returned.load(Ordering::SeqCst) != last {
                            thread::yield_now();
                        }
                    });
                    returned.fetch_add(1, Ordering::SeqCst);
                })
            })
            .collect();
        guests.into_iter().for_each(|guest| guest.join().unwrap());
        while counts.iter().any(|count| count.load(Ordering::SeqCst) < 10) {
            rt.block_on(step_aside());
        }
    });
}

/// 4.6a, 8.1e: a guest steals processes from a busy worker, and then no executor polls the guest again. The worker
/// always has other processes to run. Nevertheless, the worker also continues to run each stolen process.
#[test]
fn a_busy_worker_runs_the_processes_of_a_guest_that_is_not_polled() {
    within(60, || {
        let rt = Runtime::builder().workers(1).long_step_threshold(Duration::MAX).build().unwrap();
        let counts: Arc<[AtomicUsize; 8]> = Arc::default();
        let all: Vec<_> = (0..counts.len())
            .map(|n| {
                let counts = Arc::clone(&counts);
                rt.spawn(async move |ctx: Context| -> Result<(), Exit> {
                    loop {
                        counts[n].fetch_add(1, Ordering::SeqCst);
                        ctx.yield_now().await;
                    }
                })
            })
            .collect();
        let all_run = || {
            let begun: Vec<_> = counts.iter().map(|count| count.load(Ordering::SeqCst)).collect();
            while counts.iter().zip(&begun).any(|(count, begun)| count.load(Ordering::SeqCst) < begun + 100) {
                thread::yield_now();
            }
        };
        all_run();
        let mut paused = Box::pin(rt.run(pending::<()>()));
        for _ in 0..3 {
            assert!(paused.as_mut().poll(&mut Cx::from_waker(Waker::noop())).is_pending());
            all_run();
        }
        std::mem::forget(paused);
        all_run();
        all.iter().for_each(JoinHandle::abort);
    });
}

/// 8.1e: many guests wait for a slot, and complete one after another. When a slot becomes vacant, the runtime wakes a
/// bounded number of guests. Therefore the number of polls is linear in the number of guests.
#[test]
fn a_vacant_slot_wakes_a_bounded_number_of_waiting_guests() {
    struct Flag(AtomicBool);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    const GUESTS: usize = 1_000;
    within(60, || {
        let rt = none();
        let (mut senders, mut guests) = (Vec::new(), Vec::new());
        for _ in 0..GUESTS {
            let (send, receive) = futures::channel::oneshot::channel::<()>();
            senders.push(send);
            guests.push(Some((Box::pin(rt.run(receive)), Arc::new(Flag(AtomicBool::new(true))))));
        }
        let mut polls = 0;
        let mut poll_woken = || {
            for guest in &mut guests {
                let Some((future, flag)) = guest else { continue };
                if flag.0.swap(false, Ordering::SeqCst) {
                    polls += 1;
                    let waker = Waker::from(Arc::clone(flag));
                    if future.as_mut().poll(&mut Cx::from_waker(&waker)).is_ready() {
                        *guest = None;
                    }
                }
            }
            guests.iter().flatten().any(|(_, flag)| flag.0.load(Ordering::SeqCst))
        };
        poll_woken();
        for send in senders {
            send.send(()).unwrap();
            poll_woken();
        }
        while poll_woken() {}
        assert!(guests.iter().all(Option::is_none), "a guest was not woken");
        assert!(polls < 60 * GUESTS, "{polls} polls");
    });
}

/// 8.1d: a step may block its thread in `Runtime::block_on`. The inner future may receive more messages than the budget
/// of a turn.
#[test]
fn a_future_inside_a_step_receives_more_messages_than_a_budget() {
    within(60, || {
        let other = Arc::new(Runtime::builder().workers(0).build().unwrap());
        for (workers, is_own) in [(0, true), (1, true), (1, false)] {
            let rt = Arc::new(Runtime::builder().workers(workers).build().unwrap());
            let own = Arc::downgrade(if is_own { &rt } else { &other });
            let sum = rt.spawn(async move |mut ctx: Context<u64>| {
                let rt = own.upgrade().expect("the test holds the runtime");
                let mut sum = 0;
                for _ in 0..400 {
                    sum += rt.block_on(ctx.receive())?;
                }
                Ok::<_, Exit>(sum)
            });
            (0..400).for_each(|n| sum.send(n).unwrap());
            assert_eq!(rt.block_on(sum).unwrap(), 400 * 399 / 2);
        }
    });
}

/// 7.1a: on a foreign thread, a sleep ends and a time limit expires, although the runtime has neither workers nor
/// guests.
#[test]
fn a_sleep_on_a_foreign_thread_ends_without_workers_or_guests() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        futures::executor::block_on(async {
            rt.sleep(Duration::from_millis(5)).await;
            let silent = rt.spawn(async |mut ctx: Context<Reply<u64>>| ctx.receive().await.map(drop));
            let call = silent.address().call(|reply| reply).timeout(Duration::from_millis(5));
            assert!(matches!(call.await, Err(CallError::TimedOut)));
        });
    });
}

/// 4.1a: while 48 threads are guests, no worker can be added. When a guest leaves, the missing worker is added.
#[test]
fn a_worker_is_added_when_a_guest_leaves_its_slot() {
    within(60, || {
        let rt = Arc::new(Runtime::builder().workers(0).build().unwrap());
        let gate = Arc::new(std::sync::Barrier::new(49));
        let (open, closed) = futures::channel::oneshot::channel::<()>();
        let closed = futures::FutureExt::shared(closed);
        let guests: Vec<_> = (0..48)
            .map(|_| {
                let (rt, gate, closed) = (rt.clone(), gate.clone(), closed.clone());
                thread::spawn(move || {
                    rt.block_on(async move {
                        gate.wait();
                        let _ = closed.await;
                    });
                })
            })
            .collect();
        gate.wait();
        rt.set_workers(1);
        open.send(()).unwrap();
        guests.into_iter().for_each(|guest| guest.join().unwrap());
        let process = rt.spawn(async |_: Context| Ok::<_, Exit>(5));
        assert_eq!(futures::executor::block_on(process).unwrap(), 5);
    });
}

/// 8.3b: the future of a handler always wakes itself, and the process that waits for this handler owns the runtime. The
/// drop of the runtime still returns.
#[test]
fn a_handler_that_always_wakes_itself_does_not_delay_the_drop_of_the_runtime() {
    struct Spin;
    impl Command for Spin {
        type Reply = ();
    }
    within(60, || {
        async fn spin(_: Spin) {
            loop {
                step_aside().await;
            }
        }
        let rt = Runtime::builder().workers(1).handle_async(spin).build().unwrap();
        let owner = rt.spawn(async |mut ctx: Context<Runtime>| {
            let rt = ctx.receive().await?;
            let mut spin = std::pin::pin!(ctx.perform(Spin));
            assert!(futures::poll!(&mut spin).is_pending());
            ctx.yield_now().await;
            drop(rt);
            Ok::<_, Exit>(())
        });
        owner.address().send(rt).expect("the process lives");
        let _ = futures::executor::block_on(owner);
    });
}

/// 8.1b: three polled guests wait for a slot. When a guest leaves its slot, this guest wakes all three waiting guests.
/// A panic in the waker of a waiting guest does not affect the guest that leaves its slot. If one of the woken guests
/// is never polled again, another woken guest can take the slot.
#[test]
fn a_vacant_slot_wakes_several_waiting_guests() {
    struct Counts(AtomicUsize);
    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("on purpose");
        }
    }
    let rt = none();
    let guest = || Box::pin(rt.run(pending::<()>()));
    fn poll(guest: &mut Pin<Box<impl Future>>, waker: &Waker) {
        assert!(guest.as_mut().poll(&mut Cx::from_waker(waker)).is_pending());
    }
    let mut seated: Vec<_> = (0..48).map(|_| guest()).collect();
    seated.iter_mut().for_each(|guest| poll(guest, Waker::noop()));
    let (mut bad, mut forgotten, mut late) = (guest(), guest(), guest());
    let counts = Arc::new(Counts(AtomicUsize::new(0)));
    poll(&mut bad, &Waker::from(Arc::new(Panics)));
    poll(&mut forgotten, Waker::noop());
    poll(&mut late, &Waker::from(Arc::clone(&counts)));
    drop(seated.pop());
    assert_eq!(counts.0.load(Ordering::SeqCst), 1);
    // Only a guest with a slot runs processes. Because each poll has a time limit, a poll may return before the process
    // has run.
    let process = rt.spawn(async |_: Context| ());
    for _ in 0..100 {
        poll(&mut late, Waker::noop());
    }
    assert!(process.is_finished());
}

/// 4.4a: the inner future of `run` sends a message and panics. The executor catches the panic, and does not drop the
/// future of `run`. The receiver of the message runs on another thread.
#[test]
fn the_tasks_of_a_slot_are_released_if_a_panic_ends_the_future_inside_run() {
    within(60, || {
        let rt = Arc::new(Runtime::builder().workers(0).build().unwrap());
        let receiver = rt.spawn(async |mut ctx: Context<u32>| ctx.receive().await);
        let address = receiver.address();
        let driver = {
            let rt = Arc::clone(&rt);
            thread::spawn(move || rt.block_on(receiver))
        };
        while rt.metrics().workers_in(WorkerState::Parked) != 1 {
            thread::yield_now();
        }
        let mut run = Box::pin(rt.run(async {
            address.send(7).unwrap();
            panic!("the own future");
        }));
        let poll = || run.as_mut().poll(&mut Cx::from_waker(Waker::noop()));
        let panic: Result<std::task::Poll<()>, _> = std::panic::catch_unwind(std::panic::AssertUnwindSafe(poll));
        assert!(panic.is_err());
        assert_eq!(driver.join().unwrap().unwrap(), 7);
        drop(run);
    });
}

/// 8.3b: the destructor of a process joins a thread that waits in a mailbox. The drop of the runtime first closes the
/// mailbox, and then runs the exit of the process.
#[test]
fn a_destructor_may_wait_for_a_thread_that_waits_in_a_mailbox() {
    struct Joins(Option<thread::JoinHandle<()>>);
    impl Drop for Joins {
        fn drop(&mut self) {
            self.0.take().unwrap().join().unwrap();
        }
    }
    within(60, || {
        let rt = two();
        let (_address, mut mailbox) = rt.mailbox::<()>();
        let bridge = thread::spawn(move || assert!(futures::executor::block_on(mailbox.receive()).is_err()));
        let joins = Joins(Some(bridge));
        let process = rt.spawn(async move |mut ctx: Context| {
            let _joins = joins;
            ctx.receive().await.map(drop)
        });
        rt.block_on(process.started()).unwrap();
        drop(rt);
        assert!(matches!(futures::executor::block_on(process), Err(Exit::Killed)));
    });
}

//! Tests of sockets while the number of workers changes, and while steps block the workers.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context as Cx, Wake, Waker};
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use procession::net::{TcpListener, TcpStream, UdpSocket};
use procession::observe::WorkerState;
use procession::*;

use crate::{round_trip, serve, with, within, yield_now};

/// Starts an echo server. Returns the address of the server.
fn server(rt: &Runtime) -> std::net::SocketAddr {
    let listener = block_on(TcpListener::bind_in(rt.host(), "127.0.0.1:0")).expect("a free port");
    let address = listener.local_addr().expect("an address");
    rt.spawn(move |ctx: Context| serve(ctx, listener));
    address
}

/// Spawns processes that make round trips until `stop` is set. Each process makes at least ten round trips. Each
/// process returns the number of its round trips.
fn clients(rt: &Runtime, count: usize, stop: &Arc<AtomicBool>) -> Vec<JoinHandle<u32>> {
    let address = server(rt);
    let client = |_| {
        let stop = Arc::clone(stop);
        rt.spawn(async move |_: Context| -> Result<_, Exit> {
            let stream = TcpStream::connect(address).await?;
            let mut trips = 0_u32;
            while !stop.load(SeqCst) || trips < 10 {
                round_trip(&stream, &trips.to_ne_bytes()).await?;
                trips += 1;
            }
            Ok(trips)
        })
    };
    (0..count).map(client).collect()
}

/// Makes round trips with a socket of the runtime. The calling thread is outside the runtime.
fn outside(stream: &TcpStream, trips: u8) {
    block_on(async {
        for trip in 0..trips {
            round_trip(stream, &[trip]).await.expect("an echo");
        }
    });
}

/// 12.4b: a worker waits in the poller. A wake-up of the future of `block_on` wakes only the thread of `block_on`, and
/// does not wake this worker.
#[test]
fn a_wake_up_of_a_guest_does_not_wake_the_worker_in_the_poller() {
    within(60, || {
        let parks = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&parks);
        let park = move || {
            count.fetch_add(1, SeqCst);
        };
        // The monitor is off. If the monitor were on, the hand-over of the tasks of the worker could wake the worker.
        let rt = Runtime::builder().workers(1).long_step_threshold(Duration::MAX).on_thread_park(park).build().unwrap();
        let count = Arc::clone(&parks);
        let opens = rt.spawn(async move |_: Context| -> Result<_, Exit> {
            Ok((TcpListener::bind("127.0.0.1:0").await?, count.load(SeqCst)))
        });
        let (_listener, before) = block_on(opens).unwrap();
        // The worker becomes the timekeeper before the worker calls the function that the test has passed to
        // `on_thread_park`.
        while parks.load(SeqCst) == before {
            thread::yield_now();
        }
        let (mut wakes, mut is_woken) = futures::channel::mpsc::unbounded();
        let (waits, is_waiting) = mpsc::channel();
        let waker = thread::spawn(move || {
            for () in is_waiting {
                // In most rounds, the thread of `block_on` parks during these 100 calls of `yield_now`.
                (0..100).for_each(|_| thread::yield_now());
                block_on(futures::SinkExt::send(&mut wakes, ())).expect("the guest waits");
            }
        });
        rt.block_on(async {
            for _ in 0..200 {
                waits.send(()).expect("the thread runs");
                futures::StreamExt::next(&mut is_woken).await;
            }
        });
        drop(waits);
        waker.join().expect("it does not panic");
        assert_eq!(parks.load(SeqCst), before + 1);
    });
}

/// 12.4a: the only worker waits in the poller. A cancellation wakes a task outside the runtime and a process. The waker
/// of the task blocks until the process has run. The cancellation first wakes the worker, and then calls the waker of
/// the task.
#[test]
fn a_cancellation_first_wakes_the_worker_in_the_poller_and_then_calls_a_foreign_waker() {
    struct Blocks(Mutex<mpsc::Receiver<()>>);
    impl Wake for Blocks {
        fn wake(self: Arc<Self>) {
            let _ = self.0.lock().unwrap().recv();
        }
    }
    within(60, || {
        let rt = Runtime::builder().workers(1).long_step_threshold(Duration::MAX).build().unwrap();
        let _socket = UdpSocket::from_std_in(rt.host(), std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
        // In some rounds, the parked worker does not wait in the poller yet. In these rounds, the race does not happen.
        for _ in 0..50 {
            let token = CancelToken::new();
            let (ends, end) = mpsc::channel();
            let mut first = Box::pin(token.cancelled());
            let waker = Waker::from(Arc::new(Blocks(Mutex::new(end))));
            assert!(first.as_mut().poll(&mut Cx::from_waker(&waker)).is_pending());
            let (begins, begun) = mpsc::channel();
            let watched = token.clone();
            let process = rt.spawn(async move |_: Context| {
                let mut cancelled = Box::pin(watched.cancelled());
                assert!(futures::poll!(&mut cancelled).is_pending());
                begins.send(()).unwrap();
                cancelled.await;
                ends.send(()).unwrap();
            });
            begun.recv().unwrap();
            while rt.metrics().workers_in(WorkerState::Parked) != 1 {
                thread::yield_now();
            }
            token.cancel("over", Duration::from_secs(3600));
            block_on(process).unwrap();
        }
    });
}

/// 12.4c: sockets still work after each change of the number of workers. When there are no workers, a guest thread
/// drives the runtime.
#[test]
fn sockets_survive_changes_of_the_number_of_workers() {
    within(120, || {
        let rt = with(1);
        let stop = Arc::new(AtomicBool::new(false));
        let clients = clients(&rt, 10, &stop);
        let address = server(&rt);
        let stream = block_on(TcpStream::connect_in(rt.host(), address)).unwrap();
        for workers in [2, 4, 1, 3, 0, 1, 0, 2].into_iter().cycle().take(80) {
            rt.set_workers(workers);
            if workers == 0 {
                rt.block_on(async { round_trip(&stream, b"on a guest thread").await }).unwrap();
            } else {
                outside(&stream, 3);
            }
        }
        stop.store(true, SeqCst);
        for client in clients {
            assert!(rt.block_on(client).unwrap() >= 10);
        }
    });
}

/// 12.4b, 12.4c: a thread outside the runtime waits for a socket while the last worker exits. The helper thread then
/// waits in the poller, and the waiting thread gets its event.
#[test]
fn a_thread_outside_the_runtime_gets_its_event_after_the_last_worker_exits() {
    within(60, || {
        for _ in 0..20 {
            let rt = with(1);
            let std = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let stream = block_on(TcpStream::connect_in(rt.host(), std.local_addr().unwrap())).unwrap();
            let (mut peer, _) = std.accept().unwrap();
            let (ready, is_ready) = mpsc::channel();
            let waits = thread::spawn(move || {
                block_on(async {
                    let mut read = Box::pin(crate::read_when_readable(&stream));
                    assert!(futures::poll!(&mut read).is_pending());
                    ready.send(()).unwrap();
                    read.await
                })
            });
            is_ready.recv().unwrap();
            rt.set_workers(0);
            std::io::Write::write_all(&mut peer, b"x").unwrap();
            assert_eq!(waits.join().unwrap().unwrap(), b'x');
        }
    });
}

/// 12.4b: in a runtime without workers, a guest thread inside `block_on` waits in the poller, and a thread outside the
/// runtime waits for a socket. When the guest thread leaves, the helper thread waits in the poller, and the waiting
/// thread gets its event.
#[test]
fn a_thread_outside_the_runtime_gets_its_event_after_the_last_guest_thread_leaves() {
    within(60, || {
        for _ in 0..20 {
            let rt = Arc::new(with(0));
            let std = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let stream = block_on(TcpStream::connect_in(rt.host(), std.local_addr().unwrap())).unwrap();
            let (mut peer, _) = std.accept().unwrap();
            let (leave, leaves) = futures::channel::oneshot::channel::<()>();
            let guest = Arc::clone(&rt);
            let parked = Arc::new(AtomicBool::new(false));
            let is_parked = Arc::clone(&parked);
            let guest = thread::spawn(move || {
                guest.block_on(async {
                    // When this thread parks the next time, this thread waits in the poller.
                    is_parked.store(true, SeqCst);
                    leaves.await.unwrap();
                });
            });
            while !parked.load(SeqCst) {
                thread::yield_now();
            }
            let (ready, is_ready) = mpsc::channel();
            let waits = thread::spawn(move || {
                block_on(async {
                    let mut read = Box::pin(crate::read_when_readable(&stream));
                    assert!(futures::poll!(&mut read).is_pending());
                    ready.send(()).unwrap();
                    read.await
                })
            });
            is_ready.recv().unwrap();
            leave.send(()).unwrap();
            guest.join().unwrap();
            std::io::Write::write_all(&mut peer, b"x").unwrap();
            assert_eq!(waits.join().unwrap().unwrap(), b'x');
        }
    });
}

/// 12.4c: while a step blocks the only worker, a replacement thread serves the sockets. In one case, the step blocks
/// inside `block_in_place`. In the other case, the step blocks outside of `block_in_place`.
#[test]
fn sockets_survive_the_replacement_of_a_blocked_worker() {
    within(120, || {
        for in_place in [true, false] {
            let rt = Runtime::builder().workers(1).long_step_threshold(Duration::from_millis(1)).build().unwrap();
            let address = server(&rt);
            let waiting = block_on(TcpStream::connect_in(rt.host(), address)).unwrap();
            outside(&waiting, 1);
            for _ in 0..10 {
                let (blocked, is_blocked) = mpsc::channel();
                let (release, released) = mpsc::channel::<()>();
                let step = rt.spawn(async move |_: Context| -> Result<(), Exit> {
                    let blocks = || {
                        blocked.send(()).expect("the test waits");
                        released.recv().expect("the test releases the step");
                    };
                    if in_place {
                        block_in_place(blocks)
                    } else {
                        blocks()
                    }
                    Ok(())
                });
                is_blocked.recv().unwrap();
                // The step now blocks the worker. Only a replacement thread can serve these round trips.
                outside(&waiting, 5);
                outside(&block_on(TcpStream::connect_in(rt.host(), address)).unwrap(), 5);
                release.send(()).unwrap();
                block_on(step).unwrap();
                outside(&waiting, 2);
            }
        }
    });
}

/// 12.4c: six steps call `block_in_place`, but the runtime may start only two replacement threads. Four of these steps
/// block all four threads, namely the two workers and the two replacement threads. When the steps have returned, the
/// runtime still serves the connection.
#[test]
fn sockets_survive_more_blocked_steps_than_replacement_threads() {
    within(120, || {
        let rt = Runtime::builder()
            .workers(2)
            .max_replacement_threads(2)
            .long_step_threshold(Duration::from_millis(1))
            .build()
            .unwrap();
        let address = server(&rt);
        let stream = block_on(TcpStream::connect_in(rt.host(), address)).unwrap();
        for _ in 0..10 {
            let (release, released) = mpsc::channel::<()>();
            let released = Arc::new(Mutex::new(released));
            let (blocked, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let steps: Vec<_> = (0..6)
                .map(|_| {
                    let (released, blocked) = (Arc::clone(&released), Arc::clone(&blocked));
                    let most = Arc::clone(&most);
                    rt.spawn(async move |_: Context| -> Result<(), Exit> {
                        block_in_place(|| {
                            most.fetch_max(blocked.fetch_add(1, SeqCst) + 1, SeqCst);
                            released.lock().unwrap().recv().unwrap();
                            blocked.fetch_sub(1, SeqCst);
                        });
                        Ok(())
                    })
                })
                .collect();
            while blocked.load(SeqCst) < 4 {
                thread::yield_now();
            }
            (0..6).for_each(|_| release.send(()).unwrap());
            for step in steps {
                block_on(step).unwrap();
            }
            assert_eq!(most.load(SeqCst), 4, "two workers and two replacement threads run at most four steps");
            outside(&stream, 3);
        }
    });
}

/// 12.4c: while a thread outside the runtime waits in a read, the runtime is dropped. The read then fails. If the
/// runtime has no workers, the helper thread waits in the poller.
#[test]
fn a_waiting_read_fails_when_its_runtime_is_dropped() {
    within(60, || {
        for workers in [0, 1, 2] {
            for _ in 0..20 {
                let rt = with(workers);
                let std = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                let stream = block_on(TcpStream::connect_in(rt.host(), std.local_addr().unwrap())).unwrap();
                let (ready, is_ready) = mpsc::channel();
                let waits = thread::spawn(move || {
                    block_on(async {
                        let mut buf = [0; 1];
                        let mut stream = &stream;
                        let mut read = Box::pin(futures::AsyncReadExt::read(&mut stream, &mut buf));
                        assert!(futures::poll!(&mut read).is_pending());
                        ready.send(()).unwrap();
                        read.await
                    })
                });
                is_ready.recv().unwrap();
                drop(rt);
                let error = waits.join().unwrap().unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::NotConnected);
                assert_eq!(error.to_string(), "the runtime of this socket has shut down");
            }
        }
    });
}

/// 12.1c: several sockets become ready while a step runs on the only worker. The processes of these sockets then run in
/// the order in which the packets arrived.
#[test]
#[cfg(unix)]
fn processes_of_ready_sockets_run_in_the_order_of_their_packets() {
    within(60, || {
        let rt = Runtime::builder().workers(1).long_step_threshold(Duration::MAX).build().unwrap();
        let (waiting, is_waiting) = mpsc::channel();
        let (ran, order) = mpsc::channel();
        let senders: Vec<_> = (0..8_usize)
            .map(|number| {
                let (sender, receiver) = std::os::unix::net::UnixDatagram::pair().unwrap();
                let receiver = net::UnixDatagram::from_std_in(rt.host(), receiver).unwrap();
                let (waiting, ran) = (waiting.clone(), ran.clone());
                rt.spawn(async move |_: Context| -> Result<(), Exit> {
                    let mut buf = [0; 1];
                    loop {
                        let mut receive = Box::pin(receiver.recv(&mut buf));
                        assert!(futures::poll!(&mut receive).is_pending());
                        waiting.send(()).expect("the test waits");
                        receive.await?;
                        ran.send(number).expect("the test waits");
                    }
                });
                sender
            })
            .collect();
        let all_wait = || senders.iter().for_each(|_| is_waiting.recv().unwrap());
        all_wait();
        // After this first round, the system has already reported the events that the registrations cause.
        for sender in &senders {
            sender.send(b"x").unwrap();
            is_waiting.recv().unwrap();
            order.recv().unwrap();
        }
        for round in 0..20 {
            let (blocked, is_blocked) = mpsc::channel();
            let (release, released) = mpsc::channel::<()>();
            rt.spawn(async move |_: Context| -> Result<(), Exit> {
                blocked.send(()).expect("the test waits");
                released.recv().expect("the test releases the step");
                Ok(())
            });
            is_blocked.recv().unwrap();
            // The numbers 3 and 8 have no common divisor, so this sequence contains each number once.
            let arrivals: Vec<_> = (0..senders.len()).map(|n| (n * 3 + round) % senders.len()).collect();
            for number in &arrivals {
                senders[*number].send(b"x").unwrap();
            }
            release.send(()).unwrap();
            assert_eq!(order.iter().take(senders.len()).collect::<Vec<_>>(), arrivals);
            all_wait();
        }
    });
}

/// 12.1b: no wake-up is lost while several workers ask the poller for events and park. Between their round trips, the
/// processes also sleep and spawn other processes.
#[test]
fn no_wake_up_is_lost_between_workers_and_the_poller() {
    within(300, || {
        for workers in [1, 2, 3, 4] {
            let rt = with(workers);
            let address = server(&rt);
            let trips: Vec<_> = (0..4_u32)
                .map(|n| {
                    rt.spawn(async move |ctx: Context| -> Result<(), Exit> {
                        let stream = TcpStream::connect(address).await?;
                        for trip in 0..500_u32 {
                            round_trip(&stream, &trip.to_ne_bytes()).await?;
                            if (trip + n) % 50 == 0 {
                                ctx.sleep(Duration::from_micros(100)).await;
                            }
                            if trip % 8 == n {
                                ctx.spawn(async |_: Context| Ok::<_, Exit>(())).await?;
                            }
                        }
                        Ok(())
                    })
                })
                .collect();
            let stream = block_on(TcpStream::connect_in(rt.host(), address)).unwrap();
            outside(&stream, 200);
            for trip in trips {
                block_on(trip).unwrap();
            }
        }
    });
}

/// 12.4b: the inner future of `block_on` wakes itself in each poll, and each poll takes long. The runtime has no
/// workers. After each poll, the thread checks the sockets.
#[cfg(unix)]
#[test]
fn sockets_are_not_delayed_by_a_busy_future_inside_block_on() {
    use futures::AsyncReadExt;
    use procession::net::UnixStream;
    within(60, || {
        let rt = with(0);
        let (has_read, waits) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let polls = rt.block_on(async {
            let (mut near, far) = UnixStream::pair().expect("a pair");
            let (reads, begins) = (Arc::clone(&has_read), Arc::clone(&waits));
            rt.spawn(async move |_: Context| -> Result<(), Exit> {
                begins.store(true, SeqCst);
                near.read_exact(&mut [0]).await?;
                reads.store(true, SeqCst);
                Ok(())
            });
            while !waits.load(SeqCst) {
                rt.host().sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(far.try_write(&[1]).expect("room for one byte"), 1);
            let mut polls = 0;
            while !has_read.load(SeqCst) {
                polls += 1;
                let begun = std::time::Instant::now();
                while begun.elapsed() < Duration::from_millis(1) {}
                yield_now().await;
            }
            polls
        });
        assert!(polls < 10, "{polls} polls");
    });
}

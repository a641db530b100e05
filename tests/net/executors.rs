//! Sockets on threads of other executors: `Runtime::run` inside tokio and smol, and `futures::executor::block_on`.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::{Context as Cx, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use procession::net::{TcpListener, TcpStream};
#[cfg(unix)]
use procession::observe::ProcessState;
use procession::*;

use crate::subprocess::{again, role};
use crate::{read_when_readable, round_trip, serve, with, within};

/// 12.4b: a waker of another executor blocks the helper thread. While the helper thread is blocked, a thread in
/// `block_on` receives the events of the other sockets.
#[test]
#[cfg(unix)]
fn a_waker_that_blocks_the_helper_thread_does_not_delay_other_sockets() {
    use futures::{AsyncReadExt, FutureExt};
    use procession::net::UnixStream;
    use std::io::Write;

    /// Waker that blocks the helper thread until the process has read a byte. The waker sends `true` if the helper
    /// thread calls the waker, and `false` if a different thread calls the waker.
    struct Blocks {
        entered: mpsc::Sender<bool>,
        until: std::sync::Mutex<mpsc::Receiver<()>>,
    }
    impl Wake for Blocks {
        fn wake(self: Arc<Self>) {
            let is_helper = thread::current().name().is_some_and(|name| name.ends_with("-poller"));
            self.entered.send(is_helper).expect("the test waits");
            if is_helper {
                self.until.lock().unwrap().recv().expect("the process sends");
            }
        }
    }

    within(60, || {
        let rt = Arc::new(Runtime::builder().workers(0).build().unwrap());
        let pair = || {
            let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
            (UnixStream::from_std_in(rt.host(), one).unwrap(), other)
        };
        let ((mut outside, mut to_outside), (mut inside, mut to_inside)) = (pair(), pair());
        let (entered, is_entered) = mpsc::channel();
        let (reads, until) = mpsc::channel();
        let waker = Waker::from(Arc::new(Blocks { entered, until: until.into() }));
        let mut buf = [0; 1];
        // This poll starts the helper thread.
        assert!(outside.read(&mut buf).poll_unpin(&mut Cx::from_waker(&waker)).is_pending());
        let process = rt.spawn(async move |_: Context| -> Result<(), Exit> {
            inside.read_exact(&mut [0; 1]).await?;
            reads.send(()).map_err(|_| Exit::failed("the waker has returned"))
        });
        let (pid, guest) = (process.pid(), Arc::clone(&rt));
        let guest = thread::spawn(move || guest.block_on(process));
        let is_waiting = || {
            let details = rt.process_details(pid).expect("it waits for a byte");
            details.info.state == Some(ProcessState::Idle)
        };
        while !is_waiting() {
            thread::yield_now();
        }
        // The guest may enter the poller before the helper thread does. In this case the guest calls the waker, and the
        // test tries again.
        loop {
            if outside.read(&mut buf).poll_unpin(&mut Cx::from_waker(&waker)).is_pending() {
                to_outside.write_all(b"x").unwrap();
                if is_entered.recv().unwrap() {
                    break;
                }
            }
        }
        to_inside.write_all(b"x").unwrap();
        guest.join().unwrap().unwrap();
    });
}

/// Returns the names of the threads of this program.
///
/// The system stores only the first 15 bytes of the name of a thread, so the runtimes of these tests have short names.
#[cfg(target_os = "linux")]
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads");
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        // If a thread exits during this loop, the name of the thread cannot be read.
        let name = std::fs::read_to_string(task.ok()?.path().join("comm")).ok()?;
        Some(name.trim().to_owned())
    };
    tasks.filter_map(name).collect()
}

#[cfg(target_os = "linux")]
fn pollers() -> usize {
    threads().iter().filter(|name| name.ends_with("-poller")).count()
}

/// Waits until `/proc` shows `count` helper threads. A new thread gets its name shortly after its start, and an exited
/// thread disappears shortly after its exit.
#[cfg(target_os = "linux")]
fn wait_for_pollers(count: usize) {
    while pollers() != count {
        thread::yield_now();
    }
}

/// Makes round trips between processes of a runtime, and from the calling future to a process.
async fn traffic(rt: &Runtime) {
    let listener = TcpListener::bind_in(rt.host(), "127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    rt.spawn(move |ctx: Context| serve(ctx, listener));
    let clients: Vec<_> = (0..5)
        .map(|_| {
            rt.spawn(async move |_: Context| -> Result<(), Exit> {
                let stream = TcpStream::connect(address).await?;
                for trip in 0..100 {
                    round_trip(&stream, &[trip; 30]).await?;
                }
                Ok(())
            })
        })
        .collect();
    let stream = TcpStream::connect_in(rt.host(), address).await.unwrap();
    for trip in 0..100 {
        round_trip(&stream, &[trip; 3]).await.unwrap();
    }
    for client in clients {
        client.await.unwrap();
    }
}

/// Waker that sets a flag when the waker is woken.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

/// Waits for a byte inside `Runtime::run`. The peer sends the byte only after the future of `run` has returned
/// `Pending`. At that time, no thread polls the runtime.
#[cfg(target_os = "linux")]
async fn waits_inside_run(rt: &Runtime) {
    let std = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect_in(rt.host(), std.local_addr().unwrap()).await.unwrap();
    let (mut peer, _) = std.accept().unwrap();
    let read = rt.spawn(async move |_: Context| -> Result<_, Exit> {
        let mut stream = stream;
        Ok(futures::AsyncReadExt::read(&mut stream, &mut [0; 1]).await?)
    });
    let mut run = std::pin::pin!(rt.run(read));
    let flag = Arc::new(Flag(AtomicBool::new(true)));
    // A poll also returns when its budget is spent. In this case, the poll wakes its own waker.
    while flag.0.swap(false, SeqCst) {
        assert!(run.as_mut().poll(&mut Cx::from_waker(&Waker::from(Arc::clone(&flag)))).is_pending());
    }
    std::io::Write::write_all(&mut peer, b"x").unwrap();
    assert_eq!(run.await.unwrap(), 1);
}

/// 12.4b: a runtime without workers runs inside tokio or smol. One helper thread waits in the poller. The helper thread
/// starts at the first wait for a socket and exits when the runtime ends.
#[test]
#[cfg(target_os = "linux")]
fn one_helper_thread_waits_for_a_runtime_inside_another_executor() {
    let Some(executor) = role() else {
        for executor in ["tokio", "smol"] {
            again(one_helper_thread_waits_for_a_runtime_inside_another_executor, executor, 60).passed();
        }
        return;
    };
    let whole = async {
        let rt = Runtime::builder().workers(0).thread_name("one").build().unwrap();
        let other = Runtime::builder().workers(0).thread_name("other").build().unwrap();
        rt.run(async {
            rt.spawn(async |_: Context| Ok::<_, Exit>(())).await.unwrap();
            assert_eq!(pollers(), 0, "there is no socket yet: {:?}", threads());
        })
        .await;
        waits_inside_run(&rt).await;
        wait_for_pollers(1);
        // The helper thread runs until its runtime ends, so the next future of `run` uses the same helper thread. The
        // other runtime starts its own helper thread.
        rt.run(traffic(&rt)).await;
        waits_inside_run(&rt).await;
        wait_for_pollers(1);
        other.run(traffic(&other)).await;
        waits_inside_run(&other).await;
        wait_for_pollers(2);
        drop((rt, other));
        wait_for_pollers(0);
    };
    match &*executor {
        "tokio" => tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(whole),
        _ => smol::block_on(whole),
    }
}

/// 12.4b: if the runtime has workers, or if a thread waits inside `block_on`, no helper thread starts.
#[test]
#[cfg(target_os = "linux")]
fn no_helper_thread_starts_if_a_worker_or_a_guest_thread_exists() {
    if role().is_none() {
        again(no_helper_thread_starts_if_a_worker_or_a_guest_thread_exists, "child", 60).passed();
        return;
    }
    let named = |workers| Runtime::builder().workers(workers).thread_name("one").build().unwrap();
    let rt = named(2);
    futures::executor::block_on(rt.run(traffic(&rt)));
    rt.block_on(traffic(&rt));
    futures::executor::block_on(traffic(&rt));
    assert_eq!(pollers(), 0, "{:?}", threads());
    let rt = named(0);
    rt.block_on(traffic(&rt));
    assert_eq!(pollers(), 0, "{:?}", threads());
    // A thread outside the runtime waits for a socket, so the runtime now needs the helper thread.
    let host = rt.host().clone();
    let client = thread::spawn(move || {
        futures::executor::block_on(async {
            let listener = TcpListener::bind_in(&host, "127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (mut one, other) = futures::join!(TcpStream::connect_in(&host, address), listener.accept());
            let mut buf = [0; 1];
            let read = futures::AsyncReadExt::read(one.as_mut().unwrap(), &mut buf);
            let write = async { futures::AsyncWriteExt::write_all(&mut &other.as_ref().unwrap().0, b"x").await };
            let (read, written) = futures::join!(read, write);
            written.unwrap();
            assert_eq!(read.unwrap(), 1);
        });
    });
    client.join().unwrap();
    wait_for_pollers(1);
    rt.block_on(traffic(&rt));
    drop(rt);
    wait_for_pollers(0);
}

/// 12.4a: several threads of other executors use the sockets of one runtime at the same time. The runtime has 0, 1 or 2
/// workers.
#[test]
fn threads_of_other_executors_use_sockets() {
    for workers in [0, 1, 2] {
        within(60, move || {
            let rt = with(workers);
            let host = rt.host().clone();
            let listener = futures::executor::block_on(TcpListener::bind_in(&host, "127.0.0.1:0")).unwrap();
            let address = listener.local_addr().unwrap();
            let server = thread::spawn(move || {
                futures::executor::block_on(async {
                    let mut echoes = Vec::new();
                    for _ in 0..4 {
                        let (stream, _) = listener.accept().await.unwrap();
                        echoes.push(thread::spawn(move || futures::executor::block_on(crate::echo(stream)).unwrap()));
                    }
                    echoes.into_iter().for_each(|echo| echo.join().unwrap());
                });
            });
            let clients: Vec<_> = (0..4)
                .map(|n| {
                    let host = host.clone();
                    thread::spawn(move || {
                        let client = async {
                            let stream = TcpStream::connect_in(&host, address).await.unwrap();
                            for trip in 0..100 {
                                round_trip(&stream, &[trip, n]).await.unwrap();
                            }
                        };
                        if n % 2 == 0 { smol::block_on(client) } else { futures::executor::block_on(client) }
                    })
                })
                .collect();
            clients.into_iter().for_each(|client| client.join().unwrap());
            server.join().unwrap();
            drop(rt);
        });
    }
}

/// 12.4a: several guest threads of a runtime without workers use sockets at the same time. One guest thread waits in
/// the poller. When this guest thread leaves the poller, a different thread waits in the poller.
#[test]
fn several_guest_threads_use_sockets() {
    within(120, || {
        let rt = Arc::new(with(0));
        let guests: Vec<_> = (0..4)
            .map(|n| {
                let rt = Arc::clone(&rt);
                thread::spawn(move || {
                    for _ in 0..5 {
                        if n == 3 {
                            smol::block_on(rt.run(traffic(&rt)));
                        } else {
                            rt.block_on(traffic(&rt));
                        }
                    }
                })
            })
            .collect();
        guests.into_iter().for_each(|guest| guest.join().unwrap());
    });
}

/// 12.4b: a thread outside the runtime repeats `try_read` until the data arrives. The runtime has no workers.
#[test]
fn repeated_attempts_outside_a_runtime_see_the_data() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = TcpStream::from_std_in(rt.host(), listener.accept().unwrap().0).unwrap();
        let mut buf = [0; 8];
        assert_eq!(stream.try_read(&mut buf).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        std::io::Write::write_all(&mut client, b"abc").unwrap();
        let count = loop {
            match stream.try_read(&mut buf) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => thread::yield_now(),
                read => break read.unwrap(),
            }
        };
        assert_eq!(&buf[..count], b"abc");
    });
}

/// 12.4a, 12.4c: the only worker is in a long step, and the monitor is off or slow. A future of `Runtime::run` waits
/// for a socket. When the guest is polled, the guest checks the poller. So the read completes during the step.
#[test]
fn a_polled_guest_reads_during_a_long_step_without_a_monitor() {
    for threshold in [Duration::MAX, Duration::from_secs(3600)] {
        within(60, move || {
            let rt = Runtime::builder().workers(1).long_step_threshold(threshold).build().unwrap();
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let connect = TcpStream::connect_in(rt.host(), listener.local_addr().unwrap());
            let stream = futures::executor::block_on(connect).unwrap();
            let mut peer = listener.accept().unwrap().0;
            let (release, released) = mpsc::channel::<()>();
            let (begins, begun) = mpsc::channel();
            let long = rt.spawn(async move |_: Context| {
                begins.send(()).unwrap();
                Ok::<_, Exit>(released.recv().is_ok())
            });
            begun.recv().unwrap();
            let (flag, mut run) =
                (Arc::new(Flag(AtomicBool::new(true))), Box::pin(rt.run(read_when_readable(&stream))));
            // A poll also returns when its budget is spent. In this case, the poll wakes its own waker.
            while flag.0.swap(false, SeqCst) {
                assert!(run.as_mut().poll(&mut Cx::from_waker(&Waker::from(Arc::clone(&flag)))).is_pending());
            }
            std::io::Write::write_all(&mut peer, b"x").unwrap();
            // This executor polls the future only after a wake-up.
            let read = loop {
                if flag.0.swap(false, SeqCst)
                    && let Poll::Ready(read) = run.as_mut().poll(&mut Cx::from_waker(&Waker::from(Arc::clone(&flag))))
                {
                    break read;
                }
                thread::yield_now();
            };
            assert_eq!(read.unwrap(), b'x');
            release.send(()).unwrap();
            assert!(futures::executor::block_on(long).unwrap());
        });
    }
}

/// 12.4b: steps call `block_on` to wait for sockets, and the number of these calls is higher than the number of worker
/// slots. A thread without a slot checks the sockets.
#[test]
#[cfg(unix)]
fn sockets_become_ready_in_nested_calls_of_block_on_without_a_worker_slot() {
    use futures::AsyncReadExt;
    use procession::net::UnixStream;
    use std::io::Write;

    within(60, || {
        let rt = Arc::new(Runtime::builder().workers(2).build().unwrap());
        let mut writers = Vec::new();
        let handles: Vec<_> = (0..60)
            .map(|_| {
                let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
                writers.push(writer);
                let mut reader = UnixStream::from_std_in(rt.host(), reader).unwrap();
                let own = Arc::downgrade(&rt);
                rt.spawn(async move |_: Context| {
                    let rt = own.upgrade().unwrap();
                    rt.block_on(reader.read_exact(&mut [0; 1])).map_err(Exit::failed)
                })
            })
            .collect();
        let is_blocked = |pid| {
            let details = rt.process_details(pid).expect("it waits for a byte");
            details.info.state == Some(ProcessState::Running)
        };
        // 48 steps occupy all worker slots and all threads of the runtime.
        while handles.iter().filter(|handle| is_blocked(handle.pid())).count() < 48 {
            thread::sleep(Duration::from_millis(1));
        }
        writers.iter_mut().for_each(|writer| writer.write_all(b"x").unwrap());
        handles.into_iter().for_each(|handle| futures::executor::block_on(handle).unwrap());
    });
}

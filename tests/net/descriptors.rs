//! Open descriptors of the program: their limit, leaks, and system calls. Each test runs in its own operating system
//! process.

#![allow(unsafe_code)]

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use futures::executor::block_on;
use futures::{AsyncReadExt, AsyncWriteExt};
use procession::net::{TcpListener, TcpStream};
use procession::observe::WorkerState;
use procession::*;

use crate::decoder::{Buffer, decode};
use crate::subprocess::{again, again_with, role, run};
use crate::{pair, round_trip, serve, with};

/// Returns the targets of the open descriptors, as `/proc/self/fd` shows them.
fn descriptors() -> Vec<String> {
    let entries = std::fs::read_dir("/proc/self/fd").expect("the descriptors");
    let target = |entry: std::io::Result<std::fs::DirEntry>| std::fs::read_link(entry.ok()?.path()).ok();
    // While this function reads the directory, the directory is open. The function removes the descriptor of the
    // directory from the result.
    entries.filter_map(target).map(|to| to.display().to_string()).filter(|to| !to.starts_with("/proc/")).collect()
}

/// Returns true if `strace` is installed and the system permits this program to trace a child process.
///
/// # Panics
/// Panics instead of returning false if the environment variable `PROCESSION_STRACE` is `required`.
fn has_strace() -> bool {
    let mut probe = std::process::Command::new("strace");
    let ran = probe.args(["-f", "-c", "-o", "/dev/stdout", "true"]).output();
    let works = ran.as_ref().is_ok_and(|ran| ran.status.success());
    if !works {
        let is_required = std::env::var_os("PROCESSION_STRACE").is_some_and(|wish| wish == "required");
        assert!(!is_required, "PROCESSION_STRACE=required, but strace does not work here: {ran:?}");
        // If a test passes, the test harness hides the output of the print macros. This function writes directly to
        // stderr, so that this line is shown.
        let mut stderr = std::io::stderr();
        let _ = writeln!(stderr, "SKIPPED the tests that count system calls: strace does not work here: {ran:?}");
    }
    works
}

/// Sets the maximum number of open descriptors.
fn limit_descriptors(most: usize) {
    let limit = libc::rlimit { rlim_cur: most as libc::rlim_t, rlim_max: most as libc::rlim_t };
    // SAFETY: the pointer is valid during the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
}

/// 12.6a: if no descriptor is free, `accept` returns an error to the process that calls `accept`. When a descriptor is
/// free again, `accept` succeeds, and the server serves the connection that waited in the queue of the system. If no
/// descriptor is free, `connect` returns the same error as `accept`. Between two calls of `accept`, a connection still
/// waits in the queue of the system. Nevertheless the worker stays parked: no process runs, and the wait in the poller
/// does not return.
#[test]
fn a_listener_reports_that_no_descriptor_is_free_and_recovers() {
    if role().is_none() {
        again(a_listener_reports_that_no_descriptor_is_free_and_recovers, "child", 60).passed();
        return;
    }
    // The monitor is off, because a hand-over would wake the worker.
    let rt = Runtime::builder().workers(1).long_step_threshold(Duration::MAX).build().unwrap();
    let listener = block_on(TcpListener::bind_in(rt.host(), "127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let connect = || block_on(TcpStream::connect_in(rt.host(), address));
    let first = connect().unwrap();
    block_on(listener.accept()).unwrap();
    drop(first);
    limit_descriptors(descriptors().len() + 21);
    let mut filled: Vec<std::fs::File> = Vec::new();
    let client = std::net::TcpStream::connect(address).unwrap();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        filled.push(file);
    }
    assert!(filled.len() >= 10, "{} files", filled.len());
    let failures = Arc::new(AtomicUsize::new(0));
    let failed = Arc::clone(&failures);
    let accepts = rt.spawn(async move |mut ctx: Context<()>| -> Result<_, Exit> {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return Ok(stream),
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
                    failed.fetch_add(1, SeqCst);
                    // The process calls `accept` again only after the process has received a message.
                    ctx.receive().await?;
                }
            }
        }
    });
    for attempt in 1..=5 {
        // The worker is running when the process counts the failure. The loop first reads the count, and then checks
        // whether the worker is parked. Therefore, when the loop ends, the worker has parked after the failure.
        while failures.load(SeqCst) < attempt || rt.metrics().workers_in(WorkerState::Parked) == 0 {
            std::thread::yield_now();
        }
        let parked = rt.counters();
        assert_eq!(connect().unwrap_err().raw_os_error(), Some(libc::EMFILE));
        // During this loop, a worker that does not sleep would search and park hundreds of times.
        for _ in 0..10_000 {
            std::thread::yield_now();
        }
        let since = rt.counters() - parked;
        assert_eq!((since.polls, failures.load(SeqCst)), (0, attempt), "one attempt for each message");
        // One unneeded wake-up may wake the worker in the poller. The worker then parks again.
        assert!(since.parks <= 1, "{} parks without a free descriptor", since.parks);
        if attempt == 5 {
            drop(filled.pop());
        }
        accepts.send(()).unwrap();
    }
    let stream = block_on(accepts).unwrap();
    (&client).write_all(b"waited").unwrap();
    let mut buf = [0; 6];
    block_on((&stream).read_exact(&mut buf)).unwrap();
    assert_eq!(&buf, b"waited");
}

/// 12.6a: if no descriptor is free for the poller, the creation of the first socket fails. A later attempt succeeds.
#[test]
fn the_first_socket_reports_that_no_descriptor_is_free_and_recovers() {
    if role().is_none() {
        again(the_first_socket_reports_that_no_descriptor_is_free_and_recovers, "child", 60).passed();
        return;
    }
    let rt = with(1);
    block_on(rt.spawn(async |_: Context| Ok::<_, Exit>(()))).unwrap();
    let std = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let copies: Vec<_> = (0..3).map(|_| std.try_clone().unwrap()).collect();
    let before = descriptors().len();
    limit_descriptors(before + 20);
    let mut filled = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        filled.push(file);
    }
    let full = filled.len();
    // The poller needs three descriptors. If fewer than three descriptors are free, the attempt fails and leaks no
    // descriptor.
    for (free, copy) in copies.into_iter().enumerate() {
        let error = TcpListener::from_std_in(rt.host(), copy).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{free} free descriptors");
        // The refused socket is closed, so one more descriptor is free.
        while let Ok(file) = std::fs::File::open("/dev/null") {
            filled.push(file);
        }
        assert_eq!(filled.len(), full + free + 1, "nothing is leaked");
        // The files that this loop has opened are closed again. Therefore the next attempt finds one more free
        // descriptor than this attempt.
        filled.truncate(full);
    }
    filled.clear();
    let address = std.local_addr().unwrap();
    let listener = TcpListener::from_std_in(rt.host(), std).unwrap();
    rt.spawn(move |ctx: Context| serve(ctx, listener));
    block_on(async { round_trip(&TcpStream::connect_in(rt.host(), address).await?, b"x").await }).unwrap();
}

/// Returns the number of sockets that are registered with the poller of the runtime. The counter track `sockets` of a
/// trace shows this number.
fn registered_sockets(rt: &Runtime) -> u64 {
    let buffer = Buffer::default();
    rt.start_trace_to(buffer.clone()).unwrap().finish().unwrap();
    let trace = decode(&buffer.bytes());
    let (track, _) = trace.tracks.iter().find(|(_, track)| track.0 == "sockets").expect("the track");
    trace.events.iter().rfind(|event| event.track == *track).expect("a value").count
}

/// 12.3b: a process that is killed inside a socket operation leaks no descriptor, and the sockets of the process are no
/// longer registered with the poller. When the runtime and the last socket are dropped, the poller is closed.
#[test]
fn killed_processes_leak_no_descriptor() {
    if role().is_none() {
        again(killed_processes_leak_no_descriptor, "child", 60).passed();
        return;
    }
    let begin = descriptors();
    let rt = with(2);
    rt.block_on(async {
        drop(pair().await?);
        let before = descriptors();
        let registered = registered_sockets(&rt);
        for _ in 0..50 {
            let mut waiting = Vec::new();
            for way in 0..5 {
                let (mut one, mut other) = pair().await?;
                let (ready, is_ready) = futures::channel::oneshot::channel();
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                waiting.push(rt.spawn(async move |_: Context| -> Result<(), Exit> {
                    let mut buf = [0; 8];
                    let bytes = vec![0; 64 << 20];
                    let mut operation = Box::pin(async {
                        match way {
                            0 => one.read(&mut buf).await.map(drop),
                            1 => one.write_all(&bytes).await,
                            2 => listener.accept().await.map(drop),
                            3 => crate::read_when_readable(&other).await.map(drop),
                            _ => other.peek(&mut buf).await.map(drop),
                        }
                    });
                    assert!(futures::poll!(&mut operation).is_pending());
                    let _ = ready.send(());
                    operation.await?;
                    other.close().await?;
                    Ok(())
                }));
                is_ready.await.expect("the process waits");
            }
            // Each process owns two streams and a listener.
            assert_eq!(registered_sockets(&rt), registered + 3 * 5);
            for process in waiting {
                process.abort();
                assert!(matches!(process.await, Err(Exit::Killed)));
            }
            assert_eq!(descriptors().len(), before.len(), "{:?}", descriptors());
        }
        assert_eq!(registered_sockets(&rt), registered);
        std::io::Result::Ok(())
    })
    .unwrap();
    drop(rt);
    // The drop of the runtime waits until the worker threads have reported their exits. A worker thread drops its
    // reference to the poller shortly after this report. If the poller stays open, the time limit of this child process
    // ends the loop.
    while descriptors().len() != begin.len() {
        std::thread::yield_now();
    }
}

/// 12.1d: a runtime without sockets opens no descriptor for sockets and calls no function of epoll. The processes of
/// this runtime use timers, child processes and the blocking pool.
#[test]
fn a_runtime_without_sockets_opens_no_descriptor_and_makes_no_system_call_for_sockets() {
    fn work(rt: &Runtime) {
        let sleeper = rt.spawn(async |ctx: Context| -> Result<(), Exit> {
            for _ in 0..20 {
                ctx.sleep(Duration::from_micros(300)).await;
                ctx.spawn(async |_: Context| Ok::<_, Exit>(())).await?;
                ctx.host().spawn_blocking(|| ()).await?;
            }
            Ok(())
        });
        rt.block_on(sleeper).unwrap();
    }
    match role().as_deref() {
        None => {}
        Some(role) => {
            let begin = descriptors();
            for workers in [0, 1, 2] {
                let rt = with(workers);
                work(&rt);
                assert_eq!(descriptors(), begin);
                if role == "sockets" {
                    rt.block_on(pair()).unwrap();
                    let opened: Vec<_> = descriptors().into_iter().filter(|to| to.contains("event")).collect();
                    println!("opened {opened:?}");
                    assert!((2..=3).contains(&opened.len()), "{opened:?}");
                }
            }
            return;
        }
    }
    let name = "descriptors::a_runtime_without_sockets_opens_no_descriptor_and_makes_no_system_call_for_sockets";
    let has_strace = has_strace();
    for sockets in [false, true] {
        let role = if sockets { "sockets" } else { "none" };
        let ran = again(a_runtime_without_sockets_opens_no_descriptor_and_makes_no_system_call_for_sockets, role, 60);
        ran.passed();
        if has_strace {
            let mut traced = std::process::Command::new("strace");
            traced.args(["-f", "-c", "-o", "/dev/stdout"]).arg(std::env::current_exe().unwrap());
            traced.args(["--exact", name, "--nocapture", "--test-threads=1"]).env("PROCESSION_SUBPROCESS", role);
            let ran = run(&mut traced, 120);
            ran.passed();
            let calls = |name: &str| ran.stdout.lines().filter(|line| line.ends_with(name)).count();
            assert!(calls(" futex") > 0, "{}", ran.stdout);
            assert!(sockets || calls(" epoll_wait") + calls(" epoll_pwait") == 0, "{}", ran.stdout);
            for name in [" epoll_create1", " eventfd2", " epoll_ctl"] {
                assert_eq!(calls(name) > 0, sockets, "{name}: {}", ran.stdout);
            }
        }
    }
}

/// 12.6e: signals constantly interrupt the system calls of the workers. No socket operation returns an error because of
/// a signal.
#[test]
fn an_interrupted_system_call_is_never_visible() {
    extern "C" fn ignore(_: libc::c_int) {}
    if role().is_none() {
        again_with(an_interrupted_system_call_is_never_visible, "child", 120, |_| {}).passed();
        return;
    }
    // SAFETY: a `sigaction` consists of integers and an optional function pointer. Zero is valid for each of these
    // integers and for the optional function pointer.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // The action has no flag `SA_RESTART`, so an interrupted system call returns `EINTR`.
    action.sa_sigaction = ignore as *const () as usize;
    // SAFETY: `action` is valid during the call. The handler does nothing, so the handler may run in each context.
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) }, 0);
    let threads = Arc::new(Mutex::new(Vec::new()));
    let started = Arc::clone(&threads);
    // SAFETY: the function takes no pointer and changes no memory of this program, so every call is sound.
    let here = move || started.lock().unwrap().push(unsafe { libc::pthread_self() });
    let rt = Runtime::builder().workers(2).on_thread_start(here).build().unwrap();
    let listener = block_on(TcpListener::bind_in(rt.host(), "127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    rt.spawn(move |ctx: Context| serve(ctx, listener));
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let (first, is_first) = mpsc::channel();
    let interrupts = std::thread::spawn(move || {
        let mut count = 0_u64;
        while !over.load(SeqCst) {
            for thread in &*threads.lock().unwrap() {
                // SAFETY: the worker threads run until the runtime is dropped, and the runtime is dropped after this
                // loop.
                assert_eq!(unsafe { libc::pthread_kill(*thread, libc::SIGUSR1) }, 0);
                count += 1;
            }
            let _ = first.send(());
            std::thread::yield_now();
        }
        count
    });
    is_first.recv().unwrap();
    let clients: Vec<_> = (0..10_u8)
        .map(|n| {
            rt.spawn(async move |ctx: Context| -> Result<(), Exit> {
                for _ in 0..10 {
                    let stream = TcpStream::connect(address).await?;
                    for trip in 0..20 {
                        round_trip(&stream, &[n, trip]).await?;
                    }
                    ctx.sleep(Duration::from_micros(200)).await;
                    round_trip(&stream, &[n; 200_000]).await?;
                }
                Ok(())
            })
        })
        .collect();
    for client in clients {
        block_on(client).unwrap();
    }
    is_over.store(true, SeqCst);
    println!("{} signals", interrupts.join().unwrap());
}

/// Sends `SIGUSR1` to each thread of the program except the calling thread.
fn interrupt_all_threads() {
    // SAFETY: the function takes no pointer and changes no memory of this program, so every call is sound.
    let own = unsafe { libc::gettid() };
    for task in std::fs::read_dir("/proc/self/task").expect("the threads") {
        let thread: i32 = task.expect("a thread").file_name().to_str().expect("a number").parse().expect("a number");
        if thread != own {
            // A thread may exit before the signal is sent, so the result is ignored.
            // SAFETY: the call takes no pointer. The program has a handler for the signal, which does nothing.
            unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread, libc::SIGUSR1) };
        }
    }
}

/// 12.6e: signals constantly interrupt the system calls of guest threads and of the helper thread. No socket operation
/// returns an error because of a signal. The runtime has no workers.
#[test]
fn an_interrupted_system_call_of_a_guest_or_of_the_helper_thread_is_never_visible() {
    extern "C" fn ignore(_: libc::c_int) {}
    if role().is_none() {
        again(an_interrupted_system_call_of_a_guest_or_of_the_helper_thread_is_never_visible, "child", 120).passed();
        return;
    }
    // SAFETY: a `sigaction` consists of integers and an optional function pointer. Zero is valid for each of these
    // integers and for the optional function pointer.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = ignore as *const () as usize;
    // SAFETY: `action` is valid during the call. The handler does nothing, so the handler may run in each context.
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) }, 0);
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let interrupts = std::thread::spawn(move || {
        while !over.load(SeqCst) {
            interrupt_all_threads();
            std::thread::yield_now();
        }
    });
    let rt = with(0);
    let traffic = async || -> std::io::Result<()> {
        for round in 0..10 {
            let listener = TcpListener::bind_in(rt.host(), "127.0.0.1:0").await?;
            let address = listener.local_addr()?;
            let stream = TcpStream::connect_in(rt.host(), address).await?;
            let (accepted, _) = listener.accept().await?;
            let echo = async { futures::io::copy(&accepted, &mut &accepted).await };
            let trips = async {
                for trip in 0..20 {
                    round_trip(&stream, &[round, trip]).await?;
                }
                round_trip(&stream, &[round; 200_000]).await?;
                (&stream).close().await
            };
            futures::try_join!(echo, trips)?;
        }
        Ok(())
    };
    // First the guest thread waits in the poller. Later the helper thread waits in the poller.
    rt.block_on(traffic()).unwrap();
    block_on(traffic()).unwrap();
    is_over.store(true, SeqCst);
    interrupts.join().unwrap();
}

/// 12.3b, 12.3c: if a `connect` is dropped before the connection is established, the socket of this `connect` is
/// closed. If the process of a pending `connect` is killed, the socket is closed too.
#[test]
fn a_dropped_connect_closes_its_socket() {
    if role().is_none() {
        again(a_dropped_connect_closes_its_socket, "child", 60).passed();
        return;
    }
    let rt = with(1);
    rt.block_on(async {
        drop(pair().await?);
        let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        full.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().expect("an address").into())?;
        full.listen(0)?;
        let address = full.local_addr()?;
        // These connections fill the queue of the listener. Then the system does not answer further connection
        // requests.
        let mut queued = Vec::new();
        for _ in 0..10 {
            let client = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
            client.set_nonblocking(true)?;
            let _ = client.connect(&address);
            queued.push(client);
        }
        let address = address.as_socket().expect("an address");
        let before = descriptors().len();
        for _ in 0..50 {
            let mut connect = Box::pin(TcpStream::connect(address));
            assert!(futures::poll!(&mut connect).is_pending());
            assert_eq!(descriptors().len(), before + 1);
            drop(connect);
            assert_eq!(descriptors().len(), before);
            let (ready, is_ready) = futures::channel::oneshot::channel();
            let connects = rt.spawn(async move |_: Context| -> Result<(), Exit> {
                let mut connect = Box::pin(TcpStream::connect(address));
                assert!(futures::poll!(&mut connect).is_pending());
                let _ = ready.send(());
                connect.await?;
                Ok(())
            });
            is_ready.await.expect("the process waits");
            connects.abort();
            assert!(matches!(connects.await, Err(Exit::Killed)));
            assert_eq!(descriptors().len(), before);
        }
        std::io::Result::Ok(())
    })
    .unwrap();
}

/// Returns, for each worker thread of a runtime, the number that identifies the system call in which the thread waits.
/// The name of each worker thread begins with `name`. Returns `None` if the system does not show these numbers.
fn calls_of_workers(name: &str) -> Option<Vec<i64>> {
    let mut calls = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").expect("the threads") {
        let path = task.expect("a thread").path();
        let Ok(thread) = std::fs::read_to_string(path.join("comm")) else { continue };
        if thread.starts_with(name) && !thread.contains("-mon") {
            let call = std::fs::read_to_string(path.join("syscall")).ok()?;
            // For a thread that is running, the system shows no number.
            calls.push(call.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(-1));
        }
    }
    Some(calls)
}

/// 12.1b: before the first socket, all idle workers park. After the creation of the first socket, one idle worker waits
/// in the poller, and the other workers park. If the workers never reach this state, the time limit of the child
/// process ends the test.
#[test]
#[cfg(target_arch = "x86_64")]
fn one_idle_worker_waits_in_the_poller_and_the_others_park() {
    if role().is_none() {
        again(one_idle_worker_waits_in_the_poller_and_the_others_park, "child", 60).passed();
        return;
    }
    let rt = Runtime::builder().workers(4).thread_name("idle").build().unwrap();
    let wait_for = |in_poller: usize| {
        loop {
            let Some(calls) = calls_of_workers("idle-") else {
                println!("the system does not show the system calls of a thread");
                return;
            };
            let count = |numbers: &[i64]| calls.iter().filter(|call| numbers.contains(call)).count();
            let (polls, parks) = (count(&[libc::SYS_epoll_wait, libc::SYS_epoll_pwait]), count(&[libc::SYS_futex]));
            if (polls, parks) == (in_poller, 4 - in_poller) {
                return;
            }
            std::thread::yield_now();
        }
    };
    wait_for(0);
    let listener = block_on(TcpListener::bind_in(rt.host(), "127.0.0.1:0")).unwrap();
    wait_for(1);
    // Even if a timer is set, only one worker waits in the poller. This worker waits for the timer and for the sockets.
    rt.spawn(async |ctx: Context| -> Result<(), Exit> {
        ctx.sleep(Duration::from_secs(3_600)).await;
        Ok(())
    });
    let address = listener.local_addr().unwrap();
    rt.spawn(move |ctx: Context| serve(ctx, listener));
    for _ in 0..20 {
        block_on(async { round_trip(&TcpStream::connect_in(rt.host(), address).await?, b"x").await }).unwrap();
        wait_for(1);
    }
}

/// 12.1a: when a socket becomes ready, the runtime makes no system call that arms the descriptor of the socket again.
/// The runtime also wakes no thread, and does not wake the poller. The client uses the standard library.
#[test]
fn a_ready_socket_needs_no_wake_up_and_is_not_armed_again() {
    const TRIPS: usize = 1_000;
    if role().is_some() {
        // With this threshold, the monitor never wakes up. If the monitor woke up, the number of system calls would
        // depend on the duration of the test.
        let rt = Runtime::builder().workers(1).long_step_threshold(Duration::MAX).build().unwrap();
        let listener = block_on(TcpListener::bind_in(rt.host(), "127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        rt.spawn(move |ctx: Context| serve(ctx, listener));
        let mut client = std::net::TcpStream::connect(address).unwrap();
        for trip in 0..TRIPS {
            // The client uses the system calls `send` and `recv`, and never `write`.
            client.write_all(&[trip as u8]).unwrap();
            std::io::Read::read_exact(&mut client, &mut [0; 1]).unwrap();
        }
        return;
    }
    if !has_strace() {
        return;
    }
    let mut traced = std::process::Command::new("strace");
    traced.args(["-f", "-c", "-e", "trace=epoll_ctl,futex,write", "-o", "/dev/stdout"]);
    traced.arg(std::env::current_exe().unwrap());
    traced.args(["--exact", "descriptors::a_ready_socket_needs_no_wake_up_and_is_not_armed_again", "--nocapture"]);
    traced.arg("--test-threads=1").env("PROCESSION_SUBPROCESS", "child");
    let ran = run(&mut traced, 120);
    ran.passed();
    for name in ["epoll_ctl", "futex", "write"] {
        let line = ran.stdout.lines().find(|line| line.trim_end().ends_with(&format!(" {name}"))).expect("the call");
        let calls: usize = line.split_whitespace().nth(3).expect("the number").parse().expect("a number");
        println!("{calls} calls of {name} for {TRIPS} round trips");
        assert!(calls < TRIPS / 4, "{calls} calls of {name}");
    }
}

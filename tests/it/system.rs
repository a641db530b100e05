//! Effects of the operating system on a program: threads that cannot be started, `fork`, and signals. Each test runs in
//! its own operating system process.

#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use procession::*;

use crate::subprocess::{again, role};
use crate::{shut_down, two};

/// Answers each request with the next number, from 0.
async fn counts(mut ctx: Context<Reply<u64>>) -> Result<(), Exit> {
    let mut count = 0;
    loop {
        ctx.receive().await?.send(count);
        count += 1;
    }
}

/// Calls `server` until `stop` is set. Returns the number of calls.
async fn calls(ctx: Context, server: Address<Reply<u64>>, stop: Arc<AtomicBool>) -> Result<u64, Exit> {
    let mut calls = 0;
    while !stop.load(SeqCst) {
        ctx.call(&server, |reply| reply).await?;
        ctx.sleep(Duration::from_micros(200)).await;
        calls += 1;
    }
    Ok(calls)
}

/// Sets a timer that terminates this operating system process if the process hangs. The timer works even if the test
/// harness does not know about the process. A forked child does not inherit the timer of its parent, so each child sets
/// its own timer.
fn set_alarm(seconds: u32) {
    // SAFETY: `alarm` has no precondition. `alarm` only sets a timer, and the signal of this timer ends the program by
    // default.
    unsafe { libc::alarm(seconds) };
}

/// Waits for a forked child. Returns the exit code of the child, or `None` if a signal killed the child.
fn wait_for(child: libc::pid_t) -> Option<i32> {
    let mut status = 0;
    // SAFETY: `status` is a live, exclusively borrowed integer, which `waitpid` may write.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))
}

/// Forks. The child calls `f`. The child exits with code 7 if `f` returns, and with code 8 if `f` panics. The parent
/// gets the pid of the child.
fn fork(f: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child calls only `set_alarm`, `f` and `_exit`. Each `f` of this file either does nothing or runs
    // while all other threads of the runtime are parked. Therefore no other thread of the parent holds a lock that the
    // child needs.
    match unsafe { libc::fork() } {
        0 => {
            set_alarm(60);
            let code = if catch_unwind(AssertUnwindSafe(f)).is_ok() { 7 } else { 8 };
            // SAFETY: a forked child of a multi-threaded program may call `_exit`, because `_exit` runs no destructor
            // and no exit handler.
            unsafe { libc::_exit(code) }
        }
        child => {
            assert!(child > 0, "fork failed");
            child
        }
    }
}

/// 11: a program forks while its runtime runs processes. The parent continues as before. The child may exit immediately
/// or run another program.
#[test]
fn a_running_program_may_fork() {
    if role().is_none() {
        again(a_running_program_may_fork, "", 120).passed();
        return;
    }
    let rt = two();
    let server = rt.spawn(counts);
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let (to, stop) = (server.address(), stop.clone());
            rt.spawn(|ctx: Context| calls(ctx, to, stop))
        })
        .collect();
    for _ in 0..20 {
        // Forks on a thread outside the runtime, while the workers run processes.
        let child = fork(|| {});
        assert_eq!(wait_for(child), Some(7));
        // Calls `fork` in the step of a process, on a worker.
        let child = block_on(rt.spawn(async |_: Context| Ok::<_, Exit>(fork(|| {})))).unwrap();
        assert_eq!(wait_for(child), Some(7));
        // The child runs another program.
        let status = Command::new("true").stdin(Stdio::null()).status().unwrap();
        assert!(status.success());
        // The parent continues as before.
        let before = server_count(&rt, &server);
        while server_count(&rt, &server) < before + 50 {}
    }
    stop.store(true, SeqCst);
    for caller in callers {
        assert!(block_on(caller).unwrap() > 0);
    }
    assert_eq!(shut_down(rt, Duration::from_secs(30)).left.len(), 0);
    drop(server);
}

fn server_count(rt: &Runtime, server: &JoinHandle<(), Reply<u64>>) -> u64 {
    block_on(rt.call(server.pid(), |reply| reply)).unwrap()
}

/// Returns whether each thread whose name begins with `name` sleeps in the kernel. Returns true if there is no `/proc`.
fn are_asleep(name: &str) -> bool {
    let mut tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks.all(|task| {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
        !field("Name:").starts_with(name) || field("State:").starts_with('S')
    })
}

/// 11: a forked child has no workers, so its processes do not run by themselves. If the child drops the runtime, the
/// drop returns after the drop timeout of one second.
#[test]
fn a_forked_child_has_no_workers() {
    if role().is_none() {
        again(a_forked_child_has_no_workers, "", 120).passed();
        return;
    }
    // There is no monitor, and parked workers hold no lock. Therefore the child can use its copy of the runtime.
    let parked = Arc::new(AtomicUsize::new(0));
    let (more, less) = (parked.clone(), parked.clone());
    let rt = Runtime::builder()
        .workers(2)
        .thread_name("forked")
        .long_step_threshold(Duration::MAX)
        .on_thread_park(move || {
            more.fetch_add(1, SeqCst);
        })
        .on_thread_unpark(move || {
            less.fetch_sub(1, SeqCst);
        })
        .build()
        .unwrap();
    let server = rt.spawn(counts);
    server_count(&rt, &server);
    // The hook runs before the worker parks. On a busy machine, a worker may need a long time to park after its hook.
    let mut idle = 0;
    while idle < 20 {
        thread::sleep(Duration::from_millis(1));
        idle = if parked.load(SeqCst) == 2 && are_asleep("forked") { idle + 1 } else { 0 };
    }
    let mut kept = Some(rt);
    let child = fork(|| {
        let rt = kept.take().unwrap();
        let ran = Arc::new(AtomicBool::new(false));
        let runs = ran.clone();
        let handle = rt.spawn(async move |_: Context| runs.store(true, SeqCst));
        thread::sleep(Duration::from_millis(50));
        assert!(!ran.load(SeqCst) && !handle.is_finished());
        drop(rt);
        assert!(!ran.load(SeqCst));
    });
    assert_eq!(wait_for(child), Some(7));
    let rt = kept.unwrap();
    server_count(&rt, &server);
    assert_eq!(shut_down(rt, Duration::from_secs(30)).left.len(), 0);
}

static SIGNALS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    SIGNALS.fetch_add(1, SeqCst);
}

/// Installs a handler that counts the signals SIGUSR1. The flag `SA_RESTART` is not set, so the signal interrupts
/// system calls.
fn count_signals() {
    // SAFETY: `sigaction` is plain data, and zero is a valid value of each of its fields.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_signal as *const () as usize;
    // SAFETY: `action` is live and initialised. The null pointer means that `sigaction` does not return the old action.
    // The handler only adds to an atomic, which is async-signal-safe.
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) }, 0);
}

/// 11: signals interrupt the workers and a guest thread. The interrupted threads are parked or run tasks. The
/// interrupted system calls are not restarted. No message is lost, no timer fires early, and every timer fires.
#[test]
fn signals_to_the_threads_of_a_runtime_change_nothing() {
    if role().is_none() {
        again(signals_to_the_threads_of_a_runtime_change_nothing, "", 120).passed();
        return;
    }
    count_signals();
    let threads = Arc::new(Mutex::new(Vec::new()));
    let (known, gone) = (threads.clone(), threads.clone());
    // SAFETY: `pthread_self` has no precondition; it returns the id of the calling thread.
    let own = || unsafe { libc::pthread_self() };
    let rt = Runtime::builder()
        .workers(2)
        .on_thread_start(move || known.lock().unwrap().push(own()))
        .on_thread_stop(move || gone.lock().unwrap().retain(|&thread| thread != own()))
        .build()
        .unwrap();
    threads.lock().unwrap().push(own());
    let done = Arc::new(AtomicBool::new(false));
    let (ended, aims) = (done.clone(), threads.clone());
    let shoots = thread::spawn(move || {
        while !ended.load(SeqCst) {
            // Each worker takes this lock before it exits. While the lock is held, no worker exits, so the ids stay
            // valid.
            for &thread in aims.lock().unwrap().iter() {
                // SAFETY: the thread exists. A worker removes its id under the lock before the worker exits. The thread
                // of the test exits only after it has joined this thread. SIGUSR1 has a handler, so the signal does not
                // terminate the program.
                assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
            }
            thread::sleep(Duration::from_micros(100));
        }
    });
    let server = rt.spawn(counts);
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (to, stop) = (server.address(), stop.clone());
            rt.spawn(|ctx: Context| calls(ctx, to, stop))
        })
        .collect();
    // In each round, this thread first waits either as a guest thread or outside the runtime. Then this thread waits
    // for a job of the blocking pool.
    for round in 0..50 {
        let sleeps = rt.spawn(async move |ctx: Context| {
            let (begun, time) = (ctx.now(), Duration::from_millis(round % 7));
            ctx.sleep(time).await;
            Ok::<_, Exit>(ctx.now() - begun >= time)
        });
        let on_time = if round % 2 == 0 { rt.block_on(sleeps) } else { block_on(sleeps) };
        assert!(on_time.unwrap(), "a timer fired early");
        assert_eq!(block_on(rt.spawn_blocking(move || round)).unwrap(), round);
    }
    // Waits until the threads have received many signals.
    while SIGNALS.load(SeqCst) < 1_000 {
        thread::yield_now();
    }
    stop.store(true, SeqCst);
    let calls: u64 = callers.into_iter().map(|caller| block_on(caller).unwrap()).sum();
    assert_eq!(server_count(&rt, &server), calls);
    drop(server);
    assert_eq!(shut_down(rt, Duration::from_secs(30)).left.len(), 0);
    done.store(true, SeqCst);
    shoots.join().unwrap();
}

/// 11: a program is stopped by a signal and then continued. The continued program works as before. If a timer becomes
/// due while the program is stopped, the timer fires exactly once. An interval that skips missed ticks does not fire in
/// a burst.
#[test]
fn a_program_continues_after_a_signal_has_stopped_it() {
    if role().is_none() {
        again(a_program_continues_after_a_signal_has_stopped_it, "", 120).passed();
        return;
    }
    let rt = two();
    let server = rt.spawn(counts);
    let stop = Arc::new(AtomicBool::new(false));
    let (to, stopped) = (server.address(), stop.clone());
    let caller = rt.spawn(|ctx: Context| calls(ctx, to, stopped));
    let (ticks, over) = (Arc::new(AtomicU64::new(0)), stop.clone());
    let counted = ticks.clone();
    let interval = rt.spawn(async move |ctx: Context| {
        let (begun, every) = (ctx.now(), Duration::from_millis(20));
        let mut interval = ctx.interval(every).missed_tick_behavior(MissedTickBehavior::Skip);
        while !over.load(SeqCst) {
            interval.tick().await;
            counted.fetch_add(1, SeqCst);
        }
        // Returns the number of ticks that were due until now, including the skipped ticks. The interval of this
        // process has returned fewer ticks. While the program is stopped for 200 ms, ten ticks are due, and the
        // interval skips at least nine of these ticks.
        Ok::<_, Exit>((ctx.now() - begun).as_millis() as u64 / 20 + 1)
    });
    let sleeps: Vec<_> = (0..50)
        .map(|n| {
            rt.spawn(async move |ctx: Context| {
                let (begun, time) = (ctx.now(), Duration::from_millis(10 * n));
                ctx.sleep(time).await;
                Ok::<_, Exit>(ctx.now() - begun >= time)
            })
        })
        .collect();
    // The interval begins before the first stop, so the interval skips ticks in each of the three stops.
    while ticks.load(SeqCst) == 0 {
        thread::yield_now();
    }
    for _ in 0..3 {
        let own = std::process::id();
        let script = format!("kill -STOP {own}; sleep 0.2; kill -CONT {own}");
        let mut shell = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).spawn().unwrap();
        assert!(shell.wait().unwrap().success());
    }
    for sleep in sleeps {
        assert!(block_on(sleep).unwrap(), "a timer fired early");
    }
    let before = server_count(&rt, &server);
    while server_count(&rt, &server) < before + 50 {}
    stop.store(true, SeqCst);
    assert!(block_on(caller).unwrap() > 0);
    let most = block_on(interval).unwrap();
    // Each stop may be shorter than 200 ms by one tick, because the program stops shortly after the signal is sent.
    assert!(ticks.load(SeqCst) + 3 * 8 <= most, "{} ticks in the time of {most}", ticks.load(SeqCst));
    drop(server);
    assert_eq!(shut_down(rt, Duration::from_secs(30)).left.len(), 0);
}

const MIB: usize = 1 << 20;

/// Limits the address space of this program to its present size plus `more` bytes. Returns the previous limit.
#[cfg(target_os = "linux")]
fn limit_memory(more: usize) -> libc::rlimit {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = pages.split(' ').next().unwrap().parse().unwrap();
    let mut former = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `former` is a live, exclusively borrowed `rlimit`, which `getrlimit` writes.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut former) }, 0);
    // SAFETY: `sysconf` has no precondition, and `_SC_PAGESIZE` is a valid name.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let limit = libc::rlimit { rlim_cur: (pages * page + more) as libc::rlim_t, rlim_max: former.rlim_max };
    // SAFETY: `limit` is a live, initialised `rlimit`, which `setrlimit` only reads. Allocations beyond the limit fail,
    // as the test intends.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    former
}

#[cfg(target_os = "linux")]
fn unlimit_memory(former: libc::rlimit) {
    // SAFETY: `former` is a live, initialised `rlimit`, which `setrlimit` only reads.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &former) }, 0);
}

/// Returns a builder whose workers have very large stacks, so that only a few threads fit into memory. Also returns a
/// reference to a value that the builder's handler holds.
#[cfg(target_os = "linux")]
fn large_stacks(workers: usize, threads: &Arc<[AtomicUsize; 2]>) -> (Builder, Arc<()>) {
    struct Ask;
    impl Command for Ask {
        type Reply = ();
    }
    use procession::Command;
    let held = Arc::new(());
    let (holds, started, stopped) = (held.clone(), threads.clone(), threads.clone());
    let builder = Runtime::builder()
        .workers(workers)
        .stack_size(512 * MIB)
        .on_thread_start(move || {
            started[0].fetch_add(1, SeqCst);
        })
        .on_thread_stop(move || {
            stopped[1].fetch_add(1, SeqCst);
        })
        .handle(move |_: Ask| {
            let _ = &holds;
        });
    (builder, held)
}

/// 4.1a, 11: if a worker thread cannot be started, the build fails. When the build returns, the threads that were
/// already started have exited, and every value of the builder is dropped. After the failed build, a smaller runtime
/// can be built.
#[cfg(target_os = "linux")]
#[test]
fn a_failed_build_of_a_runtime_stops_all_started_threads_and_drops_all_values() {
    let Some(role) = role() else {
        // The memory limit allows no thread, one thread, or three threads.
        for fit in ["0", "1", "3"] {
            again(a_failed_build_of_a_runtime_stops_all_started_threads_and_drops_all_values, fit, 120).passed();
        }
        return;
    };
    let fit = role.parse().unwrap();
    {
        let threads = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let (builder, held) = large_stacks(8, &threads);
        let former = limit_memory(fit * 512 * MIB + 256 * MIB);
        let error = builder.build().unwrap_err();
        unlimit_memory(former);
        assert!(matches!(error, BuildError::Io(_)), "{error}");
        let [started, stopped] = [&threads[0], &threads[1]].map(|count| count.load(SeqCst));
        assert_eq!((started, stopped, Arc::strong_count(&held)), (fit, fit, 1));
    }
    let rt = two();
    assert_eq!(block_on(rt.spawn(async |_: Context| Ok::<_, Exit>(1))).unwrap(), 1);
}

/// 4.1a: a runtime should get more workers, but no thread can be started. The runtime continues with its present
/// threads. When threads can be started again, the runtime starts more workers.
#[cfg(target_os = "linux")]
#[test]
fn a_runtime_that_cannot_start_more_threads_continues_to_run_processes() {
    if role().is_none() {
        again(a_runtime_that_cannot_start_more_threads_continues_to_run_processes, "", 120).passed();
        return;
    }
    let threads = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let (builder, held) = large_stacks(1, &threads);
    let rt = builder.build().unwrap();
    let work = |rt: &Runtime| {
        let handles: Vec<_> = (0..100).map(|n| rt.spawn(async move |_: Context| Ok::<_, Exit>(n))).collect();
        handles.into_iter().map(|handle| block_on(handle).unwrap()).sum::<u64>()
    };
    // The call of `work` ensures that the thread of the monitor has started before the limit is set.
    assert_eq!(work(&rt), 4950);
    let former = limit_memory(256 * MIB);
    rt.set_workers(8);
    assert_eq!(work(&rt), 4950);
    assert_eq!(threads[0].load(SeqCst), 1, "no thread fits");
    unlimit_memory(former);
    rt.set_workers(4);
    assert_eq!(work(&rt), 4950);
    while threads[0].load(SeqCst) < 4 {
        thread::yield_now();
    }
    assert_eq!(shut_down(rt, Duration::from_secs(30)).left.len(), 0);
    assert_eq!((threads[1].load(SeqCst), Arc::strong_count(&held)), (4, 1));
}

/// 11: if no thread can be started for a blocking closure, the closure is refused and does not run. The failure names
/// the reason.
#[cfg(target_os = "linux")]
#[test]
fn blocking_work_is_refused_if_no_thread_can_be_started() {
    if role().is_none() {
        again(blocking_work_is_refused_if_no_thread_can_be_started, "", 120).passed();
        return;
    }
    // Each worker thread allocates its signal stack before it calls the start hook. So after both hooks have run, no
    // worker allocates memory for a signal stack.
    let started = Arc::new(AtomicUsize::new(0));
    let hook = Arc::clone(&started);
    let rt = Runtime::builder().workers(2).on_thread_start(move || _ = hook.fetch_add(1, SeqCst)).build().unwrap();
    while started.load(SeqCst) < 2 {
        thread::yield_now();
    }
    // The limit leaves less memory than the stack of a thread needs.
    let former = limit_memory(MIB);
    let refused = block_on(rt.spawn_blocking(|| 1));
    unlimit_memory(former);
    let failure = refused.unwrap_err();
    assert!(failure.to_string().contains("thread"), "{failure}");
    assert_eq!(block_on(rt.spawn_blocking(|| 2)).unwrap(), 2);
}

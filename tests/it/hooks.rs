//! Section 4 of the specification: hooks that worker threads call when they start, stop, park and unpark. The file also
//! tests the pinning of workers to cores.

use std::panic::panic_any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use procession::observe::{Observer, ProcessState, Transition, WorkerState};
use procession::*;

use crate::{shut_down, within};

/// Counts the calls of each hook.
#[derive(Default)]
struct Calls {
    start: AtomicU64,
    stop: AtomicU64,
    park: AtomicU64,
    unpark: AtomicU64,
}

/// Returns the number in the name of the current thread, if the thread is a worker with the default name.
fn worker_number() -> Option<u32> {
    thread::current().name()?.strip_prefix("procession-")?.parse().ok()
}

fn count(calls: &Arc<Calls>, which: fn(&Calls) -> &AtomicU64) -> impl Fn() + Send + Sync + 'static {
    let calls = Arc::clone(calls);
    move || {
        assert!(worker_number().is_some(), "on a worker's thread");
        which(&calls).fetch_add(1, Ordering::SeqCst);
    }
}

fn counted(builder: Builder, calls: &Arc<Calls>) -> Builder {
    builder
        .on_thread_start(count(calls, |calls| &calls.start))
        .on_thread_stop(count(calls, |calls| &calls.stop))
        .on_thread_park(count(calls, |calls| &calls.park))
        .on_thread_unpark(count(calls, |calls| &calls.unpark))
}

fn some_work(rt: &Runtime) {
    let all: Vec<_> = (0..200_u64).map(|n| rt.spawn(async move |_: Context| Ok::<_, Exit>(n))).collect();
    let sum: u64 = all.into_iter().map(|one| block_on(one).expect("it ends")).sum();
    assert_eq!(sum, 19_900);
}

/// 4.1a, 4.5a: each worker thread calls its start hook and its stop hook once, even if the number of workers changes.
/// After each call of the park hook, the thread calls the unpark hook.
#[test]
fn every_thread_calls_its_start_and_stop_hooks_once() {
    within(60, || {
        let calls = Arc::new(Calls::default());
        let rt = counted(Runtime::builder().workers(3), &calls).build().unwrap();
        for workers in [1, 4, 0, 2] {
            rt.set_workers(workers);
            if workers != 0 {
                some_work(&rt);
            }
        }
        drop(rt);
        let [start, stop, park, unpark] =
            [&calls.start, &calls.stop, &calls.park, &calls.unpark].map(|calls| calls.load(Ordering::SeqCst));
        assert!(start >= 3 && start == stop, "{start} started, {stop} stopped");
        assert_eq!(park, unpark);
    });
}

/// 4.1a: Linux stores only 15 bytes of the name of a thread. The default names of worker threads and of blocking-pool
/// threads have at most 15 bytes, so all tools show the whole names.
#[cfg(target_os = "linux")]
#[test]
fn the_default_names_of_threads_have_at_most_15_bytes() {
    /// Returns the name of the current thread, and the name that the system has stored.
    fn names() -> (String, String) {
        let stored = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
        (thread::current().name().unwrap().to_owned(), stored.trim_end().to_owned())
    }
    within(60, || {
        let (tell, told) = mpsc::channel();
        let rt = Runtime::builder().workers(12).on_thread_start(move || tell.send(names()).unwrap()).build().unwrap();
        let mut workers: Vec<_> = (0..12).map(|_| told.recv().unwrap()).collect();
        workers.sort_by_key(|(name, _)| name[11..].parse::<u32>().unwrap());
        for (number, (name, stored)) in workers.into_iter().enumerate() {
            assert_eq!((&name, &stored), (&format!("procession-{number}"), &name));
        }
        let (name, stored) = block_on(rt.spawn_blocking(names)).unwrap();
        assert_eq!((&*name, &*stored), ("procession-pool", "procession-pool"));
    });
}

/// 4.8a: if a hook panics, the runtime continues as if the hook had returned. The drop of the panic payload may panic
/// too, without any effect.
#[test]
fn a_panic_in_a_hook_has_no_effect() {
    struct Grudge;
    impl Drop for Grudge {
        fn drop(&mut self) {
            panic!("once more");
        }
    }
    within(60, || {
        let rt = Runtime::builder()
            .workers(2)
            .on_thread_start(|| panic_any(Grudge))
            .on_thread_stop(|| panic!("no stop"))
            .on_thread_park(|| panic_any(Grudge))
            .on_thread_unpark(|| panic!("no unpark"))
            .build()
            .unwrap();
        (0..20).for_each(|_| some_work(&rt));
        rt.set_workers(1);
        some_work(&rt);
        assert!(shut_down(rt, Duration::from_secs(10)).left.is_empty());
    });
}

/// 4.4a: a hook may use the runtime that calls the hook. The worker holds no lock during the call, and no wake-up is
/// lost.
#[test]
fn hooks_may_use_their_runtime() {
    within(60, || {
        let host: Arc<Mutex<Option<Host>>> = Arc::default();
        let ran = Arc::new(AtomicU64::new(0));
        let hook = |left: u64| {
            let (host, ran, left) = (host.clone(), ran.clone(), AtomicU64::new(left));
            move || {
                let Some(host) = host.lock().unwrap().clone() else { return };
                if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
                    let ran = ran.clone();
                    let _ = host.spawn(async move |_: Context| {
                        ran.fetch_add(1, Ordering::SeqCst);
                    });
                }
            }
        };
        let builder = Runtime::builder().workers(1).on_thread_start(hook(1)).on_thread_stop(hook(1));
        let rt = builder.on_thread_park(hook(100)).on_thread_unpark(hook(100)).build().unwrap();
        *host.lock().unwrap() = Some(rt.host().clone());
        // The call of `some_work` wakes the worker. After this call, the test itself spawns no process. Instead, the
        // park hook and the unpark hook spawn one process per call. Each of the two hooks spawns at most 100 processes.
        some_work(&rt);
        while ran.load(Ordering::SeqCst) < 200 {
            thread::yield_now();
        }
        // The runtime owns its hooks, and the hooks own the host. These references are part of a reference cycle. To
        // break the cycle, the test takes the host out of the hooks.
        let own = host.lock().unwrap().take();
        drop(own);
    });
}

/// 4.4a: a park hook or an unpark hook blocks its worker. While one worker is blocked, the other worker runs all tasks
/// and fires the timers.
#[test]
fn a_blocking_hook_delays_only_its_worker() {
    for blocks_park in [true, false] {
        within(60, move || {
            let blocks = Arc::new(AtomicBool::new(false));
            let (entered, is_entered) = mpsc::channel();
            let (release, gate) = mpsc::channel::<()>();
            let (gate, blocking) = (Mutex::new(gate), blocks.clone());
            let hook = move || {
                if blocking.swap(false, Ordering::SeqCst) {
                    entered.send(()).unwrap();
                    let _ = gate.lock().unwrap().recv();
                }
            };
            // The monitor is off, so no thread replaces the blocked worker.
            let builder = Runtime::builder().workers(2).long_step_threshold(Duration::MAX);
            let rt = if blocks_park { builder.on_thread_park(hook) } else { builder.on_thread_unpark(hook) };
            let rt = rt.build().unwrap();
            for _ in 0..20 {
                while rt.metrics().workers_in(WorkerState::Parked) != 2 {
                    thread::yield_now();
                }
                blocks.store(true, Ordering::SeqCst);
                rt.spawn(async |_: Context| ());
                is_entered.recv().unwrap();
                let sleeps = rt.spawn(async |ctx: Context| ctx.sleep(Duration::from_millis(1)).await);
                let others: Vec<_> = (0..3).map(|_| rt.spawn(async |_: Context| ())).collect();
                for handle in others.into_iter().chain([sleeps]) {
                    block_on(handle).unwrap();
                }
                release.send(()).unwrap();
            }
        });
    }
}

/// 4.10b: if workers are pinned to cores, the workers run only on these cores. If a core does not exist, `build`
/// returns an error.
#[cfg(feature = "affinity")]
#[test]
fn workers_are_pinned_to_cores() {
    /// Returns the cores on which this thread may run, in the format of Linux. On systems other than Linux, the text
    /// is empty.
    fn cores() -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        list.unwrap_or_default().trim().to_owned()
    }
    within(60, || {
        let of_worker = |rt: &Runtime| block_on(rt.spawn(async |_: Context| Ok::<_, Exit>(cores()))).unwrap();
        let free = of_worker(&Runtime::builder().workers(1).build().unwrap());
        let pinned = of_worker(&Runtime::builder().workers(1).pin_workers(true).build().unwrap());
        assert!(matches!(Runtime::builder().pin_workers_to([1 << 20]).build(), Err(BuildError::Invalid(_))));
        if cfg!(target_os = "linux") {
            let first: usize = pinned.parse().unwrap_or_else(|_| panic!("one core, not {pinned}"));
            assert_eq!(of_worker(&Runtime::builder().workers(1).pin_workers_to([first]).build().unwrap()), pinned);
            let rt = Runtime::builder().workers(4).pin_workers(true).build().unwrap();
            (0..20).for_each(|_| assert!(of_worker(&rt).parse::<usize>().is_ok()));
        }
        assert_eq!(of_worker(&Runtime::builder().workers(1).pin_workers(false).build().unwrap()), free);
    });
}

/// Observer that calls a function when a process reaches a state.
struct Acts<F>(ProcessState, Mutex<Option<F>>);

impl<F: FnOnce(Pid) + Send + 'static> Observer for Acts<F> {
    fn transition(&self, transition: &Transition) {
        if transition.to == self.0
            && let Some(act) = self.1.lock().unwrap().take()
        {
            act(transition.pid);
        }
    }
}

/// 5.2a: at the end of a turn, an observer may complete a command of the process or cancel the process. The process
/// receives the answer or the cancellation.
#[test]
fn an_observer_can_answer_a_command_or_cancel_a_process() {
    struct Ask;
    impl Command for Ask {
        type Reply = u64;
    }
    type Slot = Arc<Mutex<Option<Completion<u64>>>>;
    let slot = Slot::default();
    let answers = {
        let slot = Arc::clone(&slot);
        move |_: Pid| slot.lock().unwrap().take().unwrap().complete(7)
    };
    let rt = Runtime::builder()
        .workers(0)
        .handler(move |_: Ask, completion: Completion<u64>| *slot.lock().unwrap() = Some(completion))
        .observer(Acts(ProcessState::Blocked, Mutex::new(Some(answers))))
        .build()
        .unwrap();
    assert_eq!(rt.block_on(rt.spawn(async |ctx: Context| ctx.perform(Ask).await)).unwrap(), 7);

    let host = Arc::new(Mutex::new(None::<Host>));
    let cancels = {
        let host = Arc::clone(&host);
        move |pid| host.lock().unwrap().take().unwrap().cancel(pid, "idle", Duration::MAX).unwrap()
    };
    let observer = Acts(ProcessState::Idle, Mutex::new(Some(cancels)));
    let rt = Runtime::builder().workers(0).observer(observer).build().unwrap();
    *host.lock().unwrap() = Some(rt.host().clone());
    let process = rt.spawn(async |mut ctx: Context| ctx.receive().await.map(drop));
    assert_eq!(rt.block_on(process), Err(Exit::Cancelled("idle".into())));
}

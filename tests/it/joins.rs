//! Section 6.1 of the specification: join handles, and sets of processes that are joined together.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use procession::{Address, Context, Exit, Host, JoinHandle, JoinSet, Runtime, Simulation};

use crate::{everywhere, within};

const LONG: Duration = Duration::from_secs(3600);

/// Body that returns the value of the first message.
async fn echo(mut ctx: Context<u8>) -> Result<u8, Exit> {
    ctx.receive().await
}

/// Returns a set of three processes that run [`echo`], and the addresses of these processes.
fn echoes(host: &Host) -> (JoinSet<u8>, [Address<u8>; 3]) {
    let mut set = host.join_set();
    let addresses = [0; 3].map(|_| set.spawn(echo));
    (set, addresses)
}

/// 6.1d: if a resolved join handle is polled again, the poll panics. The panic message names the process.
#[test]
fn a_poll_of_a_resolved_join_handle_panics() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let mut handle = rt.spawn(async |_: Context| ());
    rt.block_on(&mut handle).unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| (&mut handle).now_or_never())).unwrap_err();
    let expected = format!(
        "the join handle of process {} was polled after it had resolved; poll it once to its end",
        handle.pid()
    );
    assert_eq!(panic.downcast_ref::<String>(), Some(&expected));
}

/// 6.1d: dropping the join handle detaches the process. The detached process continues to run.
#[test]
fn a_process_continues_after_its_handle_is_dropped() {
    everywhere(async |host| {
        let address = host.spawn(echo).address();
        let exited = address.exited();
        address.send(1).unwrap();
        assert!(matches!(exited.await, Exit::Normal));
    });
}

/// 6.1d: `join_next` waits for the first process of the set that exits, and removes this process from the set.
/// `join_next` returns the result, and `join_next_with_pid` also returns the pid.
#[test]
fn the_method_join_next_waits_for_the_first_exit_in_a_set() {
    everywhere(async |host| {
        let (mut set, addresses) = echoes(&host);
        assert!(set.join_next().now_or_never().is_none());
        for (left, one) in [(2, 1), (1, 2), (0, 0)] {
            addresses[one].send(one as u8).unwrap();
            let (pid, result) = set.join_next_with_pid().await.unwrap();
            assert_eq!((pid, result.unwrap(), set.len()), (addresses[one].pid(), one as u8, left));
        }
        assert!(set.join_next().await.is_none() && set.is_empty());
    });
}

/// 6.1d: `join_all` returns the results of all processes, in the order of the spawns. The results include failures. If
/// the future of `join_all` is dropped, no result is lost.
#[test]
fn the_method_join_all_waits_for_all_processes_of_a_set() {
    everywhere(async |host| {
        let (mut set, addresses) = echoes(&host);
        set.insert(host.spawn(async |_: Context<String>| Err(Exit::failed("no luck"))));
        for one in [2, 0] {
            addresses[one].send(one as u8).unwrap();
            addresses[one].exited().await;
            assert!(set.join_all().now_or_never().is_none());
        }
        addresses[1].send(1).unwrap();
        let all: Vec<_> = set.join_all().await.into_iter().map(|one| one.map_err(|exit| exit.to_string())).collect();
        assert_eq!(all, [Ok(0), Ok(1), Ok(2), Err("failed: no luck".into())]);
        assert!(set.is_empty());
    });
}

/// 6.1d: if the runtime refuses to spawn a process of a set, the set treats this process as an exited process.
#[test]
fn a_join_of_a_refused_spawn_returns_the_refusal_as_an_exit() {
    let rt = Runtime::builder().workers(0).max_processes(1).build().unwrap();
    let mut set = rt.join_set();
    let first = set.spawn(echo);
    set.spawn(echo);
    assert!(matches!(rt.block_on(set.join_next()), Some(Err(Exit::Refused(_)))));
    first.send(1).unwrap();
    assert_eq!(rt.block_on(set.join_next()).unwrap().unwrap(), 1);
}

/// 6.1d, 6.2d: a set can cancel or kill all its processes. These processes stay in the set until they are joined.
#[test]
fn a_set_can_cancel_or_kill_its_processes() {
    everywhere(async |host| {
        let (mut set, _) = echoes(&host);
        set.cancel_all("enough", LONG);
        let is_cancelled = |result| matches!(result, Err(Exit::Cancelled(reason)) if reason == "enough");
        assert_eq!(set.len(), 3);
        assert!(set.join_all().await.into_iter().all(is_cancelled));

        let (mut set, _) = echoes(&host);
        set.abort_all();
        assert_eq!(set.len(), 3);
        assert!(set.join_all().await.into_iter().all(|result| matches!(result, Err(Exit::Killed))));
    });
}

/// 6.1d: dropping a set kills the processes of the set. Detached processes continue to run.
#[test]
fn a_dropped_set_kills_its_processes() {
    everywhere(async |host| {
        let (set, [first, ..]) = echoes(&host);
        let exited = first.exited();
        drop(set);
        assert!(matches!(exited.await, Exit::Killed));

        let (mut set, [first, ..]) = echoes(&host);
        set.detach_all();
        assert!(set.is_empty());
        drop(set);
        let exited = first.exited();
        first.send(1).unwrap();
        assert!(matches!(exited.await, Exit::Normal));
    });
}

/// 6.1d, 6.6a: if a process owns a set, the processes of the set inherit the values of the owner. When the owner exits,
/// the processes of the set are killed.
#[test]
fn the_processes_of_a_set_inherit_values_and_are_killed_with_the_owner() {
    within(60, || {
        for seed in 0..10 {
            let mut simulation = Simulation::new(seed);
            let host = simulation.host().clone();
            let parent = host.process().value(7_u8).spawn(async |ctx: Context<()>| {
                let mut set = ctx.join_set();
                set.spawn(async |ctx: Context| Ok::<_, Exit>(*ctx.value::<u8>().ok_or_else(|| Exit::failed("none"))?));
                let value = set.join_next().await.expect("one process")?;
                let left = set.spawn(echo);
                Ok::<_, Exit>((value, left))
            });
            let (value, left) = simulation.run(parent.unwrap()).unwrap();
            assert_eq!(value, 7);
            assert!(matches!(simulation.run(left.exited()), Exit::Killed | Exit::NoProcess));
        }
    });
}

/// 6.1d: a process adds its own join handle to a set. A direct await of this handle returns an error. `join_next`
/// returns the same error for this handle, and the process is not killed.
#[test]
fn a_process_with_its_own_handle_in_a_join_set_does_not_wait_forever() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let slot = Arc::new(Mutex::new(None::<JoinHandle<()>>));
    let own = Arc::clone(&slot);
    let handle = rt.spawn(async move |ctx: Context| -> Result<(), Exit> {
        let mut set = ctx.join_set();
        set.insert(own.lock().unwrap().take().expect("the test has stored the handle"));
        let joined = set.join_next().await.expect("the set is not empty");
        let message = joined.unwrap_err().to_string();
        assert!(message.starts_with(&format!("failed: process {} cannot join itself; ", ctx.pid())), "{message}");
        assert!(set.is_empty());
        ctx.yield_now().await;
        Ok(())
    });
    let exited = handle.exited();
    *slot.lock().unwrap() = Some(handle);
    assert_eq!(rt.block_on(exited).to_string(), Exit::Normal.to_string());
}

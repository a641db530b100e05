//! Unix signals. A test that raises a signal runs in its own operating system process.

#![allow(unsafe_code)]

use std::sync::mpsc;

use futures::StreamExt;
use procession::observe::{FlightRecorder, FlightSummary};
use procession::signal::unix::{Signal, SignalKind, signal, signal_in};
use procession::signal::{ctrl_c, ctrl_c_in};
use procession::*;

use crate::subprocess::{again, role};
use crate::with;

fn raise(kind: SignalKind) {
    // SAFETY: `raise` has no precondition. The program has a handler for the signal.
    assert_eq!(unsafe { libc::raise(kind.as_raw()) }, 0);
}

/// 12.2d: `ctrl_c` completes when the program receives SIGINT.
#[test]
fn a_process_can_wait_for_ctrl_c() {
    if role().is_none() {
        again(a_process_can_wait_for_ctrl_c, "child", 60).passed();
        return;
    }
    let rt = with(1);
    let (ready, is_ready) = mpsc::channel();
    let waits = rt.spawn(async move |_: Context| -> Result<(), Exit> {
        let mut arrival = Box::pin(ctrl_c());
        let first = futures::poll!(&mut arrival);
        assert!(first.is_pending());
        ready.send(()).expect("the test waits");
        Ok(arrival.await?)
    });
    is_ready.recv().unwrap();
    raise(SignalKind::INTERRUPT);
    futures::executor::block_on(waits).unwrap();
}

/// 12.2d: a thread without a runtime waits for Ctrl-C on the runtime of a host.
#[test]
fn a_thread_without_a_runtime_can_wait_for_ctrl_c() {
    if role().is_none() {
        again(a_thread_without_a_runtime_can_wait_for_ctrl_c, "child", 60).passed();
        return;
    }
    let rt = with(1);
    futures::executor::block_on(async {
        let mut arrival = Box::pin(ctrl_c_in(rt.host()));
        assert!(futures::poll!(&mut arrival).is_pending());
        raise(SignalKind::INTERRUPT);
        arrival.await
    })
    .unwrap();
}

/// 12.2d: each `Signal` value receives each signal of its kind. If many signals arrive in a short time, a `Signal`
/// value may report these signals as one signal. A dropped `recv` loses no signal.
#[test]
fn each_signal_value_receives_each_signal() {
    if role().is_none() {
        again(each_signal_value_receives_each_signal, "child", 60).passed();
        return;
    }
    let rt = with(2);
    rt.block_on(async {
        let mut one = signal(SignalKind::USER_DEFINED1)?;
        let mut other = signal_in(rt.host(), SignalKind::from_raw(libc::SIGUSR1))?;
        let mut third: Signal = signal(SignalKind::USER_DEFINED2)?;
        for _ in 0..100 {
            assert!(crate::poll_once(one.recv()).is_none());
            raise(SignalKind::USER_DEFINED1);
            other.next().await.expect("the runtime has not ended");
            one.recv().await?;
        }
        // The socket of the signal handler cannot hold one byte for each of these signals.
        for _ in 0..10_000 {
            raise(SignalKind::USER_DEFINED1);
        }
        one.recv().await?;
        other.recv().await?;
        assert!(crate::poll_once(one.recv()).is_none(), "the signals were merged");
        assert!(crate::poll_once(third.recv()).is_none());
        raise(SignalKind::USER_DEFINED2);
        third.recv().await?;
        drop(one);
        raise(SignalKind::USER_DEFINED1);
        other.recv().await?;
        drop(other);
        // The handler stays installed, so this signal does not terminate the program.
        raise(SignalKind::USER_DEFINED1);
        std::io::Result::Ok(())
    })
    .unwrap();
}

/// 12.2d: between `fork` and `exec`, a child process shares the socket of the signal handler. If only the child
/// receives a signal, the parent does not report this signal.
#[test]
fn the_parent_does_not_report_a_signal_of_a_child_process() {
    use std::os::unix::process::CommandExt;

    if role().is_none() {
        again(the_parent_does_not_report_a_signal_of_a_child_process, "child", 60).passed();
        return;
    }
    with(1)
        .block_on(async {
            let mut arrivals = signal(SignalKind::USER_DEFINED1)?;
            let mut child = std::process::Command::new("true");
            let raise_in_child = || {
                raise(SignalKind::USER_DEFINED1);
                Ok(())
            };
            // SAFETY: between `fork` and `exec`, the closure calls only `raise`, which is async-signal-safe.
            unsafe { child.pre_exec(raise_in_child) };
            assert!(child.status()?.success());
            // The first poll of a new `Signal` reads the socket. So this poll sees the byte of the child.
            assert!(crate::poll_once(arrivals.recv()).is_none());
            raise(SignalKind::USER_DEFINED1);
            arrivals.recv().await?;
            assert!(child.status()?.success());
            assert!(crate::poll_once(arrivals.next()).is_none());
            raise(SignalKind::USER_DEFINED1);
            arrivals.next().await.expect("the runtime has not ended");
            std::io::Result::Ok(())
        })
        .unwrap();
}

/// 12.2d: for a signal that no program can handle, `signal` returns an error.
#[test]
fn a_signal_that_no_program_can_handle_is_refused() {
    with(0).block_on(async {
        for number in [libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV, 0, -1, 1000, i32::MAX] {
            let error = signal(SignalKind::from_raw(number)).unwrap_err();
            println!("{number}: {error}");
        }
    });
}

/// 12.4c: when the runtime ends, a pending wait for a signal fails, and the stream of signals ends.
#[test]
fn the_end_of_the_runtime_ends_a_wait_for_a_signal() {
    crate::within(60, || {
        let rt = with(1);
        let mut arrivals = signal_in(rt.host(), SignalKind::WINDOW_CHANGE).unwrap();
        let (ready, is_ready) = mpsc::channel();
        let waits = std::thread::spawn(move || {
            futures::executor::block_on(async {
                let mut recv = Box::pin(arrivals.recv());
                assert!(futures::poll!(&mut recv).is_pending());
                ready.send(()).unwrap();
                (&mut recv).await.unwrap_err();
                drop(recv);
                assert!(arrivals.next().await.is_none());
            });
        });
        is_ready.recv().unwrap();
        drop(rt);
        waits.join().unwrap();
    });
}

/// Folder for flight records, which is removed at the end of the test.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("procession-signals-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Receives the path of each file that a flight recorder has written.
type Written = mpsc::Receiver<std::path::PathBuf>;

/// Returns a flight recorder that writes to the folder, and the receiver of the paths.
fn recorder(folder: &Folder) -> (FlightRecorder, Written) {
    let (tell, written) = mpsc::channel();
    let on_written = move |path: &std::path::Path, result: &std::io::Result<FlightSummary>| {
        assert!(result.as_ref().unwrap().events > 0);
        tell.send(path.to_owned()).unwrap();
    };
    (FlightRecorder::new().folder(&folder.0).on_written(on_written), written)
}

fn next(written: &Written) -> String {
    let limit = std::time::Duration::from_secs(60) * crate::patience();
    let path = written.recv_timeout(limit).expect("the file is written in time");
    assert!(std::fs::metadata(&path).unwrap().len() > 100);
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

/// 9.3f: a signal makes the runtime write a flight record, even if the only worker of the runtime is blocked. Each
/// further signal writes a further file. After the end of the runtime, the signal has no effect.
#[test]
fn a_signal_writes_a_flight_record() {
    if role().is_none() {
        again(a_signal_writes_a_flight_record, "child", 120).passed();
        return;
    }
    let folder = Folder::new();
    let (recorder, written) = recorder(&folder);
    let recorder = recorder.write_on_signal(SignalKind::USER_DEFINED1).write_on_signal(SignalKind::USER_DEFINED2);
    let rt =
        Runtime::builder().workers(1).node(9).max_replacement_threads(0).flight_recorder(recorder).build().unwrap();
    let ((begun, has_begun), (release, is_released)) = (mpsc::channel(), mpsc::channel::<()>());
    let blocked = rt.spawn(async move |_: Context| {
        begun.send(()).unwrap();
        is_released.recv().unwrap();
    });
    has_begun.recv().unwrap();
    for (kind, number) in
        [(SignalKind::USER_DEFINED1, 1), (SignalKind::USER_DEFINED1, 2), (SignalKind::USER_DEFINED2, 3)]
    {
        raise(kind);
        let name = next(&written);
        assert_eq!(name, format!("flight-{}-9-{number}-signal.pftrace", std::process::id()));
    }
    release.send(()).unwrap();
    futures::executor::block_on(blocked).unwrap();
    drop(rt);
    raise(SignalKind::USER_DEFINED1);
    // The drop of the runtime has also dropped the function that sends the paths, so no further path can arrive.
    assert!(written.recv().is_err());
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 3);
}

/// 9.3f: two runtimes and a `Signal` receive the same signal. The maximum number of files for signals does not include
/// the files for panics.
#[test]
fn each_runtime_receives_the_signal_of_its_flight_recorder() {
    if role().is_none() {
        again(each_runtime_receives_the_signal_of_its_flight_recorder, "child", 120).passed();
        return;
    }
    let folder = Folder::new();
    let runtimes = [3, 4].map(|node| {
        let (recorder, written) = recorder(&folder);
        let recorder = recorder.write_on_panic(true).max_files(1).write_on_signal(SignalKind::HANGUP);
        let builder = Runtime::builder().workers(0).node(node).on_crash(|_| ()).flight_recorder(recorder);
        (builder.build().unwrap(), written)
    });
    let (first, _) = &runtimes[0];
    let mut other = signal_in(first.host(), SignalKind::HANGUP).unwrap();
    for (rt, written) in &runtimes {
        rt.block_on(rt.spawn(async |_: Context| panic!("on purpose"))).unwrap_err();
        assert!(next(written).ends_with("-1-panic.pftrace"));
    }
    raise(SignalKind::HANGUP);
    for (rt, written) in &runtimes {
        assert!(next(written).ends_with(&format!("-{}-1-signal.pftrace", rt.node())));
    }
    first.block_on(other.recv()).unwrap();
}

/// 9.3f: for a signal that no program can handle, `build` returns an error.
#[test]
fn a_flight_recorder_with_an_impossible_signal_is_refused() {
    for number in [libc::SIGKILL, libc::SIGSEGV, 0, -1, i32::MAX] {
        let recorder = FlightRecorder::new().write_on_signal(SignalKind::from_raw(number));
        let built = Runtime::builder().workers(1).flight_recorder(recorder).build();
        assert!(matches!(built, Err(BuildError::Io(_))), "{number}: {built:?}");
    }
}

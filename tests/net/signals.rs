//! Unix signals. A test that raises a signal runs in its own operating system process.

#![allow(unsafe_code)]

use std::sync::mpsc;

use futures::StreamExt;
use procession::signal::ctrl_c;
use procession::signal::unix::{Signal, SignalKind, signal, signal_in};
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

/// 12.2d: each `Signal` value receives each signal of its kind. Signals in quick succession are merged. A dropped
/// `recv` loses no signal.
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

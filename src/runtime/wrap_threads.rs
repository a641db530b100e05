//! The wrapper of the threads of a runtime: see `Builder::wrap_threads`. The wrapper is user code. This file ensures
//! that each thread runs its main function exactly once, whatever the wrapper does.

use std::io::{Write, stderr};

use crate::platform::sync::Arc;
use crate::platform::sync::atomic::{AtomicBool, Ordering};
use crate::platform::unwind::contain;

/// Function that wraps the main function of a runtime thread. The wrapper gets a closure as its argument. When the
/// wrapper calls this closure, the closure runs the main function.
pub(crate) type WrapThread = Arc<dyn Fn(&mut dyn FnMut()) + Send + Sync>;

/// Returns a wrapper that calls `f`, and that runs the main function exactly once. If `f` calls its closure again, the
/// second call does nothing. If `f` panics or returns without a call of its closure, the main function runs after `f`.
/// Otherwise the runtime would lose the thread, and also the worker slot of the thread.
pub(crate) fn once(f: impl Fn(&mut dyn FnMut()) + Send + Sync + 'static) -> WrapThread {
    let is_reported = AtomicBool::new(false);
    Arc::new(move |work| {
        let mut has_run = false;
        contain(|| {
            f(&mut || {
                if !std::mem::replace(&mut has_run, true) {
                    work();
                }
            });
        });
        if !has_run {
            // The pool may start many threads, so only the first thread of the runtime prints the line.
            if !is_reported.swap(true, Ordering::Relaxed) {
                report();
            }
            work();
        }
    })
}

#[cold]
fn report() {
    // Even if stderr is a broken pipe, the thread must continue.
    let _ = writeln!(
        stderr(),
        "procession: the function of `Builder::wrap_threads` did not call its closure; the thread continues without the \
         function; call the closure exactly once on each thread"
    );
}

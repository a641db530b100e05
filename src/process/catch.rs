//! Runs user code that may panic. The message of a panic becomes a `Reason`, and the panic does not unwind further.
//!
//! A panic hook records the location of each panic, and the backtrace if backtraces are enabled. This module does not
//! decide how a process exits after a panic.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::Cell;
use std::io::{Write, stderr};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::task::{Context, Wake, Waker};

use crate::platform::delayed_wake;
use crate::platform::sync::{Arc, Event, OnceLock, thread, thread_local};
use crate::platform::unwind::{contain, drop_payload};
use crate::process::exit::Reason;
use crate::process::pid::Pid;
use crate::process::state::PendingSchedule;
use crate::process::state::current::Current;

/// Data about a panic that only the panic hook knows.
struct Panic {
    /// `None` if the payload of the panic is not a string.
    message: Option<String>,
    location: String,
    backtrace: Option<Backtrace>,
}

thread_local! {
    /// The most recent panic of this thread. The function `text` takes the panic out of this cell.
    static LAST: Cell<Option<Panic>> = const { Cell::new(None) };
}

/// Records the message, the location and the backtrace of a panic. The function `text` later creates a [`Reason`] from
/// this record. A panic hook is needed, because `catch_unwind` reports neither the location nor the backtrace.
fn note_panic(panic: &PanicHookInfo<'_>) {
    let message = message_of(panic.payload()).map(str::to_owned);
    if let Some(location) = panic.location() {
        let noted = Panic { message, location: location.to_string(), backtrace: backtrace() };
        // While a thread exits, its thread-locals may already be dropped.
        let _ = LAST.try_with(|last| last.set(Some(noted)));
    }
}

/// Captures the backtrace of a panic in the code of a process. Returns `None` if backtraces are not enabled. Other
/// panics of the program end no process, so this function captures no backtrace for these panics.
fn backtrace() -> Option<Backtrace> {
    panicking_process()?;
    // If backtraces are not enabled, `capture` only reads an atomic.
    Some(Backtrace::capture()).filter(|backtrace| backtrace.status() == BacktraceStatus::Captured)
}

/// Returns the pid and the code name of the process whose code runs on this thread.
fn panicking_process() -> Option<(Pid, &'static str)> {
    Current::try_with(|current| current.dropped.get().or_else(|| current.running())).flatten()
}

fn message_of(payload: &(dyn Any + Send)) -> Option<&str> {
    match payload.downcast_ref::<&'static str>() {
        Some(text) => Some(text),
        None => payload.downcast_ref::<String>().map(String::as_str),
    }
}

/// Runs `f`. If `f` panics, returns the message of the panic as an error.
///
/// After a panic, the state that `f` changes may be inconsistent. `AssertUnwindSafe` is correct here: the state belongs
/// to one process or to one command, and no code reads the state again before the state is dropped.
#[inline]
pub(crate) fn catch<T>(f: impl FnOnce() -> T) -> Result<T, Reason> {
    catch_unwind(AssertUnwindSafe(f)).map_err(text)
}

fn text(panic: Box<dyn Any + Send>) -> Reason {
    let message = message_of(&*panic);
    let text = message.unwrap_or("a panic without a text");
    // `resume_unwind` does not call the panic hook. Therefore, after a `resume_unwind`, `LAST` may hold an earlier
    // panic. Usually the messages of two panics differ. If the messages differ, the filter ignores the earlier panic.
    let last = LAST.try_with(Cell::take).ok().flatten().filter(|noted| noted.message.as_deref() == message);
    let reason = match last {
        Some(Panic { location, backtrace, .. }) => Reason::panic(text, location, backtrace),
        None => Reason::from(text),
    };
    drop_payload(panic);
    reason
}

/// Does the same as [`catch`] through an indirect call of `f`. This function is not generic, so the compiler creates
/// only one copy of the function. In contrast, the compiler creates one copy of [`catch`] for each closure type. Code
/// that is generic over the process type should call `catch_cold`, if the cost of an indirect call does not matter.
pub(crate) fn catch_cold(f: &mut dyn FnMut()) -> Result<(), Reason> {
    catch(f)
}

/// Drops a value of a user type, and catches a panic of its `Drop`.
pub(crate) fn drop_caught<T>(value: T) -> Result<(), Reason> {
    let mut value = Some(value);
    catch_cold(&mut || value = None)
}

/// Wrapper for a user value in a structure. The drop of the structure must not unwind. Therefore the wrapper catches a
/// panic in the value's `Drop`.
#[derive(Debug, Clone)]
pub(crate) struct Held<T>(Option<T>);

impl<T> Held<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }

    pub(crate) fn get(&self) -> &T {
        self.0.as_ref().expect("taken by `into_inner` and `drop` alone")
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("taken by `into_inner` and `drop` alone")
    }

    pub(crate) fn into_inner(mut self) -> T {
        self.0.take().expect("taken by `into_inner` and `drop` alone")
    }
}

impl<T> Drop for Held<T> {
    #[inline]
    fn drop(&mut self) {
        if std::mem::needs_drop::<T>()
            && let Some(value) = self.0.take()
        {
            let _ = drop_caught(value);
        }
    }
}

/// Sets the pid and the code name that the message of an abort contains. The setting applies to aborts on this thread,
/// until the returned guard is dropped.
pub(crate) fn set_abort_process(pid: Pid, code: &'static str) -> AbortProcessGuard {
    AbortProcessGuard(Current::with(|current| current.dropped.replace(Some((pid, code)))))
}

#[must_use]
pub(crate) struct AbortProcessGuard(Option<(Pid, &'static str)>);

impl Drop for AbortProcessGuard {
    fn drop(&mut self) {
        let _ = Current::try_with(|current| current.dropped.set(self.0));
    }
}

/// Adds a panic hook that runs before the existing hook. The hook is added once per program. The hook records the
/// location of each panic. If a panic aborts the program, the hook prints which process panicked. If the program later
/// installs a hook that does not call this hook, the locations of panics are unknown.
///
/// Only a panic hook can print which process panicked before the program aborts. A panic in a destructor during
/// unwinding aborts the program inside the frames of the user code. After such a panic, no guard of the runtime is
/// dropped, and no `catch_unwind` of the runtime catches the panic.
pub(crate) fn install_panic_hook() {
    static ADDED: OnceLock<()> = OnceLock::new();
    // The model checkers set their own hooks. A panicking thread cannot set a hook. If this thread is panicking, the
    // hook is added when the next runtime is built.
    if cfg!(any(procession_loom, procession_shuttle)) || thread::panicking() {
        return;
    }
    ADDED.get_or_init(|| {
        let former = take_hook();
        set_hook(Box::new(move |panic| {
            note_panic(panic);
            if is_fatal(panic)
                && let Some((pid, code)) = panicking_process()
            {
                // A failed write to standard error cannot be reported.
                let _ = writeln!(stderr(), "process {pid} ({code}) aborts the program by this panic:");
            }
            former(panic);
        }));
    });
}

/// Returns whether `panic` aborts the program. The standard library has no stable function for this check. Therefore,
/// this function compares the payload with the messages of the two fatal panics of the standard library.
fn is_fatal(panic: &PanicHookInfo<'_>) -> bool {
    const FATAL: [&str; 2] = ["panic in a destructor during cleanup", "panic in a function that cannot unwind"];
    cfg!(panic = "abort") || panic.payload().downcast_ref::<&str>().is_some_and(|text| FATAL.contains(text))
}

/// Calls a waker, and catches a panic of the waker. If the closure of [`delay_wakers`] calls this function, a foreign
/// waker is called later, after the closure has returned.
pub(crate) fn wake(waker: Waker) {
    wake_with(waker, delayed_wake::wake);
}

/// Does the same as [`wake`], for the waker of a task that runs queued processes. If the closure of [`delay_wakers`]
/// calls this function, this waker is called before the other foreign wakers.
pub(crate) fn wake_runner(waker: Waker) {
    wake_with(waker, delayed_wake::wake_runner);
}

fn wake_with(waker: Waker, wake_foreign: impl FnOnce(Waker)) {
    if PendingSchedule::is_of_process(&waker) {
        contain(|| waker.wake());
    } else {
        wake_foreign(waker);
    }
}

/// Calls several wakers. Some of the wakers may belong to processes, and a foreign waker may block until such a process
/// has run. Therefore, the processes are queued before the foreign wakers are called.
pub(crate) fn wake_each(wakers: impl IntoIterator<Item = Waker>) {
    let mut wakers = wakers.into_iter();
    let Some(first) = wakers.next() else { return };
    match wakers.next() {
        None => wake(first),
        Some(second) => delay_wakers(|| [first, second].into_iter().chain(wakers).for_each(wake)),
    }
}

/// Notifies all listeners of `event`.
pub(crate) fn notify(event: &Event) {
    delay_wakers(|| event.notify(usize::MAX));
}

/// Calls `f`, and afterwards calls the foreign wakers of the tasks that `f` has woken. `f` runs user code only if `f`
/// queues a process: an observer may receive the new state of this process, or a closed queue drops this process. A
/// caller uses this function for one of two reasons:
/// - `f` notifies the listeners of an event, or drops a listener. The crate event-listener calls wakers under a lock of
///   the event, and the drop of a listener takes the same lock. A foreign waker may drop a listener, for example if the
///   waker polls its task directly.
/// - `f` wakes several tasks, or notifies several processes. A foreign waker may block until one of these processes has
///   run.
///
/// There are two kinds of foreign wakers. The first kind is a [`PanicSafeWaker`] that is stored in the event. The
/// second kind is the waker of an executor that polls a guest or a `LocalSet`. This executor is woken, because the
/// guest or the `LocalSet` can run a process that listens to the event. The wakers of the second kind are called first.
pub(crate) fn delay_wakers<R>(f: impl FnOnce() -> R) -> R {
    delayed_wake::delay(f)
}

/// Wrapper for a waker of unknown origin. The wrapper catches a panic of the waker's `wake`. Without the wrapper, a
/// panic inside async-task would abort the program. In a list of listeners, a panic of one waker would prevent the
/// notification of the remaining listeners. During [`delay_wakers`], the wrapper delays the call of the waker.
#[derive(Debug)]
struct PanicSafeWaker(Held<Waker>);

impl Wake for PanicSafeWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !delayed_wake::collect(|| Waker::from(Arc::clone(self))) {
            let _ = catch(|| self.0.get().wake_by_ref());
        }
    }
}

/// Cache for the `PanicSafeWaker` of a future that is polled repeatedly.
#[derive(Debug, Default)]
pub(crate) struct Guard(Option<Arc<PanicSafeWaker>>);

impl Guard {
    /// Calls `poll` with a waker that does not panic. If the waker belongs to the task whose step this thread runs,
    /// `poll` gets this waker without a wrapper. The reason is that a waker of the runtime does not panic. Any other
    /// waker is wrapped in a `PanicSafeWaker`.
    pub(crate) fn over<T>(&mut self, cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> T) -> T {
        let waker = cx.waker();
        if Current::with(|current| current.is_own_waker(waker)) {
            return poll(cx);
        }
        self.over_foreign(cx, poll)
    }

    /// Calls `poll` as [`over`](Self::over) does, for a waker that does not belong to the task whose step this thread
    /// runs.
    pub(crate) fn over_foreign<T>(&mut self, cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> T) -> T {
        let waker = cx.waker();
        let former = self.0.take();
        let guarded = match &former {
            Some(known) if known.0.get().will_wake(waker) => Arc::clone(known),
            _ => Arc::new(PanicSafeWaker(Held::new(waker.clone()))),
        };
        self.0 = Some(Arc::clone(&guarded));
        let polled = poll(&mut Context::from_waker(&Waker::from(guarded)));
        // During `poll`, an event may drop its reference to the previous waker while the event is locked. The last
        // reference to the previous waker is dropped here, where the event is not locked. Therefore, the user's waker
        // is not dropped under the lock of the event.
        drop(former);
        polled
    }
}

//! Runs user code that may panic. The message of a panic becomes a `Reason`, and the panic does not unwind further.
//!
//! A panic hook records the location of each panic. This module does not decide how a process exits after a panic.

use std::any::Any;
use std::cell::Cell;
use std::io::{Write, stderr};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::task::{Context, Wake, Waker};

use crate::platform::sync::{Arc, OnceLock, thread, thread_local};
use crate::process::exit::Reason;
use crate::process::pid::Pid;
use crate::process::state::current::Current;

/// Message and location of a panic. The message is `None` if the payload is not a string.
type Panic = (Option<String>, String);

thread_local! {
    /// The last panic of this thread, until `text` takes it.
    static LAST: Cell<Option<Panic>> = const { Cell::new(None) };
}

/// Records the message and the location of a panic, for the [`Reason`] that `text` makes of it. Only a panic hook
/// receives the location.
fn note_location(panic: &PanicHookInfo<'_>) {
    let message = message_of(panic.payload()).map(str::to_owned);
    if let Some(location) = panic.location() {
        // A thread that exits may have dropped its thread-locals already.
        let _ = LAST.try_with(|last| last.set(Some((message, location.to_string()))));
    }
}

fn message_of(payload: &(dyn Any + Send)) -> Option<&str> {
    match payload.downcast_ref::<&'static str>() {
        Some(text) => Some(text),
        None => payload.downcast_ref::<String>().map(String::as_str),
    }
}

/// Runs `f`, and returns the message of a panic as an error.
///
/// `AssertUnwindSafe` is sound here: state that a panic may leave inconsistent belongs to one process or to one
/// command. It is dropped and not read again.
#[inline]
pub(crate) fn catch<T>(f: impl FnOnce() -> T) -> Result<T, Reason> {
    catch_unwind(AssertUnwindSafe(f)).map_err(text)
}

/// Maximum number of times that the drop of a panic payload may panic in its turn. After that, the payload is leaked.
const PANICS_IN_PANICS: u32 = 8;

fn text(mut panic: Box<dyn Any + Send>) -> Reason {
    let message = message_of(&*panic);
    let text = message.unwrap_or("a panic without a text");
    // `resume_unwind` does not call the panic hook. In that case `LAST` holds an earlier panic, and its message
    // differs.
    let last = LAST.try_with(Cell::take).ok().flatten().filter(|(noted, _)| noted.as_deref() == message);
    let reason = match last {
        Some((_, location)) => Reason::panic(text, location),
        None => Reason::from(text),
    };
    // The payload of a panic is a user type, and its `Drop` may panic too.
    for _ in 0..PANICS_IN_PANICS {
        match catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            Ok(()) => return reason,
            Err(another) => panic = another,
        }
    }
    std::mem::forget(panic);
    reason
}

/// Drops a value of a user type, and catches a panic of its `Drop`.
pub(crate) fn drop_caught<T>(value: T) -> Result<(), Reason> {
    catch(|| drop(value))
}

/// A user value in a structure that must not unwind when it is dropped: a panic in the value's `Drop` is caught.
#[derive(Debug, Clone)]
pub(crate) struct Held<T>(Option<T>);

impl<T> Held<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }

    pub(crate) fn get(&self) -> &T {
        self.0.as_ref().expect("taken by `into_inner` and `drop` alone")
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

/// Makes the message of an abort on this thread name this process, until the guard is dropped.
pub(crate) fn name(pid: Pid, code: &'static str) -> Named {
    Named(Current::with(|current| current.dropped.replace(Some((pid, code)))))
}

#[must_use]
pub(crate) struct Named(Option<(Pid, &'static str)>);

impl Drop for Named {
    fn drop(&mut self) {
        let _ = Current::try_with(|current| current.dropped.set(self.0));
    }
}

/// Adds a panic hook before the present one, once per program. The hook records the location of each panic. If a panic
/// aborts the program, it prints the process that panicked. A hook that the program sets later replaces it: then the
/// locations are unknown.
///
/// Only a hook can do this. A panic in a destructor during unwinding aborts inside the frames of the user code. No
/// guard and no `catch_unwind` of the runtime runs after such a panic.
pub(crate) fn watch() {
    static ADDED: OnceLock<()> = OnceLock::new();
    // The model checkers set their own hooks. A thread that panics cannot set a hook: the next runtime adds it.
    if cfg!(any(procession_loom, procession_shuttle)) || thread::panicking() {
        return;
    }
    ADDED.get_or_init(|| {
        let former = take_hook();
        set_hook(Box::new(move |panic| {
            note_location(panic);
            if is_fatal(panic)
                && let Some((pid, code)) =
                    Current::try_with(|current| current.dropped.get().or_else(|| current.running())).flatten()
            {
                // A failed write to standard error cannot be reported.
                let _ = writeln!(stderr(), "process {pid} ({code}) aborts the program by this panic:");
            }
            former(panic);
        }));
    });
}

/// Whether this panic aborts the program. The standard library has no stable way to ask, so this compares the texts of
/// its own fatal panics.
fn is_fatal(panic: &PanicHookInfo<'_>) -> bool {
    const FATAL: [&str; 2] = ["panic in a destructor during cleanup", "panic in a function that cannot unwind"];
    cfg!(panic = "abort") || panic.payload().downcast_ref::<&str>().is_some_and(|text| FATAL.contains(text))
}

/// Calls `wake` on a waker of unknown origin, and catches a panic in it.
pub(crate) fn wake(waker: Waker) {
    let _ = catch(|| waker.wake());
}

/// A waker of unknown origin that never panics when it is woken. A panic would abort inside async-task, and would leave
/// a list of listeners only partly notified.
#[derive(Debug)]
struct PanicSafeWaker(Held<Waker>);

impl Wake for PanicSafeWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let _ = catch(|| self.0.get().wake_by_ref());
    }
}

/// Cache for the guarded waker of a future that is polled repeatedly.
#[derive(Debug, Default)]
pub(crate) struct Guard(Option<Arc<PanicSafeWaker>>);

impl Guard {
    /// Calls `poll` with the waker of the context, if that is the waker of the task that this thread steps: it belongs
    /// to the runtime. Otherwise, it calls `poll` with a guarded waker.
    pub(crate) fn over<T>(&mut self, cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> T) -> T {
        let waker = cx.waker();
        if Current::with(|current| current.is_own_waker(waker)) {
            return poll(cx);
        }
        let guarded = match self.0.take() {
            Some(known) if known.0.get().will_wake(waker) => known,
            _ => Arc::new(PanicSafeWaker(Held::new(waker.clone()))),
        };
        self.0 = Some(Arc::clone(&guarded));
        poll(&mut Context::from_waker(&Waker::from(guarded)))
    }
}

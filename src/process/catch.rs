//! Running what may panic: the text of the panic becomes a reason, and nothing unwinds further.

use std::any::Any;
use std::cell::Cell;
use std::io::{Write, stderr};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::task::{Context, Wake, Waker};

use crate::platform::sync::{Arc, OnceLock, thread, thread_local};
use crate::process::exit::Reason;
use crate::process::pid::Pid;
use crate::process::state::current::Current;

/// A panic: its message, if it has one, and its location.
type Panic = (Option<String>, String);

thread_local! {
    /// The last panic of this thread that was not taken yet.
    static LAST: Cell<Option<Panic>> = const { Cell::new(None) };
}

/// Notes where a panic happens, for the [`Reason`] that is made of it. Only a panic hook is told the location.
fn note_location(panic: &PanicHookInfo<'_>) {
    let message = message_of(panic.payload()).map(str::to_owned);
    if let Some(location) = panic.location() {
        // A thread that ends may have no locals any more.
        let _ = LAST.try_with(|last| last.set(Some((message, location.to_string()))));
    }
}

fn message_of(payload: &(dyn Any + Send)) -> Option<&str> {
    match payload.downcast_ref::<&'static str>() {
        Some(text) => Some(text),
        None => payload.downcast_ref::<String>().map(String::as_str),
    }
}

/// Runs `f`; a panic comes back as its text.
///
/// Unwind safety: whatever a panic may have left half done belongs to one process or one command, and is dropped and
/// never looked at again.
#[inline]
pub(crate) fn catch<T>(f: impl FnOnce() -> T) -> Result<T, Reason> {
    catch_unwind(AssertUnwindSafe(f)).map_err(text)
}

/// How often what a panic carries may panic in its turn, when it is dropped, before it is forgotten.
const PANICS_IN_PANICS: u32 = 8;

fn text(mut panic: Box<dyn Any + Send>) -> Reason {
    let message = message_of(&*panic);
    let text = message.unwrap_or("a panic without a text");
    // `resume_unwind` calls no hook: what was noted is of an earlier panic then.
    let last = LAST.try_with(Cell::take).ok().flatten().filter(|(noted, _)| noted.as_deref() == message);
    let reason = match last {
        Some((_, location)) => Reason::panic(text, location),
        None => Reason::from(text),
    };
    // What a panic carries is the user's, and its own `Drop` may panic too.
    for _ in 0..PANICS_IN_PANICS {
        match catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            Ok(()) => return reason,
            Err(another) => panic = another,
        }
    }
    std::mem::forget(panic);
    reason
}

/// Drops something of the user's.
pub(crate) fn drop_caught<T>(value: T) -> Result<(), Reason> {
    catch(|| drop(value))
}

/// A value of the user's in somebody else's hands, who could not bear a panic in its `Drop`.
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

/// Until the guard is dropped, messages of aborts on this thread name this process.
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

/// Adds a panic hook in front of the present one, once in a program. It notes the location of each panic, and prints which
/// process is to blame for a panic that aborts the program. A hook that the program sets later replaces it: then locations
/// are not known.
///
/// Only a hook can do this. A panic in a destructor during unwinding aborts inside the frames of the user's code, so no
/// guard and no `catch_unwind` of the runtime runs after it.
pub(crate) fn watch() {
    static ADDED: OnceLock<()> = OnceLock::new();
    // The model checkers have hooks of their own. A thread that panics can't set a hook: the next runtime adds it.
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
                // Without a standard error, there is nothing to tell.
                let _ = writeln!(stderr(), "process {pid} ({code}) aborts the program by this panic:");
            }
            former(panic);
        }));
    });
}

/// Whether the program ends by this panic. The standard library has no stable way to ask, so the texts of its own fatal
/// panics are compared.
fn is_fatal(panic: &PanicHookInfo<'_>) -> bool {
    const FATAL: [&str; 2] = ["panic in a destructor during cleanup", "panic in a function that cannot unwind"];
    cfg!(panic = "abort") || panic.payload().downcast_ref::<&str>().is_some_and(|text| FATAL.contains(text))
}

/// Wakes with somebody else's waker, whose panic is not ours.
pub(crate) fn wake(waker: Waker) {
    let _ = catch(|| waker.wake());
}

/// Somebody else's waker, for code that can't bear a panic in one: async-task would abort, a list of listeners would be
/// left half told.
#[derive(Debug)]
struct Guarded(Held<Waker>);

impl Wake for Guarded {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let _ = catch(|| self.0.get().wake_by_ref());
    }
}

/// Remembers the guard of a waker that is polled with again and again.
#[derive(Debug, Default)]
pub(crate) struct Guard(Option<Arc<Guarded>>);

impl Guard {
    /// Polls with the context's waker itself if it is the task's that is being stepped, for that is ours; else with a
    /// guarded one.
    pub(crate) fn over<T>(&mut self, cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> T) -> T {
        let waker = cx.waker();
        if Current::with(|current| current.is_own_waker(waker)) {
            return poll(cx);
        }
        let guarded = match self.0.take() {
            Some(known) if known.0.get().will_wake(waker) => known,
            _ => Arc::new(Guarded(Held::new(waker.clone()))),
        };
        self.0 = Some(Arc::clone(&guarded));
        poll(&mut Context::from_waker(&Waker::from(guarded)))
    }
}

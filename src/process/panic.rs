//! Running what may panic: the text of the panic becomes a reason, and nothing unwinds further.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::exit::Reason;

/// Runs `f`; a panic comes back as its text.
///
/// Unwind safety: whatever a panic may have left half done belongs to one process or one command, and is dropped and
/// never looked at again.
pub(crate) fn catch<T>(f: impl FnOnce() -> T) -> Result<T, Reason> {
    catch_unwind(AssertUnwindSafe(f)).map_err(text)
}

fn text(panic: Box<dyn Any + Send>) -> Reason {
    let reason = match panic.downcast_ref::<&'static str>() {
        Some(text) => Reason::from(*text),
        None => match panic.downcast_ref::<String>() {
            Some(text) => Reason::from(text.as_str()),
            None => Reason::from("a panic without a text"),
        },
    };
    // What a panic carries is the user's, and its own `Drop` may panic too.
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(another);
    }
    reason
}

/// Drops something of the user's.
pub(crate) fn drop_caught<T>(value: T) -> Result<(), Reason> {
    catch(|| drop(value))
}

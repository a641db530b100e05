//! The call of a handler that this thread runs, and the completions that the handler drops during the call.
//!
//! If a handler panics, its completions are dropped during the unwinding. The text of the panic is known only at the
//! end of the call. Therefore, the dropped completions are stored until the call ends. At the end of the call, the
//! commands of these completions fail with the text of the panic.
//!
//! A handler may also run on a thread that is already unwinding, for example in a destructor. In this case, each
//! dropped completion is stored. If the handler returns without a panic, the commands of these completions fail as
//! abandoned.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::mem;

use crate::platform::sync::{NeverDropped, thread};

/// Identifier of a command: the identity of the command's process, and the number of the command's tag. The identifier
/// is unique while the process is alive.
pub(crate) type YieldId = (usize, u64);

/// A completion that was dropped. `host::dispatch::completion` knows the type of this value.
pub(crate) type Kept = Box<dyn Any>;

/// The call of a handler that this thread runs.
pub(crate) struct HandlerCall {
    runs: Cell<bool>,
    /// The command of the handler itself. The completion of this command is stored even if the completion is dropped
    /// without a panic. The completion is dropped without a panic if the handler call drops the future of the called
    /// handler.
    own: Cell<Option<YieldId>>,
    has_kept: Cell<bool>,
    /// Completions that were dropped during the present call and during the outer calls in which the present call is
    /// nested. Between calls, the list is empty and owns no memory.
    kept: NeverDropped<RefCell<Vec<Kept>>>,
}

/// State before a call, which is restored after the call.
#[must_use]
#[derive(Clone, Copy)]
pub(crate) struct OuterCall {
    runs: bool,
    /// Number of completions that the outer calls have stored.
    kept: usize,
}

/// Saved state of a call while a nested turn runs.
#[must_use]
pub(crate) struct InterruptedCall {
    runs: bool,
    own: Option<YieldId>,
}

impl HandlerCall {
    pub(super) const fn new() -> Self {
        Self {
            runs: Cell::new(false),
            own: Cell::new(None),
            has_kept: Cell::new(false),
            kept: NeverDropped::new(RefCell::new(Vec::new())),
        }
    }

    /// Begins a call. Every completion that is dropped during the unwinding of the call is stored.
    #[inline]
    pub(crate) fn begin(&self) -> OuterCall {
        let kept = if self.has_kept.get() { self.kept.borrow().len() } else { 0 };
        OuterCall { runs: self.runs.replace(true), kept }
    }

    /// Ends a call. Returns whether this thread has stored completions that the present call or an outer call has
    /// dropped.
    #[inline]
    pub(crate) fn end(&self, outer: OuterCall) -> bool {
        self.runs.set(outer.runs);
        self.has_kept()
    }

    /// Returns whether the list of stored completions is not empty.
    #[inline]
    pub(crate) fn has_kept(&self) -> bool {
        self.has_kept.get()
    }

    /// Takes the completions that were stored after the beginning of a call.
    #[cold]
    pub(crate) fn take_since(&self, outer: OuterCall) -> Vec<Kept> {
        self.has_kept.set(outer.kept != 0);
        let mut kept = self.kept.borrow_mut();
        if outer.kept == 0 { mem::take(&mut *kept) } else { kept.split_off(outer.kept) }
    }

    /// Sets the command of the handler itself. The completion of this command is stored even if the completion is
    /// dropped without a panic. Returns the previous command. After the handler call, the caller restores the previous
    /// command.
    pub(crate) fn replace_own(&self, own: Option<YieldId>) -> Option<YieldId> {
        self.own.replace(own)
    }

    /// Returns the command of the handler itself. The completion of this command is stored even if the completion is
    /// dropped without a panic.
    pub(crate) fn own(&self) -> Option<YieldId> {
        self.own.get()
    }

    /// Interrupts the call. A nested turn begins on this thread, and the process of the nested turn may drop
    /// completions. Completions that this process drops do not belong to the handler, so these completions are not
    /// stored.
    pub(super) fn interrupt(&self) -> InterruptedCall {
        InterruptedCall { runs: self.runs.replace(false), own: self.own.take() }
    }

    /// Resumes the call after the nested turn.
    pub(super) fn resume(&self, call: InterruptedCall) {
        self.runs.set(call.runs);
        self.own.set(call.own);
    }

    /// Returns whether a handler runs on this thread.
    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        self.runs.get()
    }

    /// A destructor of a completion calls this function. Returns whether this destructor must store the completion.
    /// `dropped` returns the identifier of the command of this completion.
    #[inline]
    pub(crate) fn keeps(&self, dropped: impl FnOnce() -> YieldId) -> bool {
        self.runs.get() && (thread::panicking() || self.own.get().is_some_and(|own| own == dropped()))
    }

    /// Stores a dropped completion until the call ends.
    #[cold]
    pub(crate) fn keep(&self, completion: Kept) {
        self.kept.borrow_mut().push(completion);
        self.has_kept.set(true);
    }
}

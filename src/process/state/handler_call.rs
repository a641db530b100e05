//! The call of a handler that this thread runs, and the completions that the handler drops during the call.
//!
//! If a handler panics, its completions are dropped during the unwinding. The text of the panic is known only at the
//! end of the call. Therefore, the dropped completions are stored until the call ends. Then the commands of these
//! completions fail with the text of the panic.
//!
//! A handler may also run on a thread that is already unwinding, for example in a destructor. Then each dropped
//! completion is stored. If the handler returns without a panic, the commands of these completions fail as abandoned.

use std::any::Any;
use std::cell::{Cell, RefCell};

use crate::platform::sync::{NeverDropped, thread};

/// Identifier of a command: the identity of its process, and the number of its tag. The identifier is unique while the
/// process is alive.
pub(crate) type YieldId = (usize, u64);

/// A completion that was dropped. `host::dispatch::completion` knows the type of this value.
pub(crate) type Kept = Box<dyn Any>;

/// The call of a handler that this thread runs.
pub(crate) struct HandlerCall {
    runs: Cell<bool>,
    /// The command whose completion is stored even if this completion is dropped without a panic. A completion is
    /// dropped in this way if the handler call drops the future of its own handler.
    own: Cell<Option<YieldId>>,
    has_kept: Cell<bool>,
    /// Completions that were dropped during the call. Between calls, the list is empty and owns no memory.
    kept: NeverDropped<RefCell<Vec<Kept>>>,
}

/// Saved state of an outer handler call while a nested call runs.
#[must_use]
pub(crate) struct OuterCall {
    runs: bool,
    own: Option<YieldId>,
    kept: Option<Vec<Kept>>,
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

    /// Begins a call. Every completion that is dropped during the unwinding of the call is stored. The completion of
    /// the command `own` is also stored if this completion is dropped without a panic.
    #[inline]
    pub(crate) fn begin(&self, own: Option<YieldId>) -> OuterCall {
        OuterCall { runs: self.runs.replace(true), own: self.own.replace(own), kept: self.take() }
    }

    /// Ends a call. Returns the completions that were stored during the call. If no completion was stored, returns
    /// `None`.
    #[inline]
    pub(crate) fn end(&self, outer: OuterCall) -> Option<Vec<Kept>> {
        self.runs.set(outer.runs);
        self.own.set(outer.own);
        let kept = self.take();
        if let Some(kept) = outer.kept {
            self.has_kept.set(true);
            *self.kept.borrow_mut() = kept;
        }
        kept
    }

    /// Interrupts the call. A nested turn begins on this thread, and its process may drop completions. These
    /// completions do not belong to the handler, so they are not stored.
    pub(super) fn interrupt(&self) -> OuterCall {
        OuterCall { runs: self.runs.replace(false), own: self.own.take(), kept: self.take() }
    }

    /// Resumes the call after the nested turn.
    pub(super) fn resume(&self, outer: OuterCall) {
        let kept = self.end(outer);
        debug_assert!(kept.is_none(), "a completion is stored only during a call");
    }

    #[inline]
    fn take(&self) -> Option<Vec<Kept>> {
        self.has_kept.replace(false).then(|| self.kept.take())
    }

    /// Returns whether a handler runs on this thread.
    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        self.runs.get()
    }

    /// Returns whether the completion of this command, which is dropped now, must be stored.
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

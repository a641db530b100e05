//! The call of a handler that this thread runs, and the completions that the handler drops during the call.
//!
//! If a handler panics, its completions are dropped while it unwinds. The completions are kept here until the call is
//! over: the yields of these completions fail with the text of the panic, and this text is not known earlier.

use std::any::Any;
use std::cell::{Cell, RefCell};

use crate::platform::sync::{NeverDropped, thread};

/// Identifies a yield while its process lives. It consists of the process's identity and the number of the tag.
pub(crate) type YieldId = (usize, u64);

/// A completion that was dropped. `host::dispatch::completion` knows its type.
pub(crate) type Kept = Box<dyn Any>;

/// The call of a handler that this thread runs.
pub(crate) struct HandlerCall {
    runs: Cell<bool>,
    /// The yield whose completion is kept even if it is dropped without a panic. This happens when the call itself
    /// drops the future of its handler.
    own: Cell<Option<YieldId>>,
    has_kept: Cell<bool>,
    /// Empty and without memory between calls.
    kept: NeverDropped<RefCell<Vec<Kept>>>,
}

/// Saved state of a handler call while another call is nested in it.
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

    /// Begins a call. Every completion that is dropped while the call unwinds is kept. The completion of the `own`
    /// yield is kept even if it is dropped without a panic.
    #[inline]
    pub(crate) fn begin(&self, own: Option<YieldId>) -> OuterCall {
        OuterCall { runs: self.runs.replace(true), own: self.own.replace(own), kept: self.take() }
    }

    /// Ends a call. Returns the completions that were kept, if there are any.
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

    #[inline]
    fn take(&self) -> Option<Vec<Kept>> {
        self.has_kept.replace(false).then(|| self.kept.take())
    }

    /// Whether a handler runs.
    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        self.runs.get()
    }

    /// Whether the completion of this yield is kept if it is dropped now.
    #[inline]
    pub(crate) fn keeps(&self, dropped: impl FnOnce() -> YieldId) -> bool {
        self.runs.get() && (thread::panicking() || self.own.get().is_some_and(|own| own == dropped()))
    }

    /// Keeps a dropped completion until the call ends.
    #[cold]
    pub(crate) fn keep(&self, completion: Kept) {
        self.kept.borrow_mut().push(completion);
        self.has_kept.set(true);
    }
}

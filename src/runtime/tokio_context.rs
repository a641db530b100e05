//! The context of a tokio runtime. The threads that run processes enter this context: see `Builder::tokio`. Without the
//! feature `tokio`, there is no context, and `within` only calls its argument.

#[cfg(feature = "tokio")]
use tokio::runtime::Handle;

#[cfg(feature = "tokio")]
use crate::platform::sync::Arc;
use crate::runtime::WrapThread;

/// Context of a tokio runtime. The context is empty if `Builder::tokio` was not called.
#[derive(Debug, Clone, Default)]
pub(crate) struct TokioContext {
    #[cfg(feature = "tokio")]
    handle: Option<Handle>,
}

impl TokioContext {
    #[cfg(feature = "tokio")]
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle: Some(handle) }
    }

    /// Calls `f` inside the context. If the destructors of this thread's thread-locals run, and the thread-local of
    /// tokio is already destroyed, the thread can enter no context. In this case, calls `f` outside the context.
    #[inline]
    pub(crate) fn within<R>(&self, f: impl FnOnce() -> R) -> R {
        #[cfg(feature = "tokio")]
        let _entered = {
            let is_destroyed = || Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed());
            self.handle.as_ref().filter(|_| !is_destroyed()).map(Handle::enter)
        };
        f()
    }

    /// Returns a wrapper for the main function of a thread. The wrapper enters the context, and then calls `wrap` or,
    /// without a `wrap`, the main function. If there is no context, returns `wrap` unchanged.
    pub(crate) fn wrap(&self, wrap: Option<WrapThread>) -> Option<WrapThread> {
        #[cfg(feature = "tokio")]
        if self.handle.is_some() {
            let context = self.clone();
            return Some(Arc::new(move |work| {
                context.within(|| match &wrap {
                    Some(wrap) => wrap(work),
                    None => work(),
                });
            }));
        }
        wrap
    }
}

//! Values that a child process inherits from its parent: typed values, a deadline and a cancel token. This module
//! stores the values. The code that spawns a process applies the deadline and the token.

use std::any::{Any, type_name};
use std::fmt;
use std::time::Duration;

use crate::host::cancel::CancelToken;
use crate::platform::clock::Instant;
use crate::platform::sync::Arc;
use crate::process::catch::Held;

/// Values that a child process inherits from its parent. The values are a deadline, a cancel token, and typed values
/// such as trace ids or identities.
///
/// A parent and its child share one copy of the values. If one of the two processes changes a value, the process that
/// makes the change gets a separate copy. Therefore a parent does not see values that its child adds.
#[derive(Clone, Default)]
pub struct InheritedContext(Option<Arc<InheritedValues>>);

#[derive(Clone, Default)]
struct InheritedValues {
    /// The typed values, and the names of their types. The list contains at most one value of each type. Therefore the
    /// list stays short, even after a long chain of spawns.
    values: Vec<(Held<Arc<dyn Any + Send + Sync>>, &'static str)>,
    /// Deadline of the process, and the grace period after the deadline. At the end of the grace period, the runtime
    /// kills the process.
    deadline: Option<(Instant, Duration)>,
    token: Option<CancelToken>,
}

/// Describes which sources can cancel a process. The field `token` is true if a cancel token is set. The field
/// `deadline` is true if a deadline is set.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CancelSources {
    pub(crate) token: bool,
    pub(crate) deadline: bool,
}

impl CancelSources {
    #[inline]
    pub(crate) fn is_any(self) -> bool {
        self.token || self.deadline
    }
}

impl InheritedContext {
    pub(crate) const NOTHING: &Self = &Self(None);

    /// Returns the most recent value of this type. The spawner of the process, or an ancestor of the spawner, has set
    /// this value.
    pub fn value<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let values = &self.0.as_ref()?.values;
        let value = values.iter().map(|(value, _)| value.get()).find(|value| (***value).is::<T>())?;
        Arc::clone(value).downcast().ok()
    }

    /// Returns the names of the types of the values.
    pub(crate) fn type_names(&self) -> Vec<&'static str> {
        self.0.as_ref().map_or_else(Vec::new, |inherited| inherited.values.iter().map(|(_, name)| *name).collect())
    }

    /// Returns the deadline of the process. At the deadline, the runtime requests the exit of the process.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline_and_grace().map(|(at, _)| at)
    }

    pub(crate) fn deadline_and_grace(&self) -> Option<(Instant, Duration)> {
        self.0.as_ref()?.deadline
    }

    /// Returns the cancel token of the process.
    pub fn cancel_token(&self) -> Option<&CancelToken> {
        self.0.as_ref()?.token.as_ref()
    }

    /// Returns true if no typed value, no deadline and no cancel token is set.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns which sources of a cancellation are set: the cancel token, the deadline, both or none.
    #[inline]
    pub(crate) fn cancel_sources(&self) -> CancelSources {
        let Some(inherited) = &self.0 else { return CancelSources::default() };
        CancelSources { token: inherited.token.is_some(), deadline: inherited.deadline.is_some() }
    }

    /// Returns true if the deadline has passed or the token is cancelled. The process may not have been notified yet.
    pub(crate) fn is_at_end(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|at| at <= now) || self.cancel_token().is_some_and(CancelToken::has_begun)
    }

    /// Adds a value. The new value replaces an existing value of the same type.
    pub(crate) fn give<T: Send + Sync + 'static>(&mut self, value: T) {
        let value = Held::new(Arc::new(value) as Arc<dyn Any + Send + Sync>);
        let values = &mut self.values_mut().values;
        match values.iter_mut().find(|(known, _)| (**known.get()).is::<T>()) {
            Some((known, _)) => *known = value,
            None => values.push((value, type_name::<T>())),
        }
    }

    /// Adds a deadline. If a deadline is already set, the earlier of the two deadlines applies. Returns whether the new
    /// deadline applies.
    pub(crate) fn limit(&mut self, at: Instant, grace: Duration) -> bool {
        let applies = self.deadline().is_none_or(|before| at < before);
        if applies {
            self.values_mut().deadline = Some((at, grace));
        }
        applies
    }

    /// Sets the cancel token. The new token replaces an existing token.
    pub(crate) fn set_token(&mut self, token: &CancelToken) {
        self.values_mut().token = Some(token.clone());
    }

    fn values_mut(&mut self) -> &mut InheritedValues {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

impl fmt::Debug for InheritedContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.0.as_ref().map_or(0, |inherited| inherited.values.len());
        f.debug_struct("InheritedContext")
            .field("values", &values)
            .field("deadline", &self.deadline())
            .field("cancel_token", &self.cancel_token())
            .finish()
    }
}

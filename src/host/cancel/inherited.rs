//! What travels to whatever a process spawns: typed values, its deadline, its cancel token.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use crate::host::cancel::CancelToken;
use crate::platform::clock::Instant;
use crate::platform::sync::Arc;
use crate::process::catch::Held;

/// What travels to whatever a process spawns: typed values (trace ids, identities), its deadline, its cancel token.
///
/// It is shared until it is changed: what a child adds its parent does not see.
#[derive(Clone, Default)]
pub struct Inherited(Option<Arc<InheritedValues>>);

#[derive(Clone, Default)]
struct InheritedValues {
    /// One of each type, so that it does not grow from one generation to the next.
    values: Vec<Held<Arc<dyn Any + Send + Sync>>>,
    /// When whoever has this has to end, and how long after that it is killed.
    deadline: Option<(Instant, Duration)>,
    token: Option<CancelToken>,
}

impl Inherited {
    pub(crate) const NOTHING: &Self = &Self(None);

    /// The value of this type that was given last, by the process's spawner or one further up.
    pub fn value<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let values = &self.0.as_ref()?.values;
        let value = values.iter().map(Held::get).find(|value| (***value).is::<T>())?;
        Arc::clone(value).downcast().ok()
    }

    /// When whoever has this has to end.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline_and_grace().map(|(at, _)| at)
    }

    pub(crate) fn deadline_and_grace(&self) -> Option<(Instant, Duration)> {
        self.0.as_ref()?.deadline
    }

    /// What cancels whoever has this.
    pub fn cancel_token(&self) -> Option<&CancelToken> {
        self.0.as_ref()?.token.as_ref()
    }

    /// Whether there is nothing in it.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether there is something in it that ends whoever has it.
    #[inline]
    pub(crate) fn has_end(&self) -> bool {
        self.0.as_ref().is_some_and(|estate| estate.deadline.is_some() || estate.token.is_some())
    }

    /// Whether that is happening, though whoever has it may not know it yet.
    pub(crate) fn is_at_end(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|at| at <= now) || self.cancel_token().is_some_and(CancelToken::has_begun)
    }

    /// Adds a value, in place of another of its type.
    pub(crate) fn give<T: Send + Sync + 'static>(&mut self, value: T) {
        let value = Held::new(Arc::new(value) as Arc<dyn Any + Send + Sync>);
        let values = &mut self.estate().values;
        match values.iter_mut().find(|known| (**known.get()).is::<T>()) {
            Some(known) => *known = value,
            None => values.push(value),
        }
    }

    /// Adds a deadline; of two the nearer holds.
    pub(crate) fn limit(&mut self, at: Instant, grace: Duration) {
        if self.deadline().is_none_or(|before| at < before) {
            self.estate().deadline = Some((at, grace));
        }
    }

    /// Puts it under a token, in place of another.
    pub(crate) fn put_under(&mut self, token: &CancelToken) {
        self.estate().token = Some(token.clone());
    }

    fn estate(&mut self) -> &mut InheritedValues {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

impl fmt::Debug for Inherited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.0.as_ref().map_or(0, |estate| estate.values.len());
        f.debug_struct("Inherited")
            .field("values", &values)
            .field("deadline", &self.deadline())
            .field("cancel_token", &self.cancel_token())
            .finish()
    }
}

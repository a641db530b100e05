//! Pauses of futures when the budget of a turn is spent. If a future needs a unit of the budget and no unit is left,
//! the future ends the turn, and continues in the next turn. The budget is in `current.rs`.

use std::task::{Context, Poll, ready};

use crate::process::state::current::Current;

/// Pause state of a future that takes units of the budget. This state prevents the future from pausing again and again.
///
/// Other futures of the same body may spend the whole budget of each turn before this future is polled. Therefore,
/// after a pause, the future makes progress even if the budget is spent again.
#[derive(Debug, Default)]
pub(crate) struct BudgetPause {
    /// Whether the next call of `spend` returns `Ready` even if the budget is spent.
    is_over: bool,
}

impl BudgetPause {
    /// Creates the pause state of a future. If `is_over` is true, the next call of `spend` returns `Ready` even if
    /// the budget is spent.
    #[cfg(feature = "net")]
    pub(crate) fn new(is_over: bool) -> Self {
        Self { is_over }
    }

    /// Returns whether the next call of `spend` returns `Ready` even if the budget is spent.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Takes one unit from the budget of the turn. Returns `Pending` if the future must first let other processes
    /// run. The task is then polled again after other tasks, and the next call returns `Ready`. Otherwise returns
    /// whether a unit was taken.
    #[inline]
    pub(crate) fn spend(&mut self, cx: &Context<'_>) -> Poll<bool> {
        if std::mem::take(&mut self.is_over) {
            return Poll::Ready(spend_if_left());
        }
        let spent = spend_budget(cx);
        self.is_over = spent.is_pending();
        spent
    }

    /// Takes one unit like [`spend`](Self::spend). This function is for short-lived futures: a body may drop such a
    /// future after each poll, and create a new future. A loop without `await` may check short-lived futures again and
    /// again. Therefore, if several new futures find the budget spent, they pause alternately: one future pauses, and
    /// the next future makes progress.
    pub(crate) fn spend_as_check(&mut self, cx: &Context<'_>) -> Poll<bool> {
        if !self.is_over && Current::with(Current::skips_pause) {
            return Poll::Ready(false);
        }
        self.spend(cx)
    }

    /// Takes one unit from the budget of the turn, and calls `poll`. If the result of `poll` is pending, gives the unit
    /// back. If the budget is spent, returns `Pending` and does not call `poll`.
    pub(crate) fn poll<R>(&mut self, cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> Poll<R>) -> Poll<R> {
        let is_taken = ready!(self.spend(cx));
        let polled = poll(cx);
        refund_if_pending(is_taken, &polled);
        polled
    }

    /// Does the same as [`poll`](Self::poll), and records a yield check for inspections.
    pub(crate) fn poll_as_yield_check<R>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<R>,
    ) -> Poll<R> {
        Current::with(Current::note_yield_check);
        self.poll(cx, poll)
    }

    /// Makes the next call of [`spend`](Self::spend) return `Ready`.
    pub(crate) fn skip(&mut self) {
        self.is_over = true;
    }
}

/// Takes one unit from the budget of the turn. Returns `Pending` if the budget is spent or the process was asked to
/// yield. In this case, the task is polled again after other tasks. Otherwise returns whether a unit was taken.
#[inline]
fn spend_budget(cx: &Context<'_>) -> Poll<bool> {
    let spent = Current::with(Current::poll_spend);
    if spent.is_pending() {
        pause(cx);
    }
    spent
}

/// Records that the future pauses, and wakes the task of the future. This task is polled again after other tasks.
#[cold]
fn pause(cx: &Context<'_>) {
    Current::with(Current::note_pause);
    cx.waker().wake_by_ref();
}

/// Takes one unit if a unit is left. Returns whether a unit was taken. Without a budget, no unit is taken.
#[cold]
fn spend_if_left() -> bool {
    Current::with(|current| current.has_budget() && current.spend())
}

/// If a unit was taken and the future is pending, gives the unit back to the budget. Without this function, many
/// pending futures that are polled together would spend the whole budget. The last of these futures would then never be
/// polled.
pub(crate) fn refund_if_pending<R>(is_taken: bool, polled: &Poll<R>) {
    if is_taken && polled.is_pending() {
        Current::with(Current::refund);
    }
}

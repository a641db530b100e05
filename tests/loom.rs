//! The model checker over the crate's own protocols; the models are in `src/model`.
//!
//! ```sh
//! RUSTFLAGS="--cfg procession_loom" cargo test --release --test loom
//! ```
//!
//! explores every execution with at most two preemptions, or as many as `LOOM_MAX_PREEMPTIONS` says, and fails when a
//! model has fewer of them than stated here: one that shrinks silently shows nothing. With
//! `--cfg procession_bug="…"` besides, the model must fail:
#![cfg(procession_loom)]

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use procession::model::{completion, idle, mailbox, slots};

/// Runs `model` in every way there is, which are `least` at least.
fn explore(name: &str, least: usize, model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(2);
    builder.max_branches = 20_000;
    let executions = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&executions);
    builder.check(move || {
        count.fetch_add(1, Relaxed);
        model();
    });
    let executions = executions.load(Relaxed);
    // Past the capture of the test harness: the number is to be seen when all is well.
    let _ = writeln!(std::io::stderr(), "{name}: {executions} executions");
    assert!(executions >= least, "{name} has shrunk: {executions} executions, where there were {least}");
}

macro_rules! models {
    ($($module:ident :: $model:ident, $least:expr;)*) => {
        $(#[test] fn $model() { explore(stringify!($module::$model), $least, $module::$model); })*
    };
}

models! {
    mailbox::one_sender, 1;
    mailbox::two_senders, 1;
    mailbox::own_waker, 1;
    mailbox::other_waker, 1;
    mailbox::signal_keeps_its_place, 1;
    mailbox::signal_wakes_both, 1;
    mailbox::first_turn, 1;
    mailbox::close_against_push, 1;
    idle::one_pusher, 1;
    idle::two_pushers, 1;
    idle::last_searcher, 1;
    idle::chosen_lender_leaves, 1;
    idle::lender_blocks, 1;
    idle::lender_is_polled, 1;
    idle::two_lenders, 1;
    idle::nearer_deadline, 1;
    completion::two_answers, 1;
    completion::answer_against_exit, 1;
    completion::answer_against_cancel, 1;
    completion::answer_against_poll, 1;
    completion::answer_against_poll_by_the_task, 1;
    completion::watch_against_cancel, 1;
    slots::stale_pid, 1;
    slots::two_come_at_once, 1;
    slots::slot_wears_out, 1;
}

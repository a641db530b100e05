//! Runs the model checker loom on the protocols of this crate. The models themselves are in `src/model`.
//!
//! ```sh
//! RUSTFLAGS="--cfg procession_loom" cargo test --release -p checks --test loom
//! ```
//!
//! loom explores every execution with at most two preemptions. `LOOM_MAX_PREEMPTIONS` sets another maximum. A model
//! that is marked "large" gets one preemption less. The table below lists a minimum number of executions for each
//! model. If a model has fewer executions than this minimum, its test fails, because the model has become smaller and
//! verifies less. The `idle` models run the whole scheduler, so each change of the scheduler changes their numbers of
//! executions a little. Therefore the minimums of the `idle` models are about a tenth below the measured numbers.
//!
//! Each line below names a planted bug and a test. If `PROCESSION_BUG` is set to the name of the bug, this test must
//! fail:
//!
//! - drain_does_not_wait: one_sender
//! - run_state_wake_trusts_active: two_wakes
//! - run_state_waits_with_a_store: two_wakes
//! - receiver_unlocks: own_waker
//! - slot_is_taken_back_anyway: own_waker
//! - other_does_not_recall: read_elsewhere
//! - replaced_receiver_takes: failed_trial
//! - replaced_receiver_takes: reclaimed_by_events
//! - slot_is_behind: signal_keeps_its_place
//! - push_unlocks: close_against_push
//! - signal_forgets_taken: signal_keeps_its_place
//! - signal_wakes_receiver_only: signal_wakes_both
//! - down_does_not_wake: downs_wake_the_reader
//! - answer_does_not_wake: notices_against_pulls
//! - answer_does_not_wake: answer_wakes_the_reader
//! - urgent_is_overlooked: urgent_against_two_messages
//! - measured_message_does_not_wake: measured_messages_against_a_message
//! - idle_no_fence: guest_blocks
//! - idle_no_fence: one_pusher
//! - idle_wakes_one_polled: guest_is_forgotten
//! - idle_no_second_look: one_pusher
//! - idle_leaver_does_not_notify: chosen_guest_leaves
//! - idle_last_searcher_does_not_notify: last_searcher
//! - idle_stop_has_no_fence: push_against_last_searcher
//! - idle_batch_counts_one: batch
//! - idle_timekeeper_is_checked_once: timekeeper_leaves
//! - idle_finder_wakes_no_timekeeper: timekeeper_finds_work
//! - poller_opens_without_rearm: first_socket
//! - timekeeper_only_tries_lock: guest_asks_against_worker
//! - poll_without_wait_takes_wake_up: guest_asks_against_guest
//! - poller_forgets_wake_ups: guest_asks_against_stop
//! - guest_polls_for_outside: helper_against_guest
//! - outside_wait_is_not_noted: last_worker_against_outside
//! - poller_ignores_token: push_against_poller
//! - stop_waits_for_own_thread: helper_stops
//! - polled_guest_looks_early: polled_guest_against_leaver
//! - guest_in_poller_is_not_noted: guest_waits_in_poller
//! - rearm_forgets_timekeeper: nearer_deadline
//! - rearm_forgets_timekeeper: nearer_deadline_in_poller
//! - rearm_forgets_timekeeper: nearer_deadline_against_hand_over
//! - monitor_has_no_fence: monitor_sleeps_against_begin
//! - handover_starts_no_worker: behind_a_long_step
//! - handover_wakes_no_thief: behind_a_long_step
//! - handover_wakes_no_thief: spawned_by_a_long_step
//! - handover_returns_anyway: return_against_hand_over
//! - handover_is_undone: late_hand_over_against_return
//! - reply_keeps_listener: answer_to_a_new_waiter
//! - reply_wakes_early: answer_to_a_task
//! - reply_wakes_early: answer_to_another_waiter
//! - reply_watch_looks_early: leaving_against_watch
//! - yields_complete_twice: two_answers
//! - yields_answer_is_a_store: two_answers_without_lock
//! - yields_close_is_a_store: answer_without_lock_against_cancel
//! - yields_close_is_a_store: completion_against_tag
//! - yields_close_keeps_states: answer_without_lock_against_exit
//! - yields_close_keeps_slots: answer_against_exit
//! - yields_cancel_always_wins: answer_against_cancel
//! - yields_cancel_forgets_event: answer_against_cancel
//! - yields_admit_what_was_cancelled: admit_against_cancel
//! - yields_admit_what_was_cancelled: admitted_answer_against_cancel
//! - yields_poll_forgets_waker: answer_against_poll
//! - yields_poll_forgets_waker: answer_against_poll_by_the_task
//! - yields_cancel_forgets_watchers: watch_against_cancel
//! - stream_pull_forgets_sender: items_against_pulls
//! - stream_forgets_puller: items_against_pulls
//! - stream_end_overtakes: notices_against_pulls
//! - yields_cancel_forgets_watchers: sender_against_cancel
//! - names_register_looks_early: register_against_end
//! - names_claim_unlocks: two_want_a_name
//! - bounded_pop_admits_no_sender: two_wait_for_room
//! - bounded_close_does_not_wake: room_against_close
//! - links_look_before_locking: link_against_exit
//! - links_take_exit_without_link: unlink_against_exit
//! - links_lock_in_any_order: two_link_at_once
//! - links_down_ignores_demonitor: demonitor_against_exit
//! - links_down_ignores_demonitor: carried_monitor_against_demonitor
//! - groups_look_before_watching: watch_against_join
//! - cancel_enter_unlocks: adopt_against_cancel
//! - cancel_enter_unlocks: child_against_cancel
//! - cancel_notifies_in_preorder: adopt_against_cancel
//! - counts_release_relaxed: clone_against_upgrade_and_drop
//! - counts_upgrade_from_zero: two_upgrades_against_the_last_drop
//! - counts_free_unordered: weak_drops_against_the_last_drop
//! - relay_ignores_generation: stale_pid
//! - relay_unlocks_early: two_inserts_at_once
//! - relay_never_retires: slot_wears_out
//! - timers_cancel_ignores_number: cancel_against_fire
//! - timers_update_is_always_in_time: waker_against_fire
//! - timers_turn_publishes_late: insert_against_turn
//! - timers_keeper_looks_once: insert_against_keeper
//! - trace_reads_torn_record: copy_against_overwriting
//! - trace_writer_has_no_fence: copy_against_overwriting
//! - trace_reader_has_no_fence: copy_against_overwriting
#![cfg(procession_loom)]

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use procession::model::{
    answer, cancel, completion, counts, groups, handover, idle, links, mailbox, names, poller, room, run_state, slots,
    stream, timers, trace_ring,
};

/// Explores the executions of `model`, with one preemption less if the model is `large`. Panics if there are fewer than
/// `least` executions.
fn explore(name: &str, large: bool, least: usize, model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(2) - usize::from(large));
    builder.max_branches = 20_000;
    let executions = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&executions);
    builder.check(move || {
        count.fetch_add(1, Relaxed);
        model();
    });
    let executions = executions.load(Relaxed);
    // The test writes this line directly to stderr, because the test harness captures the output of `eprintln!` in
    // tests that pass.
    let _ = writeln!(std::io::stderr(), "{name}: {executions} executions");
    // A planted bug may reduce the number of executions. The bug counts as found only if the model itself fails.
    let has_bug = std::env::var_os("PROCESSION_BUG").is_some();
    assert!(has_bug || executions >= least, "{name} has shrunk: {executions} executions, where there were {least}");
}

macro_rules! models {
    ($($module:ident :: $model:ident $($large:literal)?, $least:expr;)*) => {
        $(#[test]
        fn $model() {
            let large = [$($large)?].contains(&"large");
            explore(concat!(stringify!($module), "::", stringify!($model)), large, $least, $module::$model);
        })*
    };
}

models! {
    mailbox::one_sender, 661;
    mailbox::two_senders, 188_230;
    mailbox::own_waker, 63_590;
    mailbox::delivered_in_order, 20_416;
    mailbox::read_elsewhere, 10_999;
    mailbox::no_wait_after_all, 2_275;
    mailbox::failed_trial, 6278;
    mailbox::reclaimed_by_events, 3376;
    mailbox::other_waker, 9829;
    mailbox::signal_keeps_its_place, 84_480;
    mailbox::signal_wakes_both, 85;
    mailbox::downs_wake_the_reader, 2526;
    run_state::two_wakes, 6474;
    run_state::a_wake_after_a_wake, 300;
    mailbox::close_against_push, 1910;
    mailbox::urgent_against_two_messages "large", 21_000;
    mailbox::measured_messages_against_a_message, 14_000;
    names::register_against_end, 23;
    names::two_want_a_name, 7;
    room::two_wait_for_room, 1094;
    room::room_against_close, 149;
    room::cancelled_send_against_pop, 11;
    idle::one_pusher, 198;
    idle::two_pushers, 7347;
    idle::last_searcher "large", 7883;
    idle::push_against_last_searcher "large", 31_000;
    idle::batch "large", 14_000;
    idle::chosen_guest_leaves, 4339;
    idle::guest_blocks, 48;
    idle::guest_is_polled, 48;
    idle::guest_is_forgotten, 11;
    idle::two_guests, 15_900;
    idle::nearer_deadline, 120;
    idle::timekeeper_leaves, 1000;
    idle::timekeeper_finds_work "large", 19_000;
    idle::nearer_deadline_against_hand_over "large", 42_000;
    idle::monitor_sleeps_against_begin, 25;
    poller::first_socket, 160;
    poller::push_against_poller, 237;
    poller::guest_waits_in_poller, 29;
    poller::guest_asks_against_worker, 12_500;
    poller::guest_asks_against_stop, 10_000;
    poller::guest_asks_against_guest, 7900;
    poller::nearer_deadline_in_poller, 190;
    poller::helper_against_guest, 1200;
    poller::last_worker_against_outside, 44_000;
    poller::helper_stops, 31;
    poller::polled_guest_against_leaver, 2150;
    handover::behind_a_long_step, 120_000;
    handover::spawned_by_a_long_step, 90_000;
    handover::return_against_hand_over, 27_000;
    handover::late_hand_over_against_return, 2490;
    answer::answer_to_a_task, 128;
    answer::answer_to_another_waiter, 44;
    answer::answer_to_a_new_waiter, 89;
    answer::answer_against_leaving, 960;
    answer::leaving_against_watch, 72;
    answer::leaving_against_unwatch, 41;
    completion::two_answers, 15;
    completion::two_answers_without_lock, 4;
    completion::completion_against_tag, 7;
    completion::answer_against_exit, 32;
    completion::answer_without_lock_against_exit, 23;
    completion::answer_against_cancel, 30;
    completion::answer_without_lock_against_cancel, 26;
    completion::answer_wakes_the_reader, 18;
    completion::watch_against_answer, 17;
    completion::watch_against_answer_without_lock, 12;
    completion::admit_against_cancel, 2;
    completion::admitted_answer_against_cancel, 5;
    completion::answer_against_poll, 27;
    completion::answer_against_poll_by_the_task, 18;
    completion::watch_against_cancel, 8;
    completion::unwatch_against_cancel, 9;
    counts::clone_against_upgrade_and_drop, 446;
    counts::two_upgrades_against_the_last_drop, 1206;
    counts::weak_drops_against_the_last_drop, 131;
    links::link_against_exit, 22;
    links::unlink_against_exit, 31;
    links::two_link_at_once, 65;
    links::two_ends_at_once, 70;
    links::monitor_against_send_and_exit, 22;
    links::demonitor_against_exit, 20;
    links::carried_monitor_against_demonitor, 5;
    links::carried_monitor_against_both_ends, 178;
    cancel::adopt_against_cancel, 5;
    cancel::child_against_cancel, 9;
    cancel::two_cancel_at_once, 8;
    cancel::drop_against_cancel, 5;
    groups::watch_against_join, 11;
    groups::watch_against_end, 19;
    groups::members_against_new_group, 22;
    slots::stale_pid, 20;
    slots::two_inserts_at_once, 8;
    slots::slot_wears_out, 57;
    stream::items_against_pulls, 600;
    stream::notices_against_pulls, 336;
    stream::sender_against_cancel, 9;
    timers::cancel_against_fire, 114;
    timers::waker_against_fire, 27;
    timers::insert_against_turn, 84;
    timers::insert_against_keeper, 5;
    trace_ring::copy_against_overwriting, 3319;
}

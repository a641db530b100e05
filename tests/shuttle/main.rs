//! Runs whole runtimes under the randomized schedules of shuttle. At every lock, atomic operation, park and thread
//! spawn of the crate, shuttle may switch to another thread.
//!
//! ```sh
//! RUSTFLAGS="--cfg procession_shuttle" cargo test --release -p checks --test shuttle
//! ```
//!
//! Each scenario runs `SHUTTLE_ITERATIONS` times (2,000 by default). Half of the runs use random schedules. The other
//! half of the runs uses PCT (Burckhardt et al., *A Randomized Scheduler with Probabilistic Guarantees of Finding
//! Bugs*, ASPLOS 2010). A lost wake-up causes a deadlock, and shuttle reports deadlocks. The scenarios assert all other
//! properties. The clock does not advance. Therefore, a deadline after the start time never passes. Every other
//! deadline has already passed at the start. shuttle does not explore weak memory orderings. The tests in
//! `tests/loom.rs` explore weak memory orderings.
//!
//! Each line below names a planted bug and a test. If `PROCESSION_BUG` is set to the name of the bug, this test must
//! fail:
//!
//! - receiver_unlocks: two_processes_wake_each_other
//! - push_unlocks: a_send_races_with_a_kill
//! - idle_no_second_look: guest_threads_drive_the_runtime
//! - bounded_pop_admits_no_sender: free_places_go_to_waiting_senders
//! - links_look_before_locking: a_link_races_with_an_exit
//! - handover_starts_no_worker: a_blocked_worker_is_replaced
//! - ranks_are_overlooked: a_call_wakes_a_process_of_another_priority
//! - rearm_forgets_timekeeper: due_timers_fire
//! - cancel_enter_unlocks: a_tree_grows_while_it_is_cancelled
//! - cancel_enter_unlocks: children_are_spawned_while_their_token_is_cancelled
//! - cancel_notifies_in_preorder: a_token_is_awaited_on_several_threads
//! - groups_look_before_watching: monitors_observe_members_that_join_and_leave
//! - upgrade_does_not_wake_itself: a_body_is_replaced_while_messages_arrive
//! - upgrade_does_not_step_again: a_hand_written_process_is_replaced_while_messages_arrive
//! - yields_admit_what_was_cancelled: an_inline_command_is_cancelled_on_another_thread
//! - local_drop_looks_once: a_local_set_is_dropped_while_messages_arrive
//! - scope_adopts_unlocked: a_scope_is_killed_while_it_grows
//! - end_skips_links_of_empty_mailbox: a_mailbox_is_awaited_on_another_thread
#![cfg(procession_shuttle)]

use std::time::Duration;

use procession::*;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, MaxSteps, Runner};

macro_rules! scenarios {
    ($($(#[$doc:meta])* fn $name:ident() $body:block)*) => {
        $($(#[$doc])* #[test] fn $name() { crate::explore(|| $body); })*
    };
}

mod cancel;
mod commands;
mod embedding;
mod groups;
mod layers;
mod links;
mod mail;
mod names;
mod scheduling;
mod scopes;
mod streams;
mod supervisors;
mod upgrades;

/// Maximum bug depth of the PCT scheduler. The depth of a bug is the number of events that must happen in a certain
/// order to cause the bug.
const DEPTH: usize = 3;
/// Maximum number of steps of a schedule. Each scenario needs fewer steps. A longer schedule would never end, so the
/// test fails.
const STEPS: usize = 1_000_000;
/// Number of schedules that one of the two schedulers produces before the other scheduler continues.
const ROUND: usize = 1_000;

/// A timeout that never elapses, because the clock does not advance.
const LONG: Duration = Duration::from_secs(1);

fn explore(scenario: fn()) {
    let times = std::env::var("SHUTTLE_ITERATIONS").map_or(2_000, |times| times.parse().expect("a number"));
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.max_steps = MaxSteps::FailAfter(STEPS);
    for done in (0..times).step_by(2 * ROUND) {
        let round = (times - done).min(2 * ROUND);
        Runner::new(RandomScheduler::new(round / 2), config.clone()).run(scenario);
        Runner::new(PctScheduler::new(DEPTH, round.div_ceil(2)), config.clone()).run(scenario);
    }
}

fn runtime(workers: usize) -> Runtime {
    builder(workers).build().expect("a runtime")
}

fn builder(workers: usize) -> Builder {
    Runtime::builder().workers(workers).seed(1).long_step_threshold(Duration::MAX)
}

/// Polls the future on this thread, which does not drive the runtime.
fn futures_block_on<F: Future>(future: F) -> F::Output {
    shuttle::future::block_on(future)
}

enum Msg {
    Add(u64),
    Sum(Reply<u64>),
}

async fn adds(mut ctx: Context<Msg>) -> Result<u64, Exit> {
    let mut sum = 0;
    loop {
        match ctx.receive().await {
            Ok(Msg::Add(n)) => sum += n,
            Ok(Msg::Sum(reply)) => reply.send(sum),
            Err(Exit::Cancelled(_)) => return Ok(sum),
            Err(exit) => return Err(exit),
        }
    }
}

/// Waits for one message, then returns. If the process is cancelled, fails with the reason of the cancellation.
async fn waits(mut ctx: Context<()>) -> Result<(), Exit> {
    ctx.receive().await
}

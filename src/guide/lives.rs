//! How lives end, and who hears of it: exits, links and monitors, rule by rule.
//!
//! A process ends once, with one [`Exit`](crate::Exit). Whoever holds its [`JoinHandle`](crate::JoinHandle) gets the
//! result or that exit; [`ended`](crate::Host::exited) tells anybody. Two other ways are for processes among each other,
//! and mean what they mean in Erlang:
//!
//! - a **link** is for those that have no business living on without each other. It goes both ways: an exit that is not
//!   normal ends the other one too, unless that [traps exits](crate::SelfHandle::trap_exit) and so hears of it by an
//!   [`Event::Exit`](crate::Event::Exit);
//! - a **monitor** is for those that only want to know. It goes one way: an [`Event::Down`](crate::Event::Down), for
//!   every kind of end.
//!
//! ```
//! use procession::{Context, Event, Exit, Runtime};
//!
//! async fn worker(_: Context, n: u64) -> Result<u64, String> {
//!     if n == 3 { Err("three".into()) } else { Ok(n) }
//! }
//!
//! async fn parent(mut ctx: Context) -> Result<String, Exit> {
//!     ctx.trap_exit(true);
//!     let _ = ctx.spawn_link(|ctx| worker(ctx, 1));
//!     let (_, watch) = ctx.spawn_monitor(|ctx| worker(ctx, 3));
//!     let mut told = Vec::new();
//!     while told.len() < 2 {
//!         match ctx.event().await {
//!             Event::Exit { exit, .. } => told.push(format!("linked: {exit}")),
//!             Event::Down { monitor, exit, .. } if monitor == watch => told.push(format!("monitored: {exit}")),
//!             _ => {}
//!         }
//!     }
//!     told.sort();
//!     Ok(told.join("; "))
//! }
//! let rt = Runtime::new()?;
//! let told = rt.block_on(rt.spawn(parent))?;
//! assert_eq!(told, "linked: ended normally; monitored: failed: three");
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! # The rules
//!
//! Beside each stands the test that holds it, in `tests/it/links.rs`.
//!
//! | rule | test |
//! |---|---|
//! | **Order.** What a process sent before its end arrives before its `Down` and its `Exit`. | `messages_sent_before_an_exit_arrive_before_it` |
//! | Whoever hears of an end finds the names of the dead free, its pid leading nowhere, and one process less. | `a_process_is_gone_before_its_exit_is_delivered` |
//! | Downs and exits wait for [`event`](crate::Mailbox::event): a receive leaves them where they are. | `downs_wait_for_event` |
//! | **Links.** An abnormal exit (an error, a panic, a failed `init`, a kill, a cancel) ends whoever is linked: `Exit::Linked`. | `an_abnormal_exit_ends_linked_processes` |
//! | It does so from either end. | `a_link_works_in_both_directions` |
//! | `Exit::Linked` names the first to die and how that one ended, and is never nested. | `an_exit_names_its_origin_along_any_chain` |
//! | A normal exit is nothing to the linked, unless they trap. | `a_normal_exit_is_ignored_unless_trapped` |
//! | Trapped, an exit is an event; what counts is whether one traps when it arrives. | `a_trapped_exit_is_an_event` |
//! | A kill can't be trapped. It comes to the linked as `Killed`, which can. | `a_kill_cannot_be_trapped_but_its_exit_signal_can` |
//! | Linking to the dead is `Err(NoProcess)`; to one that traps, an exit event. | `linking_to_an_exited_process_is_an_error_or_an_event` |
//! | A second link changes nothing; to itself, a process is not linked. | `a_second_link_and_a_link_to_oneself_have_no_effect` |
//! | Once an unlink has returned, nothing new comes of the other's end. | `no_exit_arrives_after_an_unlink` |
//! | An exit that comes to a process that dies of something else is neither heard twice nor lost: it has one exit. | `an_exit_signal_races_another_exit_reason`, `two_linked_processes_are_killed_concurrently` |
//! | A circle or a clique of linked processes dies once, one turn each, in work linear in its links. | `a_circle_of_links_exits_once`, `a_clique_of_links_exits_once` |
//! | **Monitors.** The dead give one down, `NoProcess`; to oneself there is none. | `monitoring_an_exited_process_delivers_one_down` |
//! | Each monitor has a down of its own; normal ends are told too. | `each_monitor_delivers_one_down` |
//! | A monitor that is taken back in time never tells, and says so; a flush takes also a down that was not read. | `demonitor_reports_and_flushes_a_queued_down` |
//! | A link and a monitor on one process both tell. | `a_link_and_a_monitor_both_deliver_an_event` |
//! | **Spawning.** `spawn_link`, `spawn_monitor` and both at once are set before the child runs: no end is missed, in `init` neither. | `links_and_monitors_are_set_before_the_child_begins` |
//! | A spawn that is refused tells as an end does, where the refusal is not returned as an error. | `a_refused_spawn_delivers_its_refusal` |
//! | **Elsewhere.** SpawnLinks reach all hosts of a runtime. A pid of another node is told of as `NodeDown`. | `links_and_monitors_reach_other_hosts_but_no_other_runtime` |
//! | A [mailbox outside](crate::Host::mailbox) any process is tied as a process is. | `mailboxes_outside_processes_can_link_and_monitor` |
//! | A hand-written process does and hears the same. | `a_hand_written_process_receives_downs_and_exits` |
//! | Random graphs of links, ends and kills do as an executable model says. | `random_graphs_behave_like_the_model` |
//!
//! # Supervisors
//!
//! A [`Supervisor`](crate::Supervisor) is a process that keeps others alive. The tests stand in `tests/it/supervisors.rs`;
//! what it decides is pure data (`src/supervisor/plan.rs`), with tables of its own.
//!
//! | rule | test |
//! |---|---|
//! | Children start in order, each when the one before has started, or has said [`ready`](crate::SelfHandle::mark_started); they stop in reverse. | `children_start_in_order_and_stop_in_reverse` |
//! | One for one: whoever ends is started again, under its name; the others do not care. | `a_child_is_restarted_under_its_name` |
//! | One for all: all the others are stopped, and all started again. | `one_for_all_restarts_all_children` |
//! | Rest for one: those that were added later go with it. | `rest_for_one_restarts_the_later_children` |
//! | Permanent, transient, temporary. | `restart_policies_are_obeyed` |
//! | Failed starts count as restarts: a factory that panics, a name that is taken, an end before it was ready. | `failed_starts_count_as_restarts` |
//! | Past the intensity it stops all and fails with [`RestartIntensityExceeded`](crate::RestartIntensityExceeded); the supervisor above restarts the branch. | `a_supervisor_that_exceeds_its_intensity_is_restarted_by_the_one_above` |
//! | A restart may wait, longer each time; nobody else waits with it, save a group that is restarted together. | `a_backoff_grows` |
//! | Each child has its own time to end, and its supervisor's deadline; then it is killed. | `each_child_has_its_own_shutdown_time` |
//! | Children are added, stopped, restarted, removed, counted and listed while it runs; one that is added and fails to start is none. | `children_are_managed_at_run_time` |
//! | A mailbox that is kept outlives its readers: nothing that was not taken is lost, and order holds. | `a_kept_mailbox_outlives_its_child`, `a_kept_mailbox_loses_no_unread_message` |
//! | Nobody lives twice: no life begins before the last one is over, and of a supervisor that was killed, before its children's are. | `a_child_never_has_two_instances` |
//! | The abnormal end of whoever it is linked to ends it, in order. | `a_supervisor_exits_in_order_after_a_linked_process` |
//! | A [shutdown](crate::Runtime::shutdown) ends the supervisors at the top first, each its children in reverse; when the last tree is down, the rest. | `a_shutdown_stops_the_supervision_trees_first` |
//! | A branch that was not told yet mends itself meanwhile. | `a_branch_that_was_not_stopped_yet_restarts_its_children` |
//! | All within the deadline of the shutdown; who is left then is killed and named. | `a_shutdown_keeps_to_its_deadline` |
//! | Random trees under storms of kills do as an executable model says (`tests/it/trees.rs`). | `random_trees_behave_as_the_model_allows` |
//!
//! # Deadlines and cancel tokens
//!
//! What a process spawns inherits its deadline and its [`CancelToken`](crate::CancelToken). The tests stand in
//! `tests/it/cancel.rs`.
//!
//! | rule | test |
//! |---|---|
//! | Of several deadlines the nearest holds, whoever set it. | `the_nearest_deadline_applies` |
//! | A token that is cancelled tells children before parents: what is below a child token first, and the newest first. | `a_token_notifies_children_before_parents` |
//! | Whoever is spawned while it is cancelled, or later, is told too, from its beginning. | `processes_spawned_during_a_cancellation_are_cancelled`, `a_cancelled_token_cancels_later_processes` |
//! | Each is told once, and the first reason counts, whoever cancels what at the same time. | `a_parent_and_a_child_token_are_cancelled_concurrently` |
//! | Whoever has not ended after the grace is killed. | `a_process_is_killed_after_the_grace_of_its_token` |
//! | A process may cancel its own token; anybody may wait for one, on any thread. | `a_process_cancels_its_own_token`, `a_token_can_be_awaited_on_any_thread` |
//! | A token that is dropped cancels nobody. | `dropping_a_token_cancels_no_process` |
//! | The children of a supervisor are told by it alone, in its order, and none is restarted; one that is given a token or a deadline of its own heeds that. | `a_supervisor_under_a_token_ends_in_order`, `a_supervised_child_may_have_its_own_token` |
//! | A scope whose children are told before its body has not failed. | `a_scope_body_receives_the_cancellation_of_its_token` |
//!
//! # Where this differs from Erlang
//!
//! What processes do to each other here and on a real Erlang/OTP is compared by scenarios that run on both, as data, in
//! `tests/it/erlang`: `scenarios_have_the_same_outcomes_as_on_erlang`, `the_recorded_outcomes_are_those_of_erlang`. These differ, on purpose:
//!
//! - A link's exit takes effect at the next scheduling point of whoever dies of it, as a kill does: a step that runs is
//!   not interrupted, and if it ends the process, that is how it ended.
//! - The reason that travels is wrapped once, in `Linked`, so that the first to die is known; Erlang passes on the bare
//!   reason.
//! - A process is not ended by the *reason* `normal` or `kill` of somebody's choosing: there is no `exit(Pid, Reason)`.
//!   [`cancel`](crate::Host::cancel) asks, [`kill`](crate::Host::kill) does not.
//! - Of another node's pid the answer is at once `NodeDown`, whatever is attached for that node.
//! - A monitor is of a process, never of a name: whom a name led to is asked [once](crate::Host::whereis).
//! - A process may have several names, keeps one that it registers again, and only itself gives one back.
//! - A supervisor retries a child that fails to start, as often as its intensity allows, also at its own beginning. Its
//!   children are not linked to it, they can't cut themselves loose: killed, it takes all of them with it, also those that
//!   trap exits, and it has no other life before they are gone.
//! - A group that is restarted is those that live: who was stopped by hand, or had ended for good, stays down.
//! - To give up is to fail. A transient supervisor that gave up is restarted; in Erlang it ends in good order, with
//!   `shutdown`, and stays down.
//! - A supervisor knows no parent but the supervisor that it is a child of. Whoever else it is linked to ends it by an
//!   abnormal exit, and by no other; in Erlang the process that started it does by any, and others by none.
//! - A child that lives can be restarted by hand: it is stopped first.

//! Life cycle of a process: rules of exits, links, monitors, supervisors and cancellation. The tables name the test of
//! each rule.
//!
//! A process exits once, with one [`Exit`](crate::Exit). The future of its [`JoinHandle`](crate::JoinHandle) resolves
//! to the result or to that exit. Any thread can wait for the exit with [`exited`](crate::Host::exited). Processes also
//! observe each other by links and monitors, which have the semantics of Erlang:
//!
//! - A **link** is for two processes that cannot continue without each other. If one of the two linked processes exits
//!   abnormally, the other one exits too. A process that [traps exits](crate::SelfHandle::trap_exit) gets an
//!   [`Event::Exit`](crate::Event::Exit) instead.
//! - A **monitor** is for a process that only needs to know of the exit. After any exit, normal or not, the monitor
//!   delivers one [`Event::Down`](crate::Event::Down).
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
//!     let mut exits = Vec::new();
//!     while exits.len() < 2 {
//!         match ctx.event().await {
//!             Event::Exit { exit, .. } => exits.push(format!("linked: {exit}")),
//!             Event::Down { monitor, exit, .. } if monitor == watch => exits.push(format!("monitored: {exit}")),
//!             _ => {}
//!         }
//!     }
//!     exits.sort();
//!     Ok(exits.join("; "))
//! }
//! let rt = Runtime::new()?;
//! let exits = rt.block_on(rt.spawn(parent))?;
//! assert_eq!(exits, "linked: exited normally; monitored: failed: three");
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! # States
//!
//! <div>
#![doc = include_str!("process-states.svg")]
//! </div>
//!
//! [`ProcessState`](crate::observe::ProcessState) describes the states, and an [`Observer`](crate::Observer) sees each
//! transition.
//!
//! # Links and monitors
//!
//! The tests are in `tests/it/links.rs`.
//!
//! | rule | test |
//! |---|---|
//! | **Order.** Messages that a process sent before its exit arrive before its `Down` and its `Exit` event. | `messages_sent_before_an_exit_arrive_before_it` |
//! | When a `Down` or `Exit` event arrives, the names of the exited process are free, its pid leads to no process, and it is no longer counted as alive. | `a_process_is_gone_before_its_exit_is_delivered` |
//! | `Down` and `Exit` events wait for [`event`](crate::Mailbox::event). A receive leaves them in the mailbox. | `only_event_returns_down_and_exit_events` |
//! | **Links.** After an abnormal exit (an error, a panic, a failed `init`, a kill, a cancellation), each linked process exits with `Exit::Linked`. | `an_abnormal_exit_ends_linked_processes` |
//! | A link works in both directions, whichever process created it. | `a_link_works_in_both_directions` |
//! | `Exit::Linked` names the process that exited first, and its exit. One `Linked` never contains another. | `an_exit_names_its_origin_along_any_chain` |
//! | A linked process ignores a normal exit, unless it traps exits. | `a_normal_exit_is_ignored_unless_trapped` |
//! | A trapped exit is an event. The setting at the arrival of the exit counts. | `a_trapped_exit_is_an_event` |
//! | A process cannot trap its own kill. A process that is linked with a killed process receives `Killed`, and can trap it. | `a_kill_cannot_be_trapped_but_its_exit_signal_can` |
//! | Linking to an exited process is the error `NoProcess`. A process that traps exits gets an `Exit` event instead. | `linking_to_an_exited_process_is_an_error_or_an_event` |
//! | A second link between two processes changes nothing. A process cannot be linked with itself. | `a_second_link_and_a_link_to_oneself_have_no_effect` |
//! | After `unlink` has returned, no new exit arrives through the link. | `no_exit_arrives_after_an_unlink` |
//! | An exit signal can reach a process that exits for another reason. The process then has one exit, and each link and monitor delivers it once. | `a_process_exits_once_if_an_exit_signal_races_another_reason`, `two_linked_processes_can_be_killed_concurrently` |
//! | Each process of a circle or a clique of links exits once, in one turn. The total work is linear in the number of links. | `every_process_of_a_circle_of_links_exits_once`, `every_process_of_a_clique_of_links_exits_once` |
//! | **Monitors.** Monitoring an exited process delivers one `Down` with `NoProcess`. A monitor of the process itself delivers none. | `monitoring_an_exited_process_delivers_one_down_event` |
//! | Each monitor delivers its own `Down`, also after a normal exit. | `each_monitor_delivers_one_down_event` |
//! | `demonitor` returns whether it removed the monitor in time. `demonitor_flush` also removes an unread `Down`. | `demonitor_reports_a_queued_down_event_and_demonitor_flush_removes_it` |
//! | A link and a monitor on the same process each deliver an event. | `a_link_and_a_monitor_both_deliver_an_event` |
//! | **Spawning.** `spawn_link`, `spawn_monitor` and both together are set before the child runs. No exit is missed, not even one in `init`. | `links_and_monitors_are_set_before_the_child_begins` |
//! | A refused spawn delivers the same events as an exit, unless the refusal is returned as an error. | `a_refused_spawn_delivers_its_refusal_as_an_exit` |
//! | **Other hosts and nodes.** Links and monitors work between all hosts of a runtime. For a pid of another node they deliver `NodeDown`. | `links_and_monitors_reach_other_hosts_but_not_other_runtimes` |
//! | A [mailbox outside](crate::Host::mailbox) any process can link and monitor like a process. | `mailboxes_outside_processes_can_link_and_monitor` |
//! | A hand-written process has the same operations and receives the same events. | `a_hand_written_process_receives_down_and_exit_events` |
//! | Random graphs of links, exits and kills behave like an executable model. | `random_graphs_behave_like_the_model` |
//!
//! # Supervisors
//!
//! A [`Supervisor`](crate::Supervisor) is a process that starts other processes, its children, and restarts them. The
//! tests are in `tests/it/supervisors.rs`. The file `src/behaviour/supervisor/plan.rs` decides what a supervisor starts
//! and stops. This file contains no I/O, and has unit tests.
//!
//! | rule | test |
//! |---|---|
//! | Children start in order. Each starts when the child before it has started, or has called [`mark_started`](crate::SelfHandle::mark_started). Children stop in reverse order. | `children_start_in_order_and_stop_in_reverse_order` |
//! | One-for-one: only the child that exited is restarted, under the same name. | `a_child_is_restarted_under_its_name` |
//! | One-for-all: all other children are stopped, then all are started. | `one_for_all_restarts_all_children` |
//! | Rest-for-one: the children after the exited child are restarted with it. | `rest_for_one_restarts_the_later_children` |
//! | A permanent child is always restarted, a transient child after an abnormal exit, a temporary child never. | `restart_policies_are_obeyed` |
//! | A failed start counts as a restart: a factory that panics, a name that is taken, an exit before the start was complete. | `failed_starts_count_as_restarts` |
//! | Beyond its intensity, a supervisor stops its children and fails. [`Exit::error`](crate::Exit::error) finds the cause. The supervisor above it restarts the branch. | `a_supervisor_that_exceeds_its_intensity_is_restarted_by_its_parent_supervisor` |
//! | A backoff delays a restart, longer each time. Only children that are restarted together wait with it. | `a_backoff_grows` |
//! | Each child has its own time to stop, within the deadline of its supervisor. Then it is killed. | `each_child_has_its_own_shutdown_time` |
//! | Children are added, stopped, restarted, deleted, counted and listed while the supervisor runs. An added child that fails to start is removed. | `children_are_managed_at_run_time` |
//! | A kept mailbox outlives the instances of its child. No unread message is lost, and the order holds. | `a_kept_mailbox_outlives_its_child`, `a_kept_mailbox_loses_no_unread_message` |
//! | A child never has two instances at a time. A supervisor that was killed is restarted only after its children have exited. | `a_child_never_has_two_instances` |
//! | A supervisor stops its children and exits after the abnormal exit of a process that is linked with it. | `a_supervisor_exits_in_order_when_a_linked_process_fails` |
//! | A [shutdown](crate::Runtime::shutdown) first stops the supervision trees, from the top. Each supervisor stops its children in reverse order. The remaining processes are cancelled after the last tree. | `a_shutdown_stops_the_supervision_trees_first` |
//! | During a shutdown, a branch that was not stopped yet still restarts its children. | `a_branch_that_was_not_stopped_yet_restarts_its_children` |
//! | A shutdown keeps its deadline. Processes that are left then are killed and listed. | `a_shutdown_keeps_to_its_deadline` |
//! | Random trees under many kills behave as an executable model allows (`tests/it/trees.rs`). | `random_trees_behave_as_the_model_allows` |
//!
//! # Deadlines and cancel tokens
//!
//! A process inherits its deadline and its [`CancelToken`](crate::CancelToken) from the process that spawned it. The
//! tests are in `tests/it/cancel.rs`.
//!
//! | rule | test |
//! |---|---|
//! | Of several deadlines the nearest applies, whichever process set it. | `the_earliest_of_several_deadlines_applies` |
//! | A cancelled token notifies children before parents: first the processes of a child token, the newest first. | `a_token_notifies_children_before_parents` |
//! | A process that is spawned during the cancellation, or later, is cancelled from its beginning. | `processes_spawned_during_a_cancellation_are_cancelled`, `a_cancelled_token_also_cancels_processes_spawned_later` |
//! | Each process is notified once. Of several concurrent cancellations, the first reason counts. | `a_parent_and_a_child_token_can_be_cancelled_concurrently` |
//! | A process that has not exited after the grace period is killed. | `a_process_is_killed_after_the_grace_period_of_its_token` |
//! | A process can cancel its own token. Any thread can wait for a token. | `a_process_can_cancel_its_own_token`, `a_token_can_be_awaited_on_any_thread` |
//! | Dropping a token cancels no process. | `dropping_a_token_cancels_no_process` |
//! | The supervisor alone cancels its children, in its order, and restarts none of them. A child with a token or a deadline of its own also obeys that. | `a_supervisor_under_a_token_stops_its_children_in_order`, `a_supervised_child_may_have_its_own_token` |
//! | A scope does not fail if its children are cancelled before its body. | `a_scope_body_receives_the_cancellation_of_its_token` |
//!
//! # Differences from Erlang
//!
//! Scenarios in `tests/it/erlang` run both here and on Erlang/OTP, and the outcomes are compared:
//! `every_scenario_has_the_same_outcome_as_on_erlang`, `the_recorded_outcomes_equal_the_outcomes_of_erlang`. These differences are
//! intended:
//!
//! | in Erlang | here |
//! |---|---|
//! | An exit signal ends a linked process immediately. | The linked process exits at its next scheduling point, as after a kill. A step in progress is not interrupted. If that step ends the process, the exit of the step counts. |
//! | A link passes on the exit reason itself. | The exit is wrapped once, in `Linked`, with the pid of the process that exited first. |
//! | `exit(Pid, Reason)` sends any reason. | [`cancel`](crate::Host::cancel) asks the process to exit, [`kill`](crate::Host::kill) ends it. |
//! | A pid of an unreachable node answers when the connection fails. | A monitor or link answers immediately with `NodeDown`, whatever is attached for that node. |
//! | A monitor can be set on a name. | A monitor is set on a pid. [`whereis`](crate::Host::whereis) looks up the name once. |
//! | A process has at most one registered name. | A process may have several names. To register a name twice is no error. Only the process itself can unregister a name. |
//! | A child that fails to start ends the start of its supervisor. | The supervisor retries within its intensity, also at its own start. The supervisor fails immediately only if the runtime refuses the first start. |
//! | Children are linked to their supervisor. | Children cannot leave their supervisor. If the supervisor is killed, its children are killed too, also children that trap exits. The next instance starts when they have exited. |
//! | A restart of a group starts all its children. | A restart of a group starts the children that were running. A child that was stopped by hand, or had exited for good, stays down. |
//! | A supervisor that exceeds its intensity exits with `shutdown`. A transient supervisor stays down. | The supervisor fails. A transient supervisor is restarted. |
//! | The process that started a supervisor ends it by any exit, other linked processes do not. | A process that is linked with the supervisor ends it by an abnormal exit. |
//! | A child is restarted by hand only while it is down. | A running child can be restarted by hand. The supervisor stops it first. |

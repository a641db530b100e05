//! Life cycle of a process. This page contains the rules of exits, links, monitors, supervisors and cancellation. Each
//! rule in the tables has a test.
//!
//! A process exits once, with one [`Exit`](crate::Exit). The [`JoinHandle`](crate::JoinHandle) of a process is a future
//! that resolves to the result of the process or to the exit. Any thread can wait for the exit with
//! [`exited`](crate::Host::exited). Processes can also observe each other with links and monitors. Links and monitors
//! have the semantics of Erlang:
//!
//! - A **link** is for two processes that cannot continue without each other. If one of two linked processes exits
//!   abnormally, the other process also exits. If the other process [traps exits](crate::SelfHandle::trap_exit), the
//!   other process does not exit, but gets an [`Event::Exit`](crate::Event::Exit).
//! - A **monitor** is for a process that only needs a notice of the exit of another process. After any exit, even after
//!   a normal exit, the monitor delivers one [`Event::Down`](crate::Event::Down).
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
//!     ctx.spawn_link(|ctx| worker(ctx, 1));
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
//! [`ProcessState`](crate::observe::ProcessState) describes the states. An [`Observer`](crate::Observer) receives each
//! transition.
//!
//! [`Host::suspend`](crate::Host::suspend) stops the steps of one process until [`Host::resume`](crate::Host::resume).
//! The diagram does not show the state `Suspended`: a suspended process enters this state instead of `Running`. When an
//! event arrives, the process becomes `Ready`. The process stays `Ready` until a worker finds that the process is
//! suspended.
//!
//! # Links and monitors
//!
//! The tests are in `tests/it/links.rs`.
//!
//! | rule | test |
//! |---|---|
//! | **Order.** The messages that a process has sent arrive before the `Down` event and the `Exit` event of this process. | `the_messages_of_a_process_arrive_before_its_exit` |
//! | When a process receives a `Down` or `Exit` event, the exited process is already gone: the names of the exited process are free, its pid refers to no process, and the process is no longer counted as alive. | `a_process_is_gone_before_its_exit_is_delivered` |
//! | [`event`](crate::Mailbox::event) returns `Down` and `Exit` events. `receive` leaves these events in the mailbox. | `receive_leaves_down_and_exit_events_in_the_mailbox` |
//! | **Links.** After an abnormal exit (an error, a panic, a failed `init`, a kill, a cancellation), each linked process exits with `Exit::Linked`. | `an_abnormal_exit_ends_linked_processes` |
//! | A link works in both directions. Either process may create the link. | `a_link_works_in_both_directions` |
//! | `Exit::Linked` contains the pid and the exit of the process that exited first. An exit `Linked` never contains another exit `Linked`. | `an_exit_names_its_origin_along_any_chain` |
//! | A linked process that does not trap exits ignores a normal exit. | `a_normal_exit_is_ignored_unless_trapped` |
//! | A trapped exit arrives as an event. An exit is trapped if `trap_exit` is set when the exit arrives. | `a_trapped_exit_is_an_event` |
//! | A process cannot trap its own kill. The processes that are linked with the killed process receive the exit `Killed`, and can trap this exit. | `a_kill_cannot_be_trapped_but_its_exit_signal_can_be_trapped` |
//! | If a process links to an exited process, the call fails with the error `NoProcess`. If the caller traps exits, the caller gets an `Exit` event instead of the error. | `a_link_to_an_exited_process_causes_an_error_or_an_event` |
//! | A second link between two processes changes nothing, even during the exit of one of the two processes. A process cannot be linked with itself. | `a_second_link_and_a_link_to_oneself_have_no_effect`, `a_second_link_during_the_exit_has_no_effect` |
//! | After `unlink` has returned, no new exit arrives through the link. | `no_exit_arrives_after_an_unlink` |
//! | A process has only one exit, even if an exit signal arrives during its exit. Each link and monitor delivers this exit once. | `a_process_exits_once_if_an_exit_signal_races_another_reason`, `two_linked_processes_can_be_killed_concurrently` |
//! | If the links form a circle or a clique, each process exits once, in one turn. The total work is linear in the number of links. | `every_process_of_a_circle_of_links_exits_once`, `every_process_of_a_clique_of_links_exits_once` |
//! | **Monitors.** A monitor of an exited process delivers one `Down` with `NoProcess`. If a process monitors itself, the monitor delivers no `Down`. | `monitoring_an_exited_process_delivers_one_down_event` |
//! | Each monitor delivers its own `Down`, even after a normal exit. | `each_monitor_delivers_one_down_event` |
//! | If the `Down` was not queued yet, `demonitor` returns true. `demonitor_flush` also removes an unread `Down`. | `demonitor_keeps_a_queued_down_event_and_demonitor_flush_removes_the_event` |
//! | If a process has both a link and a monitor to another process, both the link and the monitor deliver an event. | `a_link_and_a_monitor_both_deliver_an_event` |
//! | **Spawning.** `spawn_link` and `spawn_monitor` set the link and the monitor before the child runs. Even an exit in `init` is delivered. | `links_and_monitors_are_set_before_the_child_begins` |
//! | Some spawn functions return a handle and no error. If the runtime refuses such a spawn, the link and the monitor report the refusal as an exit. | `a_refused_spawn_delivers_its_refusal_as_an_exit` |
//! | **Other hosts and nodes.** Links and monitors work between all hosts of a runtime. For a pid of another node, links and monitors deliver `NodeDown`. | `links_and_monitors_reach_other_hosts_but_not_other_runtimes` |
//! | A [mailbox outside any process](crate::Host::mailbox) can have links and monitors, as a process can. | `mailboxes_outside_processes_can_link_and_monitor` |
//! | A hand-written process has the same operations and receives the same events as an async body. | `a_hand_written_process_receives_down_and_exit_events` |
//! | Random graphs of linked processes, with exits and kills, behave like an executable model. | `random_graphs_behave_like_the_model` |
//!
//! # Supervisors
//!
//! A [`Supervisor`](crate::Supervisor) is a process that starts and restarts other processes. These other processes are
//! called the children of the supervisor. The tests are in `tests/it/supervisors.rs`. The code in
//! `src/behaviour/supervisor/plan.rs` decides which children a supervisor starts and stops. This code performs no I/O,
//! and has unit tests.
//!
//! | rule | test |
//! |---|---|
//! | Children start in order. A child starts when the previous child has started. With `manual_start`, a child has started when the child has called [`mark_started`](crate::SelfHandle::mark_started). Children stop in reverse order. | `children_start_in_order_and_stop_in_reverse_order` |
//! | With one-for-one, only the child that exited is restarted, under the same name. | `a_child_is_restarted_under_its_name` |
//! | With one-for-all, all other running children are stopped. Then the exited child and the stopped children are started. A child that was down before stays down. | `the_strategy_one_for_all_restarts_all_children` |
//! | With rest-for-one, the exited child and all running children after this child are restarted. | `the_strategy_rest_for_one_restarts_the_later_children` |
//! | A permanent child is always restarted. A transient child is restarted after every exit that is neither normal nor a cancellation. The cancellation of a linked process does not restart a transient child either. A temporary child is never restarted. | `restart_policies_are_obeyed` |
//! | A failed start counts as a restart. A start fails if the factory panics, if the name is taken, or if the child exits before its start is complete. There are three exceptions. If the runtime refuses the first start of a child, the supervisor fails. If the start of an added child fails, the child is removed. If the runtime refuses a requested start, the child stays stopped. | `failed_starts_count_as_restarts` |
//! | If the restarts exceed the intensity, the supervisor stops its children and fails. [`Exit::error`](crate::Exit::error) returns the cause. The parent supervisor then restarts the failed supervisor. | `a_supervisor_that_exceeds_its_intensity_is_restarted_by_its_parent_supervisor` |
//! | A backoff delays a restart, and grows with each restart. The backoff of a child delays only this child and the children that are restarted together with this child. | `a_backoff_grows` |
//! | Each child has its own time limit for the stop, within the deadline of its supervisor. A child that has not exited within this limit is killed. | `each_child_has_its_own_shutdown_time` |
//! | Children can be added, stopped, restarted, deleted, counted and listed while the supervisor runs. If an added child fails to start, the child is removed. | `children_are_managed_at_run_time` |
//! | A kept mailbox outlives the instances of its child. No unread message is lost, and the messages keep their order. | `a_kept_mailbox_outlives_its_child`, `a_kept_mailbox_loses_no_unread_message` |
//! | A child never has two instances at the same time. If a supervisor is killed, the supervisor is restarted only after its children have exited. | `a_child_never_has_two_instances` |
//! | If a process that is linked with a supervisor exits abnormally, the supervisor stops its children and exits. | `a_supervisor_stops_its_children_in_order_when_a_linked_process_fails` |
//! | A [shutdown](crate::Runtime::shutdown) first stops the supervision trees, from the top. Each supervisor stops its children in reverse order. After the last tree has exited, the remaining processes are cancelled. A process that is spawned meanwhile, and a child whose supervisor belongs to another runtime, are remaining processes. | `a_shutdown_stops_the_supervision_trees_first` |
//! | During a shutdown, a supervisor that has not been stopped yet still restarts its children. | `a_supervisor_restarts_its_children_until_a_shutdown_stops_the_supervisor` |
//! | A shutdown ends at its deadline. At the deadline, the shutdown kills the remaining processes, and returns a list of these processes. | `a_shutdown_keeps_to_its_deadline` |
//! | Random supervision trees with many kills behave as an executable model allows (`tests/it/trees.rs`). | `random_trees_behave_as_the_model_allows` |
//!
//! # Deadlines and cancel tokens
//!
//! A process inherits the deadline and the [`CancelToken`](crate::CancelToken) of its parent. The parent is the process
//! that has spawned this process. The tests are in `tests/it/cancel.rs`.
//!
//! | rule | test |
//! |---|---|
//! | If a process has several deadlines, the earliest deadline applies. | `the_earliest_of_several_deadlines_applies` |
//! | The cancellation of a token notifies the processes of the child tokens before the processes of the token itself. The processes of the newest child token are notified first. | `a_token_notifies_children_before_parents` |
//! | A process that is spawned during or after the cancellation is cancelled from its beginning. | `processes_that_are_spawned_during_a_cancellation_are_cancelled`, `a_cancelled_token_also_cancels_processes_that_are_spawned_later` |
//! | Each process is notified once. If several cancellations run concurrently, the first reason applies. | `a_parent_and_a_child_token_can_be_cancelled_concurrently` |
//! | If a process has not exited after the grace period, the process is killed. | `a_process_is_killed_after_the_grace_period_of_its_token` |
//! | A process can cancel its own token. Any thread can wait for a token. | `a_process_can_cancel_its_own_token`, `a_token_can_be_awaited_on_any_thread` |
//! | Dropping a token cancels no process. | `dropping_a_token_cancels_no_process` |
//! | A token of a supervisor does not cancel the children directly. The supervisor cancels its children in its own order, and restarts none of its children. If a child has its own token or deadline, this token or deadline also cancels the child. | `a_supervisor_under_a_token_stops_its_children_in_order`, `a_supervised_child_may_have_its_own_token`, `an_inherited_token_or_deadline_cancels_no_supervised_child_directly` |
//! | A token may cancel a process that was spawned by a child of a supervisor. If the child exits because of this cancellation, the supervisor does not restart the child. | `a_child_that_exits_because_of_the_token_of_its_supervisor_is_not_restarted` |
//! | If the children of a scope are cancelled before its body, the scope does not fail. | `a_scope_body_receives_the_cancellation_of_its_token` |
//!
//! # Differences from Erlang
//!
//! The scenarios in `tests/it/erlang` run on this crate and on Erlang/OTP. Two tests compare the outcomes:
//! `every_scenario_has_the_same_outcome_as_on_erlang` and `the_recorded_outcomes_equal_the_outcomes_of_erlang`. The
//! following differences are intended:
//!
//! | in Erlang | here |
//! |---|---|
//! | An exit signal ends a linked process immediately. | The linked process exits at its next scheduling point, as after a kill. A running step is not interrupted. If the running step ends the process, the exit of this step applies. If this step ends the process normally, no exit and no crash report contains the failure of the linked process. |
//! | A link delivers the exit reason itself. | The exit is wrapped once in `Linked`, with the pid of the process that exited first. |
//! | `exit(Pid, Reason)` sends any reason. | [`cancel`](crate::Host::cancel) asks the process to exit. [`kill`](crate::Host::kill) ends the process. |
//! | A monitor or link to a pid of an unreachable node delivers its event when the connection fails. | A monitor or link to a pid of another node delivers `NodeDown` immediately, even if a `Deliver` is attached for that node. |
//! | A monitor can be set on a name. | A monitor is set on a pid. [`whereis`](crate::Host::whereis) returns the pid of a name. |
//! | A process has at most one registered name. | A process may have several names. If a process registers the same name twice, the second registration is not an error. Only the process itself can unregister its names. |
//! | If a child fails to start, the start of its supervisor fails. | The supervisor tries again within its intensity, even at its own start. The supervisor fails immediately only if the runtime refuses the first start. |
//! | A child may be significant. If a significant child exits, `auto_shutdown` stops its supervisor. | No child is significant. The exit of a child stops its supervisor only if the restarts exceed the intensity, or if the runtime refuses the first start of the child. |
//! | A supervisor with the strategy `simple_one_for_one` has only children of one kind, and stops all of them at the same time. | There is no such strategy. [`StartChild`](crate::supervisor::SupervisorMessage::StartChild) adds children to any supervisor, and each supervisor stops its children one after another. |
//! | Children are linked to their supervisor. | A child cannot remove the relation to its supervisor. If the supervisor is killed, its children are also killed, even if the children trap exits. The next instance of the supervisor starts when the children have exited. |
//! | A restart of a group starts all its children. | A restart of a group starts the children that were running. A child that was stopped by a request, or that must not be restarted, stays stopped. |
//! | A supervisor that exceeds its intensity exits with `shutdown`. Such a supervisor is not restarted if it is a transient child. | The supervisor fails. Such a supervisor is restarted even if it is a transient child. |
//! | If the process that started a supervisor exits for any reason, the supervisor also exits. The exit of another linked process does not end the supervisor. | If a linked process exits abnormally, the supervisor also exits. |
//! | Only a stopped child can be restarted by a request. | A running child can also be restarted by a request. The supervisor first stops the child. |

//! The console shows the processes of a running program in another terminal. Needs the feature `console`.
//!
//! # Open a socket
//!
//! A runtime opens a console socket if its builder or an environment variable sets the path or the address of the
//! socket:
//!
//! | socket | how to open it |
//! |---|---|
//! | Unix socket at a path | [`Builder::console`](crate::Builder::console) |
//! | Unix socket, without a change of the program | the environment variable `PROCESSION_CONSOLE`, for example `/run/user/1000/%p.console`; `%p` is the process id, `%n` the node number |
//! | TCP socket with a token | [`Builder::console_tcp`](crate::Builder::console_tcp) |
//!
//! If the program opens no console socket, the console needs no additional thread. The program `procession-console`, in
//! the folder `examples/apps/console` of the repository, attaches to the socket.
//!
//! ```
//! use procession::Runtime;
//! use std::io::{BufRead, BufReader, Write};
//! use std::net::TcpStream;
//!
//! let rt = Runtime::builder().workers(0).console_tcp(([127, 0, 0, 1], 0), "a token of 16 bytes or more").build()?;
//! let mut stream = TcpStream::connect(rt.console_address().expect("a TCP socket"))?;
//! stream.write_all(b"{\"request\": \"authenticate\", \"token\": \"a token of 16 bytes or more\"}\n")?;
//! stream.write_all(b"{\"id\": 1, \"request\": \"processes\", \"limit\": 10}\n")?;
//! let lines: Vec<String> = BufReader::new(stream).lines().take(3).collect::<Result<_, _>>()?;
//! assert!(lines[0].contains("\"protocol\":\"procession-console\""));
//! assert!(lines[2].contains("\"processes_alive\":0"));
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! The first view of `procession-console` shows rates, totals, delays, and the states of the processes and workers:
//!
//! <div>
#![doc = include_str!("console-overview.svg")]
//! </div>
//!
//! The digit keys select the other views. The next image shows the view `Waits`: two processes call each other, and
//! wait forever:
//!
//! <div>
#![doc = include_str!("console-waits.svg")]
//! </div>
//!
//! The page [`troubleshooting`](super::troubleshooting) shows the view for each symptom.
//!
//! # Security
//!
//! - Only root and clients with the user id of the program can use the Unix socket. The socket file gets the
//!   permissions 0600 before the first client can connect. Use a folder in which no other user can create files.
//! - A client of the TCP socket must send the token first. The connection is not encrypted.
//! - A client sees the names, types, source lines, exits and metrics of all processes. A client also sees which process
//!   sends messages to which process. A client sees no contents of messages, and no state of a process.
//! - A client can change the program only with
//!   [`Builder::console_actions`](crate::Builder::console_actions).
//!
//! # Cost and limits
//!
//! The server is one thread, which sleeps until a request arrives. While a client has a live trace, the server wakes up
//! at least every 50 ms. While a client collects run times, each measured turn takes a lock: see
//! [`Host::sample_run_times`](crate::Host::sample_run_times). The requests `supervision_tree` and `restart_child` need
//! a worker. The server answers all other requests even while all workers are blocked. The server takes the same locks
//! as [`Host::processes`](crate::Host::processes), and holds only the locks of one process at a time. A client that
//! does not read its reply delays neither a worker nor another client. The actions `cancel`, `kill`, `suspend`,
//! `resume` and `set_priority` call the wakers and the [`Observer`](crate::Observer) of the program on the thread of
//! the server. If a waker or the observer blocks, the requests of all clients are delayed.
//!
//! This table shows the CPU time of the server's thread for one request per second. During the measurement, two
//! processes exchanged messages on a worker:
//!
//! | request | 1,000 processes | 100,000 processes |
//! |---|---|---|
//! | none, with an attached client | 0.00 % of a core | 0.00 % |
//! | `overview` | 0.02 % | 0.35 % |
//! | `processes` | 0.05 % | 0.68 % |
//! | `workers` and `run_times` | 0.01 % | 0.01 % |
//!
//! | limit | value | when a client exceeds the limit |
//! |---|---|---|
//! | clients of one socket | 8 | the ninth client takes the place of the oldest client without the token; if all clients have sent the token or need none, the ninth client gets the error `too_many_clients` |
//! | length of a request | 16 KiB | error `request_too_long`, and the connection closes |
//! | rows of one list | 1,000; default 50 | error `invalid_argument` |
//! | length of a reply | 1 MiB | error `reply_too_long` |
//! | length of a text in a reply | 1,000 characters | the text is cut, and ends with `…` |
//! | time in which the client reads a part of its reply | 10 s | the connection closes |
//! | time until the token of a TCP client | 10 s | the connection closes |
//! | time until the computer of a TCP client must acknowledge a keepalive probe of an idle connection | 90 s on most systems | the connection closes |
//!
//! Each client takes at most the memory of one request, one reply, one [live trace](#live-trace) and one table of run
//! times. Some answers need additional memory in the server: `wait_for_graph` for all edges of the graph, `process` for
//! all links of the process, and `supervision_tree` for a list of all processes in one supervision tree.
//!
//! # Protocol
//!
//! A client writes requests, and the server writes one reply for each request, in the same order. Each request and each
//! reply is a JSON object on one line. The first line of the server is the greeting:
//!
//! ```json
//! {"protocol": "procession-console", "version": 1, "token_required": false}
//! ```
//!
//! The version changes only if existing requests or fields change. A newer server may know more requests, and add
//! fields to its replies. A client must ignore unknown fields. The server also ignores unknown fields.
//!
//! A request has the field `request`, and the optional field `id`, which the reply repeats. If the `id` is a number,
//! the number must be an integer in the range of 64 bits. The reply repeats any other number as a floating-point
//! number, so the text of this number may change. The reply has either the field `ok` or the field `error`:
//!
//! ```json
//! {"id": 1, "request": "process", "pid": "<1-8f3a.0.1>"}
//! {"id": 1, "error": {"kind": "no_process", "message": "process <1-8f3a.0.1> has exited or never existed"}}
//! ```
//!
//! If `token_required` is true, the first request must be `authenticate`.
//!
//! | request | fields | reply |
//! |---|---|---|
//! | `authenticate` | `token` | nothing |
//! | `hello` | | the program, its process id, the node number, the requests and limits, and whether actions are on |
//! | `overview` | | `metrics`: the snapshot of [`Host::metrics`](crate::Host::metrics) |
//! | `processes` | `order` (a field of a row), `descending`, `limit`, `name`, `type` (texts that the name or the type contains), `state`, `min_mailbox_len` | `rows`: the rows of [`Host::processes`](crate::Host::processes) |
//! | `process` | `pid` | the fields of [`ProcessDetails`](crate::observe::ProcessDetails), with the newest 100 `last_messages`, each with `kind`, `type_name`, `from` and `at_ns`; each entry of `message_counts` has `kind`, `type_name` and `count` |
//! | `wait_for_graph` | `limit` | `edges` and `deadlocks` of [`Host::wait_for_graph`](crate::Host::wait_for_graph), and the numbers of all edges and of all deadlocks; `limit` also bounds the rows of all cycles together, and `cycle_len` and `behind_len` are the full lengths |
//! | `workers` | | `workers`: the number, the state and the queue of each worker. While a worker runs a task, its row also has `process` (the process that the worker runs), `polls`, `blocked_since_ns` (for a long step, and for a step that has called `block_in_place`), and `is_replaced` (true if another thread does the work of this worker). `requested`: the requested number of workers |
//! | `explain` | | `findings`: the kind, the duration `lasts_ns` (`null` if unknown) and the lines of the first 100 findings of [`Host::explain`](crate::Host::explain), with at most 500 lines; `finding_count`: the number of all findings; `activity`: lines about all processes |
//! | `supervision_tree` | | `rows`: the supervisors and their children; `depth` is 0 for a top-level supervisor, and the row of a child follows the row of its supervisor; `is_supervisor` is true for a supervisor; if a supervisor does not answer within 1 s, its field `supervisor` is null, its children are missing, and the state of a top-level supervisor is `unknown`; `supervisor` contains the strategy, the limit of restarts (`max_restarts`, `within_ns`), and the budget: `recent_restarts` is the number of counted restarts within the window, and `restarts_left` is the number of further restarts before the supervisor gives up; `row_count`: the number of all rows. The list leaves out the rows beyond the first 1,000 and the rows deeper than 64, but the number includes them |
//! | `last_exits` | `limit` | `exits`: the records of [`Host::last_exits`](crate::Host::last_exits), newest first, each with the newest 8 `last_messages` |
//! | `names` | `prefix`, `limit` | `rows`: the rows of [`Host::names`](crate::Host::names) for the first host of the runtime; `name_count`: the number of all names that begin with the prefix |
//! | `groups` | `prefix`, `limit` | `rows`: the rows of [`Host::groups`](crate::Host::groups) for the first host of the runtime; `group_count`: the number of all groups whose names begin with the prefix |
//! | `timers` | | `wheels`: the timer wheels that contain timers. Each row has the worker (`null`: the wheel of all other threads), the number of timers, and `nearest_ns`; `wheel_count`: the number of all wheels; `timer_count`: the number of all timers |
//! | `handlers` | `limit` | `rows`: the handlers of the first host; `kind` is `type`, `name` or `stream_name`; `outstanding`: the number of commands of this type without an answer; `others`: the outstanding commands of the types that have no handler in `rows`, namely commands with a name (counted as one type), built-in commands, and commands whose handler belongs to another host; `handler_count` and `other_count`: the numbers of all `rows` and of all `others` |
//! | `trace` | `pid`, `max_events` (default 1,000, at most 100,000), `max_rate` (events per second; default 1,000, at most 10,000), `max_ms` (default 60,000, at most 600,000) | starts the live trace of the process; `label`: its name and its type; the limits |
//! | `trace_events` | `limit` | `events`: the oldest events that the client has not read; `unread`: the number of further events; `event_count` and `lost`: the numbers of all events and of the lost events; `ended`: `null`, `max_events`, `max_ms` or `exit` |
//! | `stop_trace` | | `event_count` and `lost` |
//! | `run_times` | `limit` (of the processes and of the types; at most 100 of each are returned) | the fields of [`RunTimes`](crate::observe::RunTimes) since the previous `run_times` request of this client; the first request begins the collection; `stop_run_times`, the end of the connection, or a minute without this request ends the collection |
//! | `stop_run_times` | | nothing |
//! | `cancel` | `pid`, `reason`, `grace_ms` (default 5,000) | nothing |
//! | `kill` | `pid` | nothing |
//! | `suspend` | `pid` | nothing; see [`Host::suspend`](crate::Host::suspend) |
//! | `resume` | `pid` | nothing |
//! | `set_priority` | `pid`, `priority` (`Low`, `Normal`, `High`) | nothing |
//! | `set_workers` | `count` | `workers`: the number of workers that the runtime now has as its target; at most 48 |
//! | `restart_child` | either `pid` of the child, with an optional `supervisor` (a pid; default: the parent of the child), or `name` with `supervisor` | `pid`: the new instance; see [`RestartChild`](crate::supervisor::SupervisorMessage::RestartChild) |
//! | `write_flight_record` | | `path`: the file, in the [`folder`](crate::observe::FlightRecorder::folder) of the program's options; `events`, `overwritten`, `complete_ns`: see [`FlightSummary`](crate::observe::FlightSummary) |
//!
//! - The last eight requests in this table are actions.
//! - The supervisors answer `supervision_tree` and `restart_child` with messages, so these requests need a worker. The
//!   server answers all other requests even while all workers are blocked.
//! - A restart does not count towards the intensity of the supervisor. If the supervisor does not answer within 8
//!   seconds, the reply is the error `no_answer`, but the supervisor may still restart the child.
//! - A client cannot choose the path of a flight record. A separate thread writes the file, so the server can answer
//!   other clients at the same time. For consoles, the runtime writes one file at a time, and at most
//!   [`max_files`](crate::observe::FlightRecorder::max_files) files in total.
//! - If a reply contains a struct of the crate, each JSON field has the name of the Rust field. A point in time has the
//!   suffix `_ns`, and is the number of nanoseconds since the start of the runtime. Most replies contain the present
//!   time as `now_ns`.
//! - No timer of a wheel fires before `nearest_ns`. After the cancellation of a timer, the first timer may fire later
//!   than `nearest_ns`. The value `null` means that no timer of the wheel will fire. The server does not list all
//!   deadlines of a wheel. To list all deadlines, the server would have to hold the spin lock of the wheel, for a time
//!   that is proportional to the number of timers. `process` lists the deadlines of one process.
//! - `handlers` counts the commands by type, for all hosts of the runtime. [`Host::explain`](crate::Host::explain)
//!   counts the commands in the same way. All named commands have the same type. Therefore the row of a name has the
//!   count `null`. `others` contains the number of all named commands without an answer. `others` also contains the
//!   built-in commands, and the commands that only other hosts handle. The runtime does not count the answered commands
//!   by type. To answer this request, the server reads all processes.
//! - If two replies to `workers` contain the same `process` and the same `polls` for a worker, the worker ran one step
//!   during the whole time between the replies.
//!
//! # Live trace
//!
//! A live trace is an [execution trace](crate::Host::start_trace_with) of one process. A client reads the trace while
//! the process runs. Each client has at most one trace. If a client sends `trace` again, the new trace replaces the
//! previous trace of this client. The field `traces` of `hello` is the number of all traces that run in the runtime.
//!
//! ```json
//! {"id": 7, "request": "trace", "pid": "<1-8f3a.4.1>", "max_events": 10000}
//! {"id": 8, "request": "trace_events", "limit": 100}
//! {"id": 8, "ok": {"events": [{"at_ns": 81, "worker": 0, "event": "sent", "from": "<1-8f3a.9.2>", "to": "<1-8f3a.4.1>"}], "unread": 0, "ended": null}}
//! ```
//!
//! An event has the fields `at_ns`, `worker` (`null` for a thread that is not a worker) and `event`:
//!
//! | event | meaning | further fields |
//! |---|---|---|
//! | `ready`, `running`, `blocked`, `idle`, `suspended`, `complete` | the process enters this state | |
//! | `step` | the process begins a further step of its turn | |
//! | `sent` | the mailbox of the process accepts a message | `from`: the sender (`null`: code outside the processes), `to`: the process |
//! | `received` | the process receives a message | |
//! | `reordered` | messages of the process were dropped, reordered, or put back into the mailbox | |
//! | `yielded`, `completed` | the process yields a command, or a command is answered | `tag` of the command |
//! | `preempted` | the process has used up its budget | |
//! | `blocked_worker` | a long step blocks this worker; the step may belong to another process | |
//! | `exited` | the process has exited | |
//! | `lost` | events are missing at this position | `count` |
//!
//! - The trace contains no contents of messages, and no messages that the process sends to other processes. To see
//!   these messages, trace the receiver.
//! - The server collects the events every 50 ms. Events appear up to 100 ms after they were recorded.
//! - If a worker produces more events than the [limit of a trace](crate::guide::tracing#costs-and-limits), the trace
//!   omits whole turns of this worker. Above `max_rate`, the trace omits whole turns until the next second.
//! - The server keeps at most 4,096 events for each client (160 KiB). If the buffer is full, the server discards new
//!   events until the client reads events. While the server collects events, the server also needs memory for two
//!   things: a copy of the largest buffer of the workers (512 KiB, or
//!   [`buffer_size`](crate::observe::FlightRecorder::buffer_size) with a flight recorder), and the events of the
//!   process in these buffers.
//! - A live trace ends when the trace reaches a limit, when the process exits, when the client sends `stop_trace`, and
//!   when the connection ends. After the trace has reached a limit or the process has exited, the client can still read
//!   the events.
//! - Only the turns of the traced process, and the sends to this process, have an additional cost. While no live trace
//!   runs, live traces have no cost.
//!
//! # Errors
//!
//! | kind of error | reason |
//! |---|---|
//! | `malformed` | the line is no JSON object |
//! | `request_too_long`, `reply_too_long`, `too_many_clients` | see the limits above |
//! | `unknown_request` | this version of the server does not know the request |
//! | `invalid_argument` | a field is missing, or has an invalid value; the message names the field |
//! | `token_required`, `wrong_token` | the client has not sent the right token; the connection closes |
//! | `no_process` | no process has the pid |
//! | `no_answer` | the supervisors have not answered `supervision_tree` within two seconds, because no worker is free; or an action has not ended within 8 seconds |
//! | `actions_off` | the request is an action, and actions are off |
//! | `no_supervisor` | the process has no supervisor, or the process in the field `supervisor` is not a supervisor |
//! | `no_child` | the supervisor has no such child, or is exiting |
//! | `start_failed` | the new instance has exited during its start; the message contains the exit |
//! | `no_flight_recorder` | the runtime has no flight recorder |
//! | `busy` | a flight record for a console is being written |
//! | `file_limit` | consoles have already requested the [maximum number](crate::observe::FlightRecorder::max_files) of flight records |
//! | `write_failed` | the flight record cannot be written; the message contains the path |
//! | `no_trace` | the client has no trace |
//! | `ended` | the runtime has ended |

//! Troubleshooting by symptom: causes, signs and remedies.
//!
//! | symptom | section |
//! |---|---|
//! | the program starts, but no process does anything | [Nothing runs](#nothing-runs) |
//! | one core is busy all the time, other processes are late | [One process uses all CPU time](#one-process-uses-all-cpu-time) |
//! | the program grows | [Memory grows](#memory-grows) |
//! | `shutdown` or the end of `main` takes long | [Shutdown hangs](#shutdown-hangs) |
//! | a message was sent, but not handled | [A message is missing](#a-message-is-missing) |
//! | a call or a command waits for ever | [A call never returns](#a-call-never-returns) |
//!
//! Two tools help with all of them:
//!
//! - [`Host::counters`](crate::Host::counters) returns what the runtime has counted since its start. Print it:
//!   `println!("{}", rt.counters())`. Subtract an earlier snapshot to see the counts since that snapshot.
//! - [`Observer`](crate::Observer) sees the start, each transition and the exit of each process, the states of workers,
//!   long steps, and panics. The example `gmp` prints all of them.
//!
//! # Nothing runs
//!
//! | cause | how to see it | what to do |
//! |---|---|---|
//! | The runtime has no workers, and no thread is inside `run` or `block_on`. | `Builder::workers(0)` in the code | Poll [`Runtime::run`](crate::Runtime::run) for as long as processes are to run, or use workers. |
//! | `main` returned, which dropped the runtime. The drop kills all processes. | the program exits | Await a join handle in `main`, or wait for a signal and call [`shutdown`](crate::Runtime::shutdown). |
//! | The spawn was refused. | the join handle resolves to [`Exit::Refused`](crate::Exit::Refused) | Look at its reason: a shutdown, or [`max_processes`](crate::Builder::max_processes). |
//! | The future was created, but is not polled. | the compiler warns about an unused future | Await it. A call that must not wait: [`Call::start`](crate::future::Call::start). |
//! | The process failed at its start. | a [crash report](crate::CrashReport) on stderr, or the exit in the join handle | See [`JoinHandle::started`](crate::JoinHandle::started). |
//! | All workers block, for example in `std::thread::sleep`. | [`Counters::long_steps`](crate::observe::Counters::long_steps) rises | See the next section. |
//!
//! # One process uses all CPU time
//!
//! A step runs until it returns or awaits. A worker cannot interrupt a step.
//!
//! | cause | how to see it | what to do |
//! |---|---|---|
//! | A long computation without `await`. | [`Observer::blocked`](crate::Observer::blocked) names the process after 10 to 20 ms | Call [`should_yield`](crate::should_yield) in the loop, and [`yield_now`](crate::SelfHandle::yield_now) if it returns true. Or move the computation to [`spawn_blocking`](crate::Host::spawn_blocking). |
//! | A loop over futures that are always ready. | the same | Wrap each future in [`cooperative`](crate::cooperative()). |
//! | A blocking function in a process or in an inline handler. | the same; the CPU is idle | [`handle_blocking`](crate::Builder::handle_blocking), [`spawn_blocking`](crate::Host::spawn_blocking), or [`block_in_place`](crate::block_in_place). |
//! | Two processes send to each other without end. | `messages` in the counters rises fast | Check the protocol. The pair goes to the back of the queue after 16 turns, so it does not starve other processes. |
//! | A process wakes itself without end. | `polls` rises fast, and the process is always `Ready` or `Running` | Look for `wake_by_ref` in your own futures, and for [`Next::Again`](crate::Next::Again) in a hand-written process. |
//! | A process that must not run that long. | | [`Limits::steps`](crate::Limits::steps) and [`Limits::time`](crate::Limits::time) end it with an error. |
//!
//! # Memory grows
//!
//! | cause | how to see it | what to do |
//! |---|---|---|
//! | A mailbox grows: the receiver is slower than its senders. | [`Address::peak_mailbox_len`](crate::Address::peak_mailbox_len) | Set a [`MailboxCapacity`](crate::MailboxCapacity). Let senders wait: [`send_wait`](crate::Address::send_wait). |
//! | Messages that no `receive_where` accepts. | the same | Receive the rest of the messages, too, or drop them. |
//! | `Down` and `Exit` events that are never read. | the process monitors or links, and calls only `receive` | Call [`event`](crate::Context::event), or remove the monitor with [`demonitor`](crate::SelfHandle::demonitor). |
//! | Stashed messages are never unstashed. | | [`unstash`](crate::Context::unstash) |
//! | Processes are spawned and never exit. | [`Host::processes_alive`](crate::Host::processes_alive) rises | Dropping a handle or all addresses does not end a process. Use a [`scope`](crate::SelfHandle::scope), a [deadline](crate::ProcessBuilder::deadline), or [`max_processes`](crate::Builder::max_processes). |
//! | Addresses or handles of exited processes are kept. | `processes_alive` is low | The memory block of a process is freed with its last address. Keep the [`Pid`](crate::Pid), which keeps nothing alive. |
//! | Answers wait in a stream that is not read. | | Read the stream, or drop it. At most [`StreamCommand::BUFFER`](crate::StreamCommand::BUFFER) items wait. |
//! | Commands pile up in front of a slow handler. | `yields` in the counters rises faster than `completions` | A [`layer`](crate::handler::layer), or a limit of the blocking pool: [`blocking_queue_capacity`](crate::Builder::blocking_queue_capacity). |
//!
//! After a burst, memory goes back to the allocator. The allocator of the system may keep this memory for later.
//!
//! # Shutdown hangs
//!
//! [`Runtime::shutdown`](crate::Runtime::shutdown) returns at its deadline at the latest. The shutdown waits until the
//! deadline if a process does not exit. The [report](crate::ShutdownReport) names each process that was left, and its
//! state:
//!
//! | report | cause | what to do |
//! |---|---|---|
//! | in a step that did not return | an endless or blocking step | see [above](#one-process-uses-all-cpu-time) |
//! | waiting for answers | the body ignores the cancellation: it waits for a call or a command | Set time limits. Or wait for [`cancelled`](crate::SelfHandle::cancelled) beside the call, in `select!`. |
//! | waiting for mail | the body ignores the error of [`receive`](crate::Context::receive), or waits with `event` and ignores [`Event::Cancel`](crate::Event::Cancel) | Return from the body. |
//! | waiting for a worker | too much work until the deadline, or no thread drives the runtime | A longer deadline. With 0 workers, poll the future of `shutdown` itself. |
//!
//! A few more cases:
//!
//! - A process that awaits `shutdown` waits for its own exit, until the deadline. Drop the future and return.
//! - A supervisor waits for its children, each up to its own [time](crate::Child::shutdown). The default time is 5 s
//!   for each child.
//! - The drop of a runtime waits up to one second for steps in progress. Then it prints the pid of the process and
//!   leaves the thread behind.
//!
//! # A message is missing
//!
//! | cause | how to see it | what to do |
//! |---|---|---|
//! | The send was refused, and its error was ignored. | `refused` in the counters | Handle the error of [`send`](crate::Address::send), which contains the message. |
//! | The receiver exited before it read the message. | `dead_letters` in the counters; [`Host::dead_letters`](crate::Host::dead_letters) receives them | Use a [`call`](crate::Address::call) if the sender must know. [`Child::keep_mailbox`](crate::Child::keep_mailbox) keeps unread messages across a restart. |
//! | The policy of a full mailbox dropped it. | `dropped_by_policy` in the counters | Use [`MailboxCapacity::Reject`](crate::MailboxCapacity::Reject). |
//! | The process had taken the message when it crashed. | the exit of the process | The message is lost, as in Erlang. Send it again if the call fails. |
//! | The body does not receive: it waits for something else. | the state of the process is `Blocked` | Wait for both in `select!`, or use `event`. |
//! | A `receive_where` left it in the mailbox. | | The next plain [`receive`](crate::Context::receive) returns it. |
//! | A second runtime, or a restarted process: the pid is old. | [`SendErrorKind::NoProcess`](crate::SendErrorKind::NoProcess) | Send to a [`Name`](crate::Name). |
//! | `send_after` or `send_interval`: their process has exited. | | The timers of a process end with it. |
//! | A receive future was dropped. | | No message is lost: a dropped `receive` has taken none. |
//!
//! # A call never returns
//!
//! A call fails immediately if the other process exits or drops the [`Reply`](crate::Reply). If a call waits, the other
//! process is alive and still has the request.
//!
//! | cause | how to see it | what to do |
//! |---|---|---|
//! | Two processes call each other. | both are `Blocked` | [`Call::timeout`](crate::future::Call::timeout). Answer one of the two with a message. A [`Simulation`](crate::Simulation) reports this deadlock. |
//! | The other process waits for something else first. | its state is `Blocked` | The same. |
//! | The other process stored the `Reply` and forgot it. | | Check each path of the code. [`Reply::is_closed`](crate::Reply::is_closed) tells whether the caller still waits. |
//! | The request waits behind many messages. | [`peak_mailbox_len`](crate::Address::peak_mailbox_len) | A [`Pool`](crate::Pool), or a bounded mailbox. |
//! | A handler keeps the [`Completion`](crate::Completion) and never answers. | `yields` in the counters is higher than `completions` | [`Perform::timeout`](crate::future::Perform::timeout), or a [`Timeout`](crate::handler::layer::Timeout) around the handler. |
//! | The runtime does not run. | no call returns | See [Nothing runs](#nothing-runs). |
//! | A process awaits its own handle, or calls itself. | a handle fails immediately; a call to itself waits for ever | Answer yourself without a call. |

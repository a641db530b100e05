//! Scheduling. This page describes how a worker chooses the next process, how long a process waits at most, and how
//! idle workers are woken.
//!
//! The scheduler follows Go's design, with processes instead of goroutines. Each *worker* is a thread with its own
//! queues. If the queues of a worker are empty, the worker takes processes from other workers. The runtime wraps each
//! [`Process`](crate::Process) and each async body in a task. A *turn* is one poll of the task of a process.
//!
//! # Search order of a worker
//!
//! A *search* is one attempt of a worker to find its next process. The worker tries these sources in order:
//!
//! <div>
#![doc = include_str!("search-order.svg")]
//! </div>
//!
//! | | source | the worker takes |
//! |---|---|---|
//! | 1 | in every 61st search: the timers, the sockets, then the global queue and the [unattended](#unattended-queues) queues | up to about 64 due timers of each timer wheel; the ready sockets; then processes of the global queue, as in row 6, or of one of the unattended workers. The worker steals the process in the `next` slot of the unattended worker, or processes as in row 9. If a step blocks the unattended worker and the global queue is not empty, the searching worker steals only one process of the local queue of the unattended worker. If both the global queue and unattended queues have processes, these searches prefer the global queue and the unattended queues alternately |
//! | 2 | the queues of [high and low priority](crate::Priority), in the searches that prefer this priority | one |
//! | 3 | the worker's `next` slot: the process that the last turn woke or spawned | one |
//! | 4 | the queue of new processes, which contains processes that were spawned on this worker and have not run yet | the newest; every 1,024th time the oldest |
//! | 5 | the local queue; rows 3 and 4 share a budget of 16 consecutive turns, and after these turns, the local queue comes first | the [oldest](crate::QueueOrder::Fifo), or the [newest](crate::QueueOrder::Lifo) |
//! | 6 | the global queue | one; up to `min(16, len / workers + 1)` more move to the local queue |
//! | 7 | the timers; on a thread on which an executor polls [`run`](crate::Runtime::run), also the sockets | up to about 64 due timers of each timer wheel; the ready sockets |
//! | 8 | the rest of the high priority queue, then of the low priority queue | one |
//! | 9 | the queues of the other workers, in up to 16 rounds. A round makes up to four passes over the other workers, and each pass begins at a random worker. If these passes find no process, the round checks the queues of rows 6 and 8 again. If the search may have more than one round, the round then also checks the sockets | half of a local queue, rounded up, at most 32; or the oldest new process; or a whole batch; in the last pass also the process in a `next` slot; the ready sockets |
//!
//! If all sources are empty, the worker parks. At most half of the workers search the queues of other workers (row 9)
//! at the same time. If this limit is reached, the worker skips row 9.
//!
//! Each worker adapts its maximum number of rounds in row 9. The maximum becomes 16 in two cases: the worker has slept
//! for less than 50 µs, or row 9 has found a process in a queue. If the worker has slept for longer, or a ready socket
//! ended the sleep, the maximum is halved, but is at least one. The worker parks without a check of the sockets in two
//! cases: the worker skips row 9, or its maximum is one round. The parked worker that waits for the nearest deadline
//! also waits for the sockets, so this worker gets the events.
//!
//! # Where a runnable process is queued
//!
//! | event | the process goes to |
//! |---|---|
//! | the running process wakes or spawns a process | the `next` slot of the worker. If another process was in the slot, that other process leaves the slot. A process that has not run yet goes from the slot to the queue of new processes. Any other process goes from the slot to the back of the local queue |
//! | the running process exits, and wakes another process by a monitor or a link | the back of the local queue, so that a parent receives many exits in one turn |
//! | a process yields, or its budget is spent | the back of the local queue; with [`QueueOrder::Lifo`](crate::QueueOrder::Lifo), the back of the global queue |
//! | a process was woken during its own turn | the back of the local queue |
//! | a thread that is not a worker of this runtime wakes or spawns a process | the back of the global queue |
//! | the queue of new processes is full (4,096) | the back of the local queue. From then on, the worker takes the oldest new process first, until half of the new processes have run |
//! | the local queue is full (4,096) | a batch. When the batch contains 128 processes, the whole batch moves to the global queue |
//! | a step that blocks its worker wakes a process | the back of the global queue |
//! | a step that blocks its worker spawns a process | the local queue of this worker, which is now unattended. A parked worker is woken, so that this other worker steals the process |
//!
//! Other workers can steal from every queue of a worker: the `next` slot, the new processes, the local queue, and the
//! batch.
//!
//! # Unattended queues
//!
//! The queues of a worker or of a guest thread are unattended in four cases:
//!
//! - a step blocks the worker, and a replacement thread has started;
//! - a step has called [`block_on`](crate::Runtime::block_on);
//! - the executor of a [`run`](crate::Runtime::run) future does not poll the future at present;
//! - the call of `block_on` or `run` has ended, and processes are left in the queues that the call used.
//!
//! A worker without processes steals from these queues, as from all other queues. A busy worker steals from unattended
//! queues in every 61st search. If the queues of several workers or guests are unattended, a busy worker steals from
//! these workers and guests in rotation. A later call of `block_on` or `run` usually continues with the queues of the
//! previous call.
//!
//! # Longest wait of a process
//!
//! The scheduler cannot interrupt a turn, and cannot limit the time of a turn. Therefore the bounds in this table are
//! counts of turns, not durations. A turn can have several steps, within the budget of its process. The bounds hold for
//! the processes of one worker. Each bound covers the time from one turn of a process to the next turn of this process:
//!
//! | other runnable processes | longest wait of a process | reason |
//! |---|---|---|
//! | n - 1 processes that yield, with n up to 4,096 | n turns | a process that yields goes to the back of the queue |
//! | n - 1 processes that yield, with n above 4,096 | 4 n + 61 turns | the processes above 4,096 wait in the global queue; at least 17 processes leave this queue in 61 searches, and 61 / 17 < 4 |
//! | new processes, which have not run yet | Count the processes that are ahead of the waiting process in the local queue. For every three of them, up to 68 turns of new processes run. | row 5: when the budget of rows 3 and 4 is spent for the fourth time, a new process runs before the processes of the local queue |
//! | n newer processes that spawn and wake nothing, and the waiting process is also new | n turns of new processes, and n / 16 turns of other processes | row 5 |
//! | n newer processes that spawn or wake processes, and the waiting process is also new | 17 n turns | row 5 |
//! | n newer processes that spawn or wake processes, which again spawn or wake processes, without end; the waiting process is also new | 68 n turns | row 5 |
//! | newer processes without end, and the waiting process is also new | If the queue of new processes becomes full (4,096), the bound for processes that yield applies. If the queue never becomes full, up to 1,024 turns of newer processes run for each older process | row 4 |
//! | a body that receives and never empties its mailbox | 128 messages or events; then the receiving body goes to the back of the queue | budget of a turn: see [`should_yield`](crate::should_yield) |
//! | a body that only [sends with `send_wait`](crate::Address::send_wait), to mailboxes with free space | 128 messages; then the sending body goes to the back of the queue | budget of a turn |
//! | a body that reads from or writes to a connection that is always ready, or accepts connections without a pause | 128 socket operations; then this process goes to the back of the queue | budget of a turn |
//! | a process whose commands are answered inline | 32 steps; then the process with the inline answers goes to the back of the queue | budget of inline answers |
//! | pairs of processes that wake each other, chains of processes in which each process spawns the next | 16 turns of these processes, and the turns that have already begun | row 5: all these processes share the budget |
//! | any processes, and the waiting process is in the global queue or waits for a due timer | 61 searches of any worker; 122 searches if there are unattended queues; with many due timers, 61 searches for each 64 timers | row 1 |
//! | any processes, and the waiting process waits for a ready socket | 61 searches of any worker; with many ready sockets, 61 searches for each 1,024 events | row 1 |
//! | any processes, and the waiting process is in an unattended queue | 122 searches of any worker, for each unattended worker and for each 32 processes ahead in the queue. If a step blocks the unattended worker and the global queue is not empty, the bound is 122 searches for each process ahead instead of for each 32 processes | row 1 |
//! | processes of a [`LocalSet`](crate::LocalSet), with `workers(0)`; the waiting process is not in the set | 200 turns of local processes, or 100 µs, between two turns of other processes | a poll of the `LocalSet` runs a batch of local processes |
//! | processes of high priority, and the waiting process has normal priority | 4 turns | row 2: of 16 searches, 12 prefer high, 3 prefer normal, 1 prefers low |
//! | processes of high and low priority, and the waiting process has normal priority | 8 turns | row 2 |
//! | processes of high or normal priority, and the waiting process has low priority | 16 turns | row 2 |
//! | any processes, with [`QueueOrder::Lifo`](crate::QueueOrder::Lifo) | 16 searches for each older process; 61 if the waiting process yields | every 16th search takes the oldest process |
//!
//! With several workers, the bound holds for the worker that runs the process next. A stolen process enters an empty
//! queue, so a stolen process waits less. The tests in `tests/it/fairness.rs` check these bounds, on one worker and on
//! two workers. The tests count steps. The tests in `tests/net/floods.rs` check the bounds for sockets on one worker,
//! and count socket operations.
//!
//! If a turn never ends, the bounds do not hold. In this case, the [monitor](crate::Builder::long_step_threshold)
//! passes the other processes of the worker to a replacement thread.
//!
//! # Wake-ups of idle workers
//!
//! If a worker finds no process, the worker announces that it will park, and then checks every queue once more. A
//! thread that queues a process first pushes the process, and then checks for a parked worker. Both threads, the worker
//! and the pushing thread, execute a full memory fence between their two operations. Therefore the worker sees the
//! pushed process, or the pushing thread sees the announcement. In both cases, no process waits while all workers are
//! parked.
//!
//! While a worker is searching, a push wakes no other worker. If the last searching worker finds a process and more
//! processes are queued, this worker wakes another worker. A message to an idle runtime wakes one worker. This worker
//! finds only one process, so this worker wakes no other worker.
//!
//! A push to an empty `next` slot wakes no worker, because the worker of this slot runs the process next. The wake-up
//! of a second worker would cost more time than the second worker saves. For two processes that answer each other, a
//! message cost 27 ns of CPU time on one worker. With the wake-up of a second worker for each message, a message cost
//! 110 ns. A [batch](crate::Host::spawn_batch) of k processes wakes up to k workers.
//!
//! An idle runtime has no periodic tick. One parked worker, the *timekeeper*, sleeps until the nearest deadline.
//!
//! The file `src/scheduler/README.md` describes the protocol of parking and waking, and the races of this protocol. The
//! file also contains a sketch of the proof. The model checker loom checks models of this protocol.
//!
//! # Memory of a process
//!
//! A process is one block of memory. The block contains the pid, mailbox, state, result and body of the process. A body
//! or a state above 1 KiB has its own block. A block consists of whole cache lines, so two processes never share a
//! cache line, and there is no false sharing. Including the entry in the pid table, a waiting hand-written process
//! needs about 230 bytes, and a waiting async body needs about 300 bytes. The body is dropped when the process exits.
//! The block is freed when no [address](crate::Address) and no handle refers to the process.
//!
//! An atomic byte in the block stores whether the process waits, is queued, runs, or was woken during its turn. If
//! several threads wake a waiting process, only one of these threads gets the right to queue the process. Therefore a
//! process is in at most one queue at a time. A wake-up does not change a reference count.
//!
//! A mailbox has a slot for one message of up to 24 bytes. A [`Payload`](crate::Payload) fits into this slot. A message
//! that consists of a [`Reply`](crate::Reply) and two words also fits into the slot. The mailbox allocates a buffer
//! only for a larger message, or if a second message arrives before the first message is read. After a burst, the
//! buffer shrinks to 256 messages.
//!
//! The sender of the first message to a waiting process takes no lock. The sender wakes the process, writes the message
//! into the slot, and queues the process. In the benchmark `ping-pong`, the slot reduces the cost of a message between
//! two processes by a quarter.
//!
//! Blocks of up to 1 KiB are reused. For each size, each thread keeps up to 64 free blocks, and the program keeps up to
//! 1 MiB (Bonwick and Adams, "Magazines and Vmem", USENIX 2001). All other free blocks go back to the allocator.
//!
//! # Prefetching
//!
//! If a process has waited for a long time, the block of the process is usually no longer in the cache of a core. When
//! the timers of one tick wake processes, up to 64 of these processes are queued together, and their cache lines are
//! prefetched. The cache lines of the next processes in the global queue are also prefetched. Prefetching reduces the
//! cost of a million sleeps by a third (benchmark `sleep`). Prefetching also reduces the cost of a million spawns from
//! a thread outside the runtime by a sixth (benchmark `spawn-outside`). Prefetching is used only on x86-64.
//!
//! # Differences from other schedulers
//!
//! The table compares this design with Go's runtime and with Wippy's process scheduler. The numbers in the table
//! compare the CPU time of both designs on two cores, in the same program. Some numbers come from an early version of
//! this crate, so compare the ratios instead of the times.
//!
//! | other scheduler | this scheduler | reason |
//! |---|---|---|
//! | A local queue is LIFO, a Chase–Lev deque (Wippy). | A local queue is FIFO, and the `next` slot comes before this queue. LIFO is an [option](crate::QueueOrder). | With LIFO, processes starve: if two processes always yield, a third process never runs. FIFO costs 10 ns per yield. A thief cannot safely take several processes from a LIFO deque in one compare-and-swap. In a test with 4 million processes, a LIFO deque that allowed this operation lost 1,021 processes and duplicated 1,370 processes. |
//! | Each woken process goes through the global queue (Wippy). | A woken process goes to the `next` slot of the worker that woke the process. | The data of the process is in the cache of this worker's core. In addition, all workers share the lock of the global queue. If messages go through the global queue, a message costs 1.36 times as much (bench `ping-pong`). |
//! | A spawned process waits like any other process (Wippy). The newest goroutine runs next, and displaces another goroutine. The displaced goroutine goes to the back of the local queue, even if this goroutine has not run yet (Go). | The newest new process runs first, within the budget of row 5. | A tree of processes is executed depth first, so few processes exist at the same time. If each call of a recursive function is a process, thirty million calls need 14 MB instead of 3 GB, and take 0.3 to 0.6 times as long (bench `fib`). Older processes do not starve. |
//! | A local queue holds 256 goroutines (Go). | A local queue holds 4,096 processes. | A process that goes through the global queue runs on any core, without its data in the cache. With a thousand clients of eight servers, a queue of 256 needed 1.1 to 1.6 times the CPU time (bench `call-1000`). |
//! | A thief takes half of a queue (Go). | A thief takes half of a queue, but at most 32 processes. | The thief first copies the processes. If the owner takes a process during the copy, the thief must start again. A smaller copy makes this conflict less likely. |
//! | A full local queue moves its oldest half to the global queue (Go). | New arrivals go to a batch of 128, which moves to the global queue. | The oldest processes have waited longest. In Go's design, the oldest processes would go to the back of the global queue. |
//! | A worker takes up to 128 goroutines from the global queue (Go). | A worker takes at most 17 processes. | In a test with 128 processes that send messages to each other, a message took 352 ns with the limit of 128, and 149 ns with the limit of 17. |
//! | A signal interrupts a goroutine that runs for 10 ms (Go). | The process is [asked](crate::Host::preempt) to yield, and a replacement thread takes the other processes of its worker. | Rust code cannot be interrupted at an arbitrary place, because the code may hold a lock. [`should_yield`](crate::should_yield) and [`cooperative`](crate::cooperative()) check for a request to yield. |
//! | Only a worker that was searching checks the queues again before it parks (Go). | Every worker checks the queues again. | The additional check costs one load per queue, and simplifies the proof that no wake-up is lost. |
//! | The runtime marks a thread that enters a system call (Go). | The monitor detects a step that runs for a long time. | The runtime does not see the system calls of user code. [`block_in_place`](crate::block_in_place) announces a blocking call. |
//! | A periodic thread checks timers and sockets (Go's `sysmon`). | One parked worker waits for the nearest deadline. The monitor sleeps while no worker runs. | An idle runtime uses no CPU time. |

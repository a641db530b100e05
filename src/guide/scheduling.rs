//! Scheduling: how a worker chooses the next process, how long a process waits at most, and how idle workers are woken.
//!
//! The scheduler follows Go's design, with processes in place of goroutines. Each *worker* is a thread with queues of
//! its own, and takes processes from other workers when its queues are empty. A [`Process`](crate::Process) or an async
//! body is wrapped as a task. A *turn* is one poll of that task.
//!
//! # Search order of a worker
//!
//! A *look* is one search of a worker for its next process.
//!
//! <div>
#![doc = include_str!("search-order.svg")]
//! </div>
//!
//! | | source | the worker takes |
//! |---|---|---|
//! | 1 | at every 61st look: the timers, then the global queue | all due timers; then as in row 6 |
//! | 2 | the queues of [high and low priority](crate::Priority), at the looks of that priority | one |
//! | 3 | the next slot: the process that the last turn woke or spawned | one |
//! | 4 | the queue of new processes: processes that were spawned on this worker and have not run yet | the newest; every 1,024th time the oldest |
//! | 5 | the local queue; it precedes rows 3 and 4 after 16 turns of these in a row | the [oldest](crate::QueueOrder::Fifo), or the [newest](crate::QueueOrder::Lifo) |
//! | 6 | the global queue | one, and moves up to `min(16, len / workers + 1)` more to the local queue |
//! | 7 | the timers | all due timers |
//! | 8 | the rest of the high priority queue, then of the low priority queue | one |
//! | 9 | other workers, in random order, in up to four passes | half of a local queue, rounded up, at most 32; or the oldest new process; in the last pass also a next slot |
//!
//! If all sources are empty, the worker parks. At most half of the workers search in row 9 at the same time.
//!
//! # Where a ready process is queued
//!
//! | event | queue |
//! |---|---|
//! | the running process wakes or spawns it | the next slot of the worker. The process that was in the slot goes to the queue of new processes if it has not run yet, otherwise to the back of the local queue |
//! | the exit of the running process wakes it, by a monitor or a link | the back of the local queue, so that a parent receives many exits in one turn |
//! | it yields, or its budget is spent | the back of the local queue |
//! | it was woken during its own turn | the back of the local queue |
//! | a thread that is not a worker of this runtime wakes or spawns it | the back of the global queue |
//! | the queue of new processes is full (4,096) | the back of the local queue. Until half of the new processes have run, the oldest is first |
//! | the local queue is full (4,096) | a batch. Each 128 processes of the batch move to the global queue together |
//! | a step that blocks its worker wakes it | the back of the global queue |
//! | a step that blocks its worker spawns it | the local queue of that worker. Another worker is woken to steal it |
//!
//! Other workers can steal from every queue of a worker: next slot, new processes, local queue, batch.
//!
//! # Longest wait of a process
//!
//! The scheduler cannot interrupt a turn. Therefore the bounds count turns. A turn has as many steps as its budget
//! allows. The bounds hold for the processes of one worker, between two turns of one process:
//!
//! | other ready processes | longest wait | reason |
//! |---|---|---|
//! | n - 1 that yield, n up to 4,096 | n turns | a process that yields goes behind all others |
//! | n - 1 that yield, n above 4,096 | 4 n + 61 turns | the rest waits in the global queue; at least 17 processes leave it in 61 looks, and 61 / 17 < 4 |
//! | new processes, which have not run yet | 68 turns of new processes for every three processes before it | row 5: every fourth time that the budget is spent, another new process runs first |
//! | n newer processes, and it is new itself | n turns, plus one sixteenth for the others; 17 n if the newer ones spawn or wake processes in turn; 68 n if these do so without end | row 5 |
//! | newer processes without end, and it is new itself | as for processes that yield, once 4,096 are new; if there never are 4,096, 1,024 turns of newer ones for each older process | row 4 |
//! | a body that receives and never empties its mailbox | 128 messages or events; then that body goes to the back | budget of a turn: see [`should_yield`](crate::should_yield) |
//! | a process whose commands are answered inline | 32 steps; then that process goes to the back | budget of inline answers |
//! | pairs that wake each other, chains that spawn each other | 16 turns of them, and the turns that have begun by then | row 5: the budget is shared by all of them |
//! | any, and it waits in the global queue, or for a due timer | 61 looks of any worker; with many due timers, 61 looks for each 64 of them | row 1 |
//! | high priority, and it has normal priority | 4 turns | row 2: of 16 looks, 12 are for high, 3 for normal, 1 for low |
//! | high or normal priority, and it has low priority | 16 turns | row 2 |
//! | any, with [`QueueOrder::Lifo`](crate::QueueOrder::Lifo) | 16 looks for each older process; 61 if it yields | every 16th look takes the oldest |
//!
//! With several workers, the bound holds for the worker that runs the process next. A process that is stolen goes to an
//! empty queue, so it waits less. The tests in `tests/it/fairness.rs` count these bounds in steps, on one worker and on
//! two.
//!
//! A turn that never ends is outside these bounds. The [monitor](crate::Builder::long_step_threshold) hands the other
//! processes of that worker to a replacement thread.
//!
//! # Wake-ups of idle workers
//!
//! A worker that finds no process announces that it will park, and then looks at every queue once more. A thread that
//! queues a process looks afterwards for a parked worker. Both threads execute a full memory fence between their two
//! operations, so at least one of them sees the other. Therefore no process waits while all workers are parked.
//!
//! A push wakes no worker while another worker is searching. The last searching worker that finds a process wakes the
//! next worker if more processes are queued. Therefore one message to an idle runtime wakes one worker.
//!
//! A push to an empty next slot wakes no worker, because this worker runs that process next. A second core costs more
//! than it gains: for two processes that answer each other, one message took 27 ns of CPU time on one worker, and 110
//! ns if a second worker was woken for each. A [batch](crate::Host::spawn_batch) of k processes wakes up to k workers.
//!
//! An idle runtime has no periodic tick. One parked worker, the *timekeeper*, sleeps until the nearest deadline.
//!
//! The file `src/scheduler/README.md` describes the protocol, its races, and a proof sketch. A model checker explores
//! the protocol.
//!
//! # Memory of a process
//!
//! A process is one block of memory: pid, mailbox, state, result, and body. A body or a state above 1 KiB has a block
//! of its own. A block consists of whole cache lines, so two processes never share a line (no false sharing). A waiting
//! hand-written process needs about 230 bytes, an async body about 300, including its entry in the pid table. The body
//! is dropped when the process exits. The block is freed when no [address](crate::Address) and no handle refers to the
//! process.
//!
//! An atomic byte in the block says whether the process waits, is queued, runs, or was woken while it ran. The thread
//! that wakes a waiting process gets the right to queue it. Therefore a process is in one queue at a time, and a
//! wake-up does not change a reference count.
//!
//! A mailbox has a slot for one message of up to 24 bytes. A [`Payload`](crate::Payload) has this size, and so has a
//! [`Reply`](crate::Reply) with two words. The mailbox allocates a buffer only for a larger message, or when a second
//! message arrives before the first one is read. After a burst, the buffer shrinks to the room of 256 messages.
//!
//! The first message to a waiting process takes no lock: its sender wakes the process, writes the message into the
//! slot, and queues the process. The slot makes a message between two processes a quarter cheaper (bench `ping-pong`).
//!
//! Blocks of up to 1 KiB are reused. Each thread keeps up to 64 blocks per size, and the program up to 1 MiB per size
//! (Bonwick and Adams, "Magazines and Vmem", USENIX 2001). Further blocks go back to the allocator.
//!
//! # Prefetching
//!
//! The memory of a process that has waited for long is in main memory, not in a cache. The processes that the timers of
//! one tick wake are therefore queued together, up to 64 at a time, and their cache lines are prefetched. The same
//! happens for the next processes of the global queue. With prefetching, a million sleeps cost a third less, and a
//! million spawns from outside a sixth less (benches `sleep`, `spawn-outside`). Prefetching is a hint to the processor,
//! on x86-64 only.
//!
//! # Differences from other schedulers
//!
//! The models are Go's runtime and Wippy's process scheduler. The figures compare the CPU time of both designs on two
//! cores, in the same program. Some figures come from an early version; compare the ratios, not the times.
//!
//! | there | here | reason |
//! |---|---|---|
//! | A local queue is LIFO, a Chase–Lev deque (Wippy). | FIFO, behind one next slot. LIFO is an [option](crate::QueueOrder). | LIFO starves: beside two processes that always yield, a third one never runs. FIFO costs 10 ns per yield. On a LIFO deque, a thief cannot take several processes in one compare-and-swap: of 4 million, 1,021 were lost and 1,370 doubled. |
//! | Each woken process goes through the global queue (Wippy). | A woken process goes to the next slot of the worker that woke it. | Its data is in the cache of that core, and the global queue is one lock. Through the global queue a message costs 1.36 times as much (bench `ping-pong`). |
//! | A spawned process waits like any other (Go, Wippy). | Of the new processes, the newest is first, within the budget of row 5. | A tree of processes is walked depth first, so few processes exist at a time. Thirty million calls of a recursive function, each a process, need 14 MB and not 3 GB, and 0.3 to 0.6 of the time (bench `fib`). Processes that have run before are not starved. |
//! | A local queue holds 256 (Go). | 4,096 | A process that goes through the global queue runs on any core, without its data in the cache. With a thousand clients of eight servers, a queue of 256 needed 1.1 to 1.6 times the CPU time (bench `call-1000`). |
//! | A thief takes half of a queue (Go). | Half, at most 32. | The thief copies them first, and loses the race if the owner takes one meanwhile. |
//! | A full local queue moves its oldest half to the global queue (Go). | New arrivals collect in a batch of 128, which moves to the global queue. | The oldest processes have waited longest, and would go behind all others. |
//! | A worker takes up to 128 processes from the global queue (Go). | At most 17. | 128 separate processes that send messages to each other: a message took 352 ns instead of 149 ns. |
//! | A signal interrupts a goroutine that runs for 10 ms (Go). | The process is [asked](crate::Host::preempt) to yield, and a replacement thread takes the other work of its worker. | Rust code cannot be interrupted at any place: it may hold a lock. [`should_yield`](crate::should_yield) and [`cooperative`](crate::cooperative()) ask. |
//! | Only the last searching worker looks at the queues again before it parks (Go). | Every worker does. | The second look costs one pass of loads, and simplifies the proof. |
//! | A thread that enters a system call is marked (Go). | The monitor sees that a step does not end. | The runtime does not see the system calls of user code. [`block_in_place`](crate::block_in_place) announces a blocking call. |
//! | A periodic thread looks at timers and sockets (Go's `sysmon`). | One parked worker waits for the nearest deadline. The monitor sleeps while no worker runs. | An idle runtime uses no CPU time. |

//! How the scheduler works: who runs next, and where; how long one waits at most; who wakes whom; and where this differs
//! from its models, on purpose.
//!
//! It is Go's design of goroutines, machines and processors, with processes for goroutines: each *worker* is a thread with
//! queues of its own, and takes from others when it has nothing left. What runs is a [`Process`](crate::Process) or an
//! async body, wrapped as a task; one *turn* of it is one poll of that task.
//!
//! # Where a worker looks
//!
//! | | it looks into | and takes |
//! |---|---|---|
//! | 1 | at every 61st look, the timers, then the global queue | what is due; one, and its share (5) |
//! | 2 | the queues of [high and low](crate::Priority) ones, at the looks that are theirs | one |
//! | 3 | its next slot: what the last turn woke or spawned | one |
//! | 4 | its nursery: what was spawned there and has had no turn | the newest; every 1,024th time the oldest |
//! | 5 | its local queue; before (3) and (4) whenever these have had 16 turns in a row | the [oldest](crate::QueueOrder::Fifo), or the [newest](crate::QueueOrder::Lifo) |
//! | 6 | the global queue | one, and moves up to `min(16, len / workers + 1)` more to its own |
//! | 7 | the timers | what is due |
//! | 8 | what is left of the high ones, then of the low ones | one |
//! | 9 | the others, in random order, up to four times | half of a local queue, rounded up, but no more than 32, or the oldest of a nursery; the last time round also a next slot |
//!
//! Then it sleeps. Only half of the workers search (9) at once.
//!
//! | what becomes ready | goes to |
//! |---|---|
//! | what the running turn wakes or spawns | the next slot of its worker; what was there goes to the nursery, if it has had no turn, else to the back of the local queue |
//! | what the running turn tells of its process's end, by a monitor or a link | the back of the local queue: of a crowd that ends, a parent hears much at once |
//! | what yields, or has spent the budget of its turn | the back of the local queue |
//! | what wanted to wait, and was woken meanwhile | the back of the local queue; alone there it is given a microsecond |
//! | what a thread that is no worker of this runtime wakes or spawns | the back of the global queue |
//! | what comes to a nursery that holds 4,096 | the back of the local queue; and the oldest there are first until half are gone |
//! | what comes to a local queue that holds 4,096 | a batch; every 128 of those go to the global queue at once |
//! | what a step wakes that has blocked its worker | the back of the global queue |
//! | what such a step spawns | its worker's local queue, for thieves, and somebody is woken for each |
//!
//! Everything that waits can be taken by others, whoever ran it last: the slot, the nursery, the local queue, the batch.
//!
//! # How long one waits
//!
//! Turns can't be cut short, so bounds are in turns; a turn makes as many steps as its budget allows. Of what one worker
//! runs, between two turns of one process:
//!
//! | beside it are ready | it waits for at most | because |
//! |---|---|---|
//! | n - 1 that yield, n up to 4,096 | n turns | who yields goes behind all others |
//! | n - 1, n more than that | 4 n + 61 turns | what does not fit waits in the global queue, from which at least 17 come in 61 looks: 61 / 17 < 4 |
//! | some that have had no turn | 68 turns of these for every three that wait before it | (5); every fourth time that the budget is spent, another one of the nursery comes |
//! | and it is the first turn that it waits for, n were spawned after it and wait too, and no more come | n turns, and a sixteenth for the others; 17 each if they spawn or wake in turn; 68 if these do so without end | the same |
//! | the same, and more are spawned all the time | until there are 4,096, then as with those that yield; if there never are, 1,024 of the newest for each that waits longer | (4) |
//! | a body that receives and never runs out of mail | 128 messages or events, then that one is behind | the budget of a turn, [`should_yield`](crate::should_yield) |
//! | a process whose commands are answered at once | 32 steps, then that one is behind | the budget for answers within a turn |
//! | pairs that wake each other, chains that spawn each other | 16 turns of each, and those under way when the 16 are spent | the slot's budget; it is shared, so that a pair is one |
//! | anything, and it comes from outside or is a timer that is due | 61 looks of any worker; of a storm of timers, so often for every 64 of them | (1) |
//! | high ones, and it is normal; or normal ones, and it is low | 4 turns; 16 turns | (2): 12 of 16 looks are for the high ones, 3 for normal ones, 1 for low ones |
//! | others, newest first | 16 looks for each that waits longer; 61, if it yields | every 16th look takes the oldest |
//!
//! With several workers that holds of the worker that runs it next; the others make their steps beside that. Who is taken
//! over by another worker goes to an empty queue there, with those before it that were taken too: it gains. RefCounted in
//! steps, on one worker and on two: `tests/it/fairness.rs`.
//!
//! A turn that never ends is beyond this: a [monitor](crate::Builder::long_step_threshold) sees to it that only its own process and
//! worker wait for it.
//!
//! # Who is woken
//!
//! A worker that finds nothing announces that it sleeps and then looks at every queue once more; whoever queues something
//! looks, after that, whether anybody sleeps. With a full fence on both sides one of the two sees the other, so nothing
//! waits while everybody sleeps. Whoever queues wakes nobody if somebody searches already; the last one that searches
//! and finds something wakes the next, if it sees more: one message to a runtime that sleeps wakes one worker. An idle
//! runtime has no tick: one sleeper keeps the time, until the nearest deadline.
//!
//! A push to the next slot alone wakes nobody: that worker runs it next, and a second core costs more than it gains (a pair
//! of processes that answer each other: 27 ns of CPU a message on one worker, 110 with a second one woken for each). A
//! [batch](crate::Host::spawn_batch) of k wakes up to k.
//!
//! A process to which another core sends without pause catches up with it, and from there on each message costs both of them
//! the other's cache lines. So one that was woken while it ran, on a worker that has nothing else, is run again a microsecond
//! later, with all that has come in that time: 0.7 to 0.95 of the CPU time where one sends to one (bench `counting`), or a
//! thread answers commands (`command-thread`). Network drivers call it interrupt moderation.
//!
//! The protocols, their stories and the sketch of a proof are in `src/scheduler/README.md`; the model checker explores
//! them, each with bugs planted that it has to find.
//!
//! # Who comes in a crowd
//!
//! What very many processes wait with lies in main memory, and a worker that runs one after the other waits for each of
//! their cache lines in turn. Where it knows beforehand whom it will run, it has those fetched for all of them at once: whom
//! the timers of one tick wake, up to 64, are queued together when the last of them is woken; those that stand next in the
//! global queue are looked up a handful ahead. A million sleeps cost a third less by that, a million spawns from outside
//! a sixth (benches `sleep`, `spawn-outside`). It is a hint to the processor, on x86-64; wait_for_another_thread nothing is fetched.
//!
//! # What a process is made of
//!
//! One piece of memory: its pid, mailbox and state, what it returns, and its body or machine, if that is no larger than
//! 1 KiB; else that has a second one. It has whole cache lines: where two processes share one, each core waits for the other
//! at every step. One that waits for mail needs some 230 bytes by hand and 294 as an async body, with its place in the pid
//! table. It is freed when the process has ended and nobody has its [address](crate::Address) or handle any more; the body
//! is dropped at the end, but the memory of a small one stays as long as the rest.
//!
//! A byte in there says whether the process waits, is queued or runs, or was woken meanwhile. Whoever wakes one that waits
//! comes by the right to run it, and queues that: so it is in one queue at a time, and neither the wake nor the turn counts
//! a reference. A turn that yields leaves the byte as it is; one that waits costs a compare-and-swap.
//!
//! A mailbox has room for one message of up to 24 bytes, which is what a [`Payload`](crate::Payload) has, and a request with
//! a [`Reply`](crate::Reply) and two words. Only when a second comes while that is unread, or messages are larger, there is
//! a buffer; of that no more is kept than 256 messages need, and nothing when the process ends.
//!
//! The first message to a process that waits for mail takes no lock: its sender wakes the process, has with that the right
//! to run it, which nobody else has then, puts the message into that room, and queues the process, which takes it out in its
//! turn. What comes before that has run goes by the mailbox's lock, behind it. Between two processes a message is three
//! locked instructions by that, a quarter less time than with the lock (bench `ping-pong`).
//!
//! Processes begin on one thread and end on another, and so do calls and messages that are too large for a
//! [`Payload`](crate::Payload). What was one before is kept for the next: by each thread up to 64 of a size, and 1 MiB of
//! each size for all of them (Bonwick and Adams, "Magazines and Vmem", USENIX 2001), of sizes up to 1 KiB. More than that
//! goes back to the allocator, so a burst of processes is not kept.
//!
//! # Where it differs from its models
//!
//! Those are Go's runtime and Wippy's process scheduler. The figures are CPU time on two cores, ours against what the model
//! does, in the same program; some were taken on an early version, so believe the ratios.
//!
//! | there | here | why |
//! |---|---|---|
//! | Local queues are last in, first out, a Chase–Lev deque (Wippy) | first in, first out, behind one next slot; newest first is a [choice](crate::QueueOrder) | Newest first starves: with two that always yield a third never runs. It loses 10 ns with each yield; what it wins on fork and join is won for those that have had no turn (below). A thief that takes several in one compare-and-swap from an owner at the same end loses and doubles some (of 4 million, 1,021 and 1,370), so there it takes them one by one. |
//! | Whatever is woken goes through the global queue (Wippy) | to the slot of the worker that woke it, if one did | Its data is in that core's cache, and the global queue is a lock that all share: by that way a message between two processes costs 1.36 × what it does (bench `ping-pong`). |
//! | What is spawned waits like all others (both) | among those that have had no turn the newest is first, within the slot's budget | A tree of processes is walked depth first, in as many of them as it is high: thirty million calls of a recursive function, each a process, in 14 MB and not 3 GB, and in 0.3 to 0.6 of the time (bench `fib`). Newest first for these alone starves nobody who has begun. |
//! | A local queue holds 256 (Go) | 4,096 | What goes by the global queue comes back on any core, with all that it talks to wait_for_another_thread: with a thousand clients of eight servers two cores needed 1.1 to 1.6 times as much (bench `call-1000`). |
//! | A thief takes half (Go) | half, but no more than 32 | It copies them first, and loses the race if their owner takes one meanwhile. |
//! | A local queue that is full gives its oldest half to the global queue (Go) | what comes then gathers in a batch of 128 that goes there | The oldest have waited longest, and would go behind everybody. A deque that others steal from gives up half only one by one. |
//! | From the global queue a worker takes `n = len / P + 1`, up to half of a local queue, 128 (Go) | `min(16, len / P + 1)` and one | As many as 128 scatter those that talk to each other over all cores: 149 ns a message became 352, when local queues held 256; and a spawn from outside takes 1.26 of the time. 64 are better for those that yield to each other (bench `yield`), and put a batch out of its order. |
//! | A goroutine that runs for 10 ms is interrupted by a signal (Go) | a process is [asked](crate::Host::preempt), and its worker's other work goes to another | Rust code can't be interrupted at any place: a lock may be held, a value half moved. [`should_yield`](crate::should_yield) and [`cooperative`](crate::cooperative()) ask; what never asks keeps its thread, and only that. |
//! | Only the last that stops searching looks again (Go) | everybody who goes to sleep does | It costs a pass of loads, and the argument needs no case for who was last. |
//! | A thread in a system call is marked on entry (Go) | nothing marks a step that blocks: the monitor sees that its counter stands still | The crate does not see what user code calls. [`block_in_place`](crate::block_in_place) says so beforehand. |
//! | A periodic tick looks after timers and the network (Go's `sysmon`) | one sleeper keeps the time; the monitor sleeps when nobody works | Idle costs nothing. |

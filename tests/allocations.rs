//! Counts the allocations of processes, messages, calls and commands. This file is a separate test binary, because its
//! global allocator counts the allocations of the whole program.

#![cfg(not(any(procession_loom, procession_shuttle)))]
#![allow(unsafe_code)]
// The file `clippy.toml` forbids some types and methods in the source of the crate. This test may use these types and
// methods.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use procession::observe::{ProcessColumn, ProcessCount, ProcessInfo, ProcessQuery};
use procession::{Command, Completion, Context, Event, Events, Exit, Next, Process, Reply, Runtime, StepOutput, Tag};

/// The system's allocator, with a counter of the allocations and a counter of the allocated bytes.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicIsize = AtomicIsize::new(0);
/// Largest value of `BYTES` since the last reset.
static PEAK: AtomicIsize = AtomicIsize::new(0);

// SAFETY: `GlobalAlloc` requires that each returned block is valid, fits its layout, and is not returned twice before
// it is freed. `System` meets these requirements, and each method passes its arguments to `System` unchanged. The
// counters are atomics, so they neither unwind nor allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        let size = layout.size() as isize;
        PEAK.fetch_max(BYTES.fetch_add(size, Relaxed) + size, Relaxed);
        // SAFETY: `System::alloc` requires a layout of nonzero size. The caller of this function guarantees a nonzero
        // size.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as isize, Relaxed);
        // SAFETY: `System::dealloc` requires a block that `System` allocated with this layout. Each block of this
        // allocator comes from `System`, and the caller guarantees the layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Makes the tests run one at a time, because the counters are global.
static SERIAL: Mutex<()> = Mutex::new(());

/// Runs `f`, and returns three values: the value of `f`, the number of allocations during the call, and the change of
/// the number of allocated bytes.
fn counted<T>(f: impl FnOnce() -> T) -> (T, usize, isize) {
    let (allocations, bytes) = (ALLOCATIONS.load(Relaxed), BYTES.load(Relaxed));
    let value = f();
    (value, ALLOCATIONS.load(Relaxed) - allocations, BYTES.load(Relaxed) - bytes)
}

/// Runs `f`. Returns the value of `f`, and the maximum number of allocated bytes during the call. The bytes that were
/// allocated before the call do not count.
fn peak_of<T>(f: impl FnOnce() -> T) -> (T, isize) {
    let before = BYTES.load(Relaxed);
    PEAK.store(before, Relaxed);
    let value = f();
    (value, PEAK.load(Relaxed) - before)
}

/// Returns a runtime without workers. All processes run on the thread that calls `block_on`.
fn runtime() -> Runtime {
    Runtime::builder().workers(0).build().expect("it is small")
}

async fn idle(mut ctx: Context<u64>) {
    while ctx.receive().await.is_ok() {}
}

/// Many waiting processes share one allocation. Each process uses at most 300 bytes, including its entry in the pid
/// table and its entries in queues.
#[test]
fn many_processes_share_one_allocation() {
    let _alone = SERIAL.lock();
    let rt = runtime();
    let spawn = || {
        rt.block_on(rt.spawn(async |ctx: Context| {
            let all: Vec<_> = (0..10_000).map(|_| ctx.spawn(idle).address()).collect();
            // The parent calls `yield_now` twenty times. After these calls, each child has run its first turn, no
            // matter which queue contained the child.
            for _ in 0..20 {
                ctx.yield_now().await;
            }
            Ok::<_, Exit>(all)
        }))
    };
    let warm = spawn();
    let (all, allocations, bytes) = counted(|| spawn().expect("it returns them"));
    let most = if cfg!(procession_plain_memory) { 10_000 + 500 } else { 500 };
    assert!(allocations <= most, "{allocations} allocations for 10,000 processes");
    let bytes = bytes - size_of_val(&all[..]) as isize;
    assert!(bytes <= 300 * 10_000, "{bytes} bytes for 10,000 processes");
    drop((warm, all));
}

/// A new process reuses the memory of a process that has exited.
#[cfg(not(procession_plain_memory))]
#[test]
fn the_memory_of_exited_processes_is_reused() {
    let _alone = SERIAL.lock();
    let rt = runtime();
    let spawn_and_join = || {
        let parent = rt.spawn(async |ctx: Context| {
            for n in 0..1000_u64 {
                assert_eq!(ctx.spawn(async move |_: Context| Ok::<_, Exit>(n)).await.ok(), Some(n));
            }
        });
        rt.block_on(parent).expect("each returns its number");
    };
    spawn_and_join();
    let ((), allocations, _) = counted(spawn_and_join);
    assert!(allocations <= 100, "{allocations} allocations for 1000 processes");
}

/// 9.1c: the metric `MemoryMetrics::blocks` grows by the memory that the crate allocates for new processes. After the
/// exit of the processes, the crate frees most of this memory, and the metric shrinks.
#[cfg(not(procession_plain_memory))]
#[test]
fn the_metric_of_the_blocks_counts_the_memory_of_processes() {
    const COUNT: usize = 20_000;
    let _alone = SERIAL.lock();
    let rt = runtime();
    let spawn = || (0..COUNT).map(|_| rt.spawn(idle)).collect::<Vec<_>>();
    let end = |all: Vec<procession::JoinHandle<(), u64>>| {
        all.iter().for_each(|handle| handle.abort());
        rt.block_on(async {
            for handle in all {
                let _ = handle.await;
            }
        });
    };
    let blocks = || rt.metrics().memory.blocks as isize;
    // Other tests may have left free blocks. These processes use the free blocks.
    let warm = spawn();
    let (before, (all, _, bytes)) = (blocks(), counted(spawn));
    let grown = blocks() - before;
    let of_process = grown / COUNT as isize;
    assert!((200..=300).contains(&of_process), "{of_process} bytes of blocks for each process");
    assert!(grown <= bytes, "{grown} bytes of blocks, but only {bytes} allocated bytes");
    end(warm);
    let before = blocks();
    let ((), _, freed) = counted(|| end(all));
    let shrunk = before - blocks();
    assert!(shrunk >= grown / 2, "{shrunk} bytes of blocks were freed, but {grown} bytes were allocated");
    assert!(shrunk <= -freed, "{shrunk} bytes of blocks were freed, but the memory changed by {freed} bytes");
}

/// An empty mailbox stores a message of up to 24 bytes in its slot. Storing such a small message in the slot needs no
/// allocation.
#[test]
fn the_first_message_needs_no_allocation() {
    async fn reads<M: Send + 'static>(mut ctx: Context<M>) {
        ctx.receive().await.expect("one is sent");
    }
    let _alone = SERIAL.lock();
    let rt = runtime();
    let spawn = |length: usize| {
        rt.block_on(rt.spawn(async move |ctx: Context| {
            let all: Vec<_> = (0..1000).map(|_| ctx.spawn(reads::<Vec<u8>>)).collect();
            for process in &all {
                process.send(Vec::with_capacity(length)).expect("it waits");
            }
            for process in all {
                process.await?;
            }
            Ok::<_, Exit>(())
        }))
    };
    spawn(0).expect("all have read");
    let (done, without, _) = counted(|| spawn(0));
    assert!(done.is_ok() && without <= 1000 + 100, "{without} allocations for 1000 processes with a message each");
    let (done, with_text, _) = counted(|| spawn(1));
    assert!(
        done.is_ok() && with_text >= without + 900,
        "only {with_text} with those of the messages: nothing counts them"
    );
}

/// 1.6d: a message of up to 16 bytes needs no allocation, unless the runtime measures the time of the message in the
/// mailbox. The runtime measures about one message in 256. Each of these messages needs at most three allocations. Each
/// call uses one block that the two processes share. A later call reuses the block of an earlier call.
#[test]
fn messages_and_calls_need_no_allocation() {
    enum Ask {
        Note(u64),
        Total(Reply<u64>),
    }
    let _alone = SERIAL.lock();
    let rt = runtime();
    let adder = rt.spawn(async |mut ctx: Context<Ask>| {
        let mut total = 0;
        while let Ok(ask) = ctx.receive().await {
            match ask {
                Ask::Note(n) => total += n,
                Ask::Total(reply) => reply.send(total),
            }
        }
    });
    let ask = |notes: u64| {
        let adder = adder.address();
        let asker = rt.spawn(async move |ctx: Context| {
            for _ in 0..1000 {
                for n in 0..notes {
                    adder.send(Ask::Note(n)).expect("it lives");
                }
                black_box(ctx.call(&adder, Ask::Total).await.expect("it answers"));
            }
        });
        rt.block_on(asker).expect("all is answered");
    };
    ask(10);
    let ((), alone, _) = counted(|| ask(0));
    let ((), with_notes, _) = counted(|| ask(10));
    let each = if cfg!(procession_plain_memory) { 1 } else { 0 };
    assert!(alone <= 1000 * each + 100, "{alone} allocations for 1000 calls");
    let measured = 3 * 10_000 / 256;
    assert!(
        with_notes <= alone + measured + 100,
        "{} allocations for 10,000 messages",
        with_notes.saturating_sub(alone)
    );
}

/// If a process with a large body has exited, an address of the process does not keep the memory of the body alive.
#[test]
fn an_address_does_not_keep_the_memory_of_a_large_body_alive() {
    let _alone = SERIAL.lock();
    let rt = runtime();
    let run = || {
        let large = [1_u8; 100_000];
        let sums =
            rt.spawn(async move |_: Context<u64>| Ok::<_, Exit>(large.iter().map(|&n| u64::from(n)).sum::<u64>()));
        let address = sums.address();
        assert_eq!(rt.block_on(sums).ok(), Some(100_000));
        address
    };
    let _warm = run();
    // The test harness may allocate memory when another test starts or ends. Such an allocation is counted in one of
    // the three runs. A leaked body would be counted in each run. Therefore the test checks the minimum of the three
    // runs.
    let kept = [(); 3].map(|()| counted(run));
    let least = kept.iter().map(|(_address, _, bytes)| *bytes).min().expect("there are three");
    assert!(least < 1000, "{least} bytes are kept");
}

/// If a hand-written process cancels a command, the table of the outstanding commands frees the entry of this command.
/// Therefore the memory of the process does not grow with the number of cancelled commands.
#[test]
fn cancelled_commands_do_not_increase_the_memory() {
    struct Ask;
    impl Command for Ask {
        type Reply = u64;
    }
    /// A process that receives numbers. For each number `count`, the process performs `count` commands. Then the
    /// process cancels all its commands except the oldest `count / 2` commands. If `count` is 0, the process
    /// cancels all its commands.
    struct Cancels(Vec<Tag<Ask>>);
    impl Process for Cancels {
        type Message = usize;
        type Output = ();
        fn step(&mut self, events: Events<'_, usize>, out: &mut StepOutput<'_, usize>) -> Result<Next<()>, Exit> {
            for event in events {
                let Event::Message(count) = event else { continue };
                self.0.extend((0..count).map(|_| out.perform(Ask)));
                assert!(self.0.drain(count / 2..).all(|tag| out.cancel_yield(tag)));
            }
            Ok(Next::Wait)
        }
    }
    let _alone = SERIAL.lock();
    let asked = Arc::new(Mutex::new(Vec::<Completion<u64>>::new()));
    let keeps = Arc::clone(&asked);
    let handler = move |_: Ask, completion| keeps.lock().expect("no panic").push(completion);
    let rt = Runtime::builder().workers(0).handler(handler).build().expect("it is small");
    let cancels = rt.spawn_process(Cancels(Vec::new()));
    let cancel = |times: usize| {
        for _ in 0..times {
            for message in [10, 0] {
                cancels.send(message).expect("it lives");
                for _ in 0..3 {
                    rt.block_on(rt.spawn(async |_: Context| {})).expect("it returns");
                }
            }
            let asked = std::mem::take(&mut *asked.lock().expect("no panic"));
            assert!(asked.len() == 5 && asked.iter().all(Completion::is_cancelled));
        }
    };
    cancel(100);
    // In one round, the test harness may allocate a little memory, or the table may double its size. Therefore the test
    // checks only the total of all rounds.
    let ((), _, grown) = counted(|| cancel(3000));
    assert!(grown < 50_000, "{grown} bytes more for 30,000 cancelled commands");
}

/// A layer retries a command. Each attempt waits in the queue of another layer, and then in the handler inside that
/// layer. After an attempt has ended, the command keeps no memory for this attempt.
#[test]
fn the_ended_attempts_of_a_retry_do_not_increase_the_memory() {
    use procession::layer::{ConcurrencyLimit, Retry};
    #[derive(Clone)]
    struct Ask;
    impl Command for Ask {
        type Reply = u64;
    }
    let _alone = SERIAL.lock();
    let attempts = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&attempts);
    let handler = procession::handler::future(move |_: Ask| {
        count.fetch_add(1, Relaxed);
        let mut is_first = true;
        let waits = std::future::poll_fn(move |cx| {
            cx.waker().wake_by_ref();
            if std::mem::take(&mut is_first) { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
        });
        async {
            waits.await;
            Err::<u64, _>("no")
        }
    });
    let handler = Retry::new(ConcurrencyLimit::new(handler, 1), u32::MAX, std::time::Duration::ZERO);
    let rt = Runtime::builder().workers(0).handler(handler).build().expect("it is small");
    let asks = [(); 2].map(|()| rt.spawn(async |ctx: Context| ctx.perform(Ask).await));
    let run_until = |most: usize| {
        while attempts.load(Relaxed) < most {
            rt.block_on(rt.spawn(async |_: Context| {})).expect("it returns");
        }
    };
    run_until(1_000);
    let ((), _, grown) = counted(|| run_until(4_000));
    assert!(grown < 50_000, "{grown} bytes more for 3,000 attempts");
    drop(asks);
}

/// 9.2a: a query with a limit of `n` selects the first `n` of 100,000 processes. The memory of the call is
/// proportional to `n`. Each process has a name on the heap, so copies of all rows would need many megabytes.
#[test]
fn the_memory_of_a_query_depends_on_its_limit_and_not_on_the_number_of_processes() {
    const PROCESSES: usize = 100_000;
    let _alone = SERIAL.lock();
    let rt = runtime();
    for number in 0..PROCESSES {
        let process = rt.process().name(format!("process {number:06}")).spawn(idle).expect("the name is free");
        (0..number % 7).for_each(|message| process.send(message as u64).expect("it lives"));
    }
    let row = size_of::<ProcessInfo>();
    for (column, limit) in [(ProcessColumn::Pid, 1), (ProcessColumn::Name, 1_000), (ProcessColumn::MailboxLen, 1_000)] {
        for query in [ProcessQuery::new().ascending(column), ProcessQuery::new().descending(column)] {
            let query = query.limit(limit);
            let (rows, peak) = peak_of(|| rt.processes(&query));
            assert_eq!(rows.len(), limit);
            // The rows are in a binary heap. The memory of the heap doubles when the heap is full. Then the rows are
            // moved to the result. The names need less memory than the rows. The test harness may also allocate memory.
            let most = 6 * limit * row + 32 * 1024;
            assert!(peak <= most as isize, "{column:?}: {peak} bytes for {limit} rows");
            // A peak of 0 would mean that nothing is counted.
            assert!(peak >= (limit * row) as isize, "{column:?}: {peak} bytes for {limit} rows");
        }
    }
    let (all, peak) = peak_of(|| rt.processes(&ProcessQuery::new()));
    assert!(all.len() == PROCESSES && peak >= (PROCESSES * row) as isize, "{peak} bytes for all rows");
    let longest = rt.processes(&ProcessQuery::new().descending(ProcessColumn::MailboxLen).limit(3));
    assert!(longest.iter().all(|row| row.mailbox_len == 6), "{longest:?}");
}

/// 9.2j: between two calls, a sampler of increases needs 16 bytes for each process. During a call, the sampler needs 32
/// bytes for each process, or 64 bytes if the number of processes has grown. Each process has a name on the heap, so
/// copies of all rows would need more.
#[test]
fn a_sampler_of_increases_stores_one_number_for_each_process() {
    const PROCESSES: usize = 100_000;
    let _alone = SERIAL.lock();
    let rt = runtime();
    for number in 0..PROCESSES {
        let process = rt.process().name(format!("process {number:06}")).spawn(idle).expect("the name is free");
        drop(process);
    }
    let before = BYTES.load(Relaxed);
    let (mut sampler, peak) = peak_of(|| rt.sample_increases(ProcessCount::MailboxLen));
    // The division rounds down. Therefore other allocations of the test program may add up to one byte per process.
    let bytes_each = |bytes: isize| bytes / PROCESSES as isize;
    assert_eq!(bytes_each(BYTES.load(Relaxed) - before), 16, "between the calls");
    assert!(bytes_each(peak) <= 64, "{peak} bytes for the first snapshot");
    let (increases, peak) = peak_of(|| sampler.take(10));
    // The numbers of the former window have 16 of the 32 bytes, and were allocated before the call.
    assert!(increases.processes.is_empty() && bytes_each(peak) <= 16, "{peak} bytes for a window");
}

/// 9.2i: the run times of a window need a bounded amount of memory, although 100,000 processes have run in the window
/// and each turn is measured.
#[test]
fn the_run_times_of_a_window_need_a_bounded_amount_of_memory() {
    let _alone = SERIAL.lock();
    let rt = Runtime::builder().workers(0).sample_every_step(true).build().expect("it is small");
    let run = |count: usize| {
        let parent = rt.spawn(async move |ctx: Context| {
            for _ in 0..count {
                ctx.spawn(async |_: Context| {}).await.expect("it returns");
            }
        });
        rt.block_on(parent).expect("it returns");
    };
    run(100);
    let mut sampler = rt.sample_run_times();
    let ((), peak) = peak_of(|| run(100_000));
    assert!(peak <= 2 * 1024 * 1024, "{peak} bytes for the window");
    let (times, peak) = peak_of(|| sampler.take(10));
    assert!(peak <= 2 * 1024 * 1024, "{peak} bytes for the report");
    assert_eq!((times.processes.len(), times.turns > 100_000), (10, true));
}

//! Section 9.1 of the specification, second part: the snapshot of all metrics. Each metric has a test that changes the
//! metric.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use procession::observe::{Distributions, FlightRecorder, RuntimeMetrics, WorkerState};
use procession::*;

use crate::{step_aside, two, within};

/// Command whose handler stores the completion.
struct Never;
impl Command for Never {
    type Reply = ();
}

/// Command whose handler answers inline.
struct Now;
impl Command for Now {
    type Reply = ();
}

/// Command whose handler returns a future that is not ready at its first poll.
struct Later;
impl Command for Later {
    type Reply = ();
}

fn lone() -> Runtime {
    Runtime::builder().workers(0).build().unwrap()
}

/// Runs all runnable processes of a runtime without workers.
fn settle(rt: &Runtime) {
    while rt.metrics().processes.ready != 0 {
        rt.block_on(step_aside());
    }
}

/// Observer that reads the metrics when a process starts.
#[derive(Default)]
struct AtStart {
    host: OnceLock<Host>,
    seen: Mutex<Option<RuntimeMetrics>>,
}

impl Observer for AtStart {
    fn started(&self, _: Pid, _: Option<&str>, _: &'static str) {
        *self.seen.lock().unwrap() = self.host.get().map(Host::metrics);
    }
}

/// 9.1c: the snapshot contains the number of processes in each state.
#[test]
fn processes_are_counted_by_state() {
    let kept: Arc<Mutex<Vec<Completion<()>>>> = Arc::default();
    let keep = Arc::clone(&kept);
    let observer = Arc::new(AtStart::default());
    let builder = Runtime::builder().workers(0).observer(Arc::clone(&observer));
    let rt = builder.handler(move |_: Never, completion| keep.lock().unwrap().push(completion)).build().unwrap();
    observer.host.set(rt.host().clone()).unwrap();
    let by_state = |metrics: RuntimeMetrics| {
        let processes = metrics.processes;
        [processes.new, processes.ready, processes.running, processes.blocked, processes.idle]
    };
    let now = || by_state(rt.metrics());
    assert_eq!(now(), [0; 5]);
    let _idle = rt.spawn(async |_: Context<u8>| pending::<()>().await);
    assert_eq!(observer.seen.lock().unwrap().take().map(by_state), Some([1, 0, 0, 0, 0]));
    assert_eq!(now(), [0, 1, 0, 0, 0]);
    settle(&rt);
    assert_eq!(now(), [0, 0, 0, 0, 1]);
    let blocked = [(); 2].map(|()| rt.spawn(async |ctx: Context| ctx.perform(Never).await));
    settle(&rt);
    assert_eq!((now(), rt.metrics().processes.outstanding_yields), ([0, 0, 0, 2, 1], 2));
    let running = rt.spawn(async |ctx: Context| Ok::<_, Exit>(ctx.host().metrics()));
    let seen = rt.block_on(running).unwrap();
    assert_eq!(by_state(seen), [0, 0, 1, 2, 1]);
    kept.lock().unwrap().drain(..).for_each(|completion| completion.complete(()));
    blocked.into_iter().for_each(|one| rt.block_on(one).unwrap());
    assert_eq!((now(), rt.metrics().processes.outstanding_yields), ([0, 0, 0, 0, 1], 0));
}

/// 9.1c: the snapshot contains the number of messages and the number of signals in all mailboxes, and the length of the
/// longest mailbox.
#[test]
fn the_depths_of_the_mailboxes_are_summed_up() {
    let rt = lone();
    let deaf = [(); 2].map(|()| rt.spawn(async |_: Context<u8>| pending::<()>().await));
    settle(&rt);
    let now = || {
        let processes = rt.metrics().processes;
        (processes.mailbox_messages, processes.longest_mailbox, processes.mailbox_signals)
    };
    assert_eq!(now(), (0, 0, 0));
    for number in 0..5 {
        deaf[usize::from(number % 5 == 0)].send(number).unwrap();
    }
    assert_eq!(now(), (5, 4, 0));
    let monitors = rt.spawn(async |ctx: Context| {
        let short = ctx.spawn(async |_: Context| {});
        ctx.monitor(short.pid());
        let _ = short.await;
        pending::<()>().await
    });
    settle(&rt);
    assert_eq!(now(), (5, 4, 1));
    rt.kill(deaf[0].pid()).unwrap();
    rt.kill(monitors.pid()).unwrap();
    settle(&rt);
    assert_eq!(now(), (1, 1, 0));
}

/// 9.1b: the snapshot contains the depths of the global queue, of the priority queues and of the local queues.
#[test]
fn the_depths_of_the_queues_are_read() {
    let rt = lone();
    let depths = |metrics: &RuntimeMetrics| {
        (metrics.global_queue_depth, metrics.priority_queue_depth, metrics.local_queue_depth())
    };
    assert_eq!(depths(&rt.metrics()), (0, 0, 0));
    for priority in [Priority::High, Priority::Low, Priority::Low] {
        drop(rt.process().priority(priority).spawn(async |_: Context| {}).unwrap());
    }
    for _ in 0..4 {
        drop(rt.spawn(async |_: Context| {}));
    }
    assert_eq!(depths(&rt.metrics()), (4, 3, 0));
    settle(&rt);
    assert_eq!(depths(&rt.metrics()), (0, 0, 0));
    let parent = rt.spawn(async |ctx: Context| {
        let children = [(); 6].map(|()| ctx.spawn(async |_: Context| {}));
        let metrics = ctx.host().metrics();
        children.into_iter().for_each(drop);
        Ok::<_, Exit>(metrics)
    });
    let metrics = rt.block_on(parent).unwrap();
    assert_eq!(depths(&metrics), (0, 0, 6));
    assert_eq!(metrics.workers.iter().map(|worker| worker.local_queue_depth).collect::<Vec<_>>(), [6]);
}

/// 9.1b: the snapshot contains each worker and its state. A guest thread is a worker only while it runs tasks.
#[test]
fn workers_are_listed_with_their_states() {
    within(60, || {
        let rt = lone();
        assert_eq!(rt.metrics().workers, []);
        let seen = rt.block_on(rt.spawn(async |ctx: Context| Ok::<_, Exit>(ctx.host().metrics()))).unwrap();
        assert_eq!((seen.workers.len(), seen.workers_in(WorkerState::Running)), (1, 1));
        assert_eq!(rt.metrics().workers, []);

        let rt = two();
        while rt.metrics().workers_in(WorkerState::Parked) != 2 {
            thread::yield_now();
        }
        assert_eq!(rt.metrics().workers.iter().map(|worker| worker.worker).collect::<Vec<_>>(), [0, 1]);
        let blocks = rt.spawn(async |ctx: Context| {
            let before = ctx.host().metrics().workers_in(WorkerState::Blocked);
            Ok::<_, Exit>((before, block_in_place(|| ctx.host().metrics().workers_in(WorkerState::Blocked))))
        });
        assert_eq!(block_on(blocks).unwrap(), (0, 1));
    });
}

/// 9.1b: the snapshot contains the number of threads of the blocking pool, the number of its idle threads, and the
/// length of its queue.
#[test]
fn the_blocking_pool_is_counted() {
    within(60, || {
        let rt = Runtime::builder().workers(0).max_blocking_threads(1).build().unwrap();
        let now = || {
            let pool = rt.metrics().blocking_pool;
            (pool.threads, pool.idle_threads, pool.queue_depth)
        };
        assert_eq!(now(), (0, 0, 0));
        let (gate, gated) = mpsc::channel::<()>();
        let (begins, begun) = mpsc::channel();
        let first = rt.spawn_blocking(move || {
            begins.send(()).unwrap();
            gated.recv()
        });
        let second = rt.spawn_blocking(|| ());
        begun.recv().unwrap();
        assert_eq!(now(), (1, 0, 1));
        drop(gate);
        assert!(rt.block_on(first).unwrap().is_err());
        rt.block_on(second).unwrap();
        while now() != (1, 1, 0) {
            thread::yield_now();
        }
    });
}

/// 9.1c: the snapshot contains the number of timers, and the memory of each structure of the crate.
#[test]
fn timers_and_memory_are_counted() {
    let rt = lone();
    let before = rt.metrics();
    assert_eq!((before.timers, before.memory.timers), (0, 0));
    let sleeper = async |ctx: Context| ctx.sleep(Duration::from_secs(3600)).await;
    let sleepers: Vec<_> = (0..1_000).map(|_| rt.spawn(sleeper)).collect();
    let queued = rt.metrics();
    let per_task = (queued.memory.global_queue - before.memory.global_queue) as f64 / 1_000.0;
    assert!((8.0..64.0).contains(&per_task), "{per_task} bytes per queued process");
    settle(&rt);
    let after = rt.metrics();
    assert_eq!(after.timers, 1_000);
    let grown = |now: usize, before: usize| (now - before) as f64 / 1_000.0;
    let per_timer = grown(after.memory.timers, before.memory.timers);
    assert!((32.0..=160.0).contains(&per_timer), "{per_timer} bytes per timer");
    let per_pid = grown(after.memory.pid_table, before.memory.pid_table);
    assert!((8.0..=64.0).contains(&per_pid), "{per_pid} bytes per pid");
    assert!(after.memory.blocks >= 1_000 * 64, "{} bytes of blocks", after.memory.blocks);
    // The first measured turn on a thread allocates the buckets of this thread.
    assert!(after.memory.metrics > before.memory.metrics);
    let memory = after.memory;
    let queues = memory.mailboxes + memory.timers + memory.global_queue;
    let sum = memory.blocks + memory.pid_table + queues + memory.metrics + memory.traces;
    assert_eq!(memory.total(), sum);
    drop(sleepers);
    drop(rt);
}

/// 9.1c: the memory of the mailboxes contains the queue of a process, the queue of a bounded mailbox, and the queue of
/// a mailbox without a process. The memory of a burst is freed after the burst was received.
#[test]
fn the_memory_of_mailboxes_is_counted() {
    let rt = lone();
    let mailboxes = || rt.metrics().memory.mailboxes;
    let before = mailboxes();
    let reader = async |mut ctx: Context<[u64; 4]>| -> Result<(), Exit> {
        loop {
            ctx.receive().await?;
        }
    };
    let plain = rt.spawn(reader);
    let bounded = rt.process().mailbox_capacity(MailboxCapacity::Reject(2_000)).spawn(reader).unwrap();
    let (outside, mailbox) = rt.mailbox::<[u64; 4]>();
    for address in [plain.address(), bounded.address(), outside] {
        let begun = mailboxes();
        for number in 0..1_000 {
            address.send([number; 4]).unwrap();
        }
        let per_message = (mailboxes() - begun) as f64 / 1_000.0;
        assert!((32.0..=96.0).contains(&per_message), "{per_message} bytes per message of 32 bytes");
    }
    drop(mailbox);
    settle(&rt);
    let after = mailboxes() - before;
    assert!(after <= 10_000, "{after} bytes after the burst was received");
}

/// 9.1c: the memory of traces contains the rings of events, and the labels of processes. The rings of a trace stay
/// allocated after the end of the trace. The rings of a flight recorder are allocated when the runtime is built.
#[test]
fn the_memory_of_traces_and_of_the_flight_recorder_is_counted() {
    const RING: usize = 512 << 10;
    let rt = lone();
    let traces = |rt: &Runtime| rt.metrics().memory.traces;
    let before = traces(&rt);
    assert!(before < RING / 2, "{before} bytes without a trace");
    let trace = rt.start_trace_to(std::io::sink()).unwrap();
    rt.block_on(rt.spawn(async |_: Context| ())).unwrap();
    trace.finish().unwrap();
    let after = traces(&rt);
    let rings = (after - before) / RING;
    assert!((1..=3).contains(&rings), "{} bytes of rings", after - before);
    rt.block_on(rt.spawn(async |_: Context| ())).unwrap();
    assert_eq!(traces(&rt), after, "a runtime without a trace records no event");
    // The labels of 1,000 processes.
    let trace = rt.start_trace_to(std::io::sink()).unwrap();
    let names = (0..1_000).map(|number| format!("{number:0100}"));
    let named: Vec<_> = names.map(|name| rt.process().name(name).spawn(async |_: Context| ()).unwrap()).collect();
    settle(&rt);
    trace.finish().unwrap();
    let per_label = (traces(&rt) - after) as f64 / 1_000.0;
    assert!((200.0..=1_000.0).contains(&per_label), "{per_label} bytes per label");
    drop(named);
    let recorder = FlightRecorder::new().buffer_size(2 * RING);
    let recorded = Runtime::builder().workers(2).flight_recorder(recorder).build().unwrap();
    assert!(traces(&recorded) >= 2 * 2 * RING, "{} bytes", traces(&recorded));
}

/// 9.1d: throughput is the number of steps per second. In a simulation, the elapsed time is the virtual time.
#[test]
fn throughput_is_the_number_of_steps_per_second() {
    let mut simulation = Simulation::new(1);
    assert_eq!((simulation.metrics().throughput(), simulation.metrics().elapsed), (0.0, Duration::ZERO));
    let sleeps = async |ctx: Context| {
        for _ in 0..9 {
            ctx.sleep(Duration::from_millis(200)).await;
        }
        Ok::<_, Exit>(ctx.host().metrics())
    };
    let first = simulation.spawn(sleeps);
    let early = simulation.run(first).unwrap();
    assert_eq!((early.elapsed, early.counters.steps), (Duration::from_millis(1_800), 9));
    assert_eq!(early.throughput(), 5.0);
    let second = simulation.spawn(sleeps);
    let late = simulation.run(second).unwrap();
    let between = late.clone() - early;
    assert_eq!((between.elapsed, between.counters.steps), (Duration::from_millis(1_800), 10));
    assert_eq!(late.elapsed, Duration::from_millis(3_600));
    assert_eq!((late.workers, late.blocking_pool.threads), (Vec::new(), 0));
}

/// 9.1b: in a simulation, the depth of the global queue is the number of runnable processes.
#[test]
fn a_simulation_counts_its_runnable_processes() {
    let mut simulation = Simulation::new(1);
    let all = [(); 3].map(|()| simulation.spawn(async |_: Context| {}));
    assert_eq!(simulation.metrics().global_queue_depth, 3);
    for one in all {
        simulation.run(one).unwrap();
    }
    assert_eq!(simulation.metrics().global_queue_depth, 0);
}

/// 9.1f: the difference of two snapshots contains the counts and durations that were recorded between the snapshots,
/// and the gauges of the later snapshot.
#[test]
fn a_difference_keeps_the_gauges_of_the_later_snapshot() {
    let rt = Runtime::builder().workers(0).sample_every_step(true).build().unwrap();
    let _first = rt.spawn(async |_: Context<u8>| pending::<()>().await);
    settle(&rt);
    let before = rt.metrics();
    let second = rt.spawn(async |_: Context<u8>| pending::<()>().await);
    second.send(1).unwrap();
    settle(&rt);
    let after = rt.metrics();
    let between = after.clone() - before.clone();
    assert_eq!((before.counters.spawned, between.counters.spawned, after.counters.spawned), (1, 1, 2));
    let counts = |metrics: &RuntimeMetrics| metrics.distributions.scheduling_delay.count();
    assert_eq!((counts(&before), counts(&between), counts(&after)), (1, 1, 2));
    assert_eq!((between.processes, between.memory, between.timers), (after.processes, after.memory, after.timers));
    assert_eq!((between.processes.idle, between.processes.mailbox_messages), (2, 1));
    assert_eq!(between.elapsed, after.elapsed - before.elapsed);
    assert_eq!(between.steal_success(), between.counters.steal_success());
}

/// 9.1a: a snapshot prints as a page with one topic per line.
#[test]
fn a_snapshot_prints_as_a_page() {
    let mut simulation = Simulation::new(1);
    let sleeps = simulation.spawn(async |ctx: Context| {
        ctx.sleep(Duration::from_millis(500)).await;
        Ok::<_, Exit>(ctx.host().metrics())
    });
    let page = simulation.run(sleeps).unwrap().to_string();
    let lines: Vec<_> = page.lines().collect();
    assert_eq!(lines[0], "elapsed: 500ms, 2.0 steps per second");
    assert_eq!(lines[1], "counters: spawned 1, polls 2, steps 1");
    for (at, line) in [
        "sampled: one in 64, messages: one in 256",
        "workers: running 0, searching 0, parked 0, blocked 0",
        "queues: global 0, priority 0, local 0",
        "processes: new 0, ready 0, running 1, blocked 0, idle 0, suspended 0",
        "mailboxes: messages 0, longest 0, signals 0",
        "blocking pool: threads 0, idle 0, queued 0",
        "outstanding: yields 0, timers 0",
        "sockets: registered 0",
    ]
    .into_iter()
    .enumerate()
    {
        let from = lines.iter().position(|line| line.starts_with("sampled")).unwrap();
        assert_eq!(lines[from + at], line);
    }
    let memory = lines.last().unwrap();
    assert!(memory.starts_with("memory in bytes: blocks ") && memory.contains(", traces "), "{page}");
}

/// 9.1d: the measured time of a message in the mailbox ends when the process takes the message out.
#[test]
fn the_times_of_messages_in_mailboxes_are_measured() {
    const STEP: Duration = Duration::from_millis(5);
    let mut simulation = Simulation::new(1);
    let slow = simulation.spawn(async move |mut ctx: Context<u64>| {
        for number in 0..10_000 {
            assert_eq!(ctx.receive().await?, number);
            ctx.sleep(STEP).await;
        }
        Ok::<_, Exit>(ctx.host().metrics())
    });
    let to = slow.address();
    // The receiver waits for the first message. Each later message arrives 1 ms after the receiver has begun a sleep of
    // 5 ms. So each of these later messages waits for 4 ms.
    let _sender = simulation.spawn(async move |ctx: Context| {
        for number in 0..10_000 {
            let _ = to.send(number);
            ctx.sleep(if number == 0 { Duration::from_millis(1) } else { STEP }).await;
        }
    });
    let time = simulation.run(slow).unwrap().distributions.mailbox_time;
    assert!((20..=60).contains(&time.count()), "{time}");
    assert!(time.mean().unwrap() <= Duration::from_millis(4), "{time}");
    // The first message may be one of the measured messages. It does not wait.
    assert!(
        time.mean().unwrap() * time.count() as u32 >= Duration::from_millis(4) * (time.count() as u32 - 1),
        "{time}"
    );
}

/// 9.1d: a thread outside the runtime sends messages to a receiver that waits. About one message in 256 is measured.
/// With `sample_every_step`, each message to an empty mailbox is measured.
#[test]
fn the_messages_of_a_thread_are_measured() {
    const MESSAGES: u64 = 6_400;
    let measured = |every: bool| {
        let rt = Runtime::builder().workers(0).sample_every_step(every).build().unwrap();
        let receiver = rt.spawn(async |mut ctx: Context<u64>| while ctx.receive().await.is_ok() {});
        settle(&rt);
        for message in 0..MESSAGES {
            receiver.send(message).unwrap();
            settle(&rt);
        }
        let times = rt.metrics().distributions;
        (times.mailbox_time.count(), u64::from(times.messages_sampled_one_in))
    };
    // Each thread counts its own messages, so each of the two runtimes gets its messages from a new thread.
    let [(some, rate), (all, _)] =
        [false, true].map(|every| thread::scope(|scope| scope.spawn(|| measured(every)).join().unwrap()));
    // On average, one message in 256 is measured.
    assert!((MESSAGES / rate - 15..=MESSAGES / rate + 15).contains(&some), "{some}");
    assert_eq!(all, MESSAGES);
}

/// 9.1e: the snapshot, the page of the snapshot, the Prometheus text and a difference of snapshots contain the two
/// sampling rates. The option `sample_every_step` changes both rates.
#[test]
fn a_snapshot_states_the_sampling_rates_of_turns_and_of_messages() {
    for (every, turns, messages) in [(false, 64, 256), (true, 1, 1)] {
        let rt = Runtime::builder().workers(0).sample_every_step(every).build().unwrap();
        let metrics = rt.metrics();
        let rates = |times: &Distributions| (times.sampled_one_in, times.messages_sampled_one_in);
        assert_eq!(rates(&metrics.distributions), (turns, messages));
        let page = metrics.to_string();
        assert!(page.contains(&format!("\nsampled: one in {turns}, messages: one in {messages}\n")), "{page}");
        let text = Page::parse(&metrics.to_prometheus());
        assert_eq!(text.values["procession_sampled_one_in"], f64::from(turns));
        assert_eq!(text.values["procession_messages_sampled_one_in"], f64::from(messages));
        assert_eq!(rates(&(rt.metrics() - metrics).distributions), (turns, messages));
    }
}

/// 9.1d: the time of a call is measured if an async body makes the call in a measured turn and takes the reply.
#[test]
fn the_times_of_calls_are_measured() {
    let rt = Runtime::builder().workers(0).sample_every_step(true).build().unwrap();
    let server = rt.spawn(async |mut ctx: Context<(bool, Reply<u64>)>| {
        let mut kept = Vec::new();
        loop {
            let (answers, reply) = ctx.receive().await?;
            if answers { reply.send(1) } else { kept.push(reply) }
        }
        #[expect(unreachable_code, reason = "determines the type of the exit")]
        Ok::<(), Exit>(())
    });
    let to = server.address();
    let before = rt.metrics().distributions;
    assert_eq!(before.call_time.count(), 0);
    let calls = rt.spawn(async move |ctx: Context| {
        for _ in 0..5 {
            ctx.call(&to, |reply| (true, reply)).await?;
        }
        // This call times out before the reply.
        let call = ctx.call(&to, |reply| (false, reply)).timeout(Duration::from_millis(1));
        assert!(matches!(call.await, Err(CallError::TimedOut)));
        Ok::<_, Exit>(())
    });
    rt.block_on(calls).unwrap();
    let now = rt.metrics();
    let between = now.distributions.clone() - before;
    assert_eq!(between.call_time.count(), 5);
    assert!(between.call_time.sum() <= now.elapsed && between.call_time.quantile(0.99).is_some());
    // A call that is polled outside the turn of a process is not measured.
    rt.block_on(server.address().call(|reply| (true, reply))).unwrap();
    assert_eq!(rt.metrics().distributions.call_time.count(), 5);
}

/// Returns the number of measured commands of a type.
fn commands_of<C>(metrics: &RuntimeMetrics) -> u64 {
    let mut times = metrics.distributions.command_time.iter();
    times.find(|one| one.command == std::any::type_name::<C>()).map_or(0, |one| one.time.count())
}

/// Hand-written process that performs a command in its first step, and exits after the answer.
struct Performs;
impl Process for Performs {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
        for event in events {
            if let Event::Completed(_) = event {
                return Ok(Next::Done(()));
            }
        }
        out.perform(Now);
        Ok(Next::Wait)
    }
}

/// 9.1d: for each type of command, the time from the yield to the answer is measured. A cancelled command is not
/// recorded.
#[test]
fn the_times_of_commands_are_measured_by_type() {
    let kept: Arc<Mutex<Vec<Completion<()>>>> = Arc::default();
    let keep = Arc::clone(&kept);
    let rt = Runtime::builder()
        .workers(0)
        .sample_every_step(true)
        .handle(|_: Now| ())
        .handle_async(async |_: Later| step_aside().await)
        .handler(move |_: Never, completion| keep.lock().unwrap().push(completion))
        .build()
        .unwrap();
    let counts = || {
        let metrics = rt.metrics();
        [commands_of::<Now>(&metrics), commands_of::<Later>(&metrics), commands_of::<Never>(&metrics)]
    };
    assert_eq!((counts(), rt.metrics().distributions.command_time), ([0; 3], Vec::new()));
    let performs = rt.spawn(async |ctx: Context| {
        for _ in 0..3 {
            ctx.perform(Now).await?;
        }
        ctx.perform(Later).await?;
        ctx.perform(Later).timeout(Duration::from_secs(3600)).await?;
        ctx.perform(Later).start().await?;
        Ok::<_, Exit>(())
    });
    rt.block_on(performs).unwrap();
    assert_eq!(counts(), [3, 3, 0]);
    let before = rt.metrics();
    let cancels = rt.spawn(async |ctx: Context| {
        drop(ctx.perform(Never).start());
        ctx.perform(Never).await?;
        Ok::<_, Exit>(())
    });
    settle(&rt);
    assert_eq!(counts(), [3, 3, 0]);
    kept.lock().unwrap().drain(..).for_each(|completion| completion.complete(()));
    rt.block_on(cancels).unwrap();
    rt.block_on(rt.spawn_process(Performs)).unwrap();
    assert_eq!(counts(), [4, 3, 1]);
    let between = rt.metrics() - before;
    let between = [commands_of::<Now>(&between), commands_of::<Later>(&between), commands_of::<Never>(&between)];
    assert_eq!(between, [1, 0, 1]);
    let name = std::any::type_name::<Now>();
    let page = Page::parse(&rt.metrics().to_prometheus());
    assert_eq!(page.values[&format!("procession_command_time_seconds_count{{command=\"{name}\"}}")], 4.0);
    assert!(rt.metrics().to_string().contains(&format!("command_time of {name}: 4, p50 ")));
}

/// 9.1e: by default, the commands of one turn in 64 are measured.
#[test]
fn the_commands_of_one_turn_in_64_are_measured() {
    // The test needs a new thread, because each thread counts its own turns.
    within(60, || {
        let rt = Runtime::builder().workers(0).handle(|_: Now| ()).build().unwrap();
        let performs = rt.spawn(async |ctx: Context| {
            for _ in 0..6400 {
                ctx.perform(Now).await?;
                ctx.yield_now().await;
            }
            Ok::<_, Exit>(())
        });
        rt.block_on(performs).unwrap();
        let measured = commands_of::<Now>(&rt.metrics());
        assert!((98..=102).contains(&measured), "{measured}");
    });
}

/// 9.1d: a simulation measures times in virtual time.
#[test]
fn a_simulation_measures_calls_in_virtual_time() {
    let mut simulation = Simulation::new(1);
    let server = simulation.spawn(async |mut ctx: Context<Reply<()>>| {
        for _ in 0..1_000 {
            let reply = ctx.receive().await?;
            ctx.sleep(Duration::from_millis(5)).await;
            reply.send(());
        }
        Ok::<_, Exit>(())
    });
    let to = server.address();
    let calls = simulation.spawn(async move |ctx: Context| {
        for _ in 0..1_000 {
            ctx.call(&to, |reply| reply).await?;
        }
        Ok::<_, Exit>(ctx.host().metrics())
    });
    let metrics = simulation.run(calls).unwrap();
    let time = &metrics.distributions.call_time;
    // Each call takes three turns, and one turn in 64 is measured. So about 1,000 / 64 calls are measured.
    assert!((10..=20).contains(&time.count()), "{time}");
    let mean = time.mean().unwrap();
    // Internally, the time 0 means that a call is not measured. Therefore, if a call begins at the time 0, its
    // measurement begins at 1 ns.
    assert!((Duration::from_micros(4_999)..Duration::from_millis(7)).contains(&mean), "{mean:?}");
}

/// A parsed page in the Prometheus text format.
#[derive(Default)]
struct Page {
    /// Type of each metric, by name.
    types: BTreeMap<String, String>,
    /// Value of each series, by name and labels.
    values: BTreeMap<String, f64>,
}

impl Page {
    /// Parses a page by the rules of "Exposition formats" of the Prometheus documentation.
    fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut helped = BTreeSet::new();
        let mut family = String::new();
        let is_name = |name: &str| {
            let first = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
            first && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        assert!(text.ends_with('\n'), "the last line has no line break");
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, help) = help.split_once(' ').expect("a name and a text");
                assert!(is_name(name) && !help.is_empty() && !help.contains('['), "{line}");
                assert!(helped.insert(name.to_owned()), "{name} has two help texts");
                name.clone_into(&mut family);
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').expect("a name and a type");
                assert_eq!(name, family, "the help text and the type belong to one figure");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert!(page.types.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} has two types");
            } else {
                let (series, value) = line.rsplit_once(' ').expect("a series and a value");
                let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
                let labels = labels.strip_suffix('}').expect("labels end with a brace");
                for label in labels.split(',').filter(|label| !label.is_empty()) {
                    let (label, value) = label.split_once('=').expect("a label has a value");
                    assert!(is_name(label) && value.len() >= 2 && value.starts_with('"') && value.ends_with('"'));
                }
                let kind = page.types[&family].as_str();
                let suffix = name.strip_prefix(family.as_str()).expect("the series of a figure are adjacent");
                let suffixes: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
                assert!(suffixes.contains(&suffix), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                let value: f64 = value.parse().expect("a number");
                assert!(value.is_finite(), "{line}");
                assert!(page.values.insert(series.to_owned(), value).is_none(), "{series} has two values");
            }
        }
        page
    }

    /// Checks the buckets of a histogram without labels. Returns the number of durations in the histogram.
    fn count_of(&self, name: &str) -> u64 {
        let bucket = format!("{name}_bucket{{le=\"");
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for (series, &count) in self.values.iter().filter(|(series, _)| series.starts_with(&bucket)) {
            let bound = series[bucket.len()..].strip_suffix("\"}").expect("one label").replace("+Inf", "inf");
            buckets.push((bound.parse().expect("a bound"), count));
        }
        buckets.sort_by(|one, next| one.0.total_cmp(&next.0));
        assert!(buckets.is_sorted_by(|one, next| one.0 < next.0 && one.1 <= next.1), "{name}: {buckets:?}");
        let &(bound, count) = buckets.last().expect("each histogram has buckets");
        assert_eq!((bound, count), (f64::INFINITY, self.values[&format!("{name}_count")]));
        assert!(self.values[&format!("{name}_sum")] >= 0.0);
        count as u64
    }
}

/// 9.1f: the Prometheus text contains each metric with a help text and a type, and follows the rules of the format.
#[test]
fn the_prometheus_text_is_well_formed_and_complete() {
    let rt = Runtime::builder().workers(0).sample_every_step(true).build().unwrap();
    let parent = rt.spawn(async |ctx: Context| {
        let deaf = ctx.spawn(async |_: Context<u8>| pending::<()>().await);
        for number in 0..3 {
            deaf.send(number).unwrap();
        }
        ctx.yield_now().await;
        Ok::<_, Exit>(ctx.host().metrics())
    });
    let metrics = rt.block_on(parent).unwrap();
    let page = Page::parse(&metrics.to_prometheus());
    let is = |series: &str, value: usize| assert_eq!(page.values[&format!("procession_{series}")], value as f64);
    is("spawned_total", 2);
    is("messages_total", 3);
    is("steps_total", metrics.counters.steps as usize);
    is("sampled_one_in", 1);
    is("messages_sampled_one_in", 1);
    is("workers{state=\"running\"}", 1);
    is("workers{state=\"parked\"}", 0);
    is("processes{state=\"running\"}", 1);
    is("processes{state=\"idle\"}", 1);
    is("mailbox_messages", 3);
    is("longest_mailbox", 3);
    is("memory_bytes{structure=\"pid_table\"}", metrics.memory.pid_table);
    is("memory_bytes{structure=\"traces\"}", metrics.memory.traces);
    let worker = metrics.workers[0].worker;
    is(&format!("local_queue_depth{{worker=\"{worker}\"}}"), 0);
    let times = &metrics.distributions;
    assert_eq!(page.count_of("procession_scheduling_delay_seconds"), times.scheduling_delay.count());
    assert_eq!(page.count_of("procession_step_time_seconds"), times.step_time.count());
    assert!(times.scheduling_delay.count() >= 3);
    let sum = page.values["procession_scheduling_delay_seconds_sum"];
    assert_eq!(sum, times.scheduling_delay.sum().as_secs_f64());
    // The page has one series for each field of the counters.
    let counters = page.types.values().filter(|kind| *kind == "counter").count();
    assert_eq!(counters, format!("{:?}", metrics.counters).matches(": ").count());
}

/// 9.1f: the metrics of two runtimes are written as one well-formed text. Each sample has the labels of its runtime,
/// and labels may contain any text.
#[test]
fn the_prometheus_text_of_several_runtimes_is_well_formed() {
    let metrics = [2, 3].map(|processes| {
        let rt = Runtime::builder().workers(0).sample_every_step(true).handle(|_: Now| ()).build().unwrap();
        for _ in 0..processes {
            rt.block_on(rt.spawn(async |_: Context| ())).unwrap();
        }
        // Only the metrics of the second runtime include a command.
        if processes == 3 {
            rt.block_on(rt.spawn_process(Performs)).unwrap();
        }
        rt.metrics()
    });
    let evil = "a \"b\"\n\\c";
    let labels: [&[(&str, &str)]; 2] = [&[("runtime", "io"), ("zone", evil)], &[("runtime", "jobs")]];
    let text = RuntimeMetrics::all_to_prometheus(&[(labels[0], &metrics[0]), (labels[1], &metrics[1])]);
    let page = Page::parse(&text);
    let alone = metrics.each_ref().map(|metrics| Page::parse(&metrics.to_prometheus()));
    let io = "runtime=\"io\",zone=\"a \\\"b\\\"\\n\\\\c\"";
    // For each runtime, the common text contains all series that `to_prometheus` writes for this runtime, with the
    // labels of this runtime.
    for (labels, alone) in [io, "runtime=\"jobs\""].iter().zip(&alone) {
        for (series, value) in &alone.values {
            let series = match series.split_once('{') {
                Some((name, own)) => format!("{name}{{{labels},{own}"),
                None => format!("{series}{{{labels}}}"),
            };
            assert_eq!(page.values.get(&series), Some(value), "{series}");
        }
    }
    assert_eq!(page.values.len(), alone.iter().map(|page| page.values.len()).sum::<usize>());
    assert_eq!(page.types, alone[1].types);
    let spawned = |runtime: &str| page.values[&format!("procession_spawned_total{{{runtime}}}")];
    assert_eq!((spawned(io), spawned("runtime=\"jobs\"")), (2.0, 4.0));
    assert_eq!(
        RuntimeMetrics::all_to_prometheus(&[(labels[0], &metrics[0])]),
        metrics[0].to_prometheus_with(labels[0])
    );
    assert_eq!(RuntimeMetrics::all_to_prometheus(&[(&[], &metrics[0])]), metrics[0].to_prometheus());
    assert_eq!(RuntimeMetrics::all_to_prometheus(&[]), "");
}

/// 9.1f: a label that would make the Prometheus text invalid or ambiguous is refused.
#[test]
fn an_invalid_label_is_refused() {
    let metrics = lone().metrics();
    let refused = |snapshots: &[&[(&str, &str)]]| {
        let snapshots: Vec<_> = snapshots.iter().map(|labels| (*labels, &metrics)).collect();
        std::panic::catch_unwind(|| RuntimeMetrics::all_to_prometheus(&snapshots)).is_err()
    };
    for name in ["", "1st", "a-b", "a b", "naïve", "__name", "le", "worker", "state", "structure", "command"] {
        assert!(refused(&[&[(name, "x")]]), "{name:?}");
    }
    assert!(refused(&[&[("a", "1"), ("a", "2")]]));
    assert!(!refused(&[&[("a", "1"), ("_b2", "")]]));
    assert!(!refused(&[&[("a", "1")], &[("a", "2")], &[]]));
    for other in [&[("b", "2"), ("a", "1")][..], &[("a", "1"), ("b", "2"), ("c", "")]] {
        assert!(refused(&[&[("a", "1"), ("b", "2")], other]), "{other:?}");
    }
    // Each label name that the crate itself uses is refused.
    let page = Page::parse(&metrics.to_prometheus());
    let own = page.values.keys().filter_map(|series| Some(series.split_once('{')?.1.split_once('=')?.0));
    assert!(own.clone().count() > 10);
    own.for_each(|name| assert!(refused(&[&[(name, "x")]]), "{name}"));
}

/// 9.1f: the buckets of the Prometheus text are cumulative: each bucket counts the durations up to its bound.
#[test]
fn the_buckets_of_the_prometheus_text_are_cumulative() {
    let mut simulation = Simulation::new(1);
    let body = async |ctx: Context| {
        ctx.sleep(Duration::from_millis(1)).await;
        Ok::<_, Exit>(ctx.host().metrics())
    };
    let run = simulation.spawn(body);
    let metrics = simulation.run(run).unwrap();
    let page = Page::parse(&metrics.to_prometheus());
    let count = metrics.distributions.scheduling_delay.count();
    assert_eq!(page.count_of("procession_scheduling_delay_seconds"), count);
    // In a simulation, the waiting time of a runnable process is zero, so all durations are in the first bucket.
    assert_eq!(page.values["procession_scheduling_delay_seconds_bucket{le=\"0.000000255\"}"], count as f64);
    assert_eq!(page.values["procession_elapsed_seconds"], 0.001);
}

/// Returns the expected tokens of a struct whose fields are numbers. The names and the values come from the `Debug`
/// text.
#[cfg(feature = "serde")]
fn tokens_of_numbers(debug: &str) -> Vec<serde_test::Token> {
    use serde_test::Token;
    let text: &'static str = debug.to_owned().leak();
    let (name, fields) = text.split_once(" { ").unwrap();
    let fields: Vec<_> =
        fields.trim_end_matches(" }").split(", ").map(|field| field.split_once(": ").unwrap()).collect();
    let mut tokens = vec![Token::Struct { name, len: fields.len() }];
    for (field, value) in fields {
        tokens.extend([Token::Str(field), Token::U64(value.parse().unwrap())]);
    }
    tokens.push(Token::StructEnd);
    tokens
}

/// 9.1f: with the feature `serde`, a snapshot is written as a nested struct with the names of the fields.
#[cfg(feature = "serde")]
#[test]
fn a_snapshot_is_serialized_with_the_names_of_its_fields() {
    use serde_test::Token;
    let rt = Runtime::builder().workers(0).sample_every_step(true).handle(|_: Now| ()).build().unwrap();
    let deaf = rt.spawn(async |_: Context<u8>| pending::<()>().await);
    deaf.send(1).unwrap();
    let performs = rt.spawn(async |ctx: Context| {
        ctx.perform(Now).await?;
        Ok::<_, Exit>(ctx.host().metrics())
    });
    let metrics = rt.block_on(performs).unwrap();
    let ns = |time: Duration| Token::U64(time.as_nanos() as u64);
    let field = |name, value: usize| [Token::Str(name), Token::U64(value as u64)];

    let mut expected = vec![Token::Struct { name: "RuntimeMetrics", len: 11 }];
    expected.extend([Token::Str("elapsed_ns"), ns(metrics.elapsed), Token::Str("counters")]);
    expected.extend(tokens_of_numbers(&format!("{:?}", metrics.counters)));
    expected.push(Token::Str("distributions"));
    let times = &metrics.distributions;
    let histograms = [
        (None, "scheduling_delay", &times.scheduling_delay),
        (None, "step_time", &times.step_time),
        (None, "mailbox_time", &times.mailbox_time),
        (None, "call_time", &times.call_time),
        (Some(times.command_time[0].command), "time", &times.command_time[0].time),
    ];
    expected.push(Token::Struct { name: "Distributions", len: histograms.len() + 2 });
    for (command, name, histogram) in histograms {
        if let Some(command) = command {
            expected.extend([Token::Str("command_time"), Token::Seq { len: Some(1) }]);
            expected.push(Token::Struct { name: "CommandTime", len: 2 });
            expected.extend([Token::Str("command"), Token::Str(command)]);
        }
        expected.extend([Token::Str(name), Token::Struct { name: "Histogram", len: 6 }]);
        expected.extend([
            Token::Str("count"),
            Token::U64(histogram.count()),
            Token::Str("sum_ns"),
            ns(histogram.sum()),
        ]);
        for (name, q) in [("p50_ns", 0.5), ("p99_ns", 0.99), ("p999_ns", 0.999)] {
            expected.push(Token::Str(name));
            match histogram.quantile(q) {
                Some(quantile) => expected.extend([Token::Some, ns(quantile)]),
                None => expected.push(Token::None),
            }
        }
        expected.extend([Token::Str("buckets"), Token::Seq { len: Some(histogram.buckets().count()) }]);
        for (longest, count) in histogram.buckets() {
            expected.extend([Token::Tuple { len: 2 }, ns(longest), Token::U64(count), Token::TupleEnd]);
        }
        expected.extend([Token::SeqEnd, Token::StructEnd]);
        if command.is_some() {
            expected.extend([Token::StructEnd, Token::SeqEnd]);
        }
    }
    expected.extend([Token::Str("sampled_one_in"), Token::U32(1)]);
    expected.extend([Token::Str("messages_sampled_one_in"), Token::U32(1), Token::StructEnd]);
    expected.extend([Token::Str("workers"), Token::Seq { len: Some(1) }]);
    expected.push(Token::Struct { name: "WorkerMetrics", len: 3 });
    expected.extend(field("worker", metrics.workers[0].worker));
    expected.extend([Token::Str("state"), Token::Str("running")]);
    expected.extend(field("local_queue_depth", metrics.workers[0].local_queue_depth));
    expected.extend([Token::StructEnd, Token::SeqEnd]);
    expected.extend(field("global_queue_depth", metrics.global_queue_depth));
    expected.extend(field("priority_queue_depth", metrics.priority_queue_depth));
    expected.push(Token::Str("processes"));
    expected.extend(tokens_of_numbers(&format!("{:?}", metrics.processes)));
    expected.push(Token::Str("blocking_pool"));
    expected.extend(tokens_of_numbers(&format!("{:?}", metrics.blocking_pool)));
    expected.extend(field("timers", metrics.timers));
    expected.extend(field("sockets", metrics.sockets));
    expected.push(Token::Str("memory"));
    expected.extend(tokens_of_numbers(&format!("{:?}", metrics.memory)));
    expected.push(Token::StructEnd);
    serde_test::assert_ser_tokens(&metrics, &expected);
}

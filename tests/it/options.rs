//! Section 11 of the specification: every option of every builder, with values at the ends of its range. Either the
//! builder returns an error, or the built value works. No operation panics, and no operation hangs.

use std::time::Duration;

use futures::executor::block_on;
use procession::layer::*;
use procession::observe::{FlightRecorder, InspectOptions};
use procession::*;

use crate::{shut_down, within};

const NS: Duration = Duration::from_nanos(1);
const MS: Duration = Duration::from_millis(1);
const TIMES: [Duration; 5] = [Duration::ZERO, NS, MS, Duration::from_nanos(u64::MAX), Duration::MAX];
const COUNTS: [usize; 4] = [0, 1, usize::MAX - 1, usize::MAX];

/// A text and a function. The function sets an option to a value. The text contains the name of the option and the
/// value. If a test fails, its output contains this text.
type Setting<B> = (String, Box<dyn Fn(B) -> B + Send>);

fn setting<B>(name: impl Into<String>, set: impl Fn(B) -> B + Send + 'static) -> Setting<B> {
    (name.into(), Box::new(set))
}

/// Returns one setting of the option for each value.
fn each<B: 'static, T: Copy + std::fmt::Debug + Send + 'static>(
    name: &str,
    values: &[T],
    set: impl Fn(B, T) -> B + Copy + Send + 'static,
) -> Vec<Setting<B>> {
    values.iter().map(|&value| setting(format!("{name}({value:?})"), move |builder| set(builder, value))).collect()
}

/// Small deterministic generator of pseudo-random numbers. The generator always produces the same numbers, so a failing
/// combination can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }
}

#[derive(Debug, Clone)]
struct Ask(u64);
impl Command for Ask {
    type Reply = u64;
}

async fn echo(mut ctx: Context<Reply<u64>>) -> Result<(), Exit> {
    loop {
        ctx.receive().await?.send(7);
    }
}

fn runtime_settings() -> Vec<Setting<Builder>> {
    let mut all = Vec::new();
    for name in ["", "\0", "a\0b", "%s%n", "ä€😀", "- -"] {
        all.push(setting(format!("thread_name({name:?})"), move |b: Builder| b.thread_name(name)));
    }
    all.push(setting("thread_name(long)", |b: Builder| b.thread_name("x".repeat(100_000))));
    all.extend(each("stack_size", &[0, 1, 65_537, isize::MAX as usize, usize::MAX], Builder::stack_size));
    all.extend(each("workers", &[0, 1, 2, 49, usize::MAX], Builder::workers));
    all.extend(each("max_blocking_threads", &COUNTS, Builder::max_blocking_threads));
    all.extend(each("blocking_queue_capacity", &COUNTS, Builder::blocking_queue_capacity));
    all.extend(each("blocking_keep_alive", &TIMES, Builder::blocking_keep_alive));
    all.extend(each("blocking_overflow", &[Overflow::Reject, Overflow::DropOldest], Builder::blocking_overflow));
    all.extend(each("node", &[0, 1, u32::MAX], Builder::node));
    all.extend(each("seed", &[0, 1, u64::MAX], Builder::seed));
    all.extend(each("local_order", &[QueueOrder::Fifo, QueueOrder::Lifo], Builder::local_order));
    all.extend(each("shuffle", &[false, true], Builder::shuffle));
    all.extend(each("sample_every_step", &[false, true], Builder::sample_every_step));
    all.extend(each("long_step_threshold", &TIMES, Builder::long_step_threshold));
    all.extend(each("max_replacement_threads", &COUNTS, Builder::max_replacement_threads));
    all.extend(each("max_processes", &COUNTS, Builder::max_processes));
    all.extend(each("exit_history", &COUNTS, Builder::exit_history));
    // The largest buffers take 2 GiB each. This test does not allocate buffers of this size.
    all.extend(each("flight_recorder.buffer_size", &[0, 1], |b: Builder, bytes| {
        b.flight_recorder(FlightRecorder::new().buffer_size(bytes))
    }));
    all.extend(each("flight_recorder.max_files", &[0, u32::MAX], |b: Builder, count| {
        b.flight_recorder(FlightRecorder::new().write_on_panic(true).max_files(count))
    }));
    all.extend(each("inspect.last_messages", &COUNTS, |b: Builder, count| {
        b.inspect(InspectOptions::new().last_messages(count))
    }));
    all.extend(each("limits.steps", &[0, 1, u64::MAX], |b: Builder, most| b.limits(Limits::new().steps(most))));
    all.extend(each("limits.time", &TIMES, |b: Builder, most| b.limits(Limits::new().time(most))));
    all.extend(each("limits.mailbox_capacity", &COUNTS, |b: Builder, most| {
        b.limits(Limits::new().mailbox_capacity(most))
    }));
    all.push(setting("handle", |b: Builder| b.handle(|ask: Ask| ask.0)));
    all.push(setting("handle_blocking", |b: Builder| b.handle_blocking(|ask: Ask| ask.0)));
    all.push(setting("handler_named", |b: Builder| {
        b.handler_named("", |_: NamedCommand, completion: Completion<Payload>| completion.complete(Payload::new(())))
    }));
    #[cfg(all(feature = "console", unix))]
    {
        all.push(setting("console(empty)", |b: Builder| b.console("")));
        all.push(setting("console(NUL)", |b: Builder| b.console("a\0b")));
        all.push(setting("console(long)", |b: Builder| b.console("x".repeat(100_000))));
        all.push(setting("console(folder)", |b: Builder| b.console("/")));
        all.push(setting("console_tcp(short token)", |b: Builder| b.console_tcp(([127, 0, 0, 1], 0), "short")));
        all.push(setting("console_tcp", |b: Builder| b.console_tcp(([127, 0, 0, 1], 0), "a token with 24 bytes..")));
    }
    #[cfg(feature = "affinity")]
    {
        all.extend(each("pin_workers", &[false, true], Builder::pin_workers));
        all.push(setting("pin_workers_to(none)", |b: Builder| b.pin_workers_to([])));
        all.push(setting("pin_workers_to(0, 0)", |b: Builder| b.pin_workers_to([0, 0])));
        all.push(setting("pin_workers_to(MAX)", |b: Builder| b.pin_workers_to([usize::MAX])));
    }
    all
}

/// Returns whether the builder accepts the values of the named options. Returns `None` if the result depends on the
/// system, or on the order of the options.
fn is_valid(names: &[String]) -> Option<bool> {
    let huge = [isize::MAX as usize, usize::MAX].map(|size| format!("stack_size({size})"));
    let too_many = [49, usize::MAX].map(|count| format!("workers({count})"));
    let core = "pin_workers_to(MAX)";
    let is_invalid = |name: &String| {
        name.starts_with("thread_name") && name.contains("\\0")
            || huge.contains(name)
            || too_many.contains(name)
            || *name == core
            || name.starts_with("console(")
            || name.contains("short token")
    };
    let handlers = names.iter().filter(|name| ["handle", "handle_blocking"].contains(&name.as_str())).count();
    let pins = names.iter().any(|name| name.starts_with("pin_workers") && *name != core);
    match names.iter().filter(|name| is_invalid(name)).count() {
        0 if pins => None,
        0 => Some(handlers < 2),
        _ if names.len() == 1 => Some(false),
        // Another option may replace the invalid value, and a runtime without workers ignores the stack size.
        _ => None,
    }
}

/// Returns whether a runtime with these options may refuse a process, a step, or a closure for the blocking pool.
fn may_refuse(name: &str) -> bool {
    let limits =
        ["limits", "max_processes(0)", "max_processes(1)", "max_blocking_threads(0)", "blocking_queue_capacity(0)"];
    limits.iter().any(|limit| name.starts_with(limit))
}

/// Builds the runtime, and runs some work on the runtime. Every operation must return. If the options permit these
/// operations, every operation must succeed.
fn use_runtime(builder: Builder, names: &[String]) {
    let built = builder.build();
    if let Some(valid) = is_valid(names) {
        assert_eq!(built.is_ok(), valid, "{:?}", built.err());
    }
    let Ok(rt) = built else { return };
    let echo = rt.spawn(echo);
    let body = rt.block_on(rt.spawn(async |ctx: Context| {
        // If the options allow a replacement thread, such a thread takes over the queues of the worker.
        block_in_place(std::thread::yield_now);
        let _ = ctx.perform(Ask(1)).await;
        ctx.sleep(NS).await;
        Ok::<_, Exit>(())
    }));
    let call = echo.call(|reply| reply);
    if names.iter().any(|name| may_refuse(name)) {
        let _ = rt.block_on(call.timeout(Duration::from_secs(1)));
        let _ = rt.block_on(rt.spawn_blocking(|| 1));
    } else {
        let results = (body, rt.block_on(call), rt.block_on(rt.spawn_blocking(|| 1)));
        assert!(matches!(results, (Ok(()), Ok(7), Ok(1))), "{results:?}");
    }
    rt.set_workers(0);
    rt.set_workers(1);
    let left = shut_down(rt, Duration::from_secs(5)).left;
    assert_eq!(left, []);
}

/// 11: tests each option of a runtime alone, and then combinations of three options.
#[test]
fn every_option_of_a_runtime_works_or_causes_an_error() {
    let all = runtime_settings();
    let count = all.len();
    for at in 0..count + 60 {
        let mut random = Random(at as u64);
        let chosen = if at < count { vec![at] } else { (0..3).map(|_| random.below(count)).collect() };
        let mut settings = runtime_settings().into_iter().map(Some).collect::<Vec<_>>();
        let chosen: Vec<_> = chosen.into_iter().filter_map(|at| settings[at].take()).collect();
        let names: Vec<_> = chosen.iter().map(|(name, _)| name.clone()).collect();
        println!("{}", names.join(", "));
        within(20, move || {
            // The runtime has one worker, unless an option sets another number.
            let begin = Runtime::builder().workers(1);
            use_runtime(chosen.iter().fold(begin, |builder, (_, set)| set(builder)), &names);
        });
    }
}

/// 11: the standard library panics if a thread name contains a NUL byte. For a thread name with a NUL byte, the builder
/// returns an error instead.
#[test]
fn a_build_with_a_nul_byte_in_the_thread_name_fails() {
    for (workers, name) in [(0, "\0"), (1, "a\0b"), (2, "ends\0")] {
        let error = Runtime::builder().workers(workers).thread_name(name).build().unwrap_err();
        assert!(matches!(error, BuildError::Invalid(why) if why.contains("NUL")), "{error}");
    }
}

/// 4.7g: the number of replacement threads may be unlimited.
#[test]
fn the_number_of_replacement_threads_may_be_unlimited() {
    within(20, || {
        let rt = Runtime::builder()
            .workers(1)
            .max_replacement_threads(usize::MAX)
            .long_step_threshold(Duration::MAX)
            .build()
            .unwrap();
        let (ends, end) = std::sync::mpsc::channel();
        let other = rt.spawn(async move |mut ctx: Context<()>| {
            ctx.receive().await?;
            ends.send(()).map_err(Exit::failed)
        });
        let other = other.address();
        // The only worker blocks until the other process has run. Only a replacement thread can run that process.
        let blocks = rt.spawn(async move |_: Context| {
            other.send(())?;
            block_in_place(|| end.recv()).map_err(Exit::failed)
        });
        block_on(blocks).unwrap();
    });
}

/// 11: tests a simulated host with extreme limits, and the options of simulations.
#[test]
fn every_option_of_a_simulation_works() {
    for seed in [0, 1, u64::MAX] {
        for choices in [0, 1, u64::MAX] {
            for most in COUNTS {
                for time in TIMES {
                    let limits = Limits::new().mailbox_capacity(most).time(time).steps(most as u64);
                    let host = HostBuilder::new("\0").max_processes(most).limits(limits).handle(|ask: Ask| ask.0);
                    let mut simulation = Simulation::with_host(seed, host).unwrap().random_choices(choices);
                    let asks = simulation.spawn(async |ctx: Context| {
                        ctx.sleep(NS).await;
                        ctx.perform(Ask(1)).await
                    });
                    let result = simulation.run(asks);
                    assert_eq!(result.is_ok(), most > 1, "{seed} {choices} {most} {time:?}");
                    assert_eq!(simulation.shutdown(time).left, []);
                }
            }
        }
    }
    #[expect(clippy::reversed_empty_ranges, reason = "an empty range is what is tested")]
    for seeds in [0..0, 5..3, u64::MAX..u64::MAX, u64::MAX - 1..u64::MAX] {
        check(seeds, async |host: Host| host.spawn(async |_: Context| {}).await);
    }
}

fn process_settings() -> Vec<Setting<ProcessBuilder>> {
    let mut all = Vec::new();
    for name in ["", "\0", "serve", "ä€😀"] {
        all.push(setting(format!("entry({name:?})"), move |b: ProcessBuilder| b.entry(name)));
        all.push(setting(format!("name({name:?})"), move |b: ProcessBuilder| b.name(name)));
    }
    all.push(setting("name(long)", |b: ProcessBuilder| b.name("x".repeat(1 << 20))));
    all.push(setting("input(large)", |b: ProcessBuilder| b.input([0_u64; 1000])));
    all.push(setting("value", |b: ProcessBuilder| b.value(()).value([0_u64; 1000])));
    all.extend(each("limits.steps", &[0, 1, u64::MAX], |b: ProcessBuilder, n| b.limits(Limits::new().steps(n))));
    all.extend(each("limits.time", &TIMES, |b: ProcessBuilder, time| b.limits(Limits::new().time(time))));
    all.extend(each("limits.mailbox_capacity", &COUNTS, |b: ProcessBuilder, most| {
        b.limits(Limits::new().mailbox_capacity(most))
    }));
    for bound in [MailboxCapacity::Reject, MailboxCapacity::DropOldest, MailboxCapacity::DropNewest] {
        all.extend(each("mailbox_capacity", &COUNTS.map(bound), ProcessBuilder::mailbox_capacity));
    }
    all.extend(each("priority", &[Priority::High, Priority::Normal, Priority::Low], ProcessBuilder::priority));
    all.push(setting("manual_start", ProcessBuilder::manual_start));
    all.push(setting("link", ProcessBuilder::link));
    all.push(setting("monitor", ProcessBuilder::monitor));
    let cancelled = CancelToken::new();
    cancelled.cancel("hostile", Duration::ZERO);
    all.push(setting("cancel_token(cancelled)", move |b: ProcessBuilder| b.cancel_token(&cancelled)));
    all
}

/// 11: tests each option of a process alone, and then combinations of three options. The spawn either is refused, or
/// spawns a process that runs and exits.
#[test]
fn every_option_of_a_process_works_or_is_refused() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let all = process_settings();
        let mut random = Random(7);
        let ends = [rt.now(), rt.now() + NS, rt.now() + Duration::MAX];
        for at in 0..all.len() + 500 {
            let three = [random.below(all.len()), random.below(all.len()), random.below(all.len())];
            let chosen = if at < all.len() { vec![at] } else { three.to_vec() };
            println!("{:?}", chosen.iter().map(|&at| &all[at].0).collect::<Vec<_>>());
            let mut builder = chosen.iter().fold(rt.process(), |builder, &at| all[at].1(builder));
            if at.is_multiple_of(3) {
                builder = builder.deadline_within(ends[random.below(3)], TIMES[random.below(TIMES.len())]);
            }
            let Ok(process) = builder.spawn(echo) else { continue };
            // If the process has a small mailbox or a small limit of steps, some of these calls possibly get no answer.
            let _ = (process.call(|reply| reply).start(), process.call(|reply| reply).start());
            process.abort();
            assert!(rt.block_on(process).is_err());
        }
        assert_eq!(rt.processes_alive(), 0);
    });
}

/// 11: a pool works with sizes, queue capacities and times at the ends of their ranges.
#[test]
fn every_option_of_a_pool_works() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let options: Vec<Setting<Pool<Reply<u64>, _>>> = [
            each("max_size", &COUNTS, Pool::max_size),
            each("idle_timeout", &TIMES, Pool::idle_timeout),
            each("member_capacity", &COUNTS, Pool::member_capacity),
            each("queue_capacity", &COUNTS, Pool::queue_capacity),
            each("restarts", &TIMES, |pool: Pool<_, _>, time| pool.restarts(0, time)),
            each("restarts(MAX)", &TIMES, |pool: Pool<_, _>, time| pool.restarts(u32::MAX, time)),
            vec![setting("round_robin", Pool::round_robin), setting("by_key", |pool: Pool<_, _>| pool.by_key(|_| ()))],
        ]
        .into_iter()
        .flatten()
        .collect();
        for size in [0, 1, 3] {
            for (name, set) in &options {
                println!("{size} {name}");
                let pool = rt.spawn_pool(set(Pool::new(size, echo)));
                assert_eq!(rt.block_on(pool.call(|reply| reply)).unwrap(), 7);
                pool.abort();
                assert!(rt.block_on(pool).is_err());
            }
        }
    });
}

/// 6.4d, 6.4e, 6.4f, 6.5b: a supervisor works with restart intensities, backoffs and shutdown times at the ends of
/// their ranges.
#[test]
fn every_option_of_a_supervisor_works() {
    const CHILD: Name<Reply<u64>> = Name::new("child");
    for most in [0, 1, u32::MAX] {
        for time in TIMES {
            let backoffs =
                TIMES.map(|first| Backoff::new(first, time).factor(most).jitter(most == 1).reset_after(first));
            for backoff in backoffs {
                let mut simulation = Simulation::new(1);
                let child = Child::new(CHILD, echo).backoff(backoff).shutdown(time).restart(RestartPolicy::Transient);
                let supervisor = Supervisor::one_for_all().intensity(most, time).add(child);
                let supervisor = simulation.spawn_process(supervisor);
                let host = simulation.host().clone();
                simulation.run(async {
                    supervisor.started().await.unwrap();
                    let child: Address<Reply<u64>> =
                        host.whereis(CHILD).and_then(|pid| host.address(pid)).expect("it has started");
                    assert_eq!(child.call(|reply| reply).await.unwrap(), 7);
                });
                assert_eq!(simulation.shutdown(Duration::from_secs(1)).left, []);
            }
        }
    }
}

/// 3.2e: a layer works with rates, counts and times at the ends of their ranges. Each command gets an answer, fails, or
/// times out.
#[test]
fn every_option_of_a_layer_works() {
    let inner = || handler::inline(|ask: Ask| ask.0);
    let mut hosts = Vec::new();
    for time in TIMES {
        for count in [0, 1, u32::MAX] {
            for most in COUNTS {
                let rate = RateLimit::new(inner(), count, time).burst(count).queue_capacity(most);
                hosts.push(HostBuilder::new("rate").handler(rate.overflow(Overflow::DropOldest)));
                let places = ConcurrencyLimit::new(inner(), most).queue_capacity(count as usize);
                hosts.push(HostBuilder::new("concurrency").handler(places));
            }
            let retry = Retry::new(inner(), count, time).ceiling(time).jitter();
            hosts.push(HostBuilder::new("retry").handler(retry));
        }
        hosts.push(HostBuilder::new("timeout").handler(Timeout::new(inner(), time)));
    }
    for host in hosts {
        let name = format!("{host:?}");
        let mut simulation = Simulation::with_host(1, host).unwrap();
        let asks = simulation.spawn(async |ctx: Context| {
            for n in 0..3 {
                match ctx.perform(Ask(n)).timeout(MS).await {
                    Ok(reply) => assert_eq!(reply, n),
                    Err(failure) => assert!(matches!(failure, Failure::TimedOut | Failure::Overloaded(_)), "{failure}"),
                }
            }
            Ok::<_, Exit>(())
        });
        simulation.run(asks).unwrap_or_else(|exit| panic!("{name}: {exit}"));
    }
}

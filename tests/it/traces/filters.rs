//! Section 9.3 of the specification: traces that record only some processes, and the limits of a trace.

use procession::observe::TraceOptions;

use super::*;

/// Writes a trace with these options while `scenario` runs.
fn traced_with(host: &Host, options: TraceOptions, scenario: impl FnOnce()) -> (Decoded, TraceSummary) {
    let buffer = Buffer::default();
    let trace = host.start_trace_with(options, buffer.clone()).unwrap();
    scenario();
    let summary = trace.finish().unwrap();
    (decode(&buffer.bytes()), summary)
}

fn labels(decoded: &Decoded) -> BTreeSet<String> {
    decoded.of("step").into_iter().map(|step| step.name).collect()
}

/// 9.3a: a trace of one process contains the turns, the states and the received messages of this process, and no events
/// of other processes. The trace ends when the process exits.
#[test]
fn a_trace_of_one_process_contains_only_this_process() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let pong = rt.spawn(pong);
        rt.block_on(pong.started()).unwrap();
        let (to, buffer) = (pong.address().clone(), Buffer::default());
        let trace = rt.start_trace_with(TraceOptions::new().process(pong.pid()), buffer.clone()).unwrap();
        let ping = rt.spawn(async move |ctx: Context<u64>| ping(ctx, to, 50).await);
        rt.block_on(ping).unwrap();
        assert!(!trace.has_ended());
        rt.kill(pong.pid()).unwrap();
        rt.block_on(pong).unwrap_err();
        while !trace.has_ended() {
            std::thread::yield_now();
        }
        // The trace has ended together with the traced process. So the trace does not contain these new processes,
        // although the trace handle still exists.
        ping_pong(&rt, 3);
        let (summary, decoded) = (trace.finish().unwrap(), decode(&buffer.bytes()));
        assert_eq!(summary.lost, 0);
        let names = labels(&decoded);
        assert!(names.len() == 1 && names.first().unwrap().contains("pong"), "{names:?}");
        let arrows = arrows(&decoded);
        assert_eq!(arrows.iter().filter(|(_, end)| end.name == "receive").count(), 50);
        assert_eq!(decoded.named(Kind::Instant, "send").len(), 50);
        assert!(decoded.events.iter().all(|event| event.kind != Kind::Counter && event.name != "searching"));
        let states: BTreeSet<_> = decoded.of("state").into_iter().map(|state| state.track).collect();
        assert_eq!(states.len(), 1, "{states:?}");
    });
}

/// 9.3a: a trace of a type contains the processes that exist, and the processes that are spawned later.
#[test]
fn a_trace_of_a_type_contains_old_and_new_processes() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let old = rt.process().name("old").spawn(pong).unwrap();
    rt.block_on(old.started()).unwrap();
    let (decoded, _) = traced_with(&rt, TraceOptions::new().type_contains("traces::pong"), || {
        let to = old.address().clone();
        rt.block_on(rt.spawn(async move |ctx: Context<u64>| ping(ctx, to, 5).await)).unwrap();
        ping_pong(&rt, 5);
    });
    let names = labels(&decoded);
    assert!(names.len() == 2 && names.iter().all(|name| name.contains("pong")), "{names:?}");
    assert!(names.iter().any(|name| name.starts_with("old (")), "{names:?}");
    assert_eq!(decoded.named(Kind::Instant, "spawn").len(), 1);
    assert_eq!(decoded.named(Kind::Instant, "receive").len(), 10);
    drop(old);
}

/// 9.3a: a trace with a filter and a trace without a filter do not influence each other.
#[test]
fn traces_with_different_filters_can_overlap() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let before = rt.counters();
    let mut partial = None;
    let (whole, summary) = traced(&rt, || {
        ping_pong(&rt, 5);
        partial = Some(traced_with(&rt, TraceOptions::new().type_contains("traces::pong"), || ping_pong(&rt, 5)).0);
        ping_pong(&rt, 5);
    });
    assert_eq!((steps(&decode(&whole)), summary.lost), ((rt.counters() - before).steps, 0));
    let names = labels(&partial.unwrap());
    assert!(names.len() == 1 && names.first().unwrap().contains("pong"), "{names:?}");
    // When a trace without a filter ends, a trace with a filter continues.
    let (partial, _) = traced_with(&rt, TraceOptions::new().type_contains("traces::pong"), || {
        drop(traced(&rt, || ping_pong(&rt, 5)));
        ping_pong(&rt, 5);
    });
    assert_eq!(partial.named(Kind::Instant, "receive").len(), 10);
}

/// 9.3a: a trace ends after the maximum number of events.
#[test]
fn a_trace_ends_after_the_maximum_number_of_events() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let buffer = Buffer::default();
        let trace = rt.start_trace_with(TraceOptions::new().max_events(100), buffer.clone()).unwrap();
        while !trace.has_ended() {
            ping_pong(&rt, 10);
        }
        assert_eq!(trace.finish().unwrap().events, 100);
        assert!(steps(&decode(&buffer.bytes())) > 10);
    });
}

/// 9.3a, 9.3e: a trace skips turns when it has reached its maximum rate, and continues in the next second.
#[test]
fn a_trace_keeps_its_maximum_rate() {
    const RATE: u64 = 50;
    let mut simulation = Simulation::new(3);
    let host = simulation.host().clone();
    let (decoded, summary) = traced_with(&host, TraceOptions::new().max_rate(RATE), || {
        let ticks = async |ctx: Context| {
            for _ in 0..1_000 {
                ctx.sleep(Duration::from_millis(5)).await;
            }
        };
        simulation.run(simulation.host().spawn(ticks)).unwrap();
    });
    let mut seconds: BTreeMap<u64, u64> = BTreeMap::new();
    for step in decoded.of("step") {
        *seconds.entry(step.from / 1_000_000_000).or_default() += 1;
    }
    // A turn has at least three events: ready, running and blocked.
    assert!(
        seconds.len() >= 5 && seconds.values().take(5).all(|steps| (10..=RATE / 3 + 1).contains(steps)),
        "{seconds:?}"
    );
    assert!(summary.lost > 1_000 && summary.events <= 6 * (RATE + 3), "{summary:?}");
    assert!(!decoded.named(Kind::Instant, "lost").is_empty());
    // The process never waits for a worker, not even while its turns are skipped.
    let ready = decoded.of("state").into_iter().filter(|slice| slice.name == "ready");
    let longest = ready.map(|slice| slice.to - slice.from).max();
    assert!(longest.is_some_and(|longest| longest < 10_000_000), "{longest:?} ns");
}

/// Writer whose reader disconnects after the first packets.
struct Disconnects(mpsc::Sender<()>);

impl Write for Disconnects {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.send(()) {
            Ok(()) => Ok(bytes.len()),
            Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// 9.3a: a trace ends after the reader of the trace has disconnected, even if the traced process has no events.
#[test]
fn a_trace_of_a_quiet_process_ends_when_the_reader_disconnects() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let quiet = rt.spawn(async |mut ctx: Context<u8>| ctx.receive().await.map(drop));
        rt.block_on(quiet.started()).unwrap();
        let (tell, told) = mpsc::channel();
        let trace = rt.start_trace_with(TraceOptions::new().process(quiet.pid()), Disconnects(tell)).unwrap();
        told.recv().unwrap();
        drop(told);
        while !trace.has_ended() {
            std::thread::yield_now();
        }
        assert_eq!(trace.finish().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    });
}

/// 9.3a: if a process has exited or belongs to another runtime, a trace of this process ends immediately.
#[test]
fn a_trace_of_a_process_that_does_not_exist_ends_immediately() {
    within(60, || {
        let (rt, other) =
            (Runtime::builder().workers(0).build().unwrap(), Runtime::builder().workers(0).build().unwrap());
        let exited = rt.spawn(async |_: Context| {});
        let pid = exited.pid();
        rt.block_on(exited).unwrap();
        let foreign = other.spawn(async |_: Context| {});
        // This process has the same index as the foreign process.
        let own = rt.spawn(async |_: Context| {});
        for pid in [pid, foreign.pid()] {
            let trace = rt.start_trace_with(TraceOptions::new().process(pid), Buffer::default()).unwrap();
            while !trace.has_ended() {
                std::thread::yield_now();
            }
            assert_eq!(trace.finish().unwrap().events, 0);
        }
        rt.block_on(own).unwrap();
    });
}

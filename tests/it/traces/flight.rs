//! Section 9.3 of the specification: the flight recorder.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use procession::observe::{FlightRecorder, FlightSummary};

use super::*;

/// Folder for the files of one test. The drop of this value removes the folder.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static FOLDERS: AtomicU32 = AtomicU32::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("procession-flight-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn files(&self) -> Vec<PathBuf> {
        std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns options for a flight recorder that writes its files to this folder. Also returns a channel that receives the
/// path of each written file.
fn told(folder: &Folder) -> (FlightRecorder, mpsc::Receiver<PathBuf>) {
    let (tell, told) = mpsc::channel();
    let on_written = move |path: &Path, result: &io::Result<FlightSummary>| {
        assert!(result.as_ref().unwrap().events > 0);
        tell.send(path.to_owned()).unwrap();
    };
    (FlightRecorder::new().folder(&folder.0).on_written(on_written), told)
}

fn written(host: &Host) -> (Decoded, FlightSummary) {
    let mut bytes = Vec::new();
    let summary = host.write_flight_record_to(&mut bytes).unwrap();
    (decode(&bytes), summary)
}

async fn panics(_: Context) {
    std::panic::resume_unwind(Box::new("no luck"));
}

/// 9.3f: if no event was overwritten, the record contains all steps and spawns that the counters count, and one arrow
/// for each message.
#[test]
fn a_flight_record_contains_all_events_that_fit() {
    let rt = Runtime::builder().workers(0).flight_recorder(FlightRecorder::new()).build().unwrap();
    ping_pong(&rt, 100);
    let (decoded, summary) = written(&rt);
    let counted = rt.counters();
    assert_eq!((summary.overwritten, steps(&decoded)), (0, counted.steps));
    assert!(summary.events > counted.steps && summary.complete > Duration::ZERO);
    assert_eq!(decoded.named(Kind::Instant, "spawn").len() as u64, counted.spawned);
    assert_eq!(arrows(&decoded).len() as u64, counted.messages);
    // The recorder continues, and a second record contains the events of both runs.
    ping_pong(&rt, 100);
    assert_eq!(steps(&written(&rt).0), rt.counters().steps);
}

/// 9.3f: a full buffer keeps the newest events, and the record states the number of overwritten events.
#[test]
fn a_full_buffer_overwrites_its_oldest_events() {
    let recorder = FlightRecorder::new().buffer_size(0);
    let rt = Runtime::builder().workers(0).flight_recorder(recorder).build().unwrap();
    let (tell, told) = mpsc::channel();
    let body = async move |mut ctx: Context<u8>| {
        tell.send(ctx.receive().await?).unwrap();
        ctx.receive().await
    };
    let host = rt.host().clone();
    // One process performs all spawns, so the events of these spawns are in the buffer of the thread that runs this
    // process.
    let root = async move |_: Context| {
        let old = host.process().name("old").spawn(body).map_err(Exit::failed)?;
        old.started().await.map_err(Exit::failed)?;
        let pong = host.spawn(pong);
        let to = pong.address().clone();
        host.spawn(async move |ctx: Context<u64>| ping(ctx, to, 10_000).await).await?;
        host.kill(pong.pid()).map_err(Exit::failed)?;
        pong.await.unwrap_err();
        old.send(7)?;
        while told.try_recv().is_err() {
            crate::step_aside().await;
        }
        host.process().name("last").spawn(async |_: Context| {}).map_err(Exit::failed)?.await?;
        Ok::<_, Exit>(old)
    };
    let old = rt.block_on(rt.spawn(root)).unwrap();
    let (decoded, summary) = written(&rt);
    // A buffer has at least 16,384 events. The reader does not read the slot that a writer may be writing. The spawn of
    // the first process is in another buffer.
    assert!(summary.overwritten > 10_000 && (16_384..16_400).contains(&summary.events), "{summary:?}");
    assert_eq!(decoded.named(Kind::Instant, "lost").len(), 1);
    let labels: BTreeSet<_> = decoded.of("step").into_iter().map(|step| step.name).collect();
    assert!(steps(&decoded) < rt.counters().steps);
    // The spawn event of this process is overwritten. Nevertheless, the record contains the name, which is read from
    // the pid table.
    assert!(labels.iter().any(|label| label.starts_with("old (")), "{labels:?}");
    assert!(labels.iter().any(|label| label.starts_with("last (")), "{labels:?}");
    assert_eq!(decoded.named(Kind::Instant, "spawn").len(), 2);
    // The processes of the ping-pong have exited. Nevertheless, the record contains the types of these processes,
    // because the event of an exit contains the type.
    assert!(!labels.contains("process"), "{labels:?}");
    // The recorder knows the contents of a mailbox only after the process of the mailbox has been idle. Until then, the
    // record contains no arrows for messages to this mailbox, because such arrows could be wrong.
    assert!(arrows(&decoded).len() > 1_000);
    drop(old);
}

/// 9.3f: if a runtime has a flight recorder and the writer of a trace is slow, the trace loses the overwritten events.
/// In each lane, the last slice before the lost events ends at the last known event of the lane, because the trace does
/// not know when the step ended.
#[test]
fn no_slice_covers_overwritten_events() {
    within(60, || {
        let recorder = FlightRecorder::new().buffer_size(0);
        let rt = Runtime::builder().workers(0).flight_recorder(recorder).build().unwrap();
        let (release, blocks) = mpsc::channel();
        let buffer = Buffer::default();
        let trace = rt.start_trace_to(Slow(blocks, buffer.clone())).unwrap();
        for _ in 0..20 {
            let yields = rt.spawn(async |ctx: Context| {
                for _ in 0..20_000 {
                    ctx.yield_now().await;
                }
            });
            rt.block_on(yields).unwrap();
            release.send(()).unwrap();
        }
        drop(release);
        assert!(trace.finish().unwrap().lost > 0);
        let decoded = decode(&buffer.bytes());
        let marks = decoded.named(Kind::Instant, "lost");
        let marks: BTreeSet<_> = marks.into_iter().map(|mark| (decoded.track(mark.track), mark.at)).collect();
        assert!(!marks.is_empty());
        let slices = decoded.slices();
        let covers = slices.iter().find(|slice| marks.contains(&(slice.track.as_str(), slice.to)));
        assert!(covers.is_none(), "{covers:?}");
    });
}

/// 9.3f: a panic of a process writes a record, and the drop of the runtime waits for the file.
#[test]
fn a_panic_writes_a_flight_record() {
    within(60, || {
        let folder = Folder::new();
        let (recorder, told) = told(&folder);
        let recorder = recorder.write_on_panic(true);
        let rt = Runtime::builder().workers(0).node(77).flight_recorder(recorder).on_crash(|_| {}).build().unwrap();
        let panics = rt.spawn(panics);
        rt.block_on(panics).unwrap_err();
        drop(rt);
        let path = told.try_recv().expect("the drop has waited for the file");
        assert_eq!(folder.files(), std::slice::from_ref(&path));
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("flight-") && name.ends_with("-77-1-panic.pftrace"), "{name}");
        let decoded = decode(&std::fs::read(path).unwrap());
        assert!(decoded.of("step").iter().any(|step| step.name.contains("panics")));
    });
}

/// 9.3f: a flight record does not overwrite the record of an earlier run whose process id and node are the same. In a
/// container, each run of a program has the same process id.
#[test]
fn a_flight_record_keeps_the_file_of_an_earlier_run() {
    within(60, || {
        let folder = Folder::new();
        let paths = [(); 2].map(|()| {
            let (recorder, told) = told(&folder);
            let recorder = recorder.write_on_panic(true);
            let rt = Runtime::builder().workers(0).node(78).flight_recorder(recorder).on_crash(|_| {}).build().unwrap();
            let panics = rt.spawn(panics);
            rt.block_on(panics).unwrap_err();
            drop(rt);
            told.try_recv().expect("the drop has waited for the file")
        });
        assert!(paths[0].to_str().unwrap().ends_with("-78-1-panic.pftrace"), "{paths:?}");
        assert!(paths[1].to_str().unwrap().ends_with("-78-2-panic.pftrace"), "{paths:?}");
        assert_eq!(BTreeSet::from_iter(folder.files()), BTreeSet::from(paths));
    });
}

/// 9.3f: the function that is passed to `on_written` may drop the last handle of the runtime.
#[test]
fn the_callback_of_a_flight_recorder_may_drop_the_runtime() {
    within(60, || {
        let folder = Folder::new();
        let (give, given) = mpsc::channel::<Runtime>();
        let given = Mutex::new(given);
        let (tell, dropped) = mpsc::channel();
        let on_written = move |_: &Path, _: &io::Result<FlightSummary>| {
            drop(given.lock().unwrap().recv().unwrap());
            tell.send(()).unwrap();
        };
        let recorder = FlightRecorder::new().folder(&folder.0).write_on_panic(true).on_written(on_written);
        let rt = Runtime::builder().workers(0).flight_recorder(recorder).on_crash(|_| {}).build().unwrap();
        let panics = rt.spawn(panics);
        rt.block_on(panics).unwrap_err();
        give.send(rt).unwrap();
        dropped.recv().expect("the drop of the runtime returns");
    });
}

/// 9.3f: a long step causes a flight record. The record shows the long step on the lane of the worker.
#[test]
fn a_blocked_worker_writes_a_flight_record() {
    within(60, || {
        let folder = Folder::new();
        let (recorder, told) = told(&folder);
        let recorder = recorder.write_on_blocked_worker(true).max_files(1);
        let rt = Runtime::builder().workers(1).flight_recorder(recorder).build().unwrap();
        let (tell, path) = mpsc::channel();
        // The step returns after the file is written.
        rt.process().name("long").spawn(async move |_: Context| tell.send(told.recv().unwrap()).unwrap()).unwrap();
        let path = path.recv().unwrap();
        assert!(path.to_str().unwrap().ends_with("-1-blocked.pftrace"), "{path:?}");
        let decoded = decode(&std::fs::read(path).unwrap());
        let step = decoded.of("step").into_iter().find(|step| step.name.starts_with("long (")).expect("the long step");
        let blocked = decoded.of("worker").into_iter().find(|slice| slice.name == "blocked worker").expect("its mark");
        assert!(blocked.track == step.track && step.from <= blocked.from && blocked.to == step.to);
    });
}

/// 9.3f: the number of files that the runtime writes without a request is limited.
#[test]
fn the_number_of_automatic_flight_records_is_limited() {
    within(60, || {
        let folder = Folder::new();
        let (recorder, told) = told(&folder);
        let recorder = recorder.write_on_panic(true).max_files(2);
        let rt = Runtime::builder().workers(0).flight_recorder(recorder).on_crash(|_| {}).build().unwrap();
        for number in 0..4 {
            let panics = rt.spawn(panics);
            rt.block_on(panics).unwrap_err();
            if number < 2 {
                told.recv().unwrap();
            }
        }
        drop(rt);
        assert_eq!((told.try_iter().count(), folder.files().len()), (0, 2));
    });
}

/// 9.3f: without a flight recorder, `write_flight_record` returns an error and creates no file.
#[test]
fn a_runtime_without_a_flight_recorder_returns_an_error() {
    let folder = Folder::new();
    let rt = Runtime::builder().workers(0).build().unwrap();
    let error = rt.write_flight_record(folder.0.join("none")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    assert!(folder.files().is_empty() && error.to_string().contains("Builder::flight_recorder"), "{error}");
}

/// 9.3f: if the writer fails, `write_flight_record_to` returns the error. The next record still contains all events.
#[test]
fn a_failed_write_of_a_flight_record_loses_nothing() {
    let rt = Runtime::builder().workers(0).flight_recorder(FlightRecorder::new()).build().unwrap();
    ping_pong(&rt, 2_000);
    assert_eq!(rt.write_flight_record_to(Fails(0)).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    assert_eq!(steps(&written(&rt).0), rt.counters().steps);
}

/// 9.3a, 9.3f: in a runtime with a flight recorder, a trace contains all events that occur during the trace. The
/// recorder also records these events, and continues after the trace.
#[test]
fn a_trace_and_a_flight_recorder_record_the_same_events() {
    let rt = Runtime::builder().workers(0).flight_recorder(FlightRecorder::new()).build().unwrap();
    ping_pong(&rt, 10);
    let before = rt.counters();
    let (bytes, summary) = traced(&rt, || ping_pong(&rt, 100));
    assert_eq!((summary.lost, steps(&decode(&bytes))), (0, (rt.counters() - before).steps));
    ping_pong(&rt, 10);
    assert_eq!(steps(&written(&rt).0), rt.counters().steps);
}

/// Runs a simulation with a flight recorder. If `traces` is true, the simulation also writes a trace.
fn simulated(seed: u64, traces: bool) -> (Vec<u8>, observe::Counters) {
    let mut simulation = Simulation::new(seed).flight_recorder(FlightRecorder::new());
    let host = simulation.host().clone();
    let trace = traces.then(|| host.start_trace_to(Buffer::default()).unwrap());
    let pong = host.spawn(pong);
    let to = pong.address();
    let ping = host.spawn(async move |ctx: Context<u64>| ping(ctx, to, 5_000).await);
    let sleeper = host.spawn(async |ctx: Context| ctx.sleep(Duration::from_secs(3600)).await);
    simulation.run(ping).unwrap();
    simulation.run(sleeper).unwrap();
    if let Some(trace) = trace {
        let summary = trace.finish().unwrap();
        assert_eq!(summary.lost, 0);
    }
    let mut bytes = Vec::new();
    host.write_flight_record_to(&mut bytes).unwrap();
    (bytes, host.counters())
}

/// 9.3f, 10.1b: the record of a simulation has virtual times, and the same seed gives the same bytes. A trace of the
/// same simulation loses no events.
#[test]
fn a_simulation_has_a_flight_recorder() {
    let (bytes, counted) = simulated(7, false);
    let decoded = decode(&bytes);
    assert_eq!(steps(&decoded), counted.steps);
    let blocked = decoded.of("state").into_iter().find(|state| state.name == "blocked").expect("the sleeper");
    assert_eq!(blocked.to - blocked.from, 3_600_000_000_000);
    assert!(bytes == simulated(7, false).0 && bytes != simulated(8, false).0);
    assert_eq!(steps(&decode(&simulated(7, true).0)), counted.steps);
}

/// 9.3f: a check writes the record of a failing seed, and the report of the check names the file.
#[test]
fn a_check_writes_the_flight_record_of_a_failing_seed() {
    let folder = Folder::new();
    let path = folder.0.join("failing.pftrace");
    let check = Check::new(0..10).flight_record(&path);
    check.clone().run(async |host: Host| host.spawn(async |_: Context| {}).await);
    assert!(folder.files().is_empty(), "no seed has failed");
    let fails = async |host: Host| {
        let sleeps = async |ctx: Context| {
            ctx.sleep(Duration::from_secs(5)).await;
            Err::<(), _>("no luck")
        };
        host.process().name("sleeps").spawn(sleeps).map_err(Exit::failed)?.await
    };
    let report = std::panic::catch_unwind(|| check.run(fails)).unwrap_err();
    let report = report.downcast_ref::<String>().expect("a text");
    assert!(report.contains(&format!("its flight record: {}", path.display())), "{report}");
    let decoded = decode(&std::fs::read(path).unwrap());
    let blocked = decoded.of("state").into_iter().find(|state| state.name == "blocked").expect("a blocked process");
    assert!(blocked.track.contains("sleeps (") && blocked.to - blocked.from == 5_000_000_000, "{blocked:?}");
}

/// 9.3f: records can be written while all workers run, and each record is readable.
#[test]
fn a_flight_record_can_be_written_while_the_workers_run() {
    within(60, || {
        let recorder = FlightRecorder::new().buffer_size(0);
        let rt = Runtime::builder().workers(2).flight_recorder(recorder).build().unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let works: Vec<_> = (0..4)
            .map(|_| {
                let done = Arc::clone(&done);
                rt.spawn(async move |ctx: Context| {
                    while !done.load(Ordering::Relaxed) {
                        ctx.yield_now().await;
                    }
                })
            })
            .collect();
        let mut overwritten = 0;
        while overwritten < 200_000 {
            let (decoded, summary) = written(&rt);
            assert!(summary.overwritten >= overwritten);
            overwritten = summary.overwritten;
            // No step of the record ends later than now. The times of a record are nanoseconds since the start of the
            // runtime.
            let ends = rt.metrics().elapsed.as_nanos() as u64;
            assert!(decoded.of("step").iter().all(|step| step.from <= step.to && step.to <= ends));
        }
        done.store(true, Ordering::Relaxed);
        works.into_iter().for_each(|work| rt.block_on(work).unwrap());
    });
}

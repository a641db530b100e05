//! Section 9.3 of the specification: execution traces in the format of Perfetto. A trace has tracks, for example one
//! for each worker and one for each process. A *slice* is an interval on a track, for example a step. An *arrow*
//! connects two events. The decoder of the traces is independent of the encoder of the crate.

mod counter_tracks;
mod decoder;
mod filters;
mod flight;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use procession::observe::{Observer, ProcessState, TraceSummary, Transition};
use procession::*;

use self::decoder::{Buffer, Decoded, Kind, decode};
use crate::{alone, two, within};

/// Writes a trace of `host` while `scenario` runs. Returns the bytes and the summary of the trace.
fn traced(host: &Host, scenario: impl FnOnce()) -> (Vec<u8>, TraceSummary) {
    let buffer = Buffer::default();
    let trace = host.start_trace_to(buffer.clone()).unwrap();
    scenario();
    let summary = trace.finish().unwrap();
    (buffer.bytes(), summary)
}

/// Sends each number in the range `0..count` to the address `to`, and waits for one answer after each number.
async fn ping(mut ctx: Context<u64>, to: Address<(u64, Address<u64>)>, count: u64) -> Result<u64, Exit> {
    let mut sum = 0;
    for number in 0..count {
        to.send((number, ctx.address()))?;
        sum += ctx.receive().await?;
    }
    Ok(sum)
}

async fn pong(mut ctx: Context<(u64, Address<u64>)>) -> Result<(), Exit> {
    loop {
        let (number, from) = ctx.receive().await?;
        let _ = from.send(number * 2);
    }
}

/// Spawns two processes and waits until they have exchanged `count` pairs of messages.
fn ping_pong(rt: &Runtime, count: u64) {
    let pong = rt.spawn(pong);
    let ping = {
        let to = pong.address();
        rt.spawn(async move |ctx: Context<u64>| ping(ctx, to, count).await)
    };
    assert_eq!(rt.block_on(ping).unwrap(), count * (count - 1));
    rt.cancel(pong.pid(), "done", Duration::from_secs(60)).unwrap();
    rt.block_on(pong).unwrap_err();
}

fn steps(decoded: &Decoded) -> u64 {
    decoded.of("step").len() as u64
}

/// 9.3a, 9.3b: on one thread, the trace contains as many steps, spawns and turns as the counters count.
#[test]
fn the_counts_of_a_trace_equal_the_counters() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    ping_pong(&rt, 3);
    let before = rt.counters();
    let (bytes, summary) = traced(&rt, || ping_pong(&rt, 100));
    let (decoded, counted) = (decode(&bytes), rt.counters() - before);
    assert_eq!(summary.lost, 0);
    assert_eq!(steps(&decoded), counted.steps);
    assert_eq!(decoded.named(Kind::Instant, "spawn").len() as u64, counted.spawned);
    // Each turn is one slice of the state `running`.
    let states = decoded.of("state");
    assert_eq!(states.iter().filter(|state| state.name == "running").count() as u64, counted.polls);
    // Each step is inside a slice of the state `running` of its process.
    for step in decoded.of("step") {
        let pid = step.pid.clone().expect("a step has a pid");
        assert!(step.name.contains("ping") || step.name.contains("pong"), "{}", step.name);
        let inside = |state: &&decoder::Slice| {
            state.track.starts_with(&pid) && state.name == "running" && state.from <= step.from && step.to <= state.to
        };
        assert!(states.iter().any(|state| inside(&state)), "{pid} {step:?}");
    }
    ping_pong(&rt, 3);
    assert_eq!(decode(&bytes).packets, decoded.packets);
}

/// 9.3a, 9.3b: a trace begins and ends while the workers record events. Two slices of a track never overlap in part:
/// one slice either contains the other, or ends before the other begins.
#[test]
fn slices_nest_if_a_trace_begins_and_ends_on_busy_workers() {
    within(120, || {
        let rt = two();
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let busy: Vec<_> = (0..4)
            .map(|_| {
                let (stop, count) = (Arc::clone(&stop), Arc::clone(&count));
                rt.spawn(async move |ctx: Context| {
                    while !stop.load(Ordering::Relaxed) {
                        count.fetch_add(1, Ordering::Relaxed);
                        ctx.yield_now().await;
                    }
                })
            })
            .collect();
        // When a trace begins, the trace visits all processes. The visit takes longer if there are many processes.
        let idle: Vec<_> = (0..2_000).map(|_| rt.spawn(async |mut ctx: Context| ctx.receive().await)).collect();
        for _ in 0..8 {
            let (bytes, _) = traced(&rt, || {
                let begun = count.load(Ordering::Relaxed);
                while count.load(Ordering::Relaxed) < begun + 100 {
                    std::thread::yield_now();
                }
            });
            assert!(decode(&bytes).slices().len() > 100);
        }
        stop.store(true, Ordering::Relaxed);
        busy.into_iter().for_each(|busy| futures::executor::block_on(busy).unwrap());
        drop(idle);
    });
}

/// 9.3a, 9.3b: each worker has its own lane, and each process has a track with its name.
#[test]
fn each_worker_has_a_lane_and_each_process_has_a_track() {
    within(60, || {
        let rt = two();
        let before = rt.counters();
        let (bytes, summary) = traced(&rt, || {
            let (tell, told) = mpsc::channel();
            // Each of the two processes blocks in its step until the other process runs. So the processes need both
            // workers.
            let meeting = Arc::new(std::sync::Barrier::new(2));
            for name in ["left", "right"] {
                let (tell, meeting) = (tell.clone(), Arc::clone(&meeting));
                let body = async move |_: Context| {
                    meeting.wait();
                    tell.send(()).unwrap();
                };
                rt.process().name(name).spawn(body).unwrap();
            }
            (0..2).for_each(|_| told.recv().unwrap());
            while rt.processes_alive() != 0 {
                std::thread::yield_now();
            }
        });
        let (decoded, counted) = (decode(&bytes), rt.counters() - before);
        assert_eq!((summary.lost, steps(&decoded)), (0, counted.steps));
        let lanes: BTreeSet<_> = decoded.of("step").into_iter().map(|step| (step.track, step.name)).collect();
        assert_eq!(lanes.iter().map(|(lane, _)| lane).collect::<BTreeSet<_>>().len(), 2, "{lanes:?}");
        assert!(lanes.iter().all(|(lane, _)| lane.starts_with("worker ")), "{lanes:?}");
        for name in ["left", "right"] {
            assert!(lanes.iter().any(|(_, label)| label.starts_with(name)), "{lanes:?}");
            let track = decoded.tracks.values().find(|(track, _)| track.contains(name)).expect("a track");
            let parent = track.1.expect("it is the child of another track");
            assert_eq!(decoded.track(parent), "Processes");
        }
    });
}

/// 9.3b: a trace also contains the names and the states of the processes that existed before the trace.
#[test]
fn a_trace_contains_the_processes_that_existed_before_the_trace() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let old = rt.process().name("old").spawn(async |mut ctx: Context<u8>| ctx.receive().await).unwrap();
    let silent = rt.process().name("silent").spawn(async |mut ctx: Context<u8>| ctx.receive().await).unwrap();
    rt.block_on(old.started()).unwrap();
    rt.block_on(silent.started()).unwrap();
    let (bytes, _) = traced(&rt, || {
        old.send(7).unwrap();
        assert_eq!(rt.block_on(old).unwrap(), 7);
    });
    let decoded = decode(&bytes);
    let states = decoded.of("state");
    let names: Vec<_> = states.iter().map(|state| state.name.as_str()).collect();
    assert_eq!(names, ["idle", "ready", "running"]);
    assert!(states.iter().all(|state| state.track.contains("old (")), "{states:?}");
    // A process without events has no track.
    assert!(decoded.tracks.values().all(|(name, _)| !name.contains("silent")));
    drop(silent);
}

/// 9.3b: if a process is in a turn when the trace begins, the trace shows no state of this process until its next
/// event. The trace does not record the end of this turn.
#[test]
fn a_process_in_a_turn_at_the_start_of_a_trace_is_not_shown_as_running() {
    let mut simulation = Simulation::new(1);
    let (host, buffer) = (simulation.host().clone(), Buffer::default());
    let body = {
        let (host, buffer) = (host.clone(), buffer.clone());
        async move |ctx: Context| {
            let trace = host.start_trace_to(buffer).unwrap();
            ctx.sleep(Duration::from_secs(3600)).await;
            Ok::<_, Exit>(trace)
        }
    };
    let traces = host.spawn(body);
    simulation.run(traces).unwrap().finish().unwrap();
    let decoded = decode(&buffer.bytes());
    let running: Vec<_> = decoded.of("state").into_iter().filter(|state| state.name == "running").collect();
    assert!(!running.is_empty() && running.iter().all(|state| state.from == state.to), "{running:?}");
}

/// 9.3b: the name of the slice of a step contains the entry point of the process.
#[test]
fn a_step_is_named_by_its_entry_method() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let (bytes, _) = traced(&rt, || {
        let entries = EntryPoints::new().entry("serve", async |_: Context, (): ()| Ok::<_, Exit>(()));
        let process = rt.process().entry("serve").spawn_process(entries).unwrap();
        rt.block_on(process).unwrap();
    });
    assert!(decode(&bytes).of("step").iter().all(|step| step.name.ends_with("::serve")));
}

/// 9.3c: if a turn ends with a panic, a kill, an error or a yield, the slices of the turn still end correctly.
#[test]
fn slices_nest_if_processes_panic_or_are_killed() {
    let rt = Runtime::builder().workers(0).on_crash(|_| {}).build().unwrap();
    let before = rt.counters();
    let (bytes, summary) = traced(&rt, || {
        let panics = rt.spawn(async |ctx: Context| {
            if ctx.pid().index() != u32::MAX {
                std::panic::resume_unwind(Box::new("no luck"));
            }
        });
        let fails = rt.spawn(async |_: Context| Err::<(), _>("no luck"));
        let waits = rt.spawn(async |mut ctx: Context| ctx.receive().await.map(drop));
        let unborn = rt.spawn(async |_: Context| {});
        rt.kill(unborn.pid()).unwrap();
        rt.block_on(waits.started()).unwrap();
        rt.kill(waits.pid()).unwrap();
        let again = rt.spawn(async |ctx: Context| {
            for _ in 0..10 {
                ctx.yield_now().await;
            }
        });
        rt.block_on(again).unwrap();
        let exits: [Result<(), Exit>; 4] =
            [rt.block_on(panics), rt.block_on(fails), rt.block_on(waits), rt.block_on(unborn)];
        assert!(exits.iter().all(Result::is_err));
    });
    let (decoded, counted) = (decode(&bytes), rt.counters() - before);
    assert_eq!((summary.lost, steps(&decoded)), (0, counted.steps));
    // Each of the two killed processes has a last turn without a step.
    assert_eq!(decoded.of("exit").len(), 2);
}

/// Command with a number. The handler doubles this number.
struct Double(u64);
impl Command for Double {
    type Reply = u64;
}

/// Hand-written process that performs two commands and sums up their answers.
#[derive(Default)]
struct ByHand {
    tags: Vec<Tag<Double>>,
    sum: u64,
    answers: u32,
}
impl Process for ByHand {
    type Message = u64;
    type Output = u64;
    fn step(&mut self, events: Events<'_, u64>, out: &mut StepOutput<'_, u64>) -> Result<Next<u64>, Exit> {
        for event in events {
            match event {
                Event::Message(number) => self.tags.push(out.perform(Double(number))),
                Event::Completed(completed) => {
                    let tag = self.tags.remove(0);
                    self.sum += completed.take(tag).expect("the commands are answered in order")?;
                    self.answers += 1;
                }
                _ => {}
            }
        }
        Ok(if self.answers == 2 { Next::Done(self.sum) } else { Next::Wait })
    }
}

/// Returns the start and the end of each arrow. Fails if an arrow has no end, has more than one end, or ends earlier
/// than it starts.
fn arrows(decoded: &Decoded) -> Vec<(&decoder::Event, &decoder::Event)> {
    let events = decoded.events.iter();
    let begins: Vec<_> = events.clone().flat_map(|event| event.flows.iter().map(move |flow| (*flow, event))).collect();
    let mut ends: BTreeMap<u64, &decoder::Event> = BTreeMap::new();
    for event in events {
        for flow in &event.ended_flows {
            assert!(ends.insert(*flow, event).is_none(), "{event:?}: two ends");
        }
    }
    let pairs = begins.into_iter().map(|(flow, begin)| {
        let end = ends.remove(&flow).unwrap_or_else(|| panic!("{begin:?} has no end"));
        assert!(begin.at <= end.at, "{begin:?} {end:?}");
        (begin, end)
    });
    let pairs = pairs.collect();
    assert!(ends.is_empty(), "{ends:?}");
    pairs
}

/// 9.3b: an arrow connects each send to the receipt of the message, and each yield to its completion. The number of
/// arrows from sends equals the counter `messages`, and the number of arrows from yields equals the counter `yields`.
#[test]
fn arrows_lead_from_sends_to_receipts_and_from_yields_to_completions() {
    let later = async |command: Double| {
        crate::step_aside().await;
        command.0 * 2
    };
    let inline = Runtime::builder().workers(0).handle(|command: Double| command.0 * 2).build().unwrap();
    let as_future = Runtime::builder().workers(0).handle_async(later).build().unwrap();
    for rt in [inline, as_future] {
        let before = rt.counters();
        let (bytes, summary) = traced(&rt, || {
            let by_hand = rt.spawn_process(ByHand::default());
            let body = rt.spawn(async |mut ctx: Context<u64>| {
                let mut sum = 0;
                for _ in 0..3 {
                    let number = ctx.receive().await?;
                    sum += ctx.perform(Double(number)).await?;
                }
                Ok::<_, Exit>(sum)
            });
            // The messages 1 and 2 are queued before the two processes run. The message 3 is sent alone, by the process
            // `last`.
            for number in 1..3 {
                by_hand.send(number).unwrap();
                body.send(number).unwrap();
            }
            let to = body.address();
            let last = rt.spawn(async move |_: Context| to.send(3));
            assert_eq!((rt.block_on(by_hand).unwrap(), rt.block_on(body).unwrap()), (6, 12));
            rt.block_on(last).unwrap();
        });
        let (decoded, counted) = (decode(&bytes), rt.counters() - before);
        let arrows = arrows(&decoded);
        let count = |from: &str, to: &str| {
            arrows.iter().filter(|(begin, end)| begin.name == from && end.name == to).count() as u64
        };
        assert_eq!((summary.lost, counted.messages, counted.yields), (0, 5, 5));
        assert_eq!(count("send", "receive"), counted.messages);
        assert_eq!(count("yield", "completion"), counted.yields);
        assert_eq!((arrows.len() as u64, counted.completions), (counted.messages + counted.yields, counted.yields));
        assert_eq!(steps(&decoded), counted.steps);
    }
}

/// Runs all processes that are ready.
fn settle(rt: &Runtime) {
    (0..10).for_each(|_| rt.block_on(crate::step_aside()));
}

/// Returns one entry for each mark `receive`, in the order of the times of the marks. If an arrow ends at the mark, the
/// entry is the position of the mark `send` at which this arrow begins. Otherwise the entry is `None`.
fn receipts(decoded: &Decoded) -> Vec<Option<usize>> {
    let sends = decoded.named(Kind::Instant, "send");
    let from = |flow: &u64| sends.iter().position(|send| send.flows.contains(flow)).expect("an arrow has a begin");
    decoded.named(Kind::Instant, "receive").iter().map(|event| event.ended_flows.first().map(from)).collect()
}

/// 9.3b: a process may be idle although its mailbox contains messages. The trace then does not know which message the
/// process receives next, and writes no arrow. As soon as the process waits for a message, the trace writes arrows.
#[test]
fn an_idle_process_with_unread_messages_gets_no_wrong_arrow() {
    for begins_before in [true, false] {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let (open, opened) = futures::channel::oneshot::channel::<()>();
        let body = async move |mut ctx: Context<u64>| {
            opened.await.map_err(|_| "closed")?;
            for number in 1..=4 {
                assert_eq!(ctx.receive().await.map_err(|_| "cancelled")?, number);
            }
            Ok::<_, &str>(())
        };
        let mut body = Some(body);
        let mut reads = begins_before.then(|| rt.spawn(body.take().unwrap()));
        if let Some(reads) = &reads {
            reads.send(1).unwrap();
            settle(&rt);
        }
        let (bytes, _) = traced(&rt, || {
            let reads = reads.take().unwrap_or_else(|| {
                let reads = rt.spawn(body.take().unwrap());
                settle(&rt);
                reads.send(1).unwrap();
                reads
            });
            // The process is woken and then idle again, with unread messages.
            settle(&rt);
            (2..=3).for_each(|number| reads.send(number).unwrap());
            open.send(()).unwrap();
            settle(&rt);
            reads.send(4).unwrap();
            rt.block_on(reads).unwrap();
        });
        // If the trace contains the spawn, the mailbox is known from the beginning.
        let expected = if begins_before { [None, None, None, Some(2)] } else { [0, 1, 2, 3].map(Some) };
        assert_eq!(receipts(&decode(&bytes)), expected, "{begins_before}");
    }
}

/// 9.3b: a selective receive has the mark `receive`. If this receive operation skips no message, its mark has an arrow.
/// After a skipped message, there are no arrows until the process has received all messages.
#[test]
fn a_selective_receive_is_part_of_the_trace() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let reads = rt.spawn(async |mut ctx: Context<u64>| -> Result<(), Exit> {
        let only = |wanted: u64| move |message: u64| if message == wanted { Ok(()) } else { Err(message) };
        assert_eq!(ctx.receive().await?, 0);
        for wanted in [1, 2, 4] {
            ctx.receive_where(only(wanted)).await?;
        }
        // The message 3 is still unread. The process is idle in the next line.
        ctx.receive_where(only(5)).await?;
        for expected in [3, 6, 7] {
            assert_eq!(ctx.receive().await?, expected);
        }
        Ok(())
    });
    settle(&rt);
    let (bytes, _) = traced(&rt, || {
        for number in 0..=7 {
            reads.send(number).unwrap();
            // The messages 3 and 4 arrive together.
            if number != 3 {
                settle(&rt);
            }
        }
        rt.block_on(reads).unwrap();
    });
    // After the receipt of message 3, the process has received all messages.
    let expected = [Some(0), Some(1), Some(2), None, None, None, Some(6), Some(7)];
    assert_eq!(receipts(&decode(&bytes)), expected);
}

/// 9.3b, 8.3a: processes of two runtimes send messages. The trace of the receiver's runtime contains both sends.
#[test]
fn a_trace_contains_the_sends_of_another_runtime() {
    let [one, other] = [(); 2].map(|()| Runtime::builder().workers(0).build().unwrap());
    let (bytes, summary) = traced(&other, || {
        let receiver =
            other.spawn(async |mut ctx: Context<u8>| Ok::<_, Exit>(ctx.receive().await? + ctx.receive().await?));
        let (first, second) = (receiver.address().clone(), receiver.address().clone());
        one.block_on(one.spawn(async move |_: Context| first.send(1).unwrap())).unwrap();
        other.block_on(other.spawn(async move |_: Context| second.send(2).unwrap())).unwrap();
        assert_eq!(other.block_on(receiver), Ok(3));
    });
    let decoded = decode(&bytes);
    let messages = arrows(&decoded).iter().filter(|(begin, end)| begin.name == "send" && end.name == "receive").count();
    assert_eq!((messages, summary.lost), (2, 0));
}

/// 9.3c: the last value on each counter track equals the counter of the runtime.
#[test]
fn counter_tracks_have_the_values_of_the_counters() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let sleepers: Vec<_> =
        (0..3).map(|_| rt.spawn(async |ctx: Context| ctx.sleep(Duration::from_secs(3600)).await)).collect();
    for sleeper in &sleepers {
        rt.block_on(sleeper.started()).unwrap();
    }
    let (bytes, _) = traced(&rt, || {
        rt.spawn(async |_: Context| {});
    });
    let decoded = decode(&bytes);
    let last = |name: &str| {
        let (uuid, _) = decoded.tracks.iter().find(|(_, track)| track.0 == name).expect("a track");
        decoded.events.iter().rfind(|event| event.track == *uuid).expect("a value").count
    };
    assert_eq!((last("timers"), last("queued tasks, shared queue"), last("steals")), (3, 1, 0));
    assert_eq!(last("parks"), rt.counters().parks);
    assert_eq!((last("replaced workers"), last("sockets"), last("queued tasks, queues of workers")), (0, 0, 0));
}

/// 9.3d: each prefix of a trace is readable, up to its last whole packet.
#[test]
fn a_trace_that_was_cut_off_is_readable() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let (bytes, _) = traced(&rt, || ping_pong(&rt, 2));
    let whole = decode(&bytes);
    let mut packets = 0;
    for length in 0..bytes.len() {
        let cut = decode(&bytes[..length]);
        assert!(cut.packets == packets || cut.packets == packets + 1);
        packets = cut.packets;
    }
    assert!(packets + 1 == whole.packets && packets > 20);
}

/// Writer that blocks until the test drops the sender.
struct Slow(mpsc::Receiver<()>, Buffer);

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.recv();
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// 9.3d: a writer that blocks delays no worker. The workers fill their buffers, and count the events that they lose.
#[test]
fn a_blocking_writer_delays_no_worker() {
    within(60, || {
        let rt = alone().build().unwrap();
        let before = rt.counters();
        let (release, blocks) = mpsc::channel();
        let buffer = Buffer::default();
        let trace = rt.start_trace_to(Slow(blocks, buffer.clone())).unwrap();
        let yields = rt.spawn(async |ctx: Context| {
            for _ in 0..100_000 {
                ctx.yield_now().await;
            }
        });
        rt.block_on(yields).unwrap();
        drop(release);
        let summary = trace.finish().unwrap();
        let (decoded, counted) = (decode(&buffer.bytes()), rt.counters() - before);
        assert!(summary.lost > 0);
        assert!(steps(&decoded) < counted.steps && steps(&decoded) + summary.lost >= counted.steps);
    });
}

/// 9.3d: a trace has no mark of the events that were lost during an earlier trace.
#[test]
fn a_trace_does_not_report_the_losses_of_an_earlier_trace() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let (release, blocks) = mpsc::channel();
        let trace = rt.start_trace_to(Slow(blocks, Buffer::default())).unwrap();
        let yields = rt.spawn(async |ctx: Context| {
            for _ in 0..100_000 {
                ctx.yield_now().await;
            }
        });
        rt.block_on(yields).unwrap();
        drop(release);
        assert!(trace.finish().unwrap().lost > 0);
        let (bytes, summary) = traced(&rt, || ping_pong(&rt, 1));
        assert_eq!((summary.lost, decode(&bytes).named(Kind::Instant, "lost").len()), (0, 0));
    });
}

/// Counts the transitions to the state `Ready`.
#[derive(Clone, Default)]
struct ReadyCount(Arc<AtomicUsize>);

impl Observer for ReadyCount {
    fn transition(&self, transition: &Transition) {
        if transition.to == ProcessState::Ready {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// 9.3d: when a worker has reached its limit of trace events, the trace skips turns. If a skipped turn wakes a process
/// of another runtime, the observer of this other runtime still receives the wake-up.
#[test]
fn a_wake_up_in_a_skipped_turn_is_reported_to_the_observer_of_another_runtime() {
    within(60, || {
        let ready = ReadyCount::default();
        let (traced, observed) = (alone().build().unwrap(), alone().observer(ready.clone()).build().unwrap());
        let receiver = observed.spawn(async |mut ctx: Context<u64>| ctx.receive().await);
        observed.block_on(observed.spawn(async |_: Context| ())).unwrap();
        let (before, to) = (ready.0.load(Ordering::Relaxed), receiver.address());
        let (release, blocks) = mpsc::channel();
        let trace = traced.start_trace_to(Slow(blocks, Buffer::default())).unwrap();
        let sender = traced.spawn(async move |ctx: Context| {
            for _ in 0..100_000 {
                ctx.yield_now().await;
            }
            to.send(7)
        });
        traced.block_on(sender).unwrap();
        assert_eq!(ready.0.load(Ordering::Relaxed), before + 1);
        drop(release);
        assert!(trace.finish().unwrap().lost > 0);
        assert_eq!(observed.block_on(receiver).unwrap(), 7);
    });
}

/// Writer that fails at its second call.
struct Fails(u32);

impl Write for Fails {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += 1;
        if self.0 == 2 { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// 9.3a: if the writer of a trace fails, the trace ends, and `finish` returns the error. Another trace can begin.
#[test]
fn a_trace_ends_if_its_writer_fails() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let trace = rt.start_trace_to(Fails(0)).unwrap();
        while !trace.has_ended() {
            ping_pong(&rt, 2);
        }
        assert_eq!(trace.finish().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let (bytes, _) = traced(&rt, || ping_pong(&rt, 1));
        assert!(steps(&decode(&bytes)) > 0);
    });
}

/// 9.3a: a panic of the writer is an error of the trace.
#[test]
fn a_panic_of_the_writer_is_an_error() {
    struct Panics;
    impl Write for Panics {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            std::panic::resume_unwind(Box::new("no luck"))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    impl Drop for Panics {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("no luck either"))
        }
    }
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let error = rt.start_trace_to(Panics).unwrap().finish().unwrap_err();
        assert!(error.to_string().contains("no luck"), "{error}");
    });
}

/// 9.3a: two traces of a runtime can overlap.
#[test]
fn two_traces_can_overlap() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let mut inner = None;
    let (outer, _) = traced(&rt, || {
        ping_pong(&rt, 2);
        inner = Some(traced(&rt, || ping_pong(&rt, 2)).0);
        ping_pong(&rt, 2);
    });
    let (inner, outer) = (steps(&decode(&inner.unwrap())), steps(&decode(&outer)));
    assert!(inner > 0 && outer == 3 * inner, "{inner} {outer}");
}

/// Runs a simulation with this seed and writes a trace of the simulation.
fn simulated(seed: u64) -> (Vec<u8>, TraceSummary, observe::Counters) {
    let mut simulation = Simulation::new(seed);
    let host = simulation.host().clone();
    let buffer = Buffer::default();
    let trace = host.start_trace_to(buffer.clone()).unwrap();
    let pong = host.spawn(pong);
    let to = pong.address();
    let ping = host.spawn(async move |ctx: Context<u64>| ping(ctx, to, 5_000).await);
    let sleeper = host.spawn(async |ctx: Context| ctx.sleep(Duration::from_secs(3600)).await);
    simulation.run(ping).unwrap();
    simulation.run(sleeper).unwrap();
    host.kill(pong.pid()).unwrap();
    simulation.run(pong).unwrap_err();
    let summary = trace.finish().unwrap();
    (buffer.bytes(), summary, host.counters())
}

/// 9.3a, 10.1b: a simulation writes a trace with virtual times. The trace loses no events, and the same seed gives the
/// same bytes.
#[test]
fn a_simulation_writes_a_trace_without_losses() {
    let (bytes, summary, counted) = simulated(7);
    let decoded = decode(&bytes);
    assert_eq!((summary.lost, steps(&decoded)), (0, counted.steps));
    let hour = 3_600_000_000_000;
    let blocked = decoded.of("state").into_iter().find(|state| state.name == "blocked").expect("the sleeper");
    assert_eq!(blocked.to - blocked.from, hour);
    assert!(bytes == simulated(7).0 && bytes != simulated(8).0);
}

/// 9.3a: the writer of a trace may call `finish` for its own trace. This call does not wait for the writer, so there is
/// no deadlock.
#[test]
fn the_writer_of_a_trace_may_end_the_trace() {
    struct Ends(Arc<Mutex<Option<observe::Trace>>>, mpsc::Sender<io::ErrorKind>);
    impl Write for Ends {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let trace = self.0.lock().unwrap().take();
            if let Some(trace) = trace {
                self.1.send(trace.finish().unwrap_err().kind()).unwrap();
            }
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    within(60, || {
        let rt = Runtime::builder().workers(1).build().unwrap();
        let (send, ended) = mpsc::channel();
        let place = Arc::default();
        let trace = rt.start_trace_to(Ends(Arc::clone(&place), send)).unwrap();
        *place.lock().unwrap() = Some(trace);
        while ended.try_recv().map(|kind| assert_eq!(kind, io::ErrorKind::WouldBlock)).is_err() {
            rt.block_on(rt.spawn(async |ctx: Context| ctx.yield_now().await)).unwrap();
        }
    });
}

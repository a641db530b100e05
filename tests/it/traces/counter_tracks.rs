//! 9.3c: the counter tracks of a trace. Each test brings the runtime into a state in which some tracks have values
//! other than 0. The runtime stays in this state until the trace ends.

use std::sync::{Arc, Barrier, mpsc};
use std::thread;

use procession::observe::{RuntimeMetrics, WorkerState};
use procession::*;

use super::decoder::{Buffer, Decoded, Kind, decode};
use crate::{alone, two, within};

/// Returns all values of the counter track with this name, in the order of the trace.
fn values(decoded: &Decoded, name: &str) -> Vec<u64> {
    let (uuid, _) = decoded.tracks.iter().find(|(_, track)| track.0 == name).expect("a track");
    let values = decoded.events.iter().filter(|event| event.track == *uuid && event.kind == Kind::Counter);
    values.map(|event| event.count).collect()
}

fn last(decoded: &Decoded, name: &str) -> u64 {
    *values(decoded, name).last().expect("each track has a value")
}

/// Begins a trace, calls `hold`, ends the trace, and then drops the value that `hold` returned. Until the drop of this
/// value, the value keeps the runtime in the same state.
fn traced_while<T>(host: &Host, hold: impl FnOnce() -> T) -> Decoded {
    let buffer = Buffer::default();
    let trace = host.start_trace_to(buffer.clone()).unwrap();
    let held = hold();
    assert_eq!(trace.finish().unwrap().lost, 0);
    drop(held);
    decode(&buffer.bytes())
}

/// A process whose step blocks until this value is dropped.
struct Blocks<T> {
    release: Option<mpsc::Sender<()>>,
    process: Option<JoinHandle<T>>,
}

impl<T> Drop for Blocks<T> {
    fn drop(&mut self) {
        drop(self.release.take());
        futures::executor::block_on(self.process.take().expect("not joined yet"))
            .unwrap_or_else(|exit| panic!("{exit}"));
    }
}

/// Spawns a process that calls `step`. The argument of `step` is a function that blocks until the returned `Blocks` is
/// dropped. `block` returns when `step` has called this function.
fn block<T: Send + 'static>(
    host: &Host,
    step: impl FnOnce(&Context, &mut dyn FnMut()) -> T + Send + 'static,
) -> Blocks<T> {
    let (release, gate) = mpsc::channel::<()>();
    let (begins, begun) = mpsc::channel();
    let process = host.spawn(async move |ctx: Context| {
        let value = step(&ctx, &mut || {
            begins.send(()).unwrap();
            _ = gate.recv();
        });
        Ok::<_, Exit>(value)
    });
    begun.recv().unwrap();
    Blocks { release: Some(release), process: Some(process) }
}

/// Waits until all workers are parked. Returns the metrics at this time.
fn all_parked(rt: &Runtime) -> RuntimeMetrics {
    loop {
        let metrics = rt.metrics();
        if metrics.workers.iter().all(|worker| worker.state == WorkerState::Parked) {
            return metrics;
        }
        thread::yield_now();
    }
}

/// 9.3c: one step spawns seven children on the worker of the step, and a thread outside the runtime spawns five
/// processes. The only worker runs none of these twelve processes, because the step blocks.
#[test]
fn the_tracks_of_the_queue_depths_have_exact_values() {
    within(60, || {
        let rt = alone().max_replacement_threads(0).build().unwrap();
        let spawns = |ctx: &Context, block: &mut dyn FnMut()| {
            let children: Vec<_> = (0..7).map(|_| ctx.spawn(async |_: Context| {})).collect();
            block();
            children.into_iter().for_each(drop);
        };
        let decoded = traced_while(&rt, || {
            let blocks = block(&rt, spawns);
            (0..5).for_each(|_| drop(rt.spawn(async |_: Context| {})));
            blocks
        });
        assert_eq!(last(&decoded, "queued tasks, queues of workers"), 7);
        assert_eq!(last(&decoded, "queued tasks, shared queue"), 5);
        all_parked(&rt);
        let decoded = traced_while(&rt, || ());
        assert_eq!(last(&decoded, "queued tasks, queues of workers"), 0);
        assert_eq!(last(&decoded, "queued tasks, shared queue"), 0);
    });
}

/// 9.3c: the two children of a process run at the same time. Therefore the second worker has stolen one of the
/// children. Each worker has parked.
#[test]
fn the_tracks_of_steals_and_parks_have_the_values_of_the_counters() {
    within(60, || {
        let rt = two();
        all_parked(&rt);
        let (steals, parks) = (rt.counters().steals_won, rt.counters().parks);
        let mut before = None;
        let decoded = traced_while(&rt, || {
            let parent = rt.spawn(async |ctx: Context| {
                let meeting = Arc::new(Barrier::new(2));
                let children = [(); 2].map(|()| {
                    let meeting = Arc::clone(&meeting);
                    ctx.spawn(async move |_: Context| _ = meeting.wait())
                });
                for child in children {
                    child.await?;
                }
                Ok::<_, Exit>(())
            });
            futures::executor::block_on(parent).unwrap();
            before = Some(all_parked(&rt).counters);
        });
        let (before, after) = (before.expect("the closure has run"), rt.counters());
        assert!(steals < before.steals_won && parks < before.parks, "{before}");
        // No process exists, so no worker steals. A parked worker may still wake up once, because its token was set.
        assert_eq!(last(&decoded, "steals"), before.steals_won);
        assert!((before.parks..=after.parks).contains(&last(&decoded, "parks")), "{before} {after}");
        for name in ["steals", "parks"] {
            assert!(values(&decoded, name).is_sorted(), "{name}");
        }
    });
}

/// 9.3c: a step in `block_in_place` hands over its worker. The track counts this worker until the step returns.
#[test]
fn the_track_of_replaced_workers_counts_the_steps_that_block() {
    within(60, || {
        let rt = two();
        let decoded = traced_while(&rt, || block(&rt, |_, block| block_in_place(block)));
        assert_eq!(last(&decoded, "replaced workers"), 1);
        let both = traced_while(&rt, || [(); 2].map(|()| block(&rt, |_, block| block_in_place(block))));
        assert_eq!(last(&both, "replaced workers"), 2);
        let none = traced_while(&rt, || all_parked(&rt));
        assert_eq!(last(&none, "replaced workers"), 0);
    });
}

/// 9.3c: the track of the sockets counts the sockets that are registered with the poller.
#[cfg(feature = "net")]
#[test]
fn the_track_of_sockets_counts_the_open_sockets() {
    use procession::net::UdpSocket;
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let bind = || rt.block_on(UdpSocket::bind("127.0.0.1:0")).unwrap();
        let decoded = traced_while(&rt, || [(); 3].map(|()| bind()));
        assert_eq!(last(&decoded, "sockets"), 3);
        assert_eq!(last(&traced_while(&rt, || ()), "sockets"), 0);
    });
}

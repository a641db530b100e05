//! Live traces of one process, for a console.

use crate::host::Host;
use crate::observe::trace::live::LiveTrace;
use crate::observe::trace::options::TraceOptions;
use crate::platform::sync::Arc;

impl Host {
    /// Starts a live trace of the process that the options select. Returns the trace and the label of the process.
    /// The label contains the name and the type of the process. Returns `None` if the process does not exist. The
    /// trace does not keep the host alive.
    pub(crate) fn start_live_trace(&self, options: &TraceOptions) -> Option<(LiveTrace, String)> {
        let (reader, alive) = self.begin_reader(options);
        let label = alive.values().next().map(|alive| reader.recorder().text(alive.label));
        let (host, metrics, filter) = (self.downgrade(), Arc::clone(&self.shared().metrics), reader.filter());
        let stop = Box::new(move || match host.upgrade() {
            Some(host) => host.end_session(&filter),
            None => metrics.recorder().end_session(&filter, || ()),
        });
        let trace = LiveTrace::new(reader, stop);
        Some((trace, label?))
    }

    /// Returns the number of traces that run in the runtime.
    pub(crate) fn trace_count(&self) -> usize {
        self.shared().metrics.recorder().trace_count()
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::observe::trace::TraceEvent;
    use crate::platform::sync::tally::{AtomicUsize, Ordering};
    use crate::{Context, Exit, Runtime};

    /// 9.3e: if a trace selects only one process, the exit of this process ends the trace, even if the worker has
    /// reached its limit of events.
    #[test]
    fn the_exit_of_the_only_process_of_a_trace_is_never_discarded() {
        let rt = Runtime::builder().workers(0).build().expect("a runtime");
        let busy = rt.spawn(async |ctx: Context| {
            for _ in 0..10_000 {
                ctx.yield_now().await;
            }
        });
        let options = TraceOptions::new().process(busy.pid());
        let (mut trace, _) = rt.start_live_trace(&options).expect("the process exists");
        rt.block_on(busy).expect("it returns");
        trace.finish();
        assert!(trace.counts().1 != 0, "the limit is reached");
        assert!(trace.is_over());
    }

    /// 9.3e: a trace selects a type. If the spawn event of a process of this type was discarded, the trace still
    /// contains the events of the process. This also holds if the process exits before its events are read.
    #[test]
    fn a_process_whose_spawn_was_discarded_is_found_by_its_type() {
        const PROCESSES: usize = 20_000;
        static EVENTS: AtomicUsize = AtomicUsize::new(0);
        async fn receiver(mut ctx: Context<bool>) {
            EVENTS.fetch_add(1, Ordering::Relaxed);
            while ctx.receive().await == Ok(true) {
                EVENTS.fetch_add(1, Ordering::Relaxed);
            }
        }
        let rt = Runtime::builder().workers(0).build().expect("a runtime");
        let until = |events| {
            while EVENTS.load(Ordering::Relaxed) < events {
                rt.block_on(rt.spawn(async |_: Context| ())).expect("it returns");
            }
        };
        let (reader, _) = rt.begin_reader(&TraceOptions::new().type_contains("receiver"));
        let mut trace = LiveTrace::new(reader, Box::new(|| ()));
        let spawner = rt.spawn(async |ctx: Context| {
            let all: Vec<_> = (0..PROCESSES).map(|_| ctx.spawn(receiver)).collect();
            Ok::<_, Exit>(all)
        });
        let mut all = rt.block_on(spawner).expect("it returns");
        let mut next = || all.pop().expect("the list is not empty");
        let (lives, exits) = (next(), next());
        until(PROCESSES);
        let mut now = rt.now().ns();
        // This closure calls `LiveTrace::collect` twice. The second call passes on the events that were recorded before
        // the first call. Each call permits the recording of further events.
        let mut collect = |trace: &mut LiveTrace| {
            for _ in 0..2 {
                now += 1_000_000_000;
                trace.collect(now);
            }
            trace.take(usize::MAX).map(|entry| entry.event).collect::<Vec<_>>()
        };
        collect(&mut trace);
        lives.send(true).expect("it lives");
        until(PROCESSES + 1);
        assert!(collect(&mut trace).contains(&TraceEvent::Received { process: lives.pid().word() }));
        let process = exits.pid().word();
        exits.send(false).expect("it lives");
        rt.block_on(exits).expect("it returns");
        assert!(collect(&mut trace).contains(&TraceEvent::Received { process }));
    }
}

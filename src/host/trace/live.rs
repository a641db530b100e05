//! Live traces of one process, for a console.

use crate::host::Host;
use crate::observe::trace::live::LiveTrace;
use crate::observe::trace::options::TraceOptions;
use crate::platform::sync::Arc;

impl Host {
    /// Starts a live trace of the process that the options select. Also returns the label of the process: its name and
    /// its type. Returns `None` if the process does not exist. The trace does not keep the host alive.
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
    use crate::{Context, Runtime};

    /// 9.3e: the exit of the only process of a trace ends the trace, also if its worker has reached its limit.
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
}

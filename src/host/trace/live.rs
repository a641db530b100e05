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

//! Flight records of a runtime. The host copies the ring buffers of the flight recorder, and adds the names of the
//! processes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
#[cfg(feature = "console")]
use std::path::PathBuf;

use crate::host::Host;
use crate::host::inspection::{first_name, process};
use crate::host::trace::{Processes, word};
#[cfg(all(feature = "net", unix, not(any(procession_loom, procession_shuttle))))]
pub(crate) use crate::observe::trace::flight::FlightRecorder;
#[cfg(feature = "console")]
pub(crate) use crate::observe::trace::flight::RecordRefusal;
use crate::observe::trace::flight::{FlightCopy, FlightSummary};
use crate::platform::sync::Arc;

impl Host {
    /// Writes the last events of the runtime to the file at this path, in the format of an execution trace. If the file
    /// exists, the record replaces the contents of the file. The old contents are lost even if a write fails. The
    /// runtime needs a [flight recorder](crate::Builder::flight_recorder). [Perfetto](https://ui.perfetto.dev) opens
    /// the file.
    ///
    /// Any thread can make this call, at any time. The calling thread copies the buffers of the recorder, converts the
    /// events, and writes the file. The workers continue during the call, and no worker waits for the file. For the
    /// duration of the call, the copy needs about twice the memory of the buffers. If busy workers fill their buffers
    /// faster than the calling thread copies the buffers, the calling thread copies the buffers a second time. The
    /// workers record no events during this second copy. A trace or a later record shows these events as lost. This
    /// function blocks the calling thread. Inside a step, call this function in
    /// [`spawn_blocking`](Self::spawn_blocking).
    ///
    /// The following events are missing from a flight record:
    /// - the events that newer events have overwritten. [`FlightSummary::overwritten`] is their number.
    /// - the events that a worker has recorded after the copy began.
    /// - the beginning of a slice or of an arrow whose first event was overwritten.
    /// - the arrows of messages that were sent before the period of [`FlightSummary::complete`].
    /// - the entry point of a process, if the event of its spawn was overwritten.
    /// - the values that the counters had before the copy. Each counter track contains only one value.
    ///
    /// # Errors
    /// Returns an error of the kind [`Unsupported`](io::ErrorKind::Unsupported) if the runtime has no flight recorder.
    /// Returns the error of the system if the file cannot be created or written.
    pub fn write_flight_record(&self, path: impl AsRef<Path>) -> io::Result<FlightSummary> {
        self.check_flight_recorder()?;
        self.write_flight_record_to(File::create(path)?)
    }

    /// Writes the last events of the runtime to `writer`, in the same way as
    /// [`write_flight_record`](Self::write_flight_record). This function calls the writer on this thread, with parts
    /// of at most a few hundred KiB, and then flushes the writer.
    ///
    /// # Errors
    /// Returns an error of the kind [`Unsupported`](io::ErrorKind::Unsupported) if the runtime has no flight recorder.
    /// Returns the first error of the writer.
    pub fn write_flight_record_to(&self, mut writer: impl Write) -> io::Result<FlightSummary> {
        self.check_flight_recorder()?;
        let recorder = self.shared().metrics.recorder();
        let copy = FlightCopy::new(recorder, || self.now().ns());
        let seen = copy.processes();
        let mut labels = BTreeMap::new();
        self.shared().pid_table.visit(|control| {
            let Some((head, type_name)) = process(control) else { return Ok(()) };
            if seen.contains(&word(head)) {
                labels.insert(word(head), recorder.label(first_name(head)?.as_deref(), type_name, ""));
            }
            Ok(())
        });
        let lookup = Box::new(Processes(Arc::clone(self.shared())));
        let summary = copy.convert(recorder, &self.trace_title(), labels, lookup, |bytes| writer.write_all(bytes))?;
        writer.flush()?;
        Ok(summary)
    }

    fn check_flight_recorder(&self) -> io::Result<()> {
        if self.shared().metrics.recorder().keeps_last_events() {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this runtime has no flight recorder: see Builder::flight_recorder",
        ))
    }

    /// Allocates the buffers of the workers, and starts the thread that writes flight records automatically. Does
    /// nothing without a flight recorder.
    ///
    /// # Errors
    /// Returns the error of the system if the thread cannot be started, or if a signal of the options cannot be
    /// watched.
    pub(crate) fn start_record_writer(&self, workers: usize) -> io::Result<()> {
        self.shared().metrics.recorder().allocate_buffers(workers);
        let host = self.clone();
        // `create_new` keeps the file of an earlier run with the same process id and node.
        let write = move |path: &Path| host.write_flight_record_to(File::create_new(path)?);
        self.shared().metrics.start_record_writer(self.node().to_string(), write)
    }

    /// Reserves the file for a flight record that a console has requested. The options of the flight recorder contain
    /// the folder of the file.
    ///
    /// # Errors
    /// Returns the reason why no file can be written now.
    #[cfg(feature = "console")]
    pub(crate) fn request_flight_record(&self) -> Result<RequestedRecord, RecordRefusal> {
        let number = self.shared().metrics.recorder().reserve_file()?;
        Ok(RequestedRecord { host: self.clone(), number, is_written: false })
    }

    /// Waits until the requested flight records are written, and ends the thread that writes these records.
    pub(crate) fn stop_record_writer(&self) {
        self.shared().metrics.recorder().stop_writer();
    }
}

/// A reserved file for a flight record. Until this value is dropped, no other file can be reserved. The drop of the
/// runtime also waits until this value is dropped.
#[cfg(feature = "console")]
pub(crate) struct RequestedRecord {
    host: Host,
    number: u32,
    is_written: bool,
}

#[cfg(feature = "console")]
impl RequestedRecord {
    /// Writes the file. Also returns its path.
    ///
    /// # Errors
    /// Returns the error of the system, and removes the incomplete file. After an error, the next request writes the
    /// same file again.
    pub(crate) fn write(mut self) -> (PathBuf, io::Result<FlightSummary>) {
        let host = &self.host;
        let write = |path: &Path| {
            let written = host.write_flight_record_to(File::create_new(path)?);
            if written.is_err() {
                let _ = std::fs::remove_file(path);
            }
            written
        };
        let label = host.node().to_string();
        let (path, written) = host.shared().metrics.recorder().write_reserved(&label, self.number, write);
        self.is_written = written.is_ok();
        (path, written)
    }
}

#[cfg(feature = "console")]
impl Drop for RequestedRecord {
    fn drop(&mut self) {
        self.host.shared().metrics.recorder().release_file(self.is_written);
    }
}

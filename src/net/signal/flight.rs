//! An option of the flight recorder. With this option, the flight recorder writes a record when a signal arrives.
//!
//! A separate thread, and not a process, waits for the signal. Therefore the runtime writes the record even if all
//! workers are blocked. The crate `signal-hook` installs a signal handler. The handler writes one byte to a socket, and
//! the thread reads the other end of this socket.

use std::io::{self, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use crate::host::trace::flight::FlightRecorder;
use crate::net::signal::unix::{Registration, SignalKind, register};
use crate::platform::sync::atomic::{AtomicBool, Ordering};
use crate::platform::sync::{Arc, thread};

impl FlightRecorder {
    /// Writes a record when the program receives a signal of this kind. Default: no signal. Several calls add several
    /// kinds. Needs the feature `net` and a Unix system. On other systems this method does not exist. There, a program
    /// can wait for [`ctrl_c`](crate::signal::ctrl_c) and then call
    /// [`Host::write_flight_record`](crate::Host::write_flight_record).
    ///
    /// The runtime writes a file to the [folder](Self::folder), for example `flight-4711-1-1-signal.pftrace`. Each kind
    /// of signal has a thread that waits for this signal. The thread of the flight recorder writes the file. So a
    /// record is written even if all workers are blocked. If several signals arrive before the thread of the flight
    /// recorder begins to write, these signals share one file. A panic or a long step may have requested a file before
    /// the signal. If the thread has not begun to write this file, the signal also uses this file. The name of the file
    /// then contains `panic` or `blocked`. The runtime writes at most [`max_files`](Self::max_files) files for all
    /// signals.
    ///
    /// The runtime installs a handler for the kind when the runtime is built. The handler stays installed until the
    /// program ends. So signals of this kind never have their default effect again, even after the runtime was dropped.
    /// Before the runtime is built, or without this option, `SIGUSR1` and `SIGUSR2` end the program. Several runtimes
    /// and several [`Signal`](crate::signal::unix::Signal) values can wait for the same kind of signal. Each of these
    /// runtimes and `Signal` values receives the signal.
    ///
    /// If the kind does not exist, or if no program can handle this kind, [`Builder::build`](crate::Builder::build)
    /// returns [`BuildError::Io`](crate::BuildError::Io). A [`Simulation`](crate::Simulation) ignores this option.
    ///
    /// ```
    /// # use procession::Runtime;
    /// # use procession::observe::FlightRecorder;
    /// use procession::signal::unix::SignalKind;
    ///
    /// // `kill -USR1 PID` makes the program write a record.
    /// let recorder = FlightRecorder::new().write_on_signal(SignalKind::USER_DEFINED1);
    /// let rt = Runtime::builder().flight_recorder(recorder).build()?;
    /// # Ok::<(), procession::BuildError>(())
    /// ```
    pub fn write_on_signal(self, kind: SignalKind) -> Self {
        self.add_signal(Arc::new(move |request| Ok(Box::new(SignalWatch::begin(kind, request)?))))
    }
}

/// A thread that waits for a signal. The drop of this value ends the thread.
struct SignalWatch {
    arrivals: UnixStream,
    /// `None` after the drop has begun.
    registration: Option<Registration>,
    thread: Option<thread::JoinHandle<()>>,
}

impl SignalWatch {
    /// Starts the thread. The thread calls `request` after each arrival of the signal.
    fn begin(kind: SignalKind, request: Box<dyn Fn() + Send>) -> io::Result<Self> {
        let (arrivals, registration) = register(kind, Ok)?;
        let has_arrived = Arc::clone(registration.has_arrived());
        let mut watch = Self { arrivals, registration: Some(registration), thread: None };
        let reader = watch.arrivals.try_clone()?;
        let name = "procession-signal".to_owned();
        watch.thread = Some(thread::Builder::new().name(name).spawn(move || wait(reader, &has_arrived, &request))?);
        Ok(watch)
    }
}

/// Calls `request` after each arrival of the signal, until the socket is shut down. Ignores the signals of a child
/// process: see [`Registration`].
fn wait(mut arrivals: UnixStream, has_arrived: &AtomicBool, request: &dyn Fn()) {
    let mut bytes = [0; 64];
    loop {
        match arrivals.read(&mut bytes) {
            Ok(0) => return,
            Ok(_) if has_arrived.swap(false, Ordering::SeqCst) => request(),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

impl Drop for SignalWatch {
    fn drop(&mut self) {
        drop(self.registration.take());
        // The removal of the handler closes the other end of the socket. But a child of a `fork` may still have an open
        // copy of the other end. Therefore this code also shuts the socket down, so that the thread always returns.
        let _ = self.arrivals.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

//! Ctrl-C on Windows. On Windows, the signal handler runs on its own thread, so it can notify waiters directly.

use std::io;

use crate::platform::sync::{Arc, Event, OnceLock};

static ARRIVAL: OnceLock<Result<Arc<Event>, io::ErrorKind>> = OnceLock::new();

/// Waits for the next Ctrl-C.
#[allow(unsafe_code)]
pub(super) async fn ctrl_c() -> io::Result<()> {
    let arrival = ARRIVAL.get_or_init(|| {
        let event = Arc::new(Event::new());
        let notified = Arc::clone(&event);
        let notify = move || {
            notified.notify(usize::MAX);
        };
        // SAFETY: on Windows, the handler runs on a thread that the system starts for it, so the restrictions of Unix
        // signal handlers do not apply.
        let registered = unsafe { signal_hook::low_level::register(signal_hook::consts::SIGINT, notify) };
        registered.map(|_| event).map_err(|error| error.kind())
    });
    match arrival {
        Ok(event) => {
            event.listen().await;
            Ok(())
        }
        Err(kind) => Err((*kind).into()),
    }
}

//! Ctrl-C on Windows. The crate `ctrlc` calls the handler on a thread of its own, so the handler can wake the waiting
//! futures directly.

use std::io;

use crate::platform::sync::{Arc, Event, OnceLock};

/// The event that each Ctrl-C notifies, or the reason why the handler could not be installed.
static ARRIVAL: OnceLock<Result<Arc<Event>, String>> = OnceLock::new();

/// Waits for the next Ctrl-C.
pub(super) async fn ctrl_c() -> io::Result<()> {
    let arrival = ARRIVAL.get_or_init(|| {
        let event = Arc::new(Event::new());
        let notified = Arc::clone(&event);
        let notify = move || {
            notified.notify(usize::MAX);
        };
        ctrlc::set_handler(notify).map(|()| event).map_err(|error| error.to_string())
    });
    match arrival {
        Ok(event) => {
            event.listen().await;
            Ok(())
        }
        Err(reason) => Err(io::Error::other(reason.clone())),
    }
}

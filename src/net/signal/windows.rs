//! Ctrl-C on Windows. The crate `ctrlc` calls the handler on a separate thread, so the handler can wake the waiting
//! futures directly.

use std::future::poll_fn;
use std::io;

use crate::host::control::listening::{Listening, poll_news};
use crate::platform::sync::atomic::{AtomicU64, Ordering};
use crate::platform::sync::{Arc, Event, OnceLock};
use crate::process::catch::notify;

/// The arrivals of Ctrl-C.
struct Arrivals {
    count: AtomicU64,
    event: Event,
}

/// The arrivals of Ctrl-C in this program, or the reason why the handler could not be installed.
static ARRIVALS: OnceLock<Result<Arc<Arrivals>, String>> = OnceLock::new();

/// Waits for the next Ctrl-C.
pub(super) async fn ctrl_c() -> io::Result<()> {
    let arrivals = ARRIVALS.get_or_init(|| {
        let arrivals = Arc::new(Arrivals { count: AtomicU64::new(0), event: Event::new() });
        let noted = Arc::clone(&arrivals);
        let handler = move || {
            noted.count.fetch_add(1, Ordering::SeqCst);
            // A panic of a waker must not end the thread of the handler, and a waker must not run under the lock of the
            // event.
            notify(&noted.event);
        };
        ctrlc::set_handler(handler).map(|()| arrivals).map_err(|error| error.to_string())
    });
    match arrivals {
        Ok(arrivals) => {
            let Arrivals { count, event } = &**arrivals;
            let before = count.load(Ordering::SeqCst);
            let mut listening = Listening::default();
            let has_arrived = || (count.load(Ordering::SeqCst) != before).then_some(());
            poll_fn(|cx| poll_news(event, &mut listening, cx, has_arrived)).await;
            Ok(())
        }
        Err(reason) => Err(io::Error::other(reason.clone())),
    }
}

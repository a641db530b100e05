//! Pauses between the attempts of an operation. These pauses are necessary if the system does not report when the next
//! attempt can succeed.

use std::io;
use std::time::Duration;

use crate::net::backend::Backend;

/// Shortest and longest pause between two attempts.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(16);

/// The pauses of one operation. Each pause is twice as long as the pause before it, up to [`LONGEST`].
#[derive(Debug)]
pub(crate) struct Pauses {
    next: Duration,
}

impl Pauses {
    pub(crate) fn new() -> Self {
        Self { next: SHORTEST }
    }

    /// Waits for the next pause.
    ///
    /// # Errors
    /// Returns an error if the runtime was dropped.
    pub(crate) async fn pause(&mut self, backend: &Backend) -> io::Result<()> {
        backend.host()?.limit(self.next).await;
        self.next = (2 * self.next).min(LONGEST);
        Ok(())
    }
}

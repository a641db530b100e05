//! Ctrl-C and the signals of Unix. Needs the feature `net`.
//!
//! ```no_run
//! # use procession::Runtime;
//! # use std::time::Duration;
//! # let rt = Runtime::new()?;
//! rt.block_on(async {
//!     procession::signal::ctrl_c().await?;
//!     rt.shutdown(Duration::from_secs(5)).await;
//!     std::io::Result::Ok(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```

#[cfg(unix)]
mod flight;
#[cfg(unix)]
pub mod unix;
#[cfg(windows)]
mod windows;

use std::io;

use crate::host::Host;

/// Waits for the next Ctrl-C. On Unix, Ctrl-C is the signal `SIGINT`.
///
/// The first call installs a handler, which stays installed until the program ends. So after the first call, Ctrl-C
/// does not end the program any more. The future ignores signals that arrive before its first poll.
///
/// On Unix, each waiting future uses two descriptors, and the duration of its first poll grows in proportion to the
/// number of waiting futures: see `signal::unix::signal`. If many processes need the signal, one process should wait
/// for the signal and forward the signal to the other processes.
///
/// # Errors
/// Returns an error if the handler cannot be installed. On Unix, returns an error if the thread has no runtime, if the
/// runtime is a simulation, or if the runtime has ended: see [`net`](crate::net).
///
/// # Cancel safety
/// Cancel safe. A signal that arrives after the future was dropped is lost, unless another future waits for this
/// signal.
pub async fn ctrl_c() -> io::Result<()> {
    #[cfg(unix)]
    {
        unix::signal(unix::SignalKind::INTERRUPT)?.recv().await
    }
    #[cfg(windows)]
    {
        windows::ctrl_c().await
    }
}

/// Does the same as [`ctrl_c`], on the runtime of `host`. Therefore the thread needs no runtime. On Windows, the future
/// does not use the runtime.
///
/// # Errors
/// Fails under the same conditions as [`ctrl_c`].
///
/// # Cancel safety
/// Cancel safe, like [`ctrl_c`].
pub async fn ctrl_c_in(host: &Host) -> io::Result<()> {
    #[cfg(unix)]
    {
        unix::signal_in(host, unix::SignalKind::INTERRUPT)?.recv().await
    }
    #[cfg(windows)]
    {
        // The handler of Windows needs no descriptor.
        let _ = host;
        windows::ctrl_c().await
    }
}

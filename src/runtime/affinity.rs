//! Pins workers to cores. Code that lists the cores or pins a thread must be unsafe. Therefore, this module uses the
//! crate `core_affinity`, which contains this unsafe code.

use core_affinity::CoreId;

use crate::platform::sync::Arc;
use crate::process::error::BuildError;

/// Pins the calling thread to the core of the worker with this number.
pub(crate) type Pin = Arc<dyn Fn(usize) + Send + Sync>;

/// Returns a function that pins the calling thread. Worker n is pinned to the n-th core of `cores`. If there are more
/// workers than cores, the assignment starts again at the first core. If `cores` is empty, the function uses all cores
/// that this program may use.
///
/// # Errors
/// [`BuildError::Invalid`] if this program may not use one of the cores, or if the system does not report its cores.
pub(crate) fn pin_to(cores: Vec<usize>) -> Result<Pin, BuildError> {
    let there = core_affinity::get_core_ids().unwrap_or_default();
    let cores: Vec<CoreId> =
        if cores.is_empty() { there.clone() } else { cores.into_iter().map(|id| CoreId { id }).collect() };
    if cores.is_empty() {
        return Err(BuildError::Invalid("workers cannot be pinned: the system does not say which cores there are"));
    }
    if cores.iter().any(|core| !there.contains(core)) {
        return Err(BuildError::Invalid("workers cannot be pinned to a core that this program may not use"));
    }
    Ok(Arc::new(move |worker| {
        // If the system ignores or refuses the pinning, the worker can run on any core.
        let _pinned = core_affinity::set_for_current(cores[worker % cores.len()]);
    }))
}

//! Which core each worker stays on. The system is asked for its cores, and told, by a crate, for that takes unsafe code.

use core_affinity::CoreId;

use crate::platform::sync::Arc;
use crate::process::error::BuildError;

/// Pins the thread that calls it to the core of the worker with this number.
pub(crate) type Pin = Arc<dyn Fn(usize) + Send + Sync>;

/// Has worker n stay on the n-th of these cores, and begins again where there are more workers; none means all that this
/// program may use.
///
/// # Errors
/// One of them is not there, or the system does not say which are.
pub(crate) fn pin_to(cores: Vec<usize>) -> Result<Pin, BuildError> {
    let there = core_affinity::get_core_ids().unwrap_or_default();
    let cores: Vec<CoreId> =
        if cores.is_empty() { there.clone() } else { cores.into_iter().map(|id| CoreId { id }).collect() };
    if cores.is_empty() {
        return Err(BuildError::Invalid("workers can't be pinned: the system does not say which cores there are"));
    }
    if cores.iter().any(|core| !there.contains(core)) {
        return Err(BuildError::Invalid("workers can't be pinned to a core that this program may not use"));
    }
    Ok(Arc::new(move |worker| {
        // Where the system takes it for a hint, or refuses, the worker runs anywhere.
        let _pinned = core_affinity::set_for_current(cores[worker % cores.len()]);
    }))
}

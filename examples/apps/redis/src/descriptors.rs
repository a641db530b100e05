//! The limit of file descriptors of the process. Each client needs one descriptor. If no descriptor is free, the server
//! cannot accept a further client. Therefore the server also cannot send an error to this client.

/// Number of descriptors that are not for clients. The server needs about a dozen descriptors for its files, its poller
/// and its listener. The other descriptors are for clients above the maximum number of clients: the server sends an
/// error to these clients. Redis has the same reserve.
#[cfg(unix)]
const RESERVE: u64 = 32;

/// Returns the maximum number of clients for which the process has descriptors, but at most `wanted`. If the limit is
/// too low for `wanted` clients, the function first raises the limit as far as the system permits.
#[cfg(unix)]
pub(crate) fn most_clients(wanted: usize) -> Result<usize, String> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let needed = RESERVE.saturating_add(wanted as u64);
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        let raised = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
        // If the system refuses the new limit, the old limit stays.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..limit });
    }
    let Some(limit) = getrlimit(Resource::Nofile).current else { return Ok(wanted) };
    match usize::try_from(limit.saturating_sub(RESERVE)) {
        Ok(0) => Err(format!("the limit of file descriptors is {limit}, but it must be above {RESERVE}")),
        clients => Ok(clients.map_or(wanted, |clients| clients.min(wanted))),
    }
}

/// Returns `wanted`, because the systems other than Unix have no limit of file descriptors.
#[cfg(not(unix))]
pub(crate) fn most_clients(wanted: usize) -> Result<usize, String> {
    Ok(wanted)
}

//! Conversion of the addresses of Unix sockets. The standard library and the crate `socket2` have separate types.

use std::io;
#[cfg(target_os = "android")]
use std::os::android::net::SocketAddrExt;
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::path::Path;

use socket2::SockAddr;

/// Converts an address of the standard library.
///
/// # Errors
/// Returns an error if the path is too long for a socket address.
pub(crate) fn system_address(addr: &SocketAddr) -> io::Result<SockAddr> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Some(name) = addr.as_abstract_name() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;

        return SockAddr::unix(OsStr::from_bytes(&[b"\0", name].concat()));
    }
    // An unnamed address has an empty path. The system refuses an operation that needs a name.
    SockAddr::unix(addr.as_pathname().unwrap_or(Path::new("")))
}

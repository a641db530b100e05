//! Resolution of names to addresses, on the blocking pool.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs as _};
use std::vec;

use crate::host::Host;
use crate::net::backend::Backend;
use crate::process::failure::Failure;

mod sealed {
    use std::net::SocketAddr;

    /// An address, or a name that must be looked up.
    #[derive(Debug, Clone)]
    pub enum Unresolved {
        Addresses(Vec<SocketAddr>),
        Name(String, u16),
        Invalid(String),
    }

    pub trait Resolve {
        fn unresolved(&self) -> Unresolved;

        /// Returns the address, if each value of this type contains exactly one address. This function does not
        /// allocate.
        fn address(&self) -> Option<SocketAddr> {
            None
        }
    }
}

pub(crate) use sealed::Unresolved;

/// A type whose values name one or more socket addresses. Each type for which the standard library implements
/// [`std::net::ToSocketAddrs`] implements this trait. `Vec<SocketAddr>` also implements this trait.
///
/// Some texts that the standard library accepts are invalid here. In a text, an IPv6 address needs brackets: `[::1]:80`
/// is valid. The standard library also accepts `::1:80`.
///
/// A name is looked up on the blocking pool of the runtime, with the resolver of the system. An IP address needs no
/// lookup, even if the address is given as text.
pub trait ToSocketAddrs: sealed::Resolve {}

impl<T: sealed::Resolve + ?Sized> ToSocketAddrs for T {}

macro_rules! addresses {
    ($($type:ty),*) => {
        $(impl sealed::Resolve for $type {
            fn unresolved(&self) -> Unresolved {
                Unresolved::Addresses(vec![SocketAddr::from(*self)])
            }

            fn address(&self) -> Option<SocketAddr> {
                Some(SocketAddr::from(*self))
            }
        })*
    };
}

addresses!(SocketAddr, SocketAddrV4, SocketAddrV6, (IpAddr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16));

impl sealed::Resolve for [SocketAddr] {
    fn unresolved(&self) -> Unresolved {
        Unresolved::Addresses(self.to_vec())
    }
}

impl sealed::Resolve for Vec<SocketAddr> {
    fn unresolved(&self) -> Unresolved {
        Unresolved::Addresses(self.clone())
    }
}

impl sealed::Resolve for (&str, u16) {
    fn unresolved(&self) -> Unresolved {
        match self.0.parse::<IpAddr>() {
            Ok(address) => Unresolved::Addresses(vec![SocketAddr::new(address, self.1)]),
            Err(_) => Unresolved::Name(self.0.to_owned(), self.1),
        }
    }
}

impl sealed::Resolve for (String, u16) {
    fn unresolved(&self) -> Unresolved {
        (self.0.as_str(), self.1).unresolved()
    }
}

impl sealed::Resolve for str {
    fn unresolved(&self) -> Unresolved {
        if let Ok(address) = self.parse() {
            return Unresolved::Addresses(vec![address]);
        }
        match self.rsplit_once(':').and_then(|(name, port)| Some((name, port.parse().ok()?))) {
            // A name contains no colon. An IPv6 address with a port has brackets around the address.
            Some((name, port)) if !name.contains(':') => Unresolved::Name(name.to_owned(), port),
            _ => Unresolved::Invalid(self.to_owned()),
        }
    }
}

impl sealed::Resolve for String {
    fn unresolved(&self) -> Unresolved {
        self.as_str().unresolved()
    }
}

impl<T: sealed::Resolve + ?Sized> sealed::Resolve for &T {
    fn unresolved(&self) -> Unresolved {
        (**self).unresolved()
    }

    fn address(&self) -> Option<SocketAddr> {
        (**self).address()
    }
}

/// Looks up the addresses of a name, on the blocking pool of the calling thread's runtime. The result is not empty.
///
/// # Errors
/// Returns the error of the resolver, or an error if the name has no address. Returns an error if the text is neither a
/// name with a port nor an address with a port. A lookup on the blocking pool fails if the thread has no runtime, if
/// the runtime is a simulation, or if the pool refuses the lookup.
///
/// # Cancel safety
/// Cancel safe. If the future is dropped, a lookup that has begun continues on the blocking pool, and the result of the
/// lookup is dropped.
pub async fn lookup_host(addr: impl ToSocketAddrs) -> io::Result<vec::IntoIter<SocketAddr>> {
    Ok(resolve(addr.unresolved(), || Backend::current()?.host()).await?.into_iter())
}

/// Does the same as [`lookup_host`], on the blocking pool of the runtime of `host`. Therefore the thread needs no
/// runtime.
///
/// # Errors
/// Fails under the same conditions as [`lookup_host`].
///
/// # Cancel safety
/// Cancel safe, like [`lookup_host`].
pub async fn lookup_host_in(host: &Host, addr: impl ToSocketAddrs) -> io::Result<vec::IntoIter<SocketAddr>> {
    Ok(resolve(addr.unresolved(), || Backend::of(host)?.host()).await?.into_iter())
}

/// Resolves an address. `host` returns the host whose blocking pool looks up the name.
pub(crate) async fn resolve(
    unresolved: Unresolved,
    host: impl FnOnce() -> io::Result<Host>,
) -> io::Result<Vec<SocketAddr>> {
    let found = match unresolved {
        Unresolved::Addresses(addresses) => addresses,
        Unresolved::Name(name, port) => {
            let lookup = host()?.spawn_blocking(move || {
                let found = (name.as_str(), port).to_socket_addrs().map(Iterator::collect);
                found.map_err(|error| io::Error::new(error.kind(), format!("cannot look up `{name}`: {error}")))
            });
            lookup.await.map_err(refused)??
        }
        Unresolved::Invalid(text) => return Err(io::Error::new(io::ErrorKind::InvalidInput, defect(&text))),
    };
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name or the list has no address"));
    }
    Ok(found)
}

/// Describes why a text is not a socket address.
fn defect(text: &str) -> String {
    if text.contains("://") {
        return format!(
            "`{text}` is a URL, not a socket address: pass only the host and the port, as in `localhost:80`"
        );
    }
    match text.rsplit_once(':') {
        // A colon before the last colon belongs to an IPv6 address.
        Some((name, port)) if !port.is_empty() && (!name.contains(':') || name.ends_with(']')) => {
            format!("`{text}` is not a socket address: the port `{port}` is not a number up to 65535")
        }
        _ => format!(
            "`{text}` is not a socket address: it must end with a colon and a port number, and an IPv6 address needs \
             brackets"
        ),
    }
}

/// Converts the failure of a lookup on the blocking pool to an `io::Error`. After the end of the runtime, a lookup
/// fails with `NotConnected`, like each socket operation that could wait.
fn refused(failure: Failure) -> io::Error {
    let kind = if failure == Failure::ShutDown { io::ErrorKind::NotConnected } else { io::ErrorKind::Other };
    io::Error::new(kind, failure)
}

/// Returns the socket address in `addr`. Returns `None` if a value of this type may contain no address, or several
/// addresses.
pub(crate) fn address(addr: &impl ToSocketAddrs) -> Option<SocketAddr> {
    addr.address()
}

/// Returns the unresolved form of an address.
pub(crate) fn unresolved(addr: &impl ToSocketAddrs) -> Unresolved {
    addr.unresolved()
}

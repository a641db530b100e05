//! Gives other crates access to the descriptor of a socket. On Windows, the descriptor is a socket handle.

/// Implements the traits of the standard library that give access to the descriptor of a socket. The arguments after
/// the type are the fields and the methods that lead from `self` to the socket of the system.
macro_rules! lends_handle {
    ($type:ty, $($inner:tt)+) => {
        #[cfg(unix)]
        impl std::os::fd::AsFd for $type {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.$($inner)+.as_fd()
            }
        }

        #[cfg(unix)]
        impl std::os::fd::AsRawFd for $type {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                self.$($inner)+.as_raw_fd()
            }
        }

        #[cfg(windows)]
        impl std::os::windows::io::AsSocket for $type {
            fn as_socket(&self) -> std::os::windows::io::BorrowedSocket<'_> {
                self.$($inner)+.as_socket()
            }
        }

        #[cfg(windows)]
        impl std::os::windows::io::AsRawSocket for $type {
            fn as_raw_socket(&self) -> std::os::windows::io::RawSocket {
                self.$($inner)+.as_raw_socket()
            }
        }
    };
}

pub(crate) use lends_handle;

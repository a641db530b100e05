//! Unix domain sockets. This module exports the halves of a [`UnixStream`](crate::net::UnixStream), and
//! the stream of the connections of a [`UnixListener`](crate::net::UnixListener).

pub(crate) mod address;
pub(crate) mod datagram;
pub(crate) mod listener;
pub(crate) mod pauses;
pub(crate) mod split;
pub(crate) mod stream;

pub use crate::net::unix::listener::Incoming;
pub use crate::net::unix::split::{OwnedReadHalf, OwnedWriteHalf};

//! Unix domain sockets. This module exports the halves of a [`UnixStream`](crate::net::UnixStream).

pub(crate) mod datagram;
pub(crate) mod listener;
pub(crate) mod split;
pub(crate) mod stream;

pub use crate::net::unix::split::{OwnedReadHalf, OwnedWriteHalf};

//! Unix domain sockets.

pub(crate) mod datagram;
pub(crate) mod listener;
pub(crate) mod stream;

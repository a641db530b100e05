//! TCP: listeners, streams, and sockets with options.

pub(crate) mod listener;
pub(crate) mod socket;
pub(crate) mod split;
pub(crate) mod stream;

//! The halves of a TCP stream.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::io::{AsyncRead, AsyncWrite};

use crate::net::halves::halves;
use crate::net::tcp::stream::TcpStream;
use crate::platform::sync::Arc;

halves!(TcpStream, SocketAddr);

impl OwnedReadHalf {
    /// Reads bytes, but leaves the bytes in the socket: see [`TcpStream::peek`].
    ///
    /// # Errors
    /// Fails under the same conditions as [`TcpStream::peek`].
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.peek(buf).await
    }
}

//! The read half and the write half of a stream. Each of two processes can use one of the halves. The halves of a TCP
//! stream and the halves of a Unix stream have the same functions, but are separate types, as in tokio.

/// Defines the halves of the type `$stream`, whose addresses have the type `$address`.
macro_rules! halves {
    ($stream:ident, $address:ty) => {
        #[doc = concat!("The read half of a [`", stringify!($stream), "`].")]
        ///
        /// The method `into_split` of the stream makes the two halves.
        ///
        /// Dropping the read half has no effect on the connection while the write half exists.
        #[derive(Debug)]
        pub struct OwnedReadHalf(Arc<$stream>);

        #[doc = concat!("The write half of a [`", stringify!($stream), "`].")]
        ///
        /// The method `into_split` of the stream makes the two halves.
        ///
        /// Dropping the write half sends the end of the stream to the peer. After this drop, the read half can still
        /// receive.
        #[derive(Debug)]
        pub struct OwnedWriteHalf {
            /// `None` after `reunite` or `forget`.
            stream: Option<Arc<$stream>>,
        }

        pub(crate) fn into_halves(stream: $stream) -> (OwnedReadHalf, OwnedWriteHalf) {
            let stream = Arc::new(stream);
            (OwnedReadHalf(Arc::clone(&stream)), OwnedWriteHalf { stream: Some(stream) })
        }

        impl OwnedReadHalf {
            /// Joins the two halves of a stream, and returns the stream.
            ///
            /// # Errors
            /// Returns both halves if they belong to different streams.
            pub fn reunite(self, mut write: OwnedWriteHalf) -> Result<$stream, (Self, OwnedWriteHalf)> {
                match write.stream.take() {
                    Some(stream) if Arc::ptr_eq(&stream, &self.0) => {
                        drop(stream);
                        Ok(Arc::into_inner(self.0).expect("these are both halves"))
                    }
                    stream => {
                        write.stream = stream;
                        Err((self, write))
                    }
                }
            }

            /// Returns the address of the peer.
            ///
            /// # Errors
            /// Returns the error of the system.
            pub fn peer_addr(&self) -> io::Result<$address> {
                self.0.peer_addr()
            }

            /// Returns the local address.
            ///
            /// # Errors
            /// Returns the error of the system.
            pub fn local_addr(&self) -> io::Result<$address> {
                self.0.local_addr()
            }

            /// Waits until the stream can be read: see `readable` of the stream.
            ///
            /// # Errors
            /// Fails under the same conditions as `readable` of the stream.
            pub async fn readable(&self) -> io::Result<()> {
                self.0.readable().await
            }

            /// Reads without waiting: see `try_read` of the stream.
            ///
            /// # Errors
            /// Fails under the same conditions as `try_read` of the stream.
            pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
                self.0.try_read(buf)
            }

            /// Reads into several buffers without waiting: see `try_read_vectored` of the stream.
            ///
            /// # Errors
            /// Fails under the same conditions as `try_read_vectored` of the stream.
            pub fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.0.try_read_vectored(bufs)
            }
        }

        impl OwnedWriteHalf {
            fn stream(&self) -> &$stream {
                self.stream.as_deref().expect("only `reunite` and `forget` take it")
            }

            /// Drops the write half without sending the end of the stream to the peer, as in tokio. The read half keeps
            /// the stream open and can still receive. When the read half is also dropped, the stream is closed.
            pub fn forget(mut self) {
                drop(self.stream.take());
            }

            /// Returns the address of the peer.
            ///
            /// # Errors
            /// Returns the error of the system.
            pub fn peer_addr(&self) -> io::Result<$address> {
                self.stream().peer_addr()
            }

            /// Returns the local address.
            ///
            /// # Errors
            /// Returns the error of the system.
            pub fn local_addr(&self) -> io::Result<$address> {
                self.stream().local_addr()
            }

            /// Waits until the stream can be written: see `writable` of the stream.
            ///
            /// # Errors
            /// Fails under the same conditions as `writable` of the stream.
            pub async fn writable(&self) -> io::Result<()> {
                self.stream().writable().await
            }

            /// Writes without waiting: see `try_write` of the stream.
            ///
            /// # Errors
            /// Fails under the same conditions as `try_write` of the stream.
            pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
                self.stream().try_write(buf)
            }

            /// Writes from several buffers without waiting: see `try_write_vectored` of the stream.
            ///
            /// # Errors
            /// Fails under the same conditions as `try_write_vectored` of the stream.
            pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                self.stream().try_write_vectored(bufs)
            }
        }

        impl Drop for OwnedWriteHalf {
            fn drop(&mut self) {
                if let Some(stream) = &self.stream {
                    // An error means that the connection is already closed.
                    let _ = stream.shutdown(Shutdown::Write);
                }
            }
        }

        /// Returns the whole stream. For example, the caller can then set options of the stream.
        impl AsRef<$stream> for OwnedReadHalf {
            fn as_ref(&self) -> &$stream {
                &self.0
            }
        }

        /// Returns the whole stream. For example, the caller can then set options of the stream.
        impl AsRef<$stream> for OwnedWriteHalf {
            fn as_ref(&self) -> &$stream {
                self.stream()
            }
        }

        impl AsyncRead for OwnedReadHalf {
            fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
                Pin::new(&mut &*self.0).poll_read(cx, buf)
            }

            fn poll_read_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &mut [IoSliceMut<'_>],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut &*self.0).poll_read_vectored(cx, bufs)
            }
        }

        impl AsyncWrite for OwnedWriteHalf {
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.stream()).poll_write(cx, buf)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.stream()).poll_write_vectored(cx, bufs)
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.stream()).poll_flush(cx)
            }

            fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.stream()).poll_close(cx)
            }
        }
    };
}

pub(crate) use halves;

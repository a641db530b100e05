//! Transfers of no bytes, and transfers of several buffers in one call.

use std::io::{ErrorKind, IoSlice};

use futures::AsyncWriteExt;

use crate::{on_two, pair, poll_once};

/// Checks that writes of no bytes return 0 immediately, although the stream is full.
macro_rules! check_empty_writes {
    ($stream:expr) => {
        let stream = $stream;
        let full = loop {
            match stream.try_write(&[0; 64 << 10]) {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        let empty = [IoSlice::new(&[]), IoSlice::new(&[])];
        assert!(poll_once((&*stream).write(b"x")).is_none());
        assert_eq!(poll_once((&*stream).write(&[])).expect("an empty write does not wait")?, 0);
        assert_eq!(poll_once((&*stream).write_vectored(&empty)).expect("an empty write does not wait")?, 0);
        assert_eq!(stream.try_write(&[])?, 0);
        assert_eq!(stream.try_write_vectored(&empty)?, 0);
    };
}

/// 12.2a: a write of no bytes to a full stream returns 0 immediately, as in the standard library.
#[test]
fn an_empty_write_to_a_full_stream_does_not_wait() {
    on_two(async |_| {
        let (one, _other) = pair().await?;
        check_empty_writes!(&one);
        #[cfg(unix)]
        {
            let (one, _other) = procession::net::UnixStream::pair()?;
            check_empty_writes!(&one);
        }
        Ok(())
    });
}

/// 12.2b: a descriptor writes several buffers in one call, and reads into several buffers in one call.
#[test]
#[cfg(unix)]
fn a_descriptor_transfers_several_buffers_in_one_call() {
    use futures::AsyncReadExt;
    use procession::net::Async;
    use std::io::IoSliceMut;

    on_two(async |_| {
        let (one, other) = std::os::unix::net::UnixStream::pair()?;
        let (mut one, mut other) = (Async::new(one)?, Async::new(other)?);
        let parts = [IoSlice::new(b"ab"), IoSlice::new(b"cd")];
        for is_shared in [true, false] {
            let (mut head, mut tail) = ([0; 2], [0; 2]);
            let mut room = [IoSliceMut::new(&mut head), IoSliceMut::new(&mut tail)];
            let (written, read) = if is_shared {
                ((&one).write_vectored(&parts).await?, (&other).read_vectored(&mut room).await?)
            } else {
                (one.write_vectored(&parts).await?, other.read_vectored(&mut room).await?)
            };
            assert_eq!((written, read, head, tail), (4, 4, *b"ab", *b"cd"));
        }
        Ok(())
    });
}

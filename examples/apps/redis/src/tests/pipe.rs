//! A pair of connected sockets in memory.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures::{AsyncRead, AsyncWrite};

/// One direction of a connection.
#[derive(Default)]
struct Direction {
    bytes: VecDeque<u8>,
    capacity: usize,
    /// True if the writer has closed this direction. The reader gets the end of the stream after the last byte.
    is_ended: bool,
    /// True if the reader was dropped. A write then fails.
    is_broken: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Direction {
    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }
}

/// One end of a connection. The drop of this value closes both directions.
pub(super) struct Pipe {
    input: Arc<Mutex<Direction>>,
    output: Arc<Mutex<Direction>>,
}

/// Makes a connection that holds this number of bytes in each direction.
pub(super) fn pipe(capacity: usize) -> (Pipe, Pipe) {
    let direction = || Arc::new(Mutex::new(Direction { capacity, ..Direction::default() }));
    let (one, other) = (direction(), direction());
    (Pipe { input: one.clone(), output: other.clone() }, Pipe { input: other, output: one })
}

impl Pipe {
    fn end(&self) {
        let mut output = self.output.lock().expect("no panic");
        output.is_ended = true;
        output.wake();
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.end();
        let mut input = self.input.lock().expect("no panic");
        input.is_broken = true;
        input.wake();
    }
}

impl AsyncRead for Pipe {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, space: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut input = self.input.lock().expect("no panic");
        if input.bytes.is_empty() && !input.is_ended {
            input.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = space.len().min(input.bytes.len());
        for (place, byte) in space.iter_mut().zip(input.bytes.drain(..count)) {
            *place = byte;
        }
        input.wake();
        Poll::Ready(Ok(count))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut output = self.output.lock().expect("no panic");
        if output.is_broken || output.is_ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let count = bytes.len().min(output.capacity - output.bytes.len());
        if count == 0 {
            output.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        output.bytes.extend(&bytes[..count]);
        output.wake();
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end();
        Poll::Ready(Ok(()))
    }
}

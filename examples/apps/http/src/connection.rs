//! The process of one HTTP connection.

use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context as Cx, Poll};
use std::time::Duration;

use futures::future::{Either, select};
use futures::io::{AsyncRead, AsyncWrite};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use procession::future::Sleep;
use procession::net::TcpStream;
use procession::{Context, SelfHandle};
use smol_hyper::rt::FuturesIo;

use crate::Config;
use crate::pages::answer;
use crate::timer::ProcessTimer;

/// Upper bound of [`Config::idle`]. hyper adds this time to the present time, and panics if the sum is too large.
const LONGEST_IDLE: Duration = Duration::from_secs(86_400);

/// Serves one connection. If this process is cancelled, the process answers the request in flight and then closes the
/// connection. For the end of this request, the process waits at most for the time [`Config::drain`]. A request whose
/// head is not complete is not in flight.
///
/// Errors of the connection, such as a reset or a malformed request, are the fault of the peer. Therefore this function
/// does not report these errors.
pub(crate) async fn connection(ctx: Context, stream: TcpStream, config: Config) {
    // An error means that the peer has already closed the connection.
    let _ = stream.set_nodelay(true);
    let (me, config) = (&*ctx, &config);
    // `is_answering` is true while the handler of a request runs. `is_writing` is true while a response is partly
    // written.
    let (is_answering, is_writing) = (AtomicBool::new(false), AtomicBool::new(false));
    let stream = WriteTimeout { stream, me: me.clone(), config: config.clone(), stall: None, is_writing: &is_writing };
    let service = service_fn(async |request| {
        is_answering.store(true, Relaxed);
        let response = answer(me, config, request).await;
        is_answering.store(false, Relaxed);
        response
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(ProcessTimer(me.clone()))
            .header_read_timeout(config.idle.min(LONGEST_IDLE))
            .max_header_size(config.head_size)
            .max_headers(config.headers)
            .serve_connection(FuturesIo::new(stream), service)
    );
    if let Either::Right(_) = select(connection.as_mut(), me.cancelled()).await {
        // An idle connection closes immediately. If a request is in flight, the response to this request has the header
        // `connection: close`.
        connection.as_mut().graceful_shutdown();
        // hyper would also wait for a request whose head is not complete.
        if is_answering.load(Relaxed) || is_writing.load(Relaxed) {
            // A client can delay the end of its request body. Because of this time limit, the process drops the
            // connection before the runtime has to kill the process.
            let _ = me.timeout(config.drain, connection).await;
        }
    }
}

/// Stream of a connection. A write fails if the peer reads no byte for the duration `write_stall`.
struct WriteTimeout<'a> {
    stream: TcpStream,
    me: SelfHandle,
    config: Config,
    /// Timer of the write that is waiting. `None` if no write is waiting.
    stall: Option<Sleep>,
    /// True after a write, until the next flush is complete.
    is_writing: &'a AtomicBool,
}

impl WriteTimeout<'_> {
    /// Limits the duration of a write. `polled` is the result of the last poll of this write.
    fn limited(&mut self, cx: &mut Cx<'_>, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.is_writing.store(true, Relaxed);
        if polled.is_ready() {
            self.stall = None;
            return polled;
        }
        let stall = self.stall.get_or_insert_with(|| self.me.sleep(self.config.write_stall));
        match Pin::new(stall).poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for WriteTimeout<'_> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Cx<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for WriteTimeout<'_> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Cx<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.limited(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Cx<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.limited(cx, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        if polled.is_ready() {
            self.is_writing.store(false, Relaxed);
        }
        polled
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(cx)
    }
}

//! The HTTP server with hyper. The runtimes differ only in their sockets and timers.

use std::convert::Infallible;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::rt::{Read, Timer, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};

use crate::row::HELLO;

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from_static(HELLO.as_bytes()))))
}

/// Serves one connection. hyper uses the timer for its default time limit of a request head, which is 30 s.
pub(super) async fn serve_http(io: impl Read + Write + Unpin, timer: impl Timer + Send + Sync + 'static) {
    // An error means that the client has closed the connection.
    let _ = http1::Builder::new().timer(timer).serve_connection(io, service_fn(hello)).await;
}

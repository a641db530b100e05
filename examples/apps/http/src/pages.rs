//! The pages of the server.

use std::convert::Infallible;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use procession::{Context, Event, Name, Pid, Reply, SelfHandle};

use crate::Config;

/// Name of the process that counts visits.
pub const VISITS: Name<Visit> = Name::new("visits");

/// Request for the number of visits.
#[derive(Debug)]
pub struct Visit(pub Reply<u64>);

/// Process that counts the visits. Each message counts as one visit, and the reply to the message is the new number of
/// visits.
///
/// A shutdown cancels this process together with the connections, but the requests in flight still need this process.
/// Therefore the process ignores the cancellation, and exits when the process `server` has exited.
pub(crate) async fn visits(mut ctx: Context<Visit>, server: Pid) {
    ctx.monitor(server);
    let mut count = 0;
    loop {
        match ctx.event().await {
            Event::Message(Visit(reply)) => {
                count += 1;
                reply.send(count);
            }
            Event::Down { .. } => return,
            _ => {}
        }
    }
}

/// Delay of the response of the page `/wait`.
const WAIT: Duration = Duration::from_secs(1);

/// Path of the page for Prometheus.
const METRICS: &str = "/metrics";

type Page = Result<Bytes, StatusCode>;

/// Answers one request.
pub(crate) async fn answer(
    me: &SelfHandle,
    config: &Config,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_metrics = request.uri().path() == METRICS;
    let allowed = allowed(request.uri().path());
    // hyper does not send the body of the response to a request with the method `HEAD`.
    let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
    let page = match (method, request.uri().path()) {
        (&Method::GET, "/") => Ok(Bytes::from_static(b"hello\n")),
        (&Method::GET, "/visits") => visit(me).await,
        // The metrics of the runtime for Prometheus. The snapshot takes about 50 ns for each process.
        (&Method::GET, METRICS) => Ok(Bytes::from(me.host().metrics().to_prometheus())),
        (&Method::GET, "/wait") => {
            me.sleep(WAIT).await;
            Ok(Bytes::from_static(b"waited\n"))
        }
        (&Method::POST, "/echo") => echo(me, config, request.into_body()).await,
        _ if allowed.is_some() => Err(StatusCode::METHOD_NOT_ALLOWED),
        _ => Err(StatusCode::NOT_FOUND),
    };
    let content_type = if is_metrics { "text/plain; version=0.0.4" } else { "text/plain" };
    let (status, body) = match page {
        Ok(body) => (StatusCode::OK, body),
        Err(status) => (status, Bytes::from(format!("{status}\n"))),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Some(allowed) = allowed.filter(|_| status == StatusCode::METHOD_NOT_ALLOWED) {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    }
    Ok(response)
}

/// Returns the methods of a page, or `None` if the page does not exist.
fn allowed(path: &str) -> Option<&'static str> {
    match path {
        "/" | "/visits" | METRICS | "/wait" => Some("GET, HEAD"),
        "/echo" => Some("POST"),
        _ => None,
    }
}

/// Counts a visit: calls the process [`VISITS`], and returns the answer of this process as text.
async fn visit(me: &SelfHandle) -> Page {
    let count = me.call(VISITS, Visit).timeout(Duration::from_secs(1)).await;
    count.map(|count| Bytes::from(format!("visit {count}\n"))).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)
}

/// Returns the body of the request.
async fn echo(me: &SelfHandle, config: &Config, body: Incoming) -> Page {
    // The check refuses a body whose announced length is too large. If the client announces no length, `Limited` counts
    // the bytes.
    if body.size_hint().lower() > config.body_size as u64 {
        return Err(StatusCode::PAYLOAD_TOO_LARGE);
    }
    match me.timeout(config.body_time, Limited::new(body, config.body_size).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(StatusCode::PAYLOAD_TOO_LARGE),
        Ok(Err(_)) => Err(StatusCode::BAD_REQUEST),
        Err(_) => Err(StatusCode::REQUEST_TIMEOUT),
    }
}

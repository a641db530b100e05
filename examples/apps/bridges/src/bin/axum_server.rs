//! The request handlers of axum call a process.
//!
//!     cargo run -p bridges --bin axum_server
//!
//! axum and its sockets run on tokio. The processes run on the workers of a procession runtime. The state of the
//! application is a [`Host`], with which each request handler can call processes.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use procession::{Context, Exit, Host, Name, Reply, Result, Runtime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

enum Msg {
    Hit(Reply<u64>),
}

const HITS: Name<Msg> = Name::new("hits");

/// Counts the requests.
async fn hits(mut ctx: Context<Msg>) -> Result<(), Exit> {
    let mut count = 0;
    loop {
        let Msg::Hit(reply) = ctx.receive().await?;
        count += 1;
        reply.send(count);
    }
}

async fn hit(State(host): State<Host>) -> Result<String, StatusCode> {
    match host.call(HITS, Msg::Hit).timeout(Duration::from_secs(1)).await {
        Ok(count) => Ok(format!("hit {count}")),
        Err(_) => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}

/// Serves the requests until `stop` completes, and then shuts the runtime down. The server stops before the runtime.
/// Therefore no request reaches a runtime that has shut down.
async fn serve(rt: Runtime, listener: TcpListener, stop: impl Future<Output = ()> + Send + 'static) -> Result {
    let app = Router::new().route("/", get(hit)).with_state(rt.host().clone());
    axum::serve(listener, app).with_graceful_shutdown(stop).await?;
    let report = rt.shutdown(Duration::from_secs(10)).await;
    assert!(report.left.is_empty(), "{report:?}");
    Ok(())
}

/// Requests the page. Returns the status line and the body.
async fn page(address: SocketAddr) -> Result<(String, String)> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("the answer has no head")?;
    Ok((head.lines().next().unwrap_or_default().to_owned(), body.to_owned()))
}

/// Starts the server, requests the page twice, and stops the server. The process exits before the second request.
async fn answers() -> Result<[(String, String); 2]> {
    let rt = Runtime::new()?;
    let hits = rt.process().name(HITS).spawn(hits)?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    // In a real server, the future that stops the server awaits `tokio::signal::ctrl_c()`.
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(serve(rt, listener, async { stopped.await.unwrap_or(()) }));
    let with_process = page(address).await?;
    hits.abort();
    assert_eq!(hits.await, Err(Exit::Killed));
    let without_process = page(address).await?;
    drop(stop);
    server.await??;
    Ok([with_process, without_process])
}

#[tokio::main]
async fn main() -> Result {
    for (status, body) in answers().await? {
        println!("{status}: {body}");
    }
    Ok(())
}

#[tokio::test]
async fn a_request_handler_calls_a_process() -> Result {
    let [(status, body), (other_status, _)] = answers().await?;
    assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 200 OK", "hit 1"));
    assert_eq!(other_status, "HTTP/1.1 503 Service Unavailable");
    Ok(())
}

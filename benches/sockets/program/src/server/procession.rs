//! The server on procession, with one process for each connection.

use std::net::Ipv4Addr;
use std::pin::Pin;
use std::task::{Context as Cx, Poll};
use std::time::{Duration, Instant};

use futures::{AsyncReadExt, AsyncWriteExt};
use hyper::rt::{Sleep, Timer};
use procession::net::{TcpListener, TcpStream};
use procession::{Context, Exit, Runtime, SelfHandle};
use smol_hyper::rt::FuturesIo;

use crate::row::Service;
use crate::server::http::serve_http;
use crate::server::{ECHO_BUFFER, REPLY, SINK_BUFFER, answer_driver};

async fn echo(mut stream: TcpStream) -> Result<(), Exit> {
    let mut buf = vec![0; ECHO_BUFFER];
    loop {
        let count = stream.read(&mut buf).await?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&buf[..count]).await?;
    }
}

async fn reply(mut stream: TcpStream) -> Result<(), Exit> {
    stream.write_all(&REPLY).await?;
    Ok(())
}

async fn sink(mut stream: TcpStream) -> Result<(), Exit> {
    let (mut buf, mut total) = (vec![0; SINK_BUFFER], 0);
    loop {
        let count = stream.read(&mut buf).await?;
        if count == 0 {
            break;
        }
        total += count as u64;
    }
    stream.write_all(&total.to_le_bytes()).await?;
    Ok(())
}

/// Timers for hyper, as in the example `http` of procession.
struct ProcessTimer(SelfHandle);

struct ProcessSleep(procession::future::Sleep);

impl Future for ProcessSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl Sleep for ProcessSleep {}

impl Timer for ProcessTimer {
    fn sleep(&self, time: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(ProcessSleep(self.0.sleep(time)))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(deadline.saturating_duration_since(self.now()))
    }
}

async fn http(ctx: Context, stream: TcpStream) {
    serve_http(FuturesIo::new(stream), ProcessTimer(ctx.clone())).await;
}

async fn server(ctx: Context, listener: TcpListener, service: Service) -> Result<(), Exit> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        match service {
            Service::Echo => drop(ctx.spawn(move |_: Context| echo(stream))),
            Service::Reply => drop(ctx.spawn(move |_: Context| reply(stream))),
            Service::Sink => drop(ctx.spawn(move |_: Context| sink(stream))),
            Service::Http => drop(ctx.spawn(move |ctx: Context| http(ctx, stream))),
        }
    }
}

/// Starts the server. Returns the runtime and the port.
fn start(service: Service, workers: usize) -> (Runtime, u16) {
    let runtime = Runtime::builder().workers(workers).build().expect("the threads can be started");
    let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).expect("a port is free");
    let port = listener.local_addr().expect("the listener is bound").port();
    runtime.spawn(move |ctx: Context| server(ctx, listener, service));
    (runtime, port)
}

pub(super) fn run(service: Service, workers: usize) {
    let (_runtime, port) = start(service, workers);
    answer_driver(port);
}

/// Runs the server without workers. A tokio runtime with one thread polls the future of `Runtime::run`, and the helper
/// thread of procession waits for the sockets.
pub(super) fn run_in_tokio(service: Service) {
    let (runtime, port) = start(service, 0);
    std::thread::spawn(move || {
        let tokio = tokio::runtime::Builder::new_current_thread().build().expect("tokio can be started");
        tokio.block_on(runtime.run(std::future::pending::<()>()));
    });
    answer_driver(port);
}

//! The server on tokio. The server uses the multi-thread runtime, with one task for each connection.

use std::io;
use std::net::Ipv4Addr;

use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::row::Service;
use crate::server::http::serve_http;
use crate::server::{ECHO_BUFFER, REPLY, SINK_BUFFER, answer_driver};

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buf = vec![0; ECHO_BUFFER];
    loop {
        let count = stream.read(&mut buf).await?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&buf[..count]).await?;
    }
}

async fn reply(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(&REPLY).await
}

async fn sink(mut stream: TcpStream) -> io::Result<()> {
    let (mut buf, mut total) = (vec![0; SINK_BUFFER], 0);
    loop {
        let count = stream.read(&mut buf).await?;
        if count == 0 {
            break;
        }
        total += count as u64;
    }
    stream.write_all(&total.to_le_bytes()).await
}

async fn server(listener: TcpListener, service: Service) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        match service {
            Service::Echo => drop(tokio::spawn(echo(stream))),
            Service::Reply => drop(tokio::spawn(reply(stream))),
            Service::Sink => drop(tokio::spawn(sink(stream))),
            Service::Http => drop(tokio::spawn(serve_http(TokioIo::new(stream), TokioTimer::new()))),
        }
    }
}

pub(super) fn run(service: Service, workers: usize) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(workers).enable_all().build().expect("the threads can be started");
    let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).expect("a port is free");
    let port = listener.local_addr().expect("the listener is bound").port();
    // The accept loop is a task, because the future of `block_on` does not run on a worker.
    runtime.spawn(server(listener, service));
    answer_driver(port);
}

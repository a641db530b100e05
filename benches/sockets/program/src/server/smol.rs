//! The server on smol. The server uses the global executor, with one task for each connection. The environment variable
//! `SMOL_THREADS` sets the number of threads.

use std::io;
use std::net::Ipv4Addr;

use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::net::{TcpListener, TcpStream};
use smol_hyper::rt::{FuturesIo, SmolTimer};

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
            Service::Echo => smol::spawn(echo(stream)).detach(),
            Service::Reply => smol::spawn(reply(stream)).detach(),
            Service::Sink => smol::spawn(sink(stream)).detach(),
            Service::Http => smol::spawn(serve_http(FuturesIo::new(stream), SmolTimer::new())).detach(),
        }
    }
}

pub(super) fn run(service: Service) {
    let listener = smol::block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).expect("a port is free");
    let port = listener.local_addr().expect("the listener is bound").port();
    smol::spawn(server(listener, service)).detach();
    answer_driver(port);
}

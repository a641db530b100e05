//! Uses code that is written for tokio's I/O traits with procession's sockets. The program does not use tokio's
//! runtime.
//!
//!     cargo run -p bridges --bin tokio_traits
//!
//! The method `compat` of tokio-util wraps a stream. The wrapper implements `tokio::io::AsyncRead` and
//! `tokio::io::AsyncWrite`.

use procession::net::{TcpListener, TcpStream};
use procession::{Context, Exit, Result, Runtime};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio_util::compat::FuturesAsyncReadCompatExt;

/// Sends back each line in upper case. This function uses only tokio's I/O traits.
async fn shout(stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<()> {
    let (read, mut write) = tokio::io::split(stream);
    let mut lines = BufReader::new(read).lines();
    while let Some(line) = lines.next_line().await? {
        write.write_all(format!("{}\n", line.to_uppercase()).as_bytes()).await?;
    }
    write.shutdown().await
}

async fn server(ctx: Context, listener: TcpListener) -> Result<(), Exit> {
    loop {
        let (stream, _) = listener.accept().await?;
        ctx.spawn(async move |_: Context| -> Result<(), Exit> { Ok(shout(stream.compat()).await?) });
    }
}

fn main() -> Result {
    let rt = Runtime::new()?;
    rt.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        rt.spawn(move |ctx: Context| server(ctx, listener));

        let mut stream = BufReader::new(TcpStream::connect(address).await?.compat());
        stream.write_all(b"hello\nbye\n").await?;
        stream.shutdown().await?;
        let mut answer = String::new();
        while stream.read_line(&mut answer).await? > 0 {}
        assert_eq!(answer, "HELLO\nBYE\n");
        println!("{answer}");
        Ok(())
    })
}

/// 12.2e: tokio-util adapts procession's streams to the traits of tokio.
#[test]
fn code_for_the_io_traits_of_tokio_runs_on_a_stream() -> Result {
    main()
}

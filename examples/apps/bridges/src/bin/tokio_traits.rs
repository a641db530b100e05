//! Code that is written for tokio's I/O traits runs on procession's sockets. The program does not use tokio's runtime.
//!
//!     cargo run -p bridges --bin tokio_traits
//!
//! The method `compat` of tokio-util wraps a stream. The wrapper implements `tokio::io::AsyncRead` and
//! `tokio::io::AsyncWrite`.

use std::time::Duration;

use procession::net::{TcpListener, TcpStream};
use procession::{Context, Exit, Result, Runtime};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio_util::compat::FuturesAsyncReadCompatExt;

/// Maximum length of a line in bytes. Without this limit, a client that sends no line break could fill the memory.
const LINE: u64 = 1_024;

/// Sends back each line, with its ASCII letters in upper case. This function uses only tokio's I/O traits.
async fn shout(stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<()> {
    let (read, mut write) = tokio::io::split(stream);
    let (mut lines, mut line) = (BufReader::new(read), Vec::new());
    while (&mut lines).take(LINE).read_until(b'\n', &mut line).await? > 0 {
        line.make_ascii_uppercase();
        write.write_all(&line).await?;
        line.clear();
    }
    write.shutdown().await
}

async fn server(ctx: Context, listener: TcpListener) -> Result<(), Exit> {
    loop {
        match ctx.run_until_cancelled(listener.accept()).await? {
            Ok((stream, _)) => {
                let shout = shout(stream.compat());
                ctx.spawn(async move |ctx: Context| Ok::<(), Exit>(ctx.run_until_cancelled(shout).await??));
            }
            // For example, `accept` fails if no file descriptor is free. The server continues after a pause.
            Err(_) => ctx.sleep(Duration::from_millis(100)).await,
        }
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

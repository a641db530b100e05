//! TLS on procession's sockets, with futures-rustls.
//!
//!     cargo run -p bridges --bin tls
//!
//! The program generates a certificate for `localhost`, and the client trusts only this certificate.

use std::sync::Arc;
use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt};
use futures_rustls::client::TlsStream;
use futures_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
use futures_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use futures_rustls::{TlsAcceptor, TlsConnector};
use procession::net::{TcpListener, TcpStream};
use procession::{BoxError, Context, Exit, Result, Runtime};

/// Longest time for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Sends back the bytes of one connection.
async fn echo(ctx: Context, stream: TcpStream, tls: TlsAcceptor) -> Result<(), Exit> {
    let accepted = ctx.run_until_cancelled(ctx.timeout(HANDSHAKE, tls.accept(stream))).await?;
    // If a client does not complete the handshake in time, the server disconnects the client. If the handshake
    // fails, the client is the cause. So the process of the connection ends without a failure.
    let Ok(Ok(mut stream)) = accepted else { return Ok(()) };
    let mut buf = vec![0; 8 << 10];
    loop {
        let count = ctx.run_until_cancelled(stream.read(&mut buf)).await??;
        if count == 0 {
            // The call of `close` informs the client that the server has ended the stream intentionally.
            return Ok(ctx.run_until_cancelled(stream.close()).await??);
        }
        ctx.run_until_cancelled(stream.write_all(&buf[..count])).await??;
        // The TLS stream contains a write buffer, so the program must flush the bytes.
        ctx.run_until_cancelled(stream.flush()).await??;
    }
}

async fn server(ctx: Context, listener: TcpListener, tls: TlsAcceptor) -> Result<(), Exit> {
    loop {
        match ctx.run_until_cancelled(listener.accept()).await? {
            Ok((stream, _)) => {
                let tls = tls.clone();
                ctx.spawn(move |ctx: Context| echo(ctx, stream, tls));
            }
            // For example, `accept` fails if no file descriptor is free. The server continues after a pause.
            Err(_) => ctx.sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Makes the configurations of the server and of the client.
fn configurations() -> Result<(ServerConfig, ClientConfig), BoxError> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone())?;
    let server = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key)?;
    let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok((server, client))
}

/// Starts a server, connects a client to this server, and returns the stream of the client.
async fn connected(rt: &Runtime) -> Result<TlsStream<TcpStream>> {
    let (server_config, client_config) = configurations()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let acceptor = TlsAcceptor::from(Arc::new(server_config));
    rt.spawn(move |ctx: Context| server(ctx, listener, acceptor));

    let connector = TlsConnector::from(Arc::new(client_config));
    let stream = TcpStream::connect(address).await?;
    Ok(connector.connect(ServerName::try_from("localhost")?, stream).await?)
}

fn main() -> Result {
    let rt = Runtime::new()?;
    rt.block_on(async {
        let mut stream = connected(&rt).await?;
        // The text is longer than one TLS record.
        let text = "hello over TLS\n".repeat(10_000);
        let (mut read, mut write) = (&mut stream).split();
        let writes = async {
            write.write_all(text.as_bytes()).await?;
            write.close().await
        };
        let mut answer = String::new();
        futures::try_join!(writes, read.read_to_string(&mut answer))?;
        assert!(answer == text, "{} bytes came back", answer.len());
        println!("{} bytes came back over TLS", answer.len());
        Ok(())
    })
}

#[test]
fn a_client_that_leaves_before_the_handshake_is_no_failure() -> Result {
    let rt = Runtime::new()?;
    rt.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        drop(TcpStream::connect(listener.local_addr()?).await?);
        let (stream, _) = listener.accept().await?;
        let acceptor = TlsAcceptor::from(Arc::new(configurations()?.0));
        assert_eq!(rt.spawn(|ctx: Context| echo(ctx, stream, acceptor)).await, Ok(()));
        Ok(())
    })
}

/// The client only sends, and reads nothing. When the buffers are full, the write of the server waits.
#[test]
fn a_shutdown_ends_a_connection_whose_client_does_not_read() -> Result {
    use futures::future::{Either, select};

    let rt = Runtime::new()?;
    rt.block_on(async {
        let mut stream = connected(&rt).await?;
        let wait = Duration::from_millis(200);
        while let Either::Left(_) = select(stream.write(&[0; 8 << 10]), rt.sleep(wait)).await {}
        let report = rt.shutdown(Duration::from_secs(5)).await;
        assert!(report.left.is_empty(), "{report:?}");
        Ok(())
    })
}

/// 12.2e: futures-rustls works on procession's streams without changes.
#[test]
fn bytes_come_back_over_tls() -> Result {
    main()
}

//! WebSockets on procession's sockets, with async-tungstenite.
//!
//!     cargo run -p bridges --bin websocket
//!
//! Each connection is a process. The process receives messages from its client and from its mailbox.

use std::time::Duration;

use async_tungstenite::tungstenite::error::ProtocolError;
use async_tungstenite::tungstenite::{Error, Message};
use async_tungstenite::{WebSocketStream, accept_async, client_async};
use futures::{StreamExt, select};
use procession::net::{TcpListener, TcpStream};
use procession::{Address, Context, Exit, MailboxCapacity, Result, Runtime};

/// Longest time for the handshake of a WebSocket.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Maximum number of unread messages of a connection. A sender can wait with `send_wait`, or drop the message.
const UNREAD: usize = 1_000;

/// Sends back the texts of one client. Sends the messages of the mailbox to this client.
async fn connection(mut ctx: Context<String>, stream: TcpStream) -> Result<(), Exit> {
    let accepted = ctx.run_until_cancelled(ctx.timeout(HANDSHAKE, accept_async(stream))).await?;
    // If a client does not complete the handshake in time, the server disconnects the client. If the handshake
    // fails, the client is the cause. So the process of the connection ends without a failure.
    let Ok(Ok(mut socket)) = accepted else { return Ok(()) };
    loop {
        let outgoing = select! {
            // Both futures are cancel safe, so no message is lost when `select!` drops one of the futures.
            message = ctx.receive() => Message::text(message?),
            incoming = socket.next() => match incoming {
                Some(Ok(text @ Message::Text(_))) => text,
                // The WebSocket stream itself answers a ping.
                Some(Ok(_)) => continue,
                None => return Ok(()),
                Some(Err(error)) if is_end(&error) => return Ok(()),
                Some(Err(error)) => return Err(Exit::failed(error)),
            },
        };
        match ctx.run_until_cancelled(socket.send(outgoing)).await? {
            // The next read returns the end of the connection.
            Err(error) if is_end(&error) => {}
            sent => sent.map_err(Exit::failed)?,
        }
    }
}

/// Returns true if the error means that the client has closed the connection. A client may close the connection without
/// a close frame, for example because the browser has exited.
fn is_end(error: &Error) -> bool {
    use ProtocolError::{ResetWithoutClosingHandshake, SendAfterClosing};
    let is_closed = matches!(error, Error::ConnectionClosed | Error::AlreadyClosed | Error::Io(_));
    is_closed || matches!(error, Error::Protocol(ResetWithoutClosingHandshake | SendAfterClosing))
}

/// Accepts clients. Passes the address of each connection to `connected`.
async fn server(ctx: Context, listener: TcpListener, connected: Address<Address<String>>) -> Result<(), Exit> {
    loop {
        match ctx.run_until_cancelled(listener.accept()).await? {
            Ok((stream, _)) => {
                let process = ctx.process().mailbox_capacity(MailboxCapacity::Reject(UNREAD));
                let handle = process.spawn(move |ctx| connection(ctx, stream))?;
                connected.send(handle.address())?;
            }
            // For example, `accept` fails if no file descriptor is free. The server continues after a pause.
            Err(_) => ctx.sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn next_text(socket: &mut WebSocketStream<TcpStream>) -> Result<String> {
    let message = socket.next().await.ok_or("the connection was closed")??;
    Ok(message.into_text()?.to_string())
}

fn main() -> Result {
    let rt = Runtime::new()?;
    rt.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (connected, mut connections) = rt.mailbox();
        rt.spawn(move |ctx: Context| server(ctx, listener, connected));

        for closes in [true, false] {
            let stream = TcpStream::connect(address).await?;
            let (mut socket, _) = client_async(format!("ws://{address}/"), stream).await?;
            socket.send(Message::text("hello")).await?;
            assert_eq!(next_text(&mut socket).await?, "hello");
            let connection = connections.receive().await?;
            connection.send("news".to_owned())?;
            assert_eq!(next_text(&mut socket).await?, "news");
            // The second client disconnects without a close frame.
            if closes {
                socket.close(None).await?;
            }
            drop(socket);
            assert!(connection.exited().await.is_normal());
        }
        // A client disconnects before the handshake.
        drop(TcpStream::connect(address).await?);
        assert!(connections.receive().await?.exited().await.is_normal());
        println!("the WebSocket has answered");
        Ok(())
    })
}

/// 12.2e: async-tungstenite works on procession's streams without changes.
#[test]
fn a_websocket_server_answers_each_text() -> Result {
    main()
}

//! WebSockets on procession's sockets, with async-tungstenite.
//!
//!     cargo run -p bridges --bin websocket
//!
//! Each connection is a process. The process receives messages from its client and from its mailbox.

use async_tungstenite::tungstenite::{Error, Message};
use async_tungstenite::{WebSocketStream, accept_async, client_async};
use futures::{StreamExt, select};
use procession::net::{TcpListener, TcpStream};
use procession::{Address, Context, Exit, Result, Runtime};

/// Sends back the texts of one client. Sends the messages of the mailbox to this client.
async fn connection(mut ctx: Context<String>, stream: TcpStream) -> Result<(), Exit> {
    let mut socket = accept_async(stream).await.map_err(Exit::failed)?;
    loop {
        let outgoing = select! {
            // Both futures are cancel safe, so no message is lost when `select!` drops one of the futures.
            message = ctx.receive() => Message::text(message?),
            incoming = socket.next() => match incoming {
                Some(Ok(text @ Message::Text(_))) => text,
                // The WebSocket stream itself answers a ping.
                Some(Ok(_)) => continue,
                // The client has closed the connection. A close frame may be missing.
                None | Some(Err(Error::ConnectionClosed | Error::Io(_))) => return Ok(()),
                Some(Err(error)) => return Err(Exit::failed(error)),
            },
        };
        socket.send(outgoing).await.map_err(Exit::failed)?;
    }
}

/// Accepts clients. Passes the address of each connection to `connected`.
async fn server(ctx: Context, listener: TcpListener, connected: Address<Address<String>>) -> Result<(), Exit> {
    loop {
        let (stream, _) = listener.accept().await?;
        let handle = ctx.spawn(move |ctx| connection(ctx, stream));
        connected.send(handle.address())?;
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

        let stream = TcpStream::connect(address).await?;
        let (mut socket, _) = client_async(format!("ws://{address}/"), stream).await?;
        socket.send(Message::text("hello")).await?;
        assert_eq!(next_text(&mut socket).await?, "hello");
        connections.receive().await?.send("news".to_owned())?;
        assert_eq!(next_text(&mut socket).await?, "news");
        socket.close(None).await?;
        println!("the WebSocket has answered");
        Ok(())
    })
}

/// 12.2e: async-tungstenite works on procession's streams without changes.
#[test]
fn a_websocket_server_answers_each_text() -> Result {
    main()
}

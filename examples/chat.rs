//! Chat rooms over TCP: three processes for each client, and one process for each room. If the process of a user
//! crashes, the user leaves its room, and the room continues.
//!
//!     cargo run --features net --example chat            a server, and clients that check the lines that they read
//!     cargo run --features net --example chat -- 4000    a server on local port 4000: try `nc 127.0.0.1 4000`
//!
//! The first line of a client is its name. Each later line is either a command or a text for the room. The commands are
//! `/join tea` (joins the room "tea"), `/quit`, and `/crash` (crashes the process of the user). Ctrl-C stops the
//! server.

use std::collections::BTreeMap;
use std::io::{Result as IoResult, Write as _, stderr};
use std::net::{Ipv4Addr, Shutdown};
use std::time::Duration;

use futures::future::try_join3;
use futures::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use procession::net::{OwnedReadHalf, TcpListener, TcpStream};
use procession::{
    Address, Context, Event, Exit, MailboxCapacity, MonitorRef, Next, Pid, Reply, Result, Runtime, Server, signal,
};

/// Maximum length of a line in bytes. The server splits a longer line.
const LINE: u64 = 1_024;
/// Maximum number of lines that wait for a slow client. The server drops further lines.
const BEHIND: usize = 1_000;
/// Longest time for the write of one line. If the write takes longer, the server disconnects the client.
const STALLED: Duration = Duration::from_secs(60);
/// Longest time that the shutdown waits for the processes.
const GRACE: Duration = Duration::from_secs(10);

// ---- A room: the name of each user, and the address of the process that owns the socket of this user

enum InRoom {
    Join(Pid, String, Address<String>, Reply<Address<InRoom>>),
    /// The room replies to each line, and a user waits for this reply. So a room has at most one unread line per user.
    Say(Pid, String, Reply<()>),
    Leave(Pid),
}

struct Member {
    name: String,
    socket: Address<String>,
    monitor: MonitorRef,
}

#[derive(Default)]
struct Room(BTreeMap<Pid, Member>);

impl Room {
    fn tell(&self, line: &str) {
        for Member { socket, .. } in self.0.values() {
            // A send fails if the receiver is exiting. If the queue of the receiver is full, the line is dropped.
            let _ = socket.send(line.to_owned());
        }
    }

    fn leave(&mut self, user: Pid, how: &str, ctx: &Context<InRoom>) {
        if let Some(Member { name, monitor, .. }) = self.0.remove(&user) {
            // A user may join and leave repeatedly. Without the next line, the monitors of this user would accumulate
            // in this process.
            ctx.demonitor_flush(monitor);
            self.tell(&format!("* {name} leaves{how}"));
        }
    }

    fn read(&mut self, message: InRoom, ctx: &Context<InRoom>) {
        match message {
            InRoom::Join(user, name, socket, reply) => {
                let line = format!("* {name} joins");
                let member = Member { name, socket, monitor: ctx.monitor(user) };
                if let Some(former) = self.0.insert(user, member) {
                    ctx.demonitor_flush(former.monitor);
                }
                self.tell(&line);
                reply.send(ctx.address());
            }
            InRoom::Say(user, text, reply) => {
                if let Some(Member { name, .. }) = self.0.get(&user) {
                    self.tell(&format!("{name}: {text}"));
                }
                reply.send(());
            }
            InRoom::Leave(user) => self.leave(user, "", ctx),
        }
    }

    /// Ends the room if the room is empty. A user may have sent a `Join` already, so the room first reads the messages
    /// in its mailbox.
    fn next(&mut self, ctx: &mut Context<InRoom>) -> Next<()> {
        while self.0.is_empty() {
            match ctx.try_receive() {
                Some(message) => self.read(message, ctx),
                None => return Next::Done(()),
            }
        }
        Next::Wait
    }
}

impl Server for Room {
    type Message = InRoom;
    type Output = ();

    async fn handle(&mut self, message: InRoom, ctx: &mut Context<InRoom>) -> Result<Next<()>, Exit> {
        self.read(message, ctx);
        Ok(self.next(ctx))
    }

    async fn handle_info(&mut self, event: Event<InRoom>, ctx: &mut Context<InRoom>) -> Result<Next<()>, Exit> {
        if let Event::Down { pid, exit: reason, .. } = event {
            self.leave(pid, &format!(": {reason}"), ctx);
        }
        Ok(self.next(ctx))
    }
}

// ---- A user

/// Line of a client. `None` is the end of the stream.
type Line = Option<String>;

/// Enters a room. If the room does not exist, this function starts the room.
async fn join(ctx: &Context<Line>, room: &str, user: &str, socket: &Address<String>) -> Result<Address<InRoom>, Exit> {
    loop {
        // The process of the room is not a child of this process, so the room exists until its last user has left.
        let process = ctx.host().process().name(format!("room {room}"));
        let request = |reply| InRoom::Join(ctx.pid(), user.to_owned(), socket.clone(), reply);
        let joined = process.spawn_or_call(request, |ctx| Room::default().serve(ctx))?;
        // If the last user has just left, the room may end without a reply. The next iteration of the loop then starts
        // a new room.
        if let Ok(room) = ctx.run_until_cancelled(joined).await? {
            return Ok(room);
        }
    }
}

async fn user(mut ctx: Context<Line>, name: String, socket: Address<String>) -> Result<(), Exit> {
    let mut room: Option<Address<InRoom>> = None;
    while let Some(line) = ctx.receive().await? {
        match (line.split_once(' ').unwrap_or((&line, "")), &room) {
            (("/quit", _), _) => return Ok(()),
            (("/crash", _), _) => panic!("{name} has sent /crash"),
            (("/join", name_of_room), last) => {
                if let Some(last) = last {
                    // The send fails if the room has ended.
                    let _ = last.send(InRoom::Leave(ctx.pid()));
                }
                room = Some(join(&ctx, name_of_room, &name, &socket).await?);
            }
            (_, Some(address)) => {
                // While this call waits for the room, this process receives no lines. When the mailbox of this process
                // is full, the process `reader` also waits.
                if address.call(|reply| InRoom::Say(ctx.pid(), line, reply)).await.is_err() {
                    room = None;
                    socket.send("* the room has ended: join it again".into())?;
                }
            }
            (_, None) => socket.send("* join a room first".into())?,
        }
    }
    Ok(())
}

// ---- The processes of a connection

/// Reads a line. Returns `None` at the end of the stream or after an error. A long line may be split inside a
/// character.
async fn read_line(from: &mut (impl AsyncBufRead + Unpin)) -> Option<String> {
    let mut line = Vec::new();
    let length = from.take(LINE).read_until(b'\n', &mut line).await.ok()?;
    (length > 0).then(|| String::from_utf8_lossy(&line).trim_end().to_owned())
}

/// Passes the lines of the client and the end of the stream to the process of the user.
async fn reader(mut lines: BufReader<OwnedReadHalf>, user: Address<Line>) {
    loop {
        let line = read_line(&mut lines).await;
        let is_end = line.is_none();
        // This send waits until the mailbox has free space. This wait slows down a client that sends too fast.
        if user.send_wait(line).await.is_err() || is_end {
            return;
        }
    }
}

/// Writes the lines of the mailbox to the client, until the process of the user has exited. Then closes the connection.
async fn connection(mut ctx: Context<String>, stream: TcpStream) -> Result<(), Exit> {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read);
    let Some(name) = ctx.run_until_cancelled(read_line(&mut lines)).await? else { return Ok(()) };
    let socket = ctx.address();
    let process = ctx.host().process().mailbox_capacity(MailboxCapacity::Reject(10));
    let user = process.spawn(|ctx| user(ctx, name, socket))?;
    ctx.monitor(user.pid());
    let address = user.address();
    let reader = ctx.spawn(move |_: Context| reader(lines, address));
    while let Event::Message(line) = ctx.event().await {
        let line = line + "\n";
        let written = ctx.run_until_cancelled(ctx.timeout(STALLED, write.write_all(line.as_bytes()))).await;
        // If the client has disconnected, the write fails. The reader then passes the last lines and the end of the
        // stream to the user, and the user exits. Therefore an error of a write does not end this loop. Two events end
        // the loop here: a cancellation, and a write that takes longer than `STALLED`.
        if !matches!(written, Ok(Ok(_))) {
            break;
        }
    }
    let _ = ctx.host().cancel(user.pid(), "hung up", Duration::from_secs(1));
    reader.abort();
    Ok(())
}

/// Accepts connections until this process is cancelled.
async fn listen(ctx: Context, listener: TcpListener) -> Result<(), Exit> {
    loop {
        match ctx.run_until_cancelled(listener.accept()).await? {
            Ok((stream, _)) => {
                // Keepalive detects a client whose computer has vanished. An error means that the client has already
                // disconnected.
                let _ = stream.options().set_keepalive(true);
                let process = ctx.host().process().mailbox_capacity(MailboxCapacity::DropNewest(BEHIND));
                process.spawn(|ctx| connection(ctx, stream))?;
            }
            Err(error) => {
                // Unlike `eprintln!`, this line does not panic if stderr is a broken pipe.
                let _ = writeln!(stderr(), "cannot accept a connection: {error}");
                ctx.sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

// ---- Clients that check the lines that they read

/// Longest time that a client waits for a line.
const PATIENCE: Duration = Duration::from_secs(20);

struct Client<'a> {
    ctx: &'a Context,
    lines: BufReader<&'a TcpStream>,
}

impl<'a> Client<'a> {
    async fn enter(ctx: &'a Context, stream: &'a TcpStream, name: &str, room: &str) -> IoResult<Self> {
        let client = Self { ctx, lines: BufReader::new(stream) };
        client.say(&format!("{name}\n/join {room}")).await?;
        Ok(client)
    }

    async fn say(&self, text: &str) -> IoResult<()> {
        self.stream().write_all(format!("{text}\n").as_bytes()).await
    }

    fn stream(&self) -> &'a TcpStream {
        self.lines.get_ref()
    }

    /// Returns the next line, or `None` at the end of the stream.
    async fn hear(&mut self) -> IoResult<Option<String>> {
        let mut line = String::new();
        let length = self.ctx.timeout(PATIENCE, self.lines.read_line(&mut line)).await.expect("a line in time")?;
        Ok((length > 0).then(|| line.trim_end().to_owned()))
    }
}

/// Checks that the next line of each client begins with `wanted`. Prints `wanted`.
async fn all_hear(clients: &mut [&mut Client<'_>], wanted: &str) -> IoResult<()> {
    for client in clients {
        let heard = client.hear().await?;
        assert!(heard.as_ref().is_some_and(|line| line.starts_with(wanted)), "{heard:?}, not {wanted:?}");
    }
    println!("{wanted}");
    Ok(())
}

/// Number of lines that each client sends in `talk`.
const LINES: usize = 100;

/// Sends some lines. Returns the lines of all three clients, in the order in which this client receives them.
async fn talk(client: &mut Client<'_>) -> IoResult<Vec<String>> {
    for n in 0..LINES {
        client.say(&format!("line {n}")).await?;
    }
    let mut heard = Vec::new();
    for _ in 0..3 * LINES {
        heard.extend(client.hear().await?);
    }
    Ok(heard)
}

async fn check(ctx: Context, port: u16) -> Result<(), Exit> {
    let mut streams = Vec::new();
    for _ in 0..6 {
        streams.push(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?);
    }
    let mut ada = Client::enter(&ctx, &streams[0], "ada", "tea").await?;
    all_hear(&mut [&mut ada], "* ada joins").await?;
    let mut bill = Client::enter(&ctx, &streams[1], "bill", "tea").await?;
    all_hear(&mut [&mut ada, &mut bill], "* bill joins").await?;
    let mut carl = Client::enter(&ctx, &streams[2], "carl", "tea").await?;
    all_hear(&mut [&mut ada, &mut bill, &mut carl], "* carl joins").await?;
    let mut dora = Client::enter(&ctx, &streams[3], "dora", "coffee").await?;
    all_hear(&mut [&mut dora], "* dora joins").await?;
    ada.say("hello").await?;
    all_hear(&mut [&mut ada, &mut bill, &mut carl], "ada: hello").await?;

    // The process of one user crashes. Only this user leaves the room.
    carl.say("/crash").await?;
    all_hear(&mut [&mut ada, &mut bill], "* carl leaves: panicked").await?;
    assert_eq!(carl.hear().await?, None, "the server closes the connection");
    bill.say("are you there?").await?;
    all_hear(&mut [&mut ada, &mut bill], "bill: are you there?").await?;
    let mut carl = Client::enter(&ctx, &streams[4], "carl", "tea").await?;
    all_hear(&mut [&mut ada, &mut bill, &mut carl], "* carl joins").await?;

    // All three clients send lines concurrently, and all of them receive the lines in the same order.
    let (ada_heard, bill_heard, carl_heard) = try_join3(talk(&mut ada), talk(&mut bill), talk(&mut carl)).await?;
    assert!(ada_heard == bill_heard && ada_heard == carl_heard, "they heard it in different orders");
    for name in ["ada", "bill", "carl"] {
        let own = ada_heard.iter().filter_map(|line| line.strip_prefix(name));
        assert!(own.eq((0..LINES).map(|n| format!(": line {n}"))), "something of {name} is missing, or out of order");
    }
    println!("{} lines, heard by three in one order", ada_heard.len());

    // A client sends lines and disconnects. No line is lost.
    let evan = Client::enter(&ctx, &streams[5], "evan", "coffee").await?;
    evan.say("hello").await?;
    evan.stream().shutdown(Shutdown::Write)?;
    all_hear(&mut [&mut dora], "* evan joins").await?;
    all_hear(&mut [&mut dora], "evan: hello").await?;
    all_hear(&mut [&mut dora], "* evan leaves: exited normally").await?;

    // The first client changes its room, the second client quits, and the third client disconnects.
    ada.say("/join coffee").await?;
    all_hear(&mut [&mut bill, &mut carl], "* ada leaves").await?;
    all_hear(&mut [&mut ada, &mut dora], "* ada joins").await?;
    bill.say("/quit").await?;
    all_hear(&mut [&mut carl], "* bill leaves: exited normally").await?;
    assert_eq!(bill.hear().await?, None);
    carl.stream().shutdown(Shutdown::Both)?;
    dora.say("and so they went").await?;
    all_hear(&mut [&mut ada, &mut dora], "dora: and so they went").await?;
    Ok(())
}

fn main() -> Result {
    let port = std::env::args().nth(1).map(|port| port.parse::<u16>()).transpose()?;
    let rt = Runtime::new()?;
    rt.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.unwrap_or(0))).await?;
        let address = listener.local_addr()?;
        rt.spawn(|ctx: Context| listen(ctx, listener));
        if port.is_some() {
            println!("listening on {address}");
            signal::ctrl_c().await?;
        } else {
            rt.spawn(move |ctx: Context| check(ctx, address.port())).await?;
        }
        let shutdown = rt.shutdown(GRACE).await;
        assert!(shutdown.left.is_empty(), "{shutdown:?}");
        println!("all clients have left");
        Ok(())
    })
}

//! Chat rooms over TCP. Threads read and write the sockets of the standard library. If a user crashes, the user leaves
//! its room, and the room continues.
//!
//!     cargo run --example chat             runs a server, and clients that check the lines that they read
//!     cargo run --example chat -- 4000     runs a server on that local port: try `nc 127.0.0.1 4000`
//!
//! The first line of a client is its name. A later line is either a command or a text for the room. The commands are
//! `/join tea` (joins a room), `/quit`, and `/crash` (crashes the user).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Result as IoResult, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use procession::{Address, Context, Event, Exit, Host, Mailbox, MailboxCapacity, Next, Pid, Result, Runtime, Server};

/// Maximum length of a line in bytes. A longer line is split.
const LINE: u64 = 1_024;
/// Maximum number of lines that wait for a slow client. Further lines are dropped.
const BEHIND: usize = 1_000;

// ---- A room, with the name of each user and the address of its socket

enum InRoom {
    Join(Pid, String, Address<String>),
    Say(Pid, String),
    Leave(Pid),
}

#[derive(Default)]
struct Room(BTreeMap<Pid, (String, Address<String>)>);

impl Room {
    fn tell(&self, line: &str) {
        for (_, socket) in self.0.values() {
            // A send fails if the user is exiting, or if its queue is full.
            let _ = socket.send(line.to_owned());
        }
    }

    fn leave(&mut self, user: Pid, how: &str) {
        if let Some((name, _)) = self.0.remove(&user) {
            self.tell(&format!("* {name} leaves{how}"));
        }
    }
}

impl Server for Room {
    type Message = InRoom;
    type Output = ();

    async fn handle(&mut self, message: InRoom, ctx: &mut Context<InRoom>) -> Result<Next<()>, Exit> {
        match message {
            InRoom::Join(user, name, socket) => {
                ctx.monitor(user);
                let line = format!("* {name} joins");
                self.0.insert(user, (name, socket));
                self.tell(&line);
            }
            InRoom::Say(user, text) => {
                if let Some((name, _)) = self.0.get(&user) {
                    self.tell(&format!("{name}: {text}"));
                }
            }
            InRoom::Leave(user) => self.leave(user, ""),
        }
        Ok(Next::Wait)
    }

    async fn handle_info(&mut self, event: Event<InRoom>, _: &mut Context<InRoom>) -> Result<Next<()>, Exit> {
        if let Event::Down { pid, exit: reason, .. } = event {
            self.leave(pid, &format!(": {reason}"));
        }
        Ok(Next::Wait)
    }
}

// ---- A user

async fn user(mut ctx: Context<String>, name: String, socket: Address<String>) -> Result<(), Exit> {
    let mut room = None;
    loop {
        let line = ctx.receive().await?;
        match (line.split_once(' ').unwrap_or((&line, "")), room) {
            (("/quit", _), _) => return Ok(()),
            (("/crash", _), _) => panic!("as {name} wished"),
            (("/join", name_of_room), last) => {
                if let Some(last) = last {
                    ctx.send(last, InRoom::Leave(ctx.pid()))?;
                }
                let join = InRoom::Join(ctx.pid(), name.clone(), socket.clone());
                // The room is not a child of this user, so the room continues when the user exits.
                let process = ctx.host().process().name(format!("room {name_of_room}"));
                room = Some(process.spawn_or_send(join, |ctx| Room::default().serve(ctx))?);
            }
            (_, Some(room)) => ctx.send(room, InRoom::Say(ctx.pid(), line))?,
            (_, None) => socket.send("* join a room first".into())?,
        }
    }
}

// ---- Sockets, and the threads that read and write them

fn read_line(from: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    let length = from.take(LINE).read_line(&mut line).ok()?;
    (length > 0).then(|| line.trim_end().to_owned())
}

/// Writes lines to the socket, until the user has exited or the client has closed the connection.
fn write_lines(mut mailbox: Mailbox<String>, mut socket: &TcpStream) {
    while let Event::Message(line) = block_on(mailbox.event()) {
        if socket.write_all((line + "\n").as_bytes()).is_err() {
            break;
        }
    }
    let _ = socket.shutdown(Shutdown::Both);
}

fn converse(host: &Host, socket: &TcpStream) {
    let mut lines = BufReader::new(socket);
    let Some(name) = read_line(&mut lines) else { return };
    let (out, mailbox) = host.mailbox_with(MailboxCapacity::DropNewest(BEHIND));
    let process = host.process().mailbox_capacity(MailboxCapacity::Reject(10));
    let Ok(user) = process.spawn(|ctx| user(ctx, name, out)) else { return };
    mailbox.monitor(user.pid());
    thread::scope(|s| {
        s.spawn(|| write_lines(mailbox, socket));
        while let Some(line) = read_line(&mut lines) {
            // Waits until the mailbox has a free place. The wait slows down a client that sends too fast.
            if block_on(user.send_wait(line)).is_err() {
                break;
            }
        }
        let _ = host.cancel(user.pid(), "hung up", Duration::from_secs(1));
    });
}

/// Serves the given number of clients. Returns when the last client has disconnected.
fn listen(host: &Host, listener: &TcpListener, clients: usize) -> IoResult<()> {
    thread::scope(|s| {
        for socket in listener.incoming().take(clients) {
            let socket = socket?;
            s.spawn(move || converse(host, &socket));
        }
        Ok(())
    })
}

// ---- Clients that check what they read

struct Client {
    lines: BufReader<TcpStream>,
    socket: TcpStream,
}

impl Client {
    fn enter(port: u16, name: &str, room: &str) -> IoResult<Self> {
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        socket.set_read_timeout(Some(Duration::from_secs(20)))?;
        let mut client = Self { lines: BufReader::new(socket.try_clone()?), socket };
        client.say(&format!("{name}\n/join {room}"))?;
        Ok(client)
    }

    fn say(&mut self, text: &str) -> IoResult<()> {
        self.socket.write_all(format!("{text}\n").as_bytes())
    }

    /// Returns the next line, or `None` at the end of the stream.
    fn hear(&mut self) -> IoResult<Option<String>> {
        let mut line = String::new();
        let length = self.lines.read_line(&mut line)?;
        Ok((length > 0).then(|| line.trim_end().to_owned()))
    }
}

/// Checks that the next line of each client begins with `wanted`.
fn all_hear(clients: &mut [&mut Client], wanted: &str) -> IoResult<()> {
    for client in clients {
        let heard = client.hear()?;
        assert!(heard.as_ref().is_some_and(|line| line.starts_with(wanted)), "{heard:?}, not {wanted:?}");
    }
    println!("{wanted}");
    Ok(())
}

/// Total number of connections.
const CLIENTS: usize = 5;

fn check(port: u16) -> IoResult<()> {
    let mut ada = Client::enter(port, "ada", "tea")?;
    all_hear(&mut [&mut ada], "* ada joins")?;
    let mut bill = Client::enter(port, "bill", "tea")?;
    all_hear(&mut [&mut ada, &mut bill], "* bill joins")?;
    let mut carl = Client::enter(port, "carl", "tea")?;
    all_hear(&mut [&mut ada, &mut bill, &mut carl], "* carl joins")?;
    let mut dora = Client::enter(port, "dora", "coffee")?;
    all_hear(&mut [&mut dora], "* dora joins")?;
    ada.say("hello")?;
    all_hear(&mut [&mut ada, &mut bill, &mut carl], "ada: hello")?;

    // Only the user that crashes leaves the room.
    carl.say("/crash")?;
    all_hear(&mut [&mut ada, &mut bill], "* carl leaves: panicked")?;
    assert_eq!(carl.hear()?, None, "he was hung up on");
    bill.say("are you there?")?;
    all_hear(&mut [&mut ada, &mut bill], "bill: are you there?")?;
    let mut carl = Client::enter(port, "carl", "tea")?;
    all_hear(&mut [&mut ada, &mut bill, &mut carl], "* carl joins")?;

    // All three clients talk concurrently, and all receive the lines in the same order.
    const LINES: usize = 100;
    let talk = |client: &mut Client| -> IoResult<Vec<String>> {
        (0..LINES).try_for_each(|n| client.say(&format!("line {n}")))?;
        (0..3 * LINES).map(|_| Ok(client.hear()?.unwrap_or_default())).collect()
    };
    let heard = thread::scope(|s| {
        let talking = [&mut ada, &mut bill, &mut carl].map(|client| s.spawn(|| talk(client)));
        talking.map(|one| one.join().expect("it does not panic"))
    });
    let [ada_heard, bill_heard, carl_heard] = heard;
    let ada_heard = ada_heard?;
    assert!(ada_heard == bill_heard? && ada_heard == carl_heard?, "they heard it in different orders");
    for name in ["ada", "bill", "carl"] {
        let own = ada_heard.iter().filter_map(|line| line.strip_prefix(name));
        assert!(own.eq((0..LINES).map(|n| format!(": line {n}"))), "something of {name} is missing, or out of order");
    }
    println!("{} lines, heard by three in one order", ada_heard.len());

    // The first client changes its room, the second client quits, and the third client disconnects.
    ada.say("/join coffee")?;
    all_hear(&mut [&mut bill, &mut carl], "* ada leaves")?;
    all_hear(&mut [&mut ada, &mut dora], "* ada joins")?;
    bill.say("/quit")?;
    all_hear(&mut [&mut carl], "* bill leaves: exited normally")?;
    assert_eq!(bill.hear()?, None);
    carl.socket.shutdown(Shutdown::Both)?;
    dora.say("and so they went")?;
    all_hear(&mut [&mut ada, &mut dora], "dora: and so they went")
}

fn main() -> Result {
    let port = std::env::args().nth(1).map(|port| port.parse::<u16>()).transpose()?;
    let rt = Runtime::new()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.unwrap_or(0)))?;
    let address = listener.local_addr()?;
    if port.is_some() {
        println!("listening on {address}");
        return Ok(listen(&rt, &listener, usize::MAX)?);
    }
    let host = rt.host().clone();
    let server = thread::spawn(move || listen(&host, &listener, CLIENTS));
    check(address.port())?;
    server.join().expect("it does not panic")?;
    let shutdown = block_on(rt.shutdown(Duration::from_secs(10)));
    assert!(shutdown.left.is_empty(), "{shutdown:?}");
    println!("everybody is gone");
    Ok(())
}

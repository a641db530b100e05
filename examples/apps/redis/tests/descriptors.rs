//! The server as a program, with a low limit of file descriptors.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server. The drop of this value kills the server.
struct Served {
    process: Child,
    /// The address on which the server listens. The text is empty if the server has exited before the server listened.
    address: String,
}

impl Served {
    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(&self.address).expect("the system accepts the client");
        // Without this time limit, a test would never end if the server sent no reply.
        client.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
        client
    }

    /// Kills the server, and returns the text that the server has printed on its standard error.
    fn errors(mut self) -> String {
        self.process.kill().expect("the process is a child of this test");
        let mut errors = String::new();
        self.process.stderr.take().expect("a pipe").read_to_string(&mut errors).expect("a text");
        errors
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the command that starts the server with a limit. `ulimit` contains the options of the shell's `ulimit`.
fn limited(ulimit: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit {ulimit} && exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_app-redis")]);
    shell.args(["--port", "0", "--workers", "2"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

fn serve(mut command: Command) -> Served {
    let mut process = command.spawn().expect("the shell starts");
    let mut served = String::new();
    BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut served).expect("a text");
    let address = served.trim().strip_prefix("listening on ").unwrap_or_default().to_owned();
    Served { process, address }
}

#[test]
fn a_client_above_the_limit_of_file_descriptors_gets_an_error() {
    let server = serve(limited("-n 64"));
    let mut clients: Vec<_> = (0..32).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.write_all(b"PING\r\n").expect("the server reads");
        let mut reply = [0; 7];
        client.read_exact(&mut reply).expect("the server replies");
        assert_eq!(&reply, b"+PONG\r\n");
    }
    for _ in 0..100 {
        let mut reply = String::new();
        server.connect().read_to_string(&mut reply).expect("the server replies");
        assert_eq!(reply, "-ERR max number of clients reached\r\n");
    }
    assert_eq!(
        server.errors(),
        "app-redis: the limit of file descriptors permits only 32 clients, not 10000 (see `ulimit -n`)\n"
    );
}

#[test]
fn the_server_raises_the_soft_limit_of_file_descriptors() {
    let mut command = limited("-S -n 64");
    command.args(["--max-connections", "100"]);
    let server = serve(command);
    let mut client = server.connect();
    client.write_all(b"INFO clients\r\nQUIT\r\n").expect("the server reads");
    let mut reply = String::new();
    client.read_to_string(&mut reply).expect("the server replies");
    assert!(reply.contains("\r\nmaxclients:100\r\n"), "{reply}");
    assert_eq!(server.errors(), "");
}

#[test]
fn the_server_does_not_start_without_file_descriptors_for_clients() {
    let server = serve(limited("-n 32"));
    assert_eq!(server.address, "", "the server listens");
    assert_eq!(server.errors(), "app-redis: the limit of file descriptors is 32, but it must be above 32\n");
}

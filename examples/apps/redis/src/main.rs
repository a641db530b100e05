//! A server for the Redis protocol. The README describes the server.
//!
//!     cargo run --release -p app-redis -- --port 7379
//!
//! After Ctrl-C or SIGTERM, the server answers the commands that it has read, and then exits.

mod descriptors;

use std::ffi::OsString;
use std::io::{self, Write};
use std::net::IpAddr;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use app_redis::{Config, server};
use futures::executor::block_on;
use futures::future::{Either, select};
use lexopt::prelude::*;
use procession::net::TcpListener;
use procession::{Context, Exit, Runtime, signal};

const HELP: &str = "\
A server for the Redis protocol.

Usage: app-redis [OPTIONS]

  --port N              port, 0 for a free one [7379]
  --bind ADDRESS        local address [127.0.0.1]
  --workers N           worker threads [one for each core]
  --shards N            processes that own the keys [one for each worker]
  --max-connections N   further clients are refused [10000]
  --help                this text";

/// Longest time that the shutdown waits for the processes.
const GRACE: Duration = Duration::from_secs(10);

struct Options {
    address: IpAddr,
    workers: usize,
    config: Config,
}

/// Parses the arguments. Returns `None` after `--help`.
fn options(args: impl Iterator<Item = OsString>) -> Result<Option<Options>, lexopt::Error> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options = Options { address: [127, 0, 0, 1].into(), workers: cores, config: Config::default() };
    let mut shards = None;
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("port") => options.config.port = parser.value()?.parse()?,
            Long("bind") => options.address = parser.value()?.parse()?,
            Long("workers") => options.workers = parser.value()?.parse_with(positive)?,
            Long("shards") => shards = Some(parser.value()?.parse_with(positive)?),
            Long("max-connections") => options.config.max_connections = parser.value()?.parse_with(positive)?,
            Long("help") => return Ok(None),
            _ => return Err(arg.unexpected()),
        }
    }
    options.config.shards = shards.unwrap_or(options.workers);
    Ok(Some(options))
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("it must be at least 1".into()),
        Ok(number) => Ok(number),
        Err(error) => Err(error.to_string()),
    }
}

/// Waits for a signal that asks the program to exit.
async fn stop_signal() -> io::Result<()> {
    #[cfg(unix)]
    {
        let mut terminate = signal::unix::signal(signal::unix::SignalKind::TERMINATE)?;
        select(pin!(signal::ctrl_c()), pin!(terminate.recv())).await.factor_first().0
    }
    #[cfg(not(unix))]
    signal::ctrl_c().await
}

/// Runs the server until a signal arrives, or until the server fails.
async fn run(ctx: Context, address: IpAddr, mut config: Config) -> Result<(), Exit> {
    let stop = pin!(stop_signal());
    let listener = TcpListener::bind((address, config.port)).await?;
    let address = listener.local_addr()?;
    config.port = address.port();
    let server = ctx.spawn_process(server(ctx.host(), config, listener));
    server.started().await?;
    println!("listening on {address}");
    match select(stop, server).await {
        Either::Left((stopped, _)) => Ok(stopped?),
        Either::Right((exited, _)) => exited,
    }
}

fn main() -> ExitCode {
    let options = match options(std::env::args_os().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("app-redis: {error}");
            return ExitCode::from(2);
        }
    };
    match start(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("app-redis: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start(mut options: Options) -> procession::Result {
    let wanted = options.config.max_connections;
    let clients = descriptors::most_clients(wanted)?;
    if clients < wanted {
        let text = "the limit of file descriptors permits only";
        let _ = writeln!(io::stderr(), "app-redis: {text} {clients} clients, not {wanted} (see `ulimit -n`)");
    }
    options.config.max_connections = clients;
    let rt = Runtime::builder().workers(options.workers).build()?;
    // The main thread only waits, so the processes run only on the worker threads.
    block_on(rt.spawn(move |ctx| run(ctx, options.address, options.config)))?;
    let report = block_on(rt.shutdown(GRACE));
    if report.left.is_empty() { Ok(()) } else { Err(format!("some processes did not stop: {report:?}").into()) }
}

//! An HTTP server on hyper. The library of this package describes the server.
//!
//!     cargo run --release -p app-http -- --port 8080
//!     curl http://127.0.0.1:8080/
//!
//! Ctrl-C stops the server. The server then accepts no more connections, answers the requests in flight, and exits.

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::Duration;

use app_http::{Config, server};
use lexopt::prelude::*;
use procession::net::TcpListener;
use procession::{BoxError, Context, Runtime, signal};

const HELP: &str = "\
An HTTP server. Its pages are /, /visits, /wait, /echo and /metrics (figures for Prometheus).

Usage: app-http [OPTIONS]

  --port N              port, 0 for a free one [8080]
  --workers N           worker threads [one for each core]
  --max-connections N   further connections wait until one ends [1000]
  --idle SECONDS        longest time between two requests, and for reading a request head, 1 to 86400 [30]
  --grace SECONDS       longest time of a shutdown; the requests in flight have 80 % of this time [10]
  --help                this text";

struct Options {
    port: u16,
    workers: Option<usize>,
    grace: Duration,
    config: Config,
}

/// Parses the command line. Returns `None` after `--help`.
fn options() -> Result<Option<Options>, lexopt::Error> {
    let mut options = Options { port: 8080, workers: None, grace: Duration::from_secs(10), config: Config::default() };
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("port") => options.port = arguments.value()?.parse()?,
            Long("workers") => options.workers = Some(arguments.value()?.parse_with(positive)?),
            Long("max-connections") => options.config.max_connections = arguments.value()?.parse_with(positive)?,
            Long("idle") => options.config.idle = arguments.value()?.parse_with(idle)?,
            Long("grace") => options.grace = Duration::from_secs(arguments.value()?.parse()?),
            Long("help") => return Ok(None),
            other => return Err(other.unexpected()),
        }
    }
    // The rest of the grace period is for the processes that do not belong to a connection.
    options.config.drain = options.grace.mul_f64(0.8);
    Ok(Some(options))
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("it must be at least 1".into()),
        Ok(number) => Ok(number),
        Err(error) => Err(error.to_string()),
    }
}

fn idle(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds @ 1..=86_400) => Ok(Duration::from_secs(seconds)),
        _ => Err("it must be a number from 1 to 86400".into()),
    }
}

fn serve(options: Options) -> Result<ExitCode, BoxError> {
    let mut builder = Runtime::builder();
    if let Some(workers) = options.workers {
        builder = builder.workers(workers);
    }
    let rt = builder.build()?;
    rt.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).await?;
        println!("listening on {}", listener.local_addr()?);
        let config = options.config;
        let server = rt.spawn(move |ctx: Context| server(ctx, listener, config));
        let stop = signal::ctrl_c();
        match futures::future::select(std::pin::pin!(stop), server).await {
            futures::future::Either::Left((stopped, _)) => stopped?,
            futures::future::Either::Right((failed, _)) => failed?,
        }
        println!("stopping");
        // The shutdown cancels the server and each connection. The server accepts no further connections, and each
        // connection answers the request in flight.
        let report = rt.shutdown(options.grace).await;
        println!("{} processes did not exit in time", report.left.len());
        Ok(if report.left.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

fn main() -> ExitCode {
    let served = match options() {
        Ok(Some(options)) => serve(options),
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => Err(error.into()),
    };
    served.unwrap_or_else(|error| {
        eprintln!("app-http: {error}");
        ExitCode::from(2)
    })
}

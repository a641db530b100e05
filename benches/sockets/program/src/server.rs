//! The process of a server. The process prints the number of its port. For each line of the input, the process prints
//! its own CPU time in nanoseconds. At the end of the input, the process exits. The main thread, which is not a worker,
//! reads the input.

mod epoll;
mod http;
mod procession;
mod smol;
mod tokio;

use cpu_time::ProcessTime;

use crate::child::{say, wait_for_line};
use crate::row::{MESSAGE, Service};
use crate::runner::Runner;

/// Command-line argument that makes this program run as a server.
pub(crate) const FLAG: &str = "--serve";

/// Size of the buffer of the service `Echo`, in bytes.
const ECHO_BUFFER: usize = 1 << 10;

/// Size of the buffer of the service `Sink`, in bytes.
const SINK_BUFFER: usize = 64 << 10;

/// Answer of the service `Reply`.
const REPLY: [u8; MESSAGE] = [b'x'; MESSAGE];

pub(crate) fn run(runner: &str, service: &str, workers: &str) {
    let service = Service::ALL.into_iter().find(|one| one.name() == service).expect("a service");
    let workers = workers.parse().expect("a number of workers");
    match Runner::ALL.into_iter().find(|one| one.name() == runner) {
        Some(Runner::Procession) => procession::run(service, workers),
        Some(Runner::Guest) => procession::run_in_tokio(service),
        Some(Runner::Tokio) => tokio::run(service, workers),
        Some(Runner::Smol) => smol::run(service),
        Some(Runner::Epoll) => epoll::run(service),
        Some(Runner::Go) | None => panic!("{runner} is no runtime of this program"),
    }
}

/// Prints the number of the port. Answers the driver until the driver closes the input.
fn answer_driver(port: u16) {
    say(port);
    while wait_for_line() {
        say(ProcessTime::now().as_duration().as_nanos());
    }
}

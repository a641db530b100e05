//! The process of a server. It prints its port. For each line of its input, it then prints the CPU time that it has used,
//! in nanoseconds. It ends at the end of its input. The main thread does this; it is not a worker.

mod epoll;
mod procession;
mod smol;
mod tokio;

use cpu_time::ProcessTime;

use crate::child::{say, wait_for_line};
use crate::row::{MESSAGE, Service};
use crate::runner::Runner;

/// Argument that makes this program a server.
pub(crate) const FLAG: &str = "--serve";

/// Size of the buffer of an echo.
const ECHO_BUFFER: usize = 1 << 10;

/// Size of the buffer of a sink.
const SINK_BUFFER: usize = 64 << 10;

/// The answer of the service `Reply`.
const REPLY: [u8; MESSAGE] = [b'x'; MESSAGE];

pub(crate) fn run(runner: &str, service: &str, workers: &str) {
    let service = Service::ALL.into_iter().find(|one| one.name() == service).expect("a service");
    let workers = workers.parse().expect("a number of workers");
    match Runner::ALL.into_iter().find(|one| one.name() == runner) {
        Some(Runner::Procession) => procession::run(service, workers),
        Some(Runner::Tokio) => tokio::run(service, workers),
        Some(Runner::Smol) => smol::run(service),
        Some(Runner::Epoll) => epoll::run(service),
        Some(Runner::Go) | None => panic!("{runner} is no runtime of this program"),
    }
}

/// Prints the port, and answers the driver until it closes the input.
fn answer_driver(port: u16) {
    say(port);
    while wait_for_line() {
        say(ProcessTime::now().as_duration().as_nanos());
    }
}

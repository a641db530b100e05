//! Echo requests on one connection, with a pause before each request. During the pause, the threads of the server
//! sleep.

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::load::echo::round_trip;
use crate::load::{connect, measure, warm_up};

const PAUSE: Duration = Duration::from_millis(1);

pub(super) fn run(server: SocketAddr, ops: u64) {
    let mut stream = connect(server);
    let mut timed = || {
        sleep(PAUSE);
        let begun = Instant::now();
        round_trip(&mut stream);
        begun.elapsed()
    };
    for _ in 0..warm_up(ops) {
        timed();
    }
    measure(ops, || {
        let mut times: Vec<_> = (0..ops).map(|_| timed()).collect();
        times.sort();
        times[times.len() / 2]
    });
}

//! Sends 1 MiB for each operation, on one connection. At the end, the server answers with the number of bytes that it
//! has received.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use crate::load::{connect, measure, warm_up};

/// Number of bytes of one write.
const CHUNK: usize = 256 << 10;

pub(super) fn run(server: SocketAddr, ops: u64) {
    let chunk = vec![b'x'; CHUNK];
    let transfer = |ops: u64| {
        let mut stream = connect(server);
        let total = ops << 20;
        (0..total / CHUNK as u64).for_each(|_| stream.write_all(&chunk).expect("the server reads"));
        stream.shutdown(Shutdown::Write).expect("the connection is open");
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).expect("the server answers");
        assert_eq!(u64::from_le_bytes(answer), total, "the server has lost bytes");
    };
    transfer(warm_up(ops));
    measure(ops, || {
        transfer(ops);
        Duration::ZERO
    });
}

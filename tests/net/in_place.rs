//! Tests that wait for a socket inside `block_in_place`. No other thread of the runtime waits in the poller.

use std::sync::mpsc;
use std::thread;

use futures::executor::block_on;
use futures::stream::{FuturesUnordered, StreamExt};
use procession::net::TcpStream;
use procession::{Context, Exit, Host, Runtime, block_in_place};

use crate::{read_when_readable, with, within};

/// The moment at which the stream of a test is registered, or at which the read of the stream is polled for the first
/// time.
#[derive(Debug, Clone, Copy)]
enum Begins {
    /// The stream is registered before the call of `block_in_place`.
    Before,
    /// The stream is registered in the closure.
    Inside,
    /// The read is polled before the call of `block_in_place`. The closure polls only the `FuturesUnordered` that
    /// contains the read. The `FuturesUnordered` polls the read again only after an event.
    PolledBefore,
}

/// Waits for a byte inside `block_in_place`. Another thread sends this byte after the read has begun to wait.
async fn read_in_place(begins: Begins, host: Host) -> Result<(), Exit> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let near = std::net::TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    let (waits, is_waiting) = mpsc::channel();
    let sender = thread::spawn(move || {
        is_waiting.recv().expect("the read waits");
        std::io::Write::write_all(&mut far, b"x").expect("the stream is open");
        far
    });
    let read = |stream: TcpStream| {
        let waits = waits.clone();
        block_on(async move {
            let mut read = Box::pin(read_when_readable(&stream));
            assert!(futures::poll!(&mut read).is_pending());
            waits.send(()).expect("the sender waits");
            read.await
        })
    };
    let byte = match begins {
        Begins::Before => {
            let stream = TcpStream::from_std_in(&host, near)?;
            block_in_place(|| read(stream))
        }
        Begins::Inside => block_in_place(|| read(TcpStream::from_std_in(&host, near)?)),
        Begins::PolledBefore => {
            let stream = TcpStream::from_std_in(&host, near)?;
            let mut reads: FuturesUnordered<_> = std::iter::once(read_when_readable(&stream)).collect();
            assert!(futures::poll!(reads.next()).is_pending());
            block_in_place(|| {
                waits.send(()).expect("the sender waits");
                block_on(reads.next()).expect("there is one read")
            })
        }
    };
    assert_eq!(byte?, b'x');
    sender.join().expect("the sender does not panic");
    Ok(())
}

const ALL: [Begins; 3] = [Begins::Before, Begins::Inside, Begins::PolledBefore];

/// 12.4b: in a runtime without workers, `block_in_place` can wait for a socket. The caller is the future of `block_on`,
/// a process, or the future of `run` on another executor.
#[test]
fn block_in_place_can_wait_for_a_socket_without_workers() {
    for begins in ALL {
        within(60, move || {
            let rt = with(0);
            rt.block_on(read_in_place(begins, rt.host().clone())).unwrap();
            let rt = with(0);
            let host = rt.host().clone();
            rt.block_on(rt.spawn(async move |_: Context| read_in_place(begins, host).await)).unwrap();
            let rt = with(0);
            // The executor of the crate `futures` cannot run inside itself.
            smol::block_on(rt.run(read_in_place(begins, rt.host().clone()))).unwrap();
        });
    }
}

/// 12.4b, 12.4c: the only worker calls `block_in_place`, and the runtime may start no replacement thread.
#[test]
fn block_in_place_can_wait_for_a_socket_without_replacement_threads() {
    for begins in ALL {
        within(60, move || {
            let rt = Runtime::builder().workers(1).max_replacement_threads(0).build().unwrap();
            let host = rt.host().clone();
            block_on(rt.spawn(async move |_: Context| read_in_place(begins, host).await)).unwrap();
        });
    }
}

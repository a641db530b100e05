//! Tests of the sockets, one file per theme. All connections and packets use the loopback interface. A test that counts
//! descriptors or threads, lowers a limit, or raises a signal runs in its own operating system process (see
//! `subprocess`).

#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::let_underscore_future)]

mod basics;
mod cancel;
mod creation;
#[cfg(target_os = "linux")]
#[path = "../it/traces/decoder.rs"]
#[allow(dead_code)] // These tests use only a part of the decoder.
mod decoder;
#[cfg(unix)]
mod descriptor;
#[cfg(target_os = "linux")]
mod descriptors;
mod executors;
mod floods;
mod in_place;
#[cfg(target_os = "linux")]
mod many;
mod names;
mod owners;
mod peers;
mod reused;
#[cfg(unix)]
mod signals;
#[path = "../it/subprocess.rs"]
mod subprocess;
mod tcp;
mod transfers;
mod udp;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
mod unix_addresses;
mod waits;
mod workers;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt};
use procession::net::{TcpListener, TcpStream};
use procession::{Context, Exit, Runtime};

/// Result of the body of a process in these tests.
type Outcome<T = ()> = Result<T, Exit>;

/// Factor by which the tests multiply their time limits. The environment variable `TEST_PATIENCE` sets the factor. The
/// default factor is 1.
fn patience() -> u32 {
    std::env::var("TEST_PATIENCE").map_or(1, |times| times.parse().expect("a number"))
}

/// Runs `f` on a new thread and returns the result of `f`. The time limit is `seconds`, multiplied by `TEST_PATIENCE`.
/// If `f` has not returned within the time limit, the test fails. So a lost wake-up cannot block the test run forever.
fn within<T: Send + 'static>(seconds: u64, f: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    let runner = thread::spawn(move || drop(done.send(f())));
    match result.recv_timeout(Duration::from_secs(seconds) * patience()) {
        Ok(result) => {
            let _ = runner.join();
            result
        }
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs: not done after {seconds} s"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match runner.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("the thread sends before it returns"),
        },
    }
}

/// Returns a runtime with `workers` workers.
fn with(workers: usize) -> Runtime {
    Runtime::builder().workers(workers).build().expect("a runtime")
}

/// Runs the body of a test inside `block_on` of a runtime with two workers.
fn on_two<T: Send + 'static>(test: impl AsyncFnOnce(&Runtime) -> Outcome<T> + Send + 'static) -> T {
    within(60, move || {
        let rt = with(2);
        rt.block_on(test(&rt)).unwrap_or_else(|exit| panic!("{exit}"))
    })
}

/// Returns two TCP streams that are connected to each other.
async fn pair() -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let stream = TcpStream::connect(listener.local_addr()?).await?;
    Ok((stream, listener.accept().await?.0))
}

/// Body of a process that sends back all bytes of a connection.
async fn echo(stream: TcpStream) -> Outcome {
    futures::io::copy(&stream, &mut &stream).await?;
    Ok(())
}

/// Body of a process that accepts connections. For each connection, the process spawns a process that runs [`echo`].
async fn serve(ctx: Context, listener: TcpListener) -> Outcome {
    loop {
        let (stream, _) = listener.accept().await?;
        ctx.spawn(move |_: Context| echo(stream));
    }
}

/// Sends bytes to an echo process and checks that the same bytes come back.
async fn round_trip(mut stream: &TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(bytes).await?;
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).await?;
    assert_eq!(back, bytes);
    Ok(())
}

/// Waits until the stream has a byte, and reads the byte. The function waits with `readable` and reads with `try_read`.
///
/// `readable` may complete although the stream has no byte. The reason is that an event of the write direction may
/// arrive while a read clears the readiness. Therefore, a test that needs a waiting future must use a loop like this
/// loop.
async fn read_when_readable(stream: &TcpStream) -> std::io::Result<u8> {
    let mut byte = [0];
    loop {
        stream.readable().await?;
        match stream.try_read(&mut byte) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            result => return result.map(|_| byte[0]),
        }
    }
}

/// Polls a future once. Returns the output of the future if the future is ready.
fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    futures::FutureExt::now_or_never(future)
}

/// Returns to the executor once. The executor then polls the calling task again.
async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

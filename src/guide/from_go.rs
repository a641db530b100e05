//! For users of Go. This page lists goroutines, channels, contexts and other terms of Go with their counterparts in
//! this crate.
//!
//! The scheduler is modelled on Go's scheduler: see [`scheduling`](super::scheduling). The programming style differs
//! from Go. In Go, goroutines share channels. In this crate, each process has one mailbox, and other processes send
//! messages to the address of the process.
//!
//! ```go
//! results := make(chan int)
//! for i := 1; i <= 10; i++ {
//!     go func() { results <- i * i }()
//! }
//! sum := 0
//! for i := 1; i <= 10; i++ {
//!     sum += <-results
//! }
//! ```
//!
//! ```
//! use procession::{Context, Exit};
//!
//! async fn sum(mut ctx: Context<u64>) -> Result<u64, Exit> {
//!     for i in 1..=10 {
//!         let results = ctx.address();
//!         ctx.spawn(async move |_: Context| results.send(i * i));
//!     }
//!     let mut sum = 0;
//!     for _ in 1..=10 {
//!         sum += ctx.receive().await?;
//!     }
//!     Ok(sum)
//! }
//!
//! fn main() -> Result<(), Exit> {
//!     assert_eq!(procession::run(sum)?, 385);
//!     Ok(())
//! }
//! ```
//!
//! | Go | here | difference |
//! |---|---|---|
//! | `go f(x)` | [`spawn`](crate::SelfHandle::spawn) | returns a [`JoinHandle`](crate::JoinHandle) with the result of the process |
//! | `make(chan T)` | the mailbox of a process; [`Host::mailbox`](crate::Host::mailbox) outside a process | a send does not wait for the receiver |
//! | `make(chan T, n)` | [`MailboxCapacity`](crate::MailboxCapacity) and [`send_wait`](crate::Address::send_wait) | `send` never waits; `send_wait` waits for free space |
//! | `ch <- v` | [`send`](crate::Address::send) | if the receiver has exited, the send returns an error. In Go, a send to a channel panics if the channel is closed, and can wait forever if no goroutine receives |
//! | `v := <-ch` | [`receive`](crate::Context::receive) | each mailbox has one receiver |
//! | several readers of one channel | [`Pool`](crate::Pool) | |
//! | `close(ch)` | [`cancel`](crate::Host::cancel) the process, or send a message that means "end" | |
//! | `select` | `futures::select!`, `tokio::select!` | the futures that do not complete first are dropped |
//! | `time.After`, `time.Ticker` | [`sleep`](crate::SelfHandle::sleep), [`interval`](crate::SelfHandle::interval) | |
//! | `context.WithCancel` | [`CancelToken`](crate::CancelToken) | spawned processes inherit the token, so the token need not be an argument |
//! | `context.WithTimeout`, `WithDeadline` | [`ProcessBuilder::deadline`](crate::ProcessBuilder::deadline) | spawned processes inherit the deadline. At the deadline, the process is cancelled and later killed |
//! | `context.WithValue` | [`ProcessBuilder::value`](crate::ProcessBuilder::value) | |
//! | `ctx.Done()` | [`cancelled`](crate::SelfHandle::cancelled) | `receive` also returns the cancellation |
//! | `sync.WaitGroup` | [`JoinSet`](crate::JoinSet) | the set waits for the next exit or for all exits, and returns the results |
//! | `errgroup` | [`scope`](crate::SelfHandle::scope) | the first error cancels the other processes |
//! | `sync.Mutex` | a process that owns the data | locks of other crates also work, but do not hold a lock across an `await` |
//! | `sync.Once`, `singleflight` | [`spawn_or_send`](crate::ProcessBuilder::spawn_or_send) | if several callers race, exactly one caller spawns the process |
//! | request with a reply channel | [`call`](crate::Address::call) with a [`Reply`](crate::Reply) | if the called process exits before it answers or forwards the `Reply`, the call fails immediately |
//! | `recover` | [`Supervisor`](crate::Supervisor), or the exit of the process | a panic ends only one process |
//! | `runtime.Gosched` | [`yield_now`](crate::SelfHandle::yield_now) | |
//! | `GOMAXPROCS` | [`Builder::workers`](crate::Builder::workers), [`set_workers`](crate::Runtime::set_workers) | |
//! | blocking system call | [`spawn_blocking`](crate::Host::spawn_blocking), [`block_in_place`](crate::block_in_place) | without these functions, the monitor detects a blocking step after 10 to 20 ms |
//! | package `net`, the network poller | `procession::net`, feature `net` | as in Go, a worker that searches for work also finds ready sockets. To limit the time of a read, use [`timeout`](crate::SelfHandle::timeout) instead of a deadline of the connection |
//! | `signal.Notify`, `signal.NotifyContext` | `procession::signal`, feature `net` | |
//! | `runtime/trace`, `pprof` | [`Host::start_trace`](crate::Host::start_trace), [`Host::sample_run_times`](crate::Host::sample_run_times) | a [flight recorder](crate::observe::FlightRecorder) keeps the last events |
//! | race detector, `synctest` | the compiler; [`check`](crate::check()) | safe Rust code has no data races. `check` finds orders of events with which the program fails |
//!
//! # What surprises Go users
//!
//! - **No pre-emption.** Go interrupts a goroutine that runs for 10 ms. This crate does not interrupt a process. A
//!   process runs until its next `await`. If a process runs for a long time, a replacement thread runs the other
//!   processes of the worker. See [`should_yield`](crate::should_yield).
//! - **Waiting is visible.** A process waits only at an `await`. A function that waits is `async`.
//! - **A blocking function blocks a worker.** If a goroutine blocks in a system call, Go starts another thread. In
//!   Rust, `std::fs`, `std::net` and `std::thread::sleep` block the worker. A replacement thread starts after 10 to 20
//!   ms.
//! - **Every process has an exit.** Go does not report the end of a goroutine. In this crate, links, monitors,
//!   supervisors and join handles receive the [`Exit`](crate::Exit) of a process.
//! - **Dropped work is cancelled.** If a future is dropped, the work of this future stops. A spawned process continues
//!   to run, even if the handle of the process is dropped.

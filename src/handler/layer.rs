//! Layers: handlers that wrap another handler, for timeouts, retries and limits. Layers can be nested in any order. A
//! layer wraps a [`Handler`](crate::Handler). No layer can wrap a [`StreamHandler`](crate::StreamHandler).
//!
//! ```
//! use procession::handler;
//! use procession::layer::{ConcurrencyLimit, Retry, Timeout};
//! use procession::{Command, Context, Runtime};
//! use std::time::Duration;
//!
//! #[derive(Clone)]
//! struct Fetch(&'static str);
//! impl Command for Fetch { type Reply = usize; }
//!
//! let fetch = handler::future(async |Fetch(url)| if url.is_empty() { Err("no url") } else { Ok(url.len()) });
//! let fetch = Timeout::new(fetch, Duration::from_secs(5));                 // time limit of each attempt
//! let fetch = Retry::new(fetch, 3, Duration::from_millis(1)).jitter();     // waits of up to 1, 2 and 4 ms
//! let fetch = ConcurrencyLimit::new(fetch, 10).queue_capacity(100);                 // ten commands at a time
//! let rt = Runtime::builder().handler(fetch).build()?;
//!
//! assert_eq!(rt.block_on(rt.spawn(async |ctx: Context| ctx.perform(Fetch("a/b")).await))?, 3);
//! assert!(rt.block_on(rt.spawn(async |ctx: Context| ctx.perform(Fetch("")).await)).is_err());
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! All layers obey the following rules. A command is answered exactly once. If the process cancels its command or
//! exits, the inner handler sees the cancellation immediately. If a cancelled command waits in the queue of a layer,
//! the layer drops the command immediately. A panic of a handler counts as a failure. A layer measures time with the
//! clock of the command's runtime, and takes random numbers from the seed of that runtime. The clones of a limit share
//! the limit, even if the clones are handlers in different runtimes. A [`RateLimit`] that several runtimes share uses
//! one clock. If several runtimes share a limit, each of these runtimes must meet a condition: see [`RateLimit`] and
//! [`ConcurrencyLimit`].
//!
//! # Writing a layer
//!
//! A layer is a [`Handler`](crate::Handler) that owns another handler. If a layer only inspects the answer,
//! [`Completion::intercept`](crate::Completion::intercept) is enough:
//!
//! ```
//! use procession::{Command, Completion, Handler};
//!
//! struct Logged<H>(H);
//!
//! impl<C: Command, H: Handler<C>> Handler<C> for Logged<H> {
//!     fn handle(&self, command: C, completion: Completion<C::Reply>) {
//!         let pid = completion.pid();
//!         self.0.handle(command, completion.intercept(move |answer, outer| {
//!             if let Err(failure) = &answer {
//!                 eprintln!("{pid}: {failure}");
//!             }
//!             outer.finish(answer);
//!         }));
//!     }
//! }
//! ```
//!
//! A layer may wait, retry, or call several handlers. A layer that waits, retries or calls several handlers uses
//! [`Completion::call_handler`](crate::Completion::call_handler), and awaits the answer in its own future.
//!
//! # Relation to tower
//!
//! The caller of a `tower::Service` waits until the service is ready, and then calls the service through `&mut self`.
//! The service returns its answer as a future. A handler is called through `&self` by all workers concurrently, and
//! answers through a completion, from any thread. An adapter between the two traits would need a lock and a task for
//! each command, so this crate has its own layers. A tower stack can answer commands inside a handler:
//! `handler::future(move |command| stack.clone().oneshot(command))`.

pub(crate) mod concurrency;
pub(crate) mod rate;
pub(crate) mod retry;
pub(crate) mod timeout;
pub(crate) mod waiters;

pub use crate::handler::layer::concurrency::ConcurrencyLimit;
pub use crate::handler::layer::rate::RateLimit;
pub use crate::handler::layer::retry::Retry;
pub use crate::handler::layer::timeout::Timeout;

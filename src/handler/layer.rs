//! Layers: handlers around handlers, for what any handler may need. They nest in any order.
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
//! let fetch = Timeout::new(fetch, Duration::from_secs(5));                 // each attempt
//! let fetch = Retry::new(fetch, 3, Duration::from_millis(1)).jitter();     // after about 1, 2 and 4 ms
//! let fetch = ConcurrencyLimit::new(fetch, 10).queue(100);                 // ten at once, retries and waits included
//! let rt = Runtime::builder().handler(fetch).build()?;
//!
//! assert_eq!(rt.block_on(rt.spawn(async |ctx: Context| ctx.perform(Fetch("a/b")).await))?, 3);
//! assert!(rt.block_on(rt.spawn(async |ctx: Context| ctx.perform(Fetch("")).await)).is_err());
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! All of them keep to the same rules. A command is answered once. When its process gives it up, or ends, the handler
//! inside sees that at once, and a layer that has the command waiting lets go of it at once. A handler that panics has
//! failed. Time is the clock of the command's runtime, and chance comes from its seed. What limits a runtime's commands
//! belongs to that runtime alone: its clones share the limit, and are not to be used in another one.
//!
//! # Writing one
//!
//! A layer is a [`Handler`](crate::Handler) that owns another one. If it only looks at the answer,
//! [`Completion::intercept`](crate::Completion::intercept) is all it needs:
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
//! If it waits, asks again, or asks several, it asks by [`Completion::ask`](crate::Completion::ask), and awaits the answer
//! in a future of its own: see there.
//!
//! # And tower?
//!
//! A `tower::Service` is called through `&mut self` when it says that it is ready, and answers by a future; a handler is
//! called through `&self` by every worker at once, and answers by a completion, from anywhere. An adapter would put a
//! lock and a task around each command, so the layers here are our own. To have a tower stack answer commands, make it a
//! handler: `handler::future(move |command| stack.clone().oneshot(command))`.

pub(crate) mod concurrency;
pub(crate) mod rate;
pub(crate) mod retry;
pub(crate) mod timeout;
pub(crate) mod waiters;

pub use crate::handler::layer::concurrency::ConcurrencyLimit;
pub use crate::handler::layer::rate::RateLimit;
pub use crate::handler::layer::retry::Retry;
pub use crate::handler::layer::timeout::Timeout;
pub use crate::handler::layer::waiters::LayerRefusal;

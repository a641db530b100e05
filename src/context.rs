//! API for the code of a process. A [`SelfHandle`] sends, calls, spawns and sleeps. A [`Mailbox`] receives. A
//! [`Context`] contains a `SelfHandle` and a `Mailbox`, and is the argument of an async body. The trait `Process` and
//! its `StepOutput` are in `step.rs`.
//!
//! This folder imports `platform`, `process`, `observe` and `host`. The modules of this folder define these types, and
//! the futures that their methods return. The module `task` polls and steps the processes.

pub(crate) mod address;
pub(crate) mod call;
pub(crate) mod cooperative;
pub(crate) mod links;
pub(crate) mod mailbox;
pub(crate) mod me;
pub(crate) mod multi_call;
pub(crate) mod names;
pub(crate) mod perform;
pub(crate) mod step;
pub(crate) mod stream;
pub(crate) mod time;

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use crate::context::mailbox::{Mailbox, Receive};
use crate::context::me::SelfHandle;
use crate::host::control::Control;
use crate::process::event::Event;
use crate::process::exit::Exit;
use crate::process::payload::Payload;
use crate::process::state::Ref;

/// Argument of an async process body. A context contains the API of the process and its mailbox. A `Context` receives
/// messages of any type as [`Payload`]. A `Context<Msg>` receives messages of type `Msg`.
///
/// A `Context` dereferences to [`SelfHandle`]. The receiving methods of [`Mailbox`] are also methods of `Context`.
///
/// ```
/// # use procession::{Context, Exit, Runtime};
/// async fn count(mut ctx: Context<String>) -> Result<usize, Exit> {
///     let mut letters = 0;
///     for _ in 0..2 {
///         letters += ctx.receive().await?.len();
///     }
///     Ok(letters)
/// }
/// let rt = Runtime::new()?;
/// let count = rt.spawn(count);
/// count.send("one".into())?;
/// count.send("three".into())?;
/// assert_eq!(rt.block_on(count)?, 8);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub struct Context<M: Send + 'static = Payload> {
    mailbox: Mailbox<M>,
}

impl<M: Send + 'static> fmt::Debug for Context<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.mailbox.pid()).finish()
    }
}

impl<M: Send + 'static> Deref for Context<M> {
    type Target = SelfHandle<M>;

    fn deref(&self) -> &SelfHandle<M> {
        self.mailbox.me()
    }
}

impl<M: Send + 'static> Context<M> {
    /// Makes the first receiver of this control block. The caller must call this only once for each control block.
    pub(crate) fn new(control: Ref<Control<M>>) -> Self {
        Self::of(Mailbox::new(control))
    }

    pub(crate) fn of(mailbox: Mailbox<M>) -> Self {
        Self { mailbox }
    }

    /// Waits for the next message. Same as [`Mailbox::receive`].
    ///
    /// # Errors
    /// - [`Exit::Cancelled`] after the process was asked to exit. The `?` operator returns this error from the body.
    /// - [`Exit::Failed`] after [another receiver](Mailbox) has replaced this receiver.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future has taken no message.
    pub fn receive(&mut self) -> Receive<'_, M> {
        self.mailbox.receive()
    }

    /// Waits at most this time for the next message. The time begins when this method is called. Returns `Ok(None)` if
    /// no message arrives within the time. Same as [`Mailbox::receive_timeout`].
    ///
    /// # Errors
    /// Same as [`receive`](Self::receive).
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future has taken no message.
    pub fn receive_timeout(
        &mut self,
        time: Duration,
    ) -> impl Future<Output = Result<Option<M>, Exit>> + Send + use<'_, M> {
        self.mailbox.receive_timeout(time)
    }

    /// Waits for the first message that `pick` accepts. Same as [`Mailbox::receive_where`].
    ///
    /// # Errors
    /// Same as [`receive`](Self::receive).
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future has taken no message, and the skipped messages keep their order.
    pub async fn receive_where<T>(&mut self, pick: impl FnMut(M) -> Result<T, M>) -> Result<T, Exit> {
        self.mailbox.receive_where(pick).await
    }

    /// Returns the next message, or `None` if the mailbox is empty. Same as [`Mailbox::try_receive`].
    pub fn try_receive(&mut self) -> Option<M> {
        self.mailbox.try_receive()
    }

    /// Stores a message until [`unstash`](Self::unstash) is called. Same as [`Mailbox::stash`].
    pub fn stash(&mut self, message: M) {
        self.mailbox.stash(message);
    }

    /// Moves the stashed messages to the front of the mailbox. Returns the number of moved messages. Same as
    /// [`Mailbox::unstash`].
    pub fn unstash(&mut self) -> usize {
        self.mailbox.unstash()
    }

    /// Waits for the next event of any kind. Same as [`Mailbox::event`].
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future has taken no event.
    pub async fn event(&mut self) -> Event<M> {
        self.mailbox.event().await
    }

    /// Returns the receiving half.
    pub fn mailbox(&mut self) -> &mut Mailbox<M> {
        &mut self.mailbox
    }

    /// Splits the context into a `SelfHandle` and a `Mailbox`. After the split, the body can pass the mailbox to a
    /// combinator while calls are in flight.
    ///
    /// The mailbox can also be sent to another thread or process. There, the mailbox is still the only receiver of this
    /// process.
    pub fn split(self) -> (SelfHandle<M>, Mailbox<M>) {
        (self.mailbox.me().clone(), self.mailbox)
    }
}

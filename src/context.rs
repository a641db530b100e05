//! API for the code of a process. [`SelfHandle`] acts: it sends, calls, spawns and sleeps. [`Mailbox`] receives.
//! [`Context`] combines both halves; an async body gets a `Context` as its argument. The trait `Process` and its
//! `StepOutput` are in `step.rs`.
//!
//! This folder imports `platform`, `process`, `observe` and `host`. The modules below define these types, and the
//! futures that their methods return. No module of this folder polls or steps a process: `task` does this.

pub(crate) mod address;
pub(crate) mod call;
pub(crate) mod cooperative;
pub(crate) mod links;
pub(crate) mod mailbox;
pub(crate) mod me;
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

/// Argument of an async process body: the process's API and its mailbox. `Context` receives messages of any type as
/// [`Payload`]; `Context<Msg>` receives messages of type `Msg`.
///
/// A `Context` dereferences to [`SelfHandle`], the acting half. The receiving methods of [`Mailbox`] are also methods
/// of `Context`.
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
    /// Makes the first receiver of this control block. Must be called only once per control block.
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
    /// - [`Exit::Failed`] after [another receiver](Mailbox) replaced this one.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future has taken no message.
    pub fn receive(&mut self) -> Receive<'_, M> {
        self.mailbox.receive()
    }

    /// Waits at most this long for the next message. The time counts from the call. Returns `Ok(None)` if no message
    /// arrives within the time. Same as [`Mailbox::receive_timeout`].
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

    /// Puts a message aside until [`unstash`](Self::unstash). Same as [`Mailbox::stash`].
    pub fn stash(&mut self, message: M) {
        self.mailbox.stash(message);
    }

    /// Puts the stashed messages back in front of all other messages. Returns the number of stashed messages. Same as
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

    /// Splits the context into its two halves. The body can then pass the mailbox to a combinator while calls are in
    /// flight.
    ///
    /// The mailbox can also be sent to another thread or process. There, the mailbox is still the only receiver of this
    /// process: see [`Mailbox`].
    pub fn split(self) -> (SelfHandle<M>, Mailbox<M>) {
        (self.mailbox.me().clone(), self.mailbox)
    }
}

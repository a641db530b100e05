//! The async face of a process: what its body is given, to act ([`Me`]) and to listen ([`Mailbox`]), both in one.

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

use crate::context::mailbox::{Mailbox, Receive};
use crate::context::me::Me;
use crate::host::control::Control;
use crate::process::event::Event;
use crate::process::exit::Exit;
use crate::process::payload::Payload;
use crate::process::state::Ref;

/// Given to a body by value: `Context` takes any payload, `Context<Msg>` takes `Msg`.
///
/// It is both halves in one: what [`Me`] can it can by `Deref`, what [`Mailbox`] can it can itself.
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
    type Target = Me<M>;

    fn deref(&self) -> &Me<M> {
        self.mailbox.me()
    }
}

impl<M: Send + 'static> Context<M> {
    /// With the first receiver of this control block. It is called once for each.
    pub(crate) fn new(control: Ref<Control<M>>) -> Self {
        Self::of(Mailbox::new(control))
    }

    pub(crate) fn of(mailbox: Mailbox<M>) -> Self {
        Self { mailbox }
    }

    /// As [`Mailbox::receive`].
    ///
    /// # Errors
    /// [`Exit::Cancelled`] once the process was asked to end: `?` carries it out of the body.
    ///
    /// # Cancel safety
    /// Dropped, it has taken nothing.
    pub fn receive(&mut self) -> Receive<'_, M> {
        self.mailbox.receive()
    }

    /// As [`Mailbox::receive_where`].
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub async fn receive_where<T>(&mut self, pick: impl FnMut(M) -> Result<T, M>) -> Result<T, Exit> {
        self.mailbox.receive_where(pick).await
    }

    /// As [`Mailbox::try_receive`].
    pub fn try_receive(&mut self) -> Option<M> {
        self.mailbox.try_receive()
    }

    /// As [`Mailbox::stash`].
    pub fn stash(&mut self, message: M) {
        self.mailbox.stash(message);
    }

    /// As [`Mailbox::unstash`].
    pub fn unstash(&mut self) -> usize {
        self.mailbox.unstash()
    }

    /// As [`Mailbox::event`].
    pub async fn event(&mut self) -> Event<M> {
        self.mailbox.event().await
    }

    /// The receiving half.
    pub fn mailbox(&mut self) -> &mut Mailbox<M> {
        &mut self.mailbox
    }

    /// Both halves, so that the mailbox can be handed to a combinator while calls are in flight. It can also be sent to
    /// another thread or process, and is the only receiver of this process there: see [`Mailbox`].
    pub fn split(self) -> (Me<M>, Mailbox<M>) {
        (self.mailbox.me().clone(), self.mailbox)
    }
}

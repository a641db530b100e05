//! Types that the code of a process uses. A process uses its [`SelfHandle`] to send messages, to call and spawn other
//! processes, and to sleep. A process uses its [`Mailbox`] to receive messages and events. A [`Context`] contains a
//! `SelfHandle` and a `Mailbox`, and is the argument of an async body. Hand-written processes use the trait `Process`
//! and the type `StepOutput`, which are in `step.rs`.
//!
//! The modules of this folder also define the futures that the methods of these types return. The folder imports the
//! modules `platform`, `process`, `observe` and `host`. The module `task` contains the code that polls and steps a
//! process.

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

/// Argument of an async process body. A context contains the [`SelfHandle`] and the [`Mailbox`] of the process. A
/// `Context<Msg>` receives messages of type `Msg`. The default type `Context<Payload>` receives messages of any type,
/// as values of the type [`Payload`].
///
/// A `Context` dereferences to [`SelfHandle`]. `Context` also has the methods of [`Mailbox`] that receive messages and
/// events.
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
    /// Creates the context of a new process. The mailbox of this context is the first receiver of the process. The
    /// caller must call this function at most once for each control block.
    pub(crate) fn new(control: Ref<Control<M>>) -> Self {
        Self::of(Mailbox::new(control))
    }

    pub(crate) fn of(mailbox: Mailbox<M>) -> Self {
        Self { mailbox }
    }

    /// Waits for the next message. This method calls [`Mailbox::receive`].
    ///
    /// # Errors
    /// - [`Exit::Cancelled`] after the process was asked to exit. With the `?` operator, the body returns this error,
    ///   and the process exits.
    /// - [`Exit::Failed`] after another receiver has replaced this receiver: see [`Mailbox`].
    /// - The exit of the process, if the process has exited: see [`Mailbox::receive`].
    ///
    /// # Cancel safety
    /// This method is cancel safe. If the pending future is dropped, no message is lost.
    #[track_caller]
    pub fn receive(&mut self) -> Receive<'_, M> {
        self.mailbox.receive()
    }

    /// Waits for the next message, but not longer than `time`. The time limit starts when this method is called.
    /// Returns `Ok(None)` if no message arrives before the time limit. This method calls [`Mailbox::receive_timeout`].
    ///
    /// # Errors
    /// This method returns the same errors as [`receive`](Self::receive).
    ///
    /// # Cancel safety
    /// This method is cancel safe. If the pending future is dropped, no message is lost.
    #[track_caller]
    pub fn receive_timeout(
        &mut self,
        time: Duration,
    ) -> impl Future<Output = Result<Option<M>, Exit>> + Send + use<'_, M> {
        self.mailbox.receive_timeout(time)
    }

    /// Waits for the first message that `pick` accepts. This method calls [`Mailbox::receive_where`].
    ///
    /// # Errors
    /// This method returns the same errors as [`receive`](Self::receive).
    ///
    /// # Cancel safety
    /// This method is cancel safe. If the pending future is dropped, no message is lost, and the skipped messages keep
    /// their order.
    #[track_caller]
    pub fn receive_where<T>(&mut self, pick: impl FnMut(M) -> Result<T, M>) -> impl Future<Output = Result<T, Exit>> {
        self.mailbox.receive_where(pick)
    }

    /// Returns the next message, or `None` if the mailbox is empty. This method calls [`Mailbox::try_receive`].
    pub fn try_receive(&mut self) -> Option<M> {
        self.mailbox.try_receive()
    }

    /// Stores a message until [`unstash`](Self::unstash) is called. This method calls [`Mailbox::stash`].
    pub fn stash(&mut self, message: M) {
        self.mailbox.stash(message);
    }

    /// Moves the stashed messages to the front of the mailbox. Returns the number of moved messages. This method calls
    /// [`Mailbox::unstash`].
    pub fn unstash(&mut self) -> usize {
        self.mailbox.unstash()
    }

    /// Waits for the next event of any kind. This method calls [`Mailbox::event`].
    ///
    /// # Cancel safety
    /// This method is cancel safe. If the pending future is dropped, no event is lost.
    #[track_caller]
    pub fn event(&mut self) -> impl Future<Output = Event<M>> {
        self.mailbox.event()
    }

    /// Returns the mailbox of this context.
    pub fn mailbox(&mut self) -> &mut Mailbox<M> {
        &mut self.mailbox
    }

    /// Splits the context into a `SelfHandle` and a `Mailbox`. After the split, the body can await the mailbox and the
    /// future of a call at the same time.
    ///
    /// The body can also send the mailbox to another thread or to another process. The mailbox then remains the only
    /// receiver of this process. If the mailbox is dropped, the process still accepts messages until the process exits,
    /// but no code can receive these messages. A call to the process then waits until the process exits. A process that
    /// needs no messages has the message type `()`.
    pub fn split(self) -> (SelfHandle<M>, Mailbox<M>) {
        (self.mailbox.me().clone(), self.mailbox)
    }
}

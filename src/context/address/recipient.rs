//! Defines [`Recipient`], an address for one type of message. A `Recipient` hides the message type of the process
//! behind a trait object, and converts each message with `From`.

use std::any::type_name;
use std::fmt;

use crate::context::address::Address;
use crate::host::control::Control;
use crate::observe::Counter;
use crate::process::error::{Addressee, SendError};
use crate::process::pid::Pid;
use crate::process::state::Ref;

/// Address that takes only messages of type `A`. A `Recipient` converts each message with `From`, from `A` to the
/// message type of the process.
///
/// ```
/// use procession::{Context, Exit, Recipient, Runtime};
///
/// enum Msg { Tick(u64), Stop }
/// impl From<u64> for Msg {
///     fn from(n: u64) -> Self { Msg::Tick(n) }
/// }
/// async fn clock(mut ctx: Context<Msg>) -> Result<u64, Exit> {
///     let mut last = 0;
///     while let Msg::Tick(n) = ctx.receive().await? {
///         last = n;
///     }
///     Ok(last)
/// }
/// let rt = Runtime::new()?;
/// let clock = rt.spawn(clock);
/// let ticks: Recipient<u64> = clock.recipient();
/// ticks.send(3)?;
/// clock.send(Msg::Stop)?;
/// assert_eq!(rt.block_on(clock)?, 3);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub struct Recipient<A> {
    to: Ref<dyn Takes<A>>,
}

/// Trait of the control blocks that take messages of type `A`.
pub(crate) trait Takes<A>: Send + Sync {
    fn pid(&self) -> Pid;
    fn take(&self, message: A) -> Result<(), SendError<A>>;
    fn take_urgent(&self, message: A) -> Result<(), SendError<A>>;
}

impl<A: Send + 'static, M: From<A> + Send + 'static> Takes<A> for Control<M> {
    fn pid(&self) -> Pid {
        self.head.pid()
    }

    fn take(&self, message: A) -> Result<(), SendError<A>> {
        if let Some(refusal) = self.refuses() {
            self.head.count(Counter::Refused);
            return Err(SendError::new(refusal, message).to(Addressee::Process(self.head.pid())));
        }
        // The conversion is user code, so it is called without a lock. The conversion cannot be undone. Therefore, if
        // the mailbox refuses the converted message, the message becomes a dead letter.
        if let Err((_, message)) = self.push(M::from(message)) {
            self.head.host().dead_letters_of(&self.head, std::iter::once(message));
        }
        Ok(())
    }

    fn take_urgent(&self, message: A) -> Result<(), SendError<A>> {
        if let Some(refusal) = self.refuses_urgent() {
            self.head.count(Counter::Refused);
            return Err(SendError::new(refusal, message).to(Addressee::Process(self.head.pid())));
        }
        if let Err((_, message)) = self.push_urgent(M::from(message)) {
            self.head.host().dead_letters_of(&self.head, std::iter::once(message));
        }
        Ok(())
    }
}

impl<M: Send + 'static> Address<M> {
    /// Returns an address of this process that takes only messages of type `A`.
    pub fn recipient<A: Send + 'static>(&self) -> Recipient<A>
    where
        M: From<A>,
    {
        Recipient { to: self.control().clone().taking() }
    }
}

impl<A> Clone for Recipient<A> {
    fn clone(&self) -> Self {
        Self { to: self.to.clone() }
    }
}

impl<A> fmt::Debug for Recipient<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recipient<{}>({})", type_name::<A>(), self.to.pid())
    }
}

impl<A> Recipient<A> {
    /// Returns the pid of the process.
    pub fn pid(&self) -> Pid {
        self.to.pid()
    }

    /// Sends a message. This method never blocks. Unlike [`Address::send`], this method converts the message. The
    /// method first checks that the mailbox takes messages, then converts the message, and then sends the result. If
    /// the process exits or its mailbox fills up during the conversion, the send succeeds, and the message becomes a
    /// [dead letter](crate::Host::dead_letters).
    ///
    /// # Errors
    /// Returns the message if the process has exited, if its mailbox is full and rejects messages, or if the runtime
    /// has shut down.
    pub fn send(&self, message: A) -> Result<(), SendError<A>> {
        self.to.take(message)
    }

    /// Sends an urgent message: see [`Address::send_urgent`]. The method converts the message as [`send`](Self::send)
    /// does.
    ///
    /// # Errors
    /// Returns the message if the process has exited, if its mailbox has no room for urgent messages, or if the runtime
    /// has shut down.
    pub fn send_urgent(&self, message: A) -> Result<(), SendError<A>> {
        self.to.take_urgent(message)
    }
}

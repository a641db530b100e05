//! An address narrowed to one kind of message, for whoever is to send nothing else.

use std::any::type_name;
use std::fmt;

use crate::context::address::Address;
use crate::host::control::Control;
use crate::observe::Counter;
use crate::process::error::SendError;
use crate::process::pid::Pid;
use crate::process::state::Ref;

/// The right to send one kind of message to a process that takes more: an [`Address`] narrowed by `From`.
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

/// An address, as far as it takes `A`.
pub(crate) trait Takes<A>: Send + Sync {
    fn pid(&self) -> Pid;
    fn take(&self, message: A) -> Result<(), SendError<A>>;
}

impl<A: Send + 'static, M: From<A> + Send + 'static> Takes<A> for Control<M> {
    fn pid(&self) -> Pid {
        self.head.pid()
    }

    fn take(&self, message: A) -> Result<(), SendError<A>> {
        if let Some(refusal) = self.refuses() {
            self.head.count(Counter::Refused);
            return Err(SendError::new(refusal, message));
        }
        // The conversion is the user's, so no lock is held over it; and what it made can't be made undone.
        if let Err((_, message)) = self.push(M::from(message)) {
            self.head.host().dead_letters_of(&self.head, std::iter::once(message));
        }
        Ok(())
    }
}

impl<M: Send + 'static> Address<M> {
    /// The right to send messages of type `A` there, and no others.
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
    /// The pid.
    pub fn pid(&self) -> Pid {
        self.to.pid()
    }

    /// Sends a message; never blocks. As [`Address::send`]; a message whose receiver ends or whose mailbox fills up while
    /// it is converted is a [dead letter](crate::Host::dead_letters).
    ///
    /// # Errors
    /// The message, when the process has ended or its mailbox is full.
    pub fn send(&self, message: A) -> Result<(), SendError<A>> {
        self.to.take(message)
    }
}

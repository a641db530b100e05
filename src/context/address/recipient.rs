//! Defines [`Recipient`], an address that accepts only messages of a chosen type. A `Recipient` uses a trait object to
//! hide the message type of the process. A `Recipient` converts each message to the message type of the process.

use std::any::type_name;
use std::fmt;
use std::hash::{Hash, Hasher};

use crate::context::address::Address;
use crate::host::control::Control;
use crate::observe::Counter;
use crate::process::error::{Addressee, SendError};
use crate::process::pid::Pid;
use crate::process::state::Ref;

/// Address that accepts only messages of type `A`. A `Recipient` uses `From` to convert each message from `A` to the
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

/// A control block that accepts messages of type `A`.
pub(crate) trait Takes<A>: Send + Sync {
    fn pid(&self) -> Pid;
    fn is_closed(&self) -> bool;
    fn deliver_converted(&self, message: A) -> Result<(), SendError<A>>;
    fn deliver_urgent_converted(&self, message: A) -> Result<(), SendError<A>>;
}

impl<A: Send + 'static, M: From<A> + Send + 'static> Takes<A> for Control<M> {
    fn pid(&self) -> Pid {
        self.head.pid()
    }

    fn is_closed(&self) -> bool {
        self.inbox.is_closed()
    }

    fn deliver_converted(&self, message: A) -> Result<(), SendError<A>> {
        if let Some(refusal) = self.refuses() {
            self.head.count(Counter::Refused);
            return Err(SendError::new(refusal, message).to(Addressee::Process(self.head.pid())));
        }
        // The conversion runs user code, so this thread must hold no lock here. A converted message cannot be converted
        // back to `A`. Therefore, if the mailbox refuses the converted message, this message becomes a dead letter.
        if let Err((_, message)) = self.push(M::from(message)) {
            self.head.host().dead_letters_of(&self.head, std::iter::once(message));
        }
        Ok(())
    }

    fn deliver_urgent_converted(&self, message: A) -> Result<(), SendError<A>> {
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
    /// Returns a [`Recipient`], which is an address of this process for messages of type `A`.
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

/// Two recipients are equal if they belong to the same process.
impl<A> PartialEq for Recipient<A> {
    fn eq(&self, other: &Self) -> bool {
        self.to.is_same(&other.to)
    }
}

impl<A> Eq for Recipient<A> {}

impl<A> Hash for Recipient<A> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.to.pid().hash(state);
    }
}

impl<A> Recipient<A> {
    /// Returns the pid of the process.
    pub fn pid(&self) -> Pid {
        self.to.pid()
    }

    /// Returns whether the mailbox of the process is closed: see [`Address::is_closed`].
    pub fn is_closed(&self) -> bool {
        self.to.is_closed()
    }

    /// Sends a message. This method never blocks.
    ///
    /// The method first checks that the mailbox accepts messages. The method then converts the message and sends the
    /// converted message. If the mailbox is closed or full after the conversion, the send still succeeds. The converted
    /// message then becomes a [dead letter](crate::Host::dead_letters). In a [pool](crate::Pool) that routes by key,
    /// the converted message also becomes a dead letter if the member for the key of the message is full. The reason is
    /// that the key is known only after the conversion. The free space of other members does not matter.
    ///
    /// # Errors
    /// Returns the message in three cases:
    /// - the process has exited;
    /// - the mailbox is full and rejects messages;
    /// - the runtime has shut down.
    pub fn send(&self, message: A) -> Result<(), SendError<A>> {
        self.to.deliver_converted(message)
    }

    /// Sends an urgent message: see [`Address::send_urgent`]. Like [`send`](Self::send), this method converts the
    /// message.
    ///
    /// # Errors
    /// Returns the message in three cases:
    /// - the process has exited;
    /// - the mailbox has no free space for urgent messages;
    /// - the runtime has shut down.
    pub fn send_urgent(&self, message: A) -> Result<(), SendError<A>> {
        self.to.deliver_urgent_converted(message)
    }
}

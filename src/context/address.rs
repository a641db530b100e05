//! The typed face of a pid.

pub(crate) mod recipient;
pub(crate) mod send_wait;

use std::any::type_name;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::FusedFuture;

use crate::context::call::{Call, Reply};
use crate::host::control::{AnyControl, Change, Control, Listening};
use crate::host::{Host, Route, Target, Way};
use crate::observe::Counter;
use crate::process::error::SendError;
use crate::process::exit::Exit;
use crate::process::pid::Pid;
use crate::process::state::Ref;

/// A pid with its way there: cheap to clone, works on any thread, and takes messages of type `M` alone.
///
/// ```
/// use procession::{Address, Context, Exit, Runtime};
///
/// async fn adder(mut ctx: Context<u64>) -> Result<u64, Exit> {
///     Ok(ctx.receive().await? + ctx.receive().await?)
/// }
/// let rt = Runtime::new()?;
/// let adder = rt.spawn(adder);
/// let address: Address<u64> = adder.address();
/// address.send(3)?;
/// std::thread::spawn(move || address.send(4)).join().unwrap()?;
/// assert_eq!(rt.block_on(adder)?, 7);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub struct Address<M> {
    control: Ref<Control<M>>,
}

impl<M> Clone for Address<M> {
    fn clone(&self) -> Self {
        Self { control: self.control.clone() }
    }
}

impl<M> fmt::Debug for Address<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address<{}>({})", type_name::<M>(), self.control.head.pid())
    }
}

impl<M> PartialEq for Address<M> {
    fn eq(&self, other: &Self) -> bool {
        self.control.is_same(&other.control)
    }
}

impl<M> Eq for Address<M> {}

impl<M: Send + 'static> Address<M> {
    pub(crate) fn new(control: Ref<Control<M>>) -> Self {
        Self { control }
    }

    pub(crate) fn control(&self) -> &Ref<Control<M>> {
        &self.control
    }

    /// The pid.
    pub fn pid(&self) -> Pid {
        self.control.head.pid()
    }

    /// Sends a message; never blocks. Messages from one sender arrive in the order in which they were sent.
    ///
    /// # Errors
    /// The message, when the process has ended or takes no more mail.
    #[inline]
    pub fn send(&self, message: M) -> Result<(), SendError<M>> {
        self.control.push(message).map_err(|(refusal, message)| {
            self.control.head.count(Counter::Refused);
            SendError::new(refusal, message)
        })
    }

    /// Asks, and resolves to the reply: the request is a message that carries a [`Reply`].
    ///
    /// The message is sent at the first poll, or by [`Call::start`].
    ///
    /// ```
    /// # use procession::{Context, Exit, Reply, Runtime};
    /// enum Msg { Len(String, Reply<usize>) }
    /// async fn server(mut ctx: Context<Msg>) -> Result<(), Exit> {
    ///     loop {
    ///         let Msg::Len(text, reply) = ctx.receive().await?;
    ///         reply.send(text.len());
    ///     }
    /// }
    /// let rt = Runtime::new()?;
    /// let server = rt.spawn(server);
    /// let second = std::time::Duration::from_secs(1);
    /// assert_eq!(rt.block_on(server.call(|reply| Msg::Len("four".into(), reply)).timeout(second))?, 4);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn call<T: Send + 'static>(&self, request: impl FnOnce(Reply<T>) -> M) -> Call<T> {
        self.control.head.host().call(self, request)
    }

    /// Resolves when the process has ended, with how.
    pub fn ended(&self) -> Ended {
        Ended::new(Some(self.control.any()))
    }

    /// The most messages that waited unread in the mailbox at a time. Without a [`Bound`](crate::Bound) it is the longest
    /// burst: the most that its receiver found there at once, or would now; what it had read ahead is not counted.
    pub fn high_water(&self) -> usize {
        self.control.inbox.high()
    }
}

impl<M: Send + 'static> Target<M> for &Address<M> {}
impl<M: Send + 'static> Route<M> for &Address<M> {
    fn way(&self) -> Way<'_, M> {
        Way::Here(&self.control)
    }
}

impl Host {
    /// The typed address of a process, if it lives and takes messages of type `N`.
    pub fn address<N: Send + 'static>(&self, pid: Pid) -> Option<Address<N>> {
        self.typed(pid).map(Address::new)
    }

    /// The control block of a process that takes `N`.
    fn typed<N: Send + 'static>(&self, pid: Pid) -> Option<Ref<Control<N>>> {
        self.shared().relay.get(pid)?.downcast()
    }

    /// Resolves when the process has ended, with how; at once if no such process lives.
    pub fn ended(&self, pid: Pid) -> Ended {
        Ended::new(self.shared().relay.get(pid))
    }
}

/// Resolves when a process has ended, with how.
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct Ended {
    control: Option<Ref<dyn AnyControl>>,
    listening: Listening,
    over: bool,
}

impl Ended {
    pub(crate) fn new(control: Option<Ref<dyn AnyControl>>) -> Self {
        if let Some(control) = &control {
            control.head().await_end(Change::More);
        }
        Self { control, listening: Listening::default(), over: false }
    }

    /// It waits no longer.
    fn leave(&mut self) {
        if let Some(control) = self.control.take() {
            control.head().await_end(Change::Less);
        }
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Future for Ended {
    type Output = Exit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Exit> {
        let this = &mut *self;
        if this.over {
            return Poll::Pending;
        }
        let exit = match &this.control {
            None => Exit::NoProcess,
            Some(control) => {
                let head = control.head();
                match head.poll_news(&mut this.listening, cx, || head.exit()) {
                    Poll::Ready(exit) => {
                        head.received_exit();
                        exit
                    }
                    Poll::Pending => return Poll::Pending,
                }
            }
        };
        this.leave();
        this.over = true;
        Poll::Ready(exit)
    }
}

impl FusedFuture for Ended {
    fn is_terminated(&self) -> bool {
        self.over
    }
}

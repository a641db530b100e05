//! Defines [`Address`], the typed address of a process, and [`Exited`], a future that waits for the exit of a process.
//! An address points directly to the control block of the process. Therefore a send to an address does not search the
//! pid table.

pub(crate) mod recipient;
pub(crate) mod send_wait;

use std::any::type_name;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::FusedFuture;

use crate::context::call::{Call, Reply};
use crate::host::Host;
use crate::host::control::waits::{Wait, WaitKind};
use crate::host::control::{AnyControl, Control, Listening};
use crate::host::refs::RecordedWait;
use crate::host::registry::target::{DestinationRef, Route, Target};
use crate::observe::Counter;
use crate::process::error::{Addressee, SendError};
use crate::process::exit::{Exit, Reason};
use crate::process::pid::Pid;
use crate::process::state::Ref;
use crate::process::state::budget::BudgetPause;

/// Typed address of a process. An address sends messages of type `M` to the process. A send to an address is faster
/// than a send to a [`Pid`], because the runtime does not look up the pid. An address is cheap to clone. Any thread can
/// use an address. Two addresses of the same process are equal.
///
/// An address of a process does not prevent the exit of the process. But an address keeps two things in memory: the
/// memory block of the process, and the handlers of the process's runtime. If an address outlives the runtime of the
/// process, the address also keeps about 380 KiB of the runtime's memory. A [`Pid`] keeps nothing.
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

impl<M> Hash for Address<M> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The hash does not depend on a memory address. Otherwise, the iteration order of a map with a fixed hasher
        // would differ between two simulations with the same seed.
        self.control.head.pid().hash(state);
    }
}

impl<M: Send + 'static> Address<M> {
    pub(crate) fn new(control: Ref<Control<M>>) -> Self {
        Self { control }
    }

    pub(crate) fn control(&self) -> &Ref<Control<M>> {
        &self.control
    }

    /// Returns the pid of the process.
    pub fn pid(&self) -> Pid {
        self.control.head.pid()
    }

    /// Returns the host of the process.
    pub fn host(&self) -> &Host {
        self.control.head.host()
    }

    /// Sends a message. This method never blocks. Messages from one sender arrive in the order in which they were sent.
    ///
    /// The [`MailboxCapacity`](crate::MailboxCapacity) of the mailbox determines what happens when the mailbox is full.
    /// If a full mailbox drops a message, the send succeeds, and the dropped message becomes a dead letter.
    ///
    /// # Errors
    /// Returns the message in three cases:
    /// - the process has exited;
    /// - the mailbox is full and rejects messages;
    /// - the runtime has shut down.
    ///
    /// # Panics
    /// Panics if the process is a [`Pool::by_key`](crate::Pool::by_key) whose key function panics.
    #[inline]
    pub fn send(&self, message: M) -> Result<(), SendError<M>> {
        self.control.push(message).map_err(|(refusal, message)| {
            self.control.head.count(Counter::Refused);
            SendError::new(refusal, message).to(Addressee::Process(self.pid()))
        })
    }

    /// Sends an urgent message. This method never blocks. The receiver reads an urgent message before all unread normal
    /// messages and events. The messages that [`receive_where`](crate::Mailbox::receive_where) has skipped are also
    /// unread messages. The receiver reads urgent messages in the order of their arrival.
    ///
    /// Urgent messages do not count as normal messages of the [`MailboxCapacity`](crate::MailboxCapacity). A mailbox
    /// with a capacity of n stores at most n normal messages and at most n urgent messages. The mailbox refuses further
    /// urgent messages, and never drops an urgent message. A [`Pool`](crate::Pool) passes an urgent message to one of
    /// its members. If no member accepts the urgent message, the send fails.
    ///
    /// An urgent message does not interrupt the current step of the receiver. To stop a process, use
    /// [`cancel`](Self::cancel) or [`kill`](Self::kill).
    ///
    /// ```
    /// # use procession::{Context, Exit, Runtime};
    /// # let rt = Runtime::builder().workers(0).build()?;
    /// let reader = rt.spawn(async |mut ctx: Context<&'static str>| -> Result<_, Exit> {
    ///     Ok([ctx.receive().await?, ctx.receive().await?])
    /// });
    /// reader.send("normal")?;
    /// reader.send_urgent("urgent")?;
    /// assert_eq!(rt.block_on(reader)?, ["urgent", "normal"]);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    /// Returns the message in three cases:
    /// - the process has exited;
    /// - the mailbox has no free space for urgent messages;
    /// - the runtime has shut down.
    pub fn send_urgent(&self, message: M) -> Result<(), SendError<M>> {
        self.control.push_urgent(message).map_err(|(refusal, message)| {
            self.control.head.count(Counter::Refused);
            SendError::new(refusal, message).to(Addressee::Process(self.pid()))
        })
    }

    /// Returns a future that sends a request and resolves to the reply. The request contains a [`Reply`], which the
    /// receiver uses to answer.
    ///
    /// This method immediately calls `request`, which makes the message from the `Reply`. The first poll of the future,
    /// or [`Call::start`], sends the message. If the call fails, the future resolves to a
    /// [`CallError`](crate::CallError). If the mailbox is full and rejects messages, the call fails immediately. To
    /// wait for free space, use [`call_wait`](Self::call_wait).
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
    #[track_caller]
    pub fn call<T: Send + 'static>(&self, request: impl FnOnce(Reply<T>) -> M) -> Call<T> {
        self.control.head.host().call(self, request)
    }

    /// Returns whether the mailbox of the process is closed. A closed mailbox refuses every message, because the
    /// process is exiting or has exited.
    ///
    /// If `is_closed` returns `false`, the process can still exit before the caller uses the result. After a kill, the
    /// mailbox stays open until the killed process runs next.
    pub fn is_closed(&self) -> bool {
        self.control.inbox.is_closed()
    }

    /// Asks the process to exit: see [`Host::cancel`]. If the process has not exited after the time `grace`, the
    /// runtime kills the process. If the process has already exited, this method has no effect.
    pub fn cancel(&self, reason: impl Into<Reason>, grace: Duration) {
        let host = self.host();
        host.cancel_until(&self.control.any(), reason.into(), host.now() + grace);
    }

    /// Kills the process: see [`Host::kill`]. If the process has already exited, this method has no effect.
    pub fn kill(&self) {
        self.control.any().kill();
    }

    /// Returns a future that waits until the process has exited, and then resolves to the exit of the process.
    #[track_caller]
    pub fn exited(&self) -> Exited {
        Exited::new(Some(self.control.any()))
    }

    /// Returns the number of messages that are in the mailbox now, including the urgent messages. A sender can use this
    /// number to reduce its load. The call takes the lock of the mailbox for a short time.
    ///
    /// A process may take several messages out of the mailbox together, and then read the messages one by one. The
    /// number does not include messages that the process has already taken out. The number also does not include the
    /// messages of senders that wait for free space. Events such as exits and answers do not count. If the process is a
    /// [`Pool`](crate::Pool), the number includes only the messages in the queue of the pool.
    pub fn mailbox_len(&self) -> usize {
        self.control.inbox.messages()
    }

    /// Returns the maximum number of unread messages that were in the mailbox at the same time.
    ///
    /// For a mailbox without a [`MailboxCapacity`](crate::MailboxCapacity), the result is the larger of these two
    /// numbers:
    /// - the largest number of messages that the receiver has taken out of the mailbox in one operation;
    /// - the number of messages that are in the mailbox now.
    ///
    /// The receiver takes messages out of the mailbox in batches, and stores each batch in a buffer. The result does
    /// not include the messages in this buffer.
    pub fn peak_mailbox_len(&self) -> usize {
        self.control.inbox.high()
    }
}

impl<M: Send + 'static> Target<M> for &Address<M> {}
impl<M: Send + 'static> Route<M> for &Address<M> {
    fn destination(&self) -> DestinationRef<'_, M> {
        DestinationRef::Here(&self.control)
    }
}

impl Host {
    /// Returns the typed address of the process with this pid. Returns `None` if the process has exited or if its
    /// message type is not `N`.
    pub fn address<N: Send + 'static>(&self, pid: Pid) -> Option<Address<N>> {
        self.typed(pid).map(Address::new)
    }

    /// Returns the control block of the process with this pid, if the message type of the process is `N`.
    fn typed<N: Send + 'static>(&self, pid: Pid) -> Option<Ref<Control<N>>> {
        self.shared().pid_table.get(pid)?.downcast()
    }

    /// Returns a future that waits until the process has exited, and then resolves to the exit of the process. If no
    /// process of this runtime has this pid, the future immediately resolves to [`Exit::NoProcess`].
    #[track_caller]
    pub fn exited(&self, pid: Pid) -> Exited {
        Exited::new(self.shared().pid_table.get(pid))
    }
}

/// Future that waits until a process has exited, and then resolves to the [`Exit`] of the process. If the process did
/// not exist when the future was created, the future resolves to [`Exit::NoProcess`].
///
/// If a process fails, and no join handle, link, monitor or future receives the exit, the runtime reports the failure
/// as unobserved. While an `Exited` future of the process is pending, the runtime does not report the failure.
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct Exited {
    control: Option<Ref<dyn AnyControl>>,
    listening: Listening,
    pause: BudgetPause,
    over: bool,
    recorded: RecordedWait,
    /// Source line that created the future. Inspections show this line.
    line: &'static Location<'static>,
}

impl Exited {
    #[track_caller]
    pub(crate) fn new(control: Option<Ref<dyn AnyControl>>) -> Self {
        if let Some(control) = &control {
            control.head().begin_await();
        }
        Self {
            control,
            listening: Listening::default(),
            pause: BudgetPause::default(),
            over: false,
            recorded: RecordedWait::default(),
            line: Location::caller(),
        }
    }

    /// Records that this future no longer waits for the exit of the process.
    fn leave(&mut self) {
        if let Some(control) = self.control.take() {
            let head = control.head();
            self.recorded.end(head.host(), || Wait::on(WaitKind::Exit, head.pid(), Some(self.line)));
            if head.end_await() {
                head.host().report_unobserved(head);
            }
        }
    }
}

impl Drop for Exited {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Future for Exited {
    type Output = Exit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Exit> {
        let this = &mut *self;
        if this.over {
            return Poll::Pending;
        }
        if this.control.as_ref().is_none_or(|control| control.head().has_ended()) {
            ready!(this.pause.spend(cx));
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
                    Poll::Pending => {
                        this.recorded.begin(head.host(), &Wait::on(WaitKind::Exit, head.pid(), Some(this.line)));
                        return Poll::Pending;
                    }
                }
            }
        };
        this.leave();
        this.over = true;
        Poll::Ready(exit)
    }
}

impl FusedFuture for Exited {
    fn is_terminated(&self) -> bool {
        self.over
    }
}

//! Servers. A server is a process that consists of a state and message handlers. The design follows OTP's `gen_server`.
//! The receive loop is in this file, so the code of a server needs no receive loop.

use std::future::Future;
use std::task::{Context as Cx, Poll};

use futures::future::FusedFuture;

use crate::context::Context;
use crate::context::mailbox::{Mailbox, event_of};
use crate::context::step::Next;
use crate::context::time::Sleep;
use crate::host::control::flag;
use crate::platform::clock::Instant;
use crate::platform::sync::Arc;
use crate::process::error::InitError;
use crate::process::event::{Event, Signal};
use crate::process::exit::{Exit, Reason};

/// A state with message handlers. The server handles one message after another. The trait provides the receive loop.
///
/// The method [`serve`](Self::serve) makes the body of the process: `rt.spawn(|ctx| server.serve(ctx))`, or
/// `Child::new(NAME, |ctx| Counter::default().serve(ctx))`. The method `serve` allocates no memory.
///
/// | `gen_server` | here |
/// |---|---|
/// | `init` | [`init`](Self::init). [`started`](crate::JoinHandle::started) and a supervisor wait until `init` has returned |
/// | `handle_call` | [`handle`](Self::handle), with a message that contains a [`Reply`](crate::Reply) |
/// | `handle_cast` | `handle`, with a message without a `Reply` |
/// | `{reply, …}`, `{noreply, …}` and `gen_server:reply` | `reply.send(…)`, now or later: a `Reply` may be stored in the state or sent to another process, and can report that the caller no longer waits |
/// | `handle_info` | [`handle_info`](Self::handle_info): `Down` events, trapped exits, changes of groups |
/// | `{timeout, …}`, `state_timeout` | [`deadline`](Self::deadline) and [`handle_timeout`](Self::handle_timeout) |
/// | `{continue, …}` | [`Next::Again`] and [`handle_continue`](Self::handle_continue) |
/// | `{stop, normal, …}`, `{stop, Reason, …}` | [`Next::Done`], an error |
/// | `terminate` | [`terminate`](Self::terminate) |
///
/// Handlers receive the whole [`Context`], and may use all its methods. For example, a handler may receive selectively,
/// stash messages, spawn processes, and create links. While a handler awaits, the next message waits. Only the process
/// itself polls the futures of its handlers. When the process exits, the future of a running handler is dropped. A
/// handler is stopped at an `await` in three cases: the process is killed; a linked process exits abnormally, and the
/// server does not trap exits; or a [limit](crate::Limits) is exceeded. A cancellation does not stop a handler.
///
/// After a cancellation, the server handles no further message. If a handler is running, the handler continues to its
/// end. The handler can detect the cancellation with [`cancelled`](crate::SelfHandle::cancelled). After the end of the
/// handler, the server calls `terminate`.
///
/// There is no separate trait for state machines. A state machine is a server whose state contains an `enum`. The
/// handler matches this `enum` together with the message. To postpone a message, the handler [stashes](Context::stash)
/// the message, and unstashes the message when the server enters another state. A state timeout is a `deadline` that is
/// stored in the current state.
///
/// ```
/// use procession::{Context, Exit, Instant, Next, Reply, Runtime, Server};
/// use std::time::Duration;
///
/// enum Door { Shut, Open { until: Instant } }
///
/// enum Msg {
///     Open,
///     IsOpen(Reply<bool>),
///     /// This message is answered when the door falls shut.
///     Shut(Reply<u64>),
/// }
///
/// struct Hall { door: Door, waiting: Vec<Reply<u64>>, opened: u64 }
///
/// impl Server for Hall {
///     type Message = Msg;
///     type Output = ();
///
///     async fn handle(&mut self, message: Msg, ctx: &mut Context<Msg>) -> Result<Next<()>, Exit> {
///         match (&self.door, message) {
///             (Door::Shut, Msg::Open) => {
///                 self.opened += 1;
///                 self.door = Door::Open { until: ctx.now() + Duration::from_millis(5) };
///             }
///             (Door::Open { .. }, Msg::Open) => {}
///             (door, Msg::IsOpen(reply)) => reply.send(matches!(door, Door::Open { .. })),
///             (Door::Shut, Msg::Shut(reply)) => reply.send(self.opened),
///             (Door::Open { .. }, Msg::Shut(reply)) => self.waiting.push(reply),
///         }
///         Ok(Next::Wait)
///     }
///
///     fn deadline(&self) -> Option<Instant> {
///         match self.door {
///             Door::Open { until } => Some(until),
///             Door::Shut => None,
///         }
///     }
///
///     async fn handle_timeout(&mut self, _: &mut Context<Msg>) -> Result<Next<()>, Exit> {
///         self.door = Door::Shut;
///         self.waiting.drain(..).for_each(|reply| reply.send(self.opened));
///         Ok(Next::Wait)
///     }
/// }
///
/// let rt = Runtime::new()?;
/// let hall = Hall { door: Door::Shut, waiting: Vec::new(), opened: 0 };
/// let hall = rt.spawn(|ctx| hall.serve(ctx));
/// hall.send(Msg::Open)?;
/// assert!(rt.block_on(hall.call(Msg::IsOpen))?);
/// assert_eq!(rt.block_on(hall.call(Msg::Shut))?, 1);
/// assert!(!rt.block_on(hall.call(Msg::IsOpen))?);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub trait Server: Sized + Send + 'static {
    /// Type of the messages. A call is a message that contains a [`Reply`](crate::Reply). A cast is a message without a
    /// `Reply`.
    type Message: Send + 'static;
    /// Result of the process when the server is [done](Next::Done). The join handle returns this result.
    type Output: Send + 'static;

    /// Initialises the server before any message is handled. When this method has returned,
    /// [`started`](crate::JoinHandle::started) resolves. With [`manual_start`](crate::ProcessBuilder::manual_start),
    /// `started` resolves when the server reports its start. The default implementation does nothing.
    ///
    /// # Errors
    /// If this method returns an error, the process exits without a call of [`terminate`](Self::terminate).
    /// [`Exit::Failed`] is converted to [`Exit::InitFailed`]. All other exits, for example a cancellation, are not
    /// changed.
    fn init(&mut self, ctx: &mut Context<Self::Message>) -> impl Future<Output = Result<(), Exit>> + Send {
        let _ = ctx;
        std::future::ready(Ok(()))
    }

    /// Handles one message.
    ///
    /// # Errors
    /// If this method returns an error, the server calls [`terminate`](Self::terminate), and the process exits with
    /// this error.
    fn handle(
        &mut self,
        message: Self::Message,
        ctx: &mut Context<Self::Message>,
    ) -> impl Future<Output = Result<Next<Self::Output>, Exit>> + Send;

    /// Handles an event other than a message: an [`Event::Down`], an [`Event::Exit`], an [`Event::Joined`] or an
    /// [`Event::Left`]. The server handles events and messages in the order in which they arrived. The default
    /// implementation ignores these events.
    ///
    /// # Errors
    /// If this method returns an error, the server calls [`terminate`](Self::terminate), and the process exits with
    /// this error.
    fn handle_info(
        &mut self,
        event: Event<Self::Message>,
        ctx: &mut Context<Self::Message>,
    ) -> impl Future<Output = Result<Next<Self::Output>, Exit>> + Send {
        let _ = (event, ctx);
        std::future::ready(Ok(Next::Wait))
    }

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) should next be called. `None` (the default)
    /// means never.
    ///
    /// Before each message, the server loop calls this method, and uses the new value. If the server sets the time when
    /// it enters a state, the deadline is a state timeout. If the server sets the time at each message, the deadline is
    /// an idle timeout. Moving the deadline to a later time costs nothing.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Handles the [`deadline`](Self::deadline). The server calls this method when the deadline has passed, and never
    /// earlier. Before this call, the server handles all messages that were in the mailbox when the deadline passed. An
    /// urgent message that arrives between the deadline and the call counts as one of these messages. While the
    /// deadline stays the same, the server repeats the call, and other processes run between the calls. The default
    /// implementation does nothing.
    ///
    /// # Errors
    /// If this method returns an error, the server calls [`terminate`](Self::terminate), and the process exits with
    /// this error.
    fn handle_timeout(
        &mut self,
        ctx: &mut Context<Self::Message>,
    ) -> impl Future<Output = Result<Next<Self::Output>, Exit>> + Send {
        let _ = ctx;
        std::future::ready(Ok(Next::Wait))
    }

    /// Continues the work after a [`Next::Again`]. The server first lets other processes run, then calls this method,
    /// and only then handles the next message. Use this method to divide long work into pieces. The default
    /// implementation does nothing.
    ///
    /// # Errors
    /// If this method returns an error, the server calls [`terminate`](Self::terminate), and the process exits with
    /// this error.
    fn handle_continue(
        &mut self,
        ctx: &mut Context<Self::Message>,
    ) -> impl Future<Output = Result<Next<Self::Output>, Exit>> + Send {
        let _ = ctx;
        std::future::ready(Ok(Next::Wait))
    }

    /// Cleans up when the process exits. The argument `exit` is the exit of the process: [`Exit::Normal`] if the server
    /// is done, [`Exit::Cancelled`] after a cancellation, or the error of a handler. In this method,
    /// [`try_receive`](Context::try_receive) returns the unread messages. After a cancellation, this method must return
    /// within the grace period. The default implementation does nothing.
    ///
    /// After a failed `init`, a kill, or a panic, this method is not called. If a clean-up must always happen,
    /// implement `Drop`.
    fn terminate(self, exit: &Exit, ctx: &mut Context<Self::Message>) -> impl Future<Output = ()> + Send {
        let _ = (self, exit, ctx);
        std::future::ready(())
    }

    /// Returns the body of the process. Pass this body to a spawn function.
    ///
    /// # Errors
    /// The body fails with the exit of the process, except if the server is [done](Next::Done).
    fn serve(self, ctx: Context<Self::Message>) -> impl Future<Output = Result<Self::Output, Exit>> + Send {
        serve(self, ctx)
    }
}

async fn serve<S: Server>(mut server: S, mut ctx: Context<S::Message>) -> Result<S::Output, Exit> {
    // If the caller of the spawn has already set the flag `MANUAL_START` (with `manual_start`), the code of the server
    // must call `mark_started`. Otherwise this function calls `mark_started`.
    let must_mark_started = ctx.control().head.set(flag::MANUAL_START);
    server.init(&mut ctx).await.map_err(init_failed)?;
    if must_mark_started {
        ctx.mark_started();
    }
    let ended = receive_loop(&mut server, &mut ctx).await;
    server.terminate(ended.as_ref().err().unwrap_or(&Exit::Normal), &mut ctx).await;
    ended
}

fn init_failed(exit: Exit) -> Exit {
    match exit {
        exit @ Exit::Failed(_) => Exit::InitFailed(Arc::new(InitError::failed(exit))),
        other => other,
    }
}

async fn receive_loop<S: Server>(server: &mut S, ctx: &mut Context<S::Message>) -> Result<S::Output, Exit> {
    let mut target = ServerContext::default();
    loop {
        let heard = match target.pop_read_ahead(server, ctx.mailbox()) {
            Some(message) => NextInput::Message(message),
            None => std::future::poll_fn(|cx| target.poll_next(server, ctx.mailbox(), cx)).await,
        };
        let mut next = match heard {
            NextInput::Message(message) => server.handle(message, ctx).await?,
            NextInput::Signal => match target.signal.take() {
                // The cancel flag of the process is set before this signal is queued. Therefore, either an earlier poll
                // has read the flag, or the next poll reads the flag.
                None | Some(Signal::Cancel { .. }) => Next::Wait,
                Some(signal) => match event_of(&ctx.control().head, signal) {
                    Some(event) => server.handle_info(event, ctx).await?,
                    None => Next::Wait,
                },
            },
            NextInput::Deadline => server.handle_timeout(ctx).await?,
            NextInput::Cancel(reason) => return Err(Exit::Cancelled(reason)),
        };
        loop {
            match next {
                Next::Wait => break,
                Next::Done(output) => return Ok(output),
                Next::Again => ctx.yield_now().await,
            }
            if let Some((reason, _)) = ctx.control().head.cancel() {
                return Err(Exit::Cancelled(reason));
            }
            next = server.handle_continue(ctx).await?;
        }
    }
}

/// The next input of the server loop. If the input is `Signal`, the signal itself is in the field `signal` of
/// `ServerContext`.
enum NextInput<M> {
    Message(M),
    Signal,
    Deadline,
    Cancel(Reason),
}

/// Pending input of a server: a signal, and the timer of the deadline.
#[derive(Debug, Default)]
struct ServerContext {
    signal: Option<Signal>,
    timer: ServerTimer,
}

impl ServerContext {
    /// Returns the next message of the read-ahead buffer. If several messages arrive together, `poll_next` returns the
    /// first message, and later calls of this function return the other messages. Returns `None` if a deadline or a
    /// cancellation must be checked first.
    #[inline]
    fn pop_read_ahead<S: Server>(&mut self, server: &S, mailbox: &mut Mailbox<S::Message>) -> Option<S::Message> {
        if self.has_deadline(server.deadline()) || mailbox.control().head.is_disturbed() {
            return None;
        }
        mailbox.pop_ahead()
    }

    /// Returns true if there is a deadline, or a timer of an earlier deadline.
    #[inline]
    fn has_deadline(&self, deadline: Option<Instant>) -> bool {
        deadline.is_some() || self.timer.sleep.is_some()
    }

    #[inline]
    fn poll_next<S: Server>(
        &mut self,
        // The reference is mutable, because a shared reference would require that the server is `Sync`.
        server: &mut S,
        mailbox: &mut Mailbox<S::Message>,
        cx: &mut Cx<'_>,
    ) -> Poll<NextInput<S::Message>> {
        if let Some((reason, _)) = mailbox.control().head.cancel() {
            return Poll::Ready(NextInput::Cancel(reason));
        }
        let deadline = server.deadline();
        if self.has_deadline(deadline) {
            return self.poll_with_deadline(deadline, mailbox, cx);
        }
        if mailbox.is_spent(cx) { Poll::Pending } else { self.poll_mail(mailbox, cx) }
    }

    // `always` is necessary: otherwise the compiler does not inline this function into the poll of a server that has no
    // deadline. A server without a deadline calls this function for each message.
    #[inline(always)]
    fn poll_mail<M: Send + 'static>(&mut self, mailbox: &mut Mailbox<M>, cx: &mut Cx<'_>) -> Poll<NextInput<M>> {
        let next = mailbox.next_event(&mut self.signal, cx);
        next.map(|message| message.map_or(NextInput::Signal, NextInput::Message))
    }

    /// The timer is polled only when there is no message or when the budget of the turn is spent. For each message,
    /// this function only reads the clock. If the handlers wait, each message begins a new turn with a full budget, so
    /// the budget is never spent. As long as the handlers wait and the mailbox has messages, the server detects the
    /// deadline only by this reading of the clock.
    fn poll_with_deadline<M: Send + 'static>(
        &mut self,
        deadline: Option<Instant>,
        mailbox: &mut Mailbox<M>,
        cx: &mut Cx<'_>,
    ) -> Poll<NextInput<M>> {
        self.timer.adapt_to_deadline(deadline);
        let is_spent = mailbox.is_spent(cx);
        if !is_spent {
            if self.timer.take_due() {
                return Poll::Ready(NextInput::Deadline);
            }
            if let Poll::Ready(heard) = self.poll_mail(mailbox, cx) {
                self.timer.count_read();
                self.timer.detect(deadline, mailbox);
                return Poll::Ready(heard);
            }
        }
        match deadline {
            Some(deadline) if self.timer.poll_due(deadline, mailbox, cx) && !is_spent => {
                self.timer.passed = None;
                Poll::Ready(NextInput::Deadline)
            }
            _ => Poll::Pending,
        }
    }
}

#[derive(Debug, Default)]
struct ServerTimer {
    /// The timer may be set for an earlier deadline that no longer applies. If the timer fires too early, the timer is
    /// set again.
    sleep: Option<Sleep>,
    /// The deadline that has passed, and the number of messages that were queued at this deadline and are still unread.
    passed: Option<(Instant, usize)>,
}

impl ServerTimer {
    /// Adapts this timer to the current deadline, which may have changed since the last poll. If the server has moved
    /// the deadline to a later time, this function discards the record of the passed deadline. If the server has no
    /// deadline, this function also discards the timer.
    fn adapt_to_deadline(&mut self, deadline: Option<Instant>) {
        match deadline {
            None => *self = Self::default(),
            Some(deadline) => self.passed = self.passed.filter(|&(passed, _)| deadline <= passed),
        }
    }

    /// If the deadline has passed, records how many messages the server must handle before it calls `handle_timeout`.
    /// Does nothing if this number is already recorded.
    fn detect<M: Send + 'static>(&mut self, deadline: Option<Instant>, mailbox: &mut Mailbox<M>) {
        if self.passed.is_none() {
            self.passed = deadline.filter(|&at| mailbox.me().now() >= at).map(|at| (at, mailbox.unread()));
        }
    }

    /// Returns true if the deadline has passed, and the server has read all messages that it must handle before the
    /// timeout. In this case, also clears the passed deadline.
    fn take_due(&mut self) -> bool {
        self.passed.take_if(|&mut (_, unread)| unread == 0).is_some()
    }

    fn count_read(&mut self) {
        if let Some((_, unread)) = &mut self.passed {
            *unread = unread.saturating_sub(1);
        }
    }

    /// Returns true if the deadline has passed and the mailbox has no unread message. If the deadline has not passed,
    /// the timer will wake the task at the deadline.
    fn poll_due<M: Send + 'static>(&mut self, deadline: Instant, mailbox: &mut Mailbox<M>, cx: &mut Cx<'_>) -> bool {
        if self.passed.is_none() {
            let sleep = self.sleep.get_or_insert_with(|| mailbox.me().sleep_until(deadline));
            if sleep.is_terminated() || deadline < sleep.deadline() {
                sleep.reset(deadline);
            }
            // When the budget is spent, the receive of the server pauses. Therefore the sleep itself need not pause.
            while sleep.poll_without_pause(cx).is_ready() {
                if sleep.deadline() == deadline {
                    self.passed = Some((deadline, mailbox.unread()));
                    break;
                }
                sleep.reset(deadline);
            }
        }
        self.passed.is_some() && mailbox.unread() == 0
    }
}

//! Servers: a process as a state and what becomes of it at each message, after OTP's `gen_server`. The loop that every
//! such body would write is written here, once; it adds nothing to it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context as Cx, Poll};

use futures::future::FusedFuture;

use crate::context::Context;
use crate::context::mailbox::Mailbox;
use crate::context::step::Next;
use crate::context::time::Sleep;
use crate::host::control::flag;
use crate::platform::clock::Instant;
use crate::platform::sync::Arc;
use crate::process::error::InitError;
use crate::process::event::{Event, Signal};
use crate::process::exit::{Exit, Reason};

/// A state that answers messages, one after another: what is left of a body when its loop is taken out.
///
/// [`serve`](Self::serve) makes the body: `rt.spawn(|ctx| server.serve(ctx))`, or
/// `Child::new(NAME, |ctx| Counter::default().serve(ctx))`. It allocates nothing and boxes nothing.
///
/// | `gen_server` | here |
/// |---|---|
/// | `init` | [`init`](Self::init): [`started`](crate::JoinHandle::started), and a supervisor, wait for it |
/// | `handle_call` | [`handle`](Self::handle), with a message that has a [`Reply`](crate::Reply) in it |
/// | `handle_cast` | `handle`, with one that has none |
/// | `{reply, …}`, `{noreply, …}` and `gen_server:reply` | `reply.send(…)`, now or later: a `Reply` may be kept in the state, sent elsewhere, and says when nobody waits for it any more |
/// | `handle_info` | [`info`](Self::info): downs, trapped exits, news of groups |
/// | `{timeout, …}`, `state_timeout` | [`deadline`](Self::deadline) and [`timeout`](Self::timeout) |
/// | `{continue, …}` | [`Next::Again`] and [`again`](Self::again) |
/// | `{stop, normal, …}`, `{stop, Reason, …}` | [`Next::Done`], an error |
/// | `terminate` | [`terminate`](Self::terminate) |
///
/// Handlers are given the whole [`Context`], and may do with it whatever a body may: receive selectively, put messages
/// aside, spawn, link. While one awaits, the next message waits. Its futures are polled by its own process alone, and are
/// dropped with it: a handler may be left at any `await` by a kill, and not otherwise.
///
/// After a cancel no more messages are handled: a handler that is under way goes on to its end, which it may learn of by
/// [`cancelled`](crate::Me::cancelled); then `terminate` is told.
///
/// There is no second helper for state machines: one is a server whose state has an `enum` in it, matched together with
/// the message. What it postpones it [stashes](Context::stash), and unstashes when it enters another state; its state
/// timeout is a `deadline` that this state holds.
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
///     /// Answered when it falls shut.
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
///     async fn timeout(&mut self, _: &mut Context<Msg>) -> Result<Next<()>, Exit> {
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
    /// What it is sent: a call is a message with a [`Reply`](crate::Reply) in it, a cast one without.
    type Message: Send + 'static;
    /// What joining it gives, when it is [done](Next::Done).
    type Output: Send + 'static;

    /// Begins: before any message is handled. [`started`](crate::JoinHandle::started) resolves when this is over; with
    /// [`ready_by_hand`](crate::ProcessBuilder::ready_by_hand) when the server says so.
    ///
    /// # Errors
    /// How the process ends instead, without [`terminate`](Self::terminate): [`Exit::InitFailed`] with an error, or as it
    /// is with any other exit, such as a cancel.
    fn init(&mut self, ctx: &mut Context<Self::Message>) -> impl Future<Output = Result<(), Exit>> + Send {
        let _ = ctx;
        std::future::ready(Ok(()))
    }

    /// Handles one message.
    ///
    /// # Errors
    /// How the process ends.
    fn handle(
        &mut self,
        message: Self::Message,
        ctx: &mut Context<Self::Message>,
    ) -> impl Future<Output = Result<Next<Self::Output>, Exit>> + Send;

    /// Handles what else it hears: an [`Event::Down`], an [`Event::Exit`], an [`Event::Joined`] or an [`Event::Left`], in
    /// order with the messages. If nothing else is said it ignores them.
    ///
    /// # Errors
    /// How the process ends.
    fn info(
        &mut self,
        event: Event<Self::Message>,
        ctx: &mut Context<Self::Message>,
    ) -> impl Future<Output = Result<Next<Self::Output>, Exit>> + Send {
        let _ = (event, ctx);
        std::future::ready(Ok(Next::Wait))
    }

    /// When [`timeout`](Self::timeout) is to be called, as things stand; never, if nothing else is said.
    ///
    /// It is asked whenever the server goes to wait, and is what it says then: a moment that was set when a state was
    /// entered is a state timeout, one that every message moves is an idle timeout. To move it away costs nothing.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// The [`deadline`](Self::deadline) has come: never early, and after all that was in the mailbox when it had. Again
    /// and again, as long as the deadline stays where it is; others run in between.
    ///
    /// # Errors
    /// How the process ends.
    fn timeout(
        &mut self,
        ctx: &mut Context<Self::Message>,
    ) -> impl Future<Output = Result<Next<Self::Output>, Exit>> + Send {
        let _ = ctx;
        std::future::ready(Ok(Next::Wait))
    }

    /// Goes on after a [`Next::Again`], before any other message is handled, and after others have run: for long work in
    /// pieces.
    ///
    /// # Errors
    /// How the process ends.
    fn again(
        &mut self,
        ctx: &mut Context<Self::Message>,
    ) -> impl Future<Output = Result<Next<Self::Output>, Exit>> + Send {
        let _ = ctx;
        std::future::ready(Ok(Next::Wait))
    }

    /// The last that it does, with how it ends: [`Exit::Normal`] when it is done, [`Exit::Cancelled`] after a cancel, the
    /// error of a handler. What is unread is there for [`try_receive`](Context::try_receive). After a cancel it has the
    /// grace to do so.
    ///
    /// It is not called after an `init` that failed, a kill, or a panic: what has to happen in any case belongs into a
    /// `Drop`.
    fn terminate(self, exit: &Exit, ctx: &mut Context<Self::Message>) -> impl Future<Output = ()> + Send {
        let _ = (self, exit, ctx);
        std::future::ready(())
    }

    /// The server as a body, to be spawned.
    ///
    /// # Errors
    /// How the process ends, if it is not [done](Next::Done).
    fn serve(self, ctx: Context<Self::Message>) -> impl Future<Output = Result<Self::Output, Exit>> + Send {
        serve(self, ctx)
    }
}

async fn serve<S: Server>(mut server: S, mut ctx: Context<S::Message>) -> Result<S::Output, Exit> {
    // Set by its spawner, it is for the server to say that it is ready.
    let ready_by_itself = ctx.control().head.set(flag::BY_HAND);
    server.init(&mut ctx).await.map_err(not_begun)?;
    if ready_by_itself {
        ctx.ready();
    }
    let ended = attend(&mut server, &mut ctx).await;
    server.terminate(ended.as_ref().err().unwrap_or(&Exit::Normal), &mut ctx).await;
    ended
}

fn not_begun(exit: Exit) -> Exit {
    match exit {
        exit @ Exit::Failed(_) => Exit::InitFailed(Arc::new(InitError::failed(exit))),
        other => other,
    }
}

async fn attend<S: Server>(server: &mut S, ctx: &mut Context<S::Message>) -> Result<S::Output, Exit> {
    let mut ear = ServerContext::default();
    loop {
        let heard = match ear.hear_ahead(server, ctx.mailbox()) {
            Some(message) => Heard::Message(message),
            None => std::future::poll_fn(|cx| ear.poll_next(server, ctx.mailbox(), cx)).await,
        };
        let mut next = match heard {
            Heard::Message(message) => server.handle(message, ctx).await?,
            Heard::Signal => match ear.signal.take() {
                // Its flag was seen before it, or will be now.
                None | Some(Signal::Cancel { .. }) => Next::Wait,
                Some(signal) => server.info(signal.into_event(ctx.pid()), ctx).await?,
            },
            Heard::Deadline => server.timeout(ctx).await?,
            Heard::Cancel(reason) => return Err(Exit::Cancelled(reason)),
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
            next = server.again(ctx).await?;
        }
    }
}

/// What a server hears. A signal is left with the ear.
enum Heard<M> {
    Message(M),
    Signal,
    Deadline,
    Cancel(Reason),
}

/// What a server hears with.
#[derive(Debug, Default)]
struct ServerContext {
    signal: Option<Signal>,
    timer: Timer,
}

impl ServerContext {
    /// What can be had without looking for anything else: of a burst of mail, all but the first message.
    #[inline]
    fn hear_ahead<S: Server>(&mut self, server: &S, mailbox: &mut Mailbox<S::Message>) -> Option<S::Message> {
        if self.heeds(server.deadline()) || mailbox.control().head.is_cancelled() {
            return None;
        }
        mailbox.pop_ahead()
    }

    /// Whether there is a deadline to be looked at, or was.
    #[inline]
    fn heeds(&self, deadline: Option<Instant>) -> bool {
        deadline.is_some() || self.timer.sleep.is_some()
    }

    #[inline]
    fn poll_next<S: Server>(
        &mut self,
        // Shared, a server would have to be `Sync`.
        server: &mut S,
        mailbox: &mut Mailbox<S::Message>,
        cx: &mut Cx<'_>,
    ) -> Poll<Heard<S::Message>> {
        if let Some((reason, _)) = mailbox.control().head.cancel() {
            return Poll::Ready(Heard::Cancel(reason));
        }
        let deadline = server.deadline();
        if self.heeds(deadline) {
            return self.poll_with_deadline(deadline, mailbox, cx);
        }
        if mailbox.is_spent(cx) { Poll::Pending } else { self.poll_mail(mailbox, cx) }
    }

    #[inline]
    fn poll_mail<M: Send + 'static>(&mut self, mailbox: &mut Mailbox<M>, cx: &mut Cx<'_>) -> Poll<Heard<M>> {
        let next = mailbox.next_event(&mut self.signal, cx);
        next.map(|message| message.map_or(Heard::Signal, Heard::Message))
    }

    /// The timer is looked at when there is no mail, or when the budget of the turn is spent: a server that never runs out
    /// of mail is late by a turn, and no message pays for the timer.
    fn poll_with_deadline<M: Send + 'static>(
        &mut self,
        deadline: Option<Instant>,
        mailbox: &mut Mailbox<M>,
        cx: &mut Cx<'_>,
    ) -> Poll<Heard<M>> {
        self.timer.heed(deadline);
        let is_spent = mailbox.is_spent(cx);
        if !is_spent {
            if self.timer.rings() {
                return Poll::Ready(Heard::Deadline);
            }
            if let Poll::Ready(heard) = self.poll_mail(mailbox, cx) {
                self.timer.one_was_read();
                return Poll::Ready(heard);
            }
        }
        match deadline {
            Some(deadline) if self.timer.has_come(deadline, mailbox, cx) && !is_spent => {
                self.timer.come = None;
                Poll::Ready(Heard::Deadline)
            }
            _ => Poll::Pending,
        }
    }
}

#[derive(Debug, Default)]
struct Timer {
    /// It may end too early, for a deadline that was moved away since: then it is set again.
    sleep: Option<Sleep>,
    /// The deadline that has come, and how much of what was in the mailbox then is unread.
    come: Option<(Instant, usize)>,
}

impl Timer {
    /// What the deadline is now may be another than it was.
    fn heed(&mut self, deadline: Option<Instant>) {
        match deadline {
            None => *self = Self::default(),
            Some(deadline) => self.come = self.come.filter(|&(come, _)| deadline <= come),
        }
    }

    /// Whether the deadline has come, and all has been read that had come before. Once it has said so, it begins anew.
    fn rings(&mut self) -> bool {
        self.come.take_if(|&mut (_, unread)| unread == 0).is_some()
    }

    fn one_was_read(&mut self) {
        if let Some((_, unread)) = &mut self.come {
            *unread = unread.saturating_sub(1);
        }
    }

    /// Whether the deadline has come, and nothing is unread. If it has not, it wakes when it has.
    fn has_come<M: Send + 'static>(&mut self, deadline: Instant, mailbox: &mut Mailbox<M>, cx: &mut Cx<'_>) -> bool {
        if self.come.is_none() {
            let sleep = self.sleep.get_or_insert_with(|| mailbox.me().sleep_until(deadline));
            if sleep.is_terminated() || deadline < sleep.deadline() {
                sleep.reset(deadline);
            }
            while Pin::new(&mut *sleep).poll(cx).is_ready() {
                if sleep.deadline() == deadline {
                    self.come = Some((deadline, mailbox.unread()));
                    break;
                }
                sleep.reset(deadline);
            }
        }
        self.come.is_some() && mailbox.unread() == 0
    }
}

//! What comes back from a spawn: the handle of a process, that resolves to how it ended, and that it has started.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context as Cx, Poll};

use futures::future::FusedFuture;

use crate::context::address::Address;
use crate::host::control::{AnyControl, Control, Listening, flag};
use crate::host::{Route, Target, Way};
use crate::process::catch::Guard;
use crate::process::event::MonitorRef;
use crate::process::exit::{Exit, Reason};
use crate::process::payload::Payload;
use crate::process::state::Ref;
use crate::process::state::current::Current;
use crate::task::cell::Joined;

/// A future of how a process ends, and its address, in one. Dropped, it detaches: the process lives on.
///
/// The handle receives the exit when its result is taken. If it is dropped before that, and no link, monitor or supervisor
/// receives the exit either, a failure of the process is *unobserved*: it is [counted](crate::Counters::unobserved), and
/// fails a [`check`](crate::check()).
#[must_use = "dropping it detaches the process; `let _ = …` says that this is meant"]
pub struct JoinHandle<T, M: Send + 'static = Payload> {
    joined: Joined<T, M>,
    monitor: Option<MonitorRef>,
    guard: Guard,
    over: bool,
}

impl<T, M: Send + 'static> fmt::Debug for JoinHandle<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JoinHandle").field(&self.pid()).finish()
    }
}

impl<T, M: Send + 'static> JoinHandle<T, M> {
    pub(crate) fn new((joined, monitor): (Joined<T, M>, Option<MonitorRef>)) -> Self {
        Self { joined, monitor, guard: Guard::default(), over: false }
    }

    /// A handle of what never began: it resolves to how the control block says that it ended.
    pub(crate) fn stillborn(control: Ref<Control<M>>) -> Self {
        Self::new((Joined::stillborn(control), None))
    }

    /// With a monitor that was set for it.
    pub(crate) fn monitored(mut self, monitor: MonitorRef) -> Self {
        self.monitor = Some(monitor);
        self
    }

    /// The end of a process that never began.
    pub(crate) fn refused(&self) -> Option<Exit> {
        if self.joined.has_begun() { None } else { self.control().head.exit() }
    }

    /// The typed address of the process.
    pub fn address(&self) -> Address<M> {
        self.joined.address().clone()
    }

    /// Resolves when the process has started (its `init` succeeded, or its body was polled for the first time), or
    /// with how it ended before that.
    pub fn started(&self) -> Started {
        Started { control: self.control().any(), listening: Listening::default(), over: false }
    }

    /// The monitor that was set with the spawn, if one [was](crate::ProcessBuilder::monitor).
    pub fn monitor_ref(&self) -> Option<MonitorRef> {
        self.monitor
    }

    /// Kills the process.
    pub fn abort(&self) {
        self.control().any().kill();
    }

    /// Whether the process has ended.
    pub fn is_finished(&self) -> bool {
        self.control().head.has_ended()
    }
}

impl<T, M: Send + 'static> Deref for JoinHandle<T, M> {
    type Target = Address<M>;

    fn deref(&self) -> &Address<M> {
        self.joined.address()
    }
}

impl<T, M: Send + 'static> Target<M> for &JoinHandle<T, M> {}
impl<T, M: Send + 'static> Route<M> for &JoinHandle<T, M> {
    fn way(&self) -> Way<'_, M> {
        Way::Here(self.control())
    }
}

impl<T, M: Send + 'static> Unpin for JoinHandle<T, M> {}

/// Resolves to the result of the process, or to how it ended.
///
/// # Errors
/// The exit, if it is not normal. A process that awaits its own handle gets an error at once: it would wait for ever.
///
/// # Cancel safety
/// Polled by reference and dropped, it has taken nothing.
impl<T, M: Send + 'static> Future for JoinHandle<T, M> {
    type Output = Result<T, Exit>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.over {
            return Poll::Pending;
        }
        if Current::with(Current::pid) == Some(this.pid()) {
            return Poll::Ready(Err(Exit::failed("a process can't join itself")));
        }
        let Poll::Ready(result) = this.guard.over(cx, |cx| this.joined.poll(cx)) else { return Poll::Pending };
        // Without a result the task was dropped with its runtime, or never began.
        let lost = || Err(this.control().head.exit().unwrap_or(Exit::Cancelled(Reason::SHUTDOWN)));
        let result = result.unwrap_or_else(lost);
        if result.is_err() {
            this.control().head.received_exit();
        }
        this.over = true;
        Poll::Ready(result)
    }
}

impl<T, M: Send + 'static> FusedFuture for JoinHandle<T, M> {
    fn is_terminated(&self) -> bool {
        self.over
    }
}

/// A handle that kills its process when it is dropped.
#[derive(Debug)]
pub(crate) struct KillOnDrop<T, M: Send + 'static>(pub(crate) JoinHandle<T, M>);

impl<T, M: Send + 'static> Future for KillOnDrop<T, M> {
    type Output = Result<T, Exit>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl<T, M: Send + 'static> Drop for KillOnDrop<T, M> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Resolves when a process has started: see [`JoinHandle::started`].
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct Started {
    control: Ref<dyn AnyControl>,
    listening: Listening,
    over: bool,
}

impl Future for Started {
    type Output = Result<(), Exit>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.over {
            return Poll::Pending;
        }
        let head = this.control.head();
        let started = head.poll_news(&mut this.listening, cx, || {
            match head.exit() {
                // It may have done all that it had to do in its first step.
                Some(Exit::Normal) if !head.has(flag::BY_HAND) => Some(Ok(())),
                _ if head.has(flag::STARTED) => Some(Ok(())),
                exit => exit.map(Err),
            }
        });
        this.over = started.is_ready();
        if let Poll::Ready(Err(_)) = started {
            head.received_exit();
        }
        started
    }
}

impl FusedFuture for Started {
    fn is_terminated(&self) -> bool {
        self.over
    }
}

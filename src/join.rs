//! What comes back from a spawn: the handle of a process, that resolves to how it ended, and that it has started.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context as Cx, Poll};

use async_task::FallibleTask;
use futures::future::FusedFuture;

use crate::address::Address;
use crate::control::{AnyControl, Control, Listening, flag};
use crate::host::{Meta, Route, Target, Way};
use crate::process::event::MonitorRef;
use crate::process::exit::{Exit, Reason};
use crate::process::panic::{Guard, Held};
use crate::process::payload::Payload;
use crate::process::turn;
use crate::sync::Arc;

/// The task of a process, as its handle has it.
pub(crate) type Joined<T> = FallibleTask<Held<Result<T, Exit>>, Meta>;

/// A future of how a process ends, and its address, in one. Dropped, it detaches: the process lives on.
#[must_use = "dropping it detaches the process; `let _ = …` says that this is meant"]
pub struct JoinHandle<T, M: Send + 'static = Payload> {
    task: Option<Joined<T>>,
    address: Address<M>,
    monitor: Option<MonitorRef>,
    guard: Guard,
    over: bool,
}

impl<T, M: Send + 'static> fmt::Debug for JoinHandle<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JoinHandle").field(&self.address.pid()).finish()
    }
}

impl<T, M: Send + 'static> JoinHandle<T, M> {
    pub(crate) fn new((task, control, monitor): (Joined<T>, Arc<Control<M>>, Option<MonitorRef>)) -> Self {
        Self { task: Some(task), address: Address::new(control), monitor, guard: Guard::default(), over: false }
    }

    /// A handle of what never began: it resolves to how the control block says that it ended.
    pub(crate) fn stillborn(control: Arc<Control<M>>) -> Self {
        Self { task: None, address: Address::new(control), monitor: None, guard: Guard::default(), over: false }
    }

    /// With a monitor that was set for it.
    pub(crate) fn monitored(mut self, monitor: MonitorRef) -> Self {
        self.monitor = Some(monitor);
        self
    }

    /// The end of a process that never began.
    pub(crate) fn refused(&self) -> Option<Exit> {
        if self.task.is_none() { self.address.control().head.exit() } else { None }
    }

    /// The typed address of the process.
    pub fn address(&self) -> Address<M> {
        self.address.clone()
    }

    /// Resolves when the process has started (its `init` succeeded, or its body was polled for the first time), or
    /// with how it ended before that.
    pub fn started(&self) -> Started {
        Started { control: self.address.control().clone(), listening: Listening::default(), over: false }
    }

    /// The monitor that was set with the spawn, if one [was](crate::ProcessBuilder::monitor).
    pub fn monitor_ref(&self) -> Option<MonitorRef> {
        self.monitor
    }

    /// Kills the process.
    pub fn abort(&self) {
        let control: Arc<dyn AnyControl> = self.address.control().clone();
        control.kill();
    }

    /// Whether the process has ended.
    pub fn is_finished(&self) -> bool {
        self.address.control().head.has_ended()
    }
}

impl<T, M: Send + 'static> Deref for JoinHandle<T, M> {
    type Target = Address<M>;

    fn deref(&self) -> &Address<M> {
        &self.address
    }
}

impl<T, M: Send + 'static> Target<M> for &JoinHandle<T, M> {}
impl<T, M: Send + 'static> Route<M> for &JoinHandle<T, M> {
    fn way(&self) -> Way<'_, M> {
        Way::Here(self.address.control())
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
        let head = &this.address.control().head;
        if turn::pid() == Some(head.pid()) {
            return Poll::Ready(Err(Exit::failed("a process can't join itself")));
        }
        let result = match &mut this.task {
            None => Err(head.exit().unwrap_or(Exit::NoProcess)),
            Some(task) => match this.guard.over(cx, |cx| Pin::new(task).poll(cx)) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(result)) => result.into_inner(),
                // The task was dropped with its runtime.
                Poll::Ready(None) => Err(head.exit().unwrap_or(Exit::Cancelled(Reason::SHUTDOWN))),
            },
        };
        this.over = true;
        Poll::Ready(result)
    }
}

impl<T, M: Send + 'static> FusedFuture for JoinHandle<T, M> {
    fn is_terminated(&self) -> bool {
        self.over
    }
}

impl<T, M: Send + 'static> Drop for JoinHandle<T, M> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.detach();
        }
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
    control: Arc<dyn AnyControl>,
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
        started
    }
}

impl FusedFuture for Started {
    fn is_terminated(&self) -> bool {
        self.over
    }
}

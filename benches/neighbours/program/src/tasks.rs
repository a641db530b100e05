//! Common interface of the task runtimes. The trait [`Tasks`] has functions for four operations: spawn a task, use an
//! unbounded channel, use a oneshot channel, and yield to other tasks. Each workload is written once for all task
//! runtimes, with this trait. Each method of `Tasks` only calls the corresponding function of the runtime.

use std::sync::Arc;

use async_executor::{Executor, StaticExecutor};
use futures_lite::future;
use tokio::sync::{mpsc, oneshot};

/// Handle of a task runtime, for code that runs on this runtime.
pub(crate) trait Tasks: Clone + Send + Sync + 'static {
    type Sender<T: Send + 'static>: Clone + Send + Sync + 'static;
    type Receiver<T: Send + 'static>: Send + 'static;
    /// Sending half of a oneshot channel. The type `Answer` is the receiving half.
    type Reply<T: Send + 'static>: Send + 'static;
    type Answer<T: Send + 'static>: Send + 'static;

    /// Spawns a detached task.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static);
    /// Spawns a task. The returned future resolves to the result of the task.
    fn join<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send + 'static;
    fn yield_now() -> impl Future<Output = ()> + Send;

    fn channel<T: Send + 'static>() -> (Self::Sender<T>, Self::Receiver<T>);
    fn send<T: Send + 'static>(to: &Self::Sender<T>, message: T);
    /// Returns the next message, or `None` if all senders are dropped.
    fn receive<T: Send + 'static>(from: &mut Self::Receiver<T>) -> impl Future<Output = Option<T>> + Send;

    fn oneshot<T: Send + 'static>() -> (Self::Reply<T>, Self::Answer<T>);
    fn reply<T: Send + 'static>(to: Self::Reply<T>, value: T);
    fn answer<T: Send + 'static>(from: Self::Answer<T>) -> impl Future<Output = T> + Send;
}

/// tokio finds its runtime through a thread-local variable. This variable is set on tokio's workers, and on the
/// measuring thread, which has entered the runtime.
#[derive(Clone, Copy)]
pub(crate) struct Tokio;

impl Tasks for Tokio {
    type Sender<T: Send + 'static> = mpsc::UnboundedSender<T>;
    type Receiver<T: Send + 'static> = mpsc::UnboundedReceiver<T>;
    type Reply<T: Send + 'static> = oneshot::Sender<T>;
    type Answer<T: Send + 'static> = oneshot::Receiver<T>;

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(tokio::spawn(task));
    }

    fn join<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send + 'static {
        let handle = tokio::spawn(task);
        async { handle.await.expect("no task panics") }
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        tokio::task::yield_now()
    }

    fn channel<T: Send + 'static>() -> (Self::Sender<T>, Self::Receiver<T>) {
        mpsc::unbounded_channel()
    }

    fn send<T: Send + 'static>(to: &Self::Sender<T>, message: T) {
        to.send(message).expect("the receiver waits");
    }

    fn receive<T: Send + 'static>(from: &mut Self::Receiver<T>) -> impl Future<Output = Option<T>> + Send {
        from.recv()
    }

    fn oneshot<T: Send + 'static>() -> (Self::Reply<T>, Self::Answer<T>) {
        oneshot::channel()
    }

    fn reply<T: Send + 'static>(to: Self::Reply<T>, value: T) {
        assert!(to.send(value).is_ok(), "it is waited for");
    }

    async fn answer<T: Send + 'static>(from: Self::Answer<T>) -> T {
        from.await.expect("it is answered")
    }
}

/// Both executors use the crate async-channel. A channel with the capacity 1 serves as the oneshot channel of these
/// executors.
macro_rules! async_executor {
    ($($executor:ty),*) => { $(
        impl Tasks for $executor {
            type Sender<T: Send + 'static> = async_channel::Sender<T>;
            type Receiver<T: Send + 'static> = async_channel::Receiver<T>;
            type Reply<T: Send + 'static> = async_channel::Sender<T>;
            type Answer<T: Send + 'static> = async_channel::Receiver<T>;

            fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
                (**self).spawn(task).detach();
            }

            fn join<T: Send + 'static>(
                &self,
                task: impl Future<Output = T> + Send + 'static,
            ) -> impl Future<Output = T> + Send + 'static {
                (**self).spawn(task)
            }

            fn yield_now() -> impl Future<Output = ()> + Send {
                future::yield_now()
            }

            fn channel<T: Send + 'static>() -> (Self::Sender<T>, Self::Receiver<T>) {
                async_channel::unbounded()
            }

            fn send<T: Send + 'static>(to: &Self::Sender<T>, message: T) {
                to.try_send(message).expect("the receiver waits");
            }

            async fn receive<T: Send + 'static>(from: &mut Self::Receiver<T>) -> Option<T> {
                from.recv().await.ok()
            }

            fn oneshot<T: Send + 'static>() -> (Self::Reply<T>, Self::Answer<T>) {
                async_channel::bounded(1)
            }

            fn reply<T: Send + 'static>(to: Self::Reply<T>, value: T) {
                to.try_send(value).expect("it is waited for");
            }

            async fn answer<T: Send + 'static>(from: Self::Answer<T>) -> T {
                from.recv().await.expect("it is answered")
            }
        }
    )* };
}

async_executor!(Arc<Executor<'static>>, &'static StaticExecutor);

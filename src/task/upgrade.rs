//! Upgrade of a running process. An upgrade replaces the code of the process. The process keeps its pid, its mailbox
//! with the unread events, its names, its links and its monitors. If the new code fails to start, the old code
//! continues. A body sends the upgrade request to its task through `upgrade_request.rs`.

use std::any::TypeId;
use std::borrow::Cow;
use std::future::{poll_fn, ready};
use std::task::Poll;

use crate::context::Context;
use crate::context::mailbox::Mailbox;
use crate::context::step::{AnyProcess, Process, Start, StepOutput};
use crate::host::control::{AnyControl, flag};
use crate::platform::sync::planted;
use crate::process::catch::{catch, drop_caught};
use crate::process::error::{SpawnError, SpawnErrorKind};
use crate::process::exit::Exit;
use crate::process::mailbox::Trial;
use crate::process::payload::Payload;
use crate::process::state::Ref;
use crate::process::state::current::Current;
use crate::process::state::upgrade_request::Future as Successor;
use crate::task::body::{Body, ProcessOutput};

fn wrong_output_error<T>(found: &str) -> Exit {
    let new = std::any::type_name::<T>();
    Exit::failed(format!("the output of the process has type {found}, but the output of the new code has type {new}"))
}

impl<M: Send + 'static> Context<M> {
    /// Replaces this body by another body in the same process. The process keeps its pid, the messages in its mailbox
    /// and in its [stash](Self::stash), its names, groups, links, monitors, limits and timers. The message type and the
    /// output type of the process stay the same.
    ///
    /// When the new body has started, this body is dropped with all of its variables, at the point where the body
    /// awaits this call. The new body has started when its first poll has returned without an error. If the process was
    /// spawned with [`manual_start`](crate::ProcessBuilder::manual_start), the new body has started when the new body
    /// has called [`mark_started`](crate::SelfHandle::mark_started). A [`Server`](crate::Server) has started when its
    /// `init` has returned. Until the new body has started, this body waits for the returned future. If this body polls
    /// other futures concurrently, these futures continue.
    ///
    /// ```
    /// # use procession::{Context, Exit, Reply, Runtime};
    /// type Ask = Reply<&'static str>;
    ///
    /// async fn second(mut ctx: Context<Ask>, greeting: &'static str) -> Result<(), Exit> {
    ///     loop {
    ///         ctx.receive().await?.send(greeting);
    ///     }
    /// }
    /// async fn first(mut ctx: Context<Ask>) -> Result<(), Exit> {
    ///     ctx.receive().await?.send("first");
    ///     // The new body fails, so this body continues.
    ///     let (ctx, exit) = ctx.upgrade(async |_: Context<Ask>| Err::<(), _>("no disk")).await;
    ///     assert_eq!(exit.to_string(), "failed: no disk");
    ///     Err(ctx.upgrade(|ctx| second(ctx, "second")).await.1)
    /// }
    /// let rt = Runtime::new()?;
    /// let process = rt.spawn(first);
    /// assert_eq!(rt.block_on(process.call(|reply| reply))?, "first");
    /// assert_eq!(rt.block_on(process.call(|reply| reply))?, "second");
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    /// If the new body starts, this method does not return. If the new body fails before it has started, this method
    /// returns the exit of the new body, together with a context. The body that called this method continues with this
    /// context. The context lacks the messages that the new body has received. A message that the new body has stashed
    /// is unread again. If the new body has called [`unstash`](Self::unstash), the stash of the old body is unread
    /// again too. In all other respects, the context is unchanged. This method also returns in three other cases:
    /// - The result of the new body has another type.
    /// - The future is polled outside the turns of its own process.
    /// - Another receiver has replaced the receiver of this context.
    ///
    /// The new body may have [split](Self::split) its context and stored the [`Mailbox`](crate::Mailbox). After the
    /// failure of the new body, this stored mailbox receives no messages, and its `receive` fails.
    ///
    /// # Cancel safety
    /// If the future is dropped before the new body has started, the new body and the context are also dropped.
    pub fn upgrade<F, Fut>(self, body: F) -> impl Future<Output = (Self, Exit)> + Send + use<M, F, Fut>
    where
        F: Body<M, Future = Fut> + FnOnce(Self) -> Fut,
        Fut: Future,
    {
        self.upgrade_to::<F::Value, _>(successor::<M, F>(body))
    }

    /// Implements [`upgrade`](Self::upgrade). The future of the new body is boxed as a [`Successor`], so no type in
    /// this function contains the type of this future. If a type in this function contained the type of this future,
    /// the compiler could not prove that the future of a recursive upgrade is `Send`.
    async fn upgrade_to<T, B>(mut self, body: B) -> (Self, Exit)
    where
        T: Send + 'static,
        B: FnOnce(Self) -> Successor<T> + Send,
    {
        if let Err(exit) = self.fit::<T>().await {
            return (self, exit);
        }
        let address = self.control().address();
        let (mailbox, trial) =
            match Current::with(|current| current.in_step(address)).map(|turn| self.mailbox().begin_trial(turn)) {
                Some(Ok(begun)) => begun,
                Some(Err(exit)) => return (self, exit),
                None => return (self, Exit::failed(ELSEWHERE)),
            };
        let control = self.control().any();
        let guard = TrialGuard { former: self.mailbox(), trial };
        let exit = Starting::begin(control, &guard.trial).run(body(Self::of(mailbox))).await;
        drop(guard);
        (self, exit)
    }

    async fn fit<T: 'static>(&self) -> Result<(), Exit> {
        let (control, pid) = (self.control().address(), self.pid());
        poll_fn(|cx| {
            let (fit, is_own_waker) = Current::with(|current| {
                let fit = current.steps(control).then(|| current.upgrade.ask::<T>(pid));
                (fit, current.is_own_waker(cx.waker()))
            });
            let Some(fit) = fit else { return Poll::Ready(Err(Exit::failed(ELSEWHERE))) };
            // The reply of the task is available in the next poll of the body. But in the next poll, a combinator polls
            // only the futures that were woken. Therefore, this future wakes itself.
            if fit.is_none() && !is_own_waker && !planted!("upgrade_does_not_wake_itself") {
                cx.waker().wake_by_ref();
            }
            fit.map_or(Poll::Pending, |fit| Poll::Ready(fit.map_err(wrong_output_error::<T>)))
        })
        .await
    }
}

/// Guard that ends the trial period of the new receiver. If the new code has failed, or if the upgrade is dropped, the
/// receiver of the old code becomes the current receiver again. If the new receiver was dropped during its trial
/// period, the receiver of the old code also gets the messages that the new receiver has not read.
struct TrialGuard<'a, M: Send + 'static> {
    former: &'a mut Mailbox<M>,
    trial: Trial,
}

impl<M: Send + 'static> Drop for TrialGuard<'_, M> {
    fn drop(&mut self) {
        self.former.end_trial(&self.trial);
    }
}

const ELSEWHERE: &str = "an upgrade was polled outside the turns of its own process; poll it only in these turns";

/// Returns a function that creates the future of a new body. The first poll of this future calls the body.
fn successor<M: Send + 'static, F: Body<M>>(body: F) -> impl FnOnce(Context<M>) -> Successor<F::Value> + Send {
    move |ctx| Box::pin(async move { body(ctx).await.into_result() })
}

/// An upgrade whose new code has not started yet. The new code has a new receiver. During the trial period of the new
/// receiver, the new receiver replaces the receiver of the old code.
struct Starting<'a> {
    control: Ref<dyn AnyControl>,
    trial: &'a Trial,
    /// The flags of the process before the upgrade, namely `MANUAL_START` and `UPGRADING`. The flag `UPGRADING` was
    /// already set if the code that requests the upgrade is itself new and has not started yet.
    former: u16,
}

impl<'a> Starting<'a> {
    fn begin(control: Ref<dyn AnyControl>, trial: &'a Trial) -> Self {
        let former = control.head().flags() & (flag::MANUAL_START | flag::UPGRADING);
        control.head().set(flag::UPGRADING);
        Self { control, trial, former }
    }

    /// Polls the new code until it has started or failed. When the new code has started, this function passes the new
    /// code to the task of the process. From then on, the task polls the new code.
    async fn run<T: Send + 'static>(self, next: Successor<T>) -> Exit {
        let head = self.control.head();
        let mut next = Some(next);
        let exit = poll_fn(|cx| {
            // The task will replace the body by the new code, and this future is about to be dropped.
            let Some(future) = &mut next else { return Poll::Pending };
            let Some(turn) = Current::with(|current| current.in_step(self.control.identity())) else {
                return Poll::Ready(Exit::failed(ELSEWHERE));
            };
            let polled = catch(|| future.as_mut().poll(cx)).unwrap_or_else(|text| {
                head.host().panicked(head.pid(), text.as_str());
                Poll::Ready(Err(Exit::Panicked(text)))
            });
            let (is_by_hand, is_reported) = (head.has(flag::MANUAL_START), !head.has(flag::UPGRADING));
            match polled {
                Poll::Ready(Err(exit)) if !is_by_hand || !is_reported => Poll::Ready(exit),
                // The new code has ended. If the new code reported its start and then failed, the exit of the new code
                // is the exit of the process.
                Poll::Ready(result) => {
                    next = None;
                    Current::with(|current| current.upgrade.replace::<T>(Box::pin(ready(result))));
                    Poll::Pending
                }
                Poll::Pending => {
                    // Before the new code has started, the new code may itself request an upgrade. The task must
                    // process this inner request first.
                    let has_started = !is_by_hand || is_reported;
                    Current::with(|current| {
                        if has_started && !current.upgrade.is_pending() {
                            self.trial.confirm(turn);
                            if let Some(next) = next.take() {
                                current.upgrade.replace::<T>(next);
                            }
                        }
                    });
                    Poll::Pending
                }
            }
        })
        .await;
        // The new code is dropped before the trial period ends. The drop stores the messages that the new code
        // has taken out and not read. Then the old code receives these messages. A panic of the drop is caught.
        let _ = drop_caught(next.take());
        exit
    }
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        // If the new code has set `MANUAL_START` and has failed, the old code must not inherit this flag. If the old
        // code inherited `MANUAL_START`, the old code would never report its start. With an inherited `MANUAL_START`,
        // the new code of a later upgrade would not report its start either. If the new code has started, the flag
        // `MANUAL_START` has no effect any more.
        self.control.head().unset((flag::MANUAL_START | flag::UPGRADING) & !self.former);
    }
}

impl<M: Send + 'static> StepOutput<'_, M> {
    /// Replaces the present process by `new` after this step. The `init` of the new process runs immediately. If
    /// `init` succeeds, and this step returns [`Next::Wait`](crate::Next::Wait) or [`Next::Again`](crate::Next::Again),
    /// the new process runs the next step. If this step ends the process, the new process is dropped.
    ///
    /// The process keeps its pid, its mailbox with the unread events, its names, links, monitors and outstanding
    /// commands. The message type and the output type of the process stay the same.
    ///
    /// The old process is dropped when its step has returned. The old process is not [closed](Process::close). The
    /// method `close` is called only at the exit, and only on the process that runs the last step. If a step calls this
    /// method several times, the last successful call takes effect.
    ///
    /// ```
    /// # use procession::*;
    /// /// Counts up, or down.
    /// struct Count { by: i64, at: i64 }
    /// enum Msg { Turn, Next(Reply<i64>) }
    ///
    /// impl Process for Count {
    ///     type Message = Msg;
    ///     type Output = ();
    ///     fn step(&mut self, events: Events<'_, Msg>, out: &mut StepOutput<'_, Msg>) -> Result<Next<()>, Exit> {
    ///         for event in events {
    ///             match event {
    ///                 Event::Message(Msg::Turn) => {
    ///                     out.upgrade(Count { by: -self.by, at: self.at }, "", ())?;
    ///                     break;
    ///                 }
    ///                 Event::Message(Msg::Next(reply)) => {
    ///                     self.at += self.by;
    ///                     reply.send(self.at);
    ///                 }
    ///                 _ => {}
    ///             }
    ///         }
    ///         Ok(Next::Wait)
    ///     }
    /// }
    /// let rt = Runtime::new()?;
    /// let count = rt.spawn_process(Count { by: 3, at: 0 });
    /// assert_eq!(rt.block_on(count.call(Msg::Next))?, 3);
    /// count.send(Msg::Turn)?;
    /// assert_eq!(rt.block_on(count.call(Msg::Next))?, 0);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    /// Returns the new process, and [`SpawnErrorKind::StartFailed`] with the exit of the new process. Either `init` of
    /// the new process failed or panicked, or the output type of the new process is different. The present process
    /// continues. If the step returns this error with `?`, the process ends with the exit of the new process.
    pub fn upgrade<Q>(
        &mut self,
        mut new: Q,
        entry: impl Into<Cow<'static, str>>,
        input: impl Send + 'static,
    ) -> Result<(), SpawnError<Q>>
    where
        Q: Process<Message = M> + Send,
    {
        let (id, name) = self.output();
        if id != TypeId::of::<Q::Output>() {
            let exit = wrong_output_error::<Q::Output>(name);
            return Err(SpawnError::new(SpawnErrorKind::StartFailed(exit.into()), new));
        }
        let head = &self.control().head;
        let entry = entry.into();
        let start = Start { entry: &entry, input: Payload::new(input), pid: head.pid(), inherited: head.inherited() };
        let exit = match catch(|| new.init(start)) {
            Ok(Ok(())) => {
                let next: AnyProcess<M, Q::Output> = Box::new(new);
                self.replace_with(Box::new(next));
                return Ok(());
            }
            Ok(Err(error)) => Exit::from(error),
            Err(text) => {
                head.host().panicked(head.pid(), text.as_str());
                Exit::Panicked(text)
            }
        };
        Err(SpawnError::new(SpawnErrorKind::StartFailed(exit.into()), new))
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use std::pin::Pin;
    use std::task::Waker;

    use super::*;
    use crate::platform::sync::{Arc, Mutex};
    use crate::process::state::Weak;
    use crate::{Mailbox, Runtime};

    /// Runs the runnable processes several times. After this call, the process under test waits.
    fn run_runnable(rt: &Runtime) {
        for _ in 0..3 {
            rt.block_on(rt.spawn(async |ctx: Context| ctx.yield_now().await)).unwrap();
        }
    }

    fn without_workers() -> Runtime {
        Runtime::builder().workers(0).build().unwrap()
    }

    /// A new receiver waits during its trial period and also after its trial period. During the trial period, the waker
    /// of the receiver owns a reference to the process. After the trial period, the receiver waits with the waker of
    /// the task.
    #[test]
    fn an_upgraded_process_is_freed_after_its_exit() {
        let rt = without_workers();
        let handle = rt.spawn(async |mut ctx: Context<u64>| -> Result<u64, Exit> {
            ctx.receive().await?;
            let second = async |mut ctx: Context<u64>| Ok::<_, Exit>(ctx.receive().await? + ctx.receive().await?);
            Err(ctx.upgrade(second).await.1)
        });
        let control: Weak<dyn AnyControl> = Ref::downgrade(&handle.address().control().any());
        for message in [1, 20, 300] {
            handle.send(message).unwrap();
            run_runnable(&rt);
        }
        assert_eq!(rt.block_on(handle).unwrap(), 320);
        assert!(control.upgrade().is_none());
    }

    /// The mailbox is polled after the exit of its process. The waker of this late poll owns a reference to the
    /// process.
    #[test]
    fn a_process_is_freed_after_a_late_poll_of_its_mailbox() {
        type Kept = Arc<Mutex<Option<(Mailbox<u64>, Waker)>>>;
        let rt = without_workers();
        let kept = Kept::default();
        let keeps = Arc::clone(&kept);
        let handle = rt.spawn(async move |ctx: Context<u64>| {
            let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
            *keeps.lock() = Some((ctx.split().1, waker));
        });
        let control: Weak<dyn AnyControl> = Ref::downgrade(&handle.address().control().any());
        rt.block_on(handle).unwrap();
        let (mut mailbox, waker) = kept.lock().take().unwrap();
        let polled = Pin::new(&mut mailbox.receive()).poll(&mut std::task::Context::from_waker(&waker));
        assert!(matches!(polled, Poll::Ready(Err(_))), "{polled:?}");
        drop((mailbox, waker));
        assert!(control.upgrade().is_none());
    }
}

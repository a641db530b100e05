//! The future that drives one process: takes what came, steps, dispatches what was yielded, and steps again while
//! answers come in the same turn. Its end is a drop guard: however the task ends, the process is buried.

use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::context::Me;
use crate::control::{Control, flag};
use crate::observe::{Counter, State};
use crate::process::exit::{Exit, Reason};
use crate::process::panic::catch;
use crate::process::payload::Payload;
use crate::process::refusal::InitError;
use crate::process::{Mail, Next, Process, Start, StepOutput, turn};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

/// How often a process is stepped again in one turn because its yields were answered at once.
const ANSWERED_IN_TURN: u32 = 32;

/// What a task drives: a hand-written process, or an async body, which has to stay in its place.
pub(crate) trait Machine {
    type Message: Send + 'static;
    type Output: Send + 'static;

    fn init(self: Pin<&mut Self>, start: Start<'_>, me: &Me<Self::Message>) -> Result<(), InitError>;

    fn step(self: Pin<&mut Self>, me: &Me<Self::Message>, cx: &mut Context<'_>) -> Result<Next<Self::Output>, Exit>;

    fn close(self: Pin<&mut Self>);

    /// Drops the user's state, and hands out mail that was taken and not read.
    fn clear(self: Pin<&mut Self>, me: &Me<Self::Message>);
}

pin_project! {
    /// A hand-written process and its mail.
    pub(crate) struct Raw<P: Process> {
        process: Option<P>,
        mail: Mail<P::Message>,
    }
}

impl<P: Process> Raw<P> {
    pub(crate) fn new(process: P) -> Self {
        Self { process: Some(process), mail: Mail::new() }
    }

    pub(crate) fn into_inner(self) -> Option<P> {
        self.process
    }
}

const ALIVE: &str = "a machine is not stepped after it was cleared";

impl<P: Process> Machine for Raw<P> {
    type Message = P::Message;
    type Output = P::Output;

    fn init(self: Pin<&mut Self>, start: Start<'_>, _: &Me<P::Message>) -> Result<(), InitError> {
        self.project().process.as_mut().expect(ALIVE).init(start)
    }

    fn step(self: Pin<&mut Self>, me: &Me<P::Message>, cx: &mut Context<'_>) -> Result<Next<P::Output>, Exit> {
        let this = self.project();
        let process = this.process.as_mut().expect(ALIVE);
        let next = process.step(this.mail.events(me.control()), &mut StepOutput::new(me, cx.waker()))?;
        if matches!(next, Next::Wait) && this.mail.missed(me.control()) {
            return Ok(Next::Again);
        }
        Ok(next)
    }

    fn close(self: Pin<&mut Self>) {
        if let Some(process) = self.project().process {
            process.close();
        }
    }

    fn clear(self: Pin<&mut Self>, me: &Me<P::Message>) {
        let this = self.project();
        let process = this.process.take();
        me.control().leave(this.mail.take_messages(), false);
        drop(process);
    }
}

/// What a process is started with.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub(crate) method: std::borrow::Cow<'static, str>,
    pub(crate) input: Option<Payload>,
}

pin_project! {
    /// The task of one process.
    pub(crate) struct Driver<X: Machine> {
        #[pin]
        machine: X,
        me: Me<X::Message>,
        // Boxed and dropped at the first turn: most processes have no method and no input.
        entry: Option<Box<Entry>>,
        initialised: bool,
        ended: bool,
    }

    impl<X: Machine> PinnedDrop for Driver<X> {
        fn drop(this: Pin<&mut Self>) {
            // Dropped before its end: the runtime is gone.
            if !this.ended {
                let reason = Exit::Cancelled(Reason::SHUTDOWN);
                this.end(reason);
            }
        }
    }
}

impl<X: Machine> Driver<X> {
    pub(crate) fn new(machine: X, control: Arc<Control<X::Message>>, entry: Option<Box<Entry>>) -> Self {
        Self { machine, me: Me::new(control), entry, initialised: false, ended: false }
    }

    /// Buries the process: nobody hears of its end before its pid names nothing, and everything that it held has been
    /// let go when its exit is known. Returns how it really ended: a panic on the way is an end of its own.
    fn end(self: Pin<&mut Self>, exit: Exit) -> Exit {
        let mut this = self.project();
        *this.ended = true;
        let control = Arc::clone(this.me.control());
        let head = &control.head;
        let mut exit = exit;
        let note = |exit: &mut Exit, result: Result<(), Reason>| {
            if let Err(text) = result {
                head.host.panicked(head.pid, &text.to_string());
                *exit = Exit::Panicked(text);
            }
        };
        if *this.initialised {
            note(&mut exit, catch(|| this.machine.as_mut().close()));
        }
        head.host.forget(head);
        let remains = control.inbox.close();
        let cleared = turn::dying(&exit, || catch(|| this.machine.as_mut().clear(this.me)));
        note(&mut exit, cleared);
        head.host.bury(&control, remains, &exit);
        exit
    }

    fn init(self: Pin<&mut Self>) -> Result<(), Exit> {
        let this = self.project();
        let entry = this.entry.take().map(|entry| *entry).unwrap_or_default();
        let head = &this.me.control().head;
        let start = Start {
            method: &entry.method,
            input: entry.input.unwrap_or_else(|| Payload::new(())),
            pid: head.pid,
            context: &head.inherited,
        };
        match catch(|| this.machine.init(start, this.me)) {
            Ok(Ok(())) => {
                *this.initialised = true;
                Ok(())
            }
            Ok(Err(error)) => Err(Exit::from(error)),
            Err(text) => Err(told(this.me, text)),
        }
    }

    /// One step and the dispatch of what it yielded.
    fn step(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Result<Next<X::Output>, Exit> {
        let this = self.project();
        let control = this.me.control();
        let head = &control.head;
        head.steps.store(head.steps.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        head.host.shared.metrics.add(Counter::Steps, 1);
        let (next, orphans) = turn::collecting_orphans(|| catch(|| this.machine.step(this.me, cx)));
        let panicked = next.is_err();
        let next = next.unwrap_or_else(|text| Err(told(this.me, text)));
        for orphan in orphans {
            orphan(next.as_ref().err().filter(|_| panicked));
        }
        let mut pending = head.yields.take_pending();
        if !pending.is_empty() {
            for yielded in pending.drain(..) {
                // Given up in the same step: its handler never hears of it.
                if head.yields.is_wanted(yielded.tag) {
                    head.host.shared.dispatcher.dispatch(yielded, control.clone());
                }
            }
            head.yields.reuse(pending);
        }
        next
    }
}

/// The exit of a process that panicked, told to whoever the policy says.
fn told<M: Send + 'static>(me: &Me<M>, text: Reason) -> Exit {
    let head = &me.control().head;
    head.host.panicked(head.pid, &text.to_string());
    Exit::Panicked(text)
}

impl<X: Machine> Future for Driver<X> {
    type Output = Result<X::Output, Exit>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let control = Arc::clone(self.me.control());
        let head = &control.head;
        let _turn = turn::enter(control.address(), head.pid, cx.waker());
        head.host.transition(head, State::Running);
        if !self.initialised && !head.has(flag::KILLED) {
            if let Err(exit) = self.as_mut().init() {
                return Poll::Ready(Err(self.end(exit)));
            }
        }
        let mut answered = 0;
        loop {
            if head.has(flag::KILLED) {
                return Poll::Ready(Err(self.end(Exit::Killed)));
            }
            let next = self.as_mut().step(cx);
            if !head.has(flag::STARTED | flag::BY_HAND) && next.is_ok() {
                head.started();
            }
            match next {
                Err(exit) => return Poll::Ready(Err(self.end(exit))),
                Ok(Next::Done(output)) => {
                    return Poll::Ready(match self.end(Exit::Normal) {
                        Exit::Normal => Ok(output),
                        exit => Err(exit),
                    });
                }
                Ok(Next::Again) => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Ok(Next::Wait) if !turn::take_answered() => {
                    if turn::wants_again() {
                        return Poll::Pending;
                    }
                    let state = if head.yields.any() { State::Blocked } else { State::Idle };
                    head.host.transition(head, state);
                    return Poll::Pending;
                }
                Ok(Next::Wait) => {
                    answered += 1;
                    if answered == ANSWERED_IN_TURN {
                        head.host.count_budget_yield();
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

//! Models of the answer to a call. A waiting caller receives the answer. If the caller has stopped waiting, the callee
//! is notified.

use std::task::{Poll, Waker};

use crate::context::call::answer::{CallParty, ReplyReceiver, ReplySender};
use crate::model::{Waiter, join};
use crate::platform::sync::{Arc, thread};
use crate::process::state::RunState;
use crate::process::watchers::WatchKey;

/// The task of the caller, and the worker that runs this task.
struct Task {
    state: RunState,
    worker: Arc<Waiter>,
}

impl CallParty for Arc<Task> {
    fn wake(&self) {
        if self.state.wake() {
            self.worker.waker().wake();
        }
    }
}

type Token = Arc<()>;

/// Starts a call from a task that runs on this thread. If `task_listens` is true, the task is the listener of the call:
/// the answer wakes the task.
fn ask(task_listens: bool) -> (Arc<Task>, ReplyReceiver<Arc<Task>, (), Token>, ReplySender<Arc<Task>, (), Token>) {
    let task = Arc::new(Task { state: RunState::active(), worker: Waiter::here() });
    let (caller, answerer) = ReplyReceiver::new(task_listens, || Arc::clone(&task), || ());
    (task, caller, answerer)
}

/// Answers on another thread. Returns whether the caller refused the answer.
fn answer(answerer: ReplySender<Arc<Task>, (), Token>, token: &Token) -> thread::JoinHandle<bool> {
    let token = Arc::clone(token);
    thread::spawn(move || answerer.answer(token).is_err())
}

/// Takes the answer, or registers the waker: see `Call::poll_slowly`.
fn poll(caller: &mut ReplyReceiver<Arc<Task>, (), Token>, is_task: bool, waker: &Waker) -> Poll<Token> {
    caller.listen(is_task, waker);
    caller.take().map_or(Poll::Pending, Poll::Ready)
}

/// Waits for the answer with a waker of this thread.
fn wait_elsewhere(caller: &mut ReplyReceiver<Arc<Task>, (), Token>) -> Token {
    let waiter = Waiter::here();
    loop {
        match poll(caller, false, &waiter.waker()) {
            Poll::Ready(token) => return token,
            Poll::Pending => waiter.wait(),
        }
    }
}

/// A task waits for the answer. The task is the listener from the start of the call.
pub fn answer_to_a_task() {
    let (task, mut caller, answerer) = ask(true);
    let token = Token::default();
    let answers = answer(answerer, &token);
    loop {
        assert!(!task.state.begin(), "it reads no mail");
        match poll(&mut caller, true, Waker::noop()) {
            Poll::Ready(_) => break task.state.model_end(),
            Poll::Pending if task.state.model_wait(false) => task.worker.wait(),
            Poll::Pending => {}
        }
    }
    drop(caller);
    assert!(!join(answers), "somebody waits for it");
    assert_eq!(Arc::strong_count(&token), 1);
}

/// From the start of the call, the caller waits with a waker of this thread, and not with the waker of its task.
pub fn answer_to_another_waiter() {
    let (_task, mut caller, answerer) = ask(false);
    let token = Token::default();
    let answers = answer(answerer, &token);
    drop(wait_elsewhere(&mut caller));
    assert!(!join(answers), "somebody waits for it");
    drop(caller);
    assert_eq!(Arc::strong_count(&token), 1);
}

/// At first, the task is the listener of the call. Then another waiter becomes the listener instead of the task.
pub fn answer_to_a_new_waiter() {
    let (task, mut caller, answerer) = ask(true);
    let token = Token::default();
    let answers = answer(answerer, &token);
    if poll(&mut caller, true, Waker::noop()).is_pending() {
        drop(wait_elsewhere(&mut caller));
    }
    drop((caller, task));
    assert!(!join(answers), "somebody waits for it");
    assert_eq!(Arc::strong_count(&token), 1);
}

/// The caller waits with the waker of its task, with a different waker, or with both wakers. Then the caller stops
/// waiting. The answer is either refused, or dropped together with the shared state.
pub fn answer_against_leaving() {
    for (at_first, elsewhere) in [(true, false), (false, true), (true, true)] {
        let (_task, mut caller, answerer) = ask(at_first);
        let token = Token::default();
        let answers = answer(answerer, &token);
        let taken = elsewhere && poll(&mut caller, false, Waker::noop()).is_ready();
        if !taken {
            caller.close();
        }
        drop(caller);
        assert!(!(join(answers) && taken), "it was taken, and refused");
        assert_eq!(Arc::strong_count(&token), 1);
    }
}

/// The callee watches the caller with two watchers, and removes the first watcher. The second watcher is notified that
/// the caller has stopped waiting.
pub fn leaving_against_unwatch() {
    let (_task, caller, answerer) = ask(false);
    let mut dropped = WatchKey::default();
    assert!(!answerer.watch(&mut dropped, Waker::noop()));
    let leaves = thread::spawn(move || caller.close());
    let (waiter, mut key) = (Waiter::here(), WatchKey::default());
    let mut is_closed = answerer.watch(&mut key, &waiter.waker());
    answerer.unwatch(&mut dropped);
    while !is_closed {
        waiter.wait();
        is_closed = answerer.watch(&mut key, &waiter.waker());
    }
    join(leaves);
}

/// The callee is notified that the caller has stopped waiting. After the notification, the answer of the callee is
/// refused.
pub fn leaving_against_watch() {
    let (_task, caller, answerer) = ask(false);
    let leaves = thread::spawn(move || caller.close());
    let (waiter, mut key) = (Waiter::here(), WatchKey::default());
    while !answerer.watch(&mut key, &waiter.waker()) {
        waiter.wait();
    }
    assert!(answerer.answer(Token::default()).is_err(), "nobody waits for it");
    join(leaves);
}

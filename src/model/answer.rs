//! The answer to a call: a waiting caller receives the answer, and the callee learns whether the caller has stopped
//! waiting.

use std::task::{Poll, Waker};

use crate::context::call::answer::{CallParty, ReplyReceiver, ReplySender};
use crate::model::{Waiter, join};
use crate::platform::sync::{Arc, thread};
use crate::process::state::RunState;

/// The task of the caller, and the worker on which it is queued.
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

/// Starts a call from a task that runs on this thread.
fn ask() -> (Arc<Task>, ReplyReceiver<Arc<Task>, (), Token>, ReplySender<Arc<Task>, (), Token>) {
    let task = Arc::new(Task { state: RunState::active(), worker: Waiter::here() });
    let (asker, answerer) = ReplyReceiver::new(|| Arc::clone(&task), || ());
    (task, asker, answerer)
}

/// Answers on another thread. Returns whether the caller refused the answer.
fn answer(answerer: ReplySender<Arc<Task>, (), Token>, token: &Token) -> thread::JoinHandle<bool> {
    let token = Arc::clone(token);
    thread::spawn(move || answerer.answer(token).is_err())
}

/// Waits for the answer with a waker of this thread.
fn wait_elsewhere(asker: &mut ReplyReceiver<Arc<Task>, (), Token>) -> Token {
    let waiter = Waiter::here();
    loop {
        match asker.poll(false, &waiter.waker()) {
            Poll::Ready(token) => return token,
            Poll::Pending => waiter.wait(),
        }
    }
}

/// A task waits for the answer. The task was registered as waiting at the time of the call.
pub fn answer_to_a_task() {
    let (task, mut asker, answerer) = ask();
    asker.task_waits();
    let token = Token::default();
    let answers = answer(answerer, &token);
    loop {
        assert!(!task.state.begin(), "it reads no mail");
        match asker.poll(true, Waker::noop()) {
            Poll::Ready(_) => break task.state.model_end(),
            Poll::Pending if task.state.model_wait(false) => task.worker.wait(),
            Poll::Pending => {}
        }
    }
    drop(asker);
    assert!(!join(answers), "somebody waits for it");
    assert_eq!(Arc::strong_count(&token), 1);
}

/// The caller waits with a waker from the start, and not as a task.
pub fn answer_to_another_waiter() {
    let (_task, mut asker, answerer) = ask();
    let token = Token::default();
    let answers = answer(answerer, &token);
    drop(wait_elsewhere(&mut asker));
    assert!(!join(answers), "somebody waits for it");
    drop(asker);
    assert_eq!(Arc::strong_count(&token), 1);
}

/// The task was registered as waiting at the time of the call. Then another waiter waits instead of the task.
pub fn answer_to_a_new_waiter() {
    let (task, mut asker, answerer) = ask();
    asker.task_waits();
    let token = Token::default();
    let answers = answer(answerer, &token);
    if asker.poll(true, Waker::noop()).is_pending() {
        drop(wait_elsewhere(&mut asker));
    }
    drop((asker, task));
    assert!(!join(answers), "somebody waits for it");
    assert_eq!(Arc::strong_count(&token), 1);
}

/// The caller waits with its task, with another waker, or with both. Then the caller stops waiting. The answer is
/// either refused, or dropped together with the shared state.
pub fn answer_against_leaving() {
    for (at_first, elsewhere) in [(true, false), (false, true), (true, true)] {
        let (_task, mut asker, answerer) = ask();
        let token = Token::default();
        if at_first {
            asker.task_waits();
        }
        let answers = answer(answerer, &token);
        let taken = elsewhere && asker.poll(false, Waker::noop()).is_ready();
        if taken {
            drop(asker)
        } else {
            asker.close()
        }
        assert!(!(join(answers) && taken), "it was taken, and refused");
        assert_eq!(Arc::strong_count(&token), 1);
    }
}

/// The callee is notified that the caller has stopped waiting. After the notification, the answer of the callee is
/// refused.
pub fn leaving_against_watch() {
    let (_task, asker, answerer) = ask();
    let leaves = thread::spawn(move || asker.close());
    let waiter = Waiter::here();
    while !answerer.watch(&waiter.waker()) {
        waiter.wait();
    }
    assert!(answerer.answer(Token::default()).is_err(), "nobody waits for it");
    join(leaves);
}

//! Models of the answer to a command. One thread answers a command. At the same time, another thread answers or cancels
//! the same command, makes the process exit, or polls the waiting future.

use std::task::Waker;

use crate::model::{Waiter, join, spawn};
use crate::platform::sync::Arc;
use crate::platform::sync::tally::{AtomicUsize, Ordering};
use crate::process::command::Command;
use crate::process::event::{Answer, Tag};
use crate::process::mailbox::{Inbox, MailboxCapacity, ReadAhead};
use crate::process::payload::Payload;
use crate::process::state::current::InTurn;
use crate::process::watchers::WatchKey;
use crate::process::yields::{AnswerTarget, Answered, Answerer, Batch, Late, YieldInfo, Yields};

struct Ask;

impl Command for Ask {
    type Reply = Value;
}

/// An answer that counts its drops.
struct Value(Arc<AtomicUsize>);

impl Drop for Value {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Model of a process that has one command in flight.
struct World {
    yields: Yields,
    inbox: Inbox<()>,
    /// The reader of the inbox.
    own: Arc<Waiter>,
    tag: Tag,
    dropped: Arc<AtomicUsize>,
}

impl World {
    fn new(target: AnswerTarget) -> Arc<Self> {
        let yields = Yields::new();
        let tag = dispatched(&yields, target);
        Arc::new(Self {
            yields,
            inbox: Inbox::new(MailboxCapacity::Unbounded, None),
            own: Waiter::here(),
            tag,
            dropped: Arc::default(),
        })
    }

    /// Like `new`, but the command is measured. Each answer to a measured command takes the lock of the table.
    fn measured() -> Arc<Self> {
        let world = Self::new(AnswerTarget::Event);
        world.yields.measure(world.tag, 1);
        world
    }

    fn push(&self, answer: &mut Option<Answer>) {
        if let Ok(wakes) = self.inbox.answer(&self.own.waker(), self.tag, answer, true) {
            wakes.wake();
        }
    }

    /// Answers the command as a completion does. Returns whether the answer was accepted.
    fn answer(&self) -> bool {
        self.answer_from(Answerer::Completion)
    }

    fn answer_from(&self, from: Answerer) -> bool {
        let mut answer = Some(Ok(Payload::new(Value(Arc::clone(&self.dropped)))));
        let deliver = |answered, answer: &mut Option<Answer>| match answered {
            Answered::Event(tag) => {
                assert_eq!(tag, self.tag);
                self.push(answer);
            }
            Answered::Own => self.own.waker().wake(),
            Answered::Other(waker) => waker.wake(),
            Answered::Discard => drop(answer.take()),
            Answered::Notices(_) => unreachable!("it is no stream"),
        };
        let accepted = self.yields.complete(self.tag, &mut answer, from, |_| {}, &|_, _| {}, deliver);
        if let Err(late) = accepted {
            assert_eq!(late, Late::Spent);
            let answer = answer.expect("a refused answer stays");
            assert!(answer.is_ok_and(|answer| answer.is::<Value>()), "a refused answer comes back");
        }
        accepted.is_ok()
    }

    fn dropped(&self) -> usize {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// Yields a command whose answer becomes an event, and dispatches the command to its handler.
fn perform(yields: &Yields) -> Tag {
    dispatched(yields, AnswerTarget::Event)
}

/// Yields a command, and dispatches the command to its handler.
fn dispatched(yields: &Yields, target: AnswerTarget) -> Tag {
    let mut taken = Batch::default();
    let started = yields.start::<Ask>(target, None, Some(Payload::new(Ask)), None, YieldInfo::default());
    let tag = started.expect("no tag was chosen").erase();
    yields.take_pending(&mut taken);
    assert!(taken.iter().flatten().all(|yielded| yielded.tag == tag && !yields.is_overtaken(tag)));
    tag
}

/// Two threads answer the same command under the lock. One of the two answers is accepted, and the other answer is
/// returned to its thread.
pub fn two_answers() {
    answered_twice(World::measured(), World::answer);
}

/// Two threads answer the same command without the lock.
pub fn two_answers_without_lock() {
    answered_twice(World::new(AnswerTarget::Event), World::answer);
}

/// A completion answers a command without the lock, while the application answers the command by its tag.
pub fn completion_against_tag() {
    answered_twice(World::new(AnswerTarget::Event), |world| world.answer_from(Answerer::Application));
}

fn answered_twice(world: Arc<World>, answer: fn(&World) -> bool) {
    let another = spawn(&world, answer);
    let one = world.answer();
    assert!(one != join(another));
    assert_eq!(world.yields.outstanding(), 0);
    assert!(world.yields.wants_answer(world.tag));
    world.yields.collect([world.tag]);
    assert!(!world.yields.cancel(world.tag) && world.yields.wants_answer(world.tag), "it is gone");
    assert_eq!(world.dropped(), 1, "the other one waits in the mailbox");
    drop(world.inbox.close(Some(InTurn::in_test())));
    assert_eq!(world.dropped(), 2);
}

/// One thread answers a command while another thread makes the process of this command exit. The answer is dropped
/// exactly once, by one of the two threads. Later answers are refused.
pub fn answer_against_exit() {
    answered_at_exit(&World::measured());
}

/// The same as [`answer_against_exit`], but the completion answers without the lock.
pub fn answer_without_lock_against_exit() {
    answered_at_exit(&World::new(AnswerTarget::Event));
}

fn answered_at_exit(world: &Arc<World>) {
    let answer = spawn(world, World::answer);
    // `AnyControl::run_exit` uses the same order.
    drop(world.inbox.close(Some(InTurn::in_test())));
    world.yields.close();
    assert!(!world.answer(), "its process has ended");
    join(answer);
    assert_eq!(world.dropped(), 2);
}

/// A command is answered and cancelled at the same time. Exactly one of the two calls succeeds and returns true. Then a
/// new command reuses the slot, and the old tag does not affect the new command.
pub fn answer_against_cancel() {
    answered_or_cancelled(&World::measured());
}

/// The same as [`answer_against_cancel`], but the completion answers without the lock.
pub fn answer_without_lock_against_cancel() {
    answered_or_cancelled(&World::new(AnswerTarget::Event));
}

fn answered_or_cancelled(world: &Arc<World>) {
    let answer = spawn(world, World::answer);
    let cancelled = world.yields.cancel(world.tag);
    let next = perform(&world.yields);
    assert!(cancelled != join(answer));
    assert!(world.yields.cancel(perform(&world.yields)));
    assert_eq!(world.yields.outstanding(), 1);
    assert!(world.yields.cancel(next));
    assert_eq!(world.yields.outstanding(), 0);
    assert!(cancelled || !world.yields.wants_answer(world.tag), "no event comes, not even one that is on its way");
    let next = perform(&world.yields);
    assert!(!world.answer() && world.yields.is_wanted(next) && world.yields.cancel(next));
}

/// A hand-written process waits for an answer. The process is woken and reads the answer.
pub fn answer_wakes_the_reader() {
    let world = World::new(AnswerTarget::Event);
    let answer = spawn(&world, World::answer);
    while world.inbox.next(&world.own.waker(), &mut ReadAhead::default()).is_none() {
        world.own.wait();
    }
    assert!(join(answer));
    assert!(world.yields.wants_answer(world.tag));
    assert_eq!(world.dropped(), 1);
}

/// A future waits for the answer, and each poll uses a different waker. Either a poll returns the answer, or the
/// answer wakes the waker of the last poll.
pub fn answer_against_poll() {
    let world = World::new(AnswerTarget::Own);
    let (former, latter) = (Waiter::here(), Waiter::here());
    let answer = spawn(&world, World::answer);
    let ears = [AnswerTarget::Other(former.waker()), AnswerTarget::Other(latter.waker()), AnswerTarget::Own];
    for (target, waits) in ears.into_iter().zip([None, Some(&latter), Some(&world.own)]) {
        match world.yields.poll(world.tag, target).expect("the yield is not cancelled") {
            Ok(answer) => {
                assert!(answer.is_ok_and(|answer| answer.is::<Value>()));
                break;
            }
            Err(()) => waits.into_iter().for_each(|waiter| waiter.wait()),
        }
    }
    assert!(join(answer));
    assert_eq!(world.dropped(), 1);
    assert_eq!(world.yields.outstanding(), 0);
}

/// A future was first polled with a waker that is not the waker of the process's task. Then the task of the process
/// polls the future.
pub fn answer_against_poll_by_the_task() {
    let other = Waiter::here();
    let world = World::new(AnswerTarget::Other(other.waker()));
    let answer = spawn(&world, World::answer);
    while world.yields.poll(world.tag, AnswerTarget::Own).expect("the yield is not cancelled").is_err() {
        world.own.wait();
    }
    assert!(join(answer));
    assert_eq!(world.dropped(), 1);
}

/// A handler watches for the cancellation of its command. Either the handler is notified later, or the call of `watch`
/// reports immediately that the command is cancelled.
pub fn watch_against_cancel() {
    watch(&World::new(AnswerTarget::Event), |world| world.yields.cancel(world.tag));
}

/// An observer watches for the answer to a command. Either the observer is notified later, or the call of `watch`
/// reports immediately that the command is answered.
pub fn watch_against_answer() {
    watch(&World::measured(), World::answer);
}

/// A handler watches its command, and another thread answers the command without the lock. Either the handler is
/// notified, or the call of `watch` reports that the command is answered.
pub fn watch_against_answer_without_lock() {
    watch(&World::new(AnswerTarget::Event), World::answer);
}

/// Two futures watch for the cancellation of a command, and one of the two futures is dropped. The other future is
/// notified, or its call of `watch` reports that the command is cancelled.
pub fn unwatch_against_cancel() {
    let world = World::new(AnswerTarget::Event);
    let mut dropped = WatchKey::default();
    assert!(world.yields.watch(world.tag, &mut dropped, Waker::noop()));
    let handler = spawn(&world, move |world| {
        let (watcher, mut key) = (Waiter::here(), WatchKey::default());
        let mut is_wanted = world.yields.watch(world.tag, &mut key, &watcher.waker());
        world.yields.unwatch(world.tag, &mut dropped);
        while is_wanted {
            watcher.wait();
            is_wanted = world.yields.watch(world.tag, &mut key, &watcher.waker());
        }
    });
    assert!(world.yields.cancel(world.tag));
    join(handler);
}

/// An inline command moves to the table while another thread cancels the command. After the move, the command is
/// cancelled.
pub fn admit_against_cancel() {
    let world = World::new(AnswerTarget::Event);
    let tag = Tag::inline(world.yields.issue());
    let cancels = spawn(&world, move |world| world.yields.cancel(tag));
    let _ = world.yields.admit::<Ask>(tag.cast(), AnswerTarget::Own, None, None);
    join(cancels);
    assert!(!world.yields.is_wanted(tag) && !world.yields.contains(tag));
    assert_eq!(world.yields.outstanding(), 1);
}

/// The answer to an inline command moves to the table while another thread cancels the command. The answer is dropped.
pub fn admitted_answer_against_cancel() {
    let world = World::new(AnswerTarget::Event);
    let tag = Tag::inline(world.yields.issue());
    let cancels = spawn(&world, move |world| world.yields.cancel(tag));
    drop(world.yields.admit_answer(tag, Ok(Payload::new(Value(Arc::clone(&world.dropped))))));
    join(cancels);
    assert!(!world.yields.contains(tag));
    assert_eq!((world.yields.outstanding(), world.dropped()), (1, 1));
}

fn watch(world: &Arc<World>, end: impl FnOnce(&World) -> bool) {
    let handler = spawn(world, |world| {
        let (watcher, mut key) = (Waiter::here(), WatchKey::default());
        while world.yields.watch(world.tag, &mut key, &watcher.waker()) {
            watcher.wait();
        }
        assert!(!world.yields.is_wanted(world.tag));
    });
    assert!(end(world));
    join(handler);
}

//! Models of a stream between its handler and its process. The handler sends items while the process pulls items. At
//! the same time, the handler or the process may end the stream. The handler and the process may have to wait for each
//! other.

use std::task::{Context, Poll};

use crate::model::{Waiter, join, spawn};
use crate::platform::sync::Arc;
use crate::process::command::Command;

use crate::process::event::{Answer, Signal, Tag};
use crate::process::mailbox::{Inbox, MailboxCapacity, ReadAhead};
use crate::process::payload::Payload;
use crate::process::yields::buffer::Buffer;
use crate::process::yields::{AnswerTarget, Answered, Answerer, Pulled, Sent, YieldInfo, Yields};

struct Count;

impl Command for Count {
    type Reply = u64;
}

/// A process with one stream. The buffer of the stream has room for one item.
struct World {
    yields: Yields,
    inbox: Inbox<()>,
    /// The reader of the inbox.
    own: Arc<Waiter>,
    tag: Tag,
}

impl World {
    fn new(target: AnswerTarget) -> Arc<Self> {
        let yields = Yields::new();
        let tag = yields
            .start::<Count>(target, None, None, Some(Buffer::new(1)), YieldInfo::default())
            .expect("the tag was not chosen")
            .erase();
        Arc::new(Self { yields, inbox: Inbox::new(MailboxCapacity::Unbounded, None), own: Waiter::here(), tag })
    }

    fn notice(&self, count: usize) {
        for _ in 0..count {
            if let Ok(wakes) = self.inbox.signal(&self.own.waker(), Signal::Notice(self.tag), true) {
                wakes.wake();
            }
        }
    }

    /// Sends an item as the handler of a stream does. Returns false if the process no longer pulls items.
    fn send(&self, item: u64, waiter: &Arc<Waiter>) -> bool {
        let (waker, mut item) = (waiter.waker(), Some(Payload::new(item)));
        let cx = Context::from_waker(&waker);
        loop {
            match self.yields.send(self.tag, &mut item, cx.waker()) {
                Poll::Pending => waiter.wait(),
                Poll::Ready(Err(())) => return false,
                Poll::Ready(Ok(Sent::Nothing)) => return true,
                Poll::Ready(Ok(Sent::Notices(count))) => break self.notice(count),
                Poll::Ready(Ok(Sent::Own)) => break self.own.waker().wake(),
                Poll::Ready(Ok(Sent::Other(waker))) => break waker.wake(),
            }
        }
        true
    }

    fn end(&self) {
        let deliver = |answered, _: &mut Option<Answer>| match answered {
            Answered::Notices(count) => self.notice(count),
            Answered::Own => self.own.waker().wake(),
            Answered::Other(waker) => waker.wake(),
            other => unreachable!("only this thread ends the stream: {other:?}"),
        };
        let answer = &mut Some(Ok(Payload::new(9_u64)));
        let ended = self.yields.complete(self.tag, answer, Answerer::Completion, |_| {}, &|_, _| {}, deliver);
        assert_eq!(ended, Ok(()));
    }
}

fn number(payload: Payload) -> u64 {
    payload.downcast().expect("numbers were sent")
}

/// A future pulls the items of a handler. The future gets all items in order and then the end of the stream, and both
/// sides make progress.
pub fn items_against_pulls() {
    let world = World::new(AnswerTarget::Own);
    let handler = spawn(&world, |world| {
        let waiter = Waiter::here();
        assert!((0..3).all(|item| world.send(item, &waiter)));
        world.end();
    });
    let mut came = Vec::new();
    loop {
        match world.yields.pull(world.tag, AnswerTarget::Own).expect("the stream is not cancelled") {
            Pulled::Item(item) => came.push(number(item)),
            Pulled::Wait => world.own.wait(),
            Pulled::End(answer) => break came.push(number(answer.expect("it was answered"))),
        }
    }
    join(handler);
    assert_eq!(came, [0, 1, 2, 9]);
    assert_eq!(world.yields.outstanding(), 0);
}

/// A hand-written process pulls one item after another. A notice announces each item, and the end of the stream.
pub fn notices_against_pulls() {
    let world = World::new(AnswerTarget::Event);
    let handler = spawn(&world, |world| {
        let waiter = Waiter::here();
        assert!(world.send(0, &waiter) && world.send(1, &waiter));
        world.end();
    });
    let pull = || world.notice(world.yields.want(world.tag).expect("it is not over"));
    let mut came = Vec::new();
    pull();
    let heard = || world.inbox.next(&world.own.waker(), &mut ReadAhead::default());
    while came.last() != Some(&9) {
        match heard() {
            None => world.own.wait(),
            Some(_) => {
                match world.yields.collect_notice(world.tag).expect("each notice belongs to an item or to the answer") {
                    Ok(item) => {
                        came.push(number(item));
                        pull();
                    }
                    Err(answer) => came.push(number(answer.expect("it was answered"))),
                }
            }
        }
    }
    join(handler);
    assert_eq!(came, [0, 1, 9]);
    assert!(heard().is_none(), "there are no more notices than events");
}

/// A handler waits for room in the buffer while the stream is cancelled. The handler is notified that the process no
/// longer pulls items.
pub fn sender_against_cancel() {
    let world = World::new(AnswerTarget::Own);
    let handler = spawn(&world, |world| {
        let waiter = Waiter::here();
        let sent = (0..2).take_while(|n| world.send(*n, &waiter)).count();
        assert!(sent < 2, "there is room for one");
    });
    assert!(world.yields.cancel(world.tag));
    join(handler);
}

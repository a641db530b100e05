//! Models of senders that wait for room in a bounded mailbox. The mailbox either stores the message of a waiting
//! sender, or gives the message back to the sender.

use std::task::{Poll, Waker};

use crate::model::{Waiter, join, spawn};
use crate::platform::sync::Arc;
use crate::process::mailbox::{Inbox, MailboxCapacity, ReadAhead, Reader, RoomWaiter};
use crate::process::state::current::InTurn;

/// Creates an inbox with a capacity of one message, and fills the inbox with one message.
fn full() -> Arc<Inbox<u32>> {
    let inbox = Arc::new(Inbox::new(MailboxCapacity::Reject(1), None));
    let _no_wakes = inbox.push(Waker::noop(), 0, || {}).expect("there is room");
    inbox
}

/// Sends a message as `SendWait` does. Returns whether the message was admitted. If the message was not admitted, the
/// sender gets the message back.
fn send_wait(inbox: &Inbox<u32>, message: u32) -> bool {
    let waiter = Waiter::here();
    let number = match inbox.push_or_wait(Waker::noop(), message, &mut Some(waiter.waker()), || {}) {
        Ok((None, wakes)) => {
            wakes.wake();
            return true;
        }
        Ok((Some(number), _)) => number,
        Err(_) => return false,
    };
    loop {
        match inbox.poll_admitted(number, &mut Some(waiter.waker())) {
            Poll::Ready(sent) => return sent.is_ok(),
            Poll::Pending => waiter.wait(),
        }
    }
}

/// Wakes a sender as `Control::wake_room_waiter` does.
fn wake_room_waiter(room_waiter: Option<RoomWaiter>) {
    if let Some(RoomWaiter::Sender(waker) | RoomWaiter::Watcher(waker)) = room_waiter {
        waker.wake();
    }
}

/// Receives the next message as `Mailbox` does.
fn receive(inbox: &Inbox<u32>, front: &mut ReadAhead<u32>) -> u32 {
    let waiter = Waiter::here();
    loop {
        let (message, duties) = inbox.receive_or_wait(Waker::noop(), front, Reader::Other(waiter.waker()));
        wake_room_waiter(duties.room_waiter);
        match message {
            Some(message) => return message,
            None => waiter.wait(),
        }
    }
}

/// Two senders wait for room. A receiver takes messages, and then the messages of both senders are admitted.
pub fn two_wait_for_room() {
    let inbox = full();
    let senders = [1, 2].map(|message| spawn(&inbox, move |inbox| send_wait(inbox, message)));
    let mut front = ReadAhead::default();
    let mut read = [(); 3].map(|()| receive(&inbox, &mut front));
    assert_eq!(read[0], 0);
    read.sort_unstable();
    assert_eq!(read, [0, 1, 2]);
    assert!(senders.map(join).into_iter().all(|sent| sent));
}

/// An inbox closes while senders wait for room. Each sender whose message was not admitted gets its message back.
pub fn room_against_close() {
    let inbox = full();
    let sender = spawn(&inbox, |inbox| send_wait(inbox, 1));
    let (message, room_waiter) = inbox.pop(&mut ReadAhead::default());
    assert_eq!(message, Some(0));
    wake_room_waiter(room_waiter);
    let other = spawn(&inbox, |inbox| send_wait(inbox, 2));
    let remains = inbox.close(Some(InTurn::in_test()));
    // The senders are woken in the same way as in `AnyControl::run_exit`.
    inbox.take_wakers().1.into_iter().for_each(|sender| sender.wake());
    let sent = [(1, join(sender)), (2, join(other))].into_iter().filter(|(_, sent)| *sent);
    let mut read = remains.expect("it has a bound").settle(&inbox);
    read.sort_unstable();
    assert_eq!(read, sent.map(|(message, _)| message).collect::<Vec<_>>());
}

/// A sender stops waiting while the receiver takes messages. Either the sender gets its message back, or the message
/// was admitted.
pub fn cancelled_send_against_pop() {
    let inbox = full();
    let sender = spawn(&inbox, |inbox| {
        let waiter = Waiter::here();
        match inbox.push_or_wait(Waker::noop(), 1, &mut Some(waiter.waker()), || {}) {
            Ok((None, wakes)) => {
                wakes.wake();
                true
            }
            Ok((Some(number), _)) => inbox.give_up(number).is_none(),
            Err(_) => unreachable!("it waits, and is open"),
        }
    });
    let mut front = ReadAhead::default();
    let mut read = Vec::new();
    for _ in 0..2 {
        let (message, room_waiter) = inbox.pop(&mut front);
        read.extend(message);
        wake_room_waiter(room_waiter);
    }
    let sent = join(sender);
    read.extend(inbox.pop(&mut front).0);
    assert_eq!(read, if sent { vec![0, 1] } else { vec![0] });
}

//! Mailbox and wake-up: what was pushed is read, whoever waits when it comes.

use std::ops::Deref;
use std::task::Waker;

use super::{Waiter, join, spawn};
use crate::clock::Instant;
use crate::mailbox::{Bound, Front, Inbox, Unsent};
use crate::process::event::Signal;
use crate::process::exit::{Exit, Reason};
use crate::process::pid::Pid;
use crate::sync::Arc;

/// The inbox of a process.
struct Mail {
    inbox: Inbox<u32>,
    own: Waker,
}

impl Deref for Mail {
    type Target = Inbox<u32>;

    fn deref(&self) -> &Inbox<u32> {
        &self.inbox
    }
}

/// The inbox of a process that has waited before.
fn inbox() -> (Arc<Mail>, Arc<Waiter>) {
    let own = Waiter::here();
    (Arc::new(Mail { inbox: Inbox::new(Bound::Unbounded, None), own: own.waker() }), own)
}

fn send(mail: &Mail, message: u32) {
    mail.push(message, || {}).expect("it is open").of(&mail.own).wake();
}

fn signal(mail: &Mail) {
    let cancel = Signal::Cancel { reason: Reason::from("enough"), deadline: Instant::FAR };
    mail.signal(cancel, true).expect("it is open").of(&mail.own).wake();
}

/// Reads as the task of a process does, until so many messages and signals are there. Each signal comes with the number
/// of messages that were read before it.
fn drain(inbox: &Mail, own: &Waiter, messages: usize, signals: usize) -> (Vec<u32>, Vec<usize>) {
    let (mut read, mut heard, mut taken) = (Vec::new(), Vec::new(), None);
    loop {
        let (only, admitted) = inbox.drain_or_pop(&mut taken);
        assert!(admitted.is_none(), "it has no bound");
        read.extend(only);
        while let Some(taken) = taken.as_deref_mut() {
            if taken.pop_signal().is_some() {
                heard.push(read.len());
            } else if let Some(message) = taken.pop() {
                read.push(message);
            } else {
                break;
            }
        }
        if read.len() == messages && heard.len() == signals {
            return (read, heard);
        }
        own.wait();
    }
}

/// A sender's messages arrive, in order.
pub fn one_sender() {
    let (inbox, own) = inbox();
    let sender = spawn(&inbox, |inbox| [1, 2].map(|message| send(inbox, message)));
    assert_eq!(drain(&inbox, &own, 2, 0).0, [1, 2]);
    join(sender);
}

/// So do those of two, each in its order.
pub fn two_senders() {
    let (inbox, own) = inbox();
    let one = spawn(&inbox, |inbox| [1, 2].map(|message| send(inbox, message)));
    let other = spawn(&inbox, |inbox| send(inbox, 10));
    let read = drain(&inbox, &own, 3, 0).0;
    assert_eq!(read.iter().sum::<u32>(), 13);
    assert!(read.iter().position(|&m| m == 1) < read.iter().position(|&m| m == 2), "{read:?}");
    join(one);
    join(other);
}

/// A receiver that waits by its task's own waker.
pub fn own_waker() {
    let (inbox, own) = inbox();
    let senders = [1, 2].map(|message| spawn(&inbox, move |inbox| send(inbox, message)));
    let (mut front, mut sum) = (Front::default(), 0);
    while sum != 3 {
        match front.pop().or_else(|| inbox.pop_or_wait(&mut front, None, &mut false).0) {
            Some(message) => sum += message,
            None => own.wait(),
        }
    }
    senders.into_iter().for_each(join);
}

/// A task that is set to wait ahead when it empties the mailbox, once between two waits.
pub fn wait_ahead() {
    let (inbox, own) = inbox();
    let senders = [1, 2].map(|message| spawn(&inbox, move |inbox| send(inbox, message)));
    let (mut front, mut sum) = (Front::default(), 0);
    while sum != 3 {
        let mut may = true;
        let mut waits = false;
        // A turn: it ends when there is nothing, or nothing is known to have come.
        while !(waits && inbox.is_still_empty()) {
            waits = std::mem::take(&mut may);
            match front.pop().or_else(|| inbox.pop_or_wait(&mut front, None, &mut waits).0) {
                Some(message) => sum += message,
                None => break,
            }
        }
        if sum != 3 {
            own.wait();
        }
    }
    senders.into_iter().for_each(join);
}

/// One that was set to wait ahead and then waits for something else: mail does not wake it, and is there when it asks.
pub fn no_wait_after_all() {
    let (inbox, own) = inbox();
    send(&inbox, 1);
    let (mut front, mut waits) = (Front::default(), true);
    assert_eq!(inbox.pop_or_wait(&mut front, None, &mut waits).0, Some(1));
    let sender = spawn(&inbox, |inbox| send(inbox, 2));
    inbox.unwait();
    // The next turn, whatever it was woken for.
    if inbox.pop_or_wait(&mut front, None, &mut false).0.is_none() {
        own.wait();
        while inbox.pop_or_wait(&mut front, None, &mut false).0.is_none() {
            // It was woken by what came before it said that it does not wait.
            own.wait();
        }
    }
    join(sender);
}

/// A receiver inside a combinator: it waits by another waker, and by another one each time.
pub fn other_waker() {
    let (inbox, _own) = inbox();
    let senders = [1, 2].map(|message| spawn(&inbox, move |inbox| send(inbox, message)));
    let (mut front, mut sum) = (Front::default(), 0);
    while sum != 3 {
        // The first is forgotten, as when a `select` is polled again.
        let (former, latter) = (Waiter::here(), Waiter::here());
        let mut receive = |waiter: &Arc<Waiter>| {
            front.pop().or_else(|| inbox.pop_or_wait(&mut front, Some(waiter.waker()), &mut false).0)
        };
        match receive(&former).or_else(|| receive(&latter)) {
            Some(message) => sum += message,
            None => latter.wait(),
        }
    }
    senders.into_iter().for_each(join);
}

/// A signal keeps its place behind the messages that came before it, also where some were taken already.
pub fn signal_keeps_its_place() {
    let (inbox, own) = inbox();
    signal(&inbox);
    send(&inbox, 0);
    assert_eq!(drain(&inbox, &own, 1, 1), (vec![0], vec![0]));
    let one = spawn(&inbox, |inbox| {
        send(inbox, 1);
        signal(inbox);
    });
    let other = spawn(&inbox, |inbox| send(inbox, 2));
    let (read, heard) = drain(&inbox, &own, 2, 1);
    assert!(read[..heard[0]].contains(&1), "{read:?}, {} before the signal", heard[0]);
    join(one);
    join(other);
}

/// A signal wakes the task and the receiver, which may wait elsewhere.
pub fn signal_wakes_both() {
    let (inbox, own) = inbox();
    let other = Waiter::here();
    let signaller = spawn(&inbox, signal);
    let next = || inbox.next_or_wait(&mut Front::default(), &mut None, Some(other.waker())).0;
    if next().is_none() {
        other.wait();
        assert!(matches!(next(), Some(None)));
    }
    own.wait();
    join(signaller);
}

/// Downs wake who reads, the first of them for all.
pub fn downs_wake_who_reads() {
    let (inbox, own) = inbox();
    let tellers = [1, 2].map(|number| {
        spawn(&inbox, move |inbox| {
            let due = inbox.down(number, Pid::new(0, 0, 1, 1), &Exit::Normal, true);
            due.expect("it is open").of(&inbox.own).wake_behind();
        })
    });
    let (mut front, mut heard) = (Front::default(), 0);
    while heard != 2 {
        match inbox.next_or_wait(&mut front, &mut None, None).0 {
            Some(_) => heard += 1,
            None => own.wait(),
        }
    }
    tellers.into_iter().for_each(join);
}

/// What is pushed while the inbox closes is refused or among the remains: never neither, never both. Whoever waited is
/// woken.
pub fn close_against_push() {
    let (inbox, _own) = inbox();
    let other = Waiter::here();
    let senders = [1, 2].map(|message| {
        spawn(&inbox, move |inbox| match inbox.push(message, || {}) {
            Ok(due) => {
                due.of(&inbox.own).wake();
                None
            }
            Err(
                Unsent::Closed(refused)
                | Unsent::Full(refused)
                | Unsent::Dropped(refused, _)
                | Unsent::Routed(refused, _),
            ) => Some(refused),
        })
    });
    let mut front = Front::default();
    let mut seen = Vec::from_iter(inbox.pop_or_wait(&mut front, Some(other.waker()), &mut false).0);
    let waits = seen.is_empty();
    let remains = inbox.close();
    seen.extend(front.take());
    seen.extend(remains.into_iter().flat_map(|remains| remains.settle()));
    // The end is known: as `Turn::end` does.
    inbox.rouse().of(&inbox.own).wake();
    if waits {
        other.wait();
    }
    seen.extend(senders.map(join).into_iter().flatten());
    seen.sort_unstable();
    assert_eq!(seen, [1, 2]);
    assert!(inbox.push(3, || {}).is_err());
}

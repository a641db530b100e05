//! Models of mailboxes and wake-ups. The receiver reads each message that was sent under the lock or through the
//! mailbox slot. The receiver may wait on any thread and with any waker.

use std::ops::Deref;
use std::task::Waker;

use crate::model::{Waiter, join, spawn};
use crate::platform::clock::Instant;
use crate::platform::sync::Arc;
use crate::platform::sync::atomic::{AtomicBool, Ordering};
use crate::process::event::Signal;
use crate::process::exit::{Exit, Reason};
use crate::process::mailbox::wakes::PendingSchedule;
use crate::process::mailbox::{
    Glance, Inbox, MailboxCapacity, MessageClock, MessageTimer, Own, ReadAhead, Reader, ReceiverTurn, Taken, Unsent,
};
use crate::process::pid::Pid;
use crate::process::state::RunState;
use crate::process::state::current::InTurn;

/// The inbox of a process, and the state and the waker of this process.
struct Mail {
    inbox: Inbox<u32>,
    own: (RunState, Waker),
    /// The thread that runs the process when the process is queued.
    worker: Arc<Waiter>,
    /// Whether the inbox contains urgent messages. In a real process, this value is a flag of the process.
    has_urgent: AtomicBool,
}

impl Deref for Mail {
    type Target = Inbox<u32>;

    fn deref(&self) -> &Inbox<u32> {
        &self.inbox
    }
}

/// Result of a turn.
enum TurnOutcome {
    Over,
    /// The process waits for a message. The value is true if the mailbox slot is open.
    Waits(bool),
}

impl Mail {
    /// Creates a process whose first turn will run on this thread.
    fn new() -> Arc<Self> {
        let worker = Waiter::here();
        let own = (RunState::active(), worker.waker());
        let inbox = Inbox::new(MailboxCapacity::Unbounded, None);
        Arc::new(Self { inbox, own, worker, has_urgent: AtomicBool::new(false) })
    }

    /// Runs turns until `turn` returns `TurnOutcome::Over`.
    fn run(&self, mut turn: impl FnMut(&Self) -> TurnOutcome) {
        loop {
            if self.own.0.begin()
                && let Some(reader) = self.close_slot(InTurn::in_test())
            {
                reader.wake();
            }
            match turn(self) {
                TurnOutcome::Over => return,
                TurnOutcome::Waits(open) => {
                    if self.own.0.model_wait(open) {
                        self.worker.wait();
                    }
                }
            }
        }
    }

    /// Receives a message in a turn, as the body of a process does. If there is no message, returns an error that says
    /// whether the slot is open.
    fn receive(&self, front: &mut ReadAhead<u32>) -> Result<u32, bool> {
        let receiver_turn = front.receiver_turn(InTurn::in_test()).expect("it is the receiver");
        if front.receiver_turn_if_read(InTurn::in_test()).is_some() {
            match self.glance() {
                Glance::Unknown => {}
                Glance::Empty => return Err(true),
                Glance::Delivered => return Ok(self.take_delivered(receiver_turn).expect("it was there")),
            }
        }
        if let Some(message) = front.pop() {
            return Ok(message);
        }
        let reader = Reader::Task { receiver_turn, may_open_slot: true };
        let (message, duties) = self.receive_or_wait(&self.own, front, reader);
        message.ok_or(duties.slot_is_open)
    }

    /// Receives a message from a mailbox that may contain urgent messages. Otherwise, this function does the same as
    /// [`receive`](Self::receive).
    fn receive_urgent(&self, front: &mut ReadAhead<u32>) -> Result<u32, bool> {
        let receiver_turn = front.receiver_turn(InTurn::in_test()).expect("it is the receiver");
        if front.receiver_turn_if_read(InTurn::in_test()).is_some() {
            match self.glance() {
                Glance::Unknown => {}
                Glance::Empty => return Err(true),
                Glance::Delivered => return Ok(self.take_delivered(receiver_turn).expect("it was there")),
            }
        }
        loop {
            if self.has_urgent.load(Ordering::Relaxed) {
                let none_left = || self.has_urgent.store(false, Ordering::SeqCst);
                if let Some(message) = self.pop_urgent(front, none_left) {
                    return Ok(message);
                }
            }
            if let Some(message) = front.pop() {
                return Ok(message);
            }
            let (message, duties) =
                self.receive_or_wait(&self.own, front, Reader::Task { receiver_turn, may_open_slot: true });
            if !duties.urgent {
                return message.ok_or(duties.slot_is_open);
            }
        }
    }

    /// Receives the first event of a turn, as a hand-written process does. The second value of the result is true if
    /// the process waits and its slot is open for a message.
    fn next_of_events(&self, taken: &mut Option<Box<Taken<u32>>>) -> (Option<u32>, bool) {
        let receiver_turn = ReceiverTurn::in_test();
        match self.glance() {
            Glance::Unknown => {
                let (only, admitted, slot_is_open) = self.drain_or_pop(&self.own, receiver_turn, taken);
                assert!(admitted.is_none(), "it has no bound");
                (only, slot_is_open)
            }
            Glance::Empty => (None, true),
            Glance::Delivered => (self.take_delivered(receiver_turn), true),
        }
    }

    /// Runs turns until the sum of all received messages is `sum`.
    fn read(&self, sum: u32) {
        let mut front = ReadAhead::default();
        let mut left = sum;
        self.run(|mail| {
            while left != 0 {
                match mail.receive(&mut front) {
                    Ok(message) => left -= message,
                    Err(slot_is_open) => return TurnOutcome::Waits(slot_is_open),
                }
            }
            TurnOutcome::Over
        });
    }
}

fn send(mail: &Mail, message: u32) {
    mail.push(&mail.own, message, || {}).expect("it is open").wake();
}

fn send_urgent(mail: &Mail, message: u32) {
    let accepted = || mail.has_urgent.store(true, Ordering::SeqCst);
    mail.push_urgent(&mail.own, message, accepted).expect("it is open").wake();
}

/// One sender sends normal messages, through the slot or under the lock. Another sender sends an urgent message. The
/// receiver reads each message once, and waits only if the receiver has read all messages. If the push of the urgent
/// message has returned, the next receive returns the urgent message, even if the read-ahead buffer contains a message.
pub fn urgent_against_two_messages() {
    let mail = Mail::new();
    let normal = spawn(&mail, |mail| {
        send(mail, 1);
        send(mail, 4);
    });
    let is_pushed = Arc::new(AtomicBool::new(false));
    let urgent = {
        let is_pushed = Arc::clone(&is_pushed);
        spawn(&mail, move |mail| {
            send_urgent(mail, 2);
            is_pushed.store(true, Ordering::SeqCst);
        })
    };
    let (mut front, mut read) = (ReadAhead::default(), Vec::new());
    mail.run(|mail| {
        while read.len() < 3 {
            let must_be_urgent = is_pushed.load(Ordering::SeqCst) && !read.contains(&2);
            match mail.receive_urgent(&mut front) {
                Ok(message) => {
                    assert!(!must_be_urgent || message == 2, "{message} overtook the urgent message");
                    read.push(message);
                }
                Err(slot_is_open) => return TurnOutcome::Waits(slot_is_open),
            }
        }
        TurnOutcome::Over
    });
    assert_eq!(read.iter().filter(|message| **message != 2).collect::<Vec<_>>(), [&1, &4]);
    join(normal);
    join(urgent);
}

/// A process whose messages are all measured.
struct Measuring<'a>(&'a (RunState, Waker));

impl Own for Measuring<'_> {
    fn owns(&self, _: *const ()) -> bool {
        true
    }

    fn wake(&self) -> Option<PendingSchedule> {
        self.0.wake()
    }

    fn deliver(&self) -> Option<PendingSchedule> {
        self.0.deliver()
    }

    fn recall(&self) -> bool {
        self.0.recall()
    }
}

impl MessageClock for Measuring<'_> {
    fn recent(&self) -> u64 {
        1
    }

    fn may_measure(&self) -> bool {
        true
    }

    fn timer(&self) -> Option<MessageTimer> {
        Some(MessageTimer::new(|| {}))
    }
}

/// One sender sends a message through the slot or under the lock, and then a measured message. Another sender sends
/// another measured message. The receiver reads each message once, and reads the messages of one sender in order.
pub fn measured_messages_against_a_message() {
    let mail = Mail::new();
    let send_measured = |mail: &Mail, message| {
        mail.push(&Measuring(&mail.own), message, || {}).expect("it is open").wake();
    };
    let both = spawn(&mail, move |mail| {
        send(mail, 1);
        send_measured(mail, 4);
    });
    let one = spawn(&mail, move |mail| send_measured(mail, 2));
    let (mut front, mut read) = (ReadAhead::default(), Vec::new());
    mail.run(|mail| {
        while read.len() < 3 {
            match mail.receive_urgent(&mut front) {
                Ok(message) => read.push(message),
                Err(slot_is_open) => return TurnOutcome::Waits(slot_is_open),
            }
        }
        TurnOutcome::Over
    });
    assert_eq!(read.iter().filter(|message| **message != 2).collect::<Vec<_>>(), [&1, &4]);
    join(both);
    join(one);
}

fn signal(mail: &Mail) {
    let cancel = Signal::Cancel { reason: Reason::from("enough"), deadline: Instant::FAR };
    mail.signal(&mail.own, cancel, true).expect("it is open").wake();
}

/// Reads `messages` messages and `signals` signals, as a hand-written process does. Returns the messages. For each
/// signal, also returns the number of messages that were read before the signal.
fn drain(mail: &Mail, messages: usize, signals: usize) -> (Vec<u32>, Vec<usize>) {
    let (mut read, mut heard, mut taken) = (Vec::new(), Vec::new(), None::<Box<Taken<u32>>>);
    mail.run(|mail| {
        let (only, slot_is_open) = mail.next_of_events(&mut taken);
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
            TurnOutcome::Over
        } else {
            TurnOutcome::Waits(slot_is_open)
        }
    });
    (read, heard)
}

/// The messages of one sender arrive in order.
pub fn one_sender() {
    let mail = Mail::new();
    let sender = spawn(&mail, |mail| [1, 2].map(|message| send(mail, message)));
    assert_eq!(drain(&mail, 2, 0).0, [1, 2]);
    join(sender);
}

/// The messages of two senders arrive. The messages of each sender arrive in order.
pub fn two_senders() {
    let mail = Mail::new();
    let one = spawn(&mail, |mail| [1, 2].map(|message| send(mail, message)));
    let other = spawn(&mail, |mail| send(mail, 10));
    let read = drain(&mail, 3, 0).0;
    assert_eq!(read.iter().sum::<u32>(), 13);
    assert!(read.iter().position(|&m| m == 1) < read.iter().position(|&m| m == 2), "{read:?}");
    join(one);
    join(other);
}

/// A body waits with the waker of its own task. The first sender finds the slot open, and the second sender uses the
/// lock.
pub fn own_waker() {
    let mail = Mail::new();
    let senders = [1, 2].map(|message| spawn(&mail, move |mail| send(mail, message)));
    mail.read(3);
    senders.into_iter().for_each(join);
}

/// A body waits with the waker of its own task, and one sender sends twice. The messages arrive in order.
pub fn delivered_in_order() {
    let mail = Mail::new();
    let one = spawn(&mail, |mail| [1, 2].map(|message| send(mail, message)));
    let other = spawn(&mail, |mail| mail.len());
    let (mut front, mut read) = (ReadAhead::default(), Vec::new());
    mail.run(|mail| {
        while read.len() != 2 {
            match mail.receive(&mut front) {
                Ok(message) => read.push(message),
                Err(slot_is_open) => return TurnOutcome::Waits(slot_is_open),
            }
        }
        TurnOutcome::Over
    });
    assert_eq!(read, [1, 2]);
    assert!(join(other) <= 2);
    join(one);
}

/// A receiver takes a delivered message, and then the body waits only for a future outside the mailbox. A second
/// message arrives, and then the future wakes the body. Then the body receives again, and gets the second message.
pub fn no_wait_after_all() {
    let mail = Mail::new();
    let first = spawn(&mail, |mail| send(mail, 1));
    let (mut front, mut sender) = (ReadAhead::default(), None);
    mail.run(|own| match (own.receive(&mut front), &sender) {
        (Ok(message), None) => {
            assert_eq!(message, 1);
            sender = Some(spawn(&mail, |mail| {
                send(mail, 2);
                drop(mail.own.wake());
            }));
            own.unwait(InTurn::in_test());
            TurnOutcome::Waits(false)
        }
        (Ok(message), Some(_)) => {
            assert_eq!(message, 2);
            TurnOutcome::Over
        }
        (Err(slot_is_open), _) => TurnOutcome::Waits(slot_is_open),
    });
    join(first);
    sender.into_iter().for_each(join);
}

/// A receiver moves to another thread while its process waits for a message, or shortly before the process waits.
pub fn read_elsewhere() {
    let mail = Mail::new();
    let mut front = ReadAhead::default();
    assert_eq!(mail.receive(&mut front), Err(true), "nothing was sent");
    let done = Arc::new(AtomicBool::new(false));
    let reader = {
        let done = Arc::clone(&done);
        spawn(&mail, move |mail| {
            let elsewhere = Waiter::here();
            while mail.receive_or_wait(&mail.own, &mut front, Reader::Other(elsewhere.waker())).0.is_none() {
                elsewhere.wait();
            }
            done.store(true, Ordering::Release);
            drop(mail.own.wake());
        })
    };
    let sender = spawn(&mail, |mail| send(mail, 1));
    // The loop runs the turn in which the receiver was moved, and later turns in which the process does other work.
    let mut open = true;
    mail.run(|_| {
        if done.load(Ordering::Acquire) { TurnOutcome::Over } else { TurnOutcome::Waits(std::mem::take(&mut open)) }
    });
    join(reader);
    join(sender);
}

/// Polls a receiver on this thread until another receiver replaces the polled receiver, but at most `polls` times. Each
/// poll uses a new waker. Returns the received messages.
fn poll_elsewhere(mail: &Mail, front: &mut ReadAhead<u32>, polls: usize) -> Vec<u32> {
    let mut received = vec![];
    for _ in 0..polls {
        let (message, duties) = mail.receive_or_wait(&mail.own, front, Reader::Other(Waiter::here().waker()));
        received.extend(message);
        if duties.replaced {
            break;
        }
    }
    received
}

/// A new body fails to start while another thread reads the mailbox of the new body. Each message is read once, by the
/// old body or by the new body. The old body reads all messages that are sent after the failure.
pub fn failed_trial() {
    let mail = Mail::new();
    let mut former = ReadAhead::default();
    let (mut next, trial, _) = mail.begin_trial(InTurn::in_test(), &mut former).expect("it is the receiver");
    send(&mail, 1);
    let elsewhere = spawn(&mail, move |mail| poll_elsewhere(mail, &mut next, 2));
    drop(mail.end_trial(&trial, &mut former));
    let sender = spawn(&mail, |mail| send(mail, 2));
    let mut read = vec![];
    mail.run(|mail| {
        while !read.contains(&2) {
            match mail.receive(&mut former) {
                Ok(message) => read.push(message),
                Err(slot_is_open) => return TurnOutcome::Waits(slot_is_open),
            }
        }
        TurnOutcome::Over
    });
    join(sender);
    read.extend(join(elsewhere));
    read.sort_unstable();
    assert_eq!(read, [1, 2]);
}

/// A hand-written process has moved its mailbox to another thread. Then the process reads its events itself.
pub fn reclaimed_by_events() {
    let mail = Mail::new();
    let mut taken = Some(Box::<Taken<u32>>::default());
    let (mut given, _) = mail.hand_over(InTurn::in_test(), taken.as_mut().expect("just made"));
    let elsewhere = spawn(&mail, move |mail| poll_elsewhere(mail, &mut given, 2));
    drop(mail.reclaim(InTurn::in_test(), taken.as_ref().expect("it is there")));
    let sender = spawn(&mail, |mail| send(mail, 1));
    let mut read = vec![];
    mail.run(|mail| {
        let (only, slot_is_open) = mail.next_of_events(&mut taken);
        read.extend(only);
        read.extend(taken.as_deref_mut().and_then(Taken::pop));
        if read.is_empty() { TurnOutcome::Waits(slot_is_open) } else { TurnOutcome::Over }
    });
    join(sender);
    assert_eq!((read, join(elsewhere)), (vec![1], vec![]));
}

/// A receiver is polled by a combinator. Therefore, the receiver waits with a new waker at each poll.
pub fn other_waker() {
    let inbox = Mail::new();
    let senders = [1, 2].map(|message| spawn(&inbox, move |inbox| send(inbox, message)));
    let (mut front, mut sum) = (ReadAhead::default(), 0);
    while sum != 3 {
        // The model drops the first waker, because a `select` also drops its previous waker when the `select` is polled
        // again.
        let (former, latter) = (Waiter::here(), Waiter::here());
        let mut receive = |waiter: &Arc<Waiter>| {
            front.pop().or_else(|| inbox.receive_or_wait(&inbox.own, &mut front, Reader::Other(waiter.waker())).0)
        };
        match receive(&former).or_else(|| receive(&latter)) {
            Some(message) => sum += message,
            None => latter.wait(),
        }
    }
    senders.into_iter().for_each(join);
}

/// A signal is read after the messages that arrived earlier than the signal, even if the receiver has already taken
/// some of these messages.
pub fn signal_keeps_its_place() {
    let inbox = Mail::new();
    signal(&inbox);
    send(&inbox, 0);
    assert_eq!(drain(&inbox, 1, 1), (vec![0], vec![0]));
    let one = spawn(&inbox, |inbox| {
        send(inbox, 1);
        signal(inbox);
    });
    let other = spawn(&inbox, |inbox| send(inbox, 2));
    let (read, heard) = drain(&inbox, 2, 1);
    assert!(read[..heard[0]].contains(&1), "{read:?}, {} before the signal", heard[0]);
    join(one);
    join(other);
}

/// A signal wakes both the task and the receiver. The receiver may wait on another thread.
pub fn signal_wakes_both() {
    let inbox = Mail::new();
    let other = Waiter::here();
    let signaller = spawn(&inbox, signal);
    let next = || inbox.next_or_wait(&inbox.own, &mut ReadAhead::default(), &mut None, Reader::Other(other.waker())).0;
    let mut waits = None;
    inbox.run(|_| match waits {
        None => {
            let waiting = next().is_none();
            waits = Some(waiting);
            if waiting { TurnOutcome::Waits(false) } else { TurnOutcome::Over }
        }
        Some(_) => TurnOutcome::Over,
    });
    if waits == Some(true) {
        other.wait();
        assert!(matches!(next(), Some(None)));
    }
    join(signaller);
}

/// Several `Down` events wake the reader. The wake-up of the first `Down` event is sufficient for all `Down` events.
pub fn downs_wake_the_reader() {
    let inbox = Mail::new();
    let tellers = [1, 2].map(|number| {
        spawn(&inbox, move |inbox| {
            let wakes = inbox.down(&inbox.own, number, Pid::new(0, 0, 1, 1), &Exit::Normal, true);
            wakes.expect("it is open").wake_behind();
        })
    });
    let (mut front, mut heard) = (ReadAhead::default(), 0);
    inbox.run(|inbox| {
        while heard != 2 {
            if inbox.glance() == Glance::Empty {
                return TurnOutcome::Waits(true);
            }
            let receiver_turn = ReceiverTurn::in_test();
            let reader = Reader::Task { receiver_turn, may_open_slot: true };
            match inbox.next_or_wait(&inbox.own, &mut front, &mut None, reader) {
                (Some(_), _) => heard += 1,
                (None, duties) => return TurnOutcome::Waits(duties.slot_is_open),
            }
        }
        TurnOutcome::Over
    });
    tellers.into_iter().for_each(join);
}

/// A message is pushed while the inbox closes. Either the push is refused, or the message is among the remaining
/// messages. A waiting receiver is woken.
pub fn close_against_push() {
    let inbox = Mail::new();
    let other = Waiter::here();
    let senders = [1, 2].map(|message| {
        spawn(&inbox, move |inbox| match inbox.push(&inbox.own, message, || {}) {
            Ok(wakes) => {
                wakes.wake();
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
    let mut front = ReadAhead::default();
    let mut seen = Vec::from_iter(inbox.receive_or_wait(&inbox.own, &mut front, Reader::Other(other.waker())).0);
    let waits = seen.is_empty();
    let remains = inbox.close(Some(InTurn::in_test()));
    seen.extend(front.take());
    seen.extend(remains.into_iter().flat_map(|remains| remains.settle(&inbox)));
    // The tasks that wait on the inbox are woken in the same way as in `AnyControl::run_exit`.
    inbox.wake_all(&inbox.own).wake();
    if waits {
        other.wait();
    }
    seen.extend(senders.map(join).into_iter().flatten());
    seen.sort_unstable();
    assert_eq!(seen, [1, 2]);
    assert!(inbox.push(&inbox.own, 3, || {}).is_err());
}

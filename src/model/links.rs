//! Models of links and monitors. A process publishes its exit while another thread calls link, unlink, monitor,
//! demonitor or send. Each signal is either received once or refused.

use std::task::Waker;

use crate::host::link::{Gone, Linkable, Links, Watch, demonitor, link, monitor, unlink};
use crate::model::{join, spawn};
use crate::platform::sync::Arc;
use crate::platform::sync::atomic::{AtomicU8, Ordering};
use crate::process::event::{MonitorRef, Signal};
use crate::process::exit::{Exit, Reason};
use crate::process::mailbox::{Inbox, MailboxCapacity, ReadAhead, Wakes};
use crate::process::pid::Pid;
use crate::process::state::current::InTurn;
use crate::process::state::{Ref, RefCounted};

const ENDED: u8 = 1;
const TIED: u8 = 1 << 1;
const KILLED: u8 = 1 << 2;

/// A process with only the parts that these models need. The process never runs. The function `end` makes the process
/// exit.
struct Peer {
    pid: Pid,
    flags: AtomicU8,
    links: Links<RefCounted<Peer>>,
    inbox: Inbox<u8>,
}

impl Peer {
    fn new(number: u32) -> Ref<RefCounted<Self>> {
        Ref::counted(Self {
            pid: Pid::new(0, 0, number, 1),
            flags: AtomicU8::new(0),
            links: Links::default(),
            inbox: Inbox::new(MailboxCapacity::Unbounded, None),
        })
    }

    /// Creates two processes, ordered by address. The locks of two processes are taken in the order of their addresses.
    /// Therefore, loom can repeat an execution only if the order of the two processes is fixed.
    fn pair() -> Arc<(Ref<RefCounted<Self>>, Ref<RefCounted<Self>>)> {
        let (one, other) = (Self::new(1), Self::new(2));
        Arc::new(if one.identity() < other.identity() { (one, other) } else { (other, one) })
    }

    fn has(&self, flag: u8) -> bool {
        self.flags.load(Ordering::SeqCst) & flag != 0
    }

    /// Makes the process exit, as `Head::publish_exit` does.
    fn end(&self) {
        drop(self.inbox.close(Some(InTurn::in_test())));
        if self.flags.fetch_or(ENDED, Ordering::SeqCst) & TIED != 0 {
            self.links.dissolve(self.pid, &Exit::Panicked(Reason::new("here")));
        }
    }

    /// Reads the mailbox as `Mailbox::event` does. Returns the numbers of the messages, and 0 for each `Down` event or
    /// exit signal.
    fn read(&self) -> Vec<u8> {
        let (mut front, mut read) = (ReadAhead::default(), Vec::new());
        loop {
            match self.inbox.next(Waker::noop(), &mut front) {
                Some(Ok(message)) => read.push(message),
                Some(Err(Signal::Down { number, .. })) if !self.links.collect(number) => {}
                Some(Err(_)) => read.push(0),
                None => return read,
            }
        }
    }
}

impl Linkable for RefCounted<Peer> {
    fn pid(&self) -> Pid {
        self.pid
    }

    /// Sets `TIED` as `Head::links` does.
    fn links(&self) -> &Links<Self> {
        if !self.has(TIED) {
            self.flags.fetch_or(TIED, Ordering::SeqCst);
        }
        &self.links
    }

    fn exit(&self) -> Option<Exit> {
        self.has(ENDED).then_some(Exit::Killed)
    }

    fn has_ended(&self) -> bool {
        self.has(ENDED)
    }

    fn is_closed(&self) -> bool {
        self.inbox.is_closed()
    }

    fn put(&self, signal: Signal) -> Result<Wakes, Signal> {
        self.inbox.signal(Waker::noop(), signal, true)
    }

    fn put_down(&self, number: u64, pid: Pid, reason: &Exit) -> Option<Wakes> {
        self.inbox.down(Waker::noop(), number, pid, reason, true)
    }

    fn discard_down(&self, number: u64) {
        self.inbox.discard_down(number);
    }

    fn mark_killed(&self) -> bool {
        self.flags.fetch_or(KILLED, Ordering::SeqCst) & KILLED == 0
    }

    fn wake_killed(&self) -> bool {
        true
    }

    fn exit_outside(_: &Ref<Self>, _: &Exit) {}
}

/// Returns true if no link or monitor refers to this process.
fn is_alone(peer: &Ref<RefCounted<Peer>>) -> bool {
    peer.count() == 1
}

/// A process links to another process that is exiting. Either the exit kills the linking process, or the link fails
/// because the other process no longer exists.
pub fn link_against_exit() {
    let peers = Peer::pair();
    let ends = spawn(&peers, |(_, ending)| ending.end());
    let linked = link(&*peers.0, peers.0.clone(), peers.1.pid, Ok(peers.1.clone()));
    join(ends);
    assert_eq!(linked.is_ok(), peers.0.has(KILLED), "an exit was lost, or came from a stranger");
    assert_ne!(linked, Err(Gone::Caller));
    assert!(is_alone(&peers.0) && is_alone(&peers.1));
}

/// A process removes a link while the linked process exits. After the removal, the exit of the other process has no
/// further effect on the process that has removed the link.
pub fn unlink_against_exit() {
    let peers = Peer::pair();
    link(&*peers.0, peers.0.clone(), peers.1.pid, Ok(peers.1.clone())).expect("both live");
    let ends = spawn(&peers, |(_, ending)| ending.end());
    unlink(&*peers.0, peers.1.pid);
    let heard = peers.0.has(KILLED);
    join(ends);
    assert_eq!(peers.0.has(KILLED), heard, "an exit came after the unlink");
    assert!(is_alone(&peers.0) && is_alone(&peers.1));
}

/// Two processes link to each other at the same time. Then one process exits, and the other process receives one exit
/// signal.
pub fn two_link_at_once() {
    let peers = Peer::pair();
    let links = spawn(&peers, |(one, other)| link(&**other, other.clone(), one.pid, Ok(one.clone())));
    link(&*peers.0, peers.0.clone(), peers.1.pid, Ok(peers.1.clone())).expect("both live");
    join(links).expect("both live");
    peers.0.links().trap(true);
    peers.1.end();
    assert_eq!(peers.0.read(), [0]);
    assert!(is_alone(&peers.0) && is_alone(&peers.1));
}

/// Two linked processes exit at the same time. No thread waits forever, and afterwards the two processes have no
/// references to each other.
pub fn two_ends_at_once() {
    let peers = Peer::pair();
    link(&*peers.0, peers.0.clone(), peers.1.pid, Ok(peers.1.clone())).expect("both live");
    monitor(&*peers.0, peers.0.clone(), peers.1.pid, Ok(peers.1.clone()));
    let ends = spawn(&peers, |(one, _)| one.end());
    peers.1.end();
    join(ends);
    assert!(is_alone(&peers.0) && is_alone(&peers.1));
}

/// A process monitors another process. The monitored process sends a message and exits. Exactly one `Down` event
/// arrives, after the message.
pub fn monitor_against_send_and_exit() {
    let peers = Peer::pair();
    let ends = spawn(&peers, |(watcher, ending)| {
        watcher.inbox.push(Waker::noop(), 1, || {}).expect("it is open").wake();
        ending.end();
    });
    monitor(&*peers.0, peers.0.clone(), peers.1.pid, Ok(peers.1.clone()));
    join(ends);
    assert_eq!(peers.0.read(), [1, 0]);
    assert!(is_alone(&peers.0) && is_alone(&peers.1));
}

/// A monitor is removed while the monitored process exits. If `demonitor` reports that the removal was too late, the
/// `Down` event arrives. Otherwise, no `Down` event arrives.
pub fn demonitor_against_exit() {
    let peers = Peer::pair();
    let watch: MonitorRef = monitor(&*peers.0, peers.0.clone(), peers.1.pid, Ok(peers.1.clone()));
    let ends = spawn(&peers, |(_, ending)| ending.end());
    let in_time = demonitor(&*peers.0, watch, false);
    join(ends);
    // The model does not use `read`, because `read` skips the `Down` event of a monitor that was removed.
    let down = peers.0.inbox.next(Waker::noop(), &mut ReadAhead::default()).is_some();
    assert_eq!(down, !in_time);
    assert!(is_alone(&peers.0) && is_alone(&peers.1));
}

/// Makes a child exit. Then the child notifies the process that spawned and monitors the child.
fn end_and_tell(child: &Peer, watch: Watch<RefCounted<Peer>>) {
    child.end();
    watch.notify(child.pid, &Exit::Killed);
}

/// A spawn has set a monitor of the child. The monitor is removed while the child exits. If the removal was too late,
/// the `Down` event arrives. Otherwise, no `Down` event arrives.
pub fn carried_monitor_against_demonitor() {
    let peers = Peer::pair();
    let watch = Watch::set(peers.0.clone());
    let monitor = MonitorRef::new(peers.0.pid, watch.number());
    let ends = spawn(&peers, move |(_, child)| end_and_tell(child, watch));
    let in_time = demonitor(&*peers.0, monitor, false);
    join(ends);
    let down = peers.0.inbox.next(Waker::noop(), &mut ReadAhead::default()).is_some();
    assert_eq!(down, !in_time);
    assert!(is_alone(&peers.0) && is_alone(&peers.1));
}

/// A child and the process that monitors the child exit at the same time. Meanwhile, another thread spawns a second
/// child, and the monitoring process also monitors this second child. After the exits, no references to the two
/// processes are left.
pub fn carried_monitor_against_both_ends() {
    let peers = Peer::pair();
    let watch = Watch::set(peers.0.clone());
    let ends = spawn(&peers, move |(_, child)| end_and_tell(child, watch));
    let spawns = spawn(&peers, |(watcher, _)| Watch::set(watcher.clone()));
    peers.0.end();
    join(ends);
    join(spawns).notify(peers.1.pid, &Exit::Killed);
    assert!(is_alone(&peers.0) && is_alone(&peers.1));
}

//! Models of monitored groups. A process starts to monitor a group. At the same time, another process joins and leaves
//! the group, or the monitoring process exits.

use std::task::Waker;

use crate::host::link::{Linkable, Links};
use crate::host::registry::groups::{Groups, Own};
use crate::model::{join, spawn};
use crate::platform::sync::Arc;
use crate::process::event::Signal;
use crate::process::exit::Exit;
use crate::process::mailbox::{Inbox, MailboxCapacity, ReadAhead, Wakes};
use crate::process::pid::Pid;
use crate::process::state::current::InTurn;
use crate::process::state::{Ref, RefCounted};

/// A process that can join and monitor groups.
struct TestProcess {
    pid: Pid,
    own: Own,
    inbox: Inbox<()>,
    links: Links<RefCounted<TestProcess>>,
}

impl TestProcess {
    fn new(number: u32) -> Ref<RefCounted<Self>> {
        Ref::counted(Self {
            pid: Pid::new(0, 0, number, 1),
            own: Own::default(),
            inbox: Inbox::new(MailboxCapacity::Unbounded, None),
            links: Links::default(),
        })
    }
}

impl Linkable for RefCounted<TestProcess> {
    fn pid(&self) -> Pid {
        self.pid
    }

    fn links(&self) -> &Links<Self> {
        &self.links
    }

    fn exit(&self) -> Option<Exit> {
        None
    }

    fn has_ended(&self) -> bool {
        false
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
        false
    }

    fn wake_killed(&self) -> bool {
        true
    }

    fn exit_outside(_: &Ref<Self>, _: &Exit) {}
}

/// Two processes that use the same groups. `watcher` monitors a group, and `member` joins the group and exits.
struct World {
    groups: Groups<RefCounted<TestProcess>>,
    watcher: Ref<RefCounted<TestProcess>>,
    member: Ref<RefCounted<TestProcess>>,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self { groups: Groups::new(), watcher: TestProcess::new(1), member: TestProcess::new(2) })
    }

    fn join(&self, process: &Ref<RefCounted<TestProcess>>) {
        self.groups.join("g".into(), process, &process.own, || !process.inbox.is_closed());
    }

    fn watch(&self) -> Vec<Pid> {
        self.groups.watch("g".into(), &self.watcher, &self.watcher.own, || !self.watcher.inbox.is_closed()).1
    }

    fn leave(&self, process: &TestProcess) {
        self.groups.leave("g", process.pid, &process.own);
    }

    /// Makes a process exit in the same way as `AnyControl::run_exit`.
    fn end(&self, process: &TestProcess) {
        drop(process.inbox.close(Some(InTurn::in_test())));
        self.groups.release(process.pid, &process.own);
    }

    /// Returns true if the groups contain no references to the two processes.
    fn is_void(&self) -> bool {
        self.watcher.count() == 1 && self.member.count() == 1
    }
}

/// A process joins a group and exits, while another process starts to monitor the group. The monitoring process
/// receives each change exactly once and in order, either in the returned list of members or in a signal.
pub fn watch_against_join() {
    let world = World::new();
    let joins = spawn(&world, |world| {
        world.join(&world.member);
        world.end(&world.member);
    });
    let present = world.watch();
    join(joins);
    let mut heard: Vec<_> = present.iter().map(|_| "joined").collect();
    let mut front = ReadAhead::default();
    while let Some(Err(signal)) = world.watcher.inbox.next(Waker::noop(), &mut front) {
        heard.push(match signal {
            Signal::Joined { .. } => "joined",
            Signal::Left { .. } => "left",
            other => panic!("{other:?}"),
        });
    }
    assert!(heard.is_empty() || heard == ["joined", "left"], "{heard:?}");
    world.end(&world.watcher);
    assert!(world.is_void());
}

/// A process exits while it starts to monitor a group. At the same time, another process joins the group. After the
/// exits, the group has no reference to the two processes.
pub fn watch_against_end() {
    let world = World::new();
    let ends = spawn(&world, |world| world.end(&world.watcher));
    world.watch();
    world.join(&world.member);
    join(ends);
    world.end(&world.member);
    assert!(world.is_void());
}

/// A thread reads the members of a group in pieces. Between two pieces, all members leave the group, so that the
/// group is removed. Then the members join the new group in another order. The list contains each process at most
/// once.
pub fn members_against_new_group() {
    let world = World::new();
    world.join(&world.member);
    world.join(&world.watcher);
    let changes = spawn(&world, |world| {
        world.leave(&world.member);
        world.leave(&world.watcher);
        world.join(&world.watcher);
        world.join(&world.member);
    });
    let members = world.groups.members("g");
    join(changes);
    let is_twice = members.len() == 2 && members[0].pid == members[1].pid;
    assert!(!is_twice && members.len() <= 2, "a process is listed twice");
    drop(members);
    world.end(&world.member);
    world.end(&world.watcher);
    assert!(world.is_void());
}

//! Section 2.5 of the specification: monitors of groups. The file `names.rs` tests names and the membership of groups.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context as Cx, Wake, Waker};
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use futures::executor::block_on;
use procession::{
    Address, BoxError, Context, Event, Events, Exit, Group, Host, MonitorRef, Name, Next, Pid, Process, Reply, Runtime,
    StepOutput,
};

use crate::{step_aside, two, within};

const ROOM: Group<Order> = Group::new("room");

#[derive(Debug)]
enum Order {
    Join,
    Leave,
    End,
    Panic,
    Sync(Reply<()>),
}

async fn guest(mut ctx: Context<Order>) -> Result<(), Exit> {
    loop {
        match ctx.receive().await? {
            Order::Join => ctx.join_group(ROOM),
            Order::Leave => ctx.leave_group(ROOM),
            Order::End => return Ok(()),
            Order::Panic => panic!("out"),
            Order::Sync(reply) => reply.send(()),
        }
    }
}

fn lone() -> Runtime {
    Runtime::builder().workers(0).build().expect("a runtime")
}

/// Waits for the next change of the group. If a member has joined, returns true and the pid of the member. If a member
/// has left, returns false and the pid of the member.
async fn change(ctx: &mut Context<u64>, watch: MonitorRef) -> (bool, Pid) {
    match ctx.event().await {
        Event::Joined { monitor, group, pid } if monitor == watch && &*group == "room" => (true, pid),
        Event::Left { monitor, group, pid } if monitor == watch && &*group == "room" => (false, pid),
        other => panic!("{other:?}"),
    }
}

/// 2.5e: a process that begins to monitor a group gets the present members. Then the process receives each join and
/// each leave. The exit of a member counts as a leave, for any exit reason.
#[test]
fn a_group_monitor_receives_each_join_and_each_leave() {
    let rt = lone();
    let host = rt.host().clone();
    let watcher = rt.spawn(async move |mut ctx: Context<u64>| {
        let early = host.spawn(guest);
        early.send(Order::Join)?;
        while host.members(ROOM).is_empty() {
            ctx.yield_now().await;
        }
        let (watch, present) = ctx.monitor_group(ROOM);
        assert_eq!(present, [early.pid()]);
        for last in [Order::Leave, Order::End, Order::Panic] {
            let guest = host.spawn(guest);
            guest.send(Order::Join)?;
            guest.send(Order::Join)?;
            guest.send(last)?;
            assert_eq!(change(&mut ctx, watch).await, (true, guest.pid()));
            assert_eq!(change(&mut ctx, watch).await, (false, guest.pid()));
            guest.abort();
        }
        early.abort();
        assert_eq!(change(&mut ctx, watch).await, (false, early.pid()));
        assert!(host.members(ROOM).is_empty());
        // If the process itself joins or leaves the group, the process receives this change too. The process receives
        // no changes of other groups.
        let me = ctx.address();
        let own: Group<u64> = Group::new("room");
        ctx.join_group(own);
        ctx.join_group(Group::<u64>::new("hall"));
        ctx.leave_group(own);
        assert_eq!(change(&mut ctx, watch).await, (true, me.pid()));
        assert_eq!(change(&mut ctx, watch).await, (false, me.pid()));
        me.send(7)?;
        assert!(matches!(ctx.event().await, Event::Message(7)));
        Ok::<_, BoxError>(())
    });
    rt.block_on(watcher).unwrap();
}

/// 2.5b, 2.5e: when a member of a group exits, the messages of this member arrive before its `Left` event. The
/// destructors of the member's body may also send messages, and these messages also arrive before the `Left` event.
/// When `Left` arrives, other processes can register the names of the member, and the pid of the member is invalid.
/// `Down` arrives after `Left`.
#[test]
fn the_messages_of_an_exiting_member_arrive_before_the_event_left() {
    const NAME: Name<Order> = Name::new("late");
    struct Last(Address<u64>);
    impl Drop for Last {
        fn drop(&mut self) {
            let _ = self.0.send(2);
        }
    }
    let rt = lone();
    let watcher = rt.spawn(async |mut ctx: Context<u64>| {
        let to = ctx.address();
        let (_, _) = ctx.monitor_group("room");
        let (member, _) = ctx.spawn_monitor(async move |mut ctx: Context<Order>| {
            let last = Last(to);
            ctx.register(NAME)?;
            ctx.join_group(ROOM);
            last.0.send(1)?;
            let ended = ctx.receive().await.map(drop);
            drop(last);
            ended
        });
        let mut heard = Vec::new();
        while heard.len() < 5 {
            heard.push(match ctx.event().await {
                Event::Joined { .. } => "joined",
                Event::Message(1) => {
                    member.abort();
                    "first"
                }
                Event::Message(_) => "last",
                Event::Left { pid, .. } => {
                    assert!(ctx.host().whereis(NAME).is_none() && ctx.host().address::<Order>(pid).is_none());
                    assert!(ctx.host().members(ROOM).is_empty());
                    "left"
                }
                Event::Down { exit: Exit::Killed, .. } => "down",
                other => panic!("{other:?}"),
            });
        }
        Ok::<_, Exit>(heard)
    });
    assert_eq!(rt.block_on(watcher).unwrap(), ["joined", "first", "last", "left", "down"]);
}

/// 2.5e: a monitor that was removed delivers no event. An event that was already queued at the time of the removal is
/// not delivered either. Other monitors are not affected.
#[test]
fn a_monitor_of_a_group_can_be_removed() {
    let rt = lone();
    let watcher = rt.spawn(async |mut ctx: Context<u64>| {
        let room: Group<u64> = Group::new("room");
        let (one, _) = ctx.monitor_group(room);
        let (other, _) = ctx.monitor_group(room);
        assert_ne!(one, other);
        ctx.join_group(room);
        assert!(ctx.demonitor(one) && !ctx.demonitor(one) && !ctx.demonitor_flush(one));
        ctx.leave_group(room);
        let pid = ctx.pid();
        assert_eq!(change(&mut ctx, other).await, (true, pid));
        assert!(ctx.demonitor_flush(other));
        ctx.address().send(1)?;
        assert!(matches!(ctx.event().await, Event::Message(1)));
        // The process `stranger` cannot remove this group monitor. The reference of the group monitor also differs
        // from the reference of the monitor for `stranger`.
        let (third, present) = ctx.monitor_group(room);
        assert!(present.is_empty());
        let stranger = ctx.spawn(async move |ctx: Context| assert!(!ctx.demonitor(third)));
        let watch = ctx.monitor(stranger.pid());
        assert_ne!(watch, third);
        assert!(matches!(ctx.event().await, Event::Down { monitor, .. } if monitor == watch));
        ctx.join_group(room);
        assert_eq!(change(&mut ctx, third).await, (true, pid));
        Ok::<_, BoxError>(())
    });
    rt.block_on(watcher).unwrap();
}

/// 2.5e: a mailbox outside any process may monitor a group. After the mailbox is closed or dropped, the group sends no
/// more events to the mailbox.
#[test]
fn mailboxes_outside_processes_can_monitor_groups() {
    let rt = lone();
    let (address, mut mailbox) = rt.mailbox::<u64>();
    let (_, another) = rt.mailbox::<u64>();
    let (watch, _) = mailbox.monitor_group(ROOM);
    another.monitor_group(ROOM);
    drop(another);
    let guest = rt.spawn(guest);
    guest.send(Order::Join).unwrap();
    rt.block_on(async {
        assert!(matches!(mailbox.event().await, Event::Joined { monitor, .. } if monitor == watch));
    });
    rt.kill(address.pid()).unwrap();
    let (_, present) = mailbox.monitor_group(ROOM);
    assert_eq!(present, [guest.pid()], "it sees, and is told nothing");
    guest.send(Order::Leave).unwrap();
    rt.block_on(async {
        guest.send(Order::End).unwrap();
        guest.await.unwrap();
        assert!(matches!(mailbox.receive().await, Err(Exit::Killed)));
    });
}

/// 2.5e: a hand-written process receives the same events of a group as an async body.
#[test]
fn a_hand_written_process_can_monitor_a_group() {
    #[derive(Default)]
    struct Watcher(Option<MonitorRef>, Vec<(bool, Pid)>);
    impl Process for Watcher {
        type Message = ();
        type Output = Vec<(bool, Pid)>;
        fn step(
            &mut self,
            events: Events<'_, ()>,
            out: &mut StepOutput<'_, ()>,
        ) -> Result<Next<Vec<(bool, Pid)>>, Exit> {
            let watch = *self.0.get_or_insert_with(|| {
                let (forgotten, _) = out.monitor_group(ROOM);
                assert!(out.demonitor(forgotten));
                out.monitor_group(ROOM).0
            });
            for event in events {
                match event {
                    Event::Joined { monitor, pid, .. } if monitor == watch => self.1.push((true, pid)),
                    Event::Left { monitor, pid, .. } if monitor == watch => self.1.push((false, pid)),
                    other => panic!("{other:?}"),
                }
            }
            Ok(if self.1.len() == 4 { Next::Done(std::mem::take(&mut self.1)) } else { Next::Wait })
        }
    }
    let rt = lone();
    rt.block_on(async {
        let watcher = rt.spawn_process(Watcher::default());
        watcher.started().await.unwrap();
        let guest = rt.spawn(guest);
        for order in [Order::Join, Order::Leave, Order::Join, Order::Panic] {
            guest.send(order).unwrap();
        }
        let pid = guest.pid();
        assert_eq!(watcher.await.unwrap(), [(true, pid), (false, pid), (true, pid), (false, pid)]);
    });
}

/// 2.5e: many processes join, leave and exit, while other processes begin to monitor the group at arbitrary moments.
/// Each monitor computes the members from the initial members and the events. The computed members are correct, because
/// each change is delivered exactly once.
#[test]
fn every_change_of_a_group_is_delivered_exactly_once() {
    const CROWD: usize = 400;
    const WATCHERS: usize = 20;
    let rounds = if cfg!(debug_assertions) { 3 } else { 10 };
    within(120, move || {
        for round in 0..rounds {
            let rt = two();
            let host = rt.host().clone();
            let crowd: Vec<_> = (0..CROWD).map(|_| host.spawn(guest)).collect();
            let watchers: Vec<_> = (0..WATCHERS)
                .map(|_| {
                    host.spawn(async |mut ctx: Context<u64>| {
                        let (_, present) = ctx.monitor_group(ROOM);
                        let mut members: BTreeSet<Pid> = present.into_iter().collect();
                        loop {
                            match ctx.event().await {
                                Event::Joined { pid, .. } => assert!(members.insert(pid), "joined twice"),
                                Event::Left { pid, .. } => assert!(members.remove(&pid), "left before it joined"),
                                Event::Message(_) => return Ok::<_, Exit>(members),
                                other => panic!("{other:?}"),
                            }
                        }
                    })
                })
                .collect();
            for (n, guest) in crowd.iter().enumerate() {
                let _ = guest.send(Order::Join);
                match n % 5 {
                    0 => guest.abort(),
                    1 => drop(guest.send(Order::Leave)),
                    2 => drop(guest.send(Order::Panic)),
                    3 => drop((guest.send(Order::Leave), guest.send(Order::Join))),
                    _ => {}
                }
            }
            block_on(async {
                // The loop ends when no change is pending: the exited members have left the group, and the other
                // members have read all their messages.
                for guest in &crowd {
                    if guest.call(Order::Sync).await.is_err() {
                        guest.exited().await;
                    }
                }
            });
            let stay: BTreeSet<Pid> = rt.members(ROOM).iter().map(Address::pid).collect();
            for watcher in watchers {
                watcher.send(0).unwrap();
                assert_eq!(block_on(watcher).unwrap(), stay, "round {round}");
            }
        }
    });
}

/// 2.5e: a member exits. The `Left` event is delivered before the pid of the member is removed. So a monitor receives
/// `Left` before the monitor can receive an event that says that the pid does not exist.
#[test]
fn a_member_leaves_its_groups_before_its_pid_is_removed() {
    struct Looks(Host, Pid, Mutex<Vec<bool>>);
    impl Wake for Looks {
        fn wake(self: Arc<Self>) {
            let is_known = self.0.address::<Order>(self.1).is_some();
            self.2.lock().unwrap().push(is_known);
        }
    }
    let rt = lone();
    let member = rt.spawn(guest);
    member.send(Order::Join).unwrap();
    while rt.members(ROOM).is_empty() {
        rt.block_on(step_aside());
    }
    let (_, mut mailbox) = rt.mailbox::<()>();
    mailbox.monitor_group(ROOM);
    let looks = Arc::new(Looks(rt.host().clone(), member.pid(), Mutex::default()));
    let mut event = Box::pin(mailbox.event());
    assert!(event.as_mut().poll(&mut Cx::from_waker(&Waker::from(looks.clone()))).is_pending());
    let pid = member.pid();
    member.send(Order::End).unwrap();
    rt.block_on(member).unwrap();
    assert_eq!(*looks.2.lock().unwrap(), [true]);
    assert!(matches!(event.now_or_never(), Some(Event::Left { pid: left, .. }) if left == pid));
}

/// 2.5b: a process has a timer with a message. While the process exits, the destructor of this message blocks. The pid
/// of the process is already removed. While the destructor blocks, the process is in no group. The process limit does
/// not count this process, so a new process can be spawned.
#[test]
fn a_process_without_a_pid_counts_neither_for_a_group_nor_for_the_limit() {
    struct Slow(mpsc::Receiver<()>);
    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }
    within(60, || {
        let rt = Runtime::builder().workers(1).max_processes(1).build().unwrap();
        let (to, _mailbox) = rt.mailbox::<Slow>();
        let (ends, end) = mpsc::channel();
        let process = rt.spawn(async move |ctx: Context<Order>| {
            ctx.join_group(ROOM);
            ctx.send_after(Duration::from_secs(3600), &to, Slow(end));
        });
        while rt.address::<Order>(process.pid()).is_some() {
            thread::yield_now();
        }
        assert!(rt.members(ROOM).is_empty());
        let successor = rt.process().spawn(async |_: Context| ());
        drop(ends);
        block_on(successor.unwrap()).unwrap();
        block_on(process).unwrap();
    });
}

/// 2.5e: the runtime reads a large group in several parts. The members are listed in the order in which they joined.
#[test]
fn the_members_of_a_large_group_are_listed_in_order() {
    let rt = lone();
    for count in [255, 256, 257, 600] {
        let guests: Vec<_> = (0..count).map(|_| rt.spawn(guest)).collect();
        rt.block_on(async {
            for guest in &guests {
                guest.send(Order::Join).unwrap();
                guest.call(Order::Sync).await.unwrap();
            }
        });
        let (_, mailbox) = rt.mailbox::<()>();
        let (_, pids) = mailbox.monitor_group(ROOM);
        assert_eq!(pids, guests.iter().map(|guest| guest.pid()).collect::<Vec<_>>());
        assert_eq!(rt.members(ROOM).iter().map(|member| member.pid()).collect::<Vec<_>>(), pids);
        guests.iter().for_each(|guest| guest.abort());
        guests.into_iter().for_each(|guest| drop(rt.block_on(guest)));
    }
}

/// 2.5e: a mailbox without a process joins a group, receives a message to the group, and leaves the group. The drop of
/// the mailbox also ends the membership.
#[test]
fn a_mailbox_without_a_process_joins_a_group() {
    const NEWS: Group<u8> = Group::new("news");
    let rt = lone();
    let (address, mut mailbox) = rt.mailbox::<u8>();
    let (_, other) = rt.mailbox::<u8>();
    mailbox.join_group(NEWS);
    other.join_group("news");
    assert_eq!(rt.broadcast(NEWS, 7), 2);
    assert_eq!(mailbox.try_receive(), Some(7));
    other.leave_group(NEWS);
    assert_eq!(rt.members(NEWS), [address]);
    drop(mailbox);
    assert!(rt.members(NEWS).is_empty());
}

//! Tests of monitored groups: their members join, leave and exit at the same time.

use std::sync::Arc;

use futures::channel::oneshot;
use procession::*;
use shuttle::thread;

use crate::runtime;

const ROOM: Group<()> = Group::new("room");

#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    Joined(Pid),
    Left(Pid),
    /// A message that a member sent before this member left the group for the last time.
    Sent(Pid),
}

/// The members and changes that a process has observed. The first part contains the members at the time at which the
/// process began to monitor the group. The second part contains the later changes.
type Observation = (Vec<Pid>, Vec<Change>);

/// Monitors the group until the process receives the message `None`.
async fn monitor_until_none(mut ctx: Context<Option<Pid>>) -> Result<Observation, Exit> {
    let (watch, present) = ctx.monitor_group(ROOM);
    let mut heard = Vec::new();
    loop {
        heard.push(match ctx.event().await {
            Event::Joined { monitor, pid, .. } if monitor == watch => Change::Joined(pid),
            Event::Left { monitor, pid, .. } if monitor == watch => Change::Left(pid),
            Event::Message(Some(pid)) => Change::Sent(pid),
            Event::Message(None) => return Ok((present, heard)),
            other => panic!("{other:?}"),
        });
    }
}

/// Applies `changes` to the list of members, and returns the resulting list. Panics if a member joins again, or if a
/// non-member leaves.
fn after(mut present: Vec<Pid>, changes: &[Change]) -> Vec<Pid> {
    for change in changes {
        match *change {
            Change::Joined(pid) => {
                assert!(!present.contains(&pid), "joined twice: {changes:?}");
                present.push(pid);
            }
            Change::Left(pid) => {
                assert!(present.contains(&pid), "left and was not there: {changes:?}");
                present.retain(|other| *other != pid);
            }
            Change::Sent(_) => {}
        }
    }
    present
}

/// Checks what two monitors of the same group have observed. From the start of the second monitor, both monitors must
/// have observed the same changes in the same order. After the last change, the group must be empty.
fn check_agreement(mut stories: [Observation; 2]) {
    for (_, heard) in &mut stories {
        heard.retain(|news| !matches!(news, Change::Sent(_)));
    }
    stories.sort_by_key(|(_, heard)| heard.len());
    let [(present, late), (before, early)] = stories;
    let (missed, common) = early.split_at(early.len() - late.len());
    assert_eq!(late, common);
    assert_eq!(present, after(before, missed));
    assert_eq!(after(present, &late), []);
}

scenarios! {
    /// 2.5e: processes begin to monitor a group while its members join, leave, join again and are killed.
    fn monitors_observe_members_that_join_and_leave() {
        let rt = runtime(2);
        let watchers = [rt.spawn(monitor_until_none), rt.spawn(monitor_until_none)];
        let to = [watchers[0].address(), watchers[1].address()];
        let goes = rt.spawn(async move |ctx: Context<()>| {
            ctx.join_group(ROOM);
            ctx.leave_group(ROOM);
            ctx.join_group(ROOM);
            to.iter().for_each(|to| ctx.send(to, Some(ctx.pid())).unwrap());
        });
        let dies = rt.spawn(async |mut ctx: Context<()>| {
            ctx.join_group(ROOM);
            ctx.receive().await
        });
        let pid = goes.pid();
        rt.block_on(goes).unwrap();
        dies.abort();
        assert!(matches!(rt.block_on(dies), Err(Exit::Killed)));
        check_agreement(watchers.map(|watcher| {
            watcher.send(None).unwrap();
            let story = rt.block_on(watcher).unwrap();
            let place = |news| story.1.iter().rposition(|heard| *heard == news);
            assert!(place(Change::Left(pid)).is_none_or(|left| place(Change::Sent(pid)).unwrap() < left), "{story:?}");
            story
        }));
    }

    /// A process monitors a group twice and then removes one monitor. The removed monitor reports no further changes.
    /// The other monitor reports all changes.
    fn a_removed_group_monitor_reports_nothing() {
        let rt = runtime(2);
        let watcher = rt.spawn(async |mut ctx: Context<()>| {
            let (first, _) = ctx.monitor_group(ROOM);
            let (second, present) = ctx.monitor_group(ROOM);
            ctx.yield_now().await;
            assert!(ctx.demonitor(first) && !ctx.demonitor(first));
            let mut heard = Vec::new();
            loop {
                heard.push(match ctx.event().await {
                    Event::Joined { monitor, pid, .. } if monitor == second => Change::Joined(pid),
                    Event::Left { monitor, pid, .. } if monitor == second => Change::Left(pid),
                    Event::Message(()) => return Ok::<_, Exit>(after(present, &heard)),
                    other => panic!("{other:?}"),
                });
            }
        });
        let members = [(); 2].map(|()| rt.spawn(async |ctx: Context<()>| ctx.join_group(ROOM)));
        members.into_iter().for_each(|one| rt.block_on(one).unwrap());
        watcher.send(()).unwrap();
        assert_eq!(rt.block_on(watcher).unwrap(), []);
    }

    /// Two processes are members of a group and also monitor the group. Both processes are killed concurrently. A third
    /// process receives all changes. The memory of both killed processes is freed.
    fn members_exit_while_they_monitor_their_own_group() {
        let rt = runtime(2);
        let probe = Arc::new(());
        let third = rt.spawn(monitor_until_none);
        let both = [(); 2].map(|()| {
            let one = rt.process().value(Arc::clone(&probe)).spawn(async |mut ctx: Context<()>| {
                ctx.monitor_group(ROOM);
                ctx.join_group(ROOM);
                ctx.receive().await
            });
            one.unwrap()
        });
        let host = rt.host().clone();
        let pid = both[0].pid();
        let kills = thread::spawn(move || host.kill(pid));
        both[1].abort();
        for one in both {
            assert!(rt.block_on(one).is_err());
        }
        let _ = kills.join().unwrap();
        third.send(None).unwrap();
        let (present, heard) = rt.block_on(third).unwrap();
        assert_eq!(after(present, &heard), []);
        assert!(rt.members(ROOM).is_empty());
        while Arc::strong_count(&probe) != 1 {
            thread::yield_now();
        }
    }

    /// Another thread makes a process join and monitor a group while the process is killed. After the kill, the process
    /// is in no group. If the group monitor reports the join of the process, the monitor also reports the leave.
    fn a_process_joins_while_it_is_killed() {
        let rt = runtime(2);
        let watcher = rt.spawn(monitor_until_none);
        let (give, me) = oneshot::channel();
        let dies = rt.spawn(async move |ctx: Context<()>| {
            let (me, mut mailbox) = ctx.split();
            drop(give.send(me));
            mailbox.receive().await
        });
        let me = rt.block_on(me).unwrap();
        let joins = thread::spawn(move || {
            me.join_group(ROOM);
            me.monitor_group(ROOM);
        });
        dies.abort();
        assert!(rt.block_on(dies).is_err());
        joins.join().unwrap();
        assert!(rt.members(ROOM).is_empty());
        watcher.send(None).unwrap();
        let (present, heard) = rt.block_on(watcher).unwrap();
        assert_eq!(after(present, &heard), []);
    }
}

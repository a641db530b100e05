//! Section 6.3 of the specification: links, monitors, and the events that they deliver. The documentation page
//! `procession::guide::lifecycle` lists these tests next to the rules that they verify.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use ::futures::stream::FuturesUnordered;
use ::futures::{FutureExt, StreamExt};
use procession::*;

use crate::{everywhere, two, within};

fn lone() -> Runtime {
    Runtime::builder().workers(0).build().unwrap()
}

/// Message with an instruction to a child.
#[derive(Debug, Clone, Copy)]
enum Do {
    End,
    Fail,
    Panic,
    LinkTo(Pid),
    Trap,
}

/// Body of a child. The child executes the instructions in its messages. The child records each `Event::Exit` in
/// `ears`.
async fn child(mut ctx: Context<Do>, ears: Ears) -> Result<(), Exit> {
    loop {
        match ctx.event().await {
            Event::Message(Do::End) => return Ok(()),
            Event::Message(Do::Fail) => return Err(Exit::failed("failed")),
            Event::Message(Do::Panic) => panic!("panicked"),
            Event::Message(Do::LinkTo(pid)) => ctx.link(pid)?,
            Event::Message(Do::Trap) => drop(ctx.trap_exit(true)),
            Event::Exit { from, exit: reason } => ears.lock().unwrap().push((from, reason)),
            other => panic!("{other:?}"),
        }
    }
}

type Ears = Arc<Mutex<Vec<(Pid, Exit)>>>;

fn told(ears: &Ears) -> Vec<(Pid, String)> {
    ears.lock().unwrap().iter().map(|(pid, exit)| (*pid, exit.to_string())).collect()
}

fn spawn(host: &Host) -> JoinHandle<(), Do> {
    host.spawn(|ctx| child(ctx, Ears::default()))
}

fn spawn_with(host: &Host) -> (JoinHandle<(), Do>, Ears) {
    let ears = Ears::default();
    let handle = host.spawn({
        let ears = Arc::clone(&ears);
        |ctx| child(ctx, ears)
    });
    (handle, ears)
}

/// Runs all runnable tasks of a runtime without workers.
fn settle(rt: &Runtime) {
    let quiet = rt.spawn(async |ctx: Context| {
        for _ in 0..64 {
            ctx.yield_now().await;
        }
    });
    rt.block_on(quiet).unwrap();
}

/// 6.1c, 6.3a: if a process exits abnormally for any reason, each linked process exits with `Exit::Linked`.
/// `Exit::Linked` contains the pid of the process that exited first, and the exit of that process.
#[test]
fn an_abnormal_exit_ends_linked_processes() {
    let rt = lone();
    for how in [Some(Do::Fail), Some(Do::Panic), None] {
        let (first, second) = (spawn(&rt), spawn(&rt));
        second.send(Do::LinkTo(first.pid())).unwrap();
        settle(&rt);
        match how {
            Some(how) => first.send(how).unwrap(),
            None => first.abort(),
        }
        let pid = first.pid();
        let first = rt.block_on(first).unwrap_err();
        let Err(Exit::Linked { origin, reason }) = rt.block_on(second) else { panic!("it lives on") };
        assert_eq!((origin, reason.to_string()), (pid, first.to_string()));
    }
}

/// 6.3a: a link works in both directions.
#[test]
fn a_link_works_in_both_directions() {
    let rt = lone();
    let (first, second) = (spawn(&rt), spawn(&rt));
    second.send(Do::LinkTo(first.pid())).unwrap();
    settle(&rt);
    second.send(Do::Fail).unwrap();
    assert!(matches!(rt.block_on(first), Err(Exit::Linked { origin, .. }) if origin == second.pid()));
}

/// 6.3a: if a process exits normally, its linked processes are not affected. A linked process that traps exits receives
/// the exit as an event.
#[test]
fn a_normal_exit_is_ignored_unless_trapped() {
    let rt = lone();
    let first = spawn(&rt);
    let (deaf, heard_deaf) = spawn_with(&rt);
    let (trapping, heard) = spawn_with(&rt);
    trapping.send(Do::Trap).unwrap();
    for other in [&deaf, &trapping] {
        other.send(Do::LinkTo(first.pid())).unwrap();
    }
    settle(&rt);
    let pid = first.pid();
    first.send(Do::End).unwrap();
    rt.block_on(first).unwrap();
    settle(&rt);
    assert_eq!(told(&heard), [(pid, "exited normally".to_owned())]);
    assert!(told(&heard_deaf).is_empty() && !deaf.is_finished() && !trapping.is_finished());
}

/// 6.3a: if a process traps exits, it receives the exit of a linked process as an event with the exit reason. The same
/// event arrives if the linked process was killed.
#[test]
fn a_trapped_exit_is_an_event() {
    let rt = lone();
    let (trapping, heard) = spawn_with(&rt);
    trapping.send(Do::Trap).unwrap();
    let mut expected = Vec::new();
    for how in [Some(Do::Fail), None] {
        let first = spawn(&rt);
        trapping.send(Do::LinkTo(first.pid())).unwrap();
        settle(&rt);
        match how {
            Some(how) => first.send(how).unwrap(),
            None => first.abort(),
        }
        let pid = first.pid();
        expected.push((pid, rt.block_on(first).unwrap_err().to_string()));
    }
    settle(&rt);
    assert_eq!(told(&heard), expected);
    assert_eq!(expected[1].1, Exit::Killed.to_string());
}

/// 6.2d, 6.3a: a kill ends a process even if the process traps exits. A process that is linked with the killed process
/// receives `Exit::Killed`, and can trap this exit.
#[test]
fn a_kill_cannot_be_trapped_but_its_exit_signal_can_be_trapped() {
    let rt = lone();
    let (first, _) = spawn_with(&rt);
    let (peer, heard) = spawn_with(&rt);
    first.send(Do::Trap).unwrap();
    peer.send(Do::Trap).unwrap();
    peer.send(Do::LinkTo(first.pid())).unwrap();
    settle(&rt);
    let pid = first.pid();
    rt.kill(pid).unwrap();
    assert!(matches!(rt.block_on(first), Err(Exit::Killed)));
    settle(&rt);
    assert!(matches!(heard.lock().unwrap()[..], [(from, Exit::Killed)] if from == pid));
    assert!(!peer.is_finished());
}

/// 6.1c, 6.3a: processes are linked in a chain of any length. Each exit contains the pid and the exit of the process
/// that exited first. An exit never contains the exit of a process in the middle of the chain.
#[test]
fn an_exit_names_its_origin_along_any_chain() {
    let rt = lone();
    let chain: Vec<_> = (0..50).map(|_| spawn(&rt)).collect();
    let (trapping, heard) = spawn_with(&rt);
    for (handle, next) in chain.iter().zip(&chain[1..]) {
        handle.send(Do::LinkTo(next.pid())).unwrap();
    }
    trapping.send(Do::Trap).unwrap();
    trapping.send(Do::LinkTo(chain[49].pid())).unwrap();
    settle(&rt);
    let (first, last) = (chain[0].pid(), chain[49].pid());
    chain[0].send(Do::Fail).unwrap();
    for (place, handle) in chain.into_iter().enumerate() {
        let exit = rt.block_on(handle).unwrap_err();
        match exit {
            Exit::Failed(_) => assert_eq!(place, 0),
            Exit::Linked { origin, reason } => assert!(origin == first && matches!(*reason, Exit::Failed(_))),
            other => panic!("{other}"),
        }
    }
    settle(&rt);
    let heard = heard.lock().unwrap();
    let [(from, Exit::Linked { origin, reason })] = &heard[..] else { panic!("{heard:?}") };
    assert!((*from, *origin) == (last, first) && matches!(**reason, Exit::Failed(_)));
}

/// 6.3a: if a process links to an exited process, the call returns an error. If the calling process traps exits, it
/// receives an exit event instead.
#[test]
fn a_link_to_an_exited_process_causes_an_error_or_an_event() {
    let rt = lone();
    let dead = spawn(&rt);
    let pid = dead.pid();
    dead.send(Do::Fail).unwrap();
    rt.block_on(dead).unwrap_err();
    let body = rt.spawn(async move |mut ctx: Context| {
        assert_eq!(ctx.link(pid), Err(NoProcess(pid)));
        assert!(!ctx.trap_exit(true));
        assert_eq!(ctx.link(pid), Ok(()));
        assert!(matches!(ctx.event().await, Event::Exit { from, exit: Exit::NoProcess } if from == pid));
        assert!(ctx.trap_exit(false));
        assert_eq!(ctx.link(pid), Err(NoProcess(pid)));
    });
    rt.block_on(body).unwrap();
    // A process that has exited can neither link nor monitor another process.
    struct Keep(Arc<Mutex<Option<SelfHandle>>>);
    let kept = Keep(Arc::default());
    let keep = Keep(Arc::clone(&kept.0));
    let gone = rt.spawn(async move |ctx: Context| *keep.0.lock().unwrap() = Some(ctx.split().0));
    let gone_pid = gone.pid();
    rt.block_on(gone).unwrap();
    let me = kept.0.lock().unwrap().take().unwrap();
    let living = spawn(&rt);
    assert_eq!(me.link(living.pid()), Err(NoProcess(gone_pid)));
    me.monitor(living.pid());
    settle(&rt);
    assert!(!living.is_finished());
}

/// 6.3a: if two processes are already linked, a second link from either of the two processes has no effect. A process
/// cannot be linked with itself.
#[test]
fn a_second_link_and_a_link_to_oneself_have_no_effect() {
    let rt = lone();
    let (first, (trapping, heard)) = (spawn(&rt), spawn_with(&rt));
    trapping.send(Do::Trap).unwrap();
    for _ in 0..2 {
        trapping.send(Do::LinkTo(first.pid())).unwrap();
        trapping.send(Do::LinkTo(trapping.pid())).unwrap();
        first.send(Do::LinkTo(trapping.pid())).unwrap();
    }
    settle(&rt);
    first.send(Do::Fail).unwrap();
    let pid = first.pid();
    rt.block_on(first).unwrap_err();
    settle(&rt);
    assert_eq!(heard.lock().unwrap().iter().map(|heard| heard.0).collect::<Vec<_>>(), [pid]);
    trapping.send(Do::Fail).unwrap();
    assert!(matches!(rt.block_on(trapping), Err(Exit::Failed(_))));
}

/// Observer that links its mailboxes to each process that exits. The observer is called before the links of the process
/// receive the exit.
#[derive(Default)]
struct LinksAgain {
    mailboxes: Mutex<Vec<Mailbox<()>>>,
    linked: Mutex<Vec<Result<(), NoProcess>>>,
}

impl Observer for LinksAgain {
    fn ended(&self, pid: Pid, _: Option<&str>, _: &'static str, _: &Exit) {
        let again = self.mailboxes.lock().unwrap().iter().map(|mailbox| mailbox.link(pid)).collect::<Vec<_>>();
        self.linked.lock().unwrap().extend(again);
    }
}

/// 6.3a: one of two linked processes exits, and the other process links again before the link delivers the exit. The
/// second link has no effect, and the exit arrives exactly once.
#[test]
fn a_second_link_during_the_exit_has_no_effect() {
    let observer = Arc::new(LinksAgain::default());
    let rt = Runtime::builder().workers(0).observer(Arc::clone(&observer)).build().unwrap();
    let (trapping, other) = (rt.mailbox::<()>().1, rt.mailbox::<()>().1);
    trapping.trap_exit(true);
    let process = spawn(&rt);
    let pid = process.pid();
    for mailbox in [&trapping, &other] {
        mailbox.link(pid).unwrap();
    }
    observer.mailboxes.lock().unwrap().extend([trapping, other]);
    process.send(Do::End).unwrap();
    rt.block_on(process).unwrap();
    assert_eq!(*observer.linked.lock().unwrap(), [Ok(()), Ok(())]);
    let [mut trapping, mut other] = std::mem::take(&mut *observer.mailboxes.lock().unwrap()).try_into().unwrap();
    let exit = trapping.event().now_or_never();
    assert!(matches!(exit, Some(Event::Exit { from, exit: Exit::Normal }) if from == pid), "{exit:?}");
    assert!(trapping.event().now_or_never().is_none() && other.event().now_or_never().is_none());
}

/// 6.3a: after an unlink has returned, the removed link delivers no exit. If an exit arrived before the unlink, the
/// process can still read this exit.
#[test]
fn no_exit_arrives_after_an_unlink() {
    let rt = lone();
    let rounds = rt.spawn(async |mut ctx: Context| -> Result<(), Exit> {
        let other = ctx.spawn_link(|ctx| child(ctx, Ears::default()));
        ctx.unlink(other.pid());
        ctx.unlink(other.pid());
        let watch = ctx.monitor(other.pid());
        other.send(Do::Fail)?;
        assert!(matches!(ctx.event().await, Event::Down { monitor, .. } if monitor == watch));
        ctx.trap_exit(true);
        let other = ctx.spawn_link(|ctx| child(ctx, Ears::default()));
        other.send(Do::Fail)?;
        let pid = other.pid();
        let _ = other.await;
        ctx.unlink(pid);
        assert!(matches!(ctx.event().await, Event::Exit { from, .. } if from == pid));
        Ok(())
    });
    rt.block_on(rounds).unwrap();
    // In the next part, the linked process exits on another worker. If the exit of the linked process has not arrived
    // when the unlink returns, this exit never arrives.
    within(60, || {
        let rt = two();
        let race = rt.spawn(async |mut ctx: Context| -> Result<usize, Exit> {
            ctx.trap_exit(true);
            let mut heard = 0;
            for _ in 0..3_000 {
                let other = ctx.spawn_link(|ctx| child(ctx, Ears::default()));
                other.send(Do::Fail)?;
                for _ in 0..ctx.random() % 4 {
                    ctx.yield_now().await;
                }
                ctx.unlink(other.pid());
                let before = futures::next_event_if_queued(&mut ctx);
                let _ = other.await;
                assert!(futures::next_event_if_queued(&mut ctx).is_none(), "it came after the unlink");
                heard += usize::from(before.is_some());
            }
            Ok(heard)
        });
        futures::block_on(race).unwrap();
    });
}

/// The items of the `futures` crate that this file uses, under short names.
mod futures {
    use ::futures::FutureExt as _;
    pub(super) use ::futures::executor::block_on;
    use procession::*;

    /// Returns the next event, or `None` if no event is queued.
    pub(super) fn next_event_if_queued<M: Send + 'static>(ctx: &mut Context<M>) -> Option<Event<M>> {
        ctx.event().boxed().now_or_never()
    }
}

/// 6.3b: if a process monitors an exited process, it receives exactly one `Down` event, with the reason `NoProcess`.
#[test]
fn monitoring_an_exited_process_delivers_one_down_event() {
    let rt = lone();
    let dead = spawn(&rt);
    let pid = dead.pid();
    dead.abort();
    rt.block_on(dead).unwrap_err();
    let body = rt.spawn(async move |mut ctx: Context| {
        let watch = ctx.monitor(pid);
        let down = ctx.event().await;
        assert!(
            matches!(down, Event::Down { monitor, pid: of, exit: Exit::NoProcess } if (monitor, of) == (watch, pid)),
            "{down:?}"
        );
        assert!(!ctx.demonitor(watch));
        ctx.yield_now().await;
        assert!(futures::next_event_if_queued(&mut ctx).is_none());
        // A process receives no `Down` event for its own exit.
        let own = ctx.monitor(ctx.pid());
        assert!(!ctx.demonitor(own));
    });
    rt.block_on(body).unwrap();
}

/// 6.3b: each monitor delivers one `Down` event with the exit reason, even if the exit is normal.
#[test]
fn each_monitor_delivers_one_down_event() {
    let rt = lone();
    for how in [Do::End, Do::Fail, Do::Panic] {
        let body = rt.spawn(async move |mut ctx: Context| -> Result<Exit, Exit> {
            let other = ctx.spawn(|ctx| child(ctx, Ears::default()));
            let watches = [ctx.monitor(other.pid()), ctx.monitor(other.pid())];
            assert_ne!(watches[0], watches[1]);
            other.send(how)?;
            let mut told = HashSet::new();
            let mut last = None;
            for _ in 0..2 {
                let Event::Down { monitor, pid, exit: reason } = ctx.event().await else { panic!("no down") };
                assert!(told.insert(monitor) && watches.contains(&monitor) && pid == other.pid());
                last = Some(reason);
            }
            let exit = other.await.err().unwrap_or(Exit::Normal);
            assert_eq!(last.as_ref(), Some(&exit));
            Ok(exit)
        });
        let expected = match how {
            Do::End => Exit::Normal,
            Do::Fail => Exit::failed("failed"),
            _ => Exit::Panicked("panicked".into()),
        };
        assert_eq!(rt.block_on(body).unwrap(), expected);
    }
}

/// 6.3b: if `demonitor` removes a monitor before the `Down` event is queued, `demonitor` returns true.
/// `demonitor_flush` also removes an unread `Down` event.
#[test]
fn demonitor_keeps_a_queued_down_event_and_demonitor_flush_removes_the_event() {
    let rt = lone();
    let body = rt.spawn(async |mut ctx: Context<&'static str>| -> Result<(), Exit> {
        let spawn = |ctx: &Context<&'static str>| ctx.spawn(|ctx| child(ctx, Ears::default()));
        let other = spawn(&ctx);
        // The other process has not exited yet. The first call of `demonitor` returns true, and no `Down` event
        // arrives.
        let early = ctx.monitor(other.pid());
        assert!(ctx.demonitor(early) && !ctx.demonitor(early) && !ctx.demonitor_flush(early));
        let (late, flushed, read) = (ctx.monitor(other.pid()), ctx.monitor(other.pid()), ctx.monitor(other.pid()));
        other.send(Do::End)?;
        other.await?;
        // The other process has exited. `demonitor` leaves the `Down` event in the queue, and `demonitor_flush` removes
        // the event from the queue.
        assert!(!ctx.demonitor(late) && !ctx.demonitor_flush(flushed));
        for expected in [late, read] {
            assert!(matches!(ctx.event().await, Event::Down { monitor, .. } if monitor == expected));
        }
        assert!(!ctx.demonitor_flush(read));
        // A process cannot remove a monitor that another process has set.
        let other = spawn(&ctx);
        let watch = ctx.monitor(other.pid());
        let thief = ctx.spawn(async move |ctx: Context| assert!(!ctx.demonitor_flush(watch)));
        thief.await?;
        other.abort();
        assert!(matches!(ctx.event().await, Event::Down { monitor, .. } if monitor == watch));
        assert!(futures::next_event_if_queued(&mut ctx).is_none());
        Ok(())
    });
    rt.block_on(body).unwrap();
}

/// 6.3a, 6.3b: a process that traps exits has both a link to a child and a monitor for this child. When the child
/// fails, the process receives both an exit event and a `Down` event.
#[test]
fn a_link_and_a_monitor_both_deliver_an_event() {
    let rt = lone();
    let body = rt.spawn(async |mut ctx: Context| -> Result<(), Exit> {
        ctx.trap_exit(true);
        let other = ctx.process().link().monitor().spawn(|ctx| child(ctx, Ears::default()))?;
        other.send(Do::Fail)?;
        let (mut exits, mut downs) = (0, 0);
        for _ in 0..2 {
            match ctx.event().await {
                Event::Exit { from, exit: Exit::Failed(_) } if from == other.pid() => exits += 1,
                Event::Down { monitor, exit: Exit::Failed(_), .. } if Some(monitor) == other.monitor_ref() => {
                    downs += 1
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((exits, downs), (1, 1));
        Ok(())
    });
    rt.block_on(body).unwrap();
}

/// A hand-written process that exits soon. If the field is 0, `init` returns an error. If the field is 1, `init`
/// panics. For any other value of the field, the first step of the process fails.
struct Brief(u8);

impl Process for Brief {
    type Message = ();
    type Output = ();

    fn init(&mut self, _: Start<'_>) -> Result<(), InitError> {
        match self.0 {
            0 => Err(InitError::Failed("no".into())),
            1 => panic!("in init"),
            _ => Ok(()),
        }
    }

    fn step(&mut self, _: Events<'_, ()>, _: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
        Err(Exit::failed("at once"))
    }
}

/// 1.1g, 6.3d: `spawn_link` and `spawn_monitor` set the link or the monitor before any code of the child runs. A spawn
/// can also set both a link and a monitor. Therefore the parent misses no exit, not even an exit in `init`.
#[test]
fn links_and_monitors_are_set_before_the_child_begins() {
    const ROUNDS: usize = 300;
    everywhere(async |host| {
        let parent = host.spawn(async |mut ctx: Context| -> Result<(), Exit> {
            ctx.trap_exit(true);
            for round in 0..ROUNDS {
                let brief = Brief((round % 3) as u8);
                let raw = ctx.process().link().monitor().spawn_process(brief)?;
                let linked = ctx.spawn_link(async |_: Context| Err::<(), _>("at once"));
                let (monitored, watch) = ctx.spawn_monitor(async |_: Context| -> Result { panic!("at once") });
                let mut left: BTreeSet<(&str, Pid)> =
                    [("down", raw.pid()), ("exit", raw.pid()), ("exit", linked.pid()), ("down", monitored.pid())]
                        .into();
                while !left.is_empty() {
                    match ctx.event().await {
                        Event::Exit { from, exit: reason } => {
                            assert!(left.remove(&("exit", from)) && !matches!(reason, Exit::NoProcess));
                        }
                        Event::Down { pid, monitor, exit: reason } => {
                            assert!(left.remove(&("down", pid)) && !matches!(reason, Exit::NoProcess));
                            assert!(monitor == watch || Some(monitor) == raw.monitor_ref());
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
            Ok(())
        });
        parent.await.unwrap();
        // This parent does not trap exits, so the exit of the child ends the parent.
        let parent = host.spawn(async |ctx: Context| {
            drop(ctx.process().link().spawn_process(Brief(0)).unwrap());
            std::future::pending::<()>().await;
        });
        let exit = parent.await.unwrap_err();
        assert!(matches!(&exit, Exit::Linked { reason, .. } if matches!(**reason, Exit::InitFailed(_))), "{exit}");
    });
}

/// 6.3b, 6.3d: the parent can remove a monitor that `spawn_monitor` has set, like any other monitor. The monitor ends
/// when the child or the parent exits.
#[test]
fn a_monitor_from_the_method_spawn_monitor_can_be_removed() {
    let rt = lone();
    let body = rt.spawn(async |mut ctx: Context| -> Result<(), Exit> {
        let (child, watch) = ctx.spawn_monitor(async |mut ctx: Context<()>| ctx.receive().await);
        assert_eq!(child.monitor_ref(), Some(watch));
        assert!(ctx.demonitor(watch) && !ctx.demonitor(watch) && !ctx.demonitor_flush(watch));
        child.send(())?;
        child.await?;
        // The `Down` event is already queued. `demonitor` leaves the event in the queue, and `demonitor_flush` removes
        // the event from the queue.
        for flush in [false, true] {
            let (child, watch) = ctx.spawn_monitor(async |_: Context| {});
            child.await?;
            assert!(!if flush { ctx.demonitor_flush(watch) } else { ctx.demonitor(watch) });
            let next = futures::next_event_if_queued(&mut ctx);
            match next {
                Some(Event::Down { monitor, exit: Exit::Normal, .. }) => assert!(!flush && monitor == watch),
                None => assert!(flush),
                other => panic!("{other:?}"),
            }
            assert!(!ctx.demonitor(watch));
        }
        Ok(())
    });
    rt.block_on(body).unwrap();
    // A process that has exited can no longer monitor another process, although its `SelfHandle` can still spawn.
    let parent = rt.spawn(async |ctx: Context| Ok::<_, Exit>(ctx.split().0));
    let ended = rt.block_on(parent).unwrap();
    let (child, watch) = ended.spawn_monitor(async |_: Context| 7_u8.checked_add(1).ok_or("no"));
    assert!(!ended.demonitor(watch));
    assert_eq!(rt.block_on(child).unwrap(), 8);
}

/// 6.3b: many runnable children exit. The parent is queued behind its children, so the parent receives many `Down`
/// events in one turn.
#[test]
fn the_exits_of_many_children_reach_the_parent_in_few_turns() {
    const CROWD: usize = 1_000;
    let rt = lone();
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&turns);
    let parent = rt.spawn(async move |mut ctx: Context| {
        let watches: BTreeSet<_> = (0..CROWD).map(|_| ctx.spawn_monitor(async |_: Context| {}).1).collect();
        let mut hear = std::pin::pin!(async {
            let mut heard = BTreeSet::new();
            while heard.len() < CROWD {
                let Event::Down { monitor, .. } = ctx.event().await else { panic!("nothing else comes") };
                assert!(heard.insert(monitor), "told twice");
            }
            heard
        });
        let heard = std::future::poll_fn(|cx| {
            counted.fetch_add(1, SeqCst);
            hear.as_mut().poll(cx)
        })
        .await;
        assert_eq!(heard, watches);
    });
    rt.block_on(parent).unwrap();
    let turns = turns.load(SeqCst);
    assert!(turns <= CROWD / 10, "{turns} turns for {CROWD} downs");
}

/// 2.3e, 6.3c: only `event` returns `Down` events and exit events. `receive` leaves these events in the queue, in their
/// order.
#[test]
fn receive_leaves_down_and_exit_events_in_the_mailbox() {
    let rt = lone();
    let body = rt.spawn(async |mut ctx: Context<u8>| -> Result<(), Exit> {
        ctx.send(&ctx.address(), 1)?;
        let (other, watch) = ctx.spawn_monitor(async |_: Context| {});
        other.await?;
        ctx.send(&ctx.address(), 2)?;
        ctx.send(&ctx.address(), 3)?;
        assert_eq!(ctx.receive().await?, 1);
        assert_eq!(ctx.receive().await?, 2);
        assert_eq!(ctx.try_receive(), Some(3));
        assert!(matches!(ctx.event().await, Event::Down { monitor, .. } if monitor == watch));
        Ok(())
    });
    rt.block_on(body).unwrap();
}

/// 2.3e, 6.3a, 6.3b: a process sends messages and then exits. The messages arrive before the `Down` event and before
/// the exit event of the process.
#[test]
fn the_messages_of_a_process_arrive_before_its_exit() {
    everywhere(async |host| {
        let parent = host.spawn(async |mut ctx: Context<u32>| -> Result<(), Exit> {
            ctx.trap_exit(true);
            for round in 0..1_000 {
                let to = ctx.address();
                let body = async move |_: Context| -> Result<(), Exit> {
                    to.send(round)?;
                    to.send(round + 1)?;
                    Err(Exit::failed("over"))
                };
                let _ = ctx.process().link().monitor().spawn(body)?;
                let mut order = Vec::new();
                for _ in 0..4 {
                    order.push(match ctx.event().await {
                        Event::Message(number) => number - round,
                        Event::Exit { .. } | Event::Down { .. } => 2,
                        other => panic!("{other:?}"),
                    });
                }
                assert_eq!(order, [0, 1, 2, 2]);
            }
            Ok(())
        });
        parent.await.unwrap();
    });
}

/// 2.5b, 6.3a, 6.3b: when a process receives an exit event or a `Down` event, the name of the exited process is free,
/// and its pid refers to no live process.
#[test]
fn a_process_is_gone_before_its_exit_is_delivered() {
    const NAME: Name<()> = Name::new("brief");
    everywhere(async |host| {
        let parent = host.spawn(async |mut ctx: Context| -> Result<(), Exit> {
            ctx.trap_exit(true);
            for round in 0..2_000 {
                let builder = ctx.process().name(NAME);
                let builder = if round % 2 == 0 { builder.link() } else { builder.monitor() };
                let child = builder.spawn(async |_: Context<()>| Err::<(), _>("over"))?;
                match ctx.event().await {
                    Event::Exit { .. } | Event::Down { .. } => {}
                    other => panic!("{other:?}"),
                }
                assert_eq!(ctx.host().whereis(NAME), None);
                assert!(child.is_finished() && ctx.host().address::<()>(child.pid()).is_none());
                assert_eq!(ctx.send(child.pid(), ()).unwrap_err().kind(), SendErrorKind::NoProcess);
                assert_eq!(ctx.host().processes_alive(), 1);
            }
            Ok(())
        });
        parent.await.unwrap();
    });
}

/// Spawns `count` processes, links each process `n` with the processes in `links(n)`, and makes the process 0 fail.
/// Asserts that each process exits exactly once, because of this failure.
fn assert_all_exit_together(count: usize, links: impl Fn(usize) -> Vec<usize> + Send + 'static) {
    enum Msg {
        Link(Vec<Pid>, Reply<()>),
        Fail,
    }
    async fn member(mut ctx: Context<Msg>) -> Result<(), Exit> {
        loop {
            match ctx.receive().await? {
                Msg::Link(pids, reply) => {
                    for pid in pids {
                        ctx.link(pid)?;
                    }
                    reply.send(());
                }
                Msg::Fail => return Err(Exit::failed("failed")),
            }
        }
    }
    within(120, move || {
        let rt = two();
        let all: Vec<_> = (0..count).map(|_| rt.spawn(member)).collect();
        let pids: Vec<_> = all.iter().map(|handle| handle.pid()).collect();
        let watcher = {
            let pids = pids.clone();
            rt.spawn(async move |mut ctx: Context<Reply<()>>| -> Result<(), Exit> {
                let mut watches: HashSet<_> = pids.iter().map(|&pid| ctx.monitor(pid)).collect();
                ctx.receive().await?.send(());
                while !watches.is_empty() {
                    let Event::Down { monitor, .. } = ctx.event().await else { panic!("something else") };
                    assert!(watches.remove(&monitor), "told twice");
                }
                assert!(futures::next_event_if_queued(&mut ctx).is_none());
                Ok(())
            })
        };
        rt.block_on(watcher.call(|reply| reply)).unwrap();
        for (place, handle) in all.iter().enumerate() {
            let links = links(place).into_iter().map(|other| pids[other]).collect();
            rt.block_on(handle.call(|reply| Msg::Link(links, reply))).unwrap();
        }
        let before = rt.counters();
        all[0].send(Msg::Fail).unwrap();
        for (place, handle) in all.into_iter().enumerate() {
            match rt.block_on(handle).unwrap_err() {
                Exit::Failed(_) => assert_eq!(place, 0),
                Exit::Linked { origin, reason } => {
                    assert_eq!((origin, &*reason.to_string()), (pids[0], "failed: failed"));
                }
                other => panic!("{other}"),
            }
        }
        rt.block_on(watcher).unwrap();
        assert_eq!(rt.counters().exited - before.exited, count as u64 + 1);
    });
}

/// 6.3f: a thousand processes are linked in a circle. When one process fails, every process exits exactly once.
#[test]
fn every_process_of_a_circle_of_links_exits_once() {
    assert_all_exit_together(1_000, |place| vec![(place + 1) % 1_000]);
}

/// 6.3f: each of a thousand processes is linked with all other processes. When one process fails, every process exits
/// exactly once.
#[test]
fn every_process_of_a_clique_of_links_exits_once() {
    assert_all_exit_together(1_000, |place| (0..place).collect());
}

/// 6.3a, 6.3b: an exit signal may reach a process that is already exiting for another reason. In this case, the process
/// exits exactly once, with one of the two reasons. Each link and each monitor delivers this exit exactly once.
#[test]
fn a_process_exits_once_if_an_exit_signal_races_another_reason() {
    everywhere(async |host| {
        let judge = host.spawn(async |mut ctx: Context| -> Result<[usize; 3], Exit> {
            ctx.trap_exit(true);
            let mut ends = [0; 3];
            for round in 0..2_000 {
                let middle = ctx.process().link().monitor().spawn(|ctx| child(ctx, Ears::default()))?;
                let pid = middle.pid();
                let other = ctx.spawn(async move |ctx: Context| -> Result<(), Exit> {
                    ctx.link(pid)?;
                    Err(Exit::failed("over"))
                });
                match round % 3 {
                    0 => middle.abort(),
                    1 => middle.send(Do::Fail).or_else(|_| Ok::<_, Exit>(()))?,
                    _ => {}
                }
                let (mut exits, mut downs) = (Vec::new(), Vec::new());
                while exits.is_empty() || downs.is_empty() {
                    match ctx.event().await {
                        Event::Exit { from, exit: reason } => exits.push((from, reason)),
                        Event::Down { pid, exit: reason, .. } => downs.push((pid, reason)),
                        other => panic!("{other:?}"),
                    }
                    if round % 3 == 2 && other.is_finished() && exits.is_empty() && !middle.is_finished() {
                        middle.abort();
                    }
                }
                let exit = middle.await.unwrap_err();
                let _ = other.await;
                assert!(futures::next_event_if_queued(&mut ctx).is_none(), "heard twice");
                for (from, reason) in exits.iter().chain(&downs) {
                    assert_eq!((*from, reason.to_string()), (pid, exit.to_string()));
                }
                ends[match exit {
                    Exit::Killed => 0,
                    Exit::Failed(_) => 1,
                    Exit::Linked { .. } => 2,
                    other => panic!("{other}"),
                }] += 1;
            }
            Ok(ends)
        });
        judge.await.unwrap();
    });
}

/// 6.3a: two linked processes are killed at the same time. Each of the two processes exits.
#[test]
fn two_linked_processes_can_be_killed_concurrently() {
    within(60, || {
        let rt = two();
        for _ in 0..500 {
            let (one, other) = (spawn(&rt), spawn(&rt));
            one.send(Do::LinkTo(other.pid())).unwrap();
            let gate = Arc::new(Barrier::new(2));
            let (pid, host, gate2) = (one.pid(), rt.host().clone(), Arc::clone(&gate));
            let killer = thread::spawn(move || {
                gate2.wait();
                let _ = host.kill(pid);
            });
            gate.wait();
            let _ = rt.kill(other.pid());
            killer.join().unwrap();
            for handle in [one, other] {
                let exit = rt.block_on(handle).unwrap_err();
                assert!(matches!(exit, Exit::Killed | Exit::Linked { .. } | Exit::Failed(_)), "{exit}");
            }
        }
    });
}

/// A hand-written process that records the events of other processes.
struct Watcher {
    child: Option<JoinHandle<(), Do>>,
    heard: Vec<&'static str>,
}

impl Process for Watcher {
    type Message = ();
    type Output = Vec<&'static str>;

    fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<Vec<&'static str>>, Exit> {
        if self.child.is_none() {
            out.trap_exit(true);
            let (child, _) = out.spawn_monitor(|ctx| child(ctx, Ears::default()));
            out.link(child.pid())?;
            let flushed = out.monitor(child.pid());
            assert!(out.demonitor_flush(flushed));
            child.send(Do::Fail)?;
            self.child = Some(child);
        }
        for event in events {
            match event {
                Event::Down { exit: Exit::Failed(_), .. } => {
                    self.heard.push("down");
                    let dead = self.child.as_ref().unwrap().pid();
                    let flushed = out.monitor(dead);
                    assert!(!out.demonitor_flush(flushed));
                    out.monitor(dead);
                }
                Event::Down { exit: Exit::NoProcess, .. } => self.heard.push("down of nobody"),
                Event::Exit { exit: Exit::Failed(_), .. } => self.heard.push("exit"),
                other => panic!("{other:?}"),
            }
        }
        if self.heard.len() == 3 { Ok(Next::Done(std::mem::take(&mut self.heard))) } else { Ok(Next::Wait) }
    }
}

/// 1.2c, 1.4a, 6.3a, 6.3b: a hand-written process can link and monitor. A hand-written process receives the same events
/// as an async body. If a hand-written process monitors an exited process, the `Down` event arrives in the same turn.
#[test]
fn a_hand_written_process_receives_down_and_exit_events() {
    let rt = lone();
    let mut heard = rt.block_on(rt.spawn_process(Watcher { child: None, heard: Vec::new() })).unwrap();
    assert_eq!(heard.pop(), Some("down of nobody"));
    heard.sort_unstable();
    assert_eq!(heard, ["down", "exit"]);
}

/// 6.1a, 6.3a, 6.3b: links and monitors work between the hosts of a runtime. If a process links to a pid of another
/// runtime, or monitors such a pid, the exit reason is `NodeDown`, and the event arrives immediately.
#[test]
fn links_and_monitors_reach_other_hosts_but_not_other_runtimes() {
    let rt = lone();
    let near = rt.add_host(HostBuilder::new("near")).unwrap();
    let (here, there) = (spawn(&rt), spawn(&near));
    here.send(Do::LinkTo(there.pid())).unwrap();
    settle(&rt);
    there.abort();
    assert!(matches!(rt.block_on(here), Err(Exit::Linked { origin, .. }) if origin == there.pid()));
    let far = lone();
    let there = spawn(&far).pid();
    let body = rt.spawn(async move |mut ctx: Context| -> Result<(), Exit> {
        assert_eq!(ctx.link(there), Err(NoProcess(there)));
        let watch = ctx.monitor(there);
        let down = ctx.event().await;
        assert!(matches!(down, Event::Down { monitor, exit: Exit::NodeDown, .. } if monitor == watch), "{down:?}");
        ctx.trap_exit(true);
        ctx.link(there)?;
        assert!(matches!(ctx.event().await, Event::Exit { from, exit: Exit::NodeDown } if from == there));
        Ok(())
    });
    rt.block_on(body).unwrap();
}

/// 2.4b, 6.3a, 6.3b: a mailbox outside any process can set a monitor and can be monitored. A mailbox outside any
/// process can also trap exits. The exit of a linked process can close the mailbox. If a long chain of mailboxes is
/// linked, an exit along the chain does not overflow the stack.
#[test]
fn mailboxes_outside_processes_can_link_and_monitor() {
    let rt = lone();
    let (_, mut outside) = rt.mailbox::<()>();
    let first = spawn(&rt);
    let watch = outside.monitor(first.pid());
    first.abort();
    let down = rt.block_on(outside.event());
    assert!(matches!(down, Event::Down { monitor, exit: Exit::Killed, .. } if monitor == watch));
    let (address, trapped) = (outside.pid(), rt.mailbox::<()>().1);
    trapped.trap_exit(true);
    trapped.link(address).unwrap();
    drop(outside);
    let mut trapped = trapped;
    assert!(matches!(rt.block_on(trapped.event()), Event::Exit { from, exit: Exit::Normal } if from == address));
    // The chain consists of 50,000 linked mailboxes.
    let mut chain: Vec<_> = (0..50_000).map(|_| rt.mailbox::<()>().1).collect();
    for pair in chain.windows(2) {
        pair[0].link(pair[1].pid()).unwrap();
    }
    trapped.link(chain[49_999].pid()).unwrap();
    rt.kill(chain[0].pid()).unwrap();
    let exit = rt.block_on(trapped.event());
    let first = chain[0].pid();
    assert!(matches!(exit, Event::Exit { exit: Exit::Linked { origin, .. }, .. } if origin == first), "{exit:?}");
    assert!(matches!(rt.block_on(chain[49_999].receive()), Err(Exit::Linked { origin, .. }) if origin == first));
}

/// 6.3d: if a spawn is refused, the parent receives the same events as for an exit. If the spawn returns the refusal as
/// an error, no event is delivered. A process spawned through a host has no parent, so its builder refuses to link and
/// monitor.
#[test]
fn a_refused_spawn_delivers_its_refusal_as_an_exit() {
    let rt = Runtime::builder().workers(0).max_processes(1).build().unwrap();
    let body = rt.spawn(async |mut ctx: Context| -> Result<(), Exit> {
        ctx.trap_exit(true);
        let refused = ctx.process().link().monitor().spawn(async |_: Context| {}).unwrap_err();
        assert_eq!(*refused.kind(), SpawnErrorKind::Limit(1));
        assert!(futures::next_event_if_queued(&mut ctx).is_none());
        let (child, watch) = ctx.spawn_monitor(async |_: Context| {});
        assert!(matches!(child.await, Err(Exit::Refused(_))));
        let down = ctx.event().await;
        assert!(matches!(down, Event::Down { monitor, exit: Exit::Refused(_), .. } if monitor == watch), "{down:?}");
        let child = ctx.spawn_link(async |_: Context| {});
        let exit = ctx.event().await;
        assert!(matches!(exit, Event::Exit { from, exit: Exit::Refused(_) } if from == child.pid()), "{exit:?}");
        ctx.trap_exit(false);
        let _ = ctx.spawn_link(async |_: Context| {});
        std::future::pending::<()>().await;
        Ok(())
    });
    let exit = rt.block_on(body).unwrap_err();
    assert!(matches!(&exit, Exit::Linked { reason, .. } if matches!(**reason, Exit::Refused(_))), "{exit}");
    let refused = rt.process().monitor().spawn(async |_: Context| {}).unwrap_err();
    assert_eq!(*refused.kind(), SpawnErrorKind::NoParent);
    let refused = rt.process().name("nobody").link().spawn_or_send((), async |_: Context<()>| {}).unwrap_err();
    assert_eq!(*refused.kind(), SpawnErrorKind::NoParent);
    assert_eq!(rt.whereis("nobody"), None);
}

/// 6.3a, 6.3b: links and monitors keep no process alive. When a runtime is dropped, it drops everything that its linked
/// and monitored processes own.
#[test]
fn links_and_monitors_keep_no_process_alive() {
    let rt = two();
    let held = Arc::new(());
    for _ in 0..100 {
        let held = Arc::clone(&held);
        let _ = rt.process().value(Arc::clone(&held)).spawn(async move |ctx: Context| {
            let linked = ctx.spawn_link(async move |ctx: Context| {
                let _held = held;
                ctx.monitor(ctx.pid());
                std::future::pending::<()>().await;
            });
            ctx.monitor(linked.pid());
            std::future::pending::<()>().await;
        });
    }
    let marker = rt.spawn(async |_: Context| {});
    rt.block_on(marker).unwrap();
    drop(rt);
    assert_eq!(Arc::strong_count(&held), 1);
}

/// 6.3a, 6.3b: when a link or monitor is removed, its entries in the tables of both processes are removed. An unlink
/// removes a link from both tables. If the monitoring process exits or removes the monitor, the entry in the monitored
/// process is removed too. An entry that was not removed would keep a process and its values alive. Therefore the test
/// observes the drops of the values.
#[test]
fn a_link_or_monitor_is_removed_from_both_processes() {
    #[derive(Debug, Clone, Copy)]
    enum Act {
        Link,
        Unlink,
        Monitor,
        Demonitor,
        End,
    }
    use Act::{Demonitor, End, Link, Monitor, Unlink};
    async fn obey(mut ctx: Context<(Act, Pid, Reply<()>)>) -> Result<(), Exit> {
        let mut watch = None;
        loop {
            let (act, other, reply) = ctx.receive().await?;
            match act {
                Link => ctx.link(other)?,
                Unlink => ctx.unlink(other),
                Monitor => watch = Some(ctx.monitor(other)),
                Demonitor => assert!(ctx.demonitor(watch.take().unwrap())),
                End => return Ok(()),
            }
            reply.send(());
        }
    }
    // The first process performs the actions in `first` on the second process. The second process performs the actions
    // in `second` on the first process.
    for (first, second) in [
        (&[Link, Unlink][..], &[][..]),
        (&[Link], &[Unlink]),
        (&[Link, Link, Unlink, Unlink], &[Unlink]),
        (&[Link], &[]),
        (&[Monitor], &[]),
        (&[Monitor, Demonitor], &[]),
        (&[Monitor], &[Monitor]),
        (&[Link, Monitor, Unlink], &[Link, Monitor]),
    ] {
        for first_ends in [true, false] {
            let rt = lone();
            let values: [Arc<()>; 2] = Default::default();
            let both: Vec<_> =
                values.iter().map(|value| rt.process().value(Arc::clone(value)).spawn(obey).unwrap()).collect();
            let pids = [both[0].pid(), both[1].pid()];
            // The two processes also have links with other processes. Some of these links are set before the actions,
            // and other links are set after the actions.
            let others: Vec<_> = (0..4).map(|_| spawn(&rt)).collect();
            for own in &both {
                for other in &others[..2] {
                    rt.block_on(own.call(|reply| (Link, other.pid(), reply))).unwrap();
                }
            }
            for (own, other, acts) in [(&both[0], pids[1], first), (&both[1], pids[0], second)] {
                for &act in acts {
                    rt.block_on(own.call(|reply| (act, other, reply))).unwrap();
                }
            }
            for own in &both {
                for other in &others[2..] {
                    rt.block_on(own.call(|reply| (Link, other.pid(), reply))).unwrap();
                }
            }
            settle(&rt);
            let [ends, stays] = if first_ends { [0, 1] } else { [1, 0] };
            assert_eq!(Arc::strong_count(&values[ends]), 2);
            let mut both: Vec<_> = both.into_iter().map(Some).collect();
            let ending = both[ends].take().unwrap();
            drop(rt.block_on(ending.call(|reply| (End, pids[stays], reply))));
            rt.block_on(ending).unwrap();
            settle(&rt);
            let counts = values.each_ref().map(Arc::strong_count);
            assert_eq!((counts[ends], counts[stays]), (1, 2), "{first:?} {second:?}, the first ends: {first_ends}");
        }
    }
}

/// 6.3a, 6.3b: on two workers, many processes link, unlink, monitor, demonitor and exit at random. Every process exits.
/// Each `Down` event arrives, unless its monitor was removed.
#[test]
fn many_processes_with_links_and_monitors_exit_at_random() {
    static DOWNS: AtomicUsize = AtomicUsize::new(0);
    everywhere(async |host| {
        let all: Arc<Mutex<Vec<Pid>>> = Arc::default();
        let crowd: Vec<_> = (0..200)
            .map(|_| {
                let all = Arc::clone(&all);
                host.spawn(async move |mut ctx: Context| -> Result<(), Exit> {
                    all.lock().unwrap().push(ctx.pid());
                    ctx.trap_exit(ctx.random() % 4 == 0);
                    let mut watches = BTreeSet::new();
                    for _ in 0..200 {
                        let other = {
                            let all = all.lock().unwrap();
                            all[ctx.random() as usize % all.len()]
                        };
                        match ctx.random() % 8 {
                            0 | 1 => drop(ctx.link(other)),
                            2 => ctx.unlink(other),
                            3 | 4 if other != ctx.pid() => drop(watches.insert(ctx.monitor(other))),
                            5 => {
                                if let Some(&watch) = watches.iter().next() {
                                    ctx.demonitor_flush(watch);
                                    watches.remove(&watch);
                                }
                            }
                            6 if ctx.random() % 50 == 0 => return Err(Exit::failed("chance")),
                            _ => ctx.yield_now().await,
                        }
                    }
                    all.lock().unwrap().retain(|pid| *pid != ctx.pid());
                    let _ = ctx.spawn(async |_: Context| {});
                    ctx.trap_exit(true);
                    // Each monitored process exits: either its body returns, or another thread kills the process.
                    while !watches.is_empty() {
                        if let Event::Down { monitor, .. } = ctx.event().await {
                            assert!(watches.remove(&monitor), "taken back, or told twice");
                            DOWNS.fetch_add(1, SeqCst);
                        }
                        if watches.len() % 7 == 0 {
                            break;
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        for handle in crowd {
            let pid = handle.pid();
            let killer = host.clone();
            host.spawn_blocking(move || killer.kill(pid)).detach();
            let _ = handle.await;
        }
    });
}

/// 6.1c, 6.3a: processes are linked in random graphs. The processes are killed, fail or exit normally, one after
/// another. An executable model predicts which processes exit, which process causes each exit, and which exits each
/// process receives. The processes behave as predicted.
#[test]
fn random_graphs_behave_like_the_model() {
    for seed in 1..=60_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut chance = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as usize % below
        };
        let rt = lone();
        let count = 2 + chance(14);
        let handles: Vec<_> = (0..count).map(|_| spawn_with(&rt)).collect();
        let place: BTreeMap<Pid, usize> =
            handles.iter().enumerate().map(|(i, (handle, _))| (handle.pid(), i)).collect();
        let (mut links, mut traps) = (BTreeSet::new(), BTreeSet::new());
        for (i, (handle, _)) in handles.iter().enumerate() {
            if chance(3) == 0 {
                traps.insert(i);
                handle.send(Do::Trap).unwrap();
            }
        }
        settle(&rt);
        for _ in 0..chance(3 * count) {
            let (a, b) = (chance(count), chance(count));
            if a != b {
                links.insert((a.min(b), a.max(b)));
            }
            handles[a].0.send(Do::LinkTo(handles[b].0.pid())).unwrap();
        }
        settle(&rt);
        // For each process, `died` contains the process that caused the exit of this process, and `heard` contains the
        // exits that this process receives.
        let mut died: BTreeMap<usize, usize> = BTreeMap::new();
        let mut heard: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); count];
        for _ in 0..1 + chance(3) {
            let victim = chance(count);
            if died.contains_key(&victim) {
                continue;
            }
            let how = [Some(Do::Fail), Some(Do::End), None][chance(3)];
            match how {
                Some(how) => handles[victim].0.send(how).unwrap(),
                None => handles[victim].0.abort(),
            }
            let normal = matches!(how, Some(Do::End));
            let mut dying = vec![victim];
            died.insert(victim, victim);
            while let Some(one) = dying.pop() {
                let tied: Vec<_> = links.iter().copied().filter(|&(a, b)| a == one || b == one).collect();
                for (a, b) in tied {
                    links.remove(&(a, b));
                    let peer = if a == one { b } else { a };
                    if traps.contains(&peer) {
                        heard[peer].insert(one);
                    } else if !normal && !died.contains_key(&peer) {
                        died.insert(peer, victim);
                        dying.push(peer);
                    }
                }
            }
            settle(&rt);
        }
        for (i, (handle, ears)) in handles.into_iter().enumerate() {
            assert_eq!(handle.is_finished(), died.contains_key(&i), "seed {seed}, process {i}");
            let told: Vec<_> = ears.lock().unwrap().iter().map(|(from, _)| place[from]).collect();
            assert_eq!(told.len(), heard[i].len(), "seed {seed}, process {i} heard twice, or not at all");
            assert_eq!(told.into_iter().collect::<BTreeSet<_>>(), heard[i], "seed {seed}, process {i}");
            let Some(&first) = died.get(&i) else { continue };
            match rt.block_on(handle) {
                Err(Exit::Linked { origin, .. }) => assert_eq!(place[&origin], first, "seed {seed}, process {i}"),
                _ => assert_eq!(first, i, "seed {seed}"),
            }
        }
    }
}

/// 6.3a, 6.3b: the test runs a complete program with linked and monitored children, written as a user would write this
/// program.
#[test]
fn a_parent_receives_the_exits_of_all_its_children() {
    async fn worker(_: Context, n: u64) -> Result<u64, std::io::Error> {
        if n == 3 {
            panic!("three")
        }
        Ok(n)
    }
    async fn parent(mut ctx: Context<String>) -> Result<Vec<String>, Exit> {
        ctx.trap_exit(true);
        let linked = ctx.spawn_link(|ctx| worker(ctx, 1));
        let (child, watch) = ctx.spawn_monitor(|ctx| worker(ctx, 3));
        let other = ctx.spawn(async |mut ctx: Context<()>| ctx.receive().await);
        let m = ctx.monitor(other.pid());
        ctx.link(other.pid())?;
        other.send(())?;
        let mut told = Vec::new();
        while told.len() < 4 {
            told.push(match ctx.event().await {
                Event::Message(text) => text,
                Event::Down { monitor, pid, exit: reason } if monitor == watch => {
                    assert_eq!(pid, child.pid());
                    format!("child {reason}")
                }
                Event::Down { monitor, .. } if monitor == m => "other".into(),
                Event::Exit { from, exit: reason } if from == linked.pid() => format!("linked {reason}"),
                Event::Exit { exit: reason, .. } => format!("other {reason}"),
                Event::Cancel { .. } => break,
                _ => continue,
            });
        }
        let n: Result<u64, Exit> = child.await;
        assert!(matches!(n, Err(Exit::Panicked(_))) && linked.await? == 1);
        told.sort();
        Ok(told)
    }
    let rt = lone();
    let told = rt.block_on(rt.spawn(parent)).unwrap();
    assert!(told[0].starts_with("child panicked at ") && told[0].ends_with(": three"), "{}", told[0]);
    assert_eq!(told[1..], ["linked exited normally", "other", "other exited normally"]);
}

/// 6.3b: the mailbox of a process waits inside a future combinator. Meanwhile, the process itself causes an event, and
/// this event arrives in the same mailbox. The combinator polls only woken futures, so the event must call the waker of
/// the mailbox.
#[test]
fn an_event_from_a_process_to_itself_wakes_the_receiver_in_a_combinator() {
    type Act = fn(&SelfHandle<()>, Pid);
    let acts: [Act; 3] = [
        |me, dead| _ = me.monitor(dead),
        |me, dead| {
            me.trap_exit(true);
            _ = me.link(dead);
        },
        |me, _| _ = me.host().cancel(me.pid(), "stop", std::time::Duration::MAX),
    ];
    for act in acts {
        let rt = lone();
        let ended = rt.spawn(async |_: Context| {});
        let dead = ended.pid();
        rt.block_on(ended).unwrap();
        let process = rt.spawn(async move |ctx: Context<()>| {
            let (me, mut mailbox) = ctx.split();
            let mut waits = FuturesUnordered::from_iter([async move { mailbox.event().await }]);
            assert!(waits.next().now_or_never().is_none());
            act(&me, dead);
            let event = waits.next().await;
            Ok::<_, Exit>(matches!(event, Some(Event::Down { .. } | Event::Exit { .. } | Event::Cancel { .. })))
        });
        assert!(rt.block_on(process).unwrap());
    }
}

/// 6.3b: `demonitor_flush` removes the unread `Down` event from the mailbox, so removed events do not accumulate there.
#[test]
fn a_flushed_down_event_leaves_the_mailbox() {
    let rt = lone();
    let ended = rt.spawn(async |_: Context| {});
    let dead = ended.pid();
    rt.block_on(ended).unwrap();
    let process = rt.spawn(async move |mut ctx: Context<()>| {
        let kept = ctx.monitor(dead);
        for _ in 0..1_000 {
            let monitor = ctx.monitor(dead);
            assert!(!ctx.demonitor_flush(monitor), "the event has arrived");
        }
        let signals = ctx.host().process_details(ctx.pid()).expect("it runs").info.signals;
        let event = ctx.event().await;
        let is_kept = matches!(event, Event::Down { monitor, .. } if monitor == kept);
        Ok::<_, Exit>((signals, is_kept, ctx.event().now_or_never().is_none()))
    });
    assert_eq!(rt.block_on(process).unwrap(), (1, true, true));
}

//! Sections 1.3 and 6 of the specification: servers. A server consists of a state and its handlers, instead of a body
//! with a loop.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use procession::*;

use crate::time::{Late, timed};
use crate::{alone, everywhere, on_workers, within};

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(5);
const TICK: Duration = Duration::from_millis(1);

fn lone() -> Runtime {
    Runtime::builder().workers(0).build().unwrap()
}

type Log = Arc<Mutex<Vec<String>>>;

fn read(log: &Log) -> Vec<String> {
    log.lock().unwrap().clone()
}

enum Msg {
    Note(&'static str),
    Read(Reply<Vec<String>>),
    /// The server answers this message when the next note arrives.
    Next(Reply<String>),
    /// Sets the deadline to the present time plus this duration.
    Within(Duration),
    /// Sets the deadline, or removes it with `None`.
    Until(Option<Instant>),
    /// The handler blocks its worker for this time.
    Block(Duration),
    /// The handler sleeps for this time.
    Nap(Duration),
    /// The server divides a task into this number of pieces.
    Pieces(u64),
    /// The handler never returns.
    Hang,
    Fail(&'static str),
    Panic,
    Done,
}

/// A server that logs its messages and events.
struct Clerk {
    log: Log,
    waiting: Vec<Reply<String>>,
    deadline: Option<Instant>,
    /// Whether `handle_timeout` removes the deadline.
    once: bool,
    pieces: u64,
    /// Maximum time from the deadline to the call of `handle_timeout`.
    late: Late,
    /// Makes the server `!Sync`, to show that a server need not be `Sync`.
    count: Cell<u64>,
}

impl Clerk {
    fn new(log: &Log) -> Self {
        let log = Arc::clone(log);
        let (late, count) = (Late::ANY, Cell::new(0));
        Self { log, waiting: Vec::new(), deadline: None, once: true, pieces: 0, late, count }
    }

    fn note(&self, text: impl Into<String>) {
        self.log.lock().unwrap().push(text.into());
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        self.note("dropped");
    }
}

impl Server for Clerk {
    type Message = Msg;
    type Output = u64;

    async fn init(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        ctx.trap_exit(true);
        ctx.yield_now().await;
        self.note("init");
        Ok(())
    }

    async fn handle(&mut self, message: Msg, ctx: &mut Context<Msg>) -> Result<Next<u64>, Exit> {
        self.count.set(self.count.get() + 1);
        match message {
            Msg::Note(text) => {
                self.note(text);
                self.waiting.drain(..).for_each(|reply| reply.send(text.to_owned()));
            }
            Msg::Read(reply) => reply.send(read(&self.log)),
            Msg::Next(reply) => self.waiting.push(reply),
            Msg::Within(time) => self.deadline = Some(ctx.now() + time),
            Msg::Until(at) => self.deadline = at,
            Msg::Block(time) => thread::sleep(time),
            Msg::Nap(time) => ctx.sleep(time).await,
            Msg::Pieces(pieces) => {
                self.pieces = pieces;
                return Ok(Next::Again);
            }
            Msg::Hang => {
                self.note("hangs");
                std::future::pending().await
            }
            Msg::Fail(text) => return Err(Exit::failed(text)),
            Msg::Panic => panic!("out"),
            Msg::Done => return Ok(Next::Done(self.count.get())),
        }
        Ok(Next::Wait)
    }

    async fn handle_info(&mut self, event: Event<Msg>, _: &mut Context<Msg>) -> Result<Next<u64>, Exit> {
        self.note(match event {
            Event::Down { exit: reason, .. } => format!("down: {reason}"),
            Event::Exit { exit: reason, .. } => format!("exit: {reason}"),
            Event::Joined { group, .. } => format!("joined: {group}"),
            other => format!("{:?}", std::mem::discriminant(&other)),
        });
        Ok(Next::Wait)
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    async fn handle_timeout(&mut self, ctx: &mut Context<Msg>) -> Result<Next<u64>, Exit> {
        self.late.check(ctx.now(), self.deadline.expect("it has one"));
        if self.once {
            self.deadline = None;
            self.note("timeout");
        }
        self.count.set(self.count.get() + 1);
        Ok(Next::Wait)
    }

    async fn handle_continue(&mut self, _: &mut Context<Msg>) -> Result<Next<u64>, Exit> {
        if self.pieces == 0 {
            self.note("all pieces");
            return Ok(Next::Wait);
        }
        self.pieces -= 1;
        Ok(Next::Again)
    }

    async fn terminate(self, exit: &Exit, ctx: &mut Context<Msg>) {
        let mut unread = 0;
        while ctx.try_receive().is_some() {
            unread += 1;
        }
        ctx.yield_now().await;
        self.note(format!("terminate: {exit}, {unread} unread"));
    }
}

/// 1.3a, 2.6a: a call is a message with a reply. The server sends the reply immediately, sends the reply later, or
/// drops the reply. A cast is a message without a reply. A server can exit with a result.
#[test]
fn a_server_handles_each_kind_of_request() {
    let log = Log::default();
    let clerk = Clerk::new(&log);
    on_workers(async move |host| {
        let clerk = host.spawn(|ctx| clerk.serve(ctx));
        clerk.send(Msg::Note("one")).unwrap();
        assert_eq!(clerk.call(Msg::Read).await.unwrap(), ["init", "one"]);
        let (early, later) = (clerk.call(Msg::Next).start(), clerk.call(Msg::Next).start());
        clerk.send(Msg::Note("two")).unwrap();
        assert_eq!((early.await.unwrap(), later.await.unwrap()), ("two".to_owned(), "two".to_owned()));
        let never = clerk.call(Msg::Next).start();
        clerk.send(Msg::Done).unwrap();
        assert!(never.await.is_err(), "it was dropped");
        assert_eq!(clerk.await.unwrap(), 7);
    });
    assert_eq!(read(&log), ["init", "one", "two", "terminate: exited normally, 0 unread", "dropped"]);
}

/// 1.1e, 1.1f, 1.1g, 6.4f: `started` waits for `init` and returns the error of `init`. With a manual start, `started`
/// waits for `mark_started`. The server handles no message before `init` has returned. If `init` fails, `terminate`
/// does not run.
#[test]
fn a_server_has_started_when_its_init_has_returned() {
    enum How {
        Well,
        Fail,
        Cancelled,
        ByHand,
    }
    struct Late(How, Log);
    impl Server for Late {
        type Message = ();
        type Output = ();
        async fn init(&mut self, ctx: &mut Context<()>) -> Result<(), Exit> {
            ctx.sleep(SHORT).await;
            self.1.lock().unwrap().push("init".into());
            match self.0 {
                How::Fail => Err(Exit::failed("no luck")),
                How::Cancelled => ctx.receive().await,
                How::Well | How::ByHand => Ok(()),
            }
        }
        async fn handle(&mut self, (): (), ctx: &mut Context<()>) -> Result<Next<()>, Exit> {
            self.1.lock().unwrap().push("handle".into());
            ctx.mark_started();
            Ok(Next::Wait)
        }
        async fn terminate(self, _: &Exit, _: &mut Context<()>) {
            self.1.lock().unwrap().push("terminate".into());
        }
    }
    timed(async |host, late| {
        let log = Log::default();
        let spawn = |how| {
            log.lock().unwrap().clear();
            let late = Late(how, Arc::clone(&log));
            host.spawn(|ctx| late.serve(ctx))
        };
        let until = host.now() + SHORT;
        let well = spawn(How::Well);
        well.send(()).unwrap();
        well.started().await.unwrap();
        late.check(host.now(), until);
        assert_eq!(read(&log)[0], "init");
        well.abort();
        // The test waits for the exit of the server before it clears the log. Without this wait, this server could
        // write its last entry into the cleared log.
        let _ = well.await;
        let failed = spawn(How::Fail);
        failed.send(()).unwrap();
        assert!(matches!(failed.started().await, Err(Exit::InitFailed(_))));
        let exit = failed.await.unwrap_err();
        assert!(exit.to_string().contains("no luck"), "{exit}");
        assert_eq!(read(&log), ["init"]);
        let cancelled = spawn(How::Cancelled);
        host.cancel(cancelled.pid(), "enough", LONG).unwrap();
        assert!(matches!(cancelled.started().await, Err(Exit::Cancelled(reason)) if reason == "enough"));
        assert_eq!(read(&log), ["init"]);
        log.lock().unwrap().clear();
        let by_hand = Late(How::ByHand, Arc::clone(&log));
        let by_hand = host.process().manual_start().spawn(|ctx| by_hand.serve(ctx)).unwrap();
        by_hand.send(()).unwrap();
        by_hand.started().await.unwrap();
        assert_eq!(read(&log), ["init", "handle"]);
    });
}

/// 2.3e, 6.3c: `handle_info` receives every event that is not a message. The server handles messages and events in the
/// order in which they arrive.
#[test]
fn events_that_are_not_messages_arrive_in_order_with_messages() {
    struct Watch(Log);
    enum Order {
        Message,
        Spawn,
    }
    impl Server for Watch {
        type Message = Order;
        type Output = ();
        async fn handle(&mut self, message: Order, ctx: &mut Context<Order>) -> Result<Next<()>, Exit> {
            match message {
                Order::Message => self.0.lock().unwrap().push("message".into()),
                Order::Spawn => {
                    ctx.trap_exit(true);
                    ctx.monitor_group("server: room");
                    let back = ctx.address();
                    let child = async move |ctx: Context<()>| -> Result<(), Exit> {
                        ctx.join_group("server: room");
                        back.send(Order::Message)?;
                        Err(Exit::failed("gone"))
                    };
                    let child = ctx.process().link().monitor().spawn(child)?;
                    drop(child);
                }
            }
            Ok(Next::Wait)
        }
        async fn handle_info(&mut self, event: Event<Order>, _: &mut Context<Order>) -> Result<Next<()>, Exit> {
            let mut log = self.0.lock().unwrap();
            log.push(match event {
                Event::Joined { .. } => "joined".into(),
                Event::Left { .. } => "left".into(),
                Event::Down { .. } => "down".into(),
                Event::Exit { .. } => "exit".into(),
                other => panic!("{:?}", std::mem::discriminant(&other)),
            });
            Ok(if log.len() == 5 { Next::Done(()) } else { Next::Wait })
        }
    }
    let rt = lone();
    let log = Log::default();
    let watch = Watch(Arc::clone(&log));
    let watch = rt.spawn(|ctx| watch.serve(ctx));
    watch.send(Order::Spawn).unwrap();
    rt.block_on(watch).unwrap();
    let mut heard = read(&log);
    // The event of the link and the event of the monitor may arrive in either order.
    heard[3..].sort();
    assert_eq!(heard, ["joined", "message", "left", "down", "exit"]);
}

/// 2.3h, 6.2a: a server handles a cancellation before its unread messages, and calls `terminate` with the exit.
/// `terminate` can read the unread messages and may use the whole grace period. After an error or a result, `terminate`
/// receives the exit too.
#[test]
fn the_method_terminate_receives_the_exit() {
    let rt = lone();
    let end = |last: fn(&Runtime, &JoinHandle<u64, Msg>)| {
        let log = Log::default();
        let clerk = Clerk::new(&log);
        let clerk = rt.spawn(|ctx| clerk.serve(ctx));
        rt.block_on(clerk.started()).unwrap();
        clerk.send(Msg::Note("a note")).unwrap();
        last(&rt, &clerk);
        (0..3).for_each(|_| clerk.send(Msg::Note("unread")).unwrap());
        let ended = rt.block_on(clerk);
        let mut log = read(&log);
        assert_eq!(log.remove(0), "init");
        (ended.map_err(|exit| exit.to_string()), log)
    };
    assert_eq!(
        end(|rt, clerk| rt.cancel(clerk.pid(), "enough", LONG).unwrap()),
        (Err("cancelled: enough".into()), vec!["terminate: cancelled: enough, 4 unread".into(), "dropped".into()])
    );
    assert_eq!(
        end(|_, clerk| clerk.send(Msg::Fail("no luck")).unwrap()),
        (
            Err("failed: no luck".into()),
            vec!["a note".into(), "terminate: failed: no luck, 3 unread".into(), "dropped".into()]
        )
    );
    assert_eq!(
        end(|_, clerk| clerk.send(Msg::Done).unwrap()),
        (Ok(2), vec!["a note".into(), "terminate: exited normally, 3 unread".into(), "dropped".into()])
    );
}

/// 4.8a, 6.2d: a panic or a kill ends a server immediately, even if a handler of the server is waiting. `terminate`
/// does not run, but the state is dropped.
#[test]
fn the_method_terminate_does_not_run_after_a_panic_or_a_kill() {
    timed(async |host, late| {
        let log = Log::default();
        for last in [|| Msg::Panic, || Msg::Hang] {
            log.lock().unwrap().clear();
            let clerk = Clerk::new(&log);
            let clerk = host.spawn(|ctx| clerk.serve(ctx));
            clerk.call(Msg::Read).await.unwrap();
            clerk.send(last()).unwrap();
            clerk.send(Msg::Note("unread")).unwrap();
            if matches!(last(), Msg::Hang) {
                while read(&log).len() < 2 {
                    crate::step_aside().await;
                }
                // The server can notice the cancellation only after its handler has returned. This handler never
                // returns.
                let until = host.now() + SHORT;
                host.cancel(clerk.pid(), "enough", SHORT).unwrap();
                assert!(matches!(clerk.await, Err(Exit::Killed)));
                late.check(host.now(), until);
            } else {
                assert!(matches!(clerk.await, Err(Exit::Panicked(_))));
            }
            assert_eq!(read(&log).iter().filter(|noted| *noted != "hangs").collect::<Vec<_>>(), ["init", "dropped"]);
        }
    });
}

/// 7.1a, 7.1b: a server never handles a timeout before its deadline. The messages that arrived before the deadline are
/// handled before the timeout. If the deadline is moved, there is no timeout at the old deadline. A timeout is handled
/// even if the mailbox is never empty.
#[test]
fn the_timeout_of_a_server_is_handled_in_order_relative_to_messages() {
    timed(async |host, late| {
        let log = Log::default();
        let mut clerk = Clerk::new(&log);
        clerk.late = late;
        let clerk = host.spawn(|ctx| clerk.serve(ctx));
        clerk.started().await.unwrap();
        let until = host.now() + SHORT;
        clerk.send(Msg::Within(SHORT)).unwrap();
        host.sleep(SHORT - TICK).await;
        while read(&log).len() < 2 {
            clerk.call(Msg::Read).await.unwrap();
        }
        assert_eq!(read(&log)[1], "timeout");
        late.check(host.now(), until);
        // Some messages replace the deadline that an earlier message has set. The last deadline is earlier than the
        // previous deadline.
        let now = host.now();
        for at in [Some(now + LONG), None, Some(now + 2 * LONG), Some(now + 3 * SHORT)] {
            clerk.send(Msg::Until(at)).unwrap();
        }
        while read(&log).len() < 3 {
            host.sleep(SHORT).await;
        }
        assert_eq!(read(&log)[2], "timeout");
        assert!(host.now() >= now + 3 * SHORT);
        // This server first gets a deadline in the far future, and then a deadline in the past.
        let log = Log::default();
        let clerk = Clerk::new(&log);
        let clerk = host.spawn(|ctx| clerk.serve(ctx));
        clerk.send(Msg::Within(Duration::MAX)).unwrap();
        clerk.send(Msg::Until(Some(until))).unwrap();
        let now = host.now();
        while read(&log).len() < 2 {
            host.sleep(TICK).await;
        }
        assert_eq!(read(&log)[1], "timeout");
        assert!(!late.is_exact() || host.now() - now <= TICK, "at once");
    });
    // While the server is busy, its deadline passes and messages arrive. The server handles the timeout in order with
    // these messages. If an earlier message removes the deadline, there is no timeout.
    check(0..10, async |host: Host| {
        let log = Log::default();
        let clerk = Clerk::new(&log);
        let clerk = host.spawn(|ctx| clerk.serve(ctx));
        let busy = || [Msg::Within(LONG), Msg::Nap(2 * LONG), Msg::Note("one"), Msg::Note("two")];
        for message in busy().into_iter().chain(busy()).chain([Msg::Until(None)]) {
            clerk.send(message).unwrap();
        }
        host.sleep(5 * LONG).await;
        busy().into_iter().for_each(|message| clerk.send(message).unwrap());
        host.sleep(3 * LONG).await;
        clerk.send(Msg::Done).unwrap();
        clerk.await.unwrap();
        assert_eq!(read(&log)[..8], ["init", "one", "two", "one", "two", "one", "two", "timeout"]);
    });
    // In this part, the handler blocks its thread, and no other thread runs processes. The server still handles the
    // timeout in order.
    let rt = lone();
    let log = Log::default();
    let clerk = Clerk::new(&log);
    let clerk = rt.spawn(|ctx| clerk.serve(ctx));
    let busy = || [Msg::Within(SHORT), Msg::Block(2 * SHORT), Msg::Note("one"), Msg::Note("two")];
    for message in busy().into_iter().chain(busy()).chain([Msg::Until(None)]) {
        clerk.send(message).unwrap();
    }
    rt.block_on(rt.sleep(3 * SHORT));
    busy().into_iter().for_each(|message| clerk.send(message).unwrap());
    rt.block_on(rt.sleep(3 * SHORT));
    clerk.send(Msg::Done).unwrap();
    rt.block_on(clerk).unwrap();
    assert_eq!(read(&log)[..8], ["init", "one", "two", "one", "two", "one", "two", "timeout"]);
    // The mailbox of this server is never empty.
    struct Busy(u64, Instant, Late);
    impl Server for Busy {
        type Message = ();
        type Output = u64;
        async fn handle(&mut self, (): (), ctx: &mut Context<()>) -> Result<Next<u64>, Exit> {
            self.0 += 1;
            ctx.address().send(())?;
            Ok(Next::Wait)
        }
        fn deadline(&self) -> Option<Instant> {
            Some(self.1)
        }
        async fn handle_timeout(&mut self, ctx: &mut Context<()>) -> Result<Next<u64>, Exit> {
            self.2.check(ctx.now(), self.1);
            Ok(Next::Done(self.0))
        }
    }
    timed(async |host, late| {
        let time = if late.is_exact() { TICK } else { SHORT };
        let busy = Busy(0, host.now() + time, late);
        let busy = host.spawn(|ctx| busy.serve(ctx));
        busy.send(()).unwrap();
        busy.await.unwrap();
    });
}

/// 7.1a, 7.1b: each handler of a server waits, and the mailbox of the server is never empty. The server handles the
/// messages that were in the mailbox at the deadline, and then the timeout.
#[test]
fn a_server_handles_its_timeout_even_if_each_handler_waits() {
    struct Busy(u64, Instant);
    impl Server for Busy {
        type Message = ();
        type Output = u64;
        async fn handle(&mut self, (): (), ctx: &mut Context<()>) -> Result<Next<u64>, Exit> {
            ctx.sleep(TICK).await;
            self.0 += 1;
            assert!(self.0 <= 100, "the server has missed its deadline");
            ctx.address().send(())?;
            Ok(Next::Wait)
        }
        fn deadline(&self) -> Option<Instant> {
            Some(self.1)
        }
        async fn handle_timeout(&mut self, ctx: &mut Context<()>) -> Result<Next<u64>, Exit> {
            assert!(ctx.now() >= self.1);
            Ok(Next::Done(self.0))
        }
    }
    check(0..10, async |host: Host| {
        let busy = Busy(0, host.now() + 5 * TICK);
        let busy = host.spawn(|ctx| busy.serve(ctx));
        busy.send(()).unwrap();
        // The fifth handler ends at the deadline. Then one message is in the mailbox.
        assert_eq!(busy.await.unwrap(), 6);
    });
}

/// 4.6b: the deadline of a server is always in the past, so each timeout is due immediately. These timeouts use up the
/// budget of the server. Therefore other processes run, and the server still reads its messages.
#[test]
fn a_deadline_that_is_always_in_the_past_does_not_starve_other_processes() {
    within(60, || {
        let rt = alone().build().unwrap();
        let log = Log::default();
        let mut clerk = Clerk::new(&log);
        (clerk.once, clerk.deadline) = (false, Some(rt.now()));
        let clerk = rt.spawn(|ctx| clerk.serve(ctx));
        let modest = rt.spawn(async |ctx: Context| {
            for _ in 0..1_000 {
                ctx.yield_now().await;
            }
        });
        futures::executor::block_on(async {
            modest.await.unwrap();
            clerk.call(Msg::Read).await.unwrap();
            clerk.send(Msg::Done).unwrap();
            assert!(clerk.await.unwrap() > 1_000);
        });
    });
}

/// 1.2f, 4.2e: a server divides a task into pieces. The server continues the task before it handles the next message.
/// Other processes run between the pieces. The task continues until the server is cancelled.
#[test]
fn a_server_that_divides_its_task_lets_other_processes_run() {
    let rt = lone();
    let log = Log::default();
    let clerk = Clerk::new(&log);
    let clerk = rt.spawn(|ctx| clerk.serve(ctx));
    let turns = Arc::new(AtomicU64::new(0));
    let other = Arc::clone(&turns);
    rt.block_on(async {
        clerk.started().await.unwrap();
        let _other = rt.spawn(async move |ctx: Context| {
            loop {
                other.fetch_add(1, SeqCst);
                ctx.yield_now().await;
                if ctx.is_cancelled() {
                    return;
                }
            }
        });
        clerk.send(Msg::Pieces(1_000)).unwrap();
        clerk.send(Msg::Note("behind")).unwrap();
        clerk.call(Msg::Read).await.unwrap();
        assert_eq!(read(&log), ["init", "all pieces", "behind"]);
        assert!(turns.load(SeqCst) >= 1_000);
        clerk.send(Msg::Pieces(u64::MAX)).unwrap();
        rt.sleep(SHORT).await;
        rt.cancel(clerk.pid(), "enough", LONG).unwrap();
        assert!(matches!(clerk.await, Err(Exit::Cancelled(_))));
        assert_eq!(read(&log)[3], "terminate: cancelled: enough, 0 unread");
    });
}

/// 1.3g, 2.3i: a handler can call every method of its context. For example, a handler may receive selectively and stash
/// messages.
#[test]
fn a_handler_of_a_server_may_receive_messages_itself() {
    struct Picky(Vec<u32>);
    impl Server for Picky {
        type Message = u32;
        type Output = Vec<u32>;
        async fn handle(&mut self, message: u32, ctx: &mut Context<u32>) -> Result<Next<Vec<u32>>, Exit> {
            self.0.push(message);
            match message {
                1 => self.0.push(ctx.receive_where(|n| if n == 9 { Ok(n) } else { Err(n) }).await?),
                2 => ctx.stash(20),
                3 => drop(ctx.unstash()),
                20 => return Ok(Next::Done(std::mem::take(&mut self.0))),
                _ => {}
            }
            Ok(Next::Wait)
        }
    }
    let rt = lone();
    let picky = rt.spawn(|ctx| Picky(Vec::new()).serve(ctx));
    [1, 2, 3, 4, 9].into_iter().for_each(|n| picky.send(n).unwrap());
    assert_eq!(rt.block_on(picky).unwrap(), [1, 9, 2, 3, 20]);
}

/// 6.4a, 6.4f: under a supervisor, each instance of a server runs `init`. The server starts only after the previous
/// child has started.
#[test]
fn a_supervisor_restarts_a_server() {
    const FIRST: Name<Msg> = Name::new("server: first");
    const SECOND: Name<Msg> = Name::new("server: second");
    everywhere(async |host| {
        let log = Log::default();
        let clerk = |log: &Log| {
            let log = Arc::clone(log);
            move |ctx| Clerk::new(&log).serve(ctx)
        };
        let (one, other) = (Log::default(), Arc::clone(&log));
        let tree = Supervisor::rest_for_one().child(FIRST, clerk(&one)).child(SECOND, clerk(&other));
        let tree = host.spawn_process(tree);
        tree.started().await.unwrap();
        assert_eq!((read(&one).len(), read(&log).len()), (1, 1));
        let down = host.exited(host.whereis(SECOND).unwrap());
        host.send(FIRST, Msg::Panic).unwrap();
        down.await;
        while host.call(SECOND, Msg::Read).await.is_err() {
            crate::step_aside().await;
        }
        assert_eq!(read(&one), ["init", "dropped", "init"]);
        assert_eq!(read(&log), ["init", "terminate: cancelled: parent, 0 unread", "dropped", "init"]);
    });
}

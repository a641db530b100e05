//! Section 9.2 of the specification: while the runtime calls user code, the runtime holds no lock that an inspection
//! needs. Each kind of user code in this file blocks until the test opens a gate. While the user code blocks, the test
//! inspects the runtime.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::task::{Context as Cx, Wake, Waker};
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use procession::observe::{ProcessCount, ProcessQuery, ProcessState, Transition};
use procession::*;

use crate::{patience, within};

/// Blocks user code until the test drops the sender.
#[derive(Clone)]
struct Gate {
    /// Receives the name of each piece of user code that has begun.
    began: mpsc::Sender<&'static str>,
    opened: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl Gate {
    fn block(&self, code: &'static str) {
        let _ = self.began.send(code);
        let _ = self.opened.lock().unwrap().recv();
    }
}

/// Message or value whose destructor blocks.
struct BlocksOnDrop(Gate, &'static str);

impl Drop for BlocksOnDrop {
    fn drop(&mut self) {
        self.0.block(self.1);
    }
}

/// Message whose clone blocks.
struct BlocksOnClone(Gate);

impl Clone for BlocksOnClone {
    fn clone(&self) -> Self {
        self.0.block("a clone of a message");
        Self(self.0.clone())
    }
}

struct BlocksOnWake(Gate);

impl Wake for BlocksOnWake {
    fn wake(self: Arc<Self>) {
        self.0.block("a waker");
    }
}

struct BlocksOnClose(Gate);

impl Process for BlocksOnClose {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: Events<'_, ()>, _: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
        Ok(Next::Done(()))
    }

    fn close(&mut self) {
        self.0.block("close");
    }
}

struct Ask;
impl Command for Ask {
    type Reply = ();
}

/// Observer whose methods block for certain processes.
struct BlocksInMethods {
    gate: Gate,
    /// The method `transition` blocks when this process begins to run.
    observed: Arc<OnceLock<Pid>>,
}

impl Observer for BlocksInMethods {
    fn started(&self, _: Pid, name: Option<&str>, _: &'static str) {
        if name == Some("starts") {
            self.gate.block("Observer::started");
        }
    }

    fn crashed(&self, _: &CrashReport) {
        self.gate.block("Observer::crashed");
    }

    fn ended(&self, _: Pid, name: Option<&str>, _: &'static str, _: &Exit) {
        if name == Some("ends") {
            self.gate.block("Observer::ended");
        }
    }

    fn transition(&self, t: &Transition) {
        if self.observed.get() == Some(&t.pid) && t.to == ProcessState::Running {
            self.gate.block("Observer::transition");
        }
    }

    fn blocked(&self, _: usize, _: Option<Pid>, _: Instant) {
        self.gate.block("Observer::blocked");
    }
}

/// Number of workers. Each worker calls one kind of user code. The monitor thread calls `Observer::blocked`.
const WORKERS: usize = 13;

async fn receives_nothing<M: Send + 'static>(_: Context<M>) {
    pending().await
}

async fn receives_once(mut ctx: Context<u8>) -> Result<(), Exit> {
    ctx.receive().await.map(drop)
}

/// Makes each worker call user code that blocks. `await_begin` waits until the user code with the given name has begun.
/// Returns two values: the pids of the processes whose steps block, and the join handle whose waker blocks.
fn block_all_workers(
    rt: &Runtime,
    gate: &Gate,
    observed: &OnceLock<Pid>,
    mut await_begin: impl FnMut(&str),
) -> (Vec<Pid>, JoinHandle<(), u8>) {
    let mut steps = Vec::new();
    let own = gate.clone();
    let selects = rt.spawn(async move |mut ctx: Context<u8>| {
        let filter = move |message| {
            own.block("a filter");
            Ok::<u8, u8>(message)
        };
        ctx.receive_where(filter).await.map(drop)
    });
    selects.send(0).unwrap();
    await_begin("a filter");
    steps.push(selects.pid());
    steps.push(rt.spawn(async |ctx: Context| _ = ctx.perform(Ask).await).pid());
    await_begin("a handler");

    block_in_destructors(rt, gate, &mut steps, &mut await_begin);
    // The message causes a step, and the process exits in this step.
    rt.spawn_process(BlocksOnClose(gate.clone())).send(()).unwrap_or_default();
    await_begin("close");
    drop(rt.spawn(async |ctx: Context<BlocksOnClone>| {
        ctx.join_group("members");
        pending::<()>().await;
    }));
    while rt.members::<BlocksOnClone>("members").is_empty() {
        thread::yield_now();
    }
    let own = gate.clone();
    steps.push(rt.spawn(async move |ctx: Context| _ = ctx.host().broadcast("members", BlocksOnClone(own))).pid());
    await_begin("a clone of a message");

    let mut joined = rt.spawn(receives_once);
    let waker = Waker::from(Arc::new(BlocksOnWake(gate.clone())));
    assert!(joined.poll_unpin(&mut Cx::from_waker(&waker)).is_pending());
    joined.send(0).unwrap();
    await_begin("a waker");

    let spawns = async |ctx: Context| _ = ctx.process().name("starts").spawn(receives_nothing::<u8>);
    steps.push(rt.spawn(spawns).pid());
    await_begin("Observer::started");
    drop(rt.process().name("ends").spawn(async |_: Context| ()).unwrap());
    await_begin("Observer::ended");
    let turns = rt.spawn(receives_once);
    observed.set(turns.pid()).unwrap();
    turns.send(0).unwrap();
    await_begin("Observer::transition");
    drop(rt.spawn(async |_: Context| Err::<(), _>("no luck")));
    await_begin("Observer::crashed");
    await_begin("Observer::blocked");
    (steps, joined)
}

/// Makes workers drop values whose destructors block. These values are messages of a closed mailbox, a message that a
/// full mailbox drops because a newer message arrives, and a value of a body that is killed.
fn block_in_destructors(rt: &Runtime, gate: &Gate, steps: &mut Vec<Pid>, mut await_begin: impl FnMut(&str)) {
    let value = |code| BlocksOnDrop(gate.clone(), code);
    let closes = rt.spawn(receives_nothing::<BlocksOnDrop>);
    closes.send(value("a message of a closed mailbox")).map_err(|_| "closed").unwrap();
    rt.kill(closes.pid()).unwrap();
    await_begin("a message of a closed mailbox");

    let bounded = |capacity| rt.process().mailbox_capacity(capacity).spawn(receives_nothing::<BlocksOnDrop>).unwrap();
    let closes = bounded(MailboxCapacity::Reject(3));
    (0..3).for_each(|_| closes.send(value("a message of a closed queue")).map_err(|_| "closed").unwrap());
    rt.kill(closes.pid()).unwrap();
    await_begin("a message of a closed queue");

    let full = bounded(MailboxCapacity::DropOldest(1));
    let messages = ["a dropped message", "a message after the gate is open"].map(value);
    let sends = async move |_: Context| messages.into_iter().for_each(|message| _ = full.send(message));
    steps.push(rt.spawn(sends).pid());
    await_begin("a dropped message");

    let (began, begins) = mpsc::channel();
    let own = value("a value of a body");
    let killed = rt.spawn(async move |_: Context| {
        began.send(()).unwrap();
        pending::<()>().await;
        drop(own);
    });
    begins.recv().unwrap();
    rt.kill(killed.pid()).unwrap();
    await_begin("a value of a body");
}

/// The inspections, each with its name. `explain` compares its snapshot of the mailboxes with the snapshot of the
/// previous call, so the list contains `explain` twice.
const INSPECTIONS: [(&str, fn(&Host)); 11] = [
    ("processes", |host| _ = host.processes(&ProcessQuery::new())),
    ("process_details", |host| {
        for row in host.processes(&ProcessQuery::new()) {
            _ = host.process_details(row.pid);
        }
    }),
    ("explain", |host| _ = host.explain()),
    ("explain again", |host| _ = host.explain()),
    ("metrics", |host| _ = host.metrics()),
    ("wait_for_graph", |host| _ = host.wait_for_graph()),
    ("last_exits", |host| _ = host.last_exits()),
    ("names", |host| _ = host.names("", 100)),
    ("groups", |host| _ = host.groups("", 100)),
    ("sample_run_times", |host| _ = host.sample_run_times().take(10)),
    ("sample_increases", |host| _ = host.sample_increases(ProcessCount::Steps).take(10)),
];

/// Calls each inspection on a new thread. Fails if an inspection does not return.
fn inspect(host: &Host) {
    let (returned, returns) = mpsc::channel();
    let host = host.clone();
    let inspector = thread::spawn(move || {
        for (name, inspection) in INSPECTIONS {
            inspection(&host);
            returned.send(name).unwrap();
        }
    });
    for (name, _) in INSPECTIONS {
        // The only purpose of this time limit is to detect a hang.
        assert_eq!(returns.recv_timeout(Duration::from_secs(30) * patience()), Ok(name), "{name} does not return");
    }
    inspector.join().unwrap();
}

/// 9.2c: user code of all kinds blocks: filters, handlers, destructors, `close`, clones, wakers, and the methods of the
/// observer. All workers and the monitor thread run user code that blocks. Nevertheless, each inspection returns.
#[test]
fn an_inspection_returns_while_user_code_blocks() {
    within(120, || {
        let (began, begins) = mpsc::channel();
        let (opener, opened) = mpsc::channel::<()>();
        let gate = Gate { began, opened: Arc::new(Mutex::new(opened)) };
        let (handler, observed) = (gate.clone(), Arc::new(OnceLock::new()));
        let rt = Runtime::builder()
            .workers(WORKERS)
            .max_replacement_threads(0)
            .handle(move |_: Ask| handler.block("a handler"))
            .observer(BlocksInMethods { gate: gate.clone(), observed: Arc::clone(&observed) })
            .on_crash(|_| {})
            .build()
            .unwrap();
        // This variable is dropped before the runtime. Therefore the gate opens before the drop of the runtime, even if
        // an assertion fails.
        let opener = opener;
        let mut begun = BTreeSet::new();
        let await_begin = |code: &str| {
            while !begun.contains(code) {
                begun.insert(begins.recv().unwrap());
            }
        };
        let (steps, _joined) = block_all_workers(&rt, &gate, &observed, await_begin);
        assert_eq!(begun.len(), WORKERS + 1, "{begun:?}");
        inspect(&rt);
        for pid in steps {
            let details = rt.process_details(pid).expect("the step is blocked");
            assert_eq!(details.info.state, Some(ProcessState::Running));
        }
        drop(opener);
    });
}

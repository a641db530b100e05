//! Sections 2.2 and 6.7 of the specification: a mailbox has one receiver at a time. Safe code can keep an older
//! receiver of the mailbox. Every receive on the older receiver is refused.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use futures::stream::FusedStream;
use futures::{FutureExt, StreamExt};
use procession::*;

use crate::{alone, two, within};

const PROCESSES: usize = 64;
const SENDERS: usize = 2;
/// Number of messages that each sender sends to each process.
const MESSAGES: usize = 1_000;

/// Counts how often each message was dropped.
struct Drops(Vec<AtomicUsize>);

/// A message that counts its drop. The message owns heap memory, so AddressSanitizer detects a second drop.
struct Message {
    id: usize,
    drops: Arc<Drops>,
}

impl Drop for Message {
    fn drop(&mut self) {
        let before = self.drops.0[self.id].fetch_add(1, SeqCst);
        assert_eq!(before, 0, "message {} was delivered twice", self.id);
    }
}

/// Sends messages from two threads to all of `addresses`, while another thread polls the replaced receivers in `stale`.
/// Returns when the processes have received all messages, each message exactly once. Asserts that the stale receivers
/// get no message.
fn send_to_all(addresses: Vec<Address<Message>>, mut stale: Vec<Mailbox<Message>>, received: &AtomicUsize) {
    let total = SENDERS * PROCESSES * MESSAGES;
    let drops = Arc::new(Drops((0..total).map(|_| AtomicUsize::new(0)).collect()));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for sender in 0..SENDERS {
            let (addresses, drops) = (&addresses, &drops);
            scope.spawn(move || {
                for n in 0..MESSAGES {
                    for (process, address) in addresses.iter().enumerate() {
                        let id = (sender * MESSAGES + n) * PROCESSES + process;
                        let message = Message { id, drops: Arc::clone(drops) };
                        assert!(address.send(message).is_ok(), "its process lives");
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut taken = 0;
            while !done.load(SeqCst) {
                taken += stale.iter_mut().filter_map(Mailbox::try_receive).count();
            }
            assert_eq!(taken, 0, "a receiver that was replaced got messages");
        });
        while received.load(SeqCst) < total && drops.0.iter().any(|drop| drop.load(SeqCst) == 0) {
            thread::yield_now();
        }
        done.store(true, SeqCst);
    });
    assert_eq!(received.load(SeqCst), total);
    assert!(drops.0.iter().all(|drop| drop.load(SeqCst) == 1), "each message is dropped once");
}

/// 6.7b: the new body of an upgrade sends its mailbox to another thread and then fails. After this failure, only the
/// old body receives messages.
#[test]
fn a_mailbox_that_was_given_away_gets_no_messages_after_a_failed_upgrade() {
    within(120, || {
        let rt = two();
        let (give, given) = mpsc::channel();
        let (resume, resumed) = mpsc::channel();
        let received = Arc::new(AtomicUsize::new(0));
        let processes: Vec<_> = (0..PROCESSES)
            .map(|_| {
                let (give, resume, received) = (give.clone(), resume.clone(), Arc::clone(&received));
                rt.spawn(async move |ctx: Context<Message>| -> Result<(), Exit> {
                    let (mut ctx, _) = ctx
                        .upgrade(async move |ctx: Context<Message>| {
                            give.send(ctx.split().1).expect("the test waits for it");
                            Err::<(), _>(Exit::failed("on purpose"))
                        })
                        .await;
                    resume.send(()).expect("the test waits for it");
                    loop {
                        drop(ctx.receive().await?);
                        received.fetch_add(1, SeqCst);
                    }
                })
            })
            .collect();
        let stale = (0..PROCESSES).map(|_| given.recv().expect("each process gives one away")).collect();
        // Each new body gave its mailbox away. Until this body has failed, its mailbox is the receiver and may get
        // messages.
        (0..PROCESSES).for_each(|_| resumed.recv().expect("each old body continues"));
        send_to_all(processes.iter().map(JoinHandle::address).collect(), stale, &received);
    });
}

/// A process that delegates its first step to `inner`. From the second step on, the process reads its events itself.
struct Outer<M: Send + 'static> {
    inner: EntryPoints<M, ()>,
    steps: usize,
    /// This counter is incremented in the first step in which the process reads its events itself.
    reads: Arc<AtomicUsize>,
    read: Box<dyn FnMut(M) + Send>,
}

impl<M: Send + 'static> Outer<M> {
    fn new(inner: EntryPoints<M, ()>, reads: &Arc<AtomicUsize>, read: impl FnMut(M) + Send + 'static) -> Self {
        Self { inner, steps: 0, reads: Arc::clone(reads), read: Box::new(read) }
    }
}

impl<M: Send + 'static> Process for Outer<M> {
    type Message = M;
    type Output = ();

    fn init(&mut self, start: Start<'_>) -> std::result::Result<(), InitError> {
        self.inner.init(start)
    }

    fn step(&mut self, events: Events<'_, M>, out: &mut StepOutput<'_, M>) -> Result<Next<()>, Exit> {
        self.steps += 1;
        if self.steps == 1 {
            let next = self.inner.step(events, out)?;
            return Ok(if next == Next::Wait { Next::Again } else { next });
        }
        for event in events {
            match event {
                Event::Message(message) => (self.read)(message),
                Event::Cancel { .. } => return Ok(Next::Done(())),
                _ => {}
            }
        }
        if self.steps == 2 {
            self.reads.fetch_add(1, SeqCst);
        }
        Ok(Next::Wait)
    }
}

/// Waits until `processes` processes read their events themselves.
fn wait_for(reads: &AtomicUsize, processes: usize) {
    while reads.load(SeqCst) < processes {
        thread::yield_now();
    }
}

/// Returns an entry point that sends its mailbox to the test and then waits forever.
fn gives_away<M: Send + 'static>(give: mpsc::Sender<Mailbox<M>>) -> EntryPoints<M, ()> {
    EntryPoints::new().entry("", async move |ctx: Context<M>, (): ()| {
        give.send(ctx.split().1).expect("the test waits for it");
        pending::<Result<(), Exit>>().await
    })
}

/// 1.2a, 2.2b: a hand-written process delegates its first step to `EntryPoints`, whose body sends the mailbox of the
/// process to another thread. From the next step on, the process reads its events itself. The mailbox on the other
/// thread gets no messages.
#[test]
fn a_mailbox_that_was_given_away_gets_no_messages_after_the_delegated_step() {
    within(120, || {
        let rt = two();
        let (give, given) = mpsc::channel();
        let (received, reads) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let processes: Vec<_> = (0..PROCESSES)
            .map(|_| {
                let received = Arc::clone(&received);
                let count = move |message| {
                    drop(message);
                    received.fetch_add(1, SeqCst);
                };
                rt.spawn_process(Outer::new(gives_away(give.clone()), &reads, count))
            })
            .collect();
        let stale = (0..PROCESSES).map(|_| given.recv().expect("each process gives one away")).collect();
        wait_for(&reads, PROCESSES);
        send_to_all(processes.iter().map(JoinHandle::address).collect(), stale, &received);
    });
}

fn is_refused<T>(received: &Result<T, Exit>) -> bool {
    received.as_ref().is_err_and(|exit| exit.to_string().contains("has another receiver"))
}

/// Asserts that the mailbox refuses every kind of receive, although a message is waiting.
fn assert_refused(mut mailbox: Mailbox<u32>) {
    assert_eq!(mailbox.try_receive(), None);
    assert!(is_refused(&block_on(mailbox.receive())));
    assert!(is_refused(&block_on(mailbox.receive_where(Ok::<_, u32>))));
    assert_eq!(block_on(mailbox.next()), None, "the stream has ended");
    assert!(mailbox.is_terminated());
    assert!(mailbox.event().now_or_never().is_none(), "no event comes");
}

/// 6.7b: a body upgrades twice. Each new body sends its mailbox to another thread and then fails. On the other thread,
/// both mailboxes refuse to receive. The old body receives all messages.
#[test]
fn the_mailbox_of_a_failed_upgrade_refuses_to_receive() {
    within(60, || {
        let rt = alone().build().expect("a runtime");
        let (give, given) = mpsc::channel();
        let process = rt.spawn(async move |mut ctx: Context<u32>| {
            for _ in 0..2 {
                let give = give.clone();
                let upgrade = ctx.upgrade(async move |ctx: Context<u32>| {
                    give.send(ctx.split().1).expect("the test waits for it");
                    Err::<Vec<u32>, _>(Exit::failed("on purpose"))
                });
                let exit;
                (ctx, exit) = upgrade.await;
                assert_eq!(exit.to_string(), "failed: on purpose");
            }
            ctx.mark_started();
            let mut read = vec![];
            while read.len() < 6 {
                read.push(ctx.receive().await?);
            }
            Ok::<_, Exit>(read)
        });
        rt.block_on(process.started()).expect("it goes on");
        for (number, mailbox) in given.iter().take(2).enumerate() {
            // The process may have received the first message, and may be waiting again, when the second message
            // arrives.
            process.send(number as u32 * 2).expect("it lives");
            process.send(number as u32 * 2 + 1).expect("it lives");
            assert_refused(mailbox);
        }
        process.send(4).expect("it lives");
        process.send(5).expect("it lives");
        assert_eq!(rt.block_on(process).expect("it ends"), [0, 1, 2, 3, 4, 5]);
    });
}

/// 6.7b: during an upgrade, another thread waits on the mailbox of the new body. The failure of the upgrade wakes this
/// thread, and the receive operation of this thread is refused.
#[test]
fn a_waiting_receive_is_refused_when_its_upgrade_fails() {
    within(60, || {
        let rt = alone().build().expect("a runtime");
        let (give, given) = mpsc::channel();
        let process = rt.process().manual_start().spawn(async move |ctx: Context<u32>| {
            ctx.mark_started();
            let (fail, failed) = futures::channel::oneshot::channel::<()>();
            let upgrade = ctx.upgrade(async move |ctx: Context<u32>| {
                give.send((ctx.split().1, fail)).expect("the test waits for it");
                let _ = failed.await;
                Err::<u32, _>(Exit::failed("on purpose"))
            });
            upgrade.await.0.receive().await
        });
        let process = process.expect("there is room");
        let (mut mailbox, fail) = given.recv().expect("the new body gives it away");
        let mut received = pin!(mailbox.receive());
        process.send(1).expect("it lives");
        assert_eq!(block_on(&mut received).ok(), Some(1), "on trial it is the receiver");
        let mut received = pin!(mailbox.receive());
        let mut fail = Some(fail);
        let exit = block_on(poll_fn(|cx| {
            let received = received.as_mut().poll(cx);
            // The other thread now waits on the mailbox. Next, the upgrade fails.
            drop(fail.take());
            received
        }));
        assert!(is_refused(&exit));
        process.send(2).expect("it lives");
        assert_eq!(rt.block_on(process).expect("it receives"), 2);
    });
}

/// 6.7b: a replaced mailbox contains messages that it has read ahead. When the replaced mailbox refuses a receive or is
/// dropped, these messages return to the old body immediately.
#[test]
fn a_replaced_mailbox_gives_its_stored_messages_back_to_the_old_body() {
    for is_dropped in [true, false] {
        within(60, move || {
            // The runtime has no workers, so the process runs only after all messages have arrived.
            let rt = Runtime::builder().workers(0).build().expect("a runtime");
            let (give, given) = mpsc::channel();
            let process = rt.spawn(async move |ctx: Context<u32>| {
                let upgrade = ctx.upgrade(async move |mut ctx: Context<u32>| {
                    // The receive moves all five messages out of the shared mailbox and returns the first message.
                    assert_eq!(ctx.receive().await?, 0);
                    give.send(ctx.split().1).expect("the test waits for it");
                    Err::<Vec<u32>, _>(Exit::failed("on purpose"))
                });
                let mut ctx = upgrade.await.0;
                let mut read = vec![];
                while read.len() < 4 {
                    read.push(ctx.receive().await?);
                }
                Ok::<_, Exit>(read)
            });
            for n in 0..5 {
                process.send(n).expect("it lives");
            }
            rt.block_on(process.started()).expect("the old body goes on");
            let mailbox: Mailbox<u32> = given.recv().expect("the new body gives it away");
            if is_dropped {
                drop(mailbox)
            } else {
                assert_refused(mailbox)
            }
            assert_eq!(rt.block_on(process).expect("it ends"), [1, 2, 3, 4]);
        });
    }
}

/// 6.7a: a new body sends its mailbox to another thread before the upgrade has completed. If the upgrade then succeeds,
/// this mailbox is the receiver.
#[test]
fn a_mailbox_that_was_given_away_receives_messages_after_the_upgrade() {
    within(60, || {
        let rt = two();
        let (give, given) = mpsc::channel();
        let process = rt.spawn(async move |ctx: Context<u32>| {
            let upgrade = ctx.upgrade(async move |ctx: Context<u32>| {
                give.send(ctx.split().1).expect("the test waits for it");
                pending::<Result<(), Exit>>().await
            });
            Err::<(), _>(upgrade.await.1)
        });
        let mut mailbox: Mailbox<u32> = given.recv().expect("the new body gives it away");
        for n in 0..1_000 {
            process.send(n).expect("it lives");
            assert_eq!(block_on(mailbox.receive()).ok(), Some(n));
        }
    });
}

/// 1.2a, 2.2b: a process delegates its first step to a body. The body sends the mailbox of the process to another
/// thread. When the process reads its events itself, the mailbox on the other thread refuses to receive.
#[test]
fn a_receive_is_refused_when_the_process_reads_its_events() {
    within(60, || {
        let rt = alone().build().expect("a runtime");
        let (give, given) = mpsc::channel();
        let (reads, sum) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let read = Arc::clone(&sum);
        let process = rt.spawn_process(Outer::new(gives_away(give), &reads, move |n: u32| {
            read.fetch_add(n as usize, SeqCst);
        }));
        let mailbox = given.recv().expect("the entry point gives it away");
        wait_for(&reads, 1);
        process.send(1).expect("it lives");
        assert_refused(mailbox);
        process.send(2).expect("it lives");
        while sum.load(SeqCst) < 3 {
            thread::yield_now();
        }
        rt.cancel(process.pid(), "enough", Duration::from_secs(60)).expect("it lives");
        rt.block_on(process).expect("it hears of the cancel");
    });
}

/// A process that owns two values of `EntryPoints`. The process delegates its first step to the first value. In its
/// second step, the process upgrades to the second value.
struct Succeeded(EntryPoints<u32, u32>, Option<EntryPoints<u32, u32>>, usize);

impl Process for Succeeded {
    type Message = u32;
    type Output = u32;

    fn init(&mut self, start: Start<'_>) -> std::result::Result<(), InitError> {
        self.0.init(start)
    }

    fn step(&mut self, events: Events<'_, u32>, out: &mut StepOutput<'_, u32>) -> Result<Next<u32>, Exit> {
        self.2 += 1;
        if self.2 == 1 {
            self.0.step(events, out)?;
        } else if let Some(next) = self.1.take() {
            out.upgrade(next, "", ())?;
        }
        Ok(Next::Again)
    }
}

/// 1.1c, 2.2b, 6.7a: a process first runs one entry point and then another. The entry point that began last is the
/// receiver.
#[test]
fn the_entry_point_that_began_last_is_the_receiver() {
    within(60, || {
        let rt = alone().build().expect("a runtime");
        let (give, given) = mpsc::channel();
        let (begin, begun) = mpsc::channel();
        let first = EntryPoints::new().entry("", async move |ctx: Context<u32>, (): ()| {
            give.send(ctx.split().1).expect("the test waits for it");
            pending::<Result<u32, Exit>>().await
        });
        let second = EntryPoints::new().entry("", async move |mut ctx: Context<u32>, (): ()| {
            begin.send(()).expect("the test waits for it");
            Ok::<_, Exit>(ctx.receive().await? + ctx.receive().await?)
        });
        let process = rt.spawn_process(Succeeded(first, Some(second), 0));
        let mailbox = given.recv().expect("the first one gives it away");
        begun.recv().expect("the second one begins");
        process.send(1).expect("it lives");
        assert_refused(mailbox);
        process.send(2).expect("it lives");
        assert_eq!(rt.block_on(process).expect("it receives both"), 3);
    });
}

/// 1.2a, 1.5a: the events of a step cannot be sent to another thread. Therefore a step may take a message from its
/// events without a lock.
#[test]
fn events_stay_on_their_thread() {
    trait IfNotSend<A> {
        fn holds() {}
    }
    impl<T> IfNotSend<()> for T {}
    impl<T: Send> IfNotSend<u8> for T {}
    // If `Events` were `Send`, both implementations would apply, and this line would not compile.
    <Events<'static, u32> as IfNotSend<_>>::holds();
}

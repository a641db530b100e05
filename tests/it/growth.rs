//! Section 9.2 of the specification: `Host::explain` finds mailboxes that only grow.

use std::future::pending;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use procession::observe::{Explanation, Finding, ProcessState};
use procession::*;

use crate::inspection::{lone, settle};
use crate::within;

const HOUR: Duration = Duration::from_secs(3600);

/// What a receiver does after a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mail {
    Read,
    /// Stops reading for ever.
    Stop,
}

async fn reads(mut ctx: Context<Mail>) -> Result<(), Exit> {
    while ctx.receive().await? != Mail::Stop {}
    pending().await
}

async fn sleeps(ctx: Context) {
    ctx.sleep(HOUR).await;
}

fn fill(to: &Address<Mail>, count: usize, mail: Mail) {
    (0..count).for_each(|_| to.send(mail).unwrap());
}

/// Returns the length and the growth of the growing mailboxes.
fn growing(explanation: &Explanation) -> Vec<(usize, usize)> {
    let growth = |finding: &Finding| match finding {
        Finding::GrowingMailbox { process, grown_by, .. } => Some((process.mailbox_len, *grown_by)),
        _ => None,
    };
    explanation.findings.iter().filter_map(growth).collect()
}

/// Returns the lengths of the mailboxes that are long, but are not known to grow.
fn long(explanation: &Explanation) -> Vec<usize> {
    let len = |finding: &Finding| match finding {
        Finding::LongMailbox { process } => Some(process.mailbox_len),
        _ => None,
    };
    explanation.findings.iter().filter_map(len).collect()
}

fn explained(rt: &Runtime) -> Explanation {
    settle(rt);
    rt.block_on(async { rt.explain() })
}

/// 9.2g: an explanation finds a mailbox that has grown since the previous explanation. The first explanation only finds
/// that the mailbox is long. If no message has arrived since the previous explanation, the explanation reports no
/// growth.
#[test]
fn a_growing_mailbox_is_found_by_two_explanations() {
    let rt = lone();
    drop(rt.spawn(sleeps));
    let process = rt.spawn(async |_: Context<Mail>| pending::<()>().await);
    settle(&rt);
    let begin = rt.now();
    fill(&process, 999, Mail::Read);
    let explanation = explained(&rt);
    assert!(explanation.findings.is_empty(), "{explanation}");
    fill(&process, 200, Mail::Read);
    let explanation = explained(&rt);
    assert_eq!((growing(&explanation), long(&explanation)), (vec![], vec![1_199]), "one snapshot proves no growth");
    fill(&process, 301, Mail::Read);
    let explanation = explained(&rt);
    let [finding @ Finding::GrowingMailbox { process: row, grown_by: 301, since, lasts, .. }] =
        &explanation.findings[..]
    else {
        panic!("{explanation}")
    };
    assert_eq!((row.pid, row.mailbox_len), (process.pid(), 1_500));
    assert!(begin <= *since && *since + *lasts <= rt.now());
    let text = finding.to_string();
    let first = text.lines().next().unwrap();
    assert!(first.contains(&format!(" grew by 301 messages in {lasts:?} and holds 1500 messages")), "{text}");
    assert!(
        first.ends_with("the oldest message was not taken out; the process is Idle and does not receive"),
        "{text}"
    );
    assert!(text.lines().nth(1).unwrap().starts_with("what to do: read `Host::process_details`"), "{text}");
    let explanation = explained(&rt);
    assert_eq!((growing(&explanation), long(&explanation)), (vec![], vec![1_500]), "no message has arrived");
    fill(&process, 1, Mail::Read);
    assert_eq!(growing(&explained(&rt)), [(1_501, 1)]);
}

/// 9.2g: a mailbox that was read between two explanations is not reported as growing, even if the mailbox is longer
/// than at the first explanation. In one case, the process reads all messages. In the other case, the mailbox has a
/// capacity, and the process reads only one message.
#[test]
fn a_mailbox_that_was_read_between_two_explanations_is_not_reported_as_growing() {
    let capacities = [(MailboxCapacity::Unbounded, false), (MailboxCapacity::Reject(9_000), true)];
    for (capacity, reads_one) in capacities {
        for _ in 0..10 {
            let rt = lone();
            drop(rt.spawn(sleeps));
            let process = rt.process().mailbox_capacity(capacity).spawn(reads).unwrap();
            settle(&rt);
            // The process is suspended, so it does not read the first messages.
            rt.suspend(process.pid()).unwrap();
            fill(&process, 1, if reads_one { Mail::Stop } else { Mail::Read });
            fill(&process, 1_100, Mail::Read);
            assert!(growing(&explained(&rt)).is_empty());
            rt.resume(process.pid()).unwrap();
            settle(&rt);
            rt.suspend(process.pid()).unwrap();
            fill(&process, 1_300, Mail::Read);
            let explanation = explained(&rt);
            let len = rt.process_details(process.pid()).unwrap().info.mailbox_len;
            assert!(len > 1_101, "the mailbox is longer than before: {len}");
            assert_eq!(growing(&explanation), [], "{explanation}");
            // The process reads no further message.
            fill(&process, 5, Mail::Read);
            assert_eq!(growing(&explained(&rt)), [(len + 5, 5)]);
            rt.resume(process.pid()).unwrap();
        }
    }
}

/// Waits until the suspended process has handled its wake-up.
async fn rests(host: &Host, pid: Pid) {
    while host.process_details(pid).unwrap().info.state != Some(ProcessState::Suspended) {
        crate::step_aside().await;
    }
    crate::step_aside().await;
}

/// 9.2g: in a simulation, the time does not advance between two explanations. Nevertheless, the second explanation
/// detects whether the process has read its mailbox since the first explanation.
#[test]
fn without_a_change_of_the_time_the_steps_show_whether_a_mailbox_was_read() {
    for (reads_between, expected) in [(false, vec![(1_500, 400)]), (true, vec![])] {
        let mut simulation = Simulation::new(3);
        let host = simulation.host().clone();
        let found = simulation.run(async {
            let process = host.spawn(reads);
            process.started().await.unwrap();
            host.suspend(process.pid()).unwrap();
            fill(&process, 1_100, Mail::Read);
            rests(&host, process.pid()).await;
            assert!(growing(&host.explain()).is_empty());
            if reads_between {
                let at = host.now();
                host.resume(process.pid()).unwrap();
                while host.process_details(process.pid()).unwrap().info.mailbox_len != 0 {
                    crate::step_aside().await;
                }
                host.suspend(process.pid()).unwrap();
                assert_eq!(host.now(), at);
                fill(&process, 1_100, Mail::Read);
            }
            fill(&process, 400, Mail::Read);
            rests(&host, process.pid()).await;
            let found = growing(&host.explain());
            host.kill(process.pid()).unwrap();
            found
        });
        assert_eq!(found, expected);
    }
}

/// 9.2g: the mailbox of a process in a long step grows. The mailbox of a process that runs steps but never reads its
/// mailbox grows too. The number of steps changes only for the second process.
#[test]
fn the_mailboxes_of_running_processes_can_grow() {
    within(120, || {
        let rt = Runtime::builder().workers(2).build().unwrap();
        let ((begun, has_begun), (open, wait)) = (mpsc::channel(), mpsc::channel::<()>());
        let stuck = rt.spawn(async move |_: Context<Mail>| {
            begun.send(()).unwrap();
            _ = wait.recv();
        });
        let busy = rt.spawn(async |ctx: Context<Mail>| {
            loop {
                ctx.sleep(Duration::from_millis(1)).await;
            }
        });
        has_begun.recv().unwrap();
        let mut found = [None, None];
        for _ in 0..20_000 * crate::patience() {
            for process in [&stuck.address(), &busy.address()] {
                fill(process, 100, Mail::Read);
            }
            for finding in rt.explain().findings {
                if let Finding::GrowingMailbox { process, grown_by: 100, .. } = finding {
                    let place = usize::from(process.pid == busy.pid());
                    let first = found[place].get_or_insert(process.clone());
                    assert!(first.mailbox_len <= process.mailbox_len);
                    if place == 1 && process.steps > first.steps + 1 {
                        *first = process;
                    }
                }
            }
            if found.iter().all(Option::is_some) {
                break;
            }
            thread::park_timeout(Duration::from_millis(1));
        }
        let [stuck_row, busy_row] = found.map(|row| row.expect("it grows"));
        assert_eq!((stuck_row.pid, stuck_row.state), (stuck.pid(), Some(ProcessState::Running)));
        assert_eq!(busy_row.pid, busy.pid());
        rt.kill(busy.pid()).unwrap();
        drop(open);
    });
}

/// 9.2g: senders send a storm of messages, and the receiver always reads its mailbox. The receiver reads the mailbox
/// between two explanations, so no explanation states that the mailbox grows.
#[test]
fn a_storm_that_the_receiver_reads_is_not_reported_as_growth() {
    within(120, || {
        let rt = Runtime::builder().workers(2).build().unwrap();
        let (read, has_read) = mpsc::channel();
        let process = rt.spawn(async move |mut ctx: Context<Mail>| {
            loop {
                if ctx.receive().await? == Mail::Stop {
                    _ = read.send(());
                }
            }
            #[expect(unreachable_code, reason = "determines the type of the exit")]
            Ok::<(), Exit>(())
        });
        let address = process.address();
        for round in 0..300 {
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| fill(&address, 600 + round, Mail::Read));
                }
            });
            let explanation = rt.explain();
            assert_eq!(growing(&explanation), [], "in round {round}: {explanation}");
            // The receiver reads this message, and therefore has read all messages of this round.
            process.send(Mail::Stop).unwrap();
            has_read.recv().unwrap();
        }
        rt.kill(process.pid()).unwrap();
    });
}

//! Section 9.5 of the specification: the last messages of a process, which `Builder::inspect` records.

use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use procession::observe::{
    ExitRecord, FlightRecorder, InspectOptions, LastMessage, MessageCount, MessageKind, ProcessDetails, ProcessQuery,
};
use procession::*;

use crate::lives::settle;
use crate::within;

const HOUR: Duration = Duration::from_secs(3600);
const TEAM: Group<u64> = Group::new("team");

/// A command with an inline handler.
struct Fetch;
impl Command for Fetch {
    type Reply = u64;
}

/// A command that the blocking pool answers.
struct Store;
impl Command for Store {
    type Reply = ();
}

/// Instructions to the process [`busy`].
enum Order {
    Fetch,
    Store,
    Watch { monitored: Pid, linked: Pid },
}

const ORDER: MessageKind = MessageKind::Message { type_name: concat!(module_path!(), "::Order") };
const FETCH: MessageKind = MessageKind::Answer { command: concat!(module_path!(), "::Fetch") };
const STORE: MessageKind = MessageKind::Answer { command: concat!(module_path!(), "::Store") };

/// Body that executes the orders in its messages. The body fails when its process is cancelled.
async fn busy(mut ctx: Context<Order>) -> Result<(), Exit> {
    ctx.trap_exit(true);
    loop {
        match ctx.event().await {
            Event::Message(Order::Fetch) => _ = ctx.perform(Fetch).await?,
            Event::Message(Order::Store) => ctx.perform(Store).await?,
            Event::Message(Order::Watch { monitored, linked }) => {
                ctx.monitor(monitored);
                ctx.link(linked)?;
                ctx.monitor_group(TEAM);
            }
            Event::Cancel { .. } => return Err(Exit::failed("cancelled at a bad time")),
            _ => {}
        }
    }
}

async fn member(mut ctx: Context<u64>) -> Result<(), Exit> {
    ctx.join_group(TEAM);
    ctx.receive().await.map(drop)
}

async fn waits(mut ctx: Context<u64>) -> Result<(), Exit> {
    ctx.receive().await.map(drop)
}

/// Body that never reads its mailbox.
async fn deaf(_: Context<u64>) {
    std::future::pending().await
}

fn inspected(options: InspectOptions) -> Builder {
    Runtime::builder().workers(0).handle(|_: Fetch| 7).handle_blocking(|_: Store| ()).inspect(options)
}

fn details<M: Send + 'static>(host: &Host, process: &Address<M>) -> ProcessDetails {
    host.process_details(process.pid()).expect("the process is alive")
}

fn kinds(messages: &[LastMessage]) -> Vec<(MessageKind, Option<Pid>)> {
    messages.iter().map(|message| (message.kind, message.from)).collect()
}

fn counts(counts: &[MessageCount]) -> Vec<(MessageKind, u64)> {
    counts.iter().map(|count| (count.kind, count.count)).collect()
}

/// Waits until the process has `count` records.
fn wait_for_records<M: Send + 'static>(rt: &Runtime, process: &Address<M>, count: usize) {
    while details(rt, process).last_messages.len() < count {
        rt.block_on(crate::step_aside());
    }
}

/// 9.5g: the records contain each message with its sender, each answer with its command, and each other event with the
/// process that the event is about. The records are oldest first.
#[test]
fn each_kind_of_event_is_recorded() {
    within(60, || {
        let rt = inspected(InspectOptions::new().last_messages(20)).build().unwrap();
        let process = rt.spawn(busy);
        let busy = process.address();
        settle(&rt);
        assert_eq!(details(&rt, &busy).last_messages, []);
        busy.send(Order::Fetch).unwrap();
        settle(&rt);
        let (to, other) = (busy.clone(), async move |_: Context, to: Address<Order>| to.send(Order::Store));
        let sender = rt.spawn(async move |ctx: Context| other(ctx, to).await.map_err(|_| "refused"));
        let from = sender.pid();
        rt.block_on(sender).unwrap();
        wait_for_records(&rt, &busy, 4);
        let (monitored, linked) = (rt.spawn(waits), rt.spawn(waits));
        busy.send(Order::Watch { monitored: monitored.pid(), linked: linked.pid() }).unwrap();
        settle(&rt);
        let joins = rt.spawn(member);
        settle(&rt);
        joins.send(1).unwrap();
        settle(&rt);
        for process in [&monitored, &linked] {
            process.send(1).unwrap();
            settle(&rt);
        }
        let of = |process: &JoinHandle<(), u64>| Some(process.pid());
        let expected = [
            (ORDER, None),
            (FETCH, None),
            (ORDER, Some(from)),
            (STORE, None),
            (ORDER, None),
            (MessageKind::Joined, of(&joins)),
            (MessageKind::Left, of(&joins)),
            (MessageKind::Down, of(&monitored)),
            (MessageKind::Exit, of(&linked)),
        ];
        let found = details(&rt, &busy);
        assert_eq!(kinds(&found.last_messages), expected);
        // The time of a record may be too early, but is never too late.
        assert!(found.last_messages.iter().all(|message| message.at <= rt.now()));
        let counted = [(ORDER, 3), (FETCH, 1), (STORE, 1)].into_iter();
        let others =
            [MessageKind::Joined, MessageKind::Left, MessageKind::Down, MessageKind::Exit].map(|kind| (kind, 1));
        assert_eq!(counts(&found.message_counts), counted.chain(others).collect::<Vec<_>>());
        rt.cancel(busy.pid(), "enough", HOUR).unwrap();
        assert!(rt.block_on(process).is_err());
        let records = rt.last_exits();
        let [ExitRecord { last_messages, .. }] = &records[..] else { panic!("{records:?}") };
        assert_eq!(kinds(last_messages)[..9], expected);
        assert_eq!(kinds(last_messages)[9..], [(MessageKind::Cancel, None)]);
    });
}

/// 9.5g: by default, the runtime records the last 8 messages. The number of records can be changed.
#[test]
fn the_number_of_records_is_bounded() {
    for (options, expected) in
        [(InspectOptions::new(), 8), (InspectOptions::new().last_messages(3), 3), (InspectOptions::default(), 8)]
    {
        let rt = inspected(options).build().unwrap();
        let process = rt.spawn(waits);
        let memory = details(&rt, &process.address()).memory;
        process.send(0).unwrap();
        let with_records = details(&rt, &process.address()).memory;
        assert!(with_records >= memory + expected * size_of::<LastMessage>(), "{memory}, {with_records}");
        (1..100).for_each(|number| process.send(number).unwrap());
        let found = details(&rt, &process.address());
        assert_eq!(found.last_messages.len(), expected);
        assert_eq!(counts(&found.message_counts), [(MessageKind::Message { type_name: "u64" }, 100)]);
    }
}

/// The documentation of `InspectOptions` states that a process needs about 1 KiB for 8 records.
#[cfg(target_pointer_width = "64")]
#[test]
fn the_records_of_a_process_need_about_one_kib() {
    let memory = |options: InspectOptions| {
        let rt = inspected(options).build().unwrap();
        let process = rt.spawn(waits);
        process.send(1).unwrap();
        details(&rt, &process.address()).memory
    };
    let more = memory(InspectOptions::new()) - memory(InspectOptions::new().last_messages(0));
    assert!((900..1_200).contains(&more), "{more}");
}

/// 9.5g: without `Builder::inspect`, and with 0 records, the runtime records nothing, even if the runtime has an
/// observer.
#[test]
fn no_message_is_recorded_by_default() {
    struct Nothing;
    impl Observer for Nothing {}

    let builders =
        [Runtime::builder(), Runtime::builder().observer(Nothing), inspected(InspectOptions::new().last_messages(0))];
    for builder in builders {
        let rt = builder.workers(0).build().unwrap();
        let process = rt.spawn(async |mut ctx: Context<u64>| -> Result<(), Exit> {
            ctx.receive().await?;
            Err(Exit::failed("no luck"))
        });
        process.send(1).unwrap();
        let found = details(&rt, &process.address());
        assert_eq!((found.last_messages, found.message_counts), (vec![], vec![]));
        rt.block_on(process).unwrap_err();
        assert_eq!(rt.last_exits()[0].last_messages, []);
    }
}

/// 9.5g: after the end of a trace or of a suspension, the runtime still records the messages of the process.
#[test]
fn the_end_of_a_trace_or_of_a_suspension_does_not_end_the_records() {
    let rt = inspected(InspectOptions::new()).build().unwrap();
    let process = rt.spawn(waits);
    rt.start_trace_to(std::io::sink()).unwrap().finish().unwrap();
    process.send(1).unwrap();
    assert_eq!(details(&rt, &process.address()).last_messages.len(), 1);
    rt.suspend(process.pid()).unwrap();
    rt.resume(process.pid()).unwrap();
    process.send(2).unwrap();
    assert_eq!(details(&rt, &process.address()).last_messages.len(), 2);
}

/// 9.5g: if a sender has waited for free space in the mailbox, the message of this sender is recorded without the
/// sender.
#[test]
fn a_sender_that_waited_for_space_is_not_recorded() {
    let rt = inspected(InspectOptions::new()).build().unwrap();
    let process = rt.process().mailbox_capacity(MailboxCapacity::Reject(1)).spawn(async |mut ctx: Context<u64>| {
        while ctx.receive().await? != 2 {}
        std::future::pending::<Result<(), Exit>>().await
    });
    let process = process.unwrap();
    rt.suspend(process.pid()).unwrap();
    process.send(1).unwrap();
    let to = process.address();
    let sender = rt.spawn(async move |_: Context| to.send_wait(2).await.map_err(|_| "refused"));
    settle(&rt);
    assert_eq!(details(&rt, &process.address()).last_messages.len(), 1);
    // When the process takes the first message, the mailbox accepts the message of the waiting sender.
    rt.resume(process.pid()).unwrap();
    rt.block_on(sender).unwrap();
    let number = MessageKind::Message { type_name: "u64" };
    assert_eq!(kinds(&details(&rt, &process.address()).last_messages), [(number, None); 2]);
}

/// 9.5g: if a pool passes a message to a member, the message is recorded for this member.
#[test]
fn a_message_to_a_pool_is_recorded_for_its_member() {
    let rt = inspected(InspectOptions::new()).build().unwrap();
    let pool = rt.spawn_pool(Pool::new(2, waits).round_robin());
    settle(&rt);
    pool.send(1).unwrap();
    let rows = rt.processes(&ProcessQuery::new());
    let records = |pid| rt.process_details(pid).map_or(0, |details| details.last_messages.len());
    let members: Vec<_> =
        rows.iter().filter(|row| row.parent == Some(pool.pid())).map(|row| records(row.pid)).collect();
    assert_eq!(members.iter().sum::<usize>(), 1, "{members:?}");
}

/// 9.5g: in a simulation, the times of the records are exact.
#[test]
fn a_simulation_records_messages_at_virtual_times() {
    let mut simulation = Simulation::new(3).inspect(InspectOptions::new());
    let begin = simulation.now();
    let process = simulation.spawn(deaf);
    let to = process.address();
    let sender = simulation.spawn(async move |ctx: Context| {
        ctx.sleep(HOUR).await;
        to.send(7).map_err(|_| "refused")
    });
    let from = sender.pid();
    simulation.run(sender).unwrap();
    let found = details(simulation.host(), &process.address());
    let [message] = found.last_messages[..] else { panic!("{found:?}") };
    assert_eq!((message.from, message.at - begin), (Some(from), HOUR));
    assert_eq!(message.to_string(), format!("message u64 from {from} (3600s after the start)"));
}

/// 9.5g: with `Check::inspect`, the runtime records the messages in each run of the scenario. If a seed fails, the
/// report names this option.
#[test]
fn a_check_records_messages_in_each_run() {
    let scenario = async |host: Host| -> Result<(), Exit> {
        let process = host.spawn(deaf);
        process.send(7)?;
        assert_eq!(details(&host, &process.address()).last_messages.len(), 1);
        Ok(())
    };
    Check::new(0..3).inspect(InspectOptions::new()).run(scenario);
    let failure = |check: Check| {
        let panic = catch_unwind(AssertUnwindSafe(|| check.run(scenario))).expect_err("the scenario fails");
        *panic.downcast::<String>().expect("the report is a text")
    };
    let without = failure(Check::new(0..1));
    assert!(without.contains("again: `check(0..1, …)`"), "{without}");
    let with = failure(Check::new(0..1).inspect(InspectOptions::new().last_messages(0)));
    assert!(with.contains("again: `Check::new(0..1).inspect(…).run(…)`"), "{with}");
}

const fn is_unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}
const _: () = (is_unwind_safe::<Check>(), is_unwind_safe::<InspectOptions>(), is_unwind_safe::<FlightRecorder>()).2;

/// 9.5g: `InspectOptions` can also turn on the flight recorder.
#[test]
fn the_inspect_options_turn_on_the_flight_recorder() {
    let options = InspectOptions::new().flight_recorder(FlightRecorder::new());
    let rt = inspected(options.clone()).build().unwrap();
    rt.block_on(rt.spawn(async |ctx: Context| ctx.yield_now().await)).unwrap();
    assert!(rt.write_flight_record_to(Vec::new()).unwrap().events > 0);
    // If the options contain no flight recorder, the runtime keeps the flight recorder of the builder.
    let builder = Runtime::builder().workers(0).flight_recorder(FlightRecorder::new());
    let rt = builder.inspect(InspectOptions::new()).build().unwrap();
    rt.write_flight_record_to(Vec::new()).unwrap();
    let simulation = Simulation::new(1).inspect(options);
    simulation.host().write_flight_record_to(Vec::new()).unwrap();
    assert!(inspected(InspectOptions::new()).build().unwrap().write_flight_record_to(Vec::new()).is_err());
}

/// 9.5g: the crash report contains the last messages, also in its text.
#[test]
fn a_crash_report_contains_the_last_messages() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let reports = Arc::clone(&told);
    let builder = inspected(InspectOptions::new()).on_crash(move |report| reports.lock().unwrap().push(report.clone()));
    let rt = builder.build().unwrap();
    let process = rt.spawn(busy);
    process.send(Order::Fetch).unwrap();
    settle(&rt);
    rt.cancel(process.pid(), "enough", HOUR).unwrap();
    drop(process);
    settle(&rt);
    let told = told.lock().unwrap();
    let [report] = &told[..] else { panic!("{told:?}") };
    assert_eq!(kinds(&report.last_messages), [(ORDER, None), (FETCH, None), (MessageKind::Cancel, None)]);
    let text = report.to_string();
    let (_, messages) = text.split_once("\n  last messages:\n").expect("the text contains the messages");
    let lines: Vec<_> = messages.lines().map(|line| line.split_once(" (").expect("each line has a time").0).collect();
    let path = module_path!();
    assert_eq!(
        lines,
        [format!("    message {path}::Order"), format!("    answer to {path}::Fetch"), "    cancellation".into()]
    );
    assert!(messages.lines().all(|line| line.ends_with(" after the start)")), "{text}");
}

/// 9.5g: with the feature `serde`, a record is serialized as a struct with the fields of the record. A count is also
/// serialized as a struct.
#[cfg(feature = "serde")]
#[test]
fn a_record_is_serialized_as_a_struct() {
    use serde_test::{Configure, Token, assert_ser_tokens};

    let mut simulation = Simulation::new(3).inspect(InspectOptions::new());
    let process = simulation.spawn(deaf);
    let to = process.address();
    let sender = simulation.spawn(async move |_: Context| to.send(7).map_err(|_| "refused"));
    let from = Box::leak(sender.pid().to_string().into_boxed_str());
    simulation.run(sender).unwrap();
    simulation.host().cancel(process.pid(), "enough", HOUR).unwrap();
    let found = details(simulation.host(), &process.address());
    let kind = |kind, type_name: &[Token]| {
        [&[Token::Str("kind"), Token::Str(kind), Token::Str("type_name")], type_name].concat()
    };
    let message = kind("Message", &[Token::Some, Token::Str("u64")]);
    let rest =
        [Token::Str("from"), Token::Some, Token::Str(from), Token::Str("at_ns"), Token::U64(0), Token::StructEnd];
    let begin = [Token::Struct { name: "LastMessage", len: 4 }];
    assert_ser_tokens(&found.last_messages[0].readable(), &[&begin[..], &message, &rest].concat());
    let rest = [Token::Str("from"), Token::None, Token::Str("at_ns"), Token::U64(0), Token::StructEnd];
    let cancel = [&begin[..], &kind("Cancel", &[Token::None]), &rest].concat();
    assert_ser_tokens(&found.last_messages[1].readable(), &cancel);
    let begin = [Token::Struct { name: "MessageCount", len: 3 }];
    let count = [&begin[..], &message, &[Token::Str("count"), Token::U64(1), Token::StructEnd]].concat();
    assert_ser_tokens(&found.message_counts[0].readable(), &count);
}

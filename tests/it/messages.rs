//! Collects the texts of all public errors and documented panics in one table. The command `cargo test --test it --
//! messages --nocapture` prints the table for a review. Each new error and panic must be added to this file.

use std::fmt::Display;
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{error, io};

use futures::Sink;
use futures::executor::block_on;
use procession::supervisor::*;
use procession::*;

use crate::lives::{Ask, Shelf, lone, settle};

/// Words that the style guide forbids in messages.
const FORBIDDEN: &[&str] = &[
    "who",
    "whoever",
    "whom",
    "whose",
    "somebody",
    "nobody",
    "those",
    "heed",
    "buried",
    "mourner",
    "orphan",
    "stillborn",
    "embryo",
    "hatch",
    "condemned",
    "ended",
    "died",
    "mail",
];

#[derive(Default)]
struct Table(Vec<(String, String)>);

impl Table {
    fn add(&mut self, name: &str, text: impl Display) {
        self.0.push((name.to_owned(), text.to_string()));
    }

    /// Adds an error, which must implement `Error`.
    fn error(&mut self, name: &str, error: impl error::Error) {
        self.add(name, error);
    }

    /// Adds the first line of a panic message. Only the panic messages of `check` have more lines, which contain the
    /// trace.
    fn panic<T>(&mut self, name: &str, f: impl FnOnce() -> T) {
        let payload = catch_unwind(AssertUnwindSafe(f)).map(drop).expect_err(name);
        let text = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
        self.add(name, text.expect("a text").lines().next().unwrap_or_default());
    }

    fn print_and_check(&self) {
        let width = self.0.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, text) in &self.0 {
            println!("{name:<width$} | {text}");
        }
        for (name, text) in &self.0 {
            assert!(!text.is_empty() && text.trim() == text && !text.contains('\n'), "{name} is one line: {text:?}");
            assert!(!text.ends_with(['.', '!', ':', ';', ',']), "{name} ends without punctuation: {text}");
            let start = text.chars().next().expect("a text");
            assert!(!start.is_uppercase(), "{name} starts with a small letter: {text}");
            for word in text.split(|c: char| !c.is_alphanumeric() && c != '_') {
                assert!(!FORBIDDEN.contains(&word.to_lowercase().as_str()), "{name} contains `{word}`: {text}");
            }
        }
    }

    fn text(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(other, _)| other == name);
        found.map(|(_, text)| text.as_str()).expect("a text of this name")
    }
}

async fn idle(mut ctx: Context<u8>) -> Result<(), Exit> {
    ctx.receive().await.map(drop)
}

/// A receiver that refuses every message. The returned error contains another message than the refused message.
struct Liar;

impl Deliver for Liar {
    fn deliver(&self, mut envelope: Envelope) -> Result<(), SendError<Envelope>> {
        envelope.payload = Payload::new("another message");
        Err(SendError::new(SendErrorKind::Full, envelope))
    }
}

/// Adds the errors of refused messages. The messages are sent to a pid, to a name and to an address.
fn sends(table: &mut Table) {
    let rt = lone();
    let process = rt.process().mailbox_capacity(MailboxCapacity::Reject(1)).spawn(idle).unwrap();
    let gone = rt.spawn(idle);
    gone.abort();
    settle(&rt);
    table.error("SendError NoProcess, to a pid", rt.send(gone.pid(), 7_u8).unwrap_err());
    table.error("SendError NoProcess, to a name", rt.send("cache", 7_u8).unwrap_err());
    table.error("SendError WrongType", rt.send(process.pid(), "text").unwrap_err());
    process.send(1).unwrap();
    table.error("SendError Full", process.send(2).unwrap_err());
    let address = process.address();
    drop(rt);
    table.error("SendError ShutDown", address.send(3).unwrap_err());
    table.error("SendError, made by a `Deliver`", SendError::new(SendErrorKind::Full, 7_u8));
    for kind in [
        SendErrorKind::NoProcess,
        SendErrorKind::Full,
        SendErrorKind::WrongType { expected: "u64" },
        SendErrorKind::ShutDown,
        SendErrorKind::TagInUse,
        SendErrorKind::UnknownTag,
        SendErrorKind::Spent,
        SendErrorKind::TimedOut,
    ] {
        table.add(&format!("SendErrorKind {kind:?}"), kind);
    }
}

/// Adds the errors of refused answers to commands.
fn answers(table: &mut Table) {
    let shelf = Shelf::default();
    let rt = Runtime::builder().workers(0).handler(shelf.clone()).build().unwrap();
    let asks = rt.spawn(async |ctx: Context| ctx.perform(Ask(1)).await);
    settle(&rt);
    let (pid, tag) = shelf.take().into_tag();
    let answer = || Ok(Payload::new("text"));
    table.error("SendError WrongType, of an answer", rt.complete_yield(pid, tag, answer()).unwrap_err());
    rt.complete_yield(pid, tag, Ok(Payload::new(5_u64))).unwrap();
    table.error("SendError Spent", rt.complete_yield(pid, tag, answer()).unwrap_err());
    table.error("SendError UnknownTag", rt.complete_yield(pid, Tag::chosen(9), answer()).unwrap_err());
    assert_eq!(rt.block_on(asks).unwrap(), 5);
    table.error("SendError NoProcess, of an answer", rt.complete_yield(pid, tag, answer()).unwrap_err());
}

/// Adds the errors of refused spawns.
fn spawns(table: &mut Table) {
    let rt = Runtime::builder().workers(0).max_processes(1).build().unwrap();
    let first = rt.process().name("cache").mailbox_capacity(MailboxCapacity::Reject(1)).spawn(idle).unwrap();
    first.send(1).unwrap();
    table.error("SpawnError Limit", rt.process().spawn(idle).map(drop).unwrap_err());
    table.error("SpawnError NameTaken", rt.process().name("cache").spawn(idle).map(drop).unwrap_err());
    table.error("SpawnError MessageRefused", rt.process().name("cache").spawn_or_send(1, idle).unwrap_err());
    table.error("SpawnError NoParent", rt.process().link().spawn(idle).map(drop).unwrap_err());
    table.add("Exit Refused, of a handle", block_on(rt.spawn(idle)).unwrap_err());
    let host = rt.host().clone();
    drop(rt);
    table.error("SpawnError ShutDown", host.process().spawn(idle).map(drop).unwrap_err());
    for kind in [
        SpawnErrorKind::Limit(9),
        SpawnErrorKind::NameTaken(first.pid()),
        SpawnErrorKind::MessageRefused(SendErrorKind::Full),
        SpawnErrorKind::AlreadyPresent,
        SpawnErrorKind::SupervisorExiting,
        SpawnErrorKind::NoParent,
        SpawnErrorKind::ScopeOver,
        SpawnErrorKind::ShutDown,
        SpawnErrorKind::StartFailed(Exit::failed("no disk").into()),
    ] {
        table.add(&format!("SpawnErrorKind {}", format!("{kind:?}").split('(').next().unwrap()), kind);
    }
}

/// A hand-written process that makes mistakes that are only possible in a step. The process returns the errors that
/// these mistakes cause.
struct Steps;

impl Process for Steps {
    type Message = ();
    type Output = Vec<String>;

    fn step(&mut self, _: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<Vec<String>>, Exit> {
        struct Fails;
        impl Process for Fails {
            type Message = ();
            type Output = Vec<String>;
            fn init(&mut self, _: Start<'_>) -> Result<(), InitError> {
                Err("no disk".into())
            }
            fn step(&mut self, _: Events<'_, ()>, _: &mut StepOutput<'_, ()>) -> Result<Next<Vec<String>>, Exit> {
                Ok(Next::Wait)
            }
        }
        struct OtherOutput;
        impl Process for OtherOutput {
            type Message = ();
            type Output = u8;
            fn step(&mut self, _: Events<'_, ()>, _: &mut StepOutput<'_, ()>) -> Result<Next<u8>, Exit> {
                Ok(Next::Wait)
            }
        }
        let tag = Tag::chosen(7);
        out.perform_as(tag, Ask(1)).unwrap();
        let texts = vec![
            out.perform_as(tag, Ask(2)).unwrap_err().to_string(),
            out.upgrade(Fails, "", ()).unwrap_err().to_string(),
            out.upgrade(OtherOutput, "", ()).unwrap_err().to_string(),
        ];
        Ok(Next::Done(texts))
    }
}

fn steps(table: &mut Table) {
    let rt = lone();
    let texts = rt.block_on(rt.spawn_process(Steps)).unwrap();
    let names = ["SendError TagInUse", "SpawnError StartFailed", "SpawnError StartFailed, another output"];
    names.into_iter().zip(texts).for_each(|(name, text)| table.add(name, text));
}

/// Adds errors that the test can create without a process.
fn values(table: &mut Table, pid: Pid) {
    table.error("NoProcess", NoProcess(pid));
    table.error("NameError Taken", NameError::Taken { name: "cache".into(), holder: pid });
    table.error("NameError Exited", NameError::Exited { name: "cache".into(), pid });
    for text in ["7", "<7>", "<x.7.1>", "<1-0.7.1>", "<1.x.1>", "<1.7.0>"] {
        table.error(&format!("ParsePidError {text}"), text.parse::<Pid>().unwrap_err());
    }
    let unknown = |known| InitError::UnknownEntry { entry: "go".into(), known };
    table.error("InitError UnknownEntry, none", unknown(vec![]));
    table.error("InitError UnknownEntry", unknown(vec!["run", "stop"]));
    let wrong = InitError::WrongInput { entry: "go".into(), expected: "u16", found: "&str" };
    table.error("InitError WrongInput", wrong);
    table.error("InitError Failed", InitError::failed("no disk"));
    table.error("BuildError DuplicateHandler", BuildError::DuplicateHandler("app::Fetch".into()));
    table.error("BuildError TooManyWorkers", BuildError::TooManyWorkers { asked: 99, most: 48 });
    let invalid = Runtime::builder().thread_name("a\0b").build().map(drop).unwrap_err();
    table.error("BuildError Invalid", invalid);
    table.error("BuildError Io", BuildError::from(io::Error::other("no thread")));
    #[cfg(feature = "console")]
    {
        let (at, error) = (String::from("/run/app.sock"), io::Error::other("no disk"));
        table.error("BuildError Console", BuildError::Console { at, error });
    }
    table.error("LimitExceeded Steps", LimitExceeded::Steps(100));
    table.error("LimitExceeded Time", LimitExceeded::Time(Duration::from_millis(5)));
    let (child, last) = (String::from("cache"), Exit::failed("no disk"));
    let within = Duration::from_secs(5);
    let exceeded = SupervisorError::RestartIntensityExceeded { child: child.clone(), restarts: 3, within, last };
    table.error("SupervisorError RestartIntensityExceeded", exceeded);
    let exit = Exit::Refused(SpawnErrorKind::Limit(9));
    table.error("SupervisorError StartFailed", SupervisorError::StartFailed { child, exit });
}

fn exits_and_failures(table: &mut Table, pid: Pid) {
    let rt = Runtime::builder().workers(0).handle_blocking(|_: Ask| 1_u64).max_blocking_threads(0).build().unwrap();
    let panicked = rt.block_on(rt.spawn(async |_: Context| -> Result<(), Exit> { panic!("boom") })).unwrap_err();
    for (name, exit) in [
        ("Exit Normal", Exit::Normal),
        ("Exit InitFailed", Exit::from(InitError::failed("no disk"))),
        ("Exit Failed", Exit::failed("no disk")),
        ("Exit Panicked", panicked.clone()),
        ("Exit Cancelled", Exit::Cancelled(Reason::SHUTDOWN)),
        ("Exit Killed", Exit::Killed),
        ("Exit Linked", Exit::Linked { origin: pid, reason: Arc::new(panicked.clone()) }),
        ("Exit Refused", Exit::Refused(SpawnErrorKind::ShutDown)),
        ("Exit NoProcess", Exit::NoProcess),
        ("Exit NodeDown", Exit::NodeDown),
    ] {
        table.error(name, exit);
    }
    let shelf = Shelf::default();
    let panics = Runtime::builder().workers(0).handle(|_: Ask| -> u64 { panic!("boom") }).build().unwrap();
    let handler_panicked = panics.block_on(panics.spawn(async |ctx: Context| ctx.perform(Ask(1)).await)).unwrap_err();
    let refused = rt.block_on(rt.spawn(async |ctx: Context| ctx.perform(Ask(1)).await)).unwrap_err();
    let layer = layer::ConcurrencyLimit::new(shelf.clone(), 1).queue_capacity(0);
    let full = Runtime::builder().workers(0).handler(layer).build().unwrap();
    let full = full.block_on(full.spawn(async |ctx: Context| {
        let _first = ctx.perform(Ask(1)).start();
        ctx.perform(Ask(2)).await
    }));
    let failure = |exit: Exit| exit.error::<Failure>().expect("a failure").clone();
    for (name, failure) in [
        ("Failure NoHandler", Failure::NoHandler("app::Fetch".into())),
        ("Failure Abandoned", Failure::Abandoned),
        ("Failure TimedOut", Failure::TimedOut),
        ("Failure Cancelled", Failure::Cancelled),
        ("Failure Panicked", failure(handler_panicked)),
        ("Failure Outside", Failure::Outside),
        ("Failure Overloaded, by the pool", failure(refused)),
        ("Failure Overloaded, by a layer", failure(full.unwrap_err())),
        ("Failure ShutDown", Failure::ShutDown),
        ("Failure Error", Failure::from("no disk")),
    ] {
        table.error(name, failure);
    }
    for (name, error) in [
        ("CallError Send", CallError::Send(SendErrorKind::NoProcess)),
        ("CallError Send, full", CallError::Send(SendErrorKind::Full)),
        ("CallError Died", CallError::Died(panicked)),
        ("CallError Dropped", CallError::Dropped),
        ("CallError TimedOut", CallError::TimedOut),
    ] {
        table.error(name, error);
    }
}

/// Adds the errors of multi-calls with too few answers.
fn quorums(table: &mut Table) {
    let rt = lone();
    let server = async |mut ctx: Context<Reply<u8>>| ctx.receive().await.map(drop);
    let gone = [rt.spawn(server), rt.spawn(server)].map(|handle| {
        handle.abort();
        handle.address()
    });
    settle(&rt);
    let missed = rt.block_on(rt.multi_call(&gone, |reply| reply).first()).unwrap_err();
    table.error("CallError NoQuorum", missed);
    let missed = rt.block_on(rt.multi_call(&gone[..1], |reply| reply).first()).unwrap_err();
    table.error("CallError NoQuorum, of one process", missed);
    let missed = rt.block_on(rt.multi_call(&gone[..0], |reply| reply).first()).unwrap_err();
    table.error("CallError NoQuorum, of no process", missed);
}

/// Adds the error of a process that awaits its own join handle.
fn own_join(table: &mut Table) {
    let rt = lone();
    let slot = Arc::new(Mutex::new(None::<JoinHandle<()>>));
    let own = Arc::clone(&slot);
    let (results, result) = std::sync::mpsc::channel();
    let handle = rt.spawn(async move |_: Context| {
        let own = own.lock().unwrap().take().expect("the test has stored the handle");
        results.send(own.await.unwrap_err()).expect("the test receives the error");
    });
    // The runtime has no workers, so the process starts after the test has stored the handle.
    *slot.lock().unwrap() = Some(handle);
    settle(&rt);
    table.error("Exit Failed, of a process that joins itself", result.try_recv().expect("the join has failed"));
}

/// Adds the errors that the crate creates for sockets and signals. Two errors are missing, because no test can cause
/// them: the runtime has too many sockets (2^32 on a 64-bit system), and a `TcpSocket` has no IP address.
#[cfg(feature = "net")]
fn sockets(table: &mut Table) {
    use procession::net::{TcpListener, UdpSocket, lookup_host};

    let bind = || UdpSocket::bind("127.0.0.1:0");
    table.error("net: no runtime", block_on(bind()).unwrap_err());
    table.error("net: simulation", Simulation::new(1).run(bind()).unwrap_err());
    let rt = lone();
    table.error("net: invalid address", rt.block_on(lookup_host("localhost")).unwrap_err());
    table.error("net: no address", rt.block_on(lookup_host(Vec::<std::net::SocketAddr>::new())).unwrap_err());
    #[cfg(unix)]
    {
        use procession::signal::unix::{SignalKind, signal_in};
        let kind = SignalKind::from_raw(libc::SIGKILL);
        table.error("signal: forbidden", signal_in(&rt, kind).unwrap_err());
    }
    let socket = rt.block_on(bind()).unwrap();
    let host = rt.host().clone();
    drop(rt);
    table.error("net: new socket after the end", block_on(TcpListener::bind_in(&host, "127.0.0.1:0")).unwrap_err());
    table.error("net: lookup after the end", block_on(UdpSocket::bind_in(&host, "localhost:0")).unwrap_err());
    drop(host);
    table.error("net: socket after the end", block_on(socket.readable()).unwrap_err());
    table.error("net: lookup after the drop of the host", block_on(socket.connect("localhost:1")).unwrap_err());
}

/// Checks that the table has a row for each public type that implements `Error`. For an enum, the table must have a row
/// for each variant. `SendErrorKind` and `SpawnErrorKind` are enums that do not implement `Error`. An error that
/// contains one of these two enums uses the text of the enum.
fn each_public_error_has_a_row(table: &Table) {
    let mut expected = Vec::new();
    for item in include_str!("../public_api.txt").split("\n\n") {
        let Some((kind, path)) = item.lines().next().and_then(|line| line.split_once(' ')) else { continue };
        let name = path.rsplit("::").next().unwrap_or(path);
        if !item.contains(&format!(" Error for {name}")) && !["SendErrorKind", "SpawnErrorKind"].contains(&name) {
            continue;
        }
        if kind != "enum" {
            expected.push(name.to_owned());
            continue;
        }
        // In the list, each variant of an enum is indented by 8 spaces. The fields of a variant have a larger
        // indentation.
        let variants = item.lines().filter_map(|line| line.strip_prefix("        "));
        for variant in variants.filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase())) {
            let end = variant.find(|c: char| !c.is_alphanumeric()).unwrap_or(variant.len());
            expected.push(format!("{name} {}", &variant[..end]));
        }
    }
    assert!(expected.len() > 50, "the list of public items is not read: {expected:?}");
    let is_row = |name: &str, row: &str| {
        row.strip_prefix(name).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
    };
    expected.retain(|name| !table.0.iter().any(|(row, _)| is_row(name, row)));
    // The list of public items contains the items of all features.
    expected.retain(|name| cfg!(feature = "console") || name != "BuildError Console");
    assert!(expected.is_empty(), "these errors have no row in this file: {expected:?}");
}

/// A process that delegates its steps to `EntryPoints`, even after the body of the entry point has ended.
struct Delegates {
    delegates_init: bool,
    entries: EntryPoints<Payload, ()>,
}

impl Process for Delegates {
    type Message = Payload;
    type Output = ();

    fn init(&mut self, start: Start<'_>) -> Result<(), InitError> {
        if self.delegates_init { self.entries.init(start) } else { Ok(()) }
    }

    fn step(&mut self, events: Events<'_, Payload>, out: &mut StepOutput<'_, Payload>) -> Result<Next<()>, Exit> {
        self.entries.step(events, out).map(|_| Next::Again)
    }
}

/// Adds the messages of the documented panics to the table.
fn panics(table: &mut Table) {
    let rt = lone();
    for (name, result) in [
        ("panic: interval", rt.block_on(rt.spawn(async |ctx: Context| drop(ctx.interval(Duration::ZERO))))),
        (
            "panic: interval_at",
            rt.block_on(rt.spawn(async |ctx: Context| drop(ctx.interval_at(ctx.now(), Duration::ZERO)))),
        ),
        (
            "panic: Host::interval",
            rt.block_on(rt.spawn(async |ctx: Context| drop(ctx.host().interval(Duration::ZERO)))),
        ),
        (
            "panic: send_interval",
            rt.block_on(rt.spawn(async |ctx: Context| {
                ctx.send_interval(Duration::ZERO, ctx.pid(), ());
            })),
        ),
    ] {
        table.add(name, result.unwrap_err());
    }
    for (name, delegates_init) in
        [("panic: EntryPoints::step, before init", false), ("panic: EntryPoints::step, after the end", true)]
    {
        let process =
            Delegates { delegates_init, entries: EntryPoints::new().entry("only", async |_: Context, (): ()| {}) };
        table.add(name, rt.block_on(rt.execute(process, "only", ())).unwrap_err());
    }
    let full = rt.process().mailbox_capacity(MailboxCapacity::Reject(1)).spawn(idle).unwrap();
    let mut sink = full.address().sink();
    for message in 0..2 {
        Pin::new(&mut sink).start_send(message).unwrap();
    }
    table.panic("panic: start_send", || Pin::new(&mut sink).start_send(2));
    let pid = rt.attach(Liar).unwrap();
    table.panic("panic: deliver", || rt.send(pid, 7_u8));

    let mut handle = rt.spawn(async |_: Context| {});
    rt.block_on(&mut handle).unwrap();
    table.panic("panic: JoinHandle", || rt.block_on(&mut handle));

    let mut simulation = Simulation::new(1);
    let _waits = simulation.spawn(idle);
    table.panic("panic: Simulation::run", || simulation.run(pending::<()>()));
    let mut simulation = Simulation::new(1).deadlock_after(10);
    let _ticks = simulation.spawn(async |ctx: Context| -> Result<(), Exit> {
        loop {
            ctx.sleep(Duration::from_secs(1)).await;
        }
    });
    let _waits = simulation.spawn(async |_: Context| pending::<()>().await);
    table.panic("panic: Simulation::run, beside timers", || simulation.run(pending::<()>()));
    table.panic("panic: check", || check(3..4, async |_: Host| Err::<(), _>("no disk")));
    let mut runs = 0;
    let runs = std::cell::RefCell::new(&mut runs);
    table.panic("panic: check, not deterministic", || {
        check(3..4, async |host: Host| {
            **runs.borrow_mut() += 1;
            if **runs.borrow() == 2 {
                host.sleep(Duration::from_secs(1)).await;
            }
        });
    });
}

/// 11: each error and each documented panic has a message of one line. The message states the fault, the affected
/// process, and a remedy for the user.
#[test]
fn each_message_is_one_plain_line() {
    let mut table = Table::default();
    let rt = lone();
    let pid = rt.spawn(idle).pid();
    sends(&mut table);
    answers(&mut table);
    spawns(&mut table);
    steps(&mut table);
    values(&mut table, pid);
    exits_and_failures(&mut table, pid);
    quorums(&mut table);
    own_join(&mut table);
    #[cfg(feature = "net")]
    sockets(&mut table);
    panics(&mut table);
    table.print_and_check();
    each_public_error_has_a_row(&table);

    // A refusal contains the type of the value, and the process. The message of a panic contains the source location of
    // the panic.
    assert!(table.text("SendError Full").starts_with("message of type u8 to process <"));
    assert!(
        table.text("SendError NoProcess, to a name").starts_with("message of type u8 to process `cache` refused: ")
    );
    assert!(table.text("SendError TagInUse").contains("Ask of process <"));
    assert!(table.text("SpawnError Limit").contains("messages::idle refused: the process limit of 1"));
    for name in ["Exit Panicked", "Exit Linked", "Failure Panicked", "CallError Died", "panic: interval"] {
        let text = table.text(name);
        assert!(text.contains(&format!("panicked at {}:", file!())), "{name}: {text}");
    }
}

/// 2.6a: a second `start` of a call has no effect. A `start` of a multi-call that has already ended has no effect
/// either.
#[test]
fn a_second_start_of_a_call_has_no_effect() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let server = rt.spawn(async |mut ctx: Context<Reply<u64>>| {
        let mut count = 0;
        while let Ok(reply) = ctx.receive().await {
            count += 1;
            reply.send(count);
        }
    });
    assert_eq!(rt.block_on(server.call(|reply| reply).start().start()), Ok(1));
    let mut call = server.call(|reply| reply);
    assert!(futures::FutureExt::now_or_never(&mut call).is_none());
    assert_eq!(rt.block_on(call.start()), Ok(2));
    let address = server.address();
    rt.kill(server.pid()).unwrap();
    assert_eq!(rt.block_on(server), Err(Exit::Killed));
    let refused = address.call(|reply| reply).start().start();
    assert!(matches!(rt.block_on(refused), Err(CallError::Send(_))));
    let mut all = rt.multi_call(&[address.clone(), address], |reply| reply).first();
    assert!(rt.block_on(&mut all).is_err());
    drop(all.start());
}

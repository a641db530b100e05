//! Section 9.2 of the specification: for commands without an answer, `Host::explain` states their age and their
//! handler.

use std::future::pending;
use std::time::Duration;

use procession::observe::{Explanation, Finding};
use procession::*;

use crate::inspection::settle;
use crate::{step_aside, within};

/// Path of this module, as it appears in type names.
const HERE: &str = module_path!();

const SECOND: Duration = Duration::from_secs(1);

macro_rules! commands {
    ($($name:ident),*) => {$(
        struct $name;
        impl Command for $name {
            type Reply = ();
        }
    )*};
}
commands!(Kept, Closure, Future, Blocking, Items, Layered);

impl StreamCommand for Items {
    type Item = u8;
}

/// A handler that never answers.
struct Keeper;

impl Handler<Kept> for Keeper {
    fn handle(&self, _: Kept, completion: Completion<()>) {
        std::mem::forget(completion);
    }
}

/// For each finding about commands, returns the name of the command type, the number of commands, and the handler.
fn found(explanation: &Explanation) -> Vec<(&'static str, usize, Option<&'static str>)> {
    let row = |finding: &Finding| match finding {
        Finding::UnansweredCommands { commands, .. } => Some((commands.command, commands.count, commands.handler)),
        _ => None,
    };
    explanation.findings.iter().filter_map(row).collect()
}

/// 9.2g: the finding about commands without an answer names the type of the handler. For a closure, the name contains
/// the function that defines the closure.
#[test]
fn the_handler_of_an_unanswered_command_is_named() {
    within(60, || {
        let (open, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Mutex::new(wait);
        let rt = Runtime::builder()
            .workers(0)
            .handler(Keeper)
            .handler(|_: Closure, completion: Completion<()>| std::mem::forget(completion))
            .handle_async(async |_: Future| pending::<()>().await)
            .handle_blocking(move |_: Blocking| _ = wait.lock().unwrap().recv())
            .handle_stream(async |_: Items, _: StreamCompletion<Items>| pending::<Result<(), Failure>>().await)
            .handler(layer::ConcurrencyLimit::new(handler::future(async |_: Layered| pending::<()>().await), 1))
            .handler_named("named", |_: NamedCommand, completion: Completion<Payload>| std::mem::forget(completion))
            .build()
            .unwrap();
        drop(rt.spawn(async |ctx: Context| {
            let _items = futures::StreamExt::next(&mut ctx.stream(Items)).await;
        }));
        drop(rt.spawn(async |ctx: Context| _ = ctx.perform(Blocking).await));
        drop(rt.spawn(async |ctx: Context| {
            let (kept, closure, future) = (ctx.perform(Kept), ctx.perform(Closure), ctx.perform(Future));
            let (layered, named) = (ctx.perform(Layered), ctx.perform(NamedCommand::new("named")));
            _ = futures::join!(kept, closure, future, layered, named);
        }));
        settle(&rt);
        let explanation = rt.block_on(async { rt.explain() });
        let found = found(&explanation);
        let handler = |command: &str| {
            let row = found.iter().find(|row| row.0.rsplit("::").next() == Some(command));
            let (_, count, handler) = row.unwrap_or_else(|| panic!("{command} is missing: {explanation}"));
            assert_eq!(*count, 1, "{command}");
            *handler
        };
        // The open stream does not count as an unanswered command.
        assert_eq!(found.len(), 6, "{explanation}");
        assert_eq!(handler("Kept"), Some(&*format!("{HERE}::Keeper")));
        let test = "the_handler_of_an_unanswered_command_is_named";
        for command in ["Closure", "Future", "Blocking"] {
            let handler = handler(command).expect("it has a handler");
            assert!(handler.contains(&format!("{HERE}::{test}::")), "{command}: {handler}");
        }
        assert!(handler("Layered").unwrap().contains("ConcurrencyLimit<"));
        assert_eq!(handler("NamedCommand"), None, "the name selects the handler");
        drop(open);
    });
}

/// 9.2g: the finding contains the time at which the process of the oldest known command began to wait. The command has
/// had no answer since this time.
#[test]
fn an_unanswered_command_is_at_least_as_old_as_the_wait_of_its_process() {
    let mut simulation = Simulation::with_host(5, HostBuilder::new("").handler(Keeper)).unwrap();
    let host = simulation.host().clone();
    simulation.run(async {
        let begin = host.now();
        let age = || match &host.explain().findings[..] {
            [finding @ Finding::UnansweredCommands { commands, since, lasts, .. }] => {
                (commands.count, since.map(|since| since - begin), *lasts, finding.to_string())
            }
            findings => panic!("{findings:?}"),
        };
        host.sleep(SECOND).await;
        let old = host.spawn(async |ctx: Context| _ = ctx.perform(Kept).await);
        old.started().await.unwrap();
        host.sleep(2 * SECOND).await;
        let (count, since, lasts, text) = age();
        assert_eq!((count, since, lasts), (1, Some(SECOND), Some(2 * SECOND)));
        let expected = [
            format!("1 command {HERE}::Kept has no answer yet; it was performed at least 2s ago"),
            format!("  handler: {HERE}::Keeper"),
        ];
        assert_eq!(text.lines().take(2).collect::<Vec<_>>(), expected);
        // The commands of another process are younger. The finding contains the age of the oldest command.
        let young = host.spawn(async |ctx: Context| _ = ctx.perform(Kept).await);
        young.started().await.unwrap();
        host.sleep(SECOND).await;
        let (count, since, lasts, text) = age();
        assert_eq!((count, since, lasts), (2, Some(SECOND), Some(3 * SECOND)));
        let expected = format!("2 commands {HERE}::Kept have no answer yet; the oldest was performed at least 3s ago");
        assert_eq!(text.lines().next(), Some(&*expected));
        host.kill(old.pid()).unwrap();
        old.await.unwrap_err();
        assert_eq!(age().1, Some(3 * SECOND), "only the younger command is left");
        host.kill(young.pid()).unwrap();
        young.await.unwrap_err();
        assert_eq!(host.explain().findings, []);
    });
}

/// 9.2g: a cancelled command is never counted as a completion. Nevertheless, the command is not outstanding, and no
/// finding contains this command. Therefore the guide `troubleshooting` does not compare the counters `yields` and
/// `completions`.
#[test]
fn a_cancelled_command_is_not_outstanding() {
    let mut simulation = Simulation::with_host(5, HostBuilder::new("").handler(Keeper)).unwrap();
    let host = simulation.host().clone();
    simulation.run(async {
        let process = host.spawn(async |mut ctx: Context<()>| {
            ctx.timeout(SECOND, ctx.perform(Kept)).await.unwrap_err();
            let _command = ctx.perform(Kept).start();
            ctx.receive().await
        });
        let commands = || (host.metrics().processes.outstanding_yields, found(&host.explain()).len());
        process.started().await.unwrap();
        assert_eq!(commands(), (1, 1));
        host.sleep(2 * SECOND).await;
        let counters = host.counters();
        assert_eq!((counters.yields, counters.completions), (2, 0));
        assert_eq!(commands(), (1, 1), "only the second command has no answer yet");
        process.send(()).unwrap();
        process.await.unwrap();
        let counters = host.counters();
        assert_eq!((counters.yields, counters.completions, commands()), (2, 0, (0, 0)));
    });
}

/// 9.2g: if the process of a command does not wait, and the command is not measured, the age of the command is not
/// known.
#[test]
fn the_age_is_unknown_if_the_process_does_not_wait() {
    let rt = Runtime::builder().workers(0).handler(Keeper).build().unwrap();
    let busy = rt.spawn(async |ctx: Context| {
        let _command = ctx.perform(Kept).start();
        loop {
            ctx.yield_now().await;
        }
    });
    let pid = busy.pid();
    // A measured command has a known age. Usually, the first command of a new thread is not measured.
    let details = rt.block_on(async {
        step_aside().await;
        rt.process_details(pid).unwrap()
    });
    let explanation = rt.block_on(async { rt.explain() });
    let times = explanation.findings.iter().find_map(|finding| match finding {
        Finding::UnansweredCommands { commands, since, lasts, .. } => Some((commands.measured_since, *since, *lasts)),
        _ => None,
    });
    let (measured, since, lasts) = times.expect("the command has no answer");
    assert_eq!((since, lasts.is_some()), (measured, measured.is_some()));
    assert_eq!(details.yields[0].measured_since, measured);
    let text = explanation.to_string();
    assert_eq!(text.contains("performed at least"), measured.is_some(), "{text}");
    rt.kill(pid).unwrap();
}

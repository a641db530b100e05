//! Tests of faults that abort the whole program. Each fault runs in a child program.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::executor::block_on;
use futures::future::FutureExt;
use procession::*;

use crate::giver::{Give, Giver};
use crate::lives::{LONG, lone, settle};
use crate::subprocess::{Ran, again, role};

/// A value whose destructor panics, even if the thread is already unwinding.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the bomb explodes");
    }
}

/// A process whose step panics while a `Bomb` is on the stack of the step.
struct Careless;

impl Process for Careless {
    type Message = u64;
    type Output = ();
    fn step(&mut self, _: Events<'_, u64>, _: &mut StepOutput<'_, u64>) -> Result<Next<()>, Exit> {
        let _bomb = Bomb;
        panic!("the step fails");
    }
}

/// A body that panics while a `Bomb` is on its stack.
async fn careless(_: Context) {
    let _bomb = Bomb;
    panic!("the body fails");
}

/// A body that holds two values of the type `Bomb`.
async fn waits_with_two_bombs(_: Context) {
    let _bombs = (Bomb, Bomb);
    pending::<()>().await;
}

/// 4.8a: if a destructor panics while another panic unwinds, the program aborts. The message contains the pid and the
/// function or type of the process. The test starts several child programs. In the first two child programs, the
/// process panics on a guest thread. The process of the third program panics on a worker. The process of the fourth
/// program panics in a simulation. The fifth child program kills the process, and the sixth child program drops the
/// runtime.
#[test]
fn the_message_of_a_double_panic_names_the_process() {
    if let Some(role) = role() {
        // The program has installed a panic hook. This hook must still be called for every panic.
        let former = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            eprintln!("a hook of the user's");
            former(panic);
        }));
        let rt = lone();
        match &*role {
            "step" => rt.block_on(rt.spawn_process(Careless)).unwrap(),
            "body" => rt.block_on(rt.spawn(careless)).unwrap(),
            "worker" => {
                let rt = crate::two();
                block_on(rt.spawn(careless)).unwrap();
            }
            "simulation" => {
                let mut simulation = Simulation::new(1);
                let handle = simulation.spawn(careless);
                simulation.run(handle).unwrap();
            }
            "killed" => {
                let handle = rt.spawn(waits_with_two_bombs);
                settle(&rt);
                handle.abort();
                let _ = rt.block_on(handle);
            }
            "dropped" => {
                let _handle = rt.spawn(waits_with_two_bombs);
                settle(&rt);
                drop(rt);
            }
            other => unreachable!("{other}"),
        }
        return;
    }
    for (role, code) in [
        ("step", "Careless"),
        ("body", "careless"),
        ("worker", "careless"),
        ("simulation", "careless"),
        ("killed", "waits_with_two_bombs"),
        ("dropped", "waits_with_two_bombs"),
    ] {
        let ran = again(the_message_of_a_double_panic_names_the_process, role, 60);
        let line = ran.died().stderr.lines().find(|line| line.contains("aborts the program by this panic"));
        let line = line.unwrap_or_else(|| panic!("{role}: the process is not named: {ran:#?}"));
        let rest = line.strip_prefix("process <").unwrap_or_else(|| panic!("{role}: {line}"));
        let (pid, rest) = rest.split_once('>').unwrap_or_else(|| panic!("{role}: {line}"));
        assert!(pid.split('.').count() >= 3 && rest.contains(&format!("::{code})")), "{role}: {line}");
        assert!(ran.stderr.contains("a hook of the user's") && ran.stderr.contains("the bomb explodes"), "{ran:#?}");
        #[cfg(unix)]
        assert_eq!(ran.signal(), Some(6), "{role}: {ran:#?}");
    }
}

/// 4.8a: if a panic ends only the process that panics, the program prints the panic message and nothing about an abort.
#[test]
fn a_panic_of_one_process_prints_only_the_panic_message() {
    if role().is_some() {
        let rt = lone();
        let handle = rt.spawn(async |_: Context| -> () { panic!("the body fails") });
        assert!(matches!(rt.block_on(handle), Err(Exit::Panicked(_))));
        return;
    }
    let ran: Ran = again(a_panic_of_one_process_prints_only_the_panic_message, "", 60);
    assert!(ran.passed().stderr.contains("the body fails") && !ran.stderr.contains("aborts the program"), "{ran:#?}");
}

/// A hand-written process that first performs `asks` commands. Then the process reads one event, and either panics or
/// returns.
struct Asks {
    asks: usize,
    panics: bool,
}

impl Process for Asks {
    type Message = Bomb;
    type Output = ();
    fn step(&mut self, mut events: Events<'_, Bomb>, out: &mut StepOutput<'_, Bomb>) -> Result<Next<()>, Exit> {
        (0..std::mem::take(&mut self.asks)).for_each(|_| ignore(out.perform(Give::<Bomb>::me())));
        let Some(event) = events.next() else { return Ok(Next::Wait) };
        std::mem::forget(event);
        assert!(!self.panics, "the step fails");
        Ok(Next::Done(()))
    }
}

/// Sends three values of the type `Bomb` to an address.
fn three(to: &Address<Bomb>) {
    (0..3).for_each(|_| std::mem::forget(to.send(Bomb)));
}

/// Drops its argument, for example the result of a call.
fn ignore<T>(_: T) {}

type Place = fn(&Runtime, &Giver<Bomb>);

/// Lists the places where the runtime stores user values. Each entry of the list has a function that puts values into
/// one place and then makes the runtime drop these values.
const PLACES: [(&str, Place); 17] = [
    ("unread messages of a process that is killed", |rt, _| {
        let waits = rt.spawn(async |_: Context<Bomb>| pending::<()>().await);
        settle(rt);
        three(&waits);
        waits.abort();
    }),
    ("unread messages of a process that never began", |rt, _| {
        let waits = rt.spawn(async |_: Context<Bomb>| pending::<()>().await);
        three(&waits);
        waits.abort();
    }),
    ("unread messages of a body that returns", |rt, _| {
        let reads = rt.spawn(async |mut ctx: Context<Bomb>| ctx.receive().await.map(std::mem::forget));
        three(&reads);
    }),
    ("unread messages of a body that panics", |rt, _| {
        let reads = rt.spawn(async |mut ctx: Context<Bomb>| -> () {
            ctx.receive().await.map(std::mem::forget).unwrap();
            panic!("the body fails");
        });
        three(&reads);
    }),
    ("messages that were put aside by a body that panics", |rt, _| {
        let reads = rt.spawn(async |mut ctx: Context<Bomb>| -> () {
            for _ in 0..3 {
                let bomb = ctx.receive().await.unwrap();
                ctx.stash(bomb);
            }
            panic!("the body fails");
        });
        three(&reads);
    }),
    ("unread messages of a hand-written process", |rt, _| three(&rt.spawn_process(Asks { asks: 0, panics: false }))),
    ("unread messages of a step that panics", |rt, _| three(&rt.spawn_process(Asks { asks: 0, panics: true }))),
    ("messages of a mailbox outside", |rt, _| {
        let (to, mailbox) = rt.mailbox::<Bomb>();
        three(&to);
        let _ = catch_unwind(AssertUnwindSafe(|| drop(mailbox)));
    }),
    ("dead letters", |rt, _| {
        let letters = rt.dead_letters();
        let waits = rt.spawn(async |_: Context<Bomb>| pending::<()>().await);
        three(&waits);
        waits.abort();
        settle(rt);
        let _ = catch_unwind(AssertUnwindSafe(|| drop(letters)));
    }),
    ("unread answers of a process that is killed", |rt, giver| {
        let asks = rt.spawn_process(Asks { asks: 3, panics: false });
        settle(rt);
        giver.give(|| Bomb);
        asks.abort();
    }),
    ("unread answers of a process that ends", |rt, giver| {
        ignore(rt.spawn_process(Asks { asks: 3, panics: false }));
        settle(rt);
        giver.give(|| Bomb);
    }),
    ("unread answers of a step that panics", |rt, giver| {
        ignore(rt.spawn_process(Asks { asks: 3, panics: true }));
        settle(rt);
        giver.give(|| Bomb);
    }),
    ("answers in futures of a body that panics", |rt, giver| {
        let asks = rt.spawn(async |mut ctx: Context<()>| -> () {
            let mut performs = [ctx.perform(Give::<Bomb>::me()), ctx.perform(Give::me()), ctx.perform(Give::me())];
            performs.iter_mut().for_each(|perform| assert!(perform.now_or_never().is_none()));
            let _ = ctx.receive().await;
            panic!("the body fails");
        });
        settle(rt);
        giver.give(|| Bomb);
        let _ = asks.send(());
    }),
    ("timers of a process that ends", |rt, _| {
        let (to, _mailbox) = rt.mailbox::<Bomb>();
        ignore(rt.spawn(async move |ctx: Context| {
            (0..3).for_each(|_| ignore(ctx.send_after(LONG, &to, Bomb)));
            (0..3).for_each(|_| ignore(ctx.send_interval(LONG, &to, Bomb)));
        }));
    }),
    ("inherited values", |rt, _| {
        struct Other(#[allow(dead_code)] Bomb);
        let builder = rt.process().value(Bomb).value(Other(Bomb));
        drop(builder.spawn(async |_: Context| {}).map_err(|refused| refused.to_string()));
    }),
    ("results and states", |rt, _| {
        let both = Bomb;
        drop(rt.spawn(async move |_: Context| {
            let _both = both;
            Ok::<_, Exit>(Bomb)
        }));
        let waits = rt.spawn(async |_: Context| pending::<Result<Bomb, Exit>>().await);
        waits.abort();
    }),
    ("closures that are queued", |rt, _| {
        for _ in 0..3 {
            let bomb = Bomb;
            let blocking = rt.spawn_blocking(move || bomb);
            // If the result of `blocking` has already arrived, the drop of `blocking` drops the `Bomb`, which panics.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(blocking)));
        }
    }),
];

impl Clone for Bomb {
    fn clone(&self) -> Self {
        Self
    }
}

/// 4.8a, 11: values that panic when dropped never abort the program, because the runtime drops each value separately. A
/// place may contain many values that panic when dropped, and the process that owns these values may panic too. The
/// runtime may also be dropped while the runtime stores values that panic when dropped.
#[test]
fn panics_in_the_drops_of_values_do_not_abort_the_program() {
    if let Some(role) = role() {
        let (_, place) = PLACES[role.parse::<usize>().unwrap()];
        for emptied in [true, false] {
            let giver = Giver::<Bomb>::default();
            let rt = Runtime::builder().workers(0).handler(giver.clone()).build().unwrap();
            place(&rt, &giver);
            if emptied {
                settle(&rt);
            }
            assert_eq!(rt.block_on(rt.spawn(async |_: Context| Ok::<_, Exit>(1))).unwrap(), 1);
            drop(rt);
        }
        return;
    }
    let failed = |(n, (name, _)): (usize, &(&str, Place))| {
        let ran = again(panics_in_the_drops_of_values_do_not_abort_the_program, &n.to_string(), 60);
        (!ran.status.is_some_and(|status| status.success())).then(|| format!("{name}: {ran:#?}"))
    };
    let failed: Vec<_> = PLACES.iter().enumerate().filter_map(failed).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

//! Faults that end a whole program, each in a program of its own.

use std::future::pending;

use futures::executor::block_on;
use procession::*;

use crate::lives::{lone, settle};
use crate::subprocess::{Ran, again, role};

/// Panics when it is dropped, also while the thread unwinds.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the bomb explodes");
    }
}

/// A process whose step panics while it holds a bomb.
struct Careless;

impl Process for Careless {
    type Message = u64;
    type Output = ();
    fn step(&mut self, _: Events<'_, u64>, _: &mut StepOutput<'_, u64>) -> Result<Next<()>, Exit> {
        let _bomb = Bomb;
        panic!("the step fails");
    }
}

/// A body that panics while it holds a bomb.
async fn careless(_: Context) {
    let _bomb = Bomb;
    panic!("the body fails");
}

/// A body that holds two bombs.
async fn waits_with_two_bombs(_: Context) {
    let _bombs = (Bomb, Bomb);
    pending::<()>().await;
}

/// 4.8: a panic in a destructor that runs because of another panic aborts the program. The message names the process
/// and its code, wherever the process runs and also where it is dropped with its runtime.
#[test]
fn the_abort_by_a_double_panic_names_its_process() {
    if let Some(role) = role() {
        // The user's own hook still hears of every panic.
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
        let ran = again(the_abort_by_a_double_panic_names_its_process, role, 60);
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

/// 4.8: a panic that ends one process only is printed as without the runtime: no process is named as the one that aborts.
#[test]
fn a_single_panic_prints_nothing_more() {
    if role().is_some() {
        let rt = lone();
        let handle = rt.spawn(async |_: Context| -> () { panic!("the body fails") });
        assert!(matches!(rt.block_on(handle), Err(Exit::Panicked(_))));
        return;
    }
    let ran: Ran = again(a_single_panic_prints_nothing_more, "", 60);
    assert!(ran.passed().stderr.contains("the body fails") && !ran.stderr.contains("aborts the program"), "{ran:#?}");
}

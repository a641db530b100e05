//! Section 9.5 of the specification: the runtime stores a bounded list of the last abnormal exits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use procession::observe::ExitRecord;
use procession::*;

use crate::lives::settle;
use crate::{shut_down, within};

/// Path of this module, as it appears in type names.
const HERE: &str = module_path!();

async fn waits(mut ctx: Context<u64>) -> Result<(), Exit> {
    loop {
        ctx.receive().await?;
    }
}

async fn fails(_: Context) -> Result<(), &'static str> {
    Err("no luck")
}

/// Line of the panic in `panics`.
const PANIC_LINE: u32 = line!() + 4;

async fn panics(mut ctx: Context<u64>) -> Result<(), Exit> {
    ctx.receive().await?;
    panic!("at message 1");
}

fn builder() -> Builder {
    Runtime::builder().workers(0).on_crash(|_| ())
}

/// 9.5d: a record contains the pid, the name, the type, the parent, the exit with the location of a panic, the number
/// of unread messages, and the time.
#[test]
fn a_record_describes_the_exited_process() {
    let rt = builder().build().unwrap();
    let parent = rt.spawn(async |ctx: Context| {
        let child = ctx.process().name("child").spawn(panics).unwrap();
        (1..=3).for_each(|number| child.send(number).unwrap());
        ctx.sleep(Duration::from_secs(3600)).await;
    });
    let before = rt.now();
    settle(&rt);
    let [record] = &rt.last_exits()[..] else { panic!("{:?}", rt.last_exits()) };
    assert_eq!((record.name.as_deref(), record.type_name), (Some("child"), &*format!("{HERE}::panics")));
    assert_eq!((record.parent, record.mailbox_len), (Some(parent.pid()), 2));
    assert_eq!(record.exit, Exit::Panicked("at message 1".into()));
    assert_eq!(record.location(), Some(&*format!("{}:{PANIC_LINE}:5", file!())));
    assert!(before <= record.at && record.at <= rt.now());
    let start =
        format!("{} \"child\" {HERE}::panics panicked at {}:{PANIC_LINE}:5: at message 1 (", record.pid, file!());
    let text = record.to_string();
    assert!(text.starts_with(&start), "{text}");
    assert!(text.ends_with(&format!(" after the start, mailbox 2, parent {})", parent.pid())), "{text}");
}

/// 9.5d: the list contains each kind of abnormal exit in the order of the exits, and no normal exit.
#[test]
fn each_abnormal_exit_is_recorded_and_normal_exits_are_not_recorded() {
    let rt = builder().build().unwrap();
    rt.block_on(rt.spawn(async |_: Context| ())).unwrap();
    let killed = rt.spawn(waits);
    rt.kill(killed.pid()).unwrap();
    assert!(rt.block_on(killed).is_err());
    let cancelled = rt.spawn(waits);
    rt.cancel(cancelled.pid(), "enough", Duration::from_secs(9)).unwrap();
    assert!(rt.block_on(cancelled).is_err());
    assert!(rt.block_on(rt.spawn(fails)).is_err());
    let linked = rt.spawn(async |ctx: Context| {
        drop(ctx.spawn_link(fails));
        ctx.sleep(Duration::from_secs(3600)).await;
    });
    assert!(rt.block_on(linked).is_err());
    let exits: Vec<Exit> = rt.last_exits().into_iter().map(|record| record.exit).collect();
    let [one, two, three, four, five] = &exits[..] else { panic!("{exits:?}") };
    assert_eq!((one, two), (&Exit::Killed, &Exit::Cancelled("enough".into())));
    assert_eq!([three, four], [&Exit::failed("no luck"); 2]);
    assert!(matches!(five, Exit::Linked { reason, .. } if **reason == *four), "{five}");
}

/// 9.5d: when a new record arrives, a full list drops its oldest record. A list with the maximum length 0 stays empty.
#[test]
fn the_list_keeps_only_the_last_records() {
    for (capacity, kept) in [(0, &[][..]), (1, &["failed: 9"]), (3, &["failed: 7", "failed: 8", "failed: 9"])] {
        let rt = builder().exit_history(capacity).build().unwrap();
        for number in 0..10 {
            assert!(rt.block_on(rt.spawn(async move |_: Context| Err::<(), _>(number.to_string()))).is_err());
        }
        let texts: Vec<String> = rt.last_exits().iter().map(|record| record.exit.to_string()).collect();
        assert_eq!(texts, kept);
    }
    let rt = builder().build().unwrap();
    (0..100).for_each(|_| drop(rt.block_on(rt.spawn(fails))));
    assert_eq!(rt.last_exits().len(), 64);
}

/// 9.5d: the record exists before the join handle receives the exit, even if several workers run the processes.
#[test]
fn the_record_of_an_exit_exists_before_the_join_handle_resolves() {
    within(60, || {
        let rt = Runtime::builder().workers(2).exit_history(1_000).on_crash(|_| ()).build().unwrap();
        let processes: Vec<_> = (0..400).map(|_| rt.spawn(fails)).collect();
        for process in processes {
            let pid = process.pid();
            assert!(block_on(process).is_err());
            assert_eq!(rt.last_exits().iter().filter(|record| record.pid == pid).count(), 1);
        }
    });
}

/// 9.5d: a shutdown cancels and kills all processes. These exits are not recorded, so no older record is removed from
/// the list. A failure during the shutdown is recorded.
#[test]
fn exits_because_of_a_shutdown_are_not_recorded() {
    within(60, || {
        let rt = Runtime::builder().workers(1).on_crash(|_| ()).build().unwrap();
        let host = rt.host().clone();
        assert!(block_on(host.spawn(fails)).is_err());
        (0..200).for_each(|_| drop(host.spawn(waits)));
        let cleans_up = host.spawn(async |mut ctx: Context| ctx.receive().await.map_err(|_| "no clean-up"));
        block_on(cleans_up.started()).unwrap();
        shut_down(rt, Duration::from_secs(60));
        let exits: Vec<String> = host.last_exits().iter().map(|record| record.exit.to_string()).collect();
        assert_eq!(exits, ["failed: no luck", "failed: no clean-up"]);
    });
}

/// An error that counts its instances.
#[derive(Debug)]
struct Counted(#[expect(dead_code, reason = "only its count matters")] Arc<()>);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("counted")
    }
}

impl std::error::Error for Counted {}

/// 9.5d: a record contains the text of an error, but not the error itself.
#[test]
fn a_record_does_not_keep_the_error_alive() {
    let rt = builder().build().unwrap();
    let count = Arc::new(());
    let counted = Counted(Arc::clone(&count));
    let exit = rt.block_on(rt.spawn(async move |_: Context| Err::<(), _>(counted))).unwrap_err();
    assert!(exit.error::<Counted>().is_some());
    assert_eq!(rt.last_exits()[0].exit, exit);
    drop(exit);
    assert_eq!(rt.last_exits()[0].exit.to_string(), "failed: counted");
    assert_eq!(Arc::strong_count(&count), 1);
}

/// 9.5d, 10.1a: two runs of the same simulation with the same seed have equal records. The times of the records are
/// virtual.
#[test]
fn equal_simulations_have_equal_records() {
    let run = |seed| {
        let mut simulation = Simulation::new(seed);
        let host = simulation.host().clone();
        simulation.run(async move {
            let processes: Vec<_> = (0..20)
                .map(|number| {
                    host.spawn(async move |ctx: Context| {
                        ctx.sleep(Duration::from_millis(ctx.random() % 4)).await;
                        if number % 2 == 0 { Err(format!("failure {number}")) } else { Ok(()) }
                    })
                })
                .collect();
            for process in processes {
                let _ = process.await;
            }
            host.last_exits().iter().map(ExitRecord::to_string).collect::<Vec<_>>()
        })
    };
    let first = run(1);
    assert_eq!(first, run(1));
    assert_eq!(first.len(), 10);
    assert!(first[9].contains("ms after the start, mailbox 0)"), "{first:?}");
    assert!((2..9).any(|seed| run(seed) != first));
}

//! Standard traits of the public values: comparison, hashing, conversion and serialization.

use std::collections::HashSet;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use futures::future::FusedFuture;
use procession::observe::*;
use procession::*;

use crate::lives::{lone, settle};

async fn idle(mut ctx: Context<u8>) -> Result<(), Exit> {
    ctx.receive().await.map(drop)
}

/// 1.6a: two addresses of the same process are equal and have the same hash. A method of an address returns whether the
/// mailbox of the process is closed.
#[test]
fn two_addresses_of_the_same_process_are_equal() {
    let rt = lone();
    let (one, other) = (rt.spawn(idle), rt.spawn(idle));
    let found = rt.address::<u8>(one.pid()).expect("it lives");
    assert!(found == one.address() && found != other.address());
    let set: HashSet<_> = [one.address(), found.clone(), other.address()].into_iter().collect();
    assert_eq!(set.len(), 2);
    assert!(format!("{found:?}").contains(&one.pid().to_string()));
    settle(&rt);
    assert!(!found.is_closed());
    one.abort();
    settle(&rt);
    assert!(found.is_closed() && found.send(1).is_err() && !other.address().is_closed());
    drop(rt);
    assert!(other.address().is_closed());
}

/// 7.2a: an instant of a real clock converts to `std::time::Instant` and back. An instant of a virtual clock cannot be
/// converted.
#[test]
fn instants_convert_to_the_standard_library() {
    let rt = lone();
    let before = std::time::Instant::now();
    let now = rt.now();
    let std = rt.instant_to_std(now).expect("a real clock");
    assert_eq!(rt.instant_from_std(std), Some(now));
    let hour = Duration::from_secs(3_600);
    assert_eq!(rt.instant_to_std(now + hour), Some(std + hour));
    assert_eq!(rt.instant_from_std(std + hour), Some(now + hour));
    assert_eq!(rt.instant_from_std(std - 1_000 * hour), rt.instant_from_std(std - 2_000 * hour), "the start");
    assert_eq!(rt.instant_to_std(now + Duration::MAX), None, "never");
    // The converted instant may be earlier than `before`, but by at most one millisecond.
    assert!(std >= before - Duration::from_millis(1));
    check(0..1, async move |host: Host| {
        assert_eq!((host.instant_to_std(host.now()), host.instant_from_std(before)), (None, None));
    });
}

#[derive(Debug, Default)]
struct Counts {
    transitions: AtomicUsize,
    workers: AtomicUsize,
    panics: AtomicUsize,
    lives: AtomicUsize,
}

impl Observer for Counts {
    fn transition(&self, _: &Transition) {
        self.transitions.fetch_add(1, SeqCst);
    }

    fn worker(&self, _: usize, _: WorkerState, _: Instant) {
        self.workers.fetch_add(1, SeqCst);
    }

    fn started(&self, _: Pid, _: Option<&str>, _: &'static str) {
        self.lives.fetch_add(1, SeqCst);
    }

    fn ended(&self, _: Pid, _: Option<&str>, _: &'static str, _: &Exit) {
        self.lives.fetch_add(10, SeqCst);
    }

    fn panicked(&self, _: Pid, message: &str) {
        assert_eq!(message, "boom");
        self.panics.fetch_add(1, SeqCst);
    }
}

fn observed(observer: impl Observer) {
    let rt = Runtime::builder().workers(1).observer(observer).build().unwrap();
    assert!(futures::executor::block_on(rt.spawn(async |_: Context| -> Result<(), Exit> { panic!("boom") })).is_err());
}

/// 5.2a: an `Arc` of an observer, and a static reference to an observer, are observers too. Both forward all calls to
/// the inner observer.
#[test]
fn a_pointer_to_an_observer_is_an_observer() {
    static COUNTS: Counts = Counts {
        transitions: AtomicUsize::new(0),
        workers: AtomicUsize::new(0),
        panics: AtomicUsize::new(0),
        lives: AtomicUsize::new(0),
    };
    let shared = Arc::new(Counts::default());
    let dynamic: Arc<dyn Observer> = shared.clone();
    observed(shared.clone());
    observed(dynamic);
    observed(&COUNTS);
    for (counts, runs) in [(&*shared, 2), (&COUNTS, 1)] {
        assert_eq!((counts.panics.load(SeqCst), counts.lives.load(SeqCst)), (runs, 11 * runs));
        assert!(counts.transitions.load(SeqCst) >= 3 * runs && counts.workers.load(SeqCst) >= runs, "{counts:?}");
    }
}

/// 6.1a: two exits are equal if they have the same variant and the same value. Two failures are compared in the same
/// way. If exits or failures contain errors, the texts of the errors are compared. The method `source` of an exit or a
/// failure returns the error that the exit or the failure contains.
#[test]
fn exits_and_failures_can_be_compared_and_have_sources() {
    let rt = lone();
    let fails = |text: &'static str| rt.block_on(rt.spawn(async move |_: Context| Err::<(), _>(text))).unwrap_err();
    assert_eq!(fails("no disk"), Exit::failed(io::Error::other("no disk")));
    assert_ne!(fails("no disk"), fails("no tape"));
    assert_ne!(fails("no disk"), Exit::Panicked("no disk".into()));
    let panics = || rt.block_on(rt.spawn(async |_: Context| -> Result<(), Exit> { panic!("boom") })).unwrap_err();
    assert_eq!(panics(), Exit::Panicked("boom".into()));
    assert!(panics().panic_location().is_some_and(|location| location.starts_with(file!())));
    assert_eq!(Failure::from("no disk"), Failure::from(io::Error::other("no disk")));
    assert_ne!(Failure::TimedOut, Failure::Cancelled);
    for error in [&fails("no disk") as &dyn Error, &Failure::from("no disk")] {
        assert_eq!(error.source().map(ToString::to_string), Some("no disk".into()));
    }
}

/// 2.1a: a pid is serialized as its text in human-readable formats, and as four numbers in other formats.
#[cfg(feature = "serde")]
#[test]
fn a_pid_is_serialized_as_text_or_numbers() {
    use serde_test::{Configure, Token, assert_de_tokens_error, assert_tokens};

    let pid: Pid = "<1-9f3c.7.2>".parse().unwrap();
    assert_tokens(&pid.readable(), &[Token::Str("<1-9f3c.7.2>")]);
    let numbers = |incarnation, generation| {
        let numbers = [1, incarnation, 7, generation].map(Token::U32);
        [[Token::Tuple { len: 4 }].as_slice(), &numbers, &[Token::TupleEnd]].concat()
    };
    assert_tokens(&pid.compact(), &numbers(0x9f3c, 2));
    let wrong = "not a pid: it must have three parts, `<node.index.generation>`";
    assert_de_tokens_error::<serde_test::Readable<Pid>>(&[Token::Str("<1.7>")], wrong);
    let wrong = "not a pid: the generation must be a decimal number of 32 bits, and not 0";
    assert_de_tokens_error::<serde_test::Compact<Pid>>(&numbers(0x9f3c, 0), wrong);
    // In a simulation, a pid is serialized with the same numbers that the text of the pid contains. While the
    // simulation runs, these numbers convert back to the same pid.
    check(0..1, async |host: Host| {
        let pid = host.spawn(idle).pid();
        assert_tokens(
            &pid.compact(),
            &[
                Token::Tuple { len: 4 },
                Token::U32(0),
                Token::U32(0),
                Token::U32(pid.index()),
                Token::U32(pid.generation()),
                Token::TupleEnd,
            ],
        );
    });
}

/// 7.2a: the difference of an instant and a duration is an earlier instant. The difference is never before the start.
/// If the instant is *never*, the difference is *never* too.
#[test]
fn an_instant_minus_a_duration_is_an_earlier_instant() {
    let rt = lone();
    let second = Duration::from_secs(1);
    let start = rt.now() - Duration::MAX;
    assert_eq!((start.since_start(), start - second), (Duration::ZERO, start));
    let mut later = start + 3 * second;
    assert_eq!(later.since_start(), 3 * second);
    later -= second;
    assert_eq!((later, later - start), (start + 2 * second, 2 * second));
    let never = start + Duration::MAX;
    assert_eq!(never - second, never);
}

/// 1.6a: two recipients of the same process are equal and have the same hash.
#[test]
fn two_recipients_of_the_same_process_are_equal() {
    let rt = lone();
    let (one, other) = (rt.spawn(idle), rt.spawn(idle));
    let recipients: [Recipient<u8>; 3] = [one.recipient(), one.recipient(), other.recipient()];
    let set: HashSet<_> = recipients.iter().cloned().collect();
    assert_eq!((set.len(), set.contains(&one.recipient())), (2, true));
    assert!(!recipients[0].is_closed());
    one.kill();
    settle(&rt);
    assert!(recipients[0].is_closed() && !recipients[2].is_closed());
}

/// 2.5a: names of processes, names of groups and ids of children can be keys of a map, and implement `Display`.
#[test]
fn names_are_keys_of_a_map() {
    const NAME: Name<u8> = Name::new("one");
    const GROUP: Group<u8> = Group::new("one");
    let names: HashSet<_> = [NAME, Name::new("one"), Name::new("other")].into_iter().collect();
    let groups: HashSet<_> = [GROUP, Group::new("one"), Group::new("other")].into_iter().collect();
    assert_eq!((names.len(), groups.len(), GROUP.to_string()), (2, 2, String::from("one")));
    let rt = lone();
    let pid = rt.spawn(idle).pid();
    let children: HashSet<supervisor::ChildId> = [NAME.into(), String::from("one").into(), pid.into()].into();
    let mut texts: Vec<_> = children.iter().map(ToString::to_string).collect();
    texts.sort();
    assert_eq!(texts, [pid.to_string(), String::from("one")]);
}

/// 11: three kinds of values convert into an `Exit`: an error of this crate, a `&str` and a `String`.
#[test]
fn errors_and_texts_convert_into_an_exit() {
    fn build() -> Result<Runtime, Exit> {
        Ok(Runtime::builder().workers(1_000).build()?)
    }
    fn parse() -> Result<Pid, Exit> {
        Ok("no pid".parse::<Pid>()?)
    }
    assert!(build().unwrap_err().error::<BuildError>().is_some());
    assert!(parse().unwrap_err().error::<ParsePidError>().is_some());
    assert_eq!(Exit::from("broken").to_string(), Exit::from(String::from("broken")).to_string());
    assert!(Exit::from("broken").to_string().contains("broken"));
}

/// 6.2a, 6.2d: an address cancels and kills its process. After the exit, both calls have no effect.
#[test]
fn an_address_cancels_and_kills_its_process() {
    let rt = lone();
    let body = async |ctx: Context<u8>| -> Result<(), Exit> { Err(Exit::Cancelled(ctx.cancelled().await)) };
    let (cancelled, killed) = (rt.spawn(body), rt.spawn(body));
    let addresses = [cancelled.address(), killed.address()];
    addresses[0].cancel("enough", Duration::MAX);
    addresses[1].kill();
    assert_eq!(rt.block_on(cancelled).unwrap_err(), Exit::Cancelled("enough".into()));
    assert_eq!(rt.block_on(killed).unwrap_err(), Exit::Killed);
    for address in &addresses {
        address.cancel("late", Duration::ZERO);
        address.kill();
        assert_eq!(address.host().processes_alive(), 0);
    }
}

/// 6.5c: the future of a shutdown implements `FusedFuture`, so `select!` accepts this future. The future is terminated
/// after it has resolved.
#[test]
fn the_future_of_a_shutdown_ends() {
    let rt = lone();
    let mut shutdown = rt.host().shutdown(Duration::from_secs(1));
    assert!(!shutdown.is_terminated());
    assert!(rt.block_on(&mut shutdown).left.is_empty());
    assert!(shutdown.is_terminated());
}

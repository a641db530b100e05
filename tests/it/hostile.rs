//! Random programs misuse the public types in safe code. Wakers outlive their process. Futures of a process are polled
//! by other processes and by threads. The programs take results late or never, destructors panic, and values are
//! leaked. The destructor of each value checks that the value is dropped only once. At the end, the test checks that
//! every value was dropped. AddressSanitizer detects other memory errors.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context as Cx, Poll, Waker};
use std::thread;
use std::time::Duration;

use procession::future::*;
use procession::*;

use crate::{shut_down, within};

const WHOLE: u64 = 0x0123_4567_89ab_cdef;
/// Number of random actions of each thread.
const ACTIONS: usize = if cfg!(miri) { 60 } else { 1_500 };

/// The live values, each with the source location that created the value.
#[derive(Default)]
struct Books {
    made: AtomicU64,
    /// Number of drops of values that were already dropped. The destructor counts these drops and does not panic,
    /// because the runtime and the test catch panics.
    dropped_again: AtomicU64,
    live: Mutex<BTreeMap<u64, &'static Location<'static>>>,
}

/// A value that must be dropped exactly once. Some values panic in their destructor.
struct Value {
    number: u64,
    whole: Box<u64>,
    books: Arc<Books>,
    panics: bool,
}

impl Drop for Value {
    fn drop(&mut self) {
        let is_whole = std::mem::replace(&mut *self.whole, 0) == WHOLE;
        let was_live = self.books.live.lock().unwrap().remove(&self.number).is_some();
        if !is_whole || !was_live {
            self.books.dropped_again.fetch_add(1, SeqCst);
        }
        if self.panics && !thread::panicking() {
            panic!("in a destructor");
        }
    }
}

enum Msg {
    Value(Value),
    Ask(Reply<Value>),
    End,
}

struct Ask(#[expect(dead_code)] Value);

impl Command for Ask {
    type Reply = Value;
}

/// The objects that the programs exchange.
enum Thing {
    Future(Pin<Box<dyn Future<Output = ()> + Send>>),
    Waker(Waker),
    Reply(Reply<Value>),
    Completion(Completion<Value>),
    Mailbox(Mailbox<Msg>),
    Address(Address<Msg>),
    Me(SelfHandle<Msg>),
    Handle(JoinHandle<Value, Msg>),
}

/// Leaked objects. This list contains the leaked objects, so the objects stay reachable. Therefore a leak checker does
/// not report these objects.
static FORGOTTEN: Mutex<Vec<Thing>> = Mutex::new(Vec::new());

struct World {
    things: Mutex<Vec<Thing>>,
    books: Arc<Books>,
    forgets: bool,
    over: AtomicBool,
}

/// Random numbers from a seed.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 17
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }
}

impl World {
    #[track_caller]
    fn value(&self, chance: &mut Chance) -> Value {
        let number = self.books.made.fetch_add(1, SeqCst);
        self.books.live.lock().unwrap().insert(number, Location::caller());
        Value { number, whole: Box::new(WHOLE), books: self.books.clone(), panics: chance.below(40) == 0 }
    }

    /// Adds an object to the shared objects. If there are more than 150 shared objects, a random shared object is
    /// removed and dropped.
    fn put(&self, chance: &mut Chance, thing: Thing) {
        let mut things = self.things.lock().unwrap();
        things.push(thing);
        let one_too_many = (things.len() > 150).then(|| {
            let at = chance.below(things.len() as u64) as usize;
            things.swap_remove(at)
        });
        drop(things);
        drop(one_too_many);
    }

    fn future<F: Future<Output: Send> + Send + 'static>(&self, chance: &mut Chance, future: F) {
        let future = Box::pin(async move { drop(future.await) });
        self.put(chance, Thing::Future(future));
    }

    fn take(&self, chance: &mut Chance) -> Option<Thing> {
        let mut things = self.things.lock().unwrap();
        let count = things.len() as u64;
        (count > 0).then(|| things.swap_remove(chance.below(count) as usize))
    }

    fn take_waker(&self, chance: &mut Chance) -> Waker {
        let mut things = self.things.lock().unwrap();
        let wakers = things.iter().enumerate().filter(|(_, thing)| matches!(thing, Thing::Waker(_)));
        let wakers: Vec<_> = wakers.map(|(at, _)| at).collect();
        if wakers.is_empty() {
            return Waker::noop().clone();
        }
        let at = wakers[chance.below(wakers.len() as u64) as usize];
        match things.swap_remove(at) {
            Thing::Waker(waker) => waker,
            _ => unreachable!("only wakers were looked for"),
        }
    }
}

/// Commands of one process. In its turns, the process starts, polls, moves, shares and drops these commands.
#[derive(Default)]
struct Performs(Vec<Perform<Ask>>);

impl Performs {
    fn act(&mut self, world: &Arc<World>, chance: &mut Chance, cx: &mut Cx<'_>, me: &SelfHandle<Msg>) {
        for _ in 0..chance.below(3) {
            let perform = me.perform(Ask(world.value(chance)));
            self.0.push(if chance.below(2) == 0 { perform.start() } else { perform });
        }
        for _ in 0..chance.below(6) {
            let count = self.0.len() as u64;
            if count == 0 {
                return;
            }
            // This line may move a command future that was already polled.
            let mut perform = self.0.swap_remove(chance.below(count) as usize);
            let foreign = world.take_waker(chance);
            let polled = match chance.below(3) {
                0 => Pin::new(&mut perform).poll(&mut Cx::from_waker(&foreign)),
                _ => Pin::new(&mut perform).poll(cx),
            };
            match chance.below(12) {
                0 => world.future(chance, perform),
                1 => perform.detach(),
                2 if world.forgets => {
                    let forgotten = Box::pin(async move { drop(perform.await) });
                    FORGOTTEN.lock().unwrap().push(Thing::Future(forgotten));
                }
                3 => drop(perform),
                _ if polled.is_pending() => self.0.push(perform),
                _ => {}
            }
        }
    }
}

/// Body that waits for messages and shares its handles with the other programs.
async fn waits(ctx: Context<Msg>, world: Arc<World>, seed: u64) -> Result<Value, Exit> {
    let mut chance = Chance(seed);
    let (me, mut mailbox) = ctx.split();
    world.put(&mut chance, Thing::Me(me.clone()));
    if chance.below(8) == 0 {
        // The process gives its mailbox to the other programs. Without a mailbox, the process only performs random
        // actions.
        world.put(&mut chance, Thing::Mailbox(mailbox));
        for _ in 0..20 {
            poll_fn(|cx| act(&world, &mut chance, cx, Some(&me))).await;
            me.yield_now().await;
        }
        return Ok(world.value(&mut chance));
    }
    let mut performs = Performs::default();
    loop {
        poll_fn(|cx| {
            performs.act(&world, &mut chance, cx, &me);
            Poll::Ready(())
        })
        .await;
        if chance.below(30) == 0 {
            // After this line, other threads may poll these futures, even after this process has exited.
            std::mem::take(&mut performs).0.into_iter().for_each(|perform| world.future(&mut chance, perform));
        }
        match mailbox.receive().await? {
            Msg::Value(value) => drop(value),
            Msg::Ask(reply) => match chance.below(4) {
                0 => drop(reply),
                1 => world.put(&mut chance, Thing::Reply(reply)),
                _ => reply.send(world.value(&mut chance)),
            },
            Msg::End => {
                // The futures are dropped before the result is created. If a destructor panicked after the result was
                // created, the compiler would leak the result: see rust-lang/rust#47949.
                drop(std::mem::take(&mut performs));
                return Ok(world.value(&mut chance));
            }
        }
        poll_fn(|cx| act(&world, &mut chance, cx, Some(&me))).await;
        if chance.below(100) == 0 {
            panic!("by chance");
        }
    }
}

/// A hand-written process that leaves events unread, leaks the event iterator, and performs commands.
struct ByHand {
    world: Arc<World>,
    chance: Chance,
}

impl Process for ByHand {
    type Message = Msg;
    type Output = Value;
    fn step(&mut self, mut events: Events<'_, Msg>, out: &mut StepOutput<'_, Msg>) -> Result<Next<Value>, Exit> {
        let Self { world, chance } = self;
        for _ in 0..chance.below(4) {
            let _ = out.perform(Ask(world.value(chance)));
        }
        for _ in 0..chance.below(3) {
            match events.next() {
                Some(Event::Message(Msg::Ask(reply))) => world.put(chance, Thing::Reply(reply)),
                Some(Event::Message(Msg::End)) => return Ok(Next::Done(world.value(chance))),
                Some(event) => drop(event),
                None => break,
            }
        }
        if chance.below(3) == 0 {
            std::mem::forget(events);
        }
        match chance.below(60) {
            0 => Ok(Next::Done(world.value(chance))),
            1 => Err(Exit::Killed),
            2 => panic!("by chance"),
            3..10 => Ok(Next::Again),
            _ => Ok(Next::Wait),
        }
    }
}

/// Uses an object that was taken from the shared objects.
fn use_thing(world: &Arc<World>, chance: &mut Chance, cx: &mut Cx<'_>, thing: Thing) {
    let kept = match thing {
        Thing::Future(mut future) => {
            let foreign = world.take_waker(chance);
            let own = chance.below(2) == 0;
            let polled =
                if own { future.as_mut().poll(cx) } else { future.as_mut().poll(&mut Cx::from_waker(&foreign)) };
            (polled.is_pending() && chance.below(4) != 0).then_some(Thing::Future(future))
        }
        Thing::Waker(waker) => {
            let copies = (waker.clone(), waker.clone());
            copies.0.wake();
            copies.1.wake_by_ref();
            (chance.below(3) != 0).then_some(Thing::Waker(waker))
        }
        Thing::Reply(reply) => {
            if chance.below(2) == 0 {
                reply.send(world.value(chance));
            }
            None
        }
        Thing::Completion(completion) => {
            match chance.below(4) {
                0 => completion.complete(world.value(chance)),
                1 => completion.fail("by chance"),
                2 => {
                    let host = completion.host().clone();
                    let (pid, tag) = completion.into_tag();
                    let _ = host.complete_yield(pid, tag, Ok(Payload::new(world.value(chance))));
                    drop(host.complete_yield(pid, tag, Ok(Payload::new(world.value(chance)))));
                }
                _ => drop(completion),
            }
            None
        }
        Thing::Mailbox(mut mailbox) => {
            let _ = Pin::new(&mut mailbox.receive()).poll(cx);
            drop(mailbox.try_receive());
            (chance.below(8) != 0).then_some(Thing::Mailbox(mailbox))
        }
        Thing::Address(to) => {
            match chance.below(6) {
                0 => drop(to.send(Msg::End)),
                1 => world.future(chance, to.send_wait(Msg::End)),
                2 => world.future(chance, to.exited()),
                3 => world.future(chance, to.call(Msg::Ask)),
                _ => drop(to.send(Msg::Value(world.value(chance)))),
            }
            Some(Thing::Address(to))
        }
        Thing::Me(me) => {
            begin(world, chance, &me);
            (chance.below(6) != 0).then_some(Thing::Me(me))
        }
        Thing::Handle(mut handle) => {
            if chance.below(12) == 0 {
                handle.abort();
            }
            let _ = Pin::new(&mut handle).poll(cx).map(drop);
            (chance.below(3) != 0).then_some(Thing::Handle(handle))
        }
    };
    if let Some(kept) = kept {
        world.put(chance, kept);
    }
}

/// Starts an operation of a process. The process may run on another thread, or may have exited.
fn begin(world: &Arc<World>, chance: &mut Chance, me: &SelfHandle<Msg>) {
    let time = Duration::from_micros(chance.below(300));
    match chance.below(9) {
        0 => {
            let perform = me.perform(Ask(world.value(chance)));
            world.future(chance, perform);
        }
        1 => {
            let perform = me.perform(Ask(world.value(chance))).start();
            world.future(chance, perform);
        }
        2 => me.perform(Ask(world.value(chance))).detach(),
        3 => world.future(chance, me.sleep(time)),
        4 => {
            me.send_after(time, me.pid(), Msg::Value(world.value(chance)));
        }
        5 => world.future(chance, me.call(me.pid(), Msg::Ask).timeout(time)),
        6 => world.future(chance, me.cancelled()),
        7 => {
            let value = world.value(chance);
            world.future(chance, me.host().spawn_blocking(move || value));
        }
        _ => {
            let perform = me.timeout(time, me.perform(Ask(world.value(chance))));
            world.future(chance, perform);
        }
    }
}

/// Spawns processes or creates mailboxes.
fn spawn(world: &Arc<World>, chance: &mut Chance, host: &Host) {
    let body = |chance: &mut Chance| {
        let (world, seed) = (world.clone(), chance.next());
        move |ctx: Context<Msg>| waits(ctx, world, seed)
    };
    match chance.below(5) {
        0 => {
            let (world_of, seed) = (world.clone(), chance.next());
            let handle = host.spawn_process(ByHand { world: world_of, chance: Chance(seed) });
            world.put(chance, Thing::Address(handle.address()));
            world.put(chance, Thing::Handle(handle));
        }
        1 => {
            // The program uses some handles of the batch. The iterator drops the remaining handles.
            let bodies: Vec<_> = (0..3).map(|_| body(chance)).collect();
            let mut handles = host.spawn_batch(bodies).into_iter();
            for handle in handles.by_ref().take(chance.below(4) as usize).flatten() {
                world.put(chance, Thing::Address(handle.address()));
            }
        }
        2 => {
            let (to, mailbox) = host.mailbox::<Msg>();
            world.put(chance, Thing::Address(to));
            world.put(chance, Thing::Mailbox(mailbox));
        }
        3 => {
            let bound = MailboxCapacity::DropOldest(1 + chance.below(3) as usize);
            if let Ok(handle) = host.process().mailbox_capacity(bound).spawn(body(chance)) {
                world.put(chance, Thing::Address(handle.address()));
                world.future(chance, handle.started());
                world.put(chance, Thing::Handle(handle));
            }
        }
        _ => {
            let handle = host.spawn(body(chance));
            world.put(chance, Thing::Address(handle.address()));
            world.put(chance, Thing::Handle(handle));
        }
    }
}

/// Performs one random action.
fn act(world: &Arc<World>, chance: &mut Chance, cx: &mut Cx<'_>, me: Option<&SelfHandle<Msg>>) -> Poll<()> {
    if world.over.load(SeqCst) {
        return Poll::Ready(());
    }
    match chance.below(10) {
        0 => world.put(chance, Thing::Waker(cx.waker().clone())),
        1 => drop(world.take(chance)),
        2 if world.forgets => FORGOTTEN.lock().unwrap().extend(world.take(chance)),
        3 | 4 if me.is_some() => begin(world, chance, me.unwrap()),
        _ => {
            if let Some(thing) = world.take(chance) {
                use_thing(world, chance, cx, thing);
            }
        }
    }
    Poll::Ready(())
}

/// Runs a runtime and two threads that are not its workers. These threads perform random actions on the runtime.
fn runs(seed: u64, workers: usize, forgets: bool) {
    let books = Arc::new(Books::default());
    let world =
        Arc::new(World { things: Mutex::default(), books: books.clone(), forgets, over: AtomicBool::new(false) });
    let (known, seeds) = (world.clone(), AtomicU64::new(seed));
    let rt = Runtime::builder().workers(workers).max_blocking_threads(2);
    let rt = rt.handler(move |ask: Ask, completion: Completion<Value>| {
        let mut chance = Chance(seeds.fetch_add(1, SeqCst));
        drop(ask);
        match chance.below(3) {
            0 => completion.complete(known.value(&mut chance)),
            _ => known.put(&mut chance, Thing::Completion(completion)),
        }
    });
    let rt = rt.build().unwrap();
    // The program never gets the address of this process.
    let echo = rt.spawn(async |mut ctx: Context<Reply<u64>>| -> Result<(), Exit> {
        loop {
            ctx.receive().await?.send(7);
        }
    });
    thread::scope(|threads| {
        for n in 0..2 {
            let (world, host, rt) = (&world, rt.host(), &rt);
            threads.spawn(move || {
                let mut chance = Chance(seed ^ (n + 1) << 32);
                for _ in 0..ACTIONS {
                    let turn = AssertUnwindSafe(|| {
                        if chance.below(6) == 0 {
                            spawn(world, &mut chance, host);
                        }
                        let act = poll_fn(|cx| act(world, &mut chance, cx, None));
                        if n == 0 { rt.block_on(act) } else { futures::executor::block_on(act) }
                    });
                    let _ = catch_unwind(turn);
                }
            });
        }
    });
    assert_eq!(rt.block_on(echo.call(|reply| reply)).expect("the process lives"), 7);
    // Some objects are dropped before the runtime. Some objects are dropped together with the runtime, and some objects
    // are dropped after the runtime.
    let mut chance = Chance(seed);
    let all = |world: &World| {
        while let Some(thing) = world.take(&mut Chance(seed)) {
            let _ = catch_unwind(AssertUnwindSafe(|| drop(thing)));
        }
    };
    if chance.below(2) == 0 {
        all(&world);
    }
    world.over.store(true, SeqCst);
    if chance.below(2) == 0 {
        // The grace period is short, because some processes ignore the cancellation.
        let _ = shut_down(rt, Duration::from_millis(50));
    } else {
        drop(rt);
    }
    let mut cx = Cx::from_waker(Waker::noop());
    for _ in 0..100 {
        let turn =
            AssertUnwindSafe(|| world.take(&mut chance).map(|thing| use_thing(&world, &mut chance, &mut cx, thing)));
        let _ = catch_unwind(turn);
    }
    all(&world);
    // The blocking pool may still run a closure that owns a value, so the test waits for this closure.
    let begun = std::time::Instant::now();
    while !forgets && !books.live.lock().unwrap().is_empty() {
        let late = begun.elapsed() > Duration::from_secs(20) * crate::patience();
        assert!(!late, "never dropped, by where they were made: {:?}", books.live.lock().unwrap());
        thread::yield_now();
    }
    assert_eq!(books.dropped_again.load(SeqCst), 0, "values that were dropped twice");
}

fn seeds() -> u64 {
    std::env::var("HOSTILE_SEEDS").map_or(if cfg!(miri) { 1 } else { 4 }, |seeds| seeds.parse().expect("a number"))
}

/// 11: for any use of the public types, each value is dropped once. When the runtime and all its objects are dropped,
/// no value is left.
#[test]
fn random_programs_drop_every_value_once() {
    within(60 + 10 * seeds(), || {
        for seed in 0..seeds() {
            println!("seed {seed}");
            runs(seed, seed as usize % 3, false);
        }
    });
}

/// 11: some programs leak values. Other processes nevertheless continue to work.
#[test]
fn random_programs_that_leak_values_still_end() {
    within(60 + 10 * seeds(), || {
        for seed in 0..seeds() {
            println!("seed {seed}");
            runs(seed, seed as usize % 3, true);
        }
    });
}

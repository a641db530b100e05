//! The runtime calls user code: `Hash` and `Clone` implementations, key functions of pools, and the functions of wakers.
//! In these tests, user code panics or blocks. The panic may reach the code that has called the runtime. The runtime and
//! all other processes continue to work.

#![allow(unsafe_code)]

use std::future::{pending, poll_fn};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::ptr::null;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context as Cx, Poll, RawWaker, RawWakerVTable, Waker};
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use procession::*;

use crate::{shut_down, two, within};

/// A message whose `Clone` panics if its flag is set.
#[derive(Debug)]
struct Sensitive(bool, Arc<()>);

impl Clone for Sensitive {
    fn clone(&self) -> Self {
        assert!(!self.0, "in a clone");
        Self(false, self.1.clone())
    }
}

/// A key whose `Hash` panics if its flag is set.
struct SensitiveKey(bool);

impl Hash for SensitiveKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        assert!(!self.0, "in a hash");
        state.write_u8(1);
    }
}

/// 11: if the `Clone` of a message panics in a broadcast, the sender panics. If the `Clone` panics in a repeating
/// timer, the timer ends.
#[test]
fn a_panic_in_the_clone_of_a_message_affects_only_the_sender() {
    within(30, || {
        let rt = two();
        let (told, hears) = mpsc::channel();
        let member = rt.spawn(async move |mut ctx: Context<Sensitive>| -> Result<(), Exit> {
            ctx.join_group("group");
            loop {
                let _ = told.send((*ctx).clone());
                ctx.receive().await?;
            }
        });
        let me = hears.recv().unwrap();
        let token = Arc::new(());
        let host = rt.host().clone();
        let broadcast = |panics| host.broadcast("group", Sensitive(panics, token.clone()));
        assert!(catch_unwind(AssertUnwindSafe(|| broadcast(true))).is_err());
        assert_eq!(broadcast(false), 1);
        hears.recv().unwrap();
        let message = Sensitive(true, token.clone());
        let inside = rt.spawn(async |ctx: Context| Ok::<_, Exit>(ctx.host().broadcast("group", message)));
        assert!(matches!(block_on(inside), Err(Exit::Panicked(_))));
        me.send_interval(Duration::from_micros(1), me.pid(), Sensitive(true, token.clone()));
        // The timer ends when the clone of its message panics. Then the timer drops the message.
        while Arc::strong_count(&token) > 1 {
            thread::yield_now();
        }
        let timer = me.send_interval(Duration::from_micros(1), me.pid(), Sensitive(false, token.clone()));
        hears.recv().unwrap();
        assert!(me.cancel_timer(timer).is_some());
        member.abort();
        assert!(matches!(block_on(member), Err(Exit::Killed)));
    });
}

/// 11: if the key function of a pool panics for a message, or if the `Hash` of the key panics, the sender of this
/// message panics. The pool continues to work.
#[test]
fn a_panic_in_the_key_function_or_in_the_hash_of_a_key_affects_only_the_sender() {
    /// Which code panics for a message.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Panics {
        Nothing,
        KeyFunction,
        Hash,
    }
    within(30, || {
        let rt = two();
        let (told, hears) = mpsc::channel();
        let member = move |mut ctx: Context<Panics>| {
            let told = told.clone();
            async move {
                loop {
                    ctx.receive().await?;
                    let _ = told.send(());
                }
                #[expect(unreachable_code)]
                Ok::<(), Exit>(())
            }
        };
        let pool = rt.spawn_pool(Pool::new(2, member).by_key(|message: &Panics| {
            assert_ne!(*message, Panics::KeyFunction, "in the key function");
            SensitiveKey(*message == Panics::Hash)
        }));
        // Before the pool has started, messages wait in the queue of the pool. If the key function panics for a waiting
        // message in the process of the pool, the pool ends.
        block_on(pool.started()).unwrap();
        pool.send(Panics::Nothing).unwrap();
        hears.recv().unwrap();
        for (panics, text) in [(Panics::KeyFunction, "in the key function"), (Panics::Hash, "in a hash")] {
            assert!(catch_unwind(AssertUnwindSafe(|| pool.send(panics))).is_err());
            let to = pool.address();
            let inside = rt.spawn(async move |_: Context| to.send(panics));
            let Err(Exit::Panicked(reason)) = block_on(inside) else { panic!("the sender panics") };
            assert!(reason.as_str().contains(text), "{reason}");
            pool.send(Panics::Nothing).unwrap();
            hears.recv().unwrap();
        }
    });
}

static CLONE_PANICS: AtomicBool = AtomicBool::new(false);
static DROP_PANICS: AtomicBool = AtomicBool::new(false);
static DROPS: AtomicUsize = AtomicUsize::new(0);

/// Returns a waker without data. The `clone` and the `drop` of this waker panic while the flags are set.
fn panicking_waker() -> Waker {
    fn clone(_: *const ()) -> RawWaker {
        assert!(!CLONE_PANICS.load(SeqCst), "in the clone of a waker");
        RawWaker::new(null(), &MOODY)
    }
    fn drop(_: *const ()) {
        DROPS.fetch_add(1, SeqCst);
        assert!(!DROP_PANICS.load(SeqCst) || thread::panicking(), "in the drop of a waker");
    }
    static MOODY: RawWakerVTable = RawWakerVTable::new(clone, |_| {}, |_| {}, drop);
    // SAFETY: `Waker::from_raw` requires that the vtable upholds the contract of `RawWakerVTable`. The functions never
    // read the data pointer, so null is valid. The functions touch only atomic statics, so the functions are
    // thread-safe. `clone` returns a waker with the same vtable, and there is no resource to release.
    unsafe { Waker::from_raw(RawWaker::new(null(), &MOODY)) }
}

/// Function for the wakers that [`slow_waker`] returns. The next `clone` or wake-up of a waker from [`slow_waker`]
/// calls this function.
static SLOW: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);

/// Returns a waker without data. The `clone` and the wake-up of this waker call the function in [`SLOW`].
fn slow_waker() -> Waker {
    fn clone(at: *const ()) -> RawWaker {
        wake(at);
        RawWaker::new(null(), &SLOW_WAKER)
    }
    fn wake(_: *const ()) {
        let slow = SLOW.lock().unwrap().take();
        slow.into_iter().for_each(|slow| slow());
    }
    static SLOW_WAKER: RawWakerVTable = RawWakerVTable::new(clone, wake, wake, |_| {});
    // SAFETY: `Waker::from_raw` requires that the vtable upholds the contract of `RawWakerVTable`. The functions never
    // read the data pointer, so null is valid. The functions touch only a static behind a lock, so the functions are
    // thread-safe. `clone` returns a waker with the same vtable, and there is no resource to release.
    unsafe { Waker::from_raw(RawWaker::new(null(), &SLOW_WAKER)) }
}

static GUEST_DROP_PANICS: AtomicBool = AtomicBool::new(false);
static GUEST_DROPS: AtomicUsize = AtomicUsize::new(0);

/// Returns a waker without data. The `drop` of this waker panics while the flag [`GUEST_DROP_PANICS`] is set.
fn guest_waker() -> Waker {
    fn clone(_: *const ()) -> RawWaker {
        RawWaker::new(null(), &GUEST_WAKER)
    }
    fn drop(_: *const ()) {
        if GUEST_DROP_PANICS.load(SeqCst) && !thread::panicking() {
            GUEST_DROPS.fetch_add(1, SeqCst);
            panic!("in the drop of a waker");
        }
    }
    static GUEST_WAKER: RawWakerVTable = RawWakerVTable::new(clone, |_| {}, |_| {}, drop);
    // SAFETY: `Waker::from_raw` requires that the vtable upholds the contract of `RawWakerVTable`. The functions never
    // read the data pointer, so null is valid. The functions touch only an atomic static, so the functions are
    // thread-safe. `clone` returns a waker with the same vtable, and there is no resource to release.
    unsafe { Waker::from_raw(RawWaker::new(null(), &GUEST_WAKER)) }
}

/// 8.1e, 11: if the `drop` of an executor's waker panics, a dropped guest still leaves its slot.
#[test]
fn a_guest_leaves_its_slot_although_the_drop_of_its_waker_panics() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let waker = guest_waker();
        for _ in 0..200 {
            let mut guest = Box::pin(rt.run(pending::<()>()));
            assert!(guest.as_mut().poll(&mut Cx::from_waker(&waker)).is_pending());
            GUEST_DROP_PANICS.store(true, SeqCst);
            let _ = catch_unwind(AssertUnwindSafe(|| drop(guest)));
            GUEST_DROP_PANICS.store(false, SeqCst);
        }
        assert!(GUEST_DROPS.load(SeqCst) >= 200, "each guest drops a waker");
        rt.block_on(rt.spawn(async |_: Context| ())).unwrap();
    });
}

/// 11: `clone` and `wake` of an executor's waker may block until the executor has polled the guest again.
#[test]
fn an_executor_waker_may_block_until_the_guest_is_polled() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let (own_waker, own_wakers) = mpsc::channel();
        let mut guest = pin!(rt.run(poll_fn(|cx| {
            own_waker.send(cx.waker().clone()).unwrap();
            Poll::<()>::Pending
        })));
        assert!(guest.as_mut().poll(&mut Cx::from_waker(&slow_waker())).is_pending());
        let (blocks, is_blocked) = mpsc::channel();
        let (polled, is_polled) = mpsc::channel::<()>();
        *SLOW.lock().unwrap() = Some(Box::new(move || {
            blocks.send(()).unwrap();
            is_polled.recv().unwrap();
        }));
        let own = own_wakers.recv().unwrap();
        let waking = thread::spawn(move || own.wake());
        is_blocked.recv().unwrap();
        assert!(guest.as_mut().poll(&mut Cx::from_waker(Waker::noop())).is_pending());
        polled.send(()).unwrap();
        waking.join().unwrap();
    });
}

/// Returns a waker without data. The `clone` of this waker always panics.
fn unclonable_waker() -> Waker {
    fn clone(_: *const ()) -> RawWaker {
        panic!("in the clone of a waker")
    }
    static UNCLONABLE: RawWakerVTable = RawWakerVTable::new(clone, |_| {}, |_| {}, |_| {});
    // SAFETY: `Waker::from_raw` requires that the vtable upholds the contract of `RawWakerVTable`. The functions never
    // read the data pointer, so null is valid. The functions touch no data, so the functions are thread-safe. `clone`
    // never returns, and there is no resource to release.
    unsafe { Waker::from_raw(RawWaker::new(null(), &UNCLONABLE)) }
}

/// 9.2b, 11: a process polls a sleep with a waker whose `clone` panics, and catches the panic. The sleep has set no
/// timer, so the row of the process does not count the sleep as a wait.
#[test]
fn a_sleep_whose_waker_cannot_be_cloned_is_not_counted() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let process = rt.spawn(async |ctx: Context<()>| {
        let mut sleep = ctx.sleep(Duration::from_secs(600));
        let waker = unclonable_waker();
        let poll = AssertUnwindSafe(|| Pin::new(&mut sleep).poll(&mut Cx::from_waker(&waker)));
        assert!(catch_unwind(poll).is_err(), "the clone panics");
        drop(sleep);
        pending::<()>().await;
    });
    rt.block_on(crate::step_aside());
    let row = rt.process_details(process.pid()).expect("the process lives").info;
    assert!(row.steps > 0, "the process has polled the sleep");
    assert_eq!(row.waits, 0);
}

/// 11: if the `clone` or the `drop` of a waker panics, only the thread that polls a future with this waker may be
/// affected. The polled future still works with another waker, and all other processes continue to work.
#[test]
fn a_panic_in_the_clone_or_drop_of_a_waker_affects_only_the_polling_thread() {
    within(60, || {
        for (clones, drops) in [(true, false), (false, true)] {
            let rt = two();
            let (to, mut mailbox) = rt.mailbox::<u64>();
            let mut joined = rt.spawn(async |mut ctx: Context<u64>| ctx.receive().await);
            let address = joined.address();
            let mut ended = joined.exited();
            let (mut sleep, mut slept) = (rt.sleep(Duration::from_millis(1)), false);
            let server = rt.spawn(async |mut ctx: Context<Reply<u64>>| ctx.receive().await);
            let mut call = server.call(|reply| reply);
            let waker = panicking_waker();
            CLONE_PANICS.store(clones, SeqCst);
            DROP_PANICS.store(drops, SeqCst);
            let mut cx = Cx::from_waker(&waker);
            // Each future is polled twice: the second poll drops the waker that the first poll has stored.
            for _ in 0..2 {
                let polls: [&mut dyn FnMut(&mut Cx<'_>); 5] = [
                    &mut |cx| assert!(Pin::new(&mut mailbox.receive()).poll(cx).is_pending()),
                    &mut |cx| assert!(Pin::new(&mut joined).poll(cx).is_pending()),
                    &mut |cx| assert!(Pin::new(&mut ended).poll(cx).is_pending()),
                    // The sleep may already be over. After a future has returned `Ready`, the future must not be polled
                    // again.
                    &mut |cx| slept = slept || Pin::new(&mut sleep).poll(cx).is_ready(),
                    &mut |cx| assert!(Pin::new(&mut call).poll(cx).is_pending()),
                ];
                for poll in polls {
                    let _ = catch_unwind(AssertUnwindSafe(|| poll(&mut cx)));
                }
            }
            // Each of the calls below takes or drops the stored wakers.
            to.send(1).unwrap();
            address.send(2).unwrap();
            let reply = block_on(server).unwrap();
            CLONE_PANICS.store(false, SeqCst);
            reply.send(3);
            DROP_PANICS.store(false, SeqCst);
            std::mem::forget(waker);
            assert_eq!(mailbox.try_receive(), Some(1));
            assert_eq!(block_on(joined).unwrap(), 2);
            assert!(block_on(ended).is_normal());
            assert_eq!(block_on(call).unwrap(), 3);
            if !slept {
                block_on(sleep);
            }
            assert!(!drops || DROPS.load(SeqCst) > 0);
            assert_eq!(shut_down(rt, Duration::from_secs(20)).left, []);
        }
    });
}

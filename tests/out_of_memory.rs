//! Runs a program in which one allocation fails. The program may abort with a message or return an error, but it must
//! never hang. This file is a separate test binary, because the global allocator applies to the whole program.

#![cfg(all(unix, not(any(procession_loom, procession_shuttle))))]
#![allow(unsafe_code)]
// The file `clippy.toml` forbids some types and methods in the source of the crate. This test may use these types and
// methods.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

#[path = "it/subprocess.rs"]
mod subprocess;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use procession::*;

use crate::subprocess::{again, role};

/// The system's allocator, except that one allocation fails.
struct Failing;

/// Number of allocations that succeed before one allocation fails. `usize::MAX` means that no allocation fails.
static LEFT: AtomicUsize = AtomicUsize::new(usize::MAX);

impl Failing {
    /// Counts an allocation. Returns true if this allocation must fail.
    fn fails(&self) -> bool {
        LEFT.load(SeqCst) != usize::MAX && LEFT.fetch_sub(1, SeqCst) == 0
    }
}

// SAFETY: `GlobalAlloc` requires that each returned block is valid, fits its layout, and is not returned twice before
// it is freed. `System` guarantees these properties, and each call passes the same arguments to `System`. If an
// allocation must fail, the function returns null and leaves the old block unchanged. The trait permits this.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if self.fails() {
            return std::ptr::null_mut();
        }
        // SAFETY: `System::alloc` requires a layout of nonzero size. The caller of this function guarantees a nonzero
        // size.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `System::dealloc` requires a block that `System` allocated with this layout. Each block of this
        // allocator comes from `System`, and the caller guarantees the layout.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if self.fails() {
            return std::ptr::null_mut();
        }
        // SAFETY: `System::realloc` requires a block that `System` allocated with this layout, and a valid nonzero new
        // size. Each block of this allocator comes from `System`, and the caller guarantees the layout and the size.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static FAILING: Failing = Failing;

struct Ask(u64);

impl Command for Ask {
    type Reply = u64;
}

/// Uses most features once: workers, processes, messages, calls, links, names, timers, commands and closures.
fn program() -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
    let rt = Runtime::builder().workers(2).handle(|ask: Ask| ask.0).handle_async(async |ask: Later| ask.0).build()?;
    let server = rt.process().name("server").spawn(async |mut ctx: Context<Reply<u64>>| -> Result<(), Exit> {
        loop {
            ctx.receive().await?.send(1);
        }
    })?;
    let to = server.address();
    let asks = rt.spawn(async move |ctx: Context<u64>| {
        ctx.trap_exit(true);
        let child = ctx.spawn_link(async |ctx: Context| ctx.perform(Later(1)).await);
        ctx.send_after(Duration::from_micros(10), ctx.pid(), 1);
        ctx.sleep(Duration::from_micros(10)).await;
        let both = (ctx.perform(Ask(1)).await?, ctx.call(&to, |reply| reply).await?);
        Ok::<_, Exit>(both.0 + both.1 + child.await?)
    });
    let sum = block_on(asks)? + block_on(rt.spawn_blocking(|| 1))?;
    drop(server);
    block_on(rt.shutdown(Duration::from_secs(10)));
    Ok(sum)
}

struct Later(u64);

impl Command for Later {
    type Reply = u64;
}

/// 11: for each allocation of the program, the test runs the program once and makes this allocation fail. The program
/// then aborts with a message, or ends with an error or a result. The program never hangs.
#[test]
fn a_failing_allocation_never_hangs_the_program() {
    if let Some(role) = role() {
        let fails_after: usize = role.parse().unwrap();
        LEFT.store(fails_after, SeqCst);
        let ended = program();
        // The allocation that fails subtracts 1 from a counter that is already 0. Therefore the counter wraps around to
        // a large number.
        let failed = LEFT.swap(usize::MAX, SeqCst) > fails_after;
        println!("failed: {failed}, ended: {ended:?}");
        return;
    }
    let (next, not_reached) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (aborted, survived) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let run = || {
        // The number of allocations differs a little from run to run. The loop ends after three runs in which no
        // allocation failed.
        while not_reached.load(SeqCst) < 3 {
            let n = next.fetch_add(1, SeqCst);
            let ran = again(a_failing_allocation_never_hangs_the_program, &n.to_string(), 60);
            let Some(status) = ran.status else { panic!("allocation {n} fails, and the program hangs: {ran:#?}") };
            if !status.success() {
                assert_eq!(ran.signal(), Some(libc::SIGABRT), "allocation {n}: {ran:#?}");
                // If async-task cannot allocate a task, async-task does not call `handle_alloc_error`. Instead,
                // async-task prints its own message.
                let messages = ["memory allocation of", "aborting the process"];
                assert!(messages.iter().any(|message| ran.stderr.contains(message)), "allocation {n}: {ran:#?}");
                aborted.fetch_add(1, SeqCst);
            } else if ran.stdout.contains("failed: true") {
                survived.fetch_add(1, SeqCst);
            } else {
                assert!(ran.stdout.contains("ended: Ok(4)"), "allocation {n}: {ran:#?}");
                not_reached.fetch_add(1, SeqCst);
            }
        }
    };
    thread::scope(|threads| (0..3).for_each(|_| drop(threads.spawn(run))));
    println!("{aborted:?} aborts, {survived:?} survived");
    assert!(aborted.load(SeqCst) > 50, "few allocations failed");
}

//! Tests of scopes, and of the tokens and deadlines that children inherit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use procession::*;
use shuttle::thread;

use crate::{LONG, runtime, waits};

scenarios! {
    /// A scope returns when all its children have exited, and returns the first error.
    fn a_scope_returns_after_its_children() {
        let rt = runtime(2);
        let alive = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&alive);
        let scoped = rt.spawn(async move |ctx: Context| {
            let inner = Arc::clone(&counts);
            let result = ctx
                .scope(async |s| {
                    for n in 0..3 {
                        let counts = Arc::clone(&inner);
                        let _ = s.spawn(async move |mut ctx: Context<()>| {
                            struct Here(Arc<AtomicUsize>);
                            impl Drop for Here {
                                fn drop(&mut self) {
                                    self.0.fetch_sub(1, SeqCst);
                                }
                            }
                            counts.fetch_add(1, SeqCst);
                            let _here = Here(counts);
                            if n == 1 {
                                return Err(Exit::failed("one"));
                            }
                            ctx.receive().await
                        });
                    }
                    Ok::<_, Exit>(())
                })
                .await;
            assert_eq!(counts.load(SeqCst), 0);
            result
        });
        assert!(rt.block_on(scoped).is_err());
    }

    /// The process of a scope is killed while its children spawn siblings. The kill ends the children that exist at
    /// this time, and also the children that are spawned later.
    fn a_scope_is_killed_while_it_grows() {
        let rt = runtime(2);
        let probe = Arc::new(());
        let owner = rt.process().value(Arc::clone(&probe)).spawn(async |ctx: Context<()>| {
            let grows = async |scope: Scope| {
                let siblings = scope.clone();
                let _ = scope.spawn(async move |mut ctx: Context<()>| {
                    let _ = siblings.spawn(waits);
                    let _ = siblings.spawn(waits);
                    ctx.receive().await
                });
                std::future::pending::<Result<(), Exit>>().await
            };
            ctx.scope(grows).await
        });
        let owner = owner.unwrap();
        rt.block_on(owner.started()).unwrap();
        rt.kill(owner.pid()).unwrap();
        assert!(matches!(rt.block_on(owner), Err(Exit::Killed)));
        // Each child inherits the probe, so the reference count shows how many children remain.
        while Arc::strong_count(&probe) != 1 {
            thread::yield_now();
        }
    }

    /// 6.6c: the token of a scope's process is cancelled while the scope grows. The cancellation terminates the
    /// children, and their termination does not count as a failure. The process itself also receives the cancellation.
    fn a_scope_is_cancelled_while_it_grows() {
        let rt = runtime(2);
        let token = CancelToken::new();
        let owner = rt.process().cancel_token(&token).spawn(async |ctx: Context<()>| {
            let (me, mut mailbox) = ctx.split();
            me.scope(async |scope| {
                let children = [scope.spawn(waits), scope.spawn(waits)];
                let own = mailbox.receive().await;
                for child in children {
                    assert!(matches!(child.await, Err(Exit::Cancelled(reason)) if reason == "enough"));
                }
                own
            })
            .await
        });
        let cancels = thread::spawn(move || token.cancel("enough", LONG));
        assert!(matches!(rt.block_on(owner.unwrap()), Err(Exit::Cancelled(reason)) if reason == "enough"));
        cancels.join().unwrap();
    }

    /// 6.6a: a deadline that has passed terminates a process and its children, even if the process ignores
    /// cancellation.
    fn children_inherit_the_deadline_of_their_parent() {
        let rt = runtime(2);
        let now = rt.now();
        let gentle = rt.process().deadline_within(now, LONG).spawn(async |mut ctx: Context<()>| {
            let child = ctx.spawn(waits);
            assert!(matches!(child.await, Err(Exit::Cancelled(reason)) if reason == Reason::DEADLINE));
            ctx.receive().await
        });
        let deaf = rt.process().deadline_within(now, Duration::ZERO).spawn(async |ctx: Context<()>| {
            let _ = ctx.spawn(waits);
            std::future::pending::<()>().await;
        });
        assert!(matches!(rt.block_on(gentle.unwrap()), Err(Exit::Cancelled(reason)) if reason == Reason::DEADLINE));
        assert!(matches!(rt.block_on(deaf.unwrap()), Err(Exit::Killed)));
        while rt.processes_alive() != 0 {
            thread::yield_now();
        }
    }
}

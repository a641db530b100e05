//! Cancel tokens: cancelled while their tree grows, loses its holders, and is waited on.

use std::sync::Arc;

use futures::channel::oneshot;
use procession::*;
use shuttle::thread;

use crate::{LONG, futures_block_on, runtime, waits};

fn is_cancelled(result: Result<(), Exit>, why: &str) -> bool {
    matches!(result, Err(Exit::Cancelled(reason)) if reason == *why)
}

scenarios! {
    /// SPEC 6.6: a tree grows while it is cancelled from its root, and nobody holds what lies in between: none is missed.
    fn a_tree_grows_while_it_is_cancelled() {
        let rt = runtime(2);
        let root = CancelToken::new();
        let (host, mut token) = (rt.host().clone(), root.clone());
        let grows = thread::spawn(move || {
            let spawned = [(); 3].map(|()| {
                token = token.child();
                let twig = token.child();
                host.process().cancel_token(&twig).spawn(waits).unwrap()
            });
            (spawned, token)
        });
        assert!(root.cancel("enough", LONG));
        let (spawned, leaf) = grows.join().unwrap();
        assert_eq!(leaf.reason(), root.reason());
        assert!(leaf.child().is_cancelled());
        for one in spawned {
            assert!(is_cancelled(rt.block_on(one), "enough"));
        }
    }

    /// A process spawns while its token is cancelled, which nobody else holds: whom it has spawned is told as it is.
    fn a_family_grows_while_it_is_cancelled() {
        let rt = runtime(2);
        let token = CancelToken::new();
        let parent = rt.process().cancel_token(&token).spawn(async |mut ctx: Context<()>| {
            let children = [ctx.spawn(waits), ctx.spawn(waits)];
            let own = ctx.receive().await;
            for one in children {
                assert!(is_cancelled(one.await, "enough"));
            }
            own
        });
        let cancels = thread::spawn(move || token.cancel("enough", LONG));
        assert!(is_cancelled(rt.block_on(parent.unwrap()), "enough"));
        assert!(cancels.join().unwrap());
    }

    /// A token and the one above it are cancelled at once: each process is told once, and why is what its token says.
    fn two_cancel_one_tree() {
        async fn counts(mut ctx: Context<()>) -> Result<Vec<Reason>, Exit> {
            let mut reasons = Vec::new();
            loop {
                match ctx.event().await {
                    Event::Cancel { reason, .. } => reasons.push(reason),
                    Event::Message(()) => return Ok(reasons),
                    other => panic!("{other:?}"),
                }
            }
        }
        let rt = runtime(2);
        let root = CancelToken::new();
        let branch = root.child();
        let [above, below] = [&root, &branch].map(|token| rt.process().cancel_token(token).spawn(counts).unwrap());
        let token = branch.clone();
        let other = thread::spawn(move || token.cancel("branch", LONG));
        assert!(root.cancel("root", LONG));
        let first = other.join().unwrap();
        assert_eq!(branch.reason().unwrap(), if first { "branch" } else { "root" });
        above.send(()).unwrap();
        below.send(()).unwrap();
        assert_eq!(rt.block_on(above).unwrap(), [root.reason().unwrap()]);
        assert_eq!(rt.block_on(below).unwrap(), [branch.reason().unwrap()]);
    }

    /// Whoever waits for a token, in a process or not, is woken when all have been told whom it concerns, though others
    /// gave up waiting and nobody holds it any more; and children have been told before it.
    fn a_token_is_awaited_elsewhere() {
        let rt = runtime(2);
        let root = CancelToken::new();
        let branch = root.child();
        let (give, me) = oneshot::channel();
        let heeds = rt.process().cancel_token(&branch).spawn(async move |ctx: Context<()>| {
            let (me, mut mailbox) = ctx.split();
            drop(give.send(me));
            mailbox.receive().await
        });
        let me = rt.block_on(me).unwrap();
        let (token, told, below) = (root.clone(), me.clone(), branch.clone());
        let awaits = rt.spawn(async move |_: Context| {
            let mut given_up = token.cancelled();
            let _ = futures::poll!(&mut given_up);
            let awaited = token.cancelled();
            drop(given_up);
            awaited.await;
            assert!(told.is_cancelled() && below.is_cancelled());
        });
        let elsewhere = thread::spawn(move || {
            futures_block_on(branch.cancelled());
            assert!(me.is_cancelled());
        });
        assert!(root.cancel("enough", LONG));
        drop(root);
        rt.block_on(awaits).unwrap();
        elsewhere.join().unwrap();
        assert!(is_cancelled(rt.block_on(heeds.unwrap()), "enough"));
    }

    /// Processes end as they like while their token is cancelled and dropped: neither keeps the other.
    fn a_token_keeps_nobody() {
        let rt = runtime(2);
        let probe = Arc::new(());
        let root = CancelToken::new();
        let spawn = |token: &CancelToken| rt.process().cancel_token(token).value(Arc::clone(&probe));
        let killed = spawn(&root.child()).spawn(waits).unwrap();
        let ends = spawn(&root.child()).spawn(async |_: Context<()>| {}).unwrap();
        let cancels = thread::spawn(move || root.cancel("enough", LONG));
        killed.abort();
        assert!(rt.block_on(killed).is_err());
        let _ = rt.block_on(ends);
        cancels.join().unwrap();
        while Arc::strong_count(&probe) != 1 {
            thread::yield_now();
        }
    }
}

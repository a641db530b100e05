//! Tests of cancel tokens. A token is cancelled while its tree grows, while its handles are dropped, or while tasks
//! wait for the token.

use std::sync::Arc;

use futures::channel::oneshot;
use procession::*;
use shuttle::thread;

use crate::{LONG, futures_block_on, runtime, waits};

fn is_cancelled(result: Result<(), Exit>, why: &str) -> bool {
    matches!(result, Err(Exit::Cancelled(reason)) if reason == *why)
}

scenarios! {
    /// 6.6c: a tree of tokens grows while its root is cancelled. Although no handle of an inner token remains, each
    /// process of the tree is cancelled.
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

    /// A process spawns children while its token is cancelled. Only the cancelling thread holds a handle of the token.
    /// The children are cancelled like their parent.
    fn children_are_spawned_while_their_token_is_cancelled() {
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

    /// A token and its parent are cancelled concurrently. Each process is notified exactly once, with the reason of its
    /// own token.
    fn two_tokens_of_a_tree_are_cancelled_concurrently() {
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

    /// Some tasks wait for a token, inside and outside a process. The waiting tasks are woken after all processes of
    /// the token and of its child tokens were notified. The waiting tasks are woken even if another waiting future was
    /// dropped, or if the last handle of the token is dropped.
    fn a_token_is_awaited_on_several_threads() {
        let rt = runtime(2);
        let root = CancelToken::new();
        let branch = root.child();
        let (give, me) = oneshot::channel();
        let unaware = rt.process().cancel_token(&branch).spawn(async move |ctx: Context<()>| {
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
        assert!(is_cancelled(rt.block_on(unaware.unwrap()), "enough"));
    }

    /// Processes exit while their token is cancelled and dropped. Neither the token nor the processes leak.
    fn a_token_leaks_no_process() {
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

//! Tests of streams: one thread sends items. A process on another thread pulls the items, stops pulling, or is killed.

use std::sync::Arc;

use futures::StreamExt;
use procession::*;
use shuttle::thread;

use crate::{builder, futures_block_on};

struct Count;
impl Command for Count {
    type Reply = u64;
}
impl StreamCommand for Count {
    type Item = u64;
    const BUFFER: usize = 1;
}

scenarios! {
    /// The items arrive once and in order, and then the answer arrives. If the process has dropped the stream, the
    /// sender is notified.
    fn a_stream_is_pulled_and_dropped() {
        let sending = Arc::new(());
        let held = Arc::clone(&sending);
        let rt = builder(2)
            .stream_handler(move |_: Count, mut replies: StreamCompletion<Count>| {
                let held = Arc::clone(&held);
                thread::spawn(move || {
                    let _held = held;
                    futures_block_on(async {
                        for n in 0..3 {
                            if replies.send(n).await.is_err() {
                                return replies.cancelled().await;
                            }
                        }
                        replies.complete(3);
                    })
                });
            })
            .build()
            .unwrap();
        let pulls = async |ctx: Context<()>| {
            let mut all = ctx.stream(Count);
            let mut read = Vec::new();
            while let Some(n) = all.next().await {
                read.push(n);
            }
            read.push(all.last().await?);
            Ok::<_, Exit>(read)
        };
        let (stays, killed) = (rt.spawn(pulls), rt.spawn(pulls));
        let leaves = rt.spawn(async |ctx: Context<()>| Ok::<_, Exit>(ctx.stream(Count).next().await));
        killed.abort();
        assert_eq!(rt.block_on(stays).unwrap(), [0, 1, 2, 3]);
        assert!(matches!(rt.block_on(killed).as_deref(), Ok([0, 1, 2, 3]) | Err(Exit::Killed)));
        assert_eq!(rt.block_on(leaves).unwrap(), Some(0));
        // The handler itself holds one reference.
        while Arc::strong_count(&sending) != 2 {
            thread::yield_now();
        }
    }
}

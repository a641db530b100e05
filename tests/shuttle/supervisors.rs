//! Tests of supervisors: either the children or the supervisors themselves are killed.

use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use procession::supervisor::*;
use procession::*;
use shuttle::thread;

use crate::{Msg, adds, runtime};

scenarios! {
    /// 6.4g: a child and its supervisor are killed. Both the child and the supervisor are restarted, and the child
    /// never has two instances.
    fn a_child_never_has_two_instances() {
        const CHILD: Name<Msg> = Name::new("child");
        const BELOW: Name<SupervisorMessage> = Name::new("below");
        let rt = runtime(2);
        let lives = Arc::new(AtomicI64::new(0));
        let child = {
            let lives = Arc::clone(&lives);
            move |ctx: Context<Msg>| {
                struct Instance(Arc<AtomicI64>);
                impl Drop for Instance {
                    fn drop(&mut self) {
                        self.0.fetch_sub(1, SeqCst);
                    }
                }
                assert_eq!(lives.fetch_add(1, SeqCst), 0, "it lives twice");
                let life = Instance(Arc::clone(&lives));
                async move {
                    let _life = life;
                    adds(ctx).await
                }
            }
        };
        let child = Arc::new(child);
        let below = move || {
            let child = Arc::clone(&child);
            Supervisor::one_for_one().intensity(9, Duration::from_secs(1)).child(CHILD, move |ctx| child(ctx))
        };
        let tree = Supervisor::one_for_one().intensity(9, Duration::from_secs(1)).add(Child::process(BELOW, below));
        let tree = rt.spawn_process(tree);
        rt.block_on(tree.started()).unwrap();
        let killed: Vec<Pid> = [CHILD.as_str(), BELOW.as_str()].into_iter().filter_map(|name| rt.whereis(name)).collect();
        let host = rt.host().clone();
        let killer = thread::spawn(move || killed.into_iter().for_each(|pid| host.kill(pid).unwrap_or(())));
        killer.join().unwrap();
        // A call fails until the new instance is registered.
        while rt.block_on(rt.call(CHILD, Msg::Sum)).is_err() {
            thread::yield_now();
        }
        rt.cancel(tree.pid(), "enough", Duration::from_secs(1)).unwrap();
        assert!(matches!(rt.block_on(tree), Err(Exit::Cancelled(_))));
        assert_eq!(lives.load(SeqCst), 0);
    }

    /// 6.4g: a child with `keep_mailbox` crashes while messages are sent to it. Each message is read, and the
    /// messages are read in order. No message is refused.
    fn a_kept_mailbox_loses_no_message() {
        const CHILD: Name<u8> = Name::new("child");
        let rt = runtime(2);
        let read = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&read);
        let child = Child::with_args(CHILD, log, async |mut ctx: Context<u8>, log: Arc<Mutex<Vec<u8>>>| {
            loop {
                let message = ctx.receive().await?;
                log.lock().unwrap().push(message);
                if message % 2 == 0 {
                    return Err(Exit::failed("crashes"));
                }
            }
            #[expect(unreachable_code, reason = "it says which type")]
            Ok::<(), Exit>(())
        });
        let tree = Supervisor::one_for_one().intensity(9, Duration::from_secs(1)).add(child.keep_mailbox());
        let tree = rt.spawn_process(tree);
        rt.block_on(tree.started()).unwrap();
        let host = rt.host().clone();
        let sends = thread::spawn(move || (0..4).for_each(|n| host.send(CHILD, n).unwrap()));
        sends.join().unwrap();
        while read.lock().unwrap().len() < 4 {
            thread::yield_now();
        }
        rt.cancel(tree.pid(), "enough", Duration::from_secs(1)).unwrap();
        assert!(matches!(rt.block_on(tree), Err(Exit::Cancelled(_))));
        assert_eq!(*read.lock().unwrap(), [0, 1, 2, 3]);
    }
}

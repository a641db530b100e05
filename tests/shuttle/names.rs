//! Tests of names: several processes register a name, and an exit makes the name free.

use procession::*;

use crate::{Msg, adds, runtime};

scenarios! {
    /// 2.5a, 2.5b, 2.5c, 6.1d: if the exit of a process was observed, its name is free. If two processes register a
    /// name, at least one process succeeds, but the two processes never hold the name at the same time.
    fn a_name_is_free_when_its_holder_has_exited() {
        let rt = runtime(2);
        let holder = rt.spawn(async |ctx: Context<()>| ctx.register("name"));
        assert!(rt.block_on(holder).is_ok());
        assert_eq!(rt.whereis("name"), None);
        let wants: Vec<_> = (0..2)
            .map(|_| {
                rt.spawn(async |ctx: Context<()>| {
                    let has = ctx.register("name").is_ok();
                    assert!(!has || ctx.host().whereis("name") == Some(ctx.pid()));
                    Ok::<_, Exit>(has)
                })
            })
            .collect();
        let has: Vec<bool> = wants.into_iter().map(|one| rt.block_on(one).unwrap()).collect();
        assert!(has.contains(&true));
        assert_eq!(rt.whereis("name"), None);
    }

    /// 2.5d: `spawn_or_send` is called several times concurrently. One call spawns the process, and no message is
    /// lost.
    fn concurrent_senders_to_a_free_name_spawn_one_process() {
        let rt = runtime(2);
        let all: Vec<_> = (0..3_u64)
            .map(|n| {
                rt.spawn(async move |ctx: Context| {
                    ctx.process().name("sums").spawn_or_send(Msg::Add(1 << (8 * n)), adds).map_err(|_| "refused")
                })
            })
            .collect();
        let pids: Vec<Pid> = all.into_iter().map(|one| rt.block_on(one).unwrap()).collect();
        assert!(pids.iter().all(|pid| *pid == pids[0]));
        assert_eq!(rt.block_on(rt.call("sums", Msg::Sum)).unwrap(), 0x1_01_01);
    }
}

//! Names: registration by one of several processes, and release at exit.

use procession::*;

use crate::{Msg, adds, runtime};

scenarios! {
    /// SPEC 2.5, 6.1: the name of a process is free when its exit is observed. If two processes register a name, at
    /// least one succeeds, and at no time do both hold it.
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

    /// SPEC 2.5: of several concurrent calls of `spawn_or_send`, one spawns the process, and no message is lost.
    fn concurrent_spawn_or_send_spawns_once() {
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

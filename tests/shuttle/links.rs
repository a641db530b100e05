//! Tests of links and monitors. The linked or monitored process exits concurrently.

use procession::*;

use crate::runtime;

scenarios! {
    /// 6.3a: a process links to a process that is exiting. Either the link kills the linking process, or `link` reports
    /// that the exiting process does not exist.
    fn a_link_races_with_an_exit() {
        let rt = runtime(2);
        let ends = rt.spawn(async |_: Context| Err::<(), _>("ends"));
        let pid = ends.pid();
        let links = rt.spawn(async move |mut ctx: Context| {
            ctx.link(pid).map_err(|_| "nobody there")?;
            match ctx.receive().await {
                Ok(_) => Ok(()),
                Err(_) => Err("cancelled"),
            }
        });
        match rt.block_on(links).unwrap_err() {
            Exit::Linked { origin, .. } => assert_eq!(origin, pid),
            Exit::Failed(error) => assert_eq!(error.to_string(), "nobody there"),
            other => panic!("{other}"),
        }
        assert!(rt.block_on(ends).is_err());
    }

    /// 2.3e, 6.1d, 6.3a: a process traps exits. The exit of a linked process arrives exactly once, after the messages
    /// that were sent before the exit.
    fn a_trapped_exit_arrives_after_the_messages() {
        let rt = runtime(2);
        let parent = rt.spawn(async |mut ctx: Context<u8>| {
            ctx.trap_exit(true);
            let to = ctx.address();
            let child = ctx.spawn_link(async move |ctx: Context| {
                let _ = ctx.send(&to, 1);
                let _ = ctx.send(&to, 2);
                Err::<(), _>("done")
            });
            let mut heard = Vec::new();
            for _ in 0..3 {
                heard.push(match ctx.event().await {
                    Event::Message(n) => n,
                    Event::Exit { from, .. } if from == child.pid() => 9,
                    _ => 0,
                });
            }
            Ok::<_, Exit>(heard)
        });
        assert_eq!(rt.block_on(parent).unwrap(), [1, 2, 9]);
    }

    /// 6.3b: if `demonitor` returns true, the removed monitor reports nothing. If `demonitor` returns false, the
    /// monitor reports the exit exactly once.
    fn a_removed_monitor_reports_nothing() {
        let rt = runtime(2);
        let ends = rt.spawn(async |_: Context| {});
        let pid = ends.pid();
        let watch = rt.spawn(async move |mut ctx: Context<()>| {
            let watches = [ctx.monitor(pid), ctx.monitor(pid)];
            let in_time = ctx.demonitor(watches[0]);
            let mut downs = 0;
            while downs < 1 + usize::from(!in_time) {
                if let Event::Down { monitor, .. } = ctx.event().await {
                    assert!(!(in_time && monitor == watches[0]));
                    downs += 1;
                }
            }
            Ok::<_, Exit>(())
        });
        rt.block_on(watch).unwrap();
        assert!(rt.block_on(ends).is_ok());
    }

    /// 6.3f: three processes are linked in a ring and exit concurrently. Each process has exactly one exit.
    fn linked_processes_exit_concurrently() {
        let rt = runtime(2);
        let ring: Vec<JoinHandle<(), Pid>> = (0..3)
            .map(|_| {
                rt.spawn(async |mut ctx: Context<Pid>| {
                    let next = ctx.receive().await?;
                    ctx.link(next)?;
                    ctx.receive().await.map(drop)
                })
            })
            .collect();
        for n in 0..3 {
            let _ = ring[n].send(ring[(n + 1) % 3].pid());
        }
        rt.kill(ring[0].pid()).unwrap();
        ring[1].abort();
        // The exit comes from the kill, from a linked process, or from a link to a process that had already exited.
        ring.into_iter().for_each(|one| drop(rt.block_on(one).unwrap_err()));
    }
}

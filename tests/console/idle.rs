//! Tests with attached consoles. Some consoles send no request, and some consoles send only requests that read the
//! state of the runtime.

use super::*;

/// Runs processes that yield, send messages and spawn processes. Each run changes the counters of the runtime by the
/// same amounts.
fn script(rt: &Runtime) {
    let reader = rt.spawn(async |mut ctx: Context<u64>| {
        let mut sum = 0;
        for _ in 0..100 {
            sum += ctx.receive().await?;
        }
        Ok::<_, Exit>(sum)
    });
    let to = reader.address();
    let sender = rt.spawn(async move |ctx: Context| {
        for number in 0..100 {
            to.send(number)?;
            ctx.yield_now().await;
            ctx.spawn(async |_: Context| ()).await?;
        }
        Ok::<_, Exit>(())
    });
    rt.block_on(sender).unwrap();
    assert_eq!(rt.block_on(reader), Ok(4_950));
}

/// 9.6a: consoles are attached, and have received a reply. After this reply, the consoles send no requests. A script
/// runs on one guest thread. After the script, the counters of the runtime are exactly the same as the counters of a
/// runtime without a console.
#[test]
fn attached_consoles_without_requests_cause_no_step_and_no_wake_up() {
    within(60, || {
        let plain = Runtime::builder().workers(0).build().unwrap();
        script(&plain);
        let folder = Folder::new();
        let (rt, mut client) = lone(&folder);
        let mut other = Client::attach(&folder.socket());
        for client in [&mut client, &mut other] {
            client.ask(json!({ "request": "overview" }));
        }
        script(&rt);
        assert_eq!(rt.counters().to_string(), plain.counters().to_string());
        drop((client, other));
    });
}

/// 9.6c: the thread of the server answers each request that only reads the state of the runtime. During these requests,
/// the parked workers of an idle runtime do not wake up, do not search for tasks, and do not run a step.
#[test]
fn read_only_requests_wake_no_worker() {
    const REQUESTS: [&str; 12] = [
        "overview",
        "processes",
        "wait_for_graph",
        "explain",
        "workers",
        "last_exits",
        "names",
        "groups",
        "timers",
        "handlers",
        "run_times",
        "stop_run_times",
    ];
    within(60, || {
        let folder = Folder::new();
        let rt = Runtime::builder().workers(2).console(folder.socket()).build().unwrap();
        let waits = rt.spawn(async |mut ctx: Context<u8>| ctx.receive().await);
        let mut client = Client::attach(&folder.socket());
        // A parked worker may wake up once more, because the token of an earlier wake-up was still set. Therefore the
        // test repeats the requests until no worker parks during these requests.
        loop {
            while rt.metrics().workers_in(observe::WorkerState::Parked) != 2 {
                std::thread::yield_now();
            }
            let before = rt.counters();
            for request in REQUESTS {
                client.ask(json!({ "request": request }));
            }
            let counted = rt.counters() - before;
            assert_eq!((counted.wakes, counted.polls, counted.steps, counted.steals_tried), (0, 0, 0, 0), "{counted}");
            if counted.parks == 0 {
                break;
            }
        }
        waits.send(1).unwrap();
        assert_eq!(rt.block_on(waits), Ok(1));
    });
}

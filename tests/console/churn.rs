//! Requests while many processes start and exit.

use super::*;

const PROCESSES: u64 = if cfg!(debug_assertions) { 20_000 } else { 200_000 };
/// Maximum number of short-lived processes at the same time.
const BATCH: u64 = 32;

struct Slow;
impl Command for Slow {
    type Reply = ();
}

/// Spawns short-lived processes with names, groups, timers and commands, until `PROCESSES` processes have exited and
/// the counter `rounds` of the client is at least 5.
async fn drive(ctx: Context, rounds: Arc<AtomicUsize>) -> Result<(), Exit> {
    let mut number = 0;
    while ctx.host().counters().exited < PROCESSES || rounds.load(Ordering::SeqCst) < 5 {
        let batch = (number..number + BATCH).map(|number| {
            let short = async move |ctx: Context<u8>| {
                match number % 4 {
                    0 => ctx.join_group(["one", "other"][number as usize / 4 % 2]),
                    1 => drop(ctx.send_after(Duration::from_secs(3_600), ctx.pid(), 0_u8)),
                    2 => drop(futures::poll!(ctx.perform(Slow))),
                    _ => return Err(Exit::failed("planned")),
                }
                ctx.yield_now().await;
                Ok(())
            };
            ctx.host().process().name(format!("name {number}")).spawn(short).expect("each name is used once")
        });
        for (at, exit) in futures::future::join_all(batch).await.into_iter().enumerate() {
            assert_eq!(exit.is_err(), at % 4 == 3, "{exit:?}");
        }
        number += BATCH;
    }
    Ok(())
}

/// 9.2c, 9.6b: in a loop, a client sends each request that reads the state of the runtime. During this loop, processes
/// with names, groups, timers and commands start and exit on two workers. Each request succeeds, and the counts in each
/// reply do not exceed the limits that the program implies.
#[test]
fn each_request_succeeds_while_processes_start_and_exit() {
    within(120, || {
        let folder = Folder::new();
        let kept = Mutex::new(Vec::new());
        let handler = move |_: Slow, completion: Completion<()>| {
            let mut kept = kept.lock().unwrap();
            if kept.len() == 64 {
                kept.clear();
            }
            kept.push(completion);
        };
        let builder = Runtime::builder().workers(2).handler(handler).console(folder.socket());
        let rt = builder.build().unwrap();
        let tree = rt.spawn_process(Supervisor::one_for_one());
        let mut client = Client::attach(&folder.socket());
        let rounds = Arc::new(AtomicUsize::new(0));
        let driver = {
            let rounds = Arc::clone(&rounds);
            rt.spawn(async move |ctx: Context| drive(ctx, rounds).await)
        };
        let mut time = 0;
        while !driver.is_finished() {
            let mut at_most = |request: Value, figure: &str, most: u64| {
                let reply = client.ask(request);
                let number = reply[figure].as_u64().or_else(|| Some(reply[figure].as_array()?.len() as u64));
                assert!(number.is_some_and(|number| number <= most), "{figure}: {reply}");
                let now = reply["now_ns"].as_u64().expect("each reply has a time");
                assert!(now >= time, "{reply}");
                time = now;
            };
            at_most(json!({ "request": "overview" }), "processes_alive", 2 * BATCH + 2);
            at_most(json!({ "request": "processes", "limit": 10 }), "rows", 10);
            at_most(json!({ "request": "names", "limit": 10 }), "rows", 10);
            at_most(json!({ "request": "groups", "limit": 10 }), "group_count", 2);
            at_most(json!({ "request": "timers" }), "timer_count", 2 * BATCH);
            at_most(json!({ "request": "handlers" }), "handler_count", 1);
            at_most(json!({ "request": "last_exits", "limit": 10 }), "exits", 10);
            at_most(json!({ "request": "workers" }), "workers", 48);
            at_most(json!({ "request": "supervision_tree" }), "rows", 1);
            at_most(json!({ "request": "run_times", "limit": 10 }), "processes", 10);
            at_most(json!({ "request": "wait_for_graph" }), "deadlocks", 0);
            client.ask(json!({ "request": "explain" }));
            client.ask(json!({ "request": "process", "pid": tree.pid().to_string() }));
            rounds.fetch_add(1, Ordering::SeqCst);
        }
        rt.block_on(driver).unwrap();
        let reply = client.ask(json!({ "request": "timers" }));
        assert_eq!(reply["timer_count"], 0);
        assert_eq!(client.ask(json!({ "request": "groups" }))["group_count"], 0);
        rt.kill(tree.pid()).unwrap();
    });
}

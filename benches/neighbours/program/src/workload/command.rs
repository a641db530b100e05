//! Commands: one process performs commands one after another, and waits for each answer. An operation is one command
//! with its answer. On runtimes without commands, a task asks another task.

use std::sync::{Arc, OnceLock};

use procession::{Address, Builder, Command, Completion, Context, Runtime};

use super::{Workload, call, runs};
use crate::latch::DONE;
use crate::round::{Round, Sample};
use crate::tasks::Tasks;
use crate::verdict::{Shape, cpu};

pub(super) const WORKLOADS: &[Workload] = &[
    // A handler answers inline. On the other runtimes, a task answers.
    Workload {
        name: "command-inline",
        ops: 200_000,
        shape: Shape::Sequential,
        judged: &[cpu(&[])],
        runs: runs!(
            built: |round| perform(round, Runtime::builder().handle(|c: Increment| c.0 + 1)),
            tasks: call::tasks::<_, 1, 1>
        ),
    },
    // A handler forwards the command to a process, and this process answers.
    Workload {
        name: "command-task",
        ops: 200_000,
        shape: Shape::Sequential,
        judged: &[cpu(&[])],
        runs: runs!(built: perform_by_a_process, tasks: call::tasks::<_, 1, 1>),
    },
    // A future answers. The runtime runs one future for each command. On the other runtimes, a task is spawned for each
    // question and then awaited.
    Workload {
        name: "command-async",
        ops: 200_000,
        shape: Shape::Sequential,
        judged: &[cpu(&[])],
        runs: runs!(
            built: |round| perform(round, Runtime::builder().handle_async(|c: Increment| async move { c.0 + 1 })),
            tasks: tasks_for_each
        ),
    },
];

pub(super) struct Increment(pub(super) u64);

impl Command for Increment {
    type Reply = u64;
}

fn perform(round: &Round, builder: Builder) -> Sample {
    round.procession(builder, perform_all)
}

fn perform_by_a_process(round: &Round) -> Sample {
    type Job = (Increment, Completion<u64>);
    // The runtime owns the handler, the handler owns an address of the server, and the address refers to the runtime.
    // This reference cycle leaks one small process after each round.
    let server: Arc<OnceLock<Address<Job>>> = Arc::default();
    let known = Arc::clone(&server);
    let builder = Runtime::builder().handler(move |command: Increment, completion: Completion<u64>| {
        let server = known.get().expect("it was started before the first command");
        server.send((command, completion)).expect("it serves for ever");
    });
    round.procession(builder, |rt, n| {
        server.get_or_init(|| {
            let serve = async |mut ctx: Context<Job>| {
                while let Ok((command, completion)) = ctx.receive().await {
                    completion.complete(command.0 + 1);
                }
            };
            rt.spawn(serve).address()
        });
        perform_all(rt, n);
    })
}

fn perform_all(rt: &Runtime, n: u64) {
    DONE.close(1);
    drop(rt.spawn(async move |ctx: Context| {
        let mut value = 0;
        for _ in 0..n {
            value = ctx.perform(Increment(value)).await.expect("it has a handler");
        }
        assert_eq!(value, n);
        DONE.count_down();
    }));
    DONE.wait();
}

fn tasks_for_each<T: Tasks>(on: &T, n: u64) {
    DONE.close(1);
    let inside = on.clone();
    on.spawn(async move {
        let mut value = 0;
        for _ in 0..n {
            value = inside.join(async move { value + 1 }).await;
        }
        assert_eq!(value, n);
        DONE.count_down();
    });
    DONE.wait();
}

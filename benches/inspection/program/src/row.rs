use std::io::sink;
use std::sync::mpsc;
use std::time::Duration;

use cpu_time::ProcessTime;
use procession::observe::{FlightRecorder, InspectOptions, TraceOptions};
use procession::{Builder, Context, Exit, Runtime};

use crate::client;

/// Number of waiting processes, in addition to the two processes that exchange messages.
const WAITING: usize = 1_000;

/// Interval between two requests of a console. A console usually sends one request per second. With a hundred requests
/// per second, the cost is visible.
const INTERVAL: Duration = Duration::from_millis(10);

/// Kind of inspection.
#[derive(Clone, Copy)]
pub(crate) enum Row {
    /// No inspection. The ratio of this row shows the error of the measurement.
    Nothing,
    TraceOfAnotherType,
    Trace,
    FlightRecorder,
    LastMessages,
    SampleEveryStep,
    Attached,
    /// A request of a console, once in each [`INTERVAL`].
    Requests(&'static str),
    /// The request `process` for a process that waits for a message, once in each [`INTERVAL`].
    Process,
}

impl Row {
    pub(crate) const ALL: [Self; 20] = [
        Self::Nothing,
        Self::TraceOfAnotherType,
        Self::Trace,
        Self::FlightRecorder,
        Self::LastMessages,
        Self::SampleEveryStep,
        Self::Attached,
        Self::Requests("overview"),
        Self::Requests("processes"),
        Self::Requests("workers"),
        Self::Requests("run_times"),
        Self::Process,
        Self::Requests("wait_for_graph"),
        Self::Requests("explain"),
        Self::Requests("last_exits"),
        Self::Requests("supervision_tree"),
        Self::Requests("names"),
        Self::Requests("groups"),
        Self::Requests("timers"),
        Self::Requests("handlers"),
    ];

    pub(crate) fn name(self) -> String {
        match self {
            Self::Nothing => "none".into(),
            Self::TraceOfAnotherType => "a trace that selects only processes of another type".into(),
            Self::Trace => "a trace".into(),
            Self::FlightRecorder => "`Builder::flight_recorder`".into(),
            Self::LastMessages => "`Builder::inspect`: the last 8 messages of each process".into(),
            Self::SampleEveryStep => "`Builder::sample_every_step`".into(),
            Self::Attached => "an attached console that sends no requests".into(),
            Self::Requests(request) => format!("a console that sends `{request}` 100 times per second"),
            Self::Process => "a console that sends `process` 100 times per second".into(),
        }
    }

    /// Returns the CPU time of the program in seconds, while the processes exchange messages.
    pub(crate) fn measure(self, messages: u64) -> f64 {
        let builder = Runtime::builder().workers(1);
        match self {
            Self::Nothing => run(&built(builder), messages),
            Self::TraceOfAnotherType => traced(messages, TraceOptions::new().type_contains("no type has this name")),
            Self::Trace => traced(messages, TraceOptions::new()),
            Self::FlightRecorder => run(&built(builder.flight_recorder(FlightRecorder::new())), messages),
            Self::LastMessages => run(&built(builder.inspect(InspectOptions::new())), messages),
            Self::SampleEveryStep => run(&built(builder.sample_every_step(true)), messages),
            Self::Attached => {
                let (rt, _client) = with_console(builder);
                run(&rt, messages)
            }
            Self::Requests(request) => {
                let (rt, client) = with_console(builder);
                requested(&rt, client, messages, request, "")
            }
            Self::Process => {
                let (rt, client) = with_console(builder);
                let waiting = rt.spawn(async |mut ctx: Context<u64>| ctx.receive().await);
                requested(&rt, client, messages, "process", &format!(r#", "pid": "{}""#, waiting.pid()))
            }
        }
    }
}

/// Measures a run in which the client repeats a request.
fn requested(rt: &Runtime, client: client::Client, messages: u64, name: &str, fields: &str) -> f64 {
    let client = client.repeat(name, fields, INTERVAL);
    let time = run(rt, messages);
    let rate = client.stop();
    // The rate of a short run is not reliable.
    assert!(time < 0.2 || rate > 80.0, "the console sent only {rate} requests per second");
    time
}

fn built(builder: Builder) -> Runtime {
    builder.build().expect("the options are valid")
}

fn with_console(builder: Builder) -> (Runtime, client::Client) {
    let rt = built(builder.console_tcp(([127, 0, 0, 1], 0), client::TOKEN));
    let client = client::attach(rt.console_address().expect("the runtime has a console"));
    (rt, client.expect("the console accepts the token"))
}

fn traced(messages: u64, options: TraceOptions) -> f64 {
    let rt = built(Runtime::builder().workers(1));
    let trace = rt.start_trace_with(options, sink()).expect("no other trace runs");
    let time = run(&rt, messages);
    trace.finish().expect("the sink accepts all bytes");
    time
}

/// Two processes exchange messages on the worker. Meanwhile, other processes wait. The calling thread waits for a
/// message of a channel and not in `block_on`, because a thread in `block_on` also runs processes.
fn run(rt: &Runtime, messages: u64) -> f64 {
    let (started, all) = mpsc::channel();
    for _ in 0..WAITING {
        let started = started.clone();
        drop(rt.spawn(async move |mut ctx: Context<u64>| {
            started.send(()).expect("the main thread counts the processes");
            ctx.receive().await
        }));
    }
    assert_eq!(all.iter().take(WAITING).count(), WAITING);
    let (ended, end) = mpsc::channel();
    let begin = ProcessTime::now();
    drop(rt.spawn(async move |mut ping: Context<u64>| -> Result<(), Exit> {
        let back = ping.address();
        let pong = ping.spawn(async move |mut pong: Context<u64>| -> Result<(), Exit> {
            loop {
                back.send(pong.receive().await? + 1)?;
            }
        });
        let mut ball = 0;
        while ball < messages / 2 {
            pong.send(ball)?;
            ball = ping.receive().await?;
        }
        pong.abort();
        ended.send(ball).expect("the main thread waits");
        Ok(())
    }));
    assert_eq!(end.recv(), Ok(messages / 2));
    begin.elapsed().as_secs_f64()
}

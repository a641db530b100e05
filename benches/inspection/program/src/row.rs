use std::io::sink;
use std::time::Duration;

use cpu_time::ProcessTime;
use procession::observe::{FlightRecorder, InspectOptions, TraceOptions};
use procession::{Builder, Context, Exit, Runtime};

use crate::client;

/// Number of waiting processes beside the two processes that exchange messages.
const WAITING: usize = 1_000;

/// Interval between two requests of a console. A console usually sends one request per second. The interval of a
/// hundredth of a second makes the cost visible.
const INTERVAL: Duration = Duration::from_millis(10);

/// Kind of inspection.
#[derive(Clone, Copy)]
pub(crate) enum Row {
    TraceOfAnotherType,
    Trace,
    FlightRecorder,
    LastMessages,
    SampleEveryStep,
    Attached,
    /// A request of a console, once in each [`INTERVAL`].
    Requests(&'static str),
}

impl Row {
    pub(crate) const ALL: [Self; 10] = [
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
    ];

    pub(crate) fn name(self) -> String {
        match self {
            Self::TraceOfAnotherType => "a trace that selects only processes of another type".into(),
            Self::Trace => "a trace".into(),
            Self::FlightRecorder => "`Builder::flight_recorder`".into(),
            Self::LastMessages => "`Builder::inspect`: the last 8 messages of each process".into(),
            Self::SampleEveryStep => "`Builder::sample_every_step`".into(),
            Self::Attached => "an attached console that sends no requests".into(),
            Self::Requests(request) => format!("a console that sends `{request}` 100 times per second"),
        }
    }

    /// Returns the CPU time of the program in seconds, while the processes exchange messages.
    pub(crate) fn measure(self, messages: u64) -> f64 {
        let builder = builder();
        match self {
            Self::TraceOfAnotherType => traced(messages, TraceOptions::new().type_contains("no type has this name")),
            Self::Trace => traced(messages, TraceOptions::new()),
            Self::FlightRecorder => run(&built(builder.flight_recorder(FlightRecorder::new())), messages),
            Self::LastMessages => run(&built(builder.inspect(InspectOptions::new())), messages),
            Self::SampleEveryStep => run(&built(builder.sample_every_step(true)), messages),
            Self::Attached => {
                let rt = built(with_console(builder));
                let _client = client::attach(rt.console_address().expect("there is a console")).expect("it answers");
                run(&rt, messages)
            }
            Self::Requests(request) => {
                let rt = built(with_console(builder));
                let client = client::attach(rt.console_address().expect("there is a console")).expect("it answers");
                let client = client.repeat(request, INTERVAL);
                let time = run(&rt, messages);
                // The drop of the runtime closes the connection.
                drop(rt);
                assert!(client.join().expect("the client does not panic") > 0, "the console has replied");
                time
            }
        }
    }
}

/// Returns the CPU time of a runtime without inspection, in seconds.
pub(crate) fn plain(messages: u64) -> f64 {
    run(&built(builder()), messages)
}

fn builder() -> Builder {
    Runtime::builder().workers(1)
}

fn built(builder: Builder) -> Runtime {
    builder.build().expect("the options are valid")
}

fn with_console(builder: Builder) -> Builder {
    builder.console_tcp(([127, 0, 0, 1], 0), client::TOKEN)
}

fn traced(messages: u64, options: TraceOptions) -> f64 {
    let rt = built(builder());
    let trace = rt.start_trace_with(options, sink()).expect("no other trace runs");
    let time = run(&rt, messages);
    trace.finish().expect("the sink accepts all bytes");
    time
}

/// Two processes exchange messages. Meanwhile, other processes wait.
fn run(rt: &Runtime, messages: u64) -> f64 {
    for _ in 0..WAITING {
        drop(rt.spawn(async |mut ctx: Context<u64>| ctx.receive().await));
    }
    let begin = ProcessTime::now();
    let ping = rt.spawn(async move |mut ping: Context<u64>| -> Result<u64, Exit> {
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
        Ok(ball)
    });
    assert_eq!(rt.block_on(ping), Ok(messages / 2));
    begin.elapsed().as_secs_f64()
}

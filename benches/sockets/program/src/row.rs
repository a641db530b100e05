//! The rows of the table.

/// Work of the server for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// The server sends the bytes back.
    Echo,
    /// The server sends 64 bytes and closes the connection.
    Reply,
    /// The server reads to the end of the stream, and then answers with the number of bytes.
    Sink,
    /// The server answers each HTTP request with [`HELLO`].
    Http,
}

impl Service {
    pub(crate) const ALL: [Self; 4] = [Self::Echo, Self::Reply, Self::Sink, Self::Http];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Reply => "reply",
            Self::Sink => "sink",
            Self::Http => "http",
        }
    }
}

/// Work of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// The client sends requests of 64 bytes to an echo server. Each connection has one request in flight.
    Echo { connections: usize },
    /// The client sends requests of 64 bytes to an echo server on one connection, and pauses for 1 ms before each
    /// request.
    Pause,
    /// The client opens connections, and reads each connection to the end of the stream. Several connections are open
    /// at a time.
    Accept,
    /// The client sends 1 MiB for each operation, on one connection.
    Stream,
    /// The program `wrk` sends HTTP requests. Each connection has one request in flight.
    Http,
}

#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) service: Service,
    pub(crate) load: Load,
    /// Number of operations in one round. In the row `http`, the number is the duration of the round in seconds.
    pub(crate) ops: u64,
    /// Maximum ratio of the CPU time of procession to the CPU time of tokio.
    pub(crate) goal: Option<f64>,
}

pub(crate) const ROWS: [Row; 7] = [
    Row { name: "echo-1", service: Service::Echo, load: Load::Echo { connections: 1 }, ops: 40_000, goal: Some(0.9) },
    Row {
        name: "echo-50",
        service: Service::Echo,
        load: Load::Echo { connections: 50 },
        ops: 150_000,
        goal: Some(0.9),
    },
    Row {
        name: "echo-1000",
        service: Service::Echo,
        load: Load::Echo { connections: 1_000 },
        ops: 150_000,
        goal: Some(0.9),
    },
    Row { name: "accept", service: Service::Reply, load: Load::Accept, ops: 15_000, goal: Some(1.0) },
    Row { name: "stream", service: Service::Sink, load: Load::Stream, ops: 1_024, goal: Some(1.0) },
    Row { name: "http", service: Service::Http, load: Load::Http, ops: 3, goal: Some(1.0) },
    Row { name: "pause", service: Service::Echo, load: Load::Pause, ops: 1_000, goal: None },
];

/// Maximum ratio of the median round trip of procession to the median round trip of tokio, in the row `pause`.
pub(crate) const ROUND_TRIP_GOAL: f64 = 1.0;

/// Number of bytes of a request. The answer has the same number of bytes.
pub(crate) const MESSAGE: usize = 64;

/// Body of the response in the row `http`.
pub(crate) const HELLO: &str = "Hello World!";

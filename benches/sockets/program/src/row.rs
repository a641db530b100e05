//! The rows of the table.

/// What the server does with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// Sends the bytes back.
    Echo,
    /// Sends 64 bytes and closes the connection.
    Reply,
    /// Reads to the end, and then answers with the number of bytes.
    Sink,
}

impl Service {
    pub(crate) const ALL: [Self; 3] = [Self::Echo, Self::Reply, Self::Sink];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Reply => "reply",
            Self::Sink => "sink",
        }
    }
}

/// What the client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// Echoes of 64 bytes. Each connection has one request in flight.
    Echo { connections: usize },
    /// Echoes of 64 bytes on one connection, with a pause of 1 ms before each request.
    Pause,
    /// Connects, and reads to the end. A number of connections are open at a time.
    Accept,
    /// Sends 1 MiB for each operation, on one connection.
    Stream,
}

#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) service: Service,
    pub(crate) load: Load,
    /// Number of operations of a round.
    pub(crate) ops: u64,
    /// Maximum ratio of procession's CPU time to that of tokio.
    pub(crate) goal: Option<f64>,
}

pub(crate) const ROWS: [Row; 6] = [
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
    Row { name: "pause", service: Service::Echo, load: Load::Pause, ops: 1_000, goal: None },
];

/// Maximum ratio of procession's median round trip to that of tokio, in the row `pause`.
pub(crate) const ROUND_TRIP_GOAL: f64 = 1.0;

/// Number of bytes of a request, and of its answer.
pub(crate) const MESSAGE: usize = 64;

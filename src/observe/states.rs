//! The states of processes and workers.

/// State of a process.
///
/// ```text
///           spawn             a worker takes it
///   (new) ────────▶ Ready ─────────────────────▶ Running ──── done, failed, killed, panicked ───▶ Complete
///                     ▲  ▲                        │  │  │
///                     │  └─ again, woken meanwhile┘  │  │
///                     │ any event, any foreign wake  │  │
///                     ├───────────── Blocked ◀───────┘  │   yields outstanding
///                     └───────────── Idle ◀─────────────┘   nothing outstanding
/// ```
///
/// A blocked process waits for a command, a call or a sleep of this runtime. An idle process waits, but not for a
/// command, a call or a sleep of this runtime. Any event and any wake-up makes a blocked or an idle process ready.
/// There is one exception. If an async body does not await its mailbox, an event in the mailbox does not wake the body.
/// Examples of such events are a message and a `Down` event. The body finds the event when the body awaits its mailbox.
///
/// A [suspended](crate::Host::suspend) process enters the state `Suspended` instead of `Running`. If the process runs,
/// it enters the state `Suspended` after its step. Any event makes a suspended process `Ready`. A worker then takes the
/// process. If the process is still suspended, it enters the state `Suspended` again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ProcessState {
    /// The process waits for a worker.
    Ready,
    /// A worker runs the process.
    Running,
    /// The process waits for an event, and at least one command, call or sleep of the process is outstanding.
    Blocked,
    /// The process waits for an event, and no command, call or sleep of the process is outstanding.
    Idle,
    /// The process has exited.
    Complete,
    /// The process was [suspended](crate::Host::suspend), and takes no step until it is resumed.
    Suspended,
}

impl ProcessState {
    /// Returns whether a process in this state waits for an event.
    pub(crate) fn is_waiting(self) -> bool {
        matches!(self, Self::Blocked | Self::Idle | Self::Suspended)
    }

    /// Returns the state whose `state as u8` is this number.
    #[inline]
    pub(crate) fn from_u8(number: u8) -> Option<Self> {
        [
            ProcessState::Ready,
            ProcessState::Running,
            ProcessState::Blocked,
            ProcessState::Idle,
            ProcessState::Complete,
            ProcessState::Suspended,
        ]
        .get(usize::from(number))
        .copied()
    }
}

/// State of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum WorkerState {
    /// The worker runs processes, or the thread of the worker polls the future that was passed to
    /// [`block_on`](crate::Runtime::block_on). The state does not change while this future blocks the thread. The
    /// worker also has this state while it calls a waker that does not belong to a process.
    Running,
    /// The worker searches for work.
    Searching,
    /// The worker sleeps until it is woken for new work.
    Parked,
    /// The worker is in a long step, or in a step that called [`block_in_place`](crate::block_in_place). If a worker
    /// calls a waker that does not belong to a process, and this call takes long, the call also counts as a long step.
    /// If a call of a waker counts as a long step, this long step has no pid. A replacement thread may run the tasks in
    /// the queues of this worker. The monitor thread reports this state for a long step. The worker reports its next
    /// state only after this report.
    Blocked,
}

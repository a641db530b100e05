//! Events of a process, and the tags that connect an answer with its command.
//!
//! `Event` is the public form of an event. The mailbox stores an event as a message or as a `Signal`. The mailbox
//! itself is in `process::mailbox`.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;

use crate::platform::clock::Instant;
use crate::platform::sync::Arc;
use crate::process::command::{Command, StreamCommand};
use crate::process::exit::{Exit, Reason};
use crate::process::failure::Failure;
use crate::process::payload::Payload;
use crate::process::pid::Pid;

/// An event of a process: a message, an answer to a command, or a signal. A process reads its events in the order in
/// which they arrived.
///
/// A hand-written process receives every kind of event. An async body calls [`Context::event`](crate::Context::event)
/// to receive events. An async body does not receive `Completed` or `Item` for its own commands: the futures of the
/// body receive these answers and items. But a hand-written process can yield a command and then delegate its steps to
/// [`EntryPoints`](crate::EntryPoints). In this case, the body of the entry point receives the answer to this command
/// as an event.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<M = Payload> {
    /// Another process or the application sent a message.
    Message(M),
    /// A command of this process was answered.
    Completed(Completed),
    /// An item of a stream arrived. A process receives only items that it has pulled: see
    /// [`StepOutput::stream`](crate::StepOutput::stream).
    Item(StreamItem),
    /// A request to exit. A process receives at most one `Cancel` event. If the process still runs at `deadline`, the
    /// process is killed.
    Cancel {
        /// Reason of the cancellation.
        reason: Reason,
        /// Latest time at which the process is killed. A later cancellation, for example by a token or a deadline, can
        /// kill the process earlier.
        deadline: Instant,
    },
    /// A [monitored](crate::SelfHandle::monitor) process has exited. Each monitor causes at most one `Down` event.
    Down {
        /// The monitor that reports the exit.
        monitor: MonitorRef,
        /// The process that exited.
        pid: Pid,
        /// The exit of the process `pid`.
        exit: Exit,
    },
    /// A [linked](crate::SelfHandle::link) process has exited, and this process [traps
    /// exits](crate::SelfHandle::trap_exit).
    Exit {
        /// The process that exited.
        from: Pid,
        /// The exit of the process `from`.
        exit: Exit,
    },
    /// A process has joined a group that is [monitored](crate::SelfHandle::monitor_group).
    Joined {
        /// The monitor that reports that the process joined the group.
        monitor: MonitorRef,
        /// Name of the group.
        group: Arc<str>,
        /// The process that joined.
        pid: Pid,
    },
    /// A process has left a group that is [monitored](crate::SelfHandle::monitor_group), or a member of the group has
    /// exited.
    Left {
        /// The monitor that reports that the process left the group.
        monitor: MonitorRef,
        /// Name of the group.
        group: Arc<str>,
        /// The process that left.
        pid: Pid,
    },
}

/// Creates the event for the item or the answer of a stream. A notice in the mailbox has announced the item or the
/// answer.
pub(crate) fn notice_event<M>(tag: Tag, next: Result<Payload, Answer>) -> Event<M> {
    match next {
        Ok(item) => Event::Item(StreamItem { tag, item }),
        Err(answer) => Event::Completed(Completed { tag, answer }),
    }
}

/// An event other than a message, as the mailbox stores it. The size of a signal matters, because the mailbox of a
/// parent may contain a million signals. A signal of a monitor contains the number of the monitor, and does not contain
/// the process that set the monitor. The process that set the monitor is always the reader of the mailbox.
#[derive(Debug)]
pub(crate) enum Signal {
    Completed(Completed),
    /// A notice of a stream. A notice has one of two meanings: the buffer of the stream contains an item that the
    /// process has requested, or the answer has arrived.
    Notice(Tag),
    Cancel {
        reason: Reason,
        deadline: Instant,
    },
    /// The exit of a monitored process. The reader of the mailbox checks whether the monitor still exists.
    Down {
        number: u64,
        pid: Pid,
        reason: Exit,
    },
    Exit {
        from: Pid,
        reason: Exit,
    },
    /// A process has joined a monitored group. The reader of the mailbox checks whether the monitor still exists.
    Joined {
        number: u64,
        group: Arc<str>,
        pid: Pid,
    },
    /// A process has left a monitored group. The reader of the mailbox checks whether the monitor still exists.
    Left {
        number: u64,
        group: Arc<str>,
        pid: Pid,
    },
}

const _: () = assert!(size_of::<Signal>() <= 56);

impl Signal {
    /// Returns whether the signal is an answer or a notice of a stream. An answer arrives as a signal only if a
    /// hand-written process has yielded the command.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self, Self::Completed(_) | Self::Notice(_))
    }

    /// Converts the signal into an event. The parameter `reader` is the process whose mailbox contained the signal.
    #[inline]
    pub(crate) fn into_event<M>(self, reader: Pid) -> Event<M> {
        let monitor = |number| MonitorRef::new(reader, number);
        match self {
            Signal::Completed(completed) => Event::Completed(completed),
            Signal::Notice(_) => unreachable!("the receiver resolves notices before it reads events"),
            Signal::Cancel { reason, deadline } => Event::Cancel { reason, deadline },
            Signal::Down { number, pid, reason } => Event::Down { monitor: monitor(number), pid, exit: reason },
            Signal::Exit { from, reason } => Event::Exit { from, exit: reason },
            Signal::Joined { number, group, pid } => Event::Joined { monitor: monitor(number), group, pid },
            Signal::Left { number, group, pid } => Event::Left { monitor: monitor(number), group, pid },
        }
    }
}

/// The answer to a command: either a reply or a failure.
pub(crate) type Answer = Result<Payload, Failure>;

/// The answer to a command of a hand-written process.
#[derive(Debug)]
pub struct Completed {
    pub(crate) tag: Tag,
    pub(crate) answer: Answer,
}

impl Completed {
    /// Returns the tag of the answered command.
    pub fn tag(&self) -> Tag {
        self.tag
    }

    /// Returns the answer with its static type, if `tag` is the tag of the answered command.
    ///
    /// The outer `Result` says whether the tag matches. The inner `Result` is the answer of the handler.
    ///
    /// # Errors
    /// Returns `self` if `tag` is the tag of another command.
    pub fn take<C: Command>(self, tag: Tag<C>) -> Result<Result<C::Reply, Failure>, Completed> {
        if self.tag != tag {
            return Err(self);
        }
        Ok(typed(self.answer))
    }

    /// Returns the untyped answer.
    ///
    /// # Errors
    /// Returns the failure if the command failed.
    pub fn into_result(self) -> Result<Payload, Failure> {
        self.answer
    }
}

/// An item that a hand-written process pulled from a stream.
#[derive(Debug)]
pub struct StreamItem {
    pub(crate) tag: Tag,
    pub(crate) item: Payload,
}

impl StreamItem {
    /// Returns the tag of the stream.
    pub fn tag(&self) -> Tag {
        self.tag
    }

    /// Returns the item with its static type, if `tag` is the tag of this stream.
    ///
    /// # Errors
    /// Returns `self` if `tag` is the tag of another command, or if the item is not of the type `C::Item`.
    pub fn take<C: StreamCommand>(self, tag: Tag<C>) -> Result<C::Item, StreamItem> {
        if self.tag != tag {
            return Err(self);
        }
        self.item.downcast::<C::Item>().map_err(|item| StreamItem { tag: self.tag, item })
    }

    /// Returns the untyped item.
    pub fn into_payload(self) -> Payload {
        self.item
    }
}

/// Converts an answer to the expected type. The runtime checks the type of an answer when the command is answered.
/// Therefore, the type is wrong only if the static type of the caller's tag names another command type. This can happen
/// with a tag that the caller has chosen. A wrong type becomes a failure, and does not cause a panic.
#[inline]
pub(crate) fn typed<T: Send + 'static>(answer: Result<Payload, Failure>) -> Result<T, Failure> {
    answer?.downcast::<T>().map_err(|payload| {
        Failure::new(format!("the answer is a `{}` where a `{}` was expected", payload.type_name(), type_name::<T>()))
    })
}

/// Identifier of one monitor. An identifier is never reused for another monitor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MonitorRef {
    watcher: Pid,
    /// Number of the monitor among the monitors of the same process. The number is never 0.
    number: u64,
}

impl MonitorRef {
    /// Bit that is set in the number of every group monitor.
    const GROUP: u64 = 1 << 63;

    pub(crate) fn new(watcher: Pid, number: u64) -> Self {
        Self { watcher, number }
    }

    /// Creates the [`MonitorRef`] that identifies a group monitor. Group monitors have their own sequence of numbers.
    pub(crate) fn of_group(watcher: Pid, number: u64) -> Self {
        Self { watcher, number: number | Self::GROUP }
    }

    pub(crate) fn is_of_group(self) -> bool {
        self.number & Self::GROUP != 0
    }

    /// Returns whether the process `watcher` set the monitor.
    pub(crate) fn is_of(self, watcher: Pid) -> bool {
        self.watcher == watcher
    }

    pub(crate) fn number(self) -> u64 {
        self.number
    }
}

impl fmt::Debug for MonitorRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = if self.is_of_group() { "group " } else { "" };
        write!(f, "MonitorRef({group}{} of {})", self.number & !Self::GROUP, self.watcher)
    }
}

/// Identifier of one command that a process has yielded. The answer has the same tag as its command. Compare a tag only
/// with tags of the same process. A tag is never reused, unless the process itself [chose](Self::chosen) the tag.
pub struct Tag<C = Payload> {
    /// Sequence number of the command in its process, or the number that the process chose. The two top bits contain
    /// the kind of the tag.
    ///
    /// A process may choose the same number for a later command. Therefore, the bits 32 to 61 of a chosen tag contain
    /// either 0 or the [generation](Self::with_generation) of one command. A tag with the generation 0 refers to the
    /// command that has the chosen number now.
    pub(crate) number: u64,
    /// Index of the command's slot in the table of commands. The index is not used if the table finds the slot by the
    /// number of the tag.
    pub(crate) key: u32,
    marker: PhantomData<fn() -> C>,
}

impl<C> Tag<C> {
    /// Bit that is set in every number that a process itself chose.
    pub(crate) const CHOSEN: u64 = 1 << 63;
    /// Bit that is set in the number of every command that took the inline path.
    const INLINE: u64 = 1 << 62;
    /// Number of generations that a chosen tag can have. Two commands have the same generation only if the difference
    /// of their sequence numbers is a multiple of this constant.
    const GENERATIONS: u64 = (1 << 30) - 1;
    /// Mask of the bits `CHOSEN` and `INLINE`. If one of these two bits is set in the number of a tag, the table finds
    /// the command's slot by this number. A tag with one of these bits is created before the slot, so the tag does not
    /// contain the index of the slot.
    pub(crate) const LOOKED_UP: u64 = Self::CHOSEN | Self::INLINE;

    pub(crate) fn issued(number: u64, key: u32) -> Self {
        Self { number, key, marker: PhantomData }
    }

    /// Creates the tag of a command that has a slot in the table of commands.
    pub(crate) fn of_slot(number: u64, key: u32) -> Self {
        Self::issued(number, if number & Self::LOOKED_UP == 0 { key } else { u32::MAX })
    }

    /// Creates the tag of a command on the inline path: see `state/inline_command.rs`.
    pub(crate) const fn inline(number: u64) -> Self {
        Self { number: Self::INLINE | number, key: u32::MAX, marker: PhantomData }
    }

    /// Creates a tag with a number that the process chooses, for
    /// [`StepOutput::perform_as`](crate::StepOutput::perform_as). For example, a program that runs scripts may number
    /// its calls itself. The process may use the tag again after the process has read the answer or cancelled the
    /// command.
    pub fn chosen(number: u32) -> Self {
        Self { number: Self::CHOSEN | u64::from(number), key: u32::MAX, marker: PhantomData }
    }

    /// Returns a copy of this chosen tag, with a generation that belongs to one command. The parameter `serial` is
    /// the sequence number of this command in its process.
    ///
    /// If a command has a chosen tag, its completion, timer and events contain the tag that includes the generation.
    /// Therefore, a completion, a timer or an event never refers to a later command for which the process has chosen
    /// the same number.
    pub(crate) fn with_generation(self, serial: u64) -> Self {
        let generation = serial % Self::GENERATIONS + 1;
        Self { number: Self::without_generation(self.number) | generation << 32, ..self }
    }

    /// Removes the generation from the number of a chosen tag. Returns the number of any other tag unchanged.
    #[inline]
    pub(crate) fn without_generation(number: u64) -> u64 {
        if number & Self::CHOSEN == 0 { number } else { number & (Self::CHOSEN | u64::from(u32::MAX)) }
    }

    /// Returns the tag without its generation. The result refers to the command that has this tag now.
    #[inline]
    pub(crate) fn strip_generation(self) -> Self {
        Self { number: Self::without_generation(self.number), ..self }
    }

    /// Returns whether the tag refers to the command with this number. A chosen tag without a generation refers to each
    /// command with the chosen number.
    #[inline]
    pub(crate) fn refers_to(self, number: u64) -> bool {
        self.number == number || (self.is_chosen() && self.number == Self::without_generation(number))
    }

    /// Returns the same tag without the type of its command.
    pub fn erase(self) -> Tag {
        self.cast()
    }

    pub(crate) fn cast<D>(self) -> Tag<D> {
        Tag { number: self.number, key: self.key, marker: PhantomData }
    }

    #[inline]
    pub(crate) fn is_chosen(self) -> bool {
        self.number & Self::CHOSEN != 0
    }

    #[inline]
    pub(crate) fn is_inline(self) -> bool {
        self.number & Self::INLINE != 0
    }

    /// Returns true if the table must look up the slot of the command by the number of the tag.
    #[inline]
    pub(crate) fn is_looked_up(self) -> bool {
        self.number & Self::LOOKED_UP != 0
    }

    /// Returns the number without the bits that contain the kind and the generation of the tag.
    #[inline]
    pub(crate) fn serial(self) -> u64 {
        Self::without_generation(self.number) & !Self::LOOKED_UP
    }
}

impl<C> Clone for Tag<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Tag<C> {}

impl<A, B> PartialEq<Tag<B>> for Tag<A> {
    fn eq(&self, other: &Tag<B>) -> bool {
        Self::without_generation(self.number) == Self::without_generation(other.number)
    }
}

impl<C> Eq for Tag<C> {}

impl<C> std::hash::Hash for Tag<C> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        Self::without_generation(self.number).hash(state);
    }
}

impl<C> fmt::Debug for Tag<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_chosen() { "chosen " } else { "" };
        write!(f, "Tag({kind}{})", self.serial())
    }
}

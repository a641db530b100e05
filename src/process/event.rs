//! All that can reach a process, and the tags by which answers find their yields.

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

/// All that can reach a process, in the order it came.
///
/// A hand-written process sees every kind; an async body sees them by [`Context::event`](crate::Context::event), but
/// never `Completed` or `Item`: those resolve its futures.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<M = Payload> {
    /// Somebody sent a message.
    Message(M),
    /// A yield was answered.
    Completed(Completed),
    /// A stream sent an item that was pulled: see [`StepOutput::stream`](crate::StepOutput::stream).
    Item(Item),
    /// The process is asked to end, once; what still runs at `deadline` is killed.
    Cancel {
        /// Why.
        reason: Reason,
        /// When it is killed.
        deadline: Instant,
    },
    /// A process that is [monitored](crate::Me::monitor) has ended; told once for each monitor.
    Down {
        /// Which monitor told it.
        monitor: MonitorRef,
        /// Who has ended.
        pid: Pid,
        /// How.
        reason: Exit,
    },
    /// A process that was [linked](crate::Me::link) has ended, and this one [traps exits](crate::Me::trap_exit).
    Exit {
        /// Who has ended.
        from: Pid,
        /// How.
        reason: Exit,
    },
    /// A process has joined a group that is [monitored](crate::Me::monitor_group).
    Joined {
        /// Which monitor told it.
        monitor: MonitorRef,
        /// The name of the group.
        group: Arc<str>,
        /// Who has joined it.
        pid: Pid,
    },
    /// A process has left a group that is [monitored](crate::Me::monitor_group), or has ended in it.
    Left {
        /// Which monitor told it.
        monitor: MonitorRef,
        /// The name of the group.
        group: Arc<str>,
        /// Who has left it.
        pid: Pid,
    },
}

/// What waits in a mailbox beside the messages. A parent may have a million of these: monitors are known by their numbers,
/// for whose they are is plain.
#[derive(Debug)]
pub(crate) enum Signal {
    Completed(Completed),
    /// An item of this stream is there that was pulled, or its answer.
    Notice(Tag),
    Cancel {
        reason: Reason,
        deadline: Instant,
    },
    /// Whoever reads it asks whether the monitor still stands.
    Down {
        number: u64,
        pid: Pid,
        reason: Exit,
    },
    Exit {
        from: Pid,
        reason: Exit,
    },
    /// Whoever reads it asks whether the monitor still stands.
    Joined {
        number: u64,
        group: Arc<str>,
        pid: Pid,
    },
    /// As `Joined`.
    Left {
        number: u64,
        group: Arc<str>,
        pid: Pid,
    },
}

const _: () = assert!(size_of::<Signal>() <= 56);

impl Signal {
    /// Whether it answers a yield of a hand-written process, which hears of that by reading its events.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self, Self::Completed(_) | Self::Notice(_))
    }

    /// The same as the process sees it whose mailbox this was in.
    #[inline]
    pub(crate) fn into_event<M>(self, reader: Pid) -> Event<M> {
        let monitor = |number| MonitorRef::new(reader, number);
        match self {
            Signal::Completed(completed) => Event::Completed(completed),
            Signal::Notice(_) => unreachable!("whoever reads events turns notices into what they stand for"),
            Signal::Cancel { reason, deadline } => Event::Cancel { reason, deadline },
            Signal::Down { number, pid, reason } => Event::Down { monitor: monitor(number), pid, reason },
            Signal::Exit { from, reason } => Event::Exit { from, reason },
            Signal::Joined { number, group, pid } => Event::Joined { monitor: monitor(number), group, pid },
            Signal::Left { number, group, pid } => Event::Left { monitor: monitor(number), group, pid },
        }
    }
}

/// What a yield comes to.
pub(crate) type Answer = Result<Payload, Failure>;

/// An answer that came to a hand-written process.
#[derive(Debug)]
pub struct Completed {
    pub(crate) tag: Tag,
    pub(crate) answer: Answer,
}

impl Completed {
    /// Which yield this answers.
    pub fn tag(&self) -> Tag {
        self.tag
    }

    /// The typed answer, for whom holds the tag of this yield; itself back to whom does not.
    ///
    /// # Errors
    /// `Err(self)` when `tag` is another yield's.
    pub fn take<C: Command>(self, tag: Tag<C>) -> Result<Result<C::Reply, Failure>, Completed> {
        if self.tag != tag {
            return Err(self);
        }
        Ok(typed(self.answer))
    }

    /// The answer as it came.
    ///
    /// # Errors
    /// The failure that the command was answered with.
    pub fn into_result(self) -> Result<Payload, Failure> {
        self.answer
    }
}

/// An item that came to a hand-written process.
#[derive(Debug)]
pub struct Item {
    pub(crate) tag: Tag,
    pub(crate) item: Payload,
}

impl Item {
    /// Which stream sent it.
    pub fn tag(&self) -> Tag {
        self.tag
    }

    /// The typed item, for whom holds the tag of this stream; itself back to whom does not.
    ///
    /// # Errors
    /// `Err(self)` when `tag` is another yield's.
    pub fn take<C: StreamCommand>(self, tag: Tag<C>) -> Result<C::Item, Item> {
        if self.tag != tag {
            return Err(self);
        }
        self.item.downcast::<C::Item>().map_err(|item| Item { tag: self.tag, item })
    }

    /// The item as it came.
    pub fn into_payload(self) -> Payload {
        self.item
    }
}

/// The answer of the type that was asked for. Answers are checked when they are given, so a mismatch can only come
/// from a host that was told the wrong tag; it is a failure, never a panic.
#[inline]
pub(crate) fn typed<T: Send + 'static>(answer: Result<Payload, Failure>) -> Result<T, Failure> {
    answer?.downcast::<T>().map_err(|payload| {
        Failure::new(format!("the answer is a `{}` where a `{}` was expected", payload.type_name(), type_name::<T>()))
    })
}

/// Names one monitor: `Copy`, comparable, hashable; no other one is ever called the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MonitorRef {
    watcher: Pid,
    /// Which of its monitors; none has 0.
    number: u64,
}

impl MonitorRef {
    /// Marks the numbers of those that watch groups.
    const GROUP: u64 = 1 << 63;

    pub(crate) fn new(watcher: Pid, number: u64) -> Self {
        Self { watcher, number }
    }

    /// One that watches a group; they are counted by themselves.
    pub(crate) fn of_group(watcher: Pid, number: u64) -> Self {
        Self { watcher, number: number | Self::GROUP }
    }

    pub(crate) fn is_of_group(self) -> bool {
        self.number & Self::GROUP != 0
    }

    /// Whether this process set it.
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

/// Which yield an answer belongs to: `Copy`, comparable with any other tag of the same process, never used twice.
pub struct Tag<C = Payload> {
    /// Counts the yields of one process, or was chosen by it; the top bits say of what kind it is.
    pub(crate) number: u64,
    /// Where the tag table keeps it.
    pub(crate) key: u32,
    marker: PhantomData<fn() -> C>,
}

impl<C> Tag<C> {
    /// Marks the numbers that processes choose themselves.
    pub(crate) const CHOSEN: u64 = 1 << 63;
    /// Marks those of plain yields.
    const PLAIN: u64 = 1 << 62;

    pub(crate) fn issued(number: u64, key: u32) -> Self {
        Self { number, key, marker: PhantomData }
    }

    /// Of a yield that is kept apart: see `yields/plain.rs`.
    pub(crate) fn plain(number: u64, key: u32) -> Self {
        Self { number: Self::PLAIN | number, key, marker: PhantomData }
    }

    /// A tag of the process's own choosing, for [`StepOutput::perform_as`](crate::StepOutput::perform_as): hosts of
    /// scripts often number their calls themselves. It may be used again once it was answered.
    pub fn chosen(number: u32) -> Self {
        Self { number: Self::CHOSEN | u64::from(number), key: u32::MAX, marker: PhantomData }
    }

    /// The same tag, whatever its command.
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
    pub(crate) fn is_plain(self) -> bool {
        self.number & Self::PLAIN != 0
    }

    /// Its number without what says of what kind it is.
    #[inline]
    pub(crate) fn serial(self) -> u64 {
        self.number & !(Self::CHOSEN | Self::PLAIN)
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
        self.number == other.number
    }
}

impl<C> Eq for Tag<C> {}

impl<C> std::hash::Hash for Tag<C> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl<C> fmt::Debug for Tag<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_chosen() { "chosen " } else { "" };
        write!(f, "Tag({kind}{})", self.serial())
    }
}

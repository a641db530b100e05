//! A shard: the process that owns a part of the keys. A connection sends the commands of a whole pipeline to the shard
//! in one message. The shard sends back all replies in one answer.
//!
//! The message contains a box ([`Work`]) with the commands. The shard writes the replies into the box and sends the box
//! back. So the box reuses its buffers, and a pipeline needs no allocation and no copy of the arguments.

use std::fmt;
use std::sync::Arc;

use foldhash::fast::FixedState;
use procession::{Context, Exit, Instant, Next, Reply, Server};

use crate::commands::{Call, ShardFn};
use crate::resp::{Batch, Encoder, Request};
use crate::store::Store;

/// When the replies exceed this number of bytes, the shard returns these replies before it begins the next command. The
/// connection first sends these replies to its client. Before the shard returns the replies, the shard completes the
/// present command, so a command with several keys is atomic in a shard.
const MOST_REPLY_BYTES: usize = 256 << 10;

/// Maximum capacity, in commands, that an empty box keeps.
const KEPT_OPS: usize = 1_024;

/// Maximum number of expired keys that a shard removes before it handles the next message.
const MOST_EXPIRED: usize = 256;

/// Message that asks a shard to run commands.
#[derive(Debug)]
pub(crate) struct Execute {
    pub(crate) work: Box<Work>,
    pub(crate) reply: Reply<Box<Work>>,
}

// A message of two words needs no allocation in a mailbox or in a call.
const _: () = assert!(size_of::<Execute>() == 16);

/// One whole command, or the part of a command for one key.
#[derive(Clone, Copy)]
pub(crate) struct Op {
    /// The arguments of this command, as a range of the arguments of the batch. For a command with keys, the range
    /// begins at a key and does not contain the name of the command.
    pub(crate) args: Request,
    pub(crate) run: ShardFn,
    /// Hash of the key.
    pub(crate) hash: u64,
    /// Number of the command in its batch. If a command has several keys, all parts of the command have the same
    /// number.
    pub(crate) command: u32,
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Op").field("args", &self.args).finish_non_exhaustive()
    }
}

/// The commands of one pipeline for one shard, and their replies.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// The batch that contains the arguments of the commands. The field is `None` while the connection owns this
    /// `Work`, because the connection must then be the only owner of the batch.
    batch: Option<Arc<Batch>>,
    resp3: bool,
    ops: Vec<Op>,
    /// Number of commands that the shard has run.
    done: usize,
    /// Replies of the commands that the shard has run since the shard received the box. The field `ends` contains the
    /// end of each reply.
    replies: Vec<u8>,
    ends: Vec<usize>,
    /// Number of replies in `replies` that the connection has taken.
    taken: usize,
}

impl Work {
    /// Adds a command.
    pub(crate) fn push(&mut self, op: Op) {
        self.ops.push(op);
    }

    /// Returns true if the shard must run further commands now. The shard may return the box before the shard has run
    /// all commands. In this case, the connection must first take all replies. Otherwise these replies and the next
    /// replies together could need too much memory.
    pub(crate) fn is_due(&self) -> bool {
        self.is_pending() && self.taken == self.ends.len()
    }

    /// Prepares the box for a shard. Removes the replies that the connection has taken.
    pub(crate) fn prepare(&mut self, batch: &Arc<Batch>, resp3: bool) {
        debug_assert!(self.is_due());
        self.batch = Some(Arc::clone(batch));
        self.resp3 = resp3;
        self.replies.clear();
        self.ends.clear();
        self.taken = 0;
    }

    /// Returns true if the shard has not run all commands.
    pub(crate) fn is_pending(&self) -> bool {
        self.done < self.ops.len()
    }

    /// Takes the next reply. Returns `None` if the shard has not run the command yet.
    pub(crate) fn next_reply(&mut self) -> Option<&[u8]> {
        let end = *self.ends.get(self.taken)?;
        let start = self.taken.checked_sub(1).map_or(0, |last| self.ends[last]);
        self.taken += 1;
        Some(&self.replies[start..end])
    }

    /// Returns all replies. The replies must be complete, and the caller must not have taken any reply before.
    pub(crate) fn all_replies(&mut self) -> &mut Vec<u8> {
        debug_assert!(!self.is_pending() && self.taken == 0 && self.ends.len() == self.ops.len());
        &mut self.replies
    }

    /// Removes the commands and the replies. Keeps the allocated memory, except for large buffers. A connection keeps
    /// its boxes while the client is idle, so the memory of a box must be bounded.
    pub(crate) fn clear(&mut self) {
        self.ops.clear();
        self.ops.shrink_to(KEPT_OPS);
        self.done = 0;
        self.ends.clear();
        self.ends.shrink_to(KEPT_OPS);
        self.taken = 0;
        self.replies.clear();
        self.replies.shrink_to(MOST_REPLY_BYTES);
    }

    /// Returns the number of bytes that the lists of commands and of replies occupy.
    #[cfg(test)]
    pub(crate) fn bytes_kept(&self) -> usize {
        self.ops.capacity() * size_of::<Op>() + self.ends.capacity() * size_of::<usize>()
    }

    /// Runs the commands in order, until all commands were run or the replies exceed their bound.
    ///
    /// Between two messages, the shard can run commands of other clients. Therefore this function does not stop between
    /// the keys of one command.
    fn run(&mut self, store: &mut Store, now: Instant) {
        let Some(batch) = self.batch.take() else { return };
        while let Some(op) = self.ops.get(self.done)
            && (self.replies.len() < MOST_REPLY_BYTES || self.continues(op))
        {
            let reply = Encoder::new(&mut self.replies, self.resp3);
            let mut call = Call { store, args: batch.args(op.args), hash: op.hash, now, reply };
            if let Err(failure) = (op.run)(&mut call) {
                call.reply.error(failure.0.as_bytes());
            }
            self.ends.push(self.replies.len());
            self.done += 1;
        }
    }

    /// Returns true if the operation belongs to the same command as the last operation that the shard has run.
    fn continues(&self, op: &Op) -> bool {
        self.done.checked_sub(1).is_some_and(|last| self.ops[last].command == op.command)
    }
}

/// The process of a shard.
#[derive(Debug)]
pub(crate) struct Shard {
    store: Store,
}

impl Shard {
    pub(crate) fn new(hasher: FixedState, now: Instant, seed: u64) -> Self {
        Self { store: Store::new(hasher, now, seed) }
    }
}

impl Server for Shard {
    type Message = Execute;
    type Output = ();

    async fn handle(&mut self, message: Execute, ctx: &mut Context<Execute>) -> Result<Next<()>, Exit> {
        let Execute { mut work, reply } = message;
        work.run(&mut self.store, ctx.now());
        reply.send(work);
        Ok(Next::Wait)
    }

    fn deadline(&self) -> Option<Instant> {
        self.store.next_expiry()
    }

    async fn handle_timeout(&mut self, ctx: &mut Context<Execute>) -> Result<Next<()>, Exit> {
        self.store.remove_expired(ctx.now(), MOST_EXPIRED);
        Ok(Next::Wait)
    }
}

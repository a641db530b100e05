//! A pipeline. A pipeline distributes the commands of a batch to the shards, and puts the replies into the order of the
//! commands.
//!
//! All commands for one shard are sent in one message. A command with several keys runs once for each key, in the shard
//! of this key. The shards run their commands at the same time, and each shard runs its commands in order.

use std::mem;
use std::sync::Arc;

use foldhash::fast::FixedState;

use crate::commands::{Merge, ShardFn, Spec};
use crate::connection::KEPT;
use crate::resp::{Args, Batch, Encoder, Request, parse_int, push_int};
use crate::shard::{Op, Work};
use crate::store::hash;

/// Reply to a command whose shard has exited.
pub(crate) const FAILED: &[u8] = b"-ERR the shard of this key has failed, and its keys are lost\r\n";

/// Maximum capacity, in elements, that the empty vectors of a pipeline keep.
const KEPT_PIECES: usize = 1_024;

/// Source of the next replies.
#[derive(Debug, Clone, Copy)]
enum Piece {
    /// The next replies are in `local`, up to this position.
    Local(usize),
    /// The next reply comes from this shard.
    Shard(u16),
    /// One reply that is merged from several replies. The next entries of `routes` name the shards of these replies.
    Merged { merge: Merge, count: u32, request: Request },
}

/// Progress of [`Pipeline::collect`].
#[derive(Debug, Default)]
struct Cursor {
    piece: usize,
    local: usize,
    route: usize,
    merged: Merged,
}

/// Progress of a merged reply.
#[derive(Debug, Default)]
struct Merged {
    /// Number of replies that were already merged.
    count: u32,
    sums: [i64; 2],
    failed: bool,
}

/// Result of [`Pipeline::collect`].
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Collected {
    /// All replies were collected.
    All,
    /// A shard has returned the box (the [`Work`]) of the shard, but has not run all commands of the box. The
    /// connection must send the box to this shard again.
    Part,
    /// The next reply is the reply to `INFO`, with these numbers of keys. The caller must write this reply and then
    /// call `collect` again.
    Info { keys: i64, expiring: i64, request: Request },
}

/// The commands that are being run, and their replies.
#[derive(Debug)]
pub(crate) struct Pipeline {
    hasher: FixedState,
    /// The box of each shard, with the commands and replies of the shard. An entry is `None` before the first use,
    /// while the shard has the box, and after the shard has failed.
    works: Vec<Option<Box<Work>>>,
    /// The shards that have commands. The flag is true if the shard has failed.
    used: Vec<(u16, bool)>,
    pieces: Vec<Piece>,
    routes: Vec<u16>,
    /// Replies of commands that ran in the process of the connection. Each of these commands follows a command that
    /// runs in a shard.
    local: Vec<u8>,
    cursor: Cursor,
}

impl Pipeline {
    /// Makes an empty pipeline.
    pub(crate) fn new(hasher: FixedState, shards: usize) -> Self {
        Self {
            hasher,
            works: (0..shards).map(|_| None).collect(),
            used: Vec::new(),
            pieces: Vec::new(),
            routes: Vec::new(),
            local: Vec::new(),
            cursor: Cursor::default(),
        }
    }

    /// Returns true if no command runs in a shard. In this case, a reply can be written directly into the output.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns the shards that have commands. The flag is true if the shard has failed.
    pub(crate) fn used(&self) -> &[(u16, bool)] {
        &self.used
    }

    // ---- Commands

    /// Returns the buffer for the reply of a command that runs in the connection.
    pub(crate) fn local(&mut self) -> &mut Vec<u8> {
        &mut self.local
    }

    /// Marks the end of a reply that was written into [`local`](Self::local).
    pub(crate) fn push_local(&mut self) {
        let end = self.local.len();
        match self.pieces.last_mut() {
            Some(Piece::Local(last)) => *last = end,
            _ => self.pieces.push(Piece::Local(end)),
        }
    }

    /// Adds a command with one key.
    pub(crate) fn push_key(&mut self, request: Request, args: Args<'_>, run: ShardFn) {
        let args_from_key = Request { first: request.first + 1, count: request.count - 1 };
        let shard = self.push(args.get(1), args_from_key, run, request.first);
        self.pieces.push(Piece::Shard(shard));
    }

    /// Adds a command with several keys. The third number in the field `keys` of `spec` is the distance between two
    /// keys.
    pub(crate) fn push_keys(&mut self, request: Request, args: Args<'_>, spec: &Spec, run: ShardFn, merge: Merge) {
        let distance = spec.keys.2 as u32;
        let keys = (1..request.count).step_by(distance as usize);
        let count = keys.len() as u32;
        for key in keys {
            let args_of_key = Request { first: request.first + key, count: distance };
            let shard = self.push(args.get(key as usize), args_of_key, run, request.first);
            self.routes.push(shard);
        }
        self.pieces.push(Piece::Merged { merge, count, request });
    }

    /// Adds a command that runs in each shard.
    pub(crate) fn push_shards(&mut self, request: Request, run: ShardFn, merge: Merge) {
        let shards = self.works.len() as u16;
        for shard in 0..shards {
            let args = Request { first: request.first, count: 0 };
            self.push_to(shard, Op { args, run, hash: 0, command: request.first });
            self.routes.push(shard);
        }
        self.pieces.push(Piece::Merged { merge, count: shards.into(), request });
    }

    /// Adds a whole command, or the part of a command for one key. `command` is the index of the command name in the
    /// list of all arguments of the batch. Each command of the batch has a different index.
    fn push(&mut self, key: &[u8], args: Request, run: ShardFn, command: u32) -> u16 {
        let hash = hash(&self.hasher, key);
        // The table in the shard uses the lowest and the highest bits of the hash, so this selection uses the middle
        // bits of the hash.
        let shard = (((hash >> 16 & 0xffff_ffff) * self.works.len() as u64) >> 32) as u16;
        self.push_to(shard, Op { args, run, hash, command });
        shard
    }

    fn push_to(&mut self, shard: u16, op: Op) {
        let work = self.works[usize::from(shard)].get_or_insert_default();
        if !work.is_pending() {
            self.used.push((shard, false));
        }
        work.push(op);
    }

    // ---- Boxes

    /// Takes the box of a shard. Returns `None` if the shard has no commands to run now.
    pub(crate) fn take_work(&mut self, shard: usize, batch: &Arc<Batch>, resp3: bool) -> Option<Box<Work>> {
        let mut work = self.works[shard].take_if(|work| work.is_due())?;
        work.prepare(batch, resp3);
        Some(work)
    }

    /// Stores the box that a shard has returned.
    pub(crate) fn put_work(&mut self, shard: usize, work: Box<Work>) {
        self.works[shard] = Some(work);
    }

    /// Records that a shard has failed. The box of this shard is lost.
    pub(crate) fn fail(&mut self, shard: usize) {
        let entry = self.used.iter_mut().find(|(used, _)| usize::from(*used) == shard);
        entry.expect("this batch has sent a box to the shard").1 = true;
    }

    fn has_failed(&self, shard: u16) -> bool {
        self.used.contains(&(shard, true))
    }

    // ---- Replies

    /// Appends the replies to `out`, in the order of the commands. After [`Collected::All`], the pipeline is empty.
    pub(crate) fn collect(&mut self, out: &mut Vec<u8>, resp3: bool) -> Collected {
        let array = self.single_array();
        if let Some(replies) = self.replies_of_single_shard(array.is_some()) {
            let was_empty = out.is_empty();
            if let Some(count) = array {
                push_array(out, count);
            }
            if was_empty {
                // The replies can need much memory, so this function does not copy the replies. Instead, the bytes of
                // `out` are inserted in front of the replies, and the buffer of the replies then replaces `out`.
                replies.splice(..0, out.drain(..));
                mem::swap(out, replies);
            } else {
                out.extend_from_slice(replies);
            }
            self.clear();
            return Collected::All;
        }
        while let Some(piece) = self.pieces.get(self.cursor.piece).copied() {
            match piece {
                Piece::Local(end) => {
                    out.extend_from_slice(&self.local[self.cursor.local..end]);
                    self.cursor.local = end;
                }
                Piece::Shard(shard) => match self.next_reply(shard) {
                    Some(reply) => out.extend_from_slice(reply),
                    None => return Collected::Part,
                },
                Piece::Merged { merge, count, request } => {
                    if !self.merge(merge, count, out) {
                        return Collected::Part;
                    }
                    let Merged { sums, failed, .. } = mem::take(&mut self.cursor.merged);
                    match merge {
                        Merge::Array => {}
                        _ if failed => out.extend_from_slice(FAILED),
                        Merge::Sum => Encoder::new(out, resp3).int(sums[0]),
                        Merge::Ok => Encoder::new(out, resp3).ok(),
                        Merge::Info => {
                            self.cursor.piece += 1;
                            return Collected::Info { keys: sums[0], expiring: sums[1], request };
                        }
                    }
                }
            }
            self.cursor.piece += 1;
        }
        self.clear();
        Collected::All
    }

    /// Returns the number of elements of the reply if the pipeline consists of one command whose reply is an array.
    fn single_array(&self) -> Option<u32> {
        match self.pieces[..] {
            [Piece::Merged { merge: Merge::Array, count, .. }] if self.cursor.merged.count == 0 => Some(count),
            _ => None,
        }
    }

    /// Returns the replies of all commands if only one shard was used and all its replies are complete. `is_array` is
    /// true if these replies are the elements of one array.
    fn replies_of_single_shard(&mut self, is_array: bool) -> Option<&mut Vec<u8>> {
        let [(shard, false)] = self.used[..] else { return None };
        if self.cursor.piece > 0 || !(self.routes.is_empty() || is_array) || !self.local.is_empty() {
            return None;
        }
        let work = self.works[usize::from(shard)].as_deref_mut()?;
        if work.is_pending() { None } else { Some(work.all_replies()) }
    }

    /// Merges the next replies. Returns false if a reply is missing.
    fn merge(&mut self, merge: Merge, count: u32, out: &mut Vec<u8>) -> bool {
        if merge == Merge::Array && self.cursor.merged.count == 0 {
            push_array(out, count);
            // If a reply is missing, `merge` is called again. Because of this count, the next call of `merge` does not
            // write the header again.
            self.cursor.merged.count = 1;
        }
        let begun = u32::from(merge == Merge::Array);
        while self.cursor.merged.count < count + begun {
            let shard = self.routes[self.cursor.route];
            let mut merged = mem::take(&mut self.cursor.merged);
            let Some(reply) = self.next_reply(shard) else {
                self.cursor.merged = merged;
                return false;
            };
            if merge == Merge::Array {
                out.extend_from_slice(reply);
            } else if reply.starts_with(b"-") {
                merged.failed = true;
            } else {
                let numbers = reply.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b":"));
                let numbers = numbers.filter_map(|line| parse_int(line.strip_suffix(b"\r")?));
                merged.sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
            }
            merged.count += 1;
            self.cursor.merged = merged;
            self.cursor.route += 1;
        }
        true
    }

    fn next_reply(&mut self, shard: u16) -> Option<&[u8]> {
        if self.has_failed(shard) {
            return Some(FAILED);
        }
        self.works[usize::from(shard)].as_mut()?.next_reply()
    }

    fn clear(&mut self) {
        for (shard, _) in self.used.drain(..) {
            if let Some(work) = &mut self.works[usize::from(shard)] {
                work.clear();
            }
        }
        // An idle connection keeps these vectors, so their memory must be bounded.
        self.pieces.clear();
        self.pieces.shrink_to(KEPT_PIECES);
        self.routes.clear();
        self.routes.shrink_to(KEPT_PIECES);
        self.local.clear();
        self.local.shrink_to(KEPT);
        self.cursor = Cursor::default();
    }
}

/// Writes the header of an array.
fn push_array(out: &mut Vec<u8>, count: u32) {
    out.push(b'*');
    push_int(out, count.into());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::keys;

    #[test]
    fn an_empty_pipeline_keeps_no_large_buffer() {
        const COUNT: usize = 10 * KEPT_PIECES;
        let mut pipeline = Pipeline::new(FixedState::with_seed(1), 1);
        for _ in 0..COUNT {
            let shard = pipeline.push(b"a", Request { first: 0, count: 1 }, keys::del, 0);
            pipeline.routes.push(shard);
            pipeline.pieces.push(Piece::Shard(shard));
        }
        pipeline.local().resize(10 * KEPT, b'x');
        pipeline.clear();
        let Pipeline { pieces, routes, local, works, .. } = &pipeline;
        assert!(pieces.capacity().max(routes.capacity()) <= KEPT_PIECES && local.capacity() <= KEPT);
        assert!(works[0].as_ref().expect("a box").bytes_kept() <= 64 * KEPT_PIECES);
    }
}

//! The types of commands, and the errors of commands. A command with keys runs in the shards of its keys. The
//! submodules contain the functions of these commands. A command without keys runs in the connection: see `session` and
//! `pubsub`.

pub(crate) mod hashes;
pub(crate) mod keys;
pub(crate) mod lists;
pub(crate) mod sets;
pub(crate) mod strings;
mod table;

use std::borrow::Cow;

use procession::Instant;

pub(crate) use table::{TABLE, find};

use crate::resp::{Args, Encoder, parse_int};
use crate::session::{Session, SessionCall};
use crate::store::{Key, Store, WrongType};

/// Entry of a command in the table: the function of the command, and the description of the command in the reply to
/// `COMMAND`.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    /// Number of arguments, including the name. A negative number `-n` means at least `n` arguments.
    pub(crate) arity: i32,
    /// The flags, separated by blanks.
    pub(crate) flags: &'static str,
    /// Index of the first key, index of the last key (-1 means the last argument), and distance between two keys.
    pub(crate) keys: (i32, i32, i32),
    pub(crate) group: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) run: Run,
    /// The subcommands, with their arities. The list is empty if the command has no subcommands.
    pub(crate) subcommands: &'static [(&'static str, i32)],
}

impl Spec {
    pub(crate) fn accepts(&self, args: Args<'_>) -> bool {
        accepts(self.arity, args)
    }

    /// Returns the names of the command and of the subcommand, for example `client|id`. Returns an error if the
    /// subcommand does not exist, or if the number of arguments is wrong for the subcommand.
    pub(crate) fn full_name(&self, args: Args<'_>) -> Result<Cow<'static, str>, Failure> {
        if self.subcommands.is_empty() || args.len() < 2 {
            return Ok(self.name.into());
        }
        let Some((sub, arity)) = self.subcommands.iter().find(|(sub, _)| args.is(1, sub)) else {
            return Err(unknown_subcommand(args));
        };
        let name = format!("{}|{sub}", self.name);
        if accepts(*arity, args) { Ok(name.into()) } else { Err(wrong_arity(&name)) }
    }

    /// Returns the error for a wrong number of arguments.
    pub(crate) fn wrong_arity(&self) -> Failure {
        wrong_arity(self.name)
    }
}

fn accepts(arity: i32, args: Args<'_>) -> bool {
    let count = arity.unsigned_abs() as usize;
    if arity < 0 { args.len() >= count } else { args.len() == count }
}

/// Place where a command runs, and the function that runs the command there.
#[derive(Debug)]
pub(crate) enum Run {
    /// The command runs in the shard of its key, which is the first argument.
    Key(ShardFn),
    /// The command runs once for each key, in the shard of this key. Each run gets the key and, for `MSET`, the value
    /// of the key.
    EachKey(ShardFn, Merge),
    /// The command runs in each shard, after a check of the arguments.
    EachShard(fn(Args<'_>) -> Answer, ShardFn, Merge),
    /// The command runs in the connection, at any time before or after the other commands of the batch.
    Local(fn(&Session, Args<'_>, &mut Encoder<'_>) -> Answer),
    /// The command runs in the connection, after all earlier commands.
    Session(fn(&mut SessionCall<'_>) -> Answer),
}

/// Rule that merges the replies of several shards into one reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merge {
    /// The reply is the sum of the integers of all replies.
    Sum,
    /// The reply is an array of all replies, in the order of the keys.
    Array,
    /// The reply is `OK`.
    Ok,
    /// The reply is the text of `INFO`. Each shard replies with two integers: the number of its keys, and the number of
    /// its keys that expire.
    Info,
}

pub(crate) type ShardFn = fn(&mut Call<'_>) -> Answer;

/// Result of a command. A command that succeeds has written a reply. A command that fails has written nothing.
pub(crate) type Answer = Result<(), Failure>;

/// An error reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure(pub(crate) Cow<'static, str>);

impl From<&'static str> for Failure {
    fn from(text: &'static str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<WrongType> for Failure {
    fn from(_: WrongType) -> Self {
        "WRONGTYPE Operation against a key holding the wrong kind of value".into()
    }
}

pub(crate) const SYNTAX: &str = "ERR syntax error";
pub(crate) const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

pub(crate) fn wrong_arity(name: &str) -> Failure {
    format!("ERR wrong number of arguments for '{name}' command").into()
}

/// Returns the error for a command that is not in the table. As in Redis, the error quotes at most 128 bytes of the
/// name and about 128 bytes of the arguments.
pub(crate) fn unknown_command(args: Args<'_>) -> Vec<u8> {
    let cut = |text: &[u8], most: usize| text[..text.len().min(most)].to_vec();
    let mut quoted = Vec::new();
    for arg in args.from(1) {
        if quoted.len() >= 128 {
            break;
        }
        let most = 128 - quoted.len();
        quoted.push(b'\'');
        quoted.extend(cut(arg, most));
        quoted.extend(b"' ");
    }
    let name = cut(args.get(0), 128);
    [b"ERR unknown command '", &*name, b"', with args beginning with: ", &quoted].concat()
}

fn unknown_subcommand(args: Args<'_>) -> Failure {
    let sub = args.get(1);
    let sub = String::from_utf8_lossy(&sub[..sub.len().min(128)]);
    let command = String::from_utf8_lossy(args.get(0)).to_uppercase();
    format!("ERR unknown subcommand '{sub}'. Try {command} HELP.").into()
}

pub(crate) fn integer(text: &[u8]) -> Result<i64, Failure> {
    parse_int(text).ok_or_else(|| NOT_AN_INTEGER.into())
}

/// Parses a count of elements. Like Redis, the function also accepts zero.
pub(crate) fn positive(text: &[u8]) -> Result<usize, Failure> {
    let count = parse_int(text).and_then(|count| usize::try_from(count).ok());
    count.ok_or_else(|| "ERR value is out of range, must be positive".into())
}

/// A call of a command in a shard.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) store: &'a mut Store,
    /// The arguments, beginning with the key. The name of the command is not included. If the command has no key, there
    /// are no arguments.
    pub(crate) args: Args<'a>,
    /// Hash of the key.
    pub(crate) hash: u64,
    pub(crate) now: Instant,
    pub(crate) reply: Encoder<'a>,
}

impl<'a> Call<'a> {
    pub(crate) fn key(&self) -> Key<'a> {
        Key { bytes: self.args.get(0), hash: self.hash }
    }
}

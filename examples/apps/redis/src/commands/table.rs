//! The table of commands, and the function that finds a command by its name.

use crate::commands::{Merge, Run, Spec, hashes, keys, lists, sets, strings};
use crate::{pubsub, session};

const NONE: (i32, i32, i32) = (0, 0, 0);
const FIRST: (i32, i32, i32) = (1, 1, 1);
const ALL: (i32, i32, i32) = (1, -1, 1);
const PAIRS: (i32, i32, i32) = (1, -1, 2);

const READ: &str = "readonly fast";
const READ_SLOW: &str = "readonly";
const WRITE: &str = "write fast";
const ADD: &str = "write denyoom fast";
const ADD_SLOW: &str = "write denyoom";
const CONNECTION: &str = "noscript loading stale fast";
const PUBSUB: &str = "pubsub noscript loading stale";

const fn spec(
    name: &'static str,
    arity: i32,
    (flags, keys, group): (&'static str, (i32, i32, i32), &'static str),
    summary: &'static str,
    run: Run,
) -> Spec {
    Spec { name, arity, flags, keys, group, summary, run, subcommands: &[] }
}

impl Spec {
    const fn with(mut self, subcommands: &'static [(&'static str, i32)]) -> Self {
        self.subcommands = subcommands;
        self
    }
}

const CLIENT: &[(&str, i32)] = &[
    ("getname", 2),
    ("id", 2),
    ("info", 2),
    ("kill", -3),
    ("list", -2),
    ("no-evict", 3),
    ("no-touch", 3),
    ("setinfo", 4),
    ("setname", 3),
];
const COMMAND: &[(&str, i32)] = &[("count", 2), ("docs", -2), ("info", -2), ("list", -2)];
const CONFIG: &[(&str, i32)] = &[("get", -3), ("set", -4)];

/// The commands of the server.
pub(crate) const TABLE: &[Spec] = &[
    // ---- Keys
    spec("del", -2, ("write", ALL, "generic"), "Delete a key", Run::EachKey(keys::del, Merge::Sum)),
    spec("exists", -2, (READ, ALL, "generic"), "Determine if a key exists", Run::EachKey(keys::exists, Merge::Sum)),
    spec("expire", -3, (WRITE, FIRST, "generic"), "Set a key's time to live in seconds", Run::Key(keys::expire)),
    spec("pexpire", -3, (WRITE, FIRST, "generic"), "Set a key's time to live in milliseconds", Run::Key(keys::pexpire)),
    spec("ttl", 2, (READ, FIRST, "generic"), "Get the time to live for a key in seconds", Run::Key(keys::ttl)),
    spec("pttl", 2, (READ, FIRST, "generic"), "Get the time to live for a key in milliseconds", Run::Key(keys::pttl)),
    spec("persist", 2, (WRITE, FIRST, "generic"), "Remove the expiration from a key", Run::Key(keys::persist)),
    spec("type", 2, (READ, FIRST, "generic"), "Determine the type stored at key", Run::Key(keys::type_)),
    spec(
        "dbsize",
        1,
        (READ, NONE, "server"),
        "Return the number of keys in the selected database",
        Run::EachShard(keys::any, keys::dbsize, Merge::Sum),
    ),
    spec(
        "flushall",
        -1,
        ("write", NONE, "server"),
        "Remove all keys from all databases",
        Run::EachShard(keys::flush_syntax, keys::flush, Merge::Ok),
    ),
    spec(
        "flushdb",
        -1,
        ("write", NONE, "server"),
        "Remove all keys from the current database",
        Run::EachShard(keys::flush_syntax, keys::flush, Merge::Ok),
    ),
    // ---- Strings
    spec("append", 3, (ADD, FIRST, "string"), "Append a value to a key", Run::Key(strings::append)),
    spec("decr", 2, (ADD, FIRST, "string"), "Decrement the integer value of a key by one", Run::Key(strings::decr)),
    spec(
        "decrby",
        3,
        (ADD, FIRST, "string"),
        "Decrement the integer value of a key by the given number",
        Run::Key(strings::decrby),
    ),
    spec("get", 2, (READ, FIRST, "string"), "Get the value of a key", Run::Key(strings::get)),
    spec("incr", 2, (ADD, FIRST, "string"), "Increment the integer value of a key by one", Run::Key(strings::incr)),
    spec(
        "incrby",
        3,
        (ADD, FIRST, "string"),
        "Increment the integer value of a key by the given amount",
        Run::Key(strings::incrby),
    ),
    spec(
        "mget",
        -2,
        (READ, ALL, "string"),
        "Get the values of all the given keys",
        Run::EachKey(strings::mget, Merge::Array),
    ),
    spec(
        "mset",
        -3,
        (ADD_SLOW, PAIRS, "string"),
        "Set multiple keys to multiple values",
        Run::EachKey(strings::mset, Merge::Ok),
    ),
    spec("set", -3, (ADD_SLOW, FIRST, "string"), "Set the string value of a key", Run::Key(strings::set)),
    spec(
        "strlen",
        2,
        (READ, FIRST, "string"),
        "Get the length of the value stored in a key",
        Run::Key(strings::strlen),
    ),
    // ---- Lists
    spec("llen", 2, (READ, FIRST, "list"), "Get the length of a list", Run::Key(lists::llen)),
    spec("lpop", -2, (WRITE, FIRST, "list"), "Remove and get the first elements in a list", Run::Key(lists::lpop)),
    spec("lpush", -3, (ADD, FIRST, "list"), "Prepend one or multiple elements to a list", Run::Key(lists::lpush)),
    spec("lrange", 4, (READ_SLOW, FIRST, "list"), "Get a range of elements from a list", Run::Key(lists::lrange)),
    spec("rpop", -2, (WRITE, FIRST, "list"), "Remove and get the last elements in a list", Run::Key(lists::rpop)),
    spec("rpush", -3, (ADD, FIRST, "list"), "Append one or multiple elements to a list", Run::Key(lists::rpush)),
    // ---- Hashes
    spec("hdel", -3, (WRITE, FIRST, "hash"), "Delete one or more hash fields", Run::Key(hashes::hdel)),
    spec("hget", 3, (READ, FIRST, "hash"), "Get the value of a hash field", Run::Key(hashes::hget)),
    spec(
        "hgetall",
        2,
        (READ_SLOW, FIRST, "hash"),
        "Get all the fields and values in a hash",
        Run::Key(hashes::hgetall),
    ),
    spec("hlen", 2, (READ, FIRST, "hash"), "Get the number of fields in a hash", Run::Key(hashes::hlen)),
    spec("hset", -4, (ADD, FIRST, "hash"), "Set the string value of a hash field", Run::Key(hashes::hset)),
    // ---- Sets
    spec("sadd", -3, (ADD, FIRST, "set"), "Add one or more members to a set", Run::Key(sets::sadd)),
    spec("scard", 2, (READ, FIRST, "set"), "Get the number of members in a set", Run::Key(sets::scard)),
    spec("sismember", 3, (READ, FIRST, "set"), "Determine if a value is a member of a set", Run::Key(sets::sismember)),
    spec("smembers", 2, (READ_SLOW, FIRST, "set"), "Get all the members in a set", Run::Key(sets::smembers)),
    spec(
        "spop",
        -2,
        (WRITE, FIRST, "set"),
        "Remove and return one or multiple random members from a set",
        Run::Key(sets::spop),
    ),
    spec("srem", -3, (WRITE, FIRST, "set"), "Remove one or more members from a set", Run::Key(sets::srem)),
    // ---- Publish and subscribe
    spec(
        "publish",
        3,
        ("pubsub loading stale fast", NONE, "pubsub"),
        "Post a message to a channel",
        Run::Session(pubsub::publish),
    ),
    spec(
        "subscribe",
        -2,
        (PUBSUB, NONE, "pubsub"),
        "Listen for messages published to channels",
        Run::Session(pubsub::subscribe),
    ),
    spec(
        "unsubscribe",
        -1,
        (PUBSUB, NONE, "pubsub"),
        "Stop listening for messages posted to channels",
        Run::Session(pubsub::unsubscribe),
    ),
    // ---- Connection and server
    spec(
        "client",
        -2,
        ("", NONE, "connection"),
        "A container for client connection commands",
        Run::Session(session::client),
    )
    .with(CLIENT),
    spec("command", -1, ("loading stale", NONE, "server"), "Get details about commands", Run::Local(session::command))
        .with(COMMAND),
    spec(
        "config",
        -2,
        ("", NONE, "server"),
        "A container for server configuration commands",
        Run::Local(session::config),
    )
    .with(CONFIG),
    spec("echo", 2, ("fast", NONE, "connection"), "Echo the given string", Run::Local(session::echo)),
    spec("hello", -1, (CONNECTION, NONE, "connection"), "Handshake with the server", Run::Session(session::hello)),
    spec(
        "info",
        -1,
        ("loading stale", NONE, "server"),
        "Get information and statistics about the server",
        Run::EachShard(keys::any, keys::count, Merge::Info),
    ),
    spec("ping", -1, ("fast", NONE, "connection"), "Ping the server", Run::Local(session::ping)),
    spec("quit", -1, (CONNECTION, NONE, "connection"), "Close the connection", Run::Session(session::quit)),
    spec(
        "select",
        2,
        ("loading stale fast", NONE, "connection"),
        "Change the selected database",
        Run::Local(session::select),
    ),
];

/// Number of places of the index. The number is a power of two, and more than twice the number of commands.
const PLACES: usize = 256;
const FREE: u8 = u8::MAX;

/// Hash index of the table, with open addressing. The hash of the name of a command selects a place. If this place is
/// already taken, the command gets the next free place. The place of each command contains the index of this command in
/// the table.
static INDEX: [u8; PLACES] = index();

const fn index() -> [u8; PLACES] {
    assert!(TABLE.len() * 2 < PLACES, "the index has too few places");
    let mut index = [FREE; PLACES];
    let mut number = 0;
    while number < TABLE.len() {
        let mut place = place(pack(TABLE[number].name.as_bytes()));
        while index[place] != FREE {
            place = (place + 1) % PLACES;
        }
        index[place] = number as u8;
        number += 1;
    }
    index
}

/// The names of the commands, packed into integers. So one comparison of two integers compares two names.
static PACKED: [u128; TABLE.len()] = {
    let mut packed = [0; TABLE.len()];
    let mut number = 0;
    while number < TABLE.len() {
        packed[number] = pack(TABLE[number].name.as_bytes());
        number += 1;
    }
    packed
};

/// Packs a name of at most 15 bytes into a number, in lower case. The number has a 1 bit directly above the first byte
/// of the name. The position of this bit shows the length of the name. Returns zero for a longer name.
const fn pack(name: &[u8]) -> u128 {
    if name.len() > 15 {
        return 0;
    }
    let (mut packed, mut at) = (1_u128, 0);
    while at < name.len() {
        packed = packed << 8 | name[at].to_ascii_lowercase() as u128;
        at += 1;
    }
    packed
}

const fn place(packed: u128) -> usize {
    let folded = packed as u64 ^ (packed >> 64) as u64;
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}

/// Returns the command with this name. The comparison ignores case.
pub(crate) fn find(name: &[u8]) -> Option<&'static Spec> {
    let packed = pack(name);
    let mut place = place(packed);
    loop {
        match INDEX[place] {
            FREE => return None,
            number if PACKED[number as usize] == packed => return Some(&TABLE[number as usize]),
            _ => place = (place + 1) % PLACES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_found_by_its_name_in_any_case() {
        for spec in TABLE {
            assert_eq!(find(spec.name.as_bytes()).map(|found| found.name), Some(spec.name));
            assert_eq!(find(spec.name.to_uppercase().as_bytes()).map(|found| found.name), Some(spec.name));
        }
        for unknown in ["", "ge", "gett", "\0get", "abcdefghijklmnopq", "getget"] {
            assert!(find(unknown.as_bytes()).is_none(), "{unknown:?}");
        }
    }

    #[test]
    fn the_keys_of_a_command_match_the_place_where_the_command_runs() {
        for spec in TABLE {
            let expected = match spec.run {
                Run::Key(_) => spec.keys == FIRST,
                Run::EachKey(..) => spec.keys == ALL || spec.keys == PAIRS,
                _ => spec.keys == NONE,
            };
            assert!(expected, "{}", spec.name);
        }
    }
}

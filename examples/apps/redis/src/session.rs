//! The state of a client, and the commands that need no keys, for example `HELLO`, `CLIENT`, `CONFIG`, `COMMAND` and
//! `INFO`.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use procession::{Mailbox, SelfHandle};

use crate::commands::{Answer, Failure, SYNTAX, Spec, TABLE, find, integer, wrong_arity};
use crate::pubsub::Mail;
use crate::resp::{Args, Encoder, parse_int};
use crate::server::Server;
use crate::store::Bytes;

/// The version of Redis whose commands and texts this server copies.
const VERSION: &str = "7.0.15";

/// State of a client.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) id: u64,
    pub(crate) resp3: bool,
    pub(crate) name: Vec<u8>,
    /// The names of the channels to which the client has subscribed.
    pub(crate) channels: BTreeSet<Bytes>,
    /// Number of bytes of the channel messages in the mailbox.
    pub(crate) unread: Arc<AtomicUsize>,
    /// True if the connection must close after the connection has sent the replies.
    pub(crate) is_closing: bool,
}

impl Session {
    /// Returns an error if the present state of the client does not permit this command. A client of version 2 cannot
    /// distinguish a reply from a message. Therefore, while a client of version 2 is subscribed to a channel, the
    /// client may send only a few commands.
    pub(crate) fn allows(&self, spec: &Spec, args: Args<'_>) -> Result<(), Failure> {
        if self.resp3 || self.channels.is_empty() || matches!(spec.name, "ping" | "quit" | "subscribe" | "unsubscribe")
        {
            return Ok(());
        }
        let context = "only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context";
        Err(format!("ERR Can't execute '{}': {context}", spec.full_name(args)?).into())
    }
}

/// A call of a command. The command changes the state of the calling client, or acts on other processes.
#[derive(Debug)]
pub(crate) struct SessionCall<'a> {
    pub(crate) args: Args<'a>,
    pub(crate) session: &'a mut Session,
    pub(crate) server: &'a Server,
    /// Handle of the process of the connection.
    pub(crate) me: &'a SelfHandle<Mail>,
    /// Mailbox of this process.
    pub(crate) mailbox: &'a mut Mailbox<Mail>,
    pub(crate) out: &'a mut Vec<u8>,
}

impl SessionCall<'_> {
    pub(crate) fn reply(&mut self) -> Encoder<'_> {
        Encoder::new(self.out, self.session.resp3)
    }
}

// ---- Commands that only read

pub(crate) fn ping(session: &Session, args: Args<'_>, reply: &mut Encoder<'_>) -> Answer {
    if args.len() > 2 {
        return Err(wrong_arity("ping"));
    }
    let text = args.from(1).next();
    if !session.channels.is_empty() && !session.resp3 {
        reply.array(2);
        reply.bulk("pong");
        reply.bulk(text.unwrap_or_default());
    } else if let Some(text) = text {
        reply.bulk(text);
    } else {
        reply.simple("PONG");
    }
    Ok(())
}

pub(crate) fn echo(_: &Session, args: Args<'_>, reply: &mut Encoder<'_>) -> Answer {
    reply.bulk(args.get(1));
    Ok(())
}

/// Accepts only the number 0, because the server has one database.
pub(crate) fn select(_: &Session, args: Args<'_>, reply: &mut Encoder<'_>) -> Answer {
    match i32::try_from(integer(args.get(1))?) {
        Ok(0) => {
            reply.ok();
            Ok(())
        }
        Ok(_) => Err("ERR DB index is out of range".into()),
        Err(_) => Err("ERR value is out of range, value must between -2147483648 and 2147483647".into()),
    }
}

/// The settings that `CONFIG GET` returns. A client cannot change these settings.
const SETTINGS: &[(&str, &str)] = &[
    ("appendonly", "no"),
    ("databases", "1"),
    ("maxmemory", "0"),
    ("proto-max-bulk-len", "536870912"),
    ("save", ""),
    ("timeout", "0"),
];

pub(crate) fn config(_: &Session, args: Args<'_>, reply: &mut Encoder<'_>) -> Answer {
    if args.is(1, "get") {
        let is_wanted = |name: &str| args.from(2).any(|pattern| matches(pattern, name.as_bytes()));
        let found: Vec<_> = SETTINGS.iter().filter(|(name, _)| is_wanted(name)).collect();
        reply.map(found.len());
        for (name, value) in found {
            reply.bulk(name);
            reply.bulk(value);
        }
        Ok(())
    } else {
        let name = String::from_utf8_lossy(args.get(2));
        Err(format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'").into())
    }
}

/// Returns true if a pattern matches a name. The comparison ignores case. As in Redis, a pattern without `*`, `?` and
/// `[` must be equal to the name.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    if !pattern.iter().any(|byte| b"*?[".contains(byte)) {
        return pattern.eq_ignore_ascii_case(name);
    }
    // The variable `star` contains two positions: the position in `pattern` after the last `*`, and the position in
    // `name` from which the rest of the pattern is compared.
    let (mut at, mut rest, mut star) = (0, 0, None);
    while rest < name.len() {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            star = Some((at, rest));
            continue;
        }
        match matches_byte(&pattern[at..], name[rest]) {
            Some(length) => {
                at += length;
                rest += 1;
            }
            None => {
                let Some((after, from)) = star else { return false };
                star = Some((after, from + 1));
                (at, rest) = (after, from + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Compares a byte with the first element of a pattern: a byte, an escaped byte, `?`, or a class such as `[^a-z]`.
/// Returns the length of the element, or `None` if the element does not match.
fn matches_byte(pattern: &[u8], byte: u8) -> Option<usize> {
    let (is_match, length) = match pattern {
        [] => return None,
        [b'?', ..] => (true, 1),
        [b'\\', escaped, ..] => (escaped.eq_ignore_ascii_case(&byte), 2),
        [b'[', ..] => matches_class(pattern, byte),
        [plain, ..] => (plain.eq_ignore_ascii_case(&byte), 1),
    };
    is_match.then_some(length)
}

/// Compares a byte with the class at the start of a pattern. Also returns the length of the class. The end of the
/// pattern also ends the class.
fn matches_class(pattern: &[u8], byte: u8) -> (bool, usize) {
    let is_negated = pattern.get(1) == Some(&b'^');
    let (mut at, mut found) = (if is_negated { 2 } else { 1 }, false);
    let byte = byte.to_ascii_lowercase();
    loop {
        match &pattern[at..] {
            [] => return (found != is_negated, at),
            [b']', ..] => return (found != is_negated, at + 1),
            [b'\\', escaped, ..] => {
                found |= escaped.eq_ignore_ascii_case(&byte);
                at += 2;
            }
            [from, b'-', to, ..] => {
                let (from, to) = (from.to_ascii_lowercase(), to.to_ascii_lowercase());
                found |= (from.min(to)..=from.max(to)).contains(&byte);
                at += 3;
            }
            [plain, ..] => {
                found |= plain.eq_ignore_ascii_case(&byte);
                at += 1;
            }
        }
    }
}

pub(crate) fn command(_: &Session, args: Args<'_>, reply: &mut Encoder<'_>) -> Answer {
    let sub = args.from(1).next().unwrap_or_default().to_ascii_lowercase();
    match (sub.as_slice(), args.len()) {
        (_, 1) | (b"info", 2) => {
            reply.array(TABLE.len());
            TABLE.iter().for_each(|spec| describe(spec, reply));
        }
        (b"info", _) => {
            reply.array(args.len() - 2);
            for name in args.from(2) {
                match find(name) {
                    Some(spec) => describe(spec, reply),
                    None => reply.null(),
                }
            }
        }
        (b"count", _) => reply.int(TABLE.len() as i64),
        (b"list", 2) => {
            reply.array(TABLE.len());
            TABLE.iter().for_each(|spec| reply.bulk(spec.name));
        }
        (b"docs", _) => {
            let mut specs: Vec<_> = args.from(2).filter_map(find).collect();
            if args.len() == 2 {
                specs.extend(TABLE);
            }
            reply.map(specs.len());
            specs.into_iter().for_each(|spec| document(spec, reply));
        }
        _ => return Err(SYNTAX.into()),
    }
    Ok(())
}

/// Writes the entry of a command in the reply to `COMMAND`.
fn describe(spec: &Spec, reply: &mut Encoder<'_>) {
    let flags = || spec.flags.split_ascii_whitespace();
    reply.array(10);
    reply.bulk(spec.name);
    reply.int(spec.arity.into());
    reply.array(flags().count());
    flags().for_each(|flag| reply.simple(flag));
    for index in [spec.keys.0, spec.keys.1, spec.keys.2] {
        reply.int(index.into());
    }
    let access = flags().find_map(|flag| match flag {
        "readonly" => Some("@read"),
        "write" => Some("@write"),
        _ => None,
    });
    let speed = if flags().any(|flag| flag == "fast") { "@fast" } else { "@slow" };
    reply.array(2 + usize::from(access.is_some()));
    access.into_iter().for_each(|access| reply.simple(access));
    reply.simple(&format!("@{}", if spec.group == "generic" { "keyspace" } else { spec.group }));
    reply.simple(speed);
    // The three arrays are the tips, the key specifications, and the subcommands of the command.
    (0..3).for_each(|_| reply.array(0));
}

/// Writes the entry of a command in the reply to `COMMAND DOCS`.
fn document(spec: &Spec, reply: &mut Encoder<'_>) {
    reply.bulk(spec.name);
    reply.map(3);
    for (name, text) in [("summary", spec.summary), ("since", "1.0.0"), ("group", spec.group)] {
        reply.bulk(name);
        reply.bulk(text);
    }
}

/// Writes the reply to `INFO`. The shards have counted two numbers: all keys (`keys`), and the keys that expire
/// (`expiring`).
pub(crate) fn info(server: &Server, args: Args<'_>, (keys, expiring): (i64, i64), reply: &mut Encoder<'_>) {
    let is_wanted = |section: &str| {
        args.len() == 1
            || args.from(1).any(|wanted| {
                wanted.eq_ignore_ascii_case(section.as_bytes())
                    || ["all", "default", "everything"].iter().any(|all| wanted.eq_ignore_ascii_case(all.as_bytes()))
            })
    };
    let stats = server.stats();
    let mut text = String::new();
    let mut section = |name: &str, lines: &[(&str, String)]| {
        if !is_wanted(name) {
            return;
        }
        let gap = if text.is_empty() { "" } else { "\r\n" };
        let _ = write!(text, "{gap}# {name}\r\n");
        for (name, value) in lines {
            let _ = write!(text, "{name}:{value}\r\n");
        }
    };
    section(
        "Server",
        &[
            ("redis_version", VERSION.into()),
            ("redis_mode", "standalone".into()),
            ("process_id", std::process::id().to_string()),
            ("tcp_port", server.config().port.to_string()),
            ("uptime_in_seconds", stats.uptime.as_secs().to_string()),
        ],
    );
    section(
        "Clients",
        &[
            ("connected_clients", stats.clients.to_string()),
            ("maxclients", server.config().max_connections.to_string()),
            // No command of this server waits for another client.
            ("blocked_clients", "0".into()),
        ],
    );
    // `redis-cli --stat` reads these fields. The server neither loads nor saves a file.
    let persistence = ["loading", "rdb_bgsave_in_progress", "aof_rewrite_in_progress"].map(|name| (name, "0".into()));
    section("Persistence", &persistence);
    section(
        "Stats",
        &[
            ("total_connections_received", stats.connections.to_string()),
            ("total_commands_processed", stats.commands.to_string()),
        ],
    );
    section("Runtime", &[("shards", server.config().shards.to_string()), ("processes", stats.processes.to_string())]);
    let keyspace = [("db0", format!("keys={keys},expires={expiring},avg_ttl=0"))];
    section("Keyspace", if keys == 0 { &[] } else { &keyspace });
    reply.verbatim(&text);
}

// ---- Commands that change the session, or act on other processes

pub(crate) fn quit(call: &mut SessionCall<'_>) -> Answer {
    call.reply().ok();
    call.session.is_closing = true;
    Ok(())
}

pub(crate) fn hello(call: &mut SessionCall<'_>) -> Answer {
    let args = call.args;
    let mut resp3 = call.session.resp3;
    if args.len() > 1 {
        resp3 = match parse_int(args.get(1)) {
            Some(2) => false,
            Some(3) => true,
            Some(_) => return Err("NOPROTO unsupported protocol version".into()),
            None => return Err("ERR Protocol version is not an integer or out of range".into()),
        };
    }
    // As in Redis 7.0, `HELLO` applies each option before it checks the next option. An error does not undo the earlier
    // options.
    let mut index = 2;
    while index < args.len() {
        if args.is(index, "auth") && index + 2 < args.len() {
            // The default user has no password, so the server accepts any password for this user. There is no other
            // user.
            if args.get(index + 1) != b"default" {
                return Err("WRONGPASS invalid username-password pair or user is disabled.".into());
            }
            index += 3;
        } else if args.is(index, "setname") && index + 1 < args.len() {
            set_name(call, args.get(index + 1))?;
            index += 2;
        } else {
            let option = String::from_utf8_lossy(args.get(index));
            return Err(format!("ERR Syntax error in HELLO option '{option}'").into());
        }
    }
    call.session.resp3 = resp3;
    call.server.update_client(call.session);
    let (id, proto) = (call.session.id, if resp3 { 3 } else { 2 });
    let mut reply = call.reply();
    reply.map(7);
    reply.bulk("server");
    reply.bulk("redis");
    reply.bulk("version");
    reply.bulk(VERSION);
    reply.bulk("proto");
    reply.int(proto);
    reply.bulk("id");
    reply.int(id as i64);
    reply.bulk("mode");
    reply.bulk("standalone");
    reply.bulk("role");
    reply.bulk("master");
    reply.bulk("modules");
    reply.array(0);
    Ok(())
}

fn set_name(call: &mut SessionCall<'_>, name: &[u8]) -> Answer {
    if !name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Err("ERR Client names cannot contain spaces, newlines or special characters.".into());
    }
    call.session.name = name.to_vec();
    call.server.update_client(call.session);
    Ok(())
}

pub(crate) fn client(call: &mut SessionCall<'_>) -> Answer {
    let args = call.args;
    match args.get(1).to_ascii_lowercase().as_slice() {
        b"id" => {
            let id = call.session.id as i64;
            call.reply().int(id);
        }
        b"getname" => {
            let name = call.session.name.clone();
            if name.is_empty() { call.reply().null() } else { call.reply().bulk(name) }
        }
        b"setname" => {
            set_name(call, args.get(2))?;
            call.reply().ok();
        }
        b"setinfo" => call.reply().ok(),
        b"no-evict" | b"no-touch" => {
            if !args.is(2, "on") && !args.is(2, "off") {
                return Err(SYNTAX.into());
            }
            call.reply().ok();
        }
        b"info" => {
            let text = call.server.list_clients_by_id([call.session.id]);
            call.reply().verbatim(&text);
        }
        b"list" => {
            let text = list(call.server, args)?;
            call.reply().verbatim(&text);
        }
        b"kill" if args.len() == 4 && args.is(2, "id") => {
            let id = parse_int(args.get(3)).and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0);
            let id = id.ok_or("ERR client-id should be greater than 0")?;
            // As in Redis, `CLIENT KILL ID` never kills the client that has sent the command.
            let killed = id != call.session.id && call.server.kill_client(id);
            call.reply().int(killed.into());
        }
        _ => return Err(SYNTAX.into()),
    }
    Ok(())
}

/// Returns the reply to `CLIENT LIST`.
fn list(server: &Server, args: Args<'_>) -> Result<String, Failure> {
    match args.len() {
        2 => Ok(server.list_clients(|_| true)),
        4 if args.is(2, "type") => match args.get(3).to_ascii_lowercase().as_slice() {
            b"normal" => Ok(server.list_clients(|is_subscriber| !is_subscriber)),
            b"pubsub" => Ok(server.list_clients(|is_subscriber| is_subscriber)),
            b"master" | b"replica" | b"slave" => Ok(String::new()),
            _ => Err(format!("ERR Unknown client type '{}'", String::from_utf8_lossy(args.get(3))).into()),
        },
        4.. if args.is(2, "id") => {
            let ids: Option<Vec<_>> = args.from(3).map(parse_int).collect();
            let ids = ids.ok_or("ERR Invalid client ID")?;
            Ok(server.list_clients_by_id(ids.into_iter().filter_map(|id| u64::try_from(id).ok())))
        }
        _ => Err(SYNTAX.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_pattern_matches_a_name() {
        for (pattern, name, expected) in [
            ("save", "save", true),
            ("SAVE", "save", true),
            ("sav", "save", false),
            ("save?", "save", false),
            ("s?ve", "save", true),
            ("*", "", true),
            ("s*", "save", true),
            ("*v*", "save", true),
            ("*a*a*", "save", false),
            ("", "save", false),
            ("*e", "see", true),
            ("[s]ave", "save", true),
            ("[Q-T]ave", "save", true),
            ("[t-q]ave", "save", true),
            ("[^r]ave", "save", true),
            ("[^rs]ave", "save", false),
            ("[r]ave", "save", false),
            ("*[x\\]v]e", "save", true),
            ("s[a", "sa", true),
            ("s\\av*", "save", true),
            ("s\\?v*", "save", false),
            ("s\\ave", "save", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }
}

//! Commands on keys of any type.

use crate::commands::{Answer, Call, Failure, SYNTAX, integer};
use crate::resp::Args;

pub(crate) fn del(call: &mut Call<'_>) -> Answer {
    let deleted = call.store.delete(call.key(), call.now);
    call.reply.int(deleted.into());
    Ok(())
}

pub(crate) fn exists(call: &mut Call<'_>) -> Answer {
    let exists = call.store.value(call.key(), call.now).is_some();
    call.reply.int(exists.into());
    Ok(())
}

pub(crate) fn type_(call: &mut Call<'_>) -> Answer {
    let name = call.store.value(call.key(), call.now).map_or("none", |value| value.type_name());
    call.reply.simple(name);
    Ok(())
}

// ---- Expiry

/// Returns a time to live in milliseconds. Redis refuses a time to live if the time of the expiry, in milliseconds
/// since 1970, does not fit into 64 bits.
pub(crate) fn milliseconds(text: &[u8], unit: i64, command: &str) -> Result<i64, Failure> {
    // This number is larger than the number of milliseconds from 1970 to the present.
    const SINCE_1970: i64 = 1 << 42;
    let ms = integer(text)?.checked_mul(unit).filter(|ms| *ms <= i64::MAX - SINCE_1970);
    ms.ok_or_else(|| format!("ERR invalid expire time in '{command}' command").into())
}

pub(crate) fn expire(call: &mut Call<'_>) -> Answer {
    expire_in(call, 1_000, "expire")
}

pub(crate) fn pexpire(call: &mut Call<'_>) -> Answer {
    expire_in(call, 1, "pexpire")
}

fn expire_in(call: &mut Call<'_>, unit: i64, command: &str) -> Answer {
    let only = Only::parse(call.args)?;
    let ms = milliseconds(call.args.get(1), unit, command)?;
    let (key, now) = (call.key(), call.now);
    let allowed = call.store.ttl(key, now).is_some_and(|present| only.allows(present, ms));
    if allowed {
        match u64::try_from(ms) {
            Ok(ms @ 1..) => call.store.expire(key, now, Some(ms)),
            _ => _ = call.store.delete(key, now),
        }
    }
    call.reply.int(allowed.into());
    Ok(())
}

/// Options of `EXPIRE`: the conditions under which the command has an effect.
#[derive(Default)]
struct Only {
    without: bool,
    with: bool,
    later: bool,
    earlier: bool,
}

impl Only {
    fn parse(args: Args<'_>) -> Result<Self, Failure> {
        let mut only = Self::default();
        for index in 2..args.len() {
            match args.get(index).to_ascii_uppercase().as_slice() {
                b"NX" => only.without = true,
                b"XX" => only.with = true,
                b"GT" => only.later = true,
                b"LT" => only.earlier = true,
                _ => return Err(format!("ERR Unsupported option {}", String::from_utf8_lossy(args.get(index))).into()),
            }
        }
        if only.without && (only.with || only.later || only.earlier) {
            return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
        }
        if only.later && only.earlier {
            return Err("ERR GT and LT options at the same time are not compatible".into());
        }
        Ok(only)
    }

    /// Returns true if a key with the time to live `present` may get the time to live `ms`. A key that never expires
    /// counts as a key with an infinite time to live.
    fn allows(&self, present: Option<u64>, ms: i64) -> bool {
        let is_later = present.is_some_and(|present| ms > present as i64);
        let is_earlier = present.is_none_or(|present| ms < present as i64);
        (!self.without || present.is_none())
            && (!self.with || present.is_some())
            && (!self.later || is_later)
            && (!self.earlier || is_earlier)
    }
}

pub(crate) fn ttl(call: &mut Call<'_>) -> Answer {
    // Like Redis, the command rounds to the nearest second.
    remaining(call, |ms| ms.saturating_add(500) / 1_000)
}

pub(crate) fn pttl(call: &mut Call<'_>) -> Answer {
    remaining(call, |ms| ms)
}

fn remaining(call: &mut Call<'_>, convert: fn(u64) -> u64) -> Answer {
    let reply = match call.store.ttl(call.key(), call.now) {
        None => -2,
        Some(None) => -1,
        Some(Some(ms)) => convert(ms) as i64,
    };
    call.reply.int(reply);
    Ok(())
}

pub(crate) fn persist(call: &mut Call<'_>) -> Answer {
    let (key, now) = (call.key(), call.now);
    let expires = call.store.ttl(key, now).flatten().is_some();
    if expires {
        call.store.expire(key, now, None);
    }
    call.reply.int(expires.into());
    Ok(())
}

// ---- Commands on all keys, which run in each shard

/// Accepts any arguments.
pub(crate) fn any(_: Args<'_>) -> Answer {
    Ok(())
}

pub(crate) fn dbsize(call: &mut Call<'_>) -> Answer {
    call.reply.int(call.store.len() as i64);
    Ok(())
}

/// The part of `INFO` that runs in each shard. Replies with the number of keys and the number of keys that expire.
pub(crate) fn count(call: &mut Call<'_>) -> Answer {
    call.reply.int(call.store.len() as i64);
    call.reply.int(call.store.expiring() as i64);
    Ok(())
}

pub(crate) fn flush_syntax(args: Args<'_>) -> Answer {
    match args.len() {
        1 => Ok(()),
        2 if args.is(1, "sync") || args.is(1, "async") => Ok(()),
        _ => Err(SYNTAX.into()),
    }
}

pub(crate) fn flush(call: &mut Call<'_>) -> Answer {
    call.store.clear();
    call.reply.ok();
    Ok(())
}

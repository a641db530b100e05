//! Commands on strings. A number is a string of digits.

use crate::commands::keys::milliseconds;
use crate::commands::{Answer, Call, Failure, NOT_AN_INTEGER, SYNTAX, integer};
use crate::resp::{Args, parse_int, push_int};

/// Maximum length of a string in bytes.
const LONGEST: usize = 512 << 20;

pub(crate) fn get(call: &mut Call<'_>) -> Answer {
    match call.store.get::<Vec<u8>>(call.key(), call.now)? {
        Some(value) => call.reply.bulk(value),
        None => call.reply.null(),
    }
    Ok(())
}

/// Runs `MGET` for one key. If the value of the key is not a string, the reply is the same as for a key that does not
/// exist.
pub(crate) fn mget(call: &mut Call<'_>) -> Answer {
    match call.store.get::<Vec<u8>>(call.key(), call.now) {
        Ok(Some(value)) => call.reply.bulk(value),
        _ => call.reply.null(),
    }
    Ok(())
}

/// Runs `MSET` for one key and its value.
pub(crate) fn mset(call: &mut Call<'_>) -> Answer {
    call.store.set(call.key(), call.now, call.args.get(1), false);
    call.reply.ok();
    Ok(())
}

pub(crate) fn set(call: &mut Call<'_>) -> Answer {
    let (key, now, value) = (call.key(), call.now, call.args.get(1));
    if call.args.len() == 2 {
        call.store.set(key, now, value, false);
        call.reply.ok();
        return Ok(());
    }
    let options = SetOptions::parse(call.args)?;
    let former = match options.get {
        true => call.store.get::<Vec<u8>>(key, now)?.map(|value| value.clone()),
        false => None,
    };
    let exists = call.store.value(key, now).is_some();
    let allowed = !(options.if_absent && exists || options.if_present && !exists);
    if allowed {
        call.store.set(key, now, value, options.keep_ttl);
        if let Some(ms) = options.ttl {
            call.store.expire(key, now, Some(ms));
        }
    }
    match former {
        Some(former) => call.reply.bulk(former),
        None if options.get || !allowed => call.reply.null(),
        None => call.reply.ok(),
    }
    Ok(())
}

/// The options of `SET`.
#[derive(Default)]
struct SetOptions {
    if_absent: bool,
    if_present: bool,
    get: bool,
    keep_ttl: bool,
    ttl: Option<u64>,
}

impl SetOptions {
    fn parse(args: Args<'_>) -> Result<Self, Failure> {
        let mut options = Self::default();
        let mut ttl = None;
        let mut index = 2;
        while index < args.len() {
            let word = args.get(index).to_ascii_uppercase();
            match (word.as_slice(), index + 1 < args.len()) {
                (b"NX", _) if !options.if_present => options.if_absent = true,
                (b"XX", _) if !options.if_absent => options.if_present = true,
                (b"GET", _) => options.get = true,
                (b"KEEPTTL", _) if ttl.is_none() => options.keep_ttl = true,
                // If one of these options occurs twice, the last occurrence applies.
                (b"EX", true) if !options.keep_ttl && ttl.is_none_or(|(_, unit)| unit == 1_000) => {
                    ttl = Some((index + 1, 1_000));
                }
                (b"PX", true) if !options.keep_ttl && ttl.is_none_or(|(_, unit)| unit == 1) => {
                    ttl = Some((index + 1, 1));
                }
                _ => return Err(SYNTAX.into()),
            }
            index += if matches!(word.as_slice(), b"EX" | b"PX") { 2 } else { 1 };
        }
        if let Some((index, unit)) = ttl {
            options.ttl = match u64::try_from(milliseconds(args.get(index), unit, "set")?) {
                Ok(ms @ 1..) => Some(ms),
                _ => return Err("ERR invalid expire time in 'set' command".into()),
            };
        }
        Ok(options)
    }
}

pub(crate) fn append(call: &mut Call<'_>) -> Answer {
    let suffix = call.args.get(1);
    let value = call.store.get::<Vec<u8>>(call.key(), call.now)?;
    if value.map_or(0, |value| value.len()) + suffix.len() > LONGEST {
        return Err("ERR string exceeds maximum allowed size (proto-max-bulk-len)".into());
    }
    let value = call.store.get_or_make::<Vec<u8>>(call.key(), call.now)?;
    value.extend_from_slice(suffix);
    call.reply.int(value.len() as i64);
    Ok(())
}

pub(crate) fn strlen(call: &mut Call<'_>) -> Answer {
    let len = call.store.get::<Vec<u8>>(call.key(), call.now)?.map_or(0, |value| value.len());
    call.reply.int(len as i64);
    Ok(())
}

pub(crate) fn incr(call: &mut Call<'_>) -> Answer {
    add(call, 1)
}

pub(crate) fn decr(call: &mut Call<'_>) -> Answer {
    add(call, -1)
}

pub(crate) fn incrby(call: &mut Call<'_>) -> Answer {
    add(call, integer(call.args.get(1))?)
}

pub(crate) fn decrby(call: &mut Call<'_>) -> Answer {
    let amount = integer(call.args.get(1))?;
    add(call, amount.checked_neg().ok_or("ERR decrement would overflow")?)
}

fn add(call: &mut Call<'_>, amount: i64) -> Answer {
    let (key, now) = (call.key(), call.now);
    let sum = |old: i64| old.checked_add(amount).ok_or("ERR increment or decrement would overflow");
    let new = match call.store.get::<Vec<u8>>(key, now)? {
        Some(value) => {
            let new = sum(parse_int(value).ok_or(NOT_AN_INTEGER)?)?;
            value.clear();
            push_int(value, new);
            new
        }
        None => {
            push_int(call.store.get_or_make(key, now)?, amount);
            amount
        }
    };
    call.reply.int(new);
    Ok(())
}

//! Commands on hashes. A hash maps fields to values.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::commands::{Answer, Call, wrong_arity};
use crate::store::Bytes;

type Hash = HashMap<Bytes, Bytes, FixedState>;

pub(crate) fn hset(call: &mut Call<'_>) -> Answer {
    if call.args.len().is_multiple_of(2) {
        return Err(wrong_arity("hset"));
    }
    let hash = call.store.get_or_make::<Hash>(call.key(), call.now)?;
    let mut added = 0;
    for index in (1..call.args.len()).step_by(2) {
        let (field, value) = (call.args.get(index), call.args.get(index + 1));
        match hash.get_mut(field) {
            Some(old) if old.len() == value.len() => old.copy_from_slice(value),
            Some(old) => *old = value.into(),
            None => {
                hash.insert(field.into(), value.into());
                added += 1;
            }
        }
    }
    call.reply.int(added);
    Ok(())
}

pub(crate) fn hget(call: &mut Call<'_>) -> Answer {
    let field = call.args.get(1);
    match call.store.get::<Hash>(call.key(), call.now)?.and_then(|hash| hash.get(field)) {
        Some(value) => call.reply.bulk(value),
        None => call.reply.null(),
    }
    Ok(())
}

pub(crate) fn hdel(call: &mut Call<'_>) -> Answer {
    let fields = call.args.from(1);
    let removed = match call.store.get::<Hash>(call.key(), call.now)? {
        Some(hash) => fields.filter(|field| hash.remove(*field).is_some()).count(),
        None => 0,
    };
    call.store.trim(call.key(), call.now);
    call.reply.int(removed as i64);
    Ok(())
}

pub(crate) fn hlen(call: &mut Call<'_>) -> Answer {
    let len = call.store.get::<Hash>(call.key(), call.now)?.map_or(0, |hash| hash.len());
    call.reply.int(len as i64);
    Ok(())
}

pub(crate) fn hgetall(call: &mut Call<'_>) -> Answer {
    let Some(hash) = call.store.get::<Hash>(call.key(), call.now)? else {
        call.reply.map(0);
        return Ok(());
    };
    call.reply.map(hash.len());
    for (field, value) in &*hash {
        call.reply.bulk(field);
        call.reply.bulk(value);
    }
    Ok(())
}

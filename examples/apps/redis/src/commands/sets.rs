//! Commands on sets.

use crate::commands::{Answer, Call, SYNTAX, positive};
use crate::store::Set;

pub(crate) fn sadd(call: &mut Call<'_>) -> Answer {
    let set = call.store.get_or_make::<Set>(call.key(), call.now)?;
    let mut added = 0;
    for member in call.args.from(1) {
        added += i64::from(set.insert(member));
    }
    call.reply.int(added);
    Ok(())
}

pub(crate) fn srem(call: &mut Call<'_>) -> Answer {
    let members = call.args.from(1);
    let removed = match call.store.get::<Set>(call.key(), call.now)? {
        Some(set) => members.filter(|member| set.remove(member)).count(),
        None => 0,
    };
    call.store.trim(call.key(), call.now);
    call.reply.int(removed as i64);
    Ok(())
}

pub(crate) fn spop(call: &mut Call<'_>) -> Answer {
    let count = match call.args.len() {
        1 => None,
        2 => Some(positive(call.args.get(1))?),
        _ => return Err(SYNTAX.into()),
    };
    let mut random = call.store.random();
    let Some(set) = call.store.get::<Set>(call.key(), call.now)? else {
        if count.is_some() {
            call.reply.set(0)
        } else {
            call.reply.null()
        }
        return Ok(());
    };
    let popped = count.unwrap_or(1).min(set.len());
    if count.is_some() {
        call.reply.set(popped);
    }
    for _ in 0..popped {
        call.reply.bulk(set.pop(&mut random).unwrap_or_default());
    }
    call.store.trim(call.key(), call.now);
    Ok(())
}

pub(crate) fn sismember(call: &mut Call<'_>) -> Answer {
    let member = call.args.get(1);
    let is_member = call.store.get::<Set>(call.key(), call.now)?.is_some_and(|set| set.contains(member));
    call.reply.int(is_member.into());
    Ok(())
}

pub(crate) fn scard(call: &mut Call<'_>) -> Answer {
    let len = call.store.get::<Set>(call.key(), call.now)?.map_or(0, |set| set.len());
    call.reply.int(len as i64);
    Ok(())
}

pub(crate) fn smembers(call: &mut Call<'_>) -> Answer {
    let Some(set) = call.store.get::<Set>(call.key(), call.now)? else {
        call.reply.set(0);
        return Ok(());
    };
    call.reply.set(set.len());
    set.iter().for_each(|member| call.reply.bulk(member));
    Ok(())
}

//! Commands on lists.

use std::collections::VecDeque;

use crate::commands::{Answer, Call, integer, positive};
use crate::store::Bytes;

type List = VecDeque<Bytes>;

/// One of the two ends of a list.
#[derive(Clone, Copy)]
enum End {
    Left,
    Right,
}

pub(crate) fn lpush(call: &mut Call<'_>) -> Answer {
    push(call, End::Left)
}

pub(crate) fn rpush(call: &mut Call<'_>) -> Answer {
    push(call, End::Right)
}

fn push(call: &mut Call<'_>, end: End) -> Answer {
    let list = call.store.get_or_make::<List>(call.key(), call.now)?;
    for element in call.args.from(1) {
        match end {
            End::Left => list.push_front(element.into()),
            End::Right => list.push_back(element.into()),
        }
    }
    call.reply.int(list.len() as i64);
    Ok(())
}

pub(crate) fn lpop(call: &mut Call<'_>) -> Answer {
    pop(call, End::Left, "lpop")
}

pub(crate) fn rpop(call: &mut Call<'_>) -> Answer {
    pop(call, End::Right, "rpop")
}

fn pop(call: &mut Call<'_>, end: End, command: &str) -> Answer {
    let count = match call.args.len() {
        1 => None,
        2 => Some(positive(call.args.get(1))?),
        _ => return Err(crate::commands::wrong_arity(command)),
    };
    let Some(list) = call.store.get::<List>(call.key(), call.now)? else {
        if count.is_some() {
            call.reply.null_array()
        } else {
            call.reply.null()
        }
        return Ok(());
    };
    let popped = count.unwrap_or(1).min(list.len());
    if count.is_some() {
        call.reply.array(popped);
    }
    for _ in 0..popped {
        let element = match end {
            End::Left => list.pop_front(),
            End::Right => list.pop_back(),
        };
        call.reply.bulk(element.unwrap_or_default());
    }
    call.store.trim(call.key(), call.now);
    Ok(())
}

pub(crate) fn llen(call: &mut Call<'_>) -> Answer {
    let len = call.store.get::<List>(call.key(), call.now)?.map_or(0, |list| list.len());
    call.reply.int(len as i64);
    Ok(())
}

pub(crate) fn lrange(call: &mut Call<'_>) -> Answer {
    let (start, end) = (integer(call.args.get(1))?, integer(call.args.get(2))?);
    let Some(list) = call.store.get::<List>(call.key(), call.now)? else {
        call.reply.array(0);
        return Ok(());
    };
    // A negative index counts from the end of the list. The element at `end` belongs to the range.
    let len = list.len() as i64;
    let absolute = |index: i64| if index < 0 { index + len } else { index };
    let start = absolute(start).max(0);
    let past = absolute(end).saturating_add(1).min(len);
    if start >= past {
        call.reply.array(0);
        return Ok(());
    }
    call.reply.array((past - start) as usize);
    list.range(start as usize..past as usize).for_each(|element| call.reply.bulk(element));
    Ok(())
}

//! Fields of a hash, and their number: HGET, HMGET, HLEN, HEXISTS, HSTRLEN.

use crate::redis::command::{Args, Call, CommandError, Done, MERGED_BYTES_MAX};
use crate::redis::resp::Reply;
use duramen_structures::Edit;

/// HGET key field: the value of a field.
pub fn hget(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (args, bytes_max, mut done) = (call.args, call.reply.bytes() + MERGED_BYTES_MAX, 0);
    let hash = call.txn.hash(call.session.db, args.at(1))?;
    for field in args.from(2) {
        call.stats.read_key(hash.is_some());
        match hash.as_ref().map(|hash| hash.get(field)).transpose()?.flatten() {
            Some(value) => call.reply.bulk(&value),
            None => call.reply.null(),
        }
        done += 1;
        if call.reply.bytes() > bytes_max {
            break;
        }
    }
    call.worker_state.undone = call.merged - done;
    Ok(())
}

/// HGET in a run.
pub fn hget_step(
    hash: &mut Edit<'_, '_>,
    reply: &mut Reply<'_>,
    args: Args<'_>,
) -> Result<Done, CommandError> {
    match hash.get(args.at(0))? {
        Some(value) => reply.bulk(&value),
        None => reply.null(),
    }
    Ok(Done::Read(!hash.is_empty()))
}

/// HMGET key field [field …]: the values of several fields.
pub fn hmget(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let hash = call.stats.read(call.txn.hash(call.session.db, call.args.at(1))?);
    call.reply.array(call.args.len() - 2);
    let Some(hash) = hash else {
        call.args.from(2).for_each(|_| call.reply.null());
        return Ok(());
    };
    hash.get_each(call.args.from(2), |value| match value {
        Some(value) => call.reply.bulk(value),
        None => call.reply.null(),
    })?;
    Ok(())
}

/// HLEN key: the number of fields.
pub fn hlen(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let hash = call.stats.read(call.txn.hash(call.session.db, call.args.at(1))?);
    call.reply.count(hash.map_or(0, |hash| hash.len()));
    Ok(())
}

/// HEXISTS key field: whether there is a field; 1 or 0.
pub fn hexists(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let hash = call.stats.read(call.txn.hash(call.session.db, call.args.at(1))?);
    let is_there = hash.map_or(Ok(false), |hash| hash.has(call.args.at(2)))?;
    call.reply.integer(i64::from(is_there));
    Ok(())
}

/// HSTRLEN key field: the length of a field's value, 0 without one.
pub fn hstrlen(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let hash = call.stats.read(call.txn.hash(call.session.db, call.args.at(1))?);
    let field = call.args.at(2);
    let value = hash.as_ref().map(|hash| hash.get(field)).transpose()?.flatten();
    call.reply.count(value.map_or(0, |value| value.len()));
    Ok(())
}

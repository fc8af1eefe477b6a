//! Several strings at once: MGET, MSET, MSETNX.

use crate::observe::keyspace_events::STRING;
use crate::redis::command::{Call, CommandError};
use duramen_structures::Type;

/// MGET key [key …]: the strings at several keys, all of one moment.
pub fn mget(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.array(call.args.len() - 1);
    call.each_key(call.args.from(1), |call, key| {
        match call.stats.read(call.txn.get(call.session.db, key)?) {
            Some(value) if value.tag() == Type::String.tag() => call.reply.bulk(&value),
            _ => call.reply.null(),
        }
        Ok(())
    })
}

/// MSET key value [key value …]: several keys become strings at once.
pub fn mset(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    pairs_or_arity(call)?;
    put_pairs(call)?;
    call.reply.ok();
    Ok(())
}

/// MSETNX key value [key value …]: MSET if none of the keys is there; 1 or 0.
pub fn msetnx(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    pairs_or_arity(call)?;
    let keys = call.args.from(1).step_by(2);
    let is_there = call.any_key(keys, |call, key| Ok(call.txn.exists(call.session.db, key)?))?;
    if !is_there {
        put_pairs(call)?;
    }
    call.reply.integer(i64::from(!is_there));
    Ok(())
}

/// MSET and MSETNX take a value for each key.
fn pairs_or_arity(call: &Call<'_, '_>) -> Result<(), CommandError> {
    if call.args.len().is_multiple_of(2) { Err(CommandError::arity(call.entry.spec.name)) } else { Ok(()) }
}

fn put_pairs(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    for (key, value) in args.from(1).step_by(2).zip(args.from(2).step_by(2)) {
        call.txn.put(call.session.db, key, value)?;
        call.notify(STRING, "set", key);
    }
    Ok(())
}

//! Puts fields and removes them: HSET, HSETNX, HMSET, HDEL.

use super::expiry::{notify_over, remove_over};
use crate::observe::keyspace_events::HASH;
use crate::redis::command::{Args, Call, CommandError, Done};
use crate::redis::resp::Reply;
use duramen_structures::Edit;

/// HSET key field value [field value …]: the number of new fields.
pub fn hset(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let added = put_pairs(call)?;
    call.reply.count(added);
    Ok(())
}

/// HMSET key field value [field value …]: HSET that replies OK.
pub fn hmset(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    put_pairs(call)?;
    call.reply.ok();
    Ok(())
}

/// HSETNX key field value: HSET if the field is not there; 1 or 0.
pub fn hsetnx(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    call.edits_one();
    let mut hash = call.txn.edit_hash(db, args.at(1))?;
    let over = remove_over(&mut hash, args.from(2).take(1))?;
    let is_free = !hash.has(args.at(2))?;
    if is_free {
        hash.insert(args.at(2), args.at(3))?;
        hash.save()?;
        notify_over(call, over);
        call.notify(HASH, "hset", args.at(1));
    }
    call.reply.integer(i64::from(is_free));
    Ok(())
}

/// HDEL key field [field …]: the number of removed fields. Without fields the key is deleted too.
pub fn hdel(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    if args.len() == 3 {
        call.edits_one();
    }
    let mut hash = call.txn.edit_hash(db, args.at(1))?;
    let removed = hash.remove_all(args.from(2))?;
    if removed > 0 {
        let is_gone = hash.is_empty();
        hash.save()?;
        call.notify_or_gone(HASH, "hdel", args.at(1), is_gone);
    }
    call.reply.count(removed);
    Ok(())
}

/// HSET in a run, of one field.
pub fn hset_step(
    hash: &mut Edit<'_, '_>,
    reply: &mut Reply<'_>,
    args: Args<'_>,
) -> Result<Done, CommandError> {
    let is_new = hash.insert(args.at(0), args.at(1))?;
    reply.integer(i64::from(is_new));
    Ok(Done::Changed("hset"))
}

fn put_pairs(call: &mut Call<'_, '_>) -> Result<usize, CommandError> {
    let (db, args) = (call.session.db, call.args);
    if !args.len().is_multiple_of(2) {
        return Err(CommandError::arity(call.entry.spec.name));
    }
    if args.len() == 4 {
        call.edits_one();
    }
    let mut hash = call.txn.edit_hash(db, args.at(1))?;
    let added = hash.insert_all(args.from(2).step_by(2).zip(args.from(3).step_by(2)))?;
    hash.save()?;
    call.notify(HASH, "hset", args.at(1));
    Ok(added)
}

//! Whole databases: DBSIZE, FLUSHDB, FLUSHALL, SWAPDB.

use crate::redis::command::{After, Args, Call, CommandError, errors, integer};
use std::ops::RangeInclusive;

/// DBSIZE: the number of keys in the selected database.
pub fn dbsize(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let db = call.db();
    let keys = call.txn.keys(db)?;
    call.reply.integer(keys as i64);
    Ok(())
}

/// FLUSHDB [ASYNC|SYNC]: deletes every key of the selected database.
pub fn flushdb(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    check(call.args)?;
    let db = call.db();
    count_lazyfreed(call, db..=db)?;
    call.worker_state.is_flushed = call.server.tracking.is_any();
    if call.in_transaction {
        call.txn.flush(db..=db)?;
    } else {
        *call.after = After::FlushDb(db);
    }
    call.reply.ok();
    Ok(())
}

/// FLUSHALL [ASYNC|SYNC]: deletes every key of all databases.
pub fn flushall(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    check(call.args)?;
    count_lazyfreed(call, 0..=call.txn.databases() - 1)?;
    call.worker_state.is_flushed = call.server.tracking.is_any();
    if call.in_transaction {
        let last = call.txn.databases() - 1;
        call.txn.flush(0..=last)?;
    } else {
        *call.after = After::FlushAll;
    }
    call.reply.ok();
    Ok(())
}

/// Counts the keys that ASYNC leaves to the background.
fn count_lazyfreed(call: &mut Call<'_, '_>, mut databases: RangeInclusive<u8>) -> Result<(), CommandError> {
    if call.args.is(1, "async") {
        let keys = databases.try_fold(0, |keys, db| Ok::<_, CommandError>(keys + call.txn.keys(db)?))?;
        call.stats.lazyfreed.add(keys);
    }
    Ok(())
}

/// SWAPDB index index: exchanges the contents of two databases.
///
/// Not inside MULTI: the earlier writes of a transaction and its later reads would be of different databases.
pub fn swapdb(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let first = integer(call.args.at(1)).ok_or(errors::FIRST_DB_INVALID)?;
    let second = integer(call.args.at(2)).ok_or(errors::SECOND_DB_INVALID)?;
    let count = i64::from(call.txn.databases());
    if !(0..count).contains(&first) || !(0..count).contains(&second) {
        return Err(errors::DB_OUT_OF_RANGE);
    }
    if call.in_transaction {
        return Err(errors::NOT_IN_TRANSACTION);
    }
    *call.after = After::Swap(first as u8, second as u8);
    call.reply.ok();
    Ok(())
}

/// Both words mean the same here: space is reclaimed in the background in any case.
fn check(args: Args<'_>) -> Result<(), CommandError> {
    match args.len() {
        1 => Ok(()),
        2 if args.is(1, "async") || args.is(1, "sync") => Ok(()),
        _ => Err(errors::SYNTAX),
    }
}

//! Whole databases: DBSIZE, FLUSHDB, FLUSHALL.

use crate::command::{After, Args, Call, CommandError, errors};

/// DBSIZE: how many keys the selected database has.
pub fn dbsize(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let db = call.db();
    call.reply.integer(call.txn.count(db).keys as i64);
    Ok(())
}

/// FLUSHDB [ASYNC|SYNC]: deletes every key of the selected database.
pub fn flushdb(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    check(call.args)?;
    let db = call.db();
    if call.in_transaction {
        call.txn.flush(db)?;
    } else {
        *call.after = After::FlushDb(db);
    }
    call.reply.ok();
    Ok(())
}

/// FLUSHALL [ASYNC|SYNC]: deletes every key of all databases.
pub fn flushall(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    check(call.args)?;
    if call.in_transaction {
        for db in 0..call.txn.databases() {
            call.txn.flush(db)?;
        }
    } else {
        *call.after = After::FlushAll;
    }
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

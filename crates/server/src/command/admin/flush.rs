//! FLUSHDB [ASYNC|SYNC] and FLUSHALL [ASYNC|SYNC]: delete every key of the selected database, or of all.

use crate::command::{After, Args, Call, CommandError, Flags, Spec, errors};

pub const FLUSHDB: Spec = Spec { arity: -1, flags: Flags::WRITE, ..Spec::new("flushdb", flushdb) };
pub const FLUSHALL: Spec = Spec { arity: -1, flags: Flags::WRITE, ..Spec::new("flushall", flushall) };

fn flushdb(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
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

fn flushall(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
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

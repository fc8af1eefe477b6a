//! Commands that make several commands one: MULTI, EXEC, DISCARD, WATCH, UNWATCH. The queue is the dispatcher's.

use super::{Call, Command, CommandError, errors, rights};
use crate::redis::session::{Queued, Transaction};

/// The commands of this group.
pub const COMMANDS: &[Command] = &[
    Command::new("multi", multi).not_queued(),
    Command::new("exec", exec).not_queued(),
    Command::new("discard", discard).not_queued(),
    Command::new("watch", watch).not_queued(),
    Command::new("unwatch", unwatch),
];

/// MULTI: queues the following commands for EXEC.
fn multi(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if call.session.transaction.is_some() {
        return Err(CommandError::new("ERR MULTI calls can not be nested"));
    }
    call.session.transaction = Some(Transaction::default());
    call.reply.ok();
    Ok(())
}

/// EXEC: runs what MULTI queued, as one transaction of the keyspace.
///
/// An error of one command does not stop the others. If a key under WATCH has changed, or ended, nothing
/// runs and the reply is null. The dispatcher has locked all keys of the queue, and those that are watched. When it runs EXEC
/// again, that finds the queue as it was.
fn exec(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let Some(transaction) = &mut call.session.transaction else {
        return Err(CommandError::new("ERR EXEC without MULTI"));
    };
    call.session.transaction_over = true;
    if transaction.aborted {
        return Err(errors::EXEC_ABORT);
    }
    let queue = std::mem::take(&mut transaction.queue);
    let result = run(call, &queue);
    if let Some(transaction) = &mut call.session.transaction {
        transaction.queue = queue;
    }
    result
}

fn run(call: &mut Call<'_, '_>, queue: &[Queued]) -> Result<(), CommandError> {
    for watched in call.session.watched.iter() {
        if !call.txn.expect(watched)? {
            call.reply.null_array();
            return Ok(());
        }
    }
    call.reply.array(queue.len());
    for queued in queue {
        let (entry, args) = (call.table.entry(queued.command), queued.args.args());
        // The rights may have changed since it was queued.
        match rights::check_queued(call, entry, args) {
            Ok(()) => call.run(entry, args),
            Err(error) => call.reply_error(&error),
        }
        if call.txn.wants_all() {
            // It runs again: a script among them needs a key that nobody named.
            break;
        }
    }
    Ok(())
}

/// DISCARD: drops the queued commands and the watched keys.
fn discard(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if call.session.transaction.is_none() {
        return Err(CommandError::new("ERR DISCARD without MULTI"));
    }
    call.session.transaction_over = true;
    call.reply.ok();
    Ok(())
}

/// WATCH key [key …]: EXEC will run only if these keys stay as they are.
fn watch(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if call.session.transaction.is_some() {
        return Err(CommandError::new("ERR WATCH inside MULTI is not allowed"));
    }
    for key in call.args.from(1) {
        let db = call.session.db;
        if !call.session.watched.has(db, key)
            && let Some(watched) = call.txn.watch(db, key)?
        {
            call.session.watched.add(db, key, watched);
        }
    }
    call.reply.ok();
    Ok(())
}

/// UNWATCH: drops the watched keys. Without effect inside MULTI: EXEC drops them anyway.
fn unwatch(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if !call.in_transaction {
        call.session.watched.clear();
    }
    call.reply.ok();
    Ok(())
}

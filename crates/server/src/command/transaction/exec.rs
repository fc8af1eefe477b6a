//! EXEC: runs what MULTI queued, as one transaction of the keyspace.
//!
//! An error of one command does not stop the others. If a key under WATCH has changed, or ended, nothing
//! runs and the reply is null. The keys that were read are checked at the commit; when one has changed
//! meanwhile, the dispatcher runs EXEC again, which finds the queue as it was.

use crate::command::{Call, CommandError, Flags, Spec, errors};
use crate::session::Queued;

pub const SPEC: Spec = Spec {
    flags: Flags::NOSCRIPT
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::SKIP_SLOWLOG)
        .with(Flags::NOT_QUEUED),
    ..Spec::new("exec", exec)
};

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
    for watched in &call.session.watched {
        if !call.txn.expect(watched)? {
            call.reply.null_array();
            return Ok(());
        }
    }
    call.reply.array(queue.len());
    for queued in queue {
        call.run(queued.entry, queued.args.args());
    }
    Ok(())
}

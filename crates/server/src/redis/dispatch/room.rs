//! A full store: what is refused, and with which words. Removals are never: see `parts` and [`Dispatcher::delete_each`].

use super::{Dispatcher, Plan};
use crate::command_error::{CommandError, OUT_OF_SPACE};
use crate::net::{Output, Turn};
use crate::redis::command::{Args, Flags, Spec, Table};
use crate::redis::resp::Reply;
use crate::redis::session::{Session, Transaction};
use crate::redis::tracking;
use crate::server::Server;
use duramen_structures::Worker;

// Without `maxmemory`.
const FULL: CommandError =
    CommandError::new("OOM store is full (device or address-space limit reached); delete keys");

impl Dispatcher {
    /// Completes an out-of-space error with what is full, and logs it.
    pub(super) fn report_full(&self, error: CommandError) -> CommandError {
        if error.code() != "OOM" {
            return error;
        }
        // Which of the two limits was reached: the medium may be smaller than `maxmemory`.
        let is_medium = || {
            let (store, maxmemory) = (self.server.keyspace.store(), self.server.config().maxmemory);
            let stats = store.stats();
            maxmemory == 0 || stats.medium_bytes - stats.given_back_bytes < maxmemory
        };
        let error = if error == OUT_OF_SPACE && is_medium() { FULL } else { error };
        self.server.log_full(&error);
        error
    }

    /// DEL for which there is no space at once: for one delete at a time there is, and each frees some.
    pub(super) fn delete_each(
        &mut self,
        turn: &mut Turn,
        plan: Plan,
        session: &Session,
        args: Args<'_>,
        out: &mut Output,
    ) -> Result<(), CommandError> {
        out.truncate(plan.start);
        let keys: Vec<Box<[u8]>> = args.from(1).map(Box::from).collect();
        if self.server.tracking.is_any() {
            tracking::invalidate(&self.server, &mut self.worker_state, session.client.id, &keys);
            self.worker_state.untracked.clear();
        }
        let deleted = turn.keys.delete_each(plan.db, args.from(1), turn.now)?;
        Reply::new(out, session.protocol).integer(deleted as i64);
        Ok(())
    }
}

/// Checks whether writes are refused for lack of space, and with which error. A write reports other errors itself.
#[cold]
pub(super) fn find_room(server: &Server, worker: &mut Worker) -> Result<(), CommandError> {
    match worker.find_room().map_err(CommandError::from) {
        Err(error) if error.code() == "OOM" => Err(error),
        _ => {
            server.note_room();
            Ok(())
        }
    }
}

/// Whether a command is refused inside MULTI while writes are refused for lack of space: queueing takes memory for any
/// command, and EXEC runs the queued ones.
#[cold]
pub(super) fn needs_room(table: &Table, spec: &Spec, transaction: &Transaction) -> bool {
    match spec.name {
        "discard" | "quit" | "reset" => false,
        "exec" => {
            let mut queue = transaction.queue.iter();
            queue.any(|queued| table.entry(queued.command).spec.flags.has(Flags::DENYOOM))
        }
        _ => true,
    }
}

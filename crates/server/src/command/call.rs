//! What a command is given to work with.

use super::{Args, Entry};
use crate::resp::Reply;
use crate::server::Server;
use crate::session::Session;
use crate::stats::WorkerStats;
use duramen_structures::Txn;

/// One execution of one command.
///
/// `'c` is the execution, `'w` the worker whose writer the transaction uses.
pub struct Call<'c, 'w> {
    /// The arguments; the first is the command's name as the client wrote it.
    pub args: Args<'c>,
    /// The table's entry: the spec and its position.
    pub entry: &'static Entry,
    /// The keyspace. Every read and write of keys goes through it.
    pub txn: &'c mut Txn<'w>,
    /// Where the reply goes.
    pub reply: Reply<'c>,
    /// The connection's state.
    pub session: &'c mut Session,
    /// What all connections share.
    pub server: &'c Server,
    /// The worker's counters.
    pub stats: &'c WorkerStats,
    /// Unix milliseconds; the same for all commands of one transaction.
    pub now: u64,
    /// What is to be done once the transaction is committed.
    pub after: &'c mut After,
    /// Run by EXEC.
    pub in_transaction: bool,
}

/// Work that a command leaves for after its transaction, because it needs the worker itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum After {
    /// Nothing.
    #[default]
    Nothing,
    /// Delete every key of one database.
    FlushDb(u8),
    /// Delete every key.
    FlushAll,
    /// Make everything so far survive what the medium can survive, whatever the durability.
    Save,
}

impl<'w> Call<'_, 'w> {
    /// The database that the connection has selected.
    #[inline]
    pub fn db(&self) -> u8 {
        self.session.db
    }

    /// Runs another command inside this one's transaction, as EXEC does with what was queued: its reply is
    /// appended to this one's, an error included.
    pub fn run(&mut self, entry: &'static Entry, args: Args<'_>) {
        let mark = self.reply.mark();
        let mut call = Call {
            args,
            entry,
            txn: &mut *self.txn,
            reply: self.reply.reborrow(),
            session: &mut *self.session,
            server: self.server,
            stats: self.stats,
            now: self.now,
            after: &mut *self.after,
            in_transaction: true,
        };
        let result = (entry.spec.apply)(&mut call);
        // HELLO may have changed the protocol.
        self.reply.protocol = self.session.protocol;
        let counters = &self.stats.commands[entry.index];
        counters.calls.add(1);
        if let Err(error) = result {
            counters.failed.add(1);
            self.stats.error(error.code());
            self.reply.rollback(mark);
            self.reply.error(error.text());
            if error.store_failure().is_some() {
                self.session.store_failure = Some(error);
            }
        }
    }
}

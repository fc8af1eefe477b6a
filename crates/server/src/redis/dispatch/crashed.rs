//! A command that panics.

use super::Dispatcher;
use crate::command_error::CommandError;
use crate::net::Turn;
use crate::observe::keyspace_events::Absent;
use crate::observe::log;
use crate::redis::blocking::take_out;
use crate::redis::session::Session;

/// The reply to a command that panicked.
pub(super) const CRASHED: CommandError =
    CommandError::new("ERR internal error: command crashed; its effect is unknown, see the server's log");

impl Dispatcher {
    /// Turns a panic into an error. The engine poisons the store if the panic was within a write, and the transaction
    /// was dropped with the stack: none of it is written later. The turn's earlier writes are flushed with it, or the
    /// whole turn is refused.
    #[cold]
    pub(super) fn crashed(&mut self, turn: &mut Turn, session: &mut Session) {
        session.store_failure = None;
        self.worker_state.take_back(&self.server, self.outgoing_before, false);
        self.worker_state.absent = Absent::default();
        self.worker_state.is_in_script = false;
        self.worker_state.wait = None;
        self.server.tracking.put_back(std::mem::take(&mut self.worker_state.untracked));
        Self::release(&mut self.worker_state, &mut self.again);
        if session.waiter.is_none() {
            take_out(&self.server, self.server.waiting.of_client(session.client.id));
        }
        if let Some(entry) = self.running {
            let all = if self.batch.merged > 1 { &self.batch.commands[..] } else { &[entry] };
            for entry in all {
                let counters = &self.stats.commands[entry.index];
                counters.calls.add(1);
                counters.failed.add(1);
            }
            self.stats.commands_processed.add(all.len() as u64);
            // Otherwise MULTI and WATCH stay: a following EXEC must still check them.
            if entry.spec.name == "exec" || session.transaction_over {
                session.transaction_drop();
            }
        }
        self.stats.error(CRASHED.code());
        let name = self.running.map_or("a command", |entry| entry.spec.name);
        let writes = if turn.note_panic() {
            "it was within a write, so the store takes no writes until the server is started again; reads \
             still work"
        } else {
            "the server keeps running"
        };
        log::warning(format_args!(
            "the panic above was in {name} of client {} ({}), which was answered an error; {writes}. It is a bug: please report it with these \
             lines",
            session.client.id, session.client.address
        ));
    }
}

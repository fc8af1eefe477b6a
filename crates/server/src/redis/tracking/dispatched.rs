//! Tracking clients and the commands of others, after their transactions.

use super::written::{invalidate, invalidate_flushed, invalidate_surplus};
use crate::command_error::CommandError;
use crate::net::Turn;
use crate::redis::dispatch::Dispatcher;
use crate::redis::session::Session;
use duramen_structures::Locks;

impl Dispatcher {
    /// A transaction has committed, or not, that may have been of keys that are tracked.
    #[inline]
    pub(in crate::redis) fn tracked(&mut self, session: &mut Session, is_committed: bool) {
        if self.server.tracking.is_any() {
            self.tracked_slow(session, is_committed);
        }
    }

    #[cold]
    fn tracked_slow(&mut self, session: &mut Session, is_committed: bool) {
        let taken = std::mem::take(&mut self.worker_state.untracked);
        if !is_committed {
            self.server.tracking.put_back(taken);
        }
        if std::mem::take(&mut self.worker_state.is_flushed) {
            invalidate_flushed(&self.server, &mut self.worker_state);
        }
        invalidate_surplus(&self.server, &mut self.worker_state);
        self.worker_state.untracked.clear();
        // CLIENT CACHING is for one command, or one transaction.
        let is_client = self.running.is_some_and(|entry| entry.container_name() == "client");
        if (session.transaction.is_none() || session.transaction_over)
            && !is_client
            && let Some(tracks) = &mut session.tracks
        {
            tracks.caching = false;
        }
    }

    /// Tells of remembered keys that have expired.
    pub(in crate::redis) fn notify_expired(&mut self, turn: &mut Turn) {
        for (db, key) in self.server.tracking.due(turn.now) {
            let (server, worker_state) = (&self.server, &mut self.worker_state);
            let told = turn.keys.run(turn.now, Locks::One(&key), |txn| -> Result<(), CommandError> {
                if !txn.exists(db, &key)? {
                    invalidate(server, worker_state, 0, std::slice::from_ref(&key));
                }
                Ok(())
            });
            self.worker_state.untracked.clear();
            if let Err(error) = told {
                turn.note(error);
            }
        }
    }
}

//! The turn of the Redis protocol: its work without a client at the beginning, and its messages at the end.

use super::Dispatcher;
use crate::clients::unix_millis;
use crate::command_error::CommandError;
use crate::net::Turn;
use crate::observe::keyspace_events::{Absence, GENERIC, HASH};
use crate::observe::log;
use crate::redis::tracking;
use duramen::Room;
use duramen_structures::{Locks, Type};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

/// Elements of a removed group that a turn deletes: some 0.5 ms.
const LEFTOVERS_PART: usize = 500;

impl Dispatcher {
    /// A turn has begun.
    pub fn begin_turn(&mut self, turn: &mut Turn) {
        if self.server.tracking.is_due(turn.now)
            && !self.server.pause.keeps_keys(turn.now)
            && catch_unwind(AssertUnwindSafe(|| self.notify_expired(turn))).is_err()
        {
            turn.note_panic();
        }
        if self.has_work() && catch_unwind(AssertUnwindSafe(|| self.work(turn))).is_err() {
            Self::release(&mut self.worker_state, &mut self.again);
        }
    }

    /// All commands of the turn have run.
    pub fn end_turn(&mut self, turn: &mut Turn) {
        self.charge_last(turn);
    }

    /// The turn is durable, or failed: its messages leave, or are dropped.
    pub fn finish_turn(&mut self, flushed: Result<(), &CommandError>) {
        self.hand_over(flushed.is_ok());
        match flushed {
            Ok(()) => self.answered.clear(),
            Err(error) if !self.answered.is_empty() => {
                self.refuse_answered(error);
                // They report nothing that the turn did.
                self.hand_over(true);
            }
            Err(_) => {}
        }
    }

    fn hand_over(&mut self, is_durable: bool) {
        let (inboxes, own) = (&self.server.inboxes, self.worker_state.worker);
        self.server.delivery.hand_over(&mut self.worker_state.outgoing, is_durable, |worker, messages| {
            if let Some(inbox) = inboxes.get(worker) {
                inbox.send_mail(messages, worker != own);
            }
        });
    }

    /// Whether there is something to do in a turn, though no client sent anything.
    pub fn has_work(&self) -> bool {
        let server = &self.server;
        let is_due = || {
            server.tracking.is_due_by_now()
                || server.expiry_timers.is_due_by_now()
                || server.field_timers.is_due_by_now() && server.deletes_fields.load(Ordering::Relaxed)
                || server.swept.is_any()
        };
        !self.put_backs.is_empty()
            || !self.again.is_empty()
            || server.waiting.gone.is_any()
            || server.leftovers.is_any()
            || is_due() && !server.pause.keeps_keys(unix_millis())
    }

    /// Does it, at the beginning of a turn.
    pub(super) fn work(&mut self, turn: &mut Turn) {
        if !self.server.pause.keeps_keys(turn.now) {
            for (db, key) in self.server.swept.take() {
                self.worker_state.notify_expired(&self.server, db, &key);
            }
            self.look_at_due(turn);
            if self.server.deletes_fields.load(Ordering::Relaxed) {
                self.delete_over(turn);
            }
        }
        self.again.extend(self.server.waiting.gone.take());
        self.look_again(turn);
        self.clear_leftovers(turn);
        for (db, args) in std::mem::take(&mut self.put_backs) {
            if let Err(error) = self.put_back_now(turn, db, &args) {
                let key = args.args().at(1).escape_ascii();
                log::warning(format_args!(
                    "could not restore elements popped from '{key}' (db {db}) for a disconnected client: {}",
                    String::from_utf8_lossy(error.text())
                ));
                turn.note(error);
            }
        }
    }

    /// Processes keys whose time is reached: reports their expiry and serves their waiters. A key whose expiry moved is
    /// scheduled again.
    fn look_at_due(&mut self, turn: &mut Turn) {
        for (db, key) in self.server.expiry_timers.take_due(turn.now) {
            let before = self.worker_state.outgoing.len();
            let (server, worker_state) = (&self.server, &mut self.worker_state);
            worker_state.absences.clear();
            let mut is_again = false;
            let looked = turn.keys.run(turn.now, Locks::One(&key), |txn| -> Result<(), CommandError> {
                if std::mem::replace(&mut is_again, true) {
                    worker_state.take_back(server, before, true);
                }
                if server.follows_expiries() && txn.expire(db, &key)? {
                    worker_state.notify_absence(server, Absence::Expired(db, key.as_slice().into()));
                }
                let expires_at = txn.look(db, &key)?.and_then(|found| found.expires_at);
                server.expiry_timers.note(db, &key, expires_at);
                Ok(())
            });
            if let Err(error) = looked {
                turn.note(error);
            }
            if self.server.waiting.is_awaited(db, &key) {
                self.again.push((db, key));
            }
        }
    }

    /// Deletes fields whose time has come.
    fn delete_over(&mut self, turn: &mut Turn) {
        for ((db, key), fields) in self.server.field_timers.take_due_fields(turn.now) {
            let before = self.worker_state.outgoing.len();
            let (server, worker_state) = (&self.server, &mut self.worker_state);
            worker_state.absences.clear();
            let mut is_again = false;
            let looked = turn.keys.run(turn.now, Locks::One(&key), |txn| -> Result<usize, CommandError> {
                if std::mem::replace(&mut is_again, true) {
                    worker_state.take_back(server, before, true);
                    server.tracking.put_back(std::mem::take(&mut worker_state.untracked));
                }
                if txn.look(db, &key)?.is_none_or(|found| found.tag != Type::Hash.tag()) {
                    return Ok(0);
                }
                txn.set_room(Room::Removal);
                let mut hash = txn.edit_hash(db, &key)?;
                let removed = hash.remove_over(fields.iter().map(Vec::as_slice))?;
                if removed > 0 {
                    let is_gone = hash.is_empty();
                    hash.save()?;
                    worker_state.notify(server, HASH, "hexpired", db, &key);
                    if is_gone {
                        worker_state.notify(server, GENERIC, "del", db, &key);
                    }
                    if server.tracking.is_any() {
                        tracking::invalidate_written(server, txn, worker_state, 0);
                    }
                }
                Ok(removed)
            });
            let taken = std::mem::take(&mut self.worker_state.untracked);
            match looked {
                Ok(removed) => self.stats.expired_fields.add(removed as u64),
                // The store reports them again.
                Err(error) => {
                    self.server.tracking.put_back(taken);
                    self.worker_state.outgoing.take_back(before);
                    turn.note(error);
                }
            }
        }
    }

    /// Deletes a part of the elements of removed groups: little enough of each stream that no client waits long.
    fn clear_leftovers(&self, turn: &mut Turn) {
        for (db, key) in self.server.leftovers.take() {
            let cleared = turn.keys.run(turn.now, Locks::One(&key), |txn| -> Result<bool, CommandError> {
                if txn.look(db, &key)?.is_none_or(|found| found.tag != Type::Stream.tag()) {
                    return Ok(false);
                }
                let mut stream = txn.edit_stream(db, &key)?;
                let has_more = stream.clear_part(LEFTOVERS_PART)?;
                stream.save()?;
                Ok(has_more)
            });
            match cleared {
                Ok(true) => self.server.leftovers.add(db, &key),
                Ok(false) => {}
                // The next command that makes or removes a group of the stream has it tried again.
                Err(error) => turn.note(error),
            }
        }
    }
}

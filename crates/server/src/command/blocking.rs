//! The ends of a wait besides being served ([`serve`](super::wake)): the client is answered, its time runs out, or it
//! disconnects.
//!
//! - **Invariant**: a claimed waiter is either answered, once the transaction has committed ([`Dispatcher::answer`]),
//!   or released ([`Dispatcher::release`]); its keys are then checked again.

use super::dispatch::Dispatcher;
use super::wake::{Wake, error_reply, null_reply};
use super::{CommandError, OwnedArgs, errors};
use super::{timing, tracking};
use crate::clients::{Client, unix_millis};
use crate::log;
use crate::messages::{Content, PutBack};
use crate::net::Output;
use crate::session::Session;
use crate::waiting::Waiter;
use crate::worker_state::{Claim, WorkerState};
use duramen_structures::{Locks, Type};
use std::sync::Arc;
use std::time::{Duration, Instant};

// A worker that has claimed a waiter finishes with it soon.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// Elements of a removed group that a turn deletes: some 0.5 ms.
const LEFTOVERS_PART: usize = 500;

impl Dispatcher {
    /// The transaction has committed: the clients that it serves get their replies when the turn is durable.
    pub(super) fn answer(&mut self) {
        for Claim { waiter, reply, put_back, ran, failed } in std::mem::take(&mut self.worker_state.claims) {
            self.server.waiting.leave(&waiter);
            let entry = self.table.entry(waiter.command);
            if let Some((awaited, micros)) =
                ran.and_then(|(key, micros)| Some((waiter.awaited(&key)?, micros)))
            {
                timing::note(&self.server, &entry.spec, awaited.args.args(), &waiter.client, micros);
            }
            if let Some(code) = failed {
                self.stats.commands[entry.index].failed.add(1);
                self.stats.error(&code);
            }
            let put_back = put_back.map(|args| PutBack { db: waiter.db, args });
            self.post(&waiter, reply, put_back, false);
            self.answered.push(waiter);
        }
        for (client, content) in std::mem::take(&mut self.worker_state.behind_replies) {
            self.server.delivery.add(&mut self.worker_state.outgoing, content, vec![client.worker as u32]);
        }
    }

    fn post(&mut self, waiter: &Arc<Waiter>, bytes: Box<[u8]>, put_back: Option<PutBack>, closes: bool) {
        let worker = waiter.client.worker as u32;
        let content = Content::Reply { waiter: Arc::clone(waiter), bytes, put_back, closes };
        self.server.delivery.add(&mut self.worker_state.outgoing, content, vec![worker]);
    }

    /// The transaction was dropped: the waiters that it was about to answer keep waiting.
    pub(super) fn release(worker_state: &mut WorkerState, again: &mut Vec<(u8, Vec<u8>)>) {
        worker_state.behind_replies.clear();
        for Claim { waiter, .. } in worker_state.claims.drain(..) {
            waiter.release();
            // A writer to another of its keys skipped it meanwhile.
            again.extend(waiter.keys.iter().map(|awaited| (waiter.db, awaited.key.to_vec())));
        }
    }

    /// All keys of these databases may have others' values.
    pub(super) fn look_at_databases(&mut self, databases: impl IntoIterator<Item = u8>) {
        if self.server.waiting.count() == 0 {
            return;
        }
        for db in databases {
            self.again.extend(self.server.waiting.keys(db).into_iter().map(|key| (db, key)));
        }
        self.look_again();
    }

    /// Serves waiters that another writer skipped.
    pub(super) fn look_again(&mut self) {
        for (db, key) in std::mem::take(&mut self.again) {
            let before = self.worker_state.outgoing.len();
            let (mut again, mut is_again) = (Vec::new(), false);
            let worker_state = &mut self.worker_state;
            let wake = Wake { table: self.table, server: &self.server, stats: &self.stats, now: self.now };
            let served = self.worker.run(self.now, Locks::One(&key), |txn| {
                if std::mem::replace(&mut is_again, true) {
                    worker_state.outgoing.take_back(before);
                    Self::release(worker_state, &mut again);
                    self.server.tracking.put_back(std::mem::take(&mut worker_state.untracked));
                }
                wake.wake(txn, worker_state, db, &key)?;
                wake.wake_written(txn, worker_state)?;
                if self.server.tracking.is_any() {
                    tracking::invalidate_written(&self.server, txn, worker_state, 0);
                }
                Ok(())
            });
            let taken = std::mem::take(&mut self.worker_state.untracked);
            if served.is_err() {
                self.server.tracking.put_back(taken);
            }
            match served {
                Ok(()) => self.answer(),
                Err(error) => {
                    self.worker_state.outgoing.take_back(before);
                    // Not again: whatever failed will fail again now, and the next write looks.
                    Self::release(&mut self.worker_state, &mut again);
                    self.note(error);
                }
            }
        }
    }

    /// After a failed turn, the clients that it answered get the error instead, as its own clients do, and are
    /// disconnected.
    pub(super) fn refuse_answered(&mut self, error: &CommandError) {
        for waiter in std::mem::take(&mut self.answered) {
            self.post(&waiter, error_reply(&waiter, error), None, true);
        }
    }

    /// The time of a waiting client is up. It gets the reply for that, unless it is being answered.
    pub fn expire(&mut self, session: &mut Session, output: &mut Output) {
        if session.is_held {
            // Its command is tried again, and held again if necessary.
            (session.is_held, session.waits_until) = (false, None);
            return;
        }
        let Some(waiter) = &session.waiter else { return };
        if !waiter.claim() {
            session.waits_until = Some(Instant::now() + LOOK_AGAIN);
            return;
        }
        self.server.waiting.leave(waiter);
        if !waiter.is_silent {
            output.bytes.extend_from_slice(&null_reply(waiter));
        }
        (session.waiter, session.waits_until) = (None, None);
    }

    /// A client that waits has gone, or waits no more.
    pub(super) fn stop_waiting(&mut self, session: &mut Session) {
        if let Some(waiter) = session.waiter.take()
            && waiter.claim()
        {
            self.server.waiting.leave(&waiter);
        }
    }

    /// A client disconnected before it got its elements: the next turn puts them back.
    pub fn put_back(&mut self, put_back: &PutBack) {
        self.put_backs.push((put_back.db, put_back.args.clone()));
    }

    /// Whether there is something to do in a turn, though no client sent anything.
    pub fn has_work(&self) -> bool {
        let server = &self.server;
        let is_due = || {
            server.tracking.is_due_by_now() || server.expiry_timers.is_due_by_now() || server.swept.is_any()
        };
        !self.put_backs.is_empty()
            || !self.again.is_empty()
            || server.waiting.gone.is_any()
            || server.leftovers.is_any()
            || is_due() && !server.pause.keeps_keys(unix_millis())
    }

    /// Does it, at the beginning of a turn.
    pub(super) fn work(&mut self) {
        if !self.server.pause.keeps_keys(self.now) {
            for (db, key) in self.server.swept.take() {
                self.worker_state.notify_expired(&self.server, db, &key);
            }
            self.look_at_due();
        }
        self.again.extend(self.server.waiting.gone.take());
        self.look_again();
        self.clear_leftovers();
        for (db, args) in std::mem::take(&mut self.put_backs) {
            if let Err(error) = self.put_back_now(db, &args) {
                let key = args.args().at(1).escape_ascii();
                log::warning(format_args!(
                    "could not restore elements popped from '{key}' (db {db}) for a disconnected client: {}",
                    String::from_utf8_lossy(error.text())
                ));
                self.note(error);
            }
        }
    }

    /// Deletes a part of the elements of removed groups: little enough of each stream that no client waits long.
    fn clear_leftovers(&mut self) {
        for (db, key) in self.server.leftovers.take() {
            let cleared = self.worker.run(self.now, Locks::One(&key), |txn| -> Result<bool, CommandError> {
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
                Err(error) => self.note(error),
            }
        }
    }

    fn put_back_now(&mut self, db: u8, args: &OwnedArgs) -> Result<(), CommandError> {
        let args = args.args();
        let entry = self.table.find(args).ok_or(errors::SYNTAX)?;
        let mut session = Session::new(Client::nobody(), true);
        (session.db, session.puts_back) = (db, true);
        let mut output = Output::default();
        let start = output.len();
        self.run(entry, &mut session, args, &mut output);
        match output.bytes.get(start) {
            Some(b'-') => {
                Err(CommandError::with(String::from_utf8_lossy(output.bytes[1..].trim_ascii_end())))
            }
            _ => Ok(()),
        }
    }
}

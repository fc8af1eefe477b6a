//! The ends of a wait besides being served ([`serve`](super::wake)): the client is answered, its time runs out, or it
//! disconnects.
//!
//! - **Invariant**: a claimed waiter is either answered, once the transaction has committed ([`Dispatcher::answer`]),
//!   or released ([`Dispatcher::release`]); its keys are then checked again.

use super::queues::Waiter;
use super::wake::{Wake, error_reply, null_reply};
use crate::clients::Client;
use crate::command_error::CommandError;
use crate::messages::{Content, PutBack};
use crate::net::{Output, Turn};
use crate::redis::command::{OwnedArgs, errors, slow, table};
use crate::redis::dispatch::Dispatcher;
use crate::redis::session::Session;
use crate::redis::tracking;
use crate::redis::worker_state::{Claim, WorkerState};
use duramen_structures::Locks;
use std::sync::Arc;
use std::time::{Duration, Instant};

// A worker that has claimed a waiter finishes with it soon.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

impl Dispatcher {
    /// The transaction has committed: the clients that it serves get their replies when the turn is durable.
    pub(in crate::redis) fn answer(&mut self) {
        for Claim { waiter, reply, put_back, ran, failed } in std::mem::take(&mut self.worker_state.claims) {
            self.server.waiting.leave(&waiter);
            let entry = self.table.entry(waiter.command);
            if let Some((awaited, micros)) =
                ran.and_then(|(key, micros)| Some((waiter.awaited(&key)?, micros)))
            {
                slow::note(&self.server, &entry.spec, awaited.args.args(), &waiter.client, micros);
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
    pub(in crate::redis) fn release(worker_state: &mut WorkerState, again: &mut Vec<(u8, Vec<u8>)>) {
        worker_state.behind_replies.clear();
        for Claim { waiter, .. } in worker_state.claims.drain(..) {
            waiter.release();
            // A writer to another of its keys skipped it meanwhile.
            again.extend(waiter.keys.iter().map(|awaited| (waiter.db, awaited.key.to_vec())));
        }
    }

    /// All keys of these databases may have others' values.
    pub(in crate::redis) fn look_at_databases(
        &mut self,
        turn: &mut Turn,
        databases: impl IntoIterator<Item = u8>,
    ) {
        if self.server.waiting.count() == 0 {
            return;
        }
        for db in databases {
            self.again.extend(self.server.waiting.keys(db).into_iter().map(|key| (db, key)));
        }
        self.look_again(turn);
    }

    /// Serves waiters that another writer skipped.
    pub(in crate::redis) fn look_again(&mut self, turn: &mut Turn) {
        for (db, key) in std::mem::take(&mut self.again) {
            let before = self.worker_state.outgoing.len();
            let (mut again, mut is_again) = (Vec::new(), false);
            let worker_state = &mut self.worker_state;
            let wake = Wake { table: self.table, server: &self.server, stats: &self.stats, now: turn.now };
            let served = turn.keys.run(turn.now, Locks::One(&key), |txn| {
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
                    turn.note(error);
                }
            }
        }
    }

    /// After a failed turn, the clients that it answered get the error instead, as its own clients do, and are
    /// disconnected.
    pub(in crate::redis) fn refuse_answered(&mut self, error: &CommandError) {
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
    pub(in crate::redis) fn stop_waiting(&mut self, session: &mut Session) {
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

    pub(in crate::redis) fn put_back_now(
        &mut self,
        turn: &mut Turn,
        db: u8,
        args: &OwnedArgs,
    ) -> Result<(), CommandError> {
        let args = args.args();
        // By its first name, whatever clients call it.
        let entry = table().find(args).ok_or(errors::SYNTAX)?;
        let mut session = Session::trusted(Client::nobody());
        (session.db, session.puts_back) = (db, true);
        let mut output = Output::default();
        let start = output.len();
        self.runs_alone();
        self.run(turn, entry, &mut session, args, &mut output);
        match output.bytes.get(start) {
            Some(b'-') => {
                Err(CommandError::with(String::from_utf8_lossy(output.bytes[1..].trim_ascii_end())))
            }
            _ => Ok(()),
        }
    }
}

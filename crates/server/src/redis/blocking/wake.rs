//! Serves clients that wait for a key, in the transaction of the writer: see docs/internals/decisions/025-blocking.md.

use super::queues::{Awaited, Kind, Waiter, What};
use crate::acl::Login;
use crate::command_error::CommandError;
use crate::net::Output;
use crate::observe::stats::WorkerStats;
use crate::redis::command::{After, Args, Call, Entry, Table, denied, errors};
use crate::redis::resp::Reply;
use crate::redis::session::{ReplyMode, Session};
use crate::redis::worker_state::{Claim, WorkerState};
use crate::server::Server;
use duramen_structures::{Keys, Txn, Type};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

// Not sent: the transaction starts again.
const BEGINS_AGAIN: CommandError = CommandError::new("ERR keys that are needed were not there to be locked");

/// The state of an awaited key.
enum Look {
    /// There is nothing for the waiter.
    Nothing,
    /// Its command finds something.
    Something,
    /// There never will be.
    Never(CommandError),
}

/// Groups of a stream that have read all entries: the result for one waiter of such a group holds for the others, until
/// an entry is added.
type AllRead = HashSet<Box<[u8]>>;

/// The content for a waiter. A key that cannot be read has none.
fn look(server: &Server, txn: &mut Txn<'_>, db: u8, awaited: &Awaited, all_read: &mut AllRead) -> Look {
    if let What::Unread(group) = &awaited.what
        && all_read.contains(group)
    {
        return Look::Nothing;
    }
    let look = look_at(server, txn, db, awaited);
    if let (What::Unread(group), Look::Nothing) = (&awaited.what, &look) {
        all_read.insert(group.clone());
    }
    look
}

fn look_at(server: &Server, txn: &mut Txn<'_>, db: u8, awaited: &Awaited) -> Look {
    let key = &awaited.key;
    let Ok(found) = txn.look(db, key) else { return Look::Nothing };
    let expires_at = found.and_then(|found| found.expires_at);
    let type_ = found.and_then(|found| Type::of_tag(found.tag));
    let is = |is_there| if is_there { Look::Something } else { Look::Nothing };
    match (&awaited.what, type_) {
        (What::List, type_) => is(type_ == Some(Type::List)),
        (What::SortedSet, type_) => is(type_ == Some(Type::SortedSet)),
        (What::Entry(_), Some(Type::Stream)) | (What::Unread(_), Some(Type::Stream)) => {
            if matches!(awaited.what, What::Unread(_)) {
                // Its waiters are notified when it expires.
                server.expiry_timers.note(db, key, expires_at);
            }
            let Ok(Some(stream)) = txn.stream(db, key) else { return Look::Nothing };
            let Ok(last) = stream.last_entry_id() else { return Look::Nothing };
            match &awaited.what {
                What::Unread(name) => match stream.group(name) {
                    Ok(Some(group)) => is(last.is_some_and(|last| last > group.last_id)),
                    Ok(None) => Look::Never(errors::no_group_to_read(key, name)),
                    Err(_) => Look::Nothing,
                },
                What::Entry(behind) => is(last.is_some_and(|last| last > *behind)),
                What::List | What::SortedSet => Look::Nothing,
            }
        }
        (What::Entry(_), _) => Look::Nothing,
        // As if the command ran again.
        (What::Unread(name), None) => Look::Never(errors::no_group_to_read(key, name)),
        (What::Unread(_), Some(_)) => Look::Never(duramen_structures::Error::WrongType.into()),
    }
}

/// The state that stays the same while waiters are served.
#[derive(Clone, Copy)]
pub struct Wake<'a> {
    /// All commands.
    pub table: &'static Table,
    /// The state that all connections share.
    pub server: &'a Server,
    /// The worker's counters.
    pub stats: &'a WorkerStats,
    /// Unix milliseconds.
    pub now: u64,
}

impl Wake<'_> {
    /// Before a transaction commits: its command enters the queues of its keys if it waits, and is then the `waiter`;
    /// else the waiters for the written keys are served.
    #[inline]
    pub fn before_commit(
        self,
        txn: &mut Txn<'_>,
        session: &Session,
        entry: usize,
        worker_state: &mut WorkerState,
        waiter: &mut Option<Arc<Waiter>>,
    ) -> Result<(), CommandError> {
        if worker_state.wait.is_some() {
            *waiter = self.enter(txn, session, entry, worker_state)?;
        } else if self.server.waiting.count() > 0 {
            self.wake_written(txn, worker_state)?;
        }
        // After an error the caller takes the waiter out.
        if self.server.follows_expiries() || self.server.expiry_timers.is_any() {
            self.note_expiries(txn)?;
        }
        Ok(())
    }

    /// Serves the waiters for the keys that the transaction has written.
    pub(super) fn wake_written(
        self,
        txn: &mut Txn<'_>,
        worker_state: &mut WorkerState,
    ) -> Result<(), CommandError> {
        loop {
            let waiting = &self.server.waiting;
            let awaited: Vec<(u8, Vec<u8>)> = txn
                .written()
                .filter(|(db, key)| waiting.is_awaited(*db, key))
                .map(|(db, key)| (db, key.to_vec()))
                .collect();
            let claims = worker_state.claims.len();
            for (db, key) in &awaited {
                self.wake(txn, worker_state, *db, key)?;
            }
            // An element written for one waiter may serve another.
            if worker_state.claims.len() == claims {
                return Ok(());
            }
        }
    }

    /// Records the expiry times of the transaction's writes, if they are wanted.
    #[cold]
    fn note_expiries(self, txn: &mut Txn<'_>) -> Result<(), CommandError> {
        let written: Vec<(u8, Vec<u8>)> = txn.written().map(|(db, key)| (db, key.to_vec())).collect();
        for (db, key) in written {
            let found = txn.look(db, &key)?;
            self.server.expiry_timers.note(db, &key, found.and_then(|found| found.expires_at));
        }
        Ok(())
    }

    /// Serves the waiters for a key whose lock the transaction holds.
    pub(super) fn wake(
        self,
        txn: &mut Txn<'_>,
        worker_state: &mut WorkerState,
        db: u8,
        key: &[u8],
    ) -> Result<(), CommandError> {
        for kind in Kind::ALL {
            // A woken command adds no entries.
            let (mut ticket, mut all_read) = (0, AllRead::new());
            while let Some((next, waiter)) = self.server.waiting.next(db, key, kind, ticket) {
                ticket = next;
                let Some(awaited) = waiter.awaited(key) else { continue };
                match look(self.server, txn, db, awaited, &mut all_read) {
                    // All others in this queue want the same.
                    Look::Nothing if kind != Kind::Stream => break,
                    Look::Nothing => {}
                    Look::Something => self.run(txn, worker_state, &waiter, awaited)?,
                    Look::Never(error) => {
                        if waiter.claim() {
                            let reply = error_reply(&waiter, &error);
                            let claim = Claim::answered(Arc::clone(&waiter), reply);
                            worker_state
                                .claims
                                .push(Claim { failed: Some(error.code().to_owned()), ..claim });
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs a waiter's command on the transaction, unless somebody else answers it.
    fn run(
        self,
        txn: &mut Txn<'_>,
        worker_state: &mut WorkerState,
        waiter: &Arc<Waiter>,
        awaited: &Awaited,
    ) -> Result<(), CommandError> {
        let (entry, args) = (self.table.entry(waiter.command), awaited.args.args());
        let mut keys = Keys::default();
        if !add_keys(entry, args, &mut keys) {
            return Ok(());
        }
        if !txn.name_more(&keys) {
            return Err(BEGINS_AGAIN);
        }
        if !waiter.claim() {
            return Ok(());
        }
        let mut login = match &waiter.user {
            Some(user) => Login::of(Arc::clone(user), &self.server.users),
            None => Login::trusted(),
        };
        // Its rights may have changed while it waited.
        if let Err(why) = login.check(&self.server.users, &entry.spec, entry.index, args) {
            let error = denied::denied(why, entry.spec.name);
            let claim = Claim::answered(Arc::clone(waiter), error_reply(waiter, &error));
            worker_state.claims.push(Claim { failed: Some(error.code().to_owned()), ..claim });
            return Ok(());
        }
        worker_state.claims.push(Claim::answered(Arc::clone(waiter), Box::default()));
        let mut session = Session::new(Arc::clone(&waiter.client), login, true);
        (session.db, session.protocol) = (waiter.db, waiter.protocol);
        let (mut output, mut after) = (Output::default(), After::Nothing);
        worker_state.put_back = None;
        let mut call = Call {
            args,
            entry,
            table: self.table,
            txn,
            reply: Reply::new(&mut output, waiter.protocol),
            session: &mut session,
            server: self.server,
            worker_state,
            stats: self.stats,
            now: self.now,
            after: &mut after,
            merged: 1,
            in_transaction: true,
            is_served: true,
        };
        let begun = Instant::now();
        let applied = call.apply();
        let micros = begun.elapsed().as_micros() as u64;
        let (reply, failed) = match applied {
            Ok(()) => (output.bytes.into(), None),
            // The writer gets the error, and the waiter keeps waiting.
            Err(error) if error.store_failure().is_some() => return Err(error),
            Err(error) => (error_reply(waiter, &error), Some(error.code().to_owned())),
        };
        let put_back = worker_state.put_back.take();
        if let Some(claim) = worker_state.claims.last_mut() {
            // Noted and counted when it is answered: the transaction may run again.
            let ran = Some((awaited.key.clone(), micros));
            *claim = Claim { waiter: Arc::clone(waiter), reply, put_back, ran, failed };
        }
        Ok(())
    }

    /// Enters a command in the queues of its keys, whose locks its transaction has.
    fn enter(
        self,
        txn: &mut Txn<'_>,
        session: &Session,
        entry: usize,
        worker_state: &mut WorkerState,
    ) -> Result<Option<Arc<Waiter>>, CommandError> {
        let Some(wait) = worker_state.wait.take() else { return Ok(None) };
        for awaited in wait.keys.iter().filter(|awaited| matches!(awaited.what, What::Unread(_))) {
            let found = txn.look(session.db, &awaited.key)?;
            self.server.expiry_timers.note(
                session.db,
                &awaited.key,
                found.and_then(|found| found.expires_at),
            );
        }
        let who = (Arc::clone(&session.client), session.login.user().cloned());
        let is_silent = session.reply_mode != ReplyMode::On;
        let how = (session.db, session.protocol, is_silent);
        let waiter = Arc::new(Waiter::new(who, entry, how, wait));
        self.server.waiting.enter(&waiter);
        Ok(Some(waiter))
    }
}

/// The reply to a client whose command failed.
pub(super) fn error_reply(waiter: &Waiter, error: &CommandError) -> Box<[u8]> {
    let mut output = Output::default();
    Reply::new(&mut output, waiter.protocol).error(error.text());
    output.bytes.into()
}

/// The reply to a client whose time is up.
pub fn null_reply(waiter: &Waiter) -> Box<[u8]> {
    let mut output = Output::default();
    let mut reply = Reply::new(&mut output, waiter.protocol);
    match (waiter.keys.is_empty(), waiter.is_for_file) {
        (false, _) => reply.null_array(),
        // WAIT, for replicas, which do not exist.
        (true, false) => reply.integer(0),
        // WAITAOF: the file here has it.
        (true, true) => {
            reply.array(2);
            reply.integer(1);
            reply.integer(0);
        }
    }
    output.bytes.into()
}

/// Takes a waiter out whose transaction did not commit.
pub fn take_out(server: &Server, waiter: Option<Arc<Waiter>>) {
    // Else somebody has answered it, to which nobody listens: its session waits for another.
    if let Some(waiter) = waiter.filter(|waiter| waiter.claim()) {
        server.waiting.leave(&waiter);
    }
}

/// Adds the keys of a command; returns whether its arguments name all of them.
pub fn add_keys(entry: &Entry, args: Args<'_>, keys: &mut Keys) -> bool {
    let Some(places) = entry.spec.keys(args) else { return !entry.spec.has_keys() };
    places.for_each(|key| keys.add(args.at(key.index)));
    true
}

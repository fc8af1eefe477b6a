//! The context of a command, and the form of a command: a function of a [`Call`].

use super::errors::shown_of;
use super::keys::KeyFlags;
use super::spec::LockSpec;
use super::{Args, CommandError, OwnedArgs, slow, spec, table};
use crate::observe::keyspace_events::{Absence, Absent, Classes, EXPIRED, GENERIC, MISS, NEW};
use crate::observe::stats::WorkerStats;
use crate::redis::blocking::{Awaited, Wait};
use crate::redis::resp::Reply;
use crate::redis::session::Session;
use crate::redis::tracking;
use crate::redis::worker_state::WorkerState;
use crate::server::Server;
use duramen_structures::{Ahead, Room, Txn};
use std::time::Instant;

// Of a key that the command looks for.
const READS: KeyFlags = KeyFlags::RO.with(KeyFlags::ACCESS);

/// Runs the command and writes exactly one reply. After an error the dispatcher takes back the reply's bytes and writes
/// the error instead.
///
/// May be called again for the same command after space was made for it: its effects outside the transaction must be
/// repeatable. Its keys are those that its description gives.
pub type Apply = fn(&mut Call<'_, '_>) -> Result<(), CommandError>;

/// One command, or one subcommand, in the list of its group.
pub type Command = spec::Command<Apply>;

/// A command in the table.
pub type Entry = spec::Entry<Apply>;

/// All commands.
pub type Table = table::Table<Apply>;

/// The approximate maximum of replies of a batch: the client's next command begins when it has read enough.
pub const MERGED_BYTES_MAX: usize = 1 << 20;

impl Command {
    /// A command that is only a holder of subcommands.
    pub const fn container(name: &'static str, subcommands: &'static [Self]) -> Self {
        Self::new(name, subcommand_unknown).or(subcommands)
    }
}

/// One execution of one command.
///
/// `'c` is the execution, `'w` the worker whose writer the transaction uses.
pub struct Call<'c, 'w> {
    /// The arguments; the first is the command's name as the client wrote it.
    pub args: Args<'c>,
    /// The table's entry: the spec and its position.
    pub entry: &'static Entry,
    /// All commands.
    pub table: &'static Table,
    /// The keyspace. Every read and write of keys goes through it.
    pub txn: &'c mut Txn<'w>,
    /// Where the reply goes.
    pub reply: Reply<'c>,
    /// The connection's state.
    pub session: &'c mut Session,
    /// The state that all connections share.
    pub server: &'c Server,
    /// The worker's state.
    pub worker_state: &'c mut WorkerState,
    /// The worker's counters.
    pub stats: &'c WorkerStats,
    /// Unix milliseconds; the same for all commands of one transaction.
    pub now: u64,
    /// Actions for after the transaction's commit.
    pub after: &'c mut After,
    /// How many commands of the client run as this one, each with a reply of its own: see `Command::merged`.
    pub merged: usize,
    /// Run by EXEC, or for a client that waited: it does not wait.
    pub in_transaction: bool,
    /// Run for a client that waited.
    pub is_served: bool,
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
    /// Swap two databases.
    Swap(u8, u8),
    /// Make all writes so far as durable as the medium allows, with any durability.
    Commit,
    /// The same, and SAVE is noted.
    Save,
}

impl<'w> Call<'_, 'w> {
    /// The command changes one entry of one value, or none, and nothing else: see [`Txn::edits_one`].
    pub fn edits_one(&mut self) {
        if !self.in_transaction && self.server.waiting.count() == 0 {
            self.txn.edits_one();
        }
    }

    /// The database that the connection has selected.
    #[inline]
    pub fn db(&self) -> u8 {
        self.session.db
    }

    /// Calls `visit` for each of these keys of the selected database. Their cache misses overlap.
    pub fn each_key<'k>(
        &mut self,
        keys: impl Iterator<Item = &'k [u8]>,
        mut visit: impl FnMut(&mut Self, &'k [u8]) -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        self.any_key(keys, |call, key| visit(call, key).map(|()| false)).map(|_| ())
    }

    /// As [`each_key`](Self::each_key), until `visit` returns true; whether it did.
    pub fn any_key<'k>(
        &mut self,
        mut keys: impl Iterator<Item = &'k [u8]>,
        mut visit: impl FnMut(&mut Self, &'k [u8]) -> Result<bool, CommandError>,
    ) -> Result<bool, CommandError> {
        self.txn.reserve(keys.size_hint().0);
        while let Some(some) = Ahead::next_of(&mut keys) {
            if some.len() > 1 {
                self.txn.prefetch(self.session.db, &some);
            }
            for key in &*some {
                if visit(self, key)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The command found nothing and waits. False, and it does not, within EXEC: it answers as if its time were up.
    pub fn waits(&mut self, until: Option<Instant>, keys: Vec<Awaited>) -> bool {
        if !self.in_transaction {
            self.worker_state.wait = Some(Wait { until, keys, is_for_file: false });
        }
        !self.in_transaction
    }

    /// Records how to put back the removed elements, for the case that the waiting client has disconnected.
    pub fn put_back(&mut self, args: impl FnOnce() -> OwnedArgs) {
        if self.is_served {
            self.worker_state.put_back = Some(args());
        }
    }

    /// Runs the command, and reports the events of its keys that all commands share.
    #[inline]
    pub fn apply(&mut self) -> Result<(), CommandError> {
        // Putting back removed elements is not refused.
        let is_put_back = self.session.puts_back;
        self.txn.set_room(if is_put_back { Room::Removal } else { self.entry.spec.room });
        let wanted = self.wanted() & (EXPIRED | MISS | NEW);
        // A command before it, in EXEC, may have failed half-way.
        let was_unsaved = self.txn.has_unsaved();
        let done = if wanted == 0 { (self.entry.apply)(self) } else { self.apply_and_notify(wanted) };
        debug_assert!(
            done.is_err()
                || was_unsaved
                || !self.txn.has_unsaved()
                // They run others, of which one may have failed half-way.
                || matches!(self.entry.spec.locks, LockSpec::Queued | LockSpec::Script),
            "{} has stored what it has not saved: the edit changed something and did not say so",
            self.entry.spec.name
        );
        done
    }

    /// The classes of events that are wanted.
    fn wanted(&self) -> Classes {
        let events = if self.server.subscriptions.are_any() { self.server.notifications() } else { 0 };
        if self.server.tracking.follows_prefixes() { events | EXPIRED } else { events }
    }

    #[cold]
    fn apply_and_notify(&mut self, wanted: Classes) -> Result<(), CommandError> {
        let (db, args, spec) = (self.db(), self.args, &self.entry.spec);
        let keeps = self.server.pause.keeps_keys(self.now);
        let mut absent = Absent::since(self.stats.keyspace_misses.get());
        for place in spec.keys_found(args) {
            let key = args.at(place.index);
            // The command reports damage itself.
            if wanted & EXPIRED != 0 && !keeps && matches!(self.txn.expire(db, key), Ok(true)) {
                self.worker_state.notify_absence(self.server, Absence::Expired(db, key.into()));
            }
            if wanted & (MISS | NEW) != 0 && matches!(self.txn.exists(db, key), Ok(false)) {
                // XACK and its like look for the key and say that they change it.
                let reads = place.flags.has_any(READS) || self.entry.spec.name.starts_with('x');
                absent.add(db, key, reads);
            }
        }
        self.worker_state.absent = absent;
        let done = (self.entry.apply)(self);
        self.notify_missed();
        self.worker_state.absent = Absent::default();
        done
    }

    /// Tells of the keys that the command has missed until now.
    fn notify_missed(&mut self) {
        let misses = self.stats.keyspace_misses.get();
        while let Some((db, key)) = self.worker_state.absent.next_missed(misses) {
            // OBJECT counts misses without an event.
            if self.entry.container_name() != "object" {
                self.worker_state.notify_absence(self.server, Absence::Missed(db, key));
            }
        }
    }

    /// The command has just counted a miss of a key that is not among its arguments.
    pub fn missed(&mut self, db: u8, key: &[u8]) {
        if self.wanted() & MISS != 0 {
            self.worker_state.absent.skip_miss();
            self.notify_missed();
            self.worker_state.notify_absence(self.server, Absence::Missed(db, key.into()));
        }
    }

    /// The command is about to write a key that is not among its arguments.
    pub fn will_write(&mut self, key: &[u8]) {
        let db = self.db();
        if self.wanted() & NEW != 0 && matches!(self.txn.exists(db, key), Ok(false)) {
            self.worker_state.absent.add(db, key, false);
        }
    }

    /// Tells of an event of a key in the selected database.
    #[inline]
    pub fn notify(&mut self, class: Classes, event: &str, key: &[u8]) {
        if self.worker_state.absent.is_any() {
            self.notify_before(key);
        }
        self.worker_state.notify(self.server, class, event, self.session.db, key);
    }

    /// Reports the events that precede another event of a key: misses, and that the key is new.
    #[cold]
    fn notify_before(&mut self, key: &[u8]) {
        let db = self.db();
        self.notify_missed();
        // Also when it was set with a time that has passed.
        if self.worker_state.absent.may_be_new(db, key) {
            self.notify_new(db, key);
        }
    }

    /// Tells that a key is new if it is, where there is no other event of it.
    pub fn notify_if_new(&mut self, key: &[u8]) {
        if self.worker_state.absent.may_be_new(self.db(), key) {
            self.notify_new(self.db(), key);
        }
    }

    /// Tells that a key is new, also where another went by its name.
    pub fn notify_new(&mut self, db: u8, key: &[u8]) {
        self.worker_state.absent.note_new(db, key);
        self.worker_state.notify(self.server, NEW, "new", db, key);
    }

    /// Tells that something of a key was changed, and that the key went, if it did.
    pub fn notify_or_gone(&mut self, class: Classes, event: &str, key: &[u8], is_gone: bool) {
        self.notify(class, event, key);
        if is_gone {
            self.notify(GENERIC, "del", key);
        }
    }

    /// Reports that a result was stored or, if it is empty, that the destination was deleted.
    pub fn notify_stored(&mut self, class: Classes, event: &str, key: &[u8], count: usize, changed: bool) {
        if count > 0 {
            self.notify(class, event, key);
        } else if changed {
            self.notify(GENERIC, "del", key);
        }
    }

    /// Appends the error of a command that was refused within EXEC.
    pub fn reply_error(&mut self, error: &CommandError) {
        self.stats.error(error.code());
        self.reply.error(error.text());
    }

    /// Runs another command inside this one's transaction, as EXEC does with queued commands. Its reply, or its error,
    /// is appended to this one's.
    pub fn run(&mut self, entry: &'static Entry, args: Args<'_>) {
        let mut call = Call {
            args,
            entry,
            table: self.table,
            txn: &mut *self.txn,
            reply: self.reply.reborrow(),
            session: &mut *self.session,
            server: self.server,
            worker_state: &mut *self.worker_state,
            stats: self.stats,
            now: self.now,
            after: &mut *self.after,
            merged: 1,
            in_transaction: true,
            is_served: false,
        };
        call.run_within();
        // HELLO may have changed the protocol.
        self.reply.protocol = self.session.protocol;
    }

    /// Runs this command as a part of another one: writes its reply, or its error, and counts it.
    pub fn run_within(&mut self) {
        let (entry, args, mark) = (self.entry, self.args, self.reply.mark());
        let begun = Instant::now();
        let result = self.apply();
        let result = result.and_then(|()| match tracking::remembers(&entry.spec, self.session) {
            true => tracking::remember(self.server, self.txn, self.session, &entry.spec, args),
            false => Ok(()),
        });
        let time = begun.elapsed() + std::mem::take(&mut self.worker_state.slept);
        let counters = &self.stats.commands[entry.index];
        counters.calls.add(1);
        if let Err(error) = result {
            counters.failed.add(1);
            self.stats.error(error.code());
            if error.code() == "OOM" {
                self.server.note_full();
            }
            self.reply.protocol = self.session.protocol;
            self.reply.rollback(mark);
            self.reply.error(error.text());
            if error.store_failure().is_some() {
                self.session.store_failure = Some(error);
            }
        }
        counters.nanos.add(time.as_nanos() as u64);
        if self.server.times.tracked() {
            counters.times.record(time.as_nanos() as u64, 1);
        }
        slow::note(self.server, &entry.spec, args, &self.session.client, time.as_micros() as u64);
        self.worker_state.show(self.server, &entry.spec, args, self.session);
    }
}

/// Redis's error for a subcommand that there is not.
pub fn subcommand_error(entry: &Entry, args: Args<'_>) -> CommandError {
    let help = format!("'. Try {} HELP.", entry.container_called().to_ascii_uppercase());
    CommandError::showing("ERR unknown subcommand '", shown_of(args.at(1)), &help)
}

/// Redis's error for a subcommand that there is, with other arguments than it takes.
pub fn subcommand_arguments_error(entry: &Entry, args: Args<'_>) -> CommandError {
    let help = format!("'. Try {} HELP.", entry.container_called().to_ascii_uppercase());
    let shown = shown_of(args.at(1));
    CommandError::showing("ERR unknown subcommand or wrong number of arguments for '", shown, &help)
}

/// The function for an unknown subcommand of a container command.
///
/// # Errors
/// Always: Redis's `unknown subcommand`.
pub fn subcommand_unknown(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    Err(subcommand_error(call.entry, call.args))
}

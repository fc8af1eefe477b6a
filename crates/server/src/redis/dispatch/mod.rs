//! From arguments to a reply: which command, whether it may run here, and its transaction.
//!
//! ```text
//! execute ─► admit ─► run: plan ─► apply in a transaction ─► publish
//! ```
//!
//! | module | is about |
//! |---|---|
//! | `admit` | the checks before a command runs: known, arity, authenticated, allowed inside MULTI, queue or run |
//! | `plan` | which keys the transaction locks |
//! | `pipeline` | commands that run as one |
//! | `timing` | which command is charged which time |
//! | `room`, `parts` | a full store |
//! | `crashed` | a command that panics |
//! | `between` | work at the beginning of a turn, without a client |
//!
//! Clients that block are in [`blocking`](crate::redis::blocking), clients that track keys in
//! [`tracking`](crate::redis::tracking).

mod admit;
mod between;
mod crashed;
mod parts;
mod pipeline;
mod plan;
mod room;
mod timing;

use crate::command_error::CommandError;
use crate::net::{Output, Turn};
use crate::observe::stats::WorkerStats;
use crate::redis::blocking::{Waiter, Wake, take_out};
use crate::redis::command::spec::LockSpec;
use crate::redis::command::{After, Args, Call, Entry, OwnedArgs, Table};
use crate::redis::resp::Reply;
use crate::redis::session::{ReplyMode, Session};
use crate::redis::tracking;
use crate::redis::worker_state::{Chances, WorkerState};
use crate::server::Server;
use duramen_structures::{Keys, Txn};
use pipeline::Batch;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use timing::Charge;

/// Runs commands for one worker.
pub struct Dispatcher {
    pub(super) table: &'static Table,
    pub(super) server: Arc<Server>,
    pub(super) stats: Arc<WorkerStats>,
    pub(super) worker_state: WorkerState,
    // Waiters that were answered in this turn.
    pub(super) answered: Vec<Arc<Waiter>>,
    // Keys whose waiters may have been skipped, with their databases.
    pub(super) again: Vec<(u8, Vec<u8>)>,
    // Commands that put back the elements of disconnected clients.
    pub(super) put_backs: Vec<(u8, OwnedArgs)>,
    // The keys of a command that has several.
    keys: Keys,
    // The command that runs, once or several times in a row.
    pub(super) running: Option<&'static Entry>,
    // Messages before it.
    outgoing_before: usize,
    charge: Charge,
    batch: Batch,
}

/// What is known of a command before it runs, and is restored when it runs again.
#[derive(Clone, Copy)]
struct Plan {
    entry: &'static Entry,
    // Where its reply begins.
    start: usize,
    db: u8,
    protocol: crate::redis::resp::Protocol,
    // Messages before it.
    outgoing: usize,
    // How many commands run as this one.
    merged: usize,
    // Each of them does its step; else the function of the first is called for all.
    are_steps: bool,
}

impl Dispatcher {
    /// A dispatcher for the server's worker with this number.
    pub fn new(server: Arc<Server>, stats: Arc<WorkerStats>, number: usize, table: &'static Table) -> Self {
        Self {
            table,
            server,
            stats,
            worker_state: WorkerState::new(number),
            answered: Vec::new(),
            again: Vec::new(),
            put_backs: Vec::new(),
            keys: Keys::default(),
            running: None,
            outgoing_before: 0,
            charge: Charge::default(),
            batch: Batch::default(),
        }
    }

    /// The worker's state that commands use.
    pub const fn worker_state(&self) -> &WorkerState {
        &self.worker_state
    }

    /// Whether this calls TOUCH.
    pub fn is_touch(&self, args: Args<'_>) -> bool {
        self.table.find(args).is_some_and(|entry| entry.spec.name == "touch")
    }

    /// A connection has ended.
    pub fn leave(&mut self, session: &mut Session) {
        self.stop_waiting(session);
        self.worker_state.leave(&self.server, session);
    }

    /// Runs one command, or a batch of `merged` commands, and appends the replies to `out`. A command that panics is
    /// answered by an error; all others continue, also those of the same connection. False, with no effect, when CLIENT
    /// PAUSE holds it: the session has the time until then.
    pub fn execute(
        &mut self,
        turn: &mut Turn,
        session: &mut Session,
        args: Args<'_>,
        merged: usize,
        out: &mut Output,
    ) -> bool {
        let start = out.len();
        let (db, protocol) = (session.db, session.protocol);
        self.batch.merged = merged;
        if catch_unwind(AssertUnwindSafe(|| self.admit(turn, session, args, out))).is_err() {
            out.truncate(start);
            (session.db, session.protocol) = (db, protocol);
            self.give_back(turn);
            self.crashed(turn, session);
            (0..merged).for_each(|_| Reply::new(out, protocol).error(crashed::CRASHED.text()));
        }
        if session.is_held {
            return false;
        }
        if session.reply_mode != ReplyMode::On {
            out.truncate(start);
            session.reply_mode = match session.reply_mode {
                ReplyMode::Skip => ReplyMode::On,
                ReplyMode::SkipNext => ReplyMode::Skip,
                mode => mode,
            };
        }
        // Also when the command, an EXEC, has switched replies on again.
        if !self.worker_state.pushed.is_empty() {
            out.bytes.append(&mut self.worker_state.pushed);
        }
        true
    }

    /// Runs an admitted command.
    pub(super) fn run(
        &mut self,
        turn: &mut Turn,
        entry: &'static Entry,
        session: &mut Session,
        args: Args<'_>,
        out: &mut Output,
    ) {
        let plan = self.plan(turn, entry, session, out);
        if matches!(entry.spec.locks, LockSpec::Script | LockSpec::Queued) {
            self.worker_state.bystanders = turn.bystanders.take();
        }
        let committed = self.apply(turn, plan, session, args, out);
        self.give_back(turn);
        let is_committed = committed.is_ok();
        let done = match committed {
            Ok(after) => self.finish(turn, after),
            Err(error) => match self.run_otherwise(turn, plan, session, args, out, error) {
                Some(done) => done,
                // It ran as several commands, and each of them was published.
                None => return,
            },
        };
        self.publish(turn, plan, session, args, out, is_committed, done.err());
        if self.batch.merged < plan.merged {
            self.run_each(turn, session, args, self.batch.merged..plan.merged, out);
        }
    }

    /// The turn has the worker's other connections again.
    #[inline]
    fn give_back(&mut self, turn: &mut Turn) {
        if let Some(bystanders) = self.worker_state.bystanders.take() {
            turn.bystanders = Some(bystanders);
        }
    }

    /// Takes note of the command, charges the one before it, and remembers what a second try restores.
    fn plan(&mut self, turn: &mut Turn, entry: &'static Entry, session: &mut Session, out: &Output) -> Plan {
        let are_steps = self.batch.runs_steps();
        session.command_last = entry.index as u32;
        self.charge_before(turn, entry, are_steps);
        self.running = Some(entry);
        self.outgoing_before = self.worker_state.outgoing.len();
        self.worker_state.absences.clear();
        self.worker_state.undone = 0;
        self.worker_state.chances = Chances::default();
        self.worker_state.changed_libraries = None;
        Plan {
            entry,
            start: out.len(),
            db: session.db,
            protocol: session.protocol,
            outgoing: self.outgoing_before,
            merged: self.batch.merged,
            are_steps,
        }
    }

    /// Runs the command in its transaction. The same transaction serves clients that wait for its keys, takes the
    /// clients that track them, and notes when they expire.
    fn apply(
        &mut self,
        turn: &mut Turn,
        plan: Plan,
        session: &mut Session,
        args: Args<'_>,
        out: &mut Output,
    ) -> Result<After, CommandError> {
        let Self { server, stats, worker_state, again, batch, keys, .. } = self;
        let entry = plan.entry;
        let locks = plan::locks(entry, self.table, server, session, args, keys);
        let wake = Wake { table: self.table, server, stats, now: turn.now };
        let steps = if plan.are_steps { &batch.commands[..] } else { &[] };
        let (mut after, mut waiter, mut changes, mut runs_again) = (After::Nothing, None, 0, false);
        let committed: Result<(), CommandError> = turn.keys.run(turn.now, locks, |txn| {
            if std::mem::replace(&mut runs_again, true) {
                stats.repeated.add(1);
                out.truncate(plan.start);
                worker_state.take_back(server, plan.outgoing, true);
                (session.db, session.protocol) = (plan.db, plan.protocol);
                after = After::Nothing;
                Self::release(worker_state, again);
                worker_state.chances.scripts = 0;
                worker_state.changed_libraries = None;
                take_out(server, waiter.take());
                server.tracking.put_back(std::mem::take(&mut worker_state.untracked));
            }
            call(txn, wake, plan, session, worker_state, args, steps, out, &mut after)?;
            changes = txn.written().count();
            wake.before_commit(txn, session, entry.index, worker_state, &mut waiter)?;
            tracking::before_commit(server, txn, session, &entry.spec, args, worker_state)
        });
        if let Err(error) = committed {
            self.worker_state.wait = None;
            Self::release(&mut self.worker_state, &mut self.again);
            take_out(&self.server, waiter);
            return Err(error);
        }
        self.stats.changes.add(changes as u64);
        if let Some(readers) = self.worker_state.changed_libraries.take() {
            self.server.libraries.note_change(readers);
        }
        if !self.worker_state.claims.is_empty() {
            self.answer();
        }
        if let Some(waiter) = waiter {
            session.waits_until = waiter.until;
            session.waiter = Some(waiter);
        }
        self.batch.merged -= self.worker_state.undone;
        Ok(after)
    }

    /// What is left of a command whose transaction has failed; `None` when it was done as other commands.
    #[cold]
    fn run_otherwise(
        &mut self,
        turn: &mut Turn,
        plan: Plan,
        session: &mut Session,
        args: Args<'_>,
        out: &mut Output,
        error: CommandError,
    ) -> Option<Result<(), CommandError>> {
        if plan.merged > 1 {
            self.take_back(plan, out);
            self.run_each(turn, session, args, 0..plan.merged, out);
            return None;
        }
        if error.code() != "OOM" {
            return Some(Err(error));
        }
        if self.has_parts(plan.entry, args) {
            self.take_back(plan, out);
            self.run_in_parts(turn, plan.entry, session, args, out);
            return None;
        }
        match plan.entry.spec.name {
            "del" | "unlink" => Some(self.delete_each(turn, plan, session, args, out)),
            _ => Some(Err(error)),
        }
    }

    /// Takes back a reply and its messages.
    fn take_back(&mut self, plan: Plan, out: &mut Output) {
        self.worker_state.take_back(&self.server, plan.outgoing, false);
        out.truncate(plan.start);
    }

    /// The rest of the command's work, for which its transaction had to be committed.
    fn finish(&mut self, turn: &mut Turn, after: After) -> Result<(), CommandError> {
        match after {
            After::Nothing => {}
            After::FlushDb(db) => {
                turn.keys.flush(db)?;
                self.look_at_databases(turn, [db]);
            }
            After::Commit | After::Save => {
                // Not inside the group: the commit waits for the writes of all.
                turn.keys.flush_group()?;
                let saved = self.server.keyspace.store().commit();
                turn.keys.group();
                saved?;
                if after == After::Save {
                    self.server.note_saved(turn.now / 1000);
                }
            }
            After::FlushAll => {
                turn.keys.flush_all()?;
                self.look_at_databases(turn, 0..self.server.keyspace.databases());
            }
            After::Swap(first, second) => {
                turn.keys.swap(first, second)?;
                self.look_at_databases(turn, [first, second]);
            }
        }
        Ok(())
    }

    /// Tells of a command that is done: to tracking clients, counters, its own client when it failed, MONITOR, the
    /// slow log.
    #[allow(clippy::too_many_arguments, reason = "the outcome is two of them")]
    fn publish(
        &mut self,
        turn: &mut Turn,
        plan: Plan,
        session: &mut Session,
        args: Args<'_>,
        out: &mut Output,
        is_committed: bool,
        failed: Option<CommandError>,
    ) {
        let entry = plan.entry;
        self.tracked(session, is_committed);
        if let Some(error) = session.store_failure.take() {
            turn.note(error);
        }
        if session.transaction_over {
            session.transaction_drop();
        }
        self.count(entry, plan.are_steps);
        if let Some(error) = failed.map(|error| self.report_full(error)) {
            self.stats.commands[entry.index].failed.add(1);
            self.stats.error(error.code());
            self.take_back(plan, out);
            Reply::new(out, session.protocol).error(error.text());
            turn.note(error);
        }
        self.worker_state.show(&self.server, &entry.spec, args, session);
        match plan.are_steps {
            true => self.timed_run(turn, args, session),
            false => self.timed(turn, entry, args, session),
        }
    }

    /// Counts the commands that ran.
    #[inline]
    fn count(&self, entry: &Entry, are_steps: bool) {
        let merged = self.batch.merged as u64;
        if are_steps {
            self.count_steps();
        } else {
            self.stats.commands[entry.index].calls.add(merged);
        }
        self.stats.commands_processed.add(merged);
    }
}

/// Calls the command's function, or those of all steps.
#[allow(clippy::too_many_arguments, reason = "the parts of a Call")]
#[inline]
fn call(
    txn: &mut Txn<'_>,
    wake: Wake<'_>,
    plan: Plan,
    session: &mut Session,
    worker_state: &mut WorkerState,
    args: Args<'_>,
    steps: &[&'static Entry],
    out: &mut Output,
    after: &mut After,
) -> Result<(), CommandError> {
    let protocol = session.protocol;
    let mut call = Call {
        args,
        entry: plan.entry,
        table: wake.table,
        txn,
        reply: Reply::new(out, protocol),
        session,
        server: wake.server,
        worker_state,
        stats: wake.stats,
        now: wake.now,
        after,
        merged: plan.merged,
        in_transaction: false,
        is_served: false,
    };
    if steps.is_empty() { call.apply() } else { pipeline::steps::run(&mut call, steps) }
}

//! From arguments to a reply: which command, whether it may run here, and its transaction.
//!
//! The checks are in Redis's order, because each has its own error and clients see the first: known → arity →
//! authenticated → allowed inside MULTI → queue or run.

use super::call::subcommand_error;
use super::errors::{SHOWN_BYTES_MAX, StoreFailure, shown_of};
use super::groups::table;
use super::merge_run;
use super::spec::{LockSpec, Spec};
use super::timing::{self, Tick};
use super::tracking;
use super::wake::{self, Wake, add_keys};
use super::{After, Args, Call, CommandError, Entry, Flags, OwnedArgs, Table, errors};
use crate::clients::unix_millis;
use crate::log;
use crate::net::Output;
use crate::notifications::{Absence, Absent};
use crate::resp::{Limits, Protocol, Reply, Requests, ahead};
use crate::server::Server;
use crate::session::{ReplyMode, Session, Transaction};
use crate::stats::WorkerStats;
use crate::waiting::Waiter;
use crate::worker_state::WorkerState;
use duramen_structures::{AHEAD_MAX, Keys, Locks, Txn, Worker};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PANICKED: CommandError =
    CommandError::new("ERR internal error: command crashed; its effect is unknown, see the server's log");
const NOT_DURABLE: CommandError = CommandError::failed(
    "MISCONF internal error: crash while committing; the effect of the writes is unknown, see the server's log",
);
// Without `maxmemory`.
const FULL: CommandError =
    CommandError::new("OOM store is full (device or address-space limit reached); delete keys");
// A held command is checked again after this time, to notice CLIENT UNPAUSE.
const LOOK_AT_PAUSE: Duration = Duration::from_millis(20);
// Commands that Redis may send to replicas although they write no key.
const MAY_REPLICATE: [&str; 3] = ["pfcount", "publish", "spublish"];
// See `timed`.
const FAST_ARGUMENTS_MAX: usize = 8;
const LOOK_AT_CLOCK: u64 = 8;
// Commands that run as one.
const MERGED_MAX: usize = 64;
// Longer keys are copied for longer than a miss takes.
const AHEAD_KEY_BYTES_MAX: usize = 256;

/// Runs commands for one worker.
pub struct Dispatcher {
    pub(super) table: &'static Table,
    pub(super) server: Arc<Server>,
    pub(super) worker: Worker,
    pub(super) stats: Arc<WorkerStats>,
    pub(super) worker_state: WorkerState,
    // Waiters that were answered in this turn.
    pub(super) answered: Vec<Arc<Waiter>>,
    // Keys whose waiters may have been skipped, with their databases.
    pub(super) again: Vec<(u8, Vec<u8>)>,
    // Commands that put back the elements of disconnected clients.
    pub(super) put_backs: Vec<(u8, OwnedArgs)>,
    // Messages before the command that runs.
    outgoing_before: usize,
    // The keys of a command that has several.
    keys: Keys,
    // Up to here all time is charged to commands.
    clock: Instant,
    // The coarse clock then.
    tick: Tick,
    // Commands since then.
    uncharged: u64,
    // The command that runs since then, once or several times in a row.
    running: Option<&'static Entry>,
    // How many commands run in the current batch.
    merged: usize,
    // These commands.
    commands: Vec<&'static Entry>,
    // Each does its step; else the function of the first is called for all.
    are_steps: bool,
    // The command that was looked for last, which is to run next.
    next: Option<&'static Entry>,
    // The engine prefetched the keys of the last batch, so it will also prefetch the next ones.
    fetches: bool,
    pub(super) now: u64,
    // The store failed during this turn, whichever command noticed.
    failed: Option<CommandError>,
    // A failure was seen, so the store has taken no writes since.
    failed_before: bool,
}

impl Dispatcher {
    /// A dispatcher that reads and writes keys through `worker`, for the server's worker with this number.
    pub fn new(server: Arc<Server>, worker: Worker, stats: Arc<WorkerStats>, number: usize) -> Self {
        Self {
            table: table(),
            server,
            worker,
            stats,
            worker_state: WorkerState::new(number),
            answered: Vec::new(),
            again: Vec::new(),
            put_backs: Vec::new(),
            outgoing_before: 0,
            keys: Keys::default(),
            clock: Instant::now(),
            tick: Tick::now(),
            uncharged: 0,
            running: None,
            merged: 1,
            commands: Vec::new(),
            are_steps: false,
            next: None,
            fetches: false,
            now: 0,
            failed: None,
            failed_before: false,
        }
    }

    /// Begins a turn: all commands until [`Self::finish_turn`] become durable together.
    pub fn group(&mut self) {
        self.worker.group();
        self.clock = Instant::now();
        self.tick = Tick::now();
        self.now = unix_millis();
        if self.server.tracking.is_due(self.now)
            && !self.server.pause.keeps_keys(self.now)
            && catch_unwind(AssertUnwindSafe(|| self.notify_expired())).is_err()
        {
            self.note_panic();
        }
        if self.has_work() && catch_unwind(AssertUnwindSafe(|| self.work())).is_err() {
            Self::release(&mut self.worker_state, &mut self.again);
        }
    }

    /// The worker's access to keys in this turn, and its time in Unix milliseconds.
    pub const fn turn(&mut self) -> (&mut Worker, u64) {
        (&mut self.worker, self.now)
    }

    /// Lets the engine prefetch the keys of the next commands in `input`. Returns the bytes of these commands.
    pub fn look_ahead(&mut self, session: &Session, input: &[u8]) -> usize {
        if self.fetches {
            return 0;
        }
        // A failed hint is skipped.
        catch_unwind(AssertUnwindSafe(|| self.fetch_ahead(session, input))).unwrap_or(input.len())
    }

    fn fetch_ahead(&mut self, session: &Session, input: &[u8]) -> usize {
        let ahead = ahead::look::<AHEAD_MAX>(input);
        // For one command there is nothing to overlap with.
        if ahead.count > 1 {
            let keys = ahead.keys[..ahead.count].iter().map(|key| &input[key.start..key.end]);
            self.worker.prefetch(session.db, keys.filter(|key| key.len() <= AHEAD_KEY_BYTES_MAX));
        }
        ahead.bytes
    }

    /// Makes the turn's writes, and those of others that it read, durable. Replies may leave after it.
    ///
    /// # Errors
    /// When that failed: the turn's effects must not be shown.
    pub fn finish_turn(&mut self) -> Result<(), CommandError> {
        self.charge();
        let flushed = catch_unwind(AssertUnwindSafe(|| self.worker.flush_group()));
        if self.server.times.each() || self.tick != Tick::now() {
            self.server.times.spike("aof-fsync-always", self.clock.elapsed().as_micros() as u64);
        }
        let finished = flushed.map_or(Err(NOT_DURABLE), |flushed| flushed.map_err(CommandError::from));
        if let Err(error) = &finished {
            self.note(error.clone());
        }
        // A scan or a save flushes in the middle of a turn. If that failed, the earlier writes are in doubt although
        // nothing is left to flush now.
        let finished = self.failed.take().map_or(finished, Err);
        self.hand_over(finished.is_ok());
        match &finished {
            Ok(()) => self.answered.clear(),
            Err(error) if !self.answered.is_empty() => {
                self.refuse_answered(error);
                // They report nothing that the turn did.
                self.hand_over(true);
            }
            Err(_) => {}
        }
        finished
    }

    fn hand_over(&mut self, is_durable: bool) {
        let (inboxes, own) = (&self.server.inboxes, self.worker_state.worker);
        self.server.delivery.hand_over(&mut self.worker_state.outgoing, is_durable, |worker, messages| {
            if let Some(inbox) = inboxes.get(worker) {
                inbox.send_mail(messages, worker != own);
            }
        });
    }

    /// The worker's state that commands use.
    pub const fn worker_state(&self) -> &WorkerState {
        &self.worker_state
    }

    /// A connection has ended.
    pub fn leave(&mut self, session: &mut Session) {
        self.stop_waiting(session);
        self.worker_state.leave(&self.server, session);
    }

    /// Whether the commands after this one that name its key may run in one batch with it, unnoticed by any client.
    #[inline]
    pub fn merges(&mut self, session: &Session, args: Args<'_>) -> bool {
        self.fetches = false;
        self.next =
            self.running.filter(|entry| entry.is_called(args.at(0))).or_else(|| self.table.find(args));
        self.next.is_some_and(|entry| entry.spec.merged_args == args.len()) && self.may_merge(session)
    }

    /// Merges the commands after the current one, which is the first in `input`, into one batch; returns their number
    /// and where the last one ends. With different keys at most as many as the engine prefetches at once.
    pub fn merge(
        &mut self,
        session: &Session,
        requests: &mut Requests,
        input: &[u8],
        limits: &Limits,
    ) -> Option<(usize, usize)> {
        let (table, first) = (self.table, self.next?);
        if first.spec.keys_differ {
            let merged = requests.merge_of_any_keys(input, limits, AHEAD_MAX)?;
            self.commands.clear();
            self.commands.resize(merged.0, first);
            self.are_steps = false;
            self.fetches = merged.0 > 1;
            if self.fetches {
                let keys = Args::of(requests, input).from(1).step_by(first.spec.merged_args - 1);
                self.worker.prefetch(session.db, keys.filter(|key| key.len() <= AHEAD_KEY_BYTES_MAX));
            }
            return Some(merged);
        }
        // In a full store each is refused in its turn, even if the next one frees space.
        let (server, worker, mut is_full) = (&*self.server, &mut self.worker, None);
        let may_be_full = server.may_be_full();
        let mut is_refused = |entry: &Entry| {
            may_be_full
                && entry.spec.flags.has(Flags::DENYOOM)
                && *is_full.get_or_insert_with(|| find_room(server, worker).is_err())
        };
        if is_refused(first) {
            return None;
        }
        let joins = |name: &[u8], count: usize| {
            let entry = if first.is_called(name) { first } else { table.command(name)? };
            (first.spec.runs_with(&entry.spec, count) && !is_refused(entry)).then_some(entry)
        };
        self.commands.clear();
        self.commands.push(first);
        let merged = requests.merge(input, limits, MERGED_MAX, &mut self.commands, joins)?;
        let are_alike = self.commands.iter().all(|entry| entry.index == first.index);
        self.are_steps = !(are_alike && first.spec.is_merged);
        Some(merged)
    }

    fn may_merge(&self, session: &Session) -> bool {
        let server = &*self.server;
        session.transaction.is_none()
            && session.authenticated
            && session.reply_mode == ReplyMode::On
            && !session.only_listens()
            && server.waiting.count() == 0
            && !server.times.each()
            && !server.pause.is_any()
            && !server.tracking.is_any()
            && !server.monitors.are_any()
            && !server.subscriptions.are_any()
    }

    /// Runs one command, or a batch of `merged` commands, and appends the replies to `out`. A command that panics is
    /// answered by an error; all others continue, also those of the same connection. False, with no effect, when CLIENT
    /// PAUSE holds it: the session has the time until then.
    pub fn execute(
        &mut self,
        session: &mut Session,
        args: Args<'_>,
        merged: usize,
        out: &mut Output,
    ) -> bool {
        let start = out.len();
        let (db, protocol) = (session.db, session.protocol);
        self.merged = merged;
        if catch_unwind(AssertUnwindSafe(|| self.execute_checked(session, args, out))).is_err() {
            out.truncate(start);
            (session.db, session.protocol) = (db, protocol);
            self.panicked(session);
            (0..merged).for_each(|_| Reply::new(out, protocol).error(PANICKED.text()));
        }
        if session.is_held {
            return false;
        }
        if session.reply_mode != ReplyMode::On {
            match session.reply_mode {
                ReplyMode::Off => out.truncate(start),
                ReplyMode::Skip => {
                    out.truncate(start);
                    session.reply_mode = ReplyMode::On;
                }
                ReplyMode::SkipNext => {
                    out.truncate(start);
                    session.reply_mode = ReplyMode::Skip;
                }
                ReplyMode::On => {}
            }
        }
        // Also when the command, an EXEC, has switched replies on again.
        if !self.worker_state.pushed.is_empty() {
            out.bytes.append(&mut self.worker_state.pushed);
        }
        true
    }

    /// Whether CLIENT PAUSE holds a command.
    #[cold]
    fn is_held(&self, entry: &Entry, session: &Session) -> bool {
        let writes =
            |entry: &Entry| entry.spec.flags.has(Flags::WRITE) || MAY_REPLICATE.contains(&entry.spec.name);
        let mut queue = session.transaction.iter().flat_map(|transaction| &transaction.queue);
        let is_exec = entry.spec.name == "exec";
        let writes = writes(entry) || is_exec && queue.any(|queued| writes(self.table.entry(queued.command)));
        self.server.pause.holds(unix_millis(), writes)
    }

    /// Turns a panic into an error. The engine poisons the store if the panic was within a write, and the transaction
    /// was dropped with the stack: none of it is written later. The turn's earlier writes are flushed with it, or the
    /// whole turn is refused.
    #[cold]
    fn panicked(&mut self, session: &mut Session) {
        session.store_failure = None;
        self.worker_state.take_back(&self.server, self.outgoing_before, false);
        self.worker_state.absent = Absent::default();
        self.worker_state.wait = None;
        self.server.tracking.put_back(std::mem::take(&mut self.worker_state.untracked));
        Self::release(&mut self.worker_state, &mut self.again);
        if session.waiter.is_none() {
            wake::take_out(&self.server, self.server.waiting.of_client(session.client.id));
        }
        if let Some(entry) = self.running {
            let all = if self.merged > 1 { &self.commands[..] } else { &[entry] };
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
        self.stats.error(PANICKED.code());
        let name = self.running.map_or("a command", |entry| entry.spec.name);
        let writes = if self.note_panic() {
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

    /// Takes note of a panic that has left the transaction; whether it was within a write.
    pub fn note_panic(&mut self) -> bool {
        let is_poisoned = self.server.keyspace.store().check_writable().is_err();
        // Whether the rest of the turn is in doubt is for `finish_turn` to say.
        self.failed_before |= is_poisoned;
        is_poisoned
    }

    fn execute_checked(&mut self, session: &mut Session, args: Args<'_>, out: &mut Output) {
        // In a pipeline the next command is usually the same one.
        let again = self.next.take().or(self.running).filter(|entry| entry.is_called(args.at(0)));
        let Some(entry) = again.or_else(|| self.table.find(args)) else {
            if args.is(0, "post") || args.is(0, "host:") {
                // A browser that was tricked into talking to us: not one of its lines may be a command.
                session.closing = true;
                return;
            }
            return self.reject(None, session, unknown_command(args), out);
        };
        let spec = &entry.spec;
        let count = if self.merged > 1 { spec.merged_args } else { args.len() };
        if !spec.arity_allows(count) {
            return self.reject(Some(entry), session, CommandError::arity(spec.name), out);
        }
        if !entry.subcommands.is_empty() && args.len() > 1 {
            // `find` gives the container only when the subcommand is unknown.
            return self.reject(Some(entry), session, subcommand_error(entry, args), out);
        }
        if !session.authenticated && !spec.flags.has(Flags::NO_AUTH) && !self.password_is_gone(session) {
            return self.reject(Some(entry), session, errors::NO_AUTH, out);
        }
        if session.only_listens() && !may_listen(spec.name) {
            let error = format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
                spec.name
            );
            return self.reject(Some(entry), session, CommandError::with(error), out);
        }
        if self.server.pause.is_any() && self.is_held(entry, session) {
            (session.is_held, session.waits_until) = (true, Some(Instant::now() + LOOK_AT_PAUSE));
            return;
        }
        if let Some(transaction) = &mut session.transaction {
            if spec.flags.has(Flags::NO_MULTI) {
                return self.reject(Some(entry), session, errors::NOT_IN_TRANSACTION, out);
            }
            if self.server.may_be_full()
                && needs_room(self.table, spec, transaction)
                && let Err(error) = find_room(&self.server, &mut self.worker)
            {
                let error = self.report_full(error);
                return self.reject(Some(entry), session, error, out);
            }
            if !spec.flags.has(Flags::NOT_QUEUED) {
                if !transaction.aborted {
                    transaction.push(entry.index, args);
                }
                Reply::new(out, session.protocol).simple("QUEUED");
                return;
            }
        }
        self.run(entry, session, args, out);
    }

    pub(super) fn run(
        &mut self,
        entry: &'static Entry,
        session: &mut Session,
        args: Args<'_>,
        out: &mut Output,
    ) {
        let are_steps = self.merged > 1 && self.are_steps;
        session.command_last = entry.index as u32;
        let goes_on = if are_steps {
            // It is charged when it ends.
            self.uncharged == 0
        } else {
            self.running.is_some_and(|running| running.index == entry.index)
        };
        if !goes_on {
            self.charge();
        }
        self.running = Some(entry);
        let start = out.len();
        let (db, protocol) = (session.db, session.protocol);
        self.outgoing_before = self.worker_state.outgoing.len();
        self.worker_state.absences.clear();
        let before = self.outgoing_before;
        let worker_state = &mut self.worker_state;
        let mut after = After::Nothing;
        let names = names_of(entry, self.table, session, args, &mut self.keys);
        let mut again = false;
        worker_state.undone = 0;
        let (passed_over, mut waiter, mut changes) = (&mut self.again, None, 0);
        let committed: Result<(), CommandError> = self.worker.run(self.now, names, |txn| {
            if std::mem::replace(&mut again, true) {
                self.stats.repeated.add(1);
                out.truncate(start);
                worker_state.take_back(&self.server, before, true);
                (session.db, session.protocol) = (db, protocol);
                after = After::Nothing;
                Self::release(worker_state, passed_over);
                wake::take_out(&self.server, waiter.take());
                self.server.tracking.put_back(std::mem::take(&mut worker_state.untracked));
            }
            let running = Running {
                entry,
                table: self.table,
                args,
                server: &self.server,
                stats: &self.stats,
                now: self.now,
                merged: self.merged,
                steps: if are_steps { &self.commands } else { &[] },
            };
            Self::apply(txn, running, session, worker_state, out, &mut after)?;
            changes = txn.written().count();
            if worker_state.wait.is_some() {
                waiter = running.wake().enter(txn, session, entry.index, worker_state)?;
            } else if self.server.waiting.count() > 0 {
                running.wake().wake_written(txn, worker_state)?;
            }
            if self.server.follows_expiries() || self.server.expiry_timers.is_any() {
                running.wake().note_expiries(txn)?;
            }
            if self.server.tracking.is_any() {
                if tracking::remembers(&entry.spec, session) {
                    tracking::remember(&self.server, txn, session, &entry.spec, args)?;
                }
                // When a database is emptied, all tracking clients are notified of everything anyway.
                if !worker_state.is_flushed {
                    tracking::invalidate_written(&self.server, txn, worker_state, session.client.id);
                }
            }
            Ok(())
        });
        let is_committed = committed.is_ok();
        if is_committed {
            self.stats.changes.add(changes as u64);
        }
        match &committed {
            Ok(()) if !self.worker_state.claims.is_empty() => self.answer(),
            Ok(()) => {}
            Err(_) => {
                self.worker_state.wait = None;
                Self::release(&mut self.worker_state, &mut self.again);
                wake::take_out(&self.server, waiter.take());
            }
        }
        let merged = self.merged;
        if merged > 1 && committed.is_err() {
            self.worker_state.take_back(&self.server, before, false);
            out.truncate(start);
            return self.run_each(session, args, 0..merged, out);
        }
        if matches!(&committed, Err(error) if error.code() == "OOM") && self.has_parts(entry, args) {
            self.worker_state.take_back(&self.server, before, false);
            out.truncate(start);
            return self.run_in_parts(entry, session, args, out);
        }
        self.merged -= self.worker_state.undone;
        if let Some(waiter) = waiter {
            session.waits_until = waiter.until;
            session.waiter = Some(waiter);
        }
        let done = match committed {
            // There is space for one delete at a time, each of which frees some.
            Err(error) if error.code() == "OOM" && matches!(entry.spec.name, "del" | "unlink") => {
                out.truncate(start);
                let keys: Vec<Box<[u8]>> = args.from(1).map(Box::from).collect();
                if self.server.tracking.is_any() {
                    tracking::invalidate(&self.server, &mut self.worker_state, session.client.id, &keys);
                    self.worker_state.untracked.clear();
                }
                self.worker
                    .delete_each(db, args.from(1), self.now)
                    .map(|deleted| Reply::new(out, protocol).integer(deleted as i64))
                    .map_err(CommandError::from)
            }
            committed => committed.and_then(|()| self.finish(after)),
        };
        let failed = done.err();
        self.tracked(session, is_committed);
        if let Some(error) = session.store_failure.take() {
            self.note(error);
        }
        if session.transaction_over {
            session.transaction_drop();
        }
        let counters = &self.stats.commands[entry.index];
        match are_steps {
            true => {
                let done = &self.commands[..self.merged];
                each_kind(done, |entry, count| self.stats.commands[entry.index].calls.add(count));
                let (found, missed) = self.worker_state.reads;
                self.stats.keyspace_hits.add(found);
                self.stats.keyspace_misses.add(missed);
            }
            false => counters.calls.add(self.merged as u64),
        }
        self.stats.commands_processed.add(self.merged as u64);
        if let Some(error) = failed.map(|error| self.report_full(error)) {
            counters.failed.add(1);
            self.stats.error(error.code());
            self.worker_state.take_back(&self.server, before, false);
            out.truncate(start);
            Reply::new(out, session.protocol).error(error.text());
            self.note(error);
        }
        self.worker_state.show(&self.server, &entry.spec, args, session);
        match are_steps {
            true => self.timed_run(args, session),
            false => self.timed(entry, args, session),
        }
        if self.merged < merged {
            self.run_each(session, args, self.merged..merged, out);
        }
    }

    /// Runs some of the commands that were merged, and cannot run so, each for itself.
    #[cold]
    fn run_each(&mut self, session: &mut Session, args: Args<'_>, numbers: Range<usize>, out: &mut Output) {
        self.merged = 1;
        let alike = if self.commands[0].spec.keys_differ { 1 } else { 2 };
        let mut from = alike;
        for number in 0..numbers.end {
            let (entry, own) =
                (self.commands[number], from..from + self.commands[number].spec.merged_args - alike);
            from = own.end;
            if number >= numbers.start {
                let name = if number == 0 { args.at(0) } else { entry.spec.name.as_bytes() };
                let each: Vec<_> =
                    [name, args.at(1)].into_iter().take(alike).chain(args.part(own).iter()).collect();
                self.run(entry, session, OwnedArgs::of(&each).args(), out);
            }
        }
    }

    /// A transaction has committed, or not, that may have been of keys that are tracked.
    #[inline]
    fn tracked(&mut self, session: &mut Session, is_committed: bool) {
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
            tracking::invalidate_flushed(&self.server, &mut self.worker_state);
        }
        tracking::invalidate_surplus(&self.server, &mut self.worker_state);
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
    fn notify_expired(&mut self) {
        for (db, key) in self.server.tracking.due(self.now) {
            let (server, worker_state) = (&self.server, &mut self.worker_state);
            let told = self.worker.run(self.now, Locks::One(&key), |txn| -> Result<(), CommandError> {
                if !txn.exists(db, &key)? {
                    tracking::invalidate(server, worker_state, 0, std::slice::from_ref(&key));
                }
                Ok(())
            });
            self.worker_state.untracked.clear();
            if let Err(error) = told {
                self.note(error);
            }
        }
    }

    /// Processes keys whose time is reached: reports their expiry and serves their waiters. A key whose expiry moved is
    /// scheduled again.
    pub(super) fn look_at_due(&mut self) {
        for (db, key) in self.server.expiry_timers.take_due(self.now) {
            let before = self.worker_state.outgoing.len();
            let (server, worker_state) = (&self.server, &mut self.worker_state);
            worker_state.absences.clear();
            let mut is_again = false;
            let looked = self.worker.run(self.now, Locks::One(&key), |txn| -> Result<(), CommandError> {
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
                self.note(error);
            }
            if self.server.waiting.is_awaited(db, &key) {
                self.again.push((db, key));
            }
        }
    }

    fn apply(
        txn: &mut Txn<'_>,
        running: Running<'_>,
        session: &mut Session,
        worker_state: &mut WorkerState,
        out: &mut Output,
        after: &mut After,
    ) -> Result<(), CommandError> {
        let protocol: Protocol = session.protocol;
        let mut call = Call {
            args: running.args,
            entry: running.entry,
            table: running.table,
            txn,
            reply: Reply::new(out, protocol),
            session,
            server: running.server,
            worker_state,
            stats: running.stats,
            now: running.now,
            after,
            merged: running.merged,
            in_transaction: false,
            is_served: false,
        };
        if running.steps.is_empty() { call.apply() } else { merge_run::run(&mut call, running.steps) }
    }

    /// Charges the time since the last charge to the command that ran. The clock is read when the command changes and
    /// at the end of a turn, not after each of a pipeline's equal commands: their sum is the same.
    fn charge(&mut self) {
        if let Some(entry) = self.running.take() {
            self.charge_to(entry, Duration::ZERO);
        }
    }

    /// Gives the time charged.
    fn charge_to(&mut self, entry: &Entry, slept: Duration) -> Duration {
        let now = Instant::now();
        let time = now.duration_since(std::mem::replace(&mut self.clock, now)) + slept;
        let count = std::mem::take(&mut self.uncharged);
        let (nanos, counters) = (time.as_nanos() as u64, &self.stats.commands[entry.index]);
        counters.nanos.add(nanos);
        if count > 0 && self.server.times.tracked() {
            counters.times.record(nanos / count, count);
        }
        time
    }

    /// A command has run: if that may have taken long, the clock is read, and it is noted.
    #[inline]
    fn timed(&mut self, entry: &'static Entry, args: Args<'_>, session: &Session) {
        self.uncharged += self.merged as u64;
        // A fast command with few arguments takes almost no time: the clock is read once for several of them.
        let is_fast = entry.spec.flags.has(Flags::FAST) && args.len() <= FAST_ARGUMENTS_MAX;
        let is_due = !is_fast || self.uncharged % LOOK_AT_CLOCK < self.merged as u64;
        let slept = !self.worker_state.slept.is_zero();
        if self.server.times.each() || slept || is_due && self.tick != Tick::now() {
            self.timed_now(entry, args, session);
        }
    }

    /// A run of commands that do their steps has ended: each took the same part of its time.
    fn timed_run(&mut self, args: Args<'_>, session: &mut Session) {
        let now = Instant::now();
        let time = now.duration_since(std::mem::replace(&mut self.clock, now));
        let (commands, is_tracked) = (&self.commands[..self.merged], self.server.times.tracked());
        let nanos = time.as_nanos() as u64 / commands.len().max(1) as u64;
        each_kind(commands, |entry, count| {
            let counters = &self.stats.commands[entry.index];
            counters.nanos.add(nanos * count);
            if is_tracked {
                counters.times.record(nanos, count);
            }
        });
        if let (Some(first), Some(last)) = (commands.first(), commands.last()) {
            session.command_last = last.index as u32;
            let own = args.part(0..first.spec.merged_args);
            timing::note(&self.server, &first.spec, own, &session.client, time.as_micros() as u64);
        }
    }

    fn timed_now(&mut self, entry: &'static Entry, args: Args<'_>, session: &Session) {
        let slept = std::mem::take(&mut self.worker_state.slept);
        let micros = self.charge_to(entry, slept).as_micros() as u64;
        self.tick = Tick::now();
        // Of several that have nothing in common but their name the first is shown.
        let is_several = entry.spec.keys_differ && self.merged > 1;
        let args = if is_several { args.part(0..entry.spec.merged_args) } else { args };
        // A waiting command is recorded when it is served.
        if session.waiter.is_none() {
            timing::note(&self.server, &entry.spec, args, &session.client, micros);
        }
    }

    fn finish(&mut self, after: After) -> Result<(), CommandError> {
        match after {
            After::Nothing => {}
            After::FlushDb(db) => {
                self.worker.flush(db)?;
                self.look_at_databases([db]);
            }
            After::Commit | After::Save => {
                // Not inside the group: the commit waits for the writes of all.
                self.worker.flush_group()?;
                let saved = self.server.keyspace.store().commit();
                self.worker.group();
                saved?;
                if after == After::Save {
                    self.server.note_saved(self.now / 1000);
                }
            }
            After::FlushAll => {
                self.worker.flush_all()?;
                self.look_at_databases(0..self.server.keyspace.databases());
            }
            After::Swap(first, second) => {
                self.worker.swap(first, second)?;
                self.look_at_databases([first, second]);
            }
        }
        Ok(())
    }

    /// Records a failure of the store. A failure found earlier is an error of the command that finds it, and of no
    /// other; `finish_turn` decides whether the turn's earlier writes are in doubt. So clients that only read continue.
    pub fn note(&mut self, error: CommandError) {
        let Some(failure) = error.store_failure() else { return };
        if failure == StoreFailure::Now || !self.failed_before {
            self.server.log_failure(&error);
            self.failed_before = true;
        }
        if failure == StoreFailure::Now {
            self.failed = Some(error);
        }
    }

    /// Completes an out-of-space error with what is full, and logs it.
    fn report_full(&self, error: CommandError) -> CommandError {
        if error.code() != "OOM" {
            return error;
        }
        // Which of the two limits was reached: the medium may be smaller than `maxmemory`.
        let is_medium = || {
            let (store, maxmemory) = (self.server.keyspace.store(), self.server.config().maxmemory);
            maxmemory == 0 || store.stats().medium_bytes < maxmemory
        };
        let error = if error == errors::OUT_OF_SPACE && is_medium() { FULL } else { error };
        self.server.log_full(&error);
        error
    }

    /// Whether the password has been taken away since the connection came.
    fn password_is_gone(&self, session: &mut Session) -> bool {
        session.authenticated = self.server.config().requirepass.is_empty();
        session.authenticated
    }

    /// Refuses a command before it runs; an open MULTI is then spoilt, and by EXEC itself ended.
    fn reject(
        &self,
        entry: Option<&Entry>,
        session: &mut Session,
        mut error: CommandError,
        out: &mut Output,
    ) {
        if entry.is_some_and(|entry| entry.spec.name == "exec") {
            session.transaction_drop();
            error = error.aborting();
        }
        if let Some(transaction) = &mut session.transaction {
            transaction.aborted = true;
        }
        if let Some(entry) = entry {
            self.stats.commands[entry.index].rejected.add(1);
        }
        self.stats.error(error.code());
        Reply::new(out, session.protocol).error(error.text());
    }
}

/// The state that stays the same when a command runs again.
#[derive(Clone, Copy)]
struct Running<'a> {
    entry: &'static Entry,
    table: &'static Table,
    args: Args<'a>,
    server: &'a Server,
    stats: &'a WorkerStats,
    now: u64,
    merged: usize,
    // The commands of a run that do their steps.
    steps: &'a [&'static Entry],
}

impl<'a> Running<'a> {
    /// The same state for serving waiters.
    fn wake(self) -> Wake<'a> {
        Wake { table: self.table, server: self.server, stats: self.stats, now: self.now }
    }
}

/// Calls `visit` for each of a few commands, with how often it is among these.
fn each_kind(commands: &[&'static Entry], mut visit: impl FnMut(&'static Entry, u64)) {
    for (at, entry) in commands.iter().enumerate() {
        if !commands[..at].iter().any(|other| other.index == entry.index) {
            visit(entry, commands[at..].iter().filter(|other| other.index == entry.index).count() as u64);
        }
    }
}

/// Checks whether writes are refused for lack of space, and with which error. A write reports other errors itself.
#[cold]
fn find_room(server: &Server, worker: &mut Worker) -> Result<(), CommandError> {
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
fn needs_room(table: &Table, spec: &Spec, transaction: &Transaction) -> bool {
    match spec.name {
        "discard" | "quit" | "reset" => false,
        "exec" => {
            let mut queue = transaction.queue.iter();
            queue.any(|queued| table.entry(queued.command).spec.flags.has(Flags::DENYOOM))
        }
        _ => true,
    }
}

/// The commands that a subscribed client may send in RESP2.
fn may_listen(name: &str) -> bool {
    const NAMES: [&str; 9] = [
        "ping",
        "subscribe",
        "ssubscribe",
        "sunsubscribe",
        "psubscribe",
        "unsubscribe",
        "punsubscribe",
        "quit",
        "reset",
    ];
    NAMES.contains(&name)
}

/// The locks of a command, in `keys` if there are several.
#[inline]
fn names_of<'a>(
    entry: &Entry,
    table: &Table,
    session: &Session,
    args: Args<'a>,
    keys: &'a mut Keys,
) -> Locks<'a> {
    match entry.spec.locks {
        LockSpec::Nothing if tracking::remembers(&entry.spec, session) => {
            keys.clear();
            if add_keys(entry, args, keys) { Locks::Keys(keys) } else { Locks::All }
        }
        LockSpec::Nothing => Locks::Nothing,
        LockSpec::One(index) => Locks::One(args.at(index)),
        LockSpec::Keys => {
            keys.clear();
            if add_keys(entry, args, keys) { Locks::Keys(keys) } else { Locks::All }
        }
        LockSpec::Queued => names_of_queue(table, session, keys),
        LockSpec::All => Locks::All,
    }
}

fn names_of_queue<'a>(table: &Table, session: &Session, keys: &'a mut Keys) -> Locks<'a> {
    keys.clear();
    for watched in session.watched.iter() {
        keys.add(watched.key());
    }
    for queued in session.transaction.iter().flat_map(|transaction| &transaction.queue) {
        let entry = table.entry(queued.command);
        if entry.spec.works_on_any()
            || entry.spec.locks == LockSpec::All
            || !add_keys(entry, queued.args.args(), keys)
        {
            return Locks::All;
        }
    }
    if keys.is_empty() { Locks::Nothing } else { Locks::Keys(keys) }
}

fn unknown_command(args: Args<'_>) -> CommandError {
    let name = shown_of(args.at(0));
    let mut error = CommandError::showing("ERR unknown command '", name, "', with args beginning with: ");
    // Of all arguments together.
    let mut shown = 0;
    for argument in args.from(1) {
        if shown >= SHOWN_BYTES_MAX {
            break;
        }
        let before = error.text().len();
        let room = SHOWN_BYTES_MAX - shown;
        error = error.and_showing("'", &argument[..argument.len().min(room)], "' ");
        shown += error.text().len() - before;
    }
    error
}

//! Pipelining: commands of one client that have arrived together.
//!
//! The engine prefetches the keys of the next ones ([`Dispatcher::look_ahead`]), and those that name the same key, or
//! only read one each, run as one *batch*: [`Dispatcher::merges`], [`Dispatcher::merge`]. In a batch either the function of
//! the first command is called for all, or each does its step ([`steps`]). No client can tell a batch from single
//! commands; one that fails runs as single commands ([`Dispatcher::run_each`]).

pub mod steps;

use super::Dispatcher;
use super::room::find_room;
use crate::net::{Output, Turn};
use crate::redis::command::{Args, Entry, Flags, OwnedArgs};
use crate::redis::resp::{Limits, Requests, ahead};
use crate::redis::session::{ReplyMode, Session};
use duramen_structures::AHEAD_MAX;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

// Commands that run as one.
const MERGED_MAX: usize = 64;
// Longer keys are copied for longer than a miss takes.
const AHEAD_KEY_BYTES_MAX: usize = 256;

/// The batch that runs, or the one command.
#[derive(Default)]
pub(super) struct Batch {
    /// How many commands run.
    pub(super) merged: usize,
    /// These commands, if there are several.
    pub(super) commands: Vec<&'static Entry>,
    /// The command that was looked for last, which is to run next.
    pub(super) next: Option<&'static Entry>,
    // Each does its step; else the function of the first is called for all.
    are_steps: bool,
    // The engine prefetched the keys of the last batch, so it will also prefetch the next ones.
    fetches: bool,
}

impl Batch {
    /// Whether the commands that run do their steps.
    #[inline]
    pub(super) const fn runs_steps(&self) -> bool {
        self.merged > 1 && self.are_steps
    }
}

impl Dispatcher {
    /// Lets the engine prefetch the keys of the next commands in `input`. Returns the bytes of these commands.
    pub fn look_ahead(&mut self, turn: &mut Turn, session: &Session, input: &[u8]) -> usize {
        if self.batch.fetches {
            return 0;
        }
        // A failed hint is skipped.
        catch_unwind(AssertUnwindSafe(|| fetch_ahead(turn, session, input))).unwrap_or(input.len())
    }

    /// Whether the commands after this one that name its key may run in one batch with it, unnoticed by any client.
    #[inline]
    pub fn merges(&mut self, session: &Session, args: Args<'_>) -> bool {
        self.batch.fetches = false;
        self.batch.next =
            self.running.filter(|entry| entry.is_called(args.at(0))).or_else(|| self.table.find(args));
        self.batch.next.is_some_and(|entry| entry.spec.merged_args == args.len()) && self.may_merge(session)
    }

    /// Merges the commands after the current one, which is the first in `input`, into one batch; returns their number
    /// and where the last one ends. With different keys at most as many as the engine prefetches at once.
    pub fn merge(
        &mut self,
        turn: &mut Turn,
        session: &Session,
        requests: &mut Requests,
        input: &[u8],
        limits: &Limits,
    ) -> Option<(usize, usize)> {
        let (table, first) = (self.table, self.batch.next?);
        if first.spec.keys_differ {
            let merged = requests.merge_of_any_keys(input, limits, AHEAD_MAX)?;
            self.batch.commands.clear();
            self.batch.commands.resize(merged.0, first);
            self.batch.are_steps = false;
            self.batch.fetches = merged.0 > 1;
            if self.batch.fetches {
                let keys = Args::of(requests, input).from(1).step_by(first.spec.merged_args - 1);
                turn.keys.prefetch(session.db, keys.filter(|key| key.len() <= AHEAD_KEY_BYTES_MAX));
            }
            return Some(merged);
        }
        // In a full store each is refused in its turn, even if the next one frees space.
        let (server, worker, mut is_full) = (&*self.server, &mut turn.keys, None);
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
        self.batch.commands.clear();
        self.batch.commands.push(first);
        let merged = requests.merge(input, limits, MERGED_MAX, &mut self.batch.commands, joins)?;
        let are_alike = self.batch.commands.iter().all(|entry| entry.index == first.index);
        self.batch.are_steps = !(are_alike && first.spec.is_merged);
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

    /// Runs some of the commands that were merged, and cannot run so, each for itself.
    #[cold]
    pub(super) fn run_each(
        &mut self,
        turn: &mut Turn,
        session: &mut Session,
        args: Args<'_>,
        numbers: Range<usize>,
        out: &mut Output,
    ) {
        self.each(args, numbers, |dispatcher, entry, own| dispatcher.run(turn, entry, session, own, out));
    }

    /// Calls `visit` for some of the commands that were merged, with the arguments of each.
    fn each(
        &mut self,
        args: Args<'_>,
        numbers: Range<usize>,
        mut visit: impl FnMut(&mut Self, &'static Entry, Args<'_>),
    ) {
        self.batch.merged = 1;
        let alike = if self.batch.commands[0].spec.keys_differ { 1 } else { 2 };
        let mut from = alike;
        for number in 0..numbers.end {
            let (entry, own) = (
                self.batch.commands[number],
                from..from + self.batch.commands[number].spec.merged_args - alike,
            );
            from = own.end;
            if number >= numbers.start {
                let name = if number == 0 { args.at(0) } else { entry.spec.name.as_bytes() };
                let each: Vec<_> =
                    [name, args.at(1)].into_iter().take(alike).chain(args.part(own).iter()).collect();
                visit(self, entry, OwnedArgs::of(&each).args());
            }
        }
    }

    /// Whether the user may run all commands of the batch. Each has its key where those of the batch have theirs.
    pub(super) fn may_run_batch(&self, session: &mut Session, args: Args<'_>) -> bool {
        let users = &self.server.users;
        let first = self.batch.commands[0];
        if first.spec.keys_differ {
            let each = first.spec.merged_args - 1;
            // One selector mostly allows all of them. Each has one key, and uses it as the first does.
            let Some(key) = first.spec.keys_to_check(args.part(0..each + 1)).next() else { return false };
            let mut keys = args.from(key.index).step_by(each);
            if session.login.may_use_all(users, first.index, key.flags, &mut keys) {
                return true;
            }
            return (1..args.len()).step_by(each).all(|at| {
                let own = args.skip(at - 1);
                session.login.check(users, &first.spec, first.index, own.part(0..each + 1)).is_ok()
            });
        }
        let mut checked = None;
        self.batch.commands.iter().all(|entry| {
            checked.replace(entry.index) == Some(entry.index)
                || session.login.check(users, &entry.spec, entry.index, args).is_ok()
        })
    }

    /// Admits each command of a batch by itself, because some are refused.
    #[cold]
    pub(super) fn admit_each(
        &mut self,
        turn: &mut Turn,
        session: &mut Session,
        args: Args<'_>,
        out: &mut Output,
    ) {
        let all = self.batch.merged;
        self.each(args, 0..all, |dispatcher, _, own| {
            dispatcher.batch.next = None;
            dispatcher.admit(turn, session, own, out);
        });
    }

    /// The next command is none of a batch.
    pub(in crate::redis) const fn runs_alone(&mut self) {
        self.batch.merged = 1;
    }

    /// Counts the commands of a batch that did their steps.
    pub(super) fn count_steps(&self) {
        let done = &self.batch.commands[..self.batch.merged];
        each_kind(done, |entry, count| self.stats.commands[entry.index].calls.add(count));
        let (found, missed) = self.worker_state.reads;
        self.stats.keyspace_hits.add(found);
        self.stats.keyspace_misses.add(missed);
    }
}

fn fetch_ahead(turn: &Turn, session: &Session, input: &[u8]) -> usize {
    let ahead = ahead::look::<AHEAD_MAX>(input);
    // For one command there is nothing to overlap with.
    if ahead.count > 1 {
        let keys = ahead.keys[..ahead.count].iter().map(|key| &input[key.start..key.end]);
        turn.keys.prefetch(session.db, keys.filter(|key| key.len() <= AHEAD_KEY_BYTES_MAX));
    }
    ahead.bytes
}

/// Calls `visit` for each of a few commands, with how often it is among these.
pub(super) fn each_kind(commands: &[&'static Entry], mut visit: impl FnMut(&'static Entry, u64)) {
    for (at, entry) in commands.iter().enumerate() {
        if !commands[..at].iter().any(|other| other.index == entry.index) {
            visit(entry, commands[at..].iter().filter(|other| other.index == entry.index).count() as u64);
        }
    }
}

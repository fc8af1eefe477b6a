//! Which command is charged which time.

use super::Dispatcher;
use super::pipeline::each_kind;
use crate::net::Turn;
use crate::observe::times::Tick;
use crate::redis::command::slow;
use crate::redis::command::{Args, Entry, Flags};
use crate::redis::session::Session;
use std::time::{Duration, Instant};

// See `timed`.
const FAST_ARGUMENTS_MAX: usize = 8;
const LOOK_AT_CLOCK: u64 = 8;

/// The time that is not charged yet; it begins at [`Turn::clock`].
#[derive(Default)]
pub(super) struct Charge {
    // Commands since then.
    uncharged: u64,
}

impl Dispatcher {
    /// Another command begins than the one that runs: its time is charged.
    #[inline]
    pub(super) fn charge_before(&mut self, turn: &mut Turn, entry: &Entry, are_steps: bool) {
        let goes_on = if are_steps {
            // A run is charged when it ends.
            self.charge.uncharged == 0
        } else {
            self.running.is_some_and(|running| running.index == entry.index)
        };
        if !goes_on {
            self.charge_last(turn);
        }
    }

    /// Charges the time since the last charge to the command that ran. The clock is read when the command changes and
    /// at the end of a turn, not after each of a pipeline's equal commands: their sum is the same.
    pub(super) fn charge_last(&mut self, turn: &mut Turn) {
        if let Some(entry) = self.running.take() {
            self.charge_to(turn, entry, Duration::ZERO);
        }
    }

    /// Gives the time charged.
    fn charge_to(&mut self, turn: &mut Turn, entry: &Entry, slept: Duration) -> Duration {
        let now = Instant::now();
        let time = now.duration_since(std::mem::replace(&mut turn.clock, now)) + slept;
        let count = std::mem::take(&mut self.charge.uncharged);
        let (nanos, counters) = (time.as_nanos() as u64, &self.stats.commands[entry.index]);
        counters.nanos.add(nanos);
        if count > 0 && self.server.times.tracked() {
            counters.times.record(nanos / count, count);
        }
        time
    }

    /// A command has run: if that may have taken long, the clock is read, and it is noted.
    #[inline]
    pub(super) fn timed(
        &mut self,
        turn: &mut Turn,
        entry: &'static Entry,
        args: Args<'_>,
        session: &Session,
    ) {
        self.charge.uncharged += self.batch.merged as u64;
        // A fast command with few arguments takes almost no time: the clock is read once for several of them.
        let is_fast = entry.spec.flags.has(Flags::FAST) && args.len() <= FAST_ARGUMENTS_MAX;
        let is_due = !is_fast || self.charge.uncharged % LOOK_AT_CLOCK < self.batch.merged as u64;
        let slept = !self.worker_state.slept.is_zero();
        if self.server.times.each() || slept || is_due && turn.tick != Tick::now() {
            self.timed_now(turn, entry, args, session);
        }
    }

    /// A run of commands that do their steps has ended: each took the same part of its time.
    pub(super) fn timed_run(&mut self, turn: &mut Turn, args: Args<'_>, session: &mut Session) {
        let now = Instant::now();
        let time = now.duration_since(std::mem::replace(&mut turn.clock, now));
        let (commands, is_tracked) = (&self.batch.commands[..self.batch.merged], self.server.times.tracked());
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
            slow::note(&self.server, &first.spec, own, &session.client, time.as_micros() as u64);
        }
    }

    fn timed_now(&mut self, turn: &mut Turn, entry: &'static Entry, args: Args<'_>, session: &Session) {
        let slept = std::mem::take(&mut self.worker_state.slept);
        let micros = self.charge_to(turn, entry, slept).as_micros() as u64;
        turn.tick = Tick::now();
        // Of several that have nothing in common but their name the first is shown.
        let is_several = entry.spec.keys_differ && self.batch.merged > 1;
        let args = if is_several { args.part(0..entry.spec.merged_args) } else { args };
        // A waiting command is recorded when it is served.
        if session.waiter.is_none() {
            slow::note(&self.server, &entry.spec, args, &session.client, micros);
        }
    }
}

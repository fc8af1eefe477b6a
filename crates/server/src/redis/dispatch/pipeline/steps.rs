//! Runs: see [`step`](crate::redis::command::step). One transaction opens the value of the key once, has each command do its
//! step, and writes the changes: a node of a list once, for any number of pushes and pops, and an element that was
//! pushed and popped not at all.
//!
//! A run is indistinguishable from its commands one after the other. There is no run while a client subscribes, tracks
//! keys, waits or monitors ([`Dispatcher::merges`](crate::redis::dispatch::Dispatcher::merges)). After a failure, commands are executed
//! one at a time ([`WorkerState::undone`](crate::redis::worker_state::WorkerState::undone), or all of them).

use crate::command_error::CommandError;
use crate::observe::keyspace_events::{Classes, HASH, LIST, SET, SORTED_SET};
use crate::redis::command::{Args, Call, Done, Entry, MERGED_BYTES_MAX, Step, errors};
use crate::redis::resp::Reply;
use duramen_structures::Ahead;

/// The outcome of the commands of a run.
#[derive(Default)]
struct Outcome {
    done: usize,
    // How many reading commands found the key, and how many did not.
    found: u64,
    missed: u64,
    // For those that changed something: whether the key was deleted.
    events: Vec<(&'static str, bool)>,
}

/// Executes commands; their arguments after the key follow each other in those of the call.
pub fn run(call: &mut Call<'_, '_>, commands: &[&'static Entry]) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    let Some(first) = commands.first().and_then(|entry| entry.spec.step) else {
        return Err(errors::NOT_MERGED);
    };
    call.txn.set_room(commands.iter().map(|entry| entry.spec.room).min().unwrap_or_default());
    let (outcome, class) = match first {
        Step::List(_) => {
            // All that it writes, `save` writes.
            call.edits_one();
            let mut list = call.txn.edit_list(db, key)?;
            // No client begins to wait for the key now.
            if call.server.waiting.count() > 0 {
                return Err(errors::NOT_MERGED);
            }
            let outcome = each(commands, call.args, &mut call.reply, false, |step, reply, args| {
                let Step::List(step) = step else { return Err(errors::NOT_MERGED) };
                let done = step(&mut list, reply, args)?;
                if list.is_empty() {
                    list.begins_anew();
                }
                Ok((done, list.is_empty()))
            })?;
            if !outcome.events.is_empty() {
                list.save()?;
            }
            (outcome, LIST)
        }
        Step::Hash(_) | Step::Set(_) | Step::SortedSet(_) => {
            let (mut edit, class) = match first {
                Step::Hash(_) => (call.txn.edit_hash(db, key)?, HASH),
                Step::Set(_) => (call.txn.edit_set(db, key)?, SET),
                _ => (call.txn.edit_sorted_set(db, key)?, SORTED_SET),
            };
            if call.server.waiting.count() > 0 {
                return Err(errors::NOT_MERGED);
            }
            let is_for_good = edit.begins_run();
            let mut names = names(commands, call.args);
            while let Some(some) = Ahead::next_of(&mut names) {
                edit.prefetch(&some);
            }
            let outcome = each(commands, call.args, &mut call.reply, is_for_good, |step, reply, args| {
                let (Step::Hash(step) | Step::Set(step) | Step::SortedSet(step)) = step else {
                    return Err(errors::NOT_MERGED);
                };
                let done = step(&mut edit, reply, args)?;
                Ok((done, edit.is_empty()))
            })?;
            if !outcome.events.is_empty() {
                edit.save()?;
            }
            (outcome, class)
        }
    };
    notify(call, &outcome, class, commands.len());
    Ok(())
}

/// The names that the commands use, of hashes, sets and sorted sets: the last argument of a sorted set's command, which
/// has a score before it, and the first after the key of others.
fn names<'a>(commands: &[&'static Entry], args: Args<'a>) -> impl Iterator<Item = &'a [u8]> {
    let mut at = 2;
    commands.iter().filter_map(move |entry| {
        let (first, count) = (at, entry.spec.merged_args - 2);
        at += count;
        let is_last = matches!(entry.spec.step, Some(Step::SortedSet(_)));
        (count > 0).then(|| args.at(if is_last { at - 1 } else { first }))
    })
}

/// Has each command do its step, until the replies are long. If the steps are permanent, a failing one ends the run
/// before it; otherwise the run fails.
fn each(
    commands: &[&'static Entry],
    args: Args<'_>,
    reply: &mut Reply<'_>,
    is_for_good: bool,
    mut step: impl FnMut(Step, &mut Reply<'_>, Args<'_>) -> Result<(Done, bool), CommandError>,
) -> Result<Outcome, CommandError> {
    let (mut outcome, mut at, bytes_max) = (Outcome::default(), 2, reply.bytes() + MERGED_BYTES_MAX);
    outcome.events.reserve(commands.len());
    for entry in commands {
        let Some(own) = entry.spec.step else { return Err(errors::NOT_MERGED) };
        let count = entry.spec.merged_args - 2;
        let mark = reply.mark();
        match step(own, reply, args.part(at..at + count)) {
            Ok((Done::Read(true), _)) => outcome.found += 1,
            Ok((Done::Read(false), _)) => outcome.missed += 1,
            Ok((Done::Nothing, _)) => {}
            Ok((Done::Changed(event), is_gone)) => outcome.events.push((event, is_gone)),
            Err(_) if is_for_good && outcome.done > 0 => {
                reply.rollback(mark);
                break;
            }
            Err(error) => return Err(error),
        }
        outcome.done += 1;
        at += count;
        if reply.bytes() > bytes_max {
            break;
        }
    }
    Ok(outcome)
}

/// Reports the changes, and counts them.
fn notify(call: &mut Call<'_, '_>, outcome: &Outcome, class: Classes, commands: usize) {
    call.worker_state.reads = (outcome.found, outcome.missed);
    let key = call.args.at(1);
    for (event, is_gone) in &outcome.events {
        call.notify_or_gone(class, event, key, *is_gone);
    }
    call.worker_state.undone = commands - outcome.done;
}

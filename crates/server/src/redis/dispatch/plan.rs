//! Which keys a command's transaction locks.

use crate::redis::blocking::add_keys;
use crate::redis::command::spec::LockSpec;
use crate::redis::command::{Args, Entry, Table};
use crate::redis::session::Session;
use crate::redis::tracking;
use duramen_structures::{Keys, Locks};

/// The locks of a command, in `keys` if there are several.
#[inline]
pub(super) fn locks<'a>(
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
        LockSpec::Queued => locks_of_queue(table, session, keys),
        LockSpec::All => Locks::All,
    }
}

fn locks_of_queue<'a>(table: &Table, session: &Session, keys: &'a mut Keys) -> Locks<'a> {
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

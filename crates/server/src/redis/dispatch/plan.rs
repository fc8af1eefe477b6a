//! Which keys a command's transaction locks.

use crate::redis::blocking::add_keys;
use crate::redis::command::spec::LockSpec;
use crate::redis::command::{Args, Entry, Table};
use crate::redis::session::Session;
use crate::redis::tracking;
use crate::scripts::{digest_of, digest_of_text};
use crate::server::Server;
use duramen_structures::{Keys, Locks};

/// The locks of a command, in `keys` if there are several.
#[inline]
pub(super) fn locks<'a>(
    entry: &Entry,
    table: &Table,
    server: &Server,
    session: &Session,
    args: Args<'a>,
    keys: &'a mut Keys,
) -> Locks<'a> {
    match entry.spec.locks {
        LockSpec::Script => {
            keys.clear();
            let is_alone = begins_alone(entry, server, args) || !add_keys(entry, args, keys);
            if is_alone { Locks::All } else { Locks::Keys(keys) }
        }
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
        LockSpec::Queued => locks_of_queue(table, server, session, keys),
        LockSpec::All => Locks::All,
    }
}

fn locks_of_queue<'a>(table: &Table, server: &Server, session: &Session, keys: &'a mut Keys) -> Locks<'a> {
    keys.clear();
    for watched in session.watched.iter() {
        keys.add(watched.key());
    }
    for queued in session.transaction.iter().flat_map(|transaction| &transaction.queue) {
        let entry = table.entry(queued.command);
        if entry.spec.works_on_any()
            || entry.spec.locks == LockSpec::All
            || entry.spec.locks == LockSpec::Script && begins_alone(entry, server, queued.args.args())
            || !add_keys(entry, queued.args.args(), keys)
        {
            return Locks::All;
        }
    }
    let has_script = session
        .transaction
        .iter()
        .flat_map(|transaction| &transaction.queue)
        .any(|queued| table.entry(queued.command).spec.locks == LockSpec::Script);
    // A script may name more.
    if keys.is_empty() && !has_script { Locks::Nothing } else { Locks::Keys(keys) }
}

/// Whether a command's script is known to work on keys that its arguments do not name.
fn begins_alone(entry: &Entry, server: &Server, args: Args<'_>) -> bool {
    server.scripts.begins_alone(|| match entry.spec.name {
        "evalsha" | "evalsha_ro" => digest_of(args.at(1)),
        "eval" | "eval_ro" => Some(digest_of_text(args.at(1))),
        _ => None,
    })
}

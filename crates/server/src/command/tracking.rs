//! What commands do for clients that track keys: remember what is read, tell what is written. See [`crate::tracking`].

use super::flags::Flags;
use super::spec::Spec;
use super::{Args, CommandError};
use crate::local::Local;
use crate::server::Server;
use crate::session::Session;
use duramen_structures::Txn;

/// Whether the keys of a command are remembered: they are locked then.
pub fn remembers(spec: &Spec, session: &Session) -> bool {
    let tracks = session.tracks.as_ref();
    tracks.is_some_and(|tracks| tracks.remembers()) && spec.flags.has(Flags::READONLY) && spec.has_keys()
}

/// Remembers the keys of a command that has read them, under their locks.
pub fn remember(
    server: &Server,
    txn: &mut Txn<'_>,
    session: &Session,
    spec: &Spec,
    args: Args<'_>,
) -> Result<(), CommandError> {
    let tracking = &server.tracking;
    for place in spec.keys(args).into_iter().flatten() {
        let key = args.at(place.index);
        tracking.remember(key, session.client.id);
        let expires_at = txn.look(session.db, key)?.and_then(|found| found.expires_at);
        tracking.will_expire(expires_at, session.db, key);
    }
    Ok(())
}

/// Tells of what a transaction has written, before it commits.
#[cold]
pub fn tell_written(server: &Server, txn: &Txn<'_>, local: &mut Local, writer: u64) {
    let keys: Vec<Box<[u8]>> = txn.written().map(|(_, key)| key.into()).collect();
    tell(server, local, writer, &keys);
}

/// Tells of keys whose locks the caller has.
pub fn tell(server: &Server, local: &mut Local, writer: u64, keys: &[Box<[u8]>]) {
    for key in keys {
        for tracked in server.tracking.take(key, writer, &mut local.untracked) {
            local.invalidate(server, &tracked, Some(vec![key.clone()]));
        }
    }
    local.invalidate_by_prefix(server, writer, keys);
}

/// Tells that a database was emptied: whatever anybody keeps is not to be relied on.
#[cold]
pub fn tell_flushed(server: &Server, local: &mut Local) {
    // First: what is remembered of a read behind this is of what the flush left.
    server.tracking.forget_all();
    for tracked in server.tracking.all() {
        local.invalidate(server, &tracked, None);
    }
}

/// Tells of keys of which too many are remembered, so that they are forgotten.
pub fn tell_surplus(server: &Server, local: &mut Local) {
    let keys_max = server.config().tracking_table_max_keys;
    while let Some(key) = server.tracking.surplus(keys_max) {
        // Without the lock: it was not written.
        tell(server, local, 0, &[key]);
    }
}

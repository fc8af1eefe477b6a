//! CLIENT TRACKING for commands: remember the keys that are read, notify of those that are written. See
//! [`crate::redis::tracking`].

use crate::command_error::CommandError;
use crate::redis::command::{Args, Flags, Spec};
use crate::redis::session::Session;
use crate::redis::worker_state::WorkerState;
use crate::server::Server;
use duramen_structures::Txn;

/// Whether the keys of a command are remembered: they are locked then.
pub fn remembers(spec: &Spec, session: &Session) -> bool {
    let tracks = session.tracks.as_ref();
    tracks.is_some_and(|tracks| tracks.remembers()) && spec.flags.has(Flags::READONLY) && spec.has_keys()
}

/// Before a transaction commits: remembers what it read, and tells of what it has written.
#[inline]
pub fn before_commit(
    server: &Server,
    txn: &mut Txn<'_>,
    session: &Session,
    spec: &Spec,
    args: Args<'_>,
    worker_state: &mut WorkerState,
) -> Result<(), CommandError> {
    if !server.tracking.is_any() {
        return Ok(());
    }
    if remembers(spec, session) {
        remember(server, txn, session, spec, args)?;
    }
    // When a database is emptied, all tracking clients are notified of everything anyway.
    if !worker_state.is_flushed {
        invalidate_written(server, txn, worker_state, session.client.id);
    }
    Ok(())
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
        let expires_at = txn.expires_at(session.db, key)?;
        tracking.remember(key, session.client.id, session.db, expires_at);
    }
    Ok(())
}

/// Tells of what a transaction has written, before it commits.
#[cold]
pub fn invalidate_written(server: &Server, txn: &Txn<'_>, worker_state: &mut WorkerState, writer: u64) {
    let keys: Vec<Box<[u8]>> = txn.written().map(|(_, key)| key.into()).collect();
    invalidate(server, worker_state, writer, &keys);
}

/// Tells of keys whose locks the caller has.
pub fn invalidate(server: &Server, worker_state: &mut WorkerState, writer: u64, keys: &[Box<[u8]>]) {
    for key in keys {
        for tracked in server.tracking.take(key, writer, &mut worker_state.untracked) {
            worker_state.invalidate(server, &tracked, Some(vec![key.clone()]));
        }
    }
    worker_state.invalidate_by_prefix(server, writer, keys);
}

/// Tells that a database was emptied: whatever anybody keeps is not to be relied on.
#[cold]
pub fn invalidate_flushed(server: &Server, worker_state: &mut WorkerState) {
    // First: a read that is remembered after this sees the flushed state.
    server.tracking.forget_all();
    for tracked in server.tracking.all() {
        worker_state.invalidate(server, &tracked, None);
    }
}

/// Invalidates surplus remembered keys, so that they are forgotten.
pub fn invalidate_surplus(server: &Server, worker_state: &mut WorkerState) {
    let keys_max = server.config().tracking_table_max_keys;
    while let Some(key) = server.tracking.surplus(keys_max) {
        // Without the lock: it was not written.
        invalidate(server, worker_state, 0, &[key]);
    }
}

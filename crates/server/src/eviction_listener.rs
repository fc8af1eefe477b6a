//! What becomes known of keys that the store evicts: events and invalidations of Redis, counts of memcached.

use crate::command::tracking;
use crate::notifications::EVICTED;
use crate::server::Server;
use crate::worker_state::WorkerState;
use duramen::OnEvicted;
use std::sync::Arc;

/// What the store is to call. It is called by the store's own thread, or by a worker whose write makes room, in the middle of its turn:
/// so messages go by themselves, and are not the turn's. The caller has the key's lock, so that they come before those of later writes.
pub fn listener(server: &Arc<Server>) -> OnEvicted {
    let server = Arc::downgrade(server);
    Arc::new(move |evicted| {
        let Some(server) = server.upgrade() else { return };
        let Ok(db) = u8::try_from(evicted.label) else { return };
        if let Some(memcached) = server.memcached.as_ref().filter(|memcached| memcached.db == db) {
            memcached.counters.evicted(memcached.last_used.of(&evicted.key, crate::clients::unix_seconds()));
        }
        if db >= server.keyspace.databases() {
            return;
        }
        let mut worker_state = WorkerState::default();
        server.waiting.note_gone(db, &evicted.key);
        worker_state.notify(&server, EVICTED, "evicted", db, &evicted.key);
        if server.tracking.is_any() {
            tracking::invalidate(&server, &mut worker_state, 0, &[evicted.key.as_slice().into()]);
        }
        worker_state.send_alone(&server);
    })
}

//! Reports keys that the store evicts: events and invalidations of Redis, counters of memcached.

use crate::observe::keyspace_events::EVICTED;
use crate::redis::tracking;
use crate::redis::worker_state::WorkerState;
use crate::server::Server;
use duramen::OnEvicted;
use std::sync::Arc;

/// The store's listener for evicted keys. The store's own thread calls it, or a worker in the middle of its turn when
/// its write makes room. Messages are therefore sent at once and do not belong to a turn. The caller holds the key's
/// lock, so they precede those of later writes.
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

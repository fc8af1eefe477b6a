//! Reports keys that the store sweeps after they expired, when no worker handled them in time
//! ([`expiry_timers`](crate::observe::keyspace_events::expiry_timers)).

use crate::clients::unix_millis;
use crate::redis::worker_state::WorkerState;
use crate::server::Server;
use duramen::OnExpired;
use std::sync::Arc;

/// The listener that the store's own thread calls. The thread holds the key's lock, so the event precedes those of
/// later writes. Messages are sent at once: they belong to no turn.
pub fn listener(server: &Arc<Server>) -> OnExpired {
    let server = Arc::downgrade(server);
    Arc::new(move |swept| {
        let Some(server) = server.upgrade() else { return };
        let Some(db) = server.keyspace.database_of(swept.table) else { return };
        if server.pause.keeps_keys(unix_millis()) {
            return server.swept.add(db, &swept.key);
        }
        let mut worker_state = WorkerState::default();
        worker_state.notify_expired(&server, db, &swept.key);
        worker_state.send_alone(&server);
    })
}

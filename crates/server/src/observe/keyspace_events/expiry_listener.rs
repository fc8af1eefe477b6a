//! Reports keys that the store sweeps after they expired, when no worker handled them in time
//! ([`expiry_timers`](crate::observe::keyspace_events::expiry_timers)).

use crate::clients::unix_millis;
use crate::redis::worker_state::WorkerState;
use crate::server::Server;
use duramen::{OnDue, OnExpired};
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

/// The listener for fields whose time has come. A worker deletes them, under the key's lock.
pub fn due_listener(server: &Arc<Server>) -> OnDue {
    let server = Arc::downgrade(server);
    Arc::new(move |due| {
        let Some(server) = server.upgrade() else { return };
        let Some(db) = server.keyspace.database_of(due.table) else { return };
        let was_due = server.field_timers.is_due_by_now();
        server.field_timers.note_field(db, &due.key, &due.element, 0);
        if !was_due && let Some(inbox) = server.inboxes.first() {
            // A worker without a client looks at nothing by itself.
            inbox.send_mail(Vec::new(), true);
        }
    })
}

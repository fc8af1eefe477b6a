//! Telling of keys that the store sweeps because they have expired: those of which no worker looked at the right time
//! ([`expiries`](crate::expiries)).

use crate::clients::unix_millis;
use crate::local::Local;
use crate::server::Server;
use duramen::OnExpired;
use std::sync::Arc;

/// What the store's own thread is to call. Messages go by themselves: they belong to no turn.
pub fn teller(server: &Arc<Server>) -> OnExpired {
    let server = Arc::downgrade(server);
    Arc::new(move |expired| {
        let Some(server) = server.upgrade() else { return };
        let mut local = Local::default();
        for swept in expired {
            let Some(db) = server.keyspace.database_of(swept.table) else { continue };
            match server.pause.keeps_keys(unix_millis()) {
                true => server.note_swept(db, swept.key.clone()),
                false => local.tell_expired(&server, db, &swept.key),
            }
        }
        server.delivery.hand_over(&mut local.outgoing, true, |worker, messages| {
            if let Some(inbox) = server.inboxes.get(worker) {
                inbox.send_mail(messages, true);
            }
        });
    })
}

//! What becomes known of keys that the store evicts: events and invalidations of Redis, counts of memcached.

use crate::command::tracking;
use crate::local::Local;
use crate::notifications::EVICTED;
use crate::server::Server;
use duramen::OnEvicted;
use std::sync::Arc;

/// What the store is to call. It is called by the store's own thread, or by a worker whose write makes room, in the middle of its turn:
/// so messages go by themselves, and are not the turn's.
pub fn teller(server: &Arc<Server>) -> OnEvicted {
    let server = Arc::downgrade(server);
    Arc::new(move |evicted| {
        let Some(server) = server.upgrade() else { return };
        let now = crate::clients::unix_seconds();
        let mut local = Local::default();
        for key in evicted {
            let Ok(db) = u8::try_from(key.label) else { continue };
            if let Some(memcached) = server.memcached.as_ref().filter(|memcached| memcached.db == db) {
                memcached.counters.evicted(memcached.touched.of(&key.key, now));
            }
            if db < server.keyspace.databases() {
                server.waiting.note_gone(db, &key.key);
                local.notify(&server, EVICTED, "evicted", db, &key.key);
            }
        }
        if server.tracking.is_any() {
            // Without their locks: who reads one at this moment keeps what was written last, and is told when that changes.
            let keys: Vec<Box<[u8]>> = evicted.iter().map(|evicted| evicted.key.as_slice().into()).collect();
            tracking::tell(&server, &mut local, 0, &keys);
        }
        server.delivery.hand_over(&mut local.outgoing, true, |worker, messages| {
            server.inboxes[worker].send_mail(messages, true);
        });
    })
}

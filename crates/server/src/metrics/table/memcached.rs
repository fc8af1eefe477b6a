//! memcached's protocols, where they are spoken.

use super::{Family, Kind, server};
use crate::memcached::COUNTER_NAMES;

pub const FAMILIES: &[Family] = &[
    server(
        "memcached_items",
        Kind::Gauge,
        &[],
        &["memcached_items"],
        "Items of memcached's clients.",
        |f, s| {
            if let Some(shared) = &f.server.memcached {
                s.set(f.server.keyspace.keys(shared.db, crate::clients::unix_millis()));
            }
        },
    ),
    server(
        "memcached_events",
        Kind::Counter,
        &["event"],
        &["memcached_*"],
        "The counters of memcached's stats, by their names there.",
        |f, s| {
            let Some(shared) = &f.server.memcached else { return };
            for (name, sum) in COUNTER_NAMES.iter().zip(shared.counters.sums_ever()) {
                s.labelled([name], sum);
            }
        },
    ),
];

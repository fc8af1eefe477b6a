//! Connections and what clients wait for.

use super::{Family, Kind, server};
use crate::messages::Kind as Channel;
use std::sync::atomic::Ordering::Relaxed;

pub const FAMILIES: &[Family] = &[
    server("clients", Kind::Gauge, &[], &["connected_clients"], "Connected clients.", |f, s| {
        s.set(f.server.clients.count());
    }),
    server(
        "clients_max",
        Kind::Gauge,
        &[],
        &["maxclients"],
        "Clients that may connect (maxclients).",
        |f, s| {
            s.set(u64::from(f.config.maxclients));
        },
    ),
    server(
        "clients_waiting",
        Kind::Gauge,
        &[],
        &["blocked_clients"],
        "Clients whose command waits: for a key, or for the end of CLIENT PAUSE.",
        |f, s| {
            let list = f.server.clients.list();
            s.set(list.iter().filter(|client| client.paused.load(Relaxed)).count());
        },
    ),
    server(
        "clients_tracking",
        Kind::Gauge,
        &[],
        &["tracking_clients"],
        "Clients with CLIENT TRACKING.",
        |f, s| s.set(f.server.tracking.clients_count()),
    ),
    server(
        "client_buffers_bytes",
        Kind::Gauge,
        &[],
        &["mem_clients_normal"],
        "Bytes of requests and replies in the buffers of all clients.",
        |f, s| s.set(f.server.clients.list().iter().map(|client| client.buffered()).sum::<u64>()),
    ),
    server(
        "client_input_buffer_max_bytes",
        Kind::Gauge,
        &[],
        &["client_recent_max_input_buffer"],
        "The largest request buffer so far.",
        |f, s| s.set(f.totals.input_bytes_max),
    ),
    server(
        "client_output_buffer_max_bytes",
        Kind::Gauge,
        &[],
        &["client_recent_max_output_buffer"],
        "The largest reply buffer so far.",
        |f, s| s.set(f.totals.output_bytes_max),
    ),
    server(
        "connections",
        Kind::Counter,
        &[],
        &["total_connections_received"],
        "Connections that were accepted.",
        |f, s| s.set(f.server.clients.history().0),
    ),
    server(
        "connections_rejected",
        Kind::Counter,
        &[],
        &["rejected_connections"],
        "Connections that were closed at once, since maxclients was reached or protected mode forbids them.",
        |f, s| s.set(f.server.clients.history().1),
    ),
    server(
        "clients_disconnected",
        Kind::Counter,
        &["reason"],
        &[
            "client_query_buffer_limit_disconnections",
            "client_output_buffer_limit_disconnections",
            "evicted_clients",
        ],
        "Clients that were disconnected: their request was too large (request), they did not read replies (reply), or \
         all buffers together were too large (maxmemory_clients).",
        |f, s| {
            s.labelled(["request"], f.totals.query_limit_disconnections);
            s.labelled(["reply"], f.totals.output_limit_disconnections);
            s.labelled(["maxmemory_clients"], f.totals.evicted_clients);
        },
    ),
    server(
        "network_received_bytes",
        Kind::Counter,
        &[],
        &["total_net_input_bytes"],
        "Bytes received from clients.",
        |f, s| s.set(f.totals.input_bytes),
    ),
    server(
        "network_sent_bytes",
        Kind::Counter,
        &[],
        &["total_net_output_bytes"],
        "Bytes sent to clients.",
        |f, s| {
            s.set(f.totals.output_bytes);
        },
    ),
    server("socket_reads", Kind::Counter, &[], &["total_reads_processed"], "Reads from sockets.", |f, s| {
        s.set(f.totals.reads);
    }),
    server("socket_writes", Kind::Counter, &[], &["total_writes_processed"], "Writes to sockets.", |f, s| {
        s.set(f.totals.writes);
    }),
    server("worker_threads", Kind::Gauge, &[], &["worker_threads"], "Threads that serve clients.", |f, s| {
        s.set(f.server.inboxes.len());
    }),
    server(
        "waited_keys",
        Kind::Gauge,
        &[],
        &["total_blocking_keys"],
        "Keys for which clients wait (BLPOP and its like).",
        |f, s| s.set(f.server.waiting.keys_count().0),
    ),
    server(
        "waited_keys_of_groups",
        Kind::Gauge,
        &[],
        &["total_blocking_keys_on_nokey"],
        "Those among them whose deletion ends the wait (XREADGROUP).",
        |f, s| s.set(f.server.waiting.keys_count().1),
    ),
    server(
        "subscribed_channels",
        Kind::Gauge,
        &["kind"],
        &["pubsub_channels", "pubsub_patterns", "pubsubshard_channels"],
        "Channels (channel), patterns (pattern) and shard channels (shard) with subscribers.",
        |f, s| {
            let of = |kind| f.server.subscriptions.names_count(kind);
            s.labelled(["channel"], of(Channel::Channel));
            s.labelled(["pattern"], of(Channel::Pattern));
            s.labelled(["shard"], of(Channel::Shard));
        },
    ),
    server(
        "tracked_keys",
        Kind::Gauge,
        &[],
        &["tracking_total_keys"],
        "Keys that CLIENT TRACKING remembers.",
        |f, s| s.set(f.server.tracking.sizes().0),
    ),
    server(
        "tracked_keys_of_clients",
        Kind::Gauge,
        &[],
        &["tracking_total_items"],
        "The same, counted once for each client that read the key.",
        |f, s| s.set(f.server.tracking.sizes().1),
    ),
    server(
        "tracked_prefixes",
        Kind::Gauge,
        &[],
        &["tracking_total_prefixes"],
        "Prefixes of CLIENT TRACKING with BCAST.",
        |f, s| s.set(f.server.tracking.sizes().2),
    ),
];

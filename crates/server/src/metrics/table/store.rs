//! The store: its space and memory, and what the engine does in the background.

use super::{Family, Kind, server};

pub const SPACE: &[Family] = &[
    server("store_keys", Kind::Gauge, &[], &["duramen_keys"], "Keys of all tables.", |f, s| {
        s.set(f.store.keys)
    }),
    server(
        "medium_bytes",
        Kind::Gauge,
        &[],
        &["duramen_medium_bytes"],
        "Bytes that the medium has.",
        |f, s| {
            s.set(f.store.medium_bytes);
        },
    ),
    server(
        "medium_given_back_bytes",
        Kind::Gauge,
        &[],
        &["duramen_given_back_bytes"],
        "Bytes of these that went back to the file system or to memory, since nothing is in them.",
        |f, s| s.set(f.store.given_back_bytes),
    ),
    server(
        "medium_limit_bytes",
        Kind::Gauge,
        &[],
        &["maxmemory"],
        "Bytes up to which the medium grows: maxmemory, the device, or for a file 1 TiB.",
        |f, s| {
            let limit = if f.store.limit_bytes > 0 { f.store.limit_bytes } else { u64::MAX };
            s.set(f.store.medium_max_bytes.min(limit));
        },
    ),
    server(
        "file_system_available_bytes",
        Kind::Gauge,
        &[],
        &[],
        "Bytes that the file system of a file has left for it.",
        |f, s| f.available_bytes.into_iter().for_each(|bytes| s.set(bytes)),
    ),
    server(
        "used_bytes",
        Kind::Gauge,
        &[],
        &["used_memory", "aof_current_size", "duramen_used_bytes"],
        "Bytes of blocks in use, live or dead; maxmemory limits them.",
        |f, s| s.set(f.store.used_bytes),
    ),
    server(
        "used_max_bytes",
        Kind::Gauge,
        &[],
        &["used_memory_peak"],
        "The most of these since the start.",
        |f, s| {
            s.set(f.server.used_bytes_max(f.store.used_bytes));
        },
    ),
    server(
        "live_bytes",
        Kind::Gauge,
        &[],
        &["used_memory_dataset", "aof_base_size", "duramen_live_bytes"],
        "Used bytes less those that are known to be dead.",
        |f, s| s.set(f.store.live_bytes),
    ),
    server("dead_bytes", Kind::Gauge, &[], &[], "Bytes that compaction can gain.", |f, s| {
        s.set(f.store.dead_bytes)
    }),
    server("free_bytes", Kind::Gauge, &[], &["duramen_free_bytes"], "Bytes of free extents.", |f, s| {
        s.set(f.store.free_bytes);
    }),
    server(
        "blocks",
        Kind::Gauge,
        &["state"],
        &[],
        "Blocks by state: written to (open), full (sealed), copied and not yet free (retired), damaged, with a part of \
         an index checkpoint (checkpoint), without space (given_back). A count that took long is kept for 100 times as \
         long.",
        |f, s| {
            for (state, count) in f.blocks.by_state() {
                s.labelled([state], count);
            }
        },
    ),
    server(
        "evicts",
        Kind::Gauge,
        &["policy"],
        &[],
        "1 if a full store evicts keys, 0 if it refuses writes; with maxmemory-policy.",
        |f, s| s.labelled([f.config.policy().name()], f.config.policy().eviction().is_some()),
    ),
    server(
        "index_bytes",
        Kind::Gauge,
        &[],
        &["used_memory_overhead", "duramen_index_bytes"],
        "Private memory of the indexes.",
        |f, s| s.set(f.store.index_bytes),
    ),
    server(
        "access_bytes",
        Kind::Gauge,
        &[],
        &[],
        "Private memory of the counts of reads, for eviction.",
        |f, s| {
            s.set(f.store.access_bytes);
        },
    ),
    server("out_of_space", Kind::Gauge, &[], &[], "1 while writes are refused for lack of space.", |f, s| {
        s.set(f.is_full);
    }),
    server(
        "store_deleted",
        Kind::Gauge,
        &[],
        &["duramen_store_deleted"],
        "1 if the file of the store was deleted or moved.",
        |f, s| s.set(f.server.is_store_deleted()),
    ),
];

pub const ENGINE: &[Family] = &[
    server(
        "store_poisoned",
        Kind::Gauge,
        &[],
        &[],
        "1 if a write-back failed: the store takes no writes until it is opened again.",
        |f, s| s.set(f.server.keyspace.store().check_writable().is_err()),
    ),
    server(
        "damaged_blocks",
        Kind::Gauge,
        &[],
        &["duramen_damaged_blocks"],
        "Blocks with known damage.",
        |f, s| {
            s.set(f.store.damaged_blocks);
        },
    ),
    server(
        "unverified_bytes",
        Kind::Gauge,
        &[],
        &["duramen_unverified_bytes"],
        "Bytes that nothing has verified since the start.",
        |f, s| s.set(f.store.unverified_bytes),
    ),
    server("writers", Kind::Gauge, &[], &["duramen_writers"], "Writers of the store.", |f, s| {
        s.set(f.store.writers)
    }),
    server(
        "written_bytes",
        Kind::Counter,
        &[],
        &["duramen_written_bytes"],
        "Bytes of records that were appended.",
        |f, s| s.set(f.store.written_bytes),
    ),
    server(
        "commits",
        Kind::Counter,
        &[],
        &[],
        "Epochs that were made durable by one sync each; none on media that need no sync.",
        |f, s| s.set(f.store.commits),
    ),
    server("commit_sync_seconds", Kind::Counter, &[], &[], "Time of these syncs.", |f, s| {
        s.set(f.store.commit_nanos as f64 / 1e9);
    }),
    server("epoch", Kind::Gauge, &[], &["duramen_epoch"], "The current epoch.", |f, s| s.set(f.store.epoch)),
    server(
        "epoch_committed",
        Kind::Gauge,
        &[],
        &["duramen_epoch_committed"],
        "The last durable epoch.",
        |f, s| {
            s.set(f.store.epoch_committed);
        },
    ),
    server(
        "compaction_rounds",
        Kind::Counter,
        &[],
        &["duramen_compactions"],
        "Rounds of compaction.",
        |f, s| {
            s.set(f.store.compactions);
        },
    ),
    server(
        "compaction_copied_bytes",
        Kind::Counter,
        &[],
        &["duramen_compacted_bytes"],
        "Bytes that compaction copied.",
        |f, s| s.set(f.store.compacted_bytes),
    ),
    server(
        "compaction_freed_bytes",
        Kind::Counter,
        &[],
        &[],
        "Bytes of blocks that compaction freed.",
        |f, s| {
            s.set(f.store.freed_extents * f.store.extent_bytes);
        },
    ),
    server(
        "tombstone_recounts",
        Kind::Counter,
        &[],
        &[],
        "How often compaction read everything to find the tombstones that are still needed.",
        |f, s| s.set(f.store.recounts),
    ),
    server(
        "index_checkpoints",
        Kind::Counter,
        &[],
        &["duramen_checkpoints"],
        "Checkpoints of the index (duramen-residence persistent).",
        |f, s| s.set(f.store.checkpoints),
    ),
    server(
        "index_checkpoint_written_bytes",
        Kind::Counter,
        &[],
        &["duramen_checkpoint_bytes"],
        "Bytes that they wrote.",
        |f, s| s.set(f.store.checkpoint_bytes),
    ),
    server(
        "index_pages_left",
        Kind::Gauge,
        &[],
        &["duramen_index_pages_left"],
        "Pages of the index checkpoint that are not read yet after the start.",
        |f, s| s.set(f.store.index_pages_left),
    ),
    server(
        "index_cache_hits",
        Kind::Counter,
        &[],
        &["duramen_index_cache_hits"],
        "Point reads of ordered indexes that their cache answered.",
        |f, s| s.set(f.store.index_cache_hits),
    ),
    server(
        "index_cache_misses",
        Kind::Counter,
        &[],
        &["duramen_index_cache_misses"],
        "Those that had to descend.",
        |f, s| s.set(f.store.index_cache_misses),
    ),
    server(
        "index_key_waits",
        Kind::Counter,
        &[],
        &["duramen_index_key_waits"],
        "How often a writer found a key's lock taken.",
        |f, s| s.set(f.store.index_key_waits),
    ),
    server(
        "index_leaf_waits",
        Kind::Counter,
        &[],
        &["duramen_index_leaf_waits"],
        "How often a writer found a leaf's lock taken.",
        |f, s| s.set(f.store.index_leaf_waits),
    ),
    server(
        "index_splits",
        Kind::Counter,
        &[],
        &[],
        "Segments or leaves of indexes that were split.",
        |f, s| {
            s.set(f.store.index_splits);
        },
    ),
    server("index_merges", Kind::Counter, &[], &[], "Those that were merged.", |f, s| {
        s.set(f.store.index_merges)
    }),
    server(
        "index_doublings",
        Kind::Counter,
        &[],
        &[],
        "How often a hash index's directory doubled.",
        |f, s| {
            s.set(f.store.index_doublings);
        },
    ),
    server(
        "recovered_records",
        Kind::Gauge,
        &[],
        &["duramen_recovered_records"],
        "Records that the start read.",
        |f, s| s.set(f.store.recovered_records),
    ),
    server("recovery_seconds", Kind::Gauge, &[], &["duramen_recovery_nanos"], "Time that took.", |f, s| {
        s.set(f.store.recovery_nanos as f64 / 1e9);
    }),
];

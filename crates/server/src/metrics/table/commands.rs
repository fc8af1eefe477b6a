//! Commands, errors, databases and scripts.

use super::{Family, Kind, Number, ServerFacts, server};
use crate::redis::command::{Entry, table};
use std::sync::atomic::Ordering::Relaxed;

/// Bounds of the buckets of times, in nanoseconds, up to where the engine's histograms count exactly.
const BOUNDS_NANOS: [u64; 18] = [
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
];

/// Errors of alert rules. They have a series from the start: otherwise the first one is no growth.
const ALERTED: [&str; 4] = ["CORRUPT", "MISCONF", "OOM", "WRONGPASS"];

/// Commands and subcommands that a client called: with the number of each.
fn called<'a>(
    f: &'a ServerFacts<'_>,
) -> impl Iterator<Item = (&'static Entry, crate::observe::stats::CommandTotals)> + 'a {
    let of = |entry: &'static Entry| f.totals.commands.get(entry.index).map(|totals| (entry, *totals));
    table().all().filter_map(of).filter(|(_, totals)| totals.calls + totals.rejected > 0)
}

pub const FAMILIES: &[Family] = &[
    server(
        "commands",
        Kind::Counter,
        &[],
        &["total_commands_processed"],
        "Commands of Redis that ran, and those of memcached.",
        |f, s| s.set(f.totals.commands_processed),
    ),
    server(
        "command_calls",
        Kind::Counter,
        &["command"],
        &["cmdstat_*"],
        "Calls of each command that was called at all.",
        |f, s| called(f).for_each(|(entry, totals)| s.labelled([entry.spec.name], totals.calls)),
    ),
    server(
        "command_failures",
        Kind::Counter,
        &["command"],
        &["cmdstat_*"],
        "Calls that replied with an error.",
        |f, s| called(f).for_each(|(entry, totals)| s.labelled([entry.spec.name], totals.failed)),
    ),
    server(
        "command_rejections",
        Kind::Counter,
        &["command"],
        &["cmdstat_*"],
        "Calls that were refused before they ran.",
        |f, s| called(f).for_each(|(entry, totals)| s.labelled([entry.spec.name], totals.rejected)),
    ),
    server(
        "command_duration_seconds",
        Kind::Histogram,
        &["command"],
        &["cmdstat_*", "latency_percentiles_usec_*"],
        "Time of each command that was called, without the wait for durability; equal commands in a row of a pipeline \
         count with their average. Nothing new while latency-tracking is off.",
        |f, s| {
            for (entry, totals) in called(f) {
                let sums = f.server.histogram_ever(entry.index);
                if sums.total() == 0 {
                    continue;
                }
                let buckets = sums.buckets(&BOUNDS_NANOS);
                let bounds = BOUNDS_NANOS.iter().map(|nanos| *nanos as f64 / 1e9).chain([f64::INFINITY]);
                let number = Number::Histogram(totals.nanos as f64 / 1e9, bounds.zip(buckets).collect());
                s.labelled([entry.spec.name], number);
            }
        },
    ),
    server(
        "errors",
        Kind::Counter,
        &["code"],
        &["errorstat_*", "acl_access_denied_auth"],
        "Error replies by their first word, at most 128 of them.",
        |f, s| {
            f.totals.errors.iter().for_each(|(code, count)| s.labelled([code], *count));
            let missing = ALERTED.iter().filter(|code| !f.totals.errors.contains_key(**code));
            missing.for_each(|code| s.labelled([code], 0u64));
        },
    ),
    server("error_replies", Kind::Counter, &[], &["total_error_replies"], "Error replies.", |f, s| {
        s.set(f.totals.error_replies);
    }),
    server(
        "commands_repeated",
        Kind::Counter,
        &[],
        &["total_commands_repeated"],
        "Transactions that ran again, because something that they had read changed.",
        |f, s| s.set(f.totals.repeated),
    ),
    server(
        "turns",
        Kind::Counter,
        &[],
        &["total_event_loop_turns"],
        "Turns of workers that ran commands; each is one wait for durability.",
        |f, s| s.set(f.totals.turns),
    ),
    server("keyspace_hits", Kind::Counter, &[], &["keyspace_hits"], "Keys that reads found.", |f, s| {
        s.set(f.totals.keyspace_hits);
    }),
    server(
        "keyspace_misses",
        Kind::Counter,
        &[],
        &["keyspace_misses"],
        "Keys that reads did not find.",
        |f, s| {
            s.set(f.totals.keyspace_misses);
        },
    ),
    server(
        "database_keys",
        Kind::Gauge,
        &["db"],
        &["db*"],
        "Keys of each database that has any; expired ones count until they are removed.",
        |f, s| f.databases.iter().for_each(|(db, count, _)| s.labelled([&db.to_string()], count.keys)),
    ),
    server(
        "database_expiring_keys",
        Kind::Gauge,
        &["db"],
        &["db*"],
        "Those among them that expire; an estimate above 128 keys.",
        |f, s| f.databases.iter().for_each(|(db, count, _)| s.labelled([&db.to_string()], count.expires)),
    ),
    server(
        "database_time_to_live_seconds",
        Kind::Gauge,
        &["db"],
        &["db*"],
        "How long those have to live on average, an estimate.",
        |f, s| f.databases.iter().for_each(|(db, _, ttl)| s.labelled([&db.to_string()], *ttl as f64 / 1e3)),
    ),
    server(
        "expired_keys",
        Kind::Counter,
        &[],
        &["expired_keys"],
        "Keys that were removed as expired.",
        |f, s| {
            s.set(f.store.expired_keys);
        },
    ),
    server(
        "expired_subkeys",
        Kind::Counter,
        &[],
        &["expired_subkeys"],
        "Fields of hashes that were removed as expired.",
        |f, s| s.set(f.totals.expired_fields),
    ),
    server("evicted_keys", Kind::Counter, &[], &["evicted_keys"], "Keys that were evicted.", |f, s| {
        s.set(f.store.evicted_keys);
    }),
    server("evicted_bytes", Kind::Counter, &[], &[], "Bytes of their records.", |f, s| {
        s.set(f.store.evicted_bytes)
    }),
    server(
        "unlinked_keys",
        Kind::Counter,
        &[],
        &["lazyfreed_objects"],
        "Keys that UNLINK and the FLUSH commands with ASYNC removed.",
        |f, s| s.set(f.totals.lazyfreed),
    ),
    server(
        "unsaved_changes",
        Kind::Gauge,
        &[],
        &["rdb_changes_since_last_save"],
        "Keys written since SAVE, or since the start.",
        |f, s| s.set(f.server.changes_since_save()),
    ),
    server(
        "save_timestamp_seconds",
        Kind::Gauge,
        &[],
        &["rdb_last_save_time"],
        "Unix time of the last SAVE, or of the start.",
        |f, s| s.set(f.server.saved_at.load(Relaxed)),
    ),
    server(
        "cached_scripts",
        Kind::Gauge,
        &[],
        &["number_of_cached_scripts"],
        "Scripts of EVAL that are kept.",
        |f, s| s.set(f.server.scripts.count().0),
    ),
    server(
        "cached_scripts_bytes",
        Kind::Gauge,
        &[],
        &["used_memory_scripts_eval"],
        "Bytes of their texts.",
        |f, s| s.set(f.server.scripts.count().1),
    ),
    server("functions", Kind::Gauge, &[], &["number_of_functions"], "Functions of FUNCTION LOAD.", |f, s| {
        s.set(f.server.libraries.counts().1);
    }),
    server("function_libraries", Kind::Gauge, &[], &["number_of_libraries"], "Their libraries.", |f, s| {
        s.set(f.server.libraries.counts().0);
    }),
];

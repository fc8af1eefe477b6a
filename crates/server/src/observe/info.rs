//! The text of INFO: the state of the server, in the sections and with the field names that redis-cli, redis_exporter and
//! RedisInsight read.
//!
//! Fields without a meaning here are left out rather than invented, except those that tools need. These have the value
//! of a server without the feature (no replicas, no cluster, no child processes).

use crate::clients::{unix_millis, unix_seconds};
use crate::config::Config;
use crate::memcached::COUNTER_NAMES;
use crate::messages::Kind;
use crate::observe::process;
use crate::observe::stats::Totals;
use crate::redis::command::Table;
use crate::server::Server;
use duramen::Stats;
use duramen_structures::KeyCount;
use std::fmt::{Display, Write as _};
use std::sync::atomic::Ordering;

/// The version of Redis that clients and tools see.
pub const REDIS_VERSION: &str = "7.2.4";

/// A section: its name, whether INFO shows it by default, and the function that writes it.
type Section = (&'static str, bool, fn(&mut Text, &Facts<'_>));

const SECTIONS: &[Section] = &[
    ("Server", true, server),
    ("Clients", true, clients),
    ("Memory", true, memory),
    ("Persistence", true, persistence),
    ("Stats", true, stats),
    ("Replication", true, replication),
    ("CPU", true, cpu),
    ("Modules", true, |_, _| {}),
    ("Commandstats", false, commandstats),
    ("Errorstats", true, errorstats),
    ("Latencystats", false, latencystats),
    ("Cluster", true, |text, _| text.field("cluster_enabled", 0)),
    ("Duramen", true, duramen),
    ("Memcached", true, memcached),
    ("Keyspace", true, keyspace),
];

/// The text of the sections that `shows` chooses by their names in lower case. The counts of the keyspace are taken by
/// the caller's transaction.
pub fn text(
    server: &Server,
    table: &Table,
    now: u64,
    databases: Vec<KeyCount>,
    shows: impl Fn(&str, bool) -> bool,
) -> String {
    let facts = Facts {
        table,
        server,
        config: server.config(),
        totals: server.totals(),
        store: server.keyspace.store().stats(),
        process: process::read(),
        now,
        databases,
    };
    let mut text = Text(String::with_capacity(8192));
    for (name, by_default, write) in SECTIONS {
        if shows(&name.to_ascii_lowercase(), *by_default) {
            if !text.0.is_empty() {
                text.0.push_str("\r\n");
            }
            text.line(format_args!("# {name}"));
            write(&mut text, &facts);
        }
    }
    text.0
}

struct Facts<'a> {
    table: &'a Table,
    server: &'a Server,
    config: std::sync::Arc<Config>,
    totals: Totals,
    store: Stats,
    process: process::Process,
    now: u64,
    // For the keyspace section.
    databases: Vec<KeyCount>,
}

struct Text(String);

impl Text {
    fn line(&mut self, line: impl Display) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{line}\r\n");
    }

    fn field(&mut self, name: &str, value: impl Display) {
        self.line(format_args!("{name}:{value}"));
    }

    /// Bytes, and the same as people read it.
    fn bytes(&mut self, name: &str, bytes: u64) {
        self.field(name, bytes);
        self.field(&format!("{name}_human"), human(bytes));
    }
}

/// Fields of missing features.
fn zeros(text: &mut Text, names: &[&str]) {
    names.iter().for_each(|name| text.field(name, 0));
}

fn server(text: &mut Text, facts: &Facts<'_>) {
    let up = facts.server.started.elapsed().as_secs();
    text.field("redis_version", REDIS_VERSION);
    text.field("redis_git_sha1", "00000000");
    text.field("redis_git_dirty", 0);
    text.field("redis_build_id", "0");
    text.field("redis_mode", "standalone");
    text.field("server_name", "duramen");
    text.field("duramen_version", env!("CARGO_PKG_VERSION"));
    text.field("os", &facts.process.system);
    text.field("arch_bits", usize::BITS);
    text.field("monotonic_clock", "POSIX clock_gettime");
    text.field("multiplexing_api", "epoll");
    text.field("process_id", std::process::id());
    text.field(
        "process_supervised",
        if std::env::var_os("NOTIFY_SOCKET").is_some() { "systemd" } else { "no" },
    );
    text.field("run_id", &facts.server.run_id);
    text.field("tcp_port", facts.config.port);
    text.field("server_time_usec", facts.now * 1000);
    text.field("uptime_in_seconds", up);
    text.field("uptime_in_days", up / 86_400);
    text.field("hz", 10);
    text.field("configured_hz", 10);
    // 24 bits of seconds, as Redis keeps them.
    text.field("lru_clock", unix_seconds() & 0xff_ffff);
    text.field("executable", &facts.process.executable);
    text.field(
        "config_file",
        facts.config.file.as_ref().map_or_else(String::new, |file| file.display().to_string()),
    );
    text.field("io_threads_active", 0);
    text.field("worker_threads", facts.server.inboxes.len());
}

fn clients(text: &mut Text, facts: &Facts<'_>) {
    text.field("connected_clients", facts.server.clients.count());
    text.field("cluster_connections", 0);
    text.field("maxclients", facts.config.maxclients);
    text.field("client_recent_max_input_buffer", facts.totals.input_bytes_max);
    text.field("client_recent_max_output_buffer", facts.totals.output_bytes_max);
    let paused =
        facts.server.clients.list().iter().filter(|client| client.paused.load(Ordering::Relaxed)).count();
    text.field("blocked_clients", paused);
    text.field("tracking_clients", facts.server.tracking.clients_count());
    text.field("clients_in_timeout_table", 0);
    let (keys, may_go) = facts.server.waiting.keys_count();
    text.field("total_blocking_keys", keys);
    text.field("total_blocking_keys_on_nokey", may_go);
}

fn memory(text: &mut Text, facts: &Facts<'_>) {
    let process = &facts.process;
    // The space that `maxmemory` limits: so alerts on their ratio are right.
    let (stored, most) = (facts.store.used_bytes, facts.server.used_bytes_max(facts.store.used_bytes));
    text.bytes("used_memory", stored);
    text.bytes("used_memory_rss", process.resident_bytes);
    text.bytes("used_memory_peak", most);
    text.field("used_memory_peak_perc", percent(stored, most));
    text.field("used_memory_overhead", facts.store.index_bytes);
    text.field("used_memory_startup", 0);
    text.field("used_memory_dataset", facts.store.live_bytes);
    text.field("used_memory_dataset_perc", percent(facts.store.live_bytes, facts.store.used_bytes));
    text.bytes("total_system_memory", process.system_bytes);
    let (used, resident) = (process.anonymous_bytes, process.resident_bytes);
    for name in ["allocator_allocated", "allocator_active"] {
        text.field(name, used);
    }
    text.field("allocator_resident", resident);
    for name in ["lua", "vm_total", "scripts"] {
        text.bytes(&format!("used_memory_{name}"), 0);
    }
    let (scripts, scripts_bytes) = facts.server.scripts.count();
    text.field("used_memory_vm_eval", 0);
    text.field("used_memory_scripts_eval", scripts_bytes);
    text.field("number_of_cached_scripts", scripts);
    let (libraries, functions) = facts.server.libraries.counts();
    text.field("number_of_functions", functions);
    text.field("number_of_libraries", libraries);
    zeros(text, &["used_memory_vm_functions", "used_memory_functions"]);
    text.bytes("maxmemory", facts.config.maxmemory);
    text.field("maxmemory_policy", facts.config.policy().name());
    text.field("allocator_frag_ratio", ratio(used, used));
    text.field("allocator_frag_bytes", 0);
    text.field("allocator_rss_ratio", ratio(resident, used));
    text.field("allocator_rss_bytes", resident as i64 - used as i64);
    text.field("rss_overhead_ratio", ratio(resident, resident));
    text.field("rss_overhead_bytes", 0);
    text.field("mem_fragmentation_ratio", ratio(process.resident_bytes, process.anonymous_bytes));
    text.field("mem_fragmentation_bytes", process.resident_bytes as i64 - process.anonymous_bytes as i64);
    text.field("mem_not_counted_for_evict", 0);
    zeros(text, &["mem_replication_backlog", "mem_total_replication_buffers", "mem_clients_slaves"]);
    let waiting: u64 = facts.server.clients.list().iter().map(|client| client.buffered()).sum();
    text.field("mem_clients_normal", waiting);
    zeros(text, &["mem_cluster_links", "mem_aof_buffer"]);
    text.field("mem_allocator", "system");
    text.field("active_defrag_running", 0);
    text.field("lazyfree_pending_objects", 0);
    text.field("lazyfreed_objects", facts.totals.lazyfreed);
}

fn persistence(text: &mut Text, facts: &Facts<'_>) {
    text.field("loading", 0);
    text.field("async_loading", 0);
    zeros(text, &["current_cow_peak", "current_cow_size", "current_cow_size_age"]);
    text.field("current_fork_perc", "0.00");
    zeros(text, &["current_save_keys_processed", "current_save_keys_total"]);
    // Changes since the file that SAVE writes; the epochs show which writes are not yet safe from power loss.
    text.field("rdb_changes_since_last_save", facts.server.changes_since_save());
    text.field("rdb_bgsave_in_progress", 0);
    text.field("rdb_last_save_time", facts.server.saved_at.load(Ordering::Relaxed));
    text.field("rdb_last_bgsave_status", "ok");
    text.field("rdb_last_bgsave_time_sec", -1);
    text.field("rdb_current_bgsave_time_sec", -1);
    zeros(text, &["rdb_last_cow_size", "rdb_last_load_keys_expired", "rdb_last_load_keys_loaded"]);
    text.field("aof_enabled", 1);
    text.field("aof_rewrite_in_progress", 0);
    text.field("aof_rewrite_scheduled", 0);
    text.field("aof_last_rewrite_time_sec", -1);
    text.field("aof_current_rewrite_time_sec", -1);
    text.field("aof_last_bgrewrite_status", "ok");
    let writable = facts.server.keyspace.store().check_writable().is_ok();
    text.field("aof_last_write_status", if writable { "ok" } else { "err" });
    zeros(text, &["aof_rewrites", "aof_rewrites_consecutive_failures", "aof_last_cow_size"]);
    zeros(text, &["module_fork_in_progress", "module_fork_last_cow_size"]);
    text.field("aof_current_size", facts.store.used_bytes);
    text.field("aof_base_size", facts.store.live_bytes);
}

fn stats(text: &mut Text, facts: &Facts<'_>) {
    let totals = &facts.totals;
    let (accepted, rejected) = facts.server.clients.history();
    let rates = facts.server.rates();
    text.field("total_connections_received", accepted);
    text.field("total_commands_processed", totals.commands_processed);
    text.field("instantaneous_ops_per_sec", rates.commands);
    text.field("total_net_input_bytes", totals.input_bytes);
    text.field("total_net_output_bytes", totals.output_bytes);
    text.field("total_net_repl_input_bytes", 0);
    text.field("total_net_repl_output_bytes", 0);
    text.field("instantaneous_input_kbps", format_args!("{:.2}", rates.input_bytes as f64 / 1024.0));
    text.field("instantaneous_output_kbps", format_args!("{:.2}", rates.output_bytes as f64 / 1024.0));
    text.field("instantaneous_input_repl_kbps", "0.00");
    text.field("instantaneous_output_repl_kbps", "0.00");
    text.field("rejected_connections", rejected);
    zeros(text, &["sync_full", "sync_partial_ok", "sync_partial_err"]);
    let (expired, evicted) = facts.server.removed(&facts.store);
    text.field("expired_subkeys", totals.expired_fields);
    text.field("expired_keys", expired);
    text.field("evicted_keys", evicted);
    text.field("expired_stale_perc", "0.00");
    zeros(text, &["expired_time_cap_reached_count", "expire_cycle_cpu_milliseconds"]);
    text.field("evicted_clients", totals.evicted_clients);
    zeros(text, &["total_eviction_exceeded_time", "current_eviction_exceeded_time"]);
    text.field("keyspace_hits", totals.keyspace_hits);
    text.field("keyspace_misses", totals.keyspace_misses);
    text.field("pubsub_channels", facts.server.subscriptions.names_count(Kind::Channel));
    text.field("pubsub_patterns", facts.server.subscriptions.names_count(Kind::Pattern));
    text.field("pubsubshard_channels", facts.server.subscriptions.names_count(Kind::Shard));
    text.field("latest_fork_usec", 0);
    text.field("total_forks", 0);
    text.field("migrate_cached_sockets", 0);
    text.field("slave_expires_tracked_keys", 0);
    zeros(
        text,
        &["active_defrag_hits", "active_defrag_misses", "active_defrag_key_hits", "active_defrag_key_misses"],
    );
    zeros(text, &["total_active_defrag_time", "current_active_defrag_time"]);
    zeros(text, &["unexpected_error_replies", "dump_payload_sanitizations"]);
    let (keys, items, prefixes) = facts.server.tracking.sizes();
    text.field("tracking_total_keys", keys);
    text.field("tracking_total_items", items);
    text.field("tracking_total_prefixes", prefixes);
    text.field("acl_access_denied_auth", totals.errors.get("WRONGPASS").copied().unwrap_or(0));
    zeros(text, &["acl_access_denied_cmd", "acl_access_denied_key", "acl_access_denied_channel"]);
    text.field("total_error_replies", totals.error_replies);
    text.field("total_reads_processed", totals.reads);
    text.field("total_writes_processed", totals.writes);
    zeros(text, &["io_threaded_reads_processed", "io_threaded_writes_processed"]);
    zeros(text, &["reply_buffer_shrinks", "reply_buffer_expands"]);
    text.field("client_query_buffer_limit_disconnections", totals.query_limit_disconnections);
    text.field("client_output_buffer_limit_disconnections", totals.output_limit_disconnections);
    text.field("total_event_loop_turns", totals.turns);
    text.field("total_commands_repeated", totals.repeated);
}

fn replication(text: &mut Text, facts: &Facts<'_>) {
    text.field("role", "master");
    text.field("connected_slaves", 0);
    text.field("master_failover_state", "no-failover");
    text.field("master_replid", &facts.server.run_id);
    text.field("master_replid2", "0".repeat(40));
    text.field("master_repl_offset", 0);
    text.field("second_repl_offset", -1);
    text.field("repl_backlog_active", 0);
    text.field("repl_backlog_size", 0);
    text.field("repl_backlog_first_byte_offset", 0);
    text.field("repl_backlog_histlen", 0);
}

fn cpu(text: &mut Text, facts: &Facts<'_>) {
    text.field("used_cpu_sys", format_args!("{:.6}", facts.process.system_seconds));
    text.field("used_cpu_user", format_args!("{:.6}", facts.process.user_seconds));
    text.field("used_cpu_sys_children", "0.000000");
    text.field("used_cpu_user_children", "0.000000");
}

fn commandstats(text: &mut Text, facts: &Facts<'_>) {
    for (index, command) in facts.totals.commands.iter().enumerate() {
        if command.calls + command.rejected == 0 {
            continue;
        }
        let Some(entry) = facts.table.at(index) else { continue };
        let micros = command.nanos / 1000;
        let per_call = if command.calls == 0 { 0.0 } else { micros as f64 / command.calls as f64 };
        text.line(format_args!(
            "cmdstat_{}:calls={},usec={micros},usec_per_call={per_call:.2},rejected_calls={},failed_calls={}",
            entry.spec.name, command.calls, command.rejected, command.failed
        ));
    }
}

/// Percentiles of each command that ran, in microseconds.
fn latencystats(text: &mut Text, facts: &Facts<'_>) {
    for entry in facts.table.all() {
        let sums = facts.server.histogram(entry.index);
        let percentiles = &facts.config.latency_tracking_info_percentiles;
        if sums.total() == 0 {
            continue;
        }
        let of = |percent: &f64| format!("p{percent}={:.3}", sums.percentile(*percent) as f64 / 1000.0);
        let all: Vec<String> = percentiles.iter().map(of).collect();
        text.field(&format!("latency_percentiles_usec_{}", entry.spec.name), all.join(","));
    }
}

fn errorstats(text: &mut Text, facts: &Facts<'_>) {
    for (code, count) in &facts.totals.errors {
        text.line(format_args!("errorstat_{code}:count={count}"));
    }
}

fn duramen(text: &mut Text, facts: &Facts<'_>) {
    let store = &facts.store;
    text.field("duramen_store", facts.server.keyspace.store().describe());
    text.field("duramen_index", facts.config.index);
    text.field("duramen_durability", crate::config::value::durability_text(facts.config.durability));
    for (name, told) in facts.server.hosted_jobs.all() {
        text.field(&format!("duramen_job_{name}"), told);
    }
    for (name, value) in [
        ("memory_bytes", facts.process.anonymous_bytes),
        ("store_deleted", u64::from(facts.server.is_store_deleted())),
        ("keys", store.keys),
        ("medium_bytes", store.medium_bytes),
        ("given_back_bytes", store.given_back_bytes),
        ("used_bytes", store.used_bytes),
        ("live_bytes", store.live_bytes),
        ("free_bytes", store.free_bytes),
        ("index_bytes", store.index_bytes),
        ("index_pages_left", store.index_pages_left),
        ("damaged_blocks", store.damaged_blocks),
        ("unverified_bytes", store.unverified_bytes),
        ("index_cache_hits", store.index_cache_hits),
        ("index_cache_misses", store.index_cache_misses),
        ("index_key_waits", store.index_key_waits),
        ("index_leaf_waits", store.index_leaf_waits),
        ("writers", store.writers),
        ("checkpoints", store.checkpoints),
        ("checkpoint_bytes", store.checkpoint_bytes),
        ("compactions", store.compactions),
        ("compacted_bytes", store.compacted_bytes),
        ("written_bytes", store.written_bytes),
        ("epoch", store.epoch),
        ("epoch_committed", store.epoch_committed),
        ("recovered_records", store.recovered_records),
        ("recovery_nanos", store.recovery_nanos),
    ] {
        text.field(&format!("duramen_{name}"), value);
    }
}

/// Where memcached's protocols are not spoken, nothing.
fn memcached(text: &mut Text, facts: &Facts<'_>) {
    let Some(shared) = &facts.server.memcached else { return };
    text.field("memcached_port", facts.config.memcached);
    text.field("memcached_items", facts.server.keyspace.keys(shared.db, facts.now));
    for (name, sum) in COUNTER_NAMES.iter().zip(shared.counters.sums()) {
        text.field(&format!("memcached_{name}"), sum);
    }
}

fn keyspace(text: &mut Text, facts: &Facts<'_>) {
    for (db, count) in facts.databases.iter().enumerate() {
        if count.keys > 0 {
            let KeyCount { keys, expires } = count;
            let ttl = match expires {
                0 => 0,
                _ => facts.server.keyspace.ttl_average(db as u8, unix_millis()),
            };
            text.line(format_args!("db{db}:keys={keys},expires={expires},avg_ttl={ttl}"));
        }
    }
}

/// As Redis writes bytes for people.
fn human(bytes: u64) -> String {
    let unit = |power: u32| bytes as f64 / 1024f64.powi(power as i32);
    match bytes {
        0..1024 => format!("{bytes}B"),
        1024..0x10_0000 => format!("{:.2}K", unit(1)),
        0x10_0000..0x4000_0000 => format!("{:.2}M", unit(2)),
        0x4000_0000..0x100_0000_0000 => format!("{:.2}G", unit(3)),
        _ => format!("{:.2}T", unit(4)),
    }
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.2}%", if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 })
}

fn ratio(part: u64, whole: u64) -> String {
    format!("{:.2}", if whole == 0 { 0.0 } else { part as f64 / whole as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_redis_writes_them() {
        for (bytes, wanted) in [
            (0, "0B"),
            (1023, "1023B"),
            (916_968, "895.48K"),
            (6_856_704, "6.54M"),
            (25_276_502_016, "23.54G"),
        ] {
            assert_eq!(human(bytes), wanted);
        }
    }
}

//! The output of `stats`: names and order are memcached's; values without a meaning here are 0.

use super::clock::Now;
use super::counters::{Count, NAMES};
use super::line::Words;
use super::listing;
use super::request::{Request, VERSION};
use crate::clients::unix_seconds;
use crate::observe::process;
use std::fmt::Display;
use std::sync::atomic::Ordering::Relaxed;

/// Names and values.
pub struct Stats(pub Vec<(String, String)>);

/// The subjects of `stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Without a word.
    General,
    /// `settings`
    Settings,
    /// `items`
    Items,
    /// `slabs`
    Slabs,
    /// `sizes`
    Sizes,
    /// `conns`
    Connections,
}

impl Subject {
    /// The subject that a word names.
    pub fn of(word: &[u8]) -> Option<Self> {
        Some(match word {
            b"" => Self::General,
            b"settings" => Self::Settings,
            b"items" => Self::Items,
            b"slabs" => Self::Slabs,
            b"sizes" => Self::Sizes,
            b"conns" => Self::Connections,
            _ => return None,
        })
    }
}

/// `stats …`
pub fn command(request: &mut Request<'_>, words: &Words<'_>) {
    if let Some(subject) = Subject::of(words.at(1)) {
        let stats = stats_of(request, subject);
        for (name, value) in stats.0 {
            request.line(format!("STAT {name} {value}").as_bytes());
        }
        return request.line(b"END");
    }
    match words.at(1) {
        b"reset" => {
            request.items.shared.counters.reset();
            request.line(b"RESET");
        }
        // Sizes are not kept by class, nor counts by prefix.
        b"sizes_enable" => request.line(b"STAT sizes_status error\r\nSTAT sizes_error not_supported"),
        b"sizes_disable" => request.line(b"STAT sizes_status disabled"),
        b"detail" if matches!(words.at(2), b"on" | b"off") => request.line(b"OK"),
        b"detail" if words.at(2) == b"dump" => request.line(b"END"),
        b"detail" => request.line(b"CLIENT_ERROR usage: stats detail on|off|dump"),
        b"cachedump" => listing::cachedump(request, words),
        _ => request.line(b"ERROR"),
    }
}

/// All values of a subject.
pub fn stats_of(request: &Request<'_>, subject: Subject) -> Stats {
    let mut stats = Stats(Vec::new());
    match subject {
        Subject::General => general(request, &mut stats),
        Subject::Settings => settings(request, &mut stats),
        Subject::Items => items(request, &mut stats),
        Subject::Slabs => slabs(request, &mut stats),
        Subject::Sizes => stats.add("sizes_status", "disabled"),
        Subject::Connections => connections(request, &mut stats),
    }
    stats
}

impl Stats {
    fn add(&mut self, name: impl Into<String>, value: impl Display) {
        self.0.push((name.into(), value.to_string()));
    }

    fn zeros(&mut self, names: &[&str]) {
        names.iter().for_each(|name| self.add(*name, 0));
    }
}

fn general(request: &Request<'_>, stats: &mut Stats) {
    let server = request.server;
    let process = process::read();
    let totals = server.totals();
    let sums = request.items.shared.counters.sums();
    let (accepted, rejected) = server.clients.history();
    stats.add("pid", std::process::id());
    stats.add("uptime", server.started.elapsed().as_secs());
    stats.add("time", unix_seconds());
    stats.add("version", VERSION);
    stats.add("duramen_version", env!("CARGO_PKG_VERSION"));
    stats.add("pointer_size", usize::BITS);
    stats.add("rusage_user", format_args!("{:.6}", process.user_seconds));
    stats.add("rusage_system", format_args!("{:.6}", process.system_seconds));
    stats.add("max_connections", request.config.maxclients);
    stats.add("curr_connections", server.clients.count());
    stats.add("total_connections", accepted);
    stats.add("rejected_connections", rejected);
    stats.add("connection_structures", server.clients.count());
    stats.zeros(&["response_obj_oom", "response_obj_count", "response_obj_bytes", "read_buf_count"]);
    stats.zeros(&["read_buf_bytes", "read_buf_bytes_free", "read_buf_oom", "reserved_fds"]);
    for (name, sum) in NAMES.iter().zip(sums) {
        if *name == "total_items" {
            continue;
        }
        stats.add(*name, sum);
        if *name == "get_misses" {
            stats.zeros(&["get_expired", "get_flushed"]);
        }
    }
    stats.add("bytes_read", totals.input_bytes);
    stats.add("bytes_written", totals.output_bytes);
    stats.add("limit_maxbytes", request.config.maxmemory);
    stats.add("accepting_conns", 1);
    stats.zeros(&["listen_disabled_num", "time_in_listen_disabled_us"]);
    stats.add("threads", server.inboxes.len());
    stats.zeros(&["conn_yields", "hash_power_level"]);
    let store = server.keyspace.store().stats();
    stats.add("hash_bytes", store.index_bytes);
    stats.zeros(&["hash_is_expanding", "malloc_fails", "log_worker_dropped", "log_worker_written"]);
    stats.zeros(&["log_watcher_skipped", "log_watcher_sent", "log_watchers"]);
    stats.zeros(&["unexpected_napi_ids", "round_robin_fallback"]);
    stats.add("bytes", store.live_bytes);
    stats.add("curr_items", keys(request));
    stats.add("total_items", sums[Count::TotalItems as usize]);
    stats.zeros(&["slab_global_page_pool", "expired_unfetched"]);
    let evictions = request.items.shared.counters.evictions();
    stats.add("evicted_unfetched", evictions.unfetched);
    stats.add("evicted_active", evictions.active);
    stats.add("evictions", evictions.all);
    stats.zeros(&["reclaimed", "crawler_reclaimed", "crawler_items_checked"]);
    stats.zeros(&["lrutail_reflocked", "direct_reclaims"]);
}

fn settings(request: &Request<'_>, stats: &mut Stats) {
    let config = request.config;
    let yes_no = |is_on: bool| if is_on { "yes" } else { "no" };
    let or_null = |text: &str| if text.is_empty() { "NULL".to_owned() } else { text.to_owned() };
    let bind = if config.memcached_bind.is_empty() { &config.bind } else { &config.memcached_bind };
    stats.add("maxbytes", config.maxmemory);
    stats.add("maxconns", config.maxclients);
    stats.add("tcpport", config.memcached);
    stats.add("udpport", 0);
    stats.add("inter", or_null(&bind.join(",")));
    stats.add("verbosity", request.items.shared.verbosity.load(Relaxed));
    stats.add("oldest", request.items.shared.flushes_at().unwrap_or(0));
    let evicts = config.policy().eviction().is_some();
    stats.add("evictions", if evicts { "on" } else { "off" });
    stats.add("domain_socket", or_null(&config.memcached_socket));
    stats.add("umask", format_args!("{:o}", config.unixsocketperm));
    stats.add("shutdown_command", yes_no(config.memcached_enable_shutdown));
    stats.add("num_threads", request.server.inboxes.len());
    stats.add("stat_key_prefix", ":");
    stats.add("detail_enabled", "no");
    stats.add("cas_enabled", "yes");
    stats.add("tcp_backlog", config.tcp_backlog);
    stats.add("binding_protocol", "auto-negotiate");
    let has_password = yes_no(!request.server.users.is_open());
    stats.add("auth_enabled_sasl", has_password);
    stats.add("auth_enabled_ascii", has_password);
    stats.add("item_size_max", request.items.bytes_max);
    stats.add("maxconns_fast", "yes");
    stats.add("slab_reassign", "no");
    stats.add("slab_automove", 0);
    stats.add("lru_crawler", "no");
    stats.add("flush_enabled", "yes");
    stats.add("dump_enabled", "yes");
    stats.add("lru_maintainer_thread", "no");
    stats.add("lru_segmented", "no");
    stats.add("idle_timeout", config.timeout);
    stats.add("track_sizes", "no");
    stats.add("inline_ascii_response", "no");
    stats.add("duramen_durability", crate::config::value::durability_text(config.durability));
    let db = config.memcached_database.map_or_else(|| "own".to_owned(), |db| db.to_string());
    stats.add("duramen_database", db);
}

/// All items are of one class: there are no others.
fn items(request: &Request<'_>, stats: &mut Stats) {
    let count = keys(request);
    if count > 0 {
        stats.add("items:1:number", count);
        let evicted = request.items.shared.counters.evictions().all;
        for name in ["age", "mem_requested", "evicted", "evicted_nonzero", "evicted_time", "outofmemory"] {
            stats.add(format!("items:1:{name}"), if name == "evicted" { evicted } else { 0 });
        }
    }
}

fn slabs(request: &Request<'_>, stats: &mut Stats) {
    let store = request.server.keyspace.store().stats();
    stats.add("active_slabs", 0);
    stats.add("total_malloced", store.used_bytes);
}

fn connections(request: &Request<'_>, stats: &mut Stats) {
    let now = unix_seconds();
    for client in request.server.clients.list() {
        let (number, network) = (client.descriptor, if client.unix { "unix" } else { "tcp" });
        stats.add(format!("{number}:addr"), format_args!("{network}:{}", client.address));
        stats.add(format!("{number}:listen_addr"), format_args!("{network}:{}", client.address_local));
        stats.add(format!("{number}:state"), "conn_new_cmd");
        let active = client.active_at.load(Relaxed);
        stats.add(format!("{number}:secs_since_last_cmd"), now.saturating_sub(active));
    }
}

/// How many items there are.
fn keys(request: &Request<'_>) -> u64 {
    let Now { millis, .. } = request.items.now;
    request.server.keyspace.keys(request.items.shared.db, millis)
}

/// The slab class in which memcached would keep an item of this size.
pub fn slab_class(bytes: u64, bytes_max: u64) -> u64 {
    const CLASSES_MAX: u64 = 63;
    const FACTOR: f64 = 1.25;
    const ITEM_HEADER_BYTES: u64 = 48;
    const CHUNK_BYTES_MIN: u64 = 48;
    let chunk_max = bytes_max / 2;
    let (mut class, mut size) = (1, ITEM_HEADER_BYTES + CHUNK_BYTES_MIN);
    while class < CLASSES_MAX && (size as f64) <= chunk_max as f64 / FACTOR {
        size = size.next_multiple_of(8);
        if bytes <= size {
            return class;
        }
        size = (size as f64 * FACTOR) as u64;
        class += 1;
    }
    class
}

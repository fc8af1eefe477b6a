//! All families, by the sections of docs/metrics.md, and the fields of INFO that are none.

mod clients;
mod commands;
mod jobs;
mod memcached;
mod process;
mod store;

use super::facts::{Facts, ServerFacts};
use super::family::{Family, Kind, Number, Samples, Source};
use crate::hosted_jobs::JobReport;

/// All families.
pub const TABLE: &[(&str, &[Family])] = &[
    ("The process", process::FAMILIES),
    ("Clients", clients::FAMILIES),
    ("Commands and keys", commands::FAMILIES),
    ("The medium, space and memory", store::SPACE),
    ("The engine in the background", store::ENGINE),
    ("memcached", memcached::FAMILIES),
    ("Jobs of SQL", jobs::FAMILIES),
];

/// All families.
pub fn families() -> impl Iterator<Item = &'static Family> {
    TABLE.iter().flat_map(|(_, families)| *families)
}

/// Numbers of INFO that no family has, by the reason. A star stands for any letters.
pub const NOT_EXPORTED: &[(&str, &[&str])] = &[
    (
        "it tells which build and process this is, or what it was configured with",
        &[
            "redis_git_sha1",
            "redis_git_dirty",
            "redis_build_id",
            "arch_bits",
            "process_id",
            "run_id",
            "master_replid",
            "tcp_port",
            "memcached_port",
            "hz",
            "configured_hz",
        ],
    ),
    ("it is the time of the question", &["server_time_usec", "lru_clock"]),
    (
        "a query computes it from other families",
        &[
            "instantaneous_*",
            "allocator_frag_ratio",
            "allocator_frag_bytes",
            "allocator_rss_ratio",
            "allocator_rss_bytes",
            "rss_overhead_ratio",
            "rss_overhead_bytes",
            "mem_fragmentation_ratio",
            "mem_fragmentation_bytes",
            "latency_percentiles_usec_*",
        ],
    ),
    (
        "it is of a feature that Redis has and Duramen has not, and always the same",
        &[
            "io_threads_active",
            "io_threaded_*",
            "cluster_*",
            "clients_in_timeout_table",
            "used_memory_startup",
            "used_memory_lua",
            "used_memory_vm_*",
            "used_memory_scripts",
            "used_memory_functions",
            "mem_not_counted_for_evict",
            "mem_replication_backlog",
            "mem_total_replication_buffers",
            "mem_clients_slaves",
            "mem_cluster_links",
            "mem_aof_buffer",
            "*active_defrag*",
            "lazyfree_pending_objects",
            "loading",
            "async_loading",
            "current_*",
            "rdb_bgsave_in_progress",
            "rdb_last_bgsave_time_sec",
            "rdb_current_bgsave_time_sec",
            "rdb_last_cow_size",
            "rdb_last_load_*",
            "aof_enabled",
            "aof_rewrite*",
            "aof_last_rewrite_time_sec",
            "aof_current_rewrite_time_sec",
            "aof_last_cow_size",
            "module_fork_*",
            "total_net_repl_*",
            "sync_*",
            "expired_stale_perc",
            "expired_time_cap_reached_count",
            "expire_cycle_cpu_milliseconds",
            "total_eviction_exceeded_time",
            "latest_fork_usec",
            "total_forks",
            "migrate_cached_sockets",
            "slave_expires_tracked_keys",
            "unexpected_error_replies",
            "dump_payload_sanitizations",
            "acl_access_denied_cmd",
            "acl_access_denied_key",
            "acl_access_denied_channel",
            "reply_buffer_*",
            "connected_slaves",
            "master_replid2",
            "master_repl_offset",
            "second_repl_offset",
            "repl_backlog_*",
            "used_cpu_*_children",
        ],
    ),
];

const fn process(
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    info: &'static [&'static str],
    help: &'static str,
    collect: fn(&Facts, &mut Samples),
) -> Family {
    Family { name, kind, labels, help, info, source: Source::Process(collect) }
}

const fn server(
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    info: &'static [&'static str],
    help: &'static str,
    collect: fn(&ServerFacts<'_>, &mut Samples),
) -> Family {
    Family { name, kind, labels, help, info, source: Source::Server(collect) }
}

const fn job(
    name: &'static str,
    kind: Kind,
    help: &'static str,
    number: fn(&JobReport) -> Option<Number>,
) -> Family {
    Family { name, kind, labels: &["sql_job"], help, info: &["duramen_job_*"], source: Source::Job(number) }
}

/// Whether a name has the letters of a pattern, in which a star stands for any.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((begin, rest)) => name.strip_prefix(begin).is_some_and(|name| {
            (0..=name.len()).filter(|at| name.is_char_boundary(*at)).any(|at| matches(rest, &name[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_follow_the_rules_of_prometheus() {
        let mut names = BTreeSet::new();
        for family in families() {
            let name = family.name;
            assert!(names.insert(family.sample_name()), "{name} twice");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            for end in
                ["_total", "_sum", "_count", "_bucket", "_created", "_info", "_micros", "_millis", "_nanos"]
            {
                assert!(!name.ends_with(end), "{name} ends in {end}");
            }
            let help = family.help;
            assert!(
                help.ends_with('.') && help.is_ascii() && !help.contains(['\n', '\\', '|']),
                "{name}: {help}"
            );
            assert!(family.kind != Kind::Histogram || family.unit() == Some("seconds"), "{name}");
        }
    }

    #[test]
    fn a_star_stands_for_any_letters() {
        for (pattern, name, wanted) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "ab", true),
            ("*a*", "bab", true),
            ("used_*_children", "used_cpu_children", true),
            ("used_*_children", "used_cpu", false),
        ] {
            assert_eq!(matches(pattern, name), wanted, "{pattern} {name}");
        }
    }
}

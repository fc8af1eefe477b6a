//! Redis's directives without an effect here. They have Redis's default values, and most can be set, because clients
//! and tools set them.
//!
//! An [`Inert::Fixed`] directive cannot be set: a user who sets it would rely on an effect that does not exist.

use super::{Config, value};
use std::collections::HashMap;
use std::sync::OnceLock;

/// The values that may be set.
#[derive(Clone, Copy, Debug)]
pub enum Inert {
    /// Nothing.
    Fixed,
    /// `yes` or `no`.
    YesNo,
    /// An integer within bounds.
    Integer(i64, i64),
    /// Bytes.
    Bytes,
    /// One of these.
    Word(&'static [&'static str]),
    /// Anything.
    Text,
}

/// Their names, default values and allowed values. Names with `slave` are older names of those with `replica`.
pub const INERT: &[(&str, &str, Inert)] = {
    use Inert::{Bytes, Fixed, Integer, Text, Word, YesNo};
    &[
        ("active-defrag-cycle-max", "25", Integer(1, 99)),
        ("active-defrag-cycle-min", "1", Integer(1, 99)),
        ("active-defrag-ignore-bytes", "104857600", Bytes),
        ("active-defrag-max-scan-fields", "1000", Integer(1, 9223372036854775807)),
        ("active-defrag-threshold-lower", "10", Integer(0, 1000)),
        ("active-defrag-threshold-upper", "100", Integer(0, 1000)),
        ("active-expire-effort", "1", Integer(1, 10)),
        ("activedefrag", "no", YesNo),
        ("activerehashing", "yes", YesNo),
        ("always-show-logo", "no", Fixed),
        ("aof-disable-auto-gc", "no", YesNo),
        ("aof-load-truncated", "yes", YesNo),
        ("aof-rewrite-incremental-fsync", "yes", YesNo),
        ("aof-timestamp-enabled", "no", YesNo),
        ("aof-use-rdb-preamble", "yes", YesNo),
        ("aof_rewrite_cpulist", "", Fixed),
        ("appenddirname", "appendonlydir", Fixed),
        ("appendfilename", "appendonly.aof", Fixed),
        ("auto-aof-rewrite-min-size", "67108864", Bytes),
        ("auto-aof-rewrite-percentage", "100", Integer(0, 2147483647)),
        ("bgsave_cpulist", "", Fixed),
        ("bind-source-addr", "", Text),
        ("bio_cpulist", "", Fixed),
        ("cluster-allow-pubsubshard-when-down", "yes", YesNo),
        ("cluster-allow-reads-when-down", "no", YesNo),
        ("cluster-allow-replica-migration", "yes", YesNo),
        ("cluster-announce-bus-port", "0", Integer(0, 65535)),
        ("cluster-announce-hostname", "", Text),
        ("cluster-announce-ip", "", Text),
        ("cluster-announce-port", "0", Integer(0, 65535)),
        ("cluster-announce-tls-port", "0", Integer(0, 65535)),
        ("cluster-config-file", "nodes.conf", Fixed),
        ("cluster-enabled", "no", Fixed),
        ("cluster-link-sendbuf-limit", "0", Bytes),
        ("cluster-migration-barrier", "1", Integer(0, 2147483647)),
        ("cluster-node-timeout", "15000", Integer(0, 9223372036854775807)),
        ("cluster-port", "0", Fixed),
        ("cluster-preferred-endpoint-type", "ip", Word(&["ip", "hostname", "unknown-endpoint"])),
        ("cluster-replica-no-failover", "no", YesNo),
        ("cluster-replica-validity-factor", "10", Integer(0, 2147483647)),
        ("cluster-require-full-coverage", "yes", YesNo),
        ("cluster-slave-no-failover", "no", YesNo),
        ("cluster-slave-validity-factor", "10", Integer(0, 2147483647)),
        ("crash-log-enabled", "yes", YesNo),
        ("crash-memcheck-enabled", "yes", YesNo),
        ("daemonize", "no", Fixed),
        ("disable-thp", "yes", Fixed),
        ("dynamic-hz", "yes", YesNo),
        ("enable-module-command", "no", Fixed),
        ("enable-protected-configs", "no", Fixed),
        ("hz", "10", Integer(0, 2147483647)),
        ("ignore-warnings", "", Text),
        ("io-threads", "1", Fixed),
        ("io-threads-do-reads", "no", Fixed),
        ("jemalloc-bg-thread", "yes", YesNo),
        ("lazyfree-lazy-eviction", "no", YesNo),
        ("lazyfree-lazy-expire", "no", YesNo),
        ("lazyfree-lazy-server-del", "no", YesNo),
        ("lazyfree-lazy-user-del", "no", YesNo),
        ("lazyfree-lazy-user-flush", "no", YesNo),
        ("lfu-decay-time", "1", Fixed),
        ("lfu-log-factor", "10", Fixed),
        ("list-compress-depth", "0", Integer(0, 2147483647)),
        ("list-max-listpack-size", "-2", Integer(-2147483648, 2147483647)),
        ("list-max-ziplist-size", "-2", Integer(-2147483648, 2147483647)),
        ("locale-collate", "", Text),
        ("masterauth", "", Fixed),
        ("masteruser", "", Fixed),
        ("maxmemory-eviction-tenacity", "10", Integer(0, 100)),
        ("maxmemory-samples", "5", Integer(1, 2147483647)),
        ("min-replicas-max-lag", "10", Integer(0, 2147483647)),
        ("min-replicas-to-write", "0", Fixed),
        ("min-slaves-max-lag", "10", Integer(0, 2147483647)),
        ("min-slaves-to-write", "0", Fixed),
        ("no-appendfsync-on-rewrite", "no", YesNo),
        ("oom-score-adj", "no", Word(&["no", "yes", "relative", "absolute"])),
        ("oom-score-adj-values", "0 200 800", Text),
        ("proc-title-template", "{title} {listen-addr} {server-mode}", Text),
        ("propagation-error-behavior", "ignore", Word(&["ignore", "panic", "panic-on-replicas"])),
        ("rdb-del-sync-files", "no", YesNo),
        ("rdb-save-incremental-fsync", "yes", YesNo),
        ("rdbchecksum", "yes", Fixed),
        ("rdbcompression", "yes", YesNo),
        ("repl-backlog-size", "1048576", Bytes),
        ("repl-backlog-ttl", "3600", Integer(0, 9223372036854775807)),
        ("repl-disable-tcp-nodelay", "no", YesNo),
        ("repl-diskless-load", "disabled", Word(&["disabled", "on-empty-db", "swapdb"])),
        ("repl-diskless-sync", "yes", YesNo),
        ("repl-diskless-sync-delay", "5", Integer(0, 2147483647)),
        ("repl-diskless-sync-max-replicas", "0", Integer(0, 2147483647)),
        ("repl-ping-replica-period", "10", Integer(1, 2147483647)),
        ("repl-ping-slave-period", "10", Integer(1, 2147483647)),
        ("repl-timeout", "60", Integer(1, 2147483647)),
        ("replica-announce-ip", "", Text),
        ("replica-announce-port", "0", Integer(0, 65535)),
        ("replica-announced", "yes", YesNo),
        ("replica-ignore-disk-write-errors", "no", YesNo),
        ("replica-ignore-maxmemory", "yes", YesNo),
        ("replica-lazy-flush", "no", YesNo),
        ("replica-priority", "100", Integer(0, 2147483647)),
        ("replica-read-only", "yes", YesNo),
        ("replica-serve-stale-data", "yes", YesNo),
        ("replicaof", "", Fixed),
        ("sanitize-dump-payload", "no", Word(&["no", "yes", "clients"])),
        ("server_cpulist", "", Fixed),
        ("set-proc-title", "yes", Fixed),
        ("shutdown-on-sigint", "default", Word(&["default", "save", "nosave", "now", "force"])),
        ("shutdown-on-sigterm", "default", Word(&["default", "save", "nosave", "now", "force"])),
        ("shutdown-timeout", "10", Integer(0, 2147483647)),
        ("slave-announce-ip", "", Text),
        ("slave-announce-port", "0", Integer(0, 65535)),
        ("slave-ignore-maxmemory", "yes", YesNo),
        ("slave-lazy-flush", "no", YesNo),
        ("slave-priority", "100", Integer(0, 2147483647)),
        ("slave-read-only", "yes", YesNo),
        ("slave-serve-stale-data", "yes", YesNo),
        ("slaveof", "", Fixed),
        ("socket-mark-id", "0", Fixed),
        ("stop-writes-on-bgsave-error", "yes", YesNo),
        ("supervised", "no", Fixed),
        ("syslog-enabled", "no", Fixed),
        ("syslog-facility", "local0", Fixed),
        ("syslog-ident", "redis", Fixed),
        ("tls-client-cert-file", "", Fixed),
        ("tls-client-key-file", "", Fixed),
        ("tls-client-key-file-pass", "", Fixed),
        ("tls-cluster", "no", Fixed),
        ("tls-dh-params-file", "", Fixed),
        ("tls-key-file-pass", "", Fixed),
        ("tls-replication", "no", Fixed),
    ]
};

/// The present value of one of [`INERT`].
pub fn get(config: &Config, at: usize) -> String {
    let (name, built_in, _) = INERT[at];
    config.inert.get(twin(name)).map_or_else(|| built_in.to_owned(), Clone::clone)
}

/// Its position in [`INERT`].
pub fn find(name: &str) -> Option<usize> {
    INERT.iter().position(|(other, ..)| other.eq_ignore_ascii_case(name))
}

/// Sets a new value, which has no effect.
///
/// # Errors
/// Redis's texts.
pub fn set(config: &mut Config, at: usize, given: &str) -> Result<(), String> {
    let (name, _, kind) = INERT[at];
    let taken = match kind {
        Inert::Fixed => return Err("can't set immutable config".to_owned()),
        Inert::YesNo => value::yes_no_text(value::yes_no(given)?),
        Inert::Integer(least, most) => value::signed(given, least, most)?.to_string(),
        Inert::Bytes => value::bytes(given, 0, i64::MAX as u64)?.to_string(),
        Inert::Word(words) => words[value::one_of(given, words)?].to_owned(),
        Inert::Text => given.to_owned(),
    };
    config.inert.insert(twin(name), taken);
    Ok(())
}

/// The name under which a value is kept: one for both of its names.
fn twin(name: &'static str) -> &'static str {
    static TWINS: OnceLock<HashMap<&str, &str>> = OnceLock::new();
    let twins = TWINS.get_or_init(|| INERT.iter().map(|(name, ..)| (*name, find_twin(name))).collect());
    twins.get(name).copied().unwrap_or(name)
}

fn find_twin(name: &'static str) -> &'static str {
    let newer = [("slave", "replica"), ("slaves", "replicas"), ("ziplist", "listpack")];
    let same = |other: &str| newer.iter().any(|(old, new)| name.replace(old, new) == other && name != other);
    INERT.iter().map(|(other, ..)| *other).find(|other| same(other)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::directives::directives;

    #[test]
    fn every_built_in_value_can_be_set_again_and_every_name_is_unique() {
        for (at, (name, built_in, kind)) in INERT.iter().enumerate() {
            let mut config = Config::default();
            assert_eq!(get(&config, at), *built_in);
            assert!(directives().all(|directive| directive.name != *name), "{name}");
            match set(&mut config, at, built_in) {
                Ok(()) => assert_eq!(get(&config, at), *built_in, "{name}"),
                Err(error) => assert!(matches!(kind, Inert::Fixed), "{name}: {error}"),
            }
        }
    }

    #[test]
    fn older_and_newer_names_are_aliases() {
        let mut config = Config::default();
        set(&mut config, find("slave-priority").unwrap(), "7").unwrap();
        assert_eq!(get(&config, find("REPLICA-PRIORITY").unwrap()), "7");
        assert!(set(&mut config, find("hz").unwrap(), "x").is_err());
    }
}

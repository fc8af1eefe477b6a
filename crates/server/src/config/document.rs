//! Makes the tables of `docs/configuration.md` from the directives. A test compares, and writes them with `DURAMEN_BLESS=1`.

use super::Config;
use super::directives::{DIRECTIVES, Directive, NOT_SUPPORTED, WITHOUT_EFFECT};
use std::fmt::Write as _;
use std::path::PathBuf;

const BEGIN: &str = "<!-- generated from crates/server/src/config/directives.rs -->\n";
const END: &str = "<!-- end of the generated part -->\n";

/// Sections of the page, and their directives in order. Each directive is in one.
const SECTIONS: [(&str, &[&str]); 8] = [
    (
        "Network and clients",
        &[
            "bind",
            "port",
            "protected-mode",
            "requirepass",
            "unixsocket",
            "unixsocketperm",
            "tcp-backlog",
            "tcp-keepalive",
            "timeout",
            "maxclients",
            "maxmemory-clients",
            "client-query-buffer-limit",
            "client-output-buffer-limit",
            "proto-max-bulk-len",
            "databases",
            "duramen-threads",
        ],
    ),
    ("Memory and eviction", &["maxmemory", "maxmemory-policy", "duramen-len-max"]),
    (
        "Durability and storage",
        &[
            "duramen-path",
            "duramen-medium",
            "duramen-durability",
            "appendfsync",
            "duramen-flush-instruction",
            "duramen-index",
            "duramen-index-cache-slots",
            "duramen-residence",
            "duramen-checkpoint-bytes",
            "duramen-recovery-threads",
            "duramen-compaction-rate",
            "duramen-compaction-dead-percent",
            "duramen-packed-bytes-max",
            "duramen-on-corruption",
            "duramen-verify-at-start",
        ],
    ),
    (
        "memcached",
        &[
            "memcached",
            "memcached-bind",
            "memcached-socket",
            "memcached-database",
            "memcached-max-item-size",
            "memcached-enable-shutdown",
        ],
    ),
    ("SQL", &["duramen-sql", "duramen-sql-directory", "duramen-sql-every", "duramen-sql-existing"]),
    ("Notifications and tracking", &["notify-keyspace-events", "tracking-table-max-keys"]),
    (
        "Process, log and latency",
        &[
            "pidfile",
            "loglevel",
            "logfile",
            "enable-debug-command",
            "slowlog-log-slower-than",
            "slowlog-max-len",
            "latency-monitor-threshold",
            "latency-tracking",
            "latency-tracking-info-percentiles",
        ],
    ),
    (
        "Compatibility with Redis",
        &[
            "appendonly",
            "save",
            "dir",
            "dbfilename",
            "hash-max-listpack-entries",
            "hash-max-ziplist-entries",
            "hash-max-listpack-value",
            "hash-max-ziplist-value",
            "set-max-intset-entries",
            "zset-max-listpack-entries",
            "zset-max-ziplist-entries",
            "zset-max-listpack-value",
            "zset-max-ziplist-value",
            "stream-node-max-bytes",
            "stream-node-max-entries",
            "hll-sparse-max-bytes",
        ],
    ),
];

/// Whether the directive takes this value alone.
fn takes(directive: &Directive, value: &str) -> bool {
    (directive.set)(&mut Config::default(), &[value]).is_ok()
}

/// The values of a directive, by the values that it takes.
fn values(directive: &Directive) -> &'static str {
    let is_word = !takes(directive, "12345678") && !takes(directive, "1");
    match () {
        () if directive.values.1 > 1 => "list",
        () if takes(directive, "64mb") && !takes(directive, "/") => "bytes",
        () if is_word && takes(directive, "yes") && takes(directive, "no") && !takes(directive, "local") => {
            "`yes`, `no`"
        }
        () if is_word => "word",
        () if takes(directive, "/a") || takes(directive, "a") => "text",
        () => "number",
    }
}

/// The built-in value, with the largest unit in which it is whole.
fn default(directive: &Directive) -> String {
    let text = (directive.get)(&Config::default());
    if text.is_empty() {
        return "empty".to_owned();
    }
    if values(directive) == "bytes" {
        for (unit, bytes) in [("gb", 1_u64 << 30), ("mb", 1 << 20), ("kb", 1 << 10)] {
            let whole = text.parse().ok().filter(|value: &u64| *value > 0 && value.is_multiple_of(bytes));
            if let Some(value) = whole {
                return format!("`{}{unit}`", value / bytes);
            }
        }
    }
    format!("`{text}`")
}

/// All tables.
fn tables() -> String {
    let mut out = String::new();
    for (title, names) in SECTIONS {
        out.push_str(&format!(
            "\n### {title}\n\n| directive | values | default | at run time | meaning |\n|---|---|---|---|---|\n"
        ));
        for name in names {
            let directive = DIRECTIVES
                .iter()
                .find(|directive| directive.name == *name)
                .unwrap_or_else(|| panic!("SECTIONS in {} has `{name}`, which is no directive", file!()));
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "| `{name}` | {} | {} | {} | {} |",
                values(directive),
                default(directive),
                if directive.mutable { "yes" } else { "no" },
                directive.text.replace('|', "\\|"),
            );
        }
    }
    let list = |names: Vec<&str>| format!("`{}`", names.join("`, `"));
    let _ = write!(
        out,
        "\n### Directives of Redis without effect\n\nThey are accepted, and the log names them at start. \
         CONFIG GET gives Redis's default.\n\n| directives |\n|---|\n| {} |\n",
        list(WITHOUT_EFFECT.to_vec()),
    );
    out.push_str(
        "\n### Directives of Redis that are refused\n\nA value that turns the feature off is accepted.\n\n\
         | directive | not supported |\n|---|---|\n",
    );
    for (name, feature) in NOT_SUPPORTED {
        let _ = writeln!(out, "| `{name}` | {feature} |");
    }
    out
}

#[test]
fn every_directive_is_in_one_section_of_the_page() {
    let mut listed: Vec<&str> = SECTIONS.iter().flat_map(|(_, names)| *names).copied().collect();
    let mut declared: Vec<&str> = DIRECTIVES.iter().map(|directive| directive.name).collect();
    listed.sort_unstable();
    declared.sort_unstable();
    assert_eq!(listed, declared, "name each directive once in SECTIONS of {}", file!());
}

#[test]
fn the_page_has_the_directives_that_are_declared() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("docs/configuration.md has a generated part");
    let (found, after) = rest.split_once(END).expect("the generated part has an end");
    let wanted = format!("{}\n", tables());
    if std::env::var_os("DURAMEN_BLESS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{wanted}{END}{after}")).unwrap();
        return;
    }
    let differs = found.lines().zip(wanted.lines()).find(|(found, wanted)| found != wanted);
    assert!(
        found == wanted,
        "docs/configuration.md differs from the directives; run DURAMEN_BLESS=1 cargo test -p duramen-server --lib document, which writes it. \
         First difference (page, directive): {differs:?}"
    );
}

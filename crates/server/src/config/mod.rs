//! How the server is configured: redis.conf's directives where the meaning is the same, `duramen-…` for the
//! engine and the medium.
//!
//! Sources, later wins: built-in values, the file, `DURAMEN_*` of the environment, the command line.
//! What each directive means stands in [`directives::SECTIONS`], from which CONFIG GET, the help text and the
//! tables of docs/configuration.md are made, and those of [`description`].

pub mod description;
pub mod directives;
#[cfg(test)]
mod document;
pub mod inert;
mod load;
pub mod policy;
mod rewrite;
pub mod tls;
pub mod value;

pub use load::help;
pub use rewrite::rewrite;

use crate::memcached::numbering::WORKERS_MAX;
use crate::observe::keyspace_events::Classes;
use crate::observe::log::{Format, Level};
use duramen::{Durability, FlushInstruction, IndexKind, MediumKind, OnCorruption, Residence};
use duramen_structures::Thresholds;
use policy::Policy;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// A complete configuration.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // Each field is the directive of the same name; see `directives`.
pub struct Config {
    pub bind: Vec<String>,
    pub port: u16,
    pub protected_mode: bool,
    pub tcp_backlog: u32,
    pub tcp_keepalive: u32,
    pub unixsocket: String,
    pub unixsocketperm: u32,
    pub timeout: u32,
    pub maxclients: u32,
    pub databases: u8,
    pub requirepass: String,
    /// The directives `user`, each with the name first.
    pub users: Vec<Vec<String>>,
    /// `rename-command`: each name and its new one, in order.
    pub renamed_commands: Vec<(String, String)>,
    pub aclfile: String,
    /// `acl-pubsub-default allchannels`.
    pub acl_pubsub_default: bool,
    pub acllog_max_len: usize,
    pub tls_port: u16,
    pub tls_cert_file: String,
    pub tls_key_file: String,
    pub tls_ca_cert_file: String,
    pub tls_ca_cert_dir: String,
    /// One of the words of `tls-auth-clients`.
    pub tls_auth_clients: String,
    /// `tls-auth-clients-user CN`.
    pub tls_auth_clients_user: bool,
    pub tls_protocols: String,
    pub tls_ciphers: String,
    pub tls_ciphersuites: String,
    pub tls_prefer_server_ciphers: bool,
    pub tls_session_caching: bool,
    pub tls_session_cache_size: usize,
    pub tls_session_cache_timeout: u64,
    pub tls_sni: Vec<String>,
    pub memcached_tls: bool,
    pub proto_max_bulk_len: u64,
    pub client_query_buffer_limit: u64,
    pub client_output_buffer_limit: [OutputLimit; 3],
    pub maxmemory_clients: ClientsMemory,
    pub save: String,
    pub dir: String,
    pub dbfilename: String,
    pub maxmemory: u64,
    pub maxmemory_policy: Option<Policy>,
    pub durability: Durability,
    pub index: IndexKind,
    pub index_cache_slots: usize,
    pub residence: Residence,
    pub checkpoint_bytes: u64,
    pub notify_keyspace_events: Classes,
    pub tracking_table_max_keys: usize,
    /// Milliseconds of a script before others are answered BUSY.
    pub busy_reply_threshold: u64,
    pub slowlog_log_slower_than: i64,
    pub slowlog_max_len: usize,
    pub latency_monitor_threshold: u64,
    pub latency_tracking: bool,
    pub latency_tracking_info_percentiles: Vec<f64>,
    pub memcached: u16,
    pub memcached_bind: Vec<String>,
    pub memcached_socket: String,
    pub memcached_database: Option<u8>,
    pub memcached_max_item_size: u64,
    pub memcached_enable_shutdown: bool,
    pub pidfile: String,
    pub loglevel: Level,
    pub logfile: String,
    pub log_format: Format,
    /// Empty: none.
    pub metrics: String,
    pub metrics_tls: bool,
    pub console: bool,
    pub enable_debug_command: Allowed,
    pub medium: MediumKind,
    pub flush_instruction: Option<FlushInstruction>,
    pub path: PathBuf,
    pub threads: usize,
    pub recovery_threads: usize,
    pub compaction_rate: u64,
    pub compaction_dead_percent: u32,
    /// At most so many; 0: by the cores.
    pub compactors: usize,
    pub lock_memory: bool,
    /// Free bytes that stay; `u64::MAX`: all.
    pub keep_free: u64,
    pub small_collection_bytes_max: u64,
    /// The thresholds at which Redis converts a value to another encoding.
    pub thresholds: Thresholds,
    pub on_corruption: OnCorruption,
    pub verify_at_start: bool,
    pub sql: Vec<String>,
    pub sql_directory: String,
    pub sql_every: u64,
    /// One of the words of `duramen-sql-existing`.
    pub sql_existing: String,
    /// The values that were set of the [`inert`] directives.
    pub inert: BTreeMap<&'static str, String>,
    /// Directives that were set, by any source.
    pub given: BTreeSet<&'static str>,
    /// The server was started with memcached's options for its address.
    pub is_memcached: bool,
    /// An option -l was given before.
    pub memcached_bind_is_option: bool,
    /// The file that was loaded; `None` for `-` and without a file.
    pub file: Option<PathBuf>,
    /// Notices for the operator about this configuration.
    pub notices: Vec<String>,
}

/// Which clients may run commands that are meant for tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allowed {
    /// None.
    #[default]
    No,
    /// Clients on this machine.
    Local,
    /// All clients.
    Yes,
}

impl Allowed {
    /// The directive's words, in the order of the variants.
    pub const WORDS: [&str; 3] = ["no", "local", "yes"];

    /// The value at a word's position.
    pub fn at(index: usize) -> Self {
        [Self::No, Self::Local, Self::Yes].get(index).copied().unwrap_or_default()
    }
}

/// The maximum that the buffers of all clients may take together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientsMemory {
    /// Bytes; 0: a quarter of the machine's memory.
    Bytes(u64),
    /// A share of `maxmemory`, or of the machine's memory if `maxmemory` is 0.
    Percent(u8),
}

/// When a client that does not read its replies is disconnected. 0 means never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// Immediately, above this many bytes.
    pub hard_bytes: u64,
    /// Above this many bytes…
    pub soft_bytes: u64,
    /// …for this many seconds.
    pub soft_seconds: u32,
}

/// Classes of [`Config::client_output_buffer_limit`], in its order.
pub const OUTPUT_CLASSES: [&str; 3] = ["normal", "slave", "pubsub"];

impl Default for Config {
    fn default() -> Self {
        const MIB: u64 = 1 << 20;
        Self {
            // The minus: no error where the machine has no IPv6.
            bind: vec!["127.0.0.1".to_owned(), "-::1".to_owned()],
            port: 6379,
            protected_mode: true,
            tcp_backlog: 511,
            tcp_keepalive: 300,
            unixsocket: String::new(),
            unixsocketperm: 0,
            timeout: 0,
            maxclients: 10_000,
            databases: 16,
            requirepass: String::new(),
            users: Vec::new(),
            renamed_commands: Vec::new(),
            aclfile: String::new(),
            acl_pubsub_default: false,
            acllog_max_len: 128,
            tls_port: 0,
            tls_cert_file: String::new(),
            tls_key_file: String::new(),
            tls_ca_cert_file: String::new(),
            tls_ca_cert_dir: String::new(),
            tls_auth_clients: "yes".to_owned(),
            tls_auth_clients_user: false,
            tls_protocols: String::new(),
            tls_ciphers: String::new(),
            tls_ciphersuites: String::new(),
            tls_prefer_server_ciphers: false,
            tls_session_caching: true,
            tls_session_cache_size: 20_480,
            tls_session_cache_timeout: 300,
            tls_sni: Vec::new(),
            memcached_tls: false,
            proto_max_bulk_len: 512 * MIB,
            client_query_buffer_limit: 1024 * MIB,
            client_output_buffer_limit: [
                // Redis has no limit for normal clients, so a client that never reads its replies can use up all
                // memory. 1 GiB holds the replies to any sane pipeline, including two of the largest values.
                OutputLimit { hard_bytes: 1024 * MIB + 64 * MIB, soft_bytes: 256 * MIB, soft_seconds: 60 },
                OutputLimit { hard_bytes: 256 * MIB, soft_bytes: 64 * MIB, soft_seconds: 60 },
                OutputLimit { hard_bytes: 32 * MIB, soft_bytes: 8 * MIB, soft_seconds: 60 },
            ],
            maxmemory_clients: ClientsMemory::Bytes(0),
            save: String::new(),
            dir: "./".to_owned(),
            dbfilename: "dump.rdb".to_owned(),
            maxmemory: 0,
            maxmemory_policy: None,
            durability: Durability::EveryWrite,
            index: IndexKind::Hash,
            index_cache_slots: duramen::Options::default().index_cache_slots,
            residence: Residence::Dram,
            checkpoint_bytes: 0,
            notify_keyspace_events: 0,
            tracking_table_max_keys: 1_000_000,
            busy_reply_threshold: 5000,
            slowlog_log_slower_than: 10_000,
            slowlog_max_len: 128,
            latency_monitor_threshold: 0,
            latency_tracking: true,
            latency_tracking_info_percentiles: vec![50.0, 99.0, 99.9],
            memcached: 0,
            memcached_bind: Vec::new(),
            memcached_socket: String::new(),
            memcached_database: None,
            memcached_max_item_size: MIB,
            memcached_enable_shutdown: false,
            pidfile: String::new(),
            loglevel: Level::Notice,
            logfile: String::new(),
            log_format: Format::Lines,
            metrics: String::new(),
            metrics_tls: false,
            console: false,
            enable_debug_command: Allowed::No,
            medium: MediumKind::Auto,
            flush_instruction: None,
            path: PathBuf::from("./duramen-data"),
            threads: 0,
            recovery_threads: 0,
            compaction_rate: 0,
            compaction_dead_percent: 25,
            compactors: 0,
            lock_memory: false,
            keep_free: 64 << 20,
            small_collection_bytes_max: duramen_structures::SMALL_COLLECTION_BYTES_MAX_DEFAULT as u64,
            thresholds: Thresholds::default(),
            on_corruption: OnCorruption::Refuse,
            verify_at_start: false,
            sql: Vec::new(),
            sql_directory: String::new(),
            sql_every: 10_000,
            sql_existing: "refuse".to_owned(),
            inert: BTreeMap::new(),
            given: BTreeSet::new(),
            is_memcached: false,
            memcached_bind_is_option: false,
            file: None,
            notices: Vec::new(),
        }
    }
}

impl Config {
    /// Whether the server listens for memcached clients.
    pub const fn speaks_memcached(&self) -> bool {
        self.memcached != 0 || !self.memcached_socket.is_empty()
    }

    /// The eviction policy.
    pub fn policy(&self) -> Policy {
        self.maxmemory_policy.unwrap_or_default()
    }

    /// Worker threads to start.
    pub fn threads_resolved(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, |cores| cores.get().min(WORKERS_MAX)),
            threads => threads,
        }
    }
}

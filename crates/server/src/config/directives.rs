//! The table of all directives; CONFIG GET, CONFIG SET, the help text and the documentation are made from it. One file because it is one
//! table.

use super::policy::Policy;
use super::{Allowed, ClientsMemory, Config, OUTPUT_CLASSES, OutputLimit, inert, tls, value};
use crate::memcached::numbering::WORKERS_MAX;
use crate::metrics::http::address;
use crate::observe::keyspace_events;
use crate::observe::log::{Format, Level};
use std::path::PathBuf;

/// One directive.
pub struct Directive {
    /// Its name, as in redis.conf.
    pub name: &'static str,
    /// Whether CONFIG SET may change it while the server runs.
    pub mutable: bool,
    /// How many values it takes: minimum and maximum.
    pub values: (usize, usize),
    /// What it means, with units and bounds.
    pub text: &'static str,
    /// The present value, as redis.conf has it.
    pub get: fn(&Config) -> String,
    /// Sets new values, or returns the reason for refusing them.
    pub set: fn(&mut Config, &[&str]) -> Result<(), String>,
}

macro_rules! directive {
    ($name:literal, $mutable:literal, $text:literal, $get:expr, $set:expr) => {
        Directive { name: $name, mutable: $mutable, values: (1, 1), text: $text, get: $get, set: $set }
    };
    ($name:literal, $mutable:literal, $least:literal..=$most:literal, $text:literal, $get:expr, $set:expr) => {
        Directive {
            name: $name,
            mutable: $mutable,
            values: ($least, $most),
            text: $text,
            get: $get,
            set: $set,
        }
    };
}

// A text that CONFIG SET may change, kept as it is.
macro_rules! text_directive {
    ($name:literal, $field:ident, $text:literal) => {
        directive!($name, true, $text, |c| c.$field.clone(), |c, v| {
            c.$field = v[0].to_owned();
            Ok(())
        })
    };
}

// A maximum size at which Redis keeps a value in a compact encoding.
macro_rules! threshold {
    ($name:literal, $parse:path, $text:literal, $($place:ident).+) => {
        directive!($name, true, $text, |c| c.thresholds.$($place).+.to_string(), |c, v| {
            c.thresholds.$($place).+ = $parse(v[0], 0, i64::MAX as u64)? as _;
            Ok(())
        })
    };
}

const MIB: u64 = 1 << 20;
// The engine's maximum for one value.
const VALUE_BYTES_MAX: u64 = duramen::VALUE_BYTES_MAX as u64;

/// Words of `acl-pubsub-default`.
const CHANNELS: [&str; 2] = ["allchannels", "resetchannels"];

/// Words of `duramen-sql-existing`.
const EXISTING: [&str; 3] = ["refuse", "overwrite", "adopt"];

/// All directives, by the sections of docs/configuration.md.
pub const SECTIONS: &[(&str, &[Directive])] = &[
    ("Network and clients", NETWORK),
    ("Memory and eviction", MEMORY),
    ("Durability and storage", STORAGE),
    ("memcached", MEMCACHED),
    ("SQL", SQL),
    ("Notifications and tracking", NOTIFICATIONS),
    ("Scripts", SCRIPTS),
    ("Process, log and latency", PROCESS),
    ("Compatibility with Redis", COMPATIBILITY),
];

/// All directives.
pub fn directives() -> impl Iterator<Item = &'static Directive> {
    SECTIONS.iter().flat_map(|(_, directives)| *directives)
}

const NETWORK: &[Directive] = &[
    directive!(
        "bind",
        false,
        1..=16,
        "Addresses that the server listens on, 1 to 16. By default these are the loopback addresses, so \
         only local clients can connect. `*` means all addresses. With a leading minus, an address that is \
         not available is skipped without an error.",
        |c| c.bind.join(" "),
        |c, v| {
            c.bind = v.iter().flat_map(|v| v.split_whitespace()).map(str::to_owned).collect();
            Ok(())
        }
    ),
    directive!(
        "port",
        false,
        "TCP port for Redis clients, 0 to 65535. 0 disables the port.",
        |c| c.port.to_string(),
        |c, v| {
            c.port = value::integer(v[0], 0, 65_535)? as u16;
            Ok(())
        }
    ),
    directive!(
        "protected-mode",
        true,
        "Refuse connections from other machines while the user `default` needs no password.",
        |c| value::yes_no_text(c.protected_mode),
        |c, v| {
            c.protected_mode = value::yes_no(v[0])?;
            Ok(())
        }
    ),
    directive!(
        "requirepass",
        true,
        "Password of the user `default`. Empty: no password is needed. A `user default` line and the `aclfile` override it.",
        |c| c.requirepass.clone(),
        |c, v| {
            c.requirepass = v[0].to_owned();
            Ok(())
        }
    ),
    directive!(
        "aclfile",
        false,
        "File of the users, in the directory `dir` if the path is relative; ACL LOAD reads it and ACL SAVE writes it. Empty: users are \
         defined by `user` lines of the configuration file.",
        |c| c.aclfile.clone(),
        |c, v| {
            c.aclfile = v[0].to_owned();
            Ok(())
        }
    ),
    directive!(
        "acl-pubsub-default",
        true,
        "The channels that a new user may use: `resetchannels` (none) or `allchannels`.",
        |c| CHANNELS[usize::from(!c.acl_pubsub_default)].to_owned(),
        |c, v| {
            c.acl_pubsub_default = value::one_of(v[0], &CHANNELS)? == 0;
            Ok(())
        }
    ),
    directive!(
        "acllog-max-len",
        true,
        "Entries that ACL LOG keeps.",
        |c| c.acllog_max_len.to_string(),
        |c, v| {
            c.acllog_max_len = value::integer(v[0], 0, i64::MAX as u64)? as usize;
            Ok(())
        }
    ),
    // --- TLS
    directive!(
        "tls-port",
        false,
        "TCP port for Redis clients that speak TLS, 0 to 65535. 0 disables the port.",
        |c| c.tls_port.to_string(),
        |c, v| {
            c.tls_port = value::integer(v[0], 0, 65_535)? as u16;
            Ok(())
        }
    ),
    text_directive!(
        "tls-cert-file",
        tls_cert_file,
        "File of the server's certificate, in PEM, with the certificates between it and its authority. CONFIG SET of any `tls-` \
         directive reads all files again; connections keep what they came with."
    ),
    text_directive!(
        "tls-key-file",
        tls_key_file,
        "File of the certificate's private key, in PEM, without a password."
    ),
    text_directive!(
        "tls-ca-cert-file",
        tls_ca_cert_file,
        "File of the authorities that sign certificates of clients, in PEM."
    ),
    text_directive!("tls-ca-cert-dir", tls_ca_cert_dir, "Directory of such files."),
    directive!(
        "tls-auth-clients",
        true,
        "Whether clients must show a certificate: `yes`, `no`, or `optional`.",
        |c| c.tls_auth_clients.clone(),
        |c, v| {
            c.tls_auth_clients = tls::AUTH_CLIENTS[value::one_of(v[0], &tls::AUTH_CLIENTS)?].to_owned();
            Ok(())
        }
    ),
    directive!(
        "tls-auth-clients-user",
        true,
        "`CN`: a client with a certificate is logged in as the user of its common name, if there is one. `off`: it is the default user.",
        |c| tls::AUTH_CLIENTS_USER[usize::from(c.tls_auth_clients_user)].to_owned(),
        |c, v| {
            c.tls_auth_clients_user = value::one_of(v[0], &tls::AUTH_CLIENTS_USER)? == 1;
            Ok(())
        }
    ),
    text_directive!(
        "tls-protocols",
        tls_protocols,
        "Versions, by blanks: `TLSv1.2`, `TLSv1.3`. Empty: both."
    ),
    text_directive!(
        "tls-ciphers",
        tls_ciphers,
        "Cipher suites of TLS 1.2 by OpenSSL's names, with colons between. Empty, or `DEFAULT`: all that are safe."
    ),
    text_directive!("tls-ciphersuites", tls_ciphersuites, "Those of TLS 1.3."),
    directive!(
        "tls-prefer-server-ciphers",
        true,
        "The order of the suites here decides, not that of the client.",
        |c| value::yes_no_text(c.tls_prefer_server_ciphers),
        |c, v| {
            c.tls_prefer_server_ciphers = value::yes_no(v[0])?;
            Ok(())
        }
    ),
    directive!(
        "tls-session-caching",
        true,
        "Clients may resume a session without a whole handshake.",
        |c| value::yes_no_text(c.tls_session_caching),
        |c, v| {
            c.tls_session_caching = value::yes_no(v[0])?;
            Ok(())
        }
    ),
    directive!(
        "tls-session-cache-size",
        true,
        "Sessions that are kept for that; 0: 1048576.",
        |c| c.tls_session_cache_size.to_string(),
        |c, v| {
            c.tls_session_cache_size = value::integer(v[0], 0, i32::MAX as u64)? as usize;
            Ok(())
        }
    ),
    directive!(
        "tls-session-cache-timeout",
        true,
        "Seconds for which they are kept.",
        |c| c.tls_session_cache_timeout.to_string(),
        |c, v| {
            c.tls_session_cache_timeout = value::integer(v[0], 0, i32::MAX as u64)?;
            Ok(())
        }
    ),
    directive!(
        "duramen-tls-sni",
        true,
        0..=48,
        "Certificates by the name that the client asks for (SNI): name, certificate file and key file, for each. Any other name gets `tls-cert-file`.",
        |c| c.tls_sni.join(" "),
        |c, v| {
            c.tls_sni = v.iter().flat_map(|v| v.split_whitespace()).map(str::to_owned).collect();
            Ok(())
        }
    ),
    directive!(
        "memcached-tls",
        false,
        "The port `memcached` speaks TLS, with the same certificates.",
        |c| value::yes_no_text(c.memcached_tls),
        |c, v| {
            c.memcached_tls = value::yes_no(v[0])?;
            Ok(())
        }
    ),
    directive!(
        "unixsocket",
        false,
        "Path of a Unix socket to listen on for Redis clients, in addition to `port`. Empty: no Unix \
         socket.",
        |c| c.unixsocket.clone(),
        |c, v| {
            c.unixsocket = v[0].to_owned();
            Ok(())
        }
    ),
    directive!(
        "unixsocketperm",
        false,
        "Permissions of the Unix sockets, in octal, at most 777. 0 leaves them to the umask.",
        |c| format!("{:o}", c.unixsocketperm),
        |c, v| {
            c.unixsocketperm = u32::from_str_radix(v[0], 8)
                .ok()
                .filter(|mode| *mode <= 0o777)
                .ok_or("argument couldn't be parsed into an integer")?;
            Ok(())
        }
    ),
    directive!(
        "tcp-backlog",
        false,
        "Connections that may wait to be accepted. The kernel caps the value at net.core.somaxconn.",
        |c| c.tcp_backlog.to_string(),
        |c, v| {
            c.tcp_backlog = value::integer(v[0], 0, i32::MAX as u64)? as u32;
            Ok(())
        }
    ),
    directive!(
        "tcp-keepalive",
        true,
        "Seconds without traffic before the kernel probes a TCP connection. The connection is closed after \
         three failed probes, a third of this time apart. 0 disables the probes. Ignored for Unix sockets.",
        |c| c.tcp_keepalive.to_string(),
        |c, v| {
            c.tcp_keepalive = value::integer(v[0], 0, i32::MAX as u64)? as u32;
            Ok(())
        }
    ),
    directive!(
        "timeout",
        true,
        "Seconds after which an idle client is disconnected. A client is idle while it neither sends \
         requests nor reads replies. 0 disables the limit. Clients that are blocked, subscribed or paused \
         are exempt.",
        |c| c.timeout.to_string(),
        |c, v| {
            c.timeout = value::integer(v[0], 0, i32::MAX as u64)? as u32;
            Ok(())
        }
    ),
    directive!(
        "maxclients",
        true,
        "Maximum number of connected clients, at least 1. At start the server raises its limit of open \
         files to match, if the system allows it; otherwise it lowers this value and logs it.",
        |c| c.maxclients.to_string(),
        |c, v| {
            c.maxclients = value::integer(v[0], 1, u64::from(u32::MAX))? as u32;
            Ok(())
        }
    ),
    directive!(
        "maxmemory-clients",
        true,
        "Maximum bytes of all clients' buffers together, or with a percent sign a share of `maxmemory` (of \
         the machine's memory if `maxmemory` is 0). When it is exceeded, the client with the largest \
         buffers is disconnected, unless it has set CLIENT NO-EVICT. 0: a quarter of the machine's memory.",
        |c| match c.maxmemory_clients {
            ClientsMemory::Bytes(bytes) => bytes.to_string(),
            ClientsMemory::Percent(percent) => format!("{percent}%"),
        },
        |c, v| {
            c.maxmemory_clients = match v[0].strip_suffix('%') {
                Some(percent) => match percent.parse() {
                    Ok(percent @ 0..=100) => ClientsMemory::Percent(percent),
                    _ => return Err("percentage argument must be less or equal to 100".to_owned()),
                },
                None => ClientsMemory::Bytes(value::bytes(v[0], 0, i64::MAX as u64)?),
            };
            Ok(())
        }
    ),
    directive!(
        "client-query-buffer-limit",
        true,
        "Maximum bytes of one request together with the commands that MULTI has queued; at least 1mb. A \
         client that exceeds it is disconnected.",
        |c| c.client_query_buffer_limit.to_string(),
        |c, v| {
            c.client_query_buffer_limit = value::bytes(v[0], MIB, i64::MAX as u64)?;
            Ok(())
        }
    ),
    directive!(
        "client-output-buffer-limit",
        true,
        4..=12,
        "Maximum bytes of replies that a client may leave unread. Each group of four values is a class \
         (normal, replica or pubsub), a hard limit, a soft limit and seconds. A client is disconnected \
         once it exceeds the hard limit, or the soft limit for that many seconds. 0 disables a limit. \
         Unlike in Redis, normal clients have a limit by default: 1088mb, or 256mb for 60 seconds.",
        output_limit_text,
        output_limit
    ),
    directive!(
        "proto-max-bulk-len",
        true,
        "Maximum length of one argument and of one string, in bytes; 1mb to 512mb.",
        |c| c.proto_max_bulk_len.to_string(),
        |c, v| {
            c.proto_max_bulk_len = value::bytes(v[0], MIB, VALUE_BYTES_MAX)?;
            Ok(())
        }
    ),
    directive!("databases", false, "Number of databases, 1 to 128.", |c| c.databases.to_string(), |c, v| {
        c.databases = value::integer(v[0], 1, 128)? as u8;
        Ok(())
    }),
    directive!(
        "duramen-threads",
        false,
        "Worker threads, at most 1024. 0: one per core.",
        |c| c.threads.to_string(),
        |c, v| {
            c.threads = value::integer(v[0], 0, WORKERS_MAX as u64)? as usize;
            Ok(())
        }
    ),
];

const MEMORY: &[Directive] = &[
    directive!(
        "maxmemory",
        true,
        "Maximum bytes that the store takes on its medium. When it is reached, writes fail, or keys are \
         evicted (see `maxmemory-policy`). 0: the size of the device; for a file 1 TiB. A lower value \
         takes effect by evicting keys or as keys are deleted; the medium never shrinks. At start, a value \
         below the smallest possible store is an error.",
        |c| c.maxmemory.to_string(),
        |c, v| {
            c.maxmemory = value::bytes(v[0], 0, u64::MAX)?;
            Ok(())
        }
    ),
    directive!(
        "maxmemory-policy",
        true,
        "Which keys are evicted when the store is full. `noeviction`: none, writes get an error. \
         `allkeys-lru`, `allkeys-lfu` and `allkeys-random` choose among all keys. `volatile-lru`, \
         `volatile-lfu`, `volatile-random` and `volatile-ttl` choose among the keys that expire. See \
         docs/eviction.md. memcached's option `-m` sets `allkeys-lru`, and `-M` sets `noeviction`.",
        |c| c.policy().name().to_owned(),
        |c, v| {
            c.maxmemory_policy = Some(Policy::named(v[0])?);
            Ok(())
        }
    ),
];

const STORAGE: &[Directive] = &[
    directive!(
        "duramen-path",
        false,
        "Path of the store: a file, a directory in which the file is created, or a device such as \
         /dev/dax0.0.",
        |c| c.path.display().to_string(),
        |c, v| {
            c.path = PathBuf::from(v[0]);
            Ok(())
        }
    ),
    directive!(
        "duramen-medium",
        false,
        "Kind of medium: auto (detected from the path), devdax, fsdax, shm, file or volatile.",
        |c| c.medium.to_string(),
        |c, v| {
            c.medium = value::word(v[0])?;
            Ok(())
        }
    ),
    directive!(
        "duramen-durability",
        true,
        1..=2,
        "When an acknowledged write survives power loss. `every-write`: before its reply. An interval such \
         as 1s or 250ms: within that time. `manual`: after SAVE, BGSAVE or a clean shutdown; even a crash \
         of the process loses later writes. CONFIG SET cannot change from or to `manual`.",
        |c| value::durability_text(c.durability),
        |c, v| {
            c.durability = value::durability(v)?;
            Ok(())
        }
    ),
    directive!(
        "appendfsync",
        true,
        "When an acknowledged write survives power loss. `always`: before its reply (`duramen-durability` \
         every-write). `everysec`: within a second (interval 1s). `no`: within 30 seconds (interval 30s). \
         None of them loses acknowledged writes when only the process crashes.",
        |c| value::appendfsync_text(c.durability),
        |c, v| {
            c.durability = value::appendfsync(v[0])?;
            Ok(())
        }
    ),
    directive!(
        "duramen-flush-instruction",
        false,
        "Instruction that flushes cache lines to the medium, for measurements. `auto` chooses the best one \
         for the CPU and the medium. Others: clwb, clflushopt, clflush, nt-avx512, nt-avx2, nt-sse2, \
         movdir64b, order-only, dc-cvap, dc-cvac.",
        |c| c.flush_instruction.map_or_else(|| "auto".to_owned(), |step| step.to_string()),
        |c, v| {
            c.flush_instruction =
                if v[0].eq_ignore_ascii_case("auto") { None } else { Some(value::word(v[0])?) };
            Ok(())
        }
    ),
    directive!(
        "duramen-index",
        false,
        "Kind of index: hash or ordered. With `ordered`, SCAN returns keys in order, and KEYS prefix* \
         takes time in proportion to its result. A database adopts a changed kind when it is first written \
         or flushed.",
        |c| c.index.to_string(),
        |c, v| {
            c.index = value::word(v[0])?;
            Ok(())
        }
    ),
    directive!(
        "duramen-index-cache-slots",
        false,
        "Slots of the ordered index's cache of key positions, \
         rounded up to a power of two, at most 2^32. Each takes 8 bytes of DRAM. 0 disables the cache. \
         Ignored with `duramen-index hash`.",
        |c| c.index_cache_slots.to_string(),
        |c, v| {
            c.index_cache_slots = value::integer(v[0], 0, 1 << 32)? as usize;
            Ok(())
        }
    ),
    directive!(
        "duramen-residence",
        false,
        "Where the index is kept. `dram`: in DRAM only; after a crash it is rebuilt from all records. \
         `persistent`: also checkpointed to the medium; after a crash only recent writes are read again. A \
         clean shutdown stores the index with either value. Every start may change it. Ignored (dram) with \
         `duramen-durability manual`.",
        |c| c.residence.to_string(),
        |c, v| {
            c.residence = value::word(v[0])?;
            Ok(())
        }
    ),
    directive!(
        "duramen-checkpoint-bytes",
        false,
        "Bytes written between two checkpoints of the index. A start after a crash reads about as much. 0: \
         an eighth of the used space, at least 64 MiB. Ignored with `duramen-residence dram`.",
        |c| c.checkpoint_bytes.to_string(),
        |c, v| {
            c.checkpoint_bytes = value::bytes(v[0], 0, u64::MAX)?;
            Ok(())
        }
    ),
    directive!(
        "duramen-recovery-threads",
        false,
        "Threads that read the store when it is opened, at most 1024. 0: one per core.",
        |c| c.recovery_threads.to_string(),
        |c, v| {
            c.recovery_threads = value::integer(v[0], 0, 1024)? as usize;
            Ok(())
        }
    ),
    directive!(
        "duramen-compaction-rate",
        false,
        "Maximum bytes per second that background compaction reads. 0: no limit. Ignored when a write \
         finds no free space: compaction then runs at once.",
        |c| c.compaction_rate.to_string(),
        |c, v| {
            c.compaction_rate = value::bytes(v[0], 0, u64::MAX)?;
            Ok(())
        }
    ),
    directive!(
        "duramen-compaction-dead-percent",
        false,
        "Background compaction starts when this percentage of the used space is garbage, 5 to 90. A lower \
         value saves space, a higher one saves work: with 50 the store takes up to twice the live data. \
         With 25 or more, a small store waits for 45 while its medium has free space. A store is small up \
         to 64 MiB or a sixteenth of its maximum size.",
        |c| c.compaction_dead_percent.to_string(),
        |c, v| {
            c.compaction_dead_percent = value::integer(v[0], 5, 90)? as u32;
            Ok(())
        }
    ),
    directive!(
        "duramen-compactors",
        false,
        "The most threads that compact at the same time when background compaction falls behind the writers, at most \
         64. 0: one for each four cores, at most 8.",
        |c| c.compactors.to_string(),
        |c, v| {
            c.compactors = value::integer(v[0], 0, 64)? as usize;
            Ok(())
        }
    ),
    directive!(
        "duramen-lock-memory",
        false,
        "Whether pages of the store, the index and the process stay in memory once they were used. Wants \
         LimitMEMLOCK=infinity (ulimit -l unlimited), or CAP_IPC_LOCK.",
        |c| value::yes_no_text(c.lock_memory),
        |c, v| {
            c.lock_memory = value::yes_no(v[0])?;
            Ok(())
        }
    ),
    directive!(
        "duramen-keep-free",
        false,
        "Free space in bytes that the store keeps, besides a sixteenth of what it uses. What is free beyond that \
         for ten seconds goes back to the file system (on /dev/shm: memory): the file stays as long as it was and \
         takes less space. `all`: nothing goes back.",
        |c| match c.keep_free {
            u64::MAX => "all".to_owned(),
            bytes => bytes.to_string(),
        },
        |c, v| {
            c.keep_free = match v[0] {
                "all" => u64::MAX,
                text => value::bytes(text, 0, u64::MAX - 1)?,
            };
            Ok(())
        }
    ),
    directive!(
        "duramen-small-collection-bytes-max",
        false,
        "Maximum bytes of a hash, list, set, sorted set or stream that is stored as one record; each write \
         rewrites the whole record. A larger one is stored per element (a stream per node and per pending \
         entry) and stays so when it shrinks. Each element then takes 20 to 34 bytes of DRAM. Every start \
         may change it: a value changes its form when it grows or is written as a whole. A string longer \
         than 1 KiB and than four times this value is split into records of 1 KiB once a part of it is \
         written. Ignored for a hash, set or sorted set with a name longer than 64 KiB, which is always one \
         record.",
        |c| c.small_collection_bytes_max.to_string(),
        |c, v| {
            c.small_collection_bytes_max = value::bytes(v[0], 0, u64::MAX)?;
            Ok(())
        }
    ),
    directive!(
        "duramen-on-corruption",
        false,
        "What a start does with a store in which it finds damage, or in which damage is already known. \
         `refuse`: exit with code 3 and change nothing. `serve`: serve the intact keys; a key with a \
         damaged record answers -CORRUPT until it is set or deleted. After a crash, `serve` may show older \
         values of damaged keys: see Damage in docs/operations.md.",
        |c| c.on_corruption.to_string(),
        |c, v| {
            c.on_corruption = value::word(v[0])?;
            Ok(())
        }
    ),
    directive!(
        "duramen-verify-at-start",
        false,
        "Verify all records before the first client is served. A start then takes as long as reading the \
         whole store. `duramen-on-corruption` says what happens when it finds damage. With `no`, a start \
         after a clean shutdown verifies the records in the background.",
        |c| value::yes_no_text(c.verify_at_start),
        |c, v| {
            c.verify_at_start = value::yes_no(v[0])?;
            Ok(())
        }
    ),
];

const MEMCACHED: &[Directive] = &[
    directive!(
        "memcached",
        false,
        "TCP port for memcached clients (text, meta and binary protocol), 0 to 65535. 0 disables it. With \
         `port 0`, the server speaks only memcached's protocols.",
        |c| c.memcached.to_string(),
        |c, v| {
            c.memcached = value::integer(v[0], 0, 65_535)? as u16;
            Ok(())
        }
    ),
    directive!(
        "memcached-bind",
        false,
        1..=16,
        "Addresses for the port `memcached`, 1 to 16. Empty: the addresses of `bind`.",
        |c| c.memcached_bind.join(" "),
        |c, v| {
            c.memcached_bind = v.iter().flat_map(|v| v.split([' ', ','])).map(str::to_owned).collect();
            c.memcached_bind.retain(|address| !address.is_empty());
            Ok(())
        }
    ),
    directive!(
        "memcached-socket",
        false,
        "Path of a Unix socket for memcached clients. Empty: no Unix socket. `unixsocketperm` sets its \
         permissions.",
        |c| c.memcached_socket.clone(),
        |c, v| {
            c.memcached_socket = v[0].to_owned();
            Ok(())
        }
    ),
    directive!(
        "memcached-database",
        false,
        "Redis database whose strings the memcached commands read and write. Empty: items have their own \
         table, which Redis commands cannot access.",
        |c| c.memcached_database.map_or_else(String::new, |db| db.to_string()),
        |c, v| {
            c.memcached_database = match v[0] {
                "" => None,
                number => Some(value::integer(number, 0, 127)? as u8),
            };
            Ok(())
        }
    ),
    directive!(
        "memcached-max-item-size",
        false,
        "Maximum bytes of an item, including its key and memcached's overhead of 60 bytes; 1kb to 512mb.",
        |c| c.memcached_max_item_size.to_string(),
        |c, v| {
            c.memcached_max_item_size = value::bytes(v[0], 1024, VALUE_BYTES_MAX)?;
            Ok(())
        }
    ),
    directive!(
        "memcached-enable-shutdown",
        false,
        "Allow memcached's command `shutdown` to stop the server.",
        |c| value::yes_no_text(c.memcached_enable_shutdown),
        |c, v| {
            c.memcached_enable_shutdown = value::yes_no(v[0])?;
            Ok(())
        }
    ),
];

const SQL: &[Directive] = &[
    directive!(
        "duramen-sql",
        false,
        0..=16,
        "Scripts of continuous SQL that run in the server, as docs/sql/checkpoints.md describes, in builds with the feature `sql`. Their \
         tables of the connector 'duramen' are in the served store.",
        |c| c.sql.join(" "),
        |c, v| {
            c.sql = v.iter().flat_map(|v| v.split_whitespace()).map(str::to_owned).collect();
            Ok(())
        }
    ),
    directive!(
        "duramen-sql-directory",
        false,
        "Directory for the state of the jobs of `duramen-sql`, with one store per job. Empty: the path of \
         the store with the suffix `.jobs`.",
        |c| c.sql_directory.clone(),
        |c, v| {
            c.sql_directory = v[0].to_owned();
            Ok(())
        }
    ),
    directive!(
        "duramen-sql-every",
        false,
        "Milliseconds between two checkpoints of the jobs of `duramen-sql`, 1 to 86400000. Results are \
         published at each checkpoint.",
        |c| c.sql_every.to_string(),
        |c, v| {
            c.sql_every = value::integer(v[0], 1, 86_400_000)?;
            Ok(())
        }
    ),
    directive!(
        "duramen-sql-existing",
        false,
        "What a new job of `duramen-sql` does with existing keys or files where it will write. `refuse`: \
         the job fails and names them. `overwrite`: it deletes them. `adopt`: it keeps them and replaces \
         them as it writes.",
        |c| c.sql_existing.clone(),
        |c, v| {
            c.sql_existing = EXISTING[value::one_of(v[0], &EXISTING)?].to_owned();
            Ok(())
        }
    ),
];

const NOTIFICATIONS: &[Directive] = &[
    directive!(
        "notify-keyspace-events",
        true,
        "Which events are published, as letters. K publishes by key, E by event. g $ l s h z t select \
         generic, string, list, set, hash, sorted set and stream commands. x: expired, e: evicted, m: \
         missed, n: new. A stands for all but m and n. Empty: no events.",
        |c| keyspace_events::text(c.notify_keyspace_events),
        |c, v| {
            c.notify_keyspace_events = keyspace_events::parse(v[0])?;
            Ok(())
        }
    ),
    directive!(
        "tracking-table-max-keys",
        true,
        "Maximum number of keys remembered for clients with CLIENT TRACKING. When it is exceeded, random \
         keys are invalidated, as in Redis. 0: no limit.",
        |c| c.tracking_table_max_keys.to_string(),
        |c, v| {
            c.tracking_table_max_keys = value::integer(v[0], 0, i64::MAX as u64)? as usize;
            Ok(())
        }
    ),
];

const SCRIPTS: &[Directive] = &[
    directive!(
        "busy-reply-threshold",
        true,
        "After so many milliseconds of a script, other clients are answered BUSY until it ends or is killed \
         (SCRIPT KILL, FUNCTION KILL). 0: never.",
        |c| c.busy_reply_threshold.to_string(),
        |c, v| {
            c.busy_reply_threshold = value::integer(v[0], 0, i64::MAX as u64)?;
            Ok(())
        }
    ),
    directive!(
        "lua-time-limit",
        true,
        "The older name of busy-reply-threshold.",
        |c| c.busy_reply_threshold.to_string(),
        |c, v| {
            c.busy_reply_threshold = value::integer(v[0], 0, i64::MAX as u64)?;
            Ok(())
        }
    ),
];

const PROCESS: &[Directive] = &[
    directive!(
        "pidfile",
        false,
        "File for the process ID. Empty: no file.",
        |c| c.pidfile.clone(),
        |c, v| {
            c.pidfile = v[0].to_owned();
            Ok(())
        }
    ),
    directive!(
        "loglevel",
        true,
        "Log verbosity. debug; verbose (adds connections); notice; warning (only lines that need action); \
         nothing.",
        |c| c.loglevel.word().to_owned(),
        |c, v| {
            c.loglevel = Level::at(value::one_of(v[0], &Level::WORDS)?);
            Ok(())
        }
    ),
    directive!(
        "logfile",
        false,
        "File for the log. It is opened for each line, so it may be moved or removed at any time. Empty: \
         standard output.",
        |c| c.logfile.clone(),
        |c, v| {
            c.logfile = v[0].to_owned();
            Ok(())
        }
    ),
    directive!(
        "duramen-log-format",
        true,
        "Form of log lines. `lines`: Redis's. `json`: an object for each line, with the members `time` (RFC 3339, UTC), \
         `level`, `pid` and `message`.",
        |c| c.log_format.word().to_owned(),
        |c, v| {
            c.log_format = Format::at(value::one_of(v[0], &Format::WORDS)?);
            Ok(())
        }
    ),
    directive!(
        "duramen-metrics",
        false,
        "Address for HTTP: `/metrics` for Prometheus, `/health`, `/ready`. IP:PORT, `localhost:PORT`, `*:PORT` for all \
         addresses, or a port alone, on 127.0.0.1. Port 0: any free port, which the log names. Empty: none. Everybody who \
         reaches the address may read these, without a password; see docs/metrics.md.",
        |c| c.metrics.clone(),
        |c, v| {
            if !v[0].is_empty() {
                address(v[0])?;
            }
            c.metrics = v[0].to_owned();
            Ok(())
        }
    ),
    directive!(
        "duramen-metrics-tls",
        false,
        "Whether the address of duramen-metrics speaks TLS (https), with the certificates of the tls- directives. \
         tls-auth-clients holds there too: with yes, its default, clients show a certificate.",
        |c| value::yes_no_text(c.metrics_tls),
        |c, v| {
            c.metrics_tls = value::yes_no(v[0])?;
            Ok(())
        }
    ),
    directive!(
        "duramen-console",
        false,
        "Whether a console is served at `/` of duramen-metrics: a page that shows the server and reads keys, with the \
         rights of a user. On a loopback address the default user needs no login if it has no password. Any other \
         address wants a user with a password, and duramen-metrics-tls; see docs/console.md.",
        |c| value::yes_no_text(c.console),
        |c, v| {
            c.console = value::yes_no(v[0])?;
            Ok(())
        }
    ),
    directive!(
        "enable-debug-command",
        false,
        "Who may run DEBUG: no (no client), local (clients on this machine) or yes (all clients). DEBUG \
         SLEEP and DEBUG HELP are always allowed.",
        |c| Allowed::WORDS[c.enable_debug_command as usize].to_owned(),
        |c, v| {
            c.enable_debug_command = Allowed::at(value::one_of(v[0], &Allowed::WORDS)?);
            Ok(())
        }
    ),
    directive!(
        "slowlog-log-slower-than",
        true,
        "Commands that take at least this many microseconds enter the slow log (SLOWLOG). 0 logs every \
         command, -1 none. Below 10000 the clock is also read after each command of a pipeline.",
        |c| c.slowlog_log_slower_than.to_string(),
        |c, v| {
            c.slowlog_log_slower_than = value::signed(v[0], -1, i64::MAX)?;
            Ok(())
        }
    ),
    directive!(
        "slowlog-max-len",
        true,
        "Maximum number of commands that the slow log keeps.",
        |c| c.slowlog_max_len.to_string(),
        |c, v| {
            c.slowlog_max_len = value::integer(v[0], 0, i64::MAX as u64)? as usize;
            Ok(())
        }
    ),
    directive!(
        "latency-monitor-threshold",
        true,
        "Events that take at least this many milliseconds are recorded (LATENCY). Events are a command, a \
         fast command and the wait for durability (aof-fsync-always). 0: none.",
        |c| c.latency_monitor_threshold.to_string(),
        |c, v| {
            c.latency_monitor_threshold = value::integer(v[0], 0, i64::MAX as u64)?;
            Ok(())
        }
    ),
    directive!(
        "latency-tracking",
        true,
        "Record latency histograms per command, for INFO latencystats and LATENCY HISTOGRAM. In a \
         pipeline, consecutive commands of one kind are recorded with their average.",
        |c| value::yes_no_text(c.latency_tracking),
        |c, v| {
            c.latency_tracking = value::yes_no(v[0])?;
            Ok(())
        }
    ),
    directive!(
        "latency-tracking-info-percentiles",
        true,
        0..=64,
        "Percentiles that INFO latencystats shows, up to 64, each from 0 to 100.",
        |c| {
            let all: Vec<String> = c.latency_tracking_info_percentiles.iter().map(f64::to_string).collect();
            all.join(" ")
        },
        |c, v| {
            c.latency_tracking_info_percentiles = value::percentiles(v)?;
            Ok(())
        }
    ),
];

const COMPATIBILITY: &[Directive] = &[
    directive!(
        "appendonly",
        true,
        "Always yes, because the store is its own log. Setting it to no has no effect and is logged.",
        |_| "yes".to_owned(),
        |c, v| {
            if !value::yes_no(v[0])? {
                c.notices.push("appendonly no has no effect: the store is its own log".to_owned());
            }
            Ok(())
        }
    ),
    directive!(
        "save",
        true,
        0..=64,
        "Has no effect, because every write is stored and there are no snapshots to schedule. The value is \
         kept for CONFIG GET. The command SAVE writes an RDB file.",
        |c| c.save.clone(),
        |c, v| {
            c.save = v.iter().flat_map(|v| v.split_whitespace()).collect::<Vec<_>>().join(" ");
            if !c.save.is_empty() {
                c.notices.push(
                    "save has no effect: every write is kept, there are no snapshots to schedule".to_owned(),
                );
            }
            Ok(())
        }
    ),
    directive!(
        "dir",
        false,
        "Directory of the RDB file that SAVE writes. Other paths do not depend on it.",
        |c| std::path::absolute(&c.dir).map_or_else(|_| c.dir.clone(), |dir| dir.display().to_string()),
        |c, v| {
            c.dir = v[0].to_owned();
            Ok(())
        }
    ),
    directive!(
        "dbfilename",
        false,
        "Name of the RDB file that SAVE writes; not a path.",
        |c| c.dbfilename.clone(),
        |c, v| {
            if v[0].is_empty() || v[0].contains('/') {
                return Err("dbfilename can't be a path, just a filename".to_owned());
            }
            c.dbfilename = v[0].to_owned();
            Ok(())
        }
    ),
    threshold!(
        "hash-max-listpack-entries",
        value::integer,
        "Maximum fields of a hash that OBJECT ENCODING reports as a listpack. Like the other thresholds, \
         it changes only what Redis would show of small values, such as their order, and not how they are \
         stored. A value that exceeds a threshold when it is written keeps the larger encoding.",
        hash.entries
    ),
    threshold!(
        "hash-max-ziplist-entries",
        value::integer,
        "Older name of `hash-max-listpack-entries`.",
        hash.entries
    ),
    threshold!(
        "hash-max-listpack-value",
        value::bytes,
        "Maximum bytes of a field or value in a hash that OBJECT ENCODING reports as a listpack.",
        hash.bytes
    ),
    threshold!(
        "hash-max-ziplist-value",
        value::bytes,
        "Older name of `hash-max-listpack-value`.",
        hash.bytes
    ),
    threshold!(
        "set-max-intset-entries",
        value::integer,
        "Maximum members of a set of integers that OBJECT ENCODING reports as an intset.",
        set.entries
    ),
    threshold!(
        "zset-max-listpack-entries",
        value::integer,
        "Maximum members of a sorted set that OBJECT ENCODING reports as a listpack.",
        sorted_set.entries
    ),
    threshold!(
        "zset-max-ziplist-entries",
        value::integer,
        "Older name of `zset-max-listpack-entries`.",
        sorted_set.entries
    ),
    threshold!(
        "zset-max-listpack-value",
        value::bytes,
        "Maximum bytes of a member in a sorted set that OBJECT ENCODING reports as a listpack.",
        sorted_set.bytes
    ),
    threshold!(
        "zset-max-ziplist-value",
        value::bytes,
        "Older name of `zset-max-listpack-value`.",
        sorted_set.bytes
    ),
    threshold!(
        "stream-node-max-bytes",
        value::bytes,
        "Maximum bytes of a stream's node. Each XADD writes the whole last node. 0: no limit.",
        stream.bytes
    ),
    threshold!(
        "stream-node-max-entries",
        value::integer,
        "Maximum entries of a stream's node. XADD and XTRIM with `~` remove whole nodes. 0: no limit.",
        stream.entries
    ),
    threshold!(
        "hll-sparse-max-bytes",
        value::bytes,
        "Maximum bytes of a HyperLogLog in the sparse encoding.",
        sparse_bytes
    ),
];

// Redis's, on which somebody relies: to go on without them would be worse than to stop.
pub(super) const NOT_SUPPORTED: &[(&str, &str)] = &[
    ("loadmodule", "modules"),
    ("replicaof", "replication"),
    ("slaveof", "replication"),
    ("masterauth", "replication"),
    ("min-replicas-to-write", "replication"),
    ("min-slaves-to-write", "replication"),
    ("cluster-enabled", "the cluster"),
];

/// The result of looking up a directive's name.
pub enum Known {
    /// It is one.
    Directive(&'static Directive),
    /// Redis has it; here it changes nothing.
    WithoutEffect,
    /// Redis has it; here it is not supported, for lack of this feature.
    NotSupported(&'static str),
    /// Unknown; this is the nearest known name.
    Unknown(Option<&'static str>),
}

/// Looks a name up, in any case.
pub fn find(name: &str) -> Known {
    let same = |other: &str| other.eq_ignore_ascii_case(name);
    if let Some(directive) = directives().find(|directive| same(directive.name)) {
        return Known::Directive(directive);
    }
    if let Some((_, what)) = NOT_SUPPORTED.iter().find(|(other, _)| same(other)) {
        return Known::NotSupported(what);
    }
    if inert::find(name).is_some() {
        return Known::WithoutEffect;
    }
    let lower = name.to_ascii_lowercase();
    let nearest = directives()
        .map(|directive| (distance(&lower, directive.name), directive.name))
        .min()
        // With a third of the letters wrong it is no longer a typing mistake.
        .filter(|(steps, nearest)| *steps <= nearest.len().div_ceil(3));
    Known::Unknown(nearest.map(|(_, name)| name))
}

/// The number of letters to insert, remove or replace to get from `a` to `b`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

fn output_limit_text(config: &Config) -> String {
    let parts = OUTPUT_CLASSES.iter().zip(&config.client_output_buffer_limit).map(|(class, limit)| {
        format!("{class} {} {} {}", limit.hard_bytes, limit.soft_bytes, limit.soft_seconds)
    });
    parts.collect::<Vec<_>>().join(" ")
}

fn output_limit(config: &mut Config, values: &[&str]) -> Result<(), String> {
    // CONFIG SET passes all of them in one value.
    let words: Vec<&str> = values.iter().flat_map(|value| value.split_whitespace()).collect();
    if words.is_empty() || !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".to_owned());
    }
    let mut limits = config.client_output_buffer_limit;
    for part in words.chunks_exact(4) {
        let class = if part[0].eq_ignore_ascii_case("replica") { "slave" } else { part[0] };
        let class = OUTPUT_CLASSES
            .iter()
            .position(|name| name.eq_ignore_ascii_case(class))
            .ok_or("Invalid client class specified in buffer limit configuration.")?;
        let error =
            |_| "Error in hard, soft or soft_seconds setting in buffer limit configuration.".to_owned();
        limits[class] = OutputLimit {
            hard_bytes: value::bytes(part[1], 0, i64::MAX as u64).map_err(error)?,
            soft_bytes: value::bytes(part[2], 0, i64::MAX as u64).map_err(error)?,
            soft_seconds: value::integer(part[3], 0, i32::MAX as u64).map_err(error)? as u32,
        };
    }
    config.client_output_buffer_limit = limits;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directive_accepts_its_own_value() {
        for directive in directives() {
            let mut config = Config::default();
            let text = (directive.get)(&config);
            (directive.set)(&mut config, &[&text])
                .unwrap_or_else(|error| panic!("{}: {error}", directive.name));
            assert_eq!((directive.get)(&config), text, "{}", directive.name);
            assert!(!directive.text.is_empty() && directive.values.0 <= directive.values.1);
        }
    }

    #[test]
    fn a_typing_error_gets_the_intended_name_suggested() {
        for (slip, wanted) in [
            ("prot", Some("port")),
            ("maxclient", Some("maxclients")),
            ("duramen-thread", Some("duramen-threads")),
            ("requirepas", Some("requirepass")),
            ("frobnicate", None),
        ] {
            assert!(matches!(find(slip), Known::Unknown(nearest) if nearest == wanted), "{slip}");
        }
        assert!(matches!(find("PORT"), Known::Directive(_)));
        assert!(matches!(find("slave-read-only"), Known::WithoutEffect));
        assert!(matches!(find("replicaof"), Known::NotSupported(_)));
    }
}

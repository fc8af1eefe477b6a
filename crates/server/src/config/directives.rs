//! Every directive, in one table: what CONFIG GET and SET, the help text and the documentation are made of.

use super::policy::Policy;
use super::{Allowed, ClientsMemory, Config, OUTPUT_CLASSES, OutputLimit, value};
use crate::log::Level;
use crate::notifications;
use std::path::PathBuf;

/// One directive.
pub struct Directive {
    /// Its name, as in redis.conf.
    pub name: &'static str,
    /// Whether CONFIG SET may change it while the server runs.
    pub mutable: bool,
    /// How many values it takes: least and most.
    pub values: (usize, usize),
    /// What it means, with units and bounds.
    pub text: &'static str,
    /// The present value, as redis.conf has it.
    pub get: fn(&Config) -> String,
    /// Takes new values, or tells why not.
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

// A size up to which Redis keeps a value in a compact encoding.
macro_rules! threshold {
    ($name:literal, $parse:path, $text:literal, $($place:ident).+) => {
        directive!($name, true, $text, |c| c.thresholds.$($place).+.to_string(), |c, v| {
            c.thresholds.$($place).+ = $parse(v[0], 0, i64::MAX as u64)? as _;
            Ok(())
        })
    };
}

const MIB: u64 = 1 << 20;
// What the engine keeps in one value.
const VALUE_BYTES_MAX: u64 = duramen::VALUE_BYTES_MAX as u64;

/// Words of `duramen-sql-existing`.
const EXISTING: [&str; 3] = ["refuse", "overwrite", "adopt"];

/// All directives, by subject.
pub const DIRECTIVES: &[Directive] = &[
    // --- network
    directive!(
        "bind",
        false,
        1..=16,
        "Addresses to listen on. A leading minus: no error where the address is not available. `*` is every address.",
        |c| c.bind.join(" "),
        |c, v| {
            c.bind = v.iter().flat_map(|v| v.split_whitespace()).map(str::to_owned).collect();
            Ok(())
        }
    ),
    directive!("port", false, "TCP port; 0 listens on none.", |c| c.port.to_string(), |c, v| {
        c.port = value::integer(v[0], 0, 65_535)? as u16;
        Ok(())
    }),
    directive!(
        "protected-mode",
        true,
        "Without a password, refuse clients that are not on this machine.",
        |c| value::yes_no_text(c.protected_mode),
        |c, v| {
            c.protected_mode = value::yes_no(v[0])?;
            Ok(())
        }
    ),
    directive!(
        "tcp-backlog",
        false,
        "Connections that may wait to be accepted; the kernel caps it at somaxconn.",
        |c| c.tcp_backlog.to_string(),
        |c, v| {
            c.tcp_backlog = value::integer(v[0], 0, i32::MAX as u64)? as u32;
            Ok(())
        }
    ),
    directive!(
        "tcp-keepalive",
        true,
        "Seconds of silence after which the kernel asks whether the client is alive; 0 never.",
        |c| c.tcp_keepalive.to_string(),
        |c, v| {
            c.tcp_keepalive = value::integer(v[0], 0, i32::MAX as u64)? as u32;
            Ok(())
        }
    ),
    directive!(
        "unixsocket",
        false,
        "Path of a Unix socket to listen on as well; empty for none.",
        |c| c.unixsocket.clone(),
        |c, v| {
            c.unixsocket = v[0].to_owned();
            Ok(())
        }
    ),
    directive!(
        "unixsocketperm",
        false,
        "Permissions of the Unix socket, in octal; 0 leaves them to the umask.",
        |c| format!("{:o}", c.unixsocketperm),
        |c, v| {
            c.unixsocketperm = u32::from_str_radix(v[0], 8)
                .ok()
                .filter(|mode| *mode <= 0o777)
                .ok_or("argument couldn't be parsed into an integer")?;
            Ok(())
        }
    ),
    // --- clients
    directive!(
        "timeout",
        true,
        "Seconds after which a client that neither sends nor reads is disconnected; 0 never.",
        |c| c.timeout.to_string(),
        |c, v| {
            c.timeout = value::integer(v[0], 0, i32::MAX as u64)? as u32;
            Ok(())
        }
    ),
    directive!(
        "maxclients",
        true,
        "Most clients at a time. The limit of open files is raised for them at start where that is allowed.",
        |c| c.maxclients.to_string(),
        |c, v| {
            c.maxclients = value::integer(v[0], 1, u64::from(u32::MAX))? as u32;
            Ok(())
        }
    ),
    directive!(
        "requirepass",
        true,
        "Password of the user `default`; empty for none.",
        |c| c.requirepass.clone(),
        |c, v| {
            c.requirepass = v[0].to_owned();
            Ok(())
        }
    ),
    directive!(
        "proto-max-bulk-len",
        true,
        "Longest argument and longest string, in bytes; 1mb to 512mb.",
        |c| c.proto_max_bulk_len.to_string(),
        |c, v| {
            c.proto_max_bulk_len = value::bytes(v[0], MIB, VALUE_BYTES_MAX)?;
            Ok(())
        }
    ),
    directive!(
        "client-query-buffer-limit",
        true,
        "Bytes of one request and of what MULTI has queued, after which its client is disconnected; at least 1mb.",
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
        "Replies that a client may leave unread: class (normal, replica, pubsub), hard limit, soft limit, seconds \
         that the soft limit may be exceeded; 0 for none. Unlike Redis, normal clients have a limit too.",
        output_limit_text,
        output_limit
    ),
    directive!(
        "maxmemory-clients",
        true,
        "Bytes that the buffers of all clients may take together, or with a percent sign a share of maxmemory; beyond it the one with the \
         largest is disconnected, unless it said CLIENT NO-EVICT. 0: a quarter of the machine's memory.",
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
    directive!("databases", false, "Number of databases, 1 to 128.", |c| c.databases.to_string(), |c, v| {
        c.databases = value::integer(v[0], 1, 128)? as u8;
        Ok(())
    }),
    // --- memory and durability
    directive!(
        "maxmemory",
        true,
        "Most bytes that the store may take on its medium; 0: what the medium has, of a file 1 TiB. Beyond it writes get an error, or keys \
         are evicted (`maxmemory-policy`). Lowered, it is reached by evicting; the medium keeps what it has.",
        |c| c.maxmemory.to_string(),
        |c, v| {
            c.maxmemory = value::bytes(v[0], 0, u64::MAX)?;
            Ok(())
        }
    ),
    directive!(
        "maxmemory-policy",
        true,
        "What is evicted when the store is full: noeviction (writes get an error), allkeys-lru, allkeys-lfu, \
         allkeys-random, or of keys that expire alone volatile-lru, volatile-lfu, volatile-random, volatile-ttl. See \
         docs/eviction.md. memcached's `-m` sets allkeys-lru, its `-M` noeviction.",
        |c| c.policy().name().to_owned(),
        |c, v| {
            c.maxmemory_policy = Some(Policy::named(v[0])?);
            Ok(())
        }
    ),
    directive!(
        "appendfsync",
        true,
        "When an acknowledged write survives a power failure: `always` before its reply (duramen-durability \
         every-write), `everysec` within a second (interval 1s), `no` within 30 seconds (interval 30s). A crash \
         of the process loses none of them.",
        |c| value::appendfsync_text(c.durability),
        |c, v| {
            c.durability = value::appendfsync(v[0])?;
            Ok(())
        }
    ),
    directive!("appendonly", true, "Always yes: the store is its own log.", |_| "yes".to_owned(), |c, v| {
        if !value::yes_no(v[0])? {
            c.notices.push("appendonly no has no effect: the store is its own log".to_owned());
        }
        Ok(())
    }),
    directive!(
        "save",
        true,
        0..=64,
        "Kept, and of no effect: every write is kept, there are no snapshots to schedule. SAVE writes one.",
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
        "Where SAVE writes its file. Other paths do not depend on it.",
        |c| std::path::absolute(&c.dir).map_or_else(|_| c.dir.clone(), |dir| dir.display().to_string()),
        |c, v| {
            c.dir = v[0].to_owned();
            Ok(())
        }
    ),
    directive!(
        "dbfilename",
        false,
        "The name of the RDB file that SAVE writes.",
        |c| c.dbfilename.clone(),
        |c, v| {
            if v[0].is_empty() || v[0].contains('/') {
                return Err("dbfilename can't be a path, just a filename".to_owned());
            }
            c.dbfilename = v[0].to_owned();
            Ok(())
        }
    ),
    // --- engine and medium
    directive!(
        "duramen-path",
        false,
        "Where the store lies: a file, a directory for one, or a device (/dev/dax0.0).",
        |c| c.path.display().to_string(),
        |c, v| {
            c.path = PathBuf::from(v[0]);
            Ok(())
        }
    ),
    directive!(
        "duramen-medium",
        false,
        "auto (from the path), devdax, fsdax, shm, file, volatile.",
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
        "When an acknowledged write survives a power failure: every-write, an interval (1s, 250ms), or manual (only \
         SAVE, BGSAVE and a clean shutdown keep anything).",
        |c| value::durability_text(c.durability),
        |c, v| {
            c.durability = value::durability(v)?;
            Ok(())
        }
    ),
    directive!(
        "duramen-index",
        false,
        "How keys are found: hash, or ordered, with which SCAN goes in the order of the keys and KEYS prefix* takes time \
         in proportion to its answer. A database gets it when it is first written, or flushed; until then it keeps what it has.",
        |c| c.index.to_string(),
        |c, v| {
            c.index = value::word(v[0])?;
            Ok(())
        }
    ),
    directive!(
        "duramen-index-cache-slots",
        false,
        "Slots of 8 bytes in which an ordered index keeps where keys were found last; 0: none.",
        |c| c.index_cache_slots.to_string(),
        |c, v| {
            c.index_cache_slots = value::integer(v[0], 0, 1 << 32)? as usize;
            Ok(())
        }
    ),
    directive!(
        "duramen-residence",
        false,
        "How much of the index outlives a crash: dram (nothing: after a crash every record is read), or persistent (all but \
         what was written of late). A clean shutdown keeps it in either case. Every start may choose anew.",
        |c| c.residence.to_string(),
        |c, v| {
            c.residence = value::word(v[0])?;
            Ok(())
        }
    ),
    directive!("duramen-len-max", false, "The same as maxmemory.", |c| c.maxmemory.to_string(), |c, v| {
        c.maxmemory = value::bytes(v[0], 0, u64::MAX)?;
        Ok(())
    }),
    directive!(
        "duramen-threads",
        false,
        "Worker threads; 0: one for each core.",
        |c| c.threads.to_string(),
        |c, v| {
            c.threads = value::integer(v[0], 0, 1024)? as usize;
            Ok(())
        }
    ),
    directive!(
        "duramen-checkpoint-bytes",
        false,
        "With residence persistent: bytes written between two checkpoints of the index, which is about what a start \
         after a crash reads; 0: an eighth of what the store uses, at least 64 MiB.",
        |c| c.checkpoint_bytes.to_string(),
        |c, v| {
            c.checkpoint_bytes = value::bytes(v[0], 0, u64::MAX)?;
            Ok(())
        }
    ),
    directive!(
        "duramen-recovery-threads",
        false,
        "Threads that read the store when it is opened; 0: one for each core.",
        |c| c.recovery_threads.to_string(),
        |c, v| {
            c.recovery_threads = value::integer(v[0], 0, 1024)? as usize;
            Ok(())
        }
    ),
    directive!(
        "duramen-flush-instruction",
        false,
        "How lines of the medium are flushed: auto, or one of clwb, clflushopt, clflush, nt-avx512, nt-avx2, nt-sse2, \
         movdir64b, order-only, dc-cvap, dc-cvac, for measuring.",
        |c| c.flush_instruction.map_or_else(|| "auto".to_owned(), |step| step.to_string()),
        |c, v| {
            c.flush_instruction =
                if v[0].eq_ignore_ascii_case("auto") { None } else { Some(value::word(v[0])?) };
            Ok(())
        }
    ),
    directive!(
        "duramen-compaction-rate",
        false,
        "Bytes that compaction may move in a second; 0: no limit.",
        |c| c.compaction_rate.to_string(),
        |c, v| {
            c.compaction_rate = value::bytes(v[0], 0, u64::MAX)?;
            Ok(())
        }
    ),
    directive!(
        "duramen-compaction-dead-percent",
        false,
        "Percent of the used space that may be dead before compaction begins, 5 to 90. Lower saves space, higher saves \
         work: at 50 the store takes up to twice what is live. Of a small store 45 may be, up to 64 MiB or a \
         sixteenth of `maxmemory`, until the medium has no more room, unless less than 25 is asked for.",
        |c| c.compaction_dead_percent.to_string(),
        |c, v| {
            c.compaction_dead_percent = value::integer(v[0], 5, 90)? as u32;
            Ok(())
        }
    ),
    threshold!(
        "hash-max-listpack-entries",
        value::integer,
        "Fields up to which OBJECT ENCODING calls a hash a listpack. These thresholds change what Redis would tell of small values, as their \
         order, and not how they are stored. A value that is beyond when it changes is so from then on.",
        hash.entries
    ),
    threshold!(
        "hash-max-ziplist-entries",
        value::integer,
        "The older name of hash-max-listpack-entries.",
        hash.entries
    ),
    threshold!(
        "hash-max-listpack-value",
        value::bytes,
        "Bytes of a field or value up to which OBJECT ENCODING calls a hash a listpack.",
        hash.bytes
    ),
    threshold!(
        "hash-max-ziplist-value",
        value::bytes,
        "The older name of hash-max-listpack-value.",
        hash.bytes
    ),
    threshold!(
        "set-max-intset-entries",
        value::integer,
        "Members up to which OBJECT ENCODING calls a set of integers an intset.",
        set.entries
    ),
    threshold!(
        "zset-max-listpack-entries",
        value::integer,
        "Members up to which OBJECT ENCODING calls a sorted set a listpack.",
        sorted_set.entries
    ),
    threshold!(
        "zset-max-ziplist-entries",
        value::integer,
        "The older name of zset-max-listpack-entries.",
        sorted_set.entries
    ),
    threshold!(
        "zset-max-listpack-value",
        value::bytes,
        "Bytes of a member up to which OBJECT ENCODING calls a sorted set a listpack.",
        sorted_set.bytes
    ),
    threshold!(
        "zset-max-ziplist-value",
        value::bytes,
        "The older name of zset-max-listpack-value.",
        sorted_set.bytes
    ),
    threshold!(
        "stream-node-max-bytes",
        value::bytes,
        "Bytes of a stream's node, of which all are written with each entry; 0: any number.",
        stream.bytes
    ),
    threshold!(
        "stream-node-max-entries",
        value::integer,
        "Entries of a stream's node, which XADD and XTRIM with ~ remove together; 0: any number.",
        stream.entries
    ),
    threshold!(
        "hll-sparse-max-bytes",
        value::bytes,
        "Bytes up to which the registers of a HyperLogLog are kept sparse.",
        sparse_bytes
    ),
    directive!(
        "duramen-packed-bytes-max",
        false,
        "Up to how many bytes a hash, list, set, sorted set or stream is one record, which every write to it writes anew. A \
         larger one has a record for each entry (a stream for each node of some 100 entries, and each that is pending), which is written by itself, and keeps it when it \
         shrinks; then each record takes 20 to 34 bytes of DRAM. Any start may change this: a value changes its form when it is written as a \
         whole or grows. A hash, set or \
         sorted set with a name longer than 64 KiB is one record whatever its size. A string of which a part is written has a record for each \
         KiB once it is longer than four times this, and than a KiB.",
        |c| c.packed_bytes_max.to_string(),
        |c, v| {
            c.packed_bytes_max = value::bytes(v[0], 0, u64::MAX)?;
            Ok(())
        }
    ),
    directive!(
        "duramen-on-corruption",
        false,
        "What a start does when it finds damage in the store, or when the server before had found some: refuse (it ends \
         with code 3 and changes nothing), or serve (the rest; a key whose record is damaged answers -CORRUPT until it is \
         set or deleted; see Damage in docs/operations.md for what a start after a crash does not know).",
        |c| c.on_corruption.to_string(),
        |c, v| {
            c.on_corruption = value::word(v[0])?;
            Ok(())
        }
    ),
    directive!(
        "duramen-verify-at-start",
        false,
        "Verify all records before the first client is served, also those that the index checkpoint of a clean shutdown spares \
         the start to read: it then takes as long as to read the whole store. What it finds is met as duramen-on-corruption \
         says. Without it they are verified in the background.",
        |c| value::yes_no_text(c.verify_at_start),
        |c, v| {
            c.verify_at_start = value::yes_no(v[0])?;
            Ok(())
        }
    ),
    // --- jobs
    directive!(
        "duramen-sql",
        false,
        0..=16,
        "Scripts of continuous SQL that run in the server, as docs/stream.md tells, in builds with the feature `sql`. Their \
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
        "Where jobs of duramen-sql keep their own state, a store for each; empty: the store's path with `.jobs` behind it.",
        |c| c.sql_directory.clone(),
        |c, v| {
            c.sql_directory = v[0].to_owned();
            Ok(())
        }
    ),
    directive!(
        "duramen-sql-every",
        false,
        "Milliseconds from checkpoint to checkpoint of these jobs: their results come as often.",
        |c| c.sql_every.to_string(),
        |c, v| {
            c.sql_every = value::integer(v[0], 1, 86_400_000)?;
            Ok(())
        }
    ),
    directive!(
        "duramen-sql-existing",
        false,
        "What one of these jobs does when it begins and keys or files of others stand where it will write: refuse (it fails, \
         and names them), overwrite (they go), adopt (they stay, and it replaces them).",
        |c| c.sql_existing.clone(),
        |c, v| {
            c.sql_existing = EXISTING[value::one_of(v[0], &EXISTING)?].to_owned();
            Ok(())
        }
    ),
    // --- messages
    directive!(
        "notify-keyspace-events",
        true,
        "Which changes of keys are published, by letters: K and E say where (by key, by event), the others what (g $ l s h z t, x \
         expired, e evicted; A is all of them; m missed, n new); empty: none.",
        |c| notifications::text(c.notify_keyspace_events),
        |c, v| {
            c.notify_keyspace_events = notifications::parse(v[0])?;
            Ok(())
        }
    ),
    directive!(
        "tracking-table-max-keys",
        true,
        "Keys that are remembered for clients that track what they read (CLIENT TRACKING); of more, some are told as if they had been \
         written; 0: no limit.",
        |c| c.tracking_table_max_keys.to_string(),
        |c, v| {
            c.tracking_table_max_keys = value::integer(v[0], 0, i64::MAX as u64)? as usize;
            Ok(())
        }
    ),
    // --- times
    directive!(
        "slowlog-log-slower-than",
        true,
        "Microseconds from which on a command enters the slow log (SLOWLOG); 0: each does, -1: none. Below 10000 the clock is read after \
         each command of a pipeline, too.",
        |c| c.slowlog_log_slower_than.to_string(),
        |c, v| {
            c.slowlog_log_slower_than = value::signed(v[0], -1, i64::MAX)?;
            Ok(())
        }
    ),
    directive!(
        "slowlog-max-len",
        true,
        "Commands that the slow log keeps.",
        |c| c.slowlog_max_len.to_string(),
        |c, v| {
            c.slowlog_max_len = value::integer(v[0], 0, i64::MAX as u64)? as usize;
            Ok(())
        }
    ),
    directive!(
        "latency-monitor-threshold",
        true,
        "Milliseconds from which on an event is noted (LATENCY): a command, a fast command, or the wait for durability \
         (aof-fsync-always); 0: none.",
        |c| c.latency_monitor_threshold.to_string(),
        |c, v| {
            c.latency_monitor_threshold = value::integer(v[0], 0, i64::MAX as u64)?;
            Ok(())
        }
    ),
    directive!(
        "latency-tracking",
        true,
        "Whether it is counted how long each command takes (INFO latencystats, LATENCY HISTOGRAM). In a pipeline, commands of one kind that \
         follow each other count with their average.",
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
        "Percentiles that INFO latencystats shows.",
        |c| {
            let all: Vec<String> = c.latency_tracking_info_percentiles.iter().map(f64::to_string).collect();
            all.join(" ")
        },
        |c, v| {
            c.latency_tracking_info_percentiles = value::percentiles(v)?;
            Ok(())
        }
    ),
    // --- memcached
    directive!(
        "memcached",
        false,
        "TCP port on which memcached's protocols are spoken, text, meta and binary; 0: none. With `port 0` the server speaks \
         nothing else.",
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
        "Addresses of that port; empty: those of `bind`.",
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
        "Path of a Unix socket for memcached's protocols; empty for none. Its permissions are `unixsocketperm`.",
        |c| c.memcached_socket.clone(),
        |c, v| {
            c.memcached_socket = v[0].to_owned();
            Ok(())
        }
    ),
    directive!(
        "memcached-database",
        false,
        "Database whose strings memcached's commands read and write too; empty: items have a table of their own, which no command of \
         Redis reaches.",
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
        "Bytes of the largest item, its key and memcached's 60 bytes for each among them; 1kb to 512mb.",
        |c| c.memcached_max_item_size.to_string(),
        |c, v| {
            c.memcached_max_item_size = value::bytes(v[0], 1024, VALUE_BYTES_MAX)?;
            Ok(())
        }
    ),
    directive!(
        "memcached-enable-shutdown",
        false,
        "Whether memcached's command `shutdown` ends the server.",
        |c| value::yes_no_text(c.memcached_enable_shutdown),
        |c, v| {
            c.memcached_enable_shutdown = value::yes_no(v[0])?;
            Ok(())
        }
    ),
    // --- process
    directive!(
        "pidfile",
        false,
        "File to write the process number to; empty for none.",
        |c| c.pidfile.clone(),
        |c, v| {
            c.pidfile = v[0].to_owned();
            Ok(())
        }
    ),
    directive!(
        "loglevel",
        true,
        "Which lines the log has: debug, verbose (connections too), notice, warning (only what somebody has to do something about), \
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
        "File for the log, which is opened for each line, so that it can be moved away at any time; empty for standard output.",
        |c| c.logfile.clone(),
        |c, v| {
            c.logfile = v[0].to_owned();
            Ok(())
        }
    ),
    directive!(
        "enable-debug-command",
        false,
        "Who may say DEBUG, but for SLEEP and HELP: no, local (this machine's clients), yes.",
        |c| Allowed::WORDS[c.enable_debug_command as usize].to_owned(),
        |c, v| {
            c.enable_debug_command = Allowed::at(value::one_of(v[0], &Allowed::WORDS)?);
            Ok(())
        }
    ),
];

// Redis's, which change nothing that a client could tell; a redis.conf that has them is accepted.
const WITHOUT_EFFECT: &[&str] = &[
    "active-defrag-cycle-max",
    "active-defrag-cycle-min",
    "active-defrag-ignore-bytes",
    "active-defrag-max-scan-fields",
    "active-defrag-threshold-lower",
    "active-defrag-threshold-upper",
    "active-expire-effort",
    "activedefrag",
    "activerehashing",
    "always-show-logo",
    "aof-load-truncated",
    "aof-rewrite-incremental-fsync",
    "aof-timestamp-enabled",
    "aof-use-rdb-preamble",
    "appenddirname",
    "appendfilename",
    "auto-aof-rewrite-min-size",
    "auto-aof-rewrite-percentage",
    "daemonize",
    "disable-thp",
    "dynamic-hz",
    "hz",
    "io-threads",
    "io-threads-do-reads",
    "jemalloc-bg-thread",
    "lazyfree-lazy-eviction",
    "lazyfree-lazy-expire",
    "lazyfree-lazy-server-del",
    "lazyfree-lazy-user-del",
    "lazyfree-lazy-user-flush",
    "lfu-decay-time",
    "lfu-log-factor",
    "list-compress-depth",
    "list-max-listpack-size",
    "list-max-ziplist-size",
    "maxmemory-eviction-tenacity",
    "maxmemory-samples",
    "no-appendfsync-on-rewrite",
    "oom-score-adj",
    "oom-score-adj-values",
    "rdb-del-sync-files",
    "rdb-save-incremental-fsync",
    "rdbchecksum",
    "rdbcompression",
    "repl-backlog-size",
    "repl-backlog-ttl",
    "repl-disable-tcp-nodelay",
    "repl-diskless-load",
    "repl-diskless-sync",
    "repl-diskless-sync-delay",
    "repl-diskless-sync-max-replicas",
    "repl-ping-replica-period",
    "repl-timeout",
    "replica-lazy-flush",
    "replica-priority",
    "replica-read-only",
    "replica-serve-stale-data",
    "sanitize-dump-payload",
    "set-proc-title",
    "stop-writes-on-bgsave-error",
    "supervised",
    "syslog-enabled",
    "syslog-facility",
    "syslog-ident",
    "acllog-max-len",
    "acl-pubsub-default",
    "lua-time-limit",
    "busy-reply-threshold",
    "crash-log-enabled",
    "crash-memcheck-enabled",
    "proc-title-template",
    "shutdown-timeout",
    "shutdown-on-sigterm",
    "shutdown-on-sigint",
    "locale-collate",
];

// Redis's, on which somebody relies: to go on without them would be worse than to stop.
const NOT_SUPPORTED: &[(&str, &str)] = &[
    ("aclfile", "users other than `default`"),
    ("user", "users other than `default`"),
    ("rename-command", "renamed commands"),
    ("loadmodule", "modules"),
    ("replicaof", "replication"),
    ("slaveof", "replication"),
    ("masterauth", "replication"),
    ("cluster-enabled", "the cluster"),
    ("tls-port", "TLS"),
];

/// What is known about a directive's name.
pub enum Known {
    /// It is one.
    Directive(&'static Directive),
    /// Redis has it; here it changes nothing.
    WithoutEffect,
    /// Redis has it; here it is not supported, and this is what it would need.
    NotSupported(&'static str),
    /// Nobody has it; this is the nearest that is known.
    Unknown(Option<&'static str>),
}

/// Looks a name up, in any case. `replica-…` and `slave-…` names are the same to Redis.
pub fn find(name: &str) -> Known {
    let same = |other: &str| other.eq_ignore_ascii_case(name);
    if let Some(directive) = DIRECTIVES.iter().find(|directive| same(directive.name)) {
        return Known::Directive(directive);
    }
    if WITHOUT_EFFECT.iter().any(|other| same(other) || same(&other.replacen("replica", "slave", 1))) {
        return Known::WithoutEffect;
    }
    if let Some((_, what)) = NOT_SUPPORTED.iter().find(|(other, _)| same(other)) {
        return Known::NotSupported(what);
    }
    let lower = name.to_ascii_lowercase();
    let nearest = DIRECTIVES
        .iter()
        .map(|directive| (distance(&lower, directive.name), directive.name))
        .min()
        // A third of the letters wrong is no longer a slip.
        .filter(|(steps, nearest)| *steps <= nearest.len().div_ceil(3));
    Known::Unknown(nearest.map(|(_, name)| name))
}

/// Letters to insert, remove or replace to get from `a` to `b`.
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
    // CONFIG SET gives all of them in one value.
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
    fn every_directive_takes_back_what_it_gives() {
        for directive in DIRECTIVES {
            let mut config = Config::default();
            let text = (directive.get)(&config);
            (directive.set)(&mut config, &[&text])
                .unwrap_or_else(|error| panic!("{}: {error}", directive.name));
            assert_eq!((directive.get)(&config), text, "{}", directive.name);
            assert!(!directive.text.is_empty() && directive.values.0 <= directive.values.1);
        }
    }

    #[test]
    fn a_slip_finds_the_name_that_was_meant() {
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
        assert!(matches!(find("user"), Known::NotSupported(_)));
    }
}

//! The flags of commands, and their ACL categories.

use super::names::named_set;

named_set! {
    /// The flags of a command: a set.
    Flags {
        /// May change the keyspace.
        WRITE = 0, "write";
        /// Reads keys and changes none.
        READONLY = 1, "readonly";
        /// May need more room on the medium.
        DENYOOM = 2, "denyoom";
        /// For administrators.
        ADMIN = 3, "admin";
        /// Publishes or subscribes.
        PUBSUB = 4, "pubsub";
        /// Not from scripts.
        NOSCRIPT = 5, "noscript";
        /// May wait for another client.
        BLOCKING = 6, "blocking";
        /// Allowed while the store is being opened.
        LOADING = 7, "loading";
        /// Allowed on a replica without its primary.
        STALE = 8, "stale";
        /// Not shown to MONITOR.
        SKIP_MONITOR = 9, "skip_monitor";
        /// Not entered in the slow log.
        SKIP_SLOWLOG = 10, "skip_slowlog";
        /// Constant or logarithmic time.
        FAST = 11, "fast";
        /// Allowed before AUTH.
        NO_AUTH = 12, "no_auth";
        /// May be replicated though it writes no key itself.
        MAY_REPLICATE = 13, "may_replicate";
        /// May be called without keys though it has some.
        NO_MANDATORY_KEYS = 14, "no_mandatory_keys";
        /// Not while the store is being loaded in the background.
        NO_ASYNC_LOADING = 15, "no_async_loading";
        /// Not inside MULTI.
        NO_MULTI = 16, "no_multi";
        /// Key positions depend on the arguments.
        MOVABLE_KEYS = 17, "movablekeys";
        /// Allowed while a script is busy.
        ALLOW_BUSY = 18, "allow_busy";
    }
}

impl Flags {
    // Internal; never sent to clients.
    /// Runs at once even when a MULTI is open.
    pub const NOT_QUEUED: Self = Self(1 << 31);
}

named_set! {
    /// The ACL categories of a command: a set.
    Categories {
        /// About keys of any type.
        KEYSPACE = 0, "keyspace";
        /// Reads keys.
        READ = 1, "read";
        /// Writes keys.
        WRITE = 2, "write";
        /// About sets.
        SET = 3, "set";
        /// About sorted sets.
        SORTED_SET = 4, "sortedset";
        /// About lists.
        LIST = 5, "list";
        /// About hashes.
        HASH = 6, "hash";
        /// About strings.
        STRING = 7, "string";
        /// About bitmaps.
        BITMAP = 8, "bitmap";
        /// About HyperLogLogs.
        HYPER_LOG_LOG = 9, "hyperloglog";
        /// About places on earth.
        GEO = 10, "geo";
        /// About streams.
        STREAM = 11, "stream";
        /// Publishes or subscribes.
        PUBSUB = 12, "pubsub";
        /// For administrators.
        ADMIN = 13, "admin";
        /// Constant or logarithmic time.
        FAST = 14, "fast";
        /// Whatever is not fast.
        SLOW = 15, "slow";
        /// May wait for another client.
        BLOCKING = 16, "blocking";
        /// Dangerous commands.
        DANGEROUS = 17, "dangerous";
        /// About the connection.
        CONNECTION = 18, "connection";
        /// About transactions.
        TRANSACTION = 19, "transaction";
        /// About scripts.
        SCRIPTING = 20, "scripting";
    }
}

impl Categories {
    /// Those of values of many elements, or in pieces.
    pub const OF_ELEMENTS: Self = Self::SET
        .with(Self::SORTED_SET)
        .with(Self::LIST)
        .with(Self::HASH)
        .with(Self::GEO)
        .with(Self::STREAM)
        .with(Self::BITMAP);
}

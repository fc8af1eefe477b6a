//! The cases: what each command can grow with. [`super::template`] describes their lines.
//!
//! The file is longer than others because it is one list.

use super::template::Line;

/// A command, and a quantity that it can grow with.
pub struct Case {
    /// The command's group in Redis's documentation.
    pub family: &'static str,
    /// The quantity that is n.
    pub grows: &'static str,
    /// Lines that prepare the data.
    pub fill: &'static [&'static str],
    /// Lines that are measured.
    pub ask: &'static [&'static str],
    /// The data is prepared again before each round, because the measured commands change it.
    pub is_anew: bool,
    /// The largest n: above it Redis itself takes too long, or a machine has no more of it.
    pub most: usize,
}

impl Case {
    /// The measured commands without `each: `, cut after 60 characters.
    pub fn title(&self) -> String {
        let mut title = self.ask.join("; ").replace("each: ", "").replace("{s}", " ").replace("{1}", "[1]");
        if let Some((at, _)) = title.char_indices().nth(60) {
            title.truncate(at);
            title.push('…');
        }
        title
    }

    /// The commands that prepare the data and those that are measured, without subcommands.
    pub fn commands(&self) -> impl Iterator<Item = String> {
        let lines = self.fill.iter().chain(self.ask).flat_map(|line| Line::of(line, 1).commands);
        lines.filter_map(|words| words.first().map(|name| name.to_lowercase()))
    }

    /// The names of the measured commands, as in COMMAND LIST.
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for line in self.ask {
            let line = line.strip_prefix("each: ").unwrap_or(line);
            let words: Vec<String> = line.split_whitespace().take(2).map(str::to_lowercase).collect();
            names.push(words[0].clone());
            names.push(words.join(" "));
        }
        names
    }
}

const ALL: usize = usize::MAX;
/// Connections: each needs a file in this program and one in the server.
const CLIENTS: usize = 2_000;

/// A case that is measured on the same data in all rounds.
const fn case(
    family: &'static str,
    grows: &'static str,
    fill: &'static [&'static str],
    ask: &'static [&'static str],
) -> Case {
    Case { family, grows, fill, ask, is_anew: false, most: ALL }
}

impl Case {
    const fn anew(mut self) -> Case {
        self.is_anew = true;
        self
    }

    const fn most(mut self, most: usize) -> Case {
        self.most = most;
        self
    }
}

const KEYS: &[&str] = &["MSET [k{i} v]"];
const VALUE: &[&str] = &["SET s {v}"];
const SPARSE: &[&str] = &["SETBIT b {kib} 1"];
const HASH: &[&str] = &["HSET h [f{i} v]"];
const TIMED: &[&str] = &["HSET h [f{i} v]", "HEXPIRE h 1000 FIELDS {n} [f{i}]"];
const LIST: &[&str] = &["RPUSH l [e{i}]"];
const LISTS: &[&str] = &["each: RPUSH l{i} a"];
const SET: &[&str] = &["SADD s [m{i}]", "SADD one m{i}", "SADD other [o{i}]"];
const SETS: &[&str] = &["each: SADD s{i} a b"];
const ZSET: &[&str] = &["ZADD z [{i} m{i}]", "ZADD one 1 m{i}", "ZADD other [{i} o{i}]"];
const ZSETS: &[&str] = &["each: ZADD z{i} 1 a 2 b"];
const LEX: &[&str] = &["ZADD z [0 m{i}]"];
const STREAM: &[&str] = &["each: XADD x 1{i}-1 f v"];
const STREAMS: &[&str] = &["each: XADD x{i} 1-1 f v"];
const PENDING: &[&str] = &[
    "each: XADD x 1{i}-1 f v",
    "XGROUP CREATE x g 0",
    "XREADGROUP GROUP g many COUNT {l} STREAMS x >",
    "XREADGROUP GROUP g one COUNT 1 STREAMS x >",
];
const CONSUMERS: &[&str] = &[
    "XGROUP CREATE x g 0 MKSTREAM",
    "each: XGROUP CREATECONSUMER x g c{i}",
    "XADD x 1-1 f v",
    "XADD x 2-1 f v",
    "XADD x 3-1 f v",
    "XADD x 4-1 f v",
    "XADD x 5-1 f v",
];
const GROUPS: &[&str] = &[
    "each: XGROUP CREATE x g{i} 0 MKSTREAM",
    "XADD x 1-1 f v",
    "XADD x 2-1 f v",
    "XADD x 3-1 f v",
    "XADD x 4-1 f v",
    "XADD x 5-1 f v",
];
const PLACES: &[&str] = &["GEOADD g [{x} {y} m{i}]"];
const LOGS: &[&str] = &["PFADD p [e{i}]"];

/// All cases.
pub const CASES: &[Case] = &[
    // --- string
    case("string", "keys", &[], &["MSET [k{i} v]"]),
    case(
        "string",
        "keys, with events of class n",
        &["CONFIG SET notify-keyspace-events KEAn"],
        &["MSET [k{i} v]"],
    )
    .anew(),
    case("string", "keys", &[], &["MSETNX [k{i} v]"]).anew(),
    case("string", "keys", KEYS, &["MGET [k{i}]"]),
    case("string", "bytes", &[], &["SET s {v}"]),
    case("string", "bytes", VALUE, &["GET s"]),
    case("string", "bytes", VALUE, &["GETEX s PERSIST"]),
    case("string", "bytes", VALUE, &["GETDEL s"]).anew(),
    case("string", "bytes", VALUE, &["GETSET s v"]).anew(),
    case("string", "bytes", VALUE, &["GETRANGE s 0 -1"]),
    case("string", "bytes", VALUE, &["SUBSTR s 0 -1"]),
    case("string", "bytes", VALUE, &["STRLEN s"]),
    case("string", "bytes", VALUE, &["APPEND s x"]),
    case("string", "bytes", VALUE, &["APPEND s {v}"]).anew(),
    case("string", "bytes", VALUE, &["SETRANGE s {h} x"]),
    case("string", "bytes before a new one", &[], &["SETRANGE s {n} x"]).anew(),
    case("string", "bytes", &[], &["SETEX s 100 {v}"]),
    case("string", "bytes", &[], &["PSETEX s 100000 {v}"]),
    case("string", "bytes", &[], &["SETNX s {v}"]).anew(),
    // Redis compares each byte with every other.
    case("string", "bytes", &["SET s {v}", "SET t {v}"], &["LCS s t LEN"]).most(1_000),
    // --- bitmap
    case("bitmap", "KiB of a hole", &[], &["SETBIT b {kib} 1"]).anew(),
    case("bitmap", "KiB of a hole", SPARSE, &["SETBIT b 4097 1"]),
    case("bitmap", "KiB of a hole", SPARSE, &["GETBIT b {kib}"]),
    case("bitmap", "KiB of a hole", SPARSE, &["BITCOUNT b"]),
    case("bitmap", "KiB of a hole", SPARSE, &["BITPOS b 1"]),
    case("bitmap", "KiB of a hole", SPARSE, &["BITOP OR dest b b"]),
    case("bitmap", "KiB of a hole", SPARSE, &["BITOP NOT dest b"]).most(10_000),
    case("bitmap", "KiB of a hole", SPARSE, &["COPY b dest REPLACE"]),
    case("bitmap", "KiB of a hole", &[], &["BITFIELD b SET u8 {kib} 1 GET u8 0"]).anew(),
    case("bitmap", "KiB of a hole", SPARSE, &["BITFIELD b GET u8 0 GET u8 {kib}"]),
    case("bitmap", "KiB of a hole", SPARSE, &["BITFIELD_RO b GET u8 0 GET u8 {kib}"]),
    case("bitmap", "arguments", &[], &["BITFIELD b [SET u8 #5 1]"]),
    case("bitmap", "bytes", VALUE, &["BITCOUNT s"]),
    case("bitmap", "keys", KEYS, &["BITOP OR dest [k{i}]"]),
    // --- hash
    case("hash", "arguments", &[], &["HSET h [f{i} v]"]).anew(),
    case("hash", "arguments", &[], &["HMSET h [f{i} v]"]).anew(),
    case("hash", "arguments", HASH, &["HMGET h [f{i}]"]),
    case("hash", "arguments", HASH, &["HDEL h [f{i}]"]).anew(),
    case("hash", "fields", HASH, &["HGETALL h"]),
    case("hash", "fields", HASH, &["HKEYS h"]),
    case("hash", "fields", HASH, &["HVALS h"]),
    case("hash", "fields", HASH, &["HRANDFIELD h {l} WITHVALUES"]),
    case("hash", "fields", HASH, &["HRANDFIELD h 3"]),
    case("hash", "fields", HASH, &["HRANDFIELD h -{n}"]),
    case("hash", "fields", HASH, &["HSCAN h 0 COUNT 10"]),
    case("hash", "fields", HASH, &["HSCAN h 0 COUNT {n}"]),
    case("hash", "fields", HASH, &["HSET h f{i} w"]),
    case("hash", "fields", HASH, &["HSETNX h new v"]).anew(),
    case("hash", "fields", HASH, &["HGET h f{i}"]),
    case("hash", "fields", HASH, &["HEXISTS h f{i}"]),
    case("hash", "fields", HASH, &["HSTRLEN h f{i}"]),
    case("hash", "fields", HASH, &["HINCRBY h count 1"]),
    case("hash", "fields", HASH, &["HINCRBYFLOAT h count 1.5"]),
    case("hash", "fields", HASH, &["HLEN h"]),
    // --- hash with times, of Redis 7.4
    case("hash with times", "arguments", HASH, &["HEXPIRE h 1000 FIELDS {n} [f{i}]"]).anew(),
    case("hash with times", "arguments", TIMED, &["HPEXPIRE h 1000000 GT FIELDS {n} [f{i}]"]).anew(),
    case("hash with times", "arguments", HASH, &["HEXPIREAT h 4000000000 FIELDS {n} [f{i}]"]).anew(),
    case("hash with times", "arguments", HASH, &["HPEXPIREAT h 1 FIELDS {n} [f{i}]"]).anew(),
    case("hash with times", "arguments", TIMED, &["HPERSIST h FIELDS {n} [f{i}]"]).anew(),
    case("hash with times", "arguments", TIMED, &["HTTL h FIELDS {n} [f{i}]"]),
    case("hash with times", "arguments", TIMED, &["HPTTL h FIELDS {n} [f{i}]"]),
    case("hash with times", "arguments", TIMED, &["HEXPIRETIME h FIELDS {n} [f{i}]"]),
    case("hash with times", "arguments", TIMED, &["HPEXPIRETIME h FIELDS {n} [f{i}]"]),
    case("hash with times", "fields", HASH, &["HEXPIRE h 1000 FIELDS 1 f{i}"]),
    case("hash with times", "fields", TIMED, &["HEXPIRE h 1000 FIELDS 1 f{i}"]),
    case("hash with times", "fields", TIMED, &["HPERSIST h FIELDS 1 f{i}"]),
    case("hash with times", "fields", TIMED, &["HTTL h FIELDS 1 f{i}"]),
    case("hash with times", "fields", TIMED, &["HGETALL h"]),
    case("hash with times", "fields", TIMED, &["HSET h f{i} w"]),
    case("hash with times", "fields", TIMED, &["HLEN h"]),
    case("hash with times", "fields", TIMED, &["HRANDFIELD h 3"]),
    case("hash with times", "fields", TIMED, &["HSCAN h 0 COUNT 10"]),
    case("hash with times", "fields", TIMED, &["DEL h"]).anew(),
    // --- list
    case("list", "arguments", &[], &["RPUSH l [e{i}]"]).anew(),
    case("list", "arguments", &[], &["LPUSH l [e{i}]"]).anew(),
    case("list", "arguments", &["RPUSH l a"], &["RPUSHX l [e{i}]"]).anew(),
    case("list", "arguments", &["RPUSH l a"], &["LPUSHX l [e{i}]"]).anew(),
    case("list", "elements", LIST, &["LRANGE l 0 -1"]),
    case("list", "elements", LIST, &["LRANGE l {h} {h}"]),
    case("list", "elements", LIST, &["LINDEX l {h}"]),
    case("list", "elements", LIST, &["LSET l {h} x"]),
    case("list", "elements", LIST, &["LINSERT l BEFORE e{i} x"]),
    case("list", "elements", LIST, &["LREM l 0 none"]),
    case("list", "elements", LIST, &["LREM l 1 e{i}"]).anew(),
    case("list", "elements", LIST, &["LPOS l none"]),
    case("list", "elements", LIST, &["LTRIM l {h} -1"]).anew(),
    case("list", "elements", LIST, &["LPOP l {n}"]).anew(),
    case("list", "elements", LIST, &["RPOP l {n}"]).anew(),
    case("list", "elements", LIST, &["LPOP l"]),
    case("list", "elements", LIST, &["LMPOP 1 l LEFT COUNT {n}"]).anew(),
    case("list", "elements", LIST, &["LMOVE l l LEFT RIGHT"]),
    case("list", "elements", LIST, &["RPOPLPUSH l l"]),
    case("list", "elements", LIST, &["LLEN l"]),
    case("list", "absent keys", &[], &["BLPOP [k{i}] 0.001"]),
    case("list", "absent keys", &[], &["BRPOP [k{i}] 0.001"]),
    case("list", "absent keys", &[], &["BLMPOP 0.001 {n} [k{i}] LEFT"]),
    case("list", "keys, of which only the last exists", &["RPUSH l [e{i}]"], &["BLPOP [k{i}] l 0"]),
    case("list", "absent keys", &[], &["LMPOP {n} [k{i}] LEFT"]),
    case("list", "elements", LIST, &["BLMOVE l l LEFT RIGHT 0"]),
    case("list", "elements", LIST, &["BRPOPLPUSH l l 0"]),
    case("list", "waiters for the key", &["blocked: BLPOP l 0"], &["RPUSH l a"]).anew().most(CLIENTS),
    case("list", "waiters for the key", &["blocked: BLPOP l 0"], &["RPUSH l [e{i}]"]).anew().most(CLIENTS),
    case("list", "waiters for other keys", &["blocked: BLPOP l{i} 0"], &["RPUSH l a"]).most(CLIENTS),
    case("list", "waiters in a chain", &["blocked: BLMOVE l{i} l LEFT RIGHT 0"], &["RPUSH l{i} a"])
        .anew()
        .most(CLIENTS),
    // --- set
    case("set", "arguments", &[], &["SADD s [m{i}]"]).anew(),
    case("set", "arguments", SET, &["SREM s [m{i}]"]).anew(),
    case("set", "arguments", SET, &["SMISMEMBER s [m{i}]"]),
    case("set", "members", SET, &["SMEMBERS s"]),
    case("set", "members", SET, &["SISMEMBER s m{i}"]),
    case("set", "members", SET, &["SRANDMEMBER s 3"]),
    case("set", "members", SET, &["SRANDMEMBER s {l}"]),
    case("set", "members", SET, &["SPOP s"]),
    case("set", "members", SET, &["SPOP s {h}"]).anew(),
    case("set", "members", SET, &["SMOVE s other m{i}"]).anew(),
    case("set", "members", SET, &["SCARD s"]),
    case("set", "members", SET, &["SSCAN s 0 COUNT 10"]),
    case("set", "members", SET, &["SSCAN s 0 COUNT {n}"]),
    case("set", "members", SET, &["SINTER s one"]),
    case("set", "members", SET, &["SINTER s s"]),
    case("set", "members", SET, &["SINTER s other"]),
    case("set", "members", SET, &["SINTERSTORE dest s one"]),
    case("set", "members", SET, &["SINTERSTORE dest s s"]),
    case("set", "members", SET, &["SINTERCARD 2 s s"]),
    case("set", "members", SET, &["SINTERCARD 2 s s LIMIT 3"]),
    case("set", "members", SET, &["SUNION s other"]),
    case("set", "members", SET, &["SUNIONSTORE dest s other"]),
    case("set", "members", SET, &["SDIFF s other"]),
    case("set", "members", SET, &["SDIFF one s"]),
    case("set", "members", SET, &["SDIFFSTORE dest s other"]),
    case("set", "keys", SETS, &["SINTER [s{i}]"]),
    case("set", "keys", SETS, &["SUNION [s{i}]"]),
    case("set", "keys", SETS, &["SDIFF [s{i}]"]),
    case("set", "keys", SETS, &["SINTERCARD {n} [s{i}] LIMIT 1"]),
    // --- sorted set
    case("sorted-set", "arguments", &[], &["ZADD z [{i} m{i}]"]).anew(),
    case("sorted-set", "arguments", ZSET, &["ZREM z [m{i}]"]).anew(),
    case("sorted-set", "arguments", ZSET, &["ZMSCORE z [m{i}]"]),
    case("sorted-set", "members", ZSET, &["ZADD z 5 m{i}"]),
    case("sorted-set", "members", ZSET, &["ZINCRBY z 1 m{i}"]),
    case("sorted-set", "members", ZSET, &["ZRANGE z 0 -1 WITHSCORES"]),
    case("sorted-set", "members", ZSET, &["ZREVRANGE z 0 -1"]),
    case("sorted-set", "members", ZSET, &["ZRANGE z {h} {h}"]),
    case("sorted-set", "members", ZSET, &["ZRANGE z 0 +inf BYSCORE LIMIT {h} 3"]),
    case("sorted-set", "members", ZSET, &["ZRANGEBYSCORE z {h} {h}"]),
    case("sorted-set", "members", ZSET, &["ZREVRANGEBYSCORE z {h} {h}"]),
    case("sorted-set", "members", ZSET, &["ZCOUNT z 1 {h}"]),
    case("sorted-set", "members", LEX, &["ZRANGEBYLEX z (m{i} + LIMIT 0 1"]),
    case("sorted-set", "members", ZSET, &["ZRANK z m{i}"]),
    case("sorted-set", "members", ZSET, &["ZREVRANK z m{i}"]),
    case("sorted-set", "members", ZSET, &["ZSCORE z m{i}"]),
    case("sorted-set", "members", ZSET, &["ZCARD z"]),
    case("sorted-set", "members", ZSET, &["ZPOPMIN z"]),
    case("sorted-set", "members", ZSET, &["ZPOPMIN z {n}"]).anew(),
    case("sorted-set", "members", ZSET, &["ZPOPMAX z {n}"]).anew(),
    case("sorted-set", "members", ZSET, &["ZMPOP 1 z MIN COUNT {n}"]).anew(),
    case("sorted-set", "members", ZSET, &["ZRANDMEMBER z 3"]),
    case("sorted-set", "members", ZSET, &["ZRANDMEMBER z {l} WITHSCORES"]),
    case("sorted-set", "members", ZSET, &["ZSCAN z 0 COUNT 10"]),
    case("sorted-set", "members", ZSET, &["ZSCAN z 0 COUNT {n}"]),
    case("sorted-set", "members", ZSET, &["ZREMRANGEBYRANK z {h} -1"]).anew(),
    case("sorted-set", "members", ZSET, &["ZREMRANGEBYSCORE z {h} {n}"]).anew(),
    case("sorted-set", "members", ZSET, &["ZRANGESTORE dest z {h} {h}"]),
    case("sorted-set", "members", ZSET, &["ZRANGESTORE dest z 0 -1"]),
    case("sorted-set", "members", ZSET, &["ZINTER 2 z one"]),
    case("sorted-set", "members", ZSET, &["ZINTER 2 z z"]),
    case("sorted-set", "members", ZSET, &["ZINTERSTORE dest 2 z one"]),
    case("sorted-set", "members", ZSET, &["ZINTERSTORE dest 2 z z"]),
    case("sorted-set", "members", ZSET, &["ZINTERCARD 2 z z"]),
    case("sorted-set", "members", ZSET, &["ZINTERCARD 2 z z LIMIT 3"]),
    case("sorted-set", "members", ZSET, &["ZUNION 2 z other"]),
    case("sorted-set", "members", ZSET, &["ZUNIONSTORE dest 2 z other"]),
    case("sorted-set", "members", ZSET, &["ZDIFF 2 z other"]),
    case("sorted-set", "members", ZSET, &["ZDIFF 2 one z"]),
    case("sorted-set", "members", ZSET, &["ZDIFFSTORE dest 2 z other"]),
    case("sorted-set", "keys", ZSETS, &["ZINTER {n} [z{i}]"]),
    case("sorted-set", "keys", ZSETS, &["ZUNION {n} [z{i}]"]),
    case("sorted-set", "keys", ZSETS, &["ZDIFF {n} [z{i}]"]),
    case("sorted-set", "keys", ZSETS, &["ZINTERCARD {n} [z{i}] LIMIT 1"]),
    case("sorted-set", "absent keys", &[], &["ZMPOP {n} [k{i}] MIN"]),
    case("sorted-set", "absent keys", &[], &["BZPOPMIN [k{i}] 0.001"]),
    case("sorted-set", "absent keys", &[], &["BZPOPMAX [k{i}] 0.001"]),
    case("sorted-set", "absent keys", &[], &["BZMPOP 0.001 {n} [k{i}] MIN"]),
    case("sorted-set", "waiters for the key", &["blocked: BZPOPMIN z 0"], &["ZADD z [{i} m{i}]"])
        .anew()
        .most(CLIENTS),
    // --- stream
    case("stream", "arguments", &[], &["XADD x * [f{i} v]"]),
    case("stream", "entries", STREAM, &["XADD x * f v"]),
    case("stream", "entries", STREAM, &["XLEN x"]),
    case("stream", "entries", STREAM, &["XRANGE x - +"]),
    case("stream", "entries", STREAM, &["XREVRANGE x + - COUNT 3"]),
    case("stream", "entries", STREAM, &["XRANGE x 1{i}-1 + COUNT 3"]),
    case("stream", "entries", STREAM, &["XREAD COUNT 3 STREAMS x 1{i}-1"]),
    case("stream", "entries", STREAM, &["XTRIM x MAXLEN {h}"]).anew(),
    case("stream", "entries", STREAM, &["XSETID x 2{i}-1"]),
    case("stream", "arguments", STREAM, &["XDEL x [1{i}-1]"]).anew(),
    case("stream", "entries", STREAM, &["XINFO STREAM x"]),
    case("stream", "entries", STREAM, &["XINFO STREAM x FULL COUNT 1"]),
    case("stream", "keys", STREAMS, &["XREAD STREAMS [x{i}] [0]"]),
    case("stream", "absent keys", &[], &["XREAD BLOCK 1 STREAMS [x{i}] [$]"]),
    case(
        "stream",
        "keys",
        &["each: XGROUP CREATE x{i} g 0 MKSTREAM"],
        &["XREADGROUP GROUP g c BLOCK 1 STREAMS [x{i}] [>]"],
    )
    .most(10_000),
    case("stream", "waiters for the key", &["blocked: XREAD BLOCK 0 STREAMS x $"], &["XADD x * f v"])
        .anew()
        .most(CLIENTS),
    case(
        "stream",
        "waiters for the group",
        &["XGROUP CREATE x g 0 MKSTREAM", "blocked: XREADGROUP GROUP g c{i} COUNT 1 BLOCK 0 STREAMS x >"],
        &["XADD x * f v"],
    )
    .anew()
    .most(CLIENTS),
    case("stream", "groups", GROUPS, &["XREADGROUP GROUP g{i} c COUNT 1 STREAMS x >"]).most(10_000),
    case("stream", "groups", GROUPS, &["XADD x * f v"]).most(10_000),
    case("stream", "groups", GROUPS, &["XGROUP CREATE x new 0", "XGROUP DESTROY x new"]).most(10_000),
    case("stream", "groups", GROUPS, &["XGROUP SETID x g{i} 0"]).most(10_000),
    case("stream", "groups", GROUPS, &["XINFO GROUPS x"]).most(10_000),
    case("stream", "groups", GROUPS, &["XINFO STREAM x FULL COUNT 1"]).most(10_000),
    case("stream", "consumers", CONSUMERS, &["XREADGROUP GROUP g c{i} COUNT 1 STREAMS x >"]),
    case("stream", "consumers", CONSUMERS, &["XGROUP CREATECONSUMER x g new", "XGROUP DELCONSUMER x g new"]),
    case("stream", "consumers", CONSUMERS, &["XINFO CONSUMERS x g"]),
    case(
        "stream",
        "pending entries",
        STREAM,
        &["XGROUP CREATE x g 0", "XREADGROUP GROUP g c COUNT {n} STREAMS x >"],
    )
    .anew(),
    case("stream", "pending entries of others", PENDING, &["XREADGROUP GROUP g one COUNT 10 STREAMS x 0"]),
    case("stream", "pending entries", PENDING, &["XREADGROUP GROUP g many COUNT {n} STREAMS x 0"]),
    case("stream", "pending entries", PENDING, &["XPENDING x g"]),
    case("stream", "pending entries", PENDING, &["XPENDING x g 1{i}-1 + 10"]),
    case("stream", "pending entries of others", PENDING, &["XPENDING x g - + 10 one"]),
    case("stream", "pending entries", PENDING, &["XACK x g 1{i}-1"]),
    case("stream", "pending entries", PENDING, &["XACK x g [1{i}-1]"]).anew(),
    case("stream", "pending entries", PENDING, &["XCLAIM x g one 0 1{i}-1"]),
    case("stream", "pending entries", PENDING, &["XCLAIM x g one 0 [1{i}-1]"]).anew(),
    case("stream", "pending entries", PENDING, &["XAUTOCLAIM x g one 0 1{i}-1 COUNT 10"]),
    case("stream", "pending entries", PENDING, &["XINFO CONSUMERS x g"]),
    case("stream", "pending entries", PENDING, &["XINFO STREAM x FULL COUNT 1"]),
    case("stream", "pending entries of others", PENDING, &["XGROUP DELCONSUMER x g one"]),
    case("stream", "pending entries", PENDING, &["XGROUP DELCONSUMER x g many"]).anew(),
    case("stream", "pending entries", PENDING, &["XGROUP DESTROY x g"]).anew(),
    // --- geo
    case("geo", "arguments", &[], &["GEOADD g [{x} {y} m{i}]"]).anew(),
    case("geo", "arguments", PLACES, &["GEOPOS g [m{i}]"]),
    case("geo", "arguments", PLACES, &["GEOHASH g [m{i}]"]),
    case("geo", "members", PLACES, &["GEODIST g m{i} m0000000"]),
    case("geo", "members", PLACES, &["GEOSEARCH g FROMLONLAT 0 0 BYRADIUS 1 km"]),
    case("geo", "members", PLACES, &["GEOSEARCH g FROMLONLAT 0 25 BYBOX 10 10 km COUNT 3"]),
    case("geo", "members", PLACES, &["GEOSEARCH g FROMLONLAT 0 25 BYRADIUS 5000 km COUNT 3 ANY"]),
    case("geo", "members", PLACES, &["GEOSEARCH g FROMLONLAT 0 25 BYRADIUS 50000 km ASC"]),
    case("geo", "members", PLACES, &["GEOSEARCHSTORE dest g FROMLONLAT 0 25 BYRADIUS 1 km"]),
    case("geo", "members", PLACES, &["GEORADIUS g 0 25 1 km"]),
    case("geo", "members", PLACES, &["GEORADIUS_RO g 0 25 1 km"]),
    case("geo", "members", PLACES, &["GEORADIUSBYMEMBER g m{i} 1 km"]),
    case("geo", "members", PLACES, &["GEORADIUSBYMEMBER_RO g m{i} 1 km"]),
    // --- hyperloglog
    case("hyperloglog", "arguments", &[], &["PFADD p [e{i}]"]).anew(),
    case("hyperloglog", "elements", LOGS, &["PFADD p another"]),
    case("hyperloglog", "elements", LOGS, &["PFCOUNT p"]),
    case("hyperloglog", "keys", &["each: PFADD p{i} a b"], &["PFCOUNT [p{i}]"]).most(10_000),
    case("hyperloglog", "keys", &["each: PFADD p{i} a b"], &["PFMERGE dest [p{i}]"]).most(10_000),
    // --- generic
    case("generic", "keys", KEYS, &["DEL [k{i}]"]).anew(),
    case("generic", "keys", KEYS, &["UNLINK [k{i}]"]).anew(),
    case("generic", "keys of lists", LISTS, &["DEL [l{i}]"]).anew(),
    case("generic", "keys", KEYS, &["EXISTS [k{i}]"]),
    case("generic", "keys", KEYS, &["TOUCH [k{i}]"]),
    case("generic", "keys", KEYS, &["KEYS *"]),
    case("generic", "keys", KEYS, &["KEYS none*"]),
    case("generic", "keys", KEYS, &["SCAN 0 COUNT 10"]),
    case("generic", "keys", KEYS, &["SCAN 0 COUNT {n}"]),
    case("generic", "keys", KEYS, &["RANDOMKEY"]),
    case("generic", "keys", KEYS, &["DBSIZE"]),
    case("generic", "keys that have expired", &["each: SET k{i} v PX 1"], &["KEYS none*"]),
    case("generic", "members", SET, &["TYPE s"]),
    case("generic", "members", SET, &["DEL s"]).anew(),
    case("generic", "members", SET, &["UNLINK s"]).anew(),
    case("generic", "members", SET, &["RENAME s t"]).anew(),
    case("generic", "members", SET, &["RENAMENX s t"]).anew(),
    case("generic", "members", SET, &["COPY s t REPLACE"]),
    case("generic", "members", HASH, &["COPY h t REPLACE"]),
    case("generic", "members", LIST, &["COPY l t REPLACE"]),
    case("generic", "members", ZSET, &["COPY z t REPLACE"]),
    case("generic", "entries", STREAM, &["COPY x t REPLACE"]),
    case("generic", "members", SET, &["MOVE s 1"]).anew(),
    case("generic", "members", SET, &["DUMP s"]),
    case("generic", "members", ZSET, &["DUMP z"]),
    case("generic", "members", SET, &["EXPIRE s 1000"]),
    case("generic", "members", SET, &["PERSIST s"]),
    case("generic", "members", SET, &["OBJECT ENCODING s"]),
    case("generic", "members", SET, &["MEMORY USAGE s"]),
    case("generic", "elements", LIST, &["SORT l ALPHA"]),
    case("generic", "elements", LIST, &["SORT l ALPHA LIMIT 0 3"]),
    case("generic", "elements", LIST, &["SORT l ALPHA STORE dest"]),
    case("generic", "elements", LIST, &["SORT_RO l BY k* GET k*"]),
    // --- publish and subscribe
    case("pubsub", "channels", &[], &["SUBSCRIBE [c{i}]"]).anew(),
    case("pubsub", "channels", &["SUBSCRIBE [c{i}]"], &["UNSUBSCRIBE"]).anew(),
    // Redis takes time quadratic in the number of a client's patterns to forget them: minutes for more.
    case("pubsub", "patterns", &[], &["PSUBSCRIBE [p{i}*]"]).anew().most(10_000),
    case("pubsub", "patterns", &["PSUBSCRIBE [p{i}*]"], &["PUNSUBSCRIBE"]).anew().most(10_000),
    case("pubsub", "patterns", &["PSUBSCRIBE [p{i}*]"], &["PUBLISH c message"]).most(10_000),
    case("pubsub", "channels", &["SUBSCRIBE [c{i}]"], &["PUBLISH none message"]),
    case("pubsub", "subscribers", &["clients: SUBSCRIBE c"], &["PUBLISH c message"]).most(CLIENTS),
    case("pubsub", "channels", &[], &["SSUBSCRIBE [c{i}]"]).anew(),
    case("pubsub", "channels", &["SSUBSCRIBE [c{i}]"], &["SUNSUBSCRIBE"]).anew(),
    case("pubsub", "subscribers", &["clients: SSUBSCRIBE c"], &["SPUBLISH c message"]).most(CLIENTS),
    case("pubsub", "channels", &["SUBSCRIBE [c{i}]"], &["PUBSUB CHANNELS"]),
    case("pubsub", "channels", &["SUBSCRIBE [c{i}]"], &["PUBSUB NUMSUB [c{i}]"]),
    case("pubsub", "patterns", &["PSUBSCRIBE [p{i}*]"], &["PUBSUB NUMPAT"]).most(10_000),
    case("pubsub", "channels", &["SSUBSCRIBE [c{i}]"], &["PUBSUB SHARDCHANNELS"]),
    case("pubsub", "channels", &["SSUBSCRIBE [c{i}]"], &["PUBSUB SHARDNUMSUB [c{i}]"]),
    // --- transactions
    case("transactions", "keys", &[], &["WATCH [k{i}]", "UNWATCH"]),
    case("transactions", "keys", KEYS, &["WATCH [k{i}]", "MULTI", "SET k{i} w", "EXEC"]),
    case("transactions", "commands", &[], &["MULTI", "each: SET k{i} v", "EXEC"]),
    case("transactions", "commands", &[], &["MULTI", "each: SET k{i} v", "DISCARD"]),
    case("transactions", "keys under WATCH", &["WATCH [k{i}]"], &["SET k{i} v"]),
    case("transactions", "keys under WATCH", &["MSET [k{i} v]", "WATCH [k{i}]"], &["FLUSHDB"]),
    case("transactions", "clients that watch the key", &["clients: WATCH k"], &["SET k v"]).most(CLIENTS),
    case("transactions", "clients that watch a set", &["SADD k [m{i}]", "clients: WATCH k"], &["SADD k new"])
        .anew()
        .most(CLIENTS),
    // --- connection
    case("connection", "connections", &["clients: PING"], &["CLIENT LIST"]).most(CLIENTS),
    case("connection", "connections", &["clients: PING"], &["CLIENT INFO"]).most(CLIENTS),
    case("connection", "connections", &["clients: PING"], &["CLIENT KILL SKIPME yes TYPE pubsub"])
        .most(CLIENTS),
    case("connection", "connections", &["clients: PING"], &["CLIENT NO-EVICT off"]).most(CLIENTS),
    case(
        "connection",
        "keys that are tracked",
        &["MSET [k{i} v]", "CLIENT TRACKING on", "MGET [k{i}]"],
        &["MSET [k{i} w]"],
    )
    .anew(),
    case("connection", "keys that are tracked", &["MSET [k{i} v]", "CLIENT TRACKING on"], &["MGET [k{i}]"]),
    case(
        "connection",
        "keys that are tracked",
        &["MSET [k{i} v]", "CLIENT TRACKING on", "MGET [k{i}]"],
        &["FLUSHALL"],
    )
    .anew(),
    case(
        "connection",
        "clients that track the key",
        &["SET k v", "clients: CLIENT TRACKING on BCAST"],
        &["SET k w"],
    )
    .anew()
    .most(CLIENTS),
    case("connection", "prefixes", &["CLIENT TRACKING on BCAST [PREFIX p{i}:]"], &["SET k v"])
        .anew()
        .most(10_000),
    case("connection", "bytes", &[], &["ECHO {v}"]),
    case("connection", "bytes", &[], &["PING {v}"]),
    // --- scripting
    case("scripting", "keys", &[], &["EVAL return{s}#KEYS {n} [k{i}]"]),
    case("scripting", "arguments", &[], &["EVAL return{s}#ARGV 0 [a{i}]"]),
    case(
        "scripting",
        "declared keys, each used",
        KEYS,
        &["EVAL for{s}_,k{s}in{s}ipairs(KEYS)do{s}redis.call('set',k,'w'){s}end {n} [k{i}]"],
    ),
    case(
        "scripting",
        "undeclared keys, each used",
        &["FLUSHALL"],
        &["EVAL for{s}i=1,{n}{s}do{s}redis.call('set','k'..i,i){s}end 0"],
    )
    .anew(),
    case("scripting", "calls", &[], &["EVAL for{s}i=1,{n}{s}do{s}redis.call('incr',KEYS{1}){s}end 1 c"]),
    case(
        "scripting",
        "failing calls",
        &["SET s text"],
        &["EVAL for{s}i=1,{n}{s}do{s}redis.pcall('incr',KEYS{1}){s}end 1 s"],
    ),
    case("scripting", "elements of a reply", LIST, &["EVAL return{s}redis.call('lrange',KEYS{1},0,-1) 1 l"]),
    case(
        "scripting",
        "elements of a reply",
        LIST,
        &["EVAL_RO return{s}redis.call('lrange',KEYS{1},0,-1) 1 l"],
    ),
    case("scripting", "elements of a reply", HASH, &["EVAL return{s}redis.call('hgetall',KEYS{1}) 1 h"]),
    case("scripting", "bytes of a reply", VALUE, &["EVAL return{s}redis.call('get',KEYS{1}) 1 s"]),
    case(
        "scripting",
        "elements of a reply",
        &[],
        &["EVAL local{s}t={}{s}for{s}i=1,{n}{s}do{s}table.insert(t,i){s}end{s}return{s}t 0"],
    ),
    case(
        "scripting",
        "elements, packed",
        LIST,
        &["EVAL return{s}#cmsgpack.pack(redis.call('lrange',KEYS{1},0,-1)) 1 l"],
    ),
    case(
        "scripting",
        "elements, as JSON",
        LIST,
        &["EVAL return{s}cjson.decode(cjson.encode(redis.call('lrange',KEYS{1},0,-1))) 1 l"],
    ),
    case("scripting", "scripts", &["SCRIPT FLUSH"], &["each: SCRIPT LOAD return{s}{i}"]).anew(),
    case("scripting", "scripts", &["SCRIPT FLUSH"], &["each: EVAL return{s}{i} 0"]).anew(),
    case("scripting", "scripts", &["SCRIPT FLUSH", "each: SCRIPT LOAD return{s}{i}"], &["EVAL return{s}1 0"]),
    case("scripting", "scripts", &["each: SCRIPT LOAD return{s}{i}"], &["SCRIPT FLUSH"]).anew(),
    case("scripting", "digests", &["SCRIPT FLUSH"], &["SCRIPT EXISTS [{i}]"]),
    // --- server
    case("server", "keys", KEYS, &["FLUSHDB"]).anew(),
    case("server", "keys", KEYS, &["FLUSHALL"]).anew(),
    case("server", "keys", KEYS, &["SWAPDB 0 1"]),
    case("server", "keys", KEYS, &["INFO"]),
    case("server", "connections", &["clients: PING"], &["INFO"]).most(CLIENTS),
    case("server", "keys", KEYS, &["MEMORY STATS"]),
    case("server", "keys", KEYS, &["COMMAND GETKEYS MGET [k{i}]"]),
    case(
        "server",
        "commands",
        &["CONFIG SET slowlog-log-slower-than 0", "each: SET k{i} v"],
        &["SLOWLOG GET -1", "CONFIG SET slowlog-log-slower-than 10000"],
    ),
    case(
        "server",
        "nothing",
        &[],
        &["COMMAND", "COMMAND DOCS", "COMMAND LIST", "COMMAND INFO", "COMMAND COUNT"],
    ),
    case("server", "nothing", &[], &["CONFIG GET *"]),
    case("server", "arguments", &[], &["CONFIG GET [p{i}]"]).most(10_000),
    case("server", "arguments", &[], &["LATENCY RESET [p{i}]"]),
];

/// Commands that do not grow, or grow only with a quantity for which a similar command is measured.
pub const CONSTANT: &[&str] = &[
    // One value at one key, regardless of other data.
    "incr",
    "incrby",
    "incrbyfloat",
    "decr",
    "decrby",
    "ttl",
    "pttl",
    "expireat",
    "pexpire",
    "pexpireat",
    "expiretime",
    "pexpiretime",
    "object",
    "object freq",
    "object idletime",
    "object refcount",
    "restore",
    "restore-asking",
    "zlexcount",
    "zremrangebylex",
    "zrevrangebylex",
    "pfdebug",
    "pfselftest",
    "migrate",
    "flushdb async",
    "xgroup setid",
    // A client's or the server's own state.
    "auth",
    "hello",
    "quit",
    "reset",
    "select",
    "time",
    "role",
    "lolwut",
    "wait",
    "readonly",
    "readwrite",
    "asking",
    "client",
    "client caching",
    "client getname",
    "client getredir",
    "client id",
    "client pause",
    "client reply",
    "client setname",
    "client trackinginfo",
    "client unblock",
    "client unpause",
    "client tracking",
    "command",
    "command getkeysandflags",
    "config",
    "config set",
    "config resetstat",
    "config rewrite",
    "latency",
    "latency doctor",
    "latency graph",
    "latency histogram",
    "latency history",
    "latency latest",
    "memory",
    "memory doctor",
    "memory malloc-stats",
    "memory purge",
    "slowlog",
    "slowlog len",
    "slowlog reset",
    "pubsub",
    "xgroup",
    "xinfo",
    "monitor",
    "debug",
    "acl",
    "acl cat",
    "acl deluser",
    "acl dryrun",
    "acl genpass",
    "acl getuser",
    "acl list",
    "acl load",
    "acl log",
    "acl save",
    "acl setuser",
    "acl users",
    "acl whoami",
    "module",
    "module list",
    "module load",
    "module loadex",
    "module unload",
    "script",
    "script debug",
    "script kill",
    "function",
    "function delete",
    "function dump",
    "function flush",
    "function kill",
    "function list",
    "function load",
    "function restore",
    "function stats",
    "evalsha",
    "evalsha_ro",
    "fcall",
    "fcall_ro",
    "cluster",
    // Errors without a cluster.
    "cluster addslots",
    "cluster addslotsrange",
    "cluster bumpepoch",
    "cluster count-failure-reports",
    "cluster countkeysinslot",
    "cluster delslots",
    "cluster delslotsrange",
    "cluster failover",
    "cluster flushslots",
    "cluster forget",
    "cluster getkeysinslot",
    "cluster info",
    "cluster keyslot",
    "cluster links",
    "cluster meet",
    "cluster myid",
    "cluster nodes",
    "cluster replicas",
    "cluster replicate",
    "cluster reset",
    "cluster saveconfig",
    "cluster set-config-epoch",
    "cluster setslot",
    "cluster shards",
    "cluster slaves",
    "cluster slots",
    "save",
    "bgsave",
    "bgrewriteaof",
    "lastsave",
    "shutdown",
    "replicaof",
    "slaveof",
    "failover",
    "sync",
    "psync",
    "replconf",
    // Constant text.
    "acl help",
    "client help",
    "command help",
    "config help",
    "function help",
    "latency help",
    "memory help",
    "module help",
    "object help",
    "pubsub help",
    "script help",
    "slowlog help",
    "xgroup help",
    "xinfo help",
    "cluster help",
];

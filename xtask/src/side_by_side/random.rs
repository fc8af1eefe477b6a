//! Random commands, for combinations that no transcript contains.
//!
//! Commands are made from forms: words, placeholders for a key, a value or a number, and optional words. Only commands
//! that both servers must answer alike are sent: none with a random reply, none whose reply depends on the run's
//! duration. After a difference both servers are emptied, because a server that kept a wrong value would answer
//! differently from then on.
//!
//! A run has phases of three kinds in turn; each begins with empty servers. In the second kind hashes and sets also get
//! long strings, which make the reference use hash tables; their content then comes in any order. In the other kinds
//! the order is compared. The third kind speaks RESP3.

use super::transcript::{Action, Step, Treatment};
use super::{Client, Run, Said, Transcript, ask};
use crate::failure::Result;
use crate::random::Random;

/// Differences after which the run ends.
const DIFFERENCES_MAX: u64 = 25;
/// Commands of a phase.
const PHASE: usize = 1000;
/// Commands shown before the one that was answered differently.
const SHOWN: usize = 6;

struct Form {
    words: &'static [&'static str],
    options: &'static [&'static str],
    treatment: Treatment,
    /// Compared exactly if no element is long.
    is_ordered: bool,
    /// The reference changes the key without notifying the clients that watch it.
    is_quiet: bool,
}

const fn exact(words: &'static [&'static str], options: &'static [&'static str]) -> Form {
    Form { words, options, treatment: Treatment::Exact, is_ordered: false, is_quiet: false }
}

const fn sorted(words: &'static [&'static str], options: &'static [&'static str]) -> Form {
    Form { words, options, treatment: Treatment::Sorted, is_ordered: false, is_quiet: false }
}

const fn ordered(words: &'static [&'static str], options: &'static [&'static str]) -> Form {
    Form { words, options, treatment: Treatment::Sorted, is_ordered: true, is_quiet: false }
}

const fn near(words: &'static [&'static str], distance: i64) -> Form {
    Form { words, options: &[], treatment: Treatment::Near(distance), is_ordered: false, is_quiet: false }
}

const fn quiet(words: &'static [&'static str], options: &'static [&'static str]) -> Form {
    Form { words, options, treatment: Treatment::Exact, is_ordered: false, is_quiet: true }
}

/// Placeholders. Keys and values: `k` a key, `p` one for HyperLogLogs, `n` a field, a member or an element, `m` an
/// integer as a member, `y` a value of a field, `v` a value, `w` a field's type. Numbers: `i` an integer, `o` an
/// offset, `b` a bit, `f` a float, `s` a score, `t` a relative and `a` an absolute time. Bounds: `z` of a range of
/// scores, `x` of a range of members, `r` of a range of ids. Streams: `d` the id of a new entry, `j` of one that may be
/// there, `u` a group, `c` a consumer. Uppercase or longer words stand for themselves.
const FORMS: &[Form] = &[
    exact(&["GET", "k"], &[]),
    exact(&["SET", "k", "v"], &["NX", "XX", "GET", "KEEPTTL", "EX t", "PX t", "EXAT a", "PXAT a"]),
    exact(&["SET", "k", "v"], &[]),
    exact(&["SET", "k", "i"], &[]),
    exact(&["SETNX", "k", "v"], &[]),
    exact(&["SETEX", "k", "t", "v"], &[]),
    exact(&["PSETEX", "k", "t", "v"], &[]),
    exact(&["GETSET", "k", "v"], &[]),
    exact(&["GETDEL", "k"], &[]),
    exact(&["GETEX", "k"], &["PERSIST", "EX t", "PX t", "EXAT a", "PXAT a"]),
    exact(&["MGET", "k", "k", "k"], &[]),
    exact(&["MSET", "k", "v", "k", "v"], &[]),
    exact(&["MSETNX", "k", "v", "k", "v"], &[]),
    exact(&["APPEND", "k", "v"], &[]),
    exact(&["STRLEN", "k"], &[]),
    exact(&["GETRANGE", "k", "o", "o"], &[]),
    exact(&["SUBSTR", "k", "i", "i"], &[]),
    exact(&["SETRANGE", "k", "o", "v"], &[]),
    exact(&["INCR", "k"], &[]),
    exact(&["DECR", "k"], &[]),
    exact(&["INCRBY", "k", "i"], &[]),
    exact(&["DECRBY", "k", "i"], &[]),
    exact(&["INCRBYFLOAT", "k", "f"], &[]),
    exact(&["LCS", "k", "k"], &["LEN", "IDX", "WITHMATCHLEN", "MINMATCHLEN o"]),
    exact(&["SETBIT", "k", "o", "b"], &[]),
    exact(&["GETBIT", "k", "o"], &[]),
    exact(&["BITCOUNT", "k"], &[]),
    exact(&["BITCOUNT", "k", "o", "o"], &["BIT", "BYTE"]),
    exact(&["BITPOS", "k", "b"], &[]),
    exact(&["BITPOS", "k", "b", "o"], &[]),
    exact(&["BITPOS", "k", "b", "o", "o"], &["BIT", "BYTE"]),
    exact(&["BITOP", "AND", "k", "k", "k"], &[]),
    exact(&["BITOP", "OR", "k", "k", "k"], &[]),
    exact(&["BITOP", "XOR", "k", "k", "k", "k"], &[]),
    exact(&["BITOP", "NOT", "k", "k"], &[]),
    exact(
        &["BITFIELD", "k"],
        &["GET w o", "SET w o i", "INCRBY w o i", "OVERFLOW SAT", "OVERFLOW FAIL", "OVERFLOW WRAP"],
    ),
    exact(&["BITFIELD_RO", "k"], &["GET w o", "GET w o"]),
    exact(&["DEL", "k", "k"], &[]),
    exact(&["UNLINK", "k"], &[]),
    exact(&["EXISTS", "k", "k"], &[]),
    exact(&["TYPE", "k"], &[]),
    exact(&["TOUCH", "k", "k"], &[]),
    exact(&["RENAME", "k", "k"], &[]),
    exact(&["RENAMENX", "k", "k"], &[]),
    exact(&["COPY", "k", "k"], &["REPLACE", "DB b", "DB 0"]),
    exact(&["MOVE", "k", "b"], &[]),
    exact(&["SELECT", "b"], &[]),
    exact(&["FLUSHDB"], &[]),
    // The reference counts an expired key until its sweep, which comes within a second; there are ten keys.
    near(&["DBSIZE"], 10),
    exact(&["EXPIRE", "k", "t"], &["NX", "XX"]),
    exact(&["PEXPIRE", "k", "t"], &["NX", "XX"]),
    exact(&["EXPIREAT", "k", "a"], &["NX", "XX", "GT", "LT"]),
    exact(&["PEXPIREAT", "k", "a"], &["NX", "XX", "GT", "LT"]),
    exact(&["PERSIST", "k"], &[]),
    near(&["TTL", "k"], 2),
    near(&["PTTL", "k"], 2000),
    near(&["EXPIRETIME", "k"], 2),
    near(&["PEXPIRETIME", "k"], 2000),
    sorted(&["KEYS", "*"], &[]),
    sorted(
        &["SCAN", "0", "COUNT", "1000"],
        &[
            "TYPE string",
            "TYPE hash",
            "TYPE list",
            "TYPE set",
            "TYPE zset",
            "TYPE stream",
            // No count of 0: the reference returns keys that have expired (`intended.txt`).
            "TYPE nothing",
            "MATCH [a-c]",
        ],
    ),
    exact(&["TYPE", "k"], &[]),
    exact(&["HSET", "k", "n", "y"], &[]),
    exact(&["HSET", "k", "n", "y", "n", "y"], &[]),
    exact(&["HSET", "k", "n", "i", "n", "f", "n", "y"], &[]),
    exact(&["HMSET", "k", "n", "y", "n", "y"], &[]),
    exact(
        &[
            "HSET", "k", "n", "y", "n", "y", "n", "y", "n", "y", "n", "y", "n", "y", "n", "y", "n", "y", "n",
            "y",
        ],
        &[],
    ),
    exact(&["HMGET", "k", "n", "n", "n", "n", "n", "n", "n", "n", "n"], &[]),
    exact(&["HDEL", "k", "n", "n", "n", "n", "n", "n", "n", "n", "n"], &[]),
    exact(&["HSETNX", "k", "n", "y"], &[]),
    exact(&["HGET", "k", "n"], &[]),
    exact(&["HMGET", "k", "n", "n", "n"], &[]),
    exact(&["HDEL", "k", "n"], &[]),
    exact(&["HDEL", "k", "n", "n", "n"], &[]),
    exact(&["HLEN", "k"], &[]),
    exact(&["HEXISTS", "k", "n"], &[]),
    exact(&["HSTRLEN", "k", "n"], &[]),
    ordered(&["HKEYS", "k"], &[]),
    ordered(&["HVALS", "k"], &[]),
    ordered(&["HGETALL", "k"], &[]),
    exact(&["HINCRBY", "k", "n", "i"], &[]),
    exact(&["HINCRBYFLOAT", "k", "n", "f"], &[]),
    ordered(&["HRANDFIELD", "k", "1000"], &["WITHVALUES"]),
    exact(&["HRANDFIELD", "k", "0"], &["WITHVALUES"]),
    ordered(
        &["HSCAN", "k", "0", "COUNT", "1000"],
        &["MATCH *", "MATCH [a-z0-9]", "MATCH 1*", "COUNT 0", "TYPE hash"],
    ),
    exact(&["LPUSH", "k", "n"], &[]),
    exact(&["LPUSH", "k", "n", "n", "n"], &[]),
    exact(&["RPUSH", "k", "n"], &[]),
    exact(&["RPUSH", "k", "n", "n", "n", "n", "n"], &[]),
    exact(&["LPUSHX", "k", "n"], &[]),
    exact(&["RPUSHX", "k", "n", "n"], &[]),
    exact(&["LPOP", "k"], &[]),
    exact(&["RPOP", "k"], &[]),
    exact(&["LPOP", "k", "i"], &[]),
    exact(&["RPOP", "k", "o"], &[]),
    exact(&["LLEN", "k"], &[]),
    exact(&["LRANGE", "k", "0", "-1"], &[]),
    exact(&["LRANGE", "k", "i", "o"], &[]),
    exact(&["LRANGE", "k", "o", "o"], &[]),
    exact(&["LINDEX", "k", "i"], &[]),
    exact(&["LINDEX", "k", "o"], &[]),
    exact(&["LSET", "k", "o", "n"], &[]),
    exact(&["LSET", "k", "i", "n"], &[]),
    exact(&["LINSERT", "k", "BEFORE", "n", "n"], &[]),
    exact(&["LINSERT", "k", "AFTER", "n", "n"], &[]),
    exact(&["LREM", "k", "i", "n"], &[]),
    exact(&["LREM", "k", "o", "n"], &[]),
    exact(&["LTRIM", "k", "o", "o"], &[]),
    exact(&["LTRIM", "k", "i", "i"], &[]),
    exact(&["LPOS", "k", "n"], &["RANK o", "COUNT o", "MAXLEN o"]),
    exact(&["LMOVE", "k", "k", "LEFT", "LEFT"], &[]),
    exact(&["LMOVE", "k", "k", "LEFT", "RIGHT"], &[]),
    exact(&["LMOVE", "k", "k", "RIGHT", "LEFT"], &[]),
    exact(&["LMOVE", "k", "k", "RIGHT", "RIGHT"], &[]),
    exact(&["RPOPLPUSH", "k", "k"], &[]),
    exact(&["LMPOP", "1", "k", "LEFT"], &["COUNT i"]),
    exact(&["LMPOP", "2", "k", "k", "RIGHT"], &["COUNT o"]),
    // The timeouts elapse at once, because no other client writes.
    exact(&["BLPOP", "k", "k", "0.001"], &[]),
    exact(&["BRPOP", "k", "0.001"], &[]),
    exact(&["BLMPOP", "0.001", "2", "k", "k", "LEFT"], &["COUNT o"]),
    exact(&["BLMOVE", "k", "k", "LEFT", "RIGHT", "0.001"], &[]),
    exact(&["BRPOPLPUSH", "k", "k", "0.001"], &[]),
    exact(&["SADD", "k", "n"], &[]),
    exact(&["SADD", "k", "n", "n", "n"], &[]),
    exact(&["SADD", "k", "m", "m", "m"], &[]),
    exact(&["SADD", "k", "m", "m", "m", "m", "m", "m", "m", "m", "m", "m"], &[]),
    exact(&["SADD", "k", "n", "n", "n", "n", "n", "n", "n", "n", "n", "n"], &[]),
    exact(&["SREM", "k", "n", "n", "n", "n", "n", "n", "n", "n", "n", "n"], &[]),
    exact(&["SMISMEMBER", "k", "n", "n", "n", "n", "n", "n", "n", "n", "n", "n"], &[]),
    exact(&["SREM", "k", "n"], &[]),
    exact(&["SREM", "k", "n", "n", "n"], &[]),
    sorted(&["SMEMBERS", "k"], &[]),
    exact(&["SISMEMBER", "k", "n"], &[]),
    exact(&["SMISMEMBER", "k", "n", "n", "n"], &[]),
    exact(&["SCARD", "k"], &[]),
    sorted(&["SPOP", "k", "1000"], &[]),
    exact(&["SPOP", "k", "0"], &[]),
    sorted(&["SRANDMEMBER", "k", "1000"], &[]),
    exact(&["SMOVE", "k", "k", "n"], &[]),
    sorted(&["SUNION", "k", "k"], &[]),
    sorted(&["SINTER", "k", "k"], &[]),
    sorted(&["SDIFF", "k", "k", "k"], &[]),
    exact(&["SUNIONSTORE", "k", "k", "k"], &[]),
    exact(&["SINTERSTORE", "k", "k", "k"], &[]),
    exact(&["SDIFFSTORE", "k", "k", "k"], &[]),
    exact(&["SINTERCARD", "2", "k", "k"], &["LIMIT i"]),
    exact(&["SINTERCARD", "i", "k", "k"], &[]),
    sorted(
        &["SSCAN", "k", "0", "COUNT", "1000"],
        &["MATCH *", "MATCH [a-z0-9]", "MATCH 1*", "COUNT 0", "TYPE set"],
    ),
    exact(&["ZADD", "k", "s", "n"], &["NX", "XX"]),
    exact(&["ZADD", "k", "s", "n", "s", "n", "s", "n"], &[]),
    exact(&["ZADD", "k", "0", "n", "0", "n", "0", "n"], &[]),
    exact(&["ZADD", "k", "NX", "s", "n", "s", "n"], &[]),
    exact(&["ZADD", "k", "XX", "CH", "s", "n", "s", "n"], &[]),
    exact(&["ZADD", "k", "GT", "CH", "s", "n", "s", "n"], &[]),
    exact(&["ZADD", "k", "XX", "LT", "s", "n", "s", "n"], &[]),
    exact(&["ZADD", "k", "INCR", "s", "n"], &[]),
    exact(&["ZADD", "k", "LT", "INCR", "s", "n"], &[]),
    exact(
        &[
            "ZADD", "k", "CH", "s", "n", "s", "n", "s", "n", "s", "n", "s", "n", "s", "n", "s", "n", "s",
            "n", "s", "n",
        ],
        &[],
    ),
    exact(&["ZINCRBY", "k", "s", "n"], &[]),
    exact(&["ZREM", "k", "n", "n"], &[]),
    exact(&["ZREM", "k", "n", "n", "n", "n", "n", "n", "n", "n", "n"], &[]),
    exact(&["ZSCORE", "k", "n"], &[]),
    exact(&["ZMSCORE", "k", "n", "n", "n"], &[]),
    exact(&["ZCARD", "k"], &[]),
    exact(&["ZRANK", "k", "n"], &[]),
    exact(&["ZREVRANK", "k", "n"], &[]),
    exact(&["ZCOUNT", "k", "z", "z"], &[]),
    exact(&["ZRANGE", "k", "0", "-1", "WITHSCORES"], &[]),
    exact(&["ZRANGE", "k", "o", "o"], &["WITHSCORES", "REV", "LIMIT o o"]),
    exact(&["ZRANGE", "k", "z", "z", "BYSCORE"], &["WITHSCORES", "REV", "LIMIT o o", "BYLEX"]),
    exact(&["ZREVRANGE", "k", "o", "o"], &["WITHSCORES", "REV"]),
    exact(&["ZRANGEBYSCORE", "k", "z", "z"], &["WITHSCORES", "LIMIT o o"]),
    exact(&["ZREVRANGEBYSCORE", "k", "z", "z"], &["WITHSCORES", "LIMIT o o"]),
    exact(&["ZRANGESTORE", "k", "k", "o", "o"], &["REV", "WITHSCORES"]),
    exact(&["ZRANGESTORE", "k", "k", "z", "z", "BYSCORE"], &["REV", "LIMIT o o"]),
    exact(&["ZREMRANGEBYRANK", "k", "o", "o"], &[]),
    exact(&["ZREMRANGEBYSCORE", "k", "z", "z"], &[]),
    // If the scores are not all equal, the reference has two answers, one for each encoding of the set.
    exact(&["ZLEXCOUNT", "zero", "x", "x"], &[]),
    exact(&["ZADD", "zero", "0", "n", "0", "n", "0", "n", "0", "n"], &[]),
    exact(&["ZRANGE", "zero", "x", "x", "BYLEX"], &["REV", "LIMIT o o", "WITHSCORES"]),
    exact(&["ZRANGEBYLEX", "zero", "x", "x"], &["LIMIT o o"]),
    exact(&["ZREVRANGEBYLEX", "zero", "x", "x"], &["LIMIT o o"]),
    exact(&["ZREMRANGEBYLEX", "zero", "x", "x"], &[]),
    exact(&["ZRANGESTORE", "k", "zero", "x", "x", "BYLEX"], &["REV", "LIMIT o o"]),
    exact(&["ZPOPMIN", "k"], &["o"]),
    exact(&["ZPOPMAX", "k"], &["o"]),
    exact(&["ZMPOP", "2", "k", "k", "MIN"], &["COUNT o"]),
    exact(&["ZMPOP", "2", "k", "k", "MAX"], &["COUNT o"]),
    exact(&["BZPOPMIN", "k", "k", "0.001"], &[]),
    exact(&["BZPOPMAX", "k", "0.001"], &[]),
    exact(&["BZMPOP", "0.001", "2", "k", "k", "MIN"], &["COUNT o"]),
    exact(&["ZRANDMEMBER", "k", "1000"], &["WITHSCORES"]),
    exact(&["ZRANDMEMBER", "k", "0"], &["WITHSCORES"]),
    ordered(
        &["ZSCAN", "k", "0", "COUNT", "1000"],
        &["MATCH *", "MATCH [a-z0-9]", "MATCH 1*", "COUNT 0", "TYPE zset"],
    ),
    exact(&["ZUNION", "2", "k", "k"], &["WITHSCORES", "WEIGHTS s s", "AGGREGATE MIN", "AGGREGATE MAX"]),
    exact(&["ZINTER", "2", "k", "k"], &["WITHSCORES", "WEIGHTS s s", "AGGREGATE MIN", "AGGREGATE MAX"]),
    exact(&["ZDIFF", "2", "k", "k"], &["WITHSCORES", "WEIGHTS s s"]),
    exact(&["ZUNION", "3", "k", "k", "e", "WITHSCORES"], &["WEIGHTS s s s", "AGGREGATE SUM"]),
    exact(&["ZINTER", "3", "k", "k", "k", "WITHSCORES"], &["WEIGHTS s s s", "AGGREGATE SUM"]),
    exact(&["ZUNIONSTORE", "k", "2", "k", "k"], &["WEIGHTS s s", "AGGREGATE MIN", "AGGREGATE MAX"]),
    exact(&["ZINTERSTORE", "k", "2", "k", "k"], &["WEIGHTS s s", "AGGREGATE MIN", "AGGREGATE MAX"]),
    exact(&["ZDIFFSTORE", "k", "2", "k", "k"], &["WITHSCORES"]),
    exact(&["ZINTERCARD", "2", "k", "k"], &["LIMIT i"]),
    exact(&["XADD", "k", "d", "n", "y"], &[]),
    exact(&["XADD", "k", "d", "n", "y", "n", "y"], &[]),
    exact(&["XADD", "k", "d", "left", "1", "right", "2"], &[]),
    exact(&["XADD", "k", "d", "left", "y", "right", "y"], &[]),
    exact(&["XADD", "k", "MAXLEN", "o", "d", "n", "y"], &[]),
    exact(&["XADD", "k", "MAXLEN", "~", "o", "d", "n", "y"], &[]),
    exact(&["XADD", "k", "NOMKSTREAM", "MINID", "j", "d", "n", "y"], &[]),
    exact(&["XLEN", "k"], &[]),
    exact(&["XRANGE", "k", "-", "+"], &["COUNT o"]),
    exact(&["XRANGE", "k", "r", "r"], &["COUNT i", "COUNT o"]),
    exact(&["XREVRANGE", "k", "+", "-"], &["COUNT o"]),
    exact(&["XREVRANGE", "k", "r", "r"], &["COUNT o"]),
    exact(&["XREAD", "COUNT", "o", "STREAMS", "k", "j"], &[]),
    exact(&["XREAD", "STREAMS", "k", "k", "j", "j"], &[]),
    exact(&["XREAD", "STREAMS", "k", "$"], &[]),
    exact(&["XREAD", "BLOCK", "1", "STREAMS", "k", "k", "j", "$"], &[]),
    quiet(&["XREADGROUP", "GROUP", "u", "c", "BLOCK", "1", "STREAMS", "k", ">"], &[]),
    exact(&["XDEL", "k", "j"], &[]),
    exact(&["XDEL", "k", "j", "j", "j", "j", "j"], &[]),
    exact(&["XTRIM", "k", "MAXLEN", "o"], &["LIMIT o"]),
    exact(&["XTRIM", "k", "MAXLEN", "~", "o"], &["LIMIT o"]),
    exact(&["XTRIM", "k", "MINID", "j"], &[]),
    exact(&["XTRIM", "k", "MINID", "~", "j"], &[]),
    quiet(&["XSETID", "k", "j"], &["ENTRIESADDED o", "MAXDELETEDID j"]),
    exact(&["XINFO", "STREAM", "k"], &[]),
    near(&["XINFO", "STREAM", "k", "FULL"], 2000),
    near(&["XINFO", "STREAM", "k", "FULL", "COUNT", "o"], 2000),
    exact(&["XINFO", "GROUPS", "k"], &[]),
    near(&["XINFO", "CONSUMERS", "k", "u"], 2000),
    quiet(&["XGROUP", "CREATE", "k", "u", "0"], &["MKSTREAM", "ENTRIESREAD o"]),
    quiet(&["XGROUP", "CREATE", "k", "u", "$"], &["MKSTREAM", "MKSTREAM"]),
    quiet(&["XGROUP", "CREATE", "k", "u", "j"], &["MKSTREAM"]),
    quiet(&["XGROUP", "SETID", "k", "u", "j"], &["ENTRIESREAD o"]),
    quiet(&["XGROUP", "SETID", "k", "u", "0"], &[]),
    quiet(&["XGROUP", "DESTROY", "k", "u"], &[]),
    quiet(&["XGROUP", "CREATECONSUMER", "k", "u", "c"], &[]),
    quiet(&["XGROUP", "DELCONSUMER", "k", "u", "c"], &[]),
    quiet(&["XREADGROUP", "GROUP", "u", "c", "STREAMS", "k", ">"], &[]),
    quiet(&["XREADGROUP", "GROUP", "u", "c", "COUNT", "2", "STREAMS", "k", ">"], &[]),
    quiet(&["XREADGROUP", "GROUP", "u", "c", "NOACK", "COUNT", "1", "STREAMS", "k", ">"], &[]),
    quiet(&["XREADGROUP", "GROUP", "u", "c", "COUNT", "o", "STREAMS", "k", "j"], &[]),
    quiet(&["XREADGROUP", "GROUP", "u", "c", "STREAMS", "k", "k", "j", ">"], &[]),
    quiet(&["XACK", "k", "u", "j"], &[]),
    quiet(&["XACK", "k", "u", "j", "j", "j"], &[]),
    exact(&["XPENDING", "k", "u"], &[]),
    near(&["XPENDING", "k", "u", "r", "r", "o"], 2000),
    near(&["XPENDING", "k", "u", "-", "+", "100", "c"], 2000),
    near(&["XPENDING", "k", "u", "IDLE", "0", "-", "+", "100"], 2000),
    quiet(
        &["XCLAIM", "k", "u", "c", "0", "j"],
        &["FORCE", "JUSTID", "RETRYCOUNT o", "TIME 1000", "LASTID j"],
    ),
    quiet(&["XCLAIM", "k", "u", "c", "0", "j", "j", "j"], &["FORCE", "JUSTID", "TIME 1000"]),
    quiet(&["XCLAIM", "k", "u", "c", "100000000000", "j"], &["FORCE"]),
    quiet(&["XAUTOCLAIM", "k", "u", "c", "0", "r"], &["JUSTID", "COUNT o"]),
    quiet(&["XAUTOCLAIM", "k", "u", "c", "100000000000", "0"], &["COUNT 1"]),
    exact(&["PFADD", "p", "n", "n", "n"], &[]),
    exact(&["PFADD", "p", "m", "m", "m", "m", "m", "m", "m", "m"], &[]),
    exact(&["PFCOUNT", "p"], &[]),
    exact(&["PFCOUNT", "p", "p"], &[]),
    exact(&["PFMERGE", "p", "p", "p"], &[]),
    exact(&["GET", "p"], &[]),
    exact(&["GEOADD", "geo", "s", "s", "n", "s", "s", "n"], &["NX", "XX", "CH"]),
    exact(&["GEOADD", "geo", "0.5", "f", "n", "s", "0.25", "n"], &[]),
    exact(&["GEOPOS", "geo", "n", "n"], &[]),
    exact(&["GEODIST", "geo", "n", "n"], &["km", "mi"]),
    exact(&["GEOHASH", "geo", "n", "n"], &[]),
    exact(
        &["GEOSEARCH", "geo", "FROMLONLAT", "0", "0", "BYRADIUS", "500", "km", "ASC"],
        &["WITHDIST", "WITHCOORD", "WITHHASH", "COUNT o"],
    ),
    exact(&["GEOSEARCH", "geo", "FROMMEMBER", "n", "BYBOX", "900", "500", "mi"], &["DESC", "WITHDIST"]),
    exact(&["GEORADIUS", "geo", "1", "1", "9000", "km"], &["STORE geo2", "STOREDIST geo2"]),
    exact(&["ZRANGE", "geo2", "0", "-1", "WITHSCORES"], &[]),
    // Elements that compare as equal come in any order, so this stores texts, which compares all of their bytes.
    exact(&["SORT", "k"], &["DESC", "LIMIT o o", "STORE g"]),
    exact(&["SORT", "k", "ALPHA", "STORE", "g"], &["DESC", "LIMIT o o", "GET #", "GET *"]),
    exact(&["SORT_RO", "g"], &["DESC", "LIMIT o o"]),
    exact(&["WATCH", "k"], &[]),
    exact(&["UNWATCH"], &[]),
    exact(&["MULTI"], &[]),
    exact(&["EXEC"], &[]),
    exact(&["EXEC"], &[]),
    exact(&["DISCARD"], &[]),
];

const KEYS: &[&str] = &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "s", "t"];
// Most commands get a key of their type; otherwise hardly any would do more than fail.
const STRING_KEYS: &[&str] = &["a", "b"];
const HASH_KEYS: &[&str] = &["c", "d"];
const SET_KEYS: &[&str] = &["e", "f"];
const LIST_KEYS: &[&str] = &["g", "h"];
const SORTED_SET_KEYS: &[&str] = &["i", "j"];
const STREAM_KEYS: &[&str] = &["s", "t"];
const LOG_KEYS: &[&str] = &["p", "q", "r"];
/// Prefixes of commands that take a key of any type.
const ANY_TYPE: &[&str] = &[
    "DEL", "UNLINK", "EXISTS", "TYPE", "TOUCH", "RENAME", "COPY", "MOVE", "EXPIRE", "PEXPIRE", "PERSIST",
    "TTL", "PTTL", "WATCH",
];
/// Prefixes of commands on lists.
const ON_LISTS: &[&str] = &[
    "LPUSH", "RPUSH", "LPOP", "RPOP", "LLEN", "LRANGE", "LINDEX", "LSET", "LINSERT", "LREM", "LTRIM", "LPOS",
    "LMOVE", "LMPOP", "BLPOP", "BRPOP", "BLMPOP", "BLMOVE",
];
/// Prefixes of commands on sets.
const ON_SETS: &[&str] = &[
    "SADD",
    "SREM",
    "SMEMBERS",
    "SISMEMBER",
    "SMISMEMBER",
    "SCARD",
    "SPOP",
    "SRANDMEMBER",
    "SMOVE",
    "SUNION",
    "SINTER",
    "SDIFF",
    "SSCAN",
];
const VALUES: &[&str] = &[
    "",
    "0",
    "1",
    "-1",
    "10",
    "abc",
    "hello world",
    "ohmytext",
    "3.14",
    "1e3",
    "9223372036854775807",
    "-9223372036854775808",
    " 1",
    "01",
    "\u{0}",
    "\u{7f}\u{0}x",
    "ééé",
];
const NAMES: &[&str] =
    &["a", "b", "c", "d", "field", "", "0", "1", "-1", "10", "11", "100", "010", "\u{0}\r\n", "ééé"];
const MEMBERS: &[&str] =
    &["0", "1", "2", "3", "-1", "-2", "10", "11", "9223372036854775807", "-9223372036854775808"];
const SCORES: &[&str] = &[
    "0", "1", "2", "3", "-1", "1.5", "0.1", "0.2", "0.3", "1e20", "1e-7", "-0", "inf", "-inf", "0x1p-2",
    "abc", "nan",
];
const SCORE_BOUNDS: &[&str] = &[
    "0", "1", "(1", "2", "(2", "-1", "1.5", "(0.1", "-inf", "+inf", "(inf", "(-inf", "-inf", "+inf", "x",
    "nan", "",
];
const LEX_BOUNDS: &[&str] =
    &["-", "+", "-", "+", "[a", "(a", "[b", "(c", "[d", "(1", "[10", "[", "(", "(field", "a", "", "\u{0}"];
const INTEGERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "7",
    "100",
    "-100",
    "255",
    "256",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "abc",
    "",
    "1.5",
    "+1",
    "01",
    " 1",
];
// Small: a value of half a gigabyte in each attempt would only be slow.
const OFFSETS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "7",
    "8",
    "9",
    "15",
    "16",
    "31",
    "100",
    "-1",
    "-2",
    "-7",
    "-100",
    "#1",
    "#3",
    "x",
    "4294967296",
];
const FLOATS: &[&str] = &[
    "0",
    "1",
    "-1.5",
    "0.1",
    "3.0e3",
    "1e-5",
    "1e17",
    "abc",
    "inf",
    "nan",
    "",
    "1.000000000000000005",
    "-0",
];
// Much longer or shorter than a run, so that no reply depends on its duration.
const RELATIVE: &[&str] = &["2000000", "5000000", "0", "-1", "abc", "9223372036854775807", "1.5", ""];
const ABSOLUTE: &[&str] = &["33177117420", "33177117420123", "33177117421000", "1", "0", "-5", "x"];
const FIELDS: &[&str] =
    &["u8", "i8", "u1", "u4", "i5", "u16", "i16", "u32", "i63", "i64", "u63", "u64", "i0", "x8"];
const GROUPS: &[&str] = &["g", "g", "g", "h", ""];
const CONSUMERS: &[&str] = &["one", "two", "three", ""];
const BITS: &[&str] = &["0", "1", "1", "0", "2", "-1", "x"];

/// Sends `count` random commands to both servers. Returns whether all replies were the same.
pub fn play(run: &mut Run, count: u64, seed: u64) -> Result<bool> {
    println!("side-by-side: {count} random commands, seed {seed}");
    let transcript =
        Transcript { path: format!("random {seed}"), name: "random".to_owned(), steps: Vec::new() };
    let mut random = Random::new(seed);
    let mut client = run.connect()?;
    let mut recent: Vec<String> = Vec::new();
    let (mut queueing, mut watching, mut must_begin) = (false, false, true);
    for line in 1..=count as usize {
        let phase = (line - 1) / PHASE % 3;
        let (is_long, is_resp3) = (phase == 1, phase == 2);
        if (line - 1).is_multiple_of(PHASE) {
            must_begin = true;
        }
        if std::mem::take(&mut must_begin) {
            run.empty()?;
            client = run.connect()?;
            recent.clear();
            (queueing, watching) = (false, false);
            if is_resp3 {
                let hello = Step { line, text: "@resp3".to_owned(), action: Action::Hello(3) };
                run.step(&transcript, &hello, &mut client);
            }
        }
        let (arguments, treatment, is_quiet) = match command(&mut random, is_long) {
            (arguments, ..) if random.one_in(10) => {
                (of_user(&mut random, arguments), Treatment::Exact, false)
            }
            command => command,
        };
        // Inside a transaction the replies come together, and could only be compared exactly.
        if queueing && treatment != Treatment::Exact || watching && is_quiet {
            continue;
        }
        if sort_converts(&mut client, &arguments, queueing) {
            continue;
        }
        let text = shown(&arguments);
        let was_queueing = queueing;
        queueing = match arguments.first().map(Vec::as_slice) {
            Some(b"MULTI") => true,
            Some(b"EXEC" | b"DISCARD") => false,
            _ => queueing,
        };
        watching = match arguments.first().map(|name| name.to_ascii_uppercase()).as_deref() {
            Some(b"WATCH") => true,
            // EXEC and DISCARD without MULTI only return an error; UNWATCH inside MULTI is queued.
            Some(b"EXEC" | b"DISCARD") if was_queueing => false,
            Some(b"UNWATCH") if !was_queueing => false,
            _ => watching,
        };
        let step = |arguments: Vec<Vec<u8>>, treatment| {
            let text = shown(&arguments);
            Step { line, text, action: Action::Command(arguments, treatment) }
        };
        let step = match row(&mut random, &arguments, is_long) {
            Some(row) => {
                let steps = row.into_iter().map(|arguments| step(arguments, Treatment::Exact)).collect();
                Step { line, text: text.clone(), action: Action::Pipeline(steps) }
            }
            None => step(arguments, treatment),
        };
        let differed = run.tally.differ;
        let good = run.step(&transcript, &step, &mut client);
        if run.tally.differ > differed {
            let before = &recent[recent.len().saturating_sub(SHOWN)..];
            println!("    after:   {}", before.join(" | "));
            if run.tally.differ >= DIFFERENCES_MAX {
                break;
            }
        }
        must_begin |= run.tally.differ > differed || !good;
        recent.push(text);
    }
    println!(
        "side-by-side: {} random replies compared, {} differ; repeat with --random {count} --seed {seed}",
        run.tally.compared, run.tally.differ
    );
    Ok(run.tally.differ == 0)
}

/// A command about a user: its rules are changed, or it is asked whether the user may run this command.
fn of_user(random: &mut Random, arguments: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let user = *pick(random, &["ada", "bob"]).unwrap_or(&"ada");
    let text = |word: &str| word.as_bytes().to_vec();
    if !random.one_in(3) {
        let words = ["ACL", "DRYRUN", user].map(text);
        return words.into_iter().chain(arguments).collect();
    }
    let mut words = vec![text("ACL"), text("SETUSER"), text(user)];
    for _ in 0..1 + random.below(3) {
        words.push(match pick(random, RULES) {
            Some(&mark) if mark.ends_with('~') => {
                let key = *pick(random, KEYS).unwrap_or(&"k");
                let end = if random.one_in(2) { "*" } else { "" };
                format!("{mark}{}{end}", &key[..1 + random.below(key.len() as u64) as usize]).into_bytes()
            }
            rule => text(rule.copied().unwrap_or_default()),
        });
    }
    words
}

/// Words of ACL SETUSER; after those that end so comes a pattern of keys.
const RULES: &[&str] = &[
    "+@all",
    "-@all",
    "+@read",
    "-@read",
    "+@write",
    "-@write",
    "+@string",
    "-@hash",
    "+@fast",
    "-@slow",
    "+@list",
    "-@keyspace",
    "+get",
    "-set",
    "+SORT",
    "-sort_ro",
    "+object",
    "-object|freq",
    "+select|0",
    "-select",
    "resetkeys",
    "allkeys",
    "reset",
    "~",
    "~",
    "%R~",
    "%W~",
    "%RW~",
    "(+@read ~*)",
    "(+@write %W~*)",
    "(+@all %R~a* ~z*)",
    "clearselectors",
    "+nosuch",
    "%x~",
];

/// Whether the command is a SORT of a sorted set that the reference keeps in a listpack, or may be one. The reference
/// converts that set to a skiplist, which distinguishes -0 from 0. `duramen` changes nothing (`intended.txt`), so all
/// later replies could differ.
fn sort_converts(client: &mut Client, arguments: &[Vec<u8>], queueing: bool) -> bool {
    let [name, key, ..] = arguments else { return false };
    if !name.to_ascii_uppercase().starts_with(b"SORT") {
        return false;
    }
    if queueing {
        return true;
    }
    let mut tells = |question: &[&[u8]], answer: &[u8]| match ask(&mut client.reference, question) {
        Said::Reply(reply) => reply.text() == Some(answer),
        _ => false,
    };
    tells(&[b"TYPE", key], b"zset") && tells(&[b"OBJECT", b"ENCODING", key], b"listpack")
}

fn command(random: &mut Random, is_long: bool) -> (Vec<Vec<u8>>, Treatment, bool) {
    let Some(form) = pick(random, FORMS) else { return (Vec::new(), Treatment::Exact, false) };
    let mut words: Vec<&str> = form.words.to_vec();
    for _ in 0..random.below(4) {
        if let Some(option) = pick(random, form.options) {
            words.extend(option.split(' '));
        }
    }
    // Now and then one word too few or too many.
    match random.below(60) {
        // Without a count these draw one element at random.
        0 if words.len() > 1 && !["SPOP", "SRANDMEMBER", "HRANDFIELD", "ZRANDMEMBER"].contains(&words[0]) => {
            words.pop();
        }
        // With a word after its timeout, a command would wait for as many seconds as that word says. The sorted-set
        // commands take an option since 7.2, which the reference lacks.
        1 if words.last() != Some(&"0.001") && !["ZRANK", "ZREVRANK"].contains(&words[0]) => words.push("v"),
        _ => {}
    }
    let keys = keys_of(form.words[0]);
    let mut arguments: Vec<Vec<u8>> =
        words.into_iter().map(|word| argument(random, word, keys, is_long)).collect();
    if random.one_in(8)
        && let Some(name) = arguments.first_mut()
    {
        name.make_ascii_lowercase();
    }
    let lowered = arguments.first().is_some_and(|name| name.iter().any(u8::is_ascii_lowercase));
    // The names above are compared in uppercase.
    if lowered && let Some(name) = arguments.first_mut() {
        let upper = name.to_ascii_uppercase();
        if [&b"MULTI"[..], b"EXEC", b"DISCARD"].contains(&upper.as_slice()) {
            *name = upper;
        }
    }
    let treatment = if form.is_ordered && !is_long { Treatment::Exact } else { form.treatment.clone() };
    if random.one_in(6) {
        arguments = from_script(random, arguments);
    }
    (arguments, treatment, form.is_quiet)
}

/// The command from a script, which declares no key, or all arguments as keys.
fn from_script(random: &mut Random, command: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    const SCRIPTS: &[(&str, bool)] = &[
        ("return redis.call(unpack(ARGV))", false),
        ("return redis.pcall(unpack(ARGV))", false),
        ("return {redis.pcall(unpack(KEYS))}", true),
        ("local r = redis.call(unpack(ARGV)) redis.call('INCR', 'script') return r", false),
        ("redis.call('SET', 'script', 'x') redis.call(unpack(ARGV)) error('then')", false),
    ];
    let Some((script, are_keys)) = pick(random, SCRIPTS) else { return command };
    let count = if *are_keys { command.len() } else { 0 };
    let head = [b"EVAL".to_vec(), script.as_bytes().to_vec(), count.to_string().into_bytes()];
    head.into_iter().chain(command).collect()
}

/// Commands that a server may run as one, even if those of one type alternate: grouped by type, each with the words
/// after its key.
const ROWS: [&[(&str, &[&str])]; 7] = [
    &[("HGET", &["n"]), ("HSET", &["n", "y"]), ("HDEL", &["n"]), ("HLEN", &[]), ("HEXISTS", &["n"])],
    &[("LPUSH", &["n"]), ("RPUSH", &["n"]), ("LPOP", &[]), ("RPOP", &[]), ("LLEN", &[])],
    &[("SADD", &["n"]), ("SREM", &["n"]), ("SISMEMBER", &["n"]), ("SCARD", &[])],
    &[
        ("ZADD", &["s", "n"]),
        ("ZREM", &["n"]),
        ("ZPOPMIN", &[]),
        ("ZPOPMAX", &[]),
        ("ZSCORE", &["n"]),
        ("ZRANK", &["n"]),
        ("ZREVRANK", &["n"]),
        ("ZCARD", &[]),
    ],
    &[("XADD", &["d", "n", "y"])],
    &[("PFADD", &["n"])],
    &[("SETBIT", &["o", "b"])],
];

/// Now and then replaces such a command by a row of similar ones, mostly for the same key, in one write.
fn row(random: &mut Random, arguments: &[Vec<u8>], is_long: bool) -> Option<Vec<Vec<Vec<u8>>>> {
    let (name, key) = (arguments.first()?, arguments.get(1)?);
    let of_type = ROWS.iter().find(|row| row.iter().any(|(other, _)| other.as_bytes() == name))?;
    if !random.one_in(3) {
        return None;
    }
    let (count, others) = (2 + random.below(40), random.below(3));
    // Up to two more commands of its type.
    let mut said: Vec<_> = of_type.iter().filter(|(other, _)| other.as_bytes() == name).collect();
    said.extend((0..others).filter_map(|_| pick(random, of_type)));
    let one = |random: &mut Random| {
        let key = if random.one_in(50) { argument(random, "k", KEYS, is_long) } else { key.clone() };
        let (name, words) = said[random.below(said.len() as u64) as usize];
        // Sets that are ordered by their members have one score.
        let is_zero = key == b"zero";
        let word_of = |word| if is_zero && word == "s" { "0" } else { word };
        let words = words.iter().map(|word| argument(random, word_of(word), KEYS, is_long));
        [name.as_bytes().to_vec(), key].into_iter().chain(words).collect()
    };
    Some((0..count).map(|_| one(random)).collect())
}

/// The keys that a command mostly gets.
fn keys_of(name: &str) -> &'static [&'static str] {
    let is_one_of = |names: &[&str]| names.iter().any(|begin| name.starts_with(begin));
    match name {
        _ if is_one_of(ANY_TYPE) => KEYS,
        _ if is_one_of(ON_LISTS) => LIST_KEYS,
        _ if is_one_of(ON_SETS) => SET_KEYS,
        _ if name.starts_with("SORT") => LIST_KEYS,
        _ if name.starts_with('H') => HASH_KEYS,
        _ if name.starts_with('Z') || name.starts_with("BZ") => SORTED_SET_KEYS,
        _ if name.starts_with('X') => STREAM_KEYS,
        _ => STRING_KEYS,
    }
}

fn argument(random: &mut Random, word: &str, keys: &'static [&'static str], is_long: bool) -> Vec<u8> {
    if let "d" | "j" | "r" = word {
        return stream_id(random, word);
    }
    let pool = match word {
        "k" if random.one_in(4) => KEYS,
        "k" => keys,
        "p" => LOG_KEYS,
        "v" | "y" => VALUES,
        "n" => NAMES,
        "m" => MEMBERS,
        "s" => SCORES,
        "z" => SCORE_BOUNDS,
        "x" => LEX_BOUNDS,
        "i" => INTEGERS,
        "o" => OFFSETS,
        "f" => FLOATS,
        "t" => RELATIVE,
        "a" => ABSOLUTE,
        "w" => FIELDS,
        "u" => GROUPS,
        "c" => CONSUMERS,
        "b" => BITS,
        _ => return word.as_bytes().to_vec(),
    };
    let text = pick(random, pool).copied().unwrap_or_default().as_bytes();
    // A value is now and then long, or has other bytes.
    match word {
        "v" if random.one_in(10) => text.repeat(1 + random.below(300) as usize),
        "y" | "n" if is_long && random.one_in(10) => text.repeat(1 + random.below(300) as usize),
        "v" if random.one_in(6) => (0..random.below(20)).map(|_| random.any() as u8).collect(),
        _ => text.to_vec(),
    }
}

/// An id out of few, so that a requested entry sometimes exists.
fn stream_id(random: &mut Random, word: &str) -> Vec<u8> {
    let ms = random.below(40);
    let end = match random.below(8) {
        0 | 1 if word == "d" => "-*",
        2 => "-1",
        3 => "-2",
        4 => "-0",
        _ => "",
    };
    let begin = match random.below(6) {
        0 | 1 if word == "r" => "(",
        2 if word == "r" => return b"-".to_vec(),
        3 if word == "r" => return b"+".to_vec(),
        4 if random.one_in(8) => return b"x".to_vec(),
        _ => "",
    };
    format!("{begin}{ms}{end}").into_bytes()
}

fn pick<'a, T>(random: &mut Random, pool: &'a [T]) -> Option<&'a T> {
    pool.get(random.below(pool.len() as u64) as usize)
}

/// In the syntax of redis-cli.
fn shown(arguments: &[Vec<u8>]) -> String {
    let words: Vec<String> = arguments
        .iter()
        .map(|argument| {
            let plain = !argument.is_empty()
                && argument.iter().all(|b| b.is_ascii_graphic() && !b"\"'\\".contains(b));
            match plain {
                true => String::from_utf8_lossy(argument).into_owned(),
                false => format!("\"{}\"", argument.escape_ascii()),
            }
        })
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_commands() {
        let commands = |seed| {
            let mut random = Random::new(seed);
            (0..500).map(|at| command(&mut random, at % 2 == 0).0).collect::<Vec<_>>()
        };
        assert_eq!(commands(1), commands(1));
        assert_ne!(commands(1), commands(2));
    }

    #[test]
    fn commands_are_shown_as_redis_cli_takes_them() {
        let words = [&b"SET"[..], b"", b"a b\x00", b"x"].map(<[u8]>::to_vec);
        assert_eq!(shown(&words), r#"SET "" "a b\x00" x"#);
    }
}

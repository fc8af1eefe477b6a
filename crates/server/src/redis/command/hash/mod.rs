//! Commands on hashes.

mod change;
mod counter;
mod expiry;
mod get;
mod random;
mod whole;

use super::{Command, Step, step};

/// The commands of this group.
pub const COMMANDS: &[Command] = &[
    Command::new("hset", change::hset).step(4, Step::Hash(change::hset_step)),
    Command::new("hsetnx", change::hsetnx),
    Command::new("hmset", change::hmset),
    Command::new("hdel", change::hdel)
        .removes()
        .step(3, Step::Hash(|hash, reply, args| step::remove(hash, reply, args, "hdel"))),
    Command::new("hget", get::hget).merged(3).step(3, Step::Hash(get::hget_step)),
    Command::new("hmget", get::hmget),
    Command::new("hlen", get::hlen).step(2, Step::Hash(step::len)),
    Command::new("hexists", get::hexists).step(3, Step::Hash(step::has)),
    Command::new("hstrlen", get::hstrlen),
    Command::new("hkeys", whole::hkeys),
    Command::new("hvals", whole::hvals),
    Command::new("hgetall", whole::hgetall),
    Command::new("hscan", whole::hscan),
    Command::new("hincrby", counter::hincrby),
    Command::new("hincrbyfloat", counter::hincrbyfloat),
    Command::new("hrandfield", random::hrandfield),
    Command::new("hexpire", expiry::hexpire),
    Command::new("hpexpire", expiry::hpexpire),
    Command::new("hexpireat", expiry::hexpireat),
    Command::new("hpexpireat", expiry::hpexpireat),
    Command::new("httl", expiry::httl),
    Command::new("hpttl", expiry::hpttl),
    Command::new("hexpiretime", expiry::hexpiretime),
    Command::new("hpexpiretime", expiry::hpexpiretime),
    Command::new("hpersist", expiry::hpersist),
];

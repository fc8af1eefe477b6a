//! Commands on hashes.

mod change;
mod counter;
mod get;
mod random;
mod whole;

use super::Command;

/// The commands of this group.
pub const COMMANDS: &[Command] = &[
    Command::new("hset", change::hset).merged(4),
    Command::new("hsetnx", change::hsetnx),
    Command::new("hmset", change::hmset),
    Command::new("hdel", change::hdel),
    Command::new("hget", get::hget).merged(3),
    Command::new("hmget", get::hmget),
    Command::new("hlen", get::hlen),
    Command::new("hexists", get::hexists),
    Command::new("hstrlen", get::hstrlen),
    Command::new("hkeys", whole::hkeys),
    Command::new("hvals", whole::hvals),
    Command::new("hgetall", whole::hgetall),
    Command::new("hscan", whole::hscan),
    Command::new("hincrby", counter::hincrby),
    Command::new("hincrbyfloat", counter::hincrbyfloat),
    Command::new("hrandfield", random::hrandfield),
];

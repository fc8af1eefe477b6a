//! Commands on sets.

mod algebra;
mod change;
mod get;
mod random;

use super::Command;

/// The commands of this group.
pub const COMMANDS: &[Command] = &[
    Command::new("sadd", change::sadd).merged(3),
    Command::new("srem", change::srem),
    Command::new("smove", change::smove),
    Command::new("smembers", get::smembers),
    Command::new("sismember", get::sismember).merged(3),
    Command::new("smismember", get::smismember),
    Command::new("scard", get::scard),
    Command::new("sscan", get::sscan),
    Command::new("spop", random::spop).merged(2),
    Command::new("srandmember", random::srandmember),
    Command::new("sunion", algebra::sunion),
    Command::new("sinter", algebra::sinter),
    Command::new("sdiff", algebra::sdiff),
    Command::new("sunionstore", algebra::sunionstore),
    Command::new("sinterstore", algebra::sinterstore),
    Command::new("sdiffstore", algebra::sdiffstore),
    Command::new("sintercard", algebra::sintercard),
];

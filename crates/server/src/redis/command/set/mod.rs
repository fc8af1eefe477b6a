//! Commands on sets.

mod algebra;
mod change;
mod get;
mod random;

pub use algebra::count_common;

use super::{Command, Step, step};

/// The commands of this group.
pub const COMMANDS: &[Command] = &[
    Command::new("sadd", change::sadd).step(3, Step::Set(change::sadd_step)),
    Command::new("srem", change::srem)
        .removes()
        .step(3, Step::Set(|set, reply, args| step::remove(set, reply, args, "srem"))),
    Command::new("smove", change::smove),
    Command::new("smembers", get::smembers),
    Command::new("sismember", get::sismember).merged(3).step(3, Step::Set(step::has)),
    Command::new("smismember", get::smismember),
    Command::new("scard", get::scard).step(2, Step::Set(step::len)),
    Command::new("sscan", get::sscan),
    Command::new("spop", random::spop).removes().step(2, Step::Set(random::spop_step)),
    Command::new("srandmember", random::srandmember),
    Command::new("sunion", algebra::sunion),
    Command::new("sinter", algebra::sinter),
    Command::new("sdiff", algebra::sdiff),
    Command::new("sunionstore", algebra::sunionstore),
    Command::new("sinterstore", algebra::sinterstore),
    Command::new("sdiffstore", algebra::sdiffstore),
    Command::new("sintercard", algebra::sintercard),
];

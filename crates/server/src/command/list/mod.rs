//! Commands on lists.

mod blocking;
mod change;
mod get;
mod pop;
mod push;
mod relocate;

use super::{Args, Command, CommandError, errors};
use duramen_structures::End;

/// The commands of this group.
pub const COMMANDS: &[Command] = &[
    Command::new("lpush", push::lpush).merged(3),
    Command::new("lpushx", push::lpushx),
    Command::new("rpush", push::rpush).merged(3),
    Command::new("rpushx", push::rpushx),
    Command::new("lpop", pop::lpop).merged(2),
    Command::new("rpop", pop::rpop).merged(2),
    Command::new("lmpop", pop::lmpop),
    Command::new("lmove", relocate::lmove),
    Command::new("rpoplpush", relocate::rpoplpush),
    Command::new("blpop", blocking::blpop),
    Command::new("brpop", blocking::brpop),
    Command::new("blmpop", blocking::blmpop),
    Command::new("blmove", blocking::blmove),
    Command::new("brpoplpush", blocking::brpoplpush),
    Command::new("llen", get::llen),
    Command::new("lrange", get::lrange),
    Command::new("lindex", get::lindex),
    Command::new("lpos", get::lpos),
    Command::new("lset", change::lset),
    Command::new("linsert", change::linsert),
    Command::new("lrem", change::lrem),
    Command::new("ltrim", change::ltrim),
];

/// LEFT or RIGHT.
fn end(args: Args<'_>, index: usize) -> Result<End, CommandError> {
    match () {
        () if args.is(index, "left") => Ok(End::Left),
        () if args.is(index, "right") => Ok(End::Right),
        () => Err(errors::SYNTAX),
    }
}

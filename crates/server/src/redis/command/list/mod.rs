//! Commands on lists.

mod blocking;
mod change;
mod get;
mod pop;
mod push;
mod relocate;

use super::{Args, Command, CommandError, Step, errors};
use duramen_structures::End;

/// The commands of this group.
pub const COMMANDS: &[Command] = &[
    Command::new("lpush", push::lpush)
        .step(3, Step::List(|list, reply, args| push::push_step(list, reply, args, End::Left))),
    Command::new("lpushx", push::lpushx),
    Command::new("rpush", push::rpush)
        .step(3, Step::List(|list, reply, args| push::push_step(list, reply, args, End::Right))),
    Command::new("rpushx", push::rpushx),
    Command::new("lpop", pop::lpop)
        .removes()
        .step(2, Step::List(|list, reply, _| pop::pop_step(list, reply, End::Left))),
    Command::new("rpop", pop::rpop)
        .removes()
        .step(2, Step::List(|list, reply, _| pop::pop_step(list, reply, End::Right))),
    Command::new("lmpop", pop::lmpop).removes(),
    Command::new("lmove", relocate::lmove),
    Command::new("rpoplpush", relocate::rpoplpush),
    Command::new("blpop", blocking::blpop).removes(),
    Command::new("brpop", blocking::brpop).removes(),
    Command::new("blmpop", blocking::blmpop).removes(),
    Command::new("blmove", blocking::blmove),
    Command::new("brpoplpush", blocking::brpoplpush),
    Command::new("llen", get::llen).step(2, Step::List(get::llen_step)),
    Command::new("lrange", get::lrange),
    Command::new("lindex", get::lindex),
    Command::new("lpos", get::lpos),
    Command::new("lset", change::lset),
    Command::new("linsert", change::linsert),
    Command::new("lrem", change::lrem).removes(),
    Command::new("ltrim", change::ltrim).removes(),
];

/// LEFT or RIGHT.
fn end(args: Args<'_>, index: usize) -> Result<End, CommandError> {
    match () {
        () if args.is(index, "left") => Ok(End::Left),
        () if args.is(index, "right") => Ok(End::Right),
        () => Err(errors::SYNTAX),
    }
}

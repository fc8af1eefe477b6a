//! SLOWLOG: the commands that took long.

use crate::redis::command::call::subcommand_arguments_error;
use crate::redis::command::{Call, Command, CommandError, integer};

/// The subcommands.
pub const SUBCOMMANDS: &[Command] = &[
    Command::new("slowlog|get", get),
    Command::new("slowlog|len", len),
    Command::new("slowlog|reset", reset),
    Command::new("slowlog|help", help),
];

const HELP: &[&str] = &[
    "SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET [<count>]",
    "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
    "    Entries are made of:",
    "    id, timestamp, time in microseconds, arguments array, client IP and port,",
    "    client name",
    "LEN",
    "    Return the length of the slowlog.",
    "RESET",
    "    Reset the slowlog.",
    "HELP",
    "    Prints this help.",
];

const COUNT_DEFAULT: usize = 10;

fn help(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.lines(HELP);
    Ok(())
}

/// SLOWLOG GET [count]: the last ones, the last one first.
fn get(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let count = match call.args.len() {
        2 => COUNT_DEFAULT,
        3 => match integer(call.args.at(2)) {
            Some(-1) => usize::MAX,
            count => count
                .and_then(|count| usize::try_from(count).ok())
                .ok_or(CommandError::new("ERR count should be greater than or equal to -1"))?,
        },
        _ => return Err(subcommand_arguments_error(call.entry, call.args)),
    };
    let found = call.server.times.slow_log.last(count);
    let reply = &mut call.reply;
    reply.array(found.len());
    for entry in found {
        reply.array(6);
        reply.integer(entry.id as i64);
        reply.integer(entry.at as i64);
        reply.integer(entry.micros as i64);
        reply.array(entry.args.len());
        entry.args.iter().for_each(|argument| reply.bulk(argument));
        reply.bulk(entry.address.as_bytes());
        reply.bulk(&entry.name);
    }
    Ok(())
}

fn len(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.count(call.server.times.slow_log.len());
    Ok(())
}

fn reset(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.server.times.slow_log.reset();
    call.reply.ok();
    Ok(())
}

//! MEMORY USAGE key [SAMPLES count]: the bytes that a key takes on the medium.

use crate::command::{Call, Command, CommandError, errors};

/// The subcommands.
pub const SUBCOMMANDS: &[Command] = &[Command::new("memory|usage", usage), Command::new("memory|help", help)];

const HELP: &[&str] = &[
    "MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "USAGE <key> [SAMPLES <count>]",
    "    Return memory in bytes used by <key> and its value. Nested values are",
    "    sampled up to <count> times (default: 5, 0 means sample all).",
    "HELP",
    "    Prints this help.",
];

fn help(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.lines(HELP);
    Ok(())
}

fn usage(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    match call.args.len() {
        3 => {}
        5 if call.args.is(3, "samples") => {
            if call.args.integer(4)? < 0 {
                return Err(errors::SYNTAX);
            }
        }
        _ => return Err(errors::SYNTAX),
    }
    let (db, key) = (call.db(), call.args.at(2));
    match call.txn.get(db, key)? {
        None => call.reply.null(),
        Some(value) => match value.footprint() {
            Some(bytes) => call.reply.integer(bytes as i64),
            // Not on the medium yet: what it holds is all that is known.
            None => call.reply.count(key.len() + value.len()),
        },
    }
    Ok(())
}

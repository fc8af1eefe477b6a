//! CLIENT PAUSE timeout [WRITE | ALL] and CLIENT UNPAUSE: commands of all clients wait, or those that write.

use crate::clients::unix_millis;
use crate::redis::command::call::subcommand_arguments_error;
use crate::redis::command::{Call, CommandError, integer};

/// CLIENT PAUSE.
pub fn pause(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let all = match args.len() {
        3 => true,
        4 if args.is(3, "all") => true,
        4 if args.is(3, "write") => false,
        4 => return Err(CommandError::new("ERR CLIENT PAUSE mode must be WRITE or ALL")),
        _ => return Err(subcommand_arguments_error(call.entry, args)),
    };
    let millis =
        integer(args.at(2)).ok_or(CommandError::new("ERR timeout is not an integer or out of range"))?;
    let millis = u64::try_from(millis).map_err(|_| CommandError::new("ERR timeout is negative"))?;
    let now = unix_millis();
    call.server.pause.begin(now, now.saturating_add(millis), all);
    call.reply.ok();
    Ok(())
}

/// CLIENT UNPAUSE.
pub fn unpause(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.server.pause.end();
    call.reply.ok();
    Ok(())
}

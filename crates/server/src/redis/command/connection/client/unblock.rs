//! CLIENT UNBLOCK client-id [TIMEOUT | ERROR]: ends another client's wait for a key.

use crate::redis::blocking::null_reply;
use crate::redis::command::call::subcommand_arguments_error;
use crate::redis::command::{Call, CommandError};
use crate::redis::worker_state::Claim;

const UNBLOCKED: &[u8] = b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n";

/// See the module. Whether it waited.
pub fn unblock(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let is_error = match () {
        () if args.len() > 4 => return Err(subcommand_arguments_error(call.entry, args)),
        () if args.len() == 3 || args.is(3, "timeout") => false,
        () if args.is(3, "error") => true,
        () => return Err(CommandError::new("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
    };
    let waiter = u64::try_from(args.integer(2)?).ok().and_then(|id| call.server.waiting.of_client(id));
    let claimed = waiter.filter(|waiter| waiter.claim());
    call.reply.integer(i64::from(claimed.is_some()));
    call.worker_state.claims.extend(claimed.map(|waiter| match is_error {
        true => Claim { failed: Some("UNBLOCKED".to_owned()), ..Claim::answered(waiter, UNBLOCKED.into()) },
        false => {
            let reply = null_reply(&waiter);
            Claim::answered(waiter, reply)
        }
    }));
    Ok(())
}

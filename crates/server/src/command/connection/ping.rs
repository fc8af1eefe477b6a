//! PING [message]: whether anybody is there.

use crate::command::{Call, CommandError, Flags, Spec};

pub const SPEC: Spec = Spec { arity: -1, flags: Flags::FAST, ..Spec::new("ping", ping) };

fn ping(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    match call.args.len() {
        1 => call.reply.simple("PONG"),
        2 => {
            let message = call.args.at(1);
            call.reply.bulk(message);
        }
        _ => return Err(CommandError::arity("ping")),
    }
    Ok(())
}

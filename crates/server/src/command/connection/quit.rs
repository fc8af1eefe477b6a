//! QUIT: ends the connection, once everything before it is answered.

use super::ALWAYS;
use crate::command::{Call, CommandError, Flags, Spec};

pub const SPEC: Spec = Spec { arity: -1, flags: ALWAYS.with(Flags::NOT_QUEUED), ..Spec::new("quit", quit) };

fn quit(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.session.closing = true;
    call.reply.ok();
    Ok(())
}

//! ECHO message: gives the message back.

use crate::command::{Call, CommandError, Flags, Spec};

pub const SPEC: Spec =
    Spec { arity: 2, flags: Flags::LOADING.with(Flags::STALE).with(Flags::FAST), ..Spec::new("echo", echo) };

fn echo(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let message = call.args.at(1);
    call.reply.bulk(message);
    Ok(())
}

//! UNWATCH: forgets what is watched. Inside MULTI, of no effect: EXEC forgets it anyway.

use crate::command::{Call, CommandError, Flags, Spec};

pub const SPEC: Spec = Spec {
    flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::FAST).with(Flags::ALLOW_BUSY),
    ..Spec::new("unwatch", unwatch)
};

fn unwatch(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if !call.in_transaction {
        call.session.watched.clear();
    }
    call.reply.ok();
    Ok(())
}

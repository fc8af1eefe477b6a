//! DISCARD: forgets what MULTI queued, and what is watched.

use crate::command::{Call, CommandError, Flags, Spec};

pub const SPEC: Spec = Spec {
    flags: Flags::NOSCRIPT
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::FAST)
        .with(Flags::ALLOW_BUSY)
        .with(Flags::NOT_QUEUED),
    ..Spec::new("discard", discard)
};

fn discard(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if call.session.transaction.is_none() {
        return Err(CommandError::new("ERR DISCARD without MULTI"));
    }
    call.session.transaction_over = true;
    call.reply.ok();
    Ok(())
}

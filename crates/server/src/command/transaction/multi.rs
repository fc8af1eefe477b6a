//! MULTI: what follows is queued for EXEC.

use crate::command::{Call, CommandError, Flags, Spec};
use crate::session::Transaction;

pub const SPEC: Spec = Spec {
    flags: Flags::NOSCRIPT
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::FAST)
        .with(Flags::ALLOW_BUSY)
        .with(Flags::NOT_QUEUED),
    ..Spec::new("multi", multi)
};

fn multi(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if call.session.transaction.is_some() {
        return Err(CommandError::new("ERR MULTI calls can not be nested"));
    }
    call.session.transaction = Some(Transaction::default());
    call.reply.ok();
    Ok(())
}

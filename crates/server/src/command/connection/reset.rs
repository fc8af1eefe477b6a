//! RESET: the connection becomes as it was when it came.

use super::ALWAYS;
use crate::command::{Call, CommandError, Flags, Spec};
use crate::resp::Protocol;
use crate::session::ReplyMode;
use std::sync::atomic::Ordering;

pub const SPEC: Spec = Spec { flags: ALWAYS.with(Flags::NOT_QUEUED), ..Spec::new("reset", reset) };

fn reset(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let session = &mut *call.session;
    session.transaction_drop();
    session.db = 0;
    session.protocol = Protocol::Resp2;
    session.reply_mode = ReplyMode::On;
    session.authenticated = call.server.config().requirepass.is_empty();
    session.client.rename(|names| names.name.clear());
    session.client.no_evict.store(false, Ordering::Relaxed);
    session.client.no_touch.store(false, Ordering::Relaxed);
    call.reply.protocol = Protocol::Resp2;
    call.reply.simple("RESET");
    Ok(())
}

//! MONITOR: from now on this client is sent the commands of all clients.

use crate::redis::command::{Call, CommandError};

/// MONITOR.
pub fn monitor(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if call.in_transaction {
        return Err(CommandError::new("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    // A client that monitors already gets no reply, as in Redis.
    if call.session.monitors_since.is_none() {
        call.worker_state.monitor(call.server, call.session);
        call.reply.ok();
    }
    Ok(())
}

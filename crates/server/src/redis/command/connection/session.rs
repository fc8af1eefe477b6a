//! The connection itself: PING, ECHO, SELECT, RESET, QUIT.

use crate::redis::command::key::database;
use crate::redis::command::{Call, CommandError};
use crate::redis::resp::Protocol;
use crate::redis::session::ReplyMode;
use std::sync::atomic::Ordering;

/// PING [message]: a check that the server answers.
pub fn ping(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    match call.args.len() {
        1 | 2 if call.session.only_listens() => {
            call.reply.array(2);
            call.reply.bulk(b"pong");
            call.reply.bulk(call.args.at(1));
        }
        1 => call.reply.simple("PONG"),
        2 => {
            let message = call.args.at(1);
            call.reply.bulk(message);
        }
        _ => return Err(CommandError::arity(call.entry.spec.name)),
    }
    Ok(())
}

/// ECHO message: gives the message back.
pub fn echo(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let message = call.args.at(1);
    call.reply.bulk(message);
    Ok(())
}

/// SELECT index: which database the following commands are about.
pub fn select(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.session.db = database(call, 1)?;
    call.reply.ok();
    Ok(())
}

/// RESET: the connection becomes as it was when it came.
pub fn reset(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let session = &mut *call.session;
    call.worker_state.unsubscribe_all(call.server, session);
    call.worker_state.track_no_more(call.server, session);
    call.worker_state.unmonitor(call.server, session);
    session.transaction_drop();
    session.db = 0;
    session.protocol = Protocol::Resp2;
    session.reply_mode = ReplyMode::On;
    session.log_out(&call.server.users);
    session.client.rename(|names| names.name.clear());
    session.client.no_evict.store(false, Ordering::Relaxed);
    session.client.no_touch.store(false, Ordering::Relaxed);
    call.reply.protocol = Protocol::Resp2;
    call.reply.simple("RESET");
    Ok(())
}

/// QUIT: ends the connection, once everything before it is answered.
pub fn quit(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.session.closing = true;
    call.reply.ok();
    Ok(())
}

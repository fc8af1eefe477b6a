//! Authentication and the handshake: AUTH, HELLO.

use super::client::{check_name, set_name};
use crate::acl::log::Context;
use crate::redis::command::{Call, CommandError, admin::REDIS_VERSION, errors, integer, rights};
use crate::redis::resp::Protocol;
use std::time::Instant;

const NO_AUTH: CommandError = CommandError::new(
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> \
     <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
);

/// AUTH [username] password: without a name, of the default user.
pub fn auth(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (user, password) = match call.args.len() {
        2 => {
            if call.server.users.default_user().rules().needs_no_password() {
                return Err(CommandError::new(
                    "ERR AUTH <password> called without any password configured for the default user. Are you sure \
                     your configuration is correct?",
                ));
            }
            (&b"default"[..], call.args.at(1))
        }
        3 => (call.args.at(1), call.args.at(2)),
        _ => return Err(errors::SYNTAX),
    };
    authenticate(call, user, password)?;
    call.reply.ok();
    Ok(())
}

/// HELLO [protocol [AUTH user password] [SETNAME name]]: describes the server, and selects the protocol.
pub fn hello(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let protocol = match args.get(1) {
        None => None,
        Some(text) => match integer(text) {
            None => {
                return Err(CommandError::new("ERR Protocol version is not an integer or out of range"));
            }
            Some(2) => Some(Protocol::Resp2),
            Some(3) => Some(Protocol::Resp3),
            Some(_) => return Err(CommandError::new("NOPROTO unsupported protocol version")),
        },
    };
    let (mut credentials, mut name) = (None, None);
    let mut at = 2;
    while at < args.len() {
        let more = args.len() - at - 1;
        if args.is(at, "auth") && more >= 2 {
            credentials = Some((args.at(at + 1), args.at(at + 2)));
            at += 3;
        } else if args.is(at, "setname") && more >= 1 {
            name = Some(check_name(args.at(at + 1))?);
            at += 2;
        } else {
            let option = String::from_utf8_lossy(args.at(at));
            return Err(CommandError::with(format!("ERR Syntax error in HELLO option '{option}'")));
        }
    }
    if let Some((user, password)) = credentials {
        authenticate(call, user, password)?;
    }
    if !call.session.authenticated && !call.server.users.is_open() {
        return Err(NO_AUTH);
    }
    if let Some(name) = name {
        set_name(call, name);
    }
    if let Some(protocol) = protocol {
        call.session.protocol = protocol;
        call.reply.protocol = protocol;
    }

    let (id, protocol) = (call.session.client.id, call.session.protocol);
    let reply = &mut call.reply;
    reply.map(7);
    for (field, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.integer(i64::from(protocol.number()));
    reply.bulk(b"id");
    reply.integer(id as i64);
    for (field, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
    Ok(())
}

/// Logs the connection in as a user, or returns the error. The answer to a failed login is held back, without a wait of others.
fn authenticate(call: &mut Call<'_, '_>, name: &[u8], password: &[u8]) -> Result<(), CommandError> {
    let server = call.server;
    if let Some(user) = server.users.authenticate(name, password) {
        call.session.log_in(user, &server.users);
        return Ok(());
    }
    let context = if call.in_transaction { Context::Multi } else { Context::TopLevel };
    rights::note_failed_login(call, name, context);
    let delay = server.failed_login(&call.session.client.address, name);
    // Of several in one EXEC each adds its own.
    let now = Instant::now();
    let from = call.session.paused_until.map_or(now, |until| until.max(now));
    call.session.paused_until = Some(from + delay);
    Err(errors::WRONG_PASS)
}

//! The check of a command against the rights of its client's user, and what is noted of a refusal.

use super::call::{Call, Entry, Table};
use super::{Args, CommandError, denied};
use crate::acl::Denied;
use crate::acl::log::{Context, Entry as Event, Reason};
use crate::clients::{COMMAND_NONE, unix_millis};
use crate::redis::session::Session;
use crate::server::Server;
use std::sync::atomic::Ordering;

/// Whether the client's user may run the command.
///
/// # Errors
/// What it may not, which is noted in ACL LOG.
#[inline]
pub fn check(
    server: &Server,
    table: &Table,
    session: &mut Session,
    entry: &Entry,
    args: Args<'_>,
    context: Context,
) -> Result<(), Denied> {
    if session.login.is_unlimited(&server.users) {
        return Ok(());
    }
    check_limited(server, table, session, entry, args, context)
}

fn check_limited(
    server: &Server,
    table: &Table,
    session: &mut Session,
    entry: &Entry,
    args: Args<'_>,
    context: Context,
) -> Result<(), Denied> {
    let checked = session.login.check(&server.users, &entry.spec, entry.index, args);
    if let Err(denied) = checked {
        session.command_last = entry.index as u32;
        let (reason, object) = refused(entry, args, denied);
        let name = session.login.name().unwrap_or_default().to_vec();
        note(server, table, session, (reason, context), object, name);
    }
    checked
}

/// Why a command is refused, and what of it.
fn refused<'a>(entry: &'a Entry, args: Args<'a>, denied: Denied) -> (Reason, &'a [u8]) {
    match denied {
        Denied::Command => (Reason::Command, entry.spec.name.as_bytes()),
        Denied::Key(at) => (Reason::Key, args.at(at)),
        Denied::Channel(at) => (Reason::Channel, args.at(at)),
    }
}

/// A refused command of a script.
pub struct RefusedInScript {
    reason: Reason,
    object: Box<[u8]>,
}

/// The same for a command of a script. It notes nothing: the script may run again.
///
/// # Errors
/// The error, and what [`note_in_script`] notes when the run counts.
#[inline]
pub fn check_in_script(
    server: &Server,
    session: &mut Session,
    entry: &Entry,
    args: Args<'_>,
) -> Result<(), (&'static str, RefusedInScript)> {
    session.login.check(&server.users, &entry.spec, entry.index, args).map_err(|denied| {
        let (reason, object) = refused(entry, args, denied);
        (denied::denied_in_script(denied), RefusedInScript { reason, object: object.into() })
    })
}

/// Notes a refused command of a script in ACL LOG.
pub fn note_in_script(server: &Server, table: &Table, session: &Session, refused: &RefusedInScript) {
    let name = session.login.name().unwrap_or_default().to_vec();
    note(server, table, session, (refused.reason, Context::Lua), &refused.object, name);
}

/// The same for a command that EXEC runs.
///
/// # Errors
/// The reply.
pub fn check_queued(call: &mut Call<'_, '_>, entry: &Entry, args: Args<'_>) -> Result<(), CommandError> {
    check(call.server, call.table, call.session, entry, args, Context::Multi).map_err(denied::denied_since)
}

/// Notes a failed login in ACL LOG.
pub fn note_failed_login(call: &mut Call<'_, '_>, name: &[u8], context: Context) {
    let object = call.args.at(0);
    note(call.server, call.table, call.session, (Reason::Auth, context), object, name.to_vec());
}

#[cold]
fn note(
    server: &Server,
    table: &Table,
    session: &Session,
    (reason, context): (Reason, Context),
    object: &[u8],
    user: Vec<u8>,
) {
    let now = unix_millis();
    session.publish();
    let command = match session.client.command.load(Ordering::Relaxed) {
        COMMAND_NONE => "NULL",
        index => table.at(index as usize).map_or("NULL", |entry| entry.spec.name),
    };
    let event = Event {
        id: 0,
        count: 1,
        reason,
        context,
        object: object.to_vec(),
        user,
        created: now,
        updated: now,
        client: session.client.line(command),
    };
    server.users.note(event, server.config().acllog_max_len);
}

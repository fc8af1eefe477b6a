//! CLIENT LIST [TYPE type] [ID id…] and CLIENT INFO: one line for each connection.

use crate::clients::{COMMAND_NONE, Client};
use crate::command::{Call, CommandError, Table, errors, integer};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub fn info(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.session.publish();
    let mut text = String::new();
    line(&mut text, call.table, &call.session.client);
    call.reply.verbatim(&text);
    Ok(())
}

pub fn list(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let clients = match args.len() {
        2 => call.server.clients.list(),
        4 if args.is(2, "type") => {
            if is_normal(args.at(3))? {
                call.server.clients.list()
            } else {
                Vec::new()
            }
        }
        4.. if args.is(2, "id") => {
            let ids: Option<Vec<i64>> = args.from(3).map(integer).collect();
            let ids = ids.ok_or(CommandError::new("ERR Invalid client ID"))?;
            ids.iter().filter_map(|id| call.server.clients.find(u64::try_from(*id).ok()?)).collect()
        }
        _ => return Err(errors::SYNTAX),
    };
    // This connection as it is now, not as it was at the end of its last turn.
    call.session.publish();
    let text = lines(call.table, &clients);
    call.reply.verbatim(&text);
    Ok(())
}

/// Whether a client type is that of all our clients; an error when there is no such type.
pub fn is_normal(name: &[u8]) -> Result<bool, CommandError> {
    match name.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(true),
        b"master" | b"replica" | b"slave" | b"pubsub" => Ok(false),
        _ => Err(CommandError::with(format!("ERR Unknown client type '{}'", String::from_utf8_lossy(name)))),
    }
}

fn lines(table: &Table, clients: &[Arc<Client>]) -> String {
    let mut text = String::with_capacity(clients.len() * 320);
    for client in clients {
        line(&mut text, table, client);
    }
    text
}

fn line(text: &mut String, table: &Table, client: &Client) {
    let command = match client.command.load(Ordering::Relaxed) {
        COMMAND_NONE => "NULL",
        index => table.at(index as usize).map_or("NULL", |entry| entry.spec.name),
    };
    text.push_str(&client.line(command));
    text.push('\n');
}

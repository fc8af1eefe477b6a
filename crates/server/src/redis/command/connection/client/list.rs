//! CLIENT LIST [TYPE type] [ID id…] and CLIENT INFO: one line for each connection.

use crate::clients::{COMMAND_NONE, Client};
use crate::redis::command::{Call, CommandError, Table, errors, integer};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// This connection's present state, not the one at the end of its last turn: its request is still in its buffer.
fn publish(call: &Call<'_, '_>) {
    call.session.publish();
    call.session.client.input_bytes.store(call.args.buffer_bytes() as u64, Ordering::Relaxed);
}

pub fn info(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    publish(call);
    let mut text = String::new();
    line(&mut text, call.table, &call.session.client);
    call.reply.verbatim(&text);
    Ok(())
}

pub fn list(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    publish(call);
    let args = call.args;
    let clients = match args.len() {
        2 => call.server.clients.list(),
        4 if args.is(2, "type") => {
            let of_type = ClientType::named(args.at(3))?;
            call.server.clients.list().into_iter().filter(|client| of_type.has(client)).collect()
        }
        4.. if args.is(2, "id") => {
            let ids: Option<Vec<i64>> = args.from(3).map(integer).collect();
            let ids = ids.ok_or(CommandError::new("ERR Invalid client ID"))?;
            ids.iter().filter_map(|id| call.server.clients.find(u64::try_from(*id).ok()?)).collect()
        }
        _ => return Err(errors::SYNTAX),
    };
    let text = lines(call.table, &clients);
    call.reply.verbatim(&text);
    Ok(())
}

/// The kinds of clients for CLIENT LIST and CLIENT KILL.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ClientType {
    Normal,
    PubSub,
    /// A primary or a replica, which none of our clients is.
    Other,
}

impl ClientType {
    pub fn named(name: &[u8]) -> Result<Self, CommandError> {
        match name.to_ascii_lowercase().as_slice() {
            b"normal" => Ok(Self::Normal),
            b"pubsub" => Ok(Self::PubSub),
            b"master" | b"replica" | b"slave" => Ok(Self::Other),
            _ => Err(CommandError::with(format!(
                "ERR Unknown client type '{}'",
                String::from_utf8_lossy(name)
            ))),
        }
    }

    pub fn has(self, client: &Client) -> bool {
        self == if client.listens() { Self::PubSub } else { Self::Normal }
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

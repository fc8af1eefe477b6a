//! CLIENT KILL address, or CLIENT KILL filter value…: closes connections.

use super::list::ClientType;
use crate::acl::{User, Users};
use crate::clients::Client;
use crate::redis::command::{Args, Call, CommandError, errors, integer};
use std::sync::Arc;

pub fn kill(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if call.args.len() == 3 {
        let filter = Filter { address: Some(call.args.at(2)), skip_me: false, ..Filter::default() };
        if kill_all(call, &filter) == 0 {
            return Err(CommandError::new("ERR No such client"));
        }
        call.reply.ok();
        return Ok(());
    }
    let filter = Filter::parse(call.args, &call.server.users)?;
    let count = kill_all(call, &filter);
    call.reply.integer(count);
    Ok(())
}

struct Filter<'a> {
    id: Option<u64>,
    address: Option<&'a [u8]>,
    address_local: Option<&'a [u8]>,
    of_type: Option<ClientType>,
    user: Option<Arc<User>>,
    skip_me: bool,
}

impl Default for Filter<'_> {
    fn default() -> Self {
        Self { id: None, address: None, address_local: None, of_type: None, user: None, skip_me: true }
    }
}

impl<'a> Filter<'a> {
    fn parse(args: Args<'a>, users: &Users) -> Result<Self, CommandError> {
        let mut filter = Self::default();
        let mut at = 2;
        while at < args.len() {
            let Some(value) = args.get(at + 1) else { return Err(errors::SYNTAX) };
            if args.is(at, "id") {
                let id = integer(value).and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0);
                filter.id = Some(id.ok_or(CommandError::new("ERR client-id should be greater than 0"))?);
            } else if args.is(at, "type") {
                filter.of_type = Some(ClientType::named(value)?);
            } else if args.is(at, "addr") {
                filter.address = Some(value);
            } else if args.is(at, "laddr") {
                filter.address_local = Some(value);
            } else if args.is(at, "user") {
                let user = users.find(value);
                filter.user =
                    Some(user.ok_or_else(|| CommandError::showing("ERR No such user '", value, "'"))?);
            } else if args.is(at, "skipme") {
                filter.skip_me = match (args.is(at + 1, "yes"), args.is(at + 1, "no")) {
                    (true, _) => true,
                    (_, true) => false,
                    _ => return Err(errors::SYNTAX),
                };
            } else {
                return Err(errors::SYNTAX);
            }
            at += 2;
        }
        Ok(filter)
    }

    fn matches(&self, client: &Client) -> bool {
        self.of_type.is_none_or(|of_type| of_type.has(client))
            && self.user.as_ref().is_none_or(|user| client.is_user(user))
            && self.id.is_none_or(|id| id == client.id)
            && self.address.is_none_or(|address| address == client.address.as_bytes())
            && self.address_local.is_none_or(|address| address == client.address_local.as_bytes())
    }
}

fn kill_all(call: &mut Call<'_, '_>, filter: &Filter<'_>) -> i64 {
    let mut count = 0;
    for client in call.server.clients.list() {
        if !filter.matches(&client) {
            continue;
        }
        if Arc::ptr_eq(&client, &call.session.client) {
            if filter.skip_me {
                continue;
            }
            // This one still gets its reply.
            call.session.closing = true;
        } else if !call.server.kill(&client) {
            continue;
        }
        count += 1;
    }
    count
}

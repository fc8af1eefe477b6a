//! A command's context besides its bytes.

use super::connection_state::ConnectionState;
use super::counters::Count;
use super::items::Items;
use crate::acl::log::{Context, Entry, Reason};
use crate::clients::unix_millis;
use crate::command_error::CommandError;
use crate::config::Config;
use crate::net::Output;
use crate::server::Server;
use duramen_structures::{Error, Locks};
use std::time::Instant;

/// The version that clients see: they derive the supported commands from it.
pub const VERSION: &str = "1.6.18";
/// Texts that both text protocols have.
pub const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format";
/// See [`BAD_FORMAT`].
pub const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache";

/// What is no number cannot be counted.
pub const NOT_NUMERIC: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value";

/// See the module.
pub struct Request<'a> {
    /// The items.
    pub items: Items<'a>,
    /// Where replies go.
    pub out: &'a mut Output,
    /// The state that all connections share.
    pub server: &'a Server,
    /// The configuration.
    pub config: &'a Config,
    /// The last error of the store.
    pub failure: &'a mut Option<CommandError>,
}

/// An error of the store, as a client sees it.
pub struct Refused {
    /// There is no space.
    pub is_full: bool,
    /// The text of the reply.
    pub text: Vec<u8>,
}

impl Request<'_> {
    /// Appends a line.
    pub fn line(&mut self, text: &[u8]) {
        self.out.bytes.extend_from_slice(text);
        self.out.bytes.extend_from_slice(b"\r\n");
    }

    /// Appends a line, unless the client asked for no reply.
    pub fn line_unless(&mut self, is_quiet: bool, text: &[u8]) {
        if !is_quiet {
            self.line(text);
        }
    }

    /// Logs a connection in; false, and its answer is held back, if this is not the password of the named user.
    pub fn log_in(&mut self, connection: &mut ConnectionState, name: &[u8], password: &[u8]) -> bool {
        let (server, users) = (self.server, &self.server.users);
        let user = users.authenticate(name, password);
        if user.is_none() {
            let address = &connection.client.address;
            let now = unix_millis();
            let event = Entry {
                id: 0,
                count: 1,
                reason: Reason::Auth,
                context: Context::TopLevel,
                object: b"memcached".to_vec(),
                user: name.to_vec(),
                created: now,
                updated: now,
                client: connection.client.line("NULL"),
            };
            users.note(event, self.config.acllog_max_len);
            connection.paused_until = Some(Instant::now() + server.failed_login(address, name));
        }
        connection.log_in(user, users);
        connection.authenticated
    }

    /// Records an error of the store.
    #[cold]
    pub fn refused(&mut self, error: Error) -> Refused {
        let error = CommandError::from(error);
        let is_full = error.code() == "OOM";
        if is_full {
            self.server.log_full(&error);
            self.items.counters.add(Count::StoreNoMemory);
        }
        let text = match is_full {
            true => b"SERVER_ERROR out of memory storing object".to_vec(),
            false => [b"SERVER_ERROR ", error.text()].concat(),
        };
        *self.failure = Some(error);
        Refused { is_full, text }
    }

    /// Records an item that is too large to be stored. The item that it would have replaced is out of date, and is
    /// deleted.
    pub fn too_large(&mut self, key: &[u8], replaces: bool) {
        self.items.counters.add(Count::StoreTooLarge);
        if replaces {
            let Items { worker, shared, now, .. } = &mut self.items;
            let deleted = worker.run(now.millis, Locks::One(key), |txn| txn.delete(shared.db, key));
            if let Err(error) = deleted {
                self.refused(error);
            }
        }
    }

    /// Flushes all items in this many seconds, or at that Unix time. As in memcached they go a second earlier.
    ///
    /// # Errors
    /// Those of the store.
    pub fn flush(&mut self, asked: i64) -> duramen_structures::Result<()> {
        let now = self.items.now;
        let at = now.deadline(asked.max(0)).map(|at| at.saturating_sub(1));
        self.items.flush(at.filter(|at| *at > now.seconds))
    }

    /// Reports the store's refusal as a line, which replaces the output since `start`.
    #[cold]
    pub fn refuse(&mut self, start: usize, error: Error) {
        self.out.truncate(start);
        let text = self.refused(error).text;
        self.line(&text);
    }
}

//! memcached's state of one connection.

use crate::acl::{Login, User, Users};
use crate::clients::Client;
use std::sync::Arc;
use std::time::Instant;

/// See the module.
pub struct ConnectionState {
    /// The part that other connections may read.
    pub client: Arc<Client>,
    /// Its user.
    pub login: Login,
    /// It ends when the replies so far are sent.
    pub closing: bool,
    /// It has authenticated, or no password is needed.
    pub authenticated: bool,
    /// Nothing is executed or sent before this moment: a login has failed.
    pub paused_until: Option<Instant>,
    /// Its protocol, which its first byte selects.
    pub dialect: Option<Dialect>,
    /// Bytes of unwanted data still to come.
    pub swallow: u64,
    /// Bytes of a line that has not ended, in which no end need be looked for again.
    pub scanned: usize,
    /// Where its listing of items continues, if one is running.
    pub dumps_from: Option<u64>,
}

/// A protocol of memcached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Lines, the meta commands among them.
    Text,
    /// Packets with a header.
    Binary,
}

impl ConnectionState {
    /// A connection that has just come: of the default user.
    pub fn of_client(client: Arc<Client>, users: &Users) -> Self {
        let user = users.default_user();
        client.set_user(Some(Arc::clone(user)));
        Self::new(client, Login::of(Arc::clone(user), users), users.is_open())
    }

    /// It is the connection of this user from now on, or of none.
    pub fn log_in(&mut self, user: Option<Arc<User>>, users: &Users) {
        self.authenticated = user.is_some();
        if let Some(user) = user {
            self.client.set_user(Some(Arc::clone(&user)));
            self.login = Login::of(user, users);
        }
    }

    /// A connection that has said nothing yet.
    pub const fn new(client: Arc<Client>, login: Login, authenticated: bool) -> Self {
        Self {
            client,
            login,
            paused_until: None,
            closing: false,
            authenticated,
            dialect: None,
            swallow: 0,
            scanned: 0,
            dumps_from: None,
        }
    }
}

//! memcached's state of one connection.

use crate::clients::Client;
use std::sync::Arc;

/// See the module.
pub struct ConnectionState {
    /// The part that other connections may read.
    pub client: Arc<Client>,
    /// It ends when the replies so far are sent.
    pub closing: bool,
    /// It has authenticated, or no password is needed.
    pub authenticated: bool,
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
    /// A connection that has said nothing yet.
    pub const fn new(client: Arc<Client>, authenticated: bool) -> Self {
        Self {
            client,
            closing: false,
            authenticated,
            dialect: None,
            swallow: 0,
            scanned: 0,
            dumps_from: None,
        }
    }
}

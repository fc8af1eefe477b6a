//! What a message says.

use crate::clients::Client;
use crate::command::OwnedArgs;
use crate::waiting::Waiter;
use std::sync::Arc;

/// A message on its way to connections.
#[derive(Debug)]
pub struct Message {
    /// Its place in the order of all messages.
    pub sequence: u64,
    /// What it says.
    pub content: Content,
}

/// How to put back what was taken for a client that waited, and has gone.
#[derive(Debug)]
pub struct PutBack {
    /// In which database.
    pub db: u8,
    /// The command that does it.
    pub args: OwnedArgs,
}

/// See [`Message`].
#[derive(Debug)]
pub enum Content {
    /// The reply to a command that waited.
    Reply {
        /// Whose command.
        waiter: Arc<Waiter>,
        /// What it is told.
        bytes: Box<[u8]>,
        /// What is done when it has gone.
        put_back: Option<PutBack>,
        /// The connection ends with it.
        closes: bool,
    },
    /// PUBLISH, or a notification of a key.
    Channel {
        /// Where it was published.
        channel: Box<[u8]>,
        /// What was published.
        payload: Box<[u8]>,
    },
    /// Keys that a client keeps copies of were written.
    Invalidate {
        /// Who is told.
        client: Arc<Client>,
        /// In place of another.
        redirected: bool,
        /// Which keys; `None`: all.
        keys: Option<Vec<Box<[u8]>>>,
    },
    /// The client that was to be told in place of this one has gone.
    RedirectBroken {
        /// Who is told.
        client: Arc<Client>,
        /// Who has gone.
        redirect: u64,
    },
    /// A line for those who said MONITOR.
    Monitor {
        /// With its line end.
        line: Box<[u8]>,
    },
    /// SPUBLISH.
    Shard {
        /// Where it was published.
        channel: Box<[u8]>,
        /// What was published.
        payload: Box<[u8]>,
    },
}

//! The content of a message.

use crate::acl::User;
use crate::clients::Client;
use crate::redis::blocking::Waiter;
use crate::redis::command::OwnedArgs;
use std::sync::Arc;

/// A message on its way to connections.
#[derive(Debug)]
pub struct Message {
    /// Its place in the order of all messages.
    pub sequence: u64,
    /// The content.
    pub content: Content,
}

/// How to put back what was removed for a blocked client that has disconnected.
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
        /// The client.
        waiter: Arc<Waiter>,
        /// The reply.
        bytes: Box<[u8]>,
        /// To run if the client has disconnected.
        put_back: Option<PutBack>,
        /// The connection ends with it.
        closes: bool,
    },
    /// PUBLISH, or a notification of a key.
    Channel {
        /// Where it was published.
        channel: Box<[u8]>,
        /// The message.
        payload: Box<[u8]>,
    },
    /// Keys that a client keeps copies of were written.
    Invalidate {
        /// The receiver.
        client: Arc<Client>,
        /// As the target of another client's redirection.
        redirected: bool,
        /// Which keys; `None`: all.
        keys: Option<Vec<Box<[u8]>>>,
    },
    /// The client that received this one's invalidations has disconnected.
    RedirectBroken {
        /// The receiver.
        client: Arc<Client>,
        /// The disconnected client.
        redirect: u64,
    },
    /// The rights of a client's user have changed: it ends if it hears what that may not.
    RightsChanged {
        /// The receiver.
        client: Arc<Client>,
        /// Its user at that time.
        user: Arc<User>,
        /// Whether the user may MONITOR.
        may_monitor: bool,
    },
    /// A line for MONITOR clients.
    Monitor {
        /// With its line end.
        line: Box<[u8]>,
    },
    /// SPUBLISH.
    Shard {
        /// Where it was published.
        channel: Box<[u8]>,
        /// The message.
        payload: Box<[u8]>,
    },
}

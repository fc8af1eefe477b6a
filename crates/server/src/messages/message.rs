//! What a message says.

/// A message on its way to connections.
#[derive(Debug)]
pub struct Message {
    /// Its place in the order of all messages.
    pub sequence: u64,
    /// What it says.
    pub content: Content,
}

/// See [`Message`].
#[derive(Debug)]
pub enum Content {
    /// PUBLISH, or a notification of a key.
    Channel {
        /// Where it was published.
        channel: Box<[u8]>,
        /// What was published.
        payload: Box<[u8]>,
    },
    /// SPUBLISH.
    Shard {
        /// Where it was published.
        channel: Box<[u8]>,
        /// What was published.
        payload: Box<[u8]>,
    },
}

//! How other threads talk to a worker.

use super::stream::Stream;
use crate::clients::Client;
use std::sync::{Arc, Mutex, PoisonError};

/// What a worker is told.
pub enum Message {
    /// Serve this connection.
    Connection(Stream, Arc<Client>),
    /// Close the connection with this number.
    Kill(u64),
    /// Finish, close all connections, and end.
    Stop,
}

/// A worker's messages. Locked for an instant per connection, never per request.
pub struct Inbox {
    messages: Mutex<Vec<Message>>,
    waker: mio::Waker,
}

impl Inbox {
    /// An inbox whose worker is woken by `waker`.
    pub const fn new(waker: mio::Waker) -> Self {
        Self { messages: Mutex::new(Vec::new()), waker }
    }

    /// Leaves a message and wakes the worker.
    pub fn send(&self, message: Message) {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        // Fails only when the worker's poll is gone, and then there is nobody to read it.
        let _ = self.waker.wake();
    }

    /// Has a connection closed.
    pub fn kill(&self, id: u64) {
        self.send(Message::Kill(id));
    }

    /// All messages so far.
    pub fn take(&self) -> Vec<Message> {
        std::mem::take(&mut self.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

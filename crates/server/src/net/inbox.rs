//! How other threads talk to a worker.

use super::stream::Stream;
use crate::clients::Client;
use crate::messages;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A message to a worker.
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
    // Messages for connections, in order.
    mail: Mutex<Vec<Arc<messages::Message>>>,
    has_mail: AtomicBool,
    waker: mio::Waker,
}

impl Inbox {
    /// An inbox whose worker is woken by `waker`.
    pub const fn new(waker: mio::Waker) -> Self {
        Self {
            messages: Mutex::new(Vec::new()),
            mail: Mutex::new(Vec::new()),
            has_mail: AtomicBool::new(false),
            waker,
        }
    }

    /// Leaves a message and wakes the worker.
    pub fn send(&self, message: Message) {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        // Fails only when the worker's poll is gone, and then there is no reader.
        let _ = self.waker.wake();
    }

    /// Has a connection closed.
    pub fn kill(&self, id: u64) {
        self.send(Message::Kill(id));
    }

    /// Leaves messages for connections, after those left before. `wakes` is false for the worker itself, which looks
    /// when its turn is durable.
    pub fn send_mail(&self, mail: Vec<Arc<messages::Message>>, wakes: bool) {
        let mut waiting = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        let was_empty = waiting.is_empty();
        waiting.extend(mail);
        // Relaxed, here and below: the lock orders the mail, and the waker announces it.
        self.has_mail.store(true, Ordering::Relaxed);
        drop(waiting);
        if wakes && was_empty {
            let _ = self.waker.wake();
        }
    }

    /// The messages for connections so far.
    pub fn take_mail(&self) -> Vec<Arc<messages::Message>> {
        if !self.has_mail.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut waiting = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_mail.store(false, Ordering::Relaxed);
        std::mem::take(&mut waiting)
    }

    /// All messages so far.
    pub fn take(&self) -> Vec<Message> {
        std::mem::take(&mut self.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

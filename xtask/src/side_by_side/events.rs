//! Notifications of keys, as both servers send them: on each, one client listens to all of them.

use super::PATIENCE;
use crate::failure::{Failure, Result};
use crate::server::Server;
use duramen_resp::{Connection, Reply};

/// Marks the end of a step's notifications.
const END: &[u8] = b"__keyend__";

/// The clients that listen, and those that mark the end of a step.
pub struct Events {
    reference: Side,
    subject: Side,
}

struct Side {
    listener: Connection,
    marker: Connection,
}

impl Events {
    /// Begins to listen.
    pub fn listen(reference: &Server, subject: &Server) -> Result<Self> {
        Ok(Self { reference: Side::listen(reference)?, subject: Side::listen(subject)? })
    }

    /// The notifications of both servers since the last call, without those of expired keys: a server is free to find
    /// these at any time.
    pub fn since(&mut self) -> Result<(Vec<String>, Vec<String>)> {
        Ok((self.reference.since()?, self.subject.since()?))
    }
}

impl Side {
    fn listen(server: &Server) -> Result<Self> {
        let (mut listener, mut marker) = (server.connect()?, server.connect()?);
        let set = marker.call(&["CONFIG", "SET", "notify-keyspace-events", "KEAmn"], PATIENCE);
        let listens = listener.call(&["PSUBSCRIBE", "__key*__:*", "__keyend__"], PATIENCE);
        if set.is_err() || listens.is_err() || listener.read(PATIENCE).is_err() {
            return Err(Failure::new("cannot listen to notifications"));
        }
        Ok(Self { listener, marker })
    }

    fn since(&mut self) -> Result<Vec<String>> {
        if self.marker.call(&[b"PUBLISH", END, b""], PATIENCE).is_err() {
            return Err(Failure::new("cannot mark the end of a step: the server does not answer PUBLISH"));
        }
        let mut events = Vec::new();
        loop {
            let Ok(message) = self.listener.read(PATIENCE) else {
                return Err(Failure::new("a published message did not arrive"));
            };
            let parts: Vec<&[u8]> =
                message.items().unwrap_or_default().iter().filter_map(Reply::text).collect();
            let [_, _, channel, payload] = parts[..] else { continue };
            if channel == END {
                return Ok(events);
            }
            let (channel, payload) = (channel.escape_ascii().to_string(), payload.escape_ascii().to_string());
            let is_expired = payload == "expired" || channel.ends_with(":expired");
            if !is_expired {
                events.push(format!("{channel} {payload}"));
            }
        }
    }
}

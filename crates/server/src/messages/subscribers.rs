//! The subscribed connections of one worker.

use super::message::{Content, Message};
use super::subscriptions::Kind;
use duramen_structures::glob;
use std::collections::{BTreeSet, HashMap};

/// The numbers of clients, by their subscriptions.
#[derive(Default)]
pub struct Subscribers {
    /// The MONITOR clients.
    pub monitors: BTreeSet<u64>,
    clients: [HashMap<Box<[u8]>, BTreeSet<u64>>; 3],
}

impl Subscribers {
    /// A client begins to listen.
    pub fn add(&mut self, kind: Kind, name: &[u8], client: u64) {
        self.clients[kind as usize].entry(name.into()).or_default().insert(client);
    }

    /// It ends to.
    pub fn remove(&mut self, kind: Kind, name: &[u8], client: u64) {
        let names = &mut self.clients[kind as usize];
        if let Some(clients) = names.get_mut(name) {
            clients.remove(&client);
            if clients.is_empty() {
                names.remove(name);
            }
        }
    }

    /// The clients that get a message, each once.
    pub fn receivers(&self, message: &Message, clients: &mut Vec<u64>) {
        let (kind, channel) = match &message.content {
            Content::Reply { waiter, .. } => return clients.push(waiter.client.id),
            Content::Invalidate { client, .. } | Content::RedirectBroken { client, .. } => {
                return clients.push(client.id);
            }
            Content::Monitor { .. } => return clients.extend(&self.monitors),
            Content::Channel { channel, .. } => (Kind::Channel, channel),
            Content::Shard { channel, .. } => (Kind::Shard, channel),
        };
        clients.extend(self.clients[kind as usize].get(channel).into_iter().flatten());
        if kind == Kind::Channel {
            let before = clients.len();
            for (pattern, more) in &self.clients[Kind::Pattern as usize] {
                if glob::matches(pattern, channel) {
                    clients.extend(more);
                }
            }
            if clients.len() > before {
                clients.sort_unstable();
                clients.dedup();
            }
        }
    }
}

//! The subscribed connections of one worker.

use super::message::{Content, Message};
use super::subscriptions::{Kind, Name};
use duramen_structures::glob;
use hashbrown::HashMap;
use hashbrown::hash_map::{Entry, EntryRef};
use std::collections::BTreeSet;
use std::hash::RandomState;

/// The numbers of clients, by their subscriptions.
#[derive(Default)]
pub struct Subscribers {
    /// The MONITOR clients.
    pub monitors: BTreeSet<u64>,
    clients: [HashMap<Name, Clients, RandomState>; 3],
}

/// The clients that subscribe to one name. Most names have one, which needs no memory of its own.
enum Clients {
    One(u64),
    Several(BTreeSet<u64>),
}

impl Clients {
    fn add(&mut self, client: u64) {
        match self {
            Self::One(other) => *self = Self::Several(BTreeSet::from([*other, client])),
            Self::Several(clients) => _ = clients.insert(client),
        }
    }

    /// Removes a client; whether none is left.
    fn remove(&mut self, client: u64) -> bool {
        match self {
            Self::One(other) => *other == client,
            Self::Several(clients) => {
                clients.remove(&client);
                clients.is_empty()
            }
        }
    }

    fn append_to(&self, all: &mut Vec<u64>) {
        match self {
            Self::One(client) => all.push(*client),
            Self::Several(clients) => all.extend(clients),
        }
    }
}

impl Subscribers {
    /// A client begins to listen.
    pub fn add(&mut self, kind: Kind, name: Name, client: u64) {
        match self.clients[kind as usize].entry(name) {
            Entry::Occupied(mut entry) => entry.get_mut().add(client),
            Entry::Vacant(entry) => _ = entry.insert(Clients::One(client)),
        }
    }

    /// It ends to.
    pub fn remove(&mut self, kind: Kind, name: &[u8], client: u64) {
        if let EntryRef::Occupied(mut entry) = self.clients[kind as usize].entry_ref(name)
            && entry.get_mut().remove(client)
        {
            entry.remove();
        }
    }

    /// The clients that get a message, each once.
    pub fn receivers(&self, message: &Message, clients: &mut Vec<u64>) {
        let (kind, channel) = match &message.content {
            Content::Reply { waiter, .. } => return clients.push(waiter.client.id),
            Content::Invalidate { client, .. }
            | Content::RedirectBroken { client, .. }
            | Content::RightsChanged { client, .. } => return clients.push(client.id),
            Content::Monitor { .. } => return clients.extend(&self.monitors),
            Content::Channel { channel, .. } => (Kind::Channel, channel),
            Content::Shard { channel, .. } => (Kind::Shard, channel),
        };
        if let Some(of) = self.clients[kind as usize].get(&**channel) {
            of.append_to(clients);
        }
        if kind == Kind::Channel {
            let before = clients.len();
            for (pattern, more) in &self.clients[Kind::Pattern as usize] {
                if glob::matches(pattern, channel) {
                    more.append_to(clients);
                }
            }
            if clients.len() > before {
                clients.sort_unstable();
                clients.dedup();
            }
        }
    }
}

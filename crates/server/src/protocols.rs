//! The protocols of the server, each on its own listeners, over one engine writer per worker.
//!
//! A turn contains requests of all protocols. They become durable together, and after a failure the outcome of all of
//! them is unknown.

use crate::clients::Client;
use crate::command::CommandError;
use crate::config::Config;
use crate::memcached::{ConnectionState, Service, Shared};
use crate::messages::Message;
use crate::net::{self, Output, Protocol, Refusal};
use crate::redis::{self, Redis};
use crate::server::Server;
use crate::stats::WorkerStats;
use duramen_structures::Worker;
use std::sync::Arc;
use std::time::Instant;

/// Connections to a listener with this mark speak Redis's protocol.
pub const REDIS: u8 = 0;
/// Connections to a listener with this mark speak memcached's protocols.
pub const MEMCACHED: u8 = 1;

const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";
const PROTECTED: &[u8] =
    b"SERVER_ERROR only clients of the server's machine are served while there is no password: set \
requirepass, or protected-mode no\r\n";

/// All protocols of one worker.
pub struct Protocols {
    redis: Redis,
    memcached: Option<Service>,
}

impl Protocols {
    /// Executes on the keys of `worker`, which is the server's worker with this number.
    pub fn new(server: &Arc<Server>, worker: Worker, stats: Arc<WorkerStats>, number: usize) -> Self {
        let service = |shared: &Arc<Shared>| Service::new(Arc::clone(server), Arc::clone(shared), number);
        let memcached = server.memcached.as_ref().map(service);
        Self { redis: Redis::new(Arc::clone(server), worker, stats, number), memcached }
    }
}

/// The state of a connection's protocol.
// Stored inside its connection, because every request needs it: no further pointer.
#[allow(clippy::large_enum_variant)]
pub enum Conversation {
    /// In Redis's protocol.
    Redis(redis::Conversation),
    /// In one of memcached's.
    Memcached(ConnectionState),
}

impl Protocol for Protocols {
    type Conversation = Conversation;
    type Failure = CommandError;

    fn refusal(why: Refusal, mark: u8) -> &'static [u8] {
        match (why, mark) {
            (Refusal::TooMany, MEMCACHED) => TOO_MANY,
            (Refusal::Protected, MEMCACHED) => PROTECTED,
            (why, _) => redis::refusal(why),
        }
    }

    fn conversation(&self, client: Arc<Client>) -> Conversation {
        match client.mark {
            MEMCACHED => {
                Conversation::Memcached(ConnectionState::new(client, self.redis.needs_no_password()))
            }
            _ => Conversation::Redis(self.redis.conversation(client)),
        }
    }

    fn begin_turn(&mut self) {
        let (worker, now) = self.redis.begin_turn();
        if let Some(memcached) = &mut self.memcached {
            memcached.begin_turn(worker, now);
        }
    }

    #[inline]
    fn look_ahead(&mut self, conversation: &Conversation, input: &[u8]) -> usize {
        match (conversation, &self.memcached) {
            (Conversation::Redis(conversation), _) => self.redis.look_ahead(conversation, input),
            (Conversation::Memcached(connection), Some(memcached)) => {
                memcached.look_ahead(self.redis.worker(), connection, input)
            }
            (Conversation::Memcached(_), None) => input.len(),
        }
    }

    #[inline]
    fn execute(
        &mut self,
        conversation: &mut Conversation,
        input: &[u8],
        output: &mut Output,
        config: &Config,
    ) -> Option<usize> {
        match (conversation, &mut self.memcached) {
            (Conversation::Redis(conversation), _) => self.redis.execute(conversation, input, output, config),
            (Conversation::Memcached(connection), Some(memcached)) => {
                memcached.execute(self.redis.worker(), connection, input, output, config)
            }
            // No listener has this mark.
            (Conversation::Memcached(connection), None) => {
                connection.closing = true;
                Some(input.len())
            }
        }
    }

    fn finish_turn(&mut self) -> Result<(), CommandError> {
        if let Some(memcached) = &mut self.memcached {
            if memcached.panicked() {
                self.redis.panicked_elsewhere();
            }
            if let Some(failure) = memcached.failure() {
                self.redis.note(failure);
            }
        }
        let finished = self.redis.finish_turn();
        if let (Ok(()), Some(memcached)) = (&finished, &mut self.memcached) {
            memcached.finish_turn();
        }
        finished
    }

    fn receivers(&self, message: &Message, clients: &mut Vec<u64>) {
        self.redis.receivers(message, clients);
    }

    fn undeliverable(&mut self, message: &Message) {
        self.redis.undeliverable(message);
    }

    fn has_work(&self) -> bool {
        self.redis.has_work()
    }

    fn expire(&mut self, conversation: &mut Conversation, output: &mut Output) {
        if let Conversation::Redis(conversation) = conversation {
            self.redis.expire(conversation, output);
        }
    }

    fn leave(&mut self, conversation: &mut Conversation) {
        if let Conversation::Redis(conversation) = conversation {
            self.redis.leave(conversation);
        }
    }

    fn refuse(conversation: &mut Conversation, failure: &CommandError, output: &mut Output) {
        match conversation {
            Conversation::Redis(conversation) => redis::refuse(conversation, failure, output),
            Conversation::Memcached(connection) => {
                for part in [b"SERVER_ERROR ", failure.text(), b"\r\n"] {
                    output.bytes.extend_from_slice(part);
                }
                connection.closing = true;
            }
        }
    }
}

impl net::Conversation for Conversation {
    #[inline]
    fn client(&self) -> &Client {
        match self {
            Self::Redis(conversation) => conversation.client(),
            Self::Memcached(connection) => &connection.client,
        }
    }

    #[inline]
    fn is_closing(&self) -> bool {
        match self {
            Self::Redis(conversation) => conversation.is_closing(),
            Self::Memcached(connection) => connection.closing,
        }
    }

    #[inline]
    fn paused_until(&self) -> Option<Instant> {
        match self {
            Self::Redis(conversation) => conversation.paused_until(),
            Self::Memcached(_) => None,
        }
    }

    fn go_on(&mut self) {
        if let Self::Redis(conversation) = self {
            conversation.go_on();
        }
    }

    #[inline]
    fn is_waiting(&self) -> bool {
        match self {
            Self::Redis(conversation) => conversation.is_waiting(),
            Self::Memcached(_) => false,
        }
    }

    fn waits_until(&self) -> Option<Instant> {
        match self {
            Self::Redis(conversation) => conversation.waits_until(),
            Self::Memcached(_) => None,
        }
    }

    fn receive(&mut self, message: &Message, output: &mut Output) -> bool {
        match self {
            Self::Redis(conversation) => conversation.receive(message, output),
            Self::Memcached(_) => true,
        }
    }

    fn output_class(&self) -> usize {
        match self {
            Self::Redis(conversation) => conversation.output_class(),
            Self::Memcached(_) => 0,
        }
    }

    fn may_be_idle(&self) -> bool {
        match self {
            Self::Redis(conversation) => conversation.may_be_idle(),
            Self::Memcached(_) => false,
        }
    }

    fn request_bytes(&self) -> usize {
        match self {
            Self::Redis(conversation) => conversation.request_bytes(),
            Self::Memcached(_) => 0,
        }
    }

    fn queued_bytes(&self) -> usize {
        match self {
            Self::Redis(conversation) => conversation.queued_bytes(),
            Self::Memcached(_) => 0,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Redis(conversation) => conversation.bytes(),
            Self::Memcached(_) => 0,
        }
    }

    fn publish(&self) {
        if let Self::Redis(conversation) = self {
            conversation.publish();
        }
    }
}

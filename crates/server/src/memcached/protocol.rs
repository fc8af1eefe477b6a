//! memcached's protocols on the event loop.

use super::connection_state::ConnectionState;
use super::service::Service;
use super::shared::Shared;
use crate::acl::Login;
use crate::clients::Client;
use crate::command_error::CommandError;
use crate::config::Config;
use crate::error::{Error, ErrorKind};
use crate::net::{Conversation, Output, Place, Protocol, Refusal, Turn};
use crate::server::Server;
use duramen_structures::Keyspace;
use std::sync::Arc;
use std::time::Instant;

const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";
const PROTECTED: &[u8] =
    b"SERVER_ERROR only clients of the server's machine are served while there is no password: set \
requirepass, or protected-mode no\r\n";

/// memcached's protocols, as one worker has them, if the configuration says where they are spoken.
pub struct Memcached(Option<Service>);

/// The state that all workers share, if they are to speak memcached's protocols.
///
/// # Errors
/// When there is no such database, and those of the store.
pub fn open(config: &Config, keyspace: &Keyspace, workers: usize) -> Result<Option<Arc<Shared>>, Error> {
    if let Some(db) = config.memcached_database.filter(|db| *db >= config.databases) {
        return Err(Error::new(
            ErrorKind::Configuration,
            format!("memcached-database {db}: there are {} databases, from 0 on", config.databases),
        ));
    }
    if !config.speaks_memcached() {
        return Ok(None);
    }
    let shared = Shared::open(keyspace, config.memcached_database, workers);
    shared
        .map(|shared| Some(Arc::new(shared)))
        .map_err(|error| Error::new(ErrorKind::Store, error.to_string()))
}

impl Protocol for Memcached {
    type Conversation = ConnectionState;

    fn places(config: &Config) -> Vec<Place<'_>> {
        let bind = if config.memcached_bind.is_empty() { &config.bind } else { &config.memcached_bind };
        vec![Place {
            mark: 0,
            bind,
            port: config.memcached,
            is_tls: config.memcached_tls,
            unixsocket: &config.memcached_socket,
            directives: ["--memcached", "--memcached-socket"],
        }]
    }

    fn refusal(why: Refusal, _: u8) -> &'static [u8] {
        match why {
            Refusal::TooMany => TOO_MANY,
            Refusal::Protected => PROTECTED,
        }
    }

    fn new(server: &Arc<Server>, worker: usize) -> Self {
        let shared = server.memcached.as_ref();
        Self(shared.map(|shared| Service::new(Arc::clone(server), Arc::clone(shared), worker)))
    }

    fn conversation(&self, client: Arc<Client>, _: u8) -> ConnectionState {
        match &self.0 {
            Some(service) => service.connection(client),
            // No listener has led here.
            None => ConnectionState::new(client, Login::trusted(), false),
        }
    }

    fn identify(&self, connection: &mut ConnectionState, name: &[u8]) {
        if let Some(service) = &self.0 {
            service.identify(connection, name);
        }
    }

    #[inline]
    fn execute(
        &mut self,
        turn: &mut Turn,
        connection: &mut ConnectionState,
        input: &[u8],
        output: &mut Output,
        config: &Config,
    ) -> Option<usize> {
        match &mut self.0 {
            Some(service) => service.execute(&mut turn.keys, connection, input, output, config),
            // No listener has led here.
            None => {
                connection.closing = true;
                Some(input.len())
            }
        }
    }

    fn refuse(connection: &mut ConnectionState, failure: &CommandError, output: &mut Output) {
        for part in [b"SERVER_ERROR ", failure.text(), b"\r\n"] {
            output.bytes.extend_from_slice(part);
        }
        connection.closing = true;
    }

    #[inline]
    fn look_ahead(&mut self, turn: &mut Turn, connection: &ConnectionState, input: &[u8]) -> usize {
        self.0.as_ref().map_or(input.len(), |service| service.look_ahead(&turn.keys, connection, input))
    }

    fn begin_turn(&mut self, turn: &mut Turn) {
        if let Some(service) = &mut self.0 {
            service.begin_turn(&mut turn.keys, turn.now);
        }
    }

    fn end_turn(&mut self, turn: &mut Turn) {
        let Some(service) = &mut self.0 else { return };
        if service.panicked() {
            turn.note_panic();
        }
        if let Some(failure) = service.failure() {
            turn.note(failure);
        }
    }

    fn finish_turn(&mut self, flushed: Result<(), &CommandError>) {
        if let (Ok(()), Some(service)) = (flushed, &mut self.0) {
            service.finish_turn();
        }
    }
}

impl Conversation for ConnectionState {
    #[inline]
    fn client(&self) -> &Client {
        &self.client
    }

    #[inline]
    fn is_closing(&self) -> bool {
        self.closing
    }

    #[inline]
    fn paused_until(&self) -> Option<Instant> {
        self.paused_until
    }

    fn go_on(&mut self) {
        self.paused_until = None;
    }
}

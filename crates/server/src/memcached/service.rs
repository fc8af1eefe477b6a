//! memcached's protocols as one worker has them: finds requests and executes them on items.

use super::ahead;
use super::binary;
use super::clock::Now;
use super::connection_state::{ConnectionState, Dialect};
use super::counters::Counters;
use super::items::{Items, flush_due};
use super::numbering::Numbering;
use super::request::Request;
use super::shared::Shared;
use super::text;
use crate::clients::Client;
use crate::command_error::CommandError;
use crate::config::Config;
use crate::net::Output;
use crate::observe::log;
use crate::server::Server;
use duramen_structures::Worker;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

const PANICKED: &[u8] =
    b"SERVER_ERROR internal error: command crashed; its effect is unknown, see the server's log\r\n";

/// One worker's state for memcached.
pub struct Service {
    server: Arc<Server>,
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    numbering: Numbering,
    now: Now,
    /// The last error of the store.
    failure: Option<CommandError>,
    /// A request panicked.
    panicked: bool,
}

impl Service {
    /// That of the worker with this number.
    pub fn new(server: Arc<Server>, shared: Arc<Shared>, worker: usize) -> Self {
        let counters = shared.counters.of(worker);
        let numbering = Numbering::new(worker);
        Self { server, shared, counters, numbering, now: Now::default(), failure: None, panicked: false }
    }

    /// The state of a new connection.
    pub fn connection(&self, client: Arc<Client>) -> ConnectionState {
        ConnectionState::of_client(client, &self.server.users)
    }

    /// The client's certificate has this name, by which it may be logged in.
    pub fn identify(&self, connection: &mut ConnectionState, name: &[u8]) {
        let users = &self.server.users;
        if let Some(user) = users.find(name).filter(|user| user.rules().is_on()) {
            connection.log_in(Some(user), users);
        }
    }

    /// A turn begins at this time.
    pub fn begin_turn(&mut self, worker: &mut Worker, millis: u64) {
        self.now = Now::at(millis);
        self.numbering.begin_turn(&self.shared.numbers);
        if self.shared.is_flush_due(self.now.seconds) {
            let done = flush_due(worker, &self.shared, self.now);
            self.shared.flushed(done.is_ok());
            if let Err(error) = done {
                self.failure = Some(error.into());
            }
        }
    }

    /// The turn is durable.
    pub fn finish_turn(&mut self) {
        self.numbering.finish_turn(&self.shared.numbers);
    }

    /// The last error of the store since the last call.
    pub fn failure(&mut self) -> Option<CommandError> {
        self.failure.take()
    }

    /// Whether a request panicked since the last call.
    pub fn panicked(&mut self) -> bool {
        std::mem::take(&mut self.panicked)
    }

    /// Lets the engine prefetch for the next requests in `input`; returns how many of their bytes it looked at.
    pub fn look_ahead(&self, worker: &Worker, connection: &ConnectionState, input: &[u8]) -> usize {
        if connection.dialect != Some(Dialect::Text) || connection.swallow > 0 {
            return input.len();
        }
        let ahead = ahead::look(input);
        // For one there is nothing to overlap with.
        if ahead.count > 1 {
            worker.prefetch(self.shared.db, ahead.keys[..ahead.count].iter().copied());
        }
        if ahead.bytes == 0 { input.len() } else { ahead.bytes }
    }

    /// Executes the request at the beginning of `input`; see [`Protocol::execute`](crate::net::Protocol::execute).
    pub fn execute(
        &mut self,
        worker: &mut Worker,
        connection: &mut ConnectionState,
        input: &[u8],
        out: &mut Output,
        config: &Config,
    ) -> Option<usize> {
        if connection.swallow > 0 {
            let bytes = connection.swallow.min(input.len() as u64);
            connection.swallow -= bytes;
            return Some(bytes as usize);
        }
        let dialect = *connection.dialect.get_or_insert(match input.first() {
            Some(&binary::MAGIC) => Dialect::Binary,
            _ => Dialect::Text,
        });
        let start = out.len();
        let mut request = Request {
            items: Items {
                worker,
                shared: &self.shared,
                counters: &self.counters,
                numbering: &mut self.numbering,
                now: self.now,
                bytes_max: config.memcached_max_item_size,
            },
            out,
            server: &self.server,
            config,
            failure: &mut self.failure,
        };
        let executed = catch_unwind(AssertUnwindSafe(|| match dialect {
            Dialect::Text => text::next(&mut request, connection, input),
            Dialect::Binary => binary::next(&mut request, connection, input),
        }));
        executed.unwrap_or_else(|_| {
            // The start of the next request is unknown now.
            connection.closing = true;
            self.panicked = true;
            out.truncate(start);
            out.bytes.extend_from_slice(PANICKED);
            log::warning(format_args!(
                "the panic above was in a command of memcached's of client {} ({}), which was answered an error and is closed. It is a \
                 bug: please report it with these lines",
                connection.client.id, connection.client.address
            ));
            Some(input.len())
        })
    }
}

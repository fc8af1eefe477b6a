//! A worker: an event loop over its connections, with its own engine writer.
//!
//! One turn of the loop:
//!
//! 1. wait for events (not at all when connections still have work);
//! 2. every connection that has work reads once and executes all requests that have arrived: one group of the
//!    engine;
//! 3. finish the turn: flush the group, one wait for durability, however many requests and connections;
//! 4. send the replies, one write for each connection.
//!
//! **Invariant (P7)**: no byte of a reply is sent between 2 and 3.

use super::buffer_pool::BufferPool;
use super::connection::{Connection, Context, Step};
use super::inbox::{self, Inbox};
use super::protocol::{Conversation as _, Protocol, begin, finish, run_alone};
use super::turn::{Bystanders, Turn};
use crate::clients::unix_seconds;
use crate::config::Config;
use crate::messages::Message;
use crate::observe::stats::WorkerStats;
use crate::server::Server;
use mio::{Events, Interest, Poll, Token};
use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The token of the inbox; connections have those below.
pub const INBOX: Token = Token(usize::MAX);

// As much as a socket's receive buffer usually holds; fits the second-level cache.
const SCRATCH_BYTES: usize = 64 << 10;
const EVENTS_MAX: usize = 1024;
// How often idle clients and limits are looked at, and the most that a pause is overslept.
const TICK: Duration = Duration::from_millis(100);
// How often the others are looked at while one request takes long.
const SERVE_EVERY: Duration = Duration::from_millis(10);

/// A worker's state.
pub struct Worker<P: Protocol> {
    server: Arc<Server>,
    inbox: Arc<Inbox>,
    poll: Poll,
    turn: Turn,
    protocol: P,
    stats: Arc<WorkerStats>,
    config: Arc<Config>,
    config_generation: u64,
    connections: Vec<Option<Box<Connection<P>>>>,
    free: Vec<usize>,
    by_id: HashMap<u64, usize>,
    // When to look at which clients that wait.
    timers: BTreeSet<(Instant, u64)>,
    // Connections with work for the next turn.
    working: Vec<usize>,
    scratch: Vec<u8>,
    buffer_pool: BufferPool,
    ticked: Instant,
    stopping: bool,
    // Empty, but while a connection executes.
    lent: Option<Box<Lent<P>>>,
}

/// The connections of a worker, but for the one that executes.
struct Lent<P: Protocol> {
    connections: Vec<Option<Box<Connection<P>>>>,
    server: Arc<Server>,
    scratch: Vec<u8>,
    served: Instant,
    has_served: bool,
}

impl<P: Protocol> Bystanders for Lent<P> {
    fn serve(&mut self) {
        // Each connection costs a read, which mostly finds nothing. The events stay in the kernel's queue.
        if self.served.elapsed() < SERVE_EVERY {
            return;
        }
        if self.scratch.is_empty() {
            self.scratch = vec![0; SCRATCH_BYTES];
        }
        let config = self.server.config();
        for connection in self.connections.iter_mut().flatten() {
            connection.answer_meanwhile(&self.server, &config, &mut self.scratch);
        }
        (self.served, self.has_served) = (Instant::now(), true);
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl<P: Protocol> Worker<P> {
    /// A worker without connections.
    pub fn new(
        server: Arc<Server>,
        inbox: Arc<Inbox>,
        poll: Poll,
        turn: Turn,
        protocol: P,
        stats: Arc<WorkerStats>,
    ) -> Self {
        let config = server.config();
        let config_generation = server.config_generation();
        let lent = Lent {
            connections: Vec::new(),
            server: Arc::clone(&server),
            scratch: Vec::new(),
            served: Instant::now(),
            has_served: false,
        };
        Self {
            lent: Some(Box::new(lent)),
            server,
            inbox,
            poll,
            turn,
            protocol,
            stats,
            config,
            config_generation,
            connections: Vec::new(),
            free: Vec::new(),
            by_id: HashMap::new(),
            timers: BTreeSet::new(),
            working: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES],
            buffer_pool: BufferPool::default(),
            ticked: Instant::now(),
            stopping: false,
        }
    }

    /// Serves until it is asked to stop.
    ///
    /// # Errors
    /// When the kernel's event queue fails, which it does only by a mistake of ours.
    pub fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        while !self.stopping {
            match self.poll.poll(&mut events, self.patience()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            }
            let mut called = false;
            for event in &events {
                if event.token() == INBOX {
                    called = true;
                    continue;
                }
                let Some(Some(connection)) = self.connections.get_mut(event.token().0) else { continue };
                // A closed or failed socket is readable: the read returns the cause.
                connection.read_closed |= event.is_read_closed() || event.is_error();
                connection.gone |= event.is_write_closed() || event.is_error();
                connection.readable |= event.is_readable() || connection.read_closed;
                if event.is_writable() {
                    connection.writable();
                }
                if !connection.listed {
                    connection.listed = true;
                    self.working.push(event.token().0);
                }
            }
            if called {
                self.messages();
            }
            self.turn();
        }
        self.close_all();
        if self.protocol.has_work() {
            // A failure is logged; no client waits for it.
            let _ = run_alone(&mut self.turn, &mut self.protocol);
        }
        Ok(())
    }

    fn patience(&self) -> Option<Duration> {
        if !self.working.is_empty() || self.protocol.has_work() {
            Some(Duration::ZERO)
        } else if let Some((first, _)) = self.timers.first() {
            Some(first.saturating_duration_since(Instant::now()).min(TICK))
        } else if self.by_id.is_empty() && self.buffer_pool.is_empty() {
            None
        } else {
            Some(TICK)
        }
    }

    fn messages(&mut self) {
        for message in self.inbox.take() {
            match message {
                inbox::Message::Connection(stream, client) => {
                    let index = self.free.pop().unwrap_or_else(|| {
                        self.connections.push(None);
                        self.connections.len() - 1
                    });
                    let (id, mark) = (client.id, client.mark);
                    let conversation = self.protocol.conversation(client, mark);
                    let mut connection = Box::new(Connection::new(stream, conversation, Instant::now()));
                    // Both at once and edge-triggered: the kernel reports each change once, and nothing has to be
                    // registered again.
                    let interest = Interest::READABLE | Interest::WRITABLE;
                    if self.poll.registry().register(&mut connection.stream, Token(index), interest).is_err()
                    {
                        self.server.clients.leave(id);
                        self.free.push(index);
                        continue;
                    }
                    self.by_id.insert(id, index);
                    self.connections[index] = Some(connection);
                }
                inbox::Message::Kill(id) => {
                    if let Some(index) = self.by_id.get(&id).copied() {
                        self.close(index);
                    }
                }
                inbox::Message::Stop => self.stopping = true,
            }
        }
    }

    /// Appends messages to the output of their connections, and lists these as working.
    fn deliver(
        mail: &[Arc<Message>],
        connections: &mut [Option<Box<Connection<P>>>],
        by_id: &HashMap<u64, usize>,
        context: &mut Context<'_, P>,
        working: &mut Vec<usize>,
    ) {
        let mut clients = Vec::new();
        for message in mail {
            clients.clear();
            context.protocol.receivers(message, &mut clients);
            for client in &clients {
                let connection = by_id.get(client).and_then(|&index| connections.get_mut(index)?.as_mut());
                let Some(connection) = connection else {
                    context.protocol.undeliverable(message);
                    continue;
                };
                if !connection.receive(message, context) {
                    context.protocol.undeliverable(message);
                }
                if !connection.listed {
                    connection.listed = true;
                    working.extend(by_id.get(client));
                }
            }
        }
    }

    /// Lists the connections that have waited for long enough.
    fn ring(&mut self, now: Instant) {
        while let Some(&(until, id)) = self.timers.first()
            && until <= now
        {
            self.timers.pop_first();
            let Some(&index) = self.by_id.get(&id) else { continue };
            let Some(Some(connection)) = self.connections.get_mut(index) else { continue };
            connection.timer = None;
            if !connection.listed {
                connection.listed = true;
                self.working.push(index);
            }
        }
    }

    /// Steps 2 to 4.
    fn turn(&mut self) {
        let generation = self.server.config_generation();
        if generation != self.config_generation {
            self.config_generation = generation;
            self.config = self.server.config();
        }
        let now = Instant::now();
        self.ring(now);
        let mut working = std::mem::take(&mut self.working);
        let mail = self.inbox.take_mail();
        if !working.is_empty() || !mail.is_empty() || self.protocol.has_work() {
            self.stats.turns.add(1);
            let mut ended = Vec::new();
            let mut context = Context {
                turn: &mut self.turn,
                protocol: &mut self.protocol,
                scratch: &mut self.scratch,
                buffer_pool: &mut self.buffer_pool,
                stats: &self.stats,
                config: &self.config,
                now,
            };
            Self::deliver(&mail, &mut self.connections, &self.by_id, &mut context, &mut working);
            begin(context.turn, context.protocol);
            let mut goes = Vec::new();
            let mut has_served = false;
            for &index in &working {
                let Some(mut connection) = self.connections.get_mut(index).and_then(Option::take) else {
                    continue;
                };
                connection.listed = false;
                if let Some(mut lent) = self.lent.take() {
                    std::mem::swap(&mut lent.connections, &mut self.connections);
                    context.turn.bystanders = Some(lent);
                }
                let step = connection.execute(&mut context);
                let lent = context.turn.bystanders.take().map(Bystanders::into_any);
                if let Some(mut lent) = lent.and_then(|lent| lent.downcast::<Lent<P>>().ok()) {
                    std::mem::swap(&mut lent.connections, &mut self.connections);
                    has_served |= std::mem::take(&mut lent.has_served);
                    self.lent = Some(lent);
                }
                self.connections[index] = Some(connection);
                match step {
                    Step::Waits => {}
                    Step::Goes => goes.push(index),
                    Step::Ends => ended.push(index),
                }
            }
            if has_served {
                // No event will come for input that was read meanwhile.
                let is_ready = |connection: &Option<Box<Connection<P>>>| {
                    connection.as_ref().is_some_and(|connection| connection.is_ready() && !connection.listed)
                };
                goes.extend((0..self.connections.len()).filter(|&index| is_ready(&self.connections[index])));
            }
            if let Err(failure) = finish(context.turn, context.protocol) {
                for &index in &working {
                    if let Some(Some(connection)) = self.connections.get_mut(index) {
                        connection.refuse_turn(&failure);
                    }
                }
            }
            // The turn's own messages leave with its replies.
            let mail = self.inbox.take_mail();
            let executed = working.len();
            Self::deliver(&mail, &mut self.connections, &self.by_id, &mut context, &mut working);
            for &index in &working[executed..] {
                if let Some(Some(connection)) = self.connections.get_mut(index) {
                    connection.listed = false;
                }
            }
            let seconds = unix_seconds();
            for &index in &working {
                let Some(Some(connection)) = self.connections.get_mut(index) else { continue };
                // Before its replies can be read: CLIENT LIST then includes the answered requests.
                connection.conversation.publish();
                // A connection that has ended may still get the replies to its earlier requests.
                match connection.flush(&mut context) {
                    Step::Waits => {}
                    Step::Goes => goes.push(index),
                    Step::Ends => ended.push(index),
                }
                connection.publish(seconds);
                let until = connection.conversation.waits_until();
                if connection.timer != until {
                    let id = connection.conversation.client().id;
                    let before = std::mem::replace(&mut connection.timer, until);
                    before.map(|before| self.timers.remove(&(before, id)));
                    self.timers.extend(until.map(|until| (until, id)));
                }
            }
            // Before the limits are checked again: a connection is disconnected, and counted, once.
            for index in ended {
                self.close(index);
            }
            let mut more = false;
            for &index in &working {
                if let Some(Some(connection)) = self.connections.get(index) {
                    more |= connection.charge(&self.server.buffers);
                }
            }
            if more && self.server.buffers.excess(&self.config) > 0 {
                self.stats.evicted_clients.add(self.server.evict(&self.config));
            }
            working.clear();
            self.working = working;
            for index in goes {
                if let Some(Some(connection)) = self.connections.get_mut(index)
                    && !connection.listed
                {
                    connection.listed = true;
                    self.working.push(index);
                }
            }
        }
        if now.duration_since(self.ticked) >= TICK {
            self.ticked = now;
            self.tick(now);
        }
    }

    /// Looks at all connections for those that have been idle, paused or over a limit for long enough.
    fn tick(&mut self, now: Instant) {
        self.buffer_pool.tick();
        let mut ended = Vec::new();
        let context = Context {
            turn: &mut self.turn,
            protocol: &mut self.protocol,
            scratch: &mut self.scratch,
            buffer_pool: &mut self.buffer_pool,
            stats: &self.stats,
            config: &self.config,
            now,
        };
        for (index, connection) in self.connections.iter_mut().enumerate() {
            let Some(connection) = connection else { continue };
            if connection.overdue(&context) {
                ended.push(index);
            } else if connection.conversation.paused_until().is_some_and(|until| until <= now)
                && !connection.listed
            {
                connection.listed = true;
                self.working.push(index);
            }
        }
        for index in ended {
            self.close(index);
        }
    }

    fn close(&mut self, index: usize) {
        let Some(mut connection) = self.connections.get_mut(index).and_then(Option::take) else { return };
        connection.uncharge(&self.server.buffers);
        self.protocol.leave(&mut connection.conversation);
        // Closing the socket does the same; mio asks for it.
        let _ = self.poll.registry().deregister(&mut connection.stream);
        let id = connection.conversation.client().id;
        connection.timer.map(|timer| self.timers.remove(&(timer, id)));
        self.by_id.remove(&id);
        self.server.clients.leave(id);
        self.free.push(index);
    }

    fn close_all(&mut self) {
        for index in 0..self.connections.len() {
            self.close(index);
        }
        // Connections that were handed over but never served.
        for message in self.inbox.take() {
            if let inbox::Message::Connection(_, client) = message {
                self.server.clients.leave(client.id);
            }
        }
    }
}

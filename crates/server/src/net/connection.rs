//! One connection: bytes in, commands, bytes out.
//!
//! ```text
//!            readable            closing, all sent          end of input, or a second
//! serving ──────────────► serving ──────────────► lingering ──────────────► closed
//!    └── end of input, error, limit, killed, idle ──────────────────────────►┘
//! ```
//!
//! Lingering: after an error reply, what the client has sent and nobody will read would make the kernel reset the
//! connection, and the reply would be lost with it. So the sending side is closed and the rest read and dropped.
//!
//! Reads go to the worker's own buffer; only what does not make a whole command is kept with the connection. An idle
//! connection has no buffers at all.

use super::stream::Stream;
use crate::command::Dispatcher;
use crate::config::Config;
use crate::resp::{Limits, Output, Reply, Request, Requests};
use crate::server::Buffers;
use crate::session::Session;
use crate::stats::WorkerStats;
use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

// Kept input grows by doubling from here, so that a large argument is copied a constant number of times.
const INPUT_BYTES_MIN: usize = 16 << 10;
// The most that one connection reads in one turn, so that others have theirs.
const TURN_BYTES_MAX: usize = 1 << 20;
// An input buffer larger than this is given back when little of it is used.
const INPUT_KEPT_BYTES_MAX: usize = 64 << 10;
// An output buffer larger than this is given back when it is empty.
const OUTPUT_KEPT_BYTES_MAX: usize = 256 << 10;
// Smaller buffers are not counted: ten thousand of them are 640 MiB.
const CHARGED_BYTES_MIN: u64 = 64 << 10;
const LINGER: Duration = Duration::from_secs(1);

/// What became of a connection in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It waits for the socket.
    Waits,
    /// There is more to read or to execute.
    Goes,
    /// It has ended.
    Ends,
}

/// What the turns of all connections of a worker share.
pub struct Turn<'a> {
    /// Runs the commands.
    pub dispatcher: &'a mut Dispatcher,
    /// For reading.
    pub scratch: &'a mut [u8],
    /// Empty output buffers.
    pub spare: &'a mut Vec<Vec<u8>>,
    /// The worker's counters.
    pub stats: &'a WorkerStats,
    /// The configuration.
    pub config: &'a Config,
    /// The time of this turn.
    pub now: Instant,
}

/// A connection.
pub struct Connection {
    /// The socket.
    pub stream: Stream,
    /// What its client said so far.
    pub session: Session,
    /// When its client last sent something, or took some of a reply.
    pub active: Instant,
    /// Events say that it can be read, or that there is input to execute.
    pub readable: bool,
    /// The client sends no more: reading goes on until it says so, since no further event will tell.
    pub read_closed: bool,
    /// Nothing that is sent can reach the client any more.
    pub gone: bool,
    /// Is in the worker's list of connections with work.
    pub listed: bool,
    requests: Requests,
    // Input that is not executed yet: the first `input_used` bytes; the rest is room.
    input: Vec<u8>,
    input_used: usize,
    // Some of `input` may be executed without reading more (after a pause).
    input_ready: bool,
    output: Output,
    // How much of `output` is sent already.
    output_sent: usize,
    // How much of `output` was there before this turn.
    output_settled: usize,
    // The socket takes no more until it says so.
    blocked: bool,
    over_soft_limit_since: Option<Instant>,
    lingering_until: Option<Instant>,
}

impl Connection {
    /// A connection that has said nothing yet.
    pub fn new(stream: Stream, session: Session, now: Instant) -> Self {
        Self {
            stream,
            session,
            active: now,
            readable: false,
            read_closed: false,
            gone: false,
            listed: false,
            requests: Requests::default(),
            input: Vec::new(),
            input_used: 0,
            input_ready: false,
            output: Output::default(),
            output_sent: 0,
            output_settled: 0,
            blocked: false,
            over_soft_limit_since: None,
            lingering_until: None,
        }
    }

    /// The socket can take more.
    pub const fn writable(&mut self) {
        self.blocked = false;
    }

    /// Reads once and executes what has arrived. Nothing is sent yet.
    pub fn execute(&mut self, turn: &mut Turn<'_>) -> Step {
        self.output_settled = self.output.len();
        if self.lingering_until.is_some() {
            return self.discard(turn);
        }
        if self.session.paused_until.is_some_and(|until| until > turn.now) {
            // A client that has only ended its sending still wants its replies.
            return if self.gone { Step::Ends } else { Step::Waits };
        }
        self.session.paused_until = None;
        if self.input_ready {
            self.input_ready = false;
            let used = self.input_used;
            return self.execute_kept(used, turn, Step::Goes);
        }
        if !self.readable {
            return Step::Waits;
        }
        if self.input_used > 0 {
            return self.read_kept(turn);
        }
        match self.stream.read(turn.scratch) {
            Ok(0) => Step::Ends,
            Ok(bytes) => {
                self.received(bytes, turn);
                // A read that did not fill the buffer has emptied the socket.
                let step = if bytes < turn.scratch.len() { self.drained() } else { Step::Goes };
                self.take_output(turn);
                let scratch = std::mem::take(&mut turn.scratch);
                let done = self.commands(&scratch[..bytes], turn);
                self.keep(&scratch[done..bytes]);
                turn.scratch = scratch;
                self.after_commands(turn, step)
            }
            Err(error) => self.read_failed(&error),
        }
    }

    /// Goes on with a command that has arrived in part.
    fn read_kept(&mut self, turn: &mut Turn<'_>) -> Step {
        if self.input_used == self.input.len() {
            let grown = (self.input.len() * 2).max(INPUT_BYTES_MIN);
            self.input.resize(grown, 0);
        }
        let end = self.input.len().min(self.input_used + TURN_BYTES_MAX);
        match self.stream.read(&mut self.input[self.input_used..end]) {
            Ok(0) => Step::Ends,
            Ok(bytes) => {
                self.received(bytes, turn);
                let used = self.input_used + bytes;
                let step = if used < end { self.drained() } else { Step::Goes };
                self.take_output(turn);
                self.execute_kept(used, turn, step)
            }
            Err(error) => self.read_failed(&error),
        }
    }

    fn execute_kept(&mut self, used: usize, turn: &mut Turn<'_>, step: Step) -> Step {
        let mut input = std::mem::take(&mut self.input);
        let done = self.commands(&input[..used], turn);
        let left = used - done;
        if left == 0 || (input.len() > INPUT_KEPT_BYTES_MAX && left < input.len() / 4) {
            // Little or nothing is left: a connection that sends no more has a small buffer, or none.
            self.input_used = 0;
            self.keep(&input[done..used]);
        } else {
            input.copy_within(done..used, 0);
            self.input_used = left;
            self.input = input;
        }
        self.after_commands(turn, step)
    }

    fn keep(&mut self, rest: &[u8]) {
        if !rest.is_empty() {
            self.input = vec![0; rest.len().next_power_of_two().max(INPUT_BYTES_MIN)];
            self.input[..rest.len()].copy_from_slice(rest);
            self.input_used = rest.len();
        }
    }

    /// Executes the commands in `input`; gives how many bytes they took.
    fn commands(&mut self, input: &[u8], turn: &mut Turn<'_>) -> usize {
        let mut done = 0;
        // Commands before this were looked ahead at. The first one is not: most reads hold no other.
        let mut looked = 1;
        let output_max = match turn.config.client_output_buffer_limit[0].hard_bytes {
            0 => usize::MAX,
            most => most as usize,
        };
        self.output.limit(self.output_sent.saturating_add(output_max));
        while done < input.len() && !self.session.closing && !self.session.client.is_killed() {
            if self.session.paused_until.is_some() {
                self.input_ready = true;
                break;
            }
            if done >= looked {
                looked = done + turn.dispatcher.look_ahead(&self.session, &input[done..]).max(1);
            }
            let limits = Limits {
                bulk_bytes_max: turn.config.proto_max_bulk_len,
                authenticated: self.session.authenticated,
            };
            match self.requests.next(&input[done..], &limits) {
                Ok(Request::Command { bytes }) => {
                    let args = self.requests.args(&input[done..]);
                    turn.dispatcher.execute(&mut self.session, args, &mut self.output);
                    done += bytes;
                    if self.output.is_over() {
                        // `flush` ends the connection, or the client takes it all and may go on.
                        self.input_ready = true;
                        break;
                    }
                }
                Ok(Request::Nothing { bytes }) => done += bytes,
                Ok(Request::Incomplete { .. }) => break,
                Err(error) => {
                    turn.stats.error("ERR");
                    Reply::new(&mut self.output, self.session.protocol)
                        .error(format!("ERR Protocol error: {error}"));
                    self.session.closing = true;
                }
            }
        }
        if self.session.closing { input.len() } else { done }
    }

    fn after_commands(&mut self, turn: &Turn<'_>, step: Step) -> Step {
        if self.session.client.is_killed() {
            return Step::Ends;
        }
        let kept = self.input_used + self.requests.bytes();
        turn.stats.input_bytes_max.set(turn.stats.input_bytes_max.get().max(kept as u64));
        turn.stats.output_bytes_max.set(turn.stats.output_bytes_max.get().max(self.output.len() as u64));
        // As in Redis: what waits for EXEC is input that is not executed yet.
        if (kept + self.session.queued_bytes()) as u64 > turn.config.client_query_buffer_limit {
            turn.stats.query_limit_disconnections.add(1);
            return Step::Ends;
        }
        if self.input_ready && self.session.paused_until.is_none() { Step::Goes } else { step }
    }

    fn received(&mut self, bytes: usize, turn: &Turn<'_>) {
        turn.stats.reads.add(1);
        turn.stats.input_bytes.add(bytes as u64);
        self.active = turn.now;
    }

    const fn drained(&mut self) -> Step {
        self.readable = self.read_closed;
        if self.readable { Step::Goes } else { Step::Waits }
    }

    fn read_failed(&mut self, error: &std::io::Error) -> Step {
        match error.kind() {
            ErrorKind::WouldBlock => {
                self.readable = false;
                Step::Waits
            }
            ErrorKind::Interrupted => Step::Goes,
            _ => Step::Ends,
        }
    }

    fn discard(&mut self, turn: &mut Turn<'_>) -> Step {
        if !self.readable {
            return Step::Waits;
        }
        match self.stream.read(turn.scratch) {
            Ok(0) => Step::Ends,
            Ok(_) => Step::Goes,
            Err(error) => self.read_failed(&error),
        }
    }

    /// This turn could not be made durable: what it would have shown is replaced by `error`, and the
    /// connection ends.
    pub fn unsettled(&mut self, error: &[u8]) {
        if self.output.len() > self.output_settled {
            self.output.truncate(self.output_settled);
            Reply::new(&mut self.output, self.session.protocol).error(error);
            self.session.closing = true;
        }
    }

    /// Sends what is there to send, as far as the socket takes it.
    pub fn flush(&mut self, turn: &mut Turn<'_>) -> Step {
        if self.output.is_cut() {
            turn.stats.output_limit_disconnections.add(1);
            return Step::Ends;
        }
        if self.session.paused_until.is_some() {
            return Step::Waits;
        }
        while !self.blocked && self.output_sent < self.output.len() {
            match self.stream.write(&self.output.bytes[self.output_sent..]) {
                Ok(0) => return Step::Ends,
                Ok(bytes) => {
                    turn.stats.writes.add(1);
                    turn.stats.output_bytes.add(bytes as u64);
                    self.output_sent += bytes;
                    self.active = turn.now;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.blocked = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Step::Ends,
            }
        }
        if self.output_sent == self.output.len() {
            self.give_output(turn);
            self.over_soft_limit_since = None;
            if self.session.closing && self.lingering_until.is_none() {
                self.stream.shutdown_write();
                self.lingering_until = Some(turn.now + LINGER);
                self.readable = true;
                return self.discard(turn);
            }
            return Step::Waits;
        }
        self.drop_sent();
        if self.over_limit(turn) {
            turn.stats.output_limit_disconnections.add(1);
            return Step::Ends;
        }
        Step::Waits
    }

    /// Drops what is sent of `output`, which a client that is always a little behind would never have cleared. Only
    /// when that is more than the rest, so that for each byte moved one was sent.
    fn drop_sent(&mut self) {
        if self.output_sent > self.output.len() / 2 {
            self.output.bytes.drain(..self.output_sent);
            self.output_sent = 0;
            // All of it is: nothing is sent before.
            self.output_settled = self.output.len();
        }
    }

    fn over_limit(&mut self, turn: &Turn<'_>) -> bool {
        let limit = &turn.config.client_output_buffer_limit[0];
        let waiting = (self.output.len() - self.output_sent) as u64;
        if limit.hard_bytes > 0 && waiting > limit.hard_bytes {
            return true;
        }
        if limit.soft_bytes == 0 || waiting <= limit.soft_bytes {
            self.over_soft_limit_since = None;
            return false;
        }
        let since = *self.over_soft_limit_since.get_or_insert(turn.now);
        turn.now.duration_since(since) > Duration::from_secs(u64::from(limit.soft_seconds))
    }

    /// Whether a client that sends nothing and reads nothing has done so for too long.
    pub fn overdue(&mut self, turn: &Turn<'_>) -> bool {
        if self.lingering_until.is_some_and(|until| until <= turn.now) {
            return true;
        }
        if self.output_sent < self.output.len() && self.over_limit(turn) {
            turn.stats.output_limit_disconnections.add(1);
            return true;
        }
        let timeout = turn.config.timeout;
        timeout > 0
            && self.session.paused_until.is_none()
            && turn.now.duration_since(self.active) > Duration::from_secs(u64::from(timeout))
    }

    /// Tells what its buffers take now, when that is much, or was. True when it is more than before.
    pub fn charge(&self, buffers: &Buffers) -> bool {
        let client = &self.session.client;
        let bytes = self.buffer_bytes();
        // Of a killed one they are about to be gone.
        let counts = bytes >= CHARGED_BYTES_MIN && !client.is_killed();
        buffers.charge(client, if counts { bytes } else { 0 })
    }

    /// Its buffers are about to be gone.
    pub fn uncharge(&self, buffers: &Buffers) {
        buffers.charge(&self.session.client, 0);
    }

    /// What its buffers take, and what it keeps for EXEC.
    fn buffer_bytes(&self) -> u64 {
        let buffers = self.input.len() + self.requests.bytes() + self.output.bytes.capacity();
        (buffers + self.session.multi_bytes()) as u64
    }

    /// Tells other connections about this one's traffic.
    pub fn publish(&self, unix_seconds: u64) {
        let client = &self.session.client;
        let relaxed = Ordering::Relaxed;
        client.active_at.store(unix_seconds, relaxed);
        client.input_bytes.store(self.input_used as u64, relaxed);
        client.input_free_bytes.store((self.input.len() - self.input_used) as u64, relaxed);
        client.output_bytes.store((self.output.len() - self.output_sent) as u64, relaxed);
    }

    fn take_output(&mut self, turn: &mut Turn<'_>) {
        if self.output.bytes.capacity() == 0
            && let Some(spare) = turn.spare.pop()
        {
            self.output.bytes = spare;
        }
    }

    fn give_output(&mut self, turn: &mut Turn<'_>) {
        // As many as there can be connections in one turn.
        const SPARE_MAX: usize = 1024;
        self.output.bytes.clear();
        self.output_sent = 0;
        self.output_settled = 0;
        let output = std::mem::take(&mut self.output.bytes);
        if output.capacity() > 0 && output.capacity() <= OUTPUT_KEPT_BYTES_MAX && turn.spare.len() < SPARE_MAX
        {
            turn.spare.push(output);
        }
    }
}

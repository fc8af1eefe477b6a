//! One connection: bytes in, requests, bytes out.
//!
//! ```text
//!            readable            closing, all sent          end of input, or a second
//! serving ──────────────► serving ──────────────► lingering ──────────────► closed
//!    └── end of input, error, limit, killed, idle ──────────────────────────►┘
//! ```
//!
//! Lingering: unread input of the client after an error reply would make the kernel reset the connection and lose the
//! reply. So the sending side is closed, and the remaining input is read and dropped.
//!
//! Reads go to the worker's own buffer; the connection keeps only an incomplete request. An idle connection has no
//! buffers.
//!
//! Backpressure: a client may pipeline more than it reads. Once [`OUTPUT_UNREAD_BYTES_MAX`] of its replies are unread,
//! none of its requests begins until half of that is read ([`Connection::backed_up`]). Its requests are still read
//! meanwhile, because a client may send all of them before it reads the first reply. Beyond [`INPUT_AHEAD_BYTES_MAX`]
//! they stay in the kernel, which then stops the client. So the memory of a connection is bounded, and no client is
//! disconnected for reading slowly: the limit of output applies to the reply of a single request.

use super::buffer_pool::BufferPool;
use super::output::Output;
use super::protocol::{Conversation as _, Protocol};
use super::stream::Stream;
use super::tls::common_name;
use super::turn::Turn;
use crate::command_error::CommandError;
use crate::config::{Config, OutputLimit};
use crate::messages::Message;
use crate::observe::log;
use crate::observe::stats::WorkerStats;
use crate::server::{Buffers, Server};
use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

// Kept input grows by doubling from here, so that a large argument is copied a constant number of times.
const INPUT_BYTES_MIN: usize = 16 << 10;
// The maximum that one connection reads in one turn, so that the others get their turn.
const TURN_BYTES_MAX: usize = 1 << 20;
// An input buffer larger than this is given back when little of it is used.
const INPUT_KEPT_BYTES_MAX: usize = 64 << 10;
// Replies of 4 MiB keep a connection of 10 Gbit/s busy for 3 ms, which is longer than a turn mostly takes.
const OUTPUT_UNREAD_BYTES_MAX: usize = 4 << 20;
// Requests of a client that sends before it reads: some three million short ones.
const INPUT_AHEAD_BYTES_MAX: usize = 64 << 20;
// Smaller buffers are not counted: ten thousand of them are 640 MiB.
const CHARGED_BYTES_MIN: u64 = 64 << 10;
const LINGER: Duration = Duration::from_secs(1);

/// The state of a connection after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It waits for the socket.
    Waits,
    /// There is more to read or to execute.
    Goes,
    /// It has ended.
    Ends,
}

/// The state that the turns of all connections of a worker share.
pub struct Context<'a, P> {
    /// The engine's writer.
    pub turn: &'a mut Turn,
    /// Executes the requests.
    pub protocol: &'a mut P,
    /// For reading.
    pub scratch: &'a mut [u8],
    /// Empty output buffers.
    pub buffer_pool: &'a mut BufferPool,
    /// The worker's counters.
    pub stats: &'a WorkerStats,
    /// The configuration.
    pub config: &'a Config,
    /// The time of this turn.
    pub now: Instant,
}

/// A connection.
pub struct Connection<P: Protocol> {
    /// The socket.
    pub stream: Stream,
    /// The protocol's state.
    pub conversation: P::Conversation,
    /// When its client last sent bytes or took reply bytes.
    pub active: Instant,
    /// Events say that it can be read, or that there is input to execute.
    pub readable: bool,
    /// The client sends no more: keep reading until a read returns the end, because no further event comes.
    pub read_closed: bool,
    /// No reply can reach the client any more.
    pub gone: bool,
    /// When the worker checks it because it has waited for too long.
    pub timer: Option<Instant>,
    /// Is in the worker's list of connections with work.
    pub listed: bool,
    // Unexecuted input, from `input_from` to `input_used`; the rest is free.
    input: Vec<u8>,
    input_from: usize,
    input_used: usize,
    // Some of `input` may be executed without reading more (after a pause).
    input_ready: bool,
    // The client has ended its sending; its requests are still executed and answered.
    input_over: bool,
    // Too many replies are unread, so no further request begins.
    backed_up: bool,
    output: Output,
    // How much of `output` is sent already.
    output_sent: usize,
    // How much of `output` was there before this turn.
    output_before_turn: usize,
    // The socket takes no more until it says so.
    blocked: bool,
    // More than the limit was unsent when a message came: the connection ends.
    flooded: bool,
    over_soft_limit_since: Option<Instant>,
    lingering_until: Option<Instant>,
}

impl<P: Protocol> Connection<P> {
    /// A new connection.
    pub fn new(stream: Stream, conversation: P::Conversation, now: Instant) -> Self {
        Self {
            stream,
            conversation,
            active: now,
            readable: false,
            read_closed: false,
            gone: false,
            timer: None,
            listed: false,
            input: Vec::new(),
            input_from: 0,
            input_used: 0,
            input_ready: false,
            input_over: false,
            backed_up: false,
            output: Output::default(),
            output_sent: 0,
            output_before_turn: 0,
            blocked: false,
            flooded: false,
            over_soft_limit_since: None,
            lingering_until: None,
        }
    }

    /// The socket can take more.
    pub const fn writable(&mut self) {
        self.blocked = false;
    }

    /// Reads once and executes the requests that have arrived. Nothing is sent yet.
    pub fn execute(&mut self, context: &mut Context<'_, P>) -> Step {
        self.output_before_turn = self.output.len();
        if self.lingering_until.is_some() {
            return self.discard(context);
        }
        if self.gone && self.input_over {
            return Step::Ends;
        }
        if self.conversation.paused_until().is_some_and(|until| until > context.now) {
            // A client that has only ended its sending still wants its replies.
            return if self.gone { Step::Ends } else { Step::Waits };
        }
        self.conversation.go_on();
        if self.conversation.is_waiting() {
            // A client that has ended its sending counts as disconnected, as in Redis: there is no other sign.
            if self.gone || self.read_closed || self.input_over {
                return Step::Ends;
            }
            if self.conversation.waits_until().is_none_or(|until| until > context.now) {
                return Step::Waits;
            }
            self.take_output(context);
            context.protocol.expire(&mut self.conversation, &mut self.output);
            if self.conversation.is_waiting() {
                return Step::Waits;
            }
        }
        if self.backed_up {
            return self.read_ahead(context);
        }
        if self.input_ready {
            self.input_ready = false;
            return self.execute_kept(context, Step::Goes);
        }
        if !self.readable || self.input_over {
            return Step::Waits;
        }
        if self.input_used > 0 {
            return match self.read_kept(context) {
                Ok(step) => self.execute_kept(context, step),
                Err(step) => step,
            };
        }
        match self.stream.read(context.scratch) {
            Ok(0) => self.input_ended(),
            Ok(bytes) => {
                self.received(bytes, context);
                // A read that did not fill the buffer has emptied the socket.
                let step = if bytes < context.scratch.len() { self.drained() } else { Step::Goes };
                self.take_output(context);
                let scratch = std::mem::take(&mut context.scratch);
                let done = self.requests(&scratch[..bytes], context);
                self.keep(&scratch[done..bytes]);
                context.scratch = scratch;
                self.after_requests(context, step)
            }
            Err(error) => self.read_failed(&error),
        }
    }

    /// Reads after the kept input. `Err` when there was nothing to read.
    fn read_kept(&mut self, context: &Context<'_, P>) -> Result<Step, Step> {
        if self.input_used == self.input.len() {
            if self.input_from > 0 {
                self.input.copy_within(self.input_from..self.input_used, 0);
                self.input_used -= self.input_from;
                self.input_from = 0;
            }
            if self.input_used > self.input.len() / 2 {
                let grown = (self.input.len() * 2).max(INPUT_BYTES_MIN);
                self.input.resize(grown, 0);
            }
        }
        let end = self.input.len().min(self.input_used + TURN_BYTES_MAX);
        match self.stream.read(&mut self.input[self.input_used..end]) {
            Ok(0) => Err(self.input_ended()),
            Ok(bytes) => {
                self.received(bytes, context);
                self.input_used += bytes;
                Ok(if self.input_used < end { self.drained() } else { Step::Goes })
            }
            Err(error) => Err(self.read_failed(&error)),
        }
    }

    /// Reads requests that are not executed until replies have been read, so that a client that sends first can
    /// continue.
    fn read_ahead(&mut self, context: &mut Context<'_, P>) -> Step {
        if self.gone {
            return Step::Ends;
        }
        let most = INPUT_AHEAD_BYTES_MAX.min(context.config.client_query_buffer_limit as usize);
        if !self.readable || self.input_over || self.input_kept() >= most {
            return Step::Waits;
        }
        let step = if self.input.is_empty() {
            match self.stream.read(context.scratch) {
                Ok(0) => self.input_ended(),
                Ok(bytes) => {
                    self.received(bytes, context);
                    self.keep(&context.scratch[..bytes]);
                    self.input_ready = true;
                    if bytes < context.scratch.len() { self.drained() } else { Step::Goes }
                }
                Err(error) => self.read_failed(&error),
            }
        } else {
            self.read_kept(context).unwrap_or_else(|step| step)
        };
        context.stats.input_bytes_max.set(context.stats.input_bytes_max.get().max(self.input_kept() as u64));
        step
    }

    /// The client sends no more.
    fn input_ended(&mut self) -> Step {
        self.input_over = true;
        // A client that has only ended its sending, as `nc -N` does, still wants the replies.
        if self.gone || !self.backed_up && !self.input_ready && self.unread() == 0 {
            return Step::Ends;
        }
        Step::Waits
    }

    fn execute_kept(&mut self, context: &mut Context<'_, P>, step: Step) -> Step {
        self.take_output(context);
        let input = std::mem::take(&mut self.input);
        let (from, used) = (self.input_from, self.input_used);
        let done = from + self.requests(&input[from..used], context);
        let left = used - done;
        if left == 0 || (input.len() > INPUT_KEPT_BYTES_MAX && left < input.len() / 4) {
            // Little or nothing is left: a connection that sends no more has a small buffer, or none.
            self.input_used = 0;
            self.input_from = 0;
            self.keep(&input[done..used]);
        } else {
            self.input_from = done;
            self.input = input;
        }
        self.after_requests(context, step)
    }

    fn keep(&mut self, rest: &[u8]) {
        if !rest.is_empty() {
            self.input = vec![0; rest.len().next_power_of_two().max(INPUT_BYTES_MIN)];
            self.input[..rest.len()].copy_from_slice(rest);
            self.input_from = 0;
            self.input_used = rest.len();
        }
    }

    fn log_limit(&self, limit: &str, bytes: usize) {
        let client = self.conversation.client();
        log::warning(format_args!(
            "closing client {} ({}): {bytes} bytes exceed {limit}",
            client.id, client.address
        ));
    }

    /// Bytes that were read and not executed.
    const fn input_kept(&self) -> usize {
        self.input_used - self.input_from
    }

    /// Bytes of replies that the client has not taken.
    const fn unread(&self) -> usize {
        self.output.len() - self.output_sent
    }

    /// Executes the requests in `input`; gives how many bytes they took.
    fn requests(&mut self, input: &[u8], context: &mut Context<'_, P>) -> usize {
        let mut done = 0;
        // Requests before this were looked ahead at. The first one is not: most reads hold no other.
        let mut looked = 1;
        let limit = &context.config.client_output_buffer_limit[self.conversation.output_class()];
        let output_max = match limit.hard_bytes {
            0 => usize::MAX,
            most => most as usize,
        };
        self.output.limit(self.output_sent.saturating_add(output_max));
        let unread_max = unread_max(limit);
        while done < input.len() && !self.conversation.is_closing() && !self.conversation.client().is_killed()
        {
            if done >= TURN_BYTES_MAX {
                // Input that was read ahead is executed in several turns, so that other connections get theirs.
                self.input_ready = true;
                break;
            }
            if self.conversation.paused_until().is_some() || self.conversation.is_waiting() {
                self.input_ready = true;
                break;
            }
            if done >= looked {
                looked = done
                    + context.protocol.look_ahead(context.turn, &self.conversation, &input[done..]).max(1);
            }
            let request = &input[done..];
            let Some(bytes) = context.protocol.execute(
                context.turn,
                &mut self.conversation,
                request,
                &mut self.output,
                context.config,
            ) else {
                break;
            };
            done += bytes;
            if self.unread() > unread_max {
                // Until `flush` says that the client has taken them, or ends the connection.
                self.backed_up = true;
                self.input_ready = true;
                break;
            }
        }
        if self.conversation.is_closing() {
            // Before its last reply is sent: a client that has read it finds the connection gone.
            self.conversation.client().leave();
            context.protocol.leave(&mut self.conversation);
            return input.len();
        }
        done
    }

    fn after_requests(&mut self, context: &Context<'_, P>, step: Step) -> Step {
        if self.conversation.client().is_killed() {
            return Step::Ends;
        }
        let kept = self.input_kept() + self.conversation.request_bytes();
        context.stats.input_bytes_max.set(context.stats.input_bytes_max.get().max(kept as u64));
        context
            .stats
            .output_bytes_max
            .set(context.stats.output_bytes_max.get().max(self.output.len() as u64));
        // Queued commands are input that is not executed yet. Input that was read ahead is not a single request.
        let request = if self.input_ready { 0 } else { kept };
        if (request + self.conversation.queued_bytes()) as u64 > context.config.client_query_buffer_limit {
            context.stats.query_limit_disconnections.add(1);
            self.log_limit("client-query-buffer-limit", request + self.conversation.queued_bytes());
            return Step::Ends;
        }
        if self.conversation.is_waiting() {
            return if self.read_closed { Step::Ends } else { Step::Waits };
        }
        if self.input_ready && !self.backed_up && self.conversation.paused_until().is_none() {
            Step::Goes
        } else {
            step
        }
    }

    fn received(&mut self, bytes: usize, context: &Context<'_, P>) {
        if let Some(tls) = self.stream.tls()
            && let Some(certificate) = tls.take_certificate()
            && context.config.tls_auth_clients_user
            && let Some(name) = common_name(&certificate)
        {
            context.protocol.identify(&mut self.conversation, name);
        }
        context.stats.reads.add(1);
        context.stats.input_bytes.add(bytes as u64);
        context.stats.input_bytes_max.set(context.stats.input_bytes_max.get().max(bytes as u64));
        self.active = context.now;
    }

    const fn drained(&mut self) -> Step {
        self.readable = self.read_closed || self.stream.is_ended();
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

    fn discard(&mut self, context: &mut Context<'_, P>) -> Step {
        if !self.readable {
            return Step::Waits;
        }
        match self.stream.read(context.scratch) {
            Ok(0) => Step::Ends,
            Ok(_) => Step::Goes,
            Err(error) => self.read_failed(&error),
        }
    }

    /// Answers what has arrived while a request of another connection takes too long. A connection with anything unsent
    /// or unexecuted waits: that may belong to the turn, which is not durable.
    pub fn answer_meanwhile(&mut self, server: &Server, config: &Config, scratch: &mut [u8]) {
        let is_free = self.lingering_until.is_none()
            && !self.input_over
            && self.input_used == 0
            && self.output.is_empty()
            && !self.backed_up
            && !self.conversation.is_waiting()
            && !self.conversation.is_closing()
            && self.conversation.paused_until().is_none();
        if !is_free {
            return;
        }
        // What else a read finds, an end or an error, the next turn finds again.
        let Ok(bytes @ 1..) = self.stream.read(scratch) else { return };
        let (input, mut done) = (&scratch[..bytes], 0);
        while done < bytes {
            let conversation = &mut self.conversation;
            match P::answer_meanwhile(server, conversation, &input[done..], &mut self.output, config) {
                Some(bytes) => done += bytes,
                None => break,
            }
        }
        self.keep(&input[done..]);
        self.input_ready = self.input_used > 0;
        if let Ok(sent) = self.stream.write(&self.output.bytes) {
            self.output_sent = sent;
        }
        if self.output_sent == self.output.len() {
            self.output.truncate(0);
            self.output_sent = 0;
        }
        // A turn that fails takes back its own replies alone.
        self.output_before_turn = self.output.len();
    }

    /// Whether there is input that waits for a turn.
    pub const fn is_ready(&self) -> bool {
        self.input_ready
    }

    /// Appends a message to the output. False if the client is gone or more than the limit is unsent.
    pub fn receive(&mut self, message: &Message, context: &mut Context<'_, P>) -> bool {
        let hard = context.config.client_output_buffer_limit[self.conversation.output_class()].hard_bytes;
        let is_waiting = self.conversation.is_waiting();
        let has_gone =
            self.gone || is_waiting && (self.read_closed || self.conversation.client().is_killed());
        if self.lingering_until.is_some() || self.flooded || has_gone {
            return false;
        }
        if hard > 0 && self.unread() as u64 > hard {
            self.flooded = true;
            return false;
        }
        self.take_output(context);
        // A message is never cut: exceeding the limit ends the connection.
        self.output.limit(usize::MAX);
        let is_taken = self.conversation.receive(message, &mut self.output);
        // Between two turns: a failed turn takes back only its own output.
        self.output_before_turn = self.output.len();
        is_taken
    }

    /// This turn could not be made durable: the failure replaces its replies, and the connection ends.
    pub fn refuse_turn(&mut self, failure: &CommandError) {
        if self.output.len() > self.output_before_turn {
            self.output.truncate(self.output_before_turn);
            P::refuse(&mut self.conversation, failure, &mut self.output);
        }
    }

    /// Sends the output, as far as the socket accepts it.
    pub fn flush(&mut self, context: &mut Context<'_, P>) -> Step {
        if self.output.is_cut() {
            context.stats.output_limit_disconnections.add(1);
            self.log_limit("client-output-buffer-limit", self.unread());
            return Step::Ends;
        }
        if self.conversation.paused_until().is_some() {
            return Step::Waits;
        }
        while !self.blocked && self.output_sent < self.output.len() {
            match self.stream.write(&self.output.bytes[self.output_sent..]) {
                Ok(0) => return Step::Ends,
                Ok(bytes) => {
                    context.stats.writes.add(1);
                    context.stats.output_bytes.add(bytes as u64);
                    self.output_sent += bytes;
                    self.active = context.now;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.blocked = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Step::Ends,
            }
        }
        if self.backed_up
            && self.unread()
                <= unread_max(&context.config.client_output_buffer_limit[self.conversation.output_class()])
                    / 2
        {
            self.backed_up = false;
        }
        if let Some(tls) = self.stream.tls() {
            match tls.stream.send() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.blocked = true,
                Err(_) => return Step::Ends,
                Ok(()) => {}
            }
            if tls.stream.has_unsent() && self.output_sent == self.output.len() {
                // The socket says when it takes more.
                return Step::Waits;
            }
        }
        // It waits only for its turn.
        let is_waiting = self.conversation.is_waiting();
        let goes = (self.input_ready || self.readable && !self.input_over) && !self.backed_up && !is_waiting;
        let step = if goes { Step::Goes } else { Step::Waits };
        if self.output_sent == self.output.len() {
            self.give_output(context);
            self.over_soft_limit_since = None;
            if self.input_over && !goes {
                return Step::Ends;
            }
            if self.conversation.is_closing() && self.lingering_until.is_none() {
                self.stream.shutdown_write();
                self.lingering_until = Some(context.now + LINGER);
                self.readable = true;
                return self.discard(context);
            }
            return step;
        }
        self.drop_sent();
        if self.over_limit(context) {
            context.stats.output_limit_disconnections.add(1);
            self.log_limit("client-output-buffer-limit", self.unread());
            return Step::Ends;
        }
        step
    }

    /// Drops the sent part of `output`, which would otherwise never be cleared for a client that always reads a little
    /// late. Only when that part is larger than the rest, so that for each byte moved one was sent.
    fn drop_sent(&mut self) {
        if self.output_sent > self.output.len() / 2 {
            self.output.bytes.drain(..self.output_sent);
            self.output_sent = 0;
            // All of it is: nothing is sent before.
            self.output_before_turn = self.output.len();
        }
    }

    fn over_limit(&mut self, context: &Context<'_, P>) -> bool {
        let limit = &context.config.client_output_buffer_limit[self.conversation.output_class()];
        let waiting = (self.output.len() - self.output_sent) as u64;
        if self.flooded || limit.hard_bytes > 0 && waiting > limit.hard_bytes {
            return true;
        }
        if limit.soft_bytes == 0 || waiting <= limit.soft_bytes {
            self.over_soft_limit_since = None;
            return false;
        }
        let since = *self.over_soft_limit_since.get_or_insert(context.now);
        context.now.duration_since(since) > Duration::from_secs(u64::from(limit.soft_seconds))
    }

    /// Whether a client that sends nothing and reads nothing has done so for too long.
    pub fn overdue(&mut self, context: &Context<'_, P>) -> bool {
        if self.lingering_until.is_some_and(|until| until <= context.now)
            || self.stream.tls().is_some_and(|tls| tls.is_overdue(context.now))
        {
            return true;
        }
        if self.output_sent < self.output.len() && self.over_limit(context) {
            context.stats.output_limit_disconnections.add(1);
            self.log_limit("client-output-buffer-limit", self.unread());
            return true;
        }
        let timeout = context.config.timeout;
        timeout > 0
            && self.conversation.paused_until().is_none()
            && !self.conversation.may_be_idle()
            && context.now.duration_since(self.active) > Duration::from_secs(u64::from(timeout))
    }

    /// Reports the bytes of its buffers, if they are or were large. True when they have grown.
    pub fn charge(&self, buffers: &Buffers) -> bool {
        let client = self.conversation.client();
        let bytes = self.buffer_bytes();
        // The buffers of a killed client are about to be freed.
        let counts = bytes >= CHARGED_BYTES_MIN && !client.is_killed();
        buffers.charge(client, if counts { bytes } else { 0 })
    }

    /// Its buffers are about to be gone.
    pub fn uncharge(&self, buffers: &Buffers) {
        buffers.charge(self.conversation.client(), 0);
    }

    /// Bytes of its buffers and of the commands queued for EXEC.
    fn buffer_bytes(&self) -> u64 {
        (self.input.len() + self.output.bytes.capacity() + self.conversation.bytes()) as u64
    }

    /// Tells other connections about this one's traffic.
    pub fn publish(&self, unix_seconds: u64) {
        let client = self.conversation.client();
        let relaxed = Ordering::Relaxed;
        client.active_at.store(unix_seconds, relaxed);
        client.input_bytes.store(self.input_kept() as u64, relaxed);
        client.input_free_bytes.store((self.input.len() - self.input_kept()) as u64, relaxed);
        client.output_bytes.store(self.unread() as u64, relaxed);
        client.output_buffer_bytes.store(self.output.bytes.capacity() as u64, relaxed);
    }

    fn take_output(&mut self, context: &mut Context<'_, P>) {
        if self.output.bytes.capacity() == 0
            && let Some(buffer_pool) = context.buffer_pool.take()
        {
            self.output.bytes = buffer_pool;
        }
    }

    fn give_output(&mut self, context: &mut Context<'_, P>) {
        self.output.bytes.clear();
        self.output_sent = 0;
        self.output_before_turn = 0;
        context.buffer_pool.give(std::mem::take(&mut self.output.bytes));
    }
}

/// The unread replies at which no further request begins: at most half of the limit of output, so that a request has
/// room for its own reply.
fn unread_max(limit: &OutputLimit) -> usize {
    let halves =
        [limit.hard_bytes, limit.soft_bytes].into_iter().filter(|bytes| *bytes > 0).map(|bytes| bytes / 2);
    halves.fold(OUTPUT_UNREAD_BYTES_MAX, |most, half| most.min(half as usize))
}

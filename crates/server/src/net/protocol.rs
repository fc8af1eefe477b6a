//! The event loop's interface to a protocol: find requests in the received bytes, execute them, and report a failed
//! turn to the client. The bytes and the meaning of a request belong to the protocol; the [`Turn`] and its writer
//! belong to the event loop.
//!
//! A worker runs one type of protocol, so every call below is a direct one. Several protocols are joined by
//! [`Pair`](super::Pair).
//!
//! - **Invariant 1**: requests of a connection are executed in the order of their bytes, and their replies are appended
//!   to its output in that order. Between [`Turn::begin`] and [`Turn::flush`] none of them is sent.
//! - **Invariant 2**: after a failed [`Turn::flush`], nothing that was appended since [`Turn::begin`] is sent. The
//!   output is taken back, and [`Protocol::refuse`] appends the error.

use super::listen::Place;
use super::output::Output;
use super::turn::Turn;
use crate::clients::Client;
use crate::command_error::CommandError;
use crate::config::Config;
use crate::messages::Message;
use crate::server::Server;
use std::sync::Arc;
use std::time::Instant;

/// A protocol, as one worker has it.
pub trait Protocol: Sized + 'static {
    /// The protocol's state of one connection.
    type Conversation: Conversation + 'static;

    /// Where it is spoken; the marks say by which protocol of several.
    fn places(config: &Config) -> Vec<Place<'_>>;

    /// The reply to a refused client, by the mark of its listener.
    fn refusal(why: Refusal, mark: u8) -> &'static [u8];

    /// The protocol for the server's worker with this number.
    fn new(server: &Arc<Server>, worker: usize) -> Self;

    /// A connection has come to a listener with this mark.
    fn conversation(&self, client: Arc<Client>, mark: u8) -> Self::Conversation;

    /// The client's certificate has this name, by which it may be logged in.
    fn identify(&self, _conversation: &mut Self::Conversation, _name: &[u8]) {}

    /// Executes the request at the beginning of `input` and appends its reply. Returns how many bytes to skip, which
    /// may be meaningless ones; `None` when the request is incomplete. After `None` the next call has the same bytes
    /// and more. A malformed request is answered, and closes the conversation.
    fn execute(
        &mut self,
        turn: &mut Turn,
        conversation: &mut Self::Conversation,
        input: &[u8],
        output: &mut Output,
        config: &Config,
    ) -> Option<usize>;

    /// Answers the request at the beginning of `input` while one of another connection takes too long, and the worker
    /// with it. As [`execute`](Self::execute), but without keys. `None` also for requests that wait until then.
    fn answer_meanwhile(
        _server: &Server,
        _conversation: &mut Self::Conversation,
        _input: &[u8],
        _output: &mut Output,
        _config: &Config,
    ) -> Option<usize> {
        None
    }

    /// Appends the error that replaces the replies of a failed turn, and closes the conversation.
    fn refuse(conversation: &mut Self::Conversation, failure: &CommandError, output: &mut Output);

    /// Prefetches for the next requests in `input` while earlier ones execute; changes nothing. Returns the bytes of
    /// the requests that it looked at.
    fn look_ahead(&mut self, _turn: &mut Turn, _conversation: &Self::Conversation, input: &[u8]) -> usize {
        input.len()
    }

    /// A turn has begun.
    fn begin_turn(&mut self, _turn: &mut Turn) {}

    /// All requests of the turn are executed; it is flushed next.
    fn end_turn(&mut self, _turn: &mut Turn) {}

    /// The turn is durable, or failed.
    fn finish_turn(&mut self, _flushed: Result<(), &CommandError>) {}

    /// Whether the next turn has work even without requests.
    fn has_work(&self) -> bool {
        false
    }

    /// The clients of this worker that get a message.
    fn receivers(&self, _message: &Message, _clients: &mut Vec<u64>) {}

    /// A message has come for a connection that is not there any more, or cannot take it.
    fn undeliverable(&mut self, _message: &Message) {}

    /// The time of [`Conversation::waits_until`] has come. It may be another one afterwards.
    fn expire(&mut self, _conversation: &mut Self::Conversation, _output: &mut Output) {}

    /// A connection has ended, or is about to: nothing more of it is executed. May be called again.
    fn leave(&mut self, _conversation: &mut Self::Conversation) {}
}

/// The protocol's state of one connection, as far as the event loop needs it.
pub trait Conversation {
    /// The part that other connections may read.
    fn client(&self) -> &Client;

    /// Nothing further is executed, and the connection ends when the replies so far are sent.
    fn is_closing(&self) -> bool;

    /// Nothing further is executed, and nothing sent, before this moment.
    #[inline]
    fn paused_until(&self) -> Option<Instant> {
        None
    }

    /// The pause is over.
    fn go_on(&mut self) {}

    /// Its last request is not answered yet: nothing further is executed before a message answers it, or its time has come.
    #[inline]
    fn is_waiting(&self) -> bool {
        false
    }

    /// When that is.
    fn waits_until(&self) -> Option<Instant> {
        None
    }

    /// Appends a message to the client's output, if it is for it. The writes that caused it are durable. False when it
    /// is for no client.
    fn receive(&mut self, _message: &Message, _output: &mut Output) -> bool {
        true
    }

    /// Which of the limits of output it falls under: its position in [`OUTPUT_CLASSES`](crate::config::OUTPUT_CLASSES).
    fn output_class(&self) -> usize {
        0
    }

    /// Whether it may be silent for ever.
    fn may_be_idle(&self) -> bool {
        false
    }

    /// Bytes of an incomplete request's state, besides its input.
    fn request_bytes(&self) -> usize {
        0
    }

    /// Bytes of requests that are queued for a later one.
    fn queued_bytes(&self) -> usize {
        0
    }

    /// All that it takes, besides input and output.
    fn bytes(&self) -> usize {
        0
    }

    /// Publishes its state to other connections; once in a turn.
    fn publish(&self) {}
}

/// Begins a turn.
pub fn begin<P: Protocol>(turn: &mut Turn, protocol: &mut P) {
    turn.begin();
    protocol.begin_turn(turn);
}

/// Finishes a turn, all of whose requests are executed: makes them durable.
///
/// # Errors
/// When that failed: the turn's effects must not be shown.
pub fn finish<P: Protocol>(turn: &mut Turn, protocol: &mut P) -> Result<(), CommandError> {
    protocol.end_turn(turn);
    let flushed = turn.flush();
    protocol.finish_turn(flushed.as_ref().copied());
    flushed
}

/// A turn without requests, for the protocol's own work.
///
/// # Errors
/// As [`finish`].
pub fn run_alone<P: Protocol>(turn: &mut Turn, protocol: &mut P) -> Result<(), CommandError> {
    begin(turn, protocol);
    finish(turn, protocol)
}

/// The reason for refusing a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There are `maxclients` already.
    TooMany,
    /// It comes from another machine, where no password is set and `protected-mode` is on.
    Protected,
}
